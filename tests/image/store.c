// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The test store. Writes go to the file as always; beside it the store keeps what
 * is certainly durable and the list of writes since. A flush makes durable what
 * had ended when it began.
 */
#include "store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

#define SECTOR 512u

struct store_write {
	struct store_write *next;
	uint64_t offset, len;
	uint64_t size; /* a new length of the file, if `resize`; `grow`: at least so long */
	bool resize, grow;
	uint64_t ended; /* when, in events; 0: not yet */
	uint8_t data[];
};

/* An operation in flight, in front of the caller's completion. */
struct store_op {
	struct store *s;
	enum block_op op;
	struct store_write *w;
	void (*done)(void *opaque, int ret);
	void *opaque;
	int ret;
	bool fua;
	uint64_t flush; /* when it began */
	struct store_op *next;
};

static void apply_size(uint8_t **image, uint64_t *len, uint64_t *room, uint64_t size)
{
	if (size > *room) {
		*image = realloc(*image, size);
		memset(*image + *room, 0, size - *room);
		*room = size;
	}
	if (size < *len)
		memset(*image + size, 0, *len - size);
	*len = size;
}

static void apply_length(uint8_t **image, uint64_t *len, uint64_t *room, const struct store_write *w)
{
	if (!w->grow || w->size > *len)
		apply_size(image, len, room, w->size);
}

static void apply(uint8_t **image, uint64_t *len, uint64_t *room, uint64_t offset, const uint8_t *data, uint64_t n)
{
	if (offset + n > *room) {
		uint64_t more = (offset + n) * 3 / 2;
		*image = realloc(*image, more);
		memset(*image + *room, 0, more - *room);
		*room = more;
	}
	memcpy(*image + offset, data, n);
	*len = MAX(*len, offset + n);
}

/* What had ended at `then`. */
static void make_durable(struct store *s, uint64_t then)
{
	struct store_write **p = &s->first, *w;

	s->last = NULL;
	while ((w = *p) != NULL) {
		if (!w->ended || w->ended > then) {
			s->last = w;
			p = &w->next;
			continue;
		}
		if (w->resize)
			apply_length(&s->durable, &s->len, &s->room, w);
		else
			apply(&s->durable, &s->len, &s->room, w->offset, w->data, w->len);
		*p = w->next;
		free(w);
	}
}

static void say(struct store_op *o)
{
	void (*done)(void *, int) = o->done;
	void *opaque = o->opaque;
	int ret = o->ret;

	free(o);
	done(opaque, ret);
}

static void op_done(void *opaque, int ret)
{
	struct store_op *o = opaque;
	struct store *s = o->s;

	s->running--;
	if (o->w)
		o->w->ended = o->fua ? o->flush : ++s->events;
	if ((o->op == BLOCK_FLUSH || o->fua) && ret == 0 && !s->lies) {
		s->flushes++;
		make_durable(s, o->flush);
	}
	o->ret = ret;
	if (!s->delaying) {
		say(o);
		return;
	}
	o->next = NULL;
	s->nr_held++;
	*s->held_tail = o;
	s->held_tail = &o->next;
}

static void add_write(struct store *s, struct store_write *w)
{
	if (s->last)
		s->last->next = w;
	else
		s->first = w;
	s->last = w;
}

/* In front of the caller's completion. */
static struct store_op *op_begin(struct store *s, enum block_op op, void (**done)(void *opaque, int ret), void **opaque)
{
	struct store_op *o = calloc(1, sizeof(*o));

	*o = (struct store_op){.s = s, .op = op, .done = *done, .opaque = *opaque, .flush = s->events + 1};
	s->events++;
	*done = op_done;
	*opaque = o;
	s->running++;
	s->issued++;
	return o;
}

