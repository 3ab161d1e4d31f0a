// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Statistics of the lab (stats.h says what each means). Student's t on log ratios, the bootstrap's percentile interval,
 * Holm (1979), Bonferroni over a fixed schedule of looks, Clopper and Pearson (1934). No locking: nothing is shared.
 */
#include "lab/stats.h"
#include <gsl/gsl_cdf.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"

#define POWER 0.95

/* splitmix64: a counter through a mixing function; small, and good enough to shuffle and resample. */
static uint64_t random_next(struct stats_random *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint64_t stats_random_below(struct stats_random *r, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)random_next(r) * n) >> 64);
}

void stats_shuffle(struct stats_random *r, unsigned *v, size_t n)
{
	for (size_t i = n; i > 1; i--) {
		size_t k = (size_t)stats_random_below(r, i);
		unsigned t = v[i - 1];
		v[i - 1] = v[k];
		v[k] = t;
	}
}

static double median_of(const double *x, size_t n)
{
	double *copy = malloc(n * sizeof(*copy));
	double m = NAN;

	if (copy) {
		memcpy(copy, x, n * sizeof(*copy));
		gsl_sort(copy, 1, n);
		m = gsl_stats_median_from_sorted_data(copy, 1, n);
	}
	free(copy);
	return m;
}

/* Percentile interval of the mean of x over resamples. */
static struct stats_interval bootstrap(const double *x, size_t n, uint64_t seed)
{
	struct stats_random r = {seed};
	double *means = malloc(STATS_BOOTSTRAP * sizeof(*means));
	struct stats_interval out = {NAN, NAN};

	if (!means || n < 2 || !seed) {
		free(means);
		return out;
	}
	for (size_t b = 0; b < STATS_BOOTSTRAP; b++) {
		double sum = 0;
		for (size_t i = 0; i < n; i++)
			sum += x[stats_random_below(&r, n)];
		means[b] = sum / (double)n;
	}
	gsl_sort(means, 1, STATS_BOOTSTRAP);
	out.low = gsl_stats_quantile_from_sorted_data(means, 1, STATS_BOOTSTRAP, 0.025);
	out.high = gsl_stats_quantile_from_sorted_data(means, 1, STATS_BOOTSTRAP, 0.975);
	free(means);
	return out;
}

static struct stats_interval t_interval(double mean, double sd, size_t n, double alpha)
{
	if (n < 2)
		return (struct stats_interval){NAN, NAN};
	double half = gsl_cdf_tdist_Pinv(1 - alpha / 2, (double)(n - 1)) * sd / sqrt((double)n);

	return (struct stats_interval){mean - half, mean + half};
}

struct stats_summary stats_summary(const double *x, size_t n, uint64_t seed)
{
	struct stats_summary s = {.n = n, .mean = NAN, .median = NAN, .sd = NAN, .min = NAN, .max = NAN};

	s.t = s.boot = (struct stats_interval){NAN, NAN};
	if (!n)
		return s;
	s.mean = gsl_stats_mean(x, 1, n);
	s.median = median_of(x, n);
	gsl_stats_minmax(&s.min, &s.max, x, 1, n);
	if (n < 2)
		return s;
	s.sd = gsl_stats_sd_m(x, 1, n, s.mean);
	s.t = t_interval(s.mean, s.sd, n, 0.05);
	s.boot = bootstrap(x, n, seed);
	return s;
}

/* As bootstrap(), each pair's blocks drawn anew. */
static struct stats_interval bootstrap_pairs(const double *logs, size_t pairs, size_t n, uint64_t seed)
{
	struct stats_random r = {seed};
	double *means = malloc(STATS_BOOTSTRAP * sizeof(*means));
	struct stats_interval out = {NAN, NAN};

	for (size_t b = 0; means && b < STATS_BOOTSTRAP; b++) {
		double sum = 0;
		for (size_t p = 0; p < pairs; p++)
			for (size_t i = 0; i < n; i++)
				sum += logs[p * n + stats_random_below(&r, n)];
		means[b] = sum / (double)(pairs * n);
	}
	if (means) {
		gsl_sort(means, 1, STATS_BOOTSTRAP);
		out.low = gsl_stats_quantile_from_sorted_data(means, 1, STATS_BOOTSTRAP, 0.025);
		out.high = gsl_stats_quantile_from_sorted_data(means, 1, STATS_BOOTSTRAP, 0.975);
	}
	free(means);
	return out;
}

