/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Hardware task switches: JMP, CALL, INT and IRET, TSS and task gates, 16- and
 * 32-bit TSS, and the faults on the way. Intel SDM volume 3A chapter 8.
 */
#include "bare.h"

#define FREE(n, rpl) ((u16)(SEL_FREE + 8 * (n) + (rpl)))
static void set_free(u32 n, u64 d)
{
	gdt[SEL_FREE / 8 + n] = d;
}

static struct tss task __attribute__((aligned(128)));
static struct tss16 task16 __attribute__((aligned(128)));
static u8 stack[8192];
static struct ctx c;

CODE(go_call, "mov $0x1111, %ebx; lcall *(%esi); mov %cr0, %edx; pushf; pop %ecx");
CODE(go_jmp, "ljmp *(%esi)");
CODE(go_int, "int $0x41; mov $0x2222, %ebx");
/* In the task: note the state, return, and again when called again. */
static volatile u32 seen_flags, seen_esp, seen_cr0, seen_tr, calls, error_code;
__asm__(".pushsection .text\n"
	"task_code:\n"
	"	pushf\n"
	"	pop %eax\n"
	"	mov %eax, seen_flags\n"
	"	mov %esp, seen_esp\n"
	"	mov %cr0, %eax\n"
	"	mov %eax, seen_cr0\n"
	"	clts\n"
	"	str %eax\n"
	"	mov %eax, seen_tr\n"
	"	incl calls\n"
	"	iret\n"
	"	jmp task_code\n"
	"task_error:\n"
	"	pop error_code\n"
	"	addl $2, skip_at\n"
	"	iret\n"
	"	jmp task_error\n"
	"task_back:\n"
	"	clts\n"
	"	ljmp $0x28, $0\n"
	"	jmp task_back\n"
	".popsection\n"
	".pushsection .data\n"
	"skip_at: .long 0\n"
	".popsection\n");
extern const char task_code[], task_error[], task_back[];
/* GCC does not see the assembler's use. */
void *const keep[] __attribute__((used)) = {(void *)&seen_flags, (void *)&seen_esp, (void *)&seen_cr0,
					    (void *)&seen_tr,	 (void *)&calls,    (void *)&error_code};

static void task_init(const char *code)
{
	task = (struct tss){.eip = (u32)code,
			    .eflags = 0x2,
			    .esp = (u32)stack + sizeof(stack),
			    .eax = 0xa,
			    .ebp = 0xb,
			    .es = SEL_DATA,
			    .cs = SEL_CODE,
			    .ss = SEL_DATA,
			    .ds = SEL_DATA,
			    .fs = SEL_DATA,
			    .gs = SEL_DATA,
			    .esp0 = (u32)stack + 4096,
			    .ss0 = SEL_DATA,
			    .iomap = sizeof(task)};
	set_free(0, make_desc((u32)&task, sizeof(task) - 1, A_P | A_DPL3 | A_TSS, 0));
	set_free(1, make_gate(FREE(0, 0), 0, A_P | A_DPL3 | A_TASK, 0));
	gdt[SEL_TSS / 8] = make_desc((u32)&main_tss, sizeof(main_tss) - 1, A_P | A_TSS_BUSY, 0);
	calls = 0;
}

static u32 go(const char *code, unsigned ring, u16 sel)
{
	static u32 ptr[2];

	ptr[1] = sel;
	ctx_init(&c, ring, code);
	c.esi = (u32)ptr;
	return run(&c);
}

static void test_call(void)
{
	task_init(task_code);
	CHECK_EQ(go(go_call, 0, FREE(0, 0)), V_BACK);
	CHECK_EQ(calls, 1);
	CHECK_EQ(c.ebx, 0x1111);
	CHECK_EQ(seen_flags & EFL_NT, EFL_NT);
	CHECK_EQ(c.ecx & EFL_NT, 0);
	CHECK_EQ(seen_esp, (u32)stack + sizeof(stack));
	CHECK_EQ(seen_cr0 & 8, 8);
	CHECK_EQ(c.edx & 8, 8);
	CHECK_EQ(seen_tr, FREE(0, 0));
	CHECK_EQ(task.link, SEL_TSS);
	CHECK_EQ(desc_access(gdt[SEL_FREE / 8]) & 2, 0); /* not busy any more */
	CHECK_EQ(desc_access(gdt[SEL_TSS / 8]) & 2, 2);
	CHECK_EQ(task.eip, (u32)task_code + ((const u8 *)task_error - (const u8 *)task_code) - 2);
	/* and again: it goes on behind its IRET; by a gate, from ring 3 */
	CHECK_EQ(go(go_call, 3, FREE(1, 3)), V_GP); /* CR0 in ring 3, behind the call */
	CHECK_EQ(calls, 2);
	CHECK_EQ(c.ebx, 0x1111);
}

