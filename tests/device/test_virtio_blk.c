// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * virtio-blk over real image files: data through every interface and ring
 * feature, then each request type with its wrong forms, write cache rules,
 * batching, and resets and pauses while requests are in flight.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "block/block.h"
#include "hw/virtio/virtio_pci.h"
#include "disk_image.h"
#include "virtio_guest.h"

#define F_RO	5
#define F_FLUSH 9
#define F_WCE	11
#define HEADER	0x700000ull
#define STATUS	0x701000ull
#define TABLE	0x702000ull

static struct machine m;
static struct dev *dev;
static struct guest g;

/* ---- the host's fdatasync and preadv, counted and slowed ------------------------- */

static unsigned fdatasyncs;
static unsigned slow_ms;

static void be_slow(void)
{
	if (slow_ms)
		usleep(slow_ms * 1000);
}

int fdatasync(int fd)
{
	be_slow();
	__atomic_fetch_add(&fdatasyncs, 1, __ATOMIC_RELAXED);
	return (int)syscall(SYS_fdatasync, fd);
}

ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off);
ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off)
{
	be_slow();
	return syscall(SYS_preadv, fd, iov, n, off, 0);
}

static int write_error;

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t off);
ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t off)
{
	if (write_error) {
		errno = write_error;
		return -1;
	}
	return syscall(SYS_pwritev, fd, iov, n, off, 0);
}

/* ---- helpers ------------------------------------------------------------------------ */

static void create(const char *drive_opts, const char *dev_opts, enum guest_mode mode)
{
	char text[200];
	struct err err = {0};

	machine_create(&m);
	snprintf(text, sizeof(text), "if=none,id=d,format=raw,file=%s%s", image, drive_opts);
	if (!drive_create(text, m.bus.loop, &err))
		fail_msg("%s", err.msg);
	snprintf(text, sizeof(text), "virtio-blk-pci,drive=d%s", dev_opts);
	dev = dev_create_from_text(&m.bus, text, &err);
	if (!dev)
		fail_msg("%s", err.msg);
	pci_bus_place_bars(m.bus.pci);
	assert_true(guest_attach(&g, &m, (unsigned)container_of(dev, struct pci_dev, dev)->devfn, mode));
}

static int destroy(void **state)
{
	slow_ms = 0;
	write_error = 0;
	if (m.bus.loop)
		machine_destroy(&m);
	memset(&m, 0, sizeof(m));
	return image_clear();
}

static struct virtio *vio(void)
{
	return &container_of(dev, struct virtio_pci, pci.dev)->vio;
}

static struct block_node *node(void)
{
	return drive_find("d")->node;
}

static void header_at(uint64_t at, uint32_t type, uint64_t sector)
{
	uint8_t *h = guest_ptr(&m, at);

	st32le(h, type);
	st32le(h + 4, 0);
	st64le(h + 8, sector);
}

/* One request to its end: the status byte, 0xff when nothing came back. */
static uint8_t request(uint32_t type, uint64_t sector, uint64_t data, uint32_t len, bool write)
{
	const struct seg s[3] = {{HEADER, 16, false}, {data, len, write}, {STATUS, 1, true}};
	const struct seg none[2] = {{HEADER, 16, false}, {STATUS, 1, true}};
	uint32_t used = 0;

	header_at(HEADER, type, sector);
	*guest_ptr(&m, STATUS) = 0xff;
	if (len)
		guest_add(&g.q[0], s, 3, 0);
	else
		guest_add(&g.q[0], none, 2, 0);
	guest_kick(&g.q[0]);
	if (!guest_wait(&g.q[0], NULL, &used))
		return 0xff;
	assert_int_equal(used, write ? len + 1 : 1);
	return *guest_ptr(&m, STATUS);
}

static uint8_t file_byte(uint64_t at)
{
	uint8_t b = 0;
	int fd = open(image, O_RDONLY);

	assert_int_equal(pread(fd, &b, 1, (off_t)at), 1);
	close(fd);
	return b;
}

static uint64_t file_size(void)
{
	struct stat st;

	stat(image, &st);
	return (uint64_t)st.st_size;
}

