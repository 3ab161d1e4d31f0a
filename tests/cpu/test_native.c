/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Native ring 3: state in and out, every way of leaving, flushes, code that must not run there, hostile guests. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "cpu/soft/native.h"
#include "soft_guest.h"

#define CODE  0x400000ull
#define DATA  0x600000ull
#define STACK 0x7ffffff00000ull

static uint8_t *code, *data;
/* cmocka puts its own handlers before each test; the interpreter needs the one it installed. */
static struct sigaction engine_sigfpe;

static int setup(void **state)
{
	struct guest *g = calloc(1, sizeof(*g));
	struct err err = {0};

	if (!g || guest_create_shared(g))
		return -1;
	guest_user64(g);
	code = guest_map(g, CODE, 2 * PAGE_SIZE, GUEST_X);
	data = guest_map(g, DATA, 2 * PAGE_SIZE, GUEST_W);
	guest_map(g, STACK - PAGE_SIZE, PAGE_SIZE, GUEST_W);
	g->accel.native = NATIVE_ALWAYS;
	if (native_cpu_init(g->c, &err))
		return -1;
	g->c->s.rip = CODE;
	g->c->s.gpr[R_RSP] = STACK - 64;
	soft_mode_changed(g->c);
	/* State that all components allow. */
	st16le(g->c->s.xsave, 0x37f);
	st32le(g->c->s.xsave + 24, 0x1f80);
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct guest *g = *state;

	native_cpu_fini(g->c);
	guest_destroy(g);
	free(g);
	return 0;
}

static void put(struct guest *g, const char *bytes, size_t n)
{
	memset(code, 0x90, PAGE_SIZE);
	memcpy(code, bytes, n);
	mem_mark_written(&g->mem, code, PAGE_SIZE);
	g->c->s.rip = CODE;
}
#define PUT(text) put(g, text, sizeof(text) - 1)

static enum native_exit run(struct guest *g)
{
	sigaction(SIGFPE, &engine_sigfpe, NULL);
	g->c->native_armed = true;
	return native_user_run(g->c);
}

/* The page-table entry of a page of `data`. */
static uint64_t *entry(struct guest *g, uint64_t lin)
{
	uint64_t table = g->c->s.cr3;

	for (unsigned shift = 39; shift > 12; shift -= 9)
		table = *(uint64_t *)(void *)(g->ram + table + (lin >> shift & 511) * 8) & 0x000ffffffffff000ull;
	return (uint64_t *)(void *)(g->ram + table + (lin >> 12 & 511) * 8);
}

static void test_loop(void **state)
{
	struct guest *g = *state;

	/* mov ecx, 1000000; 1: add rax, rcx; dec rcx; jnz 1b; mov [DATA], rax; syscall */
	PUT("\xb9\x40\x42\x0f\x00\x48\x01\xc8\x48\xff\xc9\x75\xf8\x48\x89\x04\x25\x00\x00\x60\x00\x0f\x05");
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE + 21);
	assert_int_equal(g->c->s.gpr[R_RAX], 500000500000ull);
	assert_int_equal(ld64le(data), 500000500000ull);
	assert_int_equal(*entry(g, DATA) & 0x60, 0x60);
	assert_int_equal(g->c->n_native[NATIVE_STAT_SYSCALLS], 1);
}

