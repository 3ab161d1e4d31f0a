// SPDX-License-Identifier: GPL-2.0-or-later
/* img resize, amend, rebase and commit: verbs that change an image that is there. One thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "control/img.h"

#define COPY_SIZE  (2 * MIB)
#define ZERO_GRAIN 4096u
#define MAX_LAYERS 64

/* ---- resize --------------------------------------------------------------------- */

static int wanted_size(const char *text, uint64_t old, uint64_t *out, struct err *err)
{
	const char sign = *text == '+' || *text == '-' ? *text : 0;
	uint64_t n;

	if (text_parse_size(text + (sign != 0), 1, &n) || text[sign != 0] == '-' || text[sign != 0] == '+')
		return err_set(err, -EINVAL, "Invalid image size '%s' (a number with k, M, G, T, P or E)", text);
	if (sign == '-' && n > old)
		return err_set(err, -EINVAL, "New image size must be positive");
	*out = sign == '-' ? old - n : sign == '+' ? old + n : n;
	if (*out > INT64_MAX - 511)
		return err_set(err, -EFBIG, "the size is too large");
	*out = ALIGN_UP(*out, 512);
	return 0;
}

static int resize(const struct img_args *a, struct block_node *n, struct err *err)
{
	enum block_prealloc p = BLOCK_PREALLOC_OFF;
	const uint64_t old = block_size(n);
	uint64_t size = 0;
	int ret = a->prealloc ? img_prealloc(a->prealloc, &p, err) : 0;

	if (!ret)
		ret = wanted_size(a->size_text, old, &size, err);
	if (ret)
		return ret;
	if (size <= old && p != BLOCK_PREALLOC_OFF)
		return err_set(err, -EINVAL, "Preallocation can only be used for growing images");
	if (size < old && !a->shrink) {
		log_warn("Shrinking an image will delete all data beyond the shrunken image's end. Before performing "
			 "such an operation, make sure there is no important data there.");
		return err_set(err, -EINVAL, "Use the --shrink option to perform a shrink operation.");
	}
	ret = block_truncate(n, size, p, err);
	if (!ret && !a->quiet)
		printf("Image resized.\n");
	return ret;
}

int img_resize(struct img_args *a, struct err *err)
{
	struct block_node *n = img_open_cache(a, a->names[0], a->format, true, "writeback", NULL, err);
	int ret = n ? resize(a, n, err) : err->code;

	block_close(n);
	return ret;
}

/* ---- amend ------------------------------------------------------------------------ */

static int fill_amend(struct opts *o, struct block_node *n, struct block_amend *am, uint64_t *size, struct err *err)
{
	const char *v;

	if (opts_get(o, "refcount_bits"))
		am->refcount_bits = (uint32_t)strtoul(opts_get(o, "refcount_bits"), NULL, 10);
	if ((v = opts_get(o, "compat"))) {
		if (strcmp(v, "0.10") != 0 && strcmp(v, "v2") != 0 && strcmp(v, "1.1") != 0 && strcmp(v, "v3") != 0)
			return err_set(err, -EINVAL, "Unknown compatibility level %s", v);
		am->version = strcmp(v, "0.10") == 0 || strcmp(v, "v2") == 0 ? 2 : 3;
	}
	if ((v = opts_get(o, "lazy_refcounts")))
		am->lazy_refcounts = strcmp(v, "on") == 0;
	if ((v = opts_get(o, "data_file_raw")))
		am->data_file_raw = strcmp(v, "on") == 0;
	am->data_file = opts_get(o, "data_file");
	if ((v = opts_get(o, "size")) && text_parse_size(v, 1, size))
		return err_set(err, -EINVAL, "Invalid image size '%s'", v);
	if (opts_get(o, "backing_file") || opts_get(o, "backing_fmt")) {
		const char *file = opts_get(o, "backing_file");
		int ret = block_change_backing(n, file && file[0] ? file : NULL, opts_get(o, "backing_fmt"), err);
		if (ret)
			return ret;
	}
	for (size_t i = 0; i < o->n; i++)
		if (!o->v[i].used)
			return err_set(err, -EINVAL, "Invalid parameter '%s', or one that cannot be amended",
				       o->v[i].key);
	return 0;
}

int img_amend(struct img_args *a, struct err *err)
{
	struct block_amend am = {.lazy_refcounts = -1, .data_file_raw = -1};
	struct block_node *n;
	uint64_t size = UINT64_MAX;
	struct opts o = {0};
	int ret;

	if (!a->options)
		return err_set(err, -EINVAL, "Must specify options (-o)");
	ret = opts_parse(a->options, NULL, &o, err);
	if (ret)
		return ret;
	n = img_open_alone(a, a->names[0], a->format, true, a->cache ? a->cache : "writeback", err);
	ret = n ? fill_amend(&o, n, &am, &size, err) : err->code;
	if (!ret)
		ret = block_amend(n, &am, err);
	if (!ret && size != UINT64_MAX)
		ret = block_truncate(n, size, BLOCK_PREALLOC_OFF, err);
	if (!ret)
		img_end_progress(a);
	block_close(n);
	opts_free(&o);
	return ret;
}

