// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The IDE channels over real image files, by ports and PRD tables as a driver uses them: every way data moves,
 * addresses, the hostile forms of PRD tables, resets while a request is in flight, and the packet device with its tray.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "block/block.h"
#include "hw/ide/ide.h"
#include "virtio_guest.h"

#define IMAGE_SIZE (4u << 20)
#define CD_SIZE	   (1u << 20)
#define PRD	   0x200000u
#define DATA	   0x300000u
#define BSY	   0x80
#define DRQ	   0x08
#define ERR	   0x01

static char image[] = "kelvin-ide-XXXXXX", cd_image[] = "kelvin-cd-XXXXXX";
static uint8_t *content; /* of the CD, and what the disk starts with */
static struct machine m;
static unsigned irqs[2], levels[2];
static uint16_t port = 0x1f0, bm;
static unsigned moved;

/* ---- the host's slow and failing disk -------------------------------------------------- */

static unsigned slow_ms;
static int write_error;

ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off);
ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off)
{
	if (slow_ms)
		usleep(slow_ms * 1000);
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

/* ---- the machine -------------------------------------------------------------------------- */

static void set_irq(void *opaque, int n, int level)
{
	irqs[n - 14] += level && !levels[n - 14];
	levels[n - 14] = (unsigned)level;
}

static void event(void *opaque, const char *name, const char *json)
{
	if (!strcmp(name, "DEVICE_TRAY_MOVED"))
		moved++;
}

static unsigned stops;
static void request(void *opaque, enum vm_request what, int status, const char *why)
{
	stops += what == VM_IO_STOP;
}

static void plug(const char *drive, const char *device)
{
	struct err err = {0};

	if (!drive_create(drive, m.bus.loop, &err) || !dev_create_from_text(&m.bus, device, &err))
		fail_msg("%s", err.msg);
}

static int create(void **state)
{
	struct err err = {0};
	char text[160];
	struct dev *d;

	machine_create(&m);
	m.bus.gsi[14] = (struct irq){set_irq, NULL, 14};
	m.bus.gsi[15] = (struct irq){set_irq, NULL, 15};
	m.bus.event = event;
	m.bus.request = request;
	d = dev_new_ops(&m.bus, &piix3_ide_ops, &err);
	assert_non_null(d);
	assert_int_equal(dev_realize(d, &err), 0);
	snprintf(text, sizeof(text), "if=none,id=d,format=raw,aio=threads,discard=unmap,file=%s", image);
	plug(text, "ide-hd,drive=d,bus=ide.0,unit=0,serial=S1");
	snprintf(text, sizeof(text), "if=none,id=c,format=raw,media=cdrom,file=%s", cd_image);
	plug(text, "ide-cd,drive=c,bus=ide.1,unit=0,id=cd");
	pci_bus_place_bars(m.bus.pci);
	pci_config_write(m.bus.pci, 9, 4, 5, 2);
	bm = (uint16_t)(pci_config_read(m.bus.pci, 9, 0x20, 4) & 0xfff0);
	dev_reset_all(&m.bus);
	pci_bus_place_bars(m.bus.pci);
	port = 0x1f0;
	irqs[0] = irqs[1] = moved = stops = 0;
	return 0;
}

static int destroy(void **state)
{
	FILE *f;

	slow_ms = 0;
	write_error = 0;
	machine_destroy(&m);
	f = fopen(image, "w");
	assert_int_equal(fwrite(content, 1, IMAGE_SIZE, f), IMAGE_SIZE);
	fclose(f);
	return 0;
}

static void out(unsigned reg, uint32_t val, unsigned size)
{
	ports_write(m.bus.ports, (uint16_t)(port + reg), val, size);
}

static uint32_t in(unsigned reg, unsigned size)
{
	return (uint32_t)ports_read(m.bus.ports, (uint16_t)(port + reg), size);
}

static uint8_t alt_status(void)
{
	return (uint8_t)ports_read(m.bus.ports, (uint16_t)(port + 0x206), 1);
}

/* Until the device is not busy: its status, which takes the interrupt back. */
static uint8_t wait_idle(void)
{
	const uint64_t end = clock_raw_ns() + 60000000000ull;

	while (alt_status() & BSY) {
		if (clock_raw_ns() > end)
			fail_msg("the device stays busy");
		loop_run_once(m.bus.loop, 1000000);
	}
	loop_run_once(m.bus.loop, 0);
	return (uint8_t)in(7, 1);
}

static void task_file(uint32_t features, uint32_t count, uint64_t lba, bool ext)
{
	if (ext) {
		out(1, features >> 8, 1);
		out(2, count >> 8, 1);
		for (unsigned i = 0; i < 3; i++)
			out(3 + i, (uint32_t)(lba >> (24 + 8 * i)) & 0xff, 1);
	}
	out(1, features & 0xff, 1);
	out(2, count & 0xff, 1);
	for (unsigned i = 0; i < 3; i++)
		out(3 + i, (uint32_t)(lba >> 8 * i) & 0xff, 1);
	out(6, ext ? 0x40 : 0x40 | (uint32_t)(lba >> 24 & 15), 1);
}

static uint8_t *ram(uint64_t at)
{
	return guest_ptr(&m, at);
}

static void prd(unsigned i, uint32_t addr, uint32_t len, bool last)
{
	st32le(ram(PRD + 8 * i), addr);
	st32le(ram(PRD + 8 * i + 4), (len & 0xffff) | (last ? 1u << 31 : 0));
}

static uint8_t bm_status(void)
{
	return (uint8_t)ports_read(m.bus.ports, (uint16_t)(bm + (port == 0x170 ? 8 : 0) + 2), 1);
}

static void bm_start(bool on)
{
	const uint16_t at = (uint16_t)(bm + (port == 0x170 ? 8 : 0));

	ports_write(m.bus.ports, (uint16_t)(at + 2), 6, 1);
	ports_write(m.bus.ports, (uint16_t)(at + 4), PRD, 4);
	ports_write(m.bus.ports, at, on ? 9 : 0, 1);
}

/* A DMA command with the PRD table as it stands: the status at the end. */
static uint8_t dma(uint8_t opcode, uint32_t count, uint64_t lba, bool ext)
{
	task_file(0, count, lba, ext);
	out(7, opcode, 1);
	bm_start(true);
	return wait_idle();
}

/* ---- disks ---------------------------------------------------------------------------------- */

static void test_identify(void **state)
{
	uint16_t w[256];
	uint8_t sum = 0;

	out(6, 0, 1);
	out(7, 0xec, 1);
	assert_int_equal(wait_idle(), 0x58);
	assert_int_equal(irqs[0], 1);
	for (unsigned i = 0; i < 256; i++) {
		w[i] = (uint16_t)in(0, 2);
		sum = (uint8_t)(sum + w[i] + (w[i] >> 8));
	}
	assert_int_equal(in(7, 1), 0x50);
	assert_int_equal(w[60] | w[61] << 16, IMAGE_SIZE / 512);
	assert_int_equal(w[10], 'S' << 8 | '1');
	assert_int_equal(sum, 0);
	/* The other place is empty, and says so at once. */
	out(6, 0x10, 1);
	assert_int_equal(in(7, 1), 0);
	out(2, 0x55, 1);
	assert_int_equal(in(2, 1), 0);
	out(7, 0xec, 1);
	assert_int_equal(in(7, 1), 0);
}

static void test_pio(void **state)
{
	static const struct {
		uint8_t read, write;
		bool ext;
		unsigned block;
	} ways[] = {
	    {0x20, 0x30, false, 512}, {0x24, 0x34, true, 512}, {0xc4, 0xc5, false, 2048}, {0x29, 0x39, true, 2048}};

	out(2, 4, 1);
	out(7, 0xc6, 1); /* SET MULTIPLE: 4 sectors */
	assert_int_equal(wait_idle(), 0x50);
	for (unsigned i = 0; i < ARRAY_SIZE(ways); i++) {
		const unsigned sectors = 9, lba = 100 + 50 * i, size = i % 2 ? 4 : 2;
		uint8_t got[9 * 512];

		irqs[0] = 0;
		task_file(0, sectors, lba, ways[i].ext);
		out(7, ways[i].read, 1);
		for (unsigned at = 0; at < sizeof(got); at += size) {
			if (at % ways[i].block == 0)
				assert_int_equal(wait_idle() & (DRQ | ERR), DRQ);
			uint32_t v = in(0, size);
			memcpy(got + at, &v, size);
		}
		assert_int_equal(wait_idle(), 0x50);
		assert_int_equal(irqs[0], (sizeof(got) + ways[i].block - 1) / ways[i].block);
		assert_memory_equal(got, content + lba * 512, sizeof(got));
		/* Written a sector further, and read back by DMA. */
		task_file(0, sectors, lba + 1, ways[i].ext);
		out(7, ways[i].write, 1);
		for (unsigned at = 0; at < sizeof(got); at += size) {
			uint32_t v = 0;
			if (at % ways[i].block == 0)
				assert_int_equal(wait_idle() & (DRQ | ERR), DRQ);
			memcpy(&v, got + at, size);
			out(0, v, size);
		}
		assert_int_equal(wait_idle(), 0x50);
		prd(0, DATA, sizeof(got), true);
		assert_int_equal(dma(0xc8, sectors, lba + 1, false), 0x50);
		assert_memory_equal(ram(DATA), got, sizeof(got));
		bm_start(false);
	}
}

static void test_dma(void **state)
{
	/* Pieces of odd places and lengths, across a gap, more than one part. */
	unsigned at = 0, n = 0;

	while (at < 300 * 512) {
		unsigned len = MIN(2 + at % 1022 / 2 * 2, 300u * 512 - at);
		prd(n, DATA + at + 2 * n, len, at + len == 300 * 512);
		at += len;
		n++;
	}
	assert_true(n > ATA_MAX_IOV);
	irqs[0] = 0;
	assert_int_equal(dma(0x25, 300, 7, true), 0x50);
	assert_int_equal(irqs[0], 1);
	assert_int_equal(bm_status() & 7, 4);
	for (unsigned i = 0, to = 0; i < n; i++) {
		unsigned len = ld16le(ram(PRD + 8 * i + 4));
		assert_memory_equal(ram(DATA + to + 2 * i), content + 7 * 512 + to, len);
		to += len;
	}
	bm_start(false);
	/* And back, to another place; LBA 28 with a count of 0, which is 256. */
	prd(0, DATA, 0, false);
	prd(1, DATA + 0x10000, 0, true);
	for (unsigned i = 0; i < 256 * 512; i++)
		*ram(DATA + i) = (uint8_t)(i * 7 + i / 512);
	assert_int_equal(dma(0xca, 0, 1000, false), 0x50);
	bm_start(false);
	memset(ram(DATA), 0, 256 * 512);
	assert_int_equal(dma(0xc8, 0, 1000, false), 0x50);
	for (unsigned i = 0; i < 256 * 512; i++)
		assert_int_equal(*ram(DATA + i), (uint8_t)(i * 7 + i / 512));
}

/* The bus master first, then the command; and a table that is longer than the command. */
static void test_dma_order(void **state)
{
	prd(0, DATA, 8192, true);
	bm_start(true);
	task_file(0, 4, 20, false);
	out(7, 0xc8, 1);
	assert_int_equal(wait_idle(), 0x50);
	assert_memory_equal(ram(DATA), content + 20 * 512, 2048);
	assert_int_equal(bm_status() & 7, 5); /* still active */
	bm_start(false);
	assert_int_equal(bm_status() & 7, 0);
}

static void test_hostile_prd(void **state)
{
	/* Not RAM: a hole, the device's own window. */
	static const uint32_t bad[] = {(uint32_t)GUEST_HOLE, 0xfee00000, 0xfffffff0};

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		prd(0, DATA, 512, false);
		prd(1, bad[i], 512, true);
		irqs[0] = 0;
		assert_int_equal(dma(0xc8, 2, 0, false) & ERR, ERR);
		assert_int_equal(bm_status() & 7, 6);
		assert_int_equal(irqs[0], 1);
		bm_start(false);
	}
	/* The table itself is nowhere. */
	task_file(0, 1, 0, false);
	out(7, 0xc8, 1);
	ports_write(m.bus.ports, (uint16_t)(bm + 4), (uint32_t)GUEST_HOLE, 4);
	ports_write(m.bus.ports, bm, 9, 1);
	assert_int_equal(wait_idle() & ERR, ERR);
	bm_start(false);
	/* Too short: the bus master stops without an interrupt, the device waits; a reset frees it. */
	prd(0, DATA, 512, true);
	irqs[0] = 0;
	assert_int_equal(dma(0xc8, 2, 0, false) & (DRQ | ERR), DRQ);
	assert_int_equal(bm_status() & 7, 0);
	assert_int_equal(irqs[0], 0);
	out(0x206, 4, 1);
	out(0x206, 0, 1);
	assert_int_equal(wait_idle(), 0x50);
	assert_int_equal(in(1, 1), 1);
	bm_start(false);
	/* No end: 8192 entries of two bytes, again and again. What they can move is moved. */
	for (unsigned i = 0; i < 8192; i++)
		prd(i, DATA, 2, false);
	assert_int_equal(dma(0x25, 500, 0, true), 0x50);
	assert_memory_equal(ram(DATA), content + 500 * 512 - 2, 2);
	bm_start(false);
	/* The table under its own data. */
	prd(0, PRD, 0, true);
	assert_int_equal(dma(0xc8, 128, 0, false), 0x50);
	assert_memory_equal(ram(PRD), content, 65536);
}

