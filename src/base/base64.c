/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Base64 of RFC 4648 section 4. No state, any thread. */
#include "base/base64.h"
#include <errno.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const uint8_t *in, size_t len, char *out)
{
	for (size_t i = 0; i < len; i += 3) {
		size_t n = len - i < 3 ? len - i : 3;
		uint32_t bits = 0;

		for (size_t k = 0; k < 3; k++)
			bits = bits << 8 | (k < n ? in[i + k] : 0);
		for (size_t k = 0; k < 4; k++)
			*out++ = k <= n ? alphabet[bits >> (18 - 6 * k) & 63] : '=';
	}
	*out = 0;
}

ssize_t base64_decode(const char *in, uint8_t *out)
{
	size_t len = strlen(in), n = 0;

	if (len % 4)
		return -EINVAL;
	for (size_t i = 0; i < len; i += 4) {
		uint32_t bits = 0;
		size_t chars = 0;

		for (size_t k = 0; k < 4; k++) {
			const char *at = strchr(alphabet, in[i + k]);

			if (at)
				chars++;
			/* Padding: only at the very end, one or two, and nothing behind it. */
			if (at ? chars != k + 1 : in[i + k] != '=' || i + 4 != len || k < 2)
				return -EINVAL;
			bits = bits << 6 | (at ? (uint32_t)(at - alphabet) : 0);
		}
		for (size_t k = 0; k + 1 < chars; k++)
			out[n++] = (uint8_t)(bits >> (16 - 8 * k));
	}
	return (ssize_t)n;
}
