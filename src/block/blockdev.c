// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * -blockdev: nodes by name. A format node is opened at once and becomes what
 * devices' drive= finds. A protocol node (file, nbd, ...) is kept as its options
 * until another node names it as file=, or a device uses it as a raw disk: so
 * that a file has one user. Main thread only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "block/drive.h"
#include "block/image.h"
#include "block/options.h"
#include "block/throttle.h"

struct described {
	char *name;
	struct opts opts;
	struct loop *loop;
	bool taken;
	struct described *next;
};
static struct described *nodes;

static struct described *find(const char *name)
{
	struct described *d = nodes;

	while (d && strcmp(d->name, name) != 0)
		d = d->next;
	return d;
}

struct opts *block_described_node(const char *name)
{
	struct described *d = find(name);

	if (d)
		d->taken = true;
	return d ? &d->opts : NULL;
}

static const struct block_open defaults = {.writeback = true, .locking = true};

static struct block_node *open_described(struct described *d, struct err *err)
{
	d->taken = true;
	return block_open_opts(&d->opts, &defaults, d->loop, err);
}

struct block_node *block_take_node(const char *name, struct err *err)
{
	struct described *d = find(name);
	struct block_node *n = d && !d->taken ? open_described(d, err) : drive_take_node(name);

	if (!n && !(err && err->code))
		err_set(err, -ENOENT, "Cannot find an unused node-name='%s'", name);
	return n;
}

struct drive *blockdev_drive(const char *name)
{
	struct described *d = find(name);
	struct err err = {0};
	struct block_node *n;

	if (!d || d->taken)
		return NULL;
	n = open_described(d, &err);
	if (!n || drive_add_node(name, n, &err)) {
		block_close(n);
		log_error("-blockdev node-name=%s: %s", name, err.msg);
		return NULL;
	}
	return drive_find(name);
}

static int describe(const char *name, struct opts *o, struct loop *l, struct err *err)
{
	struct described *d = calloc(1, sizeof(*d));

	if (d)
		d->name = strdup(name);
	if (!d || !d->name) {
		free(d);
		return err_set(err, -ENOMEM, "out of memory");
	}
	d->opts = *o;
	*o = (struct opts){0};
	d->loop = l;
	d->next = nodes;
	nodes = d;
	return 0;
}

/* driver=throttle: a group's limits on the node under it. */
static struct block_node *open_throttle(struct opts *o, struct err *err)
{
	const char *group = opts_get(o, "throttle-group"), *file = opts_get(o, "file");
	struct block_node *n;

	if (!group || !file) {
		err_set(err, -EINVAL, "-blockdev driver=throttle needs throttle-group= and file=");
		return NULL;
	}
	n = block_take_node(file, err);
	if (n && block_throttle_join(n, group, err)) {
		block_close(n);
		return NULL;
	}
	return n;
}

int blockdev_create(const char *text, struct loop *l, struct err *err)
{
	const char *name, *driver;
	struct block_node *n = NULL;
	struct opts o;
	int ret = opts_parse(text, "driver", &o, err);

	if (ret)
		return ret;
	drive_init();
	name = opts_get(&o, "node-name");
	driver = opts_get(&o, "driver");
	if (!name || !driver)
		ret =
		    err_set(err, -EINVAL,
			    name ? "Parameter 'driver' is missing" : "'node-name' must be specified for the root node");
	else if (find(name) || drive_find(name))
		ret = err_set(err, -EEXIST, "Duplicate nodes with node-name='%s'", name);
	else if (block_is_protocol(driver))
		ret = describe(name, &o, l, err);
	else if (strcmp(driver, "throttle") == 0)
		n = open_throttle(&o, err);
	else
		n = block_open_opts(&o, &defaults, l, err);
	if (n)
		ret = drive_add_node(name, n, err);
	else if (!ret && !(name && find(name)))
		ret = err && err->code ? err->code : -EIO;
	opts_free(&o);
	return ret;
}

void blockdev_free_all(void)
{
	struct described *d;

	while ((d = nodes) != NULL) {
		nodes = d->next;
		opts_free(&d->opts);
		free(d->name);
		free(d);
	}
}
