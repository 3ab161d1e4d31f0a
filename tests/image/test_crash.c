// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * test_crash [POINTS [SEED]]: power cuts. Requests run on an image over the test
 * store (store.h), their host operations ending in any order; at random moments
 * the image is taken as a power cut may leave it. It must have all that was
 * flushed, of later writes either the old or the new, and be sound but for leaked
 * clusters, which a repair gives back. With cache=unsafe things do get lost: the
 * test says how often, and fails if the store could not bring it about.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "block/image.h"
#include "io/co.h"
#include "store.h"

#define DISK	(1280u * 1024)
#define SECTORS (DISK / 512)
#define DEPTH	8

static uint64_t seed = 0x13198a2e03707344ull;
static unsigned rnd(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed >> 11) % n;
}

struct image {
	const char *name, *format, *options; /* of qemu-img create */
	bool lazy;			     /* what a crash leaves is repaired at the next opening */
	bool backing;
};
static const struct image images[] = {
    {"qcow2 64k", "qcow2", "cluster_size=64k", false, false},
    {"qcow2 512", "qcow2", "cluster_size=512", false, false},
    {"qcow2 v2 4k", "qcow2", "compat=0.10,cluster_size=4k", false, false},
    {"qcow2 lazy", "qcow2", "lazy_refcounts=on,cluster_size=4k", true, false},
    {"qcow2 extended L2", "qcow2", "extended_l2=on,cluster_size=16k", false, false},
    {"qcow2 overlay", "qcow2", "backing_file=b.raw,backing_fmt=raw,cluster_size=16k", false, true},
    {"qcow2 overlay extended L2", "qcow2", "backing_file=b.raw,backing_fmt=raw,extended_l2=on", false, true},
    {"qcow2 narrow refcounts", "qcow2", "refcount_bits=1,cluster_size=512", false, false},
    {"qed 4k", "qed", "cluster_size=4k", true, false},
    {"qed 64k", "qed", "cluster_size=64k", true, false},
    {"raw", "raw", "preallocation=off", false, false},
};
/* direct: a qcow2 file is made longer in advance, too. */
static const struct cache {
	const char *name;
	bool writeback, direct, lies;
} caches[] = {
    {"writeback", true, false, false},	{"writethrough", false, false, false}, {"none", true, true, false},
    {"directsync", false, true, false}, {"unsafe", true, false, true},
};
struct cell {
	struct image i;
	struct cache c;
};

/* Versions: every write has one, and its sectors carry it. 1 is the backing file's. */
struct model {
	uint32_t now, done[SECTORS], durable[SECTORS], issued[SECTORS], zero[SECTORS];
};
struct slot {
	struct block_req req;
	struct iovec iov;
	uint32_t version;
	bool busy;
	uint32_t *done; /* a flush: what had ended when it began */
	struct run *run;
};
struct run {
	const struct cell *cell;
	struct model m;
	struct store store;
	struct block_node *n;
	struct slot slot[DEPTH];
	unsigned points, lost, leaks;
};

static char dir[] = "/tmp/kelvin-crash-XXXXXX";
static struct loop *loop;

static void die(const struct run *r, const char *what, uint64_t at)
{
	fprintf(stderr, "FAILED: %s %s: %s (at %llu), crash point %u; the image is %s/crash\n", r->cell->i.name,
		r->cell->c.name, what, (unsigned long long)at, r->points, dir);
	exit(1);
}

static void shell(const char *cmd)
{
	char text[500];

	snprintf(text, sizeof(text), "cd %s && (%s) >log 2>&1", dir, cmd);
	if (system(text) != 0) {
		fprintf(stderr, "FAILED: %s\n", cmd);
		exit(1);
	}
}

static void stamp(uint8_t *sector, uint64_t index, uint32_t version)
{
	for (unsigned i = 0; i < 512; i += 16) {
		st64le(sector + i, index);
		st64le(sector + i + 8, version | (uint64_t)(i + 1) << 32);
	}
}

static struct block_node *open_at(const struct run *r, const char *name, bool read_only, bool check)
{
	char path[64];
	struct block_open o = {.filename = path, .format = r->cell->i.format, .aio = AIO_SYNC};
	struct err err = {0};
	struct block_node *n;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	o.writeback = r->cell->c.writeback;
	o.no_flush = r->cell->c.lies;
	o.direct = r->cell->c.direct;
	o.discard_unmap = true;
	o.read_only = read_only;
	o.check = check;
	n = block_open(&o, loop, &err);
	if (!n && !r->cell->c.lies) {
		fprintf(stderr, "%s\n", err.msg);
		die(r, "it cannot be opened", 0);
	}
	return n;
}

/* ---- after the crash ---------------------------------------------------------- */

