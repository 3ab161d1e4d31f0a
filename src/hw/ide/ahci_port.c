// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One AHCI port: registers (AHCI 1.3.1, 3.3), the command list (4.2), FISes to and from the device (SATA 3.0, 10.3),
 * data by PRD tables. Commands that are not queued run one at a time through ata.c.
 *
 * The command list keeps running (PxCMD.CR) until what the host still does has returned, so that a guest that waits for
 * CR, as it must, never sees data arrive later.
 *
 * Locking: the controller's dev.lock is held in every function.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "hw/ide/ahci.h"

enum {
	PX_CLB = 0x00,
	PX_CLBU = 0x04,
	PX_FB = 0x08,
	PX_FBU = 0x0c,
	PX_IS = 0x10,
	PX_IE = 0x14,
	PX_CMD = 0x18,
	PX_TFD = 0x20,
	PX_SIG = 0x24,
	PX_SSTS = 0x28,
	PX_SCTL = 0x2c,
	PX_SERR = 0x30,
	PX_SACT = 0x34,
	PX_CI = 0x38,
};

#define CMD_ST	     BIT(0)
#define CMD_CLO	     BIT(3)
#define CMD_FRE	     BIT(4)
#define CMD_FR	     BIT(14)
#define CMD_CR	     BIT(15)
#define CMD_WRITABLE 0x0f000017u /* ST, SUD, POD, FRE, and what software notes */
#define SERR_DIAG_X  BIT(26)
#define SSTS_UP	     0x133u /* present, 6 Gbit/s, active */
#define SCTL_DET     0x0fu

#define FIS_H2D 0x27
#define FIS_D2H 0x34
#define FIS_PIO 0x5f
#define RX_PIO	0x20 /* offsets in the area of received FISes */
#define RX_D2H	0x40

#define HEADER_SIZE  32
#define HEADER_WRITE BIT(6)
#define TABLE_CDB    0x40
#define TABLE_PRDT   0x80
#define PRD_SIZE     16
#define CFIS_LEN     20

struct ata_dev *ahci_device(const struct ahci_port *p)
{
	return p->bus.unit[0];
}

/* ---- FISes to the guest ----------------------------------------------------------- */

void ahci_put_fis(struct ahci_port *p, unsigned off, const uint8_t *fis, unsigned len)
{
	if (p->cmd & CMD_FRE) /* where it does not lie in RAM it is lost, as on any bus */
		dma_write(p->hba->pci.dev.bus->mem, p->fis + off, fis, len);
}

static void fill_fis(const struct ata_regs *r, uint8_t type, uint8_t *fis)
{
	fis[0] = type;
	fis[2] = r->status;
	fis[3] = r->error;
	for (unsigned i = 0; i < 3; i++) {
		fis[4 + i] = r->lba[i][0];
		fis[8 + i] = r->lba[i][1];
	}
	fis[7] = r->device;
	fis[12] = r->count[0];
	fis[13] = r->count[1];
}

static void put_d2h(struct ahci_port *p, const struct ata_regs *r, bool interrupt)
{
	uint8_t fis[20] = {0};

	fill_fis(r, FIS_D2H, fis);
	fis[1] = interrupt ? 0x40 : 0;
	p->tfd = r->status | (uint32_t)r->error << 8;
	ahci_put_fis(p, RX_D2H, fis, sizeof(fis));
}

static void put_pio_setup(struct ahci_port *p, const struct ata_regs *r, uint32_t bytes)
{
	uint8_t fis[20] = {0};

	fill_fis(r, FIS_PIO, fis);
	fis[1] = 0x60; /* to the guest, interrupt */
	fis[15] = r->status;
	st16le(fis + 16, (uint16_t)bytes);
	p->tfd = r->status | (uint32_t)r->error << 8;
	ahci_put_fis(p, RX_PIO, fis, sizeof(fis));
}

/* The device says what it is. */
static void put_signature(struct ahci_port *p)
{
	const struct ata_dev *d = ahci_device(p);

	if (!d) {
		p->sig = UINT32_MAX;
		p->tfd = 0x7f;
		return;
	}
	p->sig = d->cd ? 0xeb140101u : 0x00000101u;
	p->tfd = d->regs.status | (uint32_t)d->regs.error << 8;
	if (!d->io)
		put_d2h(p, &d->regs, false);
}

