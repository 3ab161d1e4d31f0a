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
 *   second level  struct tlb2: translation and rights of a page, tagged with the
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
#include "cpu/soft/mmu.h"

#include <errno.h>
#include <stdlib.h>
#include "base/log.h"

#define TLB2_BITS   12
#define TLB2_SIZE   (1u << TLB2_BITS)
#define N_ENTRIES   (MMU_MODES * MMU_ACCESSES * TLB_SIZE)
#define N_PCID	    4096
#define PCID_SPREAD 1381
#define NO_PAGE	    1ull /* no linear address of a page */
/* Which 2 MiB regions (hashed) hold pieces of large pages: INVLPG of one must drop all its pieces. */
#define LARGE_BITS  16
#define LARGE_WORDS ((1u << LARGE_BITS) / 64)
/* A/D updates that lose a race against other CPUs are retried this often; then left undone. */
#define WALK_RETRIES 1000

/* Page-table entry bits */
#define PTE_P	 BIT(0)
#define PTE_W	 BIT(1)
#define PTE_U	 BIT(2)
#define PTE_A	 BIT(5)
#define PTE_D	 BIT(6)
#define PTE_PS	 BIT(7)
#define PTE_G	 BIT(8)
#define PTE_NX	 BIT(63)
#define PTE_ADDR 0x000ffffffffff000ull

/* #PF error code */
#define PF_P	1u
#define PF_W	2u
#define PF_U	4u
#define PF_RSVD 8u
#define PF_I	16u

enum page_rights { PG_W = 1, PG_U = 2, PG_X = 4, PG_G = 8, PG_D = 16, PG_LARGE = 32, PG_HUGE = 64, PG_ROM = 128 };

struct tlb2 {
	uint64_t page; /* linear address of the page; NO_PAGE = empty */
	uint64_t gen;
	uint64_t gpa;
	uint8_t *host; /* NULL: not RAM */
	uint32_t index;
	uint32_t rights; /* enum page_rights */
};

struct fill_log {
	uint16_t entry[N_ENTRIES];
	unsigned n;
	uint64_t logged[N_ENTRIES / 64];
};

struct mmu_private {
	struct fill_log log[2]; /* 0: pages of this address space, 1: global pages */
	uint32_t exec_index[MMU_MODES][TLB_SIZE];
	struct tlb2 l2[TLB2_SIZE];
	/* Generations: a PCID's is void when below its base. */
	uint64_t next_gen, asid_base, exec_base, asid_gen, global_gen, exec_gen;
	uint64_t pcid_gen[N_PCID], pcid_exec[N_PCID];
	unsigned pcid;
	uint64_t large[LARGE_WORDS], huge[LARGE_WORDS];
	bool have_large, have_huge, have_1g;
	uint64_t reserved; /* physical address bits beyond this model's */
	/* data breakpoints */
	unsigned nwatch;
	struct mmu_watch watch[4];
	uint64_t watch_hit;
};

/* One level of a paging mode's tables. */
struct paging_level {
	uint8_t shift, bits, entry_size;
	bool may_be_page; /* PS makes it a leaf */
	bool plain;	  /* PAE's PDPTE: no rights, no A bit */
	uint64_t reserved, reserved_page;
};
static const struct paging_level level_4[] = {{39, 9, 8, false, false, PTE_PS, 0},
					      {30, 9, 8, true, false, 0, 0x3fffe000},
					      {21, 9, 8, true, false, 0, 0x1fe000},
					      {12, 9, 8, false, false, 0, 0}};
static const struct paging_level level_pae[] = {{30, 2, 8, false, true, 0x1e6 | PTE_NX | (0x7ffull << 52), 0},
						{21, 9, 8, true, false, 0x7ffull << 52, 0x1fe000},
						{12, 9, 8, false, false, 0x7ffull << 52, 0}};
static const struct paging_level level_32[] = {{22, 10, 4, true, false, 0, 0x200000}, {12, 10, 4, false, false, 0, 0}};

static struct mem_map *mem_of(const struct soft_cpu *c)
{
	return c->v.accel->cfg.mem;
}

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
static struct tlb2 *l2_slot(struct mmu_private *m, uint64_t page, bool global)
{
	uint64_t n = page >> PAGE_SHIFT;

	n ^= n >> TLB2_BITS;
	return &m->l2[(global ? n : n + m->pcid * PCID_SPREAD) & (TLB2_SIZE - 1)];
}

