// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Operations on whole qcow2 images, in random sequences: resize, snapshots
 * (create, apply, delete), amend, dropping all data, other backing names, with
 * writes between. After each step qemu-img finds the image sound, and it has what
 * a model has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "block/block.h"
#include "io/co.h"

static struct loop *loop;
static char dir[] = "/tmp/kelvin-whole-XXXXXX";

#define MAX_SIZE (6u * 1024 * 1024)
#define MAX_SNAP 4

struct model {
	uint8_t *now;
	uint64_t size;
	struct {
		uint8_t *data;
		uint64_t size;
		uint8_t *vm; /* the machine's state */
		uint64_t vm_size;
		char name[16];
	} snap[MAX_SNAP];
	unsigned nr_snap, made;
};

static unsigned rnd(unsigned n)
{
	static uint64_t s = 0x243f6a8885a308d3ull;
	s ^= s << 13;
	s ^= s >> 7;
	s ^= s << 17;
	return (unsigned)(s >> 11) % n;
}

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
	char cmd[1024];
	size_t n = (size_t)snprintf(cmd, sizeof(cmd), "cd %s && (", dir);
	va_list ap;

	va_start(ap, fmt);
	n += (size_t)vsnprintf(cmd + n, sizeof(cmd) - n, fmt, ap);
	va_end(ap);
	snprintf(cmd + n, sizeof(cmd) - n, ") >log 2>&1 || { cat log >&2; false; }");
	if (system(cmd) != 0)
		fail_msg("%s", cmd);
}

static struct block_node *open_image(void)
{
	char path[64];
	struct block_open o = {.filename = path, .format = "qcow2", .writeback = true, .discard_unmap = true};
	struct err err = {0};
	struct block_node *n;

	snprintf(path, sizeof(path), "%s/w.qcow2", dir);
	n = block_open(&o, loop, &err);
	if (!n)
		fail_msg("%s", err.msg);
	return n;
}

struct io {
	struct block_req req;
	struct iovec iov;
	bool done;
};

static void io_done(struct block_req *req)
{
	((struct io *)req->opaque)->done = true;
}

static void io(struct block_node *n, enum block_op op, unsigned flags, uint64_t offset, void *buf, uint64_t len)
{
	struct io i = {.iov = {buf, len}};

	i.req = (struct block_req){.op = op, .flags = flags, .offset = offset, .len = len, .iov = &i.iov, .niov = 1};
	i.req.done = io_done;
	i.req.opaque = &i;
	block_submit(n, &i.req);
	while (!i.done) {
		block_flush_queue(n);
		if (!i.done)
			loop_run_once(loop, -1);
	}
	assert_int_equal(i.req.result, 0);
}

static void writes(struct block_node *n, struct model *m)
{
	uint8_t *buf = malloc(300 * 1024);

	assert_int_equal(block_size(n), m->size);

	for (int i = 0; i < 12 && m->size; i++) {
		uint64_t at = rnd((unsigned)(m->size / 512)) * 512ull, len = 512ull * (1 + rnd(400));
		len = MIN(len, m->size - at);
		memset(buf, (int)(1 + rnd(255)), len);
		if (rnd(4)) {
			io(n, BLOCK_WRITE, 0, at, buf, len);
			memcpy(m->now + at, buf, len);
		} else {
			io(n, BLOCK_WRITE_ZEROES, rnd(2) ? BLOCK_MAY_UNMAP : 0, at, NULL, len);
			memset(m->now + at, 0, len);
		}
	}
	free(buf);
}

