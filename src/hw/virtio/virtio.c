// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The core of virtio devices: VIRTIO 1.1, chapters 2 and 3 (status, features,
 * reset, configuration), and the way of a request through its device:
 *
 *   notification -> virtio_run or the eventfd -> handle: pop all under the lock,
 *   submit without it -> virtio_complete gathers -> before the loop sleeps
 *   virtio_flush_done pushes the batch and decides on one interrupt per queue
 *
 * Reset while requests are in flight: the generation moves on, so that nothing of
 * before is pushed, and the status reads as not yet reset until the last request
 * ended; the vCPU waits for that, but for a bounded time.
 */
#include "hw/virtio/virtio.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "io/iothread.h"

/* How long a driver's reset may keep its vCPU. Then only the status register shows it. */
#define RESET_WAIT_SECONDS 2

static bool virtio_flush_done(void *arg);

static void add_hook(void *arg)
{
	struct virtio *v = arg;

	loop_add_hook(v->loop, &v->hook);
}

int virtio_init(struct virtio *v, struct dev *d, struct loop *l, const struct virtio_ops *ops, unsigned nqueues,
		struct err *err)
{
	BUG_ON(nqueues > VIRTIO_MAX_QUEUES);
	v->ops = ops;
	v->dev = d;
	v->loop = l ? l : d->bus->loop;
	v->mem = d->bus->mem;
	v->done_tail = &v->done;
	v->queue = calloc(nqueues, sizeof(*v->queue));
	if (!v->queue)
		return err_set(err, -ENOMEM, "out of memory for %u queues", nqueues);
	v->nqueues = nqueues;
	for (unsigned i = 0; i < nqueues; i++) {
		v->queue[i].v = v;
		v->queue[i].index = i;
		v->queue[i].vector = VIRTIO_NO_VECTOR;
		v->queue[i].event_fd = -1;
		v->queue[i].order_tail = &v->queue[i].order;
	}
	v->host_features |= BIT(VIRTIO_F_ANY_LAYOUT) | BIT(VIRTIO_F_VERSION_1);
	pthread_cond_init(&v->drained, NULL);
	v->hook.fn = virtio_flush_done;
	v->hook.arg = v;
	iothread_call(v->loop, add_hook, v);
	return 0;
}

void virtio_set_queue(struct virtio *v, unsigned i, const char *name, uint16_t size,
		      void (*handle)(struct virtio *v, struct virtio_queue *q))
{
	v->queue[i].name = name;
	v->queue[i].max = v->queue[i].vq.num = size;
	v->queue[i].handle = handle;
}

/* All requests ended and pushed or dropped. Loop's thread. */
static void drain(void *arg)
{
	struct virtio *v = arg;

	if (v->ops->drain)
		v->ops->drain(v);
	virtio_flush_done(v);
}

/* The same, and none set aside either. */
static void drain_all(void *arg)
{
	struct virtio *v = arg;

	drain(v);
	if (v->ops->abandon)
		v->ops->abandon(v);
	virtio_flush_done(v);
}

static void leave_loop(void *arg)
{
	struct virtio *v = arg;

	drain_all(v);
	while (__atomic_load_n(&v->posted, __ATOMIC_SEQ_CST)) /* a posted virtio_run still points here */
		loop_run_once(v->loop, 0);
	loop_remove_hook(v->loop, &v->hook);
}

void virtio_fini(struct virtio *v)
{
	if (!v->queue)
		return;
	iothread_call(v->loop, leave_loop, v);
	pthread_cond_destroy(&v->drained);
	free(v->queue);
	v->queue = NULL;
}

/* ---- running queues -------------------------------------------------------- */

static bool may_run(const struct virtio *v)
{
	if (v->broken || v->resetting || v->paused)
		return false;
	return v->legacy_driver || (v->status & VIRTIO_STATUS_DRIVER_OK);
}

