/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stackful coroutines for work with many steps that wait for I/O (metadata of
 * image formats): straight code that gives its thread back while it waits. A
 * coroutine belongs to the thread that spawned it and never moves. The switch is
 * a dozen instructions; stacks are kept in a per-thread pool. Sanitizer builds
 * are told about every switch.
 */
#ifndef KELVIN_IO_CO_H
#define KELVIN_IO_CO_H

#include <stdbool.h>

struct co;

/* Usable stack, bytes; below it is a guard page. */
#define CO_STACK_SIZE (64u * 1024)

/*
 * Run fn(arg) as a coroutine now, in the calling thread; returns when it first
 * waits or ends. -ENOMEM: nothing was run. May be called from a coroutine.
 */
int co_spawn(void (*fn)(void *arg), void *arg);
/* The coroutine that runs, NULL outside of one. */
struct co *co_self(void);
/* Give the thread back to whoever resumed this coroutine, until co_wake. */
void co_wait(void);
/* Resume a waiting coroutine; returns when it waits again or ends. The thread it was spawned in. */
void co_wake(struct co *co);
/* Free the calling thread's pooled stacks. */
void co_pool_free(void);

/* First come, first served waiting of coroutines (all of one thread). */
struct co_queue {
	struct co *head, *tail;
};
void co_queue_wait(struct co_queue *q);
/* Wake the first; false when nobody waits. */
bool co_queue_wake_one(struct co_queue *q);
void co_queue_wake_all(struct co_queue *q);

#endif
