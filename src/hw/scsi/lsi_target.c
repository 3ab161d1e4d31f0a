// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The parallel SCSI bus of the LSI 53C895A as its targets drive it (SPI-4, SAM-2):
 * selection, message and data phases, disconnection while the host's I/O runs, and
 * reselection with a queue tag. Transfers are asynchronous and narrow whatever an
 * initiator asks for; nothing gets faster by the pretence.
 *
 * Locking: dev.lock, except lsi_submit and the completion of a command.
 */
#include "hw/scsi/lsi.h"

#include <stdlib.h>
#include <string.h>

#define MSG_COMMAND_COMPLETE  0x00
#define MSG_EXTENDED	      0x01
#define MSG_SAVE_DATA_POINTER 0x02
#define MSG_DISCONNECT	      0x04
#define MSG_ABORT	      0x06
#define MSG_MESSAGE_REJECT    0x07
#define MSG_NO_OPERATION      0x08
#define MSG_BUS_DEVICE_RESET  0x0c
#define MSG_ABORT_TAG	      0x0d
#define MSG_CLEAR_QUEUE	      0x0e
#define MSG_SIMPLE_QUEUE_TAG  0x20
#define MSG_ORDERED_QUEUE_TAG 0x22
#define MSG_IDENTIFY	      0x80
#define IDENTIFY_DISCONNECT   0x40
#define EXT_SDTR	      0x01
#define EXT_WDTR	      0x03
#define EXT_PPR		      0x04

#define SPARE_LEAST (64u << 10) /* smaller buffers cost little */

/* Data of one command are held whole up to this, else moved in parts. */
#define PART_WHOLE (2u << 20)
#define PART_SIZE  (1u << 20)

/* ---- the bus ------------------------------------------------------------------------- */

void lsi_bus_free(struct lsi *l)
{
	l->connected = l->req_line = l->atn = l->free_after_message = false;
	l->msg_in_len = l->msg_in_pos = 0;
	l->cur = NULL;
}

static void ask(struct lsi *l, enum lsi_phase phase)
{
	l->phase = phase;
	l->req_line = true;
}

/* What the target wants next. */
static void next_phase(struct lsi *l)
{
	static const enum lsi_phase of_state[] = {
	    [REQ_DATA_OUT] = PHASE_DATA_OUT, [REQ_DATA_IN] = PHASE_DATA_IN, [REQ_STATUS] = PHASE_STATUS};

	if (!l->connected)
		return;
	l->req_line = false;
	if (l->msg_in_pos < l->msg_in_len)
		ask(l, PHASE_MSG_IN);
	else if (l->atn)
		ask(l, PHASE_MSG_OUT);
	else if (!l->cur)
		ask(l, PHASE_COMMAND);
	else if (l->cur->state != REQ_IO && l->cur->state != REQ_ENDED)
		ask(l, of_state[l->cur->state]);
}

static void send_message(struct lsi *l, const void *bytes, unsigned n)
{
	memcpy(l->msg_in, bytes, n);
	l->msg_in_len = n;
	l->msg_in_pos = 0;
}

enum lsi_select lsi_select(struct lsi *l, unsigned target, bool atn)
{
	if (!scsi_bus_has_target(&l->bus, 0, target))
		return SELECT_TIMEOUT;
	lsi_bus_free(l);
	l->connected = true;
	l->target = target;
	l->identify = -1;
	l->tagged = l->may_disconnect = false;
	l->atn = atn;
	next_phase(l);
	return SELECT_OK;
}

void lsi_set_atn(struct lsi *l, bool on)
{
	l->atn = on;
	/* The target looks at ATN before each byte it asks for. */
	if (on && l->connected && l->req_line)
		ask(l, PHASE_MSG_OUT);
	else if (!on && l->connected && l->phase == PHASE_MSG_OUT)
		next_phase(l);
}

/* ---- commands ------------------------------------------------------------------------- */

static bool take_buffer(struct lsi *l, struct lsi_req *req)
{
	for (unsigned i = 0; i < LSI_MAX_SPARE && req->size >= SPARE_LEAST; i++)
		if (l->spare[i].room >= req->size) {
			req->data = l->spare[i].data;
			req->room = l->spare[i].room;
			l->spare[i] = (struct lsi_buffer){0};
			return true;
		}
	/* Whole pages, for which the file's direct I/O needs no second buffer. */
	const uint32_t room = ALIGN_UP(MAX(req->size, 1u), (uint32_t)PAGE_SIZE);
	req->data = aligned_alloc(PAGE_SIZE, room);
	req->room = req->data ? room : 0;
	return req->data != NULL;
}

