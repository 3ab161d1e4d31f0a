// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer target: a server of FUZZ_TARGET (nbd or iscsi) whose answers the input changes. The client libraries
 * connect to a socket pair; the server's turn comes when they poll with nothing to read, or when the loop is about to
 * sleep. So there are no threads, no waits and no time: connect(), poll(), sleep() and time() below stand before the C
 * library's. tests/fuzz/libfuzzer.sh builds and runs it.
 */
#include "fuzz_store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "block/block.h"
#include "block/image.h"
#include "io/co.h"
#include "io/loop.h"

#define MAX_CONNECTIONS 4
#define MAX_IDLE	1000 /* turns with nothing to come: the client waits for ever */
#define AT_ONCE		4

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t len);
const char *__lsan_default_suppressions(void);

static const struct server_protocol *protocol;
static struct loop *loop;
static struct server server = {.fd = -1};
static time_t seconds = 1700000000;
static uint8_t buf[AT_ONCE][64 * 1024];

static _Noreturn void fail(const char *why)
{
	fprintf(stderr, "%s: %s\n", protocol->name, why);
	abort();
}

/* ---- the server -------------------------------------------------------------------- */

uint64_t server_take(struct server *s, unsigned bytes)
{
	return take(&s->in, bytes);
}

bool server_odd(struct server *s)
{
	return server_take(s, 1) >= 0xc0;
}

void server_end(struct server *s)
{
	if (s->fd >= 0 && !s->ended)
		shutdown(s->fd, SHUT_WR);
	s->ended = true;
}

