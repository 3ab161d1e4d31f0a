/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The software interrupt controllers as one object: creation, the GSI router and
 * MSI (Intel SDM volume 3A, section 11.11). Locking: irqchip.h.
 */
#include "hw/pc/irqchip.h"
#include <errno.h>
#include <stdlib.h>
#include "hw/pc/irqchip_int.h"

struct irqchip *irqchip_create(struct bus *bus, unsigned ncpus, const uint32_t *apic_ids, struct err *err)
{
	struct irqchip *c = calloc(1, sizeof(*c));

	if (c)
		c->lapic = aligned_alloc(64, ncpus * sizeof(*c->lapic));
	if (!c || !c->lapic) {
		free(c);
		err_set(err, -ENOMEM, "no memory for the interrupt controllers of %u vCPUs", ncpus);
		return NULL;
	}
	memset(c->lapic, 0, ncpus * sizeof(*c->lapic));
	c->bus = bus;
	c->ncpus = ncpus;
	pthread_mutex_init(&c->lock, NULL);
	for (unsigned i = 0; i < ncpus; i++)
		lapic_init(c, i, apic_ids ? apic_ids[i] : i);
	i8259_map(c);
	ioapic_map(c);
	lapic_map(c);
	irqchip_reset(c);
	return c;
}

void irqchip_destroy(struct irqchip *c)
{
	if (!c)
		return;
	lapic_unmap(c);
	ioapic_unmap(c);
	i8259_unmap(c);
	for (unsigned i = 0; i < c->ncpus; i++)
		lapic_fini(&c->lapic[i]);
	pthread_mutex_destroy(&c->lock);
	free(c->lapic);
	free(c);
}

void irqchip_set_vcpu(struct irqchip *c, unsigned cpu, struct vcpu *v)
{
	c->lapic[cpu].vcpu = v;
}

void irqchip_reset(struct irqchip *c)
{
	for (unsigned i = 0; i < c->ncpus; i++)
		lapic_reset(&c->lapic[i], false);
	pthread_mutex_lock(&c->lock);
	ioapic_reset(c);
	i8259_reset(c);
	pthread_mutex_unlock(&c->lock);
}

void irqchip_set_gsi(void *chip, int gsi, int level)
{
	struct irqchip *c = chip;

	if (gsi < 0 || gsi >= IRQCHIP_GSIS)
		return;
	bus_watch_line(c->bus, BUS_LINE_GSI, gsi, level);
	pthread_mutex_lock(&c->lock);
	if (gsi < 16)
		i8259_set_line(c, (unsigned)gsi, level);
	if (gsi == 0)
		ioapic_set_pin(c, 2, level);
	else if (gsi != 2)
		ioapic_set_pin(c, (unsigned)gsi, level);
	pthread_mutex_unlock(&c->lock);
}

/* Address: 0xfee, destination in bits 19..12, logical in bit 2. Data: vector, mode, trigger. */
static void irqchip_msi_send(void *opaque, uint64_t addr, uint32_t data)
{
	struct apic_msg m = {.dest = (uint32_t)(addr >> 12) & 0xff,
			     .logical = addr & BIT(2),
			     .level = data & BIT(15),
			     .vector = (uint8_t)data,
			     .mode = (enum apic_mode)((data >> 8) & 7)};

	/* A message is a write of four bytes: elsewhere it is one to RAM, as any DMA. */
	if (addr >> 20 != 0xfee) {
		uint8_t le[4];

		st32le(le, data);
		dma_write(((struct irqchip *)opaque)->bus->mem, addr, le, sizeof(le));
		return;
	}
	/* Redirection hint: one of those addressed, though the mode says fixed. */
	if (addr & BIT(3) && m.logical && m.mode == APIC_FIXED)
		m.mode = APIC_LOWEST;
	lapic_send(opaque, &m);
}

static int irqchip_msi_bind(void *opaque, int fd, uint64_t addr, uint32_t data)
{
	return -ENOSYS;
}

static int irqchip_msi_rebind(void *opaque, int handle, uint64_t addr, uint32_t data)
{
	return -ENOSYS;
}

static void irqchip_msi_unbind(void *opaque, int handle, int fd) {}

const struct msi_ops irqchip_msi_ops = {irqchip_msi_send, irqchip_msi_bind, irqchip_msi_rebind, irqchip_msi_unbind};
