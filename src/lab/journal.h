/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A result folder: plan.json (what was asked for, the seed, the machine; written once) and journal.jsonl (one line per
 * finished trial, synced). Whatever kills a run, the lines that are complete are kept and the rest is run again.
 * Main thread.
 */
#ifndef KELVIN_LAB_JOURNAL_H
#define KELVIN_LAB_JOURNAL_H

#include <jansson.h>
#include <stdint.h>
#include "lab/experiment.h"

struct journal {
	char *dir;
	int fd;		/* journal.jsonl, locked: one run at a time. -1 when only read */
	json_t *plan;	/* {"experiment": doc, "seed": text, "facts": {...}, "command": text, "quick": bool} */
	json_t *trials; /* array of the lines */
	struct experiment *experiment;
	struct matrix matrix;
	uint64_t seed;
};

/* Start a new folder. 0 or -errno (-EEXIST: it holds results already). */
int journal_create(struct journal *j, const char *dir, json_t *plan, struct err *err);
/* Open one; `writing`: lock it, and cut off an unfinished last line. */
int journal_open(struct journal *j, const char *dir, bool writing, struct err *err);
/* Append one trial (takes over the reference), on disk when it returns. */
int journal_add(struct journal *j, json_t *trial, struct err *err);
/* The line for a block and cell, or NULL (borrowed). */
json_t *journal_find(const struct journal *j, unsigned block, const char *label);
void journal_close(struct journal *j);

#endif
