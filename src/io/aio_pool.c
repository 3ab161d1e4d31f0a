// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The thread pool engine and the synchronous one: requests carried out with
 * blocking system calls. Workers are started as they are needed and end after
 * some idle seconds.
 *
 * Locking: pool->lock guards the two lists and the counts. Workers never touch
 * struct aio; results come back through an eventfd that the loop watches.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "io/aio_internal.h"

/* As deep as a guest's usual queue: with blocking calls one request occupies one worker. */
#define POOL_MAX_WORKERS  64
#define POOL_IDLE_SECONDS 10

struct aio_pool {
	pthread_mutex_t lock;
	pthread_cond_t work, ended;
	struct aio_req *todo, **todo_tail; /* under lock */
	struct aio_req *done, **done_tail; /* under lock */
	unsigned waiting;		   /* requests in todo */
	unsigned idle, workers;		   /* under lock */
	bool closing;
	int event_fd;
};

int64_t aio_perform(const struct aio_req *req)
{
	uint64_t range[2] = {req->offset, req->len};
	int64_t ret = -1;

	do {
		switch (req->op) {
		case AIO_READV: ret = preadv(req->fd, req->iov, req->niov, (off_t)req->offset); break;
		case AIO_WRITEV: ret = pwritev(req->fd, req->iov, req->niov, (off_t)req->offset); break;
		case AIO_FDATASYNC: ret = fdatasync(req->fd); break;
		case AIO_FALLOCATE: ret = fallocate(req->fd, req->mode, (off_t)req->offset, (off_t)req->len); break;
		case AIO_BLKDISCARD: ret = ioctl(req->fd, BLKDISCARD, range); break;
		case AIO_BLKZEROOUT: ret = ioctl(req->fd, BLKZEROOUT, range); break;
		}
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : ret;
}

static void *pool_worker(void *arg)
{
	struct aio_pool *p = arg;
	struct timespec until;
	const uint64_t one = 1;
	struct aio_req *req;
	int ret = 0;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (!p->todo && !p->closing && ret != ETIMEDOUT) {
			clock_gettime(CLOCK_REALTIME, &until);
			until.tv_sec += POOL_IDLE_SECONDS;
			p->idle++;
			ret = pthread_cond_timedwait(&p->work, &p->lock, &until);
			p->idle--;
		}
		ret = 0;
		if (!p->todo)
			break;
		req = p->todo;
		p->todo = req->next;
		p->waiting--;
		if (!p->todo)
			p->todo_tail = &p->todo;
		pthread_mutex_unlock(&p->lock);

		req->result = aio_perform(req);

		pthread_mutex_lock(&p->lock);
		req->next = NULL;
		if (!p->done && write(p->event_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
			BUG("eventfd write: %s", strerror(errno));
		*p->done_tail = req;
		p->done_tail = &req->next;
	}
	p->workers--;
	pthread_cond_signal(&p->ended);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void pool_reap(void *opaque, unsigned events)
{
	struct aio *a = opaque;
	struct aio_pool *p = a->pool;
	struct aio_req *req, *next;
	uint64_t n;

	if (read(p->event_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		BUG("eventfd read: %s", strerror(errno));
	pthread_mutex_lock(&p->lock);
	req = p->done;
	p->done = NULL;
	p->done_tail = &p->done;
	pthread_mutex_unlock(&p->lock);
	for (; req; req = next) {
		next = req->next;
		aio_complete(a, req, req->result);
	}
	aio_flush(a);
}

int aio_pool_open(struct aio *a, struct err *err)
{
	struct aio_pool *p = calloc(1, sizeof(*p));
	int ret;

	if (!p)
		return err_set(err, -ENOMEM, "out of memory for the I/O thread pool");
	p->todo_tail = &p->todo;
	p->done_tail = &p->done;
	p->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->event_fd < 0) {
		ret = err_set_errno(err, -errno, "eventfd for the I/O thread pool");
		goto out_free;
	}
	ret = loop_watch(a->loop, p->event_fd, LOOP_READ, pool_reap, a);
	if (ret) {
		err_set_errno(err, ret, "the I/O thread pool's eventfd cannot be watched");
		goto out_close;
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->ended, NULL);
	a->pool = p;
	return 0;

out_close:
	close(p->event_fd);
out_free:
	free(p);
	return ret;
}

void aio_pool_close(struct aio *a)
{
	struct aio_pool *p = a->pool;

	pthread_mutex_lock(&p->lock);
	p->closing = true;
	pthread_cond_broadcast(&p->work);
	while (p->workers)
		pthread_cond_wait(&p->ended, &p->lock);
	pthread_mutex_unlock(&p->lock);
	loop_unwatch(a->loop, p->event_fd);
	close(p->event_fd);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->ended);
	pthread_mutex_destroy(&p->lock);
	free(p);
	a->pool = NULL;
}

/* Called with the lock held. Signals stay with the threads that expect them. */
static bool pool_add_worker(struct aio_pool *p)
{
	sigset_t all, old;
	pthread_t thread;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&thread, NULL, pool_worker, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		return false;
	pthread_detach(thread);
	p->workers++;
	return true;
}

void aio_pool_give(struct aio *a, struct aio_req *req)
{
	struct aio_pool *p;

	if (!a->pool && aio_pool_open(a, NULL)) {
		aio_complete(a, req, -ENOMEM);
		return;
	}
	p = a->pool;
	pthread_mutex_lock(&p->lock);
	if (p->waiting >= p->idle && p->workers < POOL_MAX_WORKERS && !pool_add_worker(p) && !p->workers) {
		/* Not one thread to be had: do the work here rather than never. */
		pthread_mutex_unlock(&p->lock);
		aio_complete(a, req, aio_perform(req));
		return;
	}
	req->next = NULL;
	*p->todo_tail = req;
	p->todo_tail = &req->next;
	p->waiting++;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
	counter_add(&a->stats.syscalls, 1);
}

static bool pool_start(struct aio *a)
{
	struct aio_req *req;

	while ((req = aio_take(a)) != NULL)
		aio_pool_give(a, req);
	return false;
}

static void pool_no_close(struct aio *a) /* aio_destroy closes the pool for every engine */ {}

const struct aio_engine_ops aio_pool_ops = {.open = aio_pool_open, .close = pool_no_close, .start = pool_start};

static int sync_open(struct aio *a, struct err *err)
{
	return 0;
}

static bool sync_start(struct aio *a)
{
	struct aio_req *req = aio_take(a);

	if (!req)
		return false;
	counter_add(&a->stats.syscalls, 1);
	aio_complete(a, req, aio_perform(req));
	return true;
}

const struct aio_engine_ops aio_sync_ops = {.open = sync_open, .close = pool_no_close, .start = sync_start};
