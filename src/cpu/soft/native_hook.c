/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where the rest of the software CPU meets native ring 3. Built with general
 * registers only: callers may have the guest's vector state in the host's.
 *
 * Which address spaces run natively: a stay costs two switches of process, some
 * 15 us with all registers, and each page some more. So those whose user code
 * runs long between entries to the kernel (timer ticks count as entries), as
 * measured while they are translated; and while they are native, those whose
 * stays turn out short are sent back, for twice as long each time.
 */
#include "cpu/soft/native.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/clock.h"

#define ENOUGH_ENTRIES 4u
#define DECAY	       32u

static struct native_hint *hint_of(struct soft_cpu *c)
{
	struct native_cpu *n = c->native;
	uint64_t cr3 = c->s.cr3 & PAGE_MASK;
	struct native_hint *h = &n->hints[(cr3 >> PAGE_SHIFT) * 0x9e3779b97f4a7c15ull >> 56];

	_Static_assert(NATIVE_HINTS == 256, "eight bits of the hash");
	if (h->cr3 != cr3)
		*h = (struct native_hint){.cr3 = cr3};
	return h;
}

void native_cpl_changed(struct soft_cpu *c, unsigned old)
{
	struct native_cpu *n = c->native;
	uint64_t now = clock_tsc();
	struct native_hint *h = n->hint;

	c->native_armed = false;
	if (old == 3 && h) {
		h->user += now - n->since;
		if (++h->entries >= DECAY) {
			h->user /= 2;
			h->entries /= 2;
		}
	}
	n->hint = NULL;
	if (c->cpl != 3 || !c->long64 || n->failed)
		return;
	h = n->hint = hint_of(c);
	n->since = now;
	c->native_armed = soft_accel_of(c)->native == NATIVE_ALWAYS ||
			  (h->entries >= ENOUGH_ENTRIES && now >= h->until && h->user > h->entries * n->promote);
}

void native_mapping_dropped(struct soft_cpu *c, uint64_t page)
{
	unsigned pcid = mmu_pcid(c);

	for (unsigned i = 0; i < NATIVE_CONTEXTS; i++) {
		struct native_context *x = &c->native->ctx[i];

		if (!x->proc.pid || x->pcid != pcid)
			continue;
		if (page == NATIVE_ALL_PAGES || x->ndrops == NATIVE_DROPS)
			x->drop_all = true;
		else
			x->drop[x->ndrops++] = page;
	}
}

void native_kick(struct soft_cpu *c)
{
	struct native_cpu *n = c->native;
	int pid;

	if (!atomic_load(&n->pid))
		return;
	/* Under the lock the process is not ended by us. One that somebody else kills gives its number back
	 * microseconds before `pid` says so; numbers are not used again that soon. */
	pthread_mutex_lock(&n->lock);
	pid = atomic_load(&n->pid);
	if (pid)
		syscall(SYS_kill, pid, SIGUSR1);
	pthread_mutex_unlock(&n->lock);
}

void native_protect_page(struct accel *a, uint64_t page_index)
{
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		struct vcpu *v = __atomic_load_n(&a->vcpu[i], __ATOMIC_ACQUIRE);
		struct native_cpu *n = v ? soft_cpu_of(v)->native : NULL;
		uint32_t round;

		if (!n)
			continue;
		pthread_mutex_lock(&n->lock);
		if (n->nprotect < NATIVE_DROPS)
			n->protect_page[n->nprotect++] = page_index;
		else
			n->protect_all = true;
		atomic_store(&n->protect, true);
		pthread_mutex_unlock(&n->lock);
		/* Who enters from now on sees the note; who is inside must have left. */
		round = atomic_load(&n->rounds);
		while (atomic_load(&n->pid) && atomic_load(&n->rounds) == round) {
			native_kick(soft_cpu_of(v));
			sched_yield();
		}
	}
}
