// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Backing files: where they are and whether the image's word about them is taken.
 * Main thread, at opening.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "block/driver.h"
#include "block/image.h"

/* A relative name is relative to the overlay's folder. Always with a '/', so never a protocol. */
char *block_backing_path(const char *overlay, const char *name)
{
	const char *slash;
	char *path;

	if (strncmp(overlay, "file:", 5) == 0)
		overlay += 5;
	slash = strrchr(overlay, '/');
	if (name[0] == '/')
		return strdup(name);
	if (asprintf(&path, "%.*s/%s", slash ? (int)(slash - overlay) : 1, slash ? overlay : ".", name) < 0)
		return NULL;
	return path;
}

static int check_name(const struct block_node *n, const char *name, struct err *err)
{
	const char *p = name;

	while (isalnum((unsigned char)*p) || *p == '+' || *p == '-')
		p++;
	if (*p == ':' && p > name)
		return err_set(err, -ENOTSUP,
			       "Could not open backing file of '%s': '%s' names a protocol, and names in an image are "
			       "only taken as files",
			       n->filename, name);
	return 0;
}

static int check_unnamed_format(const struct block_node *n, const char *path, bool probe, struct err *err)
{
	const char *format = block_format(n->backing);

	if (!n->backing->probed)
		return 0;
	if (strcmp(format, "raw") != 0 && !probe)
		return err_set(err, -EINVAL,
			       "Could not open backing file of '%s': the image does not say which format '%s' has, and "
			       "it looks like %s; say it with qemu-img rebase -u -b FILE -F %s",
			       n->filename, path, format, format);
	if (strcmp(format, "raw") == 0)
		log_warn("'%s' does not say which format its backing file '%s' has: taken as raw", n->filename, path);
	return 0;
}

int block_open_backing(struct block_node *n, const struct block_open *o, const char *file, const char *format,
		       bool probe, struct err *err)
{
	struct block_open b = *o;
	struct err why = {0};
	char *path;
	int ret;

	if (o->backing) {
		n->backing = *o->backing;
		*o->backing = NULL;
		return 0;
	}
	if (!file[0] || o->no_backing)
		return 0;
	if (o->chain_depth >= BLOCK_MAX_CHAIN)
		return err_set(err, -ELOOP, "Could not open '%s': more than %u backing files", o->filename,
			       BLOCK_MAX_CHAIN);
	ret = check_name(n, file, err);
	if (ret)
		return ret;
	path = block_backing_path(n->filename, file);
	if (!path)
		return err_set(err, -ENOMEM, "out of memory");
	b.filename = path;
	b.format = format[0] ? format : NULL;
	b.read_only = true;
	/* What was asked of this image only. */
	b.data_file = b.snapshot = NULL;
	b.l2_cache_size = b.refcount_cache_size = b.cache_size = b.l2_cache_entry_size = 0;
	b.lazy_refcounts = 0;
	b.chain_depth++;
	n->backing = block_open(&b, n->loop, &why);
	if (!n->backing && why.code == -ELOOP)
		ret = err_set(err, -ELOOP, "%s", why.msg); /* once, not once a level */
	else if (!n->backing)
		ret = err_set(err, why.code ? why.code : -EIO, "Could not open backing file of '%s': %s", o->filename,
			      why.msg);
	else
		ret = check_unnamed_format(n, path, probe, err);
	free(path);
	return ret;
}