static void test_jmp(void)
{
	task_init(task_back);
	CHECK_EQ(go(go_jmp, 0, FREE(0, 0)), V_BACK);
	CHECK_EQ(desc_access(gdt[SEL_FREE / 8]) & 2, 0);
	CHECK_EQ(desc_access(gdt[SEL_TSS / 8]) & 2, 2);
}

static void test_int(void)
{
	task_init(task_code);
	idt[0x41] = make_gate(FREE(0, 0), 0, A_P | A_DPL3 | A_TASK, 0);
	CHECK_EQ(go(go_int, 3, 0), V_BACK);
	CHECK_EQ(c.ebx, 0x2222);
	CHECK_EQ(calls, 1);
	CHECK_EQ(seen_flags & EFL_NT, EFL_NT);
	/* DPL of the gate */
	idt[0x41] = make_gate(FREE(0, 0), 0, A_P | A_TASK, 0);
	CHECK_EQ(go(go_int, 3, 0), V_GP);
	CHECK_EQ(c.error, 0x41 * 8 + 2);
}

/* An exception with an error code through a task gate: it is pushed on the task's stack. */
CODE(bad_load, "mov %eax, %ds; mov $7, %ecx");
static void test_exception(void)
{
	u64 old = idt[V_GP];

	task_init(task_error);
	idt[V_GP] = make_gate(FREE(0, 0), 0, A_P | A_TASK, 0);
	main_tss.eip = 0;
	ctx_init(&c, 3, bad_load);
	c.eax = 0xfff3;
	/* The task returns to the faulting instruction, which now succeeds: the selector is made good by hand. */
	error_code = 0;
	gdt[62] = 0;
	c.eax = 62 * 8 + 3;
	task.ebx = 0;
	/* Not present would be #NP; a code segment without read is #GP. */
	gdt[62] = make_desc(0, 0xffff, A_P | A_DPL3 | A_CODE_XO, F_32);
	{
		static u8 fix[32];
		u8 *p = fix;

		/* pop error_code; movb readable data into the access byte; iret */
		*p++ = 0x8f, *p++ = 0x05, *(u32 *)p = (u32)&error_code, p += 4;
		*p++ = 0xc6, *p++ = 0x05, *(u32 *)p = (u32)&gdt[62] + 5, p += 4, *p++ = A_P | A_DPL3 | A_DATA;
		*p++ = 0xcf;
		task.eip = (u32)fix;
	}
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(error_code, 62 * 8);
	CHECK_EQ(c.ecx, 7);
	idt[V_GP] = old;
}

static void test_16(void)
{
	static u8 code16[64];
	u8 *p = code16;

	task_init(task_code);
	/* In a 16-bit TSS the task's code lies in the first 64 KiB of its own segments. */
	*p++ = 0xcf; /* iret */
	*p++ = 0xeb, *p++ = 0xfd;
	task16 = (struct tss16){.ip = 0,
				.flags = 2,
				.sp = 0x1000,
				.cs = FREE(3, 0),
				.ss = FREE(4, 0),
				.ds = FREE(4, 0),
				.es = FREE(4, 0),
				.bx = 0x4321};
	set_free(2, make_desc((u32)&task16, sizeof(task16) - 1, A_P | A_TSS16, 0));
	set_free(3, make_desc((u32)code16, 0xffff, A_P | A_CODE, F_32));
	set_free(4, make_desc((u32)stack, 0xffff, A_P | A_DATA, 0));
	CHECK_EQ(go(go_call, 0, FREE(2, 0)), V_BACK);
	CHECK_EQ(c.ebx, 0x1111);
	CHECK_EQ(task16.link, SEL_TSS);
	CHECK_EQ(task16.ip, 1);
	CHECK_EQ(task16.flags & EFL_NT, 0);
	CHECK_EQ(task16.bx, 0x4321);
	CHECK_EQ(desc_access(gdt[SEL_FREE / 8 + 2]) & 0xf, A_TSS16);
}

