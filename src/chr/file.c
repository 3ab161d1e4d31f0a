// SPDX-License-Identifier: GPL-2.0-or-later
/* Character backends that are files: file (output only), pipe (named pipes), null. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/util.h"
#include "chr/chr_impl.h"

struct chr_file {
	struct chr chr;
	char *path, *input_path;
	bool append;
};

#define FIFO_POLL_US 50000

/*
 * Never blocks, but for a named pipe opened for writing: that waits for its
 * reader, as with QEMU, until a signal asks to leave.
 */
static int file_open_fd(const char *path, int flags, struct err *err)
{
	for (;;) {
		int fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
		if (fd >= 0)
			return fd;
		struct stat st;
		if (errno != ENXIO || stat(path, &st) < 0 || !S_ISFIFO(st.st_mode) || chr_interrupted())
			return err_set_errno(err, -errno, "cannot open '%s'", path);
		usleep(FIFO_POLL_US);
	}
}

static int file_use_fds(struct chr *c, int rfd, int wfd, struct err *err)
{
	int ret = chr_set_fds(c, rfd, wfd);

	if (ret) {
		if (rfd >= 0)
			close(rfd);
		if (wfd >= 0 && wfd != rfd)
			close(wfd);
		return err_set_errno(err, ret, "cannot watch it");
	}
	c->connected = true;
	return 0;
}

static int file_open(struct chr *c, struct err *err)
{
	struct chr_file *f = (struct chr_file *)c;
	int rfd = -1;
	int wfd = file_open_fd(f->path, O_WRONLY | O_CREAT | (f->append ? O_APPEND : O_TRUNC), err);

	if (wfd < 0)
		return wfd;
	if (f->input_path) {
		rfd = file_open_fd(f->input_path, O_RDONLY, err);
		if (rfd < 0) {
			close(wfd);
			return rfd;
		}
	}
	snprintf(c->description, sizeof(c->description), "file");
	return file_use_fds(c, rfd, wfd, err);
}

/* PATH.in and PATH.out as QEMU, or PATH itself for both directions. */
static int pipe_open(struct chr *c, struct err *err)
{
	struct chr_file *f = (struct chr_file *)c;
	char in[512], out[512];

	snprintf(in, sizeof(in), "%s.in", f->path);
	snprintf(out, sizeof(out), "%s.out", f->path);
	/* Read and write on the pipes: then no end of file when the other side comes and goes. */
	int rfd = file_open_fd(in, O_RDWR, NULL);
	int wfd = file_open_fd(out, O_RDWR, NULL);
	if (rfd < 0 || wfd < 0) {
		if (rfd >= 0)
			close(rfd);
		if (wfd >= 0)
			close(wfd);
		rfd = wfd = file_open_fd(f->path, O_RDWR, err);
		if (rfd < 0)
			return rfd;
	}
	snprintf(c->description, sizeof(c->description), "pipe:%s", f->path);
	return file_use_fds(c, rfd, wfd, err);
}

static int null_open(struct chr *c, struct err *err)
{
	snprintf(c->description, sizeof(c->description), "null");
	c->connected = true; /* without descriptors: output vanishes, no input comes */
	return 0;
}

static const struct prop file_props[] = {
    {.name = "path", .kind = PROP_STR, .offset = offsetof(struct chr_file, path), .flags = PROP_REQUIRED},
    {.name = "append", .kind = PROP_BOOL, .offset = offsetof(struct chr_file, append), .help = "keep old text"},
    {.name = "input-path", .kind = PROP_STR, .offset = offsetof(struct chr_file, input_path), .help = "read from it"},
    {.name = NULL},
};
static const struct prop pipe_props[] = {
    {.name = "path", .kind = PROP_STR, .offset = offsetof(struct chr_file, path), .flags = PROP_REQUIRED},
    {.name = NULL},
};

const struct chr_ops chr_file_ops = {
    .type = {.name = "file",
	     .about = "output to a file",
	     .parent = "chardev",
	     .size = sizeof(struct chr_file),
	     .props = file_props},
    .open = file_open,
};
const struct chr_ops chr_pipe_ops = {
    .type = {.name = "pipe",
	     .about = "named pipes PATH.in and PATH.out",
	     .parent = "chardev",
	     .size = sizeof(struct chr_file),
	     .props = pipe_props},
    .open = pipe_open,
};
const struct chr_ops chr_null_ops = {
    .type = {.name = "null", .about = "nothing", .parent = "chardev", .size = sizeof(struct chr)},
    .open = null_open,
};
