/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An optical drive as its command set sees it (MMC-6 over SPC-4): tray, medium,
 * sense, and the table of packet commands. Knows no transport: an ATAPI device and
 * a SCSI one can both run it.
 *
 * Locking: the owner's lock around every call but mmc_emit, or one thread for all of them; the medium is exchanged
 * while that thread (for ATAPI the main loop's) has nothing in flight on it.
 */
#ifndef KELVIN_HW_MMC_H
#define KELVIN_HW_MMC_H

#include "block/block.h"
#include "bus/dev.h"

#define MMC_BLOCK   2048u
#define MMC_CDB_LEN 12u
/* The largest reply a command builds in the buffer it is given, bytes. */
#define MMC_REPLY_MAX 1024u

struct mmc {
	struct bus *bus;
	struct drive *drive;  /* NULL: never any medium */
	const char *id;	      /* of the device, for events; NULL: none */
	const char *product;  /* INQUIRY: up to 16 characters */
	const char *revision; /* up to 4 */
	uint64_t blocks;      /* of the medium; 0: there is none */
	bool tray_open, locked;
	bool attention; /* UNIT ATTENTION is due: the medium may have changed */
	uint8_t event;	/* what GET EVENT STATUS tells next: enum mmc_event */
	uint8_t key, asc, ascq;
	bool moved; /* the tray moved: mmc_emit says so */
};

enum mmc_reply_kind {
	MMC_OK,	   /* done */
	MMC_CHECK, /* CHECK CONDITION; the sense is kept for REQUEST SENSE */
	MMC_DATA,  /* len bytes of the buffer go to the guest */
	MMC_READ,  /* len bytes at offset of the medium go to the guest */
	MMC_TAKE,  /* len bytes come from the guest and are ignored (MODE SELECT) */
};
struct mmc_reply {
	enum mmc_reply_kind kind;
	uint64_t offset, len; /* bytes */
};

extern const struct state_field mmc_state_fields[];

/* Power on: tray closed, unlocked, the medium as the drive has it. */
void mmc_reset(struct mmc *m);
/* buf: MMC_REPLY_MAX bytes. */
struct mmc_reply mmc_command(struct mmc *m, const uint8_t *cdb, uint8_t *buf);
/* A read of the medium failed with -errno: sets the sense. */
void mmc_read_failed(struct mmc *m, int ret);
uint8_t mmc_sense_key(const struct mmc *m);
/* Tell the monitors what happened meanwhile. Main loop's thread, without the lock. */
void mmc_emit(struct mmc *m);
/* The same from the owner's thread: the main loop tells them soon. */
void mmc_post_event(struct mmc *m);

/* The host's side, for struct drive_media_ops. */
void mmc_set_tray(struct mmc *m, bool open);
void mmc_eject_request(struct mmc *m, bool force);
void mmc_medium_changed(struct mmc *m);

#endif
