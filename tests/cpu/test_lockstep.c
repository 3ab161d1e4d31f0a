/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Lockstep finds what is wrong: a program runs in it without a difference, and
 * with each of several instructions translated to nothing (jit.spoil) the
 * difference is reported and the machine is asked to end with a status.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "cpu/soft/jit.h"
#include "cpu/soft/lockstep.h"
#include "soft_guest.h"

#define CODE  0x10000000ull
#define DATA  0x20000000ull
#define STACK 0x30000000ull

/* Stores, RDTSC, vector and x87 registers, a repeated string, flags in registers, a locked instruction; then a fault.
 */
extern const uint8_t program_start[], program_end[];
__asm__(".pushsection .rodata\n"
	"program_start:\n"
	"	mov $0x20000000, %ebx\n"
	"	mov $50, %ecx\n"
	"1:	rdtsc\n"
	"	shl $32, %rdx\n"
	"	or %rdx, %rax\n"
	"	mov %rax, (%rbx)\n"
	"	rdtsc\n"
	"	bswap %rax\n"
	"	stc\n"
	"	cmc\n"
	"	adc $1, %rax\n"
	"	movnti %rax, 8(%rbx)\n"
	"	movups 48(%rbx), %xmm0\n"
	"	addps %xmm1, %xmm0\n"
	"	movups %xmm0, 48(%rbx)\n"
	"	fld1\n"
	"	fadd %st(0), %st(0)\n"
	"	fstpl 32(%rbx)\n"
	"	push %rcx\n"
	"	mov $6000, %ecx\n"
	"	lea 256(%rbx), %rdi\n"
	"	rep stosb\n"
	"	pop %rcx\n"
	"	mov $1000, %eax\n"
	"	xor %edx, %edx\n"
	"	mov $7, %esi\n"
	"	div %esi\n"
	"	pushf\n"
	"	pop %rax\n"
	"	lock xadd %rax, 64(%rbx)\n"
	"	sub $0x60, %rsp\n" /* flags that only a fault behind the call would show */
	"	call 2f\n"
	"	jmp 3f\n"
	"2:	push %rsi\n"
	"	pop %rsi\n"
	"	ret\n"
	"3:	add $0x60, %rsp\n"
	"	dec %ecx\n"
	"	jnz 1b\n"
	"	mov 0(%rcx), %eax\n"
	"program_end:\n"
	".popsection\n");

static struct guest guest;
static uint8_t *code, *data;
static int asked, status;

static void request(void *opaque, enum vm_request what, int st, const char *why)
{
	asked = (int)what;
	status = st;
}

static int setup(void **state)
{
	struct err err = {0};

	guest.accel.lockstep = false;
	if (guest_create_max(&guest))
		return -1;
	guest.accel.lockstep = true;
	if (guest_enable_jit(&guest) || lockstep_init(guest.c, &err))
		return -1;
	guest.host.request = request;
	code = guest_map(&guest, CODE, PAGE_SIZE, GUEST_W | GUEST_X);
	data = guest_map(&guest, DATA, 4 * PAGE_SIZE, GUEST_W);
	guest_map(&guest, STACK, PAGE_SIZE, GUEST_W);
	guest_user64(&guest);
	memcpy(code, program_start, (size_t)(program_end - program_start));
	return 0;
}

static int teardown(void **state)
{
	lockstep_fini(guest.c);
	guest_destroy(&guest);
	return 0;
}

/* Until the fault at the end, or a difference. Everything is translated afresh. */
static int run(uint16_t spoil)
{
	struct soft_cpu *c = guest.c;
	int r = 0;

	mem_mark_written(&guest.mem, code, PAGE_SIZE);
	guest.accel.jit->spoil = spoil;
	c->lockstep->ended = false;
	asked = status = 0;
	memset(data, 0x5a, PAGE_SIZE);
	memset(c->s.gpr, 0, sizeof(c->s.gpr));
	c->s.gpr[R_RSP] = STACK + PAGE_SIZE;
	c->s.rip = CODE;
	c->s.rflags = 0x202;
	c->s.mp_state = MP_RUNNING;
	c->exc_raised = false;
	st16le(c->s.xsave, 0x37f);
	st32le(c->s.xsave + 24, 0x1f80);
	for (unsigned i = 0; i < 64; i++)
		c->s.xsave[160 + i] = (uint8_t)(i * 3);
	soft_mode_changed(c);
	for (unsigned i = 0; i < 1000 && !r && !c->lockstep->ended; i++) {
		atomic_store(&c->v.requests, 0);
		r = lockstep_run(c);
	}
	return r;
}

static void test_no_difference(void **state)
{
	uint64_t before = guest.c->lockstep->n_blocks;

	assert_int_equal(run(0), EXC_RAISED);
	assert_int_equal(guest.c->exc_vector, EXC_PF);
	assert_int_equal(guest.c->exc_cr2, 0);
	assert_false(guest.c->lockstep->ended);
	assert_int_equal(asked, 0);
	assert_true(guest.c->lockstep->n_blocks - before >= 100);
	assert_int_equal(guest.c->lockstep->n_retries, 0);
	/* What was stored is there, once. */
	assert_int_equal(ld64le(data + 32), 0x4000000000000000ull);
}

static void test_planted(void **state)
{
	static const uint16_t spoil[] = {ZYDIS_MNEMONIC_BSWAP,			     /* a register */
					 ZYDIS_MNEMONIC_CMC,			     /* flags, as ADC sees them */
					 ZYDIS_MNEMONIC_MOVNTI,			     /* a store that is missing */
					 ZYDIS_MNEMONIC_MOVUPS,			     /* vector registers and a store */
					 ZYDIS_MNEMONIC_ADDPS,	ZYDIS_MNEMONIC_FADD, /* x87 */
					 ZYDIS_MNEMONIC_XADD,			     /* a locked instruction */
					 ZYDIS_MNEMONIC_JNZ,			     /* the way the program goes */
					 ZYDIS_MNEMONIC_DEC,	ZYDIS_MNEMONIC_LEA};

	for (unsigned i = 0; i < ARRAY_SIZE(spoil); i++) {
		run(spoil[i]);
		if (!guest.c->lockstep->ended || asked != VM_EXIT || status == 0)
			fail_msg("%s translated to nothing was not noticed (request %d status %d)",
				 ZydisMnemonicGetString((ZydisMnemonic)spoil[i]), asked, status);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_difference), cmocka_unit_test(test_planted)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
