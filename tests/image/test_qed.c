// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The QED driver against qemu-img: random requests, many in flight, through every
 * kind of cluster and table size and over backing files match a model and leave
 * images that pass its check; a killed writer leaves the need-check flag and the
 * next one repairs; hostile headers and entries are refused or contained.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "block/block.h"
#include "block/image.h"
#include "block/qed.h"
#include "io/co.h"

#define DISK   (4u * 1024 * 1024 + 512)
#define FLIGHT 8

static struct loop *loop;
static char dir[] = "kelvin-qed-XXXXXX";
static uint8_t model[DISK], seen[DISK];

static unsigned rnd(unsigned n)
{
	static uint64_t s = 0x9e3779b97f4a7c15ull;
	s ^= s << 13;
	s ^= s >> 7;
	s ^= s << 17;
	return (unsigned)(s >> 11) % n;
}

static void must(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void must(const char *fmt, ...)
{
	char cmd[600];
	size_t n = (size_t)snprintf(cmd, sizeof(cmd), "cd %s && { ", dir);
	va_list ap;

	va_start(ap, fmt);
	n += (size_t)vsnprintf(cmd + n, sizeof(cmd) - n, fmt, ap);
	va_end(ap);
	snprintf(cmd + n, sizeof(cmd) - n, "; } >log 2>&1 || { tail -5 log >&2; false; }");
	if (system(cmd))
		fail_msg("%s", cmd);
}

static struct block_node *try_open(const char *name, bool read_only, bool direct, struct err *err)
{
	char path[100];
	struct block_open o = {.filename = path, .format = "qed", .read_only = read_only, .writeback = true};

	o.discard_unmap = o.locking = true;
	o.direct = direct;
	memset(err, 0, sizeof(*err));
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return block_open(&o, loop, err);
}

static struct block_node *open_node(const char *name, bool read_only)
{
	struct err err = {0};
	struct block_node *n = try_open(name, read_only, false, &err);

	if (!n)
		fail_msg("%s", err.msg);
	return n;
}

static int run(struct block_node *n, enum block_op op, uint64_t offset, void *buf, uint64_t len)
{
	struct iovec iov = {buf, len};

	return block_wait(n, op, BLOCK_MAY_UNMAP, offset, len, &iov, 1);
}

static void file_io(const char *name, void *buf, size_t len, off_t offset, bool write)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(write ? pwrite(fd, buf, len, offset) : pread(fd, buf, len, offset), len);
	close(fd);
}

static uint64_t features(const char *name)
{
	uint8_t raw[8];

	file_io(name, raw, 8, QED_H_FEATURES, false);
	return ld64le(raw);
}

/* ---- random requests --------------------------------------------------------- */

struct slot {
	struct block_req req;
	struct iovec iov[3];
	uint8_t *buf;
	bool busy;
};

static void slot_done(struct block_req *req)
{
	((struct slot *)req->opaque)->busy = false;
}

static void slot_start(struct block_node *n, struct slot *s, uint64_t offset, uint64_t len)
{
	static const enum block_op ops[] = {BLOCK_WRITE,	BLOCK_WRITE,   BLOCK_WRITE, BLOCK_READ,
					    BLOCK_WRITE_ZEROES, BLOCK_DISCARD, BLOCK_FLUSH};
	const size_t third = (size_t)len / 3;

	for (uint64_t i = 0; i < len; i++)
		s->buf[i] = (uint8_t)rnd(256);
	s->iov[0] = (struct iovec){s->buf, third};
	s->iov[1] = (struct iovec){s->buf + third, third};
	s->iov[2] = (struct iovec){s->buf + 2 * third, len - 2 * third};
	s->busy = true;
	s->req = (struct block_req){.op = ops[rnd(ARRAY_SIZE(ops))], .offset = offset, .len = len, .iov = s->iov};
	s->req.niov = 3;
	s->req.flags = rnd(2) ? BLOCK_MAY_UNMAP : 0;
	s->req.done = slot_done;
	s->req.opaque = s;
	block_submit(n, &s->req);
}

