/* SPDX-License-Identifier: GPL-2.0-or-later */
/* 8254, RTC and HPET, driven as firmware, Linux and old programs do. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "rig.h"

#define MS   1000000ull
#define SEC  (1000 * MS)
#define TICK 838 /* ns of the 8254, nearly */

static unsigned count_irqs(struct rig *r, uint64_t ns, uint64_t step, int vector)
{
	unsigned n = 0;

	for (uint64_t t = 0; t < ns; t += step) {
		rig_advance(r, step);
		while (rig_take(r, 0) == vector) {
			n++;
			if (vector >= 0x38)
				out8(r, 0xa0, 0x20);
			out8(r, 0x20, 0x20);
		}
	}
	return n;
}

static void pit_program(struct rig *r, unsigned counter, unsigned mode, uint16_t count)
{
	out8(r, 0x43, (uint8_t)(counter << 6 | 0x30 | mode << 1));
	out8(r, 0x40 + counter, (uint8_t)count);
	out8(r, 0x40 + counter, (uint8_t)(count >> 8));
}

static uint16_t pit_latched(struct rig *r, unsigned counter)
{
	uint16_t v;

	out8(r, 0x43, (uint8_t)(counter << 6));
	v = in8(r, 0x40 + counter);
	return (uint16_t)(v | in8(r, 0x40 + counter) << 8);
}

static void rig_init_timers(struct rig *r)
{
	rig_init(r, 1);
	rig_init_pics(r, 0x0105); /* 0, 8 and the cascade */
	rig_dev(r, &pit_dev_ops, NULL);
}

/* ---- 8254 ------------------------------------------------------------------ */

static void test_pit_linux_tick(void **state)
{
	struct rig r;

	rig_init_timers(&r);
	pit_program(&r, 0, 2, 4772); /* HZ=250 */
	assert_in_range(count_irqs(&r, SEC, MS / 4, 0x30), 249, 251);
	/* one shot, as a clock event device uses it */
	pit_program(&r, 0, 4, 1193);
	rig_advance(&r, MS / 2);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_advance(&r, MS);
	assert_int_equal(rig_take(&r, 0), 0x30);
	out8(&r, 0x20, 0x20);
	assert_int_equal(count_irqs(&r, SEC, MS, 0x30), 0);
	rig_fini(&r);
}

/* Field case: a program sets mode 3 with control word 3Eh, whose mode bits say 7, and waits for 40
 * ticks of a period that it then changes back. */
static void test_pit_mode_7_is_3(void **state)
{
	struct rig r;
	unsigned n;

	rig_init_timers(&r);
	out8(&r, 0x43, 0x3e);
	out8(&r, 0x40, 0xec);
	out8(&r, 0x40, 0x5c);
	n = count_irqs(&r, 40ull * 0x5cec * TICK + MS, MS, 0x30);
	assert_in_range(n, 40, 41);
	out8(&r, 0x43, 0x3e);
	out8(&r, 0x40, 0);
	out8(&r, 0x40, 0);
	assert_in_range(count_irqs(&r, SEC, MS, 0x30), 17, 19); /* 18.2 Hz */
	/* A new count without a control word: from the next period on. */
	out8(&r, 0x40, 0xa9);
	out8(&r, 0x40, 0x04);
	rig_advance(&r, 60 * MS);
	assert_in_range(count_irqs(&r, SEC, MS / 4, 0x30), 995, 1005);
	rig_fini(&r);
}

/* Linux: gate on, counter 2 in mode 0, poll OUT2 in port 61h; and by reading the count's high byte. */
static void test_pit_calibration(void **state)
{
	struct rig r;
	uint64_t start;

	rig_init_timers(&r);
	out8(&r, 0x61, (in8(&r, 0x61) & ~0x02) | 0x01);
	pit_program(&r, 2, 0, 59659); /* 50 ms */
	start = rig_now();
	assert_int_equal(in8(&r, 0x61) & 0x20, 0);
	while (!(in8(&r, 0x61) & 0x20))
		rig_advance(&r, 1000);
	assert_in_range(rig_now() - start, 49990000, 50010000);
	pit_program(&r, 2, 0, 0xffff);
	for (unsigned msb = 0xff; msb > 0xf0; msb--) {
		in8(&r, 0x42);
		assert_int_equal(in8(&r, 0x42), msb);
		rig_advance(&r, 256 * TICK + 20);
	}
	rig_fini(&r);
}

