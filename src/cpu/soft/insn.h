/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A decoded instruction as the interpreter caches it, and the table that maps
 * Zydis mnemonics to handlers. Handlers follow soft.h's exception rules.
 */
#ifndef KELVIN_CPU_SOFT_INSN_H
#define KELVIN_CPU_SOFT_INSN_H

#include <Zydis/Zydis.h>
#include "cpu/soft/soft.h"

enum operand_kind {
	OPD_NONE,
	OPD_REG /* GPR */,
	OPD_REG_HIGH /* AH CH DH BH: reg is 0..3 */,
	OPD_MEM,
	OPD_IMM,
	OPD_SREG,
	OPD_CR,
	OPD_DR,
	OPD_VEC /* xmm, ymm, zmm, mm, st, k: through stubs only */
};

struct operand {
	uint8_t kind; /* enum operand_kind */
	uint8_t reg;  /* number within its class */
	uint8_t size; /* bytes; 0 for special sizes (FXSAVE, LGDT): see the handler */
	bool read, write;
};

#define INSN_LOCK  1u
#define INSN_REP   2u /* F3 */
#define INSN_REPNE 4u /* F2 */

struct insn {
	/* INSN_NEXT, INSN_JUMP, INSN_END or EXC_RAISED */
	int (*exec)(struct soft_cpu *c, const struct insn *i);
	uint64_t imm;		     /* immediate or branch displacement, sign-extended; far pointer offset */
	int64_t disp;		     /* of the memory operand */
	void *stub;		     /* host code of a data-processing instruction */
	uint16_t mnemonic;	     /* ZydisMnemonic */
	uint16_t imm2;		     /* far pointer selector, ENTER's level */
	uint8_t length;		     /* bytes */
	uint8_t opsize;		     /* effective operand size, bytes: 1 for byte forms, 2, 4 or 8 */
	uint8_t addrsize;	     /* 2, 4 or 8 */
	uint8_t prefixes;	     /* INSN_* */
	uint8_t mem_seg;	     /* enum cpu_seg */
	uint8_t mem_base, mem_index; /* GPR number, 16 = rip (rip-relative: disp is already absolute), 0xff = none */
	uint8_t mem_scale;	     /* shift: 0..3 */
	uint8_t nops;
	struct operand op[4]; /* explicit operands, destination first */
	uint8_t bytes[15];
	uint32_t flags_read, flags_written; /* RFLAGS bits */
};

/* Linear address of the memory operand with mode checks; size as given. */
int insn_mem_linear(struct soft_cpu *c, const struct insn *i, unsigned size, bool write, uint64_t *lin);
/* Offset only (LEA, and handlers that add to it). */
uint64_t insn_mem_offset(const struct soft_cpu *c, const struct insn *i);
/* Read or write operand n (GPR, high byte, memory, immediate). 32-bit GPR writes clear bits 63:32. */
int insn_read(struct soft_cpu *c, const struct insn *i, unsigned n, uint64_t *val);
int insn_write(struct soft_cpu *c, const struct insn *i, unsigned n, uint64_t val);

typedef int insn_fn(struct soft_cpu *c, const struct insn *i);
struct insn_handler {
	ZydisMnemonic mnemonic;
	insn_fn *fn;
};
/*
 * Tables of the system part (sys.c, seg.c, exc.c, msr.c): control and debug
 * registers, descriptor tables, MSRs, CPUID, HLT, port I/O (IN OUT INS OUTS),
 * far transfers, INT IRET, SYSCALL SYSRET SYSENTER SYSEXIT, SWAPGS, segment
 * loads (MOV sreg, POP sreg, LDS..), LAR LSL VERR VERW, CLI STI PUSHF POPF, STAC
 * CLAC, RDTSC(P), XSETBV XGETBV, XSAVE family and FXSAVE FXRSTOR, INVLPG INVPCID
 * WBINVD, MONITOR MWAIT, FSGSBASE. Ends with mnemonic ZYDIS_MNEMONIC_INVALID.
 *
 * MOV, PUSH, POP, CALL, JMP and RET are in it too, for their system forms only:
 * an operand of kind OPD_SREG, OPD_CR or OPD_DR, or a far branch (Zydis'
 * meta.branch_type FAR). The decoder picks the entry for those forms.
 */
extern const struct insn_handler sys_handlers[];

/* Decode one instruction at most 15 bytes long from buf in the CPU's current mode. 0, -EAGAIN (needs more
 * bytes than len), -EINVAL (#UD). Fills everything but exec's stub lazily. */
int insn_decode(struct soft_cpu *c, const uint8_t *buf, unsigned len, uint64_t rip, struct insn *out);

#endif
