// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The ATA command set: ATA8-ACS, 7, and the older commands that BIOSes and early systems still send (ATA-1 to ATA-4).
 * One table; a command either ends at once, or starts a data phase or a request to the image.
 *
 * Locking: as ata.h says, the controller's lock is held in each function.
 */
#include "hw/ide/ata.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

enum {
	F_DISK = 1u << 0,
	F_CD = 1u << 1,
	F_EXT = 1u << 2, /* 48-bit addresses and counts */
	F_WRITE = 1u << 3,
	F_DMA = 1u << 4,
	F_MULTIPLE = 1u << 5,
	F_FUA = 1u << 6,
	F_BOTH = F_DISK | F_CD,
};

struct ata_command {
	uint8_t opcode;
	uint8_t flags;
	void (*fn)(struct ata_dev *d);
};

/* ---- addresses --------------------------------------------------------------- */

bool ata_range_ok(const struct ata_dev *d, uint64_t lba, uint64_t count)
{
	return lba <= d->sectors && count <= d->sectors - lba;
}

/* The first sector, or UINT64_MAX when the address makes no sense. */
static uint64_t ata_lba(const struct ata_dev *d, bool ext)
{
	const struct ata_regs *r = &d->regs;
	const uint64_t low = r->lba[0][0] | (uint64_t)r->lba[1][0] << 8 | (uint64_t)r->lba[2][0] << 16;
	const uint64_t high = r->lba[0][1] | (uint64_t)r->lba[1][1] << 8 | (uint64_t)r->lba[2][1] << 16;
	uint64_t cylinder, head, sector;

	if (ext)
		return low | high << 24;
	if (r->device & ATA_DEV_LBA)
		return low | (uint64_t)(r->device & 15) << 24;
	cylinder = low >> 8;
	head = r->device & 15;
	sector = low & 0xff;
	if (!sector || sector > d->cur_secs || head >= d->cur_heads)
		return UINT64_MAX;
	return (cylinder * d->cur_heads + head) * d->cur_secs + sector - 1;
}

static uint32_t ata_count(const struct ata_dev *d, bool ext)
{
	const uint32_t n = d->regs.count[0] | (ext ? (uint32_t)d->regs.count[1] << 8 : 0);

	return n ? n : ext ? 65536 : 256;
}

/* Checks the range of the command; ends it when that is wrong. */
static bool ata_range(struct ata_dev *d, uint64_t *lba, uint32_t *count)
{
	const bool ext = d->cmd->flags & F_EXT;

	*lba = ata_lba(d, ext);
	*count = ata_count(d, ext);
	if (ata_range_ok(d, *lba, *count))
		return true;
	ata_end(d, ATA_ER_IDNF);
	return false;
}

static void cmd_rw(struct ata_dev *d)
{
	const unsigned flags = d->cmd->flags;
	uint64_t lba;
	uint32_t count;

	if ((flags & F_MULTIPLE) && !d->mult) {
		ata_end(d, ATA_ER_ABRT);
		return;
	}
	if (!ata_range(d, &lba, &count))
		return;
	if ((flags & F_WRITE) && d->drive->read_only) {
		ata_end(d, ATA_ER_ABRT);
		return;
	}
	d->proto = flags & F_DMA ? ATA_DMA : ATA_PIO;
	d->to_guest = !(flags & F_WRITE);
	d->from_disk = true;
	d->fua = flags & F_FUA;
	d->offset = lba * ATA_SECTOR;
	d->left = (uint64_t)count * ATA_SECTOR;
	d->block = flags & F_MULTIPLE ? d->mult * ATA_SECTOR : ATA_SECTOR;
	d->ops->begin(d);
}

static void cmd_verify(struct ata_dev *d)
{
	uint64_t lba;
	uint32_t count;

	if (ata_range(d, &lba, &count))
		ata_end(d, 0);
}

