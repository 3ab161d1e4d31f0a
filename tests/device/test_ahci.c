// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An AHCI controller over a real image file, by its registers and lists in guest RAM as a driver uses them: commands
 * that are not queued, 32 queued ones at once, errors and the log that explains them, addresses that are not RAM, and
 * resets while requests are in flight.
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
#include "hw/ide/ide.h"
#include "virtio_guest.h"

#define IMAGE_SIZE (4u << 20)
#define LIST	   0x100000u
#define RX	   0x101000u
#define TABLE(n)   (0x110000u + 0x1000u * (n))
#define DATA(n)	   (0x400000u + 0x20000u * (n))

static char image[] = "kelvin-ahci-XXXXXX";
static uint8_t *content;
static struct machine m;
static uint64_t abar;
static unsigned slow_ms, stops;
static int read_error, write_error;

ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off);
ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off)
{
	if (slow_ms)
		usleep(slow_ms * 1000);
	if (read_error && off == 8 * 512) {
		errno = read_error;
		return -1;
	}
	return syscall(SYS_preadv, fd, iov, n, off, 0);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t off);
ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t off)
{
	if (write_error) {
		errno = write_error;
		return -1;
	}
	return syscall(SYS_pwritev, fd, iov, n, off, 0);
}

static void request(void *opaque, enum vm_request what, int status, const char *why)
{
	__atomic_fetch_add(&stops, what == VM_IO_STOP, __ATOMIC_RELAXED);
}

static uint32_t get(unsigned reg)
{
	return (uint32_t)mem_read(&m.mem, abar + reg, 4);
}

static void put(unsigned reg, uint32_t val)
{
	mem_write(&m.mem, abar + reg, val, 4);
}

static uint32_t port_get(unsigned reg)
{
	return get(0x100 + reg);
}

static void port_put(unsigned reg, uint32_t val)
{
	put(0x100 + reg, val);
}

static uint8_t *ram(uint64_t at)
{
	return guest_ptr(&m, at);
}

static void port_start(void)
{
	port_put(0x00, LIST);
	port_put(0x04, 0);
	port_put(0x08, RX);
	port_put(0x0c, 0);
	port_put(0x14, 0x7d4000ff);
	port_put(0x18, 0x10 | 6);
	port_put(0x18, 0x11 | 6);
	put(4, 0x80000002);
}

static int create(void **state)
{
	struct err err = {0};
	char text[160];
	struct dev *d;

	machine_create(&m);
	m.bus.request = request;
	d = dev_create_from_text(&m.bus, "ich9-ahci,id=sata", &err);
	assert_non_null(d);
	snprintf(text, sizeof(text), "if=none,id=d,format=raw,aio=threads,file=%s", image);
	if (!drive_create(text, m.bus.loop, &err) || !dev_create_from_text(&m.bus, "ide-hd,drive=d,bus=sata.0", &err))
		fail_msg("%s", err.msg);
	dev_reset_all(&m.bus);
	pci_bus_place_bars(m.bus.pci);
	pci_config_write(m.bus.pci, 2 << 3, 4, 6, 2);
	abar = pci_config_read(m.bus.pci, 2 << 3, 0x24, 4) & ~15u;
	slow_ms = stops = 0;
	read_error = write_error = 0;
	port_start();
	return 0;
}

static int destroy(void **state)
{
	FILE *f;

	slow_ms = 0;
	read_error = write_error = 0;
	machine_destroy(&m);
	f = fopen(image, "w");
	assert_int_equal(fwrite(content, 1, IMAGE_SIZE, f), IMAGE_SIZE);
	fclose(f);
	return 0;
}

static void prd(unsigned slot, unsigned i, uint64_t addr, uint32_t len)
{
	st64le(ram(TABLE(slot) + 0x80 + 16 * i), addr);
	st64le(ram(TABLE(slot) + 0x80 + 16 * i + 8), (uint64_t)(len - 1) << 32);
}

