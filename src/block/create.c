// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * New images. A qcow2 image begins with its header, the refcount table, one or
 * more refcount blocks that cover these, and the L1 table, which is all zeros.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "block/image.h"
#include "block/qcow2.h"
#include "block/qed.h"

/* Clusters of the parts, in the order they stand in the file. */
struct layout {
	uint32_t cluster_bits, order, l1_size;
	uint64_t table, blocks, l1; /* clusters each */
};

static int plan(const struct block_create *c, struct layout *p, struct err *err)
{
	const uint32_t size = c->cluster_size ? c->cluster_size : 65536,
		       bits = c->refcount_bits ? c->refcount_bits : 16;
	uint64_t l1, per_block, per_table;

	if (size & (size - 1) || size < 512 || size > 2 * MIB)
		return err_set(err, -EINVAL, "%s: Cluster size must be a power of two between 512 and 2048k",
			       c->filename);
	if (bits & (bits - 1) || bits > 64)
		return err_set(err, -EINVAL, "%s: Refcount width must be a power of two and may not exceed 64 bits",
			       c->filename);
	if (c->extended_l2 && size < 16384)
		return err_set(err, -EINVAL,
			       "%s: Extended L2 entries are only supported with cluster sizes of at least "
			       "16384 bytes",
			       c->filename);
	if (c->version == 2 && (bits != 16 || c->zstd || c->lazy_refcounts || c->extended_l2))
		return err_set(
		    err, -EINVAL,
		    "%s: refcount_bits, compression_type=zstd, lazy_refcounts and extended_l2 need compat=1.1",
		    c->filename);
	p->cluster_bits = (uint32_t)__builtin_ctz(size);
	p->order = (uint32_t)__builtin_ctz(bits);
	per_table = (uint64_t)size * (size / (c->extended_l2 ? 16 : 8));
	l1 = (c->size + per_table - 1) / per_table;
	if (c->size > INT64_MAX - (1ull << 50) || l1 > QCOW2_MAX_L1_BYTES / 8)
		return err_set(err, -EFBIG, "%s: the image is too large for clusters of %u bytes", c->filename, size);
	p->l1_size = (uint32_t)MAX(l1, 1u); /* a disk of no bytes too: its cluster is there */
	p->l1 = MAX((l1 * 8 + size - 1) / size, 1u);
	p->table = 1;
	per_block = (uint64_t)size * 8 / bits;
	p->blocks = 1;
	/* The table has room for the blocks, and the blocks count everything. */
	while (p->blocks * per_block < 1 + p->table + p->blocks + p->l1 || p->table * (size / 8) < p->blocks) {
		p->blocks = (1 + p->table + p->blocks + p->l1 + per_block - 1) / per_block;
		p->table = (p->blocks + size / 8 - 1) / (size / 8);
	}
	return 0;
}

static size_t put_extension(uint8_t *h, size_t at, uint32_t type, const char *text)
{
	st32be(h + at, type);
	st32be(h + at + 4, (uint32_t)strlen(text));
	memcpy(h + at + 8, text, strlen(text));
	return at + 8 + ALIGN_UP(strlen(text), 8);
}

