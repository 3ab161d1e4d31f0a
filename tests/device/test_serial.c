/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * 16550A, debug console, isa-debug-exit, pvpanic, keyboard controller, port 92h. The
 * chardev is the test's: it takes as much as the test lets it.
 */
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include "base/clock.h"
#include "chr/chr.h"
#include "rig.h"

/* ---- a chardev of our own: replaces chr/chr.c, which is not linked then ------ */

struct chr {
	const char *id;
	struct chr_fe fe;
	void (*writable)(void *opaque);
	void *writable_opaque;
	size_t room; /* bytes it takes before it is full */
	char got[100000];
	size_t len, writes, ready;
	bool connected;
};

static struct chr *lookup_chr;

const char *chr_id(const struct chr *c)
{
	return c->id;
}

int chr_attach(struct chr *c, const struct chr_fe *fe, const char *who, struct err *err)
{
	if (c->fe.opaque)
		return err_set(err, -EBUSY, "chardev \"%s\" is in use", c->id);
	c->fe = *fe;
	return 0;
}

void chr_detach(struct chr *c, void *opaque)
{
	c->fe = (struct chr_fe){0};
}

void chr_fe_ready(struct chr *c, void *opaque)
{
	c->ready++;
}

size_t chr_write(struct chr *c, const void *buf, size_t len)
{
	size_t n = MIN(len, c->room);

	c->writes++;
	assert_true(c->len + n <= sizeof(c->got));
	memcpy(c->got + c->len, buf, n);
	c->len += n;
	c->room -= n;
	return n;
}

bool chr_connected(const struct chr *c)
{
	return c->connected;
}

void chr_set_writable(struct chr *c, void (*fn)(void *opaque), void *opaque)
{
	/* As the real one: a callback is known by its opaque, and taken back by that. */
	if (fn || c->writable_opaque == opaque) {
		c->writable = fn;
		c->writable_opaque = opaque;
	}
}

static void *find_chr(const char *id)
{
	return lookup_chr && !strcmp(id, lookup_chr->id) ? lookup_chr : NULL;
}

static struct chr *new_chr(void)
{
	struct chr *c = calloc(1, sizeof(*c));
	static bool registered;

	if (!registered)
		type_register_links("chardev", find_chr);
	registered = true;
	c->id = "c0";
	c->room = SIZE_MAX;
	c->connected = true;
	lookup_chr = c;
	return c;
}

/* The host has read: n more bytes fit. */
static void chr_drain(struct chr *c, size_t n)
{
	c->room = n;
	if (c->writable)
		c->writable(c->writable_opaque);
}

static void chr_type(struct chr *c, const char *text)
{
	size_t len = strlen(text);

	while (len) {
		size_t n = MIN(len, c->fe.can_receive(c->fe.opaque));

		if (!n)
			return;
		c->fe.receive(c->fe.opaque, (const uint8_t *)text, n);
		text += n;
		len -= n;
	}
}

/* ---- the UART ------------------------------------------------------------------ */

enum { RBR = 0x3f8, IER, IIR, LCR, MCR, LSR, MSR, SCR };

static struct chr *serial_init(struct rig *r)
{
	struct chr *c = new_chr();

	rig_init(r, 1);
	rig_init_pics(r, 0xffff);
	rig_dev(r, &serial_dev_ops, "chardev=c0", NULL);
	return c;
}

static void serial_fini(struct rig *r, struct chr *c)
{
	rig_fini(r);
	assert_null(c->writable);
	assert_null(c->fe.opaque);
	free(c);
}

/* Run the loop until its timers and posts of the next few milliseconds are done. */
static void run_loop(struct rig *r, unsigned ms)
{
	uint64_t end = clock_raw_ns() + ms * 1000000ull;

	while (clock_raw_ns() < end)
		loop_run_once(r->bus.loop, 1000000);
}

