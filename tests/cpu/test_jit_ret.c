/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Returns of translated code go where the stack says and to what is there now, whatever the translator remembers of
 * the place: programs that call and return in uncommon ways, each in every tier, with the same result. Each makes
 * many turns, so that what it changes had been translated, linked and remembered before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "bare.h"

#define TABLE	 0x14000ull  /* of the 2 MiB at FAR */
#define FAR	 0x400000ull /* a page that moves */
#define PAGE_OLD 0x600000ull
#define PAGE_NEW 0x601000ull
#define P_W_U	 7u
#define TURNS	 64u
#define ALIGN16	 "	.p2align 4\n"

/* edx = turns left, r8 = the result, rsi = the entry of the page at FAR. */

/* The callee rewrites the immediate behind the call, mov $imm, %eax: edx of this turn. */
BARE_ASM(rewritten, "1:	call 2f\n"
		    "3:	mov $0x11223344, %eax\n"
		    "	imul $31, %r8, %r8\n"
		    "	add %rax, %r8\n"
		    "	dec %edx\n"
		    "	jnz 1b\n"
		    "	out %al, $0xf4\n"
		    "	.p2align 8\n"
		    "2:	test $3, %dl\n"
		    "	jnz 4f\n"
		    "	mov %edx, 3b + 1(%rip)\n"
		    "4:	ret");

static uint64_t rewritten_want(void)
{
	uint64_t want = 0, value = 0x11223344;

	for (uint64_t left = TURNS; left; left--) {
		value = left & 3 ? value : left;
		want = want * 31 + value;
	}
	return want;
}

/*
 * The caller is in the page at FAR: "call *%rbx; mov $value, %eax; jmp *%rdi". The callee maps the other page there,
 * whose value differs: by INVLPG and by CR3 in turn.
 */
BARE_ASM(remapped, "	lea 2f(%rip), %rbx\n"
		   "	lea 3f(%rip), %rdi\n"
		   "1:	mov $0x400100, %ecx\n"
		   "	jmp *%rcx\n"
		   "3:	imul $31, %r8, %r8\n"
		   "	add %rax, %r8\n"
		   "	dec %edx\n"
		   "	jnz 1b\n"
		   "	out %al, $0xf4\n"
		   "	.p2align 8\n"
		   "2:	test $3, %dl\n"
		   "	jnz 4f\n"
		   "	xorq $0x1000, (%rsi)\n"
		   "	test $4, %dl\n"
		   "	jz 5f\n"
		   "	invlpg 0x400000\n"
		   "	ret\n"
		   "5:	mov %cr3, %rax\n"
		   "	mov %rax, %cr3\n"
		   "4:	ret");

static uint64_t remapped_want(void)
{
	uint64_t want = 0, value = 1;

	for (uint64_t left = TURNS; left; left--) {
		value = left & 3 ? value : 3 - value;
		want = want * 31 + value;
	}
	return want;
}

/* The callee returns elsewhere in one turn of four: its own frame's address is replaced. */
BARE_ASM(elsewhere, "1:	call 2f\n"
		    "	imul $31, %r8, %r8\n"
		    "	add $1, %r8\n"
		    "6:	dec %edx\n"
		    "	jnz 1b\n"
		    "	out %al, $0xf4\n" ALIGN16 "2:	test $3, %dl\n"
		    "	jnz 4f\n"
		    "	lea 5f(%rip), %rax\n"
		    "	mov %rax, (%rsp)\n"
		    "4:	ret\n" ALIGN16 "5:	imul $31, %r8, %r8\n"
		    "	add $2, %r8\n"
		    "	jmp 6b");

static uint64_t elsewhere_want(void)
{
	uint64_t want = 0;

	for (uint64_t left = TURNS; left; left--)
		want = want * 31 + (left & 3 ? 1 : 2);
	return want;
}

/*
 * Calls without a return: the address popped into a register (as position independent 32-bit code does), a stack
 * cut short over three callers (longjmp), an indirect jump made of call, replaced address and ret (retpoline), and
 * RET that drops arguments.
 */
BARE_ASM(unpaired, "	lea 6f(%rip), %rbx\n"
		   "1:	call 2f\n"
		   "2:	pop %rax\n"
		   "	lea 2b(%rip), %rcx\n"
		   "	sub %rcx, %rax\n"
		   "	add %rax, %r8\n"
		   "	mov %rsp, %rbp\n"
		   "	call 3f\n"
		   "	ud2\n" ALIGN16 "3:	call 4f\n"
		   "	ud2\n" ALIGN16 "4:	call 5f\n"
		   "	ud2\n" ALIGN16 "5:	mov %rbp, %rsp\n"
		   "	call 7f\n"
		   "	ud2\n" ALIGN16 "7:	mov %rbx, (%rsp)\n"
		   "	ret\n"
		   "	ud2\n" ALIGN16 "6:	add $3, %r8\n"
		   "	push %rdx\n"
		   "	push %rdx\n"
		   "	call 8f\n"
		   "	mov %rsp, %rax\n"
		   "	sub %rbp, %rax\n" /* 0 */
		   "	add %rax, %r8\n"
		   "	mov %rbp, %rsp\n"
		   "	dec %edx\n"
		   "	jnz 1b\n"
		   "	out %al, $0xf4\n" ALIGN16 "8:	add 8(%rsp), %r8\n"
		   "	ret $16");