/* Kept in place of the smallest spare one, if it is larger. */
static void give_buffer(struct lsi *l, struct lsi_req *req)
{
	struct lsi_buffer *least = &l->spare[0];

	for (unsigned i = 1; i < LSI_MAX_SPARE; i++)
		if (l->spare[i].room < least->room)
			least = &l->spare[i];
	if (req->room < SPARE_LEAST || req->room <= least->room) {
		free(req->data);
		return;
	}
	free(least->data);
	*least = (struct lsi_buffer){req->data, req->room};
}

void lsi_free_spare(struct lsi *l)
{
	for (unsigned i = 0; i < LSI_MAX_SPARE; i++)
		free(l->spare[i].data);
	memset(l->spare, 0, sizeof(l->spare));
}

static void req_free(struct lsi_req *req)
{
	struct lsi *l = req->l;

	for (struct lsi_req **at = &l->reqs; *at; at = &(*at)->next)
		if (*at == req) {
			*at = req->next;
			break;
		}
	for (struct lsi_req **at = &l->ready; *at; at = &(*at)->ready)
		if (*at == req) {
			*at = req->ready;
			break;
		}
	l->nreqs--;
	l->bounce -= req->size;
	scsi_req_fini(&req->s);
	give_buffer(l, req);
	free(req);
}

/* Forget a command: at once, or when the host's I/O for it ends. */
static void req_abort(struct lsi_req *req)
{
	if (req == req->l->cur)
		req->l->cur = NULL;
	if (req == req->l->submit)
		req->l->submit = NULL;
	else if (req->state == REQ_IO) {
		req->orphan = true;
		return;
	}
	req_free(req);
}

static void abort_matching(struct lsi *l, bool all_targets, int lun, bool tag)
{
	struct lsi_req *next;

	for (struct lsi_req *req = l->reqs; req; req = next) {
		next = req->next;
		if (req->orphan || (!all_targets && req->target != l->target) ||
		    (lun >= 0 && req->lun != (unsigned)lun) || (tag && (!req->tagged || req->tag != l->tag)))
			continue;
		req_abort(req);
	}
}

void lsi_bus_reset(struct lsi *l)
{
	abort_matching(l, true, -1, false);
	lsi_bus_free(l);
	l->reset_units = true; /* in the loop's thread */
	lsi_wake(l);
}

/* The next part's room. */
static bool prepare_part(struct lsi_req *req)
{
	struct lsi *l = req->l;
	const uint64_t left = req->s.len - req->s.pos;

	if (req->s.pos == 0) {
		req->size = (uint32_t)(left <= PART_WHOLE ? left : PART_SIZE);
		if (l->bounce + req->size > LSI_MAX_BOUNCE || !take_buffer(l, req)) {
			req->size = 0;
			return false;
		}
		l->bounce += req->size;
	}
	req->before = req->s.pos;
	req->fill = (uint32_t)MIN(left, (uint64_t)req->size);
	req->pos = 0;
	return true;
}

static void start_io(struct lsi_req *req)
{
	req->state = REQ_IO;
	req->iov = (struct iovec){req->data, req->fill};
	req->l->submit = req;
}

/* The host's part is over. Called without the lock, perhaps from lsi_submit. */
static void req_done(struct scsi_req *s)
{
	struct lsi_req *req = container_of(s, struct lsi_req, s);
	struct lsi *l = req->l;

	pthread_mutex_lock(&l->pci.dev.lock);
	if (req->orphan) {
		req_free(req);
		pthread_mutex_unlock(&l->pci.dev.lock);
		return;
	}
	if (s->dir == SCSI_DIR_IN && s->status == SCSI_GOOD && s->pos > req->before) {
		req->fill = (uint32_t)(s->pos - req->before);
		req->state = REQ_DATA_IN;
	} else if (scsi_req_more(s) && s->dir == SCSI_DIR_OUT) {
		prepare_part(req);
		req->state = REQ_DATA_OUT;
	} else {
		req->state = REQ_STATUS;
	}
	if (req->disconnected) {
		struct lsi_req **at = &l->ready;
		while (*at)
			at = &(*at)->ready;
		req->ready = NULL;
		*at = req;
	} else if (req == l->cur) {
		next_phase(l);
	}
	lsi_wake(l);
	pthread_mutex_unlock(&l->pci.dev.lock);
}

/* While the host works, others may have the bus: true when the target lets go of it. */
static bool wants_disconnect(const struct lsi *l, const struct lsi_req *req)
{
	if (l->cur != req || req->state != REQ_IO || !l->may_disconnect)
		return false;
	/* Not between the parts of a long transfer: the initiator's pointers need not move then. */
	return req->s.dir == SCSI_DIR_OUT ? req->before + req->fill == req->s.len : req->before == 0;
}

