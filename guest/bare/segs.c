/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Segmentation: limits and rights of data, code and expand-down segments, LDT,
 * call gates and their parameters, interrupt and trap gates of both sizes,
 * conforming code, IRET and far RET to outer levels. Intel SDM volume 3A
 * chapters 3, 5 and 6.
 */
#include "bare.h"

static u32 data[64];
static struct ctx c;

/* Selector n of the tests' own; RPL as given. */
#define FREE(n, rpl) ((u16)(SEL_FREE + 8 * (n) + (rpl)))
static void set_free(u32 n, u64 d)
{
	gdt[SEL_FREE / 8 + n] = d;
}

/* ---- data ---- */

CODE(read_byte, "mov (%esi), %al");
CODE(read_dword, "mov (%esi), %eax");
CODE(write_byte, "movb $0x5a, (%esi)");
CODE(stack_push, "push %eax");
CODE(stack_pop, "pop %eax");

static u32 access(const char *code, u16 sel, u32 offset)
{
	ctx_init(&c, 3, code);
	c.ds = sel;
	c.esi = offset;
	return run(&c);
}

static void test_limits(void)
{
	data[0] = 0x11223344;
	set_free(0, make_desc((u32)data, 0xf, A_P | A_DPL3 | A_DATA, F_32));
	CHECK_EQ(access(read_dword, FREE(0, 3), 0), V_BACK);
	CHECK_EQ(c.eax, 0x11223344);
	CHECK_EQ(access(read_dword, FREE(0, 3), 12), V_BACK);
	CHECK_EQ(access(read_dword, FREE(0, 3), 13), V_GP);
	CHECK_EQ(c.error, 0);
	CHECK_EQ(c.eip, (u32)read_dword);
	CHECK_EQ(access(read_byte, FREE(0, 3), 15), V_BACK);
	CHECK_EQ(access(read_byte, FREE(0, 3), 16), V_GP);
	CHECK_EQ(access(read_byte, FREE(0, 3), 0xffffffff), V_GP);
	/* granularity: 0 means 4 KiB */
	set_free(0, make_desc((u32)data, 0, A_P | A_DPL3 | A_DATA, F_32 | F_G));
	CHECK_EQ(access(read_byte, FREE(0, 3), 0xfff), V_BACK);
	CHECK_EQ(access(read_byte, FREE(0, 3), 0x1000), V_GP);
	CHECK_EQ(access(read_dword, FREE(0, 3), 0xffd), V_GP);
}

static void test_expand_down(void)
{
	/* Valid: limit + 1 up to 64K or 4G. */
	set_free(0, make_desc((u32)data - 0x1000, 0xfff, A_P | A_DPL3 | A_DOWN, F_32));
	CHECK_EQ(access(read_byte, FREE(0, 3), 0xfff), V_GP);
	CHECK_EQ(access(read_byte, FREE(0, 3), 0x1000), V_BACK);
	CHECK_EQ(access(read_dword, FREE(0, 3), 0xffd), V_GP);
	CHECK_EQ(access(read_byte, FREE(0, 3), 0), V_GP);
	set_free(0, make_desc((u32)data - 0x1000, 0xfff, A_P | A_DPL3 | A_DOWN, 0));
	CHECK_EQ(access(read_byte, FREE(0, 3), 0xffff), V_BACK);
	CHECK_EQ(access(read_byte, FREE(0, 3), 0x10000), V_GP);
	CHECK_EQ(access(read_dword, FREE(0, 3), 0xfffd), V_GP);
}

static void test_rights(void)
{
	static const struct {
		u8 access;
		u8 reads, writes;
	} rights[] = {{A_DATA, 1, 1}, {A_DATA_RO, 1, 0}, {A_CODE, 1, 0}};

	for (u32 n = 0; n < ARRAY_SIZE(rights); n++) {
		set_free(0, make_desc((u32)data, 0xff, A_P | A_DPL3 | rights[n].access, F_32));
		CHECK_EQ(access(read_byte, FREE(0, 3), 0), rights[n].reads ? V_BACK : V_GP);
		CHECK_EQ(access(write_byte, FREE(0, 3), 0), rights[n].writes ? V_BACK : V_GP);
	}
	/* a null selector may be loaded, not used */
	CHECK_EQ(access(read_byte, 0, 0), V_GP);
	CHECK_EQ(access(read_byte, 3, 0), V_GP);
}

CODE(load_ds, "mov %eax, %ds");
CODE(load_ss, "mov %eax, %ss");
CODE(load_es_pop, "push %eax; pop %es");

static u32 load(const char *code, unsigned ring, u16 sel)
{
	ctx_init(&c, ring, code);
	c.eax = sel;
	return run(&c);
}

