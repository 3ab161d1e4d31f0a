// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * NBD client (the protocol is https://github.com/NetworkBlockDevice/nbd's
 * proto.md) through libnbd, loaded when first used. URLs are the standard's:
 * nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=PATH, nbds:// and nbds+unix://
 * with TLS (tls-psk-file=, tls-certificates=); QEMU's older nbd:HOST:PORT and
 * nbd:unix:PATH, each with :exportname=NAME, too.
 *
 * Requests are asynchronous, one for each contiguous piece of memory. A lost
 * connection ends them with errors and stays lost, as with QEMU's reconnect-delay
 * of 0. libnbd forbids its own use inside completions: they are gathered and
 * carried out after it has returned. Locking: none; the loop's thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <libnbd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "block/dynlib.h"
#include "block/file.h"
#include "io/iothread.h"

#define CONNECT_SECONDS 30
#define MAX_PIECE	(32 * MIB) /* what every server takes */

/* The functions used, by their names without "nbd_". */
/* clang-format off */
#define NBD_FUNCTIONS(X)                                                                                               \
	X(create)                                                                                                      \
	X(close)                                                                                                       \
	X(aio_connect_uri)                                                                                             \
	X(poll) X(aio_is_ready) X(aio_is_dead) X(aio_is_closed) X(get_size) X(is_read_only) X(can_flush) X(can_trim)   \
	    X(can_zero) X(get_block_size) X(aio_pread) X(aio_pwrite) X(aio_flush) X(aio_trim) X(aio_zero)              \
		X(aio_get_fd) X(aio_get_direction) X(aio_notify_read) X(aio_notify_write) X(get_error) X(get_errno)    \
		    X(set_uri_allow_local_file) X(aio_disconnect)
/* clang-format on */
static struct {
#define X(name) __typeof__(&nbd_##name) name;
	NBD_FUNCTIONS(X)
#undef X
} lib;
static const struct dynlib_symbol symbols[] = {
#define X(name) {"nbd_" #name, (void **)&lib.name},
    NBD_FUNCTIONS(X)
#undef X
};

struct nbd_op;
struct nbd {
	struct nbd_handle *h;
	struct block_file *file;
	struct loop *loop;
	int fd; /* ours, watched, of libnbd's connection, which may close its own; -1: the connection is lost */
	unsigned events;
	uint32_t max_piece;
	bool can_flush, can_trim, can_zero, posted, said;
	unsigned in_flight; /* commands */
	struct nbd_op *finished;
	struct nbd_op *free;
};

/* A request: done when all its commands are. */
struct nbd_op {
	struct nbd *n;
	struct aio_req *req;
	unsigned pending;
	int error;
	struct nbd_op *next;
};

static void process(struct nbd *n);

static void finish(struct nbd_op *op)
{
	struct aio_req *req = op->req;
	struct nbd *n = op->n;

	req->result = -op->error;
	if (!op->error && (req->op == AIO_READV || req->op == AIO_WRITEV))
		for (int i = 0; i < req->niov; i++)
			req->result += (int64_t)req->iov[i].iov_len;
	op->next = n->free;
	n->free = op;
	req->done(req);
}

static void run_finished(struct nbd *n)
{
	struct nbd_op *op;

	while ((op = n->finished) != NULL) {
		n->finished = op->next;
		finish(op);
	}
}

static void posted(void *arg)
{
	struct nbd *n = arg;

	n->posted = false;
	process(n);
}

/* In libnbd: only remember. */
static int command_done(void *user, int *error)
{
	struct nbd_op *op = user;
	struct nbd *n = op->n;

	n->in_flight--;
	if (*error && !op->error)
		op->error = *error;
	if (--op->pending == 0) {
		op->next = n->finished;
		n->finished = op;
		if (!n->posted) {
			n->posted = true;
			loop_post(n->loop, posted, n);
		}
	}
	return 1;
}

static void lost(struct nbd *n)
{
	if (n->fd >= 0) {
		loop_unwatch(n->loop, n->fd);
		close(n->fd);
	}
	n->fd = -1;
	if (!n->said)
		log_error("NBD: the connection is lost: %s",
			  lib.get_error() ? lib.get_error() : "closed by the server");
	n->said = true;
}

/* What libnbd waits for now. */
static void update_events(struct nbd *n)
{
	const unsigned dir = lib.aio_get_direction(n->h);
	const unsigned events =
	    (dir & LIBNBD_AIO_DIRECTION_READ ? LOOP_READ : 0) | (dir & LIBNBD_AIO_DIRECTION_WRITE ? LOOP_WRITE : 0);

	if (n->fd < 0)
		return;
	if (lib.aio_is_dead(n->h) || lib.aio_is_closed(n->h)) {
		lost(n);
		return;
	}
	if (events != n->events)
		loop_rewatch(n->loop, n->fd, events);
	n->events = events;
}

static void process(struct nbd *n)
{
	run_finished(n);
	update_events(n);
}

