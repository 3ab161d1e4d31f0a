/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The interrupt controllers and the 8254 as a snapshot keeps them: the same form
 * whether they are Kelvin's own (hw/pc) or KVM's. Fields are named as in the data
 * sheets; times are guest nanoseconds or ticks that have passed, never host times.
 */
#ifndef KELVIN_CPU_CHIPS_H
#define KELVIN_CPU_CHIPS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/state.h"

#define CHIPS_IOAPIC_PINS 24

struct pic_chip {
	uint8_t irr, isr, imr, lines, elcr;
	uint8_t vector_base, lowest; /* lowest: the line that has the lowest priority now */
	uint8_t icw_next;	     /* 0, or the initialisation word that is expected: 2, 3, 4 */
	bool need_icw4, single, ltim, read_isr, poll, special_mask, auto_eoi, rotate_auto_eoi, special_nested;
};

struct ioapic_chip {
	uint8_t select, id;
	uint32_t lines; /* asserted pins */
	uint64_t redirection[CHIPS_IOAPIC_PINS];
};

#define CHIPS_LVTS 6 /* timer, thermal, performance, LINT0, LINT1, error */
struct lapic_chip {
	uint64_t base; /* IA32_APIC_BASE */
	uint32_t irr[8], isr[8], tmr[8];
	uint32_t tpr, svr, ldr, dfr, lvt[CHIPS_LVTS], esr, icr_low, icr_high;
	uint32_t esr_pending; /* errors since ESR was last written */
	bool extint;	      /* an ExtINT message waits */
	uint32_t initial_count, current_count, divide_config;
	uint64_t tsc_deadline; /* 0: none */
};

struct pit_channel {
	uint8_t mode, rw; /* 0 to 5; 1 low, 2 high, 3 both bytes */
	bool bcd, gate, loaded, counting, write_high, read_high, count_latched, status_latched;
	uint8_t write_low, status_latch;
	uint16_t count_latch;
	uint32_t reload, next_reload; /* 0 to 65536 */
	uint64_t elapsed;	      /* ticks since the count began */
};
struct pit_chip {
	struct pit_channel channel[3];
	uint8_t port61;
	bool irq_enabled; /* not while the HPET replaces it */
	/* Counter 0's next rising edge is, or was, due so many ticks ago (as a difference modulo 2^64). */
	bool edge_known;
	uint64_t edge_ago;
};

struct chips {
	struct pic_chip pic[2];
	struct ioapic_chip ioapic;
	struct pit_chip pit;
	uint32_t ncpus;
	struct lapic_chip *lapic; /* ncpus of them */
};

/* Of struct chips; ncpus and lapic are set before loading. Checks what would lead out of an array. */
extern const struct state chips_state;

#endif
