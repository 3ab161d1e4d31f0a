/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Device memory and ports by every form of access: all sizes, read-modify-write,
 * locked, string, push and pop, x87 and SSE operands, descriptors. pc-testdev's
 * memory and ports keep what is written.
 */
#include "bare.h"

#define DEV	 0xff000000u
#define DEV_SIZE 0x10000u

static volatile u8 *const dev8 = (volatile u8 *)DEV;
static volatile u16 *const dev16 = (volatile u16 *)DEV;
static volatile u32 *const dev32 = (volatile u32 *)DEV;
static u8 ram[256] __attribute__((aligned(64)));
static struct ctx c;

static void pattern(void)
{
	for (u32 n = 0; n < 64; n++)
		dev32[n] = n * 0x01010101 + 0x03020100;
}

static void test_sizes(void)
{
	pattern();
	dev8[1] = 0xaa;
	dev16[1] = 0xbbcc;
	CHECK_EQ(dev32[0], 0xbbccaa00);
	CHECK_EQ(*(volatile u16 *)(DEV + 1), 0xccaa);
	CHECK_EQ(*(volatile u32 *)(DEV + 3), 0x030201bb);
	*(volatile u32 *)(DEV + 5) = 0x99887766;
	CHECK_EQ(dev8[5], 0x66);
	CHECK_EQ(dev8[8], 0x99);
	/* zero and sign extension */
	CHECK_EQ(({
			 int v;
			 __asm__ volatile("movsbl 8+%1, %0" : "=r"(v) : "m"(*dev8));
			 (u32) v;
		 }),
		 0xffffff99);
	CHECK_EQ(({
			 u32 v;
			 __asm__ volatile("movzwl 7+%1, %0" : "=r"(v) : "m"(*dev8));
			 v;
		 }),
		 0x9988);
	/* the last byte, and one over the end of the window into nothing */
	dev8[DEV_SIZE - 1] = 0x42;
	CHECK_EQ(dev8[DEV_SIZE - 1], 0x42);
}

static void test_modify(void)
{
	u32 r;
	u8 cf;

	dev32[0] = 10;
	__asm__ volatile("addl $5, %0" : "+m"(*dev32));
	CHECK_EQ(dev32[0], 15);
	__asm__ volatile("lock incl %0" : "+m"(*dev32));
	CHECK_EQ(dev32[0], 16);
	__asm__ volatile("lock xaddl %0, %1" : "=r"(r), "+m"(*dev32) : "0"(4));
	CHECK_EQ(r, 16);
	CHECK_EQ(dev32[0], 20);
	r = 0x77;
	__asm__ volatile("xchgl %0, %1" : "+r"(r), "+m"(*dev32));
	CHECK_EQ(r, 20);
	CHECK_EQ(dev32[0], 0x77);
	__asm__ volatile("lock cmpxchgl %2, %1" : "=a"(r), "+m"(*dev32) : "r"(0x88), "0"(0x77));
	CHECK_EQ(dev32[0], 0x88);
	__asm__ volatile("lock cmpxchgl %2, %1" : "=a"(r), "+m"(*dev32) : "r"(0x99), "0"(0x77));
	CHECK_EQ(r, 0x88);
	CHECK_EQ(dev32[0], 0x88);
	__asm__ volatile("btsl $1, %1; setc %0" : "=r"(cf), "+m"(*dev32));
	CHECK_EQ(cf, 0);
	CHECK_EQ(dev32[0], 0x8a);
	__asm__ volatile("btl %2, %1; setc %0" : "=r"(cf) : "m"(*dev32), "r"(33));
	dev32[1] = 2;
	__asm__ volatile("btl %2, %1; setc %0" : "=r"(cf) : "m"(*dev32), "r"(33));
	CHECK_EQ(cf, 1);
	__asm__ volatile("shll $4, %0; notl %0; negl %0" : "+m"(*dev32));
	CHECK_EQ(dev32[0], 0x8a1);
	dev32[2] = 3;
	__asm__ volatile("mull %1" : "=a"(r) : "m"(dev32[2]), "0"(7) : "edx");
	CHECK_EQ(r, 21);
	__asm__ volatile("cmpxchg8b %0" : "+m"(*(volatile u64 *)DEV) : "a"(0x8a1), "d"(2), "b"(0x11), "c"(0x22));
	CHECK_EQ(dev32[0], 0x11);
	CHECK_EQ(dev32[1], 0x22);
}

static void test_stack(void)
{
	u32 r;

	dev32[4] = 0x1234;
	__asm__ volatile("pushl %1; popl %0" : "=r"(r) : "m"(dev32[4]));
	CHECK_EQ(r, 0x1234);
	__asm__ volatile("pushl $0x5678; popl %0" : "=m"(dev32[5]));
	CHECK_EQ(dev32[5], 0x5678);
	/* the stack itself on the device */
	__asm__ volatile("mov %%esp, %%ecx; mov %1, %%esp; push $0x77; push $0x88; pop %0; mov %%ecx, %%esp"
			 : "=a"(r)
			 : "i"(DEV + 0x80)
			 : "ecx", "memory");
	CHECK_EQ(r, 0x88);
	CHECK_EQ(dev32[0x7c / 4], 0x77);
}

