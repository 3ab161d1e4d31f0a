/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Interrupt controllers and timers as a guest sees them: 8259 priorities and
 * modes, 8254 modes, RTC, LAPIC timer and priorities, IOAPIC edge and level,
 * HPET. Data sheets 8259A, 8254, MC146818, 82093AA; SDM volume 3A chapter 11.
 * pc-testdev raises lines by port. Waiting loops have generous ends.
 */
#include "bare.h"

#define PIC1	0x20
#define PIC2	0xa0
#define BASE	0x60 /* vectors of IRQ 0..15 */
#define TESTDEV 0x2000
#define LAPIC	0xfee00000u
#define IOAPIC	0xfec00000u
#define HPET	0xfed00000u

static volatile u32 seen[256], order[32], norder;
static struct ctx c;

static void note(struct ctx *f)
{
	seen[f->vector]++;
	if (norder < ARRAY_SIZE(order))
		order[norder++] = f->vector;
}
static void note_pic(struct ctx *f)
{
	note(f);
	if (f->vector >= BASE + 8)
		outb(PIC2, 0x20);
	outb(PIC1, 0x20);
}
static void lapic_write(u32 reg, u32 v)
{
	*(volatile u32 *)(LAPIC + reg) = v;
}
static u32 lapic_read(u32 reg)
{
	return *(volatile u32 *)(LAPIC + reg);
}
static void note_lapic(struct ctx *f)
{
	note(f);
	lapic_write(0xb0, 0);
}

static void clear(void)
{
	for (u32 v = 0; v < 256; v++)
		seen[v] = 0;
	norder = 0;
}

static void pic_init(void)
{
	outb(PIC1, 0x11);
	outb(PIC1 + 1, BASE);
	outb(PIC1 + 1, 4);
	outb(PIC1 + 1, 1);
	outb(PIC2, 0x11);
	outb(PIC2 + 1, BASE + 8);
	outb(PIC2 + 1, 2);
	outb(PIC2 + 1, 1);
	outb(0x4d0, 0); /* all by edges: firmware has other ideas */
	outb(0x4d1, 0);
	outb(PIC1 + 1, 0xff);
	outb(PIC2 + 1, 0xff);
	for (u32 n = 0; n < 16; n++)
		set_handler((u8)(BASE + n), note_pic);
	/* virtual wire: LINT0 takes the 8259's */
	lapic_write(0xf0, 0x1ff);
	lapic_write(0x350, 0x700);
	lapic_write(0x80, 0);
	clear();
}

static void line(u32 n, u32 level)
{
	outb((u16)(TESTDEV + n), (u8)level);
}
/* Interrupts on for a moment. */
static void window(void)
{
	__asm__ volatile("sti; nop; nop; nop; cli" : : : "memory");
}
static void open_for(u32 spins)
{
	__asm__ volatile("sti" : : : "memory");
	while (spins--)
		(void)inb(0x80);
	__asm__ volatile("cli" : : : "memory");
}
/* Wait with interrupts on until the vector was seen n times. */
static u32 wait_for(u32 vector, u32 n)
{
	u64 end = rdtsc() + 20000000000ull;

	__asm__ volatile("sti" : : : "memory");
	while (seen[vector] < n && rdtsc() < end)
		pause();
	__asm__ volatile("cli" : : : "memory");
	return seen[vector] >= n;
}

/* ---- 8259 ---- */

static void test_pic_priority(void)
{
	pic_init();
	outb(PIC1 + 1, 0xff & ~(1u << 3 | 1u << 5 | 1u << 4 | 1u << 2));
	outb(PIC2 + 1, 0xff & ~(1u << 2));
	line(5, 1), line(5, 0);
	CHECK_EQ(norder, 0);
	/* edges while IF is off: the highest first, IRQ 10 comes in at 2's place */
	line(5, 1);
	line(3, 1);
	line(10, 1);
	line(4, 1);
	CHECK_EQ(({
			 outb(PIC1, 0x0a);
			 inb(PIC1);
		 }) & 0x3c,
		 0x3c);
	window();
	window();
	window();
	window();
	CHECK_EQ(norder, 4);
	CHECK_EQ(order[0], BASE + 10);
	CHECK_EQ(order[1], BASE + 3);
	CHECK_EQ(order[2], BASE + 4);
	CHECK_EQ(order[3], BASE + 5);
	line(3, 0), line(4, 0), line(5, 0), line(10, 0);
	outb(PIC1 + 1, 0xff);
}

