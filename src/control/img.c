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

struct verb {
	const char *name;
	const char *flags; /* getopt's */
	int min_names, max_names;
	int (*run)(struct img_args *a, struct err *err); /* exit status, or -errno and err */
	const char *usage;
};

static const struct verb verbs[] = {
    {"create", "f:b:F:o:qu", 1, 2, img_create, "[-q] [-f FMT] [-u] [-b BACKING -F FMT] [-o OPTIONS] FILE [SIZE]"},
    {"info", "f:U", 1, 1, img_info, "[-f FMT] [-U] [--output=human|json] [--backing-chain] FILE"},
    {"map", "f:U", 1, 1, img_map, "[-f FMT] [-U] [--output=human|json] FILE"},
    {"convert", "f:O:o:B:F:qpU", 2, 2, img_convert,
     "[-q] [-p] [-U] [-f FMT] [-O FMT] [-o OPTIONS] [-B BACKING -F FMT] FILE OUTPUT"},
    {"check", "f:r:qUT:", 1, 1, img_check, "[-q] [-f FMT] [-U] [--output=human|json] [-r leaks|all] FILE"},
    {"snapshot", "f:la:c:d:qU", 1, 1, img_snapshot, "[-q] [-f FMT] [-U] [-l | -a NAME | -c NAME | -d NAME] FILE"},
    {"compare", "f:F:qpsU", 2, 2, img_compare, "[-q] [-s] [-U] [-f FMT] [-F FMT] FILE1 FILE2"},
};
static const char *const later[] = {"amend", "bench", "bitmap", "commit", "dd", "measure", "rebase", "resize"};

struct block_node *img_open(const struct img_args *a, const char *name, const char *format, bool write, struct err *err)
{
	struct block_open o = {.filename = name, .format = format, .read_only = !write, .writeback = true};

	o.discard_unmap = true;
	o.no_flush = write; /* as qemu-img: cache=unsafe for what is made anew */
	o.locking = !a->force_share;
	return block_open(&o, a->loop, err);
}

struct io_wait {
	bool done;
};

static void io_done(struct block_req *req)
{
	((struct io_wait *)req->opaque)->done = true;
}

int img_io(struct loop *l, struct block_node *n, enum block_op op, uint64_t offset, void *buf, uint64_t len)
{
	struct iovec iov = {buf, len};
	struct block_req req = {.op = op, .offset = offset, .len = len, .iov = &iov, .niov = buf ? 1 : 0};
	struct io_wait w = {false};

	req.done = io_done;
	req.opaque = &w;
	block_submit(n, &req);
	while (!w.done) {
		block_flush_queue(n);
		if (!w.done)
			loop_run_once(l, -1);
	}
	return req.result;
}

static int take_flag(struct img_args *a, int c, struct err *err)
{
	switch (c) {
	case 'f': a->format = optarg; break;
	case 'O': a->out_format = optarg; break;
	case 'b':
	case 'B': a->backing = optarg; break;
	case 'F': a->backing_format = optarg; break;
	case 'o': a->options = optarg; break;
	case 'q': a->quiet = true; break;
	case 'U': a->force_share = true; break;
	case 'p': a->progress = true; break;
	case 's': a->strict = true; break;
	case 'u': a->unsafe_backing = true; break;
	case 'r': a->repair = optarg; break;
	case 'T': break; /* the cache mode of what is only read: any will do */
	case 'l':
	case 'a':
	case 'c':
	case 'd':
		if (a->snapshot_action)
			return err_set(err, -EINVAL, "Cannot mix '-l', '-a', '-c', '-d'");
		a->snapshot_action = c;
		a->snapshot = optarg;
		break;
	case 1: a->chain = true; break;
	case 2:
		if (strcmp(optarg, "json") != 0 && strcmp(optarg, "human") != 0)
			return err_set(err, -EINVAL, "--output must be used with human or json as argument");
		a->json = strcmp(optarg, "json") == 0;
		break;
	default: return -EINVAL; /* getopt has said it */
	}
	return 0;
}

static int take_flags(const struct verb *v, struct img_args *a, int argc, char **argv, struct err *err)
{
	static const struct option longs[] = {
	    {"backing-chain", no_argument, NULL, 1}, {"output", required_argument, NULL, 2},
	    {"force-share", no_argument, NULL, 'U'}, {"repair", required_argument, NULL, 'r'},
	    {"quiet", no_argument, NULL, 'q'},	     {NULL, 0, NULL, 0},
	};
	int c, ret = 0;

	opterr = 0;
	optind = 1;
	while (!ret && (c = getopt_long(argc, argv, v->flags, longs, NULL)) != -1) {
		if (c == '?' || c == ':')
			return err_set(err, -EINVAL,
				       "%s: the flag '%s' is unknown, not implemented or lacks its argument; usage: "
				       "%s %s",
				       v->name, argv[MAX(optind - 1, 1)], v->name, v->usage);
		ret = take_flag(a, c, err);
	}
	a->names = argv + optind;
	a->nr_names = argc - optind;
	if (!ret && (a->nr_names < v->min_names || a->nr_names > v->max_names))
		ret = err_set(err, -EINVAL, "%s: %d file names or sizes were given; usage: %s %s", v->name, a->nr_names,
			      v->name, v->usage);
	return ret;
}

static int run_verb(const struct verb *v, int argc, char **argv)
{
	struct img_args a = {0};
	struct err err = {0};
	int ret;

	ret = take_flags(v, &a, argc, argv, &err);
	if (!ret) {
		a.loop = loop_create("img", &err);
		ret = a.loop ? v->run(&a, &err) : -EIO;
	}
	if (ret < 0)
		log_error("img %s: %s", v->name, err.msg);
	if (a.loop)
		loop_destroy(a.loop);
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
		if (strcmp(argv[1], verbs[i].name) == 0)
			return run_verb(&verbs[i], argc - 1, argv + 1);
	for (size_t i = 0; i < ARRAY_SIZE(later); i++)
		if (strcmp(argv[1], later[i]) == 0) {
			log_error("img: '%s' is not implemented yet", argv[1]);
			return 1;
		}
	log_error("img: there is no verb '%s'", argv[1]);
	print_usage(stderr);
	return 1;
}
