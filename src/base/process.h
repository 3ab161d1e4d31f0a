/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a process and the processes it made used: native ring 3 runs the guest's user code in children of the monitor,
 * and their work is the monitor's. Any thread.
 */
#ifndef KELVIN_BASE_PROCESS_H
#define KELVIN_BASE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

struct process_usage {
	double user_s, system_s, guest_s; /* guest_s: part of user_s, under KVM */
	uint64_t faults;		  /* minor page faults */
	uint64_t children_kib;		  /* memory that is the children's own: neither shared with others nor files */
};

/* The process's, of children it waited for, and of children that run. 0 or -errno (pid is gone). */
int process_usage(pid_t pid, struct process_usage *u);

/* Running children and theirs, at most `room` of them; where the kernel does not list children (CONFIG_PROC_CHILDREN),
 * none. */
size_t process_descendants(pid_t pid, pid_t *list, size_t room);

#endif
