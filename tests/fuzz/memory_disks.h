/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Drives over files in memory, which each input finds empty. Host I/O is synchronous, so that an input repeats. */
#ifndef KELVIN_TESTS_FUZZ_MEMORY_DISKS_H
#define KELVIN_TESTS_FUZZ_MEMORY_DISKS_H

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "block/block.h"

#define DISK_SIZE (1u << 20)

static int memory_disks[8];
static unsigned nmemory_disks;

/* The drive `id`; opts: more of -drive's options, from their comma on. False and err. */
static bool memory_disk(const char *id, const char *opts, struct loop *l, struct err *err)
{
	char text[200];
	const int fd = memfd_create(id, MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, DISK_SIZE) < 0 || nmemory_disks == ARRAY_SIZE(memory_disks)) {
		err_set(err, -1, "no disk");
		return false;
	}
	memory_disks[nmemory_disks++] = fd;
	snprintf(text, sizeof(text), "if=none,id=%s,format=raw,aio=sync,file.locking=off,file=/proc/self/fd/%d%s", id,
		 fd, opts);
	return drive_create(text, l, err);
}

static bool memory_disks_empty(void)
{
	for (unsigned n = 0; n < nmemory_disks; n++)
		if (ftruncate(memory_disks[n], 0) < 0 || ftruncate(memory_disks[n], DISK_SIZE) < 0)
			return false;
	return true;
}

#endif
