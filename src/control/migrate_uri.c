// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The ends of snapshots' streams. A file is written under another name and renamed
 * when it is complete and on the disk, so that none is ever half written. A command
 * runs by /bin/sh, as QEMU's exec: does.
 */
#include "control/migrate_uri.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "io/tcp.h"

extern char **environ;

/* ---- file:PATH ------------------------------------------------------------------ */

static int open_file(const char *path, bool write, struct migrate_end_point *e, struct err *err)
{
	if (!*path)
		return err_set(err, -EINVAL, "file: needs a path");
	e->path = strdup(path);
	if (write && asprintf(&e->temp, "%s.XXXXXX", path) < 0)
		e->temp = NULL;
	if (!e->path || (write && !e->temp))
		return err_set(err, -ENOMEM, "out of memory");
	e->fd = write ? mkostemp(e->temp, O_CLOEXEC) : open(path, O_RDONLY | O_CLOEXEC);
	if (e->fd >= 0)
		return 0;
	free(e->temp); /* nothing was made */
	e->temp = NULL;
	return err_set_errno(err, -errno, "cannot %s '%s'", write ? "create" : "open", path);
}

/* The folder too, or a power failure could take the name away again. */
static int name_file(const struct migrate_end_point *e, struct err *err)
{
	const char *slash = strrchr(e->path, '/');
	char *folder = slash == e->path ? strdup("/")
		       : slash		? strndup(e->path, (size_t)(slash - e->path))
					: strdup(".");
	int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	int rc = 0;

	/* As a file that is created in the ordinary way, but for nobody else: it holds all of the guest's memory. */
	if (fsync(e->fd) < 0 || rename(e->temp, e->path) < 0)
		rc = err_set_errno(err, -errno, "cannot write '%s'", e->path);
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
	free(folder);
	return rc;
}

/* ---- exec:COMMAND ------------------------------------------------------------------ */

static int open_command(const char *command, bool write, struct migrate_end_point *e, struct err *err)
{
	char *argv[] = {"/bin/sh", "-c", (char *)command, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int p[2], rc;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set_errno(err, -errno, "exec:%.100s", command);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, write ? p[0] : p[1], write ? 0 : 1);
	posix_spawnattr_init(&attr);
	sigemptyset(&none);
	sigemptyset(&all);
	sigaddset(&all, SIGPIPE);
	sigaddset(&all, SIGXFSZ);
	sigaddset(&all, SIGINT);
	sigaddset(&all, SIGTERM);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	rc = posix_spawn(&e->child, argv[0], &actions, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	close(write ? p[0] : p[1]);
	e->fd = write ? p[1] : p[0];
	if (!rc)
		return 0;
	e->child = 0;
	return err_set_errno(err, -rc, "exec:%.100s", command);
}

static int wait_command(struct migrate_end_point *e, struct err *err)
{
	int status = 0;

	while (waitpid(e->child, &status, 0) < 0)
		if (errno != EINTR)
			return 0;
	e->child = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFSIGNALED(status))
		return err_set(err, -EIO, "the command was ended by signal %d", WTERMSIG(status));
	return err_set(err, -EIO, "the command ended with status %d", WEXITSTATUS(status));
}

/* ---- tcp:HOST:PORT ----------------------------------------------------------------- */

/* HOST may be empty (any address of this host) or an IPv6 address in brackets. */
static int open_tcp(const char *text, bool write, struct migrate_end_point *e, struct err *err)
{
	const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : "";
	char host[256];
	int lookup, fd;

	if (port[strspn(port, "0123456789")] || !tcp_port_ok(port) || (size_t)(colon - text) >= sizeof(host))
		return err_set(err, -EINVAL, "tcp:%.100s: HOST:PORT is needed", text);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
	if (*host == '[' && host[strlen(host) - 1] == ']') {
		host[strlen(host) - 1] = 0;
		memmove(host, host + 1, strlen(host));
	}
	fd = tcp_open(*host ? host : NULL, port, AF_UNSPEC, !write, &lookup);
	if (lookup)
		return err_set(err, -EINVAL, "tcp:%.100s: %s", text, gai_strerror(lookup));
	if (fd < 0)
		return err_set_errno(err, fd, "tcp:%.100s", text);
	*(write ? &e->fd : &e->listen) = fd;
	return 0;
}

