/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inside the block layer: a node is a format driver over a `struct block_file`
 * (the protocol: a file or block device of the host). Formats submit to the
 * file and complete requests with block_complete.
 */
#ifndef KELVIN_BLOCK_DRIVER_H
#define KELVIN_BLOCK_DRIVER_H

#include "block/block.h"

struct block_extent;
struct block_image_info;

struct block_driver {
	const char *name;
	/* n->file is open; sets n->size and n->private_data. */
	int (*open)(struct block_node *n, const struct block_open *o, struct err *err);
	void (*close)(struct block_node *n);
	/* A checked request: within the size, allowed, iov consistent. */
	void (*submit)(struct block_node *n, struct block_req *req);
	/* Any of the following may be NULL. Contracts: block.h. */
	/* Of files besides n->file and the backing node; n->loop is still the old one. */
	int (*set_loop)(struct block_node *n, struct loop *l, struct err *err);
	int (*truncate)(struct block_node *n, uint64_t size, enum block_prealloc p, struct err *err);
	int (*make_empty)(struct block_node *n, struct err *err);
	int (*change_backing)(struct block_node *n, const char *file, const char *format, struct err *err);
	int (*amend)(struct block_node *n, const struct block_amend *a, struct err *err);
	int (*snapshot_list)(struct block_node *n, const struct block_snapshot **out, unsigned *nr, struct err *err);
	int (*snapshot_create)(struct block_node *n, const struct block_snapshot *want, struct err *err);
	int (*snapshot_apply)(struct block_node *n, const char *which, struct err *err);
	int (*snapshot_delete)(struct block_node *n, const char *which, struct err *err);
	int (*vmstate_write)(struct block_node *n, const void *buf, uint64_t pos, uint64_t len, struct err *err);
	int (*vmstate_drop)(struct block_node *n, struct err *err);
	int (*vmstate_read)(struct block_node *n, const char *which, void *buf, uint64_t pos, uint64_t len,
			    struct err *err);
	int (*check)(struct block_node *n, unsigned fix, struct block_check *c, struct err *err);
	/* The run at `offset`; where a run is not `present`, the backing file is asked next. NULL: as the file says. */
	int (*map)(struct block_node *n, uint64_t offset, uint64_t len, struct block_extent *e);
	void (*info)(const struct block_node *n, struct block_image_info *info);
	bool compresses; /* takes BLOCK_COMPRESS */
};

struct block_node {
	const struct block_driver *driver;
	struct block_file *file;
	struct block_node *backing; /* what an overlay shows where it has no data; the driver's to open and close */
	struct loop *loop;
	char *filename;
	uint64_t size; /* bytes, a multiple of 512 */
	bool read_only, writeback, no_flush, discard_unmap;
	bool probed; /* the format was guessed: raw then guards sector 0 */
	enum block_detect_zeroes detect_zeroes;
	unsigned inflight;
	struct block_throttle *throttle; /* NULL: no limits */
	void *private_data;
	struct block_stats stats;
};

extern const struct block_driver block_raw_driver, block_qcow2_driver, block_qed_driver;

/* A checked request that no limit holds (any more) to the driver. */
void block_pass(struct block_node *n, struct block_req *req);

/* End a request: counts it, calls done. `ret` is 0 or -errno. */
void block_complete(struct block_node *n, struct block_req *req, int ret);

/* ---- backing.c --------------------------------------------------------- */

#define BLOCK_MAX_CHAIN 64u
/*
 * Opens n->backing as the header of n says (`file` "": none). Without a format only raw is believed, as another
 * could be a guest's doing, unless the overlay's format says so (`probe`).
 */
int block_open_backing(struct block_node *n, const struct block_open *o, const char *file, const char *format,
		       bool probe, struct err *err);

/* ---- wait.c ------------------------------------------------------------ */

/* One operation to its end: a coroutine waits, other callers run the loop. `may_unmap`: zeroes and discards may free.
 */
int block_file_wait(struct block_file *f, struct loop *l, enum block_op op, bool may_unmap, uint64_t offset,
		    uint64_t len, const struct iovec *iov, int niov);
int block_file_wait_buf(struct block_file *f, struct loop *l, enum block_op op, uint64_t offset, void *buf,
			uint64_t len);
/* What the backing chain of n has there, zeros past its end. `iov` is consumed. */
int block_read_backing(struct block_node *n, uint64_t offset, struct iovec *iov, int niov, uint64_t len);

/* probe.c: the format whose header `buf` looks like, "raw" when none. */
#define BLOCK_PROBE_SIZE 512
const char *block_probe(const uint8_t *buf, size_t len);
/* True for format names of QEMU's that Kelvin knows of but cannot open. */
bool block_format_known(const char *name);

/* lock.c: QEMU's image locks on fd (fcntl OFD read locks). Errors name the image and its holder. */
int block_lock_acquire(int fd, bool read_only, const char *filename, struct err *err);

/* ---- file.c ------------------------------------------------------------ */

struct block_file;
/* Parses "file:" and refuses other protocols by name. */
int block_file_open(struct block_file **out, const struct block_open *o, struct loop *l, struct err *err);
void block_file_close(struct block_file *f);					/* idle */
int block_file_set_loop(struct block_file *f, struct loop *l, struct err *err); /* idle */
uint64_t block_file_size(const struct block_file *f);				/* bytes, exact */
uint32_t block_file_alignment(const struct block_file *f);
bool block_file_is_device(const struct block_file *f);
/* Does this name a store over the network (or none at all)? */
bool block_file_is_remote(const char *name);
/* Is it the file that `st` describes? */
struct stat;
bool block_file_is(const struct block_file *f, const struct stat *st);
struct aio *block_file_aio(const struct block_file *f);
/* Set the file's length, bytes (blocking); a device must be long enough. */
int block_file_truncate(struct block_file *f, uint64_t size, enum block_prealloc p, struct err *err);
/* Blocking read for headers at open; zeros past the end. */
int block_file_pread(struct block_file *f, void *buf, size_t len, uint64_t offset);

/* Tests: sees each operation before it starts, and may take the place of its completion. */
struct block_file_hook {
	void (*begin)(struct block_file_hook *h, enum block_op op, bool fua, uint64_t offset, uint64_t len,
		      const struct iovec *iov, int niov, void (**done)(void *opaque, int ret), void **opaque);
	void (*truncated)(struct block_file_hook *h, uint64_t size); /* the file has a new length */
	/* The file will be at least so long when *done is called; replaced as in begin. */
	void (*extend)(struct block_file_hook *h, uint64_t size, void (**done)(void *opaque, int ret), void **opaque);
};
void block_file_set_hook(struct block_file *f, struct block_file_hook *h); /* NULL: none; idle */

/*
 * One asynchronous operation. With `fua` a write is followed by fdatasync.
 * done(opaque, ret) runs in the loop's thread, possibly before this returns.
 */
void block_file_submit(struct block_file *f, enum block_op op, bool fua, bool may_unmap, uint64_t offset, uint64_t len,
		       const struct iovec *iov, int niov, void (*done)(void *opaque, int ret), void *opaque);

/* A regular file longer by allocated zeros behind its end, asynchronously. Data in the range, old and new, stays. */
void block_file_extend(struct block_file *f, uint64_t offset, uint64_t len, void (*done)(void *opaque, int ret),
		       void *opaque);

#endif
