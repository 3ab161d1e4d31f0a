/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Workloads: what runs in a cell. A workload is one line of a table and one script guest/lab/NAME.sh, which reports
 * through the agent (guest/lab/agent.c). Adding one changes nothing else.
 */
#ifndef KELVIN_LAB_WORKLOAD_H
#define KELVIN_LAB_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>

#define WORKLOAD_DISK	 1u  /* a disk that may be written */
#define WORKLOAD_ROOT	 2u  /* programs of the root image */
#define WORKLOAD_SOURCE	 4u  /* the source tree */
#define WORKLOAD_FILES	 8u  /* uses a file system: on the host a folder, not the file */
#define WORKLOAD_NO_HOST 16u /* means nothing on the host */
#define WORKLOAD_BOOT	 32u /* the lab's own times from start to init are its metrics */

struct workload_param {
	const char *name, *value, *help;
};

struct workload {
	const char *name, *about;
	unsigned flags;
	struct workload_param params[8]; /* defaults; ends at name == NULL */
};

const struct workload *workload_find(const char *name);
const struct workload *workload_at(size_t i); /* NULL after the last */

#endif