static void test_loads(void)
{
	/* outside the table, wrong type, wrong level, not present */
	CHECK_EQ(load(load_ds, 3, 0xfff8 | 3), V_GP);
	CHECK_EQ(c.error, 0xfff8);
	set_free(0, make_desc(0, 0xffff, A_P | A_DATA, F_32));
	CHECK_EQ(load(load_ds, 3, FREE(0, 3)), V_GP);
	CHECK_EQ(c.error, FREE(0, 0));
	CHECK_EQ(load(load_ds, 0, FREE(0, 3)), V_GP);
	CHECK_EQ(load(load_ds, 0, FREE(0, 0)), V_BACK);
	set_free(0, make_desc(0, 0xffff, A_P | A_DPL3 | A_CODE_XO, F_32));
	CHECK_EQ(load(load_ds, 3, FREE(0, 3)), V_GP);
	/* conforming readable code of an inner level may be read */
	set_free(0, make_desc(0, 0xffff, A_P | A_CONFORM, F_32));
	CHECK_EQ(load(load_ds, 3, FREE(0, 3)), V_BACK);
	set_free(0, make_desc(0, 0xffff, A_DPL3 | A_DATA, F_32));
	CHECK_EQ(load(load_ds, 3, FREE(0, 3)), V_NP);
	CHECK_EQ(c.error, FREE(0, 0));
	CHECK_EQ(load(load_es_pop, 3, FREE(0, 3)), V_NP);
	CHECK_EQ(load(load_ss, 3, FREE(0, 3)), V_SS);
	CHECK_EQ(c.error, FREE(0, 0));
	set_free(0, make_desc(0, 0xffff, A_P | A_DPL3 | A_DATA_RO, F_32));
	CHECK_EQ(load(load_ss, 3, FREE(0, 3)), V_GP);
	set_free(0, make_desc(0, 0xffff, A_P | A_DPL3 | A_DATA, F_32));
	CHECK_EQ(load(load_ss, 3, FREE(0, 0)), V_GP);
	CHECK_EQ(load(load_ss, 3, 0), V_GP);
	CHECK_EQ(c.error, 0);
	/* the accessed bit */
	set_free(0, make_desc(0, 0xffff, A_P | A_DPL3 | (A_DATA & ~1), F_32));
	CHECK_EQ(load(load_ds, 3, FREE(0, 3)), V_BACK);
	CHECK_EQ(desc_access(gdt[SEL_FREE / 8]) & 1, 1);
	/* system segments are no data */
	CHECK_EQ(load(load_ds, 3, SEL_TSS | 3), V_GP);
}

static void test_stack_segments(void)
{
	set_free(0, make_desc((u32)data, 0xff, A_P | A_DPL3 | A_DATA, F_32));
	ctx_init(&c, 3, stack_push);
	c.ss = FREE(0, 3);
	c.esp = 0x100;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.esp, 0xfc);
	ctx_init(&c, 3, stack_push);
	c.ss = FREE(0, 3);
	c.esp = 0x102;
	CHECK_EQ(run(&c), V_SS);
	CHECK_EQ(c.error, 0);
	CHECK_EQ(c.esp, 0x102);
	ctx_init(&c, 3, stack_pop);
	c.ss = FREE(0, 3);
	c.esp = 0xfe;
	CHECK_EQ(run(&c), V_SS);
	/* 16-bit stack: SP wraps, the upper half stays */
	set_free(0, make_desc((u32)data, 0xffff, A_P | A_DPL3 | A_DATA, 0));
	ctx_init(&c, 3, stack_push);
	c.ss = FREE(0, 3);
	c.esp = 0x12340080;
	c.eax = 0xcafe;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.esp & 0xffff, 0x7c);
	CHECK_EQ(data[0x7c / 4], 0xcafe);
}

/* ---- code ---- */

CODE(far_jump, "ljmp *(%esi)");
CODE(far_call, "lcall *(%esi)");
CODE(show_cs, "mov %cs, %eax");
CODE(far_ret, "lret");

static u32 far_to(const char *code, unsigned ring, u32 offset, u16 sel)
{
	static u32 ptr[2];

	ptr[0] = offset;
	ptr[1] = sel;
	ctx_init(&c, ring, code);
	c.esi = (u32)ptr;
	return run(&c);
}

