/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Virtual-8086 and real mode: IOPL, segments as paragraphs, INT and IRET, the
 * I/O permission bitmap, FNSTENV's four layouts, unreal mode, A20, SYSENTER.
 * Intel SDM volume 3A chapters 9 and 21, volume 1 section 8.1.10.
 */
#include "bare.h"

#define LOW 0x10000u /* where 16-bit code is copied to */
static struct ctx c;

static void vm_init(const char *code, const char *end, u32 iopl)
{
	copy((void *)LOW, code, (u32)(end - code));
	ctx_init(&c, 3, 0);
	c.gs = c.fs = c.es = c.ds = 0;
	c.eip = 0;
	c.cs = LOW >> 4;
	c.ss = 0x2000;
	c.esp = 0x800;
	c.eflags = 2 | EFL_VM | iopl << 12;
	c.vm_ds = 0x3000;
	c.vm_es = 0x3001;
	c.vm_fs = 0x3002;
	c.vm_gs = 0x3003;
}
#define VM_INIT(name, iopl) vm_init(name, name##_end, iopl)

CODE16(vm_segments, "mov %ds:0x10, %eax; mov %es:0, %ebx; mov %cs, %cx; mov %ds, %dx; mov $0x3010, %si; mov %si, %ds; "
		    "mov %ds:0, %edi");
static void test_vm_segments(void)
{
	*(u32 *)0x30010 = 0x12345678;
	*(u32 *)0x30100 = 0x9abcdef0;
	VM_INIT(vm_segments, 3);
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.eax, 0x12345678);
	CHECK_EQ(c.ebx, 0x12345678);
	CHECK_EQ((u16)c.ecx, LOW >> 4);
	CHECK_EQ((u16)c.edx, 0x3000);
	CHECK_EQ(c.edi, 0x9abcdef0);
	CHECK_EQ((u16)c.vm_ds, 0x3010);
	CHECK_EQ((u16)c.vm_gs, 0x3003);
	CHECK_EQ(c.eflags & EFL_VM, EFL_VM);
	CHECK_EQ((u16)c.ds, 0); /* protected mode got null selectors */
	CHECK_EQ(c.cs, LOW >> 4);
}

CODE16(vm_cli, "cli");
CODE16(vm_sti, "sti");
CODE16(vm_pushf, "pushf");
CODE16(vm_popf, "popf");
CODE16(vm_iret, "iret");
CODE16(vm_int, "int $0x50");
CODE16(vm_hlt, "hlt");
CODE16(vm_limit, "mov 0xffff, %ax");
CODE16(vm_lldt, "xor %ax, %ax; lldt %ax");

static void test_vm_iopl(void)
{
	static const struct {
		const char *code, *end;
	} sensitive[] = {{vm_cli, vm_cli_end},	 {vm_sti, vm_sti_end},	 {vm_pushf, vm_pushf_end},
			 {vm_popf, vm_popf_end}, {vm_iret, vm_iret_end}, {vm_int, vm_int_end}};

	for (u32 n = 0; n < ARRAY_SIZE(sensitive); n++) {
		vm_init(sensitive[n].code, sensitive[n].end, 0);
		CHECK_EQ(run(&c), V_GP);
		CHECK_EQ(c.error, 0);
		CHECK_EQ(c.eip, 0);
		/* With IOPL 3 they run; INT 0x50 goes through the IDT, whose gate has DPL 0. */
		vm_init(sensitive[n].code, sensitive[n].end, 3);
		*(u16 *)0x20800 = 1; /* IRET goes to the INT behind it */
		*(u16 *)0x20802 = LOW >> 4;
		*(u16 *)0x20804 = 2;
		run(&c);
		if (sensitive[n].code == vm_int) {
			CHECK_EQ(c.vector, V_GP);
			CHECK_EQ(c.error, 0x50 * 8 + 2);
		} else {
			CHECK_EQ(c.vector, V_BACK);
		}
	}
	VM_INIT(vm_hlt, 3);
	CHECK_EQ(run(&c), V_GP);
	VM_INIT(vm_lldt, 3);
	CHECK_EQ(run(&c), V_UD);
	VM_INIT(vm_limit, 3);
	CHECK_EQ(run(&c), V_GP); /* a word at 0xffff: beyond the limit */
	CHECK_EQ(c.error, 0);
}

