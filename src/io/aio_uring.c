// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The io_uring engine (io_uring(7), through liburing). Completions are reaped in
 * batches. Block device discards and zeroing have no io_uring operation before
 * Linux 6.12 and go to the thread pool.
 *
 * The first engine of a loop is also what the loop sleeps in (struct loop_sleeper),
 * where the kernel has what it takes (Linux 5.19): requests gather in the ring and
 * the loop's sleep starts them, one system call for both. The ring then watches
 * eventfds by multishot polls, and the loop's epoll descriptor by one that is armed
 * again when needed. With nothing in flight the loop sleeps in ppoll instead: a
 * thread that waits in io_uring_enter counts as waiting for a disk, and an idle
 * machine would look like a busy disk in the host's figures.
 *
 * Entries carry what they are in the low bits of user_data.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/util.h"
#include "io/aio_internal.h"

enum tag { TAG_REQUEST, TAG_EDGE, TAG_EPOLL, TAG_IGNORE, TAG_MASK = 3 };

/* How long the loop stays in io_uring_enter without a request in flight. */
#define IDLE_NS 1000000
/* A batch for the disk is started in pieces of so many: the disk works on the first while the rest is prepared.
 * In one piece both take turns, as many disks also report a batch in one piece. */
#define DISK_BATCH 4

struct aio_uring {
	struct io_uring ring;
	unsigned in_ring; /* requests put there and not reaped: kept below the completion queue's size */
	bool sleeper;	  /* the loop sleeps here */
	bool epoll_armed, epoll_ready;
};

static int submit(struct aio *a)
{
	counter_add(&a->stats.syscalls, 1);
	return io_uring_submit(&a->uring->ring);
}

/* An entry; submits first when all are taken. */
static struct io_uring_sqe *get_sqe(struct aio *a)
{
	struct aio_uring *u = a->uring;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (sqe || !u->sleeper)
		return sqe;
	submit(a);
	return io_uring_get_sqe(&u->ring);
}

/* ---- completions ------------------------------------------------------------ */

/* What is no request; true when it was that. */
static bool take_event(struct aio *a, const struct io_uring_cqe *cqe)
{
	switch (cqe->user_data & TAG_MASK) {
	case TAG_REQUEST: return false;
	case TAG_EDGE: loop_edge_event(a->loop, cqe->user_data >> 2, !(cqe->flags & IORING_CQE_F_MORE)); break;
	case TAG_EPOLL:
		a->uring->epoll_armed = false;
		a->uring->epoll_ready = true;
		break;
	default: break;
	}
	return true;
}

void aio_uring_complete(struct aio *a)
{
	struct aio_uring *u = a->uring;
	struct io_uring_cqe *cqe[64];
	struct aio_req *again = NULL;
	unsigned n;

	while ((n = io_uring_peek_batch_cqe(&u->ring, cqe, ARRAY_SIZE(cqe))) > 0) {
		struct aio_req *req[ARRAY_SIZE(cqe)];
		unsigned k = 0;

		/* done() may start new I/O on this ring: give the entries back before calling it. */
		for (unsigned i = 0; i < n; i++) {
			if (take_event(a, cqe[i]))
				continue;
			req[k] = io_uring_cqe_get_data(cqe[i]);
			req[k++]->result = cqe[i]->res;
		}
		io_uring_cq_advance(&u->ring, n);
		u->in_ring -= k;
		for (unsigned i = 0; i < k; i++) {
			if (req[i]->result == -EINTR || req[i]->result == -EAGAIN) {
				req[i]->next = again;
				again = req[i];
			} else {
				aio_complete(a, req[i], req[i]->result);
			}
		}
	}
	while (again) {
		struct aio_req *req = again;
		again = req->next;
		aio_untake(a, req);
	}
}

static void uring_reap(void *opaque, unsigned events)
{
	aio_uring_complete(opaque);
	aio_flush(opaque);
}

/* ---- the loop's sleep ------------------------------------------------------------ */

static bool sleeper_watch(void *arg, int fd, uint64_t cookie)
{
	struct io_uring_sqe *sqe = get_sqe(arg);

	if (!sqe)
		return false;
	io_uring_prep_poll_multishot(sqe, fd, POLLIN);
	sqe->user_data = cookie << 2 | TAG_EDGE;
	return true;
}

