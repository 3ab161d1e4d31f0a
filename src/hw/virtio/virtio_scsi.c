// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The virtio SCSI adapter: VIRTIO 1.1, 5.6. Its units are hw/scsi's; guest pages go
 * straight to the block layer.
 *
 *   queue 0     task management and asynchronous notification requests
 *   queue 1     buffers for events (hot plug, changed media)
 *   queue 2...  commands
 *
 * Locking: dev.lock guards the queues; chains are parsed under it. Commands, task
 * management and units belong to the loop's thread and run without it.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "base/iov.h"
#include "hw/scsi/scsi.h"
#include "hw/virtio/devices.h"
#include "hw/virtio/virtio_pci.h"
#include "io/iothread.h"

/* 5.6.3 */
#define VIRTIO_SCSI_F_HOTPLUG 1
#define VIRTIO_SCSI_F_CHANGE  2

/* 5.6.4 */
enum {
	CFG_NUM_QUEUES = 0,
	CFG_SEG_MAX = 4,
	CFG_MAX_SECTORS = 8,
	CFG_CMD_PER_LUN = 12,
	CFG_EVENT_INFO_SIZE = 16,
	CFG_SENSE_SIZE = 20,
	CFG_CDB_SIZE = 24,
	CFG_MAX_CHANNEL = 28,
	CFG_MAX_TARGET = 30,
	CFG_MAX_LUN = 32,
	CFG_SIZE = 36,
};

/* 5.6.6.1: responses of commands and of task management */
enum {
	VIRTIO_SCSI_S_OK = 0,
	VIRTIO_SCSI_S_OVERRUN = 1,
	VIRTIO_SCSI_S_ABORTED = 2,
	VIRTIO_SCSI_S_BAD_TARGET = 3,
	VIRTIO_SCSI_S_FUNCTION_SUCCEEDED = 10,
	VIRTIO_SCSI_S_FUNCTION_REJECTED = 11,
	VIRTIO_SCSI_S_INCORRECT_LUN = 12,
};

/* 5.6.6.2 */
#define VIRTIO_SCSI_T_TMF	   0
#define VIRTIO_SCSI_T_AN_QUERY	   1
#define VIRTIO_SCSI_T_AN_SUBSCRIBE 2
enum {
	TMF_ABORT_TASK = 0,
	TMF_ABORT_TASK_SET = 1,
	TMF_CLEAR_ACA = 2,
	TMF_CLEAR_TASK_SET = 3,
	TMF_I_T_NEXUS_RESET = 4,
	TMF_LOGICAL_UNIT_RESET = 5,
	TMF_QUERY_TASK = 6,
	TMF_QUERY_TASK_SET = 7,
};

/* 5.6.6.3 */
#define VIRTIO_SCSI_T_EVENTS_MISSED   0x80000000u
#define VIRTIO_SCSI_T_NO_EVENT	      0
#define VIRTIO_SCSI_T_TRANSPORT_RESET 1
#define VIRTIO_SCSI_T_PARAM_CHANGE    3
#define EVT_RESET_RESCAN	      1
#define EVT_RESET_REMOVED	      2
#define EVENT_LEN		      16

#define QUEUE_CONTROL 0
#define QUEUE_EVENT   1
#define QUEUE_REQUEST 2
#define REQ_FIXED     19 /* before the CDB */
#define RESP_FIXED    12 /* before the sense */
#define TMF_LEN	      24
#define AN_LEN	      16
#define AN_RESP_LEN   5
#define CDB_SIZE      32
#define SENSE_SIZE    96
#define MAX_TARGET    255
#define MAX_LUN	      16383
#define CONTROL_BATCH 64

struct virtio_scsi {
	struct virtio_pci t;
	struct scsi_bus bus;
	struct object *iothread;
	uint32_t num_queues, max_sectors, cmd_per_lun;
	uint16_t queue_size;
	bool hotplug, param_change;
	uint32_t cdb_size, sense_size; /* dev.lock; what the driver chose */
	bool events_missed;	       /* dev.lock */
	/* the loop's thread */
	struct vscsi_req *active;
	struct vscsi_tmf *tmfs;
	uint64_t serial;
	uint64_t batches, events; /* counters */
};

