/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Accesses of a block as their address registers see them: shared by jit_group.c and jit_loop.c. */
#ifndef KELVIN_CPU_SOFT_JIT_GROUP_H
#define KELVIN_CPU_SOFT_JIT_GROUP_H

#include "cpu/soft/jit_xlat.h"

#define BASE_RIP  16
#define BASE_NONE 17

/* An access as the search sees it. `at`: displacement from what the registers were when their version began. */
struct access {
	uint8_t base, index, scale;
	bool write;
	uint8_t align;
	uint32_t base_version, index_version;
	int32_t at;
	unsigned size;
};

struct registers {
	uint32_t version[16];
	int32_t delta[16];
};

/* The access of an instruction that a shared lookup can serve; false: none. */
bool x_access_of(const struct xinsn *in, const struct registers *r, struct access *a);
void x_registers_after(struct registers *r, const struct xinsn *in);

#endif