static void test_state(void **state)
{
	struct guest *g = *state;
	struct cpu_state before, *s = &g->c->s;

	srand(7);
	PUT("\x0f\x05");
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 16; i++)
			s->gpr[i] = (uint64_t)rand() << 40 ^ (uint64_t)rand() << 20 ^ (uint64_t)rand();
		for (unsigned i = 160; i < 416; i++) /* XMM */
			s->xsave[i] = (uint8_t)rand();
		for (unsigned i = 0; i < 8; i++) { /* x87: ten bytes each */
			for (unsigned k = 0; k < 8; k++)
				s->xsave[32 + 16 * i + k] = (uint8_t)rand();
			s->xsave[32 + 16 * i + 7] |= 0x80;
			st16le(s->xsave + 32 + 16 * i + 8, (uint16_t)(0x3f00 + rand() % 256));
		}
		s->xsave[4] = 0xff; /* tags: all valid */
		for (unsigned i = 576; i < MIN(g->c->native->xsave_size, sizeof(s->xsave)); i++)
			s->xsave[i] = (uint8_t)rand();
		s->rflags = 0x202 | ((uint64_t)rand() & (FLAG_ARITH | FLAG_DF));
		s->seg[S_FS].base = (uint64_t)rand() << 12;
		s->seg[S_GS].base = (uint64_t)rand() << 12;
		s->rip = CODE;
		before = *s;
		assert_int_equal(run(g), NATIVE_STEP);
		assert_int_equal(s->rip, CODE);
		assert_int_equal(s->rflags, before.rflags);
		before.gpr[R_RCX] = s->gpr[R_RCX]; /* SYSCALL's */
		before.gpr[R_R11] = s->gpr[R_R11];
		assert_memory_equal(s->gpr, before.gpr, sizeof(s->gpr));
		assert_int_equal(s->seg[S_FS].base, before.seg[S_FS].base);
		assert_int_equal(s->seg[S_GS].base, before.seg[S_GS].base);
		assert_memory_equal(s->xsave + 32, before.xsave + 32, 416 - 32);
		/* What the host's components of AVX, AVX-512 hold; the gaps between them are nobody's. */
		assert_memory_equal(s->xsave + 576, before.xsave + 576, 256);
	}
}

/* The instruction at CODE leaves; the interpreter then raises what it must. */
static void leaves(struct guest *g, uint8_t vector, uint64_t rip)
{
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, rip);
	assert_int_equal(interp_step(g->c), EXC_RAISED);
	assert_int_equal(g->c->exc_vector, vector);
	g->c->exc_raised = false;
	g->c->s.rip = CODE;
}

static void test_exceptions(void **state)
{
	struct guest *g = *state;

	PUT("\x90\x31\xc9\xf7\xf1"); /* nop; xor ecx, ecx; div ecx */
	leaves(g, EXC_DE, CODE + 3);
	PUT("\x0f\x0b");
	leaves(g, EXC_UD, CODE);
	PUT("\xf4"); /* hlt */
	leaves(g, EXC_GP, CODE);
	PUT("\x90\xfa"); /* cli */
	leaves(g, EXC_GP, CODE + 1);
	PUT("\xe4\x80"); /* in al, 0x80 */
	leaves(g, EXC_GP, CODE);
	PUT("\xcd\x21"); /* int 0x21 */
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE);
	PUT("\xcc");
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE);
	PUT("\xcd\x80");
	g->c->s.gpr[R_RAX] = 20;
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE);
	assert_int_equal(g->c->s.gpr[R_RAX], 20);
	PUT("\x48\xb8\x00\x00\x00\x00\x00\x80\x00\x00\x8a\x00"); /* mov rax, 1 << 47; mov al, [rax] */
	leaves(g, EXC_GP, CODE + 10);
	PUT("\xf2\x0f\x5e\xc1"); /* divsd, zero by zero, unmasked */
	st32le(g->c->s.xsave + 24, 0x1f00);
	memset(g->c->s.xsave + 160, 0, 32);
	leaves(g, EXC_XM, CODE);
	st32le(g->c->s.xsave + 24, 0x1f80);
	/* pushf; or dword [rsp], 0x100; popf; nop: the trap comes after the nop */
	PUT("\x9c\x81\x0c\x24\x00\x01\x00\x00\x9d\x90\x90");
	assert_int_equal(run(g), NATIVE_RAISED);
	assert_int_equal(g->c->exc_vector, EXC_DB);
	assert_int_equal(g->c->s.rip, CODE + 10);
	assert_true(g->c->s.rflags & FLAG_TF);
	assert_true(g->c->s.dr[6] & BIT(14));
}

