/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What mmu.c offers to the system part beyond soft.h: data breakpoints, alignment
 * checks, PAE's pointer table. All calls are made by the vCPU's own thread.
 */
#ifndef KELVIN_CPU_SOFT_MMU_H
#define KELVIN_CPU_SOFT_MMU_H

#include "cpu/soft/soft.h"

/* A data breakpoint: linear range, which DR, and whether reads count too. */
struct mmu_watch {
	uint64_t lin;
	uint8_t len, dr;
	bool reads;
};
/* Replace the set (n = 0..4). Watched pages leave the first-level TLB, so every access is seen. */
void mmu_set_watch(struct soft_cpu *c, const struct mmu_watch *w, unsigned n);
/* Which data breakpoints were hit since the last call: DR6 bits B0..B3. */
uint64_t mmu_take_watch_hit(struct soft_cpu *c);

/*
 * Alignment checks of user accesses (CR0.AM and EFLAGS.AC at CPL 3). While on, user data pages stay out of the
 * first-level TLB, so that every access comes to where it is checked.
 */
void mmu_set_align_check(struct soft_cpu *c, bool on);
/* An operand of this size at lin is misaligned as processors are seen to count it. */
static inline bool mmu_misaligned(uint64_t lin, unsigned size)
{
	unsigned align = size;

	switch (size) {
	case 1: return false;
	case 10: align = 8; break;
	case 14: /* x87 environments and images: of the words they are made of */
	case 94: align = 2; break;
	case 28:
	case 108: align = 4; break;
	default: break;
	}
	return !(align & (align - 1)) && (lin & (align - 1));
}
/* #AC, or 0. */
int mmu_align_check(struct soft_cpu *c, uint64_t lin, unsigned size);

/*
 * Legacy PAE paging keeps the four entries of the page-directory-pointer table in the CPU: loaded when CR3 is
 * written, or paging or a bit of CR4 changes; memory may change afterwards. mmu_check_cr3: #GP when one of them
 * has reserved bits set; mmu_load_pdptes takes them (with other paging it does nothing).
 */
int mmu_check_cr3(struct soft_cpu *c, uint64_t cr3);
void mmu_load_pdptes(struct soft_cpu *c);

#endif
