/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Signals that a guest instruction in translated code can cause: forms the
 * decoder accepts and this host does not (SIGILL), alignment only this host
 * insists on. The interpreter then runs the instruction, with the state of its
 * start, and raises what the guest must see. Installed before the
 * interpreter's handler, which passes on what is not its own.
 */
#include "cpu/soft/jit.h"

#include <ucontext.h>
#include "cpu/soft/signals.h"

static struct soft_signals before;
static struct jit *installed;

/* The instruction whose code rip is in; NULL: none. */
static const struct jit_site *site_of(const struct jit *j, const uint8_t *rw)
{
	for (const struct jit_block *b = __atomic_load_n(&j->all, __ATOMIC_ACQUIRE); b; b = b->all_next) {
		if (rw < b->hot || rw >= b->hot_end)
			continue;
		for (unsigned i = b->nsites; i-- > 0;) {
			if (rw >= b->hot + b->site[i].host)
				return &b->site[i];
		}
	}
	return NULL;
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	const struct jit *j = __atomic_load_n(&installed, __ATOMIC_ACQUIRE);
	const uint8_t *rip = (const uint8_t *)(uintptr_t)g[REG_RIP];
	const struct jit_site *s = NULL;
	uint32_t f = (uint32_t)g[REG_EFL];

	/* A page fault is a bug of ours, or memory that went away. */
	if (j && g[REG_TRAPNO] != EXC_PF && rip >= j->rx && rip < j->rx + j->size)
		s = site_of(j, rip - j->rx_delta);
	if (!s) {
		soft_signals_pass_on(&before, sig, info, context);
		return;
	}
	if (s->flags_in_host)
		*(uint32_t *)(uintptr_t)((uint64_t)g[REG_RSP] + SLOT_FLAGS) = (f & 0xff) << 8 | (f >> 11 & 1);
	g[REG_RAX] = s->guest;
	g[REG_RIP] = (greg_t)(uintptr_t)(j->leave[REASON_INTERP] + j->rx_delta);
}

static void install_once(void)
{
	soft_signals_take(&before, on_signal);
}

void jit_signals_install(struct jit *j)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	__atomic_store_n(&installed, j, __ATOMIC_RELEASE);
	pthread_once(&once, install_once);
}

void jit_signals_remove(const struct jit *j)
{
	if (installed == j)
		__atomic_store_n(&installed, NULL, __ATOMIC_RELEASE);
}
