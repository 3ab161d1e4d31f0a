// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The virtio transport, the same tests over every virtio device from one table:
 * identity, capabilities, the status dance, resets, hostile rings. What is special
 * to a device is in test_virtio_blk.c and test_virtio_console.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "block/block.h"
#include "hw/virtio/virtio_pci.h"
#include "virtio_guest.h"

static char image[] = "kelvin-virtio-XXXXXX";

static const struct device_row {
	const char *text;
	uint16_t modern_id, legacy_id, type;
	unsigned nqueues;
	bool device_writes; /* the queue below wants writable buffers first */
	const char *drive;
	unsigned queue; /* the one that hostile rings are given to */
} device_table[] = {
    {"virtio-blk-pci,drive=d,num-queues=2", 0x1042, 0x1001, 2, 2, false, "d", 0},
    {"virtio-blk-pci-transitional,drive=d", 0x1042, 0x1001, 2, 1, false, "d", 0},
    {"virtio-blk-pci-non-transitional,drive=d", 0x1042, 0, 2, 1, false, "d", 0},
    {"virtio-scsi-pci,num_queues=2", 0x1048, 0x1004, 8, 4, false, NULL, 2},
    {"virtio-scsi-pci-non-transitional", 0x1048, 0, 8, 3, false, NULL, 0},
    {"virtio-balloon-pci,free-page-reporting=on,deflate-on-oom=on", 0x1045, 0x1002, 5, 4, false, NULL, 0},
    {"virtio-balloon", 0x1045, 0x1002, 5, 3, false, NULL, 2},
    {"virtio-rng-pci", 0x1044, 0x1005, 4, 1, true, NULL, 0},
    {"virtio-serial-pci,max_ports=3", 0x1043, 0x1003, 3, 8, false, NULL, 1},
    {"virtio-serial,max_ports=3,vectors=4", 0x1043, 0x1003, 3, 8, false, NULL, 3},
};

static struct machine m;
static struct dev *dev;
static struct guest g;
static const struct device_row *row;

static void create(const struct device_row *r)
{
	struct err err = {0};

	row = r;
	machine_create(&m);
	if (r->drive) {
		char text[100];
		snprintf(text, sizeof(text), "if=none,id=%s,format=raw,file=%s", r->drive, image);
		if (!drive_create(text, m.bus.loop, &err))
			fail_msg("%s", err.msg);
	}
	dev = dev_create_from_text(&m.bus, r->text, &err);
	if (!dev)
		fail_msg("%s", err.msg);
	pci_bus_place_bars(m.bus.pci);
}

static int destroy(void **state)
{
	if (m.bus.loop)
		machine_destroy(&m);
	memset(&m, 0, sizeof(m));
	return 0;
}

static struct virtio *vio(void)
{
	return &container_of(dev, struct virtio_pci, pci.dev)->vio;
}

static unsigned bdf(void)
{
	return (unsigned)container_of(dev, struct pci_dev, dev)->devfn;
}

static uint32_t cfg(unsigned off, unsigned size)
{
	return pci_config_read(m.bus.pci, bdf(), off, size);
}

#define FOR_EACH_DEVICE                                                                                                \
	for (size_t i = 0; i < ARRAY_SIZE(device_table); destroy(NULL), i++)                                           \
		if (create(&device_table[i]), true)

static void attach(enum guest_mode mode)
{
	assert_true(guest_attach(&g, &m, bdf(), mode));
}

/* ---- identity and capabilities ---------------------------------------------- */

static void test_identity(void **state)
{
	FOR_EACH_DEVICE
	{
		assert_int_equal(cfg(0, 2), 0x1af4);
		assert_int_equal(cfg(2, 2), row->legacy_id ? row->legacy_id : row->modern_id);
		assert_int_equal(cfg(8, 1), row->legacy_id ? 0 : 1);
		assert_int_equal(cfg(0x2c, 2), 0x1af4);
		if (row->legacy_id)
			assert_int_equal(cfg(0x2e, 2), row->type);
		assert_int_equal(guest_attach(&g, &m, bdf(), GUEST_LEGACY), row->legacy_id != 0);
		attach(GUEST_MODERN);
		assert_int_equal(mem_read(&m.mem, g.common + 0x12, 2), row->nqueues);
		assert_int_equal(mem_read(&m.mem, g.isr, 1), 0);
	}
}

