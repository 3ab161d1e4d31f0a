// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The AHCI controller of an ICH9 as a PCI device: generic host control (AHCI 1.3.1, 3.1) and interrupts. Six ports, 32
 * slots, NCQ, 64-bit addresses, MSI.
 *
 * Locking: ahci.h.
 */
#include "hw/ide/ahci.h"

#include <errno.h>

#include "base/util.h"
#include "hw/ide/controllers.h"

enum { HBA_CAP = 0x00, HBA_GHC = 0x04, HBA_IS = 0x08, HBA_PI = 0x0c, HBA_VS = 0x10 };

#define CAP_S64A  BIT(31)
#define CAP_SNCQ  BIT(30)
#define CAP_SCLO  BIT(24)
#define CAP_SAM	  BIT(18)
#define CAP_SPEED (3u << 20) /* 6 Gbit/s */
#define GHC_HR	  BIT(0)
#define GHC_IE	  BIT(1)
#define GHC_AE	  BIT(31)
#define ABAR	  5
#define ABAR_SIZE 0x1000

static struct ahci *ahci_of(struct dev *d)
{
	return container_of(d, struct ahci, pci.dev);
}

struct ide_bus *ahci_bus(struct dev *d, unsigned i)
{
	return i < AHCI_PORTS ? &ahci_of(d)->port[i].bus : NULL;
}

/* `event`: something new happened; a message goes out for that, a wire shows the level. */
static void ahci_update(struct ahci *h, bool event)
{
	bool on;

	for (unsigned i = 0; i < AHCI_PORTS; i++)
		if (h->port[i].is & h->port[i].ie)
			h->is |= BIT(i);
	on = h->is && (h->ghc & GHC_IE);
	if (pci_msi_active(&h->pci)) {
		if (on && event) {
			counter_add(&h->interrupts, 1);
			pci_msi_notify(&h->pci, 0);
		}
	} else {
		counter_add(&h->interrupts, event);
		pci_set_intx(&h->pci, on);
	}
}

void ahci_interrupt(struct ahci_port *p, uint32_t pxis)
{
	p->is |= pxis;
	ahci_update(p->hba, p->is & p->ie);
}

static void ahci_hba_reset(struct ahci *h)
{
	h->ghc = GHC_AE;
	h->is = 0;
	for (unsigned i = 0; i < AHCI_PORTS; i++)
		ahci_port_reset(&h->port[i]);
	ahci_update(h, false);
}

static uint64_t ahci_read(void *opaque, uint64_t off, unsigned size)
{
	struct ahci *h = opaque;

	if (off >= AHCI_PORT_BASE) {
		const unsigned port = (unsigned)(off - AHCI_PORT_BASE) / AHCI_PORT_SIZE;

		return port < AHCI_PORTS ? ahci_port_read(&h->port[port], off % AHCI_PORT_SIZE) : 0;
	}
	switch (off) {
	case HBA_CAP: return CAP_S64A | CAP_SNCQ | CAP_SCLO | CAP_SAM | CAP_SPEED | 31u << 8 | (AHCI_PORTS - 1);
	case HBA_GHC: return h->ghc;
	case HBA_IS: return h->is;
	case HBA_PI: return BIT(AHCI_PORTS) - 1;
	case HBA_VS: return 0x00010300;
	default: return 0;
	}
}

static void ahci_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct ahci *h = opaque;
	const unsigned port = off >= AHCI_PORT_BASE ? (unsigned)(off - AHCI_PORT_BASE) / AHCI_PORT_SIZE : 0;

	if (size != 4 || off % 4) /* 3: registers are accessed whole */
		return;
	if (off >= AHCI_PORT_BASE) {
		if (port < AHCI_PORTS)
			ahci_port_write(&h->port[port], off % AHCI_PORT_SIZE, (uint32_t)val);
		ahci_update(h, false);
	} else if (off == HBA_GHC) {
		if (val & GHC_HR)
			ahci_hba_reset(h);
		else
			h->ghc = GHC_AE | (val & GHC_IE);
		ahci_update(h, val & GHC_IE);
	} else if (off == HBA_IS) {
		h->is &= (uint32_t)~val;
		ahci_update(h, true); /* a port that is still pending asks again */
	}
}

static const struct region_ops ahci_region_ops = {.read = ahci_read, .write = ahci_write, .min_size = 4, .max_size = 4};

static void ahci_reset(struct dev *d)
{
	struct ahci *h = ahci_of(d);

	for (unsigned i = 0; i < AHCI_PORTS; i++)
		ahci_ncq_abandon(&h->port[i]);
	pthread_mutex_lock(&d->lock);
	pci_reset_common(&h->pci);
	ahci_hba_reset(h);
	pthread_mutex_unlock(&d->lock);
}

