// SPDX-License-Identifier: GPL-2.0-or-later
/* img dd: operands as dd's, formats as convert's. One thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "control/img.h"

struct dd {
	const char *in, *out;
	uint64_t block, count, skip;
	bool have_count;
};

static int take_operands(const struct img_args *a, struct dd *d, struct err *err)
{
	for (int i = 0; i < a->nr_names; i++) {
		const char *eq = strchr(a->names[i], '=');
		const size_t n = eq ? (size_t)(eq - a->names[i]) : 0;
		uint64_t *number = NULL;
		if (n == 2 && strncmp(a->names[i], "if", 2) == 0)
			d->in = eq + 1;
		else if (n == 2 && strncmp(a->names[i], "of", 2) == 0)
			d->out = eq + 1;
		else if (n == 2 && strncmp(a->names[i], "bs", 2) == 0)
			number = &d->block;
		else if (n == 5 && strncmp(a->names[i], "count", 5) == 0)
			number = &d->count;
		else if (n == 4 && strncmp(a->names[i], "skip", 4) == 0)
			number = &d->skip;
		else
			return err_set(err, -EINVAL, "unrecognized operand %s", a->names[i]);
		d->have_count = d->have_count || number == &d->count;
		if (number && (text_parse_size(eq + 1, 1, number) || (number == &d->block && !*number)))
			return err_set(err, -EINVAL, "invalid number: '%s'", eq + 1);
	}
	if (!d->in || !d->out)
		return err_set(err, -EINVAL, "Must specify both input and output file names");
	if (d->block > INT32_MAX)
		return err_set(err, -EINVAL, "invalid number: bs is too large");
	return 0;
}

static int copy(const struct img_args *a, struct block_node *from, struct block_node *to, uint64_t start, uint64_t len,
		struct err *err)
{
	const uint64_t piece = MIB;
	uint8_t *buf = aligned_alloc(4096, piece);
	int ret = buf ? 0 : -ENOMEM;

	/* The last piece of a raw output may end inside a sector: nodes are whole sectors, so read and write those. */
	for (uint64_t at = 0; at < len && !ret; at += piece) {
		const uint64_t n = MIN(piece, len - at);
		bool zero = false;
		memset(buf, 0, piece);
		ret = img_io(a->loop, from, BLOCK_READ, start + at, buf, n);
		if (!ret && !(img_zero_run(buf, n, n, &zero) == n && zero))
			ret = img_io(a->loop, to, BLOCK_WRITE, at, buf, n);
	}
	free(buf);
	return ret ? err_set_errno(err, ret, "error while copying") : 0;
}

int img_dd(struct img_args *a, struct err *err)
{
	const char *format = a->out_format ? a->out_format : "raw";
	struct dd d = {.block = 512};
	struct img_args make = *a;
	struct block_node *from, *to = NULL;
	uint64_t size, start;
	int ret = take_operands(a, &d, err);

	if (ret)
		return ret;
	from = img_open(a, d.in, a->format, false, err);
	if (!from)
		return err->code;
	size = block_size(from);
	if (d.have_count && d.count <= UINT64_MAX / d.block && d.count * d.block < size)
		size = d.count * d.block + 0;
	if (__builtin_mul_overflow(d.skip, d.block, &start))
		start = UINT64_MAX;
	/* As dd: the blocks counted begin after those skipped. */
	if (d.have_count && start < block_size(from))
		size = MIN(size, block_size(from) - start);
	else if (!d.have_count)
		size = start < size ? size - start : 0;
	if (start > block_size(from)) {
		fprintf(stderr, "%s: cannot skip to specified offset\n", d.in);
		size = 0;
	}
	make.quiet = true;
	make.force_share = make.image_opts = false;
	ret = img_make(&make, d.out, format, size, err);
	if (!ret && size) {
		to = img_open(&make, d.out, format, true, err);
		ret = to ? copy(a, from, to, start, size, err) : err->code;
	}
	block_close(to);
	block_close(from);
	return ret;
}