struct stats_ratio stats_pooled(const double *logs, size_t pairs, size_t n, uint64_t seed)
{
	struct stats_ratio r = {
	    .n = n, .ratio = NAN, .median = NAN, .sd = NAN, .p = 1, .p_family = 1, .detectable = INFINITY};
	double part = 0, squares = 0;

	r.t = r.boot = r.joint = (struct stats_interval){NAN, NAN};
	if (!n || !pairs)
		return r;
	double mean = gsl_stats_mean(logs, 1, n * pairs);
	r.ratio = exp(mean);
	r.median = exp(median_of(logs, n * pairs));
	if (n < 2)
		return r;
	for (size_t p = 0; p < pairs; p++) {
		double v = gsl_stats_variance(logs + p * n, 1, n) / (double)n;
		part += v;
		squares += v * v;
	}
	r.se = sqrt(part) / (double)pairs;
	r.df = squares > 0 ? part * part / squares * (double)(n - 1) : (double)(n - 1);
	r.sd = r.se * sqrt((double)n);
	double half = gsl_cdf_tdist_Pinv(0.975, r.df) * r.se;
	r.t = (struct stats_interval){exp(mean - half), exp(mean + half)};
	if (seed) {
		struct stats_interval boot =
		    pairs == 1 ? bootstrap(logs, n, seed) : bootstrap_pairs(logs, pairs, n, seed);
		r.boot = (struct stats_interval){exp(boot.low), exp(boot.high)};
	}
	/* Identical measurements: equal means no evidence, unequal ones all of it. */
	if (r.se > 0)
		r.p = 2 * gsl_cdf_tdist_Q(fabs(mean) / r.se, r.df);
	else
		r.p = mean == 0 ? 1 : 0;
	return r;
}

struct stats_ratio stats_ratio(const double *a, const double *b, size_t n, uint64_t seed)
{
	double *logs = n ? malloc(n * sizeof(*logs)) : NULL;

	for (size_t i = 0; logs && i < n; i++)
		logs[i] = log(b[i] / a[i]);
	struct stats_ratio r = stats_pooled(logs, 1, logs ? n : 0, seed);
	free(logs);
	return r;
}

struct stats_ratio stats_unpaired(const double *a, size_t na, const double *b, size_t nb)
{
	struct stats_ratio r = {
	    .n = MIN(na, nb), .ratio = NAN, .median = NAN, .sd = NAN, .p = 1, .p_family = 1, .detectable = INFINITY};
	const double *x[2] = {a, b};
	size_t n[2] = {na, nb};
	double mean[2] = {0, 0}, part[2] = {0, 0};

	r.t = r.boot = r.joint = (struct stats_interval){NAN, NAN};
	for (int k = 0; k < 2; k++) {
		for (size_t i = 0; i < n[k]; i++)
			mean[k] += log(x[k][i]) / (double)n[k];
		for (size_t i = 0; i < n[k] && n[k] > 1; i++)
			part[k] += pow(log(x[k][i]) - mean[k], 2) / (double)(n[k] - 1) / (double)n[k];
	}
	if (!na || !nb)
		return r;
	r.ratio = exp(mean[1] - mean[0]);
	double var = part[0] + part[1];
	if (na < 2 || nb < 2 || !(var > 0))
		return r;
	/* Welch and Satterthwaite's degrees of freedom. */
	double df = var * var / (part[0] * part[0] / (double)(na - 1) + part[1] * part[1] / (double)(nb - 1));
	double half = gsl_cdf_tdist_Pinv(0.975, df) * sqrt(var), d = mean[1] - mean[0];
	r.t = (struct stats_interval){exp(d - half), exp(d + half)};
	r.p = 2 * gsl_cdf_tdist_Q(fabs(d) / sqrt(var), df);
	return r;
}

