/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ACPI tables with fixed layouts. Offsets are those of ACPI 6.4: 5.2.5 (RSDP),
 * 5.2.9 (FADT, revision 3: what an ACPI 2.0 system has), 5.2.12 (MADT); IA-PC
 * HPET specification 1.0a, 3.2.4.
 */
#include "machine/acpi.h"
#include <errno.h>
#include <stdlib.h>
#include "base/util.h"
#include "hw/pc/acpi_pm.h"
#include "hw/pc/irqchip.h"

#define ACPI_HEADER_SIZE 36
#define ACPI_RSDP_SIZE	 36
#define ACPI_FACS_SIZE	 64
#define ACPI_FADT_SIZE	 244
#define ACPI_HPET_BASE	 0xfed00000u
#define ACPI_HPET_ID	 0x8086a201u /* Intel, legacy replacement, 64 bits, 3 timers: as its capabilities say */
#define ACPI_ALIGN	 64

#define FADT_WBINVD	BIT(0)
#define FADT_PROC_C1	BIT(2)
#define FADT_SLP_BUTTON BIT(5) /* no fixed sleep button */
#define FADT_RTC_S4	BIT(7)
#define FADT_RESET_REG	BIT(10)

#define BOOT_ARCH_LEGACY BIT(0)
#define BOOT_ARCH_8042	 BIT(1)
#define BOOT_ARCH_NO_VGA BIT(2)
#define BOOT_ARCH_NO_RTC BIT(5)

#define RESET_PORT  0xcf9
#define RESET_VALUE 0x06

struct acpi_image {
	struct aml out; /* as a growing buffer */
	uint64_t base;
};

static uint8_t acpi_checksum(const uint8_t *p, size_t len)
{
	uint8_t sum = 0;

	while (len--)
		sum = (uint8_t)(sum + *p++);
	return (uint8_t)-sum;
}

/* Zero bytes up to the next multiple of `align`; returns the offset there. */
static size_t acpi_align(struct acpi_image *img, size_t align)
{
	while (!img->out.failed && img->out.len % align)
		aml_byte(&img->out, 0);
	return img->out.len;
}

static uint64_t acpi_table_begin(struct acpi_image *img, const char *signature, uint8_t revision, size_t *at)
{
	uint8_t h[ACPI_HEADER_SIZE] = {0};

	*at = acpi_align(img, ACPI_ALIGN);
	memcpy(h, signature, 4);
	h[8] = revision;
	memcpy(h + 10, "KELVIN", 6);
	memcpy(h + 16, "KELVINPC", 8);
	st32le(h + 24, 1);
	memcpy(h + 28, "KLVN", 4);
	st32le(h + 32, 1);
	aml_raw(&img->out, h, sizeof(h));
	return img->base + *at;
}

/* Length and checksum, once the table is complete. */
static void acpi_table_end(struct acpi_image *img, size_t at)
{
	uint8_t *t = img->out.buf + at;
	size_t len = img->out.len - at;

	if (img->out.failed)
		return;
	st32le(t + 4, (uint32_t)len);
	t[9] = acpi_checksum(t, len);
}

/* Generic address structure for a port block. */
static void acpi_gas_io(uint8_t *p, uint64_t port, unsigned bits, unsigned access)
{
	p[0] = 1; /* system I/O */
	p[1] = (uint8_t)bits;
	p[2] = 0;
	p[3] = (uint8_t)access; /* 1 byte, 2 word, 3 dword */
	st64le(p + 4, port);
}

static uint64_t acpi_build_facs(struct acpi_image *img)
{
	uint8_t f[ACPI_FACS_SIZE] = "FACS";
	size_t at = acpi_align(img, ACPI_ALIGN);

	st32le(f + 4, sizeof(f));
	aml_raw(&img->out, f, sizeof(f));
	return img->base + at;
}

