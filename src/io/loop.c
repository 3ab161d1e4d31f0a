// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Event loop over epoll: descriptors, a heap of timers, posted calls.
 *
 * Sleeping is one epoll_pwait2 with the next deadline in nanoseconds; where the
 * kernel lacks or forbids it, ppoll on the epoll descriptor sleeps as exactly.
 * Deadlines are CLOCK_MONOTONIC_RAW and the kernel sleeps on CLOCK_MONOTONIC:
 * they differ by parts per million, so a wake-up that is early by the raw clock
 * just sleeps the rest.
 *
 * Locking: `lock` guards the heap, the posted calls and `running`; callbacks run
 * without it. Watches belong to the loop's thread. Other threads wake the loop
 * through an eventfd. epoll refuses regular files and /dev/null (EPERM): those
 * are always ready, and are called on every turn (`always`).
 *
 * With a sleeper (an io_uring engine) the eventfds of LOOP_EDGE are its to watch,
 * and it polls the epoll descriptor for all others.
 */
#include "io/loop.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"

#define LOOP_BATCH     32
#define LOOP_MAX_TURNS 8 /* that hooks may keep the loop from looking at its descriptors */
#define TIMER_NOT_HEAP UINT32_MAX

struct loop_watch_entry {
	int fd;
	unsigned events;
	void (*fn)(void *arg, unsigned events);
	void *arg;
	bool always;	 /* not pollable: always ready */
	bool dead;	 /* unwatched; freed when no batch can hold it any more */
	bool fired;	 /* the sleeper saw it, its fn has not run yet */
	uint64_t cookie; /* not 0: the sleeper watches it */
	struct loop_watch_entry *next;
};

struct loop_call {
	void (*fn)(void *arg);
	void *arg;
	struct loop_call *next;
};

struct loop {
	char name[32];
	int epfd, wakefd;
	bool no_pwait2, patient;
	unsigned turns_without_events; /* in a row */
	unsigned depth;		       /* of loop_run_once: callbacks may nest one (drain) */
	unsigned always;	       /* watches with events among the not pollable ones */
	struct loop_watch_entry *watches, *dead;
	struct loop_hook *hooks;
	struct loop_sleeper sleeper; /* sleep is NULL: epoll */
	unsigned fired;		     /* watches with that flag */
	uint32_t cookies;
	_Atomic bool stop;
	_Atomic bool has_thread;
	pthread_t thread;

	pthread_mutex_t lock;
	pthread_cond_t timer_done;
	struct timer **heap;
	uint32_t nheap, heap_room;
	struct timer *running; /* whose fn runs now */
	struct loop_call *calls, **calls_tail;
	uint64_t sleeping_until; /* while asleep: the deadline; else 0, meaning no wake-up is needed */
	bool wake_pending;	 /* the eventfd was written and not seen yet */
};

/* ---- waking ---------------------------------------------------------------- */

static void loop_ring(struct loop *l)
{
	uint64_t one = 1;

	/* Fails only when the counter is full, and then the loop is awake anyway. */
	while (write(l->wakefd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* With the lock held: make a sleeping loop look again. */
static void loop_wake_locked(struct loop *l)
{
	if (l->sleeping_until && !l->wake_pending) {
		l->wake_pending = true;
		loop_ring(l);
	}
}

static void loop_woken(void *arg, unsigned events)
{
	struct loop *l = arg;

	pthread_mutex_lock(&l->lock);
	l->wake_pending = false;
	pthread_mutex_unlock(&l->lock);
}

/* ---- create, destroy --------------------------------------------------------- */

void loop_set_patient(struct loop *l)
{
	l->patient = true;
}

bool loop_is_patient(const struct loop *l)
{
	return l->patient;
}

struct loop *loop_create(const char *name, struct err *err)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l) {
		err_set_errno(err, -ENOMEM, "event loop '%s'", name);
		return NULL;
	}
	strncpy(l->name, name, sizeof(l->name) - 1);
	l->calls_tail = &l->calls;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->timer_done, NULL);
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	l->wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->epfd < 0 || l->wakefd < 0) {
		err_set_errno(err, -errno, "event loop '%s': cannot create its descriptors", name);
		goto fail;
	}
	int ret = loop_watch(l, l->wakefd, LOOP_READ | LOOP_EDGE, loop_woken, l);
	if (ret) {
		err_set_errno(err, ret, "event loop '%s'", name);
		goto fail;
	}
	return l;
