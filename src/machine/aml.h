/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A builder for ACPI Machine Language (ACPI 6.4, chapter 20) and resource
 * templates (6.4), as far as the board's DSDT needs it. Terms are appended in order;
 * whatever has a package length is opened by a *_begin and closed by aml_end.
 * A failed allocation makes the builder inert: check `failed` once, at the end.
 */
#ifndef KELVIN_MACHINE_AML_H
#define KELVIN_MACHINE_AML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AML_MAX_DEPTH 16

struct aml {
	uint8_t *buf;
	size_t len, room;
	struct {
		size_t at;	/* of the package length to patch */
		bool resources; /* a buffer whose size is patched, too */
	} open[AML_MAX_DEPTH];
	unsigned depth;
	bool failed;
};

/* Argument and local operands, for aml_byte */
enum aml_operand { AML_ZERO = 0x00, AML_ONE = 0x01, AML_LOCAL0 = 0x60, AML_ARG0 = 0x68 };
/* Operators, followed by their operands (and a target, AML_ZERO when there is none) */
enum aml_operator { AML_STORE = 0x70, AML_AND = 0x7b, AML_OR = 0x7d, AML_LLESS = 0x95, AML_RETURN = 0xa4 };

void aml_raw(struct aml *a, const void *data, size_t len);
void aml_byte(struct aml *a, uint8_t b);
/* "\\_SB.PCI0", "^LNKA", "_STA": segments are padded with '_'. */
void aml_path(struct aml *a, const char *path);
void aml_int(struct aml *a, uint64_t v);
void aml_string(struct aml *a, const char *s);
void aml_eisa_id(struct aml *a, const char *id); /* "PNP0A03" as its 32-bit number */

void aml_scope_begin(struct aml *a, const char *path);
void aml_device_begin(struct aml *a, const char *name);
void aml_method_begin(struct aml *a, const char *name, unsigned nargs);
void aml_package_begin(struct aml *a, uint8_t count);
void aml_if_begin(struct aml *a); /* the predicate follows */
void aml_end(struct aml *a);

void aml_name(struct aml *a, const char *name); /* the object follows */
void aml_name_int(struct aml *a, const char *name, uint64_t v);
void aml_name_string(struct aml *a, const char *name, const char *s);
void aml_name_eisa_id(struct aml *a, const char *name, const char *id);
/* An operation region of PCI configuration bytes (space 2) with fields of 8 bits each. */
void aml_pci_config_fields(struct aml *a, const char *region, uint8_t offset, const char *const *fields, unsigned n);
/* CreateDWordField(buffer operand, index, name) */
void aml_create_dword_field(struct aml *a, uint8_t buffer, uint8_t index, const char *name);

/* ---- resource templates: begin, descriptors, aml_end ------------------- */
void aml_resources_begin(struct aml *a);
void aml_res_io(struct aml *a, uint16_t base, uint8_t len);
void aml_res_irq(struct aml *a, unsigned irq); /* ISA: edge, active high */
void aml_res_mem32(struct aml *a, uint32_t base, uint32_t len);
/* Extended interrupt: level, active high, shared. */
void aml_res_interrupts(struct aml *a, const uint32_t *irq, uint8_t n);
/* Windows of a bridge: [min, max] */
void aml_res_bus(struct aml *a, uint16_t min, uint16_t max);
void aml_res_io_window(struct aml *a, uint16_t min, uint16_t max);
void aml_res_mem_window(struct aml *a, uint64_t min, uint64_t max, bool cacheable);

#endif
