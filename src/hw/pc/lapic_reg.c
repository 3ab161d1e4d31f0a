/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The local APIC's registers: the memory page (xAPIC) and the MSRs (x2APIC), both
 * over one table. Intel SDM volume 3A, tables 11-1 and 11-6. Only the
 * owning vCPU's thread comes here.
 */
#include "hw/pc/irqchip_int.h"
#include "base/log.h"
#include "cpu/lapic_regs.h"

#define LAPIC_VERSION (0x14 | (LVT_COUNT - 1) << 16)

#define MSR_APIC_BASE	 0x1b
#define MSR_TSC_DEADLINE 0x6e0
#define MSR_X2APIC	 0x800

/* Access in xAPIC (XR, XW) and x2APIC mode (X2R, X2W). `wmask`: bits that may be written, `ro`: those that
 * software may write although only the LAPIC sets them (delivery status, remote IRR); the others
 * are reserved: kept zero, or refused in x2APIC mode. */
enum { XR = 1, XW = 2, X2R = 4, X2W = 8, RO = XR | X2R, RW = XR | XW | X2R | X2W };
struct lapic_reg {
	uint8_t access;
	uint32_t wmask, ro;
};
static const struct lapic_reg lapic_regs[REG_COUNT] = {
    [REG_ID] = {RO, 0, 0},
    [REG_VERSION] = {RO, 0, 0},
    [REG_TPR] = {RW, 0xff, 0},
    [REG_APR] = {XR, 0, 0},
    [REG_PPR] = {RO, 0, 0},
    [REG_EOI] = {XW | X2W, 0, 0},
    [REG_RRD] = {XR, 0, 0},
    [REG_LDR] = {XR | XW | X2R, 0xff000000, 0},
    [REG_DFR] = {XR | XW, 0xf0000000, 0},
    [REG_SVR] = {RW, 0x1ff, 0},
    [REG_ISR... REG_ISR + 7] = {RO, 0, 0},
    [REG_TMR... REG_TMR + 7] = {RO, 0, 0},
    [REG_IRR... REG_IRR + 7] = {RO, 0, 0},
    [REG_ESR] = {RW, 0, 0},
    [REG_ICR_LOW] = {RW, 0xccfff, 0x1000},
    [REG_ICR_HIGH] = {XR | XW, 0xff000000, 0},
    [REG_LVT + LVT_TIMER] = {RW, 0x700ff, 0x1000},
    [REG_LVT + LVT_THERMAL] = {RW, 0x107ff, 0x1000},
    [REG_LVT + LVT_PERF] = {RW, 0x107ff, 0x1000},
    [REG_LVT + LVT_LINT0] = {RW, 0x1a7ff, 0x5000},
    [REG_LVT + LVT_LINT1] = {RW, 0x1a7ff, 0x5000},
    [REG_LVT + LVT_ERROR] = {RW, 0x100ff, 0x1000},
    [REG_TMICT] = {RW, 0xffffffff, 0},
    [REG_TMCCT] = {RO, 0, 0},
    [REG_TDCR] = {RW, 0xb, 0},
    [REG_SELF_IPI] = {X2W, 0xff, 0},
};

static uint32_t lapic_load(_Atomic uint32_t *p)
{
	return atomic_load_explicit(p, memory_order_relaxed);
}

static uint32_t lapic_reg_read(struct lapic *l, unsigned reg)
{
	bool x2 = atomic_load(&l->base) & APIC_BASE_EXTD;

	switch (reg) {
	case REG_ID: return x2 ? l->id : l->id << 24;
	case REG_VERSION: return LAPIC_VERSION;
	case REG_TPR: return lapic_load(&l->tpr);
	case REG_PPR: return lapic_ppr(l);
	case REG_LDR: return lapic_load(&l->ldr);
	case REG_DFR: return lapic_load(&l->dfr);
	case REG_SVR: return lapic_load(&l->svr);
	case REG_ISR ... REG_ISR + 7: return lapic_load(&l->isr[reg - REG_ISR]);
	case REG_TMR ... REG_TMR + 7: return lapic_load(&l->tmr[reg - REG_TMR]);
	case REG_IRR ... REG_IRR + 7: return lapic_load(&l->irr[reg - REG_IRR]);
	case REG_ESR: return l->esr;
	case REG_ICR_LOW: return l->icr_low;
	case REG_ICR_HIGH: return l->icr_high;
	case REG_LVT ... REG_LVT + LVT_COUNT - 1: return lapic_load(&l->lvt[reg - REG_LVT]);
	case REG_TMICT: return l->initial_count;
	case REG_TMCCT: return lapic_timer_current(l);
	case REG_TDCR: return l->divide_config;
	}
	return 0;
}