fail:
	loop_destroy(l);
	return NULL;
}

static void watch_list_free(struct loop_watch_entry **list)
{
	while (*list) {
		struct loop_watch_entry *w = *list;
		*list = w->next;
		free(w);
	}
}

void loop_destroy(struct loop *l)
{
	if (!l)
		return;
	if (l->epfd >= 0)
		close(l->epfd);
	if (l->wakefd >= 0)
		close(l->wakefd);
	watch_list_free(&l->watches);
	watch_list_free(&l->dead);
	while (l->calls) {
		struct loop_call *c = l->calls;
		l->calls = c->next;
		free(c);
	}
	for (uint32_t i = 0; i < l->nheap; i++)
		l->heap[i]->heap_index = TIMER_NOT_HEAP;
	free(l->heap);
	pthread_cond_destroy(&l->timer_done);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* ---- watches ----------------------------------------------------------------- */

static struct loop_watch_entry **watch_find(struct loop *l, int fd)
{
	struct loop_watch_entry **p = &l->watches;

	while (*p && (*p)->fd != fd)
		p = &(*p)->next;
	return p;
}

static uint32_t watch_epoll_events(unsigned events)
{
	return (events & LOOP_READ ? EPOLLIN : 0u) | (events & LOOP_WRITE ? EPOLLOUT : 0u) |
	       (events & LOOP_EDGE ? EPOLLET : 0u);
}

/* With the sleeper, if it can: eventfds whose wake-ups count and whose value does not. */
static bool watch_give(struct loop *l, struct loop_watch_entry *w)
{
	if (!l->sleeper.sleep || !(w->events & LOOP_EDGE))
		return false;
	/* The number tells a watch from an earlier one of the same descriptor. */
	l->cookies = (l->cookies + 1) & 0xffffff;
	w->cookie = (uint64_t)(l->cookies + 1) << 32 | (uint32_t)w->fd;
	if (!l->sleeper.watch(l->sleeper.arg, w->fd, w->cookie))
		w->cookie = 0;
	return w->cookie != 0;
}

static void watch_forget(struct loop *l, struct loop_watch_entry *w)
{
	l->fired -= w->fired;
	w->fired = false;
	w->cookie = 0;
}

int loop_watch(struct loop *l, int fd, unsigned events, void (*fn)(void *arg, unsigned events), void *arg)
{
	if (*watch_find(l, fd))
		return -EEXIST;
	struct loop_watch_entry *w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->fd = fd;
	w->events = events;
	w->fn = fn;
	w->arg = arg;
	struct epoll_event e = {.events = watch_epoll_events(events), .data.ptr = w};
	/* A watch without events is kept out of epoll, which would report a hang-up again and again. */
	if (events && !watch_give(l, w) && epoll_ctl(l->epfd, EPOLL_CTL_ADD, fd, &e) < 0) {
		if (errno != EPERM) {
			int ret = -errno;
			free(w);
			return ret;
		}
		w->always = true;
		l->always++;
	}
	w->next = l->watches;
	l->watches = w;
	return 0;
}

void loop_rewatch(struct loop *l, int fd, unsigned events)
{
	struct loop_watch_entry *w = *watch_find(l, fd);

	BUG_ON(!w);
	if (w->events == events)
		return;
	if (w->cookie) {
		BUG_ON(events);
		l->sleeper.unwatch(l->sleeper.arg, w->cookie);
		watch_forget(l, w);
	} else if (w->always) {
		l->always += (events != 0) - (w->events != 0);
	} else {
		struct epoll_event e = {.events = watch_epoll_events(events), .data.ptr = w};
		int op = !w->events ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
		if (epoll_ctl(l->epfd, op, fd, &e) < 0) {
			if (errno == EPERM && op == EPOLL_CTL_ADD) {
				w->always = true;
				l->always++;
			} else {
				log_warn("loop %s: cannot watch descriptor %d: %s", l->name, fd, strerror(errno));
			}
		}
	}
	w->events = events;
}

void loop_unwatch(struct loop *l, int fd)
{
	struct loop_watch_entry **p = watch_find(l, fd), *w = *p;

	if (!w)
		return;
	loop_rewatch(l, fd, 0);
	*p = w->next;
	w->dead = true;
	w->next = l->dead;
	l->dead = w;
	if (!l->depth)
		watch_list_free(&l->dead);
}

bool loop_set_sleeper(struct loop *l, const struct loop_sleeper *s)
{
	if (s && l->sleeper.sleep)
		return false;
	l->sleeper = s ? *s : (struct loop_sleeper){0};
	for (struct loop_watch_entry *w = l->watches; w; w = w->next) {
		struct epoll_event e = {.events = watch_epoll_events(w->events), .data.ptr = w};
		if (!(w->events & LOOP_EDGE))
			continue;
		if (s && !w->cookie && watch_give(l, w))
			epoll_ctl(l->epfd, EPOLL_CTL_DEL, w->fd, NULL);
		else if (!s && w->cookie && epoll_ctl(l->epfd, EPOLL_CTL_ADD, w->fd, &e) < 0)
			log_warn("loop %s: cannot watch descriptor %d: %s", l->name, w->fd, strerror(errno));
		if (!s)
			w->cookie = 0;
	}
	return true;
}

void loop_edge_event(struct loop *l, uint64_t cookie, bool ended)
{
	struct loop_watch_entry *w = *watch_find(l, (int)(uint32_t)cookie);

	if (!w || w->cookie != cookie)
		return;
	l->fired += !w->fired;
	w->fired = true;
	if (ended && !watch_give(l, w)) {
		struct epoll_event e = {.events = watch_epoll_events(w->events), .data.ptr = w};
		w->cookie = 0;
		if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, w->fd, &e) < 0)
			log_warn("loop %s: cannot watch descriptor %d: %s", l->name, w->fd, strerror(errno));
	}
}

