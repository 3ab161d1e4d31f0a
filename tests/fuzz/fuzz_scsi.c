// SPDX-License-Identifier: GPL-2.0-or-later
/* The device fuzzer's SCSI: a disk and a CD drive behind virtio-scsi (CDBs, task management) and behind the LSI 53C895A
 * (SCRIPTS). */
#include <stdlib.h>
#include <string.h>

#include "fuzz_device.h"
#include "hw/scsi/lsi.h"

/* ---- virtio-scsi: every request offered comes back ---------------------------------------- */

#define REQUEST	 0x200000u /* 256 bytes each, then the response */
#define DATA	 0x400000u
#define SLOTS	 8u
#define REQ_LEN	 51u
#define RESP_LEN 108u
#define DATA_MAX 0x20000u

static struct guest g;
static unsigned scsi_devfn, offered[3];

static void scsi_plug(void)
{
	struct dev *hba = fuzz_plug("virtio-scsi-pci,id=s0");

	scsi_devfn = (unsigned)container_of(hba, struct pci_dev, dev)->devfn;
	fuzz_drive("d", ",discard=unmap,detect-zeroes=unmap");
	fuzz_plug("scsi-hd,drive=d,bus=s0.0,scsi-id=2,lun=1");
	fuzz_drive("c", ",media=cdrom");
	fuzz_plug("scsi-cd,drive=c,bus=s0.0,scsi-id=3,lun=0");
	fuzz_drive("r", ",readonly=on");
	fuzz_plug("scsi-hd,drive=r,bus=s0.0,scsi-id=3,lun=5,logical_block_size=4096,physical_block_size=4096");
}

static bool scsi_is_reset(void)
{
	return !guest_status(&g);
}

static void scsi_start(void)
{
	if (!guest_attach(&g, &fuzz_m, scsi_devfn, GUEST_MODERN))
		fuzz_fail("the adapter is gone");
	fuzz_bar = g.common;
	guest_set_status(&g, 0);
	if (!fuzz_settle(scsi_is_reset))
		fuzz_fail("a reset does not end");
	guest_start(&g, ~0ull, 3, 64, false);
	memset(offered, 0, sizeof(offered));
}

static uint16_t returned(unsigned queue)
{
	return ld16le(fuzz_ram(g.q[queue].used + 2));
}

static bool scsi_idle(void)
{
	return (guest_status(&g) & 0x40) ||
	       (returned(0) == (uint16_t)offered[0] && returned(2) == (uint16_t)offered[2]);
}

static void scsi_command(struct input *in)
{
	static const struct {
		uint8_t target;
		uint16_t lun;
	} units[8] = {{2, 0x4001}, {3, 0x4000}, {3, 0x4005}, {2, 0x4000}, {9, 0x4000}, {3, 0xc101}, {0, 0}, {2, 1}};
	const uint32_t how = take(in, 1), size = take(in, 2), ndata = take(in, 1);
	const unsigned queue = how >> 6 == 3 ? 0 : 2, slot = offered[queue] % SLOTS;
	const uint64_t at = REQUEST + 0x2000 * (uint64_t)queue + 512 * slot;
	uint8_t *r = fuzz_ram(at);
	struct seg s[4];
	int n = 0;

	if (offered[queue] - returned(queue) >= SLOTS && !fuzz_settle(scsi_idle))
		fuzz_fail("requests do not come back");
	if (guest_status(&g) & 0x40)
		scsi_start();
	memset(r, 0, 512);
	if (queue == 0) {
		/* type, subtype, LUN, tag */
		st32le(r, take(in, 1) & 3);
		st32le(r + 4, take(in, 1) & 15);
		r[8] = 1;
		r[9] = units[how & 7].target;
		st16be(r + 10, units[how & 7].lun);
		st64le(r + 16, take(in, 1) & 15);
		s[n++] = (struct seg){at, size ? 24 : 23, false};
		s[n++] = (struct seg){at + 256, 8, true};
	} else {
		r[0] = how & 8 ? (uint8_t)take(in, 1) : 1;
		r[1] = units[how & 7].target;
		st16be(r + 2, units[how & 7].lun);
		st64le(r + 8, offered[2] & 15);
		take_bytes(in, r + 19, 16);
		take_bytes(in, fuzz_ram(DATA), MIN(ndata, 128u));
		s[n++] = (struct seg){at, REQ_LEN, false};
		if ((how >> 4 & 3) == 1)
			s[n++] = (struct seg){DATA, size % DATA_MAX + 1, false};
		s[n++] = (struct seg){at + 256, ndata == 255 ? RESP_LEN - 1 : RESP_LEN, true};
		if ((how >> 4 & 3) == 2)
			s[n++] = (struct seg){ndata == 254 ? GUEST_HOLE : DATA, size % DATA_MAX + 1, true};
	}
	guest_add(&g.q[queue], s, n, 0);
	offered[queue]++;
	guest_kick(&g.q[queue]);
	if (!(ndata & 128) && !fuzz_settle(scsi_idle))
		fuzz_fail("a request does not come back");
}

