/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A disk of the worst kind, below any format: what was written and not flushed
 * may be lost in any combination, torn between sectors. And a clock that counts
 * delays: host operations that go at the same time take one together.
 */
#ifndef KELVIN_TESTS_IMAGE_STORE_H
#define KELVIN_TESTS_IMAGE_STORE_H

#include "block/driver.h"

struct store {
	struct block_file_hook hook;
	uint8_t *durable; /* what is on the platter */
	uint64_t len, room;
	struct store_write *first, *last; /* issued, and not known to be durable */
	uint64_t flushes, issued, events;
	/* The clock. */
	bool delaying;
	struct store_op *held, **held_tail; /* ended, and not yet said */
	bool lies;			    /* flushes do nothing: cache=unsafe */
	unsigned running, nr_held;
	unsigned delays;
};

/* Of the node's file, which is as it is on disk now. */
void store_attach(struct store *s, struct block_node *n, const char *path);
void store_detach(struct store *s, struct block_node *n);
/* An image file as a power cut at this moment may leave it; `rnd` gives numbers below its argument. */
void store_crash(const struct store *s, const char *path, unsigned (*rnd)(unsigned n));
/* With delaying set: let one delay pass, when nothing runs any more. False: nothing waits. */
bool store_tick(struct store *s);
/* One operation of those that ended, any. */
bool store_step(struct store *s, unsigned (*rnd)(unsigned n));

#endif
