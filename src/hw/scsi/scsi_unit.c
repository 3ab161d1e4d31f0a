// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The devices on a SCSI bus: scsi-hd (a disk) and scsi-cd (a CD or DVD drive),
 * with QEMU's properties. What they answer is in scsi_inquiry.c, scsi_mode.c,
 * scsi_block.c and scsi_mmc.c.
 *
 * Locking: realize and unrealize enter and leave the bus's list in its loop's
 * thread, where everything else happens.
 */
#include "hw/scsi/scsi_int.h"

#include <errno.h>
#include <stdlib.h>

#include "hw/scsi/scsi_devices.h"
#include "io/iothread.h"

uint64_t scsi_blocks(const struct scsi_unit *u)
{
	const struct block_node *n = scsi_medium(u);

	return n ? block_size(n) / u->logical_block_size : 0;
}

bool scsi_unit_read_only(const struct scsi_unit *u)
{
	const struct block_node *n = scsi_medium(u);

	return u->cd || (n && block_read_only(n));
}

void scsi_unit_reset(struct scsi_unit *u)
{
	u->wce = u->initial_wce;
	u->mmc.locked = false;
	u->attention = SENSE_RESET;
}

/* ---- life cycle ---------------------------------------------------------------------- */

static struct scsi_unit *unit_of(struct dev *d)
{
	return container_of(d, struct scsi_unit, dev);
}

/* Loop's thread. */
static void enter_bus(void *arg)
{
	struct scsi_unit *u = arg, **at = &u->bus->units;

	mmc_reset(&u->mmc);
	u->attention = SENSE_RESET;
	/* By channel, target and LUN, so that REPORT LUNS is in order. */
	while (*at && ((*at)->channel < u->channel ||
		       ((*at)->channel == u->channel &&
			((*at)->target < u->target || ((*at)->target == u->target && (*at)->lun < u->lun)))))
		at = &(*at)->next;
	u->next = *at;
	*at = u;
	if (u->bus->ops && u->bus->ops->unit_event)
		u->bus->ops->unit_event(u->bus, u, SCSI_UNIT_ADDED);
}

static void leave_bus(void *arg)
{
	struct scsi_unit *u = arg;

	if (u->bus->ops && u->bus->ops->unit_event)
		u->bus->ops->unit_event(u->bus, u, SCSI_UNIT_REMOVED);
	if (u->drive && u->drive->node)
		block_drain(u->drive->node);
	scsi_unit_abandon(u);
	for (struct scsi_unit **at = &u->bus->units; *at; at = &(*at)->next)
		if (*at == u) {
			*at = u->next;
			break;
		}
}

static void unit_unrealize(struct dev *d)
{
	struct scsi_unit *u = unit_of(d);

	if (u->bus)
		iothread_call(u->bus->loop, leave_bus, u);
	if (u->drive && u->drive->node) {
		block_set_loop(u->drive->node, d->bus->loop, NULL);
		block_set_writeback(u->drive->node, u->drive_writeback);
	}
	if (u->drive) {
		u->drive->claimed = false;
		u->drive->media = NULL;
	}
	u->bus = NULL;
}

static int check_props(struct scsi_unit *u, struct err *err)
{
	if (!u->drive && !u->cd)
		return err_set(err, -EINVAL, "drive property not set");
	if (u->drive && !u->drive->node && !u->cd)
		return err_set(err, -EINVAL, "Device needs media, but drive '%s' is empty", u->drive->id);
	if (u->drive && u->drive->claimed)
		return err_set(err, -EBUSY, "Drive '%s' is already in use by another device", u->drive->id);
	if (u->cd)
		u->logical_block_size = MMC_BLOCK;
	else if (!u->logical_block_size)
		u->logical_block_size = 512;
	if (!u->physical_block_size)
		u->physical_block_size = u->logical_block_size;
	if (disk_check_block_sizes(u->logical_block_size, u->physical_block_size, err))
		return -EINVAL;
	if (u->min_io_size % u->logical_block_size || u->opt_io_size % u->logical_block_size ||
	    u->min_io_size / u->logical_block_size > UINT16_MAX)
		return err_set(err, -EINVAL, "min_io_size and opt_io_size must be multiples of logical_block_size");
	return 0;
}

