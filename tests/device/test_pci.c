/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PCI without a CPU: configuration mechanism 1, BAR sizing, moving and overlapping,
 * capabilities, MSI-X masking and pending bits, INTx sharing and routing, slots.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "bus/pci.h"
#include "rig.h"

#define COMMAND 0x04
#define STATUS	0x06
#define BAR(n)	(0x10 + 4 * (n))

/* A device with every kind of BAR and four MSI-X vectors. */
struct toy {
	struct pci_dev pci;
	uint64_t last_off, last_val;
	unsigned reads, writes, changed;
};

static uint64_t toy_read(void *opaque, uint64_t off, unsigned size)
{
	struct toy *t = opaque;

	t->reads++;
	return 0xd0 + off;
}

static void toy_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct toy *t = opaque;

	t->writes++;
	t->last_off = off;
	t->last_val = val;
}

static const struct region_ops toy_region_ops = {.read = toy_read, .write = toy_write};

static void toy_msix_changed(struct pci_dev *d, unsigned vector)
{
	container_of(d, struct toy, pci)->changed++;
}

static int toy_realize(struct dev *d, struct err *err)
{
	struct toy *t = container_of(d, struct toy, pci.dev);
	struct pci_dev *p = &t->pci;

	p->vendor = 0x1234;
	p->device = 0x5678;
	p->class_code = 0xff0000;
	p->intx_pin = 1;
	p->msix_changed = toy_msix_changed;
	pci_add_bar(p, 0, PCI_BAR_IO, false, "toy-io", 32, &toy_region_ops, t);
	pci_add_bar(p, 1, PCI_BAR_MEM32, false, "toy-mem", 4096, &toy_region_ops, t);
	pci_add_bar(p, 2, PCI_BAR_MEM64, true, "toy-mem64", 16384, &toy_region_ops, t);
	if (pci_register(p, err))
		return -EINVAL;
	return pci_msix_init(p, 4, 1, 0x800, 0xc00, err);
}

static void toy_unrealize(struct dev *d)
{
	pci_unregister(&container_of(d, struct toy, pci.dev)->pci);
}

static void toy_reset(struct dev *d)
{
	pci_reset_common(&container_of(d, struct toy, pci.dev)->pci);
}

static const struct dev_ops toy_ops = {
    .type = {.name = "toy", .about = "test device", .parent = "pci-device", .size = sizeof(struct toy)},
    .bus_kind = DEV_BUS_PCI,
    .realize = toy_realize,
    .unrealize = toy_unrealize,
    .reset = toy_reset,
};

struct board {
	struct rig r;
	struct dev *host, *isa;
	struct toy *toy;
	unsigned gsi_level[24], gsi_edges[24];
	uint64_t msi_addr[16];
	uint32_t msi_data[16];
	unsigned nmsi;
};

static void board_gsi(void *opaque, int n, int level)
{
	struct board *b = opaque;

	b->gsi_edges[n] += b->gsi_level[n] != (unsigned)level;
	b->gsi_level[n] = (unsigned)level;
}

static void board_msi(void *opaque, uint64_t addr, uint32_t data)
{
	struct board *b = opaque;

	assert_true(b->nmsi < ARRAY_SIZE(b->msi_addr));
	b->msi_addr[b->nmsi] = addr;
	b->msi_data[b->nmsi++] = data;
}

static const struct msi_ops board_msi_ops = {.send = board_msi};

static struct toy *board_add_toy(struct board *b, const char *addr)
{
	struct dev *d = rig_dev(&b->r, &toy_ops, addr, NULL);

	return container_of(d, struct toy, pci.dev);
}

