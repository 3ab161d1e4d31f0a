// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The block layer on raw files: random requests of any alignment against a model
 * in memory, for every engine with and without O_DIRECT; then the rules of odd
 * sizes, guessed formats, image locks, flushes and bad options.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "block/block.h"

static struct loop *loop;
static char dir[] = "kelvin-raw-XXXXXX";
static char path[64];

struct pending {
	struct block_req req;
	struct iovec iov[8];
	uint8_t *buf;
	bool busy;
};

static void pending_done(struct block_req *req)
{
	struct pending *p = req->opaque;
	p->busy = false;
}

/* One request of the test to its end. */
static int run(struct block_node *n, enum block_op op, unsigned flags, uint64_t offset, void *buf, uint64_t len)
{
	struct pending p = {.busy = true};

	p.iov[0] = (struct iovec){buf, len};
	p.req = (struct block_req){.op = op, .flags = flags, .offset = offset, .len = len, .iov = p.iov, .niov = 1};
	p.req.done = pending_done;
	p.req.opaque = &p;
	block_submit(n, &p.req);
	while (p.busy) {
		block_flush_queue(n);
		if (p.busy)
			loop_run_once(loop, -1);
	}
	return p.req.result;
}

static void make_file(const char *name, uint64_t size, int fill)
{
	char buf[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	assert_true(fd >= 0);
	memset(buf, fill, sizeof(buf));
	for (uint64_t at = 0; fill && at < size; at += sizeof(buf))
		assert_int_equal(pwrite(fd, buf, MIN(sizeof(buf), size - at), (off_t)at), MIN(sizeof(buf), size - at));
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	close(fd);
}

static struct block_node *open_node(const char *opts)
{
	char text[256];
	struct err err = {0};
	struct drive *d;

	snprintf(text, sizeof(text), "if=none,id=d,file=%s,%s", path, opts);
	d = drive_create(text, loop, &err);
	if (!d)
		fail_msg("%s", err.msg);
	return d->node;
}

static void expect_error(const char *opts, const char *part)
{
	char text[256];
	struct err err = {0};

	snprintf(text, sizeof(text), "if=none,id=d,file=%s,%s", path, opts);
	assert_null(drive_create(text, loop, &err));
	if (!strstr(err.msg, part))
		fail_msg("'%s' is not in '%s'", part, err.msg);
	assert_null(strchr(err.msg, '\n'));
}

/* ---- random requests against a model --------------------------------------- */

#define MODEL_SIZE (3u * 1024 * 1024)
#define DEPTH	   16

static unsigned rnd(unsigned n)
{
	static uint64_t s = 0x9e3779b97f4a7c15ull;
	s ^= s << 13;
	s ^= s >> 7;
	s ^= s << 17;
	return (unsigned)(s >> 11) % n;
}

/* Cut [0,len) of buf into up to 8 pieces at multiples of `grain`. */
static int cut(struct iovec *iov, uint8_t *buf, size_t len, size_t grain)
{
	size_t at = 0;
	int n = 0;

	while (at < len) {
		size_t c = grain * (1 + rnd((unsigned)(len / grain) + 1));
		if (n == 7 || c > len - at)
			c = len - at;
		iov[n++] = (struct iovec){buf + at, c};
		at += c;
	}
	return n;
}

/*
 * Batches of requests in flight together; within a batch they do not overlap at
 * the granularity `apart`, so that the model knows the outcome, yet they share
 * blocks of the host when `apart` is smaller than those.
 */
static void random_batch(struct block_node *n, uint8_t *model, unsigned grain, unsigned apart)
{
	static struct pending p[DEPTH];
	uint64_t lo = rnd(MODEL_SIZE / 2) / apart * apart;
	int k = 0;

	for (k = 0; k < DEPTH; k++) {
		size_t len = (size_t)grain * (1 + rnd(k == 0 ? 40000 / grain + 1 : 6000 / grain + 1));
		enum block_op op = (enum block_op[]){BLOCK_READ, BLOCK_WRITE, BLOCK_WRITE, BLOCK_WRITE_ZEROES}[rnd(4)];
		uint64_t at = ALIGN_UP(lo, grain);

		if (at + len > MODEL_SIZE)
			break;
		p[k].buf = (uint8_t *)aligned_alloc(4096, ALIGN_UP(len + 4096, 4096));
		memset(p[k].buf, 1 + (int)rnd(255), len + 4096);
		p[k].busy = true;
		p[k].req = (struct block_req){.op = op, .offset = at, .len = len, .iov = p[k].iov};
		p[k].req.flags = rnd(8) == 0 ? BLOCK_FUA : rnd(2) ? BLOCK_MAY_UNMAP : 0;
		p[k].req.niov = cut(p[k].iov, p[k].buf + (grain < 512 ? rnd(64) : 0), len, grain);
		p[k].req.done = pending_done;
		p[k].req.opaque = &p[k];
		lo = at + len;
	}
	for (int i = 0; i < k; i++)
		block_submit(n, &p[i].req);
	block_flush_queue(n);
	for (int i = 0; i < k; i++)
		while (p[i].busy)
			loop_run_once(loop, -1);
	for (int i = 0; i < k; i++) {
		uint8_t *data = p[i].iov[0].iov_base, *m = model + p[i].req.offset;
		if (p[i].req.result)
			fail_msg("op %d offset %lu len %lu niov %d: %d", p[i].req.op, p[i].req.offset, p[i].req.len,
				 p[i].req.niov, p[i].req.result);
		if (p[i].req.op == BLOCK_READ)
			assert_memory_equal(data, m, p[i].req.len);
		else if (p[i].req.op == BLOCK_WRITE)
			memcpy(m, data, p[i].req.len);
		else
			memset(m, 0, p[i].req.len);
		free(p[i].buf);
	}
}

static void random_requests(const char *opts)
{
	uint8_t *model = calloc(1, MODEL_SIZE), *back = malloc(MODEL_SIZE);
	struct block_node *n;
	int fd;

	make_file("model.raw", MODEL_SIZE, 0);
	n = open_node(opts);
	/* Write-through waits for the host's disk each time: fewer rounds there. */
	for (int i = 0; i < (block_writeback(n) ? 60 : 12); i++) {
		unsigned grain = (unsigned[]){512, 4096, 1, 100}[i % 4];
		random_batch(n, model, grain, grain);
	}
	assert_int_equal(run(n, BLOCK_FLUSH, 0, 0, NULL, 0), 0);
	drive_close_all();
	fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, back, MODEL_SIZE), MODEL_SIZE);
	close(fd);
	assert_memory_equal(back, model, MODEL_SIZE);
	free(model);
	free(back);
}

