// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * "ide-hd" and "ide-cd": what -device plugs into an IDE bus. Properties only; the device itself is ata.c.
 *
 * Locking: the lock is the controller's, not this dev's own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "hw/ide/ide.h"

#define SERIAL_LEN  20
#define MODEL_LEN   40
#define VERSION_LEN 8

struct ide_dev {
	struct dev dev;
	char *bus_name;
	int64_t unit, bootindex;
	int write_cache; /* enum onoffauto */
	uint32_t logical_block_size;
	bool drive_writeback, is_ours; /* the drive was made here */
	struct ata_dev ata;
};

static struct ide_dev *ide_dev_of(struct dev *d)
{
	return container_of(d, struct ide_dev, dev);
}

/* ---- the host's side of a removable medium ------------------------------------------ */

static bool media_tray_open(void *opaque)
{
	const struct ide_dev *s = opaque;
	bool open;

	pthread_mutex_lock(s->ata.lock);
	open = s->ata.mmc.tray_open;
	pthread_mutex_unlock(s->ata.lock);
	return open;
}

static bool media_locked(void *opaque)
{
	const struct ide_dev *s = opaque;
	bool locked;

	pthread_mutex_lock(s->ata.lock);
	locked = s->ata.mmc.locked;
	pthread_mutex_unlock(s->ata.lock);
	return locked;
}

static void media_set_tray(void *opaque, bool open)
{
	struct ide_dev *s = opaque;

	pthread_mutex_lock(s->ata.lock);
	mmc_set_tray(&s->ata.mmc, open);
	pthread_mutex_unlock(s->ata.lock);
	mmc_emit(&s->ata.mmc);
}

static void media_eject_request(void *opaque, bool force)
{
	struct ide_dev *s = opaque;

	pthread_mutex_lock(s->ata.lock);
	mmc_eject_request(&s->ata.mmc, force);
	pthread_mutex_unlock(s->ata.lock);
}

static void media_changed(void *opaque)
{
	struct ide_dev *s = opaque;

	pthread_mutex_lock(s->ata.lock);
	mmc_medium_changed(&s->ata.mmc);
	pthread_mutex_unlock(s->ata.lock);
}

static const char *media_device_id(void *opaque)
{
	return ((const struct ide_dev *)opaque)->dev.id;
}

static const struct drive_media_ops media_ops = {
    .tray_open = media_tray_open,
    .locked = media_locked,
    .set_tray = media_set_tray,
    .eject_request = media_eject_request,
    .medium_changed = media_changed,
    .device_id = media_device_id,
};

/* ---- life ------------------------------------------------------------------------------ */

static int set_default(char **text, const char *value, size_t max, const char *prop, struct err *err)
{
	if (!*text && !(*text = strdup(value)))
		return err_set(err, -ENOMEM, "out of memory");
	if (strlen(*text) > max)
		return err_set(err, -EINVAL, "%s='%.60s' is longer than %zu characters", prop, *text, max);
	return 0;
}

/* QEMU numbers disks of a machine, so that guests can tell them apart; here by place. */
static int ide_texts(struct ide_dev *s, struct err *err)
{
	static unsigned count;
	struct ata_dev *a = &s->ata;
	char serial[24];
	int r;

	snprintf(serial, sizeof(serial), "KV%05u", ++count);
	r = set_default(&a->serial, a->drive->serial ? a->drive->serial : serial, SERIAL_LEN, "serial", err);
	if (!r)
		r = set_default(&a->model, a->cd ? "KELVIN DVD-ROM" : "KELVIN HARDDISK", MODEL_LEN, "model", err);
	return r ? r : set_default(&a->version, "1.0", VERSION_LEN, "ver", err);
}

