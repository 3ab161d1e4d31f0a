/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * -accel soft,lockstep=on: each block runs in the translator and, from the same
 * state, in the interpreter; lockstep.c has the design. One vCPU, its thread.
 */
#ifndef KELVIN_CPU_SOFT_LOCKSTEP_H
#define KELVIN_CPU_SOFT_LOCKSTEP_H

#include "cpu/soft/soft.h"

#define LOCKSTEP_STORES (1u << 16)
#define LOCKSTEP_BYTES	(1u << 20)

/* What one run stored, with the bytes of before: in order, so it is undone backwards. */
struct store_log {
	unsigned n;
	uint32_t used;
	bool full;     /* something could not be noted: the run cannot be undone */
	bool walk_set; /* a page walk set A or D bits */
	struct store_note {
		uint8_t *host;
		uint32_t len, at; /* bytes[at..] */
	} note[LOCKSTEP_STORES];
	uint8_t bytes[LOCKSTEP_BYTES]; /* before */
	uint8_t after[LOCKSTEP_BYTES]; /* at the end of the run */
};

struct lockstep {
	struct store_log *log; /* of the run under way, NULL between runs; mmu.c notes in it */
	/* RDTSC of the translated run, for the interpreter's */
	bool replay;
	unsigned tsc_at;
	struct store_log log_jit, log_interp;
	struct cpu_state before, jit;
	uint8_t image[CPU_XSAVE_SIZE]; /* vector state of before, when the block used it */
	bool ended;		       /* a difference was reported */
	uint64_t n_blocks, n_insns, n_retries, n_once;
};

/* mmu.c and mmu_walk.c, general registers only: size bytes at host are about to be stored. */
void lockstep_note(struct lockstep *l, uint8_t *host, unsigned size);

/* How the translator left one block. */
struct jit_one {
	uint32_t reason;  /* enum jit_reason */
	unsigned insns;	  /* that were completed, without the step */
	uint32_t dead;	  /* flags that are not kept at its end */
	bool vec;	  /* it used vector or x87 state: that of before is in the image */
	bool step_done;	  /* the step's handler ran (or, of a repeated string instruction, `rounds` of it) */
	bool step_string; /* ... by whole pages */
	int step_ret;
	uint64_t step_rip, rounds;
};
/*
 * jit_rt.c: run the block at rip, unlinked, once; the vector state is in memory afterwards. False: no block
 * (*r says what to do, JIT_EXC: recorded). `image`: CPU_XSAVE_SIZE bytes.
 */
bool jit_run_one(struct soft_cpu *c, uint8_t *image, struct jit_one *one, enum jit_exit *r);

/* Has the run stored so much that a long string instruction should stop between two pages? */
static inline bool lockstep_enough(const struct soft_cpu *c)
{
	return unlikely(c->lockstep) && c->lockstep->log && c->lockstep->log->used > LOCKSTEP_BYTES / 4;
}

/* In place of jit_run: 0, or EXC_RAISED. */
int lockstep_run(struct soft_cpu *c);
int lockstep_init(struct soft_cpu *c, struct err *err);
void lockstep_fini(struct soft_cpu *c);
/* What RDTSC gives, when the interpreter repeats a translated block. */
bool lockstep_tsc(const struct soft_cpu *c, uint64_t *tsc);

#endif
