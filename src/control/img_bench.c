// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * img bench: `count` requests of one size, `depth` of them in flight, at offsets
 * that advance by a step (or, ours, at random with --random). One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/util.h"
#include "control/img.h"

struct bench {
	const struct img_args *a;
	struct block_node *n;
	uint64_t size, offset, started, ended, depth, since_flush, seed;
	unsigned in_flight;
	bool flushing, failed;
	int ret;
	struct slot *slots, *free;
};

struct slot {
	struct bench *b;
	struct block_req req;
	struct iovec iov;
	struct slot *next;
};

static uint64_t next_offset(struct bench *b)
{
	const uint64_t at = b->offset, len = b->a->buffer_size;

	if (b->a->random) {
		b->seed ^= b->seed << 13;
		b->seed ^= b->seed >> 7;
		b->seed ^= b->seed << 17;
		return (b->seed >> 11) % (b->size / len) * len;
	}
	/* qemu-img's order, so that both do the same work; where its request would pass the end, the start instead. */
	b->offset = (b->offset + b->a->step) % b->size;
	if (b->offset > b->size - len)
		b->offset = 0;
	return at;
}

static void slot_done(struct block_req *req)
{
	struct slot *s = req->opaque;
	struct bench *b = s->b;

	if (req->result && !b->ret)
		b->ret = req->result;
	if (req->op == BLOCK_FLUSH)
		b->flushing = false;
	else
		b->ended++;
	b->in_flight--;
	s->next = b->free;
	b->free = s;
}

static void submit(struct bench *b, enum block_op op)
{
	struct slot *s = b->free;

	b->free = s->next;
	b->in_flight++;
	s->req =
	    (struct block_req){.op = op, .iov = &s->iov, .niov = op != BLOCK_FLUSH, .done = slot_done, .opaque = s};
	if (op != BLOCK_FLUSH) {
		s->req.offset = next_offset(b);
		s->req.len = s->iov.iov_len;
	}
	block_submit(b->n, &s->req);
}

/* Start what may be started now. */
static void fill(struct bench *b)
{
	const uint64_t every = b->a->flush_interval;

	while (!b->ret && b->free && b->started < b->a->count && b->in_flight < b->depth) {
		if (every && b->since_flush == every) {
			/* Unless --no-drain, a flush comes after all that was sent and before what follows. */
			if (!b->a->no_drain && b->in_flight)
				return;
			b->since_flush = 0;
			b->flushing = true;
			submit(b, BLOCK_FLUSH);
			continue;
		}
		if (b->flushing && !b->a->no_drain)
			return;
		b->started++;
		b->since_flush++;
		submit(b, b->a->write ? BLOCK_WRITE : BLOCK_READ);
	}
}

static int run(struct bench *b, struct err *err)
{
	uint64_t begin = clock_raw_ns();

	while (!b->ret && b->ended < b->a->count) {
		fill(b);
		block_flush_queue(b->n);
		if (b->in_flight && !b->ret)
			loop_run_once(b->a->loop, -1);
	}
	while (b->in_flight)
		loop_run_once(b->a->loop, -1);
	begin = clock_raw_ns() - begin;
	if (b->ret)
		return err_set_errno(err, b->ret, "Failed request");
	if (!b->a->quiet)
		printf("Run completed in %3.3f seconds.\n", (double)begin / 1e9);
	return 0;
}

/*
 * Like a guest's memory, in huge pages: a request is then one piece for the disk instead of one per page. Requests of a
 * page or less gain nothing by it.
 */
static uint8_t *get_buffer(uint64_t request, uint64_t bytes)
{
	const uint64_t grain = request > 4096 ? 2 * MIB : 4096;
	uint8_t *buf = aligned_alloc(grain, ALIGN_UP(bytes, grain));

	if (buf && grain > 4096)
		madvise(buf, ALIGN_UP(bytes, grain), MADV_HUGEPAGE); /* without them it is only slower */
	return buf;
}

static int prepare(struct bench *b, uint8_t **buf, struct err *err)
{
	const struct img_args *a = b->a;
	const uint64_t len = a->buffer_size;

	b->size = block_size(b->n);
	b->depth = a->depth;
	b->offset = a->start;
	b->seed = 0x9e3779b97f4a7c15ull;
	if (len > b->size || a->start > b->size - len)
		return err_set(err, -EINVAL, "the image has %llu bytes: too few for requests of %llu at offset %llu",
			       (unsigned long long)b->size, (unsigned long long)len, (unsigned long long)a->start);
	b->slots = calloc(b->depth + 1, sizeof(*b->slots));
	*buf = get_buffer(len, len * b->depth);
	if (!b->slots || !*buf)
		return err_set(err, -ENOMEM, "out of memory");
	memset(*buf, (int)a->pattern, len * b->depth);
	for (uint64_t i = 0; i <= b->depth; i++) {
		b->slots[i].b = b;
		b->slots[i].iov = (struct iovec){*buf + (i % b->depth) * len, len};
		b->slots[i].next = b->free;
		b->free = &b->slots[i];
	}
	return 0;
}

static void say_plan(const struct img_args *a)
{
	printf("Sending %llu %s requests, %llu bytes each, %llu in parallel (starting at offset %llu, %s%llu)\n",
	       (unsigned long long)a->count, a->write ? "write" : "read", (unsigned long long)a->buffer_size,
	       (unsigned long long)a->depth, (unsigned long long)a->start, a->random ? "random, seed " : "step size ",
	       (unsigned long long)(a->random ? 0 : a->step));
	if (a->flush_interval)
		printf("Sending flush every %llu requests\n", (unsigned long long)a->flush_interval);
}

static int check_flags(struct img_args *a, struct err *err)
{
	a->count = a->count ? a->count : 75000;
	a->depth = a->depth ? a->depth : 64;
	a->buffer_size = a->buffer_size ? a->buffer_size : 4096;
	a->step = a->step ? a->step : a->buffer_size;
	if (a->depth > 4096 || a->count > INT32_MAX || a->buffer_size > INT32_MAX || a->step > INT32_MAX)
		return err_set(err, -EINVAL, "a depth up to 4096, and a count and sizes below 2G are possible");
	if (a->have_pattern && a->pattern > 0xff)
		return err_set(err, -EINVAL, "Invalid pattern byte specified: it must be below 256");
	if (!a->write && a->flush_interval)
		return err_set(err, -EINVAL, "--flush-interval is only available in write tests");
	if (a->flush_interval && a->flush_interval < a->depth)
		return err_set(err, -EINVAL, "Flush interval can't be smaller than depth");
	return 0;
}

int img_bench(struct img_args *a, struct err *err)
{
	struct block_open o = {.filename = a->names[0], .format = a->format, .read_only = !a->write, .writeback = true};
	struct bench b = {.a = a};
	uint8_t *buf = NULL;
	int ret = check_flags(a, err);

	o.locking = !a->force_share;
	if (!ret && a->cache)
		ret = block_set_cache(&o, a->cache, err);
	if (!ret && (a->aio || a->native))
		ret = block_set_aio(&o, a->native ? "native" : a->aio, err);
	if (ret)
		return ret;
	b.n = a->image_opts ? block_open_text(a->names[0], &o, a->loop, err) : block_open(&o, a->loop, err);
	ret = b.n ? prepare(&b, &buf, err) : err->code;
	if (!ret && !a->quiet)
		say_plan(a);
	if (!ret)
		ret = run(&b, err);
	block_close(b.n);
	free(b.slots);
	free(buf);
	return ret;
}
