/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Moves: MOV (general registers; segment, control and debug registers go to the
 * system part), MOVZX, MOVSX, MOVSXD, LEA, XCHG of registers, PUSH, POP, PUSHA,
 * POPA, ENTER, LEAVE, CMOVcc, SETcc, BSWAP, XLAT. AMD64 APM volume 3.
 */
#include "cpu/soft/ops.h"

/* ---- MOV ------------------------------------------------------------------------ */

/* Sizes as constants, so that each of these is a few host instructions. */
#define MOV_FORMS(size, type)                                                                                          \
	static int mov_rr_##size(struct soft_cpu *c, const struct insn *i)                                             \
	{                                                                                                              \
		gpr_write(c, i->op[0].reg, size, c->s.gpr[i->op[1].reg]);                                              \
		return INSN_NEXT;                                                                                      \
	}                                                                                                              \
	static int mov_ri_##size(struct soft_cpu *c, const struct insn *i)                                             \
	{                                                                                                              \
		gpr_write(c, i->op[0].reg, size, i->imm);                                                              \
		return INSN_NEXT;                                                                                      \
	}                                                                                                              \
	static int mov_rm_##size(struct soft_cpu *c, const struct insn *i)                                             \
	{                                                                                                              \
		uint64_t v;                                                                                            \
                                                                                                                       \
		if (unlikely(mem_load(c, i, size, &v)))                                                                \
			return EXC_RAISED;                                                                             \
		gpr_write(c, i->op[0].reg, size, v);                                                                   \
		return INSN_NEXT;                                                                                      \
	}                                                                                                              \
	static int mov_mr_##size(struct soft_cpu *c, const struct insn *i)                                             \
	{                                                                                                              \
		return mem_store(c, i, size, (type)c->s.gpr[i->op[1].reg]);                                            \
	}                                                                                                              \
	static int mov_mi_##size(struct soft_cpu *c, const struct insn *i)                                             \
	{                                                                                                              \
		return mem_store(c, i, size, (type)i->imm);                                                            \
	}
MOV_FORMS(1, uint8_t)
MOV_FORMS(2, uint16_t)
MOV_FORMS(4, uint32_t)
MOV_FORMS(8, uint64_t)

static unsigned size_index(unsigned size)
{
	return (unsigned)__builtin_ctz(size) & 3;
}

#define BY_SIZE(name)                                                                                                  \
	{                                                                                                              \
		name##_1, name##_2, name##_4, name##_8                                                                 \
	}

static int mov_any(struct soft_cpu *c, const struct insn *i)
{
	uint64_t v;

	if (insn_read(c, i, 1, &v))
		return EXC_RAISED;
	return insn_write(c, i, 0, v);
}

/* MOV to and from the system's registers is one mnemonic with ours; sys_handlers has it too. */
static int mov_system(struct soft_cpu *c, const struct insn *i)
{
	static insn_fn *fn;
	insn_fn *f = __atomic_load_n(&fn, __ATOMIC_RELAXED);

	if (unlikely(!f)) {
		for (const struct insn_handler *h = sys_handlers; h->mnemonic != ZYDIS_MNEMONIC_INVALID; h++)
			if (h->mnemonic == ZYDIS_MNEMONIC_MOV)
				f = h->fn;
		if (!f)
			return insn_undefined(c, i);
		__atomic_store_n(&fn, f, __ATOMIC_RELAXED);
	}
	return f(c, i);
}

static insn_fn *mov_select(const struct insn *i)
{
	static insn_fn *const rr[] = BY_SIZE(mov_rr), *const ri[] = BY_SIZE(mov_ri), *const rm[] = BY_SIZE(mov_rm),
			      *const mr[] = BY_SIZE(mov_mr), *const mi[] = BY_SIZE(mov_mi);
	uint8_t d = i->op[0].kind, s = i->op[1].kind;
	unsigned n = size_index(i->op[0].size);

	if (d == OPD_SREG || d == OPD_CR || d == OPD_DR || s == OPD_CR || s == OPD_DR || s == OPD_SREG)
		return mov_system;
	if (d == OPD_REG && s == OPD_REG)
		return rr[n];
	if (d == OPD_REG && s == OPD_IMM)
		return ri[n];
	if (d == OPD_REG && s == OPD_MEM)
		return rm[n];
	if (d == OPD_MEM && s == OPD_REG)
		return mr[n];
	if (d == OPD_MEM && s == OPD_IMM)
		return mi[n];
	return mov_any;
}

