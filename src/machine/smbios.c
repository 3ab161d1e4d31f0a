/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SMBIOS structures: DMTF DSP0134 version 2.8, chapter 7; entry point 5.2.1. A
 * structure is its formatted part followed by its strings, each ended by NUL, and
 * one more NUL.
 */
#include "machine/smbios.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/type.h"
#include "base/util.h"
#include "machine/aml.h"

#define SMBIOS_ENTRY_SIZE  32 /* 31, rounded up */
#define SMBIOS_DIMM_SIZE   (16 * GIB)
#define SMBIOS_MAX_STRINGS 1024
#define SMBIOS_MAX_TEXT	   255

/* Handles: structures refer to each other by them. */
#define HANDLE_BIOS    0x0000
#define HANDLE_SYSTEM  0x0100
#define HANDLE_BOARD   0x0200
#define HANDLE_CHASSIS 0x0300
#define HANDLE_CPU     0x0400
#define HANDLE_OEM     0x0e00
#define HANDLE_ARRAY   0x1000
#define HANDLE_DIMM    0x1100
#define HANDLE_MAPPED  0x1300
#define HANDLE_BOOT    0x2000
#define HANDLE_END     0x7f00

/* Every text a user can set: -smbios type=T,KEY=TEXT. */
enum smbios_text {
	BIOS_VENDOR,
	BIOS_VERSION,
	BIOS_DATE,
	BIOS_RELEASE,
	SYS_MANUFACTURER,
	SYS_PRODUCT,
	SYS_VERSION,
	SYS_SERIAL,
	SYS_UUID,
	SYS_SKU,
	SYS_FAMILY,
	BOARD_MANUFACTURER,
	BOARD_PRODUCT,
	BOARD_VERSION,
	BOARD_SERIAL,
	BOARD_ASSET,
	BOARD_LOCATION,
	CHASSIS_MANUFACTURER,
	CHASSIS_VERSION,
	CHASSIS_SERIAL,
	CHASSIS_ASSET,
	CHASSIS_SKU,
	CPU_SOCKET,
	CPU_MANUFACTURER,
	CPU_VERSION,
	CPU_SERIAL,
	CPU_ASSET,
	CPU_PART,
	DIMM_LOCATOR,
	DIMM_BANK,
	DIMM_MANUFACTURER,
	DIMM_SERIAL,
	DIMM_ASSET,
	DIMM_PART,
	DIMM_SPEED,
	TEXT_COUNT
};

static const struct {
	uint8_t type;
	const char *key, *def;
} smbios_texts[TEXT_COUNT] = {
    [BIOS_VENDOR] = {0, "vendor", "Kelvin"},
    [BIOS_VERSION] = {0, "version", KELVIN_VERSION},
    [BIOS_DATE] = {0, "date", "01/01/2026"},
    [BIOS_RELEASE] = {0, "release", NULL},
    [SYS_MANUFACTURER] = {1, "manufacturer", "Kelvin"},
    [SYS_PRODUCT] = {1, "product", "Standard PC (i440FX + PIIX, 1996)"},
    [SYS_VERSION] = {1, "version", "pc"},
    [SYS_SERIAL] = {1, "serial", NULL},
    [SYS_UUID] = {1, "uuid", NULL},
    [SYS_SKU] = {1, "sku", NULL},
    [SYS_FAMILY] = {1, "family", NULL},
    [BOARD_MANUFACTURER] = {2, "manufacturer", NULL},
    [BOARD_PRODUCT] = {2, "product", NULL},
    [BOARD_VERSION] = {2, "version", NULL},
    [BOARD_SERIAL] = {2, "serial", NULL},
    [BOARD_ASSET] = {2, "asset", NULL},
    [BOARD_LOCATION] = {2, "location", NULL},
    [CHASSIS_MANUFACTURER] = {3, "manufacturer", "Kelvin"},
    [CHASSIS_VERSION] = {3, "version", "pc"},
    [CHASSIS_SERIAL] = {3, "serial", NULL},
    [CHASSIS_ASSET] = {3, "asset", NULL},
    [CHASSIS_SKU] = {3, "sku", NULL},
    [CPU_SOCKET] = {4, "sock_pfx", "CPU"},
    [CPU_MANUFACTURER] = {4, "manufacturer", "Kelvin"},
    [CPU_VERSION] = {4, "version", NULL},
    [CPU_SERIAL] = {4, "serial", NULL},
    [CPU_ASSET] = {4, "asset", NULL},
    [CPU_PART] = {4, "part", NULL},
    [DIMM_LOCATOR] = {17, "loc_pfx", "DIMM"},
    [DIMM_BANK] = {17, "bank", NULL},
    [DIMM_MANUFACTURER] = {17, "manufacturer", "Kelvin"},
    [DIMM_SERIAL] = {17, "serial", NULL},
    [DIMM_ASSET] = {17, "asset", NULL},
    [DIMM_PART] = {17, "part", NULL},
    [DIMM_SPEED] = {17, "speed", NULL},
};

