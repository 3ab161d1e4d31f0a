/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An AHCI controller: ahci.c (HBA registers, PCI), ahci_port.c (ports, command list, FISes), ahci_ncq.c (queued
 * commands). AHCI 1.3.1; chapter and names as there.
 *
 * Locking: dev.lock of the controller guards everything; host I/O starts from the main loop without it.
 */
#ifndef KELVIN_HW_IDE_AHCI_H
#define KELVIN_HW_IDE_AHCI_H

#include "bus/pci.h"
#include "hw/ide/ide.h"

#define AHCI_PORTS     6
#define AHCI_SLOTS     32
#define AHCI_PORT_BASE 0x100
#define AHCI_PORT_SIZE 0x80

/* 3.3.5: PxIS */
#define PXIS_DHRS BIT(0)  /* D2H register FIS */
#define PXIS_PSS  BIT(1)  /* PIO setup FIS */
#define PXIS_SDBS BIT(3)  /* set device bits FIS */
#define PXIS_PCS  BIT(6)  /* connect change */
#define PXIS_HBFS BIT(29) /* host bus error */
#define PXIS_TFES BIT(30) /* task file error */

struct ahci;
struct ahci_ncq;

struct ahci_port {
	struct ahci *hba;
	struct ide_bus bus; /* unit[0]: the device, or NULL */
	unsigned index;
	uint64_t list, fis; /* PxCLB, PxFB */
	uint32_t is, ie, cmd, tfd, sig, sctl, serr, sact, ci;
	bool halted;   /* after an error: until ST is cleared */
	bool draining; /* queued commands were cancelled and the host is not done with them */
	/* the command that is not queued; -1: none */
	int slot;
	uint64_t header, table; /* guest-physical */
	uint32_t prd_count, prd_at, prd_off, moved;
	/* queued ones */
	struct ahci_ncq *pending, **pending_tail; /* parsed, not yet submitted */
	unsigned ncq_inflight;
	unsigned ncq_epoch; /* requests of an earlier one report to nobody */
	struct disk_errors errors;
};

struct ahci {
	struct pci_dev pci;
	uint32_t ghc, is;
	struct ahci_port port[AHCI_PORTS];
	uint64_t commands, queued, interrupts; /* counters */
};

/* ahci.c; lock held. */
void ahci_interrupt(struct ahci_port *p, uint32_t pxis);

/* ahci_port.c; lock held. */
void ahci_port_init(struct ahci_port *p, struct ahci *h, unsigned index);
void ahci_port_reset(struct ahci_port *p); /* power on, or HBA reset */
uint32_t ahci_port_read(struct ahci_port *p, unsigned reg);
void ahci_port_write(struct ahci_port *p, unsigned reg, uint32_t val);
/* Start what the guest issued and can start. */
void ahci_port_run(struct ahci_port *p);
/* Up to `want` bytes of the PRD table at `table` from *at and *off on, appended to iov; 0, -EFAULT, -ENOSPC (iov full).
 */
int ahci_collect(struct ahci_port *p, uint64_t table, uint32_t count, uint32_t *at, uint32_t *off, uint64_t want,
		 bool to_guest, struct iovec *iov, int *niov, int max, uint64_t *got);
/* Write a FIS where the guest wants it. */
void ahci_put_fis(struct ahci_port *p, unsigned off, const uint8_t *fis, unsigned len);
struct ata_dev *ahci_device(const struct ahci_port *p);
void ahci_fail(struct ahci_port *p); /* stop after an error */

/* ahci_ncq.c */
void ahci_ncq_start(struct ahci_port *p, unsigned slot, const uint8_t *cfis, uint64_t table,
		    uint32_t prd_count);    /* lock held */
void ahci_ncq_cancel(struct ahci_port *p);  /* lock held: what is in flight reports to nobody */
void ahci_ncq_submit(struct ahci_port *p);  /* main loop's thread, no lock */
void ahci_ncq_abandon(struct ahci_port *p); /* machine reset: nothing is in flight */
void ahci_ncq_resume(struct ahci_port *p);  /* main loop's thread, no lock */

#endif
