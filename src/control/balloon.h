/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The balloon in both monitors. Main loop's thread. */
#ifndef KELVIN_CONTROL_BALLOON_H
#define KELVIN_CONTROL_BALLOON_H

#include "control/json.h"
#include "control/textbuf.h"
#include "machine/vm.h"

json_t *cmd_balloon(struct vm *vm, json_t *args, struct err *err);
json_t *cmd_query_balloon(struct vm *vm, json_t *args, struct err *err);
void hmp_balloon(struct vm *vm, const char *args, struct textbuf *out);
void info_balloon(struct vm *vm, const char *args, struct textbuf *out);

#endif