static void slot_check(struct block_node *n, struct slot *s)
{
	uint8_t *at = model + s->req.offset;

	assert_int_equal(s->req.result, 0);
	switch (s->req.op) {
	case BLOCK_WRITE: memcpy(at, s->buf, s->req.len); break;
	case BLOCK_READ: assert_memory_equal(at, s->buf, s->req.len); break;
	case BLOCK_WRITE_ZEROES: memset(at, 0, s->req.len); break;
	case BLOCK_DISCARD: /* what was there, or zeros */
		assert_int_equal(run(n, BLOCK_READ, s->req.offset, s->buf, s->req.len), 0);
		for (uint64_t i = 0; i < s->req.len; i++)
			assert_true(s->buf[i] == 0 || s->buf[i] == at[i]);
		memcpy(at, s->buf, s->req.len);
		break;
	case BLOCK_FLUSH: break;
	}
}

/* Each round the requests lie in parts of the disk of their own, so that the model is exact. */
static void random_requests(struct block_node *n, unsigned rounds)
{
	struct slot slots[FLIGHT];
	const uint64_t part = DISK / 512 / FLIGHT * 512;

	for (int i = 0; i < FLIGHT; i++)
		slots[i].buf = aligned_alloc(4096, 256 * KIB);
	while (rounds--) {
		for (unsigned i = 0; i < FLIGHT; i++) {
			const uint64_t grain = rnd(3) ? 512 : 1, max = rnd(4) ? 20000 : 200000;
			uint64_t len = (rnd((unsigned)max) + 1 + grain - 1) / grain * grain,
				 offset = i * part + rnd((unsigned)(part - len)) / grain * grain;
			slot_start(n, &slots[i], offset, len);
		}
		for (unsigned i = 0; i < FLIGHT; i++)
			while (slots[i].busy) {
				block_flush_queue(n);
				if (slots[i].busy)
					loop_run_once(loop, -1);
			}
		for (unsigned i = 0; i < FLIGHT; i++)
			slot_check(n, &slots[i]);
	}
	for (int i = 0; i < FLIGHT; i++)
		free(slots[i].buf);
	assert_int_equal(run(n, BLOCK_READ, 0, seen, DISK), 0);
	assert_memory_equal(seen, model, DISK);
}

/* QEMU 7.2 refuses tables of one cluster, which the specification allows: there only our own check looks. */
static void must_be_sound(const char *name, unsigned table)
{
	struct block_node *n = open_node(name, true);
	struct block_check c = {0};
	struct err err = {0};

	assert_int_equal(block_check(n, 0, &c, &err), 0);
	assert_true(!c.corruptions && !c.leaks && !c.errors);
	block_close(n);
	if (table > 1)
		must("qemu-img check -f qed %s", name);
}

static void test_random(void **state)
{
	static const struct {
		unsigned cluster, table;
		const char *backing; /* size of the backing file, or NULL */
		bool direct;
	} cells[] = {
	    {4096, 1, NULL, false},    {4096, 16, "1M", false},	 {65536, 4, NULL, true},    {65536, 1, "3M", false},
	    {1 << 20, 2, NULL, false}, {1 << 20, 1, "5M", true}, {4 << 20, 1, "2M", false}, {4096, 2, "6M", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cells); i++) {
		struct err err = {0};
		struct block_node *n;
		memset(model, 0, sizeof(model));
		print_message("clusters of %u, tables of %u, %s\n", cells[i].cluster, cells[i].table,
			      cells[i].backing ? "backed" : "alone");
		must("rm -f *.qed base.raw");
		if (cells[i].backing) {
			must("head -c %s /dev/urandom >base.raw", cells[i].backing);
			file_io("base.raw", model, MIN((size_t)atoi(cells[i].backing) * MIB, DISK), 0, false);
		}
		must("qemu-img create -q -f qed -o cluster_size=%u,table_size=%u %s a.qed %u", cells[i].cluster,
		     cells[i].table, cells[i].backing ? "-b base.raw -F raw" : "", DISK);
		n = try_open("a.qed", false, cells[i].direct, &err);
		assert_non_null(n);
		random_requests(n, 25);
		block_close(n);
		assert_int_equal(features("a.qed") & QED_F_NEED_CHECK, 0);
		must_be_sound("a.qed", cells[i].table);
		n = open_node("a.qed", false);
		random_requests(n, 10);
		block_close(n);
		file_io("m.raw", model, DISK, 0, true);
		must_be_sound("a.qed", cells[i].table);
		if (cells[i].table > 1)
			must("qemu-img compare -f qed -F raw a.qed m.raw");
	}
}