static void test_page_faults(void **state)
{
	struct guest *g = *state;

	PUT("\x8a\x04\x25\x00\x00\x70\x00"); /* mov al, [0x700000] */
	leaves(g, EXC_PF, CODE);
	assert_int_equal(g->c->exc_cr2, 0x700000);
	assert_int_equal(g->c->exc_code, 4);
	PUT("\x88\x04\x25\x08\x00\x40\x00"); /* mov [CODE + 8], al */
	leaves(g, EXC_PF, CODE);
	assert_int_equal(g->c->exc_cr2, CODE + 8);
	assert_int_equal(g->c->exc_code, 7);
	PUT("\x68\x00\x00\x60\x00\xc3"); /* push DATA; ret: not executable */
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, DATA);
	assert_int_equal(interp_step(g->c), EXC_RAISED);
	assert_int_equal(g->c->exc_vector, EXC_PF);
	assert_int_equal(g->c->exc_code, 0x15);
}

/* Reading first maps the page read-only, the store then sets D. */
static void test_dirty(void **state)
{
	struct guest *g = *state;

	PUT("\x8a\x04\x25\x00\x10\x60\x00\x0f\x05"); /* mov al, [DATA + 4096]; syscall */
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE + 7);
	assert_int_equal(*entry(g, DATA + PAGE_SIZE) & 0x60, 0x20);
	PUT("\x88\x04\x25\x00\x10\x60\x00\x0f\x05"); /* mov [DATA + 4096], al; syscall */
	g->c->s.rip = CODE;
	g->c->s.gpr[R_RAX] = 0x55;
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(*entry(g, DATA + PAGE_SIZE) & 0x60, 0x60);
	assert_int_equal(data[PAGE_SIZE], 0x55);
}

static void test_flush(void **state)
{
	struct guest *g = *state;
	uint64_t *e = entry(g, DATA), *e2 = entry(g, DATA + PAGE_SIZE), first = *e;

	PUT("\x8a\x04\x25\x00\x00\x60\x00\x0f\x05"); /* mov al, [DATA]; syscall */
	data[0] = 1;
	data[PAGE_SIZE] = 2;
	for (unsigned how = 0; how < 4; how++) {
		g->c->s.rip = CODE;
		assert_int_equal(run(g), NATIVE_STEP);
		assert_int_equal(g->c->s.gpr[R_RAX] & 0xff, how % 2 ? 2 : 1);
		*e = how % 2 ? first : *e2 | 0x20;
		if (how < 2)
			mmu_invlpg(g->c, DATA);
		else
			mmu_switch_cr3(g->c, g->c->s.cr3, false);
	}
	/* Rights that went away. */
	*e &= ~4ull;
	mmu_invlpg(g->c, DATA);
	g->c->s.rip = CODE;
	leaves(g, EXC_PF, CODE);
	assert_int_equal(g->c->exc_code, 5);
}

static void test_watched(void **state)
{
	struct guest *g = *state;

	PUT("\x90\x90\x90\x90\x90\x90\x90\x90\x0f\x31\x90\x0f\xa2\x90\x0f\x05"); /* ... rdtsc; nop; cpuid; nop; syscall
										  */
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE + 8);
	g->c->s.rip += 2;
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE + 11);
	assert_int_equal(g->c->n_native[NATIVE_STAT_WATCH_HITS], 2);
	g->c->s.rip += 2;
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE + 14);
}

static void test_bad_code(void **state)
{
	struct guest *g = *state;

	PUT("\x90\x90\x90\x90\x90\x90\x90\x90\x0f\x31\x0f\x31\x0f\x31\x0f\x31\x0f\x31\x0f\x31");
	assert_int_equal(run(g), NATIVE_ATTENTION);
	assert_int_equal(g->c->s.rip, CODE);
	assert_false(g->c->native_armed);
	/* Across the end of a page. */
	memset(code, 0x90, 2 * PAGE_SIZE);
	memcpy(code + PAGE_SIZE - 1, "\x0f\x31\x0f\x05", 4);
	code_written(&g->accel.a, (uint64_t)(code - g->ram) >> PAGE_SHIFT, 0, (unsigned)PAGE_SIZE);
	g->c->s.rip = CODE + PAGE_SIZE - 8;
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE + PAGE_SIZE - 1);
}

