// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Media of removable drives at run time. Main loop's thread; a medium is let go in the thread of the node's loop, where
 * requests of the drive's device start and end, so that after block_drain nothing uses it.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "block/driver.h"
#include "io/iothread.h"

struct drive *drive_find_removable(const char *drive, const char *device_id, struct err *err)
{
	struct drive *d = NULL;

	if (!drive == !device_id) {
		err_set(err, -EINVAL, "Need exactly one of 'device' and 'id'");
		return NULL;
	}
	if (drive)
		d = drive_find(drive);
	for (size_t i = 0; device_id && (d = drive_at(i)); i++) {
		const char *id = d->media ? d->media->device_id(d->media_opaque) : NULL;

		if (id && strcmp(id, device_id) == 0)
			break;
	}
	if (!d)
		err_set(err, -ENODEV, "Device '%.60s' not found", drive ? drive : device_id);
	else if (!d->media)
		err_set(err, -EINVAL, "Device '%.60s' is not removable", d->id);
	return d && d->media ? d : NULL;
}

static bool tray_is_open(const struct drive *d)
{
	return d->media->tray_open(d->media_opaque);
}

int drive_open_tray(struct drive *d, bool force, struct err *err)
{
	const bool locked = d->media->locked(d->media_opaque);

	if (tray_is_open(d))
		return 0;
	if (locked)
		d->media->eject_request(d->media_opaque, force);
	if (locked && !force)
		return err_set(err, -EBUSY,
			       "Device '%s' is locked and force was not specified, wait for tray to open and try again",
			       d->id);
	d->media->set_tray(d->media_opaque, true);
	return 0;
}

int drive_close_tray(struct drive *d, struct err *err)
{
	d->media->set_tray(d->media_opaque, false);
	return 0;
}

/* Runs where the device submits requests. */
static void let_go(void *arg)
{
	struct drive *d = arg;

	block_drain(d->node);
	d->node = NULL;
}

/* Whatever state the tray is in. */
static void take_out(struct drive *d)
{
	struct block_node *old = d->node;

	if (!old)
		return;
	iothread_call(old->loop, let_go, d);
	block_set_loop(old, d->loop, NULL);
	block_close(old);
	d->media->medium_changed(d->media_opaque);
}

int drive_remove_medium(struct drive *d, struct err *err)
{
	if (!tray_is_open(d))
		return err_set(err, -EBUSY, "Tray of device '%s' is not open", d->id);
	take_out(d);
	return 0;
}

static int put_in(struct drive *d, struct block_node *node, struct err *err)
{
	if (!tray_is_open(d))
		return err_set(err, -EBUSY, "Tray of device '%s' is not open", d->id);
	if (d->node)
		return err_set(err, -EBUSY, "There already is a medium in device '%s'", d->id);
	d->node = node;
	d->media->medium_changed(d->media_opaque);
	return 0;
}

int drive_insert_medium(struct drive *d, struct drive *from, struct err *err)
{
	int ret;

	if (from->claimed || !from->node)
		return err_set(err, -EBUSY, "Node '%s' is %s", from->id,
			       from->claimed ? "already in use by a device" : "empty");
	ret = put_in(d, from->node, err);
	if (!ret)
		from->node = NULL;
	return ret;
}

int drive_eject(struct drive *d, bool force, struct err *err)
{
	int ret = drive_open_tray(d, force, err);

	if (!ret)
		take_out(d);
	return ret;
}

int drive_change_medium(struct drive *d, const char *filename, const char *format, bool force, enum drive_access access,
			struct err *err)
{
	struct block_open o = d->open;
	struct block_node *node;
	int ret;

	o.filename = filename;
	o.format = format;
	if (access != DRIVE_RETAIN)
		o.read_only = access == DRIVE_READ_ONLY;
	if (d->cdrom && access == DRIVE_READ_WRITE)
		return err_set(err, -EROFS, "Device '%s' is a CD-ROM drive: its media are read-only", d->id);
	o.read_only |= d->cdrom;
	/* First the new one: when it cannot be opened everything stays as it is. */
	node = block_open(&o, d->loop, err);
	if (!node)
		return err && err->code ? err->code : -EIO;
	ret = drive_open_tray(d, force, err);
	if (ret) {
		block_close(node);
		return ret;
	}
	take_out(d);
	ret = put_in(d, node, err);
	if (ret) {
		block_close(node);
		return ret;
	}
	return drive_close_tray(d, err);
}
