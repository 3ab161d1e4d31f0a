/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The MMU of the software CPU: paging and the software TLB.
 *
 * AMD64 Architecture Programmer's Manual volume 2 chapter 5, Intel SDM volume
 * 3A chapter 4. Three structures, all owned by the vCPU's thread:
 *
 *   first level   soft_cpu.tlb, looked up inline by interpreter and translator;
 *		   a hit needs no further check. Flushed at each change of rights
 *		   or address space; the fill log makes that cost what was filled.
 *   second level  struct mmu_page: translation and rights of a page, tagged with the
 *		   generation of its PCID (or of the global pages). A flush takes
 *		   a new generation; going back to a PCID finds its pages again.
 *   page walk     in guest memory; sets A and D bits with compare-and-exchange.
 *
 * Locking: none. Another thread may only store TLB_TAG_INVALID to tags of the
 * first level (mmu_protect_page). A page becoming code races with a fill of a
 * write entry: the filler stores the tag and then looks at the page's bits, the
 * protector sets the bit and then looks at the tags, both with full fences, so
 * one of them sees the other.
 */
#include "cpu/soft/mmu_int.h"

#include <errno.h>
#include <stdlib.h>
#include "base/log.h"
#include "cpu/soft/lockstep.h"

#define TLB2_BITS   12
#define TLB2_SIZE   (1u << TLB2_BITS)
#define N_ENTRIES   (MMU_MODES * MMU_ACCESSES * TLB_SIZE)
#define N_PCID	    4096
#define PCID_SPREAD 1381
#define NO_PAGE	    1ull /* no linear address of a page */
/* Which 2 MiB regions (hashed) hold pieces of large pages: INVLPG of one must drop all its pieces. */
#define LARGE_BITS  16
#define LARGE_WORDS ((1u << LARGE_BITS) / 64)
struct fill_log {
	uint16_t entry[N_ENTRIES];
	unsigned n;
	uint64_t logged[N_ENTRIES / 64];
};

struct mmu_private {
	struct mmu_walk walk;	/* first: mmu_walk.c knows only this */
	struct fill_log log[2]; /* 0: pages of this address space, 1: global pages */
	uint32_t exec_index[MMU_MODES][TLB_SIZE];
	struct mmu_page l2[TLB2_SIZE];
	/* Generations: a PCID's is void when below its base. */
	uint64_t next_gen, asid_base, exec_base, asid_gen, global_gen, exec_gen;
	uint64_t pcid_gen[N_PCID], pcid_exec[N_PCID];
	unsigned pcid;
	uint64_t large[LARGE_WORDS], huge[LARGE_WORDS];
	bool have_large, have_huge;
	/* data breakpoints */
	unsigned nwatch;
	struct mmu_watch watch[4];
	uint64_t watch_hit;
	bool align_check;
};

static uint32_t large_hash(uint64_t region)
{
	return (uint32_t)((region * 0x9e3779b97f4a7c15ull) >> (64 - LARGE_BITS));
}
static bool bitmap_test(const uint64_t *map, uint32_t n)
{
	return (map[n / 64] >> (n % 64)) & 1;
}
static void bitmap_set(uint64_t *map, uint32_t n)
{
	map[n / 64] |= BIT(n % 64);
}

/* ---- generations and flushes ---------------------------------------------- */

/* The generations of the current PCID, renewed when a flush has passed over them. */
static void asid_load(struct mmu_private *m)
{
	unsigned p = m->pcid;

	if (m->pcid_gen[p] < m->asid_base)
		m->pcid_gen[p] = ++m->next_gen;
	m->asid_gen = m->pcid_gen[p];
	if (m->pcid_exec[p] < m->exec_base || m->pcid_exec[p] < m->asid_gen)
		m->pcid_exec[p] = ++m->next_gen;
	m->exec_gen = m->pcid_exec[p];
}

static void log_flush(struct soft_cpu *c, struct fill_log *log)
{
	struct tlb_entry *all = &c->tlb[0][0][0];

	for (unsigned i = 0; i < log->n; i++) {
		unsigned e = log->entry[i];

		__atomic_store_n(&all[e].tag, TLB_TAG_INVALID(e), __ATOMIC_RELAXED);
		log->logged[e / 64] = 0;
	}
	log->n = 0;
}

