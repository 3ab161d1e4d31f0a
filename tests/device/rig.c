/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The machine without CPUs of rig.h; its clock is fake_clock.c or the real one. */
#include "rig.h"
#include "roundtrip.h"
#include <stdio.h>
#include <string.h>
#include "base/util.h"

/* ---- the machine ------------------------------------------------------------ */

static void rig_kick(struct vcpu *v)
{
	struct rig *r = container_of(v->accel, struct rig, accel);

	r->kicks++;
}

static const struct accel_ops rig_accel_ops = {.vcpu_kick = rig_kick};

static void rig_request(void *opaque, enum vm_request what, int status, const char *why)
{
	struct rig *r = opaque;

	r->request = what;
	r->request_status = status;
	r->requests++;
}

void rig_init(struct rig *r, unsigned ncpus)
{
	struct err err = {0};

	memset(r, 0, sizeof(*r));
	assert_int_equal(mem_init(&r->mem, &err), 0);
	vmclock_init(&r->clock);
	r->bus.mem = &r->mem;
	r->bus.ports = ports_create();
	r->bus.clock = &r->clock;
	r->bus.loop = loop_create("test", &err);
	assert_non_null(r->bus.loop);
	r->bus.request = rig_request;
	r->bus.opaque = r;
	r->accel.ops = &rig_accel_ops;
	r->ncpus = ncpus;
	r->chip = irqchip_create(&r->bus, ncpus, NULL, &err);
	assert_non_null(r->chip);
	for (unsigned i = 0; i < ncpus; i++) {
		r->vcpu[i].accel = &r->accel;
		r->vcpu[i].index = i;
		irqchip_set_vcpu(r->chip, i, &r->vcpu[i]);
	}
	for (int i = 0; i < IRQCHIP_GSIS; i++)
		r->bus.gsi[i] = (struct irq){irqchip_set_gsi, r->chip, i};
	r->bus.msi = &irqchip_msi_ops;
	r->bus.msi_opaque = r->chip;
}

void rig_fini(struct rig *r)
{
	dev_destroy_all(&r->bus);
	irqchip_destroy(r->chip);
	ports_destroy(r->bus.ports);
	loop_destroy(r->bus.loop);
	mem_fini(&r->mem);
}

struct dev *rig_dev(struct rig *r, const struct dev_ops *ops, ...)
{
	struct err err = {0};
	struct dev *d = dev_new_ops(&r->bus, ops, &err);
	const char *text;
	va_list ap;

	assert_non_null(d);
	va_start(ap, ops);
	while ((text = va_arg(ap, const char *))) {
		char prop[64];
		const char *eq = strchr(text, '=');

		snprintf(prop, sizeof(prop), "%.*s", (int)(eq - text), text);
		if (dev_set(d, prop, eq + 1, &err))
			fail_msg("%s", err.msg);
	}
	va_end(ap);
	if (dev_realize(d, &err))
		fail_msg("%s", err.msg);
	return d;
}

/* ---- accesses ----------------------------------------------------------------- */

void out8(struct rig *r, uint16_t port, uint8_t val)
{
	ports_write(r->bus.ports, port, val, 1);
	state_roundtrip(&r->bus, r->chip, r->ncpus);
}

uint8_t in8(struct rig *r, uint16_t port)
{
	return (uint8_t)ports_read(r->bus.ports, port, 1);
}

void lapic_put(struct rig *r, unsigned cpu, unsigned reg, uint32_t val)
{
	irqchip_bind_thread(r->chip, cpu);
	mem_write(&r->mem, LAPIC_BASE + reg, val, 4);
}

uint32_t lapic_get(struct rig *r, unsigned cpu, unsigned reg)
{
	irqchip_bind_thread(r->chip, cpu);
	return (uint32_t)mem_read(&r->mem, LAPIC_BASE + reg, 4);
}

void ioapic_put(struct rig *r, unsigned reg, uint32_t val)
{
	mem_write(&r->mem, IOAPIC_BASE, reg, 4);
	mem_write(&r->mem, IOAPIC_BASE + 0x10, val, 4);
}

uint32_t ioapic_get(struct rig *r, unsigned reg)
{
	mem_write(&r->mem, IOAPIC_BASE, reg, 4);
	return (uint32_t)mem_read(&r->mem, IOAPIC_BASE + 0x10, 4);
}

void ioapic_put_pin(struct rig *r, unsigned pin, uint64_t entry)
{
	ioapic_put(r, 0x10 + 2 * pin + 1, (uint32_t)(entry >> 32));
	ioapic_put(r, 0x10 + 2 * pin, (uint32_t)entry);
}

void msr_put(struct rig *r, unsigned cpu, uint32_t msr, uint64_t val)
{
	assert_int_equal(irqchip_msr_write(r->chip, cpu, msr, val), 0);
}

uint64_t msr_get(struct rig *r, unsigned cpu, uint32_t msr)
{
	uint64_t val;

	assert_int_equal(irqchip_msr_read(r->chip, cpu, msr, &val), 0);
	return val;
}

/* ---- vCPUs ---------------------------------------------------------------------- */

bool rig_asked(struct rig *r, unsigned cpu, uint32_t bits)
{
	return atomic_fetch_and(&r->vcpu[cpu].requests, ~bits) & bits;
}

int rig_take(struct rig *r, unsigned cpu)
{
	bool pending;

	if (rig_asked(r, cpu, VCPU_REQ_INTR))
		r->looking[cpu] = true;
	pending = irqchip_intr_pending(r->chip, cpu);
	if (pending && !r->looking[cpu])
		fail_msg("vCPU %u has an interrupt and was not asked to look", cpu);
	if (!pending) {
		r->looking[cpu] = false;
		return -1;
	}
	return irqchip_intr_ack(r->chip, cpu);
}

void rig_init_pics(struct rig *r, uint16_t unmasked)
{
	static const uint16_t base[2] = {0x20, 0xa0};

	for (unsigned i = 0; i < 2; i++) {
		out8(r, base[i], 0x11);
		out8(r, base[i] + 1, 0x30 + 8 * (uint8_t)i);
		out8(r, base[i] + 1, i ? 2 : 4);
		out8(r, base[i] + 1, 0x01);
		out8(r, base[i] + 1, (uint8_t) ~(unmasked >> (8 * i)));
	}
}

void rig_enable_lapic(struct rig *r, unsigned cpu)
{
	lapic_put(r, cpu, 0xf0, 0x1ff);
	lapic_put(r, cpu, 0x350, 0x10000);
	lapic_put(r, cpu, 0xe0, 0xffffffff);
	lapic_put(r, cpu, 0xd0, 1u << (24 + cpu % 8));
}
