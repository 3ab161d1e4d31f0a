// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Planted truths. Each simulated run draws whole blocks from recorded noise (so that what is common to the cells of a
 * block stays common), shuffles each block's cells among themselves (no cell's own level may leak in), slows one of
 * the cells by a known factor, and is analysed with the lab's own schedule and judgement. Main thread.
 */
#include <errno.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "lab/analyse.h"
#include "lab/bench.h"

/* One run of three cells: reference, one slowed by exp(shift), one untouched. */
struct outcome {
	bool found, false_alarm, unsure;
	unsigned blocks;
};

struct drawn {
	double *a, *b, *c;
};

static void draw_block(struct stats_random *r, const double *noise, size_t n, size_t cells, double shift,
		       struct drawn *d, unsigned at)
{
	const double *row = noise + stats_random_below(r, n) * cells;
	size_t i = stats_random_below(r, cells), k = stats_random_below(r, cells - 1),
	       m = stats_random_below(r, cells > 2 ? cells - 2 : 1);

	k += k >= i;
	/* The third of the remaining ones, or, with two cells recorded, one of another block. */
	if (cells > 2) {
		size_t low = MIN(i, k), high = MAX(i, k);
		m += m >= low;
		m += m >= high;
	} else {
		row = noise + stats_random_below(r, n) * cells;
		m = stats_random_below(r, cells);
	}
	d->a[at] = exp(row[i]);
	d->b[at] = exp(row[k] + shift);
	d->c[at] = exp(row[m]);
}

static struct outcome one_run(struct stats_random *r, const double *noise, size_t n, size_t cells,
			      const struct stats_schedule *s, double tolerance, double shift, struct drawn *d)
{
	unsigned blocks = 0;
	struct outcome o = {0};

	for (unsigned look = 0; look < s->looks; look++) {
		enum stats_verdict v[2];
		for (; blocks < s->blocks[look]; blocks++)
			draw_block(r, noise, n, cells, shift, d, blocks);
		struct stats_ratio c[2] = {stats_ratio(d->a, d->b, blocks, 0), stats_ratio(d->a, d->c, blocks, 0)};
		stats_judge(c, 2, s->alpha[look], tolerance, v);
		bool settled = stats_settled(c, v, 2, tolerance);
		if (!settled && look + 1 < s->looks)
			continue;
		o = (struct outcome){v[0] == STATS_MORE, v[1] == STATS_MORE || v[1] == STATS_LESS,
				     v[0] == STATS_UNKNOWN, blocks};
		break;
	}
	return o;
}

struct planted_rates planted_simulate(const double *noise, size_t n, size_t cells, unsigned least, unsigned most,
				      double tolerance, double plant, size_t runs, uint64_t seed)
{
	struct stats_schedule s = stats_schedule(least, most, ANALYSE_ALPHA);
	struct stats_random r = {seed};
	struct drawn d = {calloc(most + 1, sizeof(double)), calloc(most + 1, sizeof(double)),
			  calloc(most + 1, sizeof(double))};
	struct planted_rates rates = {0};

	for (size_t i = 0; d.a && d.b && d.c && n && cells > 1 && i < runs; i++) {
		struct outcome o = one_run(&r, noise, n, cells, &s, tolerance, log(1 + plant), &d);
		rates.runs++;
		rates.found += o.found;
		rates.false_alarms += o.false_alarm;
		rates.unsure += o.unsure;
		rates.mean_blocks += o.blocks;
	}
	if (rates.runs)
		rates.mean_blocks /= (double)rates.runs;
	free(d.a);
	free(d.b);
	free(d.c);
	return rates;
}