/* ---- data ---------------------------------------------------------------------------- */

/* Write, read back, compare, with the data in odd pieces. */
static void transfer(uint64_t sector, unsigned pieces, bool indirect, unsigned seed)
{
	struct seg s[12];
	uint32_t total = 0;
	const unsigned unit = 512;
	int n = 1;

	s[0] = (struct seg){HEADER, 16, false};
	for (unsigned i = 0; i < pieces; i++) {
		const uint32_t len = unit * (1 + (seed + i * 7) % 9);
		s[n] = (struct seg){BUFFER_BASE + i * 0x10000 + (i & 1 ? 512 : 0), len, false};
		for (uint32_t k = 0; k < len; k++)
			guest_ptr(&m, s[n].gpa)[k] = (uint8_t)(seed + i + k / 3);
		total += len;
		n++;
	}
	s[n++] = (struct seg){STATUS, 1, true};
	header_at(HEADER, 1, sector);
	*guest_ptr(&m, STATUS) = 0xff;
	guest_add(&g.q[0], s, n, indirect ? TABLE : 0);
	guest_kick(&g.q[0]);
	assert_true(guest_wait(&g.q[0], NULL, NULL));
	assert_int_equal(*guest_ptr(&m, STATUS), 0);

	for (int i = 1; i < n - 1; i++) {
		s[i].gpa += 0x400000;
		s[i].write = true;
	}
	header_at(HEADER, 0, sector);
	guest_add(&g.q[0], s, n, indirect ? TABLE : 0);
	guest_kick(&g.q[0]);
	uint32_t used = 0;
	assert_true(guest_wait(&g.q[0], NULL, &used));
	assert_int_equal(used, total + 1);
	assert_int_equal(*guest_ptr(&m, STATUS), 0);
	for (int i = 1; i < n - 1; i++)
		assert_memory_equal(guest_ptr(&m, s[i].gpa), guest_ptr(&m, s[i].gpa - 0x400000), s[i].len);
}

static void test_data(void **state)
{
	static const char *const drives[] = {"", ",cache=none", ",aio=threads", ",cache=none,aio=sync"};

	for (unsigned k = 0; k < 64; k++) {
		uint64_t wanted = ~0ull;
		if (k & 4)
			wanted &= ~BIT(VIRTIO_RING_F_EVENT_IDX);
		create(drives[k % 4], ",queue-size=16", k & 8 ? GUEST_LEGACY : GUEST_MODERN);
		guest_start(&g, wanted, 1, 16, k & 16);
		for (unsigned i = 0; i < 12; i++)
			transfer(i * 101 % 4000, 1 + i % 9, k & 32, k + i * 13);
		if (!(k & 16)) { /* INTx: raised, and lowered by reading the ISR */
			assert_int_not_equal(m.intx, 0);
			if (k & 8)
				assert_int_equal(ports_read(m.bus.ports, (uint16_t)(g.common + 19), 1), 1);
			else
				assert_int_equal(mem_read(&m.mem, g.isr, 1), 1);
			assert_int_equal(m.intx, 0);
		} else {
			assert_true(m.msi_count[1] > 0);
		}
		destroy(NULL);
	}
}

/* Header and status anywhere in the chain's bytes; data beside them in one descriptor. */
static void test_any_layout(void **state)
{
	const struct seg s[3] = {{HEADER, 7, false}, {HEADER + 7, 9 + 512, false}, {STATUS, 1, true}};
	const struct seg r[2] = {{HEADER, 16, false}, {BUFFER_BASE, 513, true}};

	create("", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 16, true);
	header_at(HEADER, 1, 5);
	memset(guest_ptr(&m, HEADER + 16), 0x5c, 512);
	guest_add(&g.q[0], s, 3, 0);
	guest_kick(&g.q[0]);
	assert_true(guest_wait(&g.q[0], NULL, NULL));
	assert_int_equal(*guest_ptr(&m, STATUS), 0);
	assert_int_equal(file_byte(5 * 512), 0x5c);
	assert_int_equal(file_byte(5 * 512 + 511), 0x5c);
	header_at(HEADER, 0, 5);
	guest_ptr(&m, BUFFER_BASE)[512] = 0xff;
	guest_add(&g.q[0], r, 2, 0);
	guest_kick(&g.q[0]);
	assert_true(guest_wait(&g.q[0], NULL, NULL));
	assert_int_equal(guest_ptr(&m, BUFFER_BASE)[511], 0x5c);
	assert_int_equal(guest_ptr(&m, BUFFER_BASE)[512], 0);
}