void mmu_flush_all(struct soft_cpu *c)
{
	struct mmu_private *m = c->mmu;

	log_flush(c, &m->log[0]);
	log_flush(c, &m->log[1]);
	m->global_gen = m->asid_base = m->exec_base = ++m->next_gen;
	if (m->have_large)
		memset(m->large, 0, sizeof(m->large));
	if (m->have_huge)
		memset(m->huge, 0, sizeof(m->huge));
	m->have_large = m->have_huge = false;
	asid_load(m);
	c->n_tlb_flushes++;
}

void mmu_flush_nonglobal(struct soft_cpu *c)
{
	struct mmu_private *m = c->mmu;

	log_flush(c, &m->log[0]);
	m->pcid_gen[m->pcid] = ++m->next_gen;
	asid_load(m);
	c->n_tlb_flushes++;
}

void mmu_switch_cr3(struct soft_cpu *c, uint64_t cr3, bool noflush)
{
	struct mmu_private *m = c->mmu;

	c->s.cr3 = cr3;
	mmu_load_pdptes(c);
	m->pcid = c->s.cr4 & CR4_PCIDE ? cr3 & (N_PCID - 1) : 0;
	if (!noflush || !(c->s.cr4 & CR4_PCIDE)) {
		mmu_flush_nonglobal(c);
		return;
	}
	log_flush(c, &m->log[0]);
	asid_load(m);
}

static void l1_drop_page(struct soft_cpu *c, uint64_t page)
{
	for (unsigned idx = 0; idx < MMU_MODES; idx++) {
		for (unsigned a = 0; a < MMU_ACCESSES; a++) {
			struct tlb_entry *e = mmu_entry(c, idx, (enum mmu_access)a, page);

			if (__atomic_load_n(&e->tag, __ATOMIC_RELAXED) == page)
				__atomic_store_n(&e->tag, TLB_TAG_INVALID(page >> PAGE_SHIFT), __ATOMIC_RELAXED);
		}
	}
}

/* Processes use the same addresses: the PCID spreads them over the table. Global pages have no PCID. */
static struct mmu_page *l2_slot(struct mmu_private *m, uint64_t page, bool global)
{
	uint64_t n = page >> PAGE_SHIFT;

	n ^= n >> TLB2_BITS;
	return &m->l2[(global ? n : n + m->pcid * PCID_SPREAD) & (TLB2_SIZE - 1)];
}

static void l2_drop(struct mmu_page *e, uint64_t page)
{
	if (e->page == page)
		e->page = NO_PAGE;
}

static void drop_page(struct soft_cpu *c, uint64_t page)
{
	l1_drop_page(c, page);
	l2_drop(l2_slot(c->mmu, page, false), page);
	l2_drop(l2_slot(c->mmu, page, true), page);
}

static struct mmu_page *l2_lookup(struct mmu_private *m, uint64_t page)
{
	struct mmu_page *e = l2_slot(m, page, false);

	if (e->page == page && e->gen == m->asid_gen)
		return e;
	e = l2_slot(m, page, true);
	return e->page == page && e->gen == m->global_gen ? e : NULL;
}

void mmu_invlpg(struct soft_cpu *c, uint64_t lin)
{
	struct mmu_private *m = c->mmu;
	bool large = false;

	if (m->have_huge && bitmap_test(m->huge, large_hash(lin >> 30))) {
		mmu_flush_all(c);
		return;
	}
	drop_page(c, lin & PAGE_MASK);
	/* 4 MiB pages (32-bit tables) are noted as two 2 MiB regions, so look at the whole pair. */
	if (m->have_large && (bitmap_test(m->large, large_hash(lin >> 21)))) {
		uint64_t base = ALIGN_DOWN(lin, 4 * MIB);

		for (uint64_t page = base; page < base + 4 * MIB; page += PAGE_SIZE)
			drop_page(c, page);
		large = true;
	}
	m->exec_base = ++m->next_gen;
	asid_load(m);
	c->n_tlb_flushes++;
	if (c->native)
		native_mapping_dropped(c, large ? NATIVE_ALL_PAGES : lin & PAGE_MASK);
}

static bool canonical(uint64_t a)
{
	return (uint64_t)((int64_t)(a << 16) >> 16) == a;
}

