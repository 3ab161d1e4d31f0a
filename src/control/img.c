// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * `kelvin img`: the table of verbs, their flags, opening of images. A flag of
 * qemu-img's that a verb does not have here is refused by name. One thread.
 */
#include "control/img.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "io/co.h"

enum flag_kind { FLAG_TRUE, FLAG_TEXT, FLAG_SIZE, FLAG_OPTIONS, FLAG_OUTPUT, FLAG_ACTION, FLAG_IGNORED };
struct flag {
	int letter; /* 0 ends; from LONG_ONLY on there is no letter */
	const char *name;
	enum flag_kind kind;
	size_t offset; /* in struct img_args */
	size_t given;  /* a bool there that says it was given, or 0 */
};
#define LONG_ONLY 256
#define FIELD(f)  offsetof(struct img_args, f)
#define FMT                                                                                                            \
	{                                                                                                              \
		'f', "format", FLAG_TEXT, FIELD(format), 0                                                             \
	}
#define QUIET                                                                                                          \
	{                                                                                                              \
		'q', "quiet", FLAG_TRUE, FIELD(quiet), 0                                                               \
	}
#define SHARE                                                                                                          \
	{                                                                                                              \
		'U', "force-share", FLAG_TRUE, FIELD(force_share), 0                                                   \
	}
#define PROGRESS                                                                                                       \
	{                                                                                                              \
		'p', NULL, FLAG_TRUE, FIELD(progress), 0                                                               \
	}
#define OUTPUT                                                                                                         \
	{                                                                                                              \
		LONG_ONLY, "output", FLAG_OUTPUT, 0, 0                                                                 \
	}
#define IMAGE_OPTS                                                                                                     \
	{LONG_ONLY + 1, "image-opts", FLAG_TRUE, FIELD(image_opts), 0},                                                \
	{                                                                                                              \
		LONG_ONLY + 2, "object", FLAG_IGNORED, 0, 0                                                            \
	}
#define CACHE                                                                                                          \
	{                                                                                                              \
		't', "cache", FLAG_TEXT, FIELD(cache), 0                                                               \
	}
#define SOURCE_CACHE                                                                                                   \
	{                                                                                                              \
		'T', "source-cache", FLAG_TEXT, FIELD(source_cache), 0                                                 \
	}
#define OPTIONS                                                                                                        \
	{                                                                                                              \
		'o', "options", FLAG_OPTIONS, FIELD(options), 0                                                        \
	}
#define RATE                                                                                                           \
	{                                                                                                              \
		'r', "rate-limit", FLAG_SIZE, FIELD(rate), 0                                                           \
	}

static const struct flag create_flags[] = {FMT,
					   QUIET,
					   OPTIONS,
					   {'b', "backing", FLAG_TEXT, FIELD(backing), 0},
					   {'F', "backing-format", FLAG_TEXT, FIELD(backing_format), 0},
					   {'u', NULL, FLAG_TRUE, FIELD(unsafe_backing), 0},
					   {0}};
static const struct flag info_flags[] = {
    FMT, SHARE, OUTPUT, IMAGE_OPTS, {LONG_ONLY + 3, "backing-chain", FLAG_TRUE, FIELD(chain), 0}, {0}};
static const struct flag map_flags[] = {FMT,
					SHARE,
					OUTPUT,
					IMAGE_OPTS,
					{'s', "start-offset", FLAG_SIZE, FIELD(start), 0},
					{'l', "max-length", FLAG_SIZE, FIELD(max_length), 0},
					{0}};
