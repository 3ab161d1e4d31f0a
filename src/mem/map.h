/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the files of mem/: the published view and how it is read. */
#ifndef KELVIN_MEM_MAP_H
#define KELVIN_MEM_MAP_H

#include "mem/mem.h"

#define MEM_MAX_PAGES (1ull << 28) /* 1 TiB: the per-page arrays are reserved, not allocated, for it */

/* One piece of guest-physical space with one owner: RAM, a device region, or nothing (both NULL). */
struct mem_range {
	uint64_t start, end; /* end is exclusive */
	uint8_t *host;	     /* RAM: the byte at start */
	uint64_t page;	     /* RAM: page_bits index of start */
	const struct ram_block *ram;
	struct mem_region *region;
	uint64_t region_base; /* region->addr when the view was built: the region may be moving already */
};

/* Sorted by start, without overlaps; gaps have no entry. */
struct mem_view {
	unsigned n;
	struct mem_range range[];
};

/* What is at gpa; a gap is reported as a range without owner up to the next one. */
void mem_lookup(const struct mem_map *m, uint64_t gpa, struct mem_range *out);

int mem_publish_block(struct mem_map *m, const struct ram_block *blk, struct err *err);
void mem_ram_free(struct mem_map *m);

/* Page bits after a write of len bytes at page_bits index `page`, byte `off` of that page. */
void mem_mark_pages(struct mem_map *m, uint64_t page, unsigned off, uint64_t len);

#endif
