// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The qcow2 driver against qemu-img: images of many options made by it read the
 * same; random writes, zeroes and discards through every width of refcounts and
 * over backing files match a model and leave images that pass its check; damaged
 * headers and tables are refused or contained.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "block/block.h"
#include "io/co.h"

static struct loop *loop;
static char dir[] = "kelvin-qcow2-XXXXXX";

#define DISK_SIZE (3u * 1024 * 1024 + 512)

static unsigned rnd(unsigned n)
{
	static uint64_t s = 0x9e3779b97f4a7c15ull;
	s ^= s << 13;
	s ^= s >> 7;
	s ^= s << 17;
	return (unsigned)(s >> 11) % n;
}

static int shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *fmt, ...)
{
	char cmd[1024];
	size_t n = (size_t)snprintf(cmd, sizeof(cmd), "cd %s && (", dir);
	va_list ap;
	int status;

	va_start(ap, fmt);
	n += (size_t)vsnprintf(cmd + n, sizeof(cmd) - n, fmt, ap);
	va_end(ap);
	snprintf(cmd + n, sizeof(cmd) - n, ") >log 2>&1");
	status = system(cmd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void must(int status, const char *what)
{
	char cmd[100];

	if (status == 0)
		return;
	snprintf(cmd, sizeof(cmd), "tail -5 %s/log >&2", dir);
	if (system(cmd))
		fail();
	fail_msg("%s: exit status %d", what, status);
}

static struct block_node *try_open(const char *name, const char *opts, struct err *err)
{
	char text[300];
	struct drive *d;

	memset(err, 0, sizeof(*err));
	snprintf(text, sizeof(text), "if=none,id=d,file=%s/%s,format=qcow2,%s", dir, name, opts);
	d = drive_create(text, loop, err);
	return d ? d->node : NULL;
}

static struct block_node *open_node(const char *name, const char *opts)
{
	struct err err = {0};
	struct block_node *n = try_open(name, opts, &err);

	if (!n)
		fail_msg("%s", err.msg);
	return n;
}

struct pending {
	struct block_req req;
	struct iovec iov[2];
	uint8_t *buf;
	bool busy;
};

static void pending_done(struct block_req *req)
{
	((struct pending *)req->opaque)->busy = false;
}

static void start(struct block_node *n, struct pending *p, enum block_op op, unsigned flags, uint64_t offset, void *buf,
		  uint64_t len)
{
	const size_t half = (size_t)len / 3;

	p->busy = true;
	p->iov[0] = (struct iovec){buf, half};
	p->iov[1] = (struct iovec){(uint8_t *)buf + half, len - half};
	p->req = (struct block_req){.op = op, .flags = flags, .offset = offset, .len = len, .iov = p->iov, .niov = 2};
	p->req.done = pending_done;
	p->req.opaque = p;
	block_submit(n, &p->req);
}

static int finish(struct block_node *n, struct pending *p)
{
	while (p->busy) {
		block_flush_queue(n);
		if (p->busy)
			loop_run_once(loop, -1);
	}
	return p->req.result;
}

static int run(struct block_node *n, enum block_op op, unsigned flags, uint64_t offset, void *buf, uint64_t len)
{
	struct pending p;

	start(n, &p, op, flags, offset, buf, len);
	return finish(n, &p);
}

static void load(const char *name, uint8_t *buf, size_t len)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, buf, len), len);
	close(fd);
}

static void save(const char *name, const uint8_t *buf, size_t len)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	assert_int_equal(write(fd, buf, len), len);
	close(fd);
}

/* A disk with data that compresses, zeros, and data that does not. */
static void make_raw(const char *name, unsigned seed)
{
	uint8_t *buf = calloc(1, DISK_SIZE);

	for (unsigned i = 0; i < DISK_SIZE / 4096; i++)
		for (unsigned k = 0; k < 4096 && i % 5; k++)
			buf[i * 4096 + k] = (uint8_t)(i % 5 == 1 ? rnd(256) : i * 7 + k / 64 + seed);
	save(name, buf, DISK_SIZE);
	free(buf);
}

