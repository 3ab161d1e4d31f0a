// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Changing requests of QED. New clusters come from the end of the file. The order
 * of an allocating write: the L2 table exists and is named by the L1 table; the
 * data is written, with what the backing file has around it; then the entry. A
 * crash between may leave an entry without its table or data on disk:
 *
 *   without a backing file the need-check flag is on disk before the first
 *   allocation, and whoever opens the image next checks it;
 *   with one, data that was copied up would be lost, so it is flushed before the
 *   entry is written, and no check is needed.
 *
 * (co): with the request's clusters held exclusively.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "base/iov.h"
#include "block/qed.h"

static int file_iov(struct qed *q, enum block_op op, uint64_t offset, const struct iovec *iov, int niov, uint64_t len)
{
	return block_file_wait(q->file, q->node->loop, op, true, offset, len, iov, niov);
}

static int need_check(struct qed *q)
{
	int ret = 0;

	while (q->l1_busy)
		co_queue_wait(&q->l1_queue);
	if (q->node->backing || (q->h.features & QED_F_NEED_CHECK))
		return 0;
	q->l1_busy = true;
	ret = qed_header_set_features(q, q->h.features | QED_F_NEED_CHECK);
	q->need_check = !ret;
	if (!ret)
		ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_FLUSH, 0, NULL, 0);
	q->l1_busy = false;
	co_queue_wake_all(&q->l1_queue);
	return ret;
}

/* The bytes of the backing chain around a write, so that whole clusters can be written. */
static int load_edge(struct qed *q, uint64_t offset, uint64_t len, struct iovec *v)
{
	struct iovec iov;

	v->iov_len = len;
	v->iov_base = NULL;
	if (!len)
		return 0;
	v->iov_base = aligned_alloc(4096, ALIGN_UP(len, 4096));
	iov = *v;
	return v->iov_base ? block_read_backing(q->node, offset, &iov, 1, len) : -ENOMEM;
}

/*
 * Data (iov NULL: zeros) into [offset, offset + len), where no cluster has data; `kind`: what is there. The clusters
 * are new ones of zeros, so only what the backing file adds has to be written beside the data.
 */
static int write_new(struct qed *q, enum qed_kind kind, uint64_t offset, uint64_t len, const struct iovec *iov,
		     int niov)
{
	const uint64_t mask = q->h.cluster_size - 1, lo = offset & ~mask, hi = (offset + len + mask) & ~mask;
	const uint64_t backed = kind == QED_UNALLOCATED && q->node->backing ? block_size(q->node->backing) : 0;
	const uint64_t head = lo < backed ? offset - lo : 0, end = offset + len;
	const uint64_t tail = end < backed ? MIN(hi, backed) - end : 0;
	struct iovec *v = calloc((size_t)niov + 3, sizeof(*v)), edge[2] = {{0}, {0}};
	uint64_t host = 0;
	int n = 0, ret = v ? need_check(q) : -ENOMEM;

	if (!ret)
		ret = load_edge(q, lo, head, &edge[0]);
	if (!ret)
		ret = load_edge(q, end, tail, &edge[1]);
	if (!ret)
		ret = qed_make_l2(q, offset, len);
	if (!ret)
		ret = qed_grow(q, hi - lo, &host);
	if (!ret && head)
		v[n++] = edge[0];
	for (int i = 0; i < niov && !ret; i++)
		v[n++] = iov[i];
	if (!ret && !iov && head)
		ret = file_iov(q, BLOCK_WRITE, host, &edge[0], 1, head);
	if (tail)
		v[n++] = edge[1];
	if (!ret && iov)
		ret = file_iov(q, BLOCK_WRITE, host + (offset - lo) - head, v, n, head + len + tail);
	else if (!ret && tail)
		ret = file_iov(q, BLOCK_WRITE, host + (end - lo), &edge[1], 1, tail);
	if (!ret && q->node->backing)
		ret = file_iov(q, BLOCK_FLUSH, 0, NULL, 0, 0);
	if (ret && host)
		qed_ungrow(q, host, hi - lo);
	else if (!ret)
		ret = qed_set_entries(q, lo, (hi - lo) / q->h.cluster_size, host);
	free(edge[0].iov_base);
	free(edge[1].iov_base);
	free(v);
	return ret;
}

/* The run at `at` of a request; runs without data never begin or end inside a cluster that has some. */
int qed_write_request(struct qed *q, const struct block_req *req)
{
	struct iovec *cut = malloc((size_t)req->niov * sizeof(*cut));
	struct qed_extent e;
	int ret = cut ? 0 : -ENOMEM;

	for (uint64_t at = 0; at < req->len && !ret; at += e.len) {
		int n;
		ret = qed_lookup(q, req->offset + at, req->len - at, &e);
		if (ret)
			break;
		n = iov_cut(cut, req->iov, req->niov, at, e.len);
		ret = e.kind == QED_DATA ? file_iov(q, BLOCK_WRITE, e.host, cut, n, e.len)
					 : write_new(q, e.kind, req->offset + at, e.len, cut, n);
	}
	free(cut);
	return ret;
}

/* Zeros where there is no data: whole clusters become zero clusters; nothing to do where zeros are read already. */
static int zero_run(struct qed *q, uint64_t offset, uint64_t len, enum qed_kind kind)
{
	const uint64_t cs = q->h.cluster_size, end = offset + len, size = q->node->size;
	const uint64_t lo = ALIGN_UP(offset, cs), hi = end == size ? ALIGN_UP(end, cs) : ALIGN_DOWN(end, cs);
	int ret = 0;

	if (kind == QED_ZERO || !q->node->backing)
		return 0;
	if (lo >= hi)
		return write_new(q, kind, offset, len, NULL, 0);
	if (offset < lo)
		ret = write_new(q, kind, offset, lo - offset, NULL, 0);
	if (!ret)
		ret = qed_make_l2(q, lo, hi - lo);
	if (!ret)
		ret = qed_set_entries(q, lo, (hi - lo) / cs, QED_ENTRY_ZERO);
	if (!ret && hi < end)
		ret = write_new(q, kind, hi, end - hi, NULL, 0);
	return ret;
}

int qed_zero_request(struct qed *q, const struct block_req *req)
{
	struct qed_extent e;
	int ret = 0;

	for (uint64_t at = 0; at < req->len && !ret; at += e.len) {
		ret = qed_lookup(q, req->offset + at, req->len - at, &e);
		if (ret)
			break;
		ret = e.kind == QED_DATA ? block_file_wait(q->file, q->node->loop, BLOCK_WRITE_ZEROES,
							   (req->flags & BLOCK_MAY_UNMAP) != 0, e.host, e.len, NULL, 0)
					 : zero_run(q, req->offset + at, e.len, e.kind);
	}
	return ret;
}

/* The format cannot give clusters back: their space on the host is freed and they read as zeros. */
int qed_discard_request(struct qed *q, const struct block_req *req)
{
	struct qed_extent e;
	int ret = 0;

	for (uint64_t at = 0; at < req->len && !ret; at += e.len) {
		ret = qed_lookup(q, req->offset + at, req->len - at, &e);
		if (!ret && e.kind == QED_DATA)
			ret = file_iov(q, BLOCK_DISCARD, e.host, NULL, 0, e.len);
	}
	return ret;
}
