/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A text that grows, for monitor output. Out of memory sets `failed` and drops text: callers need not check. */
#ifndef KELVIN_CONTROL_TEXTBUF_H
#define KELVIN_CONTROL_TEXTBUF_H

#include <stdbool.h>
#include <stddef.h>

struct textbuf {
	char *text; /* NUL-terminated once something was added; NULL before */
	size_t len, room;
	bool failed;
};
void textbuf_add(struct textbuf *t, const char *text, size_t len);
void textbuf_printf(struct textbuf *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void textbuf_drop(struct textbuf *t, size_t n); /* the first n bytes */
void textbuf_free(struct textbuf *t);

#endif