static void test_pit_gate(void **state)
{
	struct rig r;
	uint16_t before;

	rig_init_timers(&r);
	out8(&r, 0x61, 1);
	pit_program(&r, 2, 0, 10000);
	rig_advance(&r, MS);
	out8(&r, 0x61, 0);
	before = pit_latched(&r, 2);
	assert_in_range(before, 10000 - 1194, 10000 - 1192);
	rig_advance(&r, 100 * MS);
	assert_int_equal(pit_latched(&r, 2), before); /* held */
	out8(&r, 0x61, 1);
	rig_advance(&r, MS);
	assert_in_range(before - pit_latched(&r, 2), 1192, 1194); /* and on */
	/* mode 1: only the gate's rise starts it */
	pit_program(&r, 2, 1, 1193);
	rig_advance(&r, 10 * MS);
	assert_true(in8(&r, 0x61) & 0x20);
	out8(&r, 0x61, 0);
	out8(&r, 0x61, 1);
	assert_false(in8(&r, 0x61) & 0x20);
	rig_advance(&r, 2 * MS);
	assert_true(in8(&r, 0x61) & 0x20);
	/* mode 3: gate low means output high */
	pit_program(&r, 2, 3, 1000);
	rig_advance(&r, 600 * TICK);
	assert_false(in8(&r, 0x61) & 0x20);
	out8(&r, 0x61, 0);
	assert_true(in8(&r, 0x61) & 0x20);
	rig_fini(&r);
}

static void test_pit_read_back(void **state)
{
	struct rig r;
	uint16_t v;

	rig_init_timers(&r);
	pit_program(&r, 0, 2, 5000);
	rig_advance(&r, MS);
	out8(&r, 0x43, 0xc2); /* latch count and status of counter 0 */
	rig_advance(&r, MS);
	out8(&r, 0x43, 0xc2);		       /* ignored: not read yet */
	assert_int_equal(in8(&r, 0x40), 0xb4); /* OUT high, RW both, mode 2 */
	v = in8(&r, 0x40);
	v |= (uint16_t)(in8(&r, 0x40) << 8);
	assert_in_range(v, 5000 - 1194, 5000 - 1192);
	/* null count between the control word and the count */
	out8(&r, 0x43, 0x36);
	out8(&r, 0x43, 0xe2);
	assert_int_equal(in8(&r, 0x40), 0xf6);
	/* low byte only; BCD */
	out8(&r, 0x43, 0x15);
	out8(&r, 0x40, 0x50);
	rig_advance(&r, 10 * TICK);
	assert_in_range(in8(&r, 0x40), 0x39, 0x41);
	assert_int_equal(in8(&r, 0x43), 0xff);
	/* mode 3 counts down by two */
	pit_program(&r, 0, 3, 1000);
	rig_advance(&r, 100 * TICK + 100);
	assert_in_range(pit_latched(&r, 0), 796, 804);
	assert_int_equal(pit_latched(&r, 0) & 1, 0);
	rig_fini(&r);
}

static void test_pit_late_loop_catches_up(void **state)
{
	struct rig r;
	unsigned n = 0;

	rig_init_timers(&r);
	pit_program(&r, 0, 2, 1193); /* 1 kHz */
	rig_advance(&r, 10 * MS);
	while (rig_take(&r, 0) >= 0)
		out8(&r, 0x20, 0x20);
	/* The host slept: the clock moved 50 ms before the timer could run. */
	for (struct vmtimer *t = r.clock.timers; t; t = t->next) {
		if (t->guest_deadline != UINT64_MAX)
			t->guest_deadline += 50 * MS;
	}
	n = count_irqs(&r, 150 * MS, MS / 10, 0x30);
	assert_in_range(n, 148, 152); /* none is lost */
	rig_fini(&r);
}

