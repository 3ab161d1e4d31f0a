/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Debugging aids and traps: single step, RF, breakpoints on instructions, data
 * and ports, general detect, INT3, INTO, BOUND, ICEBP, #AC, #MF, interrupt
 * shadow. Intel SDM volume 3B chapter 18, AMD64 APM volume 2 chapter 13.
 */
#include "bare.h"

static struct ctx c;
static volatile u32 traps, last_eip[16];
static u32 data[16] __attribute__((aligned(64)));

static void set_dr(u32 n, const volatile void *addr)
{
	switch (n) {
	case 0: WRITE_REG(dr0, addr); break;
	case 1: WRITE_REG(dr1, addr); break;
	case 2: WRITE_REG(dr2, addr); break;
	default: WRITE_REG(dr3, addr); break;
	}
}
/* Breakpoint n: kind 0 execute, 1 write, 2 port, 3 access; len 1, 2, 4 */
static void arm(u32 n, const volatile void *addr, u32 kind, u32 len)
{
	set_dr(n, addr);
	WRITE_REG(dr6, 0xffff0ff0);
	WRITE_REG(dr7, 0x400 | 2u << (2 * n) | (kind | (len - 1) << 2) << (16 + 4 * n));
}
static void disarm(void)
{
	WRITE_REG(dr7, 0x400);
}
static u32 dr6(void)
{
	u32 v = READ_REG(dr6);

	WRITE_REG(dr6, 0xffff0ff0);
	return v;
}

/* Count #DB and go on. */
static void on_db(struct ctx *f)
{
	if (traps < ARRAY_SIZE(last_eip))
		last_eip[traps] = f->eip;
	traps++;
}

/* ---- single step ---- */

CODE(steps, "nop; nop; mov $1, %eax");
CODE(step_pop, "pushf; orl $0x100, (%esp); popf; nop; nop; pushf; andl $~0x100, (%esp); popf; nop");
CODE(step_rep, "mov $3, %ecx; rep movsb; nop");
CODE(step_int, "int3; nop");
CODE(step_ss,
     "mov %ss, %eax; pushf; orl $0x100, (%esp); popf; mov %eax, %ss; nop; nop; pushf; andl $~0x100, (%esp); popf");

static u32 off(const char *code, u32 n)
{
	return last_eip[n] - (u32)code;
}

static void test_single_step(void)
{
	ctx_init(&c, 3, steps);
	c.eflags |= EFL_TF;
	CHECK_EQ(run(&c), V_DB);
	CHECK_EQ(c.eip, (u32)steps + 1);
	CHECK_EQ(c.eflags & EFL_TF, EFL_TF);
	CHECK_EQ(dr6() & 0x4000, 0x4000);
	set_handler(V_DB, on_db);
	traps = 0;
	ctx_init(&c, 3, step_pop);
	CHECK_EQ(run(&c), V_BACK);
	/* pushf 1, orl 7 bytes, popf at 8: the first trap comes after the nop at 9 */
	CHECK_EQ(traps, 5);
	CHECK_EQ(off(step_pop, 0), 10);
	CHECK_EQ(off(step_pop, 1), 11);
	CHECK_EQ(off(step_pop, 4), 20);
	/* repeated instructions trap after each iteration */
	traps = 0;
	ctx_init(&c, 3, step_rep);
	c.esi = c.edi = (u32)data;
	c.eflags |= EFL_TF;
	run(&c);
	CHECK_EQ(off(step_rep, 0), 5);
	CHECK_EQ(off(step_rep, 1), 5);
	CHECK_EQ(off(step_rep, 2), 5);
	CHECK_EQ(off(step_rep, 3), 7);
	set_handler(V_DB, 0);
	/* INT clears TF on its way: no trap after it */
	ctx_init(&c, 3, step_int);
	c.eflags |= EFL_TF;
	CHECK_EQ(run(&c), V_BP);
	/* MOV SS holds the trap back by one instruction */
	set_handler(V_DB, on_db);
	traps = 0;
	ctx_init(&c, 0, step_ss);
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(off(step_ss, 0), 14);
	set_handler(V_DB, 0);
	dr6();
}

