/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Host time. Every duration in Kelvin is measured on CLOCK_MONOTONIC_RAW, which
 * NTP does not slew; nanoseconds throughout.
 */
#ifndef KELVIN_BASE_CLOCK_H
#define KELVIN_BASE_CLOCK_H

#include <stdint.h>

#define NSEC_PER_SEC 1000000000ull

/* CLOCK_MONOTONIC_RAW in ns. Any thread. */
uint64_t clock_raw_ns(void);
/* CLOCK_REALTIME in ns since 1970, for the RTC's base only. */
uint64_t clock_wall_ns(void);
/* The host's TSC, and its frequency in kHz as the host kernel knows it (clock.c says how
 * it is found). 0 where the TSC is not invariant. */
static inline uint64_t clock_tsc(void)
{
	return __builtin_ia32_rdtsc();
}
uint64_t clock_tsc_khz(void);
/* TSC and raw clock at the same moment, to some ten ns even when the thread is preempted in between. */
void clock_pair(uint64_t *tsc, uint64_t *ns);
/* a * b / c with a 128-bit intermediate; c != 0. */
static inline uint64_t muldiv64(uint64_t a, uint64_t b, uint64_t c)
{
	return (uint64_t)((unsigned __int128)a * b / c);
}

#endif