/* A buffer across the end of one block of RAM into nothing is refused; above 4 GiB is fine. */
static void test_high_memory(void **state)
{
	create("", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 16, true);
	memset(guest_ptr(&m, GUEST_HIGH), 0x3e, 4096);
	assert_int_equal(request(1, 0, GUEST_HIGH, 4096, false), 0);
	assert_int_equal(file_byte(4095), 0x3e);
	assert_int_equal(request(1, 0, GUEST_HIGH + (2 << 20) - 512, 1024, false), 0xff);
	assert_true(guest_status(&g) & 0x40);
}

/* ---- request types ---------------------------------------------------------------------- */

static void test_out_of_range(void **state)
{
	const uint64_t end = IMAGE_SIZE / 512;
	static const struct {
		uint64_t sector;
		uint32_t count, flags;
	} range[] = {{8192, 1, 0},	 {8191, 2, 0},	     {UINT64_MAX, 1, 0},
		     {1ull << 55, 8, 0}, {0, 0xffffffff, 0}, {0, 8193, 0}};

	create(",discard=unmap", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 16, true);
	assert_int_equal(guest_config(&g, 0, 4), end);
	for (uint32_t type = 0; type < 2; type++) {
		assert_int_equal(request(type, end, BUFFER_BASE, 512, !type), 1);
		assert_int_equal(request(type, end - 1, BUFFER_BASE, 1024, !type), 1);
		assert_int_equal(request(type, UINT64_MAX, BUFFER_BASE, 512, !type), 1);
		assert_int_equal(request(type, UINT64_MAX / 512 + 1, BUFFER_BASE, 512, !type), 1);
		assert_int_equal(request(type, 0, BUFFER_BASE, 100, !type), 1);
		assert_int_equal(request(type, end - 1, BUFFER_BASE, 512, !type), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(range); i++)
		for (uint32_t type = 11; type <= 13; type += 2) {
			uint8_t *p = guest_ptr(&m, BUFFER_BASE);
			st64le(p, range[i].sector);
			st32le(p + 8, range[i].count);
			st32le(p + 12, range[i].flags);
			assert_int_equal(request(type, 0, BUFFER_BASE, 16, false), 1);
		}
	assert_int_equal(file_size(), IMAGE_SIZE);
	assert_false(guest_status(&g) & 0x40);
}

static void test_discard_and_zero(void **state)
{
	uint8_t *p;

	create(",discard=unmap", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 16, true);
	memset(guest_ptr(&m, BUFFER_BASE), 0x99, 1 << 20);
	assert_int_equal(request(1, 0, BUFFER_BASE, 1 << 20, false), 0);
	p = guest_ptr(&m, BUFFER_BASE);
	st64le(p, 8);
	st32le(p + 8, 64);
	st32le(p + 12, 0);
	assert_int_equal(request(13, 0, BUFFER_BASE, 16, false), 0);
	assert_int_equal(file_byte(8 * 512 - 1), 0x99);
	assert_int_equal(file_byte(8 * 512), 0);
	assert_int_equal(file_byte(72 * 512 - 1), 0);
	assert_int_equal(file_byte(72 * 512), 0x99);
	st64le(p, 1024);
	st32le(p + 8, 256);
	st32le(p + 12, 1); /* unmap */
	assert_int_equal(request(13, 0, BUFFER_BASE, 16, false), 0);
	assert_int_equal(file_byte(1024 * 512), 0);
	assert_int_equal(request(11, 0, BUFFER_BASE, 16, false), 2); /* discard knows no flags */
	st32le(p + 12, 0);
	st64le(p, 512);
	assert_int_equal(request(11, 0, BUFFER_BASE, 16, false), 0);
	assert_int_equal(file_byte(512 * 512), 0);
	st32le(p + 12, 2);
	assert_int_equal(request(13, 0, BUFFER_BASE, 16, false), 2);
	assert_int_equal(request(11, 0, BUFFER_BASE, 32, false), 1); /* one segment at most */
	assert_int_equal(request(11, 0, BUFFER_BASE, 15, false), 1);
}

static void test_read_only(void **state)
{
	create(",readonly=on", ",serial=0123456789abcdefghijKLM", GUEST_MODERN);
	guest_start(&g, ~BIT(F_RO), 1, 16, true); /* a driver that ignores F_RO */
	assert_true(guest_host_features(&g) & BIT(F_RO));
	memset(guest_ptr(&m, BUFFER_BASE), 0xee, 4096);
	assert_int_equal(request(1, 0, BUFFER_BASE, 512, false), 1);
	memset(guest_ptr(&m, BUFFER_BASE), 0, 16);
	st32le(guest_ptr(&m, BUFFER_BASE) + 8, 1);
	assert_int_equal(request(11, 0, BUFFER_BASE, 16, false), 1);
	assert_int_equal(request(13, 0, BUFFER_BASE, 16, false), 1);
	assert_int_equal(file_byte(0), 0);
	assert_int_equal(request(8, 0, BUFFER_BASE, 20, true), 0);
	assert_memory_equal(guest_ptr(&m, BUFFER_BASE), "0123456789abcdefghij", 20);
	memset(guest_ptr(&m, BUFFER_BASE), 0xee, 32);
	assert_int_equal(request(8, 0, BUFFER_BASE, 5, true), 0);
	assert_memory_equal(guest_ptr(&m, BUFFER_BASE), "01234\xee", 6);
	assert_int_equal(request(0, 0, BUFFER_BASE, 512, true), 0);
	assert_int_equal(request(4, 0, 0, 0, false), 0);
}

static void test_unknown_and_malformed(void **state)
{
	const struct seg no_status[1] = {{HEADER, 16, false}},
			 short_header[2] = {{HEADER, 15, false}, {STATUS, 1, true}};

	create("", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 16, true);
	assert_int_equal(request(2, 0, BUFFER_BASE, 512, true), 2);
	assert_int_equal(request(77, 0, 0, 0, false), 2);
	assert_int_equal(request(0x80000001u, 3, BUFFER_BASE, 512, false), 0); /* a legacy barrier */
	guest_add(&g.q[0], no_status, 1, 0);
	guest_kick(&g.q[0]);
	machine_settle(&m);
	assert_true(guest_status(&g) & 0x40);
	guest_start(&g, ~0ull, 1, 16, true);
	guest_add(&g.q[0], short_header, 2, 0);
	guest_kick(&g.q[0]);
	machine_settle(&m);
	assert_true(guest_status(&g) & 0x40);
	guest_start(&g, ~0ull, 1, 16, true);
	assert_int_equal(request(0, 0, BUFFER_BASE, 512, true), 0);
}

/* ---- write cache ------------------------------------------------------------------------ */

static void test_write_cache(void **state)
{
	create(",aio=sync", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 16, true);
	fdatasyncs = 0;
	assert_int_equal(request(1, 0, BUFFER_BASE, 512, false), 0);
	assert_int_equal(fdatasyncs, 0);
	assert_int_equal(request(4, 0, 0, 0, false), 0);
	assert_int_equal(fdatasyncs, 1);
	assert_int_equal(guest_config(&g, 32, 1), 1);
	guest_config_write(&g, 32, 1, 0); /* write-through from here on */
	assert_int_equal(request(1, 0, BUFFER_BASE, 512, false), 0);
	assert_int_equal(fdatasyncs, 2);
	guest_set_status(&g, 0);
	assert_int_equal(guest_config(&g, 32, 1), 1);
	/* A driver that can neither flush nor switch gets write-through. */
	guest_start(&g, ~(BIT(F_FLUSH) | BIT(F_WCE)), 1, 16, true);
	assert_int_equal(request(1, 0, BUFFER_BASE, 512, false), 0);
	assert_int_equal(fdatasyncs, 3);
	destroy(NULL);
	create(",cache=writethrough,aio=sync", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 16, true);
	assert_int_equal(guest_config(&g, 32, 1), 0);
	fdatasyncs = 0;
	assert_int_equal(request(1, 0, BUFFER_BASE, 512, false), 0);
	assert_int_equal(fdatasyncs, 1);
	destroy(NULL);
	create(",aio=sync", ",write-cache=off", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 16, true);
	assert_int_equal(guest_config(&g, 32, 1), 0);
	fdatasyncs = 0;
	assert_int_equal(request(1, 0, BUFFER_BASE, 512, false), 0);
	assert_int_equal(fdatasyncs, 1);
	destroy(NULL);
	create(",cache=unsafe,aio=sync", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 16, true);
	fdatasyncs = 0;
	assert_int_equal(request(1, 0, BUFFER_BASE, 512, false), 0);
	assert_int_equal(request(4, 0, 0, 0, false), 0);
	assert_int_equal(fdatasyncs, 0);
}

/* ---- many at once ------------------------------------------------------------------------ */

static void offer_reads(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const struct seg s[3] = {
		    {HEADER + 32 * i, 16, false}, {BUFFER_BASE + 4096 * i, 512, true}, {STATUS + i, 1, true}};
		header_at(HEADER + 32 * i, 0, 8 * i);
		*guest_ptr(&m, STATUS + i) = 0xff;
		guest_add(&g.q[0], s, 3, TABLE + 64 * i);
	}
}

