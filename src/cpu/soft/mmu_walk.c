/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The page walk of the software CPU: 4-level, PAE and two-level tables as data,
 * rights, reserved bits, exact error codes, A and D bits.
 *
 * AMD64 APM volume 2 chapter 5, Intel SDM volume 3A chapter 4. Runs in the
 * vCPU's thread; entries are read once and changed with compare-and-exchange,
 * since other CPUs and devices may change them at any time.
 */
#include "cpu/soft/lockstep.h"
#include "cpu/soft/mmu_int.h"

/* A/D updates that lose a race against other CPUs are retried this often; then left undone. */
#define WALK_RETRIES 1000

/* #PF error code */
#define PF_P	1u
#define PF_W	2u
#define PF_U	4u
#define PF_RSVD 8u
#define PF_I	16u

/* One level of a paging mode's tables. */
struct paging_level {
	uint8_t shift, bits, entry_size;
	bool may_be_page; /* PS makes it a leaf */
	bool plain;	  /* PAE's PDPTE: no rights, no A bit, kept in the CPU */
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

/* struct mmu_private starts with it. */
static const struct mmu_walk *params(const struct soft_cpu *c)
{
	return (const struct mmu_walk *)(const void *)c->mmu;
}

uint64_t mmu_reserved_bits(unsigned phys_bits)
{
	return PTE_ADDR & ~((1ull << phys_bits) - 1);
}

bool mmu_allowed(const struct soft_cpu *c, uint32_t rights, enum mmu_access a, unsigned idx)
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
	s->host = mem_ram_ptr(mmu_mem(c), s->gpa, size);
	if (!s->host)
		s->entry = mem_read(mmu_mem(c), s->gpa, size);
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
	struct mem_map *m = mmu_mem(c);

	if ((old & bits) == bits || !s->host)
		return true;
	if (size == 8 ? !__atomic_compare_exchange_n((uint64_t *)(void *)s->host, &old, old | bits, false,
						     __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)
		      : !__atomic_compare_exchange_n((uint32_t *)(void *)s->host, &old32, old32 | (uint32_t)bits, false,
						     __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return false;
	if (unlikely(c->lockstep) && c->lockstep->log)
		c->lockstep->log->walk_set = true;
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
	return c->s.cr3 & PTE_ADDR;
}

static uint64_t reserved_bits(const struct soft_cpu *c, const struct paging_level *l, bool leaf, unsigned n)
{
	uint64_t r = l->reserved | (leaf && n ? l->reserved_page : 0);

	if (l->entry_size == 4)
		return r;
	r |= params(c)->reserved;
	if (!c->nxe)
		r |= PTE_NX;
	if (l->shift == 30 && !l->plain && !params(c)->have_1g)
		r |= PTE_PS;
	return r;
}

/* ---- PAE's pointer table ----------------------------------------------------- */

static bool pae_paging(const struct soft_cpu *c)
{
	return (c->s.cr0 & CR0_PG) && (c->s.cr4 & CR4_PAE) && !(c->s.efer & EFER_LMA);
}

static void pdptes_read(struct soft_cpu *c, uint64_t cr3, uint64_t pdpte[4])
{
	for (unsigned n = 0; n < 4; n++) {
		struct walk_step s = {.gpa = (cr3 & 0xffffffe0) + 8 * n};

		pdpte[n] = entry_read(c, &s, 8);
	}
}

int mmu_check_cr3(struct soft_cpu *c, uint64_t cr3)
{
	uint64_t pdpte[4];

	if (!pae_paging(c))
		return 0;
	pdptes_read(c, cr3, pdpte);
	for (unsigned n = 0; n < 4; n++)
		if ((pdpte[n] & PTE_P) && (pdpte[n] & (level_pae[0].reserved | params(c)->reserved)))
			return soft_raise_code(c, EXC_GP, 0);
	return 0;
}

void mmu_load_pdptes(struct soft_cpu *c)
{
	struct mmu_walk *w = (struct mmu_walk *)(void *)c->mmu;

	if (pae_paging(c))
		pdptes_read(c, c->s.cr3, w->pdpte);
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
static int walk_once(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, bool last_try,
		     struct mmu_page *out)
{
	const struct paging_level *l;
	unsigned nlevels = paging_mode(c, &l), n;
	struct walk_step step[4];
	uint32_t rights = PG_W | PG_U | PG_X;
	uint64_t table = table_root(c, l), e = 0;
	bool leaf = false;

	for (n = 0; n < nlevels; n++, l++) {
		if (l->plain) {
			e = params(c)->pdpte[(lin >> 30) & 3];
			if (!(e & PTE_P))
				return page_fault(c, lin, a, idx, 0);
			table = e & PTE_ADDR;
			continue;
		}
		step[n].gpa = table + ((lin >> l->shift) & ((1u << l->bits) - 1)) * l->entry_size;
		e = entry_read(c, &step[n], l->entry_size);
		if (!(e & PTE_P))
			return page_fault(c, lin, a, idx, 0);
		leaf = l->shift == 12 || (l->may_be_page && (e & PTE_PS) && (l->shift != 22 || c->s.cr4 & CR4_PSE));
		if (e & reserved_bits(c, l, leaf, l->shift != 12))
			return page_fault(c, lin, a, idx, PF_P | PF_RSVD);
		rights &=
		    (e & PTE_W ? PG_W : 0) | (e & PTE_U ? PG_U : 0) | (l->entry_size == 8 && (e & PTE_NX) ? 0 : PG_X);
		if (leaf)
			break;
		table = l->entry_size == 8 ? e & PTE_ADDR : e & 0xfffff000;
	}
	if (!mmu_allowed(c, rights, a, idx))
		return page_fault(c, lin, a, idx, PF_P);
	for (unsigned i = 0; i <= n; i++) {
		const struct paging_level *at = l - n + i;
		uint64_t bits = PTE_A | (i == n && a == MMU_WRITE ? PTE_D : 0);

		if (at->plain)
			continue;
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

int mmu_walk(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, struct mmu_page *out)
{
	int r = 1;

	c->n_page_walks++;
	for (unsigned i = 0; r > 0; i++)
		r = walk_once(c, lin, a, idx, i >= WALK_RETRIES, out);
	return r;
}
