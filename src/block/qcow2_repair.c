// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checking a qcow2 image, second half: what the refcount blocks say against what
 * was counted, repairs, and the COPIED flags. Nothing is written to a table that
 * something else claims too. A refcount structure that cannot be repaired in
 * place is written anew behind the end of the file; one sector of the header
 * then switches over.
 *
 * Runs outside coroutines, with the tables' caches empty.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "block/qcow2_check.h"

#define HEX(x) ((unsigned long long)(x))

static uint32_t block_bits(const struct qcow2_check *c)
{
	return c->q->cluster_bits + 3 - c->q->h.refcount_order;
}

/* Can refcount block i be trusted to be one? */
static bool block_sound(const struct qcow2_check *c, uint32_t i)
{
	const uint64_t e = i < c->q->reftable_entries ? c->q->reftable[i] : 0, k = e >> c->q->cluster_bits;

	return e && !(e & (c->q->cluster_size - 1)) && k < c->clusters && c->want[k] == 1;
}

/* One cluster whose two numbers differ. True: *block was changed. */
static bool repair_count(struct qcow2_check *c, uint64_t k, uint8_t *block, bool sound)
{
	const uint32_t have = c->have[k], want = c->want[k];
	const bool leak = have > want;
	const bool can = sound && (c->fix & (leak ? BLOCK_FIX_LEAKS : BLOCK_FIX_ERRORS));

	qcow2_check_say(c, "%s cluster %llu refcount=%u reference=%u",
			can    ? "Repairing"
			: leak ? "Leaked"
			       : "ERROR",
			HEX(k), have, want);
	if (!can) {
		*(leak ? &c->r->leaks : &c->r->corruptions) += 1;
		return false;
	}
	qcow2_refcount_store(block, c->q->h.refcount_order, k & (BIT(block_bits(c)) - 1), want);
	c->have[k] = want;
	*(leak ? &c->r->leaks_fixed : &c->r->corruptions_fixed) += 1;
	return true;
}

static int compare_block(struct qcow2_check *c, uint32_t i, uint8_t *block)
{
	const uint64_t first = (uint64_t)i << block_bits(c), end = MIN(first + BIT(block_bits(c)), c->clusters);
	const uint64_t at = i < c->q->reftable_entries ? c->q->reftable[i] : 0;
	const bool exists = at && !(at & (c->q->cluster_size - 1)) && at < c->file_len;
	const bool sound = block_sound(c, i);
	bool changed = false;
	int ret = 0;

	if (exists)
		ret = block_file_pread(c->q->file, block, c->q->cluster_size, at);
	if (ret) {
		qcow2_check_say(c, "ERROR: refcount block %u cannot be read: %s", i, strerror(-ret));
		c->r->errors++;
		return 0;
	}
	for (uint64_t k = first; k < end; k++) {
		uint64_t n;
		if (!exists && !c->touched[k / CHECK_GROUP]) {
			k |= CHECK_GROUP - 1;
			continue;
		}
		n = exists ? qcow2_refcount_load(block, c->q->h.refcount_order, k - first) : 0;
		if (n != c->have[k]) {
			c->have[k] = (uint32_t)MIN(n, (uint64_t)UINT32_MAX); /* more references cannot be */
			c->touched[k / CHECK_GROUP] = 1;
		}
		if (c->have[k] || c->want[k])
			c->r->image_end = (k + 1) << c->q->cluster_bits;
		if (c->have[k] != c->want[k]) {
			if (!exists)
				c->rebuild = true;
			changed |= repair_count(c, k, block, sound);
		}
	}
	return changed ? qcow2_file_io(c->q, BLOCK_WRITE, at, block, c->q->cluster_size) : 0;
}

