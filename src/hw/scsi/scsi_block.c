// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The commands that touch the medium: SBC-3, chapter 5. Reads and writes hand the
 * adapter's iovecs to the block layer; UNMAP, WRITE SAME and VERIFY with data are
 * loops of block requests, each step started by the completion of the one before.
 */
#include "hw/scsi/scsi_int.h"

#include "base/iov.h"
#include <stdlib.h>

#define CHUNK (64u * 1024) /* of VERIFY's and WRITE SAME's buffers */

/* ---- where and how much ------------------------------------------------------------- */

struct range {
	uint64_t lba, count;
};

/* The four forms of CDB place them differently (SBC-3, 5.7 to 5.13). */
static struct range cdb_range(const struct scsi_req *req)
{
	const uint8_t *c = req->cdb;

	switch (c[0] >> 5) {
	case 0: return (struct range){ld32be(c) & 0x1fffff, c[4] ? c[4] : 256};
	case 4: return (struct range){ld64be(c + 2), ld32be(c + 10)};
	case 5: return (struct range){ld32be(c + 2), ld32be(c + 6)};
	default: return (struct range){ld32be(c + 2), ld16be(c + 7)};
	}
}

static bool in_range(const struct scsi_unit *u, uint64_t lba, uint64_t count)
{
	const uint64_t blocks = scsi_blocks(u);

	return lba <= blocks && count <= blocks - lba;
}

int scsi_set_range(struct scsi_req *req, enum scsi_dir dir, uint64_t lba, uint64_t count)
{
	if (!in_range(req->unit, lba, count))
		return scsi_fail(req, SENSE_LBA_RANGE);
	req->dir = count ? dir : SCSI_DIR_NONE;
	req->offset = lba * req->unit->logical_block_size;
	req->len = count * req->unit->logical_block_size;
	return 0;
}

static bool has_protection_bits(const struct scsi_req *req)
{
	return req->cdb[0] >> 5 && req->cdb[1] >> 5;
}

/* A write must be durable when it ends: FUA, or the write cache is off. */
static unsigned write_flags(const struct scsi_req *req)
{
	const bool fua = req->cdb[0] >> 5 && (req->cdb[1] & 8);

	return fua || !req->unit->wce ? BLOCK_FUA : 0;
}

/* ---- READ, WRITE ------------------------------------------------------------------------ */

static int parse_transfer(struct scsi_req *req, enum scsi_dir dir)
{
	const struct range r = cdb_range(req);

	if (has_protection_bits(req))
		return scsi_fail(req, SENSE_INVALID_FIELD);
	return scsi_set_range(req, dir, r.lba, r.count);
}

static int parse_read(struct scsi_req *req)
{
	return parse_transfer(req, SCSI_DIR_IN);
}

static int parse_write(struct scsi_req *req)
{
	return parse_transfer(req, SCSI_DIR_OUT);
}

static void part_done(struct scsi_req *req)
{
	req->pos += req->part;
	scsi_finish(req);
}

static void run_transfer(struct scsi_req *req, enum block_op op, unsigned flags)
{
	if (req->part == 0) {
		scsi_finish(req);
		return;
	}
	req->b.op = op;
	req->b.flags = flags;
	req->b.offset = req->offset + req->pos;
	req->b.len = req->part;
	req->b.iov = req->iov;
	req->b.niov = req->niov;
	scsi_submit(req, part_done);
}

void scsi_run_read(struct scsi_req *req)
{
	run_transfer(req, BLOCK_READ, 0);
}

static void run_write(struct scsi_req *req)
{
	run_transfer(req, BLOCK_WRITE, write_flags(req));
}

static void run_write_verify(struct scsi_req *req)
{
	run_transfer(req, BLOCK_WRITE, BLOCK_FUA); /* on the medium, where it would be read back from */
}

/* ---- VERIFY -------------------------------------------------------------------------------- */

