/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Power management: timer and its event, power button, SCI, sleep, APM, where the ports are. */
#include <stdlib.h>
#include "base/clock.h"
#include "bus/pci.h"
#include "hw/pc/acpi_pm.h"
#include "rig.h"

#define EVT (ACPI_PM_BASE + ACPI_PM_EVT)
#define CNT (ACPI_PM_BASE + ACPI_PM_CNT)
#define TMR (ACPI_PM_BASE + ACPI_PM_TMR)
#define HZ  3579545ull

struct bench {
	struct rig r;
	struct dev *pm;
	unsigned sci;
};

static void bench_gsi(void *opaque, int n, int level)
{
	struct bench *b = opaque;

	if (n == ACPI_PM_SCI)
		b->sci = (unsigned)level;
}

static int setup(void **state)
{
	struct bench *b = calloc(1, sizeof(*b));

	rig_init(&b->r, 1);
	for (int i = 0; i < 24; i++)
		b->r.bus.gsi[i] = (struct irq){bench_gsi, b, i};
	rig_dev(&b->r, &i440fx_ops, NULL);
	rig_dev(&b->r, &piix3_ops, NULL);
	b->pm = rig_dev(&b->r, &acpi_pm_ops, NULL);
	vmclock_start(&b->r.clock);
	dev_reset_all(&b->r.bus);
	pci_config_write(b->r.bus.pci, ACPI_PM_DEVFN, ACPI_PM_CONFIG_BASE, ACPI_PM_BASE | 1, 4);
	pci_config_write(b->r.bus.pci, ACPI_PM_DEVFN, ACPI_PM_CONFIG_MISC, 1, 1);
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	struct bench *b = *state;

	rig_fini(&b->r);
	free(b);
	return 0;
}

static uint64_t in(struct bench *b, uint16_t port, unsigned size)
{
	return ports_read(b->r.bus.ports, port, size);
}

static void out(struct bench *b, uint16_t port, uint64_t val, unsigned size)
{
	ports_write(b->r.bus.ports, port, val, size);
}

static void test_timer(void **state)
{
	struct bench *b = *state;
	uint64_t t0 = in(b, TMR, 4);

	rig_advance(&b->r, NSEC_PER_SEC);
	assert_in_range((in(b, TMR, 4) - t0) & 0xffffff, HZ - 1, HZ + 1);
	rig_advance(&b->r, 100 * NSEC_PER_SEC);
	assert_in_range((in(b, TMR, 4) - t0 - 101 * HZ) & 0xffffff, 0, 2);
	assert_true(in(b, TMR, 4) <= 0xffffff); /* 24 bits */
	assert_int_equal(in(b, TMR + 1, 1), in(b, TMR, 4) >> 8 & 0xff);
	out(b, TMR, 0x1234, 4); /* read-only */
	assert_in_range((in(b, TMR, 4) - t0 - 101 * HZ) & 0xffffff, 0, 2);
}

static void test_timer_event(void **state)
{
	struct bench *b = *state;

	out(b, ACPI_APM_CNT, ACPI_APM_ENABLE, 1);
	assert_int_equal(in(b, EVT, 2) & 1, 0);
	out(b, EVT + 2, 1, 2);
	/* bit 23 toggles every 2.34 s */
	for (int i = 0; i < 5; i++) {
		unsigned ms = 0;

		while (!b->sci && ms < 5000) {
			rig_advance(&b->r, 1000000);
			ms++;
		}
		assert_true(b->sci);
		if (i)
			assert_in_range(ms, 2343, 2345);
		assert_int_equal(in(b, EVT, 2) & 1, 1);
		out(b, EVT, 1, 2);
		assert_false(b->sci);
		assert_int_equal(in(b, EVT, 2) & 1, 0);
	}
	/* without the enable bit it is seen, but does not interrupt */
	out(b, EVT + 2, 0, 2);
	rig_advance(&b->r, 3 * NSEC_PER_SEC);
	assert_false(b->sci);
	assert_int_equal(in(b, EVT, 2) & 1, 1);
}

