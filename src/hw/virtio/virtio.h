/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The core of every virtio device: status, features, queues, configuration,
 * requests in flight. A device is a table of queue handlers (struct virtio_ops
 * and the queues it adds); virtio_pci.c carries it over PCI.
 *
 * Threads: the driver's register accesses run in a vCPU's thread with dev.lock
 * held. Queue handlers and completions run in the loop's thread without it, so
 * that no host I/O happens under a lock; they take it (virtio_lock) only to pop
 * and push. A notification either is an eventfd the loop watches (ioeventfd) or
 * a call posted to the loop: measured against handling queues in the vCPU's
 * thread, see docs/architecture.md.
 */
#ifndef KELVIN_HW_VIRTIO_VIRTIO_H
#define KELVIN_HW_VIRTIO_VIRTIO_H

#include "base/util.h"
#include "bus/dev.h"
#include "hw/virtio/virtqueue.h"

/* VIRTIO 1.1, 2.1 */
#define VIRTIO_STATUS_ACKNOWLEDGE 1
#define VIRTIO_STATUS_DRIVER	  2
#define VIRTIO_STATUS_DRIVER_OK	  4
#define VIRTIO_STATUS_FEATURES_OK 8
#define VIRTIO_STATUS_NEEDS_RESET 0x40
#define VIRTIO_STATUS_FAILED	  0x80

#define VIRTIO_ID_BLOCK	  2
#define VIRTIO_ID_CONSOLE 3
#define VIRTIO_ID_ENTROPY 4
#define VIRTIO_ID_BALLOON 5
#define VIRTIO_ID_SCSI	  8

#define VIRTIO_MAX_QUEUES 256
#define VIRTIO_NO_VECTOR  0xffff
#define VIRTIO_CONFIG_MAX 256

struct virtio;
struct virtio_queue;

struct virtio_ops {
	uint16_t id;	     /* VIRTIO_ID_... */
	uint32_t class_code; /* PCI class */
	/* The driver wrote configuration bytes; dev.lock held. NULL: read-only. */
	void (*config_write)(struct virtio *v, unsigned off, unsigned size, uint32_t val);
	/* Features are final (FEATURES_OK, or a legacy driver's write); dev.lock held. May be NULL. */
	void (*features_set)(struct virtio *v);
	/* The driver set DRIVER_OK; loop's thread, no lock. May be NULL. */
	void (*started)(struct virtio *v);
	/* Back to the state after realize; dev.lock held, nothing in flight. May be NULL. */
	void (*reset)(struct virtio *v);
	/* Wait until every request in flight was completed or set aside; loop's thread, no lock. May be NULL. */
	void (*drain)(struct virtio *v);
	/* Requests that were set aside (they stay in flight): end them all, or go on with them after
	 * a pause. Loop's thread, no lock. May be NULL. */
	void (*abandon)(struct virtio *v);
	void (*resumed)(struct virtio *v);
	/* Bytes of the configuration that change while a guest runs: from here on, so many. */
	uint8_t config_changing, config_changing_len;
};

struct virtio_queue {
	struct virtq vq;
	struct virtio *v;
	unsigned index;
	uint16_t max; /* size offered to the driver */
	const char *name;
	/* Chains may be waiting. Loop's thread, no lock. */
	void (*handle)(struct virtio *v, struct virtio_queue *q);
	struct virtio_req *order, **order_tail; /* VIRTIO_F_IN_ORDER: not pushed yet, as popped; dev.lock */
	bool kicked;				/* dev.lock: handle must run */
	bool pushed;				/* dev.lock: something was pushed since the last interrupt decision */
	uint16_t vector;			/* MSI-X vector or VIRTIO_NO_VECTOR */
	int event_fd;				/* -1: no ioeventfd */
	bool bell_on;				/* the doorbells below are registered */
	struct region_doorbell bell, legacy_bell;
};

/*
 * A request in flight, embedded first in the device's own. The device fills
 * `in`, `nin` (writable buffers, valid until done) and calls virtio_complete.
 */
struct virtio_req {
	struct virtio_queue *q;
	struct virtio_req *next;
	struct virtio_req *after; /* of q->order */
	bool done;		  /* waits there for its turn */
	const struct iovec *in;
	int nin;
	uint32_t head, generation, written;
	void (*release)(struct virtio_req *req); /* frees it; dev.lock not held */
};

struct virtio_stats {
	uint64_t kicks;	     /* notifications that reached a register handler */
	uint64_t ioeventfds; /* notifications through an eventfd */
	uint64_t chains;     /* popped */
	uint64_t interrupts; /* sent, of them: */
	uint64_t irqfds;     /* through an irqfd */
	uint64_t suppressed; /* not sent because the driver did not want one */
	uint64_t broken;     /* times the driver broke the rules: NEEDS_RESET */
	uint64_t resets;     /* by the driver */
};

