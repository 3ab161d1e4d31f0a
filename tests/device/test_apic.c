/* SPDX-License-Identifier: GPL-2.0-or-later */
/* LAPICs, IOAPIC, MSI: what Linux does with them, and what else the manuals promise. */
#include <errno.h>
#include "rig.h"

#define MS 1000000ull

enum {
	ID = 0x20,
	VERSION = 0x30,
	TPR = 0x80,
	PPR = 0xa0,
	EOI = 0xb0,
	LDR = 0xd0,
	DFR = 0xe0,
	SVR = 0xf0,
	ISR = 0x100,
	TMR = 0x180,
	IRR = 0x200,
	ESR = 0x280,
	ICR = 0x300,
	ICR2 = 0x310,
	LVTT = 0x320,
	LVT0 = 0x350,
	LVT1 = 0x360,
	LVTERR = 0x370,
	TMICT = 0x380,
	TMCCT = 0x390,
	TDCR = 0x3e0,
};

#define MASKED	      0x10000u
#define RTE_LEVEL     0x8000u
#define RTE_LOGICAL   0x800u
#define RTE_DEST(d)   ((uint64_t)(d) << 56)
#define REMOTE_IRR    0x4000u
#define APIC_BASE_MSR 0x1b

static void ipi(struct rig *r, unsigned cpu, uint32_t dest, uint32_t low)
{
	lapic_put(r, cpu, ICR2, dest << 24);
	lapic_put(r, cpu, ICR, low);
}

static void msi(struct rig *r, uint32_t addr_low, uint32_t data)
{
	r->bus.msi->send(r->bus.msi_opaque, 0xfee00000u | addr_low, data);
}

static void to_x2apic(struct rig *r, unsigned cpu)
{
	msr_put(r, cpu, APIC_BASE_MSR, msr_get(r, cpu, APIC_BASE_MSR) | 0xc00);
}

static void test_reset_state(void **state)
{
	struct rig r;

	rig_init(&r, 2);
	assert_int_equal(lapic_get(&r, 1, ID), 1u << 24);
	assert_int_equal(lapic_get(&r, 0, VERSION), 0x50014);
	assert_int_equal(lapic_get(&r, 0, SVR), 0xff);
	assert_int_equal(lapic_get(&r, 1, LVT0), MASKED);
	assert_int_equal(lapic_get(&r, 0, LVT0), 0x700); /* virtual wire */
	assert_int_equal(msr_get(&r, 0, APIC_BASE_MSR), 0xfee00900);
	assert_int_equal(msr_get(&r, 1, APIC_BASE_MSR), 0xfee00800);
	assert_int_equal(ioapic_get(&r, 1), 0x170011);
	assert_int_equal(ioapic_get(&r, 0x10), MASKED);
	/* Software disabled: LVT entries cannot be unmasked, messages are not taken. */
	lapic_put(&r, 1, LVT1, 0x400);
	assert_int_equal(lapic_get(&r, 1, LVT1), MASKED | 0x400);
	msi(&r, 1 << 12, 0x41);
	assert_int_equal(rig_take(&r, 1), -1);
	rig_fini(&r);
}

static void test_virtual_wire(void **state)
{
	struct rig r;

	rig_init(&r, 2);
	rig_init_pics(&r, 0xffff);
	irq_pulse(&r.bus.gsi[3]);
	assert_int_equal(rig_take(&r, 1), -1);
	assert_int_equal(rig_take(&r, 0), 0x33);
	out8(&r, 0x20, 0x20);
	/* Masked at LINT0 it waits in the 8259. */
	lapic_put(&r, 0, SVR, 0x1ff);
	lapic_put(&r, 0, LVT0, 0x700 | MASKED);
	irq_pulse(&r.bus.gsi[3]);
	assert_int_equal(rig_take(&r, 0), -1);
	lapic_put(&r, 0, LVT0, 0x700);
	assert_int_equal(rig_take(&r, 0), 0x33);
	out8(&r, 0x20, 0x20);
	/* A LAPIC switched off leaves INTR to the CPU's pin. */
	msr_put(&r, 0, APIC_BASE_MSR, 0xfee00100);
	irq_pulse(&r.bus.gsi[4]);
	assert_int_equal(rig_take(&r, 0), 0x34);
	out8(&r, 0x20, 0x20);
	assert_int_equal(lapic_get(&r, 0, VERSION), 0xffffffff);
	rig_fini(&r);
}