static int setup(void **state)
{
	struct board *b = calloc(1, sizeof(*b));
	struct ram_config ram = {.size = 4 * MIB};
	struct err err = {0};

	rig_init(&b->r, 1);
	assert_int_equal(mem_add_ram(&b->r.mem, "ram", 0, ram.size, &ram, false, &err), 0);
	for (int i = 0; i < 24; i++)
		b->r.bus.gsi[i] = (struct irq){board_gsi, b, i};
	b->r.bus.msi = &board_msi_ops;
	b->r.bus.msi_opaque = b;
	b->host = rig_dev(&b->r, &i440fx_ops, NULL);
	b->isa = rig_dev(&b->r, &piix3_ops, NULL);
	b->toy = board_add_toy(b, "addr=4");
	pci_bus_set_windows(b->r.bus.pci, 0xc000, 0xc0000000, 0xfec00000, 0x200000000, 0x300000000);
	dev_reset_all(&b->r.bus);
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	struct board *b = *state;

	rig_fini(&b->r);
	free(b);
	return 0;
}

/* Through the ports, as a guest does it. */
static void cfg_addr(struct board *b, unsigned devfn, unsigned off)
{
	ports_write(b->r.bus.ports, 0xcf8, 0x80000000u | devfn << 8 | (off & 0xfc), 4);
}

static uint32_t cfg_read(struct board *b, unsigned devfn, unsigned off, unsigned size)
{
	cfg_addr(b, devfn, off);
	return (uint32_t)ports_read(b->r.bus.ports, (uint16_t)(0xcfc + (off & 3)), size);
}

static void cfg_write(struct board *b, unsigned devfn, unsigned off, uint32_t val, unsigned size)
{
	cfg_addr(b, devfn, off);
	ports_write(b->r.bus.ports, (uint16_t)(0xcfc + (off & 3)), val, size);
}

#define TOY 0x20 /* slot 4 */

static void test_config(void **state)
{
	struct board *b = *state;

	assert_int_equal(cfg_read(b, 0, 0, 4), 0x12378086);
	assert_int_equal(cfg_read(b, 8, 0, 4), 0x70008086);
	assert_int_equal(cfg_read(b, 8, 0x0e, 1), 0x80); /* multifunction */
	assert_int_equal(cfg_read(b, TOY, 0, 2), 0x1234);
	assert_int_equal(cfg_read(b, TOY, 2, 2), 0x5678);
	assert_int_equal(cfg_read(b, TOY, 0x0b, 1), 0xff);
	assert_int_equal(cfg_read(b, 0x28, 0, 4), 0xffffffff); /* nobody there */
	/* identity and class do not change */
	cfg_write(b, TOY, 0, 0, 4);
	cfg_write(b, TOY, 8, 0, 4);
	assert_int_equal(cfg_read(b, TOY, 0, 4), 0x56781234);
	assert_int_equal(cfg_read(b, TOY, 8, 4) >> 8, 0xff0000);
	cfg_write(b, TOY, COMMAND, 0xffff, 2);
	assert_int_equal(cfg_read(b, TOY, COMMAND, 2), 0x0547);
	/* without the enable bit, and on another bus: nothing */
	ports_write(b->r.bus.ports, 0xcf8, TOY << 8, 4);
	assert_int_equal(ports_read(b->r.bus.ports, 0xcfc, 4), 0xffffffff);
	ports_write(b->r.bus.ports, 0xcf8, 0x80010000u | TOY << 8, 4);
	assert_int_equal(ports_read(b->r.bus.ports, 0xcfc, 4), 0xffffffff);
	/* AMD's extended registers do not alias the first 256 bytes */
	ports_write(b->r.bus.ports, 0xcf8, 0x81000000u | TOY << 8, 4);
	assert_int_equal(ports_read(b->r.bus.ports, 0xcfc, 4), 0xffffffff);
	/* byte accesses to 0xcf8 leave the address alone */
	cfg_addr(b, TOY, 0);
	ports_write(b->r.bus.ports, 0xcf8, 0x55, 1);
	assert_int_equal(ports_read(b->r.bus.ports, 0xcf8, 4), 0x80000000u | TOY << 8);
	/* the last dword, and an access over the end */
	assert_int_equal(pci_config_read(b->r.bus.pci, TOY, 0xfc, 4), 0);
	assert_int_equal(pci_config_read(b->r.bus.pci, TOY, 0xfe, 4), 0xffffffff);
	pci_config_write(b->r.bus.pci, TOY, 0xfe, 0xffffffff, 4);
	pci_config_write(b->r.bus.pci, 0x10000, 0, 0, 4);
}