static void on_event(void *arg, unsigned events)
{
	struct nbd *n = arg;
	const unsigned dir = lib.aio_get_direction(n->h);

	if ((events & (LOOP_READ | LOOP_HUP)) && (dir & LIBNBD_AIO_DIRECTION_READ))
		lib.aio_notify_read(n->h);
	else if ((events & LOOP_WRITE) && (dir & LIBNBD_AIO_DIRECTION_WRITE))
		lib.aio_notify_write(n->h);
	else if (events & LOOP_HUP)
		lost(n);
	process(n);
}

/* ---- requests ---------------------------------------------------------------------- */

/* False: it could not be sent. */
static bool command(struct nbd_op *op, const struct aio_req *req, uint8_t *buf, uint64_t len, uint64_t offset)
{
	const nbd_completion_callback done = {.callback = command_done, .user_data = op};
	struct nbd *n = op->n;
	int64_t cookie = -1;

	op->pending++;
	n->in_flight++;
	switch (req->op) {
	case AIO_READV: cookie = lib.aio_pread(n->h, buf, len, offset, done, 0); break;
	case AIO_WRITEV: cookie = lib.aio_pwrite(n->h, buf, len, offset, done, 0); break;
	case AIO_FDATASYNC: cookie = lib.aio_flush(n->h, done, 0); break;
	case AIO_BLKDISCARD: cookie = lib.aio_trim(n->h, len, offset, done, 0); break;
	default: cookie = lib.aio_zero(n->h, len, offset, done, req->mode ? 0 : LIBNBD_CMD_FLAG_NO_HOLE); break;
	}
	if (cookie >= 0)
		return true;
	op->pending--;
	n->in_flight--;
	if (!op->error)
		op->error = lib.get_errno() ? lib.get_errno() : EIO;
	return false;
}

/* Returns what needs no command, or 1. */
static int without_command(const struct nbd *n, const struct aio_req *req)
{
	if (n->fd < 0)
		return -EIO;
	if ((req->op == AIO_FDATASYNC && !n->can_flush) || (req->op == AIO_BLKDISCARD && !n->can_trim))
		return 0; /* no cache to flush; a discard is advice */
	if (req->op == AIO_BLKZEROOUT && !n->can_zero)
		return -EOPNOTSUPP;
	return req->op == AIO_FALLOCATE ? -EOPNOTSUPP : 1;
}

static void send_all(struct nbd_op *op, const struct aio_req *req)
{
	const struct nbd *n = op->n;
	uint64_t offset = req->offset;

	if (req->op == AIO_FDATASYNC) {
		command(op, req, NULL, 0, 0);
		return;
	}
	if (req->op != AIO_READV && req->op != AIO_WRITEV) {
		for (uint64_t left = req->len, len; left; left -= len, offset += len) {
			len = MIN(left, (uint64_t)n->max_piece);
			if (!command(op, req, NULL, len, offset))
				return;
		}
		return;
	}
	for (int i = 0; i < req->niov; i++) {
		uint8_t *buf = req->iov[i].iov_base;
		for (uint64_t left = req->iov[i].iov_len, len; left; left -= len, offset += len, buf += len) {
			len = MIN(left, (uint64_t)n->max_piece);
			if (!command(op, req, buf, len, offset))
				return;
		}
	}
}

static void store_submit(struct block_file *f, struct aio_req *req)
{
	struct nbd *n = f->store;
	struct nbd_op *op = n->free;
	int ret = without_command(n, req);

	if (ret == 1 && op)
		n->free = op->next;
	else if (ret == 1)
		op = malloc(sizeof(*op));
	if (ret == 1 && !op)
		ret = -ENOMEM;
	if (ret != 1) {
		req->result = ret;
		req->done(req);
		return;
	}
	*op = (struct nbd_op){.n = n, .req = req};
	op->pending = 1; /* not done before all commands are sent */
	send_all(op, req);
	if (--op->pending == 0) {
		op->next = n->finished;
		n->finished = op;
		if (!n->posted) {
			n->posted = true;
			loop_post(n->loop, posted, n);
		}
	}
	update_events(n);
}

/* ---- opening -------------------------------------------------------------------------- */

/* "nbd:HOST:PORT[:exportname=X]" and "nbd:unix:PATH[:exportname=X]" as URLs; heap. */
static char *old_name(const char *name)
{
	const char *p = name + 4, *export = strstr(name, ":exportname="), *port;
	const size_t len = export ? (size_t)(export - p) : strlen(p);
	char *out = NULL;
	int n;

	export = export ? export + strlen(":exportname=") : "";
	if (len > 5 && strncmp(p, "unix:", 5) == 0) {
		n = asprintf(&out, "nbd+unix:///%s?socket=%.*s", export, (int)len - 5, p + 5);
	} else {
		port = memrchr(p, ':', len);
		n = port ? asprintf(&out, "nbd://%.*s/%s", (int)len, p, export) : -1;
	}
	return n < 0 ? NULL : out;
}

