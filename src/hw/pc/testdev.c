/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Devices for test guests, as QEMU has them: pc-testdev (ports and memory that
 * keep what is written, interrupt lines by port) and pci-testdev (QEMU's
 * docs/specs/pci-testdev: counts writes of expected data). Device locks.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/util.h"
#include "bus/pci.h"
#include "hw/pc/devices.h"

/* ---- pc-testdev ------------------------------------------------------------ */

#define PC_PORT_WORD  0xe0 /* one 32-bit register, any access inside */
#define PC_PORT_FLUSH 0xe4 /* write a guest address: its page goes and comes back (for KVM's tests) */
#define PC_PORT_BYTE  0xe8 /* one 8-bit register at four ports */
#define PC_PORT_IRQ   0x2000
#define PC_MEM	      0xff000000ull
#define PC_MEM_SIZE   0x10000u
#define PC_IRQS	      24

struct pc_testdev {
	struct dev dev;
	uint32_t word;
	uint8_t byte;
	uint8_t mem[PC_MEM_SIZE];
	struct mem_region word_region, flush_region, byte_region, irq_region, mem_region;
};

static uint64_t get_bytes(const uint8_t *p, unsigned size)
{
	uint64_t v = 0;

	memcpy(&v, p, size);
	return v;
}

static uint64_t word_read(void *opaque, uint64_t off, unsigned size)
{
	const struct pc_testdev *s = opaque;
	uint8_t buf[8];

	st64le(buf, s->word);
	return get_bytes(buf + off, size);
}

static void word_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct pc_testdev *s = opaque;
	uint8_t buf[8];

	st64le(buf, s->word);
	memcpy(buf + off, &val, size);
	s->word = ld32le(buf);
}

static uint64_t byte_read(void *opaque, uint64_t off, unsigned size)
{
	const struct pc_testdev *s = opaque;

	return s->byte;
}

static void byte_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct pc_testdev *s = opaque;

	s->byte = (uint8_t)val;
}

static uint64_t nothing_read(void *opaque, uint64_t off, unsigned size)
{
	return 0;
}

/* Nothing of ours remembers a host mapping of the page. */
static void flush_write(void *opaque, uint64_t off, uint64_t val, unsigned size) {}

static void irq_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct pc_testdev *s = opaque;

	irq_set(&s->dev.bus->gsi[off], val != 0);
}

static uint64_t pc_mem_read(void *opaque, uint64_t off, unsigned size)
{
	const struct pc_testdev *s = opaque;

	return get_bytes(s->mem + off, size);
}

static void pc_mem_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct pc_testdev *s = opaque;

	memcpy(s->mem + off, &val, size);
}

static const struct region_ops word_ops = {word_read, word_write, 1, 4};
static const struct region_ops flush_ops = {nothing_read, flush_write, 4, 4};
static const struct region_ops byte_ops = {byte_read, byte_write, 1, 1};
static const struct region_ops irq_ops = {nothing_read, irq_write, 1, 1};
static const struct region_ops pc_mem_ops = {pc_mem_read, pc_mem_write, 1, 8};

static void region_init(struct pc_testdev *s, struct mem_region *r, const char *name, uint64_t size,
			const struct region_ops *ops)
{
	*r = (struct mem_region){.name = name, .size = size, .ops = ops, .opaque = s, .lock = &s->dev.lock};
}

static int pc_testdev_realize(struct dev *d, struct err *err)
{
	struct pc_testdev *s = container_of(d, struct pc_testdev, dev);

	region_init(s, &s->word_region, "testdev-word", 4, &word_ops);
	region_init(s, &s->flush_region, "testdev-flush", 4, &flush_ops);
	region_init(s, &s->byte_region, "testdev-byte", 4, &byte_ops);
	region_init(s, &s->irq_region, "testdev-irq", PC_IRQS, &irq_ops);
	region_init(s, &s->mem_region, "testdev-memory", PC_MEM_SIZE, &pc_mem_ops);
	ports_map(d->bus->ports, &s->word_region, PC_PORT_WORD);
	ports_map(d->bus->ports, &s->flush_region, PC_PORT_FLUSH);
	ports_map(d->bus->ports, &s->byte_region, PC_PORT_BYTE);
	ports_map(d->bus->ports, &s->irq_region, PC_PORT_IRQ);
	mem_map_region(d->bus->mem, &s->mem_region, PC_MEM, 1);
	return 0;
}

static void pc_testdev_unrealize(struct dev *d)
{
	struct pc_testdev *s = container_of(d, struct pc_testdev, dev);

	mem_unmap_region(d->bus->mem, &s->mem_region);
	ports_unmap(d->bus->ports, &s->irq_region);
	ports_unmap(d->bus->ports, &s->byte_region);
	ports_unmap(d->bus->ports, &s->flush_region);
	ports_unmap(d->bus->ports, &s->word_region);
}

