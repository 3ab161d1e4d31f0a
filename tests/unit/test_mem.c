/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The address map, DMA and page bits; map moves under concurrent readers (run this one with TSan too). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/util.h"
#include "mem/mem.h"
#include "mem/shared.h"

/* A device that answers each byte with its offset and remembers the last write. */
struct probe {
	uint64_t off, val;
	unsigned size, calls;
};

static uint64_t probe_read(void *opaque, uint64_t off, unsigned size)
{
	struct probe *p = opaque;
	uint64_t v = 0;

	p->calls++;
	p->size = size;
	for (unsigned i = 0; i < size; i++)
		v |= ((off + i) & 0xff) << (8 * i);
	return v;
}

static void probe_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct probe *p = opaque;

	p->calls++;
	p->off = off;
	p->val = val;
	p->size = size;
}

static const struct region_ops probe_ops = {probe_read, probe_write, 0, 0};
static const struct region_ops probe4_ops = {probe_read, probe_write, 4, 4};

static void map_up(struct mem_map *m)
{
	struct err err = {0};

	assert_int_equal(mem_init(m, &err), 0);
	assert_int_equal(mem_add_ram(m, "low", 0, 4 * MIB, NULL, false, &err), 0);
	assert_int_equal(mem_add_ram(m, "high", 4 * GIB, 2 * MIB, NULL, false, &err), 0);
	assert_int_equal(mem_add_ram(m, "rom", 0xfffc0000, 256 * KIB, NULL, true, &err), 0);
}

static void test_ram_and_hole(void **state)
{
	struct mem_map m;

	map_up(&m);
	assert_int_equal((uintptr_t)mem_ram_ptr(&m, 0, 1) % (2 * MIB), 0);
	assert_int_equal((uintptr_t)mem_ram_ptr(&m, 4 * GIB, 1) % (2 * MIB), 0);
	mem_write(&m, 0x1000, 0x1122334455667788, 8);
	assert_int_equal(mem_read(&m, 0x1000, 8), 0x1122334455667788);
	assert_int_equal(mem_read(&m, 0x1003, 2), 0x4455);
	/* nothing there: all ones of the size asked for; a write vanishes */
	assert_int_equal(mem_read(&m, 4 * MIB, 4), 0xffffffff);
	assert_int_equal(mem_read(&m, UINT64_MAX, 1), 0xff);
	assert_int_equal(mem_read(&m, UINT64_MAX - 3, 8), UINT64_MAX & mem_read(&m, UINT64_MAX - 3, 8));
	mem_write(&m, 5 * MIB, 1, 8);
	/* half RAM, half hole */
	mem_write(&m, 4 * MIB - 2, 0xaabbccdd, 4);
	assert_int_equal(mem_read(&m, 4 * MIB - 2, 4), 0xffffccdd);
	assert_null(mem_ram_ptr(&m, 4 * MIB - 2, 3));
	assert_non_null(mem_ram_ptr(&m, 4 * MIB - 2, 2));
	/* ROM keeps its bytes */
	mem_write(&m, 0xfffc0000, 0x55, 1);
	assert_int_equal(mem_read(&m, 0xfffc0000, 1), 0);
	assert_int_equal(mem_page_index(&m, 4 * GIB), 1024);
	assert_int_equal(mem_page_index(&m, 3 * GIB), UINT64_MAX);
	mem_fini(&m);
}

