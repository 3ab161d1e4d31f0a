// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * From guest offsets to host offsets. The part of the L1 table that the disk
 * needs is in memory; L2 tables are cached in slices. Changed entries are
 * written by whoever finds the table idle, with all that others changed
 * meanwhile (commit_table), so no two writes of one sector are ever in flight.
 * Entries come from the image and are checked each time they are used.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "block/qed.h"

#define SLICE_BYTES    (64 * KIB)
#define CACHE_BYTES    (32 * MIB)
#define SECTOR_ENTRIES 64u
#define BUCKET(q, off) ((q)->buckets[((off) / ((uint64_t)(q)->slice_entries * 8)) % ARRAY_SIZE((q)->buckets)])

bool qed_cluster_valid(const struct qed *q, uint64_t host, uint64_t bytes)
{
	return host % q->h.cluster_size == 0 && host >= (uint64_t)q->h.header_size * q->h.cluster_size &&
	       host <= q->file_end && bytes <= q->file_end - host;
}

static int invalid(struct qed *q, const char *what, uint64_t offset, uint64_t host)
{
	if (q->complaints++ < 5)
		log_error(
		    "'%s': QED metadata is corrupt: the %s of guest offset 0x%llx is at 0x%llx; the request failed "
		    "(img check -r all repairs)",
		    q->node->filename, what, (unsigned long long)offset, (unsigned long long)host);
	return -EINVAL;
}

/* ---- slices --------------------------------------------------------------------- */

static void list_remove(struct qed *q, struct qed_table *t)
{
	*(t->prev ? &t->prev->next : &q->first) = t->next;
	*(t->next ? &t->next->prev : &q->last) = t->prev;
}

static void list_add(struct qed *q, struct qed_table *t)
{
	t->prev = NULL;
	t->next = q->first;
	*(q->first ? &q->first->prev : &q->last) = t;
	q->first = t;
}

static void slice_drop(struct qed *q, struct qed_table *t)
{
	struct qed_table **p = &BUCKET(q, t->offset);

	while (*p != t)
		p = &(*p)->hash_next;
	*p = t->hash_next;
	list_remove(q, t);
	q->nr_slices--;
	free(t->e);
	free(t);
}

static struct qed_table *slice_peek(struct qed *q, uint64_t offset)
{
	struct qed_table *t = BUCKET(q, offset);

	while (t && t->offset != offset)
		t = t->hash_next;
	return t;
}

static struct qed_table *slice_add(struct qed *q, uint64_t offset)
{
	const size_t bytes = (size_t)q->slice_entries * 8;
	struct qed_table *t = q->last, *before;

	for (; t && q->nr_slices >= q->max_slices; t = before) {
		before = t->prev;
		if (!t->pins && !t->loading && !t->writing && t->gen == t->written)
			slice_drop(q, t);
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->e = aligned_alloc(4096, bytes);
	if (!t->e) {
		free(t);
		return NULL;
	}
	t->offset = offset;
	t->entries = q->slice_entries;
	t->dirty_lo = UINT32_MAX;
	t->hash_next = BUCKET(q, offset);
	BUCKET(q, offset) = t;
	list_add(q, t);
	q->nr_slices++;
	return t;
}

/* (co) Pinned. */
static int slice_get(struct qed *q, uint64_t offset, struct qed_table **out)
{
	struct qed_table *t;
	int ret;

	while ((t = slice_peek(q, offset)) != NULL && t->loading)
		co_queue_wait(&t->waiters);
	if (t) {
		list_remove(q, t);
		list_add(q, t);
		t->pins++;
		*out = t;
		return 0;
	}
	t = slice_add(q, offset);
	if (!t)
		return -ENOMEM;
	t->loading = true;
	t->pins = 1;
	ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_READ, offset, t->e, (uint64_t)t->entries * 8);
	t->loading = false;
	if (ret) {
		struct co_queue waiters = t->waiters;
		slice_drop(q, t);
		co_queue_wake_all(&waiters);
		return ret;
	}
	*out = t;
	co_queue_wake_all(&t->waiters);
	return 0;
}

