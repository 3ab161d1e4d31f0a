// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Character backends: registry, frontends, and moving bytes between a backend's
 * descriptors and its frontends.
 *
 * Input runs in the loop's thread. Output may come from any thread (a vCPU that
 * writes to its serial port): it goes straight to the descriptor, which never
 * blocks, under the chardev's lock. What happens to a connection (accept,
 * hang-up) is done by the loop's thread alone; a writer that finds the other end
 * gone only notes it and posts.
 */
#include "chr/chr.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/util.h"
#include "chr/chr_impl.h"

static const struct prop chr_base_props[] = {
    {.name = "mux", .kind = PROP_BOOL, .offset = offsetof(struct chr, mux), .help = "share it, Ctrl-a switches"},
    {.name = "logfile", .kind = PROP_STR, .offset = offsetof(struct chr, logfile), .help = "copy the output there"},
    {.name = "logappend", .kind = PROP_BOOL, .offset = offsetof(struct chr, logappend), .help = "keep old log text"},
    {.name = NULL},
};
const struct type chr_base_type = {
    .name = "chardev", .about = "a character backend", .abstract = true, .props = chr_base_props};

static const struct chr_ops *const chr_table[] = {
    &chr_stdio_ops, &chr_pty_ops, &chr_file_ops, &chr_pipe_ops, &chr_socket_ops, &chr_null_ops,
};
#define CHR_NTYPES ARRAY_SIZE(chr_table)

static struct chr *chr_list;
static void (*chr_quit_fn)(void);
static bool (*chr_interrupted_fn)(void);

/* ---- registry --------------------------------------------------------------- */

const struct type *chr_type_at(size_t i)
{
	return i < CHR_NTYPES ? &chr_table[i]->type : NULL;
}

static void *chr_lookup(const char *id)
{
	return chr_find(id);
}

/* The base type and the link family are needed before the first chardev. */
static void chr_register_once(void)
{
	static const struct type *types[CHR_NTYPES + 1];
	static bool done;

	if (done)
		return;
	done = true;
	types[0] = &chr_base_type;
	for (size_t i = 0; i < CHR_NTYPES; i++)
		types[i + 1] = &chr_table[i]->type;
	type_register(types, ARRAY_SIZE(types));
	type_register_links("chardev", chr_lookup);
}

struct chr *chr_find(const char *id)
{
	struct chr *c = chr_list;

	while (c && strcmp(c->id, id))
		c = c->next;
	return c;
}

struct chr *chr_at(size_t i)
{
	struct chr *c = chr_list;

	while (c && i--)
		c = c->next;
	return c;
}

const char *chr_id(const struct chr *c)
{
	return c->id;
}

const struct type *chr_type_of(const struct chr *c)
{
	return &c->ops->type;
}

const char *chr_describe(const struct chr *c)
{
	return c->description;
}

void chr_set_quit(void (*fn)(void))
{
	chr_quit_fn = fn;
}

void chr_set_interrupted(bool (*fn)(void))
{
	chr_interrupted_fn = fn;
}

bool chr_interrupted(void)
{
	return chr_interrupted_fn && chr_interrupted_fn();
}

void chr_quit(void)
{
	if (chr_quit_fn)
		chr_quit_fn();
}

static const struct chr_ops *chr_find_ops(const char *name, struct err *err)
{
	/* QEMU's backends that Kelvin lacks are refused by name, not as a spelling mistake. */
	static const char *const missing[] = {"udp",	  "vc",	       "msmouse",  "ringbuf", "serial",
					      "tty",	  "parport",   "parallel", "braille", "testdev",
					      "spicevmc", "spiceport", "console",  "memory",  "wctablet"};
	const char *names[CHR_NTYPES];

	for (size_t i = 0; i < CHR_NTYPES; i++) {
		names[i] = chr_table[i]->type.name;
		if (!strcmp(names[i], name))
			return chr_table[i];
	}
	for (size_t i = 0; i < ARRAY_SIZE(missing); i++)
		if (!strcmp(missing[i], name)) {
			err_set(err, -ENOTSUP, "the chardev backend '%s' does not exist in Kelvin yet", name);
			return NULL;
		}
	const char *near = text_nearest(name, names, CHR_NTYPES);
	err_set(err, -EINVAL, "there is no chardev backend '%.60s'%s%s%s", name, near ? "; did you mean '" : "",
		near ? near : "", near ? "'?" : "");
	return NULL;
}

