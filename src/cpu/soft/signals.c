/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Taking over and passing on the signals that guest instructions cause. No locks: filled once, then only read. */
#include "cpu/soft/signals.h"

#include "base/util.h"

static const int signals[SOFT_SIGNALS] = {SIGFPE, SIGSEGV, SIGILL, SIGBUS};

void soft_signals_take(struct soft_signals *s, void (*handler)(int sig, siginfo_t *info, void *context))
{
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	for (unsigned k = 0; k < SOFT_SIGNALS; k++)
		sigaction(signals[k], &sa, &s->old[k]);
}

void soft_signals_pass_on(const struct soft_signals *s, int sig, siginfo_t *info, void *context)
{
	for (unsigned k = 0; k < SOFT_SIGNALS; k++) {
		const struct sigaction *old = &s->old[k];

		if (signals[k] != sig)
			continue;
		/* A handler that expects to be called once may raise the signal again to die of it. */
		if (old->sa_flags & SA_RESETHAND)
			signal(sig, SIG_DFL);
		if (old->sa_flags & SA_SIGINFO)
			old->sa_sigaction(sig, info, context);
		else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN)
			old->sa_handler(sig);
		else
			sigaction(sig, old, NULL);
	}
}
