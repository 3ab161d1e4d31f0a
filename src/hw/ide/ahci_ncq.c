// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Queued commands of an AHCI port: READ and WRITE FPDMA QUEUED (ATA8-ACS 7.27, 7.63). Each is one request of its own,
 * straight on guest pages; up to 32 are in flight and end in any order, each with a Set Device Bits FIS.
 *
 * Locking: ahci.h. A request is parsed under the lock in the vCPU's thread, and submitted and ended in the main loop's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "hw/ide/ahci.h"

#define NCQ_WRITE   0x61
#define NCQ_MAX_IOV 8192
#define FIS_SDB	    0xa1
#define RX_SDB	    0x58

struct ahci_ncq {
	struct ahci_port *port;
	struct ahci_ncq *next;
	struct disk_failed failed;
	struct block_req b;
	unsigned tag, epoch;
	int niov;
	struct iovec iov[];
};

/* ---- results ------------------------------------------------------------------------ */

static void put_sdb(struct ahci_port *p, uint8_t status, uint8_t error, uint32_t tags)
{
	uint8_t fis[8] = {FIS_SDB, 0x40, status & 0x77, error};

	st32le(fis + 4, tags);
	p->sact &= ~tags;
	p->tfd = (p->tfd & (ATA_SR_BSY | ATA_SR_DRQ)) | status | (uint32_t)error << 8;
	ahci_put_fis(p, RX_SDB, fis, sizeof(fis));
	ahci_interrupt(p, PXIS_SDBS);
}

/* An error: all queued commands are over, log 10h tells which one it was. */
static void ncq_failed(struct ahci_port *p, unsigned tag, uint64_t lba, uint8_t error)
{
	struct ata_dev *d = ahci_device(p);
	uint8_t *log = d->ncq_error, sum = 0;

	memset(log, 0, ATA_SECTOR);
	log[0] = (uint8_t)tag;
	log[2] = ATA_SR_DRDY | ATA_SR_DSC | ATA_SR_ERR;
	log[3] = error;
	for (unsigned i = 0; i < 3; i++) {
		log[4 + i] = (uint8_t)(lba >> 8 * i);
		log[8 + i] = (uint8_t)(lba >> (24 + 8 * i));
	}
	log[7] = ATA_DEV_LBA;
	for (unsigned i = 0; i < ATA_SECTOR - 1; i++)
		sum = (uint8_t)(sum + log[i]);
	log[ATA_SECTOR - 1] = (uint8_t)-sum;
	ahci_ncq_cancel(p);
	put_sdb(p, log[2], error, 0);
	ahci_fail(p);
}

static void ncq_done(struct block_req *b)
{
	struct ahci_ncq *q = container_of(b, struct ahci_ncq, b);
	struct ahci_port *p = q->port;
	struct mem_map *mem = p->hba->pci.dev.bus->mem;
	pthread_mutex_t *lock = &p->hba->pci.dev.lock;
	const enum disk_verdict verdict = disk_error(&p->errors, &q->failed, b->op, b->result);

	if (verdict == DISK_ASIDE)
		return;
	pthread_mutex_lock(lock);
	if (b->op == BLOCK_READ)
		for (int i = 0; i < q->niov; i++)
			mem_mark_written(mem, q->iov[i].iov_base, q->iov[i].iov_len);
	p->ncq_inflight--;
	if (!p->ncq_inflight && p->draining) {
		p->draining = false;
		ahci_port_run(p);
	} else if (q->epoch == p->ncq_epoch) {
		if (verdict == DISK_OK)
			put_sdb(p, ATA_SR_DRDY | ATA_SR_DSC, 0, (uint32_t)BIT(q->tag));
		else
			ncq_failed(p, q->tag, b->offset / ATA_SECTOR, b->op == BLOCK_READ ? ATA_ER_UNC : ATA_ER_ABRT);
	}
	pthread_mutex_unlock(lock);
	free(q);
	ahci_ncq_submit(p); /* what could start only now */
}

/* ---- starting -------------------------------------------------------------------------- */

void ahci_ncq_submit(struct ahci_port *p)
{
	pthread_mutex_t *lock = &p->hba->pci.dev.lock;
	struct ahci_ncq *q, *list;
	struct block_node *node;

	pthread_mutex_lock(lock);
	list = p->pending;
	p->pending = NULL;
	p->pending_tail = &p->pending;
	pthread_mutex_unlock(lock);
	if (!list)
		return;
	node = ahci_device(p)->drive->node;
	while ((q = list) != NULL) {
		list = q->next;
		block_submit(node, &q->b);
	}
	block_flush_queue(node);
}

