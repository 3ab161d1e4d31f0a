/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Instructions on segments: MOV, PUSH, POP and LxS of segment registers, LLDT
 * LTR LAR LSL VERR VERW ARPL, and far jumps, calls and returns with call gates.
 * AMD64 APM volume 3 (each instruction), volume 2 section 4.11.
 * Far jumps and calls to a TSS or task gate go on in task.c.
 */
#include "cpu/soft/sys.h"

/* ---- moves ------------------------------------------------------------------------ */

/* MOV SS and POP SS hold interrupts off for one instruction. */
static int after_sreg(struct soft_cpu *c, unsigned seg)
{
	if (seg == S_SS)
		c->s.int_shadow = true;
	return INSN_END;
}

int sys_mov_sreg(struct soft_cpu *c, const struct insn *i)
{
	uint64_t val;

	if (i->op[1].kind == OPD_SREG)
		return insn_write(c, i, 0, c->s.seg[i->op[1].reg].sel) ? EXC_RAISED : INSN_NEXT;
	if (i->op[0].reg == S_CS)
		return soft_raise(c, EXC_UD);
	if (insn_read(c, i, 1, &val) || seg_load(c, i->op[0].reg, (uint16_t)val))
		return EXC_RAISED;
	return after_sreg(c, i->op[0].reg);
}

int sys_push_seg(struct soft_cpu *c, const struct insn *i)
{
	struct stack_ref s = stack_current(c);

	if (stack_ref_push(c, &s, i->opsize, c->s.seg[i->op[0].reg].sel))
		return EXC_RAISED;
	stack_ref_commit(c, &s);
	return INSN_NEXT;
}

int sys_pop_seg(struct soft_cpu *c, const struct insn *i)
{
	struct stack_ref s = stack_current(c);
	uint64_t val;

	if (stack_ref_pop(c, &s, i->opsize, &val))
		return EXC_RAISED;
	/* The width of the stack is that before the load of SS. */
	if (seg_load(c, i->op[0].reg, (uint16_t)val))
		return EXC_RAISED;
	stack_ref_commit(c, &s);
	return after_sreg(c, i->op[0].reg);
}

int sys_lds(struct soft_cpu *c, const struct insn *i)
{
	static const struct {
		ZydisMnemonic mnemonic;
		uint8_t seg;
	} which[] = {{ZYDIS_MNEMONIC_LDS, S_DS},
		     {ZYDIS_MNEMONIC_LES, S_ES},
		     {ZYDIS_MNEMONIC_LFS, S_FS},
		     {ZYDIS_MNEMONIC_LGS, S_GS},
		     {ZYDIS_MNEMONIC_LSS, S_SS}};
	unsigned seg = S_DS;
	uint64_t lin, off = 0;
	uint16_t sel;

	for (unsigned n = 0; n < ARRAY_SIZE(which); n++) {
		if (which[n].mnemonic == i->mnemonic)
			seg = which[n].seg;
	}
	if (insn_mem_linear(c, i, i->opsize + 2u, false, &lin) || mmu_read_buf(c, lin, &off, i->opsize, c->mmu_index) ||
	    mmu_read_buf(c, lin + i->opsize, &sel, 2, c->mmu_index) || seg_load(c, seg, sel))
		return EXC_RAISED;
	insn_write(c, i, 0, off);
	return after_sreg(c, seg);
}

/* ---- LDTR and TR ---------------------------------------------------------------------- */

static int need_cpl0_protected(struct soft_cpu *c)
{
	if (!sys_protected(c))
		return soft_raise(c, EXC_UD);
	return c->cpl ? sys_gp0(c) : 0;
}