static int connect_uri(struct nbd *n, const char *uri, struct err *err)
{
	const uint64_t end = clock_raw_ns() + CONNECT_SECONDS * 1000000000ull;

	n->h = lib.create();
	if (!n->h)
		return err_set(err, -ENOMEM, "Could not open '%s': %s", uri, lib.get_error());
	lib.set_uri_allow_local_file(n->h, true); /* the user names the key file, not the server */
	if (lib.aio_connect_uri(n->h, uri) < 0)
		return err_set(err, -EINVAL, "Could not open '%s': %s", uri, lib.get_error());
	while (!lib.aio_is_ready(n->h)) {
		const uint64_t now = clock_raw_ns();
		int ret = now < end ? lib.poll(n->h, (int)((end - now) / 1000000) + 1) : 0;
		if (ret < 0 || lib.aio_is_dead(n->h) || lib.aio_is_closed(n->h))
			return err_set(err, lib.get_errno() ? -lib.get_errno() : -ECONNREFUSED,
				       "Could not open '%s': %s", uri, lib.get_error() ? lib.get_error() : "refused");
		if (now >= end)
			return err_set(err, -ETIMEDOUT, "Could not open '%s': the server did not answer for %d seconds",
				       uri, CONNECT_SECONDS);
	}
	return 0;
}

static int describe(struct nbd *n, const char *uri, struct err *err)
{
	struct block_file *f = n->file;
	const int64_t size = lib.get_size(n->h), min = lib.get_block_size(n->h, LIBNBD_SIZE_MINIMUM),
		      max = lib.get_block_size(n->h, LIBNBD_SIZE_MAXIMUM);

	if (size < 0)
		return err_set(err, -EINVAL, "Could not open '%s': %s", uri, lib.get_error());
	if (min > 65536 || (min > 0 && (min & (min - 1))))
		return err_set(err, -EINVAL, "Could not open '%s': the server's block size of %lld is no use", uri,
			       (long long)min);
	f->size = (uint64_t)size;
	f->align = min > 0 ? (uint32_t)min : 1;
	f->store_read_only = lib.is_read_only(n->h) == 1;
	n->max_piece = MAX_PIECE;
	if (max >= 65536 && (uint64_t)max < MAX_PIECE)
		n->max_piece = ALIGN_DOWN((uint32_t)max, 65536);
	n->can_flush = lib.can_flush(n->h) == 1;
	n->can_trim = lib.can_trim(n->h) == 1;
	n->can_zero = lib.can_zero(n->h) == 1;
	return 0;
}

static int watch(struct nbd *n, struct loop *l)
{
	n->loop = l;
	n->events = LOOP_READ;
	return loop_watch(l, n->fd, n->events, on_event, n);
}

static void store_free(struct nbd *n)
{
	struct nbd_op *op;

	if (n->h)
		lib.close(n->h);
	if (n->fd >= 0)
		close(n->fd);
	while ((op = n->free) != NULL) {
		n->free = op->next;
		free(op);
	}
	free(n);
}

static int store_open(struct block_file *f, const char *name, const struct block_open *o, struct err *err)
{
	char *uri = strncmp(name, "nbd:", 4) == 0 && strncmp(name, "nbd://", 6) != 0 ? old_name(name) : strdup(name);
	struct nbd *n = calloc(1, sizeof(*n));
	int ret;

	if (!n || !uri) {
		free(n);
		free(uri);
		return err_set(err, -EINVAL, "Could not open '%s': not a valid NBD address", name);
	}
	n->file = f;
	n->fd = -1;
	ret = dynlib_load("libnbd.so.0", "libnbd0", symbols, ARRAY_SIZE(symbols), err);
	if (!ret)
		ret = connect_uri(n, uri, err);
	if (!ret)
		ret = describe(n, uri, err);
	if (!ret) {
		n->fd = fcntl(lib.aio_get_fd(n->h), F_DUPFD_CLOEXEC, 3);
		ret = n->fd < 0 ? -errno : watch(n, f->loop);
		if (ret)
			err_set_errno(err, ret, "Could not open '%s'", name);
	}
	free(uri);
	if (ret)
		store_free(n);
	else
		f->store = n;
	return ret;
}

static void unwatch(void *arg)
{
	struct nbd *n = arg;

	if (n->fd >= 0)
		loop_unwatch(n->loop, n->fd);
	/* What was posted but not run has nothing to do: the file is idle. */
	while (n->posted)
		loop_run_once(n->loop, 0);
}

static void store_close(struct block_file *f)
{
	struct nbd *n = f->store;

	iothread_call(n->loop, unwatch, n);
	if (n->fd >= 0)
		lib.aio_disconnect(n->h, 0);
	store_free(n);
}

static int store_set_loop(struct block_file *f, struct loop *l, struct err *err)
{
	struct nbd *n = f->store;
	int ret;

	iothread_call(n->loop, unwatch, n);
	ret = n->fd >= 0 ? watch(n, l) : 0;
	n->loop = l;
	return ret ? err_set_errno(err, ret, "NBD connection") : 0;
}

static const char *const nbd_schemes[] = {"nbd", "nbds", "nbd+unix", "nbds+unix", "nbd+vsock", "nbds+vsock", NULL};
const struct block_protocol block_nbd_protocol = {
    .schemes = nbd_schemes,
    .open = store_open,
    .close = store_close,
    .set_loop = store_set_loop,
    .submit = store_submit,
};