int mmu_invpcid(struct soft_cpu *c, uint64_t type, const uint64_t desc[2])
{
	struct mmu_private *m = c->mmu;
	uint64_t pcid = desc[0] & (N_PCID - 1);
	bool pcide = c->s.cr4 & CR4_PCIDE;

	if (type > 3 || (type < 2 && (desc[0] >= N_PCID || (!pcide && pcid))) || (type == 0 && !canonical(desc[1])))
		return soft_raise_code(c, EXC_GP, 0);
	if (type == 2) {
		mmu_flush_all(c);
		return 0;
	}
	if (type == 3) { /* all contexts, global pages stay */
		log_flush(c, &m->log[0]);
		m->asid_base = ++m->next_gen;
		asid_load(m);
		c->n_tlb_flushes++;
	} else if (pcid != m->pcid) {
		/* One address of another context: that context's whole generation, which is always allowed. */
		m->pcid_gen[pcid] = ++m->next_gen;
	} else if (type == 0) {
		mmu_invlpg(c, desc[1]);
	} else {
		mmu_flush_nonglobal(c);
	}
	return 0;
}

uint64_t mmu_generation(const struct soft_cpu *c)
{
	return c->mmu->exec_gen;
}

void mmu_generations(const struct soft_cpu *c, uint64_t *asid, uint64_t *global)
{
	*asid = c->mmu->asid_gen;
	*global = c->mmu->global_gen;
}

/* Stale tags are stored by this thread while the owner may be using or replacing the entry: see the top. */
static void protect_vcpu(struct soft_cpu *c, uint64_t host)
{
	for (unsigned idx = 0; idx < MMU_MODES; idx++) {
		for (unsigned n = 0; n < TLB_SIZE; n++) {
			struct tlb_entry *e = &c->tlb[idx][MMU_WRITE][n];
			uint64_t tag = __atomic_load_n(&e->tag, __ATOMIC_RELAXED);

			if (tag != TLB_TAG_INVALID(n) && tag + __atomic_load_n(&e->addend, __ATOMIC_RELAXED) == host)
				__atomic_store_n(&e->tag, TLB_TAG_INVALID(n), __ATOMIC_RELAXED);
		}
	}
}

void mmu_protect_page(struct accel *a, uint64_t page_index)
{
	const struct mem_map *m = a->cfg.mem;
	uint64_t host = (uint64_t)(uintptr_t)mem_page_host(m, page_index);
	uint8_t bits;

	if (!host)
		return;
	/* Most code was never written through a TLB. Cleared before the search: a later fill sets it again. Other
	 * readers of the page wait for our caller's lock, so it does not matter that the bits look done before it is.
	 */
	bits = __atomic_fetch_and(&m->page_bits[page_index], (uint8_t) ~(MEM_PAGE_TLB | MEM_PAGE_NATIVE),
				  __ATOMIC_SEQ_CST);
	if (!(bits & MEM_PAGE_TLB))
		return;
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		struct vcpu *v = __atomic_load_n(&a->vcpu[i], __ATOMIC_ACQUIRE);

		if (v)
			protect_vcpu(soft_cpu_of(v), host);
	}
	if (bits & MEM_PAGE_NATIVE)
		native_protect_page(a, page_index);
}

/* What the page of lin maps to, when the access is allowed. */
static int translate(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, struct mmu_page *out)
{
	struct mmu_private *m = c->mmu;
	uint64_t page = lin & PAGE_MASK;
	const struct mmu_page *e = l2_lookup(m, page);
	const struct ram_block *b;

	if (e && mmu_allowed(c, e->rights, a, idx) && (a != MMU_WRITE || e->rights & PG_D)) {
		*out = *e;
		return 0;
	}
	if (!c->paging) {
		out->gpa = page;
		out->rights = PG_W | PG_U | PG_X | PG_D;
	} else if (mmu_walk(c, lin, a, idx, out)) {
		return EXC_RAISED;
	}
	if (unlikely(mmu_mem(c)->a20_off))
		out->gpa &= ~(1ull << 20);
	out->page = page;
	out->gen = out->rights & PG_G ? m->global_gen : m->asid_gen;
	b = mem_ram_block(mmu_mem(c), out->gpa);
	out->host = b ? b->host + (out->gpa - b->gpa) : NULL;
	out->index = b ? (uint32_t)(b->page0 + ((out->gpa - b->gpa) >> PAGE_SHIFT)) : 0;
	if (b && b->readonly)
		out->rights |= PG_ROM;
	if (out->rights & PG_LARGE) {
		bitmap_set(m->large, large_hash(page >> 21));
		bitmap_set(m->large, large_hash((page >> 21) ^ 1));
		m->have_large = true;
	} else if (out->rights & PG_HUGE) {
		bitmap_set(m->huge, large_hash(page >> 30));
		m->have_huge = true;
	}
	*l2_slot(m, page, out->rights & PG_G) = *out;
	return 0;
}

