// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Image locking compatible with QEMU, so that either program keeps the other
 * from damaging a disk in use. Bytes of the image file carry open-file-description
 * read locks: byte 100+N while permission N is in use, byte 200+N while others
 * must not use it (N: 0 consistent read, 1 write, 3 resize). The kernel drops
 * them with the process, however it ends.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "block/driver.h"

#define LOCK_USED_BASE	   100
#define LOCK_UNSHARED_BASE 200

enum { PERM_CONSISTENT_READ = 0, PERM_WRITE = 1, PERM_COUNT = 5 };

static const char *const perm_names[PERM_COUNT] = {"consistent read", "write", "write unchanged", "resize",
						   "change children"};

static int lock_byte(int fd, int cmd, short type, off_t byte)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	int ret;

	do {
		ret = fcntl(fd, cmd, &fl);
	} while (ret < 0 && errno == EINTR);
	if (ret < 0)
		return -errno;
	return cmd == F_OFD_GETLK && fl.l_type != F_UNLCK ? -EAGAIN : 0;
}

/* Does this process have the file of `st` open? */
static bool process_has_open(const char *pid, const struct stat *st)
{
	char path[300];
	struct dirent *e;
	struct stat other;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	dir = opendir(path);
	if (!dir)
		return false;
	while (!found && (e = readdir(dir)) != NULL)
		found = fstatat(dirfd(dir), e->d_name, &other, 0) == 0 && other.st_dev == st->st_dev &&
			other.st_ino == st->st_ino;
	closedir(dir);
	return found;
}

/* Open-file-description locks have no owner's pid; look who else has the file open. */
static pid_t find_holder(int fd)
{
	struct stat st;
	struct dirent *e;
	pid_t holder = 0;
	DIR *proc;

	if (fstat(fd, &st) < 0 || !(proc = opendir("/proc")))
		return 0;
	while (!holder && (e = readdir(proc)) != NULL) {
		long pid = strtol(e->d_name, NULL, 10);
		if (pid > 0 && pid != getpid() && process_has_open(e->d_name, &st))
			holder = (pid_t)pid;
	}
	closedir(proc);
	return holder;
}

/* The drive of this process that uses the file, directly or as a backing file. */
static const char *find_drive(int fd)
{
	const struct drive *d;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return NULL;
	for (size_t i = 0; (d = drive_at(i)) != NULL; i++)
		for (const struct block_node *n = d->node; n; n = n->backing)
			if (block_file_is(n->file, &st))
				return d->id;
	return NULL;
}

static int lock_refused(int fd, int perm, bool shared, const char *filename, struct err *err)
{
	pid_t pid = find_holder(fd);
	const char *drive = pid ? NULL : find_drive(fd);
	char who[80] = "another process";

	if (drive)
		snprintf(who, sizeof(who), "drive '%.40s' of this machine", drive);
	else if (pid)
		snprintf(who, sizeof(who), "process %d", (int)pid);
	return err_set(err, -EAGAIN, "Failed to get %s\"%s\" lock: image '%s' is in use by %s", shared ? "shared " : "",
		       perm_names[perm], filename, who);
}

int block_lock_acquire(int fd, bool read_only, const char *filename, struct err *err)
{
	const unsigned used = read_only ? BIT(PERM_CONSISTENT_READ) : BIT(PERM_CONSISTENT_READ) | BIT(PERM_WRITE);
	const unsigned unshared = BIT(PERM_WRITE);
	int ret;

	/* Take first, look afterwards: two that start together may both fail, never both succeed. */
	for (int i = 0; i < PERM_COUNT; i++) {
		ret = used & BIT(i) ? lock_byte(fd, F_OFD_SETLK, F_RDLCK, LOCK_USED_BASE + i) : 0;
		if (!ret && (unshared & BIT(i)))
			ret = lock_byte(fd, F_OFD_SETLK, F_RDLCK, LOCK_UNSHARED_BASE + i);
		if (ret == -EAGAIN || ret == -EACCES)
			return lock_refused(fd, i, false, filename, err);
		if (ret == -EINVAL || ret == -ENOLCK || ret == -EOPNOTSUPP)
			return 0; /* a file system without locks: QEMU goes on too */
		if (ret)
			return err_set_errno(err, ret, "Failed to lock '%s'", filename);
	}
	for (int i = 0; i < PERM_COUNT; i++) {
		if ((used & BIT(i)) && lock_byte(fd, F_OFD_GETLK, F_WRLCK, LOCK_UNSHARED_BASE + i))
			return lock_refused(fd, i, false, filename, err);
		if ((unshared & BIT(i)) && lock_byte(fd, F_OFD_GETLK, F_WRLCK, LOCK_USED_BASE + i))
			return lock_refused(fd, i, true, filename, err);
	}
	return 0;
}