/* Registers through the capability in configuration space (4.1.4.7). */
static void test_config_window(void **state)
{
	FOR_EACH_DEVICE
	{
		attach(GUEST_MODERN);
		const unsigned at = g.cfg_cap;
		assert_int_not_equal(at, 0);
		pci_config_write(m.bus.pci, bdf(), at + 4, 4, 1);
		pci_config_write(m.bus.pci, bdf(), at + 8, 0x12, 4);
		pci_config_write(m.bus.pci, bdf(), at + 12, 2, 4);
		assert_int_equal(cfg(at + 16, 2), row->nqueues);
		pci_config_write(m.bus.pci, bdf(), at + 8, 0x14, 4);
		pci_config_write(m.bus.pci, bdf(), at + 12, 1, 4);
		pci_config_write(m.bus.pci, bdf(), at + 16, 1, 1);
		assert_int_equal(guest_status(&g), 1);
		/* Outside the BAR, an odd length, another BAR: nothing happens. */
		pci_config_write(m.bus.pci, bdf(), at + 8, 0xfffffffe, 4);
		pci_config_write(m.bus.pci, bdf(), at + 12, 4, 4);
		cfg(at + 16, 4);
		pci_config_write(m.bus.pci, bdf(), at + 16, 0, 4);
		pci_config_write(m.bus.pci, bdf(), at + 8, 0, 4);
		pci_config_write(m.bus.pci, bdf(), at + 12, 0x80000003, 4);
		cfg(at + 16, 4);
		pci_config_write(m.bus.pci, bdf(), at + 4, 1, 1);
		pci_config_write(m.bus.pci, bdf(), at + 12, 4, 4);
		cfg(at + 16, 4);
	}
}

/* ---- status and features ------------------------------------------------------ */

static void test_status(void **state)
{
	FOR_EACH_DEVICE
	{
		attach(GUEST_MODERN);
		assert_int_equal(guest_status(&g), 0);
		const uint64_t offered = guest_host_features(&g);
		assert_true(offered & BIT(VIRTIO_F_VERSION_1));
		/* Without VERSION_1, and with something never offered: refused. */
		guest_set_status(&g, 3);
		guest_set_features(&g, 0);
		guest_set_status(&g, 11);
		assert_int_equal(guest_status(&g), 3);
		guest_set_features(&g, BIT(VIRTIO_F_VERSION_1) | BIT(50));
		guest_set_status(&g, 11);
		assert_int_equal(guest_status(&g), 3);
		/* DRIVER_OK needs FEATURES_OK. */
		guest_set_status(&g, 7);
		assert_int_equal(guest_status(&g), 3);
		guest_set_features(&g, BIT(VIRTIO_F_VERSION_1));
		guest_set_status(&g, 11);
		assert_int_equal(guest_status(&g), 11);
		/* Too late to change features. */
		guest_set_features(&g, offered);
		assert_int_equal(vio()->guest_features, BIT(VIRTIO_F_VERSION_1));
		guest_set_status(&g, 0);
		assert_int_equal(guest_status(&g), 0);
		assert_int_equal(vio()->guest_features, 0);
	}
}

static void test_queue_registers(void **state)
{
	FOR_EACH_DEVICE
	{
		attach(GUEST_MODERN);
		guest_start(&g, ~0ull, 0, 0, false);
		const uint64_t c = g.common;
		const unsigned max = (unsigned)mem_read(&m.mem, c + 0x18, 2);
		assert_true(max > 0);
		mem_write(&m.mem, c + 0x18, 3, 2); /* no power of two */
		assert_int_equal(mem_read(&m.mem, c + 0x18, 2), max);
		mem_write(&m.mem, c + 0x18, 2 * max, 2);
		assert_int_equal(mem_read(&m.mem, c + 0x18, 2), max);
		mem_write(&m.mem, c + 0x18, 4, 2);
		assert_int_equal(mem_read(&m.mem, c + 0x18, 2), 4);
		mem_write(&m.mem, c + 0x1a, 9999, 2);
		assert_int_equal(mem_read(&m.mem, c + 0x1a, 2), 0xffff);
		mem_write(&m.mem, c + 0x16, 0x7fff, 2); /* no such queue */
		assert_int_equal(mem_read(&m.mem, c + 0x18, 2), 0);
		mem_write(&m.mem, c + 0x1c, 1, 2);
		mem_write(&m.mem, c + 0x20, 1, 4);
		/* Notifications of queues that do not exist or are not set up. */
		for (unsigned q = 0; q < 0x400; q++)
			mem_write(&m.mem, g.notify + 4 * q, 0xffff, 2);
		/* Every register, every size, all ones. */
		for (unsigned size = 1; size <= 8; size *= 2)
			for (unsigned off = 0; off < 0x60; off++)
				if (off > 0x15 || off + size <= 0x14) {
					mem_write(&m.mem, c + off, UINT64_MAX, size);
					mem_read(&m.mem, c + off, size);
				}
		machine_settle(&m);
		guest_set_status(&g, 0);
		assert_int_equal(guest_status(&g), 0);
	}
}