int mmu_translate(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, struct mmu_page *out)
{
	return translate(c, lin, a, idx, out);
}

unsigned mmu_pcid(const struct soft_cpu *c)
{
	return c->mmu->pcid;
}

/* ---- first-level fills ----------------------------------------------------- */

static uint8_t page_bits(const struct soft_cpu *c, const struct mmu_page *t)
{
	return __atomic_load_n(&mmu_mem(c)->page_bits[t->index], __ATOMIC_SEQ_CST);
}

static bool page_watched(const struct mmu_private *m, uint64_t page)
{
	for (unsigned i = 0; i < m->nwatch; i++) {
		if (m->watch[i].lin < page + PAGE_SIZE && m->watch[i].lin + m->watch[i].len > page)
			return true;
	}
	return false;
}

static void l1_enter(struct soft_cpu *c, const struct mmu_page *t, enum mmu_access a, unsigned idx)
{
	struct mmu_private *m = c->mmu;
	struct tlb_entry *e = mmu_entry(c, idx, a, t->page);
	unsigned n = (unsigned)(e - &c->tlb[0][0][0]);
	struct fill_log *log = &m->log[t->rights & PG_G ? 1 : 0];

	if (!bitmap_test(log->logged, n)) {
		bitmap_set(log->logged, n);
		log->entry[log->n++] = (uint16_t)n;
	}
	if (a == MMU_EXEC) {
		m->exec_index[idx][e - c->tlb[idx][a]] = t->index;
	}
	__atomic_store_n(&e->tag, TLB_TAG_INVALID(n), __ATOMIC_RELAXED);
	__atomic_store_n(&e->addend, (uint64_t)(uintptr_t)t->host - t->page, __ATOMIC_RELEASE);
	if (a != MMU_WRITE) {
		__atomic_store_n(&e->tag, t->page, __ATOMIC_RELEASE);
		return;
	}
	/*
	 * Against mmu_protect_page, which takes MEM_PAGE_TLB and then searches, or does not: the tag must be visible
	 * before the bits are looked at, both of them. (The first one looked at before: a page that was protected and
	 * written to in between kept an entry without the bit, and was never protected again.)
	 */
	__atomic_store_n(&e->tag, t->page, __ATOMIC_SEQ_CST);
	if (!(page_bits(c, t) & MEM_PAGE_TLB))
		__atomic_fetch_or(&mmu_mem(c)->page_bits[t->index], MEM_PAGE_TLB, __ATOMIC_SEQ_CST);
	if (page_bits(c, t) & MEM_PAGE_CODE)
		__atomic_store_n(&e->tag, TLB_TAG_INVALID(n), __ATOMIC_RELAXED);
}

/* Translate, and enter in the first level what may be entered. */
static int translate_fill(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, struct mmu_page *t)
{
	c->n_tlb_misses++;
	if (translate(c, lin, a, idx, t))
		return EXC_RAISED;
	if (!t->host)
		return 0;
	if (unlikely(c->mmu->nwatch) && a != MMU_EXEC && page_watched(c->mmu, t->page))
		return 0;
	if (unlikely(c->mmu->align_check) && a != MMU_EXEC && idx == MMU_USER)
		return 0;
	if (a != MMU_WRITE) {
		l1_enter(c, t, a, idx);
		return 0;
	}
	if (t->rights & PG_ROM)
		return 0;
	if (mmu_mem(c)->dirty_logging)
		__atomic_fetch_or(&mmu_mem(c)->page_bits[t->index], MEM_PAGE_DIRTY, __ATOMIC_RELAXED);
	/* In lockstep every store comes here to be noted. */
	if (!(page_bits(c, t) & MEM_PAGE_CODE) && !c->lockstep)
		l1_enter(c, t, a, idx);
	return 0;
}

/* ---- alignment checks ---------------------------------------------------------- */

void mmu_set_align_check(struct soft_cpu *c, bool on)
{
	if (on == c->mmu->align_check)
		return;
	c->mmu->align_check = on;
	log_flush(c, &c->mmu->log[0]);
	log_flush(c, &c->mmu->log[1]);
}

