// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The packet commands of CD and DVD drives over SCSI: hw/mmc.c answers them, here the answer becomes a SCSI command's.
 * And the host's side of such a drive: the medium exchanged and ejected by the monitors.
 *
 * Thread: the bus's loop. The monitors call from the main loop's and wait until the bus's has done it.
 */
#include "hw/scsi/scsi_int.h"

#include "base/log.h"
#include "io/iothread.h"

/* ---- commands ---------------------------------------------------------------------- */

void scsi_unit_mmc_news(struct scsi_unit *u)
{
	if (u->mmc.attention)
		u->attention = SENSE_MEDIUM_CHANGED;
	u->mmc.attention = false;
	mmc_post_event(&u->mmc);
}

/* 0, or scsi_fail's result. */
static int run_mmc(struct scsi_req *req, struct mmc_reply *r)
{
	struct mmc *m = &req->unit->mmc;
	uint8_t *buf = scsi_buf(req, MMC_REPLY_MAX);

	if (!buf)
		return -1;
	*r = mmc_command(m, req->cdb, buf);
	scsi_unit_mmc_news(req->unit);
	return r->kind == MMC_CHECK ? scsi_fail(req, (struct scsi_sense){m->key, m->asc, m->ascq}) : 0;
}

/* Commands that move at most a reply. */
int scsi_mmc_command(struct scsi_req *req)
{
	struct mmc_reply r;

	if (run_mmc(req, &r))
		return -1;
	return r.kind == MMC_DATA ? scsi_reply(req, (uint32_t)r.len, (uint32_t)r.len) : 0;
}

static int read_cd(struct scsi_req *req)
{
	struct mmc_reply r;

	return run_mmc(req, &r) ? -1 : scsi_set_range(req, SCSI_DIR_IN, r.offset / MMC_BLOCK, r.len / MMC_BLOCK);
}

const struct scsi_command scsi_mmc_table[] = {
    {0x42, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, scsi_mmc_command, NULL}, /* READ SUB-CHANNEL */
    {0x43, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, scsi_mmc_command, NULL}, /* READ TOC */
    {0x46, SCSI_NO_SA, SCSI_CD, SCSI_CMD_ALWAYS, scsi_mmc_command, NULL}, /* GET CONFIGURATION */
    {0x4a, SCSI_NO_SA, SCSI_CD, SCSI_CMD_ALWAYS, scsi_mmc_command, NULL}, /* GET EVENT STATUS NOTIFICATION */
    {0x51, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, scsi_mmc_command, NULL}, /* READ DISC INFORMATION */
    {0x52, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, scsi_mmc_command, NULL}, /* READ TRACK INFORMATION */
    {0xad, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, scsi_mmc_command, NULL}, /* READ DISC STRUCTURE */
    {0xbb, SCSI_NO_SA, SCSI_CD, 0, scsi_mmc_command, NULL},		  /* SET CD SPEED */
    {0xbd, SCSI_NO_SA, SCSI_CD, 0, scsi_mmc_command, NULL},		  /* MECHANISM STATUS */
    {0xbe, SCSI_NO_SA, SCSI_CD, SCSI_CMD_MEDIUM, read_cd, scsi_run_read},
    {0},
};

/* ---- the host's side -------------------------------------------------------------------- */

struct media_call {
	struct scsi_unit *u;
	bool flag;
};

static bool media_call(void *opaque, void (*fn)(void *arg), bool flag)
{
	struct media_call c = {opaque, flag};

	iothread_call(c.u->bus->loop, fn, &c);
	return c.flag;
}

static void get_tray(void *arg)
{
	struct media_call *c = arg;

	c->flag = c->u->mmc.tray_open;
}

static void get_lock(void *arg)
{
	struct media_call *c = arg;

	c->flag = c->u->mmc.locked;
}

static void move_tray(void *arg)
{
	const struct media_call *c = arg;

	mmc_set_tray(&c->u->mmc, c->flag);
	scsi_unit_mmc_news(c->u);
}

static void press_button(void *arg)
{
	const struct media_call *c = arg;

	mmc_eject_request(&c->u->mmc, c->flag);
}

static void look_again(void *arg)
{
	const struct media_call *c = arg;

	mmc_medium_changed(&c->u->mmc);
	scsi_unit_mmc_news(c->u);
}

static bool media_tray_open(void *opaque)
{
	return media_call(opaque, get_tray, false);
}

static bool media_locked(void *opaque)
{
	return media_call(opaque, get_lock, false);
}

static void media_set_tray(void *opaque, bool open)
{
	media_call(opaque, move_tray, open);
}

static void media_eject_request(void *opaque, bool force)
{
	media_call(opaque, press_button, force);
}

/* The tray is open: nobody uses the new medium yet. */
static void media_changed(void *opaque)
{
	struct scsi_unit *u = opaque;
	struct err err = {0};

	if (u->drive->node && block_set_loop(u->drive->node, u->bus->loop, &err)) {
		log_error("the medium of drive '%s' cannot be used in its iothread: %s", u->drive->id, err.msg);
		block_close(u->drive->node);
		u->drive->node = NULL;
	}
	media_call(u, look_again, false);
}

static const char *media_device_id(void *opaque)
{
	return ((const struct scsi_unit *)opaque)->dev.id;
}

const struct drive_media_ops scsi_media_ops = {
    .tray_open = media_tray_open,
    .locked = media_locked,
    .set_tray = media_set_tray,
    .eject_request = media_eject_request,
    .medium_changed = media_changed,
    .device_id = media_device_id,
};
