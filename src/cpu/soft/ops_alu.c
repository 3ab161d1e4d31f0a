/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fast C paths for the hot integer forms: ADD OR ADC SBB AND SUB XOR CMP TEST,
 * INC DEC NEG NOT, SHL SHR SAR by a count. The host computes result and flags
 * (LAHF and SETO read them without touching the stack). High-byte and locked
 * forms are left to the host stubs, which are the reference for these paths.
 */
#include "cpu/soft/ops.h"

enum alu { ALU_ADD = 1, ALU_OR, ALU_ADC, ALU_SBB, ALU_AND, ALU_SUB, ALU_XOR, ALU_CMP, ALU_TEST };

/* AX after LAHF and SETO AL: flags in AH, OF in AL. */
static inline uint64_t flags_from_ax(uint32_t ax)
{
	return (ax >> 8 & 0xd5) | (ax & 1) << 11;
}

#define HOST_OP2(name, insn, type, sfx)                                                                                \
	static inline type name(type a, type b, uint32_t *ax)                                                          \
	{                                                                                                              \
		uint32_t f;                                                                                            \
                                                                                                                       \
		__asm__(insn sfx " %2, %0\n\tlahf\n\tseto %%al" : "+&r"(a), "=&a"(f) : "r"(b) : "cc");                 \
		*ax = f;                                                                                               \
		return a;                                                                                              \
	}
/* Byte registers: "q" keeps the compiler's choice addressable; RAX is the flags'. */
#define HOST_OP2_CARRY(name, insn, type, sfx)                                                                          \
	static inline type name(type a, type b, uint32_t carry, uint32_t *ax)                                          \
	{                                                                                                              \
		uint32_t f;                                                                                            \
                                                                                                                       \
		__asm__("btl $0, %3\n\t" insn sfx " %2, %0\n\tlahf\n\tseto %%al"                                       \
			: "+&r"(a), "=&a"(f)                                                                           \
			: "r"(b), "r"(carry)                                                                           \
			: "cc");                                                                                       \
		*ax = f;                                                                                               \
		return a;                                                                                              \
	}
#define HOST_OP1(name, insn, type, sfx)                                                                                \
	static inline type name(type a, uint32_t *ax)                                                                  \
	{                                                                                                              \
		uint32_t f;                                                                                            \
                                                                                                                       \
		__asm__(insn sfx " %0\n\tlahf\n\tseto %%al" : "+&r"(a), "=&a"(f) : : "cc");                            \
		*ax = f;                                                                                               \
		return a;                                                                                              \
	}
#define HOST_SHIFT(name, insn, type, sfx)                                                                              \
	static inline type name(type a, uint8_t n, uint32_t *ax)                                                       \
	{                                                                                                              \
		uint32_t f;                                                                                            \
                                                                                                                       \
		__asm__(insn sfx " %%cl, %0\n\tlahf\n\tseto %%al" : "+&r"(a), "=&a"(f) : "c"(n) : "cc");               \
		*ax = f;                                                                                               \
		return a;                                                                                              \
	}
