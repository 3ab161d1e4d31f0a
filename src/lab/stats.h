/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lab's statistics: the one place where figures become statements. Pure functions over arrays of finite doubles;
 * any thread, nothing is kept. Distributions come from GSL; tests compare with R and NIST's data sets.
 *
 * Comparisons are made on the logarithm of ratios within a block (both cells measured minutes apart in the same
 * repetition), so slow drifts of the machine cancel and "5 % slower" means the same at every size.
 */
#ifndef KELVIN_LAB_STATS_H
#define KELVIN_LAB_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATS_MAX_LOOKS 8
#define STATS_BOOTSTRAP 2000

struct stats_interval {
	double low, high;
};

/* One sample. Intervals are for the mean, 95 %: Student's t and bootstrap (percentile). n < 2: NAN intervals. */
struct stats_summary {
	size_t n;
	double mean, median, sd, min, max;
	struct stats_interval t, boot;
};
struct stats_summary stats_summary(const double *x, size_t n, uint64_t seed);

/* Ratio b/a over n blocks. All of ratio, intervals and `detectable` are ratios (1.05 = 5 % more). */
struct stats_ratio {
	size_t n;
	double ratio, median;	       /* geometric mean and median of the block ratios */
	double sd;		       /* of the logs */
	double se, df;		       /* standard error of log(ratio), and its degrees of freedom */
	struct stats_interval t, boot; /* 95 % for this comparison alone */
	struct stats_interval joint;   /* at `level` for the whole family and all looks; set by stats_judge */
	double p, p_family;	       /* two-sided; p_family is Holm's, set by stats_judge */
	double detectable; /* the smallest true ratio that this many blocks find in 95 of 100 runs; by stats_judge */
};
/* a and b are positive; seed 0: no bootstrap (NAN); n >= 1 (with n < 2 only ratio and median are known, p = 1). */
struct stats_ratio stats_ratio(const double *a, const double *b, size_t n, uint64_t seed);

/*
 * The mean effect over `pairs` pairs of cells, each measured in n blocks: logs[p * n + b] is the log ratio of pair p in
 * block b. The noise is what repetition shows within each pair, not what makes the pairs differ from each other;
 * degrees of freedom after Satterthwaite. With one pair this is stats_ratio.
 */
struct stats_ratio stats_pooled(const double *logs, size_t pairs, size_t n, uint64_t seed);

/* The same for two samples that share no blocks (Welch's t on logs); ratio of geometric means. */
struct stats_ratio stats_unpaired(const double *a, size_t na, const double *b, size_t nb);

/* What a comparison says. */
enum stats_verdict { STATS_LESS, STATS_MORE, STATS_SAME, STATS_UNKNOWN };

/*
 * Judge a family of comparisons at significance level `alpha` (what this look may spend): fills p_family, joint and
 * detectable. A difference needs p_family <= alpha; "the same" needs the joint interval inside 1/(1+tolerance) to
 * 1+tolerance; anything else is unknown. `verdict` has n entries.
 */
void stats_judge(struct stats_ratio *r, size_t n, double alpha, double tolerance, enum stats_verdict *verdict);

/* Holm's step-down adjustment of n p-values (<= 1), in place. */
void stats_holm(double *p, size_t n);

/*
 * The schedule of looks: counts of blocks at which the data may be analysed, from `least` to `most` blocks, each with
 * its share of alpha. The shares add up to alpha at most, so that whatever the dependence between looks, the chance
 * of any false difference in the whole run is bounded (Bonferroni over looks, increasing shares). A run that ends
 * between looks for a reason that is not the data (budget) uses what is left: stats_final_alpha.
 */
struct stats_schedule {
	unsigned looks;
	unsigned blocks[STATS_MAX_LOOKS];
	double alpha[STATS_MAX_LOOKS];
};
struct stats_schedule stats_schedule(unsigned least, unsigned most, double alpha);
/* What an analysis after `blocks` blocks may spend when it is the last one. */
double stats_final_alpha(const struct stats_schedule *s, unsigned blocks, double alpha);
/* Index of the look at exactly this many blocks, or -1. */
int stats_look_at(const struct stats_schedule *s, unsigned blocks);

/* Is every comparison settled: known to differ, or able to find a difference of `tolerance`? */
bool stats_settled(const struct stats_ratio *r, const enum stats_verdict *verdict, size_t n, double tolerance);

/* A generator of our own stream for orders and resampling: same seed, same sequence, on every machine. */
struct stats_random {
	uint64_t state;
};
uint64_t stats_random_below(struct stats_random *r, uint64_t n); /* n > 0 */
void stats_shuffle(struct stats_random *r, unsigned *v, size_t n);

/* Exact (Clopper-Pearson) 95 % interval of a proportion k of n. */
struct stats_interval stats_binomial(size_t k, size_t n);

#endif
