// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The pool of computing threads. Locking: pool.lock guards all of it; it is held
 * for a few instructions. Results go back through loop_post.
 */
#include "io/work.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct work *head, **tail;
	unsigned workers, idle;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void finish(void *arg)
{
	struct work *w = arg;

	w->done(w);
}

static void *worker(void *arg)
{
	struct work *w;

	pthread_mutex_lock(&pool.lock);
	for (;;) {
		while (!pool.head) {
			pool.idle++;
			pthread_cond_wait(&pool.more, &pool.lock);
			pool.idle--;
		}
		w = pool.head;
		pool.head = w->next;
		if (!pool.head)
			pool.tail = &pool.head;
		pthread_mutex_unlock(&pool.lock);
		w->fn(w);
		loop_post(w->loop, finish, w);
		pthread_mutex_lock(&pool.lock);
	}
	return NULL;
}

/* What this process may use. */
static unsigned cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* lock is held. Signals stay with the threads that wait for them. */
static int start_worker(void)
{
	sigset_t all, old;
	pthread_t t;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	ret = pthread_create(&t, NULL, worker, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		return -ret;
	pthread_detach(t);
	pool.workers++;
	return 0;
}

int work_submit(struct work *w)
{
	int ret = 0;

	pthread_mutex_lock(&pool.lock);
	if (!pool.idle && pool.workers < cores())
		ret = start_worker();
	if (pool.workers)
		ret = 0; /* those that are there will do */
	if (!ret) {
		if (!pool.head)
			pool.tail = &pool.head;
		w->next = NULL;
		*pool.tail = w;
		pool.tail = &w->next;
		pthread_cond_signal(&pool.more);
	}
	pthread_mutex_unlock(&pool.lock);
	return ret;
}
