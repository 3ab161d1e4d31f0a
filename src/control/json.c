// SPDX-License-Identifier: GPL-2.0-or-later
/* JSON strings from arbitrary bytes, and cutting a stream into values. */
#include "control/json.h"
#include <stdlib.h>
#include <string.h>

#define JSON_MAX_DEPTH 64

/* Length of the valid UTF-8 sequence at s, or 0 (RFC 3629: no overlong forms, no surrogates). */
static size_t utf8_sequence(const unsigned char *s)
{
	static const struct {
		unsigned char lo, hi, second_lo, second_hi;
		size_t len;
	} forms[] = {
	    {0x01, 0x7f, 0, 0, 1},	 {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
	    {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
	    {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
	};
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (s[0] < forms[i].lo || s[0] > forms[i].hi)
			continue;
		if (forms[i].len > 1 && (s[1] < forms[i].second_lo || s[1] > forms[i].second_hi))
			return 0;
		for (size_t k = 2; k < forms[i].len; k++)
			if ((s[k] & 0xc0) != 0x80)
				return 0;
		return forms[i].len;
	}
	return 0;
}

json_t *json_text(const char *s)
{
	json_t *j = json_string(s ? s : "");

	if (j || !s)
		return j;
	char *copy = malloc(3 * strlen(s) + 1), *w = copy;
	while (copy && *s) {
		size_t n = utf8_sequence((const unsigned char *)s);
		memcpy(w, n ? s : "\xef\xbf\xbd", n ? n : 3);
		w += n ? n : 3;
		s += n ? n : 1;
	}
	if (copy)
		*w = 0;
	j = json_string(copy ? copy : "");
	free(copy);
	return j;
}

static enum json_cut cutter_bad(struct json_cutter *c, char byte)
{
	bool first = !c->junk;

	c->len = 0;
	c->depth = 0;
	c->in_string = c->escape = false;
	c->junk = byte != '\n';
	return first ? JSON_CUT_BAD : JSON_CUT_MORE;
}

static bool cutter_put(struct json_cutter *c, char byte)
{
	if (c->len == c->limit)
		return false;
	if (c->len == c->room) {
		size_t room = c->room ? 2 * c->room : 256;
		char *p = realloc(c->buf, room);
		if (!p)
			return false;
		c->buf = p;
		c->room = room;
	}
	c->buf[c->len++] = byte;
	return true;
}

enum json_cut json_cutter_byte(struct json_cutter *c, char byte)
{
	if (c->junk) {
		c->junk = byte != '\n'; /* skip the rest of a bad line */
		return JSON_CUT_MORE;
	}
	if (!c->depth) {
		c->len = 0;
		if (byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n')
			return JSON_CUT_MORE;
		if (byte != '{' && byte != '[')
			return cutter_bad(c, byte);
	}
	/* A string holds no line end: the client's text broke off, and the next line may be good. */
	if (c->in_string && byte == '\n')
		return cutter_bad(c, byte);
	if (!cutter_put(c, byte))
		return cutter_bad(c, byte);
	if (c->in_string) {
		if (c->escape)
			c->escape = false;
		else if (byte == '\\')
			c->escape = true;
		else if (byte == '"')
			c->in_string = false;
		return JSON_CUT_MORE;
	}
	if (byte == '"') {
		c->in_string = true;
	} else if (byte == '{' || byte == '[') {
		if (++c->depth > JSON_MAX_DEPTH)
			return cutter_bad(c, byte);
	} else if (byte == '}' || byte == ']') {
		if (--c->depth == 0)
			return JSON_CUT_VALUE;
	}
	return JSON_CUT_MORE;
}

void json_cutter_free(struct json_cutter *c)
{
	free(c->buf);
	*c = (struct json_cutter){.limit = c->limit};
}