static int parse_verify(struct scsi_req *req)
{
	const unsigned bytchk = req->cdb[1] >> 1 & 3;
	const struct range r = cdb_range(req);

	if (has_protection_bits(req) || bytchk > 1)
		return scsi_fail(req, SENSE_INVALID_FIELD);
	/* Without data the medium is only said to be readable: the host looks after it. */
	if (bytchk == 0)
		return in_range(req->unit, r.lba, r.count) ? 0 : scsi_fail(req, SENSE_LBA_RANGE);
	if (scsi_set_range(req, SCSI_DIR_OUT, r.lba, r.count))
		return -1;
	return req->len == 0 || scsi_buf(req, 2 * CHUNK) ? 0 : -1;
}

static void verify_step(struct scsi_req *req);

/* The medium's bytes are in the first half of buf; the guest's come into the second. */
static void verify_compare(struct scsi_req *req)
{
	const size_t n = (size_t)req->b.len;

	if (iov_read(req->iov, req->niov, req->step, req->buf + CHUNK, n) < n ||
	    memcmp(req->buf, req->buf + CHUNK, n)) {
		scsi_fail_run(req, SENSE_MISCOMPARE);
		return;
	}
	req->step += n;
	verify_step(req);
}

static void verify_step(struct scsi_req *req)
{
	struct iovec *iov = &req->one;

	if (req->step == req->part) {
		req->step = 0;
		part_done(req);
		return;
	}
	iov->iov_base = req->buf;
	iov->iov_len = (size_t)MIN(req->part - req->step, (uint64_t)CHUNK);
	req->b.op = BLOCK_READ;
	req->b.offset = req->offset + req->pos + req->step;
	req->b.len = iov->iov_len;
	req->b.iov = iov;
	req->b.niov = 1;
	scsi_submit(req, verify_compare);
}

static void run_verify(struct scsi_req *req)
{
	if (req->len)
		verify_step(req);
	else
		scsi_finish(req);
}

/* ---- flush, capacity, seek ------------------------------------------------------------------- */

static int parse_sync(struct scsi_req *req)
{
	const struct range r = cdb_range(req);

	return in_range(req->unit, r.lba, r.count) ? 0 : scsi_fail(req, SENSE_LBA_RANGE);
}

static void run_sync(struct scsi_req *req)
{
	req->b.op = BLOCK_FLUSH;
	scsi_submit(req, scsi_finish);
}

static int parse_seek(struct scsi_req *req)
{
	return in_range(req->unit, ld32be(req->cdb + 2), 1) ? 0 : scsi_fail(req, SENSE_LBA_RANGE);
}

static int read_capacity_10(struct scsi_req *req)
{
	const uint64_t blocks = scsi_blocks(req->unit);
	uint8_t *p;

	if (!(req->cdb[8] & 1) && ld32be(req->cdb + 2))
		return scsi_fail(req, SENSE_INVALID_FIELD);
	p = scsi_buf(req, 8);
	st32be(p, (uint32_t)MIN(blocks ? blocks - 1 : 0, (uint64_t)UINT32_MAX));
	st32be(p + 4, req->unit->logical_block_size);
	return scsi_reply(req, 8, 8);
}

static int read_capacity_16(struct scsi_req *req)
{
	const struct scsi_unit *u = req->unit;
	const uint64_t blocks = scsi_blocks(u);
	const uint32_t ratio = u->physical_block_size / u->logical_block_size;
	uint8_t *p;

	if (!(req->cdb[14] & 1) && ld64be(req->cdb + 2))
		return scsi_fail(req, SENSE_INVALID_FIELD);
	p = scsi_buf(req, 32);
	st64be(p, blocks ? blocks - 1 : 0);
	st32be(p + 8, u->logical_block_size);
	p[13] = (uint8_t)(31 - __builtin_clz(ratio));
	if (!scsi_unit_read_only(u))
		p[14] = 0x80; /* LBPME: unmapping is managed */
	return scsi_reply(req, 32, ld32be(req->cdb + 10));
}

/* ---- UNMAP ---------------------------------------------------------------------------------------- */

#define UNMAP_HEADER 8u
#define UNMAP_RANGE  16u

static int parse_unmap(struct scsi_req *req)
{
	const uint32_t len = ld16be(req->cdb + 7);

	if (req->cdb[1] & 1) /* anchored */
		return scsi_fail(req, SENSE_INVALID_FIELD);
	if (len && len < UNMAP_HEADER)
		return scsi_fail(req, SENSE_PARAMETER_LENGTH);
	return scsi_want_parameters(req, len);
}