static void test_random(void **state)
{
	static const char *const engines[] = {"io_uring", "threads", "sync"};
	static const char *const caches[] = {"writeback", "none", "writethrough", "directsync", "unsafe"};
	char opts[80];

	for (size_t e = 0; e < ARRAY_SIZE(engines); e++)
		for (size_t c = 0; c < ARRAY_SIZE(caches); c++) {
			struct err err = {0};
			struct aio *probe = aio_create(loop, AIO_URING, &err);
			bool uring = probe != NULL;
			aio_destroy(probe);
			if (e == 0 && !uring)
				continue; /* a container that forbids it */
			snprintf(opts, sizeof(opts), "format=raw,discard=unmap,aio=%s,cache=%s", engines[e], caches[c]);
			random_requests(opts);
		}
}

/* A block device with 4096-byte sectors, where the machine lets us make one. */
static void test_random_4k_device(void **state)
{
	uint8_t *model = calloc(1, MODEL_SIZE), *back = malloc(MODEL_SIZE);
	char cmd[160], dev[64] = "";
	struct block_node *n;
	FILE *p;

	make_file("loop.img", MODEL_SIZE, 0);
	snprintf(cmd, sizeof(cmd), "losetup -b 4096 -f --show %s 2>/dev/null", path);
	p = popen(cmd, "r");
	if (!p || !fgets(dev, sizeof(dev), p) || dev[0] != '/') {
		if (p)
			pclose(p);
		free(model);
		free(back);
		skip();
	}
	pclose(p);
	dev[strcspn(dev, "\n")] = 0;
	snprintf(path, sizeof(path), "%s", dev);
	n = open_node("format=raw,cache=none");
	assert_int_equal(block_size(n), MODEL_SIZE);
	assert_int_equal(block_alignment(n), 4096);
	for (int i = 0; i < 60; i++)
		random_batch(n, model, i & 1 ? 512 : 4096, 512);
	assert_int_equal(run(n, BLOCK_READ, 0, 0, back, MODEL_SIZE), 0);
	assert_memory_equal(back, model, MODEL_SIZE);
	drive_close_all();
	snprintf(cmd, sizeof(cmd), "losetup -d %s", dev);
	assert_int_equal(system(cmd), 0);
	free(model);
	free(back);
}

