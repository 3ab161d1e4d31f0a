/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Line editing for the human monitor on a raw character stream: echo, backspace,
 * cursor keys, history, Ctrl-u, Ctrl-w, Ctrl-k, Ctrl-c. Output goes through a
 * callback. One thread.
 */
#ifndef KELVIN_CONTROL_READLINE_H
#define KELVIN_CONTROL_READLINE_H

#include <stddef.h>

#define READLINE_MAX	 1024
#define READLINE_HISTORY 32

struct readline {
	const char *prompt;
	void (*write)(void *opaque, const char *text, size_t len);
	void (*line)(void *opaque, const char *line);
	/* Tab: a word that continues `line` (its start to the cursor), or NULL. May be NULL. */
	const char *(*complete)(void *opaque, const char *line);
	void *opaque;

	char buf[READLINE_MAX];
	size_t len, pos;
	int escape; /* 0, 1 after ESC, 2 after ESC [ */
	char escape_digit;
	char last; /* the last byte: CR LF is one line end */
	char *history[READLINE_HISTORY];
	unsigned nhistory, history_at;
};

void readline_show(struct readline *r); /* the prompt and what is typed so far */
void readline_byte(struct readline *r, char byte);
void readline_free(struct readline *r);

#endif