/* ---- data ---------------------------------------------------------------------------- */

int ahci_collect(struct ahci_port *p, uint64_t table, uint32_t count, uint32_t *at, uint32_t *off, uint64_t want,
		 bool to_guest, struct iovec *iov, int *niov, int max, uint64_t *got)
{
	struct mem_map *mem = p->hba->pci.dev.bus->mem;

	*got = 0;
	while (*got < want && *at < count) {
		uint8_t entry[PRD_SIZE];
		uint32_t len;
		uint64_t n;
		int r;

		if (dma_read(mem, table + TABLE_PRDT + (uint64_t)PRD_SIZE * *at, entry, sizeof(entry)))
			return -EFAULT;
		len = (ld32le(entry + 12) & 0x3fffff) + 1;
		if (*off >= len) { /* the guest changed it meanwhile */
			*off = 0;
			++*at;
			continue;
		}
		n = MIN(want - *got, (uint64_t)(len - *off));
		r = dma_begin(mem, ld64le(entry) + *off, n, to_guest, iov, niov, max);
		if (r)
			return r;
		*got += n;
		*off += (uint32_t)n;
		if (*off == len) {
			*off = 0;
			++*at;
		}
	}
	return 0;
}

static void port_part(struct ahci_port *p, struct ata_dev *d)
{
	const uint32_t at = p->prd_at, off = p->prd_off;
	uint64_t want = MIN(d->left, ATA_MAX_PART), got;
	int r;

	d->niov = 0;
	r = ahci_collect(p, p->table, p->prd_count, &p->prd_at, &p->prd_off, want, d->to_guest, d->iov, &d->niov,
			 ATA_MAX_IOV, &got);
	if (r != -EFAULT && got < want && d->from_disk && got % ATA_SECTOR) {
		/* The pieces ran out inside a sector: stop before it. */
		want = ALIGN_DOWN(got, (uint64_t)ATA_SECTOR);
		p->prd_at = at;
		p->prd_off = off;
		d->niov = 0;
		r = ahci_collect(p, p->table, p->prd_count, &p->prd_at, &p->prd_off, want, d->to_guest, d->iov,
				 &d->niov, ATA_MAX_IOV, &got);
		if (got != want)
			r = -EFAULT;
	}
	if (r == -EFAULT || !got) { /* not RAM, or the table is shorter than the data */
		d->niov = 0;
		p->is |= r == -EFAULT ? PXIS_HBFS : 0;
		ata_dma_fault(d);
		return;
	}
	d->part = (uint32_t)got;
	p->moved += d->part;
	ata_transfer(d);
}

static void port_begin(struct ata_dev *d)
{
	port_part(d->port, d);
}

static void port_moved(struct ata_dev *d)
{
	if (d->left)
		port_part(d->port, d);
	else
		ata_data_done(d);
}

/* ---- commands -------------------------------------------------------------------------- */

void ahci_fail(struct ahci_port *p)
{
	p->halted = true;
	ahci_interrupt(p, PXIS_TFES);
}

static void port_end(struct ata_dev *d)
{
	struct ahci_port *p = d->port;
	const bool pio_in = d->proto == ATA_PIO && d->to_guest && d->opcode != ATA_CMD_PACKET;
	const int slot = p->slot;

	if (slot < 0) /* a reset */
		return;
	p->slot = -1;
	d->proto = ATA_NO_DATA;
	d->left = 0;
	dma_write(d->bus->mem, p->header + 4, &p->moved, 4);
	if (d->regs.status & ATA_SR_ERR) {
		put_d2h(p, &d->regs, true);
		ahci_interrupt(p, PXIS_DHRS);
		ahci_fail(p);
		return;
	}
	if (pio_in)
		put_pio_setup(p, &d->regs, p->moved);
	else
		put_d2h(p, &d->regs, true);
	p->ci &= ~(uint32_t)BIT(slot);
	ahci_interrupt(p, pio_in ? PXIS_PSS : PXIS_DHRS);
	ahci_port_run(p);
}

