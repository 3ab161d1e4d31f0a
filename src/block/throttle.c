// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Throttling. Each limit is a bucket that leaks at its average rate and that
 * requests fill; a request waits while the bucket holds more than a tenth of a
 * second's worth, or than the burst allows. A burst has a second bucket that leaks
 * at the burst's rate. Requests of one direction pass in order.
 *
 * Locking: a group's buckets under its mutex, a leaf held for arithmetic only; a
 * node's queues and timers belong to its loop's thread.
 */
#include "block/throttle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/object.h"
#include "base/util.h"
#include "block/driver.h"

struct bucket {
	double avg, max, length; /* per second; seconds */
	double level, burst_level;
};

struct throttle_group {
	char *name;
	pthread_mutex_t lock;
	struct bucket buckets[THROTTLE_KINDS];
	double iops_size;
	uint64_t leaked_ns;
	struct throttle_group *next;
};
static struct throttle_group *groups; /* main thread; they live as long as the process */

/* One direction of a node. */
struct throttle_queue {
	struct block_node *node;
	struct block_req *head, **tail;
	struct timer timer;
	bool write;
};
struct block_throttle {
	struct throttle_group *group;
	struct throttle_queue queues[2]; /* reads, writes */
	bool released;
};

/* ---- groups ----------------------------------------------------------------------- */

static const enum throttle_kind kinds_of[2][4] = {
    {THROTTLE_BPS, THROTTLE_BPS_RD, THROTTLE_IOPS, THROTTLE_IOPS_RD},
    {THROTTLE_BPS, THROTTLE_BPS_WR, THROTTLE_IOPS, THROTTLE_IOPS_WR},
};

bool throttle_wanted(const struct throttle_limits *l)
{
	for (int i = 0; i < THROTTLE_KINDS; i++)
		if (l->avg[i] || l->max[i] || l->length[i])
			return true;
	return l->iops_size != 0;
}

static bool total_and_part(const uint64_t *v)
{
	return (v[0] && (v[1] || v[2])) || (v[3] && (v[4] || v[5]));
}

int throttle_check(const struct throttle_limits *l, struct err *err)
{
	if (total_and_part(l->avg) || total_and_part(l->max))
		return err_set(err, -EINVAL,
			       "bps/iops/max total values and read/write values cannot be used at the same time");
	if (l->iops_size && !l->avg[THROTTLE_IOPS] && !l->avg[THROTTLE_IOPS_RD] && !l->avg[THROTTLE_IOPS_WR])
		return err_set(err, -EINVAL, "iops size requires an iops value to be set");
	for (int i = 0; i < THROTTLE_KINDS; i++) {
		if (l->avg[i] > 1000000000000000ull || l->max[i] > 1000000000000000ull)
			return err_set(err, -EINVAL, "bps/iops/max values must be within [0, 1000000000000000]");
		if (l->max[i] && !l->avg[i])
			return err_set(err, -EINVAL, "bps_max/iops_max require corresponding bps/iops values");
		if (l->max[i] && l->max[i] < l->avg[i])
			return err_set(err, -EINVAL, "bps_max/iops_max cannot be lower than bps/iops");
		if (l->length[i] > 1 && !l->max[i])
			return err_set(err, -EINVAL, "burst length set without burst rate");
		if (l->length[i] > UINT32_MAX)
			return err_set(err, -EINVAL, "burst length too high for this burst rate");
	}
	return 0;
}

static struct throttle_group *find_group(const char *name)
{
	struct throttle_group *g = groups;

	while (g && strcmp(g->name, name) != 0)
		g = g->next;
	return g;
}

/* The group of a -object throttle-group, made when it is first joined. */
static struct throttle_group *group_of_object(const char *id, struct err *err)
{
	const struct object *o = object_find(id);
	const struct object_throttle *t;
	struct throttle_limits l;

	if (!o || strcmp(o->type->name, "throttle-group") != 0) {
		err_set(err, -ENOENT, "Throttle group '%s' does not exist", id);
		return NULL;
	}
	t = container_of(o, struct object_throttle, object);
	memcpy(l.avg, t->avg, sizeof(l.avg));
	memcpy(l.max, t->max, sizeof(l.max));
	memcpy(l.length, t->length, sizeof(l.length));
	l.iops_size = t->iops_size;
	return throttle_group_set(id, &l, err) ? NULL : find_group(id);
}

int throttle_group_set(const char *name, const struct throttle_limits *l, struct err *err)
{
	struct throttle_group *g = find_group(name);
	int ret = throttle_check(l, err);

	if (ret)
		return ret;
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g || !(g->name = strdup(name))) {
			free(g);
			return err_set(err, -ENOMEM, "out of memory");
		}
		pthread_mutex_init(&g->lock, NULL);
		g->next = groups;
		groups = g;
	}
	pthread_mutex_lock(&g->lock);
	for (int i = 0; i < THROTTLE_KINDS; i++)
		g->buckets[i] = (struct bucket){
		    .avg = (double)l->avg[i], .max = (double)l->max[i], .length = (double)MAX(l->length[i], 1u)};
	g->iops_size = (double)l->iops_size;
	g->leaked_ns = clock_raw_ns();
	pthread_mutex_unlock(&g->lock);
	return 0;
}

