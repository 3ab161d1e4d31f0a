// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The bus master of a PCI IDE controller: Programming Interface for Bus Master IDE Controller, revision 1.0. A command,
 * a status and a table address per channel; the table lists physical regions (PRDs) that must be RAM.
 *
 * A transfer is cut into parts of at most ATA_MAX_IOV pieces; each part is one vectored request on guest pages. A table
 * has no end but its own flag, so an entry is read only when the part before it has been moved: whatever the table
 * looks like, work is bounded by the length of the command.
 *
 * Locking: the controller's dev.lock is held in every function.
 */
#include "hw/ide/ide.h"

#include <errno.h>

#include "base/util.h"

#define BM_START     0x01u
#define BM_TO_MEMORY 0x08u
#define BM_ACTIVE    0x01u
#define BM_ERROR     0x02u
#define BM_INTERRUPT 0x04u
#define BM_CAPABLE   0x60u /* software's note: device 0 and 1 can do DMA */

#define PRD_LAST BIT(31)
#define BM_PORTS 8 /* of one channel */

void ide_bm_reset(struct ide_bm *b)
{
	*b = (struct ide_bm){0};
}

/* The next entry; false: the table is over, or lies outside RAM (*fault). */
static bool bm_next_entry(struct ide_bm *b, struct mem_map *mem, bool *fault)
{
	uint8_t entry[8];

	if (b->last)
		return false;
	/* The table does not cross 64 KiB: the address wraps. */
	if (dma_read(mem, (b->table & 0xffff0000u) | ((b->table + b->at) & 0xffffu), entry, sizeof(entry))) {
		*fault = true;
		return false;
	}
	b->at = (b->at + 8) & 0xffffu;
	b->addr = ld32le(entry) & ~1u;
	b->left = ld16le(entry + 4) & 0xfffeu;
	b->left = b->left ? b->left : 0x10000;
	b->last = ld32le(entry + 4) & PRD_LAST;
	return true;
}

/* Collect up to `want` bytes into d->iov; how many were found. */
static uint64_t bm_collect(struct ide_channel *c, struct ata_dev *d, uint64_t want, bool *fault)
{
	struct mem_map *mem = d->bus->mem;
	struct ide_bm *b = &c->bm;
	uint64_t sum = 0;

	d->niov = 0;
	while (sum < want) {
		uint32_t n;
		int r;

		if (!b->left && !bm_next_entry(b, mem, fault))
			break;
		n = (uint32_t)MIN(want - sum, (uint64_t)b->left);
		r = dma_begin(mem, b->addr, n, d->to_guest, d->iov, &d->niov, ATA_MAX_IOV);
		if (r) {
			*fault = r == -EFAULT;
			break;
		}
		b->addr += n;
		b->left -= n;
		sum += n;
	}
	return sum;
}

/* Start the next part of d's transfer. */
static void bm_part(struct ide_channel *c, struct ata_dev *d)
{
	const struct ide_bm before = c->bm;
	uint64_t want = MIN(d->left, ATA_MAX_PART), got;
	bool fault = false;

	got = bm_collect(c, d, want, &fault);
	if (!fault && got < want && d->from_disk && got % ATA_SECTOR) {
		/* The pieces ran out inside a sector: stop before it. */
		want = ALIGN_DOWN(got, (uint64_t)ATA_SECTOR);
		c->bm = before;
		got = bm_collect(c, d, want, &fault);
		fault |= got != want;
	}
	if (fault) {
		c->bm.status = (uint8_t)((c->bm.status & ~BM_ACTIVE) | BM_ERROR);
		d->niov = 0;
		ata_dma_fault(d);
		return;
	}
	if (!got) { /* the table ends before the data: the bus master stops, the device goes on waiting */
		c->bm.status &= (uint8_t)~BM_ACTIVE;
		d->regs.status = ATA_SR_DRDY | ATA_SR_DSC | ATA_SR_DRQ;
		return;
	}
	d->part = (uint32_t)got;
	ata_transfer(d);
}

/* The device has a DMA command, or the guest starts the bus master: whichever comes second begins. */
void ide_bm_begin(struct ide_channel *c, struct ata_dev *d)
{
	d->regs.status = ATA_SR_DRDY | ATA_SR_DSC | ATA_SR_DRQ;
	if (c->bm.status & BM_ACTIVE)
		bm_part(c, d);
}

void ide_bm_moved(struct ide_channel *c, struct ata_dev *d)
{
	if (!d->left)
		ata_data_done(d);
	else if (c->bm.status & BM_ACTIVE)
		bm_part(c, d);
	else /* stopped meanwhile */
		d->regs.status = ATA_SR_DRDY | ATA_SR_DSC | ATA_SR_DRQ;
}

/* After the last byte of the last entry the bus master is idle; a longer table leaves it active. */
void ide_bm_end(struct ide_channel *c, struct ata_dev *d)
{
	if (d->proto == ATA_DMA && c->bm.last && !c->bm.left)
		c->bm.status &= (uint8_t)~BM_ACTIVE;
}

static void bm_command(struct ide_channel *c, uint8_t val)
{
	struct ata_dev *d = ide_channel_selected(c);
	const bool start = val & ~c->bm.command & BM_START;

	c->bm.command = val & (BM_START | BM_TO_MEMORY);
	if (!(val & BM_START)) {
		c->bm.status &= (uint8_t)~BM_ACTIVE;
		return;
	}
	if (!start)
		return;
	c->bm.status |= BM_ACTIVE;
	c->bm.at = c->bm.left = 0;
	c->bm.last = false;
	if (d && d->cmd && d->proto == ATA_DMA && d->left && !d->io && d->regs.status & ATA_SR_DRQ)
		bm_part(c, d);
}

static uint64_t bm_read(void *opaque, uint64_t off, unsigned size)
{
	struct ide_channel *channels = opaque;
	uint64_t val = 0;

	for (unsigned i = 0; i < size; i++) {
		const struct ide_bm *b = &channels[((off + i) / BM_PORTS) & 1].bm;
		const unsigned reg = (off + i) % BM_PORTS;
		uint8_t byte = 0xff;

		if (reg == 0)
			byte = b->command;
		else if (reg == 2)
			byte = b->status;
		else if (reg >= 4)
			byte = (uint8_t)(b->table >> 8 * (reg - 4));
		val |= (uint64_t)byte << 8 * i;
	}
	return val;
}

static void bm_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct ide_channel *channels = opaque;

	for (unsigned i = 0; i < size; i++) {
		struct ide_channel *c = &channels[((off + i) / BM_PORTS) & 1];
		const unsigned reg = (off + i) % BM_PORTS;
		const uint8_t byte = (uint8_t)(val >> 8 * i);

		if (reg == 0)
			bm_command(c, byte);
		else if (reg == 2)
			c->bm.status = (uint8_t)((c->bm.status & BM_ACTIVE) | (byte & BM_CAPABLE) |
						 (c->bm.status & ~byte & (BM_ERROR | BM_INTERRUPT)));
		else if (reg >= 4)
			c->bm.table =
			    (uint32_t)((c->bm.table & ~(0xffull << 8 * (reg - 4))) | (uint64_t)byte << 8 * (reg - 4)) &
			    ~3u;
	}
}

const struct region_ops ide_bm_ops = {.read = bm_read, .write = bm_write, .min_size = 1, .max_size = 4};