/* Linux's last resorts for a timer: LINT0 as a fixed interrupt, or as NMI. */
static void test_lint0_fixed_and_nmi(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	rig_enable_lapic(&r, 0);
	lapic_put(&r, 0, LVT0, 0x55);
	irq_pulse(&r.bus.gsi[0]);
	assert_int_equal(rig_take(&r, 0), 0x55);
	lapic_put(&r, 0, EOI, 0);
	lapic_put(&r, 0, LVT0, 0x400);
	out8(&r, 0x20, 0x0c);
	in8(&r, 0x20); /* acknowledge by poll ... */
	out8(&r, 0x20, 0x20);
	assert_false(rig_asked(&r, 0, VCPU_REQ_NMI));
	irq_pulse(&r.bus.gsi[0]); /* ... so that INTR rises anew */
	assert_true(rig_asked(&r, 0, VCPU_REQ_NMI));
	rig_fini(&r);
}

static void test_priorities(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_enable_lapic(&r, 0);
	msi(&r, 0, 0x41);
	msi(&r, 0, 0x62);
	msi(&r, 0, 0x45);
	assert_int_equal(lapic_get(&r, 0, IRR + 0x20), 0x22);
	assert_int_equal(rig_take(&r, 0), 0x62);
	assert_int_equal(lapic_get(&r, 0, PPR), 0x60);
	assert_int_equal(lapic_get(&r, 0, ISR + 0x30), 1u << 2);
	assert_int_equal(rig_take(&r, 0), -1);
	msi(&r, 0, 0x68); /* same class: waits */
	assert_int_equal(rig_take(&r, 0), -1);
	msi(&r, 0, 0x71);
	assert_int_equal(rig_take(&r, 0), 0x71);
	lapic_put(&r, 0, EOI, 0);
	assert_int_equal(rig_take(&r, 0), -1);
	lapic_put(&r, 0, EOI, 0);
	assert_int_equal(rig_take(&r, 0), 0x68);
	lapic_put(&r, 0, EOI, 0);
	/* TPR holds back its class and below; CR8 is its upper half. */
	irqchip_tpr_set(r.chip, 0, 4);
	assert_int_equal(lapic_get(&r, 0, TPR), 0x40);
	assert_int_equal(rig_take(&r, 0), -1);
	lapic_put(&r, 0, TPR, 0x3f);
	assert_int_equal(irqchip_tpr_get(r.chip, 0), 3);
	assert_int_equal(rig_take(&r, 0), 0x45);
	assert_int_equal(lapic_get(&r, 0, PPR), 0x40);
	lapic_put(&r, 0, EOI, 0);
	assert_int_equal(lapic_get(&r, 0, PPR), 0x3f);
	assert_int_equal(rig_take(&r, 0), 0x41);
	lapic_put(&r, 0, EOI, 0);
	lapic_put(&r, 0, EOI, 0); /* one too many is harmless */
	assert_int_equal(rig_take(&r, 0), -1);
	rig_fini(&r);
}