/* ---- rebase -------------------------------------------------------------------------- */

/* A chain that may end before the disk does: zeros from there on. */
static int read_past(const struct img_args *a, struct block_node *n, uint64_t at, uint8_t *buf, uint64_t len)
{
	const uint64_t size = n ? block_size(n) : 0, have = at < size ? MIN(len, size - at) : 0;

	memset(buf + have, 0, len - have);
	return have ? img_io(a->loop, n, BLOCK_READ, at, buf, have) : 0;
}

/* Copy up what differs between the old and the new backing file, where the image has nothing of its own. */
static int copy_differences(const struct img_args *a, struct block_node *n, struct block_node *base, uint8_t *buf,
			    struct err *err)
{
	uint8_t *old = buf, *new = buf + COPY_SIZE;
	struct block_extent e;
	int ret = 0;

	for (uint64_t at = 0; at < block_size(n) && !ret; at += e.len) {
		img_show_progress(a, at, block_size(n));
		ret = block_map_top(n, at, block_size(n) - at, &e);
		if (ret || e.present)
			continue;
		e.len = MIN(e.len, COPY_SIZE);
		ret = read_past(a, block_backing(n), at, old, e.len);
		if (!ret)
			ret = read_past(a, base, at, new, e.len);
		for (uint64_t i = 0, len; i < e.len && !ret; i += len) {
			bool zero = false, same = memcmp(old + i, new + i, MIN(ZERO_GRAIN, e.len - i)) == 0;
			len = MIN(ZERO_GRAIN, e.len - i);
			while (i + len < e.len &&
			       (memcmp(old + i + len, new + i + len, MIN(ZERO_GRAIN, e.len - i - len)) == 0) == same)
				len += MIN(ZERO_GRAIN, e.len - i - len);
			if (same)
				continue;
			len = MIN(len, img_zero_run(old + i, len, ZERO_GRAIN, &zero));
			ret = zero ? img_io(a->loop, n, BLOCK_WRITE_ZEROES, at + i, NULL, len)
				   : img_io(a->loop, n, BLOCK_WRITE, at + i, old + i, len);
		}
	}
	return ret ? err_set_errno(err, ret, "copying stopped") : 0;
}

static int rebase_safely(const struct img_args *a, struct block_node *n, struct err *err)
{
	uint8_t *buf = aligned_alloc(4096, 2 * COPY_SIZE);
	struct img_args shared = *a;
	struct block_node *base = NULL;
	char *path = NULL;
	int ret = buf ? 0 : err_set(err, -ENOMEM, "out of memory");

	shared.force_share = true;
	shared.image_opts = false;
	if (!ret && a->backing[0]) {
		path = block_backing_path(a->names[0], a->backing);
		base =
		    path ? img_open_cache(&shared, path, a->backing_format, false, a->source_cache, NULL, err) : NULL;
		ret = base ? 0 : err_prefix(err, "Could not open new backing file '%s'", a->backing);
	}
	if (!ret)
		ret = copy_differences(a, n, base, buf, err);
	if (!ret)
		img_end_progress(a);
	/* The copies must be durable before the name that makes them needed. */
	if (!ret)
		ret = img_io(a->loop, n, BLOCK_FLUSH, 0, NULL, 0);
	block_close(base);
	free(path);
	free(buf);
	return ret;
}

int img_rebase(struct img_args *a, struct err *err)
{
	const char *cache = a->cache ? a->cache : "writeback";
	struct block_node *n;
	int ret = 0;

	if (!a->backing)
		return err_set(err, -EINVAL, "Must specify backing file (-b) or use simple rebase mode (-u)");
	n = a->unsafe_backing ? img_open_alone(a, a->names[0], a->format, true, cache, err)
			      : img_open_cache(a, a->names[0], a->format, true, cache, NULL, err);
	if (!n)
		return err->code;
	if (!a->unsafe_backing)
		ret = rebase_safely(a, n, err);
	if (!ret)
		ret = block_change_backing(n, a->backing[0] ? a->backing : NULL, a->backing_format, err);
	block_close(n);
	return ret;
}

/* ---- commit ------------------------------------------------------------------------------ */

struct layer {
	char *path, *format; /* format NULL: not said */
};

