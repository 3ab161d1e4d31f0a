// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Field cases of disks on virtio-blk that need a host whose calls are held, counted or forgotten: 32 reads in the host
 * at once (C3), a host that loses what was not flushed (B5), an image that gives blocks back (B10), data onto the ring
 * they were asked for with (I6).
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "block/block.h"
#include "hw/virtio/virtio_pci.h"
#include "disk_image.h"
#include "virtio_guest.h"

#define HEADER 0x700000ull
#define STATUS 0x701000ull
#define DEPTH  32u
#define LATE   (60 * 1000000000ull)

enum { IN = 0, OUT = 1, FLUSH = 4, GET_ID = 8, DISCARD = 11, WRITE_ZEROES = 13 };

static struct machine m;
static struct dev *dev;
static struct guest g;

/* ---- the host ---------------------------------------------------------------------------- */

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opens = PTHREAD_COND_INITIALIZER;
static bool gate_shut;
static unsigned at_gate; /* reads that wait there */
/* What the disk would have after a power cut: as it was at the last fdatasync. */
static uint8_t durable[IMAGE_SIZE];

ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off);
ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off)
{
	pthread_mutex_lock(&gate_lock);
	at_gate++;
	while (gate_shut)
		pthread_cond_wait(&gate_opens, &gate_lock);
	at_gate--;
	pthread_mutex_unlock(&gate_lock);
	return syscall(SYS_preadv, fd, iov, n, off, 0);
}

int fdatasync(int fd)
{
	const int own = open(image, O_RDONLY | O_CLOEXEC); /* fd may want aligned buffers */

	if (own < 0 || pread(own, durable, IMAGE_SIZE, 0) != IMAGE_SIZE)
		abort();
	close(own);
	return (int)syscall(SYS_fdatasync, fd);
}

static unsigned held(void)
{
	unsigned n;

	pthread_mutex_lock(&gate_lock);
	n = at_gate;
	pthread_mutex_unlock(&gate_lock);
	return n;
}

static void gate(bool shut)
{
	pthread_mutex_lock(&gate_lock);
	gate_shut = shut;
	pthread_cond_broadcast(&gate_opens);
	pthread_mutex_unlock(&gate_lock);
}

/* ---- the guest ------------------------------------------------------------------------------ */

static void create(const char *drive_opts)
{
	char text[200];
	struct err err = {0};

	machine_create(&m);
	snprintf(text, sizeof(text), "if=none,id=d,format=raw,file=%s%s", image, drive_opts);
	if (!drive_create(text, m.bus.loop, &err))
		fail_msg("%s", err.msg);
	dev = dev_create_from_text(&m.bus, "virtio-blk-pci,drive=d,serial=S", &err);
	if (!dev)
		fail_msg("%s", err.msg);
	pci_bus_place_bars(m.bus.pci);
	assert_true(guest_attach(&g, &m, (unsigned)container_of(dev, struct pci_dev, dev)->devfn, GUEST_MODERN));
	guest_start(&g, ~0ull, 1, 128, true);
}

static int destroy(void **state)
{
	gate(false);
	if (m.bus.loop)
		machine_destroy(&m);
	memset(&m, 0, sizeof(m));
	return image_clear();
}

static struct virtio *vio(void)
{
	return &container_of(dev, struct virtio_pci, pci.dev)->vio;
}

/* Request i of several: its header and status byte have places of their own. */
static void offer(unsigned i, uint32_t type, uint64_t sector, uint64_t data, uint32_t len, bool write)
{
	const uint64_t header = HEADER + 16 * i;
	const struct seg s[3] = {{header, 16, false}, {data, len, write}, {STATUS + i, 1, true}};
	const struct seg none[2] = {s[0], s[2]};

	st32le(guest_ptr(&m, header), type);
	st32le(guest_ptr(&m, header + 4), 0);
	st64le(guest_ptr(&m, header + 8), sector);
	*guest_ptr(&m, STATUS + i) = 0xff;
	guest_add(&g.q[0], len ? s : none, len ? 3 : 2, 0);
}

