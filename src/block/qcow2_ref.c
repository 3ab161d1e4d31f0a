// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Refcounts of host clusters (1 to 64 bits wide) and their allocation; and the
 * set of clusters that hold metadata, which guest data must never be written to,
 * whatever the image says. Cluster 0, the header, is in it and so never given out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "block/qcow2.h"

/* ---- the set of metadata clusters: open addressing, entries are cluster + 1 --- */

static size_t meta_slot(const struct qcow2 *q, uint64_t cluster)
{
	size_t i = (size_t)((cluster + 1) * 0x9e3779b97f4a7c15ull >> 20) & (q->max_meta - 1);

	while (q->meta[i] && q->meta[i] != cluster + 1)
		i = (i + 1) & (q->max_meta - 1);
	return i;
}

static int meta_resize(struct qcow2 *q, size_t max)
{
	uint64_t *old = q->meta;
	size_t n = q->max_meta;

	q->meta = calloc(max, sizeof(q->meta[0]));
	if (!q->meta) {
		q->meta = old;
		return -ENOMEM;
	}
	q->max_meta = max;
	for (size_t i = 0; i < n; i++)
		if (old[i])
			q->meta[meta_slot(q, old[i] - 1)] = old[i];
	free(old);
	return 0;
}

int qcow2_meta_add(struct qcow2 *q, uint64_t cluster)
{
	size_t i;

	if (q->nr_meta * 2 >= q->max_meta && meta_resize(q, q->max_meta ? q->max_meta * 2 : 256))
		return -ENOMEM;
	i = meta_slot(q, cluster);
	if (!q->meta[i]) {
		q->meta[i] = cluster + 1;
		q->nr_meta++;
	}
	return 0;
}

void qcow2_meta_remove(struct qcow2 *q, uint64_t cluster)
{
	size_t i = meta_slot(q, cluster), k;

	if (!q->meta[i])
		return;
	q->meta[i] = 0;
	q->nr_meta--;
	/* Entries behind the hole may have been pushed past it: place them again. */
	for (k = (i + 1) & (q->max_meta - 1); q->meta[k]; k = (k + 1) & (q->max_meta - 1)) {
		uint64_t v = q->meta[k];
		q->meta[k] = 0;
		q->meta[meta_slot(q, v - 1)] = v;
	}
}

bool qcow2_hits_meta(const struct qcow2 *q, uint64_t offset, uint64_t len)
{
	return !q->has_data_file && qcow2_meta_has(q, offset, len);
}

bool qcow2_meta_has(const struct qcow2 *q, uint64_t offset, uint64_t len)
{
	const uint64_t last = (offset + len - 1) >> q->cluster_bits;

	for (uint64_t c = offset >> q->cluster_bits; c <= last; c++)
		if (q->meta[meta_slot(q, c)])
			return true;
	return false;
}

static int meta_add_range(struct qcow2 *q, uint64_t offset, uint64_t len)
{
	int ret = 0;

	for (uint64_t c = offset >> q->cluster_bits; len && !ret && c <= (offset + len - 1) >> q->cluster_bits; c++)
		ret = qcow2_meta_add(q, c);
	return ret;
}

