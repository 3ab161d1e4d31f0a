/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The control channels of a running machine: QMP and the human monitor. Each
 * sits on one chardev. Everything runs in the main loop's thread.
 */
#ifndef KELVIN_CONTROL_MONITOR_H
#define KELVIN_CONTROL_MONITOR_H

#include <stdbool.h>
#include "base/err.h"
#include "chr/chr.h"
#include "machine/vm.h"

/* QMP on a chardev; lives until monitor_destroy_all. 0 or -errno and err. */
int qmp_create(struct chr *c, struct vm *vm, bool pretty, struct err *err);
/* A human monitor. `prompt`: "(qemu) " or "(kelvin) ". */
int hmp_create(struct chr *c, struct vm *vm, const char *prompt, struct err *err);
/* Detach from the chardevs and free all of both kinds; before the vm and the chardevs go. */
void monitor_destroy_all(void);
void qmp_destroy_all(void);
void hmp_destroy_all(void);

#endif
