/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the human monitor's "info" prints: a table of subjects, each a function into a text buffer. */
#ifndef KELVIN_CONTROL_INFO_H
#define KELVIN_CONTROL_INFO_H

#include "control/textbuf.h"
#include "machine/vm.h"

struct info_subject {
	const char *name, *help; /* name NULL ends the table */
	/* `args`: what follows the subject, may be empty. Main loop's thread. */
	void (*print)(struct vm *vm, const char *args, struct textbuf *out);
};
extern const struct info_subject info_table[];

/* "VM status: paused (prelaunch)" */
void info_status(struct vm *vm, const char *args, struct textbuf *out);

#endif