/* NULL, or what is wrong with the sector. */
static const char *judge(const struct model *m, uint64_t i, const uint8_t *got)
{
	static const uint8_t zeros[512];
	uint8_t want[512];
	uint32_t version;

	if (memcmp(got, zeros, 512) == 0)
		return m->durable[i] == 0 || m->zero[i] >= m->durable[i] ? NULL : "flushed data is gone";
	version = (uint32_t)ld64le(got + 8);
	stamp(want, i, version);
	if (memcmp(got, want, 512) != 0)
		return "a sector has what was never written there";
	if (version > m->issued[i])
		return "a sector comes from the future";
	return version >= m->durable[i] ? NULL : "flushed data is old";
}

static const char *verify_data(struct run *r, struct block_node *n, uint64_t *at)
{
	uint8_t *buf = malloc(DISK);
	struct iovec iov = {buf, DISK};
	const char *why = block_wait(n, BLOCK_READ, 0, 0, DISK, &iov, 1) ? "it cannot be read" : NULL;

	for (*at = 0; *at < SECTORS && !why; ++*at)
		why = judge(&r->m, *at, buf + *at * 512);
	free(buf);
	return why;
}

static const char *verify_check(struct run *r, unsigned fix)
{
	struct block_check c = {0};
	struct err err = {0};
	struct block_node *n = open_at(r, "crash", !fix, true);
	const char *why = NULL;

	if (!n)
		return "it cannot be opened";
	if (block_check(n, fix, &c, &err))
		why = "it cannot be checked";
	else if (c.corruptions || c.errors)
		why = "its tables are corrupt";
	else if (fix && c.leaks && strcmp(r->cell->i.format, "qed") != 0) /* which has no place to note free clusters */
		why = "leaks are not repaired";
	r->leaks += !fix && c.leaks;
	block_close(n);
	return why;
}

static void crash(struct run *r)
{
	const bool raw = strcmp(r->cell->i.format, "raw") == 0;
	const char *why = NULL;
	struct block_node *n;
	char path[64], cmd[100];
	uint64_t at = 0;

	snprintf(path, sizeof(path), "%s/crash", dir);
	store_crash(&r->store, path, rnd);
	r->points++;
	if (!raw && !r->cell->i.lazy)
		why = verify_check(r, 0);
	if (!why && !raw && !r->cell->i.lazy && strcmp(r->cell->i.format, "qcow2") == 0 && rnd(40) == 0) {
		snprintf(cmd, sizeof(cmd), "qemu-img check crash; test $? = 0 -o $? = 3");
		shell(cmd);
	}
	if (!why) {
		n = open_at(r, "crash", false, false); /* a dirty one repairs itself here */
		why = n ? verify_data(r, n, &at) : "it cannot be opened";
		if (n)
			block_close(n);
	}
	if (!why && !raw && rnd(4) == 0) {
		why = verify_check(r, BLOCK_FIX_LEAKS);
		if (!why)
			why = verify_check(r, 0);
	}
	if (why && !r->cell->c.lies)
		die(r, why, at);
	r->lost += why != NULL;
}

/* ---- before it ------------------------------------------------------------------ */

static void slot_done(struct block_req *req)
{
	struct slot *s = req->opaque;
	struct model *m = &s->run->m;
	const bool durable = !s->run->cell->c.writeback || (req->flags & BLOCK_FUA);

	if (req->result)
		die(s->run, "a request failed", req->offset);
	if (req->op == BLOCK_FLUSH) {
		for (uint64_t i = 0; i < SECTORS; i++)
			m->durable[i] = MAX(m->durable[i], s->done[i]);
	} else if (req->op != BLOCK_DISCARD) {
		for (uint64_t i = req->offset / 512; i < (req->offset + req->len) / 512; i++) {
			m->done[i] = s->version;
			if (durable)
				m->durable[i] = s->version;
		}
	}
	free(s->done);
	free(s->iov.iov_base);
	s->done = NULL;
	s->iov.iov_base = NULL;
	s->busy = false;
}

static bool overlaps(const struct run *r, uint64_t offset, uint64_t len)
{
	for (int i = 0; i < DEPTH; i++)
		if (r->slot[i].busy && r->slot[i].req.op != BLOCK_FLUSH &&
		    offset < r->slot[i].req.offset + r->slot[i].req.len && r->slot[i].req.offset < offset + len)
			return true;
	return false;
}

static void fill(struct run *r, struct slot *s)
{
	const uint64_t first = s->req.offset / 512, n = s->req.len / 512;
	uint8_t *buf = NULL;

	s->version = ++r->m.now;
	if (s->req.op == BLOCK_WRITE) {
		buf = malloc(s->req.len);
		s->iov = (struct iovec){buf, s->req.len};
		s->req.iov = &s->iov;
		s->req.niov = 1;
	}
	for (uint64_t i = first; i < first + n; i++) {
		r->m.issued[i] = s->version;
		if (buf)
			stamp(buf + (i - first) * 512, i, s->version);
		else
			r->m.zero[i] = s->version;
	}
}

