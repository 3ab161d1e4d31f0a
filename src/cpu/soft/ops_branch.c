/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Near control flow: JMP, Jcc, CALL, RET, LOOP, JCXZ. Far forms go to the system
 * part. The target is checked (canonical, code limit) before anything changes.
 */
#include "cpu/soft/ops.h"

static bool canonical(uint64_t a)
{
	return ((uint64_t)((int64_t)(a << 16) >> 16)) == a;
}

/* 0 when rip may become `target`, already cut to the operand size. */
static inline int check_target(struct soft_cpu *c, uint64_t target)
{
	if (likely(c->long64)) {
		if (likely(canonical(target)))
			return 0;
	} else if (target <= c->s.seg[S_CS].limit) {
		return 0;
	}
	return soft_raise_code(c, EXC_GP, 0);
}

static inline uint64_t relative_target(const struct soft_cpu *c, const struct insn *i)
{
	uint64_t t = c->s.rip + i->length + i->imm;

	return likely(i->opsize == 8) ? t : t & size_mask(i->opsize);
}

static int jump_to(struct soft_cpu *c, uint64_t target)
{
	if (unlikely(check_target(c, target)))
		return EXC_RAISED;
	c->s.rip = target;
	return INSN_JUMP;
}

static int jmp_relative(struct soft_cpu *c, const struct insn *i)
{
	return jump_to(c, relative_target(c, i));
}

/* Target of JMP and CALL through a register or memory: as wide as the operand size (16 with AMD's 66). */
static inline int indirect_target(struct soft_cpu *c, const struct insn *i, uint64_t *t)
{
	if (i->op[0].kind == OPD_MEM)
		return mem_load(c, i, i->opsize, t);
	*t = gpr_read(c, i->op[0].reg, i->opsize);
	return 0;
}

static int jmp_indirect(struct soft_cpu *c, const struct insn *i)
{
	uint64_t t;

	if (indirect_target(c, i, &t))
		return EXC_RAISED;
	return jump_to(c, t);
}

/* The far forms share their mnemonics with the near ones. */
static int branch_system(struct soft_cpu *c, const struct insn *i)
{
	for (const struct insn_handler *h = sys_handlers; h->mnemonic != ZYDIS_MNEMONIC_INVALID; h++)
		if (h->mnemonic == (ZydisMnemonic)i->mnemonic)
			return h->fn(c, i);
	return insn_undefined(c, i);
}

static insn_fn *jmp_select(const struct insn *i)
{
	if (i->far_branch)
		return branch_system;
	return i->op[0].kind == OPD_IMM ? jmp_relative : jmp_indirect;
}

static int call_to(struct soft_cpu *c, const struct insn *i, uint64_t target)
{
	/* Seen on AMD hosts: a stack that cannot be written faults before a target that is not canonical. */
	if (unlikely(c->long64 && !canonical(target)) && canonical(stack_add(c, -(int64_t)i->opsize)) &&
	    mmu_probe(c, stack_add(c, -(int64_t)i->opsize), i->opsize, MMU_WRITE, c->mmu_index))
		return EXC_RAISED;
	if (unlikely(check_target(c, target)) || stack_push(c, i->opsize, c->s.rip + i->length))
		return EXC_RAISED;
	c->s.rip = target;
	return INSN_JUMP;
}

static int call_relative(struct soft_cpu *c, const struct insn *i)
{
	return call_to(c, i, relative_target(c, i));
}

static int call_indirect(struct soft_cpu *c, const struct insn *i)
{
	uint64_t t;

	if (indirect_target(c, i, &t))
		return EXC_RAISED;
	return call_to(c, i, t);
}

static insn_fn *call_select(const struct insn *i)
{
	if (i->far_branch)
		return branch_system;
	return i->op[0].kind == OPD_IMM ? call_relative : call_indirect;
}

