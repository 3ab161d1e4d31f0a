/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a run shows while it runs: a table that is redrawn on a terminal, plain lines elsewhere. Main thread. */
#ifndef KELVIN_LAB_LIVE_H
#define KELVIN_LAB_LIVE_H

#include "lab/journal.h"

struct live {
	const struct journal *j;
	bool terminal;
	unsigned drawn; /* lines on the screen now */
	unsigned limit; /* blocks at most */
	double budget_s;
};

void live_start(struct live *l, const struct journal *j, unsigned limit);
/* A trial begins; seconds used so far. */
void live_trial(struct live *l, unsigned block, const struct cell *c, double used_s);
/* It ended with this line. */
void live_result(struct live *l, json_t *trial, double used_s);
/* A line that stays. */
void live_say(struct live *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void live_end(struct live *l);

#endif