static int compare_all(struct qcow2_check *c)
{
	uint8_t *block = aligned_alloc(4096, ALIGN_UP(c->q->cluster_size, 4096u));
	int ret = block ? 0 : -ENOMEM;

	for (uint64_t i = 0; i << block_bits(c) < c->clusters && !ret; i++)
		ret = compare_block(c, (uint32_t)i, block);
	free(block);
	return ret;
}

/* ---- a new refcount structure ---------------------------------------------------- */

struct rebuild {
	struct qcow2_check *c;
	uint32_t order, bits;	       /* of the new blocks: clusters each covers */
	uint64_t start, table, blocks; /* cluster of the new table; clusters of table and blocks */
};

static bool range_used(const struct rebuild *b, uint64_t i)
{
	const uint64_t end = MIN((i + 1) << b->bits, b->c->room);
	const uint64_t new_end = b->start + b->table + b->blocks;

	if ((i + 1) << b->bits > b->start && i << b->bits < new_end)
		return true;
	for (uint64_t k = i << b->bits; k < end; k++)
		if (!b->c->touched[k / CHECK_GROUP])
			k |= CHECK_GROUP - 1;
		else if (b->c->want[k])
			return true;
	return false;
}

/* How large table and blocks become, themselves counted. */
static int rebuild_plan(struct rebuild *b)
{
	const struct qcow2 *q = b->c->q;
	uint64_t ranges, used, need;

	b->start = b->c->room;
	b->table = b->blocks = 1;
	for (;;) {
		ranges = ((b->start + b->table + b->blocks) >> b->bits) + 1;
		used = 0;
		for (uint64_t i = 0; i < ranges; i++)
			used += range_used(b, i);
		need = (ranges * 8 + q->cluster_size - 1) >> q->cluster_bits;
		if (need << q->cluster_bits > QCOW2_MAX_REFTABLE_BYTES)
			return -EFBIG;
		if (used <= b->blocks && need <= b->table)
			return 0;
		b->blocks = MAX(b->blocks, used);
		b->table = MAX(b->table, need);
	}
}

static uint64_t rebuilt_count(const struct rebuild *b, uint64_t k)
{
	if (k >= b->start && k < b->start + b->table + b->blocks)
		return 1;
	return k < b->c->room ? b->c->want[k] : 0;
}

static int rebuild_write(struct rebuild *b)
{
	struct qcow2 *q = b->c->q;
	const uint64_t ranges = b->table * (q->cluster_size / 8);
	const uint64_t most = b->order < 5 ? BIT(1u << b->order) - 1 : UINT32_MAX;
	uint8_t *table = aligned_alloc(4096, ALIGN_UP(b->table << q->cluster_bits, 4096));
	uint8_t *block = aligned_alloc(4096, ALIGN_UP(q->cluster_size, 4096u));
	uint64_t at = b->start + b->table;
	int ret = table && block ? 0 : -ENOMEM;

	if (!ret)
		memset(table, 0, b->table << q->cluster_bits);
	for (uint64_t i = 0; i < ranges && !ret && i << b->bits < b->start + b->table + b->blocks; i++) {
		if (!range_used(b, i))
			continue;
		memset(block, 0, q->cluster_size);
		for (uint64_t k = 0; k < BIT(b->bits); k++)
			qcow2_refcount_store(block, b->order, k, MIN(rebuilt_count(b, (i << b->bits) + k), most));
		ret = qcow2_file_io(q, BLOCK_WRITE, at << q->cluster_bits, block, q->cluster_size);
		st64be(table + i * 8, at++ << q->cluster_bits);
	}
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_WRITE, b->start << q->cluster_bits, table, b->table << q->cluster_bits);
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
	free(table);
	free(block);
	return ret;
}

