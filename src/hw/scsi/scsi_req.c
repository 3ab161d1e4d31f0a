// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The life of a SCSI command: found in the tables, checked, run, ended with a
 * status and fixed-format sense (SAM-5, SPC-4 4.5.3). Reads and writes of the
 * medium go from the adapter's iovecs straight to the block layer.
 *
 * Thread: the bus's loop (scsi.h); no lock of its own.
 */
#include "hw/scsi/scsi_int.h"

#include "base/iov.h"
#include <errno.h>
#include <stdlib.h>

/* ---- results ------------------------------------------------------------------ */

int scsi_fail(struct scsi_req *req, struct scsi_sense s)
{
	memset(req->sense, 0, sizeof(req->sense));
	req->sense[0] = 0x70; /* current error, fixed format */
	req->sense[2] = s.key;
	req->sense[7] = SCSI_SENSE_LEN - 8;
	req->sense[12] = s.asc;
	req->sense[13] = s.ascq;
	req->sense_len = SCSI_SENSE_LEN;
	req->status = SCSI_CHECK_CONDITION;
	if (req->unit && req->bus->keeps_sense)
		req->unit->kept = s;
	return -1;
}

void scsi_fail_run(struct scsi_req *req, struct scsi_sense s)
{
	scsi_fail(req, s);
	if (req->unit)
		counter_add(&req->unit->failures, 1);
	req->done(req);
}

void scsi_finish(struct scsi_req *req)
{
	req->status = SCSI_GOOD;
	req->done(req);
}

uint8_t *scsi_buf(struct scsi_req *req, uint32_t len)
{
	req->buf = len <= sizeof(req->small) ? req->small : calloc(1, len);
	if (!req->buf) {
		scsi_fail(req, SENSE_NO_RESOURCES);
		return NULL;
	}
	req->buf_len = len;
	return req->buf;
}

int scsi_reply(struct scsi_req *req, uint32_t len, uint32_t alloc)
{
	req->dir = SCSI_DIR_IN;
	req->len = MIN(len, alloc);
	return 0;
}

int scsi_want_parameters(struct scsi_req *req, uint32_t len)
{
	if (len && !scsi_buf(req, len))
		return -1;
	req->dir = len ? SCSI_DIR_OUT : SCSI_DIR_NONE;
	req->len = len;
	return 0;
}

bool scsi_take_parameters(struct scsi_req *req)
{
	if (req->part < req->len) { /* the adapter has less than the CDB promised */
		scsi_fail_run(req, SENSE_PARAMETER_LENGTH);
		return false;
	}
	iov_read(req->iov, req->niov, 0, req->buf, req->buf_len);
	req->pos = req->len;
	return true;
}

/* ---- host I/O -------------------------------------------------------------------- */

static struct scsi_sense sense_of_error(const struct block_req *b)
{
	switch (b->result) {
	case -ENOSPC: return SENSE_SPACE_FAILED;
	case -EPERM:
	case -EROFS: return SENSE_WRITE_PROTECTED;
	case -ENOMEM: return SENSE_NO_RESOURCES;
	default: return b->op == BLOCK_READ ? SENSE_READ_FAULT : SENSE_WRITE_FAULT;
	}
}

static void block_done(struct block_req *b)
{
	struct scsi_req *req = container_of(b, struct scsi_req, b);
	void (*then)(struct scsi_req *) = b->opaque;

	switch (disk_error(&req->unit->errors, &req->failed, b->op, b->result)) {
	case DISK_OK: then(req); break;
	case DISK_REPORT: scsi_fail_run(req, sense_of_error(b)); break;
	case DISK_ASIDE: break;
	}
}

void scsi_submit(struct scsi_req *req, void (*then)(struct scsi_req *req))
{
	struct block_node *n = scsi_medium(req->unit);

	if (!n) {
		scsi_fail_run(req, SENSE_NO_MEDIUM);
		return;
	}
	req->b.done = block_done;
	req->b.opaque = then;
	block_submit(n, &req->b);
}

/* After the machine went on: what stopped it is tried again. */
void scsi_resubmit(struct scsi_req *req)
{
	scsi_submit(req, req->b.opaque);
}

/* ---- parse and run ------------------------------------------------------------------ */