static void test_pit_hostile(void **state)
{
	struct rig r;

	rig_init_timers(&r);
	for (unsigned i = 0; i < 200000; i++) {
		unsigned x = i * 2654435761u;

		out8(&r, x >> 30 == 3 ? 0x61 : 0x40 + (x >> 28 & 3), (uint8_t)(x >> 16));
		in8(&r, 0x40 + (x >> 26 & 3));
		in8(&r, 0x61);
		if (i % 16 == 0)
			rig_advance(&r, x & 0xfffff);
	}
	pit_program(&r, 0, 2, 1); /* illegal, and a million interrupts a second */
	rig_advance(&r, SEC);
	rig_fini(&r);
}

/* ---- RTC ---------------------------------------------------------------------- */

static uint8_t cmos(struct rig *r, uint8_t index)
{
	out8(r, 0x70, index);
	return in8(r, 0x71);
}

static void cmos_put(struct rig *r, uint8_t index, uint8_t val)
{
	out8(r, 0x70, index);
	out8(r, 0x71, val);
}

static struct dev *rtc_init(struct rig *r, const char *base)
{
	char prop[64] = "base=";

	rig_init_timers(r);
	return rig_dev(r, &rtc_dev_ops, strcat(prop, base), "clock=vm", NULL);
}

static void assert_time(struct rig *r, const char *want)
{
	char got[32];

	snprintf(got, sizeof(got), "%02x%02x-%02x-%02x %02x:%02x:%02x", cmos(r, 0x32), cmos(r, 9), cmos(r, 8),
		 cmos(r, 7), cmos(r, 4), cmos(r, 2), cmos(r, 0));
	assert_string_equal(got, want);
}

static void test_rtc_time(void **state)
{
	struct rig r;

	rtc_init(&r, "1996-02-29T23:59:58");
	assert_time(&r, "1996-02-29 23:59:58");
	assert_int_equal(cmos(&r, 6), 5); /* Thursday */
	rig_advance(&r, 2 * SEC);
	assert_time(&r, "1996-03-01 00:00:00");
	assert_int_equal(cmos(&r, 0x0d), 0x80);
	/* 12 hours, binary */
	cmos_put(&r, 0x0b, 0x04);
	assert_int_equal(cmos(&r, 4), 12);
	rig_advance(&r, 13 * 3600 * SEC);
	assert_int_equal(cmos(&r, 4), 0x81);
	cmos_put(&r, 0x0b, 0x00);
	rig_advance(&r, 9 * 3600 * SEC);
	assert_int_equal(cmos(&r, 4), 0x90);
	cmos_put(&r, 0x0b, 0x02);
	assert_time(&r, "1996-03-01 22:00:00");
	rig_fini(&r);
}

/* As Linux sets it: SET, then the divider in reset, registers, and back. */
static void test_rtc_set(void **state)
{
	struct rig r;
	uint8_t a;

	rtc_init(&r, "utc");
	cmos_put(&r, 0x0b, cmos(&r, 0x0b) | 0x80);
	a = cmos(&r, 0x0a);
	cmos_put(&r, 0x0a, a | 0x70);
	cmos_put(&r, 0x32, 0x20);
	cmos_put(&r, 9, 0x38);
	cmos_put(&r, 8, 0x01);
	cmos_put(&r, 7, 0x19);
	cmos_put(&r, 4, 0x03);
	cmos_put(&r, 2, 0x14);
	cmos_put(&r, 0, 0x07);
	rig_advance(&r, 5 * SEC); /* it stands */
	assert_time(&r, "2038-01-19 03:14:07");
	cmos_put(&r, 0x0b, cmos(&r, 0x0b) & ~0x80);
	cmos_put(&r, 0x0a, a);
	assert_time(&r, "2038-01-19 03:14:07");
	rig_advance(&r, SEC / 2 - MS); /* half a second to the first update */
	assert_time(&r, "2038-01-19 03:14:07");
	rig_advance(&r, 2 * MS);
	assert_time(&r, "2038-01-19 03:14:08");
	/* Set while it runs */
	cmos_put(&r, 2, 0x20);
	assert_time(&r, "2038-01-19 03:20:08");
	/* Nonsense is some time, not a crash. */
	cmos_put(&r, 8, 0xff);
	cmos_put(&r, 7, 0xff);
	cmos_put(&r, 0x32, 0xff);
	cmos(&r, 8);
	rig_advance(&r, SEC);
	cmos_put(&r, 0x32, 0x00);
	cmos_put(&r, 9, 0x00);
	cmos(&r, 9);
	rig_fini(&r);
}

