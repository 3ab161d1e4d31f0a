// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer target: the whole board with every kind of device, as guest code of any intent reaches it: ports, memory,
 * configuration space, rings of both layouts, bytes and addresses in RAM, resets, steps of the clock. No CPU runs
 * (-accel qtest). Afterwards a reset must bring the machine to rest. Host I/O is synchronous and the clock the input's,
 * so that an input does the same each time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "board.h"
#include "bus/pci.h"
#include "input.h"
#include "memory_disks.h"

#define MAX_OPS	    300
#define MAX_TURNS   20000
#define MAX_RESETS  2	      /* of an input: each loads the firmware's tables again, which is most of the time */
#define WINDOW	    0x200000u /* 1 MiB of RAM that is zero for each input */
#define WINDOW_SIZE 0x100000u
#define MAX_BARS    96
#define MAX_VIRTIO  12

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const devices[] = {"ide-hd,drive=d0,bus=ide.0",
				      "ide-cd,drive=cd0,bus=ide.1",
				      "ahci,id=a",
				      "ide-hd,drive=d1,bus=a.0",
				      "nvme,drive=d2,serial=N",
				      "lsi,id=l",
				      "scsi-hd,drive=d3,bus=l.0",
				      "virtio-scsi-pci,id=s",
				      "scsi-hd,drive=d4,bus=s.0",
				      "virtio-scsi-pci,packed=on",
				      "virtio-blk-pci,drive=d5",
				      "virtio-blk-pci,drive=d6,packed=on",
				      "virtio-rng-pci",
				      "virtio-balloon-pci,packed=on",
				      "virtio-serial-pci,packed=on",
				      "virtconsole,chardev=n1",
				      "pc-testdev",
				      "pci-testdev",
				      "isa-debugcon,chardev=n2"};
static const uint16_t ports[] = {0x00,	0x20,  0x40,  0x60,  0x70,  0x80,  0x92,   0xa0,  0xc0,	 0xe8,
				 0xf0,	0x170, 0x1f0, 0x376, 0x3f6, 0x3f8, 0x4d0,  0x510, 0x5f8, 0x600,
				 0x608, 0xae0, 0xb00, 0xb2,  0xcf8, 0xcfc, 0x2000, 0xe0,  0x3e8, 0xafe0};
static const uint64_t regions[] = {0xfec00000, 0xfed00000, 0xfee00000, 0xff000000};

static struct {
	uint64_t addr;
	bool port;
} bars[MAX_BARS];
static unsigned nbars;
static struct {
	uint64_t common, notify;
	uint32_t mult;
	uint64_t ring;	 /* of the queue set up last */
	uint16_t num, n; /* its entries; descriptors given so far */
	uint16_t queue;
} virtio[MAX_VIRTIO];
static unsigned nvirtio;
static unsigned resets; /* by this input */
static bool fresh;	/* nothing was done since a reset */

/* ---- the input ---------------------------------------------------------------------- */

/* Where a guest may point DMA: RAM mostly; registers, the end of RAM, nowhere. */
static uint64_t address(struct input *in)
{
	const unsigned how = (unsigned)take(in, 1);

	switch (how >> 4) {
	case 15: return take(in, 8);
	case 14: return regions[how & 3];
	case 13: return nbars ? bars[take(in, 1) % nbars].addr + (how & 15) * 4 : 0;
	case 12: return c.vm.ram_size - 64 + (how & 15) * 8;
	default: return WINDOW + (how & 15) * 0x10000 + take(in, 2);
	}
}

/* ---- the machine ---------------------------------------------------------------------- */

static _Noreturn void fail(const char *why)
{
	fprintf(stderr, "machine: %s\n", why);
	abort();
}

static void drive(const char *id, const char *more)
{
	struct err err = {0};

	check(memory_disk(id, more, loop, &err), &err);
}

