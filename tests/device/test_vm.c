/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stopping and resetting a machine whose devices need the main loop to come to
 * rest: what happens in the loop meanwhile must not start a second change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/util.h"
#include "bus/dev.h"
#include "machine/vm_int.h"
#include "halt_kernel.h"

static struct vm *vm;
static char events[200];
static void (*while_pausing)(void);

static void on_event(void *opaque, const char *name, const char *json)
{
	strncat(events, name, sizeof(events) - strlen(events) - 2);
	strcat(events, " ");
}

static int slow_pause(struct dev *d)
{
	void (*fn)(void) = while_pausing;

	while_pausing = NULL;
	if (fn) {
		fn();
		loop_run_once(vm->loop, 0);
	}
	return 0;
}

static const struct dev_ops slow_ops = {
    .type = {.name = "slow-test", .about = "test", .size = sizeof(struct dev)},
    .pause = slow_pause,
};

static void nested_stop(void)
{
	vm_stop(vm, VM_IO_ERROR);
}

static void nested_reset(void)
{
	vm_system_reset(vm);
}

static void check(void (*first)(void), void (*nested)(void), const char *expect, enum vm_run_state state)
{
	events[0] = 0;
	vm_start(vm);
	while_pausing = nested;
	first();
	for (int i = 0; i < 3; i++)
		loop_run_once(vm->loop, 0);
	assert_string_equal(events, expect);
	assert_int_equal(vm_state(vm), state);
	assert_int_equal(vm->run, state == VM_RUNNING);
	vm_stop(vm, VM_PAUSED);
}

static void stop(void)
{
	vm_stop(vm, VM_PAUSED);
}

static void test_nested(void **state)
{
	check(stop, nested_stop, "RESUME STOP ", VM_IO_ERROR);
	check(stop, nested_reset, "RESUME STOP RESET ", VM_PAUSED);
	check(nested_reset, nested_stop, "RESUME RESET STOP ", VM_IO_ERROR);
	check(stop, NULL, "RESUME STOP ", VM_PAUSED);
}

int main(void)
{
	char path[] = "/tmp/kelvin-vm-XXXXXX";
	struct err err = {0};
	struct vm_event_sink sink = {.event = on_event};
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_nested)};

	write_halt_kernel(mkstemp(path));
	struct vm_config cfg = {.machine = (char *)"pc",
				.accel = (char *)"soft",
				.ram_size = 16 * MIB,
				.ram = {.size = 16 * MIB},
				.cpus = 1,
				.sockets = 1,
				.cores = 1,
				.threads = 1,
				.kernel = path,
				.no_defaults = true,
				.start_paused = true};
	struct loop *loop = loop_create("main", &err);
	vm = vm_create(&cfg, loop, &err);
	struct dev *d = vm ? dev_new_ops(vm_bus(vm), &slow_ops, &err) : NULL;
	if (!d || dev_realize(d, &err)) {
		print_error("%s\n", err.msg);
		return 1;
	}
	vm_add_event_sink(vm, &sink);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	vm_destroy(vm);
	loop_destroy(loop);
	unlink(path);
	return failed;
}
