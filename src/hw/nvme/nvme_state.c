// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a snapshot keeps of an NVMe controller: registers, queues, and completions
 * that wait for room. The host is idle: no command is with it.
 *
 * Locking: the main loop's thread, vCPUs stopped; nobody else is there.
 */
#include "hw/nvme/nvme.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

#define MAX_WAITING (NVME_MAX_ENTRIES * (NVME_QUEUES + 1))

static const struct state_field cq_fields[] = {
    STATE_INT(struct nvme_cq, used),	       STATE_INT(struct nvme_cq, interrupts),	STATE_INT(struct nvme_cq, base),
    STATE_INT_MAX(struct nvme_cq, size, 4096), STATE_INT(struct nvme_cq, head),		STATE_INT(struct nvme_cq, tail),
    STATE_INT(struct nvme_cq, vector),	       STATE_INT_MAX(struct nvme_cq, phase, 1), {0},
};
static const struct state_field sq_fields[] = {
    STATE_INT(struct nvme_sq, used),
    STATE_INT(struct nvme_sq, base),
    STATE_INT_MAX(struct nvme_sq, size, 4096),
    STATE_INT(struct nvme_sq, head),
    STATE_INT(struct nvme_sq, tail),
    STATE_INT_MAX(struct nvme_sq, cqid, NVME_QUEUES),
    {0},
};
static const struct state_field waiting_fields[] = {STATE_INT_MAX(struct nvme_waiting, sqid, NVME_QUEUES),
						    STATE_INT(struct nvme_waiting, cid),
						    STATE_INT(struct nvme_waiting, status),
						    STATE_INT(struct nvme_waiting, result),
						    {0}};

static const struct state_field nvme_fields[] = {
    STATE_INT(struct nvme, cc),
    STATE_INT(struct nvme, csts),
    STATE_INT(struct nvme, aqa),
    STATE_INT(struct nvme, intms),
    STATE_INT(struct nvme, asq),
    STATE_INT(struct nvme, acq),
    STATE_INT_MAX(struct nvme, page_bits, 16),
    STATE_STRUCTS(struct nvme, sq, sq_fields),
    STATE_STRUCTS(struct nvme, cq, cq_fields),
    STATE_INTS(struct nvme, aer),
    STATE_INT_MAX(struct nvme, naer, NVME_AER_MAX),
    STATE_INTS(struct nvme, features),
    STATE_INT(struct nvme, wce),
    STATE_LIST(struct nvme, saved, nsaved, MAX_WAITING, waiting_fields),
    {0},
};

static int nvme_pre_save(void *obj, struct err *err)
{
	struct nvme *n = obj;
	uint32_t at = 0;

	if (n->inflight || n->posted || n->disabling)
		return err_set(err, -EAGAIN, "a request of drive '%s' is in flight, or failed and waits for 'cont'",
			       n->drive->id);
	free(n->saved);
	n->saved = NULL;
	n->nsaved = 0;
	for (unsigned q = 0; q <= NVME_QUEUES; q++)
		for (const struct nvme_req *r = n->cq[q].waiting; r; r = r->next)
			n->nsaved++;
	if (!n->nsaved)
		return 0;
	n->saved = calloc(n->nsaved, sizeof(*n->saved));
	if (!n->saved) {
		n->nsaved = 0;
		return err_set(err, -ENOMEM, "out of memory");
	}
	for (unsigned q = 0; q <= NVME_QUEUES; q++)
		for (const struct nvme_req *r = n->cq[q].waiting; r; r = r->next)
			n->saved[at++] = (struct nvme_waiting){r->sqid, r->cid, r->status, r->result};
	return 0;
}

static bool queues_possible(const struct nvme *n)
{
	for (unsigned q = 0; q <= NVME_QUEUES; q++) {
		const struct nvme_cq *c = &n->cq[q];
		const struct nvme_sq *s = &n->sq[q];

		if (c->used && (q > n->max_queues || c->size < 2 || c->head >= c->size || c->tail >= c->size))
			return false;
		if (s->used && (q > n->max_queues || s->size < 2 || s->head >= s->size || s->tail >= s->size ||
				!n->cq[s->cqid].used))
			return false;
	}
	return n->page_bits >= 12 || !(n->csts & 1);
}

/* The lists, and what can be counted anew. */
static int take_waiting(struct nvme *n, struct err *err)
{
	for (unsigned q = 0; q <= NVME_QUEUES; q++) {
		n->cq[q].waiting = NULL;
		n->cq[q].waiting_tail = &n->cq[q].waiting;
		n->cq[q].queues = 0;
		n->sq[q].outstanding = n->sq[q].inflight = 0;
		n->sq[q].deleting = false;
	}
	for (unsigned q = 0; q <= NVME_QUEUES; q++)
		n->cq[n->sq[q].cqid].queues += n->sq[q].used;
	for (uint32_t i = 0; i < n->nsaved; i++) {
		const struct nvme_waiting *w = &n->saved[i];
		struct nvme_sq *s = &n->sq[w->sqid];
		struct nvme_cq *c = &n->cq[s->cqid];
		struct nvme_req *r;

		if (!s->used || s->outstanding == s->size)
			return err_set(err, -EINVAL, "a completion of no queue: the snapshot is corrupted");
		r = calloc(1, sizeof(*r));
		if (!r)
			return err_set(err, -ENOMEM, "out of memory");
		r->sqid = w->sqid;
		r->cid = w->cid;
		r->status = w->status;
		r->result = w->result;
		*c->waiting_tail = r;
		c->waiting_tail = &r->next;
		s->outstanding++;
	}
	return 0;
}

static int nvme_post_load(void *obj, struct err *err)
{
	struct nvme *n = obj;
	int rc = queues_possible(n) ? take_waiting(n, err)
				    : err_set(err, -EINVAL, "impossible queues: the snapshot is corrupted");

	free(n->saved);
	n->saved = NULL;
	n->nsaved = 0;
	return rc;
}

const struct state nvme_state = {.name = "nvme",
				 .version = 1,
				 .min_version = 1,
				 .parent = &pci_state,
				 .fields = nvme_fields,
				 .pre_save = nvme_pre_save,
				 .post_load = nvme_post_load};
