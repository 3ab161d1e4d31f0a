/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The software interrupt controllers to and from struct chips. Main thread, vCPUs
 * stopped: nobody delivers meanwhile. Locking: irqchip.h.
 */
#include "hw/pc/irqchip_int.h"

#include "cpu/chips.h"

static void pic_save(const struct i8259 *p, struct pic_chip *s)
{
	*s = (struct pic_chip){.irr = p->irr,
			       .isr = p->isr,
			       .imr = p->imr,
			       .lines = p->lines,
			       .elcr = p->elcr,
			       .vector_base = p->vector_base,
			       .lowest = p->lowest,
			       .icw_next = p->icw_next,
			       .need_icw4 = p->need_icw4,
			       .single = p->single,
			       .ltim = p->ltim,
			       .read_isr = p->read_isr,
			       .poll = p->poll,
			       .special_mask = p->special_mask,
			       .auto_eoi = p->auto_eoi,
			       .rotate_auto_eoi = p->rotate_auto_eoi,
			       .special_nested = p->special_nested};
}

static void pic_load(struct i8259 *p, const struct pic_chip *s)
{
	*p = (struct i8259){.chip = p->chip,
			    .elcr_mask = p->elcr_mask,
			    .irr = s->irr,
			    .isr = s->isr,
			    .imr = s->imr,
			    .lines = s->lines,
			    .elcr = s->elcr & p->elcr_mask,
			    .vector_base = s->vector_base & 0xf8,
			    .lowest = s->lowest,
			    .icw_next = s->icw_next,
			    .need_icw4 = s->need_icw4,
			    .single = s->single,
			    .ltim = s->ltim,
			    .read_isr = s->read_isr,
			    .poll = s->poll,
			    .special_mask = s->special_mask,
			    .auto_eoi = s->auto_eoi,
			    .rotate_auto_eoi = s->rotate_auto_eoi,
			    .special_nested = s->special_nested};
}

static void lapic_save(struct lapic *l, struct lapic_chip *s)
{
	*s = (struct lapic_chip){.base = l->base,
				 .tpr = l->tpr,
				 .svr = l->svr,
				 .ldr = l->ldr,
				 .dfr = l->dfr,
				 .esr = l->esr,
				 .icr_low = l->icr_low,
				 .icr_high = l->icr_high,
				 .esr_pending = l->esr_pending,
				 .extint = l->extint,
				 .initial_count = l->initial_count,
				 .current_count = lapic_timer_current(l),
				 .divide_config = l->divide_config,
				 .tsc_deadline = lapic_timer_deadline(l)};
	for (unsigned i = 0; i < 8; i++) {
		s->irr[i] = l->irr[i];
		s->isr[i] = l->isr[i];
		s->tmr[i] = l->tmr[i];
	}
	for (unsigned i = 0; i < LVT_COUNT; i++)
		s->lvt[i] = l->lvt[i];
}

static void lapic_load(struct lapic *l, const struct lapic_chip *s)
{
	const uint64_t modes = APIC_BASE_EXTD | APIC_BASE_ENABLE;

	/* The page is where it is: only the modes are the guest's. */
	l->base = LAPIC_BASE | (l->index == 0 ? APIC_BASE_BSP : 0) | (s->base & modes);
	l->tpr = s->tpr;
	l->svr = s->svr;
	l->ldr = s->ldr;
	l->dfr = s->dfr;
	l->esr = s->esr;
	l->icr_low = s->icr_low;
	l->icr_high = s->icr_high;
	l->esr_pending = s->esr_pending;
	l->extint = s->extint;
	for (unsigned i = 0; i < 8; i++) {
		/* Vectors below 16 do not exist. */
		const uint32_t mask = i ? UINT32_MAX : 0xffff0000;

		l->irr[i] = s->irr[i] & mask;
		l->isr[i] = s->isr[i] & mask;
		l->tmr[i] = s->tmr[i] & mask;
	}
	for (unsigned i = 0; i < LVT_COUNT; i++)
		l->lvt[i] = s->lvt[i];
	lapic_timer_restore(l, s->initial_count, s->current_count, s->divide_config, s->tsc_deadline);
	lapic_recheck(l);
}

void irqchip_save(struct irqchip *c, struct chips *chips)
{
	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < 2; i++)
		pic_save(&c->pic[i], &chips->pic[i]);
	chips->ioapic.select = c->ioapic.select;
	chips->ioapic.id = c->ioapic.id;
	/* Pin 0 shows the 8259's output, which is computed. */
	chips->ioapic.lines = c->ioapic.lines & ~1u;
	memcpy(chips->ioapic.redirection, c->ioapic.redirection, sizeof(c->ioapic.redirection));
	pthread_mutex_unlock(&c->lock);
	for (unsigned i = 0; i < c->ncpus; i++)
		lapic_save(&c->lapic[i], &chips->lapic[i]);
}

void irqchip_load(struct irqchip *c, const struct chips *chips)
{
	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < 2; i++)
		pic_load(&c->pic[i], &chips->pic[i]);
	i8259_restored(c);
	c->ioapic.select = chips->ioapic.select;
	c->ioapic.id = chips->ioapic.id;
	c->ioapic.lines = (chips->ioapic.lines & ~1u) | (c->pic_intr ? 1 : 0);
	memcpy(c->ioapic.redirection, chips->ioapic.redirection, sizeof(c->ioapic.redirection));
	pthread_mutex_unlock(&c->lock);
	for (unsigned i = 0; i < c->ncpus; i++)
		lapic_load(&c->lapic[i], &chips->lapic[i]);
}