/* lock held */
static void leak(struct throttle_group *g, uint64_t now)
{
	const double s = now > g->leaked_ns ? (double)(now - g->leaked_ns) / 1e9 : 0;

	for (int i = 0; i < THROTTLE_KINDS; i++) {
		struct bucket *b = &g->buckets[i];
		b->level = MAX(b->level - b->avg * s, 0.0);
		b->burst_level = MAX(b->burst_level - b->max * s, 0.0);
	}
	g->leaked_ns = now;
}

/* Seconds until a request may pass. */
static double wait_of(const struct bucket *b)
{
	double over;

	if (b->avg == 0)
		return 0;
	over = b->level - (b->max > 0 ? b->max * b->length : b->avg / 10);
	if (over > 0)
		return over / b->avg;
	over = b->burst_level - b->max / 10;
	return b->max > 0 && b->length > 1 && over > 0 ? over / b->max : 0;
}

/* 0: counted, it may pass; else the time to look again. */
static uint64_t admit(struct throttle_group *g, const struct block_req *req, bool write)
{
	const uint64_t now = clock_raw_ns();
	double wait = 0, units = 1;

	pthread_mutex_lock(&g->lock);
	leak(g, now);
	for (int i = 0; i < 4; i++)
		wait = MAX(wait, wait_of(&g->buckets[kinds_of[write][i]]));
	if (wait == 0) {
		if (g->iops_size > 0 && (double)req->len > g->iops_size)
			units = (double)req->len / g->iops_size;
		for (int i = 0; i < 4; i++) {
			struct bucket *b = &g->buckets[kinds_of[write][i]];
			const double amount = i < 2 ? (double)req->len : units;
			b->level += amount;
			b->burst_level += b->length > 1 ? amount : 0;
		}
	}
	pthread_mutex_unlock(&g->lock);
	return wait > 0 ? now + (uint64_t)(wait * 1e9) + 1 : 0;
}

/* ---- nodes ------------------------------------------------------------------------- */

static void pass_on(struct throttle_queue *q)
{
	struct block_req *req = q->head;

	q->head = req->next;
	if (!q->head)
		q->tail = &q->head;
	block_pass(q->node, req);
}

static void queue_run(void *arg)
{
	struct throttle_queue *q = arg;
	struct throttle_group *g = q->node->throttle->group;

	while (q->head) {
		const uint64_t when = admit(g, q->head, q->write);
		if (when) {
			timer_arm(&q->timer, when);
			break;
		}
		pass_on(q);
	}
	block_flush_queue(q->node);
}

bool block_throttle_hold(struct block_node *n, struct block_req *req)
{
	struct block_throttle *t = n->throttle;
	struct throttle_queue *q = &t->queues[req->op != BLOCK_READ];
	uint64_t when = 0;

	if (t->released || req->op == BLOCK_FLUSH || req->op == BLOCK_DISCARD)
		return false;
	if (!q->head) {
		when = admit(t->group, req, q->write);
		if (!when)
			return false;
		timer_arm(&q->timer, when);
	}
	req->next = NULL;
	*q->tail = req;
	q->tail = &req->next;
	return true;
}

void block_throttle_release(struct block_node *n)
{
	struct block_throttle *t = n->throttle;

	t->released = true;
	for (int i = 0; i < 2; i++) {
		timer_cancel(&t->queues[i].timer);
		while (t->queues[i].head)
			pass_on(&t->queues[i]);
	}
	t->released = false;
}

const char *block_throttle_limits(const struct block_node *n, struct throttle_limits *out)
{
	struct throttle_group *g = n->throttle ? n->throttle->group : NULL;

	*out = (struct throttle_limits){0};
	if (!g)
		return NULL;
	pthread_mutex_lock(&g->lock);
	for (int i = 0; i < THROTTLE_KINDS; i++) {
		out->avg[i] = (uint64_t)g->buckets[i].avg;
		out->max[i] = (uint64_t)g->buckets[i].max;
		out->length[i] = (uint64_t)g->buckets[i].length;
	}
	out->iops_size = (uint64_t)g->iops_size;
	pthread_mutex_unlock(&g->lock);
	return g->name;
}

int block_throttle_join(struct block_node *n, const char *group, struct err *err)
{
	struct throttle_group *g = find_group(group);
	struct block_throttle *t;

	if (!g)
		g = group_of_object(group, err);
	if (!g)
		return err && err->code ? err->code : -ENOENT;
	if (n->throttle) {
		n->throttle->group = g;
		return 0;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_set(err, -ENOMEM, "out of memory");
	t->group = g;
	for (int i = 0; i < 2; i++) {
		struct throttle_queue *q = &t->queues[i];
		q->node = n;
		q->tail = &q->head;
		q->write = i == 1;
		timer_init(&q->timer, n->loop, queue_run, q);
	}
	n->throttle = t;
	return 0;
}

void block_throttle_set_loop(struct block_node *n, struct loop *l)
{
	for (int i = 0; i < 2; i++) {
		timer_cancel_sync(&n->throttle->queues[i].timer);
		timer_init(&n->throttle->queues[i].timer, l, queue_run, &n->throttle->queues[i]);
	}
}

void block_throttle_leave(struct block_node *n)
{
	for (int i = 0; i < 2; i++)
		timer_cancel_sync(&n->throttle->queues[i].timer);
	free(n->throttle);
	n->throttle = NULL;
}
