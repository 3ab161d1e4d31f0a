/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The search for instructions that must not run natively: planted ones are
 * found wherever they are in a page of code, their bytes inside constants are
 * not, and the page behind matters only where native_scan_wants_next says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>
#include "bare.h"
#include "cpu/soft/native.h"

#define FOUND_MAX 4u

/* What code around is made of. */
static const struct piece {
	uint8_t len, bytes[7];
} plain[] =
    {
	{3, {0x48, 0x01, 0xd8}},	     /* add rax, rbx */
	{4, {0x48, 0x8b, 0x46, 0x08}},	     /* mov rax, [rsi + 8] */
	{5, {0xe8, 0x10, 0x32, 0x00, 0x00}}, /* call */
	{1, {0x55}},			     /* push rbp */
	{6, {0x0f, 0x84, 0x40, 0x01, 0, 0}}, /* je */
	{2, {0x31, 0xc0}},		     /* xor eax, eax */
	{4, {0x0f, 0xb6, 0x04, 0x0a}},	     /* movzx eax, byte [rdx + rcx] */
	{3, {0x83, 0xe0, 0x0f}},	     /* and eax, 15: with the XOR it makes 0F 31 */
	{5, {0xb9, 0x00, 0x0f, 0x31, 0x00}}, /* mov ecx, 0x310f00 */
	{7, {0x48, 0x69, 0xc0, 0x0f, 0xa2}}, /* imul rax, rax, 0xa20f */
},
  planted[] = {
      {2, {0x0f, 0x31}},		   /* rdtsc */
      {3, {0x0f, 0x01, 0xf9}},		   /* rdtscp */
      {2, {0x0f, 0xa2}},		   /* cpuid */
      {5, {0xf3, 0x48, 0x0f, 0xae, 0xd0}}, /* wrfsbase rax */
      {4, {0x0f, 0x00, 0x03, 0x90}},	   /* sldt [rbx]; nop */
};

static struct bare bare;

/* A page of code with one planted instruction near `at`; where it is. */
static unsigned make(uint8_t *page, unsigned at)
{
	unsigned n = 0, where = 0;
	bool done = false;

	while (n < PAGE_SIZE) {
		bool plant = !done && n >= at;
		const struct piece *p = plant ? &planted[(unsigned)rand() % ARRAY_SIZE(planted)]
					      : &plain[(unsigned)rand() % ARRAY_SIZE(plain)];

		if (plant) {
			where = n;
			done = true;
		}
		memcpy(page + n, p->bytes, MIN((size_t)p->len, PAGE_SIZE - n));
		n += p->len;
	}
	return where;
}

static void test_found(void **state)
{
	uint8_t page[PAGE_SIZE], next[NATIVE_SCAN_AFTER];
	const struct soft_cpu *c = bare_cpu(&bare, 0);

	srand(4);
	memset(next, 0x90, sizeof(next));
	for (unsigned turn = 0; turn < 300; turn++) {
		unsigned where = make(page, 100 + (unsigned)rand() % 3900), n;
		uint16_t found[FOUND_MAX] = {0};

		n = native_scan(c, page, next, found, FOUND_MAX);
		assert_int_equal(n, 1);
		assert_int_equal(found[0], where);
	}
}

static void test_next(void **state)
{
	uint8_t page[PAGE_SIZE], next[NATIVE_SCAN_AFTER];
	const struct soft_cpu *c = bare_cpu(&bare, 0);
	unsigned wanted = 0;

	srand(5);
	for (unsigned turn = 0; turn < 1000; turn++) {
		uint16_t with[FOUND_MAX] = {0}, without[FOUND_MAX] = {0};

		if (turn & 1)
			make(page, PAGE_SIZE - 1 - (unsigned)rand() % 40);
		else
			for (unsigned i = 0; i < PAGE_SIZE; i++)
				page[i] = (uint8_t)(rand() >> 8);
		for (unsigned i = 0; i < sizeof(next); i++)
			next[i] = (uint8_t)(rand() >> 8);
		if (native_scan_wants_next(page)) {
			wanted++;
			continue;
		}
		assert_int_equal(native_scan(c, page, next, with, FOUND_MAX),
				 native_scan(c, page, NULL, without, FOUND_MAX));
		assert_memory_equal(with, without, sizeof(with));
	}
	assert_in_range(wanted, 10, 900);
	/* RDTSC whose second byte is the next page's. */
	memset(page, 0x90, sizeof(page));
	page[PAGE_SIZE - 1] = 0x0f;
	next[0] = 0x31;
	assert_true(native_scan_wants_next(page));
}

static int setup(void **state)
{
	bare_init(&bare, 1, "soft,jit=off");
	bare_long_mode(&bare, 0);
	return 0;
}

static int teardown(void **state)
{
	bare_fini(&bare);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_found), cmocka_unit_test(test_next)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
