/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ACPI and SMBIOS images: every checksum, length and pointer, and, where the ACPI
 * tools are installed, the DSDT through their disassembler and compiler.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/util.h"
#include "hw/pc/acpi_pm.h"
#include "machine/acpi.h"
#include "machine/mptable.h"
#include "machine/smbios.h"

#define BASE	0xe0000ull
#define MAX_LEN 0x10000

static uint8_t *image;
static size_t image_len;

static uint8_t sum(const uint8_t *p, size_t n)
{
	uint8_t s = 0;

	while (n--)
		s = (uint8_t)(s + *p++);
	return s;
}

static uint8_t *at(uint64_t gpa, size_t len)
{
	assert_true(gpa >= BASE && gpa - BASE + len <= image_len);
	return image + (gpa - BASE);
}

/* A table with the right signature, length and checksum. */
static uint8_t *table(uint64_t gpa, const char *signature)
{
	uint8_t *t = at(gpa, 36);
	uint32_t len = ld32le(t + 4);

	assert_memory_equal(t, signature, 4);
	assert_true(len >= 36);
	at(gpa, len);
	assert_int_equal(sum(t, len), 0);
	assert_memory_equal(t + 10, "KELVIN", 6);
	return t;
}

static uint64_t find(const uint8_t *xsdt, const char *signature)
{
	for (uint32_t i = 36; i < ld32le(xsdt + 4); i += 8) {
		if (!memcmp(at(ld64le(xsdt + i), 4), signature, 4))
			return ld64le(xsdt + i);
	}
	return 0;
}

static const uint8_t *build(unsigned ncpus, bool hpet)
{
	static uint32_t ids[1024];
	struct acpi_config c = {.ncpus = ncpus,
				.apic_id = ids,
				.hpet = hpet,
				.i8042 = true,
				.rtc = true,
				.pvpanic = true,
				.pvpanic_port = 0x505,
				.com = {true, false, true, false},
				.pci_mem_base = 0xc0000000,
				.pci_mem_end = 0xfec00000,
				.pci_mem64_base = 0x140000000,
				.pci_mem64_end = 0x940000000};
	struct err err = {0};
	uint64_t rsdp;

	for (unsigned i = 0; i < ARRAY_SIZE(ids); i++)
		ids[i] = i;
	assert_int_equal(acpi_build(&c, BASE, MAX_LEN, &image, &image_len, &rsdp, &err), 0);
	assert_int_equal(rsdp, BASE);
	return at(rsdp, 36);
}

static void test_pointers(void **state)
{
	const uint8_t *rsdp = build(4, true), *rsdt, *xsdt, *fadt, *facs, *madt;

	assert_memory_equal(rsdp, "RSD PTR ", 8);
	assert_int_equal(rsdp[15], 2);
	assert_int_equal(sum(rsdp, 20), 0);
	assert_int_equal(sum(rsdp, 36), 0);
	rsdt = table(ld32le(rsdp + 16), "RSDT");
	xsdt = table(ld64le(rsdp + 24), "XSDT");
	/* both name the same tables */
	assert_int_equal((ld32le(rsdt + 4) - 36) / 4, (ld32le(xsdt + 4) - 36) / 8);
	for (unsigned i = 0; i < (ld32le(rsdt + 4) - 36) / 4; i++)
		assert_int_equal(ld32le(rsdt + 36 + 4 * i), ld64le(xsdt + 36 + 8 * i));
	fadt = table(find(xsdt, "FACP"), "FACP");
	assert_int_equal(ld32le(fadt + 4), 244);
	table(ld32le(fadt + 40), "DSDT");
	assert_int_equal(ld64le(fadt + 140), ld32le(fadt + 40));
	facs = at(ld32le(fadt + 36), 64);
	assert_memory_equal(facs, "FACS", 4);
	assert_int_equal(ld32le(fadt + 36) % 64, 0);
	/* 32-bit and extended port blocks agree */
	assert_int_equal(ld32le(fadt + 56), ld64le(fadt + 152));
	assert_int_equal(ld32le(fadt + 64), ld64le(fadt + 176));
	assert_int_equal(ld32le(fadt + 76), ld64le(fadt + 212));
	assert_int_equal(ld32le(fadt + 80), ld64le(fadt + 224));
	assert_int_equal(ld64le(fadt + 120), 0xcf9); /* reset register */
	assert_true(ld32le(fadt + 112) & 1 << 10);
	madt = table(find(xsdt, "APIC"), "APIC");
	assert_int_equal(ld32le(madt + 36), 0xfee00000);
	table(find(xsdt, "HPET"), "HPET");
	free(image);
	rsdp = build(1, false);
	assert_int_equal(find(table(ld64le(rsdp + 24), "XSDT"), "HPET"), 0);
	free(image);
}

