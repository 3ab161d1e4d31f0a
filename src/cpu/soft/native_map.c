/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a native process maps: pages as the guest touches them, with their
 * neighbours where the page tables allow it, until the guest flushes them.
 *
 * A is set on the page that was touched; a neighbour must have it already. D is
 * set when the guest writes; a page without it is mapped read-only. The page
 * tables are only read here but for the touched page, which mmu.c walks, and the
 * one that the guest's kernel has just been asked for (native_map_missed): it gets
 * A, as a processor may set for what it looks at ahead, but never D.
 *
 * The vCPU's thread. A page that becomes code on another vCPU: native_protect_page.
 */
#include "cpu/soft/native.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define RIGHTS	     7ull
#define GONE	     ~RIGHTS /* a slot whose page is unmapped */
#define FIRST_SIZE   1024u
#define MAX_PAGES    40000u /* vm.max_map_count is 65530 by default */
#define AROUND	     16u    /* pages looked at together */
#define AROUND_LARGE 64u    /* of a large page */

/* ---- the table of mapped pages ------------------------------------------------ */

static unsigned slot_of(const struct native_map *m, uint64_t page)
{
	return (unsigned)((page >> PAGE_SHIFT) * 0x9e3779b97f4a7c15ull >> 32) & (m->size - 1);
}

static struct native_page *map_find(const struct native_map *m, uint64_t page)
{
	if (!m->size)
		return NULL;
	for (unsigned i = slot_of(m, page);; i = (i + 1) & (m->size - 1)) {
		struct native_page *p = &m->slot[i];

		if (!p->page)
			return NULL;
		if ((p->page & ~RIGHTS) == page)
			return p;
	}
}

static bool map_grow(struct native_map *m)
{
	struct native_map bigger = {.size = m->size && m->used * 2 < m->size ? m->size : MAX(m->size * 2, FIRST_SIZE)};

	bigger.slot = calloc(bigger.size, sizeof(*bigger.slot));
	if (!bigger.slot)
		return false;
	for (unsigned i = 0; i < m->size; i++) {
		unsigned k;

		if (!m->slot[i].page || m->slot[i].page == GONE)
			continue;
		for (k = slot_of(&bigger, m->slot[i].page & ~RIGHTS); bigger.slot[k].page;
		     k = (k + 1) & (bigger.size - 1))
			;
		bigger.slot[k] = m->slot[i];
		bigger.used++;
	}
	free(m->slot);
	*m = bigger;
	return true;
}

/* The entry of the page, a new one if need be. NULL: no memory. */
static struct native_page *map_enter(struct native_map *m, uint64_t page)
{
	struct native_page *p = map_find(m, page);
	unsigned i;

	if (p)
		return p;
	if ((m->used + m->gone + 1) * 2 > m->size && !map_grow(m))
		return NULL;
	for (i = slot_of(m, page); m->slot[i].page; i = (i + 1) & (m->size - 1))
		;
	m->used++;
	return &m->slot[i];
}

static void map_remove(struct native_map *m, struct native_page *p)
{
	p->page = GONE;
	m->used--;
	m->gone++;
}

void native_map_clear(struct native_map *m)
{
	if (m->used + m->gone)
		memset(m->slot, 0, m->size * sizeof(*m->slot));
	m->used = m->gone = 0;
}

void native_map_free(struct native_map *m)
{
	free(m->slot);
	*m = (struct native_map){0};
}

/* ---- the list of calls ------------------------------------------------------------ */

static int command(struct native_context *x, int64_t nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
		   uint64_t a4, uint64_t a5)
{
	int ret = x->proc.ncommands == NATIVE_COMMANDS ? native_proc_flush(&x->proc) : 0;

	if (!ret)
		native_proc_command(&x->proc, nr, a0, a1, a2, a3, a4, a5);
	return ret;
}

static int unmap(struct native_context *x, uint64_t from, uint64_t to)
{
	return command(x, SYS_munmap, from, to - from, 0, 0, 0, 0);
}

static int unmap_all(struct native_context *x)
{
	uint64_t end = x->proc.stub + 2 * MIB; /* its neighbourhood is never the guest's */
	int ret;

	if (!x->map.used)
		return 0;
	native_map_clear(&x->map);
	ret = unmap(x, 0, x->proc.stub);
	return ret ? ret : unmap(x, end, NATIVE_TOP);
}

