// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Making, applying and deleting internal snapshots. While references change,
 * version 3 images are marked dirty, so that a crash in between is repaired at
 * the next opening. Coroutines with the image to themselves.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/util.h"
#include "block/qcow2.h"

#define EXTRA_SIZE 24u /* extra data of the entries made here */

/* ---- references ------------------------------------------------------------------ */

static int ref_entry(struct qcow2 *q, uint64_t entry, int delta)
{
	uint64_t offset = entry & QCOW2_OFFSET_MASK;
	uint32_t len = q->cluster_size;

	if (entry & QCOW2_ENTRY_COMPRESSED)
		qcow2_compressed_range(q, entry, &offset, &len);
	if (!offset)
		return 0;
	if (!(entry & QCOW2_ENTRY_COMPRESSED) && (offset & (q->cluster_size - 1)))
		return qcow2_mark_corrupt(q, "an L2 entry points to 0x%llx, which is no cluster",
					  (unsigned long long)offset);
	if (delta < 0) {
		qcow2_free_later(q, offset, len);
		return 0;
	}
	return qcow2_refcount_add(q, offset >> q->cluster_bits,
				  ((offset + len - 1) >> q->cluster_bits) - (offset >> q->cluster_bits) + 1, delta);
}

/* The same for at most `max` entries; *n of them were done. */
static int ref_table(struct qcow2 *q, uint64_t l2_entry, int delta, uint64_t max, uint64_t *n)
{
	struct qcow2_table *t;
	int ret = qcow2_limit_dirty(q);

	if (!ret)
		ret = qcow2_cache_get(q, &q->l2, l2_entry, &t);
	if (ret)
		return ret;
	for (uint32_t k = 0; k < q->cluster_size && !ret && *n < max; k += q->entry_size) {
		ret = ref_entry(q, ld64be(t->data + k), delta);
		*n += !ret;
	}
	qcow2_cache_put(t);
	if (!ret && *n < max) {
		ret = ref_entry(q, l2_entry, delta);
		*n += !ret;
	}
	return ret;
}

/* Everything that an L1 table refers to gets or loses a reference: the first `max` things, *done counts them. */
static int ref_some(struct qcow2 *q, const uint64_t *l1, uint32_t n, int delta, uint64_t max, uint64_t *done)
{
	int ret = 0;

	*done = 0;
	for (uint32_t i = 0; i < n && !ret && *done < max; i++) {
		const uint64_t offset = l1[i] & QCOW2_OFFSET_MASK;

		if (offset & (q->cluster_size - 1))
			return qcow2_mark_corrupt(q, "L2 table %u is at 0x%llx, which is no cluster", i,
						  (unsigned long long)offset);
		if (offset)
			ret = ref_table(q, offset, delta, max, done);
	}
	return ret;
}

static int ref_all(struct qcow2 *q, const uint64_t *l1, uint32_t n, int delta)
{
	uint64_t done;

	return ref_some(q, l1, n, delta, UINT64_MAX, &done);
}

/* May every refcount of the table's clusters grow by one? */
static int check_room(struct qcow2 *q, const uint64_t *l1, uint32_t n)
{
	/* At most one reference by each L1 table, several by compressed clusters: near the limit it is found out
	 * before anything is changed only where refcounts are narrow. */
	const uint64_t max = q->h.refcount_order < 5 ? BIT(1u << q->h.refcount_order) - 1 : UINT32_MAX;
	int ret = 0;

	for (uint32_t i = 0; i < n && !ret; i++) {
		const uint64_t offset = l1[i] & QCOW2_OFFSET_MASK;
		struct qcow2_table *t;
		uint64_t count = 0;
		if (!offset || offset & (q->cluster_size - 1))
			continue;
		ret = qcow2_refcount_get(q, offset >> q->cluster_bits, &count);
		if (!ret && count >= max)
			return -ERANGE;
		if (!ret)
			ret = qcow2_cache_get(q, &q->l2, offset, &t);
		if (ret)
			break;
		for (uint32_t k = 0; k < q->cluster_size && !ret; k += q->entry_size) {
			const uint64_t e = ld64be(t->data + k), host = e & QCOW2_OFFSET_MASK;
			if ((e & QCOW2_ENTRY_COMPRESSED) || !host)
				continue;
			ret = qcow2_refcount_get(q, host >> q->cluster_bits, &count);
			if (!ret && count >= max)
				ret = -ERANGE;
		}
		qcow2_cache_put(t);
	}
	return ret;
}

