/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Port dispatch: sizes, regions side by side, shadowed and moving regions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/util.h"
#include "bus/ports.h"

struct recorder {
	uint64_t off, val;
	unsigned size, reads, writes;
};

/* Reads give the offset of each byte. */
static uint64_t recorder_read(void *opaque, uint64_t off, unsigned size)
{
	struct recorder *r = opaque;
	uint64_t v = 0;

	r->reads++;
	r->off = off;
	r->size = size;
	for (unsigned i = 0; i < size; i++)
		v |= (off + i) << (i * 8);
	return v;
}

static void recorder_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct recorder *r = opaque;

	r->writes++;
	r->off = off;
	r->val = val;
	r->size = size;
}

static const struct region_ops any_ops = {.read = recorder_read, .write = recorder_write};
static const struct region_ops byte_ops = {
    .read = recorder_read, .write = recorder_write, .min_size = 1, .max_size = 1};
static const struct region_ops dword_ops = {
    .read = recorder_read, .write = recorder_write, .min_size = 4, .max_size = 4};

static struct mem_region region(const char *name, uint64_t size, const struct region_ops *ops, struct recorder *r)
{
	return (struct mem_region){.name = name, .size = size, .ops = ops, .opaque = r};
}

static void test_unclaimed(void **state)
{
	struct ports *p = ports_create();

	assert_int_equal(ports_read(p, 0x123, 1), 0xff);
	assert_int_equal(ports_read(p, 0x123, 2), 0xffff);
	assert_int_equal(ports_read(p, 0xffff, 4), 0xffffffff); /* beyond the last port */
	ports_write(p, 0xffff, 0, 4);
	ports_destroy(p);
}

static void test_sizes(void **state)
{
	struct ports *p = ports_create();
	struct recorder a = {0}, b = {0}, c = {0};
	struct mem_region ra = region("any", 8, &any_ops, &a), rb = region("bytes", 4, &byte_ops, &b),
			  rc = region("dwords", 8, &dword_ops, &c);

	ports_map(p, &ra, 0x100);
	ports_map(p, &rb, 0x200);
	ports_map(p, &rc, 0x300);
	assert_int_equal(ports_read(p, 0x102, 4), 0x05040302);
	assert_int_equal(a.reads, 1);
	assert_int_equal(ports_read(p, 0x200, 4), 0x03020100); /* split into bytes */
	assert_int_equal(b.reads, 4);
	ports_write(p, 0x200, 0x1234, 2);
	assert_int_equal(b.writes, 2);
	assert_int_equal(b.val, 0x12);
	assert_int_equal(b.off, 1);
	assert_int_equal(ports_read(p, 0x306, 1), 6); /* widened */
	assert_int_equal(c.off, 4);
	assert_int_equal(c.size, 4);
	ports_write(p, 0x305, 0xab, 1); /* writes pass through */
	assert_int_equal(c.size, 1);
	assert_int_equal(c.off, 5);
	ports_destroy(p);
}

static void test_neighbours(void **state)
{
	struct ports *p = ports_create();
	struct recorder a = {0}, b = {0};
	struct mem_region ra = region("a", 2, &any_ops, &a), rb = region("b", 1, &any_ops, &b);

	ports_map(p, &ra, 0x100);
	ports_map(p, &rb, 0x102);
	/* two of a, one of b, one of nobody */
	assert_int_equal(ports_read(p, 0x100, 4), 0xff000100);
	assert_int_equal(ports_read(p, 0x101, 2), 0x0001);
	ports_write(p, 0x101, 0xbbaa, 2);
	assert_int_equal(a.val, 0xaa);
	assert_int_equal(a.off, 1);
	assert_int_equal(b.val, 0xbb);
	ports_destroy(p);
}

static void walk_count(void *arg, uint16_t base, const struct mem_region *r)
{
	++*(unsigned *)arg;
}

static void test_shadow(void **state)
{
	struct ports *p = ports_create();
	struct recorder a = {0}, b = {0};
	struct mem_region ra = region("first", 4, &any_ops, &a), rb = region("second", 4, &any_ops, &b);
	unsigned n = 0;

	ports_map(p, &ra, 0x100);
	ports_map(p, &rb, 0x102);
	ports_read(p, 0x103, 1);
	assert_int_equal(a.reads, 1); /* first come keeps the port */
	ports_read(p, 0x104, 1);
	assert_int_equal(b.reads, 1);
	ports_walk(p, walk_count, &n);
	assert_int_equal(n, 2);
	ports_unmap(p, &ra);
	assert_int_equal(ports_read(p, 0x100, 1), 0xff);
	assert_int_equal(ports_read(p, 0x103, 1), 1); /* the second steps forward */
	assert_int_equal(b.reads, 2);
	/* moving maps again, and takes nothing along */
	ports_map(p, &rb, 0x200);
	assert_int_equal(ports_read(p, 0x103, 1), 0xff);
	assert_int_equal(ports_read(p, 0x203, 1), 3);
	/* at the very end of the port space */
	ports_map(p, &rb, 0xfffe);
	assert_int_equal(ports_read(p, 0xffff, 1), 1);
	ports_unmap(p, &rb);
	ports_unmap(p, &rb); /* once more does nothing */
	ports_destroy(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_unclaimed),
	    cmocka_unit_test(test_sizes),
	    cmocka_unit_test(test_neighbours),
	    cmocka_unit_test(test_shadow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
