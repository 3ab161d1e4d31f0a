/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Computing on all cores: short jobs for the process's pool of worker threads
 * (one a core, started when first needed, kept). A job touches nothing but its
 * own data.
 */
#ifndef KELVIN_IO_WORK_H
#define KELVIN_IO_WORK_H

#include "io/loop.h"

/* Embedded in its owner, which keeps it alive until done runs. */
struct work {
	void (*fn)(struct work *w);   /* in a worker */
	void (*done)(struct work *w); /* then in the loop's thread */
	struct loop *loop;
	struct work *next; /* the pool's */
};
/* Any thread. -EAGAIN: no worker could be started, and nothing was queued. */
int work_submit(struct work *w);

#endif
