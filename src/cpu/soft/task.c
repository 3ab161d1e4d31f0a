/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Hardware task switches: JMP, CALL, interrupt and IRET through a TSS or a task
 * gate, 16- and 32-bit TSS. Intel SDM volume 3A chapter 8 (task management),
 * AMD64 APM volume 2 chapter 12. Not in long mode, where the callers raise #GP.
 *
 * Up to the point where the new task's registers are loaded nothing of the old
 * task is lost: faults belong to it and may be restarted. After that point the
 * selectors are the new task's, and faults on them (#TS, #NP, #SS) are raised
 * in the new task with its CS:EIP. The vCPU's own thread.
 */
#include "cpu/soft/mmu.h"
#include "cpu/soft/sys.h"

#define TSS16_LIMIT 0x2b
#define TSS32_LIMIT 0x67
#define DR7_LOCAL   0x155ull /* L0..L3, LE: a task's own breakpoints end with it */
#define DR6_BT	    BIT(15)

/* Where a TSS keeps things; the general registers follow `gpr` in order of their numbers. */
struct tss_layout {
	unsigned width;			    /* bytes of IP, FLAGS and a general register */
	unsigned sel_step;		    /* from selector to selector */
	unsigned eip, flags, gpr, sel, ldt; /* offsets; sel: ES CS SS DS (FS GS) */
	unsigned nsel, limit, save_end;	    /* save_end: behind the last selector */
};
static const struct tss_layout tss16 = {2, 2, 0x0e, 0x10, 0x12, 0x22, 0x2a, 4, TSS16_LIMIT, 0x2a};
static const struct tss_layout tss32 = {4, 4, 0x20, 0x24, 0x28, 0x48, 0x60, 6, TSS32_LIMIT, 0x60};
#define TSS_CR3 0x1c
#define TSS_T	0x64

struct new_task {
	const struct tss_layout *layout;
	uint8_t raw[TSS32_LIMIT + 1];
	uint64_t cr3, eip, flags;
	uint16_t sel[S_COUNT], ldt;
	bool trap;
};

static uint64_t get(const uint8_t *p, unsigned width)
{
	return width == 2 ? ld16le(p) : ld32le(p);
}

static const struct tss_layout *layout_of(unsigned type)
{
	return type & 8 ? &tss32 : &tss16;
}

/* ---- the TSS named --------------------------------------------------------------- */

static bool is_tss(const struct descriptor *d, bool busy)
{
	return !d->seg.s && (d->seg.type & ~8u) == (busy ? DESC_TSS16_BUSY : DESC_TSS16_AVAIL);
}

int task_gate_tss(struct soft_cpu *c, uint16_t sel, uint32_t ext, struct descriptor *tss)
{
	uint32_t err = (sel & ~SEL_RPL) | ext;

	if (!(sel & ~SEL_RPL) || (sel & SEL_TI))
		return soft_raise_code(c, EXC_GP, err);
	if (desc_read(c, sel, EXC_GP, ext, tss))
		return EXC_RAISED;
	if (!is_tss(tss, false))
		return soft_raise_code(c, EXC_GP, err);
	return tss->seg.present ? 0 : soft_raise_code(c, EXC_NP, err);
}

/* IRET with NT: the task that the current TSS's back link names must be busy. */
static int linked_tss(struct soft_cpu *c, struct descriptor *tss)
{
	const struct cpu_segment *tr = &c->s.seg[S_TR];
	uint16_t sel;

	if (tr->unusable || tr->limit < 1)
		return soft_raise_code(c, EXC_TS, tr->sel & ~SEL_RPL);
	if (mmu_read_buf(c, tr->base, &sel, 2, MMU_KERNEL))
		return EXC_RAISED;
	if (!(sel & ~SEL_RPL) || (sel & SEL_TI))
		return soft_raise_code(c, EXC_TS, sel & ~SEL_RPL);
	if (desc_read(c, sel, EXC_TS, 0, tss))
		return EXC_RAISED;
	if (!is_tss(tss, true))
		return soft_raise_code(c, EXC_TS, sel & ~SEL_RPL);
	return tss->seg.present ? 0 : soft_raise_code(c, EXC_NP, sel & ~SEL_RPL);
}

/* ---- the old task ------------------------------------------------------------------ */

