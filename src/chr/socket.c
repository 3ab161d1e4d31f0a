// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Unix and TCP sockets, as server (one client at a time; the next waits in the
 * backlog) or client, optionally with the Telnet protocol (RFC 854: only what
 * makes a telnet client send characters as they are typed).
 *
 * Socket files of servers are removed at exit, also from a fatal signal handler:
 * their paths are kept in a static table, with the inode, so that a file that
 * another program has put there since is left alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/log.h"
#include "base/util.h"
#include "chr/chr_impl.h"
#include "io/tcp.h"

/* Telnet commands and options, RFC 854, 856, 857, 858 */
#define TELNET_SE	240
#define TELNET_SB	250
#define TELNET_WILL	251
#define TELNET_DO	253
#define TELNET_DONT	254
#define TELNET_IAC	255
#define TELNET_BINARY	0
#define TELNET_ECHO	1
#define TELNET_SGA	3
#define SOCKET_MAX_PATH 64 /* socket files remembered */

#define WAIT_POLL_MS 100

struct chr_socket {
	struct chr chr;
	char *path, *host, *port;
	bool server, wait, telnet, nodelay, delay, ipv4, ipv6;
	int64_t fd;
	int listen_fd;
	/* Telnet decoder: 0 data, 1 after IAC, 2 after IAC WILL..DONT, 3 in a subnegotiation, 4 IAC in it. */
	unsigned telnet_state;
};

static struct {
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	dev_t dev;
	ino_t ino;
} socket_files[SOCKET_MAX_PATH];
static volatile unsigned socket_nfiles;

void chr_remember_socket_file(const char *path)
{
	struct stat st;

	if (socket_nfiles == SOCKET_MAX_PATH || stat(path, &st) < 0)
		return;
	unsigned i = socket_nfiles;
	snprintf(socket_files[i].path, sizeof(socket_files[i].path), "%s", path);
	socket_files[i].dev = st.st_dev;
	socket_files[i].ino = st.st_ino;
	socket_nfiles = i + 1;
}

void chr_remove_socket_files(void)
{
	struct stat st;

	for (unsigned i = 0; i < socket_nfiles; i++)
		if (stat(socket_files[i].path, &st) == 0 && st.st_dev == socket_files[i].dev &&
		    st.st_ino == socket_files[i].ino)
			unlink(socket_files[i].path);
	socket_nfiles = 0;
}

/* ---- one connection ------------------------------------------------------------- */

static void socket_describe(struct chr_socket *s, int fd)
{
	char *d = s->chr.description;
	size_t n = sizeof(s->chr.description);
	const char *tail = s->server ? ",server=on" : "";
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	char host[128] = "", port[32] = "";

	if (s->path) {
		snprintf(d, n, "unix:%s%s", s->path, tail);
		return;
	}
	/* The real address: port 0 has become a number. */
	if (fd >= 0 && getsockname(fd, (struct sockaddr *)&sa, &len) == 0 &&
	    getnameinfo((struct sockaddr *)&sa, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) == 0 &&
	    s->server)
		snprintf(d, n, "%s:%s:%s%s", s->telnet ? "telnet" : "tcp", host, port, tail);
	else if (s->host)
		snprintf(d, n, "%s:%s:%s%s", s->telnet ? "telnet" : "tcp", s->host, s->port, tail);
	else
		snprintf(d, n, "fd:%d%s", (int)s->fd, tail);
}

static int socket_use(struct chr_socket *s, int fd)
{
	static const uint8_t hello[] = {TELNET_IAC, TELNET_WILL, TELNET_ECHO,	TELNET_IAC, TELNET_WILL, TELNET_SGA,
					TELNET_IAC, TELNET_WILL, TELNET_BINARY, TELNET_IAC, TELNET_DO,	 TELNET_BINARY};
	int one = 1;

	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (!s->path && s->nodelay && s->delay)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	int ret = chr_set_fds(&s->chr, fd, fd);
	if (ret) {
		close(fd);
		return ret;
	}
	s->telnet_state = 0;
	/* A full buffer is impossible on a new connection. */
	if (s->telnet && send(fd, hello, sizeof(hello), MSG_NOSIGNAL) < 0)
		log_diag(LOG_IO, "chardev '%s': %s", s->chr.id, strerror(errno));
	chr_set_connected(&s->chr, true);
	return 0;
}