/* One notification, one batch, and with the event index few interrupts. */
static void test_batch(void **state)
{
	create("", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 64, true);
	const uint64_t chains = vio()->stats.chains, kicks = vio()->stats.kicks;
	offer_reads(48);
	guest_kick(&g.q[0]);
	for (unsigned i = 0; i < 48; i++)
		assert_true(guest_wait(&g.q[0], NULL, NULL));
	for (unsigned i = 0; i < 48; i++)
		assert_int_equal(*guest_ptr(&m, STATUS + i), 0);
	assert_int_equal(vio()->stats.chains - chains, 48);
	assert_int_equal(vio()->stats.kicks - kicks, 1);
	assert_true(vio()->stats.interrupts < 10);
}

/* Reset with requests in flight: not done until they are, and none of them is pushed. */
static void test_reset_in_flight(void **state)
{
	for (int machine_reset = 0; machine_reset < 2; machine_reset++) {
		create(",aio=threads", "", GUEST_MODERN);
		guest_start(&g, ~0ull, 1, 64, true);
		const uint64_t used = g.q[0].used;
		slow_ms = 100;
		offer_reads(8);
		guest_kick(&g.q[0]);
		loop_run_once(m.bus.loop, 0);
		assert_int_equal(vio()->inflight, 8);
		if (machine_reset) {
			dev_reset_all(&m.bus);
			assert_int_equal(vio()->inflight, 0);
			assert_int_equal(vio()->status, 0);
		} else {
			guest_set_status(&g, 0);
			assert_int_not_equal(guest_status(&g), 0);
			guest_set_status(&g, 1); /* ignored until then */
			for (int i = 0; i < 1000 && guest_status(&g); i++)
				loop_run_once(m.bus.loop, 1000000);
			assert_int_equal(guest_status(&g), 0);
		}
		assert_int_equal(ld16le(guest_ptr(&m, used) + 2), 0);
		slow_ms = 0;
		if (machine_reset) {
			pci_bus_place_bars(m.bus.pci);
			guest_attach(&g, &m, g.bdf, GUEST_MODERN);
		}
		guest_start(&g, ~0ull, 1, 64, true);
		assert_int_equal(request(0, 0, BUFFER_BASE, 512, true), 0);
		destroy(NULL);
	}
}