static void test_addresses(void **state)
{
	const uint64_t last = IMAGE_SIZE / 512 - 1;
	static const struct {
		uint64_t lba;
		uint32_t count;
		bool ext;
		uint8_t error;
	} table[] = {
	    {IMAGE_SIZE / 512 - 1, 1, false, 0},      {IMAGE_SIZE / 512 - 1, 2, false, 0x10},
	    {IMAGE_SIZE / 512, 1, true, 0x10},	      {BIT(48) - 1, 65535, true, 0x10},
	    {IMAGE_SIZE / 512 - 255, 0, false, 0x10},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		uint8_t status;

		task_file(0, table[i].count, table[i].lba, table[i].ext);
		out(7, table[i].ext ? 0x42 : 0x40, 1);
		status = wait_idle();
		assert_int_equal(!!(status & ERR), !!table[i].error);
		assert_int_equal(in(1, 1), table[i].error);
	}
	/* READ NATIVE MAX, and the high bytes behind HOB. */
	out(7, 0x27, 1);
	assert_int_equal(wait_idle(), 0x50);
	assert_int_equal(in(3, 1) | in(4, 1) << 8 | in(5, 1) << 16, last);
	/* Cylinder 1, head 2, sector 3 of the default geometry. */
	out(2, 1, 1);
	out(3, 3, 1);
	out(4, 1, 1);
	out(5, 0, 1);
	out(6, 2, 1);
	out(7, 0x20, 1);
	assert_int_equal(wait_idle() & (DRQ | ERR), DRQ);
	assert_int_equal(in(0, 2), ld16le(content + ((1 * 16 + 2) * 63 + 2) * 512));
	/* Sector 0 does not exist. */
	out(0x206, 4, 1);
	out(0x206, 0, 1);
	task_file(0, 1, 0, false);
	out(6, 0, 1);
	out(7, 0x20, 1);
	assert_int_equal(wait_idle() & ERR, ERR);
}