/* ---- sizes, ends ------------------------------------------------------------- */

static void test_odd_size(void **state)
{
	static const char *const caches[] = {"cache=writeback", "cache=none"};
	uint8_t buf[1024];
	struct stat st;

	for (size_t c = 0; c < ARRAY_SIZE(caches); c++) {
		char opts[64];
		struct block_node *n;
		snprintf(opts, sizeof(opts), "format=raw,%s", caches[c]);
		make_file("odd.raw", 123456789, 0);
		n = open_node(opts);
		assert_int_equal(block_size(n), 123457024);
		memset(buf, 0x55, sizeof(buf));
		assert_int_equal(run(n, BLOCK_READ, 0, 123457024 - 1024, buf, 1024), 0);
		for (int i = 0; i < 1024; i++)
			assert_int_equal(buf[i], 0);
		memset(buf, 0xaa, sizeof(buf));
		assert_int_equal(run(n, BLOCK_WRITE, 0, 123457024 - 512, buf, 512), 0);
		memset(buf, 0, sizeof(buf));
		assert_int_equal(run(n, BLOCK_READ, 0, 123457024 - 512, buf, 512), 0);
		assert_int_equal(buf[511], 0xaa);
		drive_close_all();
		stat(path, &st);
		assert_int_equal(st.st_size, 123457024);
	}
}

static void test_bounds(void **state)
{
	uint8_t buf[4096] = {0};
	struct block_node *n;
	struct stat st;

	make_file("small.raw", 1024 * 1024, 0x11);
	n = open_node("format=raw");
	assert_int_equal(run(n, BLOCK_WRITE, 0, 1024 * 1024, buf, 512), -EIO);
	assert_int_equal(run(n, BLOCK_WRITE, 0, 1024 * 1024 - 512, buf, 1024), -EIO);
	assert_int_equal(run(n, BLOCK_READ, 0, UINT64_MAX - 511, buf, 1024), -EIO);
	assert_int_equal(run(n, BLOCK_DISCARD, 0, UINT64_MAX - 511, NULL, 1024), -EIO);
	assert_int_equal(run(n, BLOCK_WRITE_ZEROES, 0, 1024 * 1024 - 1, NULL, 2), -EIO);
	assert_int_equal(run(n, BLOCK_WRITE, 0, 1024 * 1024 - 512, buf, 512), 0);
	drive_close_all();
	stat(path, &st);
	assert_int_equal(st.st_size, 1024 * 1024);
	n = open_node("format=raw,readonly=on");
	assert_int_equal(run(n, BLOCK_WRITE, 0, 0, buf, 512), -EPERM);
	assert_int_equal(run(n, BLOCK_DISCARD, 0, 0, NULL, 512), -EPERM);
	assert_int_equal(run(n, BLOCK_WRITE_ZEROES, 0, 0, NULL, 512), -EPERM);
	assert_int_equal(run(n, BLOCK_READ, 0, 0, buf, 512), 0);
	assert_int_equal(buf[0], 0x11);
	drive_close_all();
}

static void test_discard_frees(void **state)
{
	struct block_node *n;
	struct stat a, b;

	make_file("full.raw", 4 * 1024 * 1024, 0x77);
	n = open_node("format=raw"); /* discard=ignore */
	stat(path, &a);
	assert_int_equal(run(n, BLOCK_DISCARD, 0, 0, NULL, 1024 * 1024), 0);
	stat(path, &b);
	assert_true(b.st_blocks >= a.st_blocks);
	drive_close_all();
	n = open_node("format=raw,discard=unmap");
	assert_int_equal(run(n, BLOCK_DISCARD, 0, 0, NULL, 1024 * 1024), 0);
	stat(path, &b);
	assert_true(b.st_blocks + 2000 <= a.st_blocks);
	assert_int_equal(run(n, BLOCK_WRITE_ZEROES, BLOCK_MAY_UNMAP, 1024 * 1024, NULL, 1024 * 1024), 0);
	stat(path, &b);
	assert_true(b.st_blocks + 4000 <= a.st_blocks);
	drive_close_all();
}