struct smbios_image {
	const struct smbios_config *c;
	struct aml out;		/* as a growing buffer */
	char *text[TEXT_COUNT]; /* heap, set by options */
	char *oem[SMBIOS_MAX_OEM_STRINGS];
	unsigned noem;
	uint8_t uuid[16];
	bool have_uuid;
	unsigned count, largest;
	char strings[SMBIOS_MAX_STRINGS]; /* of the structure in work */
	size_t strings_len;
	unsigned nstrings;
};

/* ---- options ------------------------------------------------------------ */

static int smbios_parse_uuid(struct smbios_image *img, const char *s, struct err *err)
{
	unsigned n = 0;

	for (const char *p = s; *p && n < 32; p++) {
		int v = isdigit((unsigned char)*p)    ? *p - '0'
			: isxdigit((unsigned char)*p) ? tolower((unsigned char)*p) - 'a' + 10
						      : -1;

		if (*p == '-')
			continue;
		if (v < 0)
			break;
		img->uuid[n / 2] = (uint8_t)(img->uuid[n / 2] << 4 | v);
		n++;
	}
	if (n != 32 || strlen(s) != 36)
		return err_set(err, -EINVAL, "-smbios: uuid=\"%s\" is not a UUID", s);
	img->have_uuid = true;
	return 0;
}

