// SPDX-License-Identifier: GPL-2.0-or-later
/* New QED images: a header cluster and the L1 table, all zeros. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "block/image.h"
#include "block/qed.h"

int qed_create(int fd, const struct block_create *c, struct err *err)
{
	const uint64_t cs = c->cluster_size ? c->cluster_size : QED_DEFAULT_CLUSTER;
	const uint64_t ts = c->table_size ? c->table_size : QED_DEFAULT_TABLE, entries = ts * cs / 8;
	const size_t len = c->backing_file ? strlen(c->backing_file) : 0;
	uint8_t h[QED_H_END + 1024] = {0};
	ssize_t n;

	if (cs & (cs - 1) || cs < QED_MIN_CLUSTER || cs > QED_MAX_CLUSTER)
		return err_set(err, -EINVAL, "%s: QED cluster size must be within range [%u, %u] and power of 2",
			       c->filename, QED_MIN_CLUSTER, QED_MAX_CLUSTER);
	if (ts & (ts - 1) || ts > QED_MAX_TABLE)
		return err_set(err, -EINVAL, "%s: QED table size must be within range [1, %u] and power of 2",
			       c->filename, QED_MAX_TABLE);
	if ((__uint128_t)entries * entries * cs < c->size || c->size > INT64_MAX)
		return err_set(
		    err, -EINVAL,
		    "%s: QED image size must be a non-zero multiple of cluster size and less than %llu bytes",
		    c->filename, (unsigned long long)MIN((__uint128_t)entries * entries * cs, INT64_MAX));
	if (len >= 1024)
		return err_set(err, -EINVAL, "%s: the backing file's name is too long for the header", c->filename);
	st32le(h + QED_H_MAGIC, QED_MAGIC);
	st32le(h + QED_H_CLUSTER_SIZE, (uint32_t)cs);
	st32le(h + QED_H_TABLE_SIZE, (uint32_t)ts);
	st32le(h + QED_H_HEADER_SIZE, 1);
	st64le(h + QED_H_L1_OFFSET, cs);
	st64le(h + QED_H_IMAGE_SIZE, c->size);
	if (len) {
		const bool raw = c->backing_format && strcmp(c->backing_format, "raw") == 0;
		st64le(h + QED_H_FEATURES, QED_F_BACKING | (raw ? QED_F_BACKING_RAW : 0));
		st32le(h + QED_H_BACKING_OFFSET, QED_H_END);
		st32le(h + QED_H_BACKING_SIZE, (uint32_t)len);
		memcpy(h + QED_H_END, c->backing_file, len);
	}
	if (ftruncate(fd, (off_t)(cs * (1 + ts))) < 0)
		return err_set_errno(err, -errno, "%s: could not be resized", c->filename);
	n = pwrite(fd, h, QED_H_END + len, 0);
	if (n != (ssize_t)(QED_H_END + len))
		return err_set_errno(err, n < 0 ? -errno : -ENOSPC, "%s: could not be written", c->filename);
	return 0;
}