static void resize(struct block_node *n, struct model *m, bool prealloc)
{
	uint64_t size = 512ull * rnd(MAX_SIZE / 512);
	enum block_prealloc p = prealloc && size > m->size ? (enum block_prealloc)rnd(4) : BLOCK_PREALLOC_OFF;
	struct err err = {0};

	if (block_truncate(n, size, p, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(block_size(n), size);
	memset(m->now + MIN(size, m->size), 0, MAX_SIZE - MIN(size, m->size));
	m->size = size;
}

/* A machine's state of random length in front of the next snapshot; the last piece is filled up. */
static uint8_t *write_vmstate(struct block_node *n, uint64_t *size)
{
	const uint64_t len = 1 + rnd(5u * 1024 * 1024);
	uint8_t *vm = calloc(1, ALIGN_UP(len, BLOCK_VMSTATE_PIECE));
	struct err err = {0};

	for (uint64_t i = 0; i < len; i++)
		vm[i] = (uint8_t)(i / 4096 % 7 ? rnd(256) : 0);
	for (uint64_t at = 0; at < len; at += BLOCK_VMSTATE_PIECE)
		if (block_vmstate_write(n, vm + at, at, BLOCK_VMSTATE_PIECE, &err))
			fail_msg("%s", err.msg);
	*size = len;
	return vm;
}

static int make_snapshot(struct block_node *n, struct model *m, struct err *err)
{
	struct block_snapshot want = {.name = m->snap[m->nr_snap].name, .vm_clock_nsec = 3661002000000ull};
	uint8_t *vm = rnd(2) ? write_vmstate(n, &want.vm_state_size) : NULL;

	/* Some are given up before there is a snapshot. */
	if (vm && rnd(3) == 0) {
		if (rnd(2) && block_vmstate_drop(n, err))
			return -1;
		want.vm_state_size = 0;
		free(vm);
		vm = NULL;
	}
	m->snap[m->nr_snap].vm = vm;
	m->snap[m->nr_snap].vm_size = want.vm_state_size;
	return block_snapshot_create(n, &want, err);
}

static void snapshot(struct block_node *n, struct model *m)
{
	const unsigned i = m->nr_snap ? rnd(m->nr_snap) : 0, what = rnd(3);
	struct err err = {0};
	int ret = 0;

	if (what == 0 && m->nr_snap < MAX_SNAP) {
		snprintf(m->snap[m->nr_snap].name, sizeof(m->snap[0].name), "s%u", m->made++);
		ret = make_snapshot(n, m, &err);
		m->snap[m->nr_snap].size = m->size;
		m->snap[m->nr_snap].data = malloc(MAX_SIZE);
		memcpy(m->snap[m->nr_snap++].data, m->now, MAX_SIZE);
	} else if (what == 1 && m->nr_snap) {
		ret = block_snapshot_apply(n, m->snap[i].name, &err);
		memcpy(m->now, m->snap[i].data, MAX_SIZE);
		m->size = m->snap[i].size;
	} else if (m->nr_snap) {
		ret = block_snapshot_delete(n, m->snap[i].name, &err);
		free(m->snap[i].data);
		free(m->snap[i].vm);
		m->snap[i] = m->snap[--m->nr_snap];
	}
	if (ret)
		fail_msg("%s", err.msg);
}

static void amend(struct block_node *n, bool version)
{
	const struct block_amend a = {.version = version ? 2 + rnd(2) : 3,
				      .refcount_bits = version ? 0 : 8u << rnd(4),
				      .lazy_refcounts = -1,
				      .data_file_raw = -1};
	struct err err = {0};

	if (block_amend(n, &a, &err))
		fail_msg("%s", err.msg);
}

/* The image closed: what does qemu-img say? */
static void verify(const struct model *m)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/model.raw", dir);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(m->now, 1, m->size, f), m->size);
	fclose(f);
	shell("qemu-img check w.qcow2 && qemu-img compare -f raw -F qcow2 model.raw w.qcow2");
}

/* Each snapshot has what the disk had then. */
static void verify_snapshots(const struct model *m)
{
	uint8_t *buf = malloc(MAX_SIZE);
	char path[64];

	snprintf(path, sizeof(path), "%s/w.qcow2", dir);
	for (unsigned i = 0; i < m->nr_snap; i++) {
		struct block_open o = {.filename = path, .format = "qcow2", .read_only = true};
		struct err err = {0};
		struct block_node *n;
		o.snapshot = m->snap[i].name;
		n = block_open(&o, loop, &err);
		if (!n)
			fail_msg("%s", err.msg);
		assert_int_equal(block_size(n), m->snap[i].size);
		if (block_size(n))
			io(n, BLOCK_READ, 0, 0, buf, block_size(n));
		assert_memory_equal(buf, m->snap[i].data, block_size(n));
		block_close(n);
		o.snapshot = NULL;
		n = block_open(&o, loop, &err);
		assert_non_null(n);
		for (uint64_t at = 0; at < m->snap[i].vm_size; at += MIB) {
			const uint64_t len = MIN(m->snap[i].vm_size - at, (uint64_t)MIB);
			if (block_vmstate_read(n, m->snap[i].name, buf, at, len, &err))
				fail_msg("%s", err.msg);
			assert_memory_equal(buf, m->snap[i].vm + at, len);
		}
		assert_int_not_equal(block_vmstate_read(n, m->snap[i].name, buf, m->snap[i].vm_size, 1, &err), 0);
		block_close(n);
	}
	free(buf);
}

enum { RESIZE = 1, SNAPSHOT = 2, AMEND = 4, VERSION = 8, EMPTY = 16, PREALLOC = 32 };

static void sequence(const char *options, unsigned what, unsigned steps, uint8_t *backing)
{
	struct model m = {.now = calloc(1, MAX_SIZE), .size = 3u * 1024 * 1024};
	struct err err = {0};

	shell("rm -f w.qcow2; qemu-img create -f qcow2 -o %s w.qcow2 3M", options);
	if (backing)
		memcpy(m.now, backing, m.size);
	for (unsigned i = 0; i < steps; i++) {
		struct block_node *n = open_image();
		writes(n, &m);
		switch (rnd(5)) {
		case 0:
		case 1:
			if (what & RESIZE)
				resize(n, &m, (what & PREALLOC) != 0);
			break;
		case 2:
		case 3:
			if (what & SNAPSHOT)
				snapshot(n, &m);
			if (what & (AMEND | VERSION))
				amend(n, (what & VERSION) != 0);
			break;
		default:
			if (!(what & EMPTY) || rnd(3))
				break;
			if (block_make_empty(n, &err))
				fail_msg("%s", err.msg);
			memset(m.now, 0, MAX_SIZE);
			if (backing)
				memcpy(m.now, backing, MIN(m.size, 3u * 1024 * 1024));
			break;
		}
		writes(n, &m);
		block_close(n);
		verify(&m);
		verify_snapshots(&m);
	}
	for (unsigned i = 0; i < m.nr_snap; i++) {
		free(m.snap[i].data);
		free(m.snap[i].vm);
	}
	free(m.now);
}

static void test_sequences(void **state)
{
	static const struct {
		const char *options;
		unsigned what;
	} row[] = {
	    {"cluster_size=64k", RESIZE | SNAPSHOT | EMPTY | AMEND | PREALLOC},
	    {"cluster_size=512", RESIZE | SNAPSHOT | EMPTY},
	    {"cluster_size=512,refcount_bits=64", RESIZE | SNAPSHOT | EMPTY | PREALLOC},
	    {"cluster_size=4k,compat=0.10", RESIZE | VERSION | EMPTY},
	    {"compat=0.10", SNAPSHOT},
	    {"extended_l2=on,cluster_size=16k", RESIZE | SNAPSHOT | EMPTY | AMEND | PREALLOC},
	    {"lazy_refcounts=on", RESIZE | SNAPSHOT | EMPTY | AMEND},
	};
	const char *steps = getenv("STEPS");

	for (size_t i = 0; i < ARRAY_SIZE(row); i++)
		sequence(row[i].options, row[i].what, steps ? (unsigned)atoi(steps) : 12, NULL);
}

static void test_overlays(void **state)
{
	uint8_t *backing = malloc(MAX_SIZE);

	memset(backing, 0x77, MAX_SIZE);
	shell("qemu-img create -f raw b.raw 3M && qemu-io -f raw -c 'write -P 0x77 0 3M' b.raw");
	sequence("backing_file=b.raw,backing_fmt=raw", RESIZE | SNAPSHOT | EMPTY, 12, backing);
	sequence("backing_file=b.raw,backing_fmt=raw,extended_l2=on", RESIZE | EMPTY | AMEND | PREALLOC, 12, backing);
	sequence("backing_file=b.raw,backing_fmt=raw,cluster_size=4k", VERSION, 12, backing);
	free(backing);
}

static void test_backing_names(void **state)
{
	struct err err = {0};
	struct block_node *n;
	char *longest = malloc(1100);

	shell("qemu-img create -f raw b.raw 3M && qemu-img create -f raw c.raw 3M && "
	      "qemu-io -f raw -c 'write -P 9 0 3M' c.raw && rm -f w.qcow2 && "
	      "qemu-img create -f qcow2 -b b.raw -F raw -o cluster_size=512 w.qcow2");
	n = open_image();
	if (block_change_backing(n, "c.raw", "raw", &err))
		fail_msg("%s", err.msg);
	memset(longest, 'x', 1099);
	longest[1000] = 0;
	assert_int_not_equal(block_change_backing(n, longest, "raw", &err), 0); /* a header of 512 bytes */
	block_close(n);
	shell("qemu-img check w.qcow2 && qemu-img compare -f qcow2 -F raw w.qcow2 c.raw");
	n = open_image();
	memset(&err, 0, sizeof(err));
	if (block_change_backing(n, NULL, NULL, &err))
		fail_msg("%s", err.msg);
	block_close(n);
	shell("qemu-img check w.qcow2 && ! qemu-img info w.qcow2 | grep backing");
	free(longest);
}

/* Lazy refcounts: what a crash leaves is repaired when the image is opened. */
static void test_lazy(void **state)
{
	struct block_node *n;
	uint8_t *buf = malloc(MIB);

	memset(buf, 5, MIB);
	shell("rm -f w.qcow2; qemu-img create -f qcow2 -o lazy_refcounts=on w.qcow2 3M");
	n = open_image();
	io(n, BLOCK_WRITE, 0, 0, buf, MIB);
	io(n, BLOCK_FLUSH, 0, 0, NULL, 0);
	shell("cp w.qcow2 crashed.qcow2; qemu-img info -U crashed.qcow2 | grep 'cleanly shut down: no'; "
	      "! qemu-img check crashed.qcow2");
	block_close(n);
	shell("qemu-img check w.qcow2; ! qemu-img info w.qcow2 | grep 'cleanly shut down'; mv crashed.qcow2 w.qcow2");
	n = open_image();
	memset(buf, 0, MIB);
	io(n, BLOCK_READ, 0, 0, buf, MIB);
	assert_int_equal(buf[MIB - 1], 5);
	block_close(n);
	shell("qemu-img check w.qcow2; ! qemu-img info w.qcow2 | grep 'cleanly shut down'");
	free(buf);
}

/* qemu-img sees the machine's state as its own: size, clock, and what deleting and applying do. */
static void test_vmstate(void **state)
{
	const struct block_snapshot want = {.name = "vm", .vm_state_size = 3 * MIB, .vm_clock_nsec = 3661002000000ull};
	uint8_t *vm = malloc(2 * BLOCK_VMSTATE_PIECE);
	struct err err = {0};
	struct block_node *n;

	memset(vm, 0x5a, 2 * BLOCK_VMSTATE_PIECE);
	shell("rm -f w.qcow2; qemu-img create -f qcow2 w.qcow2 3M && qemu-io -c 'write -P 7 0 3M' w.qcow2");
	for (int i = 0; i < 2; i++) {
		n = open_image();
		if (block_vmstate_write(n, vm, 0, BLOCK_VMSTATE_PIECE, &err) ||
		    block_vmstate_write(n, vm, BLOCK_VMSTATE_PIECE, BLOCK_VMSTATE_PIECE, &err) ||
		    block_snapshot_create(n, &want, &err))
			fail_msg("%s", err.msg);
		block_close(n);
		shell("qemu-img check w.qcow2 && "
		      "qemu-img snapshot -l w.qcow2 | grep -E '^1 +vm +3 MiB .* 01:01:01.002 *$' && "
		      "qemu-img snapshot -a vm w.qcow2 && qemu-img check w.qcow2 && "
		      "qemu-io -c 'read -P 7 0 3M' w.qcow2");
		if (i == 0) {
			/* QEMU has put it behind the disk's end again: a longer disk must not show it. */
			n = open_image();
			if (block_snapshot_delete(n, "vm", &err) || block_truncate(n, GIB, BLOCK_PREALLOC_OFF, &err))
				fail_msg("%s", err.msg);
			block_close(n);
			shell("qemu-img check w.qcow2 && qemu-io -c 'read -P 0 512M 4M' w.qcow2 && "
			      "qemu-img resize --shrink w.qcow2 3M");
		}
	}
	shell("qemu-img snapshot -d vm w.qcow2 && qemu-img check w.qcow2");
	free(vm);
}

static uint64_t file_size(void)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "%s/w.qcow2", dir);
	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_size;
}

