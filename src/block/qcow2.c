// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The qcow2 driver: opening with the backing chain, the way of a request, reads.
 * A request whose mapping is cached and is one run goes to the file (or the
 * backing node) on the caller's pages and completes by callback; all others run
 * as a coroutine. Requests in flight are listed with their guest clusters: one
 * that changes the mapping (exclusive) waits for all others there, and they for
 * it, so no cluster is freed or moved under a transfer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "block/qcow2.h"

/* Bytes of cached L2 tables: enough for 256 GiB with clusters of 64 KiB, as QEMU's. */
#define L2_CACHE_BYTES	     (32 * MIB)
#define REFBLOCK_CACHE_BYTES (1 * MIB)

/* ---- requests in flight --------------------------------------------------- */

static struct qcow2_io *io_conflict(struct qcow2 *q, const struct qcow2_io *io)
{
	struct qcow2_io *o;

	for (o = q->ios; o; o = o->next)
		if ((o->exclusive || io->exclusive) && o->first <= io->last && io->first <= o->last)
			return o;
	return NULL;
}

static void io_enter(struct qcow2 *q, struct qcow2_io *io)
{
	io->prev = NULL;
	io->next = q->ios;
	if (q->ios)
		q->ios->prev = io;
	q->ios = io;
}

static void io_leave(struct qcow2 *q, struct qcow2_io *io)
{
	*(io->prev ? &io->prev->next : &q->ios) = io->next;
	if (io->next)
		io->next->prev = io->prev;
	co_queue_wake_all(&io->waiters);
}

static struct qcow2_io *io_new(struct qcow2 *q, struct block_req *req)
{
	struct qcow2_io *io = q->free_ios;

	if (io)
		q->free_ios = io->next;
	else
		io = malloc(sizeof(*io));
	if (!io)
		return NULL;
	memset(io, 0, sizeof(*io));
	io->q = q;
	io->req = req;
	io->first = req->offset >> q->cluster_bits;
	io->last = (req->offset + req->len - 1) >> q->cluster_bits;
	return io;
}

static void io_free(struct qcow2 *q, struct qcow2_io *io)
{
	io->next = q->free_ios;
	q->free_ios = io;
}

static void io_end(struct qcow2_io *io, int ret)
{
	struct qcow2 *q = io->q;
	struct block_req *req = io->req;

	io_leave(q, io);
	io_free(q, io);
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
		n = block_iov_cut(cut, iov, niov, at, e.len);
		switch (e.kind) {
		case QCOW2_ZERO: block_iov_zero(cut, n); break;
		case QCOW2_UNALLOCATED: ret = block_read_backing(q->node, offset + at, cut, n, e.len); break;
		case QCOW2_DATA: ret = qcow2_file_iov(q, BLOCK_READ, e.host, cut, n, e.len); break;
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

	io->exclusive = false;
	if (io_conflict(q, io) || qcow2_lookup_cached(q, req->offset, req->len, &e) != 1 || e.len < req->len)
		return false;
	if (e.kind == QCOW2_DATA) {
		if (req->op == BLOCK_WRITE &&
		    (!(e.entry & QCOW2_ENTRY_COPIED) || q->corrupt || q->extended_l2 || !q->node->writeback ||
		     (req->flags & BLOCK_FUA) || qcow2_meta_has(q, e.host, e.len)))
			return false;
		io_enter(q, io);
		block_file_submit(q->file, req->op, false, false, e.host, req->len, req->iov, req->niov, file_io_done,
				  io);
		return true;
	}
	if (req->op == BLOCK_WRITE || e.kind == QCOW2_COMPRESSED)
		return false;
	if (e.kind == QCOW2_ZERO || !q->backing || req->offset >= block_size(q->backing)) {
		block_iov_zero(req->iov, req->niov);
		io_enter(q, io);
		io_end(io, 0);
		return true;
	}
	if (req->offset + req->len > block_size(q->backing))
		return false;
	io_enter(q, io);
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
	case BLOCK_WRITE: ret = qcow2_write_request(q, req); break;
	case BLOCK_WRITE_ZEROES: ret = qcow2_zero_request(q, req); break;
	default: ret = qcow2_discard_request(q, req); break;
	}
	return ret;
}