void lsi_submit(struct lsi *l, struct lsi_req *req)
{
	static const uint8_t bytes[2] = {MSG_SAVE_DATA_POINTER, MSG_DISCONNECT};
	const unsigned skip = req->s.dir == SCSI_DIR_OUT ? 0 : 1; /* data moved: the pointers must be saved */

	scsi_req_run(&req->s, &req->iov, req->s.dir != SCSI_DIR_NONE ? 1 : 0);
	pthread_mutex_lock(&l->pci.dev.lock);
	if (wants_disconnect(l, req)) {
		req->disconnected = true;
		l->cur = &l->full;
		l->full.state = REQ_ENDED;
		l->free_after_message = true;
		send_message(l, bytes + skip, 2 - skip);
		next_phase(l);
		counter_add(&l->disconnects, 1);
	}
	pthread_mutex_unlock(&l->pci.dev.lock);
}

static void start_command(struct lsi *l, const uint8_t *cdb, unsigned n)
{
	struct lsi_req *req = l->nreqs < LSI_MAX_REQS ? calloc(1, sizeof(*req)) : NULL;

	counter_add(&l->commands, 1);
	if (!req) {
		l->full = (struct lsi_req){.l = l, .state = REQ_STATUS, .s = {.status = SCSI_TASK_SET_FULL}};
		l->cur = &l->full;
		return;
	}
	req->l = l;
	req->target = l->target;
	req->lun = (unsigned)MAX(l->identify, 0);
	req->tagged = l->tagged;
	req->tag = l->tag;
	req->next = l->reqs;
	l->reqs = l->cur = req;
	l->nreqs++;
	scsi_req_init(&req->s, &l->bus, 0, req->target, req->lun, cdb, n, req_done);
	if (!prepare_part(req)) {
		req->s.status = SCSI_TASK_SET_FULL;
		req->state = REQ_STATUS;
	} else if (req->s.dir == SCSI_DIR_OUT && req->s.status == SCSI_GOOD) {
		req->state = REQ_DATA_OUT;
	} else {
		start_io(req);
	}
}

bool lsi_try_reselect(struct lsi *l)
{
	struct lsi_req *req = l->ready;
	uint8_t bytes[3];

	if (!req || l->connected)
		return false;
	l->ready = req->ready;
	lsi_bus_free(l);
	req->disconnected = false;
	l->connected = true;
	l->target = req->target;
	l->identify = (int)req->lun;
	l->tagged = req->tagged;
	l->tag = req->tag;
	l->cur = req;
	l->reg[SSID] = (uint8_t)(0x80 | req->target);
	bytes[0] = (uint8_t)(MSG_IDENTIFY | req->lun);
	bytes[1] = MSG_SIMPLE_QUEUE_TAG;
	bytes[2] = req->tag;
	send_message(l, bytes, req->tagged ? 3 : 1);
	next_phase(l);
	counter_add(&l->reselects, 1);
	return true;
}

/* ---- messages from the initiator ----------------------------------------------------------- */

/* A synchronous or wide transfer is asked for: the answer is that there is none. */
static void negotiate(struct lsi *l, const uint8_t *m, unsigned n)
{
	uint8_t answer[8];

	if (n > sizeof(answer) || (m[2] != EXT_SDTR && m[2] != EXT_WDTR && m[2] != EXT_PPR) ||
	    n != (m[2] == EXT_WDTR   ? 4u
		  : m[2] == EXT_SDTR ? 5u
				     : 8u)) {
		send_message(l, &(uint8_t){MSG_MESSAGE_REJECT}, 1);
		return;
	}
	memcpy(answer, m, n);
	switch (m[2]) {
	case EXT_SDTR: answer[4] = 0; break; /* offset 0 is asynchronous */
	case EXT_WDTR: answer[3] = 0; break;
	case EXT_PPR: answer[5] = answer[6] = answer[7] = 0; break;
	}
	send_message(l, answer, n);
}

/* One message at m, of at most n bytes. Returns its length; 0 when the bus is free now. */
static unsigned take_message(struct lsi *l, const uint8_t *m, unsigned n)
{
	unsigned len;

	if (m[0] & MSG_IDENTIFY) {
		l->identify = m[0] & 0x3f;
		l->may_disconnect = m[0] & IDENTIFY_DISCONNECT;
		return 1;
	}
	switch (m[0]) {
	case MSG_EXTENDED:
		len = n < 2 ? n : MIN(n, 2u + (m[1] ? m[1] : 256u));
		if (len >= 3)
			negotiate(l, m, len);
		return len;
	case MSG_SIMPLE_QUEUE_TAG ... MSG_ORDERED_QUEUE_TAG:
		l->tagged = n > 1;
		l->tag = n > 1 ? m[1] : 0;
		return MIN(n, 2u);
	case MSG_ABORT: abort_matching(l, false, MAX(l->identify, 0), false); break;
	case MSG_ABORT_TAG: abort_matching(l, false, MAX(l->identify, 0), true); break;
	case MSG_CLEAR_QUEUE: abort_matching(l, false, MAX(l->identify, 0), false); break;
	case MSG_BUS_DEVICE_RESET:
		abort_matching(l, false, -1, false);
		for (unsigned lun = 0; lun <= l->bus.max_lun; lun++) {
			struct scsi_unit *u = scsi_bus_find(&l->bus, 0, l->target, lun);
			if (u)
				scsi_unit_reset(u);
		}
		break;
	case MSG_NO_OPERATION:
	case MSG_MESSAGE_REJECT:
	case 0x05: /* initiator detected error */
	case 0x09: /* parity error */ return 1;
	default: send_message(l, &(uint8_t){MSG_MESSAGE_REJECT}, 1); return 1;
	}
	lsi_bus_free(l);
	return 0;
}

