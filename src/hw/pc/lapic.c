/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The local APIC: acceptance, priorities, acknowledge and end of interrupt, and the
 * message bus between LAPICs. Intel SDM volume 3A, chapter 11 (10 in older
 * editions), "Advanced Programmable Interrupt Controller". Registers: lapic_reg.c;
 * timer: lapic_timer.c.
 *
 * No locks: request bits are set by any thread with atomic operations, TMR before
 * IRR, and VCPU_REQ_INTR after both. The owner clears IRR and changes ISR, TPR.
 */
#include "hw/pc/irqchip_int.h"
#include "base/log.h"

/* ---- 256-bit vector registers ------------------------------------------ */

static int lapic_highest(_Atomic uint32_t *reg)
{
	for (int i = 7; i >= 0; i--) {
		uint32_t v = atomic_load_explicit(&reg[i], memory_order_relaxed);

		if (v)
			return i * 32 + 31 - __builtin_clz(v);
	}
	return -1;
}

static bool lapic_set_bit(_Atomic uint32_t *reg, uint8_t vector)
{
	return !(atomic_fetch_or(&reg[vector >> 5], 1u << (vector & 31)) & (1u << (vector & 31)));
}

static void lapic_clear_bit(_Atomic uint32_t *reg, uint8_t vector)
{
	atomic_fetch_and(&reg[vector >> 5], ~(1u << (vector & 31)));
}

static bool lapic_test_bit(_Atomic uint32_t *reg, uint8_t vector)
{
	return atomic_load_explicit(&reg[vector >> 5], memory_order_relaxed) & (1u << (vector & 31));
}

/* ---- priorities --------------------------------------------------------- */

static bool lapic_hw_enabled(struct lapic *l)
{
	return atomic_load_explicit(&l->base, memory_order_relaxed) & APIC_BASE_ENABLE;
}

static bool lapic_sw_enabled(struct lapic *l)
{
	return atomic_load_explicit(&l->svr, memory_order_relaxed) & SVR_ENABLE;
}

uint8_t lapic_ppr(struct lapic *l)
{
	uint32_t tpr = atomic_load_explicit(&l->tpr, memory_order_relaxed);
	int serving = lapic_highest(l->isr);

	if (serving >= 0 && (uint32_t)(serving & 0xf0) > (tpr & 0xf0))
		return serving & 0xf0;
	return (uint8_t)tpr;
}

/* The vector that would be dispensed now, or -1. */
static int lapic_deliverable(struct lapic *l)
{
	int vector = lapic_highest(l->irr);

	if (vector < 0 || !lapic_hw_enabled(l))
		return -1;
	return (vector & 0xf0) > (lapic_ppr(l) & 0xf0) ? vector : -1;
}

/* Does an ExtINT from the 8259 reach this CPU: through LINT0, the IOAPIC, or a disabled LAPIC? */
static bool lapic_extint_pending(struct lapic *l)
{
	uint32_t lint0 = atomic_load_explicit(&l->lvt[LVT_LINT0], memory_order_relaxed);

	if (atomic_load_explicit(&l->extint, memory_order_relaxed))
		return true;
	if (!atomic_load_explicit(&l->chip->pic_intr, memory_order_relaxed))
		return false;
	/* A disabled LAPIC leaves the INTR pin to the 8259, which a PC wires to the boot CPU. */
	if (!lapic_hw_enabled(l))
		return l->index == 0;
	return LVT_MODE(lint0) == APIC_EXTINT && !(lint0 & LVT_MASKED);
}

static void lapic_request(struct lapic *l, uint32_t what)
{
	if (l->vcpu)
		vcpu_request(l->vcpu, what);
}

void lapic_recheck(struct lapic *l)
{
	if (lapic_deliverable(l) >= 0 || lapic_extint_pending(l))
		lapic_request(l, VCPU_REQ_INTR);
}

/* ---- acceptance --------------------------------------------------------- */

void lapic_error(struct lapic *l, uint32_t bit)
{
	if (!(atomic_fetch_or(&l->esr_pending, bit) & bit))
		lapic_lvt_fire(l, LVT_ERROR);
}