static void test_detect_zeroes(void **state)
{
	static uint8_t buf[1024 * 1024];
	struct block_node *n;
	struct stat a, b;
	uint8_t back[512];

	make_file("zeroes.raw", 4 * 1024 * 1024, 0x77);
	stat(path, &a);
	expect_error("detect-zeroes=unmap", "not allowed without setting discard");
	n = open_node("format=raw,discard=unmap,detect-zeroes=unmap");
	assert_int_equal(run(n, BLOCK_WRITE, 0, 0, buf, sizeof(buf)), 0);
	stat(path, &b);
	assert_true(b.st_blocks + 2000 <= a.st_blocks);
	buf[sizeof(buf) - 1] = 1;
	assert_int_equal(run(n, BLOCK_WRITE, 0, 1024 * 1024, buf, sizeof(buf)), 0);
	assert_int_equal(run(n, BLOCK_READ, 0, 2 * 1024 * 1024 - 512, back, 512), 0);
	assert_int_equal(back[510], 0);
	assert_int_equal(back[511], 1);
	assert_int_equal(run(n, BLOCK_READ, 0, 512, back, 512), 0);
	assert_int_equal(back[0], 0);
	drive_close_all();
	n = open_node("format=raw,detect-zeroes=on");
	buf[sizeof(buf) - 1] = 0;
	assert_int_equal(run(n, BLOCK_WRITE, 0, 3 * 1024 * 1024, buf, 4096), 0);
	assert_int_equal(run(n, BLOCK_READ, 0, 3 * 1024 * 1024, back, 512), 0);
	assert_int_equal(back[0], 0);
}

/* ---- guessed formats ----------------------------------------------------------- */

static void test_probed_raw(void **state)
{
	uint8_t buf[4096] = {0}, back[4096];
	struct block_node *n;

	make_file("guess.raw", 1024 * 1024, 0x22);
	n = open_node("cache=writeback");
	memcpy(buf, "QFI\xfb", 4);
	assert_int_equal(run(n, BLOCK_WRITE, 0, 0, buf, 4096), -EPERM);
	assert_int_equal(run(n, BLOCK_WRITE, 0, 0, buf, 100), -EPERM);
	assert_int_equal(run(n, BLOCK_WRITE, 0, 2, buf, 512), -EPERM);
	assert_int_equal(run(n, BLOCK_READ, 0, 0, back, 512), 0);
	assert_int_equal(back[0], 0x22);
	assert_int_equal(run(n, BLOCK_WRITE, 0, 512, buf, 512), 0);
	memset(buf, 0x33, sizeof(buf));
	assert_int_equal(run(n, BLOCK_WRITE, 0, 0, buf, 4096), 0);
	assert_int_equal(run(n, BLOCK_READ, 0, 0, back, 4096), 0);
	assert_memory_equal(buf, back, 4096);
	drive_close_all();
	n = open_node("format=raw");
	memcpy(buf, "QFI\xfb", 4);
	assert_int_equal(run(n, BLOCK_WRITE, 0, 0, buf, 4096), 0);
	drive_close_all();
	expect_error("cache=writeback", "qcow2"); /* now it is probed as one */
	n = open_node("format=raw");		  /* and format=raw never looks */
	drive_close_all();
}

/* ---- locks ---------------------------------------------------------------------- */

