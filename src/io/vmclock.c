/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The machine's clock and the timers on it.
 *
 * Readers are lock-free: a sequence counter around start and stop makes each
 * reading belong entirely to one side of the change, so a reading never lies
 * beyond the time at which the clock was stopped. (The loads are sequentially
 * consistent, so the second look at the counter cannot move before them.)
 *
 * A timer's deadline is one atomic word. Whoever exchanges it for "not armed"
 * may call the timer's function; the host timer below may fire early or once
 * too often without harm.
 */
#include "io/vmclock.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/util.h"

#define NOT_ARMED UINT64_MAX

static uint64_t tsc_of_ns(const struct vmclock *c, uint64_t ns)
{
	return muldiv64(ns, c->tsc_khz, 1000000);
}

void vmclock_init(struct vmclock *c)
{
	*c = (struct vmclock){.wall_base_ns = clock_wall_ns(), .tsc_khz = clock_tsc_khz()};
	pthread_mutex_init(&c->lock, NULL);
	if (!c->tsc_khz) {
		c->tsc_khz = 1000000;
		c->tsc_from_ns = true;
	}
}

void vmclock_fini(struct vmclock *c)
{
	pthread_mutex_destroy(&c->lock);
}

static void change_begin(struct vmclock *c)
{
	pthread_mutex_lock(&c->lock);
	atomic_fetch_add(&c->seq, 1);
}

static void change_end(struct vmclock *c)
{
	atomic_fetch_add(&c->seq, 1);
	pthread_mutex_unlock(&c->lock);
}

void vmclock_start(struct vmclock *c)
{
	uint64_t ns, tsc;

	change_begin(c);
	if (!c->running && !c->manual) {
		clock_pair(&tsc, &ns);
		c->ns_offset = ns - c->stopped_ns;
		c->tsc_offset = c->stopped_tsc - tsc;
		c->running = true;
	}
	change_end(c);
}

void vmclock_stop(struct vmclock *c)
{
	uint64_t ns, tsc;

	change_begin(c);
	if (c->running) {
		/* Taken together, else each stop would let the two drift apart by a preemption's length. */
		clock_pair(&tsc, &ns);
		c->stopped_ns = ns - c->ns_offset;
		c->stopped_tsc = c->tsc_from_ns ? tsc_of_ns(c, c->stopped_ns) : tsc + c->tsc_offset;
		c->running = false;
	}
	change_end(c);
}

void vmclock_set(struct vmclock *c, uint64_t ns, uint64_t tsc)
{
	change_begin(c);
	BUG_ON(c->running);
	c->stopped_ns = ns;
	c->stopped_tsc = tsc;
	change_end(c);
}

void vmclock_restore(struct vmclock *c, uint64_t ns, uint64_t tsc, uint64_t tsc_khz, uint64_t wall_base_ns)
{
	vmclock_set(c, ns, tsc);
	c->tsc_khz = tsc_khz;
	c->wall_base_ns = wall_base_ns;
}

uint64_t vmclock_ns(const struct vmclock *c)
{
	uint64_t ns;
	uint32_t seq;

	do {
		seq = atomic_load(&c->seq);
		ns = c->running ? clock_raw_ns() - c->ns_offset : c->stopped_ns;
	} while (unlikely((seq & 1) || seq != atomic_load(&c->seq)));
	return ns;
}

uint64_t vmclock_tsc(const struct vmclock *c)
{
	uint64_t tsc;
	uint32_t seq;

	if (c->tsc_from_ns)
		return tsc_of_ns(c, vmclock_ns(c));
	do {
		seq = atomic_load(&c->seq);
		tsc = c->running ? clock_tsc() + c->tsc_offset : c->stopped_tsc;
	} while (unlikely((seq & 1) || seq != atomic_load(&c->seq)));
	return tsc;
}

uint64_t vmclock_host_deadline(const struct vmclock *c, uint64_t guest_ns)
{
	uint64_t host;
	uint32_t seq;

	do {
		seq = atomic_load(&c->seq);
		host = c->running && guest_ns != NOT_ARMED ? guest_ns + c->ns_offset : NOT_ARMED;
	} while (unlikely((seq & 1) || seq != atomic_load(&c->seq)));
	return host < guest_ns ? NOT_ARMED : host;
}

