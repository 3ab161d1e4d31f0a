// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An NVMe controller over a real image file, by registers and queues in guest RAM as a driver uses them: data through
 * every form of PRPs, full completion queues, hostile queues and lists, and resets while requests are in flight.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "block/block.h"
#include "hw/nvme/nvme.h"
#include "virtio_guest.h"

#define IMAGE_SIZE (4u << 20)
#define ASQ	   0x100000u
#define ACQ	   0x102000u
#define IOSQ	   0x104000u
#define IOCQ	   0x106000u
#define LISTS	   0x110000u
#define DATA	   0x400000u
#define ENTRIES	   16u

static char image[] = "kelvin-nvme-XXXXXX";
static uint8_t *content;
static struct machine m;
static uint64_t bar;
static unsigned slow_ms;
static int read_error;
static uint32_t sq_tail[2], cq_head[2];
static uint8_t cq_phase[2];

ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off);
ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off)
{
	if (slow_ms)
		usleep(slow_ms * 1000);
	if (read_error) {
		errno = read_error;
		return -1;
	}
	return syscall(SYS_preadv, fd, iov, n, off, 0);
}

static uint32_t get(unsigned reg)
{
	return (uint32_t)mem_read(&m.mem, bar + reg, 4);
}

static void put(unsigned reg, uint32_t val)
{
	mem_write(&m.mem, bar + reg, val, 4);
}

static uint8_t *ram(uint64_t at)
{
	return guest_ptr(&m, at);
}

static void turn(void)
{
	loop_run_once(m.bus.loop, 1000000);
}

static void enable(void)
{
	put(0x24, (ENTRIES - 1) << 16 | (ENTRIES - 1));
	put(0x28, ASQ);
	put(0x2c, 0);
	put(0x30, ACQ);
	put(0x34, 0);
	memset(ram(ACQ), 0, ENTRIES * 16);
	memset(ram(IOCQ), 0, ENTRIES * 16);
	put(0x14, 0x00460001);
	assert_int_equal(get(0x1c), 1);
	for (unsigned q = 0; q < 2; q++) {
		sq_tail[q] = cq_head[q] = 0;
		cq_phase[q] = 1;
	}
}

/* Put a command into queue q (0 admin, 1 I/O) without telling. */
static void add(unsigned q, uint8_t opcode, uint32_t nsid, uint64_t prp1, uint64_t prp2, uint64_t cdw10, uint32_t cdw12)
{
	uint8_t *e = ram((q ? IOSQ : ASQ) + 64 * sq_tail[q]);

	memset(e, 0, 64);
	e[0] = opcode;
	st16le(e + 2, (uint16_t)(0x100 + sq_tail[q]));
	st32le(e + 4, nsid);
	st64le(e + 24, prp1);
	st64le(e + 32, prp2);
	st64le(e + 40, cdw10);
	st32le(e + 48, cdw12);
	sq_tail[q] = (sq_tail[q] + 1) % ENTRIES;
}

static void ring(unsigned q)
{
	put(0x1000 + 8 * q, sq_tail[q]);
}

/* Until `n` completions are posted behind those that were reaped; the last of them. */
static uint8_t *posted(unsigned q, unsigned n)
{
	const uint64_t end = clock_raw_ns() + 60000000000ull;
	const uint32_t last = cq_head[q] + n - 1;
	uint8_t *e = ram((q ? IOCQ : ACQ) + 16 * (last % ENTRIES));

	while ((e[14] & 1) != (cq_phase[q] ^ (last >= ENTRIES))) {
		if (clock_raw_ns() > end)
			fail_msg("no completion in queue %u", q);
		turn();
	}
	return e;
}

/* The next completion: its status, with the queue's head moved on. */
static uint16_t reap(unsigned q, uint32_t *result)
{
	uint8_t *e = posted(q, 1);

	if (result)
		*result = ld32le(e);
	cq_head[q] = (cq_head[q] + 1) % ENTRIES;
	cq_phase[q] ^= cq_head[q] == 0;
	put(0x1004 + 8 * q, cq_head[q]);
	return ld16le(e + 14) >> 1;
}

static uint16_t command(unsigned q, uint8_t opcode, uint64_t prp1, uint64_t prp2, uint64_t cdw10, uint32_t cdw12)
{
	add(q, opcode, 1, prp1, prp2, cdw10, cdw12);
	ring(q);
	return reap(q, NULL);
}

