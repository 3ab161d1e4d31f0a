// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One legacy IDE channel: the command block (eight ports), the control block (one),
 * PIO data, INTRQ. ATA8-APT 5 (register interface) and 9 (protocols).
 *
 * A write to the command block reaches both devices; reads come from the selected one. Where that is absent all
 * registers read zero: a probe finds out at once.
 *
 * Locking: the controller's dev.lock is held in every function.
 */
#include <string.h>

#include "base/util.h"
#include "bus/dev.h"
#include "hw/ide/ide.h"

enum { REG_DATA, REG_ERROR, REG_COUNT, REG_LBA0, REG_LBA1, REG_LBA2, REG_DEVICE, REG_STATUS };

#define CONTROL_NIEN 0x02u
#define CONTROL_SRST 0x04u
#define CONTROL_HOB  0x80u
#define BM_INTERRUPT 0x04u

static void channel_line(struct ide_channel *c)
{
	const bool level = c->interrupt && !(c->control_reg & CONTROL_NIEN);

	if (level != c->level) {
		c->level = level;
		irq_set(&c->irq, level);
	}
}

static void channel_interrupt(struct ide_channel *c, bool on)
{
	if (on) {
		c->bm.status |= BM_INTERRUPT;
		counter_add(&c->interrupts, 1);
	}
	c->interrupt = on;
	channel_line(c);
}

struct ata_dev *ide_channel_selected(const struct ide_channel *c)
{
	return c->bus.unit[c->select & ATA_DEV_SLAVE ? 1 : 0];
}

/* ---- data by PIO --------------------------------------------------------------- */

static uint32_t pio_block(const struct ata_dev *d)
{
	return (uint32_t)MIN(d->left, (uint64_t)d->block);
}

/* The next DRQ block of len bytes, at the start of buf or where the reply lies. */
static void pio_ready(struct ide_channel *c, struct ata_dev *d, uint32_t len, bool interrupt)
{
	c->pio_at = d->from_disk ? 0 : (uint32_t)d->offset;
	c->pio_end = c->pio_at + len;
	d->part = len;
	d->regs.status = ATA_SR_DRDY | ATA_SR_DSC | ATA_SR_DRQ;
	if (d->cd && d->opcode == ATA_CMD_PACKET) {
		d->regs.lba[1][0] = (uint8_t)len;
		d->regs.lba[2][0] = (uint8_t)(len >> 8);
		d->regs.count[0] = d->to_guest ? ATAPI_IO : 0;
	}
	if (interrupt)
		channel_interrupt(c, true);
}

/* Between the DRQ block in buf and the disk; buf has room for any block. */
static void pio_disk(struct ata_dev *d)
{
	d->part = (uint32_t)MIN(d->left, (uint64_t)d->block & ~(uint64_t)(ATA_SECTOR - 1));
	if (!d->part) { /* a packet device was told to use very small blocks: read one sector, hand it out as one */
		d->part = (uint32_t)MIN(d->left, (uint64_t)ATA_SECTOR);
		d->block = ATA_SECTOR;
	}
	d->iov[0] = (struct iovec){d->buf, d->part};
	d->niov = 1;
	ata_transfer(d);
}

static void channel_begin(struct ata_dev *d)
{
	struct ide_channel *c = d->port;

	if (d->proto == ATA_DMA)
		ide_bm_begin(c, d);
	else if (d->from_disk && d->to_guest)
		pio_disk(d);
	else /* the first block of data out comes without an interrupt, but a packet device's */
		pio_ready(c, d, pio_block(d), d->to_guest || d->opcode == ATA_CMD_PACKET);
}

static void channel_moved(struct ata_dev *d)
{
	struct ide_channel *c = d->port;

	if (d->proto == ATA_DMA) {
		ide_bm_moved(c, d);
		return;
	}
	if (d->to_guest) { /* the part was read from the disk: it is in buf, and counted already */
		d->left += d->part;
		d->offset -= d->part;
		pio_ready(c, d, d->part, true);
	} else if (d->left) {
		pio_ready(c, d, pio_block(d), true);
	} else {
		ata_data_done(d);
	}
}

