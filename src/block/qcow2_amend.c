// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Writing the header's cluster anew: other names of the backing file, another
 * version, another width of refcounts. Extensions that are not ours to change
 * are kept byte for byte.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "block/qcow2_check.h"

#define V3_LENGTH 112u

struct builder {
	uint8_t *out;
	size_t at, room;
};

static int put_extension(struct builder *b, uint32_t type, const void *data, size_t len)
{
	if (b->room - b->at < 8 + ALIGN_UP(len, 8))
		return -ENOSPC;
	st32be(b->out + b->at, type);
	st32be(b->out + b->at + 4, (uint32_t)len);
	if (len)
		memcpy(b->out + b->at + 8, data, len);
	b->at += 8 + ALIGN_UP(len, 8);
	return 0;
}

static void put_fixed(uint8_t *out, const struct qcow2_header *h)
{
	st32be(out + QCOW2_H_MAGIC, QCOW2_MAGIC);
	st32be(out + QCOW2_H_VERSION, h->version);
	st32be(out + QCOW2_H_CLUSTER_BITS, h->cluster_bits);
	st64be(out + QCOW2_H_SIZE, h->size);
	st32be(out + QCOW2_H_L1_SIZE, h->l1_size);
	st64be(out + QCOW2_H_L1_TABLE_OFFSET, h->l1_table_offset);
	st64be(out + QCOW2_H_REFCOUNT_TABLE_OFFSET, h->refcount_table_offset);
	st32be(out + QCOW2_H_REFCOUNT_TABLE_CLUSTERS, h->refcount_table_clusters);
	st32be(out + QCOW2_H_NB_SNAPSHOTS, h->nb_snapshots);
	st64be(out + QCOW2_H_SNAPSHOTS_OFFSET, h->snapshots_offset);
	if (h->version < 3)
		return;
	st64be(out + QCOW2_H_INCOMPATIBLE, h->incompatible);
	st64be(out + QCOW2_H_COMPATIBLE, h->compatible);
	st64be(out + QCOW2_H_AUTOCLEAR, h->autoclear);
	st32be(out + QCOW2_H_REFCOUNT_ORDER, h->refcount_order);
	st32be(out + QCOW2_H_HEADER_LENGTH, h->header_length);
	out[QCOW2_H_COMPRESSION_TYPE] = (uint8_t)h->compression_type;
}

/* Those of the old header that are not written anew. Its lengths were checked when it was read. */
static int keep_extensions(struct builder *b, const struct qcow2_header *h, const uint8_t *old, uint32_t old_length,
			   uint32_t size)
{
	const uint64_t backing = ld64be(old + QCOW2_H_BACKING_OFFSET);
	uint32_t at = old_length, end = backing && backing < size ? (uint32_t)backing : size;
	int ret = 0;

	while (at + 8 <= end && !ret) {
		const uint32_t type = ld32be(old + at), len = ld32be(old + at + 4);
		if (type == QCOW2_EXT_END || len > end - at - 8)
			break;
		if (type != QCOW2_EXT_BACKING_FMT && type != QCOW2_EXT_DATA_FILE &&
		    !(type == QCOW2_EXT_FEATURES && h->version < 3) && !(type == QCOW2_EXT_BITMAPS && !h->nb_bitmaps))
			ret = put_extension(b, type, old + at + 8, len);
		at += 8 + ALIGN_UP(len, 8u);
	}
	return ret;
}

static int build(const struct qcow2_header *h, const uint8_t *old, uint32_t old_length, uint8_t *out, uint32_t size)
{
	const size_t backing = strlen(h->backing_file), format = strlen(h->backing_format);
	struct builder b = {out, h->header_length, size};
	int ret = 0;

	/* What a newer program added to the fixed part. */
	if (h->header_length > V3_LENGTH)
		memcpy(out + V3_LENGTH, old + V3_LENGTH, h->header_length - V3_LENGTH);
	put_fixed(out, h);
	if (format)
		ret = put_extension(&b, QCOW2_EXT_BACKING_FMT, h->backing_format, format);
	if (!ret && h->data_file[0])
		ret = put_extension(&b, QCOW2_EXT_DATA_FILE, h->data_file, strlen(h->data_file));
	if (!ret)
		ret = keep_extensions(&b, h, old, old_length, size);
	if (!ret)
		ret = put_extension(&b, QCOW2_EXT_END, NULL, 0);
	if (ret || !backing)
		return ret;
	if (backing > 1023 || backing > b.room - b.at)
		return -ENOSPC;
	st64be(out + QCOW2_H_BACKING_OFFSET, b.at);
	st32be(out + QCOW2_H_BACKING_SIZE, (uint32_t)backing);
	memcpy(out + b.at, h->backing_file, backing);
	return 0;
}

