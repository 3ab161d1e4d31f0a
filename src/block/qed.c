// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The QED driver: opening with repair, the way of a request, reads, closing. A
 * request whose mapping is in memory and is one run goes to the file (or the
 * backing node) on the caller's pages and completes by callback; all others run
 * as a coroutine. Requests in flight are listed with their guest clusters: one
 * that changes the mapping (exclusive) waits for all others there, and they for
 * it.
 */
#include "block/qed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/iov.h"
#include "base/log.h"
#include "base/util.h"
#include "block/image.h"

/* ---- requests in flight --------------------------------------------------- */

static struct qed_io *io_new(struct qed *q, struct block_req *req)
{
	struct qed_io *io = co_range_new(&q->ios);

	if (!io)
		return NULL;
	io->q = q;
	io->req = req;
	io->range.first = req->offset / q->h.cluster_size;
	io->range.last = (req->offset + req->len - 1) / q->h.cluster_size;
	return io;
}

static void io_end(struct qed_io *io, int ret)
{
	struct qed *q = io->q;
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

/* ---- the way of a request ----------------------------------------------------- */

/* (co) */
static int read_range(struct qed *q, const struct block_req *req)
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
		if (e.kind == QED_DATA)
			ret = block_file_wait(q->file, q->node->loop, BLOCK_READ, false, e.host, e.len, cut, n);
		else if (e.kind == QED_ZERO)
			iov_zero(cut, n, 0);
		else
			ret = block_read_backing(q->node, req->offset + at, cut, n, e.len);
	}
	free(cut);
	return ret;
}

/* True: the request is one run and was passed on. */
static bool try_pass(struct qed *q, struct qed_io *io)
{
	struct block_node *backing = q->node->backing;
	struct block_req *req = io->req;
	struct qed_extent e;

	io->range.exclusive = false;
	if (co_range_conflict(&q->ios, &io->range) || qed_lookup_cached(q, req->offset, req->len, &e) != 1 ||
	    e.len < req->len)
		return false;
	if (e.kind == QED_DATA) {
		co_range_take(&q->ios, &io->range);
		block_file_submit(q->file, req->op, (req->flags & BLOCK_FUA) || !q->node->writeback, false, e.host,
				  req->len, req->iov, req->niov, file_io_done, io);
		return true;
	}
	if (req->op == BLOCK_WRITE)
		return false;
	if (e.kind == QED_ZERO || !backing || req->offset >= block_size(backing)) {
		iov_zero(req->iov, req->niov, 0);
		co_range_take(&q->ios, &io->range);
		io_end(io, 0);
		return true;
	}
	if (req->offset + req->len > block_size(backing))
		return false;
	co_range_take(&q->ios, &io->range);
	io->sub = (struct block_req){.op = BLOCK_READ, .offset = req->offset, .len = req->len, .iov = req->iov};
	io->sub.niov = req->niov;
	io->sub.done = backing_io_done;
	io->sub.opaque = io;
	block_submit(backing, &io->sub);
	return true;
}

static void request_co(void *arg)
{
	struct qed_io *io = arg;
	struct co_range *other;
	struct qed *q = io->q;
	const struct block_req *req = io->req;
	int ret;

	io->range.exclusive = req->op != BLOCK_READ;
	while ((other = co_range_conflict(&q->ios, &io->range)) != NULL) {
		co_queue_wait(&other->waiters);
		if ((req->op == BLOCK_READ || req->op == BLOCK_WRITE) && try_pass(q, io))
			return;
		io->range.exclusive = req->op != BLOCK_READ;
	}
	co_range_take(&q->ios, &io->range);
	switch (req->op) {
	case BLOCK_READ: ret = read_range(q, req); break;
	case BLOCK_WRITE: ret = qed_write_request(q, req); break;
	case BLOCK_WRITE_ZEROES: ret = qed_zero_request(q, req); break;
	default: ret = qed_discard_request(q, req); break;
	}
	/* Entries are on their way to the disk when a request ends: a flush of the file covers them. */
	if (!ret && req->op != BLOCK_READ && ((req->flags & BLOCK_FUA) || !q->node->writeback))
		ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_FLUSH, 0, NULL, 0);
	io_end(io, ret);
}

static void flush_done(void *opaque, int ret)
{
	struct block_req *req = opaque;

	block_complete(req->driver[0], req, ret);
}