static void lapic_write_svr(struct lapic *l, uint32_t val)
{
	atomic_store(&l->svr, val);
	if (val & SVR_ENABLE)
		return;
	/* Software disabled: all LVT entries are masked until it is enabled again. */
	for (unsigned i = 0; i < LVT_COUNT; i++) {
		uint32_t old = atomic_fetch_or(&l->lvt[i], (uint32_t)LVT_MASKED);

		if (i == LVT_TIMER)
			lapic_timer_lvt_changed(l, old);
	}
}

static void lapic_write_lvt(struct lapic *l, enum lapic_lvt which, uint32_t val)
{
	uint32_t old;

	if (!(lapic_load(&l->svr) & SVR_ENABLE))
		val |= LVT_MASKED;
	old = atomic_exchange(&l->lvt[which], val);
	if (which == LVT_TIMER)
		lapic_timer_lvt_changed(l, old);
	if (which == LVT_LINT0)
		lapic_recheck(l);
}

static void lapic_reg_write(struct lapic *l, unsigned reg, uint32_t val)
{
	switch (reg) {
	case REG_TPR: lapic_set_tpr(l, (uint8_t)val); break;
	case REG_EOI: lapic_eoi(l); break;
	case REG_LDR: atomic_store(&l->ldr, val); break;
	case REG_DFR: atomic_store(&l->dfr, val | 0x0fffffff); break;
	case REG_SVR: lapic_write_svr(l, val); break;
	case REG_ESR: l->esr = atomic_exchange(&l->esr_pending, 0); break;
	case REG_ICR_LOW:
		l->icr_low = val;
		lapic_send_ipi(l);
		break;
	case REG_ICR_HIGH: l->icr_high = val; break;
	case REG_LVT ... REG_LVT + LVT_COUNT - 1: lapic_write_lvt(l, reg - REG_LVT, val); break;
	case REG_TMICT: lapic_timer_set_initial(l, val); break;
	case REG_TDCR: lapic_timer_set_divide(l, val); break;
	case REG_SELF_IPI: lapic_accept(l, APIC_FIXED, (uint8_t)val, false); break;
	}
}

/* ---- xAPIC: the page ---------------------------------------------------- */

/* Which vCPU this thread is; the page's address does not say. */
static __thread unsigned lapic_thread_cpu;

void irqchip_bind_thread(struct irqchip *c, unsigned cpu)
{
	lapic_thread_cpu = cpu;
}

static struct lapic *lapic_of_thread(struct irqchip *c)
{
	struct lapic *l = &c->lapic[lapic_thread_cpu < c->ncpus ? lapic_thread_cpu : 0];

	/* Disabled, or spoken to through MSRs: the page is not there. */
	return (atomic_load(&l->base) & (APIC_BASE_ENABLE | APIC_BASE_EXTD)) == APIC_BASE_ENABLE ? l : NULL;
}

static uint64_t lapic_page_read(void *opaque, uint64_t off, unsigned size)
{
	struct lapic *l = lapic_of_thread(opaque);
	unsigned reg = (unsigned)(off >> 4);

	if (!l)
		return 0xffffffff;
	if ((off & 15) || reg >= REG_COUNT)
		return 0;
	if (!(lapic_regs[reg].access & XR)) {
		if (reg != REG_EOI)
			lapic_error(l, ESR_ILLEGAL_REG);
		return 0;
	}
	return lapic_reg_read(l, reg);
}

static void lapic_page_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct lapic *l = lapic_of_thread(opaque);
	unsigned reg = (unsigned)(off >> 4);

	if (!l || (off & 15))
		return;
	if (reg >= REG_COUNT || !(lapic_regs[reg].access & (XR | XW))) {
		lapic_error(l, ESR_ILLEGAL_REG);
		return;
	}
	if (lapic_regs[reg].access & XW)
		lapic_reg_write(l, reg, (uint32_t)val & lapic_regs[reg].wmask);
}