static void request_co(void *arg)
{
	struct qcow2_io *io = arg, *other;
	struct qcow2 *q = io->q;
	const struct block_req *req = io->req;
	const bool durable = req->op != BLOCK_READ && ((req->flags & BLOCK_FUA) || !q->node->writeback);
	int ret;

	io->exclusive = req->op != BLOCK_READ;
	while ((other = io_conflict(q, io)) != NULL) {
		co_queue_wait(&other->waiters);
		if ((req->op == BLOCK_READ || req->op == BLOCK_WRITE) && try_pass(q, io))
			return;
		io->exclusive = req->op != BLOCK_READ;
	}
	io_enter(q, io);
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
	if (!q->corrupt && !q->flush.held && !qcow2_is_dirty(q))
		block_file_submit(q->file, BLOCK_FLUSH, false, false, 0, 0, NULL, 0, flush_done, req);
	else if (co_spawn(flush_co, req))
		block_complete(q->node, req, -ENOMEM);
}

static void qcow2_submit(struct block_node *n, struct block_req *req)
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
		io_free(q, io);
		block_complete(n, req, -ENOMEM);
	}
}

/* ---- opening and closing --------------------------------------------------------- */

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

static int load_tables(struct qcow2 *q, struct err *err)
{
	const uint32_t covered = MAX(q->h.l1_size * BIT(q->l2_bits) / (q->cluster_size / q->entry_size), 1u);
	int ret;

	q->reftable_entries = (uint32_t)(((uint64_t)q->h.refcount_table_clusters << q->cluster_bits) / 8);
	ret = load_table(q, q->h.l1_table_offset, q->h.l1_size, &q->l1);
	if (!ret && !q->node->read_only)
		ret = load_table(q, q->h.refcount_table_offset, q->reftable_entries, &q->reftable);
	if (!ret)
		ret = qcow2_cache_init(&q->l2, (unsigned)MIN(MAX(L2_CACHE_BYTES >> q->cluster_bits, 16u), covered));
	if (!ret)
		ret = qcow2_cache_init(&q->refblocks, (unsigned)MAX(REFBLOCK_CACHE_BYTES >> q->cluster_bits, 8u));
	if (!ret && !q->node->read_only)
		ret = qcow2_meta_init(q);
	if (ret)
		return err_set_errno(err, ret, "Could not open '%s': its tables cannot be read", q->node->filename);
	q->l1_dirty_lo = q->reftable_dirty_lo = UINT32_MAX;
	q->free_hint = 1;
	return 0;
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

static void qcow2_free(struct qcow2 *q)
{
	struct qcow2_io *io;

	block_close(q->node->backing);
	q->node->backing = NULL;
	qcow2_cache_free(&q->l2);
	qcow2_cache_free(&q->refblocks);
	while ((io = q->free_ios) != NULL) {
		q->free_ios = io->next;
		free(io);
	}
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
	q->file = n->file;
	n->private_data = q;
	ret = qcow2_header_read(n->file, &q->h, n->filename, err);
	if (!ret)
		ret = qcow2_header_usable(&q->h, n->read_only, n->filename, err);
	if (!ret) {
		n->size = ALIGN_UP(q->h.size, 512);
		q->cluster_bits = q->h.cluster_bits;
		q->cluster_size = 1u << q->cluster_bits;
		q->extended_l2 = (q->h.incompatible & QCOW2_INCOMPAT_EXTENDED_L2) != 0;
		q->entry_size = q->extended_l2 ? 16 : 8;
		q->l2_bits = q->cluster_bits - (q->extended_l2 ? 4 : 3);
		ret = load_tables(q, err);
	}
	if (!ret)
		ret = block_open_backing(n, o, q->h.backing_file, q->h.backing_format, false, err);
	q->backing = n->backing;
	if (!ret)
		ret = clear_autoclear(q, err);
	if (ret)
		qcow2_free(q);
	return ret;
}

struct close_wait {
	struct qcow2 *q;
	bool done;
};

static void close_co(void *arg)
{
	struct close_wait *w = arg;
	int ret = 0;

	/* Twice: the first makes the mapping durable, which frees clusters. */
	for (int i = 0; i < 3 && !ret && qcow2_is_dirty(w->q); i++)
		ret = qcow2_flush_tables(w->q);
	if (ret)
		log_error("'%s': the tables could not be written: %s", w->q->node->filename, strerror(-ret));
	w->done = true;
}

static void qcow2_close(struct block_node *n)
{
	struct close_wait w = {.q = n->private_data};

	if (!n->read_only && !w.q->corrupt && qcow2_is_dirty(w.q) && co_spawn(close_co, &w) == 0)
		while (!w.done) {
			aio_flush(block_file_aio(n->file));
			if (!w.done)
				loop_run_once(n->loop, -1);
		}
	qcow2_free(w.q);
}

const struct block_driver block_qcow2_driver = {
    .name = "qcow2",
    .open = qcow2_open,
    .close = qcow2_close,
    .submit = qcow2_submit,
};
