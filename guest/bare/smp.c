/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The second CPU, and code that changes: INIT-SIPI-SIPI again and again, IPIs,
 * broadcast, NMI, INIT of a running CPU; self-modifying code of the next
 * instruction, over a page edge, through another mapping, by a device (fw_cfg's
 * DMA) and by another CPU. SDM volume 3A sections 8.4 and 8.1.3.
 */
#include "bare.h"

#define LAPIC	   0xfee00000u
#define TRAMPOLINE 0x9000u

static volatile u32 ap_state, ap_go, ap_count, ap_nmi, ap_vector_seen;
static u8 ap_stack[8192] __attribute__((aligned(16)));

static void lapic_write(u32 reg, u32 v)
{
	*(volatile u32 *)(LAPIC + reg) = v;
}
static u32 lapic_read(u32 reg)
{
	return *(volatile u32 *)(LAPIC + reg);
}
static void ipi(u32 to, u32 how)
{
	lapic_write(0x310, to << 24);
	lapic_write(0x300, how);
	while (lapic_read(0x300) & 0x1000)
		pause();
}
static u32 wait(volatile u32 *v, u32 value)
{
	u64 end = rdtsc() + 30000000000ull;

	while (*v != value && rdtsc() < end)
		pause();
	return *v == value;
}
static void spin(u32 n)
{
	while (n--)
		(void)inb(0x80);
}

/* Real mode at TRAMPOLINE, to 32-bit protected mode, to ap_main. */
__asm__(".pushsection .text\n.code16\n"
	"ap_start:\n"
	"	cli\n"
	"	xor %ax, %ax\n"
	"	mov %ax, %ds\n"
	"	lgdtl 0x9000 + ap_gdt - ap_start\n"
	"	lidtl 0x9000 + ap_idt - ap_start\n"
	"	mov %cr0, %eax\n"
	"	or $1, %al\n"
	"	mov %eax, %cr0\n"
	"	ljmpl $0x08, $ap_flat\n"
	".balign 8\n"
	"ap_gdt: .word 0; .long 0\n"
	"ap_idt: .word 0; .long 0\n"
	"ap_start_end:\n"
	".code32\n"
	"ap_flat:\n"
	"	mov $0x10, %eax\n"
	"	mov %eax, %ds\n"
	"	mov %eax, %es\n"
	"	mov %eax, %fs\n"
	"	mov %eax, %gs\n"
	"	mov %eax, %ss\n"
	"	mov $ap_stack_top, %esp\n"
	"	call ap_main\n"
	".popsection\n");
extern const char ap_start[], ap_start_end[], ap_gdt[], ap_idt[];
__asm__(".set ap_stack_top, ap_stack + 8192\n");
void *const keep[] __attribute__((used)) = {(void *)&ap_stack};

/* What the AP executes and CPU 0 changes: mov $imm, %eax; ret. */
static u8 shared_code[4096] __attribute__((aligned(4096))) = {0xb8, 1, 0, 0, 0, 0xc3};
static volatile u32 ap_result;

void ap_main(void);
void ap_main(void)
{
	lapic_write(0xf0, 0x1ff);
	ap_count++;
	ap_state = 1;
	for (;;) {
		u32 go = ap_go;

		if (go == 1) { /* sleep with interrupts on */
			ap_state = 2;
			__asm__ volatile("sti; hlt; cli" : : : "memory");
		} else if (go == 2) { /* run the shared code */
			ap_result = ((u32(*)(void))shared_code)();
			ap_state = 3;
		} else {
			ap_state = 1;
		}
		pause();
	}
}

static void ap_prepare(void)
{
	u8 *low = (u8 *)TRAMPOLINE;

	copy(low, ap_start, (u32)(ap_start_end - ap_start));
	*(u16 *)(low + (ap_gdt - ap_start)) = sizeof(gdt) - 1;
	*(u32 *)(low + (ap_gdt - ap_start) + 2) = (u32)gdt;
	*(u16 *)(low + (ap_idt - ap_start)) = sizeof(idt) - 1;
	*(u32 *)(low + (ap_idt - ap_start) + 2) = (u32)idt;
	lapic_write(0xf0, 0x1ff);
	ap_state = ap_go = 0;
}
static void start(void)
{
	ipi(1, 0xc500); /* INIT, assert */
	ipi(1, 0x8500); /* and deassert, for old ones */
	ipi(1, 0x600 | TRAMPOLINE >> 12);
	ipi(1, 0x600 | TRAMPOLINE >> 12);
}

/* E33: whatever the AP does, INIT-SIPI-SIPI starts it afresh; without pauses between them. */
static void test_start(void)
{
	ap_count = 0;
	for (u32 n = 0; n < 50; n++) {
		ap_prepare();
		start();
		CHECK(wait(&ap_count, n + 1)); /* not ap_state, which the old run may still set */
		if (n % 3 == 1) {	       /* the next INIT finds it halted */
			ap_go = 1;
			CHECK(wait(&ap_state, 2));
		}
	}
	/* a SIPI to a running CPU is nothing */
	ap_prepare();
	start();
	CHECK(wait(&ap_count, 51));
	ipi(1, 0x600 | TRAMPOLINE >> 12);
	spin(500);
	CHECK_EQ(ap_count, 51);
}

static void on_ipi(struct ctx *f)
{
	ap_vector_seen = f->vector | lapic_read(0x20) >> 24 << 8;
	lapic_write(0xb0, 0);
}
static void on_nmi(struct ctx *f)
{
	(void)f;
	ap_nmi++;
}

