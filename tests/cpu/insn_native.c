/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The reference: the original bytes on the host CPU, in a child process that has
 * the test's pages at the same addresses. Every case ends in a signal (INT3
 * behind the instruction, or its exception); the signal frame is the result.
 */
#include <asm/prctl.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include "insn_case.h"

/* State to load sits at a fixed low address so that the last loads need no register. */
#define CTL 0x0f000000

struct shared {
	volatile unsigned next; /* case being run: tells the parent where the child died */
	struct insn_case *cases;
	struct case_result *results;
};

static struct shared *sh;
static unsigned max;
static sigjmp_buf back;
static struct case_result *current;

/* Loads everything from CTL (struct case_state) and jumps to its rip. */
__asm__(".text\n"
	"native_enter:\n"
	"	mov $-1, %eax\n"
	"	mov $-1, %edx\n"
	"	xrstor64 0x0f000000+192\n"
	"	pushq 0x0f000000+136\n"
	"	popfq\n"
	"	mov 0x0f000000+0, %rax\n"
	"	mov 0x0f000000+8, %rcx\n"
	"	mov 0x0f000000+16, %rdx\n"
	"	mov 0x0f000000+24, %rbx\n"
	"	mov 0x0f000000+32, %rsp\n"
	"	mov 0x0f000000+40, %rbp\n"
	"	mov 0x0f000000+48, %rsi\n"
	"	mov 0x0f000000+56, %rdi\n"
	"	mov 0x0f000000+64, %r8\n"
	"	mov 0x0f000000+72, %r9\n"
	"	mov 0x0f000000+80, %r10\n"
	"	mov 0x0f000000+88, %r11\n"
	"	mov 0x0f000000+96, %r12\n"
	"	mov 0x0f000000+104, %r13\n"
	"	mov 0x0f000000+112, %r14\n"
	"	mov 0x0f000000+120, %r15\n"
	"	jmp *0x0f000000+128\n");
void native_enter(void);

/* The same into 32-bit code: data segments that compatibility mode can use, and a far jump. */
__asm__(".text\n"
	"native_enter_compat:\n"
	"	mov $-1, %eax\n"
	"	mov $-1, %edx\n"
	"	xrstor64 0x0f000000+192\n"
	"	mov $0x2b, %eax\n"
	"	mov %eax, %ds\n"
	"	mov %eax, %es\n"
	"	xor %r8d, %r8d\n"
	"	xor %r9d, %r9d\n"
	"	xor %r10d, %r10d\n"
	"	xor %r11d, %r11d\n"
	"	xor %r12d, %r12d\n"
	"	xor %r13d, %r13d\n"
	"	xor %r14d, %r14d\n"
	"	xor %r15d, %r15d\n"
	"	pushq 0x0f000000+136\n"
	"	popfq\n"
	"	mov 0x0f000000+0, %rax\n"
	"	mov 0x0f000000+8, %rcx\n"
	"	mov 0x0f000000+16, %rdx\n"
	"	mov 0x0f000000+24, %rbx\n"
	"	mov 0x0f000000+32, %rsp\n"
	"	mov 0x0f000000+40, %rbp\n"
	"	mov 0x0f000000+48, %rsi\n"
	"	mov 0x0f000000+56, %rdi\n"
	"	ljmp *0x0f000000+128\n");
void native_enter_compat(void);
#define USER_CS32 0x23 /* Linux's */
_Static_assert(offsetof(struct case_state, xsave) == 192, "native_enter's offsets");
_Static_assert(offsetof(struct case_state, rip) == 128, "native_enter's offsets");

static void on_signal(int sig, siginfo_t *info, void *context)
{
	static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
				      REG_R8,  REG_R9,	REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	struct case_result *r = current;
	const uint8_t *frame;

	for (unsigned k = 0; k < 16; k++)
		r->out.gpr[k] = (uint64_t)g[order[k]];
	r->out.rip = (uint64_t)g[REG_RIP];
	r->out.rflags = (uint64_t)g[REG_EFL];
	r->trap = (int)g[REG_TRAPNO];
	r->err = (uint64_t)g[REG_ERR];
	r->cr2 = (uint64_t)g[REG_CR2];
	if (r->trap == 3)
		r->out.rip--; /* the INT3 itself */
	/* The frame says in its software bytes how long its XSAVE image is. */
	frame = (const uint8_t *)uc->uc_mcontext.fpregs;
	memset(r->out.xsave, 0, CPU_XSAVE_SIZE);
	memcpy(r->out.xsave, frame, MIN(ld32le(frame + 464 + 16), (uint32_t)CPU_XSAVE_SIZE));
	siglongjmp(back, 1);
}