/* ---- unix:PATH, fd:N ----------------------------------------------------------------- */

static int open_unix(const char *path, bool write, struct migrate_end_point *e, struct err *err)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct stat st;
	int fd, rc;

	if (!*path || strlen(path) >= sizeof(a.sun_path))
		return err_set(err, -EINVAL, "unix:%.100s: a path of 1 to %zu characters is needed", path,
			       sizeof(a.sun_path) - 1);
	memcpy(a.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set_errno(err, -errno, "unix:%s", path);
	if (write) {
		e->fd = fd;
		rc = connect(fd, (struct sockaddr *)&a, sizeof(a));
	} else {
		e->listen = fd;
		/* A socket left behind by somebody who has gone. */
		if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
			unlink(path);
		rc = bind(fd, (struct sockaddr *)&a, sizeof(a));
		if (rc == 0) {
			e->path = strdup(path);
			rc = listen(fd, 1);
		}
	}
	return rc < 0 ? err_set_errno(err, -errno, "unix:%s", path) : 0;
}

static int open_fd(const char *text, bool write, struct migrate_end_point *e, struct err *err)
{
	char *end;
	const long n = strtol(text, &end, 10);

	if (end == text || *end || n < 0 || n > 1 << 20 || fcntl((int)n, F_GETFD) < 0)
		return err_set(err, -EINVAL, "fd:%.20s: the number of an open descriptor is needed", text);
	e->fd = fcntl((int)n, F_DUPFD_CLOEXEC, 0);
	return e->fd < 0 ? err_set_errno(err, -errno, "fd:%.20s", text) : 0;
}

/* ---- all of them ----------------------------------------------------------------------- */

int migrate_uri_open(const char *uri, bool write, struct migrate_end_point *e, struct err *err)
{
	static const struct {
		const char *scheme;
		int (*open)(const char *rest, bool write, struct migrate_end_point *e, struct err *err);
	} table[] = {
	    {"file:", open_file}, {"exec:", open_command}, {"unix:", open_unix}, {"tcp:", open_tcp}, {"fd:", open_fd}};

	*e = (struct migrate_end_point){.fd = -1, .listen = -1};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const size_t n = strlen(table[i].scheme);
		int rc;

		if (strncmp(uri, table[i].scheme, n) != 0)
			continue;
		rc = table[i].open(uri + n, write, e, err);
		if (rc < 0)
			migrate_uri_finish(e, false, NULL);
		return rc;
	}
	return err_set(
	    err, -ENOTSUP,
	    "'%.60s' does not exist in Kelvin yet: use file:PATH, exec:COMMAND, unix:PATH, tcp:HOST:PORT or fd:N", uri);
}

int migrate_uri_finish(struct migrate_end_point *e, bool good, struct err *err)
{
	int rc = 0;

	if (e->temp && good)
		rc = name_file(e, err);
	if (e->temp && (!good || rc < 0))
		unlink(e->temp);
	if (e->fd >= 0)
		close(e->fd);
	if (e->listen >= 0) {
		close(e->listen);
		if (e->path)
			unlink(e->path);
	}
	if (e->child && !good)
		kill(e->child, SIGTERM);
	if (e->child) {
		int ended = wait_command(e, good && rc == 0 ? err : NULL);

		rc = good && rc == 0 ? ended : rc;
	}
	free(e->path);
	free(e->temp);
	*e = (struct migrate_end_point){.fd = -1, .listen = -1};
	return rc;
}
