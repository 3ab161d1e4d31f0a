/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What every disk controller does when the host's I/O fails: -drive's werror= and
 * rerror= decide whether the guest hears of it, or the machine stops with the
 * request kept, to be tried again when it goes on.
 *
 * Thread: that of the drive's loop, without dev.lock.
 */
#ifndef KELVIN_HW_DISK_H
#define KELVIN_HW_DISK_H

#include "block/block.h"
#include "bus/dev.h"

/* Embedded in a controller's request: its place among those set aside. */
struct disk_failed {
	struct disk_failed *next;
};

struct disk_errors {
	struct bus *bus;
	struct drive *drive;
	struct disk_failed *first, **tail;
	uint64_t set_aside; /* counter */
};

enum disk_verdict {
	DISK_OK,     /* done, or the failure is to be ignored */
	DISK_REPORT, /* tell the guest */
	DISK_ASIDE,  /* kept, and the machine was asked to stop */
};

void disk_errors_init(struct disk_errors *e, struct bus *bus, struct drive *drive);
/* A request ended with `result` (0 or -errno). DISK_ASIDE: `f` is in the list until disk_errors_take. */
enum disk_verdict disk_error(struct disk_errors *e, struct disk_failed *f, enum block_op op, int result);
/* All that were set aside, oldest first: submit them again, or end them. */
struct disk_failed *disk_errors_take(struct disk_errors *e);

/* What disk devices share of their properties: block sizes as powers of two, 512 to 2 MiB. */
int disk_check_block_sizes(uint32_t logical, uint32_t physical, struct err *err);

#endif