static void no_eoi(struct ctx *f)
{
	note(f);
}
static void test_pic_in_service(void)
{
	pic_init();
	outb(PIC1 + 1, 0xff & ~(1u << 3 | 1u << 4 | 1u << 1));
	set_handler(BASE + 3, no_eoi);
	line(3, 1);
	window();
	CHECK_EQ(seen[BASE + 3], 1);
	CHECK_EQ(({
			 outb(PIC1, 0x0b);
			 inb(PIC1);
		 }),
		 1u << 3);
	line(4, 1); /* lower: held back until EOI */
	window();
	CHECK_EQ(seen[BASE + 4], 0);
	outb(PIC1, 0x63); /* specific EOI */
	window();
	CHECK_EQ(seen[BASE + 4], 1);
	/* masked while requested; special mask mode */
	line(3, 0), line(4, 0);
	outb(PIC1 + 1, 0xff);
	line(3, 1);
	window();
	CHECK_EQ(seen[BASE + 3], 1);
	outb(PIC1 + 1, 0xff & ~(1u << 3));
	window();
	CHECK_EQ(seen[BASE + 3], 2);
	outb(PIC1, 0x20);
	line(3, 0);
	outb(PIC1 + 1, 0xff);
}

/* ---- 8254 ---- */

static void pit_start(u32 control, u16 count)
{
	outb(0x43, (u8)control);
	outb(0x40, (u8)count);
	outb(0x40, (u8)(count >> 8));
}
static u16 pit_now(void)
{
	u8 lo;

	outb(0x43, 0x00);
	lo = inb(0x40);
	return (u16)(lo | inb(0x40) << 8);
}

static void test_pit(void)
{
	u16 a, b;

	pic_init();
	outb(PIC1 + 1, 0xfe);
	pit_start(0x36, 1193);
	CHECK(wait_for(BASE, 10));
	/* mode 2 */
	pit_start(0x34, 1193);
	clear();
	CHECK(wait_for(BASE, 5));
	/* mode 0: one, at the end of the count */
	outb(0x43, 0x30);
	open_for(3000); /* what the old mode left: KVM on a slow host owes ticks */
	clear();
	outb(0x40, 0xd0);
	outb(0x40, 0x07);
	CHECK(wait_for(BASE, 1));
	open_for(3000);
	/* KVM's old timer runs on until the count is written: its last tick may come with the new one. */
	CHECK(seen[BASE] <= 2);
	clear();
	open_for(3000);
	CHECK_EQ(seen[BASE], 0);
	/* counts down, in mode 3 by twos */
	pit_start(0x34, 0);
	/* A host that stops this CPU for half of the counter's 55 ms in between: once more. */
	u32 tries = 0;
	do {
		a = pit_now();
		for (u32 n = 0; n < 20; n++)
			(void)inb(0x80);
		b = pit_now();
	} while ((u16)(a - b) >= 0x8000 && tries++ < 10);
	CHECK((u16)(a - b) > 0);
	CHECK((u16)(a - b) < 0x8000);
	/* status read-back: mode and access of channel 2, output high in mode 2 */
	outb(0x43, 0xb4);
	outb(0x42, 0), outb(0x42, 0x10);
	outb(0x43, 0xe8);
	CHECK_EQ(inb(0x42) & 0x3f, 0x34);
	outb(PIC1 + 1, 0xff);
}

/* E35: mode 3 by control word 3Eh (mode bits 7), programmed again: 40 ticks arrive. */
static void test_pit_mode7(void)
{
	pic_init();
	outb(PIC1 + 1, 0xfe);
	pit_start(0x3e, 1193);
	CHECK(wait_for(BASE, 10));
	pit_start(0x3e, 2386);
	clear();
	CHECK(wait_for(BASE, 40));
	outb(PIC1 + 1, 0xff);
}

/* ---- RTC ---- */

static u8 cmos(u8 reg)
{
	outb(0x70, reg);
	return inb(0x71);
}
static void cmos_set(u8 reg, u8 v)
{
	outb(0x70, reg);
	outb(0x71, v);
}