static void test_commands(void **state)
{
	static const uint8_t fine[] = {0xe7, 0xea, 0xe0, 0xe5, 0x10, 0x70, 0xc6},
			     unknown[] = {0x00, 0xff, 0xa0, 0xa1, 0xfb};

	for (unsigned i = 0; i < ARRAY_SIZE(fine); i++) {
		irqs[0] = 0;
		task_file(0, 0, 0, false);
		out(7, fine[i], 1);
		assert_int_equal(wait_idle(), 0x50);
		assert_int_equal(irqs[0], 1);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(unknown); i++) {
		out(7, unknown[i], 1);
		assert_int_equal(wait_idle() & ERR, ERR);
		assert_int_equal(in(1, 1), 4);
	}
	/* nIEN hides the interrupt, and showing it brings it back. */
	irqs[0] = 0;
	out(0x206, 2, 1);
	out(7, 0xe7, 1);
	while (alt_status() & BSY)
		loop_run_once(m.bus.loop, 1000000);
	assert_int_equal(irqs[0], 0);
	out(0x206, 0, 1);
	assert_int_equal(irqs[0], 1);
	in(7, 1);
	assert_int_equal(levels[0], 0);
	/* SMART: the signature comes back when all is well. */
	task_file(0xda, 0, 0xc24f00, false);
	out(7, 0xb0, 1);
	assert_int_equal(wait_idle(), 0x50);
	assert_int_equal(in(4, 1) | in(5, 1) << 8, 0xc24f);
	/* TRIM of 8 sectors frees them. */
	memset(ram(DATA), 0, 512);
	st64le(ram(DATA), 512 | 8ull << 48);
	prd(0, DATA, 512, true);
	task_file(1, 1, 0, true);
	out(7, 0x06, 1);
	bm_start(true);
	assert_int_equal(wait_idle(), 0x50);
	bm_start(false);
	prd(0, DATA, 4096, true);
	assert_int_equal(dma(0xc8, 8, 512, false), 0x50);
	for (unsigned i = 0; i < 4096; i++)
		assert_int_equal(*ram(DATA + i), 0);
}

