// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Operations on a host file: zero copy where the host allows it. An operation is
 * a small state machine whose steps are aio requests:
 *
 *   read, write        the caller's pages, continued after short transfers; past
 *                      the end of the file reads give zeros
 *   bounced read/write under O_DIRECT, when address, offset or length is not
 *                      aligned: pieces of at most BOUNCE_MAX through a buffer, a
 *                      write reading the edges of its blocks first
 *   write zeroes       hole, zero range or BLKZEROOUT, else written zeros
 *   flush              fdatasync, unless nothing was written since the last
 *
 * Under O_DIRECT a read-modify-write must not meet another write to the same
 * block, so modifications are tracked and conflicting ones wait (conflicts()).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/util.h"
#include "base/iov.h"
#include "block/file.h"

#define BOUNCE_MAX (1u * MIB)
/* From here on io_uring copies between page cache and guest in its workers: in the loop's thread a batch of
 * such requests would keep timers waiting for tens of milliseconds. */
#define SLOW_COPY (256 * KIB)

struct file_op {
	struct aio_req aio;
	struct block_file *f;
	enum block_op op;
	bool fua, may_unmap;
	bool bounced; /* pieces go through `bounce` */
	bool rmw;     /* not a multiple of whole blocks */
	bool loaded;  /* the bounce buffer holds the blocks of this piece */
	uint64_t offset, len, progress;
	const struct iovec *iov; /* the caller's; NULL: zeros */
	int niov;
	struct iovec *slice; /* the rest of iov after a short transfer */
	uint8_t *bounce;
	size_t piece;	    /* caller's bytes in this piece */
	uint64_t flush_gen; /* write_gen when the fdatasync began */
	void (*done)(void *opaque, int ret);
	void *opaque;
	struct iovec one;
	struct file_op *next, *prev;
};

static void op_step(struct file_op *op);
static void op_start(struct file_op *op);

static void submit(struct block_file *f, struct aio_req *req)
{
	if (f->proto)
		f->proto->submit(f, req);
	else
		aio_submit(f->aio, req);
}

/* ---- buffers ------------------------------------------------------------ */

/* Point the aio at what is left of the caller's iov, at most IOV_MAX entries. */
static int op_set_iov(struct file_op *op)
{
	uint64_t skip = op->progress;
	int first = 0, n;

	if (skip == 0 && op->niov <= IOV_MAX) {
		op->aio.iov = op->iov;
		op->aio.niov = op->niov;
		return 0;
	}
	while (skip >= op->iov[first].iov_len)
		skip -= op->iov[first++].iov_len;
	n = MIN(op->niov - first, IOV_MAX);
	if (!op->slice)
		op->slice = malloc((size_t)MIN(op->niov, IOV_MAX) * sizeof(*op->slice));
	if (!op->slice)
		return -ENOMEM;
	memcpy(op->slice, op->iov + first, (size_t)n * sizeof(*op->slice));
	op->slice[0].iov_base = (uint8_t *)op->slice[0].iov_base + skip;
	op->slice[0].iov_len -= (size_t)skip;
	op->aio.iov = op->slice;
	op->aio.niov = n;
	return 0;
}

static bool op_is_aligned(const struct file_op *op)
{
	const struct block_file *f = op->f;

	if ((op->offset | op->len) & (f->align - 1))
		return false;
	for (int i = 0; i < op->niov; i++)
		if (((uintptr_t)op->iov[i].iov_base & (f->mem_align - 1)) || (op->iov[i].iov_len & (f->align - 1)))
			return false;
	return true;
}

/* ---- tracking of modifications under O_DIRECT ---------------------------- */

static bool overlaps(const struct file_op *a, const struct file_op *b)
{
	const uint64_t mask = a->f->align - 1;
	const uint64_t a_end = (a->offset + a->len + mask) & ~mask, b_end = (b->offset + b->len + mask) & ~mask;

	return (a->offset & ~mask) < b_end && (b->offset & ~mask) < a_end;
}

/* Must `op` wait for one in flight, or for one that already waits (`before` op)? */
static bool conflicts(const struct file_op *op, const struct file_op *before)
{
	const struct file_op *o;

	for (o = op->f->tracked; o; o = o->next)
		if ((o->rmw || op->rmw) && overlaps(o, op))
			return true;
	for (o = op->f->waiting; o && o != before; o = o->next)
		if ((o->rmw || op->rmw) && overlaps(o, op))
			return true;
	return false;
}

