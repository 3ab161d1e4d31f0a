/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Private to the interpreter (decode.c, interp.c, ops_*.c, stub*.c): register
 * and memory access with the fast paths inline, and the handler tables of the
 * ops_*.c files. All of it runs in the vCPU's own thread.
 */
#ifndef KELVIN_CPU_SOFT_OPS_H
#define KELVIN_CPU_SOFT_OPS_H

#include "cpu/soft/insn.h"

/*
 * A handler table of the interpreter. `select` may return a faster function
 * for this form of operands at decode time, or NULL for `fn`.
 */
struct ops_entry {
	ZydisMnemonic mnemonic;
	insn_fn *fn;
	insn_fn *(*select)(const struct insn *i);
};
extern const struct ops_entry ops_move_table[], ops_alu_table[], ops_branch_table[], ops_string_table[],
    ops_bit_table[], ops_vec_table[], ops_misc_table[], ops_legacy_table[];

/* Which instruction sets this vCPU's CPUID has; isa.c. */
#define ISA_SETS (ZYDIS_ISA_SET_MAX_VALUE + 1)
void isa_init(const struct soft_cpu *c, bool present[ISA_SETS]);
bool isa_vendor_is_amd(const struct soft_cpu *c);
bool isa_has_lzcnt(const struct soft_cpu *c);
/* User code finds the same instruction sets in the guest's CPUID as the host CPU executes. */
bool isa_as_host(const struct soft_cpu *c);

/* stub.c, stub_exec.c: instructions that the host CPU executes for us. */
bool stub_eligible(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops);
int stub_exec_first(struct soft_cpu *c, const struct insn *i);
int stub_init(struct soft_cpu *c, struct err *err);
void stub_fini(struct soft_cpu *c);
/* Forget all stubs; only together with all decoded blocks. */
void stub_flush(struct soft_cpu *c);

/* Per-CPU facts decode needs; filled by interp_init. */
struct decode_info {
	bool isa[ISA_SETS];
	bool lzcnt;	   /* without it (TZCNT: BMI1) the opcode is BSR */
	bool amd_branches; /* 66-prefixed near branches are 16 bits wide in 64-bit mode */
};
const struct decode_info *interp_decode_info(const struct soft_cpu *c);
/* Stubs of this CPU were thrown away: forget every decoded block at the next boundary. */
void interp_flush_blocks(struct soft_cpu *c);

int insn_undefined(struct soft_cpu *c, const struct insn *i);

/* ---- general registers ---------------------------------------------------- */

static inline uint64_t size_mask(unsigned size)
{
	return size >= 8 ? ~0ull : (1ull << (size * 8)) - 1;
}

static inline void gpr_write(struct soft_cpu *c, unsigned reg, unsigned size, uint64_t val)
{
	uint64_t *r = &c->s.gpr[reg];

	switch (size) {
	case 1: *(uint8_t *)r = (uint8_t)val; break;
	case 2: *(uint16_t *)(void *)r = (uint16_t)val; break;
	case 4: *r = (uint32_t)val; break;
	default: *r = val; break;
	}
}

static inline uint64_t gpr_read(const struct soft_cpu *c, unsigned reg, unsigned size)
{
	return c->s.gpr[reg] & size_mask(size);
}

static inline int64_t sign_extend(uint64_t val, unsigned size)
{
	unsigned shift = 64 - size * 8;

	return (int64_t)(val << shift) >> shift;
}

static inline void flags_set(struct soft_cpu *c, uint64_t mask, uint64_t val)
{
	c->s.rflags = (c->s.rflags & ~mask) | (val & mask);
}

/* Condition codes 0..15 as in Jcc, SETcc, CMOVcc. */
static inline bool cond_true(uint64_t f, unsigned cc)
{
	bool r;

	switch (cc >> 1) {
	case 0: r = f & FLAG_OF; break;
	case 1: r = f & FLAG_CF; break;
	case 2: r = f & FLAG_ZF; break;
	case 3: r = f & (FLAG_CF | FLAG_ZF); break;
	case 4: r = f & FLAG_SF; break;
	case 5: r = f & FLAG_PF; break;
	case 6: r = ((f >> 7) ^ (f >> 11)) & 1; break;
	default: r = (((f >> 7) ^ (f >> 11)) & 1) || (f & FLAG_ZF); break;
	}
	return r ^ (cc & 1);
}

