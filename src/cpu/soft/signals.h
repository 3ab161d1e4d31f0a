/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The signals that an instruction of the guest can cause on the host, taken
 * over one after the other by the translator and the interpreter's stubs, each
 * of which passes on what is not its own.
 */
#ifndef KELVIN_CPU_SOFT_SIGNALS_H
#define KELVIN_CPU_SOFT_SIGNALS_H

#include <signal.h>

#define SOFT_SIGNALS 4

/* Who had them before. */
struct soft_signals {
	struct sigaction old[SOFT_SIGNALS];
};

/* SIGFPE, SIGSEGV, SIGILL and SIGBUS go to this handler from now on. Once per process; any thread. */
void soft_signals_take(struct soft_signals *s, void (*handler)(int sig, siginfo_t *info, void *context));
/* Not the caller's: to the handler that was there before, or the default after a return to the same instruction. */
void soft_signals_pass_on(const struct soft_signals *s, int sig, siginfo_t *info, void *context);

#endif