static void test_madt(void **state)
{
	const uint8_t *rsdp = build(300, true), *madt = table(find(table(ld64le(rsdp + 24), "XSDT"), "APIC"), "APIC");
	unsigned lapics = 0, x2apics = 0, ioapics = 0, overrides = 0;
	uint32_t len = ld32le(madt + 4), i = 44;

	while (i < len) {
		const uint8_t *e = madt + i;

		assert_true(e[1] >= 6 && i + e[1] <= len);
		switch (e[0]) {
		case 0:
			assert_int_equal(e[2], lapics);
			assert_int_equal(e[3], lapics);
			lapics++;
			break;
		case 1: ioapics++; break;
		case 2: overrides++; break;
		case 9:
			assert_int_equal(ld32le(e + 4), 255 + x2apics);
			assert_int_equal(ld32le(e + 12), 255 + x2apics);
			x2apics++;
			break;
		default: break;
		}
		i += e[1];
	}
	assert_int_equal(i, len);
	assert_int_equal(lapics, 255);
	assert_int_equal(x2apics, 45);
	assert_int_equal(ioapics, 1);
	assert_int_equal(overrides, 5);
	free(image);
}

static void test_too_many(void **state)
{
	static uint32_t ids[4096];
	struct acpi_config c = {.ncpus = 4096, .apic_id = ids, .pci_mem_base = 0xc0000000, .pci_mem_end = 0xfec00000};
	struct err err = {0};
	uint64_t rsdp;

	assert_int_equal(acpi_build(&c, BASE, MAX_LEN, &image, &image_len, &rsdp, &err), -ENOMEM);
	assert_non_null(strstr(err.msg, "4096 CPUs"));
}

/* The disassembler must understand all of it, the compiler accept what it says without a warning. */
static void test_iasl(void **state)
{
	static const char *const wanted[] = {"PNP0A03", "_S5",	    "LNKA",    "_PRT",	 "ACPI0007",
					     "PNP0501", "QEMU0001", "PNP0103", "PNP0303"};
	char dir[] = "/tmp/kelvin-acpi-XXXXXX", path[64], cmd[512], *text;
	const uint8_t *rsdp, *fadt, *dsdt;
	size_t n;
	FILE *f;

	if (system("command -v iasl >/dev/null 2>&1"))
		skip();
	assert_non_null(mkdtemp(dir));
	rsdp = build(4, true);
	fadt = table(find(table(ld64le(rsdp + 24), "XSDT"), "FACP"), "FACP");
	dsdt = table(ld32le(fadt + 40), "DSDT");
	snprintf(path, sizeof(path), "%s/dsdt.aml", dir);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(dsdt, 1, ld32le(dsdt + 4), f), ld32le(dsdt + 4));
	fclose(f);
	/* -we: warnings are errors. Messages 2089 (unreferenced object) are remarks and do not count. */
	snprintf(cmd, sizeof(cmd),
		 "cd %s && iasl -d dsdt.aml >d.log 2>&1 && ! grep -qi 'error\\|warning' d.log && iasl -we dsdt.dsl "
		 ">c.log 2>&1 || "
		 "{ cat *.log; false; }",
		 dir);
	assert_int_equal(system(cmd), 0);
	snprintf(path, sizeof(path), "%s/dsdt.dsl", dir);
	f = fopen(path, "rb");
	assert_non_null(f);
	text = calloc(1, 1 << 20);
	n = fread(text, 1, (1 << 20) - 1, f);
	fclose(f);
	assert_true(n > 1000);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		if (!strstr(text, wanted[i]))
			fail_msg("the DSDT lacks %s", wanted[i]);
	}
	assert_null(strstr(text, "Unknown"));
	free(text);
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	assert_int_equal(system(cmd), 0);
	free(image);
}

