// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Packed rings (VIRTIO 1.1, 2.7) from the driver's side: data over many laps of the
 * ring, indirect tables, event suppression, use in order, and every way a hostile
 * driver can write a ring wrong, over each device that has them.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "block/block.h"
#include "hw/virtio/virtio_pci.h"
#include "virtio_guest.h"

#define HEADER 0x700000ull
#define TABLE  0x710000ull
#define NUM    8u

#define F_NEXT	   1
#define F_WRITE	   2
#define F_INDIRECT 4
#define F_AVAIL	   0x80
#define F_USED	   0x8000

static char image[] = "kelvin-packed-XXXXXX";

static const struct device_row {
	const char *text;
	unsigned queue;
	bool device_writes;
	bool drive;
} device_table[] = {
    {"virtio-blk-pci,packed=on,drive=d", 0, false, true}, {"virtio-rng-pci,packed=on", 0, true, false},
    {"virtio-serial-pci,packed=on", 3, false, false},	  {"virtio-scsi-pci,packed=on", 2, false, false},
    {"virtio-balloon-pci,packed=on", 0, false, false},
};

static struct machine m;
static struct dev *dev;
static struct guest g;
static struct guest_queue *q;
static unsigned avail, used; /* next slots */
static bool avail_wrap, used_wrap;
static unsigned slow_first_ms;

/* The first read takes a while: later ones finish before it. */
ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off);
ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t off)
{
	if (slow_first_ms && off == 0)
		usleep(slow_first_ms * 1000);
	return syscall(SYS_preadv, fd, iov, n, off, 0);
}

static void start(unsigned queue, uint16_t num, uint64_t wanted)
{
	guest_start(&g, wanted, queue + 1, num, true);
	assert_true(g.features & BIT(VIRTIO_F_RING_PACKED));
	q = &g.q[queue];
	avail = used = 0;
	avail_wrap = used_wrap = true;
}

static void create(const char *text, bool drive, const char *drive_opts)
{
	struct err err = {0};

	machine_create(&m);
	if (drive) {
		char opts[200];
		snprintf(opts, sizeof(opts), "if=none,id=d,format=raw,file=%s%s", image, drive_opts);
		assert_non_null(drive_create(opts, m.bus.loop, &err));
	}
	dev = dev_create_from_text(&m.bus, text, &err);
	if (!dev)
		fail_msg("%s", err.msg);
	pci_bus_place_bars(m.bus.pci);
	assert_true(guest_attach(&g, &m, (unsigned)container_of(dev, struct pci_dev, dev)->devfn, GUEST_MODERN));
}

static int destroy(void **state)
{
	slow_first_ms = 0;
	if (m.bus.loop)
		machine_destroy(&m);
	memset(&m, 0, sizeof(m));
	return 0;
}

static struct virtio *vio(void)
{
	return &container_of(dev, struct virtio_pci, pci.dev)->vio;
}

static void put_desc(uint8_t *p, uint64_t addr, uint32_t len, uint16_t id, uint16_t flags)
{
	st64le(p, addr);
	st32le(p + 8, len);
	st16le(p + 12, id);
	__atomic_store_n((uint16_t *)(void *)(p + 14), flags, __ATOMIC_RELEASE);
}

static uint8_t *slot(unsigned i)
{
	return guest_ptr(&m, q->desc + 16 * i);
}

static uint16_t avail_flags(void)
{
	return avail_wrap ? F_AVAIL : F_USED;
}

static void step(unsigned *at, bool *wrap, unsigned n)
{
	*at += n;
	if (*at >= q->num) {
		*at -= q->num;
		*wrap = !*wrap;
	}
}

/* One chain, its head last, as a driver must. */
static void offer(const struct seg *s, int n, uint16_t id, bool indirect)
{
	unsigned at = avail;
	bool wrap = avail_wrap;
	uint16_t head_flags = 0;

	if (indirect) {
		for (int i = 0; i < n; i++)
			put_desc(guest_ptr(&m, TABLE + id * 0x1000u + 16u * (unsigned)i), s[i].gpa, s[i].len, 0,
				 s[i].write ? F_WRITE : 0);
		put_desc(slot(avail), TABLE + id * 0x1000u, 16 * (uint32_t)n, id, avail_flags() | F_INDIRECT);
		step(&avail, &avail_wrap, 1);
		return;
	}
	for (int i = 0; i < n; i++) {
		const uint16_t flags =
		    (uint16_t)((s[i].write ? F_WRITE : 0) | (i < n - 1 ? F_NEXT : 0) | (wrap ? F_AVAIL : F_USED));
		if (i == 0)
			head_flags = flags;
		put_desc(slot(at), s[i].gpa, s[i].len, id, i ? flags : (uint16_t)(flags ^ F_AVAIL ^ F_USED));
		step(&at, &wrap, 1);
	}
	__atomic_store_n((uint16_t *)(void *)(slot(avail) + 14), head_flags, __ATOMIC_RELEASE);
	avail = at;
	avail_wrap = wrap;
}

