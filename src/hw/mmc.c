// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The packet commands of a DVD-ROM drive: MMC-6, SPC-4 for the common ones, and SFF-8020i where old drivers need it.
 * A medium up to 80 minutes is a CD, a larger one a DVD. Locking: mmc.h.
 */
#include "hw/mmc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* Sense keys, and additional codes as ASC << 8 | ASCQ: SPC-4, 4.5.6 */
#define KEY_NOT_READY	    2
#define KEY_MEDIUM_ERROR    3
#define KEY_ILLEGAL_REQUEST 5
#define KEY_UNIT_ATTENTION  6
#define ASC_READ_ERROR	    0x1100
#define ASC_OPCODE	    0x2000
#define ASC_LBA_RANGE	    0x2100
#define ASC_FIELD	    0x2400
#define ASC_MEDIUM_CHANGED  0x2800
#define ASC_NO_MEDIUM	    0x3a01
#define ASC_NO_MEDIUM_OPEN  0x3a02
#define ASC_LOCKED	    0x5302

#define CD_MAX_BLOCKS (80u * 60 * 75)
#define PROFILE_CD    0x0008
#define PROFILE_DVD   0x0010
#define MEDIA_CLASS   4
#define MSF_FRAMES    75u
#define MSF_LEAD_IN   150u

enum mmc_event { EVENT_NONE, EVENT_EJECT_REQUEST, EVENT_NEW_MEDIUM, EVENT_REMOVED };

enum { NEEDS_MEDIUM = 1, ALWAYS = 2 /* also while UNIT ATTENTION is due, which it leaves */ };

struct mmc_op {
	uint8_t opcode, flags;
	struct mmc_reply (*fn)(struct mmc *m, const uint8_t *cdb, uint8_t *buf);
};

/* ---- replies ------------------------------------------------------------------ */

static struct mmc_reply ok(void)
{
	return (struct mmc_reply){.kind = MMC_OK};
}

static struct mmc_reply check(struct mmc *m, uint8_t key, uint16_t asc)
{
	m->key = key;
	m->asc = (uint8_t)(asc >> 8);
	m->ascq = (uint8_t)asc;
	return (struct mmc_reply){.kind = MMC_CHECK};
}

/* As much of the reply as the guest allows. */
static struct mmc_reply data(uint32_t len, uint32_t allowed)
{
	len = MIN(len, allowed);
	return (struct mmc_reply){.kind = len ? MMC_DATA : MMC_OK, .len = len};
}

static bool ready(const struct mmc *m)
{
	return m->blocks && !m->tray_open;
}

static bool is_dvd(const struct mmc *m)
{
	return m->blocks > CD_MAX_BLOCKS;
}

static void put_text(uint8_t *out, size_t width, const char *text)
{
	memset(out, ' ', width);
	memcpy(out, text, MIN(strlen(text), width));
}

/* A block address, or minutes, seconds and frames from the lead-in on. */
static void put_address(uint8_t *out, uint64_t lba, bool msf)
{
	const uint64_t frames = lba + MSF_LEAD_IN;

	if (!msf) {
		st32be(out, (uint32_t)MIN(lba, (uint64_t)UINT32_MAX));
		return;
	}
	out[0] = 0;
	out[1] = (uint8_t)MIN(frames / (60 * MSF_FRAMES), 255u);
	out[2] = (uint8_t)(frames / MSF_FRAMES % 60);
	out[3] = (uint8_t)(frames % MSF_FRAMES);
}

/* ---- SPC ------------------------------------------------------------------------ */

static struct mmc_reply op_ready(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	return ok(); /* the table's flags did the work */
}

static struct mmc_reply op_sense(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	memset(buf, 0, 18);
	if (m->attention && !m->key) {
		m->attention = false;
		check(m, KEY_UNIT_ATTENTION, ASC_MEDIUM_CHANGED);
	}
	buf[0] = 0x70;
	buf[2] = m->key;
	buf[7] = 10;
	buf[12] = m->asc;
	buf[13] = m->ascq;
	m->key = m->asc = m->ascq = 0;
	return data(18, cdb[4]);
}

static struct mmc_reply op_inquiry(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	if (cdb[1] & 1 || cdb[2])
		return check(m, KEY_ILLEGAL_REQUEST, ASC_FIELD);
	memset(buf, 0, 36);
	buf[0] = 0x05; /* CD or DVD */
	buf[1] = 0x80; /* removable */
	buf[3] = 0x21; /* ATAPI 2 */
	buf[4] = 36 - 5;
	put_text(buf + 8, 8, "KELVIN");
	put_text(buf + 16, 16, m->product);
	put_text(buf + 32, 4, m->revision);
	return data(36, ld16be(cdb + 3));
}

