/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CRC-32C by the processor's instruction where there is one (SSE4.2), else by a table of bytes. */
#include "base/crc32c.h"

#include <pthread.h>

#include "base/util.h"

#define POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t table[256];

static void make_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t v = i;

		for (int k = 0; k < 8; k++)
			v = v & 1 ? v >> 1 ^ POLYNOMIAL : v >> 1;
		table[i] = v;
	}
}

static uint32_t by_table(uint32_t crc, const uint8_t *p, size_t len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_table);
	while (len--)
		crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
	return crc;
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t v = crc;

	for (; len >= 8; len -= 8, p += 8)
		v = __builtin_ia32_crc32di(v, ld64le(p));
	for (crc = (uint32_t)v; len; len--)
		crc = __builtin_ia32_crc32qi(crc, *p++);
	return crc;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	crc = ~crc;
	crc = __builtin_cpu_supports("sse4.2") ? by_instruction(crc, data, len) : by_table(crc, data, len);
	return ~crc;
}
