/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the parts of the SCSI logical unit: scsi_req.c (a command's life), scsi_unit.c (devices), and the commands.
 */
#ifndef KELVIN_HW_SCSI_SCSI_INT_H
#define KELVIN_HW_SCSI_SCSI_INT_H

#include "base/util.h"
#include "hw/mmc.h"
#include "hw/scsi/scsi.h"

#define SCSI_MAX_RANGE	  (1ull << 30) /* bytes of one UNMAP or WRITE SAME */
#define SCSI_UNMAP_RANGES 255

struct scsi_unit {
	struct dev dev;
	/* properties */
	struct drive *drive; /* may be NULL for a CD drive */
	char *bus_name, *serial, *vendor, *product, *version, *device_id;
	uint32_t channel, lun;
	int64_t scsi_id; /* -1: the next free one */
	uint64_t wwn;
	uint32_t logical_block_size, physical_block_size, min_io_size, opt_io_size;
	uint16_t rotation_rate;
	int write_cache; /* enum onoffauto */
	bool removable;
	/* state; the loop's thread */
	bool cd;
	struct scsi_bus *bus;
	struct scsi_unit *next;
	unsigned target;
	bool drive_writeback, initial_wce, wce;
	struct mmc mmc; /* tray and lock; of a CD drive all the rest too. Its attention goes on to the unit's */
	struct scsi_sense attention; /* key 0: none */
	struct scsi_sense kept;	     /* for REQUEST SENSE, on buses without automatic sense */
	struct disk_errors errors;
	uint64_t commands, failures; /* counters */
};

/* ---- sense ------------------------------------------------------------------ */

#define SENSE(name, k, c, q) static const struct scsi_sense name __attribute__((unused)) = {k, c, q}
SENSE(SENSE_NONE, 0, 0, 0);
SENSE(SENSE_BECOMING_READY, 0x02, 0x04, 0x01);
SENSE(SENSE_NO_MEDIUM, 0x02, 0x3a, 0x00);
SENSE(SENSE_NO_MEDIUM_TRAY_OPEN, 0x02, 0x3a, 0x02);
SENSE(SENSE_WRITE_FAULT, 0x03, 0x0c, 0x00);
SENSE(SENSE_READ_FAULT, 0x03, 0x11, 0x00);
SENSE(SENSE_NO_RESOURCES, 0x04, 0x55, 0x00);
SENSE(SENSE_PARAMETER_LENGTH, 0x05, 0x1a, 0x00);
SENSE(SENSE_INVALID_OPCODE, 0x05, 0x20, 0x00);
SENSE(SENSE_LBA_RANGE, 0x05, 0x21, 0x00);
SENSE(SENSE_INVALID_FIELD, 0x05, 0x24, 0x00);
SENSE(SENSE_NO_LUN, 0x05, 0x25, 0x00);
SENSE(SENSE_INVALID_PARAMETER, 0x05, 0x26, 0x00);
SENSE(SENSE_SAVING_NOT_SUPPORTED, 0x05, 0x39, 0x00);
SENSE(SENSE_REMOVAL_PREVENTED, 0x05, 0x53, 0x02);
SENSE(SENSE_RESET, 0x06, 0x29, 0x00);
SENSE(SENSE_MEDIUM_CHANGED, 0x06, 0x28, 0x00);
SENSE(SENSE_MODE_CHANGED, 0x06, 0x2a, 0x01);
SENSE(SENSE_WRITE_PROTECTED, 0x07, 0x27, 0x00);
SENSE(SENSE_SPACE_FAILED, 0x07, 0x27, 0x07);
SENSE(SENSE_MISCOMPARE, 0x0e, 0x1d, 0x00);
#undef SENSE

/* ---- commands ---------------------------------------------------------------- */

#define SCSI_DISK 1u
#define SCSI_CD	  2u
#define SCSI_BOTH 3u

#define SCSI_CMD_ALWAYS 1u /* also without a unit's attention being reported first */
#define SCSI_CMD_MEDIUM 2u
#define SCSI_CMD_WRITES 4u

#define SCSI_NO_SA 0xff

struct scsi_command {
	uint8_t op, sa; /* service action: bits 0 to 4 of byte 1 */
	uint8_t types, flags;
	/* Check the CDB; set dir and len, or a reply. 0, or scsi_fail's result. */
	int (*parse)(struct scsi_req *req);
	/* With the buffers; ends in scsi_finish or scsi_fail_run. NULL: move the reply. */
	void (*run)(struct scsi_req *req);
};
extern const struct scsi_command scsi_general_table[], scsi_block_table[], scsi_mmc_table[]; /* end with parse NULL */

/* Set CHECK CONDITION; always -1, so that parse can return it. */
int scsi_fail(struct scsi_req *req, struct scsi_sense s);
/* The same where the request runs, and end it. */
void scsi_fail_run(struct scsi_req *req, struct scsi_sense s);
void scsi_finish(struct scsi_req *req); /* GOOD */
/* Room for a reply or parameters of `len` bytes, zeroed: NULL, and the request failed, without memory. */
uint8_t *scsi_buf(struct scsi_req *req, uint32_t len);
/* The reply is scsi_buf's `len` bytes, of which the guest takes at most `alloc`. */
int scsi_reply(struct scsi_req *req, uint32_t len, uint32_t alloc);
/* The guest sends `len` bytes, which run finds in req->buf after scsi_take_parameters. */
int scsi_want_parameters(struct scsi_req *req, uint32_t len);
bool scsi_take_parameters(struct scsi_req *req);
/* Submit req->b (op, offset, len, iov, flags filled in); `then` runs on success, failures end the request. */
void scsi_submit(struct scsi_req *req, void (*then)(struct scsi_req *req));
void scsi_resubmit(struct scsi_req *req);

/* ---- buses: main thread ------------------------------------------------------------ */

/* NULL name: the first bus there is. */
struct scsi_bus *scsi_bus_by_name(const char *name);
/* Choose or check the unit's address. */
int scsi_bus_place(const struct scsi_bus *b, struct scsi_unit *u, struct err *err);

/* ---- the unit ------------------------------------------------------------------ */

static inline struct block_node *scsi_medium(const struct scsi_unit *u)
{
	return u->drive && !u->mmc.tray_open ? u->drive->node : NULL;
}
uint64_t scsi_blocks(const struct scsi_unit *u); /* on the medium; 0 without one */
bool scsi_unit_read_only(const struct scsi_unit *u);
/* End the requests that were set aside. */
void scsi_unit_abandon(struct scsi_unit *u);
/* After anything that may have moved the tray: the guest hears of a new medium once, the monitors of the tray. */
void scsi_unit_mmc_news(struct scsi_unit *u);
/* scsi_mmc.c: parse functions of commands that hw/mmc.c answers. */
int scsi_mmc_command(struct scsi_req *req);
extern const struct drive_media_ops scsi_media_ops;

/* scsi_mode.c */
int scsi_mode_sense(struct scsi_req *req);
int scsi_mode_select(struct scsi_req *req);
void scsi_mode_select_run(struct scsi_req *req);
/* scsi_inquiry.c */
int scsi_inquiry(struct scsi_req *req);
int scsi_inquiry_no_lun(struct scsi_req *req);
int scsi_sense_no_lun(struct scsi_req *req);
int scsi_report_luns(struct scsi_req *req);
/* scsi_block.c: a read's or write's range is right? Sets offset and len. */
int scsi_set_range(struct scsi_req *req, enum scsi_dir dir, uint64_t lba, uint64_t count);
void scsi_run_read(struct scsi_req *req);

#endif
