// SPDX-License-Identifier: GPL-2.0-or-later
/* base: errors, option parsing, typed properties, sizes, nearest names. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/base64.h"
#include "base/err.h"
#include "base/log.h"
#include "base/type.h"
#include "base/util.h"

static void test_err(void **state)
{
	struct err e = {0};

	assert_int_equal(err_set(NULL, -EINVAL, "x"), -EINVAL);
	assert_int_equal(err_set_errno(&e, -ENOENT, "cannot open '%s'", "f"), -ENOENT);
	assert_string_equal(e.msg, "cannot open 'f': No such file or directory");
	assert_int_equal(err_set(&e, -EINVAL, "second"), -EINVAL); /* the first error wins */
	assert_int_equal(e.code, -ENOENT);
	assert_int_equal(err_prefix(&e, "drive '%s'", "d0"), -ENOENT);
	assert_string_equal(e.msg, "drive 'd0': cannot open 'f': No such file or directory");

	/* A text that is too long is cut, not overrun. */
	char big[2000];
	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	struct err f = {0};
	err_set_errno(&f, -EIO, "%s", big);
	/* One line, whatever a name has in it. */
	struct err g = {0};
	err_set(&g, -EINVAL, "no '%s'", "a\nb\033[2J\x7f\tc");
	assert_string_equal(g.msg, "no 'a?b?[2J??c'");
	err_prefix(&g, "%s", "x\r\n");
	assert_string_equal(g.msg, "x??: no 'a?b?[2J??c'");
	err_prefix(&f, "%s", big);
	assert_int_equal(strlen(f.msg), sizeof(f.msg) - 1);
}

static const struct {
	const char *text, *head_key, *want; /* want: head|k=v;k=v; or NULL for an error */
} opts_table[] = {
    {"virtio-blk-pci,drive=d0,id=x", "driver", "virtio-blk-pci|driver=virtio-blk-pci;drive=d0;id=x;"},
    {"pc,accel=kvm:soft", "type", "pc|type=pc;accel=kvm:soft;"},
    {"type=pc,accel=kvm", "type", "|type=pc;accel=kvm;"},
    {"file=,if=ide,media=cdrom,index=2", NULL, "|file=;if=ide;media=cdrom;index=2;"},
    {"file=a,,b.img,if=virtio", NULL, "|file=a,b.img;if=virtio;"},
    {"file=a b.img,if=virtio", NULL, "|file=a b.img;if=virtio;"},
    {"file=x=y,,", NULL, "|file=x=y,;"},
    {"a,,b", "name", "a,b|name=a,b;"},
    {"server,nowait", NULL, "|server=on;wait=off;"},
    {"pc,", "type", "pc|type=pc;"},
    {"", "type", "|"},
    {"file=a,,,,b", NULL, "|file=a,,b;"},
    {"=x", NULL, NULL},
    {"a=1,=2", NULL, NULL},
    {"{\"driver\":\"virtio-blk-pci\",\"drive\":\"d,0\",\"n\":3,\"on\":true,\"off\":false}", "driver",
     "virtio-blk-pci|driver=virtio-blk-pci;drive=d,0;n=3;on=on;off=off;"},
    {"{\"a\":{\"b\":1,\"c\":[\"x\",2]}}", NULL, "|a.b=1;a.c.0=x;a.c.1=2;"},
    {"{\"a\":null}", NULL, NULL},
    {"{\"a\":1,\"a\":2}", NULL, NULL},
    {"{\"a\":", NULL, NULL},
    {"{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":1}}}}}}}}}", NULL, NULL},
};

static void test_opts(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(opts_table); i++) {
		struct opts o;
		struct err e = {0};
		char got[1024] = "";
		int ret = opts_parse(opts_table[i].text, opts_table[i].head_key, &o, &e);
		if (!opts_table[i].want) {
			assert_true(ret < 0);
			assert_true(e.code < 0);
			assert_int_equal(o.n, 0);
			continue;
		}
		assert_int_equal(ret, 0);
		strcat(strcat(got, o.head ? o.head : ""), "|");
		for (size_t k = 0; k < o.n; k++)
			strcat(strcat(strcat(strcat(got, o.v[k].key), "="), o.v[k].value), ";");
		assert_string_equal(got, opts_table[i].want);
		opts_free(&o);
	}
}

struct thing {
	bool flag, notice;
	uint8_t u8;
	uint16_t u16;
	uint32_t u32;
	uint64_t u64, size;
	int64_t i64;
	char *text;
	int colour, ooa;
	uint8_t mac[6];
	int32_t addr;
	void *link;
};