static void chr_destroy(struct chr *c)
{
	c->gone = true;
	chr_clear_fds(c);
	if (c->ops->close)
		c->ops->close(c);
	if (c->logfd >= 0)
		close(c->logfd);
	/* Calls that other threads posted hold the pointer: let the loop run them first. */
	while (atomic_load(&c->posts))
		loop_run_once(c->loop, 0);
	type_props_free(&c->ops->type, c);
	pthread_mutex_destroy(&c->lock);
	free(c->fifo);
	free(c->id);
	free(c);
}

static int chr_open_log(struct chr *c, struct err *err)
{
	if (!c->logfile)
		return 0;
	c->logfd = open(c->logfile, O_WRONLY | O_CREAT | O_CLOEXEC | (c->logappend ? O_APPEND : O_TRUNC), 0644);
	if (c->logfd < 0)
		return err_set_errno(err, -errno, "cannot open the log file '%s'", c->logfile);
	return 0;
}

static int chr_setup(struct chr *c, struct opts *o, struct err *err)
{
	static const char *const except[] = {"backend", "id", NULL};
	int ret = type_init(&c->ops->type, c, err);

	if (!ret)
		ret = type_set_opts(&c->ops->type, c, o, except, err);
	if (!ret)
		ret = opts_check_used(o, &c->ops->type, err);
	if (!ret && c->mux) {
		c->fifo = calloc(CHR_MAX_FE, sizeof(*c->fifo));
		if (!c->fifo)
			ret = err_set_errno(err, -ENOMEM, "mux");
	}
	if (!ret)
		ret = chr_open_log(c, err);
	if (!ret)
		ret = c->ops->open(c, err);
	return ret;
}

struct chr *chr_create_opts(struct opts *o, const char *id, struct loop *l, struct err *err)
{
	chr_register_once();
	if (!o->head) {
		err_set(err, -EINVAL, "-chardev: a backend is missing (-chardev help lists them)");
		return NULL;
	}
	opts_get(o, "backend");
	opts_get(o, "id");
	const struct chr_ops *ops = chr_find_ops(o->head, err);
	if (!ops)
		return NULL;
	if (!id || !*id) {
		err_set(err, -EINVAL, "-chardev %s: an id is missing: add id=NAME", o->head);
		return NULL;
	}
	if (chr_find(id)) {
		err_set(err, -EEXIST, "chardev '%s' exists already: choose another id", id);
		return NULL;
	}
	struct chr *c = calloc(1, ops->type.size);
	if (!c || !(c->id = strdup(id))) {
		free(c);
		err_set_errno(err, -ENOMEM, "chardev '%s'", id);
		return NULL;
	}
	c->ops = ops;
	c->loop = l;
	c->rfd = c->wfd = c->logfd = c->focus = -1;
	pthread_mutex_init(&c->lock, NULL);
	if (chr_setup(c, o, err)) {
		err_prefix(err, "chardev '%s'", id);
		chr_destroy(c);
		return NULL;
	}
	struct chr **p = &chr_list;
	while (*p)
		p = &(*p)->next;
	*p = c;
	return c;
}

struct chr *chr_create(const char *text, struct loop *l, struct err *err)
{
	struct opts o;

	if (opts_parse(text, "backend", &o, err))
		return NULL;
	struct chr *c = chr_create_opts(&o, opts_get(&o, "id"), l, err);
	opts_free(&o);
	return c;
}