static void l2_drop(struct tlb2 *e, uint64_t page)
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

static struct tlb2 *l2_lookup(struct mmu_private *m, uint64_t page)
{
	struct tlb2 *e = l2_slot(m, page, false);

	if (e->page == page && e->gen == m->asid_gen)
		return e;
	e = l2_slot(m, page, true);
	return e->page == page && e->gen == m->global_gen ? e : NULL;
}

void mmu_invlpg(struct soft_cpu *c, uint64_t lin)
{
	struct mmu_private *m = c->mmu;

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
	}
	m->exec_base = ++m->next_gen;
	asid_load(m);
	c->n_tlb_flushes++;
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
	uint64_t host = 0;

	for (unsigned i = 0; i < m->nblocks && !host; i++) {
		const struct ram_block *b = &m->block[i];

		if (page_index - b->page0 < b->size >> PAGE_SHIFT)
			host = (uint64_t)(uintptr_t)b->host + ((page_index - b->page0) << PAGE_SHIFT);
	}
	if (!host)
		return;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		struct vcpu *v = __atomic_load_n(&a->vcpu[i], __ATOMIC_ACQUIRE);

		if (v)
			protect_vcpu(soft_cpu_of(v), host);
	}
}

/* ---- the page walk -------------------------------------------------------- */

static bool access_allowed(const struct soft_cpu *c, uint32_t rights, enum mmu_access a, unsigned idx)
{
	bool user = idx == MMU_USER;

	if (user && !(rights & PG_U))
		return false;
	if (a == MMU_EXEC)
		return (rights & PG_X) && (user || !(rights & PG_U) || !(c->s.cr4 & CR4_SMEP));
	if (idx == MMU_KERNEL && c->smap && (rights & PG_U))
		return false;
	return a == MMU_READ || (rights & PG_W) || (!user && !c->wp);
}

static int page_fault(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, uint32_t why)
{
	uint32_t code = why;

	if (a == MMU_WRITE)
		code |= PF_W;
	if (idx == MMU_USER)
		code |= PF_U;
	if (a == MMU_EXEC && ((c->nxe && (c->s.cr4 & CR4_PAE)) || (c->s.cr4 & CR4_SMEP)))
		code |= PF_I;
	return soft_raise_pf(c, lin, code);
}

struct walk_step {
	uint64_t gpa, entry;
	uint8_t *host; /* NULL: the table is not in RAM */
};

static uint64_t entry_read(struct soft_cpu *c, struct walk_step *s, unsigned size)
{
	s->host = mem_ram_ptr(mem_of(c), s->gpa, size);
	if (!s->host)
		s->entry = mem_read(mem_of(c), s->gpa, size);
	else if (size == 8)
		s->entry = __atomic_load_n((uint64_t *)(void *)s->host, __ATOMIC_RELAXED);
	else
		s->entry = __atomic_load_n((uint32_t *)(void *)s->host, __ATOMIC_RELAXED);
	return s->entry;
}

