/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the software interrupt controllers share: i8259.c, ioapic.c,
 * lapic.c, lapic_reg.c, lapic_timer.c, and irqchip.c around them. Nobody else includes it.
 */
#ifndef KELVIN_HW_PC_IRQCHIP_INT_H
#define KELVIN_HW_PC_IRQCHIP_INT_H

#include <stdatomic.h>
#include "base/util.h"
#include "hw/pc/irqchip.h"

/* ---- 8259 pair (i8259.c); all under irqchip.lock ---------------------- */

struct i8259 {
	struct irqchip *chip;
	uint8_t irr, isr, imr;
	uint8_t lines;		 /* present levels of IR0..IR7 */
	uint8_t elcr, elcr_mask; /* level-triggered lines, and those that may be */
	uint8_t vector_base;	 /* ICW2 */
	uint8_t lowest;		 /* the line that has the lowest priority now (rotation) */
	uint8_t icw_next;	 /* 0: initialised; 2, 3, 4: the ICW that is expected */
	bool need_icw4, single, ltim;
	bool read_isr, poll, special_mask;
	bool auto_eoi, rotate_auto_eoi, special_nested;
};

void i8259_reset(struct irqchip *c);
void i8259_set_line(struct irqchip *c, unsigned irq, int level);
/* The INTA cycle: the vector; never fails (a request that went away gives IR7). */
uint8_t i8259_ack(struct irqchip *c);
void i8259_restored(struct irqchip *c); /* its registers were loaded: recompute INTR, which nobody is told */
void i8259_map(struct irqchip *c);
void i8259_unmap(struct irqchip *c);

/* ---- IOAPIC (ioapic.c); all under irqchip.lock ------------------------ */

#define IOAPIC_PINS 24

struct ioapic {
	uint8_t select, id;
	uint32_t lines; /* one bit per pin: asserted */
	uint64_t redirection[IOAPIC_PINS];
};

void ioapic_reset(struct irqchip *c);
void ioapic_set_pin(struct irqchip *c, unsigned pin, int level);
void ioapic_eoi(struct irqchip *c, uint8_t vector);
void ioapic_map(struct irqchip *c);
void ioapic_unmap(struct irqchip *c);

/* ---- local APICs ------------------------------------------------------- */

/* Delivery modes, as ICR, LVT, redirection entries and MSI data all encode them. */
enum apic_mode { APIC_FIXED, APIC_LOWEST, APIC_SMI, APIC_MODE3, APIC_NMI, APIC_INIT, APIC_SIPI, APIC_EXTINT };

enum lapic_lvt { LVT_TIMER, LVT_THERMAL, LVT_PERF, LVT_LINT0, LVT_LINT1, LVT_ERROR, LVT_COUNT };

#define LVT_MASKED	  BIT(16)
#define LVT_MODE(v)	  (((v) >> 8) & 7)
#define LVT_TIMER_MODE(v) (((v) >> 17) & 3)
enum { LVT_ONE_SHOT, LVT_PERIODIC, LVT_TSC_DEADLINE };

#define APIC_BASE_BSP	 BIT(8)
#define APIC_BASE_EXTD	 BIT(10)
#define APIC_BASE_ENABLE BIT(11)
#define SVR_ENABLE	 BIT(8)
#define ESR_SEND_ILLEGAL BIT(5)
#define ESR_RECV_ILLEGAL BIT(6)
#define ESR_ILLEGAL_REG	 BIT(7)

/*
 * irr, tmr, extint and esr_pending are set by anyone. isr is the owner's.
 * The other atomics are written by the owner and read by deliverers, relaxed.
 */
struct lapic {
	_Atomic uint32_t irr[8], tmr[8], isr[8];
	_Atomic uint32_t tpr, svr, ldr, dfr, lvt[LVT_COUNT];
	_Atomic uint64_t base;	      /* IA32_APIC_BASE */
	_Atomic bool extint;	      /* the IOAPIC passed an ExtINT on */
	_Atomic uint32_t esr_pending; /* errors since the last write of ESR */
	uint32_t esr, icr_low, icr_high;
	uint32_t id;
	unsigned index;
	struct irqchip *chip;
	struct vcpu *vcpu;

	/* lapic_timer.c */
	pthread_mutex_t timer_lock; /* owner against the loop's thread */
	struct vmtimer timer;
	uint32_t initial_count, divide_config;
	uint64_t start_ns;     /* guest time at which the count was loaded; 0: not counting */
	uint64_t tsc_deadline; /* 0: none */
	uint64_t fire_ns;      /* guest time of the next interrupt; UINT64_MAX: none */
} __attribute__((aligned(64)));

/* A message on the interrupt bus. */
struct apic_msg {
	uint32_t dest;
	bool logical, level;
	uint8_t vector;
	enum apic_mode mode;
	bool wide; /* dest has 32 bits (an x2APIC's ICR); else 8 */
};

/* Deliver to every (or the least busy) addressed LAPIC; how many took it. Any thread, any lock. */
unsigned lapic_send(struct irqchip *c, const struct apic_msg *m);
/* One LAPIC accepts an interrupt; false: it is disabled. */
bool lapic_accept(struct lapic *l, enum apic_mode mode, uint8_t vector, bool level);
/* An LVT entry's event happened. */
void lapic_lvt_fire(struct lapic *l, enum lapic_lvt which);
/* INTR of the 8259 rose (edges: the LINT0 pins); under irqchip.lock. */
void lapic_lint0_rise(struct irqchip *c);
void lapic_init(struct irqchip *c, unsigned index, uint32_t id);
void lapic_fini(struct lapic *l);
void lapic_reset(struct lapic *l, bool init);
uint32_t lapic_x2apic_ldr(const struct lapic *l);
void lapic_error(struct lapic *l, uint32_t esr_bit);
/* The owner's: */
uint8_t lapic_ppr(struct lapic *l);
void lapic_set_tpr(struct lapic *l, uint8_t tpr);
void lapic_eoi(struct lapic *l);
void lapic_send_ipi(struct lapic *l);
/* Something changed that may let an interrupt through: ask the vCPU to look. */
void lapic_recheck(struct lapic *l);
void lapic_map(struct irqchip *c);
void lapic_unmap(struct irqchip *c);

void lapic_timer_init(struct lapic *l);
void lapic_timer_fini(struct lapic *l);
void lapic_timer_reset(struct lapic *l);
void lapic_timer_set_initial(struct lapic *l, uint32_t count);
uint32_t lapic_timer_current(struct lapic *l);
void lapic_timer_set_divide(struct lapic *l, uint32_t value);
/* The LVT timer entry goes from `old` to its present value. */
void lapic_timer_lvt_changed(struct lapic *l, uint32_t old);
void lapic_timer_set_deadline(struct lapic *l, uint64_t tsc);
uint64_t lapic_timer_deadline(struct lapic *l);
/* Go on with `current` left of the count, for snapshots. */
void lapic_timer_restore(struct lapic *l, uint32_t initial, uint32_t current, uint32_t divide, uint64_t tsc_deadline);

/* ---- all of it --------------------------------------------------------- */

struct irqchip {
	struct bus *bus;
	pthread_mutex_t lock; /* leaf: 8259 and IOAPIC */
	struct i8259 pic[2];
	_Atomic bool pic_intr; /* INTR of the master; written under lock */
	struct ioapic ioapic;
	struct mem_region pic_region[2], elcr_region, ioapic_region, lapic_region;
	_Atomic uint32_t lowest_turn; /* who is next among equals */
	unsigned ncpus;
	struct lapic *lapic; /* ncpus of them */
};

#endif