/* ---- extension -------------------------------------------------------------------- */

static int movzx(struct soft_cpu *c, const struct insn *i)
{
	uint64_t v;

	if (insn_read(c, i, 1, &v))
		return EXC_RAISED;
	gpr_write(c, i->op[0].reg, i->op[0].size, v);
	return INSN_NEXT;
}

static int movsx(struct soft_cpu *c, const struct insn *i)
{
	uint64_t v;

	if (insn_read(c, i, 1, &v))
		return EXC_RAISED;
	gpr_write(c, i->op[0].reg, i->op[0].size, (uint64_t)sign_extend(v, i->op[1].size));
	return INSN_NEXT;
}

#define MOVX_MEM(name, from, expr)                                                                                     \
	static int name(struct soft_cpu *c, const struct insn *i)                                                      \
	{                                                                                                              \
		uint64_t v;                                                                                            \
                                                                                                                       \
		if (unlikely(mem_load(c, i, from, &v)))                                                                \
			return EXC_RAISED;                                                                             \
		gpr_write(c, i->op[0].reg, i->op[0].size, expr);                                                       \
		return INSN_NEXT;                                                                                      \
	}
MOVX_MEM(movzx_m1, 1, v)
MOVX_MEM(movzx_m2, 2, v)
MOVX_MEM(movsx_m1, 1, (uint64_t)(int64_t)(int8_t)v)
MOVX_MEM(movsx_m4, 4, (uint64_t)(int64_t)(int32_t)v)

static insn_fn *movzx_select(const struct insn *i)
{
	if (i->op[1].kind != OPD_MEM)
		return NULL;
	return i->op[1].size == 1 ? movzx_m1 : movzx_m2;
}
static insn_fn *movsx_select(const struct insn *i)
{
	if (i->op[1].kind != OPD_MEM || i->op[1].size == 2)
		return NULL;
	return i->op[1].size == 1 ? movsx_m1 : movsx_m4;
}

static int lea(struct soft_cpu *c, const struct insn *i)
{
	gpr_write(c, i->op[0].reg, i->op[0].size, mem_offset(c, i));
	return INSN_NEXT;
}

static int cbw_family(struct soft_cpu *c, const struct insn *i)
{
	uint64_t a = c->s.gpr[R_RAX];

	switch (i->mnemonic) {
	case ZYDIS_MNEMONIC_CBW: gpr_write(c, R_RAX, 2, (uint64_t)(int64_t)(int8_t)a); break;
	case ZYDIS_MNEMONIC_CWDE: gpr_write(c, R_RAX, 4, (uint64_t)(int64_t)(int16_t)a); break;
	case ZYDIS_MNEMONIC_CDQE: gpr_write(c, R_RAX, 8, (uint64_t)(int64_t)(int32_t)a); break;
	case ZYDIS_MNEMONIC_CWD: gpr_write(c, R_RDX, 2, a & 0x8000 ? ~0ull : 0); break;
	case ZYDIS_MNEMONIC_CDQ: gpr_write(c, R_RDX, 4, a & 0x80000000u ? ~0ull : 0); break;
	default: gpr_write(c, R_RDX, 8, a >> 63 ? ~0ull : 0); break;
	}
	return INSN_NEXT;
}

static int bswap(struct soft_cpu *c, const struct insn *i)
{
	uint64_t *r = &c->s.gpr[i->op[0].reg];

	if (i->op[0].size == 8)
		*r = __builtin_bswap64(*r);
	else if (i->op[0].size == 4)
		*r = __builtin_bswap32((uint32_t)*r);
	else
		*(uint16_t *)(void *)r = 0; /* undefined by the manuals; what CPUs do */
	return INSN_NEXT;
}

/* ---- conditions -------------------------------------------------------------------- */

