// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A bounded cache of tables (L2 tables, refcount blocks), and the waiting that
 * the qcow2 driver's coroutines do. Dirty and pinned tables are never evicted:
 * writers call qcow2_flush_tables before too many are dirty, so the bound is
 * exceeded by no more than what is in flight. The node's loop's thread only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "block/qcow2.h"

int qcow2_cache_init(struct qcow2_cache *c, unsigned max)
{
	unsigned n = 16;

	while (n < max && n < 65536)
		n *= 2;
	c->buckets = calloc(n, sizeof(c->buckets[0]));
	c->mask = n - 1;
	c->max = max;
	return c->buckets ? 0 : -ENOMEM;
}

static struct qcow2_table **bucket(struct qcow2_cache *c, uint64_t offset)
{
	return &c->buckets[(offset * 0x9e3779b97f4a7c15ull >> 40) & c->mask];
}

static void list_remove(struct qcow2_cache *c, struct qcow2_table *t)
{
	*(t->prev ? &t->prev->next : &c->first) = t->next;
	*(t->next ? &t->next->prev : &c->last) = t->prev;
}

static void list_push(struct qcow2_cache *c, struct qcow2_table *t)
{
	t->prev = NULL;
	t->next = c->first;
	*(c->first ? &c->first->prev : &c->last) = t;
	c->first = t;
}

static void table_drop(struct qcow2_cache *c, struct qcow2_table *t)
{
	struct qcow2_table **p = bucket(c, t->offset);

	while (*p != t)
		p = &(*p)->hash_next;
	*p = t->hash_next;
	list_remove(c, t);
	c->count--;
	c->dirty -= t->dirty;
	free(t->data);
	free(t);
}

void qcow2_cache_drop(struct qcow2_cache *c)
{
	while (c->first)
		table_drop(c, c->first);
}

void qcow2_cache_free(struct qcow2_cache *c)
{
	qcow2_cache_drop(c);
	free(c->buckets);
	c->buckets = NULL;
}

/* Give the memory of tables back that nobody used for an interval. */
static void clean(struct qcow2_cache *c)
{
	const uint64_t now = clock_raw_ns();
	struct qcow2_table *t, *prev;

	if (now - c->cleaned_at < c->clean_ns)
		return;
	c->cleaned_at = now;
	for (t = c->last; t; t = prev) {
		prev = t->prev;
		if (!t->used && !t->pins && !t->dirty)
			table_drop(c, t);
		else
			t->used = false;
	}
}

static struct qcow2_table *cache_peek(struct qcow2_cache *c, uint64_t offset)
{
	struct qcow2_table *t = *bucket(c, offset);

	while (t && t->offset != offset)
		t = t->hash_next;
	if (t && c->first != t) {
		list_remove(c, t);
		list_push(c, t);
	}
	if (t)
		t->used = true;
	return t;
}

struct qcow2_table *qcow2_cache_find(struct qcow2_cache *c, uint64_t offset)
{
	struct qcow2_table *t = cache_peek(c, offset);

	return t && !t->loading ? t : NULL;
}

static void make_room(struct qcow2_cache *c)
{
	struct qcow2_table *t = c->last, *prev;

	for (; t && c->count >= c->max; t = prev) {
		prev = t->prev;
		if (!t->pins && !t->dirty)
			table_drop(c, t);
	}
}

static struct qcow2_table *table_add(struct qcow2 *q, struct qcow2_cache *c, uint64_t offset)
{
	struct qcow2_table *t = calloc(1, sizeof(*t));

	if (c->clean_ns)
		clean(c);
	make_room(c);
	if (t)
		t->data = aligned_alloc(4096, ALIGN_UP(q->cluster_size, 4096u));
	if (!t || !t->data) {
		free(t);
		return NULL;
	}
	t->offset = offset;
	t->pins = 1;
	t->used = true;
	t->hash_next = *bucket(c, offset);
	*bucket(c, offset) = t;
	list_push(c, t);
	c->count++;
	return t;
}

int qcow2_cache_get(struct qcow2 *q, struct qcow2_cache *c, uint64_t offset, struct qcow2_table **out)
{
	struct qcow2_table *t;
	int ret;

	while ((t = cache_peek(c, offset)) != NULL && t->loading)
		co_queue_wait(&t->waiters); /* then look again: the load may have failed */
	if (t) {
		t->pins++;
		*out = t;
		return 0;
	}
	t = table_add(q, c, offset);
	if (!t)
		return -ENOMEM;
	t->loading = true;
	ret = qcow2_file_io(q, BLOCK_READ, offset, t->data, q->cluster_size);
	t->loading = false;
	if (ret) {
		struct co_queue waiters = t->waiters;
		table_drop(c, t);
		co_queue_wake_all(&waiters);
		return ret;
	}
	*out = t;
	co_queue_wake_all(&t->waiters);
	return 0;
}

int qcow2_cache_new(struct qcow2 *q, struct qcow2_cache *c, uint64_t offset, struct qcow2_table **out)
{
	struct qcow2_table *t = cache_peek(c, offset);

	/* A cluster that was a table before and was freed since. */
	if (t) {
		BUG_ON(t->loading);
		t->pins++;
	} else {
		t = table_add(q, c, offset);
	}
	if (!t)
		return -ENOMEM;
	memset(t->data, 0, q->cluster_size);
	qcow2_cache_dirty(c, t);
	*out = t;
	return 0;
}

void qcow2_cache_dirty(struct qcow2_cache *c, struct qcow2_table *t)
{
	c->dirty += !t->dirty;
	t->dirty = true;
}

void qcow2_lock_take(struct qcow2_lock *l)
{
	while (l->held)
		co_queue_wait(&l->queue);
	l->held = true;
}

void qcow2_lock_give(struct qcow2_lock *l)
{
	l->held = false;
	co_queue_wake_one(&l->queue);
}

int qcow2_file_iov(struct qcow2 *q, enum block_op op, uint64_t offset, const struct iovec *iov, int niov, uint64_t len)
{
	return block_file_wait(q->file, q->node->loop, op, true, offset, len, iov, niov);
}

int qcow2_data_iov(struct qcow2 *q, enum block_op op, uint64_t offset, const struct iovec *iov, int niov, uint64_t len)
{
	return block_file_wait(q->data, q->node->loop, op, true, offset, len, iov, niov);
}

int qcow2_file_io(struct qcow2 *q, enum block_op op, uint64_t offset, void *buf, uint64_t len)
{
	return block_file_wait_buf(q->file, q->node->loop, op, offset, buf, len);
}