static void test_far(void)
{
	CHECK_EQ(far_to(far_jump, 3, (u32)show_cs, SEL_UCODE), V_BACK);
	CHECK_EQ((u16)c.eax, SEL_UCODE);
	CHECK_EQ(far_to(far_jump, 3, (u32)show_cs, SEL_CODE), V_GP);
	CHECK_EQ(c.error, SEL_CODE);
	CHECK_EQ(far_to(far_jump, 3, (u32)show_cs, 0), V_GP);
	CHECK_EQ(c.error, 0);
	CHECK_EQ(far_to(far_jump, 3, (u32)show_cs, SEL_UDATA), V_GP);
	CHECK_EQ(far_to(far_jump, 3, (u32)show_cs, 0x1ff8), V_GP);
	CHECK_EQ(c.error, 0x1ff8);
	/* conforming: runs at the caller's level */
	set_free(0, make_desc(0, 0xfffff, A_P | A_CONFORM, F_32 | F_G));
	CHECK_EQ(far_to(far_jump, 3, (u32)show_cs, FREE(0, 0)), V_BACK);
	CHECK_EQ((u16)c.eax, FREE(0, 3));
	/* not present; beyond the limit */
	set_free(0, make_desc(0, 0xfffff, A_DPL3 | A_CODE, F_32 | F_G));
	CHECK_EQ(far_to(far_jump, 3, (u32)show_cs, FREE(0, 3)), V_NP);
	CHECK_EQ(c.error, FREE(0, 0));
	set_free(0, make_desc(0, 0xffff, A_P | A_DPL3 | A_CODE, F_32));
	CHECK_EQ(far_to(far_jump, 3, 0x10000, FREE(0, 3)), V_GP);
	CHECK_EQ(c.error, 0);
	CHECK_EQ(c.cs, SEL_UCODE);
	/* execution runs over the limit */
	set_free(0, make_desc((u32)show_cs, 1, A_P | A_DPL3 | A_CODE, F_32));
	CHECK_EQ(far_to(far_jump, 3, 0, FREE(0, 3)), V_GP);
	CHECK_EQ(c.eip, 2);
	CHECK_EQ(c.cs, FREE(0, 3));
}

CODE(gate_target, "mov %cs, %eax; mov (%esp), %ebx; mov 4(%esp), %ecx; mov 8(%esp), %edx; mov 12(%esp), %edi; "
		  "mov 16(%esp), %ebp");
CODE(gate_target16, "mov %cs, %eax; movzwl (%esp), %ebx; movzwl 2(%esp), %ecx; movzwl 4(%esp), %edx");
static u8 inner_stack[4096];

static void test_call_gates(void)
{
	u32 *user;

	main_tss.esp0 = (u32)inner_stack + sizeof(inner_stack);
	/* 32-bit gate to ring 0 with two parameters */
	set_free(0, make_gate(SEL_CODE, (u32)gate_target, A_P | A_DPL3 | A_CALL, 2));
	ctx_init(&c, 3, far_call);
	user = (u32 *)c.esp - 2;
	user[0] = 0xaaaa1111;
	user[1] = 0xbbbb2222;
	c.esp = (u32)user;
	data[0] = 0;
	data[1] = FREE(0, 3);
	c.esi = (u32)data;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ((u16)c.eax, SEL_CODE);
	CHECK_EQ(c.ebx, (u32)far_call + 2);
	CHECK_EQ((u16)c.ecx, SEL_UCODE);
	CHECK_EQ(c.edx, 0xaaaa1111);
	CHECK_EQ(c.edi, 0xbbbb2222);
	CHECK_EQ(c.ebp, (u32)user);
	CHECK_EQ(c.esp, main_tss.esp0 - 24);
	/* JMP through it may not change the level; RPL and DPL count */
	CHECK_EQ(far_to(far_jump, 3, 0, FREE(0, 3)), V_GP);
	CHECK_EQ(c.error, SEL_CODE);
	set_free(0, make_gate(SEL_CODE, (u32)gate_target, A_P | A_CALL, 0));
	CHECK_EQ(far_to(far_call, 3, 0, FREE(0, 3)), V_GP);
	CHECK_EQ(c.error, FREE(0, 0));
	CHECK_EQ(far_to(far_call, 0, 0, FREE(0, 0)), V_BACK);
	set_free(0, make_gate(SEL_CODE, (u32)gate_target, A_DPL3 | A_CALL, 0));
	CHECK_EQ(far_to(far_call, 3, 0, FREE(0, 3)), V_NP);
	set_free(0, make_gate(SEL_UDATA, (u32)gate_target, A_P | A_DPL3 | A_CALL, 0));
	CHECK_EQ(far_to(far_call, 3, 0, FREE(0, 3)), V_GP);
	CHECK_EQ(c.error, SEL_UDATA & ~3u);
	set_free(0, make_gate(0, (u32)gate_target, A_P | A_DPL3 | A_CALL, 0));
	CHECK_EQ(far_to(far_call, 3, 0, FREE(0, 3)), V_GP);
	CHECK_EQ(c.error, 0);
}

