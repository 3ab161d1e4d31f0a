/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cross-modifying code: what one CPU wrote must be what another executes after
 * its next serializing event (Intel SDM volume 3A 8.1.3, AMD64 APM volume 2
 * 7.6.1).
 *
 * Writers find MEM_PAGE_CODE and invalidate. One case escapes them: a vCPU has
 * looked at its TLB entry and loses its host CPU before the store; another vCPU
 * meanwhile protects the page and decodes the old bytes; then the store lands,
 * and nobody knows. The guest's protocol for such a change ends in an interrupt
 * or a serializing instruction on the executing CPU, after the store. So code is
 * remembered with a hash of its bytes as it is noted, and compared at such events
 * until every vCPU has passed through its run loop, when no store of before can
 * be under way any more. A difference invalidates as the writer would have.
 *
 * Events are interrupts and CPUID. Exceptions, IRET and MOV CR serialize too, but
 * no protocol that rests on them alone is known, and they are frequent.
 *
 * One lock for the ring and the grace period; under it nothing else is called.
 */
#include <errno.h>
#include <stdlib.h>
#include "cpu/soft/sys.h"

#define RING_SIZE  4096u
#define CHUNK_SIZE 64u
#define BATCH	   32u

struct note {
	uint64_t page, chunks, hash;
};

struct codesync {
	pthread_mutex_t lock;
	_Atomic uint64_t head, retired; /* notes ever made; notes no longer looked at */
	/* A grace period: notes below grace_head retire when each vCPU's turns have changed or are even. */
	bool in_grace;
	uint64_t grace_head;
	uint32_t *turns;
	struct note ring[RING_SIZE];
};

/* Guest memory changes under this; any value will do then. */
static uint64_t __attribute__((no_sanitize("thread"))) hash_chunks(const uint8_t *host, uint64_t chunks)
{
	uint64_t h = 0;

	for (; chunks; chunks &= chunks - 1) {
		const volatile uint64_t *p =
		    (const volatile uint64_t *)(const void *)(host + __builtin_ctzll(chunks) * CHUNK_SIZE);

		for (unsigned i = 0; i < CHUNK_SIZE / 8; i++)
			h = (h ^ p[i]) * 0x9e3779b97f4a7c15ull + (h >> 29);
	}
	return h;
}

void codesync_note(struct accel *a, uint64_t page, uint64_t chunks)
{
	struct codesync *s = ((struct soft_accel *)(void *)a)->codesync;
	const uint8_t *host = mem_page_host(a->cfg.mem, page);
	struct note n = {.page = page, .chunks = chunks};

	if (!s || !host)
		return;
	n.hash = hash_chunks(host, chunks);
	pthread_mutex_lock(&s->lock);
	/* Full: the oldest have been compared many times by now. */
	if (s->head - s->retired == RING_SIZE)
		s->retired++;
	s->ring[s->head % RING_SIZE] = n;
	s->head++;
	pthread_mutex_unlock(&s->lock);
}

static uint32_t turns_of(const struct accel *a, unsigned i)
{
	struct vcpu *v = __atomic_load_n(&a->vcpu[i], __ATOMIC_ACQUIRE);

	return v ? atomic_load(&soft_cpu_of(v)->turns) : 0;
}

/* Odd: in guest code. */
static bool grace_over(const struct accel *a, const struct codesync *s)
{
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		uint32_t now = turns_of(a, i);

		if ((now & 1) && now == s->turns[i])
			return false;
	}
	return true;
}

static void grace_start(const struct accel *a, struct codesync *s)
{
	s->in_grace = s->head != s->retired;
	s->grace_head = s->head;
	for (unsigned i = 0; s->in_grace && i < a->cfg.ncpus; i++)
		s->turns[i] = turns_of(a, i);
}

/* Notes whose bytes are no longer the noted ones; at most `max`. */
static unsigned find_changed(struct accel *a, struct codesync *s, struct note *out, unsigned max)
{
	unsigned n = 0;

	for (uint64_t i = s->retired; i < s->head && n < max; i++) {
		struct note *note = &s->ring[i % RING_SIZE];
		const uint8_t *host = mem_page_host(a->cfg.mem, note->page);
		uint64_t h = host ? hash_chunks(host, note->chunks) : note->hash;

		if (h == note->hash)
			continue;
		out[n++] = *note;
		note->hash = h; /* said once */
	}
	return n;
}

void codesync_check_slow(struct soft_cpu *c)
{
	struct accel *a = c->v.accel;
	struct codesync *s = soft_accel_of(c)->codesync;
	struct note changed[BATCH];
	unsigned n = BATCH;

	while (n == BATCH) {
		bool over;

		pthread_mutex_lock(&s->lock);
		over = s->in_grace && grace_over(a, s);
		/* The last look comes after the end of the grace period was seen. */
		n = find_changed(a, s, changed, BATCH);
		if (over && n < BATCH)
			s->retired = s->grace_head;
		if (n < BATCH && (over || !s->in_grace))
			grace_start(a, s);
		pthread_mutex_unlock(&s->lock);
		for (unsigned i = 0; i < n; i++) {
			for (uint64_t left = changed[i].chunks; left; left &= left - 1)
				code_written(a, changed[i].page, (unsigned)__builtin_ctzll(left) * CHUNK_SIZE,
					     CHUNK_SIZE);
		}
	}
}

bool codesync_pending(const struct accel *a)
{
	const struct codesync *s = ((const struct soft_accel *)(const void *)a)->codesync;

	return s && atomic_load_explicit(&s->head, memory_order_relaxed) !=
			atomic_load_explicit(&s->retired, memory_order_relaxed);
}

int codesync_init(struct accel *a, struct err *err)
{
	struct codesync *s = calloc(1, sizeof(*s));

	if (s)
		s->turns = calloc(a->cfg.ncpus, sizeof(*s->turns));
	if (!s || !s->turns) {
		free(s);
		return err_set(err, -ENOMEM, "no memory for the software CPU");
	}
	pthread_mutex_init(&s->lock, NULL);
	((struct soft_accel *)(void *)a)->codesync = s;
	return 0;
}

void codesync_fini(struct accel *a)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)a;

	if (!sa->codesync)
		return;
	pthread_mutex_destroy(&sa->codesync->lock);
	free(sa->codesync->turns);
	free(sa->codesync);
	sa->codesync = NULL;
}