int sys_lldt(struct soft_cpu *c, const struct insn *i)
{
	struct descriptor d;
	uint64_t sel;
	uint32_t high = 0;

	if (need_cpl0_protected(c) || insn_read(c, i, 0, &sel))
		return EXC_RAISED;
	sel &= 0xffff;
	if (!(sel & ~(uint64_t)SEL_RPL)) {
		seg_set_null(c, S_LDTR, (uint16_t)sel);
		return INSN_NEXT;
	}
	if (sel & SEL_TI)
		return soft_raise_code(c, EXC_GP, sel & ~SEL_RPL);
	if (desc_read(c, (uint16_t)sel, EXC_GP, 0, &d))
		return EXC_RAISED;
	if (d.seg.s || d.seg.type != DESC_LDT)
		return soft_raise_code(c, EXC_GP, sel & ~SEL_RPL);
	if (!d.seg.present)
		return soft_raise_code(c, EXC_NP, sel & ~SEL_RPL);
	if (sys_long(c) && desc_read_high(c, &d, &high))
		return EXC_RAISED;
	d.seg.base |= (uint64_t)high << 32;
	c->s.seg[S_LDTR] = d.seg;
	return INSN_NEXT;
}

int sys_ltr(struct soft_cpu *c, const struct insn *i)
{
	struct descriptor d;
	uint64_t sel;
	uint32_t high = 0;
	uint8_t byte;

	if (need_cpl0_protected(c) || insn_read(c, i, 0, &sel))
		return EXC_RAISED;
	sel &= 0xffff;
	if (!(sel & ~(uint64_t)SEL_RPL))
		return sys_gp0(c);
	if (sel & SEL_TI)
		return soft_raise_code(c, EXC_GP, sel & ~SEL_RPL);
	if (desc_read(c, (uint16_t)sel, EXC_GP, 0, &d))
		return EXC_RAISED;
	if (d.seg.s || (d.seg.type != DESC_TSS_AVAIL && (sys_long(c) || d.seg.type != DESC_TSS16_AVAIL)))
		return soft_raise_code(c, EXC_GP, sel & ~SEL_RPL);
	if (!d.seg.present)
		return soft_raise_code(c, EXC_NP, sel & ~SEL_RPL);
	if (sys_long(c) && desc_read_high(c, &d, &high))
		return EXC_RAISED;
	byte = (uint8_t)(d.raw >> 40) | 2; /* busy */
	if (mmu_write_buf(c, d.lin + 5, &byte, 1, MMU_KERNEL))
		return EXC_RAISED;
	d.seg.type |= 2;
	d.seg.base |= (uint64_t)high << 32;
	c->s.seg[S_TR] = d.seg;
	return INSN_NEXT;
}

/* ---- LAR, LSL, VERR, VERW, ARPL ---------------------------------------------------------- */

/* Which system types LAR and LSL know: bit n = type n. */
#define LAR_TYPES_LEGACY 0x1a3eu /* 1 2 3 4 5 9 11 12 */
#define LAR_TYPES_LONG	 0x1a04u /* 2 9 11 12 */
#define LSL_TYPES_LEGACY 0x0a0eu /* 1 2 3 9 11 */
#define LSL_TYPES_LONG	 0x0a04u /* 2 9 11 */

enum probe_kind { PROBE_LAR, PROBE_LSL, PROBE_READ, PROBE_WRITE };

/* 1 = the selector passes, 0 = it does not (ZF clear), EXC_RAISED = page fault on a table. */
static int probe_selector(struct soft_cpu *c, uint16_t sel, enum probe_kind kind, struct descriptor *d)
{
	unsigned type;

	if (!(sel & ~SEL_RPL))
		return 0;
	if (desc_read(c, sel, EXC_GP, 0, d)) {
		if (c->exc_vector == EXC_PF)
			return EXC_RAISED;
		c->exc_raised = false;
		return 0;
	}
	type = d->seg.type;
	if (!d->seg.s) {
		uint32_t types = sys_long(c) ? (kind == PROBE_LAR ? LAR_TYPES_LONG : LSL_TYPES_LONG)
					     : (kind == PROBE_LAR ? LAR_TYPES_LEGACY : LSL_TYPES_LEGACY);

		if (kind >= PROBE_READ || !((types >> type) & 1))
			return 0;
	} else if (kind == PROBE_READ ? (type & DESC_CODE) && !(type & DESC_RW)
				      : kind == PROBE_WRITE && ((type & DESC_CODE) || !(type & DESC_RW))) {
		return 0;
	}
	if (d->seg.s && (type & DESC_CODE) && (type & DESC_CONFORMING))
		return 1;
	return d->seg.dpl >= c->cpl && d->seg.dpl >= (sel & SEL_RPL);
}