static void ncq_run(void *opaque)
{
	ahci_ncq_submit(opaque);
}

/* Tag, address and length of the command; false when they are wrong. */
static bool ncq_parse(const struct ata_dev *d, unsigned slot, const uint8_t *cfis, uint64_t *lba, uint32_t *count)
{
	*lba = 0;
	for (unsigned i = 0; i < 3; i++)
		*lba |= (uint64_t)cfis[4 + i] << 8 * i | (uint64_t)cfis[8 + i] << (24 + 8 * i);
	*count = cfis[3] | (uint32_t)cfis[11] << 8;
	*count = *count ? *count : 65536;
	return cfis[12] >> 3 == slot && ata_range_ok(d, *lba, *count) && !(cfis[2] == NCQ_WRITE && d->drive->read_only);
}

void ahci_ncq_start(struct ahci_port *p, unsigned slot, const uint8_t *cfis, uint64_t table, uint32_t prd_count)
{
	struct ata_dev *d = ahci_device(p);
	const bool write = cfis[2] == NCQ_WRITE, fua = cfis[7] & 0x80;
	uint32_t count, at = 0, off = 0;
	const int max = (int)MIN(prd_count + 2, (uint32_t)NCQ_MAX_IOV);
	uint64_t lba, got = 0;
	struct ahci_ncq *q;

	counter_add(&p->hba->queued, 1);
	p->ci &= ~(uint32_t)BIT(slot);
	if (!p->errors.drive)
		disk_errors_init(&p->errors, d->bus, d->drive);
	if (!ncq_parse(d, slot, cfis, &lba, &count)) {
		ncq_failed(p, slot, lba, ATA_ER_IDNF);
		return;
	}
	q = calloc(1, sizeof(*q) + (size_t)max * sizeof(q->iov[0]));
	if (!q ||
	    ahci_collect(p, table, prd_count, &at, &off, (uint64_t)count * ATA_SECTOR, !write, q->iov, &q->niov, max,
			 &got) ||
	    got != (uint64_t)count * ATA_SECTOR) {
		free(q);
		ncq_failed(p, slot, lba, ATA_ER_ABRT);
		return;
	}
	q->port = p;
	q->tag = slot;
	q->epoch = p->ncq_epoch;
	q->b = (struct block_req){.op = write ? BLOCK_WRITE : BLOCK_READ,
				  .flags = write && (fua || !d->wce) ? BLOCK_FUA : 0,
				  .offset = lba * ATA_SECTOR,
				  .len = got,
				  .iov = q->iov,
				  .niov = q->niov,
				  .done = ncq_done};
	p->ncq_inflight++;
	if (!p->pending)
		loop_post(d->bus->loop, ncq_run, p);
	*p->pending_tail = q;
	p->pending_tail = &q->next;
}

/* ---- stopping ---------------------------------------------------------------------------- */

void ahci_ncq_cancel(struct ahci_port *p)
{
	p->ncq_epoch++;
	p->draining = p->ncq_inflight;
}

static void ncq_drop(struct ahci_port *p, struct ahci_ncq *q)
{
	p->ncq_inflight--;
	free(q);
}

void ahci_ncq_abandon(struct ahci_port *p)
{
	struct disk_failed *f, *failed = p->errors.tail ? disk_errors_take(&p->errors) : NULL;
	struct ahci_ncq *q;

	while ((f = failed) != NULL) {
		failed = f->next;
		ncq_drop(p, container_of(f, struct ahci_ncq, failed));
	}
	while ((q = p->pending) != NULL) {
		p->pending = q->next;
		ncq_drop(p, q);
	}
	p->pending_tail = &p->pending;
	p->draining = false;
}

void ahci_ncq_resume(struct ahci_port *p)
{
	struct disk_failed *f, *failed = p->errors.tail ? disk_errors_take(&p->errors) : NULL;
	struct block_node *node = failed ? ahci_device(p)->drive->node : NULL;

	while ((f = failed) != NULL) {
		failed = f->next;
		block_submit(node, &container_of(f, struct ahci_ncq, failed)->b);
	}
	if (node)
		block_flush_queue(node);
}