static const struct flag convert_flags[] = {
    FMT,
    QUIET,
    SHARE,
    PROGRESS,
    OPTIONS,
    IMAGE_OPTS,
    CACHE,
    SOURCE_CACHE,
    RATE,
    {'O', NULL, FLAG_TEXT, FIELD(out_format), 0},
    {'B', "backing", FLAG_TEXT, FIELD(backing), 0},
    {'F', "backing-format", FLAG_TEXT, FIELD(backing_format), 0},
    {'c', "compress", FLAG_TRUE, FIELD(compress), 0},
    {'n', NULL, FLAG_TRUE, FIELD(no_create), 0},
    {'W', NULL, FLAG_TRUE, FIELD(out_of_order), 0},
    {'C', NULL, FLAG_TRUE, FIELD(offload), 0},
    {'m', "parallel", FLAG_SIZE, FIELD(coroutines), 0},
    {'S', "sparse-size", FLAG_SIZE, FIELD(sparse), FIELD(have_sparse)},
    {'l', "snapshot", FLAG_TEXT, FIELD(snapshot), 0},
    {LONG_ONLY + 4, "target-is-zero", FLAG_TRUE, FIELD(target_is_zero), 0},
    {LONG_ONLY + 5, "salvage", FLAG_TRUE, FIELD(salvage), 0},
    {LONG_ONLY + 6, "target-image-opts", FLAG_TRUE, FIELD(target_image_opts), 0},
    {0}};
static const struct flag check_flags[] = {
    FMT, QUIET, SHARE, OUTPUT, IMAGE_OPTS, SOURCE_CACHE, {'r', "repair", FLAG_TEXT, FIELD(repair), 0}, {0}};
static const struct flag snapshot_flags[] = {FMT,
					     QUIET,
					     SHARE,
					     IMAGE_OPTS,
					     {'l', NULL, FLAG_ACTION, 0, 0},
					     {'a', NULL, FLAG_ACTION, 0, 0},
					     {'c', NULL, FLAG_ACTION, 0, 0},
					     {'d', NULL, FLAG_ACTION, 0, 0},
					     {0}};
static const struct flag compare_flags[] = {FMT,
					    QUIET,
					    SHARE,
					    PROGRESS,
					    IMAGE_OPTS,
					    SOURCE_CACHE,
					    {'F', NULL, FLAG_TEXT, FIELD(backing_format), 0},
					    {'s', "strict", FLAG_TRUE, FIELD(strict), 0},
					    {0}};
static const struct flag resize_flags[] = {FMT,
					   QUIET,
					   IMAGE_OPTS,
					   {LONG_ONLY + 7, "shrink", FLAG_TRUE, FIELD(shrink), 0},
					   {LONG_ONLY + 8, "preallocation", FLAG_TEXT, FIELD(prealloc), 0},
					   {0}};
static const struct flag rebase_flags[] = {FMT,
					   QUIET,
					   SHARE,
					   PROGRESS,
					   IMAGE_OPTS,
					   CACHE,
					   SOURCE_CACHE,
					   {'b', "backing", FLAG_TEXT, FIELD(backing), 0},
					   {'F', "backing-format", FLAG_TEXT, FIELD(backing_format), 0},
					   {'u', "backing-unsafe", FLAG_TRUE, FIELD(unsafe_backing), 0},
					   {0}};
static const struct flag commit_flags[] = {FMT,
					   QUIET,
					   PROGRESS,
					   IMAGE_OPTS,
					   CACHE,
					   RATE,
					   {'b', "base", FLAG_TEXT, FIELD(backing), 0},
					   {'d', "drop", FLAG_TRUE, FIELD(keep_data), 0},
					   {0}};
static const struct flag amend_flags[] = {
    FMT, QUIET, PROGRESS, IMAGE_OPTS, CACHE, OPTIONS, {LONG_ONLY + 9, "force", FLAG_IGNORED, 0, 0}, {0}};
static const struct flag measure_flags[] = {FMT,
					    SHARE,
					    OUTPUT,
					    OPTIONS,
					    IMAGE_OPTS,
					    {'O', NULL, FLAG_TEXT, FIELD(out_format), 0},
					    {'l', "snapshot", FLAG_TEXT, FIELD(snapshot), 0},
					    {LONG_ONLY + 10, "size", FLAG_TEXT, FIELD(size_text), 0},
					    {0}};