static int ahci_pause(struct dev *d)
{
	struct ahci *h = ahci_of(d);

	for (unsigned i = 0; i < AHCI_PORTS; i++)
		ahci_ncq_submit(&h->port[i]);
	return 0; /* the disks wait for what is in flight */
}

static void ahci_resume(struct dev *d)
{
	struct ahci *h = ahci_of(d);

	for (unsigned i = 0; i < AHCI_PORTS; i++)
		ahci_ncq_resume(&h->port[i]);
}

static int ahci_realize(struct dev *d, struct err *err)
{
	struct ahci *h = ahci_of(d);
	struct pci_dev *p = &h->pci;
	int r;

	p->vendor = 0x8086;
	p->device = 0x2922;
	p->subsys_vendor = 0x1af4;
	p->subsys_id = 0x1100;
	p->class_code = 0x010601;
	p->revision = 2;
	p->intx_pin = 1;
	pci_add_bar(p, ABAR, PCI_BAR_MEM32, false, "ahci", ABAR_SIZE, &ahci_region_ops, h);
	for (unsigned i = 0; i < AHCI_PORTS; i++) {
		ahci_port_init(&h->port[i], h, i);
		ide_bus_init(&h->port[i].bus, d, i);
	}
	r = pci_msi_init(p, 1, err);
	if (!r)
		r = pci_register(p, err);
	if (!r)
		ahci_hba_reset(h);
	return r;
}

static void ahci_unrealize(struct dev *d)
{
	for (unsigned i = 0; i < AHCI_PORTS; i++)
		ahci_ncq_abandon(&ahci_of(d)->port[i]);
	pci_unregister(&ahci_of(d)->pci);
}

static const struct counter ahci_counters[] = {
    {"commands", offsetof(struct ahci, commands), "commands that were not queued"},
    {"queued", offsetof(struct ahci, queued), "queued commands (NCQ)"},
    {"interrupts", offsetof(struct ahci, interrupts), "events that interrupted"},
    {0},
};

static const struct state_field port_fields[] = {
    STATE_INT(struct ahci_port, list),	 STATE_INT(struct ahci_port, fis),   STATE_INT(struct ahci_port, is),
    STATE_INT(struct ahci_port, ie),	 STATE_INT(struct ahci_port, cmd),   STATE_INT(struct ahci_port, tfd),
    STATE_INT(struct ahci_port, sig),	 STATE_INT(struct ahci_port, sctl),  STATE_INT(struct ahci_port, serr),
    STATE_INT(struct ahci_port, sact),	 STATE_INT(struct ahci_port, ci),    STATE_INT(struct ahci_port, halted),
    STATE_INT(struct ahci_port, header), STATE_INT(struct ahci_port, moved), {0},
};
static const struct state_field ahci_fields[] = {
    STATE_INT(struct ahci, ghc), STATE_INT(struct ahci, is), STATE_STRUCTS(struct ahci, port, port_fields), {0}};

/* A command runs by itself: with the host idle, none is under way. */
static int ahci_pre_save(void *obj, struct err *err)
{
	const struct ahci *h = obj;

	for (unsigned i = 0; i < AHCI_PORTS; i++)
		if (h->port[i].slot >= 0 || h->port[i].pending || h->port[i].ncq_inflight)
			return err_set(err, -EAGAIN,
				       "a command of port %u is in flight, or failed and waits for 'cont'", i);
	return 0;
}

static const struct state ahci_state = {.name = "ahci",
					.version = 1,
					.min_version = 1,
					.parent = &pci_state,
					.fields = ahci_fields,
					.pre_save = ahci_pre_save};

#define AHCI_DEVICE(symbol, type_name)                                                                                 \
	const struct dev_ops symbol = {                                                                                \
	    .type = {.name = type_name,                                                                                \
		     .about = "AHCI (SATA) controller with six ports",                                                 \
		     .parent = "pci-device",                                                                           \
		     .size = sizeof(struct ahci)},                                                                     \
	    .bus_kind = DEV_BUS_PCI,                                                                                   \
	    .user_creatable = true,                                                                                    \
	    .realize = ahci_realize,                                                                                   \
	    .unrealize = ahci_unrealize,                                                                               \
	    .reset = ahci_reset,                                                                                       \
	    .pause = ahci_pause,                                                                                       \
	    .resume = ahci_resume,                                                                                     \
	    .state = &ahci_state,                                                                                      \
	    .counters = ahci_counters,                                                                                 \
	}

AHCI_DEVICE(ich9_ahci_ops, "ich9-ahci");
AHCI_DEVICE(ahci_ops, "ahci");