static int unmap_page(struct native_context *x, struct native_page *p)
{
	uint64_t page = p->page & ~RIGHTS;

	map_remove(&x->map, p);
	return unmap(x, page, page + PAGE_SIZE);
}

/* ---- what must go -------------------------------------------------------------------- */

static int drop_protected(struct native_context *x, const uint64_t *pages, unsigned n)
{
	int ret = 0;

	for (unsigned i = 0; i < x->map.size && !ret; i++) {
		struct native_page *p = &x->map.slot[i];

		for (unsigned k = 0; k < n && !ret && p->page != GONE && (p->page & NATIVE_W); k++) {
			if (p->index == pages[k])
				ret = unmap_page(x, p);
		}
	}
	return ret;
}

/* Pages that other vCPUs made code of: out of all contexts. */
static int sync_protected(struct soft_cpu *c)
{
	struct native_cpu *n = c->native;
	uint64_t pages[NATIVE_DROPS];
	unsigned count;
	bool all;
	int ret = 0;

	pthread_mutex_lock(&n->lock);
	all = n->protect_all;
	count = n->nprotect;
	memcpy(pages, n->protect_page, count * sizeof(*pages));
	n->protect_all = false;
	n->nprotect = 0;
	atomic_store(&n->protect, false);
	pthread_mutex_unlock(&n->lock);
	for (unsigned i = 0; i < NATIVE_CONTEXTS; i++) {
		struct native_context *x = &n->ctx[i];

		if (!x->proc.pid)
			continue;
		if (all)
			x->drop_all = true;
		else if (drop_protected(x, pages, count))
			ret = -EIO;
	}
	return ret;
}

/* Executable pages that were written since they were looked through. */
static int drop_stale_code(struct soft_cpu *c, struct native_context *x)
{
	const struct mem_map *m = mmu_mem(c);
	int ret = 0;

	for (unsigned i = 0; i < x->map.size && !ret; i++) {
		struct native_page *p = &x->map.slot[i];

		if (p->page != GONE && (p->page & NATIVE_X) &&
		    __atomic_load_n(&m->page_code_gen[p->index], __ATOMIC_SEQ_CST) != p->gen)
			ret = unmap_page(x, p);
	}
	return ret;
}

int native_map_sync(struct soft_cpu *c, struct native_context *x)
{
	uint64_t asid, global, exec = atomic_load(&soft_accel_of(c)->native_code_gen);
	int ret = 0;

	if (atomic_load(&c->native->protect))
		ret = sync_protected(c);
	mmu_generations(c, &asid, &global);
	if (asid != x->asid || global != x->global || x->drop_all || x->map.used > MAX_PAGES) {
		x->bad = false;
		c->n_native[NATIVE_STAT_FLUSHES] += x->map.used != 0;
		if (!ret)
			ret = unmap_all(x);
		x->asid = asid;
		x->global = global;
		x->exec_gen = exec;
	} else {
		for (unsigned i = 0; i < x->ndrops && !ret; i++) {
			struct native_page *p = map_find(&x->map, x->drop[i]);

			if (p)
				ret = unmap_page(x, p);
		}
		if (!ret && x->exec_gen != exec) {
			x->exec_gen = exec;
			ret = drop_stale_code(c, x);
		}
	}
	x->ndrops = 0;
	x->drop_all = false;
	return ret ? ret : native_proc_flush(&x->proc);
}

/* ---- mapping ----------------------------------------------------------------------------- */

struct run {
	uint64_t page, pages;
	const struct ram_block *ram;
	uint64_t off; /* in the block's file */
	unsigned rights;
};

static int run_map(struct soft_cpu *c, struct native_context *x, struct run *r)
{
	unsigned prot = PROT_READ | (r->rights & NATIVE_W ? PROT_WRITE : 0) | (r->rights & NATIVE_X ? PROT_EXEC : 0);
	int ret = 0;

	if (r->pages) {
		ret = command(x, SYS_mmap, r->page, r->pages << PAGE_SHIFT, prot, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
			      (uint64_t)r->ram->fd, r->off);
		c->n_native[NATIVE_STAT_MAPS]++;
		c->n_native[NATIVE_STAT_PAGES] += r->pages;
	}
	r->pages = 0;
	return ret;
}

