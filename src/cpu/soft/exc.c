/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Exceptions and interrupts: recording, delivery through the IDT, and IRET.
 *
 * AMD64 APM volume 2 chapter 8, Intel SDM volume 3A chapter 6. Long mode and
 * legacy protected mode go through gates, real mode through the vector table.
 * Delivery computes and writes the whole frame before it changes a register, so
 * a fault inside it leaves the interrupted state intact for the next fault.
 *
 * Not modelled: virtual-8086 redirection (CR4.VME is not advertised).
 */
#include "cpu/soft/sys.h"

#include <inttypes.h>
#include <stdio.h>
#include "base/log.h"

enum event_kind { EVENT_FAULT, EVENT_INTERRUPT, EVENT_SOFTWARE };

/* One event on its way through the IDT. */
struct event {
	uint8_t vector;
	enum event_kind kind;
	bool has_code;
	uint32_t code;
	uint64_t rip;	 /* pushed */
	uint64_t rflags; /* pushed */
	uint32_t ext;	 /* EXT bit of error codes raised on the way */
};

int soft_raise(struct soft_cpu *c, enum exc_vector vector)
{
	c->exc_vector = vector;
	c->exc_has_code = false;
	c->exc_code = 0;
	c->exc_soft = false;
	c->exc_raised = true;
	return EXC_RAISED;
}

int soft_raise_code(struct soft_cpu *c, enum exc_vector vector, uint32_t code)
{
	soft_raise(c, vector);
	c->exc_has_code = true;
	c->exc_code = code;
	return EXC_RAISED;
}

int soft_raise_pf(struct soft_cpu *c, uint64_t cr2, uint32_t code)
{
	c->exc_cr2 = cr2;
	return soft_raise_code(c, EXC_PF, code);
}

/* ---- stacks ------------------------------------------------------------------ */

int exc_tss_stack(struct soft_cpu *c, unsigned dpl, unsigned ist, uint32_t ext, uint16_t *ss, uint64_t *sp)
{
	const struct cpu_segment *tr = &c->s.seg[S_TR];
	unsigned off, len, v16 = 0;
	uint8_t buf[8] = {0};

	if (sys_long(c)) {
		off = ist ? 36 + (ist - 1) * 8 : 4 + dpl * 8;
		len = 8;
	} else if (tr->type == DESC_TSS_BUSY || tr->type == DESC_TSS_AVAIL) {
		off = 4 + dpl * 8;
		len = 6;
	} else {
		off = 2 + dpl * 4;
		len = 4;
		v16 = 1;
	}
	if (off + len - 1 > tr->limit)
		return soft_raise_code(c, EXC_TS, (tr->sel & ~SEL_RPL) | ext);
	if (mmu_read_buf(c, tr->base + off, buf, len, MMU_KERNEL))
		return EXC_RAISED;
	if (sys_long(c)) {
		*sp = ld64le(buf);
		*ss = (uint16_t)dpl;
	} else if (v16) {
		*sp = ld16le(buf);
		*ss = ld16le(buf + 2);
	} else {
		*sp = ld32le(buf);
		*ss = ld16le(buf + 4);
	}
	return 0;
}

/* Legacy mode: the inner stack segment the TSS named. */
static int load_inner_ss(struct soft_cpu *c, uint16_t sel, unsigned dpl, uint32_t ext, struct descriptor *d)
{
	if (!(sel & ~SEL_RPL))
		return soft_raise_code(c, EXC_TS, ext);
	if (desc_read(c, sel, EXC_TS, ext, d))
		return EXC_RAISED;
	if ((sel & SEL_RPL) != dpl || d->seg.dpl != dpl || !d->seg.s || (d->seg.type & DESC_CODE) ||
	    !(d->seg.type & DESC_RW))
		return soft_raise_code(c, EXC_TS, (sel & ~SEL_RPL) | ext);
	if (!d->seg.present)
		return soft_raise_code(c, EXC_SS, (sel & ~SEL_RPL) | ext);
	return desc_set_accessed(c, d);
}

/* ---- gates --------------------------------------------------------------------- */

struct gate {
	uint16_t sel;
	uint64_t offset;
	uint8_t type, dpl, ist;
};

