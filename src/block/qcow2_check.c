// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checking a qcow2 image, first half: walk everything that refers to clusters
 * (header, L1 and L2 tables, snapshots, bitmaps) and count. The image may be
 * anybody's: each L2 table is visited once with the number of L1 entries that
 * name it as a weight, and no more bytes of L1 tables are read than the file
 * has, so the work is bounded by the size of the file.
 */
#include "block/qcow2_check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/util.h"

#define L1_RESERVED    0x7f000000000001ffull
#define L2_RESERVED    0x3f000000000001feull
#define TABLE_RESERVED 0x1ffull
#define HEX(x)	       ((unsigned long long)(x))

void qcow2_check_say(struct qcow2_check *c, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	if (!c->r->say)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	c->r->say(line);
}

void qcow2_check_ref(struct qcow2_check *c, uint64_t offset, uint64_t len, uint32_t n, const char *what)
{
	const uint32_t bits = c->q->cluster_bits;
	uint64_t last;

	if (!len || !n)
		return;
	/* The last cluster of a file may be cut. */
	if (offset > c->file_len + c->q->cluster_size || len > c->file_len + c->q->cluster_size - offset ||
	    offset + len - c->file_len == c->q->cluster_size) {
		qcow2_check_say(c, "ERROR: %s at 0x%llx (%llu bytes) is past the end of the file", what, HEX(offset),
				HEX(len));
		c->r->corruptions += n;
		return;
	}
	last = (offset + len - 1) >> bits;
	for (uint64_t k = offset >> bits; k <= last && k < c->room; k++) {
		const uint64_t sum = (uint64_t)c->want[k] + n;
		if (sum > c->max_count) {
			qcow2_check_say(c, "ERROR: cluster %llu has more references than a refcount can hold", HEX(k));
			c->r->corruptions += sum - MAX(c->max_count, (uint64_t)c->want[k]);
		}
		c->want[k] = (uint32_t)MIN(sum, MIN(c->max_count, (uint64_t)UINT32_MAX));
		c->touched[k / CHECK_GROUP] = 1;
	}
}

/* ---- L2 tables --------------------------------------------------------------- */

static size_t l2_slot(const struct qcow2_check *c, uint64_t offset)
{
	size_t i = (size_t)(offset * 0x9e3779b97f4a7c15ull >> 24) & (c->hash_size - 1);

	while (c->l2_hash[i] && c->l2[c->l2_hash[i] - 1].offset != offset)
		i = (i + 1) & (c->hash_size - 1);
	return i;
}

static int l2_grow(struct qcow2_check *c)
{
	const size_t max = c->max_l2 ? c->max_l2 * 2 : 1024;
	struct check_l2 *l2 = realloc(c->l2, max * sizeof(*l2));
	uint32_t *hash = calloc(max * 2, sizeof(*hash));

	if (l2)
		c->l2 = l2;
	if (!l2 || !hash) {
		free(hash);
		return -ENOMEM;
	}
	free(c->l2_hash);
	c->l2_hash = hash;
	c->hash_size = max * 2;
	c->max_l2 = max;
	for (size_t i = 0; i < c->nr_l2; i++)
		hash[l2_slot(c, c->l2[i].offset)] = (uint32_t)i + 1;
	return 0;
}

static int l2_add(struct qcow2_check *c, uint64_t offset, bool active)
{
	struct check_l2 *t;
	size_t i;

	if (c->nr_l2 == c->max_l2 && l2_grow(c))
		return -ENOMEM;
	i = l2_slot(c, offset);
	if (!c->l2_hash[i]) {
		c->l2[c->nr_l2] = (struct check_l2){.offset = offset};
		c->l2_hash[i] = (uint32_t)++c->nr_l2;
	}
	t = &c->l2[c->l2_hash[i] - 1];
	t->weight += t->weight < UINT32_MAX;
	t->active += active && t->active < UINT32_MAX;
	return 0;
}

struct l2_walk {
	struct qcow2_check *c;
	const struct check_l2 *t;
	uint64_t contiguous; /* where the next cluster would be, were the file not fragmented */
};

static void corrupt(struct qcow2_check *c, uint32_t weight, const char *what, uint64_t entry)
{
	qcow2_check_say(c, "ERROR: L2 entry 0x%llx %s", HEX(entry), what);
	c->r->corruptions += weight;
}

static void count_compressed(struct l2_walk *w, uint64_t entry, uint64_t bitmap)
{
	struct qcow2_check *c = w->c;
	uint64_t offset;
	uint32_t len;

	if (entry & QCOW2_ENTRY_COPIED)
		corrupt(c, w->t->weight, "is compressed and must not have the COPIED flag", entry);
	if (c->q->has_data_file) {
		corrupt(c, w->t->weight, "is compressed, in an image with a data file", entry);
		return;
	}
	if (bitmap) {
		corrupt(c, w->t->weight, "is compressed and has a subcluster bitmap", entry);
		return;
	}
	qcow2_compressed_range(c->q, entry, &offset, &len);
	qcow2_check_ref(c, offset, len, w->t->weight, "a compressed cluster");
	c->r->allocated += w->t->active;
	c->r->compressed += w->t->active;
	c->r->fragmented += w->t->active;
}

