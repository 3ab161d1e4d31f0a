/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory that other processes can map, on huge pages where the host has them. */
#ifndef KELVIN_MEM_SHARED_H
#define KELVIN_MEM_SHARED_H

/*
 * A new, empty file in memory; its length is set by the caller. With MADV_HUGEPAGE its mappings get transparent huge
 * pages if the host can be brought to it. Returns a descriptor (close-on-exec) that the caller owns, or -errno. Any
 * thread; may start a short-lived process.
 */
int shared_memory_file(const char *name);

#endif