/* One write within the first sector. */
static int rebuild_switch(struct rebuild *b)
{
	struct qcow2 *q = b->c->q;
	uint8_t head[512];
	int ret = block_file_pread(q->file, head, sizeof(head), 0);

	st64be(head + QCOW2_H_REFCOUNT_TABLE_OFFSET, b->start << q->cluster_bits);
	st32be(head + QCOW2_H_REFCOUNT_TABLE_CLUSTERS, (uint32_t)b->table);
	if (q->h.version >= 3)
		st32be(head + QCOW2_H_REFCOUNT_ORDER, b->order);
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_WRITE, 0, head, sizeof(head));
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
	if (ret)
		return ret;
	q->h.refcount_table_offset = b->start << q->cluster_bits;
	q->h.refcount_table_clusters = (uint32_t)b->table;
	q->h.refcount_order = b->order;
	return 0;
}

int qcow2_check_rebuild(struct qcow2_check *c, uint32_t order)
{
	struct rebuild b = {.c = c, .order = order, .bits = c->q->cluster_bits + 3 - order};
	int ret = rebuild_plan(&b);

	if (!ret)
		ret = rebuild_write(&b);
	if (!ret)
		ret = rebuild_switch(&b);
	if (!ret)
		ret = qcow2_load_reftable(c->q);
	if (!ret)
		c->r->image_end = (b.start + b.table + b.blocks) << c->q->cluster_bits;
	return ret;
}

/* What `again` wants is what is wanted and there from now on. */
static void take_counts(struct qcow2_check *c, const struct qcow2_check *again)
{
	const uint64_t room = MIN(c->room, again->room);

	for (uint64_t k = 0; k < room; k += CHECK_GROUP) {
		const size_t bytes = MIN(room - k, (uint64_t)CHECK_GROUP) * sizeof(c->have[0]);
		if (!c->touched[k / CHECK_GROUP] && !again->touched[k / CHECK_GROUP])
			continue;
		memcpy(c->have + k, again->want + k, bytes);
		memcpy(c->want + k, again->want + k, bytes);
		c->touched[k / CHECK_GROUP] = 1;
	}
}

/* Count again without the structure that goes, write the new one. */
static int rebuild_all(struct qcow2_check *c, const struct block_check *before)
{
	struct block_check *r = c->r;
	const uint64_t errors = r->corruptions - before->corruptions, leaks = r->leaks - before->leaks;
	struct qcow2_check again = {.q = c->q, .r = &(struct block_check){0}, .fix = c->fix};
	int ret = qcow2_check_begin(&again);

	qcow2_check_say(c, "Rebuilding refcount structure");
	if (!ret)
		ret = qcow2_check_count(&again);
	if (!ret) {
		again.r->image_end = r->image_end;
		ret = qcow2_check_rebuild(&again, c->q->h.refcount_order);
	}
	if (!ret) {
		take_counts(c, &again);
		r->image_end = again.r->image_end;
		r->corruptions = again.r->corruptions;
		r->corruptions_fixed += before->corruptions + errors - MIN(again.r->corruptions, before->corruptions);
		r->leaks_fixed += leaks;
		r->leaks = before->leaks;
	}
	qcow2_check_end(&again);
	return ret;
}

int qcow2_check_refcounts(struct qcow2_check *c)
{
	struct block_check before = *c->r;
	const unsigned fix = c->fix;
	int ret;

	/* Blocks may be missing: known after the first pass only, and then nothing is repaired in place. */
	if ((fix & BLOCK_FIX_ERRORS) && !c->rebuild) {
		void (*say)(const char *) = c->r->say;
		c->fix = 0;
		c->r->say = NULL;
		ret = compare_all(c);
		*c->r = before;
		c->r->say = say;
		c->fix = fix;
		if (ret)
			return ret;
	}
	if (c->rebuild)
		c->fix = 0;
	ret = compare_all(c);
	c->fix = fix;
	if (!ret && c->rebuild && (fix & BLOCK_FIX_ERRORS) && !c->r->errors)
		ret = rebuild_all(c, &before);
	return ret;
}

/* ---- COPIED flags ------------------------------------------------------------------- */

