// SPDX-License-Identifier: GPL-2.0-or-later
/* img info and img map: what an image is and where its data lies. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "control/img.h"
#include "control/json.h"

const char *img_size_text(uint64_t bytes, char *buf, size_t len)
{
	static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
	int e, i;

	/* 1000 KiB is already 0.977 MiB. */
	frexp((double)bytes / (1000.0 / 1024.0), &e);
	i = e > 0 ? (e - 1) / 10 : 0;
	snprintf(buf, len, "%0.3g %sB", ldexp((double)bytes, -10 * i), units[i]);
	return buf;
}

/* A relative name in an image is relative to the image's folder. */
static char *full_backing(const char *image, const char *backing)
{
	const char *slash = strrchr(image, '/');
	char *path;

	if (backing[0] == '/' || !slash)
		return strdup(backing);
	return asprintf(&path, "%.*s/%s", (int)(slash - image), image, backing) < 0 ? NULL : path;
}

static void print_info(const char *name, struct block_node *n, const struct block_image_info *i, const char *full)
{
	const struct block_snapshot *snaps;
	char virt[32], disk[32];
	unsigned nr_snaps;

	printf("image: %s\nfile format: %s\nvirtual size: %s (%llu bytes)\ndisk size: %s\n", name, block_format(n),
	       img_size_text(block_size(n), virt, sizeof(virt)), (unsigned long long)block_size(n),
	       block_host_bytes(n) == UINT64_MAX ? "unavailable"
						 : img_size_text(block_host_bytes(n), disk, sizeof(disk)));
	if (i->dirty)
		printf("cleanly shut down: no\n");
	if (i->cluster_size)
		printf("cluster_size: %u\n", i->cluster_size);
	if (i->backing_file[0]) {
		printf("backing file: %s", i->backing_file);
		if (strcmp(full, i->backing_file) != 0)
			printf(" (actual path: %s)", full);
		printf("\n");
		if (i->backing_format[0])
			printf("backing file format: %s\n", i->backing_format);
	}
	if (!i->is_qcow2)
		return;
	if (block_snapshot_list(n, &snaps, &nr_snaps, NULL) == 0 && nr_snaps) {
		printf("Snapshot list:\n");
		img_print_snapshots(snaps, nr_snaps, "");
	}
	printf("Format specific information:\n    compat: %s\n    compression type: %s\n",
	       i->version == 2 ? "0.10" : "1.1", i->zstd ? "zstd" : "zlib");
	if (i->version >= 3)
		printf("    lazy refcounts: %s\n", i->lazy_refcounts ? "true" : "false");
	printf("    refcount bits: %u\n", i->refcount_bits);
	if (i->version >= 3)
		printf("    corrupt: %s\n    extended l2: %s\n", i->corrupt ? "true" : "false",
		       i->extended_l2 ? "true" : "false");
}

static json_t *snapshots_json(const struct block_snapshot *s, unsigned nr)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < nr; i++) {
		json_t *o = json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "name", json_text(s[i].name), "id",
				      json_text(s[i].id), "vm-state-size", (json_int_t)s[i].vm_state_size, "date-sec",
				      (json_int_t)s[i].date_sec, "date-nsec", (json_int_t)s[i].date_nsec,
				      "vm-clock-sec", (json_int_t)(s[i].vm_clock_nsec / 1000000000), "vm-clock-nsec",
				      (json_int_t)(s[i].vm_clock_nsec % 1000000000));
		if (s[i].icount != UINT64_MAX)
			json_object_set_new(o, "icount", json_integer((json_int_t)s[i].icount));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *info_json(const char *name, struct block_node *n, const struct block_image_info *i, const char *full)
{
	json_t *o = json_object(), *data = json_object();
	const struct block_snapshot *snaps;
	unsigned nr_snaps;

	json_object_set_new(o, "virtual-size", json_integer((json_int_t)block_size(n)));
	json_object_set_new(o, "filename", json_text(name));
	json_object_set_new(o, "format", json_string(block_format(n)));
	if (block_host_bytes(n) != UINT64_MAX)
		json_object_set_new(o, "actual-size", json_integer((json_int_t)block_host_bytes(n)));
	json_object_set_new(o, "dirty-flag", json_boolean(i->dirty));
	if (i->cluster_size)
		json_object_set_new(o, "cluster-size", json_integer(i->cluster_size));
	if (i->backing_file[0]) {
		json_object_set_new(o, "backing-filename", json_text(i->backing_file));
		json_object_set_new(o, "full-backing-filename", json_text(full));
		if (i->backing_format[0])
			json_object_set_new(o, "backing-filename-format", json_text(i->backing_format));
	}
	if (!i->is_qcow2) {
		json_decref(data);
		return o;
	}
	if (block_snapshot_list(n, &snaps, &nr_snaps, NULL) == 0 && nr_snaps)
		json_object_set_new(o, "snapshots", snapshots_json(snaps, nr_snaps));
	json_object_set_new(data, "compat", json_string(i->version == 2 ? "0.10" : "1.1"));
	json_object_set_new(data, "compression-type", json_string(i->zstd ? "zstd" : "zlib"));
	json_object_set_new(data, "refcount-bits", json_integer(i->refcount_bits));
	if (i->version >= 3) {
		json_object_set_new(data, "lazy-refcounts", json_boolean(i->lazy_refcounts));
		json_object_set_new(data, "corrupt", json_boolean(i->corrupt));
		json_object_set_new(data, "extended-l2", json_boolean(i->extended_l2));
	}
	json_object_set_new(o, "format-specific", json_pack("{s:s, s:o}", "type", "qcow2", "data", data));
	return o;
}

