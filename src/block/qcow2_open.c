// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The qcow2 driver: opening an image with its backing chain, and closing it.
 * Blocking: the loop runs while something waits for the file.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "block/qcow2.h"

/* Bytes of cached L2 tables: enough for 256 GiB with clusters of 64 KiB, as QEMU's. */
#define L2_CACHE_BYTES	     (32 * MIB)
#define REFBLOCK_CACHE_BYTES (1 * MIB)

/* A table of 64-bit numbers into memory, in host order. */
static int load_table(struct qcow2 *q, uint64_t offset, uint64_t n, uint64_t **out)
{
	uint64_t *t = calloc(n ? n : 1, 8);
	int ret;

	*out = t;
	if (!t)
		return -ENOMEM;
	if (!n)
		return 0;
	ret = block_file_pread(q->file, t, n * 8, offset);
	for (uint64_t i = 0; i < n && !ret; i++)
		t[i] = ld64be(&t[i]);
	return ret;
}

int qcow2_load_l1(struct qcow2 *q)
{
	free(q->l1);
	q->l1_dirty_lo = UINT32_MAX;
	q->l1_dirty_hi = 0;
	return load_table(q, q->h.l1_table_offset, q->h.l1_size, &q->l1);
}

int qcow2_load_reftable(struct qcow2 *q)
{
	free(q->reftable);
	q->reftable_entries = (uint32_t)(((uint64_t)q->h.refcount_table_clusters << q->cluster_bits) / 8);
	q->reftable_dirty_lo = UINT32_MAX;
	q->reftable_dirty_hi = 0;
	return load_table(q, q->h.refcount_table_offset, q->reftable_entries, &q->reftable);
}

/* Not closed after a change with lazy refcounts, or in the middle of one to snapshots. */
static int repair(struct qcow2 *q, struct err *err)
{
	struct block_check r = {0};
	int ret;

	if (q->node->read_only || !(q->h.incompatible & QCOW2_INCOMPAT_DIRTY))
		return 0;
	log_info("'%s' was not closed properly: repairing its refcounts", q->node->filename);
	ret = qcow2_check_image(q, BLOCK_FIX_LEAKS | BLOCK_FIX_ERRORS, &r);
	if (!ret && (r.corruptions || r.errors))
		return err_set(err, -EIO,
			       "Could not open '%s': it was not closed properly and cannot be repaired: %llu "
			       "errors are left; see kelvin img check -r all",
			       q->node->filename, (unsigned long long)(r.corruptions + r.errors));
	if (!ret)
		ret = qcow2_mark_clean(q);
	return ret ? err_set_errno(err, ret, "Could not open '%s': its refcounts cannot be repaired", q->node->filename)
		   : 0;
}

/* Sizes in bytes, by QEMU's rules: the L2 cache gets what cache-size leaves, up to what the disk needs. */
static int init_caches(struct qcow2 *q, const struct block_open *o, uint64_t covered)
{
	const uint64_t need = covered << q->cluster_bits, least_ref = 4ull << q->cluster_bits;
	uint64_t l2 = o->l2_cache_size, ref = o->refcount_cache_size;
	int ret;

	if (o->cache_size && !l2 && !ref) {
		l2 = MIN(need, o->cache_size > least_ref ? o->cache_size - least_ref : 0);
		ref = o->cache_size - l2;
	} else if (o->cache_size) {
		l2 = l2 ? l2 : o->cache_size - ref;
		ref = ref ? ref : o->cache_size - l2;
	}
	l2 = l2 ? l2 : MIN(need, L2_CACHE_BYTES);
	ref = ref ? ref : MAX(REFBLOCK_CACHE_BYTES, least_ref);
	ret = qcow2_cache_init(&q->l2, (unsigned)MIN(MAX(l2 >> q->cluster_bits, 2u), MAX(covered, 2u)));
	if (!ret)
		ret = qcow2_cache_init(&q->refblocks, (unsigned)MIN(MAX(ref >> q->cluster_bits, 4u), UINT32_MAX / 2));
	q->l2.clean_ns = q->refblocks.clean_ns =
	    o->cache_clean_interval == UINT_MAX
		? 0
		: (o->cache_clean_interval ? o->cache_clean_interval : 600) * 1000000000ull;
	return ret;
}