static int gate_read(struct soft_cpu *c, const struct event *e, struct gate *g)
{
	unsigned size = sys_long(c) ? 16 : 8, off = e->vector * size;
	uint32_t err = e->vector * 8u + 2u;
	uint8_t buf[16] = {0};
	uint64_t lo;
	bool present;

	if (off + size - 1 > c->s.idtr.limit)
		return soft_raise_code(c, EXC_GP, err | e->ext);
	if (mmu_read_buf(c, c->s.idtr.base + off, buf, size, MMU_KERNEL))
		return EXC_RAISED;
	lo = ld64le(buf);
	g->sel = (uint16_t)(lo >> 16);
	g->offset = (lo & 0xffff) | ((lo >> 32) & 0xffff0000);
	g->type = (lo >> 40) & 0x1f;
	g->dpl = (lo >> 45) & 3;
	g->ist = 0;
	present = (lo >> 47) & 1;
	if (sys_long(c)) {
		g->ist = (lo >> 32) & 7;
		g->offset |= (uint64_t)ld32le(buf + 8) << 32;
		if (g->type != DESC_INT_GATE && g->type != DESC_TRAP_GATE)
			return soft_raise_code(c, EXC_GP, err | e->ext);
	} else if (g->type != DESC_TASK_GATE && (g->type & ~9u) != DESC_INT_GATE16) {
		return soft_raise_code(c, EXC_GP, err | e->ext);
	}
	if (e->kind == EVENT_SOFTWARE && g->dpl < c->cpl)
		return soft_raise_code(c, EXC_GP, err);
	if (!present)
		return soft_raise_code(c, EXC_NP, err | e->ext);
	return 0;
}

/* The gate's code segment and the level the handler runs at. */
static int gate_code(struct soft_cpu *c, const struct event *e, const struct gate *g, struct descriptor *d,
		     unsigned *cpl)
{
	uint32_t err = (g->sel & ~SEL_RPL) | e->ext;

	if (!(g->sel & ~SEL_RPL))
		return soft_raise_code(c, EXC_GP, e->ext);
	if (desc_read(c, g->sel, EXC_GP, e->ext, d))
		return EXC_RAISED;
	if (!d->seg.s || !(d->seg.type & DESC_CODE) || d->seg.dpl > c->cpl)
		return soft_raise_code(c, EXC_GP, err);
	if (!d->seg.present)
		return soft_raise_code(c, EXC_NP, err);
	if (sys_long(c) && (!d->seg.l || d->seg.db))
		return soft_raise_code(c, EXC_GP, err);
	*cpl = d->seg.type & DESC_CONFORMING ? c->cpl : d->seg.dpl;
	if ((c->s.rflags & FLAG_VM) && *cpl)
		return soft_raise_code(c, EXC_GP, err);
	return desc_set_accessed(c, d);
}

static void enter_handler(struct soft_cpu *c, const struct gate *g, struct descriptor *code, unsigned cpl)
{
	struct cpu_segment *cs = &c->s.seg[S_CS];

	*cs = code->seg;
	cs->sel = (uint16_t)((g->sel & ~SEL_RPL) | cpl);
	c->s.rip = g->offset;
	c->s.rflags &= ~(FLAG_TF | FLAG_NT | FLAG_RF | FLAG_VM);
	if (!(g->type & 1))
		c->s.rflags &= ~FLAG_IF;
	c->s.int_shadow = false;
	soft_mode_changed(c);
}

static int deliver_long(struct soft_cpu *c, const struct event *e)
{
	struct descriptor code;
	struct gate g;
	unsigned cpl, n = 0;
	uint64_t frame[6], sp;
	uint16_t ss = c->s.seg[S_SS].sel;
	bool inner;

	if (gate_read(c, e, &g) || gate_code(c, e, &g, &code, &cpl))
		return EXC_RAISED;
	inner = cpl < c->cpl;
	sp = c->s.gpr[R_RSP];
	if ((inner || g.ist) && exc_tss_stack(c, cpl, g.ist, e->ext, &ss, &sp))
		return EXC_RAISED;
	if (!sys_canonical(sp))
		return soft_raise_code(c, EXC_SS, e->ext);
	if (!sys_canonical(g.offset))
		return soft_raise_code(c, EXC_GP, e->ext);
	sp &= ~15ull;
	if (e->has_code)
		frame[n++] = e->code;
	frame[n++] = e->rip;
	frame[n++] = c->s.seg[S_CS].sel;
	frame[n++] = e->rflags;
	frame[n++] = c->s.gpr[R_RSP];
	frame[n++] = c->s.seg[S_SS].sel;
	sp -= n * 8;
	if (mmu_write_buf(c, sp, frame, n * 8, cpl == 3 ? MMU_USER : MMU_KERNEL))
		return EXC_RAISED;
	c->s.gpr[R_RSP] = sp;
	if (inner) {
		seg_set_null(c, S_SS, (uint16_t)cpl);
		c->s.seg[S_SS].dpl = (uint8_t)cpl;
	}
	enter_handler(c, &g, &code, cpl);
	return 0;
}

