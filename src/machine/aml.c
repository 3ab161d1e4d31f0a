/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ACPI Machine Language encoding: see aml.h. Single-threaded, no global state. */
#include "machine/aml.h"
#include <stdlib.h>
#include "base/util.h"

/* Opcodes (ACPI 6.4, table 20.2.3 and following) */
#define AML_NAME_OP	       0x08
#define AML_BYTE_PREFIX	       0x0a
#define AML_WORD_PREFIX	       0x0b
#define AML_DWORD_PREFIX       0x0c
#define AML_STRING_PREFIX      0x0d
#define AML_QWORD_PREFIX       0x0e
#define AML_SCOPE_OP	       0x10
#define AML_BUFFER_OP	       0x11
#define AML_PACKAGE_OP	       0x12
#define AML_METHOD_OP	       0x14
#define AML_DUAL_NAME_PREFIX   0x2e
#define AML_MULTI_NAME_PREFIX  0x2f
#define AML_EXT_PREFIX	       0x5b
#define AML_EXT_OP_REGION      0x80
#define AML_EXT_FIELD	       0x81
#define AML_EXT_DEVICE	       0x82
#define AML_CREATE_DWORD_FIELD 0x8a
#define AML_IF_OP	       0xa0
#define AML_SPACE_PCI_CONFIG   0x02
#define AML_FIELD_BYTE_ACC     0x01

#define PKG_LENGTH_BYTES 3 /* we always use this form of it */

/* ---- bytes ------------------------------------------------------------- */

void aml_raw(struct aml *a, const void *data, size_t len)
{
	if (a->failed)
		return;
	if (len > a->room - a->len) {
		size_t room = MAX(a->room * 2, a->len + len + 1024);
		uint8_t *bigger = realloc(a->buf, room);

		if (!bigger) {
			a->failed = true;
			return;
		}
		a->buf = bigger;
		a->room = room;
	}
	memcpy(a->buf + a->len, data, len);
	a->len += len;
}

void aml_byte(struct aml *a, uint8_t b)
{
	aml_raw(a, &b, 1);
}

static void aml_word(struct aml *a, uint16_t v)
{
	aml_raw(a, &v, sizeof(v));
}

static void aml_dword(struct aml *a, uint32_t v)
{
	aml_raw(a, &v, sizeof(v));
}

static void aml_qword(struct aml *a, uint64_t v)
{
	aml_raw(a, &v, sizeof(v));
}

/* ---- names and data ----------------------------------------------------- */

static const char *aml_segment(struct aml *a, const char *path)
{
	char seg[4] = {'_', '_', '_', '_'};

	for (unsigned i = 0; i < 4 && *path && *path != '.'; i++)
		seg[i] = *path++;
	aml_raw(a, seg, sizeof(seg));
	return *path == '.' ? path + 1 : path;
}

void aml_path(struct aml *a, const char *path)
{
	unsigned segments = 1;

	while (*path == '\\' || *path == '^')
		aml_byte(a, (uint8_t)*path++);
	for (const char *c = path; *c; c++)
		segments += *c == '.';
	if (!*path) {
		aml_byte(a, 0); /* the root alone */
		return;
	}
	if (segments == 2) {
		aml_byte(a, AML_DUAL_NAME_PREFIX);
	} else if (segments > 2) {
		aml_byte(a, AML_MULTI_NAME_PREFIX);
		aml_byte(a, (uint8_t)segments);
	}
	while (segments--)
		path = aml_segment(a, path);
}

void aml_int(struct aml *a, uint64_t v)
{
	if (v <= 1) {
		aml_byte(a, (uint8_t)v);
	} else if (v <= UINT8_MAX) {
		aml_byte(a, AML_BYTE_PREFIX);
		aml_byte(a, (uint8_t)v);
	} else if (v <= UINT16_MAX) {
		aml_byte(a, AML_WORD_PREFIX);
		aml_word(a, (uint16_t)v);
	} else if (v <= UINT32_MAX) {
		aml_byte(a, AML_DWORD_PREFIX);
		aml_dword(a, (uint32_t)v);
	} else {
		aml_byte(a, AML_QWORD_PREFIX);
		aml_qword(a, v);
	}
}

