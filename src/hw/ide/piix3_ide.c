// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Function 1 of the PIIX3: two IDE channels at their legacy ports and interrupts, and the bus master in BAR 4.
 * 82371SB data sheet, 2.2 and 2.7. The timing registers keep what is written.
 *
 * Locking: dev.lock guards both channels, their devices and the bus master.
 */
#include "base/util.h"
#include "bus/pci.h"
#include "hw/ide/controllers.h"

#define PIIX3_IDE_DEVFN 9
#define IDETIM		0x40
#define BM_BAR		4
#define BM_SIZE		16

static const struct {
	uint16_t command, control;
	unsigned irq;
	const char *name, *control_name;
} legacy[2] = {
    {0x1f0, 0x3f6, 14, "ide-primary", "ide-primary-control"},
    {0x170, 0x376, 15, "ide-secondary", "ide-secondary-control"},
};

struct piix3_ide {
	struct pci_dev pci;
	struct ide_channel channel[2];
};

static struct piix3_ide *piix3_ide_of(struct dev *d)
{
	return container_of(d, struct piix3_ide, pci.dev);
}

struct ide_bus *piix3_ide_bus(struct dev *d, unsigned i)
{
	return i < 2 ? &piix3_ide_of(d)->channel[i].bus : NULL;
}

static void piix3_ide_reset(struct dev *d)
{
	struct piix3_ide *s = piix3_ide_of(d);
	struct pci_dev *p = &s->pci;

	pthread_mutex_lock(&d->lock);
	pci_reset_common(p);
	st16le(&p->config[0x06], 0x0280); /* DEVSEL medium, fast back-to-back */
	st32le(&p->config[IDETIM], 0);
	for (unsigned i = 0; i < 2; i++)
		ide_channel_reset(&s->channel[i]);
	pthread_mutex_unlock(&d->lock);
}

static int piix3_ide_realize(struct dev *d, struct err *err)
{
	struct piix3_ide *s = piix3_ide_of(d);
	struct pci_dev *p = &s->pci;
	int r;

	p->devfn = PIIX3_IDE_DEVFN;
	p->vendor = 0x8086;
	p->device = 0x7010;
	p->subsys_vendor = 0x1af4;
	p->subsys_id = 0x1100;
	p->class_code = 0x010180; /* legacy ports on both channels, bus master */
	pci_add_bar(p, BM_BAR, PCI_BAR_IO, false, "piix3-ide-bm", BM_SIZE, &ide_bm_ops, s->channel);
	r = pci_register(p, err);
	if (r)
		return r;
	st32le(&p->wmask[IDETIM], UINT32_MAX);
	for (unsigned i = 0; i < 2; i++) {
		struct ide_channel *c = &s->channel[i];

		ide_channel_init(c, d, legacy[i].name, legacy[i].control_name);
		ide_bus_init(&c->bus, d, i);
		c->irq = d->bus->gsi[legacy[i].irq];
		ports_map(d->bus->ports, &c->command, legacy[i].command);
		ports_map(d->bus->ports, &c->control, legacy[i].control);
	}
	return 0;
}

static void piix3_ide_unrealize(struct dev *d)
{
	struct piix3_ide *s = piix3_ide_of(d);

	for (unsigned i = 0; i < 2; i++) {
		ports_unmap(d->bus->ports, &s->channel[i].command);
		ports_unmap(d->bus->ports, &s->channel[i].control);
	}
	pci_unregister(&s->pci);
}

static const struct state_field bm_fields[] = {
    STATE_INT(struct ide_bm, command), STATE_INT(struct ide_bm, status),
    STATE_INT(struct ide_bm, table),   STATE_INT_MAX(struct ide_bm, at, 0xffff),
    STATE_INT(struct ide_bm, addr),    STATE_INT_MAX(struct ide_bm, left, 0x10000),
    STATE_INT(struct ide_bm, last),    {0},
};
static const struct state_field channel_fields[] = {
    STATE_INT(struct ide_channel, control_reg),
    STATE_INT(struct ide_channel, select),
    STATE_INT(struct ide_channel, interrupt),
    STATE_INT(struct ide_channel, level),
    STATE_INT_MAX(struct ide_channel, pio_at, ATA_BUF_SIZE),
    STATE_INT_MAX(struct ide_channel, pio_end, ATA_BUF_SIZE),
    STATE_ONE(struct ide_channel, bm, bm_fields),
    {0},
};
static const struct state_field piix3_ide_fields[] = {STATE_STRUCTS(struct piix3_ide, channel, channel_fields), {0}};
static const struct state piix3_ide_state = {
    .name = "piix3-ide", .version = 1, .min_version = 1, .parent = &pci_state, .fields = piix3_ide_fields};

static const struct counter piix3_ide_counters[] = {
    {"primary_interrupts", offsetof(struct piix3_ide, channel[0].interrupts), "interrupts of the first channel"},
    {"secondary_interrupts", offsetof(struct piix3_ide, channel[1].interrupts), "interrupts of the second channel"},
    {0},
};

const struct dev_ops piix3_ide_ops = {
    .type = {.name = "piix3-ide",
	     .about = "IDE controller of the pc board",
	     .parent = "pci-device",
	     .size = sizeof(struct piix3_ide)},
    .bus_kind = DEV_BUS_PCI,
    .realize = piix3_ide_realize,
    .unrealize = piix3_ide_unrealize,
    .reset = piix3_ide_reset,
    .state = &piix3_ide_state,
    .counters = piix3_ide_counters,
};