static void test_destinations(void **state)
{
	struct rig r;

	rig_init(&r, 4);
	for (unsigned i = 0; i < 4; i++)
		rig_enable_lapic(&r, i);
	/* physical, by IPI */
	ipi(&r, 0, 2, 0x41);
	assert_int_equal(rig_take(&r, 2), 0x41);
	lapic_put(&r, 2, EOI, 0);
	/* physical broadcast includes the sender */
	ipi(&r, 1, 0xff, 0x42);
	/* logical flat, by MSI */
	msi(&r, 0x0a << 12 | 4, 0x43);
	for (unsigned i = 0; i < 4; i++) {
		if (i & 1) {
			assert_int_equal(rig_take(&r, i), 0x43);
			lapic_put(&r, i, EOI, 0);
		}
		assert_int_equal(rig_take(&r, i), 0x42);
		lapic_put(&r, i, EOI, 0);
		assert_int_equal(rig_take(&r, i), -1);
	}
	/* shorthands: self, all, all but self */
	lapic_put(&r, 3, ICR, 0x40050);
	assert_int_equal(rig_take(&r, 3), 0x50);
	lapic_put(&r, 3, EOI, 0);
	lapic_put(&r, 3, ICR, 0x80051);
	lapic_put(&r, 3, ICR, 0xc0052);
	for (unsigned i = 0; i < 4; i++) {
		if (i != 3)
			assert_int_equal(rig_take(&r, i), 0x52);
		lapic_put(&r, i, EOI, 0);
		assert_int_equal(rig_take(&r, i), 0x51);
		lapic_put(&r, i, EOI, 0);
		assert_int_equal(rig_take(&r, i), -1);
	}
	/* cluster model: cluster 1 has CPUs 0 and 1, cluster 2 has 2 and 3 */
	for (unsigned i = 0; i < 4; i++) {
		lapic_put(&r, i, DFR, 0x0fffffff);
		lapic_put(&r, i, LDR, (1 + i / 2) << 28 | (1u << (i % 2)) << 24);
	}
	ipi(&r, 0, 0x22, 0x853);
	ipi(&r, 0, 0xf1, 0x854); /* member 0 of every cluster */
	assert_int_equal(rig_take(&r, 0), 0x54);
	assert_int_equal(rig_take(&r, 1), -1);
	assert_int_equal(rig_take(&r, 2), 0x54);
	assert_int_equal(rig_take(&r, 3), 0x53);
	rig_fini(&r);
}

static void test_lowest_priority(void **state)
{
	struct rig r;
	unsigned got[3] = {0};

	rig_init(&r, 3);
	for (unsigned i = 0; i < 3; i++)
		rig_enable_lapic(&r, i);
	/* Equals take turns. */
	for (unsigned n = 0; n < 30; n++) {
		msi(&r, 0x7 << 12 | 4, 0x141);
		for (unsigned i = 0; i < 3; i++) {
			if (rig_take(&r, i) == 0x41) {
				lapic_put(&r, i, EOI, 0);
				got[i]++;
			}
		}
	}
	assert_int_equal(got[0] + got[1] + got[2], 30);
	for (unsigned i = 0; i < 3; i++)
		assert_true(got[i] >= 5);
	/* A busier one is passed over. */
	lapic_put(&r, 0, TPR, 0x30);
	lapic_put(&r, 2, TPR, 0x20);
	msi(&r, 0x7 << 12 | 4, 0x141);
	assert_int_equal(rig_take(&r, 0), -1);
	assert_int_equal(rig_take(&r, 2), -1);
	assert_int_equal(rig_take(&r, 1), 0x41);
	rig_fini(&r);
}

static void test_init_sipi(void **state)
{
	struct rig r;

	rig_init(&r, 2);
	rig_enable_lapic(&r, 0);
	ipi(&r, 0, 1, 0xc500); /* INIT, assert */
	ipi(&r, 0, 1, 0x8500); /* INIT, de-assert: nothing */
	ipi(&r, 0, 1, 0x4698);
	ipi(&r, 0, 1, 0x4699);
	/* Both stay latched, with the last vector, until the AP gets round to look. */
	assert_int_equal(r.vcpu[1].requests, VCPU_REQ_INIT | VCPU_REQ_SIPI);
	assert_int_equal(r.vcpu[1].sipi_vector, 0x99);
	/* Another INIT makes the start-up message before it void. */
	ipi(&r, 0, 1, 0xc500);
	assert_int_equal(r.vcpu[1].requests, VCPU_REQ_INIT);
	/* INIT resets the LAPIC but keeps its base and ID. */
	msr_put(&r, 1, APIC_BASE_MSR, 0xfee00c00);
	msr_put(&r, 1, 0x80f, 0x1ff);
	irqchip_lapic_reset(r.chip, 1, true);
	assert_int_equal(msr_get(&r, 1, APIC_BASE_MSR), 0xfee00c00);
	assert_int_equal(msr_get(&r, 1, 0x80f), 0xff);
	assert_int_equal(msr_get(&r, 1, 0x802), 1);
	irqchip_lapic_reset(r.chip, 1, false);
	assert_int_equal(msr_get(&r, 1, APIC_BASE_MSR), 0xfee00800);
	/* NMI */
	ipi(&r, 0, 1, 0x4400);
	assert_true(rig_asked(&r, 1, VCPU_REQ_NMI));
	lapic_put(&r, 0, LVT1, 0x400);
	irqchip_inject_nmi(r.chip);
	assert_true(rig_asked(&r, 0, VCPU_REQ_NMI));
	assert_false(rig_asked(&r, 1, VCPU_REQ_NMI)); /* its LINT1 is masked */
	rig_fini(&r);
}

