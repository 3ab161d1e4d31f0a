/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The 8259 pair: priorities, modes, cascade, spurious interrupts, ELCR, poll. */
#include "rig.h"

#define LINE(n) (1u << (n))

static void set(struct rig *r, int irq, int level)
{
	irq_set(&r->bus.gsi[irq], level);
}

static void pulse(struct rig *r, int irq)
{
	irq_pulse(&r->bus.gsi[irq]);
}

static void eoi(struct rig *r)
{
	out8(r, 0x20, 0x20);
}

static void test_priority_and_eoi(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	assert_int_equal(rig_take(&r, 0), -1);
	pulse(&r, 5);
	pulse(&r, 3);
	assert_int_equal(rig_take(&r, 0), 0x33);
	assert_int_equal(rig_take(&r, 0), -1); /* 5 waits behind 3 */
	pulse(&r, 1);
	assert_int_equal(rig_take(&r, 0), 0x31); /* 1 does not */
	eoi(&r);				 /* ends 1 */
	assert_int_equal(rig_take(&r, 0), -1);
	eoi(&r); /* ends 3 */
	assert_int_equal(rig_take(&r, 0), 0x35);
	eoi(&r);
	assert_int_equal(rig_take(&r, 0), -1);
	/* An edge in service is latched again. */
	pulse(&r, 5);
	assert_int_equal(rig_take(&r, 0), 0x35);
	pulse(&r, 5);
	assert_int_equal(rig_take(&r, 0), -1);
	out8(&r, 0x20, 0x65); /* specific EOI */
	assert_int_equal(rig_take(&r, 0), 0x35);
	out8(&r, 0x20, 0x65);
	rig_fini(&r);
}

static void test_mask(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, LINE(4));
	pulse(&r, 3);
	assert_int_equal(rig_take(&r, 0), -1);
	out8(&r, 0x20, 0x0a); /* read IRR */
	assert_int_equal(in8(&r, 0x20), 0x08);
	assert_int_equal(in8(&r, 0x21), 0xef);
	out8(&r, 0x21, 0xf7);
	assert_int_equal(rig_take(&r, 0), 0x33);
	out8(&r, 0x20, 0x0b); /* read ISR */
	assert_int_equal(in8(&r, 0x20), 0x08);
	eoi(&r);
	assert_int_equal(in8(&r, 0x20), 0x00);
	rig_fini(&r);
}

static void test_cascade(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	pulse(&r, 12);
	pulse(&r, 3);
	assert_int_equal(rig_take(&r, 0), 0x3c); /* the slave's lines come before line 3 */
	pulse(&r, 9);
	/* Fully nested master: the cascade is in service, so even a higher line of the slave waits. */
	assert_int_equal(rig_take(&r, 0), -1);
	out8(&r, 0xa0, 0x20);
	out8(&r, 0x20, 0x62);
	assert_int_equal(rig_take(&r, 0), 0x39);
	out8(&r, 0xa0, 0x20);
	out8(&r, 0x20, 0x62);
	assert_int_equal(rig_take(&r, 0), 0x33);
	eoi(&r);
	rig_fini(&r);
}

static void test_special_fully_nested(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	out8(&r, 0x20, 0x11);
	out8(&r, 0x21, 0x30);
	out8(&r, 0x21, 4);
	out8(&r, 0x21, 0x11);
	pulse(&r, 12);
	assert_int_equal(rig_take(&r, 0), 0x3c);
	pulse(&r, 9);
	assert_int_equal(rig_take(&r, 0), 0x39);
	pulse(&r, 14);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_fini(&r);
}

static void test_special_mask(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	pulse(&r, 1);
	assert_int_equal(rig_take(&r, 0), 0x31);
	pulse(&r, 5);
	assert_int_equal(rig_take(&r, 0), -1);
	out8(&r, 0x21, 0x02); /* mask the line in service ... */
	assert_int_equal(rig_take(&r, 0), -1);
	out8(&r, 0x20, 0x68); /* ... and say that it must not hold others back */
	assert_int_equal(rig_take(&r, 0), 0x35);
	eoi(&r); /* non-specific: passes over the masked line */
	out8(&r, 0x20, 0x0b);
	assert_int_equal(in8(&r, 0x20), 0x02);
	rig_fini(&r);
}

static void test_auto_eoi_and_rotation(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	out8(&r, 0x20, 0x13); /* single: no ICW3 */
	out8(&r, 0x21, 0x30);
	out8(&r, 0x21, 0x03); /* automatic EOI */
	pulse(&r, 4);
	pulse(&r, 5);
	assert_int_equal(rig_take(&r, 0), 0x34);
	assert_int_equal(rig_take(&r, 0), 0x35);
	out8(&r, 0x20, 0x0b);
	assert_int_equal(in8(&r, 0x20), 0);
	out8(&r, 0x20, 0x80); /* rotate in automatic EOI mode */
	pulse(&r, 4);
	assert_int_equal(rig_take(&r, 0), 0x34);
	pulse(&r, 3);
	pulse(&r, 5);
	assert_int_equal(rig_take(&r, 0), 0x35); /* 4 is last now, so 5 is first */
	assert_int_equal(rig_take(&r, 0), 0x33);
	out8(&r, 0x20, 0xc4); /* set priority: 4 last */
	pulse(&r, 5);
	pulse(&r, 0);
	assert_int_equal(rig_take(&r, 0), 0x35);
	assert_int_equal(rig_take(&r, 0), 0x30);
	rig_fini(&r);
}

