// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a snapshot keeps of an ATA or ATAPI device. The machine is stopped and host
 * I/O has returned, so a command in progress is one that waits for its guest: for
 * data by PIO, a packet, or a bus master to start.
 *
 * Locking: the main loop's thread, vCPUs stopped; nobody else is there.
 */
#include "hw/ide/ata.h"

#include <errno.h>

#include "base/util.h"

static const struct state_field regs_fields[] = {
    STATE_RAW(struct ata_regs, feature),
    STATE_RAW(struct ata_regs, count),
    STATE_RAW(struct ata_regs, lba),
    STATE_INT(struct ata_regs, device),
    STATE_INT(struct ata_regs, status),
    STATE_INT(struct ata_regs, error),
    {0},
};

const struct state_field ata_state_fields[] = {
    STATE_ONE(struct ata_dev, regs, regs_fields),
    STATE_INT_MAX(struct ata_dev, cur_cyls, 65535),
    STATE_INT_MAX(struct ata_dev, cur_heads, 16),
    STATE_INT_MAX(struct ata_dev, cur_secs, 255),
    STATE_INT_MAX(struct ata_dev, mult, ATA_MAX_MULT),
    STATE_INT(struct ata_dev, pio_mode),
    STATE_INT(struct ata_dev, mdma_mode),
    STATE_INT(struct ata_dev, udma_mode),
    STATE_INT(struct ata_dev, wce),
    STATE_INT(struct ata_dev, look_ahead),
    STATE_INT(struct ata_dev, smart),
    STATE_INT(struct ata_dev, smart_autosave),
    STATE_INT(struct ata_dev, identified),
    STATE_RAW(struct ata_dev, ncq_error),
    STATE_INT(struct ata_dev, saved_cmd),
    STATE_INT(struct ata_dev, saved_trim),
    STATE_INT(struct ata_dev, opcode),
    STATE_INT_MAX(struct ata_dev, proto, ATA_DMA),
    STATE_INT(struct ata_dev, to_guest),
    STATE_INT(struct ata_dev, from_disk),
    STATE_INT(struct ata_dev, fua),
    STATE_INT_MAX(struct ata_dev, offset, INT64_MAX),
    STATE_INT_MAX(struct ata_dev, left, INT64_MAX),
    STATE_INT_MAX(struct ata_dev, part, ATA_MAX_PART),
    STATE_INT_MAX(struct ata_dev, block, ATA_BUF_SIZE),
    STATE_INT_MAX(struct ata_dev, trim_at, ATA_MAX_TRIM *ATA_SECTOR),
    STATE_INT_MAX(struct ata_dev, trim_end, ATA_MAX_TRIM *ATA_SECTOR),
    STATE_RAW(struct ata_dev, cdb),
    STATE_ONE(struct ata_dev, mmc, mmc_state_fields),
    STATE_POINTED_BYTES(struct ata_dev, buf, ATA_BUF_SIZE),
    {0},
};

int ata_pre_save(struct ata_dev *d, struct err *err)
{
	if (d->io || d->work != ATA_WORK_NONE || d->resetting)
		return err_set(err, -EAGAIN, "a request of drive '%s' is in flight, or failed and waits for 'cont'",
			       d->drive->id);
	d->saved_cmd = d->cmd != NULL;
	d->saved_trim = d->received != NULL;
	return 0;
}

int ata_post_load(struct ata_dev *d, struct err *err)
{
	const bool in_buf = !d->from_disk && d->left;

	d->cmd = d->saved_cmd ? ata_command_find(d, d->opcode) : NULL;
	d->received = d->saved_trim ? ata_trim_received : NULL;
	if ((d->saved_cmd && !d->cmd) || d->trim_at % 8 || d->trim_end % 8 ||
	    (!d->cd && (d->cur_heads < 1 || d->cur_secs < 1)) ||
	    (in_buf && (d->offset > ATA_BUF_SIZE || d->left > ATA_BUF_SIZE - d->offset)) ||
	    (d->left && d->proto == ATA_PIO && (d->part > MIN(d->left, (uint64_t)ATA_BUF_SIZE))) ||
	    (d->left && d->proto == ATA_PIO && !d->block))
		return err_set(err, -EINVAL, "impossible state of a command: the snapshot is corrupted");
	return 0;
}