static bool lapic_accept_fixed(struct lapic *l, uint8_t vector, bool level)
{
	if (!lapic_sw_enabled(l))
		return false;
	if (vector < 16) {
		lapic_error(l, ESR_RECV_ILLEGAL);
		return true;
	}
	/* The trigger mode belongs to the request: it must be there when the request is seen. */
	if (level)
		lapic_set_bit(l->tmr, vector);
	else if (lapic_test_bit(l->tmr, vector))
		lapic_clear_bit(l->tmr, vector);
	if (lapic_set_bit(l->irr, vector))
		lapic_request(l, VCPU_REQ_INTR);
	return true;
}

static void lapic_accept_init(struct lapic *l)
{
	/* A start-up message that came before this INIT is void; one that comes after is latched by its
	 * request bit until the processor, whatever it does now, has taken the INIT. */
	if (l->vcpu)
		atomic_fetch_and(&l->vcpu->requests, ~(uint32_t)VCPU_REQ_SIPI);
	lapic_request(l, VCPU_REQ_INIT);
}

static void lapic_accept_sipi(struct lapic *l, uint8_t vector)
{
	if (!l->vcpu)
		return;
	atomic_store(&l->vcpu->sipi_vector, vector);
	lapic_request(l, VCPU_REQ_SIPI);
}

bool lapic_accept(struct lapic *l, enum apic_mode mode, uint8_t vector, bool level)
{
	if (!lapic_hw_enabled(l))
		return false;
	switch (mode) {
	case APIC_FIXED:
	case APIC_LOWEST: return lapic_accept_fixed(l, vector, level);
	case APIC_NMI: lapic_request(l, VCPU_REQ_NMI); return true;
	case APIC_INIT: lapic_accept_init(l); return true;
	case APIC_SIPI: lapic_accept_sipi(l, vector); return true;
	case APIC_EXTINT:
		atomic_store(&l->extint, true);
		lapic_request(l, VCPU_REQ_INTR);
		return true;
	case APIC_SMI:
		log_diag(LOG_UNIMP, "lapic %u: SMI ignored: there is no system management mode", l->index);
		break;
	case APIC_MODE3: log_diag(LOG_GUEST_ERRORS, "lapic %u: reserved delivery mode", l->index); break;
	}
	return false;
}

void lapic_lvt_fire(struct lapic *l, enum lapic_lvt which)
{
	uint32_t lvt = atomic_load_explicit(&l->lvt[which], memory_order_relaxed);
	enum apic_mode mode = LVT_MODE(lvt);

	if (lvt & LVT_MASKED)
		return;
	/* Timer and error entries have no delivery mode. */
	if (which == LVT_TIMER || which == LVT_ERROR)
		mode = APIC_FIXED;
	if (mode == APIC_FIXED && which == LVT_ERROR && (lvt & 0xff) < 16) {
		/* An illegal error vector must not report itself for ever. */
		atomic_fetch_or(&l->esr_pending, ESR_RECV_ILLEGAL);
		return;
	}
	if (mode == APIC_EXTINT) { /* the level of pic_intr is what counts */
		lapic_request(l, VCPU_REQ_INTR);
		return;
	}
	lapic_accept(l, mode, (uint8_t)lvt, false);
}

void lapic_lint0_rise(struct irqchip *c)
{
	for (unsigned i = 0; i < c->ncpus; i++) {
		struct lapic *l = &c->lapic[i];

		if (lapic_hw_enabled(l))
			lapic_lvt_fire(l, LVT_LINT0);
		else if (i == 0)
			lapic_request(l, VCPU_REQ_INTR);
	}
}

void irqchip_inject_nmi(struct irqchip *c)
{
	for (unsigned i = 0; i < c->ncpus; i++) {
		struct lapic *l = &c->lapic[i];

		if (lapic_hw_enabled(l))
			lapic_lvt_fire(l, LVT_LINT1);
		else
			lapic_request(l, VCPU_REQ_NMI);
	}
}

/* ---- the message bus ---------------------------------------------------- */

static bool lapic_x2apic(struct lapic *l)
{
	return atomic_load_explicit(&l->base, memory_order_relaxed) & APIC_BASE_EXTD;
}

