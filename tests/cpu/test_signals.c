/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Signals that are not the CPU's reach who had them before: a handler, called
 * each time; one that expects to be called once, which then dies of a fault
 * that stays; or the default.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cpu/soft/signals.h"

#define TURNS 3

static struct soft_signals first, second;
static volatile uint8_t *page;
static volatile sig_atomic_t calls;

static void on_second(int sig, siginfo_t *info, void *context)
{
	soft_signals_pass_on(&second, sig, info, context);
}

static void on_first(int sig, siginfo_t *info, void *context)
{
	soft_signals_pass_on(&first, sig, info, context);
}

/* The page becomes readable at the third time, if the fault comes again. */
static void old_handler(int sig)
{
	if (++calls == TURNS)
		mprotect((void *)(uintptr_t)page, 4096, PROT_READ);
}

/* The child's status after a load of a page that may not be read. */
static int fault(void (*handler)(int), int flags)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		struct sigaction sa = {.sa_handler = handler, .sa_flags = flags};

		alarm(30);
		page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		sigaction(SIGSEGV, &sa, NULL);
		soft_signals_take(&first, on_first);
		soft_signals_take(&second, on_second);
		_exit(page[0] + calls);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_pass_on(void **state)
{
	int status = fault(old_handler, 0);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), TURNS);
	status = fault(old_handler, (int)SA_RESETHAND);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
	status = fault(SIG_DFL, 0);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_pass_on)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
