// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Another size of the disk: a larger L1 table, preallocation, dropping what is
 * cut off. What the header says changes in one write within its first sector,
 * when everything it then names is durable; before that, and after a crash, the
 * old state or at worst leaked clusters are there. Coroutines with the image to
 * themselves.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "block/qcow2.h"

/* Patch the header's first sector, durably. */
int qcow2_header_patch(struct qcow2 *q, const struct qcow2_patch *p, int n)
{
	uint8_t head[512];
	int ret = block_file_pread(q->file, head, sizeof(head), 0);

	for (int i = 0; i < n; i++)
		if (p[i].bytes == 8)
			st64be(head + p[i].field, p[i].value);
		else
			st32be(head + p[i].field, (uint32_t)p[i].value);
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_WRITE, 0, head, sizeof(head));
	return ret ? ret : qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
}

/* Contiguous clusters at the end of the file, whatever their number. */
static int alloc_at_end(struct qcow2 *q, uint64_t n, uint64_t *cluster)
{
	uint64_t c = (block_file_size(q->file) + q->cluster_size - 1) >> q->cluster_bits, k = 0, count;
	int ret = 0;

	while (k < n && !ret) {
		ret = qcow2_refblock_ensure(q, c + k);
		if (!ret)
			ret = qcow2_refcount_get(q, c + k, &count);
		if (!ret && (count || qcow2_meta_has(q, (c + k) << q->cluster_bits, 1))) {
			c += k + 1;
			k = 0;
		} else {
			k++;
		}
	}
	/* A block made for the later ones may have been given one of the earlier ones. */
	for (k = 0; k < n && !ret; k++) {
		ret = qcow2_refcount_get(q, c + k, &count);
		if (!ret && count)
			return -EAGAIN;
	}
	if (!ret && (c + n) << q->cluster_bits >= BIT(56))
		ret = -EFBIG;
	*cluster = c;
	return ret ? ret : qcow2_refcount_add(q, c, n, 1);
}

int qcow2_alloc_run(struct qcow2 *q, uint64_t n, uint64_t *cluster)
{
	uint64_t got;
	int ret;

	qcow2_lock_take(&q->alloc);
	if (n == 1) {
		ret = qcow2_alloc(q, 1, cluster, &got);
	} else {
		for (int i = 0; i < 64 && (ret = alloc_at_end(q, n, cluster)) == -EAGAIN; i++)
			;
	}
	qcow2_lock_give(&q->alloc);
	return ret;
}

int qcow2_l1_replace(struct qcow2 *q, uint64_t *l1, uint32_t n, uint64_t size)
{
	const uint64_t clusters = MAX((n * 8ull + q->cluster_size - 1) >> q->cluster_bits, 1u);
	const uint64_t old = q->h.l1_table_offset, old_bytes = q->h.l1_size * 8ull;
	uint64_t cluster = 0;
	uint8_t *be = calloc(clusters, q->cluster_size);
	int ret = be ? qcow2_alloc_run(q, clusters, &cluster) : -ENOMEM;

	if (ret)
		cluster = 0;
	for (uint32_t i = 0; i < n && !ret; i++)
		st64be(be + i * 8ull, l1[i]);
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_WRITE, cluster << q->cluster_bits, be, clusters << q->cluster_bits);
	free(be);
	for (uint64_t i = 0; i < clusters && !ret; i++)
		ret = qcow2_meta_add(q, cluster + i);
	if (!ret)
		ret = qcow2_flush_tables(q);
	if (ret && cluster)
		qcow2_free_later(q, cluster << q->cluster_bits, clusters << q->cluster_bits); /* nothing names it yet */
	if (!ret)
		ret =
		    qcow2_header_patch(q,
				       (struct qcow2_patch[]){{QCOW2_H_SIZE, 8, size},
							      {QCOW2_H_L1_SIZE, 4, n},
							      {QCOW2_H_L1_TABLE_OFFSET, 8, cluster << q->cluster_bits}},
				       3);
	if (ret)
		return ret;
	free(q->l1);
	q->l1 = l1;
	q->h.l1_size = n;
	q->h.size = size;
	q->node->size = ALIGN_UP(size, 512);
	q->h.l1_table_offset = cluster << q->cluster_bits;
	q->l1_dirty_lo = UINT32_MAX;
	q->l1_dirty_hi = 0;
	return old_bytes ? qcow2_free_later(q, old, old_bytes) : 0;
}