static void test_pause_in_flight(void **state)
{
	if (getenv("STATE_ROUNDTRIP"))
		skip(); /* saving pauses and resumes */
	create(",aio=threads", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 64, true);
	slow_ms = 50;
	offer_reads(4);
	guest_kick(&g.q[0]);
	loop_run_once(m.bus.loop, 0);
	dev_pause_all(&m.bus);
	assert_int_equal(vio()->inflight, 0);
	assert_int_equal(ld16le(guest_ptr(&m, g.q[0].used) + 2), 4);
	/* What is offered while paused waits. */
	offer_reads(1);
	guest_kick(&g.q[0]);
	machine_settle(&m);
	assert_int_equal(vio()->inflight, 0);
	dev_resume_all(&m.bus);
	for (int i = 0; i < 5; i++)
		assert_true(guest_wait(&g.q[0], NULL, NULL));
}

/* Field case B6: a slow flush holds no lock that a vCPU needs. */
static void test_slow_flush(void **state)
{
	const struct seg s[2] = {{HEADER, 16, false}, {STATUS, 1, true}};

	create(",aio=threads", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 64, true);
	assert_int_equal(request(1, 0, BUFFER_BASE, 512, false), 0);
	slow_ms = 400;
	header_at(HEADER, 4, 0);
	guest_add(&g.q[0], s, 2, 0);
	guest_kick(&g.q[0]);
	const uint64_t t0 = clock_raw_ns();
	loop_run_once(m.bus.loop, 0);
	guest_status(&g);
	guest_kick(&g.q[0]);
	loop_run_once(m.bus.loop, 0);
	assert_true(clock_raw_ns() - t0 < 50000000);
	assert_true(guest_wait(&g.q[0], NULL, NULL));
	assert_true(clock_raw_ns() - t0 >= 390000000);
}

