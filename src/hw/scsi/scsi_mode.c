// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Mode pages: MODE SENSE and MODE SELECT (6) and (10), SPC-4 6.11 to 6.14 and 7.5;
 * SBC-3 6.4 (caching), MMC-6 E (capabilities). The one thing a guest can change is
 * the write cache.
 */
#include "hw/scsi/scsi_int.h"

#define PAGE_ALL	  0x3f
#define CACHING_WCE	  0x04
#define DEVICE_WRITE_PROT 0x80
#define DEVICE_DPOFUA	  0x10
#define MODES_MAX	  255
#define PARAMETERS_MAX	  1024

enum page_control { PC_CURRENT, PC_CHANGEABLE, PC_DEFAULT, PC_SAVED };

/* ---- pages: each fills what follows page code and length; `pc` as above -------------- */

static void page_recovery(const struct scsi_unit *u, enum page_control pc, uint8_t *p)
{
	if (pc != PC_CHANGEABLE)
		p[0] = 0x80; /* AWRE: writes to bad places are moved; the host does */
}

static void page_caching(const struct scsi_unit *u, enum page_control pc, uint8_t *p)
{
	const bool wce = pc == PC_CURRENT ? u->wce : pc == PC_DEFAULT ? u->initial_wce : true;

	p[0] = wce ? CACHING_WCE : 0;
}

static void page_control(const struct scsi_unit *u, enum page_control pc, uint8_t *p)
{
	if (pc != PC_CHANGEABLE)
		p[1] = 0x10; /* commands may be reordered */
}

static void page_capabilities(const struct scsi_unit *u, enum page_control pc, uint8_t *p)
{
	if (pc == PC_CHANGEABLE)
		return;
	p[0] = 0x3b;			       /* reads CD-R, CD-RW, DVD-ROM, DVD-R, DVD-RAM */
	p[2] = 0x70;			       /* mode 2 forms 1 and 2, multisession */
	p[4] = 0x29 | (u->mmc.locked ? 2 : 0); /* tray, eject, lock */
	st16be(p + 6, 706);		       /* obsolete speeds in kB/s: 4x */
	st16be(p + 10, 512);
	st16be(p + 12, 706);
}

static const struct {
	uint8_t code, len, types;
	void (*fill)(const struct scsi_unit *u, enum page_control pc, uint8_t *p);
} page_table[] = {
    {0x01, 10, SCSI_BOTH, page_recovery},
    {0x08, 18, SCSI_BOTH, page_caching},
    {0x0a, 10, SCSI_BOTH, page_control},
    {0x2a, 18, SCSI_CD, page_capabilities},
};

static bool has_page(const struct scsi_unit *u, size_t i)
{
	return page_table[i].types & (u->cd ? SCSI_CD : SCSI_DISK);
}

static uint8_t *put_page(const struct scsi_unit *u, size_t i, enum page_control pc, uint8_t *p)
{
	p[0] = page_table[i].code;
	p[1] = page_table[i].len;
	page_table[i].fill(u, pc, p + 2);
	return p + 2 + page_table[i].len;
}

/* ---- MODE SENSE --------------------------------------------------------------------- */

static uint8_t *put_block_descriptor(const struct scsi_unit *u, uint8_t *p)
{
	st32be(p, (uint32_t)MIN(scsi_blocks(u), 0xffffffull));
	st32be(p + 4, u->logical_block_size); /* byte 4 is reserved, and 0 */
	return p + 8;
}