/* Through a task gate: the handler is a task of its own. */
static int deliver_task(struct soft_cpu *c, const struct event *e, const struct gate *g)
{
	struct task_event t = {.why = TASK_INT,
			       .next_eip = e->rip,
			       .flags = e->rflags,
			       .ext = e->ext,
			       .has_code = e->has_code,
			       .code = e->code};
	struct descriptor tss;

	return task_gate_tss(c, g->sel, e->ext, &tss) || task_switch(c, &tss, &t) ? EXC_RAISED : 0;
}

static int push_vm86_segments(struct soft_cpu *c, struct stack_ref *st, unsigned size)
{
	static const uint8_t order[] = {S_GS, S_FS, S_DS, S_ES};

	for (unsigned i = 0; i < ARRAY_SIZE(order); i++) {
		if (stack_ref_push(c, st, size, c->s.seg[order[i]].sel))
			return EXC_RAISED;
	}
	return 0;
}

static int deliver_legacy(struct soft_cpu *c, const struct event *e)
{
	bool vm86 = c->s.rflags & FLAG_VM;
	struct descriptor code, ss = {0};
	struct stack_ref st = stack_current(c);
	struct gate g;
	unsigned cpl, size;
	uint16_t ss_sel = 0;

	if (gate_read(c, e, &g))
		return EXC_RAISED;
	if (g.type == DESC_TASK_GATE)
		return deliver_task(c, e, &g);
	if (gate_code(c, e, &g, &code, &cpl))
		return EXC_RAISED;
	st.err = e->ext;
	size = g.type & 8 ? 4 : 2;
	if (size == 2)
		g.offset &= 0xffff;
	if (g.offset > code.seg.limit)
		return soft_raise_code(c, EXC_GP, e->ext);
	if (cpl < c->cpl) {
		if (exc_tss_stack(c, cpl, 0, e->ext, &ss_sel, &st.sp) || load_inner_ss(c, ss_sel, cpl, e->ext, &ss))
			return EXC_RAISED;
		st.base = ss.seg.base;
		st.mask = ss.seg.db ? 0xffffffff : 0xffff;
		st.seg = &ss.seg;
		st.mmu_index = MMU_KERNEL;
		st.err = (ss_sel & ~SEL_RPL) | e->ext;
		if (vm86 && push_vm86_segments(c, &st, size))
			return EXC_RAISED;
		if (stack_ref_push(c, &st, size, c->s.seg[S_SS].sel) || stack_ref_push(c, &st, size, c->s.gpr[R_RSP]))
			return EXC_RAISED;
	}
	if (stack_ref_push(c, &st, size, e->rflags) || stack_ref_push(c, &st, size, c->s.seg[S_CS].sel) ||
	    stack_ref_push(c, &st, size, e->rip) || (e->has_code && stack_ref_push(c, &st, size, e->code)))
		return EXC_RAISED;
	if (cpl < c->cpl) {
		c->s.seg[S_SS] = ss.seg;
		for (unsigned s = 0; vm86 && s < S_LDTR; s++) {
			if (s != S_SS && s != S_CS)
				seg_set_null(c, s, 0);
		}
	}
	enter_handler(c, &g, &code, cpl);
	stack_ref_commit(c, &st);
	return 0;
}

