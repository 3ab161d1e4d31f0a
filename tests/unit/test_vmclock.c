/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The machine's clock: stops, continues, never steps back; timers on it; the TSC's frequency. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "io/vmclock.h"

static void test_stop_cont(void **state)
{
	struct vmclock c;
	uint64_t ns, tsc;

	vmclock_init(&c);
	assert_int_equal(vmclock_ns(&c), 0);
	assert_int_equal(vmclock_tsc(&c), 0);
	assert_int_equal(vmclock_host_deadline(&c, 5), UINT64_MAX);
	vmclock_start(&c);
	usleep(2000);
	assert_true(vmclock_ns(&c) >= 2000000);
	vmclock_stop(&c);
	ns = vmclock_ns(&c);
	tsc = vmclock_tsc(&c);
	usleep(30000);
	assert_int_equal(vmclock_ns(&c), ns);
	assert_int_equal(vmclock_tsc(&c), tsc);
	vmclock_start(&c);
	assert_true(vmclock_ns(&c) >= ns);
	assert_true(vmclock_ns(&c) < ns + 25000000); /* the stop is not counted */
	assert_true(vmclock_tsc(&c) >= tsc);
	assert_int_equal(vmclock_host_deadline(&c, UINT64_MAX), UINT64_MAX);
	vmclock_fini(&c);
}

static _Atomic bool done;

static void *watch(void *arg)
{
	const struct vmclock *c = arg;
	uint64_t ns = 0, tsc = 0;
	unsigned long bad = 0;

	while (!done) {
		uint64_t n = vmclock_ns(c), t = vmclock_tsc(c);

		bad += n < ns;
		bad += t < tsc;
		ns = n;
		tsc = t;
	}
	return (void *)bad;
}

static void test_monotonic_under_stops(void **state)
{
	struct vmclock c;
	pthread_t t[2];

	vmclock_init(&c);
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, watch, &c);
	for (int i = 0; i < 300; i++) {
		vmclock_start(&c);
		usleep(100);
		vmclock_stop(&c);
	}
	done = true;
	for (int i = 0; i < 2; i++) {
		void *bad;

		pthread_join(t[i], &bad);
		assert_ptr_equal(bad, NULL);
	}
	/* after 300 stops, however busy the machine, TSC and ns still tell the same time: to 300 us */
	{
		int64_t diff = (int64_t)(muldiv64(vmclock_tsc(&c), 1000000, c.tsc_khz) - vmclock_ns(&c));

		assert_in_range(diff + 300000, 0, 600000);
	}
	vmclock_fini(&c);
}

static void count(void *arg)
{
	++*(int *)arg;
}

static void test_timer(void **state)
{
	struct err err = {0};
	struct loop *l = loop_create("test", &err);
	struct vmclock c;
	struct vmtimer t;
	int fired = 0;

	assert_non_null(l);
	vmclock_init(&c);
	vmtimer_init(&t, &c, l, count, &fired);
	vmtimer_arm(&t, 1000000); /* stopped: must not fire however long we wait */
	loop_run_once(l, 5000000);
	assert_int_equal(fired, 0);
	vmclock_start(&c);
	vmclock_timers_resume(&c);
	for (int i = 0; i < 50 && !fired; i++)
		loop_run_once(l, 2000000);
	assert_int_equal(fired, 1);
	assert_true(vmclock_ns(&c) >= 1000000);
	/* stopped before it is due, continued later */
	vmtimer_arm(&t, vmclock_ns(&c) + 3000000);
	vmclock_stop(&c);
	for (int i = 0; i < 4; i++)
		loop_run_once(l, 2000000);
	assert_int_equal(fired, 1);
	vmclock_start(&c);
	vmclock_timers_resume(&c);
	for (int i = 0; i < 50 && fired == 1; i++)
		loop_run_once(l, 2000000);
	assert_int_equal(fired, 2);
	vmtimer_arm(&t, vmclock_ns(&c) + 2000000);
	vmtimer_cancel(&t);
	loop_run_once(l, 4000000);
	assert_int_equal(fired, 2);
	vmtimer_fini(&t);
	vmclock_fini(&c);
	loop_destroy(l);
}

static struct {
	struct vmtimer t;
	uint64_t at[8];
	unsigned n;
} tick;

static void on_tick(void *arg)
{
	uint64_t now = vmclock_ns(arg);

	if (tick.n < ARRAY_SIZE(tick.at))
		tick.at[tick.n++] = now;
	vmtimer_arm(&tick.t, now + 1000);
}

/* A manual clock stands until it is stepped; timers see their own time, and many of them can be interrupted. */
static void test_manual(void **state)
{
	struct loop *l = loop_create("test", NULL);
	struct vmclock c;

	vmclock_init(&c);
	c.manual = true;
	vmclock_start(&c);
	assert_int_equal(vmclock_ns(&c), 0);
	usleep(2000);
	assert_int_equal(vmclock_ns(&c), 0);
	assert_true(vmclock_next_deadline(&c) == UINT64_MAX);
	vmtimer_init(&tick.t, &c, l, on_tick, &c);
	vmtimer_arm(&tick.t, 500);
	assert_int_equal(vmclock_next_deadline(&c), 500);
	loop_run_once(l, 2000000);
	assert_int_equal(tick.n, 0);
	assert_true(vmclock_step(&c, 499, 10));
	assert_int_equal(tick.n, 0);
	assert_true(vmclock_step(&c, 2700, 10));
	assert_int_equal(tick.n, 3);
	assert_int_equal(tick.at[0], 500);
	assert_int_equal(tick.at[2], 2500);
	assert_int_equal(vmclock_ns(&c), 2700);
	assert_int_equal(vmclock_tsc(&c), muldiv64(2700, c.tsc_khz, 1000000));
	assert_true(vmclock_step(&c, 100, 10));
	assert_int_equal(vmclock_ns(&c), 2700);
	assert_false(vmclock_step(&c, 1000000, 2));
	assert_int_equal(tick.n, 5);
	assert_int_equal(vmclock_ns(&c), 4500);
	/* What is armed for the past fires from the loop. */
	vmtimer_arm(&tick.t, 10);
	for (int i = 0; i < 100 && tick.n < 6; i++)
		loop_run_once(l, 2000000);
	assert_int_equal(tick.n, 6);
	assert_int_equal(tick.at[5], 4500);
	vmtimer_fini(&tick.t);
	vmclock_fini(&c);
	loop_destroy(l);
}

static void test_tsc_frequency(void **state)
{
	uint64_t khz = clock_tsc_khz(), ns0, ns1, t0, t1;
	double measured;

	if (!khz)
		skip();
	ns0 = clock_raw_ns();
	t0 = clock_tsc();
	usleep(300000);
	ns1 = clock_raw_ns();
	t1 = clock_tsc();
	measured = (double)(t1 - t0) * 1e6 / (double)(ns1 - ns0);
	/* 20 ppm: what a busy machine may preempt between the two reads, over 300 ms */
	assert_true(measured > (double)khz * 0.99998 && measured < (double)khz * 1.00002);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_stop_cont),	  cmocka_unit_test(test_monotonic_under_stops),
	    cmocka_unit_test(test_timer),	  cmocka_unit_test(test_manual),
	    cmocka_unit_test(test_tsc_frequency),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