static void unmap_step(struct scsi_req *req)
{
	const uint32_t block = req->unit->logical_block_size;
	const uint8_t *r;

	while (req->step && ld32be(req->buf + UNMAP_HEADER + (req->step - 1) * UNMAP_RANGE + 8) == 0)
		req->step--;
	if (req->step == 0) {
		scsi_finish(req);
		return;
	}
	r = req->buf + UNMAP_HEADER + --req->step * UNMAP_RANGE;
	req->b.op = BLOCK_DISCARD;
	req->b.flags = 0;
	req->b.offset = ld64be(r) * block;
	req->b.len = (uint64_t)ld32be(r + 8) * block;
	scsi_submit(req, unmap_step);
}

static void run_unmap(struct scsi_req *req)
{
	const struct scsi_unit *u = req->unit;
	uint64_t total = 0;
	uint32_t n;

	if (req->len == 0) {
		scsi_finish(req);
		return;
	}
	if (!scsi_take_parameters(req))
		return;
	n = MIN(ld16be(req->buf + 2), req->buf_len - UNMAP_HEADER) / UNMAP_RANGE;
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *r = req->buf + UNMAP_HEADER + i * UNMAP_RANGE;
		total += ld32be(r + 8);
		if (!in_range(u, ld64be(r), ld32be(r + 8))) {
			scsi_fail_run(req, SENSE_LBA_RANGE);
			return;
		}
	}
	if (n > SCSI_UNMAP_RANGES || total > SCSI_MAX_RANGE / u->logical_block_size) {
		scsi_fail_run(req, SENSE_INVALID_PARAMETER);
		return;
	}
	req->step = n;
	unmap_step(req);
}

/* ---- WRITE SAME --------------------------------------------------------------------------------------- */

#define SAME_ANCHOR 0x10
#define SAME_UNMAP  0x08
#define SAME_NDOB   0x01 /* (16): no data, zeros are meant */

static int parse_write_same(struct scsi_req *req)
{
	const struct scsi_unit *u = req->unit;
	const struct range r = cdb_range(req);
	const bool no_data = req->cdb[0] == 0x93 && (req->cdb[1] & SAME_NDOB);

	if (has_protection_bits(req) || (req->cdb[1] & SAME_ANCHOR) || r.count == 0 ||
	    r.count > SCSI_MAX_RANGE / u->logical_block_size)
		return scsi_fail(req, SENSE_INVALID_FIELD);
	if (!in_range(u, r.lba, r.count))
		return scsi_fail(req, SENSE_LBA_RANGE);
	req->offset = r.lba * u->logical_block_size;
	req->step = r.count * u->logical_block_size; /* bytes left */
	return no_data ? 0 : scsi_want_parameters(req, u->logical_block_size);
}

static void same_step(struct scsi_req *req)
{
	struct iovec *iov = &req->one;

	req->offset += req->b.len;
	req->step -= req->b.len;
	if (req->step == 0) {
		scsi_finish(req);
		return;
	}
	iov->iov_len = req->b.len = (size_t)MIN(req->step, req->buf_len);
	req->b.offset = req->offset;
	scsi_submit(req, same_step);
}

/* The block is repeated in a buffer of its own, and that written again and again. */
static void write_pattern(struct scsi_req *req)
{
	struct iovec *iov = &req->one;
	const uint32_t block = (uint32_t)req->len, size = (uint32_t)MIN(req->step, (uint64_t)MAX(CHUNK, block));
	uint8_t *b = malloc(size);

	if (!b) {
		scsi_fail_run(req, SENSE_NO_RESOURCES);
		return;
	}
	for (uint32_t at = 0; at < size; at += block)
		memcpy(b + at, req->buf, block);
	if (req->buf != req->small)
		free(req->buf);
	req->buf = b;
	req->buf_len = size;
	*iov = (struct iovec){b, 0};
	req->b.op = BLOCK_WRITE;
	req->b.flags = write_flags(req);
	req->b.iov = iov;
	req->b.niov = 1;
	req->b.len = 0;
	same_step(req);
}