/* Every byte, in requests of many sizes, eight at a time. */
static void compare_all(struct block_node *n, const uint8_t *want)
{
	static const unsigned sizes[] = {512, 4096, 65536, 1536, 300 * 1024};
	uint8_t *buf = malloc(DISK_SIZE);
	struct pending p[8];
	unsigned k = 0, at = 0;

	memset(buf, 0xee, DISK_SIZE);
	while (at < DISK_SIZE) {
		unsigned len = sizes[rnd(5)];
		len = MIN(len, DISK_SIZE - at);
		start(n, &p[k++], BLOCK_READ, 0, at, buf + at, len);
		at += len;
		if (k == 8 || at == DISK_SIZE)
			while (k)
				assert_int_equal(finish(n, &p[--k]), 0);
	}
	assert_memory_equal(buf, want, DISK_SIZE);
	free(buf);
}

static void test_read_matrix(void **state)
{
	static const char *const options[] = {
	    "compat=0.10",
	    "compat=1.1",
	    "cluster_size=512",
	    "cluster_size=2M",
	    "compat=0.10,cluster_size=4k",
	    "refcount_bits=1",
	    "refcount_bits=64",
	    "compression_type=zstd",
	    "extended_l2=on",
	    "extended_l2=on,cluster_size=16k",
	    "extended_l2=on,compression_type=zstd,cluster_size=2M",
	    "lazy_refcounts=on",
	    "preallocation=metadata",
	};
	uint8_t *want = malloc(DISK_SIZE);

	make_raw("m.raw", 1);
	load("m.raw", want, DISK_SIZE);
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		for (int compress = 0; compress < 2; compress++) {
			if (compress && strstr(options[i], "prealloc"))
				continue;
			must(shell("qemu-img convert -f raw -O qcow2 %s -o %s m.raw m.qcow2", compress ? "-c" : "",
				   options[i]),
			     options[i]);
			compare_all(open_node("m.qcow2", "readonly=on"), want);
			drive_close_all();
			compare_all(open_node("m.qcow2", "readonly=on,cache=none,aio=threads"), want);
			drive_close_all();
		}
	free(want);
}

/* ---- random changes against a model -------------------------------------------- */

#define DEPTH 12

static void random_batch(struct block_node *n, uint8_t *model)
{
	static struct pending p[DEPTH];
	unsigned lo = rnd(DISK_SIZE / 512) * 512, k;

	for (k = 0; k < DEPTH; k++) {
		enum block_op op =
		    (enum block_op[]){BLOCK_READ, BLOCK_WRITE, BLOCK_WRITE, BLOCK_WRITE, BLOCK_WRITE_ZEROES}[rnd(5)];
		unsigned len = 512 * (1 + rnd(rnd(4) ? 16 : 500));
		if (lo + len > DISK_SIZE)
			break;
		p[k].buf = malloc(len);
		memset(p[k].buf, 1 + (int)rnd(255), len);
		start(n, &p[k], op, rnd(40) == 0 ? BLOCK_FUA : rnd(2) ? BLOCK_MAY_UNMAP : 0, lo, p[k].buf, len);
		lo += len;
	}
	for (unsigned i = 0; i < k; i++) {
		uint8_t *m = model + p[i].req.offset;
		assert_int_equal(finish(n, &p[i]), 0);
		if (p[i].req.op == BLOCK_READ)
			assert_memory_equal(p[i].buf, m, p[i].req.len);
		else if (p[i].req.op == BLOCK_WRITE)
			memcpy(m, p[i].buf, p[i].req.len);
		else
			memset(m, 0, p[i].req.len);
		free(p[i].buf);
	}
}