/* ---- memory operands -------------------------------------------------------- */

static inline uint64_t mem_offset(const struct soft_cpu *c, const struct insn *i)
{
	uint64_t a = (uint64_t)i->disp;

	if (likely(i->mem_base < 16))
		a += c->s.gpr[i->mem_base];
	else if (i->mem_base == INSN_BASE_RIP)
		a += c->s.rip + i->length;
	if (i->mem_index < 16)
		a += c->s.gpr[i->mem_index] << i->mem_scale;
	if (unlikely(i->addrsize != 8))
		a &= size_mask(i->addrsize);
	return a;
}

/* The linear address before any check: right whenever the TLB has the page. False: go the checked way. */
static inline bool mem_linear_fast(const struct soft_cpu *c, const struct insn *i, uint64_t *lin)
{
	uint64_t a = mem_offset(c, i);

	if (likely(c->mode_key & SOFT_KEY_LONG64)) {
		if (unlikely(i->mem_seg >= S_FS))
			a += c->s.seg[i->mem_seg].base;
		*lin = a;
		return true;
	}
	*lin = (uint32_t)a;
	return (c->mode_key & SOFT_KEY_FLAT) && i->mem_seg < S_FS && i->mem_seg != S_CS;
}

int ops_load_slow(struct soft_cpu *c, const struct insn *i, unsigned size, uint64_t *val);
int ops_store_slow(struct soft_cpu *c, const struct insn *i, unsigned size, uint64_t val);

static inline int mem_load(struct soft_cpu *c, const struct insn *i, unsigned size, uint64_t *val)
{
	uint64_t lin;
	const uint8_t *p;

	if (likely(mem_linear_fast(c, i, &lin)) && likely((p = mmu_hit(c, c->mmu_index, MMU_READ, lin, size)))) {
		switch (size) {
		case 1: *val = *(const volatile uint8_t *)p; break;
		case 2: *val = *(const volatile guest_u16 *)p; break;
		case 4: *val = *(const volatile guest_u32 *)p; break;
		default: *val = *(const volatile guest_u64 *)p; break;
		}
		return 0;
	}
	return ops_load_slow(c, i, size, val);
}

static inline int mem_store(struct soft_cpu *c, const struct insn *i, unsigned size, uint64_t val)
{
	uint64_t lin;
	uint8_t *p;

	if (likely(mem_linear_fast(c, i, &lin)) && likely((p = mmu_hit(c, c->mmu_index, MMU_WRITE, lin, size)))) {
		switch (size) {
		case 1: *(volatile uint8_t *)p = (uint8_t)val; break;
		case 2: *(volatile guest_u16 *)p = (uint16_t)val; break;
		case 4: *(volatile guest_u32 *)p = (uint32_t)val; break;
		default: *(volatile guest_u64 *)p = val; break;
		}
		return 0;
	}
	return ops_store_slow(c, i, size, val);
}

/* ---- stack ------------------------------------------------------------------- */

static inline unsigned stack_width(const struct soft_cpu *c)
{
	return c->long64 ? 8 : c->stack32 ? 4 : 2;
}
/* RSP after adding n, in the stack's width (bits above it keep their value in 16-bit stacks). */
static inline uint64_t stack_add(const struct soft_cpu *c, int64_t n)
{
	uint64_t sp = c->s.gpr[R_RSP];

	if (likely(c->long64))
		return sp + (uint64_t)n;
	if (c->stack32)
		return (uint32_t)(sp + (uint64_t)n);
	return (sp & ~0xffffull) | ((sp + (uint64_t)n) & 0xffff);
}
/* Load or store at SS:off (off masked to the stack's width). */
int stack_load(struct soft_cpu *c, uint64_t off, unsigned size, uint64_t *val);
int stack_store(struct soft_cpu *c, uint64_t off, unsigned size, uint64_t val);
/* Push: stores, then moves RSP. */
int stack_push(struct soft_cpu *c, unsigned size, uint64_t val);

#endif
