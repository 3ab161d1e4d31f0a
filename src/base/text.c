// SPDX-License-Identifier: GPL-2.0-or-later
/* Small text helpers of the option layer: nearest name and sizes with suffixes. No state. */
#include "base/type.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"

#define NEAREST_MAX_LEN 64

/* Edit distance with adjacent swaps counted once (optimal string alignment), case ignored. */
static unsigned edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
	unsigned row[3][NEAREST_MAX_LEN + 1];
	unsigned *before = row[0], *prev = row[1], *cur = row[2];

	for (size_t j = 0; j <= nb; j++)
		prev[j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		int ca = tolower((unsigned char)a[i - 1]);
		cur[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			int cb = tolower((unsigned char)b[j - 1]);
			unsigned d = MIN(prev[j] + 1, cur[j - 1] + 1);
			d = MIN(d, prev[j - 1] + (ca != cb));
			if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
			    tolower((unsigned char)a[i - 2]) == cb)
				d = MIN(d, before[j - 2] + 1);
			cur[j] = d;
		}
		unsigned *t = before;
		before = prev;
		prev = cur;
		cur = t;
	}
	return prev[nb];
}

const char *text_nearest(const char *word, const char *const *names, size_t n)
{
	size_t len = strlen(word);
	const char *best = NULL;
	/* A third of the letters may differ, at least one: "sreial" is near, "foo" is not. */
	unsigned limit = MAX(1u, (unsigned)MIN(len, (size_t)NEAREST_MAX_LEN) / 3);

	if (len > NEAREST_MAX_LEN)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		size_t m = names[i] ? strlen(names[i]) : 0;
		if (!m || m > NEAREST_MAX_LEN)
			continue;
		unsigned d = edit_distance(word, len, names[i], m);
		if (d <= limit) {
			if (d == 0)
				return names[i];
			limit = d - 1;
			best = names[i];
		}
	}
	return best;
}

/* log2 of a binary suffix, or -1. */
static int size_shift(char c)
{
	static const char suffix[] = "bkmgtpe";
	const char *p = c ? strchr(suffix, tolower((unsigned char)c)) : NULL;

	return p ? (int)(p - suffix) * 10 : -1;
}

int text_parse_size(const char *s, uint64_t default_unit, uint64_t *out)
{
	char *end;
	uint64_t unit = default_unit ? default_unit : 1;

	if (!isdigit((unsigned char)s[0]))
		return -EINVAL;
	errno = 0;
	bool hex = s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
	unsigned long long whole = strtoull(s, &end, hex ? 16 : 10);
	if (errno)
		return -ERANGE;
	long double fraction = 0;
	if (*end == '.' && !hex) {
		long double scale = 0.1L;
		for (end++; isdigit((unsigned char)*end); end++, scale /= 10)
			fraction += (long double)(*end - '0') * scale;
	}
	if (*end) {
		int shift = size_shift(*end);
		if (shift < 0)
			return -EINVAL;
		unit = 1ull << shift;
		end++;
		/* "4KiB", "4KB" and "4K" are one: binary units, as everywhere in Kelvin. */
		if (*end == 'i' && shift)
			end++;
		if ((*end == 'B' || *end == 'b') && shift)
			end++;
		if (*end)
			return -EINVAL;
	}
	uint64_t bytes;
	if (__builtin_mul_overflow((uint64_t)whole, unit, &bytes) ||
	    __builtin_add_overflow(bytes, (uint64_t)(fraction * (long double)unit), &bytes))
		return -ERANGE;
	*out = bytes;
	return 0;
}
