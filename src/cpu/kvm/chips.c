/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * KVM's interrupt controllers and 8254 to and from struct chips. The kernel keeps
 * what the data sheets have under other names; two things it has no place for are
 * lost without harm (8259: LTIM and single mode), and a PIT count starts anew when
 * it is loaded. Main thread, vCPUs stopped.
 */
#include "cpu/chips.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "cpu/kvm/kvm_int.h"
#include "cpu/lapic_regs.h"
#include "io/vmclock.h"

#define PIT_HZ		 1193182ull
#define MSR_TSC_DEADLINE 0x6e0
#define MSR_APIC_BASE	 0x1b

/* ---- 8259, IOAPIC ------------------------------------------------------------------ */

static void pic_from_kvm(struct pic_chip *s, const struct kvm_pic_state *k)
{
	static const uint8_t icw[4] = {0, 2, 3, 4};

	*s = (struct pic_chip){.irr = k->irr,
			       .isr = k->isr,
			       .imr = k->imr,
			       .lines = k->last_irr,
			       .elcr = k->elcr,
			       .vector_base = k->irq_base,
			       .lowest = (k->priority_add + 7) & 7,
			       .icw_next = icw[k->init_state & 3],
			       .need_icw4 = k->init4,
			       .read_isr = k->read_reg_select,
			       .poll = k->poll,
			       .special_mask = k->special_mask,
			       .auto_eoi = k->auto_eoi,
			       .rotate_auto_eoi = k->rotate_on_auto_eoi,
			       .special_nested = k->special_fully_nested_mode};
}

static void pic_to_kvm(struct kvm_pic_state *k, const struct pic_chip *s)
{
	k->irr = s->irr;
	k->isr = s->isr;
	k->imr = s->imr;
	k->last_irr = s->lines;
	k->elcr = s->elcr & k->elcr_mask;
	k->irq_base = s->vector_base & 0xf8;
	k->priority_add = (s->lowest + 1) & 7;
	k->init_state = s->icw_next ? s->icw_next - 1 : 0;
	k->init4 = s->need_icw4;
	k->read_reg_select = s->read_isr;
	k->poll = s->poll;
	k->special_mask = s->special_mask;
	k->auto_eoi = s->auto_eoi;
	k->rotate_on_auto_eoi = s->rotate_auto_eoi;
	k->special_fully_nested_mode = s->special_nested;
}

static void ioapic_from_kvm(struct ioapic_chip *s, const struct kvm_ioapic_state *k)
{
	s->select = (uint8_t)k->ioregsel;
	s->id = k->id & 15;
	s->lines = k->irr & (uint32_t)(BIT(CHIPS_IOAPIC_PINS) - 1) & ~1u;
	for (unsigned i = 0; i < CHIPS_IOAPIC_PINS; i++)
		s->redirection[i] = k->redirtbl[i].bits & ~BIT(12); /* delivery status is never seen */
}

static void ioapic_to_kvm(struct kvm_ioapic_state *k, const struct ioapic_chip *s)
{
	k->ioregsel = s->select;
	k->id = s->id;
	k->irr = s->lines;
	for (unsigned i = 0; i < CHIPS_IOAPIC_PINS; i++)
		k->redirtbl[i].bits = s->redirection[i];
}

/* ---- LAPIC --------------------------------------------------------------------------- */

static uint32_t reg(const struct kvm_lapic_state *k, unsigned n)
{
	return ld32le(k->regs + 16 * n);
}

static void put_reg(struct kvm_lapic_state *k, unsigned n, uint32_t v)
{
	st32le(k->regs + 16 * n, v);
}

static int msr_one(struct kvm_vcpu *kv, unsigned long request, uint32_t index, uint64_t *val)
{
	struct {
		struct kvm_msrs head;
		struct kvm_msr_entry entry;
	} m = {.head.nmsrs = 1, .entry = {.index = index, .data = *val}};
	int rc = kvm_ioctl(kv->fd, request, &m);

	*val = m.entry.data;
	return rc < 0 ? rc : rc == 1 ? 0 : -EIO;
}

static int lapic_get(struct kvm_vcpu *kv, struct lapic_chip *s)
{
	struct kvm_lapic_state k;
	int rc = kvm_ioctl(kv->fd, KVM_GET_LAPIC, &k);

	if (rc < 0)
		return rc;
	*s = (struct lapic_chip){.tpr = reg(&k, REG_TPR),
				 .svr = reg(&k, REG_SVR),
				 .ldr = reg(&k, REG_LDR),
				 .dfr = reg(&k, REG_DFR),
				 .esr = reg(&k, REG_ESR),
				 .icr_low = reg(&k, REG_ICR_LOW),
				 .icr_high = reg(&k, REG_ICR_HIGH),
				 .initial_count = reg(&k, REG_TMICT),
				 .current_count = reg(&k, REG_TMCCT),
				 .divide_config = reg(&k, REG_TDCR) & 0xb};
	for (unsigned i = 0; i < 8; i++) {
		s->irr[i] = reg(&k, REG_IRR + i);
		s->isr[i] = reg(&k, REG_ISR + i);
		s->tmr[i] = reg(&k, REG_TMR + i);
	}
	for (unsigned i = 0; i < CHIPS_LVTS; i++)
		s->lvt[i] = reg(&k, REG_LVT + i) & ~(uint32_t)BIT(12);
	if (msr_one(kv, KVM_GET_MSRS, MSR_APIC_BASE, &s->base) < 0)
		return -EIO;
	/* Not every host has this timer mode. */
	if (msr_one(kv, KVM_GET_MSRS, MSR_TSC_DEADLINE, &s->tsc_deadline) < 0)
		s->tsc_deadline = 0;
	return 0;
}

