// SPDX-License-Identifier: GPL-2.0-or-later
/* What people call the settings that an experiment may vary; those not here go by their key. No state. */
#include "lab/words.h"
#include <string.h>
#include "base/util.h"

static const char *const words[][2] = {
    {"accel", "CPU engine"},
    {"cpu", "CPU model"},
    {"disk.size", "size of the disk"},
    {"disk.store", "kind of disk image"},
    {"drive.aio", "way of submitting I/O"},
    {"drive.cache", "cache mode"},
    {"drive.format", "image format"},
    {"drive.if", "disk bus"},
    {"guest.rotational", "guest's view of its disk"},
    {"guest.scheduler", "guest's I/O scheduler"},
    {"host.caches", "host's page cache"},
    {"host.scheduler", "host's I/O scheduler"},
    {"m", "memory"},
    {"mem-path", "backing of the memory"},
    {"smp", "virtual CPUs"},
    {"vmm", "monitor"},
};

const char *words_for(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(words[i][0], key))
			return words[i][1];
	return NULL;
}