static void cmd_native_max(struct ata_dev *d)
{
	const bool ext = d->cmd->flags & F_EXT;
	const uint64_t max = MIN(d->sectors, ext ? BIT(48) : BIT(28) - 1) - 1;

	for (unsigned i = 0; i < 3; i++) {
		d->regs.lba[i][0] = (uint8_t)(max >> 8 * i);
		d->regs.lba[i][1] = ext ? (uint8_t)(max >> (24 + 8 * i)) : 0;
	}
	if (!ext)
		d->regs.device = (uint8_t)((d->regs.device & 0xf0) | (max >> 24 & 15));
	ata_end(d, 0);
}

/* ---- flush, trim ---------------------------------------------------------------- */

static void flush_done(struct ata_dev *d, int ret)
{
	ata_end(d, ret ? ATA_ER_ABRT | ATA_SR_DF : 0);
}

static void cmd_flush(struct ata_dev *d)
{
	if (d->cd)
		ata_end(d, 0);
	else
		ata_submit(d, BLOCK_FLUSH, 0, 0, flush_done);
}

/* One range after the other; a range is 48 bits of address and 16 of length. */
static void trim_next(struct ata_dev *d, int ret)
{
	while (!ret && d->trim_at < d->trim_end) {
		const uint64_t range = ld64le(d->buf + d->trim_at);
		const uint64_t lba = range & (BIT(48) - 1), count = range >> 48;

		d->trim_at += 8;
		if (!count)
			continue;
		if (!ata_range_ok(d, lba, count)) {
			ata_end(d, ATA_ER_IDNF);
			return;
		}
		ata_submit(d, BLOCK_DISCARD, lba * ATA_SECTOR, count * ATA_SECTOR, trim_next);
		return;
	}
	ata_end(d, ret ? ATA_ER_ABRT | ATA_SR_DF : 0);
}

void ata_trim_received(struct ata_dev *d)
{
	trim_next(d, 0);
}

static void cmd_data_set(struct ata_dev *d)
{
	const uint32_t count = ata_count(d, true);

	if (!(d->regs.feature[0] & 1) || count > ATA_MAX_TRIM || d->drive->read_only) {
		ata_end(d, ATA_ER_ABRT);
		return;
	}
	d->trim_at = 0;
	d->trim_end = count * ATA_SECTOR;
	d->received = ata_trim_received;
	ata_data(d, ATA_DMA, false, d->trim_end);
}

/* ---- identify and features --------------------------------------------------------- */

static void cmd_identify(struct ata_dev *d)
{
	if (d->cd) { /* 7.16.6: a packet device aborts and shows its signature */
		const uint8_t device = d->regs.device;

		ata_signature(d);
		d->regs.device = device;
		ata_end(d, ATA_ER_ABRT);
		return;
	}
	ata_identify(d, d->buf);
	d->block = ATA_SECTOR;
	ata_data(d, ATA_PIO, true, ATA_SECTOR);
}

static void cmd_identify_packet(struct ata_dev *d)
{
	ata_identify_packet(d, d->buf);
	d->block = ATA_SECTOR;
	ata_data(d, ATA_PIO, true, ATA_SECTOR);
}

/* SET FEATURES 03h: the upper five bits of the count are the kind of mode, the lower three its number. */
static bool set_transfer_mode(struct ata_dev *d)
{
	const uint8_t kind = d->regs.count[0] >> 3, mode = d->regs.count[0] & 7;

	switch (kind) {
	case 0x00: d->pio_mode = 0; return mode <= 1;
	case 0x01: d->pio_mode = mode; return mode <= 4;
	case 0x04:
		d->mdma_mode = (uint8_t)BIT(mode);
		d->udma_mode = 0;
		return mode <= 2;
	case 0x08:
		d->udma_mode = (uint8_t)BIT(mode);
		d->mdma_mode = 0;
		return mode <= 5;
	default: return false;
	}
}

/* Turning the cache off makes what was written durable: it ends with a flush. */
static void set_write_cache(struct ata_dev *d, bool on)
{
	d->wce = on;
	if (on)
		ata_end(d, 0);
	else
		cmd_flush(d);
}