static int probe_insn(struct soft_cpu *c, const struct insn *i, unsigned operand, enum probe_kind kind,
		      struct descriptor *d)
{
	uint64_t sel;
	int ok;

	if (!sys_protected(c))
		return soft_raise(c, EXC_UD);
	if (insn_read(c, i, operand, &sel))
		return EXC_RAISED;
	ok = probe_selector(c, (uint16_t)sel, kind, d);
	if (ok < 0)
		return EXC_RAISED;
	c->s.rflags = (c->s.rflags & ~FLAG_ZF) | (ok ? FLAG_ZF : 0);
	return ok;
}

int sys_lar(struct soft_cpu *c, const struct insn *i)
{
	struct descriptor d;
	int ok = probe_insn(c, i, 1, PROBE_LAR, &d);

	if (ok < 0)
		return EXC_RAISED;
	if (ok)
		insn_write(c, i, 0, (d.raw >> 32) & (i->opsize == 2 ? 0xff00 : 0xf0ff00));
	return INSN_NEXT;
}

int sys_lsl(struct soft_cpu *c, const struct insn *i)
{
	struct descriptor d;
	int ok = probe_insn(c, i, 1, PROBE_LSL, &d);

	if (ok < 0)
		return EXC_RAISED;
	if (ok)
		insn_write(c, i, 0, d.seg.limit);
	return INSN_NEXT;
}

int sys_verr(struct soft_cpu *c, const struct insn *i)
{
	struct descriptor d;

	return probe_insn(c, i, 0, PROBE_READ, &d) < 0 ? EXC_RAISED : INSN_NEXT;
}

int sys_verw(struct soft_cpu *c, const struct insn *i)
{
	struct descriptor d;

	return probe_insn(c, i, 0, PROBE_WRITE, &d) < 0 ? EXC_RAISED : INSN_NEXT;
}

int sys_arpl(struct soft_cpu *c, const struct insn *i)
{
	uint64_t dst, src;

	if (!sys_protected(c))
		return soft_raise(c, EXC_UD);
	if (insn_read(c, i, 0, &dst) || insn_read(c, i, 1, &src))
		return EXC_RAISED;
	if ((dst & SEL_RPL) < (src & SEL_RPL)) {
		if (insn_write(c, i, 0, (dst & ~(uint64_t)SEL_RPL) | (src & SEL_RPL)))
			return EXC_RAISED;
		c->s.rflags |= FLAG_ZF;
	} else {
		c->s.rflags &= ~FLAG_ZF;
	}
	return INSN_NEXT;
}

/* ---- far transfers -------------------------------------------------------------------------- */

/* The pointer of a far jump or call: immediate or memory. */
static int far_target(struct soft_cpu *c, const struct insn *i, uint16_t *sel, uint64_t *off)
{
	uint64_t lin;
	unsigned size = i->opsize;

	*off = 0;
	if (i->mem_op == INSN_NO_REG) {
		*sel = i->imm2;
		*off = size == 2 ? i->imm & 0xffff : i->imm & 0xffffffff;
		return 0;
	}
	if (insn_mem_linear(c, i, size + 2, false, &lin) || mmu_read_buf(c, lin, off, size, c->mmu_index) ||
	    mmu_read_buf(c, lin + size, sel, 2, c->mmu_index))
		return EXC_RAISED;
	return 0;
}

/* Checks of a code segment for a direct far jump or call: no change of privilege. */
static int direct_code_check(struct soft_cpu *c, const struct descriptor *d)
{
	uint32_t err = d->seg.sel & ~SEL_RPL;
	bool conforming = d->seg.type & DESC_CONFORMING;

	if (conforming ? d->seg.dpl > c->cpl : (d->seg.sel & SEL_RPL) > c->cpl || d->seg.dpl != c->cpl)
		return soft_raise_code(c, EXC_GP, err);
	if (!d->seg.present)
		return soft_raise_code(c, EXC_NP, err);
	if (sys_long(c) && d->seg.l && d->seg.db)
		return soft_raise_code(c, EXC_GP, err);
	return 0;
}

static int offset_check(struct soft_cpu *c, const struct descriptor *d, uint64_t off)
{
	if (sys_long(c) && d->seg.l ? !sys_canonical(off) : off > d->seg.limit)
		return sys_gp0(c);
	return 0;
}

