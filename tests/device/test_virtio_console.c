// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * virtio console and serial ports over real chardevs: the control protocol, data
 * both ways in many pieces, a reader that is slow, resets in between.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "chr/chr.h"
#include "hw/virtio/virtio_console.h"
#include "virtio_guest.h"

static char dir[] = "kelvin-con-XXXXXX";
static struct machine m;
static struct dev *controller;
static struct guest g;
static int peer = -1;

static void add(const char *text)
{
	struct err err = {0};
	struct dev *d = dev_create_from_text(&m.bus, text, &err);

	if (!d)
		fail_msg("%s", err.msg);
}

static void expect_error(const char *text, const char *part)
{
	struct err err = {0};

	assert_null(dev_create_from_text(&m.bus, text, &err));
	if (!strstr(err.msg, part))
		fail_msg("'%s' is not in '%s'", part, err.msg);
}

/* A console on a file and a named port on a socket, with us at its other end. */
static void create(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct err err = {0};
	char text[200];

	machine_create(&m);
	snprintf(text, sizeof(text), "file,id=f,path=%s/out", dir);
	if (!chr_create(text, m.bus.loop, &err))
		fail_msg("%s", err.msg);
	snprintf(text, sizeof(text), "socket,id=s,path=%s/sock,server=on,wait=off", dir);
	if (!chr_create(text, m.bus.loop, &err))
		fail_msg("%s", err.msg);
	controller = dev_create_from_text(&m.bus, "virtio-serial-pci,id=vs,max_ports=4", &err);
	assert_non_null(controller);
	add("virtconsole,chardev=f");
	add("virtserialport,chardev=s,name=org.kelvin.test,bus=vs.0");
	pci_bus_place_bars(m.bus.pci);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/sock", dir);
	peer = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_int_equal(connect(peer, (struct sockaddr *)&sa, sizeof(sa)), 0);
	machine_settle(&m);
	assert_true(guest_attach(&g, &m, (unsigned)container_of(controller, struct pci_dev, dev)->devfn, GUEST_MODERN));
}

static int destroy(void **state)
{
	if (peer >= 0)
		close(peer);
	peer = -1;
	if (m.bus.loop) {
		dev_destroy_all(&m.bus);
		chr_destroy_all();
		machine_destroy(&m);
	}
	memset(&m, 0, sizeof(m));
	return 0;
}

/* ---- the driver's side of ports -------------------------------------------------- */

#define IN_BUFFER(q) (BUFFER_BASE + 0x40000 * (q))

static void offer_input(unsigned q, uint32_t len)
{
	const struct seg s = {IN_BUFFER(q) + 4096ull * (g.q[q].avail_idx % 16), len, true};

	guest_add(&g.q[q], &s, 1, 0);
	guest_kick(&g.q[q]);
}

/* The next used input buffer of queue q. */
static uint32_t take_input(unsigned q, uint8_t **data)
{
	const unsigned at = g.q[q].seen_used % 16;
	uint32_t len = 0;

	if (!guest_wait(&g.q[q], NULL, &len))
		return 0;
	*data = guest_ptr(&m, IN_BUFFER(q) + 4096ull * at);
	return len;
}

static void control(uint32_t port, uint16_t event, uint16_t value)
{
	const struct seg s = {0x600000, 8, false};
	uint8_t *p = guest_ptr(&m, s.gpa);

	st32le(p, port);
	st16le(p + 4, event);
	st16le(p + 6, value);
	guest_add(&g.q[3], &s, 1, 0);
	guest_kick(&g.q[3]);
	assert_true(guest_wait(&g.q[3], NULL, NULL));
}

static void expect_control(uint32_t port, uint16_t event, uint16_t value, const char *text)
{
	uint8_t *p = NULL;
	const uint32_t len = take_input(2, &p);

	assert_int_equal(len, 8 + (text ? strlen(text) : 0));
	assert_int_equal(ld32le(p), port);
	assert_int_equal(ld16le(p + 4), event);
	assert_int_equal(ld16le(p + 6), value);
	if (text)
		assert_memory_equal(p + 8, text, strlen(text));
	offer_input(2, 64);
}

/* As Linux does it. */
static void start(void)
{
	guest_start(&g, ~0ull, 6, 16, true);
	for (int i = 0; i < 12; i++)
		offer_input(2, 64);
	control(0, 0, 1); /* DEVICE_READY */
	expect_control(0, 1, 1, NULL);
	expect_control(1, 1, 1, NULL);
	control(0, 3, 1); /* PORT_READY */
	expect_control(0, 4, 1, NULL);
	expect_control(0, 6, 1, NULL);
	control(1, 3, 1);
	expect_control(1, 7, 1, "org.kelvin.test");
	expect_control(1, 6, 1, NULL);
	control(0, 6, 1); /* PORT_OPEN */
	control(1, 6, 1);
}

static void send_text(unsigned q, const char *text, unsigned pieces)
{
	struct seg s[8];
	const uint32_t len = (uint32_t)strlen(text);

	memcpy(guest_ptr(&m, 0x610000), text, len);
	for (unsigned i = 0; i < pieces; i++) {
		uint32_t from = len * i / pieces, to = len * (i + 1) / pieces;
		s[i] = (struct seg){0x610000 + from, to - from, false};
	}
	guest_add(&g.q[q], s, (int)pieces, 0);
	guest_kick(&g.q[q]);
}