static int asked, asked_status;

static void on_request(void *opaque, enum vm_request what, int status, const char *why)
{
	assert_int_equal(what, VM_IO_STOP);
	assert_string_equal(why, "d");
	asked++;
	asked_status = status;
}

static void fail_one_write(const char *opts, int error)
{
	char text[80];

	snprintf(text, sizeof(text), ",aio=sync%s", opts);
	create(text, "", GUEST_MODERN);
	m.bus.request = on_request;
	guest_start(&g, ~0ull, 1, 16, true);
	memset(guest_ptr(&m, BUFFER_BASE), 0x42, 512);
	asked = 0;
	write_error = error;
}

/* A full host stops the machine and loses nothing: the write is tried again when it goes on. */
static void test_no_space(void **state)
{
	fail_one_write("", ENOSPC);
	assert_int_equal(request(1, 7, BUFFER_BASE, 512, false), 0xff);
	assert_int_equal(asked, 1);
	assert_int_equal(asked_status, ENOSPC);
	dev_pause_all(&m.bus);
	dev_resume_all(&m.bus);
	machine_settle(&m);
	assert_int_equal(asked, 2); /* still full */
	dev_pause_all(&m.bus);
	write_error = 0;
	dev_resume_all(&m.bus);
	assert_true(guest_wait(&g.q[0], NULL, NULL));
	assert_int_equal(*guest_ptr(&m, STATUS), 0);
	assert_int_equal(file_byte(7 * 512), 0x42);
	/* A reset instead: it is dropped. */
	write_error = ENOSPC;
	assert_int_equal(request(1, 9, BUFFER_BASE, 512, false), 0xff);
	dev_pause_all(&m.bus);
	dev_reset_all(&m.bus);
	assert_int_equal(vio()->inflight, 0);
	dev_resume_all(&m.bus);
	machine_settle(&m);
	write_error = 0;
	assert_int_equal(file_byte(9 * 512), 0);
	destroy(NULL);
	fail_one_write("", EIO);
	assert_int_equal(request(1, 7, BUFFER_BASE, 512, false), 1);
	assert_int_equal(asked, 0);
	destroy(NULL);
	fail_one_write(",werror=stop", EIO);
	assert_int_equal(request(1, 7, BUFFER_BASE, 512, false), 0xff);
	assert_int_equal(asked_status, EIO);
	write_error = 0;
	destroy(NULL); /* with the request still set aside */
	fail_one_write(",werror=ignore", EIO);
	assert_int_equal(request(1, 7, BUFFER_BASE, 512, false), 0);
	destroy(NULL);
	fail_one_write(",werror=report", ENOSPC);
	assert_int_equal(request(1, 7, BUFFER_BASE, 512, false), 1);
	assert_int_equal(asked, 0);
}

