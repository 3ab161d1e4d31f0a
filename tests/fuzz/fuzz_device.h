/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between the parts of the device fuzzer: fuzz_device.c has the machine and reads the input as a list of operations,
 * fuzz_scsi.c, fuzz_ata.c and fuzz_nvme.c have the controllers. One thread.
 */
#ifndef KELVIN_TESTS_FUZZ_DEVICE_H
#define KELVIN_TESTS_FUZZ_DEVICE_H

#include "../device/virtio_guest.h"
#include "base/util.h"
#include "input.h"

struct fuzz_target {
	const char *name;
	void (*plug)(void);		     /* create the devices; once */
	void (*start)(void);		     /* after each reset: what a driver does first */
	void (*command)(struct input *in);   /* one command, as a driver gives it */
	void (*registers)(struct input *in); /* one access */
	void (*finish)(void);		     /* the devices must come to rest; else fuzz_fail */
	uint32_t window[4];		     /* where commands, tables and data lie: 64 KiB each */
};
extern const struct fuzz_target fuzz_scsi, fuzz_lsi, fuzz_ide, fuzz_ahci, fuzz_nvme;

extern struct machine fuzz_m;
extern uint64_t fuzz_bar; /* set by plug: of the controller, for fuzz_address */

/* An address as a guest may give it: most are in the windows, some are registers, a hole, or the end of RAM. */
uint64_t fuzz_address(struct input *in);
uint8_t *fuzz_ram(uint64_t gpa);
/* Make a drive (its id is ID) over a file in memory that starts empty for each input, and a device on it. */
struct dev *fuzz_plug(const char *device);
void fuzz_drive(const char *id, const char *opts);
/* Run the loop until done() or a bound that only a hang reaches; false: not done. */
bool fuzz_settle(bool (*done)(void));
_Noreturn void fuzz_fail(const char *why);

#endif