static void test_ioapic_edge(void **state)
{
	struct rig r;

	rig_init(&r, 2);
	rig_enable_lapic(&r, 0);
	rig_enable_lapic(&r, 1);
	ioapic_put_pin(&r, 4, RTE_DEST(1) | 0x34);
	irq_set(&r.bus.gsi[4], 1);
	assert_int_equal(rig_take(&r, 1), 0x34);
	lapic_put(&r, 1, EOI, 0);
	assert_int_equal(rig_take(&r, 1), -1);
	irq_set(&r.bus.gsi[4], 1); /* no new edge */
	assert_int_equal(rig_take(&r, 1), -1);
	irq_set(&r.bus.gsi[4], 0);
	irq_set(&r.bus.gsi[4], 1);
	assert_int_equal(rig_take(&r, 1), 0x34);
	lapic_put(&r, 1, EOI, 0);
	irq_set(&r.bus.gsi[4], 0);
	/* An edge on a masked pin is lost. */
	ioapic_put_pin(&r, 4, RTE_DEST(1) | MASKED | 0x34);
	irq_pulse(&r.bus.gsi[4]);
	ioapic_put_pin(&r, 4, RTE_DEST(1) | 0x34);
	assert_int_equal(rig_take(&r, 1), -1);
	/* ISA interrupt 0 is pin 2; line 2 is nowhere. */
	ioapic_put_pin(&r, 0, 0x40);
	ioapic_put_pin(&r, 2, 0x42);
	irq_pulse(&r.bus.gsi[2]);
	assert_int_equal(rig_take(&r, 0), -1);
	irq_pulse(&r.bus.gsi[0]);
	assert_int_equal(rig_take(&r, 0), 0x42);
	rig_fini(&r);
}

static void test_ioapic_level(void **state)
{
	struct rig r;
	const uint64_t e = RTE_DEST(1) | RTE_LOGICAL | RTE_LEVEL | 0x2000 | 0x51;

	rig_init(&r, 1);
	rig_enable_lapic(&r, 0);
	ioapic_put_pin(&r, 10, e);
	irq_set(&r.bus.gsi[10], 1);
	assert_int_equal(rig_take(&r, 0), 0x51);
	assert_true(ioapic_get(&r, 0x10 + 20) & REMOTE_IRR);
	assert_int_equal(lapic_get(&r, 0, TMR + 0x20), 1u << 17);
	lapic_put(&r, 0, EOI, 0);
	assert_int_equal(rig_take(&r, 0), 0x51); /* still asserted: again */
	irq_set(&r.bus.gsi[10], 0);
	irq_set(&r.bus.gsi[10], 1); /* while in service: waits for the EOI */
	assert_int_equal(lapic_get(&r, 0, IRR + 0x20), 0);
	lapic_put(&r, 0, EOI, 0);
	assert_int_equal(rig_take(&r, 0), 0x51);
	irq_set(&r.bus.gsi[10], 0);
	lapic_put(&r, 0, EOI, 0);
	assert_int_equal(rig_take(&r, 0), -1);
	assert_false(ioapic_get(&r, 0x10 + 20) & REMOTE_IRR);
	/* Masked while asserted, it comes when unmasked. */
	ioapic_put_pin(&r, 10, e | MASKED);
	irq_set(&r.bus.gsi[10], 1);
	assert_int_equal(rig_take(&r, 0), -1);
	ioapic_put_pin(&r, 10, e);
	assert_int_equal(rig_take(&r, 0), 0x51);
	/* Linux clears a stuck remote IRR of this version by going through edge mode. */
	irq_set(&r.bus.gsi[10], 0);
	ioapic_put_pin(&r, 10, (e & ~(uint64_t)RTE_LEVEL) | MASKED);
	ioapic_put_pin(&r, 10, e);
	assert_false(ioapic_get(&r, 0x10 + 20) & REMOTE_IRR);
	/* The read-only bits are not writable. */
	ioapic_put_pin(&r, 11, MASKED | RTE_LEVEL | REMOTE_IRR | 0x1000);
	assert_int_equal(ioapic_get(&r, 0x10 + 22), MASKED | RTE_LEVEL);
	/* One vector on two pins: an EOI serves both. */
	ioapic_put_pin(&r, 12, e);
	lapic_put(&r, 0, EOI, 0);
	irq_set(&r.bus.gsi[12], 1);
	irq_set(&r.bus.gsi[10], 1);
	assert_int_equal(rig_take(&r, 0), 0x51);
	lapic_put(&r, 0, EOI, 0);
	assert_int_equal(rig_take(&r, 0), 0x51);
	rig_fini(&r);
}

