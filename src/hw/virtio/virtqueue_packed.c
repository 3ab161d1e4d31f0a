// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Packed virtqueues, the device's side: VIRTIO 1.1, 2.7. One ring of descriptors that
 * both sides write; a descriptor is available when its AVAIL bit, and not its USED
 * bit, equals the driver's wrap counter. A chain's handle is its buffer ID and the
 * number of ring slots it took, which the used descriptor skips.
 *
 * The rules and the locking are virtqueue.h's; the guest is as hostile here.
 */
#include "hw/virtio/virtqueue_int.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/util.h"

#define DESC_LEN 16u
/* Offsets in a descriptor {le64 addr, le32 len, le16 id, le16 flags}. */
#define DESC_LEN_AT   8
#define DESC_ID_AT    12
#define DESC_FLAGS_AT 14

#define F_AVAIL BIT(7)
#define F_USED	BIT(15)

/* Event suppression {le16 offset and wrap, le16 flags}: 2.7.14 */
#define EVENT_ENABLE  0u
#define EVENT_DISABLE 1u
#define EVENT_DESC    2u

static uint8_t *slot(const struct virtq *q, unsigned i)
{
	return (uint8_t *)q->desc + (size_t)i * DESC_LEN;
}

static uint16_t load_flags(const struct virtq *q, unsigned i)
{
	return __atomic_load_n((const uint16_t *)(const void *)(slot(q, i) + DESC_FLAGS_AT), __ATOMIC_ACQUIRE);
}

void virtq_packed_start(struct virtq *q)
{
	if (q->num == 0 || q->num > VIRTQ_MAX_SIZE) {
		virtq_break(q, "a wrong queue size");
		return;
	}
	if ((q->desc_gpa & 15) || (q->avail_gpa & 3) || (q->used_gpa & 3)) {
		virtq_break(q, "ring addresses are not aligned");
		return;
	}
	q->desc = virtq_ring_ptr(q->mem, q->desc_gpa, (uint64_t)q->num * DESC_LEN, true);
	q->avail = virtq_ring_ptr(q->mem, q->avail_gpa, 4, false);
	q->used = virtq_ring_ptr(q->mem, q->used_gpa, 4, true);
	if (!q->desc || !q->avail || !q->used) {
		virtq_break(q, "rings are not in RAM");
		return;
	}
	q->avail_wrap = q->used_wrap = true;
	q->ready = true;
}

bool virtq_packed_has_work(const struct virtq *q)
{
	const uint16_t flags = load_flags(q, q->last_avail);

	return !!(flags & F_AVAIL) == q->avail_wrap && !!(flags & F_USED) != q->avail_wrap;
}

/* One read of each field: the driver may change the ring meanwhile. */
struct copy {
	uint64_t addr;
	uint32_t len;
	uint16_t id, flags;
};

static struct copy copy_desc(const uint8_t *p)
{
	const volatile struct copy *d = (const volatile struct copy *)(const void *)p;

	return (struct copy){d->addr, d->len, d->id, d->flags};
}

/* All entries of an indirect table, in order: there is no next in one (2.7.7). */
static int walk_indirect(struct virtq *q, const struct copy *t, struct virtq_chain *c)
{
	const uint32_t n = t->len / DESC_LEN;

	if (!q->indirect)
		return virtq_break(q, "an indirect descriptor without the feature");
	if (t->len == 0 || t->len % DESC_LEN || n > VIRTQ_MAX_SIZE)
		return virtq_break(q, "an indirect table of a wrong size");
	for (uint32_t i = 0; i < n; i++) {
		uint8_t bytes[DESC_LEN] __attribute__((aligned(8)));
		struct copy d;
		int ret;

		if (dma_read(q->mem, t->addr + (uint64_t)i * DESC_LEN, bytes, DESC_LEN))
			return virtq_break(q, "an indirect table is not in RAM");
		d = copy_desc(bytes);
		if (d.flags & VIRTQ_DESC_F_INDIRECT)
			return virtq_break(q, "an indirect descriptor inside an indirect table");
		ret = virtq_chain_add(q, c, d.addr, d.len, d.flags);
		if (ret)
			return ret;
	}
	return 0;
}