/* Fill a slot; its PRDs are the caller's. */
static void slot_fill(unsigned slot, uint8_t command, uint64_t lba, uint32_t count, unsigned prds)
{
	const bool queued = command == 0x60 || command == 0x61;
	uint8_t *h = ram(LIST + 32 * slot), *f = ram(TABLE(slot));

	memset(h, 0, 32);
	memset(f, 0, 0x80);
	st16le(h, 5);
	st16le(h + 2, (uint16_t)prds);
	st32le(h + 8, TABLE(slot));
	f[0] = 0x27;
	f[1] = 0x80;
	f[2] = command;
	f[7] = 0x40;
	for (unsigned i = 0; i < 3; i++) {
		f[4 + i] = (uint8_t)(lba >> 8 * i);
		f[8 + i] = (uint8_t)(lba >> (24 + 8 * i));
	}
	f[queued ? 3 : 12] = (uint8_t)count;
	f[queued ? 11 : 13] = (uint8_t)(count >> 8);
	if (queued)
		f[12] = (uint8_t)(slot << 3);
}

static void issue(uint32_t slots, bool queued)
{
	if (queued)
		port_put(0x34, slots);
	port_put(0x38, slots);
}

static void turn(void)
{
	loop_run_once(m.bus.loop, 1000000);
}

/* Until the slots are done, or an error stops the port: PxIS, cleared. */
static uint32_t wait_done(uint32_t slots, bool queued)
{
	const uint64_t end = clock_raw_ns() + 60000000000ull;
	uint32_t is;

	while (((port_get(0x38) | (queued ? port_get(0x34) : 0)) & slots) && !(port_get(0x10) & BIT(30))) {
		if (clock_raw_ns() > end)
			fail_msg("slots %x do not end", port_get(0x38));
		turn();
	}
	is = port_get(0x10);
	port_put(0x10, is);
	put(8, 1);
	return is;
}

/* What a driver does after an error. */
static void restart(void)
{
	port_put(0x18, 0x10 | 6);
	for (unsigned i = 0; i < 60000 && port_get(0x18) & BIT(15); i++)
		turn();
	assert_false(port_get(0x18) & BIT(15));
	port_put(0x18, 0x11 | 6);
}

/* ---- tests ------------------------------------------------------------------------------- */

static void test_registers(void **state)
{
	assert_int_equal(get(0) & 0x1f1f, 0x1f05);
	assert_int_equal(get(0x0c), 0x3f);
	assert_int_equal(port_get(0x24), 0x101);
	assert_int_equal(port_get(0x28), 0x133);
	assert_int_equal(port_get(0x20), 0x150);
	assert_int_equal(ram(RX + 0x40)[0], 0x34); /* the first FIS has come */
	/* Port 1 is empty. */
	assert_int_equal(get(0x180 + 0x28), 0);
	assert_int_equal(get(0x180 + 0x24), UINT32_MAX);
	put(0x180 + 0x18, 0x11);
	put(0x180 + 0x38, 1);
	put(0x180 + 0x2c, 1);
	put(0x180 + 0x2c, 0);
	/* An HBA reset clears what was set. */
	put(4, 1);
	assert_int_equal(get(4), 0x80000000);
	assert_int_equal(port_get(0x18) & 0xff, 0);
}

static void test_plain(void **state)
{
	slot_fill(3, 0xec, 0, 0, 1);
	prd(3, 0, DATA(0), 512);
	issue(8, false);
	assert_int_equal(wait_done(8, false), 2); /* PIO setup */
	assert_int_equal(ld32le(ram(DATA(0)) + 120), IMAGE_SIZE / 512);
	assert_int_equal(ld16le(ram(DATA(0)) + 150), 31);
	assert_true(m.intx_edges);
	/* DMA in pieces of odd places, one after the other by several slots. */
	for (unsigned s = 0; s < 4; s++) {
		slot_fill(s, 0x25, 100 * s, 20, 3);
		prd(s, 0, DATA(s) + 2, 1000);
		prd(s, 1, DATA(s) + 4098, 240);
		prd(s, 2, DATA(s) + 8192, 20 * 512 - 1240);
	}
	issue(15, false);
	assert_int_equal(wait_done(15, false), 1);
	for (unsigned s = 0; s < 4; s++) {
		assert_memory_equal(ram(DATA(s) + 2), content + 100 * s * 512, 1000);
		assert_memory_equal(ram(DATA(s) + 4098), content + 100 * s * 512 + 1000, 240);
		assert_memory_equal(ram(DATA(s) + 8192), content + 100 * s * 512 + 1240, 20 * 512 - 1240);
		assert_int_equal(ld32le(ram(LIST + 32 * s + 4)), 20 * 512);
	}
	slot_fill(0, 0xea, 0, 0, 0);
	issue(1, false);
	assert_int_equal(wait_done(1, false), 1);
}