/* Residuals of one metric: log values of cells that have it in every block, column means removed. */
static double *recorded_noise(const struct journal *j, const char *metric, size_t *rows, size_t *columns)
{
	unsigned blocks = analyse_complete_blocks(j);
	double *x = calloc((size_t)blocks * j->matrix.n + 1, sizeof(*x));
	size_t cells = 0;

	for (size_t i = 0; x && i < j->matrix.n; i++) {
		bool whole = !j->matrix.cell[i].host;
		double sum = 0;
		for (unsigned b = 0; whole && b < blocks; b++) {
			json_t *m = json_object_get(
			    json_object_get(journal_find(j, b, j->matrix.cell[i].label), "metrics"), metric);
			double v = json_number_value(json_object_get(m, "value"));
			whole = v > 0;
			x[cells * blocks + b] = whole ? log(v) : 0;
			sum += x[cells * blocks + b];
		}
		for (unsigned b = 0; whole && b < blocks; b++)
			x[cells * blocks + b] -= sum / blocks;
		cells += whole;
	}
	/* From columns to rows; the mean removed takes part of the variance with it: give it back. */
	double *noise = calloc((size_t)blocks * cells + 1, sizeof(*noise)),
	       scale = blocks > 1 ? sqrt(blocks / (blocks - 1.0)) : 1;
	for (size_t c = 0; x && noise && c < cells; c++)
		for (unsigned b = 0; b < blocks; b++)
			noise[b * cells + c] = x[c * blocks + b] * scale;
	free(x);
	*rows = blocks;
	*columns = cells;
	return noise;
}

/* Blocks after which 5 % (or what the experiment asks for) can be found in this noise, with half as many again to
 * spare. */
static unsigned blocks_wanted(const double *noise, size_t rows, size_t columns, const struct experiment *e)
{
	double sum = 0;
	size_t n = 0;

	for (size_t b = 0; b < rows; b++)
		for (size_t c = 1; c < columns; c++, n++)
			sum += pow(noise[b * columns + c] - noise[b * columns + c - 1], 2);
	double sd = n ? sqrt(sum / (double)n) : 0, blocks = 1.5 * pow(5 * sd / log(1 + e->tolerance), 2);

	return (unsigned)MIN(MAX((double)e->most, ceil(blocks)), 20000.0);
}

int planted_command(const struct journal *j, size_t runs, double plant, struct err *err)
{
	json_t *a = analyse_final(j), *m;
	bool kept = true, any = false;
	size_t i;

	json_array_foreach(json_object_get(a, "metrics"), i, m) {
		const char *name = json_string_value(json_object_get(m, "name"));
		size_t rows, columns;
		double *noise = recorded_noise(j, name, &rows, &columns);
		if (rows < 5 || columns < 2) {
			free(noise);
			continue;
		}
		unsigned most = blocks_wanted(noise, rows, columns, j->experiment);
		struct planted_rates r = planted_simulate(noise, rows, columns, j->experiment->least, most,
							  j->experiment->tolerance, plant, runs, j->seed);
		struct stats_interval found = stats_binomial(r.found, r.runs),
				      wrong = stats_binomial(r.false_alarms, r.runs);
		bool ok = found.high >= 0.95 && wrong.low <= 0.05;
		any = true;
		kept &= ok;
		printf("%s: noise of %zu blocks x %zu cells (standard deviation %.2f %%), %zu simulated runs of %.1f "
		       "blocks on average\n"
		       "  %.3g %% slower was found in %.1f %% (95 %% interval %.1f to %.1f), missed or unsure in the "
		       "rest\n"
		       "  a cell like the reference was called different in %.1f %% (%.1f to %.1f)%s\n",
		       name, rows, columns, 100 * gsl_stats_sd(noise, 1, rows * columns), r.runs, r.mean_blocks,
		       plant * 100, 100.0 * (double)r.found / (double)r.runs, found.low * 100, found.high * 100,
		       100.0 * (double)r.false_alarms / (double)r.runs, wrong.low * 100, wrong.high * 100,
		       ok ? "" : ": THE PROMISE IS NOT KEPT");
		free(noise);
	}
	json_decref(a);
	if (!any)
		return err_set(err, -ENODATA, "'%s' has no metric with two good cells in at least five complete blocks",
			       j->dir);
	return kept ? 0 : err_set(err, -ERANGE, "the promised error rates are not kept on this noise");
}