struct vscsi_req {
	struct virtio_req r;
	struct scsi_req s;
	struct virtio_scsi *dev;
	struct vscsi_req *next, **prev; /* of active */
	uint64_t tag, serial;
	uint8_t lun[8], cdb[SCSI_CDB_LEN];
	unsigned cdb_len;
	uint32_t resp_len;
	uint64_t out_len, in_len; /* of the data */
	struct iovec *out, *in;
	int nout, nin;
	struct iovec iov[];
};

/* A task management function that waits for the commands it ended. */
struct vscsi_tmf {
	struct virtio_req r;
	struct vscsi_tmf *next;
	uint32_t type;
	unsigned target, lun;
	uint64_t tag, serial; /* commands with a smaller number are meant */
	struct iovec resp[1];
};

static struct virtio_scsi *vscsi_of(struct virtio *v)
{
	return container_of(v, struct virtio_scsi, t.vio);
}

/* 5.6.6.1: 1, target, then one level of LUN (peripheral or flat addressing). */
static bool parse_lun(const uint8_t *lun, unsigned *target, unsigned *number)
{
	const unsigned n = ld16be(lun + 2);

	*target = lun[1];
	*number = n & 0x3fff;
	return lun[0] == 1 && (n < 256 || n >> 14 == 1);
}

/* ---- task management ---------------------------------------------------------------- */

static bool tmf_matches(const struct vscsi_tmf *t, const struct vscsi_req *req)
{
	if (req->serial >= t->serial || req->s.target != t->target)
		return false;
	if (t->type == TMF_I_T_NEXUS_RESET)
		return true;
	if (req->s.lun != t->lun)
		return false;
	return (t->type != TMF_ABORT_TASK && t->type != TMF_QUERY_TASK) || req->tag == t->tag;
}

static struct vscsi_req *tmf_find(struct virtio_scsi *s, const struct vscsi_tmf *t)
{
	for (struct vscsi_req *req = s->active; req; req = req->next)
		if (tmf_matches(t, req))
			return req;
	return NULL;
}

static void tmf_release(struct virtio_req *r)
{
	free(container_of(r, struct vscsi_tmf, r));
}

static void tmf_respond(struct virtio_scsi *s, struct vscsi_tmf *t, uint8_t response)
{
	*(uint8_t *)t->resp[0].iov_base = response;
	virtio_complete(&s->t.vio, &t->r, 1);
}

