// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What -drive and -blockdev add to a node: temporary overlays, limits of
 * requests and bytes, node names. Limits are tested from the safe side: requests
 * never pass sooner than allowed, however loaded the machine is.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/object.h"
#include "base/util.h"
#include "block/block.h"
#include "block/image.h"
#include "io/co.h"

static struct loop *loop;
static char dir[] = "/var/tmp/kelvin-drive-XXXXXX";
static uint8_t buf[256 * 1024];

static void make(const char *name, uint8_t byte)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	memset(buf, byte, sizeof(buf));
	for (int i = 0; i < 16; i++)
		assert_int_equal(write(fd, buf, sizeof(buf)), sizeof(buf));
	close(fd);
}

static uint8_t first_byte(const char *name)
{
	char path[100];
	uint8_t b;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, &b, 1), 1);
	close(fd);
	return b;
}

static struct drive *drive(const char *opts, struct err *err)
{
	char text[300];

	memset(err, 0, sizeof(*err));
	snprintf(text, sizeof(text), "if=none,file=%s/%s", dir, opts);
	return drive_create(text, loop, err);
}

static int run(struct block_node *n, enum block_op op, uint64_t offset, uint64_t len)
{
	struct iovec iov = {buf, len};

	return block_wait(n, op, 0, offset, len, &iov, 1);
}

/* ---- snapshot=on --------------------------------------------------------------- */

static unsigned files_in_dir(void)
{
	char cmd[200], out[20] = "";
	FILE *f;

	snprintf(cmd, sizeof(cmd), "ls %s | wc -l", dir);
	f = popen(cmd, "r");
	if (!fgets(out, sizeof(out), f))
		fail();
	pclose(f);
	return (unsigned)atoi(out);
}

static void test_snapshot(void **state)
{
	struct err err = {0};
	struct drive *d, *e;

	make("a.raw", 1);
	setenv("TMPDIR", dir, 1);
	d = drive("a.raw,format=raw,id=s1,snapshot=on", &err);
	assert_non_null(d);
	assert_int_equal(files_in_dir(), 1); /* the overlay has no name */
	assert_false(block_read_only(d->node));
	memset(buf, 9, 4096);
	assert_int_equal(run(d->node, BLOCK_WRITE, 0, 4096), 0);
	memset(buf, 0, 8192);
	assert_int_equal(run(d->node, BLOCK_READ, 0, 8192), 0);
	assert_true(buf[0] == 9 && buf[4095] == 9 && buf[4096] == 1);
	/* The image itself is only read: a second user of the kind is welcome. */
	e = drive("a.raw,format=raw,id=s2,snapshot=on", &err);
	assert_non_null(e);
	assert_int_equal(run(e->node, BLOCK_READ, 0, 512), 0);
	assert_int_equal(buf[0], 1);
	drive_close_all();
	assert_int_equal(first_byte("a.raw"), 1);
	setenv("TMPDIR", "/nonexistent", 1);
	assert_null(drive("a.raw,format=raw,id=s3,snapshot=on", &err));
	assert_non_null(strstr(err.msg, "/nonexistent"));
	unsetenv("TMPDIR");
}

/* ---- limits ---------------------------------------------------------------------- */

struct flood {
	struct block_req req;
	struct iovec iov;
	unsigned *left;
	int result;
};

static void flood_done(struct block_req *req)
{
	struct flood *f = req->opaque;

	f->result = req->result;
	--*f->left;
}

/* Seconds for n requests at once. */
static double flood(struct block_node *n, enum block_op op, unsigned count, uint64_t len)
{
	struct flood *f = calloc(count, sizeof(*f));
	const uint64_t begin = clock_raw_ns();
	unsigned left = count;

	for (unsigned i = 0; i < count; i++) {
		f[i].left = &left;
		f[i].iov = (struct iovec){buf, len};
		f[i].req = (struct block_req){.op = op, .len = len, .iov = &f[i].iov, .niov = 1, .done = flood_done};
		f[i].req.opaque = &f[i];
		block_submit(n, &f[i].req);
	}
	while (left) {
		block_flush_queue(n);
		if (left)
			loop_run_once(loop, -1);
	}
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(f[i].result, 0);
	free(f);
	return (double)(clock_raw_ns() - begin) / 1e9;
}

