// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * SCSI units behind virtio-scsi, without a CPU: every command with its right and
 * wrong forms, sense data, the write cache and FUA against the host's fdatasync,
 * task management, events, LUN addressing, error policy, and CDBs at random.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/object.h"
#include "base/util.h"
#include "block/block.h"
#include "hw/virtio/virtio_pci.h"
#include "io/iothread.h"
#include "disk_image.h"
#include "virtio_guest.h"

#define BLOCKS	 (IMAGE_SIZE / 512)
#define REQUEST	 0x700000ull
#define RESPONSE 0x701000ull
#define DATA	 BUFFER_BASE
#define REQ_LEN	 51
#define RESP_LEN 108

static struct machine m;
static struct guest g;

/* ---- the host's file, counted and made to fail -------------------------------------- */

static unsigned fdatasyncs;
static int io_error;
static unsigned slow_ms;

int fdatasync(int fd)
{
	__atomic_fetch_add(&fdatasyncs, 1, __ATOMIC_RELAXED);
	return (int)syscall(SYS_fdatasync, fd);
}

ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off);
ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off)
{
	if (slow_ms)
		usleep(slow_ms * 1000);
	if (io_error) {
		errno = io_error;
		return -1;
	}
	return syscall(SYS_preadv, fd, iov, n, off, 0);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t off);
ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t off)
{
	if (io_error) {
		errno = io_error;
		return -1;
	}
	return syscall(SYS_pwritev, fd, iov, n, off, 0);
}

/* ---- helpers --------------------------------------------------------------------------- */

static struct dev *make(const char *text)
{
	struct err err = {0};
	struct dev *d = dev_create_from_text(&m.bus, text, &err);

	if (!d)
		fail_msg("%s", err.msg);
	return d;
}

static void add_drive(const char *id, const char *opts)
{
	char text[200];
	struct err err = {0};

	snprintf(text, sizeof(text), "if=none,id=%s,format=raw,file=%s,file.locking=off%s", id, image, opts);
	if (!drive_create(text, m.bus.loop, &err))
		fail_msg("%s", err.msg);
}

/* A disk at target 2, LUN 1, and whatever else the test wants. */
static void create_with(const char *drive_opts, const char *hba_opts, const char *unit_opts)
{
	char text[200];
	struct dev *hba;

	machine_create(&m);
	add_drive("d", drive_opts);
	snprintf(text, sizeof(text), "virtio-scsi-pci,id=s0%s", hba_opts);
	hba = make(text);
	snprintf(text, sizeof(text), "scsi-hd,drive=d,bus=s0.0,scsi-id=2,lun=1%s", unit_opts);
	make(text);
	pci_bus_place_bars(m.bus.pci);
	assert_true(guest_attach(&g, &m, (unsigned)container_of(hba, struct pci_dev, dev)->devfn, GUEST_MODERN));
	guest_start(&g, ~0ull, 3, 64, true);
}

static void create(const char *drive_opts)
{
	create_with(drive_opts, "", "");
}

static int destroy(void **state)
{
	io_error = 0;
	slow_ms = 0;
	if (m.bus.loop)
		machine_destroy(&m);
	memset(&m, 0, sizeof(m));
	return image_clear();
}

enum dir { NONE, IN, OUT };

/* What the last command gave. */
static struct {
	uint8_t response, status, key, asc, ascq;
	uint32_t residual, used;
} got;

static void take_response(uint64_t at, uint32_t used)
{
	const uint8_t *r = guest_ptr(&m, at);

	got.used = used;
	got.residual = ld32le(r + 4);
	got.status = r[10];
	got.response = r[11];
	got.key = got.asc = got.ascq = 0;
	if (ld32le(r)) {
		assert_int_equal(ld32le(r), 18);
		assert_int_equal(r[12], 0x70);
		got.key = r[12 + 2];
		got.asc = r[12 + 12];
		got.ascq = r[12 + 13];
	}
}

static void put_request(uint64_t at, unsigned target, unsigned lun, uint64_t tag, const uint8_t *cdb, size_t n)
{
	uint8_t *r = guest_ptr(&m, at);

	memset(r, 0, REQ_LEN);
	r[0] = 1;
	r[1] = (uint8_t)target;
	st16be(r + 2, (uint16_t)(lun | 0x4000));
	st64le(r + 8, tag);
	memcpy(r + 19, cdb, n);
}

/* Offer a command without waiting. */
static void offer(unsigned target, unsigned lun, const uint8_t *cdb, size_t n, enum dir dir, uint32_t len)
{
	struct seg s[4] = {{REQUEST, REQ_LEN, false}};
	int k = 1;

	put_request(REQUEST, target, lun, 7, cdb, n);
	memset(guest_ptr(&m, RESPONSE), 0xee, RESP_LEN);
	if (dir == OUT && len)
		s[k++] = (struct seg){DATA, len, false};
	s[k++] = (struct seg){RESPONSE, RESP_LEN, true};
	if (dir == IN && len)
		s[k++] = (struct seg){DATA, len, true};
	guest_add(&g.q[2], s, k, 0);
	guest_kick(&g.q[2]);
}

/* One command to its end; false: nothing came back. */
static bool command_at(unsigned target, unsigned lun, const uint8_t *cdb, size_t n, enum dir dir, uint32_t len)
{
	uint32_t used;

	offer(target, lun, cdb, n, dir, len);
	if (!guest_wait(&g.q[2], NULL, &used))
		return false;
	take_response(RESPONSE, used);
	return true;
}

#define CMD(dir, len, ...)                                                                                             \
	assert_true(command_at(2, 1, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}), dir, len))

