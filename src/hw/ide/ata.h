/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An ATA or ATAPI device behind a port: a channel of a legacy controller or a port of an AHCI one. The device
 * decodes commands and does host I/O; the port moves the task file and the data.
 *
 * Locking: everything is under the controller's dev.lock (ata_dev.lock) unless said otherwise. Host I/O is started
 * from the main loop without it. While a request is in flight BSY is set, and a reset ends only when it has returned,
 * so that no data arrives in guest memory after the guest was told that the device is idle.
 */
#ifndef KELVIN_HW_IDE_ATA_H
#define KELVIN_HW_IDE_ATA_H

#include "block/block.h"
#include "bus/dev.h"
#include "hw/disk.h"
#include "hw/mmc.h"

#define ATA_SECTOR    512u
#define ATA_MAX_MULT  16u
#define ATA_BUF_SIZE  65536u
#define ATA_MAX_IOV   256 /* pieces of one part of a transfer */
#define ATA_MAX_PART  (4 * MIB)
#define ATA_MAX_TRIM  8u /* 512-byte blocks of ranges */
#define ATA_QUEUE_MAX 32

/* Status and error registers: ATA8-ACS, 6 */
#define ATA_SR_BSY  0x80u
#define ATA_SR_DRDY 0x40u
#define ATA_SR_DF   0x20u
#define ATA_SR_DSC  0x10u
#define ATA_SR_DRQ  0x08u
#define ATA_SR_ERR  0x01u
#define ATA_ER_UNC  0x40u
#define ATA_ER_IDNF 0x10u
#define ATA_ER_ABRT 0x04u

#define ATA_CMD_DEVICE_RESET 0x08u
#define ATA_CMD_DIAGNOSTIC   0x90u
#define ATA_CMD_PACKET	     0xa0u

#define ATA_DEV_LBA   0x40u
#define ATA_DEV_SLAVE 0x10u

/* Interrupt reason of a packet device, in the count register */
#define ATAPI_COD 0x01u
#define ATAPI_IO  0x02u

/* The task file. [0]: what was written last, [1]: what was there before (the high byte of a 48-bit command). */
struct ata_regs {
	uint8_t feature[2], count[2], lba[3][2], device;
	uint8_t status, error;
};

enum ata_proto { ATA_NO_DATA, ATA_PIO, ATA_DMA };
enum ata_work { ATA_WORK_NONE, ATA_WORK_SUBMIT, ATA_WORK_CALL };

struct ata_dev;
struct ata_command;

/* What a port does for its device. lock held. */
struct ata_port_ops {
	/* The data phase starts: d->proto, d->to_guest, d->left. The port moves all of it, then calls ata_data_done. */
	void (*begin)(struct ata_dev *d);
	/* The part given to ata_transfer is done (0) or failed; after a failure the command ends with an error. */
	void (*moved)(struct ata_dev *d);
	/* The command ended, its result is in d->regs. */
	void (*end)(struct ata_dev *d);
	/* PACKET was written: the port gets d->cdb and calls ata_packet. NULL: the port has it beforehand. */
	void (*want_packet)(struct ata_dev *d);
	/* A software reset that had to wait has ended. May be NULL. */
	void (*reset_done)(struct ata_dev *d);
};

struct ata_dev {
	/* from the device type's properties */
	struct bus *bus;
	struct drive *drive;
	bool cd;
	char *serial, *model, *version;
	uint64_t wwn;
	uint32_t physical_block_size;
	uint16_t rotation_rate;
	uint32_t cyls, heads, secs;
	bool initial_wce;

	/* from the port */
	pthread_mutex_t *lock;
	const struct ata_port_ops *ops;
	void *port;
	bool sata;  /* behind AHCI */
	bool slave; /* second device of a legacy channel */

	uint64_t sectors;
	struct ata_regs regs;
	uint32_t cur_cyls, cur_heads, cur_secs; /* as INITIALIZE DEVICE PARAMETERS said */
	uint8_t mult, pio_mode, mdma_mode, udma_mode;
	bool wce, look_ahead, smart, smart_autosave, identified;
	uint8_t ncq_error[ATA_SECTOR]; /* log 10h */