static int smbios_set_text(struct smbios_image *img, unsigned type, const struct opt *o, struct err *err)
{
	const char *names[TEXT_COUNT], *near;
	size_t n = 0;

	if (strlen(o->value) > SMBIOS_MAX_TEXT)
		return err_set(err, -E2BIG, "-smbios type=%u: %s is longer than %d characters", type, o->key,
			       SMBIOS_MAX_TEXT);
	if (type == 11 && !strcmp(o->key, "value")) {
		if (img->noem == SMBIOS_MAX_OEM_STRINGS)
			return err_set(err, -E2BIG, "-smbios type=11: more than %d values", SMBIOS_MAX_OEM_STRINGS);
		img->oem[img->noem] = strdup(o->value);
		return img->oem[img->noem++] ? 0 : err_set(err, -ENOMEM, "out of memory for -smbios");
	}
	for (unsigned i = 0; i < TEXT_COUNT; i++) {
		if (smbios_texts[i].type != type)
			continue;
		names[n++] = smbios_texts[i].key;
		if (strcmp(smbios_texts[i].key, o->key))
			continue;
		free(img->text[i]);
		img->text[i] = strdup(o->value);
		if (!img->text[i])
			return err_set(err, -ENOMEM, "out of memory for -smbios");
		return i == SYS_UUID ? smbios_parse_uuid(img, o->value, err) : 0;
	}
	near = text_nearest(o->key, names, n);
	return err_set(err, -EINVAL, "-smbios type=%u: there is no field \"%s\"%s%s%s", type, o->key,
		       near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static int smbios_parse_option(struct smbios_image *img, const char *text, struct err *err)
{
	static const unsigned known[] = {0, 1, 2, 3, 4, 11, 17};
	struct opts o;
	const char *type;
	char *end = NULL;
	unsigned long t;
	int r = opts_parse(text, NULL, &o, err);

	if (r)
		return r;
	type = opts_get(&o, "type");
	t = type ? strtoul(type, &end, 10) : 0;
	if (opts_get(&o, "file"))
		r = err_set(err, -ENOTSUP,
			    "-smbios file=: binary structures are not supported; use type= and its fields");
	else if (!type || !*type || *end)
		r = err_set(err, -EINVAL, "-smbios \"%s\": use type=NUMBER and fields of that type", text);
	for (size_t i = 0; !r; i++) {
		if (i == ARRAY_SIZE(known))
			r = err_set(err, -ENOTSUP, "-smbios type=%s: types 0, 1, 2, 3, 4, 11 and 17 can be set", type);
		else if (known[i] == t)
			break;
	}
	for (size_t i = 0; i < o.n && !r; i++) {
		if (strcmp(o.v[i].key, "type"))
			r = smbios_set_text(img, (unsigned)t, &o.v[i], err);
	}
	opts_free(&o);
	return r;
}

/* ---- structures ---------------------------------------------------------- */

/* Number of a string in the structure in work; 0 when there is no text. */
static uint8_t smbios_string(struct smbios_image *img, const char *s)
{
	size_t len = s ? strlen(s) + 1 : 0;

	if (len <= 1 || img->strings_len + len > sizeof(img->strings))
		return 0;
	memcpy(img->strings + img->strings_len, s, len);
	img->strings_len += len;
	return (uint8_t)++img->nstrings;
}

static uint8_t smbios_text(struct smbios_image *img, enum smbios_text t)
{
	return smbios_string(img, img->text[t] ? img->text[t] : smbios_texts[t].def);
}

/* Prefix and number: "CPU 0". */
static uint8_t smbios_text_number(struct smbios_image *img, enum smbios_text t, unsigned n)
{
	char s[SMBIOS_MAX_TEXT + 16];

	snprintf(s, sizeof(s), "%s %u", img->text[t] ? img->text[t] : smbios_texts[t].def, n);
	return smbios_string(img, s);
}

/* Append a structure: `s` is its formatted part of `len` bytes, from offset 0 on. */
static void smbios_emit(struct smbios_image *img, uint8_t *s, uint8_t type, uint8_t len, uint16_t handle)
{
	size_t before = img->out.len;

	s[0] = type;
	s[1] = len;
	st16le(s + 2, handle);
	aml_raw(&img->out, s, len);
	aml_raw(&img->out, img->strings, img->strings_len);
	aml_byte(&img->out, 0);
	if (!img->nstrings)
		aml_byte(&img->out, 0);
	img->strings_len = 0;
	img->nstrings = 0;
	img->count++;
	img->largest = MAX(img->largest, (unsigned)(img->out.len - before));
}

static int smbios_bios(struct smbios_image *img, struct err *err)
{
	uint8_t s[0x18] = {0};
	unsigned major = 0, minor = 0;
	char rest;

	if (img->text[BIOS_RELEASE] &&
	    (sscanf(img->text[BIOS_RELEASE], "%3u.%3u%c", &major, &minor, &rest) != 2 || major > 255 || minor > 255))
		return err_set(err, -EINVAL, "-smbios type=0: release=\"%s\" is not of the form MAJOR.MINOR",
			       img->text[BIOS_RELEASE]);
	s[0x04] = smbios_text(img, BIOS_VENDOR);
	s[0x05] = smbios_text(img, BIOS_VERSION);
	st16le(s + 0x06, 0xe800);
	s[0x08] = smbios_text(img, BIOS_DATE);
	s[0x0a] = 0x08; /* characteristics are not given */
	s[0x13] = 0x10; /* this is a virtual machine */
	s[0x14] = (uint8_t)major;
	s[0x15] = (uint8_t)minor;
	s[0x16] = s[0x17] = 0xff;
	smbios_emit(img, s, 0, sizeof(s), HANDLE_BIOS);
	return 0;
}

static void smbios_system(struct smbios_image *img)
{
	uint8_t s[0x1b] = {0};

	s[0x04] = smbios_text(img, SYS_MANUFACTURER);
	s[0x05] = smbios_text(img, SYS_PRODUCT);
	s[0x06] = smbios_text(img, SYS_VERSION);
	s[0x07] = smbios_text(img, SYS_SERIAL);
	if (img->have_uuid) { /* its first three fields are little-endian */
		memcpy(s + 0x08, img->uuid, 16);
		st32le(s + 0x08, ld32be(img->uuid));
		st16le(s + 0x0c, ld16be(img->uuid + 4));
		st16le(s + 0x0e, ld16be(img->uuid + 6));
	}
	s[0x18] = 6; /* woken by the power switch */
	s[0x19] = smbios_text(img, SYS_SKU);
	s[0x1a] = smbios_text(img, SYS_FAMILY);
	smbios_emit(img, s, 1, sizeof(s), HANDLE_SYSTEM);
}

/* Only when something of it was set. */
static void smbios_board(struct smbios_image *img)
{
	uint8_t s[0x0f] = {0};
	bool any = false;

	for (unsigned i = BOARD_MANUFACTURER; i <= BOARD_LOCATION; i++)
		any |= img->text[i] != NULL;
	if (!any)
		return;
	s[0x04] = smbios_text(img, BOARD_MANUFACTURER);
	s[0x05] = smbios_text(img, BOARD_PRODUCT);
	s[0x06] = smbios_text(img, BOARD_VERSION);
	s[0x07] = smbios_text(img, BOARD_SERIAL);
	s[0x08] = smbios_text(img, BOARD_ASSET);
	s[0x09] = 1; /* a hosting board */
	s[0x0a] = smbios_text(img, BOARD_LOCATION);
	st16le(s + 0x0b, HANDLE_CHASSIS);
	s[0x0d] = 0x0a; /* motherboard */
	smbios_emit(img, s, 2, sizeof(s), HANDLE_BOARD);
}

static void smbios_chassis(struct smbios_image *img)
{
	uint8_t s[0x16] = {0};

	s[0x04] = smbios_text(img, CHASSIS_MANUFACTURER);
	s[0x05] = 1; /* other */
	s[0x06] = smbios_text(img, CHASSIS_VERSION);
	s[0x07] = smbios_text(img, CHASSIS_SERIAL);
	s[0x08] = smbios_text(img, CHASSIS_ASSET);
	s[0x09] = s[0x0a] = s[0x0b] = 3; /* safe */
	s[0x0c] = 2;			 /* security unknown */
	s[0x15] = smbios_text(img, CHASSIS_SKU);
	smbios_emit(img, s, 3, sizeof(s), HANDLE_CHASSIS);
}

static void smbios_cpus(struct smbios_image *img)
{
	const struct smbios_config *c = img->c;
	unsigned cores = MIN(MAX(c->cores, 1u), 255u), threads = MIN(MAX(c->threads, 1u) * cores, 255u);

	for (unsigned i = 0; i < MAX(c->sockets, 1u); i++) {
		uint8_t s[0x2a] = {0};

		s[0x04] = smbios_text_number(img, CPU_SOCKET, i);
		s[0x05] = 3; /* central processor */
		s[0x06] = 1; /* other family */
		s[0x07] = smbios_text(img, CPU_MANUFACTURER);
		s[0x10] = smbios_string(img, img->text[CPU_VERSION] ? img->text[CPU_VERSION] : c->cpu_version);
		s[0x18] = 0x41;		   /* populated, enabled */
		s[0x19] = 1;		   /* other upgrade */
		memset(s + 0x1a, 0xff, 6); /* no cache handles */
		s[0x20] = smbios_text(img, CPU_SERIAL);
		s[0x21] = smbios_text(img, CPU_ASSET);
		s[0x22] = smbios_text(img, CPU_PART);
		s[0x23] = s[0x24] = (uint8_t)cores;
		s[0x25] = (uint8_t)threads;
		st16le(s + 0x26, 2); /* characteristics unknown */
		st16le(s + 0x28, 1);
		smbios_emit(img, s, 4, sizeof(s), (uint16_t)(HANDLE_CPU + i));
	}
}

static void smbios_dimm(struct smbios_image *img, unsigned i, uint64_t bytes)
{
	uint8_t s[0x28] = {0};
	uint64_t mib = bytes / MIB;
	unsigned long speed = img->text[DIMM_SPEED] ? strtoul(img->text[DIMM_SPEED], NULL, 10) : 0;

	st16le(s + 0x04, HANDLE_ARRAY);
	st16le(s + 0x06, 0xfffe); /* error information not given */
	st16le(s + 0x08, 0xffff); /* widths unknown */
	st16le(s + 0x0a, 0xffff);
	st16le(s + 0x0c, (uint16_t)MIN(mib, 0x7fffull));
	s[0x0e] = 9; /* DIMM */
	s[0x10] = smbios_text_number(img, DIMM_LOCATOR, i);
	s[0x11] = smbios_text(img, DIMM_BANK);
	s[0x12] = 7; /* RAM */
	st16le(s + 0x13, 2);
	st16le(s + 0x15, (uint16_t)MIN(speed, 0xfffeul));
	s[0x17] = smbios_text(img, DIMM_MANUFACTURER);
	s[0x18] = smbios_text(img, DIMM_SERIAL);
	s[0x19] = smbios_text(img, DIMM_ASSET);
	s[0x1a] = smbios_text(img, DIMM_PART);
	st32le(s + 0x1c, mib >= 0x7fff ? (uint32_t)mib : 0);
	st16le(s + 0x20, (uint16_t)MIN(speed, 0xfffeul));
	smbios_emit(img, s, 17, sizeof(s), (uint16_t)(HANDLE_DIMM + i));
}

/* A range of guest memory: [start, end). */
static void smbios_mapped(struct smbios_image *img, unsigned i, uint64_t start, uint64_t end)
{
	uint8_t s[0x1f] = {0};
	bool wide = (end - 1) / KIB >= UINT32_MAX;

	st32le(s + 0x04, wide ? UINT32_MAX : (uint32_t)(start / KIB));
	st32le(s + 0x08, wide ? UINT32_MAX : (uint32_t)((end - 1) / KIB));
	st16le(s + 0x0c, HANDLE_ARRAY);
	s[0x0e] = 1;
	st64le(s + 0x0f, wide ? start : 0);
	st64le(s + 0x17, wide ? end - 1 : 0);
	smbios_emit(img, s, 19, sizeof(s), (uint16_t)(HANDLE_MAPPED + i));
}

static void smbios_memory(struct smbios_image *img)
{
	const struct smbios_config *c = img->c;
	uint8_t s[0x17] = {0};
	/* Above 4 TiB the modules get larger rather than more. */
	uint64_t dimm = MAX(SMBIOS_DIMM_SIZE, ALIGN_UP(c->ram_size / 255, GIB));
	unsigned n = (unsigned)((c->ram_size + dimm - 1) / dimm);

	s[0x04] = 1; /* other location */
	s[0x05] = 3; /* system memory */
	s[0x06] = 6; /* multi-bit ECC */
	st32le(s + 0x07, c->ram_size / KIB < 0x80000000u ? (uint32_t)(c->ram_size / KIB) : 0x80000000u);
	st16le(s + 0x0b, 0xfffe);
	st16le(s + 0x0d, (uint16_t)n);
	st64le(s + 0x0f, c->ram_size / KIB < 0x80000000u ? 0 : c->ram_size);
	smbios_emit(img, s, 16, sizeof(s), HANDLE_ARRAY);
	for (unsigned i = 0; i < n; i++)
		smbios_dimm(img, i, MIN(dimm, c->ram_size - i * dimm));
	smbios_mapped(img, 0, 0, c->low_end);
	if (c->ram_size > c->low_end)
		smbios_mapped(img, 1, 4 * GIB, 4 * GIB + c->ram_size - c->low_end);
}

static void smbios_oem(struct smbios_image *img)
{
	uint8_t s[5] = {0};

	if (!img->noem)
		return;
	for (unsigned i = 0; i < img->noem; i++)
		s[4] = (uint8_t)(s[4] + !!smbios_string(img, img->oem[i]));
	smbios_emit(img, s, 11, sizeof(s), HANDLE_OEM);
}

static uint8_t smbios_checksum(const uint8_t *p, size_t len)
{
	uint8_t sum = 0;

	while (len--)
		sum = (uint8_t)(sum + *p++);
	return (uint8_t)-sum;
}

static void smbios_entry(struct smbios_image *img, uint64_t base)
{
	uint8_t *e = img->out.buf;

	memcpy(e, "_SM_", 4);
	e[0x05] = 0x1f;
	e[0x06] = 2;
	e[0x07] = 8;
	st16le(e + 0x08, (uint16_t)img->largest);
	memcpy(e + 0x10, "_DMI_", 5);
	st16le(e + 0x16, (uint16_t)(img->out.len - SMBIOS_ENTRY_SIZE));
	st32le(e + 0x18, (uint32_t)base + SMBIOS_ENTRY_SIZE);
	st16le(e + 0x1c, (uint16_t)img->count);
	e[0x1e] = 0x28;
	e[0x15] = smbios_checksum(e + 0x10, 0x0f);
	e[0x04] = smbios_checksum(e, 0x1f);
}

static int smbios_structures(struct smbios_image *img, struct err *err)
{
	static const uint8_t hole[SMBIOS_ENTRY_SIZE];
	uint8_t boot[0x0b] = {0}, end[4];
	int r;

	aml_raw(&img->out, hole, sizeof(hole));
	r = smbios_bios(img, err);
	if (r)
		return r;
	smbios_system(img);
	smbios_board(img);
	smbios_chassis(img);
	smbios_cpus(img);
	smbios_oem(img);
	smbios_memory(img);
	smbios_emit(img, boot, 32, sizeof(boot), HANDLE_BOOT);
	smbios_emit(img, end, 127, sizeof(end), HANDLE_END);
	return 0;
}

int smbios_build(const struct smbios_config *c, uint64_t base, size_t max_len, uint8_t **image, size_t *len,
		 struct err *err)
{
	struct smbios_image *img = calloc(1, sizeof(*img));
	int r = 0;

	if (!img)
		return err_set(err, -ENOMEM, "out of memory for SMBIOS");
	img->c = c;
	if (c->uuid) {
		memcpy(img->uuid, c->uuid, sizeof(img->uuid));
		img->have_uuid = true;
	}
	for (unsigned i = 0; i < c->noption && !r; i++)
		r = smbios_parse_option(img, c->option[i], err);
	if (!r)
		r = smbios_structures(img, err);
	if (!r && (img->out.failed || img->out.len > max_len))
		r = err_set(err, -E2BIG,
			    "the SMBIOS tables do not fit in %zu bytes: use fewer or shorter -smbios texts", max_len);
	if (!r) {
		smbios_entry(img, base);
		*image = img->out.buf;
		*len = img->out.len;
	} else {
		free(img->out.buf);
	}
	for (unsigned i = 0; i < TEXT_COUNT; i++)
		free(img->text[i]);
	for (unsigned i = 0; i < img->noem; i++)
		free(img->oem[i]);
	free(img);
	return r;
}
