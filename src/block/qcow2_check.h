/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between qcow2_check.c (what should the refcounts be) and qcow2_repair.c (what are they, and making them so). */
#ifndef KELVIN_BLOCK_QCOW2_CHECK_H
#define KELVIN_BLOCK_QCOW2_CHECK_H

#include "block/qcow2.h"

#define CHECK_GROUP 4096u

/* An L2 table: visited once, however many L1 entries name it. */
struct check_l2 {
	uint64_t offset;
	uint32_t weight, active; /* L1 entries that name it, of all tables and of the active one */
};

struct qcow2_check {
	struct qcow2 *q;
	struct block_check *r;
	unsigned fix;
	uint64_t file_len, clusters; /* of the image file */
	uint32_t *want, *have;	     /* references found, refcounts stored; both stop counting at UINT32_MAX */
	uint64_t room;		     /* entries of want and have */
	uint8_t *touched;	     /* of each CHECK_GROUP entries: is any not 0? A sparse file may have billions */
	uint64_t max_count;	     /* that a refcount of this image can hold */
	struct check_l2 *l2;	     /* in the order they were found */
	uint32_t *l2_hash;	     /* index + 1 */
	size_t nr_l2, max_l2, hash_size; /* hash_size is a power of two */
	uint64_t l1_bytes;		 /* of all L1 tables read */
	bool rebuild;			 /* the refcount structure is beyond repair in place */
};

void qcow2_check_say(struct qcow2_check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* `n` references more to the clusters of [offset, offset + len). */
void qcow2_check_ref(struct qcow2_check *c, uint64_t offset, uint64_t len, uint32_t n, const char *what);
/* The refcount table and blocks themselves. */
void qcow2_check_ref_structure(struct qcow2_check *c);
/* Does an entry with a host offset have data there, or only a place for it? */
bool qcow2_check_has_data(const struct qcow2 *q, uint64_t entry, uint64_t bitmap);
int qcow2_check_begin(struct qcow2_check *c);
int qcow2_check_count(struct qcow2_check *c); /* all references but those of the refcount structure */
void qcow2_check_end(struct qcow2_check *c);

/* Compare the counts, repair what `fix` asks for. */
int qcow2_check_refcounts(struct qcow2_check *c);
/* A new table with refcounts of 2^order bits, holding `want`, behind the end of the file. */
int qcow2_check_rebuild(struct qcow2_check *c, uint32_t order);
/* The flags that say "refcount is 1" in the active tables, and entries that hold no data but are broken. */
int qcow2_check_copied(struct qcow2_check *c);

#endif
