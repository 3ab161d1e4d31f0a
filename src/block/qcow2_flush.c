// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Writing tables out, in the order that leaves nothing worse than leaked clusters
 * after a power cut at any moment:
 *
 *   1. refcount blocks (they only grew), then the refcount table's new entries
 *   2. fdatasync: also the guest's data that new L2 entries will name
 *   3. L2 tables; 4. fdatasync, L1 entries of new tables; 5. fdatasync
 *   6. now nothing durable names what was freed: punch it, drop its refcounts
 *
 * Tables are copied when a flush begins: what is changed while it runs, and the
 * refcounts of that, belong to the next one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "block/qcow2.h"

struct table_copy {
	struct qcow2_table *t;
	struct iovec iov; /* a copy of its data */
};
/* The state of the tables when the flush began. */
struct flush_set {
	struct table_copy *l2;
	size_t nr_l2;
	uint64_t *l1;
	uint32_t l1_lo, l1_hi;
	struct qcow2_free *frees;
	size_t nr_frees;
};

static int sync_file(struct qcow2 *q)
{
	int ret = q->data != q->file ? qcow2_data_iov(q, BLOCK_FLUSH, 0, NULL, 0, 0) : 0;

	return ret ? ret : qcow2_file_io(q, BLOCK_FLUSH, 0, NULL, 0);
}

int qcow2_mark_clean(struct qcow2 *q)
{
	int ret;

	if (!(q->h.incompatible & QCOW2_INCOMPAT_DIRTY))
		return 0;
	q->h.incompatible &= ~(uint64_t)QCOW2_INCOMPAT_DIRTY;
	ret = qcow2_header_set_u64(q, QCOW2_H_INCOMPATIBLE, q->h.incompatible);
	return ret ? ret : sync_file(q);
}

bool qcow2_is_dirty(const struct qcow2 *q)
{
	return q->l2.dirty || q->refblocks.dirty || q->l1_dirty_hi || q->reftable_dirty_hi || q->nr_frees;
}

int qcow2_free_later(struct qcow2 *q, uint64_t offset, uint64_t bytes)
{
	const uint64_t first = offset >> q->cluster_bits, last = (offset + bytes - 1) >> q->cluster_bits;
	struct qcow2_free *f = q->nr_frees ? &q->frees[q->nr_frees - 1] : NULL;

	if (f && f->offset + ((uint64_t)f->clusters << q->cluster_bits) == first << q->cluster_bits &&
	    f->clusters < 1u << 20 && last - first < 1u << 20) {
		f->clusters += (uint32_t)(last - first + 1);
		return 0;
	}
	if (q->nr_frees == q->max_frees) {
		size_t max = q->max_frees ? q->max_frees * 2 : 64;
		f = realloc(q->frees, max * sizeof(*f));
		if (!f)
			return -ENOMEM; /* they leak, no more */
		q->frees = f;
		q->max_frees = max;
	}
	q->frees[q->nr_frees++] =
	    (struct qcow2_free){.offset = first << q->cluster_bits, .clusters = (uint32_t)(last - first + 1)};
	return 0;
}

/* Operations on the file that go at the same time. */
struct batch {
	struct co *co;
	unsigned left;
	int ret;
};

static void batch_done(void *opaque, int ret)
{
	struct batch *b = opaque;

	b->left--;
	if (ret && !b->ret)
		b->ret = ret;
	if (!b->left && b->co)
		co_wake(b->co);
}

/* `iov` stays until batch_wait returns; NULL for a discard. */
static void batch_add(struct qcow2 *q, struct batch *b, enum block_op op, uint64_t offset, uint64_t len,
		      const struct iovec *iov)
{
	b->left++;
	block_file_submit(q->file, op, false, true, offset, len, iov, iov ? 1 : 0, batch_done, b);
}

static int batch_wait(struct batch *b)
{
	if (b->left) {
		b->co = co_self();
		co_wait();
		b->co = NULL;
	}
	return b->ret;
}

static void copies_free(struct table_copy *c, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		qcow2_cache_put(c[i].t);
		free(c[i].iov.iov_base);
	}
	free(c);
}

