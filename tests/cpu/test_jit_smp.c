/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Several vCPUs in translated code at once, in their real run loop, while what
 * the code rests on changes under them:
 *
 *   code    two vCPUs call a function whose result counts up; another vCPU rewrites it at the same address, through
 *	     another mapping, or a device does by DMA; or what a function of its returns to. After a sequence number was
 *seen, the result may not be older. pages   two vCPUs read a page whose mapping is moved on; after the flush was
 *acknowledged they see the new page. locks   a locked operand across pages that lie apart, against locked accesses to
 *one of the pages. cache   the translations' memory is so small that it is emptied all the time, in all of these.
 *
 *	test_jit_smp [MILLISECONDS]	of each, default 400
 *
 * In the suite `threads` this runs under TSan.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/clock.h"
#include "cpu/soft/jit.h"
#include "cpu/soft/run.h"
#include "soft_guest.h"

#define CODE   0x10000000ull
#define ALIAS  0x11000000ull /* the same page as CODE, writable */
#define DATA   0x20000000ull
#define PAGES  0x28000000ull /* moves */
#define FAR    0x30000000ull
#define NCPU   3
#define VALUES 64u

/* Words of the data page. */
#define SEQ    0u
#define BAD    8u
#define ROUNDS 64u /* 64 bytes for each vCPU */
#define STACKS 0x800u

/* The guest races for its memory on purpose. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:dma_write\nrace:block_run\nrace:jit_translate\nrace:note_code\n";
}

static struct guest guest;
static struct soft_cpu *cpus[NCPU];
static uint8_t *code, *data;
static unsigned period_ms = 400;
static atomic_bool crashed;
static uint64_t cache_emptied;

/*
 * rbx = DATA, rsi = the function, rdi = counter of rounds.
 * caller: the result of a call is no older than the number seen before it. A chain of blocks at different
 * addresses keeps the translator busy.
 * changer: rsi = a function of its own, r8 = its immediate: a call returns what was written just before.
 * writer: r8 = where to write the function's immediate.
 * reader: rsi = a word of the page that moves.
 * locker: rsi = operand, edx = what to add; 4 bytes and 2 bytes.
 */
extern const uint8_t caller[], changer[], writer[], reader[], locker4[], locker2[], programs_end[];
__asm__(".pushsection .rodata\n"
	"caller:\n"
	"	mov (%rbx), %ecx\n"
	"	call *%rsi\n"
	"	sub %ecx, %eax\n"
	"	js 9f\n"
	"	incq (%rdi)\n"
	"	jmp caller\n"
	"9:	incq 8(%rbx)\n"
	"	jmp caller\n"
	"	.p2align 6\n"
	"changer:\n"
	"	inc %edx\n"
	"	mov %edx, (%r8)\n"
	"	call *%rsi\n"
	"	cmp %edx, %eax\n"
	"	jne 9f\n"
	"	incq (%rdi)\n"
	"	jmp changer\n"
	"9:	incq 8(%rbx)\n"
	"	jmp changer\n"
	"	.p2align 6\n"
	"writer:\n"
	"	inc %eax\n"
	"	mov %eax, (%r8)\n"
	"	mov %eax, (%rbx)\n"
	"	incq (%rdi)\n"
	"	mov $20, %ecx\n"
	"1:	dec %ecx\n"
	"	jnz 1b\n"
	"	jmp writer\n"
	"	.p2align 6\n"
	"reader:\n"
	"	mov (%rbx), %ecx\n"
	"	mov (%rsi), %eax\n"
	"	sub %ecx, %eax\n"
	"	js 9f\n"
	"	incq (%rdi)\n"
	"	jmp reader\n"
	"9:	incq 8(%rbx)\n"
	"	jmp reader\n"
	"	.p2align 6\n"
	"locker4:\n"
	"	lock addl %edx, (%rsi)\n"
	"	incq (%rdi)\n"
	"	jmp locker4\n"
	"	.p2align 6\n"
	"locker2:\n"
	"	lock addw %dx, (%rsi)\n"
	"	incq (%rdi)\n"
	"	jmp locker2\n"
	"programs_end:\n"
	".popsection\n");

