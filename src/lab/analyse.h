/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * From a journal to statements. The result is one JSON document from which every kind of report is written; no
 * experiment's, workload's or setting's name is known here. Main thread.
 */
#ifndef KELVIN_LAB_ANALYSE_H
#define KELVIN_LAB_ANALYSE_H

#include <jansson.h>
#include <stdbool.h>
#include "lab/journal.h"

#define ANALYSE_ALPHA 0.05

/*
 * {"blocks": n, "alpha": a, "metrics": [...], "verdict": [...], "failures": [...], "notes": [...], "settled": bool,
 * ...}; the members are described where they are made. `blocks`: use only the first so many (UINT_MAX: all complete
 * ones).
 */
json_t *analyse(const struct journal *j, unsigned blocks, double alpha);
/* After all complete blocks, as the last analysis of the run: chooses what the schedule of looks still allows. */
json_t *analyse_final(const struct journal *j);
/* Blocks of which every cell has a line. */
unsigned analyse_complete_blocks(const struct journal *j);

/*
 * why.c: what was measured to differ between two cells during `phase`, over the blocks both have. Arrays of trials in
 * the same order. {"text": ..., "key": ..., "share": 0..1} or NULL when nothing measured explains it.
 */
json_t *why_explain(json_t *slow, json_t *fast, const char *phase, double tolerance);

/*
 * lead.c: the answer in a few words, {"lead": [{"text", "hint"}]}, one for each factor, into a document that has its
 * metrics and verdict.
 */
void lead_say(json_t *doc, const struct experiment *e);

/*
 * costs.c: [{"phase": name, "per": "request" or "phase", "columns": [{"key", "title", "time": CPU time in %}], "cells":
 * [{"label", "values": {key: number}, "calls": the most frequent host system calls}]}]
 */
json_t *costs_json(const struct journal *j, unsigned blocks);

#endif
