// SPDX-License-Identifier: GPL-2.0-or-later
/* The iSCSI target of fuzz_store.c (RFC 7143): login, SCSI commands of one disk (SBC-3), data in and out, logout. */
#include "fuzz_store.h"

#include <string.h>

#include "base/util.h"

#define BHS	  48u
#define BLOCK	  512u
#define MAX_TASKS 8
#define FINAL	  0x80u

enum { NOP_OUT = 0, COMMAND = 1, LOGIN = 3, TEXT = 4, DATA_OUT = 5, LOGOUT = 6 };
enum {
	NOP_IN = 0x20,
	RESPONSE = 0x21,
	LOGIN_RESPONSE = 0x23,
	TEXT_RESPONSE = 0x24,
	DATA_IN = 0x25,
	LOGOUT_RESPONSE = 0x26,
	R2T = 0x31,
	ASYNC = 0x32,
	REJECT = 0x3f
};

/* Commands whose data is still to come. */
static struct task {
	bool used;
	uint8_t itt[4];
	uint32_t want, have;
} tasks[MAX_TASKS];
static uint32_t stat_sn, cmd_sn;

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put32(uint8_t *p, uint32_t v)
{
	for (unsigned k = 0; k < 4; k++)
		p[k] = (uint8_t)(v >> (24 - 8 * k));
}

static uint32_t data_length(const uint8_t *p)
{
	return get32(p + 4) & 0xffffff;
}

static void connected(struct server *s)
{
	memset(tasks, 0, sizeof(tasks));
	stat_sn = cmd_sn = 1;
}

/* A PDU of the target: the request's tag, numbers, data. */
static void say(struct server *s, uint8_t *bhs, const uint8_t *itt, const void *data, uint32_t len)
{
	static uint8_t pdu[SERVER_ROOM];

	memcpy(bhs + 16, itt, 4);
	put32(bhs + 4, len);
	put32(bhs + 24, stat_sn);
	put32(bhs + 28, cmd_sn);
	put32(bhs + 32, cmd_sn + 64);
	memcpy(pdu, bhs, BHS);
	if (len)
		memcpy(pdu + BHS, data, len);
	memset(pdu + BHS + len, 0, 3);
	server_say(s, pdu, BHS + ALIGN_UP(len, 4u));
}

static void login(struct server *s, const uint8_t *p)
{
	static const char security[] = "TargetPortalGroupTag=1\0AuthMethod=None";
	static const char operational[] = "HeaderDigest=None\0DataDigest=None\0InitialR2T=No\0ImmediateData=Yes";
	static const char slow[] = "HeaderDigest=None\0InitialR2T=Yes\0ImmediateData=No";
	const unsigned now = p[1] >> 2 & 3;
	uint8_t bhs[BHS] = {LOGIN_RESPONSE, p[1]};

	memcpy(bhs + 8, p + 8, 6); /* ISID */
	bhs[15] = 1;
	if (server_odd(s)) { /* redirected, refused, failed */
		bhs[36] = (uint8_t)server_take(s, 1) % 4;
		bhs[37] = (uint8_t)server_take(s, 1);
	}
	if (now == 0)
		say(s, bhs, p + 16, security, sizeof(security));
	else if (server_odd(s))
		say(s, bhs, p + 16, slow, sizeof(slow));
	else
		say(s, bhs, p + 16, operational, sizeof(operational));
	stat_sn++;
}

static void respond(struct server *s, const uint8_t *itt)
{
	static const uint8_t keys[] = {0, 2, 3, 5, 6, 7, 8, 11, 15};
	static const uint8_t statuses[] = {2, 2, 2, 8, 0x18, 0x28, 0x40, 4};
	uint8_t bhs[BHS] = {RESPONSE, FINAL}, sense[20] = {0, 18, 0x70};

	if (!server_odd(s)) {
		say(s, bhs, itt, NULL, 0);
		stat_sn++;
		return;
	}
	bhs[3] = statuses[server_take(s, 1) % ARRAY_SIZE(statuses)];
	sense[4] = keys[server_take(s, 1) % ARRAY_SIZE(keys)];
	sense[9] = 10;
	sense[14] = (uint8_t)server_take(s, 1);
	sense[15] = (uint8_t)server_take(s, 1);
	say(s, bhs, itt, sense, bhs[3] == 2 ? sizeof(sense) : 0);
	stat_sn++;
}