static int check_cache_options(const struct qcow2 *q, const struct block_open *o, struct err *err)
{
	if (o->cache_size && o->l2_cache_size && o->refcount_cache_size)
		return err_set(err, -EINVAL,
			       "cache-size, l2-cache-size and refcount-cache-size may not be set at the same time");
	if (o->cache_size && MAX(o->l2_cache_size, o->refcount_cache_size) > o->cache_size)
		return err_set(err, -EINVAL, "%s may not exceed cache-size",
			       o->l2_cache_size ? "l2-cache-size" : "refcount-cache-size");
	if (o->l2_cache_entry_size && (o->l2_cache_entry_size & (o->l2_cache_entry_size - 1) ||
				       o->l2_cache_entry_size < 512 || o->l2_cache_entry_size > q->cluster_size))
		return err_set(err, -EINVAL,
			       "L2 cache entry size must be a power of two between 512 and the cluster size (%u)",
			       q->cluster_size);
	if (o->lazy_refcounts > 0 && q->h.version < 3)
		return err_set(err, -EINVAL,
			       "Lazy refcounts require a qcow2 image with at least qemu 1.1 compatibility level");
	return 0;
}

static int load_tables(struct qcow2 *q, const struct block_open *o, struct err *err)
{
	const uint32_t covered = MAX(q->h.l1_size * BIT(q->l2_bits) / (q->cluster_size / q->entry_size), 1u);
	int ret = qcow2_load_l1(q);

	if (!ret && (!q->node->read_only || o->check))
		ret = qcow2_load_reftable(q);
	if (!ret)
		ret = init_caches(q, o, covered);
	q->free_hint = 1;
	q->lazy = q->h.version >= 3 && !q->node->read_only &&
		  (o->lazy_refcounts ? o->lazy_refcounts > 0 : (q->h.compatible & QCOW2_COMPAT_LAZY) != 0);
	if (ret)
		return err_set_errno(err, ret, "Could not open '%s': its tables cannot be read", q->node->filename);
	ret = qcow2_snapshots_load(q);
	if (ret == -EINVAL && o->check) {
		q->snapshots_broken = true;
		ret = 0;
	}
	if (ret)
		return err_set(err, ret, "Could not open '%s': its snapshot table cannot be read: %s",
			       q->node->filename, strerror(-ret));
	if (!ret && !o->check)
		ret = repair(q, err);
	if (ret)
		return ret;
	if (!q->node->read_only)
		ret = qcow2_meta_init(q);
	return ret ? err_set(err, ret, "out of memory") : 0;
}

/* What we do not maintain must not look valid afterwards. */
static int clear_autoclear(struct qcow2 *q, struct err *err)
{
	int ret = 0;

	if (q->node->read_only || q->h.version < 3 || !q->h.autoclear)
		return 0;
	q->h.autoclear = 0;
	ret = qcow2_header_set_u64(q, QCOW2_H_AUTOCLEAR, 0);
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
	return ret ? err_set_errno(err, ret, "Could not open '%s': its header cannot be written", q->node->filename)
		   : 0;
}

/* The disk as an internal snapshot has it: its L1 table instead of the active one. */
static int use_snapshot(struct qcow2 *q, const struct block_open *o, struct err *err)
{
	const struct qcow2_snapshot *s;
	int ret;

	if (!o->snapshot)
		return 0;
	s = qcow2_snapshot_find(q, o->snapshot);
	if (!s)
		return err_set(err, -ENOENT, "Could not open '%s': it has no snapshot '%s'", o->filename, o->snapshot);
	if (!q->node->read_only)
		return err_set(err, -EINVAL, "Could not open '%s': a snapshot can only be read", o->filename);
	ret = qcow2_snapshot_l1(q, s, &q->l1, err);
	if (ret)
		return ret;
	q->h.l1_size = s->l1_size;
	q->h.l1_table_offset = s->l1_offset;
	q->h.size = s->pub.disk_size;
	q->node->size = ALIGN_UP(s->pub.disk_size, 512);
	return 0;
}

static int open_data_file(struct qcow2 *q, const struct block_open *o, struct err *err)
{
	struct block_open d = *o;

	if (!q->has_data_file || o->check)
		return 0;
	d.filename = o->data_file;
	return block_file_open(&q->data, &d, q->node->loop, err);
}

static int qcow2_set_loop(struct block_node *n, struct loop *l, struct err *err)
{
	struct qcow2 *q = n->private_data;

	return q->data && q->data != q->file ? block_file_set_loop(q->data, l, err) : 0;
}

static void qcow2_free(struct qcow2 *q)
{
	block_close(q->node->backing);
	q->node->backing = NULL;
	qcow2_cache_free(&q->l2);
	qcow2_cache_free(&q->refblocks);
	qcow2_snapshots_free(q);
	co_ranges_fini(&q->ios);
	if (q->data && q->data != q->file)
		block_file_close(q->data);
	free(q->l1);
	free(q->reftable);
	free(q->frees);
	free(q->meta);
	free(q->inflated);
	free(q);
}