static struct mmc_reply op_prevent(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	m->locked = cdb[4] & 1;
	return ok();
}

static struct mmc_reply op_start_stop(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	const bool start = cdb[4] & 1, load_eject = cdb[4] & 2;

	if (cdb[4] >> 4 || !load_eject)
		return ok(); /* power and spinning */
	if (!start && !m->tray_open && m->locked)
		return check(m, m->blocks ? KEY_ILLEGAL_REQUEST : KEY_NOT_READY, ASC_LOCKED);
	mmc_set_tray(m, !start);
	return ok();
}

/* ---- mode pages --------------------------------------------------------------------- */

static uint32_t page_recovery(const struct mmc *m, uint8_t *out)
{
	out[0] = 0x01;
	out[1] = 6;
	out[3] = 5; /* retries */
	return 8;
}

static uint32_t page_capabilities(const struct mmc *m, uint8_t *out)
{
	out[0] = 0x2a;
	out[1] = 18;
	out[2] = 0x3b;					/* reads CD-R, CD-RW, DVD-ROM, DVD-R */
	out[4] = 0x70;					/* mode 2 forms 1 and 2, multi-session */
	out[6] = (uint8_t)(0x29 | (m->locked ? 2 : 0)); /* a tray, eject, lock */
	st16be(out + 8, 706);				/* 4x, in KB/s */
	st16be(out + 10, 2);
	st16be(out + 12, 512); /* KB of buffer */
	st16be(out + 14, 706);
	return 20;
}

static const struct {
	uint8_t page;
	uint32_t (*fill)(const struct mmc *m, uint8_t *out);
} page_table[] = {{0x01, page_recovery}, {0x2a, page_capabilities}};

static struct mmc_reply op_mode_sense(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	const bool ten = cdb[0] == 0x5a;
	const uint8_t page = cdb[2] & 0x3f;
	const uint32_t header = ten ? 8 : 4;
	uint32_t len = header;

	memset(buf, 0, 64);
	if (cdb[2] >> 6 == 3)
		return check(m, KEY_ILLEGAL_REQUEST, 0x3900); /* no saved values */
	for (size_t i = 0; i < ARRAY_SIZE(page_table); i++)
		if (page == page_table[i].page || page == 0x3f)
			len += page_table[i].fill(m, buf + len);
	if (len == header)
		return check(m, KEY_ILLEGAL_REQUEST, ASC_FIELD);
	if (cdb[2] >> 6 == 1) /* nothing can be changed */
		memset(buf + header + 2, 0, len - header - 2);
	if (ten)
		st16be(buf, (uint16_t)(len - 2));
	else
		buf[0] = (uint8_t)(len - 1);
	buf[ten ? 2 : 1] = m->tray_open ? 0x71 : !m->blocks ? 0x70 : is_dvd(m) ? 0x41 : 0x01;
	return data(len, ten ? ld16be(cdb + 7) : cdb[4]);
}

static struct mmc_reply op_mode_select(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	const uint32_t len = cdb[0] == 0x55 ? ld16be(cdb + 7) : cdb[4];

	return len ? (struct mmc_reply){.kind = MMC_TAKE, .len = len} : ok();
}

/* ---- reading --------------------------------------------------------------------------- */

static struct mmc_reply read_blocks(struct mmc *m, uint64_t lba, uint64_t count)
{
	if (lba > m->blocks || count > m->blocks - lba)
		return check(m, KEY_ILLEGAL_REQUEST, ASC_LBA_RANGE);
	if (!count)
		return ok();
	return (struct mmc_reply){.kind = MMC_READ, .offset = lba * MMC_BLOCK, .len = count * MMC_BLOCK};
}

static struct mmc_reply op_read(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	return read_blocks(m, ld32be(cdb + 2), cdb[0] == 0xa8 ? ld32be(cdb + 6) : ld16be(cdb + 7));
}

/* User data only: an image holds no headers and no error correction. */
static struct mmc_reply op_read_cd(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	const uint32_t count = (uint32_t)cdb[6] << 16 | ld16be(cdb + 7);
	const uint8_t fields = cdb[9] & 0xf8;

	if (!count || !fields)
		return ok();
	if (fields != 0x10 || (cdb[10] & 7))
		return check(m, KEY_ILLEGAL_REQUEST, ASC_FIELD);
	return read_blocks(m, ld32be(cdb + 2), count);
}