static void lapic_fill(struct kvm_lapic_state *k, const struct lapic_chip *s)
{
	put_reg(k, REG_TPR, s->tpr);
	put_reg(k, REG_SVR, s->svr);
	put_reg(k, REG_LDR, s->ldr);
	put_reg(k, REG_DFR, s->dfr);
	put_reg(k, REG_ESR, s->esr | s->esr_pending);
	put_reg(k, REG_ICR_LOW, s->icr_low);
	put_reg(k, REG_ICR_HIGH, s->icr_high);
	put_reg(k, REG_TMICT, s->initial_count);
	put_reg(k, REG_TMCCT, s->current_count);
	put_reg(k, REG_TDCR, s->divide_config);
	for (unsigned i = 0; i < 8; i++) {
		put_reg(k, REG_IRR + i, s->irr[i]);
		put_reg(k, REG_ISR + i, s->isr[i]);
		put_reg(k, REG_TMR + i, s->tmr[i]);
	}
	for (unsigned i = 0; i < CHIPS_LVTS; i++)
		put_reg(k, REG_LVT + i, s->lvt[i]);
}

/* The APIC's base was set with the system registers, which say in which mode the page is. */
static int lapic_set(struct kvm_vcpu *kv, const struct lapic_chip *s)
{
	struct kvm_lapic_state k;
	uint64_t deadline = s->tsc_deadline;
	int rc = kvm_ioctl(kv->fd, KVM_GET_LAPIC, &k);

	if (rc < 0)
		return rc;
	lapic_fill(&k, s);
	rc = kvm_ioctl(kv->fd, KVM_SET_LAPIC, &k);
	if (rc == 0 && deadline)
		rc = msr_one(kv, KVM_SET_MSRS, MSR_TSC_DEADLINE, &deadline);
	return rc;
}

/*
 * An interrupt the kernel acknowledged and did not get into the guest: as if it had
 * not been, so that struct cpu_state need not know of it.
 */
static void take_back(struct chips *c, struct lapic_chip *l, uint8_t vector)
{
	const uint32_t bit = 1u << (vector & 31);

	if (l->isr[vector >> 5] & bit) {
		l->isr[vector >> 5] &= ~bit;
		l->irr[vector >> 5] |= bit;
		return;
	}
	for (unsigned i = 0; i < 2; i++) {
		if ((vector & 0xf8) != c->pic[i].vector_base)
			continue;
		c->pic[i].isr &= (uint8_t)~BIT(vector & 7);
		c->pic[i].irr |= (uint8_t)BIT(vector & 7);
		if (i == 1) {
			c->pic[0].isr &= (uint8_t)~BIT(2);
			c->pic[0].irr |= BIT(2);
		}
		return;
	}
}

/* ---- 8254 ------------------------------------------------------------------------------ */

static uint64_t monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void channel_from_kvm(struct pit_channel *s, const struct kvm_pit_channel_state *k)
{
	const uint64_t now = monotonic_ns(), loaded = (uint64_t)k->count_load_time;
	const unsigned mode = k->mode & 7;

	*s = (struct pit_channel){.mode = (uint8_t)(mode > 5 ? mode & 3 : mode),
				  .rw = k->rw_mode & 3 ? k->rw_mode & 3 : 3,
				  .bcd = k->bcd,
				  .gate = k->gate,
				  .loaded = k->count != 0,
				  .counting = k->count != 0,
				  .write_high = k->write_state == 4,
				  .read_high = k->read_state == 4,
				  .count_latched = k->count_latched,
				  .status_latched = k->status_latched,
				  .write_low = k->write_latch,
				  .status_latch = k->status,
				  .count_latch = k->latched_count,
				  .reload = k->count ? MIN(k->count, 65536u) : 65536,
				  .elapsed = loaded && now > loaded ? muldiv64(now - loaded, PIT_HZ, NSEC_PER_SEC) : 0};
	if ((s->mode == 2 || s->mode == 3) && s->reload < 2)
		s->reload = 2;
}

static void channel_to_kvm(struct kvm_pit_channel_state *k, const struct pit_channel *s)
{
	*k = (struct kvm_pit_channel_state){.count = s->next_reload ? s->next_reload : s->reload,
					    .latched_count = s->count_latch,
					    .count_latched = s->count_latched ? s->rw : 0,
					    .status_latched = s->status_latched,
					    .status = s->status_latch,
					    .read_state = s->rw == 3 ? (s->read_high ? 4 : 3) : s->rw,
					    .write_state = s->rw == 3 ? (s->write_high ? 4 : 3) : s->rw,
					    .write_latch = s->write_low,
					    .rw_mode = s->rw,
					    .mode = s->mode,
					    .bcd = s->bcd,
					    .gate = s->gate};
}

