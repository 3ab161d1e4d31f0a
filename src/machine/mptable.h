/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The MP configuration table, for kernels that run without ACPI (acpi=off). */
#ifndef KELVIN_MACHINE_MPTABLE_H
#define KELVIN_MACHINE_MPTABLE_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct mptable_config {
	unsigned ncpus;
	const uint32_t *apic_id;
	uint32_t signature, features; /* CPUID leaf 1: EAX and EDX */
	const uint8_t *pirq_irq;      /* ISA interrupt of PIRQA..D */
};

/* Floating pointer and table as one image for guest address `base` (16-byte aligned); caller frees. */
int mptable_build(const struct mptable_config *c, uint64_t base, size_t max_len, uint8_t **image, size_t *len,
		  struct err *err);

#endif
