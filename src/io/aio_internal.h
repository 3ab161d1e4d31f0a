/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between aio.c and its engines; nobody else includes it. An engine's start()
 * takes queued requests (aio_take) and later calls aio_complete for each, in the
 * loop's thread.
 */
#ifndef KELVIN_IO_AIO_INTERNAL_H
#define KELVIN_IO_AIO_INTERNAL_H

#include "io/aio.h"

/* Submission stops gathering here even without a flush; also the ring's size. */
#define AIO_BATCH_MAX 128

struct aio_uring;
struct aio_pool;

struct aio {
	struct loop *loop;
	enum aio_engine engine;
	struct loop_hook hook;	      /* flushes before the loop sleeps */
	struct aio_req *head, **tail; /* queued, not started */
	unsigned queued, inflight;
	bool flushing;
	/* clock_raw_ns(): the last quick write that was held up ended; until when they go to the kernel's workers. */
	uint64_t held_up, slow_until;
	bool stuck; /* the engine holds requests that the kernel did not take yet */
	struct aio_uring *uring;
	struct aio_pool *pool; /* also io_uring's, for what it cannot do; made when first needed */
	struct aio_stats stats;
};

struct aio_engine_ops {
	int (*open)(struct aio *a, struct err *err);
	void (*close)(struct aio *a);
	/* Start queued requests. True when it should be called again at once while some are left. */
	bool (*start)(struct aio *a);
};
extern const struct aio_engine_ops aio_uring_ops, aio_pool_ops, aio_sync_ops;

struct aio_req *aio_take(struct aio *a);			       /* NULL when nothing is queued */
void aio_untake(struct aio *a, struct aio_req *req);		       /* put back in front */
void aio_complete(struct aio *a, struct aio_req *req, int64_t result); /* calls done */

/* Carry out one request with a blocking system call: bytes or -errno. Any thread. */
int64_t aio_perform(const struct aio_req *req);

/* A quick write in a patient loop is carried out and completed here; false: it is left to the engine. */
bool aio_do_at_once(struct aio *a, struct aio_req *req);

/* Reap what io_uring has completed; without a system call. */
void aio_uring_complete(struct aio *a);

/* The pool on the side of another engine: open if need be, give it a taken request. */
int aio_pool_open(struct aio *a, struct err *err);
void aio_pool_close(struct aio *a);
void aio_pool_give(struct aio *a, struct aio_req *req);

#endif
