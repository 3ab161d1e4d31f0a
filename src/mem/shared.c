// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Shared memory on huge pages.
 *
 * Most hosts give files of memfd_create small pages only (shmem_enabled is "never"), which costs a guest with native
 * user code much: each page is a fault, an entry in the host's TLB and a segment of a disk's transfer. The switch
 * belongs to the host's owner, but it does not hold for mounts: a tmpfs says itself what its files get. So the file is
 * made in a tmpfs of its own that is never put anywhere (fsmount(2)) and ends with its last user. Mounting needs
 * a privilege; without it a child gets that in a user namespace of its own (user_namespaces(7)) and shares its
 * descriptors with this process. Where all that is forbidden, small pages do.
 */
#include "mem/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHMEM_ENABLED "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/* The host's switch is off, but not against mounts. */
static bool switched_off(void)
{
	char text[100] = "";
	int fd = open(SHMEM_ENABLED, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	if (fd >= 0)
		close(fd);
	return n > 0 && strstr(text, "[never]");
}

/* A file in a new tmpfs, -errno. No memory is allocated: it runs in a child of a process with threads. */
static int tmpfs_file(void)
{
	int fs = fsopen("tmpfs", FSOPEN_CLOEXEC), mount = -1, fd = -1;

	/* Its size is the guest's, which was checked against what the host has. */
	if (fs >= 0 && !fsconfig(fs, FSCONFIG_SET_STRING, "huge", "advise", 0) &&
	    !fsconfig(fs, FSCONFIG_SET_STRING, "size", "0", 0) && !fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		mount = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (mount >= 0)
		fd = openat(mount, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int ret = fd >= 0 ? fd : -errno;
	if (mount >= 0)
		close(mount);
	if (fs >= 0)
		close(fs);
	return ret;
}

static bool put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* In a child with a user namespace and this process's descriptors: the file takes the place of fd. */
static void replace_in_namespace(int fd)
{
	char uid[40], gid[40];

	snprintf(uid, sizeof(uid), "0 %u 1", getuid());
	snprintf(gid, sizeof(gid), "0 %u 1", getgid());
	/* Without CLONE_VM: nothing of this process's memory is changed. No signal: nobody else waits for this child.
	 */
	long pid = syscall(SYS_clone, CLONE_FILES | CLONE_NEWUSER | CLONE_NEWNS, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		int file = put("/proc/self/setgroups", "deny") && put("/proc/self/uid_map", uid) &&
				   put("/proc/self/gid_map", gid)
			       ? tmpfs_file()
			       : -1;
		if (file >= 0) {
			dup3(file, fd, O_CLOEXEC);
			close(file); /* the parent's too */
		}
		syscall(SYS_exit_group, 0); /* the child's */
	}
	while (pid > 0 && waitpid((pid_t)pid, NULL, __WALL) < 0 && errno == EINTR)
		;
}

int shared_memory_file(const char *name)
{
	int fd = switched_off() ? tmpfs_file() : -ENOENT;

	if (fd >= 0)
		return fd;
	const bool forbidden = fd == -EPERM;
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (forbidden)
		replace_in_namespace(fd);
	return fd;
}