static int ret_near(struct soft_cpu *c, const struct insn *i)
{
	uint64_t t;

	if (stack_load(c, c->s.gpr[R_RSP], i->opsize, &t) || check_target(c, t))
		return EXC_RAISED;
	c->s.gpr[R_RSP] = stack_add(c, (int64_t)(i->opsize + (i->nops ? (uint16_t)i->imm : 0)));
	c->s.rip = t;
	return INSN_JUMP;
}

static insn_fn *ret_select(const struct insn *i)
{
	return i->far_branch ? branch_system : ret_near;
}

/* ---- conditional ------------------------------------------------------------------ */

static inline int jcc(struct soft_cpu *c, const struct insn *i, unsigned cc)
{
	if (cond_true(c->s.rflags, cc))
		return jump_to(c, relative_target(c, i));
	return INSN_NEXT;
}

#define CC_LIST(X)                                                                                                     \
	X(0, O)                                                                                                        \
	X(1, NO)                                                                                                       \
	X(2, B)                                                                                                        \
	X(3, NB)                                                                                                       \
	X(4, Z) X(5, NZ) X(6, BE) X(7, NBE) X(8, S) X(9, NS) X(10, P) X(11, NP) X(12, L) X(13, NL) X(14, LE) X(15, NLE)
#define CC_FN(n, name)                                                                                                 \
	static int j_##name(struct soft_cpu *c, const struct insn *i)                                                  \
	{                                                                                                              \
		return jcc(c, i, n);                                                                                   \
	}
CC_LIST(CC_FN)

static uint64_t count_register(const struct soft_cpu *c, const struct insn *i)
{
	return c->s.gpr[R_RCX] & size_mask(i->addrsize);
}

static int jcxz(struct soft_cpu *c, const struct insn *i)
{
	return count_register(c, i) ? INSN_NEXT : jump_to(c, relative_target(c, i));
}

/* The last REP prefix chooses the condition, as seen on AMD hosts: F3 E0 loops while equal. */
static uint16_t loop_condition(const struct insn *i)
{
	uint16_t m = i->mnemonic;

	if (m == ZYDIS_MNEMONIC_LOOP || !__builtin_cpu_is("amd"))
		return m;
	for (unsigned k = 0; k + 2 < i->length; k++) {
		if (i->bytes[k] == 0xf3)
			m = ZYDIS_MNEMONIC_LOOPE;
		else if (i->bytes[k] == 0xf2)
			m = ZYDIS_MNEMONIC_LOOPNE;
	}
	return m;
}

static int loop_family(struct soft_cpu *c, const struct insn *i)
{
	uint64_t n = (count_register(c, i) - 1) & size_mask(i->addrsize);
	bool zf = c->s.rflags & FLAG_ZF, taken = n != 0;
	int r = INSN_NEXT;

	if (loop_condition(i) == ZYDIS_MNEMONIC_LOOPE)
		taken = taken && zf;
	else if (loop_condition(i) == ZYDIS_MNEMONIC_LOOPNE)
		taken = taken && !zf;
	if (taken) {
		r = jump_to(c, relative_target(c, i));
		if (r == EXC_RAISED)
			return r;
	}
	gpr_write(c, R_RCX, i->addrsize, n);
	return r;
}

const struct ops_entry ops_branch_table[] = {
    {ZYDIS_MNEMONIC_JMP, NULL, jmp_select},
    {ZYDIS_MNEMONIC_CALL, NULL, call_select},
    {ZYDIS_MNEMONIC_RET, NULL, ret_select},
    {ZYDIS_MNEMONIC_JCXZ, jcxz, NULL},
    {ZYDIS_MNEMONIC_JECXZ, jcxz, NULL},
    {ZYDIS_MNEMONIC_JRCXZ, jcxz, NULL},
    {ZYDIS_MNEMONIC_LOOP, loop_family, NULL},
    {ZYDIS_MNEMONIC_LOOPE, loop_family, NULL},
    {ZYDIS_MNEMONIC_LOOPNE, loop_family, NULL},
#define CC_ENTRY(n, name) {ZYDIS_MNEMONIC_J##name, j_##name, NULL},
    CC_LIST(CC_ENTRY){ZYDIS_MNEMONIC_INVALID, NULL, NULL},
};