#define AT(program) (CODE + (uint64_t)((program)-caller))
#define FUNCTION    0xf03u /* so that the immediate, a byte on, is aligned */
#define RETURNED_TO (FUNCTION - 0x100)
#define CALLED	    (FUNCTION + 0x20)

static void request(void *opaque, enum vm_request what, int status, const char *why)
{
	atomic_store(&crashed, true);
}

static int add_cpu(unsigned n)
{
	struct soft_cpu *c = aligned_alloc(64, ALIGN_UP(sizeof(*c), (size_t)64));
	struct err err = {0};

	memset(c, 0, sizeof(*c));
	c->v.accel = &guest.accel.a;
	c->v.index = n;
	pthread_mutex_init(&c->sleep_lock, NULL);
	pthread_cond_init(&c->sleep_cond, NULL);
	if (mmu_init(c, &err) || interp_init(c, &err) || jit_cpu_init(c, &err))
		return -1;
	memcpy(&c->s, &guest.c->s, sizeof(c->s));
	soft_mode_changed(c);
	cpus[n] = c;
	__atomic_store_n(&guest.vcpus[n], &c->v, __ATOMIC_RELEASE);
	return 0;
}

static uint64_t gpa_of(const uint8_t *host)
{
	return (uint64_t)(host - guest.ram);
}

static uint64_t *pte(uint64_t lin)
{
	uint64_t *t = (uint64_t *)(void *)(guest.ram + guest.c->s.cr3);

	for (unsigned shift = 39; shift > 12; shift -= 9)
		t = (uint64_t *)(void *)(guest.ram + (t[lin >> shift & 511] & 0x000ffffffffff000ull));
	return &t[lin >> 12 & 511];
}