/* Posted to the loop by a kick. */
static void virtio_run(void *arg)
{
	struct virtio *v = arg;

	__atomic_store_n(&v->posted, false, __ATOMIC_SEQ_CST);
	virtio_lock(v);
	if (v->resume_pending && !v->paused) {
		v->resume_pending = false;
		virtio_unlock(v);
		if (v->ops->resumed)
			v->ops->resumed(v);
		virtio_lock(v);
	}
	if (v->start_pending && may_run(v)) {
		v->start_pending = false;
		virtio_unlock(v);
		if (v->ops->started)
			v->ops->started(v);
		virtio_lock(v);
	}
	for (unsigned i = 0; i < v->nqueues && may_run(v); i++) {
		struct virtio_queue *q = &v->queue[i];
		if (!__atomic_load_n(&q->kicked, __ATOMIC_RELAXED) ||
		    !__atomic_exchange_n(&q->kicked, false, __ATOMIC_SEQ_CST))
			continue;
		virtio_unlock(v);
		q->handle(v, q);
		virtio_lock(v);
	}
	virtio_unlock(v);
}

static void post_run(struct virtio *v)
{
	if (!__atomic_exchange_n(&v->posted, true, __ATOMIC_SEQ_CST))
		loop_post(v->loop, virtio_run, v);
}

/* A paused device finds the mark when it resumes. */
void virtio_kick(struct virtio *v, struct virtio_queue *q)
{
	__atomic_store_n(&q->kicked, true, __ATOMIC_SEQ_CST);
	post_run(v);
}

void virtio_notified(struct virtio *v, unsigned queue)
{
	__atomic_fetch_add(&v->stats.kicks, 1, __ATOMIC_RELAXED); /* several vCPUs, no lock */
	if (queue < v->nqueues)
		virtio_kick(v, &v->queue[queue]);
}

void virtio_break(struct virtio *v, struct virtio_queue *q, const char *why)
{
	if (v->broken)
		return;
	v->broken = true;
	counter_add(&v->stats.broken, 1);
	log_diag(LOG_GUEST_ERRORS, "%s: queue %s: %s; the device needs a reset", v->dev->ops->type.name,
		 q->name ? q->name : "?", why);
	v->status |= VIRTIO_STATUS_NEEDS_RESET;
	if (v->status & VIRTIO_STATUS_DRIVER_OK)
		virtio_config_changed(v);
}

int virtio_pop(struct virtio *v, struct virtio_queue *q)
{
	int ret;

	if (!may_run(v))
		return 0;
	ret = virtq_pop(&q->vq, &v->chain);
	if (ret < 0) {
		virtio_break(v, q, q->vq.broken);
		return 0;
	}
	if (ret)
		counter_add(&v->stats.chains, 1);
	return ret;
}

bool virtio_notify_on(struct virtio *v, struct virtio_queue *q)
{
	return virtq_notify_on(&q->vq) && may_run(v);
}

unsigned virtio_take_batch(struct virtio *v, struct virtio_queue *q,
			   void *(*parse)(struct virtio *v, struct virtio_queue *q), void **reqs, bool *more)
{
	unsigned n = 0;
	bool found = true;

	virtio_lock(v);
	virtq_notify_off(&q->vq);
	while (n < VIRTIO_BATCH && (found = virtio_pop(v, q)) && (reqs[n] = parse(v, q)) != NULL)
		n++;
	if (!found)
		found = virtio_notify_on(v, q);
	else if (n < VIRTIO_BATCH)
		found = false; /* broken, or out of memory */
	virtio_unlock(v);
	*more = found && n > 0;
	return n;
}

/* ---- completion ------------------------------------------------------------- */

void virtio_req_init(struct virtio *v, struct virtio_queue *q, struct virtio_req *req)
{
	req->q = q;
	req->head = v->chain.head;
	req->generation = v->generation;
	req->next = req->after = NULL;
	req->done = false;
	v->inflight++;
	if (virtio_has(v, VIRTIO_F_IN_ORDER)) {
		*q->order_tail = req;
		q->order_tail = &req->after;
	}
}

void virtio_complete(struct virtio *v, struct virtio_req *req, uint32_t written)
{
	req->written = written;
	req->next = NULL;
	*v->done_tail = req;
	v->done_tail = &req->next;
}

