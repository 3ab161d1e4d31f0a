/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The DSDT of the pc board: power-off, the PCI host bridge with its windows and
 * interrupt routing through the PIIX3's link devices, ISA devices, processors.
 */
#include "machine/acpi.h"
#include <stdio.h>
#include "base/util.h"
#include "hw/pc/acpi_pm.h"

#define PIIX3_PIRQRC 0x60
#define PIRQ_FIELD   "\\_SB.PCI0.ISA.PRQ%u"
#define PCI_SLOTS    32
#define PCI_PINS     4

/* ---- PCI interrupts ---------------------------------------------------- */

static const uint32_t pirq_choices[] = {5, 10, 11};

static void dsdt_link_sta(struct aml *a, const char *field)
{
	/* Bit 7 of the route register: not routed. */
	aml_method_begin(a, "_STA", 0);
	aml_if_begin(a);
	aml_byte(a, AML_AND);
	aml_path(a, field);
	aml_int(a, 0x80);
	aml_byte(a, AML_ZERO);
	aml_byte(a, AML_RETURN);
	aml_int(a, 0x09);
	aml_end(a);
	aml_byte(a, AML_RETURN);
	aml_int(a, 0x0b);
	aml_end(a);
}

static void dsdt_link_dis(struct aml *a, const char *field)
{
	aml_method_begin(a, "_DIS", 0);
	aml_byte(a, AML_OR);
	aml_path(a, field);
	aml_int(a, 0x80);
	aml_path(a, field);
	aml_end(a);
}

/* The current setting: a template whose interrupt number is filled in. */
static void dsdt_link_crs(struct aml *a, const char *field)
{
	static const uint32_t none[] = {0};

	aml_method_begin(a, "_CRS", 0);
	aml_byte(a, AML_STORE);
	aml_resources_begin(a);
	aml_res_interrupts(a, none, 1);
	aml_end(a);
	aml_byte(a, AML_LOCAL0);
	aml_create_dword_field(a, AML_LOCAL0, 5, "IRQN");
	aml_if_begin(a);
	aml_byte(a, AML_LLESS);
	aml_path(a, field);
	aml_int(a, 0x80);
	aml_byte(a, AML_STORE);
	aml_path(a, field);
	aml_path(a, "IRQN");
	aml_end(a);
	aml_byte(a, AML_RETURN);
	aml_byte(a, AML_LOCAL0);
	aml_end(a);
}

static void dsdt_link_srs(struct aml *a, const char *field)
{
	aml_method_begin(a, "_SRS", 1);
	aml_create_dword_field(a, AML_ARG0, 5, "IRQN");
	aml_byte(a, AML_STORE);
	aml_path(a, "IRQN");
	aml_path(a, field);
	aml_end(a);
}

static void dsdt_link(struct aml *a, unsigned pirq)
{
	char name[5] = {'L', 'N', 'K', (char)('A' + pirq), 0}, field[32];

	snprintf(field, sizeof(field), PIRQ_FIELD, pirq);
	aml_device_begin(a, name);
	aml_name_eisa_id(a, "_HID", "PNP0C0F");
	aml_name_int(a, "_UID", pirq);
	aml_name(a, "_PRS");
	aml_resources_begin(a);
	aml_res_interrupts(a, pirq_choices, ARRAY_SIZE(pirq_choices));
	aml_end(a);
	dsdt_link_sta(a, field);
	dsdt_link_dis(a, field);
	dsdt_link_crs(a, field);
	dsdt_link_srs(a, field);
	aml_end(a);
}

/* Pin A of slot 1 is PIRQA and each slot turns by one: the wiring of bus/pci.c. */
static void dsdt_prt(struct aml *a)
{
	aml_name(a, "_PRT");
	aml_package_begin(a, PCI_SLOTS * PCI_PINS);
	for (unsigned slot = 0; slot < PCI_SLOTS; slot++) {
		for (unsigned pin = 0; pin < PCI_PINS; pin++) {
			char link[] = "\\_SB.LNKx";

			link[sizeof(link) - 2] = (char)('A' + (slot + pin + 3) % 4);
			aml_package_begin(a, 4);
			aml_int(a, slot << 16 | 0xffff);
			aml_int(a, pin);
			aml_path(a, link);
			aml_int(a, 0);
			aml_end(a);
		}
	}
	aml_end(a);
}

/* ---- devices ------------------------------------------------------------ */

struct isa_device {
	const char *name, *hid;
	struct {
		uint16_t base;
		uint8_t len;
	} io[2];
	int irq; /* -1: none */
};

