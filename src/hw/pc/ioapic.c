/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * 82093AA I/O APIC with 24 pins. Intel data sheet 290566, section 3.
 * Pin levels mean "asserted", not volts, so the polarity bit is kept and has no
 * effect. Runs under irqchip.lock, the lock of its memory region too.
 */
#include "hw/pc/irqchip_int.h"
#include "base/log.h"

#define IOREGSEL 0x00
#define IOWIN	 0x10

#define IOAPICID  0x00
#define IOAPICVER 0x01
#define IOAPICARB 0x02
#define IOREDTBL  0x10

#define IOAPIC_VERSION 0x11

#define RTE_VECTOR(e)  ((uint8_t)(e))
#define RTE_MODE(e)    ((enum apic_mode)(((e) >> 8) & 7))
#define RTE_LOGICAL    BIT(11)
#define RTE_POLARITY   BIT(13)
#define RTE_REMOTE_IRR BIT(14)
#define RTE_LEVEL      BIT(15)
#define RTE_MASKED     BIT(16)
#define RTE_DEST(e)    ((uint32_t)((e) >> 56))
#define RTE_WRITABLE   (0xff00000000000000ull | RTE_MASKED | RTE_LEVEL | RTE_POLARITY | RTE_LOGICAL | 0x7ff)

static void ioapic_deliver(struct irqchip *c, unsigned pin)
{
	uint64_t e = c->ioapic.redirection[pin];
	struct apic_msg m = {.dest = RTE_DEST(e),
			     .logical = e & RTE_LOGICAL,
			     .level = e & RTE_LEVEL,
			     .vector = RTE_VECTOR(e),
			     .mode = RTE_MODE(e)};

	/* Remote IRR only where the LAPIC will answer with an EOI. */
	if (lapic_send(c, &m) && m.level && (m.mode == APIC_FIXED || m.mode == APIC_LOWEST))
		c->ioapic.redirection[pin] |= RTE_REMOTE_IRR;
}

/* A level-triggered pin delivers while it is asserted, unmasked and not awaiting an EOI. */
static void ioapic_service_level(struct irqchip *c, unsigned pin)
{
	uint64_t e = c->ioapic.redirection[pin];

	if ((c->ioapic.lines & BIT(pin)) && (e & RTE_LEVEL) && !(e & (RTE_MASKED | RTE_REMOTE_IRR)))
		ioapic_deliver(c, pin);
}

void ioapic_set_pin(struct irqchip *c, unsigned pin, int level)
{
	struct ioapic *s = &c->ioapic;
	bool was = s->lines & BIT(pin);

	if (level)
		s->lines |= BIT(pin);
	else
		s->lines &= ~BIT(pin);
	if (!level)
		return;
	if (s->redirection[pin] & RTE_LEVEL)
		ioapic_service_level(c, pin);
	else if (!was && !(s->redirection[pin] & RTE_MASKED)) /* an edge on a masked pin is lost */
		ioapic_deliver(c, pin);
}

void ioapic_eoi(struct irqchip *c, uint8_t vector)
{
	struct ioapic *s = &c->ioapic;

	for (unsigned pin = 0; pin < IOAPIC_PINS; pin++) {
		uint64_t e = s->redirection[pin];

		if (!(e & RTE_REMOTE_IRR) || RTE_VECTOR(e) != vector)
			continue;
		s->redirection[pin] = e & ~RTE_REMOTE_IRR;
		ioapic_service_level(c, pin);
	}
}

static uint32_t ioapic_read_reg(const struct ioapic *s)
{
	unsigned index = s->select - IOREDTBL;

	switch (s->select) {
	case IOAPICID:
	case IOAPICARB: return (uint32_t)s->id << 24;
	case IOAPICVER: return IOAPIC_VERSION | (IOAPIC_PINS - 1) << 16;
	}
	if (s->select < IOREDTBL || index >= 2 * IOAPIC_PINS)
		return 0;
	return (uint32_t)(s->redirection[index / 2] >> (index & 1 ? 32 : 0));
}

static void ioapic_write_reg(struct irqchip *c, uint32_t val)
{
	struct ioapic *s = &c->ioapic;
	unsigned index = s->select - IOREDTBL, pin = index / 2;
	uint64_t e;

	if (s->select == IOAPICID)
		s->id = (val >> 24) & 15;
	if (s->select < IOREDTBL || pin >= IOAPIC_PINS)
		return;
	e = s->redirection[pin];
	if (index & 1)
		e = (e & 0xffffffffull) | (uint64_t)val << 32;
	else
		e = (e & ~0xffffffffull) | val;
	e = (e & RTE_WRITABLE) | (s->redirection[pin] & RTE_REMOTE_IRR);
	/* Turning a pin to edge and back is how software clears a stuck remote IRR. */
	if (!(e & RTE_LEVEL))
		e &= ~RTE_REMOTE_IRR;
	s->redirection[pin] = e;
	ioapic_service_level(c, pin);
}

static uint64_t ioapic_read(void *opaque, uint64_t off, unsigned size)
{
	struct irqchip *c = opaque;

	if (off == IOREGSEL)
		return c->ioapic.select;
	return off == IOWIN ? ioapic_read_reg(&c->ioapic) : 0;
}

static void ioapic_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct irqchip *c = opaque;

	if (off == IOREGSEL)
		c->ioapic.select = (uint8_t)val;
	else if (off == IOWIN)
		ioapic_write_reg(c, (uint32_t)val);
	else
		log_diag(LOG_GUEST_ERRORS, "ioapic: write to offset 0x%x", (unsigned)off);
}

void ioapic_reset(struct irqchip *c)
{
	struct ioapic *s = &c->ioapic;

	s->select = s->id = 0;
	for (unsigned pin = 0; pin < IOAPIC_PINS; pin++)
		s->redirection[pin] = RTE_MASKED;
}

static const struct region_ops ioapic_ops = {ioapic_read, ioapic_write, 4, 4};

void ioapic_map(struct irqchip *c)
{
	c->ioapic_region =
	    (struct mem_region){.name = "ioapic", .size = 0x1000, .ops = &ioapic_ops, .opaque = c, .lock = &c->lock};
	mem_map_region(c->bus->mem, &c->ioapic_region, IOAPIC_BASE, 1);
}

void ioapic_unmap(struct irqchip *c)
{
	mem_unmap_region(c->bus->mem, &c->ioapic_region);
}