int qcow2_meta_init(struct qcow2 *q)
{
	/* No more than there can be without overlaps. */
	const uint64_t most = block_file_size(q->file) + QCOW2_MAX_L1_BYTES;
	uint64_t l1_bytes = 0;
	int ret;

	free(q->meta);
	q->meta = NULL;
	q->nr_meta = q->max_meta = 0;
	ret = qcow2_meta_add(q, 0);

	if (!ret)
		ret = meta_add_range(q, q->h.l1_table_offset, q->h.l1_size * 8ull);
	if (!ret)
		ret = meta_add_range(q, q->h.refcount_table_offset, q->reftable_entries * 8ull);
	if (!ret && q->h.nb_snapshots)
		ret = meta_add_range(q, q->h.snapshots_offset, q->snapshots_bytes);
	for (uint32_t i = 0; i < q->nr_snapshots && !ret && l1_bytes <= most; i++) {
		if (q->snapshots[i].l1_size > QCOW2_MAX_L1_BYTES / 8)
			continue; /* such a table is never read */
		l1_bytes += q->snapshots[i].l1_size * 8ull;
		ret = meta_add_range(q, q->snapshots[i].l1_offset, q->snapshots[i].l1_size * 8ull);
	}
	for (uint32_t i = 0; i < q->h.l1_size && !ret; i++)
		if (q->l1[i] & QCOW2_OFFSET_MASK)
			ret = qcow2_meta_add(q, (q->l1[i] & QCOW2_OFFSET_MASK) >> q->cluster_bits);
	for (uint32_t i = 0; i < q->reftable_entries && !ret; i++)
		if (q->reftable[i])
			ret = qcow2_meta_add(q, q->reftable[i] >> q->cluster_bits);
	return ret;
}

/* ---- refcounts -------------------------------------------------------------- */

uint64_t qcow2_refcount_load(const uint8_t *block, uint32_t order, uint64_t index)
{
	switch (order) {
	case 3: return block[index];
	case 4: return ld16be(block + index * 2);
	case 5: return ld32be(block + index * 4);
	case 6: return ld64be(block + index * 8);
	default: break;
	}
	/* Narrower than a byte: the first entry is in the least significant bits. */
	return block[index >> (3 - order)] >> ((index << order) & 7) & (BIT(1u << order) - 1);
}

void qcow2_refcount_store(uint8_t *block, uint32_t order, uint64_t index, uint64_t value)
{
	const unsigned shift = order < 3 ? (index << order) & 7 : 0;
	uint8_t *b;

	switch (order) {
	case 3: block[index] = (uint8_t)value; return;
	case 4: st16be(block + index * 2, (uint16_t)value); return;
	case 5: st32be(block + index * 4, (uint32_t)value); return;
	case 6: st64be(block + index * 8, value); return;
	default: break;
	}
	b = &block[index >> (3 - order)];
	*b = (uint8_t)((*b & ~((BIT(1u << order) - 1) << shift)) | value << shift);
}

/* log2 of the refcounts in a block. */
static uint32_t block_bits(const struct qcow2 *q)
{
	return q->cluster_bits + 3 - q->h.refcount_order;
}

/* The pinned block of a cluster; *out is NULL when there is none. */
static int get_block(struct qcow2 *q, uint64_t cluster, struct qcow2_table **out)
{
	const uint64_t i = cluster >> block_bits(q);
	const uint64_t offset = i < q->reftable_entries ? q->reftable[i] & ~511ull : 0;

	*out = NULL;
	if (!offset)
		return 0;
	if (offset & (q->cluster_size - 1))
		return qcow2_mark_corrupt(q, "refcount block %llu is at 0x%llx, which is no cluster",
					  (unsigned long long)i, (unsigned long long)offset);
	return qcow2_cache_get(q, &q->refblocks, offset, out);
}

int qcow2_refcount_get(struct qcow2 *q, uint64_t cluster, uint64_t *count)
{
	struct qcow2_table *t;
	int ret = get_block(q, cluster, &t);

	*count = 0;
	if (t) {
		*count = qcow2_refcount_load(t->data, q->h.refcount_order, cluster & (BIT(block_bits(q)) - 1));
		qcow2_cache_put(t);
	}
	return ret;
}

