// SPDX-License-Identifier: GPL-2.0-or-later
/* From /proc (Linux, Documentation/filesystems/proc.rst: stat, status, task/TID/children). No locks, no state. */
#include "base/process.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/util.h"

#define CHILDREN_MAX 256

/* The children of each thread of one process, behind the n that are there. */
static size_t add_children(pid_t pid, pid_t *list, size_t n, size_t room)
{
	char path[400];
	struct dirent *e;
	int child;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/children", (int)pid, e->d_name);
		FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
		while (f && n < room && fscanf(f, "%d", &child) == 1)
			list[n++] = child;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return n;
}

size_t process_descendants(pid_t pid, pid_t *list, size_t room)
{
	size_t n = add_children(pid, list, 0, room);

	for (size_t i = 0; i < n; i++)
		n = add_children(list[i], list, n, room);
	return n;
}

/* The command name may hold anything: look behind its last bracket. */
static int add_stat(pid_t pid, struct process_usage *u)
{
	char path[64], line[1024] = "";
	unsigned long long faults, child_faults, user, system, guest;
	long long child_user, child_system, child_guest;
	const double hz = (double)sysconf(_SC_CLK_TCK);

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "re");
	char *rest = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	int got = rest
		      ? sscanf(rest + 1,
			       " %*c %*d %*d %*d %*d %*d %*u %llu %llu %*u %*u %llu %llu %lld %lld %*d %*d %*d %*d "
			       "%*u %*u %*d %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d %*d %*u %*u %*u "
			       "%llu %lld",
			       &faults, &child_faults, &user, &system, &child_user, &child_system, &guest, &child_guest)
		      : 0;
	if (f)
		fclose(f);
	if (got != 8)
		return -ESRCH;
	u->faults += faults + child_faults;
	u->user_s += ((double)user + (double)child_user) / hz;
	u->system_s += ((double)system + (double)child_system) / hz;
	u->guest_s += ((double)guest + (double)child_guest) / hz;
	return 0;
}

/* Page tables are the one thing that a child which only maps the guest's memory really takes. */
static uint64_t own_kib(pid_t pid)
{
	char path[64], line[256];
	unsigned long long v, kib = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %llu", &v) == 1 || sscanf(line, "VmPTE: %llu", &v) == 1)
			kib += v;
	if (f)
		fclose(f);
	return kib;
}

int process_usage(pid_t pid, struct process_usage *u)
{
	pid_t list[CHILDREN_MAX];

	*u = (struct process_usage){0};
	/* The parent's own first: a child that is waited for in between is missed this once, and never counted twice.
	 */
	int ret = add_stat(pid, u);
	size_t n = process_descendants(pid, list, ARRAY_SIZE(list));
	for (size_t i = 0; i < n && !ret; i++)
		if (!add_stat(list[i], u))
			u->children_kib += own_kib(list[i]);
	return ret;
}