/* ---- MP table ------------------------------------------------------------ */

static void test_mptable(void **state)
{
	static const uint8_t irq[4] = {10, 10, 11, 11};
	static const uint32_t ids[3] = {0, 2, 300};
	struct mptable_config c = {.ncpus = 3, .apic_id = ids, .signature = 0x60fb1, .features = 1, .pirq_irq = irq};
	unsigned kinds[5] = {0}, pins[24] = {0}, entries = 0;
	const uint8_t *h, *e;
	struct err err = {0};

	assert_int_equal(mptable_build(&c, 0xfc000, 0x4000, &image, &image_len, &err), 0);
	assert_memory_equal(image, "_MP_", 4);
	assert_int_equal(sum(image, 16), 0);
	assert_int_equal(ld32le(image + 4), 0xfc010);
	h = image + 16;
	assert_memory_equal(h, "PCMP", 4);
	assert_int_equal(ld16le(h + 4), image_len - 16);
	assert_int_equal(sum(h, image_len - 16), 0);
	for (e = h + 44; e < image + image_len; e += e[0] ? 8 : 20, entries++) {
		assert_true(e[0] < 5);
		kinds[e[0]]++;
		if (e[0] == 3) { /* a pin is either ISA's (edge) or PCI's (level) */
			assert_true(e[7] < 24);
			assert_true(!pins[e[7]] || (e[4] == 0 && pins[e[7]] == 2));
			pins[e[7]] = e[4] ? 1 : 2;
			assert_int_equal(ld16le(e + 2), e[4] ? 0 : 0xd);
		}
	}
	assert_ptr_equal(e, image + image_len);
	assert_int_equal(entries, ld16le(h + 34));
	assert_int_equal(kinds[0], 2); /* the third has no 8-bit ID */
	assert_int_equal(kinds[1], 2);
	assert_int_equal(kinds[2], 1);
	assert_int_equal(kinds[4], 2);
	assert_int_equal(pins[2], 1);
	assert_int_equal(pins[0], 0);
	assert_int_equal(pins[10], 2);
	free(image);
	assert_int_equal(mptable_build(&c, 0xfc000, 100, &image, &image_len, &err), -ENOMEM);
}

/* ---- SMBIOS -------------------------------------------------------------- */

#define SMBIOS_BASE 0xf0000ull

struct smbios_found {
	unsigned count[128], total;
	const uint8_t *first[128];
};

static const char *smbios_string(const uint8_t *s, unsigned n)
{
	const char *p = (const char *)s + s[1];

	while (--n)
		p += strlen(p) + 1;
	return p;
}

static void smbios_walk(struct smbios_found *f)
{
	const uint8_t *e = image, *p = image + (ld32le(e + 0x18) - SMBIOS_BASE), *end = p + ld16le(e + 0x16);

	memset(f, 0, sizeof(*f));
	assert_memory_equal(e, "_SM_", 4);
	assert_int_equal(sum(e, 0x1f), 0);
	assert_int_equal(sum(e + 0x10, 0xf), 0);
	assert_ptr_equal(end, image + image_len);
	while (p < end) {
		const uint8_t *q = p + p[1];

		if (!f->count[p[0]]++)
			f->first[p[0]] = p;
		f->total++;
		while (q[0] || q[1])
			q++;
		assert_true(q + 2 - p <= ld16le(e + 8)); /* largest structure */
		p = q + 2;
	}
	assert_ptr_equal(p, end);
	assert_int_equal(f->total, ld16le(e + 0x1c));
	assert_int_equal(f->count[127], 1);
}