void virtio_push_now(struct virtio *v, struct virtio_queue *q, uint32_t written)
{
	virtq_push(&q->vq, v->chain.head, v->chain.iov + v->chain.nout, v->chain.nin, written);
	q->pushed = true;
}

void virtio_signal(struct virtio *v, struct virtio_queue *q)
{
	if (!q->pushed)
		return;
	q->pushed = false;
	if (virtq_want_interrupt(&q->vq)) {
		counter_add(&v->stats.interrupts, 1);
		v->interrupt(v, q);
	} else {
		counter_add(&v->stats.suppressed, 1);
	}
}

void virtio_config_changed(struct virtio *v)
{
	v->config_generation++;
	if (v->status & VIRTIO_STATUS_DRIVER_OK) {
		counter_add(&v->stats.interrupts, 1);
		v->interrupt(v, NULL);
	}
}

static void reset_finish(struct virtio *v)
{
	v->resetting = v->broken = false;
	v->status = 0;
	v->legacy_driver = false;
	v->start_pending = false;
	v->guest_features = 0;
	for (unsigned i = 0; i < v->nqueues; i++) {
		struct virtio_queue *q = &v->queue[i];
		__atomic_store_n(&q->kicked, false, __ATOMIC_RELAXED);
		q->vq.enabled = q->pushed = false;
		q->vq.num = q->max;
		q->vq.desc_gpa = q->vq.avail_gpa = q->vq.used_gpa = 0;
	}
	v->transport_reset(v);
	if (v->ops->reset)
		v->ops->reset(v);
}

/* ---- pushing ------------------------------------------------------------------------ */

/* Requests that nobody needs any more: the batch that virtio_flush_done works on. */
struct ended {
	struct virtio_req *first, **tail;
};

/* Push one request; what came before a reset only leaves its mark on the pages it wrote. */
static void push_one(struct virtio *v, struct virtio_req *req, struct ended *e)
{
	v->inflight--;
	req->next = NULL;
	*e->tail = req;
	e->tail = &req->next;
	if (req->generation == v->generation && !v->broken) {
		virtq_push(&req->q->vq, req->head, req->in, req->nin, req->written);
		req->q->pushed = true;
		return;
	}
	for (int i = 0; i < req->nin; i++)
		mem_mark_written(v->mem, req->in[i].iov_base, req->in[i].iov_len);
}

/*
 * VIRTIO_F_IN_ORDER (2.6.9, 2.7.9): buffers go back as they came, so one that is done
 * waits for those before it; one of before a reset waits for nothing.
 */
static void push_in_order(struct virtio *v, struct virtio_queue *q, struct ended *e)
{
	struct virtio_req **at = &q->order, *req;
	bool first = true;

	while ((req = *at) != NULL) {
		const bool dead = req->generation != v->generation || v->broken;
		if (req->done && (first || dead)) {
			*at = req->after;
			push_one(v, req, e);
			continue;
		}
		first = false;
		at = &req->after;
	}
	q->order_tail = at;
}

/* The loop's hook: nearly always nothing to do. */
static bool virtio_flush_done(void *arg)
{
	struct virtio *v = arg;
	struct virtio_req *list = v->done, *req;
	struct ended e = {NULL, &e.first};

	if (!list)
		return false;
	v->done = NULL;
	v->done_tail = &v->done;
	virtio_lock(v);
	while ((req = list) != NULL) {
		list = req->next;
		if (req->q->order) {
			req->done = true;
			push_in_order(v, req->q, &e);
		} else {
			push_one(v, req, &e);
		}
	}
	for (req = e.first; req; req = req->next)
		virtio_signal(v, req->q); /* does nothing the second time */
	if (v->inflight == 0) {
		if (v->resetting)
			reset_finish(v);
		pthread_cond_broadcast(&v->drained);
	}
	virtio_unlock(v);
	while ((req = e.first) != NULL) {
		e.first = req->next;
		req->release(req);
	}
	return true;
}

/* ---- the driver's registers --------------------------------------------------- */