static void qed_submit(struct block_node *n, struct block_req *req)
{
	struct qed *q = n->private_data;
	struct qed_io *io;

	if (req->op == BLOCK_FLUSH) {
		req->driver[0] = n;
		block_file_submit(q->file, BLOCK_FLUSH, false, false, 0, 0, NULL, 0, flush_done, req);
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

/* ---- opening and closing ------------------------------------------------------- */

static void qed_free(struct qed *q)
{
	block_close(q->node->backing);
	q->node->backing = NULL;
	qed_tables_free(q);
	co_ranges_fini(&q->ios);
	free(q);
}

/* An image that was not closed is checked before it is written to. */
static int repair(struct qed *q, struct err *err)
{
	struct block_check c = {0};
	int ret = qed_check(q->node, BLOCK_FIX_ERRORS, &c, err);

	if (ret)
		return ret;
	log_info("'%s' was not closed by its last user: checked, %llu entries repaired%s", q->node->filename,
		 (unsigned long long)c.corruptions_fixed,
		 c.corruptions ? "; it has errors left that no repair can mend" : "");
	return 0;
}

static int prepare_writing(struct qed *q, const struct block_open *o, struct err *err)
{
	int ret = 0;

	if (q->node->read_only || o->check)
		return 0;
	if (q->h.autoclear) {
		ret = qed_header_set_features(q, q->h.features);
		if (!ret)
			ret = block_file_wait_buf(q->file, q->node->loop, BLOCK_FLUSH, 0, NULL, 0);
		if (ret)
			return err_set_errno(err, ret, "Could not open '%s': its header cannot be written",
					     o->filename);
	}
	return q->h.features & QED_F_NEED_CHECK ? repair(q, err) : 0;
}

static int qed_open(struct block_node *n, const struct block_open *o, struct err *err)
{
	struct qed *q = calloc(1, sizeof(*q));
	int ret;

	if (!q)
		return err_set(err, -ENOMEM, "out of memory");
	q->node = n;
	q->file = n->file;
	q->ios.size = sizeof(struct qed_io);
	n->private_data = q;
	ret = qed_header_read(n->file, &q->h, n->filename, err);
	if (!ret) {
		n->size = q->h.image_size;
		q->table_bytes = (uint64_t)q->h.table_size * q->h.cluster_size;
		q->span = q->table_bytes / 8 * q->h.cluster_size;
		q->file_end = ALIGN_DOWN(block_file_size(n->file), q->h.cluster_size);
		q->grown = q->file_end == block_file_size(n->file);
		ret = qed_tables_init(q);
		if (ret)
			err_set_errno(err, ret, "Could not open '%s': its L1 table cannot be read", n->filename);
	}
	if (!ret)
		ret = block_open_backing(n, o, q->h.backing_file, q->h.features & QED_F_BACKING_RAW ? "raw" : "", true,
					 err);
	if (!ret)
		ret = prepare_writing(q, o, err);
	if (ret)
		qed_free(q);
	return ret;
}

static void qed_close(struct block_node *n)
{
	struct qed *q = n->private_data;
	int ret;

	/* The flag goes after everything that it guards is durable. */
	if (q->need_check) {
		ret = block_file_wait_buf(q->file, n->loop, BLOCK_FLUSH, 0, NULL, 0);
		if (!ret)
			ret = qed_header_set_features(q, q->h.features & ~(uint64_t)QED_F_NEED_CHECK);
		if (ret)
			log_error("'%s': it could not be marked as closed: %s", n->filename, strerror(-ret));
	}
	qed_free(q);
}

/* ---- whole images ------------------------------------------------------------------ */

static int qed_truncate(struct block_node *n, uint64_t size, enum block_prealloc p, struct err *err)
{
	struct qed *q = n->private_data;
	const uint64_t entries = q->table_bytes / 8, old = q->h.image_size;
	uint8_t raw[8];
	int ret;

	if (p != BLOCK_PREALLOC_OFF)
		return err_set(err, -ENOTSUP, "'%s': Unsupported preallocation mode for qed", n->filename);
	if (size % 512 || (__uint128_t)entries * entries * q->h.cluster_size < size)
		return err_set(err, -EINVAL, "'%s': Invalid image size specified", n->filename);
	if (size < old)
		return err_set(err, -ENOTSUP, "'%s': Shrinking images is currently not supported", n->filename);
	st64le(raw, size);
	ret = block_file_wait_buf(q->file, n->loop, BLOCK_WRITE, QED_H_IMAGE_SIZE, raw, 8);
	if (!ret)
		ret = block_file_wait_buf(q->file, n->loop, BLOCK_FLUSH, 0, NULL, 0);
	if (ret)
		return err_set_errno(err, ret, "'%s': the header could not be written", n->filename);
	q->h.image_size = n->size = size;
	qed_tables_free(q);
	q->l1 = (struct qed_table){0};
	ret = qed_tables_init(q);
	return ret ? err_set_errno(err, ret, "'%s': the L1 table cannot be read", n->filename) : 0;
}

static int qed_change_backing(struct block_node *n, const char *file, const char *format, struct err *err)
{
	return qed_header_set_backing(n->private_data, file, format, err);
}

static int qed_map(struct block_node *n, uint64_t offset, uint64_t len, struct block_extent *e)
{
	struct qed *q = n->private_data;
	struct qed_extent x;
	int ret = qed_lookup(q, offset, len, &x);

	if (ret)
		return ret;
	*e = (struct block_extent){.len = x.len, .node = n, .present = x.kind != QED_UNALLOCATED};
	e->data = e->has_host = x.kind == QED_DATA;
	e->zero = !e->data;
	e->host = x.host;
	return 0;
}

static void qed_info(const struct block_node *n, struct block_image_info *info)
{
	const struct qed *q = n->private_data;

	info->cluster_size = q->h.cluster_size;
	info->dirty = (q->h.features & QED_F_NEED_CHECK) != 0;
	info->backing_file = q->h.backing_file;
	info->backing_format = q->h.features & QED_F_BACKING_RAW ? "raw" : "";
}

const struct block_driver block_qed_driver = {
    .name = "qed",
    .open = qed_open,
    .close = qed_close,
    .submit = qed_submit,
    .truncate = qed_truncate,
    .change_backing = qed_change_backing,
    .check = qed_check,
    .map = qed_map,
    .info = qed_info,
};