static int setup(void **state)
{
	struct err err = {0};

	if (guest_create_max(&guest) || codesync_init(&guest.accel.a, &err))
		return -1;
	guest.accel.a.cfg.ncpus = NCPU;
	guest.accel.a.ops = &soft_accel_ops;
	guest.host.request = request;
	pthread_mutex_init(&guest.c->sleep_lock, NULL);
	pthread_cond_init(&guest.c->sleep_cond, NULL);
	if (guest_enable_jit(&guest))
		return -1;
	guest.accel.jit->return_exceptions = false;
	guest.accel.jit->arena_size = 32 * 1024; /* a block may need a third of it */
	code = guest_map(&guest, CODE, PAGE_SIZE, GUEST_W | GUEST_X);
	data = guest_map(&guest, DATA, PAGE_SIZE, GUEST_W);
	guest_map(&guest, ALIAS, PAGE_SIZE, GUEST_W);
	guest_user64(&guest);
	*pte(ALIAS) = (*pte(ALIAS) & ~0x000ffffffffff000ull) | gpa_of(code);
	cpus[0] = guest.c;
	for (unsigned i = 1; i < NCPU; i++) {
		if (add_cpu(i))
			return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	cache_emptied = guest.accel.jit->flushes;
	for (unsigned i = 1; i < NCPU; i++) {
		jit_cpu_fini(cpus[i]);
		interp_fini(cpus[i]);
		mmu_fini(cpus[i]);
		free(cpus[i]);
	}
	guest_destroy(&guest);
	codesync_fini(&guest.accel.a);
	return 0;
}

static void *cpu_thread(void *arg)
{
	struct soft_cpu *c = arg;

	soft_vcpu_run(&c->v);
	return NULL;
}

static pthread_t threads[NCPU];

static void begin(void)
{
	static const uint8_t function[] = {0xb8, 0, 0, 0, 0, 0xc3}; /* mov eax, imm; ret */
	/* A function that calls, then does the same; and what it calls: mov eax, 50; dec eax; jnz; ret. */
	static const uint8_t call[] = {0xe8, (CALLED - RETURNED_TO) & 0xff, (CALLED - RETURNED_TO) >> 8, 0, 0};
	static const uint8_t called[] = {0xb8, 50, 0, 0, 0, 0xff, 0xc8, 0x75, 0xfc, 0xc3};

	memset(data, 0, PAGE_SIZE);
	memcpy(code, caller, (size_t)(programs_end - caller));
	for (unsigned i = 0; i < NCPU; i++)
		memcpy(code + FUNCTION - 64 * i, function, sizeof(function));
	memcpy(code + RETURNED_TO - sizeof(call), call, sizeof(call));
	memcpy(code + RETURNED_TO, function, sizeof(function));
	memcpy(code + CALLED, called, sizeof(called));
	mem_mark_written(&guest.mem, code, PAGE_SIZE);
	atomic_store(&crashed, false);
}

static void start(unsigned n, uint64_t rip, uint64_t rsi, uint64_t rdx, uint64_t r8)
{
	struct cpu_state *s = &cpus[n]->s;

	memset(s->gpr, 0, sizeof(s->gpr));
	s->gpr[R_RBX] = DATA;
	s->gpr[R_RDI] = DATA + ROUNDS + 64 * n;
	s->gpr[R_RSP] = DATA + STACKS + 0x200 * (n + 1);
	s->gpr[R_RSI] = rsi;
	s->gpr[R_RDX] = rdx;
	s->gpr[R_R8] = r8;
	s->rip = rip;
	s->mp_state = MP_RUNNING;
	atomic_store(&cpus[n]->v.requests, VCPU_REQ_TLB_FLUSH);
	assert_int_equal(pthread_create(&threads[n], NULL, cpu_thread, cpus[n]), 0);
}

static uint64_t word(unsigned at)
{
	return __atomic_load_n((uint64_t *)(void *)(data + at), __ATOMIC_ACQUIRE);
}

static void stop(void)
{
	for (unsigned i = 0; i < NCPU; i++)
		vcpu_request(&cpus[i]->v, VCPU_REQ_STOP);
	for (unsigned i = 0; i < NCPU; i++)
		pthread_join(threads[i], NULL);
	assert_false(atomic_load(&crashed));
	assert_int_equal(word(BAD), 0);
	for (unsigned i = 0; i < NCPU; i++)
		assert_true(word(ROUNDS + 64 * i) > 0);
}

/* Until the time is over and everybody got somewhere (a loaded host). */
static bool go_on(uint64_t since, bool enough)
{
	bool moved = enough;

	for (unsigned i = 0; i < NCPU; i++)
		moved &= word(ROUNDS + 64 * i) > 100;
	return clock_raw_ns() - since < period_ms * 1000000ull ||
	       (!moved && clock_raw_ns() - since < 60 * NSEC_PER_SEC);
}

/* `function` has its immediate a byte behind `changed`. */
static void rewrite_by_cpu(uint64_t function, uint64_t changed)
{
	uint64_t since = clock_raw_ns();

	begin();
	start(0, AT(caller), function, 0, 0);
	start(1, AT(caller), function, 0, 0);
	start(2, AT(writer), 0, 0, changed + 1);
	while (go_on(since, true))
		usleep(1000);
	stop();
}

static void test_code_written(void **state)
{
	rewrite_by_cpu(CODE + FUNCTION, CODE + FUNCTION);
}

static void test_code_written_elsewhere(void **state)
{
	rewrite_by_cpu(CODE + FUNCTION, ALIAS + FUNCTION);
}

/* What a call returns to is rewritten while the callee runs. */
static void test_return_written(void **state)
{
	rewrite_by_cpu(CODE + RETURNED_TO - 5, CODE + RETURNED_TO);
}

/*
 * Each vCPU changes and runs code of its own, all of it in one page: what one of them invalidates, the others must not
 * find half done. (Was: the page looked free of code before its blocks were dead. Found by the soak on a busy host.)
 */
static void test_code_beside_code(void **state)
{
	uint64_t since = clock_raw_ns();

	begin();
	for (unsigned i = 0; i < NCPU; i++)
		start(i, AT(changer), CODE + FUNCTION - 64 * i, 0, CODE + FUNCTION - 64 * i + 1);
	while (go_on(since, true))
		usleep(1000);
	stop();
}

/* A device writes it; the vCPUs read the sequence number that it writes afterwards. */
static void test_code_by_dma(void **state)
{
	uint64_t since = clock_raw_ns();
	uint32_t n = 0;

	begin();
	for (unsigned i = 0; i < NCPU; i++)
		start(i, AT(caller), CODE + FUNCTION, 0, 0);
	while (go_on(since, n > 20)) {
		n++;
		assert_int_equal(dma_write(&guest.mem, gpa_of(code) + FUNCTION + 1, &n, 4), 0);
		__atomic_store_n((uint32_t *)(void *)(data + SEQ), n, __ATOMIC_RELEASE);
		usleep(n % 50);
	}
	stop();
	assert_true(n > 20);
}

/* Requests are taken and flushed between turns: once it is taken, the next turn comes after the flush. */
static void flush_and_wait(void)
{
	for (unsigned i = 0; i < NCPU; i++) {
		struct soft_cpu *c = cpus[i];

		vcpu_request(&c->v, VCPU_REQ_TLB_FLUSH);
		while (((atomic_load(&c->v.requests) & VCPU_REQ_TLB_FLUSH) || !(atomic_load(&c->turns) & 1)) &&
		       !atomic_load(&crashed))
			sched_yield();
	}
}

static void test_pages_moved(void **state)
{
	uint64_t since, first;
	uint32_t n = 0;
	uint8_t *page = guest_map(&guest, PAGES, VALUES * PAGE_SIZE, GUEST_W);

	begin();
	memset(page, 0, VALUES * PAGE_SIZE);
	first = *pte(PAGES);
	since = clock_raw_ns();
	for (unsigned i = 0; i < NCPU; i++)
		start(i, AT(reader), PAGES + 8 * i, 0, 0);
	while (go_on(since, n > 20)) {
		uint8_t *next = page + ++n % VALUES * PAGE_SIZE;

		for (unsigned i = 0; i < NCPU; i++)
			__atomic_store_n((uint32_t *)(void *)(next + 8 * i), n, __ATOMIC_RELAXED);
		__atomic_store_n(pte(PAGES), first + n % VALUES * PAGE_SIZE, __ATOMIC_SEQ_CST);
		flush_and_wait();
		__atomic_store_n((uint32_t *)(void *)(data + SEQ), n, __ATOMIC_RELEASE);
	}
	stop();
	assert_true(n > 20);
}

/* [FAR + 0xffe] and its upper half at FAR + 0x1000, in pages that lie apart. */
static void test_split_lock(void **state)
{
	uint8_t *low = guest_map(&guest, FAR, PAGE_SIZE, GUEST_W), *high;
	uint64_t since = clock_raw_ns();
	uint16_t got;

	guest.next_page += PAGE_SIZE;
	high = guest_map(&guest, FAR + PAGE_SIZE, PAGE_SIZE, GUEST_W);
	assert_ptr_not_equal(high, low + PAGE_SIZE);
	begin();
	memset(high, 0, PAGE_SIZE);
	memset(low, 0, PAGE_SIZE);
	start(0, AT(locker4), FAR + 0xffe, 0x10000, 0);
	start(1, AT(locker2), FAR + 0x1000, 1, 0);
	start(2, AT(locker4), FAR + 0xffe, 0x10000, 0);
	while (go_on(since, true))
		usleep(1000);
	stop();
	/* A vCPU may have stopped between its addition and its count. */
	memcpy(&got, high, 2);
	got = (uint16_t)(got - (word(ROUNDS) + word(ROUNDS + 64) + word(ROUNDS + 128)));
	assert_true(got <= NCPU);
	memcpy(&got, low + 0xffe, 2);
	assert_int_equal(got, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_code_written),     cmocka_unit_test(test_code_written_elsewhere),
	    cmocka_unit_test(test_code_beside_code), cmocka_unit_test(test_code_by_dma),
	    cmocka_unit_test(test_pages_moved),	     cmocka_unit_test(test_split_lock),
	    cmocka_unit_test(test_return_written)};
	int failed;

	if (argc > 1)
		period_ms = (unsigned)strtoul(argv[1], NULL, 0);
	failed = cmocka_run_group_tests(tests, setup, teardown);
	printf("the cache was emptied %" PRIu64 " times\n", failed ? 0 : cache_emptied);
	return failed;
}
