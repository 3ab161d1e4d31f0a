/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The table of QMP commands. A command's arguments are checked against its table
 * before its function runs; the function returns a new reference, or NULL with
 * err set. Main loop's thread.
 */
#ifndef KELVIN_CONTROL_QMP_IMPL_H
#define KELVIN_CONTROL_QMP_IMPL_H

#include <jansson.h>
#include "base/err.h"
#include "machine/vm.h"

enum qmp_kind { QMP_STRING = 1, QMP_INT, QMP_NUMBER, QMP_BOOL, QMP_OBJECT, QMP_ARRAY, QMP_ANY };

struct qmp_arg {
	const char *name; /* NULL ends the table */
	enum qmp_kind kind;
	bool required;
};

struct qmp_command {
	const char *name;
	const struct qmp_arg *args; /* NULL: none */
	json_t *(*fn)(struct vm *vm, json_t *args, struct err *err);
};

extern const struct qmp_command qmp_command_table[]; /* ends with name NULL */
json_t *qmp_version(void);

/* qom.c: the tree of objects under QEMU's paths. */
json_t *cmd_qom_list_types(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_qom_list(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_qom_get(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_qom_set(struct vm *vm, json_t *args, struct err *err);
/* What QMP calls a kind of property. */
const char *qom_kind_name(const struct prop *p);

/* hmp.c: run one line of the human monitor; its output is appended to *out. */
struct textbuf;
void hmp_run_line(struct vm *vm, const char *line, struct textbuf *out);

#endif