static void random_changes(const char *create, const char *opts, uint8_t *model, bool v3)
{
	struct block_node *n;

	must(shell("%s", create), create);
	for (int round = 0; round < 2; round++) {
		n = open_node("w.qcow2", opts);
		for (int i = 0; i < 25; i++) {
			random_batch(n, model);
			if (i % 8 == 7)
				assert_int_equal(run(n, BLOCK_FLUSH, 0, 0, NULL, 0), 0);
			if (i % 10 == 9 && v3) { /* whole clusters of any size: all of the disk's last 2 MiB */
				assert_int_equal(run(n, BLOCK_DISCARD, 0, 1024 * 1024, NULL, DISK_SIZE - 1024 * 1024),
						 0);
				if (strstr(opts, "unmap"))
					memset(model + 2 * 1024 * 1024, 0, DISK_SIZE - 2 * 1024 * 1024);
				assert_int_equal(run(n, BLOCK_READ, 0, 1024 * 1024, model + 1024 * 1024, 1024 * 1024),
						 0);
			}
		}
		compare_all(n, model);
		drive_close_all();
		must(shell("qemu-img check w.qcow2"), create);
	}
	save("model.raw", model, DISK_SIZE);
	must(shell("qemu-img compare -f raw -F qcow2 model.raw w.qcow2"), create);
}

static void test_write_matrix(void **state)
{
	static const char *const options[] = {
	    "refcount_bits=1",
	    "refcount_bits=2",
	    "refcount_bits=4",
	    "refcount_bits=8",
	    "refcount_bits=32",
	    "refcount_bits=64",
	    "compat=0.10",
	    "cluster_size=512",
	    "cluster_size=2M",
	    "cluster_size=4k",
	    "lazy_refcounts=on",
	    "cluster_size=512,refcount_bits=64",
	    "compat=1.1",
	    "preallocation=metadata",
	    "extended_l2=on",
	    "extended_l2=on,cluster_size=16k",
	    "extended_l2=on,preallocation=metadata",
	};
	static const char *const opts[] = {"discard=unmap", "discard=ignore", "cache=none,discard=unmap",
					   "cache=unsafe,aio=threads"};
	uint8_t *model = malloc(DISK_SIZE);
	char cmd[200];

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		memset(model, 0, DISK_SIZE);
		snprintf(cmd, sizeof(cmd), "qemu-img create -f qcow2 -o %s w.qcow2 %u", options[i], DISK_SIZE);
		random_changes(cmd, opts[i % 4], model, strcmp(options[i], "compat=0.10") != 0);
	}
	free(model);
}

static void test_overlay_matrix(void **state)
{
	static const char *const create[] = {
	    "qemu-img create -f qcow2 -b b.raw -F raw w.qcow2",
	    "qemu-img create -f qcow2 -b b.qcow2 -F qcow2 -o cluster_size=4k w.qcow2",
	    "qemu-img create -f qcow2 -b b.raw -F raw -o compat=0.10 w.qcow2",
	    "qemu-img convert -c -f raw -O qcow2 b.raw w.qcow2",
	    "qemu-img convert -c -f raw -O qcow2 -o compression_type=zstd b.raw w.qcow2",
	    "qemu-img create -f qcow2 -b b.raw -F raw -o extended_l2=on w.qcow2",
	    "qemu-img create -f qcow2 -b b.raw -F raw -o extended_l2=on,cluster_size=2M w.qcow2",
	    "qemu-img create -f qcow2 -b b.raw -F raw -o extended_l2=on,preallocation=metadata w.qcow2",
	    "qemu-img convert -c -f raw -O qcow2 -o extended_l2=on b.raw w.qcow2",
	    "qemu-img convert -f raw -O qcow2 -o extended_l2=on b.raw w.qcow2 && qemu-img snapshot -c s1 w.qcow2",
	    "qemu-img convert -f raw -O qcow2 b.raw w.qcow2 && qemu-img snapshot -c s1 w.qcow2",
	};
	uint8_t *model = malloc(DISK_SIZE), *base = malloc(DISK_SIZE);

	make_raw("b.raw", 3);
	load("b.raw", base, DISK_SIZE);
	must(shell("qemu-img convert -c -f raw -O qcow2 b.raw b.qcow2"), "base");
	for (size_t i = 0; i < ARRAY_SIZE(create); i++) {
		memcpy(model, base, DISK_SIZE);
		random_changes(create[i], "discard=unmap", model, i != 2);
	}
	/* The snapshot of the last one has what it had. */
	must(shell("qemu-img snapshot -a s1 w.qcow2 && qemu-img check w.qcow2 && "
		   "qemu-img compare -f raw -F qcow2 b.raw w.qcow2"),
	     "snapshot");
	free(model);
	free(base);
}