static bool op_is_tracked(const struct file_op *op)
{
	return op->f->direct && op->op != BLOCK_READ && op->op != BLOCK_FLUSH;
}

static void track(struct file_op *op)
{
	struct block_file *f = op->f;

	op->prev = NULL;
	op->next = f->tracked;
	if (f->tracked)
		f->tracked->prev = op;
	f->tracked = op;
}

static void untrack(struct file_op *op)
{
	struct block_file *f = op->f;

	if (op->prev)
		op->prev->next = op->next;
	else
		f->tracked = op->next;
	if (op->next)
		op->next->prev = op->prev;
}

/* Start every waiting operation that conflicts with nothing any more. */
static void wake_waiting(struct block_file *f)
{
	struct file_op **p = &f->waiting, *op;

	while ((op = *p) != NULL) {
		if (conflicts(op, op)) {
			p = &op->next;
			continue;
		}
		*p = op->next;
		if (!op->next)
			f->waiting_tail = p;
		track(op);
		op_start(op);
		p = &f->waiting; /* its completion may have changed the list */
	}
}

/* ---- life of an operation ------------------------------------------------ */

static struct file_op *op_new(struct block_file *f)
{
	struct file_op *op = f->free_ops;

	if (op)
		f->free_ops = op->next;
	else
		op = malloc(sizeof(*op));
	if (op)
		memset(op, 0, sizeof(*op));
	return op;
}

void block_file_free_ops(struct block_file *f)
{
	struct file_op *op;

	while ((op = f->free_ops) != NULL) {
		f->free_ops = op->next;
		free(op);
	}
}

static void op_finish(struct file_op *op, int ret)
{
	struct block_file *f = op->f;
	void (*done)(void *, int) = op->done;
	void *opaque = op->opaque;
	const bool tracked = op_is_tracked(op);

	if (op->op != BLOCK_READ && op->op != BLOCK_FLUSH && !op->flush_gen)
		f->write_gen++;
	if (tracked)
		untrack(op);
	free(op->slice);
	free(op->bounce);
	op->next = f->free_ops;
	f->free_ops = op;
	if (tracked && f->waiting)
		wake_waiting(f);
	done(opaque, ret);
}

static void sync_done(struct aio_req *aio)
{
	struct file_op *op = container_of(aio, struct file_op, aio);
	struct block_file *f = op->f;

	if (aio->result < 0 && !f->direct)
		f->flush_error = (int)aio->result;
	if (aio->result >= 0 && op->flush_gen > f->flushed_gen)
		f->flushed_gen = op->flush_gen;
	op_finish(op, aio->result < 0 ? (int)aio->result : 0);
}

static void op_sync(struct file_op *op)
{
	struct block_file *f = op->f;

	if (op->op != BLOCK_FLUSH)
		f->write_gen++; /* the write that this makes durable */
	if (f->flush_error || f->no_flush || f->flushed_gen == f->write_gen) {
		op_finish(op, f->no_flush ? 0 : f->flush_error);
		return;
	}
	op->flush_gen = f->write_gen;
	op->aio.op = AIO_FDATASYNC;
	op->aio.done = sync_done;
	submit(f, &op->aio);
}

/* The data is with the host; make it durable if asked. */
static void op_written(struct file_op *op)
{
	if (op->fua && op->op != BLOCK_READ)
		op_sync(op);
	else
		op_finish(op, 0);
}

/* ---- plain transfers ------------------------------------------------------ */

static void plain_done(struct aio_req *aio)
{
	struct file_op *op = container_of(aio, struct file_op, aio);
	const int64_t n = aio->result;

	if (n < 0) {
		op_finish(op, (int)n);
		return;
	}
	op->progress += (uint64_t)n;
	if (op->op == BLOCK_READ && op->progress < op->len && (n == 0 || ((uint64_t)n & (op->f->align - 1)))) {
		iov_zero(op->iov, op->niov, op->progress); /* the end of the file */
		op->progress = op->len;
	}
	if (op->progress >= op->len)
		op_written(op);
	else if (n == 0)
		op_finish(op, -EIO); /* a write that makes no progress */
	else
		op_step(op);
}

/* ---- bounced transfers ---------------------------------------------------- */

