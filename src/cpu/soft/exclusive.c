/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An instruction that no other vCPU may see half done and that the host cannot
 * lock: a locked operand across two pages that are not neighbours in host memory.
 * All other vCPUs leave guest code first (AMD64 APM volume 2 7.3.1 allows such an
 * access to lock the bus).
 *
 * Each turn of the run loop is odd in soft_cpu.turns while guest code runs. Who wants to be alone
 * takes the mutex with its own turn even, sets `wanted`, asks the others to leave
 * and waits until their turns are even; a vCPU that begins a turn and finds
 * `wanted` ends it and waits on the mutex. Both sides store, then look, with full
 * fences, so one of them sees the other. Devices' DMA is not stopped.
 *
 * Under the mutex device locks may be taken (the operand may be a device's), but
 * no holder of those waits for it: vCPUs in a device's handler are in a turn.
 */
#include <sched.h>
#include "cpu/soft/soft.h"

void soft_turn_begin(struct soft_cpu *c)
{
	struct soft_accel *a = soft_accel_of(c);

	for (;;) {
		atomic_fetch_add(&c->turns, 1);
		if (likely(!atomic_load(&a->exclusive_wanted)))
			return;
		atomic_fetch_add(&c->turns, 1);
		pthread_mutex_lock(&a->exclusive);
		pthread_mutex_unlock(&a->exclusive);
	}
}

void soft_turn_end(struct soft_cpu *c)
{
	atomic_fetch_add(&c->turns, 1);
}

void soft_exclusive_begin(struct soft_cpu *c)
{
	struct soft_accel *a = soft_accel_of(c);

	soft_turn_end(c);
	pthread_mutex_lock(&a->exclusive);
	atomic_store(&a->exclusive_wanted, true);
	for (unsigned i = 0; i < a->a.cfg.ncpus; i++) {
		struct vcpu *v = __atomic_load_n(&a->a.vcpu[i], __ATOMIC_ACQUIRE);

		while (v && v != &c->v && (atomic_load(&soft_cpu_of(v)->turns) & 1)) {
			atomic_fetch_or(&v->requests, VCPU_REQ_CODE);
			if (soft_cpu_of(v)->native)
				native_kick(soft_cpu_of(v));
			sched_yield();
		}
	}
}

void soft_exclusive_end(struct soft_cpu *c)
{
	struct soft_accel *a = soft_accel_of(c);

	atomic_store(&a->exclusive_wanted, false);
	pthread_mutex_unlock(&a->exclusive);
	soft_turn_begin(c);
}
