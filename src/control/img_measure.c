// SPDX-License-Identifier: GPL-2.0-or-later
/* img measure: what a new image would take at most, computed from the layout of the format. One thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "control/img.h"

struct layout {
	uint64_t cluster_size, refcount_bits, entry_size;
	bool prealloc;
};

static uint64_t div_up(uint64_t n, uint64_t d)
{
	return (n + d - 1) / d;
}

/* Header, L1 and L2 tables, refcount blocks and their table, and all data clusters. */
static uint64_t full_qcow2(const struct layout *l, uint64_t size)
{
	const uint64_t cs = l->cluster_size, data = ALIGN_UP(size, cs), per_block = cs * 8 / l->refcount_bits;
	const uint64_t l2 = ALIGN_UP(data / cs, cs / l->entry_size) * l->entry_size, l1 = ALIGN_UP(l2 / cs, cs / 8) * 8;
	const uint64_t clusters = (cs + l2 + l1 + data) / cs;
	uint64_t blocks = 0, table = 0, before;

	/* The refcounts count themselves: until nothing is added. */
	do {
		before = blocks + table;
		blocks = div_up(clusters + table + blocks, per_block);
		table = div_up(blocks, cs / 8);
	} while (blocks + table != before);
	return (clusters + blocks + table) * cs;
}

/* Bytes of clusters with data in them. */
static int data_clusters(struct block_node *n, uint64_t cs, uint64_t *bytes)
{
	struct block_extent e;
	uint64_t next = 0; /* the end of the last cluster counted */
	int ret = 0;

	for (uint64_t at = 0; at < block_size(n) && !ret; at += e.len) {
		uint64_t lo, hi;
		ret = block_map(n, at, block_size(n) - at, &e);
		if (ret || e.zero || !e.data)
			continue;
		lo = MAX(ALIGN_DOWN(at, cs), next);
		hi = ALIGN_UP(at + e.len, cs);
		if (hi > lo) {
			*bytes += hi - lo;
			next = hi;
		}
	}
	return ret;
}

static int take_layout(const struct img_args *a, struct layout *l, struct err *err)
{
	struct opts o = {0};
	const char *v;
	int ret = a->options ? opts_parse(a->options, NULL, &o, err) : 0;

	if (ret)
		return ret;
	if ((v = opts_get(&o, "cluster_size")) &&
	    (text_parse_size(v, 1, &l->cluster_size) || l->cluster_size < 512 || l->cluster_size > 2 * MIB ||
	     (l->cluster_size & (l->cluster_size - 1))))
		ret = err_set(err, -EINVAL, "Cluster size must be a power of two between 512 and 2048k");
	if ((v = opts_get(&o, "refcount_bits")))
		l->refcount_bits = strtoul(v, NULL, 10);
	if (!ret && (!l->refcount_bits || l->refcount_bits > 64 || (l->refcount_bits & (l->refcount_bits - 1))))
		ret = err_set(err, -EINVAL, "Refcount width must be a power of two and may not exceed 64 bits");
	if ((v = opts_get(&o, "extended_l2")) && strcmp(v, "on") == 0)
		l->entry_size = 16;
	if ((v = opts_get(&o, "preallocation")))
		l->prealloc = strcmp(v, "falloc") == 0 || strcmp(v, "full") == 0;
	opts_free(&o);
	return ret;
}

static void print_measure(const struct img_args *a, uint64_t required, uint64_t full)
{
	if (a->json)
		printf("{\n    \"required\": %" PRIu64 ",\n    \"fully-allocated\": %" PRIu64 "\n}\n", required, full);
	else
		printf("required size: %" PRIu64 "\nfully allocated size: %" PRIu64 "\n", required, full);
}

int img_measure(struct img_args *a, struct err *err)
{
	const char *format = a->out_format ? a->out_format : "raw";
	struct layout l = {.cluster_size = 65536, .refcount_bits = 16, .entry_size = 8};
	uint64_t size = 0, data = 0, full;
	struct block_node *n = NULL;
	int ret = take_layout(a, &l, err);

	if (!ret && (a->size_text != NULL) == (a->nr_names != 0))
		ret = err_set(err, -EINVAL, "Either --size N or one filename must be specified.");
	if (!ret && strcmp(format, "raw") != 0 && strcmp(format, "qcow2") != 0)
		ret = err_set(err, -ENOTSUP, "Block driver '%s' does not support size measurement", format);
	if (!ret && a->size_text && text_parse_size(a->size_text, 1, &size))
		ret = err_set(err, -EINVAL, "Invalid image size '%s'", a->size_text);
	if (!ret && a->nr_names) {
		n = img_open_cache(a, a->names[0], a->format, false, NULL, a->snapshot, err);
		ret = n ? 0 : err->code;
	}
	if (!ret && n) {
		size = block_size(n);
		ret = data_clusters(n, l.cluster_size, &data);
		if (ret)
			err_set_errno(err, ret, "'%s' cannot be read", a->names[0]);
	}
	block_close(n);
	if (ret)
		return ret;
	size = ALIGN_UP(size, 512);
	if (strcmp(format, "raw") == 0) {
		print_measure(a, size, size);
		return 0;
	}
	full = full_qcow2(&l, size);
	if (size / l.cluster_size / (l.cluster_size / l.entry_size) * 8 > 32 * MIB)
		return err_set(err, -EFBIG, "The image size is too large (try using a larger cluster size)");
	data = l.prealloc ? ALIGN_UP(size, l.cluster_size) : data;
	print_measure(a, full - ALIGN_UP(size, l.cluster_size) + data, full);
	return 0;
}
