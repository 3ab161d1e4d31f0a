// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Asynchronous file I/O: the queue and the choice of an engine. Requests gather
 * in a list until aio_flush gives them to the engine in one go, so that a batch
 * costs one system call with io_uring.
 *
 * Locking: none. A `struct aio` belongs to its loop's thread; only the thread
 * pool (aio_pool.c) has a lock of its own.
 */
#include "io/aio.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "io/aio_internal.h"

/* A write took so long that it was no mere copy, and so did another shortly before: one alone may be the doing of a
 * busy host's scheduler. */
#define HELD_UP_NS  20000000
#define AGAIN_NS    1000000000
#define SLOW_FOR_NS 200000000

static const struct aio_engine_ops *const engine_table[] = {
    [AIO_URING] = &aio_uring_ops,
    [AIO_THREADS] = &aio_pool_ops,
    [AIO_SYNC] = &aio_sync_ops,
};

const char *aio_engine_name(enum aio_engine e)
{
	static const char *const names[] = {"auto", "io_uring", "threads", "sync"};
	return (unsigned)e < ARRAY_SIZE(names) ? names[e] : "unknown";
}

/* One line per process says why io_uring is not used: a machine may have many disks. */
static void aio_say_fallback(const struct err *why)
{
	static bool said;
	if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		log_info("disk I/O uses a thread pool: %s", why->msg);
}

static bool aio_before_sleep(void *arg)
{
	struct aio *a = arg;
	const uint64_t completed = a->stats.completed;

	if (a->uring)
		aio_uring_complete(a);
	aio_flush(a);
	return a->stats.completed != completed;
}

struct aio *aio_create(struct loop *l, enum aio_engine engine, struct err *err)
{
	struct aio *a = calloc(1, sizeof(*a));
	struct err why = {0};
	int ret;

	if (!a) {
		err_set(err, -ENOMEM, "out of memory for asynchronous I/O");
		return NULL;
	}
	a->loop = l;
	a->tail = &a->head;
	a->engine = engine == AIO_AUTO ? AIO_URING : engine;
	ret = engine_table[a->engine]->open(a, &why);
	if (ret && engine == AIO_AUTO) {
		aio_say_fallback(&why);
		a->engine = AIO_THREADS;
		memset(&why, 0, sizeof(why));
		ret = engine_table[a->engine]->open(a, &why);
	}
	if (ret) {
		err_set(err, ret, "%s", why.msg);
		free(a);
		return NULL;
	}
	a->hook.fn = aio_before_sleep;
	a->hook.arg = a;
	loop_add_hook(l, &a->hook);
	return a;
}

void aio_destroy(struct aio *a)
{
	if (!a)
		return;
	BUG_ON(a->inflight || a->head);
	loop_remove_hook(a->loop, &a->hook);
	engine_table[a->engine]->close(a);
	if (a->pool)
		aio_pool_close(a);
	free(a);
}

enum aio_engine aio_engine_of(const struct aio *a)
{
	return a->engine;
}

const struct aio_stats *aio_stats_of(const struct aio *a)
{
	return &a->stats;
}

void aio_submit(struct aio *a, struct aio_req *req)
{
	req->next = NULL;
	*a->tail = req;
	a->tail = &req->next;
	a->queued++;
	counter_add(&a->stats.submitted, 1);
	if (a->queued >= AIO_BATCH_MAX)
		aio_flush(a);
}

struct aio_req *aio_take(struct aio *a)
{
	struct aio_req *req = a->head;

	if (!req)
		return NULL;
	a->head = req->next;
	if (!a->head)
		a->tail = &a->head;
	req->next = NULL;
	a->queued--;
	a->inflight++;
	return req;
}

void aio_untake(struct aio *a, struct aio_req *req)
{
	req->next = a->head;
	a->head = req;
	if (!req->next)
		a->tail = &req->next;
	a->queued++;
	a->inflight--;
}

void aio_complete(struct aio *a, struct aio_req *req, int64_t result)
{
	req->result = result;
	a->inflight--;
	counter_add(&a->stats.completed, 1);
	req->done(req);
}

/*
 * Linux gives buffered writes of most file systems to a worker of io_uring, one at a time for each file: two changes of
 * thread and a wake-up of another CPU for a copy of some microseconds. Doing them here loses no concurrency. The page
 * cache may hold a writer up (its limit of unwritten pages, the journal): then the workers get them for a while.
 */
bool aio_do_at_once(struct aio *a, struct aio_req *req)
{
	uint64_t begin, end;
	int64_t ret;

	if (!req->quick || req->op != AIO_WRITEV || !loop_is_patient(a->loop))
		return false;
	begin = clock_raw_ns();
	if (begin < a->slow_until)
		return false;
	ret = aio_perform(req);
	end = clock_raw_ns();
	if (end - begin > HELD_UP_NS) {
		a->slow_until = begin - a->held_up < AGAIN_NS ? end + SLOW_FOR_NS : 0;
		a->held_up = end;
	}
	counter_add(&a->stats.syscalls, 1);
	aio_complete(a, req, ret);
	return true;
}

void aio_flush(struct aio *a)
{
	/* A done() inside the engine may submit and flush again: the outer call goes on. */
	if (a->flushing)
		return;
	a->flushing = true;
	while ((a->head || a->stuck) && engine_table[a->engine]->start(a))
		;
	a->flushing = false;
}

void aio_drain(struct aio *a)
{
	aio_flush(a);
	while (a->inflight || a->head) {
		loop_run_once(a->loop, -1);
		aio_flush(a);
	}
}