static int save_old(struct soft_cpu *c, uint64_t next_eip, uint64_t flags)
{
	const struct cpu_segment *tr = &c->s.seg[S_TR];
	const struct tss_layout *l = layout_of(tr->type);
	uint8_t buf[0x60] = {0};
	uint8_t *end = buf + (l->save_end - l->eip);

	for (unsigned n = 0; n < 10; n++) {
		uint64_t v = n == 0 ? next_eip : n == 1 ? flags : c->s.gpr[n - 2];
		uint8_t *p = buf + n * l->width;

		if (l->width == 2)
			st16le(p, (uint16_t)v);
		else
			st32le(p, (uint32_t)v);
	}
	for (unsigned n = 0; n < l->nsel; n++) {
		uint8_t *p = buf + (l->sel - l->eip) + n * l->sel_step;

		/* The upper half of a 32-bit slot is reserved and written as zero. */
		st16le(p, c->s.seg[n].sel);
	}
	return mmu_write_buf(c, tr->base + l->eip, buf, (unsigned)(end - buf), MMU_KERNEL);
}

/* The state that may be in the old TSS's pages must be writable before anything changes. */
static int probe_old(struct soft_cpu *c)
{
	const struct cpu_segment *tr = &c->s.seg[S_TR];
	const struct tss_layout *l = layout_of(tr->type);

	if (tr->unusable || tr->limit < l->limit)
		return soft_raise_code(c, EXC_TS, tr->sel & ~SEL_RPL);
	return mmu_probe(c, tr->base + l->eip, l->save_end - l->eip, MMU_WRITE, MMU_KERNEL);
}

static int set_busy(struct soft_cpu *c, const struct descriptor *d, bool busy)
{
	uint8_t byte;

	if (mmu_read_buf(c, d->lin + 5, &byte, 1, MMU_KERNEL))
		return EXC_RAISED;
	byte = (uint8_t)(busy ? byte | 2 : byte & ~2);
	return mmu_write_buf(c, d->lin + 5, &byte, 1, MMU_KERNEL);
}

/* The descriptor of the running task, in the GDT as it is now. */
static int old_descriptor(struct soft_cpu *c, struct descriptor *d)
{
	return desc_read(c, c->s.seg[S_TR].sel & ~(SEL_RPL | SEL_TI), EXC_TS, 0, d);
}

/* ---- the new task -------------------------------------------------------------------- */

static int read_new(struct soft_cpu *c, const struct descriptor *tss, uint32_t ext, struct new_task *t)
{
	const struct tss_layout *l = layout_of(tss->seg.type);

	memset(t, 0, sizeof(*t));
	t->layout = l;
	if (tss->seg.limit < l->limit)
		return soft_raise_code(c, EXC_TS, (tss->seg.sel & ~SEL_RPL) | ext);
	if (mmu_read_buf(c, tss->seg.base, t->raw, l->limit + 1, MMU_KERNEL))
		return EXC_RAISED;
	t->eip = get(t->raw + l->eip, l->width);
	t->flags = get(t->raw + l->flags, l->width);
	for (unsigned n = 0; n < l->nsel; n++)
		t->sel[n] = ld16le(t->raw + l->sel + n * l->sel_step);
	t->ldt = ld16le(t->raw + l->ldt);
	t->cr3 = l == &tss32 ? ld32le(t->raw + TSS_CR3) : c->s.cr3;
	t->trap = l == &tss32 && (t->raw[TSS_T] & 1);
	return 0;
}

static int load_ldt(struct soft_cpu *c, uint16_t sel)
{
	struct descriptor d;
	uint32_t err = sel & ~SEL_RPL;

	seg_set_null(c, S_LDTR, sel);
	if (!err)
		return 0;
	if (sel & SEL_TI)
		return soft_raise_code(c, EXC_TS, err);
	if (desc_read(c, sel, EXC_TS, 0, &d))
		return EXC_RAISED;
	if (d.seg.s || d.seg.type != DESC_LDT || !d.seg.present)
		return soft_raise_code(c, EXC_TS, err);
	c->s.seg[S_LDTR] = d.seg;
	return 0;
}

static int load_cs(struct soft_cpu *c, uint16_t sel)
{
	uint32_t err = sel & ~SEL_RPL;
	struct descriptor d;

	if (!err)
		return soft_raise_code(c, EXC_TS, 0);
	if (desc_read(c, sel, EXC_TS, 0, &d))
		return EXC_RAISED;
	if (!d.seg.s || !(d.seg.type & DESC_CODE) ||
	    (d.seg.type & DESC_CONFORMING ? d.seg.dpl > (sel & SEL_RPL) : d.seg.dpl != (sel & SEL_RPL)))
		return soft_raise_code(c, EXC_TS, err);
	if (!d.seg.present)
		return soft_raise_code(c, EXC_NP, err);
	if (desc_set_accessed(c, &d))
		return EXC_RAISED;
	c->s.seg[S_CS] = d.seg;
	return 0;
}