static void test_reset_register(void **state)
{
	struct board *b = *state;

	ports_write(b->r.bus.ports, 0xcf9, 0x02, 1);
	assert_int_equal(b->r.requests, 0);
	ports_write(b->r.bus.ports, 0xcf9, 0x06, 1);
	assert_int_equal(b->r.requests, 1);
	assert_int_equal(b->r.request, VM_RESET);
	/* part of a wider write to 0xcf8 is no reset */
	ports_write(b->r.bus.ports, 0xcf8, 0x80000600, 4);
	assert_int_equal(b->r.requests, 1);
}

static void test_bar_sizing(void **state)
{
	struct board *b = *state;

	for (int i = 0; i < 6; i++)
		cfg_write(b, TOY, BAR(i), 0xffffffff, 4);
	assert_int_equal(cfg_read(b, TOY, BAR(0), 4), 0xffffffe1);
	assert_int_equal(cfg_read(b, TOY, BAR(1), 4), 0xfffff000);
	assert_int_equal(cfg_read(b, TOY, BAR(2), 4), 0xffffc00c);
	assert_int_equal(cfg_read(b, TOY, BAR(3), 4), 0xffffffff);
	assert_int_equal(cfg_read(b, TOY, BAR(4), 4), 0);
	assert_int_equal(cfg_read(b, TOY, BAR(5), 4), 0);
	/* sizing with decoding on must not put the BAR at the top of memory */
	cfg_write(b, TOY, COMMAND, 3, 2);
	for (int i = 0; i < 4; i++)
		cfg_write(b, TOY, BAR(i), 0xffffffff, 4);
	assert_false(b->toy->pci.bar[1].region.mapped);
	assert_false(b->toy->pci.bar[2].region.mapped);
	assert_int_equal(mem_read(&b->r.mem, 0xfffff000, 4), 0xffffffff);
	assert_int_equal(b->toy->reads, 0);
}

static void test_bar_decode(void **state)
{
	struct board *b = *state;

	cfg_write(b, TOY, BAR(0), 0xd000, 4);
	cfg_write(b, TOY, BAR(1), 0xe0000000, 4);
	cfg_write(b, TOY, BAR(2), 0x00004000, 4);
	cfg_write(b, TOY, BAR(3), 0x00000002, 4);
	assert_int_equal(mem_read(&b->r.mem, 0xe0000004, 4), 0xffffffff); /* decoding is off */
	cfg_write(b, TOY, COMMAND, 2, 2);
	assert_int_equal(mem_read(&b->r.mem, 0xe0000004, 4), 0xd4);
	assert_int_equal(mem_read(&b->r.mem, 0x200004008, 4), 0xd8);
	assert_int_equal(ports_read(b->r.bus.ports, 0xd001, 1), 0xff);
	cfg_write(b, TOY, COMMAND, 3, 2);
	assert_int_equal(ports_read(b->r.bus.ports, 0xd001, 1), 0xd1);
	/* move */
	cfg_write(b, TOY, BAR(1), 0xe1000000, 4);
	assert_int_equal(mem_read(&b->r.mem, 0xe0000004, 4), 0xffffffff);
	assert_int_equal(mem_read(&b->r.mem, 0xe1000004, 4), 0xd4);
	cfg_write(b, TOY, BAR(0), 0xd100, 4);
	assert_int_equal(ports_read(b->r.bus.ports, 0xd001, 1), 0xff);
	assert_int_equal(ports_read(b->r.bus.ports, 0xd11f, 1), 0xef);
	/* a BAR over RAM loses, and one at 0 is off */
	cfg_write(b, TOY, BAR(1), 0x00100000, 4);
	mem_write(&b->r.mem, 0x100000, 0x11223344, 4);
	assert_int_equal(b->toy->writes, 0);
	cfg_write(b, TOY, BAR(1), 0, 4);
	assert_false(b->toy->pci.bar[1].region.mapped);
	/* beyond what a CPU can address */
	cfg_write(b, TOY, BAR(3), 0xfff00000, 4);
	assert_false(b->toy->pci.bar[2].region.mapped);
	/* an I/O BAR above the port space */
	cfg_write(b, TOY, BAR(0), 0x12340, 4);
	assert_false(b->toy->pci.bar[0].region.mapped);
}

