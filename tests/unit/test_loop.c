// SPDX-License-Identifier: GPL-2.0-or-later
/* io/loop: descriptors, timers, posted calls, from this and from other threads. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/util.h"
#include "io/aio.h"
#include "io/loop.h"

#define MS 1000000ull

static int order[8], norder;
static void note(void *arg)
{
	order[norder++ % 8] = (int)(intptr_t)arg;
}

static void test_timers(void **state)
{
	struct loop *l = loop_create("t", NULL);
	struct timer t[4];
	uint64_t start = clock_raw_ns();

	norder = 0;
	for (int i = 0; i < 4; i++)
		timer_init(&t[i], l, note, (void *)(intptr_t)i);
	timer_arm(&t[0], start + 6 * MS);
	timer_arm(&t[1], start + 2 * MS);
	timer_arm(&t[2], start + 4 * MS);
	timer_arm(&t[3], start + 1 * MS);
	timer_cancel(&t[2]);
	timer_arm(&t[3], start + 8 * MS); /* re-arming moves it */
	while (norder < 3)
		loop_run_once(l, -1);
	/* Never early; late only as far as this machine is busy. */
	assert_true(clock_raw_ns() - start >= 8 * MS);
	assert_true(order[0] == 1 && order[1] == 0 && order[2] == 3);
	assert_true(t[1].deadline == UINT64_MAX);
	uint64_t before = clock_raw_ns();
	loop_run_once(l, 3 * MS);
	assert_true(clock_raw_ns() - before >= 2 * MS);
	loop_destroy(l);
}

/* Many timers in random order fire in order of their deadlines. */
static uint64_t last_deadline;
static unsigned fired;
struct seq {
	struct timer t;
	uint64_t deadline;
};
static void seq_fire(void *arg)
{
	struct seq *s = arg;
	assert_true(s->deadline >= last_deadline);
	assert_true(clock_raw_ns() >= s->deadline);
	last_deadline = s->deadline;
	fired++;
}

static void test_heap(void **state)
{
	struct loop *l = loop_create("t", NULL);
	static struct seq s[500];
	uint64_t now = clock_raw_ns();

	srand(1);
	for (unsigned i = 0; i < 500; i++) {
		timer_init(&s[i].t, l, seq_fire, &s[i]);
		s[i].deadline = now + (uint64_t)rand() % (5 * MS);
		timer_arm(&s[i].t, s[i].deadline);
	}
	for (unsigned i = 0; i < 500; i += 5)
		timer_cancel_sync(&s[i].t);
	while (fired < 400)
		loop_run_once(l, -1);
	loop_destroy(l);
}

static void on_pipe(void *arg, unsigned events)
{
	char c;
	int *fds = arg;

	if (events & LOOP_READ && read(fds[0], &c, 1) == 1)
		note((void *)(intptr_t)c);
}

static void test_watch(void **state)
{
	struct loop *l = loop_create("t", NULL);
	int fds[2];

	norder = 0;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(loop_watch(l, fds[0], 0, on_pipe, fds), 0);
	assert_int_equal(write(fds[1], "a", 1), 1);
	loop_run_once(l, 0);
	assert_int_equal(norder, 0); /* silent */
	loop_rewatch(l, fds[0], LOOP_READ);
	loop_run_once(l, -1);
	assert_int_equal(norder, 1);
	assert_int_equal(write(fds[1], "b", 1), 1);
	loop_rewatch(l, fds[0], 0);
	loop_run_once(l, 0);
	assert_int_equal(norder, 1);
	loop_unwatch(l, fds[0]);
	close(fds[0]);
	close(fds[1]);

	/* What epoll refuses is always ready. */
	int null = open("/dev/null", O_RDONLY);
	fds[0] = null;
	assert_int_equal(loop_watch(l, null, LOOP_READ, on_pipe, fds), 0);
	loop_run_once(l, -1);
	loop_unwatch(l, null);
	loop_run_once(l, 0);
	close(null);
	loop_destroy(l);
}

