// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * img convert: several coroutines copy pieces of the inputs, one after another,
 * to the output. The map says what need not be read; in what is read, zeros are
 * found. Pieces start to be written in the order of the disk unless -W. One thread
 * (the engines under it and compression use more).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "control/img.h"
#include "io/co.h"

#define PIECE		(1 * MIB)
#define ZERO_GRAIN	4096u
#define DEFAULT_WORKERS 8u
#define MAX_WORKERS	64u

enum piece_kind { PIECE_DATA, PIECE_ZERO, PIECE_BACKING };

struct convert {
	const struct img_args *a;
	struct block_node **from, *to;
	uint64_t *starts; /* of each input in the output; one more: the end */
	int nr_from, current;
	uint64_t pos, size, piece, grain;
	struct block_extent run; /* not yet handed out; len 0: none */
	uint64_t run_at;	 /* where in the output it began */
	bool backed, zero_target, scan, compress;
	bool mapping; /* a worker looks for the next piece */
	struct co_queue map_queue, turn_queue;
	uint64_t tickets, turn, done, salvaged, began_ns;
	unsigned running;
	int ret;
	uint64_t failed_at;
	bool failed_writing;
};

struct piece {
	enum piece_kind kind;
	struct block_node *from;
	uint64_t from_offset, offset, len, ticket;
	struct block_extent run; /* that it is part of, and how far inside it begins: for the host to copy */
	uint64_t skip;
};

struct worker {
	struct convert *c;
	struct co *co; /* waiting for its writes */
	uint8_t *buf;
	struct block_req *reqs;
	struct iovec *iovs;
	unsigned pending;
	int ret;
};

uint64_t img_zero_run(const uint8_t *buf, uint64_t len, uint64_t grain, bool *zero)
{
	uint64_t n = 0;

	while (n < len) {
		const uint64_t g = MIN(grain, len - n);
		const bool z = buf[n] == 0 && memcmp(buf + n, buf + n + 1, g - 1) == 0;
		if (n == 0)
			*zero = z;
		else if (z != *zero)
			break;
		n += g;
	}
	return n;
}

/* ---- which piece is next ---------------------------------------------------------- */

static int find_run(struct convert *c)
{
	struct block_node *n;
	uint64_t at;
	int ret;

	while (c->pos >= c->starts[c->current + 1])
		c->current++;
	n = c->from[c->current];
	at = c->pos - c->starts[c->current];
	c->run = (struct block_extent){.len = block_size(n) - at, .data = true, .present = true};
	c->run_at = c->pos;
	if (!c->scan)
		return 0;
	ret = c->backed ? block_map_top(n, at, c->run.len, &c->run) : block_map(n, at, c->run.len, &c->run);
	if (ret && c->a->salvage) {
		c->run = (struct block_extent){.len = MIN(block_size(n) - at, c->piece), .data = true, .present = true};
		ret = 0;
	}
	return ret;
}

/* (co) False: there is nothing left, or something failed. */
static bool take_piece(struct convert *c, struct piece *p)
{
	uint64_t end;

	/* Those who are woken run at once and may take all of what was found, or look for more: begin again then. */
	for (;;) {
		int ret;
		while (c->mapping)
			co_queue_wait(&c->map_queue);
		if (c->ret || c->pos >= c->size)
			return false;
		if (c->run.len)
			break;
		c->mapping = true;
		ret = find_run(c);
		c->mapping = false;
		if (!ret && !c->run.len)
			ret = -EIO;
		if (ret && !c->ret) {
			c->ret = ret;
			c->failed_at = c->pos;
		}
		co_queue_wake_all(&c->map_queue);
	}
	p->kind = c->run.data && !c->run.zero ? PIECE_DATA : PIECE_ZERO;
	if (c->backed && !c->run.present)
		p->kind = PIECE_BACKING;
	p->from = c->from[c->current];
	p->from_offset = c->pos - c->starts[c->current];
	p->offset = c->pos;
	p->len = c->run.len;
	if (p->kind == PIECE_DATA || (c->compress && p->kind != PIECE_BACKING)) {
		/* A compressed cluster may hold the end of one run and the start of another: it is all read. */
		end = ALIGN_DOWN(c->pos, c->piece) + c->piece;
		if (c->compress && (p->kind == PIECE_DATA || c->pos + p->len < end)) {
			p->kind = PIECE_DATA;
			p->len = MIN(end, c->starts[c->current + 1]) - c->pos;
		} else if (c->compress) {
			p->len = ALIGN_DOWN(c->pos + p->len, c->piece) - c->pos;
		} else {
			p->len = MIN(p->len, end - c->pos);
		}
	}
	p->run = c->run;
	p->skip = c->pos - c->run_at;
	c->run.len -= MIN(c->run.len, p->len);
	c->pos += p->len;
	p->ticket = c->tickets++;
	return true;
}