/* A reset while the host is still reading: busy until that has returned, and then nothing more arrives. */
static void test_reset_in_flight(void **state)
{
	slow_ms = 30;
	prd(0, DATA, 4096, true);
	task_file(0, 8, 0, false);
	out(7, 0xc8, 1);
	bm_start(true);
	for (unsigned i = 0; i < 3; i++)
		loop_run_once(m.bus.loop, 0);
	bm_start(false);
	irqs[0] = 0;
	out(0x206, 4, 1);
	out(0x206, 0, 1);
	assert_int_equal(alt_status(), BSY);
	out(7, 0xe7, 1); /* ignored */
	assert_int_equal(wait_idle(), 0x50);
	assert_int_equal(in(1, 1), 1);
	assert_int_equal(irqs[0], 0);
	memset(ram(DATA), 0x5a, 4096);
	for (unsigned i = 0; i < 5; i++)
		loop_run_once(m.bus.loop, 10000000);
	for (unsigned i = 0; i < 4096; i++)
		assert_int_equal(*ram(DATA + i), 0x5a);
	/* The same by the machine's reset. */
	task_file(0, 8, 0, false);
	out(7, 0xc8, 1);
	bm_start(true);
	dev_pause_all(&m.bus);
	dev_reset_all(&m.bus);
	assert_int_equal(alt_status(), 0x50);
	assert_memory_equal(ram(DATA), content, 4096);
}