static uint8_t request(uint32_t type, uint64_t sector, uint64_t data, uint32_t len, bool write)
{
	offer(0, type, sector, data, len, write);
	guest_kick(&g.q[0]);
	return guest_wait(&g.q[0], NULL, NULL) ? *guest_ptr(&m, STATUS) : 0xff;
}

static void range(uint64_t sector, uint32_t count, uint32_t flags)
{
	uint8_t *p = guest_ptr(&m, BUFFER_BASE);

	st64le(p, sector);
	st32le(p + 8, count);
	st32le(p + 12, flags);
}

/* ---- C3: requests in flight together ----------------------------------------------------------- */

/* All 32 are in the host at the same time, and meanwhile another request is answered: no IOPS are lost to waiting in
 * line. */
static void test_depth(void **state)
{
	const uint64_t end = clock_raw_ns() + LATE;
	uint32_t head;

	create(",aio=threads");
	gate(true);
	for (unsigned i = 0; i < DEPTH; i++)
		offer(i, IN, 8 * i, BUFFER_BASE + 4096 * i, 512, true);
	guest_kick(&g.q[0]);
	while (held() < DEPTH && clock_raw_ns() < end)
		loop_run_once(m.bus.loop, 1000000);
	assert_int_equal(held(), DEPTH);
	offer(DEPTH, GET_ID, 0, BUFFER_BASE + 4096 * DEPTH, 20, true);
	guest_kick(&g.q[0]);
	assert_true(guest_wait(&g.q[0], &head, NULL));
	assert_int_equal(*guest_ptr(&m, STATUS + DEPTH), 0);
	assert_int_equal(held(), DEPTH);
	gate(false);
	for (unsigned i = 0; i < DEPTH; i++)
		assert_true(guest_wait(&g.q[0], NULL, NULL));
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(*guest_ptr(&m, STATUS + i), 0);
}

/* ---- B5: a host that forgets ---------------------------------------------------------------------- */

/* After each step that promises it, what the disk would have after a power cut is what the guest wrote. */
static void test_forgetting_host(void **state)
{
	static const struct {
		const char *opts;
		bool each_write, flush; /* what makes data durable */
	} modes[] = {
	    {",cache=writeback", false, true}, {",cache=none", false, true},	{",cache=writethrough", true, true},
	    {",cache=directsync", true, true}, {",cache=unsafe", false, false},
	};
	static uint8_t model[IMAGE_SIZE];
	uint32_t seed = 1;

	for (size_t k = 0; k < ARRAY_SIZE(modes); k++) {
		char opts[60];

		snprintf(opts, sizeof(opts), "%s,aio=%s", modes[k].opts, k & 1 ? "threads" : "sync");
		create(opts);
		memset(model, 0, IMAGE_SIZE);
		memset(durable, 0, IMAGE_SIZE);
		for (unsigned i = 1; i < 120; i++) {
			seed = seed * 1664525 + 1013904223;
			const uint64_t at = (seed >> 8) % (IMAGE_SIZE / 4096) * 4096;

			memset(guest_ptr(&m, BUFFER_BASE), (int)i, 4096);
			memset(model + at, (int)i, 4096);
			assert_int_equal(request(OUT, at / 512, BUFFER_BASE, 4096, false), 0);
			if (modes[k].each_write)
				assert_memory_equal(durable, model, IMAGE_SIZE);
			if (i % 9)
				continue;
			/* The host does forget: else this test could not fail. */
			if (!modes[k].each_write)
				assert_int_not_equal(memcmp(durable, model, IMAGE_SIZE), 0);
			assert_int_equal(request(FLUSH, 0, 0, 0, false), 0);
			assert_int_equal(!memcmp(durable, model, IMAGE_SIZE), modes[k].flush);
		}
		destroy(NULL);
	}
}

/* ---- B10: blocks given back --------------------------------------------------------------------------- */

