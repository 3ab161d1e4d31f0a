// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * -snapshot: a temporary qcow2 overlay that takes all writes. Its file has no
 * name once it is open, so that it goes with the process however that ends; it is
 * not in /tmp, which often is the host's memory. Main thread only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "block/image.h"

static char *make_file(struct err *err)
{
	const char *dir = getenv("TMPDIR");
	char *path;
	int fd;

	if (asprintf(&path, "%s/kelvin-snapshot-XXXXXX", dir && dir[0] ? dir : "/var/tmp") < 0) {
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	fd = mkstemp(path);
	if (fd < 0) {
		err_set_errno(err, -errno, "Could not make the temporary overlay '%s' (TMPDIR names its folder)", path);
		free(path);
		return NULL;
	}
	close(fd);
	return path;
}

static struct block_node *open_overlay(const char *path, struct block_node **base, const struct block_open *o,
				       struct loop *l, struct err *err)
{
	struct block_create c = {.filename = path, .format = "qcow2", .size = block_size(*base)};
	struct block_open over = {.filename = path, .format = "qcow2", .writeback = true, .no_flush = true};

	over.backing = base;
	over.discard_unmap = true;
	over.aio = o->aio;
	over.detect_zeroes = o->detect_zeroes;
	return block_create(&c, err) ? NULL : block_open(&over, l, err);
}

struct block_node *block_open_snapshot(const struct block_open *o, struct loop *l, struct err *err)
{
	struct block_node *base = block_open(o, l, err), *n;
	char *path = base ? make_file(err) : NULL;

	n = path ? open_overlay(path, &base, o, l, err) : NULL;
	/* Not before it is open: both its making and its opening go by name. */
	if (path)
		unlink(path);
	block_close(base); /* unless the overlay took it */
	free(path);
	return n;
}
