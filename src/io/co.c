// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Coroutines by switching stacks (System V ABI for x86-64: the callee-saved
 * registers, MXCSR and the x87 control word belong to the callee). No locks: all
 * state is the thread's.
 */
#include "io/co.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/util.h"

#if defined(__SANITIZE_ADDRESS__)
#define CO_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CO_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define CO_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CO_TSAN 1
#endif
#endif
#ifdef CO_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef CO_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define GUARD_SIZE 4096u
#define POOL_MAX   64u

struct co {
	void *sp;	 /* saved stack pointer while not running */
	void *caller_sp; /* of whoever resumed it */
	struct co *caller;
	void (*fn)(void *arg);
	void *arg;
	uint8_t *stack;	 /* the mapping, guard page first */
	struct co *next; /* pool or queue */
	bool ended;
#ifdef CO_ASAN
	void *fake_stack, *caller_fake;
	const void *caller_bottom;
	size_t caller_size;
#endif
#ifdef CO_TSAN
	void *fiber, *caller_fiber;
#endif
};

static _Thread_local struct co *current, *pool;
static _Thread_local unsigned pool_count;

/* Save the callee-saved state, store rsp to *save, load rsp from `to`, restore. */
void co_switch(void **save, void *to);
__asm__(".text\n"
	".p2align 4\n"
	".globl co_switch\n"
	".type co_switch, @function\n"
	"co_switch:\n"
	"	push %rbp\n"
	"	push %rbx\n"
	"	push %r12\n"
	"	push %r13\n"
	"	push %r14\n"
	"	push %r15\n"
	"	sub $8, %rsp\n"
	"	stmxcsr (%rsp)\n"
	"	fnstcw 4(%rsp)\n"
	"	mov %rsp, (%rdi)\n"
	"	mov %rsi, %rsp\n"
	"	ldmxcsr (%rsp)\n"
	"	fldcw 4(%rsp)\n"
	"	add $8, %rsp\n"
	"	pop %r15\n"
	"	pop %r14\n"
	"	pop %r13\n"
	"	pop %r12\n"
	"	pop %rbx\n"
	"	pop %rbp\n"
	"	ret\n"
	".size co_switch, . - co_switch\n");

static void switch_out(struct co *co)
{
	current = co->caller;
#ifdef CO_TSAN
	__tsan_switch_to_fiber(co->caller_fiber, 0);
#endif
#ifdef CO_ASAN
	__sanitizer_start_switch_fiber(co->ended ? NULL : &co->fake_stack, co->caller_bottom, co->caller_size);
#endif
	co_switch(&co->sp, co->caller_sp);
#ifdef CO_ASAN
	__sanitizer_finish_switch_fiber(co->fake_stack, &co->caller_bottom, &co->caller_size);
#endif
}

static void co_main(void)
{
	struct co *co = current;

#ifdef CO_ASAN
	__sanitizer_finish_switch_fiber(NULL, &co->caller_bottom, &co->caller_size);
#endif
	co->fn(co->arg);
	co->ended = true;
	switch_out(co);
	BUG("a coroutine that ended was resumed");
}

static void co_free(struct co *co)
{
#ifdef CO_TSAN
	__tsan_destroy_fiber(co->fiber);
#endif
	if (pool_count < POOL_MAX) {
		co->next = pool;
		pool = co;
		pool_count++;
		return;
	}
	munmap(co->stack, GUARD_SIZE + CO_STACK_SIZE);
	free(co);
}

static void switch_in(struct co *co)
{
	co->caller = current;
	current = co;
#ifdef CO_TSAN
	co->caller_fiber = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(co->fiber, 0);
#endif
#ifdef CO_ASAN
	__sanitizer_start_switch_fiber(&co->caller_fake, co->stack + GUARD_SIZE, CO_STACK_SIZE);
#endif
	co_switch(&co->caller_sp, co->sp);
#ifdef CO_ASAN
	__sanitizer_finish_switch_fiber(co->caller_fake, NULL, NULL);
#endif
	if (co->ended)
		co_free(co);
}

static struct co *co_alloc(void)
{
	struct co *co = pool;

	if (co) {
		pool = co->next;
		pool_count--;
		return co;
	}
	co = calloc(1, sizeof(*co));
	if (!co)
		return NULL;
	co->stack = mmap(NULL, GUARD_SIZE + CO_STACK_SIZE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (co->stack == MAP_FAILED || mprotect(co->stack, GUARD_SIZE, PROT_NONE) < 0) {
		if (co->stack != MAP_FAILED)
			munmap(co->stack, GUARD_SIZE + CO_STACK_SIZE);
		free(co);
		return NULL;
	}
	return co;
}

int co_spawn(void (*fn)(void *arg), void *arg)
{
	struct co *co = co_alloc();
	uint64_t *sp;

	if (!co)
		return -ENOMEM;
	co->fn = fn;
	co->arg = arg;
	co->ended = false;
	co->next = NULL;
	/* What co_switch pops: control words, six registers, the return address; then a zero return address
	 * for co_main, at which rsp is 8 below a multiple of 16 as after a call. */
	sp = (uint64_t *)(void *)(co->stack + GUARD_SIZE + CO_STACK_SIZE) - 1;
	*sp = 0;
	*--sp = (uint64_t)(uintptr_t)co_main;
	for (int i = 0; i < 6; i++)
		*--sp = 0;
	*--sp = 0x1f80 | (uint64_t)0x37f << 32;
	co->sp = sp;
#ifdef CO_TSAN
	co->fiber = __tsan_create_fiber(0);
#endif
	switch_in(co);
	return 0;
}

struct co *co_self(void)
{
	return current;
}

void co_wait(void)
{
	BUG_ON(!current);
	switch_out(current);
}

void co_wake(struct co *co)
{
	BUG_ON(co == current);
	switch_in(co);
}

void co_pool_free(void)
{
	while (pool) {
		struct co *co = pool;

		pool = co->next;
		munmap(co->stack, GUARD_SIZE + CO_STACK_SIZE);
		free(co);
	}
	pool_count = 0;
}

void co_queue_wait(struct co_queue *q)
{
	struct co *self = current;

	BUG_ON(!self);
	self->next = NULL;
	if (q->tail)
		q->tail->next = self;
	else
		q->head = self;
	q->tail = self;
	co_wait();
}

bool co_queue_wake_one(struct co_queue *q)
{
	struct co *co = q->head;

	if (!co)
		return false;
	q->head = co->next;
	if (!q->head)
		q->tail = NULL;
	co->next = NULL;
	co_wake(co);
	return true;
}

/* Those that wait again meanwhile are not woken twice. */
void co_queue_wake_all(struct co_queue *q)
{
	struct co *co = q->head;

	q->head = q->tail = NULL;
	while (co) {
		struct co *next = co->next;

		co->next = NULL;
		co_wake(co);
		co = next;
	}
}