static uint64_t blocks(void)
{
	struct stat st;
	const int fd = open(image, O_RDWR);

	/* Some file systems give blocks to a file only when it is written out. */
	if (fd < 0 || syscall(SYS_fsync, fd) || fstat(fd, &st))
		return 0;
	close(fd);
	return (uint64_t)st.st_blocks * 512;
}

static void fill(uint8_t byte)
{
	memset(guest_ptr(&m, BUFFER_BASE), byte, MIB);
	assert_int_equal(request(OUT, 0, BUFFER_BASE, MIB, false), 0);
}

static void test_blocks_given_back(void **state)
{
	const char *const opts[] = {"", ",detect-zeroes=on", ",discard=unmap", ",discard=unmap,detect-zeroes=unmap"};

	for (size_t k = 0; k < ARRAY_SIZE(opts); k++) {
		const bool unmap = strstr(opts[k], "discard=unmap"), detect = strstr(opts[k], "detect-zeroes=unmap");

		create(opts[k]);
		fill(0x77);
		const uint64_t full = blocks();
		assert_in_range(full, MIB, MIB + 256 * KIB);
		range(0, 1024, 0); /* 512 KiB */
		assert_int_equal(request(DISCARD, 0, BUFFER_BASE, 16, false), 0);
		assert_int_equal(full - blocks(), unmap ? 512 * KIB : 0);
		range(1024, 512, 1); /* 256 KiB, and they may be unmapped */
		assert_int_equal(request(WRITE_ZEROES, 0, BUFFER_BASE, 16, false), 0);
		assert_int_equal(full - blocks(), unmap ? 768 * KIB : 0);
		/* Zeroes that the guest writes as data. */
		fill(0x77);
		fill(0);
		assert_int_equal(full - blocks(), detect ? MIB : 0);
		assert_int_equal(request(IN, 0, BUFFER_BASE, 4096, true), 0);
		assert_int_equal(*guest_ptr(&m, BUFFER_BASE + 4095), 0);
		destroy(NULL);
	}
}

/* ---- I6: data onto the ring itself ----------------------------------------------------------------------- */

/* A read whose data land on the descriptors, the available or the used ring, or on its own header and status. */
static void test_data_onto_ring(void **state)
{
	create(",aio=threads");
	memset(guest_ptr(&m, BUFFER_BASE), 0xff, 4096);
	assert_int_equal(request(OUT, 0, BUFFER_BASE, 4096, false), 0);
	for (unsigned k = 0; k < 6; k++) {
		const uint64_t at[] = {g.q[0].desc, g.q[0].avail, g.q[0].used, HEADER, STATUS, g.q[0].used + 2};
		const uint64_t before = vio()->stats.broken;

		for (unsigned i = 0; i < 4; i++)
			offer(i, IN, 0, at[k], i & 1 ? 512 : 1024, true);
		guest_kick(&g.q[0]);
		for (unsigned i = 0; i < 200 && vio()->inflight; i++)
			loop_run_once(m.bus.loop, 1000000);
		machine_settle(&m);
		guest_kick(&g.q[0]); /* into what is left of the ring */
		machine_settle(&m);
		assert_in_range(vio()->stats.broken - before, 0, 1);
		/* A reset cures it, and the disk is as it was. */
		guest_set_status(&g, 0);
		for (unsigned i = 0; i < 10000 && guest_status(&g); i++)
			loop_run_once(m.bus.loop, 1000000);
		guest_start(&g, ~0ull, 1, 128, true);
		memset(guest_ptr(&m, BUFFER_BASE), 0, 8192);
		assert_int_equal(request(IN, 0, BUFFER_BASE, 8192, true), 0);
		assert_int_equal(*guest_ptr(&m, BUFFER_BASE + 4095), 0xff);
		assert_int_equal(*guest_ptr(&m, BUFFER_BASE + 4096), 0);
	}
}

/* ---- main ---------------------------------------------------------------------------------------------- */

#define TEST(f) cmocka_unit_test_teardown(f, destroy)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_depth), TEST(test_forgetting_host), TEST(test_blocks_given_back),
					   TEST(test_data_onto_ring)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
