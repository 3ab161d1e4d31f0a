/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Event loop: file descriptors, timers and posted calls, run by one thread.
 * The main loop is one; each -object iothread is another. Timers are on
 * CLOCK_MONOTONIC_RAW (base/clock.h), kept in a heap.
 *
 * Thread rules: loop_post and timer_arm/timer_cancel may be called from any
 * thread; everything else only from the loop's own thread or before it runs.
 */
#ifndef KELVIN_IO_LOOP_H
#define KELVIN_IO_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

struct loop;

#define LOOP_READ  1u
#define LOOP_WRITE 2u
#define LOOP_HUP   4u /* reported, never asked for */
#define LOOP_EDGE  8u /* with LOOP_READ on an eventfd: called once per wake-up, and nobody needs to read it */

/* NULL and err on failure. The caller owns it; loop_destroy when its thread has left loop_run. */
struct loop *loop_create(const char *name, struct err *err);
void loop_destroy(struct loop *l);

/*
 * A loop is patient when nobody minds that its thread is held up by a file of this host for some tenths of a second now
 * and then: a tool's, or an iothread's, which has nothing but disks. Set by its maker before it runs.
 */
void loop_set_patient(struct loop *l);
bool loop_is_patient(const struct loop *l);

/* Watch fd for `events`; fn runs in the loop's thread. One watch per fd: -EEXIST for a second. */
int loop_watch(struct loop *l, int fd, unsigned events, void (*fn)(void *arg, unsigned events), void *arg);
/* Change the events of a watched fd (0 keeps it but silent). */
void loop_rewatch(struct loop *l, int fd, unsigned events);
/* After it returns fn is not called again for fd. The fd is not closed. */
void loop_unwatch(struct loop *l, int fd);

/* Run fn(arg) once in the loop's thread, soon. Any thread, async-signal-safe is not promised. */
void loop_post(struct loop *l, void (*fn)(void *arg), void *arg);

/* Run until loop_stop. loop_run_once waits at most timeout_ns (-1: for ever), handles what is due. */
void loop_run(struct loop *l);
void loop_run_once(struct loop *l, int64_t timeout_ns);
void loop_stop(struct loop *l); /* any thread, and from a signal handler */
bool loop_in_thread(const struct loop *l);

/*
 * Call fn(arg) before each sleep of the loop (queues are submitted and completions
 * gathered here). True when it did something that another hook, or the caller of
 * loop_run_once, may have to act on: then all are called again and there is no sleep. It may not block. Embedded in its
 * owner; loop's thread only.
 */
struct loop_hook {
	bool (*fn)(void *arg);
	void *arg;
	struct loop_hook *next;
};
void loop_add_hook(struct loop *l, struct loop_hook *h);
void loop_remove_hook(struct loop *l, struct loop_hook *h);

/*
 * An I/O engine whose own system call can wait (io_uring) may take the loop's sleep over: then starting I/O and waiting
 * for whatever happens next are one system call. One per loop, the loop's thread only. A `cookie` names a LOOP_EDGE
 * watch.
 */
struct loop_sleeper {
	/* From now on loop_edge_event(l, cookie, false) for each wake-up of fd. False: not possible now. */
	bool (*watch)(void *arg, int fd, uint64_t cookie);
	void (*unwatch)(void *arg, uint64_t cookie);
	/* Until something happened, at most timeout_ns (-1: for ever, 0: only look). True: look at epfd. */
	bool (*sleep)(void *arg, int epfd, int64_t timeout_ns);
	bool (*signal)(void *arg, int fd); /* loop_signal, at the latest in the next sleep */
	void (*settle)(void *arg);	   /* signals are on their way when it returns */
	void *arg;
};
bool loop_set_sleeper(struct loop *l, const struct loop_sleeper *s); /* false: there is one. NULL: epoll again */
/* `ended`: this was the last one, watch again. */
void loop_edge_event(struct loop *l, uint64_t cookie, bool ended);

/* Add 1 to an eventfd made with EFD_NONBLOCK: at once, or in the loop's thread together with its next sleep. */
void loop_signal(struct loop *l, int fd);
/* Before an eventfd is closed that loop_signal knew: loop's thread. */
void loop_settle_signals(struct loop *l);

/*
 * A timer, embedded in its owner. fn runs in the loop's thread, without locks
 * held. timer_cancel does not wait for a running fn of another thread: owners
 * keep the object alive until the loop has stopped or call timer_cancel_sync.
 */
struct timer {
	struct loop *loop;
	void (*fn)(void *arg);
	void *arg;
	uint64_t deadline; /* ns, clock_raw_ns(); UINT64_MAX = not armed */
	uint32_t heap_index;
};
void timer_init(struct timer *t, struct loop *l, void (*fn)(void *arg), void *arg);
void timer_arm(struct timer *t, uint64_t deadline_ns); /* re-arms if armed; any thread */
void timer_cancel(struct timer *t);
void timer_cancel_sync(struct timer *t);

#endif
