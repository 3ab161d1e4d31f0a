/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * kvmclock for the guests of the software CPU: the two structures KVM's
 * paravirtual clock has in guest memory (Linux Documentation/virt/kvm/x86/msr.rst
 * describes them). Time is the machine's one clock; both it and the guest's TSC
 * stand still while the machine is stopped, so what is written stays true and is
 * written only when the guest asks, or moves its TSC.
 */
#include "cpu/soft/sys.h"

#include "base/clock.h"
#include "io/vmclock.h"

#define FLAG_TSC_STABLE 1

struct pvclock_time {
	uint32_t version, pad0;
	uint64_t tsc_timestamp, system_time;
	uint32_t tsc_to_system_mul;
	int8_t tsc_shift;
	uint8_t flags, pad[2];
};

struct pvclock_wall {
	uint32_t version, sec, nsec;
};

/* ns = ((tsc << shift) * mul) >> 32, a negative shift to the right; mul in 2^31..2^32 for most precision. */
static void tsc_scale(uint64_t khz, uint32_t *mul, int8_t *shift)
{
	uint64_t hz = khz * 1000;
	int s = 0;

	for (; hz > 2 * NSEC_PER_SEC; hz >>= 1)
		s--;
	for (; hz <= NSEC_PER_SEC; hz <<= 1)
		s++;
	*mul = (uint32_t)muldiv64(NSEC_PER_SEC, 1ull << (32 - s), khz * 1000);
	*shift = (int8_t)s;
}

/* One pair of TSC and time for all CPUs and all updates: then their clocks agree to the bit. */
static void origin(struct soft_accel *a, uint64_t *tsc, uint64_t *ns)
{
	pthread_mutex_lock(&a->lock);
	if (!a->clock_origin_set) {
		a->clock_origin_ns = vmclock_ns(a->a.cfg.clock) + a->clock_ahead_ns;
		a->clock_origin_tsc = vmclock_tsc(a->a.cfg.clock);
		a->clock_origin_set = true;
	}
	*tsc = a->clock_origin_tsc;
	*ns = a->clock_origin_ns;
	pthread_mutex_unlock(&a->lock);
}

void kvmclock_write_time(struct soft_cpu *c)
{
	struct mem_map *m = c->v.accel->cfg.mem;
	const struct vmclock *clk = c->v.accel->cfg.clock;
	uint64_t gpa = c->s.kvm_system_time & ~1ull;
	struct pvclock_time t = {.flags = FLAG_TSC_STABLE};
	uint32_t version;

	if (!(c->s.kvm_system_time & 1) || !clk->tsc_khz || dma_read(m, gpa, &version, 4))
		return;
	origin(soft_accel_of(c), &t.tsc_timestamp, &t.system_time);
	t.tsc_timestamp += c->s.tsc_adjust;
	tsc_scale(clk->tsc_khz, &t.tsc_to_system_mul, &t.tsc_shift);
	/* Odd while it changes; readers are this CPU's guest code, or other vCPUs through the same page. */
	t.version = (version | 1) + 2;
	dma_write(m, gpa, &t, sizeof(t));
	t.version++;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	dma_write(m, gpa, &t.version, 4);
}

void kvmclock_write_wall(struct soft_cpu *c, uint64_t gpa)
{
	struct mem_map *m = c->v.accel->cfg.mem;
	uint64_t wall = c->v.accel->cfg.clock->wall_base_ns;
	struct pvclock_wall w;
	uint32_t version;

	/* Wall-clock time at system time 0. */
	if (dma_read(m, gpa, &version, 4))
		return;
	w = (struct pvclock_wall){.version = (version | 1) + 1,
				  .sec = (uint32_t)(wall / NSEC_PER_SEC),
				  .nsec = (uint32_t)(wall % NSEC_PER_SEC)};
	dma_write(m, gpa, &w, sizeof(w));
}