static void begin(struct block_file_hook *hook, enum block_op op, bool fua, uint64_t offset, uint64_t len,
		  const struct iovec *iov, int niov, void (**done)(void *opaque, int ret), void **opaque)
{
	struct store *s = container_of(hook, struct store, hook);
	struct store_op *o = op_begin(s, op, done, opaque);

	o->fua = fua && op != BLOCK_READ && op != BLOCK_FLUSH;
	if (op != BLOCK_READ && op != BLOCK_FLUSH) {
		struct store_write *w = calloc(1, sizeof(*w) + len); /* discards and zeroes: zeros */
		uint64_t at = 0;
		w->offset = offset;
		w->len = len;
		for (int i = 0; i < niov && op == BLOCK_WRITE; i++) {
			memcpy(w->data + at, iov[i].iov_base, iov[i].iov_len);
			at += iov[i].iov_len;
		}
		add_write(s, w);
		o->w = w;
	}
}

static void truncated(struct block_file_hook *hook, uint64_t size)
{
	struct store *s = container_of(hook, struct store, hook);
	struct store_write *w = calloc(1, sizeof(*w));

	w->resize = true;
	w->size = size;
	w->ended = ++s->events;
	add_write(s, w);
}

/* A file made longer: lost or there, like a write. */
static void extend(struct block_file_hook *hook, uint64_t size, void (**done)(void *opaque, int ret), void **opaque)
{
	struct store *s = container_of(hook, struct store, hook);
	struct store_op *o = op_begin(s, BLOCK_WRITE, done, opaque);

	o->w = calloc(1, sizeof(*o->w));
	o->w->resize = o->w->grow = true;
	o->w->size = size;
	add_write(s, o->w);
}

void store_attach(struct store *s, struct block_node *n, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY);

	memset(s, 0, sizeof(*s));
	if (fd < 0 || fstat(fd, &st) < 0)
		abort();
	s->len = s->room = (uint64_t)st.st_size;
	s->durable = malloc(s->room + 1);
	if (read(fd, s->durable, s->room) != (ssize_t)s->room)
		abort();
	close(fd);
	s->held_tail = &s->held;
	s->hook.begin = begin;
	s->hook.truncated = truncated;
	s->hook.extend = extend;
	block_file_set_hook(n->file, &s->hook);
}

void store_detach(struct store *s, struct block_node *n)
{
	block_file_set_hook(n->file, NULL);
	for (struct store_write *w = s->first, *next; w; w = next) {
		next = w->next;
		free(w);
	}
	free(s->durable);
}

void store_crash(const struct store *s, const char *path, unsigned (*rnd)(unsigned n))
{
	uint64_t len = s->len, room = s->room, data;
	uint8_t *image = malloc(room + 1);
	const unsigned keep = rnd(5); /* none, few, ... all of what was not flushed */
	int fd;

	memcpy(image, s->durable, len);
	memset(image + len, 0, room - len);
	for (const struct store_write *w = s->first; w; w = w->next) {
		const bool torn = rnd(4) == 0;
		uint64_t step;
		if (w->resize) {
			if (rnd(4) < keep)
				apply_length(&image, &len, &room, w);
			continue;
		}
		if (!torn && rnd(4) >= keep)
			continue;
		for (uint64_t at = 0; at < w->len; at += step) {
			step = MIN(SECTOR - (w->offset + at) % SECTOR, w->len - at);
			if (!torn || rnd(4) < keep)
				apply(&image, &len, &room, w->offset + at, w->data + at, step);
		}
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	data = len;
	while (data >= SECTOR && !image[data - 1] &&
	       memcmp(image + data - SECTOR, image + data - SECTOR + 1, SECTOR - 1) == 0)
		data -= SECTOR; /* room at the end, which costs time */
	if (fd < 0 || write(fd, image, data) != (ssize_t)data || ftruncate(fd, (off_t)len))
		abort();
	close(fd);
	free(image);
}

bool store_tick(struct store *s)
{
	struct store_op *o = s->held, *next;

	if (!o)
		return false;
	s->delays++;
	s->held = NULL;
	s->nr_held = 0;
	s->held_tail = &s->held;
	for (; o; o = next) {
		next = o->next;
		say(o);
	}
	return true;
}

bool store_step(struct store *s, unsigned (*rnd)(unsigned n))
{
	struct store_op **p = &s->held, *o;

	if (!s->held)
		return false;
	for (unsigned skip = rnd(s->nr_held); skip; skip--)
		p = &(*p)->next;
	o = *p;
	*p = o->next;
	if (!o->next)
		s->held_tail = p;
	s->nr_held--;
	say(o);
	return true;
}