static int load_ss(struct soft_cpu *c, uint16_t sel, unsigned cpl)
{
	uint32_t err = sel & ~SEL_RPL;
	struct descriptor d;

	if (!err)
		return soft_raise_code(c, EXC_TS, 0);
	if (desc_read(c, sel, EXC_TS, 0, &d))
		return EXC_RAISED;
	if (!d.seg.s || (d.seg.type & DESC_CODE) || !(d.seg.type & DESC_RW) || d.seg.dpl != cpl ||
	    (sel & SEL_RPL) != cpl)
		return soft_raise_code(c, EXC_TS, err);
	if (!d.seg.present)
		return soft_raise_code(c, EXC_SS, err);
	if (desc_set_accessed(c, &d))
		return EXC_RAISED;
	c->s.seg[S_SS] = d.seg;
	return 0;
}

static int load_data(struct soft_cpu *c, unsigned seg, uint16_t sel, unsigned cpl)
{
	uint32_t err = sel & ~SEL_RPL;
	struct descriptor d;

	if (!err)
		return 0; /* null already */
	if (desc_read(c, sel, EXC_TS, 0, &d))
		return EXC_RAISED;
	if (!d.seg.s || ((d.seg.type & DESC_CODE) && !(d.seg.type & DESC_RW)))
		return soft_raise_code(c, EXC_TS, err);
	if (!((d.seg.type & DESC_CODE) && (d.seg.type & DESC_CONFORMING)) &&
	    ((sel & SEL_RPL) > d.seg.dpl || cpl > d.seg.dpl))
		return soft_raise_code(c, EXC_TS, err);
	if (!d.seg.present)
		return soft_raise_code(c, EXC_NP, err);
	if (desc_set_accessed(c, &d))
		return EXC_RAISED;
	c->s.seg[seg] = d.seg;
	return 0;
}

/* All selectors are in place; now their hidden parts, in the order their faults have. */
static int load_segments(struct soft_cpu *c, const struct new_task *t)
{
	static const uint8_t data[] = {S_DS, S_ES, S_FS, S_GS};
	unsigned cpl = t->sel[S_CS] & SEL_RPL;

	if (load_ldt(c, t->ldt))
		return EXC_RAISED;
	if (t->flags & FLAG_VM) {
		for (unsigned n = S_ES; n <= S_GS; n++)
			seg_set_real(c, n, t->sel[n]);
		return 0;
	}
	if (load_cs(c, t->sel[S_CS]) || load_ss(c, t->sel[S_SS], cpl))
		return EXC_RAISED;
	for (unsigned n = 0; n < ARRAY_SIZE(data); n++)
		if (load_data(c, data[n], t->sel[data[n]], cpl))
			return EXC_RAISED;
	return 0;
}

/* Registers and selectors. Segments are unusable but for the privilege level, until they are loaded. */
static void enter_registers(struct soft_cpu *c, const struct new_task *t)
{
	const struct tss_layout *l = t->layout;

	c->s.rip = t->eip;
	c->s.rflags = (t->flags & RFLAGS_ALL) | RFLAGS_FIXED;
	if (!(c->s.dr[7] & 0xff)) /* as IRET does: it only means something while there are breakpoints */
		c->s.rflags &= ~FLAG_RF;
	for (unsigned n = 0; n < 8; n++) {
		uint64_t v = get(t->raw + l->gpr + n * l->width, l->width);

		/* A 16-bit TSS leaves the upper halves undefined; processors are seen to set them. */
		c->s.gpr[n] = l->width == 2 ? 0xffff0000u | v : v;
	}
	for (unsigned n = S_ES; n <= S_GS; n++)
		seg_set_null(c, n, t->sel[n]);
	c->s.seg[S_SS].dpl = t->flags & FLAG_VM ? 3 : t->sel[S_CS] & SEL_RPL;
	c->s.cr0 |= CR0_TS;
	c->s.int_shadow = false;
	if (c->s.dr[7] & DR7_LOCAL) {
		c->s.dr[7] &= ~DR7_LOCAL;
		soft_debug_changed(c);
	}
	soft_mode_changed(c);
}