static const char *const colours[] = {"red", "green", NULL};
static const struct prop base_props[] = {
    {.name = "addr", .kind = PROP_DEVFN, .offset = offsetof(struct thing, addr), .def = "-1"},
    {.name = NULL},
};
static const struct prop thing_props[] = {
    {.name = "flag", .kind = PROP_BOOL, .offset = offsetof(struct thing, flag), .def = "on"},
    {.name = "notice", .kind = PROP_BOOL, .offset = offsetof(struct thing, notice)},
    {.name = "u8", .kind = PROP_U8, .offset = offsetof(struct thing, u8)},
    {.name = "u16", .kind = PROP_U16, .offset = offsetof(struct thing, u16), .min = 2, .max = 1024, .def = "256"},
    {.name = "u32", .kind = PROP_U32, .offset = offsetof(struct thing, u32)},
    {.name = "u64", .kind = PROP_U64, .offset = offsetof(struct thing, u64)},
    {.name = "i64", .kind = PROP_I64, .offset = offsetof(struct thing, i64)},
    {.name = "size", .kind = PROP_SIZE, .offset = offsetof(struct thing, size)},
    {.name = "text", .kind = PROP_STR, .offset = offsetof(struct thing, text), .def = "hello"},
    {.name = "colour", .kind = PROP_ENUM, .offset = offsetof(struct thing, colour), .values = colours},
    {.name = "color", .kind = PROP_ENUM, .alias_of = "colour", .values = colours},
    {.name = "ooa", .kind = PROP_ONOFFAUTO, .offset = offsetof(struct thing, ooa)},
    {.name = "mac", .kind = PROP_MAC, .offset = offsetof(struct thing, mac)},
    {.name = "drive",
     .kind = PROP_LINK,
     .offset = offsetof(struct thing, link),
     .link_kind = "drive",
     .flags = PROP_REQUIRED},
    {.name = "ro", .kind = PROP_U32, .offset = offsetof(struct thing, u32), .flags = PROP_READONLY},
    {.name = NULL},
};
static const struct type base_type = {.name = "base", .abstract = true, .props = base_props};
static const struct type thing_type = {
    .name = "thing", .parent = "base", .size = sizeof(struct thing), .props = thing_props};

static const struct {
	const char *prop, *value, *got; /* got NULL: refused */
} set_table[] = {
    {"flag", "off", "off"},
    {"flag", "YES", "on"},
    {"flag", "2", NULL},
    {"u8", "255", "255"},
    {"u8", "0x10", "16"},
    {"u8", "010", "8"},
    {"u8", "256", NULL},
    {"u8", "-1", NULL},
    {"u8", "1x", NULL},
    {"u8", "", NULL},
    {"u16", "1024", "1024"},
    {"u16", "1025", NULL},
    {"u16", "1", NULL},
    {"u64", "18446744073709551615", "18446744073709551615"},
    {"u64", "18446744073709551616", NULL},
    {"i64", "-5", "-5"},
    {"size", "1.5G", "1610612736"},
    {"size", "64k", "65536"},
    {"size", "17E", NULL},
    {"text", "a,b", "a,b"},
    {"colour", "green", "green"},
    {"color", "red", "red"},
    {"colour", "blue", NULL},
    {"ooa", "auto", "auto"},
    {"mac", "52:54:00:12:34:56", "52:54:00:12:34:56"},
    {"mac", "52:54:00:12:34", NULL},
    {"mac", "52:54:00:12:34:5g", NULL},
    {"mac", "52:54:00:12:34:56:78", NULL},
    {"addr", "1f.7", "1f.7"},
    {"addr", "0x5", "05.0"},
    {"addr", "20", NULL},
    {"addr", "3.8", NULL},
    {"drive", "d0", "d0"},
    {"drive", "d1", NULL},
    {"ro", "1", NULL},
    {"nosuch", "1", NULL},
};

static int the_drive;
static void *find_drive(const char *id)
{
	return strcmp(id, "d0") ? NULL : &the_drive;
}

static void test_type(void **state)
{
	struct thing t = {0};
	struct err e = {0};

	assert_int_equal(type_init(&thing_type, &t, &e), 0);
	assert_true(t.flag && t.u16 == 256 && t.addr == -1);
	assert_string_equal(t.text, "hello");
	for (size_t i = 0; i < ARRAY_SIZE(set_table); i++) {
		e = (struct err){0};
		int ret = type_set(&thing_type, &t, set_table[i].prop, set_table[i].value, &e);
		if (!set_table[i].got) {
			assert_true(ret < 0);
			assert_non_null(strstr(e.msg, set_table[i].prop));
			continue;
		}
		assert_int_equal(ret, 0);
		char *got = type_get(&thing_type, &t, set_table[i].prop);
		assert_string_equal(got, set_table[i].got);
		free(got);
	}
	assert_null(type_get(&thing_type, &t, "nosuch"));
	type_props_free(&thing_type, &t);
	assert_null(t.text);
}