/* Note that the page is mapped and add it to the run. */
static int run_add(struct soft_cpu *c, struct native_context *x, struct run *r, const struct mmu_page *t,
		   unsigned rights)
{
	const struct ram_block *b = mem_ram_block(mmu_mem(c), t->gpa);
	struct native_page *p = map_enter(&x->map, t->page);
	uint64_t off;
	int ret = 0;

	if (!p || !b)
		return -ENOMEM;
	off = b->fd_offset + (t->gpa - b->gpa);
	*p = (struct native_page){
	    .page = t->page | rights,
	    .index = t->index,
	    .gen = (uint32_t)t->gen,
	};
	if (r->pages && (r->ram != b || r->rights != rights || r->page + (r->pages << PAGE_SHIFT) != t->page ||
			 r->off + (r->pages << PAGE_SHIFT) != off))
		ret = run_map(c, x, r);
	if (!r->pages)
		*r = (struct run){.page = t->page, .ram = b, .off = off, .rights = rights};
	r->pages++;
	return ret;
}

static uint8_t bits_of(const struct soft_cpu *c, uint32_t index)
{
	return __atomic_load_n(&mmu_mem(c)->page_bits[index], __ATOMIC_SEQ_CST);
}

/*
 * May this process write the page from now on? Against mmu_protect_page: the bits first, then the look at CODE.
 *
 * Unlike a write entry of the TLB (l1_enter), the bits may be taken away before the mapping is there, even if the page
 * is no code any more when we look: who took them has left a note for this vCPU (native_protect_page), this thread
 * takes notes only in native_map_sync, which comes between the mapping and guest code, and it finds the mapping then.
 */
static bool writable(const struct soft_cpu *c, const struct mmu_page *t)
{
	const uint8_t want = MEM_PAGE_TLB | MEM_PAGE_NATIVE;

	if (!(t->rights & PG_W) || !(t->rights & PG_D) || (t->rights & PG_ROM))
		return false;
	if ((bits_of(c, t->index) & want) != want)
		__atomic_fetch_or(&mmu_mem(c)->page_bits[t->index], want, __ATOMIC_SEQ_CST);
	return !(bits_of(c, t->index) & MEM_PAGE_CODE);
}

static bool stop_is_set(const struct native_context *x, uint64_t address)
{
	for (unsigned k = 0; k < NATIVE_STOPS; k++) {
		if (x->stop[k] == address)
			return true;
	}
	return false;
}

/* Entries that watched instructions stay for: an instruction may need two pages, which must not drive each other out.
 */
#define STOP_STAYS 32u

/* Watch these instructions, at the price of pages whose were watched before. */
static bool stops_set(struct soft_cpu *c, struct native_context *x, uint64_t page, const uint16_t *found, unsigned n)
{
	uint64_t now = c->n_native[NATIVE_STAT_ENTRIES];
	unsigned want = 0;

	for (unsigned i = 0; i < n; i++)
		want += !stop_is_set(x, page | found[i]);
	for (unsigned i = 0; i < want; i++) {
		unsigned k = (x->next_stop + i) % NATIVE_STOPS;

		if (x->stop[k] && (now - x->stop_set[k] < STOP_STAYS || (x->stop[k] & PAGE_MASK) == page))
			return false;
	}
	for (unsigned i = 0; i < n; i++) {
		unsigned k = x->next_stop;
		struct native_page *old = map_find(&x->map, x->stop[k] & PAGE_MASK);

		if (stop_is_set(x, page | found[i]))
			continue;
		if (x->stop[k] && old && (old->page & NATIVE_X) && unmap_page(x, old))
			return false;
		x->next_stop = (k + 1) % NATIVE_STOPS;
		x->stop[k] = page | found[i];
		x->stop_set[k] = now;
		if (!native_proc_stop_at(&x->proc, k, x->stop[k]))
			return false;
		c->n_native[NATIVE_STAT_WATCHED]++;
	}
	return true;
}

/* native_scan of the page, remembered. */
static const struct native_scanned *scan(struct soft_cpu *c, const struct mmu_page *t)
{
	struct native_scanned *s = &c->native->scanned[t->index % NATIVE_SCANS], now = {0};
	uint8_t next[NATIVE_SCAN_AFTER];
	struct mmu_page t2;
	bool have = false;

	now.index = t->index + 1;
	now.gen = (uint32_t)t->gen;
	if (native_scan_wants_next(t->host) && !mmu_translate(c, t->page + PAGE_SIZE, MMU_EXEC, MMU_USER, &t2) &&
	    t2.host) {
		have = true;
		now.next = t2.index + 1;
		now.next_gen = __atomic_load_n(&mmu_mem(c)->page_code_gen[t2.index], __ATOMIC_SEQ_CST);
		memcpy(next, t2.host, sizeof(next));
	}
	c->exc_raised = false;
	if (s->index != now.index || s->gen != now.gen || s->next != now.next || s->next_gen != now.next_gen) {
		*s = now;
		s->n = (uint8_t)native_scan(c, t->host, have ? next : NULL, s->found, NATIVE_STOPS);
	}
	return s;
}