int mmu_align_check(struct soft_cpu *c, uint64_t lin, unsigned size)
{
	if (!c->mmu->align_check || !mmu_misaligned(lin, size))
		return 0;
	return soft_raise_code(c, EXC_AC, 0);
}

/* ---- data breakpoints -------------------------------------------------------- */

void mmu_set_watch(struct soft_cpu *c, const struct mmu_watch *w, unsigned n)
{
	c->mmu->nwatch = n;
	memcpy(c->mmu->watch, w, n * sizeof(*w));
	mmu_flush_all(c);
}

uint64_t mmu_take_watch_hit(struct soft_cpu *c)
{
	uint64_t hit = c->mmu->watch_hit;

	c->mmu->watch_hit = 0;
	return hit;
}

static void watch_check(struct soft_cpu *c, uint64_t lin, unsigned size, enum mmu_access a)
{
	struct mmu_private *m = c->mmu;

	for (unsigned i = 0; i < m->nwatch; i++) {
		const struct mmu_watch *w = &m->watch[i];

		if (lin < w->lin + w->len && lin + size > w->lin && (a == MMU_WRITE || w->reads))
			m->watch_hit |= BIT(w->dr);
	}
}

/* ---- loads and stores ---------------------------------------------------------- */

/* The store went to RAM: dirty log and code. */
static void ram_written(struct soft_cpu *c, uint32_t index, unsigned off, unsigned len)
{
	struct mem_map *m = mmu_mem(c);
	uint32_t gen;

	/* The store must be visible before the bit is looked at: code.c. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!(__atomic_load_n(&m->page_bits[index], __ATOMIC_SEQ_CST) & MEM_PAGE_CODE))
		return;
	gen = __atomic_load_n(&m->page_code_gen[index], __ATOMIC_RELAXED);
	m->code_written(m->code_opaque, index, off, len);
	/* Or another vCPU did it while we waited. */
	if (__atomic_load_n(&m->page_code_gen[index], __ATOMIC_RELAXED) != gen ||
	    !(__atomic_load_n(&m->page_bits[index], __ATOMIC_RELAXED) & MEM_PAGE_CODE)) {
		c->code_changed = true;
		c->n_code_invalidations++;
	}
}

static uint64_t piece_load(struct soft_cpu *c, const struct mmu_page *t, unsigned off, unsigned size)
{
	const uint8_t *p;

	if (!t->host) {
		c->n_mmio++;
		return mem_read(mmu_mem(c), t->gpa + off, size);
	}
	p = t->host + off;
	switch (size) {
	case 1: return *(const volatile uint8_t *)p;
	case 2: return *(const volatile guest_u16 *)p;
	case 4: return *(const volatile guest_u32 *)p;
	default: return *(const volatile guest_u64 *)p;
	}
}

static inline void note_store(struct soft_cpu *c, uint8_t *host, unsigned size)
{
	if (unlikely(c->lockstep))
		lockstep_note(c->lockstep, host, size);
}

static void piece_store(struct soft_cpu *c, const struct mmu_page *t, unsigned off, unsigned size, uint64_t val)
{
	uint8_t *p;

	if (!t->host || t->rights & PG_ROM) {
		c->n_mmio++;
		mem_write(mmu_mem(c), t->gpa + off, val, size);
		return;
	}
	p = t->host + off;
	note_store(c, p, size);
	switch (size) {
	case 1: *(volatile uint8_t *)p = (uint8_t)val; break;
	case 2: *(volatile guest_u16 *)p = (uint16_t)val; break;
	case 4: *(volatile guest_u32 *)p = (uint32_t)val; break;
	default: *(volatile guest_u64 *)p = val; break;
	}
	ram_written(c, t->index, off, size);
}

/* Linear address of the page after lin's: outside long mode it wraps at 4 GiB. */
static uint64_t next_page(const struct soft_cpu *c, uint64_t lin)
{
	uint64_t next = (lin & PAGE_MASK) + PAGE_SIZE;

	return c->s.efer & EFER_LMA ? next : (uint32_t)next;
}

static unsigned page_off(uint64_t lin)
{
	return (unsigned)(lin & (PAGE_SIZE - 1));
}

