/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Monitors: programs the lab can start a guest with. One is a table entry: its name, how it spells an accelerator, and
 * how its counters are read. All of them take QEMU's options; what they do not take they refuse, and the cell says so.
 */
#ifndef KELVIN_LAB_VMM_H
#define KELVIN_LAB_VMM_H

#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"
#include "control/textbuf.h"

struct vmm_ops {
	const char *name;	/* start of the program's file name */
	const char *verb;	/* first argument, or NULL */
	const char *kvm, *soft; /* values of -accel */
	const char *query;	/* QMP command whose reply has the counters */
	/* Add counters of `reply` (what "return" holds) to `out` as numbers; "exits", "requests", "io_wait_s" where
	 * known. */
	void (*counters)(json_t *reply, json_t *out);
};

/* The monitor for a program (`kelvin`: this program; a path; or a name in $PATH), and its path, malloc'ed. NULL and
 * err. */
const struct vmm_ops *vmm_find(const char *program, char **path, struct err *err);

/* Is KVM usable here (device, permission, and a processor that virtualizes)? */
bool vmm_host_has_kvm(void);

/* A QMP connection: connect to a Unix socket (waits up to a few seconds for it), one command at a time. */
struct qmp_client {
	int fd;
	struct textbuf in;
};
int qmp_client_open(struct qmp_client *q, const char *path, struct err *err);
/* The "return" value, or NULL and err. Waits at most `timeout_ms`. */
json_t *qmp_client_command(struct qmp_client *q, const char *command, int timeout_ms, struct err *err);
void qmp_client_close(struct qmp_client *q);

#endif