/* May it be executed? Its bytes are noted as code before they are looked at; t->gen is that of the code. `unasked`: not
 * if it takes anything from others. */
static bool runnable(struct soft_cpu *c, struct native_context *x, struct mmu_page *t, bool unasked)
{
	const struct native_scanned *s;

	if (!(t->rights & PG_X))
		return false;
	t->gen = code_note(c, t->index, 0, (unsigned)PAGE_SIZE);
	if (!(bits_of(c, t->index) & MEM_PAGE_NATIVE_X))
		__atomic_fetch_or(&mmu_mem(c)->page_bits[t->index], MEM_PAGE_NATIVE_X, __ATOMIC_SEQ_CST);
	/* Written before the bit was there, the writer told no native process: not this time. */
	if (__atomic_load_n(&mmu_mem(c)->page_code_gen[t->index], __ATOMIC_SEQ_CST) != (uint32_t)t->gen)
		return false;
	s = scan(c, t);
	if (!s->n)
		return true;
	return s->n <= NATIVE_STOPS && !unasked && stops_set(c, x, t->page, s->found, s->n);
}

/* ---- neighbours ---------------------------------------------------------------------------- */

/* The entry that maps the linear address's 2 MiB: a large page or the address of its table; 0: nothing for users. */
static uint64_t region_entry(const struct soft_cpu *c, uint64_t lin, uint64_t *all)
{
	uint64_t table = c->s.cr3 & PTE_ADDR, e = 0;

	*all = ~0ull;
	for (unsigned shift = 39; shift >= 21; shift -= 9) {
		const uint8_t *p = mem_ram_ptr(mmu_mem(c), table + ((lin >> shift) & 511) * 8, 8);

		if (!p)
			return 0;
		e = __atomic_load_n((const uint64_t *)(const void *)p, __ATOMIC_RELAXED);
		if ((e & (PTE_P | PTE_U | PTE_A)) != (PTE_P | PTE_U | PTE_A))
			return 0;
		*all &= (e ^ PTE_NX);
		if ((e & PTE_PS) && shift == 30)
			return 0;
		table = e & PTE_ADDR;
	}
	return e;
}

/* The page as its entry has it; false: not to be mapped unasked. */
static bool neighbour(struct soft_cpu *c, uint64_t page, uint64_t e, uint64_t gpa, uint64_t all, struct mmu_page *t)
{
	const struct ram_block *b;

	if ((e & (PTE_P | PTE_U | PTE_A)) != (PTE_P | PTE_U | PTE_A))
		return false;
	*t = (struct mmu_page){.page = page, .gpa = gpa};
	t->rights =
	    (all & e & PTE_W ? PG_W : 0) | PG_U | ((all & (e ^ PTE_NX)) & PTE_NX ? PG_X : 0) | (e & PTE_D ? PG_D : 0);
	if (!c->nxe)
		t->rights |= PG_X;
	b = mem_ram_block(mmu_mem(c), gpa);
	if (!b || b->readonly || !b->shared || b->fd < 0)
		return false;
	t->host = b->host + (gpa - b->gpa);
	t->index = (uint32_t)(b->page0 + ((gpa - b->gpa) >> PAGE_SHIFT));
	return true;
}

