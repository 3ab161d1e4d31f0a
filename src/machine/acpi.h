/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ACPI tables of the pc board (ACPI 6.4, chapter 5): RSDP, RSDT, XSDT, FADT,
 * FACS, MADT, HPET and DSDT, built as one image for a known guest address.
 */
#ifndef KELVIN_MACHINE_ACPI_H
#define KELVIN_MACHINE_ACPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "machine/aml.h"

/* What of the board the tables describe. */
struct acpi_config {
	unsigned ncpus;
	const uint32_t *apic_id;
	bool hpet, i8042, rtc, vga, pvpanic;
	uint16_t pvpanic_port;
	bool com[4];
	uint64_t pci_mem_base, pci_mem_end;	/* below 4 GB; end exclusive */
	uint64_t pci_mem64_base, pci_mem64_end; /* equal: none */
};

/* `base` is page aligned; *rsdp is the RSDP's guest address. *image is the caller's to free. */
int acpi_build(const struct acpi_config *c, uint64_t base, size_t max_len, uint8_t **image, size_t *len, uint64_t *rsdp,
	       struct err *err);
/* The DSDT's body (acpi_dsdt.c). */
void acpi_build_dsdt(struct aml *a, const struct acpi_config *c);

#endif
