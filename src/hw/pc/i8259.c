/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two cascaded 8259A interrupt controllers with the PIIX's ELCR. Intel 8259A data
 * sheet (order 231468); 82371SB data sheet, 4D0h and 4D1h.
 * Everything here runs under irqchip.lock, the lock of its port regions too.
 */
#include "hw/pc/irqchip_int.h"

#define ICW1_INIT   BIT(4)
#define ICW1_LTIM   BIT(3)
#define ICW1_SNGL   BIT(1)
#define ICW1_IC4    BIT(0)
#define ICW4_SFNM   BIT(4)
#define ICW4_AEOI   BIT(1)
#define OCW3_SELECT BIT(3)
#define OCW3_ESMM   BIT(6)
#define OCW3_SMM    BIT(5)
#define OCW3_POLL   BIT(2)
#define OCW3_RR	    BIT(1)
#define OCW3_RIS    BIT(0)

/* Of the lines in `bits`, the one with the highest priority under rotation, or -1. */
static int i8259_highest(const struct i8259 *p, uint8_t bits)
{
	for (unsigned i = 1; i <= 8; i++) {
		unsigned line = (p->lowest + i) & 7;

		if (bits & BIT(line))
			return (int)line;
	}
	return -1;
}

/* Place of a line in the present order: 0 is served first. */
static unsigned i8259_rank(const struct i8259 *p, int line)
{
	return ((unsigned)line - p->lowest - 1) & 7;
}

/* The line an INTA would serve now, or -1. */
static int i8259_pending(const struct irqchip *c, const struct i8259 *p)
{
	int line = i8259_highest(p, p->irr & ~p->imr);
	uint8_t isr = p->isr;
	int serving;

	if (line < 0)
		return -1;
	/* Special mask mode: what is masked does not hold back others. */
	if (p->special_mask)
		isr &= ~p->imr;
	/* Special fully nested: the slave may interrupt its own line of the master. */
	if (p->special_nested && p == &c->pic[0])
		isr &= ~BIT(2);
	serving = i8259_highest(p, isr);
	if (serving < 0)
		return line;
	return i8259_rank(p, line) < i8259_rank(p, serving) ? line : -1;
}

static bool i8259_is_level(const struct i8259 *p, unsigned line)
{
	return p->ltim || (p->elcr & BIT(line));
}

/* Edge lines latch until acknowledged; level lines follow. */
static void i8259_drive(struct i8259 *p, unsigned line, bool level)
{
	uint8_t bit = BIT(line);

	if (i8259_is_level(p, line)) {
		if (level)
			p->irr |= bit;
		else
			p->irr &= ~bit;
	} else if (level && !(p->lines & bit)) {
		p->irr |= bit;
	}
	if (level)
		p->lines |= bit;
	else
		p->lines &= ~bit;
}

/* Recompute the cascade and INTR. `pulse`: an INTA ended, so INTR fell and may rise again. */
static void i8259_update(struct irqchip *c, bool pulse)
{
	struct i8259 *master = &c->pic[0];
	bool slave_intr = i8259_pending(c, &c->pic[1]) >= 0;
	bool intr, was = atomic_load_explicit(&c->pic_intr, memory_order_relaxed);

	/* The cascade line is wired, not latched: it follows the slave. */
	if (slave_intr)
		master->irr |= BIT(2);
	else
		master->irr &= ~BIT(2);
	intr = i8259_pending(c, master) >= 0;
	atomic_store(&c->pic_intr, intr);
	bus_watch_line(c->bus, BUS_LINE_INTR, 0, intr);
	if (pulse && was)
		ioapic_set_pin(c, 0, 0);
	if (intr && (!was || pulse)) {
		lapic_lint0_rise(c);
		ioapic_set_pin(c, 0, 1);
	} else if (!intr && was) {
		ioapic_set_pin(c, 0, 0);
	}
}

void i8259_restored(struct irqchip *c)
{
	if (i8259_pending(c, &c->pic[1]) >= 0)
		c->pic[0].irr |= BIT(2);
	else
		c->pic[0].irr &= ~BIT(2);
	atomic_store(&c->pic_intr, i8259_pending(c, &c->pic[0]) >= 0);
}

void i8259_set_line(struct irqchip *c, unsigned irq, int level)
{
	if (irq == 2) /* the cascade */
		return;
	i8259_drive(&c->pic[irq >> 3], irq & 7, level != 0);
	i8259_update(c, false);
}

/* INTA seen by one chip: returns the line; IR7 when the request has gone away. */
static unsigned i8259_accept(struct irqchip *c, struct i8259 *p)
{
	int line = i8259_pending(c, p);

	if (line < 0)
		return 7;
	if (!i8259_is_level(p, (unsigned)line))
		p->irr &= ~BIT(line);
	if (!p->auto_eoi)
		p->isr |= BIT(line);
	else if (p->rotate_auto_eoi)
		p->lowest = (uint8_t)line;
	return (unsigned)line;
}

uint8_t i8259_ack(struct irqchip *c)
{
	bool slave = i8259_pending(c, &c->pic[0]) == 2;
	unsigned line = i8259_accept(c, &c->pic[0]);
	struct i8259 *p = &c->pic[0];

	if (slave) {
		p = &c->pic[1];
		line = i8259_accept(c, p);
	}
	i8259_update(c, true);
	return (uint8_t)(p->vector_base + line);
}