static void takes(const char *opts, enum block_op op, unsigned count, uint64_t len, double least)
{
	struct err err = {0};
	struct drive *d;
	double s;

	d = drive(opts, &err);
	if (!d)
		fail_msg("%s", err.msg);
	s = flood(d->node, op, count, len);
	if (s < least)
		fail_msg("%s: %u requests took %.3f s, not %.3f", opts, count, s, least);
	drive_close_all();
}

static void test_limits(void **state)
{
	make("a.raw", 1);
	/* A tenth of a second's worth passes at once (and one request above). */
	takes("a.raw,format=raw,throttling.iops-total=200", BLOCK_READ, 100, 4096, 0.39);
	takes("a.raw,format=raw,iops=200", BLOCK_WRITE, 61, 4096, 0.19);
	takes("a.raw,format=raw,bps=1M", BLOCK_READ, 8, 64 * 1024, 0.3);
	takes("a.raw,format=raw,bps_wr=1M", BLOCK_WRITE, 8, 64 * 1024, 0.3);
	takes("a.raw,format=raw,throttling.iops-write=100,throttling.iops-size=4096", BLOCK_WRITE, 10, 16384, 0.2);
	/* A burst of one second at 200 before the 50 a second begin. */
	takes("a.raw,format=raw,iops=50,iops_max=200", BLOCK_READ, 211, 512, 0.19);
	takes("a.raw,format=raw,iops=50,iops_max=200,iops_max_length=2", BLOCK_READ, 100, 512, 0.39);
}

static void test_unlimited(void **state)
{
	struct err err = {0};
	struct drive *d;

	/* A limit of hours for writes: reads, flushes and the end of the drive do not wait for it. */
	d = drive("a.raw,format=raw,iops_wr=1", &err);
	assert_non_null(d);
	flood(d->node, BLOCK_READ, 100, 4096);
	flood(d->node, BLOCK_FLUSH, 100, 0);
	for (int i = 0; i < 50; i++) {
		static struct flood f[50];
		static unsigned left;
		f[i].left = &left;
		left++;
		f[i].iov = (struct iovec){buf, 4096};
		f[i].req = (struct block_req){.op = BLOCK_WRITE, .len = 4096, .iov = &f[i].iov, .niov = 1};
		f[i].req.done = flood_done;
		f[i].req.opaque = &f[i];
		block_submit(d->node, &f[i].req);
	}
	drive_close_all();
}

static void test_group(void **state)
{
	struct err err = {0};
	struct drive *a, *b;
	double s;

	make("a.raw", 1);
	make("b.raw", 2);
	a = drive("a.raw,format=raw,id=g1,iops=200,group=both", &err);
	b = drive("b.raw,format=raw,id=g2,iops=200,group=both", &err);
	assert_true(a && b);
	s = flood(a->node, BLOCK_READ, 50, 512) + flood(b->node, BLOCK_READ, 50, 512);
	if (s < 0.39)
		fail_msg("a group of two took %.3f s", s);
	drive_close_all();
}

static void test_group_object(void **state)
{
	struct err err = {0};
	struct drive *d;
	char text[200];
	double s;

	make("a.raw", 1);
	assert_int_equal(object_create("throttle-group,id=tg,x-iops-total=200", &err), 0);
	snprintf(text, sizeof(text), "driver=raw,file.filename=%s/a.raw,node-name=under", dir);
	assert_int_equal(blockdev_create(text, loop, &err), 0);
	assert_int_equal(blockdev_create("driver=throttle,throttle-group=nosuch,file=under,node-name=t", loop, &err),
			 -ENOENT);
	assert_int_equal(blockdev_create(text, loop, &err), 0); /* the refused one is gone */
	assert_int_equal(blockdev_create("driver=throttle,throttle-group=tg,file=under,node-name=t", loop, &err), 0);
	d = drive_find("t");
	assert_non_null(d);
	s = flood(d->node, BLOCK_READ, 100, 512);
	if (s < 0.39)
		fail_msg("-blockdev driver=throttle took %.3f s", s);
	drive_close_all();
	blockdev_free_all();
	object_destroy_all();
}

/* ---- -blockdev -------------------------------------------------------------------- */