/* ---- copying a piece --------------------------------------------------------------- */

static void write_done(struct block_req *req)
{
	struct worker *w = req->opaque;

	if (req->result && !w->ret)
		w->ret = req->result;
	if (--w->pending == 0 && w->co)
		co_wake(w->co);
}

static void start_write(struct worker *w, unsigned i, enum block_op op, unsigned flags, uint64_t offset, uint8_t *buf,
			uint64_t len)
{
	w->iovs[i] = (struct iovec){buf, len};
	w->reqs[i] = (struct block_req){.op = op, .flags = flags, .offset = offset, .len = len, .iov = &w->iovs[i]};
	w->reqs[i].niov = op == BLOCK_WRITE;
	w->reqs[i].done = write_done;
	w->reqs[i].opaque = w;
	w->pending++;
	block_submit(w->c->to, &w->reqs[i]);
}

/* All writes of a piece; its zeros only where the output would show something else. */
static void start_writes(struct worker *w, const struct piece *p)
{
	const struct convert *c = w->c;
	const bool clear = c->backed || !c->zero_target;
	/* Inputs that end inside a cluster share one: it is not compressed. */
	const bool compress =
	    c->compress && p->offset % c->piece == 0 && (p->len == c->piece || p->offset + p->len == c->size);
	unsigned n = 0;
	bool zero = false;

	if (p->kind == PIECE_ZERO && clear)
		start_write(w, 0, BLOCK_WRITE_ZEROES, BLOCK_MAY_UNMAP, p->offset, NULL, p->len);
	if (p->kind != PIECE_DATA || !p->len)
		return;
	if (!c->grain) {
		start_write(w, 0, BLOCK_WRITE, 0, p->offset, w->buf, p->len);
		return;
	}
	for (uint64_t at = 0, len; at < p->len; at += len) {
		len = c->compress ? p->len : img_zero_run(w->buf + at, p->len - at, c->grain, &zero);
		if (c->compress)
			zero = img_zero_run(w->buf, p->len, p->len, &zero) && zero;
		if (!zero)
			start_write(w, n++, BLOCK_WRITE, compress ? BLOCK_COMPRESS : 0, p->offset + at, w->buf + at,
				    len);
		else if (clear)
			start_write(w, n++, BLOCK_WRITE_ZEROES, BLOCK_MAY_UNMAP, p->offset + at, NULL, len);
	}
}

/* (co) A piece whose reading failed, block by block: what cannot be read becomes zeros. */
static void salvage(struct worker *w, const struct piece *p)
{
	for (uint64_t at = 0; at < p->len; at += ZERO_GRAIN) {
		const uint64_t len = MIN(ZERO_GRAIN, p->len - at);
		struct iovec iov = {w->buf + at, len};
		if (block_wait(p->from, BLOCK_READ, 0, p->from_offset + at, len, &iov, 1) == 0)
			continue;
		memset(w->buf + at, 0, len);
		w->c->salvaged += len;
	}
}

static void limit_rate(const struct convert *c)
{
	const uint64_t due = c->began_ns + (uint64_t)((double)c->done / (double)c->a->rate * 1e9);
	const uint64_t now = clock_raw_ns();
	struct timespec t;

	if (due <= now)
		return;
	t.tv_sec = (time_t)((due - now) / 1000000000);
	t.tv_nsec = (long)((due - now) % 1000000000);
	nanosleep(&t, NULL);
}

/* What -C leaves to the host; the rest of the piece, all of it where the host cannot, is copied as without -C. */
static void offload(struct convert *c, struct piece *p)
{
	while (p->kind == PIECE_DATA && p->len) {
		const int64_t n = block_copy_range(&p->run, p->skip, c->to, p->offset, p->len);
		if (n <= 0)
			return;
		p->from_offset += (uint64_t)n;
		p->offset += (uint64_t)n;
		p->skip += (uint64_t)n;
		p->len -= (uint64_t)n;
		c->done += (uint64_t)n;
	}
}