/* h: one cluster of zeros. */
static int fill_header(const struct block_create *c, const struct layout *p, uint8_t *h, struct err *err)
{
	const uint32_t version = c->version ? c->version : 3, length = version == 2 ? QCOW2_V2_HEADER_SIZE : 112;
	const size_t backing = c->backing_file ? strlen(c->backing_file) : 0;
	size_t at = length;

	st32be(h, QCOW2_MAGIC);
	st32be(h + QCOW2_H_VERSION, version);
	st32be(h + QCOW2_H_CLUSTER_BITS, p->cluster_bits);
	st64be(h + QCOW2_H_SIZE, c->size);
	st32be(h + QCOW2_H_L1_SIZE, p->l1_size);
	st64be(h + QCOW2_H_L1_TABLE_OFFSET, (1 + p->table + p->blocks) << p->cluster_bits);
	st64be(h + QCOW2_H_REFCOUNT_TABLE_OFFSET, 1ull << p->cluster_bits);
	st32be(h + QCOW2_H_REFCOUNT_TABLE_CLUSTERS, (uint32_t)p->table);
	if (version == 3) {
		st64be(h + QCOW2_H_INCOMPATIBLE,
		       (c->zstd ? QCOW2_INCOMPAT_COMPRESSION : 0) | (c->extended_l2 ? QCOW2_INCOMPAT_EXTENDED_L2 : 0));
		st64be(h + QCOW2_H_COMPATIBLE, c->lazy_refcounts ? QCOW2_COMPAT_LAZY : 0);
		st32be(h + QCOW2_H_REFCOUNT_ORDER, p->order);
		st32be(h + QCOW2_H_HEADER_LENGTH, length);
		h[QCOW2_H_COMPRESSION_TYPE] = c->zstd;
	}
	if (!backing)
		return 0;
	if (backing > 1023 || at + 24 + strlen(c->backing_format) + backing > 1u << p->cluster_bits)
		return err_set(err, -EINVAL, "%s: the backing file's name is too long for the header", c->filename);
	at = put_extension(h, at, QCOW2_EXT_BACKING_FMT, c->backing_format) + 8; /* and the end of extensions */
	st64be(h + QCOW2_H_BACKING_OFFSET, at);
	st32be(h + QCOW2_H_BACKING_SIZE, (uint32_t)backing);
	memcpy(h + at, c->backing_file, backing);
	return 0;
}

static int put(int fd, const void *buf, size_t len, uint64_t offset)
{
	ssize_t n = pwrite(fd, buf, len, (off_t)offset);

	return n < 0 ? -errno : (size_t)n < len ? -ENOSPC : 0;
}

static int write_qcow2(int fd, const struct block_create *c, const struct layout *p, struct err *err)
{
	const uint64_t size = 1ull << p->cluster_bits, used = 1 + p->table + p->blocks + p->l1;
	uint8_t *h = calloc(1, size), *t = calloc(p->table + p->blocks, size);
	int ret = h && t ? fill_header(c, p, h, err) : -ENOMEM;

	for (uint64_t i = 0; i < p->blocks && !ret; i++)
		st64be(t + i * 8, (1 + p->table + i) << p->cluster_bits);
	/* The blocks are contiguous, so they are one long array of refcounts. */
	for (uint64_t i = 0; i < used && !ret; i++)
		qcow2_refcount_store(t + p->table * size, p->order, i, 1);
	if (!ret)
		ret = put(fd, h, size, 0);
	if (!ret)
		ret = put(fd, t, (p->table + p->blocks) * size, size);
	if (!ret && ftruncate(fd, (off_t)(used * size)) < 0)
		ret = -errno;
	free(h);
	free(t);
	return ret ? err_set_errno(err, ret, "%s: could not be written", c->filename) : 0;
}

static int write_zeros(int fd, const struct block_create *c, struct err *err)
{
	uint8_t *buf = calloc(1, MIB);
	int ret = buf ? 0 : -ENOMEM;

	for (uint64_t at = 0; at < c->size && !ret; at += MIB)
		ret = put(fd, buf, (size_t)MIN(MIB, c->size - at), at);
	free(buf);
	return ret ? err_set_errno(err, ret, "%s: Could not preallocate data for the new file", c->filename) : 0;
}

/* Space for all of it: through the driver, on the finished image. */
static int preallocate(const struct block_create *c, struct err *err)
{
	const struct block_open o = {
	    .filename = c->filename, .format = c->format, .writeback = true, .no_backing = true, .aio = AIO_SYNC};
	struct loop *l = loop_create("create", err);
	struct block_node *n = l ? block_open(&o, l, err) : NULL;
	int ret = n ? 0 : err->code ? err->code : -EIO;

	if (n)
		ret = qcow2_preallocate(n, c->prealloc, err);
	block_close(n);
	if (l)
		loop_destroy(l);
	return ret;
}