static int is_single(struct qcow2 *q, uint64_t offset, uint64_t *flag)
{
	uint64_t count;
	int ret = qcow2_refcount_get(q, offset >> q->cluster_bits, &count);

	*flag = count == 1 ? QCOW2_ENTRY_COPIED : 0;
	return ret;
}

/* The COPIED flags of the active tables say which refcounts are 1. */
static int fix_copied(struct qcow2 *q)
{
	int ret = 0;

	for (uint32_t i = 0; i < q->h.l1_size && !ret; i++) {
		const uint64_t offset = q->l1[i] & QCOW2_OFFSET_MASK;
		struct qcow2_table *t;
		uint64_t flag;
		if (!offset)
			continue;
		ret = is_single(q, offset, &flag);
		if (!ret && (q->l1[i] & QCOW2_ENTRY_COPIED) != flag)
			qcow2_l1_set(q, i, offset | flag);
		if (!ret)
			ret = qcow2_limit_dirty(q);
		if (!ret)
			ret = qcow2_cache_get(q, &q->l2, offset, &t);
		if (ret)
			break;
		for (uint32_t k = 0; k < q->cluster_size && !ret; k += q->entry_size) {
			const uint64_t e = ld64be(t->data + k), host = e & QCOW2_OFFSET_MASK;
			if ((e & QCOW2_ENTRY_COMPRESSED) || !host)
				continue;
			ret = is_single(q, host, &flag);
			if (!ret && (e & QCOW2_ENTRY_COPIED) != flag) {
				st64be(t->data + k, e ^ QCOW2_ENTRY_COPIED);
				qcow2_cache_dirty(&q->l2, t);
			}
		}
		qcow2_cache_put(t);
	}
	return ret;
}

/* ---- the table ---------------------------------------------------------------------- */

static size_t entry_size(const struct qcow2_snapshot *s)
{
	return ALIGN_UP(40 + MAX(s->extra_size, EXTRA_SIZE) + strlen(s->pub.id) + strlen(s->pub.name), 8);
}

static void put_entry(uint8_t *b, const struct qcow2_snapshot *s)
{
	const uint32_t extra = MAX(s->extra_size, EXTRA_SIZE);
	const size_t id = strlen(s->pub.id), name = strlen(s->pub.name);

	st64be(b, s->l1_offset);
	st32be(b + 8, s->l1_size);
	st16be(b + 12, (uint16_t)id);
	st16be(b + 14, (uint16_t)name);
	st32be(b + 16, s->pub.date_sec);
	st32be(b + 20, s->pub.date_nsec);
	st64be(b + 24, s->pub.vm_clock_nsec);
	st32be(b + 32, (uint32_t)MIN(s->pub.vm_state_size, UINT32_MAX));
	st32be(b + 36, extra);
	if (s->extra_size > EXTRA_SIZE)
		memcpy(b + 40, s->extra, s->extra_size);
	st64be(b + 40, s->pub.vm_state_size);
	st64be(b + 48, s->pub.disk_size);
	st64be(b + 56, s->pub.icount);
	memcpy(b + 40 + extra, s->pub.id, id);
	memcpy(b + 40 + extra + id, s->pub.name, name);
}

/* A new table with q->snapshots, durable, but not yet named by the header. */
struct new_table {
	uint64_t bytes, clusters, cluster;
};

static int make_table(struct qcow2 *q, struct new_table *t)
{
	uint64_t at = 0;
	uint8_t *b = NULL;
	int ret = 0;

	*t = (struct new_table){0};
	for (uint32_t i = 0; i < q->nr_snapshots; i++)
		t->bytes += entry_size(&q->snapshots[i]);
	t->clusters = (t->bytes + q->cluster_size - 1) >> q->cluster_bits;
	if (t->bytes > QCOW2_MAX_SNAPSHOTS * 1024ull)
		return -EFBIG;
	if (t->clusters) {
		b = calloc(t->clusters, q->cluster_size);
		ret = b ? qcow2_alloc_run(q, t->clusters, &t->cluster) : -ENOMEM;
		if (ret)
			t->clusters = 0;
		for (uint32_t i = 0; i < q->nr_snapshots && !ret; i++) {
			put_entry(b + at, &q->snapshots[i]);
			at += entry_size(&q->snapshots[i]);
		}
		if (!ret)
			ret = qcow2_file_io(q, BLOCK_WRITE, t->cluster << q->cluster_bits, b,
					    t->clusters << q->cluster_bits);
		free(b);
	}
	for (uint64_t i = 0; i < t->clusters && !ret; i++)
		ret = qcow2_meta_add(q, t->cluster + i);
	if (!ret)
		ret = qcow2_flush_tables(q);
	if (ret && t->clusters)
		qcow2_free_later(q, t->cluster << q->cluster_bits, t->clusters << q->cluster_bits);
	return ret;
}