static void good(void)
{
	if (got.response || got.status)
		fail_msg("response %u status %u sense %x/%02x/%02x", got.response, got.status, got.key, got.asc,
			 got.ascq);
}

static void sense(unsigned key, unsigned asc, unsigned ascq)
{
	assert_int_equal(got.response, 0);
	assert_int_equal(got.status, 2);
	if (got.key != key || got.asc != asc || got.ascq != ascq)
		fail_msg("sense %x/%02x/%02x, not %x/%02x/%02x", got.key, got.asc, got.ascq, key, asc, ascq);
}

/* The first command meets the power-on attention. */
static void clear_attention(void)
{
	CMD(NONE, 0, 0, 0, 0, 0, 0, 0);
	sense(6, 0x29, 0);
	CMD(NONE, 0, 0, 0, 0, 0, 0, 0);
	good();
}

static uint8_t *data(void)
{
	return guest_ptr(&m, DATA);
}

static uint8_t file_byte(uint64_t at)
{
	uint8_t b = 0;
	int fd = open(image, O_RDONLY);

	assert_int_equal(pread(fd, &b, 1, (off_t)at), 1);
	close(fd);
	return b;
}

/* ---- identity ------------------------------------------------------------------------------ */

static void test_inquiry(void **state)
{
	create_with("", "", ",serial=SER-1,vendor=ACME,product=Disk,ver=9,wwn=0x5000c50015ea71aa,rotation_rate=1");
	/* INQUIRY and REPORT LUNS do not take the attention away. */
	CMD(IN, 255, 0x12, 0, 0, 0, 36, 0);
	good();
	assert_int_equal(data()[0], 0);
	assert_int_equal(data()[2], 5);
	assert_memory_equal(data() + 8, "ACME    Disk            9   ", 28);
	assert_int_equal(got.residual, 255 - 36);
	assert_int_equal(got.used, RESP_LEN + 36);
	CMD(IN, 255, 0x12, 0, 0, 0, 5, 0); /* the allocation length cuts */
	assert_int_equal(got.residual, 250);
	CMD(IN, 16, 0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0);
	good();
	assert_int_equal(ld32be(data()), 8);
	assert_int_equal(ld16be(data() + 8), 1);
	clear_attention();
	CMD(IN, 255, 0x12, 1, 0, 0, 255, 0);
	good();
	assert_memory_equal(data(), "\0\0\0\6\x00\x80\x83\xb0\xb1\xb2", 10);
	CMD(IN, 255, 0x12, 1, 0x80, 0, 255, 0);
	assert_memory_equal(data(), "\0\x80\0\5SER-1", 9);
	CMD(IN, 255, 0x12, 1, 0x83, 0, 255, 0);
	assert_int_equal(ld16be(data() + 2), 4 + 24 + 5 + 12);
	assert_memory_equal(data() + 4,
			    "\2\1\0\x1d"
			    "ACME    Disk            SER-1",
			    33);
	assert_memory_equal(data() + 37, "\1\3\0\x08\x50\x00\xc5\x00\x15\xea\x71\xaa", 12);
	CMD(IN, 255, 0x12, 1, 0xb0, 0, 255, 0);
	assert_int_equal(ld16be(data() + 2), 0x3c);
	assert_true(ld32be(data() + 20) && ld32be(data() + 24));
	CMD(IN, 255, 0x12, 1, 0xb1, 0, 255, 0);
	assert_int_equal(ld16be(data() + 4), 1);
	CMD(IN, 255, 0x12, 1, 0xb2, 0, 255, 0);
	assert_int_equal(data()[5], 0xe0);
	CMD(IN, 255, 0x12, 1, 0xc9, 0, 255, 0);
	sense(5, 0x24, 0);
	CMD(IN, 255, 0x12, 0, 0x80, 0, 255, 0);
	sense(5, 0x24, 0);
	/* Persistent reservations are refused, as is what does not exist. */
	CMD(IN, 64, 0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0);
	sense(5, 0x20, 0);
	CMD(OUT, 24, 0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0);
	sense(5, 0x20, 0);
	CMD(NONE, 0, 0x7f, 0, 0, 0, 0, 0);
	sense(5, 0x20, 0);
	CMD(NONE, 0, 0xff);
	sense(5, 0x20, 0);
	CMD(IN, 18, 3, 0, 0, 0, 18, 0);
	good();
	assert_int_equal(data()[2], 0);
}

static void test_addresses(void **state)
{
	static const uint8_t tur[6], inquiry[6] = {0x12, 0, 0, 0, 36}, luns[12] = {0xa0, [8] = 0, [9] = 64};
	struct err err = {0};

	create("");
	add_drive("e", ",readonly=on");
	make("scsi-hd,drive=e,bus=s0.0,scsi-id=2,lun=300");
	assert_true(command_at(2, 300, inquiry, 6, IN, 36));
	good();
	assert_true(command_at(2, 0, inquiry, 6, IN, 36)); /* the target is there, the LUN is not */
	good();
	assert_int_equal(data()[0], 0x7f);
	assert_true(command_at(2, 0, tur, 6, NONE, 0));
	sense(5, 0x25, 0);
	assert_true(command_at(2, 0, luns, 12, IN, 64));
	good();
	assert_int_equal(ld32be(data()), 16);
	assert_int_equal(ld16be(data() + 8), 1);
	assert_int_equal(ld16be(data() + 16), 0x4000 | 300);
	assert_true(command_at(3, 1, tur, 6, NONE, 0));
	assert_int_equal(got.response, 3); /* BAD_TARGET */
	add_drive("f", ",readonly=on");
	assert_null(dev_create_from_text(&m.bus, "scsi-hd,drive=f,bus=s0.0,scsi-id=2,lun=1", &err));
	assert_non_null(strstr(err.msg, "lun already used"));
	assert_null(dev_create_from_text(&m.bus, "scsi-hd,drive=f,bus=s0.0,scsi-id=256", &(struct err){0}));
	assert_null(dev_create_from_text(&m.bus, "scsi-hd,drive=f,bus=s0.0,channel=1", &(struct err){0}));
	assert_null(dev_create_from_text(&m.bus, "scsi-hd,drive=f,bus=nosuch.0", &(struct err){0}));
	assert_null(dev_create_from_text(&m.bus, "scsi-hd,bus=s0.0", &(struct err){0}));
	make("scsi-hd,drive=f"); /* the first bus, target and LUN */
	assert_true(command_at(0, 0, inquiry, 6, IN, 36));
	good();
	/* Units go before their adapter, and an adapter may go before its units. */
	dev_destroy(dev_find(&m.bus, "s0"));
}