static const struct flag dd_flags[] = {FMT, SHARE, IMAGE_OPTS, {'O', NULL, FLAG_TEXT, FIELD(out_format), 0}, {0}};
static const struct flag bench_flags[] = {FMT,
					  QUIET,
					  SHARE,
					  IMAGE_OPTS,
					  CACHE,
					  {'c', "count", FLAG_SIZE, FIELD(count), 0},
					  {'d', "depth", FLAG_SIZE, FIELD(depth), 0},
					  {'i', "aio", FLAG_TEXT, FIELD(aio), 0},
					  {'n', "native", FLAG_TRUE, FIELD(native), 0},
					  {'o', "offset", FLAG_SIZE, FIELD(start), 0},
					  {'s', "buffer-size", FLAG_SIZE, FIELD(buffer_size), 0},
					  {'S', "step-size", FLAG_SIZE, FIELD(step), 0},
					  {'w', "write", FLAG_TRUE, FIELD(write), 0},
					  {LONG_ONLY + 11, "flush-interval", FLAG_SIZE, FIELD(flush_interval), 0},
					  {LONG_ONLY + 12, "no-drain", FLAG_TRUE, FIELD(no_drain), 0},
					  {LONG_ONLY + 13, "pattern", FLAG_SIZE, FIELD(pattern), FIELD(have_pattern)},
					  {LONG_ONLY + 14, "random", FLAG_TRUE, FIELD(random), 0},
					  {0}};

struct verb {
	const char *name;
	const struct flag *flags;
	int min_names, max_names;
	int (*run)(struct img_args *a, struct err *err); /* exit status, or -errno and err */
	const char *usage;
};

#define MANY 1000
static const struct verb verbs[] = {
    {"amend", amend_flags, 1, 1, img_amend, "[-q] [-p] [-f FMT] [-t CACHE] -o OPTIONS FILE"},
    {"bench", bench_flags, 1, 1, img_bench,
     "[-c COUNT] [-d DEPTH] [-f FMT] [--flush-interval=N] [-i AIO] [-n] [--no-drain] [-o OFFSET] [--pattern=N] [-q] "
     "[--random] [-s SIZE] [-S STEP] [-t CACHE] [-w] [-U] FILE"},
    {"check", check_flags, 1, 1, img_check, "[-q] [-f FMT] [-U] [--output=human|json] [-r leaks|all] FILE"},
    {"commit", commit_flags, 1, 1, img_commit, "[-q] [-p] [-f FMT] [-t CACHE] [-b BASE] [-r RATE] [-d] FILE"},
    {"compare", compare_flags, 2, 2, img_compare, "[-q] [-s] [-p] [-U] [-f FMT] [-F FMT] FILE1 FILE2"},
    {"convert", convert_flags, 2, MANY, img_convert,
     "[-q] [-p] [-U] [-c] [-n] [-W] [-C] [-f FMT] [-O FMT] [-t CACHE] [-T CACHE] [-o OPTIONS] [-B BACKING -F FMT] "
     "[-l SNAPSHOT] [-S SIZE] [-m N] [-r RATE] [--salvage] [--target-is-zero] FILE... OUTPUT"},
    {"create", create_flags, 1, 2, img_create, "[-q] [-f FMT] [-u] [-b BACKING -F FMT] [-o OPTIONS] FILE [SIZE]"},
    {"dd", dd_flags, 1, 5, img_dd, "[-f FMT] [-O FMT] [-U] [bs=SIZE] [count=N] [skip=N] if=FILE of=OUTPUT"},
    {"info", info_flags, 1, 1, img_info, "[-f FMT] [-U] [--output=human|json] [--backing-chain] FILE"},
    {"map", map_flags, 1, 1, img_map, "[-f FMT] [-U] [--start-offset=N] [--max-length=N] [--output=human|json] FILE"},
    {"measure", measure_flags, 0, 1, img_measure,
     "[--output=human|json] [-O FMT] [-f FMT] [-o OPTIONS] [-l SNAPSHOT] [-U] --size SIZE | FILE"},
    {"rebase", rebase_flags, 1, 1, img_rebase,
     "[-q] [-p] [-U] [-f FMT] [-t CACHE] [-T CACHE] [-u] -b BACKING [-F FMT] FILE"},
    {"resize", resize_flags, 2, 2, img_resize, "[-q] [-f FMT] [--shrink] [--preallocation=MODE] FILE [+|-]SIZE"},
    {"snapshot", snapshot_flags, 1, 1, img_snapshot, "[-q] [-f FMT] [-U] [-l | -a NAME | -c NAME | -d NAME] FILE"},
};
static const char *const later[] = {"bitmap"};