/* IRET inside virtual-8086 mode cannot change IOPL or VM; POPF neither. */
CODE16(vm_popf32, "pushl $0x20003000; popfl; pushfl; popl %eax");
static void test_vm_flags(void)
{
	VM_INIT(vm_popf32, 3);
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.eax & (EFL_VM | EFL_IOPL), EFL_IOPL); /* the image shows VM as 0 */
	CHECK_EQ(c.eflags & EFL_VM, EFL_VM);
}

/* ---- I/O permission ---- */

CODE(in_80, "in $0x80, %al");
CODE(in_word, "mov $0x87, %edx; in %dx, %ax");
CODE16(vm_in, "in $0x80, %al");

static u32 io(const char *code, u32 iopl)
{
	ctx_init(&c, 3, code);
	c.eflags |= iopl << 12;
	return run(&c);
}

static void test_iomap(void)
{
	u64 saved = gdt[SEL_TSS / 8];

	/* No bitmap within the limit: everything is refused, but for IOPL. */
	CHECK_EQ(io(in_80, 0), V_GP);
	CHECK_EQ(io(in_80, 3), V_BACK);
	main_tss.iomap = (u16)((u32)main_tss_iomap - (u32)&main_tss);
	gdt[SEL_TSS / 8] = make_desc((u32)&main_tss, main_tss.iomap + 8192, A_P | A_TSS, 0);
	main_tss_iomap[8192] = 0xff;
	__asm__ volatile("ltr %w0" : : "r"(SEL_TSS));
	fill(main_tss_iomap, 0xff, 8192);
	CHECK_EQ(io(in_80, 0), V_GP);
	main_tss_iomap[0x80 / 8] = 0xfe;
	CHECK_EQ(io(in_80, 0), V_BACK);
	main_tss_iomap[0x80 / 8] = 0x7f;
	CHECK_EQ(io(in_word, 0), V_GP);
	main_tss_iomap[0x88 / 8] = 0xfe;
	CHECK_EQ(io(in_word, 0), V_BACK);
	/* virtual-8086 mode always looks, whatever IOPL */
	main_tss_iomap[0x80 / 8] = 0xff;
	VM_INIT(vm_in, 3);
	CHECK_EQ(run(&c), V_GP);
	main_tss_iomap[0x80 / 8] = 0xfe;
	VM_INIT(vm_in, 0);
	run(&c);
	CHECK_EQ(c.eip, 2);
	main_tss.iomap = sizeof(main_tss);
	gdt[SEL_TSS / 8] = saved & ~(2ull << 40);
	__asm__ volatile("ltr %w0" : : "r"(SEL_TSS));
}

/* ---- FNSTENV ---- */

static u8 env[32];
/* FLD1; FSTP to memory with a pending zero divide would show pointers on every CPU: make one. */
CODE(fpu_32, "fninit; fldcw 2(%esi); fldz; fld1; fdivp; fnstenv (%edi); fnclex; fninit");
CODE(fpu_32_16, "fninit; fldcw 2(%esi); fldz; fld1; fdivp; .byte 0x66; fnstenv (%edi); fnclex; fninit");
CODE16(fpu_vm, "fninit; fldcw 2; fldz; fld1; fdivp; fnstenv 16; .byte 0x66; fnstenv 48; fnclex; fninit");

