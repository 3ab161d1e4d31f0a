/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The local APIC timer: one-shot, periodic, TSC-deadline. Intel SDM volume 3A,
 * section 11.5.4. Its input clock is 1 GHz: one tick before the divider is one
 * guest nanosecond, so counting is reading the machine's clock.
 *
 * The owner programs it, the main loop's thread fires it: timer_lock.
 */
#include "hw/pc/irqchip_int.h"

/* A guest that asks for more periodic interrupts than this gets the count right and fewer
 * interrupts, as from hardware whose interrupts merge; the main loop must not drown. */
#define LAPIC_MIN_PERIOD_NS 20000

static uint32_t lapic_lvt_timer(struct lapic *l)
{
	return atomic_load_explicit(&l->lvt[LVT_TIMER], memory_order_relaxed);
}

/* Divide configuration: bits 3, 1, 0 are n; the divisor is 2^(n+1), and 1 for n = 7. */
static unsigned lapic_divide_shift(const struct lapic *l)
{
	unsigned n = (l->divide_config & 3) | (l->divide_config >> 1 & 4);

	return (n + 1) & 7;
}

static uint64_t lapic_period_ns(const struct lapic *l)
{
	return (uint64_t)l->initial_count << lapic_divide_shift(l);
}

static void lapic_timer_disarm(struct lapic *l)
{
	l->fire_ns = UINT64_MAX;
	vmtimer_cancel(&l->timer);
}

static void lapic_timer_arm(struct lapic *l, uint64_t ns)
{
	l->fire_ns = ns;
	vmtimer_arm(&l->timer, ns);
}

/* Guest time at which the guest's TSC reaches `tsc`, rounded up; `now` if it has. */
static uint64_t lapic_tsc_to_ns(struct lapic *l, uint64_t tsc, uint64_t now)
{
	const struct vmclock *clock = l->chip->bus->clock;
	uint64_t tsc_now = vmclock_tsc(clock), ticks = tsc - tsc_now;
	unsigned __int128 ns;

	if (tsc <= tsc_now || !clock->tsc_khz)
		return now;
	ns = ((unsigned __int128)ticks * 1000000 + clock->tsc_khz - 1) / clock->tsc_khz + now;
	return ns >= UINT64_MAX ? UINT64_MAX - 1 : (uint64_t)ns;
}

/* Arm or disarm the host timer for the present registers. Under timer_lock. */
static void lapic_timer_update(struct lapic *l)
{
	uint32_t lvt = lapic_lvt_timer(l);
	uint64_t now = vmclock_ns(l->chip->bus->clock), period = lapic_period_ns(l), elapsed;

	/* Masked, it only counts, and counting needs no host timer. */
	if (lvt & LVT_MASKED) {
		lapic_timer_disarm(l);
		return;
	}
	if (LVT_TIMER_MODE(lvt) == LVT_TSC_DEADLINE) {
		if (l->tsc_deadline)
			lapic_timer_arm(l, lapic_tsc_to_ns(l, l->tsc_deadline, now));
		else
			lapic_timer_disarm(l);
		return;
	}
	if (!period) {
		lapic_timer_disarm(l);
		return;
	}
	elapsed = now - l->start_ns;
	if (LVT_TIMER_MODE(lvt) == LVT_PERIODIC)
		lapic_timer_arm(l, l->start_ns + (elapsed / period + 1) * period);
	else if (elapsed < period)
		lapic_timer_arm(l, l->start_ns + period);
	else
		lapic_timer_disarm(l);
}

/* The host timer expired (the main loop's thread), or a halted owner found the time come: who is
 * first fires it, the other finds nothing to do. */
static void lapic_timer_expired(void *arg)
{
	struct lapic *l = arg;
	uint64_t now, next, period;
	bool fire = false;

	pthread_mutex_lock(&l->timer_lock);
	now = vmclock_ns(l->chip->bus->clock);
	if (l->fire_ns == UINT64_MAX) {
		/* cancelled while this call was on its way */
	} else if (now < l->fire_ns) {
		vmtimer_arm(&l->timer, l->fire_ns);
	} else {
		fire = true;
		period = lapic_period_ns(l);
		if (LVT_TIMER_MODE(lapic_lvt_timer(l)) == LVT_PERIODIC && period) {
			next = l->start_ns + ((now - l->start_ns) / period + 1) * period;
			lapic_timer_arm(l, MAX(next, now + LAPIC_MIN_PERIOD_NS));
		} else {
			l->fire_ns = UINT64_MAX;
			l->tsc_deadline = 0;
		}
	}
	pthread_mutex_unlock(&l->timer_lock);
	if (fire)
		lapic_lvt_fire(l, LVT_TIMER);
}

uint64_t irqchip_timer_deadline(struct irqchip *c, unsigned cpu)
{
	struct lapic *l = &c->lapic[cpu];
	uint64_t ns;

	pthread_mutex_lock(&l->timer_lock);
	ns = l->fire_ns;
	pthread_mutex_unlock(&l->timer_lock);
	return ns == UINT64_MAX ? ns : vmclock_host_deadline(c->bus->clock, ns);
}