/* Runs in another process: our own locks never conflict there. Returns 0 opened, 1 refused. */
static int open_elsewhere(const char *opts)
{
	char text[256];
	int status;
	pid_t pid;

	snprintf(text, sizeof(text), "if=none,id=e,file=%s,%s", path, opts);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		struct err err = {0};
		struct loop *l = loop_create("child", &err);
		struct drive *d = drive_create(text, l, &err);
		_exit(d ? 0 : strstr(err.msg, "in use by process") ? 1 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static int shell(const char *fmt)
{
	char cmd[256];
	int status;

	snprintf(cmd, sizeof(cmd), fmt, path);
	status = system(cmd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_locks(void **state)
{
	make_file("locked.raw", 1024 * 1024, 0);
	open_node("format=raw");
	assert_int_equal(open_elsewhere("format=raw"), 1);
	assert_int_equal(open_elsewhere("format=raw,readonly=on"), 1);
	assert_int_equal(open_elsewhere("format=raw,file.locking=off"), 0);
	if (shell("command -v qemu-img >/dev/null # %s") == 0) {
		assert_int_not_equal(shell("qemu-io -f raw -c 'write 0 512' %s >/dev/null 2>&1"), 0);
		assert_int_not_equal(shell("qemu-img resize -f raw %s 2M >/dev/null 2>&1"), 0);
		assert_int_equal(shell("qemu-img info -U %s >/dev/null 2>&1"), 0);
	}
	drive_close_all();
	open_node("format=raw,readonly=on");
	assert_int_equal(open_elsewhere("format=raw,readonly=on"), 0);
	assert_int_equal(open_elsewhere("format=raw"), 1);
	drive_close_all();
	assert_int_equal(open_elsewhere("format=raw"), 0);
}

/* QEMU holds the image; we are refused, and let in when it is gone. */
static void test_locks_of_qemu(void **state)
{
	char want[] = "in use";
	pid_t pid;

	make_file("qlocked.raw", 1024 * 1024, 0);
	if (shell("command -v qemu-io >/dev/null # %s") != 0)
		skip();
	pid = fork();
	if (pid == 0) {
		close(0);
		execlp("qemu-io", "qemu-io", "-f", "raw", "-c", "sleep 20000", path, NULL);
		_exit(1);
	}
	/* Look without taking a lock, which would get in qemu-io's way. */
	int fd = open(path, O_RDONLY);
	for (int i = 0; i < 500; i++) {
		struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 201, .l_len = 1};
		if (fcntl(fd, F_OFD_GETLK, &fl) == 0 && fl.l_type != F_UNLCK)
			break;
		usleep(10000);
	}
	close(fd);
	expect_error("format=raw", want);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(open_elsewhere("format=raw"), 0);
}

/* ---- where io_uring is forbidden ---------------------------------------------------- */

/* As container runtimes do it. */
static bool forbid_io_uring(void)
{
	struct sock_filter code[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {ARRAY_SIZE(code), code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0;
}

/* In another process: 0 when all is as it should be, 77 when filters cannot be set here. */
static int without_io_uring(void)
{
	struct err err = {0};
	uint8_t buf[4096] = {1};
	struct block_node *n;
	char text[128];

	if (!forbid_io_uring())
		return 77;
	loop = loop_create("child", &err);
	snprintf(text, sizeof(text), "if=none,id=u,format=raw,aio=io_uring,file=%s", path);
	if (drive_create(text, loop, &err) || !strstr(err.msg, "io_uring is forbidden here"))
		return 1;
	snprintf(text, sizeof(text), "if=none,id=t,format=raw,file=%s", path);
	if (!drive_create(text, loop, &err))
		return 2;
	n = drive_find("t")->node;
	if (strcmp(block_aio_name(n), "threads") != 0)
		return 3;
	return run(n, BLOCK_WRITE, 0, 0, buf, 4096) || run(n, BLOCK_FLUSH, 0, 0, NULL, 0) ? 4 : 0;
}

static void test_fall_back(void **state)
{
	int status;
	pid_t pid;

	make_file("fallback.raw", 1024 * 1024, 0);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(without_io_uring());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

/* ---- options --------------------------------------------------------------------- */

static void test_bad_options(void **state)
{
	make_file("opt.raw", 1024 * 1024, 0);
	expect_error("format=qed", "Image not in QED format");
	expect_error("format=vmdk", "not 'vmdk'; convert it: qemu-img convert -f vmdk -O qcow2 ");
	expect_error("format=nosuch", "Unknown driver 'nosuch'");
	expect_error("cache=fast", "invalid cache option");
	expect_error("aio=native", "requires cache.direct=on");
	expect_error("aio=nosuch", "aio");
	expect_error("iops=100,iops_rd=10", "cannot be used at the same time");
	expect_error("throttling.bps-total-max=1000", "require corresponding bps/iops values");
	expect_error("throttling.iops-total=10,throttling.iops-total-max-length=5",
		     "burst length set without burst rate");
	expect_error("iops_size=4096", "iops size requires an iops value");
	expect_error("index=-1", "index");
	expect_error("readnly=on", "did you mean 'readonly'");
	expect_error("rerror=enospc", "no rerror action");
	snprintf(path, sizeof(path), "%s/none.raw", dir);
	expect_error("format=raw", "No such file or directory");
	snprintf(path, sizeof(path), "%s", dir);
	expect_error("format=raw", "Is a directory");
	snprintf(path, sizeof(path), "/dev/null");
	expect_error("format=raw", "neither a regular file nor a block device");
	snprintf(path, sizeof(path), "ftp:localhost:1");
	expect_error("format=raw", "protocol 'ftp' is not implemented");
	snprintf(path, sizeof(path), "foo:bar");
	expect_error("format=raw", "Unknown protocol 'foo'");
}

/* A file system without O_DIRECT: file, reason and remedy in one line. */
static void test_no_direct_io(void **state)
{
	char folder[40], cmd[200];

	snprintf(folder, sizeof(folder), "%s/ramfs", dir);
	snprintf(cmd, sizeof(cmd), "mkdir %s && mount -t ramfs ramfs %s 2>/dev/null", folder, folder);
	if (system(cmd) != 0)
		skip(); /* not root */
	snprintf(path, sizeof(path), "%s/a.raw", folder);
	snprintf(cmd, sizeof(cmd), "truncate -s 1M %s", path);
	assert_int_equal(system(cmd), 0);
	for (int i = 0; i < 2; i++) {
		struct err err = {0};
		char text[200];
		snprintf(text, sizeof(text), "if=none,id=d,format=raw,file=%s,cache=%s", path,
			 i ? "directsync" : "none");
		if (drive_create(text, loop, &err) || !strstr(err.msg, "O_DIRECT") || !strstr(err.msg, "cache=") ||
		    !strstr(err.msg, path)) {
			snprintf(cmd, sizeof(cmd), "umount %s", folder);
			fail_msg("'%s' (%d)", err.msg, system(cmd));
		}
	}
	open_node("format=raw,cache=writeback");
	drive_close_all();
	snprintf(cmd, sizeof(cmd), "umount %s", folder);
	assert_int_equal(system(cmd), 0);
}

static void test_cache_table(void **state)
{
	static const struct {
		const char *opts;
		bool writeback;
		int direct;
	} row[] = {
	    {"format=raw", true, 0},
	    {"format=raw,cache=none", true, O_DIRECT},
	    {"format=raw,cache=off", true, O_DIRECT},
	    {"format=raw,cache=writethrough", false, 0},
	    {"format=raw,cache=directsync", false, O_DIRECT},
	    {"format=raw,cache=unsafe", true, 0},
	    {"format=raw,cache=none,cache.direct=off", true, 0},
	    {"format=raw,cache.writeback=off", false, 0},
	};

	make_file("cache.raw", 1024 * 1024, 0);
	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		struct block_node *n = open_node(row[i].opts);
		bool direct = false;
		struct stat st, other;
		stat(path, &st);
		for (int fd = 3; fd < 64; fd++)
			if (fstat(fd, &other) == 0 && other.st_ino == st.st_ino && other.st_dev == st.st_dev)
				direct = fcntl(fd, F_GETFL) & O_DIRECT;
		assert_int_equal(block_writeback(n), row[i].writeback);
		assert_int_equal(direct, row[i].direct != 0);
		drive_close_all();
	}
}

static void test_drive_names(void **state)
{
	struct err err = {0};
	char text[200];
	struct drive *a, *b;

	make_file("n.raw", 1024 * 1024, 0);
	snprintf(text, sizeof(text), "if=virtio,file=%s,format=raw,readonly=on,serial=abc", path);
	a = drive_create(text, loop, &err);
	b = drive_create(text, loop, &err);
	assert_non_null(a);
	assert_non_null(b);
	assert_string_equal(a->id, "virtio0");
	assert_string_equal(b->id, "virtio1");
	assert_string_equal(a->serial, "abc");
	assert_ptr_equal(drive_find("virtio1"), b);
	snprintf(text, sizeof(text), "if=virtio,index=1,file=%s,format=raw,readonly=on", path);
	assert_null(drive_create(text, loop, &err));
	assert_string_equal(err.msg, "drive with bus=0, unit=1 (index=1) exists");
	memset(&err, 0, sizeof(err));
	snprintf(text, sizeof(text), "if=virtio,id=virtio0,file=%s,format=raw,readonly=on", path);
	assert_null(drive_create(text, loop, &err));
	assert_string_equal(err.msg, "Duplicate ID 'virtio0' for drive");
	drive_close_all();
	memset(&err, 0, sizeof(err));
	a = drive_create("file=,if=none,id=cd,media=cdrom", loop, &err);
	assert_non_null(a);
	assert_null(a->node);
	drive_close_all();
}

static int close_drives(void **state)
{
	drive_close_all(); /* also after a failed test */
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
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

#define TEST(f) cmocka_unit_test_teardown(f, close_drives)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_random),	      TEST(test_random_4k_device), TEST(test_odd_size),	   TEST(test_bounds),
	    TEST(test_discard_frees), TEST(test_detect_zeroes),	   TEST(test_probed_raw),  TEST(test_locks),
	    TEST(test_locks_of_qemu), TEST(test_fall_back),	   TEST(test_bad_options), TEST(test_cache_table),
	    TEST(test_drive_names),   TEST(test_no_direct_io),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