/* (co) The changed entries [lo, hi) to the disk. */
static int commit_table(struct qed *q, struct qed_table *t, uint32_t lo, uint32_t hi)
{
	uint64_t mine, gen;
	int ret;

	t->dirty_lo = MIN(t->dirty_lo, lo);
	t->dirty_hi = MAX(t->dirty_hi, hi);
	mine = ++t->gen;
	while (t->writing && t->written < mine)
		co_queue_wait(&t->waiters);
	if (t->written >= mine)
		return 0;
	gen = t->gen;
	lo = ALIGN_DOWN(t->dirty_lo, SECTOR_ENTRIES);
	hi = MIN(ALIGN_UP(t->dirty_hi, SECTOR_ENTRIES), t->entries);
	t->dirty_lo = UINT32_MAX;
	t->dirty_hi = 0;
	t->writing = true;
	ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_WRITE, t->offset + (uint64_t)lo * 8, t->e + lo,
				  (uint64_t)(hi - lo) * 8);
	t->writing = false;
	if (ret) {
		t->dirty_lo = MIN(t->dirty_lo, lo);
		t->dirty_hi = MAX(t->dirty_hi, hi);
	} else {
		t->written = gen;
	}
	co_queue_wake_all(&t->waiters);
	return ret;
}

int qed_tables_init(struct qed *q)
{
	const uint64_t n = MAX((q->h.image_size + q->span - 1) / q->span, 1u);
	int ret;

	q->slice_entries = (uint32_t)(MIN(q->table_bytes, SLICE_BYTES) / 8);
	q->max_slices = (uint32_t)(CACHE_BYTES / (q->slice_entries * 8));
	q->l1.offset = q->h.l1_offset;
	q->l1.entries = (uint32_t)MIN(ALIGN_UP(n, 512), q->table_bytes / 8);
	q->l1.dirty_lo = UINT32_MAX;
	q->l1.e = aligned_alloc(4096, ALIGN_UP((size_t)q->l1.entries * 8, 4096));
	if (!q->l1.e)
		return -ENOMEM;
	ret = block_file_pread(q->file, q->l1.e, (size_t)q->l1.entries * 8, q->l1.offset);
	return ret;
}

void qed_tables_free(struct qed *q)
{
	while (q->first)
		slice_drop(q, q->first);
	free(q->l1.e);
}

/* ---- lookups --------------------------------------------------------------------- */

/* Where the slice with the entry of `offset` is; 0: no L2 table, and *e says so. */
static int find_slice(struct qed *q, uint64_t offset, uint64_t len, struct qed_extent *e, uint64_t *slice)
{
	const uint64_t i = offset / q->span, in = offset % q->span;
	const uint64_t table = i < q->l1.entries ? ld64le(&q->l1.e[i]) : 0;
	const uint64_t slice_span = (uint64_t)q->slice_entries * q->h.cluster_size;

	*slice = 0;
	if (!table) {
		*e = (struct qed_extent){.kind = QED_UNALLOCATED, .len = MIN(len, q->span - in)};
		return 0;
	}
	if (!qed_cluster_valid(q, table, q->table_bytes))
		return invalid(q, "L2 table", offset, table);
	*slice = table + in / slice_span * q->slice_entries * 8;
	return 0;
}

static int kind_of(struct qed *q, uint64_t entry, uint64_t offset, enum qed_kind *kind)
{
	*kind = entry == 0 ? QED_UNALLOCATED : entry == QED_ENTRY_ZERO ? QED_ZERO : QED_DATA;
	return *kind == QED_DATA && !qed_cluster_valid(q, entry, q->h.cluster_size)
		   ? invalid(q, "cluster", offset, entry)
		   : 0;
}

static int extent_in_slice(struct qed *q, const struct qed_table *t, uint64_t offset, uint64_t len,
			   struct qed_extent *e)
{
	const uint32_t cs = q->h.cluster_size, in = (uint32_t)(offset & (cs - 1));
	uint32_t i = (uint32_t)(offset / cs % t->entries);
	uint64_t host = ld64le(&t->e[i]), next;
	enum qed_kind kind;
	int ret = kind_of(q, host, offset, &e->kind);

	if (ret)
		return ret;
	e->host = e->kind == QED_DATA ? host + in : 0;
	e->len = cs - in;
	for (i++; e->len < len && i < t->entries; i++, e->len += cs) {
		next = ld64le(&t->e[i]);
		if (e->kind == QED_DATA ? next != e->host + e->len : next != host)
			break;
		if (kind_of(q, next, offset + e->len, &kind))
			break; /* said again when that cluster is asked for */
	}
	e->len = MIN(e->len, len);
	return 0;
}

