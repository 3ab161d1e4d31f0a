// SPDX-License-Identifier: GPL-2.0-or-later
/* Namespaces of the mounts and the network, of a user too where the process is not root: mount_setattr(2),
 * user_namespaces(7). */
#include "sandbox.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static void need(int ret, const char *what)
{
	if (ret >= 0)
		return;
	perror(what);
	exit(77);
}

static void write_text(const char *path, const char *text)
{
	const int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, text, strlen(text)) < 0)
		perror(path);
	if (fd >= 0)
		close(fd);
}

static void become_root(void)
{
	char map[40];
	const unsigned uid = getuid(), gid = getgid();

	if (uid == 0)
		return;
	need(unshare(CLONE_NEWUSER), "user namespace");
	write_text("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	write_text("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "0 %u 1", gid);
	write_text("/proc/self/gid_map", map);
}

void sandbox_enter(void)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY, .propagation = MS_PRIVATE};
	const char *keep = getenv("FUZZ_KEEP");
	static const char folder[] = "/mnt"; /* there on every system, and nobody's */
	char *absolute = keep ? realpath(keep, NULL) : NULL;

	become_root();
	need(unshare(CLONE_NEWNS | CLONE_NEWNET), "mount and network namespaces");
	need(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
	if (absolute)
		need(mount(absolute, absolute, NULL, MS_BIND, NULL), absolute);
	need(mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &attr, sizeof(attr)), "read-only mounts");
	attr = (struct mount_attr){.attr_clr = MOUNT_ATTR_RDONLY};
	if (absolute)
		need(mount_setattr(AT_FDCWD, absolute, 0, &attr, sizeof(attr)), absolute);
	need(mount("none", "/dev", "tmpfs", MS_RDONLY, "size=4k"), "/dev");
	need(mount("none", folder, "tmpfs", 0, "size=64m"), folder);
	need(chdir(folder), folder);
	free(absolute);
}