static void start_afresh(void)
{
	u32 before = ap_count;

	ap_prepare();
	start();
	CHECK(wait(&ap_count, before + 1));
}

static void test_ipi(void)
{
	start_afresh();
	set_handler(0x90, on_ipi);
	set_handler(0x91, on_ipi);
	set_handler(V_NMI, on_nmi);
	ap_go = 1;
	CHECK(wait(&ap_state, 2));
	ap_vector_seen = 0;
	ipi(1, 0x4090);
	CHECK(wait(&ap_vector_seen, 0x190));
	/* all but self; logical destination */
	ap_vector_seen = 0;
	ipi(0, 0xc4091);
	CHECK(wait(&ap_vector_seen, 0x191));
	/* NMI reaches a CPU with interrupts off */
	ap_go = 0;
	ipi(1, 0x4090); /* it sleeps */
	CHECK(wait(&ap_state, 1));
	ap_nmi = 0;
	ipi(1, 0x400);
	CHECK(wait(&ap_nmi, 1));
	set_handler(V_NMI, 0);
}

/* ---- code that changes ---- */

static u8 page_code[8192] __attribute__((aligned(4096)));
static u32 pd[1024] __attribute__((aligned(4096)));

static u32 call(const void *code)
{
	u32 r;

	__asm__ volatile("call *%1" : "=a"(r) : "r"(code) : "ecx", "edx", "memory");
	return r;
}

static void test_smc_next(void)
{
	/* movb $7, 1(the next instruction); mov $1, %eax; ret */
	u8 *p = page_code + 16;
	u32 at = (u32)p + 7 + 1;

	p[0] = 0xc6, p[1] = 0x05, *(u32 *)(p + 2) = at, p[6] = 7;
	p[7] = 0xb8, *(u32 *)(p + 8) = 1, p[12] = 0xc3;
	for (u32 n = 0; n < 100; n++) {
		p[6] = (u8)(n + 1);
		CHECK_EQ(call(p), n + 1);
	}
}

/* An instruction over a page edge, changed in either half. */
static void test_smc_edge(void)
{
	u8 *p = page_code + 4096 - 3;

	p[0] = 0xb8, *(u32 *)(p + 1) = 0x01010101, p[5] = 0xc3;
	for (u32 n = 1; n < 60; n++) {
		CHECK_EQ(call(p), *(volatile u32 *)(p + 1));
		p[1 + n % 4]++;
		CHECK_EQ(call(p), *(volatile u32 *)(p + 1));
	}
}

/* Written through another linear address of the same page. */
static void test_smc_alias(void)
{
	u8 *p = page_code + 64, *alias;
	u32 base = (u32)p & 0xffc00000;

	for (u32 n = 0; n < 1024; n++)
		pd[n] = n << 22 | 0x87;
	pd[0x50000000 >> 22] = base | 0x87;
	alias = (u8 *)(0x50000000 + ((u32)p - base));
	WRITE_REG(cr4, READ_REG(cr4) | 0x10);
	WRITE_REG(cr3, pd);
	WRITE_REG(cr0, READ_REG(cr0) | 0x80000000);
	p[0] = 0xb8, *(u32 *)(p + 1) = 5, p[5] = 0xc3;
	for (u32 n = 0; n < 100; n++) {
		CHECK_EQ(call(p), n + 5);
		*(volatile u32 *)(alias + 1) = n + 6;
		CHECK_EQ(call(p), n + 6);
		CHECK_EQ(call(alias), n + 6);
	}
	WRITE_REG(cr0, READ_REG(cr0) & ~0x80000000u);
}

/* fw_cfg's DMA writes the code: item 0 is the signature "QEMU". */
static void test_smc_dma(void)
{
	static volatile struct {
		u32 control, length;
		u32 high, low;
	} __attribute__((aligned(16))) dma;
	u8 *p = page_code + 128;
	u32 id;

	outw(0x510, 0);
	if (inb(0x511) != 'Q')
		return;
	outw(0x510, 1);
	id = inb(0x511);
	if (!(id & 2))
		return;
	for (u32 n = 0; n < 20; n++) {
		p[0] = 0xb8, *(u32 *)(p + 1) = n, p[5] = 0xc3;
		for (u32 k = 0; k < 40; k++)
			CHECK_EQ(call(p), n);
		dma.control = __builtin_bswap32(0u << 16 | 0x0a); /* select item 0, read */
		dma.length = __builtin_bswap32(4);
		dma.high = 0;
		dma.low = __builtin_bswap32((u32)p + 1);
		outl(0x514, 0);
		outl(0x518, __builtin_bswap32((u32)&dma));
		while (dma.control & __builtin_bswap32(~1u))
			pause();
		CHECK_EQ(call(p), 0x554d4551);
	}
}

/* Another CPU runs it: it sees the new code after a synchronisation (here: soon). */
static void test_smc_cpu(void)
{
	*(volatile u32 *)(shared_code + 1) = 1;
	start_afresh();
	ap_go = 2;
	for (u32 n = 2; n < 200; n++) {
		__atomic_store_n((u8 *)(shared_code + 1), (u8)n, __ATOMIC_SEQ_CST);
		CHECK(wait(&ap_result, n & 0xff));
	}
	ap_go = 0;
	ipi(1, 0xc500);
}

const struct test tests[] = {
    {"start", test_start},	   {"ipi", test_ipi},	      {"smc-next", test_smc_next}, {"smc-edge", test_smc_edge},
    {"smc-alias", test_smc_alias}, {"smc-dma", test_smc_dma}, {"smc-cpu", test_smc_cpu},   {0, 0}};
