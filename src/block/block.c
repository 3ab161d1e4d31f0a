// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Block nodes: opening an image by format, checking every request once, counting.
 *
 * Locking: none; a node's requests are submitted and completed in the thread of
 * its loop.
 */
#include "block/block.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "block/driver.h"
#include "io/iothread.h"
#include "block/image.h"
#include "block/throttle.h"

static const struct block_driver *const driver_table[] = {&block_raw_driver, &block_qcow2_driver, &block_qed_driver};

static const struct block_driver *find_driver(const char *format)
{
	for (size_t i = 0; i < ARRAY_SIZE(driver_table); i++)
		if (strcmp(driver_table[i]->name, format) == 0)
			return driver_table[i];
	return NULL;
}

/* The format given, or what the header says. */
static int choose_driver(struct block_node *n, const struct block_open *o, struct err *err)
{
	uint8_t head[BLOCK_PROBE_SIZE];
	const char *format = o->format;
	int ret;

	if (!format) {
		ret = block_file_pread(n->file, head, sizeof(head), 0);
		if (ret)
			return err_set_errno(err, ret, "Could not read the image '%s' to find its format", o->filename);
		format = block_probe(head, sizeof(head));
		n->probed = true;
	}
	n->driver = find_driver(format);
	if (n->driver)
		return 0;
	if (block_format_known(format))
		return err_set(
		    err, -ENOTSUP,
		    "image '%s': Kelvin reads raw, qcow2 and qed, not '%s'; convert it: qemu-img convert -f %s -O "
		    "qcow2 '%s' NEW.qcow2",
		    o->filename, format, format, o->filename);
	return err_set(err, -EINVAL, "Unknown driver '%s' (formats: raw, qcow2, qed)", format);
}

/* Options of one format are no use to another. */
static int check_format_options(const struct block_node *n, const struct block_open *o, struct err *err)
{
	const char *what = o->snapshot		    ? "snapshot"
			   : o->data_file	    ? "data-file"
			   : o->l2_cache_size	    ? "l2-cache-size"
			   : o->refcount_cache_size ? "refcount-cache-size"
			   : o->cache_size	    ? "cache-size"
			   : o->l2_cache_entry_size ? "l2-cache-entry-size"
			   : o->lazy_refcounts	    ? "lazy-refcounts"
						    : NULL;

	return what && n->driver != &block_qcow2_driver
		   ? err_set(err, -EINVAL, "'%s': option '%s' is one of qcow2, and the image is %s", n->filename, what,
			     n->driver->name)
		   : 0;
}

struct block_node *block_open(const struct block_open *o, struct loop *l, struct err *err)
{
	struct block_node *n;
	int ret;

	/* Backing files' names never get here with a protocol (backing.c). */
	if (strncmp(o->filename, "json:", 5) == 0)
		return block_open_text(o->filename + 5, o, l, err);
	n = calloc(1, sizeof(*n));
	if (n)
		n->filename = strdup(o->filename);
	if (!n || !n->filename) {
		err_set(err, -ENOMEM, "out of memory");
		free(n);
		return NULL;
	}
	n->loop = l;
	n->read_only = o->read_only;
	n->writeback = o->writeback;
	n->no_flush = o->no_flush;
	n->discard_unmap = o->discard_unmap;
	n->detect_zeroes = o->detect_zeroes;
	ret = block_file_open(&n->file, o, l, err);
	if (ret)
		goto out_free;
	ret = choose_driver(n, o, err);
	if (!ret)
		ret = check_format_options(n, o, err);
	if (!ret)
		ret = n->driver->open(n, o, err);
	if (ret)
		goto out_close;
	if (n->probed && !n->read_only && strcmp(n->driver->name, "raw") == 0)
		log_warn("Image format was not specified for '%s' and probing guessed raw: writes to sector 0 that "
			 "look like another format are refused; format=raw removes the restriction",
			 n->filename);
	return n;

out_close:
	block_file_close(n->file);
out_free:
	free(n->filename);
	free(n);
	return NULL;
}

void block_close(struct block_node *n)
{
	if (!n)
		return;
	block_drain(n);
	if (n->throttle)
		block_throttle_leave(n);
	n->driver->close(n);
	block_file_close(n->file);
	free(n->filename);
	free(n);
}

int block_set_loop(struct block_node *n, struct loop *l, struct err *err)
{
	int ret;

	BUG_ON(n->inflight);
	if (n->loop == l)
		return 0;
	ret = n->backing ? block_set_loop(n->backing, l, err) : 0;
	if (!ret)
		ret = block_file_set_loop(n->file, l, err);
	if (!ret && n->driver->set_loop)
		ret = n->driver->set_loop(n, l, err);
	if (ret)
		return ret;
	n->loop = l;
	if (n->throttle)
		block_throttle_set_loop(n, l);
	return 0;
}

