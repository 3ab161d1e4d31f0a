/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The block layer's interface to devices and to `kelvin img`. A node is an open
 * image: asynchronous, vectored, any alignment, no lock held across I/O.
 * Knows no guest. Requests are submitted and completed in the thread of the
 * node's loop (block_set_loop moves an idle node).
 */
#ifndef KELVIN_BLOCK_BLOCK_H
#define KELVIN_BLOCK_BLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include "base/counter.h"
#include "base/err.h"
#include "base/type.h"
#include "io/aio.h"
#include "io/loop.h"

struct block_node;

enum block_op { BLOCK_READ, BLOCK_WRITE, BLOCK_FLUSH, BLOCK_DISCARD, BLOCK_WRITE_ZEROES };
#define BLOCK_FUA	1u /* durable when done */
#define BLOCK_MAY_UNMAP 2u /* write zeroes may deallocate */
/* A write is stored compressed: it covers whole clusters that have no data yet (the disk's last one may be cut).
 * -ENOTSUP where the format cannot. Requests in flight are compressed in parallel, on all cores. */
#define BLOCK_COMPRESS 4u

/* Owned by the caller until done runs (possibly before block_submit returns). */
struct block_req {
	enum block_op op;
	unsigned flags;
	uint64_t offset, len; /* bytes; len == sum of iov for reads and writes */
	const struct iovec *iov;
	int niov;
	int result; /* 0 or -errno */
	void (*done)(struct block_req *req);
	void *opaque;
	/* the block layer's: */
	uint64_t begun; /* TSC */
	void *driver[8];
	struct block_req *next;
};

/* Writes of zeros become BLOCK_WRITE_ZEROES, with UNMAP also BLOCK_MAY_UNMAP. */
enum block_detect_zeroes { BLOCK_ZEROES_OFF, BLOCK_ZEROES_ON, BLOCK_ZEROES_UNMAP };

/* What cache= means (QEMU's table): writeback, direct (O_DIRECT), no_flush. */
struct block_open {
	const char *filename;
	const char *format; /* NULL = probe, with a warning when the result is raw */
	bool read_only, direct, writeback, no_flush, discard_unmap;
	enum aio_engine aio;
	bool force;		     /* open a block device the host has mounted or holds */
	bool locking;		     /* take QEMU's image locks */
	struct block_node **backing; /* a node to be used instead of the image's backing file: taken, then NULL */
	bool no_backing;	     /* an overlay as if it had no backing file */
	unsigned chain_depth;	     /* the block layer's: overlays above this node */
	enum block_detect_zeroes detect_zeroes;
	const char *snapshot; /* read-only: the disk as this internal snapshot (ID or name) has it */
	bool check;	      /* for block_check: nothing is repaired, cleared or refused that it could look at */
	/* qcow2's own options; zeros are the defaults */
	const char *data_file; /* the external data file: a name in the image is not followed */
	uint64_t l2_cache_size, refcount_cache_size, cache_size, l2_cache_entry_size; /* bytes */
	unsigned cache_clean_interval;						      /* seconds; UINT_MAX: never */
	int lazy_refcounts; /* 0: as the image says, 1: on, -1: off */
};

struct block_node *block_open(const struct block_open *o, struct loop *l, struct err *err);
void block_close(struct block_node *n); /* drains; in the thread of its loop, or while nobody uses that loop */
/* Move an idle node to another loop. Main thread; -errno when that loop cannot do its kind of I/O. */
int block_set_loop(struct block_node *n, struct loop *l, struct err *err);
uint64_t block_size(const struct block_node *n); /* bytes, rounded up to 512 */
bool block_read_only(const struct block_node *n);
struct loop *block_loop(const struct block_node *n);
uint32_t block_alignment(const struct block_node *n); /* preferred request alignment, bytes */
const char *block_filename(const struct block_node *n);
const char *block_format(const struct block_node *n);
const char *block_aio_name(const struct block_node *n);
/* Out of range, read-only and malformed requests complete with -EIO, -EPERM or -EINVAL. */
void block_submit(struct block_node *n, struct block_req *req);
/* The guest's view of the write cache: off makes every write durable before it completes. */
bool block_writeback(const struct block_node *n);
void block_set_writeback(struct block_node *n, bool on); /* the loop's thread */
void block_flush_queue(struct block_node *n);		 /* start what was queued: once per batch */
void block_drain(struct block_node *n);
/* Everything written so far is in the image when it returns. Main thread; 0 or -errno. */
int block_flush_now(struct block_node *n);

