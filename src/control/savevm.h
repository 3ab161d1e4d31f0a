/* SPDX-License-Identifier: GPL-2.0-or-later */
/* savevm, loadvm, delvm and info snapshots: the machine in its own qcow2 disks. Main loop's thread. */
#ifndef KELVIN_CONTROL_SAVEVM_H
#define KELVIN_CONTROL_SAVEVM_H

#include "control/textbuf.h"
#include "machine/vm.h"

void hmp_savevm(struct vm *vm, const char *args, struct textbuf *out);
void hmp_loadvm(struct vm *vm, const char *args, struct textbuf *out);
void hmp_delvm(struct vm *vm, const char *args, struct textbuf *out);
void info_snapshots(struct vm *vm, const char *args, struct textbuf *out);

/* -loadvm NAME: into a machine that never ran; it stays stopped. */
int savevm_load_at_start(struct vm *vm, const char *name, struct err *err);

#endif