uint64_t block_size(const struct block_node *n)
{
	return n->size;
}

struct loop *block_loop(const struct block_node *n)
{
	return n->loop;
}

bool block_read_only(const struct block_node *n)
{
	return n->read_only;
}

uint32_t block_alignment(const struct block_node *n)
{
	return MAX(block_file_alignment(n->file), 512u);
}

const char *block_filename(const struct block_node *n)
{
	return n->filename;
}

const char *block_format(const struct block_node *n)
{
	return n->driver->name;
}

const char *block_aio_name(const struct block_node *n)
{
	return aio_engine_name(aio_engine_of(block_file_aio(n->file)));
}

bool block_writeback(const struct block_node *n)
{
	return n->writeback;
}

void block_set_writeback(struct block_node *n, bool on)
{
	n->writeback = on;
}

const struct block_stats *block_stats_of(const struct block_node *n)
{
	return &n->stats;
}

uint64_t block_syscalls(const struct block_node *n)
{
	const struct aio *a = block_file_aio(n->file);

	return a ? counter_get(&aio_stats_of(a)->syscalls) : 0;
}

static int check_request(const struct block_node *n, const struct block_req *req)
{
	uint64_t sum = 0;

	if (req->op == BLOCK_FLUSH)
		return 0;
	if (req->offset > n->size || req->len > n->size - req->offset)
		return -EIO;
	if (req->op != BLOCK_READ && n->read_only)
		return -EPERM;
	if ((req->flags & BLOCK_COMPRESS) && !n->driver->compresses)
		return -ENOTSUP;
	if (req->op == BLOCK_READ || req->op == BLOCK_WRITE) {
		for (int i = 0; i < req->niov; i++)
			sum += req->iov[i].iov_len;
		if (sum != req->len)
			return -EINVAL;
	}
	return 0;
}

void block_complete(struct block_node *n, struct block_req *req, int ret)
{
	const uint64_t now = clock_tsc();

	n->inflight--;
	/* A host whose CPUs disagree must not make ages of it. */
	if (now > req->begun)
		counter_add(&n->stats.wait, now - req->begun);
	if (ret)
		counter_add(&n->stats.errors, 1);
	req->result = ret;
	req->done(req);
}

static bool all_zero(const struct iovec *iov, int n)
{
	for (int i = 0; i < n; i++) {
		const uint8_t *p = iov[i].iov_base;
		/* Each byte equals the one before it, and the first is zero. */
		if (iov[i].iov_len && (p[0] || memcmp(p, p + 1, iov[i].iov_len - 1) != 0))
			return false;
	}
	return true;
}

void block_submit(struct block_node *n, struct block_req *req)
{
	const int ret = check_request(n, req);

	n->inflight++;
	req->begun = clock_tsc();
	counter_add(&n->stats.ops[req->op], 1);
	counter_add(&n->stats.bytes[req->op], req->len);
	if (ret || (req->len == 0 && req->op != BLOCK_FLUSH)) {
		block_complete(n, req, ret);
		return;
	}
	if (n->detect_zeroes && req->op == BLOCK_WRITE && !(req->flags & BLOCK_COMPRESS) &&
	    all_zero(req->iov, req->niov)) {
		req->op = BLOCK_WRITE_ZEROES;
		if (n->detect_zeroes == BLOCK_ZEROES_UNMAP)
			req->flags |= BLOCK_MAY_UNMAP;
	}
	if (n->throttle && block_throttle_hold(n, req))
		return;
	n->driver->submit(n, req);
}

void block_pass(struct block_node *n, struct block_req *req)
{
	n->driver->submit(n, req);
}

void block_flush_queue(struct block_node *n)
{
	aio_flush(block_file_aio(n->file));
}

void block_drain(struct block_node *n)
{
	if (n->throttle)
		block_throttle_release(n);
	while (n->inflight) {
		aio_flush(block_file_aio(n->file));
		if (n->inflight)
			loop_run_once(n->loop, -1);
	}
}

struct flush_now {
	struct block_node *n;
	struct block_req req;
	bool done;
};

static void flush_now_done(struct block_req *req)
{
	container_of(req, struct flush_now, req)->done = true;
}

static void flush_now(void *arg)
{
	struct flush_now *f = arg;

	block_submit(f->n, &f->req);
	block_flush_queue(f->n);
	block_drain(f->n);
	BUG_ON(!f->done);
}

int block_flush_now(struct block_node *n)
{
	struct flush_now f = {.n = n, .req = {.op = BLOCK_FLUSH, .done = flush_now_done}};

	iothread_call(n->loop, flush_now, &f);
	return f.req.result;
}
