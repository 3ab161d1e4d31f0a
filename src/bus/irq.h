/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Interrupt lines and messages. A device holds a `struct irq` and raises or
 * lowers it; where it leads (8259 and IOAPIC, or KVM's in-kernel chips) is the
 * board's. Any thread. Level lines are levels, not counts: each source keeps
 * its own level, and shared lines are ORed by whoever shares them (PCI INTx).
 */
#ifndef KELVIN_BUS_IRQ_H
#define KELVIN_BUS_IRQ_H

#include <stdint.h>

struct irq {
	void (*set)(void *opaque, int n, int level);
	void *opaque;
	int n;
};

static inline void irq_set(const struct irq *i, int level)
{
	if (i->set)
		i->set(i->opaque, i->n, level);
}
static inline void irq_pulse(const struct irq *i)
{
	irq_set(i, 1);
	irq_set(i, 0);
}

/* What the board offers for messages; implemented by the soft irqchips or by KVM. */
struct msi_ops {
	void (*send)(void *opaque, uint64_t addr, uint32_t data);
	/* Bind fd (an eventfd) to the message so that a write to it interrupts without leaving the
	 * kernel; returns a handle >= 0, or -ENOSYS: then signal with send(). */
	int (*bind)(void *opaque, int fd, uint64_t addr, uint32_t data);
	int (*rebind)(void *opaque, int handle, uint64_t addr, uint32_t data);
	void (*unbind)(void *opaque, int handle, int fd);
};

#endif
