/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Instructions the 64-bit host cannot run, against results worked out by hand or
 * printed in the manuals (Intel SDM volume 2, the examples of DAA and DAS).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "soft_guest.h"

#define CODE 0x10000000ull
#define DATA 0x20000000ull

static struct guest guest;
static uint8_t *code, *data;

struct golden {
	const char *name;
	uint8_t bytes[8];
	uint8_t len;
	uint32_t eax, flags;	       /* before */
	uint32_t want_eax, want_flags; /* after */
	uint32_t mask;		       /* defined flags */
	int trap;		       /* expected exception, -1 none */
};

#define SZP (FLAG_SF | FLAG_ZF | FLAG_PF)
static const struct golden golden[] = {
    {"aaa over", {0x37}, 1, 0x000a, 0, 0x0100, FLAG_AF | FLAG_CF, FLAG_AF | FLAG_CF, -1},
    {"aaa carry", {0x37}, 1, 0x00fa, 0, 0x0200, FLAG_AF | FLAG_CF, FLAG_AF | FLAG_CF, -1},
    {"aaa under", {0x37}, 1, 0x1275, 0, 0x1205, 0, FLAG_AF | FLAG_CF, -1},
    {"aas", {0x3f}, 1, 0x02ff, FLAG_AF, 0x0109, FLAG_AF | FLAG_CF, FLAG_AF | FLAG_CF, -1},
    {"daa 79+35", {0x27}, 1, 0xae, 0, 0x14, FLAG_CF | FLAG_AF | FLAG_PF, FLAG_CF | FLAG_AF | SZP, -1},
    {"daa 2e", {0x27}, 1, 0x2e, 0, 0x34, FLAG_AF, FLAG_CF | FLAG_AF | SZP, -1},
    {"daa carry in", {0x27}, 1, 0x01, FLAG_CF, 0x61, FLAG_CF, FLAG_CF | FLAG_AF | SZP, -1},
    {"das 35-47",
     {0x2f},
     1,
     0xee,
     FLAG_CF | FLAG_AF,
     0x88,
     FLAG_CF | FLAG_AF | FLAG_SF | FLAG_PF,
     FLAG_CF | FLAG_AF | SZP,
     -1},
    {"das borrow", {0x2f}, 1, 0x03, FLAG_AF, 0xfd, FLAG_CF | FLAG_AF | FLAG_SF, FLAG_CF | FLAG_AF | SZP, -1},
    {"aam", {0xd4, 10}, 2, 63, 0, 0x0603, FLAG_PF, SZP, -1},
    {"aam 0", {0xd4, 0}, 2, 63, 0, 63, 0, 0, EXC_DE},
    {"aad", {0xd5, 10}, 2, 0x0603, 0, 63, FLAG_PF, SZP, -1},
    {"salc set", {0xd6}, 1, 0x1200, FLAG_CF, 0x12ff, FLAG_CF, FLAG_CF, -1},
    /* bound eax, [DATA]: -2 .. 5 */
    {"bound in", {0x62, 0x05, 0, 0, 0, 0x20}, 6, (uint32_t)-2, 0, (uint32_t)-2, 0, 0, -1},
    {"bound above", {0x62, 0x05, 0, 0, 0, 0x20}, 6, 6, 0, 6, 0, 0, EXC_BR},
    {"bound below", {0x62, 0x05, 0, 0, 0, 0x20}, 6, (uint32_t)-3, 0, (uint32_t)-3, 0, 0, EXC_BR},
    /* inc and dec have their one-byte forms only here */
    {"inc", {0x40}, 1, 0xffffffff, FLAG_CF, 0, FLAG_CF | FLAG_ZF | FLAG_PF | FLAG_AF, FLAG_ARITH, -1},
    {"dec16", {0x66, 0x48}, 2, 0x12340000, 0, 0x1234ffff, FLAG_SF | FLAG_PF | FLAG_AF, FLAG_ARITH, -1},
};

static void run(const struct golden *t)
{
	struct soft_cpu *c = guest.c;
	int r;

	memcpy(code, t->bytes, sizeof(t->bytes));
	mem_mark_written(&guest.mem, code, sizeof(t->bytes));
	c->s.rip = CODE;
	c->s.gpr[R_RAX] = t->eax;
	c->s.rflags = 0x202 | t->flags;
	r = interp_step(c);
	if (r != (t->trap < 0 ? 0 : EXC_RAISED) || (r && c->exc_vector != t->trap) ||
	    (uint32_t)c->s.gpr[R_RAX] != t->want_eax || ((c->s.rflags ^ t->want_flags) & t->mask))
		fail_msg("%s: eax %#x flags %#x exception %d", t->name, (unsigned)c->s.gpr[R_RAX],
			 (unsigned)(c->s.rflags & FLAG_ARITH), r ? c->exc_vector : -1);
	assert_int_equal(c->s.rip, CODE + (r ? 0 : t->len));
}

