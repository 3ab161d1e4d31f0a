/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Lockstep's notes of stores, made by code that must not use vector registers
 * (jit_rt.c). vCPU thread.
 */
#include "cpu/soft/lockstep.h"

static void copy_bytes(void *to, const void *from, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

void lockstep_note(struct lockstep *l, uint8_t *host, unsigned size)
{
	struct store_log *log = l->log;
	struct store_note *last;

	if (!log || !size)
		return;
	if (log->used + size > LOCKSTEP_BYTES) {
		log->full = true;
		return;
	}
	last = log->n ? &log->note[log->n - 1] : NULL;
	if (last && host == last->host + last->len) {
		last->len += size;
	} else if (log->n == LOCKSTEP_STORES) {
		log->full = true;
		return;
	} else {
		log->note[log->n++] = (struct store_note){.host = host, .len = size, .at = log->used};
	}
	copy_bytes(log->bytes + log->used, host, size);
	log->used += size;
}

bool lockstep_tsc(const struct soft_cpu *c, uint64_t *tsc)
{
	struct lockstep *l = c->lockstep;

	if (!l || !l->replay || l->tsc_at >= ARRAY_SIZE(c->jx.tsc))
		return false;
	*tsc = c->jx.tsc[l->tsc_at++];
	return true;
}
