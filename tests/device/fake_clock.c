/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The clock of rig.h that only the test moves. Replaces io/vmclock.c, which is not linked then. */
#include <string.h>
#include "rig.h"

static _Atomic uint64_t fake_ns;

void vmclock_init(struct vmclock *c)
{
	memset(c, 0, sizeof(*c));
	c->tsc_khz = RIG_TSC_KHZ;
	c->wall_base_ns = 0;
	c->running = true;
	fake_ns = 1000000;
}

void vmclock_fini(struct vmclock *c) {}

void vmclock_start(struct vmclock *c) {}

void vmclock_stop(struct vmclock *c) {}

void vmclock_set(struct vmclock *c, uint64_t ns, uint64_t tsc) {}

uint64_t vmclock_ns(const struct vmclock *c)
{
	return fake_ns;
}

uint64_t vmclock_tsc(const struct vmclock *c)
{
	return fake_ns * (RIG_TSC_KHZ / 1000000);
}

uint64_t vmclock_host_deadline(const struct vmclock *c, uint64_t guest_ns)
{
	return guest_ns;
}

void vmtimer_init(struct vmtimer *t, struct vmclock *c, struct loop *l, void (*fn)(void *arg), void *arg)
{
	*t = (struct vmtimer){.clock = c, .fn = fn, .arg = arg, .next = c->timers, .guest_deadline = UINT64_MAX};
	c->timers = t;
}

void vmtimer_arm(struct vmtimer *t, uint64_t guest_ns)
{
	t->guest_deadline = guest_ns;
}

void vmtimer_cancel(struct vmtimer *t)
{
	t->guest_deadline = UINT64_MAX;
}

void vmtimer_fini(struct vmtimer *t)
{
	struct vmtimer **at = &t->clock->timers;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
}

void vmclock_timers_resume(struct vmclock *c) {}

uint64_t rig_now(void)
{
	return fake_ns;
}

void rig_advance(struct rig *r, uint64_t ns)
{
	uint64_t end = fake_ns + ns;

	for (;;) {
		struct vmtimer *first = NULL;

		for (struct vmtimer *t = r->clock.timers; t; t = t->next) {
			if (t->guest_deadline <= end && (!first || t->guest_deadline < first->guest_deadline))
				first = t;
		}
		if (!first)
			break;
		fake_ns = MAX(fake_ns, first->guest_deadline);
		first->guest_deadline = UINT64_MAX;
		first->fn(first->arg);
	}
	fake_ns = end;
}
