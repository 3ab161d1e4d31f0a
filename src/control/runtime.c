// SPDX-License-Identifier: GPL-2.0-or-later
/* The socket of `kelvin top`. Main loop's thread; one machine in a process. */
#include "control/runtime.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/log.h"
#include "control/json.h"

static struct {
	int fd;
	struct vm *vm;
	struct sockaddr_un at;
} runtime = {.fd = -1};

int runtime_folder(char *out, size_t n, bool make)
{
	const char *given = getenv("XDG_RUNTIME_DIR");
	struct stat st;
	char user[64];

	snprintf(user, sizeof(user), "/run/user/%u", (unsigned)geteuid());
	/* Room for "/PID.sock" in a socket's address. */
	if (given && *given == '/' && strlen(given) + 8 < n && stat(given, &st) == 0)
		snprintf(out, n, "%s/kelvin", given);
	else if (stat(user, &st) == 0)
		snprintf(out, n, "%s/kelvin", user);
	else
		snprintf(out, n, "/tmp/kelvin-%u", (unsigned)geteuid());
	if (make && mkdir(out, 0700) && errno != EEXIST)
		return -errno;
	/* In /tmp anybody could have put something of that name there first: no link, ours, closed to others. */
	if (lstat(out, &st))
		return -errno;
	return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077) ? 0 : -EPERM;
}

static char *document(void)
{
	char *stats = vm_stats_text(runtime.vm), *text = NULL;
	json_t *o = json_object();
	const char *name = vm_config_of(runtime.vm)->name;

	json_object_set_new(o, "pid", json_integer(getpid()));
	json_object_set_new(o, "name", json_text(name ? name : ""));
	if (stats)
		json_object_set_new(o, "stats", json_loads(stats, 0, NULL));
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	free(stats);
	return text;
}

/* The whole document fits the socket's buffer; what does not is cut, never waited for. */
static void on_connection(void *arg, unsigned events)
{
	int fd = accept4(runtime.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), room = 1 << 20;
	char *text = fd >= 0 ? document() : NULL;

	if (text) {
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
		if (send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			log_diag(LOG_QMP, "runtime socket: %s", strerror(errno));
	}
	free(text);
	if (fd >= 0)
		close(fd);
}

void runtime_open(struct loop *l, struct vm *vm)
{
	char folder[80];
	int ret = runtime_folder(folder, sizeof(folder), true);

	runtime.vm = vm;
	runtime.at = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(runtime.at.sun_path, sizeof(runtime.at.sun_path), "%s/%d.sock", folder, (int)getpid());
	if (!ret) {
		unlink(runtime.at.sun_path);
		runtime.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (runtime.fd < 0 || bind(runtime.fd, (struct sockaddr *)&runtime.at, sizeof(runtime.at)) ||
		    listen(runtime.fd, 8))
			ret = -errno;
	}
	if (!ret)
		ret = loop_watch(l, runtime.fd, LOOP_READ, on_connection, NULL);
	if (!ret)
		return;
	log_diag(LOG_QMP, "kelvin top will not find this machine: '%s': %s", folder, strerror(-ret));
	if (runtime.fd >= 0)
		close(runtime.fd);
	runtime.fd = -1;
}

void runtime_close(struct loop *l)
{
	if (runtime.fd < 0)
		return;
	loop_unwatch(l, runtime.fd);
	close(runtime.fd);
	unlink(runtime.at.sun_path);
	runtime.fd = -1;
}