static void socket_accept(void *arg, unsigned events)
{
	struct chr_socket *s = arg;

	if (s->chr.rfd >= 0)
		return;
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	loop_rewatch(s->chr.loop, s->listen_fd, 0);
	if (socket_use(s, fd))
		loop_rewatch(s->chr.loop, s->listen_fd, LOOP_READ);
}

static void socket_ended(struct chr *c)
{
	struct chr_socket *s = (struct chr_socket *)c;

	chr_clear_fds(c);
	chr_event_all(c, CHR_CLOSED);
	if (s->listen_fd >= 0)
		loop_rewatch(c->loop, s->listen_fd, LOOP_READ);
}

/* Take Telnet's commands out of the input. */
static size_t socket_filter(struct chr *c, uint8_t *buf, size_t len)
{
	struct chr_socket *s = (struct chr_socket *)c;
	size_t out = 0;

	if (!s->telnet)
		return len;
	for (size_t i = 0; i < len; i++) {
		uint8_t b = buf[i];
		switch (s->telnet_state) {
		case 0:
			if (b == TELNET_IAC)
				s->telnet_state = 1;
			else
				buf[out++] = b;
			break;
		case 1:
			s->telnet_state = b >= TELNET_WILL && b <= TELNET_DONT ? 2 : b == TELNET_SB ? 3 : 0;
			if (b == TELNET_IAC)
				buf[out++] = b;
			break;
		case 2: s->telnet_state = 0; break;
		case 3: s->telnet_state = b == TELNET_IAC ? 4 : 3; break;
		default: s->telnet_state = b == TELNET_SE ? 0 : 3; break;
		}
	}
	return out;
}

/* ---- opening ---------------------------------------------------------------------- */

static int socket_unix(struct chr_socket *s, struct err *err)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct stat st;

	if (strlen(s->path) >= sizeof(sa.sun_path))
		return err_set(err, -ENAMETOOLONG, "socket path '%s' is too long: at most %zu bytes", s->path,
			       sizeof(sa.sun_path) - 1);
	strcpy(sa.sun_path, s->path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set_errno(err, -errno, "cannot create a socket");
	int ret;
	if (s->server) {
		/* A socket that an earlier run left behind; never any other kind of file. */
		if (lstat(s->path, &st) == 0 && S_ISSOCK(st.st_mode))
			unlink(s->path);
		ret = bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 1) < 0 ? -errno : 0;
		if (!ret)
			chr_remember_socket_file(s->path);
	} else {
		ret = connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ? -errno : 0;
	}
	if (ret) {
		close(fd);
		return err_set_errno(err, ret, "cannot %s '%s'", s->server ? "listen on" : "connect to", s->path);
	}
	return fd;
}

static int socket_tcp(struct chr_socket *s, struct err *err)
{
	const char *host = s->host && *s->host ? s->host : NULL;
	int lookup, ret;

	if (!s->port)
		return err_set(err, -EINVAL, "a TCP socket needs port=");
	if (!tcp_port_ok(s->port))
		return err_set(err, -EINVAL, "port '%s' is not a TCP port: expected 0 to 65535", s->port);
	ret = tcp_open(host, s->port, s->ipv4 ? AF_INET : s->ipv6 ? AF_INET6 : AF_UNSPEC, s->server, &lookup);
	if (lookup)
		return err_set(err, -EINVAL, "cannot look up '%s' port '%s': %s", host ? host : "", s->port,
			       gai_strerror(lookup));
	if (ret < 0)
		return err_set_errno(err, ret, "cannot %s '%s' port %s", s->server ? "listen on" : "connect to",
				     host ? host : "", s->port);
	return ret;
}