static void sleeper_unwatch(void *arg, uint64_t cookie)
{
	struct aio *a = arg;
	struct io_uring_sqe *sqe = get_sqe(a);

	/* Without: it goes on, and loop_edge_event knows it no more. */
	if (!sqe)
		return;
	io_uring_prep_poll_remove(sqe, cookie << 2 | TAG_EDGE);
	sqe->user_data = TAG_IGNORE;
	/* The descriptor is about to be closed, and its number to be somebody else's. */
	submit(a);
}

static bool sleeper_signal(void *arg, int fd)
{
	static const uint64_t one = 1;
	struct io_uring_sqe *sqe = get_sqe(arg);

	if (!sqe)
		return false;
	io_uring_prep_write(sqe, fd, &one, sizeof(one), 0);
	sqe->user_data = TAG_IGNORE;
	sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
	return true;
}

static void sleeper_settle(void *arg)
{
	struct aio *a = arg;

	if (!io_uring_sq_ready(&a->uring->ring))
		return;
	submit(a);
}

/* Start what is in the ring, and wait. False: the time is over and nothing happened. */
static bool enter_and_wait(struct aio *a, int epfd, int64_t timeout_ns)
{
	struct __kernel_timespec ts = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
	struct aio_uring *u = a->uring;
	struct io_uring_sqe *sqe = u->epoll_armed ? NULL : get_sqe(a);
	struct io_uring_cqe *cqe = NULL;
	int ret;

	if (sqe) {
		io_uring_prep_poll_add(sqe, epfd, POLLIN);
		sqe->user_data = TAG_EPOLL;
		u->epoll_armed = true;
	}
	ret = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, timeout_ns < 0 ? NULL : &ts, NULL);
	counter_add(&a->stats.syscalls, 1);
	/* The kernel is short of memory: look again soon rather than at once. */
	if (ret == -EAGAIN && !cqe)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return ret != -ETIME || cqe;
}

static bool sleeper_sleep(void *arg, int epfd, int64_t timeout_ns)
{
	struct aio *a = arg;
	struct aio_uring *u = a->uring;
	struct pollfd fds[2] = {{.fd = epfd, .events = POLLIN}, {.fd = u->ring.ring_fd, .events = POLLIN}};
	bool look = false, happened = false;

	if (timeout_ns == 0) {
		sleeper_settle(a);
		look = true;
	} else if (u->in_ring || io_uring_sq_ready(&u->ring)) {
		const bool idle = !u->in_ring && (timeout_ns < 0 || timeout_ns > IDLE_NS);
		happened = enter_and_wait(a, epfd, idle ? IDLE_NS : timeout_ns) || !idle;
		timeout_ns = timeout_ns < 0 ? timeout_ns : timeout_ns - IDLE_NS;
	}
	if (!look && !happened) {
		struct timespec ts = {timeout_ns / 1000000000, timeout_ns % 1000000000};
		look = ppoll(fds, 2, timeout_ns < 0 ? NULL : &ts, NULL) > 0 && fds[0].revents;
	}
	aio_uring_complete(a);
	look |= u->epoll_ready;
	u->epoll_ready = false;
	return look;
}

/* ---- the ring ----------------------------------------------------------------------- */

static int uring_init(struct aio_uring *u)
{
	/* COOP_TASKRUN (Linux 5.19) spares an interruption of the thread per completion. */
	int ret = io_uring_queue_init(AIO_BATCH_MAX, &u->ring, IORING_SETUP_COOP_TASKRUN);

	u->sleeper = ret == 0 && (u->ring.features & IORING_FEAT_EXT_ARG) && (u->ring.features & IORING_FEAT_CQE_SKIP);
	return ret == -EINVAL ? io_uring_queue_init(AIO_BATCH_MAX, &u->ring, 0) : ret;
}

