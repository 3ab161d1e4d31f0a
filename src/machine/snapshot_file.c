/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The stream of a snapshot: a header, then records of a type, a length and a
 * checksum over both and the payload. All numbers are little-endian. Nothing is
 * read ahead, so that a stream may be a pipe or a socket.
 */
#include "machine/snapshot_int.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/util.h"

#define MAGIC	    "KELVINVM"
#define HEADER_SIZE 16	/* magic, u32 version, u32 CRC of the 12 bytes */
#define HEAD_SIZE   16	/* u32 type, u32 CRC, u64 length */
#define POLL_MS	    100 /* how soon a cancellation is seen */

/* ---- bytes ---------------------------------------------------------------------- */

/* Wait until fd can be read or written; -ECANCELED. */
static int wait_ready(struct snap_stream *s, short events)
{
	struct pollfd p = {.fd = s->fd, .events = events};

	for (;;) {
		if (s->cancelled)
			return -ECANCELED;
		int rc = poll(&p, 1, POLL_MS);
		if (rc > 0)
			return 0;
		if (rc < 0 && errno != EINTR)
			return -errno;
	}
}

static int said(int rc, const char *what, struct err *err)
{
	return rc == -ECANCELED ? err_set(err, rc, "cancelled")
				: err_set_errno(err, rc, "cannot %s the snapshot", what);
}

static int put(struct snap_stream *s, const void *data, size_t len, struct err *err)
{
	const uint8_t *p = data;

	if (s->io) {
		s->bytes += len;
		return s->io->write(s->io->opaque, data, len, err);
	}
	while (len) {
		int rc = wait_ready(s, POLLOUT);
		ssize_t n = rc < 0 ? -1 : write(s->fd, p, MIN(len, (size_t)65536));

		if (rc < 0)
			return said(rc, "write", err);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return said(-errno, "write", err);
		p += n;
		len -= (size_t)n;
		s->bytes += (size_t)n;
	}
	return 0;
}

int snap_read(struct snap_stream *s, void *buf, size_t len, struct err *err)
{
	uint8_t *p = buf;

	if (s->io) {
		s->bytes += len;
		return s->io->read(s->io->opaque, buf, len, err);
	}
	while (len) {
		int rc = wait_ready(s, POLLIN);
		ssize_t n = rc < 0 ? -1 : read(s->fd, p, len);

		if (rc < 0)
			return said(rc, "read", err);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return said(-errno, "read", err);
		if (n == 0)
			return err_set(err, -EINVAL, "the snapshot is cut short after %llu bytes",
				       (unsigned long long)s->bytes);
		p += n;
		len -= (size_t)n;
		s->bytes += (size_t)n;
	}
	return 0;
}

/* ---- header ----------------------------------------------------------------------- */

int snap_write_header(struct snap_stream *s, struct err *err)
{
	uint8_t h[HEADER_SIZE];

	memcpy(h, MAGIC, 8);
	st32le(h + 8, SNAPSHOT_VERSION);
	st32le(h + 12, crc32c(0, h, 12));
	return put(s, h, sizeof(h), err);
}

int snap_read_header(struct snap_stream *s, struct err *err)
{
	uint8_t h[HEADER_SIZE];
	int rc = snap_read(s, h, sizeof(h), err);

	if (rc < 0)
		return rc;
	if (memcmp(h, MAGIC, 8) != 0)
		return err_set(err, -EINVAL, "this is no snapshot of Kelvin's");
	if (ld32le(h + 12) != crc32c(0, h, 12))
		return err_set(err, -EINVAL, "the snapshot is corrupted (its header)");
	if (ld32le(h + 8) > SNAPSHOT_VERSION)
		return err_set(err, -ENOTSUP,
			       "the snapshot has format version %u; this Kelvin knows up to %u: use a newer one",
			       ld32le(h + 8), SNAPSHOT_VERSION);
	return 0;
}

/* ---- records ------------------------------------------------------------------------ */

static void put_head(uint8_t b[HEAD_SIZE], const struct snap_head *h)
{
	st32le(b, h->type);
	st32le(b + 4, h->crc);
	st64le(b + 8, h->len);
}

uint32_t snap_crc_begin(const struct snap_head *h)
{
	struct snap_head clean = {.type = h->type, .len = h->len};
	uint8_t b[HEAD_SIZE];

	put_head(b, &clean);
	return crc32c(0, b, sizeof(b));
}

int snap_write(struct snap_stream *s, uint32_t type, const void *a, size_t alen, const void *b, size_t blen,
	       struct err *err)
{
	struct snap_head h = {.type = type, .len = alen + blen};
	uint8_t head[HEAD_SIZE];
	int rc;

	h.crc = crc32c(crc32c(snap_crc_begin(&h), a, alen), b, blen);
	put_head(head, &h);
	rc = put(s, head, sizeof(head), err);
	if (rc == 0)
		rc = put(s, a, alen, err);
	if (rc == 0)
		rc = put(s, b, blen, err);
	s->records++;
	return rc;
}

int snap_read_head(struct snap_stream *s, struct snap_head *h, struct err *err)
{
	uint8_t b[HEAD_SIZE];
	int rc = snap_read(s, b, sizeof(b), err);

	if (rc < 0)
		return rc;
	*h = (struct snap_head){.type = ld32le(b), .crc = ld32le(b + 4), .len = ld64le(b + 8)};
	s->records++;
	return 0;
}

int snap_check(const struct snap_head *h, uint32_t crc, struct err *err)
{
	return crc == h->crc ? 0 : err_set(err, -EINVAL, "the snapshot is corrupted (a checksum is wrong)");
}

/* Behind the last record of a file there is nothing; a socket or pipe may stay open, and is not asked. */
int snap_read_end(struct snap_stream *s, struct err *err)
{
	struct pollfd p = {.fd = s->fd, .events = POLLIN};
	uint8_t byte;

	if (!s->io && poll(&p, 1, 0) > 0 && read(s->fd, &byte, 1) == 1)
		return err_set(err, -EINVAL, "the snapshot is corrupted (bytes follow its end)");
	return 0;
}
