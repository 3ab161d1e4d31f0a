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

/*
 * Decoded code is cached by physical page and may run at several virtual
 * addresses, so a rip-relative disp counts from the END of the instruction:
 * address = rip + length + disp (insn_mem_offset adds it up).
 */
#define INSN_BASE_RIP 16
#define INSN_NO_REG   0xff

/* What must allow an instruction at run time (CR0.TS/EM/MP, CR4, XCR0). */
enum insn_gate { GATE_NONE, GATE_X87, GATE_FWAIT, GATE_MMX, GATE_SSE, GATE_AVX, GATE_AVX512 };

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
	uint8_t mem_base, mem_index; /* GPR number, INSN_BASE_RIP, INSN_NO_REG; VSIB: index is a vector number */
	uint8_t mem_scale;	     /* shift: 0..3 */
	uint8_t nops;
	uint8_t mem_op;	      /* which op[] is the memory operand, INSN_NO_REG = none */
	uint8_t gate;	      /* enum insn_gate: which control bits can forbid it */
	uint8_t mem_align;    /* bytes the memory operand must be aligned to (#GP), 0 = any */
	bool align_mm;	      /* ... unless MXCSR.MM allows misaligned operands (AMD) */
	bool far_branch;      /* JMP, CALL, RET with a segment: the system part's */
	bool ends;	      /* decoders end their block after it: branches and all of the system part */
	uint8_t kind;	      /* private to the handler (stub_exec.c: enum stub_kind) */
	uint16_t mem_size;    /* bytes of the memory operand as Zydis gives it */
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

/* 0, or the exception of a gate that is shut (#UD, #NM) raised. */
int insn_gate_check(struct soft_cpu *c, enum insn_gate gate);
/* The full Zydis view of an instruction that insn_decode accepted (for re-encoding; not a hot path). */
int insn_decode_full(const struct soft_cpu *c, const struct insn *i, ZydisDecodedInstruction *zi,
		     ZydisDecodedOperand *ops);

/* The decoder of 64-bit code as this CPU's model reads it (TZCNT or BSF, AMD's branches). After interp_init. */
const ZydisDecoder *insn_decoder64(const struct soft_cpu *c);
const ZydisDecoder *insn_decoder32(const struct soft_cpu *c);

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

/* Bytes to which the memory operand must be aligned; 0: any. */
uint8_t insn_align(const ZydisDecodedInstruction *zi, unsigned mem_size);

/* A shift or rotation: by zero it leaves the flags alone. SDM volume 2, SAL/SAR/SHL/SHR. Any thread. */
bool insn_shifts(ZydisMnemonic mnemonic);

/* Decode one instruction at most 15 bytes long from buf in the CPU's current mode. 0, -EAGAIN (needs more
 * bytes than len), -EINVAL (#UD), -E2BIG (longer than 15 bytes: #GP). exec is set; stubs are made when first run. */
int insn_decode(struct soft_cpu *c, const uint8_t *buf, unsigned len, uint64_t rip, struct insn *out);

#endif