/* 16-bit gate: two-byte pushes; the offset's upper word is not looked at. */
static void call_gate16(u32 offset_high)
{
	main_tss.esp0 = (u32)inner_stack + sizeof(inner_stack);
	set_free(2, make_desc((u32)gate_target16 & ~0xfffu, 0xffff, A_P | A_CODE, F_32));
	set_free(0, make_gate(FREE(2, 0), ((u32)gate_target16 & 0xfff) | offset_high, A_P | A_DPL3 | A_CALL16, 0));
	CHECK_EQ(far_to(far_call, 3, 0, FREE(0, 3)), V_BACK);
	CHECK_EQ(c.ebx, ((u32)far_call + 2) & 0xffff);
	CHECK_EQ(c.ecx, SEL_UCODE);
	CHECK_EQ(c.esp, main_tss.esp0 - 8);
}

static void test_call_gate16(void)
{
	call_gate16(0);
}
static void test_call_gate16_offset(void)
{
	call_gate16(0xabcd0000);
}

CODE(ret_outer, "lret $8");
CODE(iret_code, "iret");

/* Far RET from ring 0 to ring 3 with release; data segments of ring 0 become null. */
static void test_ret_outer(void)
{
	static u32 area[256];
	u32 *frame = area + 200; /* run() and exceptions push below it */

	ctx_init(&c, 0, ret_outer);
	frame[0] = (u32)show_cs;
	frame[1] = SEL_UCODE;
	frame[4] = (u32)data + 128;
	frame[5] = SEL_UDATA;
	c.fs = SEL_UDATA;
	c.esp = (u32)frame;
	/* run() puts its own frame below */
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ((u16)c.eax, SEL_UCODE);
	CHECK_EQ(c.esp, (u32)data + 128 + 8);
	CHECK_EQ((u16)c.ss, SEL_UDATA);
	CHECK_EQ((u16)c.ds, 0);
	CHECK_EQ((u16)c.gs, 0);
	CHECK_EQ((u16)c.fs, SEL_UDATA);
	/* RPL of the new SS must be that of CS */
	ctx_init(&c, 0, ret_outer);
	frame[5] = SEL_DATA;
	c.esp = (u32)frame;
	CHECK_EQ(run(&c), V_GP);
	CHECK_EQ(c.error, SEL_DATA);
	/* to an inner level: never */
	ctx_init(&c, 3, far_ret);
	frame[1] = SEL_CODE;
	c.esp = (u32)frame;
	CHECK_EQ(run(&c), V_GP);
	CHECK_EQ(c.error, SEL_CODE);
	ctx_init(&c, 3, iret_code);
	frame[1] = SEL_CODE;
	frame[2] = 2;
	c.esp = (u32)frame;
	CHECK_EQ(run(&c), V_GP);
	CHECK_EQ(c.error, SEL_CODE);
}

/* IRET at ring 3 changes neither IOPL nor IF (IOPL 0). */
static void test_iret_flags(void)
{
	static u32 area[256];
	u32 *frame = area + 200;

	ctx_init(&c, 3, iret_code);
	frame[0] = (u32)show_cs;
	frame[1] = SEL_UCODE;
	frame[2] = 0x3fd7 | EFL_NT;
	frame[2] &= ~(EFL_TF | EFL_NT);
	c.esp = (u32)frame;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.eflags & (EFL_IOPL | EFL_IF), 0);
	CHECK_EQ(c.eflags & 0xcd5, 0xcd5);
}

/* ---- LDT ---- */

static u64 ldt[4];

static void test_ldt(void)
{
	ldt[1] = make_desc((u32)data, 0xff, A_P | A_DPL3 | A_DATA, F_32);
	set_free(3, make_desc((u32)ldt, sizeof(ldt) - 1, A_P | A_LDT, 0));
	__asm__ volatile("lldt %w0" : : "r"((u32)FREE(3, 0)));
	data[0] = 0x77;
	CHECK_EQ(access(read_byte, 0x0f, 0), V_BACK);
	CHECK_EQ((u8)c.eax, 0x77);
	CHECK_EQ(load(load_ds, 3, 0x27), V_GP); /* beyond its end */
	CHECK_EQ(c.error, 0x24);
	__asm__ volatile("lldt %w0" : : "r"(0));
	CHECK_EQ(load(load_ds, 3, 0x0f), V_GP); /* no LDT */
	CHECK_EQ(c.error, 0x0c);
}