static int push_error_code(struct soft_cpu *c, unsigned width, uint32_t code)
{
	struct stack_ref st = stack_current(c);

	if (stack_ref_push(c, &st, width, code))
		return EXC_RAISED;
	stack_ref_commit(c, &st);
	return 0;
}

/* Everything that may still fail without a trace: paged in, limits right, PDPTEs good. */
static int check_before(struct soft_cpu *c, const struct descriptor *tss, const struct new_task *t, enum task_why why)
{
	if (probe_old(c) || mmu_probe(c, tss->lin + 5, 1, MMU_WRITE, MMU_KERNEL))
		return EXC_RAISED;
	if ((why == TASK_CALL || why == TASK_INT) && mmu_probe(c, tss->seg.base, 2, MMU_WRITE, MMU_KERNEL))
		return EXC_RAISED;
	return c->paging ? mmu_check_cr3(c, t->cr3) : 0;
}

/* Busy bits, the back link, and the old task's registers. */
static int leave_old(struct soft_cpu *c, const struct descriptor *tss, enum task_why why, uint64_t next_eip,
		     uint64_t flags)
{
	struct descriptor old;
	uint16_t link = c->s.seg[S_TR].sel;

	if (why == TASK_JMP || why == TASK_IRET) {
		if (old_descriptor(c, &old) || set_busy(c, &old, false))
			return EXC_RAISED;
	}
	if (why == TASK_IRET)
		flags &= ~FLAG_NT;
	if (save_old(c, next_eip, flags))
		return EXC_RAISED;
	if ((why == TASK_CALL || why == TASK_INT) && mmu_write_buf(c, tss->seg.base, &link, 2, MMU_KERNEL))
		return EXC_RAISED;
	return why == TASK_IRET ? 0 : set_busy(c, tss, true);
}

int task_switch(struct soft_cpu *c, const struct descriptor *tss, const struct task_event *e)
{
	struct new_task t;

	if (read_new(c, tss, e->ext, &t) || check_before(c, tss, &t, e->why) ||
	    leave_old(c, tss, e->why, e->next_eip, e->flags))
		return EXC_RAISED;
	if (e->why == TASK_CALL || e->why == TASK_INT)
		t.flags |= FLAG_NT;
	c->s.seg[S_TR] = tss->seg;
	c->s.seg[S_TR].type |= 2;
	if (c->paging && t.layout == &tss32 && t.cr3 != c->s.cr3)
		mmu_switch_cr3(c, t.cr3, false);
	enter_registers(c, &t);
	if (load_segments(c, &t)) {
		soft_mode_changed(c);
		return EXC_RAISED;
	}
	soft_mode_changed(c);
	soft_recheck_intr(c);
	if (e->has_code && push_error_code(c, t.layout->width, e->code))
		return EXC_RAISED;
	if (c->s.rip > c->s.seg[S_CS].limit)
		return sys_gp0(c);
	if (t.trap) {
		c->s.dr[6] |= DR6_BT;
		return soft_raise(c, EXC_DB);
	}
	return 0;
}

int task_return(struct soft_cpu *c, uint64_t next_eip)
{
	struct task_event e = {.why = TASK_IRET, .next_eip = next_eip, .flags = c->s.rflags};
	struct descriptor tss;

	if (linked_tss(c, &tss))
		return EXC_RAISED;
	return task_switch(c, &tss, &e);
}

int task_far(struct soft_cpu *c, const struct descriptor *d, bool call, uint64_t next_eip)
{
	struct task_event e = {.why = call ? TASK_CALL : TASK_JMP, .next_eip = next_eip, .flags = c->s.rflags};
	uint32_t err = d->seg.sel & ~SEL_RPL;
	struct descriptor tss = *d;

	/* Gate and TSS alike: both CPL and RPL must reach it. */
	if (d->seg.dpl < c->cpl || d->seg.dpl < (d->seg.sel & SEL_RPL))
		return soft_raise_code(c, EXC_GP, err);
	if (d->seg.type == DESC_TASK_GATE) {
		if (!d->seg.present)
			return soft_raise_code(c, EXC_NP, err);
		if (task_gate_tss(c, (uint16_t)(d->raw >> 16), 0, &tss))
			return EXC_RAISED;
	} else {
		if ((d->seg.sel & SEL_TI) || !is_tss(d, false))
			return soft_raise_code(c, EXC_GP, err);
		if (!d->seg.present)
			return soft_raise_code(c, EXC_NP, err);
	}
	return task_switch(c, &tss, &e);
}