static void test_bar_overlap(void **state)
{
	struct board *b = *state;
	struct toy *other = board_add_toy(b, "addr=5");

	for (unsigned slot = TOY; slot <= 0x28; slot += 8) {
		cfg_write(b, slot, BAR(1), 0xe0000000, 4);
		cfg_write(b, slot, COMMAND, 2, 2);
	}
	/* one of them answers, and when it leaves the other does */
	mem_read(&b->r.mem, 0xe0000000, 4);
	assert_int_equal(b->toy->reads + other->reads, 1);
	cfg_write(b, other->reads ? 0x28 : TOY, COMMAND, 0, 2);
	mem_read(&b->r.mem, 0xe0000000, 4);
	assert_int_equal(b->toy->reads, 1);
	assert_int_equal(other->reads, 1);
}

static void test_place(void **state)
{
	struct board *b = *state;
	uint64_t io, mem, mem64;

	pci_config_write(b->r.bus.pci, 8, 0x60, 10, 1); /* PIRQA */
	pci_config_write(b->r.bus.pci, 8, 0x63, 11, 1); /* PIRQD */
	pci_bus_place_bars(b->r.bus.pci);
	io = cfg_read(b, TOY, BAR(0), 4) & ~3u;
	mem = cfg_read(b, TOY, BAR(1), 4) & ~0xfu;
	mem64 = cfg_read(b, TOY, BAR(2), 4) & ~0xfu;
	mem64 |= (uint64_t)cfg_read(b, TOY, BAR(3), 4) << 32;
	assert_int_equal(io, 0xc000);
	assert_in_range(mem, 0xc0000000, 0xfec00000 - 4096);
	assert_int_equal(mem % 4096, 0);
	assert_int_equal(mem64 % 16384, 0);
	assert_int_equal(ports_read(b->r.bus.ports, (uint16_t)io, 1), 0xd0);
	assert_int_equal(mem_read(&b->r.mem, mem, 4), 0xd0);
	assert_int_equal(mem_read(&b->r.mem, mem64, 4), 0xd0);
	assert_int_equal(cfg_read(b, TOY, 0x3c, 1), 11); /* slot 4, pin A: PIRQD */
	/* the same again after a reset */
	dev_reset_all(&b->r.bus);
	assert_false(b->toy->pci.bar[0].region.mapped);
	assert_int_equal(cfg_read(b, TOY, BAR(1), 4), 0);
	pci_bus_place_bars(b->r.bus.pci);
	assert_int_equal(cfg_read(b, TOY, BAR(1), 4) & ~0xfu, mem);
	/* no room: left alone, not decoded */
	pci_bus_set_windows(b->r.bus.pci, 0xfff0, 0xc0000000, 0xc0001000, 0, 0);
	dev_reset_all(&b->r.bus);
	pci_bus_place_bars(b->r.bus.pci);
	assert_false(b->toy->pci.bar[0].region.mapped);
	assert_true(b->toy->pci.bar[1].region.mapped);
	assert_false(b->toy->pci.bar[2].region.mapped);
}

static uint64_t msix_base(struct board *b)
{
	cfg_write(b, TOY, BAR(1), 0xe0000000, 4);
	cfg_write(b, TOY, COMMAND, 6, 2);
	return 0xe0000000;
}