static void test_power_button(void **state)
{
	struct bench *b = *state;

	out(b, EVT + 2, 0x100, 2);
	acpi_pm_power_button(b->pm);
	assert_false(b->sci); /* ACPI is off: no SCI */
	assert_int_equal(in(b, CNT, 2) & 1, 0);
	out(b, CNT, 1, 2); /* SCI_EN is not the guest's to set */
	assert_int_equal(in(b, CNT, 2) & 1, 0);
	out(b, ACPI_APM_CNT, ACPI_APM_ENABLE, 1);
	assert_int_equal(in(b, CNT, 2) & 1, 1);
	assert_true(b->sci);
	assert_int_equal(in(b, EVT, 2) & 0x100, 0x100);
	out(b, EVT, 0x01, 1); /* the low byte alone leaves it */
	assert_true(b->sci);
	out(b, EVT + 1, 0x01, 1);
	assert_false(b->sci);
	/* both registers in one access, as Linux does */
	acpi_pm_power_button(b->pm);
	assert_int_equal(in(b, EVT, 4), 0x01000100);
	out(b, EVT, 0x01000100, 4);
	assert_false(b->sci);
	assert_int_equal(in(b, EVT, 4), 0x01000000);
	out(b, ACPI_APM_CNT, ACPI_APM_DISABLE, 1);
	assert_int_equal(in(b, CNT, 2) & 1, 0);
	assert_int_equal(in(b, ACPI_APM_CNT, 1), ACPI_APM_DISABLE);
}

/* Linux: the HPET has IRQ 8, so the alarm is to come as an ACPI event. */
static void test_rtc_alarm(void **state)
{
	struct bench *b = *state;
	struct dev *rtc = rig_dev(&b->r, &rtc_dev_ops, "base=2000-01-01T10:00:00", "clock=vm", NULL);
	static const uint8_t regs[][2] = {{5, 0x10}, {3, 0x00}, {1, 0x03}, {0x0b, 0x22}};

	out(b, ACPI_APM_CNT, ACPI_APM_ENABLE, 1);
	out(b, EVT + 2, 0x400, 2);
	rtc_set_irq_enabled(rtc, false);
	for (size_t i = 0; i < ARRAY_SIZE(regs); i++) {
		out(b, 0x70, regs[i][0], 1);
		out(b, 0x71, regs[i][1], 1);
	}
	rig_advance(&b->r, 2900000000);
	assert_false(b->sci);
	rig_advance(&b->r, 200000000);
	assert_true(b->sci);
	assert_int_equal(in(b, EVT, 2) & 0x400, 0x400);
	out(b, EVT, 0x400, 2);
	assert_false(b->sci); /* once for each alarm, though register C was not read yet */
	rig_advance(&b->r, NSEC_PER_SEC);
	assert_false(b->sci);
	out(b, 0x70, 0x0c, 1);
	assert_int_equal(in(b, 0x71, 1) & 0xa0, 0xa0);
	rig_advance(&b->r, 86400 * NSEC_PER_SEC);
	assert_true(b->sci);
}

static void test_sleep(void **state)
{
	struct bench *b = *state;

	out(b, CNT, ACPI_SLP_TYP_S5 << 10, 2); /* without SLP_EN nothing happens */
	assert_int_equal(b->r.requests, 0);
	out(b, CNT, 1 << 10 | 1 << 13, 2); /* a sleep type we do not have */
	assert_int_equal(b->r.requests, 0);
	out(b, CNT, ACPI_SLP_TYP_S5 << 10 | 1 << 13, 2);
	assert_int_equal(b->r.requests, 1);
	assert_int_equal(b->r.request, VM_SHUTDOWN);
	assert_int_equal(in(b, CNT, 2) & 1 << 13, 0); /* SLP_EN is write-only */
}

static void test_gpe(void **state)
{
	struct bench *b = *state;

	out(b, ACPI_PM_BASE + ACPI_PM_GPE0 + 2, 0xffff, 2);
	out(b, ACPI_PM_BASE + ACPI_PM_GPE0, 0xffff, 2);
	assert_int_equal(in(b, ACPI_PM_BASE + ACPI_PM_GPE0, 4), 0xffff0000);
	assert_false(b->sci);
}

static void test_base(void **state)
{
	struct bench *b = *state;

	pci_config_write(b->r.bus.pci, ACPI_PM_DEVFN, ACPI_PM_CONFIG_BASE, 0xb000, 4);
	assert_int_equal(in(b, TMR, 4), 0xffffffff);
	assert_int_not_equal(in(b, 0xb008, 4), 0xffffffff);
	pci_config_write(b->r.bus.pci, ACPI_PM_DEVFN, ACPI_PM_CONFIG_MISC, 0, 1);
	assert_int_equal(in(b, 0xb008, 4), 0xffffffff);
	dev_reset_all(&b->r.bus);
	assert_int_equal(pci_config_read(b->r.bus.pci, ACPI_PM_DEVFN, ACPI_PM_CONFIG_BASE, 4), 1);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {T(test_timer), T(test_timer_event), T(test_power_button), T(test_rtc_alarm),
					   T(test_sleep), T(test_gpe),	       T(test_base)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