static void enter_code(struct soft_cpu *c, const struct descriptor *d, unsigned cpl, uint64_t off)
{
	c->s.seg[S_CS] = d->seg;
	c->s.seg[S_CS].sel = (uint16_t)((d->seg.sel & ~SEL_RPL) | cpl);
	c->s.rip = off;
	soft_mode_changed(c);
}

struct call_gate {
	uint16_t sel;
	uint64_t offset;
	unsigned size, count; /* pushes; parameters to copy */
};

static int gate_open(struct soft_cpu *c, const struct descriptor *d, struct call_gate *g)
{
	uint32_t err = d->seg.sel & ~SEL_RPL, high = 0;

	if (d->seg.dpl < c->cpl || (d->seg.sel & SEL_RPL) > d->seg.dpl)
		return soft_raise_code(c, EXC_GP, err);
	if (!d->seg.present)
		return soft_raise_code(c, EXC_NP, err);
	if (sys_long(c) && desc_read_high(c, d, &high))
		return EXC_RAISED;
	g->sel = (uint16_t)(d->raw >> 16);
	g->offset = (d->raw & 0xffff) | ((d->raw >> 32) & 0xffff0000) | (uint64_t)high << 32;
	g->size = sys_long(c) ? 8 : d->seg.type & 8 ? 4 : 2;
	g->count = sys_long(c) ? 0 : (d->raw >> 32) & 31;
	if (g->size == 2)
		g->offset &= 0xffff;
	return 0;
}

static int gate_code(struct soft_cpu *c, const struct call_gate *g, bool call, struct descriptor *code, unsigned *cpl)
{
	uint32_t err = g->sel & ~SEL_RPL;

	if (!err)
		return sys_gp0(c);
	if (desc_read(c, g->sel, EXC_GP, 0, code))
		return EXC_RAISED;
	if (!code->seg.s || !(code->seg.type & DESC_CODE) || code->seg.dpl > c->cpl ||
	    (sys_long(c) && (!code->seg.l || code->seg.db)))
		return soft_raise_code(c, EXC_GP, err);
	if (!(code->seg.type & DESC_CONFORMING) && code->seg.dpl < c->cpl && !call)
		return soft_raise_code(c, EXC_GP, err);
	if (!code->seg.present)
		return soft_raise_code(c, EXC_NP, err);
	*cpl = code->seg.type & DESC_CONFORMING ? c->cpl : code->seg.dpl;
	return offset_check(c, code, g->offset);
}

/* A call through a gate to an inner level: new stack, old stack's pointer and parameters on it. */
static int gate_call_inner(struct soft_cpu *c, const struct call_gate *g, const struct descriptor *code, unsigned cpl,
			   uint64_t next_rip)
{
	struct stack_ref st = {.mask = ~0ull, .mmu_index = MMU_KERNEL}, old = stack_current(c);
	struct descriptor ss = {0};
	uint64_t param[31];
	uint16_t sel;

	if (exc_tss_stack(c, cpl, 0, 0, &sel, &st.sp))
		return EXC_RAISED;
	if (!sys_long(c)) {
		uint32_t err = sel & ~SEL_RPL;

		if (!err)
			return soft_raise_code(c, EXC_TS, 0);
		if (desc_read(c, sel, EXC_TS, 0, &ss))
			return EXC_RAISED;
		if ((sel & SEL_RPL) != cpl || ss.seg.dpl != cpl || !ss.seg.s || (ss.seg.type & DESC_CODE) ||
		    !(ss.seg.type & DESC_RW))
			return soft_raise_code(c, EXC_TS, err);
		if (!ss.seg.present)
			return soft_raise_code(c, EXC_SS, err);
		st.base = ss.seg.base;
		st.mask = ss.seg.db ? 0xffffffff : 0xffff;
		st.seg = &ss.seg;
		st.err = err;
	}
	for (unsigned n = 0; n < g->count; n++) {
		if (stack_ref_pop(c, &old, g->size, &param[n]))
			return EXC_RAISED;
	}
	if (stack_ref_push(c, &st, g->size, c->s.seg[S_SS].sel) || stack_ref_push(c, &st, g->size, c->s.gpr[R_RSP]))
		return EXC_RAISED;
	for (unsigned n = g->count; n-- > 0;) {
		if (stack_ref_push(c, &st, g->size, param[n]))
			return EXC_RAISED;
	}
	if (stack_ref_push(c, &st, g->size, c->s.seg[S_CS].sel) || stack_ref_push(c, &st, g->size, next_rip))
		return EXC_RAISED;
	if (sys_long(c)) {
		seg_set_null(c, S_SS, (uint16_t)cpl);
		c->s.seg[S_SS].dpl = (uint8_t)cpl;
	} else {
		c->s.seg[S_SS] = ss.seg;
	}
	enter_code(c, code, cpl, g->offset);
	stack_ref_commit(c, &st);
	return INSN_JUMP;
}

