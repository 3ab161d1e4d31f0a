// SPDX-License-Identifier: GPL-2.0-or-later
/* The device fuzzer's NVMe controller: admin and I/O commands with any dwords and PRPs, doorbells, registers. */
#include <string.h>

#include "fuzz_device.h"

#define ASQ	0x200000u
#define ACQ	0x202000u
#define SQ(q)	(0x204000u + 0x4000u * ((q)-1))
#define CQ(q)	(0x206000u + 0x4000u * ((q)-1))
#define LISTS	0x300000u
#define DATA	0x310000u
#define ENTRIES 16u
#define QUEUES	3u /* one of them the admin queue */

static unsigned devfn;
static uint32_t tail[QUEUES];

static void put(unsigned reg, uint32_t val)
{
	mem_write(&fuzz_m.mem, fuzz_bar + reg, val, 4);
}

static uint32_t get(unsigned reg)
{
	return (uint32_t)mem_read(&fuzz_m.mem, fuzz_bar + reg, 4);
}

static void plug(void)
{
	fuzz_drive("d", ",discard=unmap");
	devfn = (unsigned)container_of(fuzz_plug("nvme,drive=d,serial=N1"), struct pci_dev, dev)->devfn;
}

static uint8_t *entry(unsigned q)
{
	uint8_t *e = fuzz_ram((q ? SQ(q) : ASQ) + 64 * tail[q]);

	memset(e, 0, 64);
	tail[q] = (tail[q] + 1) % ENTRIES;
	return e;
}

static void create_queue(uint8_t opcode, uint64_t at, uint32_t q, uint32_t cdw11)
{
	uint8_t *e = entry(0);

	e[0] = opcode;
	st64le(e + 24, at);
	st32le(e + 40, q | (ENTRIES - 1) << 16);
	st32le(e + 44, cdw11);
	put(0x1000, tail[0]);
	loop_run_once(fuzz_m.bus.loop, 0);
}

static bool ready(void)
{
	return get(0x1c) & 1;
}

static bool not_ready(void)
{
	return !ready();
}

static void enable(void)
{
	put(0x24, (ENTRIES - 1) << 16 | (ENTRIES - 1));
	put(0x28, ASQ);
	put(0x2c, 0);
	put(0x30, ACQ);
	put(0x34, 0);
	put(0x14, 0x00460001);
	memset(tail, 0, sizeof(tail));
	if (!fuzz_settle(ready))
		fuzz_fail("does not become ready");
	for (uint32_t q = 1; q < QUEUES; q++) {
		create_queue(0x05, CQ(q), q, 3);
		create_queue(0x01, SQ(q), q, 1 | q << 16);
	}
}

static void start(void)
{
	pci_config_write(fuzz_m.bus.pci, devfn, 4, 6, 2);
	fuzz_bar = pci_config_read(fuzz_m.bus.pci, devfn, 0x10, 4) & ~15u;
	enable();
}

static void command(struct input *in)
{
	const uint32_t how = take(in, 1);
	const unsigned q = (how & 3) % QUEUES;
	uint8_t *e = entry(q);

	e[0] = (uint8_t)take(in, 1);
	e[1] = how & 4 ? (uint8_t)take(in, 1) : 0;
	st16le(e + 2, (uint16_t)tail[q]);
	st32le(e + 4, how & 8 ? take(in, 4) : 1);
	st64le(e + 24, fuzz_address(in));
	st64le(e + 32, how & 16 ? fuzz_address(in) : 0);
	for (unsigned i = 40; i < (how & 32 ? 64u : 52u); i += 4)
		st32le(e + i, take(in, how & 64 ? 4 : 2));
	if (how & 128)
		return;
	put(0x1000 + 8 * q, tail[q]);
	/* Completions are taken as they come, unless the queue is to run full. */
	if (!(how & 4))
		put(0x1004 + 8 * q, tail[q]);
	loop_run_once(fuzz_m.bus.loop, 0);
}

static void registers(struct input *in)
{
	const uint32_t how = take(in, 1), off = take(in, 1);
	const uint64_t at = fuzz_bar + (how & 1 ? 0x1000 + 4 * (off & 15) : off & 0x7f);

	switch (how >> 1 & 3) {
	case 0: mem_read(&fuzz_m.mem, at, 1u << (how >> 6)); break;
	case 1: mem_write(&fuzz_m.mem, at, take(in, 4), how & 8 ? 1u << (how >> 6) : 4); break;
	case 2: put((unsigned)(at - fuzz_bar), take(in, 1) & 31); break;
	case 3:
		put(0x14, 0);
		if (!fuzz_settle(not_ready))
			fuzz_fail("does not stop");
		enable();
		break;
	}
}

static void finish(void)
{
	put(0x14, 0);
	if (!fuzz_settle(not_ready))
		fuzz_fail("does not stop");
	enable();
	/* IDENTIFY: the answer names the serial number. */
	uint8_t *e = entry(0);
	e[0] = 0x06;
	st64le(e + 24, DATA);
	st32le(e + 40, 1);
	put(0x1000, tail[0]);
	for (int i = 0; i < 100 && memcmp(fuzz_ram(DATA + 4), "N1 ", 3); i++)
		loop_run_once(fuzz_m.bus.loop, 0);
	if (memcmp(fuzz_ram(DATA + 4), "N1 ", 3))
		fuzz_fail("IDENTIFY gives nothing after a reset");
}

const struct fuzz_target fuzz_nvme = {
    "nvme", plug, start, command, registers, finish, {DATA, LISTS, ASQ, DATA + 0x10000}};