static void msix_entry(struct board *b, uint64_t bar, unsigned v, uint32_t addr, uint32_t data, uint32_t ctrl)
{
	mem_write(&b->r.mem, bar + 0x800 + v * 16, addr, 4);
	mem_write(&b->r.mem, bar + 0x804 + v * 16, 0, 4);
	mem_write(&b->r.mem, bar + 0x808 + v * 16, data, 4);
	mem_write(&b->r.mem, bar + 0x80c + v * 16, ctrl, 4);
}

static void test_msix(void **state)
{
	struct board *b = *state;
	struct pci_dev *p = &b->toy->pci;
	unsigned cap = cfg_read(b, TOY, 0x34, 1);
	uint64_t bar = msix_base(b);

	assert_true(cfg_read(b, TOY, STATUS, 2) & 0x10);
	assert_int_equal(cfg_read(b, TOY, cap, 1), 0x11);
	assert_int_equal(cfg_read(b, TOY, cap + 2, 2), 3); /* 4 vectors */
	assert_int_equal(cfg_read(b, TOY, cap + 4, 4), 0x801);
	assert_int_equal(cfg_read(b, TOY, cap + 8, 4), 0xc01);
	assert_int_equal(mem_read(&b->r.mem, bar + 0x80c, 4), 1); /* masked after reset */
	/* the rest of the BAR is the device's */
	assert_int_equal(mem_read(&b->r.mem, bar + 0x840, 4), 0xd0 + 0x840);
	/* off: nothing is sent, nothing is remembered */
	pci_msix_notify(p, 0);
	msix_entry(b, bar, 0, 0xfee00000, 0x31, 0);
	msix_entry(b, bar, 1, 0xfee01000, 0x32, 1);
	cfg_write(b, TOY, cap + 2, 0x8000, 2);
	assert_int_equal(b->nmsi, 0);
	pci_msix_notify(p, 0);
	assert_int_equal(b->nmsi, 1);
	assert_int_equal(b->msi_addr[0], 0xfee00000);
	assert_int_equal(b->msi_data[0], 0x31);
	/* masked: pending, then sent once when the mask goes */
	pci_msix_notify(p, 1);
	pci_msix_notify(p, 1);
	assert_int_equal(b->nmsi, 1);
	assert_int_equal(mem_read(&b->r.mem, bar + 0xc00, 8), 2);
	assert_int_equal(mem_read(&b->r.mem, bar + 0xc04, 4), 0);
	mem_write(&b->r.mem, bar + 0xc00, 0, 8); /* the PBA is read-only */
	mem_write(&b->r.mem, bar + 0x81c, 0, 4);
	assert_int_equal(b->nmsi, 2);
	assert_int_equal(b->msi_data[1], 0x32);
	assert_int_equal(mem_read(&b->r.mem, bar + 0xc00, 8), 0);
	/* function mask */
	cfg_write(b, TOY, cap + 2, 0xc000, 2);
	assert_false(pci_msix_enabled(p));
	assert_true(pci_msix_active(p));
	pci_msix_notify(p, 0);
	assert_int_equal(b->nmsi, 2);
	cfg_write(b, TOY, cap + 2, 0x8000, 2);
	assert_int_equal(b->nmsi, 3);
	/* a message needs bus mastering, a vector must exist */
	cfg_write(b, TOY, COMMAND, 2, 2);
	pci_msix_notify(p, 0);
	pci_msix_notify(p, 4);
	pci_msix_notify(p, 65535);
	assert_int_equal(b->nmsi, 3);
	assert_true(b->toy->changed >= 4);
	/* odd sizes: 8 bytes at once, parts of a dword are ignored */
	mem_write(&b->r.mem, bar + 0x820, 0x1fee02003ull, 8);
	assert_int_equal(p->msix[2].addr, 0x1fee02000ull);
	mem_write(&b->r.mem, bar + 0x828, 0xff, 1);
	assert_int_equal(p->msix[2].data, 0);
	/* the table moves with its BAR */
	cfg_write(b, TOY, BAR(1), 0xe2000000, 4);
	assert_int_equal(mem_read(&b->r.mem, 0xe2000808, 4), 0x31);
	assert_int_equal(mem_read(&b->r.mem, bar + 0x808, 4), 0xffffffff);
	toy_reset(&p->dev);
	assert_int_equal(p->msix[0].ctrl, 1);
	assert_false(pci_msix_active(p));
}