static int deliver_real(struct soft_cpu *c, const struct event *e)
{
	struct stack_ref st = stack_current(c);
	unsigned off = e->vector * 4u;
	uint8_t buf[4];

	if (off + 3 > c->s.idtr.limit)
		return soft_raise_code(c, EXC_GP, e->vector * 8u + 2u);
	if (mmu_read_buf(c, c->s.idtr.base + off, buf, 4, MMU_KERNEL) || stack_ref_push(c, &st, 2, e->rflags) ||
	    stack_ref_push(c, &st, 2, c->s.seg[S_CS].sel) || stack_ref_push(c, &st, 2, e->rip))
		return EXC_RAISED;
	stack_ref_commit(c, &st);
	seg_set_real(c, S_CS, ld16le(buf + 2));
	c->s.rip = ld16le(buf);
	c->s.rflags &= ~(FLAG_IF | FLAG_TF | FLAG_AC | FLAG_RF);
	c->s.int_shadow = false;
	soft_mode_changed(c);
	return 0;
}

static int deliver(struct soft_cpu *c, const struct event *e)
{
	c->handler_entered = true;
	if (!(c->s.cr0 & CR0_PE))
		return deliver_real(c, e);
	return sys_long(c) ? deliver_long(c, e) : deliver_legacy(c, e);
}

/* ---- exceptions in the course of delivery ----------------------------------------- */

static bool is_contributory(unsigned v)
{
	return v == EXC_DE || v == EXC_TS || v == EXC_NP || v == EXC_SS || v == EXC_GP;
}

/* SDM 3A table 6-5: does the second exception make a double fault? */
static bool is_double_fault(unsigned first, unsigned second)
{
	if (is_contributory(first))
		return is_contributory(second);
	return first == EXC_PF && (second == EXC_PF || is_contributory(second));
}

static void triple_fault(struct soft_cpu *c, unsigned first, unsigned second)
{
	char why[96];

	c->triple_faulted = true;
	c->exc_raised = false;
	snprintf(why, sizeof(why), "triple fault on CPU %u (exception %u in the delivery of %u)", c->v.index, second,
		 first);
	log_diag(LOG_CPU_RESET, "%s, error code 0x%x, cr2 0x%" PRIx64, why, c->exc_code, c->exc_cr2);
	soft_log_state(c);
	/* Shut down until the board resets the machine. */
	c->s.mp_state = MP_WAIT_INIT;
	sys_host(c)->request(sys_host(c)->opaque, VM_RESET, 0, why);
}

/* RF in the pushed flags: set for faults, so that the handler's IRET does not meet the same breakpoint again. */
static uint64_t pushed_flags(const struct soft_cpu *c, unsigned vector)
{
	bool trap = vector == EXC_DB || vector == EXC_BP || vector == EXC_OF || vector == EXC_NMI;

	return c->s.rflags | RFLAGS_FIXED | (trap ? 0 : FLAG_RF);
}

void exc_deliver_raised(struct soft_cpu *c)
{
	unsigned first;

	c->n_exceptions++;
	if (x87_error_external(c))
		return;
	first = c->exc_vector;
	for (;;) {
		struct event e = {.vector = c->exc_vector,
				  .kind = EVENT_FAULT,
				  .has_code = c->exc_has_code && (c->s.cr0 & CR0_PE),
				  .code = c->exc_code,
				  .rip = c->s.rip,
				  .rflags = pushed_flags(c, c->exc_vector),
				  .ext = 1};

		c->exc_raised = false;
		if (log_on(LOG_INT))
			log_diag(LOG_INT,
				 "cpu %u: exception %u code 0x%x at %04x:%016" PRIx64 " cpl %u rsp %016" PRIx64
				 " cr2 %016" PRIx64,
				 c->v.index, e.vector, e.code, c->s.seg[S_CS].sel, c->s.rip, c->cpl, c->s.gpr[R_RSP],
				 c->exc_cr2);
		if (e.vector == EXC_PF)
			c->s.cr2 = c->exc_cr2;
		if (e.vector == EXC_DB)
			c->s.dr[7] &= ~DR7_GD;
		if (!deliver(c, &e))
			return;
		if (first == EXC_DF) {
			triple_fault(c, first, c->exc_vector);
			return;
		}
		if (is_double_fault(first, c->exc_vector)) {
			if (c->exc_vector == EXC_PF)
				c->s.cr2 = c->exc_cr2;
			soft_raise_code(c, EXC_DF, 0);
		}
		first = c->exc_vector;
	}
}