static void port_reset_done(struct ata_dev *d)
{
	put_signature(d->port);
	ahci_port_run(d->port);
}

static const struct ata_port_ops port_ops = {
    .begin = port_begin, .moved = port_moved, .end = port_end, .reset_done = port_reset_done};

static void load_task_file(struct ata_regs *r, const uint8_t *cfis)
{
	r->feature[0] = cfis[3];
	r->feature[1] = cfis[11];
	r->count[0] = cfis[12];
	r->count[1] = cfis[13];
	for (unsigned i = 0; i < 3; i++) {
		r->lba[i][0] = cfis[4 + i];
		r->lba[i][1] = cfis[8 + i];
	}
	r->device = cfis[7];
}

/* A FIS without the command bit changes the control register: a software reset. */
static void control_fis(struct ahci_port *p, unsigned slot, const uint8_t *cfis)
{
	struct ata_dev *d = ahci_device(p);

	p->ci &= ~(uint32_t)BIT(slot);
	if (cfis[15] & 0x04) {
		ahci_ncq_cancel(p);
		ata_soft_reset(d);
	} else {
		put_signature(p);
		ahci_interrupt(p, PXIS_DHRS);
	}
}

/* False when the slot holds nothing that can be started. */
static bool start_slot(struct ahci_port *p, unsigned slot)
{
	struct mem_map *mem = p->hba->pci.dev.bus->mem;
	struct ata_dev *d = ahci_device(p);
	uint8_t header[HEADER_SIZE], cfis[CFIS_LEN];
	uint64_t table;

	p->header = p->list + (uint64_t)HEADER_SIZE * slot;
	if (dma_read(mem, p->header, header, sizeof(header)))
		return false;
	table = ld64le(header + 8) & ~0x7full;
	if (dma_read(mem, table, cfis, sizeof(cfis)) || cfis[0] != FIS_H2D)
		return false;
	if (!(cfis[1] & 0x80)) {
		control_fis(p, slot, cfis);
		return true;
	}
	if (!d->cd && (cfis[2] == 0x60 || cfis[2] == 0x61)) {
		ahci_ncq_start(p, slot, cfis, table, ld16le(header + 2));
		return true;
	}
	counter_add(&p->hba->commands, 1);
	p->slot = (int)slot;
	p->table = table;
	p->prd_count = ld16le(header + 2);
	p->prd_at = p->prd_off = p->moved = 0;
	load_task_file(&d->regs, cfis);
	if (cfis[2] == ATA_CMD_PACKET && dma_read(mem, table + TABLE_CDB, d->cdb, sizeof(d->cdb))) {
		p->slot = -1;
		return false;
	}
	ata_start(d, cfis[2]);
	return true;
}

void ahci_port_run(struct ahci_port *p)
{
	const struct ata_dev *d = ahci_device(p);

	if (!d)
		return;
	/* Each round takes a bit of PxCI away, or makes the device busy. */
	while ((p->cmd & CMD_ST) && !p->halted && !p->draining && p->slot < 0 && !ata_busy(d) && p->ci) {
		const unsigned slot = (unsigned)__builtin_ctz(p->ci);

		if (!start_slot(p, slot)) {
			p->is |= PXIS_HBFS;
			ahci_fail(p);
		}
	}
}

/* ---- registers ---------------------------------------------------------------------------- */

static bool port_host_busy(const struct ahci_port *p)
{
	const struct ata_dev *d = ahci_device(p);

	return p->ncq_inflight || (d && d->io);
}

uint32_t ahci_port_read(struct ahci_port *p, unsigned reg)
{
	const struct ata_dev *d = ahci_device(p);

	switch (reg) {
	case PX_CLB: return (uint32_t)p->list;
	case PX_CLBU: return (uint32_t)(p->list >> 32);
	case PX_FB: return (uint32_t)p->fis;
	case PX_FBU: return (uint32_t)(p->fis >> 32);
	case PX_IS: return p->is;
	case PX_IE: return p->ie;
	case PX_CMD:
		return p->cmd | (p->cmd & CMD_FRE ? CMD_FR : 0) | (p->cmd & CMD_ST || port_host_busy(p) ? CMD_CR : 0) |
		       (p->slot >= 0 ? (uint32_t)p->slot << 8 : 0);
	case PX_TFD:
		if (d && (p->slot >= 0 || d->io)) /* a command, or a reset that waits */
			return d->regs.status | (uint32_t)d->regs.error << 8;
		return p->tfd | (p->draining ? ATA_SR_BSY : 0);
	case PX_SIG: return p->sig;
	case PX_SSTS: return d && !(p->sctl & SCTL_DET) ? SSTS_UP : 0;
	case PX_SCTL: return p->sctl;
	case PX_SERR: return p->serr;
	case PX_SACT: return p->sact;
	case PX_CI: return p->ci;
	default: return 0;
	}
}

