/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guest-physical memory: RAM blocks, the address map with memory-mapped device
 * regions, checked access for devices (DMA), and per-page bits.
 *
 * RAM is one host mapping per block, fixed for the machine's life, so a host
 * pointer into RAM stays valid. The device part of the map is a sorted flat
 * array, republished whole when a region moves and read under RCU; vCPUs keep a
 * hint to the last region they hit.
 */
#ifndef KELVIN_MEM_MEM_H
#define KELVIN_MEM_MEM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include "base/err.h"

#define PAGE_SHIFT 12
#define PAGE_SIZE  4096ull
#define PAGE_MASK  (~(PAGE_SIZE - 1))

/* Guest data has any alignment; each access is still one host instruction. */
typedef uint16_t guest_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t guest_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t guest_u64 __attribute__((aligned(1), may_alias));

/* ---- device regions -------------------------------------------------- */

/*
 * Handlers get offsets into the region, never absolute addresses, and only
 * sizes within min..max (1, 2, 4 or 8): the dispatcher splits larger accesses
 * and, unless `exact` is set, widens smaller ones by read-and-extract (reads)
 * or passes them through (writes). Called with *lock held.
 */
struct region_ops {
	uint64_t (*read)(void *opaque, uint64_t off, unsigned size);
	void (*write)(void *opaque, uint64_t off, uint64_t val, unsigned size);
	uint8_t min_size, max_size; /* 0 = 1 and 8 (memory) or 1 and 4 (ports) */
};

/*
 * A write to this region with this size (0 = any) and, if `match`, this value
 * rings a doorbell: KVM can turn it into an eventfd signal (ioeventfd) without
 * leaving the kernel. The software engine just calls region_ops.write.
 */
struct region_doorbell {
	uint64_t off;
	unsigned size;
	bool match;
	uint64_t value;
	int fd;
	struct region_doorbell *next;
};

struct mem_region {
	const char *name;
	uint64_t size;
	const struct region_ops *ops;
	void *opaque;
	pthread_mutex_t *lock; /* taken around each handler call; NULL for lock-free ones */
	struct region_doorbell *doorbells;
	/* the map's: */
	uint64_t addr;
	bool mapped;
	int priority; /* higher wins where regions overlap; RAM is 0 and loses a tie */
	struct mem_region *map_next;
};

/*
 * One access to a region with the rules of region_ops, its lock taken: for
 * whoever dispatches (the map, ports). off + size within the region, size 1 to 8.
 */
uint64_t mem_region_read(const struct mem_region *r, uint64_t off, unsigned size);
void mem_region_write(const struct mem_region *r, uint64_t off, uint64_t val, unsigned size);

/* ---- the map --------------------------------------------------------- */

enum mem_page_bits {
	MEM_PAGE_CODE = 1,	/* decoded or translated code of this page exists: writers must invalidate */
	MEM_PAGE_DIRTY = 2,	/* written since the dirty log was last read (only kept while logging) */
	MEM_PAGE_TLB = 4,	/* the software CPU's: a vCPU may hold a write entry for the page */
	MEM_PAGE_NATIVE = 8,	/* ... and a process of native ring 3 may map it writable */
	MEM_PAGE_NATIVE_X = 16, /* ... may map it executable */
};

struct ram_block {
	char name[32];
	uint64_t gpa, size; /* bytes, page aligned */
	uint8_t *host;
	int fd;		    /* -1 when anonymous */
	uint64_t fd_offset; /* of the block in it */
	bool shared;	    /* what is written reaches the file */
	uint64_t page0;	    /* index of the first page in mem_map.page_bits */
	bool readonly;	    /* ROM: guest writes are dropped */
};

struct ram_config {
	uint64_t size;	  /* bytes in all */
	const char *path; /* -mem-path: file or folder (hugetlbfs, tmpfs); NULL = anonymous.
			   * No file that Kelvin creates there has a name once mem_add_ram returns. */
	bool prealloc, share, merge, dump;
};

/* Called for every change of the map, after the new map is published (KVM slots, TLB flushes). */
struct mem_listener {
	void (*changed)(void *opaque);
	void *opaque;
	struct mem_listener *next;
};

#define MEM_MAX_BLOCKS 8
struct mem_view; /* the published flat array */

struct mem_map {
	struct ram_block block[MEM_MAX_BLOCKS];
	unsigned nblocks;
	uint64_t pages;		 /* RAM pages of all blocks */
	uint8_t *page_bits;	 /* one per RAM page, atomically updated; enum mem_page_bits */
	uint32_t *page_code_gen; /* one per RAM page: bumped each time code of the page is invalidated */
	_Atomic bool dirty_logging;
	_Atomic bool a20_off;  /* the software CPU's accesses see address bit 20 as 0 */
	struct mem_view *view; /* RCU */
	pthread_mutex_t update_lock;
	struct mem_region *regions; /* all mapped ones */
	uint64_t file_used;	    /* bytes of -mem-path's file that earlier blocks took */
	struct mem_listener *listeners;
	/* The CPU engine's: code of RAM page `page` (index into page_bits), bytes off..off+len of
	 * it, was written. Called by every writer that finds MEM_PAGE_CODE. Any thread. */
	void (*code_written)(void *opaque, uint64_t page, unsigned off, unsigned len);
	void *code_opaque;
};