/* Copies of all dirty tables, which are then clean and pinned. Nothing waits in here: they are of one moment. */
static int copies_take(struct qcow2 *q, struct qcow2_cache *cache, struct table_copy **out, size_t *n)
{
	struct table_copy *c = calloc(cache->dirty ? cache->dirty : 1, sizeof(*c));
	int ret = c ? 0 : -ENOMEM;

	*n = 0;
	for (struct qcow2_table *t = cache->first; t && !ret; t = t->next) {
		void *data;
		if (!t->dirty)
			continue;
		data = aligned_alloc(4096, ALIGN_UP(q->cluster_size, 4096u));
		if (!data) {
			ret = -ENOMEM;
			break;
		}
		memcpy(data, t->data, q->cluster_size);
		c[(*n)++] = (struct table_copy){.t = t, .iov = {data, q->cluster_size}};
		t->pins++;
	}
	if (ret) {
		copies_free(c, *n);
		*n = 0;
		return ret;
	}
	for (size_t i = 0; i < *n; i++)
		c[i].t->dirty = false;
	cache->dirty = 0;
	*out = c;
	return 0;
}

static int copies_write(struct qcow2 *q, const struct table_copy *c, size_t n)
{
	struct batch b = {0};

	for (size_t i = 0; i < n; i++)
		batch_add(q, &b, BLOCK_WRITE, c[i].t->offset, q->cluster_size, &c[i].iov);
	return batch_wait(&b);
}

static void set_free(struct flush_set *s)
{
	copies_free(s->l2, s->nr_l2);
	free(s->l1);
	free(s->frees);
}

static int set_take(struct qcow2 *q, struct flush_set *s)
{
	int ret;

	memset(s, 0, sizeof(*s));
	if (q->l1_dirty_hi) {
		s->l1 = malloc((q->l1_dirty_hi - q->l1_dirty_lo) * 8ull);
		if (!s->l1)
			return -ENOMEM;
	}
	ret = copies_take(q, &q->l2, &s->l2, &s->nr_l2);
	if (ret)
		return ret;
	if (q->l1_dirty_hi) {
		s->l1_lo = q->l1_dirty_lo;
		s->l1_hi = q->l1_dirty_hi;
		for (uint32_t i = s->l1_lo; i < s->l1_hi; i++)
			st64be(&s->l1[i - s->l1_lo], q->l1[i]);
		q->l1_dirty_lo = UINT32_MAX;
		q->l1_dirty_hi = 0;
	}
	s->frees = q->frees;
	s->nr_frees = q->nr_frees;
	q->frees = NULL;
	q->nr_frees = q->max_frees = 0;
	return 0;
}

/* A step failed: everything is as dirty as before. */
static void set_undo(struct qcow2 *q, struct flush_set *s)
{
	for (size_t i = 0; i < s->nr_l2; i++)
		qcow2_cache_dirty(&q->l2, s->l2[i].t);
	if (s->l1_hi) {
		q->l1_dirty_lo = MIN(q->l1_dirty_lo, s->l1_lo);
		q->l1_dirty_hi = MAX(q->l1_dirty_hi, s->l1_hi);
	}
	for (size_t i = 0; i < s->nr_frees; i++)
		qcow2_free_later(q, s->frees[i].offset, (uint64_t)s->frees[i].clusters << q->cluster_bits);
}

int qcow2_write_refblocks(struct qcow2 *q)
{
	struct table_copy *c;
	size_t n;
	int ret;

	if (!q->refblocks.dirty)
		return 0;
	ret = copies_take(q, &q->refblocks, &c, &n);
	if (ret)
		return ret;
	ret = copies_write(q, c, n);
	for (size_t i = 0; i < n && ret; i++)
		qcow2_cache_dirty(&q->refblocks, c[i].t);
	copies_free(c, n);
	return ret;
}

/* Changed entries of the refcount table, as they were when the flush began: later ones name blocks of later flushes. */
struct reftable_copy {
	uint64_t *be;
	uint32_t lo, hi;
};

static int reftable_take(struct qcow2 *q, struct reftable_copy *r)
{
	const uint32_t entries = (uint32_t)(((uint64_t)q->h.refcount_table_clusters << q->cluster_bits) / 8);

	r->lo = q->reftable_dirty_lo;
	r->hi = MIN(q->reftable_dirty_hi, entries); /* what is behind is a larger table's, being made */
	r->be = NULL;
	if (r->lo < r->hi) {
		r->be = malloc((r->hi - r->lo) * 8ull);
		if (!r->be)
			return -ENOMEM;
	}
	for (uint32_t i = r->lo; i < r->hi; i++)
		st64be(&r->be[i - r->lo], q->reftable[i]);
	q->reftable_dirty_lo = UINT32_MAX;
	q->reftable_dirty_hi = 0;
	return 0;
}

static int reftable_write(struct qcow2 *q, struct reftable_copy *r)
{
	int ret;

	if (!r->be)
		return 0;
	ret = sync_file(q); /* the blocks first */
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_WRITE, q->h.refcount_table_offset + r->lo * 8ull, r->be,
				    (r->hi - r->lo) * 8ull);
	return ret;
}