/* Right or repaired: true when *entry was changed. */
static bool copied_entry(struct qcow2_check *c, uint64_t *entry, uint64_t cluster, const char *what, bool can)
{
	const uint32_t have = cluster < c->clusters ? c->have[cluster] : 0;

	if ((have == 1) == ((*entry & QCOW2_ENTRY_COPIED) != 0))
		return false;
	qcow2_check_say(c, "%s OFLAG_COPIED %s entry=%llx refcount=%u", can ? "Repairing" : "ERROR", what, HEX(*entry),
			have);
	if (!can) {
		c->r->corruptions++;
		return false;
	}
	c->r->corruptions_fixed++;
	*entry ^= QCOW2_ENTRY_COPIED;
	return true;
}

static int copied_l2(struct qcow2_check *c, uint64_t offset, uint8_t *table, bool can)
{
	struct qcow2 *q = c->q;
	bool changed = false;
	int ret;

	if (offset & (q->cluster_size - 1) || offset >= c->file_len)
		return 0;
	ret = block_file_pread(q->file, table, q->cluster_size, offset);
	if (ret)
		return 0; /* counted before */
	can = can && c->want[offset >> q->cluster_bits] == c->have[offset >> q->cluster_bits];
	for (uint32_t i = 0; i < q->cluster_size; i += q->entry_size) {
		uint64_t e = ld64be(table + i), host = e & QCOW2_OFFSET_MASK;
		bool now = false;
		if ((e & QCOW2_ENTRY_COMPRESSED) || q->has_data_file)
			continue;
		if (host & (q->cluster_size - 1)) {
			/* Zeros at a broken place need no place. */
			if (can && !qcow2_check_has_data(q, e, q->extended_l2 ? ld64be(table + i + 8) : 0)) {
				e = q->extended_l2 ? 0 : QCOW2_ENTRY_ZERO;
				now = true;
				c->r->corruptions--;
				c->r->corruptions_fixed++;
			}
		} else if (host) {
			now = copied_entry(c, &e, host >> q->cluster_bits, "data cluster: l2", can);
		}
		if (now)
			st64be(table + i, e);
		changed |= now;
	}
	return changed ? qcow2_file_io(q, BLOCK_WRITE, offset, table, q->cluster_size) : 0;
}

int qcow2_check_copied(struct qcow2_check *c)
{
	struct qcow2 *q = c->q;
	const bool can = (c->fix & BLOCK_FIX_ERRORS) && !c->r->errors;
	/* Only a table in the file, and of nobody else, is written to. */
	const uint64_t l1 = q->h.l1_table_offset >> q->cluster_bits;
	const bool ours = can && l1 < c->clusters && c->want[l1] == 1;
	uint8_t *table = aligned_alloc(4096, ALIGN_UP(q->cluster_size, 4096u));
	int ret = table ? qcow2_load_l1(q) : -ENOMEM;

	for (uint32_t i = 0; i < q->h.l1_size && !ret; i++) {
		const uint64_t offset = q->l1[i] & QCOW2_OFFSET_MASK;
		bool changed;
		uint8_t be[8];
		if (!q->l1[i])
			continue;
		if (offset) {
			changed = copied_entry(c, &q->l1[i], offset >> q->cluster_bits, "L2 cluster: l1", ours);
		} else if ((changed = ours)) {
			q->l1[i] = 0;
			c->r->corruptions--;
			c->r->corruptions_fixed++;
		}
		if (changed) {
			st64be(be, q->l1[i]);
			ret = qcow2_file_io(q, BLOCK_WRITE, q->h.l1_table_offset + i * 8ull, be, 8);
		}
	}
	/* Each table once, however often it is named. */
	for (size_t i = 0; i < c->nr_l2 && !ret; i++)
		if (c->l2[i].active)
			ret = copied_l2(c, c->l2[i].offset, table, can);
	if (!ret && c->fix)
		ret = qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
	free(table);
	return ret;
}