/* An instruction across two pages that each need most of the debug registers: they must not drive each other out for
 * ever. */
static void test_watch_both(void **state)
{
	struct guest *g = *state;

	memset(code, 0x90, 2 * PAGE_SIZE);
	for (unsigned i = 0; i < 3; i++) {
		memcpy(code + 512 + 64 * i, "\x0f\x31", 2);
		memcpy(code + PAGE_SIZE + 512 + 64 * i, "\x0f\xa2", 2);
	}
	memcpy(code + PAGE_SIZE - 2, "\xb8\x01\x02\x03\x04\x0f\x05", 7); /* mov eax, imm32; syscall */
	g->c->s.rip = CODE + PAGE_SIZE - 16;
	assert_int_equal(run(g), NATIVE_ATTENTION);
	assert_int_equal(g->c->s.rip, CODE + PAGE_SIZE - 2);
	assert_false(g->c->native_armed);
}

/* A page that others decode must not be written unseen, and code that runs here is looked through again when written.
 */
static void test_code_bits(void **state)
{
	struct guest *g = *state;
	uint64_t index = (uint64_t)(data - g->ram) >> PAGE_SHIFT;

	PUT("\x88\x04\x25\x00\x00\x60\x00\x0f\x05"); /* mov [DATA], al; syscall */
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE + 7);
	code_note(g->c, index, 0, 64);
	g->c->s.rip = CODE;
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE);
	assert_int_equal(interp_step(g->c), 0);
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE + 7);
	/* Through the host, as DMA would: the page then holds RDTSC. */
	g->c->s.rip = CODE;
	memcpy(code, "\x0f\x1f\x44\x00\x00\x90\x0f\x31", 8);
	mem_mark_written(&g->mem, code, 8);
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, CODE + 6);
}

/* Code that writes and runs a page by turns. */
static void test_self_modifying(void **state)
{
	struct guest *g = *state;

	*entry(g, DATA) &= ~(1ull << 63);
	mmu_flush_all(g->c);
	/* mov dword [DATA], 0xc3010404 | k; call DATA; four times with another k */
	memcpy(data, "\x04\x00\xc3", 3);			     /* add al, 0; ret */
	PUT("\x31\xc0\xb9\x04\x00\x00\x00"			     /* xor eax, eax; mov ecx, 4 */
	    "\x88\x0c\x25\x01\x00\x60\x00"			     /* 1: mov [DATA + 1], cl */
	    "\xba\x00\x00\x60\x00\xff\xd2\xff\xc9\x75\xee\x0f\x05"); /* mov edx, DATA; call rdx; dec ecx; jnz 1b */
	for (unsigned n = 0; n < 1000; n++) {
		enum native_exit e = run(g);

		assert_int_equal(e, NATIVE_STEP);
		if (g->c->s.rip == CODE + 25)
			break;
		assert_int_equal(interp_step(g->c), 0);
		g->c->code_changed = false;
	}
	assert_int_equal(g->c->s.rip, CODE + 25);
	assert_int_equal(g->c->s.gpr[R_RAX] & 0xff, 4 + 3 + 2 + 1);
}