int qcow2_header_write(struct qcow2 *q, const struct qcow2_header *h)
{
	const uint32_t size = q->cluster_size;
	uint8_t *old = malloc(size), *out = aligned_alloc(4096, ALIGN_UP(size, 4096u));
	int ret = old && out ? block_file_pread(q->file, old, size, 0) : -ENOMEM;

	if (!ret) {
		memset(out, 0, size);
		ret = build(h, old, q->h.header_length, out, size);
	}
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_WRITE, 0, out, size);
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
	if (!ret)
		q->h = *h;
	free(old);
	free(out);
	return ret;
}

int qcow2_change_backing(struct block_node *n, const char *file, const char *format, struct err *err)
{
	struct qcow2 *q = n->private_data;
	struct qcow2_header *h = malloc(sizeof(*h));
	int ret = 0;

	file = file ? file : "";
	format = file[0] && format ? format : "";
	if (!h)
		return err_set(err, -ENOMEM, "out of memory");
	*h = q->h;
	if (strlen(file) > 1023 || strlen(format) >= sizeof(h->backing_format))
		ret =
		    err_set(err, -EINVAL, "'%s': the name of the backing file or its format is too long", n->filename);
	if (!ret) {
		strcpy(h->backing_file, file);
		strcpy(h->backing_format, format);
		ret = qcow2_flush_all(q);
		if (!ret)
			ret = qcow2_header_write(q, h);
		if (ret == -ENOSPC)
			err_set(err, ret, "'%s': the header has no room for the name of the backing file", n->filename);
		else if (ret)
			err_set_errno(err, ret, "'%s': the header could not be written", n->filename);
	}
	free(h);
	return ret;
}

/* ---- version 2 -------------------------------------------------------------------- */

static int write_zero_cluster(struct qcow2 *q, uint64_t at)
{
	struct iovec iov = {calloc(1, q->cluster_size), MIN(q->cluster_size, q->node->size - at)};
	struct block_req req = {.op = BLOCK_WRITE, .offset = at, .len = iov.iov_len, .iov = &iov, .niov = 1};
	int ret = iov.iov_base ? qcow2_write_request(q, &req) : -ENOMEM;

	free(iov.iov_base);
	return ret;
}

/* Version 2 has no zero clusters: without a backing file they are unallocated, else they become data. */
static int expand_zeroes(struct qcow2 *q, void *arg)
{
	int ret = 0;

	for (uint64_t at = 0; at < q->node->size && !ret;) {
		const uint64_t span = BIT(q->cluster_bits + q->l2_bits), stop = ALIGN_DOWN(at, span) + span;
		struct qcow2_table *t;
		if (!(q->l1[at / span] & QCOW2_OFFSET_MASK)) {
			at = stop;
			continue;
		}
		ret = qcow2_limit_dirty(q);
		if (!ret)
			ret = qcow2_l2_for_write(q, at, &t);
		for (; at < MIN(stop, q->node->size) && !ret; at += q->cluster_size) {
			const uint64_t e = qcow2_entry_get(q, t, at);
			if ((e & QCOW2_ENTRY_COMPRESSED) || !(e & QCOW2_ENTRY_ZERO))
				continue;
			if (q->backing) {
				ret = write_zero_cluster(q, at);
			} else {
				qcow2_free_entry(q, e);
				qcow2_entry_set(q, t, at, 0);
			}
		}
		if (!ret)
			qcow2_cache_put(t);
	}
	return ret;
}

static int may_downgrade(const struct qcow2 *q, struct err *err)
{
	const char *why = q->h.refcount_order != 4 ? "its refcounts are not 16 bits wide"
			  : q->extended_l2	   ? "it has extended L2 entries"
			  : q->has_data_file	   ? "it has a data file"
			  : q->h.compression_type  ? "its compression type is not zlib"
			  : q->nr_snapshots	   ? "it has snapshots, which may have zero clusters"
						   : NULL;

	return why ? err_set(err, -ENOTSUP, "'%s' cannot become a version 2 image: %s", q->node->filename, why) : 0;
}

