/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Snapshots as QEMU's users know them: migrate to a file, a command or a socket, and
 * -incoming from one. Main loop's thread.
 */
#ifndef KELVIN_CONTROL_MIGRATE_H
#define KELVIN_CONTROL_MIGRATE_H

#include "control/qmp_impl.h"

json_t *cmd_migrate(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_migrate_cancel(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_migrate_incoming(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_query_migrate(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_migrate_set_capabilities(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_query_migrate_capabilities(struct vm *vm, json_t *args, struct err *err);

void hmp_migrate(struct vm *vm, const char *args, struct textbuf *out);
void hmp_migrate_cancel(struct vm *vm, const char *args, struct textbuf *out);
void hmp_migrate_incoming(struct vm *vm, const char *args, struct textbuf *out);
void info_migrate(struct vm *vm, const char *args, struct textbuf *out);

/* -incoming, once the machine is made. */
int migrate_start_incoming(struct vm *vm, struct err *err);
/* Before the machine is destroyed: end what is under way. */
void migrate_end(void);

#endif