/*
 * Whole images: blocking calls in the thread of the node's loop, outside coroutines and with no request in flight.
 * -ENOTSUP and a line in *err when the format has no such thing.
 */
enum block_prealloc { BLOCK_PREALLOC_OFF, BLOCK_PREALLOC_METADATA, BLOCK_PREALLOC_FALLOC, BLOCK_PREALLOC_FULL };
/* Another size, bytes. What is new reads as zeros, also over a longer backing file. */
int block_truncate(struct block_node *n, uint64_t size, enum block_prealloc p, struct err *err);
/* Drop all data of an overlay: it shows its backing file again (after commit). */
int block_make_empty(struct block_node *n, struct err *err);
/* Write other names of backing file and format (NULL: none) into the image; the open chain stays as it is. */
int block_change_backing(struct block_node *n, const char *file, const char *format, struct err *err);

/* Zeros (version, refcount_bits) and -1 keep what is. */
struct block_amend {
	uint32_t version, refcount_bits;
	int lazy_refcounts, data_file_raw;
	const char *data_file; /* the name in the image */
};
int block_amend(struct block_node *n, const struct block_amend *a, struct err *err);

struct block_snapshot {
	char *id, *name;
	uint64_t vm_state_size, disk_size, vm_clock_nsec, icount; /* icount: UINT64_MAX = none */
	uint32_t date_sec, date_nsec;
};
/* The array and its strings are the node's, until the next of these calls. */
int block_snapshot_list(struct block_node *n, const struct block_snapshot **out, unsigned *nr, struct err *err);
/* Of `want`: name, vm_clock_nsec, date (0: now), vm_state_size: bytes that block_vmstate_write has put there. */
int block_snapshot_create(struct block_node *n, const struct block_snapshot *want, struct err *err);
bool block_has_snapshots(const struct block_node *n); /* the format has */
/* By ID or, failing that, by name. */
int block_snapshot_apply(struct block_node *n, const char *which, struct err *err);
int block_snapshot_delete(struct block_node *n, const char *which, struct err *err);
/*
 * A machine's state for the snapshot to be made next: in order from pos 0, in pieces of BLOCK_VMSTATE_PIECE (the last
 * one filled up with zeros). What was written is dropped again by block_vmstate_drop; a process that ends without
 * leaves it unused in the image. Reading is within the snapshot's vm_state_size.
 */
#define BLOCK_VMSTATE_PIECE (2u << 20)
int block_vmstate_write(struct block_node *n, const void *buf, uint64_t pos, uint64_t len, struct err *err);
int block_vmstate_drop(struct block_node *n, struct err *err);
int block_vmstate_read(struct block_node *n, const char *which, void *buf, uint64_t pos, uint64_t len, struct err *err);

#define BLOCK_FIX_LEAKS	 1u
#define BLOCK_FIX_ERRORS 2u
struct block_check {
	uint64_t corruptions, leaks, errors; /* errors: of the check itself, as reads that failed */
	uint64_t corruptions_fixed, leaks_fixed;
	uint64_t image_end, total, allocated, fragmented, compressed; /* bytes, then clusters */
	void (*say)(const char *line);				      /* a finding; NULL: only count */
};
/* Check, and repair with `fix` (a node opened for writing, with block_open.check). */
int block_check(struct block_node *n, unsigned fix, struct block_check *c, struct err *err);

struct block_stats {
	uint64_t ops[5], bytes[5], errors;
	uint64_t wait; /* TSC ticks from submission to completion, of all requests added up */
};
const struct block_stats *block_stats_of(const struct block_node *n);
/* Host system calls its file cost so far (of the I/O engine that it may share with others of its loop). */
uint64_t block_syscalls(const struct block_node *n);