static int blockdev(const char *fmt, struct err *err)
{
	char text[500];

	memset(err, 0, sizeof(*err));
	snprintf(text, sizeof(text), fmt, dir, dir);
	return blockdev_create(text, loop, err);
}

static void *link_to(const char *name)
{
	struct link {
		void *drive;
	} l = {0};
	static const struct prop props[] = {{.name = "drive", .kind = PROP_LINK, .link_kind = "drive"}, {0}};
	static const struct type type = {.name = "t", .size = sizeof(struct link), .props = props};
	struct err err = {0};

	return type_set(&type, &l, "drive", name, &err) ? NULL : l.drive;
}

static void test_blockdev(void **state)
{
	struct err err = {0};
	struct drive *d;
	char cmd[300];

	make("a.raw", 5);
	make("b.raw", 6);
	snprintf(cmd, sizeof(cmd), "cd %s && qemu-img create -q -f qcow2 -b a.raw -F raw o.qcow2", dir);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(blockdev("driver=file,filename=%s/a.raw,node-name=f0", &err), 0);
	assert_int_equal(blockdev("driver=raw,file=f0,node-name=n0,read-only=on", &err), 0);
	assert_int_equal(blockdev("{\"driver\":\"file\",\"filename\":\"%s/b.raw\",\"node-name\":\"f1\"}", &err), 0);
	/* An overlay whose backing file is replaced by another node. */
	assert_int_equal(blockdev("driver=qcow2,file.filename=%s/o.qcow2,backing=f1,node-name=n1", &err), 0);
	assert_int_equal(blockdev("driver=qcow2,file.filename=%s/o.qcow2,node-name=n1", &err), -EEXIST);
	assert_int_equal(blockdev("driver=null-co,size=1M,read-zeroes=on,node-name=z", &err), 0);
	assert_int_equal(blockdev("driver=raw,file=nothere,node-name=n2", &err), -ENOENT);
	assert_int_equal(blockdev("driver=raw,file.filename=%s/a.raw", &err), -EINVAL);
	assert_int_equal(blockdev("driver=raw,file.filename=%s/a.raw,node-name=n3,nonsense=1", &err), -EINVAL);
	d = link_to("n0");
	assert_non_null(d);
	assert_true(block_read_only(d->node));
	assert_int_equal(run(d->node, BLOCK_READ, 0, 512), 0);
	assert_int_equal(buf[0], 5);
	d = link_to("n1");
	assert_non_null(d);
	assert_int_equal(run(d->node, BLOCK_READ, 0, 512), 0);
	assert_int_equal(buf[0], 6);
	assert_null(link_to("f0")); /* in use by n0 */
	assert_null(link_to("f1"));
	d = link_to("z"); /* a protocol as a raw disk */
	assert_non_null(d);
	assert_int_equal(block_size(d->node), MIB);
	memset(buf, 1, 512);
	assert_int_equal(run(d->node, BLOCK_WRITE, 0, 512), 0);
	assert_int_equal(run(d->node, BLOCK_READ, 0, 512), 0);
	assert_int_equal(buf[0], 0);
	drive_close_all();
	blockdev_free_all();
}

static void test_twice(void **state)
{
	struct err err = {0};

	make("a.raw", 1);
	assert_non_null(drive("a.raw,format=raw,id=first", &err));
	assert_null(drive("a.raw,format=raw,id=second", &err));
	if (!strstr(err.msg, "drive 'first'"))
		fail_msg("%s", err.msg);
	drive_close_all();
}

static int setup(void **state)
{
	struct err err = {0};

	loop = loop_create("test", &err);
	return !loop || !mkdtemp(dir);
}

static int teardown(void **state)
{
	char cmd[100];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	loop_destroy(loop);
	co_pool_free();
	return system(cmd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_snapshot), cmocka_unit_test(test_limits),	  cmocka_unit_test(test_unlimited),
	    cmocka_unit_test(test_group),    cmocka_unit_test(test_group_object), cmocka_unit_test(test_blockdev),
	    cmocka_unit_test(test_twice),
	};

	if (system("command -v qemu-img >/dev/null 2>&1"))
		return 77;
	return cmocka_run_group_tests(tests, setup, teardown);
}
