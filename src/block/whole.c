// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Operations on whole images: what every format has to check once, then the
 * driver's. In the thread of the node's loop, nothing in flight.
 */
#include <errno.h>

#include "base/util.h"
#include "block/driver.h"

static int refuse(const struct block_node *n, const char *what, struct err *err)
{
	return err_set(err, -ENOTSUP, "'%s': images of format '%s' %s", n->filename, n->driver->name, what);
}

/* What changes the image: possible, allowed, and nothing may be in flight. */
static int may_change(const struct block_node *n, bool possible, const char *what, struct err *err)
{
	BUG_ON(n->inflight);
	if (!possible)
		return refuse(n, what, err);
	if (n->read_only)
		return err_set(err, -EACCES, "'%s' is open read-only", n->filename);
	return 0;
}

int block_truncate(struct block_node *n, uint64_t size, enum block_prealloc p, struct err *err)
{
	int ret = may_change(n, n->driver->truncate, "cannot be resized", err);

	if (!ret && size > INT64_MAX - 511)
		ret = err_set(err, -EFBIG, "'%s': the size is too large", n->filename);
	return ret ? ret : n->driver->truncate(n, size, p, err);
}

int block_make_empty(struct block_node *n, struct err *err)
{
	int ret = may_change(n, n->driver->make_empty, "cannot be emptied", err);

	return ret ? ret : n->driver->make_empty(n, err);
}

int block_change_backing(struct block_node *n, const char *file, const char *format, struct err *err)
{
	int ret = may_change(n, n->driver->change_backing, "have no backing file", err);

	return ret ? ret : n->driver->change_backing(n, file, format, err);
}

int block_amend(struct block_node *n, const struct block_amend *a, struct err *err)
{
	int ret = may_change(n, n->driver->amend, "have no options to amend", err);

	return ret ? ret : n->driver->amend(n, a, err);
}

int block_snapshot_list(struct block_node *n, const struct block_snapshot **out, unsigned *nr, struct err *err)
{
	*out = NULL;
	*nr = 0;
	return n->driver->snapshot_list ? n->driver->snapshot_list(n, out, nr, err) : 0;
}

bool block_has_snapshots(const struct block_node *n)
{
	return n->driver->snapshot_create != NULL;
}

int block_snapshot_create(struct block_node *n, const struct block_snapshot *want, struct err *err)
{
	int ret = may_change(n, n->driver->snapshot_create, "have no snapshots", err);

	return ret ? ret : n->driver->snapshot_create(n, want, err);
}

int block_vmstate_write(struct block_node *n, const void *buf, uint64_t pos, uint64_t len, struct err *err)
{
	int ret = may_change(n, n->driver->vmstate_write, "take no machine's state", err);

	return ret ? ret : n->driver->vmstate_write(n, buf, pos, len, err);
}

int block_vmstate_drop(struct block_node *n, struct err *err)
{
	int ret = may_change(n, n->driver->vmstate_drop, "take no machine's state", err);

	return ret ? ret : n->driver->vmstate_drop(n, err);
}

int block_vmstate_read(struct block_node *n, const char *which, void *buf, uint64_t pos, uint64_t len, struct err *err)
{
	BUG_ON(n->inflight);
	return n->driver->vmstate_read ? n->driver->vmstate_read(n, which, buf, pos, len, err)
				       : refuse(n, "have no machine's state", err);
}

int block_snapshot_apply(struct block_node *n, const char *which, struct err *err)
{
	int ret = may_change(n, n->driver->snapshot_apply, "have no snapshots", err);

	return ret ? ret : n->driver->snapshot_apply(n, which, err);
}

int block_snapshot_delete(struct block_node *n, const char *which, struct err *err)
{
	int ret = may_change(n, n->driver->snapshot_delete, "have no snapshots", err);

	return ret ? ret : n->driver->snapshot_delete(n, which, err);
}

int block_check(struct block_node *n, unsigned fix, struct block_check *c, struct err *err)
{
	BUG_ON(n->inflight);
	if (!n->driver->check)
		return refuse(n, "cannot be checked", err);
	if (fix && n->read_only)
		return err_set(err, -EACCES, "'%s' is open read-only", n->filename);
	return n->driver->check(n, fix, c, err);
}
