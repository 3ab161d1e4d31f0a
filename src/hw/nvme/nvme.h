/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An NVMe controller with one namespace: nvme.c (registers, PCI, device), nvme_queue.c (rings, completions, a request's
 * life), nvme_admin.c and nvme_io.c (commands). NVM Express 1.4; chapters and names as there.
 *
 * Locking: dev.lock guards everything. A doorbell only notes the tail and wakes the main loop, which fetches commands
 * under the lock and submits host I/O without it. A reset of the controller (CC.EN to 0) and Delete I/O Submission
 * Queue end only when what is in flight has returned, so that no data reaches guest memory after that.
 */
#ifndef KELVIN_HW_NVME_NVME_H
#define KELVIN_HW_NVME_NVME_H

#include "block/block.h"
#include "bus/pci.h"
#include "hw/disk.h"

#define NVME_QUEUES	 64 /* I/O queues of each kind; queue 0 is the admin queue */
#define NVME_MAX_ENTRIES 2048u
#define NVME_PAGE	 4096u
#define NVME_MDTS	 7 /* the largest transfer: 2^7 pages */
#define NVME_MAX_BYTES	 (NVME_PAGE << NVME_MDTS)
#define NVME_MAX_IOV	 ((2u << NVME_MDTS) + 4)
#define NVME_MAX_RANGES	 256u
#define NVME_AER_MAX	 4

/* 4.6.1: status, as SCT << 8 | SC; DNR says that trying again is of no use. */
#define NVME_OK		       0x000
#define NVME_INVALID_OPCODE    0x4001
#define NVME_INVALID_FIELD     0x4002
#define NVME_TRANSFER_ERROR    0x0004
#define NVME_INTERNAL	       0x0006
#define NVME_INVALID_NAMESPACE 0x400b
#define NVME_LBA_RANGE	       0x4080
#define NVME_READ_ONLY	       0x4182 /* attempted write to a read-only range */
#define NVME_CQ_INVALID	       0x4100
#define NVME_QID_INVALID       0x4101
#define NVME_QSIZE_INVALID     0x4102
#define NVME_AER_LIMIT	       0x4105
#define NVME_VECTOR_INVALID    0x4108
#define NVME_LOG_INVALID       0x4109
#define NVME_DELETION_INVALID  0x410c
#define NVME_NOT_SAVEABLE      0x410d
#define NVME_WRITE_FAULT       0x0280
#define NVME_READ_ERROR	       0x0281
#define NVME_PENDING	       0xffff /* not a status: the command ends later */

struct nvme;
struct nvme_req;

struct nvme_cq {
	bool used, interrupts;
	uint64_t base;
	uint32_t size, head, tail;
	uint16_t vector;
	uint8_t phase;
	unsigned queues;			  /* submission queues that end here */
	struct nvme_req *waiting, **waiting_tail; /* ended, no room for them */
};

struct nvme_sq {
	bool used, deleting;
	uint64_t base;
	uint32_t size, head, tail;
	uint16_t cqid, delete_cid;
	uint32_t outstanding; /* fetched, completion not yet posted */
	uint32_t inflight;    /* of these, with the host */
};

/* An ended command that waits in a completion queue's list, as a snapshot keeps it. */
struct nvme_waiting {
	uint16_t sqid, cid, status;
	uint32_t result;
};

struct nvme_req {
	struct nvme *n;
	struct nvme_req *next;
	struct disk_failed failed;
	struct block_req b;
	uint16_t sqid, cid, status;
	uint32_t result;
	unsigned epoch;
	bool host; /* goes to the block layer */
	uint32_t range_at, range_n;
	uint8_t *ranges; /* Dataset Management */
	int niov;
	struct iovec iov[];
};

struct nvme {
	struct pci_dev pci;
	struct drive *drive;
	char *serial;
	uint32_t logical_block_size, max_queues;
	int64_t bootindex;
	bool drive_writeback, initial_wce;

	uint32_t cc, csts, aqa, intms;
	uint64_t asq, acq, blocks;
	unsigned page_bits, block_bits;
	struct nvme_sq sq[NVME_QUEUES + 1];
	struct nvme_cq cq[NVME_QUEUES + 1];
	unsigned epoch;	   /* of the controller's life: older requests report to nobody */
	uint32_t inflight; /* with the host, all queues and epochs */
	bool disabling, posted;
	uint16_t aer[NVME_AER_MAX];
	unsigned naer;
	uint32_t features[16]; /* by feature number */
	bool wce;
	struct disk_errors errors;
	struct nvme_waiting *saved; /* in snapshots: what waits for room, all queues */
	uint32_t nsaved;
	uint64_t commands, interrupts; /* counters */
};

/* nvme_queue.c; lock held unless said otherwise. */
void nvme_kick(struct nvme *n); /* have the main loop look at the queues */
void nvme_run(void *opaque);	/* main loop's thread, no lock */
void nvme_irq_update(struct nvme *n);
void nvme_complete(struct nvme *n, uint16_t sqid, uint16_t cid, uint16_t status, uint32_t result);
void nvme_sq_remove(struct nvme *n, uint16_t sqid); /* nothing of it is with the host */
void nvme_queues_clear(struct nvme *n);
void nvme_cq_drain(struct nvme *n, struct nvme_cq *cq); /* the guest made room */
void nvme_abandon(struct nvme *n);			/* machine reset */
void nvme_resume_failed(struct nvme *n);		/* main loop's thread, no lock */
void nvme_disabled(struct nvme *n);			/* nvme.c: nothing is in flight after CC.EN was cleared */
/* Guest memory of a command: its PRPs as iovecs. 0 or a status. */
uint16_t nvme_map(struct nvme *n, const uint8_t *cmd, uint64_t len, bool to_guest, struct iovec *iov, int *niov,
		  int max);
/* Copy to or from the PRPs. */
uint16_t nvme_copy(struct nvme *n, const uint8_t *cmd, void *buf, uint64_t len, bool to_guest);

/* nvme_admin.c: a status; *result goes to dword 0. */
uint16_t nvme_admin(struct nvme *n, const uint8_t *cmd, uint32_t *result);
/* nvme_io.c: the request in *out, when the status is NVME_PENDING. */
uint16_t nvme_io(struct nvme *n, uint16_t sqid, const uint8_t *cmd, struct nvme_req **out);
/* The host is done with one step; true: the request has another one ready. */
bool nvme_io_next(struct nvme_req *r);

/* nvme_state.c */
extern const struct state nvme_state;

extern const struct dev_ops nvme_ops;

#endif