static void make_queues(void)
{
	assert_int_equal(command(0, 0x05, IOCQ, 0, 1 | (ENTRIES - 1) << 16 | 3ull << 32, 0), 0);
	assert_int_equal(command(0, 0x01, IOSQ, 0, 1 | (ENTRIES - 1) << 16 | 1ull << 32 | 1ull << 48, 0), 0);
}

static int create(void **state)
{
	struct err err = {0};
	char text[160];

	machine_create(&m);
	snprintf(text, sizeof(text), "if=none,id=d,format=raw,aio=threads,discard=unmap,file=%s", image);
	if (!drive_create(text, m.bus.loop, &err) || !dev_create_from_text(&m.bus, "nvme,drive=d,serial=N1", &err))
		fail_msg("%s", err.msg);
	dev_reset_all(&m.bus);
	pci_bus_place_bars(m.bus.pci);
	pci_config_write(m.bus.pci, 2 << 3, 4, 6, 2);
	bar = pci_config_read(m.bus.pci, 2 << 3, 0x10, 4) & ~15u;
	slow_ms = 0;
	read_error = 0;
	enable();
	make_queues();
	return 0;
}

static int destroy(void **state)
{
	FILE *f;

	slow_ms = 0;
	read_error = 0;
	machine_destroy(&m);
	f = fopen(image, "w");
	assert_int_equal(fwrite(content, 1, IMAGE_SIZE, f), IMAGE_SIZE);
	fclose(f);
	return 0;
}

/* ---- tests --------------------------------------------------------------------------------- */

static void test_admin(void **state)
{
	static const struct {
		uint8_t opcode;
		uint64_t prp1, cdw10;
		uint16_t status;
	} table[] = {
	    {0x06, DATA, 0, 0},
	    {0x06, DATA, 2, 0},
	    {0x06, DATA, 3, 0},
	    {0x06, DATA, 0x77, NVME_INVALID_FIELD},
	    {0x06, GUEST_HOLE, 1, NVME_TRANSFER_ERROR},
	    {0x02, DATA, 2 | 127 << 16, 0},
	    {0x02, DATA, 0x99, NVME_LOG_INVALID},
	    {0x09, 0, 7 | 3ull << 32 | 3ull << 48, 0},
	    {0x09, 0, 0x55, NVME_INVALID_FIELD},
	    {0x0a, 0, 6, 0},
	    {0x99, 0, 0, NVME_INVALID_OPCODE},
	    {0x05, IOCQ, 1 | 7 << 16 | 1ull << 32, NVME_QID_INVALID}, /* exists */
	    {0x05, IOCQ, 65 | 7 << 16 | 1ull << 32, NVME_QID_INVALID},
	    {0x05, IOCQ, 2 | 0 << 16 | 1ull << 32, NVME_QSIZE_INVALID},
	    {0x05, IOCQ, 2 | 0xffffull << 16 | 1ull << 32, NVME_QSIZE_INVALID},
	    {0x05, IOCQ + 8, 2 | 7 << 16 | 1ull << 32, NVME_INVALID_FIELD},
	    {0x05, IOCQ, 2 | 7 << 16 | 1ull << 32 | 999ull << 48, NVME_VECTOR_INVALID},
	    {0x01, IOSQ, 2 | 7 << 16 | 1ull << 32 | 5ull << 48, NVME_CQ_INVALID},
	    {0x04, 0, 1, NVME_DELETION_INVALID}, /* its submission queue is still there */
	    {0x00, 0, 9, NVME_QID_INVALID},
	    {0x00, 0, 1, 0},
	    {0x04, 0, 1, 0},
	};

	assert_int_equal(command(0, 0x06, DATA, 0, 1, 0), 0);
	assert_memory_equal(ram(DATA) + 4, "N1          ", 12);
	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		uint16_t got = command(0, table[i].opcode, table[i].prp1, 0, table[i].cdw10, 0);
		if (got != table[i].status)
			fail_msg("case %u: %x", i, got);
	}
	/* Four event requests wait for ever, the fifth is too many. */
	for (unsigned i = 0; i < 5; i++)
		add(0, 0x0c, 0, 0, 0, 0, 0);
	ring(0);
	assert_int_equal(reap(0, NULL), NVME_AER_LIMIT);
}

