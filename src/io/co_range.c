// SPDX-License-Identifier: GPL-2.0-or-later
/* Ranges taken by coroutines: a list, as only those in flight are in it. No locks: all of one thread. */
#include "io/co_range.h"

#include <stdlib.h>
#include <string.h>

void *co_range_new(struct co_ranges *s)
{
	struct co_range *r = s->free;

	if (r)
		s->free = r->next;
	else
		r = malloc(s->size);
	if (r)
		memset(r, 0, s->size);
	return r;
}

void co_range_free(struct co_ranges *s, struct co_range *r)
{
	r->next = s->free;
	s->free = r;
}

void co_ranges_fini(struct co_ranges *s)
{
	struct co_range *r;

	while ((r = s->free) != NULL) {
		s->free = r->next;
		free(r);
	}
}

struct co_range *co_range_conflict(const struct co_ranges *s, const struct co_range *r)
{
	if (!r->exclusive && !s->exclusives)
		return NULL;
	for (struct co_range *o = s->taken; o; o = o->next)
		if ((o->exclusive || r->exclusive) && o->first <= r->last && r->first <= o->last)
			return o;
	return NULL;
}

void co_range_take(struct co_ranges *s, struct co_range *r)
{
	s->exclusives += r->exclusive;
	r->prev = NULL;
	r->next = s->taken;
	if (s->taken)
		s->taken->prev = r;
	s->taken = r;
}

void co_range_give(struct co_ranges *s, struct co_range *r)
{
	s->exclusives -= r->exclusive;
	*(r->prev ? &r->prev->next : &s->taken) = r->next;
	if (r->next)
		r->next->prev = r->prev;
	co_queue_wake_all(&r->waiters);
}