/* The registers are virtio's, which test_virtio.c covers; here the ones that are this device's. */
static void scsi_registers(struct input *in)
{
	const uint32_t how = take(in, 1);

	if (how & 1)
		guest_config_write(&g, how >> 2 & 0x3c, 4, take(in, 4));
	else
		guest_config(&g, how >> 1 & 0x3f, 1u << (how >> 6 & 1));
}

static void scsi_finish(void)
{
	if (!fuzz_settle(scsi_idle))
		fuzz_fail("requests do not come back");
}

const struct fuzz_target fuzz_scsi = {
    "scsi", scsi_plug, scsi_start, scsi_command, scsi_registers, scsi_finish, {DATA, DATA + 0x10000, DATA, DATA}};

/* ---- the LSI: programs --------------------------------------------------------------------- */

#define SCRIPT 0x200000u
#define TABLE  0x210000u
#define BUFFER 0x300000u

static struct lsi *l;

static void lsi_plug(void)
{
	l = container_of(fuzz_plug("lsi,id=s0"), struct lsi, pci.dev);
	fuzz_drive("d", ",discard=unmap");
	fuzz_plug("scsi-hd,drive=d,bus=s0.0,scsi-id=2");
	fuzz_drive("c", ",media=cdrom");
	fuzz_plug("scsi-cd,drive=c,bus=s0.0,scsi-id=3");
}

static void lsi_start(void)
{
	pci_config_write(fuzz_m.bus.pci, (unsigned)l->pci.devfn, 4, 7, 2);
	fuzz_bar = l->pci.bar[1].addr;
}

/* A program: select a target, then whatever the input says. */
static void lsi_command(struct input *in)
{
	const uint32_t how = take(in, 1);
	uint8_t *p = fuzz_ram(SCRIPT + 0x100 * (how & 15));

	if (how & 0x10) {
		st32le(p, 0x41000000 | (how & 0x20 ? 3u : 2u) << 16);
		st32le(p + 4, SCRIPT);
		st32le(p + 8, 0x0e000000 | (1 + (how >> 6)));
		st32le(p + 12, TABLE);
		st32le(p + 16, 0x0a00000a);
		st32le(p + 20, TABLE + 16);
		*fuzz_ram(TABLE) = 0xc0;
		p += 24;
		take_bytes(in, fuzz_ram(TABLE + 16), 10);
	}
	for (uint32_t n = take(in, 1) & 15; n--; p += 8) {
		st32le(p, take(in, 4));
		st32le(p + 4, (uint32_t)fuzz_address(in));
	}
	mem_write(&fuzz_m.mem, fuzz_bar + DSP, SCRIPT + 0x100 * (how & 15), 4);
	loop_run_once(fuzz_m.bus.loop, 0);
	if (l->nreqs > LSI_MAX_REQS || l->bounce > LSI_MAX_BOUNCE)
		fuzz_fail("more requests or memory than it should have");
}

static void lsi_registers(struct input *in)
{
	const uint32_t how = take(in, 1), off = take(in, 1), size = 1u << (how & 3) % 3;
	const uint64_t at = l->pci.bar[how & 8 ? 2 : 1].addr + (how & 8 ? off * 32 : off);

	if (how & 4)
		mem_write(&fuzz_m.mem, at, take(in, 4), size);
	else
		mem_read(&fuzz_m.mem, at, size);
}

static bool lsi_idle(void)
{
	return !l->nreqs;
}

static void lsi_finish(void)
{
	/* A software reset of the chip leaves nothing in flight. */
	mem_write(&fuzz_m.mem, fuzz_bar + ISTAT0, ISTAT0_SRST, 1);
	mem_write(&fuzz_m.mem, fuzz_bar + ISTAT0, 0, 1);
	if (!fuzz_settle(lsi_idle))
		fuzz_fail("requests outlive a reset");
}

const struct fuzz_target fuzz_lsi = {
    "lsi", lsi_plug, lsi_start, lsi_command, lsi_registers, lsi_finish, {SCRIPT, TABLE, BUFFER, BUFFER + 0x10000}};
