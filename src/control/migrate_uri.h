/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where a snapshot goes to and comes from: file:, exec:, unix:, tcp: and fd:. Main loop's thread. */
#ifndef KELVIN_CONTROL_MIGRATE_URI_H
#define KELVIN_CONTROL_MIGRATE_URI_H

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"

/* One end of a stream. A file that is written gets its name when migrate_uri_finish is told that all is well. */
struct migrate_end_point {
	int fd;	     /* to read or write; -1: a listening socket has nobody yet */
	int listen;  /* unix: and tcp: for reading; else -1 */
	pid_t child; /* exec: else 0 */
	char *path, *temp;
};

int migrate_uri_open(const char *uri, bool write, struct migrate_end_point *e, struct err *err);
/*
 * Close it. With `good`, what was written is on the disk under its name, and a command has ended with status 0: that is
 * waited for. 0, or -errno with err.
 */
int migrate_uri_finish(struct migrate_end_point *e, bool good, struct err *err);

#endif