/* What Linux's autoconfig does to recognise a 16550A, and its start-up's interrupt test. */
static void test_uart_probe(void **state)
{
	struct rig r;
	struct chr *c = serial_init(&r);

	out8(&r, IER, 0);
	assert_int_equal(in8(&r, IER), 0);
	out8(&r, IER, 0x0f);
	assert_int_equal(in8(&r, IER), 0x0f);
	out8(&r, IER, 0xff);
	assert_int_equal(in8(&r, IER), 0x0f); /* no sleep or UUE bits */
	out8(&r, IER, 0);
	out8(&r, MCR, 0x1a);
	assert_int_equal(in8(&r, MSR) & 0xf0, 0x90); /* loopback: RTS and OUT2 as CTS and DCD */
	out8(&r, MCR, 0x08);
	assert_int_equal(in8(&r, MSR) & 0xf0, 0xb0);
	out8(&r, IIR, 0x01);
	assert_int_equal(in8(&r, IIR), 0xc1);
	out8(&r, LCR, 0xbf); /* no EFR */
	assert_int_equal(in8(&r, IIR), 0xc1);
	out8(&r, LCR, 0x80);
	out8(&r, RBR, 0x34);
	out8(&r, IER, 0x12);
	assert_int_equal(in8(&r, RBR), 0x34);
	assert_int_equal(in8(&r, IER), 0x12);
	out8(&r, IIR, 0x21); /* no 64-byte FIFO */
	assert_int_equal(in8(&r, IIR) & 0xe0, 0xc0);
	out8(&r, LCR, 0x03);
	out8(&r, SCR, 0x5a);
	assert_int_equal(in8(&r, SCR), 0x5a);
	assert_int_equal(in8(&r, LSR), 0x60);
	/* Enabling the transmitter interrupt raises it, each time. */
	out8(&r, IER, 0x02);
	assert_int_equal(rig_take(&r, 0), 0x34);
	out8(&r, 0x20, 0x20);
	assert_int_equal(in8(&r, IIR), 0xc2);
	assert_int_equal(in8(&r, IIR), 0xc1); /* reading IIR took it back */
	out8(&r, IER, 0x00);
	out8(&r, IER, 0x02);
	assert_int_equal(in8(&r, IIR), 0xc2);
	serial_fini(&r, c);
}

/* Each byte sent by interrupt brings the next interrupt, as an edge. */
static void test_uart_transmit_interrupts(void **state)
{
	struct rig r;
	struct chr *c = serial_init(&r);
	unsigned sent = 0;

	out8(&r, IIR, 0x01);
	out8(&r, IER, 0x02);
	while (sent < 100) {
		assert_int_equal(rig_take(&r, 0), 0x34);
		assert_int_equal(in8(&r, IIR), 0xc2);
		for (unsigned i = 0; i < 16; i++)
			out8(&r, RBR, (uint8_t)('A' + sent++ % 26));
		out8(&r, 0x20, 0x20);
	}
	out8(&r, IER, 0);
	run_loop(&r, 5);
	assert_int_equal(c->len, 112);
	assert_memory_equal(c->got, "ABCDEFGHIJKLMNOPQRSTUVWXYZABC", 29);
	serial_fini(&r, c);
}

/* Lines cost one write each; what ends no line comes within milliseconds. */
static void test_uart_output_is_gathered(void **state)
{
	if (getenv("STATE_ROUNDTRIP"))
		skip(); /* saving pauses the port, which sends what was gathered */
	struct rig r;
	struct chr *c = serial_init(&r);
	const char *line = "[    0.000000] Linux version 6.1.0\r\n";

	for (unsigned n = 0; n < 10; n++) {
		for (const char *p = line; *p; p++) {
			assert_true(in8(&r, LSR) & 0x20);
			out8(&r, RBR, (uint8_t)*p);
		}
	}
	assert_int_equal(c->len, 10 * strlen(line));
	assert_int_equal(c->writes, 10);
	out8(&r, RBR, '#');
	assert_int_equal(c->len, 10 * strlen(line));
	run_loop(&r, 10);
	assert_int_equal(c->got[c->len - 1], '#');
	/* The end of the machine loses nothing either. */
	out8(&r, RBR, '!');
	dev_destroy_all(&r.bus);
	assert_int_equal(c->got[c->len - 1], '!');
	serial_fini(&r, c);
}