/* A command ended: which functions have nothing to wait for any more? */
static void tmf_check(struct virtio_scsi *s)
{
	struct vscsi_tmf **at = &s->tmfs, *t;

	while ((t = *at) != NULL) {
		if (tmf_find(s, t)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		tmf_respond(s, t, VIRTIO_SCSI_S_OK);
	}
}

static void tmf_reset_units(struct virtio_scsi *s, const struct vscsi_tmf *t)
{
	struct scsi_unit *u;

	if (t->type == TMF_LOGICAL_UNIT_RESET) {
		scsi_unit_reset(scsi_bus_find(&s->bus, 0, t->target, t->lun));
		return;
	}
	for (unsigned lun = 0; lun <= MAX_LUN; lun++)
		if ((u = scsi_bus_find(&s->bus, 0, t->target, lun)) != NULL)
			scsi_unit_reset(u);
}

static void tmf_run(struct virtio_scsi *s, struct vscsi_tmf *t, bool good_lun)
{
	t->serial = s->serial;
	if (!good_lun || !scsi_bus_has_target(&s->bus, 0, t->target)) {
		tmf_respond(s, t, VIRTIO_SCSI_S_BAD_TARGET);
		return;
	}
	if (t->type != TMF_I_T_NEXUS_RESET && !scsi_bus_find(&s->bus, 0, t->target, t->lun)) {
		tmf_respond(s, t, VIRTIO_SCSI_S_INCORRECT_LUN);
		return;
	}
	switch (t->type) {
	case TMF_QUERY_TASK:
	case TMF_QUERY_TASK_SET:
		tmf_respond(s, t, tmf_find(s, t) ? VIRTIO_SCSI_S_FUNCTION_SUCCEEDED : VIRTIO_SCSI_S_OK);
		return;
	case TMF_I_T_NEXUS_RESET:
	case TMF_LOGICAL_UNIT_RESET: tmf_reset_units(s, t); break;
	case TMF_ABORT_TASK:
	case TMF_ABORT_TASK_SET:
	case TMF_CLEAR_TASK_SET: break;
	default: tmf_respond(s, t, VIRTIO_SCSI_S_FUNCTION_REJECTED); return;
	}
	/* Host I/O cannot be called back: the function ends when the last command has. */
	for (struct vscsi_req *req = s->active; req; req = req->next)
		if (tmf_matches(t, req))
			req->s.cancelled = true;
	t->next = s->tmfs;
	s->tmfs = t;
	tmf_check(s);
}

/* ---- the control queue ------------------------------------------------------------------ */

/* The chain in v->chain, lock held: a function to run without it, or NULL when it was answered or is broken. */
static struct vscsi_tmf *control_parse(struct virtio *v, struct virtio_queue *q, bool *good_lun)
{
	const struct virtq_chain *c = &v->chain;
	struct iovec *in = v->chain.iov + c->nout;
	struct vscsi_tmf *t;
	uint8_t m[TMF_LEN], resp[AN_RESP_LEN] = {0};
	size_t n = iov_read(c->iov, c->nout, 0, m, sizeof(m));
	const uint32_t type = n >= 4 ? ld32le(m) : UINT32_MAX;

	if ((type == VIRTIO_SCSI_T_AN_QUERY || type == VIRTIO_SCSI_T_AN_SUBSCRIBE) && n >= AN_LEN &&
	    c->in_len >= AN_RESP_LEN) { /* no asynchronous notification exists: none was subscribed */
		virtio_push_now(v, q, (uint32_t)iov_write(in, c->nin, 0, resp, sizeof(resp)));
		return NULL;
	}
	if (type != VIRTIO_SCSI_T_TMF || n < TMF_LEN || c->in_len < 1) {
		virtio_break(v, q, "a control request that is none");
		return NULL;
	}
	t = calloc(1, sizeof(*t));
	if (!t) {
		virtq_unpop(&q->vq);
		return NULL;
	}
	t->type = ld32le(m + 4);
	*good_lun = parse_lun(m + 8, &t->target, &t->lun);
	t->tag = ld64le(m + 16);
	virtio_req_init(v, q, &t->r);
	while (in->iov_len == 0)
		in++;
	t->resp[0] = (struct iovec){in->iov_base, 1};
	t->r.in = t->resp;
	t->r.nin = 1;
	t->r.release = tmf_release;
	return t;
}

static void control_handle(struct virtio *v, struct virtio_queue *q)
{
	struct virtio_scsi *s = vscsi_of(v);
	unsigned n = 0;
	bool good_lun = false;

	virtio_lock(v);
	do {
		virtq_notify_off(&q->vq);
		while (n < CONTROL_BATCH && virtio_pop(v, q)) {
			struct vscsi_tmf *t = control_parse(v, q, &good_lun);
			n++;
			if (!t)
				continue;
			virtio_unlock(v);
			tmf_run(s, t, good_lun);
			virtio_lock(v);
		}
	} while (virtio_notify_on(v, q) && n < CONTROL_BATCH);
	virtio_signal(v, q);
	if (n == CONTROL_BATCH)
		virtio_kick(v, q);
	virtio_unlock(v);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Lock held. */
static void event_send(struct virtio_scsi *s, uint32_t event, const struct scsi_unit *u, uint32_t reason)
{
	struct virtio *v = &s->t.vio;
	struct virtio_queue *q = &v->queue[QUEUE_EVENT];
	unsigned channel, target, lun;
	uint8_t e[EVENT_LEN] = {0};

	if (!virtio_pop(v, q)) {
		s->events_missed = v->status & VIRTIO_STATUS_DRIVER_OK;
		return;
	}
	if (s->events_missed)
		event |= VIRTIO_SCSI_T_EVENTS_MISSED;
	s->events_missed = false;
	st32le(e, event);
	if (u) {
		scsi_unit_address(u, &channel, &target, &lun);
		e[4] = 1;
		e[5] = (uint8_t)target;
		st16be(e + 6, (uint16_t)(lun < 256 ? lun : 0x4000 | lun));
	}
	st32le(e + 12, reason);
	virtio_push_now(v, q, (uint32_t)iov_write(v->chain.iov + v->chain.nout, v->chain.nin, 0, e, sizeof(e)));
	virtio_signal(v, q);
	counter_add(&s->events, 1);
}

static void event_handle(struct virtio *v, struct virtio_queue *q)
{
	struct virtio_scsi *s = vscsi_of(v);

	virtio_lock(v);
	if (s->events_missed)
		event_send(s, VIRTIO_SCSI_T_NO_EVENT, NULL, 0);
	virtio_unlock(v);
}

static void unit_event(struct scsi_bus *b, struct scsi_unit *u, enum scsi_unit_event event)
{
	static const struct {
		unsigned feature;
		uint32_t event, reason;
	} table[] = {
	    [SCSI_UNIT_ADDED] = {VIRTIO_SCSI_F_HOTPLUG, VIRTIO_SCSI_T_TRANSPORT_RESET, EVT_RESET_RESCAN},
	    [SCSI_UNIT_REMOVED] = {VIRTIO_SCSI_F_HOTPLUG, VIRTIO_SCSI_T_TRANSPORT_RESET, EVT_RESET_REMOVED},
	    [SCSI_UNIT_MEDIUM] = {VIRTIO_SCSI_F_CHANGE, VIRTIO_SCSI_T_PARAM_CHANGE, 0x28}, /* ASC 28h, ASCQ 00h */
	};
	struct virtio_scsi *s = container_of(b, struct virtio_scsi, bus);

	virtio_lock(&s->t.vio);
	if (virtio_has(&s->t.vio, table[event].feature))
		event_send(s, table[event].event, u, table[event].reason);
	virtio_unlock(&s->t.vio);
}

static const struct scsi_hba_ops vscsi_hba_ops = {.unit_event = unit_event};

/* ---- commands ----------------------------------------------------------------------------------- */

static void req_release(struct virtio_req *r)
{
	struct vscsi_req *req = container_of(r, struct vscsi_req, r);

	scsi_req_fini(&req->s);
	free(req);
}

static void respond(struct vscsi_req *req, uint8_t response)
{
	const struct scsi_req *s = &req->s;
	const uint64_t data = s->dir == SCSI_DIR_OUT ? req->out_len : req->in_len;
	uint8_t resp[RESP_FIXED + SCSI_SENSE_LEN] = {0};
	uint32_t n = 0;

	if (response == VIRTIO_SCSI_S_OK) {
		n = MIN(s->sense_len, req->resp_len - RESP_FIXED);
		st32le(resp, n);
		st32le(resp + 4, (uint32_t)MIN(data - s->pos, (uint64_t)UINT32_MAX));
		resp[10] = s->status;
		memcpy(resp + RESP_FIXED, s->sense, n);
	}
	resp[11] = response;
	iov_write(req->r.in, req->r.nin, 0, resp, RESP_FIXED + n);
	virtio_complete(&req->dev->t.vio, &req->r, req->resp_len + (s->dir == SCSI_DIR_IN ? (uint32_t)s->pos : 0));
}

static void req_done(struct scsi_req *scsi)
{
	struct vscsi_req *req = container_of(scsi, struct vscsi_req, s);
	struct virtio_scsi *s = req->dev;

	*req->prev = req->next;
	if (req->next)
		req->next->prev = req->prev;
	respond(req, scsi->cancelled ? VIRTIO_SCSI_S_ABORTED : VIRTIO_SCSI_S_OK);
	if (s->tmfs)
		tmf_check(s);
}

static void req_start(struct virtio_scsi *s, struct vscsi_req *req)
{
	struct scsi_req *scsi = &req->s;
	unsigned target, lun;

	if (!parse_lun(req->lun, &target, &lun) || !scsi_bus_has_target(&s->bus, 0, target)) {
		respond(req, VIRTIO_SCSI_S_BAD_TARGET);
		return;
	}
	scsi_req_init(scsi, &s->bus, 0, target, lun, req->cdb, req->cdb_len, req_done);
	if (scsi->len > (scsi->dir == SCSI_DIR_OUT ? req->out_len : req->in_len)) {
		scsi->dir = SCSI_DIR_NONE;
		respond(req, VIRTIO_SCSI_S_OVERRUN);
		return;
	}
	req->serial = s->serial++;
	req->next = s->active;
	req->prev = &s->active;
	if (req->next)
		req->next->prev = &req->next;
	s->active = req;
	if (scsi->dir == SCSI_DIR_OUT)
		scsi_req_run(scsi, req->out, req->nout);
	else
		scsi_req_run(scsi, req->in, scsi->dir == SCSI_DIR_IN ? req->nin : 0);
}

/* Turn the chain in v->chain into a request. Lock held; NULL when it is none, or without memory. */
static void *req_parse(struct virtio *v, struct virtio_queue *q)
{
	struct virtio_scsi *s = vscsi_of(v);
	const struct virtq_chain *c = &v->chain;
	const uint32_t header = REQ_FIXED + s->cdb_size, resp = RESP_FIXED + s->sense_size;
	const size_t n = (size_t)(c->nout + c->nin);
	uint8_t fixed[REQ_FIXED];
	struct vscsi_req *req;

	if (c->out_len < header || c->in_len < resp) {
		virtio_break(v, q, "a SCSI request without room for its header or response");
		return NULL;
	}
	/* The writable buffers twice: as the ring sees them, and what is left behind the response. */
	req = calloc(1, sizeof(*req) + (n + (size_t)c->nin) * sizeof(req->iov[0]));
	if (!req) {
		virtq_unpop(&q->vq);
		return NULL;
	}
	memcpy(req->iov, c->iov, n * sizeof(req->iov[0]));
	memcpy(req->iov + n, c->iov + c->nout, (size_t)c->nin * sizeof(req->iov[0]));
	req->dev = s;
	iov_read(c->iov, c->nout, 0, fixed, sizeof(fixed));
	memcpy(req->lun, fixed, 8);
	req->tag = ld64le(fixed + 8);
	req->cdb_len = MIN(s->cdb_size, (uint32_t)SCSI_CDB_LEN);
	iov_read(c->iov, c->nout, REQ_FIXED, req->cdb, req->cdb_len);
	req->resp_len = resp;
	req->nout = c->nout;
	req->out = iov_skip(req->iov, &req->nout, header);
	req->out_len = c->out_len - header;
	req->nin = c->nin;
	req->in = iov_skip(req->iov + n, &req->nin, resp);
	req->in_len = c->in_len - resp;
	virtio_req_init(v, q, &req->r);
	req->r.in = req->iov + c->nout;
	req->r.nin = c->nin;
	req->r.release = req_release;
	return req;
}

static void request_handle(struct virtio *v, struct virtio_queue *q)
{
	struct virtio_scsi *s = vscsi_of(v);
	void *reqs[VIRTIO_BATCH];
	bool more;

	do {
		const unsigned n = virtio_take_batch(v, q, req_parse, reqs, &more);
		for (unsigned i = 0; i < n; i++)
			req_start(s, reqs[i]);
		scsi_bus_flush_queues(&s->bus);
		counter_add(&s->batches, 1);
	} while (more);
}

/* ---- configuration and life cycle ---------------------------------------------------------------- */

static void set_sizes(struct virtio_scsi *s, uint32_t cdb, uint32_t sense)
{
	s->cdb_size = cdb;
	s->sense_size = sense;
	st32le(s->t.vio.config + CFG_CDB_SIZE, cdb);
	st32le(s->t.vio.config + CFG_SENSE_SIZE, sense);
}

static void vscsi_config_write(struct virtio *v, unsigned off, unsigned size, uint32_t val)
{
	struct virtio_scsi *s = vscsi_of(v);

	if (size != 4)
		return;
	if (off == CFG_SENSE_SIZE && val < 65536)
		set_sizes(s, s->cdb_size, val);
	else if (off == CFG_CDB_SIZE && val > 0 && val < 256)
		set_sizes(s, val, s->sense_size);
}

static void vscsi_reset(struct virtio *v)
{
	struct virtio_scsi *s = vscsi_of(v);

	set_sizes(s, CDB_SIZE, SENSE_SIZE);
	s->events_missed = false;
	scsi_bus_reset(&s->bus);
}

static void vscsi_drain(struct virtio *v)
{
	scsi_bus_drain(&vscsi_of(v)->bus);
}

static void vscsi_abandon(struct virtio *v)
{
	scsi_bus_abandon(&vscsi_of(v)->bus);
}

static void vscsi_resumed(struct virtio *v)
{
	scsi_bus_resume(&vscsi_of(v)->bus);
}

static const struct virtio_ops vscsi_ops = {
    .id = VIRTIO_ID_SCSI,
    .class_code = 0x010000,
    .config_write = vscsi_config_write,
    .reset = vscsi_reset,
    .drain = vscsi_drain,
    .abandon = vscsi_abandon,
    .resumed = vscsi_resumed,
    .config_changing = CFG_SENSE_SIZE,
    .config_changing_len = 8, /* and CFG_CDB_SIZE */
};

static void fill_config(struct virtio_scsi *s)
{
	struct virtio *v = &s->t.vio;
	uint8_t *c = v->config;

	v->config_len = CFG_SIZE;
	st32le(c + CFG_NUM_QUEUES, s->num_queues);
	st32le(c + CFG_SEG_MAX, MAX(s->queue_size, 4u) - 2u);
	st32le(c + CFG_MAX_SECTORS, s->max_sectors);
	st32le(c + CFG_CMD_PER_LUN, s->cmd_per_lun);
	st32le(c + CFG_EVENT_INFO_SIZE, EVENT_LEN);
	st16le(c + CFG_MAX_TARGET, MAX_TARGET);
	st32le(c + CFG_MAX_LUN, MAX_LUN);
	set_sizes(s, CDB_SIZE, SENSE_SIZE);
	if (s->hotplug)
		v->host_features |= BIT(VIRTIO_SCSI_F_HOTPLUG);
	if (s->param_change)
		v->host_features |= BIT(VIRTIO_SCSI_F_CHANGE);
}

static void vscsi_unrealize(struct dev *d)
{
	struct virtio_scsi *s = container_of(d, struct virtio_scsi, t.pci.dev);

	virtio_pci_unrealize(&s->t);
	scsi_bus_fini(&s->bus);
}

static int check_props(struct virtio_scsi *s, struct err *err)
{
	const unsigned ncpus = s->t.pci.dev.bus->accel ? s->t.pci.dev.bus->accel->cfg.ncpus : 1;

	if (!s->num_queues)
		s->num_queues = MIN(MAX(ncpus, 1u), (unsigned)VIRTIO_MAX_QUEUES - QUEUE_REQUEST);
	if (s->num_queues > VIRTIO_MAX_QUEUES - QUEUE_REQUEST)
		return err_set(err, -EINVAL, "num_queues=%u: must be 1 to %d", s->num_queues,
			       VIRTIO_MAX_QUEUES - QUEUE_REQUEST);
	if (s->queue_size < 4 || s->queue_size > VIRTQ_MAX_SIZE || (s->queue_size & (s->queue_size - 1)))
		return err_set(err, -EINVAL, "virtqueue_size=%u: must be a power of two from 4 to %d", s->queue_size,
			       VIRTQ_MAX_SIZE);
	return 0;
}

static int vscsi_realize(struct dev *d, struct err *err)
{
	struct virtio_scsi *s = container_of(d, struct virtio_scsi, t.pci.dev);
	struct virtio *v = &s->t.vio;
	struct loop *loop = d->bus->loop;
	int ret = check_props(s, err);

	if (ret)
		return ret;
	if (s->iothread && !(loop = iothread_loop(s->iothread, err)))
		return -EIO;
	s->t.answers_at_once = true;
	s->bus = (struct scsi_bus){.hba = d,
				   .loop = loop,
				   .ops = &vscsi_hba_ops,
				   .max_target = MAX_TARGET,
				   .max_lun = MAX_LUN,
				   .own_id = UINT_MAX};
	ret = virtio_init(v, d, loop, &vscsi_ops, QUEUE_REQUEST + s->num_queues, err);
	if (!ret) {
		virtio_set_queue(v, QUEUE_CONTROL, "control", s->queue_size, control_handle);
		virtio_set_queue(v, QUEUE_EVENT, "event", s->queue_size, event_handle);
		for (unsigned i = 0; i < s->num_queues; i++)
			virtio_set_queue(v, QUEUE_REQUEST + i, "requests", s->queue_size, request_handle);
		fill_config(s);
		ret = virtio_pci_realize(&s->t, err);
	}
	if (ret)
		virtio_pci_unrealize(&s->t);
	else
		scsi_bus_init(&s->bus);
	return ret;
}

#define OFFSET(f) offsetof(struct virtio_scsi, f)
static const struct prop vscsi_props[] = {
    {.name = "iothread",
     .kind = PROP_LINK,
     .offset = OFFSET(iothread),
     .link_kind = "iothread",
     .help = "-object iothread's id: its thread handles the queues"},
    {.name = "num_queues",
     .kind = PROP_U32,
     .offset = OFFSET(num_queues),
     .def = "0",
     .help = "request queues; 0: one per vCPU"},
    {.name = "virtqueue_size",
     .kind = PROP_U16,
     .offset = OFFSET(queue_size),
     .def = "256",
     .help = "descriptors per queue"},
    {.name = "max_sectors",
     .kind = PROP_U32,
     .offset = OFFSET(max_sectors),
     .def = "65535",
     .help = "of one command, in 512 bytes"},
    {.name = "cmd_per_lun",
     .kind = PROP_U32,
     .offset = OFFSET(cmd_per_lun),
     .def = "128",
     .help = "commands the guest should have in flight per unit"},
    {.name = "hotplug", .kind = PROP_BOOL, .offset = OFFSET(hotplug), .def = "on", .help = "events for units"},
    {.name = "param_change",
     .kind = PROP_BOOL,
     .offset = OFFSET(param_change),
     .def = "on",
     .help = "events for changed media"},
    {0},
};

static const struct prop no_props[] = {{0}};

static const struct counter vscsi_counters[] = {
    VIRTIO_PCI_COUNTERS,
    {"batches", OFFSET(batches), "times a queue was handled"},
    {"events", OFFSET(events), "events sent to the driver"},
    {0},
};

static int realize_transitional(struct dev *d, struct err *err)
{
	container_of(d, struct virtio_scsi, t.pci.dev)->t.disable_legacy = OOA_OFF;
	return vscsi_realize(d, err);
}

static int realize_modern(struct dev *d, struct err *err)
{
	container_of(d, struct virtio_scsi, t.pci.dev)->t.disable_legacy = OOA_ON;
	return vscsi_realize(d, err);
}

static const struct state_field vscsi_fields[] = {STATE_INT_MAX(struct virtio_scsi, cdb_size, 255),
						  STATE_INT_MAX(struct virtio_scsi, sense_size, 65535),
						  STATE_INT(struct virtio_scsi, events_missed),
						  {0}};
static const struct state vscsi_state = {
    .name = "virtio-scsi", .version = 1, .min_version = 1, .parent = &virtio_pci_state, .fields = vscsi_fields};

#define VSCSI_DEVICE(symbol, type_name, type_about, type_parent, type_props, realize_fn)                               \
	const struct dev_ops symbol = {                                                                                \
	    .type = {.name = type_name,                                                                                \
		     .about = type_about,                                                                              \
		     .parent = type_parent,                                                                            \
		     .size = sizeof(struct virtio_scsi),                                                               \
		     .props = type_props},                                                                             \
	    .bus_kind = DEV_BUS_PCI,                                                                                   \
	    .user_creatable = true,                                                                                    \
	    .realize = realize_fn,                                                                                     \
	    .unrealize = vscsi_unrealize,                                                                              \
	    .reset = virtio_pci_reset,                                                                                 \
	    .pause = virtio_pci_pause,                                                                                 \
	    .resume = virtio_pci_resume,                                                                               \
	    .state = &vscsi_state,                                                                                     \
	    .counters = vscsi_counters,                                                                                \
	}

VSCSI_DEVICE(virtio_scsi_pci_ops, "virtio-scsi-pci", "virtio SCSI adapter", "virtio-pci", vscsi_props, vscsi_realize);
VSCSI_DEVICE(virtio_scsi_pci_transitional_ops, "virtio-scsi-pci-transitional",
	     "virtio SCSI adapter for old and new drivers", "virtio-scsi-pci", no_props, realize_transitional);
VSCSI_DEVICE(virtio_scsi_pci_non_transitional_ops, "virtio-scsi-pci-non-transitional",
	     "virtio SCSI adapter for VIRTIO 1.x drivers", "virtio-scsi-pci", no_props, realize_modern);
