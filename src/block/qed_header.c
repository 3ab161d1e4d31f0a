// SPDX-License-Identifier: GPL-2.0-or-later
/* The QED header: everything it says is checked before it is used. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "block/qed.h"

static bool power_in(uint64_t v, uint64_t lo, uint64_t hi)
{
	return v >= lo && v <= hi && (v & (v - 1)) == 0;
}

static int bad(struct err *err, const char *filename, const char *field, uint64_t value)
{
	return err_set(err, -EINVAL, "Could not open '%s': not a valid QED image: %s is 0x%llx", filename, field,
		       (unsigned long long)value);
}

static int check_sizes(const struct qed_header *h, uint64_t file_size, const char *filename, struct err *err)
{
	const uint64_t entries = (uint64_t)h->table_size * h->cluster_size / 8;
	const uint64_t header = (uint64_t)h->header_size * h->cluster_size;
	const uint64_t table = (uint64_t)h->table_size * h->cluster_size, end = ALIGN_DOWN(file_size, h->cluster_size);

	if (h->header_size == 0 || header > end)
		return bad(err, filename, "header_size", h->header_size);
	if (h->image_size % 512 || (__uint128_t)entries * entries * h->cluster_size < h->image_size ||
	    h->image_size > INT64_MAX)
		return bad(err, filename, "image_size", h->image_size);
	if (h->l1_offset % h->cluster_size || h->l1_offset < header || h->l1_offset > end || table > end - h->l1_offset)
		return bad(err, filename, "l1_table_offset", h->l1_offset);
	return 0;
}

static int read_backing(struct block_file *f, const uint8_t *raw, struct qed_header *h, const char *filename,
			struct err *err)
{
	const uint32_t offset = ld32le(raw + QED_H_BACKING_OFFSET), size = ld32le(raw + QED_H_BACKING_SIZE);
	int ret;

	if (!(h->features & QED_F_BACKING))
		return 0;
	if ((uint64_t)offset + size > (uint64_t)h->header_size * h->cluster_size)
		return bad(err, filename, "backing_filename_offset", offset);
	if (size >= sizeof(h->backing_file))
		return bad(err, filename, "backing_filename_size", size);
	ret = block_file_pread(f, h->backing_file, size, offset);
	if (!ret && strlen(h->backing_file) != size)
		return bad(err, filename, "backing_filename_size", size);
	return ret ? err_set_errno(err, ret, "Could not open '%s': its header cannot be read", filename) : 0;
}

int qed_header_read(struct block_file *f, struct qed_header *h, const char *filename, struct err *err)
{
	uint8_t raw[QED_H_END];
	int ret = block_file_pread(f, raw, sizeof(raw), 0);

	if (ret)
		return err_set_errno(err, ret, "Could not open '%s': its header cannot be read", filename);
	memset(h, 0, sizeof(*h));
	if (ld32le(raw) != QED_MAGIC)
		return err_set(err, -EINVAL, "Could not open '%s': Image not in QED format", filename);
	h->cluster_size = ld32le(raw + QED_H_CLUSTER_SIZE);
	h->table_size = ld32le(raw + QED_H_TABLE_SIZE);
	h->header_size = ld32le(raw + QED_H_HEADER_SIZE);
	h->features = ld64le(raw + QED_H_FEATURES);
	h->compat = ld64le(raw + QED_H_COMPAT);
	h->autoclear = ld64le(raw + QED_H_AUTOCLEAR);
	h->l1_offset = ld64le(raw + QED_H_L1_OFFSET);
	h->image_size = ld64le(raw + QED_H_IMAGE_SIZE);
	if (h->features & ~(uint64_t)QED_F_KNOWN)
		return err_set(err, -ENOTSUP, "Could not open '%s': Unsupported QED features: %llx", filename,
			       (unsigned long long)(h->features & ~(uint64_t)QED_F_KNOWN));
	if (!power_in(h->cluster_size, QED_MIN_CLUSTER, QED_MAX_CLUSTER))
		return bad(err, filename, "cluster_size", h->cluster_size);
	if (!power_in(h->table_size, 1, QED_MAX_TABLE))
		return bad(err, filename, "table_size", h->table_size);
	ret = check_sizes(h, block_file_size(f), filename, err);
	return ret ? ret : read_backing(f, raw, h, filename, err);
}

int qed_header_set_features(struct qed *q, uint64_t features)
{
	uint8_t raw[24];
	int ret;

	st64le(raw, features);
	st64le(raw + 8, q->h.compat);
	st64le(raw + 16, q->h.autoclear & 0); /* bits we do not know of must not look valid any more */
	ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_WRITE, QED_H_FEATURES, raw, sizeof(raw));
	if (!ret) {
		q->h.features = features;
		q->h.autoclear = 0;
	}
	return ret;
}

int qed_header_set_backing(struct qed *q, const char *file, const char *format, struct err *err)
{
	const uint64_t room = (uint64_t)q->h.header_size * q->h.cluster_size;
	const size_t len = file ? strlen(file) : 0;
	uint64_t features = q->h.features & ~(uint64_t)(QED_F_BACKING | QED_F_BACKING_RAW);
	uint8_t raw[8] = {0};
	int ret = 0;

	if (len >= sizeof(q->h.backing_file) || QED_H_END + len > room)
		return err_set(err, -ENOSPC, "'%s': the backing file's name is too long for the header",
			       q->node->filename);
	if (len) {
		features |= QED_F_BACKING | (format && strcmp(format, "raw") == 0 ? QED_F_BACKING_RAW : 0);
		st32le(raw, QED_H_END);
		st32le(raw + 4, (uint32_t)len);
		ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_WRITE, QED_H_END, (void *)(uintptr_t)file, len);
	}
	if (!ret)
		ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_WRITE, QED_H_BACKING_OFFSET, raw, sizeof(raw));
	if (!ret)
		ret = qed_header_set_features(q, features);
	if (!ret)
		ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_FLUSH, 0, NULL, 0);
	if (ret)
		return err_set_errno(err, ret, "'%s': the header could not be written", q->node->filename);
	memset(q->h.backing_file, 0, sizeof(q->h.backing_file));
	memcpy(q->h.backing_file, file ? file : "", len);
	return 0;
}