static uint64_t acpi_build_fadt(struct acpi_image *img, const struct acpi_config *c, uint64_t facs, uint64_t dsdt)
{
	uint8_t f[ACPI_FADT_SIZE - ACPI_HEADER_SIZE] = {0};
	size_t at;
	uint64_t addr = acpi_table_begin(img, "FACP", 3, &at);
	uint16_t arch = BOOT_ARCH_LEGACY | (c->i8042 ? BOOT_ARCH_8042 : 0) | (c->vga ? 0 : BOOT_ARCH_NO_VGA) |
			(c->rtc ? 0 : BOOT_ARCH_NO_RTC);

#define FADT(off) (&f[(off)-ACPI_HEADER_SIZE]) /* offsets as the specification counts them */
	st32le(FADT(36), (uint32_t)facs);
	st32le(FADT(40), (uint32_t)dsdt);
	st16le(FADT(46), ACPI_PM_SCI);
	st32le(FADT(48), ACPI_APM_CNT); /* SMI_CMD */
	*FADT(52) = ACPI_APM_ENABLE;
	*FADT(53) = ACPI_APM_DISABLE;
	st32le(FADT(56), ACPI_PM_BASE + ACPI_PM_EVT);
	st32le(FADT(64), ACPI_PM_BASE + ACPI_PM_CNT);
	st32le(FADT(76), ACPI_PM_BASE + ACPI_PM_TMR);
	st32le(FADT(80), ACPI_PM_BASE + ACPI_PM_GPE0);
	*FADT(88) = 4; /* PM1_EVT_LEN */
	*FADT(89) = 2; /* PM1_CNT_LEN */
	*FADT(91) = 4; /* PM_TMR_LEN */
	*FADT(92) = ACPI_PM_GPE0_LEN;
	st16le(FADT(96), 0xfff); /* no C2, no C3 */
	st16le(FADT(98), 0xfff);
	*FADT(108) = 0x32; /* CMOS byte with the century */
	st16le(FADT(109), arch);
	st32le(FADT(112), FADT_WBINVD | FADT_PROC_C1 | FADT_SLP_BUTTON | FADT_RTC_S4 | FADT_RESET_REG);
	acpi_gas_io(FADT(116), RESET_PORT, 8, 1);
	*FADT(128) = RESET_VALUE;
	st64le(FADT(140), dsdt);
	acpi_gas_io(FADT(148), ACPI_PM_BASE + ACPI_PM_EVT, 32, 2);
	acpi_gas_io(FADT(172), ACPI_PM_BASE + ACPI_PM_CNT, 16, 2);
	acpi_gas_io(FADT(208), ACPI_PM_BASE + ACPI_PM_TMR, 32, 3);
	acpi_gas_io(FADT(220), ACPI_PM_BASE + ACPI_PM_GPE0, ACPI_PM_GPE0_LEN * 8, 1);
#undef FADT
	aml_raw(&img->out, f, sizeof(f));
	acpi_table_end(img, at);
	return addr;
}

/* ---- MADT -------------------------------------------------------------- */

static void madt_cpu(struct aml *o, uint32_t uid, uint32_t apic_id)
{
	uint8_t e[16] = {0};

	if (apic_id < 255 && uid < 255) {
		e[0] = 0; /* processor local APIC */
		e[1] = 8;
		e[2] = (uint8_t)uid;
		e[3] = (uint8_t)apic_id;
		st32le(e + 4, 1); /* enabled */
	} else {
		e[0] = 9; /* processor local x2APIC */
		e[1] = 16;
		st32le(e + 4, apic_id);
		st32le(e + 8, 1);
		st32le(e + 12, uid);
	}
	aml_raw(o, e, e[1]);
}

static void madt_override(struct aml *o, uint8_t isa_irq, uint32_t gsi, uint16_t flags)
{
	uint8_t e[10] = {2, sizeof(e), 0, isa_irq};

	st32le(e + 4, gsi);
	st16le(e + 8, flags);
	aml_raw(o, e, sizeof(e));
}