/* ---- transfers --------------------------------------------------------------------------------- */

static int64_t move_out(struct lsi *l, uint64_t addr, uint32_t len, uint8_t *buf, uint32_t max)
{
	const uint32_t n = MIN(len, max);

	return lsi_dma_read(l, addr, buf, n) ? (int64_t)n : -1;
}

static int64_t move_in(struct lsi *l, uint64_t addr, uint32_t len, const uint8_t *buf, uint32_t max)
{
	const uint32_t n = MIN(len, max);

	if (n) {
		l->reg[SFBR] = buf[0];
		l->reg[SIDL] = buf[n - 1]; /* what was last on the bus: programs take the queue tag from it */
	}
	return lsi_dma_write(l, addr, buf, n) ? (int64_t)n : -1;
}

static int64_t move_message_out(struct lsi *l, uint64_t addr, uint32_t len)
{
	const int64_t n = move_out(l, addr, len, l->msg_out, sizeof(l->msg_out));
	unsigned at = 0, step;

	if (n <= 0)
		return n;
	l->atn = false; /* falls with the last byte */
	while (at < (unsigned)n && (step = take_message(l, l->msg_out + at, (unsigned)n - at)) != 0)
		at += step;
	next_phase(l);
	return n;
}

static int64_t move_message_in(struct lsi *l, uint64_t addr, uint32_t len)
{
	const int64_t n = move_in(l, addr, len, l->msg_in + l->msg_in_pos, l->msg_in_len - l->msg_in_pos);

	if (n < 0)
		return n;
	l->msg_in_pos += (unsigned)n;
	if (l->msg_in_pos == l->msg_in_len && l->free_after_message)
		lsi_bus_free(l);
	else
		next_phase(l);
	return n;
}

static int64_t move_command(struct lsi *l, uint64_t addr, uint32_t len)
{
	uint8_t cdb[SCSI_CDB_LEN] = {0};
	const int64_t n = move_out(l, addr, len, cdb, sizeof(cdb));

	if (n <= 0)
		return n;
	start_command(l, cdb, (unsigned)n);
	next_phase(l);
	return n;
}

static int64_t move_status(struct lsi *l, uint64_t addr, uint32_t len)
{
	const uint8_t status = l->cur->s.status;
	const int64_t n = move_in(l, addr, len, &status, 1);

	if (n <= 0)
		return n;
	l->cur->state = REQ_ENDED;
	if (l->cur != &l->full)
		req_free(l->cur);
	l->cur = &l->full; /* nothing more comes from it */
	l->full.state = REQ_ENDED;
	l->free_after_message = true;
	send_message(l, &(uint8_t){MSG_COMMAND_COMPLETE}, 1);
	next_phase(l);
	return n;
}

static int64_t move_data(struct lsi *l, uint64_t addr, uint32_t len)
{
	struct lsi_req *req = l->cur;
	const bool in = req->state == REQ_DATA_IN;
	const int64_t n = in ? move_in(l, addr, len, req->data + req->pos, req->fill - req->pos)
			     : move_out(l, addr, len, req->data + req->pos, req->fill - req->pos);

	if (n < 0)
		return n;
	req->pos += (uint32_t)n;
	if (req->pos < req->fill)
		return n;
	if (!in) {
		start_io(req);
	} else if (scsi_req_more(&req->s)) {
		prepare_part(req);
		start_io(req);
	} else {
		req->state = REQ_STATUS;
	}
	next_phase(l);
	return n;
}

int64_t lsi_move(struct lsi *l, uint64_t addr, uint32_t len)
{
	switch (l->phase) {
	case PHASE_MSG_OUT: return move_message_out(l, addr, len);
	case PHASE_MSG_IN: return move_message_in(l, addr, len);
	case PHASE_COMMAND: return move_command(l, addr, len);
	case PHASE_STATUS: return move_status(l, addr, len);
	default: return move_data(l, addr, len);
	}
}
