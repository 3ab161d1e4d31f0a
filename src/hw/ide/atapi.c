// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The PACKET command: how packet commands (hw/mmc.c) and their data travel over a task file. ATA/ATAPI-6, 9.8.
 *
 * Locking: the controller's lock; packet commands themselves run in the main loop's thread.
 */
#include "hw/ide/ata.h"

#include <string.h>

#include "base/util.h"

static void packet_reply(struct ata_dev *d, const struct mmc_reply *r)
{
	/* The feature register says whether the data goes by DMA. */
	const enum ata_proto proto = d->regs.feature[0] & 1 ? ATA_DMA : ATA_PIO;

	switch (r->kind) {
	case MMC_OK: ata_end(d, 0); break;
	case MMC_CHECK: ata_end(d, ATA_ER_ABRT); break;
	case MMC_DATA: ata_data(d, proto, true, r->len); break;
	case MMC_TAKE:
		if (r->len > ATA_BUF_SIZE)
			ata_end(d, ATA_ER_ABRT);
		else
			ata_data(d, proto, false, r->len);
		break;
	case MMC_READ:
		d->proto = proto;
		d->to_guest = true;
		d->from_disk = true;
		d->offset = r->offset;
		d->left = r->len;
		d->ops->begin(d);
		break;
	}
}

static void packet_run(struct ata_dev *d)
{
	struct mmc_reply r = mmc_command(&d->mmc, d->cdb, d->buf);

	packet_reply(d, &r);
}

void ata_packet(struct ata_dev *d)
{
	ata_call(d, packet_run);
}

/* The byte count limit of PIO data: even, and never nothing. */
static uint32_t packet_limit(const struct ata_regs *r)
{
	uint32_t n = r->lba[1][0] | (uint32_t)r->lba[2][0] << 8;

	n = n == 0xffff || !n ? 0xfffe : n;
	return n < 2 ? 2 : n & ~1u;
}

void ata_cmd_packet(struct ata_dev *d)
{
	if (d->regs.feature[0] & 2) { /* overlapped commands do not exist here */
		ata_end(d, ATA_ER_ABRT);
		return;
	}
	d->block = packet_limit(&d->regs);
	if (d->ops->want_packet)
		d->ops->want_packet(d);
	else
		ata_packet(d);
}
