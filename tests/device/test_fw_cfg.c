/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The firmware configuration device: selector and data ports, directory, DMA, -fw_cfg. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "hw/pc/fw_cfg.h"
#include "rig.h"

#define SELECT 0x510
#define DATA   0x511
#define DMA    0x514

struct bench {
	struct rig r;
	struct fw_cfg *f;
};

static int setup(void **state)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct ram_config ram = {.size = 4 * MIB};
	struct err err = {0};

	rig_init(&b->r, 1);
	assert_int_equal(mem_add_ram(&b->r.mem, "ram", 0, ram.size, &ram, false, &err), 0);
	b->f = fw_cfg_of(rig_dev(&b->r, &fw_cfg_ops, NULL));
	dev_reset_all(&b->r.bus);
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	struct bench *b = *state;

	rig_fini(&b->r);
	free(b);
	return 0;
}

static void pick(struct bench *b, uint16_t key)
{
	ports_write(b->r.bus.ports, SELECT, key, 2);
}

static void take(struct bench *b, void *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = in8(&b->r, DATA);
}

/* Key of a file by the directory, 0 when there is none. */
static uint16_t find(struct bench *b, const char *name, uint32_t *size)
{
	uint8_t count[4], entry[64];

	pick(b, FW_CFG_FILE_DIR);
	take(b, count, 4);
	for (uint32_t i = 0; i < ld32be(count); i++) {
		take(b, entry, sizeof(entry));
		if (!strcmp((char *)entry + 8, name)) {
			*size = ld32be(entry);
			return ld16be(entry + 4);
		}
	}
	return 0;
}

static void test_items(void **state)
{
	struct bench *b = *state;
	struct err err = {0};
	uint8_t buf[8];

	pick(b, FW_CFG_SIGNATURE);
	take(b, buf, 6);
	assert_memory_equal(buf, "QEMU\0\0", 6); /* zeroes beyond the end */
	pick(b, FW_CFG_ID);
	take(b, buf, 4);
	assert_int_equal(ld32le(buf), 3);
	assert_int_equal(fw_cfg_set_u16(b->f, FW_CFG_NB_CPUS, 7, &err), 0);
	assert_int_equal(fw_cfg_set_u64(b->f, FW_CFG_RAM_SIZE, 6 * GIB, &err), 0);
	pick(b, FW_CFG_RAM_SIZE);
	take(b, buf, 8);
	assert_int_equal(ld64le(buf), 6 * GIB);
	pick(b, FW_CFG_NB_CPUS);
	take(b, buf, 2);
	assert_int_equal(ld16le(buf), 7);
	/* no such item; other sizes at the selector */
	pick(b, 0x3fff);
	assert_int_equal(in8(&b->r, DATA), 0);
	pick(b, 0x8000); /* an item of the architecture: not item 0 */
	assert_int_equal(in8(&b->r, DATA), 0);
	pick(b, FW_CFG_SIGNATURE);
	out8(&b->r, SELECT, 0x01);
	ports_write(b->r.bus.ports, SELECT, 1, 4);
	assert_int_equal(in8(&b->r, DATA), 'Q');
	out8(&b->r, DATA, 0); /* items are not writable */
	assert_int_equal(in8(&b->r, DATA), 'E');
}