struct block_node *img_open_cache(const struct img_args *a, const char *name, const char *format, bool write,
				  const char *cache, const char *snapshot, struct err *err)
{
	struct block_open o = {.filename = name, .format = format, .read_only = !write, .writeback = true};

	o.discard_unmap = true;
	o.no_flush = write; /* as qemu-img: cache=unsafe for what is made anew */
	o.locking = !a->force_share;
	o.snapshot = snapshot;
	if (cache && block_set_cache(&o, cache, err))
		return NULL;
	return a->image_opts ? block_open_text(name, &o, a->loop, err) : block_open(&o, a->loop, err);
}

struct block_node *img_open(const struct img_args *a, const char *name, const char *format, bool write, struct err *err)
{
	return img_open_cache(a, name, format, write, NULL, NULL, err);
}

struct block_node *img_open_alone(const struct img_args *a, const char *name, const char *format, bool write,
				  const char *cache, struct err *err)
{
	struct block_open o = {.filename = name, .format = format, .read_only = !write, .writeback = true};

	o.locking = !a->force_share;
	o.no_backing = true;
	o.discard_unmap = true;
	if (cache && block_set_cache(&o, cache, err))
		return NULL;
	return a->image_opts ? block_open_text(name, &o, a->loop, err) : block_open(&o, a->loop, err);
}

int img_io(struct loop *l, struct block_node *n, enum block_op op, uint64_t offset, void *buf, uint64_t len)
{
	struct iovec iov = {buf, len};

	return block_wait(n, op, 0, offset, len, &iov, buf ? 1 : 0);
}

void img_show_progress(const struct img_args *a, uint64_t done, uint64_t total)
{
	if (!a->progress || a->quiet)
		return;
	printf("    (%.2f/100%%)\r", total ? 100.0 * (double)done / (double)total : 100.0);
	fflush(stdout);
}

void img_end_progress(const struct img_args *a)
{
	if (a->progress && !a->quiet)
		printf("    (100.00/100%%)\n");
}

int img_prealloc(const char *name, enum block_prealloc *p, struct err *err)
{
	static const char *const names[] = {"off", "metadata", "falloc", "full"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0) {
			*p = (enum block_prealloc)i;
			return 0;
		}
	return err_set(err, -EINVAL, "Invalid preallocation mode '%s' (off, metadata, falloc or full)", name);
}