int mmu_load_slow(struct soft_cpu *c, uint64_t lin, unsigned size, uint64_t *val, unsigned idx)
{
	unsigned off = page_off(lin), first = (unsigned)PAGE_SIZE - off;
	struct mmu_page t, t2;
	uint64_t v = 0;

	if (idx == MMU_USER && mmu_align_check(c, lin, size))
		return EXC_RAISED;
	if (translate_fill(c, lin, MMU_READ, idx, &t))
		return EXC_RAISED;
	if (first >= size) {
		*val = piece_load(c, &t, off, size);
	} else {
		if (translate_fill(c, next_page(c, lin), MMU_READ, idx, &t2))
			return EXC_RAISED;
		for (unsigned i = 0; i < size; i++)
			v |= (i < first ? piece_load(c, &t, off + i, 1) : piece_load(c, &t2, i - first, 1)) << (8 * i);
		*val = v;
	}
	if (unlikely(c->mmu->nwatch))
		watch_check(c, lin, size, MMU_READ);
	return 0;
}

int mmu_store_slow(struct soft_cpu *c, uint64_t lin, unsigned size, uint64_t val, unsigned idx)
{
	unsigned off = page_off(lin), first = (unsigned)PAGE_SIZE - off;
	struct mmu_page t, t2;

	if (idx == MMU_USER && mmu_align_check(c, lin, size))
		return EXC_RAISED;
	if (translate_fill(c, lin, MMU_WRITE, idx, &t))
		return EXC_RAISED;
	if (first >= size) {
		piece_store(c, &t, off, size, val);
	} else {
		if (translate_fill(c, next_page(c, lin), MMU_WRITE, idx, &t2))
			return EXC_RAISED;
		for (unsigned i = 0; i < size; i++) {
			if (i < first)
				piece_store(c, &t, off + i, 1, (val >> (8 * i)) & 0xff);
			else
				piece_store(c, &t2, i - first, 1, (val >> (8 * i)) & 0xff);
		}
	}
	if (unlikely(c->mmu->nwatch))
		watch_check(c, lin, size, MMU_WRITE);
	return 0;
}

int mmu_host(struct soft_cpu *c, uint64_t lin, unsigned size, enum mmu_access a, unsigned idx, uint8_t **host,
	     unsigned *host_flags)
{
	struct mmu_page t;

	*host_flags = 0;
	*host = mmu_hit(c, idx, a, lin, size);
	if (*host)
		return 0;
	if (idx == MMU_USER && a != MMU_EXEC && mmu_align_check(c, lin, size))
		return EXC_RAISED;
	if (translate_fill(c, lin, a, idx, &t))
		return EXC_RAISED;
	if (unlikely(c->mmu->nwatch) && a != MMU_EXEC)
		watch_check(c, lin, size, a);
	*host = NULL;
	if (!t.host || (a == MMU_WRITE && t.rights & PG_ROM))
		return 0;
	*host = t.host + page_off(lin);
	if (a == MMU_WRITE) {
		note_store(c, *host, size);
		if (page_bits(c, &t) & MEM_PAGE_CODE)
			*host_flags = MMU_HOST_CODE;
	}
	return 0;
}

void mmu_written(struct soft_cpu *c, const uint8_t *host, unsigned size)
{
	const struct ram_block *b = mem_block_of_host(mmu_mem(c), host);
	uint64_t off;

	if (!b)
		return;
	off = (uint64_t)(host - b->host);
	ram_written(c, (uint32_t)(b->page0 + (off >> PAGE_SHIFT)), page_off(off), size);
}

int mmu_probe(struct soft_cpu *c, uint64_t lin, unsigned len, enum mmu_access a, unsigned idx)
{
	struct mmu_page t;

	for (unsigned done = 0; done < len;) {
		unsigned n = MIN(len - done, (unsigned)PAGE_SIZE - page_off(lin));

		if (!mmu_hit(c, idx, a, lin, 1) && translate_fill(c, lin, a, idx, &t))
			return EXC_RAISED;
		done += n;
		lin = next_page(c, lin);
	}
	return 0;
}