/* werror: ENOSPC stops the machine and the request is tried again; another error is reported. */
static void test_errors(void **state)
{
	prd(0, DATA, 512, true);
	memset(ram(DATA), 0x77, 512);
	write_error = ENOSPC;
	task_file(0, 1, 5, false);
	out(7, 0xca, 1);
	bm_start(true);
	for (unsigned i = 0; i < 1000 && !stops; i++)
		loop_run_once(m.bus.loop, 1000000);
	assert_int_equal(stops, 1);
	assert_int_equal(alt_status(), BSY);
	dev_pause_all(&m.bus);
	write_error = 0;
	dev_resume_all(&m.bus);
	assert_int_equal(wait_idle(), 0x50);
	bm_start(false);
	assert_int_equal(dma(0xc8, 1, 5, false), 0x50);
	assert_int_equal(*ram(DATA), 0x77);
	bm_start(false);
	write_error = EIO;
	assert_int_equal(dma(0xca, 1, 5, false) & 0x21, 0x21);
	assert_int_equal(stops, 1);
}

/* ---- the packet device ----------------------------------------------------------------------- */

/* Send a packet; the status when the device has data, or is done. */
static uint8_t packet(const uint8_t *cdb, uint32_t limit, bool use_dma)
{
	port = 0x170;
	task_file(use_dma, 0, limit << 8, false);
	out(6, 0, 1);
	out(7, 0xa0, 1);
	assert_int_equal(wait_idle() & (DRQ | ERR), DRQ);
	assert_int_equal(in(2, 1) & 3, 1);
	for (unsigned i = 0; i < 12; i += 2)
		out(0, cdb[i] | (uint32_t)cdb[i + 1] << 8, 2);
	if (use_dma)
		bm_start(true);
	return wait_idle();
}