static void cmd_set_features(struct ata_dev *d)
{
	const uint8_t feature = d->regs.feature[0];
	bool ok = true;

	switch (feature) {
	case 0x02:
	case 0x82:
		if (d->cd)
			ok = false;
		else
			set_write_cache(d, feature == 0x02);
		if (ok)
			return;
		break;
	case 0x03: ok = set_transfer_mode(d); break;
	case 0x55:
	case 0xaa: d->look_ahead = feature == 0xaa; break;
	case 0x05: /* advanced power management, */
	case 0x85:
	case 0x42: /* acoustics, */
	case 0xc2:
	case 0x66: /* what a soft reset keeps, */
	case 0xcc:
	case 0x10: /* and SATA features: all without effect here */
	case 0x90:
	case 0x95:
	case 0x5d:
	case 0xdd: break;
	default: ok = false;
	}
	ata_end(d, ok ? 0 : ATA_ER_ABRT);
}

static void cmd_set_multiple(struct ata_dev *d)
{
	const uint8_t n = d->regs.count[0];
	const bool ok = n <= ATA_MAX_MULT && !(n & (n - 1));

	if (ok)
		d->mult = n;
	ata_end(d, ok ? 0 : ATA_ER_ABRT);
}

static void cmd_init_parameters(struct ata_dev *d)
{
	const uint32_t heads = (d->regs.device & 15u) + 1, secs = d->regs.count[0];

	if (!secs) {
		ata_end(d, ATA_ER_ABRT);
		return;
	}
	d->cur_heads = heads;
	d->cur_secs = secs;
	d->cur_cyls = (uint32_t)MIN(d->sectors / (heads * secs), 65535u);
	ata_end(d, 0);
}

/* ---- commands with little to them ------------------------------------------------------ */

static void cmd_ok(struct ata_dev *d)
{
	ata_end(d, 0);
}

static void cmd_power_mode(struct ata_dev *d)
{
	d->regs.count[0] = 0xff; /* active or idle */
	ata_end(d, 0);
}

/* Both devices of a channel answer to it; the port starts it on each. */
static void cmd_diagnostic(struct ata_dev *d)
{
	const bool cd = d->cd;

	ata_signature(d);
	d->cmd = NULL;
	d->regs.status = cd ? 0 : ATA_SR_DRDY | ATA_SR_DSC;
	d->ops->end(d);
}

static void cmd_device_reset(struct ata_dev *d)
{
	ata_soft_reset(d);
}

/* General purpose logs: the directory (0) and the NCQ error log (10h). */
static void cmd_read_log(struct ata_dev *d)
{
	const uint32_t page = d->regs.lba[1][0] | (uint32_t)d->regs.lba[1][1] << 8, count = ata_count(d, true);

	memset(d->buf, 0, ATA_SECTOR);
	if (page || count != 1 || (d->regs.lba[0][0] != 0 && d->regs.lba[0][0] != 0x10)) {
		ata_end(d, ATA_ER_ABRT);
		return;
	}
	if (d->regs.lba[0][0] == 0) {
		st16le(d->buf, 1);
		st16le(d->buf + 2 * 0x10, 1);
	} else {
		memcpy(d->buf, d->ncq_error, ATA_SECTOR);
	}
	d->block = ATA_SECTOR;
	ata_data(d, d->cmd->flags & F_DMA ? ATA_DMA : ATA_PIO, true, ATA_SECTOR);
}

/* ---- the table --------------------------------------------------------------------------- */