void chr_destroy_all(void)
{
	while (chr_list) {
		struct chr *c = chr_list;
		chr_list = c->next;
		chr_destroy(c);
	}
	chr_restore_terminals();
}

/* ---- descriptors --------------------------------------------------------------- */

static void chr_fd_event(void *arg, unsigned events);

int chr_set_fds(struct chr *c, int rfd, int wfd)
{
	int ret = rfd >= 0 ? loop_watch(c->loop, rfd, 0, chr_fd_event, c) : 0;

	if (!ret && wfd >= 0 && wfd != rfd) {
		ret = loop_watch(c->loop, wfd, 0, chr_fd_event, c);
		if (ret && rfd >= 0)
			loop_unwatch(c->loop, rfd);
	}
	if (ret)
		return ret;
	pthread_mutex_lock(&c->lock);
	c->rfd = rfd;
	c->wfd = wfd;
	c->eof = c->blocked = false;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

void chr_clear_fds(struct chr *c)
{
	pthread_mutex_lock(&c->lock);
	int rfd = c->rfd, wfd = c->wfd;
	c->rfd = c->wfd = -1;
	c->connected = false;
	c->blocked = false;
	pthread_mutex_unlock(&c->lock);
	if (rfd >= 0) {
		loop_unwatch(c->loop, rfd);
		close(rfd);
	}
	if (wfd >= 0 && wfd != rfd) {
		loop_unwatch(c->loop, wfd);
		close(wfd);
	}
}

void chr_update(struct chr *c)
{
	pthread_mutex_lock(&c->lock);
	/* A mux reads on while the guest takes nothing: Ctrl-a must keep working. */
	bool room = c->mux ? mux_room(c) > 0 : c->nslots && !atomic_load(&c->paused);
	bool read = c->rfd >= 0 && c->connected && !c->eof && room;
	bool write = c->wfd >= 0 && c->connected && c->blocked;
	pthread_mutex_unlock(&c->lock);

	unsigned r = read ? LOOP_READ : 0, w = write ? LOOP_WRITE : 0;
	if (c->rfd >= 0)
		loop_rewatch(c->loop, c->rfd, c->rfd == c->wfd ? r | w : r);
	if (c->wfd >= 0 && c->wfd != c->rfd)
		loop_rewatch(c->loop, c->wfd, w);
}

static void chr_updated(void *arg)
{
	struct chr *c = arg;

	atomic_fetch_sub(&c->posts, 1);
	if (c->gone)
		return;
	pthread_mutex_lock(&c->lock);
	bool lost = c->connected && c->eof && c->wfd >= 0 && c->rfd == c->wfd;
	bool came = !c->connected && c->ops->poll_peer && c->ops->poll_peer(c);
	pthread_mutex_unlock(&c->lock);
	if (lost && c->ops->ended)
		c->ops->ended(c);
	else if (came)
		chr_set_connected(c, true);
	if (c->mux)
		mux_drain(c);
	chr_update(c);
}

void chr_post_update(struct chr *c)
{
	atomic_fetch_add(&c->posts, 1);
	loop_post(c->loop, chr_updated, c);
}

void chr_event_all(struct chr *c, enum chr_event event)
{
	for (unsigned i = 0; i < CHR_MAX_FE; i++)
		if (c->slot[i].used && c->slot[i].fe.event)
			c->slot[i].fe.event(c->slot[i].fe.opaque, event);
}

void chr_set_connected(struct chr *c, bool connected)
{
	pthread_mutex_lock(&c->lock);
	bool changed = c->connected != connected;
	c->connected = connected;
	if (connected) {
		c->eof = c->blocked = false;
		/* The last peer may have left while its frontend had no room; nobody else lets the new one be read. */
		atomic_store(&c->paused, false);
	}
	pthread_mutex_unlock(&c->lock);
	if (changed)
		chr_event_all(c, connected ? CHR_OPENED : CHR_CLOSED);
	chr_update(c);
}

/* ---- input ---------------------------------------------------------------------- */

static struct chr_slot *chr_only_slot(struct chr *c)
{
	for (unsigned i = 0; i < CHR_MAX_FE; i++)
		if (c->slot[i].used)
			return &c->slot[i];
	return NULL;
}

size_t chr_input_room(struct chr *c)
{
	if (c->mux)
		return mux_room(c);
	struct chr_slot *s = chr_only_slot(c);
	return s ? s->fe.can_receive(s->fe.opaque) : 0;
}

void chr_input(struct chr *c, const uint8_t *buf, size_t len)
{
	struct chr_slot *s = chr_only_slot(c);

	if (c->mux)
		mux_input(c, buf, len);
	else if (s && len)
		s->fe.receive(s->fe.opaque, buf, len);
}

/* Room now, or the input is paused until chr_fe_ready. */
static size_t chr_room_or_pause(struct chr *c)
{
	size_t room = chr_input_room(c);

	if (room || c->mux)
		return room;
	atomic_store(&c->paused, true);
	/* The frontend may have made room between the question and the flag: ask again. */
	room = chr_input_room(c);
	if (room)
		atomic_store(&c->paused, false);
	return room;
}

static void chr_input_ended(struct chr *c)
{
	pthread_mutex_lock(&c->lock);
	c->eof = true;
	pthread_mutex_unlock(&c->lock);
	if (c->ops->ended)
		c->ops->ended(c);
}

static void chr_read(struct chr *c)
{
	uint8_t buf[CHR_READ_MAX];
	size_t room = chr_room_or_pause(c);

	if (!room) {
		chr_update(c);
		return;
	}
	ssize_t n = read(c->rfd, buf, MIN(room, sizeof(buf)));
	if (n > 0) {
		size_t len = c->ops->filter ? c->ops->filter(c, buf, (size_t)n) : (size_t)n;
		chr_input(c, buf, len);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		chr_input_ended(c);
		chr_update(c);
	}
}

static void chr_became_writable(struct chr *c)
{
	pthread_mutex_lock(&c->lock);
	c->blocked = false;
	pthread_mutex_unlock(&c->lock);
	chr_update(c);
	for (unsigned i = 0; i < CHR_MAX_FE; i++)
		if (c->writable[i].fn)
			c->writable[i].fn(c->writable[i].opaque);
}

static void chr_fd_event(void *arg, unsigned events)
{
	struct chr *c = arg;

	pthread_mutex_lock(&c->lock);
	bool blocked = c->blocked, eof = c->eof;
	pthread_mutex_unlock(&c->lock);
	/* The peer hung up while we do not read: nothing would tell us again but this event, for ever. */
	if ((events & (LOOP_HUP | LOOP_READ)) == LOOP_HUP && c->rfd == c->wfd && c->connected) {
		chr_input_ended(c);
		return;
	}
	if (events & (LOOP_WRITE | LOOP_HUP) && blocked)
		chr_became_writable(c);
	if ((events & (LOOP_READ | LOOP_HUP)) && c->rfd >= 0 && c->connected && !eof)
		chr_read(c);
}

void chr_fe_ready(struct chr *c, void *opaque)
{
	if (atomic_exchange(&c->paused, false))
		chr_post_update(c);
}

/* ---- output ---------------------------------------------------------------------- */

static void chr_log_output(struct chr *c, const char *buf, size_t len)
{
	/* A full disk loses log text; the machine goes on. */
	while (c->logfd >= 0 && len) {
		ssize_t n = write(c->logfd, buf, len);
		if (n <= 0 && errno != EINTR)
			break;
		if (n > 0) {
			buf += n;
			len -= (size_t)n;
		}
	}
}

size_t chr_write(struct chr *c, const void *buf, size_t len)
{
	size_t done = 0;
	bool post = false;

	pthread_mutex_lock(&c->lock);
	if (!c->connected && c->ops->poll_peer && c->ops->poll_peer(c))
		post = true;
	if (c->wfd < 0 || (!c->connected && !post) || (c->eof && c->rfd == c->wfd)) {
		done = len; /* nobody listens: dropped, as on an unplugged cable */
	} else {
		while (done < len) {
			ssize_t n = write(c->wfd, (const char *)buf + done, len - done);
			if (n > 0) {
				done += (size_t)n;
			} else if (n < 0 && errno == EAGAIN) {
				post |= !c->blocked;
				c->blocked = true;
				break;
			} else if (n < 0 && errno != EINTR) {
				/* The peer is gone. The loop's thread ends the connection. */
				post = true;
				if (c->rfd == c->wfd)
					c->eof = true;
				done = len;
			}
		}
	}
	chr_log_output(c, buf, done);
	pthread_mutex_unlock(&c->lock);
	if (post)
		chr_post_update(c);
	return done;
}

bool chr_is_mux(const struct chr *c)
{
	return c->mux;
}

bool chr_attached(const struct chr *c)
{
	return c->nslots > 0;
}

bool chr_connected(const struct chr *c)
{
	struct chr *m = (struct chr *)c;

	pthread_mutex_lock(&m->lock);
	bool connected = c->connected;
	pthread_mutex_unlock(&m->lock);
	return connected;
}

void chr_set_writable(struct chr *c, void (*fn)(void *opaque), void *opaque)
{
	int slot = -1;

	for (int i = 0; i < CHR_MAX_FE; i++) {
		if (c->writable[i].fn && c->writable[i].opaque == opaque) {
			slot = i;
			break;
		}
		if (!c->writable[i].fn && slot < 0)
			slot = i;
	}
	if (slot >= 0) {
		c->writable[slot].fn = fn;
		c->writable[slot].opaque = opaque;
	}
}

/* ---- frontends ---------------------------------------------------------------------- */

int chr_attach(struct chr *c, const struct chr_fe *fe, const char *who, struct err *err)
{
	if (!c->mux && c->nslots)
		return err_set(err, -EBUSY, "%s: chardev '%s' is used by %s already (mux=on shares it)", who, c->id,
			       chr_only_slot(c)->who);
	if (c->nslots == CHR_MAX_FE)
		return err_set(err, -EBUSY, "%s: chardev '%s' has %d users already", who, c->id, CHR_MAX_FE);
	int i = 0;
	while (c->slot[i].used)
		i++;
	c->slot[i].fe = *fe;
	c->slot[i].used = true;
	snprintf(c->slot[i].who, sizeof(c->slot[i].who), "%s", who);
	c->nslots++;
	if (c->mux) {
		c->fifo[i].len = c->fifo[i].head = 0;
		if (c->focus < 0)
			mux_set_focus(c, i);
	}
	atomic_store(&c->paused, false);
	if (chr_connected(c) && fe->event)
		fe->event(fe->opaque, CHR_OPENED);
	chr_update(c);
	return 0;
}

void chr_detach(struct chr *c, void *opaque)
{
	for (int i = 0; i < CHR_MAX_FE; i++)
		if (c->slot[i].used && c->slot[i].fe.opaque == opaque) {
			c->slot[i].used = false;
			c->nslots--;
			if (c->focus == i) {
				c->focus = -1;
				for (int k = 0; k < CHR_MAX_FE && c->focus < 0; k++)
					if (c->slot[k].used)
						mux_set_focus(c, k);
			}
		}
	chr_set_writable(c, NULL, opaque);
	chr_update(c);
}

void chr_set_focus(struct chr *c, void *opaque)
{
	for (int i = 0; c->mux && i < CHR_MAX_FE; i++)
		if (c->slot[i].used && c->slot[i].fe.opaque == opaque && c->focus != i)
			mux_set_focus(c, i);
}