/* The guest has moved the whole DRQ block. */
static void pio_block_done(struct ide_channel *c, struct ata_dev *d)
{
	const uint32_t len = d->part;

	c->pio_at = c->pio_end = 0;
	d->regs.status = ATA_SR_BSY;
	if (!d->to_guest && d->from_disk) {
		d->part = len;
		d->iov[0] = (struct iovec){d->buf, len};
		d->niov = 1;
		ata_transfer(d);
		return;
	}
	d->left -= len;
	d->offset += len;
	if (!d->left)
		ata_data_done(d);
	else if (d->from_disk)
		pio_disk(d);
	else
		pio_ready(c, d, pio_block(d), true);
}

/* The packet itself comes as twelve bytes of PIO data. */
static void channel_want_packet(struct ata_dev *d)
{
	struct ide_channel *c = d->port;

	d->regs.count[0] = ATAPI_COD;
	d->regs.status = ATA_SR_DRDY | ATA_SR_DSC | ATA_SR_DRQ;
	d->proto = ATA_NO_DATA;
	c->pio_at = 0;
	c->pio_end = MMC_CDB_LEN;
}

static void channel_end(struct ata_dev *d)
{
	struct ide_channel *c = d->port;
	const bool silent = d->proto == ATA_PIO && d->to_guest && d->opcode != ATA_CMD_PACKET && !d->regs.error;

	c->pio_at = c->pio_end = 0;
	ide_bm_end(c, d);
	/* After the last block of PIO data in there is no interrupt: the one before it was it. */
	if (!silent)
		channel_interrupt(c, true);
	d->proto = ATA_NO_DATA;
	d->left = 0;
}

static const struct ata_port_ops channel_port_ops = {
    .begin = channel_begin,
    .moved = channel_moved,
    .end = channel_end,
    .want_packet = channel_want_packet,
};

static uint32_t data_read(struct ide_channel *c, unsigned size)
{
	struct ata_dev *d = ide_channel_selected(c);
	uint32_t val = 0;

	if (!d || !(d->regs.status & ATA_SR_DRQ) || d->proto != ATA_PIO || !d->to_guest)
		return 0;
	for (unsigned i = 0; i < size && c->pio_at < c->pio_end; i++)
		val |= (uint32_t)d->buf[c->pio_at++] << 8 * i;
	if (c->pio_at == c->pio_end)
		pio_block_done(c, d);
	return val;
}

static void data_write(struct ide_channel *c, uint32_t val, unsigned size)
{
	struct ata_dev *d = ide_channel_selected(c);
	const bool packet = d && d->proto == ATA_NO_DATA;
	uint8_t *to;

	if (!d || !(d->regs.status & ATA_SR_DRQ) || (!packet && (d->proto != ATA_PIO || d->to_guest)))
		return;
	to = packet ? d->cdb : d->buf;
	for (unsigned i = 0; i < size && c->pio_at < c->pio_end; i++)
		to[c->pio_at++] = (uint8_t)(val >> 8 * i);
	if (c->pio_at < c->pio_end)
		return;
	if (packet) {
		c->pio_at = c->pio_end = 0;
		ata_packet(d);
	} else {
		pio_block_done(c, d);
	}
}

/* ---- registers --------------------------------------------------------------------- */

/* Does this channel have a device that may be written? A busy one ignores its registers. */
static void task_file_write(struct ide_channel *c, unsigned reg, uint8_t val)
{
	c->control_reg &= (uint8_t)~CONTROL_HOB;
	if (reg == REG_DEVICE)
		c->select = val;
	for (unsigned i = 0; i < IDE_BUS_UNITS; i++) {
		struct ata_dev *d = c->bus.unit[i];
		uint8_t *latch;

		if (!d || ata_busy(d))
			continue;
		switch (reg) {
		case REG_ERROR: latch = d->regs.feature; break;
		case REG_COUNT: latch = d->regs.count; break;
		case REG_LBA0:
		case REG_LBA1:
		case REG_LBA2: latch = d->regs.lba[reg - REG_LBA0]; break;
		default: d->regs.device = val; continue;
		}
		latch[1] = latch[0];
		latch[0] = val;
	}
}