void loop_signal(struct loop *l, int fd)
{
	const uint64_t one = 1;

	if (loop_in_thread(l) && l->sleeper.sleep && l->sleeper.signal(l->sleeper.arg, fd))
		return;
	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void loop_settle_signals(struct loop *l)
{
	if (l->sleeper.sleep)
		l->sleeper.settle(l->sleeper.arg);
}

/* ---- posted calls --------------------------------------------------------------- */

void loop_post(struct loop *l, void (*fn)(void *arg), void *arg)
{
	struct loop_call *c = malloc(sizeof(*c));

	/* Nothing can be done without it, and a lost call would hang a device. */
	if (!c)
		BUG("out of memory for a posted call");
	*c = (struct loop_call){fn, arg, NULL};
	pthread_mutex_lock(&l->lock);
	*l->calls_tail = c;
	l->calls_tail = &c->next;
	loop_wake_locked(l);
	pthread_mutex_unlock(&l->lock);
}

static void loop_run_calls(struct loop *l)
{
	pthread_mutex_lock(&l->lock);
	struct loop_call *c = l->calls;
	l->calls = NULL;
	l->calls_tail = &l->calls;
	pthread_mutex_unlock(&l->lock);
	while (c) {
		struct loop_call *next = c->next;
		c->fn(c->arg);
		free(c);
		c = next;
	}
}

/* ---- timers ---------------------------------------------------------------------- */

static void heap_put(struct loop *l, uint32_t i, struct timer *t)
{
	l->heap[i] = t;
	t->heap_index = i;
}

/* Move the timer at i to where its deadline belongs. */
static void heap_settle(struct loop *l, uint32_t i)
{
	struct timer *t = l->heap[i];

	while (i && l->heap[(i - 1) / 2]->deadline > t->deadline) {
		heap_put(l, i, l->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	for (;;) {
		uint32_t child = 2 * i + 1;
		if (child + 1 < l->nheap && l->heap[child + 1]->deadline < l->heap[child]->deadline)
			child++;
		if (child >= l->nheap || l->heap[child]->deadline >= t->deadline)
			break;
		heap_put(l, i, l->heap[child]);
		i = child;
	}
	heap_put(l, i, t);
}

static void heap_remove(struct loop *l, struct timer *t)
{
	uint32_t i = t->heap_index;

	t->heap_index = TIMER_NOT_HEAP;
	t->deadline = UINT64_MAX;
	struct timer *last = l->heap[--l->nheap];
	if (last != t) {
		heap_put(l, i, last);
		heap_settle(l, i);
	}
}

void timer_init(struct timer *t, struct loop *l, void (*fn)(void *arg), void *arg)
{
	*t = (struct timer){.loop = l, .fn = fn, .arg = arg, .deadline = UINT64_MAX, .heap_index = TIMER_NOT_HEAP};
}

void timer_arm(struct timer *t, uint64_t deadline_ns)
{
	struct loop *l = t->loop;

	if (deadline_ns == UINT64_MAX) {
		timer_cancel(t);
		return;
	}
	pthread_mutex_lock(&l->lock);
	if (t->heap_index == TIMER_NOT_HEAP) {
		if (l->nheap == l->heap_room) {
			l->heap_room = l->heap_room ? 2 * l->heap_room : 16;
			l->heap = realloc(l->heap, l->heap_room * sizeof(*l->heap));
			if (!l->heap)
				BUG("out of memory for a timer");
		}
		heap_put(l, l->nheap++, t);
	}
	t->deadline = deadline_ns;
	heap_settle(l, t->heap_index);
	if (deadline_ns < l->sleeping_until)
		loop_wake_locked(l);
	pthread_mutex_unlock(&l->lock);
}

void timer_cancel(struct timer *t)
{
	struct loop *l = t->loop;

	pthread_mutex_lock(&l->lock);
	if (t->heap_index != TIMER_NOT_HEAP)
		heap_remove(l, t);
	pthread_mutex_unlock(&l->lock);
}

void timer_cancel_sync(struct timer *t)
{
	struct loop *l = t->loop;
	bool self = loop_in_thread(l);

	pthread_mutex_lock(&l->lock);
	for (;;) {
		if (t->heap_index != TIMER_NOT_HEAP)
			heap_remove(l, t);
		/* Its fn may arm it again before it ends: look once more. */
		if (l->running != t || self)
			break;
		pthread_cond_wait(&l->timer_done, &l->lock);
	}
	pthread_mutex_unlock(&l->lock);
}

static void loop_run_timers(struct loop *l)
{
	uint64_t now = clock_raw_ns();

	pthread_mutex_lock(&l->lock);
	/* `now` is read once, so a timer that arms itself in the past waits for the next turn. */
	while (l->nheap && l->heap[0]->deadline <= now) {
		struct timer *t = l->heap[0], *outer = l->running;
		heap_remove(l, t);
		l->running = t;
		pthread_mutex_unlock(&l->lock);
		t->fn(t->arg);
		pthread_mutex_lock(&l->lock);
		l->running = outer;
		pthread_cond_broadcast(&l->timer_done);
	}
	pthread_mutex_unlock(&l->lock);
}

/* ---- running ---------------------------------------------------------------------- */

void loop_add_hook(struct loop *l, struct loop_hook *h)
{
	h->next = l->hooks;
	l->hooks = h;
}

void loop_remove_hook(struct loop *l, struct loop_hook *h)
{
	for (struct loop_hook **p = &l->hooks; *p; p = &(*p)->next)
		if (*p == h) {
			*p = h->next;
			return;
		}
}

bool loop_in_thread(const struct loop *l)
{
	return atomic_load(&l->has_thread) && pthread_equal(l->thread, pthread_self());
}

/* Decide how long to sleep and announce it, so that others know whether a wake-up is needed. */
static uint64_t loop_plan_sleep(struct loop *l, uint64_t until)
{
	pthread_mutex_lock(&l->lock);
	if (l->calls || l->always || atomic_load(&l->stop))
		until = 0;
	else if (l->nheap)
		until = MIN(until, l->heap[0]->deadline);
	l->sleeping_until = until;
	pthread_mutex_unlock(&l->lock);
	return until;
}

static int loop_sleep(struct loop *l, uint64_t until, struct epoll_event *ev)
{
	struct timespec ts = {0}, *timeout = until == UINT64_MAX ? NULL : &ts;
	uint64_t now = until && timeout ? clock_raw_ns() : 0;

	if (until > now && timeout) {
		/* Capped at a day: a far deadline must not overflow the kernel's arithmetic. */
		uint64_t ns = MIN(until - now, 86400 * NSEC_PER_SEC);
		ts.tv_sec = (time_t)(ns / NSEC_PER_SEC);
		ts.tv_nsec = (long)(ns % NSEC_PER_SEC);
	}
	if (!l->no_pwait2) {
		int n = epoll_pwait2(l->epfd, ev, LOOP_BATCH, timeout, NULL);
		if (n >= 0 || (errno != ENOSYS && errno != EPERM))
			return n;
		l->no_pwait2 = true;
	}
	struct pollfd p = {.fd = l->epfd, .events = POLLIN};
	int n = ppoll(&p, 1, timeout, NULL);
	return n > 0 ? epoll_wait(l->epfd, ev, LOOP_BATCH, 0) : n;
}

/* In the sleeper's system call. */
static int loop_sleep_there(struct loop *l, uint64_t until, struct epoll_event *ev)
{
	const uint64_t now = until && until != UINT64_MAX ? clock_raw_ns() : 0;
	const int64_t ns = until == UINT64_MAX ? -1 : until > now ? (int64_t)MIN(until - now, 86400 * NSEC_PER_SEC) : 0;

	return l->sleeper.sleep(l->sleeper.arg, l->epfd, ns) ? epoll_wait(l->epfd, ev, LOOP_BATCH, 0) : 0;
}

static void loop_dispatch(struct loop_watch_entry *w, uint32_t bits)
{
	unsigned events = (bits & EPOLLIN ? LOOP_READ : 0u) | (bits & EPOLLOUT ? LOOP_WRITE : 0u) |
			  (bits & (EPOLLHUP | EPOLLERR | EPOLLRDHUP) ? LOOP_HUP : 0u);

	/* An earlier callback of this turn may have unwatched it or asked for less. */
	events &= w->events | LOOP_HUP;
	if (!w->dead && w->events && events)
		w->fn(w->arg, events);
}

/* A callback may change the list: begin again after each. */
static void loop_run_fired(struct loop *l)
{
	while (l->fired) {
		struct loop_watch_entry *w = l->watches;
		while (!w->fired)
			w = w->next;
		w->fired = false;
		l->fired--;
		w->fn(w->arg, LOOP_READ);
	}
}

static void loop_run_always(struct loop *l)
{
	/* A callback may change the list: start again after each, at most once per watch and turn. */
	for (unsigned i = 0; l->always; i++) {
		struct loop_watch_entry *w = l->watches;
		unsigned skip = i;
		while (w && (!(w->always && w->events) || skip-- > 0))
			w = w->next;
		if (!w)
			return;
		w->fn(w->arg, w->events);
	}
}

/* True when one of them did something. */
static bool loop_run_hooks(struct loop *l)
{
	bool progress = false, again = true;

	for (int i = 0; again && i < 4; i++) {
		again = false;
		for (struct loop_hook *h = l->hooks, *next; h; h = next) {
			next = h->next;
			again |= h->fn(h->arg);
		}
		progress |= again;
	}
	return progress;
}

void loop_run_once(struct loop *l, int64_t timeout_ns)
{
	struct epoll_event ev[LOOP_BATCH];

	if (!loop_in_thread(l)) {
		l->thread = pthread_self();
		atomic_store(&l->has_thread, true);
	}
	l->depth++;
	/* What a caller waits for may have happened in a hook: look at events without sleeping, and
	 * mostly not even that, which saves a system call. */
	if (loop_run_hooks(l) || l->fired) {
		timeout_ns = 0;
		if (++l->turns_without_events % LOOP_MAX_TURNS)
			goto out;
	}
	l->turns_without_events = 0;
	uint64_t until = timeout_ns < 0 ? UINT64_MAX : timeout_ns == 0 ? 0 : clock_raw_ns() + (uint64_t)timeout_ns;
	until = loop_plan_sleep(l, until);
	int n = l->sleeper.sleep ? loop_sleep_there(l, until, ev) : loop_sleep(l, until, ev);
	pthread_mutex_lock(&l->lock);
	l->sleeping_until = 0;
	pthread_mutex_unlock(&l->lock);

	for (int i = 0; i < n; i++)
		loop_dispatch(ev[i].data.ptr, ev[i].events);
	if (l->always)
		loop_run_always(l);
out:
	loop_run_fired(l);
	loop_run_timers(l);
	loop_run_calls(l);
	if (--l->depth == 0)
		watch_list_free(&l->dead);
}

void loop_run(struct loop *l)
{
	/* The default slack of 50 us would delay every guest timer. */
	prctl(PR_SET_TIMERSLACK, 1);
	while (!atomic_load(&l->stop))
		loop_run_once(l, -1);
	atomic_store(&l->stop, false);
}

void loop_stop(struct loop *l)
{
	int saved = errno;

	atomic_store(&l->stop, true);
	loop_ring(l); /* no lock: signal handlers come here */
	errno = saved;
}