/* Map what lies around the page and is in use already. */
static int map_around(struct soft_cpu *c, struct native_context *x, uint64_t page, unsigned like)
{
	uint64_t all, region = region_entry(c, page, &all);
	bool large = region & PTE_PS;
	uint64_t from = ALIGN_DOWN(page, (large ? AROUND_LARGE : AROUND) * PAGE_SIZE),
		 to = from + (large ? AROUND_LARGE : AROUND) * PAGE_SIZE;
	struct run r = {0};
	struct mmu_page t;
	int ret = 0;

	if (!region)
		return 0;
	for (uint64_t at = from; at < to && !ret; at += PAGE_SIZE) {
		uint64_t e = region, gpa;
		unsigned rights = NATIVE_R;

		if (at == page || map_find(&x->map, at))
			continue;
		if (large) {
			gpa = ((region & PTE_ADDR & ~(2 * MIB - 1)) | (at & (2 * MIB - 1))) & PAGE_MASK;
		} else {
			const uint8_t *p = mem_ram_ptr(mmu_mem(c), (region & PTE_ADDR) + ((at >> 12) & 511) * 8, 8);

			if (!p)
				break;
			e = __atomic_load_n((const uint64_t *)(const void *)p, __ATOMIC_RELAXED);
			gpa = e & PTE_ADDR;
		}
		if (!neighbour(c, at, e, gpa, all, &t))
			continue;
		if (like & NATIVE_X) {
			/* Executable and writable pages are one or the other: on demand. */
			if ((t.rights & PG_W) || !runnable(c, x, &t, true))
				continue;
			rights |= NATIVE_X;
		} else if (writable(c, &t)) {
			rights |= NATIVE_W;
		}
		ret = run_add(c, x, &r, &t, rights);
	}
	return ret ? ret : run_map(c, x, &r);
}

/* ---- faults ------------------------------------------------------------------------------------ */

/* What the process wanted: the processor's error code is not told by ptrace, but what is mapped is known. */
static enum mmu_access wanted(const struct native_page *p, uint64_t addr, uint64_t rip)
{
	bool fetch = addr == rip || (!(addr & (PAGE_SIZE - 1)) && addr > rip && addr - rip < 15);

	if (fetch && !(p && p->page & NATIVE_X))
		return MMU_EXEC;
	return p ? MMU_WRITE : MMU_READ;
}

/* The page and what is around it, for an access that the guest's tables allow. */
static enum native_fault map_page(struct soft_cpu *c, struct native_context *x, struct mmu_page *t, enum mmu_access a)
{
	unsigned rights = NATIVE_R;
	struct run r = {0};
	const struct ram_block *b;
	int ret;

	b = t->host ? mem_ram_block(mmu_mem(c), t->gpa) : NULL;
	if (!b || b->fd < 0 || !b->shared)
		return NATIVE_FAULT_STEP;
	if (a == MMU_EXEC) {
		if (!runnable(c, x, t, false))
			return NATIVE_FAULT_BAD;
		rights |= NATIVE_X;
	} else if (writable(c, t)) {
		rights |= NATIVE_W;
	} else if (a == MMU_WRITE) {
		return NATIVE_FAULT_STEP;
	}
	ret = run_add(c, x, &r, t, rights);
	if (!ret)
		ret = run_map(c, x, &r);
	if (!ret)
		ret = map_around(c, x, t->page, rights);
	if (!ret)
		ret = native_proc_flush(&x->proc);
	if (!ret)
		return NATIVE_FAULT_MAPPED;
	x->bad = true;
	return NATIVE_FAULT_FAILED;
}

enum native_fault native_map_fault(struct soft_cpu *c, struct native_context *x, uint64_t addr, uint64_t rip)
{
	uint64_t page = addr & PAGE_MASK;
	const struct native_page *p = map_find(&x->map, page);
	enum mmu_access a = wanted(p, addr, rip);
	struct mmu_page t;

	if (addr < NATIVE_LOW || addr >= NATIVE_TOP - PAGE_SIZE || ALIGN_DOWN(addr, 2 * MIB) == x->proc.stub)
		return NATIVE_FAULT_STEP;
	if (a == MMU_WRITE && (p->page & NATIVE_W))
		return NATIVE_FAULT_STEP; /* not about rights */
	if (mmu_translate(c, addr, a, MMU_USER, &t)) {
		c->exc_raised = false; /* found again by the interpreter */
		x->missed = page;
		x->missed_exec = a == MMU_EXEC;
		return NATIVE_FAULT_STEP;
	}
	return map_page(c, x, &t, a);
}

void native_map_missed(struct soft_cpu *c, struct native_context *x)
{
	uint64_t page = x->missed;
	enum mmu_access a = x->missed_exec ? MMU_EXEC : MMU_READ;
	const struct native_page *p = map_find(&x->map, page);
	struct mmu_page t;

	x->missed = 0;
	if (mmu_translate(c, page, a, MMU_USER, &t)) {
		c->exc_raised = false;
		return;
	}
	/* It was there for another kind of access: only the program's next try tells. */
	if (!p)
		map_page(c, x, &t, a);
}
