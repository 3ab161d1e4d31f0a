/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The framework of the bare-metal tests: start, descriptor tables, entering states, output. See bare.h. */
#include "bare.h"

#define SERIAL	   0x3f8
#define DEBUG_EXIT 0xf4

u64 gdt[GDT_ENTRIES] __attribute__((aligned(8)));
u64 idt[256] __attribute__((aligned(8)));
struct tss_and_map main_task __attribute__((aligned(128)));
unsigned failures;
const char *test_name = "start";

static handler_fn *handlers[256];
static struct ctx *running;
static u8 trap_stack[16384] __attribute__((aligned(16)));
static u8 test_stack[2][16384] __attribute__((aligned(16)));
static const char *cmdline = "";

__asm__(".pushsection .multiboot, \"a\"\n"
	".balign 4\n"
	".long 0x1badb002, 3, -(0x1badb002 + 3)\n"
	".popsection\n"
	".pushsection .text\n"
	".globl _start\n"
	"_start:\n"
	"	mov $boot_stack_end, %esp\n"
	"	push $0\n"
	"	popf\n"
	"	push %ebx\n"
	"	push %eax\n"
	"	call bare_main\n"
	".popsection\n"
	".pushsection .bss\n"
	".balign 16\n"
	".space 16384\n"
	"boot_stack_end:\n"
	".popsection\n");

/* Stubs of 16 bytes each: error code where there is none, vector, common part. */
__asm__(".pushsection .text\n"
	".balign 16\n"
	"trap_stubs:\n"
	".set v, 0\n"
	".rept 256\n"
	".balign 16\n"
	".if !(v == 8 || (v >= 10 && v <= 14) || v == 17)\n"
	"	push $0\n"
	".endif\n"
	"	push $v\n"
	"	jmp trap_common\n"
	".set v, v + 1\n"
	".endr\n"
	"trap_common:\n"
	"	pusha\n"
	"	push %ds\n"
	"	push %es\n"
	"	push %fs\n"
	"	push %gs\n"
	"	mov $0x10, %eax\n"
	"	mov %eax, %ds\n"
	"	mov %eax, %es\n"
	"	cld\n"
	"	push %esp\n"
	"	call trap\n"
	"	add $4, %esp\n"
	"	pop %gs\n"
	"	pop %fs\n"
	"	pop %es\n"
	"	pop %ds\n"
	"	popa\n"
	"	add $8, %esp\n"
	"	iret\n"
	/* void run_enter(void *frame): frame becomes the stack, registers come from it; come back by run_leave. */
	"run_enter:\n"
	"	pusha\n"
	"	mov 36(%esp), %eax\n"
	"	mov %esp, run_esp\n"
	"	mov %eax, %esp\n"
	"	pop %gs\n"
	"	pop %fs\n"
	"	pop %es\n"
	"	pop %ds\n"
	"	popa\n"
	"	add $8, %esp\n"
	"	iret\n"
	"run_leave:\n"
	"	mov $0x10, %eax\n"
	"	mov %eax, %ss\n"
	"	mov run_esp, %esp\n"
	"	mov %eax, %fs\n"
	"	mov %eax, %gs\n"
	"	popa\n"
	"	ret\n"
	".popsection\n"
	".pushsection .bss\n"
	"run_esp: .long 0\n"
	".popsection\n");
extern const char trap_stubs[];
void run_enter(void *frame);
void run_leave(void);

/* ---- output ---------------------------------------------------------------- */

static void put(char c)
{
	for (u32 n = 0; n < 1000000 && !(inb(SERIAL + 5) & 0x20); n++)
		;
	outb(SERIAL, (u8)c);
}

static void put_number(u32 v, u32 base, u32 width)
{
	char buf[12];
	u32 n = 0;

	do {
		buf[n++] = "0123456789abcdef"[v % base];
		v /= base;
	} while (v);
	while (n < width)
		buf[n++] = '0';
	while (n)
		put(buf[--n]);
}