static const struct state_field pc_testdev_fields[] = {
    STATE_INT(struct pc_testdev, word), STATE_INT(struct pc_testdev, byte), STATE_RAW(struct pc_testdev, mem), {0}};
static const struct state pc_testdev_state = {
    .name = "pc-testdev", .version = 1, .min_version = 1, .fields = pc_testdev_fields};

const struct dev_ops pc_testdev_ops = {
    .type = {.name = "pc-testdev",
	     .about = "for test guests: ports and memory that keep what is written, interrupt lines by port",
	     .size = sizeof(struct pc_testdev)},
    .bus_kind = DEV_BUS_SYSTEM,
    .user_creatable = true,
    .realize = pc_testdev_realize,
    .unrealize = pc_testdev_unrealize,
    .state = &pc_testdev_state,
};

/* ---- pci-testdev -------------------------------------------------------------- */

/*
 * Six tests: three by memory, three by ports. The guest selects one by writing its number to the first byte of the
 * BAR and reads a header there: test (1 byte), width (1), offset (4 at 4), data (4 at 8), count (4 at 12) and the
 * test's name. Writes of the data at the offset count, except where they are a doorbell's and end in an eventfd.
 */
#define TEST_MEM_SIZE	  4096
#define TEST_IO_SIZE	  256
#define TESTS		  3 /* of each kind */
#define TEST_NONE	  (2 * TESTS)
#define TEST_DATA	  0xfau
#define TEST_DATA_ANY	  0xceu
#define TEST_WIDTH	  1
#define TEST_HDR_SIZE	  16
#define TEST_NAME_MAX	  32
#define TEST_OFFSET(kind) ((kind) ? TEST_IO_SIZE / 2 : TEST_MEM_SIZE / 2)

enum test_way { TEST_COUNTS, TEST_WILDCARD, TEST_DATAMATCH };

struct pci_testdev {
	struct pci_dev pci; /* first */
	struct test_bar {
		struct pci_testdev *owner;
		unsigned kind; /* and number of the BAR: 0 memory, 1 ports */
	} bar[2];
	uint32_t current; /* TEST_NONE: none */
	uint32_t count;
	int ringing; /* the BAR `doorbell` is registered in, or -1 */
	struct region_doorbell doorbell;
	uint64_t membar; /* property: size of a third BAR that does nothing */
};

static const char *const test_kinds[2] = {"mmio", "portio"};
static const char *const test_ways[TESTS] = {
    [TEST_COUNTS] = "no-eventfd", [TEST_WILDCARD] = "wildcard-eventfd", [TEST_DATAMATCH] = "datamatch-eventfd"};

static uint32_t test_offset(uint32_t test)
{
	return TEST_OFFSET(test / TESTS) + test;
}

static uint32_t test_data(uint32_t test)
{
	return test % TESTS == TEST_WILDCARD ? TEST_DATA_ANY : TEST_DATA;
}

static uint64_t test_read(void *opaque, uint64_t off, unsigned size)
{
	const struct pci_testdev *s = ((const struct test_bar *)opaque)->owner;
	uint8_t hdr[TEST_HDR_SIZE + TEST_NAME_MAX] = {0};

	if (off >= sizeof(hdr) || s->current == TEST_NONE)
		return 0;
	hdr[0] = (uint8_t)s->current;
	hdr[1] = TEST_WIDTH;
	st32le(hdr + 4, test_offset(s->current));
	st32le(hdr + 8, test_data(s->current));
	st32le(hdr + 12, s->count);
	snprintf((char *)hdr + TEST_HDR_SIZE, TEST_NAME_MAX, "%s-%s", test_kinds[s->current / TESTS],
		 test_ways[s->current % TESTS]);
	return hdr[off];
}

static void test_select(struct pci_testdev *s, uint32_t test)
{
	if (s->ringing >= 0)
		pci_doorbell_del(&s->pci, s->ringing, &s->doorbell);
	s->ringing = -1;
	s->current = test;
	s->count = 0;
	if (test == TEST_NONE || test % TESTS == TEST_COUNTS || s->doorbell.fd < 0)
		return;
	s->doorbell.off = test_offset(test);
	s->doorbell.size = TEST_WIDTH;
	s->doorbell.match = test % TESTS == TEST_DATAMATCH;
	s->doorbell.value = TEST_DATA;
	if (!pci_doorbell_add(&s->pci, (int)(test / TESTS), &s->doorbell))
		s->ringing = (int)(test / TESTS);
}