/* The 8259's INTR as an ExtINT through IOAPIC pin 0. */
static void test_ioapic_extint(void **state)
{
	struct rig r;

	rig_init(&r, 2);
	rig_init_pics(&r, 0xffff);
	rig_enable_lapic(&r, 0);
	rig_enable_lapic(&r, 1);
	ioapic_put_pin(&r, 0, RTE_DEST(1) | 0x700);
	irq_pulse(&r.bus.gsi[5]);
	assert_int_equal(rig_take(&r, 0), -1);
	assert_int_equal(rig_take(&r, 1), 0x35);
	irq_pulse(&r.bus.gsi[3]);
	assert_int_equal(rig_take(&r, 1), 0x33);
	out8(&r, 0x20, 0x20);
	out8(&r, 0x20, 0x20);
	assert_int_equal(rig_take(&r, 1), -1);
	rig_fini(&r);
}

static void test_esr(void **state)
{
	struct rig r;

	rig_init(&r, 2);
	rig_enable_lapic(&r, 0);
	lapic_put(&r, 0, LVTERR, 0xfe);
	msi(&r, 0, 0x05);
	assert_int_equal(rig_take(&r, 0), 0xfe);
	lapic_put(&r, 0, EOI, 0);
	assert_int_equal(lapic_get(&r, 0, ESR), 0); /* latched by a write only */
	lapic_put(&r, 0, ESR, 0);
	assert_int_equal(lapic_get(&r, 0, ESR), 0x40);
	lapic_put(&r, 0, ESR, 0);
	assert_int_equal(lapic_get(&r, 0, ESR), 0);
	ipi(&r, 0, 1, 0x03);
	lapic_put(&r, 0, 0x3f0, 1); /* no such register here */
	lapic_put(&r, 0, ESR, 0);
	assert_int_equal(lapic_get(&r, 0, ESR), 0xa0);
	assert_int_equal(rig_take(&r, 0), 0xfe);
	/* An error vector that is itself illegal must not recurse. */
	lapic_put(&r, 0, LVTERR, 0x04);
	msi(&r, 0, 0x05);
	rig_fini(&r);
}

