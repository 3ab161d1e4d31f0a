// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Submission and completion queues (NVM Express 1.4, 4) and the life of a request between them and the block layer.
 *
 * Locking: nvme.h. What a guest leaves in a full completion queue waits in a list; a submission queue is not read
 * while as many commands as it has entries are outstanding, so that nothing grows without bound.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "hw/nvme/nvme.h"

#define SQE_SIZE  64
#define CQE_SIZE  16
#define BATCH_MAX 128

/* ---- interrupts --------------------------------------------------------------------- */

/* The wire: on while a queue that interrupts holds entries the guest has not taken. */
void nvme_irq_update(struct nvme *n)
{
	bool on = false;

	if (pci_msix_active(&n->pci))
		return;
	for (unsigned i = 0; i <= NVME_QUEUES; i++)
		on |= n->cq[i].used && n->cq[i].interrupts && n->cq[i].head != n->cq[i].tail &&
		      !(n->cq[i].vector < 32 && n->intms & BIT(n->cq[i].vector));
	pci_set_intx(&n->pci, on);
}

static void cq_interrupt(struct nvme *n, const struct nvme_cq *cq)
{
	if (!cq->interrupts)
		return;
	counter_add(&n->interrupts, 1);
	if (pci_msix_active(&n->pci))
		pci_msix_notify(&n->pci, cq->vector);
	else
		nvme_irq_update(n);
}

/* ---- completions ----------------------------------------------------------------------- */

static bool cq_full(const struct nvme_cq *cq)
{
	return (cq->tail + 1) % cq->size == cq->head;
}

static void cq_post(struct nvme *n, struct nvme_cq *cq, uint16_t sqid, uint16_t cid, uint16_t status, uint32_t result)
{
	uint8_t e[CQE_SIZE] = {0};

	st32le(e, result);
	st16le(e + 8, (uint16_t)n->sq[sqid].head);
	st16le(e + 10, sqid);
	st16le(e + 12, cid);
	st16le(e + 14, (uint16_t)(status << 1 | cq->phase));
	dma_write(n->pci.dev.bus->mem, cq->base + (uint64_t)CQE_SIZE * cq->tail, e, sizeof(e));
	cq->tail = (cq->tail + 1) % cq->size;
	cq->phase ^= cq->tail == 0;
}

static void req_free(struct nvme_req *r)
{
	free(r->ranges);
	free(r);
}

