// SPDX-License-Identifier: GPL-2.0-or-later
/* The live table. Everything goes to stderr: stdout is the verdict's. */
#include "lab/live.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/util.h"
#include "lab/stats.h"

void live_start(struct live *l, const struct journal *j, unsigned limit)
{
	const char *term = getenv("TERM");

	*l = (struct live){.j = j,
			   .terminal = isatty(2) && term && strcmp(term, "dumb"),
			   .limit = limit,
			   .budget_s = j->experiment->budget_s};
}

static void clear(struct live *l)
{
	if (l->drawn)
		fprintf(stderr, "\033[%uA\r\033[J", l->drawn);
	l->drawn = 0;
}

static void duration(char out[32], double s)
{
	if (s < 90)
		snprintf(out, 32, "%.0f s", s);
	else
		snprintf(out, 32, "%.0f min", s / 60);
}

/* Trials that are left at most, at the mean time of those that ran. */
static double time_left(const struct live *l, double used_s)
{
	size_t done = json_array_size(l->j->trials), all = (size_t)l->limit * l->j->matrix.n;
	double each = done ? used_s / (double)done : 0, left = each * (double)(all - MIN(done, all));

	return MAX(0.0, MIN(left, l->budget_s - used_s));
}

/* The first metric of the last good trials: count, mean. */
static void cell_line(const struct live *l, const struct cell *c, char *out, size_t room)
{
	double x[512];
	size_t n = 0, failed = 0, i;
	const char *name = NULL, *unit = "", *cause = "";
	json_t *t, *m;

	json_array_foreach(l->j->trials, i, t) {
		if (strcmp(json_string_value(json_object_get(t, "cell")), c->label))
			continue;
		if (strcmp(json_string_value(json_object_get(t, "status")), "ok")) {
			cause = json_string_value(json_object_get(t, "cause"));
			failed++;
			continue;
		}
		json_t *metrics = json_object_get(t, "metrics");
		name = name ? name : json_object_iter_key(json_object_iter(metrics));
		m = json_object_get(metrics, name);
		if (m && n < ARRAY_SIZE(x)) {
			x[n++] = json_number_value(json_object_get(m, "value"));
			unit = json_string_value(json_object_get(m, "unit"));
		}
	}
	if (!n && failed) {
		snprintf(out, room, "%zu failed: %s", failed, cause ? cause : "");
		return;
	}
	if (!n) {
		snprintf(out, room, "-");
		return;
	}
	struct stats_summary s = stats_summary(x, n, 1);
	if (n > 1)
		snprintf(out, room, "%s %.4g %s, 95 %% from %.4g to %.4g, %zu runs", name, s.mean, unit, s.t.low,
			 s.t.high, n);
	else
		snprintf(out, room, "%s %.4g %s", name, s.mean, unit);
}

void live_trial(struct live *l, unsigned block, const struct cell *c, double used_s)
{
	struct winsize w = {0};
	char left[32], used[32];

	if (!l->terminal)
		return;
	clear(l);
	ioctl(2, TIOCGWINSZ, &w);
	int columns = w.ws_col ? w.ws_col : 80, rows = w.ws_row ? w.ws_row : 24;
	duration(left, time_left(l, used_s));
	duration(used, used_s);
	fprintf(stderr, "%.*s\n", columns - 1, l->j->experiment->name);
	l->drawn = 1;
	for (size_t i = 0; i < l->j->matrix.n && l->drawn + 3 < (unsigned)rows; i++, l->drawn++) {
		const struct cell *k = &l->j->matrix.cell[i];
		char text[400], line[600];
		cell_line(l, k, text, sizeof(text));
		snprintf(line, sizeof(line), "%s %-30.60s %s", k == c ? ">" : " ", k->label, text);
		fprintf(stderr, "%.*s\n", columns - 1, line);
	}
	fprintf(
	    stderr,
	    "block %u of at most %u, %zu trials done; %s used, at most %s left (Ctrl-C stops; it can be continued)\n",
	    block + 1, l->limit, json_array_size(l->j->trials), used, left);
	l->drawn++;
}

void live_result(struct live *l, json_t *trial, double used_s)
{
	const char *status = json_string_value(json_object_get(trial, "status"));
	char left[32];
	const char *name;
	json_t *m;

	if (l->terminal)
		return;
	duration(left, time_left(l, used_s));
	fprintf(stderr, "block %d  %-32s ", (int)json_integer_value(json_object_get(trial, "block")) + 1,
		json_string_value(json_object_get(trial, "cell")));
	if (strcmp(status, "ok"))
		fprintf(stderr, "%s: %s", status, json_string_value(json_object_get(trial, "cause")));
	else
		json_object_foreach(json_object_get(trial, "metrics"), name, m) {
			if (!strchr(name, ':'))
				fprintf(stderr, "%s %.4g %s  ", name, json_number_value(json_object_get(m, "value")),
					json_string_value(json_object_get(m, "unit")));
		}
	fprintf(stderr, "  (at most %s left)\n", left);
}

void live_say(struct live *l, const char *fmt, ...)
{
	va_list ap;

	clear(l);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

void live_end(struct live *l)
{
	clear(l);
}
