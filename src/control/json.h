/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Small helpers around jansson that QMP needs. */
#ifndef KELVIN_CONTROL_JSON_H
#define KELVIN_CONTROL_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A JSON string of any bytes: what is not UTF-8 (file names may be anything) becomes U+FFFD. */
json_t *json_text(const char *s);

/*
 * Cuts a byte stream into JSON values without parsing them: finds where each
 * top-level object ends. Bounded: a value longer than `limit` or nested deeper
 * than 64 is dropped up to the next line and reported as JSON_CUT_BAD.
 */
struct json_cutter {
	char *buf;
	size_t len, room, limit;
	unsigned depth;
	bool in_string, escape, junk;
};
enum json_cut { JSON_CUT_MORE, JSON_CUT_VALUE, JSON_CUT_BAD };
/* Feed one byte. After VALUE the text is buf[0..len); it stays until the next byte. */
enum json_cut json_cutter_byte(struct json_cutter *c, char byte);
void json_cutter_free(struct json_cutter *c);

#endif