static void test_queued(void **state)
{
	uint8_t want[32][4096];

	/* Half of them write, half read other places. */
	for (unsigned s = 0; s < 32; s++) {
		slot_fill(s, s % 2 ? 0x61 : 0x60, 200 * s, 8, 2);
		prd(s, 0, DATA(s) + 512, 2048 + 16);
		prd(s, 1, DATA(s) + 8192, 2048 - 16);
		for (unsigned i = 0; i < 4096; i++)
			want[s][i] = s % 2 ? (uint8_t)(i * s + i / 256) : content[200 * s * 512 + i];
		if (s % 2) {
			memcpy(ram(DATA(s) + 512), want[s], 2064);
			memcpy(ram(DATA(s) + 8192), want[s] + 2064, 2032);
		}
	}
	issue(UINT32_MAX, true);
	assert_int_equal(wait_done(UINT32_MAX, true) & ~8u, 0);
	for (unsigned s = 1; s < 32; s += 2) { /* read back what was written */
		slot_fill(s, 0x60, 200 * s, 8, 1);
		prd(s, 0, DATA(s), 4096);
	}
	issue(0xaaaaaaaa, true);
	assert_int_equal(wait_done(UINT32_MAX, true) & ~8u, 0);
	for (unsigned s = 0; s < 32; s++) {
		const unsigned odd = s % 2;
		assert_memory_equal(ram(DATA(s) + (odd ? 0 : 512)), want[s], 2064);
		assert_memory_equal(ram(DATA(s) + (odd ? 2064 : 8192)), want[s] + 2064, 2032);
	}
}

/* One queued command fails: the port stops, the log names it, and all goes on afterwards. */
static void test_queued_error(void **state)
{
	read_error = EIO;
	for (unsigned s = 0; s < 4; s++) {
		slot_fill(s, 0x60, s == 2 ? 8 : 64 * s, 8, 1);
		prd(s, 0, DATA(s), 4096);
	}
	issue(15, true);
	assert_true(wait_done(15, true) & BIT(30));
	assert_int_equal(port_get(0x20) & 0xff7f, 0x4051);
	read_error = 0;
	restart();
	assert_int_equal(port_get(0x34) | port_get(0x38), 0);
	slot_fill(0, 0x2f, 0x10, 1, 1);
	prd(0, 0, DATA(0), 512);
	issue(1, false);
	assert_int_equal(wait_done(1, false), 2);
	assert_int_equal(ram(DATA(0))[0], 2);
	assert_int_equal(ram(DATA(0))[3], 0x40);
	assert_int_equal(ram(DATA(0))[4], 8);
	slot_fill(0, 0x60, 8, 8, 1);
	prd(0, 0, DATA(0), 4096);
	issue(1, true);
	assert_int_equal(wait_done(1, true), 8);
	/* werror: no space stops the machine, and the command ends when it goes on. */
	write_error = ENOSPC;
	slot_fill(5, 0x61, 0, 1, 1);
	prd(5, 0, DATA(5), 512);
	issue(32, true);
	for (unsigned i = 0; i < 60000 && !stops; i++)
		turn();
	assert_int_equal(stops, 1);
	dev_pause_all(&m.bus);
	write_error = 0;
	assert_int_equal(port_get(0x34), 32);
	dev_resume_all(&m.bus);
	assert_int_equal(wait_done(32, true), 8);
	/* Set aside again, and forgotten by a reset of the machine. */
	write_error = ENOSPC;
	issue(32, true);
	for (unsigned i = 0; i < 60000 && stops < 2; i++)
		turn();
	dev_pause_all(&m.bus);
	dev_reset_all(&m.bus);
}