static void test_golden(void **state)
{
	st32le(data, (uint32_t)-2);
	st32le(data + 4, 5);
	for (unsigned k = 0; k < ARRAY_SIZE(golden); k++)
		run(&golden[k]);
}

/* PUSHA keeps the old ESP, POPA skips it; ENTER copies frame pointers. */
static void test_stack(void **state)
{
	static const uint8_t text[] = {0x60,		       /* pusha */
				       0x61,		       /* popa */
				       0xc8, 0x10, 0x00, 0x02, /* enter 16, 2 */
				       0xc9};		       /* leave */
	struct soft_cpu *c = guest.c;

	memcpy(code, text, sizeof(text));
	mem_mark_written(&guest.mem, code, sizeof(text));
	c->s.rip = CODE;
	for (unsigned r = 0; r < 8; r++)
		c->s.gpr[r] = 0x1000 + r;
	c->s.gpr[R_RSP] = DATA + 0x800;
	c->s.gpr[R_RBP] = DATA + 0xc00;
	st32le(data + 0xc00 - 4, 0xabcd);
	assert_int_equal(interp_step(c), 0);
	assert_int_equal(c->s.gpr[R_RSP], DATA + 0x800 - 32);
	assert_int_equal(ld32le(data + 0x800 - 4), 0x1000);
	assert_int_equal(ld32le(data + 0x800 - 20), DATA + 0x800);
	assert_int_equal(interp_step(c), 0);
	assert_int_equal(c->s.gpr[R_RSP], DATA + 0x800);
	assert_int_equal(interp_step(c), 0);
	assert_int_equal(ld32le(data + 0x800 - 4), DATA + 0xc00); /* old EBP */
	assert_int_equal(ld32le(data + 0x800 - 8), 0xabcd);	  /* the outer frame */
	assert_int_equal(ld32le(data + 0x800 - 12), DATA + 0x800 - 4);
	assert_int_equal(c->s.gpr[R_RBP], DATA + 0x800 - 4);
	assert_int_equal(c->s.gpr[R_RSP], DATA + 0x800 - 12 - 16);
	assert_int_equal(interp_step(c), 0);
	assert_int_equal(c->s.gpr[R_RSP], DATA + 0x800);
	assert_int_equal(c->s.gpr[R_RBP], DATA + 0xc00);
}

/* A segment prefix on implied memory operands: any segment for the source, none for a string's destination. */
static void test_implied_segment(void **state)
{
	static const struct {
		uint8_t text[3];
		uint8_t len;
		uint8_t al; /* afterwards */
	} table[] = {
	    {{0xac}, 1, 0x11},	     {{0x26, 0xac}, 2, 0x22}, /* lodsb, es lodsb */
	    {{0x65, 0xac}, 2, 0x33},			      /* gs */
	    {{0xd7}, 1, 0x11},	     {{0x26, 0xd7}, 2, 0x22}, /* xlat */
	    {{0x26, 0xa4}, 2, 0x22},			      /* es movsb: read back below */
	};
	struct soft_cpu *c = guest.c;

	for (unsigned k = 0; k < ARRAY_SIZE(table); k++) {
		memcpy(code, table[k].text, sizeof(table[k].text));
		mem_mark_written(&guest.mem, code, sizeof(table[k].text));
		c->s.seg[S_ES].base = 0x100;
		c->s.seg[S_GS].base = 0x200;
		soft_mode_changed(c);
		data[0] = 0x11;
		data[0x100] = 0x22;
		data[0x200] = 0x33;
		data[0x180] = 0;
		c->s.rip = CODE;
		c->s.rflags = 0x202;
		c->s.gpr[R_RAX] = 0;
		c->s.gpr[R_RSI] = c->s.gpr[R_RBX] = DATA;
		c->s.gpr[R_RDI] = DATA + 0x80;
		assert_int_equal(interp_step(c), 0);
		assert_int_equal(c->s.rip, CODE + table[k].len);
		assert_int_equal(table[k].text[1] == 0xa4 ? data[0x180] : c->s.gpr[R_RAX] & 0xff, table[k].al);
	}
	c->s.seg[S_ES].base = c->s.seg[S_GS].base = 0;
	soft_mode_changed(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_stack),
					   cmocka_unit_test(test_implied_segment)};
	int r;

	if (guest_create(&guest))
		return 2;
	code = guest_map(&guest, CODE, PAGE_SIZE, GUEST_W | GUEST_X);
	data = guest_map(&guest, DATA, PAGE_SIZE, GUEST_W);
	guest_user64(&guest);
	guest.c->s.seg[S_CS].l = false;
	guest.c->s.seg[S_CS].db = true;
	soft_mode_changed(guest.c);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	guest_destroy(&guest);
	return r;
}
