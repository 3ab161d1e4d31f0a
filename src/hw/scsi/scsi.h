/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SCSI between host bus adapters and logical units. An adapter embeds a struct
 * scsi_bus; units (scsi-hd, scsi-cd) are devices on it. A command is one struct
 * scsi_req: init parses the CDB and says how many bytes move which way, run gives
 * buffers (guest pages: nothing is copied for reads and writes), done reports
 * status and sense.
 *
 * Thread: everything here belongs to the bus's loop and is called there, without
 * dev.lock, because host I/O starts from it.
 */
#ifndef KELVIN_HW_SCSI_SCSI_H
#define KELVIN_HW_SCSI_SCSI_H

#include "block/block.h"
#include "bus/dev.h"
#include "hw/disk.h"

/* SAM-5, 5.3.1 */
enum scsi_status {
	SCSI_GOOD = 0x00,
	SCSI_CHECK_CONDITION = 0x02,
	SCSI_BUSY = 0x08,
	SCSI_TASK_SET_FULL = 0x28,
	SCSI_TASK_ABORTED = 0x40,
};

#define SCSI_CDB_LEN   16 /* longer ones are refused */
#define SCSI_SENSE_LEN 18 /* fixed format */

/* Sense key, additional sense code and qualifier: SPC-4, 4.5. */
struct scsi_sense {
	uint8_t key, asc, ascq;
};

enum scsi_dir { SCSI_DIR_NONE, SCSI_DIR_IN /* to the guest */, SCSI_DIR_OUT };

struct scsi_bus;
struct scsi_unit;
struct scsi_command;

enum scsi_unit_event { SCSI_UNIT_ADDED, SCSI_UNIT_REMOVED, SCSI_UNIT_MEDIUM };

struct scsi_hba_ops {
	/* May be NULL. */
	void (*unit_event)(struct scsi_bus *b, struct scsi_unit *u, enum scsi_unit_event event);
};

struct scsi_bus {
	struct dev *hba;
	struct loop *loop;
	const struct scsi_hba_ops *ops;
	unsigned max_channel, max_target, max_lun; /* the largest of each */
	unsigned own_id;			   /* the adapter's place among the targets; UINT_MAX: none */
	bool keeps_sense;			   /* sense does not travel with the status: REQUEST SENSE fetches it */
	char name[72];				   /* "ID.0", or "scsi.N" */
	struct scsi_unit *units;
	struct scsi_bus *next;
};

/* In the adapter's realize, with hba, loop, ops and the limits filled in. scsi_bus_fini: with nothing in flight. */
void scsi_bus_init(struct scsi_bus *b);
void scsi_bus_fini(struct scsi_bus *b);
/* NULL: there is none. `any_lun`: whichever of that target. */
struct scsi_unit *scsi_bus_find(const struct scsi_bus *b, unsigned channel, unsigned target, unsigned lun);
bool scsi_bus_has_target(const struct scsi_bus *b, unsigned channel, unsigned target);
/* All units: reset (`power_on` of the machine, or by the guest), drain, and what becomes of requests set aside. */
void scsi_bus_reset(struct scsi_bus *b);
void scsi_bus_drain(struct scsi_bus *b);
void scsi_bus_abandon(struct scsi_bus *b);
void scsi_bus_resume(struct scsi_bus *b);
/* Start the host I/O that was queued. */
void scsi_bus_flush_queues(struct scsi_bus *b);
/* A reset that leaves UNIT ATTENTION behind: one unit, or a target's. */
void scsi_unit_reset(struct scsi_unit *u);

/*
 * A command. Owned by the adapter until done runs, which may be inside scsi_req_run.
 * If fewer bytes were given than the command moves, done comes with pos < len and
 * GOOD: run may be called again with buffers for the next part. Only reads and
 * writes of the medium can be cut so.
 */
struct scsi_req {
	struct scsi_bus *bus;
	struct scsi_unit *unit; /* NULL: no such logical unit at this target */
	unsigned channel, target, lun;
	uint8_t cdb[SCSI_CDB_LEN];
	const struct scsi_command *cmd; /* NULL: ends with the status below */
	enum scsi_dir dir;
	uint64_t len, pos; /* bytes to move in all; moved */
	uint8_t status;	   /* enum scsi_status; valid in done */
	uint8_t sense_len; /* 0: none */
	uint8_t sense[SCSI_SENSE_LEN];
	bool cancelled; /* by a task management function: the result goes nowhere */
	void (*done)(struct scsi_req *req);
	/* the unit's: */
	uint64_t offset; /* bytes on the medium */
	uint64_t step;	 /* progress of commands that take several block requests */
	struct iovec *iov;
	int niov;
	uint64_t part; /* bytes of iov that count */
	uint8_t *buf;  /* reply or parameters; `small` or allocated */
	uint32_t buf_len;
	uint8_t small[128];
	struct iovec one; /* for block requests on buf */
	struct block_req b;
	struct disk_failed failed;
};

void scsi_req_init(struct scsi_req *req, struct scsi_bus *b, unsigned channel, unsigned target, unsigned lun,
		   const uint8_t *cdb, unsigned cdb_len, void (*done)(struct scsi_req *req));
/* `iov` is kept until done, and its last entry may be shortened. */
void scsi_req_run(struct scsi_req *req, struct iovec *iov, int niov);
void scsi_req_fini(struct scsi_req *req);
static inline bool scsi_req_more(const struct scsi_req *req)
{
	return req->status == SCSI_GOOD && req->pos < req->len;
}

/* The unit's address, for adapters that speak of it. */
void scsi_unit_address(const struct scsi_unit *u, unsigned *channel, unsigned *target, unsigned *lun);

#endif