/* ---- crashes and damage --------------------------------------------------------- */

static void killed_writer(const char *name)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct block_node *n = open_node(name, false);
		memset(seen, 7, MIB);
		_exit(run(n, BLOCK_WRITE, MIB, seen, MIB) != 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_need_check(void **state)
{
	struct block_check c = {0};
	struct block_node *n;
	struct err err = {0};
	uint8_t raw[8];
	uint64_t l2;

	must("rm -f *.qed; qemu-img create -q -f qed a.qed %u", DISK);
	killed_writer("a.qed");
	assert_int_equal(features("a.qed"), QED_F_NEED_CHECK);
	n = open_node("a.qed", true);
	block_close(n);
	assert_int_equal(features("a.qed"), QED_F_NEED_CHECK);
	/* As a crash may leave it: an entry whose cluster never reached the file. */
	file_io("a.qed", raw, 8, QED_DEFAULT_CLUSTER, false);
	l2 = ld64le(raw);
	st64le(raw, 1ull << 40);
	file_io("a.qed", raw, 8, (off_t)l2 + 8 * 40, true);
	n = open_node("a.qed", true);
	assert_int_equal(run(n, BLOCK_READ, 40 * QED_DEFAULT_CLUSTER, seen, 512), -EINVAL);
	assert_int_equal(block_check(n, 0, &c, &err), 0);
	assert_int_equal(c.corruptions, 1);
	assert_int_equal(c.allocated, 17);
	block_close(n);
	n = open_node("a.qed", false);
	assert_int_equal(features("a.qed"), 0);
	assert_int_equal(run(n, BLOCK_READ, 40 * QED_DEFAULT_CLUSTER, seen, 512), 0);
	assert_int_equal(run(n, BLOCK_READ, MIB, seen, MIB), 0);
	assert_true(seen[0] == 7 && memcmp(seen, seen + 1, MIB - 1) == 0);
	block_close(n);
	must("qemu-img check a.qed");
	/* QEMU's own killed writer. */
	must("qemu-io -c 'write -P 9 2M 64k' -c abort a.qed; :");
	assert_int_equal(features("a.qed"), QED_F_NEED_CHECK);
	block_close(open_node("a.qed", false));
	assert_int_equal(features("a.qed"), 0);
	/* With a backing file the order of writes makes the flag needless. */
	must("qemu-img create -q -f qed -b a.qed -F qed b.qed");
	killed_writer("b.qed");
	assert_int_equal(features("b.qed"), QED_F_BACKING);
	must("qemu-img check b.qed");
}

static void test_cut_file(void **state)
{
	struct block_node *n;

	must("rm -f *.qed; qemu-img create -q -f qed a.qed %u && qemu-io -c 'write -P 1 0 64k' -c 'write -P 1 64k 2M' "
	     "a.qed && "
	     "truncate -s 1M a.qed",
	     DISK);
	n = open_node("a.qed", true);
	assert_int_equal(run(n, BLOCK_READ, 0, seen, 4096), 0);
	assert_int_equal(run(n, BLOCK_READ, MIB, seen, 4096), -EINVAL);
	block_close(n);
}

static void test_headers(void **state)
{
	static const struct {
		unsigned field, size;
		uint64_t value;
	} bad[] = {
	    {QED_H_MAGIC, 4, 1},
	    {QED_H_CLUSTER_SIZE, 4, 2048},
	    {QED_H_CLUSTER_SIZE, 4, 65537},
	    {QED_H_CLUSTER_SIZE, 4, 0},
	    {QED_H_CLUSTER_SIZE, 4, 128 << 20},
	    {QED_H_TABLE_SIZE, 4, 0},
	    {QED_H_TABLE_SIZE, 4, 3},
	    {QED_H_TABLE_SIZE, 4, 32},
	    {QED_H_HEADER_SIZE, 4, 0},
	    {QED_H_HEADER_SIZE, 4, UINT32_MAX},
	    {QED_H_FEATURES, 8, 8},
	    {QED_H_FEATURES, 8, BIT(63)},
	    {QED_H_L1_OFFSET, 8, 0},
	    {QED_H_L1_OFFSET, 8, 65537},
	    {QED_H_L1_OFFSET, 8, BIT(63)},
	    {QED_H_L1_OFFSET, 8, 1 << 20},
	    {QED_H_IMAGE_SIZE, 8, 513},
	    {QED_H_IMAGE_SIZE, 8, BIT(63)},
	    {QED_H_IMAGE_SIZE, 8, UINT64_MAX - 511},
	};
	uint8_t raw[8], good[QED_H_END];
	struct err err = {0};

	must("rm -f *.qed; qemu-img create -q -f qed a.qed 1M");
	file_io("a.qed", good, sizeof(good), 0, false);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		st64le(raw, bad[i].value);
		file_io("a.qed", raw, bad[i].size, bad[i].field, true);
		if (try_open("a.qed", false, false, &err))
			fail_msg("field %u accepts 0x%llx", bad[i].field, (unsigned long long)bad[i].value);
		assert_true(err.code < 0 && strstr(err.msg, "a.qed"));
		file_io("a.qed", good, sizeof(good), 0, true);
	}
	/* Names that leave the header. */
	st64le(raw, QED_F_BACKING);
	file_io("a.qed", raw, 8, QED_H_FEATURES, true);
	st32le(raw, 65530);
	st32le(raw + 4, 20);
	file_io("a.qed", raw, 8, QED_H_BACKING_OFFSET, true);
	assert_null(try_open("a.qed", true, false, &err));
	st32le(raw, 64);
	st32le(raw + 4, 5000);
	file_io("a.qed", raw, 8, QED_H_BACKING_OFFSET, true);
	assert_null(try_open("a.qed", true, false, &err));
	/* An autoclear bit of the future does not survive a writer. */
	file_io("a.qed", good, sizeof(good), 0, true);
	st64le(raw, 32);
	file_io("a.qed", raw, 8, QED_H_AUTOCLEAR, true);
	block_close(open_node("a.qed", false));
	file_io("a.qed", raw, 8, QED_H_AUTOCLEAR, false);
	assert_int_equal(ld64le(raw), 0);
}