int qed_lookup_cached(struct qed *q, uint64_t offset, uint64_t len, struct qed_extent *e)
{
	struct qed_table *t;
	uint64_t slice;
	int ret = find_slice(q, offset, len, e, &slice);

	if (ret || !slice)
		return ret ? ret : 1;
	t = slice_peek(q, slice);
	if (!t || t->loading)
		return 0;
	ret = extent_in_slice(q, t, offset, len, e);
	return ret ? ret : 1;
}

int qed_lookup(struct qed *q, uint64_t offset, uint64_t len, struct qed_extent *e)
{
	struct qed_table *t;
	uint64_t slice;
	int ret = find_slice(q, offset, len, e, &slice);

	if (ret || !slice)
		return ret;
	ret = slice_get(q, slice, &t);
	if (ret)
		return ret;
	ret = extent_in_slice(q, t, offset, len, e);
	t->pins--;
	return ret;
}

/* ---- changes ---------------------------------------------------------------------- */

int qed_set_entries(struct qed *q, uint64_t offset, uint64_t n, uint64_t host)
{
	const uint32_t cs = q->h.cluster_size;
	struct qed_extent none;
	struct qed_table *t;
	uint64_t slice;
	int ret = 0;

	while (n && !ret) {
		uint32_t lo, i;
		ret = find_slice(q, offset, 1, &none, &slice);
		if (!ret)
			ret = slice ? slice_get(q, slice, &t) : -EIO;
		if (ret)
			break;
		for (i = lo = (uint32_t)(offset / cs % t->entries); i < t->entries && n; i++, n--, offset += cs) {
			st64le(&t->e[i], host);
			host += host > QED_ENTRY_ZERO ? cs : 0;
		}
		ret = commit_table(q, t, lo, i);
		t->pins--;
	}
	return ret;
}

int qed_grow(struct qed *q, uint64_t bytes, uint64_t *host)
{
	struct err err = {0};
	int ret = 0;

	if (bytes > INT64_MAX - q->file_end)
		return -EFBIG;
	/* A part of a cluster after the last one is not kept: it must not show in a new cluster. */
	if (!q->grown)
		ret = block_file_truncate(q->file, q->file_end, BLOCK_PREALLOC_OFF, &err);
	q->grown = true;
	if (!ret)
		ret = block_file_truncate(q->file, q->file_end + bytes, BLOCK_PREALLOC_OFF, &err);
	if (ret)
		return ret;
	*host = q->file_end;
	q->file_end += bytes;
	return 0;
}

void qed_ungrow(struct qed *q, uint64_t host, uint64_t bytes)
{
	struct err err = {0};

	if (host + bytes == q->file_end && !block_file_truncate(q->file, host, BLOCK_PREALLOC_OFF, &err))
		q->file_end = host;
}

static int make_one(struct qed *q, uint32_t i)
{
	uint64_t host = 0;
	int ret;

	while (q->l1_busy)
		co_queue_wait(&q->l1_queue);
	if (q->l1.e[i])
		return 0; /* made while this one waited */
	q->l1_busy = true;
	/* The new table is a hole of the file: zeros. Durable before the L1 table names it. */
	ret = qed_grow(q, q->table_bytes, &host);
	if (!ret)
		ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_FLUSH, 0, NULL, 0);
	if (!ret) {
		st64le(&q->l1.e[i], host);
		ret = commit_table(q, &q->l1, i, i + 1);
		if (ret)
			q->l1.e[i] = 0;
	}
	if (ret && host)
		qed_ungrow(q, host, q->table_bytes);
	q->l1_busy = false;
	co_queue_wake_all(&q->l1_queue);
	return ret;
}

int qed_make_l2(struct qed *q, uint64_t offset, uint64_t len)
{
	const uint64_t last = (offset + len - 1) / q->span;
	int ret = 0;

	for (uint64_t i = offset / q->span; i <= last && !ret; i++)
		if (!q->l1.e[i])
			ret = make_one(q, (uint32_t)i);
	return ret;
}
