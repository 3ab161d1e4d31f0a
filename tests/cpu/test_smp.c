/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two software CPUs in two threads on the same memory: locked instructions are
 * atomic (also across pages that are not neighbours in host memory), and code
 * that one CPU writes is what the other executes next.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "cpu/soft/ops.h"
#include "soft_guest.h"

#define CODE 0x10000000ull
#define DATA 0x20000000ull
#define NCPU 2

static struct guest guest;
static struct soft_cpu *cpus[NCPU];
static uint8_t *code, *data;

static void add_cpu(void)
{
	struct soft_cpu *c = aligned_alloc(64, ALIGN_UP(sizeof(*c), (size_t)64));
	struct err err = {0};

	memset(c, 0, sizeof(*c));
	c->v.accel = &guest.accel.a;
	c->v.index = 1;
	assert_int_equal(mmu_init(c, &err), 0);
	assert_int_equal(interp_init(c, &err), 0);
	memcpy(&c->s, &guest.c->s, sizeof(c->s));
	soft_mode_changed(c);
	cpus[0] = guest.c;
	cpus[1] = c;
	guest.vcpus[1] = &c->v;
	guest.accel.a.cfg.ncpus = NCPU;
}

/* Runs until UD2; a CPU that waits for one that has failed gives up in the end. */
static void *cpu_thread(void *arg)
{
	struct soft_cpu *c = arg;

	for (unsigned k = 0; k < 200000; k++) {
		int r;

		atomic_store(&c->v.requests, 0);
		soft_turn_begin(c);
		r = interp_run(c, 10000);
		soft_turn_end(c);
		if (r)
			break;
	}
	return NULL;
}

static void load(unsigned at, const uint8_t *text, unsigned len)
{
	memcpy(code + at, text, len);
	code[at + len] = 0x0f;
	code[at + len + 1] = 0x0b;
	mem_mark_written(&guest.mem, code + at, len + 2);
}

static void run_both(uint64_t rip0, uint64_t rip1)
{
	pthread_t t[NCPU];

	cpus[0]->s.rip = rip0;
	cpus[1]->s.rip = rip1;
	for (unsigned k = 0; k < NCPU; k++) {
		cpus[k]->exc_raised = false;
		pthread_create(&t[k], NULL, cpu_thread, cpus[k]);
	}
	for (unsigned k = 0; k < NCPU; k++) {
		pthread_join(t[k], NULL);
		assert_int_equal(cpus[k]->exc_vector, EXC_UD);
	}
}

/* rcx times: lock inc [rbx]; lock xadd [rbx+8], edx(=1); lock bts/btr stay out of each other's way */
static void locked_loop(uint64_t at)
{
	static const uint8_t text[] = {
	    0xf0, 0x48, 0xff, 0x03,	  /* lock inc qword [rbx] */
	    0xba, 1,	0,    0,    0,	  /* mov edx, 1 */
	    0xf0, 0x0f, 0xc1, 0x53, 0x08, /* lock xadd [rbx+8], edx */
	    0x8b, 0x43, 0x0c,		  /* 1: mov eax, [rbx+12] */
	    0x8d, 0x50, 0x03,		  /* lea edx, [rax+3] */
	    0xf0, 0x0f, 0xb1, 0x53, 0x0c, /* lock cmpxchg [rbx+12], edx */
	    0x75, 0xf3,			  /* jnz 1b */
	    0x48, 0xff, 0xc9,		  /* dec rcx */
	    0x75, 0xe0,			  /* jnz */
	};

	load(0, text, sizeof(text));
	memset(data, 0, 0x3000);
	for (unsigned k = 0; k < NCPU; k++) {
		cpus[k]->s.gpr[R_RBX] = at;
		cpus[k]->s.gpr[R_RCX] = 20000;
	}
	run_both(CODE, CODE);
}

static void test_locked(void **state)
{
	locked_loop(DATA);
	assert_int_equal(ld64le(data), 20000 * NCPU);
	assert_int_equal(ld32le(data + 8), 20000 * NCPU);
	assert_int_equal(ld32le(data + 12), 3 * 20000 * NCPU);
}

