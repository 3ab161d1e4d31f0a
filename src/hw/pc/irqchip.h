/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The interrupt controllers of the software CPU: two 8259, one 82093AA IOAPIC
 * and one local APIC per vCPU, wired as a PC is. With KVM none of this exists:
 * the kernel has its own, and devices see `struct irq` and `struct msi_ops` either way.
 *
 * Locks: the 8259 pair and the IOAPIC share one short leaf lock (under it only
 * LAPIC atomics and vcpu_request). LAPIC request state is atomic: any thread
 * delivers, only the owning vCPU acknowledges and ends interrupts.
 *
 * How the board wires it:
 *	chip = irqchip_create(bus, ncpus, apic_ids, &err);   ports and memory are mapped by this
 *	bus->gsi[i] = (struct irq){irqchip_set_gsi, chip, i}; for all 24
 *	bus->msi = &irqchip_msi_ops; bus->msi_opaque = chip;
 *	irqchip_set_vcpu(chip, i, v) after each vcpu_create;
 *	irqchip_bind_thread(chip, i) first thing in vCPU i's thread;
 *	and cpu_host's callbacks forward to the functions of the second part.
 */
#ifndef KELVIN_HW_PC_IRQCHIP_H
#define KELVIN_HW_PC_IRQCHIP_H

#include <stdbool.h>
#include <stdint.h>
#include "bus/dev.h"

#define IRQCHIP_GSIS 24
#define IOAPIC_BASE  0xfec00000ull
#define LAPIC_BASE   0xfee00000ull

struct irqchip;

/*
 * Needs bus->{mem,ports,loop,clock}. apic_ids[i] belongs to vCPU i; NULL: the
 * index. vCPU 0 is the bootstrap processor. Main thread, before the vCPUs run.
 */
struct irqchip *irqchip_create(struct bus *bus, unsigned ncpus, const uint32_t *apic_ids, struct err *err);
/* After the vCPU threads and the loop have ended. */
void irqchip_destroy(struct irqchip *c);
void irqchip_set_vcpu(struct irqchip *c, unsigned cpu, struct vcpu *v);
/* The LAPIC page is at the same address for all vCPUs: the calling thread's accesses are vCPU
 * `cpu`'s. A thread that never called it (the monitor) sees vCPU 0's. */
void irqchip_bind_thread(struct irqchip *c, unsigned cpu);
/* Power-on state of the 8259, the IOAPIC and all LAPICs. The vCPUs are stopped. */
void irqchip_reset(struct irqchip *c);

/*
 * Line `gsi` (0..23) changes. 0..15 lead to the 8259 pair and the IOAPIC, 16..23
 * to the IOAPIC only; ISA interrupt 0 is IOAPIC pin 2 (as the MADT's override
 * says), the cascade (2) leads nowhere. Any thread. `chip` is a struct irqchip *.
 */
void irqchip_set_gsi(void *chip, int gsi, int level);
/* opaque: the struct irqchip *. bind is -ENOSYS: no kernel to deliver for us. */
extern const struct msi_ops irqchip_msi_ops;

/* ---- for struct cpu_host; vCPU `cpu`'s own thread unless said --------- */

/*
 * VCPU_REQ_INTR is set whenever an interrupt may have become deliverable (new
 * request, EOI, lower TPR, unmasked); the engine may clear it and then asks
 * irqchip_intr_pending, which is the truth. Pending but RFLAGS.IF clear: ask
 * again when it is set; no second request comes.
 */
bool irqchip_intr_pending(struct irqchip *c, unsigned cpu);
int irqchip_intr_ack(struct irqchip *c, unsigned cpu);
uint64_t irqchip_tpr_get(struct irqchip *c, unsigned cpu);
void irqchip_tpr_set(struct irqchip *c, unsigned cpu, uint64_t cr8);
int irqchip_msr_read(struct irqchip *c, unsigned cpu, uint32_t msr, uint64_t *val);
int irqchip_msr_write(struct irqchip *c, unsigned cpu, uint32_t msr, uint64_t val);
uint64_t irqchip_timer_deadline(struct irqchip *c, unsigned cpu);
void irqchip_timer_poll(struct irqchip *c, unsigned cpu);
/* init: INIT keeps IA32_APIC_BASE and the APIC ID. */
void irqchip_lapic_reset(struct irqchip *c, unsigned cpu, bool init);

/* ---- snapshots: main thread, vCPUs stopped ------------------------------ */

struct chips;
/* The 8259 pair, the IOAPIC and the LAPICs (chips->lapic has room). Loading interrupts nobody. */
void irqchip_save(struct irqchip *c, struct chips *chips);
void irqchip_load(struct irqchip *c, const struct chips *chips);

/* ---- other callers ----------------------------------------------------- */

/* NMI as the monitor's `nmi` sends it: through LINT1 of every LAPIC. Any thread. */
void irqchip_inject_nmi(struct irqchip *c);

#endif