static void test_fnstenv(void)
{
	static u16 cw[2] = {0, 0x37b}; /* zero divide unmasked */
	const u8 *low = (const u8 *)0x30000;
	u32 at;

	ctx_init(&c, 3, fpu_32);
	c.esi = (u32)cw;
	c.edi = (u32)env;
	CHECK_EQ(run(&c), V_BACK);
	at = *(u32 *)&env[12] - (u32)fpu_32;
	CHECK_EQ(at, 9); /* the FDIVP */
	CHECK_EQ(*(u16 *)&env[16], SEL_UCODE);
	CHECK_EQ(*(u16 *)&env[4] & 0x84, 0x84);
	ctx_init(&c, 3, fpu_32_16);
	c.esi = (u32)cw;
	c.edi = (u32)env;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(*(u16 *)&env[6], (u16)((u32)fpu_32_16 + 9));
	CHECK_EQ(*(u16 *)&env[8], SEL_UCODE);
	/* virtual-8086: linear addresses in pieces */
	VM_INIT(fpu_vm, 3);
	*(u16 *)0x30002 = 0x37b;
	CHECK_EQ(run(&c), V_BACK);
	at = LOW + 10;
	CHECK_EQ(*(const u16 *)(low + 16 + 6), (u16)at);
	CHECK_EQ(*(const u16 *)(low + 16 + 8) & 0xf000, at >> 4 & 0xf000);
	CHECK_EQ(*(const u32 *)(low + 48 + 12) & 0xffff, at & 0xffff);
	CHECK_EQ(*(const u32 *)(low + 48 + 16) & 0x0ffff000, at >> 16 << 12);
}

/* ---- real mode ---- */

/*
 * From 32-bit code to real mode and back, by way of 16-bit segments; in between the code at LOW + 0x100 runs with
 * DS = ES = SS = 0. Its results are left at 0x7000.
 */
__asm__(".pushsection .text\n"
	"to_real:\n"
	"	pusha\n"
	"	mov %esp, saved_esp\n"
	"	ljmp $0x38, $(real_16 - to_real)\n" /* 16-bit code, base at to_real's copy */
	".code16\n"
	"real_16:\n"
	"	mov $0x40, %ax\n"
	"	mov %ax, %ds\n"
	"	mov %ax, %es\n"
	"	mov %ax, %ss\n"
	"	mov $0x6000, %esp\n"
	"	mov %cr0, %eax\n"
	"	and $0xfe, %al\n"
	"	mov %eax, %cr0\n"
	"	ljmp $0x1000, $(real_in - to_real)\n"
	"real_in:\n"
	"	xor %ax, %ax\n"
	"	mov %ax, %ds\n"
	"	mov %ax, %es\n"
	"	mov %ax, %ss\n"
	"	lidtl %cs:(real_idt - to_real)\n"
	"	lcall $0x1000, $0x800\n"
	"	lidtl %cs:(flat_idt - to_real)\n"
	"	mov %cr0, %eax\n"
	"	or $1, %al\n"
	"	mov %eax, %cr0\n"
	"	ljmpl $0x08, $real_back\n"
	".balign 4\n"
	"real_idt: .word 0x3ff; .long 0\n"
	"flat_idt: .word 0; .long 0\n"
	"to_real_end:\n"
	".code32\n"
	"real_back:\n"
	"	mov $0x10, %eax\n"
	"	mov %eax, %ds\n"
	"	mov %eax, %es\n"
	"	mov %eax, %fs\n"
	"	mov %eax, %gs\n"
	"	mov %eax, %ss\n"
	"	mov saved_esp, %esp\n"
	"	popa\n"
	"	ret\n"
	".popsection\n"
	".pushsection .bss\n"
	"saved_esp: .long 0\n"
	".popsection\n");
extern const char to_real[], to_real_end[], flat_idt[];
void call_real(void);
__asm__(".pushsection .text\ncall_real: mov $0x10000, %eax; jmp *%eax\n.popsection\n");

static void real(const char *code, const char *end)
{
	u8 *low = (u8 *)LOW;

	copy(low, to_real, (u32)(to_real_end - to_real));
	*(u16 *)(low + (flat_idt - to_real)) = sizeof(idt) - 1;
	*(u32 *)(low + (flat_idt - to_real) + 2) = (u32)idt;
	copy(low + 0x800, code, (u32)(end - code));
	gdt[7] = make_desc(LOW, 0xffff, A_P | A_CODE, 0);
	gdt[8] = make_desc(0, 0xffff, A_P | A_DATA, 0);
	call_real();
}

