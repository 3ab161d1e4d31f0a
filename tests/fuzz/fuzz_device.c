// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer target: disk controllers, driven as a hostile guest drives them. FUZZ_TARGET in the environment names the
 * controller. The input is a list of operations: bytes into guest RAM, addresses into guest RAM, register accesses,
 * whole commands, turns of the loop, pause, reset. Afterwards the controller must come to rest. Everything is made
 * once; an input starts with a machine reset, RAM of zeroes and empty disks. Host I/O is synchronous, so that an input
 * does the same each time.
 */
#include "fuzz_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "block/block.h"
#include "memory_disks.h"

#define MAX_OPS	  400
#define MAX_TURNS 2000

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct fuzz_target *const targets[] = {&fuzz_scsi, &fuzz_lsi, &fuzz_ide, &fuzz_ahci, &fuzz_nvme};
static const struct fuzz_target *target;

struct machine fuzz_m;
uint64_t fuzz_bar;

/* ---- the input ------------------------------------------------------------------ */

uint64_t fuzz_address(struct input *in)
{
	const uint32_t how = take(in, 1);
	const uint64_t off = how & 8 ? take(in, 2) : 0;

	switch (how >> 4) {
	case 15: return GUEST_HOLE + off;
	case 14: return fuzz_bar + (off & 0xfff);
	case 13: return GUEST_RAM - 4096 + off;
	case 12: return GUEST_HIGH + off;
	case 11: return take(in, 8);
	case 10: return take(in, 4);
	default: return target->window[how & 3] + off + 4096 * (uint64_t)(how >> 6);
	}
}

/* ---- the machine ------------------------------------------------------------------ */

void fuzz_fail(const char *why)
{
	fprintf(stderr, "%s: %s\n", target->name, why);
	abort();
}

uint8_t *fuzz_ram(uint64_t gpa)
{
	uint8_t *p = guest_ptr(&fuzz_m, gpa);

	if (!p)
		fuzz_fail("the fuzzer's own address is not RAM");
	return p;
}

static void must(const void *made, const struct err *err)
{
	if (!made)
		fuzz_fail(err->msg);
}

void fuzz_drive(const char *id, const char *opts)
{
	struct err err = {0};

	if (!memory_disk(id, opts, fuzz_m.bus.loop, &err))
		fuzz_fail(err.msg);
}

struct dev *fuzz_plug(const char *device)
{
	struct err err = {0};
	struct dev *d = dev_create_from_text(&fuzz_m.bus, device, &err);

	must(d, &err);
	return d;
}

static void request(void *opaque, enum vm_request what, int status, const char *why)
{
	/* A machine that is asked to stop goes on. */
}

static void irq(void *opaque, int n, int level)
{
	/* nobody listens */
}

bool fuzz_settle(bool (*done)(void))
{
	for (int i = 0; i < MAX_TURNS; i++) {
		if (done())
			return true;
		loop_run_once(fuzz_m.bus.loop, 0);
	}
	return done();
}

static void turns(unsigned n)
{
	while (n--)
		loop_run_once(fuzz_m.bus.loop, 0);
}

static void reset(void)
{
	dev_pause_all(&fuzz_m.bus);
	dev_reset_all(&fuzz_m.bus);
	pci_bus_place_bars(fuzz_m.bus.pci);
	dev_resume_all(&fuzz_m.bus);
	target->start();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *name = getenv("FUZZ_TARGET");

	for (size_t i = 0; name && i < ARRAY_SIZE(targets); i++)
		if (strcmp(targets[i]->name, name) == 0)
			target = targets[i];
	if (!target) {
		fprintf(stderr, "FUZZ_TARGET: scsi, lsi, ide, ahci or nvme\n");
		exit(2);
	}
	drive_init();
	machine_create(&fuzz_m);
	fuzz_m.bus.request = request;
	for (int i = 0; i < 24; i++)
		fuzz_m.bus.gsi[i] = (struct irq){irq, NULL, i};
	target->plug();
	madvise(fuzz_ram(0), GUEST_RAM, MADV_NOHUGEPAGE); /* zeroed for each input */
	return 0;
}

/* ---- operations --------------------------------------------------------------------- */

static void op_bytes(struct input *in)
{
	const uint64_t to = target->window[take(in, 1) & 3] + take(in, 2) % 0xff00;

	take_bytes(in, fuzz_ram(to), take(in, 1) & 63);
}

static void op_address(struct input *in)
{
	const uint64_t to = target->window[take(in, 1) & 3] + take(in, 2) % 0xff00;

	st64le(fuzz_ram(to), fuzz_address(in));
}

static void op_turn(struct input *in)
{
	const uint32_t how = take(in, 1);

	switch (how >> 4) {
	case 15: reset(); break;
	case 14:
		dev_pause_all(&fuzz_m.bus);
		dev_resume_all(&fuzz_m.bus);
		break;
	default: turns(how & 15); break;
	}
}

static void op_command(struct input *in)
{
	target->command(in);
}

static void op_registers(struct input *in)
{
	target->registers(in);
}

static void (*const ops[8])(struct input *in) = {
    op_command, op_command, op_command, op_registers, op_registers, op_bytes, op_address, op_turn,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	if (!memory_disks_empty())
		fuzz_fail("no disk");
	madvise(fuzz_ram(0), GUEST_RAM, MADV_DONTNEED);
	madvise(fuzz_ram(GUEST_HIGH), 2 << 20, MADV_DONTNEED);
	reset();
	for (unsigned n = 0; in.left && n < MAX_OPS; n++)
		ops[take(&in, 1) & 7](&in);
	turns(8);
	target->finish();
	return 0;
}