/* ---- hostile rings ------------------------------------------------------------- */

static uint16_t rw(void)
{
	return row->device_writes ? VIRTQ_DESC_F_WRITE : 0;
}

static void bad_loop(struct guest_queue *q)
{
	guest_set_desc(q, 0, BUFFER_BASE, 16, VIRTQ_DESC_F_NEXT | rw(), 1);
	guest_set_desc(q, 1, BUFFER_BASE, 16, VIRTQ_DESC_F_NEXT | rw(), 0);
	guest_offer(q, 0);
}
static void bad_self_loop(struct guest_queue *q)
{
	guest_set_desc(q, 0, BUFFER_BASE, 16, VIRTQ_DESC_F_NEXT | rw(), 0);
	guest_offer(q, 0);
}
static void bad_next(struct guest_queue *q)
{
	guest_set_desc(q, 0, BUFFER_BASE, 16, VIRTQ_DESC_F_NEXT | rw(), q->num);
	guest_offer(q, 0);
}
static void bad_head(struct guest_queue *q)
{
	guest_offer(q, q->num);
}
static void bad_head_max(struct guest_queue *q)
{
	guest_offer(q, 0xffff);
}
static void bad_index_jump(struct guest_queue *q)
{
	q->avail_idx = (uint16_t)(q->num + 1);
	st16le(guest_ptr(&m, q->avail) + 2, q->avail_idx);
}
static void bad_index_far(struct guest_queue *q)
{
	st16le(guest_ptr(&m, q->avail) + 2, 0xffff);
}
static void bad_buffer_hole(struct guest_queue *q)
{
	guest_set_desc(q, 0, GUEST_HOLE, 512, rw(), 0);
	guest_offer(q, 0);
}
static void bad_buffer_mmio(struct guest_queue *q)
{
	guest_set_desc(q, 0, g.common, 512, rw(), 0); /* the device's own BAR: never entered by its DMA */
	guest_offer(q, 0);
}
static void bad_buffer_end(struct guest_queue *q)
{
	guest_set_desc(q, 0, GUEST_RAM - 256, 512, rw(), 0);
	guest_offer(q, 0);
}
static void bad_buffer_wrap(struct guest_queue *q)
{
	guest_set_desc(q, 0, UINT64_MAX - 15, 512, rw(), 0);
	guest_offer(q, 0);
}
static void bad_buffer_huge(struct guest_queue *q)
{
	guest_set_desc(q, 0, 0, 0xffffffff, rw(), 0);
	guest_offer(q, 0);
}
static void bad_order(struct guest_queue *q)
{
	guest_set_desc(q, 0, BUFFER_BASE, 512, VIRTQ_DESC_F_NEXT | VIRTQ_DESC_F_WRITE, 1);
	guest_set_desc(q, 1, BUFFER_BASE, 512, 0, 0);
	guest_offer(q, 0);
}
static void bad_indirect_size(struct guest_queue *q)
{
	guest_set_desc(q, 0, BUFFER_BASE, 15, VIRTQ_DESC_F_INDIRECT, 0);
	guest_offer(q, 0);
}
static void bad_indirect_empty(struct guest_queue *q)
{
	guest_set_desc(q, 0, BUFFER_BASE, 0, VIRTQ_DESC_F_INDIRECT, 0);
	guest_offer(q, 0);
}
static void bad_indirect_huge(struct guest_queue *q)
{
	guest_set_desc(q, 0, BUFFER_BASE, 16 * 4096, VIRTQ_DESC_F_INDIRECT, 0);
	guest_offer(q, 0);
}
static void bad_indirect_hole(struct guest_queue *q)
{
	guest_set_desc(q, 0, GUEST_HOLE, 64, VIRTQ_DESC_F_INDIRECT, 0);
	guest_offer(q, 0);
}
static void bad_indirect_next(struct guest_queue *q)
{
	guest_set_desc(q, 0, BUFFER_BASE, 64, VIRTQ_DESC_F_INDIRECT | VIRTQ_DESC_F_NEXT, 1);
	guest_offer(q, 0);
}
static void bad_indirect_nested(struct guest_queue *q)
{
	const struct virtq_desc d = {BUFFER_BASE, 16, VIRTQ_DESC_F_INDIRECT, 0};
	memcpy(guest_ptr(&m, BUFFER_BASE), &d, sizeof(d));
	guest_set_desc(q, 0, BUFFER_BASE, 16, VIRTQ_DESC_F_INDIRECT, 0);
	guest_offer(q, 0);
}
static void bad_indirect_loop(struct guest_queue *q)
{
	const struct virtq_desc d = {BUFFER_BASE, 16, (uint16_t)(VIRTQ_DESC_F_NEXT | rw()), 0};
	memcpy(guest_ptr(&m, BUFFER_BASE), &d, sizeof(d));
	guest_set_desc(q, 0, BUFFER_BASE, 16, VIRTQ_DESC_F_INDIRECT, 0);
	guest_offer(q, 0);
}
static void bad_indirect_out(struct guest_queue *q)
{
	const struct virtq_desc d = {BUFFER_BASE, 16, (uint16_t)(VIRTQ_DESC_F_NEXT | rw()), 1};
	memcpy(guest_ptr(&m, BUFFER_BASE), &d, sizeof(d));
	guest_set_desc(q, 0, BUFFER_BASE, 16, VIRTQ_DESC_F_INDIRECT, 0);
	guest_offer(q, 0);
}