static bool all_zero(const uint8_t *p, size_t n)
{
	return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

static void run_write_same(struct scsi_req *req)
{
	const bool unmap = req->cdb[1] & SAME_UNMAP;

	if (req->len && !scsi_take_parameters(req))
		return;
	if (req->len && !all_zero(req->buf, req->buf_len)) {
		if (unmap) /* what is unmapped reads as zeros, not as this */
			scsi_fail_run(req, SENSE_INVALID_FIELD);
		else
			write_pattern(req);
		return;
	}
	req->b.op = BLOCK_WRITE_ZEROES;
	req->b.flags = (unmap ? BLOCK_MAY_UNMAP : 0) | (req->unit->wce ? 0 : BLOCK_FUA);
	req->b.offset = req->offset;
	req->b.len = req->step;
	scsi_submit(req, scsi_finish);
}

/* ---- the table ------------------------------------------------------------------------------------------- */

#define READS  SCSI_CMD_MEDIUM
#define WRITES (SCSI_CMD_MEDIUM | SCSI_CMD_WRITES)

const struct scsi_command scsi_block_table[] = {
    {0x08, SCSI_NO_SA, SCSI_BOTH, READS, parse_read, scsi_run_read},	     /* READ (6) */
    {0x0a, SCSI_NO_SA, SCSI_DISK, WRITES, parse_write, run_write},	     /* WRITE (6) */
    {0x25, SCSI_NO_SA, SCSI_BOTH, READS, read_capacity_10, NULL},	     /* READ CAPACITY (10) */
    {0x28, SCSI_NO_SA, SCSI_BOTH, READS, parse_read, scsi_run_read},	     /* READ (10) */
    {0x2a, SCSI_NO_SA, SCSI_DISK, WRITES, parse_write, run_write},	     /* WRITE (10) */
    {0x2b, SCSI_NO_SA, SCSI_BOTH, READS, parse_seek, NULL},		     /* SEEK (10) */
    {0x2e, SCSI_NO_SA, SCSI_DISK, WRITES, parse_write, run_write_verify},    /* WRITE AND VERIFY (10) */
    {0x2f, SCSI_NO_SA, SCSI_BOTH, READS, parse_verify, run_verify},	     /* VERIFY (10) */
    {0x35, SCSI_NO_SA, SCSI_BOTH, READS, parse_sync, run_sync},		     /* SYNCHRONIZE CACHE (10) */
    {0x41, SCSI_NO_SA, SCSI_DISK, WRITES, parse_write_same, run_write_same}, /* WRITE SAME (10) */
    {0x42, SCSI_NO_SA, SCSI_DISK, WRITES, parse_unmap, run_unmap},	     /* UNMAP */
    {0x88, SCSI_NO_SA, SCSI_DISK, READS, parse_read, scsi_run_read},	     /* READ (16) */
    {0x8a, SCSI_NO_SA, SCSI_DISK, WRITES, parse_write, run_write},	     /* WRITE (16) */
    {0x8e, SCSI_NO_SA, SCSI_DISK, WRITES, parse_write, run_write_verify},    /* WRITE AND VERIFY (16) */
    {0x8f, SCSI_NO_SA, SCSI_DISK, READS, parse_verify, run_verify},	     /* VERIFY (16) */
    {0x91, SCSI_NO_SA, SCSI_DISK, READS, parse_sync, run_sync},		     /* SYNCHRONIZE CACHE (16) */
    {0x93, SCSI_NO_SA, SCSI_DISK, WRITES, parse_write_same, run_write_same}, /* WRITE SAME (16) */
    {0x9e, 0x10, SCSI_DISK, READS, read_capacity_16, NULL},		     /* READ CAPACITY (16) */
    {0xa8, SCSI_NO_SA, SCSI_BOTH, READS, parse_read, scsi_run_read},	     /* READ (12) */
    {0xaa, SCSI_NO_SA, SCSI_DISK, WRITES, parse_write, run_write},	     /* WRITE (12) */
    {0xae, SCSI_NO_SA, SCSI_DISK, WRITES, parse_write, run_write_verify},    /* WRITE AND VERIFY (12) */
    {0xaf, SCSI_NO_SA, SCSI_BOTH, READS, parse_verify, run_verify},	     /* VERIFY (12) */
    {0},
};