/* E22: POPF sets TF, RETF to a segment that is not present: #NP with TF in the image, and no instruction more. */
CODE(e22, "push $0x33; push $0; pushf; orl $0x100, (%esp); popf; lret; nop");
static void test_e22(void)
{
	gdt[SEL_FREE / 8] = make_desc(0, 0xfffff, A_DPL3 | A_CODE, F_32 | F_G);
	ctx_init(&c, 3, e22);
	CHECK_EQ(run(&c), V_NP);
	CHECK_EQ(c.error, SEL_FREE);
	CHECK_EQ(c.eip, (u32)e22 + 13);
	CHECK_EQ(c.eflags & EFL_TF, EFL_TF);
	/* the handler returns there with TF: LRET again, which succeeds, and the trap comes before its target's first
	 */
	gdt[SEL_FREE / 8] = make_desc((u32)steps, 0xfffff, A_P | A_DPL3 | A_CODE, F_32 | F_G);
	CHECK_EQ(run(&c), V_DB);
	CHECK_EQ(c.eip, 0);
	CHECK_EQ((u16)c.cs, SEL_FREE | 3);
	dr6();
}

/* ---- breakpoints ---- */

static void test_exec_breakpoint(void)
{
	arm(1, steps + 1, 0, 1);
	ctx_init(&c, 3, steps);
	CHECK_EQ(run(&c), V_DB);
	CHECK_EQ(c.eip, (u32)steps + 1);
	CHECK_EQ(dr6() & 0xf, 2);
	/* RF gets past it, once */
	c.eflags |= EFL_RF;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.eax, 1);
	disarm();
	ctx_init(&c, 3, steps);
	CHECK_EQ(run(&c), V_BACK);
}

CODE(writes, "mov %eax, (%esi); nop");
CODE(writes_high, "movb %al, 3(%esi); nop");
CODE(reads, "mov (%esi), %eax; nop");
CODE(wide_write, "mov %eax, -2(%esi); nop");
CODE(rep_write, "mov $4, %ecx; rep stosl; nop");

static u32 with_data(const char *code)
{
	ctx_init(&c, 3, code);
	c.esi = c.edi = (u32)data;
	return run(&c);
}

static void test_data_breakpoint(void)
{
	arm(0, data, 1, 4);
	CHECK_EQ(with_data(writes), V_DB);
	CHECK_EQ(c.eip, (u32)writes + 2); /* a trap: behind it */
	CHECK_EQ(dr6() & 0xf, 1);
	CHECK_EQ(with_data(writes_high), V_DB);
	CHECK_EQ(with_data(wide_write), V_DB);
	CHECK_EQ(with_data(reads), V_BACK);
	arm(0, (u8 *)data + 1, 1, 1);
	CHECK_EQ(with_data(writes), V_DB);
	CHECK_EQ(with_data(writes_high), V_BACK);
	arm(3, data, 3, 4);
	CHECK_EQ(with_data(reads), V_DB);
	CHECK_EQ(dr6() & 0xf, 8);
	arm(0, &data[2], 1, 4);
	CHECK_EQ(with_data(rep_write), V_DB);
	CHECK_EQ(c.ecx, 1); /* after the iteration that wrote it */
	disarm();
	CHECK_EQ(with_data(writes), V_BACK);
	dr6();
}

CODE(outs, "mov $0x80, %edx; out %al, %dx; nop");
static void test_io_breakpoint(void)
{
	u32 old = READ_REG(cr4);

	WRITE_REG(cr4, old | 8);
	arm(2, (void *)0x80, 2, 1);
	ctx_init(&c, 0, outs);
	CHECK_EQ(run(&c), V_DB);
	CHECK_EQ(c.eip, (u32)outs + 6);
	CHECK_EQ(dr6() & 0xf, 4);
	arm(2, (void *)0x81, 2, 1);
	ctx_init(&c, 0, outs);
	CHECK_EQ(run(&c), V_BACK);
	disarm();
	WRITE_REG(cr4, old);
}

