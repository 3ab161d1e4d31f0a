// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The state of a machine in an image (qcow2 format: VM state lies behind the end
 * of the disk, in L2 tables of L1 entries that the disk does not use). It is
 * written there through the active L1 table; the snapshot made next takes those
 * entries away from it (qcow2_snapedit.c), and it is read through the snapshot's
 * own table. Coroutines with the image to themselves.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "block/qcow2.h"

struct transfer {
	struct iovec iov;
	uint64_t pos;
	const struct qcow2_snapshot *s;
	uint64_t *l1;
};

uint32_t qcow2_vmstate_first(const struct qcow2 *q, uint64_t disk_size)
{
	const uint64_t span = BIT(q->cluster_bits + q->l2_bits);

	return (uint32_t)MIN(disk_size / span + (disk_size % span != 0), (uint64_t)UINT32_MAX);
}

static uint64_t area_begin(const struct qcow2 *q, uint64_t disk_size)
{
	return (uint64_t)qcow2_vmstate_first(q, disk_size) << (q->cluster_bits + q->l2_bits);
}

/* ---- writing ------------------------------------------------------------------- */

static int write_co(struct qcow2 *q, void *arg)
{
	struct transfer *t = arg;
	const uint64_t span = BIT(q->cluster_bits + q->l2_bits), begin = area_begin(q, q->h.size);
	const uint64_t end = begin + t->pos + t->iov.iov_len;
	struct block_req req = {
	    .op = BLOCK_WRITE, .offset = begin + t->pos, .len = t->iov.iov_len, .iov = &t->iov, .niov = 1};
	int ret = 0;

	/* A longer table than is needed now: each replacement waits for the disk. */
	if ((end + span - 1) / span > q->h.l1_size)
		ret = qcow2_l1_grow(q, end + t->pos / 2);
	return ret ? ret : qcow2_write_request(q, &req);
}

int qcow2_vmstate_write(struct block_node *n, const void *buf, uint64_t pos, uint64_t len, struct err *err)
{
	struct qcow2 *q = n->private_data;
	struct transfer t = {.iov = {(void *)buf, len}, .pos = pos};
	int ret = q->corrupt ? -EIO : qcow2_run(q, write_co, &t);

	return ret ? err_set_errno(err, ret, "'%s': the machine's state cannot be written", n->filename) : 0;
}

/* ---- dropping ------------------------------------------------------------------- */

/* The room on the host at once: a full disk may have none for the tables that would give it back in order. */
static int punch(struct qcow2 *q, uint32_t i)
{
	struct qcow2_table *t;
	int ret = qcow2_cache_get(q, &q->l2, q->l1[i] & QCOW2_OFFSET_MASK, &t);

	if (ret)
		return ret;
	for (uint32_t k = 0; k < q->cluster_size; k += q->entry_size) {
		const uint64_t e = ld64be(t->data + k), at = e & QCOW2_OFFSET_MASK;

		if (at && (e & QCOW2_ENTRY_COPIED) && !(e & QCOW2_ENTRY_COMPRESSED) &&
		    !qcow2_meta_has(q, at, q->cluster_size))
			block_file_wait(q->file, q->node->loop, BLOCK_DISCARD, true, at, q->cluster_size, NULL, 0);
	}
	qcow2_cache_put(t);
	return 0;
}

static int drop_co(struct qcow2 *q, void *arg)
{
	const uint32_t first = qcow2_vmstate_first(q, q->h.size);
	bool any = false;
	int ret = 0;

	for (uint32_t i = first; i < q->h.l1_size && !ret; i++) {
		const uint64_t at = q->l1[i] & QCOW2_OFFSET_MASK;

		any |= at != 0;
		if (at && !(at & (q->cluster_size - 1)) && (q->l1[i] & QCOW2_ENTRY_COPIED))
			ret = punch(q, i);
	}
	if (!ret && any)
		ret = qcow2_drop_from(q, area_begin(q, q->h.size));
	return ret;
}

int qcow2_vmstate_drop(struct block_node *n, struct err *err)
{
	struct qcow2 *q = n->private_data;
	int ret = q->corrupt ? -EIO : qcow2_run(q, drop_co, NULL);

	if (!ret)
		ret = qcow2_flush_all(q);
	return ret ? err_set_errno(err, ret, "'%s': the machine's state cannot be removed", n->filename) : 0;
}

/* ---- reading -------------------------------------------------------------------- */

static int read_co(struct qcow2 *q, void *arg)
{
	struct transfer *t = arg;
	uint64_t *own = q->l1;
	const uint32_t own_size = q->h.l1_size;
	int ret;

	/* Nobody else looks at the tables meanwhile, and reading changes none. */
	q->l1 = t->l1;
	q->h.l1_size = t->s->l1_size;
	ret = qcow2_read_range(q, area_begin(q, t->s->pub.disk_size) + t->pos, &t->iov, 1, t->iov.iov_len);
	q->l1 = own;
	q->h.l1_size = own_size;
	return ret;
}

int qcow2_vmstate_read(struct block_node *n, const char *which, void *buf, uint64_t pos, uint64_t len, struct err *err)
{
	struct qcow2 *q = n->private_data;
	struct transfer t = {.iov = {buf, len}, .pos = pos, .s = qcow2_snapshot_find(q, which)};
	int ret;

	if (!t.s)
		return err_set(err, -ENOENT, "'%s' has no snapshot '%s'", n->filename, which);
	if (pos > t.s->pub.vm_state_size || len > t.s->pub.vm_state_size - pos)
		return err_set(err, -EINVAL, "'%s': the machine's state of snapshot '%s' ends at byte %llu",
			       n->filename, which, (unsigned long long)t.s->pub.vm_state_size);
	if (pos + len > INT64_MAX / 2)
		return err_set(err, -EINVAL, "'%s': the size of the machine's state is impossible", n->filename);
	ret = qcow2_snapshot_l1(q, t.s, &t.l1, err);
	if (ret)
		return ret;
	ret = qcow2_run(q, read_co, &t);
	free(t.l1);
	return ret ? err_set_errno(err, ret, "'%s': the machine's state cannot be read", n->filename) : 0;
}
