// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * See firmware.h. File names and their contents are SeaBIOS's interface (its docs, Runtime_config); the ACPI tables
 * stay where the board built them, only the root pointer goes through the table loader.
 *
 * The 440FX's shadow registers have no effect here: c0000h to fffffh is RAM, the end of the ROM is copied into it at
 * reset, and the registers say so, which is what the firmware would make of them.
 */
#include "machine/firmware.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "block/block.h"
#include "bus/pci.h"

#define FIRMWARE_DEBIAN	 "/usr/share/seabios/bios-256k.bin"
#define FIRMWARE_MAX	 (16 * MIB)
#define SHADOW_SIZE	 (256 * KIB) /* more than a PC shows there: the code that starts up begins below e0000h */
#define SHADOW_END	 (1 * MIB)
#define RSDP_SIZE	 36
#define SMBIOS_ENTRY_LEN 31
#define LOADER_ENTRY_LEN 128
#define LOADER_ALLOCATE	 1
#define LOADER_ZONE_FSEG 2
#define BOOT_DEVICES_MAX 64
#define PATH_LEN	 96

/* ---- the ROM ---------------------------------------------------------------- */

int firmware_open(struct boot_file *rom, const char *path, struct err *err)
{
	int r;

	if (!path && access(FIRMWARE_DEBIAN, R_OK))
		return err_set(err, -ENOENT,
			       "no firmware to boot from a disk: install Debian's package seabios (" FIRMWARE_DEBIAN
			       "), or give -bios FILE, or a Linux kernel with -kernel");
	r = boot_file_open(rom, "firmware", path ? path : FIRMWARE_DEBIAN, FIRMWARE_MAX, err);
	if (!r && (rom->size < 64 * KIB || rom->size > FIRMWARE_MAX || rom->size % (64 * KIB)))
		r = err_set(err, -EINVAL, "firmware \"%s\": %llu bytes are no PC BIOS (64 KiB to 16 MiB, whole 64 KiB)",
			    rom->path, (unsigned long long)rom->size);
	return r;
}

int firmware_map(struct mem_map *mem, const struct boot_file *rom, struct err *err)
{
	const uint64_t base = 4 * GIB - rom->size;
	const struct ram_block *block;
	int r = mem_add_ram(mem, "pc.bios", base, rom->size, NULL, true, err);

	if (r)
		return r;
	block = mem_ram_block(mem, base);
	return block ? boot_file_read(rom, 0, block->host, rom->size, err) : -EFAULT;
}

int firmware_shadow(struct mem_map *mem, const struct boot_file *rom, struct err *err)
{
	const uint64_t len = MIN(rom->size, SHADOW_SIZE);

	return boot_file_load(rom, rom->size - len, mem, SHADOW_END - len, len, err);
}

/* ---- -boot --------------------------------------------------------------------- */

static int64_t boot_number(struct opts *o, const char *key)
{
	const char *text = opts_get(o, key);

	return text ? strtoll(text, NULL, 0) : -1;
}

int firmware_parse_boot(const char *text, bool first, struct firmware_boot *out, struct err *err)
{
	const char *order, *once, *menu, *strict;
	struct opts o;
	int r;

	*out = (struct firmware_boot){.order = "cad", .menu_wait = -1, .fail_wait = -1};
	if (!text)
		return 0;
	r = opts_parse(text, "order", &o, err);
	if (r)
		return r;
	order = opts_get(&o, "order");
	once = opts_get(&o, "once");
	if (first && once)
		order = once;
	menu = opts_get(&o, "menu");
	strict = opts_get(&o, "strict");
	if (order)
		snprintf(out->order, sizeof(out->order), "%s", order);
	out->menu = menu && !strcmp(menu, "on");
	out->strict = strict && !strcmp(strict, "on");
	out->menu_wait = boot_number(&o, "splash-time");
	out->fail_wait = boot_number(&o, "reboot-timeout");
	opts_free(&o);
	return 0;
}

void firmware_cmos_order(const struct firmware_boot *b, uint8_t *cmos_3d, uint8_t *cmos_38)
{
	static const char letters[] = "acdn"; /* floppy 1, disk 2, CD-ROM 3, network 4 */
	uint8_t code[3] = {0};

	for (unsigned i = 0; i < 3 && b->order[i]; i++) {
		const char *at = strchr(letters, b->order[i]);

		code[i] = at ? (uint8_t)(at - letters + 1) : 0;
	}
	*cmos_3d = (uint8_t)(code[1] << 4 | code[0]);
	*cmos_38 = (uint8_t)(code[2] << 4 | 1); /* bit 0: no check of a floppy's signature */
}