static void command_write(struct ide_channel *c, uint8_t opcode)
{
	struct ata_dev *d = ide_channel_selected(c);

	if (opcode == ATA_CMD_DIAGNOSTIC) /* EXECUTE DEVICE DIAGNOSTIC: both do, device 0 answers */
		c->select = 0;
	else if (!d)
		return;
	if (opcode == ATA_CMD_DEVICE_RESET && d->cd) { /* DEVICE RESET interrupts what runs */
		channel_interrupt(c, false);
		c->pio_at = c->pio_end = 0;
		ata_soft_reset(d);
		return;
	}
	channel_interrupt(c, false);
	for (unsigned i = 0; i < IDE_BUS_UNITS; i++) {
		struct ata_dev *u = c->bus.unit[i];

		if (u && (opcode == ATA_CMD_DIAGNOSTIC || u == d) && !ata_busy(u))
			ata_start(u, opcode);
	}
}

static uint8_t task_file_read(struct ide_channel *c, unsigned reg)
{
	const struct ata_dev *d = ide_channel_selected(c);
	const unsigned high = c->control_reg & CONTROL_HOB ? 1 : 0;

	if (!d)
		return 0;
	switch (reg) {
	case REG_ERROR: return high ? d->regs.feature[1] : d->regs.error;
	case REG_COUNT: return d->regs.count[high];
	case REG_LBA0:
	case REG_LBA1:
	case REG_LBA2: return d->regs.lba[reg - REG_LBA0][high];
	case REG_DEVICE: return (uint8_t)((d->regs.device & ~ATA_DEV_SLAVE) | 0xa0 | (c->select & ATA_DEV_SLAVE));
	default: return d->regs.status;
	}
}

static uint64_t channel_read(void *opaque, uint64_t off, unsigned size)
{
	struct ide_channel *c = opaque;
	uint64_t val = 0;

	if (off == REG_DATA)
		return data_read(c, size);
	for (unsigned i = 0; i < size; i++) {
		const unsigned reg = (unsigned)off + i;

		val |= (uint64_t)(reg <= REG_STATUS ? task_file_read(c, reg) : 0xff) << 8 * i;
		if (reg == REG_STATUS && ide_channel_selected(c))
			channel_interrupt(c, false);
	}
	return val;
}

static void channel_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct ide_channel *c = opaque;

	if (off == REG_DATA) {
		data_write(c, (uint32_t)val, size);
		return;
	}
	for (unsigned i = 0; i < size; i++) {
		const unsigned reg = (unsigned)off + i;

		if (reg < REG_STATUS)
			task_file_write(c, reg, (uint8_t)(val >> 8 * i));
		else if (reg == REG_STATUS)
			command_write(c, (uint8_t)(val >> 8 * i));
	}
}

static const struct region_ops channel_ops = {
    .read = channel_read, .write = channel_write, .min_size = 1, .max_size = 4};

/* Alternate status: the same without taking the interrupt back. */
static uint64_t control_read(void *opaque, uint64_t off, unsigned size)
{
	return task_file_read(opaque, REG_STATUS);
}

static void control_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct ide_channel *c = opaque;
	const uint8_t before = c->control_reg;

	c->control_reg = (uint8_t)val;
	if (~before & val & CONTROL_SRST) {
		channel_interrupt(c, false);
		c->pio_at = c->pio_end = 0;
		for (unsigned i = 0; i < IDE_BUS_UNITS; i++)
			if (c->bus.unit[i])
				ata_soft_reset(c->bus.unit[i]);
		c->select = 0;
	}
	channel_line(c);
}

static const struct region_ops control_ops = {
    .read = control_read, .write = control_write, .min_size = 1, .max_size = 1};

/* ---- making ------------------------------------------------------------------------------ */

void ide_channel_init(struct ide_channel *c, struct dev *controller, const char *name, const char *control_name)
{
	c->bus.nunits = IDE_BUS_UNITS;
	c->bus.ops = &channel_port_ops;
	c->bus.port = c;
	c->command =
	    (struct mem_region){.name = name, .size = 8, .ops = &channel_ops, .opaque = c, .lock = &controller->lock};
	c->control = (struct mem_region){
	    .name = control_name, .size = 1, .ops = &control_ops, .opaque = c, .lock = &controller->lock};
}

void ide_channel_reset(struct ide_channel *c)
{
	c->control_reg = c->select = 0;
	c->pio_at = c->pio_end = 0;
	ide_bm_reset(&c->bm);
	c->interrupt = false;
	channel_line(c);
}
