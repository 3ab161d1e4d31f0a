/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How other programs of the same user find a running machine: a socket DIR/PID.sock that gives whoever connects one
 * JSON document {"pid", "name", "stats": what -stats writes} and closes. Nothing is ever read from it, so it needs no
 * trust beyond the folder's permissions (0700, ours).
 */
#ifndef KELVIN_CONTROL_RUNTIME_H
#define KELVIN_CONTROL_RUNTIME_H

#include <stddef.h>
#include "io/loop.h"
#include "machine/vm.h"

/*
 * The folder: $XDG_RUNTIME_DIR/kelvin, /run/user/UID/kelvin or /tmp/kelvin-UID, the first whose parent exists. 0, or
 * -errno when it is not a folder of ours that nobody else may enter; `make`: create it. Any thread.
 */
int runtime_folder(char *out, size_t n, bool make);

/* Offer the socket. A machine runs as well without: failures are only logged (-d qmp). Loop's thread. */
void runtime_open(struct loop *l, struct vm *vm);
void runtime_close(struct loop *l);

#endif
