// SPDX-License-Identifier: GPL-2.0-or-later
/* Line editing; ANSI sequences in and out (ECMA-48), nothing about the terminal is asked. */
#include "control/readline.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CTRL(c) ((c)&0x1f)

static void put(struct readline *r, const char *text)
{
	r->write(r->opaque, text, strlen(text));
}

/* Draw the line again and put the cursor back where it belongs. */
static void redraw(struct readline *r)
{
	char back[32];

	put(r, "\r\033[K");
	put(r, r->prompt);
	r->write(r->opaque, r->buf, r->len);
	if (r->len > r->pos) {
		snprintf(back, sizeof(back), "\033[%zuD", r->len - r->pos);
		put(r, back);
	}
}

void readline_show(struct readline *r)
{
	put(r, r->prompt);
	r->write(r->opaque, r->buf, r->len);
	r->pos = r->len;
}

void readline_free(struct readline *r)
{
	for (unsigned i = 0; i < r->nhistory; i++)
		free(r->history[i]);
	r->nhistory = r->history_at = 0;
}

static void erase(struct readline *r, size_t from, size_t to)
{
	memmove(r->buf + from, r->buf + to, r->len - to);
	r->len -= to - from;
	r->pos = from;
}

static void insert(struct readline *r, const char *text, size_t n)
{
	if (r->len + n >= READLINE_MAX) /* room for the NUL */
		return;
	memmove(r->buf + r->pos + n, r->buf + r->pos, r->len - r->pos);
	memcpy(r->buf + r->pos, text, n);
	r->len += n;
	r->pos += n;
	/* Typing at the end needs no redrawing. */
	if (r->pos == r->len)
		r->write(r->opaque, text, n);
	else
		redraw(r);
}

static void remember(struct readline *r)
{
	if (!r->len || (r->nhistory && !strcmp(r->history[r->nhistory - 1], r->buf)))
		return;
	char *copy = strdup(r->buf);
	if (!copy)
		return;
	if (r->nhistory == READLINE_HISTORY) {
		free(r->history[0]);
		memmove(r->history, r->history + 1, sizeof(r->history) - sizeof(r->history[0]));
		r->nhistory--;
	}
	r->history[r->nhistory++] = copy;
}

static void recall(struct readline *r, int step)
{
	unsigned at = r->history_at;

	if ((step < 0 && !at) || (step > 0 && at >= r->nhistory))
		return;
	r->history_at = at = step < 0 ? at - 1 : at + 1;
	snprintf(r->buf, sizeof(r->buf), "%s", at < r->nhistory ? r->history[at] : "");
	r->len = r->pos = strlen(r->buf);
	redraw(r);
}

static void finish(struct readline *r)
{
	put(r, "\r\n");
	r->buf[r->len] = 0;
	remember(r);
	r->history_at = r->nhistory;
	char line[READLINE_MAX];
	memcpy(line, r->buf, r->len + 1);
	r->len = r->pos = 0;
	r->line(r->opaque, line);
}

static void complete(struct readline *r)
{
	char start[READLINE_MAX];

	memcpy(start, r->buf, r->pos);
	start[r->pos] = 0;
	const char *rest = r->complete ? r->complete(r->opaque, start) : NULL;
	if (rest)
		insert(r, rest, strlen(rest));
}

static void move(struct readline *r, size_t pos)
{
	r->pos = pos;
	redraw(r);
}

static void escape_end(struct readline *r, char byte)
{
	switch (byte == '~' ? r->escape_digit : byte) {
	case 'A': recall(r, -1); break;
	case 'B': recall(r, 1); break;
	case 'C': move(r, r->pos < r->len ? r->pos + 1 : r->pos); break;
	case 'D': move(r, r->pos ? r->pos - 1 : 0); break;
	case 'H':
	case '1': move(r, 0); break;
	case 'F':
	case '4': move(r, r->len); break;
	case '3':
		if (r->pos < r->len)
			erase(r, r->pos, r->pos + 1);
		redraw(r);
		break;
	default: break;
	}
}

static void erase_word(struct readline *r)
{
	size_t from = r->pos;

	while (from && r->buf[from - 1] == ' ')
		from--;
	while (from && r->buf[from - 1] != ' ')
		from--;
	erase(r, from, r->pos);
	redraw(r);
}

static void control_key(struct readline *r, char byte)
{
	switch (byte) {
	case '\r': finish(r); break;
	case '\n':
		if (r->last != '\r')
			finish(r);
		break;
	case '\t': complete(r); break;
	case '\033': r->escape = 1; break;
	case 0x7f:
	case CTRL('h'):
		if (r->pos)
			erase(r, r->pos - 1, r->pos);
		redraw(r);
		break;
	case CTRL('a'): move(r, 0); break;
	case CTRL('e'): move(r, r->len); break;
	case CTRL('b'): escape_end(r, 'D'); break;
	case CTRL('f'): escape_end(r, 'C'); break;
	case CTRL('p'): recall(r, -1); break;
	case CTRL('n'): recall(r, 1); break;
	case CTRL('d'): escape_end(r, '3'); break;
	case CTRL('k'):
		r->len = r->pos;
		redraw(r);
		break;
	case CTRL('u'):
		erase(r, 0, r->pos);
		redraw(r);
		break;
	case CTRL('w'): erase_word(r); break;
	case CTRL('l'):
		put(r, "\033[2J\033[H");
		redraw(r);
		break;
	case CTRL('c'):
		r->len = r->pos = 0;
		put(r, "^C\r\n");
		redraw(r);
		break;
	default: break;
	}
}

void readline_byte(struct readline *r, char byte)
{
	if (r->escape == 1) {
		r->escape = byte == '[' || byte == 'O' ? 2 : 0;
		r->escape_digit = 0;
	} else if (r->escape == 2) {
		if ((byte >= '0' && byte <= '9') || byte == ';') {
			if (!r->escape_digit)
				r->escape_digit = byte;
		} else {
			r->escape = 0;
			escape_end(r, byte);
		}
	} else if ((unsigned char)byte < 0x20 || byte == 0x7f) {
		control_key(r, byte);
	} else {
		insert(r, &byte, 1);
	}
	r->last = byte;
}