static void (*const bad_table[])(struct guest_queue *q) = {
    bad_loop,
    bad_self_loop,
    bad_next,
    bad_head,
    bad_head_max,
    bad_index_jump,
    bad_index_far,
    bad_buffer_hole,
    bad_buffer_mmio,
    bad_buffer_end,
    bad_buffer_wrap,
    bad_buffer_huge,
    bad_order,
    bad_indirect_size,
    bad_indirect_empty,
    bad_indirect_huge,
    bad_indirect_hole,
    bad_indirect_next,
    bad_indirect_nested,
    bad_indirect_loop,
    bad_indirect_out,
};

static void test_hostile_rings(void **state)
{
	FOR_EACH_DEVICE
	{
		attach(GUEST_MODERN);
		for (size_t b = 0; b < ARRAY_SIZE(bad_table); b++) {
			const uint64_t before = vio()->stats.broken;
			const unsigned irqs = m.msi_count[0];
			guest_start(&g, ~0ull, row->queue + 1, 8, true);
			bad_table[b](&g.q[row->queue]);
			guest_kick(&g.q[row->queue]);
			machine_settle(&m);
			if (!(guest_status(&g) & 0x40))
				fail_msg("%s: hostile ring %zu was not noticed", row->text, b);
			assert_int_equal(vio()->stats.broken, before + 1);
			assert_int_equal(m.msi_count[0], irqs + 1); /* the configuration interrupt */
			/* Nothing more happens until the reset. */
			guest_kick(&g.q[row->queue]);
			machine_settle(&m);
			assert_int_equal(vio()->stats.broken, before + 1);
			guest_set_status(&g, 0);
			assert_int_equal(guest_status(&g), 0);
		}
	}
}

/* Rings themselves in the wrong place. */
static void test_hostile_ring_addresses(void **state)
{
	static const uint64_t addr[] = {GUEST_HOLE, GUEST_RAM - 16, UINT64_MAX & ~0xfffull, 0xe0000000, RING_BASE + 1};

	FOR_EACH_DEVICE
	{
		attach(GUEST_MODERN);
		for (size_t a = 0; a < ARRAY_SIZE(addr); a++)
			for (unsigned reg = 0x20; reg <= 0x30; reg += 8) {
				guest_start(&g, ~0ull, 0, 0, false);
				mem_write(&m.mem, g.common + 0x16, 0, 2);
				for (unsigned r = 0x20; r <= 0x30; r += 8) {
					uint64_t at = r == reg ? addr[a] : RING_BASE + 0x1000 * (r - 0x20);
					mem_write(&m.mem, g.common + r, (uint32_t)at, 4);
					mem_write(&m.mem, g.common + r + 4, at >> 32, 4);
				}
				mem_write(&m.mem, g.common + 0x1c, 1, 2);
				mem_write(&m.mem, g.notify, 0, 2);
				machine_settle(&m);
				assert_true(guest_status(&g) & 0x40);
				guest_set_status(&g, 0);
			}
	}
}

/* KELVIN_FUZZ=N in the environment: N times as many rounds, another sequence. */
static int fuzz_factor(void)
{
	const char *n = getenv("KELVIN_FUZZ");

	return n && atoi(n) > 0 ? atoi(n) : 1;
}