/* ---- field cases ------------------------------------------------------------------- */

static void test_larger_overlay(void **state)
{
	uint8_t buf[2048];
	struct block_node *n;

	must(shell("qemu-img create -f raw s.raw 1M && qemu-io -f raw -c 'write -P 0xaa 0 1M' s.raw && "
		   "qemu-img create -f qcow2 -b s.raw -F raw o.qcow2 2M"),
	     "create");
	n = open_node("o.qcow2", "discard=unmap");
	assert_int_equal(run(n, BLOCK_READ, 0, 2046 * 512, buf, 2048), 0);
	for (int i = 0; i < 2048; i++)
		assert_int_equal(buf[i], i < 1024 ? 0xaa : 0);
	/* Zeroes hide the backing file, and a later small write does not bring it back. */
	assert_int_equal(run(n, BLOCK_WRITE_ZEROES, BLOCK_MAY_UNMAP, 65536, NULL, 65536), 0);
	memset(buf, 0x55, 512);
	assert_int_equal(run(n, BLOCK_WRITE, 0, 65536 + 512, buf, 512), 0);
	assert_int_equal(run(n, BLOCK_READ, 0, 65536, buf, 2048), 0);
	for (int i = 0; i < 2048; i++)
		assert_int_equal(buf[i], i / 512 == 1 ? 0x55 : 0);
	drive_close_all();
	must(shell("qemu-img check o.qcow2"), "check");
}

static void test_backing_names(void **state)
{
	uint8_t buf[512];
	struct err err = {0};

	must(shell("mkdir -p sub && qemu-img create -f raw r.raw 1M && qemu-io -f raw -c 'write -P 7 0 1M' r.raw && "
		   "cd sub && qemu-img create -f qcow2 -b ../r.raw -F raw rel.qcow2"),
	     "create");
	assert_int_equal(run(open_node("sub/rel.qcow2", "cache=none"), BLOCK_READ, 0, 0, buf, 512), 0);
	assert_int_equal(buf[100], 7);
	drive_close_all();
	must(shell("mv r.raw moved.raw"), "mv");
	assert_null(try_open("sub/rel.qcow2", "cache=none", &err));
	assert_non_null(strstr(err.msg, "sub/../r.raw': No such file"));
	must(shell("mv moved.raw r.raw; cp sub/rel.qcow2 p.qcow2; "
		   "qemu-img rebase -u -b nbd:localhost:1 -F raw p.qcow2"),
	     "rebase");
	assert_null(try_open("p.qcow2", "cache=none", &err));
	assert_non_null(strstr(err.msg, "names a protocol"));
	/* A chain that bites its tail. */
	must(shell("qemu-img create -f qcow2 loop.qcow2 1M && qemu-img rebase -u -b loop.qcow2 -F qcow2 loop.qcow2"),
	     "loop");
	assert_null(try_open("loop.qcow2", "readonly=on", &err));
	assert_non_null(strstr(err.msg, "more than"));
}

/* A discarded cluster of an overlay reads as zeros where the format can say so, else as the backing file; and a host
 * cluster that was given back is used again. */