static int ide_take_drive(struct ide_dev *s, struct err *err)
{
	struct ata_dev *a = &s->ata;

	if (!a->drive && a->cd) { /* an empty drive */
		a->drive = drive_create("if=none,media=cdrom", s->dev.bus->loop, err);
		if (!a->drive)
			return -EINVAL;
	}
	if (!a->drive)
		return err_set(err, -EINVAL, "drive property not set");
	if (!a->drive->node && !a->cd)
		return err_set(err, -EINVAL, "Device needs media, but drive '%s' is empty", a->drive->id);
	if (a->drive->claimed)
		return err_set(err, -EBUSY, "Drive '%s' is already in use by another device", a->drive->id);
	if (s->logical_block_size != ATA_SECTOR)
		return err_set(err, -EINVAL, "logical_block_size must be 512 for IDE");
	return disk_check_block_sizes(s->logical_block_size, a->physical_block_size, err);
}

static void ide_dev_unrealize(struct dev *d)
{
	struct ide_dev *s = ide_dev_of(d);
	struct ata_dev *a = &s->ata;

	ide_bus_detach(a);
	if (a->drive) {
		if (a->drive->node && !a->cd)
			block_set_writeback(a->drive->node, s->drive_writeback);
		a->drive->claimed = false;
		a->drive->media = NULL;
	}
	ata_fini(a);
}

static int ide_dev_realize(struct dev *d, struct err *err)
{
	struct ide_dev *s = ide_dev_of(d);
	struct ata_dev *a = &s->ata;
	int r;

	a->bus = d->bus;
	r = ide_take_drive(s, err);
	if (!r)
		r = ide_texts(s, err);
	if (r)
		return r;
	if (a->cd) {
		a->mmc = (struct mmc){
		    .bus = d->bus, .drive = a->drive, .id = d->id, .product = "DVD-ROM", .revision = a->version};
	} else {
		/* From here on the guest decides, write by write (BLOCK_FUA). */
		s->drive_writeback = block_writeback(a->drive->node);
		a->initial_wce = s->write_cache == OOA_AUTO ? s->drive_writeback : s->write_cache == OOA_ON;
	}
	r = ata_init(a, err);
	if (!r)
		r = ide_bus_attach(a, d, s->bus_name, (int)s->unit, err);
	if (r) {
		ata_fini(a);
		return r;
	}
	a->drive->claimed = true;
	if (a->cd) {
		a->drive->cdrom = true;
		a->drive->media = &media_ops;
		a->drive->media_opaque = s;
	} else {
		block_set_writeback(a->drive->node, true);
	}
	return 0;
}

static int ide_hd_realize(struct dev *d, struct err *err)
{
	ide_dev_of(d)->ata.cd = false;
	return ide_dev_realize(d, err);
}

static int ide_cd_realize(struct dev *d, struct err *err)
{
	ide_dev_of(d)->ata.cd = true;
	return ide_dev_realize(d, err);
}

static void ide_dev_reset(struct dev *d)
{
	struct ata_dev *a = &ide_dev_of(d)->ata;

	pthread_mutex_lock(a->lock);
	ata_power_on(a);
	pthread_mutex_unlock(a->lock);
}

static int ide_dev_pause(struct dev *d)
{
	return ata_pause(&ide_dev_of(d)->ata);
}

static void ide_dev_resume(struct dev *d)
{
	ata_resume(&ide_dev_of(d)->ata);
}

#define AT(f) offsetof(struct ide_dev, f)
#define COMMON_PROPS                                                                                                   \
	{.name = "drive", .kind = PROP_LINK, .offset = AT(ata.drive), .link_kind = "drive", .help = "-drive's id"},    \
	    {.name = "bus", .kind = PROP_STR, .offset = AT(bus_name), .help = "ide.0, ide.1, or a controller's ID.N"}, \
	    {.name = "unit", .kind = PROP_I64, .offset = AT(unit), .def = "-1", .help = "0 master, 1 slave"},          \
	    {.name = "serial", .kind = PROP_STR, .offset = AT(ata.serial), .help = "up to 20 characters"},             \
	    {.name = "model", .kind = PROP_STR, .offset = AT(ata.model), .help = "up to 40 characters"},               \
	    {.name = "ver", .kind = PROP_STR, .offset = AT(ata.version), .help = "firmware version, up to 8"},         \
	    {.name = "wwn", .kind = PROP_U64, .offset = AT(ata.wwn), .def = "0", .help = "world wide name"},           \
	    {.name = "bootindex",                                                                                      \
	     .kind = PROP_I64,                                                                                         \
	     .offset = AT(bootindex),                                                                                  \
	     .def = "-1",                                                                                              \
	     .help = "place in the boot order"},                                                                       \
	    {.name = "logical_block_size",                                                                             \
	     .kind = PROP_U32,                                                                                         \
	     .offset = AT(logical_block_size),                                                                         \
	     .def = "512",                                                                                             \
	     .help = "512 only"},                                                                                      \
	{                                                                                                              \
		.name = "physical_block_size", .kind = PROP_U32, .offset = AT(ata.physical_block_size), .def = "512",  \
		.help = "what the guest should align to"                                                               \
	}

