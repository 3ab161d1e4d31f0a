// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a unit says of itself: INQUIRY with its vital product data pages (SPC-4 6.4,
 * 7.8; SBC-3 6.5 for B0h to B2h), REPORT LUNS, REQUEST SENSE, TEST UNIT READY.
 */
#include "hw/scsi/scsi_int.h"

#define STANDARD_LEN 36
#define VPD_MAX	     255
/* Transfers the adapters can hold in their iovecs with ease. */
#define MAX_TRANSFER (16 * MIB)

static void put_text(uint8_t *p, size_t len, const char *text)
{
	const size_t n = text ? MIN(strlen(text), len) : 0;

	memset(p, ' ', len);
	if (n)
		memcpy(p, text, n);
}

/* ---- pages ------------------------------------------------------------------------ */

/* Each fills what follows the four header bytes and returns its length, at most VPD_MAX. */
static unsigned vpd_serial(const struct scsi_unit *u, uint8_t *p)
{
	if (!u->serial)
		return 0;
	put_text(p, strlen(u->serial), u->serial);
	return (unsigned)strlen(u->serial);
}

static unsigned vpd_identification(const struct scsi_unit *u, uint8_t *p)
{
	unsigned n = 0;

	if (u->device_id) { /* ASCII; vendor specific unless a serial number makes it unique */
		const size_t id = strlen(u->device_id);
		p[0] = 2;
		if (u->serial) {
			p[1] = 1; /* T10 vendor identification */
			p[3] = (uint8_t)(24 + id);
			put_text(p + 4, 8, u->vendor);
			put_text(p + 12, 16, u->product);
			memcpy(p + 28, u->device_id, id);
		} else {
			p[3] = (uint8_t)id;
			memcpy(p + 4, u->device_id, id);
		}
		n = 4u + p[3];
	}
	if (u->wwn) { /* binary, NAA */
		p[n] = 1;
		p[n + 1] = 3;
		p[n + 3] = 8;
		st64be(p + n + 4, u->wwn);
		n += 12;
	}
	return n;
}

static unsigned vpd_block_limits(const struct scsi_unit *u, uint8_t *p)
{
	const uint32_t block = u->logical_block_size;

	p[0] = 1; /* WSNZ: WRITE SAME of zero blocks is refused */
	st16be(p + 2, (uint16_t)(u->min_io_size / block));
	st32be(p + 4, (uint32_t)(MAX_TRANSFER / block));
	st32be(p + 8, u->opt_io_size / block);
	if (!scsi_unit_read_only(u)) {
		st32be(p + 16, (uint32_t)(SCSI_MAX_RANGE / block));
		st32be(p + 20, SCSI_UNMAP_RANGES);
		st32be(p + 24, MAX(u->physical_block_size, 4096u) / block); /* what a host's file system can free */
	}
	st64be(p + 32, SCSI_MAX_RANGE / block);
	return 0x3c;
}

static unsigned vpd_characteristics(const struct scsi_unit *u, uint8_t *p)
{
	st16be(p, u->rotation_rate);
	return 0x3c;
}

static unsigned vpd_provisioning(const struct scsi_unit *u, uint8_t *p)
{
	if (!scsi_unit_read_only(u)) {
		p[1] = 0xe0; /* UNMAP, WRITE SAME (16) and (10) unmap */
		p[2] = 2;    /* thin */
	}
	return 4;
}

static unsigned vpd_supported(const struct scsi_unit *u, uint8_t *p);

static const struct {
	uint8_t page, types;
	unsigned (*fill)(const struct scsi_unit *u, uint8_t *p);
} vpd_table[] = {
    {0x00, SCSI_BOTH, vpd_supported},	 {0x80, SCSI_BOTH, vpd_serial},		 {0x83, SCSI_BOTH, vpd_identification},
    {0xb0, SCSI_DISK, vpd_block_limits}, {0xb1, SCSI_DISK, vpd_characteristics}, {0xb2, SCSI_DISK, vpd_provisioning},
};

