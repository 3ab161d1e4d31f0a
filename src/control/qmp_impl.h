/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The table of QMP commands. A command's arguments are checked against its shape
 * before its function runs; the function returns a new reference, or NULL with
 * err set. Main loop's thread.
 */
#ifndef KELVIN_CONTROL_QMP_IMPL_H
#define KELVIN_CONTROL_QMP_IMPL_H

#include <jansson.h>
#include "base/err.h"
#include "control/qmp_schema.h"
#include "machine/vm.h"

struct qmp_command {
	const char *name;
	const char *args, *ret; /* shapes, as qmp_schema.h explains; NULL: none, and an empty object */
	json_t *(*fn)(struct vm *vm, json_t *args, struct err *err);
};

/* The one command that is not in the table, because it is about the connection. */
#define QMP_CAPABILITIES      "qmp_capabilities"
#define QMP_CAPABILITIES_ARGS "enable?:[<oob>]"

extern const struct qmp_command qmp_command_table[]; /* ends with name NULL */
json_t *qmp_version(void);

/* qom.c: the tree of objects under QEMU's paths. */
json_t *cmd_qom_list_types(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_qom_list(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_qom_get(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_qom_set(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_qom_list_properties(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_device_list_properties(struct vm *vm, json_t *args, struct err *err);

/* introspect.c: what this program can do. */
json_t *cmd_query_qmp_schema(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_query_commands(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_query_events(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_query_command_line_options(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_query_machines(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_query_target(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_query_cpu_definitions(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_query_cpu_model_expansion(struct vm *vm, json_t *args, struct err *err);

/* hmp.c: run one line of the human monitor; its output is appended to *out. */
struct textbuf;
void hmp_run_line(struct vm *vm, const char *line, struct textbuf *out);

#endif