/* ---- timers ------------------------------------------------------------ */

static void host_arm(struct vmtimer *t, uint64_t guest_ns)
{
	uint64_t host = vmclock_host_deadline(t->clock, guest_ns);

	/* A manual clock stands: what is due fires from the loop, the rest in vmclock_step. */
	if (t->clock->manual && guest_ns <= vmclock_ns(t->clock))
		host = 0;
	if (host != NOT_ARMED)
		timer_arm(&t->timer, host);
}

static void vmtimer_fire(void *arg)
{
	struct vmtimer *t = arg;
	uint64_t deadline = t->guest_deadline;

	if (deadline == NOT_ARMED)
		return;
	if (vmclock_ns(t->clock) < deadline) {
		host_arm(t, deadline);
		return;
	}
	if (!t->clock->running && !t->clock->manual)
		return; /* due, but the machine stands still: vmclock_timers_resume arms it */
	/* A failed exchange means that another thread re-armed or cancelled it just now. */
	if (atomic_compare_exchange_strong(&t->guest_deadline, &deadline, NOT_ARMED))
		t->fn(t->arg);
}

void vmtimer_init(struct vmtimer *t, struct vmclock *c, struct loop *l, void (*fn)(void *arg), void *arg)
{
	timer_init(&t->timer, l, vmtimer_fire, t);
	t->clock = c;
	t->guest_deadline = NOT_ARMED;
	t->fn = fn;
	t->arg = arg;
	pthread_mutex_lock(&c->lock);
	t->next = c->timers;
	c->timers = t;
	pthread_mutex_unlock(&c->lock);
}

void vmtimer_arm(struct vmtimer *t, uint64_t guest_ns)
{
	t->guest_deadline = guest_ns;
	host_arm(t, guest_ns);
}

void vmtimer_cancel(struct vmtimer *t)
{
	t->guest_deadline = NOT_ARMED;
	timer_cancel(&t->timer);
}

void vmtimer_fini(struct vmtimer *t)
{
	struct vmclock *c = t->clock;

	t->guest_deadline = NOT_ARMED;
	timer_cancel_sync(&t->timer);
	pthread_mutex_lock(&c->lock);
	for (struct vmtimer **p = &c->timers; *p; p = &(*p)->next)
		if (*p == t) {
			*p = t->next;
			break;
		}
	pthread_mutex_unlock(&c->lock);
}

void vmclock_timers_resume(struct vmclock *c)
{
	pthread_mutex_lock(&c->lock);
	for (struct vmtimer *t = c->timers; t; t = t->next) {
		uint64_t deadline = t->guest_deadline;

		if (deadline != NOT_ARMED)
			host_arm(t, deadline);
	}
	pthread_mutex_unlock(&c->lock);
}

/* ---- a clock moved by hand ------------------------------------------------ */

static struct vmtimer *first_timer(struct vmclock *c, uint64_t *deadline)
{
	struct vmtimer *first = NULL;

	*deadline = NOT_ARMED;
	pthread_mutex_lock(&c->lock);
	for (struct vmtimer *t = c->timers; t; t = t->next) {
		uint64_t d = t->guest_deadline;

		if (d < *deadline) {
			*deadline = d;
			first = t;
		}
	}
	pthread_mutex_unlock(&c->lock);
	return first;
}

uint64_t vmclock_next_deadline(struct vmclock *c)
{
	uint64_t deadline;

	first_timer(c, &deadline);
	return deadline;
}

static void manual_set(struct vmclock *c, uint64_t ns)
{
	BUG_ON(!c->manual);
	if (ns > c->stopped_ns)
		vmclock_set(c, ns, tsc_of_ns(c, ns));
}

bool vmclock_step(struct vmclock *c, uint64_t ns, unsigned most)
{
	struct vmtimer *t;
	uint64_t deadline;

	while ((t = first_timer(c, &deadline)) && deadline <= ns) {
		if (!most--)
			return false;
		manual_set(c, deadline);
		if (atomic_compare_exchange_strong(&t->guest_deadline, &deadline, NOT_ARMED))
			t->fn(t->arg);
	}
	manual_set(c, ns);
	return true;
}