/* Condition code of a mnemonic by table: Zydis sorts mnemonics by name, not by code. */
static const struct {
	uint16_t cmov, set;
} condition[16] = {
    {ZYDIS_MNEMONIC_CMOVO, ZYDIS_MNEMONIC_SETO},   {ZYDIS_MNEMONIC_CMOVNO, ZYDIS_MNEMONIC_SETNO},
    {ZYDIS_MNEMONIC_CMOVB, ZYDIS_MNEMONIC_SETB},   {ZYDIS_MNEMONIC_CMOVNB, ZYDIS_MNEMONIC_SETNB},
    {ZYDIS_MNEMONIC_CMOVZ, ZYDIS_MNEMONIC_SETZ},   {ZYDIS_MNEMONIC_CMOVNZ, ZYDIS_MNEMONIC_SETNZ},
    {ZYDIS_MNEMONIC_CMOVBE, ZYDIS_MNEMONIC_SETBE}, {ZYDIS_MNEMONIC_CMOVNBE, ZYDIS_MNEMONIC_SETNBE},
    {ZYDIS_MNEMONIC_CMOVS, ZYDIS_MNEMONIC_SETS},   {ZYDIS_MNEMONIC_CMOVNS, ZYDIS_MNEMONIC_SETNS},
    {ZYDIS_MNEMONIC_CMOVP, ZYDIS_MNEMONIC_SETP},   {ZYDIS_MNEMONIC_CMOVNP, ZYDIS_MNEMONIC_SETNP},
    {ZYDIS_MNEMONIC_CMOVL, ZYDIS_MNEMONIC_SETL},   {ZYDIS_MNEMONIC_CMOVNL, ZYDIS_MNEMONIC_SETNL},
    {ZYDIS_MNEMONIC_CMOVLE, ZYDIS_MNEMONIC_SETLE}, {ZYDIS_MNEMONIC_CMOVNLE, ZYDIS_MNEMONIC_SETNLE},
};

static int cmov_cc(struct soft_cpu *c, const struct insn *i, unsigned cc)
{
	uint64_t v;

	/* The source is read, and may fault, whatever the condition says. */
	if (insn_read(c, i, 1, &v))
		return EXC_RAISED;
	if (!cond_true(c->s.rflags, cc)) {
		if (i->op[0].size != 4)
			return INSN_NEXT;
		v = c->s.gpr[i->op[0].reg]; /* a 32-bit CMOV clears the upper half either way */
	}
	gpr_write(c, i->op[0].reg, i->op[0].size, v);
	return INSN_NEXT;
}

static int set_cc(struct soft_cpu *c, const struct insn *i, unsigned cc)
{
	return insn_write(c, i, 0, cond_true(c->s.rflags, cc));
}

#define CC_LIST(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define CC_FNS(n)                                                                                                      \
	static int cmov_##n(struct soft_cpu *c, const struct insn *i)                                                  \
	{                                                                                                              \
		return cmov_cc(c, i, n);                                                                               \
	}                                                                                                              \
	static int set_##n(struct soft_cpu *c, const struct insn *i)                                                   \
	{                                                                                                              \
		return set_cc(c, i, n);                                                                                \
	}
CC_LIST(CC_FNS)
#define CC_CMOV(n) cmov_##n,
#define CC_SET(n)  set_##n,

static insn_fn *condition_select(const struct insn *i)
{
	static insn_fn *const cmov_fn[16] = {CC_LIST(CC_CMOV)};
	static insn_fn *const set_fn[16] = {CC_LIST(CC_SET)};

	for (unsigned cc = 0; cc < 16; cc++) {
		if (condition[cc].cmov == i->mnemonic)
			return cmov_fn[cc];
		if (condition[cc].set == i->mnemonic)
			return set_fn[cc];
	}
	return NULL;
}

/* ---- XCHG, XLAT ---------------------------------------------------------------------- */

static int xchg_reg(struct soft_cpu *c, const struct insn *i)
{
	uint64_t a, b;

	if (insn_read(c, i, 0, &a) || insn_read(c, i, 1, &b))
		return EXC_RAISED;
	/* The second operand first: XCHG EAX, EAX must still clear the upper half. */
	if (insn_write(c, i, 1, a))
		return EXC_RAISED;
	return insn_write(c, i, 0, b);
}

/* With memory it is an atomic exchange: the host's own (stub). */
static insn_fn *xchg_select(const struct insn *i)
{
	return i->mem_op == INSN_NO_REG ? xchg_reg : NULL;
}

static int xlat(struct soft_cpu *c, const struct insn *i)
{
	uint64_t off = (c->s.gpr[R_RBX] + (c->s.gpr[R_RAX] & 0xff)) & size_mask(i->addrsize), lin, v;

	if (seg_linear(c, i->mem_seg, off, 1, false, &lin) || mmu_load(c, lin, 1, &v))
		return EXC_RAISED;
	gpr_write(c, R_RAX, 1, v);
	return INSN_NEXT;
}