static bool lapic_matches_logical(struct lapic *l, uint32_t dest, bool wide)
{
	uint32_t ldr = atomic_load_explicit(&l->ldr, memory_order_relaxed);

	if (lapic_x2apic(l)) {
		if (wide && dest == 0xffffffff)
			return true;
		return dest >> 16 == ldr >> 16 && (dest & ldr & 0xffff);
	}
	if (dest == 0xff || (wide && dest == 0xffffffff))
		return true;
	if (dest > 0xff)
		return false;
	ldr >>= 24;
	if (atomic_load_explicit(&l->dfr, memory_order_relaxed) >> 28 == 0xf) /* flat model */
		return dest & ldr;
	return (dest >> 4 == 0xf || dest >> 4 == ldr >> 4) && (dest & ldr & 0xf);
}

static bool lapic_matches(struct lapic *l, const struct apic_msg *m)
{
	if (m->logical)
		return lapic_matches_logical(l, m->dest, m->wide);
	return m->dest == l->id || m->dest == (m->wide ? 0xffffffff : 0xff);
}

/* Among those addressed, one with the lowest priority; equals take turns. */
static struct lapic *lapic_arbitrate(struct irqchip *c, const struct apic_msg *m)
{
	unsigned start = atomic_fetch_add_explicit(&c->lowest_turn, 1, memory_order_relaxed);
	struct lapic *best = NULL;
	unsigned best_ppr = 256;

	for (unsigned i = 0; i < c->ncpus && best_ppr; i++) {
		struct lapic *l = &c->lapic[(start + i) % c->ncpus];

		if (lapic_hw_enabled(l) && lapic_sw_enabled(l) && lapic_matches(l, m) && lapic_ppr(l) < best_ppr) {
			best = l;
			best_ppr = lapic_ppr(l);
		}
	}
	return best;
}

unsigned lapic_send(struct irqchip *c, const struct apic_msg *m)
{
	unsigned taken = 0;

	if (m->mode == APIC_LOWEST) {
		struct lapic *l = lapic_arbitrate(c, m);

		return l && lapic_accept(l, APIC_FIXED, m->vector, m->level);
	}
	/* The common case: one CPU, whose ID is its index. */
	if (!m->logical && m->dest != 0xff && m->dest < c->ncpus && c->lapic[m->dest].id == m->dest)
		return lapic_accept(&c->lapic[m->dest], m->mode, m->vector, m->level);
	for (unsigned i = 0; i < c->ncpus; i++) {
		if (lapic_matches(&c->lapic[i], m))
			taken += lapic_accept(&c->lapic[i], m->mode, m->vector, m->level);
	}
	return taken;
}

enum { ICR_DEST, ICR_SELF, ICR_ALL, ICR_OTHERS };

/* Write of the interrupt command register's low half: send an interprocessor interrupt. */
void lapic_send_ipi(struct lapic *l)
{
	uint32_t low = l->icr_low;
	bool wide = lapic_x2apic(l);
	unsigned shorthand = (low >> 18) & 3;
	struct apic_msg m = {.dest = wide ? l->icr_high : l->icr_high >> 24,
			     .logical = low & BIT(11),
			     .vector = (uint8_t)low,
			     .mode = (enum apic_mode)((low >> 8) & 7),
			     .wide = wide};

	if (m.mode == APIC_INIT && (low & BIT(15)) && !(low & BIT(14)))
		return; /* INIT level de-assert: only old arbitration IDs cared */
	if ((m.mode == APIC_FIXED || m.mode == APIC_LOWEST) && m.vector < 16) {
		lapic_error(l, ESR_SEND_ILLEGAL);
		return;
	}
	switch (shorthand) {
	case ICR_DEST: lapic_send(l->chip, &m); break;
	case ICR_SELF: lapic_accept(l, m.mode, m.vector, false); break;
	default:
		for (unsigned i = 0; i < l->chip->ncpus; i++) {
			if (shorthand == ICR_ALL || &l->chip->lapic[i] != l)
				lapic_accept(&l->chip->lapic[i], m.mode, m.vector, false);
		}
	}
}

/* ---- the owner: acknowledge, end, priorities ---------------------------- */

bool irqchip_intr_pending(struct irqchip *c, unsigned cpu)
{
	struct lapic *l = &c->lapic[cpu];

	return lapic_deliverable(l) >= 0 || lapic_extint_pending(l);
}

