// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Internal snapshots. The table has entries of varying length: where the
 * snapshot's L1 table is, times and sizes, then extra data (its end may be newer
 * than we are and is kept), ID and name. Clusters that a snapshot shares with the
 * disk have refcounts above 1.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "block/qcow2.h"

#define ENTRY_SIZE 40u /* what every entry begins with */
#define WINDOW	   (256u * 1024)

/* Reads the table piece by piece: its length is known only at its end. */
struct reader {
	struct qcow2 *q;
	uint8_t *buf;
	uint64_t at; /* file offset of buf[0] */
	size_t have;
};

/* `len` bytes of the file at `offset`, NULL on errors (*ret). */
static const uint8_t *reader_get(struct reader *r, uint64_t offset, size_t len, int *ret)
{
	if (offset >= r->at && offset + len <= r->at + r->have)
		return r->buf + (offset - r->at);
	*ret = block_file_pread(r->q->file, r->buf, WINDOW, offset);
	r->at = offset;
	r->have = *ret ? 0 : WINDOW;
	return *ret ? NULL : r->buf;
}

static char *copy_text(const uint8_t *from, size_t len)
{
	char *s = malloc(len + 1);

	if (s) {
		memcpy(s, from, len);
		s[len] = 0;
	}
	return s;
}

/* One entry, `e` being all of it. */
static int parse(struct qcow2 *q, struct qcow2_snapshot *s, const uint8_t *e)
{
	const uint32_t extra = ld32be(e + 36), id = ld16be(e + 12), name = ld16be(e + 14);
	const uint8_t *x = e + ENTRY_SIZE;

	s->l1_offset = ld64be(e);
	s->l1_size = ld32be(e + 8);
	s->pub.date_sec = ld32be(e + 16);
	s->pub.date_nsec = ld32be(e + 20);
	s->pub.vm_clock_nsec = ld64be(e + 24);
	s->pub.vm_state_size = extra >= 8 ? ld64be(x) : ld32be(e + 32);
	s->pub.disk_size = extra >= 16 ? ld64be(x + 8) : q->h.size;
	s->pub.icount = extra >= 24 ? ld64be(x + 16) : UINT64_MAX;
	s->extra_size = extra;
	s->extra = extra ? (uint8_t *)copy_text(x, extra) : NULL;
	s->pub.id = copy_text(x + extra, id);
	s->pub.name = copy_text(x + extra + id, name);
	return s->pub.id && s->pub.name && (s->extra || !extra) ? 0 : -ENOMEM;
}

static int load_one(struct reader *r, uint64_t *offset)
{
	struct qcow2 *q = r->q;
	const uint8_t *e;
	uint32_t extra;
	size_t len;
	int ret = 0;

	e = reader_get(r, *offset, ENTRY_SIZE, &ret);
	if (!e)
		return ret;
	extra = ld32be(e + 36);
	if (extra > QCOW2_MAX_SNAPSHOT_EXTRA || *offset >= block_file_size(q->file) ||
	    *offset - q->h.snapshots_offset > QCOW2_MAX_SNAPSHOTS * 1024ull)
		return -EINVAL;
	len = ENTRY_SIZE + extra + ld16be(e + 12) + ld16be(e + 14);
	e = reader_get(r, *offset, len, &ret);
	if (!e)
		return ret;
	ret = parse(q, &q->snapshots[q->nr_snapshots++], e);
	*offset += ALIGN_UP(len, 8);
	return ret;
}

int qcow2_snapshots_load(struct qcow2 *q)
{
	struct reader r = {.q = q};
	uint64_t offset = q->h.snapshots_offset;
	int ret = 0;

	if (!q->h.nb_snapshots)
		return 0;
	r.buf = malloc(WINDOW);
	q->snapshots = calloc(q->h.nb_snapshots, sizeof(q->snapshots[0]));
	if (!r.buf || !q->snapshots)
		ret = -ENOMEM;
	for (uint32_t i = 0; i < q->h.nb_snapshots && !ret; i++)
		ret = load_one(&r, &offset);
	q->snapshots_bytes = offset - q->h.snapshots_offset;
	free(r.buf);
	return ret;
}

void qcow2_snapshot_free(struct qcow2_snapshot *s)
{
	free(s->pub.id);
	free(s->pub.name);
	free(s->extra);
}

void qcow2_snapshots_free(struct qcow2 *q)
{
	for (uint32_t i = 0; i < q->nr_snapshots; i++)
		qcow2_snapshot_free(&q->snapshots[i]);
	free(q->snapshots);
	free(q->snapshot_list);
	q->snapshots = NULL;
	q->snapshot_list = NULL;
	q->nr_snapshots = 0;
}

struct qcow2_snapshot *qcow2_snapshot_find(struct qcow2 *q, const char *which)
{
	for (uint32_t i = 0; i < q->nr_snapshots; i++)
		if (strcmp(q->snapshots[i].pub.id, which) == 0)
			return &q->snapshots[i];
	for (uint32_t i = 0; i < q->nr_snapshots; i++)
		if (strcmp(q->snapshots[i].pub.name, which) == 0)
			return &q->snapshots[i];
	return NULL;
}

int qcow2_snapshot_list(struct block_node *n, const struct block_snapshot **out, unsigned *nr, struct err *err)
{
	struct qcow2 *q = n->private_data;

	free(q->snapshot_list);
	q->snapshot_list = calloc(q->nr_snapshots ? q->nr_snapshots : 1, sizeof(q->snapshot_list[0]));
	if (!q->snapshot_list)
		return err_set(err, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < q->nr_snapshots; i++)
		q->snapshot_list[i] = q->snapshots[i].pub;
	*out = q->snapshot_list;
	*nr = q->nr_snapshots;
	return 0;
}