void nvme_complete(struct nvme *n, uint16_t sqid, uint16_t cid, uint16_t status, uint32_t result)
{
	struct nvme_sq *sq = &n->sq[sqid];
	struct nvme_cq *cq = &n->cq[sq->cqid];
	struct nvme_req *r;

	if (!cq->used)
		return;
	if (!cq->waiting && !cq_full(cq)) {
		cq_post(n, cq, sqid, cid, status, result);
		sq->outstanding--;
		cq_interrupt(n, cq);
		return;
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return; /* lost: the guest's driver times out and resets */
	r->sqid = sqid;
	r->cid = cid;
	r->status = status;
	r->result = result;
	*cq->waiting_tail = r;
	cq->waiting_tail = &r->next;
}

/* What still waits for room of a queue that goes will never be told. */
void nvme_sq_remove(struct nvme *n, uint16_t sqid)
{
	struct nvme_cq *cq = &n->cq[n->sq[sqid].cqid];
	struct nvme_req **at = &cq->waiting, *r;

	while ((r = *at) != NULL) {
		if (r->sqid == sqid) {
			*at = r->next;
			req_free(r);
		} else {
			at = &r->next;
		}
	}
	cq->waiting_tail = at;
	cq->queues--;
	n->sq[sqid] = (struct nvme_sq){0};
}

void nvme_cq_drain(struct nvme *n, struct nvme_cq *cq)
{
	bool posted = false;

	while (cq->waiting && !cq_full(cq)) {
		struct nvme_req *r = cq->waiting;

		cq->waiting = r->next;
		if (!cq->waiting)
			cq->waiting_tail = &cq->waiting;
		cq_post(n, cq, r->sqid, r->cid, r->status, r->result);
		n->sq[r->sqid].outstanding--;
		req_free(r);
		posted = true;
	}
	if (posted) {
		cq_interrupt(n, cq);
		nvme_kick(n); /* submission queues may have waited for this */
	}
}

static uint16_t host_status(const struct block_req *b)
{
	switch (b->result) {
	case 0: return NVME_OK;
	case -ENOMEM: return NVME_INTERNAL;
	default: return b->op == BLOCK_READ ? NVME_READ_ERROR : NVME_WRITE_FAULT;
	}
}

/* One host request is over. Lock held; true: there is another step, which the caller submits. */
static bool req_step(struct nvme_req *r, uint16_t status)
{
	struct nvme *n = r->n;
	struct nvme_sq *sq = &n->sq[r->sqid];
	const bool ours = r->epoch == n->epoch;

	if (r->b.op == BLOCK_READ)
		for (int i = 0; i < r->niov; i++)
			mem_mark_written(n->pci.dev.bus->mem, r->iov[i].iov_base, r->iov[i].iov_len);
	if (!status && ours && nvme_io_next(r))
		return true;
	n->inflight--;
	if (ours) {
		sq->inflight--;
		nvme_complete(n, r->sqid, r->cid, status, r->result);
		if (sq->deleting && !sq->inflight) {
			const uint16_t cid = sq->delete_cid;

			nvme_sq_remove(n, r->sqid);
			nvme_complete(n, 0, cid, NVME_OK, 0);
		}
	}
	if (n->disabling && !n->inflight)
		nvme_disabled(n);
	return false;
}

static void req_done(struct block_req *b)
{
	struct nvme_req *r = container_of(b, struct nvme_req, b);
	struct nvme *n = r->n;
	const enum disk_verdict verdict = disk_error(&n->errors, &r->failed, b->op, b->result);
	bool more;

	if (verdict == DISK_ASIDE)
		return;
	pthread_mutex_lock(&n->pci.dev.lock);
	more = req_step(r, verdict == DISK_OK ? NVME_OK : host_status(b));
	pthread_mutex_unlock(&n->pci.dev.lock);
	if (more) {
		block_submit(n->drive->node, &r->b);
		return;
	}
	req_free(r);
}

/* ---- fetching ------------------------------------------------------------------------------ */

/* One command of the queue: *out is a request for the host, or NULL when it has ended. False: nothing to fetch. */
static bool sq_fetch(struct nvme *n, uint16_t sqid, struct nvme_req **out)
{
	struct nvme_sq *sq = &n->sq[sqid];
	uint8_t cmd[SQE_SIZE];
	uint32_t result = 0;
	uint16_t status, cid;

	*out = NULL;
	if (!sq->used || sq->deleting || sq->head == sq->tail || sq->outstanding >= sq->size)
		return false;
	if (dma_read(n->pci.dev.bus->mem, sq->base + (uint64_t)SQE_SIZE * sq->head, cmd, sizeof(cmd))) {
		n->csts |= 2; /* the queue is not in RAM: fatal */
		return false;
	}
	sq->head = (sq->head + 1) % sq->size;
	sq->outstanding++;
	counter_add(&n->commands, 1);
	cid = ld16le(cmd + 2);
	status = sqid ? nvme_io(n, sqid, cmd, out) : nvme_admin(n, cmd, &result);
	if (*out) {
		(*out)->epoch = n->epoch;
		(*out)->b.done = req_done;
		sq->inflight++;
		n->inflight++;
	} else if (status != NVME_PENDING) {
		nvme_complete(n, sqid, cid, status, result);
	}
	return true;
}

/* Requests of all queues, in turn; true when there may be more. */
static bool fetch_batch(struct nvme *n, struct nvme_req **list)
{
	struct nvme_req **tail = list, *r;
	unsigned count = 0;
	bool any = true;

	while (any && count < BATCH_MAX && n->csts & 1 && !n->disabling && !(n->csts & 2)) {
		any = false;
		for (uint16_t q = 0; q <= NVME_QUEUES; q++)
			if (sq_fetch(n, q, &r)) {
				any = true;
				count++;
				if (r) {
					*tail = r;
					tail = &r->next;
				}
			}
	}
	*tail = NULL;
	return count >= BATCH_MAX;
}

void nvme_run(void *opaque)
{
	struct nvme *n = opaque;
	struct nvme_req *list, *r;
	bool more;

	pthread_mutex_lock(&n->pci.dev.lock);
	n->posted = false;
	more = fetch_batch(n, &list);
	if (more)
		nvme_kick(n); /* others get their turn in the loop */
	pthread_mutex_unlock(&n->pci.dev.lock);
	while ((r = list) != NULL) {
		list = r->next;
		block_submit(n->drive->node, &r->b);
	}
	block_flush_queue(n->drive->node);
}

void nvme_kick(struct nvme *n)
{
	if (n->posted)
		return;
	n->posted = true;
	loop_post(n->pci.dev.bus->loop, nvme_run, n);
}

/* ---- ends ------------------------------------------------------------------------------------- */

void nvme_queues_clear(struct nvme *n)
{
	n->epoch++;
	for (unsigned i = 0; i <= NVME_QUEUES; i++) {
		struct nvme_req *r;

		while ((r = n->cq[i].waiting) != NULL) {
			n->cq[i].waiting = r->next;
			req_free(r);
		}
		n->sq[i] = (struct nvme_sq){0};
		n->cq[i] = (struct nvme_cq){0};
	}
	n->naer = 0;
}

void nvme_abandon(struct nvme *n)
{
	struct disk_failed *f, *failed = disk_errors_take(&n->errors);

	while ((f = failed) != NULL) {
		failed = f->next;
		n->inflight--;
		req_free(container_of(f, struct nvme_req, failed));
	}
}

void nvme_resume_failed(struct nvme *n)
{
	struct disk_failed *f, *failed = disk_errors_take(&n->errors);

	while ((f = failed) != NULL) {
		failed = f->next;
		block_submit(n->drive->node, &container_of(f, struct nvme_req, failed)->b);
	}
	block_flush_queue(n->drive->node);
}