static void rtc_handler(struct ctx *f)
{
	(void)cmos(0x0c);
	note_pic(f);
}
static void test_rtc(void)
{
	u8 b;

	pic_init();
	set_handler(BASE + 8, rtc_handler);
	outb(PIC1 + 1, 0xfb);
	outb(PIC2 + 1, 0xfe);
	b = cmos(0x0b);
	cmos_set(0x0a, 0x26); /* 1024 Hz */
	(void)cmos(0x0c);
	cmos_set(0x0b, b | 0x40);
	CHECK(wait_for(BASE + 8, 8));
	cmos_set(0x0b, b & ~0x70);
	(void)cmos(0x0c);
	CHECK_EQ(cmos(0x0d) & 0x80, 0x80);
	/* the update bit does not stick, the time is BCD or binary as it says */
	for (u32 n = 0; n < 2000000 && (cmos(0x0a) & 0x80); n++)
		;
	CHECK_EQ(cmos(0x0a) & 0x80, 0);
	CHECK((cmos(0x00) & 0x0f) < 10 || (b & 4));
	outb(PIC1 + 1, 0xff);
	outb(PIC2 + 1, 0xff);
}

/* ---- LAPIC ---- */

static void lapic_init(void)
{
	pic_init();
	for (u32 v = 0x70; v < 0x100; v++)
		set_handler((u8)v, note_lapic);
	lapic_write(0xf0, 0x1ff);
	lapic_write(0x350, 0x10000);
	lapic_write(0x320, 0x10000);
	clear();
}
static void self_ipi(u32 vector)
{
	lapic_write(0x300, 0x40000 | vector);
}

static void test_lapic_timer(void)
{
	u32 r[4], now;

	lapic_init();
	lapic_write(0x3e0, 0xb); /* divide by 1 */
	lapic_write(0x320, 0x80);
	lapic_write(0x380, 200000);
	CHECK(wait_for(0x80, 1));
	open_for(2000);
	CHECK_EQ(seen[0x80], 1);
	CHECK_EQ(lapic_read(0x390), 0);
	lapic_write(0x320, 0x20080); /* periodic */
	lapic_write(0x380, 200000);
	clear();
	CHECK(wait_for(0x80, 5));
	now = lapic_read(0x390);
	CHECK(now <= 200000);
	/* masked it runs on without a sound; a count of 0 stops it */
	lapic_write(0x320, 0x30080);
	window();
	clear();
	open_for(3000);
	CHECK_EQ(seen[0x80], 0);
	lapic_write(0x380, 0);
	CHECK_EQ(lapic_read(0x390), 0);
	cpuid(1, r);
	if (!(r[2] & 1u << 24))
		return;
	lapic_write(0x320, 0x40081); /* TSC deadline */
	clear();
	wrmsr(0x6e0, rdtsc() + 100000);
	CHECK(wait_for(0x81, 1));
	CHECK_EQ((u32)rdmsr(0x6e0), 0);
	wrmsr(0x6e0, 1); /* long past: at once */
	CHECK(wait_for(0x81, 2));
	lapic_write(0x320, 0x10000);
}

static void test_lapic_priority(void)
{
	lapic_init();
	/* three requests with IF off: highest vector first */
	self_ipi(0x91);
	self_ipi(0xb1);
	self_ipi(0xa1);
	CHECK_EQ(lapic_read(0x200 + 0x10 * 4) & 1u << 0x11, 1u << 0x11);
	window();
	window();
	window();
	CHECK_EQ(norder, 3);
	CHECK_EQ(order[0], 0xb1);
	CHECK_EQ(order[1], 0xa1);
	CHECK_EQ(order[2], 0x91);
	/* TPR holds its class and below back */
	clear();
	lapic_write(0x80, 0xa0);
	self_ipi(0xa5);
	self_ipi(0xb0);
	window();
	window();
	CHECK_EQ(norder, 1);
	CHECK_EQ(order[0], 0xb0);
	lapic_write(0x80, 0x90);
	window();
	CHECK_EQ(seen[0xa5], 1);
	lapic_write(0x80, 0);
	/* in service: the same class waits for EOI, a higher one does not */
	clear();
	set_handler(0xa2, no_eoi);
	self_ipi(0xa2);
	window();
	self_ipi(0xaf);
	self_ipi(0xb2);
	window();
	window();
	CHECK_EQ(seen[0xb2], 1);
	CHECK_EQ(seen[0xaf], 0);
	CHECK_EQ(lapic_read(0xa0), 0xa0);
	lapic_write(0xb0, 0);
	window();
	CHECK_EQ(seen[0xaf], 1);
	/* the same vector twice is one request */
	clear();
	self_ipi(0xc0);
	self_ipi(0xc0);
	window();
	window();
	CHECK_EQ(seen[0xc0], 1);
}