static void test_uart_back_pressure(void **state)
{
	struct rig r;
	struct chr *c = serial_init(&r);
	size_t sent = 0;

	c->room = 100;
	out8(&r, IER, 0);
	while (in8(&r, LSR) & 0x20) {
		out8(&r, RBR, (uint8_t)('a' + sent++ % 26));
		assert_true(sent < 20000); /* a reader that is gone stops a guest that asks */
	}
	out8(&r, IER, 0x02);
	assert_int_equal(rig_take(&r, 0), -1); /* no transmitter interrupt while there is no room */
	chr_drain(c, SIZE_MAX);
	assert_int_equal(rig_take(&r, 0), 0x34);
	assert_int_equal(in8(&r, IIR) & 0x0f, 0x02);
	assert_true(in8(&r, LSR) & 0x20);
	assert_int_equal(c->len, sent);
	for (size_t i = 0; i < sent; i++)
		assert_int_equal(c->got[i], 'a' + i % 26);
	/* A guest that does not ask loses bytes, and only it. */
	c->len = 0;
	c->room = 0;
	for (unsigned i = 0; i < 50000; i++)
		out8(&r, RBR, 'x');
	chr_drain(c, SIZE_MAX);
	assert_int_equal(c->len, 16384);
	serial_fini(&r, c);
}

static void test_uart_receive(void **state)
{
	struct rig r;
	struct chr *c = serial_init(&r);

	/* 16450: one byte at a time */
	out8(&r, IER, 0x01);
	chr_type(c, "ab");
	assert_int_equal(rig_take(&r, 0), 0x34);
	assert_int_equal(in8(&r, IIR), 0x04);
	assert_int_equal(in8(&r, LSR), 0x61);
	assert_int_equal(c->ready, 0);
	assert_int_equal(in8(&r, RBR), 'a');
	assert_int_equal(c->ready, 1);
	assert_int_equal(in8(&r, LSR), 0x60);
	assert_int_equal(in8(&r, IIR), 0x01);
	out8(&r, 0x20, 0x20);
	/* FIFO, trigger level 8: below it the time-out interrupt, at it the data interrupt */
	out8(&r, IIR, 0x81);
	chr_type(c, "1234567");
	assert_int_equal(in8(&r, IIR), 0xcc);
	chr_type(c, "8");
	assert_int_equal(in8(&r, IIR), 0xc4);
	chr_type(c, "9abcdefgHIJ");
	assert_int_equal(c->fe.can_receive(c->fe.opaque), 0);
	for (const char *p = "123456789abcdefg"; *p; p++)
		assert_int_equal(in8(&r, RBR), *p);
	assert_int_equal(in8(&r, LSR), 0x60);
	assert_int_equal(c->ready, 2);
	/* Reset of the FIFO */
	chr_type(c, "xyz");
	out8(&r, IIR, 0x03);
	assert_int_equal(in8(&r, LSR), 0x60);
	/* A break */
	out8(&r, IER, 0x05);
	c->fe.event(c->fe.opaque, CHR_BREAK);
	assert_int_equal(in8(&r, IIR), 0xc6);
	assert_int_equal(in8(&r, LSR) & 0x11, 0x11);
	assert_int_equal(in8(&r, RBR), 0);
	assert_int_equal(in8(&r, LSR), 0x60);
	serial_fini(&r, c);
}

static void test_uart_loopback_and_modem(void **state)
{
	struct rig r;
	struct chr *c = serial_init(&r);

	out8(&r, IER, 0x08);
	in8(&r, MSR);
	out8(&r, MCR, 0x10); /* the peer's lines seem to fall */
	assert_int_equal(rig_take(&r, 0), 0x34);
	assert_int_equal(in8(&r, IIR) & 0x0f, 0x00);
	assert_int_equal(in8(&r, MSR), 0x0b);
	assert_int_equal(in8(&r, MSR), 0x00);
	out8(&r, 0x20, 0x20);
	out8(&r, RBR, 'z');
	assert_int_equal(in8(&r, LSR) & 1, 1);
	out8(&r, RBR, 'y'); /* overrun without a FIFO */
	assert_int_equal(in8(&r, LSR) & 3, 3);
	assert_int_equal(in8(&r, RBR), 'z');
	assert_int_equal(c->fe.can_receive(c->fe.opaque), 0);
	assert_int_equal(c->len, 0);
	serial_fini(&r, c);
}

