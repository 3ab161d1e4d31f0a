// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Writes that change the mapping, zeroes and discards. The request's clusters are
 * held exclusively, so their mapping changes under nobody. New data is on its way
 * to the host before an L2 entry names it; what it replaces is freed after the
 * new mapping is durable (qcow2_flush.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "block/qcow2.h"

/* Tables and frees that may pile up before a write pays for a flush. */
#define MAX_FREES 4096u

int qcow2_limit_dirty(struct qcow2 *q)
{
	if (q->l2.dirty <= q->l2.max / 2 + 2 && q->refblocks.dirty <= q->refblocks.max / 2 + 2 &&
	    q->nr_frees < MAX_FREES)
		return 0;
	return qcow2_flush_tables(q);
}

/* What an entry referred to has one reference less, soon. */
void qcow2_free_entry(struct qcow2 *q, uint64_t entry)
{
	uint64_t offset = entry & QCOW2_OFFSET_MASK;
	uint32_t len = q->cluster_size;

	if (entry & QCOW2_ENTRY_COMPRESSED)
		qcow2_compressed_range(q, entry, &offset, &len);
	if (offset && !q->has_data_file)
		qcow2_free_later(q, offset, len);
}

struct write_run {
	struct qcow2 *q;
	const struct block_req *req;
	uint64_t at; /* bytes of the request done */
	struct iovec *iov;
	uint8_t *head, *tail;
};

/* The caller's iov for [skip, skip + len), behind `n` entries already there. */
static int add_iov(struct iovec *out, int n, const struct block_req *req, uint64_t skip, uint64_t len)
{
	for (int i = 0; i < req->niov && len; i++) {
		size_t c;
		if (skip >= req->iov[i].iov_len) {
			skip -= req->iov[i].iov_len;
			continue;
		}
		c = (size_t)MIN(len, req->iov[i].iov_len - skip);
		out[n++] = (struct iovec){(uint8_t *)req->iov[i].iov_base + skip, c};
		len -= c;
		skip = 0;
	}
	return n;
}

static int write_in_place(struct write_run *w, const struct qcow2_extent *e)
{
	struct qcow2 *q = w->q;

	if (qcow2_hits_meta(q, e->host, e->len))
		return qcow2_mark_corrupt(q, "guest offset 0x%llx is mapped to metadata at 0x%llx",
					  (unsigned long long)(w->req->offset + w->at), (unsigned long long)e->host);
	return qcow2_data_iov(q, BLOCK_WRITE, e->host, w->iov, add_iov(w->iov, 0, w->req, w->at, e->len), e->len);
}

/* What the guest sees in [offset, offset + len) now; zeros past the disk's end. */
static int read_old(struct qcow2 *q, uint64_t offset, uint8_t *buf, uint64_t len)
{
	const uint64_t have = offset < q->node->size ? MIN(len, q->node->size - offset) : 0;
	struct iovec iov = {buf, have};

	memset(buf + have, 0, len - have);
	return have ? qcow2_read_range(q, offset, &iov, 1, have) : 0;
}

/* The same in *buf, made when first needed: most writes have no edges. */
static int load_edge(struct qcow2 *q, uint64_t offset, uint8_t **buf, uint64_t len)
{
	if (!*buf)
		*buf = aligned_alloc(4096, ALIGN_UP(q->cluster_size, 4096u));
	return *buf ? read_old(q, offset, *buf, len) : -ENOMEM;
}

/* Does the guest see zeros there now, without a look at the disk? */
static bool reads_zero(struct qcow2 *q, uint64_t offset, uint64_t len)
{
	struct qcow2_extent e;

	return offset >= q->node->size ||
	       (qcow2_lookup_cached(q, offset, len, &e) == 1 && e.len >= len &&
		(e.kind == QCOW2_ZERO ||
		 (e.kind == QCOW2_UNALLOCATED && (!q->backing || offset >= block_size(q->backing)))));
}

/*
 * `bytes` of the request into new clusters at `host`, with the old contents around them that fill `grain`: whole
 * clusters or subclusters. In `fresh` ones zeros need not be written.
 */
static int write_new(struct write_run *w, uint64_t host, uint64_t bytes, uint32_t grain, bool fresh)
{
	struct qcow2 *q = w->q;
	const uint64_t start = w->req->offset + w->at, mask = grain - 1;
	uint64_t head = start & mask, tail = -(start + bytes) & mask;
	int n = 0, ret = 0;

	if (fresh && head && reads_zero(q, start - head, head))
		head = 0;
	if (fresh && tail && reads_zero(q, start + bytes, tail))
		tail = 0;

	if (head)
		ret = load_edge(q, start - head, &w->head, head);
	if (tail && !ret)
		ret = load_edge(q, start + bytes, &w->tail, tail);
	if (ret)
		return ret;
	if (head)
		w->iov[n++] = (struct iovec){w->head, head};
	n = add_iov(w->iov, n, w->req, w->at, bytes);
	if (tail)
		w->iov[n++] = (struct iovec){w->tail, tail};
	host += (start & (q->cluster_size - 1)) - head;
	return qcow2_data_iov(q, BLOCK_WRITE, host, w->iov, n, head + bytes + tail);
}

/* The subclusters of the cluster at `cluster` that [start, end) touches, as bits. */
static uint64_t sub_bits(const struct qcow2 *q, uint64_t cluster, uint64_t start, uint64_t end)
{
	const uint32_t size = q->cluster_size / 32;
	const uint64_t lo = MAX(start, cluster) - cluster, hi = MIN(end - cluster, (uint64_t)q->cluster_size);

	return (BIT((hi + size - 1) / size) - 1) & ~(BIT(lo / size) - 1);
}

/* A new place for a cluster of which only [start, end) was written: what else it had must not be lost. */
static bool moves_whole(const struct qcow2 *q, uint64_t entry)
{
	return !q->extended_l2 || (entry & (QCOW2_ENTRY_COMPRESSED | QCOW2_OFFSET_MASK));
}

/* The bitmap after it: the written subclusters, or all when the cluster was copied whole. */
static void set_written(struct qcow2 *q, struct qcow2_table *t, uint64_t cluster, uint64_t start, uint64_t end,
			bool whole)
{
	const uint64_t bits = sub_bits(q, cluster, start, end), old = qcow2_bitmap_get(q, t, cluster);

	qcow2_bitmap_set(q, t, cluster, whole ? UINT32_MAX : (old & ~(bits << 32)) | bits);
}

/* Subclusters without data in a cluster that has its place already. */
static int write_subclusters(struct write_run *w, struct qcow2_table *t, uint64_t *done)
{
	struct qcow2 *q = w->q;
	const uint64_t start = w->req->offset + w->at, cluster = ALIGN_DOWN(start, (uint64_t)q->cluster_size);
	const uint64_t host = qcow2_entry_get(q, t, cluster) & QCOW2_OFFSET_MASK;
	const uint64_t bytes = MIN(w->req->len - w->at, cluster + q->cluster_size - start);
	int ret;

	if (qcow2_hits_meta(q, host, q->cluster_size))
		return qcow2_mark_corrupt(q, "guest offset 0x%llx is mapped to metadata at 0x%llx",
					  (unsigned long long)start, (unsigned long long)host);
	ret = write_new(w, host, bytes, q->cluster_size / 32, false);
	if (ret)
		return ret;
	set_written(q, t, cluster, start, start + bytes, false);
	*done = bytes;
	return 0;
}

static bool writable_in_place(const struct qcow2_extent *e)
{
	return e->kind == QCOW2_DATA && (e->entry & QCOW2_ENTRY_COPIED);
}

/* How many clusters from here on need new ones, at most `max` and within the L2 table. */
static int count_new(struct qcow2 *q, const struct qcow2_table *t, uint64_t offset, uint64_t max, uint64_t *n)
{
	const uint64_t in_table = BIT(q->l2_bits) - ((offset >> q->cluster_bits) & (BIT(q->l2_bits) - 1));

	max = MIN(max, in_table);
	for (*n = 1; *n < max; ++*n) {
		uint64_t entry = qcow2_entry_get(q, t, offset + (*n << q->cluster_bits));
		if (q->extended_l2 && moves_whole(q, entry) != moves_whole(q, qcow2_entry_get(q, t, offset)))
			break;
		if (!(entry & QCOW2_ENTRY_COMPRESSED) && !(entry & QCOW2_ENTRY_ZERO) && (entry & QCOW2_OFFSET_MASK) &&
		    (entry & QCOW2_ENTRY_COPIED))
			break;
	}
	return 0;
}

static int alloc_clusters(struct qcow2 *q, uint64_t guest, uint64_t want, uint64_t *cluster, uint64_t *got, bool *fresh)
{
	uint64_t used;
	int ret;

	*fresh = false;
	/* A data file has every cluster where the guest has it. */
	if (q->has_data_file) {
		*cluster = guest >> q->cluster_bits;
		*got = want;
		return 0;
	}
	qcow2_lock_take(&q->alloc);
	used = q->fresh;
	ret = qcow2_alloc(q, want, cluster, got);
	*fresh = !ret && *cluster >= used;
	if (*fresh)
		qcow2_room_make(q);
	qcow2_lock_give(&q->alloc);
	return ret;
}

static void give_back(struct qcow2 *q, uint64_t cluster, uint64_t n)
{
	if (q->has_data_file)
		return;
	qcow2_lock_take(&q->alloc);
	qcow2_refcount_add(q, cluster, n, -1); /* no entry ever named them */
	qcow2_lock_give(&q->alloc);
}

/* Allocate for as much of the request as is contiguous, write it, name it. */
static int write_allocating(struct write_run *w, struct qcow2_table *t, uint64_t *done)
{
	struct qcow2 *q = w->q;
	const uint64_t start = w->req->offset + w->at, left = w->req->len - w->at;
	const uint64_t base = start & ~(uint64_t)(q->cluster_size - 1);
	const bool whole = moves_whole(q, qcow2_entry_get(q, t, base));
	uint64_t n, cluster, got, bytes;
	bool fresh;
	int ret;

	count_new(q, t, base, (start - base + left + q->cluster_size - 1) >> q->cluster_bits, &n);
	ret = alloc_clusters(q, base, n, &cluster, &got, &fresh);
	if (ret)
		return ret;
	bytes = MIN(left, (got << q->cluster_bits) - (start - base));
	ret = write_new(w, cluster << q->cluster_bits, bytes, whole ? q->cluster_size : q->cluster_size / 32, fresh);
	if (ret) {
		give_back(q, cluster, got);
		return ret;
	}
	for (uint64_t i = 0; i < got; i++) {
		const uint64_t at = base + (i << q->cluster_bits);
		qcow2_free_entry(q, qcow2_entry_get(q, t, at));
		qcow2_entry_set(q, t, at, (cluster + i) << q->cluster_bits | QCOW2_ENTRY_COPIED);
		set_written(q, t, at, start, start + bytes, whole);
	}
	*done = bytes;
	return 0;
}

static int write_step(struct write_run *w)
{
	struct qcow2 *q = w->q;
	const uint64_t start = w->req->offset + w->at, left = w->req->len - w->at;
	struct qcow2_table *t;
	struct qcow2_extent e;
	uint64_t done = 0, entry;
	int ret = qcow2_limit_dirty(q);

	if (!ret)
		ret = qcow2_lookup(q, start, left, &e);
	if (ret)
		return ret;
	if (writable_in_place(&e)) {
		ret = write_in_place(w, &e);
		w->at += e.len;
		return ret;
	}
	ret = qcow2_l2_for_write(q, start, &t);
	if (ret)
		return ret;
	entry = qcow2_entry_get(q, t, start);
	if (q->extended_l2 && (entry & QCOW2_OFFSET_MASK) && (entry & QCOW2_ENTRY_COPIED))
		ret = write_subclusters(w, t, &done);
	else
		ret = write_allocating(w, t, &done);
	qcow2_cache_put(t);
	w->at += done;
	return ret;
}

int qcow2_write_request(struct qcow2 *q, const struct block_req *req)
{
	struct write_run w = {.q = q, .req = req};
	int ret = 0;

	w.iov = malloc(((size_t)req->niov + 2) * sizeof(*w.iov));
	if (!w.iov)
		ret = -ENOMEM;
	while (!ret && w.at < req->len)
		ret = write_step(&w);
	free(w.iov);
	free(w.head);
	free(w.tail);
	return ret;
}

/* ---- whole clusters ------------------------------------------------------------ */

enum unmap { UNMAP_DISCARD, UNMAP_ZERO_KEEP, UNMAP_ZERO_FREE };

/* All subclusters are zero. */
#define ALL_ZERO (UINT64_MAX << 32)

/* The same for extended entries, whose zeros are in the bitmap. */
static uint64_t unmapped_extended(const struct qcow2 *q, uint64_t old, uint64_t *bitmap, enum unmap how)
{
	const uint64_t host = old & QCOW2_OFFSET_MASK;

	if (!host && !(old & QCOW2_ENTRY_COMPRESSED) && !*bitmap && !q->backing)
		return old;
	if (!host && !(old & QCOW2_ENTRY_COMPRESSED) && *bitmap == ALL_ZERO)
		return old;
	*bitmap = ALL_ZERO;
	return how == UNMAP_ZERO_KEEP && host && !(old & QCOW2_ENTRY_COMPRESSED) && (old & QCOW2_ENTRY_COPIED) ? old
													       : 0;
}

/* The entry that takes the place of `old`; `old` itself when it is right already. */
static uint64_t unmapped_entry(const struct qcow2 *q, uint64_t old, uint64_t *bitmap, enum unmap how)
{
	const bool empty = !(old & (QCOW2_ENTRY_COMPRESSED | QCOW2_ENTRY_ZERO | QCOW2_OFFSET_MASK));

	if (q->extended_l2)
		return unmapped_extended(q, old, bitmap, how);
	if (q->h.version < 3)
		return 0;
	if (empty && !q->backing)
		return old;
	if ((old & ~QCOW2_ENTRY_COPIED) == QCOW2_ENTRY_ZERO)
		return old;
	if (how == UNMAP_ZERO_KEEP && !empty && !(old & QCOW2_ENTRY_COMPRESSED) && (old & QCOW2_ENTRY_COPIED))
		return old | QCOW2_ENTRY_ZERO;
	return QCOW2_ENTRY_ZERO;
}

static int unmap_clusters(struct qcow2 *q, uint64_t offset, uint64_t end, enum unmap how)
{
	const uint64_t span = BIT(q->cluster_bits + q->l2_bits);
	int ret = 0;

	while (offset < end && !ret) {
		const uint64_t stop = MIN(end, (offset & ~(span - 1)) + span);
		struct qcow2_table *t;
		/* A table that does not exist maps nothing; only over a backing file it is needed to say zeros. */
		if (!(q->l1[offset / span] & QCOW2_OFFSET_MASK) && (q->h.version < 3 || !q->backing)) {
			offset = stop;
			continue;
		}
		ret = qcow2_limit_dirty(q);
		if (!ret)
			ret = qcow2_l2_for_write(q, offset, &t);
		if (ret)
			break;
		for (; offset < stop; offset += q->cluster_size) {
			const uint64_t old = qcow2_entry_get(q, t, offset), old_map = qcow2_bitmap_get(q, t, offset);
			uint64_t map = old_map;
			const uint64_t entry = unmapped_entry(q, old, &map, how);
			if (entry == old && map == old_map)
				continue;
			if (!(entry & QCOW2_OFFSET_MASK))
				qcow2_free_entry(q, old);
			qcow2_entry_set(q, t, offset, entry);
			qcow2_bitmap_set(q, t, offset, map);
		}
		qcow2_cache_put(t);
	}
	return ret;
}

/* The whole clusters inside the request; the last one of the disk may be cut. */
static void whole_clusters(const struct qcow2 *q, const struct block_req *req, uint64_t *lo, uint64_t *hi)
{
	const uint64_t end = req->offset + req->len;

	*lo = ALIGN_UP(req->offset, (uint64_t)q->cluster_size);
	*hi = end == q->node->size ? ALIGN_UP(end, (uint64_t)q->cluster_size)
				   : ALIGN_DOWN(end, (uint64_t)q->cluster_size);
}

int qcow2_discard_request(struct qcow2 *q, const struct block_req *req)
{
	uint64_t lo, hi;

	whole_clusters(q, req, &lo, &hi);
	if (!q->node->discard_unmap || lo >= hi)
		return 0; /* advice that was not wanted */
	return unmap_clusters(q, lo, hi, UNMAP_DISCARD);
}

#define ZERO_BUF (64u * 1024)

/* Zeros as data, where no flag in the table can say it. */
int qcow2_write_zero_data(struct qcow2 *q, uint64_t offset, uint64_t end)
{
	static uint8_t zeros[ZERO_BUF]; /* only read */
	int ret = 0;

	while (offset < end && !ret) {
		struct iovec iov = {zeros, MIN(end - offset, ZERO_BUF)};
		struct block_req part = {
		    .op = BLOCK_WRITE, .offset = offset, .len = iov.iov_len, .iov = &iov, .niov = 1};
		struct qcow2_extent e;
		ret = qcow2_lookup(q, offset, end - offset, &e);
		if (!ret && (e.kind == QCOW2_ZERO || (e.kind == QCOW2_UNALLOCATED && !q->backing))) {
			offset += e.len;
			continue;
		}
		if (!ret)
			ret = qcow2_write_request(q, &part);
		offset += part.len;
	}
	return ret;
}

int qcow2_zero_request(struct qcow2 *q, const struct block_req *req)
{
	const uint64_t end = req->offset + req->len;
	uint64_t lo, hi;
	int ret;

	whole_clusters(q, req, &lo, &hi);
	if (lo >= hi || (q->h.version < 3 && q->backing))
		return qcow2_write_zero_data(q, req->offset, end);
	ret = qcow2_write_zero_data(q, req->offset, MIN(lo, end));
	if (!ret)
		ret = unmap_clusters(q, lo, hi,
				     (req->flags & BLOCK_MAY_UNMAP) && q->node->discard_unmap ? UNMAP_ZERO_FREE
											      : UNMAP_ZERO_KEEP);
	if (!ret && hi < end)
		ret = qcow2_write_zero_data(q, hi, end);
	return ret;
}