/* Asynchronous events: a fault in their delivery is an exception of its own. */
static void deliver_async(struct soft_cpu *c, uint8_t vector)
{
	struct event e = {.vector = vector,
			  .kind = EVENT_INTERRUPT,
			  .rip = c->s.rip,
			  .rflags = (c->s.rflags & ~FLAG_RF) | RFLAGS_FIXED,
			  .ext = 1};

	c->n_interrupts++;
	if (log_on(LOG_INT))
		log_diag(LOG_INT, "cpu %u: interrupt 0x%02x at %04x:%016" PRIx64, c->v.index, vector,
			 c->s.seg[S_CS].sel, c->s.rip);
	if (deliver(c, &e))
		exc_deliver_raised(c);
}

void exc_deliver_interrupt(struct soft_cpu *c, uint8_t vector)
{
	deliver_async(c, vector);
}

void exc_deliver_nmi(struct soft_cpu *c)
{
	c->s.nmi_blocked = true;
	deliver_async(c, EXC_NMI);
}

int exc_software_int(struct soft_cpu *c, uint8_t vector, uint64_t next_rip, bool int3_or_into)
{
	struct event e = {.vector = vector,
			  .kind = EVENT_SOFTWARE,
			  .rip = next_rip,
			  .rflags = (c->s.rflags & ~FLAG_RF) | RFLAGS_FIXED};

	/* Without VME, INT n (not INT3, INTO) in virtual-8086 mode needs IOPL 3. */
	if ((c->s.rflags & FLAG_VM) && !int3_or_into && sys_iopl(c) < 3)
		return sys_gp0(c);
	return deliver(c, &e) ? EXC_RAISED : INSN_JUMP;
}

/* ---- IRET -------------------------------------------------------------------------- */

/* Flags IRET and POPF may change at this privilege. */
static uint64_t iret_flags_mask(const struct soft_cpu *c, unsigned size)
{
	uint64_t m = FLAG_ARITH | FLAG_TF | FLAG_DF | FLAG_NT | FLAG_RF | FLAG_AC | FLAG_ID;

	if (c->cpl <= sys_iopl(c))
		m |= FLAG_IF;
	if (c->cpl == 0)
		m |= FLAG_IOPL | FLAG_VIF | FLAG_VIP;
	return size == 2 ? m & 0xffff : m;
}

static void set_iret_flags(struct soft_cpu *c, uint64_t val, uint64_t mask)
{
	uint64_t f = (c->s.rflags & ~(mask | FLAG_RF)) | (val & mask) | RFLAGS_FIXED;

	/* RF only means something while instruction breakpoints exist; then run.c clears it. */
	if (!(c->s.dr[7] & 0xff))
		f &= ~FLAG_RF;
	c->s.rflags = f & RFLAGS_ALL;
}

static int iret_real(struct soft_cpu *c, unsigned size)
{
	struct stack_ref st = stack_current(c);
	uint64_t rip, cs, flags, mask = iret_flags_mask(c, size) & ~(FLAG_VIF | FLAG_VIP);

	if ((c->s.rflags & FLAG_VM) && sys_iopl(c) < 3)
		return sys_gp0(c);
	if (c->s.rflags & FLAG_VM)
		mask = (mask | FLAG_IF) & ~FLAG_IOPL;
	if (stack_ref_pop(c, &st, size, &rip) || stack_ref_pop(c, &st, size, &cs) ||
	    stack_ref_pop(c, &st, size, &flags))
		return EXC_RAISED;
	if (rip > c->s.seg[S_CS].limit)
		return sys_gp0(c);
	stack_ref_commit(c, &st);
	seg_set_real(c, S_CS, (uint16_t)cs);
	c->s.rip = rip;
	set_iret_flags(c, flags, mask);
	return 0;
}

/* To virtual-8086 mode: IRETD at CPL 0 with VM in the image. */
static int iret_to_vm86(struct soft_cpu *c, struct stack_ref *st, uint64_t rip, uint64_t cs, uint64_t flags)
{
	static const uint8_t order[] = {S_ES, S_DS, S_FS, S_GS};
	uint64_t esp, ss, sel[4];

	if (stack_ref_pop(c, st, 4, &esp) || stack_ref_pop(c, st, 4, &ss))
		return EXC_RAISED;
	for (unsigned i = 0; i < 4; i++) {
		if (stack_ref_pop(c, st, 4, &sel[i]))
			return EXC_RAISED;
	}
	c->s.rflags = (flags & RFLAGS_ALL) | RFLAGS_FIXED;
	seg_set_real(c, S_CS, (uint16_t)cs);
	seg_set_real(c, S_SS, (uint16_t)ss);
	for (unsigned i = 0; i < 4; i++)
		seg_set_real(c, order[i], (uint16_t)sel[i]);
	for (unsigned i = S_ES; i <= S_GS; i++) {
		c->s.seg[i].dpl = 3;
		c->s.seg[i].limit = 0xffff;
		c->s.seg[i].type = DESC_RW | DESC_ACCESSED;
	}
	c->s.gpr[R_RSP] = esp;
	c->s.rip = rip & 0xffff;
	return 0;
}

