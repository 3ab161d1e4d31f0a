// SPDX-License-Identifier: GPL-2.0-or-later
/* What IDENTIFY DEVICE (ATA8-ACS, 7.16) and IDENTIFY PACKET DEVICE (7.17) return, and SMART (7.52). */
#include "hw/ide/ata.h"

#include <string.h>

#include "base/util.h"

static void put(uint8_t *out, unsigned word, uint32_t value)
{
	st16le(out + 2 * word, (uint16_t)value);
}

static void put32(uint8_t *out, unsigned word, uint64_t value)
{
	put(out, word, (uint32_t)value & 0xffff);
	put(out, word + 1, (uint32_t)(value >> 16) & 0xffff);
}

/* Text has its bytes swapped in each word and is filled with blanks. */
static void put_text(uint8_t *out, unsigned word, unsigned words, const char *text)
{
	const size_t len = strlen(text);

	for (unsigned i = 0; i < 2 * words; i++)
		out[2 * word + (i ^ 1)] = i < len ? (uint8_t)text[i] : ' ';
}

/* The last word makes the sum of all bytes zero. */
static void put_checksum(uint8_t *out)
{
	uint8_t sum = 0xa5;

	for (unsigned i = 0; i < ATA_SECTOR - 2; i++)
		sum += out[i];
	put(out, 255, 0xa5u | (uint32_t)(uint8_t)-sum << 8);
}

static void put_common(const struct ata_dev *d, uint8_t *out)
{
	memset(out, 0, ATA_SECTOR);
	put_text(out, 10, 10, d->serial);
	put_text(out, 23, 4, d->version);
	put_text(out, 27, 20, d->model);
	put(out, 49, 0x0f00); /* DMA, LBA, IORDY */
	put(out, 53, 7);
	put(out, 63, 0x07u | (uint32_t)d->mdma_mode << 8);
	put(out, 64, 3); /* PIO 3 and 4 */
	for (unsigned i = 65; i <= 68; i++)
		put(out, i, 120); /* ns a cycle */
	put(out, 80, 0x01f0);	  /* ATA-4 to ATA8-ACS */
	put(out, 88, 0x3fu | (uint32_t)d->udma_mode << 8);
	if (!d->sata)
		put(out, 93, 0x6001); /* an 80-wire cable */
	else
		put(out, 76, 0x010e); /* NCQ, 1.5 to 6 Gbit/s */
}

static void put_wwn(const struct ata_dev *d, uint8_t *out)
{
	for (unsigned i = 0; i < 4; i++)
		put(out, 108 + i, (uint32_t)(d->wwn >> (48 - 16 * i)) & 0xffff);
}

void ata_identify(const struct ata_dev *d, uint8_t *out)
{
	const uint32_t current = d->cur_cyls * d->cur_heads * d->cur_secs;
	uint32_t per_physical = 0;

	put_common(d, out);
	put(out, 0, 0x0040);
	put(out, 1, d->cyls);
	put(out, 3, d->heads);
	put(out, 6, d->secs);
	put(out, 47, 0x8000 | ATA_MAX_MULT);
	put(out, 50, 0x4000);
	put(out, 54, d->cur_cyls);
	put(out, 55, d->cur_heads);
	put(out, 56, d->cur_secs);
	put32(out, 57, current);
	put(out, 59, d->mult ? 0x100u | d->mult : 0);
	put32(out, 60, MIN(d->sectors, BIT(28) - 1));
	if (d->sata)
		put(out, 75, ATA_QUEUE_MAX - 1);
	put(out, 82, 0x4069);			     /* NOP, look-ahead, write cache, power, SMART */
	put(out, 83, 0x7400);			     /* FLUSH (EXT), LBA48 */
	put(out, 84, 0x4063 | (d->wwn ? 0x100 : 0)); /* FUA, logs, SMART's self-test and error log */
	put(out, 85, 0x4008u | (d->look_ahead ? 0x40u : 0) | (d->wce ? 0x20u : 0) | (d->smart ? 1u : 0));
	put(out, 86, 0x3400);
	put(out, 87, 0x4063 | (d->wwn ? 0x100 : 0));
	put32(out, 100, d->sectors & UINT32_MAX);
	put32(out, 102, d->sectors >> 32);
	while (d->physical_block_size >> per_physical > ATA_SECTOR)
		per_physical++;
	put(out, 106, 0x4000 | (per_physical ? 0x2000 | per_physical : 0));
	put_wwn(d, out);
	if (!d->drive->read_only) {
		put(out, 105, ATA_MAX_TRIM);
		put(out, 169, 1);
	}
	put(out, 217, d->rotation_rate);
	put_checksum(out);
}