/* Set bits of an entry; false when another CPU changed it meanwhile. */
static bool entry_set(struct soft_cpu *c, struct walk_step *s, unsigned size, uint64_t bits)
{
	uint64_t old = s->entry, page;
	uint32_t old32 = (uint32_t)old;
	struct mem_map *m = mem_of(c);

	if ((old & bits) == bits || !s->host)
		return true;
	if (size == 8 ? !__atomic_compare_exchange_n((uint64_t *)(void *)s->host, &old, old | bits, false,
						     __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)
		      : !__atomic_compare_exchange_n((uint32_t *)(void *)s->host, &old32, old32 | (uint32_t)bits, false,
						     __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return false;
	page = mem_page_index(m, s->gpa);
	if (page != UINT64_MAX &&
	    (m->dirty_logging || __atomic_load_n(&m->page_bits[page], __ATOMIC_RELAXED) & MEM_PAGE_CODE))
		mem_mark_written(m, s->host, size);
	return true;
}

static unsigned paging_mode(const struct soft_cpu *c, const struct paging_level **levels)
{
	if (c->s.efer & EFER_LMA) {
		*levels = level_4;
		return ARRAY_SIZE(level_4);
	}
	if (c->s.cr4 & CR4_PAE) {
		*levels = level_pae;
		return ARRAY_SIZE(level_pae);
	}
	*levels = level_32;
	return ARRAY_SIZE(level_32);
}

static uint64_t table_root(const struct soft_cpu *c, const struct paging_level *top)
{
	if (top->entry_size == 4)
		return c->s.cr3 & 0xfffff000;
	return top->plain ? c->s.cr3 & 0xffffffe0 : c->s.cr3 & PTE_ADDR;
}

static uint64_t reserved_bits(const struct soft_cpu *c, const struct paging_level *l, bool leaf, unsigned n)
{
	uint64_t r = l->reserved | (leaf && n ? l->reserved_page : 0);

	if (l->entry_size == 4)
		return r;
	r |= c->mmu->reserved;
	if (!c->nxe)
		r |= PTE_NX;
	if (l->shift == 30 && !l->plain && !c->mmu->have_1g)
		r |= PTE_PS;
	return r;
}

/* Physical address of the 4 KiB page inside a leaf. */
static uint64_t leaf_gpa(const struct paging_level *l, uint64_t entry, uint64_t lin)
{
	uint64_t low = (1ull << l->shift) - 1;

	if (l->shift == 22) /* PSE-36: bits 20:13 are address bits 39:32 */
		return ((entry & 0xffc00000) | ((entry & 0x1fe000) << 19) | (lin & low)) & PAGE_MASK;
	return ((entry & PTE_ADDR & ~low) | (lin & low)) & PAGE_MASK;
}

/* One attempt: 0 with *out (page, gpa, rights), EXC_RAISED, or 1 when A/D bits lost a race. */
static int walk_once(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, bool last_try, struct tlb2 *out)
{
	const struct paging_level *l;
	unsigned nlevels = paging_mode(c, &l), n;
	struct walk_step step[4];
	uint32_t rights = PG_W | PG_U | PG_X;
	uint64_t table = table_root(c, l), e = 0;
	bool leaf = false;

	for (n = 0; n < nlevels; n++, l++) {
		step[n].gpa = table + ((lin >> l->shift) & ((1u << l->bits) - 1)) * l->entry_size;
		e = entry_read(c, &step[n], l->entry_size);
		if (!(e & PTE_P))
			return page_fault(c, lin, a, idx, 0);
		leaf = l->shift == 12 || (l->may_be_page && (e & PTE_PS) && (l->shift != 22 || c->s.cr4 & CR4_PSE));
		if (e & reserved_bits(c, l, leaf, l->shift != 12))
			return page_fault(c, lin, a, idx, PF_P | PF_RSVD);
		if (!l->plain)
			rights &= (e & PTE_W ? PG_W : 0) | (e & PTE_U ? PG_U : 0) |
				  (l->entry_size == 8 && (e & PTE_NX) ? 0 : PG_X);
		if (leaf)
			break;
		table = l->entry_size == 8 ? e & PTE_ADDR : e & 0xfffff000;
	}
	if (!access_allowed(c, rights, a, idx))
		return page_fault(c, lin, a, idx, PF_P);
	for (unsigned i = 0; i <= n; i++) {
		const struct paging_level *at = l - n + i;
		uint64_t bits = at->plain ? 0 : PTE_A | (i == n && a == MMU_WRITE ? PTE_D : 0);

		if (!entry_set(c, &step[i], at->entry_size, bits) && !last_try)
			return 1;
	}
	if ((e & PTE_G) && (c->s.cr4 & CR4_PGE))
		rights |= PG_G;
	if ((e & PTE_D) || a == MMU_WRITE)
		rights |= PG_D;
	if (l->shift >= 30)
		rights |= PG_HUGE;
	else if (l->shift > 12)
		rights |= PG_LARGE;
	out->gpa = leaf_gpa(l, e, lin);
	out->rights = rights;
	return 0;
}

static int page_walk(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, struct tlb2 *out)
{
	int r = 1;

	c->n_page_walks++;
	for (unsigned i = 0; r > 0; i++)
		r = walk_once(c, lin, a, idx, i >= WALK_RETRIES, out);
	return r;
}

/* What the page of lin maps to, when the access is allowed. */
static int translate(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, struct tlb2 *out)
{
	struct mmu_private *m = c->mmu;
	uint64_t page = lin & PAGE_MASK;
	const struct tlb2 *e = l2_lookup(m, page);
	const struct ram_block *b;

	if (e && access_allowed(c, e->rights, a, idx) && (a != MMU_WRITE || e->rights & PG_D)) {
		*out = *e;
		return 0;
	}
	if (!c->paging) {
		out->gpa = page;
		out->rights = PG_W | PG_U | PG_X | PG_D;
	} else if (page_walk(c, lin, a, idx, out)) {
		return EXC_RAISED;
	}
	out->page = page;
	out->gen = out->rights & PG_G ? m->global_gen : m->asid_gen;
	b = mem_ram_block(mem_of(c), out->gpa);
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

/* ---- first-level fills ----------------------------------------------------- */

static uint8_t page_bits(const struct soft_cpu *c, const struct tlb2 *t)
{
	return __atomic_load_n(&mem_of(c)->page_bits[t->index], __ATOMIC_SEQ_CST);
}

static bool page_watched(const struct mmu_private *m, uint64_t page)
{
	for (unsigned i = 0; i < m->nwatch; i++) {
		if (m->watch[i].lin < page + PAGE_SIZE && m->watch[i].lin + m->watch[i].len > page)
			return true;
	}
	return false;
}

static void l1_enter(struct soft_cpu *c, const struct tlb2 *t, enum mmu_access a, unsigned idx)
{
	struct mmu_private *m = c->mmu;
	struct tlb_entry *e = mmu_entry(c, idx, a, t->page);
	unsigned n = (unsigned)(e - &c->tlb[0][0][0]);
	struct fill_log *log = &m->log[t->rights & PG_G ? 1 : 0];

	if (!bitmap_test(log->logged, n)) {
		bitmap_set(log->logged, n);
		log->entry[log->n++] = (uint16_t)n;
	}
	if (a == MMU_EXEC)
		m->exec_index[idx][e - c->tlb[idx][a]] = t->index;
	__atomic_store_n(&e->tag, TLB_TAG_INVALID(n), __ATOMIC_RELAXED);
	__atomic_store_n(&e->addend, (uint64_t)(uintptr_t)t->host - t->page, __ATOMIC_RELEASE);
	if (a != MMU_WRITE) {
		__atomic_store_n(&e->tag, t->page, __ATOMIC_RELEASE);
		return;
	}
	/* Against mmu_protect_page: the tag must be visible before the bit is looked at again. */
	__atomic_store_n(&e->tag, t->page, __ATOMIC_SEQ_CST);
	if (page_bits(c, t) & MEM_PAGE_CODE)
		__atomic_store_n(&e->tag, TLB_TAG_INVALID(n), __ATOMIC_RELAXED);
}

/* Translate, and enter in the first level what may be entered. */
static int translate_fill(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, struct tlb2 *t)
{
	c->n_tlb_misses++;
	if (translate(c, lin, a, idx, t))
		return EXC_RAISED;
	if (!t->host)
		return 0;
	if (unlikely(c->mmu->nwatch) && a != MMU_EXEC && page_watched(c->mmu, t->page))
		return 0;
	if (a != MMU_WRITE) {
		l1_enter(c, t, a, idx);
		return 0;
	}
	if (t->rights & PG_ROM)
		return 0;
	if (mem_of(c)->dirty_logging)
		__atomic_fetch_or(&mem_of(c)->page_bits[t->index], MEM_PAGE_DIRTY, __ATOMIC_RELAXED);
	if (!(page_bits(c, t) & MEM_PAGE_CODE))
		l1_enter(c, t, a, idx);
	return 0;
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
	struct mem_map *m = mem_of(c);
	uint32_t gen;

	if (!(__atomic_load_n(&m->page_bits[index], __ATOMIC_SEQ_CST) & MEM_PAGE_CODE))
		return;
	gen = __atomic_load_n(&m->page_code_gen[index], __ATOMIC_RELAXED);
	m->code_written(m->code_opaque, index, off, len);
	if (__atomic_load_n(&m->page_code_gen[index], __ATOMIC_RELAXED) != gen) {
		c->code_changed = true;
		c->n_code_invalidations++;
	}
}

static uint64_t piece_load(struct soft_cpu *c, const struct tlb2 *t, unsigned off, unsigned size)
{
	const uint8_t *p = t->host + off;

	if (!t->host) {
		c->n_mmio++;
		return mem_read(mem_of(c), t->gpa + off, size);
	}
	switch (size) {
	case 1: return *(const volatile uint8_t *)p;
	case 2: return *(const volatile guest_u16 *)p;
	case 4: return *(const volatile guest_u32 *)p;
	default: return *(const volatile guest_u64 *)p;
	}
}

static void piece_store(struct soft_cpu *c, const struct tlb2 *t, unsigned off, unsigned size, uint64_t val)
{
	uint8_t *p = t->host + off;

	if (!t->host || t->rights & PG_ROM) {
		c->n_mmio++;
		mem_write(mem_of(c), t->gpa + off, val, size);
		return;
	}
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
	struct tlb2 t, t2;
	uint64_t v = 0;

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
	struct tlb2 t, t2;

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
	struct tlb2 t;

	*host_flags = 0;
	*host = mmu_hit(c, idx, a, lin, size);
	if (*host)
		return 0;
	if (translate_fill(c, lin, a, idx, &t))
		return EXC_RAISED;
	if (unlikely(c->mmu->nwatch) && a != MMU_EXEC)
		watch_check(c, lin, size, a);
	*host = NULL;
	if (!t.host || (a == MMU_WRITE && t.rights & PG_ROM))
		return 0;
	*host = t.host + page_off(lin);
	if (a == MMU_WRITE && page_bits(c, &t) & MEM_PAGE_CODE)
		*host_flags = MMU_HOST_CODE;
	return 0;
}

void mmu_written(struct soft_cpu *c, const uint8_t *host, unsigned size)
{
	const struct mem_map *m = mem_of(c);

	for (unsigned i = 0; i < m->nblocks; i++) {
		const struct ram_block *b = &m->block[i];
		uint64_t off = (uint64_t)(host - b->host);

		if (host >= b->host && off < b->size) {
			ram_written(c, (uint32_t)(b->page0 + (off >> PAGE_SHIFT)), page_off(off), size);
			return;
		}
	}
}

int mmu_probe(struct soft_cpu *c, uint64_t lin, unsigned len, enum mmu_access a, unsigned idx)
{
	struct tlb2 t;

	for (unsigned done = 0; done < len;) {
		unsigned n = MIN(len - done, (unsigned)PAGE_SIZE - page_off(lin));

		if (!mmu_hit(c, idx, a, lin, 1) && translate_fill(c, lin, a, idx, &t))
			return EXC_RAISED;
		done += n;
		lin = next_page(c, lin);
	}
	return 0;
}

/* Copy inside one page, between guest and buf. */
static int copy_piece(struct soft_cpu *c, uint64_t lin, uint8_t *buf, unsigned n, enum mmu_access a, unsigned idx)
{
	uint8_t *p = mmu_hit(c, idx, a, lin, n);
	struct tlb2 t;

	if (p) {
		memcpy(a == MMU_READ ? buf : p, a == MMU_READ ? p : buf, n);
		return 0;
	}
	if (translate_fill(c, lin, a, idx, &t))
		return EXC_RAISED;
	if (unlikely(c->mmu->nwatch))
		watch_check(c, lin, n, a);
	if (t.host && !(a == MMU_WRITE && t.rights & PG_ROM)) {
		if (a == MMU_READ) {
			memcpy(buf, t.host + page_off(lin), n);
			return 0;
		}
		memcpy(t.host + page_off(lin), buf, n);
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
	struct tlb2 t;

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

int mmu_init(struct soft_cpu *c, struct err *err)
{
	const struct cpu_model *model = c->v.accel->cfg.model;
	unsigned phys = model && model->phys_bits ? model->phys_bits : 40;
	struct mmu_private *m = calloc(1, sizeof(*m));

	if (!m)
		return err_set(err, -ENOMEM, "no memory for the TLB of CPU %u", c->v.index);
	c->mmu = m;
	m->reserved = PTE_ADDR & ~((1ull << phys) - 1);
	m->have_1g = !model || cpu_model_has(model, "pdpe1gb");
	for (unsigned i = 0; i < TLB2_SIZE; i++)
		m->l2[i].page = NO_PAGE;
	for (unsigned i = 0; i < N_ENTRIES; i++)
		(&c->tlb[0][0][0])[i].tag = TLB_TAG_INVALID(i);
	mmu_flush_all(c);
	return 0;
}

void mmu_fini(struct soft_cpu *c)
{
	free(c->mmu);
	c->mmu = NULL;
}