static void test_lapic_error(void)
{
	lapic_init();
	/* vectors below 16 are an error (ESR: send illegal vector) */
	lapic_write(0x280, 0);
	self_ipi(3);
	lapic_write(0x280, 0);
	CHECK_EQ(lapic_read(0x280) & 0x60, 0x20);
}

/* ---- IOAPIC ---- */

static u32 ioapic(u32 reg)
{
	*(volatile u32 *)IOAPIC = reg;
	return *(volatile u32 *)(IOAPIC + 0x10);
}
static void ioapic_set(u32 reg, u32 v)
{
	*(volatile u32 *)IOAPIC = reg;
	*(volatile u32 *)(IOAPIC + 0x10) = v;
}

static void level_handler(struct ctx *f)
{
	note(f);
	if (seen[f->vector] == 2)
		line(11, 0);
	lapic_write(0xb0, 0);
}

static void test_ioapic(void)
{
	lapic_init();
	CHECK_EQ(ioapic(1) >> 16 & 0xff, 23);
	ioapic_set(0x10 + 2 * 5 + 1, 0);
	ioapic_set(0x10 + 2 * 5, 0x85); /* edge, fixed, to CPU 0 */
	line(5, 1);
	window();
	CHECK_EQ(seen[0x85], 1);
	window();
	CHECK_EQ(seen[0x85], 1);
	line(5, 0);
	/* masked: an edge is lost */
	ioapic_set(0x10 + 2 * 5, 0x10085);
	line(5, 1);
	line(5, 0);
	ioapic_set(0x10 + 2 * 5, 0x85);
	window();
	CHECK_EQ(seen[0x85], 1);
	ioapic_set(0x10 + 2 * 5, 0x10000);
	/* level: comes again after EOI while the line is up */
	set_handler(0x8b, level_handler);
	ioapic_set(0x10 + 2 * 11 + 1, 0);
	ioapic_set(0x10 + 2 * 11, 0x808b);
	line(11, 1);
	CHECK_EQ(ioapic(0x10 + 2 * 11) & 0x4000, 0x4000);
	window();
	window();
	window();
	CHECK_EQ(seen[0x8b], 2);
	CHECK_EQ(ioapic(0x10 + 2 * 11) & 0x4000, 0);
	ioapic_set(0x10 + 2 * 11, 0x10000);
	line(11, 0);
}

/* ---- HPET ---- */

static void test_hpet(void)
{
	volatile u32 *h = (volatile u32 *)HPET;
	u32 a, b, gsi = 0, allowed;

	lapic_init();
	if (h[0] == 0xffffffff)
		return;
	CHECK(h[1] > 0 && h[1] <= 0x5f5e100); /* period in femtoseconds */
	h[4] &= ~3u;
	h[0xf0 / 4] = 0;
	h[0xf4 / 4] = 0;
	h[4] |= 1;
	a = h[0xf0 / 4];
	for (u32 n = 0; n < 200; n++)
		(void)inb(0x80);
	b = h[0xf0 / 4];
	CHECK(b > a);
	/* timer 2: one shot by an IOAPIC input it allows */
	allowed = h[0x144 / 4];
	while (gsi < 24 && !(allowed >> gsi & 1))
		gsi++;
	if (gsi == 24)
		return;
	ioapic_set(0x10 + 2 * gsi + 1, 0);
	ioapic_set(0x10 + 2 * gsi, 0x8d);
	h[0x140 / 4] = gsi << 9 | 4;
	h[0x148 / 4] = h[0xf0 / 4] + 20000;
	CHECK(wait_for(0x8d, 1));
	h[0x140 / 4] = 0;
	ioapic_set(0x10 + 2 * gsi, 0x10000);
	h[4] &= ~1u;
}