CODE(touch_dr, "mov %dr0, %eax; nop");
CODE(touch_dr4, "mov %dr4, %eax");
static void test_general_detect(void)
{
	u32 old = READ_REG(cr4);

	WRITE_REG(dr7, 0x2400);
	ctx_init(&c, 0, touch_dr);
	CHECK_EQ(run(&c), V_DB);
	CHECK_EQ(c.eip, (u32)touch_dr);
	CHECK_EQ(READ_REG(dr7) & 0x2000, 0);
	CHECK_EQ(dr6() & 0x2000, 0x2000);
	ctx_init(&c, 3, touch_dr);
	CHECK_EQ(run(&c), V_GP);
	disarm();
	WRITE_REG(cr4, old & ~8u);
	ctx_init(&c, 0, touch_dr4);
	CHECK_EQ(run(&c), V_BACK);
	WRITE_REG(cr4, old | 8);
	ctx_init(&c, 0, touch_dr4);
	CHECK_EQ(run(&c), V_UD);
	WRITE_REG(cr4, old);
}

/* ---- instructions that trap ---- */

CODE(do_into, "into; nop");
CODE(do_icebp, ".byte 0xf1; nop");
CODE(do_bound, "bound %eax, (%esi)");
static void test_traps(void)
{
	ctx_init(&c, 3, do_into);
	CHECK_EQ(run(&c), V_BACK);
	ctx_init(&c, 3, do_into);
	c.eflags |= EFL_OF;
	CHECK_EQ(run(&c), V_OF);
	CHECK_EQ(c.eip, (u32)do_into + 1);
	ctx_init(&c, 3, do_icebp);
	CHECK_EQ(run(&c), V_DB);
	CHECK_EQ(c.eip, (u32)do_icebp + 1);
	CHECK_EQ(dr6() & 0x400f, 0);
	data[0] = (u32)-4;
	data[1] = 9;
	ctx_init(&c, 3, do_bound);
	c.esi = (u32)data;
	c.eax = 9;
	CHECK_EQ(run(&c), V_BACK);
	ctx_init(&c, 3, do_bound);
	c.esi = (u32)data;
	c.eax = 10;
	CHECK_EQ(run(&c), V_BR);
	CHECK_EQ(c.eip, (u32)do_bound);
}

/* ---- alignment ---- */

CODE(read2, "movzwl (%esi), %eax");
CODE(fld80, "fldt (%esi); fstp %st");
CODE(fldcw, "fldcw (%esi)");
static void test_alignment(void)
{
	static const struct {
		const char *code;
		u32 off, faults;
	} cases[] = {{reads, 0, 0},  {reads, 1, 1}, {reads, 2, 1}, {read2, 1, 1}, {read2, 2, 0},
		     {writes, 2, 1}, {fld80, 8, 0}, {fld80, 4, 1}, {fldcw, 1, 1}, {writes_high, 0, 0}};
	u32 old = READ_REG(cr0);

	for (u32 on = 0; on < 2; on++) {
		WRITE_REG(cr0, on ? old | 1u << 18 : old & ~(1u << 18));
		for (u32 n = 0; n < ARRAY_SIZE(cases); n++) {
			ctx_init(&c, 3, cases[n].code);
			c.eflags |= EFL_AC;
			c.esi = (u32)data + cases[n].off;
			CHECK_EQ(run(&c), on && cases[n].faults ? V_AC : V_BACK);
			CHECK_EQ(c.error, 0);
			/* ring 0 never */
			ctx_init(&c, 0, cases[n].code);
			c.eflags |= EFL_AC;
			c.esi = (u32)data + cases[n].off;
			CHECK_EQ(run(&c), V_BACK);
		}
	}
	/* the stack too */
	ctx_init(&c, 3, steps);
	c.eip = (u32)({
		extern const char push_it[];
		push_it;
	});
	c.eflags |= EFL_AC;
	c.esp -= 2;
	CHECK_EQ(run(&c), V_AC);
	WRITE_REG(cr0, old);
}
CODE(push_it, "push %eax");

