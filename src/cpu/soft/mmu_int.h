/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between mmu.c (TLB, loads and stores) and mmu_walk.c (page tables). The vCPU's own thread. */
#ifndef KELVIN_CPU_SOFT_MMU_INT_H
#define KELVIN_CPU_SOFT_MMU_INT_H

#include "cpu/soft/mmu.h"

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

enum page_rights { PG_W = 1, PG_U = 2, PG_X = 4, PG_G = 8, PG_D = 16, PG_LARGE = 32, PG_HUGE = 64, PG_ROM = 128 };

/* A page as the walk found it and the second-level TLB keeps it. */
struct mmu_page {
	uint64_t page; /* linear address of the page; NO_PAGE = empty */
	uint64_t gen;
	uint64_t gpa;
	uint8_t *host; /* NULL: not RAM */
	uint32_t index;
	uint32_t rights; /* enum page_rights */
};

/* What the walk depends on besides the CPU's state. */
struct mmu_walk {
	uint64_t reserved; /* physical address bits beyond this model's */
	bool have_1g;
	uint64_t pdpte[4]; /* legacy PAE */
};
uint64_t mmu_reserved_bits(unsigned phys_bits);

static inline struct mem_map *mmu_mem(const struct soft_cpu *c)
{
	return c->v.accel->cfg.mem;
}

/* What the page of lin maps to when the access is allowed, or EXC_RAISED; nothing is entered in the first level. */
int mmu_translate(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, struct mmu_page *out);
unsigned mmu_pcid(const struct soft_cpu *c);

/* May a page with these rights be accessed so, with the CPU's current control bits? */
bool mmu_allowed(const struct soft_cpu *c, uint32_t rights, enum mmu_access a, unsigned idx);
/* Walk the tables in memory: 0 with out->gpa and out->rights, or EXC_RAISED with the #PF. */
int mmu_walk(struct soft_cpu *c, uint64_t lin, enum mmu_access a, unsigned idx, struct mmu_page *out);

#endif