void ata_identify_packet(const struct ata_dev *d, uint8_t *out)
{
	put_common(d, out);
	put(out, 0, 0x85c0); /* a removable CD drive, packets of 12 bytes, DRQ within 50 us */
	put(out, 71, 30);
	put(out, 72, 30);
	put(out, 80, 0x01f0);
	put(out, 82, 0x4218); /* NOP, DEVICE RESET, PACKET, power management */
	put(out, 83, 0x4000);
	put(out, 84, 0x4000 | (d->wwn ? 0x100 : 0));
	put(out, 85, 0x4218);
	put(out, 87, 0x4000 | (d->wwn ? 0x100 : 0));
	put_wwn(d, out);
	if (d->sata)
		put(out, 76, 0x000e);
	put_checksum(out);
}

/* ---- SMART --------------------------------------------------------------------- */

/* Attributes: id, flags, value, worst, raw; the threshold is the last. All is always well. */
static const struct {
	uint8_t id, flags, value, raw, threshold;
} smart_table[] = {
    {1, 0x0f, 100, 0, 6},    /* read errors */
    {3, 0x03, 100, 0, 0},    /* spin-up time */
    {5, 0x33, 100, 0, 36},   /* reallocated sectors */
    {9, 0x32, 100, 1, 0},    /* hours on */
    {12, 0x32, 100, 1, 0},   /* power cycles */
    {190, 0x22, 69, 31, 50}, /* temperature */
    {197, 0x12, 100, 0, 0},  /* pending sectors */
};

static void smart_sum(uint8_t *buf)
{
	uint8_t sum = 0;

	for (unsigned i = 0; i < ATA_SECTOR - 1; i++)
		sum += buf[i];
	buf[ATA_SECTOR - 1] = (uint8_t)-sum;
}

static void smart_read(const struct ata_dev *d, uint8_t *buf, bool thresholds)
{
	memset(buf, 0, ATA_SECTOR);
	buf[0] = 1;
	for (size_t i = 0; i < ARRAY_SIZE(smart_table); i++) {
		uint8_t *a = buf + 2 + 12 * i;

		a[0] = smart_table[i].id;
		a[1] = thresholds ? smart_table[i].threshold : smart_table[i].flags;
		if (thresholds)
			continue;
		a[3] = a[4] = smart_table[i].value;
		a[5] = smart_table[i].raw;
	}
	if (!thresholds) {
		buf[362] = d->smart_autosave ? 0x82 : 0x02;
		buf[367] = 0x11;	 /* offline data collection: immediate, self-tests */
		st16le(buf + 368, 3);	 /* saves its attributes */
		buf[370] = 1;		 /* has an error log */
		buf[372] = buf[373] = 1; /* minutes of a self-test */
	}
	smart_sum(buf);
}

static void smart_log(struct ata_dev *d)
{
	const uint8_t log = d->regs.lba[0][0];

	if (d->regs.count[0] != 1 || (log != 0 && log != 1 && log != 6)) {
		ata_end(d, ATA_ER_ABRT);
		return;
	}
	memset(d->buf, 0, ATA_SECTOR);
	d->buf[0] = 1; /* the version of the directory and of both logs, which are empty */
	if (log == 0)
		d->buf[2] = d->buf[12] = 1;
	if (log != 0)
		smart_sum(d->buf);
	ata_data(d, ATA_PIO, true, ATA_SECTOR);
}

void ata_cmd_smart(struct ata_dev *d)
{
	const uint8_t what = d->regs.feature[0];

	d->block = ATA_SECTOR;
	if (d->regs.lba[1][0] != 0x4f || d->regs.lba[2][0] != 0xc2 || (!d->smart && what != 0xd8)) {
		ata_end(d, ATA_ER_ABRT);
		return;
	}
	switch (what) {
	case 0xd0:
	case 0xd1:
		smart_read(d, d->buf, what == 0xd1);
		ata_data(d, ATA_PIO, true, ATA_SECTOR);
		return;
	case 0xd2: d->smart_autosave = d->regs.count[0]; break;
	case 0xd4: break; /* a self-test: it passes at once */
	case 0xd5: smart_log(d); return;
	case 0xd8:
	case 0xd9: d->smart = what == 0xd8; break;
	case 0xda: break; /* the signature still there says: no threshold is exceeded */
	default: ata_end(d, ATA_ER_ABRT); return;
	}
	ata_end(d, 0);
}