#define HOST_ALL(bytes, type, sfx)                                                                                     \
	HOST_OP2(host_add_##bytes, "add", type, sfx)                                                                   \
	HOST_OP2(host_or_##bytes, "or", type, sfx)                                                                     \
	HOST_OP2_CARRY(host_adc_##bytes, "adc", type, sfx)                                                             \
	HOST_OP2_CARRY(host_sbb_##bytes, "sbb", type, sfx)                                                             \
	HOST_OP2(host_and_##bytes, "and", type, sfx)                                                                   \
	HOST_OP2(host_sub_##bytes, "sub", type, sfx)                                                                   \
	HOST_OP2(host_xor_##bytes, "xor", type, sfx)                                                                   \
	HOST_OP1(host_inc_##bytes, "inc", type, sfx)                                                                   \
	HOST_OP1(host_dec_##bytes, "dec", type, sfx)                                                                   \
	HOST_OP1(host_neg_##bytes, "neg", type, sfx)                                                                   \
	HOST_SHIFT(host_shl_##bytes, "shl", type, sfx)                                                                 \
	HOST_SHIFT(host_shr_##bytes, "shr", type, sfx)                                                                 \
	HOST_SHIFT(host_sar_##bytes, "sar", type, sfx)                                                                 \
	static inline uint64_t alu_##bytes(struct soft_cpu *c, enum alu op, uint64_t a, uint64_t b)                    \
	{                                                                                                              \
		uint32_t ax, carry = (uint32_t)c->s.rflags;                                                            \
		type r, x = (type)a, y = (type)b;                                                                      \
                                                                                                                       \
		switch (op) {                                                                                          \
		case ALU_ADD: r = host_add_##bytes(x, y, &ax); break;                                                  \
		case ALU_OR: r = host_or_##bytes(x, y, &ax); break;                                                    \
		case ALU_ADC: r = host_adc_##bytes(x, y, carry, &ax); break;                                           \
		case ALU_SBB: r = host_sbb_##bytes(x, y, carry, &ax); break;                                           \
		case ALU_AND:                                                                                          \
		case ALU_TEST: r = host_and_##bytes(x, y, &ax); break;                                                 \
		case ALU_XOR: r = host_xor_##bytes(x, y, &ax); break;                                                  \
		default: r = host_sub_##bytes(x, y, &ax); break;                                                       \
		}                                                                                                      \
		flags_set(c, FLAG_ARITH, flags_from_ax(ax));                                                           \
		return r;                                                                                              \
	}
HOST_ALL(1, uint8_t, "b")
HOST_ALL(2, uint16_t, "w")
HOST_ALL(4, uint32_t, "l")
HOST_ALL(8, uint64_t, "q")

#define ALU_STORES(op) ((op) != ALU_CMP && (op) != ALU_TEST)

/* A read-modify-write faults as a write. */
static inline int alu_mem_load(struct soft_cpu *c, const struct insn *i, unsigned size, bool write, uint64_t *v)
{
	uint64_t lin;

	if (write && unlikely(!mem_linear_fast(c, i, &lin) || !mmu_hit(c, c->mmu_index, MMU_WRITE, lin, size))) {
		if (insn_mem_linear(c, i, size, true, &lin) || mmu_probe(c, lin, size, MMU_WRITE, c->mmu_index))
			return EXC_RAISED;
	}
	return mem_load(c, i, size, v);
}

/*
 * One function per operation, size and form. Memory destinations: the store may
 * fault after the flags were computed, so flags are put back then.
 */
#define ALU_FORMS(kind, bytes)                                                                                         \
	static int kind##_rr_##bytes(struct soft_cpu *c, const struct insn *i)                                         \
	{                                                                                                              \
		uint64_t r = alu_##bytes(c, kind, c->s.gpr[i->op[0].reg], c->s.gpr[i->op[1].reg]);                     \
                                                                                                                       \
		if (ALU_STORES(kind))                                                                                  \
			gpr_write(c, i->op[0].reg, bytes, r);                                                          \
		return INSN_NEXT;                                                                                      \
	}                                                                                                              \
	static int kind##_ri_##bytes(struct soft_cpu *c, const struct insn *i)                                         \
	{                                                                                                              \
		uint64_t r = alu_##bytes(c, kind, c->s.gpr[i->op[0].reg], i->imm);                                     \
                                                                                                                       \
		if (ALU_STORES(kind))                                                                                  \
			gpr_write(c, i->op[0].reg, bytes, r);                                                          \
		return INSN_NEXT;                                                                                      \
	}                                                                                                              \
	static int kind##_rm_##bytes(struct soft_cpu *c, const struct insn *i)                                         \
	{                                                                                                              \
		uint64_t v, r;                                                                                         \
                                                                                                                       \
		if (unlikely(mem_load(c, i, bytes, &v)))                                                               \
			return EXC_RAISED;                                                                             \
		r = alu_##bytes(c, kind, c->s.gpr[i->op[0].reg], v);                                                   \
		if (ALU_STORES(kind))                                                                                  \
			gpr_write(c, i->op[0].reg, bytes, r);                                                          \
		return INSN_NEXT;                                                                                      \
	}                                                                                                              \
	static int kind##_mem_##bytes(struct soft_cpu *c, const struct insn *i, uint64_t src)                          \
	{                                                                                                              \
		uint64_t v, r, flags = c->s.rflags;                                                                    \
                                                                                                                       \
		if (unlikely(alu_mem_load(c, i, bytes, ALU_STORES(kind), &v)))                                         \
			return EXC_RAISED;                                                                             \
		r = alu_##bytes(c, kind, v, src);                                                                      \
		if (!ALU_STORES(kind) || likely(!mem_store(c, i, bytes, r)))                                           \
			return INSN_NEXT;                                                                              \
		c->s.rflags = flags;                                                                                   \
		return EXC_RAISED;                                                                                     \
	}                                                                                                              \
	static int kind##_mr_##bytes(struct soft_cpu *c, const struct insn *i)                                         \
	{                                                                                                              \
		return kind##_mem_##bytes(c, i, c->s.gpr[i->op[1].reg]);                                               \
	}                                                                                                              \
	static int kind##_mi_##bytes(struct soft_cpu *c, const struct insn *i)                                         \
	{                                                                                                              \
		return kind##_mem_##bytes(c, i, i->imm);                                                               \
	}

#define ALU_SIZES(op) ALU_FORMS(op, 1) ALU_FORMS(op, 2) ALU_FORMS(op, 4) ALU_FORMS(op, 8)
ALU_SIZES(ALU_ADD)
ALU_SIZES(ALU_OR)
ALU_SIZES(ALU_ADC)
ALU_SIZES(ALU_SBB)
ALU_SIZES(ALU_AND)
ALU_SIZES(ALU_SUB)
ALU_SIZES(ALU_XOR)
ALU_SIZES(ALU_CMP)
ALU_SIZES(ALU_TEST)

enum form { FORM_RR, FORM_RI, FORM_RM, FORM_MR, FORM_MI, FORMS };
#define ALU_ROW(op)                                                                                                    \
	{                                                                                                              \
		{op##_rr_1, op##_rr_2, op##_rr_4, op##_rr_8}, {op##_ri_1, op##_ri_2, op##_ri_4, op##_ri_8},            \
		    {op##_rm_1, op##_rm_2, op##_rm_4, op##_rm_8}, {op##_mr_1, op##_mr_2, op##_mr_4, op##_mr_8},        \
		    {op##_mi_1, op##_mi_2, op##_mi_4, op##_mi_8},                                                      \
	}
static insn_fn *const alu_fn[][FORMS][4] = {
    ALU_ROW(ALU_ADD), ALU_ROW(ALU_OR),	ALU_ROW(ALU_ADC), ALU_ROW(ALU_SBB),  ALU_ROW(ALU_AND),
    ALU_ROW(ALU_SUB), ALU_ROW(ALU_XOR), ALU_ROW(ALU_CMP), ALU_ROW(ALU_TEST),
};
static const uint16_t alu_mnemonic[] = {
    ZYDIS_MNEMONIC_ADD, ZYDIS_MNEMONIC_OR,  ZYDIS_MNEMONIC_ADC, ZYDIS_MNEMONIC_SBB,  ZYDIS_MNEMONIC_AND,
    ZYDIS_MNEMONIC_SUB, ZYDIS_MNEMONIC_XOR, ZYDIS_MNEMONIC_CMP, ZYDIS_MNEMONIC_TEST,
};

static insn_fn *alu_select(const struct insn *i)
{
	uint8_t d = i->op[0].kind, s = i->op[1].kind;
	unsigned n = (unsigned)__builtin_ctz(i->op[0].size) & 3, op = 0;
	enum form f;

	if ((i->prefixes & INSN_LOCK) || d == OPD_REG_HIGH || s == OPD_REG_HIGH)
		return NULL;
	if (d == OPD_REG)
		f = s == OPD_REG ? FORM_RR : s == OPD_IMM ? FORM_RI : FORM_RM;
	else
		f = s == OPD_REG ? FORM_MR : FORM_MI;
	while (alu_mnemonic[op] != i->mnemonic)
		op++;
	return alu_fn[op][f][n];
}

/* ---- one operand ---------------------------------------------------------------- */

/* SHL etc. with the count masked as the size wants; a count of 0 changes no flag. */
static int shift_reg(struct soft_cpu *c, const struct insn *i)
{
	unsigned size = i->op[0].size;
	uint8_t n = (uint8_t)(i->op[1].kind == OPD_IMM ? i->imm : c->s.gpr[R_RCX]) & (size == 8 ? 63 : 31);
	uint64_t v = c->s.gpr[i->op[0].reg];
	uint32_t ax;

	if (!n) {
		if (size == 4)
			c->s.gpr[i->op[0].reg] = (uint32_t)v;
		return INSN_NEXT;
	}
#define SHIFT(bytes, type)                                                                                             \
	(i->mnemonic == ZYDIS_MNEMONIC_SHL   ? host_shl_##bytes((type)v, n, &ax)                                       \
	 : i->mnemonic == ZYDIS_MNEMONIC_SHR ? host_shr_##bytes((type)v, n, &ax)                                       \
					     : host_sar_##bytes((type)v, n, &ax))
	switch (size) {
	case 1: v = SHIFT(1, uint8_t); break;
	case 2: v = SHIFT(2, uint16_t); break;
	case 4: v = SHIFT(4, uint32_t); break;
	default: v = SHIFT(8, uint64_t); break;
	}
#undef SHIFT
	gpr_write(c, i->op[0].reg, size, v);
	flags_set(c, FLAG_ARITH, flags_from_ax(ax));
	return INSN_NEXT;
}

static insn_fn *shift_select(const struct insn *i)
{
	/* AF is undefined after a shift and AMD and Intel differ: small sizes keep the host's way by stub too. */
	return i->op[0].kind == OPD_REG && i->op[0].size >= 4 ? shift_reg : NULL;
}

static int unary_reg(struct soft_cpu *c, const struct insn *i)
{
	unsigned size = i->op[0].size;
	uint64_t v = c->s.gpr[i->op[0].reg];
	uint64_t keep = i->mnemonic == ZYDIS_MNEMONIC_NEG ? 0 : FLAG_CF; /* INC and DEC leave CF */
	uint32_t ax;

#define UNARY(bytes, type)                                                                                             \
	(i->mnemonic == ZYDIS_MNEMONIC_INC   ? host_inc_##bytes((type)v, &ax)                                          \
	 : i->mnemonic == ZYDIS_MNEMONIC_DEC ? host_dec_##bytes((type)v, &ax)                                          \
					     : host_neg_##bytes((type)v, &ax))
	switch (size) {
	case 1: v = UNARY(1, uint8_t); break;
	case 2: v = UNARY(2, uint16_t); break;
	case 4: v = UNARY(4, uint32_t); break;
	default: v = UNARY(8, uint64_t); break;
	}
#undef UNARY
	gpr_write(c, i->op[0].reg, size, v);
	flags_set(c, FLAG_ARITH & ~keep, flags_from_ax(ax));
	return INSN_NEXT;
}

static insn_fn *unary_select(const struct insn *i)
{
	return i->op[0].kind == OPD_REG ? unary_reg : NULL;
}

static int not_reg(struct soft_cpu *c, const struct insn *i)
{
	gpr_write(c, i->op[0].reg, i->op[0].size, ~c->s.gpr[i->op[0].reg]);
	return INSN_NEXT;
}

static insn_fn *not_select(const struct insn *i)
{
	return i->op[0].kind == OPD_REG ? not_reg : NULL;
}

const struct ops_entry ops_alu_table[] = {
    {ZYDIS_MNEMONIC_ADD, NULL, alu_select},   {ZYDIS_MNEMONIC_OR, NULL, alu_select},
    {ZYDIS_MNEMONIC_ADC, NULL, alu_select},   {ZYDIS_MNEMONIC_SBB, NULL, alu_select},
    {ZYDIS_MNEMONIC_AND, NULL, alu_select},   {ZYDIS_MNEMONIC_SUB, NULL, alu_select},
    {ZYDIS_MNEMONIC_XOR, NULL, alu_select},   {ZYDIS_MNEMONIC_CMP, NULL, alu_select},
    {ZYDIS_MNEMONIC_TEST, NULL, alu_select},  {ZYDIS_MNEMONIC_INC, NULL, unary_select},
    {ZYDIS_MNEMONIC_DEC, NULL, unary_select}, {ZYDIS_MNEMONIC_NEG, NULL, unary_select},
    {ZYDIS_MNEMONIC_NOT, NULL, not_select},   {ZYDIS_MNEMONIC_SHL, NULL, shift_select},
    {ZYDIS_MNEMONIC_SHR, NULL, shift_select}, {ZYDIS_MNEMONIC_SAR, NULL, shift_select},
    {ZYDIS_MNEMONIC_INVALID, NULL, NULL},
};
