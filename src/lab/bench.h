/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The verbs `kelvin bench` and `kelvin top`. argv[0] is the verb; the exit status is returned. Main thread. */
#ifndef KELVIN_LAB_BENCH_H
#define KELVIN_LAB_BENCH_H

int bench_main(int argc, char **argv);
int top_main(int argc, char **argv);

#include <stddef.h>
#include "base/err.h"
#include "lab/journal.h"

/*
 * planted.c: repeat the whole analysis, stopping rule included, on noise resampled from a result folder, with a planted
 * slowdown of `plant` (0.05) and with none. Prints both rates with their exact intervals; 0 when they keep the promise
 * (found in >= 95 %, false in <= 5 %, within the binomial margin).
 */
struct planted_rates {
	size_t runs, found, false_alarms, unsure;
	double mean_blocks;
};
/* noise: logs of `n` blocks times `cells` cells, row by row, each column's mean removed. */
struct planted_rates planted_simulate(const double *noise, size_t n, size_t cells, unsigned least, unsigned most,
				      double tolerance, double plant, size_t runs, uint64_t seed);
int planted_command(const struct journal *j, size_t runs, double plant, struct err *err);

#endif
