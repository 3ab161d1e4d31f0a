/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the files of snapshots: snapshot.c (order of work, threads), snapshot_file.c (records), snapshot_ram.c,
 * snapshot_parts.c (what is not RAM). */
#ifndef KELVIN_MACHINE_SNAPSHOT_INT_H
#define KELVIN_MACHINE_SNAPSHOT_INT_H

#include "base/state.h"
#include "machine/snapshot.h"
#include "machine/vm_int.h"

/* ---- records: snapshot_file.c; one thread at a time ------------------------- */

#define SNAPSHOT_VERSION 1
#define SNAPSHOT_CHUNK	 (1u << 20)  /* bytes of RAM in one record at most */
#define SNAPSHOT_PARTS	 (64u << 20) /* bytes of all records that are not RAM, at most */

/* Types are four letters, as they stand in the file. */
#define SNAP_TYPE(a, b, c, d) ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)
#define SNAP_CONFIG	      SNAP_TYPE('C', 'O', 'N', 'F') /* first: snapshot_describe's text */
#define SNAP_CPU_MODEL	      SNAP_TYPE('C', 'P', 'U', 'M')
#define SNAP_RAM	      SNAP_TYPE('R', 'A', 'M', ' ') /* u64 guest address, whole pages */
#define SNAP_CLOCK	      SNAP_TYPE('C', 'L', 'O', 'K')
#define SNAP_DEVICE	      SNAP_TYPE('D', 'E', 'V', ' ') /* in the order of the devices */
#define SNAP_VCPU	      SNAP_TYPE('V', 'C', 'P', 'U') /* in the order of the vCPUs */
#define SNAP_CHIPS	      SNAP_TYPE('C', 'H', 'I', 'P')
#define SNAP_END	      SNAP_TYPE('E', 'N', 'D', ' ') /* u64 number of records before it; nothing follows */

struct snap_stream {
	int fd;
	const struct snapshot_io *io; /* instead of fd; or NULL */
	_Atomic bool cancelled;
	_Atomic uint64_t bytes;
	uint64_t records;
};

int snap_write_header(struct snap_stream *s, struct err *err);
/* The payload in two parts; b may be empty. */
int snap_write(struct snap_stream *s, uint32_t type, const void *a, size_t alen, const void *b, size_t blen,
	       struct err *err);
int snap_read_header(struct snap_stream *s, struct err *err);
struct snap_head {
	uint32_t type, crc;
	uint64_t len;
};
int snap_read_head(struct snap_stream *s, struct snap_head *h, struct err *err);
/* All of the payload, in order, then snap_read_done with the CRC of what was read. */
int snap_read(struct snap_stream *s, void *buf, size_t len, struct err *err);
int snap_check(const struct snap_head *h, uint32_t crc, struct err *err);
uint32_t snap_crc_begin(const struct snap_head *h);
int snap_read_end(struct snap_stream *s, struct err *err);

/* ---- parts: snapshot_parts.c; main loop ------------------------------------------ */

/* A record that is not RAM. */
struct snap_part {
	uint32_t type;
	uint8_t *data;
	size_t len;
};
struct snap_parts {
	struct snap_part *v;
	size_t n;
	uint64_t bytes;
};
int snap_parts_add(struct snap_parts *p, uint32_t type, const void *data, size_t len, struct err *err);
void snap_parts_free(struct snap_parts *p);
/* -EAGAIN: something is in flight that the main loop may end. */
int snap_parts_save(struct vm *vm, bool running, struct snap_parts *p, struct err *err);
int snap_parts_load(struct vm *vm, const struct snap_parts *p, bool *running, struct err *err);

/* ---- RAM: snapshot_ram.c; the transfer's thread ------------------------------------ */

struct snapshot {
	struct vm *vm;
	struct snap_stream stream;
	bool saving, joined, running;
	pthread_t thread;
	char *config;
	struct snap_parts parts;
	_Atomic uint64_t ram_done, zero_pages, pages;
	uint64_t ram_total;
	int rc;
	struct err err;
	void (*done)(void *opaque, int rc, const struct err *err);
	void *opaque;
};

int snap_ram_save(struct snapshot *s, struct err *err);
/* All of RAM reads as zeros. */
void snap_ram_clear(struct vm *vm);
/* The payload of a SNAP_RAM record. */
int snap_ram_load(struct snapshot *s, const struct snap_head *h, struct err *err);

#endif