void irqchip_timer_poll(struct irqchip *c, unsigned cpu)
{
	lapic_timer_expired(&c->lapic[cpu]);
}

void lapic_timer_set_initial(struct lapic *l, uint32_t count)
{
	pthread_mutex_lock(&l->timer_lock);
	/* In TSC-deadline mode the count register is ignored. */
	if (LVT_TIMER_MODE(lapic_lvt_timer(l)) != LVT_TSC_DEADLINE) {
		l->initial_count = count;
		l->start_ns = vmclock_ns(l->chip->bus->clock);
		lapic_timer_update(l);
	}
	pthread_mutex_unlock(&l->timer_lock);
}

uint32_t lapic_timer_current(struct lapic *l)
{
	uint64_t elapsed, period;
	uint32_t count = 0;

	pthread_mutex_lock(&l->timer_lock);
	period = lapic_period_ns(l);
	elapsed = vmclock_ns(l->chip->bus->clock) - l->start_ns;
	if (period && LVT_TIMER_MODE(lapic_lvt_timer(l)) == LVT_PERIODIC)
		elapsed %= period;
	if (elapsed < period)
		count = (uint32_t)((period - elapsed) >> lapic_divide_shift(l));
	pthread_mutex_unlock(&l->timer_lock);
	return count;
}

void lapic_timer_set_divide(struct lapic *l, uint32_t value)
{
	uint64_t now, elapsed;

	pthread_mutex_lock(&l->timer_lock);
	/* The count goes on from where it is, at the new pace. */
	now = vmclock_ns(l->chip->bus->clock);
	elapsed = (now - l->start_ns) >> lapic_divide_shift(l);
	l->divide_config = value;
	l->start_ns = now - MIN(elapsed << lapic_divide_shift(l), now);
	lapic_timer_update(l);
	pthread_mutex_unlock(&l->timer_lock);
}

void lapic_timer_lvt_changed(struct lapic *l, uint32_t old)
{
	uint32_t mode = LVT_TIMER_MODE(lapic_lvt_timer(l)), old_mode = LVT_TIMER_MODE(old);

	pthread_mutex_lock(&l->timer_lock);
	/* Into or out of TSC-deadline mode: the timer is disarmed. */
	if (mode != old_mode && (mode == LVT_TSC_DEADLINE || old_mode == LVT_TSC_DEADLINE)) {
		l->initial_count = 0;
		l->tsc_deadline = 0;
	}
	lapic_timer_update(l);
	pthread_mutex_unlock(&l->timer_lock);
}

void lapic_timer_set_deadline(struct lapic *l, uint64_t tsc)
{
	bool fire = false;

	if (LVT_TIMER_MODE(lapic_lvt_timer(l)) != LVT_TSC_DEADLINE)
		return;
	pthread_mutex_lock(&l->timer_lock);
	l->tsc_deadline = tsc;
	/* One that has passed already need not go through the main loop. */
	if (tsc && tsc <= vmclock_tsc(l->chip->bus->clock) && !(lapic_lvt_timer(l) & LVT_MASKED)) {
		fire = true;
		l->tsc_deadline = 0;
	}
	lapic_timer_update(l);
	pthread_mutex_unlock(&l->timer_lock);
	if (fire)
		lapic_lvt_fire(l, LVT_TIMER);
}

uint64_t lapic_timer_deadline(struct lapic *l)
{
	uint64_t tsc;

	pthread_mutex_lock(&l->timer_lock);
	tsc = LVT_TIMER_MODE(lapic_lvt_timer(l)) == LVT_TSC_DEADLINE ? l->tsc_deadline : 0;
	pthread_mutex_unlock(&l->timer_lock);
	return tsc;
}

void lapic_timer_restore(struct lapic *l, uint32_t initial, uint32_t current, uint32_t divide, uint64_t tsc_deadline)
{
	pthread_mutex_lock(&l->timer_lock);
	l->initial_count = initial;
	l->divide_config = divide;
	l->tsc_deadline = tsc_deadline;
	/* May lie before guest time 0: the difference is what counts. */
	l->start_ns =
	    vmclock_ns(l->chip->bus->clock) - ((uint64_t)(initial - MIN(current, initial)) << lapic_divide_shift(l));
	lapic_timer_update(l);
	pthread_mutex_unlock(&l->timer_lock);
}

void lapic_timer_reset(struct lapic *l)
{
	pthread_mutex_lock(&l->timer_lock);
	l->initial_count = l->divide_config = 0;
	l->start_ns = l->tsc_deadline = 0;
	lapic_timer_disarm(l);
	pthread_mutex_unlock(&l->timer_lock);
}

void lapic_timer_init(struct lapic *l)
{
	pthread_mutex_init(&l->timer_lock, NULL);
	vmtimer_init(&l->timer, l->chip->bus->clock, l->chip->bus->loop, lapic_timer_expired, l);
}

void lapic_timer_fini(struct lapic *l)
{
	vmtimer_fini(&l->timer);
	pthread_mutex_destroy(&l->timer_lock);
}