static int lapic_ack_extint(struct lapic *l)
{
	struct irqchip *c = l->chip;
	int vector = -1;

	pthread_mutex_lock(&c->lock);
	/* Another CPU may have taken it in between. */
	if (lapic_extint_pending(l)) {
		atomic_store(&l->extint, false);
		vector = i8259_ack(c);
	}
	pthread_mutex_unlock(&c->lock);
	return vector;
}

int irqchip_intr_ack(struct irqchip *c, unsigned cpu)
{
	struct lapic *l = &c->lapic[cpu];
	int vector = lapic_deliverable(l);

	if (vector < 0)
		return lapic_extint_pending(l) ? lapic_ack_extint(l) : -1;
	lapic_clear_bit(l->irr, (uint8_t)vector);
	lapic_set_bit(l->isr, (uint8_t)vector);
	return vector;
}

void lapic_eoi(struct lapic *l)
{
	int vector = lapic_highest(l->isr);

	if (vector < 0)
		return;
	lapic_clear_bit(l->isr, (uint8_t)vector);
	if (lapic_test_bit(l->tmr, (uint8_t)vector)) {
		pthread_mutex_lock(&l->chip->lock);
		ioapic_eoi(l->chip, (uint8_t)vector);
		pthread_mutex_unlock(&l->chip->lock);
	}
	lapic_recheck(l);
}

uint64_t irqchip_tpr_get(struct irqchip *c, unsigned cpu)
{
	return atomic_load_explicit(&c->lapic[cpu].tpr, memory_order_relaxed) >> 4;
}

void lapic_set_tpr(struct lapic *l, uint8_t tpr)
{
	uint32_t was = atomic_load_explicit(&l->tpr, memory_order_relaxed);

	atomic_store_explicit(&l->tpr, tpr, memory_order_relaxed);
	if (tpr < was)
		lapic_recheck(l);
}

void irqchip_tpr_set(struct irqchip *c, unsigned cpu, uint64_t cr8)
{
	lapic_set_tpr(&c->lapic[cpu], (uint8_t)(cr8 << 4));
}

/* ---- reset -------------------------------------------------------------- */

void lapic_reset(struct lapic *l, bool init)
{
	uint64_t base = atomic_load(&l->base);

	if (!init) {
		base = LAPIC_BASE | APIC_BASE_ENABLE | (l->index == 0 ? APIC_BASE_BSP : 0);
		atomic_store(&l->base, base);
	}
	lapic_timer_reset(l);
	for (unsigned i = 0; i < 8; i++) {
		atomic_store(&l->irr[i], 0);
		atomic_store(&l->isr[i], 0);
		atomic_store(&l->tmr[i], 0);
	}
	for (unsigned i = 0; i < LVT_COUNT; i++)
		atomic_store(&l->lvt[i], (uint32_t)LVT_MASKED);
	/* Without firmware to do it, the boot processor starts in virtual wire mode (MP 1.4, 3.6.2.2). */
	if (l->index == 0)
		atomic_store(&l->lvt[LVT_LINT0], (uint32_t)APIC_EXTINT << 8);
	atomic_store(&l->tpr, 0);
	atomic_store(&l->svr, 0xff);
	atomic_store(&l->dfr, 0xffffffff);
	atomic_store(&l->ldr, base & APIC_BASE_EXTD ? lapic_x2apic_ldr(l) : 0);
	atomic_store(&l->extint, false);
	atomic_store(&l->esr_pending, 0);
	l->esr = l->icr_low = l->icr_high = 0;
}

uint32_t lapic_x2apic_ldr(const struct lapic *l)
{
	return (l->id >> 4) << 16 | 1u << (l->id & 15);
}

void irqchip_lapic_reset(struct irqchip *c, unsigned cpu, bool init)
{
	lapic_reset(&c->lapic[cpu], init);
}

void lapic_init(struct irqchip *c, unsigned index, uint32_t id)
{
	struct lapic *l = &c->lapic[index];

	l->chip = c;
	l->index = index;
	l->id = id;
	lapic_timer_init(l);
}

void lapic_fini(struct lapic *l)
{
	lapic_timer_fini(l);
}
