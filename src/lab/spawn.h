/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Child processes: the one place of the lab that forks. Main thread. */
#ifndef KELVIN_LAB_SPAWN_H
#define KELVIN_LAB_SPAWN_H

#include <sys/types.h>
#include "base/err.h"

/* Run a program to its end; its output's last line explains a failure. 0 or -errno (-ENOENT: it is not there). */
int spawn_wait(char *const argv[], struct err *err);

/* Its output, at most room - 1 bytes of it and then it is stopped; "" and err when it cannot be started. */
void spawn_output(char *const argv[], char *out, size_t room, struct err *err);

/*
 * Start a program: input empty, output and errors to `out`, a process group of its own (a Ctrl-C is ours alone), killed
 * when this process dies. `keep` >= 0 is inherited as it is; `cpus` > 0 limits it to that many CPUs. The pid or -errno.
 */
pid_t spawn_start(char *const argv[], int out, int keep, int cpus, struct err *err);

/* Does it run still? Fills *status (of waitpid) when it ended. */
int spawn_ended(pid_t pid, int *status);
/* Kill the whole group and wait. */
void spawn_kill(pid_t pid);

/* The last line of a file that has text in it, at most 300 bytes, malloc'ed; "" when there is none. */
char *spawn_last_line(int fd);

#endif