/* The header names it; the old one is freed. */
static int use_table(struct qcow2 *q, const struct new_table *t)
{
	const uint64_t old = q->h.snapshots_offset, old_bytes = q->h.nb_snapshots ? q->snapshots_bytes : 0;
	int ret =
	    qcow2_header_patch(q,
			       (struct qcow2_patch[]){{QCOW2_H_NB_SNAPSHOTS, 4, q->nr_snapshots},
						      {QCOW2_H_SNAPSHOTS_OFFSET, 8, t->cluster << q->cluster_bits}},
			       2);

	if (ret)
		return ret;
	q->h.nb_snapshots = q->nr_snapshots;
	q->h.snapshots_offset = t->cluster << q->cluster_bits;
	q->snapshots_bytes = t->bytes;
	return old_bytes ? qcow2_free_later(q, old, old_bytes) : 0;
}

static int write_table(struct qcow2 *q)
{
	struct new_table t;
	int ret = make_table(q, &t);

	return ret ? ret : use_table(q, &t);
}

/* ---- the three operations ------------------------------------------------------------- */

static int set_dirty(struct qcow2 *q, bool on)
{
	if (q->h.version < 3)
		return 0;
	q->h.incompatible = (q->h.incompatible & ~(uint64_t)QCOW2_INCOMPAT_DIRTY) | (on ? QCOW2_INCOMPAT_DIRTY : 0);
	return qcow2_header_patch(q, (struct qcow2_patch[]){{QCOW2_H_INCOMPATIBLE, 8, q->h.incompatible}}, 1);
}

static int flush_twice(struct qcow2 *q)
{
	int ret = 0;

	for (int i = 0; i < 3 && !ret && qcow2_is_dirty(q); i++)
		ret = qcow2_flush_tables(q);
	return ret;
}

/* Change references and tables with `fn`, between setting and clearing the dirty mark. A failure keeps it, unless fn
 * says in *undone (or NULL) that nothing has changed. */
static int marked(struct qcow2 *q, int (*fn)(struct qcow2 *q, void *arg), void *arg, const bool *undone)
{
	int ret;

	q->closing = true; /* with lazy refcounts too, all are written at the end */
	ret = flush_twice(q);
	if (!ret)
		ret = set_dirty(q, true);
	if (!ret)
		ret = fn(q, arg);
	if (!ret) {
		ret = flush_twice(q);
		if (!ret)
			ret = fix_copied(q);
		if (!ret)
			ret = flush_twice(q);
	} else if (undone && *undone && !flush_twice(q)) {
		set_dirty(q, false);
	}
	q->closing = false;
	return ret ? ret : set_dirty(q, false);
}

static int next_id(const struct qcow2 *q, char **out)
{
	unsigned long max = 0;

	for (uint32_t i = 0; i < q->nr_snapshots; i++)
		max = MAX(max, strtoul(q->snapshots[i].pub.id, NULL, 10));
	return asprintf(out, "%lu", max + 1) < 0 ? -ENOMEM : 0;
}

/* A snapshot to be made. */
struct create {
	struct qcow2_snapshot s;
	uint32_t disk_l1; /* entries of the active L1 table that are the disk's; VM state lies behind them */
	uint64_t refs;	  /* how many things have got their reference */
	bool undone;	  /* it failed, and everything is as it was */
	bool made;	  /* the image and q->snapshots have it */
};

static int save_l1(struct qcow2 *q, struct create *c)
{
	const uint64_t clusters = MAX((q->h.l1_size * 8ull + q->cluster_size - 1) >> q->cluster_bits, 1u);
	const uint32_t n = c->s.pub.vm_state_size ? q->h.l1_size : c->disk_l1;
	uint8_t *be = calloc(clusters, q->cluster_size);
	uint64_t cluster;
	int ret = be ? qcow2_alloc_run(q, clusters, &cluster) : -ENOMEM;

	if (!ret)
		c->s.l1_offset = cluster << q->cluster_bits;
	for (uint32_t i = 0; i < n && !ret; i++)
		st64be(be + i * 8ull, q->l1[i] & ~QCOW2_ENTRY_COPIED);
	if (!ret)
		ret = qcow2_file_io(q, BLOCK_WRITE, cluster << q->cluster_bits, be, clusters << q->cluster_bits);
	for (uint64_t i = 0; i < clusters && !ret; i++)
		ret = qcow2_meta_add(q, cluster + i);
	free(be);
	c->s.l1_size = q->h.l1_size;
	return ret;
}