static void i8259_write_icw1(struct i8259 *p, uint8_t val)
{
	/* The edge detectors start anew; level requests are still there. */
	p->irr &= p->elcr;
	p->isr = p->imr = 0;
	p->lowest = 7;
	p->special_mask = p->read_isr = p->poll = false;
	p->auto_eoi = p->rotate_auto_eoi = p->special_nested = false;
	p->need_icw4 = val & ICW1_IC4;
	p->single = val & ICW1_SNGL;
	p->ltim = val & ICW1_LTIM;
	p->icw_next = 2;
}

static void i8259_write_ocw2(struct i8259 *p, uint8_t val)
{
	bool rotate = val & BIT(7), specific = val & BIT(6), eoi = val & BIT(5);
	int line = specific ? val & 7 : i8259_highest(p, p->isr);

	if (!eoi && !specific) {
		p->rotate_auto_eoi = rotate;
		return;
	}
	if (!eoi && !rotate) /* 010b: no operation */
		return;
	/* In special mask mode a non-specific EOI passes over masked lines. */
	if (eoi && !specific && p->special_mask)
		line = i8259_highest(p, p->isr & ~p->imr);
	if (line < 0)
		return;
	if (eoi)
		p->isr &= ~BIT(line);
	if (rotate)
		p->lowest = (uint8_t)line;
}

static void i8259_write_ocw3(struct i8259 *p, uint8_t val)
{
	if (val & OCW3_POLL)
		p->poll = true;
	if (val & OCW3_RR)
		p->read_isr = val & OCW3_RIS;
	if (val & OCW3_ESMM)
		p->special_mask = val & OCW3_SMM;
}

static void i8259_write_data(struct i8259 *p, uint8_t val)
{
	switch (p->icw_next) {
	case 0: p->imr = val; break;
	case 2:
		p->vector_base = val & 0xf8;
		p->icw_next = !p->single ? 3 : p->need_icw4 ? 4 : 0;
		break;
	case 3: /* the cascade wiring is fixed */ p->icw_next = p->need_icw4 ? 4 : 0; break;
	default:
		p->auto_eoi = val & ICW4_AEOI;
		p->special_nested = val & ICW4_SFNM;
		p->icw_next = 0;
		break;
	}
}

static uint64_t i8259_read(void *opaque, uint64_t off, unsigned size)
{
	struct i8259 *p = opaque;

	if (p->poll) {
		bool pending = i8259_pending(p->chip, p) >= 0;
		unsigned line = i8259_accept(p->chip, p);

		p->poll = false;
		i8259_update(p->chip, true);
		return pending ? 0x80 | line : 0;
	}
	if (off)
		return p->imr;
	return p->read_isr ? p->isr : p->irr;
}

static void i8259_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct i8259 *p = opaque;

	if (off)
		i8259_write_data(p, (uint8_t)val);
	else if (val & ICW1_INIT)
		i8259_write_icw1(p, (uint8_t)val);
	else if (val & OCW3_SELECT)
		i8259_write_ocw3(p, (uint8_t)val);
	else
		i8259_write_ocw2(p, (uint8_t)val);
	i8259_update(p->chip, false);
}

static uint64_t elcr_read(void *opaque, uint64_t off, unsigned size)
{
	struct irqchip *c = opaque;

	return c->pic[off].elcr;
}

static void elcr_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct irqchip *c = opaque;
	struct i8259 *p = &c->pic[off];
	uint8_t was = p->elcr;

	p->elcr = val & p->elcr_mask;
	/* A line that became level-triggered requests as long as it is high. */
	p->irr = (p->irr & ~(p->elcr & ~was)) | (p->lines & p->elcr & ~was);
	i8259_update(c, false);
}

void i8259_reset(struct irqchip *c)
{
	/* The timer, keyboard, cascade, RTC and FPU lines are always edge-triggered. */
	static const uint8_t elcr_mask[2] = {0xf8, 0xde};

	for (unsigned i = 0; i < 2; i++) {
		uint8_t lines = c->pic[i].lines; /* the wires keep their level */

		c->pic[i] =
		    (struct i8259){.chip = c, .lines = lines, .elcr_mask = elcr_mask[i], .lowest = 7, .imr = 0xff};
	}
	i8259_update(c, false);
}

static const struct region_ops i8259_ops = {i8259_read, i8259_write, 1, 1};
static const struct region_ops elcr_ops = {elcr_read, elcr_write, 1, 1};

void i8259_map(struct irqchip *c)
{
	static const char *const names[2] = {"i8259-master", "i8259-slave"};
	static const uint16_t base[2] = {0x20, 0xa0};

	for (unsigned i = 0; i < 2; i++) {
		c->pic_region[i] = (struct mem_region){
		    .name = names[i], .size = 2, .ops = &i8259_ops, .opaque = &c->pic[i], .lock = &c->lock};
		ports_map(c->bus->ports, &c->pic_region[i], base[i]);
	}
	c->elcr_region =
	    (struct mem_region){.name = "elcr", .size = 2, .ops = &elcr_ops, .opaque = c, .lock = &c->lock};
	ports_map(c->bus->ports, &c->elcr_region, 0x4d0);
}

void i8259_unmap(struct irqchip *c)
{
	for (unsigned i = 0; i < 2; i++)
		ports_unmap(c->bus->ports, &c->pic_region[i]);
	ports_unmap(c->bus->ports, &c->elcr_region);
}