/* A guest that knows where the stub is gets nothing done there. */
static void test_hostile_stub(void **state)
{
	struct guest *g = *state;
	struct native_proc *p = &g->c->native->ctx[0].proc;

	PUT("\xff\xe3"); /* jmp rbx */
	g->c->s.gpr[R_RBX] = 0;
	assert_int_equal(run(g), NATIVE_STEP); /* the process exists */
	g->c->s.rip = CODE;
	g->c->s.gpr[R_RBX] = p->stub + 0x200;
	g->c->s.gpr[R_RAX] = SYS_mmap;
	g->c->s.gpr[R_RDI] = 0x10000000;
	g->c->s.gpr[R_RSI] = PAGE_SIZE;
	g->c->s.gpr[R_RDX] = 7;
	g->c->s.gpr[R_R10] = 0x11;
	g->c->s.gpr[R_R8] = (uint64_t)g->mem.block[0].fd;
	g->c->s.gpr[R_R9] = 0;
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.gpr[R_RAX], SYS_mmap); /* nobody executed it */
	assert_int_equal(g->c->s.rip, p->stub + 0x200);
	assert_int_equal(interp_step(g->c), EXC_RAISED);
	assert_int_equal(g->c->exc_vector, EXC_PF);
	/* Other calls: a guest's own number for exit, fork, kill. */
	PUT("\x0f\x05");
	for (unsigned nr = 0; nr < 460; nr++) {
		g->c->exc_raised = false;
		g->c->s.rip = CODE;
		g->c->s.gpr[R_RAX] = nr;
		g->c->s.gpr[R_RDI] = g->c->s.gpr[R_RSI] = g->c->s.gpr[R_RDX] = 0;
		assert_int_equal(run(g), NATIVE_STEP);
		assert_int_equal(g->c->s.gpr[R_RAX], nr);
	}
	assert_int_equal(g->c->n_native[NATIVE_STAT_DEAD], 0);
	assert_int_equal(g->c->n_native[NATIVE_STAT_PROCESSES], 1);
	/* The host's vsyscall page. */
	PUT("\xff\xd3"); /* call rbx */
	g->c->s.rip = CODE;
	g->c->s.gpr[R_RBX] = 0xffffffffff600000ull;
	assert_int_equal(run(g), NATIVE_STEP);
	assert_int_equal(g->c->s.rip, 0xffffffffff600000ull);
	assert_int_equal(g->c->s.gpr[R_RSP], STACK - 72);
}

static void *killer(void *arg)
{
	struct guest *g = arg;
	int pid;

	while (!(pid = atomic_load(&g->c->native->pid)))
		sched_yield();
	kill(pid, SIGKILL);
	return NULL;
}

static void test_killed(void **state)
{
	struct guest *g = *state;
	pthread_t t;

	PUT("\xeb\xfe"); /* jmp . */
	assert_int_equal(pthread_create(&t, NULL, killer, g), 0);
	assert_int_equal(run(g), NATIVE_RAISED);
	pthread_join(t, NULL);
	assert_int_equal(g->c->exc_vector, EXC_GP);
	g->c->exc_raised = false;
	PUT("\x0f\x05");
	assert_int_equal(run(g), NATIVE_STEP); /* in a new one */
	assert_int_equal(g->c->n_native[NATIVE_STAT_PROCESSES], 2);
	/* While nothing is in it. */
	assert_true(g->c->native->ctx[0].proc.pid > 0); /* 0 would be all of us */
	kill(g->c->native->ctx[0].proc.pid, SIGKILL);
	assert_int_equal(run(g), NATIVE_NO);
	assert_int_equal(run(g), NATIVE_STEP);
}

static void *kicker(void *arg)
{
	struct guest *g = arg;

	while (!atomic_load(&g->c->native->pid))
		sched_yield();
	atomic_fetch_or(&g->c->v.requests, VCPU_REQ_INTR);
	native_kick(g->c);
	return NULL;
}

static void test_kick(void **state)
{
	struct guest *g = *state;
	pthread_t t;

	PUT("\xeb\xfe"); /* jmp . */
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(pthread_create(&t, NULL, kicker, g), 0);
		assert_int_equal(run(g), NATIVE_ATTENTION);
		assert_int_equal(g->c->s.rip, CODE);
		pthread_join(t, NULL);
		atomic_store(&g->c->v.requests, 0);
	}
}

static void *protector(void *arg)
{
	struct guest *g = arg;
	uint64_t page = (uint64_t)(data - g->ram) >> PAGE_SHIFT;

	/* Until the program counts. */
	while (__atomic_load_n((uint64_t *)(void *)data, __ATOMIC_RELAXED) < 1000)
		sched_yield();
	code_note(g->c, page, 0, (unsigned)PAGE_SIZE);
	/* From here on the page does not change without code_written. */
	for (unsigned i = 0; i < 100; i++) {
		uint64_t v = __atomic_load_n((uint64_t *)(void *)data, __ATOMIC_RELAXED);

		sched_yield();
		if (v != __atomic_load_n((uint64_t *)(void *)data, __ATOMIC_RELAXED))
			return (void *)1;
	}
	return NULL;
}

