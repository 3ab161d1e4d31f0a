// SPDX-License-Identifier: GPL-2.0-or-later
/* The error policy of disks: see disk.h. The names and defaults are QEMU's. */
#include "hw/disk.h"

#include <errno.h>

#include "base/util.h"

void disk_errors_init(struct disk_errors *e, struct bus *bus, struct drive *drive)
{
	e->bus = bus;
	e->drive = drive;
	e->first = NULL;
	e->tail = &e->first;
}

static enum drive_on_error error_action(const struct drive *drive, bool read, int result)
{
	enum drive_on_error on = read ? drive->rerror : drive->werror;

	if (on == DRIVE_ERROR_AUTO)
		on = read ? DRIVE_ERROR_REPORT : DRIVE_ERROR_ENOSPC;
	if (on == DRIVE_ERROR_ENOSPC)
		on = result == -ENOSPC ? DRIVE_ERROR_STOP : DRIVE_ERROR_REPORT;
	return on;
}

enum disk_verdict disk_error(struct disk_errors *e, struct disk_failed *f, enum block_op op, int result)
{
	const bool read = op == BLOCK_READ;
	enum drive_on_error on;

	if (!result)
		return DISK_OK;
	on = error_action(e->drive, read, result);
	if (on == DRIVE_ERROR_IGNORE)
		return DISK_OK;
	if (on != DRIVE_ERROR_STOP || !e->bus->request)
		return DISK_REPORT;
	f->next = NULL;
	*e->tail = f;
	e->tail = &f->next;
	counter_add(&e->set_aside, 1);
	e->bus->request(e->bus->opaque, VM_IO_STOP, read ? result : -result, e->drive->id);
	return DISK_ASIDE;
}

struct disk_failed *disk_errors_take(struct disk_errors *e)
{
	struct disk_failed *list = e->first;

	e->first = NULL;
	e->tail = &e->first;
	return list;
}

static bool is_power_of_two(uint32_t n)
{
	return n && !(n & (n - 1));
}

int disk_check_block_sizes(uint32_t logical, uint32_t physical, struct err *err)
{
	if (is_power_of_two(logical) && is_power_of_two(physical) && logical >= 512 && physical <= 2 * MIB &&
	    logical <= physical)
		return 0;
	return err_set(err, -EINVAL,
		       "logical_block_size=%u, physical_block_size=%u: must be powers of two from 512 to 2M, "
		       "the logical one not the larger",
		       logical, physical);
}