void aml_string(struct aml *a, const char *s)
{
	aml_byte(a, AML_STRING_PREFIX);
	aml_raw(a, s, strlen(s) + 1);
}

static uint32_t aml_hex(char c)
{
	return (uint32_t)(c >= 'A' ? c - 'A' + 10 : c - '0');
}

/* Three letters of 5 bits and four hexadecimal digits, stored big-endian (ACPI 6.4, 19.3.4). */
void aml_eisa_id(struct aml *a, const char *id)
{
	uint32_t v = 0;

	for (unsigned i = 0; i < 3; i++)
		v = v << 5 | (uint32_t)(id[i] - '@');
	for (unsigned i = 3; i < 7; i++)
		v = v << 4 | aml_hex(id[i]);
	aml_byte(a, AML_DWORD_PREFIX);
	aml_dword(a, __builtin_bswap32(v));
}

/* ---- blocks ------------------------------------------------------------ */

static void aml_open(struct aml *a, bool resources)
{
	static const uint8_t hole[PKG_LENGTH_BYTES];

	BUG_ON(a->depth == AML_MAX_DEPTH);
	a->open[a->depth].at = a->len;
	a->open[a->depth++].resources = resources;
	aml_raw(a, hole, sizeof(hole));
}

void aml_end(struct aml *a)
{
	size_t at, n;

	BUG_ON(!a->depth);
	at = a->open[--a->depth].at;
	if (a->open[a->depth].resources) {
		aml_byte(a, 0x79); /* end tag, checksum not used */
		aml_byte(a, 0);
	}
	if (a->failed)
		return;
	n = a->len - at; /* counts itself */
	BUG_ON(n >= 1u << 20);
	a->buf[at] = (uint8_t)((PKG_LENGTH_BYTES - 1) << 6 | (n & 0xf));
	a->buf[at + 1] = (uint8_t)(n >> 4);
	a->buf[at + 2] = (uint8_t)(n >> 12);
	if (a->open[a->depth].resources) /* its size operand: a word after the package length */
		st16le(&a->buf[at + PKG_LENGTH_BYTES + 1], (uint16_t)(n - PKG_LENGTH_BYTES - 3));
}

void aml_scope_begin(struct aml *a, const char *path)
{
	aml_byte(a, AML_SCOPE_OP);
	aml_open(a, false);
	aml_path(a, path);
}

void aml_device_begin(struct aml *a, const char *name)
{
	aml_byte(a, AML_EXT_PREFIX);
	aml_byte(a, AML_EXT_DEVICE);
	aml_open(a, false);
	aml_path(a, name);
}

void aml_method_begin(struct aml *a, const char *name, unsigned nargs)
{
	aml_byte(a, AML_METHOD_OP);
	aml_open(a, false);
	aml_path(a, name);
	aml_byte(a, (uint8_t)(nargs | 8)); /* serialized: methods here create named fields */
}

void aml_package_begin(struct aml *a, uint8_t count)
{
	aml_byte(a, AML_PACKAGE_OP);
	aml_open(a, false);
	aml_byte(a, count);
}

void aml_if_begin(struct aml *a)
{
	aml_byte(a, AML_IF_OP);
	aml_open(a, false);
}

void aml_name(struct aml *a, const char *name)
{
	aml_byte(a, AML_NAME_OP);
	aml_path(a, name);
}

void aml_name_int(struct aml *a, const char *name, uint64_t v)
{
	aml_name(a, name);
	aml_int(a, v);
}

void aml_name_string(struct aml *a, const char *name, const char *s)
{
	aml_name(a, name);
	aml_string(a, s);
}

void aml_name_eisa_id(struct aml *a, const char *name, const char *id)
{
	aml_name(a, name);
	aml_eisa_id(a, id);
}