/* wait=on: the machine is not built before somebody has come. A signal ends the wait. */
static int socket_wait_client(struct chr_socket *s, struct err *err)
{
	log_info("waiting for a connection on %s", s->chr.description);
	/* With a timeout, because a signal may come just before the call. */
	struct pollfd p = {.fd = s->listen_fd, .events = POLLIN};
	while (poll(&p, 1, WAIT_POLL_MS) <= 0)
		if (chr_interrupted())
			return err_set_errno(err, -EINTR, "no connection on '%s'", s->chr.description);
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return err_set_errno(err, -errno, "no connection on '%s'", s->chr.description);
	loop_rewatch(s->chr.loop, s->listen_fd, 0);
	int ret = socket_use(s, fd);
	return ret ? err_set_errno(err, ret, "cannot watch the connection") : 0;
}

static int socket_open(struct chr *c, struct err *err)
{
	struct chr_socket *s = (struct chr_socket *)c;

	s->listen_fd = -1;
	if (!!s->path + !!s->port + (s->fd >= 0) != 1)
		return err_set(err, -EINVAL, "a socket needs one of path=, port= (with host=) and fd=");
	/* A copy of an inherited one: the option may name it twice. */
	int fd = s->fd >= 0 ? fcntl((int)MIN(s->fd, INT32_MAX), F_DUPFD_CLOEXEC, 3)
		 : s->path  ? socket_unix(s, err)
			    : socket_tcp(s, err);
	struct stat st;
	if (s->fd >= 0 && (fd < 0 || fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode))) {
		if (fd >= 0)
			close(fd);
		return err_set(err, -ENOTSOCK, "descriptor %lld is not a socket", (long long)s->fd);
	}
	if (fd < 0)
		return fd;
	socket_describe(s, fd);
	if (!s->server) {
		int ret = socket_use(s, fd);
		return ret ? err_set_errno(err, ret, "cannot watch the connection") : 0;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	int ret = loop_watch(c->loop, fd, LOOP_READ, socket_accept, s);
	if (ret) {
		close(fd);
		return err_set_errno(err, ret, "cannot watch the socket");
	}
	s->listen_fd = fd;
	if (s->wait && (ret = socket_wait_client(s, err)))
		return ret;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	return 0;
}

static void socket_close(struct chr *c)
{
	struct chr_socket *s = (struct chr_socket *)c;

	if (s->listen_fd < 0 || !c->description[0])
		return;
	loop_unwatch(c->loop, s->listen_fd);
	close(s->listen_fd);
	s->listen_fd = -1;
}

#define OFF(f) offsetof(struct chr_socket, f)
static const struct prop socket_props[] = {
    {.name = "path", .kind = PROP_STR, .offset = OFF(path), .help = "of a Unix socket"},
    {.name = "host", .kind = PROP_STR, .offset = OFF(host), .help = "name or address"},
    {.name = "port", .kind = PROP_STR, .offset = OFF(port), .help = "TCP port; a server may use 0"},
    {.name = "fd", .kind = PROP_I64, .offset = OFF(fd), .def = "-1", .help = "an inherited socket"},
    {.name = "server", .kind = PROP_BOOL, .offset = OFF(server), .help = "listen"},
    {.name = "wait", .kind = PROP_BOOL, .offset = OFF(wait), .def = "on", .help = "server: start when connected"},
    {.name = "telnet", .kind = PROP_BOOL, .offset = OFF(telnet), .help = "speak the Telnet protocol"},
    {.name = "nodelay", .kind = PROP_BOOL, .offset = OFF(nodelay), .def = "on", .help = "send small packets at once"},
    {.name = "delay", .kind = PROP_BOOL, .offset = OFF(delay), .def = "on", .help = "the opposite of nodelay"},
    {.name = "ipv4", .kind = PROP_BOOL, .offset = OFF(ipv4), .help = "only IPv4"},
    {.name = "ipv6", .kind = PROP_BOOL, .offset = OFF(ipv6), .help = "only IPv6"},
    {.name = NULL},
};
const struct chr_ops chr_socket_ops = {
    .type = {.name = "socket",
	     .about = "a Unix or TCP socket",
	     .parent = "chardev",
	     .size = sizeof(struct chr_socket),
	     .props = socket_props},
    .open = socket_open,
    .ended = socket_ended,
    .filter = socket_filter,
    .close = socket_close,
};
