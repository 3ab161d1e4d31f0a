/* SPDX-License-Identifier: GPL-2.0-or-later */
/* `kelvin img VERB ...`: images without a machine, with the flags and output of qemu-img. */
#ifndef KELVIN_CONTROL_IMG_H
#define KELVIN_CONTROL_IMG_H

#include "block/image.h"

/* argv[0] is "img" or "qemu-img", argv[1] the verb. Returns the exit status. */
int img_main(int argc, char **argv);

/* ---- among the img files ---- */

/* What the flags said; each verb allows some. */
struct img_args {
	const char *format, *out_format, *backing, *backing_format, *options;
	const char *repair;   /* check -r */
	const char *snapshot; /* convert -l; snapshot -a, -c, -d */
	int snapshot_action;  /* 'l', 'a', 'c' or 'd' */
	bool quiet, force_share, progress, strict, json, unsafe_backing, chain;
	char *const *names; /* what is no flag */
	int nr_names;
	struct loop *loop;
};
struct block_node *img_open(const struct img_args *a, const char *name, const char *format, bool write,
			    struct err *err);
/* One request to its end. */
int img_io(struct loop *l, struct block_node *n, enum block_op op, uint64_t offset, void *buf, uint64_t len);
/* Fills a size, -o and backing options in; `size` is UINT64_MAX when it was not given. */
int img_make(const struct img_args *a, const char *name, const char *format, uint64_t size, struct err *err);

/* "1.5 GiB", three digits; returns buf. */
const char *img_size_text(uint64_t bytes, char *buf, size_t len);
int img_parse_prealloc(const char *text, enum block_prealloc *out, struct err *err);
void img_print_snapshots(const struct block_snapshot *s, unsigned nr, const char *indent);

int img_create(struct img_args *a, struct err *err);
int img_info(struct img_args *a, struct err *err);
int img_map(struct img_args *a, struct err *err);
int img_convert(struct img_args *a, struct err *err);
int img_compare(struct img_args *a, struct err *err);
int img_check(struct img_args *a, struct err *err);
int img_snapshot(struct img_args *a, struct err *err);

#endif
