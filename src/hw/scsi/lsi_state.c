// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a snapshot keeps of an LSI 53C895A: registers, program memory, and where its
 * program stands. A command on the bus is not kept: the program goes on by itself
 * until all have ended, so a snapshot waits for that (-EAGAIN).
 *
 * Locking: the main loop's thread, vCPUs stopped; nobody else is there.
 */
#include "hw/scsi/lsi.h"

#include <errno.h>

static const struct state_field lsi_fields[] = {
    STATE_RAW(struct lsi, reg),
    STATE_RAW(struct lsi, ram),
    STATE_INT_MAX(struct lsi, run, LSI_WAIT_DISCONNECT),
    STATE_INT(struct lsi, carry),
    STATE_INT(struct lsi, no_answer),
    STATE_INT(struct lsi, reset_units),
    {0},
};

static int lsi_pre_save(void *obj, struct err *err)
{
	const struct lsi *l = obj;

	if (l->nreqs || l->connected || l->move_left || l->submit)
		return err_set(err, -EAGAIN, "a SCSI command is under way, or failed and waits for 'cont'");
	return 0;
}

/* The general purpose timer's rest is the host's: it starts anew. */
static int lsi_post_load(void *obj, struct err *err)
{
	struct lsi *l = obj;

	lsi_reg_write(l, STIME1, l->reg[STIME1]);
	return 0;
}

const struct state lsi_state = {.name = "lsi53c895a",
				.version = 1,
				.min_version = 1,
				.parent = &pci_state,
				.fields = lsi_fields,
				.pre_save = lsi_pre_save,
				.post_load = lsi_post_load};