static int write_refcounts(struct qcow2 *q)
{
	struct reftable_copy r;
	int ret = reftable_take(q, &r);

	if (ret)
		return ret;
	ret = qcow2_write_refblocks(q);
	if (!ret)
		ret = reftable_write(q, &r);
	if (ret && r.be) {
		q->reftable_dirty_lo = MIN(q->reftable_dirty_lo, r.lo);
		q->reftable_dirty_hi = MAX(q->reftable_dirty_hi, r.hi);
	}
	free(r.be);
	return ret;
}

/* Lazy refcounts: the image says that they may be wrong, and they are written when it is closed or the cache full. */
static int mark_lazy(struct qcow2 *q)
{
	int ret;

	if (q->h.incompatible & QCOW2_INCOMPAT_DIRTY)
		return 0;
	ret = qcow2_header_set_u64(q, QCOW2_H_INCOMPATIBLE, q->h.incompatible | QCOW2_INCOMPAT_DIRTY);
	if (!ret)
		q->h.incompatible |= QCOW2_INCOMPAT_DIRTY;
	return ret;
}

static int write_set(struct qcow2 *q, struct flush_set *s)
{
	const bool lazy = q->lazy && !q->closing && q->refblocks.dirty <= q->refblocks.max / 2;
	int ret = lazy ? mark_lazy(q) : write_refcounts(q);

	if (!ret && (s->nr_l2 || s->l1_hi))
		ret = sync_file(q);
	if (!ret)
		ret = copies_write(q, s->l2, s->nr_l2);
	if (!ret && s->l1_hi) {
		ret = sync_file(q);
		if (!ret)
			ret = qcow2_file_io(q, BLOCK_WRITE, q->h.l1_table_offset + s->l1_lo * 8ull, s->l1,
					    (s->l1_hi - s->l1_lo) * 8ull);
	}
	return ret ? ret : sync_file(q);
}

/* Clusters whose last reference goes, in runs: their blocks go back to the host before they may be used again. */
static int discard_all(struct qcow2 *q, const struct flush_set *s)
{
	struct batch b = {0};
	uint64_t start = 0, n = 0, count;
	int ret = 0;

	for (size_t i = 0; i < s->nr_frees && !ret; i++)
		for (uint32_t k = 0; k < s->frees[i].clusters && !ret; k++) {
			const uint64_t cluster = (s->frees[i].offset >> q->cluster_bits) + k;
			ret = qcow2_refcount_get(q, cluster, &count);
			if (ret || count != 1)
				continue;
			qcow2_meta_remove(q, cluster);
			if (n && cluster == start + n) {
				n++;
				continue;
			}
			if (n && q->node->discard_unmap)
				batch_add(q, &b, BLOCK_DISCARD, start << q->cluster_bits, n << q->cluster_bits, NULL);
			start = cluster;
			n = 1;
		}
	if (n && q->node->discard_unmap)
		batch_add(q, &b, BLOCK_DISCARD, start << q->cluster_bits, n << q->cluster_bits, NULL);
	batch_wait(&b); /* advice: what the host makes of it does not matter */
	return ret;
}

static int release_all(struct qcow2 *q, struct flush_set *s)
{
	int ret;

	if (!s->nr_frees)
		return 0;
	ret = discard_all(q, s);
	qcow2_lock_take(&q->alloc);
	q->inflated_entry = 0; /* its bytes may be used again */
	for (size_t i = 0; i < s->nr_frees && !ret; i++)
		ret = qcow2_refcount_add(q, s->frees[i].offset >> q->cluster_bits, s->frees[i].clusters, -1);
	qcow2_lock_give(&q->alloc);
	return ret;
}

/* Those who wait while one is on its way share the next. */
int qcow2_flush_tables(struct qcow2 *q)
{
	const uint64_t need = q->flushes_begun + 1;
	struct flush_set s;
	uint64_t this;
	int ret;

	qcow2_lock_take(&q->flush);
	if (q->flushes_done >= need) {
		qcow2_lock_give(&q->flush);
		return 0;
	}
	this = ++q->flushes_begun;
	ret = set_take(q, &s);
	if (!ret) {
		ret = write_set(q, &s);
		if (ret)
			set_undo(q, &s);
		else
			q->flushes_done = this;
	}
	qcow2_lock_give(&q->flush);
	if (!ret)
		ret = release_all(q, &s);
	set_free(&s);
	return ret;
}