static struct mmc_reply op_seek(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	return ld32be(cdb + 2) < m->blocks ? ok() : check(m, KEY_ILLEGAL_REQUEST, ASC_LBA_RANGE);
}

static struct mmc_reply op_capacity(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	st32be(buf, (uint32_t)MIN(m->blocks - 1, (uint64_t)UINT32_MAX));
	st32be(buf + 4, MMC_BLOCK);
	return data(8, 8);
}

/* ---- what is on the medium ----------------------------------------------------------------- */

/* Format 0: track 1 and the lead-out; 1: the one session; 2: raw entries of the lead-in. */
static struct mmc_reply op_toc(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	const bool msf = cdb[1] & 2;
	const uint8_t format = (cdb[2] & 15) ? cdb[2] & 15 : cdb[9] >> 6, start = cdb[6];
	static const uint8_t points[] = {0xa0, 0xa1, 0xa2, 0x01};
	uint8_t *p = buf + 4;

	memset(buf, 0, 64);
	buf[2] = buf[3] = 1; /* first and last */
	switch (format) {
	case 0:
		if (start > 1 && start != 0xaa)
			return check(m, KEY_ILLEGAL_REQUEST, ASC_FIELD);
		if (start <= 1) {
			p[1] = 0x14;
			p[2] = 1;
			put_address(p + 4, 0, msf);
			p += 8;
		}
		p[1] = 0x16;
		p[2] = 0xaa;
		put_address(p + 4, m->blocks, msf);
		p += 8;
		break;
	case 1:
		p[1] = 0x14;
		p[2] = 1;
		put_address(p + 4, 0, msf);
		p += 8;
		break;
	case 2:
		for (unsigned i = 0; i < ARRAY_SIZE(points); i++, p += 11) {
			p[0] = 1;
			p[1] = 0x14;
			p[3] = points[i];
			if (i < 2)
				p[8] = 1;
			else
				put_address(p + 7, i == 2 ? m->blocks : 0, true);
		}
		break;
	default: return check(m, KEY_ILLEGAL_REQUEST, ASC_FIELD);
	}
	st16be(buf, (uint16_t)(p - buf - 2));
	return data((uint32_t)(p - buf), ld16be(cdb + 7));
}

static struct mmc_reply op_disc_information(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	if (cdb[1] & 7)
		return check(m, KEY_ILLEGAL_REQUEST, ASC_FIELD);
	memset(buf, 0, 34);
	st16be(buf, 32);
	buf[2] = 0x0e; /* finished, the last session complete */
	buf[3] = buf[4] = buf[5] = buf[6] = 1;
	buf[7] = 0x20;
	memset(buf + 16, 0xff, 8); /* no lead-in and no lead-out address */
	return data(34, ld16be(cdb + 7));
}

static struct mmc_reply op_track_information(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	memset(buf, 0, 36);
	st16be(buf, 34);
	buf[2] = buf[3] = 1; /* track and session */
	buf[5] = 4;	     /* data */
	buf[6] = 1;	     /* mode 1 */
	st32be(buf + 24, (uint32_t)MIN(m->blocks, (uint64_t)UINT32_MAX));
	return data(36, ld16be(cdb + 7));
}

static struct mmc_reply op_sub_channel(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	memset(buf, 0, 4);
	buf[1] = 0x15; /* no audio to tell of */
	return data(4, ld16be(cdb + 7));
}

static struct mmc_reply op_dvd_structure(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	if (!is_dvd(m) || cdb[7] || cdb[6])
		return check(m, KEY_ILLEGAL_REQUEST, ASC_FIELD);
	memset(buf, 0, 24);
	st16be(buf, 22);
	buf[4] = 0x01; /* DVD-ROM, part version 1 */
	buf[5] = 0x0f; /* 120 mm, no maximum rate */
	buf[6] = 0x01; /* one layer, read-only */
	st32be(buf + 8, 0x30000);
	st32be(buf + 12, (uint32_t)MIN(0x30000 + m->blocks - 1, (uint64_t)UINT32_MAX));
	return data(24, ld16be(cdb + 8));
}

/* ---- the drive ------------------------------------------------------------------------------- */

