/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SeaBIOS as the pc board's firmware, for machines without -kernel: the ROM, and what the firmware asks the board for
 * through fw_cfg (memory map, ACPI, SMBIOS, boot order). Main loop's thread, vCPUs stopped.
 */
#ifndef KELVIN_MACHINE_FIRMWARE_H
#define KELVIN_MACHINE_FIRMWARE_H

#include "base/err.h"
#include "bus/dev.h"
#include "hw/pc/fw_cfg.h"
#include "machine/boot.h"

/* RAM at the end of the low block that is the tables' and no firmware's. */
#define FIRMWARE_TABLES_SIZE (128 * KIB)

/* -boot, taken apart: what CMOS and fw_cfg say of it. */
struct firmware_boot {
	char order[8]; /* drive letters for this start */
	bool menu, strict;
	int64_t menu_wait, fail_wait; /* ms; -1: the firmware's own */
};

struct firmware_config {
	struct bus *bus;
	uint64_t low_size, high_size, tables; /* RAM; where the ACPI tables lie (0: none) */
	uint64_t hole, hole_end;	      /* below 4 GB, not the guest's */
	const uint8_t *rsdp;		      /* 36 bytes, or NULL */
	const uint8_t *smbios;		      /* entry point and structures, or NULL */
	size_t smbios_len;
	const struct firmware_boot *boot;
	bool serial_console; /* the firmware's text goes to the first serial port */
};

/* Open `path`, or Debian's SeaBIOS when it is NULL; an error says what to install. */
int firmware_open(struct boot_file *rom, const char *path, struct err *err);
/* The ROM below 4 GB. Once. */
int firmware_map(struct mem_map *mem, const struct boot_file *rom, struct err *err);
/* Its end below 1 MB, where the reset vector's jump leads. At each reset. */
int firmware_shadow(struct mem_map *mem, const struct boot_file *rom, struct err *err);
/* The files of fw_cfg. Once, when all devices are there. */
int firmware_describe(const struct firmware_config *c, struct err *err);
/* Take -boot's text apart (NULL: the default). `first`: this is the first start, for once=. */
int firmware_parse_boot(const char *text, bool first, struct firmware_boot *out, struct err *err);
/* CMOS's two bytes of the boot order: 3dh, and 38h. */
void firmware_cmos_order(const struct firmware_boot *b, uint8_t *cmos_3d, uint8_t *cmos_38);

#endif
