/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cross-modifying code: what one CPU wrote must be what another executes after
 * its next serializing event (Intel SDM volume 3A 8.1.3, AMD64 APM volume 2
 * 7.6.1).
 *
 * Writers find MEM_PAGE_CODE and invalidate. One case escapes them: a vCPU (or a
 * device) has looked at its TLB entry or at the page's bits, and loses its host
 * CPU before the store; another vCPU meanwhile protects the page and decodes the
 * old bytes; then the store lands, and nobody knows. The guest protocol for
 * such a change ends in an interrupt or another serializing instruction on the
 * executing CPU, after the store. So code is remembered with a hash of its bytes
 * as it is noted, and at serializing events each vCPU compares what was noted
 * since its last one. A difference invalidates the page as the writer would have.
 *
 * The ring is shared, under one lock. A vCPU that falls behind by more than its
 * size (it slept) checks what is left: the others have checked the rest.
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
	_Atomic uint64_t head; /* notes ever made */
	struct note ring[RING_SIZE];
};

static const uint8_t *page_host(const struct mem_map *m, uint64_t page)
{
	for (unsigned i = 0; i < m->nblocks; i++) {
		const struct ram_block *b = &m->block[i];

		if (page - b->page0 < b->size >> PAGE_SHIFT)
			return b->host + ((page - b->page0) << PAGE_SHIFT);
	}
	return NULL;
}

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
	const uint8_t *host = page_host(a->cfg.mem, page);
	struct note n = {.page = page, .chunks = chunks};

	if (!s || !host)
		return;
	n.hash = hash_chunks(host, chunks);
	pthread_mutex_lock(&s->lock);
	s->ring[s->head % RING_SIZE] = n;
	s->head++;
	pthread_mutex_unlock(&s->lock);
}

static void check_note(struct accel *a, const struct note *n)
{
	const uint8_t *host = page_host(a->cfg.mem, n->page);

	if (!host || hash_chunks(host, n->chunks) == n->hash)
		return;
	for (uint64_t left = n->chunks; left; left &= left - 1)
		code_written(a, n->page, (unsigned)__builtin_ctzll(left) * CHUNK_SIZE, CHUNK_SIZE);
}

void codesync_check_slow(struct soft_cpu *c)
{
	struct codesync *s = soft_accel_of(c)->codesync;
	struct note batch[BATCH];
	unsigned n = BATCH;

	while (n == BATCH) {
		pthread_mutex_lock(&s->lock);
		if (s->head - c->codesync_seen > RING_SIZE)
			c->codesync_seen = s->head - RING_SIZE;
		for (n = 0; n < BATCH && c->codesync_seen < s->head; n++)
			batch[n] = s->ring[c->codesync_seen++ % RING_SIZE];
		pthread_mutex_unlock(&s->lock);
		for (unsigned i = 0; i < n; i++)
			check_note(c->v.accel, &batch[i]);
	}
}

uint64_t codesync_head(const struct accel *a)
{
	const struct codesync *s = ((const struct soft_accel *)(const void *)a)->codesync;

	return s ? atomic_load_explicit(&s->head, memory_order_relaxed) : 0;
}

int codesync_init(struct accel *a, struct err *err)
{
	struct codesync *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(err, -ENOMEM, "no memory for the software CPU");
	pthread_mutex_init(&s->lock, NULL);
	((struct soft_accel *)(void *)a)->codesync = s;
	return 0;
}

void codesync_fini(struct accel *a)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)a;

	if (sa->codesync)
		pthread_mutex_destroy(&sa->codesync->lock);
	free(sa->codesync);
	sa->codesync = NULL;
}
