// SPDX-License-Identifier: GPL-2.0-or-later
/* img create, and the making of the outputs of other verbs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/type.h"
#include "base/util.h"
#include "control/img.h"

static int parse_options(const char *text, struct block_create *c, struct opts *o, struct err *err)
{
	const char *v;
	uint64_t size;
	int ret = opts_parse(text, NULL, o, err);

	if (ret)
		return ret;
	if ((v = opts_get(o, "size")) && text_parse_size(v, 1, &c->size))
		return err_set(err, -EINVAL, "Invalid image size '%s'", v);
	if ((v = opts_get(o, "cluster_size"))) {
		if (text_parse_size(v, 1, &size) || size > UINT32_MAX)
			return err_set(err, -EINVAL, "Invalid cluster_size '%s'", v);
		c->cluster_size = (uint32_t)size;
	}
	if ((v = opts_get(o, "table_size")))
		c->table_size = (uint32_t)strtoul(v, NULL, 10);
	if ((v = opts_get(o, "refcount_bits")))
		c->refcount_bits = (uint32_t)strtoul(v, NULL, 10);
	if ((v = opts_get(o, "compat"))) {
		if (strcmp(v, "0.10") != 0 && strcmp(v, "v2") != 0 && strcmp(v, "1.1") != 0 && strcmp(v, "v3") != 0)
			return err_set(err, -EINVAL, "Invalid parameter '%s' for compat (0.10 or 1.1)", v);
		c->version = strcmp(v, "0.10") == 0 || strcmp(v, "v2") == 0 ? 2 : 3;
	}
	if ((v = opts_get(o, "lazy_refcounts")))
		c->lazy_refcounts = strcmp(v, "on") == 0;
	if ((v = opts_get(o, "compression_type"))) {
		if (strcmp(v, "zlib") != 0 && strcmp(v, "zstd") != 0)
			return err_set(err, -EINVAL, "Invalid compression_type '%s' (zlib or zstd)", v);
		c->zstd = strcmp(v, "zstd") == 0;
	}
	if ((v = opts_get(o, "preallocation")) && img_prealloc(v, &c->prealloc, err))
		return err->code;
	if ((v = opts_get(o, "extended_l2")))
		c->extended_l2 = strcmp(v, "on") == 0;
	if ((v = opts_get(o, "backing_file")))
		c->backing_file = v;
	if ((v = opts_get(o, "backing_fmt")))
		c->backing_format = v;
	for (size_t i = 0; i < o->n; i++)
		if (!o->v[i].used)
			return err_set(err, -EINVAL, "Invalid or not implemented option '%s'", o->v[i].key);
	return 0;
}

/* The size of the backing file as the new image will find it. */
static int backing_size(const struct img_args *a, const struct block_create *c, uint64_t *size, struct err *err)
{
	const char *slash = strrchr(c->filename, '/');
	struct img_args shared = *a;
	struct block_node *n;
	char *path;

	if (c->backing_file[0] == '/' || !slash)
		path = strdup(c->backing_file);
	else if (asprintf(&path, "%.*s/%s", (int)(slash - c->filename), c->filename, c->backing_file) < 0)
		path = NULL;
	if (!path)
		return -ENOMEM;
	shared.force_share = true;
	n = img_open(&shared, path, c->backing_format, false, err);
	free(path);
	if (!n)
		return err->code;
	*size = block_size(n);
	block_close(n);
	return 0;
}

/* qemu-img's line. */
static void print_formatting(const struct block_create *c, struct opts *o)
{
	const bool qcow2 = strcmp(c->format, "qcow2") == 0, qed = strcmp(c->format, "qed") == 0;
	const char *prealloc = opts_get(o, "preallocation"), *v;
	const unsigned cluster = c->cluster_size ? c->cluster_size : 65536;

	printf("Formatting '%s', fmt=%s", c->filename, c->format);
	if (qcow2)
		printf(" cluster_size=%u extended_l2=%s", cluster, (v = opts_get(o, "extended_l2")) ? v : "off");
	if (prealloc && qcow2)
		printf(" preallocation=%s", prealloc);
	if (qcow2)
		printf(" compression_type=%s", c->zstd ? "zstd" : "zlib");
	printf(" size=%llu", (unsigned long long)c->size);
	if (c->backing_file)
		printf(" backing_file=%s", c->backing_file);
	if (c->backing_file && c->backing_format)
		printf(" backing_fmt=%s", c->backing_format);
	if (qed)
		printf(" cluster_size=%u", cluster);
	if (qed && c->table_size)
		printf(" table_size=%u", c->table_size);
	if (prealloc && !qcow2)
		printf(" preallocation=%s", prealloc);
	if (qcow2 && (v = opts_get(o, "compat")))
		printf(" compat=%s", v);
	if (qcow2)
		printf(" lazy_refcounts=%s refcount_bits=%u", c->lazy_refcounts ? "on" : "off",
		       c->refcount_bits ? c->refcount_bits : 16);
	printf("\n");
}

int img_make(const struct img_args *a, const char *name, const char *format, uint64_t size, struct err *err)
{
	struct block_create c = {.filename = name, .format = format, .size = size};
	struct opts o = {0};
	uint64_t of_backing = UINT64_MAX;
	int ret = 0;

	c.backing_file = a->backing;
	c.backing_format = a->backing_format;
	if (a->options)
		ret = parse_options(a->options, &c, &o, err);
	if (!ret && c.backing_file && !c.backing_format && strcmp(format, "qed") != 0)
		ret = err_set(err, -EINVAL, "%s: a backing file needs its format said: -F FMT", name);
	if (!ret && c.backing_file && (!a->unsafe_backing || c.size == UINT64_MAX))
		ret = backing_size(a, &c, &of_backing, err);
	if (c.size == UINT64_MAX)
		c.size = of_backing;
	if (!ret && c.size == UINT64_MAX)
		ret = err_set(err, -EINVAL, "Image creation needs a size parameter");
	c.size = ALIGN_UP(c.size, 512);
	if (!ret && !a->quiet && a->nr_names && a->names[0] == name)
		print_formatting(&c, &o);
	if (!ret)
		ret = block_create(&c, err);
	opts_free(&o);
	return ret;
}

int img_create(struct img_args *a, struct err *err)
{
	uint64_t size = UINT64_MAX;

	if (a->nr_names > 1 && text_parse_size(a->names[1], 1, &size))
		return err_set(err, -EINVAL, "Invalid image size '%s' (a number with k, M, G, T, P or E)", a->names[1]);
	return img_make(a, a->names[0], a->format ? a->format : "raw", size, err);
}
