/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A halted CPU is woken by each request, whether it looks for them yet, is about
 * to sleep, or sleeps, with every halt-poll. A wake-up that is lost stands still
 * here until the test's time is over.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "bare.h"
#include "cpu/soft/run.h"

#define WAKES 1500u

static struct bare b;
static _Atomic unsigned woken;

static void *sleeper(void *arg)
{
	struct soft_cpu *c = arg;

	for (unsigned n = 0; n < WAKES; n++) {
		while (!atomic_load(&c->v.requests))
			soft_sleep(c);
		atomic_store(&c->v.requests, 0);
		atomic_store(&woken, n + 1);
	}
	return NULL;
}

static void run(const char *engine)
{
	pthread_t t;
	unsigned seed = 5;

	bare_init(&b, 1, engine);
	atomic_store(&woken, 0);
	assert_int_equal(pthread_create(&t, NULL, sleeper, bare_cpu(&b, 0)), 0);
	for (unsigned n = 0; n < WAKES; n++) {
		seed = seed * 1103515245 + 12345;
		if (n % 16 == 0)
			usleep(seed >> 16 & 255);
		vcpu_request(b.vcpu[0], VCPU_REQ_INTR);
		while (atomic_load(&woken) == n)
			sched_yield();
	}
	pthread_join(t, NULL);
	bare_fini(&b);
}

static void test_no_poll(void **state)
{
	run("soft,jit=off,halt-poll=0");
}

static void test_short_poll(void **state)
{
	run("soft,jit=off,halt-poll=3000");
}

static void test_default(void **state)
{
	run("soft,jit=off");
}

static void test_long_poll(void **state)
{
	run("soft,jit=off,halt-poll=1000000");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_poll), cmocka_unit_test(test_short_poll),
					   cmocka_unit_test(test_default), cmocka_unit_test(test_long_poll)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