static void dsdt_isa_device(struct aml *a, const struct isa_device *d, int uid)
{
	aml_device_begin(a, d->name);
	aml_name_eisa_id(a, "_HID", d->hid);
	if (uid >= 0)
		aml_name_int(a, "_UID", (uint64_t)uid);
	aml_name(a, "_CRS");
	aml_resources_begin(a);
	for (unsigned i = 0; i < ARRAY_SIZE(d->io); i++) {
		if (d->io[i].len)
			aml_res_io(a, d->io[i].base, d->io[i].len);
	}
	if (d->irq >= 0)
		aml_res_irq(a, (unsigned)d->irq);
	aml_end(a);
	aml_end(a);
}

static void dsdt_isa(struct aml *a, const struct acpi_config *c)
{
	static const char *const fields[] = {"PRQ0", "PRQ1", "PRQ2", "PRQ3"};
	static const struct isa_device rtc = {"RTC", "PNP0B00", {{0x70, 2}}, 8};
	static const struct isa_device kbd = {"KBD", "PNP0303", {{0x60, 1}, {0x64, 1}}, 1};
	static const struct isa_device com[] = {
	    {"COM1", "PNP0501", {{0x3f8, 8}}, 4},
	    {"COM2", "PNP0501", {{0x2f8, 8}}, 3},
	    {"COM3", "PNP0501", {{0x3e8, 8}}, 4},
	    {"COM4", "PNP0501", {{0x2e8, 8}}, 3},
	};

	aml_device_begin(a, "ISA");
	aml_name_int(a, "_ADR", 0x00010000);
	aml_pci_config_fields(a, "PIRR", PIIX3_PIRQRC, fields, ARRAY_SIZE(fields));
	if (c->rtc)
		dsdt_isa_device(a, &rtc, -1);
	if (c->i8042) {
		dsdt_isa_device(a, &kbd, -1);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(com); i++) {
		if (c->com[i])
			dsdt_isa_device(a, &com[i], (int)i + 1);
	}
	aml_end(a);
}

static void dsdt_pci(struct aml *a, const struct acpi_config *c)
{
	aml_device_begin(a, "PCI0");
	aml_name_eisa_id(a, "_HID", "PNP0A03");
	aml_name_int(a, "_UID", 0);
	aml_name(a, "_CRS");
	aml_resources_begin(a);
	aml_res_bus(a, 0, 0xff);
	aml_res_io(a, 0xcf8, 8);
	aml_res_io_window(a, 0x0000, 0x0cf7);
	aml_res_io_window(a, 0x0d00, 0xffff);
	aml_res_mem_window(a, 0xa0000, 0xbffff, true);
	aml_res_mem_window(a, c->pci_mem_base, c->pci_mem_end - 1, false);
	if (c->pci_mem64_end > c->pci_mem64_base)
		aml_res_mem_window(a, c->pci_mem64_base, c->pci_mem64_end - 1, true);
	aml_end(a);
	dsdt_prt(a);
	dsdt_isa(a, c);
	aml_end(a);
}

static void dsdt_system_devices(struct aml *a, const struct acpi_config *c)
{
	if (c->hpet) {
		aml_device_begin(a, "HPET");
		aml_name_eisa_id(a, "_HID", "PNP0103");
		aml_name_int(a, "_UID", 0);
		aml_name(a, "_CRS");
		aml_resources_begin(a);
		aml_res_mem32(a, 0xfed00000, 0x400);
		aml_end(a);
		aml_end(a);
	}
	aml_device_begin(a, "FWCF");
	aml_name_string(a, "_HID", "QEMU0002"); /* the interface's registered ID */
	aml_name_int(a, "_STA", 0x0b);
	aml_name(a, "_CRS");
	aml_resources_begin(a);
	aml_res_io(a, 0x510, 12);
	aml_end(a);
	aml_end(a);
	if (c->pvpanic) {
		aml_device_begin(a, "PEVT");
		aml_name_string(a, "_HID", "QEMU0001");
		aml_name(a, "_CRS");
		aml_resources_begin(a);
		aml_res_io(a, c->pvpanic_port, 1);
		aml_end(a);
		aml_end(a);
	}
}

static void dsdt_processors(struct aml *a, const struct acpi_config *c)
{
	for (unsigned i = 0; i < c->ncpus; i++) {
		char name[5];

		snprintf(name, sizeof(name), "C%03X", i & 0xfff);
		aml_device_begin(a, name);
		aml_name_string(a, "_HID", "ACPI0007");
		aml_name_int(a, "_UID", i); /* as in the MADT */
		aml_end(a);
	}
}

void acpi_build_dsdt(struct aml *a, const struct acpi_config *c)
{
	aml_name(a, "\\_S5");
	aml_package_begin(a, 4);
	for (unsigned i = 0; i < 4; i++)
		aml_int(a, i < 2 ? ACPI_SLP_TYP_S5 : 0);
	aml_end(a);
	aml_scope_begin(a, "\\_SB");
	dsdt_pci(a, c);
	for (unsigned i = 0; i < 4; i++)
		dsdt_link(a, i);
	dsdt_system_devices(a, c);
	dsdt_processors(a, c);
	aml_end(a);
}