static void map_fixed(uint64_t at, size_t size, int prot)
{
	void *p = (void *)(uintptr_t)at;

	if (mmap(p, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != p)
		_exit(3);
}

static void run_case(const struct insn_case *ic, struct case_result *r)
{
	struct rng rng = {ic->data_seed};
	uint8_t *code = (uint8_t *)(uintptr_t)CASE_CODE;

	case_fill(&rng, ic->fill, (void *)(uintptr_t)CASE_DATA, CASE_DATA_SIZE);
	memcpy((void *)(uintptr_t)ic->in.rip, ic->bytes, ic->len);
	memcpy((void *)(uintptr_t)CTL, &ic->in, sizeof(ic->in));
	current = r;
	if (ic->compat) /* offset and selector, over the unused upper half of rip */
		st16le((uint8_t *)(uintptr_t)CTL + offsetof(struct case_state, rip) + 4, USER_CS32);
	if (sigsetjmp(back, 1) == 0) {
		if (ic->compat)
			native_enter_compat();
		else
			native_enter();
	}
	if (ic->compat) /* FNSTENV of the next case shows DS */
		__asm__ volatile("mov %0, %%ds\n\tmov %0, %%es" : : "r"(0));
	memcpy(r->data, (void *)(uintptr_t)CASE_DATA, CASE_DATA_SIZE);
	memset(code + (ic->in.rip - CASE_CODE), 0xcc, ic->len);
	if (memcmp(code, code + 1, CASE_CODE_SIZE - 1) != 0) /* a bit offset or the like led there */
		memset(code, 0xcc, CASE_CODE_SIZE);
	r->valid = true;
}

static void child(unsigned first, unsigned n)
{
	static const int signals[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
	struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct rng rng = {1};
	stack_t ss = {.ss_size = 256 * 1024};

	ss.ss_sp = malloc(ss.ss_size);
	sigaltstack(&ss, NULL);
	for (unsigned k = 0; k < ARRAY_SIZE(signals); k++)
		sigaction(signals[k], &sa, NULL);
	map_fixed(CTL, 0x2000, PROT_READ | PROT_WRITE);
	map_fixed(CASE_CODE, CASE_CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
	map_fixed(CASE_DATA, CASE_DATA_SIZE, PROT_READ | PROT_WRITE);
	map_fixed(CASE_RO, CASE_RO_SIZE, PROT_READ | PROT_WRITE);
	memset((void *)(uintptr_t)CASE_CODE, 0xcc, CASE_CODE_SIZE);
	case_fill(&rng, FILL_BITS, (void *)(uintptr_t)CASE_RO, CASE_RO_SIZE);
	mprotect((void *)(uintptr_t)CASE_RO, CASE_RO_SIZE, PROT_READ);
	syscall(SYS_arch_prctl, ARCH_SET_GS, CASE_GS_BASE);
	alarm(10); /* a child that hangs dies; the parent goes on behind the case */
	for (unsigned k = first; k < n; k++) {
		sh->next = k;
		run_case(&sh->cases[k], &sh->results[k]);
	}
	sh->next = n;
	_exit(0);
}

int native_start(unsigned max_cases)
{
	size_t size = sizeof(*sh) + 64 + max_cases * (sizeof(struct insn_case) + sizeof(struct case_result));

	sh = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		return -errno;
	max = max_cases;
	sh->cases = (struct insn_case *)(void *)((uint8_t *)sh + 64);
	sh->results = (struct case_result *)(void *)(sh->cases + max);
	return 0;
}

void native_run(const struct insn_case *cases, unsigned n)
{
	unsigned first = 0;

	memcpy(sh->cases, cases, n * sizeof(*cases));
	for (unsigned k = 0; k < n; k++)
		sh->results[k].valid = false;
	while (first < n) {
		int status;
		pid_t pid = fork();

		if (pid == 0)
			child(first, n);
		if (pid < 0 || waitpid(pid, &status, 0) != pid) {
			perror("native child");
			exit(2);
		}
		first = sh->next >= n ? n : sh->next + 1;
	}
}

const struct case_result *native_result(unsigned k)
{
	return &sh->results[k];
}

void native_stop(void)
{
	munmap(sh, sizeof(*sh));
}