static const struct scsi_command *find_command(const struct scsi_unit *u, const uint8_t *cdb)
{
	const struct scsi_command *const tables[] = {scsi_general_table, scsi_block_table, scsi_mmc_table};
	const unsigned type = u->cd ? SCSI_CD : SCSI_DISK;

	for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
		for (const struct scsi_command *c = tables[t]; c->parse; c++)
			if (c->op == cdb[0] && (c->types & type) && (c->sa == SCSI_NO_SA || c->sa == (cdb[1] & 0x1f)))
				return c;
	return NULL;
}

/* What every target answers, whether or not it has the logical unit (SAM-5, 4.9). */
static void parse_without_unit(struct scsi_req *req)
{
	switch (req->cdb[0]) {
	case 0x12: scsi_inquiry_no_lun(req); break;
	case 0xa0: scsi_report_luns(req); break;
	case 0x03: scsi_sense_no_lun(req); break;
	default: scsi_fail(req, SENSE_NO_LUN); break;
	}
}

static int check_unit(struct scsi_req *req, const struct scsi_command *c)
{
	struct scsi_unit *u = req->unit;

	if (!(c->flags & SCSI_CMD_ALWAYS) && u->attention.key) {
		const struct scsi_sense s = u->attention;
		u->attention = SENSE_NONE;
		return scsi_fail(req, s);
	}
	if ((c->flags & SCSI_CMD_MEDIUM) && !scsi_medium(u))
		return scsi_fail(req, u->mmc.tray_open ? SENSE_NO_MEDIUM_TRAY_OPEN : SENSE_NO_MEDIUM);
	if ((c->flags & SCSI_CMD_WRITES) && scsi_unit_read_only(u))
		return scsi_fail(req, SENSE_WRITE_PROTECTED);
	return 0;
}

/* The length of a CDB follows from the top three bits of its operation code (SPC-4, 4.2.5.1). */
static unsigned cdb_length(uint8_t op)
{
	static const uint8_t group[8] = {6, 10, 10, 0, 16, 12, 0, 0};

	return group[op >> 5];
}

void scsi_req_init(struct scsi_req *req, struct scsi_bus *b, unsigned channel, unsigned target, unsigned lun,
		   const uint8_t *cdb, unsigned cdb_len, void (*done)(struct scsi_req *req))
{
	const struct scsi_command *c;

	memset(req, 0, sizeof(*req));
	req->bus = b;
	req->channel = channel;
	req->target = target;
	req->lun = lun;
	req->done = done;
	req->unit = scsi_bus_find(b, channel, target, lun);
	memcpy(req->cdb, cdb, MIN(cdb_len, (unsigned)SCSI_CDB_LEN));
	if (!req->unit) {
		parse_without_unit(req);
		return;
	}
	counter_add(&req->unit->commands, 1);
	c = cdb_len && cdb_length(cdb[0]) && cdb_length(cdb[0]) <= cdb_len ? find_command(req->unit, req->cdb) : NULL;
	if (!c)
		scsi_fail(req, SENSE_INVALID_OPCODE);
	else if (!check_unit(req, c) && !c->parse(req))
		req->cmd = c;
}

/* Move the reply that parse made. */
static void run_reply(struct scsi_req *req)
{
	uint64_t left = MIN(req->part, req->len);

	for (int i = 0; i < req->niov && left; i++) {
		const size_t n = (size_t)MIN(left, (uint64_t)req->iov[i].iov_len);
		memcpy(req->iov[i].iov_base, req->buf + req->pos, n);
		req->pos += n;
		left -= n;
	}
	scsi_finish(req);
}

/* Only what the command still moves counts; the rest of the buffers stays as it is. */
static void trim(struct scsi_req *req)
{
	uint64_t left = req->len - req->pos;

	req->part = 0;
	for (int i = 0; i < req->niov; i++) {
		if (req->iov[i].iov_len >= left) {
			req->iov[i].iov_len = (size_t)left;
			req->niov = left ? i + 1 : i;
		}
		if (i < req->niov) {
			left -= req->iov[i].iov_len;
			req->part += req->iov[i].iov_len;
		}
	}
}

void scsi_req_run(struct scsi_req *req, struct iovec *iov, int niov)
{
	if (req->status != SCSI_GOOD) {
		if (req->unit)
			counter_add(&req->unit->failures, 1);
		req->done(req);
		return;
	}
	req->iov = iov;
	req->niov = niov;
	trim(req);
	if (req->cmd && req->cmd->run)
		req->cmd->run(req);
	else
		run_reply(req);
}

void scsi_req_fini(struct scsi_req *req)
{
	if (req->buf != req->small)
		free(req->buf);
	req->buf = NULL;
}