static void bounce_submit(struct file_op *op, enum aio_op what)
{
	const uint64_t mask = op->f->align - 1, at = op->offset + op->progress;
	const uint64_t lo = at & ~mask, hi = (at + op->piece + mask) & ~mask;

	op->one.iov_base = op->bounce;
	op->one.iov_len = (size_t)(hi - lo);
	op->aio.op = what;
	op->aio.iov = &op->one;
	op->aio.niov = 1;
	op->aio.offset = lo;
	submit(op->f, &op->aio);
}

static void bounce_done(struct aio_req *aio)
{
	struct file_op *op = container_of(aio, struct file_op, aio);
	const size_t head = (size_t)((op->offset + op->progress) & (op->f->align - 1));
	const size_t size = op->one.iov_len;

	if (aio->result < 0) {
		op_finish(op, (int)aio->result);
		return;
	}
	if (aio->op == AIO_READV) {
		if ((size_t)aio->result < size)
			memset(op->bounce + aio->result, 0, size - (size_t)aio->result);
		if (op->op == BLOCK_READ)
			iov_write(op->iov, op->niov, op->progress, op->bounce + head, op->piece);
		else
			op->loaded = true;
	} else if ((size_t)aio->result < size) {
		op_finish(op, -EIO);
		return;
	}
	if (op->op == BLOCK_READ || aio->op == AIO_WRITEV) {
		op->progress += op->piece;
		op->loaded = false;
	}
	op_step(op);
}

static void bounce_step(struct file_op *op)
{
	const uint64_t mask = op->f->align - 1, at = op->offset + op->progress;
	const size_t head = (size_t)(at & mask);
	size_t n = (size_t)MIN(op->len - op->progress, (uint64_t)BOUNCE_MAX - head);

	if (n < op->len - op->progress)
		n -= (head + n) & mask; /* further pieces begin on a block */
	op->piece = n;
	if (!op->bounce) {
		size_t size = (size_t)((head + MIN(op->len, BOUNCE_MAX) + 2 * mask + 1) & ~mask);
		op->bounce = aligned_alloc(MAX(op->f->align, 4096u), ALIGN_UP(size, MAX(op->f->align, 4096u)));
		if (!op->bounce) {
			op_finish(op, -ENOMEM);
			return;
		}
	}
	op->aio.done = bounce_done;
	if (op->op == BLOCK_READ || (((head | (head + n)) & mask) && !op->loaded)) {
		bounce_submit(op, AIO_READV);
		return;
	}
	if (op->iov)
		iov_read(op->iov, op->niov, op->progress, op->bounce + head, n);
	else
		memset(op->bounce + head, 0, n);
	bounce_submit(op, AIO_WRITEV);
}

/* The next aio of a transfer; with nothing left, its end. */
static void op_step(struct file_op *op)
{
	int ret;

	if (op->progress >= op->len) {
		op_written(op);
		return;
	}
	if (op->bounced) {
		bounce_step(op);
		return;
	}
	ret = op_set_iov(op);
	if (ret) {
		op_finish(op, ret);
		return;
	}
	op->aio.op = op->op == BLOCK_READ ? AIO_READV : AIO_WRITEV;
	op->aio.offset = op->offset + op->progress;
	op->aio.done = plain_done;
	op->aio.disk = op->f->direct;
	op->aio.slow = !op->f->direct && op->len - op->progress >= SLOW_COPY;
	op->aio.quick = op->f->quick_writes && !op->aio.slow;
	submit(op->f, &op->aio);
}

/* ---- discard and write zeroes ---------------------------------------------- */

static void discard_done(struct aio_req *aio)
{
	struct file_op *op = container_of(aio, struct file_op, aio);

	/* A discard is advice: what the host cannot do is no error. */
	if (aio->result == -EOPNOTSUPP || aio->result == -ENOTTY || aio->result == -ENOSYS || aio->result == -EINVAL)
		aio->result = 0;
	if (aio->result < 0)
		op_finish(op, (int)aio->result);
	else
		op_written(op);
}

static void op_discard(struct file_op *op)
{
	struct block_file *f = op->f;
	const uint64_t grain = f->is_device ? MAX(f->align, 512u) : 1;
	const uint64_t lo = ALIGN_UP(op->offset, grain), hi = ALIGN_DOWN(op->offset + op->len, grain);

	if (!f->discard_unmap || lo >= hi) {
		op_finish(op, 0);
		return;
	}
	op->aio.op = f->is_device ? AIO_BLKDISCARD : AIO_FALLOCATE;
	op->aio.mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	op->aio.offset = lo;
	op->aio.len = hi - lo;
	op->aio.done = discard_done;
	submit(f, &op->aio);
}