/* A file that may not grow any further in the midst of it: no snapshot, nothing lost, nothing leaked. */
static void full(const char *options)
{
	const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
	uint8_t *vm = calloc(1, BLOCK_VMSTATE_PIECE);
	uint64_t step = 0, size;
	int ret = -1;

	memset(vm, 0x5a, BLOCK_VMSTATE_PIECE - 9);
	shell("rm -f w.qcow2; qemu-img create -f qcow2 -o %s w.qcow2 3M && qemu-io -c 'write -P 7 0 3M' w.qcow2",
	      options);
	size = file_size();
	signal(SIGXFSZ, SIG_IGN);
	while (ret) {
		const struct block_snapshot want = {.name = "vm", .vm_state_size = BLOCK_VMSTATE_PIECE - 9};
		struct block_node *n = open_image();
		struct rlimit limit = none;
		struct err err = {0};
		const struct block_snapshot *s;
		unsigned nr;

		limit.rlim_cur = size + step * 1024;
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		ret = block_vmstate_write(n, vm, 0, BLOCK_VMSTATE_PIECE, &err);
		if (!ret)
			ret = block_snapshot_create(n, &want, &err);
		if (ret)
			block_vmstate_drop(n, &err);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
		assert_int_equal(block_snapshot_list(n, &s, &nr, &err), 0);
		assert_int_equal(nr, !ret);
		block_close(n);
		/* A longer copy: what is behind the file's end is no leak to qemu-img. */
		shell(
		    "cp w.qcow2 big && truncate -s 20M big && qemu-img check big && qemu-io -c 'read -P 7 0 3M' big && "
		    "! qemu-img info w.qcow2 | grep 'cleanly shut down'");
		step += step < 32 ? 8 : step < 1950 ? 640 : 16; /* tables are written at its beginning and end */
		assert_true(step < 4096);
	}
	assert_true(step > 1950);
	free(vm);
}