static void test_regions(void **state)
{
	struct mem_map m;
	struct probe p = {0}, q = {0};
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct mem_region vga = {.name = "vga", .size = 0x20000, .ops = &probe_ops, .opaque = &p, .lock = &lock};
	struct mem_region reg4 = {.name = "reg4", .size = 0x100, .ops = &probe4_ops, .opaque = &q};

	map_up(&m);
	mem_map_region(&m, &vga, 0xa0000, 0);
	assert_false(mem_is_ram(&m, 0xa0000));
	assert_true(mem_is_ram(&m, 0xc0000));
	assert_int_equal(mem_read(&m, 0xa0010, 4), 0x13121110);
	/* straddles RAM and region: one byte of RAM, three of the device */
	mem_write(&m, 0x9ffff, 0x77, 1);
	assert_int_equal(mem_read(&m, 0x9ffff, 4), 0x02010077);
	mem_write(&m, 0x9ffff, 0x44332211, 4);
	assert_int_equal(mem_read(&m, 0x9ffff, 1), 0x11);
	assert_int_equal(p.off, 2);
	assert_int_equal(p.val, 0x44);
	/* unmapping shows the RAM below again */
	mem_unmap_region(&m, &vga);
	assert_true(mem_is_ram(&m, 0xa0000));

	/* a 4-byte-only device: small reads are widened, large accesses split */
	mem_map_region(&m, &reg4, 0xfee00000, 1);
	assert_int_equal(mem_read(&m, 0xfee00011, 1), 0x11);
	assert_int_equal(q.size, 4);
	assert_int_equal(mem_read(&m, 0xfee00012, 2), 0x1312);
	q.calls = 0;
	assert_int_equal(mem_read(&m, 0xfee00020, 8), 0x2726252423222120);
	assert_int_equal(q.calls, 2);
	/* higher priority wins, whatever the order */
	mem_map_region(&m, &vga, 0xfee00000, 0);
	mem_read(&m, 0xfee00000, 4);
	assert_int_equal(q.calls, 3);
	/* a region at the very top of the address space must not wrap */
	mem_map_region(&m, &vga, UINT64_MAX - 0xffff, 0);
	assert_int_equal(mem_read(&m, UINT64_MAX - 0xffff, 1), 0);
	assert_true(mem_is_ram(&m, 0));
	mem_fini(&m);
}

static void test_dma(void **state)
{
	struct mem_map m;
	struct probe p = {0};
	struct mem_region vga = {.name = "vga", .size = 0x20000, .ops = &probe_ops, .opaque = &p};
	struct iovec iov[2];
	uint8_t buf[64] = {1, 2, 3}, back[64];
	int n = 0;

	map_up(&m);
	mem_map_region(&m, &vga, 0xa0000, 0);
	assert_int_equal(dma_write(&m, 0x5000, buf, sizeof(buf)), 0);
	assert_int_equal(dma_read(&m, 0x5000, back, sizeof(back)), 0);
	assert_memory_equal(buf, back, sizeof(buf));
	/* DMA never reaches a device, a ROM (writing) or a hole, and then copies nothing */
	assert_int_equal(dma_write(&m, 0x9fff0, buf, 64), -EFAULT);
	assert_int_equal(mem_read(&m, 0x9fff0, 8), 0);
	assert_int_equal(p.calls, 0);
	assert_int_equal(dma_write(&m, 0xfffc0000, buf, 4), -EFAULT);
	assert_int_equal(dma_read(&m, 0xfffc0000, back, 4), 0);
	assert_int_equal(dma_read(&m, 4 * MIB - 1, back, 2), -EFAULT);
	assert_int_equal(dma_read(&m, UINT64_MAX - 1, back, 8), -EFAULT);
	assert_int_equal(dma_begin(&m, 0, UINT64_MAX, false, iov, &n, 2), -EFAULT);
	n = 0;
	assert_int_equal(dma_begin(&m, 0x1800, 0x2000, true, iov, &n, 2), 0);
	assert_int_equal(n, 1);
	assert_int_equal(iov[0].iov_len, 0x2000);
	n = 2;
	assert_int_equal(dma_begin(&m, 0x1800, 0x2000, true, iov, &n, 2), -ENOSPC);
	mem_fini(&m);
}

struct code_hits {
	uint64_t page[8];
	unsigned off[8], len[8], n;
};

static void code_hit(void *opaque, uint64_t page, unsigned off, unsigned len)
{
	struct code_hits *h = opaque;

	h->page[h->n] = page;
	h->off[h->n] = off;
	h->len[h->n++] = len;
}