static void test_discarded_overlay(void **state)
{
	uint8_t buf[512];

	must(shell("qemu-img create -f raw s.raw 1M && qemu-io -f raw -c 'write -P 0xaa 0 1M' s.raw"), "create");
	for (int v3 = 0; v3 < 2; v3++) {
		must(shell("qemu-img create -f qcow2 -o compat=%s -b s.raw -F raw o.qcow2", v3 ? "1.1" : "0.10"),
		     "overlay");
		for (unsigned allocated = 0; allocated < 2; allocated++) {
			struct block_node *n = open_node("o.qcow2", "discard=unmap");
			const uint64_t at = (1 + allocated) * 65536;
			memset(buf, 0x55, 512);
			if (allocated)
				assert_int_equal(run(n, BLOCK_WRITE, 0, at, buf, 512), 0);
			assert_int_equal(run(n, BLOCK_DISCARD, 0, at, NULL, 65536), 0);
			assert_int_equal(run(n, BLOCK_READ, 0, at, buf, 512), 0);
			assert_int_equal(buf[0], v3 ? 0 : 0xaa);
			/* The rest of the cluster comes from what was read there, not from below. */
			memset(buf, 0x66, 512);
			assert_int_equal(run(n, BLOCK_WRITE, 0, at + 512, buf, 512), 0);
			assert_int_equal(run(n, BLOCK_READ, 0, at + 1024, buf, 512), 0);
			assert_int_equal(buf[511], v3 ? 0 : 0xaa);
			drive_close_all();
			must(shell("qemu-img check o.qcow2"), "check");
		}
	}
}

/* Options of the header survive any use; a dirty image is repaired by a writer and left alone by a reader. */
static void test_header_survives(void **state)
{
	uint8_t buf[512] = {1};

	must(
	    shell("qemu-img create -f qcow2 -o lazy_refcounts=on l.qcow2 8M; qemu-io -c 'write 0 1M' -c abort l.qcow2; "
		  "test $(od -An -tx1 -j79 -N1 l.qcow2) = 01"),
	    "a killed QEMU leaves the dirty bit");
	open_node("l.qcow2", "readonly=on");
	drive_close_all();
	must(shell("test $(od -An -tx1 -j79 -N1 l.qcow2) = 01"), "a reader leaves it");
	assert_int_equal(run(open_node("l.qcow2", "cache=none"), BLOCK_WRITE, 0, 2 * MIB, buf, 512), 0);
	drive_close_all();
	must(shell("test $(od -An -tx1 -j79 -N1 l.qcow2) = 00 && test $(od -An -tx1 -j87 -N1 l.qcow2) = 01 && "
		   "qemu-img check l.qcow2 && qemu-io -r -c 'read 0 1M' l.qcow2"),
	     "a writer repairs, and lazy_refcounts stays");
}

/* A backing file whose format the image does not tell: raw is said aloud, another one refused. */
static void test_unnamed_format(void **state)
{
	static const char strip[] = "python3 -c \"b = open('o.qcow2', 'rb').read(); "
				    "open('o.qcow2', 'wb').write(b.replace(bytes.fromhex('e2792aca'), b'none', 1))\"";
	struct err err = {0};

	must(shell("qemu-img create -f raw f.raw 1M && qemu-img create -f qcow2 f.qcow2 1M && "
		   "qemu-img create -f qcow2 -b f.raw -F raw o.qcow2 && %s && "
		   "! qemu-img info o.qcow2 | grep 'backing file format'",
		   strip),
	     "create");
	open_node("o.qcow2", "cache=none");
	drive_close_all();
	/* What its guest could have written there. */
	must(shell("cp f.qcow2 f.raw"), "cp");
	assert_null(try_open("o.qcow2", "cache=none", &err));
	assert_non_null(strstr(err.msg, "does not say which format"));
}

/* The host lost the end of the file: what is there is read, the rest is zeros, and check says so. */
static void test_cut_image(void **state)
{
	uint8_t buf[512];
	struct block_node *n;

	must(shell("qemu-img create -f qcow2 t.qcow2 16M && qemu-io -c 'write -P 9 0 8M' t.qcow2 && truncate -s 4M "
		   "t.qcow2; "
		   "qemu-img check t.qcow2; test $? = 2"),
	     "create");
	n = open_node("t.qcow2", "cache=none");
	assert_int_equal(run(n, BLOCK_READ, 0, 65536, buf, 512), 0);
	assert_int_equal(buf[0], 9);
	assert_int_equal(run(n, BLOCK_READ, 0, 7 * MIB, buf, 512), 0);
	assert_int_equal(buf[0], 0);
	drive_close_all();
}