static void test_uart_ports(void **state)
{
	struct rig r;
	struct err err = {0};
	struct chr *c = new_chr();
	struct dev *d;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	for (unsigned i = 0; i < 4; i++)
		rig_dev(&r, &serial_dev_ops, NULL); /* no chardev: bytes vanish */
	out8(&r, 0x2f8, 'x');
	assert_int_equal(in8(&r, 0x2fd), 0x60);
	/* COM1 and COM3 share a line: one falling does not take the other's request away. */
	out8(&r, 0x3f9, 2);
	assert_int_equal(rig_take(&r, 0), 0x34);
	out8(&r, 0x20, 0x20);
	out8(&r, 0x3e9, 2);
	out8(&r, 0x3e9, 0);
	out8(&r, 0x4d0, 0x10); /* as a level, to see it */
	assert_int_equal(rig_take(&r, 0), 0x34);
	out8(&r, 0x3f9, 0);
	out8(&r, 0x20, 0x20);
	assert_int_equal(rig_take(&r, 0), -1);
	/* refused by name */
	static const char *const bad[][2] = {
	    {"index", "4"}, {"irq", "16"}, {"iobase", "0xfffc"}, {"index", "1"}, {"index", "0xffffffff"}};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		d = dev_new_ops(&r.bus, &serial_dev_ops, &err);
		err.code = 0;
		assert_int_equal(dev_set(d, bad[i][0], bad[i][1], &err), 0);
		assert_true(dev_realize(d, &err) < 0);
		assert_true(strlen(err.msg) > 20);
		dev_destroy(d);
	}
	serial_fini(&r, c);
}

static void test_uart_hostile(void **state)
{
	struct rig r;
	struct chr *c = serial_init(&r);

	for (unsigned i = 0; i < 300000; i++) {
		unsigned x = i * 2654435761u;

		out8(&r, RBR + (x >> 29), (uint8_t)(x >> 16));
		in8(&r, RBR + (x >> 26 & 7));
		if (i % 16 == 0) {
			c->room = x & 31;
			c->len = 0;
			chr_type(c, "hello");
		}
	}
	c->connected = false;
	serial_fini(&r, c);
}

/* ---- the small ports --------------------------------------------------------------- */

static void test_debug_ports(void **state)
{
	struct rig r;
	struct chr *c = new_chr();

	rig_init(&r, 1);
	rig_dev(&r, &debugcon_dev_ops, "chardev=c0", NULL);
	rig_dev(&r, &debug_exit_dev_ops, NULL);
	rig_dev(&r, &pvpanic_dev_ops, NULL);
	assert_int_equal(in8(&r, 0xe9), 0xe9);
	for (const char *p = "SeaBIOS\n"; *p; p++)
		out8(&r, 0xe9, (uint8_t)*p);
	assert_int_equal(c->writes, 1);
	assert_memory_equal(c->got, "SeaBIOS\n", 8);
	chr_type(c, "nobody reads this");
	out8(&r, 0x501, 0x10);
	assert_int_equal(r.request, VM_EXIT);
	assert_int_equal(r.request_status, 0x21);
	assert_int_equal(in8(&r, 0x505), 3);
	out8(&r, 0x505, 2);
	out8(&r, 0x505, 0x80);
	assert_int_equal(r.requests, 1);
	out8(&r, 0x505, 1);
	assert_int_equal(r.request, VM_PANIC);
	serial_fini(&r, c);
}

static uint8_t kbc_command(struct rig *r, uint8_t cmd)
{
	out8(r, 0x64, cmd);
	assert_true(in8(r, 0x64) & 1);
	return in8(r, 0x60);
}

