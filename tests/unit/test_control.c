// SPDX-License-Identifier: GPL-2.0-or-later
/* control: the pieces under the monitors: cutting JSON out of a stream, UTF-8 repair, line editing, objects. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/object.h"
#include "base/util.h"
#include "control/json.h"
#include "control/readline.h"
#include "control/textbuf.h"

static const struct {
	const char *in, *out; /* each value in brackets, '!' for a bad one */
} cut_table[] = {
    {"{}", "<{}>"},
    {" {\"a\":1}\r\n{\"b\":[1,2]} ", "<{\"a\":1}><{\"b\":[1,2]}>"},
    {"{\"a\":\"}\\\"{\"}", "<{\"a\":\"}\\\"{\"}>"},
    {"[]{}", "<[]><{}>"},
    {"hello\n{}", "!<{}>"},
    {"}}}\n{}", "!<{}>"},
    {"\"str\"\n{}", "!<{}>"},
    {"{\"a\":\"broken\n{\"b\":1}", "!<{\"b\":1}>"},
    {"{\"a\":", ""},
    {"\x80\xff\n{}", "!<{}>"},
    {"{1234567890123456789012345678901234567890}\n{}", "!<{}>"}, /* the limit below is 32 */
};

static void test_cut(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(cut_table); i++) {
		struct json_cutter c = {.limit = 32};
		struct textbuf out = {0};
		textbuf_add(&out, "", 0);
		for (const char *s = cut_table[i].in; *s; s++) {
			enum json_cut r = json_cutter_byte(&c, *s);
			if (r == JSON_CUT_VALUE)
				textbuf_printf(&out, "<%.*s>", (int)c.len, c.buf);
			else if (r == JSON_CUT_BAD)
				textbuf_printf(&out, "!");
		}
		assert_string_equal(out.text, cut_table[i].out);
		textbuf_free(&out);
		json_cutter_free(&c);
	}
	/* Depth is bounded. */
	struct json_cutter c = {.limit = 100000};
	unsigned bad = 0;
	for (int i = 0; i < 1000; i++)
		bad += json_cutter_byte(&c, '[') == JSON_CUT_BAD;
	assert_int_equal(bad, 1);
	json_cutter_free(&c);
}

static void test_utf8(void **state)
{
	static const struct {
		const char *in, *out;
	} table[] = {
	    {"plain", "plain"},
	    {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
	    {"a\xff"
	     "b",
	     "a\xef\xbf\xbd"
	     "b"},
	    {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},		      /* overlong */
	    {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* surrogate */
	    {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},		      /* cut short */
	    {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
	    {NULL, ""},
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		json_t *j = json_text(table[i].in);
		assert_non_null(j);
		assert_string_equal(json_string_value(j), table[i].out);
		json_decref(j);
	}
	/* Quotes, backslashes and control characters are escaped on the wire. */
	json_t *j = json_text("a\"b\\c\nd\x01");
	char *wire = json_dumps(j, JSON_ENCODE_ANY);
	assert_string_equal(wire, "\"a\\\"b\\\\c\\nd\\u0001\"");
	free(wire);
	json_decref(j);
}

static char lines[4096];
static void rl_write(void *o, const char *t, size_t n)
{
	textbuf_add(o, t, n);
}
static void rl_line(void *o, const char *l)
{
	strcat(strcat(lines, l), "|");
}
static const char *rl_complete(void *o, const char *l)
{
	return strcmp(l, "in") ? NULL : "fo";
}

static void test_readline(void **state)
{
	static const struct {
		const char *keys, *want;
	} table[] = {
	    {"stop\r", "stop|"},
	    {"stop\n", "stop|"},
	    {"a\r\nb\r\n", "a|b|"},
	    {"axb\x7f\x7f"
	     "b\r",
	     "ab|"},
	    {"abc\x15"
	     "d\r",
	     "d|"},
	    {"one two\x17"
	     "x\r",
	     "one x|"},
	    {"ac\033[Db\r", "abc|"},
	    {"bc\001a\r", "abc|"},
	    {"ab\033[H\033[3~\r", "b|"},
	    {"first\rsecond\r\033[A\033[A\r", "first|second|first|"},
	    {"first\r\033[A\033[B\r", "first||"},
	    {"in\t\r", "info|"},
	    {"junk\003ok\r", "ok|"},
	    {"x\033[99;1Zy\r", "xy|"},
	    {"\033\033[A\x7f\x7f\x04\x0b\r", "|"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct textbuf out = {0};
		struct readline r = {
		    .prompt = "> ", .write = rl_write, .line = rl_line, .complete = rl_complete, .opaque = &out};
		lines[0] = 0;
		for (const char *s = table[i].keys; *s; s++)
			readline_byte(&r, *s);
		if (strcmp(lines, table[i].want))
			fail_msg("case %zu: '%s'", i, lines);
		readline_free(&r);
		textbuf_free(&out);
	}
	/* A line that is too long is cut, and history is bounded. */
	struct textbuf out = {0};
	struct readline r = {.prompt = "> ", .write = rl_write, .line = rl_line, .opaque = &out};
	lines[0] = 0;
	for (int i = 0; i < 3000; i++)
		readline_byte(&r, 'a');
	readline_byte(&r, '\r');
	assert_int_equal(strlen(lines), READLINE_MAX);
	for (int i = 0; i < 100; i++) {
		lines[0] = 0;
		readline_byte(&r, (char)('a' + i % 26));
		readline_byte(&r, '\r');
	}
	assert_int_equal(r.nhistory, READLINE_HISTORY);
	readline_free(&r);
	textbuf_free(&out);
}

static void test_object(void **state)
{
	static const struct {
		const char *text, *part; /* NULL: accepted */
	} table[] = {
	    {"rng-random,id=r0", NULL},
	    {"rng-random,id=r0", "taken"},
	    {"{\"qom-type\":\"rng-random\",\"id\":\"r1\",\"filename\":\"/dev/random\"}", NULL},
	    {"memory-backend-ram,id=m,size=1G,prealloc=on", NULL},
	    {"memory-backend-ram,id=n", "'size' is required"},
	    {"memory-backend-file,id=n,size=1G", "'mem-path' is required"},
	    {"authz-list,id=io", "'authz-list' does not exist in Kelvin yet"},
	    {"secret,id=s,data=x", "does not exist in Kelvin yet"},
	    {"rng-randon,id=x", "did you mean 'rng-random'"},
	    {"rng-random", "an id is missing"},
	    {"rng-random,id=y,file=z", "no property 'file'"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct err e = {0};
		int ret = object_create(table[i].text, &e);
		if (table[i].part ? ret >= 0 || !strstr(e.msg, table[i].part) : ret != 0)
			fail_msg("%s: %d %s", table[i].text, ret, e.msg);
	}
	struct object_rng *r = (struct object_rng *)object_find("r1");
	assert_string_equal(r->filename, "/dev/random");
	struct object_memory *m = (struct object_memory *)object_find("m");
	assert_true(m->prealloc && m->merge && m->size == GIB);
	object_destroy_all();
	assert_null(object_find("r0"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_cut),
	    cmocka_unit_test(test_utf8),
	    cmocka_unit_test(test_readline),
	    cmocka_unit_test(test_object),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