static struct loop *shared;
static struct timer shared_timer;
static _Atomic int shared_notes;
static void shared_note(void *arg)
{
	note(arg);
	shared_notes++;
}
static void wait_for_notes(int n)
{
	while (shared_notes < n)
		usleep(100);
}
static void *other_thread(void *arg)
{
	usleep(2000); /* the loop sleeps, most likely */
	loop_post(shared, shared_note, (void *)7);
	wait_for_notes(1);
	usleep(2000);
	timer_arm(&shared_timer, clock_raw_ns() + MS);
	wait_for_notes(2);
	usleep(2000);
	loop_stop(shared);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t th;

	norder = 0;
	shared = loop_create("t", NULL);
	shared_notes = 0;
	timer_init(&shared_timer, shared, shared_note, (void *)8);
	pthread_create(&th, NULL, other_thread, NULL);
	loop_run(shared); /* without a deadline: the other thread must wake it each time */
	pthread_join(th, NULL);
	assert_int_equal(norder, 2);
	assert_true(order[0] == 7 && order[1] == 8);
	loop_stop(shared); /* before the run: ends at once */
	loop_run(shared);
	loop_destroy(shared);
}

static bool count_hook(void *arg)
{
	++*(int *)arg;
	return *(int *)arg % 2 == 0; /* once more after every second call */
}

static void test_hook(void **state)
{
	struct loop *l = loop_create("t", NULL);
	int n = 0;
	struct loop_hook h = {.fn = count_hook, .arg = &n};

	loop_add_hook(l, &h);
	loop_run_once(l, 0);
	assert_int_equal(n, 1);
	loop_run_once(l, 0);
	assert_int_equal(n, 3);
	loop_remove_hook(l, &h);
	loop_run_once(l, 0);
	assert_int_equal(n, 3);
	loop_destroy(l);
}

/* ---- a loop that sleeps in its I/O engine ------------------------------------- */

struct loop_watch_seen {
	int fd, n;
};

struct seen_fds {
	struct loop *loop;
	int event, pipe;
};

static void count_event(void *arg, unsigned events)
{
	++*(int *)arg;
}

static void read_event(void *arg, unsigned events)
{
	char c;
	struct loop_watch_seen *seen = arg;

	assert_int_equal(read(seen->fd, &c, 1), 1);
	seen->n++;
}

static void request_done(struct aio_req *req)
{
	++*(int *)(req + 1);
}

static void *ring_it(void *arg)
{
	const uint64_t one = 1;
	struct seen_fds *f = arg;

	for (int i = 0; i < 20; i++) {
		usleep(i % 3 * 1000); /* shorter and longer than the loop stays in the engine when idle */
		assert_int_equal(write(f->event, &one, 8), 8);
		assert_int_equal(write(f->pipe, "x", 1), 1);
		loop_post(f->loop, note, (void *)1);
	}
	return NULL;
}

/* Descriptors, eventfds, timers, posted calls and requests reach a loop that waits in io_uring, and after it is gone.
 */
static void test_sleeper(void **state)
{
	struct loop *l = loop_create("t", NULL);
	int event = eventfd(0, EFD_NONBLOCK), late = eventfd(0, EFD_NONBLOCK), irq = eventfd(0, EFD_NONBLOCK), pipes[2];
	struct aio *a;
	char text[8];
	struct iovec iov = {text, sizeof(text)};
	struct {
		struct aio_req req;
		int n;
	} r = {.req = {.op = AIO_READV, .iov = &iov, .niov = 1, .done = request_done}};
	int events = 0, lates = 0;
	struct timer t;
	pthread_t th;
	uint64_t value;

	r.req.fd = open("/proc/self/exe", O_RDONLY);
	assert_int_equal(pipe(pipes), 0);
	struct loop_watch_seen seen = {pipes[0], 0};
	struct seen_fds fds = {l, event, pipes[1]};
	assert_int_equal(loop_watch(l, event, LOOP_READ | LOOP_EDGE, count_event, &events), 0);
	a = aio_create(l, AIO_AUTO, NULL);
	assert_non_null(a);
	assert_int_equal(loop_watch(l, late, LOOP_READ | LOOP_EDGE, count_event, &lates), 0);
	assert_int_equal(loop_watch(l, pipes[0], LOOP_READ, read_event, &seen), 0);
	for (int i = 0; i < 3; i++) {
		const int before = r.n;
		aio_submit(a, &r.req);
		while (r.n == before)
			loop_run_once(l, -1);
		assert_memory_equal(text, "\177ELF", 4);
	}
	norder = 0;
	assert_int_equal(pthread_create(&th, NULL, ring_it, &fds), 0);
	while (seen.n < 20 || norder < 20)
		loop_run_once(l, -1);
	pthread_join(th, NULL);
	loop_run_once(l, 0);
	assert_in_range(events, 1, 20);
	assert_int_equal(lates, 0);

	norder = 0;
	timer_init(&t, l, note, NULL);
	timer_arm(&t, clock_raw_ns() + 3 * MS); /* longer than in the engine, so both sleeps */
	loop_signal(l, irq);
	while (!norder)
		loop_run_once(l, -1);
	assert_int_equal(read(irq, &value, 8), 8);
	assert_int_equal(value, 1);
	loop_signal(l, irq);
	loop_settle_signals(l);
	assert_int_equal(read(irq, &value, 8), 8);

	/* An unwatched one is silent, also under its number used again. */
	loop_unwatch(l, late);
	loop_signal(l, late);
	loop_settle_signals(l);
	loop_run_once(l, 0);
	assert_int_equal(lates, 0);
	assert_int_equal(loop_watch(l, late, LOOP_READ | LOOP_EDGE, count_event, &lates), 0);
	aio_drain(a);
	aio_destroy(a);
	events = 0;
	loop_signal(l, event);
	while (!events)
		loop_run_once(l, -1);
	loop_destroy(l);
	close(event);
	close(late);
	close(irq);
	close(pipes[0]);
	close(pipes[1]);
	close(r.req.fd);
}