static void data_in(struct server *s, const uint8_t *itt, const void *data, uint32_t len, uint32_t expected)
{
	uint8_t bhs[BHS] = {DATA_IN};
	const uint32_t first = server_odd(s) ? ALIGN_DOWN(len / 2, 4u) : 0;

	if (len > expected)
		len = expected;
	if (first && first < len) {
		say(s, bhs, itt, data, first);
		bhs[39] = 1; /* DataSN */
		put32(bhs + 40, first);
	}
	bhs[1] = FINAL | 1 | (len < expected ? 2 : 0); /* with the status; underflow */
	put32(bhs + 44, expected - len);
	say(s, bhs, itt, (const uint8_t *)data + (first < len ? first : 0), first < len ? len - first : len);
	stat_sn++;
}

static void inquiry(struct server *s, const uint8_t *cdb, const uint8_t *itt, uint32_t expected)
{
	uint8_t d[64] = {0, cdb[2], 0, 60};

	if (!(cdb[1] & 1)) {
		d[1] = 0;
		d[2] = 5;
		d[4] = 31;
		data_in(s, itt, d, 36, expected);
		return;
	}
	if (cdb[2] == 0xb0) {
		put32(d + 8, server_odd(s) ? (uint32_t)server_take(s, 4) : 0);	   /* longest transfer */
		put32(d + 20, server_odd(s) ? (uint32_t)server_take(s, 4) : 4096); /* UNMAP: blocks, descriptors */
		put32(d + 24, server_odd(s) ? (uint32_t)server_take(s, 4) : 1);
		put32(d + 40, server_odd(s) ? (uint32_t)server_take(s, 4) : 65536); /* WRITE SAME */
	} else {
		d[3] = 4;
		d[5] = server_odd(s) ? (uint8_t)server_take(s, 1) : 0xe0; /* UNMAP, WRITE SAME */
	}
	data_in(s, itt, d, cdb[2] == 0xb0 ? 64 : 8, expected);
}

static void read_command(struct server *s, const uint8_t *cdb, const uint8_t *itt, uint32_t expected)
{
	static uint8_t blocks[SERVER_ROOM / 2];
	uint8_t d[32] = {0};

	switch (cdb[0]) {
	case 0x9e: /* READ CAPACITY(16) */
		put32(d + 4, server_odd(s) ? (uint32_t)server_take(s, 4) : SERVER_DISK_SIZE / BLOCK - 1);
		put32(d + 8, server_odd(s) ? 1u << server_take(s, 1) % 32 : BLOCK);
		data_in(s, itt, d, 32, expected);
		break;
	case 0x1a: /* MODE SENSE(6) */
		d[0] = 23;
		d[2] = server_odd(s) ? 0x80 : 0;
		d[4] = 8;
		d[5] = 18;
		data_in(s, itt, d, 24, expected);
		break;
	case 0x12: inquiry(s, cdb, itt, expected); break;
	default: data_in(s, itt, blocks, MIN(expected, (uint32_t)sizeof(blocks)), expected); break;
	}
}

/* More data of a command came: ask for the rest, or the status. */
static void received(struct server *s, struct task *t, uint32_t len, bool final)
{
	uint8_t bhs[BHS] = {R2T, FINAL};
	uint32_t rest;

	t->have += MIN(len, t->want - t->have);
	rest = t->want - t->have;
	if (!rest || server_odd(s)) {
		t->used = false;
		respond(s, t->itt);
	} else if (final) {
		put32(bhs + 20, 7); /* target transfer tag */
		put32(bhs + 40, t->have);
		put32(bhs + 44, server_odd(s) ? 1 + (uint32_t)server_take(s, 4) % rest : rest);
		say(s, bhs, t->itt, NULL, 0);
	}
}

