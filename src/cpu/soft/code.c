/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which RAM holds code that is cached decoded or translated. One 64-bit map per
 * page, one bit per chunk of 64 bytes, so that data beside code can be written
 * without throwing the code away. A page with any bit set has MEM_PAGE_CODE in
 * mem_map.page_bits, which keeps it out of every write TLB.
 *
 * Order that makes it safe between vCPUs: a reader notes the bytes (bits set,
 * write entries dropped), takes the generation, THEN reads the code. A writer
 * stores, THEN calls code_written, which bumps the generation. Whichever order
 * the two meet in, stale decoded code has an old generation.
 *
 * A plain store of another vCPU that looked its page up in the TLB just before
 * the page was protected, and lands after the code was read, is not seen here:
 * codesync.c looks for those.
 *
 * Locking: one of CODE_LOCKS mutexes per page (hashed). The translator is told
 * under it (its link_lock is the leaf): told later, a vCPU whose store came in
 * between would find nothing to invalidate and run what is not dead yet. Write
 * entries are dropped, native processes stopped and the bytes hashed for
 * codesync.c under it too: a second reader, who finds the bits set already, has
 * to wait until nobody can store past them, and may not read before the hash is
 * made. (native_cpu.lock and codesync's are leaves; who is waited for is in guest
 * code and takes none of these.)
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "cpu/soft/native.h"

#define CODE_CHUNK_SHIFT 6
_Static_assert(CODE_CHUNK == 1u << CODE_CHUNK_SHIFT && PAGE_SIZE / CODE_CHUNK == 64, "one bit per chunk in 64 bits");
#define CODE_LOCKS 64

/* Absent from programs that link the interpreter alone (tests). */
extern __typeof__(jit_page_invalidated) jit_page_invalidated __attribute__((weak));

struct code_map {
	uint64_t pages;
	uint64_t *chunks; /* one map per page */
	pthread_mutex_t lock[CODE_LOCKS];
};

static struct code_map *map_of(const struct accel *a)
{
	return ((const struct soft_accel *)(const void *)a)->code;
}

static uint64_t chunk_mask(unsigned off, unsigned len)
{
	unsigned first = off >> CODE_CHUNK_SHIFT, last = (off + len - 1) >> CODE_CHUNK_SHIFT;

	return (~0ull << first) & (~0ull >> (63 - last));
}

uint32_t code_note(struct soft_cpu *c, uint64_t page_index, unsigned off, unsigned len)
{
	struct mem_map *m = c->v.accel->cfg.mem;
	struct code_map *cm = map_of(c->v.accel);
	uint64_t mask = chunk_mask(off, MIN(len, (unsigned)PAGE_SIZE - off)), fresh;
	pthread_mutex_t *lock = &cm->lock[page_index % CODE_LOCKS];
	uint32_t gen;

	BUG_ON(page_index >= cm->pages);
	pthread_mutex_lock(lock);
	fresh = mask & ~cm->chunks[page_index];
	if (fresh) {
		cm->chunks[page_index] |= mask;
		if (!(__atomic_fetch_or(&m->page_bits[page_index], MEM_PAGE_CODE, __ATOMIC_SEQ_CST) & MEM_PAGE_CODE))
			mmu_protect_page(c->v.accel, page_index);
	}
	/* The writer's bump is under the lock: bytes read from here on are at least this generation's. */
	gen = __atomic_load_n(&m->page_code_gen[page_index], __ATOMIC_SEQ_CST);
	if (fresh)
		codesync_note(c->v.accel, page_index, fresh);
	pthread_mutex_unlock(lock);
	return gen;
}

void code_written(void *opaque, uint64_t page_index, unsigned off, unsigned len)
{
	struct accel *a = opaque;
	struct mem_map *m = a->cfg.mem;
	struct code_map *cm = map_of(a);
	pthread_mutex_t *lock = &cm->lock[page_index % CODE_LOCKS];
	bool hit, native = false;

	if (!len || page_index >= cm->pages)
		return;
	pthread_mutex_lock(lock);
	hit = cm->chunks[page_index] & chunk_mask(off, MIN(len, (unsigned)PAGE_SIZE - off));
	if (hit) {
		__atomic_fetch_add(&m->page_code_gen[page_index], 1, __ATOMIC_SEQ_CST);
		/* While its blocks live the page keeps its bit: another vCPU's store waits here, and then finds them
		 * dead. */
		if (((struct soft_accel *)(void *)a)->jit && jit_page_invalidated)
			jit_page_invalidated(a, page_index);
		/* Everything of the page is noted again when it is next used; until then writes are fast. */
		cm->chunks[page_index] = 0;
		native = __atomic_fetch_and(&m->page_bits[page_index], (uint8_t) ~(MEM_PAGE_CODE | MEM_PAGE_NATIVE_X),
					    __ATOMIC_SEQ_CST) &
			 MEM_PAGE_NATIVE_X;
	}
	pthread_mutex_unlock(lock);
	if (native)
		native_code_written(a);
}

int code_init(struct accel *a, struct err *err)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)a;
	struct mem_map *m = a->cfg.mem;
	struct code_map *cm = calloc(1, sizeof(*cm));

	if (!cm)
		return err_set(err, -ENOMEM, "soft: no memory for the code map");
	for (unsigned k = 0; k < m->nblocks; k++)
		cm->pages = MAX(cm->pages, m->block[k].page0 + (m->block[k].size >> PAGE_SHIFT));
	/* Reserved, not touched: only pages with code cost memory. */
	cm->chunks = mmap(NULL, MAX(cm->pages, 1ull) * sizeof(uint64_t), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (cm->chunks == MAP_FAILED) {
		int ret = err_set_errno(err, -errno, "soft: cannot map the code map of %llu pages",
					(unsigned long long)cm->pages);

		free(cm);
		return ret;
	}
	for (unsigned k = 0; k < CODE_LOCKS; k++)
		pthread_mutex_init(&cm->lock[k], NULL);
	sa->code = cm;
	m->code_written = code_written;
	m->code_opaque = a;
	return 0;
}

void code_fini(struct accel *a)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)a;
	struct code_map *cm = sa->code;

	if (!cm)
		return;
	a->cfg.mem->code_written = NULL;
	munmap(cm->chunks, MAX(cm->pages, 1ull) * sizeof(uint64_t));
	for (unsigned k = 0; k < CODE_LOCKS; k++)
		pthread_mutex_destroy(&cm->lock[k]);
	free(cm);
	sa->code = NULL;
}