/* All data of a PIO packet command. */
static uint32_t packet_in(const uint8_t *cdb, uint32_t limit, uint8_t *got, uint32_t room)
{
	uint8_t status = packet(cdb, limit, false);
	uint32_t sum = 0;

	while (status & DRQ) {
		uint32_t n = in(4, 1) | in(5, 1) << 8;

		assert_int_equal(in(2, 1) & 3, 2);
		assert_true(n && n <= MAX(limit, 512u) && sum + n <= room);
		for (uint32_t i = 0; i < n; i += 2) {
			uint32_t v = in(0, 2);
			memcpy(got + sum + i, &v, MIN(2, n - i));
		}
		sum += n;
		status = wait_idle();
	}
	assert_int_equal(in(2, 1) & 3, 3);
	return status & ERR ? UINT32_MAX : sum;
}

/* TEST UNIT READY: the sense key, and what REQUEST SENSE says of it. */
static uint32_t sense(void)
{
	static const uint8_t ready[12] = {0}, request_sense[12] = {0x03, 0, 0, 0, 18};
	uint8_t got[18];

	if (!(packet(ready, 0, false) & ERR))
		return 0;
	assert_int_equal(packet_in(request_sense, 64, got, sizeof(got)), 18);
	return (uint32_t)got[2] << 16 | (uint32_t)got[12] << 8 | got[13];
}

static void test_packet(void **state)
{
	static const uint8_t inquiry[12] = {0x12, 0, 0, 0, 36}, capacity[12] = {0x25},
			     toc[12] = {0x43, 0, 0, 0, 0, 0, 0, 0, 64}, nonsense[12] = {0x99};
	uint8_t read[12] = {0x28, 0, 0, 0, 0, 17, 0, 0, 21}, got[21 * 2048];

	port = 0x170;
	assert_int_equal(in(4, 1) | in(5, 1) << 8, 0xeb14);
	assert_int_equal(packet_in(inquiry, 2048, got, sizeof(got)), 36);
	assert_int_equal(got[0], 5);
	assert_int_equal(packet_in(capacity, 2048, got, sizeof(got)), 8);
	assert_int_equal(ld32be(got), CD_SIZE / 2048 - 1);
	assert_int_equal(packet_in(toc, 2048, got, sizeof(got)), 20);
	assert_int_equal(ld32be(got + 16), CD_SIZE / 2048);
	/* Byte count limits: the usual, one that is no multiple of anything, the largest. */
	for (unsigned i = 0; i < 4; i++) {
		static const uint32_t limits[] = {2048, 3002, 0xffff, 16};

		memset(got, 0, sizeof(got));
		assert_int_equal(packet_in(read, limits[i], got, sizeof(got)), 21 * 2048);
		assert_memory_equal(got, content + 17 * 2048, sizeof(got));
	}
	/* DMA, also of a reply that is no disk data. */
	prd(0, DATA, 30000, false);
	prd(1, DATA + 0x20000, 21 * 2048 - 30000, true);
	assert_int_equal(packet(read, 0, true), 0x50);
	assert_memory_equal(ram(DATA), content + 17 * 2048, 30000);
	assert_memory_equal(ram(DATA + 0x20000), content + 17 * 2048 + 30000, 21 * 2048 - 30000);
	bm_start(false);
	prd(0, DATA, 36, true);
	assert_int_equal(packet(inquiry, 0, true), 0x50);
	assert_int_equal(ram(DATA)[0], 5);
	bm_start(false);
	/* Beyond the end; a command that does not exist. */
	st32be(read + 2, CD_SIZE / 2048 - 20);
	assert_int_equal(packet_in(read, 2048, got, sizeof(got)), UINT32_MAX);
	assert_int_equal(in(1, 1) >> 4, 5);
	assert_int_equal(packet(nonsense, 0, false) & ERR, ERR);
	assert_int_equal(sense(), 0);
}