CODE(do_lldt, "lldt %ax");
CODE(do_ltr, "ltr %ax");
CODE(do_verr, "verr %ax; sete %bl");
CODE(do_verw, "verw %ax; sete %bl");
CODE(do_lsl, "mov $0xdead, %ecx; lsl %eax, %ecx; sete %bl");
CODE(do_lar, "mov $0xdead, %ecx; lar %eax, %ecx; sete %bl");
CODE(do_arpl, "arpl %cx, %ax; sete %bl");

static void test_system_selectors(void)
{
	CHECK_EQ(load(do_lldt, 3, 0), V_GP);
	CHECK_EQ(load(do_lldt, 0, SEL_DATA), V_GP);
	CHECK_EQ(c.error, SEL_DATA);
	set_free(0, make_desc((u32)ldt, 31, A_LDT, 0));
	CHECK_EQ(load(do_lldt, 0, FREE(0, 0)), V_NP);
	CHECK_EQ(load(do_ltr, 0, SEL_TSS), V_GP); /* busy */
	CHECK_EQ(c.error, SEL_TSS);
	set_free(0, make_desc(0, 0x1234, A_P | A_DPL3 | A_DATA, F_32));
	CHECK_EQ(load(do_verr, 3, FREE(0, 3)), V_BACK);
	CHECK_EQ((u8)c.ebx, 1);
	load(do_verw, 3, FREE(0, 3));
	CHECK_EQ((u8)c.ebx, 1);
	load(do_verw, 3, SEL_UCODE);
	CHECK_EQ((u8)c.ebx, 0);
	load(do_verr, 3, SEL_DATA);
	CHECK_EQ((u8)c.ebx, 0);
	load(do_lsl, 3, FREE(0, 3));
	CHECK_EQ((u8)c.ebx, 1);
	CHECK_EQ(c.ecx, 0x1234);
	load(do_lsl, 3, 0xfff8);
	CHECK_EQ((u8)c.ebx, 0);
	CHECK_EQ(c.ecx, 0xdead);
	load(do_lsl, 3, SEL_UCODE);
	CHECK_EQ(c.ecx, 0xffffffff);
	load(do_lar, 3, FREE(0, 3));
	CHECK_EQ(c.ecx & 0xf0ff00, 0x40f300);
	load(do_lar, 0, SEL_TSS);
	CHECK_EQ(c.ecx & 0xff00, 0x8b00);
	ctx_init(&c, 3, do_arpl);
	c.eax = 0x10;
	c.ecx = 3;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.eax, 0x13);
	CHECK_EQ((u8)c.ebx, 1);
}

static void test_ltr_null(void)
{
	CHECK_EQ(load(do_ltr, 0, 0), V_GP);
	CHECK_EQ(c.error, 0);
}

/* ---- interrupt and trap gates ---- */

CODE(int_40, "sti; int $0x40");
CODE(in_handler, "pushf; pop %eax; mov %cs, %ebx");
CODE(in_handler16, "mov %esp, %edi; movzwl (%esp), %eax; movzwl 2(%esp), %ebx; movzwl 4(%esp), %ecx");

static u32 int_by(u64 gate, unsigned ring)
{
	idt[0x40] = gate;
	ctx_init(&c, ring, int_40);
	c.eflags |= EFL_IOPL;
	return run(&c);
}

static void test_gates(void)
{
	static u8 stack[4096];

	main_tss.esp0 = (u32)stack + sizeof(stack);
	CHECK_EQ(int_by(make_gate(SEL_CODE, (u32)in_handler, A_P | A_DPL3 | A_INT, 0), 3), V_BACK);
	CHECK_EQ(c.eax & EFL_IF, 0);
	CHECK_EQ((u16)c.ebx, SEL_CODE);
	CHECK_EQ(int_by(make_gate(SEL_CODE, (u32)in_handler, A_P | A_DPL3 | A_TRAP, 0), 3), V_BACK);
	CHECK_EQ(c.eax & EFL_IF, EFL_IF);
	/* 16-bit gate: a frame of words, offset cut */
	set_free(0, make_desc((u32)in_handler16 & ~0xfffu, 0xffff, A_P | A_CODE, F_32));
	CHECK_EQ(int_by(make_gate(FREE(0, 0), (u32)in_handler16 & 0xfff, A_P | A_DPL3 | A_INT16, 0), 3), V_BACK);
	CHECK_EQ(c.edi, main_tss.esp0 - 10);
	CHECK_EQ(c.eax, ((u32)int_40 + 3) & 0xffff);
	CHECK_EQ(c.ebx, SEL_UCODE);
}

