// SPDX-License-Identifier: GPL-2.0-or-later
/* The table of workloads. */
#include "lab/workload.h"
#include <string.h>
#include "base/util.h"

static const struct workload table[] = {
    {"boot", "start the machine and reach init", WORKLOAD_NO_HOST | WORKLOAD_BOOT, {{0}}},
    {"cpu",
     "programs that compute or call the kernel",
     0,
     {{"programs", "sha256 memcpy nbody syscall forkexec pipe", "of guest/bench, in this order"}}},
    {"idle", "do nothing; what does the monitor use?", WORKLOAD_NO_HOST, {{"seconds", "10", "how long"}}},
    {"fio",
     "fio jobs on the raw disk",
     WORKLOAD_DISK | WORKLOAD_ROOT,
     {{"jobs", "write:1m:4 read:1m:4 randread:4k:1 randwrite:4k:1 randread:4k:16 randwrite:4k:16",
       "KIND:BLOCKSIZE:DEPTH"},
      {"seconds", "5", "for each job"},
      {"size", "100%", "of the disk that is used"},
      {"direct", "1", "1: past the guest's page cache"}}},
    {"fsync",
     "append 4 KiB and fdatasync, many times",
     WORKLOAD_DISK | WORKLOAD_ROOT | WORKLOAD_FILES,
     {{"count", "500", "how many times"}}},
    {"io-write",
     "unpack a source tree and sync",
     WORKLOAD_DISK | WORKLOAD_ROOT | WORKLOAD_SOURCE | WORKLOAD_FILES,
     {{"copies", "4", "of the tree"}}},
    {"io-read",
     "read every file of a source tree",
     WORKLOAD_DISK | WORKLOAD_ROOT | WORKLOAD_SOURCE | WORKLOAD_FILES,
     {{"copies", "4", "of the tree"}, {"again", "0", "1: read them a second time, now cached"}}},
    {"build",
     "make -j of busybox, which builds as the kernel does",
     WORKLOAD_DISK | WORKLOAD_ROOT | WORKLOAD_SOURCE | WORKLOAD_FILES,
     {{"config", "defconfig", "make target that configures it"},
      {"jobs", "2", "make -j"},
      {"goals", "all", "what make makes: all, or folders such as shell/"}}},
};

const struct workload *workload_find(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(table); i++)
		if (!strcmp(table[i].name, name))
			return &table[i];
	return NULL;
}

const struct workload *workload_at(size_t i)
{
	return i < ARRAY_SIZE(table) ? &table[i] : NULL;
}
