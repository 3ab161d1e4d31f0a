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

/* Add them to `o`. Any of pid (0) and folder (NULL) may be missing. */
void sample_take(json_t *o, pid_t pid, const char *folder);
/* b - a for every number of b that a has; names that end in "_now" are levels and taken from b. */
json_t *sample_delta(json_t *a, json_t *b);

/* Facts about this host for the report: kernel, CPU, SMT, governor, memory, versions. */
json_t *sample_facts(void);

#endif