static void test_page_bits(void **state)
{
	struct mem_map m;
	struct code_hits h = {0};

	map_up(&m);
	m.code_written = code_hit;
	m.code_opaque = &h;
	m.page_bits[2] |= MEM_PAGE_CODE;
	m.page_bits[1024] |= MEM_PAGE_CODE;
	dma_end(&m, 0x1f00, 0x1180); /* pages 1, 2 and 3: only 2 holds code */
	assert_int_equal(h.n, 1);
	assert_int_equal(h.page[0], 2);
	assert_int_equal(h.off[0], 0);
	assert_int_equal(h.len[0], 0x1000);
	mem_write(&m, 4 * GIB + 0x10, 1, 4);
	assert_int_equal(h.n, 2);
	assert_int_equal(h.page[1], 1024);
	assert_int_equal(h.off[1], 0x10);
	assert_int_equal(h.len[1], 4);

	mem_write(&m, 0x3000, 1, 1);
	assert_false(mem_dirty_test_clear(&m, 3));
	mem_dirty_start(&m);
	mem_write(&m, 0x3fff, 1, 2);
	assert_true(mem_dirty_test_clear(&m, 3));
	assert_true(mem_dirty_test_clear(&m, 4));
	assert_false(mem_dirty_test_clear(&m, 3));
	mem_dirty_stop(&m);
	mem_fini(&m);
}

/* ---- concurrency ---- */

static struct mem_map shared;
static _Atomic bool done;

static uint64_t fixed_read(void *opaque, uint64_t off, unsigned size)
{
	return 0x5a;
}
static const struct region_ops fixed_ops = {fixed_read, NULL, 1, 1};

static void *reader(void *arg)
{
	unsigned long bad = 0;

	while (!done) {
		/* the moving region is at one of two places or unmapped: nothing else may be seen */
		uint64_t v = mem_read(&shared, 0xe0000000 + ((uintptr_t)arg & 1) * 0x10000, 1);

		bad += v != 0x5a && v != 0xff;
		bad += mem_read(&shared, 0x1000, 4) != 0x12345678;
		bad += mem_page_index(&shared, 4 * GIB) != 1024;
	}
	return (void *)bad;
}

static void test_concurrent_moves(void **state)
{
	struct mem_region r[4];
	pthread_t t[3];

	done = false;
	map_up(&shared);
	mem_write(&shared, 0x1000, 0x12345678, 4);
	for (unsigned i = 0; i < 4; i++)
		r[i] = (struct mem_region){.name = "r", .size = 0x1000, .ops = &fixed_ops};
	for (uintptr_t i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, reader, (void *)i);
	for (unsigned i = 0; i < 400; i++) {
		mem_map_region(&shared, &r[0], 0xe0000000 + (i & 1) * 0x10000, 0);
		mem_map_region(&shared, &r[1 + i % 3], 0xd0000000 + i * 0x1000, 0);
		if (i % 5 == 0)
			mem_unmap_region(&shared, &r[0]);
	}
	done = true;
	for (unsigned i = 0; i < 3; i++) {
		void *bad;

		pthread_join(t[i], &bad);
		assert_ptr_equal(bad, NULL);
	}
	mem_fini(&shared);
}

/* ---- -mem-path (case D10: no file is left behind) ---- */

static void test_mem_path(void **state)
{
	char dir[] = "/tmp/kelvin-test-XXXXXX", path[64];
	struct ram_config cfg = {.share = true, .prealloc = true};
	struct mem_map m;
	struct err err = {0};
	FILE *f;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(mem_init(&m, &err), 0);
	cfg.path = dir;
	assert_int_equal(mem_add_ram(&m, "a", 0, 1 * MIB, &cfg, false, &err), 0);
	snprintf(path, sizeof(path), "%s/new", dir);
	cfg.path = path;
	assert_int_equal(mem_add_ram(&m, "b", 1 * MIB, 1 * MIB, &cfg, false, &err), 0);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(rmdir(dir), 0); /* empty: nothing was left */
	mem_fini(&m);

	/* an existing file is used, shared out to the blocks in order, and stays the user's */
	assert_non_null(mkdtemp(strcpy(dir, "/tmp/kelvin-test-XXXXXX")));
	snprintf(path, sizeof(path), "%s/old", dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	assert_int_equal(mem_init(&m, &err), 0);
	assert_int_equal(mem_add_ram(&m, "a", 0, 1 * MIB, &cfg, false, &err), 0);
	assert_int_equal(mem_add_ram(&m, "b", 4 * GIB, 1 * MIB, &cfg, false, &err), 0);
	mem_write(&m, 4 * GIB, 0x41, 1);
	mem_fini(&m);
	f = fopen(path, "r");
	assert_non_null(f);
	fseek(f, 1 * MIB, SEEK_SET);
	assert_int_equal(fgetc(f), 0x41);
	fclose(f);
	unlink(path);
	rmdir(dir);

	assert_int_equal(mem_init(&m, &err), 0);
	cfg.path = "/nosuch-folder/ram";
	assert_int_equal(mem_add_ram(&m, "a", 0, 1 * MIB, &cfg, false, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "/nosuch-folder/ram"));
	mem_fini(&m);
}

/* Is `flag` among the VmFlags of the mapping that starts at addr? */
static bool vm_flag(const void *addr, const char *flag)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512], start[32];
	bool here = false, found = false;

	assert_non_null(f);
	snprintf(start, sizeof(start), "%lx-", (unsigned long)(uintptr_t)addr);
	while (fgets(line, sizeof(line), f) && !found) {
		if (strchr(line, '-') && strspn(line, "0123456789abcdef") > 4)
			here = strncmp(line, start, strlen(start)) == 0;
		else if (here && strncmp(line, "VmFlags:", 8) == 0)
			found = strstr(line, flag);
	}
	fclose(f);
	return found;
}