#define REAL(name, text)                                                                                               \
	extern const char name[], name##_end[];                                                                        \
	__asm__(".pushsection .text\n.code16\n" #name ": " text "\n lret\n" #name "_end:\n.code32\n.popsection\n")

REAL(real_code, "mov $0x1234, %ax; mov %ax, 0x7000; mov $0xffff, %ax; mov %ax, %fs; mov %fs:0x10, %bx; mov %bx, 0x7002;"
		"movl $0x5555, 0x7004; int $0x60; mov %sp, 0x700a; pushf; popw 0x700c; sidt 0x7010");
/* The handler at 0:0x7100. */
static const u8 handler[] = {0xc7, 0x06, 0x08, 0x70, 0x77, 0x77, 0xcf}; /* movw $0x7777, 0x7008; iret */

static void test_real(void)
{
	copy((void *)0x7100, handler, sizeof(handler));
	*(u32 *)(0x60 * 4) = 0x7100;
	*(u16 *)0x100000 = 0xbeef; /* ffff:0010 with A20 on */
	real(real_code, real_code_end);
	CHECK_EQ(*(u16 *)0x7000, 0x1234);
	CHECK_EQ(*(u16 *)0x7002, 0xbeef);
	CHECK_EQ(*(u32 *)0x7004, 0x5555);
	CHECK_EQ(*(u16 *)0x7008, 0x7777);
	CHECK_EQ(*(u16 *)0x700a, 0x5ffc);
	CHECK_EQ(*(u16 *)0x7010, 0x3ff);
}

/* Limits of real mode: a word at 0xffff raises #GP (13) through the vector table, without an error code. */
REAL(real_limit, "mov %sp, %bp; mov 0xffff, %ax; mov %bp, %sp; movw $1, 0x7006");
/* handler: note SP; the return address skips the instruction (3 bytes) */
static const u8 limit_handler[] = {0x89, 0x26, 0x08, 0x70,	  /* mov %sp, 0x7008 */
				   0x89, 0xe3,			  /* mov %sp, %bx */
				   0x36, 0x83, 0x07, 0x03, 0xcf}; /* addw $3, %ss:(%bx); iret */
static void test_real_limit(void)
{
	copy((void *)0x7100, limit_handler, sizeof(limit_handler));
	*(u32 *)(13 * 4) = 0x7100;
	*(u16 *)0x7006 = 0;
	real(real_limit, real_limit_end);
	CHECK_EQ(*(u16 *)0x7006, 1);
	CHECK_EQ(*(u16 *)0x7008, 0x5ffc - 6);
}

/* Unreal: limits of 4 GB loaded in protected mode stay when real mode loads a base. */
REAL(real_unreal, "mov %cr0, %eax; or $1, %al; mov %eax, %cr0; mov $0x10, %bx; mov %bx, %ds; and $0xfe, %al; "
		  "mov %eax, %cr0; xor %bx, %bx; mov %bx, %ds; lgdtl 0x7020; mov $0x300000, %ebx; mov (%ebx), %ecx; "
		  "mov %ecx, 0x7004");
static void test_unreal(void)
{
	*(u32 *)0x300000 = 0xfeedface;
	*(u32 *)0x7004 = 0;
	__asm__ volatile("sgdt 0x7020" : : : "memory");
	real(real_unreal, real_unreal_end);
	CHECK_EQ(*(u32 *)0x7004, 0xfeedface);
}

/* Port 0x92 bit 1: with A20 off addresses wrap at 1 MiB. */
static void test_a20(void)
{
	volatile u32 *low = (volatile u32 *)0x8000, *high = (volatile u32 *)0x108000;
	u8 old = inb(0x92);

	*low = 1;
	*high = 2;
	CHECK_EQ(*low, 1);
	outb(0x92, (u8)(old & ~3));
	CHECK_EQ(*high, 1);
	*high = 3;
	outb(0x92, (u8)((old & ~1) | 2));
	CHECK_EQ(*low, 3);
	CHECK_EQ(*high, 2);
}

/* ---- SYSENTER ---- */

CODE(do_sysenter, "sysenter");
CODE(in_sysenter, "mov %cs, %eax; mov %ss, %ebx; pushf; pop %ecx; mov %esp, %ebp");
CODE(do_sysexit, "sysexit");

static void test_sysenter(void)
{
	static u8 stack[1024];
	u32 r[4];

	cpuid(1, r);
	if (!(r[3] & 1u << 11))
		return;
	wrmsr(0x174, 0);
	ctx_init(&c, 3, do_sysenter);
	CHECK_EQ(run(&c), V_GP);
	wrmsr(0x174, SEL_CODE);
	wrmsr(0x175, (u32)stack + sizeof(stack));
	wrmsr(0x176, (u32)in_sysenter);
	ctx_init(&c, 3, do_sysenter);
	c.eflags |= EFL_IF | EFL_NT;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ((u16)c.eax, SEL_CODE);
	CHECK_EQ((u16)c.ebx, SEL_DATA);
	CHECK_EQ(c.ecx & (EFL_IF | EFL_NT), EFL_NT);
	CHECK_EQ(c.ebp, (u32)stack + sizeof(stack));
	/* SYSEXIT: CS + 16 and SS + 24, both of ring 3 */
	ctx_init(&c, 0, do_sysexit);
	c.edx = (u32)in_sysenter;
	c.ecx = c.esp - 64;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ((u16)c.eax, SEL_UCODE);
	CHECK_EQ((u16)c.ebx, SEL_UDATA);
	ctx_init(&c, 3, do_sysexit);
	CHECK_EQ(run(&c), V_GP);
}

/* What is not there says so: SMM (RSM), VME, LA57, PKU, CET; UMIP works. */
CODE(do_rsm, "rsm");
CODE(do_sgdt, "sgdt (%esi)");
CODE(do_smsw, "smsw %eax");
CODE(do_str, "str %eax");
static void test_absent(void)
{
	static const struct {
		u32 cr4, leaf, reg, bit;
	} features[] = {{1u << 0, 1, 3, 1} /* VME */,  {1u << 1, 1, 3, 1} /* PVI */,  {1u << 12, 7, 2, 16} /* LA57 */,
			{1u << 22, 7, 2, 3} /* PKU */, {1u << 23, 7, 2, 7} /* CET */, {1u << 13, 1, 2, 5} /* VMX */};
	u32 r[4], old = READ_REG(cr4);
	static u8 buf[16];

	CHECK_EQ(({
			 ctx_init(&c, 0, do_rsm);
			 run(&c);
		 }),
		 V_UD);
	for (u32 n = 0; n < ARRAY_SIZE(features); n++) {
		extern const char set_cr4[];

		cpuid(features[n].leaf, r);
		if (r[features[n].reg] >> features[n].bit & 1)
			continue;
		ctx_init(&c, 0, set_cr4);
		c.eax = old | features[n].cr4;
		CHECK_EQ(run(&c), V_GP);
	}
	cpuid(7, r);
	if (!(r[2] & 4))
		return;
	WRITE_REG(cr4, old | 1u << 11);
	ctx_init(&c, 3, do_sgdt);
	c.esi = (u32)buf;
	CHECK_EQ(run(&c), V_GP);
	CHECK_EQ(({
			 ctx_init(&c, 3, do_smsw);
			 run(&c);
		 }),
		 V_GP);
	CHECK_EQ(({
			 ctx_init(&c, 3, do_str);
			 run(&c);
		 }),
		 V_GP);
	CHECK_EQ(({
			 ctx_init(&c, 0, do_str);
			 run(&c);
		 }),
		 V_BACK);
	WRITE_REG(cr4, old);
	CHECK_EQ(({
			 ctx_init(&c, 3, do_str);
			 run(&c);
		 }),
		 V_BACK);
	CHECK_EQ((u16)c.eax, SEL_TSS);
}
CODE(set_cr4, "mov %eax, %cr4");

const struct test tests[] = {{"vm-segments", test_vm_segments},
			     {"vm-iopl", test_vm_iopl},
			     {"vm-flags", test_vm_flags},
			     {"iomap", test_iomap},
			     {"fnstenv", test_fnstenv},
			     {"real", test_real},
			     {"real-limit", test_real_limit},
			     {"unreal", test_unreal},
			     {"a20", test_a20},
			     {"sysenter", test_sysenter},
			     {"absent", test_absent},
			     {0, 0}};