static int set_version(struct qcow2 *q, struct qcow2_header *h, uint32_t version, struct err *err)
{
	int ret = 0;

	if (version == h->version)
		return 0;
	if (version != 2 && version != 3)
		return err_set(err, -EINVAL, "there is no version %u of qcow2", version);
	if (version == 2) {
		ret = may_downgrade(q, err);
		if (!ret)
			ret = qcow2_run(q, expand_zeroes, NULL);
		if (!ret)
			ret = qcow2_flush_all(q);
		h->incompatible = h->compatible = h->autoclear = 0;
	}
	h->version = version;
	h->header_length = version == 2 ? QCOW2_V2_HEADER_SIZE : V3_LENGTH;
	return ret;
}

/* ---- refcount width ------------------------------------------------------------------ */

static int set_refcount_bits(struct qcow2 *q, uint32_t bits, struct err *err)
{
	struct qcow2_check c = {.q = q, .r = &(struct block_check){0}};
	uint32_t order = 0;
	int ret;

	while (order < 6 && 1u << order < bits)
		order++;
	if (1u << order != bits)
		return err_set(err, -EINVAL, "Refcount width must be a power of two and may not exceed 64 bits");
	if (order == q->h.refcount_order)
		return 0;
	if (q->h.version < 3)
		return err_set(err, -EINVAL, "'%s': refcounts of version 2 images are 16 bits wide", q->node->filename);
	qcow2_cache_drop(&q->l2);
	qcow2_cache_drop(&q->refblocks);
	ret = qcow2_check_begin(&c);
	c.max_count = order < 6 ? BIT(1u << order) - 1 : UINT64_MAX;
	if (!ret)
		ret = qcow2_check_count(&c);
	if (!ret && (c.r->corruptions || c.r->errors))
		ret = -ERANGE;
	if (!ret)
		ret = qcow2_check_rebuild(&c, order);
	qcow2_check_end(&c);
	if (!ret)
		ret = qcow2_meta_init(q);
	q->free_hint = 1;
	if (ret == -ERANGE)
		return err_set(err, ret, "'%s': %u bits are too few for its refcounts, or it is corrupt",
			       q->node->filename, bits);
	return ret ? err_set_errno(err, ret, "'%s': the refcounts could not be written", q->node->filename) : 0;
}

int qcow2_amend(struct block_node *n, const struct block_amend *a, struct err *err)
{
	struct qcow2 *q = n->private_data;
	struct qcow2_header *h;
	int ret;

	if (q->corrupt)
		return err_set(err, -EIO, "'%s' is marked corrupt", n->filename);
	if (a->data_file || a->data_file_raw == 1)
		return err_set(err, -ENOTSUP, "'%s': the data file of an image cannot be amended", n->filename);
	ret = qcow2_flush_all(q);
	/* Wider counts only in version 3, narrower ones before it goes. */
	if (!ret && a->refcount_bits && a->version != 3)
		ret = set_refcount_bits(q, a->refcount_bits, err);
	h = malloc(sizeof(*h));
	if (!ret && !h)
		ret = -ENOMEM;
	if (!ret) {
		*h = q->h;
		if (a->version)
			ret = set_version(q, h, a->version, err);
	}
	if (!ret && a->lazy_refcounts == 1 && h->version < 3)
		ret = err_set(err, -EINVAL, "'%s': lazy_refcounts needs compat=1.1", n->filename);
	if (!ret && a->lazy_refcounts >= 0 && h->version >= 3)
		h->compatible =
		    (h->compatible & ~(uint64_t)QCOW2_COMPAT_LAZY) | (a->lazy_refcounts ? QCOW2_COMPAT_LAZY : 0);
	if (!ret)
		ret = qcow2_header_write(q, h);
	if (!ret && a->refcount_bits && a->version == 3)
		ret = set_refcount_bits(q, a->refcount_bits, err);
	free(h);
	return ret ? err_set_errno(err, ret, "'%s' could not be amended", n->filename) : 0;
}