static int through_gate(struct soft_cpu *c, const struct insn *i, const struct descriptor *d, bool call)
{
	uint64_t next = c->s.rip + i->length;
	struct descriptor code;
	struct call_gate g = {0};
	struct stack_ref st;
	unsigned cpl = 0;

	if (gate_open(c, d, &g) || gate_code(c, &g, call, &code, &cpl) || desc_set_accessed(c, &code))
		return EXC_RAISED;
	if (call && cpl < c->cpl)
		return gate_call_inner(c, &g, &code, cpl, next);
	if (call) {
		st = stack_current(c);
		if (stack_ref_push(c, &st, g.size, c->s.seg[S_CS].sel) || stack_ref_push(c, &st, g.size, next))
			return EXC_RAISED;
		stack_ref_commit(c, &st);
	}
	enter_code(c, &code, cpl, g.offset);
	return INSN_JUMP;
}

/* Everything but code segments that a far pointer may name. */
static int far_system(struct soft_cpu *c, const struct insn *i, const struct descriptor *d, bool call)
{
	uint32_t err = d->seg.sel & ~SEL_RPL;

	if (!d->seg.s && (d->seg.type == DESC_CALL_GATE || (!sys_long(c) && d->seg.type == DESC_CALL_GATE16)))
		return through_gate(c, i, d, call);
	if (!d->seg.s && !sys_long(c) &&
	    (d->seg.type == DESC_TASK_GATE || d->seg.type == DESC_TSS_AVAIL || d->seg.type == DESC_TSS16_AVAIL))
		return task_far(c, d, call, c->s.rip + i->length) ? EXC_RAISED : INSN_JUMP;
	return soft_raise_code(c, EXC_GP, err);
}

static int far_transfer(struct soft_cpu *c, const struct insn *i, bool call)
{
	uint64_t off, next = c->s.rip + i->length;
	struct stack_ref st = stack_current(c);
	struct descriptor d;
	uint16_t sel;

	if (far_target(c, i, &sel, &off))
		return EXC_RAISED;
	if (!sys_protected(c)) {
		if (off > c->s.seg[S_CS].limit)
			return sys_gp0(c);
	} else {
		if (!(sel & ~SEL_RPL))
			return sys_gp0(c);
		if (desc_read(c, sel, EXC_GP, 0, &d))
			return EXC_RAISED;
		if (!d.seg.s || !(d.seg.type & DESC_CODE))
			return far_system(c, i, &d, call);
		if (direct_code_check(c, &d) || offset_check(c, &d, off) || desc_set_accessed(c, &d))
			return EXC_RAISED;
	}
	if (call) {
		if (stack_ref_push(c, &st, i->opsize, c->s.seg[S_CS].sel) || stack_ref_push(c, &st, i->opsize, next))
			return EXC_RAISED;
		stack_ref_commit(c, &st);
	}
	if (sys_protected(c)) {
		enter_code(c, &d, c->cpl, off);
	} else {
		seg_set_real(c, S_CS, sel);
		c->s.rip = off;
		soft_mode_changed(c);
	}
	return INSN_JUMP;
}

int sys_far_call(struct soft_cpu *c, const struct insn *i)
{
	return far_transfer(c, i, true);
}

int sys_far_jmp(struct soft_cpu *c, const struct insn *i)
{
	return far_transfer(c, i, false);
}

