// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The life of an ATA command between its port and the block layer: ATA8-ACS and
 * ATA8-APT. Which commands there are is in ata_commands.c.
 *
 * Locking: see ata.h. ata_run, the block layer's completion and pause run in the
 * main loop's thread and take the lock themselves; `running` is that thread's.
 */
#include "hw/ide/ata.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* ---- host I/O --------------------------------------------------------------- */

static void ata_run(void *opaque);

/* The block layer is done with d->req. Main loop's thread, no lock. */
static void ata_block_done(struct block_req *b)
{
	struct ata_dev *d = container_of(b, struct ata_dev, req);
	const enum disk_verdict verdict = disk_error(&d->errors, &d->failed, b->op, b->result);

	if (verdict == DISK_ASIDE)
		return;
	pthread_mutex_lock(d->lock);
	d->io = false;
	if (b->op == BLOCK_READ)
		for (int i = 0; i < d->niov; i++)
			mem_mark_written(d->bus->mem, d->iov[i].iov_base, d->iov[i].iov_len);
	if (d->resetting) {
		ata_soft_reset(d);
		if (d->ops->reset_done)
			d->ops->reset_done(d);
	} else {
		d->io_done(d, verdict == DISK_OK ? 0 : b->result);
	}
	pthread_mutex_unlock(d->lock);
	ata_run(d);
}

/* Start what is to be done. A completion inside block_submit comes back here through `running`. */
static void ata_run(void *opaque)
{
	struct ata_dev *d = opaque;
	bool submitted = false;

	if (d->running)
		return;
	d->running = true;
	for (;;) {
		enum ata_work work;

		pthread_mutex_lock(d->lock);
		work = d->work;
		d->work = ATA_WORK_NONE;
		if (work == ATA_WORK_CALL)
			d->call(d);
		pthread_mutex_unlock(d->lock);
		if (d->cd)
			mmc_emit(&d->mmc);
		if (work == ATA_WORK_NONE)
			break;
		if (work != ATA_WORK_SUBMIT)
			continue;
		if (d->drive->node) {
			block_submit(d->drive->node, &d->req);
			submitted = true;
		} else {
			d->req.result = -ENOMEDIUM;
			ata_block_done(&d->req);
		}
	}
	d->running = false;
	if (submitted && d->drive->node)
		block_flush_queue(d->drive->node);
}

void ata_work(struct ata_dev *d, enum ata_work work)
{
	d->work = work;
	loop_post(d->bus->loop, ata_run, d);
}

void ata_call(struct ata_dev *d, void (*fn)(struct ata_dev *d))
{
	d->regs.status = ATA_SR_BSY;
	d->call = fn;
	ata_work(d, ATA_WORK_CALL);
}

void ata_submit(struct ata_dev *d, enum block_op op, uint64_t offset, uint64_t len, void (*done)(struct ata_dev *, int))
{
	const bool rw = op == BLOCK_READ || op == BLOCK_WRITE;

	d->regs.status = ATA_SR_BSY;
	if (!rw)
		d->niov = 0;
	d->req = (struct block_req){.op = op,
				    .offset = offset,
				    .len = len,
				    .iov = d->iov,
				    .niov = d->niov,
				    .flags = op == BLOCK_WRITE && (d->fua || !d->wce) ? BLOCK_FUA : 0,
				    .done = ata_block_done};
	d->io = true;
	d->io_done = done;
	ata_work(d, ATA_WORK_SUBMIT);
}

int ata_pause(struct ata_dev *d)
{
	if (!d->drive)
		return 0;
	ata_run(d); /* what was posted and has not run yet */
	if (d->drive->node)
		block_drain(d->drive->node);
	return 0;
}

void ata_resume(struct ata_dev *d)
{
	if (!disk_errors_take(&d->errors))
		return;
	if (!d->drive->node) {
		d->req.result = -ENOMEDIUM;
		ata_block_done(&d->req);
		return;
	}
	block_submit(d->drive->node, &d->req);
	block_flush_queue(d->drive->node);
}

/* ---- data -------------------------------------------------------------------- */

static void ata_transfer_done(struct ata_dev *d, int ret)
{
	if (ret) {
		uint64_t lba = d->offset / ATA_SECTOR;

		/* Where it failed, as the 28-bit and the 48-bit commands report it. */
		for (unsigned i = 0; i < 3; i++) {
			d->regs.lba[i][0] = (uint8_t)(lba >> 8 * i);
			d->regs.lba[i][1] = (uint8_t)(lba >> (24 + 8 * i));
		}
		if (d->cd)
			mmc_read_failed(&d->mmc, ret);
		ata_end(d, d->cd ? ATA_ER_ABRT : d->to_guest ? ATA_ER_UNC : (uint8_t)(ATA_ER_ABRT | ATA_SR_DF));
		return;
	}
	d->offset += d->part;
	d->left -= d->part;
	d->ops->moved(d);
}

/* Between guest memory and buf. */
static void ata_copy(struct ata_dev *d)
{
	uint64_t at = d->offset;

	for (int i = 0; i < d->niov; i++) {
		const struct iovec *v = &d->iov[i];

		if (d->to_guest) {
			memcpy(v->iov_base, d->buf + at, v->iov_len);
			mem_mark_written(d->bus->mem, v->iov_base, v->iov_len);
		} else {
			memcpy(d->buf + at, v->iov_base, v->iov_len);
		}
		at += v->iov_len;
	}
}