static int uring_open(struct aio *a, struct err *err)
{
	const struct loop_sleeper sleeper = {sleeper_watch,  sleeper_unwatch, sleeper_sleep,
					     sleeper_signal, sleeper_settle,  a};
	struct aio_uring *u = calloc(1, sizeof(*u));
	int ret;

	if (!u)
		return err_set(err, -ENOMEM, "out of memory for io_uring");
	ret = uring_init(u);
	if (ret < 0) {
		free(u);
		if (ret == -ENOSYS)
			return err_set(err, ret, "io_uring is not in this kernel");
		if (ret == -EPERM || ret == -EACCES)
			return err_set(err, ret,
				       "io_uring is forbidden here (seccomp, or sysctl kernel.io_uring_disabled)");
		return err_set_errno(err, ret, "io_uring cannot be set up");
	}
	a->uring = u;
	u->sleeper = u->sleeper && loop_set_sleeper(a->loop, &sleeper);
	ret = u->sleeper ? 0 : loop_watch(a->loop, u->ring.ring_fd, LOOP_READ, uring_reap, a);
	if (ret) {
		io_uring_queue_exit(&u->ring);
		free(u);
		a->uring = NULL;
		return err_set_errno(err, ret, "io_uring's descriptor cannot be watched");
	}
	return 0;
}

static void uring_close(struct aio *a)
{
	if (a->uring->sleeper) {
		sleeper_settle(a);
		loop_set_sleeper(a->loop, NULL);
	} else {
		loop_unwatch(a->loop, a->uring->ring.ring_fd);
	}
	io_uring_queue_exit(&a->uring->ring);
	free(a->uring);
	a->uring = NULL;
}

static void uring_prepare(struct io_uring_sqe *sqe, struct aio_req *req)
{
	switch (req->op) {
	case AIO_READV:
		if (req->niov == 1)
			io_uring_prep_read(sqe, req->fd, req->iov->iov_base,
					   (unsigned)MIN(req->iov->iov_len, (size_t)(1u << 30)), req->offset);
		else
			io_uring_prep_readv(sqe, req->fd, req->iov, (unsigned)req->niov, req->offset);
		break;
	case AIO_WRITEV:
		if (req->niov == 1)
			io_uring_prep_write(sqe, req->fd, req->iov->iov_base,
					    (unsigned)MIN(req->iov->iov_len, (size_t)(1u << 30)), req->offset);
		else
			io_uring_prep_writev(sqe, req->fd, req->iov, (unsigned)req->niov, req->offset);
		break;
	case AIO_FDATASYNC: io_uring_prep_fsync(sqe, req->fd, IORING_FSYNC_DATASYNC); break;
	default: io_uring_prep_fallocate(sqe, req->fd, req->mode, (off_t)req->offset, (off_t)req->len); break;
	}
	if (req->slow)
		sqe->flags |= IOSQE_ASYNC;
	io_uring_sqe_set_data(sqe, req);
}

static void uring_retry(void *arg)
{
	aio_flush(arg);
}

static bool uring_start(struct aio *a)
{
	struct aio_uring *u = a->uring;
	unsigned limit = *u->ring.cq.kring_entries;
	struct io_uring_sqe *sqe;
	struct aio_req *req;
	unsigned quick = 0; /* what done() submits must not keep the loop here for ever */
	int ret;

	while (u->in_ring < limit && (req = aio_take(a)) != NULL) {
		if (req->op == AIO_BLKDISCARD || req->op == AIO_BLKZEROOUT) {
			aio_pool_give(a, req);
			continue;
		}
		if (quick < AIO_BATCH_MAX && aio_do_at_once(a, req)) {
			quick++;
			continue;
		}
		sqe = get_sqe(a);
		if (!sqe) {
			aio_untake(a, req);
			break;
		}
		uring_prepare(sqe, req);
		u->in_ring++;
		/* The last piece is left to whoever submits or sleeps next. */
		if (req->disk && a->head && io_uring_sq_ready(&u->ring) >= DISK_BATCH)
			submit(a);
	}
	a->stuck = false;
	if (u->sleeper || !io_uring_sq_ready(&u->ring))
		return false; /* the loop's sleep starts them; or completions will call again */
	ret = submit(a);
	/* EAGAIN and EBUSY: the kernel is short of memory or wants completions reaped first; the
	 * entries stay in the ring, and the next reap or flush submits them. */
	a->stuck = io_uring_sq_ready(&u->ring) > 0;
	if (ret < 0 && u->in_ring == io_uring_sq_ready(&u->ring) && ret != -EINTR)
		loop_post(a->loop, uring_retry, a);
	/* What the page cache served is complete already: no need to sleep for it. */
	aio_uring_complete(a);
	return ret > 0;
}

const struct aio_engine_ops aio_uring_ops = {.open = uring_open, .close = uring_close, .start = uring_start};