static void test_rtc_update(void **state)
{
	struct rig r;
	unsigned uip = 0;

	rtc_init(&r, "2000-01-01");
	rig_advance(&r, SEC - rig_now() % SEC); /* to a whole guest second; the date began at guest time 1 ms */
	for (unsigned us = 0; us < 1000000; us += 10) {
		rig_advance(&r, 10000);
		uip += cmos(&r, 0x0a) >> 7;
	}
	assert_in_range(uip, 20, 30); /* 244 us of each second */
	/* Update-ended interrupt, once until register C is read. */
	cmos_put(&r, 0x0b, 0x12);
	cmos(&r, 0x0c);
	assert_int_equal(count_irqs(&r, 3 * SEC, 10 * MS, 0x38), 1);
	assert_int_equal(cmos(&r, 0x0c) & 0xb0, 0x90);
	assert_int_equal(cmos(&r, 0x0c), 0x00);
	rig_advance(&r, SEC);
	assert_int_equal(rig_take(&r, 0), 0x38);
	/* The flag comes without the interrupt too. */
	cmos_put(&r, 0x0b, 0x02);
	cmos(&r, 0x0c);
	rig_advance(&r, SEC);
	assert_int_equal(cmos(&r, 0x0c) & 0x10, 0x10);
	rig_fini(&r);
}

static void test_rtc_periodic(void **state)
{
	struct rig r;
	unsigned n = 0;

	rtc_init(&r, "utc");
	cmos_put(&r, 0x0a, 0x26); /* 1024 Hz */
	cmos_put(&r, 0x0b, 0x42);
	for (unsigned i = 0; i < 10000; i++) {
		rig_advance(&r, MS / 10);
		if (rig_take(&r, 0) == 0x38) {
			n++;
			assert_int_equal(cmos(&r, 0x0c) & 0xc0, 0xc0);
			out8(&r, 0xa0, 0x20);
			out8(&r, 0x20, 0x20);
		}
	}
	assert_in_range(n, 1022, 1026);
	/* The HPET's legacy mode keeps it silent. */
	rtc_set_irq_enabled(r.bus.devices->next, false);
	cmos(&r, 0x0c);
	assert_int_equal(count_irqs(&r, SEC, MS, 0x38), 0);
	rig_fini(&r);
}

static void test_rtc_alarm(void **state)
{
	struct rig r;

	rtc_init(&r, "2000-01-01T10:00:00");
	cmos_put(&r, 5, 0x10);
	cmos_put(&r, 3, 0x01);
	cmos_put(&r, 1, 0x30);
	cmos_put(&r, 0x0b, 0x22);
	cmos(&r, 0x0c);
	rig_advance(&r, 89 * SEC);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_advance(&r, SEC);
	assert_int_equal(rig_take(&r, 0), 0x38);
	assert_int_equal(cmos(&r, 0x0c) & 0xa0, 0xa0);
	out8(&r, 0xa0, 0x20);
	out8(&r, 0x20, 0x20);
	/* Again a day later, not before. */
	rig_advance(&r, 86399 * SEC);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_advance(&r, SEC);
	assert_int_equal(rig_take(&r, 0), 0x38);
	cmos(&r, 0x0c);
	out8(&r, 0xa0, 0x20);
	out8(&r, 0x20, 0x20);
	/* Every minute; and an hour that never comes. */
	cmos_put(&r, 5, 0xff);
	cmos_put(&r, 3, 0xc0);
	rig_advance(&r, 60 * SEC);
	assert_int_equal(rig_take(&r, 0), 0x38);
	cmos(&r, 0x0c);
	out8(&r, 0xa0, 0x20);
	out8(&r, 0x20, 0x20);
	cmos_put(&r, 5, 0x44);
	assert_int_equal(count_irqs(&r, 90000 * SEC, 600 * SEC, 0x38), 0);
	rig_fini(&r);
}