static void test_files(void **state)
{
	struct bench *b = *state;
	char long_name[60], path[] = "/tmp/kelvin-fw-XXXXXX", text[100];
	struct err err = {0};
	uint32_t size;
	uint8_t buf[8];
	int fd = mkstemp(path);

	assert_int_equal(write(fd, "abc", 3), 3);
	close(fd);
	assert_int_equal(fw_cfg_add_option(b->f, "name=opt/a,string=hello", &err), 0);
	snprintf(text, sizeof(text), "opt/b,file=%s", path);
	assert_int_equal(fw_cfg_add_option(b->f, text, &err), 0);
	unlink(path);
	pick(b, find(b, "opt/a", &size));
	assert_int_equal(size, 5);
	take(b, buf, 6);
	assert_memory_equal(buf, "hello\0", 6);
	pick(b, find(b, "opt/b", &size));
	assert_int_equal(size, 3);
	take(b, buf, 3);
	assert_memory_equal(buf, "abc", 3);
	/* refused, each with a reason */
	memset(long_name, 'x', sizeof(long_name));
	long_name[56] = 0;
	assert_int_equal(fw_cfg_add_file(b->f, long_name, "", 0, &err), -EINVAL);
	err = (struct err){0};
	assert_int_equal(fw_cfg_add_option(b->f, "name=opt/a,string=again", &err), -EEXIST);
	err = (struct err){0};
	assert_int_equal(fw_cfg_add_option(b->f, "name=opt/c", &err), -EINVAL);
	err = (struct err){0};
	assert_int_equal(fw_cfg_add_option(b->f, "name=opt/c,string=x,file=y", &err), -EINVAL);
	err = (struct err){0};
	assert_true(fw_cfg_add_option(b->f, "name=opt/c,string=x,what=y", &err) < 0);
	err = (struct err){0};
	assert_int_equal(fw_cfg_add_option(b->f, "name=opt/c,file=/nonexistent/x", &err), -ENOENT);
	assert_non_null(strstr(err.msg, "/nonexistent/x"));
	err = (struct err){0};
	for (int i = 0; i < 62; i++) {
		snprintf(text, sizeof(text), "opt/n%d", i);
		assert_int_equal(fw_cfg_add_file(b->f, text, "", 0, &err), 0);
	}
	assert_int_equal(fw_cfg_add_file(b->f, "opt/last", "", 0, &err), -ENOSPC);
}

static uint32_t dma(struct bench *b, uint32_t control, uint32_t len, uint64_t addr)
{
	uint8_t req[16];

	st32be(req, control);
	st32be(req + 4, len);
	st64be(req + 8, addr);
	assert_int_equal(dma_write(&b->r.mem, 0x1000, req, sizeof(req)), 0);
	ports_write(b->r.bus.ports, DMA, 0, 4);
	ports_write(b->r.bus.ports, DMA + 4, __builtin_bswap32(0x1000), 4);
	assert_int_equal(dma_read(&b->r.mem, 0x1000, req, 4), 0);
	return ld32be(req);
}

static void test_dma(void **state)
{
	struct bench *b = *state;
	struct err err = {0};
	uint32_t size;
	uint16_t key;
	uint8_t buf[16];

	assert_int_equal(ports_read(b->r.bus.ports, DMA, 4), 0x554d4551); /* "QEMU" */
	assert_int_equal(ports_read(b->r.bus.ports, DMA + 4, 4), 0x47464320);
	assert_int_equal(fw_cfg_add_file(b->f, "opt/x", "0123456789", 10, &err), 0);
	key = find(b, "opt/x", &size);
	memset(buf, 0xee, sizeof(buf));
	dma_write(&b->r.mem, 0x2000, buf, sizeof(buf));
	/* select and read, then go on, skip, and read over the end */
	assert_int_equal(dma(b, (uint32_t)key << 16 | 8 | 2, 4, 0x2000), 0);
	dma_read(&b->r.mem, 0x2000, buf, 6);
	assert_memory_equal(buf, "0123\xee\xee", 6);
	assert_int_equal(dma(b, 4, 2, 0), 0);
	assert_int_equal(dma(b, 2, 8, 0x2000), 0);
	dma_read(&b->r.mem, 0x2000, buf, 9);
	assert_memory_equal(buf, "6789\0\0\0\0\xee", 9);
	/* not RAM; longer than RAM; writing an item; a request that is nowhere */
	assert_int_equal(dma(b, (uint32_t)key << 16 | 8 | 2, 4, 0xf0000000), 1);
	assert_int_equal(dma(b, (uint32_t)key << 16 | 8 | 2, 0xffffffff, 0x2000), 1);
	assert_int_equal(dma(b, (uint32_t)key << 16 | 8 | 2, 4, UINT64_MAX - 1), 1);
	assert_int_equal(dma(b, (uint32_t)key << 16 | 8 | 16, 4, 0x2000), 1);
	assert_int_equal(dma(b, 4, 0xffffffff, 0), 0); /* skips to the end, no further */
	assert_int_equal(dma(b, 0, 0, 0), 0);
	ports_write(b->r.bus.ports, DMA, 0xffffffff, 4);
	ports_write(b->r.bus.ports, DMA + 4, 0xffffffff, 4);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {T(test_items), T(test_files), T(test_dma)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