static int open_alone(const struct img_args *a, const char *name, const char *format, struct block_node **out,
		      struct err *err)
{
	struct block_open o = {.filename = name, .format = format, .read_only = true, .writeback = true};

	o.locking = !a->force_share;
	o.check = true;	     /* nothing is followed or refused */
	o.no_backing = true; /* what the header says, whether the backing file is there or not */
	*out = a->image_opts ? block_open_text(o.filename, &o, a->loop, err) : block_open(&o, a->loop, err);
	return *out ? 0 : -EIO;
}

/* One image of the chain; *next is its backing file's path (heap) or NULL. */
static int info_one(const struct img_args *a, const char *name, char **format, char **next, json_t *list,
		    struct err *err)
{
	struct block_image_info i;
	struct block_node *n;
	int ret = open_alone(a, name, *format, &n, err);

	if (ret)
		return ret;
	block_image_info(n, &i);
	*next = i.backing_file[0] ? full_backing(name, i.backing_file) : NULL;
	free(*format);
	*format = i.backing_format[0] ? strdup(i.backing_format) : NULL;
	if (list)
		json_array_append_new(list, info_json(name, n, &i, *next ? *next : ""));
	else
		print_info(name, n, &i, *next ? *next : "");
	block_close(n);
	return 0;
}

int img_info(struct img_args *a, struct err *err)
{
	json_t *list = a->json ? json_array() : NULL;
	char *format = a->format ? strdup(a->format) : NULL, *name = strdup(a->names[0]), *next = NULL;
	int ret = 0;

	for (int depth = 0; name && !ret; depth++) {
		if (depth && !list)
			printf("\n");
		if (depth > 64)
			ret = err_set(err, -ELOOP, "more than 64 backing files");
		else
			ret = info_one(a, name, &format, &next, list, err);
		free(name);
		name = a->chain && !ret ? next : NULL;
		if (!name)
			free(next);
		next = NULL;
	}
	if (list && !ret) {
		json_dumpf(a->chain ? list : json_array_get(list, 0), stdout, JSON_INDENT(4));
		printf("\n");
	}
	json_decref(list);
	free(format);
	return ret;
}

static void print_extent(const struct img_args *a, uint64_t at, const struct block_extent *e, bool first)
{
	if (a->json) {
		printf(
		    "%s{ \"start\": %llu, \"length\": %llu, \"depth\": %u, \"present\": %s, \"zero\": %s, \"data\": %s",
		    first ? "" : ",\n", (unsigned long long)at, (unsigned long long)e->len, e->depth,
		    e->present ? "true" : "false", e->zero ? "true" : "false", e->data ? "true" : "false");
		if (e->has_host)
			printf(", \"offset\": %llu", (unsigned long long)e->host);
		printf("}");
	} else if (e->data && !e->zero && e->has_host) {
		printf("%#-16llx%#-16llx%#-16llx%s\n", (unsigned long long)at, (unsigned long long)e->len,
		       (unsigned long long)e->host, block_filename(e->node));
	}
}

static bool joins(const struct block_extent *a, const struct block_extent *b)
{
	return a->present == b->present && a->data == b->data && a->zero == b->zero && a->depth == b->depth &&
	       a->compressed == b->compressed && a->has_host == b->has_host && a->node == b->node &&
	       (!a->has_host || b->host == a->host + a->len);
}

int img_map(struct img_args *a, struct err *err)
{
	struct block_node *n = img_open(a, a->names[0], a->format, false, err);
	struct block_extent e, run = {0};
	uint64_t size, at = 0, start = 0;
	int ret = 0;

	if (!n)
		return -EIO;
	size = block_size(n);
	printf(a->json ? "[" : "%-16s%-16s%-16s%s\n", "Offset", "Length", "Mapped to", "File");
	for (; at < size && !ret; at += e.len) {
		ret = block_map(n, at, size - at, &e);
		if (ret)
			break;
		if (!a->json && e.compressed)
			ret = err_set(err, -EINVAL, "File contains external, encrypted or compressed clusters.");
		if (run.len && joins(&run, &e)) {
			run.len += e.len;
			continue;
		}
		if (run.len)
			print_extent(a, start, &run, start == 0);
		start = at;
		run = e;
	}
	if (!ret && (run.len || size == 0))
		print_extent(a, start, &run, start == 0);
	if (a->json && !ret)
		printf("]\n");
	block_close(n);
	return ret && !(err->code)
		   ? err_set_errno(err, ret, "'%s' cannot be read at %llu", a->names[0], (unsigned long long)at)
		   : ret;
}