static bool has_page(const struct scsi_unit *u, size_t i)
{
	return (vpd_table[i].types & (u->cd ? SCSI_CD : SCSI_DISK)) && (vpd_table[i].page != 0x80 || u->serial);
}

static unsigned vpd_supported(const struct scsi_unit *u, uint8_t *p)
{
	unsigned n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(vpd_table); i++)
		if (has_page(u, i))
			p[n++] = vpd_table[i].page;
	return n;
}

static int inquiry_vpd(struct scsi_req *req, uint32_t alloc)
{
	const struct scsi_unit *u = req->unit;

	for (size_t i = 0; i < ARRAY_SIZE(vpd_table); i++) {
		unsigned n;
		uint8_t *p;

		if (vpd_table[i].page != req->cdb[2] || !has_page(u, i))
			continue;
		p = scsi_buf(req, 4 + VPD_MAX);
		if (!p)
			return -1;
		n = vpd_table[i].fill(u, p + 4);
		p[0] = u->cd ? 5 : 0;
		p[1] = vpd_table[i].page;
		st16be(p + 2, (uint16_t)n);
		return scsi_reply(req, 4 + n, alloc);
	}
	return scsi_fail(req, SENSE_INVALID_FIELD);
}

int scsi_inquiry(struct scsi_req *req)
{
	const struct scsi_unit *u = req->unit;
	const uint32_t alloc = ld16be(req->cdb + 3);
	uint8_t *p;

	if (req->cdb[1] & 1)
		return inquiry_vpd(req, alloc);
	if (req->cdb[1] || req->cdb[2]) /* a page code without EVPD; command support data is obsolete */
		return scsi_fail(req, SENSE_INVALID_FIELD);
	p = scsi_buf(req, STANDARD_LEN);
	p[0] = u->cd ? 5 : 0;
	p[1] = u->removable ? 0x80 : 0;
	p[2] = 5;    /* SPC-3 */
	p[3] = 0x12; /* hierarchical LUNs; format 2 */
	p[4] = STANDARD_LEN - 5;
	p[7] = 0x02; /* tagged queueing */
	put_text(p + 8, 8, u->vendor);
	put_text(p + 16, 16, u->product);
	put_text(p + 32, 4, u->version);
	return scsi_reply(req, STANDARD_LEN, alloc);
}

/* A target answers for LUNs it does not have: nothing is there, and never can be (qualifier 3). */
int scsi_inquiry_no_lun(struct scsi_req *req)
{
	uint8_t *p;

	if (req->cdb[1] || req->cdb[2])
		return scsi_fail(req, SENSE_INVALID_FIELD);
	p = scsi_buf(req, STANDARD_LEN);
	p[0] = 0x7f;
	p[2] = 5;
	p[3] = 0x12;
	p[4] = STANDARD_LEN - 5;
	put_text(p + 8, 28, "KELVIN");
	return scsi_reply(req, STANDARD_LEN, ld16be(req->cdb + 3));
}

int scsi_report_luns(struct scsi_req *req)
{
	const uint32_t alloc = ld32be(req->cdb + 6);
	const uint8_t select = req->cdb[2];
	unsigned n = 0, i = 0;
	uint8_t *p;

	if (alloc < 16 || select > 2)
		return scsi_fail(req, SENSE_INVALID_FIELD);
	for (const struct scsi_unit *u = req->bus->units; u && select != 1; u = u->next)
		n += u->channel == req->channel && u->target == req->target;
	p = scsi_buf(req, 8 + 8 * n);
	if (!p)
		return -1;
	st32be(p, 8 * n);
	for (const struct scsi_unit *u = req->bus->units; u && i < n; u = u->next)
		if (u->channel == req->channel && u->target == req->target) {
			/* SAM-5, 4.7.7: peripheral addressing below 256, else flat space */
			st16be(p + 8 + 8 * i++, (uint16_t)(u->lun < 256 ? u->lun : 0x4000 | u->lun));
		}
	return scsi_reply(req, 8 + 8 * n, alloc);
}

/* ---- state --------------------------------------------------------------------------- */

