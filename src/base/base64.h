/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Base64 of RFC 4648 section 4, without line breaks. */
#ifndef KELVIN_BASE_BASE64_H
#define KELVIN_BASE_BASE64_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Characters that `len` bytes become, without the NUL. */
static inline size_t base64_length(size_t len)
{
	return (len + 2) / 3 * 4;
}

/* `out` has room for base64_length(len) + 1. */
void base64_encode(const uint8_t *in, size_t len, char *out);
/* Bytes written to `out`, which has room for strlen(in) / 4 * 3; -EINVAL when the text is not base64. */
ssize_t base64_decode(const char *in, uint8_t *out);

#endif