static void driver_reset(struct virtio *v)
{
	struct timespec until;

	counter_add(&v->stats.resets, 1);
	v->generation++;
	for (unsigned i = 0; i < v->nqueues; i++)
		virtq_stop(&v->queue[i].vq);
	if (v->inflight == 0) {
		reset_finish(v);
		return;
	}
	v->resetting = true;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += RESET_WAIT_SECONDS;
	/* Releases dev.lock meanwhile, so completions go on. */
	while (v->resetting && !loop_in_thread(v->loop))
		if (pthread_cond_timedwait(&v->drained, &v->dev->lock, &until))
			break;
}

uint8_t virtio_read_status(const struct virtio *v)
{
	return v->status;
}

void virtio_write_status(struct virtio *v, uint8_t status)
{
	const uint8_t old = v->status;

	if (status == 0) {
		if (!v->resetting)
			driver_reset(v);
		return;
	}
	if (v->resetting)
		return;
	status |= old & VIRTIO_STATUS_NEEDS_RESET; /* the device's bit, not the driver's */
	if (!v->legacy_driver) {
		/* 3.1.1: features are accepted once, and only a known set with VERSION_1 */
		if ((status & ~old & VIRTIO_STATUS_FEATURES_OK) &&
		    ((v->guest_features & ~v->host_features) || !virtio_has(v, VIRTIO_F_VERSION_1)))
			status &= (uint8_t)~VIRTIO_STATUS_FEATURES_OK;
		if ((status & ~old & VIRTIO_STATUS_DRIVER_OK) && !(status & VIRTIO_STATUS_FEATURES_OK))
			status &= (uint8_t)~VIRTIO_STATUS_DRIVER_OK;
	}
	v->status = status;
	if ((status & ~old & VIRTIO_STATUS_FEATURES_OK) && v->ops->features_set)
		v->ops->features_set(v);
	if (status & ~old & VIRTIO_STATUS_DRIVER_OK) {
		v->start_pending = true;
		for (unsigned i = 0; i < v->nqueues; i++)
			__atomic_store_n(&v->queue[i].kicked, true, __ATOMIC_RELAXED);
		post_run(v);
	}
}

void virtio_queue_enable(struct virtio *v, struct virtio_queue *q)
{
	if (q->vq.enabled || v->resetting)
		return;
	q->vq.enabled = true;
	virtq_start(&q->vq, v->mem, v->guest_features);
	if (q->vq.broken)
		virtio_break(v, q, q->vq.broken);
}

void virtio_set_legacy_features(struct virtio *v, uint32_t features)
{
	v->guest_features = features & v->host_features;
	/* Old drivers may write this after they made their queues. */
	for (unsigned i = 0; i < v->nqueues; i++) {
		v->queue[i].vq.indirect = virtio_has(v, VIRTIO_RING_F_INDIRECT_DESC);
		v->queue[i].vq.event = virtio_has(v, VIRTIO_RING_F_EVENT_IDX);
	}
	if (v->ops->features_set)
		v->ops->features_set(v);
}

/* ---- the machine's events ------------------------------------------------------- */

void virtio_machine_reset(struct virtio *v)
{
	virtio_lock(v);
	v->generation++;
	for (unsigned i = 0; i < v->nqueues; i++)
		virtq_stop(&v->queue[i].vq);
	virtio_unlock(v);
	iothread_call(v->loop, drain_all, v);
	virtio_lock(v);
	BUG_ON(v->inflight);
	reset_finish(v);
	virtio_unlock(v);
}

int virtio_pause(struct virtio *v)
{
	virtio_lock(v);
	v->paused = true;
	virtio_unlock(v);
	iothread_call(v->loop, drain, v);
	return 0;
}

void virtio_resume(struct virtio *v)
{
	virtio_lock(v);
	v->paused = false;
	v->resume_pending = true;
	for (unsigned i = 0; i < v->nqueues; i++)
		__atomic_store_n(&v->queue[i].kicked, true, __ATOMIC_RELAXED);
	post_run(v);
	virtio_unlock(v);
}