void aml_pci_config_fields(struct aml *a, const char *region, uint8_t offset, const char *const *fields, unsigned n)
{
	aml_byte(a, AML_EXT_PREFIX);
	aml_byte(a, AML_EXT_OP_REGION);
	aml_path(a, region);
	aml_byte(a, AML_SPACE_PCI_CONFIG);
	aml_int(a, offset);
	aml_int(a, n);
	aml_byte(a, AML_EXT_PREFIX);
	aml_byte(a, AML_EXT_FIELD);
	aml_open(a, false);
	aml_path(a, region);
	aml_byte(a, AML_FIELD_BYTE_ACC);
	for (unsigned i = 0; i < n; i++) {
		aml_segment(a, fields[i]);
		aml_byte(a, 8); /* bits, as a one-byte package length */
	}
	aml_end(a);
}

void aml_create_dword_field(struct aml *a, uint8_t buffer, uint8_t index, const char *name)
{
	aml_byte(a, AML_CREATE_DWORD_FIELD);
	aml_byte(a, buffer);
	aml_int(a, index);
	aml_path(a, name);
}

/* ---- resource descriptors ---------------------------------------------- */

void aml_resources_begin(struct aml *a)
{
	aml_byte(a, AML_BUFFER_OP);
	aml_open(a, true);
	aml_byte(a, AML_WORD_PREFIX);
	aml_word(a, 0);
}

void aml_res_io(struct aml *a, uint16_t base, uint8_t len)
{
	aml_byte(a, 0x47);
	aml_byte(a, 1); /* decodes 16 bits */
	aml_word(a, base);
	aml_word(a, base);
	aml_byte(a, 1); /* alignment */
	aml_byte(a, len);
}

void aml_res_irq(struct aml *a, unsigned irq)
{
	aml_byte(a, 0x22);
	aml_word(a, (uint16_t)BIT(irq));
}

void aml_res_mem32(struct aml *a, uint32_t base, uint32_t len)
{
	aml_byte(a, 0x86);
	aml_word(a, 9);
	aml_byte(a, 1); /* read and write */
	aml_dword(a, base);
	aml_dword(a, len);
}

void aml_res_interrupts(struct aml *a, const uint32_t *irq, uint8_t n)
{
	aml_byte(a, 0x89);
	aml_word(a, (uint16_t)(2 + 4 * n));
	aml_byte(a, 0x09); /* consumer, level, active high, shared */
	aml_byte(a, n);
	for (unsigned i = 0; i < n; i++)
		aml_dword(a, irq[i]);
}

/* Address space descriptors: producer, both ends fixed, positive decode. */
#define RES_WINDOW	0x0c
#define RES_TYPE_MEMORY 0
#define RES_TYPE_IO	1
#define RES_TYPE_BUS	2

static void aml_res_word(struct aml *a, uint8_t type, uint8_t flags, uint16_t min, uint16_t max)
{
	aml_byte(a, 0x88);
	aml_word(a, 13);
	aml_byte(a, type);
	aml_byte(a, RES_WINDOW);
	aml_byte(a, flags);
	aml_word(a, 0); /* granularity */
	aml_word(a, min);
	aml_word(a, max);
	aml_word(a, 0); /* translation */
	aml_word(a, (uint16_t)(max - min + 1));
}

void aml_res_bus(struct aml *a, uint16_t min, uint16_t max)
{
	aml_res_word(a, RES_TYPE_BUS, 0, min, max);
}

void aml_res_io_window(struct aml *a, uint16_t min, uint16_t max)
{
	aml_res_word(a, RES_TYPE_IO, 3 /* the entire range */, min, max);
}

void aml_res_mem_window(struct aml *a, uint64_t min, uint64_t max, bool cacheable)
{
	bool wide = max > UINT32_MAX;

	aml_byte(a, wide ? 0x8a : 0x87);
	aml_word(a, wide ? 43 : 23);
	aml_byte(a, RES_TYPE_MEMORY);
	aml_byte(a, RES_WINDOW);
	aml_byte(a, cacheable ? 3 : 1); /* read and write */
	if (wide) {
		const uint64_t v[] = {0, min, max, 0, max - min + 1};

		for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
			aml_qword(a, v[i]);
	} else {
		const uint64_t v[] = {0, min, max, 0, max - min + 1};

		for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
			aml_dword(a, (uint32_t)v[i]);
	}
}
