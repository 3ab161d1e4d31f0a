/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counters that -stats, QMP, `kelvin top` and the lab read. A counter is a plain
 * uint64_t written by one thread (counter_add) and read by any; a const table
 * describes where each lives, so that no code prints one by hand.
 */
#ifndef KELVIN_BASE_COUNTER_H
#define KELVIN_BASE_COUNTER_H

#include <stddef.h>
#include <stdint.h>

struct counter {
	const char *name; /* snake_case; NULL ends the table */
	size_t offset;	  /* of a uint64_t in the owner */
	const char *help;
};

/* One writer, or writers under one lock: relaxed load and store, no locked instruction. */
static inline void counter_add(uint64_t *c, uint64_t n)
{
	__atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}
/* For what goes up and down. */
static inline void counter_set(uint64_t *c, uint64_t n)
{
	__atomic_store_n(c, n, __ATOMIC_RELAXED);
}
static inline uint64_t counter_get(const uint64_t *c)
{
	return __atomic_load_n(c, __ATOMIC_RELAXED);
}

#endif
