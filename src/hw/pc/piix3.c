/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PIIX3 PCI-to-ISA bridge (82371SB data sheet): routes the four PCI interrupts
 * PIRQA..D to ISA interrupts by its registers PIRQRC[A:D] (0x60..0x63).
 *
 * Locking: `route_lock` is a leaf taken under the PCI bus's interrupt lock and under
 * dev.lock; under it only interrupt lines are set.
 */
#include <errno.h>
#include "base/util.h"
#include "bus/pci.h"
#include "hw/pc/devices.h"

#define PIIX3_XBCS    0x4e
#define PIIX3_PIRQRC  0x60
#define PIRQRC_OFF    BIT(7)
#define PIRQRC_IRQ    0x0f
#define PIRQ_COUNT    4
#define ISA_IRQS      16
#define ISA_IRQ_VALID 0xdef8 /* 3..7, 9..12, 14, 15 */

struct piix3 {
	struct pci_dev pci;
	pthread_mutex_t route_lock;
	uint8_t route[PIRQ_COUNT]; /* PIRQRC as the interrupt path sees it */
	bool level[PIRQ_COUNT];
	uint16_t isa_level; /* what we drive, one bit per ISA interrupt */
};

/* The ISA interrupt of an input, or -1. */
static int piix3_target(uint8_t pirqrc)
{
	unsigned irq = pirqrc & PIRQRC_IRQ;

	return (pirqrc & PIRQRC_OFF) || !(ISA_IRQ_VALID & BIT(irq)) ? -1 : (int)irq;
}

/* Drive the ISA lines by levels and routes. route_lock held. */
static void piix3_update(struct piix3 *s)
{
	uint16_t want = 0, change;

	for (unsigned i = 0; i < PIRQ_COUNT; i++) {
		int irq = piix3_target(s->route[i]);

		if (s->level[i] && irq >= 0)
			want |= (uint16_t)BIT(irq);
	}
	change = want ^ s->isa_level;
	s->isa_level = want;
	for (unsigned irq = 0; irq < ISA_IRQS; irq++) {
		if (change & BIT(irq))
			irq_set(&s->pci.dev.bus->gsi[irq], !!(want & BIT(irq)));
	}
}

static void piix3_set_pirq(void *opaque, int pirq, int level)
{
	struct piix3 *s = opaque;

	pthread_mutex_lock(&s->route_lock);
	s->level[pirq] = level;
	piix3_update(s);
	pthread_mutex_unlock(&s->route_lock);
}

static uint8_t piix3_pirq_line(void *opaque, int pirq)
{
	struct piix3 *s = opaque;
	int irq;

	pthread_mutex_lock(&s->route_lock);
	irq = piix3_target(s->route[pirq]);
	pthread_mutex_unlock(&s->route_lock);
	return irq < 0 ? 0 : (uint8_t)irq;
}

static void piix3_config_written(struct pci_dev *p, unsigned off, unsigned len)
{
	struct piix3 *s = container_of(p, struct piix3, pci);

	if (off >= PIIX3_PIRQRC + PIRQ_COUNT || off + len <= PIIX3_PIRQRC)
		return;
	pthread_mutex_lock(&s->route_lock);
	memcpy(s->route, &p->config[PIIX3_PIRQRC], PIRQ_COUNT);
	piix3_update(s);
	pthread_mutex_unlock(&s->route_lock);
}

static void piix3_reset(struct dev *d)
{
	struct piix3 *s = container_of(d, struct piix3, pci.dev);
	struct pci_dev *p = &s->pci;

	pci_reset_common(p);
	st16le(&p->config[0x04], 0x0007); /* I/O, memory, master: hard-wired */
	st16le(&p->config[0x06], 0x0200); /* DEVSEL medium */
	p->config[0x4c] = 0x4d;
	st16le(&p->config[PIIX3_XBCS], 0x0003);
	memset(&p->config[PIIX3_PIRQRC], PIRQRC_OFF, PIRQ_COUNT);
	p->config[0x69] = 0x02;
	piix3_config_written(p, PIIX3_PIRQRC, PIRQ_COUNT);
}

static int piix3_realize(struct dev *d, struct err *err)
{
	struct piix3 *s = container_of(d, struct piix3, pci.dev);
	struct pci_dev *p = &s->pci;
	int r;

	pthread_mutex_init(&s->route_lock, NULL);
	p->devfn = 1 << 3;
	p->multifunction = true;
	p->vendor = 0x8086;
	p->device = 0x7000;
	p->subsys_vendor = 0x1af4;
	p->subsys_id = 0x1100;
	p->class_code = 0x060100;
	r = pci_register(p, err);
	if (r) {
		pthread_mutex_destroy(&s->route_lock);
		return r;
	}
	st16le(&p->wmask[0x04], 0x0108); /* SERR and special cycles only */
	p->wmask[0x4c] = 0xff;
	st16le(&p->wmask[PIIX3_XBCS], 0x07ff);
	memset(&p->wmask[PIIX3_PIRQRC], PIRQRC_OFF | PIRQRC_IRQ, PIRQ_COUNT);
	p->wmask[0x69] = 0xfe;
	p->config_written = piix3_config_written;
	pci_bus_set_intx(d->bus->pci, piix3_set_pirq, s);
	pci_bus_set_intx_line(d->bus->pci, piix3_pirq_line);
	return 0;
}

static void piix3_unrealize(struct dev *d)
{
	struct piix3 *s = container_of(d, struct piix3, pci.dev);

	pci_bus_set_intx_line(d->bus->pci, NULL);
	pci_bus_set_intx(d->bus->pci, NULL, NULL);
	pci_unregister(&s->pci);
	pthread_mutex_destroy(&s->route_lock);
}

static const struct state_field piix3_fields[] = {
    STATE_INTS(struct piix3, level), STATE_INT(struct piix3, isa_level), {0}};

/* The lines themselves are saved with the interrupt controllers: nothing is driven. */
static int piix3_post_load(void *obj, struct err *err)
{
	struct piix3 *s = obj;

	pthread_mutex_lock(&s->route_lock);
	memcpy(s->route, &s->pci.config[PIIX3_PIRQRC], PIRQ_COUNT);
	s->isa_level &= ISA_IRQ_VALID;
	pthread_mutex_unlock(&s->route_lock);
	return 0;
}

static const struct state piix3_state = {.name = "piix3",
					 .version = 1,
					 .min_version = 1,
					 .parent = &pci_state,
					 .fields = piix3_fields,
					 .post_load = piix3_post_load};

const struct dev_ops piix3_ops = {
    .type = {.name = "PIIX3",
	     .about = "ISA bridge of the pc board",
	     .parent = "pci-device",
	     .size = sizeof(struct piix3)},
    .bus_kind = DEV_BUS_PCI,
    .realize = piix3_realize,
    .unrealize = piix3_unrealize,
    .reset = piix3_reset,
    .state = &piix3_state,
};