/* What Linux's driver asks; each answer is there at once, or its probe takes seconds. */
static void test_keyboard_controller(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	rig_dev(&r, &i8042_dev_ops, NULL);
	assert_int_equal(in8(&r, 0x64) & 1, 0);
	assert_int_equal(kbc_command(&r, 0xaa), 0x55);
	assert_int_equal(in8(&r, 0x64), 0x1c);
	assert_int_equal(kbc_command(&r, 0x20) & 0x04, 0x04);
	out8(&r, 0x64, 0x60);
	out8(&r, 0x60, 0x30); /* no interrupts */
	while (rig_take(&r, 0) >= 0)
		out8(&r, 0x20, 0x20);
	assert_int_equal(kbc_command(&r, 0x20), 0x30);
	assert_int_equal(kbc_command(&r, 0xab), 0x00);
	/* no auxiliary port: the looped byte comes back as the keyboard's */
	out8(&r, 0x64, 0xd3);
	out8(&r, 0x60, 0x5a);
	assert_int_equal(in8(&r, 0x64) & 0x21, 0x01);
	assert_int_equal(in8(&r, 0x60), 0x5a);
	assert_int_equal(kbc_command(&r, 0xa9), 0x01);
	/* a keyboard that is not there: resend, with the time-out bit, and IRQ 1 */
	out8(&r, 0x64, 0x60);
	out8(&r, 0x60, 0x25);
	out8(&r, 0x60, 0xf2);
	assert_int_equal(in8(&r, 0x64) & 0x41, 0x41);
	assert_int_equal(rig_take(&r, 0), 0x31);
	assert_int_equal(in8(&r, 0x60), 0xfe);
	out8(&r, 0x20, 0x20);
	assert_int_equal(rig_take(&r, 0), -1);
	/* resets */
	assert_int_equal(r.requests, 0);
	out8(&r, 0x64, 0xff); /* pulses nothing */
	assert_int_equal(r.requests, 0);
	out8(&r, 0x64, 0xfe);
	assert_int_equal(r.requests, 1);
	assert_int_equal(r.request, VM_RESET);
	out8(&r, 0x64, 0xd1);
	out8(&r, 0x60, 0xdf);
	assert_int_equal(r.requests, 1);
	assert_int_equal(kbc_command(&r, 0xd0), 0xdf);
	out8(&r, 0x64, 0xd1);
	out8(&r, 0x60, 0xde);
	assert_int_equal(r.requests, 2);
	/* a guest that only writes */
	for (unsigned i = 0; i < 100000; i++)
		out8(&r, i & 1 ? 0x64 : 0x60, (uint8_t)(i * 7 >> 3));
	rig_fini(&r);
}

static void test_port92(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_dev(&r, &port92_dev_ops, NULL);
	assert_int_equal(in8(&r, 0x92), 2);
	out8(&r, 0x92, 0);
	assert_int_equal(r.requests, 0);
	out8(&r, 0x92, 1);
	assert_int_equal(r.request, VM_RESET);
	out8(&r, 0x92, 3);
	assert_int_equal(r.requests, 1); /* no edge */
	rig_fini(&r);
}

/* FERR#, interrupt 13, port F0h and IGNNE#. */
static void test_fpu_error(void **state)
{
	struct rig r;
	struct dev *d;

	rig_init(&r, 2);
	rig_init_pics(&r, 1u << 13 | 1u << 2);
	d = rig_dev(&r, &fpu_error_dev_ops, NULL);
	assert_int_equal(in8(&r, 0xf0), 0xff);
	out8(&r, 0xf0, 0);			    /* without an error it means nothing */
	assert_false(fpu_error_signal(d, 1, true)); /* not wired */
	assert_int_equal(rig_take(&r, 0), -1);
	assert_false(fpu_error_signal(d, 0, true));
	assert_int_equal(rig_take(&r, 0), 0x3d);
	assert_false(fpu_error_signal(d, 0, true)); /* until the handler has answered */
	out8(&r, 0xf0, 0);
	assert_true(fpu_error_signal(d, 0, true));
	assert_true(fpu_error_signal(d, 0, true));
	assert_false(fpu_error_signal(d, 0, false));
	assert_false(fpu_error_signal(d, 0, true)); /* the next error is one */
	rig_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_uart_probe),
	    cmocka_unit_test(test_uart_transmit_interrupts),
	    cmocka_unit_test(test_uart_output_is_gathered),
	    cmocka_unit_test(test_uart_back_pressure),
	    cmocka_unit_test(test_uart_receive),
	    cmocka_unit_test(test_uart_loopback_and_modem),
	    cmocka_unit_test(test_uart_ports),
	    cmocka_unit_test(test_uart_hostile),
	    cmocka_unit_test(test_debug_ports),
	    cmocka_unit_test(test_keyboard_controller),
	    cmocka_unit_test(test_port92),
	    cmocka_unit_test(test_fpu_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