static void test_x2apic(void **state)
{
	struct rig r;
	uint64_t v;

	rig_init(&r, 20);
	assert_int_equal(irqchip_msr_read(r.chip, 17, 0x802, &v), -1); /* not in that mode */
	for (unsigned i = 0; i < 20; i++) {
		to_x2apic(&r, i);
		msr_put(&r, i, 0x80f, 0x1ff);
	}
	assert_int_equal(lapic_get(&r, 17, ID), 0xffffffff); /* the page is gone */
	assert_int_equal(msr_get(&r, 17, 0x802), 17);
	assert_int_equal(msr_get(&r, 17, 0x80d), 1u << 16 | 2);
	/* physical, 32-bit */
	msr_put(&r, 0, 0x830, 17ull << 32 | 0x41);
	assert_int_equal(rig_take(&r, 17), 0x41);
	msr_put(&r, 17, 0x80b, 0);
	/* logical: CPUs 16 and 19 of cluster 1 */
	msr_put(&r, 0, 0x830, (1ull << 16 | 0x9) << 32 | 0x842);
	assert_int_equal(rig_take(&r, 16), 0x42);
	assert_int_equal(rig_take(&r, 17), -1);
	assert_int_equal(rig_take(&r, 19), 0x42);
	assert_int_equal(rig_take(&r, 0), -1);
	/* broadcast, self IPI */
	msr_put(&r, 0, 0x830, 0xffffffffull << 32 | 0x43);
	msr_put(&r, 5, 0x83f, 0x61);
	assert_int_equal(rig_take(&r, 5), 0x61);
	for (unsigned i = 6; i < 16; i++)
		assert_int_equal(rig_take(&r, i), 0x43);
	/* MSI and IOAPIC reach IDs below 255 as ever */
	msr_put(&r, 5, 0x80b, 0);
	msi(&r, 5 << 12, 0x71);
	assert_int_equal(rig_take(&r, 5), 0x71);
	/* Linux writes read-only bits of LINT0 back when it powers off: no #GP. */
	msr_put(&r, 0, 0x835, 0x5700);
	assert_int_equal(msr_get(&r, 0, 0x835), 0x700);
	assert_int_equal(irqchip_msr_write(r.chip, 0, 0x835, 0x40700), -1);
	/* #GP: reserved bits, read-only and write-only registers, DFR, high ICR */
	assert_int_equal(irqchip_msr_write(r.chip, 0, 0x80b, 1), -1);
	assert_int_equal(irqchip_msr_write(r.chip, 0, 0x828, 1), -1);
	assert_int_equal(irqchip_msr_write(r.chip, 0, 0x808, 0x100), -1);
	assert_int_equal(irqchip_msr_write(r.chip, 0, 0x802, 0), -1);
	assert_int_equal(irqchip_msr_write(r.chip, 0, 0x80d, 0), -1);
	assert_int_equal(irqchip_msr_write(r.chip, 0, 0x830, 0x100000), -1);
	assert_int_equal(irqchip_msr_read(r.chip, 0, 0x80b, &v), -1);
	assert_int_equal(irqchip_msr_read(r.chip, 0, 0x80e, &v), -1);
	assert_int_equal(irqchip_msr_read(r.chip, 0, 0x831, &v), -1);
	assert_int_equal(irqchip_msr_read(r.chip, 0, 0x840, &v), -1);
	assert_int_equal(irqchip_msr_read(r.chip, 0, 0x8ff, &v), -1);
	/* Read-only bits of an LVT entry may be written, and stay what they are: Linux's power-off does it. */
	msr_put(&r, 0, 0x835, 0x5700);
	assert_int_equal(msr_get(&r, 0, 0x835), 0x700);
	assert_int_equal(irqchip_msr_write(r.chip, 0, 0x835, 0x100000), -1);
	/* Mode changes: not back to xAPIC, off and on again yes */
	assert_int_equal(irqchip_msr_write(r.chip, 3, APIC_BASE_MSR, 0xfee00800), -1);
	msr_put(&r, 3, APIC_BASE_MSR, 0xfee00000);
	assert_int_equal(irqchip_msr_write(r.chip, 3, APIC_BASE_MSR, 0xfee00c00), -1);
	msr_put(&r, 3, APIC_BASE_MSR, 0xfee00800);
	assert_int_equal(lapic_get(&r, 3, SVR), 0xff);
	assert_int_equal(irqchip_msr_write(r.chip, 3, APIC_BASE_MSR, 0xfee00400), -1);
	assert_int_equal(irqchip_msr_write(r.chip, 3, APIC_BASE_MSR, 0xfee00802), -1);
	rig_fini(&r);
}

static void test_timer_one_shot(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_enable_lapic(&r, 0);
	lapic_put(&r, 0, TDCR, 0x3); /* divide by 16: 16 ns a count */
	lapic_put(&r, 0, LVTT, 0xec);
	lapic_put(&r, 0, TMICT, 62500); /* 1 ms */
	rig_advance(&r, MS / 2);
	assert_int_equal(lapic_get(&r, 0, TMCCT), 31250);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_advance(&r, MS / 2 - 1);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_advance(&r, 1);
	assert_int_equal(rig_take(&r, 0), 0xec);
	lapic_put(&r, 0, EOI, 0);
	assert_int_equal(lapic_get(&r, 0, TMCCT), 0);
	rig_advance(&r, 100 * MS);
	assert_int_equal(rig_take(&r, 0), -1);
	/* Writing 0 stops it; masked, it counts silently. */
	lapic_put(&r, 0, TMICT, 62500);
	lapic_put(&r, 0, TMICT, 0);
	rig_advance(&r, 2 * MS);
	assert_int_equal(rig_take(&r, 0), -1);
	lapic_put(&r, 0, LVTT, MASKED | 0xec);
	lapic_put(&r, 0, TMICT, 62500);
	rig_advance(&r, MS / 4);
	assert_int_equal(lapic_get(&r, 0, TMCCT), 46875);
	lapic_put(&r, 0, LVTT, 0xec); /* unmasked in time */
	rig_advance(&r, MS);
	assert_int_equal(rig_take(&r, 0), 0xec);
	/* All dividers */
	for (unsigned n = 0; n < 8; n++) {
		lapic_put(&r, 0, TDCR, (n & 3) | (n & 4) << 1);
		lapic_put(&r, 0, TMICT, 1000000);
		rig_advance(&r, 256000);
		assert_int_equal(1000000 - lapic_get(&r, 0, TMCCT), 256000 >> ((n + 1) & 7));
	}
	rig_fini(&r);
}

