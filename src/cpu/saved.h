/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A vCPU as a snapshot keeps it: struct cpu_state, its vector registers part by
 * part instead of as an XSAVE image, whose layout is the host's. Parts that are in
 * their initial state are left out. An exception under delivery is not kept: the
 * instruction that raised it has not been left, and raises it again.
 */
#ifndef KELVIN_CPU_SAVED_H
#define KELVIN_CPU_SAVED_H

#include "base/state.h"
#include "cpu/state.h"

struct cpu_model;
struct xsave_part;

struct cpu_saved {
	struct cpu_state s;
	uint32_t requests; /* VCPU_REQ_NMI, INIT, SIPI that the vCPU has not seen yet */
	uint8_t requested_sipi;
	/* the XSAVE image */
	uint8_t legacy[416]; /* x87 and SSE: FXSAVE's part that holds registers */
	struct xsave_part *part;
	uint32_t nparts;
};

/* Of struct cpu_saved, whose `s` is a complete state before saving, and after loading. */
extern const struct state cpu_saved_state;
void cpu_saved_free(struct cpu_saved *c);
/* What no guest can have brought a CPU of this model to is refused: cr4 bits are the engine's business. */
int cpu_state_check(const struct cpu_state *s, const struct cpu_model *m, struct err *err);

#endif
