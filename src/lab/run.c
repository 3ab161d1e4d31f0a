// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The loop over blocks and cells. A cell that was refused once, or failed twice in a row, is not tried again: its place
 * in later blocks is filled with "skipped" and the same cause, so that blocks stay complete.
 */
#include "lab/run.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/util.h"
#include "lab/analyse.h"
#include "lab/live.h"
#include "lab/trial.h"

static void on_signal(int sig)
{
	bench_stop = sig;
}

void run_order(uint64_t seed, unsigned block, unsigned *order, size_t n)
{
	struct stats_random r = {seed ^ ((uint64_t)block + 1) * 0x9e3779b97f4a7c15ull};

	for (size_t i = 0; i < n; i++)
		order[i] = (unsigned)i;
	stats_shuffle(&r, order, n);
}

/* Seconds of all trials so far: a budget survives being continued. */
static double used_seconds(const struct journal *j)
{
	double s = 0;
	json_t *t;
	size_t i;

	json_array_foreach(j->trials, i, t) {
		s += json_number_value(json_object_get(t, "wall_s"));
	}
	return s;
}

/* The cause why this cell is given up, or NULL. */
static const char *given_up(const struct journal *j, unsigned block, const char *label)
{
	json_t *last = block ? journal_find(j, block - 1, label) : NULL,
	       *before = block > 1 ? journal_find(j, block - 2, label) : NULL;
	const char *a = json_string_value(json_object_get(last, "status")),
		   *b = json_string_value(json_object_get(before, "status"));

	if (!a || !strcmp(a, "ok"))
		return NULL;
	if (strcmp(a, "failed") || (b && strcmp(b, "ok")))
		return json_string_value(json_object_get(last, "cause"));
	return NULL;
}

static int add_trial(struct journal *j, unsigned block, const struct cell *c, unsigned position, json_t *trial,
		     struct live *l, struct err *err)
{
	char stamp[40];
	time_t now = time(NULL);
	struct tm tm;

	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
	json_object_set_new(trial, "block", json_integer(block));
	json_object_set_new(trial, "cell", json_string(c->label));
	json_object_set_new(trial, "position", json_integer(position));
	json_object_set_new(trial, "ended", json_string(stamp));
	json_incref(trial);
	int ret = journal_add(j, trial, err);
	if (!ret)
		live_result(l, trial, used_seconds(j));
	json_decref(trial);
	return ret;
}

/* One block, what the journal already has left out. */
static int run_block(struct journal *j, unsigned block, struct bench_files *f, struct live *l, struct err *err)
{
	unsigned *order = calloc(j->matrix.n, sizeof(*order));
	int ret = order ? 0 : -ENOMEM;

	if (order)
		run_order(j->seed, block, order, j->matrix.n);
	for (size_t i = 0; i < j->matrix.n && !ret; i++) {
		const struct cell *c = &j->matrix.cell[order[i]];
		const char *cause;
		json_t *trial;
		if (journal_find(j, block, c->label))
			continue;
		live_trial(l, block, c, used_seconds(j));
		if ((cause = given_up(j, block, c->label)))
			trial = json_pack("{s:s,s:s,s:{}}", "status", "skipped", "cause", cause, "metrics");
		else
			trial = trial_run(j->experiment, c, f);
		ret = trial ? add_trial(j, block, c, (unsigned)i, trial, l, err) : -EINTR;
	}
	free(order);
	return ret;
}

static bool any_left(const struct journal *j, unsigned block)
{
	size_t good = 0;

	for (size_t i = 0; i < j->matrix.n && block; i++)
		good += !given_up(j, block, j->matrix.cell[i].label);
	return !block || good > 0;
}

static int run_blocks(struct journal *j, struct bench_files *f, struct live *l, struct err *err)
{
	const struct experiment *e = j->experiment;
	struct stats_schedule s = stats_schedule(e->least, e->most, ANALYSE_ALPHA);
	int ret = 0;

	for (unsigned block = 0; block < e->most && !ret; block++) {
		double used = used_seconds(j), each = block ? used / block : 0;
		/* One block alone has no intervals: a second one may cost half the budget more. */
		double most = block == 1 ? e->budget_s * 1.5 : e->budget_s;
		if (block && analyse_complete_blocks(j) <= block && used + each > most) {
			live_say(l, "the budget of %.0f s is used up after %u blocks", e->budget_s, block);
			break;
		}
		if (!any_left(j, block)) {
			live_say(l, "no cell works: nothing is left to measure");
			break;
		}
		ret = run_block(j, block, f, l, err);
		int look = ret ? -1 : stats_look_at(&s, block + 1);
		/* A look that was taken before the run was interrupted gives the same answer again. */
		if (look < 0 || analyse_complete_blocks(j) != block + 1)
			continue;
		json_t *a = analyse(j, block + 1, s.alpha[look]);
		bool settled = json_is_true(json_object_get(a, "settled"));
		json_decref(a);
		if (settled) {
			live_say(l, "settled after %u blocks: every comparison is decided or precise to %.3g %%",
				 block + 1, e->tolerance * 100);
			break;
		}
	}
	return ret;
}

int run_experiment(struct journal *j, struct err *err)
{
	struct sigaction sa = {.sa_handler = on_signal};
	struct bench_files f = {0};
	struct live l;

	bench_stop = 0;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	int ret = files_prepare(&f, j->experiment, j->dir, err);
	if (!ret) {
		live_start(&l, j, j->experiment->most);
		ret = run_blocks(j, &f, &l, err);
		live_end(&l);
	}
	files_free(&f);
	return ret;
}