static void advance(const struct virtq *q, uint16_t *at, bool *wrap, unsigned n)
{
	unsigned to = *at + n;

	if (to >= q->num) {
		to -= q->num;
		*wrap = !*wrap;
	}
	*at = (uint16_t)to;
}

int virtq_packed_pop(struct virtq *q, struct virtq_chain *c)
{
	unsigned at = q->last_avail, n = 0;
	struct copy d;

	if (!virtq_packed_has_work(q))
		return 0;
	c->nout = c->nin = 0;
	c->out_len = c->in_len = 0;
	do {
		int ret;

		if (n == q->num)
			return virtq_break(q, "a chain is longer than the ring");
		d = copy_desc(slot(q, at));
		at = at + 1 == q->num ? 0 : at + 1;
		n++;
		if (!(d.flags & VIRTQ_DESC_F_INDIRECT)) {
			ret = virtq_chain_add(q, c, d.addr, d.len, d.flags);
		} else if (n > 1 || (d.flags & VIRTQ_DESC_F_NEXT)) {
			return virtq_break(q, "an indirect descriptor with another one");
		} else {
			ret = walk_indirect(q, &d, c);
		}
		if (ret)
			return ret;
	} while (d.flags & VIRTQ_DESC_F_NEXT);
	if (q->inuse + n > q->num)
		return virtq_break(q, "more chains in flight than the queue holds");
	c->head = d.id | (uint32_t)n << 16; /* the last descriptor has the buffer's ID */
	advance(q, &q->last_avail, &q->avail_wrap, n);
	q->last_count = (uint16_t)n;
	q->inuse += n;
	return 1;
}

void virtq_packed_unpop(struct virtq *q)
{
	if (q->last_avail < q->last_count) {
		q->last_avail = (uint16_t)(q->last_avail + q->num);
		q->avail_wrap = !q->avail_wrap;
	}
	q->last_avail = (uint16_t)(q->last_avail - q->last_count);
	q->inuse -= q->last_count;
}

void virtq_packed_push(struct virtq *q, uint32_t head, uint32_t written)
{
	const unsigned n = head >> 16;
	uint8_t *p = slot(q, q->used_idx);
	uint16_t flags = (uint16_t)(q->used_wrap ? F_AVAIL | F_USED : 0);

	if (written)
		flags |= VIRTQ_DESC_F_WRITE;
	__atomic_store_n((uint32_t *)(void *)(p + DESC_LEN_AT), written, __ATOMIC_RELAXED);
	__atomic_store_n((uint16_t *)(void *)(p + DESC_ID_AT), (uint16_t)head, __ATOMIC_RELAXED);
	__atomic_store_n((uint16_t *)(void *)(p + DESC_FLAGS_AT), flags, __ATOMIC_RELEASE);
	mem_mark_written(q->mem, p, DESC_LEN);
	advance(q, &q->used_idx, &q->used_wrap, n);
	q->unsignalled = (uint16_t)MIN(q->unsignalled + n, (unsigned)q->num);
	q->inuse -= n;
}

bool virtq_packed_want_interrupt(struct virtq *q)
{
	const unsigned since = q->unsignalled;
	uint32_t event;
	unsigned off, behind;

	if (since == 0)
		return false;
	q->unsignalled = 0;
	/* Our descriptors must be visible before we look whether the driver sleeps. */
	atomic_thread_fence(memory_order_seq_cst);
	event = __atomic_load_n((const uint32_t *)(const void *)q->avail, __ATOMIC_ACQUIRE);
	switch (event >> 16 & 3) {
	case EVENT_DISABLE: return false;
	case EVENT_DESC:
		if (q->event)
			break;
		return true;
	default: return true;
	}
	/* Was slot `off` of that lap among the last `since` ones? */
	off = event & 0x7fff;
	behind = q->used_idx + (!!(event & 0x8000) == q->used_wrap ? 0u : q->num) - off;
	return behind >= 1 && behind <= since;
}

void virtq_packed_notify(struct virtq *q, bool on)
{
	uint32_t event = EVENT_DISABLE << 16;

	if (on)
		event =
		    q->event ? EVENT_DESC << 16 | (q->avail_wrap ? 0x8000u : 0) | q->last_avail : EVENT_ENABLE << 16;
	__atomic_store_n((uint32_t *)(void *)q->used, event, __ATOMIC_RELAXED);
	mem_mark_written(q->mem, q->used, 4);
}