static const struct prop ide_hd_props[] = {
    COMMON_PROPS,
    {.name = "cyls", .kind = PROP_U32, .offset = AT(ata.cyls), .def = "0", .help = "geometry; 0: from the size"},
    {.name = "heads", .kind = PROP_U32, .offset = AT(ata.heads), .def = "0", .help = "geometry"},
    {.name = "secs", .kind = PROP_U32, .offset = AT(ata.secs), .def = "0", .help = "geometry"},
    {.name = "rotation_rate", .kind = PROP_U16, .offset = AT(ata.rotation_rate), .def = "0", .help = "rpm; 1: SSD"},
    {.name = "write-cache",
     .kind = PROP_ONOFFAUTO,
     .offset = AT(write_cache),
     .def = "auto",
     .help = "off: every write is durable when it completes; auto: as cache= says"},
    {0},
};
static const struct prop ide_cd_props[] = {COMMON_PROPS, {0}};

static const struct counter ide_dev_counters[] = {
    {"commands", AT(ata.commands), "commands of the guest"},
    {"parts", AT(ata.parts), "pieces their data was moved in"},
    {"set_aside", AT(ata.errors.set_aside), "failed requests that stopped the machine (werror, rerror)"},
    {0},
};

static const struct state_field ide_dev_fields[] = {STATE_ONE(struct ide_dev, ata, ata_state_fields), {0}};

static int ide_dev_pre_save(void *obj, struct err *err)
{
	return ata_pre_save(&((struct ide_dev *)obj)->ata, err);
}

static int ide_dev_post_load(void *obj, struct err *err)
{
	struct ata_dev *a = &((struct ide_dev *)obj)->ata;
	const struct ide_channel *c = a->port;

	/* A packet goes to a small buffer: only twelve bytes of it can be awaited. */
	if (!a->sata && a->regs.status & ATA_SR_DRQ && a->proto == ATA_NO_DATA && c->pio_end > MMC_CDB_LEN)
		return err_set(err, -EINVAL, "impossible state of a packet: the snapshot is corrupted");
	return ata_post_load(a, err);
}

static const struct state ide_dev_state = {.name = "ata",
					   .version = 1,
					   .min_version = 1,
					   .fields = ide_dev_fields,
					   .pre_save = ide_dev_pre_save,
					   .post_load = ide_dev_post_load};

#define IDE_DEVICE(symbol, type_name, type_about, type_props, realize_fn)                                              \
	const struct dev_ops symbol = {                                                                                \
	    .type = {.name = type_name, .about = type_about, .size = sizeof(struct ide_dev), .props = type_props},     \
	    .bus_kind = DEV_BUS_IDE,                                                                                   \
	    .user_creatable = true,                                                                                    \
	    .realize = realize_fn,                                                                                     \
	    .unrealize = ide_dev_unrealize,                                                                            \
	    .reset = ide_dev_reset,                                                                                    \
	    .pause = ide_dev_pause,                                                                                    \
	    .resume = ide_dev_resume,                                                                                  \
	    .state = &ide_dev_state,                                                                                   \
	    .counters = ide_dev_counters,                                                                              \
	}

IDE_DEVICE(ide_hd_ops, "ide-hd", "IDE or SATA disk", ide_hd_props, ide_hd_realize);
IDE_DEVICE(ide_cd_ops, "ide-cd", "IDE or SATA CD-ROM drive", ide_cd_props, ide_cd_realize);