/* Several -o are one list. */
static int join_options(struct img_args *a, char **joined, struct err *err)
{
	char *text;

	if (!a->options) {
		a->options = optarg;
		return 0;
	}
	if (asprintf(&text, "%s,%s", a->options, optarg) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	free(*joined);
	a->options = *joined = text;
	return 0;
}

static int take_flag(struct img_args *a, const struct flag *f, char **joined, struct err *err)
{
	char *field = (char *)a + f->offset;

	if (f->given)
		*(bool *)((char *)a + f->given) = true;
	switch (f->kind) {
	case FLAG_TRUE: *(bool *)field = true; return 0;
	case FLAG_TEXT: *(const char **)field = optarg; return 0;
	case FLAG_OPTIONS: return join_options(a, joined, err);
	case FLAG_SIZE:
		if (text_parse_size(optarg, 1, (uint64_t *)field))
			return err_set(err, -EINVAL, "Invalid %s '%s' (a number with k, M, G, T, P or E)",
				       f->name ? f->name : "number", optarg);
		return 0;
	case FLAG_OUTPUT:
		if (strcmp(optarg, "json") != 0 && strcmp(optarg, "human") != 0)
			return err_set(err, -EINVAL, "--output must be used with human or json as argument");
		a->json = strcmp(optarg, "json") == 0;
		return 0;
	case FLAG_ACTION:
		if (a->snapshot_action)
			return err_set(err, -EINVAL, "Cannot mix '-l', '-a', '-c', '-d'");
		a->snapshot_action = f->letter;
		a->snapshot = optarg;
		return 0;
	case FLAG_IGNORED: return 0;
	}
	return 0;
}

#define MAX_FLAGS 40
static bool takes_value(const struct flag *f)
{
	return f->kind != FLAG_TRUE && (f->kind != FLAG_IGNORED || strcmp(f->name, "force") != 0) &&
	       (f->kind != FLAG_ACTION || f->letter != 'l');
}

/* getopt's view of a verb's flags. */
static void flag_tables(const struct verb *v, char *letters, struct option *longs)
{
	int n = 0;

	for (const struct flag *f = v->flags; f->letter; f++) {
		if (f->letter < LONG_ONLY) {
			*letters++ = (char)f->letter;
			if (takes_value(f))
				*letters++ = ':';
		}
		if (f->name)
			longs[n++] = (struct option){f->name, takes_value(f), NULL, f->letter};
	}
	*letters = 0;
	longs[n] = (struct option){0};
}

static int take_flags(const struct verb *v, struct img_args *a, int argc, char **argv, char **joined, struct err *err)
{
	struct option longs[MAX_FLAGS];
	char letters[2 * MAX_FLAGS];
	const struct flag *f;
	int c, ret = 0;

	flag_tables(v, letters, longs);
	opterr = 0;
	optind = 1;
	/* The size of resize may begin with '-'. */
	if (v->run == img_resize && argc > 1)
		a->size_text = argv[--argc];
	while (!ret && (c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		for (f = v->flags; f->letter && f->letter != c; f++)
			;
		if (!f->letter)
			return err_set(err, -EINVAL,
				       "%s: the flag '%s' is unknown, not implemented or lacks its argument; usage: "
				       "%s %s",
				       v->name, argv[MAX(optind - 1, 1)], v->name, v->usage);
		ret = take_flag(a, f, joined, err);
	}
	a->names = argv + optind;
	a->nr_names = argc - optind;
	argc = a->nr_names + (v->run == img_resize);
	if (!ret && (argc < v->min_names || argc > v->max_names))
		ret = err_set(err, -EINVAL, "%s: %d file names or sizes were given; usage: %s %s", v->name, argc,
			      v->name, v->usage);
	if (!ret && a->image_opts && a->format)
		ret = err_set(err, -EINVAL, "--image-opts and --format are mutually exclusive");
	return ret;
}

static int run_verb(const struct verb *v, int argc, char **argv)
{
	struct img_args a = {0};
	struct err err = {0};
	char *joined = NULL;
	int ret;

	ret = take_flags(v, &a, argc, argv, &joined, &err);
	if (!ret) {
		a.loop = loop_create("img", &err);
		if (a.loop)
			loop_set_patient(a.loop);
		ret = a.loop ? v->run(&a, &err) : -EIO;
	}
	if (ret < 0)
		log_error("img %s: %s", v->name, err.msg);
	if (a.loop)
		loop_destroy(a.loop);
	free(joined);
	co_pool_free();
	/* compare: 1 is "they differ", errors are 2 and more. */
	return ret >= 0 ? ret : strcmp(v->name, "compare") == 0 ? 2 : 1;
}

static void print_usage(FILE *to)
{
	fprintf(to, "usage: kelvin img VERB ...   (qemu-img's flags; also through a link named qemu-img)\n");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].usage);
}

int img_main(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_usage(argc < 2 ? stderr : stdout);
		return argc < 2;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		printf("kelvin img version " KELVIN_VERSION "\n");
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(argv[1], verbs[i].name) == 0) {
			if (argc == 3 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0)) {
				printf("usage: kelvin img %s %s\n", verbs[i].name, verbs[i].usage);
				return 0;
			}
			return run_verb(&verbs[i], argc - 1, argv + 1);
		}
	for (size_t i = 0; i < ARRAY_SIZE(later); i++)
		if (strcmp(argv[1], later[i]) == 0) {
			log_error("img: '%s' is not implemented yet", argv[1]);
			return 1;
		}
	log_error("img: there is no verb '%s'", argv[1]);
	print_usage(stderr);
	return 1;
}