struct virtio {
	const struct virtio_ops *ops;
	struct dev *dev;
	struct loop *loop;
	struct mem_map *mem;
	struct virtio_queue *queue;
	unsigned nqueues;
	uint64_t host_features, guest_features;
	uint8_t status;
	uint8_t config[VIRTIO_CONFIG_MAX];
	unsigned config_len;
	uint8_t config_generation;
	bool legacy_driver; /* uses the legacy registers: no FEATURES_OK, no VERSION_1 */
	bool broken, paused, start_pending, resume_pending;
	bool posted;				 /* atomic: virtio_run is on its way */
	uint8_t saved_config[VIRTIO_CONFIG_MAX]; /* of a snapshot */
	/* requests; dev.lock */
	unsigned inflight;
	uint32_t generation; /* counts resets: requests of an older one are not pushed */
	bool resetting;	     /* the driver wrote 0 to status and requests are still in flight */
	pthread_cond_t drained;
	/* completed, not yet pushed; loop's thread only */
	struct virtio_req *done, **done_tail;
	struct loop_hook hook;
	struct virtq_chain chain; /* scratch of handlers; dev.lock */
	/* the transport's; dev.lock held */
	void (*interrupt)(struct virtio *v, struct virtio_queue *q); /* q NULL: configuration change */
	void (*transport_reset)(struct virtio *v);
	struct virtio_stats stats;
};

/* ---- for devices --------------------------------------------------------- */

static inline void virtio_lock(struct virtio *v)
{
	pthread_mutex_lock(&v->dev->lock);
}
static inline void virtio_unlock(struct virtio *v)
{
	pthread_mutex_unlock(&v->dev->lock);
}

/* In the device's realize: before the transport's. `l`: where its queues are handled, NULL = the main loop. */
int virtio_init(struct virtio *v, struct dev *d, struct loop *l, const struct virtio_ops *ops, unsigned nqueues,
		struct err *err);
void virtio_set_queue(struct virtio *v, unsigned i, const char *name, uint16_t size,
		      void (*handle)(struct virtio *v, struct virtio_queue *q));
void virtio_fini(struct virtio *v);

static inline bool virtio_has(const struct virtio *v, unsigned feature)
{
	return v->guest_features & BIT(feature);
}

/*
 * Pop into v->chain (dev.lock held): 1, or 0 when there is nothing or the device
 * may not run. A broken queue turns into NEEDS_RESET here.
 */
int virtio_pop(struct virtio *v, struct virtio_queue *q);
/*
 * Take what is available, at most VIRTIO_BATCH, under dev.lock: the requests that `parse` makes of v->chain (NULL when
 * it broke the queue or has no memory) in their order. Returns how many; *more: there may be more, take again.
 */
#define VIRTIO_BATCH 128u
unsigned virtio_take_batch(struct virtio *v, struct virtio_queue *q,
			   void *(*parse)(struct virtio *v, struct virtio_queue *q), void **reqs, bool *more);
/* virtq_notify_on; true only when virtio_pop would find something. dev.lock held. */
bool virtio_notify_on(struct virtio *v, struct virtio_queue *q);
/* The driver broke the rules of the device (not of the ring). dev.lock held. */
void virtio_break(struct virtio *v, struct virtio_queue *q, const char *why);

/* Make `req` stand for the chain just popped. dev.lock held. */
void virtio_req_init(struct virtio *v, struct virtio_queue *q, struct virtio_req *req);
/* It is done; loop's thread, no lock. Pushed with others of the same batch before the loop sleeps. */
void virtio_complete(struct virtio *v, struct virtio_req *req, uint32_t written);
/* Push the chain just popped at once (dev.lock held); virtio_signal when the batch is over. */
void virtio_push_now(struct virtio *v, struct virtio_queue *q, uint32_t written);
void virtio_signal(struct virtio *v, struct virtio_queue *q);
/* Call q->handle soon; any thread, with or without dev.lock. */
void virtio_kick(struct virtio *v, struct virtio_queue *q);
/* The configuration changed: tell the driver. dev.lock held. */
void virtio_config_changed(struct virtio *v);

/* ---- for transports --------------------------------------------------------- */

/* All with dev.lock held. */
void virtio_write_status(struct virtio *v, uint8_t status);
uint8_t virtio_read_status(const struct virtio *v);
void virtio_queue_enable(struct virtio *v, struct virtio_queue *q);
void virtio_set_legacy_features(struct virtio *v, uint32_t features);
/* A register write by a vCPU; no lock needed: the loop, woken by it, would at once wait for the lock. */
void virtio_notified(struct virtio *v, unsigned queue);

/* Main thread, no lock; vCPUs stopped. */
void virtio_machine_reset(struct virtio *v);
int virtio_pause(struct virtio *v);
void virtio_resume(struct virtio *v);

#endif