/* So that the board places the BARs as a BIOS does. */
static const char *kernel(void)
{
	static char name[40];
	const int fd = memfd_create("kernel", MFD_CLOEXEC);

	if (fd < 0 || write(fd, board_kernel, sizeof(board_kernel)) != sizeof(board_kernel))
		fail("no kernel");
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	return name;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *const line[] = {"kelvin", "-accel",	      "qtest",	 "-m",	   "16",      "-nodefaults", "-display",
				    "none",   "-no-shutdown", "-kernel", kernel(), "-serial", "chardev:n0"};
	struct err err = {0};

	drive_init();
	loop = loop_create("main", &err);
	check(loop && !cmdline_parse(&c, ARRAY_SIZE(line), (char **)line, &err), &err);
	for (unsigned n = 0; n < 3; n++) {
		char text[20];

		snprintf(text, sizeof(text), "null,id=n%u", n);
		check(chr_create(text, loop, &err), &err);
	}
	for (unsigned n = 0; n < 7; n++) {
		char id[3] = {'d', (char)('0' + n), 0};

		drive(id, ",discard=unmap");
	}
	drive("cd0", ",media=cdrom");
	for (size_t n = 0; n < ARRAY_SIZE(devices); n++)
		check(!text_list_add(&c.devices, devices[n]), &err);
	c.vm.devices = c.devices.v;
	c.vm.ndevices = (unsigned)c.devices.n;
	vm = vm_create(&c.vm, loop, &err);
	check(vm, &err);
	vm_start(vm);
	atexit(destroy);
	return 0;
}

static struct bus *bus(void)
{
	return vm_bus(vm);
}

/* Whatever the input did: reset, and running. */
static void restart(void)
{
	vm_system_reset(vm);
	for (int i = 0; i < MAX_TURNS; i++) {
		loop_run_once(loop, 0);
		if (i < 4)
			continue;
		if (vm_state(vm) == VM_RUNNING)
			return;
		vm_start(vm);
	}
	fail("does not come to rest");
}

static void find_virtio(unsigned devfn)
{
	struct pci_bus *pci = bus()->pci;
	uint64_t common = 0, notify = 0;
	uint32_t mult = 0;

	for (unsigned at = pci_config_read(pci, devfn, 0x34, 1), n = 0; at && n < 48;
	     at = pci_config_read(pci, devfn, at + 1, 1), n++) {
		const unsigned reg = 0x10 + 4 * (pci_config_read(pci, devfn, at + 4, 1) & 7);
		uint64_t addr = pci_config_read(pci, devfn, reg, 4);

		if (pci_config_read(pci, devfn, at, 1) != 9)
			continue;
		if ((addr & 7) == 4)
			addr |= (uint64_t)pci_config_read(pci, devfn, reg + 4, 4) << 32;
		addr = (addr & ~15ull) + pci_config_read(pci, devfn, at + 8, 4);
		if (pci_config_read(pci, devfn, at + 3, 1) == 1)
			common = addr;
		if (pci_config_read(pci, devfn, at + 3, 1) == 2) {
			notify = addr;
			mult = pci_config_read(pci, devfn, at + 16, 4);
		}
	}
	if (common && notify && nvirtio < MAX_VIRTIO) {
		memset(&virtio[nvirtio], 0, sizeof(virtio[0]));
		virtio[nvirtio].common = common;
		virtio[nvirtio].notify = notify;
		virtio[nvirtio++].mult = mult;
	}
}

static void find_bars(void)
{
	struct pci_bus *pci = bus()->pci;

	nbars = nvirtio = 0;
	for (unsigned devfn = 0; devfn < 256; devfn++) {
		if (pci_config_read(pci, devfn, 0, 2) == 0xffff)
			continue;
		pci_config_write(pci, devfn, 4, 7, 2);
		for (unsigned reg = 0x10; reg < 0x28 && nbars < MAX_BARS; reg += 4) {
			const uint32_t v = pci_config_read(pci, devfn, reg, 4);
			uint64_t addr = v & 1 ? v & ~3u : v & ~15u;

			if ((v & 7) == 4)
				addr |= (uint64_t)pci_config_read(pci, devfn, reg += 4, 4) << 32;
			if (!addr)
				continue;
			bars[nbars].port = v & 1;
			bars[nbars++].addr = addr;
		}
		if (pci_config_read(pci, devfn, 0, 2) == 0x1af4)
			find_virtio(devfn);
	}
}