/* The VM state becomes the snapshot's: its references too. Without the dirty mark (version 2) a crash leaks it. */
static void give_vmstate(struct qcow2 *q, uint32_t from)
{
	for (uint32_t i = from; i < q->h.l1_size; i++)
		if (q->l1[i])
			qcow2_l1_set(q, i, 0);
}

static void create_undo(struct qcow2 *q, struct create *c, const uint64_t *l1)
{
	uint64_t done;

	for (uint32_t i = c->disk_l1; i < q->h.l1_size; i++)
		if (q->l1[i] != l1[i])
			qcow2_l1_set(q, i, l1[i]);
	c->undone = !ref_some(q, l1, c->disk_l1, -1, c->refs, &done);
	if (c->s.l1_offset)
		qcow2_free_later(q, c->s.l1_offset, MAX(c->s.l1_size * 8ull, 1u));
}

static int create_co(struct qcow2 *q, void *arg)
{
	struct create *c = arg;
	struct qcow2_snapshot *all = realloc(q->snapshots, (q->nr_snapshots + 1) * sizeof(*all));
	uint64_t *l1 = malloc(q->h.l1_size * 8ull + 8);
	struct new_table t;
	int ret = all && l1 ? 0 : -ENOMEM;

	if (all)
		q->snapshots = all;
	if (ret) {
		free(l1);
		return ret;
	}
	memcpy(l1, q->l1, q->h.l1_size * 8ull);
	c->disk_l1 = MIN(qcow2_vmstate_first(q, q->h.size), q->h.l1_size);
	ret = save_l1(q, c);
	if (!ret)
		ret = ref_some(q, q->l1, c->disk_l1, 1, UINT64_MAX, &c->refs);
	if (!ret) {
		if (c->s.pub.vm_state_size)
			give_vmstate(q, c->disk_l1);
		all[q->nr_snapshots++] = c->s;
		ret = make_table(q, &t);
		if (ret)
			q->nr_snapshots--;
	}
	if (ret)
		create_undo(q, c, l1);
	free(l1);
	if (ret)
		return ret;
	ret = use_table(q, &t);
	c->made = !ret;
	if (ret)
		q->nr_snapshots--;
	return ret;
}

struct edit {
	struct qcow2_snapshot *s;
	uint64_t *l1;
	uint32_t l1_size;
};

static int create_run(struct qcow2 *q, void *arg)
{
	struct create *c = arg;
	int ret = check_room(q, q->l1, MIN(qcow2_vmstate_first(q, q->h.size), q->h.l1_size));

	return ret ? ret : marked(q, create_co, c, &c->undone);
}

int qcow2_snapshot_create(struct block_node *n, const struct block_snapshot *want, struct err *err)
{
	struct qcow2 *q = n->private_data;
	struct create c = {.s = {.extra_size = EXTRA_SIZE, .pub = *want}};
	struct block_snapshot *p = &c.s.pub;
	struct timespec now;
	int ret;

	if (q->corrupt || q->has_data_file)
		return err_set(err, -ENOTSUP, "'%s': no snapshots of images %s", n->filename,
			       q->corrupt ? "that are corrupt" : "with a data file");
	if (q->nr_snapshots >= QCOW2_MAX_SNAPSHOTS)
		return err_set(err, -EFBIG, "'%s' has %u snapshots, and takes no more", n->filename, q->nr_snapshots);
	if (strlen(want->name) > 255)
		return err_set(err, -EINVAL, "the name of a snapshot has at most 255 bytes");
	clock_gettime(CLOCK_REALTIME, &now);
	if (!p->date_sec) {
		p->date_sec = (uint32_t)now.tv_sec;
		p->date_nsec = (uint32_t)now.tv_nsec;
	}
	p->disk_size = q->h.size;
	p->icount = UINT64_MAX;
	p->id = NULL;
	ret = next_id(q, &p->id);
	p->name = strdup(want->name);
	if (!ret && p->name)
		ret = qcow2_run(q, create_run, &c);
	if (ret || !p->name) {
		err_set_errno(err, ret ? ret : -ENOMEM, "snapshot '%s' of '%s' could not be made", want->name,
			      n->filename);
		if (!c.made)
			qcow2_snapshot_free(&c.s);
		return ret ? ret : -ENOMEM;
	}
	return 0;
}

