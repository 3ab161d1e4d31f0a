// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * SCSI buses: which units hang on which adapter, under QEMU's names (a bus is its
 * adapter's id and ".0", or "scsi.N" without an id).
 *
 * The list of buses is the main thread's; a bus's list of units its loop's.
 */
#include "hw/scsi/scsi_int.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

static struct scsi_bus *buses;

void scsi_bus_init(struct scsi_bus *b)
{
	struct scsi_bus **at = &buses;
	unsigned n = 0;

	for (; *at; at = &(*at)->next)
		n++;
	*at = b;
	b->next = NULL;
	if (b->hba->id)
		snprintf(b->name, sizeof(b->name), "%.64s.0", b->hba->id);
	else
		snprintf(b->name, sizeof(b->name), "scsi.%u", n);
}

void scsi_bus_fini(struct scsi_bus *b)
{
	for (struct scsi_unit *u = b->units; u; u = u->next)
		u->bus = NULL;
	b->units = NULL;
	for (struct scsi_bus **at = &buses; *at; at = &(*at)->next)
		if (*at == b) {
			*at = b->next;
			return;
		}
}

struct scsi_bus *scsi_bus_by_name(const char *name)
{
	for (struct scsi_bus *b = buses; b; b = b->next)
		if (!name || !strcmp(b->name, name))
			return b;
	return NULL;
}

struct scsi_unit *scsi_bus_find(const struct scsi_bus *b, unsigned channel, unsigned target, unsigned lun)
{
	for (struct scsi_unit *u = b->units; u; u = u->next)
		if (u->channel == channel && u->target == target && u->lun == lun)
			return u;
	return NULL;
}

bool scsi_bus_has_target(const struct scsi_bus *b, unsigned channel, unsigned target)
{
	for (const struct scsi_unit *u = b->units; u; u = u->next)
		if (u->channel == channel && u->target == target)
			return true;
	return false;
}

int scsi_bus_place(const struct scsi_bus *b, struct scsi_unit *u, struct err *err)
{
	if (u->scsi_id < 0) { /* as QEMU: the next free target with that channel and LUN */
		for (u->target = 0; u->target <= b->max_target; u->target++)
			if (u->target != b->own_id && !scsi_bus_find(b, u->channel, u->target, u->lun))
				break;
		if (u->target > b->max_target)
			return err_set(err, -ENOSPC, "no free target on bus '%s'", b->name);
	} else {
		u->target = (unsigned)MIN(u->scsi_id, (int64_t)UINT32_MAX);
	}
	if (u->channel > b->max_channel)
		return err_set(err, -EINVAL, "bad scsi channel id: %u (bus '%s' has 0 to %u)", u->channel, b->name,
			       b->max_channel);
	if (u->target > b->max_target || u->target == b->own_id)
		return err_set(err, -EINVAL, "bad scsi device id: %u (bus '%s' has 0 to %u%s)", u->target, b->name,
			       b->max_target, u->target == b->own_id ? ", this one is the adapter's own" : "");
	if (u->lun > b->max_lun)
		return err_set(err, -EINVAL, "bad scsi device lun: %u (bus '%s' has 0 to %u)", u->lun, b->name,
			       b->max_lun);
	if (scsi_bus_find(b, u->channel, u->target, u->lun))
		return err_set(err, -EEXIST, "lun already used: channel %u, scsi-id %u, lun %u of bus '%s'", u->channel,
			       u->target, u->lun, b->name);
	return 0;
}

void scsi_unit_address(const struct scsi_unit *u, unsigned *channel, unsigned *target, unsigned *lun)
{
	*channel = u->channel;
	*target = u->target;
	*lun = u->lun;
}

#define FOR_EACH_UNIT(b, u) for (struct scsi_unit *u = (b)->units; u; u = u->next)

void scsi_bus_reset(struct scsi_bus *b)
{
	FOR_EACH_UNIT(b, u) scsi_unit_reset(u);
}

void scsi_bus_drain(struct scsi_bus *b)
{
	FOR_EACH_UNIT(b, u)
	{
		if (u->drive && u->drive->node)
			block_drain(u->drive->node);
	}
}

void scsi_bus_flush_queues(struct scsi_bus *b)
{
	FOR_EACH_UNIT(b, u)
	{
		if (u->drive && u->drive->node)
			block_flush_queue(u->drive->node);
	}
}

void scsi_unit_abandon(struct scsi_unit *u)
{
	struct disk_failed *f, *list = disk_errors_take(&u->errors);

	while ((f = list) != NULL) {
		list = f->next;
		scsi_fail_run(container_of(f, struct scsi_req, failed), SENSE_WRITE_FAULT);
	}
}

void scsi_bus_abandon(struct scsi_bus *b)
{
	FOR_EACH_UNIT(b, u) scsi_unit_abandon(u);
}

void scsi_bus_resume(struct scsi_bus *b)
{
	FOR_EACH_UNIT(b, u)
	{
		struct disk_failed *f, *list = disk_errors_take(&u->errors);
		while ((f = list) != NULL) {
			list = f->next;
			scsi_resubmit(container_of(f, struct scsi_req, failed));
		}
	}
	scsi_bus_flush_queues(b);
}
