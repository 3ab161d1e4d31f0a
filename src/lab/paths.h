/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where the lab finds its files: in the source tree the program was built in, or where it was installed. */
#ifndef KELVIN_LAB_PATHS_H
#define KELVIN_LAB_PATHS_H

#include "base/err.h"

/*
 * share: the folder with lab/, guest/ and tools/; helpers: the folder with lab-agent and lab-bench; self: this program.
 * Found once, from /proc/self/exe; KELVIN_SHARE replaces the first. Valid until the program ends. 0 or -errno.
 */
struct paths {
	char self[4096], share[4096], helpers[4096];
};
const struct paths *paths_find(struct err *err);

/* malloc'ed "fmt"; NULL when out of memory. */
char *paths_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A journal of thousands of trials is the largest. */
#define PATHS_READ_MAX (512 * MIB)
/* Read a whole file, NUL-terminated, malloc'ed. NULL and err. */
char *paths_read(const char *path, struct err *err);
/* Write a file under a temporary name and rename it: readers never see half. 0 or -errno. */
int paths_write(const char *path, const char *text, struct err *err);

#endif