/* [rbx] crosses from one page to the next, which is a neighbour in host memory. */
static void test_locked_crossing(void **state)
{
	uint64_t v;

	locked_loop(DATA + 0x1000 - 3);
	memcpy(&v, data + 0x1000 - 3, 8);
	assert_int_equal(v, 20000 * NCPU);
}

/* The page behind DATA + 0x2000 is elsewhere in RAM. */
static void test_locked_apart(void **state)
{
	uint8_t *far;
	uint64_t v = 0;

	guest.next_page += PAGE_SIZE;
	far = guest_map(&guest, DATA + 0x3000, PAGE_SIZE, GUEST_W);
	assert_ptr_not_equal(far, data + 0x3000);
	memset(far, 0, PAGE_SIZE);
	memset(data + 0x2000, 0, 0x1000);
	locked_loop(DATA + 0x3000 - 3);
	memcpy(&v, data + 0x3000 - 3, 3);
	memcpy((uint8_t *)&v + 3, far, 5);
	assert_int_equal(v, 20000 * NCPU);
}

/*
 * CPU 0 writes the immediate of a function and then a sequence number; CPU 1 waits
 * for the number, calls the function and must get it back. RSI = function's
 * immediate, RDI = sequence word, acknowledged at RDI + 64.
 */
static void test_cross_modify(void **state)
{
	static const uint8_t writer[] = {
	    0xff, 0xc0,		    /* 1: inc eax */
	    0x89, 0x06,		    /* mov [rsi], eax */
	    0x89, 0x07,		    /* mov [rdi], eax */
	    0x39, 0x47, 0x40,	    /* 2: cmp [rdi+64], eax */
	    0x75, 0xfb,		    /* jne 2b */
	    0x3d, 0x88, 0x13, 0, 0, /* cmp eax, 5000 */
	    0x75, 0xee,		    /* jne 1b */
	};
	static const uint8_t reader[] = {
	    0xff, 0xc1,			  /* 1: inc ecx */
	    0x39, 0x0f,			  /* 2: cmp [rdi], ecx */
	    0x75, 0xfc,			  /* jne 2b */
	    0xff, 0xd2,			  /* call rdx */
	    0x39, 0xc8,			  /* cmp eax, ecx */
	    0x75, 0x0b,			  /* jne out */
	    0x89, 0x4f, 0x40,		  /* mov [rdi+64], ecx */
	    0x81, 0xf9, 0x88, 0x13, 0, 0, /* cmp ecx, 5000 */
	    0x75, 0xe9,			  /* jne 1b */
	};
	static const uint8_t function[] = {0xb8, 0, 0, 0, 0, 0xc3}; /* mov eax, imm; ret */

	load(0, writer, sizeof(writer));
	load(0x100, reader, sizeof(reader));
	load(0x200, function, sizeof(function));
	memset(data, 0, 0x1000);
	for (unsigned k = 0; k < NCPU; k++) {
		struct cpu_state *s = &cpus[k]->s;

		s->gpr[R_RAX] = s->gpr[R_RCX] = 0;
		s->gpr[R_RSI] = CODE + 0x201;
		s->gpr[R_RDI] = DATA;
		s->gpr[R_RDX] = CODE + 0x200;
		s->gpr[R_RSP] = DATA + 0x800 + 0x200 * k;
	}
	run_both(CODE, CODE + 0x100);
	assert_int_equal(cpus[1]->s.gpr[R_RCX], 5000);
	assert_int_equal(ld32le(data + 64), 5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_locked), cmocka_unit_test(test_locked_crossing),
					   cmocka_unit_test(test_locked_apart), cmocka_unit_test(test_cross_modify)};
	int r;

	if (guest_create(&guest))
		return 2;
	code = guest_map(&guest, CODE, PAGE_SIZE, GUEST_W | GUEST_X);
	data = guest_map(&guest, DATA, 0x3000, GUEST_W);
	guest_user64(&guest);
	add_cpu();
	r = cmocka_run_group_tests(tests, NULL, NULL);
	interp_fini(cpus[1]);
	mmu_fini(cpus[1]);
	free(cpus[1]);
	guest_destroy(&guest);
	return r;
}
