/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The machine's one clock. Guest nanoseconds run with CLOCK_MONOTONIC_RAW while
 * the machine runs and stand still while it is stopped; the guest's TSC is the
 * host's TSC plus an offset that is corrected for the stops in the same way.
 * PIT, HPET, LAPIC timers, ACPI PM timer, RTC and kvmclock all read this clock,
 * so they cannot disagree.
 */
#ifndef KELVIN_IO_VMCLOCK_H
#define KELVIN_IO_VMCLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "io/loop.h"

struct vmtimer;

struct vmclock {
	_Atomic uint64_t ns_offset;  /* guest ns = clock_raw_ns() - ns_offset, while running */
	_Atomic uint64_t tsc_offset; /* guest TSC = host TSC + tsc_offset, while running */
	_Atomic uint64_t stopped_ns; /* guest ns at the stop */
	_Atomic uint64_t stopped_tsc;
	_Atomic bool running;
	_Atomic uint32_t seq;  /* odd while start or stop changes the fields above */
	bool manual;	       /* never runs: vmclock_step moves it. Set before the first start */
	bool tsc_from_ns;      /* the host's TSC is not invariant: the guest's is computed from ns */
	uint64_t tsc_khz;      /* constant; the guest TSC's frequency */
	uint64_t wall_base_ns; /* CLOCK_REALTIME at guest ns 0 */
	pthread_mutex_t lock;  /* start, stop, and the list of timers */
	struct vmtimer *timers;
};

void vmclock_init(struct vmclock *c); /* stopped, at guest ns 0 */
void vmclock_fini(struct vmclock *c);
/* Continue exactly where the stop was; neither ns nor TSC ever steps back. Timers: vmclock_timers_resume. */
void vmclock_start(struct vmclock *c);
void vmclock_stop(struct vmclock *c);
/* Restore a saved clock; only while stopped. */
void vmclock_set(struct vmclock *c, uint64_t ns, uint64_t tsc);
/*
 * A manual clock: run the timers that are due until guest time `ns`, in order and each at its own time, then be
 * there. At most `most` of them: false when there was no end, call again. It never goes back. Loop's thread.
 */
bool vmclock_step(struct vmclock *c, uint64_t ns, unsigned most);
/* The earliest deadline of all timers, UINT64_MAX when none is armed. */
uint64_t vmclock_next_deadline(struct vmclock *c);
/* The same from another process: also the TSC's frequency and the wall clock at guest ns 0. Before the first start. */
void vmclock_restore(struct vmclock *c, uint64_t ns, uint64_t tsc, uint64_t tsc_khz, uint64_t wall_base_ns);
uint64_t vmclock_ns(const struct vmclock *c);  /* any thread */
uint64_t vmclock_tsc(const struct vmclock *c); /* any thread */
/* Host deadline (clock_raw_ns) of a guest time. While stopped: UINT64_MAX. */
uint64_t vmclock_host_deadline(const struct vmclock *c, uint64_t guest_ns);

/*
 * A timer on guest time. While the machine is stopped it does not fire;
 * vmclock_timers_resume re-arms all of them. Same thread rules as struct timer.
 */
struct vmtimer {
	struct timer timer;
	struct vmclock *clock;
	_Atomic uint64_t guest_deadline; /* UINT64_MAX = not armed */
	void (*fn)(void *arg);
	void *arg;
	struct vmtimer *next; /* all timers of the clock */
};
void vmtimer_init(struct vmtimer *t, struct vmclock *c, struct loop *l, void (*fn)(void *arg), void *arg);
void vmtimer_arm(struct vmtimer *t, uint64_t guest_ns);
void vmtimer_cancel(struct vmtimer *t);
void vmtimer_fini(struct vmtimer *t);
void vmclock_timers_resume(struct vmclock *c);

#endif
