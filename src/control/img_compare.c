// SPDX-License-Identifier: GPL-2.0-or-later
/* img compare: the data of both, except where both are known to read as zeros. One thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "control/img.h"

#define COPY_SIZE (2 * MIB)

/* How far from `at` both are known to be zeros, at most `len`. */
static uint64_t both_zero(struct block_node *const *n, uint64_t at, uint64_t len)
{
	for (int i = 0; i < 2; i++) {
		struct block_extent e = {.len = len, .zero = true};
		if (at < block_size(n[i])) {
			if (block_map(n[i], at, MIN(len, block_size(n[i]) - at), &e) || !e.zero)
				return 0;
			len = MIN(len, e.len);
		}
	}
	return len;
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
	for (uint64_t at = 0, len; at < size; at += len) {
		uint64_t where = 0;
		int ret;
		img_show_progress(a, at, size);
		len = both_zero(n, at, size - at);
		if (len)
			continue;
		len = MIN(COPY_SIZE, size - at);
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
	img_end_progress(a);
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
		n[i] = img_open_cache(a, a->names[i], formats[i], false, a->source_cache, NULL, err);
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
