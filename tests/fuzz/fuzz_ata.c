// SPDX-License-Identifier: GPL-2.0-or-later
/* The device fuzzer's ATA and ATAPI: a disk and a CD drive behind the PIIX3's channels and behind AHCI. */
#include <string.h>

#include "fuzz_device.h"
#include "hw/ide/ide.h"

#define BSY 0x80u

/* ---- PIIX3: task file, data port, bus master ------------------------------------------------ */

#define PRD  0x200000u
#define DATA 0x300000u

static unsigned ide_devfn;
static uint16_t bm;

static void ide_plug(void)
{
	struct err err = {0};
	struct dev *d = dev_new_ops(&fuzz_m.bus, &piix3_ide_ops, &err);

	if (!d || dev_realize(d, &err))
		fuzz_fail(err.msg);
	ide_devfn = (unsigned)container_of(d, struct pci_dev, dev)->devfn;
	fuzz_drive("d", ",discard=unmap");
	fuzz_plug("ide-hd,drive=d,bus=ide.0,unit=0");
	fuzz_drive("c", ",media=cdrom");
	fuzz_plug("ide-cd,drive=c,bus=ide.1,unit=0");
	fuzz_drive("e", "");
	fuzz_plug("ide-hd,drive=e,bus=ide.1,unit=1");
}

static void ide_start(void)
{
	pci_config_write(fuzz_m.bus.pci, ide_devfn, 4, 5, 2);
	bm = (uint16_t)(pci_config_read(fuzz_m.bus.pci, ide_devfn, 0x20, 4) & 0xfff0);
}

static void out(unsigned reg, uint32_t val, unsigned size)
{
	ports_write(fuzz_m.bus.ports, (uint16_t)reg, val, size);
}

static uint32_t in_(unsigned reg, unsigned size)
{
	return (uint32_t)ports_read(fuzz_m.bus.ports, (uint16_t)reg, size);
}

static bool ide_idle(void)
{
	return !(in_(0x3f6, 1) & BSY) && !(in_(0x376, 1) & BSY);
}

/* A PRD table and the bus master, in the direction that the input says. */
static void bus_master(struct input *in, bool second)
{
	const uint32_t how = take(in, 1), at = bm + (second ? 8 : 0);

	for (uint32_t i = 0; i < (how & 3) + 1; i++) {
		st32le(fuzz_ram(PRD + 8 * i), (uint32_t)fuzz_address(in));
		st32le(fuzz_ram(PRD + 8 * i + 4), take(in, 2) | (i == (how & 3) && !(how & 4) ? 1u << 31 : 0));
	}
	out(at + 2, 6, 1);
	out(at + 4, how & 8 ? (uint32_t)fuzz_address(in) : PRD, 4);
	out(at, how & 16 ? 1 : 9, 1);
}

static void ide_command(struct input *in)
{
	const uint32_t how = take(in, 1);
	const unsigned port = how & 1 ? 0x170 : 0x1f0;
	uint8_t file[6], words[32];

	take_bytes(in, file, how & 4 ? 6 : 3);
	if (how & 4) /* the high halves of a 48-bit command */
		for (unsigned i = 1; i < 6; i++)
			out(port + i, take(in, 1), 1);
	for (unsigned i = 1; i < 6; i++)
		out(port + i, i <= 3 || how & 4 ? file[i - 1] : 0, 1);
	out(port + 6, (how & 2 ? 0xf0 : 0xe0) | (file[0] & 15), 1);
	if (how & 8)
		bus_master(in, how & 1);
	out(port + 7, how & 16 ? 0xa0 : take(in, 1), 1);
	loop_run_once(fuzz_m.bus.loop, 0);
	if (how & 16) {
		take_bytes(in, words, 12);
		for (unsigned i = 0; i < 12; i += 2)
			out(port, ld16le(words + i), 2);
		loop_run_once(fuzz_m.bus.loop, 0);
	}
	fuzz_settle(ide_idle);
	switch (how >> 5 & 3) {
	case 1:
		for (uint32_t n = take(in, 1) * 4; n--;)
			in_(port, how & 128 ? 4 : 2);
		break;
	case 2: {
		const uint32_t n = take(in, 2) % 2200, given = MIN(n, 16u);

		take_bytes(in, words, given * 2);
		for (uint32_t i = 0; i < n; i++)
			out(port, i < given ? ld16le(words + 2 * i) : i, 2);
		break;
	}
	case 3: bus_master(in, how & 1); break;
	}
	loop_run_once(fuzz_m.bus.loop, 0);
}

