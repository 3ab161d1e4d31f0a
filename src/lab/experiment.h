/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An experiment as data: read from a YAML file (lab/NAME.yaml documents the keys), changed by the command line.
 * Settings are pairs of texts; what a key means is said by settings.h. Main thread only.
 */
#ifndef KELVIN_LAB_EXPERIMENT_H
#define KELVIN_LAB_EXPERIMENT_H

#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"
#include "lab/stats.h"

struct workload;

/* Everything in `doc` is text, arrays and objects; the other members point into it or are converted from it. */
struct experiment {
	json_t *doc;
	const char *name, *about;
	const struct workload *workload;
	json_t *settings;     /* {key: text}: fixed for every cell */
	json_t *factors;      /* {key: [text, ...]} in the file's order */
	json_t *constraints;  /* [{key: text or [text]}]: cells to leave out */
	json_t *metrics;      /* [text]: what the verdict is about; NULL: all that the workload reports without ':' */
	json_t *reference;    /* {key: text}: levels of the cell others are compared with; first levels elsewhere */
	bool host;	      /* with a host baseline */
	unsigned least, most; /* blocks */
	double tolerance;     /* the smallest difference worth finding, 0.05 = 5 % */
	double budget_s, timeout_s;
};

/* One cell of the matrix. */
struct cell {
	char *label;	  /* "drive.if=ide smp=2"; "host"; "... (A/A)" */
	json_t *settings; /* all settings: fixed ones, and this cell's levels */
	json_t *levels;	  /* only the factors' */
	bool host;	  /* the host baseline */
	bool twin;	  /* repeats the reference: the noise floor */
};

struct matrix {
	struct cell *cell;
	size_t n, reference, twin; /* indices; host is the last cell when there is one */
	bool has_host;
	size_t host;
};

/* name: of a built-in experiment, or a path to a file. `quick`: apply the file's quick section. NULL and err. */
struct experiment *experiment_load(const char *name, bool quick, struct err *err);
/* Where its file is, malloc'ed. NULL and err. */
char *experiment_path(const char *name, struct err *err);
/* From the document in a result folder. Takes its own reference. */
struct experiment *experiment_from_doc(json_t *doc, struct err *err);
void experiment_free(struct experiment *e);

/* --vary KEY=A,B ... / --fix KEY=VALUE: 0 or -errno. */
int experiment_vary(struct experiment *e, const char *text, struct err *err);
int experiment_fix(struct experiment *e, const char *text, struct err *err);
/* Convert and check again after changes. */
int experiment_settle(struct experiment *e, struct err *err);

int matrix_make(const struct experiment *e, struct matrix *m, struct err *err);
void matrix_free(struct matrix *m);

/* Built-in experiments: calls fn(name, path) for each, sorted. */
int experiment_each(void (*fn)(void *arg, const char *name, const char *path), void *arg, struct err *err);

/* A YAML file as jansson values (texts, arrays, objects). NULL and err "FILE:LINE: what". */
json_t *yaml_load(const char *path, struct err *err);

#endif