bool qcow2_check_has_data(const struct qcow2 *q, uint64_t entry, uint64_t bitmap)
{
	return q->extended_l2 ? (uint32_t)bitmap != 0 : !(entry & QCOW2_ENTRY_ZERO);
}

static void count_allocated(struct l2_walk *w, uint64_t entry, uint64_t bitmap)
{
	const uint64_t host = entry & QCOW2_OFFSET_MASK;
	struct qcow2_check *c = w->c;

	if ((uint32_t)bitmap & (uint32_t)(bitmap >> 32))
		corrupt(c, w->t->weight, "has subclusters that are both data and zero", entry);
	if (host & (c->q->cluster_size - 1)) {
		corrupt(c, w->t->weight, "points to no cluster", entry);
		/* Without data the place is dropped when the entry is repaired. */
		if ((c->fix & BLOCK_FIX_ERRORS) && !qcow2_check_has_data(c->q, entry, bitmap))
			return;
	}
	c->r->allocated += w->t->active;
	if (w->contiguous && host != w->contiguous)
		c->r->fragmented += w->t->active;
	w->contiguous = host + c->q->cluster_size;
	if (!c->q->has_data_file)
		qcow2_check_ref(c, host, c->q->cluster_size, w->t->weight, "a data cluster");
}

static void count_entry(struct l2_walk *w, uint64_t entry, uint64_t bitmap)
{
	struct qcow2_check *c = w->c;
	if (entry & QCOW2_ENTRY_COMPRESSED) {
		count_compressed(w, entry, bitmap);
		return;
	}
	if (entry & L2_RESERVED)
		corrupt(c, w->t->weight, "has reserved bits set", entry);
	if (entry & QCOW2_OFFSET_MASK || ((entry & QCOW2_ENTRY_COPIED) && c->q->has_data_file))
		count_allocated(w, entry, bitmap);
	else if ((uint32_t)bitmap)
		corrupt(c, w->t->weight, "has no host cluster, but allocated subclusters", entry);
}

static int count_l2(struct qcow2_check *c, const struct check_l2 *t, uint8_t *table)
{
	const uint32_t size = c->q->entry_size;
	struct l2_walk w = {.c = c, .t = t};
	int ret;

	qcow2_check_ref(c, t->offset, c->q->cluster_size, t->weight, "an L2 table");
	if (t->offset & (c->q->cluster_size - 1)) {
		qcow2_check_say(c, "ERROR: an L1 entry points to 0x%llx, which is no cluster", HEX(t->offset));
		c->r->corruptions += t->weight;
		return 0;
	}
	if (t->offset >= c->file_len)
		return 0;
	ret = block_file_pread(c->q->file, table, c->q->cluster_size, t->offset);
	if (ret) {
		qcow2_check_say(c, "ERROR: the L2 table at 0x%llx cannot be read: %s", HEX(t->offset), strerror(-ret));
		c->r->errors++;
		return 0;
	}
	for (uint32_t i = 0; i < c->q->cluster_size; i += size)
		count_entry(&w, ld64be(table + i), size == 16 ? ld64be(table + i + 8) : 0);
	return 0;
}

/* ---- L1 tables ----------------------------------------------------------------- */

#define PIECE 8192u /* entries */

static int count_l1(struct qcow2_check *c, uint64_t offset, uint32_t n, bool active)
{
	uint8_t *buf = malloc(PIECE * 8);
	int ret = buf ? 0 : -ENOMEM;

	qcow2_check_ref(c, offset, n * 8ull, 1, "an L1 table");
	for (uint32_t i = 0; i < n && !ret; i += PIECE) {
		const uint32_t now = MIN(n - i, PIECE);
		if (offset + i * 8ull >= c->file_len)
			break;
		ret = block_file_pread(c->q->file, buf, now * 8, offset + i * 8ull);
		if (ret) {
			qcow2_check_say(c, "ERROR: the L1 table at 0x%llx cannot be read: %s", HEX(offset),
					strerror(-ret));
			c->r->errors++;
			ret = 0;
			break;
		}
		for (uint32_t k = 0; k < now && !ret; k++) {
			const uint64_t entry = ld64be(buf + k * 8);
			if (entry & L1_RESERVED) {
				qcow2_check_say(c, "ERROR: L1 entry 0x%llx has reserved bits set", HEX(entry));
				c->r->corruptions++;
			}
			if (entry & QCOW2_OFFSET_MASK)
				ret = l2_add(c, entry & QCOW2_OFFSET_MASK, active);
			else if (entry) {
				qcow2_check_say(c, "ERROR: L1 entry 0x%llx takes the header for a table", HEX(entry));
				c->r->corruptions++;
			}
		}
	}
	c->l1_bytes += n * 8ull;
	free(buf);
	return ret;
}