/* ---- x87: a pending exception waits for the next instruction that waits (CR0.NE = 1) ---- */

CODE(fpu_div, "fninit; fldcw (%esi); fldz; fld1; fdivp; nop; fnstsw %ax; fwait; fninit");
CODE(fpu_em, "fninit");
CODE(fpu_wait, "fwait");
static void test_fpu(void)
{
	static u16 cw = 0x37b;
	u32 old = READ_REG(cr0);

	WRITE_REG(cr0, (old | 0x20) & ~0xcu);
	ctx_init(&c, 3, fpu_div);
	c.esi = (u32)&cw;
	CHECK_EQ(run(&c), V_MF);
	CHECK_EQ(c.eip, (u32)fpu_div + 13);
	CHECK_EQ(c.eax & 0x84, 0x84);
	__asm__ volatile("fninit");
	/* EM and TS: #NM; FWAIT only with TS and MP */
	WRITE_REG(cr0, (old | 0x24) & ~0xau);
	ctx_init(&c, 3, fpu_em);
	CHECK_EQ(run(&c), V_NM);
	WRITE_REG(cr0, (old | 0x28) & ~0x6u);
	ctx_init(&c, 3, fpu_em);
	CHECK_EQ(run(&c), V_NM);
	ctx_init(&c, 3, fpu_wait);
	CHECK_EQ(run(&c), V_BACK);
	WRITE_REG(cr0, (old | 0x2a) & ~0x4u);
	ctx_init(&c, 3, fpu_wait);
	CHECK_EQ(run(&c), V_NM);
	WRITE_REG(cr0, old);
}

/* ---- double faults ---- */

static void test_double_fault(void)
{
	static u8 stack[4096];
	u64 gp = idt[V_GP];

	/* a #GP whose gate is bad: #DF; here all have good stacks */
	main_tss.esp0 = (u32)stack + sizeof(stack);
	idt[V_GP] = make_gate(SEL_DATA, 0, A_P | A_INT, 0);
	ctx_init(&c, 3, touch_dr);
	CHECK_EQ(run(&c), V_DF);
	CHECK_EQ(c.error, 0);
	CHECK_EQ(c.eip, (u32)touch_dr);
	/* not present: #NP in the delivery of a contributory one */
	idt[V_GP] = make_gate(SEL_CODE, 0, A_INT, 0);
	ctx_init(&c, 3, touch_dr);
	CHECK_EQ(run(&c), V_DF);
	idt[V_GP] = gp;
	/* #UD is benign: the second is served on its own, with EXT in its code */
	gp = idt[V_UD];
	idt[V_UD] = make_gate(SEL_CODE, 0, A_INT, 0);
	{
		extern const char do_ud[];
		ctx_init(&c, 3, do_ud);
	}
	CHECK_EQ(run(&c), V_NP);
	CHECK_EQ(c.error, V_UD * 8 + 3);
	idt[V_UD] = gp;
}
CODE(do_ud, "ud2");

const struct test tests[] = {{"single-step", test_single_step},
			     {"e22", test_e22},
			     {"exec-breakpoint", test_exec_breakpoint},
			     {"data-breakpoint", test_data_breakpoint},
			     {"io-breakpoint", test_io_breakpoint},
			     {"general-detect", test_general_detect},
			     {"traps", test_traps},
			     {"alignment", test_alignment},
			     {"fpu", test_fpu},
			     {"double-fault", test_double_fault},
			     {0, 0}};
