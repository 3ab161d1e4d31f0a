/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The translator's memory is bounded: with a small code cache, or little room
 * for blocks, more code than fits runs rightly, the cache is emptied on the
 * way, and what lies behind the bound is never touched (it has no rights).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include "bare.h"
#include "cpu/soft/jit.h"

#define PAGES  48u
#define ROUNDS 3u

/* add rax, 1; jmp to what follows; and at the end the head: dec edx; jnz back; out */
static uint64_t fill(struct bare *b)
{
	static const uint8_t block[] = {0x48, 0x83, 0xc0, 0x01, 0xeb, 0x00};
	static uint8_t code[PAGES * PAGE_SIZE];
	const uint64_t count = PAGES * PAGE_SIZE / sizeof(block) - 8;
	uint8_t end[] = {0xff, 0xca, 0x0f, 0x85, 0, 0, 0, 0, 0xe6, 0xf4};
	size_t n = 0;

	for (uint64_t i = 0; i < count; i++, n += sizeof(block))
		memcpy(code + n, block, sizeof(block));
	st32le(end + 4, (uint32_t) - (int32_t)(n + 8));
	memcpy(code + n, end, sizeof(end));
	bare_code(b, BARE_CODE, code, n + sizeof(end));
	return count;
}

/* What the engine's counters say of it. */
static void report(const struct bare *b, const struct jit *j)
{
	const struct counter *c = b->accel->ops->accel_counters;
	unsigned n = 0;

	for (; c->name; c++, n++) {
		uint64_t v = counter_get((const uint64_t *)(const void *)((const char *)b->accel + c->offset));

		assert_true(v > 0);
		if (!strcmp(c->name, "jit_code_most_bytes"))
			assert_true(v == j->size);
		if (!strcmp(c->name, "jit_code_bytes"))
			assert_true(v <= j->size);
		if (!strcmp(c->name, "jit_blocks_most_bytes"))
			assert_true(v == j->arena_size);
		if (!strcmp(c->name, "jit_blocks_bytes"))
			assert_true(v <= j->arena_size);
	}
	assert_int_equal(n, 5);
}

/* Small bounds instead of those it began with; 0: as it is. The rest of the memory loses its rights. */
static void run(size_t cache, size_t arena)
{
	struct bare b;
	struct soft_cpu *c;
	size_t size, arena_size;
	struct jit *j;
	uint64_t count;

	bare_init(&b, 1, "soft,jit-always=on");
	if (!jit_enabled(b.accel)) {
		bare_fini(&b);
		skip();
	}
	bare_long_mode(&b, 0);
	c = bare_cpu(&b, 0);
	j = jit_of(c);
	size = j->size;
	arena_size = j->arena_size;
	if (cache) {
		assert_int_equal(mprotect(j->rw + cache, size - cache, PROT_NONE), 0);
		j->size = cache;
	}
	if (arena) {
		assert_int_equal(mprotect(j->arena + arena, arena_size - arena, PROT_NONE), 0);
		j->arena_size = arena;
	}
	count = fill(&b);
	c->s.gpr[R_RAX] = 0;
	c->s.gpr[R_RDX] = ROUNDS;
	bare_run(&b, 0);
	assert_true(c->s.gpr[R_RAX] == count * ROUNDS);
	/* All of it was translated, more than once, since it does not fit. */
	assert_true(c->n_jit_blocks >= count * 2);
	assert_true(j->flushes >= 3);
	assert_true(c->n_jit[JIT_STAT_FLUSHES] >= 3);
	assert_true(j->hot <= j->rw + j->size / 2 && j->cold <= j->rw + j->size);
	assert_true(j->arena_used <= j->arena_size);
	report(&b, j);
	j->size = size;
	j->arena_size = arena_size;
	bare_fini(&b);
}

static void test_code(void **state)
{
	run(MIB, 0);
}

static void test_blocks(void **state)
{
	run(0, MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_code), cmocka_unit_test(test_blocks)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