/* Nobody writes to what a running machine has under it; the names in an image are files and nothing else. */
static void test_chain_locks(void **state)
{
	struct err err = {0};

	must(shell("qemu-img create -f qcow2 k.qcow2 1M && qemu-img create -f qcow2 -b k.qcow2 -F qcow2 o.qcow2"),
	     "create");
	open_node("o.qcow2", "cache=none");
	must(shell("! qemu-io -c 'write 0 512' k.qcow2 && ! qemu-io -c 'write 0 512' o.qcow2 && ! qemu-img info "
		   "o.qcow2 && "
		   "! qemu-io -s -c 'read 0 512' o.qcow2 && qemu-io -r -c 'read 0 512' k.qcow2 && qemu-img info -U "
		   "o.qcow2"),
	     "locks");
	drive_close_all();
	must(shell("qemu-io -c 'write 0 512' k.qcow2 && qemu-img rebase -u -F raw -b "
		   "'json:{\"driver\":\"file\",\"filename\":\"/etc/passwd\"}' o.qcow2"),
	     "afterwards");
	assert_null(try_open("o.qcow2", "readonly=on", &err));
	assert_non_null(strstr(err.msg, "names a protocol"));
}

/* An external data file: only the one that is named on opening. */
static void test_data_file(void **state)
{
	uint8_t *model = malloc(DISK_SIZE);
	struct err err = {0};
	char create[200], opts[200];

	for (int raw = 0; raw < 2; raw++)
		for (int extended = 0; extended < 2; extended++) {
			memset(model, 0, DISK_SIZE);
			snprintf(
			    create, sizeof(create),
			    "qemu-img create -f qcow2 -o data_file=w.data,data_file_raw=%s,extended_l2=%s w.qcow2 %u",
			    raw ? "on" : "off", extended ? "on" : "off", DISK_SIZE);
			snprintf(opts, sizeof(opts), "discard=unmap,data-file=%s/w.data", dir);
			random_changes(create, opts, model, true);
		}
	assert_null(try_open("w.qcow2", "readonly=on", &err));
	assert_non_null(strstr(err.msg, "is not followed"));
	/* It moves to another loop (an I/O thread's) with the image; nobody runs the first one meanwhile. */
	err = (struct err){0};
	struct block_node *n = try_open("w.qcow2", opts, &err);
	struct loop *first = loop;
	assert_non_null(n);
	assert_non_null(loop = loop_create("other", &err));
	assert_int_equal(block_set_loop(n, loop, &err), 0);
	memset(model, 0x5a, 3 * 65536);
	assert_int_equal(run(n, BLOCK_WRITE, 0, 65536, model, 3 * 65536), 0);
	assert_int_equal(run(n, BLOCK_FLUSH, 0, 0, NULL, 0), 0);
	memset(model, 0, 3 * 65536);
	assert_int_equal(run(n, BLOCK_READ, 0, 65536, model, 3 * 65536), 0);
	assert_int_equal(model[0] + model[3 * 65536 - 1], 2 * 0x5a);
	drive_close_all();
	loop_destroy(loop);
	loop = first;
	free(model);
}

/* Small caches are slow, not wrong. */
static void test_caches(void **state)
{
	static const char *const opts[] = {"l2-cache-size=1k", "cache-size=4k,refcount-cache-size=2k",
					   "cache-size=1M,cache-clean-interval=1", "l2-cache-entry-size=512"};
	uint8_t *model = malloc(DISK_SIZE);
	struct err err = {0};

	for (size_t i = 0; i < ARRAY_SIZE(opts); i++) {
		memset(model, 0, DISK_SIZE);
		random_changes("qemu-img create -f qcow2 -o cluster_size=512 w.qcow2 3146240", opts[i], model, true);
	}
	assert_null(try_open("w.qcow2", "cache-size=1M,l2-cache-size=2M", &err));
	assert_non_null(strstr(err.msg, "l2-cache-size may not exceed cache-size"));
	assert_null(try_open("w.qcow2", "l2-cache-entry-size=1000", &err));
	assert_non_null(strstr(err.msg, "power of two"));
	free(model);
}

