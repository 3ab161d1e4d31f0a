/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Translated code when the mappings of code change: direct and indirect calls
 * to another page, and an instruction that goes on in it, always run what is
 * mapped there now. The page moves between two, by INVLPG and by loading CR3,
 * often enough apart that jumps are linked in between.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "bare.h"

#define TABLE	 0x14000ull  /* of the 2 MiB at FAR */
#define FAR	 0x400000ull /* two pages; the second moves */
#define PAGE_OLD 0x600000ull
#define PAGE_NEW 0x601000ull
#define TURNS	 48u
#define KEEP	 4u /* turns between two moves */
#define P_W_U	 7u

/* rsi = the entry of the page that moves, edx = turns left, r8 = what the calls gave, in order. */
BARE_ASM(moves, "	call moves + 0x401010 - 0x100000\n"
		"	imul $31, %r8, %r8\n"
		"	add %rax, %r8\n"
		"	mov $0x401010, %ebx\n"
		"	call *%rbx\n"
		"	imul $31, %r8, %r8\n"
		"	add %rax, %r8\n"
		"	call moves + 0x400ffe - 0x100000\n" /* mov eax, imm32 across the pages; ret */
		"	imul $31, %r8, %r8\n"
		"	add %rax, %r8\n"
		"	dec %edx\n"
		"	jz 3f\n"
		"	test $3, %dl\n"
		"	jnz moves\n"
		"	xorq $0x1000, (%rsi)\n"
		"	test $4, %dl\n"
		"	jz 2f\n"
		"	invlpg 0x401000\n"
		"	jmp moves\n"
		"2:	mov %cr3, %rax\n"
		"	mov %rax, %cr3\n"
		"	jmp moves\n"
		"3:	out %al, $0xf4");

static void fill(struct bare *b, uint64_t page, uint8_t value)
{
	/* The end of the mov and ret; mov eax, value; ret */
	const uint8_t tail[] = {value, 0, 0, 0xc3}, function[] = {0xb8, value, 0, 0, 0, 0xc3};

	bare_code(b, page, tail, sizeof(tail));
	bare_code(b, page + 0x10, function, sizeof(function));
}

static void run(const char *engine, bool jit)
{
	static const uint8_t head[] = {0xb8, 0x34}; /* mov eax, ....34 */
	struct bare b;
	struct soft_cpu *c;
	uint64_t want = 0;
	bool new = false;

	bare_init(&b, 1, engine);
	bare_long_mode(&b, 0);
	c = bare_cpu(&b, 0);
	st64le(bare_ram(&b, BARE_TABLES + 2 * PAGE_SIZE + FAR / (2 * MIB) * 8), TABLE | P_W_U);
	st64le(bare_ram(&b, TABLE), FAR | P_W_U);
	st64le(bare_ram(&b, TABLE + 8), PAGE_OLD | P_W_U);
	mmu_flush_all(c);
	bare_code(&b, FAR + PAGE_SIZE - sizeof(head), head, sizeof(head));
	fill(&b, PAGE_OLD, 1);
	fill(&b, PAGE_NEW, 2);
	BARE_LOAD(&b, BARE_CODE, moves);
	c->s.gpr[R_RSI] = TABLE + 8;
	c->s.gpr[R_RDX] = TURNS;
	c->s.gpr[R_R8] = 0;
	bare_run(&b, 0);
	for (unsigned left = TURNS; left;) {
		uint64_t value = new ? 2 : 1;

		want = (want * 31 + value) * 31 + value;
		want = want * 31 + (value << 8 | 0x34);
		if (--left % KEEP == 0)
			new = !new;
	}
	assert_true(c->s.gpr[R_R8] == want);
	if (jit && jit_enabled(b.accel))
		assert_true(c->n_jit_blocks > 5);
	bare_fini(&b);
}

static void test_interpreter(void **state)
{
	run("soft,jit=off", false);
}

static void test_translator(void **state)
{
	run("soft,jit-always=on", true);
}

/* Some of it is translated, and linked, when it has moved. */
static void test_tiers(void **state)
{
	run("soft,jit-threshold=6", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_interpreter), cmocka_unit_test(test_translator),
					   cmocka_unit_test(test_tiers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