static int default_text(char **text, const char *value, size_t max, const char *name, struct err *err)
{
	if (!*text && value && !(*text = strdup(value)))
		return err_set(err, -ENOMEM, "out of memory");
	if (*text && strlen(*text) > max)
		return err_set(err, -EINVAL, "%s=%s: at most %zu characters", name, *text, max);
	return 0;
}

static int unit_realize(struct dev *d, bool cd, struct err *err)
{
	struct scsi_unit *u = unit_of(d);
	struct scsi_bus *b;
	int ret;

	u->cd = cd;
	ret = check_props(u, err);
	if (!ret)
		ret = default_text(&u->vendor, "KELVIN", 8, "vendor", err);
	if (!ret)
		ret = default_text(&u->product, cd ? "KELVIN CD-ROM" : "KELVIN HARDDISK", 16, "product", err);
	if (!ret)
		ret = default_text(&u->version, "1.0", 4, "ver", err);
	if (!ret)
		ret = default_text(&u->serial, u->drive ? u->drive->serial : NULL, 36, "serial", err);
	if (!ret)
		ret = default_text(&u->device_id,
				   u->serial  ? u->serial
				   : u->drive ? u->drive->id
					      : d->id,
				   200, "device_id", err);
	if (ret)
		return ret;
	b = scsi_bus_by_name(u->bus_name);
	if (!b)
		return u->bus_name ? err_set(err, -ENODEV, "Bus '%s' not found", u->bus_name)
				   : err_set(err, -ENODEV,
					     "No 'SCSI' bus found for device '%s': an adapter (-device "
					     "virtio-scsi-pci, or lsi) must come before",
					     d->ops->type.name);
	ret = scsi_bus_place(b, u, err);
	if (!ret && u->drive && u->drive->node)
		ret = block_set_loop(u->drive->node, b->loop, err);
	if (ret)
		return ret;
	if (u->drive)
		u->drive->claimed = true;
	if (u->drive && cd) {
		u->drive->cdrom = true;
		u->drive->media = &scsi_media_ops;
		u->drive->media_opaque = u;
	}
	u->mmc =
	    (struct mmc){.bus = d->bus, .drive = u->drive, .id = d->id, .product = u->product, .revision = u->version};
	u->drive_writeback = !u->drive || !u->drive->node || block_writeback(u->drive->node);
	u->initial_wce = u->write_cache == OOA_AUTO ? u->drive_writeback : u->write_cache == OOA_ON;
	u->wce = u->initial_wce;
	if (u->drive && u->drive->node) /* from here on each write says whether it must be durable */
		block_set_writeback(u->drive->node, true);
	disk_errors_init(&u->errors, d->bus, u->drive);
	u->bus = b;
	iothread_call(b->loop, enter_bus, u);
	return 0;
}

static int hd_realize(struct dev *d, struct err *err)
{
	return unit_realize(d, false, err);
}

static int cd_realize(struct dev *d, struct err *err)
{
	struct scsi_unit *u = unit_of(d);

	u->removable = true;
	if (!u->drive) /* an empty one, which the monitors may fill */
		u->drive = drive_create("if=none,media=cdrom", d->bus->loop, err);
	return !u->drive ? -EINVAL : unit_realize(d, true, err);
}

static void reset_unit(void *arg)
{
	scsi_unit_reset(arg);
}

/* The machine's reset; the adapter, which stands before its units, has ended their commands. */
static void unit_machine_reset(struct dev *d)
{
	struct scsi_unit *u = unit_of(d);

	if (u->bus)
		iothread_call(u->bus->loop, reset_unit, u);
}