static void submit(struct run *r, struct slot *s)
{
	static const enum block_op ops[] = {BLOCK_WRITE, BLOCK_WRITE, BLOCK_WRITE,   BLOCK_WRITE,
					    BLOCK_WRITE, BLOCK_FLUSH, BLOCK_DISCARD, BLOCK_WRITE_ZEROES};
	const enum block_op op = ops[rnd(8)];
	uint64_t offset = 0, len = 0;

	if (op != BLOCK_FLUSH) {
		offset = rnd(SECTORS) * 512ull;
		len = 512ull * (1 + rnd(rnd(3) ? 16 : 200));
		len = MIN(len, DISK - offset);
		if (overlaps(r, offset, len))
			return;
	}
	*s = (struct slot){.busy = true, .run = r};
	s->req = (struct block_req){.op = op, .offset = offset, .len = len, .done = slot_done, .opaque = s};
	s->req.flags = rnd(16) == 0 && op == BLOCK_WRITE ? BLOCK_FUA : rnd(2) ? BLOCK_MAY_UNMAP : 0;
	if (op != BLOCK_FLUSH) {
		fill(r, s);
	} else {
		s->done = malloc(sizeof(r->m.done));
		memcpy(s->done, r->m.done, sizeof(r->m.done));
	}
	block_submit(r->n, &s->req);
}

/* Host operations to their ends, as far as they are not held. */
static void settle(struct run *r)
{
	do
		block_flush_queue(r->n);
	while (r->store.running && (loop_run_once(loop, 0), true));
}

static void one_image(struct run *r, unsigned points)
{
	char cmd[300], path[64];

	memset(&r->m, 0, sizeof(r->m));
	r->m.now = 1;
	snprintf(cmd, sizeof(cmd), "rm -f image; qemu-img create -f %s -o %s image %u", r->cell->i.format,
		 r->cell->i.options, DISK);
	shell(cmd);
	snprintf(path, sizeof(path), "%s/image", dir);
	for (unsigned i = 0; i < SECTORS && r->cell->i.backing; i++)
		r->m.issued[i] = r->m.durable[i] = 1;
	r->n = open_at(r, "image", false, false);
	store_attach(&r->store, r->n, path);
	r->store.delaying = true;
	r->store.lies = r->cell->c.lies;
	for (unsigned end = r->points + points; r->points < end;) {
		struct slot *s = &r->slot[rnd(DEPTH)];
		if (!s->busy && rnd(2))
			submit(r, s);
		settle(r);
		store_step(&r->store, rnd);
		settle(r);
		if (rnd(12) == 0)
			crash(r);
	}
	for (int i = 0; i < DEPTH; i++)
		while (r->slot[i].busy) {
			settle(r);
			store_step(&r->store, rnd);
		}
	r->store.delaying = false;
	block_drain(r->n);
	store_detach(&r->store, r->n);
	block_close(r->n);
}

static void make_backing(void)
{
	char path[64];
	uint8_t sector[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/b.raw", dir);
	f = fopen(path, "w");
	for (uint64_t i = 0; f && i < SECTORS; i++) {
		stamp(sector, i, 1);
		fwrite(sector, 1, 512, f);
	}
	if (!f || fclose(f))
		exit(1);
}

int main(int argc, char **argv)
{
	const unsigned points = argc > 1 ? (unsigned)atoi(argv[1]) : 280;
	struct err err = {0};
	char cmd[100];

	if (system("command -v qemu-img >/dev/null") != 0)
		return 77; /* skipped: nothing to make images with */
	if (argc > 2)
		seed ^= strtoull(argv[2], NULL, 0) * 0x9e3779b97f4a7c15ull;
	loop = loop_create("test", &err);
	if (!loop || !mkdtemp(dir))
		return 1;
	make_backing();
	for (size_t i = 0; i < ARRAY_SIZE(images) * ARRAY_SIZE(caches); i++) {
		const struct cell cell = {images[i / ARRAY_SIZE(caches)], caches[i % ARRAY_SIZE(caches)]};
		const unsigned all = ARRAY_SIZE(images) * ARRAY_SIZE(caches);
		struct run *r = calloc(1, sizeof(*r));
		r->cell = &cell;
		while (r->points < MAX(points / all, 1u))
			one_image(r, MIN(MAX(points / all, 1u) - r->points, 25u));
		printf("%-28s%-14s", cell.i.name, cell.c.name);
		if (cell.c.lies)
			printf("%u power cuts: unsafe, %u images damaged\n", r->points, r->lost);
		else
			printf("%u power cuts: all that was flushed is there, %u images had leaks\n", r->points,
			       r->leaks);
		if (cell.c.lies && r->points > 30 && !r->lost)
			die(r, "no damage although flushes were ignored: the store does not forget", 0);
		free(r);
	}
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	loop_destroy(loop);
	co_pool_free();
	return system(cmd);
}
