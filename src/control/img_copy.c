// SPDX-License-Identifier: GPL-2.0-or-later
/* img create, convert and compare. Zeros are found by the map first, then in the data, 4 KiB at a time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/type.h"
#include "base/util.h"
#include "control/img.h"

#define COPY_SIZE  (2 * MIB)
#define ZERO_GRAIN 4096u

int img_parse_prealloc(const char *text, enum block_prealloc *out, struct err *err)
{
	static const char *const names[] = {"off", "metadata", "falloc", "full"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], text) == 0) {
			*out = (enum block_prealloc)i;
			return 0;
		}
	return err_set(err, -EINVAL, "Invalid preallocation mode: '%s' (off, metadata, falloc or full)", text);
}

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
	if ((v = opts_get(o, "preallocation")) && img_parse_prealloc(v, &c->prealloc, err))
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
	if (!ret)
		ret = block_create(&c, err);
	if (!ret && !a->quiet && a->nr_names && a->names[0] == name)
		printf("Formatting '%s', fmt=%s size=%llu\n", name, format, (unsigned long long)c.size);
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

static bool is_zero(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

/* Write what is not zero of a buffer to a new image, where everything else reads zero. */
static int write_data(struct loop *l, struct block_node *to, uint64_t at, uint8_t *buf, uint64_t len)
{
	int ret = 0;

	for (uint64_t i = 0, n; i < len && !ret; i += n) {
		const bool zero = is_zero(buf + i, MIN(ZERO_GRAIN, len - i));
		n = MIN(ZERO_GRAIN, len - i);
		while (i + n < len && is_zero(buf + i + n, MIN(ZERO_GRAIN, len - i - n)) == zero)
			n += MIN(ZERO_GRAIN, len - i - n);
		if (!zero)
			ret = img_io(l, to, BLOCK_WRITE, at + i, buf + i, n);
	}
	return ret;
}

static int copy_all(struct img_args *a, struct block_node *from, struct block_node *to, struct err *err)
{
	const uint64_t size = block_size(from);
	uint8_t *buf = aligned_alloc(4096, COPY_SIZE);
	struct block_extent e;
	int ret = buf ? 0 : -ENOMEM;

	for (uint64_t at = 0; at < size && !ret; at += e.len) {
		ret = block_map(from, at, MIN(COPY_SIZE, size - at), &e);
		if (!ret && !e.zero) {
			ret = img_io(a->loop, from, BLOCK_READ, at, buf, e.len);
			if (!ret)
				ret = write_data(a->loop, to, at, buf, e.len);
		}
		if (ret)
			err_set_errno(err, ret, "copying stopped at offset %llu", (unsigned long long)at);
		else if (a->progress)
			printf("    (%.2f/100%%)\r", 100.0 * (double)(at + e.len) / (double)size);
	}
	if (a->progress && !ret)
		printf("    (100.00/100%%)\n");
	free(buf);
	return ret;
}

/* Making the output must not empty the input. */
static int check_target(const struct img_args *a, struct err *err)
{
	struct stat from, to;

	if (stat(a->names[0], &from) == 0 && stat(a->names[1], &to) == 0 && from.st_dev == to.st_dev &&
	    from.st_ino == to.st_ino)
		return err_set(err, -EINVAL, "'%s' and '%s' are the same file", a->names[0], a->names[1]);
	return 0;
}

int img_convert(struct img_args *a, struct err *err)
{
	const char *out = a->out_format ? a->out_format : "raw";
	struct img_args make = *a;
	struct block_node *from, *to = NULL;
	int ret;

	if (a->backing)
		return err_set(err, -ENOTSUP, "convert: writing an overlay (-B) is not implemented yet");
	from = img_open(a, a->names[0], a->format, false, err);
	if (!from)
		return err->code;
	make.quiet = true;
	ret = check_target(a, err);
	if (!ret)
		ret = img_make(&make, a->names[1], out, block_size(from), err);
	if (!ret) {
		make.force_share = false;
		to = img_open(&make, a->names[1], out, true, err);
		ret = to ? copy_all(a, from, to, err) : err->code;
	}
	block_close(to);
	block_close(from);
	return ret;
}

/* Compare [at, at + len) of both; past the end of one there are zeros. */
static int compare_piece(struct img_args *a, struct block_node *const *n, uint64_t at, uint64_t len,
			 uint8_t *const *buf, uint64_t *differs)
{
	for (int i = 0; i < 2; i++) {
		uint64_t size = block_size(n[i]), have = at < size ? MIN(len, size - at) : 0;
		int ret = have ? img_io(a->loop, n[i], BLOCK_READ, at, buf[i], have) : 0;
		if (ret)
			return ret;
		memset(buf[i] + have, 0, len - have);
	}
	*differs = 0;
	while (*differs < len && buf[0][*differs] == buf[1][*differs])
		++*differs;
	return 0;
}

static int compare_all(struct img_args *a, struct block_node *const *n, uint8_t *const *buf, struct err *err)
{
	const uint64_t size = MAX(block_size(n[0]), block_size(n[1]));

	if (block_size(n[0]) != block_size(n[1])) {
		if (a->strict) {
			printf("Strict mode: Image size mismatch!\n");
			return 1;
		}
		if (!a->quiet)
			printf("Warning: Image size mismatch!\n");
	}
	for (uint64_t at = 0; at < size; at += COPY_SIZE) {
		const uint64_t len = MIN(COPY_SIZE, size - at);
		uint64_t where = 0;
		int ret;
		ret = compare_piece(a, n, at, len, buf, &where);
		if (ret)
			return err_set_errno(err, ret, "reading stopped at offset %llu", (unsigned long long)at);
		if (where < len) {
			if (!a->quiet)
				printf("Content mismatch at offset %llu!\n",
				       (unsigned long long)ALIGN_DOWN(at + where, 512));
			return 1;
		}
	}
	if (!a->quiet)
		printf("Images are identical.\n");
	return 0;
}

int img_compare(struct img_args *a, struct err *err)
{
	const char *const formats[] = {a->format, a->backing_format};
	struct block_node *n[2] = {NULL, NULL};
	uint8_t *buf[2] = {aligned_alloc(4096, COPY_SIZE), aligned_alloc(4096, COPY_SIZE)};
	int ret = buf[0] && buf[1] ? 0 : err_set(err, -ENOMEM, "out of memory");

	for (int i = 0; i < 2 && !ret; i++) {
		n[i] = img_open(a, a->names[i], formats[i], false, err);
		ret = n[i] ? 0 : err->code;
	}
	if (!ret)
		ret = compare_all(a, n, buf, err);
	for (int i = 0; i < 2; i++) {
		block_close(n[i]);
		free(buf[i]);
	}
	return ret;
}