int scsi_mode_sense(struct scsi_req *req)
{
	const struct scsi_unit *u = req->unit;
	const bool ten = req->cdb[0] == 0x5a, descriptor = !(req->cdb[1] & 8) && !u->cd;
	const enum page_control pc = req->cdb[2] >> 6;
	const uint8_t code = req->cdb[2] & 0x3f, subpage = req->cdb[3];
	const unsigned header = ten ? 8 : 4;
	bool found = code == PAGE_ALL;
	uint8_t *b, *p, device;
	unsigned len;

	if (pc == PC_SAVED)
		return scsi_fail(req, SENSE_SAVING_NOT_SUPPORTED);
	if (subpage && !(code == PAGE_ALL && subpage == 0xff))
		return scsi_fail(req, SENSE_INVALID_FIELD);
	b = scsi_buf(req, MODES_MAX);
	if (!b)
		return -1;
	p = b + header;
	if (descriptor)
		p = put_block_descriptor(u, p);
	for (size_t i = 0; i < ARRAY_SIZE(page_table); i++)
		if (has_page(u, i) && (code == PAGE_ALL || code == page_table[i].code)) {
			p = put_page(u, i, pc, p);
			found = true;
		}
	if (!found)
		return scsi_fail(req, SENSE_INVALID_FIELD);
	len = (unsigned)(p - b);
	device = u->cd ? 0 : (uint8_t)(DEVICE_DPOFUA | (scsi_unit_read_only(u) ? DEVICE_WRITE_PROT : 0));
	if (ten) {
		st16be(b, (uint16_t)(len - 2));
		b[3] = device;
		st16be(b + 6, descriptor ? 8 : 0);
		return scsi_reply(req, len, ld16be(req->cdb + 7));
	}
	b[0] = (uint8_t)(len - 1);
	b[2] = device;
	b[3] = descriptor ? 8 : 0;
	return scsi_reply(req, len, req->cdb[4]);
}

/* ---- MODE SELECT ---------------------------------------------------------------------- */

int scsi_mode_select(struct scsi_req *req)
{
	const bool ten = req->cdb[0] == 0x55;
	const uint32_t len = ten ? ld16be(req->cdb + 7) : req->cdb[4];

	if ((req->cdb[1] & 0x11) != 0x10) /* PF set, SP clear: nothing is saved */
		return scsi_fail(req, SENSE_INVALID_FIELD);
	if (len > PARAMETERS_MAX || (len && len < (ten ? 8u : 4u)))
		return scsi_fail(req, SENSE_PARAMETER_LENGTH);
	return scsi_want_parameters(req, len);
}

/* A page the guest sent: what it may not change must be as it is. */
static bool check_page(const struct scsi_unit *u, const uint8_t *p, size_t left, bool *wce)
{
	uint8_t now[2 + 64] = {0}, mask[2 + 64] = {0};

	for (size_t i = 0; i < ARRAY_SIZE(page_table); i++) {
		if (page_table[i].code != (p[0] & 0x7f) || !has_page(u, i))
			continue;
		if (p[1] != page_table[i].len || left < 2u + p[1])
			return false;
		put_page(u, i, PC_CURRENT, now);
		put_page(u, i, PC_CHANGEABLE, mask);
		for (unsigned k = 2; k < 2u + p[1]; k++)
			if ((p[k] ^ now[k]) & ~mask[k])
				return false;
		if (page_table[i].code == 0x08)
			*wce = p[2] & CACHING_WCE;
		return true;
	}
	return false;
}

static bool check_parameters(const struct scsi_req *req, bool *wce)
{
	const struct scsi_unit *u = req->unit;
	const bool ten = req->cdb[0] == 0x55;
	const uint8_t *p = req->buf;
	size_t left = req->buf_len, header = ten ? 8 : 4, descriptor = ten ? ld16be(p + 6) : p[3];

	if (descriptor > left - header || (descriptor && descriptor != 8) || (ten && (p[4] & 1)))
		return false;
	if (descriptor && (ld32be(p + header + 4) & 0xffffff) != u->logical_block_size)
		return false;
	p += header + descriptor;
	left -= header + descriptor;
	while (left) {
		if (left < 2 || (p[0] & 0x40) || !check_page(u, p, left, wce))
			return false;
		left -= 2u + p[1];
		p += 2u + p[1];
	}
	return true;
}

static void cache_flushed(struct scsi_req *req)
{
	req->unit->wce = false;
	scsi_finish(req);
}

void scsi_mode_select_run(struct scsi_req *req)
{
	struct scsi_unit *u = req->unit;
	bool wce = u->wce;

	if (req->len == 0) {
		scsi_finish(req);
		return;
	}
	if (!scsi_take_parameters(req))
		return;
	if (!check_parameters(req, &wce)) {
		scsi_fail_run(req, SENSE_INVALID_PARAMETER);
		return;
	}
	if (u->wce && !wce && scsi_medium(u)) { /* what is in the cache must not be left behind */
		req->b.op = BLOCK_FLUSH;
		scsi_submit(req, cache_flushed);
		return;
	}
	u->wce = wce;
	scsi_finish(req);
}