int qcow2_refcount_add(struct qcow2 *q, uint64_t cluster, uint64_t n, int delta)
{
	const uint64_t max = q->h.refcount_order == 6 ? UINT64_MAX : BIT(1u << q->h.refcount_order) - 1;
	const uint64_t mask = BIT(block_bits(q)) - 1;

	while (n) {
		struct qcow2_table *t;
		uint64_t i = cluster & mask, old;
		int ret = get_block(q, cluster, &t);
		if (ret)
			return ret;
		if (!t)
			return qcow2_mark_corrupt(q, "cluster %llu in use has no refcount block",
						  (unsigned long long)cluster);
		for (; n && i <= mask; i++, n--, cluster++) {
			old = qcow2_refcount_load(t->data, q->h.refcount_order, i);
			if (delta < 0 ? old == 0 : old == max) {
				qcow2_cache_put(t);
				return delta < 0 ? qcow2_mark_corrupt(q, "cluster %llu in use has refcount 0",
								      (unsigned long long)cluster)
						 : -ERANGE;
			}
			qcow2_refcount_store(t->data, q->h.refcount_order, i, old + (uint64_t)(int64_t)delta);
			if (delta > 0 && cluster >= q->fresh)
				q->fresh = cluster + 1;
			if (delta < 0 && old == 1)
				q->free_hint = MIN(q->free_hint, cluster);
			if (delta < 0 && old == 1 && cluster == q->packed >> q->cluster_bits)
				q->packed = 0;
		}
		qcow2_cache_dirty(&q->refblocks, t);
		qcow2_cache_put(t);
	}
	return 0;
}

/* ---- new refcount blocks, and a larger table of them --------------------------- */

static void reftable_set(struct qcow2 *q, uint64_t i, uint64_t offset)
{
	q->reftable[i] = offset;
	q->reftable_dirty_lo = MIN(q->reftable_dirty_lo, (uint32_t)i);
	q->reftable_dirty_hi = MAX(q->reftable_dirty_hi, (uint32_t)i + 1);
}

/* An empty block for entry i, in the file at `cluster`. */
static int block_make(struct qcow2 *q, uint64_t i, uint64_t cluster)
{
	struct qcow2_table *t;
	int ret = qcow2_meta_add(q, cluster);

	if (!ret)
		ret = qcow2_cache_new(q, &q->refblocks, cluster << q->cluster_bits, &t);
	if (ret)
		return ret;
	qcow2_cache_put(t);
	reftable_set(q, i, cluster << q->cluster_bits);
	return 0;
}

/* Write the table at its new place, then the header that names it. */
static int reftable_move(struct qcow2 *q, uint64_t offset, uint32_t clusters)
{
	const size_t bytes = (size_t)clusters << q->cluster_bits;
	uint8_t *be = malloc(bytes), head[12];
	int ret = be ? 0 : -ENOMEM;

	for (size_t i = 0; i < bytes / 8 && !ret; i++)
		st64be(be + i * 8, q->reftable[i]);
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_WRITE, offset, be, bytes);
	free(be);
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
	st64be(head, offset);
	st32be(head + 8, clusters);
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_WRITE, QCOW2_H_REFCOUNT_TABLE_OFFSET, head, sizeof(head));
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
	return ret;
}

/*
 * The table is full: a new one half as large again, behind everything it covered.
 * Its region begins with the refcount blocks of the region, then the table.
 */
static int reftable_grow(struct qcow2 *q)
{
	const uint64_t base = (uint64_t)q->reftable_entries << block_bits(q), old = q->h.refcount_table_offset;
	const uint32_t first = q->reftable_entries, old_clusters = q->h.refcount_table_clusters;
	const uint32_t clusters = old_clusters + MAX(old_clusters / 2, 1u);
	const uint32_t entries = (uint32_t)(((uint64_t)clusters << q->cluster_bits) / 8);
	uint64_t blocks = 1, *bigger;
	int ret = 0;

	if ((uint64_t)clusters << q->cluster_bits > QCOW2_MAX_REFTABLE_BYTES)
		return -EFBIG;
	while (blocks << block_bits(q) < blocks + clusters)
		blocks++;
	if (first + blocks > entries)
		return -EFBIG;
	bigger = realloc(q->reftable, entries * 8ull);
	if (!bigger)
		return -ENOMEM;
	memset(bigger + first, 0, (entries - first) * 8ull);
	q->reftable = bigger;
	q->reftable_entries = entries;
	for (uint64_t i = 0; i < blocks && !ret; i++)
		ret = block_make(q, first + i, base + i);
	if (!ret)
		ret = meta_add_range(q, (base + blocks) << q->cluster_bits, (uint64_t)clusters << q->cluster_bits);
	if (!ret)
		ret = qcow2_refcount_add(q, base, blocks + clusters, 1);
	/* The blocks it names are written before it is; no flush is at it meanwhile. */
	qcow2_lock_take(&q->flush);
	if (!ret)
		ret = qcow2_write_refblocks(q);
	if (!ret)
		ret = reftable_move(q, (base + blocks) << q->cluster_bits, clusters);
	qcow2_lock_give(&q->flush);
	if (ret)
		return qcow2_mark_corrupt(q, "the refcount table could not be enlarged: %s", strerror(-ret));
	q->h.refcount_table_offset = (base + blocks) << q->cluster_bits;
	q->h.refcount_table_clusters = clusters;
	q->reftable_dirty_lo = UINT32_MAX;
	q->reftable_dirty_hi = 0;
	return qcow2_free_later(q, old, (uint64_t)old_clusters << q->cluster_bits);
}