static int msi_toy_realize(struct dev *d, struct err *err)
{
	struct pci_dev *p = container_of(d, struct pci_dev, dev);

	p->vendor = 0x1234;
	p->device = 0x0005;
	if (pci_register(p, err))
		return -EINVAL;
	assert_int_equal(pci_msi_init(p, 3, NULL), -EINVAL);
	assert_int_equal(pci_msi_init(p, 64, NULL), -EINVAL);
	return pci_msi_init(p, 4, err);
}

static const struct dev_ops msi_toy_ops = {
    .type = {.name = "msi-toy", .about = "test device", .parent = "pci-device", .size = sizeof(struct toy)},
    .bus_kind = DEV_BUS_PCI,
    .realize = msi_toy_realize,
    .unrealize = toy_unrealize,
    .reset = toy_reset,
};

static void msi_notify(struct pci_dev *p, unsigned vector)
{
	pthread_mutex_lock(&p->dev.lock);
	pci_msi_notify(p, vector);
	pthread_mutex_unlock(&p->dev.lock);
}

#define MSI_TOY 0x30 /* slot 6 */

static void test_msi(void **state)
{
	struct board *b = *state;
	struct pci_dev *p = container_of(rig_dev(&b->r, &msi_toy_ops, "addr=6", NULL), struct pci_dev, dev);
	unsigned cap = cfg_read(b, MSI_TOY, 0x34, 1);

	assert_int_equal(cfg_read(b, MSI_TOY, cap, 1), 0x05);
	assert_int_equal(cfg_read(b, MSI_TOY, cap + 2, 2), 0x0184); /* 4 vectors, 64-bit, maskable, off */
	cfg_write(b, MSI_TOY, COMMAND, 6, 2);
	msi_notify(p, 0); /* off: nothing is sent, nothing remembered */
	cfg_write(b, MSI_TOY, cap + 4, 0xfee01003, 4);
	cfg_write(b, MSI_TOY, cap + 8, 0x1, 4);
	cfg_write(b, MSI_TOY, cap + 12, 0x4043, 4);
	cfg_write(b, MSI_TOY, cap + 2, 0x21, 2); /* on, all four */
	assert_int_equal(b->nmsi, 0);
	assert_int_equal(cfg_read(b, MSI_TOY, cap + 4, 4), 0xfee01000);
	msi_notify(p, 2);
	assert_int_equal(b->nmsi, 1);
	assert_int_equal(b->msi_addr[0], 0x1fee01000ull);
	assert_int_equal(b->msi_data[0], 0x4042); /* the low bits are the vector */
	/* masked: pending, sent once when the mask goes; pending bits are read-only */
	cfg_write(b, MSI_TOY, cap + 16, 0xffffffff, 4);
	assert_int_equal(cfg_read(b, MSI_TOY, cap + 16, 4), 0xf);
	msi_notify(p, 1);
	msi_notify(p, 1);
	cfg_write(b, MSI_TOY, cap + 20, 0, 4);
	assert_int_equal(cfg_read(b, MSI_TOY, cap + 20, 4), 2);
	assert_int_equal(b->nmsi, 1);
	cfg_write(b, MSI_TOY, cap + 16, 0, 4);
	assert_int_equal(b->nmsi, 2);
	assert_int_equal(b->msi_data[1], 0x4041);
	assert_int_equal(cfg_read(b, MSI_TOY, cap + 20, 4), 0);
	/* fewer messages than vectors: they share; more granted than there are: what there are */
	cfg_write(b, MSI_TOY, cap + 2, 0x01, 2);
	msi_notify(p, 3);
	assert_int_equal(b->msi_data[2], 0x4043);
	cfg_write(b, MSI_TOY, cap + 2, 0x71, 2);
	msi_notify(p, 7);
	assert_int_equal(b->msi_data[3], 0x4043);
	/* a message needs bus mastering */
	cfg_write(b, MSI_TOY, COMMAND, 2, 2);
	msi_notify(p, 0);
	assert_int_equal(b->nmsi, 4);
	toy_reset(&p->dev);
	assert_int_equal(cfg_read(b, MSI_TOY, cap + 2, 2), 0x0184);
	assert_int_equal(cfg_read(b, MSI_TOY, cap + 4, 4), 0);
	for (unsigned off = cap; off < cap + 24; off++) { /* odd accesses to all of it */
		cfg_write(b, MSI_TOY, off, 0xffffffff, 1);
		msi_notify(p, off);
	}
}