#define OFFSET(f) offsetof(struct scsi_unit, f)
static const struct prop unit_props[] = {
    {.name = "drive", .kind = PROP_LINK, .offset = OFFSET(drive), .link_kind = "drive", .help = "-drive's id"},
    {.name = "bus",
     .kind = PROP_STR,
     .offset = OFFSET(bus_name),
     .help = "adapter: its id and .0; without one the first adapter"},
    {.name = "channel", .kind = PROP_U32, .offset = OFFSET(channel), .def = "0", .help = "channel of the bus"},
    {.name = "scsi-id",
     .kind = PROP_I64,
     .offset = OFFSET(scsi_id),
     .def = "-1",
     .help = "target number; -1: the next free one"},
    {.name = "lun", .kind = PROP_U32, .offset = OFFSET(lun), .def = "0", .help = "logical unit number"},
    {.name = "serial", .kind = PROP_STR, .offset = OFFSET(serial), .help = "unit serial number (VPD page 80h)"},
    {.name = "vendor", .kind = PROP_STR, .offset = OFFSET(vendor), .help = "vendor, 8 characters"},
    {.name = "product", .kind = PROP_STR, .offset = OFFSET(product), .help = "product, 16 characters"},
    {.name = "ver", .kind = PROP_STR, .offset = OFFSET(version), .help = "product revision, 4 characters"},
    {.name = "device_id",
     .kind = PROP_STR,
     .offset = OFFSET(device_id),
     .help = "designator of VPD page 83h; without it the serial number or the drive's id"},
    {.name = "wwn", .kind = PROP_U64, .offset = OFFSET(wwn), .def = "0", .help = "NAA designator of VPD page 83h"},
    {.name = "logical_block_size",
     .kind = PROP_U32,
     .offset = OFFSET(logical_block_size),
     .def = "0",
     .help = "the smallest unit of a request, in bytes; 0: 512, or 2048 for a CD"},
    {.name = "physical_block_size",
     .kind = PROP_U32,
     .offset = OFFSET(physical_block_size),
     .def = "0",
     .help = "what the guest should align to; 0: the logical size"},
    {.name = "min_io_size", .kind = PROP_U32, .offset = OFFSET(min_io_size), .def = "0", .help = "in bytes"},
    {.name = "opt_io_size", .kind = PROP_U32, .offset = OFFSET(opt_io_size), .def = "0", .help = "in bytes"},
    {.name = "rotation_rate",
     .kind = PROP_U16,
     .offset = OFFSET(rotation_rate),
     .def = "0",
     .help = "VPD page B1h: 1 is a solid state disk, 0 does not say"},
    {.name = "removable", .kind = PROP_BOOL, .offset = OFFSET(removable), .def = "off", .help = "removable medium"},
    {.name = "write-cache",
     .kind = PROP_ONOFFAUTO,
     .offset = OFFSET(write_cache),
     .def = "auto",
     .help = "off: every write is durable when it completes; auto: as cache= says"},
    {0},
};

static const struct counter unit_counters[] = {
    {"commands", OFFSET(commands), "SCSI commands"},
    {"failures", OFFSET(failures), "ended with CHECK CONDITION"},
    {"set_aside", OFFSET(errors.set_aside), "failed requests that stopped the machine (werror, rerror)"},
    {0},
};

static const struct state_field sense_fields[] = {
    STATE_INT(struct scsi_sense, key), STATE_INT(struct scsi_sense, asc), STATE_INT(struct scsi_sense, ascq), {0}};
static const struct state_field unit_fields[] = {
    STATE_INT(struct scsi_unit, wce),
    STATE_ONE(struct scsi_unit, mmc, mmc_state_fields),
    STATE_ONE(struct scsi_unit, attention, sense_fields),
    STATE_ONE(struct scsi_unit, kept, sense_fields),
    {0},
};

static int unit_pre_save(void *obj, struct err *err)
{
	const struct scsi_unit *u = obj;

	if (u->errors.first)
		return err_set(err, -EAGAIN, "a request of drive '%s' failed and waits for 'cont'", u->drive->id);
	return 0;
}

static const struct state unit_state = {
    .name = "scsi-unit", .version = 2, .min_version = 2, .fields = unit_fields, .pre_save = unit_pre_save};

#define UNIT_DEVICE(symbol, type_name, type_about, realize_fn)                                                         \
	const struct dev_ops symbol = {                                                                                \
	    .type = {.name = type_name, .about = type_about, .size = sizeof(struct scsi_unit), .props = unit_props},   \
	    .bus_kind = DEV_BUS_SCSI,                                                                                  \
	    .user_creatable = true,                                                                                    \
	    .realize = realize_fn,                                                                                     \
	    .unrealize = unit_unrealize,                                                                               \
	    .reset = unit_machine_reset,                                                                               \
	    .state = &unit_state,                                                                                      \
	    .counters = unit_counters,                                                                                 \
	}

UNIT_DEVICE(scsi_hd_ops, "scsi-hd", "SCSI disk", hd_realize);
UNIT_DEVICE(scsi_cd_ops, "scsi-cd", "SCSI CD or DVD drive", cd_realize);