static void ide_registers(struct input *in)
{
	const uint32_t how = take(in, 1), size = 1u << (take(in, 1) & 3) % 3;
	const unsigned where[4] = {0x1f0, 0x170, bm, bm + 8u};
	unsigned at = where[how & 3] + (how >> 2 & 7);

	if ((how & 0x62) == 0x60)
		at = where[how & 1] + 0x206;
	if (how & 128)
		out(at, take(in, size), size);
	else
		in_(at, size);
}

static void ide_finish(void)
{
	/* Bus masters stopped, software reset, and then there is nothing to wait for. */
	out(bm, 0, 1);
	out(bm + 8u, 0, 1);
	for (unsigned i = 0; i < 2; i++) {
		out(i ? 0x376 : 0x3f6, 4, 1);
		out(i ? 0x376 : 0x3f6, 0, 1);
	}
	if (!fuzz_settle(ide_idle))
		fuzz_fail("busy for ever after a software reset");
	out(0x1f6, 0xa0, 1);
	out(0x1f7, 0xec, 1);
	if (!fuzz_settle(ide_idle) || (in_(0x1f7, 1) & 0x89) != 0x08)
		fuzz_fail("IDENTIFY DEVICE has no data");
}

const struct fuzz_target fuzz_ide = {
    "ide", ide_plug, ide_start, ide_command, ide_registers, ide_finish, {DATA, DATA + 0x10000, PRD, DATA + 0x20000}};

/* ---- AHCI: lists, tables, queued commands ---------------------------------------------------- */

#define LIST(p)	   (0x400000u + 0x2000u * (p))
#define RX(p)	   (0x401000u + 0x2000u * (p))
#define SLOT(p, n) (0x410000u + 0x8000u * (p) + 0x400u * (n))
#define AHCI_DATA  0x500000u
#define PORT(p)	   (0x100u + 0x80u * (p))
#define AHCI_PORTS 2u

static unsigned ahci_devfn;

static void ahci_plug(void)
{
	struct dev *d = fuzz_plug("ich9-ahci,id=sata");

	ahci_devfn = (unsigned)container_of(d, struct pci_dev, dev)->devfn;
	fuzz_drive("d", ",discard=unmap");
	fuzz_plug("ide-hd,drive=d,bus=sata.0");
	fuzz_drive("c", ",media=cdrom");
	fuzz_plug("ide-cd,drive=c,bus=sata.1");
}

static void put(unsigned reg, uint32_t val)
{
	mem_write(&fuzz_m.mem, fuzz_bar + reg, val, 4);
}

static uint32_t get(unsigned reg)
{
	return (uint32_t)mem_read(&fuzz_m.mem, fuzz_bar + reg, 4);
}

static void ahci_start(void)
{
	pci_config_write(fuzz_m.bus.pci, ahci_devfn, 4, 6, 2);
	fuzz_bar = pci_config_read(fuzz_m.bus.pci, ahci_devfn, 0x24, 4) & ~15u;
	for (unsigned p = 0; p < AHCI_PORTS; p++) {
		put(PORT(p) + 0x00, LIST(p));
		put(PORT(p) + 0x08, RX(p));
		put(PORT(p) + 0x14, 0x7d4000ff);
		put(PORT(p) + 0x18, 0x10 | 6);
		put(PORT(p) + 0x18, 0x11 | 6);
	}
	put(4, 0x80000002);
}