int qcow2_l1_grow(struct qcow2 *q, uint64_t size)
{
	const uint64_t span = BIT(q->cluster_bits + q->l2_bits), n = size / span + (size % span != 0);
	uint64_t *l1;
	int ret;

	if (n <= q->h.l1_size)
		return 0;
	if (n > QCOW2_MAX_L1_BYTES / 8)
		return -EFBIG;
	l1 = calloc(n, 8);
	if (!l1)
		return -ENOMEM;
	memcpy(l1, q->l1, q->h.l1_size * 8ull);
	ret = qcow2_l1_replace(q, l1, (uint32_t)n, q->h.size);
	if (q->l1 != l1)
		free(l1);
	return ret;
}

/* ---- dropping ------------------------------------------------------------------- */

/* All that the L2 table of L1 entry i refers to, from guest cluster `first` of the table on. */
static int drop_table(struct qcow2 *q, uint64_t i, uint64_t first)
{
	const uint64_t base = i << q->l2_bits << q->cluster_bits, per_table = BIT(q->l2_bits);
	struct qcow2_table *t;
	int ret = qcow2_limit_dirty(q);

	if (ret || !(q->l1[i] & QCOW2_OFFSET_MASK))
		return ret;
	if (first) {
		ret = qcow2_l2_for_write(q, base, &t);
	} else {
		if (q->l1[i] & QCOW2_OFFSET_MASK & (q->cluster_size - 1))
			return qcow2_mark_corrupt(q, "L2 table %llu is on no cluster", (unsigned long long)i);
		ret = qcow2_cache_get(q, &q->l2, q->l1[i] & QCOW2_OFFSET_MASK, &t);
	}
	for (uint64_t k = first; k < per_table && !ret; k++) {
		const uint64_t at = base + (k << q->cluster_bits), entry = qcow2_entry_get(q, t, at);
		if (!entry && !qcow2_bitmap_get(q, t, at))
			continue;
		qcow2_free_entry(q, entry);
		if (first) {
			qcow2_entry_set(q, t, at, 0);
			qcow2_bitmap_set(q, t, at, 0);
		}
	}
	if (ret)
		return ret;
	qcow2_cache_put(t);
	if (first)
		return 0;
	ret = qcow2_free_later(q, q->l1[i] & QCOW2_OFFSET_MASK, q->cluster_size);
	qcow2_l1_set(q, i, 0);
	return ret;
}

int qcow2_drop_from(struct qcow2 *q, uint64_t size)
{
	const uint64_t first = (size + q->cluster_size - 1) >> q->cluster_bits, per_table = BIT(q->l2_bits);
	int ret = 0;

	for (uint64_t i = first >> q->l2_bits; i < q->h.l1_size && !ret; i++)
		ret = drop_table(q, i, i == first >> q->l2_bits ? first & (per_table - 1) : 0);
	return ret;
}

/* The file ends behind its last used cluster. */
static int cut_file(struct qcow2 *q, struct err *err)
{
	uint64_t end = (block_file_size(q->file) + q->cluster_size - 1) >> q->cluster_bits, count = 0;
	int ret = 0;

	if (block_file_is_device(q->file))
		return 0;
	while (end > 1 && !ret && !count) {
		ret = qcow2_refcount_get(q, end - 1, &count);
		end -= !ret && !count;
	}
	if (ret || end << q->cluster_bits >= block_file_size(q->file))
		return ret;
	return block_file_truncate(q->file, end << q->cluster_bits, BLOCK_PREALLOC_OFF, err);
}

