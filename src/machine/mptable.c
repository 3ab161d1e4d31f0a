/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Intel MultiProcessor Specification 1.4, chapter 4: the floating pointer and the
 * configuration table. What ACPI's MADT and _PRT say, for who does not read them:
 * the wiring is the same.
 */
#include "machine/mptable.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/util.h"
#include "hw/pc/irqchip.h"
#include "machine/aml.h"

#define MP_FLOATING_SIZE 16
#define MP_HEADER_SIZE	 44
#define MP_SPEC_REV	 4
#define MP_IOAPIC_ID	 0
#define MP_LAPIC_VERSION 0x14
#define MP_ALL_LAPICS	 0xff

enum mp_entry { MP_PROCESSOR, MP_BUS, MP_IOAPIC, MP_IO_INTERRUPT, MP_LOCAL_INTERRUPT };
enum mp_bus { MP_BUS_PCI, MP_BUS_ISA };
enum mp_interrupt { MP_INT = 0, MP_NMI = 1, MP_EXTINT = 3 };

#define MP_CONFORMS   0x0
#define MP_HIGH_LEVEL 0xd

struct mp_image {
	struct aml out; /* as a growing buffer */
	unsigned entries;
};

static void mp_entry(struct mp_image *m, const uint8_t *e, size_t len)
{
	aml_raw(&m->out, e, len);
	m->entries++;
}

static void mp_processor(struct mp_image *m, const struct mptable_config *c, unsigned i)
{
	uint8_t e[20] = {MP_PROCESSOR, (uint8_t)c->apic_id[i], MP_LAPIC_VERSION, i ? 1 : 3 /* enabled, bootstrap */};

	st32le(e + 4, c->signature);
	st32le(e + 8, c->features);
	mp_entry(m, e, sizeof(e));
}

static void mp_bus(struct mp_image *m, enum mp_bus id, const char *name)
{
	uint8_t e[8] = {MP_BUS, (uint8_t)id};

	memcpy(e + 2, name, 6);
	mp_entry(m, e, sizeof(e));
}

static void mp_interrupt(struct mp_image *m, enum mp_entry kind, enum mp_interrupt type, uint16_t flags,
			 enum mp_bus bus, unsigned source, uint8_t dest, unsigned pin)
{
	uint8_t e[8] = {(uint8_t)kind, (uint8_t)type, 0, 0, (uint8_t)bus, (uint8_t)source, dest, (uint8_t)pin};

	st16le(e + 2, flags);
	mp_entry(m, e, sizeof(e));
}

static void mp_interrupts(struct mp_image *m, const struct mptable_config *c)
{
	unsigned pci_pins = 0;

	for (unsigned slot = 1; slot < 32; slot++) {
		for (unsigned pin = 0; pin < 4; pin++) {
			unsigned irq = c->pirq_irq[(slot + pin + 3) % 4]; /* as bus/pci.c wires it */

			pci_pins |= 1u << irq;
			mp_interrupt(m, MP_IO_INTERRUPT, MP_INT, MP_HIGH_LEVEL, MP_BUS_PCI, slot << 2 | pin,
				     MP_IOAPIC_ID, irq);
		}
	}
	/* A pin is described once: those of PCI are level and not ISA's. The timer is on pin 2. */
	for (unsigned irq = 0; irq < 16; irq++) {
		if (irq != 2 && !(pci_pins & 1u << irq))
			mp_interrupt(m, MP_IO_INTERRUPT, MP_INT, MP_CONFORMS, MP_BUS_ISA, irq, MP_IOAPIC_ID,
				     irq ? irq : 2);
	}
	mp_interrupt(m, MP_LOCAL_INTERRUPT, MP_EXTINT, MP_CONFORMS, MP_BUS_ISA, 0, (uint8_t)c->apic_id[0], 0);
	mp_interrupt(m, MP_LOCAL_INTERRUPT, MP_NMI, MP_CONFORMS, MP_BUS_ISA, 0, MP_ALL_LAPICS, 1);
}

static uint8_t mp_checksum(const uint8_t *p, size_t len)
{
	uint8_t sum = 0;

	while (len--)
		sum = (uint8_t)(sum + *p++);
	return (uint8_t)-sum;
}

static void mp_finish(struct mp_image *m, uint64_t base)
{
	uint8_t *f = m->out.buf, *h = f + MP_FLOATING_SIZE;
	size_t len = m->out.len - MP_FLOATING_SIZE;

	memcpy(h, "PCMP", 4);
	st16le(h + 4, (uint16_t)len);
	h[6] = MP_SPEC_REV;
	memcpy(h + 8, "KELVIN  ", 8);
	memcpy(h + 16, "PC          ", 12);
	st16le(h + 34, (uint16_t)m->entries);
	st32le(h + 36, (uint32_t)LAPIC_BASE);
	h[7] = mp_checksum(h, len);
	memcpy(f, "_MP_", 4);
	st32le(f + 4, (uint32_t)(base + MP_FLOATING_SIZE));
	f[8] = 1; /* in 16 bytes */
	f[9] = MP_SPEC_REV;
	f[10] = mp_checksum(f, MP_FLOATING_SIZE);
}

int mptable_build(const struct mptable_config *c, uint64_t base, size_t max_len, uint8_t **image, size_t *len,
		  struct err *err)
{
	static const uint8_t hole[MP_FLOATING_SIZE + MP_HEADER_SIZE];
	uint8_t ioapic[8] = {MP_IOAPIC, MP_IOAPIC_ID, 0x11, 1};
	struct mp_image m = {.entries = 0};

	aml_raw(&m.out, hole, sizeof(hole));
	for (unsigned i = 0; i < c->ncpus; i++) {
		if (c->apic_id[i] < MP_ALL_LAPICS) /* higher ones need ACPI */
			mp_processor(&m, c, i);
	}
	mp_bus(&m, MP_BUS_PCI, "PCI   ");
	mp_bus(&m, MP_BUS_ISA, "ISA   ");
	st32le(ioapic + 4, (uint32_t)IOAPIC_BASE);
	mp_entry(&m, ioapic, sizeof(ioapic));
	mp_interrupts(&m, c);
	if (m.out.failed || m.out.len > max_len) {
		free(m.out.buf);
		return err_set(err, -ENOMEM, "the MP table of %u CPUs does not fit in %zu bytes", c->ncpus, max_len);
	}
	mp_finish(&m, base);
	*image = m.out.buf;
	*len = m.out.len;
	return 0;
}