/* ---- stack --------------------------------------------------------------------------- */

static int push_reg8(struct soft_cpu *c, const struct insn *i)
{
	return stack_push(c, 8, c->s.gpr[i->op[0].reg]);
}

static int push(struct soft_cpu *c, const struct insn *i)
{
	uint64_t v;

	if (insn_read(c, i, 0, &v))
		return EXC_RAISED;
	if (i->op[0].kind != OPD_SREG || i->opsize != 4)
		return stack_push(c, i->opsize, v);
	/* A segment register takes a whole slot of which CPUs write only the selector's two bytes. */
	if (stack_store(c, stack_add(c, -4), 2, v))
		return EXC_RAISED;
	c->s.gpr[R_RSP] = stack_add(c, -4);
	return INSN_NEXT;
}

static int pop_system(struct soft_cpu *c, const struct insn *i)
{
	for (const struct insn_handler *h = sys_handlers; h->mnemonic != ZYDIS_MNEMONIC_INVALID; h++)
		if (h->mnemonic == ZYDIS_MNEMONIC_POP)
			return h->fn(c, i);
	return insn_undefined(c, i);
}

static int pop(struct soft_cpu *c, const struct insn *i)
{
	uint64_t old = c->s.gpr[R_RSP], v;

	if (stack_load(c, old, i->opsize, &v))
		return EXC_RAISED;
	/* An address based on RSP sees the popped stack; a fault must not. */
	c->s.gpr[R_RSP] = stack_add(c, i->opsize);
	if (insn_write(c, i, 0, v)) {
		c->s.gpr[R_RSP] = old;
		return EXC_RAISED;
	}
	return INSN_NEXT;
}

static int pop_reg8(struct soft_cpu *c, const struct insn *i)
{
	uint64_t v;

	if (stack_load(c, c->s.gpr[R_RSP], 8, &v))
		return EXC_RAISED;
	c->s.gpr[R_RSP] += 8;
	c->s.gpr[i->op[0].reg] = v;
	return INSN_NEXT;
}

static insn_fn *push_select(const struct insn *i)
{
	return i->op[0].kind == OPD_REG && i->opsize == 8 ? push_reg8 : NULL;
}
static insn_fn *pop_select(const struct insn *i)
{
	if (i->op[0].kind == OPD_SREG)
		return pop_system;
	return i->op[0].kind == OPD_REG && i->opsize == 8 ? pop_reg8 : NULL;
}

static int pusha(struct soft_cpu *c, const struct insn *i)
{
	uint64_t sp = c->s.gpr[R_RSP];

	for (unsigned r = 0; r < 8; r++)
		if (stack_push(c, i->opsize, r == R_RSP ? sp : c->s.gpr[r])) {
			c->s.gpr[R_RSP] = sp;
			return EXC_RAISED;
		}
	return INSN_NEXT;
}

static int popa(struct soft_cpu *c, const struct insn *i)
{
	uint64_t v[8];

	for (unsigned r = 0; r < 8; r++)
		if (stack_load(c, stack_add(c, (int64_t)(7 - r) * i->opsize), i->opsize, &v[r]))
			return EXC_RAISED;
	for (unsigned r = 0; r < 8; r++)
		if (r != R_RSP)
			gpr_write(c, r, i->opsize, v[r]);
	c->s.gpr[R_RSP] = stack_add(c, 8 * i->opsize);
	return INSN_NEXT;
}

static int leave(struct soft_cpu *c, const struct insn *i)
{
	uint64_t v, old = c->s.gpr[R_RSP], bp = c->s.gpr[R_RBP];

	if (stack_load(c, bp, i->opsize, &v))
		return EXC_RAISED;
	if (c->long64 || c->stack32)
		c->s.gpr[R_RSP] = c->long64 ? bp : (uint32_t)bp;
	else
		c->s.gpr[R_RSP] = (old & ~0xffffull) | (bp & 0xffff);
	c->s.gpr[R_RSP] = stack_add(c, i->opsize);
	gpr_write(c, R_RBP, i->opsize, v);
	return INSN_NEXT;
}

/* Bits of RBP that address the stack take delta; the others stay. */
static uint64_t frame_add(const struct soft_cpu *c, uint64_t bp, int64_t delta)
{
	if (c->long64)
		return bp + (uint64_t)delta;
	return c->stack32 ? (uint32_t)(bp + (uint64_t)delta) : (bp & ~0xffffull) | ((bp + (uint64_t)delta) & 0xffff);
}