/* ---- preallocation --------------------------------------------------------------- */

struct resize {
	uint64_t size;
	enum block_prealloc prealloc;
	struct err *err;
};

/* Host clusters for guest clusters without; behind the end of the file they read as zeros. */
static int prealloc_run(struct qcow2 *q, struct qcow2_table *t, uint64_t offset, uint64_t want, uint64_t *got,
			struct resize *r)
{
	uint64_t cluster, host, bytes;
	int ret;

	qcow2_lock_take(&q->alloc);
	q->free_hint = MAX(q->free_hint, (block_file_size(q->file) + q->cluster_size - 1) >> q->cluster_bits);
	ret = qcow2_alloc(q, want, &cluster, got);
	qcow2_lock_give(&q->alloc);
	host = cluster << q->cluster_bits;
	bytes = *got << q->cluster_bits;
	if (!ret)
		ret = block_file_truncate(q->file, host + bytes,
					  r->prealloc == BLOCK_PREALLOC_METADATA ? BLOCK_PREALLOC_OFF : r->prealloc,
					  r->err);
	for (uint64_t i = 0; i < *got && !ret; i++) {
		const uint64_t at = offset + (i << q->cluster_bits);
		qcow2_entry_set(q, t, at, (host + (i << q->cluster_bits)) | QCOW2_ENTRY_COPIED);
		/* Over a backing file subclusters have their place and yet no data; zeros stay zeros. */
		if (!qcow2_bitmap_get(q, t, at) && !q->backing)
			qcow2_bitmap_set(q, t, at, UINT32_MAX);
	}
	return ret;
}

static int prealloc(struct qcow2 *q, uint64_t from, uint64_t to, struct resize *r)
{
	const uint64_t hint = q->free_hint;
	int ret = 0;

	from = ALIGN_DOWN(from, (uint64_t)q->cluster_size);
	while (from < to && !ret) {
		const uint64_t span = BIT(q->cluster_bits + q->l2_bits), end = MIN(ALIGN_DOWN(from, span) + span, to);
		struct qcow2_table *t;
		ret = qcow2_limit_dirty(q);
		if (!ret)
			ret = qcow2_l2_for_write(q, from, &t);
		if (ret)
			break;
		while (from < end && !ret) {
			uint64_t n = 0, got = 1;
			const uint64_t left = (end - from + q->cluster_size - 1) >> q->cluster_bits;
			while (n < left && !qcow2_entry_get(q, t, from + (n << q->cluster_bits)))
				n++;
			if (n)
				ret = prealloc_run(q, t, from, n, &got, r);
			from += got << q->cluster_bits;
		}
		qcow2_cache_put(t);
	}
	q->free_hint = hint;
	return ret;
}

/* ---- resize ------------------------------------------------------------------------ */

/* What the old end of the disk left in its last cluster, and a longer backing file, must not show. */
static int zero_new(struct qcow2 *q, uint64_t old, uint64_t size)
{
	const uint64_t cluster_end = MIN(ALIGN_UP(old, (uint64_t)q->cluster_size), ALIGN_UP(size, 512ull));
	const uint64_t backing = q->backing ? MIN(block_size(q->backing), ALIGN_UP(size, 512ull)) : 0;
	struct block_req req = {.op = BLOCK_WRITE_ZEROES, .offset = old, .flags = BLOCK_MAY_UNMAP};

	req.len = MAX(cluster_end, backing);
	if (req.len <= old)
		return 0;
	req.len -= old;
	return qcow2_zero_request(q, &req);
}