/* ---- reading and writing ------------------------------------------------------------------------ */

static void test_transfers(void **state)
{
	create("");
	clear_attention();
	memset(data(), 0xa1, 8192);
	CMD(OUT, 1024, 0x0a, 0, 0, 10, 2, 0);
	good();
	memset(data(), 0xa2, 512);
	CMD(OUT, 512, 0x2a, 0, 0, 0, 0, 20, 0, 0, 1, 0);
	good();
	memset(data(), 0xa3, 512);
	CMD(OUT, 512, 0xaa, 0, 0, 0, 0, 30, 0, 0, 0, 1, 0, 0);
	good();
	memset(data(), 0xa4, 4096);
	CMD(OUT, 4096, 0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0, 8, 0, 0);
	good();
	assert_int_equal(got.used, RESP_LEN);
	assert_int_equal(file_byte(10 * 512), 0xa1);
	assert_int_equal(file_byte(12 * 512 - 1), 0xa1);
	assert_int_equal(file_byte(12 * 512), 0);
	assert_int_equal(file_byte(20 * 512), 0xa2);
	assert_int_equal(file_byte(30 * 512), 0xa3);
	assert_int_equal(file_byte(48 * 512 - 1), 0xa4);
	memset(data(), 0, 8192);
	CMD(IN, 1024, 0x08, 0, 0, 10, 2, 0);
	good();
	assert_int_equal(data()[1023], 0xa1);
	CMD(IN, 256 * 512, 0x08, 0, 0, 0, 0, 0); /* READ (6) of 0 blocks is 256 */
	good();
	assert_int_equal(data()[40 * 512], 0xa4);
	assert_int_equal(got.residual, 0);
	CMD(IN, 8192, 0x28, 0, 0, 0, 0, 20, 0, 0, 1, 0); /* more room than data */
	good();
	assert_int_equal(got.residual, 8192 - 512);
	assert_int_equal(data()[0], 0xa2);
	CMD(IN, 512, 0xa8, 0, 0, 0, 0, 30, 0, 0, 0, 1, 0, 0);
	assert_int_equal(data()[511], 0xa3);
	CMD(IN, 512, 0x88, 0, 0, 0, 0, 0, 0, 0, 0, 47, 0, 0, 0, 1, 0, 0);
	assert_int_equal(data()[0], 0xa4);
	CMD(NONE, 0, 0x28, 0, 0, 0, 0, 20, 0, 0, 0, 0); /* nothing */
	good();
	/* Less room than the command moves: refused before anything moves. */
	CMD(IN, 512, 0x28, 0, 0, 0, 0, 20, 0, 0, 2, 0);
	assert_int_equal(got.response, 1);
	CMD(OUT, 512, 0x2a, 0, 0, 0, 0, 0, 0, 0, 2, 0);
	assert_int_equal(got.response, 1);
	assert_int_equal(file_byte(0), 0);
	CMD(OUT, 512, 0x28, 0, 0, 0, 0, 20, 0, 0, 1, 0); /* the wrong way */
	assert_int_equal(got.response, 1);
	/* Beyond the end, at the end, wrapping. */
	CMD(IN, 512, 0x28, 0, 0, 0, 0x20, 0, 0, 0, 1, 0);
	sense(5, 0x21, 0);
	CMD(IN, 1024, 0x28, 0, 0, 0, 0x1f, 0xff, 0, 0, 2, 0);
	sense(5, 0x21, 0);
	CMD(IN, 512, 0x28, 0, 0, 0, 0x1f, 0xff, 0, 0, 1, 0);
	good();
	CMD(OUT, 512, 0x8a, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0);
	sense(5, 0x21, 0);
	CMD(OUT, 512, 0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0);
	sense(5, 0x21, 0);
	CMD(IN, 512, 0x28, 0x20, 0, 0, 0, 0, 0, 0, 1, 0); /* protection information */
	sense(5, 0x24, 0);
	CMD(IN, 8, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	assert_int_equal(ld32be(data()), BLOCKS - 1);
	assert_int_equal(ld32be(data() + 4), 512);
	CMD(IN, 32, 0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0);
	assert_int_equal(ld64be(data()), BLOCKS - 1);
	assert_int_equal(data()[14], 0x80);
	CMD(IN, 32, 0x9e, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0);
	sense(5, 0x20, 0);
}

static void test_block_size(void **state)
{
	create_with("", "", ",logical_block_size=4096,physical_block_size=8192");
	clear_attention();
	CMD(IN, 32, 0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0);
	assert_int_equal(ld64be(data()), IMAGE_SIZE / 4096 - 1);
	assert_int_equal(ld32be(data() + 8), 4096);
	assert_int_equal(data()[13], 1);
	memset(data(), 0x77, 4096);
	CMD(OUT, 4096, 0x2a, 0, 0, 0, 0, 3, 0, 0, 1, 0);
	good();
	assert_int_equal(file_byte(3 * 4096), 0x77);
	assert_int_equal(file_byte(4 * 4096), 0);
	CMD(IN, 4096, 0x28, 0, 0, 0, 4, 0, 0, 0, 1, 0);
	sense(5, 0x21, 0);
}

static void test_verify(void **state)
{
	create(",aio=threads");
	clear_attention();
	memset(data(), 0x31, 1 << 20);
	CMD(OUT, 512 * 256, 0x2a, 0, 0, 0, 0, 0, 0, 1, 0, 0);
	good();
	CMD(NONE, 0, 0x2f, 0, 0, 0, 0, 0, 0, 1, 0, 0);
	good();
	CMD(NONE, 0, 0x2f, 0, 0, 0, 0x20, 0, 0, 0, 1, 0);
	sense(5, 0x21, 0);
	CMD(OUT, 512 * 256, 0x2f, 2, 0, 0, 0, 0, 0, 1, 0, 0);
	good();
	data()[512 * 200 + 3] ^= 1;
	CMD(OUT, 512 * 256, 0x8f, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0);
	sense(0xe, 0x1d, 0);
	CMD(OUT, 512 * 200, 0xaf, 2, 0, 0, 0, 0, 0, 0, 0, 200, 0, 0);
	good();
	CMD(OUT, 512, 0x2f, 4, 0, 0, 0, 0, 0, 0, 1, 0);
	sense(5, 0x24, 0);
	fdatasyncs = 0;
	CMD(OUT, 512, 0x2e, 0, 0, 0, 0, 9, 0, 0, 1, 0);
	good();
	assert_int_equal(fdatasyncs, 1);
}

/* ---- the write cache ---------------------------------------------------------------------------------- */

static void write_one(uint8_t flags)
{
	CMD(OUT, 512, 0x2a, flags, 0, 0, 0, 1, 0, 0, 1, 0);
	good();
}

static void test_write_cache(void **state)
{
	create(",aio=threads");
	clear_attention();
	CMD(IN, 192, 0x1a, 0, 8, 0, 192, 0);
	good();
	assert_int_equal(data()[2], 0x10); /* DPO and FUA */
	assert_int_equal(data()[3], 8);
	assert_int_equal(data()[12], 8);
	assert_int_equal(data()[14] & 4, 4);
	fdatasyncs = 0;
	write_one(0);
	assert_int_equal(fdatasyncs, 0);
	write_one(8); /* FUA */
	assert_int_equal(fdatasyncs, 1);
	write_one(0);
	CMD(NONE, 0, 0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	good();
	assert_int_equal(fdatasyncs, 2);
	write_one(0);
	CMD(NONE, 0, 0x91, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	good();
	assert_int_equal(fdatasyncs, 3);
	/* Switch it off: what is in it is flushed, and each write is durable. */
	write_one(0);
	memset(data(), 0, 24);
	data()[4] = 8;
	data()[5] = 18;
	CMD(OUT, 24, 0x15, 0x10, 0, 0, 24, 0);
	good();
	assert_int_equal(fdatasyncs, 4);
	write_one(0);
	assert_int_equal(fdatasyncs, 5);
	CMD(IN, 192, 0x5a, 8, 8, 0, 0, 0, 0, 0, 192, 0);
	good();
	assert_int_equal(ld16be(data() + 6), 0); /* no block descriptor asked for */
	assert_int_equal(data()[10] & 4, 0);
	CMD(IN, 192, 0x5a, 8, 0x48, 0, 0, 0, 0, 0, 192, 0); /* changeable */
	assert_int_equal(data()[10], 4);
	CMD(IN, 192, 0x5a, 8, 0x88, 0, 0, 0, 0, 0, 192, 0); /* default */
	assert_int_equal(data()[10], 4);
	CMD(IN, 192, 0x5a, 8, 0xc8, 0, 0, 0, 0, 0, 192, 0); /* saved */
	sense(5, 0x39, 0);
	CMD(IN, 192, 0x1a, 0, 0x3f, 0xff, 192, 0);
	good();
	CMD(IN, 192, 0x1a, 0, 0x08, 1, 192, 0);
	sense(5, 0x24, 0);
	CMD(IN, 192, 0x1a, 0, 0x2a, 0, 192, 0);
	sense(5, 0x24, 0);
	/* MODE SELECT (10) with a block descriptor, back on. */
	memset(data(), 0, 64);
	data()[7] = 8;
	st32be(data() + 12, 512);
	data()[16] = 8;
	data()[17] = 18;
	data()[18] = 4;
	CMD(OUT, 36, 0x55, 0x10, 0, 0, 0, 0, 0, 0, 36, 0);
	good();
	write_one(0);
	assert_int_equal(fdatasyncs, 5);
	/* What may not change, wrong lengths, wrong block size. */
	data()[20] = 1;
	CMD(OUT, 36, 0x55, 0x10, 0, 0, 0, 0, 0, 0, 36, 0);
	sense(5, 0x26, 0);
	data()[20] = 0;
	st32be(data() + 12, 1024);
	CMD(OUT, 36, 0x55, 0x10, 0, 0, 0, 0, 0, 0, 36, 0);
	sense(5, 0x26, 0);
	st32be(data() + 12, 512);
	CMD(OUT, 30, 0x55, 0x10, 0, 0, 0, 0, 0, 0, 30, 0);
	sense(5, 0x26, 0);
	CMD(OUT, 3, 0x55, 0x10, 0, 0, 0, 0, 0, 0, 3, 0);
	sense(5, 0x1a, 0);
	CMD(OUT, 36, 0x55, 0x11, 0, 0, 0, 0, 0, 0, 36, 0);
	sense(5, 0x24, 0);
	CMD(NONE, 0, 0x55, 0x10, 0, 0, 0, 0, 0, 0, 0, 0);
	good();
	destroy(NULL);
	create(",cache=writethrough,aio=threads");
	clear_attention();
	fdatasyncs = 0;
	write_one(0);
	assert_int_equal(fdatasyncs, 1);
	destroy(NULL);
	create(",cache=unsafe");
	clear_attention();
	fdatasyncs = 0;
	write_one(8);
	CMD(NONE, 0, 0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	good();
	assert_int_equal(fdatasyncs, 0);
}

/* ---- ranges ------------------------------------------------------------------------------------------------ */

static void unmap(unsigned n, uint64_t lba, uint32_t count, uint32_t len)
{
	memset(data(), 0, 8 + 16 * n);
	st16be(data(), (uint16_t)(6 + 16 * n));
	st16be(data() + 2, (uint16_t)(16 * n));
	for (unsigned i = 0; i < n; i++) {
		st64be(data() + 8 + 16 * i, lba + i * 2 * count);
		st32be(data() + 16 + 16 * i, count);
	}
	CMD(OUT, len, 0x42, 0, 0, 0, 0, 0, 0, (uint8_t)(len >> 8), (uint8_t)len, 0);
}

static void test_unmap_and_same(void **state)
{
	create(",discard=unmap");
	clear_attention();
	memset(data(), 0x99, 1 << 20);
	CMD(OUT, 1 << 20, 0x2a, 0, 0, 0, 0, 0, 0, 8, 0, 0);
	good();
	unmap(2, 8, 8, 40);
	good();
	assert_int_equal(file_byte(8 * 512 - 1), 0x99);
	assert_int_equal(file_byte(8 * 512), 0);
	assert_int_equal(file_byte(16 * 512), 0x99);
	assert_int_equal(file_byte(24 * 512), 0);
	assert_int_equal(file_byte(32 * 512), 0x99);
	unmap(1, 0, 0, 24);
	good();
	unmap(1, BLOCKS, 1, 24);
	sense(5, 0x21, 0);
	unmap(1, UINT64_MAX, 1, 24);
	sense(5, 0x21, 0);
	unmap(1, 0, UINT32_MAX, 24);
	sense(5, 0x21, 0);
	unmap(255, 0, 1, 8 + 255 * 16);
	good();
	unmap(256, 0, 1, 8 + 256 * 16);
	sense(5, 0x26, 0);
	CMD(OUT, 4, 0x42, 0, 0, 0, 0, 0, 0, 0, 4, 0);
	sense(5, 0x1a, 0);
	CMD(NONE, 0, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	good();
	CMD(OUT, 24, 0x42, 1, 0, 0, 0, 0, 0, 0, 24, 0);
	sense(5, 0x24, 0);
	/* WRITE SAME: a pattern, zeros, unmapping zeros, and no data at all. */
	for (unsigned i = 0; i < 512; i++)
		data()[i] = (uint8_t)(i * 3);
	CMD(OUT, 512, 0x41, 0, 0, 0, 0, 100, 0, 3, 0, 0); /* 768 blocks: several rounds */
	good();
	assert_int_equal(file_byte(100 * 512 + 5), 15);
	assert_int_equal(file_byte(867 * 512 + 85), 255);
	assert_int_equal(file_byte(868 * 512 + 85), 0x99);
	CMD(OUT, 512, 0x93, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0);
	sense(5, 0x24, 0);
	memset(data(), 0, 512);
	CMD(OUT, 512, 0x93, 8, 0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 50, 0, 0);
	good();
	assert_int_equal(file_byte(100 * 512 + 5), 0);
	assert_int_equal(file_byte(150 * 512 + 5), 15);
	CMD(NONE, 0, 0x93, 1, 0, 0, 0, 0, 0, 0, 0, 150, 0, 0, 0, 1, 0, 0);
	good();
	assert_int_equal(file_byte(150 * 512 + 5), 0);
	CMD(OUT, 512, 0x41, 0, 0, 0, 0, 0, 0, 0, 0, 0); /* zero blocks are not "all" */
	sense(5, 0x24, 0);
	CMD(OUT, 512, 0x41, 0, 0, 0, 0x1f, 0xff, 0, 0, 2, 0);
	sense(5, 0x21, 0);
	CMD(OUT, 512, 0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0);
	sense(5, 0x24, 0);
}

/* Field case B8. */
static void test_read_only(void **state)
{
	create(",readonly=on");
	clear_attention();
	CMD(IN, 192, 0x1a, 0, 8, 0, 192, 0);
	assert_int_equal(data()[2] & 0x80, 0x80);
	CMD(OUT, 512, 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0);
	sense(7, 0x27, 0);
	CMD(OUT, 512, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0);
	sense(7, 0x27, 0);
	unmap(1, 0, 1, 24);
	sense(7, 0x27, 0);
	CMD(IN, 512, 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0);
	good();
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

static int asked;

static void on_request(void *opaque, enum vm_request what, int status, const char *why)
{
	assert_int_equal(what, VM_IO_STOP);
	assert_string_equal(why, "d");
	asked++;
}

static void fail_io(const char *opts, int error)
{
	create(opts);
	clear_attention();
	m.bus.request = on_request;
	asked = 0;
	io_error = error;
}

static void test_errors(void **state)
{
	static const uint8_t write[10] = {0x2a, [5] = 7, [8] = 1};

	fail_io(",aio=sync", EIO);
	CMD(OUT, 512, 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0);
	sense(3, 0x0c, 0);
	CMD(IN, 512, 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0);
	sense(3, 0x11, 0);
	assert_int_equal(asked, 0);
	destroy(NULL);
	fail_io(",aio=sync,werror=report", ENOSPC);
	CMD(OUT, 512, 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0);
	sense(7, 0x27, 7);
	destroy(NULL);
	fail_io(",aio=sync,werror=ignore,rerror=ignore", EIO);
	CMD(OUT, 512, 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0);
	good();
	CMD(IN, 512, 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0);
	good();
	destroy(NULL);
	/* A full host stops the machine; the write is tried again when it goes on. */
	fail_io(",aio=sync", ENOSPC);
	memset(data(), 0x42, 512);
	assert_false(command_at(2, 1, write, 10, OUT, 512));
	assert_int_equal(asked, 1);
	dev_pause_all(&m.bus);
	io_error = 0;
	dev_resume_all(&m.bus);
	uint32_t used;
	assert_true(guest_wait(&g.q[2], NULL, &used));
	take_response(RESPONSE, used);
	good();
	assert_int_equal(file_byte(7 * 512), 0x42);
	/* A reset instead: it is dropped, and the units say so. */
	io_error = ENOSPC;
	assert_false(command_at(2, 1, write, 10, OUT, 512));
	dev_pause_all(&m.bus);
	dev_reset_all(&m.bus);
	dev_resume_all(&m.bus);
	io_error = 0;
	machine_settle(&m);
	pci_bus_place_bars(m.bus.pci);
	guest_attach(&g, &m, g.bdf, GUEST_MODERN);
	guest_start(&g, ~0ull, 3, 64, true);
	clear_attention();
	io_error = ENOSPC; /* destroyed with a request set aside */
	assert_false(command_at(2, 1, write, 10, OUT, 512));
	io_error = 0;
}

/* ---- task management, events --------------------------------------------------------------------------------------
 */

static uint8_t tmf(uint32_t type, unsigned target, unsigned lun, uint64_t tag)
{
	const struct seg s[2] = {{REQUEST + 0x200, 24, false}, {RESPONSE + 0x200, 1, true}};
	uint8_t *r = guest_ptr(&m, REQUEST + 0x200);

	memset(r, 0, 24);
	st32le(r + 4, type);
	r[8] = 1;
	r[9] = (uint8_t)target;
	st16be(r + 10, (uint16_t)(0x4000 | lun));
	st64le(r + 16, tag);
	*guest_ptr(&m, RESPONSE + 0x200) = 0xee;
	guest_add(&g.q[0], s, 2, 0);
	guest_kick(&g.q[0]);
	return guest_wait(&g.q[0], NULL, NULL) ? *guest_ptr(&m, RESPONSE + 0x200) : 0xff;
}

static void test_task_management(void **state)
{
	static const uint8_t read[10] = {0x28, [8] = 1};
	uint32_t used;

	create(",aio=threads");
	clear_attention();
	assert_int_equal(tmf(0, 2, 1, 7), 0); /* nothing to abort */
	assert_int_equal(tmf(6, 2, 1, 7), 0);
	assert_int_equal(tmf(2, 2, 1, 0), 11); /* CLEAR ACA */
	assert_int_equal(tmf(99, 2, 1, 0), 11);
	assert_int_equal(tmf(5, 2, 2, 0), 12); /* no such LUN */
	assert_int_equal(tmf(5, 9, 1, 0), 3);
	for (uint32_t type = 0; type <= 5; type++) {
		if (type == 2)
			continue;
		slow_ms = 60;
		offer(2, 1, read, 10, IN, 512);
		loop_run_once(m.bus.loop, 0);
		assert_int_equal(tmf(6, 2, 1, 7), 10); /* it is there */
		assert_int_equal(tmf(6, 2, 1, 8), 0);
		assert_int_equal(tmf(7, 2, 1, 0), 10);
		assert_int_equal(tmf(type, 2, 1, 7), 0); /* answered after the command ended */
		assert_true(guest_wait(&g.q[2], NULL, &used));
		take_response(RESPONSE, used);
		assert_int_equal(got.response, 2); /* ABORTED */
		slow_ms = 0;
		if (type >= 4)
			clear_attention(); /* the resets leave it behind */
		CMD(IN, 512, 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0);
		good();
	}
}

static void test_events(void **state)
{
	const struct seg s = {REQUEST + 0x400, 16, true};
	uint8_t *e;
	uint32_t len;

	create("");
	e = guest_ptr(&m, REQUEST + 0x400);
	add_drive("e", ",readonly=on");
	/* Without a buffer the event is missed, and that is said with the next one. */
	make("scsi-hd,id=hot,drive=e,bus=s0.0,scsi-id=5,lun=0");
	guest_add(&g.q[1], &s, 1, 0);
	guest_kick(&g.q[1]);
	assert_true(guest_wait(&g.q[1], NULL, &len));
	assert_int_equal(len, 16);
	assert_int_equal(ld32le(e), 0x80000000);
	guest_add(&g.q[1], &s, 1, 0);
	guest_kick(&g.q[1]);
	machine_settle(&m);
	dev_destroy(dev_find(&m.bus, "hot"));
	assert_true(guest_wait(&g.q[1], NULL, &len));
	assert_int_equal(ld32le(e), 1);
	assert_int_equal(e[5], 5);
	assert_int_equal(ld32le(e + 12), 2); /* removed */
}

/* ---- CD
 * -------------------------------------------------------------------------------------------------------------- */

static void test_cd(void **state)
{
	struct err err = {0};

	machine_create(&m);
	snprintf(err.msg, sizeof(err.msg), "if=none,id=d,format=raw,media=cdrom,file=%s", image);
	assert_non_null(drive_create(err.msg, m.bus.loop, &err));
	struct dev *hba = make("virtio-scsi-pci,id=s0");
	make("scsi-cd,drive=d,scsi-id=2,lun=1");
	make("scsi-cd,scsi-id=3"); /* empty */
	pci_bus_place_bars(m.bus.pci);
	assert_true(guest_attach(&g, &m, (unsigned)container_of(hba, struct pci_dev, dev)->devfn, GUEST_MODERN));
	guest_start(&g, ~0ull, 3, 64, true);
	clear_attention();
	CMD(IN, 36, 0x12, 0, 0, 0, 36, 0);
	assert_int_equal(data()[0], 5);
	assert_int_equal(data()[1], 0x80);
	CMD(IN, 8, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	assert_int_equal(ld32be(data()), IMAGE_SIZE / 2048 - 1);
	assert_int_equal(ld32be(data() + 4), 2048);
	CMD(IN, 2048, 0x28, 0, 0, 0, 0, 16, 0, 0, 1, 0);
	good();
	CMD(OUT, 2048, 0x2a, 0, 0, 0, 0, 16, 0, 0, 1, 0);
	sense(5, 0x20, 0);
	CMD(IN, 20, 0x43, 0, 0, 0, 0, 0, 0, 0, 20, 0);
	good();
	assert_int_equal(ld16be(data()), 18);
	assert_int_equal(data()[14], 0xaa);
	assert_int_equal(ld32be(data() + 16), IMAGE_SIZE / 2048);
	CMD(IN, 128, 0x43, 2, 2, 0, 0, 0, 0, 0, 128, 0);
	good();
	CMD(IN, 128, 0x43, 0, 5, 0, 0, 0, 0, 0, 128, 0);
	sense(5, 0x24, 0);
	CMD(IN, 128, 0x46, 0, 0, 0, 0, 0, 0, 0, 128, 0);
	good();
	assert_int_equal(ld16be(data() + 6), 8); /* CD-ROM */
	CMD(IN, 8, 0x4a, 1, 0, 0, 0x10, 0, 0, 0, 8, 0);
	good();
	assert_int_equal(data()[5], 2);
	CMD(IN, 34, 0x51, 0, 0, 0, 0, 0, 0, 0, 34, 0);
	good();
	CMD(IN, 2048, 0xbe, 0, 0, 0, 0, 1, 0, 0, 1, 0x10, 0, 0);
	good();
	CMD(IN, 2352, 0xbe, 0, 0, 0, 0, 1, 0, 0, 1, 0xf8, 0, 0);
	sense(5, 0x24, 0);
	CMD(IN, 192, 0x5a, 0, 0x2a, 0, 0, 0, 0, 0, 192, 0);
	good();
	/* Locked, then open, then closed again. */
	CMD(NONE, 0, 0x1e, 0, 0, 0, 1, 0);
	CMD(NONE, 0, 0x1b, 0, 0, 0, 2, 0);
	sense(5, 0x53, 2);
	CMD(NONE, 0, 0x1e, 0, 0, 0, 0, 0);
	CMD(NONE, 0, 0x1b, 0, 0, 0, 2, 0);
	good();
	CMD(NONE, 0, 0, 0, 0, 0, 0, 0);
	sense(2, 0x3a, 2);
	CMD(IN, 2048, 0x28, 0, 0, 0, 0, 16, 0, 0, 1, 0);
	sense(2, 0x3a, 2);
	CMD(NONE, 0, 0x1b, 0, 0, 0, 3, 0);
	good();
	CMD(NONE, 0, 0, 0, 0, 0, 0, 0);
	sense(6, 0x28, 0);
	CMD(NONE, 0, 0, 0, 0, 0, 0, 0);
	good();
	command_at(3, 0, (const uint8_t[6]){0}, 6, NONE, 0);
	sense(6, 0x29, 0);
	command_at(3, 0, (const uint8_t[6]){0}, 6, NONE, 0);
	sense(2, 0x3a, 0);
}

/* The host exchanges the medium of a drive in an I/O thread or the main one; a locked tray stays shut. */
static void exchange(bool iothread)
{
	struct err err = {0};
	struct drive *d;
	uint8_t *buf = calloc(1, MIB);
	char other[] = "kelvin-cd-XXXXXX";
	const int fd = mkstemp(other);

	memset(buf, 0x4d, MIB);
	assert_int_equal(write(fd, buf, MIB), MIB);
	close(fd);
	free(buf);
	machine_create(&m);
	if (iothread && object_create("iothread,id=io", &err))
		fail_msg("%s", err.msg);
	snprintf(err.msg, sizeof(err.msg), "if=none,id=d,format=raw,media=cdrom,file=%s", image);
	assert_non_null(drive_create(err.msg, m.bus.loop, &err));
	struct dev *hba = make(iothread ? "virtio-scsi-pci,id=s0,iothread=io" : "virtio-scsi-pci,id=s0");
	make("scsi-cd,drive=d,scsi-id=2,lun=1,id=cd0");
	pci_bus_place_bars(m.bus.pci);
	assert_true(guest_attach(&g, &m, (unsigned)container_of(hba, struct pci_dev, dev)->devfn, GUEST_MODERN));
	guest_start(&g, ~0ull, 3, 64, true);
	clear_attention();
	d = drive_find_removable(NULL, "cd0", &err);
	assert_non_null(d);
	if (drive_change_medium(d, other, "raw", false, DRIVE_RETAIN, &err))
		fail_msg("%s", err.msg);
	CMD(NONE, 0, 0, 0, 0, 0, 0, 0);
	sense(6, 0x28, 0);
	CMD(IN, 8, 0x4a, 1, 0, 0, 0x10, 0, 0, 0, 8, 0);
	assert_int_equal(data()[4], 2); /* a new medium */
	CMD(IN, 8, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	assert_int_equal(ld32be(data()), MIB / 2048 - 1);
	CMD(IN, 2048, 0x28, 0, 0, 0, 0, 16, 0, 0, 1, 0);
	good();
	assert_int_equal(data()[2047], 0x4d);
	CMD(NONE, 0, 0x1e, 0, 0, 0, 1, 0);
	assert_int_equal(drive_eject(d, false, &err), -EBUSY);
	CMD(IN, 8, 0x4a, 1, 0, 0, 0x10, 0, 0, 0, 8, 0);
	assert_int_equal(data()[4], 1); /* somebody pressed the button */
	assert_int_equal(drive_eject(d, true, &err), 0);
	CMD(NONE, 0, 0, 0, 0, 0, 0, 0);
	sense(2, 0x3a, 2);
	assert_int_equal(drive_close_tray(d, &err), 0);
	CMD(NONE, 0, 0, 0, 0, 0, 0, 0);
	sense(2, 0x3a, 0);
	destroy(NULL);
	iothread_stop_all();
	object_destroy_all();
	assert_int_equal(unlink(other), 0);
}

static void test_exchange(void **state)
{
	exchange(false);
	exchange(true);
}

/* ---- nonsense
 * ---------------------------------------------------------------------------------------------------------- */

static uint32_t seed = 1;

static uint32_t rnd(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

/*
 * CDBs at random, mostly of commands that exist, with data of any length in both
 * directions: each comes back, and nothing else happens. SCSI_FUZZ_ROUNDS for more.
 */
static void test_random_commands(void **state)
{
	const char *rounds = getenv("SCSI_FUZZ_ROUNDS");
	const unsigned n = rounds ? (unsigned)atoi(rounds) : 6000;

	for (unsigned cd = 0; cd < 2; cd++) {
		create_with(",discard=unmap", "", "");
		add_drive("e", ",readonly=on");
		make("scsi-cd,drive=e,scsi-id=3,lun=1");
		for (unsigned i = 0; i < n; i++) {
			uint8_t cdb[16];
			for (unsigned k = 0; k < 16; k++)
				cdb[k] = rnd() % 3 ? 0 : (uint8_t)(rnd() % 4 ? rnd() % 4 : rnd());
			cdb[0] = (uint8_t)rnd();
			for (unsigned k = 0; k < 64; k++)
				data()[rnd() % 4 ? k : rnd() % 8192] = (uint8_t)(rnd() % 3 ? 0 : rnd());
			const enum dir dir = (enum dir)(rnd() % 3);
			if (!command_at(2 + cd, 1, cdb, sizeof(cdb), dir, rnd() % 4 ? rnd() % 8192 : rnd() % 65536))
				fail_msg("opcode %02x did not come back", cdb[0]);
			assert_in_range(got.used, 0, RESP_LEN + 65536);
		}
		destroy(NULL);
	}
}

/* Responses, LUNs and sizes that the driver gets wrong. */
static void test_malformed(void **state)
{
	static const uint8_t tur[6];
	const struct seg small[2] = {{REQUEST, REQ_LEN, false}, {RESPONSE, RESP_LEN - 1, true}};
	const struct seg header[2] = {{REQUEST, REQ_LEN - 1, false}, {RESPONSE, RESP_LEN, true}};
	const struct seg control[2] = {{REQUEST, 3, false}, {RESPONSE, 1, true}};
	const struct {
		unsigned queue;
		const struct seg *s;
	} bad[] = {{2, small}, {2, header}, {0, control}};

	create("");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		put_request(REQUEST, 2, 1, 0, tur, 6);
		guest_add(&g.q[bad[i].queue], bad[i].s, 2, 0);
		guest_kick(&g.q[bad[i].queue]);
		machine_settle(&m);
		assert_true(guest_status(&g) & 0x40);
		guest_start(&g, ~0ull, 3, 64, true);
	}
	/* The driver may ask for other sizes; the device keeps to them until the reset. */
	guest_config_write(&g, 20, 4, 12);
	guest_config_write(&g, 24, 4, 16);
	assert_int_equal(guest_config(&g, 20, 4), 12);
	const struct seg other[2] = {{REQUEST, 19 + 16, false}, {RESPONSE, 12 + 12, true}};
	uint32_t used;
	put_request(REQUEST, 2, 1, 0, tur, 6);
	guest_add(&g.q[2], other, 2, 0);
	guest_kick(&g.q[2]);
	assert_true(guest_wait(&g.q[2], NULL, &used));
	assert_int_equal(ld32le(guest_ptr(&m, RESPONSE)), 12); /* sense, cut */
	guest_config_write(&g, 24, 4, 0xffffffff);
	assert_int_equal(guest_config(&g, 24, 4), 16);
	guest_start(&g, ~0ull, 3, 64, true);
	assert_int_equal(guest_config(&g, 20, 4), 96);
}

#define TEST(f) cmocka_unit_test_teardown(f, destroy)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_inquiry),	 TEST(test_addresses),	     TEST(test_transfers),	 TEST(test_block_size),
	    TEST(test_verify),	 TEST(test_write_cache),     TEST(test_unmap_and_same),	 TEST(test_read_only),
	    TEST(test_errors),	 TEST(test_task_management), TEST(test_events),		 TEST(test_cd),
	    TEST(test_exchange), TEST(test_malformed),	     TEST(test_random_commands),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