/* (co) */
static int copy_piece(struct worker *w, const struct piece *p)
{
	struct convert *c = w->c;
	struct iovec iov = {w->buf, p->len};
	int ret =
	    p->kind == PIECE_DATA && p->len ? block_wait(p->from, BLOCK_READ, 0, p->from_offset, p->len, &iov, 1) : 0;
	const bool read_failed = ret && !c->a->salvage;

	if (ret && c->a->salvage) {
		salvage(w, p);
		ret = 0;
	}
	while (!c->a->out_of_order && c->turn != p->ticket)
		co_queue_wait(&c->turn_queue);
	w->ret = ret;
	w->pending = 1; /* the loop below must not end early */
	w->co = NULL;
	if (!ret && !c->ret)
		start_writes(w, p);
	c->turn++;
	co_queue_wake_all(&c->turn_queue);
	if (--w->pending) {
		w->co = co_self();
		co_wait();
	}
	if (w->ret && !c->ret) {
		c->ret = w->ret;
		c->failed_at = p->offset;
		c->failed_writing = !read_failed;
	}
	c->done += p->len;
	return c->ret;
}

static void work(void *arg)
{
	struct worker *w = arg;
	struct convert *c = w->c;
	struct piece p;

	while (take_piece(c, &p)) {
		if (c->a->offload)
			offload(c, &p);
		copy_piece(w, &p);
		img_show_progress(c->a, c->done, c->size);
		if (c->a->rate)
			limit_rate(c);
	}
	c->running--;
}

static void free_workers(struct worker *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		free(w[i].buf);
		free(w[i].reqs);
		free(w[i].iovs);
	}
	free(w);
}

static int run_workers(struct convert *c, unsigned n)
{
	struct worker *w = calloc(n, sizeof(*w));
	const size_t max_runs = c->grain && !c->compress ? c->piece / c->grain + 1 : 1;
	int ret = w ? 0 : -ENOMEM;

	c->began_ns = clock_raw_ns();
	for (unsigned i = 0; i < n && !ret; i++) {
		w[i].c = c;
		w[i].buf = aligned_alloc(4096, ALIGN_UP(c->piece, 4096));
		w[i].reqs = calloc(max_runs, sizeof(*w[i].reqs));
		w[i].iovs = calloc(max_runs, sizeof(*w[i].iovs));
		ret = w[i].buf && w[i].reqs && w[i].iovs ? 0 : -ENOMEM;
	}
	for (unsigned i = 0; i < n && !ret; i++) {
		c->running++;
		ret = co_spawn(work, &w[i]);
		if (ret)
			c->running--;
	}
	while (c->running) {
		block_flush_queue(c->to);
		for (int i = 0; i < c->nr_from; i++)
			block_flush_queue(c->from[i]);
		if (c->running)
			loop_run_once(c->a->loop, -1);
	}
	if (w)
		free_workers(w, n);
	return ret ? ret : c->ret;
}

/* ---- the verb ------------------------------------------------------------------------- */

static int plan(struct convert *c, const char *out, struct err *err)
{
	const struct img_args *a = c->a;
	struct block_image_info info;

	c->scan = !(a->have_sparse && a->sparse == 0);
	c->grain = !c->scan ? 0 : a->have_sparse ? a->sparse : ZERO_GRAIN;
	if (c->grain && (c->grain % 512 || c->grain > 16 * MIB))
		return err_set(err, -EINVAL,
			       "Invalid buffer size for sparse output specified: a multiple of 512 up to "
			       "16M, or 0 for a full copy");
	c->backed = a->backing != NULL;
	c->compress = a->compress;
	c->piece = PIECE;
	block_image_info(c->to, &info);
	if (c->compress)
		c->piece = info.cluster_size;
	c->zero_target = (!a->no_create && (block_new_is_zero(c->to) || strcmp(out, "raw") != 0)) || a->target_is_zero;
	if (c->compress && strcmp(out, "qcow2") != 0)
		return err_set(err, -ENOTSUP, "Compression not supported for this file format");
	if (block_size(c->to) < c->size)
		return err_set(err, -EINVAL, "output file is smaller than input file");
	return 0;
}

static int copy_all(struct convert *c, const char *out, struct err *err)
{
	uint64_t n = c->a->coroutines ? c->a->coroutines : DEFAULT_WORKERS;
	int ret = plan(c, out, err);

	if (ret)
		return ret;
	if (c->compress && !c->a->coroutines)
		n = MIN(4 * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN), MAX_WORKERS);
	ret = run_workers(c, (unsigned)n);
	if (!ret)
		ret = block_wait(c->to, BLOCK_FLUSH, 0, 0, 0, NULL, 0);
	if (ret)
		return err_set_errno(err, ret, "error while %s at byte %llu", c->failed_writing ? "writing" : "reading",
				     (unsigned long long)c->failed_at);
	img_end_progress(c->a);
	if (c->salvaged)
		log_warn("%llu bytes could not be read and are zeros in the output", (unsigned long long)c->salvaged);
	return 0;
}