static void test_data(void **state)
{
	static const uint32_t lens[] = {512, 4096, 8192, 8192 + 512, 128 * 1024, NVME_MAX_BYTES};

	for (unsigned i = 0; i < ARRAY_SIZE(lens); i++)
		for (uint64_t off = 0; off <= 2048; off += 1024) {
			const uint32_t pages = (uint32_t)(off + lens[i] + 4095) / 4096;
			uint64_t prp2 = pages > 2 ? LISTS + 4096 - 16 : DATA + 4096;

			/* Pages one after the other, so that the result is easy to see; the list crosses pages of its
			 * own. */
			uint64_t list = LISTS + 4096 - 16;
			for (uint32_t p = 1; p < pages; p++) {
				if ((list & 4095) == 4088 && p + 1 < pages) {
					st64le(ram(list), LISTS + 8192);
					list = LISTS + 8192;
				}
				st64le(ram(list), DATA + 4096 * p);
				list += 8;
			}
			memset(ram(DATA), 0, NVME_MAX_BYTES + 8192);
			assert_int_equal(command(1, 0x02, DATA + off, prp2, 33, lens[i] / 512 - 1), 0);
			assert_memory_equal(ram(DATA + off), content + 33 * 512, lens[i]);
			/* Written elsewhere, zeroed, and the rest is as it was. */
			for (uint32_t k = 0; k < lens[i]; k++)
				ram(DATA + off)[k] ^= 0x5a;
			assert_int_equal(command(1, 0x01, DATA + off, prp2, 4000, lens[i] / 512 - 1), 0);
			memset(ram(DATA), 0, NVME_MAX_BYTES + 8192);
			assert_int_equal(command(1, 0x02, DATA + off, prp2, 4000, lens[i] / 512 - 1), 0);
			for (uint32_t k = 0; k < lens[i]; k++)
				assert_int_equal(ram(DATA + off)[k], content[33 * 512 + k] ^ 0x5a);
		}
	assert_int_equal(command(1, 0x00, 0, 0, 0, 0), 0);
	assert_int_equal(command(1, 0x08, 0, 0, 4001, 3), 0);
	/* Two ranges freed in one command. */
	memset(ram(DATA), 0, 32);
	st32le(ram(DATA) + 4, 8);
	st64le(ram(DATA) + 8, 800);
	st32le(ram(DATA) + 20, 16);
	st64le(ram(DATA) + 24, 1600);
	assert_int_equal(command(1, 0x09, DATA, 0, 1 | 4ull << 32, 0), 0);
	assert_int_equal(command(1, 0x02, DATA, DATA + 4096, 1600, 15), 0);
	for (unsigned i = 0; i < 16 * 512; i++)
		assert_int_equal(ram(DATA)[i], 0);
	assert_int_equal(command(1, 0x02, DATA, 0, 4000, 4), 0);
	assert_int_equal(ram(DATA)[511], content[33 * 512 + 511] ^ 0x5a);
	for (unsigned i = 512; i < 5 * 512; i++)
		assert_int_equal(ram(DATA)[i], 0);
}

static void test_errors(void **state)
{
	static const struct {
		uint8_t opcode;
		uint64_t prp1, prp2, lba;
		uint32_t cdw12;
		uint16_t status;
	} table[] = {
	    {0x02, DATA, 0, IMAGE_SIZE / 512, 0, NVME_LBA_RANGE},
	    {0x02, DATA, 0, IMAGE_SIZE / 512 - 1, 1, NVME_LBA_RANGE},
	    {0x02, DATA, 0, UINT64_MAX, 0, NVME_LBA_RANGE},
	    {0x08, 0, 0, UINT64_MAX, 9, NVME_LBA_RANGE},
	    {0x02, DATA, LISTS, 0, 0xffff, NVME_INVALID_FIELD}, /* beyond MDTS */
	    {0x02, DATA + 1, 0, 0, 0, NVME_INVALID_FIELD},
	    {0x02, DATA, DATA + 4, 0, 15, NVME_INVALID_FIELD},
	    {0x02, GUEST_HOLE, 0, 0, 0, NVME_TRANSFER_ERROR},
	    {0x02, DATA, GUEST_HOLE, 0, 15, NVME_TRANSFER_ERROR},
	    {0x02, DATA, GUEST_HOLE, 0, 31, NVME_TRANSFER_ERROR},
	    {0x02, DATA, LISTS + 4088, 0, 31, NVME_INVALID_FIELD}, /* a list that leads to itself */
	    {0x09, GUEST_HOLE, 0, 4ull << 32, 0, NVME_TRANSFER_ERROR},
	    {0x77, 0, 0, 0, 0, NVME_INVALID_OPCODE},
	};

	st64le(ram(LISTS + 4088), LISTS + 4088);
	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		uint16_t got = command(1, table[i].opcode, table[i].prp1, table[i].prp2, table[i].lba, table[i].cdw12);
		if (got != table[i].status)
			fail_msg("case %u: %x", i, got);
	}
	add(1, 0x02, 2, DATA, 0, 0, 0);
	ring(1);
	assert_int_equal(reap(1, NULL), NVME_INVALID_NAMESPACE);
	read_error = EIO;
	assert_int_equal(command(1, 0x02, DATA, 0, 0, 0), NVME_READ_ERROR);
	read_error = 0;
	/* Doorbells of queues that are not, values beyond the queue. */
	for (unsigned i = 0; i < 0x1000; i += 4)
		if (i >= 16)
			put(0x1000 + i, 7);
	put(0x1008, 0xffffffff);
	put(0x1008, ENTRIES);
	put(0x100c, ENTRIES);
	assert_int_equal(command(1, 0x02, DATA, 0, 5, 0), 0);
	assert_memory_equal(ram(DATA), content + 5 * 512, 512);
	/* The whole queue is no RAM. */
	assert_int_equal(command(0, 0x00, 0, 0, 1, 0), 0);
	assert_int_equal(command(0, 0x01, GUEST_HOLE, 0, 1 | (ENTRIES - 1) << 16 | 1ull << 32 | 1ull << 48, 0), 0);
	put(0x1008, 3);
	for (unsigned i = 0; i < 10; i++)
		turn();
	assert_int_equal(get(0x1c) & 2, 2);
}