static int grow(struct qcow2 *q, struct resize *r)
{
	const uint64_t old = q->node->size, before = q->h.size;
	/* What lies behind the disk's end is no part of the new disk: a machine's state that was left there. */
	int ret = qcow2_drop_from(q, (uint64_t)qcow2_vmstate_first(q, before) << (q->cluster_bits + q->l2_bits));

	if (!ret)
		ret = qcow2_l1_grow(q, r->size);
	q->node->size = ALIGN_UP(r->size, 512);
	if (!ret)
		ret = zero_new(q, old, r->size);
	if (!ret && r->prealloc != BLOCK_PREALLOC_OFF)
		ret = prealloc(q, old, r->size, r);
	if (!ret)
		ret = qcow2_flush_tables(q);
	if (!ret)
		ret = qcow2_header_patch(q, (struct qcow2_patch[]){{QCOW2_H_SIZE, 8, r->size}}, 1);
	q->h.size = ret ? before : r->size;
	q->node->size = ALIGN_UP(q->h.size, 512);
	return ret;
}

static int shrink(struct qcow2 *q, struct resize *r)
{
	int ret = qcow2_header_patch(q, (struct qcow2_patch[]){{QCOW2_H_SIZE, 8, r->size}}, 1);

	if (ret)
		return ret;
	q->h.size = r->size;
	q->node->size = ALIGN_UP(r->size, 512);
	ret = qcow2_drop_from(q, r->size);
	for (int i = 0; i < 3 && !ret && qcow2_is_dirty(q); i++)
		ret = qcow2_flush_tables(q);
	return ret ? ret : cut_file(q, r->err);
}

static int truncate_co(struct qcow2 *q, void *arg)
{
	struct resize *r = arg;

	return r->size < q->h.size ? shrink(q, r) : grow(q, r);
}

int qcow2_truncate(struct block_node *n, uint64_t size, enum block_prealloc p, struct err *err)
{
	struct qcow2 *q = n->private_data;
	struct resize r = {.size = size, .prealloc = p, .err = err};
	int ret;

	if (q->corrupt)
		return err_set(err, -EIO, "'%s' is marked corrupt", n->filename);
	if (size < q->h.size && p != BLOCK_PREALLOC_OFF)
		return err_set(err, -EINVAL, "'%s': preallocation can't be used for shrinking an image", n->filename);
	if (q->h.nb_snapshots && q->h.version < 3)
		return err_set(err, -ENOTSUP, "'%s': a version 2 image with snapshots keeps its size", n->filename);
	if (p != BLOCK_PREALLOC_OFF && q->h.backing_file[0] && !q->extended_l2)
		return err_set(err, -EINVAL, "'%s': preallocation would hide the backing file (without extended_l2=on)",
			       n->filename);
	if (q->has_data_file)
		return err_set(err, -ENOTSUP, "'%s': images with a data file cannot be resized", n->filename);
	ret = qcow2_run(q, truncate_co, &r);
	if (!ret)
		ret = qcow2_flush_all(q);
	return ret ? err_set_errno(err, ret, "'%s' could not be resized", n->filename) : 0;
}

static int prealloc_co(struct qcow2 *q, void *arg)
{
	struct resize *r = arg;

	return prealloc(q, 0, r->size, r);
}

int qcow2_preallocate(struct block_node *n, enum block_prealloc p, struct err *err)
{
	struct resize r = {.size = block_size(n), .prealloc = p, .err = err};
	struct qcow2 *q = n->private_data;
	int ret = qcow2_run(q, prealloc_co, &r);

	if (!ret)
		ret = qcow2_flush_all(q);
	return ret ? err_set_errno(err, ret, "'%s' could not be preallocated", n->filename) : 0;
}

static int make_empty_co(struct qcow2 *q, void *arg)
{
	return qcow2_drop_from(q, 0);
}

int qcow2_make_empty(struct block_node *n, struct err *err)
{
	struct qcow2 *q = n->private_data;
	int ret = q->corrupt ? -EIO : qcow2_run(q, make_empty_co, NULL);

	if (!ret)
		ret = qcow2_flush_all(q);
	return ret ? err_set_errno(err, ret, "'%s' could not be emptied", n->filename) : 0;
}