static void test_rtc_memory_and_bases(void **state)
{
	struct rig r;
	struct err err = {0};
	struct dev *d = rtc_init(&r, "utc");

	rtc_set_memory(d, 3584ull << 20, 2560ull << 20);
	assert_int_equal(cmos(&r, 0x17) | cmos(&r, 0x18) << 8, 65535);
	assert_int_equal((cmos(&r, 0x34) | cmos(&r, 0x35) << 8) * 64, 3568 * 1024);
	assert_int_equal((cmos(&r, 0x5b) | cmos(&r, 0x5c) << 8 | cmos(&r, 0x5d) << 16) * 64, 2560 * 1024);
	rtc_set_cmos(d, 0x3d, 0x23);
	rtc_set_cmos(d, 0x0b, 0x77); /* not the board's */
	assert_int_equal(cmos(&r, 0x3d), 0x23);
	assert_int_equal(cmos(&r, 0x0b), 0x02);
	cmos_put(&r, 0x7f, 0x5a);
	assert_int_equal(cmos(&r, 0xff), 0x5a); /* bit 7 of the index is the NMI mask */
	dev_reset_all(&r.bus);
	assert_int_equal(cmos(&r, 0x7f), 0x5a);
	rig_fini(&r);

	rig_init_timers(&r);
	static const char *const bad[] = {
	    "yesterday", "2000-13-01", "2000-01-01T25:00:00", "2000-01-01x", "1969-01-01", "2000-01-01T10:00:00x",
	    "",		 "99999-01-01"};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		d = dev_new_ops(&r.bus, &rtc_dev_ops, &err);
		assert_int_equal(dev_set(d, "base", bad[i], &err), 0);
		assert_true(dev_realize(d, &err) < 0);
		assert_non_null(strstr(err.msg, "YYYY-MM-DD"));
		err.code = 0;
		dev_destroy(d);
	}
	rig_fini(&r);
}

/* E40: the host's clock as UTC (also when nothing is said) and as local time; a date is midnight of that day. */
static void test_rtc_bases(void **state)
{
	static const char *const bases[] = {"base=utc", NULL, "base=localtime"};
	struct rig r;

	setenv("TZ", "EST5", 1);
	tzset();
	for (unsigned n = 0; n < ARRAY_SIZE(bases); n++) {
		struct tm tm;
		time_t t;

		rig_init_timers(&r);
		rig_dev(&r, &rtc_dev_ops, bases[n], NULL);
		do { /* the second may end while the registers are read */
			t = time(NULL);
			n == 2 ? localtime_r(&t, &tm) : gmtime_r(&t, &tm);
		} while (cmos(&r, 0) != (tm.tm_sec / 10 << 4 | tm.tm_sec % 10));
		assert_int_equal(cmos(&r, 4), tm.tm_hour / 10 << 4 | tm.tm_hour % 10);
		assert_int_equal(cmos(&r, 7), tm.tm_mday / 10 << 4 | tm.tm_mday % 10);
		assert_int_equal(cmos(&r, 9), tm.tm_year % 100 / 10 << 4 | tm.tm_year % 10);
		rig_fini(&r);
	}
	rtc_init(&r, "1996-01-01");
	assert_time(&r, "1996-01-01 00:00:00");
	rig_fini(&r);
}