static void test_gate16_offset(void)
{
	set_free(0, make_desc((u32)in_handler16 & ~0xfffu, 0xffff, A_P | A_CODE, F_32));
	CHECK_EQ(int_by(make_gate(FREE(0, 0), ((u32)in_handler16 & 0xfff) | 0x5550000, A_P | A_DPL3 | A_INT16, 0), 3),
		 V_BACK);
}

static void test_bad_gates(void)
{
	/* software interrupts look at DPL; bad gates */
	CHECK_EQ(int_by(make_gate(SEL_CODE, (u32)in_handler, A_P | A_INT, 0), 3), V_GP);
	CHECK_EQ(c.error, 0x40 * 8 + 2);
	CHECK_EQ(c.eip, (u32)int_40 + 1);
	CHECK_EQ(int_by(make_gate(SEL_CODE, (u32)in_handler, A_DPL3 | A_INT, 0), 3), V_NP);
	CHECK_EQ(c.error, 0x40 * 8 + 2);
	CHECK_EQ(int_by(make_gate(SEL_CODE, (u32)in_handler, A_P | A_DPL3 | A_CALL, 0), 3), V_GP);
	CHECK_EQ(int_by(make_gate(0, (u32)in_handler, A_P | A_DPL3 | A_INT, 0), 3), V_GP);
	CHECK_EQ(c.error, 0);
	CHECK_EQ(int_by(make_gate(SEL_UDATA & ~3, (u32)in_handler, A_P | A_DPL3 | A_INT, 0), 3), V_GP);
	CHECK_EQ(c.error, SEL_UDATA & ~3u);
	/* to an outer level: #GP */
	CHECK_EQ(int_by(make_gate(SEL_UCODE & ~3, (u32)in_handler, A_P | A_DPL3 | A_INT, 0), 0), V_GP);
	CHECK_EQ(c.error, SEL_UCODE & ~3u);
	/* conforming: stays in ring 3 */
	set_free(1, make_desc(0, 0xfffff, A_P | A_CONFORM, F_32 | F_G));
	CHECK_EQ(int_by(make_gate(FREE(1, 0), (u32)in_handler, A_P | A_DPL3 | A_INT, 0), 3), V_BACK);
	CHECK_EQ((u16)c.ebx, FREE(1, 3));
}

/* A 16-bit code segment: sizes, wrap of IP. */
CODE16(code16, "mov $0x1234, %ax; mov $0x56789abc, %ecx; push %ax; pop %bx");
static void test_code16(void)
{
	set_free(0, make_desc((u32)code16, 0xffff, A_P | A_DPL3 | A_CODE, 0));
	ctx_init(&c, 3, 0);
	c.cs = FREE(0, 3);
	c.eax = c.ebx = 0xffff0000;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.eax, 0xffff1234);
	CHECK_EQ(c.ebx, 0xffff1234);
	CHECK_EQ(c.ecx, 0x56789abc);
}

/* E12: a segment override in 32-bit code, MOV r/m16,sreg, PUSH of FS and GS, INC and IOPL. */
CODE(overrides,
     "mov %fs:(%esi), %eax; mov $-1, %ebx; mov %fs, %bx; push %fs; pop %ecx; lock incl (%edi); pushf; pop %edx");
static void test_overrides(void)
{
	static u32 counter;

	data[0] = 1;
	data[16] = 0xfeed;
	set_free(0, make_desc((u32)&data[16], 0xff, A_P | A_DPL3 | A_DATA, F_32));
	ctx_init(&c, 3, overrides);
	c.fs = FREE(0, 3);
	c.esi = 0;
	c.edi = (u32)&counter;
	c.eflags |= EFL_IOPL | EFL_NT;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.eax, 0xfeed);
	CHECK_EQ(c.ebx, 0xffff0000u | FREE(0, 3));
	CHECK_EQ((u16)c.ecx, FREE(0, 3));
	CHECK_EQ(counter, 1);
	CHECK_EQ(c.edx & (EFL_IOPL | EFL_NT), EFL_IOPL | EFL_NT);
}

/* ---- rings 1 and 2 ---- */

/* Selectors 4 to 7 of the tests' own: code and data of ring 1, then of ring 2. */
#define RING_CODE(ring) FREE(2 * (ring) + 2, ring)
#define RING_DATA(ring) FREE(2 * (ring) + 3, ring)
static u32 ring_stack[3][64];