/* The block of `cluster`, made in its own first cluster when there is none. */
static int get_block_for_alloc(struct qcow2 *q, uint64_t cluster, struct qcow2_table **out)
{
	const uint64_t i = cluster >> block_bits(q), base = i << block_bits(q);
	int ret;

	while (i >= q->reftable_entries) {
		ret = reftable_grow(q);
		if (ret)
			return ret;
	}
	ret = get_block(q, cluster, out);
	if (ret || *out)
		return ret;
	if (qcow2_meta_has(q, base << q->cluster_bits, 1))
		return qcow2_mark_corrupt(q, "metadata at cluster %llu has no refcount", (unsigned long long)base);
	ret = block_make(q, i, base);
	if (!ret)
		ret = qcow2_refcount_add(q, base, 1, 1);
	return ret ? ret : get_block(q, cluster, out);
}

int qcow2_refblock_ensure(struct qcow2 *q, uint64_t cluster)
{
	const uint64_t i = cluster >> block_bits(q);
	struct qcow2_table *t = NULL;
	uint64_t at, got;
	int ret = 0;

	while (i >= q->reftable_entries && !ret)
		ret = reftable_grow(q);
	if (!ret)
		ret = get_block(q, cluster, &t);
	if (!ret && !t) {
		ret = qcow2_alloc(q, 1, &at, &got);
		if (!ret)
			ret = get_block(q, cluster, &t);
		/* The search for that one cluster may have come here and made the block. */
		if (!ret)
			ret = t ? qcow2_refcount_add(q, at, 1, -1) : block_make(q, i, at);
	}
	if (t)
		qcow2_cache_put(t);
	return ret;
}

int qcow2_alloc(struct qcow2 *q, uint64_t want, uint64_t *cluster, uint64_t *got)
{
	const uint64_t mask = BIT(block_bits(q)) - 1;
	uint64_t c = q->free_hint, n = 0;

	*got = 0;
	while (!n) {
		struct qcow2_table *t;
		int ret = get_block_for_alloc(q, c, &t);
		if (ret)
			return ret;
		while (n < want) {
			bool used = qcow2_refcount_load(t->data, q->h.refcount_order, (c + n) & mask) != 0;
			if (!used && qcow2_meta_has(q, (c + n) << q->cluster_bits, 1)) {
				qcow2_cache_put(t);
				return qcow2_mark_corrupt(q, "metadata at cluster %llu has refcount 0",
							  (unsigned long long)(c + n));
			}
			if (!used)
				n++;
			else if (n == 0)
				c++;
			else
				break;
			if (((c + n) & mask) == 0)
				break; /* the next block */
		}
		qcow2_cache_put(t);
	}
	*cluster = c;
	*got = n;
	q->free_hint = c + n;
	if ((c + n) << q->cluster_bits >= BIT(56))
		return -EFBIG;
	return qcow2_refcount_add(q, c, n, 1);
}
