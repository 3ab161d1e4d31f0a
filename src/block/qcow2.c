// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The qcow2 driver: the way of a request, and reads.
 * A request whose mapping is cached and is one run goes to the file (or the
 * backing node) on the caller's pages and completes by callback; all others run
 * as a coroutine. Requests in flight are listed with their guest clusters: one
 * that changes the mapping (exclusive) waits for all others there, and they for
 * it, so no cluster is freed or moved under a transfer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "base/iov.h"
#include "block/qcow2.h"

/* ---- requests in flight --------------------------------------------------- */

static struct qcow2_io *io_new(struct qcow2 *q, struct block_req *req)
{
	struct qcow2_io *io = co_range_new(&q->ios);

	if (!io)
		return NULL;
	io->q = q;
	io->req = req;
	io->range.first = req->offset >> q->cluster_bits;
	io->range.last = (req->offset + req->len - 1) >> q->cluster_bits;
	return io;
}

static void io_end(struct qcow2_io *io, int ret)
{
	struct qcow2 *q = io->q;
	struct block_req *req = io->req;

	co_range_give(&q->ios, &io->range);
	co_range_free(&q->ios, &io->range);
	block_complete(q->node, req, ret);
}

static void file_io_done(void *opaque, int ret)
{
	io_end(opaque, ret);
}

static void backing_io_done(struct block_req *sub)
{
	io_end(sub->opaque, sub->result);
}

/* ---- reads ------------------------------------------------------------------ */

/* (co) Leaves the cluster's contents in q->inflated. */
static int load_compressed(struct qcow2 *q, uint64_t entry, uint8_t *out)
{
	uint64_t offset;
	uint32_t len;
	uint8_t *in;
	int ret;

	if (q->inflated && q->inflated_entry == entry) {
		memcpy(out, q->inflated, q->cluster_size);
		return 0;
	}
	qcow2_compressed_range(q, entry, &offset, &len);
	in = malloc(len);
	if (!in)
		return -ENOMEM;
	ret = qcow2_file_io(q, BLOCK_READ, offset, in, len);
	if (!ret)
		ret = qcow2_inflate(q->h.compression_type, in, len, out, q->cluster_size);
	free(in);
	if (!q->inflated)
		q->inflated = malloc(q->cluster_size);
	if (!ret && q->inflated) {
		memcpy(q->inflated, out, q->cluster_size);
		q->inflated_entry = entry;
	}
	return ret;
}

static int read_compressed(struct qcow2 *q, uint64_t offset, uint64_t entry, const struct iovec *iov, int niov)
{
	const uint8_t *from;
	uint8_t *buf = malloc(q->cluster_size);
	int ret;

	if (!buf)
		return -ENOMEM;
	ret = load_compressed(q, entry, buf);
	from = buf + (offset & (q->cluster_size - 1));
	for (int i = 0; i < niov && !ret; i++) {
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
		from += iov[i].iov_len;
	}
	free(buf);
	return ret;
}

int qcow2_read_range(struct qcow2 *q, uint64_t offset, const struct iovec *iov, int niov, uint64_t len)
{
	struct iovec *cut = malloc((size_t)niov * sizeof(*cut));
	struct qcow2_extent e;
	uint64_t at = 0;
	int ret = cut ? 0 : -ENOMEM;

	while (at < len && !ret) {
		int n;
		ret = qcow2_lookup(q, offset + at, len - at, &e);
		if (ret)
			break;
		n = iov_cut(cut, iov, niov, at, e.len);
		switch (e.kind) {
		case QCOW2_ZERO: iov_zero(cut, n, 0); break;
		case QCOW2_UNALLOCATED: ret = block_read_backing(q->node, offset + at, cut, n, e.len); break;
		case QCOW2_DATA: ret = qcow2_data_iov(q, BLOCK_READ, e.host, cut, n, e.len); break;
		case QCOW2_COMPRESSED: ret = read_compressed(q, offset + at, e.entry, cut, n); break;
		}
		at += e.len;
	}
	free(cut);
	return ret;
}

/* ---- the way of a request ------------------------------------------------------ */