/* werror= and rerror=. AUTO: stop when a write finds no space, else report. */
enum drive_on_error {
	DRIVE_ERROR_AUTO,
	DRIVE_ERROR_REPORT,
	DRIVE_ERROR_IGNORE,
	DRIVE_ERROR_STOP,
	DRIVE_ERROR_ENOSPC /* stop on ENOSPC, report others */
};

/* if=; drive_if_names has the names in this order. */
enum drive_if {
	DRIVE_IF_NONE,
	DRIVE_IF_VIRTIO,
	DRIVE_IF_IDE,
	DRIVE_IF_SCSI,
	DRIVE_IF_FLOPPY,
	DRIVE_IF_PFLASH,
	DRIVE_IF_MTD,
	DRIVE_IF_SD,
	DRIVE_IF_XEN
};

/*
 * What the device of a removable drive can do, for the monitors (medium.c). Main loop's thread; each call takes the
 * device's lock itself. The medium is exchanged while nothing is in flight on the node.
 */
struct drive_media_ops {
	bool (*tray_open)(void *opaque);
	bool (*locked)(void *opaque); /* by the guest */
	void (*set_tray)(void *opaque, bool open);
	void (*eject_request)(void *opaque, bool force); /* press the button */
	void (*medium_changed)(void *opaque);		 /* drive.node is another one, or NULL */
	const char *(*device_id)(void *opaque);		 /* -device id=, or NULL */
};

/* A -drive: a node plus what devices ask of it. Found by id for PROP_LINK "drive". */
struct drive {
	char *id;
	struct block_node *node; /* NULL: empty removable drive */
	char *serial;
	int bus_kind;	      /* enum drive_if */
	int bus, unit, index; /* index = bus * units of a bus + unit */
	bool read_only;
	bool cdrom;   /* media=cdrom */
	bool boot;    /* boot=on */
	bool claimed; /* a device uses it */
	enum drive_on_error werror, rerror;
	const struct drive_media_ops *media; /* set by the device; NULL: the medium is fixed */
	void *media_opaque;
	struct loop *loop;	/* where media are opened */
	struct block_open open; /* how: cache= and the like as -drive said; no names */
};
/* Register the type of -drive and the lookup of drive=ID; drive_create does it too. */
void drive_init(void);
const struct type *drive_option_type(void); /* -drive's keys */
extern const char *const drive_if_names[];  /* ends with NULL */
/* -drive file=..,if=..,id=..,format=..,cache=..,aio=..,readonly=..,discard=..,index=..,media=..,... */
struct drive *drive_create(const char *text, struct loop *l, struct err *err);
/* -snapshot: drives made from now on have snapshot=on unless they say otherwise. */
void drive_snapshot_all(void);
/* -blockdev driver=...,node-name=...: key=value or JSON. */
int blockdev_create(const char *text, struct loop *l, struct err *err);
void blockdev_free_all(void);
struct drive *drive_find(const char *id);
struct drive *drive_at(size_t i);
void drive_close_all(void);

/*
 * medium.c: what QMP's eject, blockdev-*-tray, -medium and the human monitor's eject and change do, with QEMU's
 * meaning and error texts. `force` overrides the guest's lock. Main loop's thread.
 */
/* By -drive's id, or by the id of the device; NULL and err when there is none or its medium is fixed. */
struct drive *drive_find_removable(const char *drive, const char *device_id, struct err *err);
int drive_open_tray(struct drive *d, bool force, struct err *err);
int drive_close_tray(struct drive *d, struct err *err);
int drive_remove_medium(struct drive *d, struct err *err);
/* Takes the node of another drive that no device uses. */
int drive_insert_medium(struct drive *d, struct drive *from, struct err *err);
int drive_eject(struct drive *d, bool force, struct err *err);
enum drive_access { DRIVE_RETAIN, DRIVE_READ_ONLY, DRIVE_READ_WRITE };
int drive_change_medium(struct drive *d, const char *filename, const char *format, bool force, enum drive_access access,
			struct err *err);

#endif
