/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Host clocks, and the frequency of the host's TSC.
 *
 * The frequency must agree with CLOCK_MONOTONIC_RAW to better than 1 ppm, else
 * a guest that believes its TSC drifts. Measuring that well takes tens of
 * milliseconds, so the values the host kernel itself uses are tried first and
 * a short measurement only has to confirm them:
 *
 * 1. the multiplier and shift of the raw clock in the kernel's vDSO data pages
 *    (readable by every process; their layout is not an interface, so they are
 *    searched for a pair that fits the measurement, never assumed);
 * 2. CPUID 0x15 and the hypervisor's timing leaf 0x40000010;
 * 3. a longer measurement.
 *
 * perf_event_mmap_page would give the same numbers, but the first event of a
 * process makes the kernel patch itself and wait for RCU: 10 ms here.
 *
 * Locking: clock_tsc_khz computes once under pthread_once.
 */
#include "base/clock.h"

#include <cpuid.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t clock_raw_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

uint64_t clock_wall_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}

/* A TSC value and the raw clock at the same moment, from the tightest of `tries` brackets. */
struct tsc_sample {
	uint64_t tsc, ns;
};

static struct tsc_sample tsc_sample_take(int tries)
{
	struct tsc_sample best = {0, 0};
	uint64_t best_width = UINT64_MAX;

	while (tries-- > 0) {
		uint64_t before = clock_tsc();
		uint64_t ns = clock_raw_ns();
		uint64_t width = clock_tsc() - before;

		if (width < best_width) {
			best_width = width;
			best.tsc = before + width / 2;
			best.ns = ns;
		}
	}
	return best;
}

void clock_pair(uint64_t *tsc, uint64_t *ns)
{
	struct tsc_sample s = tsc_sample_take(6);

	*tsc = s.tsc;
	*ns = s.ns;
}

/* kHz over about `window_ns`; the thread spins for short windows because sleeping rounds up. */
static double tsc_measure(uint64_t window_ns)
{
	struct tsc_sample a = tsc_sample_take(24), b;

	if (window_ns > 2000000) {
		struct timespec ts = {0, (long)window_ns};
		clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
	} else {
		while (clock_raw_ns() - a.ns < window_ns)
			__builtin_ia32_pause();
	}
	b = tsc_sample_take(24);
	return (double)(b.tsc - a.tsc) * 1e6 / (double)(b.ns - a.ns);
}

static bool khz_near(double khz, double measured, double ppm)
{
	double diff = khz > measured ? khz - measured : measured - khz;

	return diff <= measured * ppm * 1e-6;
}

/*
 * Copy one page of the vDSO's data. The mapping may contain pages that raise
 * SIGBUS when touched, so the kernel reads them for us: write() to a pipe
 * reports EFAULT instead.
 */
static bool page_copy(int pipe_fd[2], const void *page, void *out)
{
	ssize_t n = write(pipe_fd[1], page, 4096);

	return n == 4096 && read(pipe_fd[0], out, 4096) == 4096;
}

/*
 * In each clock's record the kernel keeps the clock source's 64-bit mask, then
 * mult and shift (two 32-bit words): ns = cycles * mult >> shift. The record of
 * the raw clock follows the one that NTP slews, so the last match is the raw one.
 */
static double page_search(const uint8_t *page, double measured)
{
	double found = 0;

	for (unsigned off = 8; off + 8 <= 4096; off += 4) {
		uint32_t mult = ld32le(page + off), shift = ld32le(page + off + 4);
		double khz;

		if (shift == 0 || shift > 32 || mult < 1000 || ld64le(page + off - 8) != UINT64_MAX)
			continue;
		khz = 1e6 * (double)(1ull << shift) / mult;
		if (khz_near(khz, measured, 300))
			found = khz;
	}
	return found;
}

static double tsc_from_vvar(double measured)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	double khz = 0;
	char line[256];
	int fd[2];

	if (!maps)
		return 0;
	if (pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0) {
		fclose(maps);
		return 0;
	}
	while (khz == 0 && fgets(line, sizeof(line), maps)) {
		uint64_t start, end;

		if (!strstr(line, "[vvar") || sscanf(line, "%lx-%lx", &start, &end) != 2)
			continue;
		for (uint64_t p = start; p < end && khz == 0; p += 4096) {
			uint8_t page[4096];

			if (page_copy(fd, (const void *)(uintptr_t)p, page))
				khz = page_search(page, measured);
		}
	}
	close(fd[0]);
	close(fd[1]);
	fclose(maps);
	return khz;
}

/* SDM volume 2, CPUID leaf 15h; leaf 0x40000010 is VMware's and KVM's convention (EAX: TSC kHz). */
static double tsc_from_cpuid(void)
{
	uint32_t a, b, c, d;

	if (__get_cpuid_max(0, NULL) >= 0x15) {
		__cpuid_count(0x15, 0, a, b, c, d);
		if (a && b && c)
			return (double)c * b / a / 1000;
	}
	__cpuid(1, a, b, c, d);
	if (c & BIT(31)) {
		__cpuid(0x40000000, a, b, c, d);
		if (a >= 0x40000010 && a < 0x40010000) {
			__cpuid(0x40000010, a, b, c, d);
			return a;
		}
	}
	return 0;
}

static bool tsc_invariant(void)
{
	uint32_t a, b, c, d;

	__cpuid(0x80000000, a, b, c, d);
	if (a < 0x80000007)
		return false;
	__cpuid(0x80000007, a, b, c, d);
	return d & BIT(8);
}

static uint64_t tsc_khz;

static void tsc_khz_find(void)
{
	double measured, khz;

	if (!tsc_invariant())
		return;
	measured = tsc_measure(150000);
	khz = tsc_from_vvar(measured);
	if (khz == 0) {
		khz = tsc_from_cpuid();
		if (!khz_near(khz, measured, 300))
			khz = tsc_measure(20000000);
	}
	tsc_khz = (uint64_t)(khz + 0.5);
}

uint64_t clock_tsc_khz(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, tsc_khz_find);
	return tsc_khz;
}
