/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shared by file.c and file_io.c only. */
#ifndef KELVIN_BLOCK_FILE_H
#define KELVIN_BLOCK_FILE_H

#include "block/driver.h"

struct file_op;

struct block_file {
	int fd;
	bool is_device, direct, no_flush, discard_unmap;
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
};

void block_file_free_ops(struct block_file *f);

#endif
