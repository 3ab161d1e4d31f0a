/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an engine is told where there is no local APIC: NO_LAPIC, members of a struct cpu_host. */
#ifndef KELVIN_TESTS_CPU_NO_LAPIC_H
#define KELVIN_TESTS_CPU_NO_LAPIC_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t no_tpr_get(void *opaque, unsigned cpu)
{
	return 0;
}

static inline void no_tpr_set(void *opaque, unsigned cpu, uint64_t cr8) {}

static inline int no_apic_msr_read(void *opaque, unsigned cpu, uint32_t msr, uint64_t *val)
{
	return -1;
}

static inline int no_apic_msr_write(void *opaque, unsigned cpu, uint32_t msr, uint64_t val)
{
	return -1;
}

static inline void no_lapic_reset(void *opaque, unsigned cpu, bool init) {}

#define NO_LAPIC                                                                                                       \
	.tpr_get = no_tpr_get, .tpr_set = no_tpr_set, .apic_msr_read = no_apic_msr_read,                               \
	.apic_msr_write = no_apic_msr_write, .lapic_reset = no_lapic_reset

#endif