static int qcow2_open(struct block_node *n, const struct block_open *o, struct err *err)
{
	struct qcow2 *q = calloc(1, sizeof(*q));
	int ret;

	if (!q)
		return err_set(err, -ENOMEM, "out of memory");
	q->node = n;
	q->file = q->data = n->file;
	q->ios.size = sizeof(struct qcow2_io);
	n->private_data = q;
	ret = qcow2_header_read(n->file, &q->h, n->filename, err);
	if (!ret)
		ret = qcow2_header_usable(&q->h, o, n->filename, err);
	if (!ret) {
		n->size = ALIGN_UP(q->h.size, 512);
		q->cluster_bits = q->h.cluster_bits;
		q->cluster_size = 1u << q->cluster_bits;
		q->has_data_file = (q->h.incompatible & QCOW2_INCOMPAT_DATA_FILE) != 0;
		q->extended_l2 = (q->h.incompatible & QCOW2_INCOMPAT_EXTENDED_L2) != 0;
		q->entry_size = q->extended_l2 ? 16 : 8;
		q->l2_bits = q->cluster_bits - (q->extended_l2 ? 4 : 3);
		ret = check_cache_options(q, o, err);
		if (!ret)
			ret = open_data_file(q, o, err);
		if (!ret)
			ret = load_tables(q, o, err);
	}
	if (!ret)
		ret = use_snapshot(q, o, err);
	if (!ret)
		ret = block_open_backing(n, o, q->h.backing_file, q->h.backing_format, false, err);
	q->backing = n->backing;
	if (!ret && !o->check)
		ret = clear_autoclear(q, err);
	qcow2_room_init(q, !ret && !o->check, o->direct);
	if (ret)
		qcow2_free(q);
	return ret;
}

struct run {
	struct qcow2 *q;
	int (*fn)(struct qcow2 *q, void *arg);
	void *arg;
	int ret;
	bool done;
};

static void run_co(void *arg)
{
	struct run *r = arg;

	r->ret = r->fn(r->q, r->arg);
	r->done = true;
}

int qcow2_run(struct qcow2 *q, int (*fn)(struct qcow2 *q, void *arg), void *arg)
{
	struct run r = {.q = q, .fn = fn, .arg = arg};
	int ret;

	qcow2_room_trim(q);
	ret = co_spawn(run_co, &r);
	while (!ret && !r.done) {
		aio_flush(block_file_aio(q->file));
		if (!r.done)
			loop_run_once(q->node->loop, -1);
	}
	/* It may have laid out tables by other rules than those of requests. */
	qcow2_room_find(q);
	return ret ? ret : r.ret;
}

static int flush_all(struct qcow2 *q, void *arg)
{
	int ret = 0;

	/* Twice: the first makes the mapping durable, which frees clusters. */
	q->closing = true;
	for (int i = 0; i < 3 && !ret && qcow2_is_dirty(q); i++)
		ret = qcow2_flush_tables(q);
	q->closing = false;
	return ret ? ret : qcow2_mark_clean(q);
}

int qcow2_flush_all(struct qcow2 *q)
{
	return q->node->read_only || q->corrupt || (!qcow2_is_dirty(q) && !q->lazy) ? 0 : qcow2_run(q, flush_all, NULL);
}

static void qcow2_close(struct block_node *n)
{
	struct qcow2 *q = n->private_data;
	int ret = qcow2_flush_all(q);

	if (ret)
		log_error("'%s': the tables could not be written: %s", n->filename, strerror(-ret));
	qcow2_room_trim(q);
	qcow2_free(q);
}

const struct block_driver block_qcow2_driver = {
    .name = "qcow2",
    .open = qcow2_open,
    .close = qcow2_close,
    .submit = qcow2_submit,
    .set_loop = qcow2_set_loop,
    .truncate = qcow2_truncate,
    .make_empty = qcow2_make_empty,
    .change_backing = qcow2_change_backing,
    .amend = qcow2_amend,
    .snapshot_list = qcow2_snapshot_list,
    .snapshot_create = qcow2_snapshot_create,
    .snapshot_apply = qcow2_snapshot_apply,
    .snapshot_delete = qcow2_snapshot_delete,
    .vmstate_write = qcow2_vmstate_write,
    .vmstate_drop = qcow2_vmstate_drop,
    .vmstate_read = qcow2_vmstate_read,
    .check = qcow2_check,
    .compresses = true,
};