static uint64_t file_size(const char *name)
{
	char path[100];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_size;
}

/* The file is made longer in advance for writes beside each other, not for a lone one, which it would slow down. */
static void test_room(void **state)
{
	struct pending p[4];
	struct block_node *n;
	uint8_t *buf;

	must(shell("qemu-img create -f qcow2 w.qcow2 64M"), "create");
	n = open_node("w.qcow2", "cache=none");
	buf = aligned_alloc(4096, 65536);
	memset(buf, 1, 65536);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(run(n, BLOCK_WRITE, 0, i << 20, buf, 65536), 0);
	assert_in_range(file_size("w.qcow2"), 4 * 65536, 4 * MIB);
	for (uint64_t i = 0; i < 4; i++)
		start(n, &p[i], BLOCK_WRITE, 0, (i + 8) << 20, buf, 65536);
	for (int i = 0; i < 4; i++)
		assert_int_equal(finish(n, &p[i]), 0);
	assert_int_equal(run(n, BLOCK_WRITE, 0, 16 << 20, buf, 65536), 0);
	assert_in_range(file_size("w.qcow2"), 8 * MIB, 64 * MIB);
	free(buf);
}

static void poke(const char *name, uint64_t offset, uint64_t value, unsigned bytes)
{
	char path[100];
	uint8_t be[8];
	int fd;

	must(shell("cp h0.qcow2 %s", name), "cp");
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY);
	st64be(be, value << (64 - 8 * bytes));
	assert_int_equal(pwrite(fd, be, bytes, (off_t)offset), bytes);
	close(fd);
}

static void test_headers(void **state)
{
	static const struct {
		unsigned offset, bytes;
		uint64_t value;
		const char *error; /* NULL: opens for writing */
	} row[] = {
	    {20, 4, 33, "cluster size"},
	    {20, 4, 8, "cluster size"},
	    {20, 4, 22, "cluster size"},
	    {36, 4, 0x7fffffff, "L1 table too large"},
	    {36, 4, 0, "L1 table is too small"},
	    {40, 8, 0x12345, "L1 table offset"},
	    {40, 8, 1ull << 63, "L1 table offset"},
	    {24, 8, (1ull << 63) - 1, "too big"},
	    {24, 8, 1ull << 56, "too"},
	    {24, 8, 64 * 1024 * 1024 + 1, NULL},
	    {56, 4, 0x7fffffff, "reference count table too large"},
	    {56, 4, 0, "no reference count table"},
	    {48, 8, 0x12345, "reference count table offset"},
	    {60, 4, 0x7fffffff, "snapshot table too large"},
	    {4, 4, 9, "version 9"},
	    {4, 4, 1, "version 1"},
	    {32, 4, 9, "encrypted"},
	    {32, 4, 1, "encrypted"},
	    {16, 4, 0xffffffff, NULL}, /* without an offset it is undefined */
	    {8, 8, 0x7fffffffffff, "backing file offset"},
	    {72, 8, 1ull << 40, "unknown incompatible bits 0x10000000000"},
	    {72, 8, 1, NULL}, /* repaired */
	    {72, 8, 2, "corrupt"},
	    {72, 8, 4, "external data file"},
	    {72, 8, 8, "compression type"},
	    {72, 8, 16, "too small"},
	    {80, 8, 1ull << 40, NULL},
	    {88, 8, 1ull << 40, NULL},
	    {96, 4, 7, "refcounts of 2^7 bits"},
	    {100, 4, 72, "too short"},
	    {100, 4, 0x7fffffff, "exceeds the cluster size"},
	    {116, 4, 0xffffffff, "too large"},
	};
	struct err err = {0};

	must(shell("qemu-img create -q -f qcow2 h0.qcow2 512M && qemu-io -c 'write -P 9 0 1M' h0.qcow2"), "create");
	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		poke("h.qcow2", row[i].offset, row[i].value, row[i].bytes);
		struct block_node *n = try_open("h.qcow2", "cache=none", &err);
		if (!row[i].error && !n)
			fail_msg("row %zu: %s", i, err.msg);
		if (row[i].error && (n || !strstr(err.msg, row[i].error) || !strstr(err.msg, "h.qcow2")))
			fail_msg("row %zu: '%s' is not '%s'", i, err.msg, row[i].error);
		drive_close_all();
	}
	/* Unknown autoclear bits are cleared by a writer, kept by a reader. */
	poke("h.qcow2", 88, 1ull << 40, 8);
	open_node("h.qcow2", "readonly=on");
	drive_close_all();
	assert_int_equal(shell("test $(od -An -tx1 -j88 -N8 h.qcow2 | tr -d ' \\n') = 0000010000000000"), 0);
	open_node("h.qcow2", "cache=none");
	drive_close_all();
	assert_int_equal(shell("test $(od -An -tx1 -j88 -N8 h.qcow2 | tr -d ' \\n') = 0000000000000000"), 0);
	/* A corrupt or dirty image can be read. */
	poke("h.qcow2", 72, 2, 8);
	open_node("h.qcow2", "readonly=on");
	drive_close_all();
}