/* ---- operations ------------------------------------------------------------------------ */

static void op_port(struct input *in)
{
	const unsigned how = (unsigned)take(in, 1), size = 1u << how % 3;
	const uint16_t port = (uint16_t)(ports[take(in, 1) % ARRAY_SIZE(ports)] + (how >> 3 & 15));

	if (how & 4)
		ports_read(bus()->ports, port, size);
	else
		ports_write(bus()->ports, port, take(in, size), size);
}

static void op_bar(struct input *in)
{
	const unsigned how = (unsigned)take(in, 1), n = (unsigned)take(in, 1),
		       off = (unsigned)take(in, how & 8 ? 2 : 1);
	const unsigned size = 1u << (how & 3);
	const bool fixed = how & 0x80 || !nbars;
	const uint64_t addr =
	    (fixed ? regions[n % ARRAY_SIZE(regions)] : bars[n % nbars].addr) + off * (how & 16 ? 4 : 1);

	if (!fixed && bars[n % nbars].port) {
		const unsigned narrow = MIN(size, 4u);

		if (how & 4)
			ports_read(bus()->ports, (uint16_t)addr, narrow);
		else
			ports_write(bus()->ports, (uint16_t)addr, take(in, narrow), narrow);
	} else if (how & 4) {
		mem_read(bus()->mem, addr, size);
	} else {
		mem_write(bus()->mem, addr, how & 32 ? address(in) : take(in, size), size);
	}
}

static void op_config(struct input *in)
{
	const unsigned devfn = (unsigned)take(in, 1), reg = (unsigned)take(in, 1), size = 1u << take(in, 1) % 3;

	pci_config_write(bus()->pci, devfn & 0x7f, reg & ~(size - 1), (uint32_t)take(in, size), size);
}

static void op_ram(struct input *in)
{
	const uint64_t to = WINDOW + (take(in, 1) & 15) * 0x10000 + take(in, 2);
	uint8_t bytes[64];
	const unsigned n = (unsigned)take(in, 1) % 64;

	for (unsigned i = 0; i < n; i++)
		bytes[i] = (uint8_t)take(in, 1);
	dma_write(bus()->mem, to, bytes, n);
}

static void op_address(struct input *in)
{
	const uint64_t to = WINDOW + (take(in, 1) & 15) * 0x10000 + take(in, 2), addr = address(in);

	dma_write(bus()->mem, to, &addr, 8);
}

static void put(uint64_t addr, uint64_t val, unsigned size)
{
	mem_write(bus()->mem, addr, val, size);
}

/* Reset, negotiate, and one queue of the device. */
static void op_virtio_start(struct input *in)
{
	const unsigned how = (unsigned)take(in, 1), v = how % MAX(nvirtio, 1u);
	const uint64_t at = virtio[v].common;
	uint64_t ring;

	if (!nvirtio)
		return;
	virtio[v].queue = (uint16_t)(take(in, 1) & 7);
	virtio[v].num = (uint16_t)(1u << (how >> 5));
	virtio[v].n = 0;
	ring = virtio[v].ring = how & 16 ? address(in) : WINDOW + v * 0x4000;
	if (!(how & 8)) {
		put(at + 20, 0, 1);
		put(at + 20, 3, 1);
		for (unsigned word = 0; word < 2; word++) {
			put(at, word, 4);
			put(at + 8, word, 4);
			put(at + 12, mem_read(bus()->mem, at + 4, 4) & ~(word ? 0 : take(in, 4)), 4);
		}
		put(at + 20, 11, 1);
	}
	put(at + 0x16, virtio[v].queue, 2);
	put(at + 0x18, virtio[v].num, 2);
	for (unsigned n = 0; n < 3; n++) {
		put(at + 0x20 + 8 * n, (uint32_t)(ring + 0x1000 * n), 4);
		put(at + 0x24 + 8 * n, (ring + 0x1000 * n) >> 32, 4);
	}
	put(at + 0x1c, 1, 2);
	put(at + 20, 15, 1);
}