/* STI holds interrupts off for one instruction; CLI right behind it keeps them off. */
CODE(sti_cli, "sti; cli; nop");
CODE(sti_nop, "sti; nop; incl %eax; cli");
static void test_shadow(void)
{
	lapic_init();
	self_ipi(0xd0);
	ctx_init(&c, 0, sti_cli);
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(seen[0xd0], 0);
	ctx_init(&c, 0, sti_nop);
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(seen[0xd0], 1);
	/* HLT wakes, and goes on behind itself */
	lapic_write(0x3e0, 0xb);
	lapic_write(0x320, 0x80);
	lapic_write(0x380, 300000);
	__asm__ volatile("sti; hlt; cli" : : : "memory");
	CHECK_EQ(seen[0x80], 1);
	lapic_write(0x320, 0x10000);
}

/* ---- x87 errors as interrupt 13 (CR0.NE = 0), SDM volume 1 appendix D; field case E19 ---- */

static u16 fpu_status, fpu_control = 0x37b; /* division by zero not masked */
static u32 fpu_eip;

/* As DOS programs do: take the error away, then the interrupt. */
static void fpu_handler(struct ctx *f)
{
	fpu_eip = f->eip;
	__asm__ volatile("fnstsw %0; fnclex" : "=m"(fpu_status));
	outb(0xf0, 0);
	note_pic(f);
}
/* The other order: IGNNE# is there while the handler uses instructions that wait, and gone after FNCLEX. */
static void fpu_handler_waits(struct ctx *f)
{
	fpu_eip = f->eip;
	outb(0xf0, 0);
	__asm__ volatile("fwait; fld1; faddp; fnstsw %0; fnclex" : "=m"(fpu_status));
	note_pic(f);
}
CODE(fpu_error, "fninit; fldcw (%esi); fldz; fld1; fdivp; nop; nop; fldz; fld1; fnstsw %ax; fwait");
static void test_ferr(void)
{
	u32 old = READ_REG(cr0);

	pic_init();
	outb(PIC1 + 1, 0xff & ~(1u << 2));
	outb(PIC2 + 1, 0xff & ~(1u << 5));
	WRITE_REG(cr0, old & ~0x2cu);
	for (u32 n = 0; n < 4; n++) {
		set_handler(BASE + 13, n & 1 ? fpu_handler_waits : fpu_handler);
		ctx_init(&c, 0, fpu_error);
		c.eflags |= EFL_IF;
		c.esi = (u32)&fpu_control;
		fpu_status = 0;
		CHECK_EQ(run(&c), V_BACK);
		CHECK_EQ(seen[BASE + 13], n + 1);
		CHECK_EQ(fpu_status & 0x84, 0x84);
		CHECK_EQ(c.eax & 0x84, 0);
		/* it stood before the second FLDZ, the first that waits */
		CHECK_EQ(fpu_eip, (u32)fpu_error + 12);
	}
	/* nothing is left over: with NE it is #MF */
	WRITE_REG(cr0, (old & ~0xcu) | 0x20);
	ctx_init(&c, 0, fpu_error);
	c.eflags |= EFL_IF;
	c.esi = (u32)&fpu_control;
	CHECK_EQ(run(&c), V_MF);
	CHECK_EQ(seen[BASE + 13], 4);
	__asm__ volatile("fninit");
	outb(PIC1 + 1, 0xff);
	outb(PIC2 + 1, 0xff);
	WRITE_REG(cr0, old);
}

const struct test tests[] = {{"pic-priority", test_pic_priority},
			     {"pic-in-service", test_pic_in_service},
			     {"pit", test_pit},
			     {"pit-mode7", test_pit_mode7},
			     {"rtc", test_rtc},
			     {"lapic-timer", test_lapic_timer},
			     {"lapic-priority", test_lapic_priority},
			     {"lapic-error", test_lapic_error},
			     {"ioapic", test_ioapic},
			     {"hpet", test_hpet},
			     {"shadow", test_shadow},
			     {"ferr", test_ferr},
			     {0, 0}};
