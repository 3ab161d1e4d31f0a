// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer target: a server of FUZZ_TARGET (nbd or iscsi) whose answers are the
 * input's bytes. The first byte says how many canned answers, which let the client
 * get further, come before. tests/fuzz/libfuzzer.sh builds and runs it.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/util.h"
#include "block/block.h"
#include "block/image.h"
#include "io/co.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct loop *loop;
static char url[200];
static int listener;
static uint8_t buf[64 * 1024];

struct answers {
	const uint8_t *data;
	size_t size;
};

/* NBD's greeting, and a disk of 1 MiB for NBD_OPT_GO: flags HAS_FLAGS, SEND_FLUSH, SEND_TRIM, SEND_WRITE_ZEROES. */
static const uint8_t nbd_greeting[] = {'N', 'B', 'D', 'M', 'A', 'G', 'I', 'C', 'I',
				       'H', 'A', 'V', 'E', 'O', 'P', 'T', 0,   0};
static const uint8_t nbd_export[134] = {0, 0, 0, 0, 0, 16, 0, 0, 0, 0x65};

/* What the client said is thrown away; an empty line of it is no reason to wait. */
static bool drain(int fd, int ms)
{
	struct pollfd p = {fd, POLLIN, 0};
	uint8_t in[4096];

	return poll(&p, 1, ms) <= 0 || recv(fd, in, sizeof(in), MSG_DONTWAIT) > 0;
}

static void say(int fd, const void *p, size_t n)
{
	if (n && send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
}

static void *serve(void *arg)
{
	const struct answers *a = arg;
	const int fd = accept(listener, NULL, NULL);
	size_t at = 1;
	const unsigned canned = a->data[0] & 3;

	if (fd < 0)
		return NULL;
	if (canned > 0 && strncmp(url, "nbd", 3) == 0)
		say(fd, nbd_greeting, sizeof(nbd_greeting));
	if (canned > 1 && strncmp(url, "nbd", 3) == 0) {
		/* Old style: the export follows the name at once, without zeroes. */
		drain(fd, 20);
		say(fd, nbd_export, sizeof(nbd_export));
	}
	while (at < a->size) {
		const size_t n = MIN(a->size - at, (size_t)16 + a->data[at]);
		if (!drain(fd, 1))
			break;
		say(fd, a->data + at, n);
		at += n;
	}
	shutdown(fd, SHUT_WR);
	while (drain(fd, 50) && a->size > 100000)
		;
	close(fd);
	return NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct err err = {0};

	loop = loop_create("fuzz", &err);
	if (!getenv("FUZZ_TARGET"))
		return 1;
	if (strcmp(getenv("FUZZ_TARGET"), "nbd") == 0) {
		struct sockaddr_un un = {.sun_family = AF_UNIX};
		snprintf(un.sun_path, sizeof(un.sun_path), "/tmp/kelvin-fuzz-%d", getpid());
		snprintf(url, sizeof(url), "nbd+unix:///x?socket=%s", un.sun_path);
		listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		unlink(un.sun_path);
		return bind(listener, (struct sockaddr *)&un, sizeof(un)) || listen(listener, 4);
	}
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(in);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&in, sizeof(in)) || listen(listener, 4) ||
	    getsockname(listener, (struct sockaddr *)&in, &len))
		return 1;
	snprintf(url, sizeof(url), "iscsi://127.0.0.1:%d/iqn.2026-01.fuzz:t/0", ntohs(in.sin_port));
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct block_open o = {.filename = url, .format = "raw", .writeback = true, .aio = AIO_SYNC};
	static const enum block_op ops[] = {BLOCK_READ, BLOCK_WRITE, BLOCK_FLUSH, BLOCK_DISCARD, BLOCK_WRITE_ZEROES};
	struct answers a = {data, size};
	struct iovec iov = {buf, 8192};
	struct err err = {0};
	struct block_node *n;
	pthread_t thread;

	if (size < 2 || pthread_create(&thread, NULL, serve, &a))
		return 0;
	n = block_open(&o, loop, &err);
	for (size_t i = 0; n && i < ARRAY_SIZE(ops) && block_size(n) >= 65536; i++)
		block_wait(n, ops[i], 0, 4096 * i, ops[i] == BLOCK_FLUSH ? 0 : 8192, &iov, 1);
	block_close(n);
	pthread_join(thread, NULL);
	return 0;
}
