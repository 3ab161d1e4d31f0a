/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What `kelvin img` asks of images beyond reading and writing them. Blocking calls, outside coroutines. */
#ifndef KELVIN_BLOCK_IMAGE_H
#define KELVIN_BLOCK_IMAGE_H

#include "block/block.h"

/* One request to its end: a coroutine waits, other callers run the loop. */
int block_wait(struct block_node *n, enum block_op op, unsigned flags, uint64_t offset, uint64_t len,
	       const struct iovec *iov, int niov);

/*
 * The image that `o` says, read-only, under a temporary overlay: an unlinked file in $TMPDIR or /var/tmp that is gone
 * with the node. `o` has read_only set; the result has not.
 */
struct block_node *block_open_snapshot(const struct block_open *o, struct loop *l, struct err *err);

/* ---- options.c: images by text ---- */
/* cache=NAME into writeback, direct and no_flush. */
int block_set_cache(struct block_open *o, const char *name, struct err *err);
/* aio=NAME; after the cache mode, as native needs O_DIRECT. */
int block_set_aio(struct block_open *o, const char *name, struct err *err);
/*
 * Opens what "driver=qcow2,file.driver=file,file.filename=..." or a JSON object says; `o` has what it does not say.
 * Node names of earlier -blockdev options may stand for file= and backing=.
 */
struct block_node *block_open_text(const char *text, const struct block_open *o, struct loop *l, struct err *err);

/* Where the backing file called `name` in the image `overlay` is: heap. */
char *block_backing_path(const char *overlay, const char *name);

/* A new image. Zero fields take the format's defaults. Strings are the caller's. */
struct block_create {
	const char *filename, *format;
	const char *backing_file, *backing_format; /* as they shall stand in the image */
	uint64_t size;				   /* bytes */
	uint32_t version, cluster_size, refcount_bits, table_size;
	bool lazy_refcounts, zstd, extended_l2;
	enum block_prealloc prealloc;
};
/* Makes or overwrites the file. */
int block_create(const struct block_create *c, struct err *err);

/* Where a run of the disk is. */
struct block_extent {
	uint64_t len;
	bool present, data, zero, compressed, has_host;
	uint64_t host;		       /* offset in the file of `node`, if has_host */
	unsigned depth;		       /* 0: the image itself, 1: its backing file, ... */
	const struct block_node *node; /* whose file it is */
};
int block_map(struct block_node *n, uint64_t offset, uint64_t len, struct block_extent *e);
/* What the image itself has there, whatever its backing file: not `present` where it has nothing. */
int block_map_top(struct block_node *n, uint64_t offset, uint64_t len, struct block_extent *e);
/*
 * Let the host copy `len` bytes of a run that a map gave, `skip` bytes into it, to the disk of `to`. Blocking.
 * -ENOTSUP: not between these; otherwise how many bytes are done, which may be fewer.
 */
int64_t block_copy_range(const struct block_extent *from, uint64_t skip, struct block_node *to, uint64_t offset,
			 uint64_t len);
struct block_node *block_backing(const struct block_node *n); /* NULL: none; the node's */

struct block_image_info {
	bool is_qcow2;
	uint32_t version, cluster_size, refcount_bits;
	bool zstd, lazy_refcounts, corrupt, dirty, extended_l2;
	const char *backing_file, *backing_format; /* "" when there is none; live as long as the node */
};
void block_image_info(const struct block_node *n, struct block_image_info *info);
uint64_t block_host_bytes(const struct block_node *n); /* what the file takes on the host; UINT64_MAX: not known */
/* Does a new image read as zeros? Devices and remote stores keep what they held. */
bool block_new_is_zero(const struct block_node *n);

#endif