static void test_intx(void **state)
{
	struct board *b = *state;
	struct toy *shared = board_add_toy(b, "addr=8"); /* four slots on: the same input, PIRQD */
	struct toy *other = board_add_toy(b, "addr=5");	 /* PIRQA */

	pci_config_write(b->r.bus.pci, 8, 0x60, 10, 1);
	pci_config_write(b->r.bus.pci, 8, 0x63, 11, 1);
	pci_set_intx(&b->toy->pci, 1);
	pci_set_intx(&b->toy->pci, 1); /* a level, not a count */
	assert_int_equal(b->gsi_level[11], 1);
	assert_true(cfg_read(b, TOY, STATUS, 2) & 8);
	pci_set_intx(&shared->pci, 1);
	pci_set_intx(&b->toy->pci, 0);
	assert_int_equal(b->gsi_level[11], 1); /* the other one still asks */
	assert_int_equal(b->gsi_edges[11], 1);
	pci_set_intx(&shared->pci, 0);
	assert_int_equal(b->gsi_level[11], 0);
	pci_set_intx(&other->pci, 1);
	assert_int_equal(b->gsi_level[10], 1);
	/* INTx disable takes it off the wire and puts it back */
	cfg_write(b, 0x28, COMMAND, 0x400, 2);
	assert_int_equal(b->gsi_level[10], 0);
	assert_true(cfg_read(b, 0x28, STATUS, 2) & 8);
	cfg_write(b, 0x28, COMMAND, 0, 2);
	assert_int_equal(b->gsi_level[10], 1);
	/* rerouting moves the level; two inputs on one ISA interrupt are ORed */
	pci_config_write(b->r.bus.pci, 8, 0x60, 11, 1);
	assert_int_equal(b->gsi_level[10], 0);
	assert_int_equal(b->gsi_level[11], 1);
	pci_set_intx(&b->toy->pci, 1);
	pci_set_intx(&other->pci, 0);
	assert_int_equal(b->gsi_level[11], 1);
	pci_set_intx(&b->toy->pci, 0);
	assert_int_equal(b->gsi_level[11], 0);
	/* not routed, and routed to what is no PCI interrupt (0, 8, 13) */
	pci_set_intx(&other->pci, 1);
	pci_config_write(b->r.bus.pci, 8, 0x60, 0x80, 1);
	assert_int_equal(b->gsi_level[11], 0);
	pci_config_write(b->r.bus.pci, 8, 0x60, 8, 1);
	assert_int_equal(b->gsi_level[8], 0);
	/* a device that goes takes its level along */
	pci_config_write(b->r.bus.pci, 8, 0x60, 10, 1);
	assert_int_equal(b->gsi_level[10], 1);
	dev_destroy(&other->pci.dev);
	assert_int_equal(b->gsi_level[10], 0);
}