static void test_strings(void)
{
	pattern();
	copy(ram, (const void *)(DEV + 1), 77);
	for (u32 n = 0; n < 77; n++)
		CHECK_EQ(ram[n], dev8[n + 1]);
	for (u32 n = 0; n < 100; n++)
		ram[n] = (u8)(n * 3);
	copy((void *)(DEV + 0x100), ram, 100);
	for (u32 n = 0; n < 100; n++)
		CHECK_EQ(dev8[0x100 + n], (u8)(n * 3));
	fill((void *)(DEV + 0x200), 0x5a, 33);
	CHECK_EQ(dev8[0x200 + 32], 0x5a);
	/* device to device, dwords, downwards */
	__asm__ volatile("std; rep movsl; cld" : : "S"(DEV + 0x100 + 60), "D"(DEV + 0x300 + 60), "c"(16) : "memory");
	for (u32 n = 0; n < 16; n++)
		CHECK_EQ(dev32[0x300 / 4 + n], dev32[0x100 / 4 + n]);
	{
		u32 left;

		__asm__ volatile("repne scasb" : "=c"(left) : "D"(DEV + 0x100), "0"(100), "a"(30) : "memory");
		CHECK_EQ(left, 89);
	}
}

static void test_vectors(void)
{
	static u32 got[4];
	u32 cr0 = READ_REG(cr0), cr4 = READ_REG(cr4), r[4];

	cpuid(1, r);
	if (!(r[3] & 1u << 26))
		return;
	WRITE_REG(cr0, cr0 & ~0xcu);
	WRITE_REG(cr4, cr4 | 0x600);
	pattern();
	__asm__ volatile("movdqa (%0), %%xmm1; movdqu 3(%0), %%xmm2; paddd %%xmm2, %%xmm1; movdqa %%xmm1, 0x40(%0);"
			 "movdqu %%xmm1, %1; movq 8(%0), %%xmm3; movq %%xmm3, 0x60(%0); pxor (%0), %%xmm2"
			 :
			 : "r"(DEV), "m"(*got)
			 : "memory");
	for (u32 n = 0; n < 4; n++) {
		CHECK_EQ(got[n], dev32[n] + *(volatile u32 *)(DEV + 3 + 4 * n));
		CHECK_EQ(dev32[16 + n], got[n]);
	}
	CHECK_EQ(dev32[24], dev32[2]);
	__asm__ volatile("fninit; fildll (%0); fistpll 0x70(%0); flds (%0); fstpt 0x80(%0); fnstcw 0x90(%0)"
			 :
			 : "r"(DEV)
			 : "memory");
	CHECK_EQ(dev32[28], dev32[0]);
	CHECK_EQ(dev32[29], dev32[1]);
	CHECK_EQ(dev16[0x48], 0x37f);
	WRITE_REG(cr4, cr4);
	WRITE_REG(cr0, cr0);
}

static void test_ports(void)
{
	outl(0xe0, 0x11223344);
	CHECK_EQ(inb(0xe1), 0x33);
	CHECK_EQ(inw(0xe2), 0x1122);
	outb(0xe3, 0xaa);
	CHECK_EQ(inl(0xe0), 0xaa223344);
	outw(0xe0, 0xbbcc);
	CHECK_EQ(inl(0xe0), 0xaa22bbcc);
	/* string forms */
	*(u32 *)ram = 0x55667788;
	__asm__ volatile("rep outsl" : : "S"(ram), "d"(0xe0), "c"(1) : "memory");
	CHECK_EQ(inl(0xe0), 0x55667788);
	__asm__ volatile("rep insb" : : "D"(ram + 16), "d"(0xe1), "c"(3) : "memory");
	CHECK_EQ(ram[16], 0x77);
	CHECK_EQ(ram[18], 0x77);
	/* to and from device memory */
	dev32[0] = 0x99aabbcc;
	__asm__ volatile("outsl" : : "S"(DEV), "d"(0xe0) : "memory");
	CHECK_EQ(inl(0xe0), 0x99aabbcc);
	__asm__ volatile("insl" : : "D"(DEV + 8), "d"(0xe0) : "memory");
	CHECK_EQ(dev32[2], 0x99aabbcc);
}

static void test_nobody(void)
{
	CHECK_EQ(inb(0x7000), 0xff);
	CHECK_EQ(*(volatile u32 *)0xfd000000, 0xffffffff);
}

/* A table in device memory: descriptors are read and their accessed bit written there. */
CODE(load_gs, "mov %eax, %gs; mov %gs:0, %ebx");
static void test_tables(void)
{
	u64 d = make_desc((u32)ram, 0xff, A_P | A_DATA, F_32) & ~(1ull << 40);

	*(u32 *)ram = 0xf00d;
	gdt[SEL_FREE / 8] = make_desc(DEV + 0x400, 31, A_P | A_LDT, 0);
	dev32[0x408 / 4] = (u32)d;
	dev32[0x40c / 4] = (u32)(d >> 32);
	__asm__ volatile("lldt %w0" : : "r"(SEL_FREE));
	ctx_init(&c, 0, load_gs);
	c.eax = 0x0c;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.ebx, 0xf00d);
	CHECK_EQ(dev32[0x40c / 4] >> 8 & 1, 1);
	__asm__ volatile("lldt %w0" : : "r"(0));
}

const struct test tests[] = {{"sizes", test_sizes},	{"modify", test_modify},   {"stack", test_stack},
			     {"strings", test_strings}, {"vectors", test_vectors}, {"ports", test_ports},
			     {"nobody", test_nobody},	{"tables", test_tables},   {0, 0}};
