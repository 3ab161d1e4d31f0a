// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The interface of virtqueues, and the device's side of split ones: VIRTIO 1.1, 2.6
 * (packed ones: virtqueue_packed.c). See virtqueue.h for the rules and the locking.
 *
 * The rings are reached through host pointers found once, when the queue starts:
 * RAM does not move during the machine's life. The driver's index is read with
 * acquire and ours written with release, which order the entries behind them.
 */
#include "hw/virtio/virtqueue_int.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/util.h"

/* Offsets in 16-bit units. */
#define AVAIL_IDX	    1
#define AVAIL_RING(i)	    (2u + (i))
#define USED_IDX	    1
#define USED_RING(i)	    (2u + 4u * (i))
#define USED_AVAIL_EVENT(n) (2u + 4u * (n))

static uint16_t ring_load(const uint16_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

int virtq_break(struct virtq *q, const char *why)
{
	q->broken = why;
	return -EINVAL;
}

void *virtq_ring_ptr(struct mem_map *mem, uint64_t gpa, uint64_t len, bool write)
{
	struct iovec iov[1];
	int n = 0;

	return dma_begin(mem, gpa, len, write, iov, &n, 1) == 0 ? iov[0].iov_base : NULL;
}

void virtq_start(struct virtq *q, struct mem_map *mem, uint64_t features)
{
	const uint64_t num = q->num;

	q->mem = mem;
	q->indirect = features & BIT(VIRTIO_RING_F_INDIRECT_DESC);
	q->event = features & BIT(VIRTIO_RING_F_EVENT_IDX);
	q->packed = features & BIT(VIRTIO_F_RING_PACKED);
	q->ready = false;
	if (q->packed) {
		virtq_packed_start(q);
		return;
	}
	if (num == 0 || num > VIRTQ_MAX_SIZE || (num & (num - 1))) {
		virtq_break(q, "queue size is no power of two");
		return;
	}
	if ((q->desc_gpa & 15) || (q->avail_gpa & 1) || (q->used_gpa & 3)) {
		virtq_break(q, "ring addresses are not aligned");
		return;
	}
	q->desc = virtq_ring_ptr(mem, q->desc_gpa, num * sizeof(struct virtq_desc), false);
	q->avail = virtq_ring_ptr(mem, q->avail_gpa, 6 + 2 * num, false);
	q->used = virtq_ring_ptr(mem, q->used_gpa, 6 + 8 * num, true);
	if (!q->desc || !q->avail || !q->used) {
		virtq_break(q, "rings are not in RAM");
		return;
	}
	q->ready = true;
}

int virtq_restart(struct virtq *q, struct mem_map *mem, uint64_t features)
{
	const struct virtq was = *q;
	const bool packed = features & BIT(VIRTIO_F_RING_PACKED);

	if (was.inuse > was.num || (packed && (was.last_avail >= was.num || was.used_idx >= was.num)))
		return -EINVAL;
	virtq_start(q, mem, features);
	q->avail_wrap = was.avail_wrap;
	q->used_wrap = was.used_wrap;
	return 0;
}

void virtq_stop(struct virtq *q)
{
	q->ready = q->signalled_valid = false;
	q->broken = NULL;
	q->desc = NULL;
	q->avail = q->used = NULL;
	q->last_avail = q->used_idx = q->signalled_used = 0;
	q->inuse = 0;
	q->unsignalled = 0;
}

bool virtq_has_work(const struct virtq *q)
{
	if (!q->ready || q->broken)
		return false;
	return q->packed ? virtq_packed_has_work(q) : ring_load(&q->avail[AVAIL_IDX]) != q->last_avail;
}

/* Where a walk reads descriptors: the queue's table or an indirect one. */
struct table {
	const struct virtq_desc *host; /* NULL: not in one piece, read through DMA */
	uint64_t gpa;
	uint32_t num;
};

static int table_read(const struct virtq *q, const struct table *t, uint32_t i, struct virtq_desc *d)
{
	if (!t->host)
		return dma_read(q->mem, t->gpa + (uint64_t)i * sizeof(*d), d, sizeof(*d));
	/* One read of each field: the driver may change the table meanwhile. */
	*d = *(const volatile struct virtq_desc *)&t->host[i];
	return 0;
}

int virtq_chain_add(struct virtq *q, struct virtq_chain *c, uint64_t addr, uint32_t len, uint16_t flags)
{
	const bool write = flags & VIRTQ_DESC_F_WRITE;
	int n = c->nout + c->nin, before = n, ret;

	if (!write && c->nin)
		return virtq_break(q, "a readable descriptor follows a writable one");
	ret = dma_begin(q->mem, addr, len, write, c->iov, &n, VIRTQ_MAX_SIZE);
	if (ret)
		return virtq_break(q, ret == -EFAULT ? "a buffer is not in RAM" : "a chain has too many pieces");
	if (write) {
		c->nin += n - before;
		c->in_len += len;
	} else {
		c->nout += n - before;
		c->out_len += len;
	}
	return 0;
}

static int enter_indirect(struct virtq *q, const struct virtq_desc *d, struct table *t)
{
	if (!q->indirect)
		return virtq_break(q, "an indirect descriptor without the feature");
	if (d->flags & VIRTQ_DESC_F_NEXT)
		return virtq_break(q, "an indirect descriptor with a next one");
	if (d->len == 0 || d->len % sizeof(struct virtq_desc) || d->len / sizeof(struct virtq_desc) > VIRTQ_MAX_SIZE)
		return virtq_break(q, "an indirect table of a wrong size");
	t->gpa = d->addr;
	t->num = d->len / (uint32_t)sizeof(struct virtq_desc);
	t->host = (d->addr & 7) ? NULL : virtq_ring_ptr(q->mem, d->addr, d->len, false);
	return 0;
}

/* Follow the chain from `head`; `left` ends chains that loop. */
static int walk(struct virtq *q, uint16_t head, struct virtq_chain *c)
{
	struct table t = {q->desc, q->desc_gpa, q->num};
	bool indirect = false;
	struct virtq_desc d;
	uint32_t i = head, left = t.num;
	int ret;

	for (;;) {
		if (left-- == 0)
			return virtq_break(q, "a chain loops or is longer than its table");
		if (table_read(q, &t, i, &d))
			return virtq_break(q, "an indirect table is not in RAM");
		if (d.flags & VIRTQ_DESC_F_INDIRECT) {
			if (indirect)
				return virtq_break(q, "an indirect descriptor inside an indirect table");
			ret = enter_indirect(q, &d, &t);
			if (ret)
				return ret;
			indirect = true;
			i = 0;
			left = t.num;
			continue;
		}
		ret = virtq_chain_add(q, c, d.addr, d.len, d.flags);
		if (ret)
			return ret;
		if (!(d.flags & VIRTQ_DESC_F_NEXT))
			return 0;
		i = d.next;
		if (i >= t.num)
			return virtq_break(q, "a next descriptor out of range");
	}
}

int virtq_pop(struct virtq *q, struct virtq_chain *c)
{
	uint16_t idx, head;
	int ret;

	if (q->broken)
		return -EINVAL;
	if (!q->ready)
		return 0;
	if (q->packed)
		return virtq_packed_pop(q, c);
	idx = ring_load(&q->avail[AVAIL_IDX]);
	if (idx == q->last_avail)
		return 0;
	if ((uint16_t)(idx - q->last_avail) > q->num)
		return virtq_break(q, "the available index jumped by more than the queue's size");
	head = ring_load(&q->avail[AVAIL_RING(q->last_avail & (q->num - 1u))]);
	if (head >= q->num)
		return virtq_break(q, "an available head out of range");
	if (q->inuse >= q->num)
		return virtq_break(q, "more chains in flight than the queue holds");
	c->head = head;
	c->nout = c->nin = 0;
	c->out_len = c->in_len = 0;
	ret = walk(q, head, c);
	if (ret)
		return ret;
	q->last_avail++;
	q->inuse++;
	return 1;
}

void virtq_unpop(struct virtq *q)
{
	if (q->packed) {
		virtq_packed_unpop(q);
		return;
	}
	q->last_avail--;
	q->inuse--;
}

void virtq_push(struct virtq *q, uint32_t head, const struct iovec *in, int nin, uint32_t written)
{
	uint64_t left = written;
	uint16_t *slot;

	if (!q->ready)
		return;
	for (int i = 0; i < nin && left; i++) {
		uint64_t n = MIN(left, in[i].iov_len);
		mem_mark_written(q->mem, in[i].iov_base, n);
		left -= n;
	}
	if (q->packed) {
		virtq_packed_push(q, head, written);
		return;
	}
	slot = &q->used[USED_RING(q->used_idx & (q->num - 1u))];
	__atomic_store_n((uint32_t *)(void *)slot, head, __ATOMIC_RELAXED);
	__atomic_store_n((uint32_t *)(void *)(slot + 2), written, __ATOMIC_RELAXED);
	mem_mark_written(q->mem, slot, 8);
	q->used_idx++;
	__atomic_store_n(&q->used[USED_IDX], q->used_idx, __ATOMIC_RELEASE);
	mem_mark_written(q->mem, &q->used[USED_IDX], 2);
	q->inuse--;
}

bool virtq_want_interrupt(struct virtq *q)
{
	const uint16_t was = q->signalled_used, now = q->used_idx;
	const bool valid = q->signalled_valid;
	uint16_t event;

	if (q->ready && q->packed)
		return virtq_packed_want_interrupt(q);
	if (!q->ready || (valid && was == now))
		return false;
	q->signalled_used = now;
	q->signalled_valid = true;
	/* Our index must be visible before we look whether the driver sleeps. */
	atomic_thread_fence(memory_order_seq_cst);
	if (!q->event)
		return !(ring_load(&q->avail[0]) & VIRTQ_AVAIL_F_NO_INTERRUPT);
	event = ring_load(&q->avail[AVAIL_RING(q->num)]);
	/* Did `event` lie among the entries was..now-1? (2.6.7.2) */
	return !valid || (uint16_t)(now - event - 1) < (uint16_t)(now - was);
}

static void used_store(struct virtq *q, unsigned at, uint16_t v)
{
	__atomic_store_n(&q->used[at], v, __ATOMIC_RELAXED);
	mem_mark_written(q->mem, &q->used[at], 2);
}

void virtq_notify_off(struct virtq *q)
{
	if (q->ready && q->packed)
		virtq_packed_notify(q, false);
	/* With the event index, not moving avail_event is enough. */
	else if (q->ready && !q->event)
		used_store(q, 0, VIRTQ_USED_F_NO_NOTIFY);
}

bool virtq_notify_on(struct virtq *q)
{
	if (!q->ready || q->broken)
		return false;
	if (q->packed)
		virtq_packed_notify(q, true);
	else if (q->event)
		used_store(q, USED_AVAIL_EVENT(q->num), q->last_avail);
	else
		used_store(q, 0, 0);
	atomic_thread_fence(memory_order_seq_cst);
	return virtq_has_work(q);
}