static const struct ata_command command_table[] = {
    {0x06, F_DISK | F_DMA | F_EXT, cmd_data_set},
    {0x08, F_CD, cmd_device_reset},
    {0x10, F_DISK, cmd_ok}, /* RECALIBRATE */
    {0x20, F_DISK, cmd_rw},
    {0x21, F_DISK, cmd_rw},
    {0x24, F_DISK | F_EXT, cmd_rw},
    {0x25, F_DISK | F_EXT | F_DMA, cmd_rw},
    {0x27, F_DISK | F_EXT, cmd_native_max},
    {0x29, F_DISK | F_EXT | F_MULTIPLE, cmd_rw},
    {0x2f, F_DISK | F_EXT, cmd_read_log},
    {0x30, F_DISK | F_WRITE, cmd_rw},
    {0x31, F_DISK | F_WRITE, cmd_rw},
    {0x34, F_DISK | F_EXT | F_WRITE, cmd_rw},
    {0x35, F_DISK | F_EXT | F_WRITE | F_DMA, cmd_rw},
    {0x39, F_DISK | F_EXT | F_WRITE | F_MULTIPLE, cmd_rw},
    {0x3d, F_DISK | F_EXT | F_WRITE | F_DMA | F_FUA, cmd_rw},
    {0x40, F_DISK, cmd_verify},
    {0x41, F_DISK, cmd_verify},
    {0x42, F_DISK | F_EXT, cmd_verify},
    {0x47, F_DISK | F_EXT | F_DMA, cmd_read_log},
    {0x70, F_DISK, cmd_ok}, /* SEEK */
    {0x90, F_BOTH, cmd_diagnostic},
    {0x91, F_DISK, cmd_init_parameters},
    {0x94, F_BOTH, cmd_ok}, /* power management of ATA-1 */
    {0x95, F_BOTH, cmd_ok},
    {0x96, F_BOTH, cmd_ok},
    {0x97, F_BOTH, cmd_ok},
    {0x98, F_BOTH, cmd_power_mode},
    {0x99, F_BOTH, cmd_ok},
    {0xa0, F_CD, ata_cmd_packet},
    {0xa1, F_CD, cmd_identify_packet},
    {0xb0, F_DISK, ata_cmd_smart},
    {0xc4, F_DISK | F_MULTIPLE, cmd_rw},
    {0xc5, F_DISK | F_WRITE | F_MULTIPLE, cmd_rw},
    {0xc6, F_DISK, cmd_set_multiple},
    {0xc8, F_DISK | F_DMA, cmd_rw},
    {0xc9, F_DISK | F_DMA, cmd_rw},
    {0xca, F_DISK | F_WRITE | F_DMA, cmd_rw},
    {0xcb, F_DISK | F_WRITE | F_DMA, cmd_rw},
    {0xce, F_DISK | F_EXT | F_WRITE | F_MULTIPLE | F_FUA, cmd_rw},
    {0xe0, F_BOTH, cmd_flush}, /* STANDBY IMMEDIATE: the cache is written first */
    {0xe1, F_BOTH, cmd_ok},    /* IDLE IMMEDIATE */
    {0xe2, F_BOTH, cmd_flush}, /* STANDBY */
    {0xe3, F_BOTH, cmd_ok},    /* IDLE */
    {0xe5, F_BOTH, cmd_power_mode},
    {0xe6, F_BOTH, cmd_flush}, /* SLEEP */
    {0xe7, F_BOTH, cmd_flush},
    {0xea, F_BOTH, cmd_flush},
    {0xec, F_BOTH, cmd_identify},
    {0xef, F_BOTH, cmd_set_features},
    {0xf8, F_DISK, cmd_native_max},
};

const struct ata_command *ata_command_find(const struct ata_dev *d, uint8_t opcode)
{
	const unsigned kind = d->cd ? F_CD : F_DISK;

	if ((opcode & 0xf0) == 0x10)
		opcode = 0x10; /* RECALIBRATE with the step rate of old drives */
	for (size_t i = 0; i < ARRAY_SIZE(command_table); i++)
		if (command_table[i].opcode == opcode)
			return command_table[i].flags & kind ? &command_table[i] : NULL;
	return NULL;
}

void ata_command_run(struct ata_dev *d)
{
	d->cmd->fn(d);
}