/* The next used buffer, which took `n` slots: its ID, or -1. */
static int wait_used(unsigned n, uint32_t *len)
{
	for (int turn = 0; turn < 1000; turn++) {
		const uint8_t *p = slot(used);
		const uint16_t flags = __atomic_load_n((const uint16_t *)(const void *)(p + 14), __ATOMIC_ACQUIRE);
		if (!!(flags & F_AVAIL) == used_wrap && !!(flags & F_USED) == used_wrap) {
			if (len)
				*len = ld32le(p + 8);
			step(&used, &used_wrap, n);
			return ld16le(p + 12);
		}
		loop_run_once(m.bus.loop, 1000000);
	}
	return -1;
}

static void blk_segs(struct seg *s, unsigned k, uint32_t type, uint64_t sector, uint32_t len)
{
	uint8_t *h = guest_ptr(&m, HEADER + 64 * k);

	st32le(h, type);
	st64le(h + 8, sector);
	h[16] = 0xff;
	s[0] = (struct seg){HEADER + 64 * k, 16, false};
	s[1] = (struct seg){BUFFER_BASE + k * 0x10000, len, type == 0};
	s[2] = (struct seg){HEADER + 64 * k + 16, 1, true};
}

static uint8_t blk_status(unsigned k)
{
	return *guest_ptr(&m, HEADER + 64 * k + 16);
}

/* ---- data ---------------------------------------------------------------------------------- */

static void test_data(void **state)
{
	struct seg s[3];
	uint32_t len;

	for (unsigned k = 0; k < 8; k++) {
		const uint16_t num = k & 1 ? 16 : 7; /* seven is no power of two */
		create("virtio-blk-pci,packed=on,drive=d,queue-size=16", true, k & 2 ? ",aio=sync" : "");
		start(0, num, k & 4 ? ~0ull : ~BIT(VIRTIO_RING_F_EVENT_IDX));
		assert_int_equal(q->num, num);
		for (unsigned i = 0; i < 60; i++) { /* several laps, chains across the end */
			const unsigned n = i % 3 == 2 ? 1 : 3;
			memset(guest_ptr(&m, BUFFER_BASE), (int)i, 4096);
			blk_segs(s, 0, 1, i * 8, 4096);
			offer(s, 3, (uint16_t)(i % 5), n == 1);
			guest_kick(q);
			assert_int_equal(wait_used(n, &len), i % 5);
			assert_int_equal(len, 1);
			assert_int_equal(blk_status(0), 0);
			memset(guest_ptr(&m, BUFFER_BASE), 0xee, 4096);
			blk_segs(s, 0, 0, i * 8, 4096);
			offer(s, 3, 300, n == 1);
			guest_kick(q);
			assert_int_equal(wait_used(n, &len), 300);
			assert_int_equal(len, 4097);
			assert_int_equal(guest_ptr(&m, BUFFER_BASE)[4095], (uint8_t)i);
		}
		destroy(NULL);
	}
}

/* Interrupts: none when the driver says so, one for the slot it named. */
static void test_events(void **state)
{
	struct seg s[3];

	create("virtio-blk-pci,packed=on,drive=d,queue-size=16", true, "");
	start(0, 16, ~0ull);
	for (unsigned i = 0; i < 40; i++) {
		const unsigned before = m.msi_count[1];
		const bool named = i & 1;
		/* off: the slot this request's used descriptor takes, or the one before it */
		const unsigned off = named ? used : (used + 15) % 16;
		const bool wrap = named || used ? used_wrap : !used_wrap;
		st32le(guest_ptr(&m, q->avail), off | (wrap ? 0x8000u : 0) | 2u << 16);
		blk_segs(s, 0, 0, 0, 512);
		offer(s, 3, 1, false);
		guest_kick(q);
		assert_int_equal(wait_used(3, NULL), 1);
		machine_settle(&m);
		if (i)
			assert_int_equal(m.msi_count[1] - before, named);
	}
	st32le(guest_ptr(&m, q->avail), 1u << 16); /* disabled */
	const unsigned before = m.msi_count[1];
	blk_segs(s, 0, 0, 0, 512);
	offer(s, 3, 1, false);
	guest_kick(q);
	assert_int_equal(wait_used(3, NULL), 1);
	machine_settle(&m);
	assert_int_equal(m.msi_count[1], before);
}

