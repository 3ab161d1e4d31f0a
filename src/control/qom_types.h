/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All types a user can name, under QEMU's names for them ("pc-machine", "EPYC-x86_64-cpu", "chardev-file"): one walk
 * over the tables of devices, objects, chardevs, boards, CPU models and engines. Main loop's thread.
 */
#ifndef KELVIN_CONTROL_QOM_TYPES_H
#define KELVIN_CONTROL_QOM_TYPES_H

#include <jansson.h>
#include <stdbool.h>
#include "base/type.h"
#include "cpu/model.h"

struct qom_type {
	char name[96];
	char parent[96];	 /* empty: none */
	const struct type *type; /* its properties; NULL: none, or a CPU's */
	bool abstract, is_cpu;	 /* a CPU's properties are those of cpu_feature_table */
};

/* i from 0 until false. */
bool qom_type_at(size_t i, struct qom_type *t);
bool qom_type_find(const char *name, struct qom_type *t);
/* Is `base` the type itself or one of its parents? */
bool qom_type_is(const struct qom_type *t, const char *base);
/* The name of a type of one of those tables, e.g. of a board's: into out. */
void qom_type_name(const struct type *t, char *out, size_t size);
void qom_cpu_type_name(const char *model, char *out, size_t size);
/* {name, type, description, default-value} of each property. */
json_t *qom_type_properties(const struct qom_type *t);
/* What QMP calls a kind of property; a property's text as JSON (new reference, NULL when it is none). */
const char *qom_kind_name(const struct prop *p);
json_t *qom_value(const struct prop *p, const char *text);

#endif