static void test_tray(void **state)
{
	static const uint8_t eject[12] = {0x1b, 0, 0, 0, 2}, load[12] = {0x1b, 0, 0, 0, 3},
			     lock[12] = {0x1e, 0, 0, 0, 1}, unlock[12] = {0x1e},
			     events[12] = {0x4a, 1, 0, 0, 0x10, 0, 0, 0, 8};
	struct drive *d = drive_find("c");
	struct err err = {0};
	uint8_t got[64];

	assert_int_equal(packet(eject, 0, false), 0x50);
	assert_int_equal(moved, 1);
	assert_int_equal(sense(), 0x023a02);
	assert_int_equal(packet(load, 0, false), 0x50);
	assert_int_equal(sense(), 0x062800); /* the medium may be another one */
	assert_int_equal(sense(), 0);
	/* The guest locks: the button only asks, force opens. */
	assert_int_equal(packet(lock, 0, false), 0x50);
	assert_int_equal(packet(eject, 0, false) & ERR, ERR);
	assert_int_equal(drive_eject(d, false, &err), -EBUSY);
	assert_int_equal(packet_in(events, 64, got, sizeof(got)), 8);
	assert_int_equal(got[4], 1); /* eject request */
	assert_int_equal(packet(unlock, 0, false), 0x50);
	err = (struct err){0};
	assert_int_equal(drive_eject(d, false, &err), 0);
	assert_null(d->node);
	assert_int_equal(drive_close_tray(d, &err), 0);
	assert_int_equal(sense(), 0x023a01);
	/* A medium again; one that does not exist changes nothing. */
	assert_int_equal(drive_change_medium(d, "/nosuch.iso", NULL, false, DRIVE_RETAIN, &err), -ENOENT);
	err = (struct err){0};
	assert_int_equal(drive_change_medium(d, cd_image, "raw", false, DRIVE_RETAIN, &err), 0);
	assert_int_equal(sense(), 0x062800);
	assert_int_equal(sense(), 0);
	assert_ptr_equal(drive_find_removable(NULL, "cd", &err), d);
	assert_null(drive_find_removable("d", NULL, &err));
}

/* Anything into every register, from a fixed seed: the device answers, and works afterwards. */
static void test_noise(void **state)
{
	uint32_t seed = 1;

	for (unsigned i = 0; i < 200000; i++) {
		seed = seed * 1664525 + 1013904223;
		port = seed & BIT(31) ? 0x1f0 : 0x170;
		if (seed >> 16 & 1)
			in(seed >> 17 & 7, 1u << (seed >> 20 & 1) * 2);
		else if (seed >> 17 & 31)
			out(seed >> 22 & 7, seed >> 8 & 0xff, 1);
		else
			bm_start(seed >> 23 & 1);
		if (i % 1000 == 0)
			loop_run_once(m.bus.loop, 0);
		if (i % 5000 == 0) {
			out(0x206, 4, 1);
			out(0x206, 0, 1);
		}
	}
	dev_pause_all(&m.bus);
	dev_reset_all(&m.bus);
	port = 0x1f0;
	irqs[0] = 0;
	test_identify(state);
}

static void fill(char *name, size_t size)
{
	int fd = mkstemp(name);

	assert_true(fd >= 0 && write(fd, content, size) == (ssize_t)size);
	close(fd);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, create, destroy)
	static const struct CMUnitTest tests[] = {
	    CASE(test_identify),    CASE(test_pio),	  CASE(test_dma),      CASE(test_dma_order),
	    CASE(test_hostile_prd), CASE(test_addresses), CASE(test_commands), CASE(test_reset_in_flight),
	    CASE(test_errors),	    CASE(test_packet),	  CASE(test_tray),     CASE(test_noise),
	};
	int ret;

	content = malloc(IMAGE_SIZE);
	for (unsigned i = 0; i < IMAGE_SIZE; i += 4)
		st32le(content + i, i * 2654435761u ^ i >> 7);
	fill(image, IMAGE_SIZE);
	fill(cd_image, CD_SIZE);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(image);
	unlink(cd_image);
	free(content);
	return ret;
}