static uint64_t random64(void)
{
	static uint64_t s;

	if (!s)
		s = 0x2545f4914f6cdd1dull * (unsigned)fuzz_factor();

	s ^= s << 13;
	s ^= s >> 7;
	s ^= s << 17;
	return s;
}

/* Random descriptors and indexes: whatever happens, it ends, and a reset cures it. */
static void test_random_rings(void **state)
{
	FOR_EACH_DEVICE
	{
		attach(GUEST_MODERN);
		for (int round = 0; round < 150 * fuzz_factor(); round++) {
			guest_start(&g, ~0ull, row->queue + 1, 8, round & 1);
			uint8_t *ring = guest_ptr(&m, g.q[row->queue].desc);
			for (int k = 0; k < 40; k++) {
				const uint64_t s = random64();
				unsigned at = (unsigned)(s >> 20) % (8 * 16 + 4 + 16);
				if (s & 0x100)
					ring[at] = (uint8_t)s;
				else
					guest_set_desc(&g.q[row->queue], (unsigned)(s >> 40) & 7,
						       BUFFER_BASE + (s & 0xfff00), (uint32_t)(s >> 52) & 0x3ff,
						       (uint16_t)(s >> 12) & 7, (uint16_t)(s >> 30) & 7);
				guest_kick(&g.q[row->queue]);
				machine_settle(&m);
			}
			guest_set_status(&g, 0);
			for (int turn = 0; turn < 1000 && guest_status(&g); turn++)
				loop_run_once(m.bus.loop, 1000000);
			assert_int_equal(guest_status(&g), 0);
		}
	}
}

/* One access somewhere a guest can reach the device: registers, MSI-X, configuration space, BARs that move. */
static void random_access(void)
{
	const uint64_t r = random64(), val = r & 1 ? random64() : random64() & 0xff;
	const unsigned size = 1u << (r >> 8) % 3;
	const uint64_t off = (r >> 16) % 0x4000;
	const uint64_t legacy = cfg(0x10, 4) & ~3u, msix = cfg(0x14, 4) & ~15u;

	switch ((r >> 40) % 8) {
	case 0:
	case 1: mem_write(&m.mem, g.common + off % 0x40, val, size); break;
	case 2: mem_write(&m.mem, g.common + off, val, size); break;
	case 3: mem_read(&m.mem, g.common + off, size); break;
	case 4: ports_write(m.bus.ports, (uint16_t)(legacy + off % 0x80), val, size); break;
	case 5: mem_write(&m.mem, msix + off % 0x2000, val, size == 1 ? 4 : 8); break;
	case 6: pci_config_write(m.bus.pci, bdf(), (unsigned)off % 0x100 & ~(size - 1), (uint32_t)val, size); break;
	case 7: ports_read(m.bus.ports, (uint16_t)(legacy + off % 0x80), size); break;
	}
}

static void test_random_registers(void **state)
{
	FOR_EACH_DEVICE
	{
		for (int round = 0; round < 40 * fuzz_factor(); round++) {
			attach(GUEST_MODERN);
			if (round & 1)
				guest_start(&g, ~0ull, row->queue + 1, 8, round & 2);
			for (int k = 0; k < 300; k++) {
				random_access();
				if (k % 16 == 0)
					machine_settle(&m);
			}
			dev_reset_all(&m.bus);
			pci_bus_place_bars(m.bus.pci);
			attach(GUEST_MODERN);
			assert_int_equal(guest_status(&g), 0);
			guest_start(&g, ~0ull, row->queue + 1, 8, true);
			assert_int_equal(guest_status(&g), 15);
		}
	}
}

/* The machine's reset and pause from every state. */
static void test_reset_and_pause(void **state)
{
	FOR_EACH_DEVICE
	{
		attach(GUEST_MODERN);
		for (int k = 0; k < 3; k++) {
			guest_start(&g, ~0ull, 1, 8, k & 1);
			if (k == 2)
				bad_loop(&g.q[0]);
			guest_kick(&g.q[0]);
			dev_pause_all(&m.bus);
			dev_resume_all(&m.bus);
			machine_settle(&m);
			dev_reset_all(&m.bus);
			assert_int_equal(cfg(4, 2) & 7, 0);
			pci_bus_place_bars(m.bus.pci);
			attach(GUEST_MODERN);
			assert_int_equal(guest_status(&g), 0);
			machine_settle(&m);
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
	    TEST(test_identity),	TEST(test_config_window),    TEST(test_status),
	    TEST(test_queue_registers), TEST(test_hostile_rings),    TEST(test_hostile_ring_addresses),
	    TEST(test_random_rings),	TEST(test_random_registers), TEST(test_reset_and_pause),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