static int smbios(char **option, unsigned n, uint64_t ram, struct err *err)
{
	static const uint8_t uuid[16] = {0xb7, 0xb4, 0xb7, 0xe4, 0x9c, 0x07, 0x22, 0xaa,
					 0x0c, 0x95, 0xd5, 0xc8, 0xa2, 0x41, 0x76, 0xc5};
	struct smbios_config c = {.uuid = uuid,
				  .ram_size = ram,
				  .low_end = MIN(ram, 3 * GIB),
				  .ncpus = 4,
				  .sockets = 2,
				  .cores = 2,
				  .threads = 1,
				  .cpu_version = "max",
				  .option = option,
				  .noption = n};

	return smbios_build(&c, SMBIOS_BASE, MAX_LEN, &image, &image_len, err);
}

static void test_smbios(void **state)
{
	char *options[] = {"type=1,serial=S-1,product=Box", "type=0,vendor=Me,release=4.2",
			   "type=11,value=one,value=two", "type=2,manufacturer=Board"};
	static const uint8_t uuid[] = {0xe4, 0xb7, 0xb4, 0xb7, 0x07, 0x9c, 0xaa, 0x22};
	struct smbios_found f;
	struct err err = {0};

	assert_int_equal(smbios(NULL, 0, 512 * MIB, &err), 0);
	smbios_walk(&f);
	assert_int_equal(f.count[4], 2); /* sockets */
	assert_int_equal(f.count[17], 1);
	assert_int_equal(f.count[19], 1);
	assert_int_equal(f.count[2], 0);
	assert_memory_equal(f.first[1] + 8, uuid, sizeof(uuid));
	assert_int_equal(ld16le(f.first[17] + 0x0c), 512);
	free(image);
	assert_int_equal(smbios(options, 4, 40 * GIB, &err), 0);
	smbios_walk(&f);
	assert_int_equal(f.count[17], 3);
	assert_int_equal(f.count[19], 2);
	assert_int_equal(f.count[2], 1);
	assert_int_equal(f.first[0][0x14], 4);
	assert_int_equal(f.first[0][0x15], 2);
	assert_string_equal(smbios_string(f.first[0], f.first[0][4]), "Me");
	assert_string_equal(smbios_string(f.first[1], f.first[1][5]), "Box");
	assert_string_equal(smbios_string(f.first[1], f.first[1][7]), "S-1");
	assert_int_equal(f.first[11][4], 2);
	assert_string_equal(smbios_string(f.first[11], 2), "two");
	free(image);
	assert_int_equal(smbios(NULL, 0, 64ull << 40, &err), 0); /* 64 TiB */
	smbios_walk(&f);
	assert_true(f.count[17] <= 255);
	free(image);
}

static void test_smbios_refused(void **state)
{
	static const struct {
		char *option;
		const char *part;
	} bad[] = {
	    {"type=1,serail=x", "did you mean \"serial\""},
	    {"type=9,x=y", "types 0, 1, 2, 3, 4, 11 and 17"},
	    {"serial=x", "type=NUMBER"},
	    {"type=1x,serial=x", "type=NUMBER"},
	    {"file=/tmp/x", "not supported"},
	    {"type=1,uuid=123", "not a UUID"},
	    {"type=0,release=x", "MAJOR.MINOR"},
	    {"type=0,release=1.300", "MAJOR.MINOR"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char *option = bad[i].option;
		struct err err = {0};

		assert_true(smbios(&option, 1, GIB, &err) < 0);
		if (!strstr(err.msg, bad[i].part))
			fail_msg("\"%s\" lacks \"%s\"", err.msg, bad[i].part);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_pointers),	   cmocka_unit_test(test_madt),	   cmocka_unit_test(test_too_many),
	    cmocka_unit_test(test_iasl),	   cmocka_unit_test(test_mptable), cmocka_unit_test(test_smbios),
	    cmocka_unit_test(test_smbios_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
