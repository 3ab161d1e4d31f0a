/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Small helpers every folder uses: no state, no dependencies. */
#ifndef KELVIN_BASE_UTIL_H
#define KELVIN_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) ? (a) : (b))
/* `align` must be a power of two. */
#define ALIGN_DOWN(x, align)		((x) & ~((__typeof__(x))(align)-1))
#define ALIGN_UP(x, align)		ALIGN_DOWN((x) + ((__typeof__(x))(align)-1), align)
#define BIT(n)				(1ull << (n))
#define likely(x)			__builtin_expect(!!(x), 1)
#define unlikely(x)			__builtin_expect(!!(x), 0)
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define KIB 1024ull
#define MIB (1024ull * KIB)
#define GIB (1024ull * MIB)

/*
 * A broken invariant of ours (never reachable from guest, client or option
 * input): prints file, line and text to stderr, then aborts.
 */
#define BUG(...) util_bug(__FILE__, __LINE__, __VA_ARGS__)
#define BUG_ON(cond)                                                                                                   \
	do {                                                                                                           \
		if (unlikely(cond))                                                                                    \
			BUG("%s", "BUG_ON: " #cond);                                                                   \
	} while (0)
void util_bug(const char *file, int line, const char *fmt, ...) __attribute__((noreturn, cold, format(printf, 3, 4)));

/* Unaligned little- and big-endian loads and stores. */
static inline uint16_t ld16le(const void *p)
{
	uint16_t v;
	memcpy(&v, p, 2);
	return v;
}
static inline uint32_t ld32le(const void *p)
{
	uint32_t v;
	memcpy(&v, p, 4);
	return v;
}
static inline uint64_t ld64le(const void *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
	return v;
}
static inline void st16le(void *p, uint16_t v)
{
	memcpy(p, &v, 2);
}
static inline void st32le(void *p, uint32_t v)
{
	memcpy(p, &v, 4);
}
static inline void st64le(void *p, uint64_t v)
{
	memcpy(p, &v, 8);
}
static inline uint16_t ld16be(const void *p)
{
	return __builtin_bswap16(ld16le(p));
}
static inline uint32_t ld32be(const void *p)
{
	return __builtin_bswap32(ld32le(p));
}
static inline uint64_t ld64be(const void *p)
{
	return __builtin_bswap64(ld64le(p));
}
static inline void st16be(void *p, uint16_t v)
{
	st16le(p, __builtin_bswap16(v));
}
static inline void st32be(void *p, uint32_t v)
{
	st32le(p, __builtin_bswap32(v));
}
static inline void st64be(void *p, uint64_t v)
{
	st64le(p, __builtin_bswap64(v));
}

#endif