static uint32_t put_feature(uint8_t *out, uint16_t code, bool current, const uint8_t *bytes, uint8_t len)
{
	st16be(out, code);
	out[2] = (uint8_t)(0x02 | (current ? 1 : 0)); /* persistent */
	out[3] = len;
	memcpy(out + 4, bytes, len);
	return 4u + len;
}

static struct mmc_reply op_configuration(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	const bool dvd = ready(m) && is_dvd(m), cd = ready(m) && !is_dvd(m);
	const uint8_t profiles[] = {0, PROFILE_DVD, dvd, 0, 0, PROFILE_CD, cd, 0};
	static const uint8_t core[] = {0, 0, 0, 2, 0, 0, 0, 0}, /* ATAPI */
	    removable[] = {0x29, 0, 0, 0}, readable[] = {0, 0, 8, 0, 0, 1, 1, 0}, cd_read[] = {0, 0, 0, 0};
	const struct {
		uint16_t code;
		bool current;
		const uint8_t *bytes;
		uint8_t len;
	} features[] = {
	    {0x0000, true, profiles, sizeof(profiles)},	  {0x0001, true, core, sizeof(core)},
	    {0x0003, true, removable, sizeof(removable)}, {0x0010, ready(m), readable, sizeof(readable)},
	    {0x001e, cd, cd_read, sizeof(cd_read)},	  {0x001f, dvd, cd_read, 0},
	};
	const uint8_t which = cdb[1] & 3;
	const uint16_t from = ld16be(cdb + 2);
	uint32_t len = 8;

	if (which == 3)
		return check(m, KEY_ILLEGAL_REQUEST, ASC_FIELD);
	memset(buf, 0, 8);
	st16be(buf + 6, dvd ? PROFILE_DVD : cd ? PROFILE_CD : 0);
	for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
		if (which == 2 ? features[i].code != from : features[i].code < from)
			continue;
		if (which == 1 && !features[i].current)
			continue;
		len +=
		    put_feature(buf + len, features[i].code, features[i].current, features[i].bytes, features[i].len);
	}
	st32be(buf, len - 4);
	return data(len, ld16be(cdb + 7));
}

static struct mmc_reply op_event_status(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	if (!(cdb[1] & 1)) /* only polling */
		return check(m, KEY_ILLEGAL_REQUEST, ASC_FIELD);
	memset(buf, 0, 8);
	buf[3] = 1 << MEDIA_CLASS;
	if (!(cdb[4] & 1 << MEDIA_CLASS)) {
		st16be(buf, 2);
		buf[2] = 0x80; /* no such class */
		return data(4, ld16be(cdb + 7));
	}
	st16be(buf, 6);
	buf[2] = MEDIA_CLASS;
	buf[4] = m->event;
	buf[5] = (uint8_t)((m->tray_open ? 1 : 0) | (m->blocks ? 2 : 0));
	if (ld16be(cdb + 7) > 4)
		m->event = EVENT_NONE;
	return data(8, ld16be(cdb + 7));
}

static struct mmc_reply op_mechanism(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	memset(buf, 0, 8);
	buf[1] = m->tray_open ? 0x10 : 0;
	buf[5] = 1;
	return data(8, ld16be(cdb + 8));
}

static const struct mmc_op op_table[] = {
    {0x00, NEEDS_MEDIUM, op_ready},
    {0x03, ALWAYS, op_sense},
    {0x12, ALWAYS, op_inquiry},
    {0x15, 0, op_mode_select},
    {0x1a, 0, op_mode_sense},
    {0x1b, 0, op_start_stop},
    {0x1e, 0, op_prevent},
    {0x25, NEEDS_MEDIUM, op_capacity},
    {0x28, NEEDS_MEDIUM, op_read},
    {0x2b, NEEDS_MEDIUM, op_seek},
    {0x2f, NEEDS_MEDIUM, op_ready}, /* VERIFY */
    {0x35, 0, op_ready},	    /* SYNCHRONIZE CACHE */
    {0x42, NEEDS_MEDIUM, op_sub_channel},
    {0x43, NEEDS_MEDIUM, op_toc},
    {0x46, ALWAYS, op_configuration},
    {0x4a, ALWAYS, op_event_status},
    {0x51, NEEDS_MEDIUM, op_disc_information},
    {0x52, NEEDS_MEDIUM, op_track_information},
    {0x55, 0, op_mode_select},
    {0x5a, 0, op_mode_sense},
    {0xa8, NEEDS_MEDIUM, op_read},
    {0xad, NEEDS_MEDIUM, op_dvd_structure},
    {0xbb, 0, op_ready}, /* SET CD SPEED */
    {0xbd, ALWAYS, op_mechanism},
    {0xbe, NEEDS_MEDIUM, op_read_cd},
};