/* With in_order the buffers come back as they were offered, however the host's reads end. */
static void test_in_order(void **state)
{
	struct seg s[3];

	for (unsigned in_order = 0; in_order < 2; in_order++) {
		unsigned wrong = 0;
		create(in_order ? "virtio-blk-pci,packed=on,in_order=on,drive=d" : "virtio-blk-pci,packed=on,drive=d",
		       true, ",aio=threads");
		start(0, 64, ~0ull);
		assert_int_equal(!!(g.features & BIT(VIRTIO_F_IN_ORDER)), in_order);
		slow_first_ms = 80;
		for (unsigned i = 0; i < 6; i++) {
			blk_segs(s, i, 0, i * 8, 4096);
			offer(s, 3, (uint16_t)i, false);
		}
		guest_kick(q);
		for (unsigned i = 0; i < 6; i++)
			wrong += wait_used(3, NULL) != (int)i;
		assert_int_equal(wrong != 0, !in_order);
		/* A reset with requests held back for the order leaves nothing behind. */
		for (unsigned i = 0; i < 6; i++) {
			blk_segs(s, i, 0, i * 8, 4096);
			offer(s, 3, (uint16_t)i, false);
		}
		guest_kick(q);
		loop_run_once(m.bus.loop, 0);
		guest_set_status(&g, 0);
		for (int i = 0; i < 1000 && guest_status(&g); i++)
			loop_run_once(m.bus.loop, 1000000);
		assert_int_equal(guest_status(&g), 0);
		slow_first_ms = 0;
		start(0, 64, ~0ull);
		blk_segs(s, 0, 0, 0, 4096);
		offer(s, 3, 9, false);
		guest_kick(q);
		assert_int_equal(wait_used(3, NULL), 9);
		destroy(NULL);
	}
}

/* ---- hostile -------------------------------------------------------------------------------- */

static uint16_t rw;

static void one(uint64_t addr, uint32_t len, uint16_t flags)
{
	put_desc(slot(0), addr, len, 0, (uint16_t)(flags | rw | F_AVAIL));
}
static void bad_endless(void)
{
	for (unsigned i = 0; i < q->num; i++)
		put_desc(slot(i), BUFFER_BASE, 16, 0, (uint16_t)(rw | F_NEXT | F_AVAIL));
}
static void bad_hole(void)
{
	one(GUEST_HOLE, 512, 0);
}
static void bad_mmio(void)
{
	one(g.common, 512, 0);
}
static void bad_wrap(void)
{
	one(UINT64_MAX - 15, 512, 0);
}
static void bad_huge(void)
{
	one(0, 0xffffffff, 0);
}
static void bad_order(void)
{
	put_desc(slot(1), BUFFER_BASE, 64, 0, F_AVAIL);
	put_desc(slot(0), BUFFER_BASE, 64, 0, F_WRITE | F_NEXT | F_AVAIL);
}
static void bad_indirect_size(void)
{
	one(BUFFER_BASE, 15, F_INDIRECT);
}
static void bad_indirect_empty(void)
{
	one(BUFFER_BASE, 0, F_INDIRECT);
}
static void bad_indirect_huge(void)
{
	one(BUFFER_BASE, 16 * 4096, F_INDIRECT);
}
static void bad_indirect_hole(void)
{
	one(GUEST_HOLE, 64, F_INDIRECT);
}
static void bad_indirect_next(void)
{
	one(BUFFER_BASE, 64, F_INDIRECT | F_NEXT);
}
static void bad_indirect_nested(void)
{
	put_desc(guest_ptr(&m, BUFFER_BASE), BUFFER_BASE, 16, 0, F_INDIRECT);
	one(BUFFER_BASE, 16, F_INDIRECT);
}
static void bad_indirect_later(void)
{
	put_desc(slot(1), BUFFER_BASE, 64, 0, F_INDIRECT | F_AVAIL);
	one(BUFFER_BASE, 64, F_NEXT);
}