/* ---- HPET ----------------------------------------------------------------------- */

#define HPET 0xfed00000ull

static void hpet_put32(struct rig *r, unsigned off, uint32_t val)
{
	mem_write(&r->mem, HPET + off, val, 4);
}

static uint32_t hpet_get32(struct rig *r, unsigned off)
{
	return (uint32_t)mem_read(&r->mem, HPET + off, 4);
}

static void hpet_init(struct rig *r)
{
	rig_init_timers(r);
	rig_dev(r, &rtc_dev_ops, "clock=vm", NULL);
	rig_dev(r, &hpet_dev_ops, NULL);
	rig_enable_lapic(r, 0);
	lapic_put(r, 0, 0x350, 0x700);
}

static void test_hpet_counter(void **state)
{
	struct rig r;
	uint64_t v;

	hpet_init(&r);
	assert_int_equal(hpet_get32(&r, 4), 10000000); /* 10 ns in fs */
	assert_int_equal(hpet_get32(&r, 0), 0x8086a201);
	assert_int_equal(mem_read(&r.mem, HPET + 0x100, 8), 0x00f0000400000030);
	rig_advance(&r, MS);
	assert_int_equal(mem_read(&r.mem, HPET + 0xf0, 8), 0);
	mem_write(&r.mem, HPET + 0xf0, 0x1fffffff0, 8);
	hpet_put32(&r, 0x10, 1);
	rig_advance(&r, 1000);
	assert_int_equal(mem_read(&r.mem, HPET + 0xf0, 8), 0x200000054);
	assert_int_equal(hpet_get32(&r, 0xf4), 2);
	hpet_put32(&r, 0x10, 0);
	v = mem_read(&r.mem, HPET + 0xf0, 8);
	rig_advance(&r, MS);
	assert_int_equal(mem_read(&r.mem, HPET + 0xf0, 8), v);
	rig_fini(&r);
}

/* Linux: legacy replacement, timer 0 first periodic (two comparator writes), then one-shot. */
static void test_hpet_legacy(void **state)
{
	struct rig r;
	uint32_t now;

	hpet_init(&r);
	pit_program(&r, 0, 2, 1193);
	hpet_put32(&r, 0x10, 0);
	hpet_put32(&r, 0xf0, 0);
	hpet_put32(&r, 0xf4, 0);
	hpet_put32(&r, 0x10, 3);
	/* The 8254 is off the line now. */
	rig_advance(&r, 10 * MS);
	while (rig_take(&r, 0) >= 0)
		out8(&r, 0x20, 0x20);
	assert_int_equal(count_irqs(&r, 100 * MS, MS, 0x30), 0);
	hpet_put32(&r, 0x100, 0x14c); /* enable, periodic, set value, 32 bits */
	hpet_put32(&r, 0x108, hpet_get32(&r, 0xf0) + 400000);
	hpet_put32(&r, 0x108, 400000); /* 4 ms */
	assert_in_range(count_irqs(&r, SEC, MS, 0x30), 249, 251);
	hpet_put32(&r, 0x100, 0x104);
	now = hpet_get32(&r, 0xf0);
	hpet_put32(&r, 0x108, now + 100000);
	rig_advance(&r, MS - 10);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_advance(&r, 10);
	assert_int_equal(rig_take(&r, 0), 0x30);
	out8(&r, 0x20, 0x20);
	assert_int_equal(count_irqs(&r, SEC, MS, 0x30), 0);
	/* Timer 1 is the RTC's line. */
	hpet_put32(&r, 0x120, 0x104);
	hpet_put32(&r, 0x128, hpet_get32(&r, 0xf0) + 100000);
	assert_int_equal(count_irqs(&r, 10 * MS, MS, 0x38), 1);
	/* A reset must give the lines back, or the next boot has no timer. */
	dev_reset_all(&r.bus);
	rig_init_pics(&r, 0x0105);
	pit_program(&r, 0, 2, 1193);
	assert_in_range(count_irqs(&r, 100 * MS, MS / 4, 0x30), 98, 101);
	rig_fini(&r);
}