static int iret_check_ss(struct soft_cpu *c, uint16_t sel, unsigned rpl, bool to64, struct descriptor *d)
{
	uint32_t err = sel & ~SEL_RPL;

	if (!err) {
		if (!to64 || rpl == 3 || (sel & SEL_RPL) != rpl)
			return sys_gp0(c);
		memset(d, 0, sizeof(*d));
		return 0;
	}
	if (desc_read(c, sel, EXC_GP, 0, d))
		return EXC_RAISED;
	if ((sel & SEL_RPL) != rpl || !d->seg.s || (d->seg.type & DESC_CODE) || !(d->seg.type & DESC_RW) ||
	    d->seg.dpl != rpl)
		return soft_raise_code(c, EXC_GP, err);
	if (!d->seg.present)
		return soft_raise_code(c, EXC_SS, err);
	return desc_set_accessed(c, d);
}

static int iret_protected(struct soft_cpu *c, unsigned size)
{
	uint64_t rip, cs, flags, sp = 0, ss = 0, mask = iret_flags_mask(c, size);
	struct stack_ref st = stack_current(c);
	struct descriptor code, stack;
	unsigned old_cpl = c->cpl, rpl;
	bool with_stack;

	if (stack_ref_pop(c, &st, size, &rip) || stack_ref_pop(c, &st, size, &cs) ||
	    stack_ref_pop(c, &st, size, &flags))
		return EXC_RAISED;
	if (!sys_long(c) && size == 4 && (flags & FLAG_VM) && c->cpl == 0)
		return iret_to_vm86(c, &st, rip, cs, flags);
	if (desc_check_return_cs(c, (uint16_t)cs, &code))
		return EXC_RAISED;
	rpl = cs & SEL_RPL;
	with_stack = c->long64 || rpl > c->cpl;
	if (with_stack) {
		bool to64 = sys_long(c) && code.seg.l;

		if (stack_ref_pop(c, &st, size, &sp) || stack_ref_pop(c, &st, size, &ss) ||
		    iret_check_ss(c, (uint16_t)ss, rpl, to64, &stack))
			return EXC_RAISED;
	}
	if (sys_long(c) && code.seg.l ? !sys_canonical(rip) : rip > code.seg.limit)
		return sys_gp0(c);
	if (desc_set_accessed(c, &code))
		return EXC_RAISED;
	c->s.seg[S_CS] = code.seg;
	c->s.rip = rip;
	set_iret_flags(c, flags, mask);
	if (with_stack) {
		if (ss & ~SEL_RPL)
			c->s.seg[S_SS] = stack.seg;
		else
			seg_set_null(c, S_SS, (uint16_t)ss);
		c->s.seg[S_SS].dpl = (uint8_t)rpl;
		soft_mode_changed(c);
		if (size == 2 || (!c->long64 && !c->stack32))
			c->s.gpr[R_RSP] = (c->s.gpr[R_RSP] & ~0xffffull) | (sp & 0xffff);
		else
			c->s.gpr[R_RSP] = size == 4 ? (uint32_t)sp : sp;
	} else {
		stack_ref_commit(c, &st);
	}
	if (rpl > old_cpl)
		seg_drop_inner(c, rpl);
	return 0;
}

int exc_iret(struct soft_cpu *c, const struct insn *i)
{
	int r;

	if (!sys_protected(c)) {
		r = iret_real(c, i->opsize);
	} else if (c->s.rflags & FLAG_NT) {
		if (sys_long(c))
			return sys_gp0(c);
		r = task_return(c, c->s.rip + i->length);
	} else {
		r = iret_protected(c, i->opsize);
	}
	if (r)
		return r;
	c->s.nmi_blocked = false;
	soft_mode_changed(c);
	soft_recheck_intr(c);
	return INSN_JUMP;
}