/* Descriptors, in the layout of both kinds of ring (the device reads the one it negotiated), and a kick. */
static void op_virtio_chain(struct input *in)
{
	const unsigned how = (unsigned)take(in, 1), v = how % MAX(nvirtio, 1u), count = 1 + (how >> 4 & 3);
	const bool packed = how & 8;

	if (!nvirtio || !virtio[v].num)
		return;
	for (unsigned k = 0; k < count; k++) {
		const uint16_t i = virtio[v].n++, slot = i % virtio[v].num;
		const bool lap = !(i / virtio[v].num & 1);
		uint16_t flags = (uint16_t)((k + 1 < count ? 1 : 0) | (how >> (6 + (k & 1)) & 1 ? 2 : 0));
		uint8_t d[16];

		st64le(d, address(in));
		st32le(d + 8, (uint32_t)take(in, how & 128 ? 4 : 1));
		if (how & 4)
			flags = (uint16_t)take(in, 1);
		st16le(d + 12, packed ? i : flags);
		st16le(d + 14, packed ? flags | (lap ? 0x80 : 0x8000) : (uint16_t)((slot + 1) % virtio[v].num));
		dma_write(bus()->mem, virtio[v].ring + 16 * slot, d, 16);
	}
	if (!packed) {
		uint8_t avail[4] = {0};
		const uint16_t head = (uint16_t)((virtio[v].n - count) % virtio[v].num);
		uint16_t idx;

		dma_read(bus()->mem, virtio[v].ring + 0x1000, avail, 4);
		idx = ld16le(avail + 2);
		st16le(avail, head);
		dma_write(bus()->mem, virtio[v].ring + 0x1004 + 2 * (idx % virtio[v].num), avail, 2);
		st16le(avail, (uint16_t)(idx + 1));
		dma_write(bus()->mem, virtio[v].ring + 0x1002, avail, 2);
	}
	put(virtio[v].notify + virtio[v].queue * virtio[v].mult, virtio[v].queue, 2);
	loop_run_once(loop, 0);
}

static void op_time(struct input *in)
{
	const unsigned how = (unsigned)take(in, 1);
	struct vmclock *clock = bus()->clock;

	if (how >= 0xf0 && resets++ < MAX_RESETS)
		vm_system_reset(vm);
	else if (how & 1)
		vmclock_step(clock, vmclock_ns(clock) + (1ull << (how >> 3)), 50);
	for (unsigned n = 0; n < (how >> 1 & 7); n++)
		loop_run_once(loop, 0);
}

static void (*const ops[])(struct input *in) = {
    op_port,	     op_port,	      op_bar,	       op_bar,		op_bar,		 op_config, op_ram, op_address,
    op_virtio_start, op_virtio_chain, op_virtio_chain, op_virtio_chain, op_virtio_chain, op_time,   op_bar, op_time,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	if (!memory_disks_empty())
		fail("no disk");
	memset(mem_ram_ptr(bus()->mem, WINDOW, WINDOW_SIZE), 0, WINDOW_SIZE);
	if (!fresh)
		restart();
	fresh = true; /* the input before left it so */
	resets = 0;
	find_bars();
	for (unsigned n = 0; in.left && n < MAX_OPS; n++)
		ops[take(&in, 1) % ARRAY_SIZE(ops)](&in);
	restart();
	return 0;
}
