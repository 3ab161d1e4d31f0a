// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * virtio with real threads: one runs the loop, others play the vCPUs: requests on
 * two queues at once, registers read meanwhile, resets with requests in flight,
 * INTx and MSI-X. For the thread sanitizer as much as for the results.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/object.h"
#include "base/util.h"
#include "block/block.h"
#include "hw/virtio/virtio_pci.h"
#include "io/iothread.h"
#include "virtio_guest.h"

#define SECTORS 8192u

static char image[] = "kelvin-stress-XXXXXX";
static struct machine m;
static struct dev *dev;
static struct guest g;
static pthread_t loop_thread;
static _Atomic bool stop;

static void *run_loop(void *arg)
{
	loop_run(m.bus.loop);
	return NULL;
}

static void create(const char *drive_opts, bool msix, bool iothread)
{
	char text[200];
	struct err err = {0};

	machine_create(&m);
	snprintf(text, sizeof(text), "if=none,id=d,format=raw,file=%s%s", image, drive_opts);
	assert_non_null(drive_create(text, m.bus.loop, &err));
	if (iothread)
		assert_int_equal(object_create("iothread,id=io", &err), 0);
	snprintf(text, sizeof(text), "virtio-blk-pci,drive=d,num-queues=2%s", iothread ? ",iothread=io" : "");
	dev = dev_create_from_text(&m.bus, text, &err);
	if (!dev)
		fail_msg("%s", err.msg);
	pci_bus_place_bars(m.bus.pci);
	assert_true(guest_attach(&g, &m, (unsigned)container_of(dev, struct pci_dev, dev)->devfn, GUEST_MODERN));
	m.threaded = true;
	pthread_create(&loop_thread, NULL, run_loop, NULL);
	guest_start(&g, ~0ull, 2, 64, msix);
}

static int destroy(void **state)
{
	if (!m.bus.loop)
		return 0;
	loop_stop(m.bus.loop);
	pthread_join(loop_thread, NULL);
	machine_destroy(&m);
	iothread_stop_all();
	object_destroy_all();
	memset(&m, 0, sizeof(m));
	return 0;
}

/* Write a pattern, read it back, many times, on one queue; `base` keeps the two apart. */
static void *worker(void *arg)
{
	struct guest_queue *q = arg;
	const uint64_t base = 0x300000ull + q->index * 0x100000;
	const uint64_t header = base, status = base + 64, data = base + 4096;
	unsigned bad = 0;

	for (unsigned i = 0; i < 150; i++) {
		const uint64_t sector = q->index * (SECTORS / 2) + i * 8 % (SECTORS / 2);
		for (unsigned type = 1; type < 2; type--) { /* 1, then 0, then wraps */
			const struct seg s[3] = {{header, 16, false}, {data, 4096, type == 0}, {status, 1, true}};
			uint8_t *h = guest_ptr(&m, header);
			st32le(h, type);
			st64le(h + 8, sector);
			memset(guest_ptr(&m, data), type ? (int)(i + q->index) & 255 : 0, 4096);
			guest_add(q, s, 3, i & 1 ? base + 0x80 : 0);
			guest_kick(q);
			bad += !guest_wait(q, NULL, NULL) || *guest_ptr(&m, status) != 0;
		}
		for (unsigned k = 0; k < 4096; k++)
			bad += guest_ptr(&m, data)[k] != ((i + q->index) & 255);
	}
	return (void *)(uintptr_t)bad;
}

static void *nosy(void *arg)
{
	while (!stop) {
		mem_read(&m.mem, g.common + 0x14, 1);
		mem_read(&m.mem, g.isr, 1);
		mem_read(&m.mem, g.device, 4);
		mem_write(&m.mem, g.notify + 4, 1, 2);
		pci_config_read(m.bus.pci, g.bdf, 0, 4);
		usleep(50);
	}
	return NULL;
}

static void test_two_queues(void **state)
{
	static const char *const drives[] = {"", ",cache=none", ",aio=threads", ",cache=writethrough"};

	for (unsigned k = 0; k < 8; k++) {
		pthread_t w[2], n;
		void *bad[2];
		create(drives[k % 4], k % 4 != 1, k >= 4);
		stop = false;
		pthread_create(&n, NULL, nosy, NULL);
		for (int i = 0; i < 2; i++)
			pthread_create(&w[i], NULL, worker, &g.q[i]);
		for (int i = 0; i < 2; i++)
			pthread_join(w[i], &bad[i]);
		stop = true;
		pthread_join(n, NULL);
		assert_null(bad[0]);
		assert_null(bad[1]);
		destroy(NULL);
	}
}

/* The driver resets while its requests are on their way, again and again. */
static void resets(bool iothread)
{
	create(",aio=threads", true, iothread);
	for (unsigned i = 0; i < 40; i++) {
		for (unsigned k = 0; k < 16; k++) {
			const uint64_t at = 0x300000ull + k * 0x2000;
			const struct seg s[3] = {{at, 16, false}, {at + 4096, 4096, true}, {at + 64, 1, true}};
			st32le(guest_ptr(&m, at), 0);
			st64le(guest_ptr(&m, at) + 8, k * 8);
			guest_add(&g.q[0], s, 3, at + 0x80);
			guest_kick(&g.q[0]);
		}
		if (i & 1)
			usleep(200);
		guest_set_status(&g, 0); /* returns when nothing is in flight any more */
		assert_int_equal(guest_status(&g), 0);
		guest_start(&g, ~0ull, 2, 64, i & 2);
	}
	assert_null(worker(&g.q[0]));
	destroy(NULL);
}

static void test_resets(void **state)
{
	resets(false);
	resets(true);
}

/* The main thread pauses, resumes and resets the machine under the requests of an iothread. */
static void test_pause_iothread(void **state)
{
	create(",cache=none", true, true);
	/* This thread is the main one here: the loop's thread ends. */
	loop_stop(m.bus.loop);
	pthread_join(loop_thread, NULL);
	for (unsigned i = 0; i < 30; i++) {
		for (unsigned k = 0; k < 8; k++) {
			const uint64_t at = 0x300000ull + k * 0x2000;
			const struct seg s[3] = {{at, 16, false}, {at + 4096, 4096, true}, {at + 64, 1, true}};
			st32le(guest_ptr(&m, at), 0);
			st64le(guest_ptr(&m, at) + 8, k * 8);
			guest_add(&g.q[0], s, 3, at + 0x80);
			guest_kick(&g.q[0]);
		}
		dev_pause_all(&m.bus);
		dev_resume_all(&m.bus);
		for (unsigned k = 0; k < 8; k++)
			assert_true(guest_wait(&g.q[0], NULL, NULL));
		if (i % 10 == 9) {
			dev_reset_all(&m.bus);
			pci_bus_place_bars(m.bus.pci);
			guest_attach(&g, &m, g.bdf, GUEST_MODERN);
			guest_start(&g, ~0ull, 2, 64, true);
		}
	}
	dev_destroy_all(&m.bus);
	machine_destroy(&m);
	memset(&m, 0, sizeof(m));
	iothread_stop_all();
	object_destroy_all();
}

static int setup(void **state)
{
	int fd = mkstemp(image);

	return fd >= 0 && ftruncate(fd, SECTORS * 512) == 0 ? close(fd) : -1;
}

static int teardown(void **state)
{
	return unlink(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(test_two_queues, destroy),
	    cmocka_unit_test_teardown(test_resets, destroy),
	    cmocka_unit_test_teardown(test_pause_iothread, destroy),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