/* True: the request is one run and was passed on. */
static bool try_pass(struct qcow2 *q, struct qcow2_io *io)
{
	struct block_req *req = io->req;
	struct qcow2_extent e;

	io->range.exclusive = false;
	if (co_range_conflict(&q->ios, &io->range) || qcow2_lookup_cached(q, req->offset, req->len, &e) != 1 ||
	    e.len < req->len)
		return false;
	if (e.kind == QCOW2_DATA) {
		if (req->op == BLOCK_WRITE &&
		    ((req->flags & BLOCK_COMPRESS) || !(e.entry & QCOW2_ENTRY_COPIED) || q->corrupt ||
		     !q->node->writeback || (req->flags & BLOCK_FUA) || qcow2_hits_meta(q, e.host, e.len)))
			return false;
		co_range_take(&q->ios, &io->range);
		block_file_submit(q->data, req->op, false, false, e.host, req->len, req->iov, req->niov, file_io_done,
				  io);
		return true;
	}
	if (req->op == BLOCK_WRITE || e.kind == QCOW2_COMPRESSED)
		return false;
	if (e.kind == QCOW2_ZERO || !q->backing || req->offset >= block_size(q->backing)) {
		iov_zero(req->iov, req->niov, 0);
		co_range_take(&q->ios, &io->range);
		io_end(io, 0);
		return true;
	}
	if (req->offset + req->len > block_size(q->backing))
		return false;
	co_range_take(&q->ios, &io->range);
	io->sub = (struct block_req){.op = BLOCK_READ, .offset = req->offset, .len = req->len, .iov = req->iov};
	io->sub.niov = req->niov;
	io->sub.done = backing_io_done;
	io->sub.opaque = io;
	block_submit(q->backing, &io->sub);
	return true;
}

static int do_exclusive(struct qcow2 *q, const struct block_req *req)
{
	int ret;

	if (q->corrupt)
		return -EIO;
	switch (req->op) {
	case BLOCK_WRITE:
		ret = req->flags & BLOCK_COMPRESS ? qcow2_pack_request(q, req) : qcow2_write_request(q, req);
		break;
	case BLOCK_WRITE_ZEROES: ret = qcow2_zero_request(q, req); break;
	default: ret = qcow2_discard_request(q, req); break;
	}
	return ret;
}

static void request_co(void *arg)
{
	struct qcow2_io *io = arg;
	struct co_range *other;
	struct qcow2 *q = io->q;
	const struct block_req *req = io->req;
	const bool durable = req->op != BLOCK_READ && ((req->flags & BLOCK_FUA) || !q->node->writeback);
	int ret;

	io->range.exclusive = req->op != BLOCK_READ;
	while ((other = co_range_conflict(&q->ios, &io->range)) != NULL) {
		co_queue_wait(&other->waiters);
		if ((req->op == BLOCK_READ || req->op == BLOCK_WRITE) && try_pass(q, io))
			return;
		io->range.exclusive = req->op != BLOCK_READ;
	}
	co_range_take(&q->ios, &io->range);
	if (req->op == BLOCK_READ)
		ret = qcow2_read_range(q, req->offset, req->iov, req->niov, req->len);
	else
		ret = do_exclusive(q, req);
	if (!ret && durable)
		ret = qcow2_flush_tables(q);
	io_end(io, ret);
}

static void flush_co(void *arg)
{
	struct block_req *req = arg;
	struct qcow2 *q = req->driver[0];
	int ret = q->corrupt ? -EIO : qcow2_flush_tables(q);

	block_complete(q->node, req, ret);
}

static void flush_done(void *opaque, int ret)
{
	struct block_req *req = opaque;
	struct qcow2 *q = req->driver[0];

	block_complete(q->node, req, ret);
}

static void submit_flush(struct qcow2 *q, struct block_req *req)
{
	req->driver[0] = q;
	if (!q->corrupt && !q->flush.held && !qcow2_is_dirty(q) && q->data == q->file)
		block_file_submit(q->file, BLOCK_FLUSH, false, false, 0, 0, NULL, 0, flush_done, req);
	else if (co_spawn(flush_co, req))
		block_complete(q->node, req, -ENOMEM);
}

void qcow2_submit(struct block_node *n, struct block_req *req)
{
	struct qcow2 *q = n->private_data;
	struct qcow2_io *io;

	if (req->op == BLOCK_FLUSH) {
		submit_flush(q, req);
		return;
	}
	io = io_new(q, req);
	if (!io) {
		block_complete(n, req, -ENOMEM);
		return;
	}
	if ((req->op == BLOCK_READ || req->op == BLOCK_WRITE) && try_pass(q, io))
		return;
	if (co_spawn(request_co, io)) {
		co_range_free(&q->ios, &io->range);
		block_complete(n, req, -ENOMEM);
	}
}