static void test_hpet_routed(void **state)
{
	struct rig r;

	hpet_init(&r);
	hpet_put32(&r, 0x10, 1);
	/* level-triggered to IOAPIC input 21 */
	ioapic_put_pin(&r, 21, 0xa000 | 0x61);
	hpet_put32(&r, 0x140, 21 << 9 | 0x106);
	hpet_put32(&r, 0x148, hpet_get32(&r, 0xf0) + 100);
	rig_advance(&r, 1000);
	assert_int_equal(rig_take(&r, 0), 0x61);
	assert_int_equal(hpet_get32(&r, 0x20), 4);
	lapic_put(&r, 0, 0xb0, 0);
	assert_int_equal(rig_take(&r, 0), 0x61); /* until the status is cleared */
	hpet_put32(&r, 0x20, 4);
	lapic_put(&r, 0, 0xb0, 0);
	assert_int_equal(rig_take(&r, 0), -1);
	/* 64-bit comparator */
	ioapic_put_pin(&r, 20, 0x62);
	hpet_put32(&r, 0x140, 20 << 9 | 0x4);
	mem_write(&r.mem, HPET + 0x148, mem_read(&r.mem, HPET + 0xf0, 8) + (1ull << 32), 8);
	rig_advance(&r, 42949 * MS);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_advance(&r, MS);
	assert_int_equal(rig_take(&r, 0), 0x62);
	lapic_put(&r, 0, 0xb0, 0);
	/* A route that is not offered leads nowhere. */
	hpet_put32(&r, 0x140, 31 << 9 | 0x104);
	hpet_put32(&r, 0x148, hpet_get32(&r, 0xf0) + 100);
	rig_advance(&r, 1000);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_fini(&r);
}

static void test_hpet_hostile(void **state)
{
	struct rig r;

	hpet_init(&r);
	for (unsigned i = 0; i < 200000; i++) {
		uint64_t x = i * 0x9e3779b97f4a7c15ull;
		unsigned off = (unsigned)(x >> 40) % 0x180, size = x >> 60 & 1 ? 8 : 4;

		mem_write(&r.mem, HPET + off / size * size, x >> (i & 31), size);
		mem_read(&r.mem, HPET + off / size * size, size);
		if (i % 8 == 0) {
			rig_advance(&r, x & 0xffff);
			mem_write(&r.mem, HPET + 0x10, 3, 4);
		}
	}
	/* The shortest period: bounded work. */
	dev_reset_all(&r.bus);
	hpet_put32(&r, 0x10, 3);
	hpet_put32(&r, 0x100, 0x14c);
	hpet_put32(&r, 0x108, hpet_get32(&r, 0xf0) + 1);
	hpet_put32(&r, 0x108, 1);
	rig_advance(&r, SEC);
	rig_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_pit_linux_tick),
	    cmocka_unit_test(test_pit_mode_7_is_3),
	    cmocka_unit_test(test_pit_calibration),
	    cmocka_unit_test(test_pit_gate),
	    cmocka_unit_test(test_pit_read_back),
	    cmocka_unit_test(test_pit_late_loop_catches_up),
	    cmocka_unit_test(test_pit_hostile),
	    cmocka_unit_test(test_rtc_time),
	    cmocka_unit_test(test_rtc_set),
	    cmocka_unit_test(test_rtc_update),
	    cmocka_unit_test(test_rtc_periodic),
	    cmocka_unit_test(test_rtc_alarm),
	    cmocka_unit_test(test_rtc_memory_and_bases),
	    cmocka_unit_test(test_rtc_bases),
	    cmocka_unit_test(test_hpet_counter),
	    cmocka_unit_test(test_hpet_legacy),
	    cmocka_unit_test(test_hpet_routed),
	    cmocka_unit_test(test_hpet_hostile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
