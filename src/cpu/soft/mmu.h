/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What mmu.c offers to the system part beyond soft.h: data breakpoints. All
 * calls are made by the vCPU's own thread.
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

#endif