/* More commands than the completion queue takes: they wait, none is lost, and their order holds. */
static void test_full_queue(void **state)
{
	uint32_t seen = 0;

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < ENTRIES - 1; i++)
			add(1, 0x00, 1, 0, 0, 0, 0);
		ring(1);
		/* The first round fills the completion queue; the second is read only then: before, an entry of the
		 * third would go over one that was not read yet. */
		if (round == 0)
			posted(1, ENTRIES - 1);
		for (unsigned i = 0; i < 20; i++)
			turn();
		if (round < 2)
			continue;
		for (unsigned i = 0; i < 3 * (ENTRIES - 1); i++) {
			assert_int_equal(reap(1, NULL), 0);
			seen++;
		}
	}
	assert_int_equal(seen, 45);
	assert_int_equal(command(1, 0x02, DATA, 0, 5, 0), 0);
}

static void untouched(void)
{
	memset(ram(DATA), 0x5a, 8 * 4096);
	for (unsigned i = 0; i < 100; i++)
		turn();
	for (unsigned i = 0; i < 8 * 4096; i++)
		assert_int_equal(ram(DATA)[i], 0x5a);
}

static void test_in_flight(void **state)
{
	slow_ms = 30;
	for (unsigned i = 0; i < 8; i++)
		add(1, 0x02, 1, DATA + 4096 * i, 0, 8 * i, 7);
	ring(1);
	turn();
	/* Deleting the queue ends when they have ended. */
	add(0, 0x00, 1, 0, 0, 1, 0);
	ring(0);
	assert_int_equal(reap(0, NULL), 0);
	untouched();
	assert_int_equal(command(0, 0x01, IOSQ, 0, 1 | (ENTRIES - 1) << 16 | 1ull << 32 | 1ull << 48, 0), 0);
	sq_tail[1] = 0;
	/* Disabling the controller: ready until then. */
	for (unsigned i = 0; i < 8; i++)
		add(1, 0x02, 1, DATA + 4096 * i, 0, 8 * i, 7);
	ring(1);
	turn();
	put(0x14, 0x00460000);
	assert_int_equal(get(0x1c), 1);
	for (unsigned i = 0; i < 60000 && get(0x1c); i++)
		turn();
	assert_int_equal(get(0x1c), 0);
	untouched();
	slow_ms = 0;
	enable();
	make_queues();
	assert_int_equal(command(1, 0x02, DATA, 0, 5, 0), 0);
	/* The machine's reset with a command that was never looked at. */
	add(1, 0x02, 1, DATA, 0, 0, 0);
	ring(1);
	dev_pause_all(&m.bus);
	dev_reset_all(&m.bus);
	for (unsigned i = 0; i < 5; i++)
		turn();
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, create, destroy)
	static const struct CMUnitTest tests[] = {
	    CASE(test_admin), CASE(test_data), CASE(test_errors), CASE(test_full_queue), CASE(test_in_flight),
	};
	int ret, fd;

	content = malloc(IMAGE_SIZE);
	for (unsigned i = 0; i < IMAGE_SIZE; i += 4)
		st32le(content + i, i * 2654435761u ^ i >> 7);
	fd = mkstemp(image);
	assert_true(fd >= 0 && write(fd, content, IMAGE_SIZE) == IMAGE_SIZE);
	close(fd);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(image);
	free(content);
	return ret;
}
