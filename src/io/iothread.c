// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * I/O threads. The list is the main thread's, except that iothread_call may read
 * it from any thread: entries are added before their loop is known to anybody and
 * removed after everybody forgot it.
 */
#include "io/iothread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

struct iothread {
	const struct object *object;
	struct loop *loop;
	pthread_t thread;
	struct iothread *next;
};
static struct iothread *iothreads;
static pthread_mutex_t iothreads_lock = PTHREAD_MUTEX_INITIALIZER;

static void *iothread_main(void *arg)
{
	struct iothread *t = arg;

	loop_run(t->loop);
	return NULL;
}

/* Signals stay with the main thread. */
static int start_thread(struct iothread *t)
{
	char name[16] = "io ";
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&t->thread, NULL, iothread_main, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		return -ret;
	strncat(name, t->object->id, sizeof(name) - 4);
	pthread_setname_np(t->thread, name);
	return 0;
}

struct loop *iothread_loop(struct object *o, struct err *err)
{
	struct iothread *t;
	int ret;

	for (t = iothreads; t; t = t->next)
		if (t->object == o)
			return t->loop;
	t = calloc(1, sizeof(*t));
	if (!t) {
		err_set(err, -ENOMEM, "out of memory for iothread '%s'", o->id);
		return NULL;
	}
	t->object = o;
	t->loop = loop_create(o->id, err);
	if (!t->loop) {
		free(t);
		return NULL;
	}
	loop_set_patient(t->loop);
	ret = start_thread(t);
	if (ret) {
		err_set_errno(err, ret, "iothread '%s'", o->id);
		loop_destroy(t->loop);
		free(t);
		return NULL;
	}
	pthread_mutex_lock(&iothreads_lock);
	t->next = iothreads;
	iothreads = t;
	pthread_mutex_unlock(&iothreads_lock);
	return t->loop;
}

static bool is_iothread(const struct loop *l)
{
	const struct iothread *t;

	pthread_mutex_lock(&iothreads_lock);
	for (t = iothreads; t && t->loop != l; t = t->next)
		;
	pthread_mutex_unlock(&iothreads_lock);
	return t != NULL;
}

struct call {
	void (*fn)(void *arg);
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
};

static void run_call(void *arg)
{
	struct call *c = arg;

	c->fn(c->arg);
	pthread_mutex_lock(&c->lock);
	c->done = true;
	pthread_cond_signal(&c->cond);
	pthread_mutex_unlock(&c->lock);
}

void iothread_call(struct loop *l, void (*fn)(void *arg), void *arg)
{
	struct call c = {fn, arg, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

	if (loop_in_thread(l) || !is_iothread(l)) {
		fn(arg);
		return;
	}
	loop_post(l, run_call, &c);
	pthread_mutex_lock(&c.lock);
	while (!c.done)
		pthread_cond_wait(&c.cond, &c.lock);
	pthread_mutex_unlock(&c.lock);
	pthread_cond_destroy(&c.cond);
	pthread_mutex_destroy(&c.lock);
}

void iothread_stop_all(void)
{
	struct iothread *t;

	while ((t = iothreads) != NULL) {
		loop_stop(t->loop);
		pthread_join(t->thread, NULL);
		pthread_mutex_lock(&iothreads_lock);
		iothreads = t->next;
		pthread_mutex_unlock(&iothreads_lock);
		loop_destroy(t->loop);
		free(t);
	}
}