static void op_zero(struct file_op *op);

static void zero_done(struct aio_req *aio)
{
	struct file_op *op = container_of(aio, struct file_op, aio);
	struct block_file *f = op->f;
	const int64_t ret = aio->result;

	if (ret >= 0) {
		op_written(op);
		return;
	}
	if (ret != -EOPNOTSUPP && ret != -ENOTTY && ret != -ENOSYS && ret != -EINVAL) {
		op_finish(op, (int)ret);
		return;
	}
	if (aio->op == AIO_BLKZEROOUT)
		f->no_zeroout = true;
	else if (aio->mode & FALLOC_FL_PUNCH_HOLE)
		f->no_punch = true;
	else
		f->no_zero_range = true;
	op_zero(op);
}

static void op_zero(struct file_op *op)
{
	struct block_file *f = op->f;

	op->aio.offset = op->offset;
	op->aio.len = op->len;
	op->aio.done = zero_done;
	if (f->is_device && !f->no_zeroout && !((op->offset | op->len) & (MAX(f->align, 512u) - 1))) {
		op->aio.op = AIO_BLKZEROOUT;
		op->aio.mode = op->may_unmap && f->discard_unmap;
	} else if (!f->is_device && op->may_unmap && f->discard_unmap && !f->no_punch) {
		op->aio.op = AIO_FALLOCATE;
		op->aio.mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	} else if (!f->is_device && !f->no_zero_range) {
		op->aio.op = AIO_FALLOCATE;
		op->aio.mode = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
	} else {
		op->bounced = true; /* iov is NULL: zeros are written */
		op_step(op);
		return;
	}
	submit(f, &op->aio);
}

/* ---- room in advance ------------------------------------------------------------ */

static void extend_done(struct aio_req *aio)
{
	op_finish(container_of(aio, struct file_op, aio), aio->result < 0 ? (int)aio->result : 0);
}

void block_file_extend(struct block_file *f, uint64_t offset, uint64_t len, void (*done)(void *opaque, int ret),
		       void *opaque)
{
	struct file_op *op = f->is_device ? NULL : op_new(f);

	if (!op) {
		done(opaque, f->is_device ? -ENOTSUP : -ENOMEM);
		return;
	}
	if (unlikely(f->hook))
		f->hook->extend(f->hook, offset + len, &done, &opaque);
	op->f = f;
	op->op = BLOCK_FLUSH; /* no data is changed: not tracked, and nothing new to flush */
	op->done = done;
	op->opaque = opaque;
	op->aio = (struct aio_req){.op = AIO_FALLOCATE, .fd = f->fd, .offset = offset, .len = len, .done = extend_done};
	submit(f, &op->aio);
}

/* ---- entry ------------------------------------------------------------------ */

static void op_start(struct file_op *op)
{
	switch (op->op) {
	case BLOCK_READ:
	case BLOCK_WRITE: op_step(op); break;
	case BLOCK_FLUSH: op_sync(op); break;
	case BLOCK_DISCARD: op_discard(op); break;
	case BLOCK_WRITE_ZEROES: op_zero(op); break;
	}
}

void block_file_set_hook(struct block_file *f, struct block_file_hook *h)
{
	f->hook = h;
}

void block_file_submit(struct block_file *f, enum block_op what, bool fua, bool may_unmap, uint64_t offset,
		       uint64_t len, const struct iovec *iov, int niov, void (*done)(void *opaque, int ret),
		       void *opaque)
{
	struct file_op *op = op_new(f);

	if (unlikely(f->hook))
		f->hook->begin(f->hook, what, fua, offset, len, iov, niov, &done, &opaque);
	if (!op) {
		done(opaque, -ENOMEM);
		return;
	}
	op->f = f;
	op->aio.fd = f->fd;
	op->op = what;
	op->fua = fua && !f->no_flush;
	op->may_unmap = may_unmap;
	op->offset = offset;
	op->len = len;
	op->done = done;
	op->opaque = opaque;
	if (what == BLOCK_READ || what == BLOCK_WRITE) {
		op->iov = iov;
		op->niov = niov;
		op->bounced = f->direct && !op_is_aligned(op);
	}
	if (op_is_tracked(op)) {
		op->rmw = ((offset | len) & (f->align - 1)) != 0;
		if (conflicts(op, NULL)) {
			*f->waiting_tail = op;
			f->waiting_tail = &op->next;
			return;
		}
		track(op);
	}
	op_start(op);
}