/* The layers from the image down to the one to commit to. */
static int find_layers(const struct img_args *a, struct layer *l, int *nr, struct err *err)
{
	struct block_image_info info;
	int ret = 0;

	l[0].path = strdup(a->names[0]);
	l[0].format = a->format ? strdup(a->format) : NULL;
	for (*nr = 1; !ret; ++*nr) {
		struct layer *at = &l[*nr - 1];
		struct block_node *n;
		char *below = NULL;
		if (*nr > 1 && (!a->backing || strcmp(at->path, a->backing) == 0))
			return 0;
		if (*nr == MAX_LAYERS)
			return err_set(err, -ELOOP, "more than %d backing files", MAX_LAYERS);
		n = img_open_alone(a, at->path, at->format, false, NULL, err);
		if (!n)
			return err->code;
		block_image_info(n, &info);
		if (info.backing_file[0])
			below = block_backing_path(at->path, info.backing_file);
		else
			ret = err_set(err, -EINVAL,
				      a->backing ? "Did not find '%s' in the backing chain of '%s'"
						 : "Image does not have a backing file%s%s",
				      a->backing ? a->backing : "", a->backing ? a->names[0] : "");
		l[*nr].path = below;
		l[*nr].format = info.backing_format[0] ? strdup(info.backing_format) : NULL;
		/* "./x" is how a name without a folder is opened. */
		if (below && a->backing && strcmp(info.backing_file, a->backing) == 0) {
			free(l[*nr].path);
			l[*nr].path = strdup(a->backing);
		}
		block_close(n);
	}
	return ret;
}

/* What one layer has of its own, into the base. */
static int commit_layer(const struct img_args *a, struct block_node *from, struct block_node *base, uint8_t *buf,
			uint64_t *done, uint64_t total, struct err *err)
{
	struct block_extent e;
	int ret = 0;

	for (uint64_t at = 0; at < block_size(from) && !ret; at += e.len, *done += e.len) {
		img_show_progress(a, *done, total);
		ret = block_map_top(from, at, block_size(from) - at, &e);
		if (ret || !e.present)
			continue;
		if (e.zero) {
			ret = img_io(a->loop, base, BLOCK_WRITE_ZEROES, at, NULL, e.len);
			continue;
		}
		e.len = MIN(e.len, COPY_SIZE);
		ret = img_io(a->loop, from, BLOCK_READ, at, buf, e.len);
		if (!ret)
			ret = img_io(a->loop, base, BLOCK_WRITE, at, buf, e.len);
	}
	return ret ? err_set_errno(err, ret, "'%s': committing stopped", block_filename(from)) : 0;
}

static int commit_layers(const struct img_args *a, struct layer *l, int nr, uint8_t *buf, struct err *err)
{
	struct block_node *base =
	    img_open_cache(a, l[nr - 1].path, l[nr - 1].format, true, a->cache ? a->cache : "writeback", NULL, err);
	uint64_t done = 0;
	int ret = base ? 0 : err->code;

	for (int i = nr - 2; i >= 0 && !ret; i--) {
		struct block_node *n = img_open_alone(a, l[i].path, l[i].format, false, NULL, err);
		ret = n ? 0 : err->code;
		if (!ret && block_size(n) > block_size(base))
			ret = block_truncate(base, block_size(n), BLOCK_PREALLOC_OFF, err);
		if (!ret)
			ret = commit_layer(a, n, base, buf, &done, block_size(n) * (unsigned)(nr - 1), err);
		block_close(n);
	}
	if (!ret)
		ret = img_io(a->loop, base, BLOCK_FLUSH, 0, NULL, 0);
	block_close(base);
	return ret;
}

int img_commit(struct img_args *a, struct err *err)
{
	struct layer layers[MAX_LAYERS + 1] = {{0}};
	uint8_t *buf = aligned_alloc(4096, COPY_SIZE);
	struct block_node *top;
	int nr = 0, ret = buf ? find_layers(a, layers, &nr, err) : err_set(err, -ENOMEM, "out of memory");

	if (!ret)
		ret = commit_layers(a, layers, nr, buf, err);
	/* With -b the layers between stay as they are, and so does the image. */
	if (!ret && !a->keep_data && !a->backing) {
		top = img_open_alone(a, a->names[0], a->format, true, a->cache ? a->cache : "writeback", err);
		ret = top ? block_make_empty(top, err) : err->code;
		if (ret == -ENOTSUP)
			ret = err->code = 0; /* as with qemu-img: the data is there twice */
		block_close(top);
	}
	if (!ret)
		img_end_progress(a);
	if (!ret && !a->quiet)
		printf("Image committed.\n");
	for (int i = 0; i <= MAX_LAYERS; i++) {
		free(layers[i].path);
		free(layers[i].format);
	}
	free(buf);
	return ret;
}
