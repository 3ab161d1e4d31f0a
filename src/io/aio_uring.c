// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The io_uring engine (io_uring(7), through liburing). The ring's own descriptor
 * is watched by the loop; completions are reaped in batches. Block device
 * discards and zeroing have no io_uring operation before Linux 6.12 and go to the
 * thread pool.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "io/aio_internal.h"

struct aio_uring {
	struct io_uring ring;
	unsigned in_ring; /* started and not reaped: kept below the completion queue's size */
};

void aio_uring_complete(struct aio *a)
{
	struct aio_uring *u = a->uring;
	struct io_uring_cqe *cqe[64];
	struct aio_req *again = NULL;
	unsigned n;

	while ((n = io_uring_peek_batch_cqe(&u->ring, cqe, ARRAY_SIZE(cqe))) > 0) {
		struct aio_req *req[ARRAY_SIZE(cqe)];

		/* done() may start new I/O on this ring: give the entries back before calling it. */
		for (unsigned i = 0; i < n; i++) {
			req[i] = io_uring_cqe_get_data(cqe[i]);
			req[i]->result = cqe[i]->res;
		}
		io_uring_cq_advance(&u->ring, n);
		u->in_ring -= n;
		for (unsigned i = 0; i < n; i++) {
			if (req[i]->result == -EINTR || req[i]->result == -EAGAIN) {
				req[i]->next = again;
				again = req[i];
			} else {
				aio_complete(a, req[i], req[i]->result);
			}
		}
	}
	while (again) {
		struct aio_req *req = again;
		again = req->next;
		aio_untake(a, req);
	}
}

static void uring_reap(void *opaque, unsigned events)
{
	aio_uring_complete(opaque);
	aio_flush(opaque);
}

static int uring_open(struct aio *a, struct err *err)
{
	struct aio_uring *u = calloc(1, sizeof(*u));
	int ret;

	if (!u)
		return err_set(err, -ENOMEM, "out of memory for io_uring");
	/* COOP_TASKRUN (Linux 5.19) spares an interruption of the thread per completion. */
	ret = io_uring_queue_init(AIO_BATCH_MAX, &u->ring, IORING_SETUP_COOP_TASKRUN);
	if (ret == -EINVAL)
		ret = io_uring_queue_init(AIO_BATCH_MAX, &u->ring, 0);
	if (ret < 0) {
		free(u);
		if (ret == -ENOSYS)
			return err_set(err, ret, "io_uring is not in this kernel");
		if (ret == -EPERM || ret == -EACCES)
			return err_set(err, ret,
				       "io_uring is forbidden here (seccomp, or sysctl kernel.io_uring_disabled)");
		return err_set_errno(err, ret, "io_uring cannot be set up");
	}
	a->uring = u;
	ret = loop_watch(a->loop, u->ring.ring_fd, LOOP_READ, uring_reap, a);
	if (ret) {
		io_uring_queue_exit(&u->ring);
		free(u);
		a->uring = NULL;
		return err_set_errno(err, ret, "io_uring's descriptor cannot be watched");
	}
	return 0;
}

static void uring_close(struct aio *a)
{
	loop_unwatch(a->loop, a->uring->ring.ring_fd);
	io_uring_queue_exit(&a->uring->ring);
	free(a->uring);
	a->uring = NULL;
}

static void uring_prepare(struct io_uring_sqe *sqe, struct aio_req *req)
{
	switch (req->op) {
	case AIO_READV:
		if (req->niov == 1)
			io_uring_prep_read(sqe, req->fd, req->iov->iov_base,
					   (unsigned)MIN(req->iov->iov_len, (size_t)(1u << 30)), req->offset);
		else
			io_uring_prep_readv(sqe, req->fd, req->iov, (unsigned)req->niov, req->offset);
		break;
	case AIO_WRITEV:
		if (req->niov == 1)
			io_uring_prep_write(sqe, req->fd, req->iov->iov_base,
					    (unsigned)MIN(req->iov->iov_len, (size_t)(1u << 30)), req->offset);
		else
			io_uring_prep_writev(sqe, req->fd, req->iov, (unsigned)req->niov, req->offset);
		break;
	case AIO_FDATASYNC: io_uring_prep_fsync(sqe, req->fd, IORING_FSYNC_DATASYNC); break;
	default: io_uring_prep_fallocate(sqe, req->fd, req->mode, (off_t)req->offset, (off_t)req->len); break;
	}
	if (req->slow)
		sqe->flags |= IOSQE_ASYNC;
	io_uring_sqe_set_data(sqe, req);
}

static void uring_retry(void *arg)
{
	aio_flush(arg);
}

static bool uring_start(struct aio *a)
{
	struct aio_uring *u = a->uring;
	unsigned limit = *u->ring.cq.kring_entries;
	struct io_uring_sqe *sqe;
	struct aio_req *req;
	unsigned ready = io_uring_sq_ready(&u->ring);
	int ret;

	while (u->in_ring + ready < limit && (req = aio_take(a)) != NULL) {
		if (req->op == AIO_BLKDISCARD || req->op == AIO_BLKZEROOUT) {
			aio_pool_give(a, req);
			continue;
		}
		sqe = io_uring_get_sqe(&u->ring);
		if (!sqe) {
			aio_untake(a, req);
			break;
		}
		uring_prepare(sqe, req);
		ready++;
	}
	a->stuck = false;
	if (!ready)
		return false; /* completions will call again */
	ret = io_uring_submit(&u->ring);
	counter_add(&a->stats.syscalls, 1);
	if (ret > 0)
		u->in_ring += (unsigned)ret;
	/* EAGAIN and EBUSY: the kernel is short of memory or wants completions reaped first; the
	 * entries stay in the ring, and the next reap or flush submits them. */
	a->stuck = io_uring_sq_ready(&u->ring) > 0;
	if (ret < 0 && u->in_ring == 0 && ret != -EINTR)
		loop_post(a->loop, uring_retry, a);
	/* What the page cache served is complete already: no need to sleep for it. */
	aio_uring_complete(a);
	return ret > 0;
}

const struct aio_engine_ops aio_uring_ops = {.open = uring_open, .close = uring_close, .start = uring_start};
