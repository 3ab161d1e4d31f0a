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

#define VMM_QUERIES 2

/* A QMP command whose reply has counters. */
struct vmm_query {
	const char *command; /* its name, or a whole JSON request; NULL ends the list */
	bool kvm_only;
	/*
	 * Add counters of `reply` (what "return" holds) to `out` as numbers. Names with the same meaning for every
	 * monitor: exits (left the guest for the monitor), kvm.exits (left the guest at all), interrupts (of devices),
	 * block.requests, block.bytes, block.calls (host system calls for them), block.wait_s.
	 */
	void (*counters)(json_t *reply, json_t *out);
};

struct vmm_ops {
	const char *name;	/* start of the program's file name */
	const char *package;	/* Debian's, or NULL */
	const char *verb;	/* first argument, or NULL */
	const char *kvm, *soft; /* values of -accel */
	/* The adapter for drive.if=scsi where the board's own command line no longer makes one; NULL: it does */
	const char *scsi;
	struct vmm_query query[VMM_QUERIES];
};

/* What is known of the monitor whose program has this file name; NULL: it is none the lab knows. */
const struct vmm_ops *vmm_ops(const char *base);

/* The monitor for a program (`kelvin`: this program; a path; or a name in $PATH), and its path, malloc'ed. NULL and
 * err. */
const struct vmm_ops *vmm_find(const char *program, char **path, struct err *err);

/* What the program says of its version: one line, malloc'ed; NULL where it cannot be started. */
char *vmm_version(const char *program);

/* Is KVM usable here (device, permission, and a processor that virtualizes)? */
bool vmm_host_has_kvm(void);

/* A QMP connection: connect to a Unix socket (waits up to a few seconds for it), one command at a time. */
struct qmp_client {
	int fd;
	struct textbuf in;
};
int qmp_client_open(struct qmp_client *q, const char *path, struct err *err);
/* `command`: a name or a whole request. The "return" value, or NULL and err. Waits at most `timeout_ms`. */
json_t *qmp_client_command(struct qmp_client *q, const char *command, int timeout_ms, struct err *err);
void qmp_client_close(struct qmp_client *q);

#endif