static void test_type_opts(void **state)
{
	struct thing t = {0};
	struct err e = {0};
	struct opts o;
	static const char *const except[] = {"driver", "id", NULL};

	assert_int_equal(opts_parse("thing,id=x,flag=off,colr=red", "driver", &o, &e), 0);
	assert_int_equal(type_set_opts(&thing_type, &t, &o, except, &e), -EINVAL); /* no drive= */
	assert_string_equal(e.msg, "thing: property 'drive' is required");
	assert_int_equal(opts_add(&o, "drive", "d0"), 0);
	e = (struct err){0};
	assert_int_equal(type_set_opts(&thing_type, &t, &o, except, &e), 0);
	assert_string_equal(opts_get(&o, "driver"), "thing");
	assert_string_equal(opts_get(&o, "id"), "x");
	assert_null(opts_get(&o, "bus"));
	assert_true(opts_check_used(&o, &thing_type, &e) < 0);
	assert_string_equal(e.msg, "thing has no property 'colr'; did you mean 'color'?");
	opts_free(&o);

	/* The bare word "noX": X=off, or a property of that name, or an error that repeats what was written. */
	assert_int_equal(opts_parse("drive=d0,noflag,notice", NULL, &o, &e), 0);
	e = (struct err){0};
	assert_int_equal(type_set_opts(&thing_type, &t, &o, NULL, &e), 0);
	assert_true(!t.flag && t.notice);
	opts_free(&o);
	assert_int_equal(opts_parse("drive=d0,nonsense", NULL, &o, &e), 0);
	assert_int_equal(type_set_opts(&thing_type, &t, &o, NULL, &e), 0);
	assert_true(opts_check_used(&o, &thing_type, &e) < 0);
	assert_string_equal(e.msg, "thing has no property 'nonsense'");
	opts_free(&o);
	type_props_free(&thing_type, &t);
}

static void test_size(void **state)
{
	static const struct {
		const char *s;
		uint64_t unit, want;
		int ret;
	} table[] = {
	    {"512", 1, 512, 0},	     {"512", MIB, 512 * MIB, 0},
	    {"4k", 1, 4096, 0},	     {"1.5G", 1, 3 * GIB / 2, 0},
	    {"0x1000", 1, 4096, 0},  {"4KiB", 1, 4096, 0},
	    {"10b", MIB, 10, 0},     {"0", 1, 0, 0},
	    {"", 1, 0, -EINVAL},     {"-1", 1, 0, -EINVAL},
	    {"1q", 1, 0, -EINVAL},   {"1kk", 1, 0, -EINVAL},
	    {"16E", 1, 0, -ERANGE},  {" 1", 1, 0, -EINVAL},
	    {"1.G5", 1, 0, -EINVAL}, {"99999999999999999999", 1, 0, -ERANGE},
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		uint64_t v = 0;
		assert_int_equal(text_parse_size(table[i].s, table[i].unit, &v), table[i].ret);
		if (!table[i].ret)
			assert_int_equal(v, table[i].want);
	}
}

static void test_nearest(void **state)
{
	static const char *const names[] = {"serial", "smp", "drive", "device", "enable-kvm"};

	assert_string_equal(text_nearest("sreial", names, 5), "serial");
	assert_string_equal(text_nearest("enable_kvm", names, 5), "enable-kvm");
	assert_string_equal(text_nearest("devices", names, 5), "device");
	assert_null(text_nearest("xyzzy", names, 5));
	assert_null(text_nearest("", names, 5));
}

static void test_log(void **state)
{
	struct err e = {0};

	assert_int_equal(log_set_classes("int,io", &e), 0);
	assert_true(log_on(LOG_INT) && log_on(LOG_IO) && !log_on(LOG_MMU));
	assert_int_equal(log_set_classes("guest_error", &e), -EINVAL);
	assert_non_null(strstr(e.msg, "guest_errors"));
	log_mask = 0;
}

static void test_base64(void **state)
{
	/* RFC 4648, section 10 */
	static const char *const table[][2] = {{"", ""},
					       {"f", "Zg=="},
					       {"fo", "Zm8="},
					       {"foo", "Zm9v"},
					       {"foob", "Zm9vYg=="},
					       {"fooba", "Zm9vYmE="},
					       {"foobar", "Zm9vYmFy"}};
	static const char *const bad[] = {"Z", "Zg=", "Zg", "=Zg=", "Zg==Zg==", "Z===", "====", "Zm9v\n", "Zm 9"};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char text[16];
		uint8_t bytes[16];

		base64_encode((const uint8_t *)table[i][0], strlen(table[i][0]), text);
		assert_string_equal(text, table[i][1]);
		assert_int_equal(strlen(text), base64_length(strlen(table[i][0])));
		assert_int_equal(base64_decode(text, bytes), strlen(table[i][0]));
		assert_memory_equal(bytes, table[i][0], strlen(table[i][0]));
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		uint8_t bytes[16];

		assert_int_equal(base64_decode(bad[i], bytes), -EINVAL);
	}
}

int main(void)
{
	static const struct type *const types[] = {&base_type, &thing_type};
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_err),	      cmocka_unit_test(test_opts),   cmocka_unit_test(test_type),
	    cmocka_unit_test(test_type_opts), cmocka_unit_test(test_size),   cmocka_unit_test(test_nearest),
	    cmocka_unit_test(test_log),	      cmocka_unit_test(test_base64),
	};

	type_register(types, ARRAY_SIZE(types));
	type_register_links("drive", find_drive);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