/* ---- boot order by device ---------------------------------------------------------- */

struct boot_device {
	int64_t index;
	char path[PATH_LEN];
};

static char *property(const struct dev *d, const char *name)
{
	return type_find_prop(&d->ops->type, name) ? type_get(&d->ops->type, d, name) : NULL;
}

/* The controller that owns the IDE bus `bus` ("ide.1", "sata.0"), and the number of the bus there. */
static const struct dev *ide_controller(struct bus *bus, const char *name, unsigned *number)
{
	const char *dot = strrchr(name, '.');
	unsigned n = dot ? (unsigned)strtoul(dot + 1, NULL, 10) : 0;

	*number = n;
	for (const struct dev *d = bus->devices; d && dot; d = d->next) {
		const bool ahci = strstr(d->ops->type.name, "ahci") != NULL;

		if (!ahci && strcmp(d->ops->type.name, "piix3-ide"))
			continue;
		if (d->id ? strlen(d->id) == (size_t)(dot - name) && !strncmp(d->id, name, (size_t)(dot - name))
			  : !strncmp(name, "ide.", 4) && *number < (ahci ? 6 : 2))
			return d;
		if (!d->id && !strncmp(name, "ide.", 4))
			*number -= ahci ? 6 : 2; /* these are numbered through all controllers */
	}
	return NULL;
}

/* An Open Firmware path, as far as SeaBIOS compares it; false: a device it cannot boot from. */
static bool boot_path(struct bus *bus, const struct dev *d, char *out)
{
	const char *type = d->ops->type.name;
	const struct pci_dev *p = (const struct pci_dev *)(const void *)d;
	char place[16] = "";
	bool ok = true;

	if (d->ops->bus_kind == DEV_BUS_PCI)
		snprintf(place, sizeof(place), p->devfn & 7 ? "%x,%x" : "%x", (unsigned)p->devfn >> 3,
			 (unsigned)p->devfn & 7);
	if (!strncmp(type, "virtio-blk-pci", 14)) {
		snprintf(out, PATH_LEN, "/pci@i0cf8/scsi@%s/disk@0,0", place);
	} else if (!strcmp(type, "nvme")) {
		snprintf(out, PATH_LEN, "/pci@i0cf8/pci1b36,10@%s/namespace@1,0", place);
	} else if (d->ops->bus_kind == DEV_BUS_IDE) {
		char *name = property(d, "bus"), *unit = property(d, "unit");
		unsigned number = 0;
		const struct dev *c = name ? ide_controller(bus, name, &number) : NULL;

		ok = c != NULL;
		if (c && strstr(c->ops->type.name, "ahci"))
			snprintf(out, PATH_LEN, "/pci@i0cf8/pci8086,2922@%x/drive@%u/disk@0",
				 (unsigned)((const struct pci_dev *)(const void *)c)->devfn >> 3, number);
		else if (c)
			snprintf(out, PATH_LEN, "/pci@i0cf8/ide@1,1/drive@%u/disk@%s", number, unit ? unit : "0");
		free(name);
		free(unit);
	} else {
		ok = false;
	}
	return ok;
}

static int compare_boot(const void *a, const void *b)
{
	const struct boot_device *x = a, *y = b;

	return x->index < y->index ? -1 : x->index > y->index;
}

/* bootindex= of devices, and boot=on of drives, which comes before all. */
static unsigned boot_devices(struct bus *bus, struct boot_device *list)
{
	unsigned n = 0;

	for (const struct dev *d = bus->devices; d && n < BOOT_DEVICES_MAX; d = d->next) {
		char *index = property(d, "bootindex"), *drive = property(d, "drive");
		const struct drive *drv = drive ? drive_find(drive) : NULL;

		list[n].index = index ? strtoll(index, NULL, 10) : -1;
		if (drv && drv->boot)
			list[n].index = INT64_MIN;
		if ((list[n].index >= 0 || (drv && drv->boot)) && boot_path(bus, d, list[n].path))
			n++;
		free(index);
		free(drive);
	}
	qsort(list, n, sizeof(*list), compare_boot);
	return n;
}