/* Making the output must not empty an input. */
static int check_target(const struct img_args *a, const char *to_name, struct err *err)
{
	struct stat from, to;

	for (int i = 0; i < a->nr_names - 1; i++)
		if (stat(a->names[i], &from) == 0 && stat(to_name, &to) == 0 && from.st_dev == to.st_dev &&
		    from.st_ino == to.st_ino)
			return err_set(err, -EINVAL, "'%s' and '%s' are the same file", a->names[i], to_name);
	return 0;
}

static int check_flags(const struct img_args *a, struct err *err)
{
	if (a->coroutines > MAX_WORKERS)
		return err_set(err, -EINVAL,
			       "Invalid number of coroutines. Allowed number of coroutines is between 1 "
			       "and %u",
			       MAX_WORKERS);
	if (a->compress && a->no_create && a->target_is_zero)
		return 0;
	if (a->no_create && (a->options || a->backing))
		return err_set(err, -EINVAL, "-o and -B have no effect with -n (the output is there already)");
	if (a->target_is_zero && !a->no_create)
		return err_set(err, -EINVAL, "--target-is-zero requires use of -n flag");
	if (a->target_image_opts && !a->no_create)
		return err_set(err, -EINVAL, "--target-image-opts requires use of -n flag");
	if (a->nr_names > 2 && a->backing)
		return err_set(err, -EINVAL,
			       "Having a backing file for the target makes no sense when concatenating "
			       "multiple input images");
	if (a->nr_names > 2 && a->snapshot)
		return err_set(err, -EINVAL, "No support for concatenating multiple snapshot");
	if (a->have_sparse && !a->sparse && a->backing)
		return err_set(err, -EINVAL, "-S 0 and -B cannot be used together");
	if (a->offload && (a->have_sparse || a->compress))
		return err_set(err, -EINVAL, "Cannot enable copy offloading when -S or -c is used");
	return 0;
}

static int open_inputs(struct convert *c, struct err *err)
{
	const struct img_args *a = c->a;
	/* "snapshot.name=x" and "snapshot.id=x" too. */
	const char *snapshot =
	    a->snapshot && strncmp(a->snapshot, "snapshot.", 9) == 0 ? strchr(a->snapshot, '=') + 1 : a->snapshot;

	for (int i = 0; i < c->nr_from; i++) {
		c->from[i] = img_open_cache(a, a->names[i], a->format, false, a->source_cache, snapshot, err);
		if (!c->from[i])
			return err->code ? err->code : -EIO;
		c->starts[i + 1] = c->starts[i] + block_size(c->from[i]);
		if (c->starts[i + 1] < c->starts[i])
			return err_set(err, -EFBIG, "the inputs are too large together");
	}
	c->size = c->starts[c->nr_from];
	return 0;
}

static int open_output(struct convert *c, const char *name, const char *format, struct err *err)
{
	struct img_args make = *c->a;
	int ret = 0;

	make.quiet = true;
	make.unsafe_backing = false;
	if (!make.no_create)
		ret = img_make(&make, name, format, c->size, err);
	if (ret)
		return ret;
	make.force_share = false;
	make.image_opts = make.target_image_opts;
	c->to = img_open_cache(&make, name, make.image_opts ? NULL : format, true, make.cache, NULL, err);
	return c->to ? 0 : err->code ? err->code : -EIO;
}

int img_convert(struct img_args *a, struct err *err)
{
	const char *name = a->names[a->nr_names - 1], *format = a->out_format ? a->out_format : "raw";
	struct convert c = {.a = a, .nr_from = a->nr_names - 1};
	int ret = check_flags(a, err);

	if (ret)
		return ret;
	c.from = calloc((size_t)c.nr_from, sizeof(struct block_node *));
	c.starts = calloc((size_t)c.nr_from + 1, sizeof(*c.starts));
	ret = c.from && c.starts ? open_inputs(&c, err) : err_set(err, -ENOMEM, "out of memory");
	if (!ret)
		ret = check_target(a, name, err);
	if (!ret)
		ret = open_output(&c, name, format, err);
	if (!ret)
		ret = copy_all(&c, a->target_image_opts ? block_format(c.to) : format, err);
	block_close(c.to);
	for (int i = 0; i < c.nr_from && c.from; i++)
		block_close(c.from[i]);
	free(c.from);
	free(c.starts);
	return ret;
}
