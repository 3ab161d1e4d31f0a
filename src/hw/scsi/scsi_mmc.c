// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The packet commands of CD and DVD drives: MMC-6. A medium is one session with
 * one data track; it is a CD up to 80 minutes and a DVD-ROM above.
 */
#include "hw/scsi/scsi_int.h"

#define CD_MAX_BLOCKS	(80u * 60 * 75)
#define PROFILE_CD_ROM	0x0008
#define PROFILE_DVD_ROM 0x0010
#define LEAD_OUT	0xaa

static bool is_dvd(const struct scsi_unit *u)
{
	return scsi_blocks(u) > CD_MAX_BLOCKS;
}

static uint16_t profile(const struct scsi_unit *u)
{
	return !scsi_medium(u) ? 0 : is_dvd(u) ? PROFILE_DVD_ROM : PROFILE_CD_ROM;
}

/* ---- table of contents ------------------------------------------------------------- */

static void put_address(uint8_t *p, uint32_t lba, bool msf)
{
	if (!msf) {
		st32be(p, lba);
		return;
	}
	lba += 150; /* two seconds of lead-in */
	p[0] = 0;
	p[1] = (uint8_t)MIN(lba / (60 * 75), 255u);
	p[2] = (uint8_t)(lba / 75 % 60);
	p[3] = (uint8_t)(lba % 75);
}

static uint8_t *put_track(uint8_t *p, uint8_t track, uint32_t lba, bool msf)
{
	p[1] = 0x14; /* data track */
	p[2] = track;
	put_address(p + 4, lba, msf);
	return p + 8;
}

static uint32_t blocks_32(const struct scsi_unit *u)
{
	return (uint32_t)MIN(scsi_blocks(u), (uint64_t)UINT32_MAX - 150);
}

/* Format 2: the raw entries A0h to A2h, then the track. */
static uint8_t *put_full_toc(uint8_t *p, uint32_t blocks)
{
	static const uint8_t point[4] = {0xa0, 0xa1, 0xa2, 1};

	for (unsigned i = 0; i < 4; i++, p += 11) {
		p[0] = 1; /* session */
		p[1] = 0x14;
		p[3] = point[i];
		if (point[i] == 0xa2)
			put_address(p + 7, blocks, true);
		else if (point[i] == 1)
			put_address(p + 7, 0, true);
		else
			p[8] = 1;
	}
	return p;
}

static int read_toc(struct scsi_req *req)
{
	const bool msf = req->cdb[1] & 2;
	/* The format also stands where an older standard had it. */
	const unsigned format = req->cdb[2] & 15 ? req->cdb[2] & 15 : req->cdb[9] >> 6;
	const uint8_t from = req->cdb[6];
	uint8_t *b = scsi_buf(req, 64), *p = b + 4;

	b[2] = b[3] = 1; /* first and last track, or session */
	switch (format) {
	case 0:
		if (from > 1 && from != LEAD_OUT)
			return scsi_fail(req, SENSE_INVALID_FIELD);
		if (from <= 1)
			p = put_track(p, 1, 0, msf);
		p = put_track(p, LEAD_OUT, blocks_32(req->unit), msf);
		break;
	case 1: p = put_track(p, 1, 0, msf); break;
	case 2: p = put_full_toc(p, blocks_32(req->unit)); break;
	default: return scsi_fail(req, SENSE_INVALID_FIELD);
	}
	st16be(b, (uint16_t)(p - b - 2));
	return scsi_reply(req, (uint32_t)(p - b), ld16be(req->cdb + 7));
}

/* ---- GET CONFIGURATION ------------------------------------------------------------------ */

static uint8_t *put_feature(uint8_t *p, uint16_t code, uint8_t flags, const void *data, uint8_t len)
{
	st16be(p, code);
	p[2] = flags;
	p[3] = len;
	memcpy(p + 4, data, len);
	return p + 4 + len;
}

static int get_configuration(struct scsi_req *req)
{
	static const uint8_t morphing[4] = {2}, removable[4] = {0x29}, random_read[8] = {0, 0, 8, 0, 0, 1},
			     core[8] = {0, 0, 0, 1, 1}, none[1] = {0}, cd_read[4] = {0};
	const uint16_t now = profile(req->unit), start = ld16be(req->cdb + 2);
	const unsigned rt = req->cdb[1] & 3;
	uint8_t profiles[8] = {0x00, 0x10, now == PROFILE_DVD_ROM, 0, 0x00, 0x08, now == PROFILE_CD_ROM, 0};
	const struct {
		uint16_t code;
		uint8_t flags; /* version, persistent, current */
		const void *data;
		uint8_t len;
	} features[] = {
	    {0x0000, 3, profiles, sizeof(profiles)},
	    {0x0001, 3 | 2 << 2, core, sizeof(core)},
	    {0x0002, 3 | 1 << 2, morphing, sizeof(morphing)},
	    {0x0003, 3, removable, sizeof(removable)},
	    {0x0010, now != 0, random_read, sizeof(random_read)},
	    {0x001e, (now == PROFILE_CD_ROM) | 2 << 2, cd_read, sizeof(cd_read)},
	    {0x001f, now == PROFILE_DVD_ROM, none, 0},
	};
	uint8_t *b, *p;

	if (rt == 3)
		return scsi_fail(req, SENSE_INVALID_FIELD);
	b = scsi_buf(req, 128);
	st16be(b + 6, now);
	p = b + 8;
	for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
		const bool wanted = rt == 2 ? features[i].code == start : features[i].code >= start;
		if (wanted && (rt != 1 || (features[i].flags & 1)))
			p = put_feature(p, features[i].code, features[i].flags, features[i].data, features[i].len);
	}
	st32be(b, (uint32_t)(p - b - 4));
	return scsi_reply(req, (uint32_t)(p - b), ld16be(req->cdb + 7));
}

