/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Counters of the host and of one process, as flat JSON objects of numbers, so that "what happened between" is one
 * subtraction. Names: host.* (the whole machine), vmm.* (the process), disk.* (the device under a folder), and what the
 * monitor itself counts. Times are in seconds.
 */
#ifndef KELVIN_LAB_SAMPLE_H
#define KELVIN_LAB_SAMPLE_H

#include <jansson.h>
#include <sys/types.h>

/*
 * The monitor's children as they were last seen: what one had used is not lost when it ends. Zero to begin with; looked
 * at with every sample, and now and then between (sample_children_look), as children come and go.
 */
#define SAMPLE_CHILDREN 256
struct sample_children {
	struct sample_child {
		pid_t pid;
		double switches, forced, delay_ns;
	} child[SAMPLE_CHILDREN], gone;
	size_t n;
	double peak_kib; /* the most they had together, of their own */
};
void sample_children_look(struct sample_children *c, pid_t pid);

/* Add them to `o`. Any of pid (0), children (NULL) and folder (NULL) may be missing. */
void sample_take(json_t *o, pid_t pid, struct sample_children *children, const char *folder);
/* b - a for every number of b that a has; names that end in "_now" are levels and taken from b. */
json_t *sample_delta(json_t *a, json_t *b);

/* Facts about this host for the report: kernel, CPU, SMT, governor, memory, versions; the disk under `folder`, which
 * need not exist yet. */
json_t *sample_facts(const char *folder);

#endif
