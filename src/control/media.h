/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The monitors' commands about removable media, for the tables of qmp_commands.c and hmp.c. */
#ifndef KELVIN_CONTROL_MEDIA_H
#define KELVIN_CONTROL_MEDIA_H

#include "control/qmp_impl.h"

json_t *cmd_eject(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_open_tray(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_close_tray(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_remove_medium(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_insert_medium(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_change_medium(struct vm *vm, json_t *args, struct err *err);

void hmp_eject(struct vm *vm, const char *args, struct textbuf *out);
void hmp_change(struct vm *vm, const char *args, struct textbuf *out);

#endif