/* h0: L1 at 0x30000, L2 at 0x40000, data from 0x50000 on. */
static void test_damaged_tables(void **state)
{
	static const struct {
		uint64_t offset, value;
		int read, write;
		bool marked;
	} row[] = {
	    {0x40000, 1ull << 63 | 0x50200, -EIO, -EIO, true},		     /* not on a cluster */
	    {0x40000, 1ull << 63, 0, 0, false},				     /* offset 0: unallocated */
	    {0x40000, 1ull << 63 | 1ull << 40, 0, 0, false},		     /* past the end of the file */
	    {0x40000, 1ull << 63 | 0x30000, 0, -EIO, true},		     /* the L1 table */
	    {0x30000, 1ull << 63 | 0x30000, 0, -EIO, true},		     /* an L2 table that is the L1 table */
	    {0x30000, 1ull << 63 | 0x40200, -EIO, -EIO, true},		     /* an L2 table not on a cluster */
	    {0x40000, 1ull << 62 | 5ull << 54 | 0x50000, -EIO, -EIO, false}, /* no deflate stream */
	};
	uint8_t buf[512], head[64], now[64];

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		struct block_node *n;
		int r, w;
		poke("d.qcow2", row[i].offset, row[i].value, 8);
		load("d.qcow2", head, sizeof(head));
		n = open_node("d.qcow2", "discard=unmap");
		r = run(n, BLOCK_READ, 0, 0, buf, 512);
		w = run(n, BLOCK_WRITE, 0, 0, buf, 512);
		drive_close_all();
		load("d.qcow2", now, sizeof(now));
		assert_memory_equal(head, now, sizeof(head));
		if (r != row[i].read || w != row[i].write)
			fail_msg("row %zu: read %d write %d", i, r, w);
		assert_int_equal(shell("test $(od -An -tx1 -j79 -N1 d.qcow2) = 02"), row[i].marked ? 0 : 1);
	}
}

static int close_drives(void **state)
{
	drive_close_all();
	return 0;
}

static int setup(void **state)
{
	struct err err = {0};

	loop = loop_create("test", &err);
	drive_init();
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

#define TEST(f) cmocka_unit_test_teardown(f, close_drives)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_read_matrix),	  TEST(test_write_matrix),    TEST(test_overlay_matrix),
	    TEST(test_larger_overlay),	  TEST(test_backing_names),   TEST(test_headers),
	    TEST(test_damaged_tables),	  TEST(test_data_file),	      TEST(test_caches),
	    TEST(test_discarded_overlay), TEST(test_header_survives), TEST(test_unnamed_format),
	    TEST(test_cut_image),	  TEST(test_chain_locks),     TEST(test_room),
	};
	if (system("command -v qemu-img >/dev/null") != 0)
		return 77; /* skipped: nothing to compare with */
	return cmocka_run_group_tests(tests, setup, teardown);
}
