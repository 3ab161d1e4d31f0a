// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Asynchronous operations waited for: in a coroutine, which gives its thread back
 * meanwhile, or outside of one by running the loop. No locks; the loop's thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "base/iov.h"
#include "block/driver.h"
#include "block/image.h"
#include "io/co.h"

struct waiting {
	struct co *co;
	bool done;
	int ret;
};

static void wake(struct waiting *w, int ret)
{
	w->ret = ret;
	w->done = true;
	if (w->co)
		co_wake(w->co);
}

static void file_done(void *opaque, int ret)
{
	wake(opaque, ret);
}

static void node_done(struct block_req *req)
{
	wake(req->opaque, req->result);
}

static int wait_for(struct waiting *w, struct block_file *f, struct loop *l)
{
	if (co_self() && !w->done) {
		w->co = co_self();
		co_wait();
	}
	while (!w->done) {
		aio_flush(block_file_aio(f));
		if (!w->done)
			loop_run_once(l, -1);
	}
	return w->ret;
}

int block_file_wait(struct block_file *f, struct loop *l, enum block_op op, bool may_unmap, uint64_t offset,
		    uint64_t len, const struct iovec *iov, int niov)
{
	struct waiting w = {0};

	block_file_submit(f, op, false, may_unmap, offset, len, iov, niov, file_done, &w);
	return wait_for(&w, f, l);
}

int block_file_wait_buf(struct block_file *f, struct loop *l, enum block_op op, uint64_t offset, void *buf,
			uint64_t len)
{
	struct iovec iov = {buf, len};

	return block_file_wait(f, l, op, true, offset, len, buf ? &iov : NULL, buf ? 1 : 0);
}

int block_wait(struct block_node *n, enum block_op op, unsigned flags, uint64_t offset, uint64_t len,
	       const struct iovec *iov, int niov)
{
	struct waiting w = {0};
	struct block_req req = {.op = op, .flags = flags, .offset = offset, .len = len, .iov = iov, .niov = niov};

	req.done = node_done;
	req.opaque = &w;
	block_submit(n, &req);
	return wait_for(&w, n->file, n->loop);
}

int block_read_backing(struct block_node *n, uint64_t offset, struct iovec *iov, int niov, uint64_t len)
{
	const uint64_t end = n->backing ? block_size(n->backing) : 0;
	const uint64_t have = offset < end ? MIN(len, end - offset) : 0;
	struct iovec *tail;

	if (have < len) {
		tail = malloc((size_t)niov * sizeof(*tail));
		if (!tail)
			return -ENOMEM;
		iov_zero(tail, iov_cut(tail, iov, niov, have, len - have), 0);
		free(tail);
	}
	if (!have)
		return 0;
	niov = iov_cut(iov, iov, niov, 0, have);
	return block_wait(n->backing, BLOCK_READ, 0, offset, have, iov, niov);
}