static void (*const bad_table[])(void) = {
    bad_endless,	bad_hole,	   bad_mmio,	      bad_wrap,
    bad_huge,		bad_order,	   bad_indirect_size, bad_indirect_empty,
    bad_indirect_huge,	bad_indirect_hole, bad_indirect_next, bad_indirect_nested,
    bad_indirect_later,
};

static void test_hostile(void **state)
{
	for (size_t d = 0; d < ARRAY_SIZE(device_table); d++, destroy(NULL)) {
		create(device_table[d].text, device_table[d].drive, "");
		rw = device_table[d].device_writes ? F_WRITE : 0;
		for (size_t b = 0; b < ARRAY_SIZE(bad_table); b++) {
			const uint64_t before = vio()->stats.broken;
			start(device_table[d].queue, NUM, ~0ull);
			memset(guest_ptr(&m, BUFFER_BASE), 0, 4096);
			bad_table[b]();
			guest_kick(q);
			machine_settle(&m);
			if (!(guest_status(&g) & 0x40))
				fail_msg("%s: hostile ring %zu was not noticed", device_table[d].text, b);
			assert_int_equal(vio()->stats.broken, before + 1);
		}
		/* Rings that are not in RAM, or askew. */
		for (unsigned part = 0; part < 3; part++)
			for (unsigned how = 0; how < 2; how++) {
				start(0, NUM, ~0ull);
				guest_set_status(&g, 0);
				guest_set_status(&g, 3);
				guest_set_features(&g, g.features);
				guest_set_status(&g, 11);
				const uint64_t gpa[3] = {RING_BASE, RING_BASE + 0x1000, RING_BASE + 0x2000};
				mem_write(&m.mem, g.common + 0x16, 0, 2);
				for (unsigned k = 0; k < 3; k++) {
					const uint64_t at = k != part ? gpa[k] : how ? gpa[k] + 2 : GUEST_HOLE;
					mem_write(&m.mem, g.common + 0x20 + 8 * k, (uint32_t)at, 4);
					mem_write(&m.mem, g.common + 0x24 + 8 * k, at >> 32, 4);
				}
				mem_write(&m.mem, g.common + 0x1c, 1, 2);
				assert_true(guest_status(&g) & 0x40);
			}
	}
}

static uint32_t seed = 3;

static uint32_t rnd(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

/* Rings of random contents: the device may use, ignore or refuse them, and goes on after a reset. */
static void test_random(void **state)
{
	for (size_t d = 0; d < ARRAY_SIZE(device_table); d++, destroy(NULL)) {
		create(device_table[d].text, device_table[d].drive, "");
		for (unsigned i = 0; i < 200; i++) {
			start(device_table[d].queue, (uint16_t)(1 + rnd() % 16), ~0ull);
			for (unsigned k = 0; k < 16; k++)
				put_desc(slot(k), rnd() % 8 ? BUFFER_BASE + rnd() % 65536 : rnd() * 4096ull,
					 rnd() % 8 ? rnd() % 600 : rnd(), (uint16_t)rnd(),
					 (uint16_t)((rnd() % 8 ? F_AVAIL : rnd()) | (rnd() & 3) |
						    (rnd() % 8 ? 0 : F_INDIRECT)));
			for (unsigned k = 0; k < 1024; k++)
				guest_ptr(&m, BUFFER_BASE)[rnd() % 65536] = (uint8_t)(rnd() % 2 ? 0 : rnd());
			st32le(guest_ptr(&m, q->avail), rnd());
			for (unsigned k = 0; k < 4; k++) {
				guest_kick(q);
				machine_settle(&m);
				slot(rnd() % 16)[15] ^= 0x80;
			}
		}
	}
}

static int setup(void **state)
{
	int fd = mkstemp(image);

	drive_init();
	return fd >= 0 && ftruncate(fd, 4 << 20) == 0 ? close(fd) : -1;
}

static int teardown(void **state)
{
	return unlink(image);
}

#define TEST(f) cmocka_unit_test_teardown(f, destroy)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_data), TEST(test_events), TEST(test_in_order), TEST(test_hostile), TEST(test_random),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