static void test_faults_before(void)
{
	/* In the old task: nothing has changed. */
	task_init(task_code);
	set_free(0, make_desc((u32)&task, sizeof(task) - 1, A_P | A_DPL3 | A_TSS_BUSY, 0));
	CHECK_EQ(go(go_call, 0, FREE(0, 0)), V_GP);
	CHECK_EQ(c.error, FREE(0, 0));
	set_free(0, make_desc((u32)&task, sizeof(task) - 1, A_DPL3 | A_TSS, 0));
	CHECK_EQ(go(go_call, 0, FREE(0, 0)), V_NP);
	CHECK_EQ(c.error, FREE(0, 0));
	set_free(0, make_desc((u32)&task, sizeof(task) - 1, A_P | A_TSS, 0));
	CHECK_EQ(go(go_call, 3, FREE(0, 3)), V_GP);
	CHECK_EQ(c.error, FREE(0, 0));
	set_free(0, make_desc((u32)&task, 0x66, A_P | A_DPL3 | A_TSS, 0));
	CHECK_EQ(go(go_call, 0, FREE(0, 0)), V_TS);
	CHECK_EQ(c.error, FREE(0, 0));
	CHECK_EQ(c.eip, (u32)go_call + 5);
	/* gates: to something that is no TSS, to the LDT's, not present */
	task_init(task_code);
	set_free(1, make_gate(SEL_DATA, 0, A_P | A_DPL3 | A_TASK, 0));
	CHECK_EQ(go(go_call, 0, FREE(1, 0)), V_GP);
	CHECK_EQ(c.error, SEL_DATA);
	set_free(1, make_gate(FREE(0, 0) | 4, 0, A_P | A_DPL3 | A_TASK, 0));
	CHECK_EQ(go(go_call, 0, FREE(1, 0)), V_GP);
	CHECK_EQ(c.error, FREE(0, 0) | 4);
	set_free(1, make_gate(FREE(0, 0), 0, A_DPL3 | A_TASK, 0));
	CHECK_EQ(go(go_call, 0, FREE(1, 0)), V_NP);
	CHECK_EQ(c.error, FREE(1, 0));
	/* IRET with NT and a bad back link */
	CHECK_EQ(calls, 0);
}

CODE(iret_nt, "iret");
static void test_bad_link(void)
{
	ctx_init(&c, 0, iret_nt);
	c.eflags |= EFL_NT;
	main_tss.link = SEL_DATA;
	CHECK_EQ(run(&c), V_TS);
	CHECK_EQ(c.error, SEL_DATA);
	ctx_init(&c, 0, iret_nt);
	c.eflags |= EFL_NT;
	task_init(task_code);
	main_tss.link = FREE(0, 0); /* not busy */
	CHECK_EQ(run(&c), V_TS);
	CHECK_EQ(c.error, FREE(0, 0));
	main_tss.link = 0;
}

/* In the new task: its registers are there, the fault names the selector. The handler runs in the new task. */
static void bad_task(u32 *field, u32 value, u32 vector, u32 error)
{
	u32 ldt_now;

	task_init(task_code);
	*field = value;
	CHECK_EQ(go(go_call, 0, FREE(0, 0)), vector);
	CHECK_EQ(c.error, error);
	CHECK_EQ(c.eip, (u32)task_code);
	CHECK_EQ(c.ebp, 0xb);
	__asm__ volatile("str %0" : "=r"(ldt_now));
	CHECK_EQ((u16)ldt_now, FREE(0, 0));
	/* back to the main task's TSS */
	__asm__ volatile("lldt %w0" : : "r"(0));
	gdt[SEL_TSS / 8] = make_desc((u32)&main_tss, sizeof(main_tss) - 1, A_P | A_TSS, 0);
	__asm__ volatile("clts; ltr %w0" : : "r"(SEL_TSS));
}

static void test_faults_after(void)
{
	set_free(5, make_desc(0, 0xfffff, A_DATA, F_32 | F_G)); /* not present */
	set_free(6, make_desc(0, 0xfffff, A_CODE, F_32 | F_G)); /* code, not present */
	set_free(7, make_desc(0, 0xfffff, A_P | A_CODE_XO, F_32 | F_G));
	bad_task(&task.ds, FREE(5, 0), V_NP, FREE(5, 0));
	bad_task(&task.es, FREE(7, 0), V_TS, FREE(7, 0));
	bad_task(&task.gs, 0xfff8, V_TS, 0xfff8);
}

/* The T bit: #DB in the new task, before its first instruction. */
static void test_trap_bit(void)
{
	task_init(task_code);
	task.trap = 1;
	__asm__ volatile("mov %0, %%dr6" : : "r"(0));
	CHECK_EQ(go(go_call, 0, FREE(0, 0)), V_DB);
	CHECK_EQ(c.eip, (u32)task_code);
	CHECK_EQ(READ_REG(dr6) & 0x8000, 0x8000);
	gdt[SEL_TSS / 8] = make_desc((u32)&main_tss, sizeof(main_tss) - 1, A_P | A_TSS, 0);
	__asm__ volatile("clts; ltr %w0" : : "r"(SEL_TSS));
}

const struct test tests[] = {{"call", test_call},	  {"jmp", test_jmp},
			     {"int", test_int},		  {"exception", test_exception},
			     {"tss16", test_16},	  {"faults-before", test_faults_before},
			     {"bad-link", test_bad_link}, {"faults-after", test_faults_after},
			     {"trap-bit", test_trap_bit}, {0, 0}};