static void send_bytes(struct server *s, const void *p, size_t n)
{
	if (n && send(s->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
		server_end(s);
}

static void say_raw(struct server *s)
{
	size_t n = server_take(s, 1);

	n = MIN(n, s->in.left);
	if (protocol->spare)
		server_end(s);
	else
		send_bytes(s, s->in.p, n);
	s->in.p += n;
	s->in.left -= n;
}

void server_say(struct server *s, const void *msg, size_t n)
{
	static uint8_t m[SERVER_ROOM];
	const unsigned how = (unsigned)server_take(s, 1);
	uint8_t field[8];
	size_t at = 0;

	if (s->fd < 0 || s->ended || !n)
		return;
	n = MIN(n, sizeof(m) - 8);
	memcpy(m, msg, n);
	if ((how >> 4 & 3) == 2)
		at = server_take(s, 1) % n;
	switch (how >> 3 & 7) {
	case 4: m[at] = (uint8_t)server_take(s, 1); break;
	case 5: /* a field: 16, 32 or 64 bits */
		at = ALIGN_DOWN(at, 2u << how % 3);
		st64le(field, server_take(s, 2u << how % 3));
		memcpy(m + at, field, 2u << how % 3);
		break;
	case 6:
		if (how & 1) {
			send_bytes(s, m, server_take(s, 2) % n);
			server_end(s);
			return;
		}
		if (!protocol->spare)
			say_raw(s); /* before it, or instead of it */
		if (how & 2)
			return;
		break;
	case 7:
		if (how & 1)
			send_bytes(s, m, n);
		else
			for (unsigned k = 0; k < (how & 6); k++)
				m[server_take(s, 2) % n] = (uint8_t)server_take(s, 1);
		break;
	default: break;
	}
	if (protocol->spare)
		protocol->spare(m, msg, n);
	send_bytes(s, m, n);
}

static void disconnect(struct server *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

/* Takes what the client said. False: nothing. */
static bool listen_to_client(struct server *s)
{
	const ssize_t n = recv(s->fd, s->got + s->ngot, sizeof(s->got) - s->ngot, MSG_DONTWAIT);
	size_t used, at = 0;

	if (n == 0)
		disconnect(s);
	if (n <= 0)
		return false;
	s->ngot += (size_t)n;
	while (!s->ended && at < s->ngot && (used = protocol->hear(s, s->got + at, s->ngot - at)) != 0)
		at += MIN(used, s->ngot - at);
	if (s->ended)
		at = s->ngot;
	memmove(s->got, s->got + at, s->ngot - at);
	s->ngot -= at;
	if (s->ngot == sizeof(s->got))
		server_end(s);
	return true;
}

/* The client may have something to do now. `waiting`: it has nothing else that it could do. */
static bool turn(struct server *s, bool waiting)
{
	int unread = 0;

	if (s->fd < 0)
		return false;
	if (ioctl(s->fd, SIOCOUTQ, &unread) == 0 && unread > 0)
		return false;
	if (listen_to_client(s))
		return true;
	if (s->fd < 0 || s->ended || !waiting)
		return false;
	if (s->in.left)
		say_raw(s);
	else
		server_end(s);
	return true;
}

/* ---- before the C library ---------------------------------------------------------------- */

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	int pair[2];
	const int flags = fcntl(fd, F_GETFL);

	if (server.fd >= 0 || ++server.connections > MAX_CONNECTIONS) {
		errno = ECONNREFUSED;
		return -1;
	}
	if (flags < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -1;
	dup2(pair[0], fd);
	close(pair[0]);
	fcntl(fd, F_SETFL, flags);
	server.fd = pair[1];
	server.ended = false;
	server.ngot = 0;
	protocol->connected(&server);
	return 0;
}

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	for (;;) {
		const struct timespec none = {0};
		const long ret = syscall(SYS_ppoll, fds, n, &none, NULL, 0);

		if (ret || !timeout)
			return (int)ret;
		if (turn(&server, true))
			continue;
		if (++server.idle > MAX_IDLE)
			fail("the client polls for ever");
		seconds += timeout < 0 ? 60 : timeout / 1000 + 1;
		return 0;
	}
}

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t len)
{
	return poll(fds, n, timeout);
}

unsigned sleep(unsigned s)
{
	seconds += s;
	return 0;
}

time_t time(time_t *t)
{
	if (t)
		*t = seconds;
	return seconds;
}

/* What the libraries keep after a login that failed, or after an answer that they did not expect. */
const char *__lsan_default_suppressions(void)
{
	return "leak:libiscsi.so\nleak:libnbd.so\n";
}

/* ---- the client ----------------------------------------------------------------------------- */

static void run_out(void *arg)
{
	struct server *s = arg;

	s->idle_told = true;
}

/* Before the loop sleeps. What others posted is done before the client counts as waiting. */
static bool before_sleep(void *arg)
{
	struct server *s = arg;
	const bool waiting = s->idle_told;

	s->idle_told = false;
	if (turn(s, waiting))
		return true;
	if (++s->idle > MAX_IDLE)
		fail("a request never ends");
	loop_post(loop, run_out, s); /* so that it does not sleep */
	return false;
}

static struct loop_hook hook = {.fn = before_sleep, .arg = &server};

static void done(struct block_req *req)
{
	++*(unsigned *)req->opaque;
}

static void use(struct block_node *n)
{
	static const enum block_op ops[] = {BLOCK_READ, BLOCK_WRITE, BLOCK_FLUSH, BLOCK_DISCARD, BLOCK_WRITE_ZEROES};
	struct iovec iov[AT_ONCE];
	struct block_req req[AT_ONCE] = {0};
	unsigned ended = 0;

	if (block_size(n) < 65536)
		return;
	for (unsigned k = 0; k < AT_ONCE; k++)
		iov[k] = (struct iovec){buf[k], 8192};
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		block_wait(n, ops[i], 0, 4096 * i, ops[i] == BLOCK_FLUSH ? 0 : 8192, iov, 1);
	for (unsigned k = 0; k < AT_ONCE; k++) {
		req[k] = (struct block_req){
		    .op = ops[k % 3], .offset = 8192 * k, .iov = &iov[k], .niov = 1, .done = done, .opaque = &ended};
		req[k].len = req[k].op == BLOCK_FLUSH ? 0 : 8192;
		block_submit(n, &req[k]);
	}
	while (ended < AT_ONCE)
		loop_run_once(loop, -1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct err err = {0};
	const char *target = getenv("FUZZ_TARGET");

	protocol = target && !strcmp(target, "iscsi") ? &fuzz_iscsi_server : &fuzz_nbd_server;
	loop = loop_create("fuzz", &err);
	if (!loop)
		return 1;
	loop_add_hook(loop, &hook);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct block_open o = {.filename = protocol->url, .format = "raw", .writeback = true, .aio = AIO_SYNC};
	struct err err = {0};
	struct block_node *n;

	server.in = (struct input){data, size};
	server.connections = server.idle = 0;
	server.idle_told = false;
	n = block_open(&o, loop, &err);
	if (n)
		use(n);
	block_close(n);
	disconnect(&server);
	return 0;
}