static void command(struct server *s, const uint8_t *p)
{
	const uint32_t expected = get32(p + 20);
	struct task *t = tasks;

	cmd_sn = get32(p + 24) + !(p[0] & 0x40);
	if (p[1] & 0x40) {
		if (server_odd(s))
			respond(s, p + 16);
		else
			read_command(s, p + 32, p + 16, expected);
		return;
	}
	while (t < tasks + MAX_TASKS && t->used)
		t++;
	if (!(p[1] & 0x20) || !expected || t == tasks + MAX_TASKS) {
		respond(s, p + 16);
		return;
	}
	*t = (struct task){.used = true, .want = expected};
	memcpy(t->itt, p + 16, 4);
	received(s, t, data_length(p), p[1] & FINAL);
}

static void answer(struct server *s, const uint8_t *p)
{
	uint8_t bhs[BHS] = {0, FINAL};

	switch (p[0] & 0x3f) {
	case LOGIN: login(s, p); break;
	case COMMAND: command(s, p); break;
	case DATA_OUT:
		for (unsigned k = 0; k < MAX_TASKS; k++)
			if (tasks[k].used && !memcmp(tasks[k].itt, p + 16, 4)) {
				received(s, &tasks[k], data_length(p), p[1] & FINAL);
				return;
			}
		break;
	case LOGOUT:
		bhs[0] = LOGOUT_RESPONSE;
		say(s, bhs, p + 16, NULL, 0);
		break;
	case NOP_OUT:
		if (get32(p + 16) == UINT32_MAX)
			break;
		bhs[0] = NOP_IN;
		memset(bhs + 20, 0xff, 4);
		say(s, bhs, p + 16, NULL, 0);
		break;
	default:
		bhs[0] = (p[0] & 0x3f) == TEXT ? TEXT_RESPONSE : REJECT;
		bhs[2] = 4;
		say(s, bhs, p + 16, p, bhs[0] == REJECT ? BHS : 0);
		break;
	}
}

/* What a target says unasked: a ping, an event. */
static void unasked(struct server *s)
{
	static const uint8_t none[4] = {0xff, 0xff, 0xff, 0xff};
	uint8_t bhs[BHS] = {server_odd(s) ? ASYNC : NOP_IN, FINAL};

	put32(bhs + 20, bhs[0] == ASYNC ? 0 : (uint32_t)server_take(s, 1));
	bhs[36] = (uint8_t)server_take(s, 1) % 5;
	say(s, bhs, none, NULL, 0);
}

static size_t hear(struct server *s, const uint8_t *p, size_t n)
{
	size_t need = BHS;

	if (n < need)
		return 0;
	need += 4u * p[4] + ALIGN_UP(data_length(p), 4u);
	if (need > SERVER_ROOM)
		server_end(s);
	if (n < need || s->ended)
		return 0;
	if (server_odd(s))
		unasked(s);
	answer(s, p);
	return need;
}

/*
 * libiscsi 1.19 follows a null pointer when the answer to a request is of another kind (an opcode that does not fit the
 * tag), and writes for ever when a login says MaxRecvDataSegmentLength=0. Nothing of ours is between, so this server
 * does neither.
 */
static void spare(uint8_t *msg, const uint8_t *was, size_t n)
{
	msg[0] = was[0];
	memcpy(msg + 16, was + 16, 4);
	if (msg[0] == R2T)
		memcpy(msg + 40, was + 40, 8);
	if (memmem(msg, n, "Length=", 7))
		memcpy(msg, was, n);
}

const struct server_protocol fuzz_iscsi_server = {
    .name = "iscsi",
    .url = "iscsi://127.0.0.1:3260/iqn.2026-01.fuzz:t/0",
    .connected = connected,
    .hear = hear,
    .spare = spare,
};