/* A quick write is done at once in a patient loop, while others wait for the loop's sleep, and what a completion
 * submits goes on in the same flush. */
struct again {
	struct aio_req req;
	struct aio *a;
	int left;
};

static void again(struct aio_req *req)
{
	struct again *r = container_of(req, struct again, req);

	assert_int_equal(req->result, 1);
	if (--r->left)
		aio_submit(r->a, req);
}

static void test_quick_writes(void **state)
{
	char name[] = "/tmp/kelvin-quick-XXXXXX", byte = 'q';
	struct iovec iov = {&byte, 1};
	const int fd = mkstemp(name);

	assert_true(fd >= 0);
	for (int patient = 0; patient < 2; patient++) {
		struct loop *l = loop_create("t", NULL);
		struct aio *a = aio_create(l, AIO_URING, NULL);
		struct again r = {.a = a, .left = 1000};
		r.req = (struct aio_req){.op = AIO_WRITEV, .fd = fd, .iov = &iov, .niov = 1, .quick = true};
		r.req.done = again;
		if (!a) {
			loop_destroy(l);
			break; /* no io_uring here */
		}
		if (patient)
			loop_set_patient(l);
		aio_submit(a, &r.req);
		aio_flush(a);
		/* Not for ever in one flush either. */
		if (patient)
			assert_in_range(r.left, 800, 999);
		else
			assert_int_equal(r.left, 1000);
		while (r.left)
			loop_run_once(l, -1);
		aio_destroy(a);
		loop_destroy(l);
	}
	close(fd);
	unlink(name);
}

/* A batch for the disk is on its way in pieces before the loop sleeps; one for the page cache starts with the sleep. */
static void test_disk_batch(void **state)
{
	struct loop *l = loop_create("t", NULL);
	struct aio *a = aio_create(l, AIO_URING, NULL);
	struct {
		struct aio_req req;
		int n;
	} r[16];
	char text[16];
	struct iovec iov[16];
	const int fd = open("/proc/self/exe", O_RDONLY);

	for (int disk = 0; disk < 2 && a; disk++) {
		const uint64_t before = counter_get(&aio_stats_of(a)->syscalls);
		for (int i = 0; i < 16; i++) {
			iov[i] = (struct iovec){text + i, 1};
			r[i].req = (struct aio_req){.op = AIO_READV, .fd = fd, .iov = &iov[i], .niov = 1, .disk = disk};
			r[i].req.done = request_done;
			r[i].n = 0;
			aio_submit(a, &r[i].req);
		}
		aio_flush(a);
		assert_int_equal(counter_get(&aio_stats_of(a)->syscalls) - before, disk ? 3 : 0);
		aio_drain(a);
		for (int i = 0; i < 16; i++)
			assert_int_equal(r[i].n, 1);
	}
	aio_destroy(a);
	loop_destroy(l);
	close(fd);
	if (!a)
		skip(); /* a container that forbids io_uring */
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_timers),     cmocka_unit_test(test_heap),	    cmocka_unit_test(test_watch),
	    cmocka_unit_test(test_threads),    cmocka_unit_test(test_hook),	    cmocka_unit_test(test_sleeper),
	    cmocka_unit_test(test_disk_batch), cmocka_unit_test(test_quick_writes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