void stats_holm(double *p, size_t n)
{
	size_t *order = malloc(n * sizeof(*order));
	double most = 0;

	if (!order)
		return;
	gsl_sort_index(order, p, 1, n);
	for (size_t i = 0; i < n; i++) {
		double adjusted = MIN(1.0, p[order[i]] * (double)(n - i));
		most = MAX(most, adjusted);
		p[order[i]] = most;
	}
	free(order);
}

void stats_judge(struct stats_ratio *r, size_t n, double alpha, double tolerance, enum stats_verdict *verdict)
{
	double *p = n ? malloc(n * sizeof(*p)) : NULL;

	if (!p)
		return;
	for (size_t i = 0; i < n; i++)
		p[i] = r[i].p;
	stats_holm(p, n);
	for (size_t i = 0; i < n; i++) {
		struct stats_ratio *c = &r[i];
		double mean = log(c->ratio);

		c->p_family = p[i];
		verdict[i] = STATS_UNKNOWN;
		if (c->n < 2)
			continue;
		double t = gsl_cdf_tdist_Pinv(1 - alpha / (double)n / 2, c->df);
		c->joint = (struct stats_interval){exp(mean - t * c->se), exp(mean + t * c->se)};
		c->detectable = exp(c->se * (t + gsl_cdf_tdist_Pinv(POWER, c->df)));
		if (c->p_family <= alpha)
			verdict[i] = c->ratio < 1 ? STATS_LESS : STATS_MORE;
		else if (c->joint.low >= 1 / (1 + tolerance) && c->joint.high <= 1 + tolerance)
			verdict[i] = STATS_SAME;
	}
	free(p);
}

struct stats_schedule stats_schedule(unsigned least, unsigned most, double alpha)
{
	struct stats_schedule s = {0};
	double weight[STATS_MAX_LOOKS], sum = 0, blocks = least < 2 ? 2 : least;

	/* Each look has half as many blocks again as the one before; the last is the end. */
	while (s.looks < STATS_MAX_LOOKS - 1 && blocks * 1.2 < most) {
		s.blocks[s.looks++] = (unsigned)blocks;
		blocks = ceil(blocks * 1.5);
	}
	s.blocks[s.looks++] = MAX(most, 2u);
	for (unsigned i = 0; i < s.looks; i++)
		sum += weight[i] = 1.0 + i;
	for (unsigned i = 0; i < s.looks; i++)
		s.alpha[i] = alpha * weight[i] / sum;
	return s;
}

double stats_final_alpha(const struct stats_schedule *s, unsigned blocks, double alpha)
{
	double spent = 0;

	for (unsigned i = 0; i < s->looks && s->blocks[i] < blocks; i++)
		spent += s->alpha[i];
	return alpha - spent;
}

int stats_look_at(const struct stats_schedule *s, unsigned blocks)
{
	for (unsigned i = 0; i < s->looks; i++)
		if (s->blocks[i] == blocks)
			return (int)i;
	return -1;
}

bool stats_settled(const struct stats_ratio *r, const enum stats_verdict *verdict, size_t n, double tolerance)
{
	for (size_t i = 0; i < n; i++)
		if (verdict[i] != STATS_LESS && verdict[i] != STATS_MORE && !(r[i].detectable <= 1 + tolerance))
			return false;
	return true;
}

/* By halves: GSL's own inverse gives up on some arguments, and ends the program when it does. */
static double beta_inverse(double p, double a, double b)
{
	double low = 0, high = 1;

	for (int i = 0; i < 100; i++) {
		double x = (low + high) / 2;
		if (gsl_cdf_beta_P(x, a, b) < p)
			low = x;
		else
			high = x;
	}
	return (low + high) / 2;
}

struct stats_interval stats_binomial(size_t k, size_t n)
{
	struct stats_interval i = {0, 1};

	if (k > 0)
		i.low = beta_inverse(0.025, (double)k, (double)(n - k + 1));
	if (k < n)
		i.high = beta_inverse(0.975, (double)(k + 1), (double)(n - k));
	return i;
}