	/* the command in progress */
	const struct ata_command *cmd;
	uint8_t opcode;
	enum ata_proto proto;
	bool to_guest, from_disk, fua;
	uint64_t offset, left;		     /* bytes; offset: on the disk, or in buf */
	uint32_t part;			     /* bytes of the part in flight */
	uint32_t block;			     /* PIO: bytes of one DRQ block */
	void (*received)(struct ata_dev *d); /* all data out arrived in buf; NULL: end */
	uint32_t trim_at, trim_end;
	uint8_t cdb[16];
	struct mmc mmc;
	uint8_t *buf;		    /* ATA_BUF_SIZE */
	bool saved_cmd, saved_trim; /* in snapshots: cmd and received are not NULL */

	/* host I/O: one request at a time (NCQ has its own) */
	enum ata_work work;
	void (*call)(struct ata_dev *d); /* ATA_WORK_CALL: in the loop, lock held */
	void (*io_done)(struct ata_dev *d, int ret);
	bool io, resetting, running;
	struct block_req req;
	struct disk_failed failed;
	struct disk_errors errors;
	struct iovec iov[ATA_MAX_IOV];
	int niov;

	uint64_t commands, parts; /* counters */
};

/* Once, by the device type: everything above "from the port" is filled in. */
int ata_init(struct ata_dev *d, struct err *err);
void ata_fini(struct ata_dev *d);
/* Machine reset: nothing is in flight. */
void ata_power_on(struct ata_dev *d);
/* Software reset: BSY until what is in flight has returned, then the signature. */
void ata_soft_reset(struct ata_dev *d);
bool ata_busy(const struct ata_dev *d); /* a command, or a reset that has not ended */
int ata_pause(struct ata_dev *d);	/* without the lock; main loop's thread */
void ata_resume(struct ata_dev *d);

/* Start the command in `opcode` with d->regs. */
void ata_start(struct ata_dev *d, uint8_t opcode);
/* The port has d->cdb. */
void ata_packet(struct ata_dev *d);
/*
 * Move the next d->part bytes between the disk (or buf) and d->iov[0..niov); then ops->moved.
 * The port has set iov and niov and checked that part <= left and is a multiple of 512 for the disk.
 */
void ata_transfer(struct ata_dev *d);
void ata_data_done(struct ata_dev *d);
/* End the command in progress: 0, or error bits. */
void ata_end(struct ata_dev *d, uint8_t error);
/* DMA hit something that is not RAM. */
void ata_dma_fault(struct ata_dev *d);

/* Snapshots: the fields, and what comes before and after. */
extern const struct state_field ata_state_fields[];
int ata_pre_save(struct ata_dev *d, struct err *err);
int ata_post_load(struct ata_dev *d, struct err *err);

/* Between the files of the device. */
void ata_trim_received(struct ata_dev *d);
void ata_work(struct ata_dev *d, enum ata_work work);
void ata_submit(struct ata_dev *d, enum block_op op, uint64_t offset, uint64_t len,
		void (*done)(struct ata_dev *, int));
void ata_call(struct ata_dev *d, void (*fn)(struct ata_dev *d));
void ata_data(struct ata_dev *d, enum ata_proto proto, bool to_guest, uint64_t len); /* from or to buf */
void ata_signature(struct ata_dev *d);
void ata_identify(const struct ata_dev *d, uint8_t *out);
void ata_identify_packet(const struct ata_dev *d, uint8_t *out);
void ata_cmd_smart(struct ata_dev *d);
void ata_cmd_packet(struct ata_dev *d);
const struct ata_command *ata_command_find(const struct ata_dev *d, uint8_t opcode);
void ata_command_run(struct ata_dev *d);
/* The range of a 48-bit read or write (NCQ): false when it is beyond the end. */
bool ata_range_ok(const struct ata_dev *d, uint64_t lba, uint64_t count);

#endif