static void expect_no_dev(struct board *b, const char *prop, const char *value, const char *part)
{
	struct err err = {0};
	struct dev *d = dev_new_ops(&b->r.bus, &toy_ops, &err);

	assert_non_null(d);
	assert_int_equal(dev_set(d, prop, value, &err), 0);
	assert_true(dev_realize(d, &err) < 0);
	if (!strstr(err.msg, part))
		fail_msg("\"%s\" lacks \"%s\"", err.msg, part);
	dev_destroy(d);
}

static void test_slots(void **state)
{
	struct board *b = *state;
	struct dev *d = rig_dev(&b->r, &toy_ops, NULL);
	struct toy *t = container_of(d, struct toy, pci.dev);

	assert_int_equal(t->pci.devfn, 2 << 3); /* the first free one */
	expect_no_dev(b, "addr", "4", "taken by \"toy\"");
	expect_no_dev(b, "addr", "4.1", "not multifunction");
	expect_no_dev(b, "bus", "pci.7", "no PCI bus \"pci.7\"");
	board_add_toy(b, "addr=1.2"); /* the ISA bridge is multifunction */
	for (unsigned i = 0; i < 32 - 4; i++)
		rig_dev(&b->r, &toy_ops, NULL);
	expect_no_dev(b, "multifunction", "on", "no free slot");
}

/* Doorbells follow their BAR. */
static unsigned bells;
static uint64_t bell_addr;
static int board_doorbell(void *opaque, bool port, uint64_t addr, unsigned size, bool match, uint64_t value, int fd,
			  bool assign)
{
	bells += assign ? 1 : -1u;
	bell_addr = addr;
	return 0;
}

static void test_doorbell(void **state)
{
	struct board *b = *state;
	struct region_doorbell db = {.off = 0x100, .size = 2, .fd = 7}, db2 = {.off = 0x104, .size = 2, .fd = 8};

	bells = 0;
	assert_int_equal(pci_doorbell_add(&b->toy->pci, 1, &db), -ENOSYS);
	b->r.bus.doorbell = board_doorbell;
	assert_int_equal(pci_doorbell_add(&b->toy->pci, 1, &db), 0);
	assert_int_equal(bells, 0); /* not mapped yet */
	cfg_write(b, TOY, BAR(1), 0xe0000000, 4);
	cfg_write(b, TOY, COMMAND, 2, 2);
	assert_int_equal(bells, 1);
	assert_int_equal(bell_addr, 0xe0000100);
	assert_int_equal(pci_doorbell_add(&b->toy->pci, 1, &db2), 0);
	assert_int_equal(bells, 2);
	cfg_write(b, TOY, BAR(1), 0xe4000000, 4);
	assert_int_equal(bells, 2);
	assert_int_equal(bell_addr & ~0xfffull, 0xe4000000);
	pci_doorbell_del(&b->toy->pci, 1, &db);
	assert_int_equal(bells, 1);
	cfg_write(b, TOY, COMMAND, 0, 2);
	assert_int_equal(bells, 0);
	pci_doorbell_del(&b->toy->pci, 1, &db2);
	assert_int_equal(bells, 0);
}

/* Whatever a guest writes into configuration space, the machine stays sane. */
static void test_random_writes(void **state)
{
	struct board *b = *state;
	unsigned seed = 1;

	for (int i = 0; i < 20000; i++) {
		static const unsigned slots[] = {0, 8, TOY};
		unsigned slot = slots[(unsigned)rand_r(&seed) % 3], off = (unsigned)rand_r(&seed) % 256;
		unsigned size = 1u << (rand_r(&seed) % 3);

		cfg_write(b, slot, off & ~(size - 1), (uint32_t)rand_r(&seed) << 1, size);
		cfg_read(b, slot, off & ~(size - 1), size);
	}
	assert_int_equal(cfg_read(b, TOY, 0, 4), 0x56781234);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
	    T(test_config),	 T(test_reset_register), T(test_bar_sizing), T(test_bar_decode),
	    T(test_bar_overlap), T(test_place),		 T(test_msi),	     T(test_msix),
	    T(test_intx),	 T(test_slots),		 T(test_doorbell),   T(test_random_writes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