static void ahci_command(struct input *in)
{
	const uint32_t how = take(in, 1), slot = take(in, 1) & 31, p = how & 1, prds = how >> 1 & 7;
	uint8_t *h = fuzz_ram(LIST(p) + 32 * slot), *t = fuzz_ram(SLOT(p, slot));

	memset(h, 0, 32);
	memset(t, 0, 0x80);
	st16le(h, (uint16_t)(5 | (how & 16 ? 0x20 : 0) | (how & 32 ? 0x40 : 0)));
	st16le(h + 2, (uint16_t)prds);
	st64le(h + 8, SLOT(p, slot));
	t[0] = 0x27;
	t[1] = 0x80;
	take_bytes(in, t + 2, 14);
	if (how & 16)
		take_bytes(in, t + 0x40, 12);
	for (uint32_t i = 0; i < prds; i++) {
		st64le(t + 0x80 + 16 * i, fuzz_address(in));
		st32le(t + 0x80 + 16 * i + 8, 0);
		st32le(t + 0x80 + 16 * i + 12, take(in, 2));
	}
	if (t[2] == 0x60 || t[2] == 0x61) {
		t[12] = (uint8_t)(slot << 3);
		put(PORT(p) + 0x34, 1u << slot);
	}
	if (!(how & 64)) {
		put(PORT(p) + 0x38, how & 128 ? ~0u : 1u << slot);
		loop_run_once(fuzz_m.bus.loop, 0);
	}
}

static void ahci_registers(struct input *in)
{
	const uint32_t how = take(in, 1), where = take(in, 1);
	const unsigned off = how & 2 ? where * 4 % 0x100 : PORT(how & 1) + (where & 0x7c);

	if (how & 4)
		mem_read(&fuzz_m.mem, fuzz_bar + off + (how >> 6), 1u << (how >> 4 & 3) % 4);
	else if (how & 8) /* start, stop, and what a driver does after an error */
		put(off, get(off) ^ 1u << (how >> 4));
	else
		mem_write(&fuzz_m.mem, fuzz_bar + off, take(in, 4), how & 16 ? 1u << (how >> 6) : 4);
}

static bool ahci_idle(void)
{
	return !(get(PORT(0) + 0x18) & 0x8000) && !(get(PORT(1) + 0x18) & 0x8000);
}

static void ahci_finish(void)
{
	for (unsigned p = 0; p < AHCI_PORTS; p++)
		put(PORT(p) + 0x18, 6);
	if (!fuzz_settle(ahci_idle))
		fuzz_fail("a stopped port still runs");
	/* After a reset of the controller the disk answers. */
	put(4, 1);
	for (int i = 0; i < 100 && get(4) & 1; i++)
		loop_run_once(fuzz_m.bus.loop, 0);
	if (get(4) & 1)
		fuzz_fail("the controller's reset does not end");
	ahci_start();
	memset(fuzz_ram(LIST(0)), 0, 32);
	memset(fuzz_ram(SLOT(0, 0)), 0, 0x90);
	st16le(fuzz_ram(LIST(0)), 5);
	st16le(fuzz_ram(LIST(0) + 2), 1);
	st32le(fuzz_ram(LIST(0) + 8), SLOT(0, 0));
	memcpy(fuzz_ram(SLOT(0, 0)), "\x27\x80\xec", 3);
	st64le(fuzz_ram(SLOT(0, 0) + 0x80), AHCI_DATA);
	st32le(fuzz_ram(SLOT(0, 0) + 0x8c), 511);
	put(PORT(0) + 0x38, 1);
	for (int i = 0; i < 100 && get(PORT(0) + 0x38) & 1; i++)
		loop_run_once(fuzz_m.bus.loop, 0);
	if (get(PORT(0) + 0x38) & 1)
		fuzz_fail("IDENTIFY DEVICE does not end");
}

const struct fuzz_target fuzz_ahci = {"ahci",
				      ahci_plug,
				      ahci_start,
				      ahci_command,
				      ahci_registers,
				      ahci_finish,
				      {AHCI_DATA, LIST(0), SLOT(0, 0), AHCI_DATA + 0x10000}};