static int reply_sense(struct scsi_req *req, struct scsi_sense s)
{
	uint8_t *p;

	if (req->cdb[1] & 0xfe)
		return scsi_fail(req, SENSE_INVALID_FIELD);
	p = scsi_buf(req, SCSI_SENSE_LEN);
	if (req->cdb[1] & 1) { /* descriptor format */
		p[0] = 0x72;
		p[1] = s.key;
		p[2] = s.asc;
		p[3] = s.ascq;
		return scsi_reply(req, 8, req->cdb[4]);
	}
	p[0] = 0x70;
	p[2] = s.key;
	p[7] = SCSI_SENSE_LEN - 8;
	p[12] = s.asc;
	p[13] = s.ascq;
	return scsi_reply(req, SCSI_SENSE_LEN, req->cdb[4]);
}

/* What the last failed command left, if the bus does not report it with the status; else an attention that is due. */
static int request_sense(struct scsi_req *req)
{
	struct scsi_unit *u = req->unit;
	struct scsi_sense *from = u->kept.key ? &u->kept : &u->attention;
	const struct scsi_sense s = *from;

	*from = SENSE_NONE;
	return reply_sense(req, s);
}

int scsi_sense_no_lun(struct scsi_req *req)
{
	return reply_sense(req, SENSE_NO_LUN);
}

static int parse_nothing(struct scsi_req *req)
{
	return 0;
}

/* Only the default self-test: there is nothing that could fail. */
static int send_diagnostic(struct scsi_req *req)
{
	return (req->cdb[1] & 0xe0) || ld16be(req->cdb + 3) ? scsi_fail(req, SENSE_INVALID_FIELD) : 0;
}

/* One adapter, so whoever reserves a unit is the one who has it (SPC-2, 7.21). */
static int reserve(struct scsi_req *req)
{
	return req->cdb[1] & 1 ? scsi_fail(req, SENSE_INVALID_FIELD) : 0;
}

/* Fixed media have no tray to lock or move. */
static int start_stop(struct scsi_req *req)
{
	return req->unit->removable ? scsi_mmc_command(req) : 0;
}

const struct scsi_command scsi_general_table[] = {
    {0x00, SCSI_NO_SA, SCSI_BOTH, SCSI_CMD_MEDIUM, parse_nothing, NULL}, /* TEST UNIT READY */
    {0x03, SCSI_NO_SA, SCSI_BOTH, SCSI_CMD_ALWAYS, request_sense, NULL},
    {0x12, SCSI_NO_SA, SCSI_BOTH, SCSI_CMD_ALWAYS, scsi_inquiry, NULL},
    {0x15, SCSI_NO_SA, SCSI_BOTH, 0, scsi_mode_select, scsi_mode_select_run}, /* (6) */
    {0x16, SCSI_NO_SA, SCSI_BOTH, 0, reserve, NULL},			      /* RESERVE (6) */
    {0x17, SCSI_NO_SA, SCSI_BOTH, 0, reserve, NULL},			      /* RELEASE (6) */
    {0x1a, SCSI_NO_SA, SCSI_BOTH, 0, scsi_mode_sense, NULL},		      /* (6) */
    {0x1b, SCSI_NO_SA, SCSI_BOTH, 0, start_stop, NULL},
    {0x1d, SCSI_NO_SA, SCSI_BOTH, 0, send_diagnostic, NULL},
    {0x1e, SCSI_NO_SA, SCSI_BOTH, 0, scsi_mmc_command, NULL},		      /* PREVENT ALLOW MEDIUM REMOVAL */
    {0x55, SCSI_NO_SA, SCSI_BOTH, 0, scsi_mode_select, scsi_mode_select_run}, /* (10) */
    {0x5a, SCSI_NO_SA, SCSI_BOTH, 0, scsi_mode_sense, NULL},		      /* (10) */
    {0xa0, SCSI_NO_SA, SCSI_BOTH, SCSI_CMD_ALWAYS, scsi_report_luns, NULL},
    {0},
};
