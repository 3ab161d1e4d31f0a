/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inside the qcow2 driver (the format is QEMU's docs/interop/qcow2). Everything
 * runs in the thread of the node's loop; functions marked (co) wait for I/O and
 * run in a coroutine. No lock is held while guest data moves; `alloc` covers the
 * choice of host clusters and `flush` the writing out of tables.
 */
#ifndef KELVIN_BLOCK_QCOW2_H
#define KELVIN_BLOCK_QCOW2_H

#include "block/driver.h"
#include "io/co_range.h"

/* Header fields by their offset in the file. */
enum {
	QCOW2_H_MAGIC = 0,
	QCOW2_H_VERSION = 4,
	QCOW2_H_BACKING_OFFSET = 8,
	QCOW2_H_BACKING_SIZE = 16,
	QCOW2_H_CLUSTER_BITS = 20,
	QCOW2_H_SIZE = 24,
	QCOW2_H_CRYPT_METHOD = 32,
	QCOW2_H_L1_SIZE = 36,
	QCOW2_H_L1_TABLE_OFFSET = 40,
	QCOW2_H_REFCOUNT_TABLE_OFFSET = 48,
	QCOW2_H_REFCOUNT_TABLE_CLUSTERS = 56,
	QCOW2_H_NB_SNAPSHOTS = 60,
	QCOW2_H_SNAPSHOTS_OFFSET = 64,
	QCOW2_H_INCOMPATIBLE = 72,
	QCOW2_H_COMPATIBLE = 80,
	QCOW2_H_AUTOCLEAR = 88,
	QCOW2_H_REFCOUNT_ORDER = 96,
	QCOW2_H_HEADER_LENGTH = 100,
	QCOW2_H_COMPRESSION_TYPE = 104,
};
#define QCOW2_MAGIC	     0x514649fbu
#define QCOW2_V2_HEADER_SIZE 72u
#define QCOW2_V3_HEADER_SIZE 104u

#define QCOW2_INCOMPAT_DIRTY	   1u
#define QCOW2_INCOMPAT_CORRUPT	   2u
#define QCOW2_INCOMPAT_DATA_FILE   4u
#define QCOW2_INCOMPAT_COMPRESSION 8u
#define QCOW2_INCOMPAT_EXTENDED_L2 16u
#define QCOW2_COMPAT_LAZY	   1u
#define QCOW2_AUTOCLEAR_BITMAPS	   1u

#define QCOW2_EXT_END	      0u
#define QCOW2_EXT_BACKING_FMT 0xe2792acau
#define QCOW2_EXT_FEATURES    0x6803f857u
#define QCOW2_EXT_BITMAPS     0x23852875u
#define QCOW2_EXT_CRYPTO      0x0537be77u
#define QCOW2_EXT_DATA_FILE   0x44415441u

#define QCOW2_ENTRY_COPIED     BIT(63)
#define QCOW2_ENTRY_COMPRESSED BIT(62)
#define QCOW2_ENTRY_ZERO       1ull
#define QCOW2_OFFSET_MASK      0x00fffffffffffe00ull

/* Limits; those of QEMU, so that each opens what the other made. */
#define QCOW2_MAX_L1_BYTES	 (32 * MIB)
#define QCOW2_MAX_REFTABLE_BYTES (8 * MIB)
#define QCOW2_MAX_SNAPSHOTS	 65536u
#define QCOW2_MAX_SNAPSHOT_EXTRA 1024u

struct qcow2_header {
	uint32_t version, cluster_bits, l1_size, refcount_table_clusters, nb_snapshots;
	uint64_t size, l1_table_offset, refcount_table_offset, snapshots_offset;
	uint64_t incompatible, compatible, autoclear;
	uint32_t refcount_order, header_length, compression_type;
	char backing_file[1024], backing_format[64], data_file[1024];
	uint64_t bitmap_directory_offset, bitmap_directory_size;
	uint32_t nb_bitmaps;
};

/* A cached L2 table or refcount block: one cluster as it is on disk. */
struct qcow2_table {
	uint64_t offset;
	uint8_t *data;
	unsigned pins;
	bool dirty, loading;
	bool used;				     /* since the cache was last cleaned */
	struct qcow2_table *hash_next, *prev, *next; /* the list: most recently used first */
	struct co_queue waiters;
};
struct qcow2_cache {
	struct qcow2_table **buckets, *first, *last;
	unsigned mask, count, max, dirty;
	uint64_t clean_ns, cleaned_at; /* tables not used for so long are dropped; 0: never */
};

struct qcow2_lock {
	bool held;
	struct co_queue queue;
};

/* A request in flight and the guest clusters it covers. */
struct qcow2_io {
	struct co_range range; /* guest clusters; exclusive: changes the mapping */
	struct qcow2 *q;
	struct block_req *req;
	struct block_req sub; /* to the backing node */
};

/* Host clusters that lose a reference once the tables that named them are durable. */
struct qcow2_free {
	uint64_t offset;
	uint32_t clusters;
};

struct qcow2_snapshot {
	struct block_snapshot pub;
	uint64_t l1_offset;
	uint32_t l1_size;
	uint32_t extra_size; /* what we know and `extra`, which is kept as it is */
	uint8_t *extra;
};

struct qcow2 {
	struct block_node *node;
	struct block_file *file, *data; /* where the tables are; where the guest's data is, the same or the data file */
	struct block_node *backing;
	struct qcow2_header h;
	uint32_t cluster_bits, cluster_size, l2_bits, entry_size;
	bool extended_l2, corrupt;
	bool lazy, closing; /* refcounts are written at the end only; and this is the end */
	bool has_data_file; /* guest data is in another file, and refcounts do not count it */
	uint64_t *l1;	    /* host byte order */
	uint32_t l1_dirty_lo, l1_dirty_hi;
	uint64_t *reftable;
	uint32_t reftable_entries, reftable_dirty_lo, reftable_dirty_hi;
	struct qcow2_snapshot *snapshots;
	uint32_t nr_snapshots;
	uint64_t snapshots_bytes; /* of their table */
	bool snapshots_broken;	  /* the table could not be read to its end (only when opened for checking) */
	struct block_snapshot *snapshot_list;
	uint64_t free_hint; /* no free host cluster below it */
	uint64_t fresh; /* from this host cluster on none was ever used, and all read as zeros; UINT64_MAX: not known */
	uint64_t room_end; /* bytes: so far the file was made longer in advance; 0: it is not to be */
	bool making_room, has_room;
	struct qcow2_cache l2, refblocks;
	struct qcow2_lock alloc, flush;
	uint64_t flushes_begun, flushes_done; /* numbers of the last flush of tables that began, that succeeded */
	struct qcow2_free *frees;
	size_t nr_frees, max_frees;
	uint64_t *meta; /* hash set of host clusters that hold metadata, each + 1 */
	size_t nr_meta, max_meta;
	struct co_ranges ios; /* requests in flight */
	uint8_t *inflated;    /* the compressed cluster read last */
	uint64_t inflated_entry;
	uint64_t packed; /* where in the file the last compressed cluster ends; 0: nowhere */
};

enum qcow2_kind { QCOW2_UNALLOCATED, QCOW2_ZERO, QCOW2_DATA, QCOW2_COMPRESSED };
/* A run of the guest's disk of one kind and, for data, contiguous on the host. */
struct qcow2_extent {
	enum qcow2_kind kind;
	uint64_t len;
	uint64_t host;	/* DATA: of its first byte. ZERO: of the preallocated cluster, or 0 */
	uint64_t entry; /* the L2 entry of its first cluster */
};

/* ---- qcow2_header.c ---- */
/* Read and check everything the header says. Errors name image and field. */
int qcow2_header_read(struct block_file *f, struct qcow2_header *h, const char *filename, struct err *err);
/* Add the features that this open cannot serve. */
int qcow2_header_usable(const struct qcow2_header *h, const struct block_open *o, const char *filename,
			struct err *err);
int qcow2_header_set_u64(struct qcow2 *q, unsigned field, uint64_t value); /* written, not flushed */

/* ---- qcow2_cache.c ---- */
int qcow2_cache_init(struct qcow2_cache *c, unsigned max);
void qcow2_cache_free(struct qcow2_cache *c);
void qcow2_cache_drop(struct qcow2_cache *c); /* all tables; none may be dirty or pinned */
struct qcow2_table *qcow2_cache_find(struct qcow2_cache *c, uint64_t offset); /* loaded, or NULL; not pinned */
int qcow2_cache_get(struct qcow2 *q, struct qcow2_cache *c, uint64_t offset, struct qcow2_table **out); /* (co), pins */
/* A new table of zeros, dirty and pinned. */
int qcow2_cache_new(struct qcow2 *q, struct qcow2_cache *c, uint64_t offset, struct qcow2_table **out);
void qcow2_cache_dirty(struct qcow2_cache *c, struct qcow2_table *t);
static inline void qcow2_cache_put(struct qcow2_table *t)
{
	t->pins--;
}
/* The same for the guest's data. */
int qcow2_data_iov(struct qcow2 *q, enum block_op op, uint64_t offset, const struct iovec *iov, int niov, uint64_t len);
void qcow2_lock_take(struct qcow2_lock *l); /* (co) */
void qcow2_lock_give(struct qcow2_lock *l);
/* Transfer one buffer: in a coroutine it waits, outside it runs the loop. */
int qcow2_file_io(struct qcow2 *q, enum block_op op, uint64_t offset, void *buf, uint64_t len);
int qcow2_file_iov(struct qcow2 *q, enum block_op op, uint64_t offset, const struct iovec *iov, int niov, uint64_t len);

/* ---- qcow2_flush.c ---- */
/* (co) Tables to disk in safe order, then fdatasync, then release what was freed. */
int qcow2_flush_tables(struct qcow2 *q);
/* (co) The flush lock is held. */
int qcow2_write_refblocks(struct qcow2 *q);
bool qcow2_is_dirty(const struct qcow2 *q);
int qcow2_mark_clean(struct qcow2 *q); /* everything was written */
/* Drop one reference of each cluster when the current mapping is durable. */
int qcow2_free_later(struct qcow2 *q, uint64_t offset, uint64_t bytes);

/* ---- qcow2_ref.c ---- */
int qcow2_refcount_get(struct qcow2 *q, uint64_t cluster, uint64_t *count);	   /* (co) */
int qcow2_refcount_add(struct qcow2 *q, uint64_t cluster, uint64_t n, int delta);  /* (co), alloc held */
int qcow2_alloc(struct qcow2 *q, uint64_t want, uint64_t *cluster, uint64_t *got); /* (co), alloc held */
uint64_t qcow2_refcount_load(const uint8_t *block, uint32_t order, uint64_t index);
void qcow2_refcount_store(uint8_t *block, uint32_t order, uint64_t index, uint64_t value);
int qcow2_meta_init(struct qcow2 *q);
int qcow2_meta_add(struct qcow2 *q, uint64_t cluster);
void qcow2_meta_remove(struct qcow2 *q, uint64_t cluster);
/* May guest data at this host offset be written over something that is not it? */
bool qcow2_hits_meta(const struct qcow2 *q, uint64_t offset, uint64_t len);
bool qcow2_meta_has(const struct qcow2 *q, uint64_t offset, uint64_t len); /* bytes of the file */

/* (co), alloc held: a refcount block for `cluster`, not in the clusters it covers if that can be helped */
int qcow2_refblock_ensure(struct qcow2 *q, uint64_t cluster);

/* ---- qcow2_map.c ---- */
void qcow2_l1_set(struct qcow2 *q, uint64_t i, uint64_t entry);
/* The second half of an extended entry: bit n says subcluster n has data, bit 32 + n that it is zero. 0 in others. */
uint64_t qcow2_bitmap_get(const struct qcow2 *q, const struct qcow2_table *t, uint64_t offset);
void qcow2_bitmap_set(struct qcow2 *q, struct qcow2_table *t, uint64_t offset, uint64_t bitmap);
/* 1: *e is the run at `offset`, at most `len` long. 0: its L2 table is not cached. -errno. */
int qcow2_lookup_cached(struct qcow2 *q, uint64_t offset, uint64_t len, struct qcow2_extent *e);
int qcow2_lookup(struct qcow2 *q, uint64_t offset, uint64_t len, struct qcow2_extent *e); /* (co) */
/* (co) The L2 table for changing the entry of `offset`: made or unshared as needed; pinned. */
int qcow2_l2_for_write(struct qcow2 *q, uint64_t offset, struct qcow2_table **out);
uint64_t qcow2_entry_get(const struct qcow2 *q, const struct qcow2_table *t, uint64_t offset);
void qcow2_entry_set(struct qcow2 *q, struct qcow2_table *t, uint64_t offset, uint64_t entry);
/* Where a compressed cluster's bytes are. */
void qcow2_compressed_range(const struct qcow2 *q, uint64_t entry, uint64_t *offset, uint32_t *len);
/* Say it, set the corrupt bit, refuse all further writes. -EIO. */
int qcow2_mark_corrupt(struct qcow2 *q, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- qcow2_compress.c ---- */
/* Bytes of `out` used; 0: it does not fit. */
size_t qcow2_deflate(uint32_t type, const uint8_t *in, size_t len, uint8_t *out, size_t room);
int qcow2_inflate(uint32_t type, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_len);

/* ---- qcow2_resize.c ---- (co), nothing else in flight */
struct qcow2_patch {
	unsigned field, bytes;
	uint64_t value;
};
int qcow2_header_patch(struct qcow2 *q, const struct qcow2_patch *p, int n);
int qcow2_alloc_run(struct qcow2 *q, uint64_t n, uint64_t *cluster);
/* Write `l1` (heap, the image's from now on if it succeeds) as the active table, with the disk's size. */
int qcow2_l1_replace(struct qcow2 *q, uint64_t *l1, uint32_t n, uint64_t size);
int qcow2_l1_grow(struct qcow2 *q, uint64_t size);   /* the L1 table covers `size` bytes; the disk keeps its size */
int qcow2_drop_from(struct qcow2 *q, uint64_t size); /* all mappings from `size` on */
int qcow2_truncate(struct block_node *n, uint64_t size, enum block_prealloc p, struct err *err);
int qcow2_make_empty(struct block_node *n, struct err *err);
int qcow2_preallocate(struct block_node *n, enum block_prealloc p, struct err *err); /* a new image */

/* ---- qcow2_amend.c ---- */
int qcow2_change_backing(struct block_node *n, const char *file, const char *format, struct err *err);
int qcow2_amend(struct block_node *n, const struct block_amend *a, struct err *err);
int qcow2_header_write(struct qcow2 *q, const struct qcow2_header *h); /* all of it, durable; *h becomes q->h */

/* ---- qcow2_write.c ---- */
int qcow2_write_zero_data(struct qcow2 *q, uint64_t offset, uint64_t end); /* (co) */
int qcow2_limit_dirty(struct qcow2 *q);			/* (co) pay for a flush when much has piled up */
void qcow2_free_entry(struct qcow2 *q, uint64_t entry); /* what it referred to has one reference less, soon */
/* (co) With the request's clusters held exclusively. */
int qcow2_write_request(struct qcow2 *q, const struct block_req *req);
int qcow2_discard_request(struct qcow2 *q, const struct block_req *req);
int qcow2_zero_request(struct qcow2 *q, const struct block_req *req);

/* ---- qcow2_snapshot.c ---- */
int qcow2_snapshots_load(struct qcow2 *q); /* -EINVAL: the table is broken; what was read stays */
void qcow2_snapshots_free(struct qcow2 *q);
/* Its L1 table instead of *l1 (heap), checked, without flags. */
int qcow2_snapshot_l1(struct qcow2 *q, const struct qcow2_snapshot *s, uint64_t **l1, struct err *err);
struct qcow2_snapshot *qcow2_snapshot_find(struct qcow2 *q, const char *which);
void qcow2_snapshot_free(struct qcow2_snapshot *s);
int qcow2_snapshot_create(struct block_node *n, const struct block_snapshot *want, struct err *err);
int qcow2_snapshot_apply(struct block_node *n, const char *which, struct err *err);
int qcow2_snapshot_delete(struct block_node *n, const char *which, struct err *err);
int qcow2_snapshot_list(struct block_node *n, const struct block_snapshot **out, unsigned *nr, struct err *err);

/* ---- qcow2_vmstate.c ---- outside coroutines, nothing in flight; contracts: block.h */
/* The L1 entry with which the VM state of a disk of this size begins. */
uint32_t qcow2_vmstate_first(const struct qcow2 *q, uint64_t disk_size);
int qcow2_vmstate_write(struct block_node *n, const void *buf, uint64_t pos, uint64_t len, struct err *err);
int qcow2_vmstate_drop(struct block_node *n, struct err *err);
int qcow2_vmstate_read(struct block_node *n, const char *which, void *buf, uint64_t pos, uint64_t len, struct err *err);

/* ---- qcow2_check.c ---- */
/* Outside coroutines; the caches hold nothing. */
int qcow2_check_image(struct qcow2 *q, unsigned fix, struct block_check *r);
int qcow2_check(struct block_node *n, unsigned fix, struct block_check *r, struct err *err);

/* ---- qcow2_open.c ---- */
int qcow2_load_l1(struct qcow2 *q); /* again, from the file */
int qcow2_load_reftable(struct qcow2 *q);
int qcow2_flush_all(struct qcow2 *q); /* outside coroutines: all tables to disk, nothing left dirty */
/* Run fn(arg) as a coroutine to its end, from outside of one; its result. */
int qcow2_run(struct qcow2 *q, int (*fn)(struct qcow2 *q, void *arg), void *arg);

/* ---- qcow2_room.c ---- outside coroutines and idle, but for make */
void qcow2_room_init(struct qcow2 *q, bool known, bool direct);
void qcow2_room_find(struct qcow2 *q); /* again, after work that lays out tables by its own rules */
void qcow2_room_make(struct qcow2 *q); /* alloc held: after fresh clusters were taken */
void qcow2_room_trim(struct qcow2 *q); /* the file ends behind its last cluster again */

/* ---- qcow2_pack.c ---- */
int qcow2_pack_request(struct qcow2 *q, const struct block_req *req); /* (co) a write with BLOCK_COMPRESS */

/* ---- qcow2.c ---- */
void qcow2_submit(struct block_node *n, struct block_req *req);
int qcow2_read_range(struct qcow2 *q, uint64_t offset, const struct iovec *iov, int niov, uint64_t len); /* (co) */

#endif