static int pit_get(struct kvm_accel *k, struct pit_chip *s)
{
	struct kvm_pit_state2 p;
	int rc = kvm_ioctl(k->vm_fd, KVM_GET_PIT2, &p);

	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < 3; i++)
		channel_from_kvm(&s->channel[i], &p.channels[i]);
	s->port61 = (uint8_t)((p.channels[2].gate ? 1 : 0) | (p.flags & KVM_PIT_FLAGS_SPEAKER_DATA_ON ? 2 : 0));
	s->irq_enabled = !(p.flags & KVM_PIT_FLAGS_HPET_LEGACY);
	return 0;
}

static int pit_set(struct kvm_accel *k, const struct pit_chip *s)
{
	struct kvm_pit_state2 p = {.flags = (s->irq_enabled ? 0u : KVM_PIT_FLAGS_HPET_LEGACY) |
					    (s->port61 & 2 ? KVM_PIT_FLAGS_SPEAKER_DATA_ON : 0u)};

	for (unsigned i = 0; i < 3; i++)
		channel_to_kvm(&p.channels[i], &s->channel[i]);
	return kvm_ioctl(k->vm_fd, KVM_SET_PIT2, &p);
}

/* ---- all of it ---------------------------------------------------------------------------- */

/* The two 8259 and the IOAPIC. */
static int irqchips_get(const struct kvm_accel *k, struct kvm_irqchip chip[3])
{
	int rc = 0;

	for (unsigned i = 0; i < 3 && rc == 0; i++) {
		chip[i] = (struct kvm_irqchip){.chip_id = i};
		rc = kvm_ioctl(k->vm_fd, KVM_GET_IRQCHIP, &chip[i]);
	}
	return rc;
}

int kvm_chips_save(struct accel *a, struct chips *c)
{
	struct kvm_accel *k = kvm_accel_of(a);
	struct kvm_irqchip chip[3];
	int rc = irqchips_get(k, chip);

	if (rc < 0)
		return rc;
	pic_from_kvm(&c->pic[0], &chip[0].chip.pic);
	pic_from_kvm(&c->pic[1], &chip[1].chip.pic);
	ioapic_from_kvm(&c->ioapic, &chip[2].chip.ioapic);
	for (unsigned i = 0; i < a->cfg.ncpus && rc == 0; i++) {
		struct kvm_vcpu_events e = {0};

		rc = lapic_get(kvm_vcpu_of(a->vcpu[i]), &c->lapic[i]);
		if (rc == 0)
			rc = kvm_ioctl(kvm_vcpu_of(a->vcpu[i])->fd, KVM_GET_VCPU_EVENTS, &e);
		if (rc == 0 && e.interrupt.injected && !e.interrupt.soft)
			take_back(c, &c->lapic[i], e.interrupt.nr);
	}
	return rc < 0 ? rc : pit_get(k, &c->pit);
}

int kvm_chips_load(struct accel *a, const struct chips *c)
{
	struct kvm_accel *k = kvm_accel_of(a);
	struct kvm_irqchip chip[3];
	int rc = irqchips_get(k, chip);

	if (rc < 0)
		return rc;
	pic_to_kvm(&chip[0].chip.pic, &c->pic[0]);
	pic_to_kvm(&chip[1].chip.pic, &c->pic[1]);
	ioapic_to_kvm(&chip[2].chip.ioapic, &c->ioapic);
	/* LAPICs first: an asserted pin of the IOAPIC delivers as it is set. */
	for (unsigned i = 0; i < a->cfg.ncpus && rc == 0; i++)
		rc = lapic_set(kvm_vcpu_of(a->vcpu[i]), &c->lapic[i]);
	if (rc == 0)
		rc = pit_set(k, &c->pit);
	for (unsigned i = 0; i < 3 && rc == 0; i++)
		rc = kvm_ioctl(k->vm_fd, KVM_SET_IRQCHIP, &chip[i]);
	/* The kernel counts who holds a line: say it once more for those that are high. */
	for (unsigned gsi = 0; gsi < CHIPS_IOAPIC_PINS && rc == 0; gsi++) {
		const unsigned pin = gsi == 0 ? 2 : gsi;

		if (gsi != 2 && c->ioapic.lines & BIT(pin))
			rc = a->ops->irqchip->set_gsi(a, gsi, 1);
	}
	return rc;
}

/* The timers that count by the TSC or its clock, set anew: guest time has stood since they were loaded. */
int kvm_lapic_timers_rearm(struct kvm_vcpu *kv)
{
	struct lapic_chip s;
	int rc = lapic_get(kv, &s);

	if (rc < 0 || !s.tsc_deadline)
		return rc;
	return msr_one(kv, KVM_SET_MSRS, MSR_TSC_DEADLINE, &s.tsc_deadline);
}