/* No vector registers, which may hold the guest's state: see jit_slow.c. */
static void copy_bytes(void *to, const void *from, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

/* Copy inside one page, between guest and buf. */
static int copy_piece(struct soft_cpu *c, uint64_t lin, uint8_t *buf, unsigned n, enum mmu_access a, unsigned idx)
{
	uint8_t *p = mmu_hit(c, idx, a, lin, n);
	struct mmu_page t;

	if (p) {
		copy_bytes(a == MMU_READ ? buf : p, a == MMU_READ ? p : buf, n);
		return 0;
	}
	if (translate_fill(c, lin, a, idx, &t))
		return EXC_RAISED;
	if (unlikely(c->mmu->nwatch))
		watch_check(c, lin, n, a);
	if (t.host && !(a == MMU_WRITE && t.rights & PG_ROM)) {
		if (a == MMU_READ) {
			copy_bytes(buf, t.host + page_off(lin), n);
			return 0;
		}
		note_store(c, t.host + page_off(lin), n);
		copy_bytes(t.host + page_off(lin), buf, n);
		ram_written(c, t.index, page_off(lin), n);
		return 0;
	}
	for (unsigned i = 0; i < n; i++) {
		if (a == MMU_READ)
			buf[i] = (uint8_t)piece_load(c, &t, page_off(lin) + i, 1);
		else
			piece_store(c, &t, page_off(lin) + i, 1, buf[i]);
	}
	return 0;
}

static int copy_buf(struct soft_cpu *c, uint64_t lin, uint8_t *buf, unsigned len, enum mmu_access a, unsigned idx)
{
	if (page_off(lin) + len > PAGE_SIZE && mmu_probe(c, lin, len, a, idx))
		return EXC_RAISED;
	while (len) {
		unsigned n = MIN(len, (unsigned)PAGE_SIZE - page_off(lin));

		if (copy_piece(c, lin, buf, n, a, idx))
			return EXC_RAISED;
		buf += n;
		len -= n;
		lin = next_page(c, lin);
	}
	return 0;
}

int mmu_read_buf(struct soft_cpu *c, uint64_t lin, void *buf, unsigned len, unsigned idx)
{
	return copy_buf(c, lin, buf, len, MMU_READ, idx);
}

int mmu_write_buf(struct soft_cpu *c, uint64_t lin, const void *buf, unsigned len, unsigned idx)
{
	return copy_buf(c, lin, (uint8_t *)(uintptr_t)buf, len, MMU_WRITE, idx);
}

int mmu_fetch(struct soft_cpu *c, uint64_t lin, uint64_t *page_index, const uint8_t **host)
{
	unsigned idx = c->cpl == 3 ? MMU_USER : MMU_KERNEL;
	struct tlb_entry *e = mmu_entry(c, idx, MMU_EXEC, lin);
	struct mmu_page t;

	if (likely(e->tag == (lin & PAGE_MASK))) {
		*host = (const uint8_t *)(uintptr_t)((lin & PAGE_MASK) + e->addend);
		*page_index = c->mmu->exec_index[idx][e - c->tlb[idx][MMU_EXEC]];
		return 0;
	}
	/* SYSRET on AMD and a branch over the edge may leave a non-canonical rip to the fetch. */
	if (c->long64 && !canonical(lin))
		return soft_raise_code(c, EXC_GP, 0);
	if (translate_fill(c, lin, MMU_EXEC, idx, &t))
		return EXC_RAISED;
	*host = t.host;
	*page_index = t.index;
	return 0;
}

/* ---- life ------------------------------------------------------------------------ */

void mmu_model_changed(struct soft_cpu *c)
{
	const struct cpu_model *model = c->v.accel->cfg.model;
	unsigned phys = model && model->phys_bits ? model->phys_bits : 40;

	c->mmu->walk.reserved = mmu_reserved_bits(phys);
	c->mmu->walk.have_1g = !model || cpu_model_has(model, "pdpe1gb");
}

int mmu_init(struct soft_cpu *c, struct err *err)
{
	struct mmu_private *m = calloc(1, sizeof(*m));

	if (!m)
		return err_set(err, -ENOMEM, "no memory for the TLB of CPU %u", c->v.index);
	c->mmu = m;
	mmu_model_changed(c);
	/* Zeroed memory is an empty TLB (generation 0 is nobody's) but at index 0. */
	for (unsigned i = 0; i < N_ENTRIES; i += TLB_SIZE)
		(&c->tlb[0][0][0])[i].tag = TLB_TAG_INVALID(0);
	mmu_flush_all(c);
	return 0;
}

void mmu_fini(struct soft_cpu *c)
{
	free(c->mmu);
	c->mmu = NULL;
}