/* Case C5 and KSM: anonymous RAM is advised as the configuration says. */
static void test_advice(void **state)
{
	struct ram_config cfg = {.merge = true, .dump = false}, plain = {.dump = true};
	struct mem_map m;
	struct err err = {0};

	if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
		skip();
	assert_int_equal(mem_init(&m, &err), 0);
	assert_int_equal(mem_add_ram(&m, "a", 0, 8 * MIB, &cfg, false, &err), 0);
	assert_int_equal(mem_add_ram(&m, "b", 4 * GIB, 8 * MIB, &plain, false, &err), 0);
	assert_true(vm_flag(m.block[0].host, " hg"));
	assert_true(vm_flag(m.block[0].host, " dd"));
	assert_true(access("/sys/kernel/mm/ksm", F_OK) != 0 || vm_flag(m.block[0].host, " mg"));
	assert_true(vm_flag(m.block[1].host, " hg"));
	assert_false(vm_flag(m.block[1].host, " dd"));
	assert_false(vm_flag(m.block[1].host, " mg"));
	mem_fini(&m);
}

static bool file_says(const char *path, const char *what)
{
	char text[200] = "";
	FILE *f = fopen(path, "re");
	const bool says = f && fgets(text, sizeof(text), f) && strstr(text, what);

	if (f)
		fclose(f);
	return says;
}

/* What one process writes another reads; root gets huge pages also where the host's switch is off. */
static void shared_file(bool root)
{
	const size_t size = 8 * MIB;
	int fd = shared_memory_file("test"), status;
	char link[100] = "", path[60];

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_true(readlink(path, link, sizeof(link) - 1) > 0);
	if (root && file_says("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "[never]"))
		assert_null(strstr(link, "memfd:"));
	uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	pid_t pid = fork();
	if (pid == 0) {
		const uint8_t *q = mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, fd, (off_t)(size - PAGE_SIZE));

		p[1] = 77;
		while (q != MAP_FAILED && !*(const volatile uint8_t *)q)
			usleep(1000);
		_exit(q != MAP_FAILED && *q == 99 ? 0 : 1);
	}
	p[size - PAGE_SIZE] = 99;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(p[1], 77);
	munmap(p, size);
	close(fd);
}

static void test_shared_file(void **state)
{
	int status;

	shared_file(geteuid() == 0);
	if (geteuid())
		return;
	/* The same for somebody without privileges, with or without user namespaces. */
	pid_t pid = fork();
	if (pid == 0) {
		if (setgid(65534) || setuid(65534))
			_exit(2);
		shared_file(false);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_ram_and_hole),     cmocka_unit_test(test_regions),	 cmocka_unit_test(test_dma),
	    cmocka_unit_test(test_page_bits),	     cmocka_unit_test(test_mem_path),	 cmocka_unit_test(test_advice),
	    cmocka_unit_test(test_concurrent_moves), cmocka_unit_test(test_shared_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