int mem_init(struct mem_map *m, struct err *err);
void mem_fini(struct mem_map *m);
/*
 * Add RAM at gpa. Anonymous memory is private, aligned to 2 MiB, MADV_HUGEPAGE.
 * Errors name the path, the bytes wanted and free. -ENOMEM, -ENOSPC, ...
 * A named file is shared out to the blocks in the order of the calls. Before
 * vCPUs run. A block that overlaps an earlier one hides it.
 */
int mem_add_ram(struct mem_map *m, const char *name, uint64_t gpa, uint64_t size, const struct ram_config *cfg,
		bool readonly, struct err *err);

/* Map, move (map again) or unmap a device region. Waits until no reader uses the old map. Any
 * thread, but not while holding a device lock that a vCPU may wait for inside a region handler
 * ... except the caller's own: the wait is for RCU readers, which never block on device locks. */
void mem_map_region(struct mem_map *m, struct mem_region *r, uint64_t addr, int priority);
void mem_unmap_region(struct mem_map *m, struct mem_region *r);
/* Calls l->changed once at once. */
void mem_add_listener(struct mem_map *m, struct mem_listener *l);
void mem_remove_listener(struct mem_map *m, struct mem_listener *l);

/* The A20 gate. CPUs see the change at their next look at requests. KVM has no such thing. Any thread. */
void mem_set_a20(struct mem_map *m, bool on);

/* ---- lookups --------------------------------------------------------- */

/* Host pointer of RAM at gpa with at least len bytes contiguous, or NULL. Any thread, no locks. */
uint8_t *mem_ram_ptr(const struct mem_map *m, uint64_t gpa, uint64_t len);
/* The block that holds gpa, or NULL. */
const struct ram_block *mem_ram_block(const struct mem_map *m, uint64_t gpa);
/* The block that has the host's address, or NULL. Any thread, no locks. */
const struct ram_block *mem_block_of_host(const struct mem_map *m, const void *host);
/* page_bits index of a RAM gpa; UINT64_MAX when it is not RAM. */
uint64_t mem_page_index(const struct mem_map *m, uint64_t gpa);
/* The host's address of a page by its page_bits index, or NULL. Any thread, no locks. */
uint8_t *mem_page_host(const struct mem_map *m, uint64_t page);

/*
 * A CPU's access to anything (RAM or device) of 1, 2, 4 or 8 bytes; may cross
 * pages and regions. Unclaimed reads give all ones. mem_read/mem_write never
 * fail. They take region locks, never the caller's.
 */
uint64_t mem_read(struct mem_map *m, uint64_t gpa, unsigned size);
void mem_write(struct mem_map *m, uint64_t gpa, uint64_t val, unsigned size);
/* True when gpa is RAM or ROM (so that a CPU may cache a pointer). */
bool mem_is_ram(const struct mem_map *m, uint64_t gpa);
/* Walk the map for `info mtree` and KVM: calls fn for each flat range, in order. */
void mem_walk(struct mem_map *m,
	      void (*fn)(void *arg, uint64_t addr, uint64_t size, const struct ram_block *ram,
			 const struct mem_region *region),
	      void *arg);

/* ---- DMA: devices, to and from RAM only ------------------------------ */

/* Copy; -EFAULT when any byte is not RAM (nothing is copied then). Writes honour page bits. */
int dma_read(struct mem_map *m, uint64_t gpa, void *buf, uint64_t len);
int dma_write(struct mem_map *m, uint64_t gpa, const void *buf, uint64_t len);
/*
 * Turn a guest range into host iovecs for zero-copy I/O: appends to iov (at most
 * max entries; *n is in and out). -EFAULT not RAM, -ENOSPC too many pieces.
 * With `write` (the device will write guest memory) call dma_end for the range
 * when the data is in place: it marks pages dirty and invalidates code.
 */
int dma_begin(struct mem_map *m, uint64_t gpa, uint64_t len, bool write, struct iovec *iov, int *n, int max);
void dma_end(struct mem_map *m, uint64_t gpa, uint64_t len);
/* Same bookkeeping for a writer that holds a host pointer into RAM. */
void mem_mark_written(struct mem_map *m, const void *host, uint64_t len);

/*
 * RAM of the range goes back to the host and reads as zeros from now on (a private mapping of a file: as the file).
 * What is no whole page of writable RAM is left alone. Any thread; the range may be in use.
 */
void mem_discard(struct mem_map *m, uint64_t gpa, uint64_t len);
/* All of it inside one block. False: the host did not take it (locked or large pages), and it is as it was. */
bool mem_discard_host(struct mem_map *m, uint8_t *host, uint64_t len);

/* Read the dirty bit of a page and clear it (after accel_ops.sync_dirty). */
bool mem_dirty_test_clear(struct mem_map *m, uint64_t page);

/* ---- dirty log -------------------------------------------------------- */
void mem_dirty_start(struct mem_map *m);
void mem_dirty_stop(struct mem_map *m);

#endif