static uint64_t acpi_build_madt(struct acpi_image *img, const struct acpi_config *c)
{
	/* PIRQs end at 5, 10 and 11, the SCI at 9: level, active high. */
	static const uint8_t level_irqs[] = {5, 9, 10, 11};
	struct aml *o = &img->out;
	uint8_t head[8] = {0}, ioapic[12] = {1, sizeof(ioapic)}, nmi[6] = {4, sizeof(nmi), 0xff, 0, 0, 1};
	size_t at;
	uint64_t addr = acpi_table_begin(img, "APIC", 3, &at);

	st32le(head, (uint32_t)LAPIC_BASE);
	st32le(head + 4, 1); /* two 8259 exist */
	aml_raw(o, head, sizeof(head));
	for (unsigned i = 0; i < c->ncpus; i++)
		madt_cpu(o, i, c->apic_id[i]);
	st32le(ioapic + 4, (uint32_t)IOAPIC_BASE);
	aml_raw(o, ioapic, sizeof(ioapic));
	madt_override(o, 0, 2, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(level_irqs); i++)
		madt_override(o, level_irqs[i], level_irqs[i], 0x0d);
	aml_raw(o, nmi, sizeof(nmi)); /* all processors: LINT1 is NMI */
	acpi_table_end(img, at);
	return addr;
}

static uint64_t acpi_build_hpet(struct acpi_image *img)
{
	uint8_t t[20] = {0};
	size_t at;
	uint64_t addr = acpi_table_begin(img, "HPET", 1, &at);

	st32le(t, ACPI_HPET_ID);
	st64le(t + 8, ACPI_HPET_BASE); /* generic address: memory space */
	aml_raw(&img->out, t, sizeof(t));
	acpi_table_end(img, at);
	return addr;
}

/* ---- roots ------------------------------------------------------------- */

/* RSDT (entries of 4 bytes) or XSDT (8). */
static uint64_t acpi_build_root(struct acpi_image *img, const char *signature, unsigned width, const uint64_t *table,
				unsigned n)
{
	size_t at;
	uint64_t addr = acpi_table_begin(img, signature, 1, &at);

	for (unsigned i = 0; i < n; i++)
		aml_raw(&img->out, &table[i], width);
	acpi_table_end(img, at);
	return addr;
}

static void acpi_write_rsdp(uint8_t *p, uint64_t rsdt, uint64_t xsdt)
{
	memcpy(p, "RSD PTR ", 8);
	memcpy(p + 9, "KELVIN", 6);
	p[15] = 2;
	st32le(p + 16, (uint32_t)rsdt);
	st32le(p + 20, ACPI_RSDP_SIZE);
	st64le(p + 24, xsdt);
	p[8] = acpi_checksum(p, 20);
	p[32] = acpi_checksum(p, ACPI_RSDP_SIZE);
}

int acpi_build(const struct acpi_config *c, uint64_t base, size_t max_len, uint8_t **image, size_t *len, uint64_t *rsdp,
	       struct err *err)
{
	static const uint8_t hole[ACPI_RSDP_SIZE];
	struct acpi_image img = {.base = base};
	uint64_t table[3], facs, dsdt, rsdt, xsdt;
	unsigned n = 0;
	size_t at;

	aml_raw(&img.out, hole, sizeof(hole)); /* the RSDP comes first */
	facs = acpi_build_facs(&img);
	dsdt = acpi_table_begin(&img, "DSDT", 2, &at);
	acpi_build_dsdt(&img.out, c);
	acpi_table_end(&img, at);
	table[n++] = acpi_build_fadt(&img, c, facs, dsdt);
	table[n++] = acpi_build_madt(&img, c);
	if (c->hpet)
		table[n++] = acpi_build_hpet(&img);
	rsdt = acpi_build_root(&img, "RSDT", 4, table, n);
	xsdt = acpi_build_root(&img, "XSDT", 8, table, n);
	if (img.out.failed || img.out.len > max_len) {
		free(img.out.buf);
		return err_set(err, -ENOMEM, "the ACPI tables of %u CPUs do not fit in %zu bytes", c->ncpus, max_len);
	}
	acpi_write_rsdp(img.out.buf, rsdt, xsdt);
	*image = img.out.buf;
	*len = img.out.len;
	*rsdp = base;
	return 0;
}