static void test_full(void **state)
{
	full("cluster_size=64k");
	full("cluster_size=4k,compat=0.10");
	full("cluster_size=512");
}

/* Compressed writes, many at once; then some of their clusters are written again, both ways. */
static void compressed(const char *options)
{
	static struct io many[32];
	struct model m = {.now = calloc(1, MAX_SIZE), .size = 5u * 1024 * 1024 + 512};
	const uint64_t step = 2 * MIB;
	struct block_node *n;

	shell("rm -f w.qcow2; qemu-img create -f qcow2 -o %s w.qcow2 %llu", options, (unsigned long long)m.size);
	for (uint64_t i = 0; i < m.size; i++)
		m.now[i] = (uint8_t)(i / 65536 % 3 == 0 ? rnd(256) : i / 97 + (rnd(50) == 0));
	n = open_image();
	for (int round = 0; round < 3; round++) {
		unsigned k = 0;
		for (uint64_t at = 0; at < m.size; at += step, k++) {
			struct io *i = &many[k];
			*i = (struct io){.iov = {m.now + at, MIN(step, m.size - at)}};
			i->req = (struct block_req){.op = BLOCK_WRITE, .flags = BLOCK_COMPRESS, .offset = at};
			i->req.iov = &i->iov;
			i->req.niov = 1;
			i->req.len = i->iov.iov_len;
			i->req.done = io_done;
			i->req.opaque = i;
			block_submit(n, &i->req);
		}
		for (unsigned i = 0; i < k; i++) {
			while (!many[i].done) {
				block_flush_queue(n);
				if (!many[i].done)
					loop_run_once(loop, -1);
			}
			assert_int_equal(many[i].req.result, 0);
		}
		if (round == 0)
			writes(n, &m);
		io(n, BLOCK_FLUSH, 0, 0, NULL, 0);
	}
	block_close(n);
	verify(&m);
	free(m.now);
}

static void test_compressed(void **state)
{
	compressed("cluster_size=64k");
	compressed("cluster_size=512");
	compressed("cluster_size=2M");
	compressed("compression_type=zstd");
	compressed("refcount_bits=1");
	compressed("refcount_bits=2,cluster_size=4k");
	compressed("extended_l2=on");
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
	    cmocka_unit_test(test_sequences), cmocka_unit_test(test_overlays),	 cmocka_unit_test(test_backing_names),
	    cmocka_unit_test(test_lazy),      cmocka_unit_test(test_compressed), cmocka_unit_test(test_vmstate),
	    cmocka_unit_test(test_full),
	};
	if (system("command -v qemu-img >/dev/null") != 0)
		return 77; /* skipped: nothing to compare with */
	return cmocka_run_group_tests(tests, setup, teardown);
}