static int count_snapshots(struct qcow2_check *c)
{
	struct qcow2 *q = c->q;
	int ret = 0;

	if (q->snapshots_broken) {
		qcow2_check_say(c, "ERROR: the snapshot table is broken");
		c->r->corruptions++;
	}
	for (uint32_t i = 0; i < q->nr_snapshots && !ret; i++) {
		const struct qcow2_snapshot *s = &q->snapshots[i];
		if ((s->l1_offset & (q->cluster_size - 1)) || s->l1_size > QCOW2_MAX_L1_BYTES / 8) {
			qcow2_check_say(c, "ERROR: the L1 table of snapshot '%s' is %s", s->pub.id,
					s->l1_offset & (q->cluster_size - 1) ? "on no cluster" : "too large");
			c->r->corruptions++;
			continue;
		}
		if (c->l1_bytes > c->file_len + QCOW2_MAX_L1_BYTES) {
			qcow2_check_say(c, "ERROR: the L1 tables of the snapshots overlap");
			c->r->corruptions++;
			break;
		}
		ret = count_l1(c, s->l1_offset, s->l1_size, false);
	}
	if (!ret && q->h.nb_snapshots)
		qcow2_check_ref(c, q->h.snapshots_offset, q->snapshots_bytes, 1, "the snapshot table");
	return ret;
}

/* ---- bitmaps ---------------------------------------------------------------------- */

static void count_bitmap_table(struct qcow2_check *c, uint64_t offset, uint32_t n)
{
	uint8_t *t;

	if (offset & (c->q->cluster_size - 1) || n > QCOW2_MAX_L1_BYTES / 8 || offset >= c->file_len ||
	    n * 8ull > c->file_len - offset) {
		qcow2_check_say(c, "ERROR: a bitmap's table at 0x%llx (%u entries) is invalid", HEX(offset), n);
		c->r->corruptions++;
		return;
	}
	qcow2_check_ref(c, offset, n * 8ull, 1, "a bitmap's table");
	t = malloc(n ? n * 8ull : 1);
	if (!t || block_file_pread(c->q->file, t, n * 8ull, offset))
		c->r->errors++;
	else
		for (uint32_t i = 0; i < n; i++) {
			const uint64_t e = ld64be(t + i * 8ull), host = e & QCOW2_OFFSET_MASK;
			if (e & ~(QCOW2_OFFSET_MASK | (host ? 0 : 1)) || (host & (c->q->cluster_size - 1))) {
				qcow2_check_say(c, "ERROR: a bitmap's table has the invalid entry 0x%llx", HEX(e));
				c->r->corruptions++;
			} else if (host) {
				qcow2_check_ref(c, host, c->q->cluster_size, 1, "a bitmap");
			}
		}
	free(t);
}

static void count_bitmaps(struct qcow2_check *c)
{
	const struct qcow2_header *h = &c->q->h;
	uint64_t at = 0, read = 0;
	uint8_t *dir;

	/* Without the bit they are another program's leftovers. */
	if (!h->nb_bitmaps || !(h->autoclear & QCOW2_AUTOCLEAR_BITMAPS))
		return;
	if (h->bitmap_directory_size > 64 * MIB || h->bitmap_directory_offset & (c->q->cluster_size - 1) ||
	    h->bitmap_directory_offset >= c->file_len) {
		qcow2_check_say(c, "ERROR: the directory of bitmaps is invalid");
		c->r->corruptions++;
		return;
	}
	qcow2_check_ref(c, h->bitmap_directory_offset, h->bitmap_directory_size, 1, "the directory of bitmaps");
	dir = malloc(h->bitmap_directory_size + 1);
	if (!dir || block_file_pread(c->q->file, dir, h->bitmap_directory_size, h->bitmap_directory_offset)) {
		c->r->errors++;
		free(dir);
		return;
	}
	for (uint32_t i = 0; i < h->nb_bitmaps; i++) {
		uint64_t len;
		if (h->bitmap_directory_size - at < 24 || read > c->file_len + QCOW2_MAX_L1_BYTES)
			break;
		len = ALIGN_UP(24ull + ld16be(dir + at + 18) + ld32be(dir + at + 20), 8);
		if (len > h->bitmap_directory_size - at)
			break;
		read += ld32be(dir + at + 8) * 8ull;
		count_bitmap_table(c, ld64be(dir + at), ld32be(dir + at + 8));
		at += len;
	}
	if (at != h->bitmap_directory_size) {
		qcow2_check_say(c, "ERROR: the directory of bitmaps is broken");
		c->r->corruptions++;
	}
	free(dir);
}

