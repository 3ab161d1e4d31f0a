// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Consistency of a QED image: every entry of the L1 and L2 tables names clusters
 * inside the file, and no cluster is named twice. Repair makes entries that do
 * not unallocated; clusters that nobody names are leaks, which the format cannot
 * give back (they are counted). Nothing is in flight; loop's thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "block/qed.h"

#define CHUNK_ENTRIES 8192u

struct checking {
	struct qed *q;
	struct block_check *c;
	bool fix;
	uint64_t *used, clusters; /* a bit each */
	uint64_t *chunk;	  /* of an L2 table */
};

static void say(const struct checking *k, const char *what, uint64_t value)
{
	char line[120];

	if (!k->c->say)
		return;
	snprintf(line, sizeof(line), "%s: %s 0x%" PRIx64, k->fix ? "Repairing" : "ERROR", what, value);
	k->c->say(line);
}

/* Mark clusters used; those that were already are named twice. */
static void use(struct checking *k, uint64_t host, uint64_t bytes)
{
	const uint64_t first = host / k->q->h.cluster_size, n = bytes / k->q->h.cluster_size;

	for (uint64_t i = first; i < first + n; i++) {
		if (k->used[i / 64] & BIT(i % 64)) {
			say(k, "a cluster is used twice, at", i * k->q->h.cluster_size);
			k->c->corruptions++;
		}
		k->used[i / 64] |= BIT(i % 64);
	}
}

/* True when the chunk changed. */
static bool check_chunk(struct checking *k, uint32_t n, uint64_t *last)
{
	const uint64_t cs = k->q->h.cluster_size;
	bool changed = false;

	for (uint32_t i = 0; i < n; i++) {
		const uint64_t host = ld64le(&k->chunk[i]);
		if (host <= QED_ENTRY_ZERO)
			continue;
		k->c->allocated++;
		if (*last && *last + cs != host)
			k->c->fragmented++;
		*last = host;
		if (qed_cluster_valid(k->q, host, cs)) {
			use(k, host, cs);
			continue;
		}
		say(k, "an L2 entry names the invalid offset", host);
		if (k->fix) {
			k->chunk[i] = 0;
			k->c->corruptions_fixed++;
			changed = true;
		} else {
			k->c->corruptions++;
		}
	}
	return changed;
}

static int check_l2(struct checking *k, uint64_t offset)
{
	struct qed *q = k->q;
	uint64_t last = 0;
	int ret = 0;

	for (uint64_t at = 0; at < q->table_bytes && !ret; at += CHUNK_ENTRIES * 8) {
		const uint64_t len = MIN(q->table_bytes - at, CHUNK_ENTRIES * 8);
		ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_READ, offset + at, k->chunk, len);
		if (ret)
			k->c->errors++;
		else if (check_chunk(k, (uint32_t)(len / 8), &last))
			ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_WRITE, offset + at, k->chunk, len);
	}
	return ret;
}

static int check_tables(struct checking *k)
{
	struct qed *q = k->q;
	bool changed = false;
	int ret = 0;

	for (uint32_t i = 0; i < q->l1.entries && !ret; i++) {
		const uint64_t table = ld64le(&q->l1.e[i]);
		if (!table)
			continue;
		if (qed_cluster_valid(q, table, q->table_bytes)) {
			use(k, table, q->table_bytes);
			ret = check_l2(k, table);
			continue;
		}
		say(k, "an L1 entry names the invalid offset", table);
		if (k->fix) {
			q->l1.e[i] = 0;
			k->c->corruptions_fixed++;
			changed = true;
		} else {
			k->c->corruptions++;
		}
	}
	if (changed && !ret)
		ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_WRITE, q->l1.offset, q->l1.e,
					  (uint64_t)q->l1.entries * 8);
	return ret;
}

static void count_leaks(struct checking *k)
{
	for (uint64_t i = k->q->h.header_size; i < k->clusters; i++)
		k->c->leaks += !(k->used[i / 64] & BIT(i % 64));
}

int qed_check(struct block_node *n, unsigned fix, struct block_check *c, struct err *err)
{
	struct qed *q = n->private_data;
	struct checking k = {.q = q, .c = c, .fix = (fix & BLOCK_FIX_ERRORS) != 0};
	int ret;

	k.clusters = q->file_end / q->h.cluster_size;
	k.used = calloc(k.clusters / 64 + 1, 8);
	k.chunk = aligned_alloc(4096, CHUNK_ENTRIES * 8);
	ret = k.used && k.chunk ? 0 : -ENOMEM;
	if (!ret) {
		use(&k, q->h.l1_offset, q->table_bytes);
		ret = check_tables(&k);
	}
	if (!ret) {
		c->total = (q->h.image_size + q->h.cluster_size - 1) / q->h.cluster_size;
		count_leaks(&k);
	}
	/* Sound again: the flag goes when the repairs are durable. */
	if (!ret && fix && !c->corruptions && !c->errors)
		ret = block_file_wait_buf(q->file, n->loop, BLOCK_FLUSH, 0, NULL, 0);
	if (!ret && fix && !c->corruptions && !c->errors && (q->h.features & QED_F_NEED_CHECK))
		ret = qed_header_set_features(q, q->h.features & ~(uint64_t)QED_F_NEED_CHECK);
	free(k.used);
	free(k.chunk);
	return ret ? err_set_errno(err, ret, "'%s': the check could not be finished", n->filename) : 0;
}