/* The odd tail of field case A26, from the guest's side. */
static void test_odd_size(void **state)
{
	assert_int_equal(truncate(image, 1000001), 0);
	create(",cache=none", "", GUEST_MODERN);
	guest_start(&g, ~0ull, 1, 16, true);
	assert_int_equal(guest_config(&g, 0, 4), 1954);
	memset(guest_ptr(&m, BUFFER_BASE), 0xff, 1024);
	assert_int_equal(request(0, 1952, BUFFER_BASE, 1024, true), 0);
	for (int i = 0; i < 1024; i++)
		assert_int_equal(guest_ptr(&m, BUFFER_BASE)[i], 0);
	memset(guest_ptr(&m, BUFFER_BASE), 0xab, 512);
	assert_int_equal(request(1, 1953, BUFFER_BASE, 512, false), 0);
	assert_int_equal(file_byte(1954 * 512 - 1), 0xab);
	assert_true(file_size() >= 1954 * 512);
}

/* ---- options --------------------------------------------------------------------------- */

static void expect_error(const char *text, const char *part)
{
	struct err err = {0};

	assert_null(dev_create_from_text(&m.bus, text, &err));
	if (!strstr(err.msg, part))
		fail_msg("'%s' is not in '%s'", part, err.msg);
}

static void test_options(void **state)
{
	struct err err = {0};

	create("", ",num-queues=3,logical_block_size=4096,physical_block_size=8192", GUEST_MODERN);
	guest_start(&g, ~0ull, 3, 16, true);
	assert_int_equal(guest_config(&g, 20, 4), 4096);
	assert_int_equal(guest_config(&g, 24, 1), 1);
	assert_int_equal(guest_config(&g, 34, 2), 3);
	assert_int_equal(request(0, 0, BUFFER_BASE, 512, true), 1); /* less than a block */
	assert_int_equal(request(0, 8, BUFFER_BASE, 4096, true), 0);
	assert_ptr_equal(node(), drive_find("d")->node);
	expect_error("virtio-blk-pci,drive=d", "Drive 'd' is already in use");
	expect_error("virtio-blk-pci", "drive property not set");
	expect_error("virtio-blk-pci,drive=nosuch", "nosuch");
	expect_error("virtio-blk-pci,drive=d,iothread=x", "iothread");
	assert_non_null(drive_create("file=,if=none,id=empty,media=cdrom", m.bus.loop, &err));
	expect_error("virtio-blk-pci,drive=empty", "is empty");
	dev_destroy(dev);
	expect_error("virtio-blk-pci,drive=d,queue-size=100", "power of two");
	expect_error("virtio-blk-pci,drive=d,num-queues=100000", "num-queues");
	expect_error("virtio-blk-pci,drive=d,logical_block_size=1000", "logical_block_size");
	expect_error("virtio-blk-pci,drive=d,disable-legacy=on,disable-modern=on", "no interface");
	dev = dev_create_from_text(&m.bus, "virtio-blk-pci,drive=d", &err);
	assert_non_null(dev);
}

#define TEST(f) cmocka_unit_test_teardown(f, destroy)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_data),
	    TEST(test_any_layout),
	    TEST(test_high_memory),
	    TEST(test_out_of_range),
	    TEST(test_discard_and_zero),
	    TEST(test_read_only),
	    TEST(test_unknown_and_malformed),
	    TEST(test_write_cache),
	    TEST(test_batch),
	    TEST(test_reset_in_flight),
	    TEST(test_pause_in_flight),
	    TEST(test_slow_flush),
	    TEST(test_odd_size),
	    TEST(test_no_space),
	    TEST(test_options),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