void print(const char *fmt, ...)
{
	__builtin_va_list ap;

	__builtin_va_start(ap, fmt);
	for (; *fmt; fmt++) {
		if (*fmt != '%') {
			put(*fmt);
			continue;
		}
		fmt++;
		if (*fmt == 's') {
			for (const char *s = __builtin_va_arg(ap, const char *); *s; s++)
				put(*s);
		} else {
			put_number(__builtin_va_arg(ap, u32), *fmt == 'x' ? 16 : 10, 1);
		}
	}
	__builtin_va_end(ap);
}

void check_failed(const char *file, int line, const char *what, u32 got, u32 want)
{
	const char *base = file;

	for (; *file; file++)
		if (*file == '/')
			base = file + 1;
	failures++;
	print("FAIL %s %s:%u: %s is 0x%x, not 0x%x\n", test_name, base, (u32)line, what, got, want);
}

__attribute__((noreturn)) static void end(u8 code)
{
	for (;;) {
		outb(DEBUG_EXIT, code);
		__asm__ volatile("cli; hlt");
	}
}

void copy(void *to, const void *from, u32 n)
{
	__asm__ volatile("cld; rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

void fill(void *to, u8 v, u32 n)
{
	__asm__ volatile("cld; rep stosb" : "+D"(to), "+c"(n) : "a"(v) : "memory");
}

/* GCC calls them for structures. */
void *memcpy(void *to, const void *from, u32 n);
void *memset(void *to, int v, u32 n);
void *memcpy(void *to, const void *from, u32 n)
{
	copy(to, from, n);
	return to;
}
void *memset(void *to, int v, u32 n)
{
	fill(to, (u8)v, n);
	return to;
}

int option(const char *word)
{
	for (const char *p = cmdline; *p; p++) {
		u32 n = 0;

		if (p != cmdline && p[-1] != ' ')
			continue;
		while (word[n] && p[n] == word[n])
			n++;
		if (!word[n] && (p[n] == ' ' || !p[n]))
			return 1;
	}
	return 0;
}

/* ---- descriptors ------------------------------------------------------------- */

u64 make_desc(u32 base, u32 limit, u8 access, u8 flags)
{
	return (limit & 0xffff) | (u64)(base & 0xffffff) << 16 | (u64)access << 40 | (u64)(limit >> 16 & 15) << 48 |
	       (u64)flags << 52 | (u64)(base >> 24) << 56;
}

u64 make_gate(u16 sel, u32 offset, u8 access, u8 count)
{
	return (offset & 0xffff) | (u64)sel << 16 | (u64)count << 32 | (u64)access << 40 | (u64)(offset >> 16) << 48;
}

static void tables_init(void)
{
	struct {
		u16 limit;
		u32 base;
	} __attribute__((packed)) gdtr = {sizeof(gdt) - 1, (u32)gdt}, idtr = {sizeof(idt) - 1, (u32)idt};

	gdt[1] = make_desc(0, 0xfffff, A_P | A_CODE, F_32 | F_G);
	gdt[2] = make_desc(0, 0xfffff, A_P | A_DATA, F_32 | F_G);
	gdt[3] = make_desc(0, 0xfffff, A_P | A_DPL3 | A_CODE, F_32 | F_G);
	gdt[4] = make_desc(0, 0xfffff, A_P | A_DPL3 | A_DATA, F_32 | F_G);
	gdt[5] = make_desc((u32)&main_tss, sizeof(main_tss) - 1, A_P | A_TSS, 0);
	for (u32 v = 0; v < 256; v++)
		idt[v] = make_gate(SEL_CODE, (u32)trap_stubs + 16 * v,
				   (u8)(A_P | A_INT | (v == V_BACK || v == V_BP || v == V_OF ? A_DPL3 : 0)), 0);
	main_tss.esp0 = (u32)trap_stack + sizeof(trap_stack);
	main_tss.ss0 = SEL_DATA;
	main_tss.iomap = sizeof(main_tss);
	__asm__ volatile("lgdt %0\n\t"
			 "lidt %1\n\t"
			 "ljmp $0x08, $1f\n"
			 "1:\tmov $0x10, %%eax\n\t"
			 "mov %%eax, %%ds\n\t"
			 "mov %%eax, %%es\n\t"
			 "mov %%eax, %%fs\n\t"
			 "mov %%eax, %%gs\n\t"
			 "mov %%eax, %%ss\n\t"
			 "mov $0x28, %%eax\n\t"
			 "ltr %%ax\n\t"
			 "xor %%eax, %%eax\n\t"
			 "lldt %%ax"
			 :
			 : "m"(gdtr), "m"(idtr)
			 : "eax", "memory");
}

/* ---- entering and leaving ------------------------------------------------------- */

void set_handler(u8 vector, handler_fn *fn)
{
	handlers[vector] = fn;
}

void trap(struct ctx *f);
void trap(struct ctx *f)
{
	int outer = (f->cs & 3) || (f->eflags & EFL_VM);
	u32 n = f->eflags & EFL_VM ? sizeof(*f) : outer ? sizeof(*f) - 16 : sizeof(*f) - 24;

	if (handlers[f->vector]) {
		handlers[f->vector](f);
		return;
	}
	if (!running) {
		print("FAIL %s: exception %u, error 0x%x, at 0x%x:0x%x, cr2 0x%x\n", test_name, f->vector, f->error,
		      f->cs, f->eip, READ_REG(cr2));
		end(1);
	}
	copy(running, f, n);
	if (!outer) { /* its stack goes on above the frame */
		running->esp = (u32)&f->esp;
		running->ss = READ_REG(ss);
	}
	running = 0;
	run_leave();
}

void ctx_init(struct ctx *c, unsigned ring, const void *code)
{
	u32 sel = ring ? SEL_UDATA : SEL_DATA;

	*c = (struct ctx){.gs = sel,
			  .fs = sel,
			  .es = sel,
			  .ds = sel,
			  .eip = (u32)code,
			  .cs = ring ? SEL_UCODE : SEL_CODE,
			  .eflags = 2,
			  .esp = (u32)test_stack[ring ? 1 : 0] + sizeof(test_stack[0]),
			  .ss = sel};
}

u32 run(struct ctx *c)
{
	void *frame = c;

	running = c;
	c->vector = c->error = 0;
	if (!(c->cs & 3) && !(c->eflags & EFL_VM)) {
		/* IRET to the same level takes no stack pointer: it runs on from the frame. */
		frame = (u8 *)c->esp - (sizeof(*c) - 24);
		copy(frame, c, sizeof(*c) - 24);
	}
	run_enter(frame);
	return c->vector;
}

/* The command line holds -NAME: this test would not come back here. */
static int left_out(const char *name)
{
	char word[40] = "-";
	u32 n = 1;

	for (; name[n - 1] && n < sizeof(word) - 1; n++)
		word[n] = name[n - 1];
	word[n] = 0;
	return option(word);
}

/* ---- main -------------------------------------------------------------------------- */

void bare_main(u32 magic, u32 *info);
void bare_main(u32 magic, u32 *info)
{
	u32 before, count = 0, bad = 0;

	outb(SERIAL + 1, 0);
	outb(SERIAL + 3, 3);
	outb(0x21, 0xff); /* firmware leaves the 8259's timer interrupt on */
	outb(0xa1, 0xff);
	if (magic == 0x2badb002 && (info[0] & 4))
		cmdline = (const char *)info[4];
	tables_init();
	for (const struct test *t = tests; t->name; t++) {
		test_name = t->name;
		if (left_out(t->name)) {
			print("skip %s\n", t->name);
			continue;
		}
		before = failures;
		t->fn();
		print("%s %s\n", failures == before ? "ok" : "BAD", t->name);
		count++;
		bad += failures != before;
	}
	print("%u tests, %u failed\n", count, bad);
	end(bad != 0);
}