static const struct region_ops lapic_ops = {lapic_page_read, lapic_page_write, 4, 4};

void lapic_map(struct irqchip *c)
{
	/* No lock: only the owner comes here, and what others touch is atomic. */
	c->lapic_region = (struct mem_region){.name = "lapic", .size = 0x1000, .ops = &lapic_ops, .opaque = c};
	mem_map_region(c->bus->mem, &c->lapic_region, LAPIC_BASE, 2);
}

void lapic_unmap(struct irqchip *c)
{
	mem_unmap_region(c->bus->mem, &c->lapic_region);
}

/* ---- MSRs --------------------------------------------------------------- */

static int lapic_write_base(struct lapic *l, uint64_t val)
{
	uint64_t old = atomic_load(&l->base);
	bool enable = val & APIC_BASE_ENABLE, extd = val & APIC_BASE_EXTD;

	if (val & ~(uint64_t)(0xfffffffff000ull | APIC_BASE_BSP | APIC_BASE_EXTD | APIC_BASE_ENABLE))
		return -1;
	if ((val & 0xfffffffff000ull) != LAPIC_BASE) {
		log_diag(LOG_UNIMP, "lapic %u: its page cannot be moved to 0x%llx", l->index, (unsigned long long)val);
		return -1;
	}
	/* Legal moves (SDM figure 11-27): off -> xAPIC -> x2APIC -> off, and xAPIC -> off. */
	if (extd && (!enable || !(old & APIC_BASE_ENABLE)))
		return -1;
	if ((old & APIC_BASE_EXTD) && enable && !extd)
		return -1;
	if (!enable && (old & APIC_BASE_ENABLE)) {
		atomic_store(&l->base, val);
		lapic_reset(l, true);
		return 0;
	}
	if (extd && !(old & APIC_BASE_EXTD)) {
		atomic_store(&l->ldr, lapic_x2apic_ldr(l));
		l->icr_high = 0;
	}
	atomic_store(&l->base, val);
	return 0;
}

/* The x2APIC register of an MSR that may be accessed so now, or -1. */
static int lapic_msr_reg(struct lapic *l, uint32_t msr, unsigned access)
{
	unsigned reg = msr - MSR_X2APIC;

	if (!(atomic_load(&l->base) & APIC_BASE_EXTD) || reg >= REG_COUNT || !(lapic_regs[reg].access & access))
		return -1;
	return (int)reg;
}

int irqchip_msr_read(struct irqchip *c, unsigned cpu, uint32_t msr, uint64_t *val)
{
	struct lapic *l = &c->lapic[cpu];
	int reg;

	if (msr == MSR_APIC_BASE) {
		*val = atomic_load(&l->base);
		return 0;
	}
	if (msr == MSR_TSC_DEADLINE) {
		*val = lapic_timer_deadline(l);
		return 0;
	}
	reg = lapic_msr_reg(l, msr, X2R);
	if (reg < 0)
		return -1;
	*val = lapic_reg_read(l, (unsigned)reg);
	if (reg == REG_ICR_LOW)
		*val |= (uint64_t)l->icr_high << 32;
	return 0;
}

int irqchip_msr_write(struct irqchip *c, unsigned cpu, uint32_t msr, uint64_t val)
{
	struct lapic *l = &c->lapic[cpu];
	uint64_t allowed;
	int reg;

	if (msr == MSR_APIC_BASE)
		return lapic_write_base(l, val);
	if (msr == MSR_TSC_DEADLINE) {
		lapic_timer_set_deadline(l, val);
		return 0;
	}
	reg = lapic_msr_reg(l, msr, X2W);
	if (reg < 0)
		return -1;
	allowed = lapic_regs[reg].wmask | lapic_regs[reg].ro;
	if (reg == REG_ICR_LOW)
		allowed |= 0xffffffff00000000; /* the destination */
	if (val & ~allowed)
		return -1;
	if (reg == REG_ICR_LOW)
		l->icr_high = (uint32_t)(val >> 32);
	lapic_reg_write(l, (unsigned)reg, (uint32_t)val & lapic_regs[reg].wmask);
	return 0;
}
