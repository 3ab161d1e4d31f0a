/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inside the QED driver (the format is QEMU's docs/interop/qed_spec; all numbers
 * little-endian). Everything runs in the thread of the node's loop; functions
 * marked (co) wait for I/O, in a coroutine or by running the loop.
 */
#ifndef KELVIN_BLOCK_QED_H
#define KELVIN_BLOCK_QED_H

#include "block/driver.h"
#include "io/co_range.h"

/* Header fields by their offset in the file. */
enum {
	QED_H_MAGIC = 0,
	QED_H_CLUSTER_SIZE = 4, /* bytes */
	QED_H_TABLE_SIZE = 8,	/* of L1 and L2 tables, clusters */
	QED_H_HEADER_SIZE = 12, /* clusters */
	QED_H_FEATURES = 16,
	QED_H_COMPAT = 24,
	QED_H_AUTOCLEAR = 32,
	QED_H_L1_OFFSET = 40,
	QED_H_IMAGE_SIZE = 48, /* bytes */
	QED_H_BACKING_OFFSET = 56,
	QED_H_BACKING_SIZE = 60,
	QED_H_END = 64,
};
#define QED_MAGIC 0x00444551u

#define QED_F_BACKING	  1u
#define QED_F_NEED_CHECK  2u
#define QED_F_BACKING_RAW 4u /* the backing file is raw: never probe it */
#define QED_F_KNOWN	  7u

#define QED_MIN_CLUSTER	    4096u
#define QED_MAX_CLUSTER	    (64u << 20)
#define QED_MAX_TABLE	    16u
#define QED_DEFAULT_CLUSTER 65536u
#define QED_DEFAULT_TABLE   4u

#define QED_ENTRY_ZERO 1u /* of an L2 table: the cluster reads as zeros; 0 is unallocated */

struct qed_header {
	uint32_t cluster_size, table_size, header_size;
	uint64_t features, compat, autoclear, l1_offset, image_size;
	char backing_file[1024];
};

/* Entries of an L1 or L2 table in memory, with what is needed to write them back together. */
struct qed_table {
	uint64_t offset; /* in the file */
	uint64_t *e;
	uint32_t entries, pins;
	bool loading, writing;
	uint32_t dirty_lo, dirty_hi;
	uint64_t gen, written; /* the last change, and the last one on disk */
	struct co_queue waiters;
	struct qed_table *hash_next, *prev, *next; /* the list: most recently used first */
};

struct qed_io {
	struct co_range range; /* guest clusters; exclusive: changes the mapping */
	struct qed *q;
	struct block_req *req;
	struct block_req sub; /* to the backing node */
};

struct qed {
	struct block_node *node;
	struct block_file *file;
	struct qed_header h;
	uint64_t table_bytes, span; /* of a table; of the disk under one L2 table */
	uint64_t file_end;	    /* where the next cluster goes; all of the file is allocated in order */
	bool grown;		    /* file_end is the length of the file */
	unsigned complaints;	    /* said about broken entries */
	bool need_check;	    /* the flag is on disk and ours to clear */
	struct qed_table l1;	    /* only the entries that the disk's size needs */
	uint32_t slice_entries, max_slices, nr_slices;
	struct qed_table *buckets[1024], *first, *last;
	bool l1_busy; /* an L2 table is being made or the flag set */
	struct co_queue l1_queue;
	struct co_ranges ios; /* requests in flight */
};

enum qed_kind { QED_UNALLOCATED, QED_ZERO, QED_DATA };
struct qed_extent {
	enum qed_kind kind;
	uint64_t len, host; /* DATA: of its first byte */
};

/* ---- qed_header.c ---- */
int qed_header_read(struct block_file *f, struct qed_header *h, const char *filename, struct err *err);
int qed_header_set_features(struct qed *q, uint64_t features); /* (co) written, not flushed */
/* (co) Both names fit the header cluster, or -ENOSPC. NULL: none. */
int qed_header_set_backing(struct qed *q, const char *file, const char *format, struct err *err);

/* ---- qed_map.c ---- */
int qed_tables_init(struct qed *q);
void qed_tables_free(struct qed *q);
/* 1: *e is the run at `offset`, at most `len` long. 0: its table is not in memory. -errno. */
int qed_lookup_cached(struct qed *q, uint64_t offset, uint64_t len, struct qed_extent *e);
int qed_lookup(struct qed *q, uint64_t offset, uint64_t len, struct qed_extent *e); /* (co) */
/* (co) Point `n` clusters from `offset` at consecutive ones from `host` (or all at 0 or QED_ENTRY_ZERO), on disk when
 * done. Their L2 tables are there (qed_make_l2). */
int qed_set_entries(struct qed *q, uint64_t offset, uint64_t n, uint64_t host);
int qed_make_l2(struct qed *q, uint64_t offset, uint64_t len); /* (co) every L2 table of the range */
/* n bytes (whole clusters) at the end of the file, which grows: they read as zeros. */
int qed_grow(struct qed *q, uint64_t bytes, uint64_t *host);
void qed_ungrow(struct qed *q, uint64_t host, uint64_t bytes); /* after a failure; if nothing came after it */
bool qed_cluster_valid(const struct qed *q, uint64_t host, uint64_t bytes);

/* ---- qed_write.c ---- */
int qed_write_request(struct qed *q, const struct block_req *req); /* (co) */
int qed_zero_request(struct qed *q, const struct block_req *req);
int qed_discard_request(struct qed *q, const struct block_req *req);

/* ---- qed_check.c ---- */
int qed_check(struct block_node *n, unsigned fix, struct block_check *c, struct err *err);

/* ---- qed_create.c ---- */
struct block_create;
int qed_create(int fd, const struct block_create *c, struct err *err);

#endif
