/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Running an experiment: blocks in random order until it is settled, the budget ends, or somebody stops it. */
#ifndef KELVIN_LAB_RUN_H
#define KELVIN_LAB_RUN_H

#include "lab/journal.h"

/* Fill the journal. 0, -EINTR (stopped; can be continued) or -errno. Main thread. */
int run_experiment(struct journal *j, struct err *err);

/* Order of the cells in a block: from the seed alone. order has j->matrix.n entries. */
void run_order(uint64_t seed, unsigned block, unsigned *order, size_t n);

#endif
