// SPDX-License-Identifier: GPL-2.0-or-later
/* The NBD server of fuzz_store.c: newstyle handshake, simple and structured replies (NetworkBlockDevice/nbd, proto.md).
 */
#include "fuzz_store.h"

#include <endian.h>
#include <string.h>

#include "base/util.h"

#define IHAVEOPT      0x49484156454f5054ull
#define REPLY_MAGIC   0x3e889045565a9ull
#define REP_ACK	      1u
#define REP_INFO      3u
#define REP_ERR_UNSUP 0x80000001u

enum { OPT_EXPORT_NAME = 1, OPT_ABORT = 2, OPT_INFO = 6, OPT_GO = 7, OPT_STRUCTURED_REPLY = 8 };
enum { CMD_READ, CMD_WRITE, CMD_DISC };
enum { CHUNK_NONE = 0, CHUNK_DATA = 1, CHUNK_HOLE = 2, CHUNK_ERROR = 0x8001, CHUNK_ERROR_OFFSET = 0x8002 };
#define CHUNK_DONE 1u

static enum { FLAGS, OPTIONS, COMMANDS } phase;
static bool structured;

struct message {
	size_t n;
	uint8_t p[SERVER_ROOM];
};
static struct message m;

static void put16(unsigned v)
{
	const uint16_t be = htobe16((uint16_t)v);

	memcpy(m.p + m.n, &be, 2);
	m.n += 2;
}

static void put32(uint32_t v)
{
	const uint32_t be = htobe32(v);

	memcpy(m.p + m.n, &be, 4);
	m.n += 4;
}

static void put64(uint64_t v)
{
	put32((uint32_t)(v >> 32));
	put32((uint32_t)v);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void say(struct server *s)
{
	server_say(s, m.p, m.n);
	m.n = 0;
}

static void connected(struct server *s)
{
	phase = FLAGS;
	structured = false;
	m.n = 0;
	memcpy(m.p, "NBDMAGIC", 8);
	m.n = 8;
	put64(IHAVEOPT);
	put16(server_odd(s) ? (unsigned)server_take(s, 2) : 3); /* fixed newstyle, no zeroes */
	say(s);
}

static void option_reply(struct server *s, uint32_t option, uint32_t type, uint32_t len)
{
	put64(REPLY_MAGIC);
	put32(option);
	put32(type);
	put32(len);
}

static void put_export(struct server *s)
{
	put64(server_odd(s) ? server_take(s, 8) : SERVER_DISK_SIZE);
	put16(server_odd(s) ? (unsigned)server_take(s, 2) : 0x65); /* flags, flush, trim, write zeroes */
}

static void info(struct server *s, uint32_t option)
{
	option_reply(s, option, REP_INFO, 12);
	put16(0);
	put_export(s);
	say(s);
	option_reply(s, option, REP_INFO, 14);
	put16(3);
	for (unsigned k = 0; k < 3; k++)
		put32(server_odd(s) ? 1u << server_take(s, 1) % 32 : (uint32_t[]){1, 4096, 32 << 20}[k]);
	say(s);
	option_reply(s, option, REP_ACK, 0);
	say(s);
	if (option == OPT_GO)
		phase = COMMANDS;
}

static void answer_option(struct server *s, uint32_t option)
{
	if (server_odd(s)) {
		option_reply(s, option, REP_ERR_UNSUP + (uint32_t)server_take(s, 1) % 12, 0);
		say(s);
		return;
	}
	switch (option) {
	case OPT_EXPORT_NAME:
		put_export(s);
		memset(m.p + m.n, 0, 124);
		m.n += server_odd(s) ? 124 : 0;
		say(s);
		phase = COMMANDS;
		break;
	case OPT_ABORT:
		option_reply(s, option, REP_ACK, 0);
		say(s);
		server_end(s);
		break;
	case OPT_INFO:
	case OPT_GO: info(s, option); break;
	default:
		structured = structured || option == OPT_STRUCTURED_REPLY;
		option_reply(s, option, option == OPT_STRUCTURED_REPLY ? REP_ACK : REP_ERR_UNSUP, 0);
		say(s);
	}
}

static void chunk(unsigned flags, unsigned type, const uint8_t *cookie, uint32_t len)
{
	put32(0x668e33ef);
	put16(flags);
	put16(type);
	memcpy(m.p + m.n, cookie, 8);
	m.n += 8;
	put32(len);
}

static void data(uint32_t len)
{
	for (uint32_t k = 0; k < len; k++)
		m.p[m.n++] = (uint8_t)k;
}

static void structured_read(struct server *s, const uint8_t *cookie, uint64_t offset, uint32_t len)
{
	const uint32_t half = server_odd(s) ? len / 2 : 0;

	if (half) { /* a hole, or data, and then the rest */
		const bool hole = server_odd(s);

		chunk(0, hole ? CHUNK_HOLE : CHUNK_DATA, cookie, hole ? 12 : 8 + half);
		put64(offset);
		if (hole)
			put32(half);
		else
			data(half);
		say(s);
	}
	chunk(CHUNK_DONE, CHUNK_DATA, cookie, 8 + len - half);
	put64(offset + half);
	data(len - half);
	say(s);
}

static void answer_command(struct server *s, const uint8_t *p)
{
	static const uint8_t errors[] = {1, 5, 12, 22, 28, 75, 95, 108};
	const unsigned type = (unsigned)p[6] << 8 | p[7];
	const uint8_t *cookie = p + 8;
	const uint64_t offset = (uint64_t)get32(p + 16) << 32 | get32(p + 20);
	const uint32_t len = MIN(get32(p + 24), SERVER_ROOM / 2);
	const uint32_t error = server_odd(s) ? errors[server_take(s, 1) % ARRAY_SIZE(errors)] : 0;

	if (type == CMD_DISC) {
		server_end(s);
	} else if (structured && !server_odd(s)) {
		if (type == CMD_READ && !error) {
			structured_read(s, cookie, offset, len);
			return;
		}
		chunk(CHUNK_DONE, error ? CHUNK_ERROR : CHUNK_NONE, cookie, error ? 6 : 0);
		if (error) {
			put32(error);
			put16(0);
		}
		say(s);
	} else {
		put32(0x67446698);
		put32(error);
		memcpy(m.p + m.n, cookie, 8);
		m.n += 8;
		if (type == CMD_READ && !error)
			data(len);
		say(s);
	}
}

static size_t hear(struct server *s, const uint8_t *p, size_t n)
{
	size_t need = phase == FLAGS ? 4 : phase == OPTIONS ? 16 : 28;

	if (n < need)
		return 0;
	if (phase == FLAGS) {
		phase = OPTIONS;
		return need;
	}
	if (phase == OPTIONS)
		need += get32(p + 12);
	else if (p[7] == CMD_WRITE)
		need += get32(p + 24);
	if (need > SERVER_ROOM)
		server_end(s);
	if (n < need || s->ended)
		return 0;
	if (phase == OPTIONS)
		answer_option(s, get32(p + 8));
	else
		answer_command(s, p);
	return need;
}

const struct server_protocol fuzz_nbd_server = {
    .name = "nbd",
    .url = "nbd+unix:///x?socket=/nowhere",
    .connected = connected,
    .hear = hear,
};