/* ST was cleared: all slots are empty again. */
static void port_stop(struct ahci_port *p)
{
	p->ci = p->sact = 0;
	p->halted = false;
	ahci_ncq_cancel(p);
	if (p->slot >= 0) {
		p->slot = -1;
		ata_soft_reset(ahci_device(p));
	}
}

static void write_cmd(struct ahci_port *p, uint32_t val)
{
	const uint32_t before = p->cmd;

	p->cmd = val & CMD_WRITABLE;
	if (val & CMD_CLO)
		p->tfd &= ~(ATA_SR_BSY | ATA_SR_DRQ);
	if (before & ~p->cmd & CMD_ST)
		port_stop(p);
	if (p->cmd & ~before & CMD_FRE && p->sig != UINT32_MAX && ahci_device(p) && p->slot < 0)
		put_signature(p); /* the first FIS waited for a place */
	ahci_port_run(p);
}

/* 10.4.2: COMRESET while DET is 1; the device comes back when it is 0 again. */
static void write_sctl(struct ahci_port *p, uint32_t val)
{
	const uint32_t before = p->sctl & SCTL_DET;

	p->sctl = val & 0xfff;
	if (!ahci_device(p))
		return;
	if ((val & SCTL_DET) == 1 && before != 1) {
		port_stop(p);
		ata_soft_reset(ahci_device(p));
		p->tfd = 0x7f;
		p->sig = UINT32_MAX;
	} else if (!(val & SCTL_DET) && before) {
		p->serr |= SERR_DIAG_X;
		put_signature(p);
		ahci_interrupt(p, PXIS_PCS | PXIS_DHRS);
	}
}

void ahci_port_write(struct ahci_port *p, unsigned reg, uint32_t val)
{
	switch (reg) {
	case PX_CLB: p->list = (p->list & ~0xffffffffull) | (val & ~0x3ffu); break;
	case PX_CLBU: p->list = (uint32_t)p->list | (uint64_t)val << 32; break;
	case PX_FB: p->fis = (p->fis & ~0xffffffffull) | (val & ~0xffu); break;
	case PX_FBU: p->fis = (uint32_t)p->fis | (uint64_t)val << 32; break;
	case PX_IS:
		p->is &= ~val;
		if (val & PXIS_PCS)
			p->serr &= ~(uint32_t)SERR_DIAG_X;
		break;
	case PX_IE: p->ie = val & 0xfdc000ffu; break;
	case PX_CMD: write_cmd(p, val); break;
	case PX_SCTL: write_sctl(p, val); break;
	case PX_SERR: p->serr &= ~val; break;
	case PX_SACT:
		if (p->cmd & CMD_ST)
			p->sact |= val;
		break;
	case PX_CI:
		if (p->cmd & CMD_ST) {
			p->ci |= val;
			ahci_port_run(p);
		}
		break;
	default: break;
	}
}

void ahci_port_reset(struct ahci_port *p)
{
	port_stop(p);
	if (ahci_device(p))
		ata_soft_reset(ahci_device(p));
	p->list = p->fis = 0;
	p->is = p->ie = p->cmd = p->sctl = p->serr = 0;
	put_signature(p);
}

void ahci_port_init(struct ahci_port *p, struct ahci *h, unsigned index)
{
	p->hba = h;
	p->index = index;
	p->slot = -1;
	p->pending_tail = &p->pending;
	p->bus.nunits = 1;
	p->bus.ops = &port_ops;
	p->bus.port = p;
	p->bus.sata = true;
}
