/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Host stubs: a data-processing instruction of the guest, re-encoded so that the
 * host CPU executes it on the guest's registers, wrapped in loads and stores of
 * exactly the registers, flags and vector state it uses.
 */
#ifndef KELVIN_CPU_SOFT_STUB_H
#define KELVIN_CPU_SOFT_STUB_H

#include "cpu/soft/ops.h"

/* How stub_exec.c runs it (insn.kind). */
enum stub_kind {
	STUB_PLAIN,    /* registers only */
	STUB_MEM,      /* one memory operand */
	STUB_MASK_K,   /* AVX-512: memory elements chosen by an opmask */
	STUB_MASK_VEC, /* VMASKMOV, VPMASKMOV: chosen by sign bits of a vector register */
};

struct stub {
	const void *code;  /* in the executable view */
	uint8_t kind;	   /* enum stub_kind */
	bool x87;	   /* x87 or MMX: the whole x87 image goes through the host */
	bool x87_pointers; /* not a control instruction: it moves FIP, FDP and FOP */
	bool x87_waits;	   /* looks for a pending #MF before anything else */
	bool mem_read, mem_write;
	/* Masked operands: the memory has `units` of unit_size bytes. Bit k of the mask is for unit k, or
	 * k % units in a broadcast; only mask_bits bits count. */
	uint8_t unit_size, units, mask_bits;
	uint8_t mask_reg; /* opmask or vector number */
	bool compressed;  /* active elements are contiguous (EXPAND, COMPRESS) */
	bool broadcast;
};

/* 0, or the vector the host raised: EXC_DE is STUB_FAULT | 0, and so on. */
#define STUB_FAULT 0x100
int stub_call(struct soft_cpu *c, const struct stub *s, void *mem);
const struct stub *stub_make(struct soft_cpu *c, const struct insn *i);

/* x87 instructions that leave FIP, FDP and FOP alone. */
bool x87_is_control(ZydisMnemonic m);
/* FOP of an x87 instruction of that length. */
uint16_t x87_opcode(const uint8_t *bytes, unsigned length);
/* Offsets in the FXSAVE64 image. */
enum { FX_FOP = 6, FX_FIP = 8, FX_FDP = 16 };

/* Where the host's standard XSAVE layout has each component, from CPUID leaf 0xd. */
struct xsave_layout {
	uint16_t ymm_high, opmask, zmm_high, zmm_16_31; /* byte offsets, 0 = absent */
	uint32_t mxcsr_mask;				/* bits MXCSR may have */
};
extern struct xsave_layout xsave_layout;
#define XSAVE_MXCSR 24
#define MXCSR_MM    BIT(17) /* AMD: SSE operands may be misaligned */
#define XSAVE_XMM   160

#endif
