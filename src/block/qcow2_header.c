// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The qcow2 header and its extensions: read once, every field checked before it
 * is used. Only names are taken from an image, never options or protocols.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "block/qcow2.h"

struct header_ctx {
	struct block_file *file;
	struct qcow2_header *h;
	const char *name;
	struct err *err;
};

static int refuse(struct header_ctx *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int refuse(struct header_ctx *c, int code, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(c->err, code, "Could not open '%s': %s", c->name, text);
}

/* A table of the file: on a cluster, and all of it at offsets a signed 64-bit number holds. */
static bool table_offset_ok(const struct qcow2_header *h, uint64_t offset, uint64_t bytes)
{
	return (offset & (BIT(h->cluster_bits) - 1)) == 0 && offset <= INT64_MAX - bytes;
}

static int check_geometry(struct header_ctx *c)
{
	struct qcow2_header *h = c->h;

	if (h->cluster_bits < 9 || h->cluster_bits > 21)
		return refuse(c, -EINVAL, "unsupported cluster size 2^%u (512 bytes to 2 MiB are possible)",
			      h->cluster_bits);
	if (h->version == 3) {
		if (h->header_length < QCOW2_V3_HEADER_SIZE)
			return refuse(c, -EINVAL, "qcow2 header too short (%u bytes)", h->header_length);
		if (h->header_length > BIT(h->cluster_bits))
			return refuse(c, -EINVAL, "qcow2 header exceeds the cluster size (%u bytes)", h->header_length);
		if (h->header_length % 8)
			return refuse(c, -EINVAL, "qcow2 header length %u is no multiple of 8", h->header_length);
	}
	if (h->refcount_order > 6)
		return refuse(c, -EINVAL, "refcounts of 2^%u bits; at most 64 are possible", h->refcount_order);
	if ((h->incompatible & QCOW2_INCOMPAT_EXTENDED_L2) && h->cluster_bits < 14)
		return refuse(c, -EINVAL, "extended L2 entries need clusters of at least 16 KiB");
	return 0;
}

static int check_tables(struct header_ctx *c)
{
	struct qcow2_header *h = c->h;
	const uint32_t entry = h->incompatible & QCOW2_INCOMPAT_EXTENDED_L2 ? 16 : 8;
	const uint64_t per_l2 = BIT(h->cluster_bits) * (BIT(h->cluster_bits) / entry);
	const uint64_t need = h->size / per_l2 + (h->size % per_l2 != 0);

	if (h->l1_size > QCOW2_MAX_L1_BYTES / 8)
		return refuse(c, -EFBIG, "active L1 table too large (%u entries)", h->l1_size);
	if (need > QCOW2_MAX_L1_BYTES / 8 || h->size > INT64_MAX - 511)
		return refuse(c, -EFBIG, "the image is too big (%llu bytes)", (unsigned long long)h->size);
	if (need > h->l1_size)
		return refuse(c, -EINVAL, "L1 table is too small (%u entries, %llu needed)", h->l1_size,
			      (unsigned long long)need);
	if (h->l1_size && (!h->l1_table_offset || !table_offset_ok(h, h->l1_table_offset, h->l1_size * 8ull)))
		return refuse(c, -EINVAL, "active L1 table offset 0x%llx is invalid",
			      (unsigned long long)h->l1_table_offset);
	if ((uint64_t)h->refcount_table_clusters << h->cluster_bits > QCOW2_MAX_REFTABLE_BYTES)
		return refuse(c, -EFBIG, "reference count table too large (%u clusters)", h->refcount_table_clusters);
	if (h->refcount_table_clusters == 0)
		return refuse(c, -EINVAL, "the image has no reference count table");
	if (!h->refcount_table_offset || !table_offset_ok(h, h->refcount_table_offset, QCOW2_MAX_REFTABLE_BYTES))
		return refuse(c, -EINVAL, "reference count table offset 0x%llx is invalid",
			      (unsigned long long)h->refcount_table_offset);
	if (h->nb_snapshots > QCOW2_MAX_SNAPSHOTS)
		return refuse(c, -EFBIG, "snapshot table too large (%u snapshots)", h->nb_snapshots);
	if (h->nb_snapshots && !table_offset_ok(h, h->snapshots_offset, QCOW2_MAX_SNAPSHOTS * 1024ull))
		return refuse(c, -EINVAL, "snapshot table offset 0x%llx is invalid",
			      (unsigned long long)h->snapshots_offset);
	return 0;
}

static int check_features(struct header_ctx *c)
{
	struct qcow2_header *h = c->h;
	const uint64_t known = QCOW2_INCOMPAT_DIRTY | QCOW2_INCOMPAT_CORRUPT | QCOW2_INCOMPAT_DATA_FILE |
			       QCOW2_INCOMPAT_COMPRESSION | QCOW2_INCOMPAT_EXTENDED_L2;

	if (h->incompatible & ~known)
		return refuse(c, -ENOTSUP, "unsupported qcow2 feature: unknown incompatible bits 0x%llx",
			      (unsigned long long)(h->incompatible & ~known));
	if (((h->incompatible & QCOW2_INCOMPAT_COMPRESSION) != 0) != (h->compression_type != 0))
		return refuse(c, -EINVAL, "the compression type and its feature bit contradict each other");
	if (h->compression_type > 1)
		return refuse(c, -ENOTSUP, "unknown compression type %u (zlib and zstd are known)",
			      h->compression_type);
	return 0;
}

/* The name of a backing or data file: in the first cluster, without NUL bytes. */
static int copy_name(struct header_ctx *c, char *out, size_t room, const uint8_t *from, uint32_t len, const char *what)
{
	if (len >= room || memchr(from, 0, len))
		return refuse(c, -EINVAL, "the name of the %s is invalid (%u bytes)", what, len);
	memcpy(out, from, len);
	out[len] = 0;
	return 0;
}

static int parse_extension(struct header_ctx *c, uint32_t type, const uint8_t *data, uint32_t len)
{
	struct qcow2_header *h = c->h;

	switch (type) {
	case QCOW2_EXT_BACKING_FMT:
		return copy_name(c, h->backing_format, sizeof(h->backing_format), data, len, "backing format");
	case QCOW2_EXT_DATA_FILE:
		return copy_name(c, h->data_file, sizeof(h->data_file), data, len, "external data file");
	case QCOW2_EXT_BITMAPS:
		if (len != 24)
			return refuse(c, -EINVAL, "bitmaps extension of %u bytes", len);
		h->nb_bitmaps = ld32be(data);
		h->bitmap_directory_size = ld64be(data + 8);
		h->bitmap_directory_offset = ld64be(data + 16);
		return 0;
	default: return 0; /* may be ignored, and stays in the image */
	}
}

static int parse_extensions(struct header_ctx *c, const uint8_t *cluster, uint32_t size)
{
	struct qcow2_header *h = c->h;
	const uint64_t backing = ld64be(cluster + QCOW2_H_BACKING_OFFSET);
	uint32_t at = h->header_length, end = backing && backing < size ? (uint32_t)backing : size;

	while (at + 8 <= end) {
		uint32_t type = ld32be(cluster + at), len = ld32be(cluster + at + 4);
		int ret;
		if (type == QCOW2_EXT_END)
			return 0;
		at += 8;
		if (len > end - at)
			return refuse(c, -EINVAL, "header extension 0x%x is too large (%u bytes)", type, len);
		ret = parse_extension(c, type, cluster + at, len);
		if (ret)
			return ret;
		at += ALIGN_UP(len, 8u);
	}
	return 0;
}

static int parse_backing(struct header_ctx *c, const uint8_t *cluster, uint32_t size)
{
	const uint64_t offset = ld64be(cluster + QCOW2_H_BACKING_OFFSET);
	const uint32_t len = ld32be(cluster + QCOW2_H_BACKING_SIZE);

	if (!offset)
		return 0;
	if (offset > size || len > size - offset || len > 1023)
		return refuse(c, -EINVAL, "invalid backing file offset 0x%llx or name of %u bytes",
			      (unsigned long long)offset, len);
	return copy_name(c, c->h->backing_file, sizeof(c->h->backing_file), cluster + offset, len, "backing file");
}

static void parse_fixed(struct qcow2_header *h, const uint8_t *b)
{
	h->version = ld32be(b + QCOW2_H_VERSION);
	h->cluster_bits = ld32be(b + QCOW2_H_CLUSTER_BITS);
	h->size = ld64be(b + QCOW2_H_SIZE);
	h->l1_size = ld32be(b + QCOW2_H_L1_SIZE);
	h->l1_table_offset = ld64be(b + QCOW2_H_L1_TABLE_OFFSET);
	h->refcount_table_offset = ld64be(b + QCOW2_H_REFCOUNT_TABLE_OFFSET);
	h->refcount_table_clusters = ld32be(b + QCOW2_H_REFCOUNT_TABLE_CLUSTERS);
	h->nb_snapshots = ld32be(b + QCOW2_H_NB_SNAPSHOTS);
	h->snapshots_offset = ld64be(b + QCOW2_H_SNAPSHOTS_OFFSET);
	h->refcount_order = 4;
	h->header_length = QCOW2_V2_HEADER_SIZE;
	if (h->version < 3)
		return;
	h->incompatible = ld64be(b + QCOW2_H_INCOMPATIBLE);
	h->compatible = ld64be(b + QCOW2_H_COMPATIBLE);
	h->autoclear = ld64be(b + QCOW2_H_AUTOCLEAR);
	h->refcount_order = ld32be(b + QCOW2_H_REFCOUNT_ORDER);
	h->header_length = ld32be(b + QCOW2_H_HEADER_LENGTH);
	if (h->header_length > QCOW2_H_COMPRESSION_TYPE)
		h->compression_type = b[QCOW2_H_COMPRESSION_TYPE];
}

int qcow2_header_read(struct block_file *f, struct qcow2_header *h, const char *filename, struct err *err)
{
	struct header_ctx c = {f, h, filename, err};
	uint8_t fixed[112], *cluster;
	uint32_t crypt, size;
	int ret;

	memset(h, 0, sizeof(*h));
	ret = block_file_pread(f, fixed, sizeof(fixed), 0);
	if (ret)
		return refuse(&c, ret, "the header cannot be read: %s", strerror(-ret));
	if (ld32be(fixed) != QCOW2_MAGIC)
		return refuse(&c, -EINVAL, "image is not in qcow2 format");
	parse_fixed(h, fixed);
	if (h->version != 2 && h->version != 3)
		return refuse(&c, -ENOTSUP, "unsupported qcow2 version %u", h->version);
	crypt = ld32be(fixed + QCOW2_H_CRYPT_METHOD);
	if (crypt)
		return refuse(&c, -ENOTSUP, "encrypted images are not supported (method %u%s)", crypt,
			      crypt == 1   ? ", AES"
			      : crypt == 2 ? ", LUKS"
					   : ", unknown");
	ret = check_geometry(&c);
	if (!ret)
		ret = check_features(&c);
	if (!ret)
		ret = check_tables(&c);
	if (ret)
		return ret;
	size = 1u << h->cluster_bits;
	cluster = malloc(size);
	if (!cluster)
		return refuse(&c, -ENOMEM, "out of memory");
	ret = block_file_pread(f, cluster, size, 0);
	if (ret)
		ret = refuse(&c, ret, "the header cannot be read: %s", strerror(-ret));
	if (!ret)
		ret = parse_backing(&c, cluster, size);
	if (!ret)
		ret = parse_extensions(&c, cluster, size);
	free(cluster);
	return ret;
}

int qcow2_header_usable(const struct qcow2_header *h, const struct block_open *o, const char *filename, struct err *err)
{
	if (o->check)
		return 0;
	if ((h->incompatible & QCOW2_INCOMPAT_DATA_FILE) && !o->data_file)
		return err_set(err, -EPERM,
			       "Could not open '%s': its data is in an external data file, and the name in the image "
			       "('%s') is not followed; data-file=FILE says which to take",
			       filename, h->data_file);
	if (!(h->incompatible & QCOW2_INCOMPAT_DATA_FILE) && o->data_file)
		return err_set(err, -EINVAL, "Could not open '%s': 'data-file' was given, but the image has none",
			       filename);
	if (o->read_only)
		return 0;
	if (h->incompatible & QCOW2_INCOMPAT_CORRUPT)
		return err_set(err, -EACCES,
			       "Could not open '%s': the image is marked corrupt and cannot be opened for writing; "
			       "readonly=on, or repair it with kelvin img check -r all",
			       filename);
	return 0;
}

int qcow2_header_set_u64(struct qcow2 *q, unsigned field, uint64_t value)
{
	uint8_t be[8];

	st64be(be, value);
	return qcow2_file_io(q, BLOCK_WRITE, field, be, 8);
}