/* ---- the refcount structure's own clusters ------------------------------------------- */

void qcow2_check_ref_structure(struct qcow2_check *c)
{
	struct qcow2 *q = c->q;

	qcow2_check_ref(c, q->h.refcount_table_offset, (uint64_t)q->h.refcount_table_clusters << q->cluster_bits, 1,
			"the refcount table");
	for (uint32_t i = 0; i < q->reftable_entries; i++) {
		const uint64_t e = q->reftable[i], k = e >> q->cluster_bits;
		const char *why = NULL;
		if (!e)
			continue;
		if (e & (q->cluster_size - 1))
			why = e & TABLE_RESERVED ? "has reserved bits set" : "is on no cluster";
		else if (k >= c->clusters)
			why = "is past the end of the file";
		else {
			qcow2_check_ref(c, e, q->cluster_size, 1, "a refcount block");
			if (c->want[k] != 1)
				why = "is used by others too";
		}
		if (why) {
			qcow2_check_say(c, "ERROR: refcount block %u at 0x%llx %s", i, HEX(e), why);
			c->r->corruptions++;
			c->rebuild = true;
		}
	}
}

/* ---- all of it ----------------------------------------------------------------------------- */

static uint32_t *map_counts(uint64_t n)
{
	void *p = mmap(NULL, n * sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		       -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int qcow2_check_begin(struct qcow2_check *c)
{
	struct qcow2 *q = c->q;
	const uint64_t most = UINT32_MAX;

	c->file_len = block_file_size(q->file);
	c->clusters = (c->file_len + q->cluster_size - 1) >> q->cluster_bits;
	c->room = c->clusters + 1;
	c->max_count = q->h.refcount_order < 6 ? BIT(1u << q->h.refcount_order) - 1 : UINT64_MAX;
	if (c->room > most)
		return -EFBIG;
	c->want = map_counts(c->room);
	c->have = map_counts(c->room);
	c->touched = calloc(c->room / CHECK_GROUP + 1, 1);
	return c->want && c->have && c->touched ? 0 : -ENOMEM;
}

int qcow2_check_count(struct qcow2_check *c)
{
	struct qcow2 *q = c->q;
	uint8_t *table = malloc(q->cluster_size);
	int ret = table ? 0 : -ENOMEM;

	c->r->total = (q->node->size + q->cluster_size - 1) >> q->cluster_bits;
	qcow2_check_ref(c, 0, q->cluster_size, 1, "the header");
	if (!ret)
		ret = count_l1(c, q->h.l1_table_offset, q->h.l1_size, true);
	if (!ret)
		ret = count_snapshots(c);
	for (size_t i = 0; i < c->nr_l2 && !ret; i++)
		ret = count_l2(c, &c->l2[i], table);
	count_bitmaps(c);
	free(table);
	return ret;
}

void qcow2_check_end(struct qcow2_check *c)
{
	if (c->want)
		munmap(c->want, c->room * sizeof(uint32_t));
	if (c->have)
		munmap(c->have, c->room * sizeof(uint32_t));
	free(c->touched);
	free(c->l2);
	free(c->l2_hash);
}

int qcow2_check_image(struct qcow2 *q, unsigned fix, struct block_check *r)
{
	struct qcow2_check c = {.q = q, .r = r, .fix = fix};
	int ret = qcow2_check_begin(&c);

	if (!ret)
		ret = qcow2_check_count(&c);
	if (!ret)
		qcow2_check_ref_structure(&c);
	if (!ret)
		ret = qcow2_check_refcounts(&c);
	if (!ret)
		ret = qcow2_check_copied(&c);
	qcow2_check_end(&c);
	return ret;
}

static int clear_marks(struct qcow2 *q)
{
	const uint64_t marks = QCOW2_INCOMPAT_DIRTY | QCOW2_INCOMPAT_CORRUPT;
	int ret;

	if (!(q->h.incompatible & marks))
		return 0;
	q->h.incompatible &= ~marks;
	ret = qcow2_header_set_u64(q, QCOW2_H_INCOMPATIBLE, q->h.incompatible);
	return ret ? ret : qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
}

int qcow2_check(struct block_node *n, unsigned fix, struct block_check *r, struct err *err)
{
	struct qcow2 *q = n->private_data;
	int ret = qcow2_flush_all(q);

	qcow2_cache_drop(&q->l2);
	qcow2_cache_drop(&q->refblocks);
	if (!ret)
		ret = qcow2_check_image(q, fix, r);
	/* Repaired: what is in memory follows. */
	q->free_hint = 1;
	if (!ret && fix && !r->corruptions && !r->errors)
		ret = clear_marks(q);
	return ret ? err_set_errno(err, ret, "'%s' could not be checked", n->filename) : 0;
}