static uint64_t unpaired_want(void)
{
	uint64_t want = 0;

	for (uint64_t left = TURNS; left; left--)
		want += 3 + left;
	return want;
}

/* Recursion to the depth of edx and deeper, by two call sites: f(n) = n ? 3 f(n - 1) + 1 or 2 f(n - 1) + 5 : 1. */
BARE_ASM(recursive, "1:	lea 300(%rdx), %ecx\n"
		    "	call 2f\n"
		    "	imul $31, %r8, %r8\n"
		    "	add %rax, %r8\n"
		    "	dec %edx\n"
		    "	jnz 1b\n"
		    "	out %al, $0xf4\n" ALIGN16 "2:	test %ecx, %ecx\n"
		    "	jz 4f\n"
		    "	push %rcx\n"
		    "	dec %ecx\n"
		    "	test $4, %cl\n"
		    "	jz 3f\n"
		    "	call 2b\n"
		    "	lea 1(%rax, %rax, 2), %rax\n"
		    "	pop %rcx\n"
		    "	ret\n"
		    "3:	call 2b\n"
		    "	lea 5(%rax, %rax), %rax\n"
		    "	pop %rcx\n"
		    "	ret\n"
		    "4:	mov $1, %eax\n"
		    "	ret");

static uint64_t recursive_want(void)
{
	uint64_t want = 0;

	for (uint64_t left = TURNS; left; left--) {
		uint64_t f = 1;

		for (uint64_t n = 0; n < left + 300; n++)
			f = n & 4 ? 3 * f + 1 : 2 * f + 5;
		want = want * 31 + f;
	}
	return want;
}

static const struct program {
	const char *text, *end;
	uint64_t (*want)(void);
} programs[] = {
    {rewritten, rewritten_end, rewritten_want}, {remapped, remapped_end, remapped_want},
    {elsewhere, elsewhere_end, elsewhere_want}, {unpaired, unpaired_end, unpaired_want},
    {recursive, recursive_end, recursive_want},
};

/* call *%rbx; mov $value, %eax; jmp *%rdi */
static void fill(struct bare *b, uint64_t page, uint8_t value)
{
	const uint8_t code[] = {0xff, 0xd3, 0xb8, value, 0, 0, 0, 0xff, 0xe7};

	bare_code(b, page + 0x100, code, sizeof(code));
}

static void run(const struct program *p, const char *engine, bool jit)
{
	struct bare b;
	struct soft_cpu *c;

	bare_init(&b, 1, engine);
	bare_long_mode(&b, 0);
	c = bare_cpu(&b, 0);
	st64le(bare_ram(&b, BARE_TABLES + 2 * PAGE_SIZE + FAR / (2 * MIB) * 8), TABLE | P_W_U);
	st64le(bare_ram(&b, TABLE), PAGE_OLD | P_W_U);
	mmu_flush_all(c);
	fill(&b, PAGE_OLD, 1);
	fill(&b, PAGE_NEW, 2);
	bare_code(&b, BARE_CODE, p->text, (size_t)(p->end - p->text));
	c->s.gpr[R_RSI] = TABLE;
	c->s.gpr[R_RDX] = TURNS;
	c->s.gpr[R_R8] = 0;
	bare_run(&b, 0);
	assert_int_equal(bare_stopped_in(&b, 0), -1);
	assert_true(c->s.gpr[R_R8] == p->want());
	if (jit && jit_enabled(b.accel))
		assert_true(c->n_jit_blocks > 3);
	bare_fini(&b);
}

static void run_all(const char *engine, bool jit)
{
	for (unsigned i = 0; i < ARRAY_SIZE(programs); i++)
		run(&programs[i], engine, jit);
}

static void test_interpreter(void **state)
{
	run_all("soft,jit=off", false);
}

static void test_translator(void **state)
{
	run_all("soft,jit-always=on", true);
	run_all("soft,jit-always=on,jit-exact-flags=on", true);
}

/* Code is hot after some turns: both tiers take part. */
static void test_tiers(void **state)
{
	run_all("soft,jit-threshold=6", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_interpreter), cmocka_unit_test(test_translator),
					   cmocka_unit_test(test_tiers)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
