// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How many host operations a qcow2 request waits for, one after the other: on a
 * store whose every operation takes a delay, 32 allocating writes in different L2
 * tables take fewer than six, their flush no more, and reads elsewhere none that
 * are not their own. Delays are counted, not timed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "io/co.h"
#include "store.h"

#define TABLES 32u
#define SPAN   (512 * MIB) /* of an L2 table with clusters of 64 KiB */

static struct loop *loop;
static char dir[] = "/tmp/kelvin-delay-XXXXXX";

struct io {
	struct block_req req;
	struct iovec iov;
	bool done;
};

static void io_done(struct block_req *req)
{
	((struct io *)req->opaque)->done = true;
}

static void submit(struct block_node *n, struct io *i, enum block_op op, uint64_t offset, void *buf, uint64_t len)
{
	*i = (struct io){.iov = {buf, len}};
	i->req = (struct block_req){.op = op, .offset = offset, .len = len, .iov = &i->iov, .niov = buf ? 1 : 0};
	i->req.done = io_done;
	i->req.opaque = i;
	block_submit(n, &i->req);
}

static void settle(struct block_node *n, struct store *s)
{
	do {
		block_flush_queue(n);
		loop_run_once(loop, 0);
	} while (s->running);
}

/* Delays until all of them are done. */
static unsigned delays(struct block_node *n, struct store *s, struct io *const *io, unsigned count)
{
	const unsigned before = s->delays;

	for (;;) {
		bool all = true;
		settle(n, s);
		for (unsigned i = 0; i < count; i++)
			all &= io[i]->done;
		if (all)
			break;
		assert_true(store_tick(s));
	}
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(io[i]->req.result, 0);
	return s->delays - before;
}

static void shell(const char *cmd)
{
	char text[1000];

	snprintf(text, sizeof(text), "cd %s && (%s) >log 2>&1 || { cat log >&2; false; }", dir, cmd);
	if (system(text) != 0)
		fail_msg("%s", cmd);
}

static struct block_node *open_image(struct store *s, bool writeback)
{
	char path[64];
	struct block_open o = {.filename = path, .format = "qcow2", .writeback = writeback, .discard_unmap = true};
	struct err err = {0};
	struct block_node *n;

	snprintf(path, sizeof(path), "%s/w.qcow2", dir);
	o.aio = AIO_SYNC;
	n = block_open(&o, loop, &err);
	if (!n)
		fail_msg("%s", err.msg);
	store_attach(s, n, path);
	s->delaying = true;
	return n;
}

static void close_image(struct block_node *n, struct store *s)
{
	s->delaying = false;
	while (store_tick(s))
		;
	store_detach(s, n);
	block_close(n);
	shell("qemu-img check w.qcow2");
}

/* One cluster in each table, so that all tables exist. */
static void make(const char *options)
{
	char cmd[300];

	snprintf(cmd, sizeof(cmd),
		 "rm -f w.qcow2; qemu-img create -f qcow2 %s w.qcow2 16G; for i in $(seq 0 31); do echo write -P 1 "
		 "$((i * 512))M 4k; done | qemu-io w.qcow2",
		 options);
	shell(cmd);
}

static void allocate(const char *options, const char *then)
{
	static uint8_t buf[4096];
	struct io io[TABLES], read, flush, *all[TABLES], *one = &read, *last = &flush;
	struct store s;
	struct block_node *n;
	unsigned d;

	make(options);
	if (then)
		shell(then);
	n = open_image(&s, true);
	/* The read's table is known before. */
	submit(n, &read, BLOCK_READ, 0, buf, sizeof(buf));
	assert_in_range(delays(n, &s, &one, 1), 1, 2);
	for (unsigned i = 0; i < TABLES; i++) {
		submit(n, &io[i], BLOCK_WRITE, i * SPAN + 128 * MIB + 4096, buf, sizeof(buf));
		all[i] = &io[i];
	}
	submit(n, &read, BLOCK_READ, 0, buf, sizeof(buf));
	assert_int_equal(delays(n, &s, &one, 1), 1);
	d = 1 + delays(n, &s, all, TABLES);
	print_message("%s%s: %u delays\n", options, then ? ", shared tables" : "", d);
	assert_in_range(d, 1, 5);
	submit(n, &flush, BLOCK_FLUSH, 0, NULL, 0);
	/* While tables are written out, reads go on. */
	settle(n, &s);
	submit(n, &read, BLOCK_READ, 0, buf, sizeof(buf));
	assert_int_equal(delays(n, &s, &one, 1), 1);
	d = 1 + delays(n, &s, &last, 1);
	print_message("flush: %u delays\n", d);
	assert_in_range(d, 1, 6);
	close_image(n, &s);
}

static void test_allocating(void **state)
{
	allocate("", NULL);
	allocate("-o extended_l2=on,cluster_size=128k", NULL);
	allocate("", "qemu-img snapshot -c s w.qcow2");
	shell("qemu-img create -f raw b.raw 16G");
	allocate("-b b.raw -F raw", NULL);
}

/* Writes that are durable when they complete share flushes: two of them, one on its way and one for all others. */
static void test_writethrough(void **state)
{
	static uint8_t buf[4096];
	struct io io[TABLES], *all[TABLES];
	struct store s;
	struct block_node *n;
	unsigned d;

	make("");
	n = open_image(&s, false);
	for (unsigned i = 0; i < TABLES; i++) {
		submit(n, &io[i], BLOCK_WRITE, i * SPAN + 128 * MIB, buf, sizeof(buf));
		all[i] = &io[i];
	}
	d = delays(n, &s, all, TABLES);
	print_message("32 durable writes: %u delays\n", d);
	assert_in_range(d, 1, 13);
	close_image(n, &s);
}

static int setup(void **state)
{
	struct err err = {0};

	loop = loop_create("test", &err);
	return loop && mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char cmd[100];

	loop_destroy(loop);
	co_pool_free();
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_allocating),
	    cmocka_unit_test(test_writethrough),
	};
	if (system("command -v qemu-img >/dev/null") != 0)
		return 77; /* skipped: nothing to make images with */
	return cmocka_run_group_tests(tests, setup, teardown);
}
