/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by file.c and file_io.c only. */
#ifndef KELVIN_BLOCK_FILE_H
#define KELVIN_BLOCK_FILE_H

#include "block/driver.h"

struct file_op;
struct block_file;

/*
 * A store that is no file of the host. It carries out the operations of aio.h (flush is AIO_FDATASYNC; discard and
 * zeroes are AIO_BLKDISCARD and AIO_BLKZEROOUT, whose `mode` is 1 when zeroes may unmap) at offsets aligned to
 * f->align, completely or with an error: -EOPNOTSUPP for zeroes makes them be written. The loop's thread.
 */
struct block_protocol {
	const char *const *schemes; /* of URLs, without "://"; ends with NULL */
	/* Sets f->size, f->align, f->store and, if the store cannot be written to, f->store_read_only. */
	int (*open)(struct block_file *f, const char *name, const struct block_open *o, struct err *err);
	void (*close)(struct block_file *f); /* idle */
	int (*set_loop)(struct block_file *f, struct loop *l, struct err *err);
	void (*submit)(struct block_file *f, struct aio_req *req);
};
extern const struct block_protocol block_null_protocol, block_nbd_protocol, block_iscsi_protocol;
/* "?key=value&..." of a URL into out; false: not there or too long. %xx is decoded. */
bool block_url_option(const char *url, const char *key, char *out, size_t size);

struct block_file {
	int fd; /* -1: a store of `proto` */
	const struct block_protocol *proto;
	void *store;
	struct loop *loop;
	bool store_read_only;
	bool is_device, direct, no_flush, discard_unmap;
	bool quick_writes;			  /* into the page cache of a local file system */
	bool no_punch, no_zero_range, no_zeroout; /* learnt: the host cannot */
	uint32_t align, mem_align;		  /* of offsets and lengths, of addresses; 1 without O_DIRECT */
	uint64_t size;
	struct aio *aio;
	enum aio_engine engine;		 /* as asked for */
	uint64_t write_gen, flushed_gen; /* a flush with nothing written since the last one is free */
	int flush_error;		 /* after a failed buffered fdatasync the page cache cannot be trusted */
	struct file_op *tracked;	 /* O_DIRECT: modifications in flight */
	struct file_op *waiting, **waiting_tail;
	struct file_op *free_ops;
	struct block_file_hook *hook; /* tests */
};

void block_file_free_ops(struct block_file *f);

#endif