static void test_timer_periodic(void **state)
{
	struct rig r;
	unsigned ticks = 0;

	rig_init(&r, 1);
	rig_enable_lapic(&r, 0);
	lapic_put(&r, 0, TDCR, 0xb); /* divide by 1 */
	lapic_put(&r, 0, LVTT, 0x20000 | 0xec);
	lapic_put(&r, 0, TMICT, 4 * MS);
	for (unsigned i = 0; i < 1000; i++) {
		rig_advance(&r, MS);
		if (rig_take(&r, 0) == 0xec) {
			ticks++;
			lapic_put(&r, 0, EOI, 0);
		}
	}
	assert_int_equal(ticks, 250);
	assert_int_equal(lapic_get(&r, 0, TMCCT), 4 * MS);
	/* A silly period must not drown the loop: bounded work in a second of guest time. */
	lapic_put(&r, 0, TMICT, 1);
	rig_advance(&r, 1000 * MS);
	assert_int_equal(rig_take(&r, 0), 0xec);
	rig_fini(&r);
}

static void test_timer_tsc_deadline(void **state)
{
	struct rig r;
	const uint32_t msr = 0x6e0;

	rig_init(&r, 1);
	rig_enable_lapic(&r, 0);
	msr_put(&r, 0, msr, 12345); /* not in that mode: ignored */
	assert_int_equal(msr_get(&r, 0, msr), 0);
	lapic_put(&r, 0, LVTT, 0x40000 | 0xec);
	msr_put(&r, 0, msr, 2 * (rig_now() + MS));
	assert_int_equal(msr_get(&r, 0, msr), 2 * (rig_now() + MS));
	rig_advance(&r, MS - 1);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_advance(&r, 1);
	assert_int_equal(rig_take(&r, 0), 0xec);
	lapic_put(&r, 0, EOI, 0);
	assert_int_equal(msr_get(&r, 0, msr), 0);
	/* A halted vCPU waits for it and fires it itself; the loop then has nothing to do. */
	assert_int_equal(irqchip_timer_deadline(r.chip, 0), UINT64_MAX);
	msr_put(&r, 0, msr, 2 * (rig_now() + MS));
	assert_int_equal(irqchip_timer_deadline(r.chip, 0), rig_now() + MS);
	irqchip_timer_poll(r.chip, 0); /* early */
	assert_int_equal(rig_take(&r, 0), -1);
	for (struct vmtimer *t = r.clock.timers; t; t = t->next) {
		if (t->guest_deadline != UINT64_MAX)
			t->guest_deadline += 1000; /* the loop is late */
	}
	rig_advance(&r, MS);
	irqchip_timer_poll(r.chip, 0);
	assert_int_equal(rig_take(&r, 0), 0xec);
	lapic_put(&r, 0, EOI, 0);
	rig_advance(&r, MS);
	assert_int_equal(rig_take(&r, 0), -1);
	/* A deadline in the past fires at once, 0 disarms, the count register is dead. */
	msr_put(&r, 0, msr, 1);
	assert_int_equal(rig_take(&r, 0), 0xec);
	lapic_put(&r, 0, EOI, 0);
	msr_put(&r, 0, msr, 2 * (rig_now() + MS));
	msr_put(&r, 0, msr, 0);
	lapic_put(&r, 0, TMICT, 1000);
	assert_int_equal(lapic_get(&r, 0, TMICT), 0);
	rig_advance(&r, 10 * MS);
	assert_int_equal(rig_take(&r, 0), -1);
	/* Leaving the mode disarms. */
	msr_put(&r, 0, msr, 2 * (rig_now() + MS));
	lapic_put(&r, 0, LVTT, 0xec);
	rig_advance(&r, 10 * MS);
	assert_int_equal(rig_take(&r, 0), -1);
	/* So far ahead that it does not fit. */
	lapic_put(&r, 0, LVTT, 0x40000 | 0xec);
	msr_put(&r, 0, msr, UINT64_MAX);
	rig_advance(&r, 10 * MS);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_fini(&r);
}

