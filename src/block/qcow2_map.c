// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * From guest offsets to host offsets: the L1 table (in memory), L2 tables
 * (cached), standard and extended entries. Entries come from the image and are
 * checked each time they are used.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "block/qcow2.h"

int qcow2_mark_corrupt(struct qcow2 *q, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	if (q->corrupt)
		return -EIO;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_error("'%s': qcow2 metadata is corrupt: %s; %s", q->node->filename, text,
		  q->node->read_only ? "the request failed" : "the image is marked and takes no more writes");
	if (q->node->read_only)
		return -EIO;
	q->corrupt = true;
	if (q->h.version >= 3) {
		q->h.incompatible |= QCOW2_INCOMPAT_CORRUPT;
		qcow2_header_set_u64(q, QCOW2_H_INCOMPATIBLE, q->h.incompatible);
		qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
	}
	return -EIO;
}

static uint64_t l1_index(const struct qcow2 *q, uint64_t offset)
{
	return offset >> (q->cluster_bits + q->l2_bits);
}

static uint64_t l2_index(const struct qcow2 *q, uint64_t offset)
{
	return (offset >> q->cluster_bits) & (BIT(q->l2_bits) - 1);
}

uint64_t qcow2_entry_get(const struct qcow2 *q, const struct qcow2_table *t, uint64_t offset)
{
	return ld64be(t->data + l2_index(q, offset) * q->entry_size);
}

void qcow2_entry_set(struct qcow2 *q, struct qcow2_table *t, uint64_t offset, uint64_t entry)
{
	st64be(t->data + l2_index(q, offset) * q->entry_size, entry);
	qcow2_cache_dirty(&q->l2, t);
}

uint64_t qcow2_bitmap_get(const struct qcow2 *q, const struct qcow2_table *t, uint64_t offset)
{
	return q->extended_l2 ? ld64be(t->data + l2_index(q, offset) * q->entry_size + 8) : 0;
}

void qcow2_bitmap_set(struct qcow2 *q, struct qcow2_table *t, uint64_t offset, uint64_t bitmap)
{
	if (!q->extended_l2)
		return;
	st64be(t->data + l2_index(q, offset) * q->entry_size + 8, bitmap);
	qcow2_cache_dirty(&q->l2, t);
}

void qcow2_compressed_range(const struct qcow2 *q, uint64_t entry, uint64_t *offset, uint32_t *len)
{
	const uint32_t x = 62 - (q->cluster_bits - 8);

	*offset = entry & (BIT(x) - 1) & (BIT(56) - 1);
	*len = (uint32_t)(((entry & (BIT(62) - 1)) >> x) + 1) * 512 - (uint32_t)(*offset & 511);
}

/* The run at subcluster `sub` of an extended entry. */
static uint64_t classify_extended(uint64_t bitmap, unsigned sub, struct qcow2_extent *e)
{
	const uint32_t alloc = (uint32_t)bitmap, zero = (uint32_t)(bitmap >> 32);
	unsigned n = 1;

	while (sub + n < 32 && (alloc >> sub & 1) == (alloc >> (sub + n) & 1) &&
	       (zero >> sub & 1) == (zero >> (sub + n) & 1))
		n++;
	e->kind = zero >> sub & 1 ? QCOW2_ZERO : alloc >> sub & 1 ? QCOW2_DATA : QCOW2_UNALLOCATED;
	return n;
}

/* What the entry of one cluster says, from `offset` to the end of what is alike. */
static int classify(struct qcow2 *q, const struct qcow2_table *t, uint64_t offset, struct qcow2_extent *e)
{
	const uint64_t in = offset & (q->cluster_size - 1), entry = qcow2_entry_get(q, t, offset);
	const uint64_t host = entry & QCOW2_OFFSET_MASK;

	e->entry = entry;
	e->host = 0;
	e->len = q->cluster_size - in;
	if (entry & QCOW2_ENTRY_COMPRESSED) {
		e->kind = QCOW2_COMPRESSED;
		return 0;
	}
	if (host & (q->cluster_size - 1))
		return qcow2_mark_corrupt(q, "the cluster at guest offset 0x%llx is at 0x%llx, which is no cluster",
					  (unsigned long long)(offset - in), (unsigned long long)host);
	if (q->extended_l2) {
		const uint32_t size = q->cluster_size / 32, sub = (uint32_t)in / size;
		const uint64_t bitmap = qcow2_bitmap_get(q, t, offset);
		const uint64_t n = classify_extended(bitmap, sub, e);
		if ((uint32_t)bitmap & (uint32_t)(bitmap >> 32))
			return qcow2_mark_corrupt(q, "subclusters at guest offset 0x%llx are both data and zero",
						  (unsigned long long)(offset - in));
		e->len = (sub + n) * size - in;
	} else if (q->h.version >= 3 && (entry & QCOW2_ENTRY_ZERO)) {
		e->kind = QCOW2_ZERO;
	} else {
		e->kind = host || (q->has_data_file && (entry & QCOW2_ENTRY_COPIED)) ? QCOW2_DATA : QCOW2_UNALLOCATED;
	}
	if (e->kind == QCOW2_DATA && !host && !q->has_data_file)
		return qcow2_mark_corrupt(q, "guest offset 0x%llx is allocated at host offset 0",
					  (unsigned long long)offset);
	if (e->kind == QCOW2_DATA || (e->kind == QCOW2_ZERO && host))
		e->host = host + (e->kind == QCOW2_DATA ? in : 0);
	return 0;
}