/* What is there already, and cannot be made or grow: large enough? */
static int create_on_store(const struct block_create *c, struct err *err)
{
	struct block_open o = {.filename = c->filename, .format = "raw", .writeback = true, .read_only = true};
	struct loop *l;
	struct block_node *n;
	int ret = 0;

	if (strcmp(c->format, "raw") != 0)
		return err_set(err, -ENOTSUP,
			       "%s: only raw images can be made on a device or a remote store; make it in a file and "
			       "convert -n",
			       c->filename);
	l = loop_create("create", err);
	n = l ? block_open(&o, l, err) : NULL;
	if (!n)
		ret = err && err->code ? err->code : -EIO;
	else if (block_size(n) < c->size)
		ret = err_set(err, -ENOSPC, "%s: has %llu bytes, too few for an image of %llu", c->filename,
			      (unsigned long long)block_size(n), (unsigned long long)c->size);
	block_close(n);
	if (l)
		loop_destroy(l);
	return ret;
}

static int check_prealloc(const struct block_create *c, bool qcow2, struct err *err)
{
	if (c->prealloc == BLOCK_PREALLOC_OFF)
		return 0;
	if (c->prealloc == BLOCK_PREALLOC_METADATA && !qcow2)
		return err_set(err, -EINVAL, "%s: images of format '%s' have no metadata to preallocate", c->filename,
			       c->format);
	if (c->backing_file && !c->extended_l2)
		return err_set(err, -EINVAL,
			       "%s: Backing file and preallocation can only be used at the same time if extended_l2 is "
			       "enabled",
			       c->filename);
	return 0;
}

int block_create(const struct block_create *c, struct err *err)
{
	struct stat st;

	const bool qcow2 = strcmp(c->format, "qcow2") == 0, qed = strcmp(c->format, "qed") == 0;
	const bool raw = strcmp(c->format, "raw") == 0;
	struct layout p = {0};
	int fd, ret = 0;

	if (!qcow2 && !qed && !raw)
		return err_set(err, -ENOTSUP, "%s: images of format '%s' cannot be made (raw, qcow2 and qed can)",
			       c->filename, c->format);
	if (raw && c->backing_file)
		return err_set(err, -ENOTSUP, "%s: Backing file not supported for file format 'raw'", c->filename);
	if (block_file_is_remote(c->filename) || (raw && stat(c->filename, &st) == 0 && S_ISBLK(st.st_mode)))
		return create_on_store(c, err);
	ret = check_prealloc(c, qcow2, err);
	if (!ret && qcow2)
		ret = plan(c, &p, err);
	if (ret)
		return ret;
	fd = open(c->filename, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
	if (fd < 0)
		return err_set_errno(err, -errno, "%s: could not be made", c->filename);
	/* Before its contents go: is somebody using it? */
	ret = block_lock_acquire(fd, false, c->filename, err);
	if (!ret && (ftruncate(fd, 0) < 0 || (raw && ftruncate(fd, (off_t)c->size) < 0)))
		ret = err_set_errno(err, -errno, "%s: could not be resized", c->filename);
	if (!ret && qcow2)
		ret = write_qcow2(fd, c, &p, err);
	if (!ret && qed)
		ret = qed_create(fd, c, err);
	if (!ret && raw && c->prealloc == BLOCK_PREALLOC_FALLOC && c->size) {
		ret = -posix_fallocate(fd, 0, (off_t)c->size);
		if (ret)
			err_set_errno(err, ret, "%s: Could not preallocate data for the new file", c->filename);
	}
	if (!ret && raw && c->prealloc == BLOCK_PREALLOC_FULL)
		ret = write_zeros(fd, c, err);
	close(fd);
	return !ret && qcow2 && c->prealloc ? preallocate(c, err) : ret;
}