static void test_console_output(void **state)
{
	char path[64], buf[200] = "";
	int fd;

	create();
	start();
	send_text(1, "hello ", 1);
	assert_true(guest_wait(&g.q[1], NULL, NULL));
	send_text(1, "in several descriptors\n", 7); /* field case E38 */
	assert_true(guest_wait(&g.q[1], NULL, NULL));
	guest_config_write(&g, 8, 4, '!'); /* emergency write */
	snprintf(path, sizeof(path), "%s/out", dir);
	fd = open(path, O_RDONLY);
	assert_true(read(fd, buf, sizeof(buf) - 1) > 0);
	close(fd);
	assert_string_equal(buf, "hello in several descriptors\n!");
}

static void test_port_both_ways(void **state)
{
	char buf[64] = "";
	uint8_t *p;

	create();
	start();
	offer_input(4, 5);
	offer_input(4, 100);
	assert_int_equal(write(peer, "0123456789", 10), 10);
	assert_int_equal(take_input(4, &p), 5);
	assert_memory_equal(p, "01234", 5);
	assert_int_equal(take_input(4, &p), 5);
	assert_memory_equal(p, "56789", 5);
	/* Without buffers it waits, in order. */
	assert_int_equal(write(peer, "abc", 3), 3);
	machine_settle(&m);
	assert_int_equal(write(peer, "def", 3), 3);
	machine_settle(&m);
	offer_input(4, 100);
	assert_int_equal(take_input(4, &p), 6);
	assert_memory_equal(p, "abcdef", 6);
	send_text(5, "from the guest", 3);
	assert_true(guest_wait(&g.q[5], NULL, NULL));
	machine_settle(&m);
	assert_int_equal(read(peer, buf, sizeof(buf)), 14);
	assert_memory_equal(buf, "from the guest", 14);
	/* The other end goes away and the driver is told. */
	close(peer);
	peer = -1;
	expect_control(1, 6, 0, NULL);
}

/* Nobody reads: the chain stays with the device, then goes out; a reset drops it. */
static void test_slow_reader(void **state)
{
	static char sink[65536];
	const struct seg s = {0x800000, 0x400000, false};
	uint64_t got = 0;

	create();
	start();
	memset(guest_ptr(&m, s.gpa), 'x', s.len);
	guest_add(&g.q[5], &s, 1, 0);
	guest_kick(&g.q[5]);
	machine_settle(&m);
	assert_int_equal(ld16le(guest_ptr(&m, g.q[5].used) + 2), 0);
	for (int i = 0; i < 5000 && got < s.len; i++) {
		ssize_t n = read(peer, sink, sizeof(sink));
		if (n > 0)
			got += (uint64_t)n;
		loop_run_once(m.bus.loop, 1000000);
	}
	assert_int_equal(got, s.len);
	assert_true(guest_wait(&g.q[5], NULL, NULL));
	guest_add(&g.q[5], &s, 1, 0);
	guest_kick(&g.q[5]);
	machine_settle(&m);
	guest_set_status(&g, 0);
	assert_int_equal(guest_status(&g), 0);
	for (int i = 0; i < 200; i++) {
		if (read(peer, sink, sizeof(sink)) < 0)
			loop_run_once(m.bus.loop, 0);
	}
	assert_int_equal(ld16le(guest_ptr(&m, g.q[5].used) + 2), 1);
	start();
	send_text(1, "again\n", 1);
	assert_true(guest_wait(&g.q[1], NULL, NULL));
}

/* A driver that asks for control messages and gives no buffers: bounded. */
static void test_control_flood(void **state)
{
	create();
	guest_start(&g, ~0ull, 6, 16, true);
	for (int i = 0; i < 1000; i++) {
		control(0, 0, 1);
		control((uint32_t)i * 7919, (uint16_t)i, 1);
	}
	assert_true(container_of(controller, struct vserial, t.pci.dev)->nmessages <= VSERIAL_MESSAGES);
	assert_true(container_of(controller, struct vserial, t.pci.dev)->messages_dropped > 0);
}

/* Without the multiport feature port 0 just works. */
static void test_single_port(void **state)
{
	create();
	guest_start(&g, ~2ull, 2, 16, true);
	send_text(1, "plain\n", 2);
	assert_true(guest_wait(&g.q[1], NULL, NULL));
}

static void test_errors(void **state)
{
	machine_create(&m);
	expect_error("virtconsole", "No 'virtio-serial-bus' bus found for device 'virtconsole'");
	destroy(NULL);
	create();
	expect_error("virtserialport,bus=nosuch.0", "Bus 'nosuch.0' not found");
	expect_error("virtserialport,nr=0", "reserved for a virtconsole");
	expect_error("virtserialport,nr=1", "exists already");
	expect_error("virtserialport,nr=4", "ports are 0 to 3");
	expect_error("virtserialport,chardev=s", "s");
	add("virtserialport");
	add("virtconsole");
	expect_error("virtconsole", "all 4 ports");
	expect_error("virtio-serial-pci,max_ports=32", "max_ports=32");
}

static int setup(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char cmd[100];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

#define TEST(f) cmocka_unit_test_teardown(f, destroy)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_console_output), TEST(test_port_both_ways), TEST(test_slow_reader),
	    TEST(test_control_flood),  TEST(test_single_port),	  TEST(test_errors),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
