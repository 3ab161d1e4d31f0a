// SPDX-License-Identifier: GPL-2.0-or-later
/* A growing text. */
#include "control/textbuf.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool textbuf_reserve(struct textbuf *t, size_t more)
{
	size_t need = t->len + more + 1;

	if (t->failed)
		return false;
	if (need <= t->room)
		return true;
	size_t room = t->room ? t->room : 256;
	while (room < need)
		room *= 2;
	char *p = realloc(t->text, room);
	if (!p) {
		t->failed = true;
		return false;
	}
	t->text = p;
	t->room = room;
	return true;
}

void textbuf_add(struct textbuf *t, const char *text, size_t len)
{
	if (!textbuf_reserve(t, len))
		return;
	memcpy(t->text + t->len, text, len);
	t->len += len;
	t->text[t->len] = 0;
}

void textbuf_printf(struct textbuf *t, const char *fmt, ...)
{
	va_list ap, again;

	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	if (n >= 0 && textbuf_reserve(t, (size_t)n)) {
		vsnprintf(t->text + t->len, (size_t)n + 1, fmt, again);
		t->len += (size_t)n;
	}
	va_end(again);
	va_end(ap);
}

void textbuf_drop(struct textbuf *t, size_t n)
{
	if (n > t->len)
		n = t->len;
	t->len -= n;
	if (t->text) {
		memmove(t->text, t->text + n, t->len);
		t->text[t->len] = 0;
	}
}

void textbuf_free(struct textbuf *t)
{
	free(t->text);
	*t = (struct textbuf){0};
}