struct mmc_reply mmc_command(struct mmc *m, const uint8_t *cdb, uint8_t *buf)
{
	const struct mmc_op *op = op_table, *end = op_table + ARRAY_SIZE(op_table);

	while (op < end && op->opcode != cdb[0])
		op++;
	if (op == end)
		return check(m, KEY_ILLEGAL_REQUEST, ASC_OPCODE);
	if (op->fn != op_sense)
		m->key = m->asc = m->ascq = 0;
	if (m->attention && !(op->flags & ALWAYS)) {
		m->attention = false;
		return check(m, KEY_UNIT_ATTENTION, ASC_MEDIUM_CHANGED);
	}
	if ((op->flags & NEEDS_MEDIUM) && !ready(m))
		return check(m, KEY_NOT_READY, m->tray_open ? ASC_NO_MEDIUM_OPEN : ASC_NO_MEDIUM);
	return op->fn(m, cdb, buf);
}

void mmc_read_failed(struct mmc *m, int ret)
{
	if (ret == -ENOMEDIUM)
		check(m, KEY_NOT_READY, ASC_NO_MEDIUM);
	else
		check(m, KEY_MEDIUM_ERROR, ASC_READ_ERROR);
}

uint8_t mmc_sense_key(const struct mmc *m)
{
	return m->key;
}

/* ---- tray and medium ------------------------------------------------------------------------------ */

static void mmc_look(struct mmc *m)
{
	m->blocks = m->drive && m->drive->node ? block_size(m->drive->node) / MMC_BLOCK : 0;
}

void mmc_reset(struct mmc *m)
{
	m->locked = false;
	m->event = EVENT_NONE;
	m->key = m->asc = m->ascq = 0;
	m->tray_open = false;
	mmc_look(m);
	m->attention = false;
}

void mmc_set_tray(struct mmc *m, bool open)
{
	if (m->tray_open == open)
		return;
	m->tray_open = open;
	m->moved = true;
	if (m->blocks) {
		m->event = open ? EVENT_REMOVED : EVENT_NEW_MEDIUM;
		m->attention = !open;
	}
}

void mmc_eject_request(struct mmc *m, bool force)
{
	m->event = EVENT_EJECT_REQUEST;
	if (force)
		m->locked = false;
}

void mmc_medium_changed(struct mmc *m)
{
	const bool had = m->blocks;

	mmc_look(m);
	if (m->tray_open)
		return; /* closing it tells */
	m->event = m->blocks ? EVENT_NEW_MEDIUM : had ? EVENT_REMOVED : m->event;
	m->attention = m->attention || m->blocks;
}

struct tray_event {
	struct bus *bus;
	char json[256];
};

static void tell(void *arg)
{
	struct tray_event *e = arg;

	e->bus->event(e->bus->opaque, "DEVICE_TRAY_MOVED", e->json);
}

static void tell_and_free(void *arg)
{
	tell(arg);
	free(arg);
}

/* False: nothing moved, or nobody wants to know. */
static bool take_event(struct mmc *m, struct tray_event *e)
{
	const bool moved = m->moved;

	m->moved = false;
	if (!moved || !m->bus->event)
		return false;
	e->bus = m->bus;
	snprintf(e->json, sizeof(e->json), "{\"device\": \"%s\", \"id\": \"%s\", \"tray-open\": %s}",
		 m->drive ? m->drive->id : "", m->id ? m->id : "", m->tray_open ? "true" : "false");
	return true;
}

void mmc_emit(struct mmc *m)
{
	struct tray_event e;

	if (take_event(m, &e))
		tell(&e);
}

void mmc_post_event(struct mmc *m)
{
	struct tray_event e, *copy;

	if (!take_event(m, &e) || !(copy = malloc(sizeof(*copy))))
		return;
	*copy = e;
	loop_post(m->bus->loop, tell_and_free, copy);
}

const struct state_field mmc_state_fields[] = {
    STATE_INT(struct mmc, tray_open), STATE_INT(struct mmc, locked),
    STATE_INT(struct mmc, attention), STATE_INT(struct mmc, event),
    STATE_INT(struct mmc, key),	      STATE_INT(struct mmc, asc),
    STATE_INT(struct mmc, ascq),      {0},
};