static void test_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct test_bar *b = opaque;
	struct pci_testdev *s = b->owner;

	if (off == 0)
		test_select(s, val < TESTS ? b->kind * TESTS + (uint32_t)val : TEST_NONE);
	else if (s->current != TEST_NONE && s->current % TESTS == TEST_COUNTS && off == test_offset(s->current) &&
		 val == TEST_DATA)
		s->count++;
	/* The other tests' writes are doorbells: without an engine that takes them they end here, uncounted as well. */
}

static uint64_t membar_read(void *opaque, uint64_t off, unsigned size)
{
	return 0;
}
static void membar_write(void *opaque, uint64_t off, uint64_t val, unsigned size) {}

static const struct region_ops test_ops = {test_read, test_write, 1, 1};
static const struct region_ops membar_ops = {membar_read, membar_write, 1, 8};

static void pci_testdev_reset(struct dev *d)
{
	struct pci_testdev *s = container_of(d, struct pci_testdev, pci.dev);

	pthread_mutex_lock(&d->lock);
	test_select(s, TEST_NONE);
	pthread_mutex_unlock(&d->lock);
	pci_reset_common(&s->pci);
}

static int pci_testdev_realize(struct dev *d, struct err *err)
{
	struct pci_testdev *s = container_of(d, struct pci_testdev, pci.dev);
	struct pci_dev *p = &s->pci;

	if (s->membar && (s->membar < 16 || (s->membar & (s->membar - 1))))
		return err_set(err, -EINVAL, "pci-testdev: membar=%llu: a power of two from 16 on is needed",
			       (unsigned long long)s->membar);
	p->vendor = 0x1b36;
	p->device = 0x0005;
	p->subsys_vendor = 0x1af4;
	p->subsys_id = 0x1100;
	p->class_code = 0x00ff00;
	s->current = TEST_NONE;
	s->ringing = -1;
	s->doorbell.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	for (unsigned kind = 0; kind < 2; kind++)
		s->bar[kind] = (struct test_bar){s, kind};
	pci_add_bar(p, 0, PCI_BAR_MEM32, false, "pci-testdev-mmio", TEST_MEM_SIZE, &test_ops, &s->bar[0]);
	pci_add_bar(p, 1, PCI_BAR_IO, false, "pci-testdev-portio", TEST_IO_SIZE, &test_ops, &s->bar[1]);
	if (s->membar)
		pci_add_bar(p, 2, PCI_BAR_MEM64, true, "pci-testdev-membar", s->membar, &membar_ops, s);
	int ret = pci_register(p, err);
	if (ret && s->doorbell.fd >= 0)
		close(s->doorbell.fd);
	return ret;
}

static void pci_testdev_unrealize(struct dev *d)
{
	struct pci_testdev *s = container_of(d, struct pci_testdev, pci.dev);

	pthread_mutex_lock(&d->lock);
	test_select(s, TEST_NONE);
	pthread_mutex_unlock(&d->lock);
	pci_unregister(&s->pci);
	if (s->doorbell.fd >= 0)
		close(s->doorbell.fd);
}

static const struct prop pci_testdev_props[] = {
    {.name = "membar",
     .kind = PROP_SIZE,
     .offset = offsetof(struct pci_testdev, membar),
     .def = "0",
     .help = "size of a further memory BAR that does nothing; 0: none"},
    {0},
};

static const struct state_field pci_testdev_fields[] = {
    STATE_INT_MAX(struct pci_testdev, current, TEST_NONE), STATE_INT(struct pci_testdev, count), {0}};

/* The doorbell is not in the state: it follows from the test. */
static int pci_testdev_post_load(void *obj, struct err *err)
{
	struct pci_testdev *s = obj;
	uint32_t count = s->count;

	pthread_mutex_lock(&s->pci.dev.lock);
	test_select(s, s->current);
	s->count = count;
	pthread_mutex_unlock(&s->pci.dev.lock);
	return 0;
}

static const struct state pci_testdev_state = {.name = "pci-testdev",
					       .version = 1,
					       .min_version = 1,
					       .parent = &pci_state,
					       .fields = pci_testdev_fields,
					       .post_load = pci_testdev_post_load};

const struct dev_ops pci_testdev_ops = {
    .type = {.name = "pci-testdev",
	     .about = "for test guests: counts writes of expected data to memory and ports",
	     .size = sizeof(struct pci_testdev),
	     .parent = "pci-device",
	     .props = pci_testdev_props},
    .bus_kind = DEV_BUS_PCI,
    .user_creatable = true,
    .realize = pci_testdev_realize,
    .unrealize = pci_testdev_unrealize,
    .reset = pci_testdev_reset,
    .state = &pci_testdev_state,
};
