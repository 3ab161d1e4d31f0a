/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Virtqueues (VIRTIO 1.1, 2.6 and 2.7): the device's side of the rings in guest
 * memory, split or packed, with indirect descriptors and event index. Owners do not
 * see which layout it is.
 *
 * The guest is hostile: each field is read once and the copy checked; a chain
 * that loops, leaves RAM or breaks the rules makes the queue broken, which the
 * owner turns into NEEDS_RESET. Nothing here blocks or allocates.
 *
 * Thread: any, under the device's lock.
 */
#ifndef KELVIN_HW_VIRTIO_VIRTQUEUE_H
#define KELVIN_HW_VIRTIO_VIRTQUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include "mem/mem.h"

/* Descriptors in a chain, and host pieces they may map to; a power of two. */
#define VIRTQ_MAX_SIZE 1024

/* VIRTIO 1.1, 6: feature bits of the transport and the rings. */
#define VIRTIO_F_ANY_LAYOUT	    27
#define VIRTIO_RING_F_INDIRECT_DESC 28
#define VIRTIO_RING_F_EVENT_IDX	    29
#define VIRTIO_F_VERSION_1	    32
#define VIRTIO_F_RING_PACKED	    34
#define VIRTIO_F_IN_ORDER	    35

struct virtq_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};
#define VIRTQ_DESC_F_NEXT     1
#define VIRTQ_DESC_F_WRITE    2
#define VIRTQ_DESC_F_INDIRECT 4

#define VIRTQ_AVAIL_F_NO_INTERRUPT 1
#define VIRTQ_USED_F_NO_NOTIFY	   1

/* A popped chain: host views of its buffers, what the device reads first. */
struct virtq_chain {
	uint32_t head; /* what virtq_push wants back */
	int nout, nin; /* iovecs the device reads, then iovecs it writes */
	uint64_t out_len, in_len;
	struct iovec iov[VIRTQ_MAX_SIZE];
};

struct virtq {
	struct mem_map *mem;
	/* as the driver configured it */
	uint16_t num;
	bool enabled;
	uint64_t desc_gpa, avail_gpa, used_gpa;
	/* while running */
	bool ready;		      /* the rings were found in RAM */
	const char *broken;	      /* what the guest did wrong; NULL while all is well */
	bool indirect, event, packed; /* features */
	struct virtq_desc *desc;
	uint16_t *avail; /* flags, idx, ring[num], used_event */
	uint16_t *used;	 /* flags, idx, {u32 id, len}[num], avail_event */
	uint16_t last_avail, used_idx, signalled_used;
	bool signalled_valid;
	unsigned inuse; /* popped and not pushed: at most num; packed: slots */
	/* packed rings: the wrap counters, slots of the last pop, slots used since the last interrupt decision */
	bool avail_wrap, used_wrap;
	uint16_t last_count, unsignalled;
};

/*
 * Find the rings in RAM. On failure the queue is broken and no call below does
 * anything. `features`: the negotiated bits.
 */
void virtq_start(struct virtq *q, struct mem_map *mem, uint64_t features);
void virtq_stop(struct virtq *q); /* forget all progress */

/* As virtq_start, but the progress the fields hold (a snapshot's) is kept; -EINVAL when it is impossible. */
int virtq_restart(struct virtq *q, struct mem_map *mem, uint64_t features);

/* The next available chain: 1, 0 when there is none, -EINVAL when the queue is (now) broken. */
int virtq_pop(struct virtq *q, struct virtq_chain *c);
/* Put back the chain just popped, untouched: the next pop returns it again. */
void virtq_unpop(struct virtq *q);
/*
 * Return a chain with `written` bytes placed in its writable buffers. `in` are
 * those buffers (for the page bits); they may be a copy of chain.iov's tail.
 */
void virtq_push(struct virtq *q, uint32_t head, const struct iovec *in, int nin, uint32_t written);
/* Does the driver want an interrupt for what was pushed since the last true? */
bool virtq_want_interrupt(struct virtq *q);
/* Ask the driver not to notify (a hint), or to notify again. The latter is true when chains are waiting. */
void virtq_notify_off(struct virtq *q);
bool virtq_notify_on(struct virtq *q);
bool virtq_has_work(const struct virtq *q);

#endif
