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
	const char *cache, *source_cache, *size_text, *prealloc, *aio;
	bool quiet, force_share, progress, strict, json, unsafe_backing, chain, image_opts, target_image_opts;
	bool shrink, compress, no_create, out_of_order, target_is_zero, salvage, keep_data, write, no_drain, native;
	bool offload;
	uint64_t sparse, rate, base_offset, start, max_length;
	uint64_t count, depth, buffer_size, step, flush_interval, pattern, coroutines;
	bool have_pattern, have_sparse, random; /* random: ours */
	char *const *names;			/* what is no flag */
	int nr_names;
	struct loop *loop;
};
struct block_node *img_open(const struct img_args *a, const char *name, const char *format, bool write,
			    struct err *err);
/* With a cache mode by name (NULL: the default of img_open) and an internal snapshot (NULL: none). */
struct block_node *img_open_cache(const struct img_args *a, const char *name, const char *format, bool write,
				  const char *cache, const char *snapshot, struct err *err);
/* One layer of a chain, without what is under it. */
struct block_node *img_open_alone(const struct img_args *a, const char *name, const char *format, bool write,
				  const char *cache, struct err *err);
/* One request to its end. */
int img_io(struct loop *l, struct block_node *n, enum block_op op, uint64_t offset, void *buf, uint64_t len);
/* Fills a size, -o and backing options in; `size` is UINT64_MAX when it was not given. */
int img_make(const struct img_args *a, const char *name, const char *format, uint64_t size, struct err *err);
/* Length of the run of `buf` that is all zeros, or all not, looked at `grain` bytes at a time; *zero says which. */
uint64_t img_zero_run(const uint8_t *buf, uint64_t len, uint64_t grain, bool *zero);
void img_show_progress(const struct img_args *a, uint64_t done, uint64_t total);
void img_end_progress(const struct img_args *a);
/* off, metadata, falloc, full. */
int img_prealloc(const char *name, enum block_prealloc *p, struct err *err);

/* "1.5 GiB", three digits; returns buf. */
const char *img_size_text(uint64_t bytes, char *buf, size_t len);
void img_print_snapshots(const struct block_snapshot *s, unsigned nr, const char *indent);
/* The list's heading, and one line of it, without newline. */
#define IMG_SNAPSHOT_LINE 640 /* bytes that hold any line */
extern const char img_snapshot_head[];
void img_snapshot_line(const struct block_snapshot *s, char *line, size_t len);

int img_create(struct img_args *a, struct err *err);
int img_info(struct img_args *a, struct err *err);
int img_map(struct img_args *a, struct err *err);
int img_convert(struct img_args *a, struct err *err);
int img_compare(struct img_args *a, struct err *err);
int img_check(struct img_args *a, struct err *err);
int img_snapshot(struct img_args *a, struct err *err);
int img_resize(struct img_args *a, struct err *err);
int img_rebase(struct img_args *a, struct err *err);
int img_commit(struct img_args *a, struct err *err);
int img_amend(struct img_args *a, struct err *err);
int img_measure(struct img_args *a, struct err *err);
int img_dd(struct img_args *a, struct err *err);
int img_bench(struct img_args *a, struct err *err);

#endif
