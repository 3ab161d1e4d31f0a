/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A machine without CPUs for device tests: ports, memory map, interrupt controllers,
 * and vCPUs that are only request bits. With fake_clock.c time is the test's: it
 * stands until rig_advance, which runs the timers that become due, in order, in the
 * calling thread.
 */
#ifndef KELVIN_TESTS_DEVICE_RIG_H
#define KELVIN_TESTS_DEVICE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "base/util.h"
#include "bus/dev.h"
#include "hw/pc/devices.h"
#include "hw/pc/irqchip.h"

#define RIG_MAX_CPUS 40
#define RIG_TSC_KHZ  2000000 /* 2 TSC ticks a nanosecond */

struct rig {
	struct bus bus;
	struct mem_map mem;
	struct vmclock clock;
	struct irqchip *chip;
	struct accel accel;
	struct vcpu vcpu[RIG_MAX_CPUS];
	bool looking[RIG_MAX_CPUS]; /* the vCPU was asked to look and has not found nothing since */
	unsigned ncpus;
	_Atomic unsigned kicks;
	/* the last bus->request */
	enum vm_request request;
	int request_status;
	unsigned requests;
};

void rig_init(struct rig *r, unsigned ncpus);
void rig_fini(struct rig *r); /* destroys the devices too */
/* Create, set "prop=value" texts (ends with NULL) and realize; fails the test on an error. */
struct dev *rig_dev(struct rig *r, const struct dev_ops *ops, ...);

uint64_t rig_now(void);
void rig_advance(struct rig *r, uint64_t ns);

void out8(struct rig *r, uint16_t port, uint8_t val);
uint8_t in8(struct rig *r, uint16_t port);
void lapic_put(struct rig *r, unsigned cpu, unsigned reg, uint32_t val);
uint32_t lapic_get(struct rig *r, unsigned cpu, unsigned reg);
void ioapic_put(struct rig *r, unsigned reg, uint32_t val);
uint32_t ioapic_get(struct rig *r, unsigned reg);
void ioapic_put_pin(struct rig *r, unsigned pin, uint64_t entry);
void msr_put(struct rig *r, unsigned cpu, uint32_t msr, uint64_t val); /* fails on #GP */
uint64_t msr_get(struct rig *r, unsigned cpu, uint32_t msr);

/*
 * What an engine with RFLAGS.IF set does at an instruction boundary: the vector it takes,
 * or -1. Takes nothing unless VCPU_REQ_INTR asked for it: a lost request fails the test.
 */
int rig_take(struct rig *r, unsigned cpu);
/* Was the vCPU asked for any of `bits` (and forget it). */
bool rig_asked(struct rig *r, unsigned cpu, uint32_t bits);

/* The 8259 pair at vectors 30h and 38h, all lines masked but those of the 16-bit set. */
void rig_init_pics(struct rig *r, uint16_t unmasked);
/* Software-enable a LAPIC: SVR = 1ffh, LINT0 masked, flat logical ID 1 << cpu. */
void rig_enable_lapic(struct rig *r, unsigned cpu);

#endif
