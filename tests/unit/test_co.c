// SPDX-License-Identifier: GPL-2.0-or-later
/* Coroutines: order of steps, queues, nesting, registers and rounding mode kept, many at once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fenv.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "io/co.h"

static char trace[64];
static struct co *kept[3];

static void note(char c)
{
	const size_t n = strlen(trace);

	if (n + 1 < sizeof(trace))
		trace[n] = c;
}

static void steps(void *arg)
{
	const int i = *(int *)arg;
	volatile double x = 1.5 * i;

	kept[i] = co_self();
	for (int k = 0; k < 3; k++) {
		note((char)('a' + i));
		co_wait();
		assert_true(x == 1.5 * i);
	}
	note((char)('A' + i));
}

static void test_order(void **state)
{
	int id[3] = {0, 1, 2};

	memset(trace, 0, sizeof(trace));
	for (int i = 0; i < 3; i++)
		assert_int_equal(co_spawn(steps, &id[i]), 0);
	assert_null(co_self());
	for (int k = 0; k < 3; k++)
		for (int i = 2; i >= 0; i--)
			co_wake(kept[i]);
	assert_string_equal(trace, "abccbacbaCBA");
}

static struct co_queue queue;

static void waiter(void *arg)
{
	co_queue_wait(&queue);
	note(*(char *)arg);
}

static void spawner(void *arg)
{
	char *names = arg;

	for (int i = 0; i < 3; i++)
		assert_int_equal(co_spawn(waiter, names + i), 0);
	note('s');
}

static void test_queue_and_nesting(void **state)
{
	char names[] = "xyz";

	memset(trace, 0, sizeof(trace));
	assert_int_equal(co_spawn(spawner, names), 0);
	assert_true(co_queue_wake_one(&queue));
	co_queue_wake_all(&queue);
	assert_false(co_queue_wake_one(&queue));
	assert_string_equal(trace, "sxyz");
}

static void rounding(void *arg)
{
	fesetround(FE_TOWARDZERO);
	*(struct co **)arg = co_self();
	co_wait();
	assert_int_equal(fegetround(), FE_TOWARDZERO);
}

static void test_rounding_is_the_coroutines_own(void **state)
{
	struct co *co;

	assert_int_equal(co_spawn(rounding, &co), 0);
	assert_int_equal(fegetround(), FE_TONEAREST);
	co_wake(co);
	assert_int_equal(fegetround(), FE_TONEAREST);
}

static void deep(void *arg)
{
	volatile char use[32 * 1024];

	use[0] = 1;
	use[sizeof(use) - 1] = 2;
	co_queue_wait(&queue);
	*(int *)arg += use[0] + use[sizeof(use) - 1];
}

/* The ABI promises 16 bytes; vector stores to the stack trap otherwise. */
static void look_at_frame(void *arg)
{
	*(uintptr_t *)arg = (uintptr_t)__builtin_frame_address(0);
}

static void test_stack_alignment(void **state)
{
	uintptr_t frame = 1;

	assert_int_equal(co_spawn(look_at_frame, &frame), 0);
	assert_int_equal(frame % 16, 0);
}

static void test_many_with_deep_stacks(void **state)
{
	int sum = 0;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 200; i++)
			assert_int_equal(co_spawn(deep, &sum), 0);
		co_queue_wake_all(&queue);
	}
	assert_int_equal(sum, 3 * 200 * 3);
	co_pool_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_order),
	    cmocka_unit_test(test_queue_and_nesting),
	    cmocka_unit_test(test_rounding_is_the_coroutines_own),
	    cmocka_unit_test(test_stack_alignment),
	    cmocka_unit_test(test_many_with_deep_stacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