/* ---- state and information ---------------------------------------------------------------- */

static int get_event_status(struct scsi_req *req)
{
	struct scsi_unit *u = req->unit;
	uint8_t *p;

	if (!(req->cdb[1] & 1)) /* asynchronous notification */
		return scsi_fail(req, SENSE_INVALID_FIELD);
	p = scsi_buf(req, 8);
	p[3] = 0x10; /* the class that exists: media */
	if (!(req->cdb[4] & 0x10)) {
		st16be(p, 2);
		p[2] = 0x80; /* no event */
		return scsi_reply(req, 4, ld16be(req->cdb + 7));
	}
	st16be(p, 6);
	p[2] = 4;
	p[4] = u->new_media ? 2 : 0;
	p[5] = (uint8_t)((u->tray_open ? 1 : 0) | (scsi_medium(u) ? 2 : 0));
	u->new_media = false;
	return scsi_reply(req, 8, ld16be(req->cdb + 7));
}

static int read_disc_information(struct scsi_req *req)
{
	uint8_t *p;

	if (req->cdb[1] & 7)
		return scsi_fail(req, SENSE_INVALID_FIELD);
	p = scsi_buf(req, 34);
	st16be(p, 32);
	p[2] = 0x0e; /* finalized, last session complete */
	p[3] = p[4] = p[5] = p[6] = 1;
	p[7] = 0x20; /* unrestricted use */
	memset(p + 16, 0xff, 8);
	return scsi_reply(req, 34, ld16be(req->cdb + 7));
}

static int read_track_information(struct scsi_req *req)
{
	uint8_t *p = scsi_buf(req, 36);

	st16be(p, 34);
	p[2] = p[3] = 1;
	p[5] = 4; /* data */
	p[6] = 1; /* mode 1 */
	st32be(p + 24, blocks_32(req->unit));
	return scsi_reply(req, 36, ld16be(req->cdb + 7));
}

static int mechanism_status(struct scsi_req *req)
{
	uint8_t *p = scsi_buf(req, 8);

	p[1] = req->unit->tray_open ? 0x10 : 0;
	return scsi_reply(req, 8, ld16be(req->cdb + 8));
}

static int read_dvd_structure(struct scsi_req *req)
{
	const uint32_t last = blocks_32(req->unit) - 1;
	uint8_t *p;

	if ((req->cdb[1] & 15) || req->cdb[7] != 0 || !is_dvd(req->unit))
		return scsi_fail(req, SENSE_INVALID_FIELD);
	p = scsi_buf(req, 21);
	st16be(p, 19);
	p[4] = 0x01; /* DVD-ROM, part version 1 */
	p[5] = 0x0f; /* 12 cm, no maximum rate */
	p[6] = 0x01; /* one layer, embossed */
	st32be(p + 8, 0x30000);
	st32be(p + 12, 0x30000 + last);
	return scsi_reply(req, 21, ld16be(req->cdb + 8));
}

static int parse_nothing(struct scsi_req *req)
{
	return 0;
}

/* READ CD: only the user data of a sector, which is all an image has. */
static int read_cd(struct scsi_req *req)
{
	const uint8_t what = req->cdb[9] & 0xf8, type = req->cdb[1] >> 2 & 7;
	const uint32_t count = (uint32_t)req->cdb[6] << 16 | ld16be(req->cdb + 7);

	if ((what != 0x10 && what != 0) || (type != 0 && type != 2 && type != 4) || req->cdb[10] & 7)
		return scsi_fail(req, SENSE_INVALID_FIELD);
	return scsi_set_range(req, SCSI_DIR_IN, ld32be(req->cdb + 2), what ? count : 0);
}

const struct scsi_command scsi_mmc_table[] = {
    {0x43, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, read_toc, NULL},
    {0x46, SCSI_NO_SA, SCSI_CD, SCSI_CMD_ALWAYS, get_configuration, NULL},
    {0x4a, SCSI_NO_SA, SCSI_CD, SCSI_CMD_ALWAYS, get_event_status, NULL},
    {0x51, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, read_disc_information, NULL},
    {0x52, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, read_track_information, NULL},
    {0xad, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, read_dvd_structure, NULL},
    {0xbb, SCSI_NO_SA, SCSI_CD, 0, parse_nothing, NULL}, /* SET CD SPEED */
    {0xbd, SCSI_NO_SA, SCSI_CD, 0, mechanism_status, NULL},
    {0xbe, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, read_cd, scsi_run_read},
    {0},
};