static int enter_frames(struct soft_cpu *c, const struct insn *i, unsigned level, uint64_t frame)
{
	uint64_t bp = c->s.gpr[R_RBP], v;

	for (unsigned k = 1; k < level; k++) {
		bp = frame_add(c, bp, -(int64_t)i->opsize);
		if (stack_load(c, bp, i->opsize, &v) || stack_push(c, i->opsize, v))
			return EXC_RAISED;
	}
	return level ? stack_push(c, i->opsize, frame) : 0;
}

static int enter(struct soft_cpu *c, const struct insn *i)
{
	uint64_t old = c->s.gpr[R_RSP], frame, lin;
	unsigned level = i->imm2 & 31;

	if (stack_push(c, i->opsize, c->s.gpr[R_RBP]))
		return EXC_RAISED;
	frame = c->s.gpr[R_RSP];
	if (enter_frames(c, i, level, frame))
		goto fault;
	c->s.gpr[R_RSP] = stack_add(c, -(int64_t)(uint16_t)i->imm);
	/* The new top must be writable, or the instruction faults as a whole. */
	if (seg_linear(c, S_SS, c->long64 ? c->s.gpr[R_RSP] : c->s.gpr[R_RSP] & size_mask(stack_width(c)), 1, true,
		       &lin) ||
	    mmu_probe(c, lin, 1, MMU_WRITE, c->mmu_index))
		goto fault;
	gpr_write(c, R_RBP, i->opsize, frame);
	return INSN_NEXT;
fault:
	c->s.gpr[R_RSP] = old;
	return EXC_RAISED;
}

const struct ops_entry ops_move_table[] = {
    {ZYDIS_MNEMONIC_MOV, mov_any, mov_select},
    {ZYDIS_MNEMONIC_MOVZX, movzx, movzx_select},
    {ZYDIS_MNEMONIC_MOVSX, movsx, movsx_select},
    {ZYDIS_MNEMONIC_MOVSXD, movsx, movsx_select},
    {ZYDIS_MNEMONIC_LEA, lea, NULL},
    {ZYDIS_MNEMONIC_CBW, cbw_family, NULL},
    {ZYDIS_MNEMONIC_CWDE, cbw_family, NULL},
    {ZYDIS_MNEMONIC_CDQE, cbw_family, NULL},
    {ZYDIS_MNEMONIC_CWD, cbw_family, NULL},
    {ZYDIS_MNEMONIC_CDQ, cbw_family, NULL},
    {ZYDIS_MNEMONIC_CQO, cbw_family, NULL},
    {ZYDIS_MNEMONIC_BSWAP, bswap, NULL},
    {ZYDIS_MNEMONIC_XCHG, NULL, xchg_select},
    {ZYDIS_MNEMONIC_XLAT, xlat, NULL},
    {ZYDIS_MNEMONIC_PUSH, push, push_select},
    {ZYDIS_MNEMONIC_POP, pop, pop_select},
    {ZYDIS_MNEMONIC_PUSHA, pusha, NULL},
    {ZYDIS_MNEMONIC_PUSHAD, pusha, NULL},
    {ZYDIS_MNEMONIC_POPA, popa, NULL},
    {ZYDIS_MNEMONIC_POPAD, popa, NULL},
    {ZYDIS_MNEMONIC_ENTER, enter, NULL},
    {ZYDIS_MNEMONIC_LEAVE, leave, NULL},
#define CONDITION_ENTRIES(cc)                                                                                          \
	{ZYDIS_MNEMONIC_CMOV##cc, NULL, condition_select}, {ZYDIS_MNEMONIC_SET##cc, NULL, condition_select},
    CONDITION_ENTRIES(O) CONDITION_ENTRIES(NO) CONDITION_ENTRIES(B) CONDITION_ENTRIES(NB) CONDITION_ENTRIES(Z)
	CONDITION_ENTRIES(NZ) CONDITION_ENTRIES(BE) CONDITION_ENTRIES(NBE) CONDITION_ENTRIES(S) CONDITION_ENTRIES(NS)
	    CONDITION_ENTRIES(P) CONDITION_ENTRIES(NP) CONDITION_ENTRIES(L) CONDITION_ENTRIES(NL) CONDITION_ENTRIES(LE)
		CONDITION_ENTRIES(NLE){ZYDIS_MNEMONIC_INVALID, NULL, NULL},
};