/* May `next`, which follows `e` on the guest's disk, be part of the same run? */
static bool continues(const struct qcow2_extent *e, const struct qcow2_extent *next)
{
	if (e->kind != next->kind || e->kind == QCOW2_COMPRESSED)
		return false;
	if (e->kind == QCOW2_DATA)
		return next->host == e->host + e->len && ((next->entry ^ e->entry) & QCOW2_ENTRY_COPIED) == 0;
	return !e->host && !next->host;
}

static int extent_in_table(struct qcow2 *q, const struct qcow2_table *t, uint64_t offset, uint64_t len,
			   struct qcow2_extent *e)
{
	const uint64_t span = BIT(q->cluster_bits + q->l2_bits);
	const uint64_t end = MIN(offset + len, (offset & ~(span - 1)) + span);
	struct qcow2_extent next = {0};
	int ret;

	ret = classify(q, t, offset, e);
	while (!ret && offset + e->len < end) {
		ret = classify(q, t, offset + e->len, &next);
		if (ret || !continues(e, &next))
			break;
		e->len += next.len;
	}
	e->len = MIN(e->len, end - offset);
	return ret;
}

/* The L2 table's offset; 0: none, and *e says so. */
static int l2_offset(struct qcow2 *q, uint64_t offset, uint64_t len, struct qcow2_extent *e, uint64_t *out)
{
	const uint64_t span = BIT(q->cluster_bits + q->l2_bits), i = l1_index(q, offset);

	*out = i < q->h.l1_size ? q->l1[i] & QCOW2_OFFSET_MASK : 0;
	if (*out & (q->cluster_size - 1))
		return qcow2_mark_corrupt(q, "L2 table %llu is at 0x%llx, which is no cluster", (unsigned long long)i,
					  (unsigned long long)*out);
	if (!*out)
		*e = (struct qcow2_extent){.len = MIN(len, span - (offset & (span - 1)))};
	return 0;
}

int qcow2_lookup_cached(struct qcow2 *q, uint64_t offset, uint64_t len, struct qcow2_extent *e)
{
	struct qcow2_table *t;
	uint64_t at;
	int ret = l2_offset(q, offset, len, e, &at);

	if (ret || !at)
		return ret ? ret : 1;
	t = qcow2_cache_find(&q->l2, at);
	if (!t)
		return 0;
	ret = extent_in_table(q, t, offset, len, e);
	return ret ? ret : 1;
}

int qcow2_lookup(struct qcow2 *q, uint64_t offset, uint64_t len, struct qcow2_extent *e)
{
	struct qcow2_table *t;
	uint64_t at;
	int ret = l2_offset(q, offset, len, e, &at);

	if (ret || !at)
		return ret;
	ret = qcow2_cache_get(q, &q->l2, at, &t);
	if (ret)
		return ret;
	ret = extent_in_table(q, t, offset, len, e);
	qcow2_cache_put(t);
	return ret;
}

void qcow2_l1_set(struct qcow2 *q, uint64_t i, uint64_t entry)
{
	q->l1[i] = entry;
	q->l1_dirty_lo = MIN(q->l1_dirty_lo, (uint32_t)i);
	q->l1_dirty_hi = MAX(q->l1_dirty_hi, (uint32_t)i + 1);
}

/* alloc is held: a new table, with the contents of the shared one, `from`, if there is one. */
static int l2_make(struct qcow2 *q, uint64_t i, const struct qcow2_table *from, struct qcow2_table **out)
{
	const uint64_t old = q->l1[i] & QCOW2_OFFSET_MASK;
	uint64_t cluster, got;
	int ret = qcow2_alloc(q, 1, &cluster, &got);

	if (!ret)
		ret = qcow2_meta_add(q, cluster);
	if (!ret)
		ret = qcow2_cache_new(q, &q->l2, cluster << q->cluster_bits, out);
	if (!ret && from) {
		memcpy((*out)->data, from->data, q->cluster_size);
		qcow2_free_later(q, old, q->cluster_size);
	}
	if (!ret)
		qcow2_l1_set(q, i, cluster << q->cluster_bits | QCOW2_ENTRY_COPIED);
	return ret;
}

int qcow2_l2_for_write(struct qcow2 *q, uint64_t offset, struct qcow2_table **out)
{
	const uint64_t i = l1_index(q, offset);
	struct qcow2_extent e;
	uint64_t at;
	int ret = l2_offset(q, offset, 1, &e, &at);

	if (ret)
		return ret;
	if (!at || !(q->l1[i] & QCOW2_ENTRY_COPIED)) {
		struct qcow2_table *from = NULL;
		bool made;
		if (at)
			ret = qcow2_cache_get(q, &q->l2, at, &from);
		if (ret)
			return ret;
		qcow2_lock_take(&q->alloc);
		/* Another request may have made it while this one waited. */
		made = (q->l1[i] & QCOW2_OFFSET_MASK) && (q->l1[i] & QCOW2_ENTRY_COPIED);
		if (!made)
			ret = l2_make(q, i, from, out);
		qcow2_lock_give(&q->alloc);
		if (from)
			qcow2_cache_put(from);
		if (!made)
			return ret;
	}
	return qcow2_cache_get(q, &q->l2, q->l1[i] & QCOW2_OFFSET_MASK, out);
}