int qcow2_snapshot_l1(struct qcow2 *q, const struct qcow2_snapshot *s, uint64_t **l1, struct err *err)
{
	uint64_t *t;
	int ret = 0;

	if (s->l1_size > QCOW2_MAX_L1_BYTES / 8 || (s->l1_offset & (q->cluster_size - 1)))
		return err_set(err, -EINVAL, "the L1 table of snapshot '%s' is invalid", s->pub.id);
	if (s->pub.disk_size > INT64_MAX - 511)
		return err_set(err, -EINVAL, "the size of snapshot '%s' is invalid", s->pub.id);
	t = calloc(MAX(s->l1_size, 1u), 8);
	if (!t)
		return err_set(err, -ENOMEM, "out of memory");
	if (s->l1_size)
		ret = block_file_pread(q->file, t, s->l1_size * 8ull, s->l1_offset);
	for (uint32_t i = 0; i < s->l1_size; i++)
		t[i] = ld64be(&t[i]) & QCOW2_OFFSET_MASK;
	if (ret) {
		free(t);
		return err_set_errno(err, ret, "the L1 table of snapshot '%s' cannot be read", s->pub.id);
	}
	free(*l1);
	*l1 = t;
	return 0;
}

static int delete_co(struct qcow2 *q, void *arg)
{
	struct edit *e = arg;
	struct qcow2_snapshot gone = *e->s;
	const uint32_t i = (uint32_t)(e->s - q->snapshots);
	int ret;

	memmove(e->s, e->s + 1, (--q->nr_snapshots - i) * sizeof(*e->s));
	ret = write_table(q);
	if (!ret)
		ret = ref_all(q, e->l1, e->l1_size, -1);
	if (!ret && gone.l1_size)
		ret = qcow2_free_later(q, gone.l1_offset, gone.l1_size * 8ull);
	qcow2_snapshot_free(&gone);
	return ret;
}

static int delete_run(struct qcow2 *q, void *arg)
{
	return marked(q, delete_co, arg, NULL);
}

/* The snapshot's table becomes the active one; what was active loses its references. */
static int apply_co(struct qcow2 *q, void *arg)
{
	struct edit *e = arg;
	const uint64_t span = BIT(q->cluster_bits + q->l2_bits), size = e->s->pub.disk_size;
	/* Of the snapshot the disk's part: VM state is read through its own table. */
	const uint64_t need = size / span + (size % span != 0), n = MAX(need, (uint64_t)e->l1_size);
	const uint32_t disk = (uint32_t)MIN(need, (uint64_t)e->l1_size);
	uint64_t *l1 = calloc(MAX(n, 1u), 8), *old = malloc(q->h.l1_size * 8ull + 8);
	const uint32_t old_size = q->h.l1_size;
	int ret = l1 && old ? ref_all(q, e->l1, disk, 1) : -ENOMEM;

	if (!ret) {
		memcpy(l1, e->l1, disk * 8ull);
		memcpy(old, q->l1, old_size * 8ull);
		ret = qcow2_l1_replace(q, l1, (uint32_t)n, size);
	}
	if (q->l1 != l1)
		free(l1);
	if (!ret)
		ret = ref_all(q, old, old_size, -1);
	free(old);
	return ret;
}

static int apply_run(struct qcow2 *q, void *arg)
{
	struct edit *e = arg;
	int ret = check_room(q, e->l1, e->l1_size);

	return ret ? ret : marked(q, apply_co, arg, NULL);
}

static int edit(struct block_node *n, const char *which, int (*run)(struct qcow2 *q, void *arg), const char *what,
		struct err *err)
{
	struct qcow2 *q = n->private_data;
	struct edit e = {.s = qcow2_snapshot_find(q, which)};
	int ret;

	if (!e.s)
		return err_set(err, -ENOENT, "'%s' has no snapshot '%s'", n->filename, which);
	if (q->corrupt || e.s->pub.disk_size > INT64_MAX - 511)
		return err_set(err, -EIO, "'%s' or its snapshot '%s' is corrupt", n->filename, which);
	e.l1_size = e.s->l1_size;
	ret = qcow2_snapshot_l1(q, e.s, &e.l1, err);
	if (!ret) {
		ret = qcow2_run(q, run, &e);
		if (ret)
			err_set_errno(err, ret, "snapshot '%s' of '%s' could not be %s", which, n->filename, what);
	}
	free(e.l1);
	return ret;
}

int qcow2_snapshot_apply(struct block_node *n, const char *which, struct err *err)
{
	return edit(n, which, apply_run, "applied", err);
}

int qcow2_snapshot_delete(struct block_node *n, const char *which, struct err *err)
{
	return edit(n, which, delete_run, "deleted", err);
}