void ata_transfer(struct ata_dev *d)
{
	counter_add(&d->parts, 1);
	if (d->from_disk) {
		ata_submit(d, d->to_guest ? BLOCK_READ : BLOCK_WRITE, d->offset, d->part, ata_transfer_done);
		return;
	}
	ata_copy(d);
	ata_transfer_done(d, 0);
}

void ata_data(struct ata_dev *d, enum ata_proto proto, bool to_guest, uint64_t len)
{
	d->proto = proto;
	d->to_guest = to_guest;
	d->from_disk = false;
	d->offset = 0;
	d->left = len;
	d->regs.status = ATA_SR_BSY;
	d->ops->begin(d);
}

void ata_data_done(struct ata_dev *d)
{
	void (*received)(struct ata_dev * d) = d->received;

	d->received = NULL;
	if (received)
		received(d);
	else
		ata_end(d, 0);
}

/* ---- ends -------------------------------------------------------------------- */

/* `error`: bits of the error register; ATA_SR_DF among them stands for a device fault. */
void ata_end(struct ata_dev *d, uint8_t error)
{
	const uint8_t fault = error & ATA_SR_DF;

	d->cmd = NULL;
	d->received = NULL;
	d->regs.error = error & (uint8_t)~ATA_SR_DF;
	d->regs.status = (uint8_t)(ATA_SR_DRDY | ATA_SR_DSC | (error ? ATA_SR_ERR : 0) | fault);
	if (d->cd && d->opcode == ATA_CMD_PACKET) {
		d->regs.count[0] = ATAPI_COD | ATAPI_IO;
		if (error) /* the sense key is in the upper half */
			d->regs.error = (uint8_t)(mmc_sense_key(&d->mmc) << 4 | ATA_ER_ABRT);
	}
	d->ops->end(d);
}

void ata_dma_fault(struct ata_dev *d)
{
	ata_end(d, ATA_ER_ABRT);
}

/* ---- commands ------------------------------------------------------------------ */

void ata_start(struct ata_dev *d, uint8_t opcode)
{
	counter_add(&d->commands, 1);
	d->opcode = opcode;
	d->cmd = ata_command_find(d, opcode);
	d->regs.error = 0;
	d->regs.status = ATA_SR_BSY;
	d->fua = false;
	d->received = NULL;
	if (d->cmd)
		ata_command_run(d);
	else
		ata_end(d, ATA_ER_ABRT);
}

bool ata_busy(const struct ata_dev *d)
{
	return d->regs.status & (ATA_SR_BSY | ATA_SR_DRQ) || d->io;
}

/* ---- reset ------------------------------------------------------------------------ */

/* What a device shows after a reset: ATA8-ACS, 9 (signature). */
void ata_signature(struct ata_dev *d)
{
	struct ata_regs *r = &d->regs;

	*r = (struct ata_regs){.error = 0x01, .count = {1}, .lba = {{1}, {0}, {0}}};
	r->device = d->slave ? ATA_DEV_SLAVE : 0;
	if (d->cd) {
		r->lba[1][0] = 0x14;
		r->lba[2][0] = 0xeb;
	} else {
		r->status = ATA_SR_DRDY | ATA_SR_DSC;
	}
}

void ata_soft_reset(struct ata_dev *d)
{
	d->cmd = NULL;
	d->received = NULL;
	if (d->work == ATA_WORK_SUBMIT)
		d->io = false; /* not yet started */
	d->work = ATA_WORK_NONE;
	d->resetting = d->io;
	d->proto = ATA_NO_DATA;
	d->left = 0;
	d->regs.status = ATA_SR_BSY;
	if (d->io)
		return;
	d->mult = ATA_MAX_MULT;
	d->cur_cyls = d->cyls;
	d->cur_heads = d->heads;
	d->cur_secs = d->secs;
	ata_signature(d);
}

void ata_power_on(struct ata_dev *d)
{
	disk_errors_take(&d->errors);
	d->io = false;
	d->work = ATA_WORK_NONE;
	d->wce = d->initial_wce;
	d->look_ahead = d->smart = d->smart_autosave = true;
	d->pio_mode = 0;
	d->mdma_mode = 0;
	d->udma_mode = 0;
	d->identified = false;
	memset(d->ncq_error, 0, sizeof(d->ncq_error));
	if (d->cd)
		mmc_reset(&d->mmc);
	ata_soft_reset(d);
}

/* ---- making ------------------------------------------------------------------------ */

static int ata_geometry(struct ata_dev *d, struct err *err)
{
	if (!d->cyls && !d->heads && !d->secs) {
		d->heads = 16;
		d->secs = 63;
		d->cyls = (uint32_t)MIN(d->sectors / (16 * 63), 16383u);
	}
	if (d->cyls > 65535 || d->heads < 1 || d->heads > 16 || d->secs < 1 || d->secs > 255)
		return err_set(err, -EINVAL, "cyls must be at most 65535, heads from 1 to 16, secs from 1 to 255");
	return 0;
}

int ata_init(struct ata_dev *d, struct err *err)
{
	int ret = 0;

	d->buf = malloc(ATA_BUF_SIZE);
	if (!d->buf)
		return err_set(err, -ENOMEM, "out of memory");
	disk_errors_init(&d->errors, d->bus, d->drive);
	if (!d->cd) {
		d->sectors = block_size(d->drive->node) / ATA_SECTOR;
		ret = ata_geometry(d, err);
	}
	if (ret) {
		free(d->buf);
		d->buf = NULL;
		return ret;
	}
	return 0;
}

void ata_fini(struct ata_dev *d)
{
	free(d->buf);
	d->buf = NULL;
}
