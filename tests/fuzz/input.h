/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is left of a fuzzer's input; past its end everything is 0. */
#ifndef KELVIN_TESTS_FUZZ_INPUT_H
#define KELVIN_TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"

struct input {
	const uint8_t *p;
	size_t left;
};

static inline void take_bytes(struct input *in, void *to, size_t n)
{
	const size_t have = MIN(n, in->left);

	memset(to, 0, n);
	if (have)
		memcpy(to, in->p, have);
	in->p += have;
	in->left -= have;
}

/* 1 to 8 bytes, little endian */
static inline uint64_t take(struct input *in, unsigned bytes)
{
	uint8_t b[8] = {0};

	take_bytes(in, b, bytes);
	return ld64le(b);
}

#endif