static void test_whole(void **state)
{
	struct block_node *n;
	struct err err = {0};

	must("rm -f *.qed; qemu-img create -q -f qed a.qed 1M && qemu-img create -q -f raw b.raw 1M");
	n = open_node("a.qed", false);
	assert_int_equal(block_truncate(n, 8 * GIB, BLOCK_PREALLOC_OFF, &err), 0);
	assert_int_equal(block_truncate(n, MIB, BLOCK_PREALLOC_OFF, &err), -ENOTSUP);
	memset(seen, 1, 4096);
	assert_int_equal(run(n, BLOCK_WRITE, 8 * GIB - 4096, seen, 4096), 0);
	assert_int_equal(block_change_backing(n, "b.raw", "raw", &err), 0);
	block_close(n);
	must("qemu-img check a.qed && qemu-img info a.qed | grep -q 'backing file format: raw'");
	must("qemu-io -r -c 'read -P 1 8589930496 4096' a.qed | grep -q read");
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
	    cmocka_unit_test(test_random),  cmocka_unit_test(test_need_check), cmocka_unit_test(test_cut_file),
	    cmocka_unit_test(test_headers), cmocka_unit_test(test_whole),
	};

	if (system("command -v qemu-img >/dev/null 2>&1"))
		return 77;
	return cmocka_run_group_tests(tests, setup, teardown);
}