static int add_boot_order(const struct firmware_config *c, struct err *err)
{
	struct boot_device *list = calloc(BOOT_DEVICES_MAX, sizeof(*list));
	char *text = calloc(BOOT_DEVICES_MAX + 1, PATH_LEN);
	size_t len = 0;
	unsigned n;
	int r = -ENOMEM;

	if (list && text) {
		n = boot_devices(c->bus, list);
		for (unsigned i = 0; i < n; i++)
			len += (size_t)snprintf(text + len, PATH_LEN, "%s\n", list[i].path);
		if (c->boot->strict)
			len += (size_t)snprintf(text + len, PATH_LEN, "HALT\n");
		/* Lines, and a NUL in place of the last line's end. */
		if (len)
			text[len - 1] = 0;
		r = len ? fw_cfg_add_file(c->bus->fw_cfg, "bootorder", text, len, err) : 0;
	}
	free(list);
	free(text);
	return r ? err_set_errno(err, r, "firmware: boot order") : 0;
}

/* ---- the other files ------------------------------------------------------------------- */

static void e820_add(uint8_t *buf, size_t *len, uint64_t addr, uint64_t end, uint32_t type)
{
	if (end <= addr)
		return;
	st64le(buf + *len, addr);
	st64le(buf + *len + 8, end - addr);
	st32le(buf + *len + 16, type);
	*len += 20;
}

static int add_e820(const struct firmware_config *c, struct err *err)
{
	const uint64_t ram_end = c->tables ? c->tables : c->low_size;
	uint8_t buf[20 * 4];
	size_t len = 0;

	e820_add(buf, &len, 0, ram_end, E820_RAM);
	e820_add(buf, &len, ram_end, c->low_size, E820_RESERVED);
	e820_add(buf, &len, c->hole, c->hole_end, E820_RESERVED);
	e820_add(buf, &len, 4 * GIB, 4 * GIB + c->high_size, E820_RAM);
	return fw_cfg_add_file(c->bus->fw_cfg, "etc/e820", buf, len, err);
}

/* One command: put the root pointer into the BIOS segment. What it points to is in place already. */
static int add_acpi(const struct firmware_config *c, struct err *err)
{
	uint8_t entry[LOADER_ENTRY_LEN] = {LOADER_ALLOCATE};
	int r;

	if (!c->rsdp)
		return 0;
	strcpy((char *)entry + 4, "etc/acpi/rsdp");
	st32le(entry + 60, 16); /* alignment */
	entry[64] = LOADER_ZONE_FSEG;
	r = fw_cfg_add_file(c->bus->fw_cfg, "etc/acpi/rsdp", c->rsdp, RSDP_SIZE, err);
	return r ? r : fw_cfg_add_file(c->bus->fw_cfg, "etc/table-loader", entry, sizeof(entry), err);
}

static int add_smbios(const struct firmware_config *c, struct err *err)
{
	const uint8_t *entry = c->smbios;
	size_t len, off = 32; /* the structures follow the entry point, aligned */
	int r;

	if (!entry)
		return 0;
	len = ld16le(entry + 0x16);
	if (off + len > c->smbios_len)
		return err_set(err, -EINVAL, "firmware: the SMBIOS image is too short");
	r = fw_cfg_add_file(c->bus->fw_cfg, "etc/smbios/smbios-anchor", entry, SMBIOS_ENTRY_LEN, err);
	return r ? r : fw_cfg_add_file(c->bus->fw_cfg, "etc/smbios/smbios-tables", entry + off, len, err);
}

static int add_number(const struct firmware_config *c, const char *name, int64_t val, struct err *err)
{
	uint8_t le[2];

	if (val < 0)
		return 0;
	st16le(le, (uint16_t)MIN(val, 0xffff));
	return fw_cfg_add_file(c->bus->fw_cfg, name, le, sizeof(le), err);
}

int firmware_describe(const struct firmware_config *c, struct err *err)
{
	int r = add_e820(c, err);

	if (!r)
		r = add_acpi(c, err);
	if (!r)
		r = add_smbios(c, err);
	if (!r)
		r = add_boot_order(c, err);
	if (!r)
		r = fw_cfg_set_u16(c->bus->fw_cfg, FW_CFG_BOOT_MENU, c->boot->menu, err);
	if (!r)
		r = add_number(c, "etc/boot-menu-wait", c->boot->menu_wait, err);
	if (!r)
		r = add_number(c, "etc/boot-fail-wait", c->boot->fail_wait, err);
	if (!r && c->serial_console)
		r = add_number(c, "etc/sercon-port", 0x3f8, err);
	return r;
}