static void test_hostile(void **state)
{
	static const struct {
		uint8_t command;
		uint64_t lba;
		uint32_t count;
		unsigned prds;
		uint64_t addr;
		uint32_t len;
	} table[] = {
	    {0x25, 0, 8, 1, GUEST_HOLE, 4096},	      {0x25, 0, 8, 1, 0xfee00000, 4096},
	    {0x25, 0, 8, 1, UINT64_MAX - 1000, 4096}, {0x25, 0, 8, 0, 0, 4096},
	    {0x25, 0, 8, 1, DATA(0), 4094},	      {0x25, IMAGE_SIZE / 512, 1, 1, DATA(0), 512},
	    {0x60, 0, 8, 1, GUEST_HOLE, 4096},	      {0x60, 0, 8, 1, DATA(0), 4094},
	    {0x60, BIT(48) - 1, 8, 1, DATA(0), 4096}, {0x61, 0, 8, 65535, GUEST_HOLE, 2},
	    {0x60, 0, 0, 1, DATA(0), 4 << 20},	      {0xff, 0, 0, 0, 0, 512},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		const bool queued = table[i].command >> 1 == 0x30;

		slot_fill(7, table[i].command, table[i].lba, table[i].count, table[i].prds);
		prd(7, 0, table[i].addr, table[i].len);
		issue(BIT(7), queued);
		if (!(wait_done(BIT(7), queued) & BIT(30)))
			fail_msg("case %u is no error", i);
		restart();
	}
	/* A header, a table or a FIS that is nothing. */
	slot_fill(0, 0xec, 0, 0, 0);
	st32le(ram(LIST + 8), (uint32_t)GUEST_HOLE);
	issue(1, false);
	assert_true(wait_done(1, false) & BIT(30));
	restart();
	slot_fill(0, 0xec, 0, 0, 0);
	ram(TABLE(0))[0] = 0x99;
	issue(1, false);
	assert_true(wait_done(1, false) & BIT(30));
	restart();
	/* A tag that is not the slot's. */
	slot_fill(4, 0x60, 0, 8, 1);
	prd(4, 0, DATA(4), 4096);
	ram(TABLE(4))[12] = 9 << 3;
	issue(16, true);
	assert_true(wait_done(16, true) & BIT(30));
	port_put(0x18, 6);
	port_put(0x00, (uint32_t)GUEST_HOLE);
	port_put(0x08, (uint32_t)GUEST_HOLE);
	port_put(0x18, 0x11 | 6);
	issue(1, false);
	assert_true(wait_done(1, false) & BIT(30));
}

/* Stopped while the host reads: CR stays until it is done, and nothing arrives afterwards. */
static void test_in_flight(void **state)
{
	for (unsigned way = 0; way < 3; way++) {
		const bool queued = way != 1;

		slow_ms = 30;
		for (unsigned s = 0; s < 4; s++) {
			slot_fill(s, queued ? 0x60 : 0x25, 32 * s, 8, 1);
			prd(s, 0, DATA(s), 4096);
		}
		issue(15, queued);
		turn();
		port_put(0x18, 0x10 | 6);
		assert_true(port_get(0x18) & BIT(15));
		if (way == 2) { /* a COMRESET without waiting */
			port_put(0x2c, 1);
			port_put(0x2c, 0);
			assert_true(port_get(0x20) & 0x80);
		}
		for (unsigned i = 0; i < 60000 && (port_get(0x18) & BIT(15) || port_get(0x20) & 0x80); i++)
			turn();
		memset(ram(DATA(0)), 0x5a, 4 * 0x20000);
		for (unsigned i = 0; i < 100; i++)
			turn();
		for (unsigned i = 0; i < 4 * 0x20000; i++)
			assert_int_equal(ram(DATA(0))[i], 0x5a);
		slow_ms = 0;
		port_start();
		slot_fill(0, 0x25, 5, 8, 1);
		prd(0, 0, DATA(0), 4096);
		issue(1, false);
		assert_false(wait_done(1, false) & BIT(30));
		assert_memory_equal(ram(DATA(0)), content + 5 * 512, 4096);
	}
	/* The machine's reset with requests parsed but not started. */
	slot_fill(0, 0x60, 0, 8, 1);
	issue(1, true);
	dev_pause_all(&m.bus);
	dev_reset_all(&m.bus);
	pci_bus_place_bars(m.bus.pci);
	for (unsigned i = 0; i < 5; i++)
		turn();
	assert_int_equal(port_get(0x38) | port_get(0x34), 0);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, create, destroy)
	static const struct CMUnitTest tests[] = {
	    CASE(test_registers),    CASE(test_plain),	 CASE(test_queued),
	    CASE(test_queued_error), CASE(test_hostile), CASE(test_in_flight),
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