static void ring_init(unsigned ring, const char *code)
{
	for (u32 r = 1; r <= 2; r++) {
		set_free(2 * r + 2, make_desc(0, 0xfffff, (u8)(A_P | r << 5 | A_CODE), F_32 | F_G));
		set_free(2 * r + 3, make_desc(0, 0xfffff, (u8)(A_P | r << 5 | A_DATA), F_32 | F_G));
	}
	main_tss.ss1 = RING_DATA(1);
	main_tss.esp1 = (u32)&ring_stack[1][60];
	main_tss.ss2 = RING_DATA(2);
	main_tss.esp2 = (u32)&ring_stack[2][60];
	ctx_init(&c, 3, code);
	c.cs = RING_CODE(ring);
	c.ss = c.ds = c.es = c.fs = c.gs = RING_DATA(ring);
	c.esi = (u32)data;
}

CODE(ring_cli, "cli");
CODE(ring_in, "in $0x80, %al");
CODE(ring_hlt, "hlt");
CODE(ring_cr, "mov %cr0, %eax");
CODE(ring_dr, "mov %dr0, %eax");
CODE(ring_msr, "mov $0x1b, %ecx; rdmsr");
CODE(ring_lgdt, "lgdt (%esi)");
CODE(ring_clts, "clts");
CODE(ring_invd, "wbinvd");
CODE(ring_invlpg, "invlpg (%esi)");
CODE(ring_int, "int $0x41");
CODE(ring_popf, "push %eax; popf; pushf; pop %eax");
CODE(ring_unaligned, "mov 1(%esi), %eax");

/* IOPL decides what the flag is for; nothing else is ring 0's. */
static void test_inner_rights(void)
{
	static const char *const never[] = {ring_hlt,  ring_cr,	  ring_dr,   ring_msr,
					    ring_lgdt, ring_clts, ring_invd, ring_invlpg};
	const u32 cr0 = READ_REG(cr0);

	for (u32 ring = 1; ring <= 2; ring++) {
		for (u32 n = 0; n < ARRAY_SIZE(never); n++) {
			ring_init(ring, never[n]);
			c.eflags |= EFL_IOPL;
			CHECK_EQ(run(&c), V_GP);
			CHECK_EQ(c.error, 0);
			CHECK_EQ(c.eip - (n == 3 ? 5 : 0), (u32)never[n]);
		}
		for (u32 iopl = 0; iopl < 4; iopl++) {
			ring_init(ring, ring_cli);
			c.eflags |= iopl << 12;
			CHECK_EQ(run(&c), ring <= iopl ? V_BACK : V_GP);
			ring_init(ring, ring_in);
			c.eflags |= iopl << 12;
			CHECK_EQ(run(&c), ring <= iopl ? V_BACK : V_GP);
			/* POPF: IOPL never, IF by IOPL */
			ring_init(ring, ring_popf);
			c.eflags |= iopl << 12;
			c.eax = EFL_IF | (~iopl & 3) << 12;
			CHECK_EQ(run(&c), V_BACK);
			CHECK_EQ(c.eax & (EFL_IF | EFL_IOPL), iopl << 12 | (ring <= iopl ? EFL_IF : 0));
		}
		/* a gate's DPL */
		idt[0x41] = make_gate(SEL_CODE, (u32)in_handler, (u8)(A_P | (ring - 1) << 5 | A_INT), 0);
		ring_init(ring, ring_int);
		CHECK_EQ(run(&c), V_GP);
		CHECK_EQ(c.error, 0x41 * 8 + 2);
		/* alignment is ring 3's affair alone */
		WRITE_REG(cr0, cr0 | 1u << 18);
		ring_init(ring, ring_unaligned);
		c.eflags |= EFL_AC;
		CHECK_EQ(run(&c), V_BACK);
		WRITE_REG(cr0, cr0);
	}
}

CODE(ring_call, "lcall *(%esi)");
CODE(ring_target, "mov %cs, %eax; mov %ss, %ebx; mov %esp, %ecx; mov (%esp), %edi; mov 12(%esp), %edx");
CODE(ring_iret, "push %ebx; push %esp; addl $4, (%esp); push $2; push %eax; push $1f; iret; 1: mov %cs, %eax");

