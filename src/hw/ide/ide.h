/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * IDE buses: what ide-hd and ide-cd are plugged into. A controller embeds one struct ide_bus for each of its channels
 * or ports and lists its type in ide_bus.c. Main loop's thread.
 */
#ifndef KELVIN_HW_IDE_IDE_H
#define KELVIN_HW_IDE_IDE_H

#include "hw/ide/ata.h"

#define IDE_BUS_UNITS 2

struct ide_bus {
	char name[40];	 /* "ide.0", or "ID.0" for a controller that has an id */
	unsigned nunits; /* 1 or 2 */
	struct dev *controller;
	const struct ata_port_ops *ops;
	void *port; /* becomes ata_dev.port */
	bool sata;
	struct ata_dev *unit[IDE_BUS_UNITS];
};

/* Name bus i of a controller that is being realized: after all buses there are, or by its id. */
void ide_bus_init(struct ide_bus *b, struct dev *controller, unsigned i);
/* Plug d in; unit -1: the first free place; bus NULL: the first bus with one. */
int ide_bus_attach(struct ata_dev *d, struct dev *owner, const char *bus, int unit, struct err *err);
void ide_bus_detach(struct ata_dev *d);

/* The legacy ports of one channel: task file, control, PIO data. ATA8-APT 5, 9. */
struct ide_bm { /* bus master of one channel: bmdma.c */
	uint8_t command, status;
	uint32_t table; /* guest-physical address of the PRD table */
	/* where the transfer is */
	uint32_t at, addr, left; /* offset in the table; rest of the current entry */
	bool last;		 /* the current entry is the last one */
};

struct ide_channel {
	struct ide_bus bus;
	struct mem_region command, control;
	struct irq irq;
	uint8_t control_reg, select;
	bool interrupt;		  /* INTRQ, whether or not nIEN hides it */
	bool level;		  /* what the line shows */
	uint32_t pio_at, pio_end; /* bytes of the DRQ block in ata_dev.buf */
	struct ide_bm bm;
	uint64_t interrupts; /* counter */
};

void ide_channel_init(struct ide_channel *c, struct dev *controller, const char *name, const char *control_name);
void ide_channel_reset(struct ide_channel *c); /* machine reset */
struct ata_dev *ide_channel_selected(const struct ide_channel *c);

/* bmdma.c; lock held. */
void ide_bm_reset(struct ide_bm *b);
void ide_bm_begin(struct ide_channel *c, struct ata_dev *d);
void ide_bm_moved(struct ide_channel *c, struct ata_dev *d);
void ide_bm_end(struct ide_channel *c, struct ata_dev *d);
extern const struct region_ops ide_bm_ops; /* opaque: two struct ide_channel in a row */

extern const struct dev_ops piix3_ide_ops, ide_hd_ops, ide_cd_ops, ich9_ahci_ops, ahci_ops;

#endif