static void test_rotate_on_eoi(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	pulse(&r, 3);
	assert_int_equal(rig_take(&r, 0), 0x33);
	out8(&r, 0x20, 0xa0); /* rotate on non-specific EOI: 3 is last */
	pulse(&r, 3);
	pulse(&r, 7);
	assert_int_equal(rig_take(&r, 0), 0x37);
	eoi(&r);
	assert_int_equal(rig_take(&r, 0), 0x33);
	rig_fini(&r);
}

static void test_level_and_elcr(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	out8(&r, 0x4d0, 0xff);
	out8(&r, 0x4d1, 0xff);
	assert_int_equal(in8(&r, 0x4d0), 0xf8); /* 0, 1, 2 stay edge */
	assert_int_equal(in8(&r, 0x4d1), 0xde); /* 8 and 13 too */
	set(&r, 11, 1);
	assert_int_equal(rig_take(&r, 0), 0x3b);
	out8(&r, 0xa0, 0x20);
	eoi(&r);
	assert_int_equal(rig_take(&r, 0), 0x3b); /* still asserted */
	set(&r, 11, 0);
	out8(&r, 0xa0, 0x20);
	eoi(&r);
	assert_int_equal(rig_take(&r, 0), -1);
	rig_fini(&r);
}

static void test_spurious(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	out8(&r, 0x4d0, 0x20);
	out8(&r, 0x4d1, 0x08);
	/* A level request that goes away between INTR and INTA: IR7, nothing in service. */
	set(&r, 5, 1);
	assert_true(irqchip_intr_pending(r.chip, 0));
	set(&r, 5, 0);
	assert_false(irqchip_intr_pending(r.chip, 0));
	/* The same behind the cascade, seen by an engine that had decided already. */
	set(&r, 11, 1);
	assert_int_equal(rig_take(&r, 0), 0x3b);
	out8(&r, 0xa0, 0x20);
	out8(&r, 0x20, 0x20);
	set(&r, 11, 0);
	out8(&r, 0x20, 0x0b);
	assert_int_equal(in8(&r, 0x20), 0);
	assert_int_equal(irqchip_intr_ack(r.chip, 0), -1);
	rig_fini(&r);
}

static void test_poll(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	rig_init_pics(&r, 0xffff);
	out8(&r, 0x20, 0x0c);
	assert_int_equal(in8(&r, 0x20), 0);
	pulse(&r, 6);
	out8(&r, 0x20, 0x0c);
	assert_int_equal(in8(&r, 0x20), 0x86);
	assert_int_equal(rig_take(&r, 0), -1); /* the poll was the acknowledge */
	out8(&r, 0x20, 0x0b);
	assert_int_equal(in8(&r, 0x20), 0x40);
	eoi(&r);
	rig_fini(&r);
}

static void test_hostile_words(void **state)
{
	struct rig r;

	rig_init(&r, 1);
	/* Every control word in every state of initialisation, with interrupts in between. */
	for (unsigned i = 0; i < 0x40000; i++) {
		unsigned x = i * 2654435761u;
		uint16_t port = (x >> 31 ? 0xa0 : 0x20) + (x >> 30 & 1);

		out8(&r, port, (uint8_t)(x >> 16));
		irq_set(&r.bus.gsi[x >> 8 & 15], x >> 29 & 1);
		if (i % 3 == 0)
			rig_take(&r, 0);
		if (i % 7 == 0)
			in8(&r, port);
	}
	/* And it still works when initialised again. */
	for (int i = 0; i < 16; i++)
		set(&r, i, 0);
	out8(&r, 0x4d0, 0);
	out8(&r, 0x4d1, 0);
	rig_init_pics(&r, 0xffff);
	while (rig_take(&r, 0) >= 0) {
		out8(&r, 0xa0, 0x20);
		eoi(&r);
	}
	pulse(&r, 4);
	assert_int_equal(rig_take(&r, 0), 0x34);
	rig_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_priority_and_eoi), cmocka_unit_test(test_mask),
	    cmocka_unit_test(test_cascade),	     cmocka_unit_test(test_special_fully_nested),
	    cmocka_unit_test(test_special_mask),     cmocka_unit_test(test_auto_eoi_and_rotation),
	    cmocka_unit_test(test_rotate_on_eoi),    cmocka_unit_test(test_level_and_elcr),
	    cmocka_unit_test(test_spurious),	     cmocka_unit_test(test_poll),
	    cmocka_unit_test(test_hostile_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