static int far_ret_real(struct soft_cpu *c, const struct insn *i, struct stack_ref *st, uint64_t rip, uint64_t cs)
{
	if (rip > c->s.seg[S_CS].limit)
		return sys_gp0(c);
	st->sp += i->imm & 0xffff;
	stack_ref_commit(c, st);
	seg_set_real(c, S_CS, (uint16_t)cs);
	c->s.rip = rip;
	soft_mode_changed(c);
	return INSN_JUMP;
}

int desc_check_return_cs(struct soft_cpu *c, uint16_t sel, struct descriptor *d)
{
	uint32_t err = sel & ~SEL_RPL;
	unsigned rpl = sel & SEL_RPL;

	if (!err)
		return sys_gp0(c);
	if (desc_read(c, sel, EXC_GP, 0, d))
		return EXC_RAISED;
	if (!d->seg.s || !(d->seg.type & DESC_CODE) || rpl < c->cpl ||
	    (d->seg.type & DESC_CONFORMING ? d->seg.dpl > rpl : d->seg.dpl != rpl) ||
	    (sys_long(c) && d->seg.l && d->seg.db))
		return soft_raise_code(c, EXC_GP, err);
	if (!d->seg.present)
		return soft_raise_code(c, EXC_NP, err);
	return 0;
}

static int far_ret_check(struct soft_cpu *c, uint16_t sel, uint64_t rip, struct descriptor *d)
{
	if (desc_check_return_cs(c, sel, d))
		return EXC_RAISED;
	return offset_check(c, d, rip);
}

/* The outer stack a far return goes back to. */
static int far_ret_stack(struct soft_cpu *c, uint16_t sel, unsigned rpl, bool to64, struct descriptor *ss)
{
	uint32_t err = sel & ~SEL_RPL;

	if (!err)
		return to64 && rpl != 3 ? 0 : sys_gp0(c);
	if (desc_read(c, sel, EXC_GP, 0, ss))
		return EXC_RAISED;
	if ((sel & SEL_RPL) != rpl || !ss->seg.s || (ss->seg.type & DESC_CODE) || !(ss->seg.type & DESC_RW) ||
	    ss->seg.dpl != rpl)
		return soft_raise_code(c, EXC_GP, err);
	if (!ss->seg.present)
		return soft_raise_code(c, EXC_SS, err);
	return desc_set_accessed(c, ss);
}

int sys_far_ret(struct soft_cpu *c, const struct insn *i)
{
	struct stack_ref st = stack_current(c);
	uint64_t rip, cs, sp = 0, sel = 0;
	unsigned rpl, release = i->nops && i->op[0].kind == OPD_IMM ? i->imm & 0xffff : 0;
	struct descriptor d, ss;

	if (stack_ref_pop(c, &st, i->opsize, &rip) || stack_ref_pop(c, &st, i->opsize, &cs))
		return EXC_RAISED;
	cs &= 0xffff;
	if (!sys_protected(c))
		return far_ret_real(c, i, &st, rip, cs);
	if (far_ret_check(c, (uint16_t)cs, rip, &d) || desc_set_accessed(c, &d))
		return EXC_RAISED;
	rpl = cs & SEL_RPL;
	st.sp += release;
	if (rpl == c->cpl) {
		stack_ref_commit(c, &st);
		enter_code(c, &d, rpl, rip);
		return INSN_JUMP;
	}
	if (stack_ref_pop(c, &st, i->opsize, &sp) || stack_ref_pop(c, &st, i->opsize, &sel) ||
	    far_ret_stack(c, (uint16_t)sel, rpl, sys_long(c) && d.seg.l, &ss))
		return EXC_RAISED;
	if (sel & 0xffff & ~SEL_RPL)
		c->s.seg[S_SS] = ss.seg;
	else
		seg_set_null(c, S_SS, (uint16_t)sel);
	c->s.seg[S_SS].dpl = (uint8_t)rpl;
	enter_code(c, &d, rpl, rip);
	st = stack_current(c);
	st.sp = (i->opsize == 8 ? sp : i->opsize == 4 ? (uint32_t)sp : sp & 0xffff) + release;
	stack_ref_commit(c, &st);
	seg_drop_inner(c, rpl);
	return INSN_JUMP;
}