static void test_protect(void **state)
{
	struct guest *g = *state;
	pthread_t t;
	void *bad;

	PUT("\x48\xff\x04\x25\x00\x00\x60\x00\xeb\xf6"); /* 1: inc qword [DATA]; jmp 1b */
	assert_int_equal(pthread_create(&t, NULL, protector, g), 0);
	assert_int_equal(run(g), NATIVE_STEP); /* the store that must be done by the interpreter */
	pthread_join(t, &bad);
	assert_null(bad);
}

struct reader {
	struct guest *g;
	uint64_t page;
	unsigned off;
	atomic_bool done;
};

static void *reader(void *arg)
{
	struct reader *r = arg;

	code_note(r->g->c, r->page, r->off, 64);
	atomic_store(&r->done, true);
	return NULL;
}

/* Who finds the page noted as code already may not read it either while a process can still write it. */
static void test_second_reader(void **state)
{
	struct guest *g = *state;
	struct reader first = {.g = g, .page = (uint64_t)(data - g->ram) >> PAGE_SHIFT}, second = first;
	pthread_t t1, t2;
	pid_t pid;

	PUT("\x48\xff\x04\x25\x00\x00\x60\x00\x0f\x05"); /* inc qword [DATA]; syscall */
	assert_int_equal(run(g), NATIVE_STEP);
	assert_true(g->mem.page_bits[first.page] & MEM_PAGE_NATIVE);
	/* A process that does not hear the signal stands for one that is slow to stop. */
	pid = fork();
	if (!pid) {
		signal(SIGUSR1, SIG_IGN);
		for (;;)
			pause();
	}
	atomic_store(&g->c->native->pid, pid);
	assert_int_equal(pthread_create(&t1, NULL, reader, &first), 0);
	while (!(__atomic_load_n(&g->mem.page_bits[first.page], __ATOMIC_SEQ_CST) & MEM_PAGE_CODE))
		sched_yield();
	assert_int_equal(pthread_create(&t2, NULL, reader, &second), 0);
	usleep(100000); /* enough for a wrong one to come through nearly always */
	assert_false(atomic_load(&first.done));
	assert_false(atomic_load(&second.done));
	atomic_store(&g->c->native->pid, 0);
	atomic_fetch_add(&g->c->native->rounds, 1);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* More address spaces than processes. */
static void test_many(void **state)
{
	struct guest *g = *state;

	PUT("\x0f\x05");
	g->c->s.cr4 |= CR4_PCIDE;
	for (unsigned i = 0; i < 3 * NATIVE_CONTEXTS; i++) {
		mmu_switch_cr3(g->c, (g->c->s.cr3 & PAGE_MASK) | (i % (NATIVE_CONTEXTS + 3)), true);
		assert_int_equal(run(g), NATIVE_STEP);
	}
	assert_int_equal(g->c->n_native[NATIVE_STAT_PROCESSES], NATIVE_CONTEXTS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(loop),		  TEST(state),	      TEST(exceptions), TEST(page_faults), TEST(dirty),
	    TEST(flush),	  TEST(watched),      TEST(watch_both), TEST(bad_code),	   TEST(code_bits),
	    TEST(self_modifying), TEST(hostile_stub), TEST(killed),	TEST(kick),	   TEST(protect),
	    TEST(second_reader),  TEST(many),
	};

	struct guest *g = calloc(1, sizeof(*g));
	struct native_proc probe = {.stub = 1ull << 40};
	struct err err = {0};

	if (!g || guest_create(g))
		return 1;
	if (native_proc_start(&probe, NULL, 0, &err)) {
		printf("skipped: %s\n", err.msg);
		return 77;
	}
	native_proc_end(&probe);
	sigaction(SIGFPE, NULL, &engine_sigfpe);
	guest_destroy(g);
	free(g);
	return cmocka_run_group_tests_name("native", tests, NULL, NULL);
}