static void test_msi(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_enable_lapic(&r, 0);
	assert_int_equal(r.bus.msi->bind(r.bus.msi_opaque, 0, 0xfee00000, 0x41), -ENOSYS);
	r.bus.msi->send(r.bus.msi_opaque, 0xfed00000, 0x41); /* not the interrupt range */
	assert_int_equal(rig_take(&r, 0), -1);
	msi(&r, 0, 0x4041);
	assert_int_equal(rig_take(&r, 0), 0x41);
	lapic_put(&r, 0, EOI, 0);
	msi(&r, 0, 0x400);
	assert_true(rig_asked(&r, 0, VCPU_REQ_NMI));
	msi(&r, 0x33 << 12, 0x41); /* nobody */
	assert_int_equal(rig_take(&r, 0), -1);
	msi(&r, 0, 0x300); /* reserved mode */
	msi(&r, 0, 0x200); /* SMI */
	rig_fini(&r);
}

/* Any register, any value, any order, from any vCPU; the machine must stay one that a reset mends. */
static void test_hostile(void **state)
{
	struct rig r;
	uint64_t v;

	rig_init(&r, 5);
	for (unsigned i = 0; i < 400000; i++) {
		uint64_t x = i * 0x9e3779b97f4a7c15ull, val = x ^ x >> 29;
		unsigned cpu = (unsigned)(x >> 60) % 5;

		switch (x >> 40 & 7) {
		case 0:
		case 1: lapic_put(&r, cpu, (unsigned)(x >> 44) % 0x100 * 16, (uint32_t)val); break;
		case 2:
			irqchip_msr_write(r.chip, cpu, 0x800 + (unsigned)(x >> 44) % 0x44, (uint32_t)val & 0x1f7ff);
			break;
		case 3: irqchip_msr_write(r.chip, cpu, x >> 44 & 1 ? 0x6e0 : 0x1b, 0xfee00000 | (val & 0xd00)); break;
		case 4: ioapic_put(&r, (unsigned)(x >> 44) % 0x50, (uint32_t)val); break;
		case 5: irq_set(&r.bus.gsi[(x >> 44) % 24], val & 1); break;
		case 6: r.bus.msi->send(r.bus.msi_opaque, 0xfee00000 | (val & 0xfffff), (uint32_t)(val >> 20)); break;
		case 7: rig_advance(&r, val & 0xffff); break;
		}
		lapic_get(&r, cpu, (unsigned)(x >> 36) % 0x100 * 16);
		irqchip_msr_read(r.chip, cpu, 0x800 + (unsigned)(x >> 36) % 0x44, &v);
		rig_take(&r, cpu);
		if (i % 64 == 0)
			irqchip_lapic_reset(r.chip, cpu, x >> 35 & 1);
	}
	for (int i = 0; i < IRQCHIP_GSIS; i++)
		irq_set(&r.bus.gsi[i], 0);
	irqchip_reset(r.chip);
	rig_enable_lapic(&r, 3);
	msi(&r, 3 << 12, 0x41);
	assert_int_equal(rig_take(&r, 3), 0x41);
	rig_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_reset_state),
	    cmocka_unit_test(test_virtual_wire),
	    cmocka_unit_test(test_lint0_fixed_and_nmi),
	    cmocka_unit_test(test_priorities),
	    cmocka_unit_test(test_destinations),
	    cmocka_unit_test(test_lowest_priority),
	    cmocka_unit_test(test_init_sipi),
	    cmocka_unit_test(test_ioapic_edge),
	    cmocka_unit_test(test_ioapic_level),
	    cmocka_unit_test(test_ioapic_extint),
	    cmocka_unit_test(test_esr),
	    cmocka_unit_test(test_x2apic),
	    cmocka_unit_test(test_timer_one_shot),
	    cmocka_unit_test(test_timer_periodic),
	    cmocka_unit_test(test_timer_tsc_deadline),
	    cmocka_unit_test(test_msi),
	    cmocka_unit_test(test_hostile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
