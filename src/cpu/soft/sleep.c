/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A vCPU without work: HLT, and waiting for SIPI.
 *
 * Requests are bits of vcpu.requests, set by any thread, which then kicks. The
 * kicker sets the bit and then looks at `sleeping`, the sleeper sets `sleeping`
 * and then looks at the bits, both sequentially consistent; the condition
 * variable's lock closes the gap between that look and the wait.
 *
 * To sleep and be woken takes the host far longer than what many sleeps wait
 * for: another vCPU that answers. So a vCPU whose last sleeps were short looks at
 * its requests for a while first (option halt-poll). After a long sleep it does
 * not, nor for a while after it looked in vain, as on a host without a CPU to
 * spare.
 */
#include "cpu/soft/run.h"

#include "base/clock.h"
#include "cpu/soft/sys.h"

#include <errno.h>
#include <time.h>

#define POLL_FIRST_NS 10000u
#define POLL_LOOKS    64u     /* between two looks at the clock */
#define POLL_GAP_NS   20000u  /* between those: somebody else had the host's CPU */
#define POLL_REST_NS  500000u /* after a look in vain; doubled with each that follows */
#define POLL_FAILURES 7u

void soft_vcpu_kick(struct vcpu *v)
{
	struct soft_cpu *c = soft_cpu_of(v);

	if (c->native)
		native_kick(c);
	if (!atomic_load(&c->sleeping))
		return;
	pthread_mutex_lock(&c->sleep_lock);
	pthread_cond_signal(&c->sleep_cond);
	pthread_mutex_unlock(&c->sleep_lock);
}

/* CLOCK_MONOTONIC, which condition variables know, at a time of CLOCK_MONOTONIC_RAW. */
static struct timespec sleep_end(uint64_t raw_ns)
{
	uint64_t now = clock_raw_ns();
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	raw_ns = raw_ns > now ? raw_ns - now + (uint64_t)t.tv_nsec : 0;
	t.tv_sec += (time_t)(raw_ns / NSEC_PER_SEC);
	t.tv_nsec = (long)(raw_ns % NSEC_PER_SEC);
	return t;
}

/* Look for requests for a while, or until the deadline. */
static bool poll_requests(struct soft_cpu *c, uint64_t start, uint64_t deadline)
{
	uint64_t end = MIN(start + c->poll_ns, deadline), now = start, last;

	if (!c->poll_ns || start < c->poll_not_before)
		return false;
	do {
		for (unsigned n = 0; n < POLL_LOOKS; n++) {
			if (soft_attention(c)) {
				c->poll_failures = 0;
				return true;
			}
			__builtin_ia32_pause();
		}
		last = now;
		now = clock_raw_ns();
	} while (now < end && now - last < POLL_GAP_NS);
	/* In vain: who would have answered may be waiting for this very CPU of the host. */
	c->poll_not_before = now + (POLL_REST_NS << c->poll_failures);
	if (c->poll_failures < POLL_FAILURES)
		c->poll_failures++;
	return false;
}

/* How long to look next time, after a sleep of this length. */
static void poll_adapt(struct soft_cpu *c, uint64_t slept)
{
	uint32_t most = soft_accel_of(c)->halt_poll;

	if (slept > most)
		c->poll_ns = 0;
	else if (slept > c->poll_ns)
		c->poll_ns = MIN(MAX(2 * c->poll_ns, POLL_FIRST_NS), most);
}

/* The APIC timer is waited for here: one thread less on its way. */
void soft_sleep(struct soft_cpu *c)
{
	const struct cpu_host *h = sys_host(c);
	uint64_t deadline = h->timer_deadline ? h->timer_deadline(h->opaque, c->v.index) : UINT64_MAX;
	uint64_t start = clock_raw_ns();
	struct timespec end;
	bool due = false;

	if (poll_requests(c, start, deadline))
		return;
	if (deadline != UINT64_MAX)
		end = sleep_end(deadline);
	pthread_mutex_lock(&c->sleep_lock);
	atomic_store(&c->sleeping, true);
	while (!due && !atomic_load(&c->v.requests)) {
		if (deadline == UINT64_MAX)
			pthread_cond_wait(&c->sleep_cond, &c->sleep_lock);
		else
			due =
			    pthread_cond_clockwait(&c->sleep_cond, &c->sleep_lock, CLOCK_MONOTONIC, &end) == ETIMEDOUT;
	}
	atomic_store(&c->sleeping, false);
	pthread_mutex_unlock(&c->sleep_lock);
	if (due)
		h->timer_poll(h->opaque, c->v.index);
	poll_adapt(c, clock_raw_ns() - start);
}
