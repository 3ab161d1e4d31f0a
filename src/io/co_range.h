/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ranges that work in flight has taken, for coroutines (io/co.h): shared ones may
 * overlap, an exclusive one has its range to itself. Taken by those who looked for a
 * conflict and found none; whoever found one waits for its end and looks again. The
 * range is the first member of the user's own structure, which comes from a list of
 * free ones. All of one thread.
 */
#ifndef KELVIN_IO_CO_RANGE_H
#define KELVIN_IO_CO_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "io/co.h"

struct co_range {
	uint64_t first, last; /* units are the user's; both belong to it */
	bool exclusive;	      /* set before co_range_conflict and not changed while taken */
	struct co_range *prev, *next;
	struct co_queue waiters;
};

struct co_ranges {
	size_t size; /* of the user's structure, bytes */
	struct co_range *taken, *free;
	unsigned exclusives;
};

/* A structure of zeros, or NULL without memory; co_range_free gives it back, co_ranges_fini ends the list of free ones.
 */
void *co_range_new(struct co_ranges *s);
void co_range_free(struct co_ranges *s, struct co_range *r);
void co_ranges_fini(struct co_ranges *s);

/* One that is taken and that `r` must wait for; NULL: r may be taken now. */
struct co_range *co_range_conflict(const struct co_ranges *s, const struct co_range *r);
void co_range_take(struct co_ranges *s, struct co_range *r);
/* The end: those who wait for it run before this returns. */
void co_range_give(struct co_ranges *s, struct co_range *r);

#endif