/* From an outer ring through a call gate to ring 1 and 2, each on its stack in the TSS; IRET between them. */
static void test_inner_transfers(void)
{
	for (u32 to = 1; to <= 2; to++) {
		for (u32 from = to + 1; from <= 3; from++) {
			ring_init(from == 3 ? 1 : from, ring_call);
			if (from == 3)
				ctx_init(&c, 3, ring_call), c.esi = (u32)data;
			set_free(0, make_gate(RING_CODE(to) & ~3u, (u32)ring_target, A_P | A_DPL3 | A_CALL, 0));
			data[0] = 0;
			data[1] = FREE(0, 3);
			CHECK_EQ(run(&c), V_BACK);
			CHECK_EQ(c.eax, RING_CODE(to));
			CHECK_EQ(c.ebx & 0xffff, RING_DATA(to));
			CHECK_EQ(c.ecx, (u32)&ring_stack[to][60] - 16);
			CHECK_EQ(c.edi, (u32)ring_call + 2);
			/* the TSS's stack segment is of another ring: #TS with it */
			if (to == 1)
				main_tss.ss1 = RING_DATA(2);
			else
				main_tss.ss2 = RING_DATA(1);
			c.eip = (u32)ring_call;
			if (from == 3)
				ctx_init(&c, 3, ring_call), c.esi = (u32)data;
			else
				c.cs = RING_CODE(from), c.ss = c.ds = c.es = RING_DATA(from), c.esi = (u32)data,
				c.esp = (u32)&ring_stack[0][60];
			CHECK_EQ(run(&c), V_TS);
			CHECK_EQ(c.error, RING_DATA(3 - to) & ~3u);
		}
	}
	/* IRET from ring 1 to 2 and 3, not from 2 to 1 */
	ring_init(1, ring_iret);
	c.eax = RING_CODE(2);
	c.ebx = RING_DATA(2);
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.eax & 0xffff, RING_CODE(2));
	CHECK_EQ((u16)c.ds, 0); /* ring 1's data segment is not for ring 2 */
	ring_init(2, ring_iret);
	c.eax = RING_CODE(1);
	c.ebx = RING_DATA(1);
	CHECK_EQ(run(&c), V_GP);
	CHECK_EQ(c.error, RING_CODE(1) & ~3u);
	/* data: of the own ring and of outer ones */
	for (u32 ring = 1; ring <= 2; ring++)
		for (u32 of = 1; of <= 2; of++) {
			ring_init(ring, load_ds);
			c.eax = FREE(2 * of + 3, ring);
			CHECK_EQ(run(&c), of >= ring ? V_BACK : V_GP);
		}
}

/* Rings 1 and 2 are supervisor to paging: pages without U are theirs; WP binds them. */
static u32 ring_dir[1024] __attribute__((aligned(4096))), ring_table[1024] __attribute__((aligned(4096)));
static u8 ring_page[4096] __attribute__((aligned(4096)));
CODE(ring_store, "mov %al, (%esi)");
static void test_inner_paging(void)
{
	const u32 cr0 = READ_REG(cr0), cr4 = READ_REG(cr4);

	for (u32 n = 0; n < 1024; n++) {
		ring_dir[n] = n << 22 | 0x87;
		ring_table[n] = ((u32)ring_page & 0xffc00000u) | n << 12 | 7;
	}
	ring_dir[(u32)ring_page >> 22] = (u32)ring_table | 7;
	for (u32 ring = 0; ring <= 3; ring++)
		for (u32 wp = 0; wp < 2; wp++)
			for (u32 pte = 1; pte < 8; pte += 2) {
				const u32 reads = ring < 3 || (pte & 4);
				const u32 writes = reads && ((pte & 2) || (ring < 3 && !wp));

				ring_table[(u32)ring_page >> 12 & 1023] = (u32)ring_page | pte;
				WRITE_REG(cr4, cr4 | 0x10);
				WRITE_REG(cr3, ring_dir);
				WRITE_REG(cr0, (cr0 & ~0x10000u) | 0x80000000u | wp << 16);
				if (ring == 1 || ring == 2)
					ring_init(ring, ring_store);
				else
					ctx_init(&c, ring, ring_store);
				c.esi = (u32)ring_page;
				CHECK_EQ(run(&c), writes ? V_BACK : V_PF);
				CHECK_EQ(c.error, writes ? 0 : 3u | (ring == 3 ? 4 : 0));
				WRITE_REG(cr0, cr0);
			}
	WRITE_REG(cr4, cr4);
}

const struct test tests[] = {{"limits", test_limits},
			     {"expand-down", test_expand_down},
			     {"rights", test_rights},
			     {"loads", test_loads},
			     {"stack-segments", test_stack_segments},
			     {"far", test_far},
			     {"call-gates", test_call_gates},
			     {"call-gate16", test_call_gate16},
			     {"call-gate16-offset", test_call_gate16_offset},
			     {"ret-outer", test_ret_outer},
			     {"iret-flags", test_iret_flags},
			     {"ldt", test_ldt},
			     {"system-selectors", test_system_selectors},
			     {"ltr-null", test_ltr_null},
			     {"gates", test_gates},
			     {"gate16-offset", test_gate16_offset},
			     {"bad-gates", test_bad_gates},
			     {"inner-rights", test_inner_rights},
			     {"inner-transfers", test_inner_transfers},
			     {"inner-paging", test_inner_paging},
			     {"code16", test_code16},
			     {"overrides", test_overrides},
			     {0, 0}};
