/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A server that lives in its client's thread: it answers when the client would wait, rightly except where the input
 * says otherwise, and ends the connection when it has nothing to say, so that nothing ever waits. An input of zeroes,
 * or its end, means a server that does everything right.
 */
#ifndef KELVIN_TESTS_FUZZ_STORE_H
#define KELVIN_TESTS_FUZZ_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "input.h"

#define SERVER_ROOM	 (128u * 1024)
#define SERVER_DISK_SIZE (1u << 20)

struct server {
	struct input in;
	int fd;		/* -1: not connected */
	bool ended;	/* nothing comes any more */
	bool idle_told; /* fuzz_store.c: the loop has run what was due */
	unsigned connections, idle;
	size_t ngot;
	uint8_t got[SERVER_ROOM]; /* what the client said and nobody answered yet */
};

struct server_protocol {
	const char *name, *url;
	void (*connected)(struct server *s);
	/* The next message of n bytes or more: its length after it was answered, or 0: it is not all there. */
	size_t (*hear)(struct server *s, const uint8_t *p, size_t n);
	/* NULL, or takes back what the library is known to fall over; then whole messages only, nothing between them.
	 */
	void (*spare)(uint8_t *msg, const uint8_t *was, size_t n);
};
extern const struct server_protocol fuzz_nbd_server, fuzz_iscsi_server;

/* The input's next bytes, the lowest first; zeroes behind its end. */
uint64_t server_take(struct server *s, unsigned bytes);
/* Most bytes of an input mean the usual: true for a quarter of them. */
bool server_odd(struct server *s);
/* One message as it is, or changed, cut, doubled, replaced as the input says. */
void server_say(struct server *s, const void *msg, size_t n);
void server_end(struct server *s);

#endif
