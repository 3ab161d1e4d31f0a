/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Exceptions and system instructions of the software CPU, by small guest programs:
 * what is pushed where, error codes, double and triple faults, IRET, SYSCALL,
 * segments, debug registers, port permission, XSAVE.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "bare.h"

static struct bare b;
static struct soft_cpu *c;

static int setup(void **state)
{
	bare_init(&b, 1, "soft,jit=off");
	bare_long_mode(&b, 0);
	c = bare_cpu(&b, 0);
	return 0;
}

static int teardown(void **state)
{
	bare_fini(&b);
	return 0;
}

#define RUN(name)                                                                                                      \
	do {                                                                                                           \
		BARE_LOAD(&b, BARE_CODE, name);                                                                        \
		bare_run(&b, 0);                                                                                       \
	} while (0)

/* Quadword n of the stack the handler found. */
static uint64_t frame(unsigned n)
{
	return ld64le(bare_ram(&b, c->s.gpr[R_RSP] + 8 * n));
}

/* ---- exceptions --------------------------------------------------------------- */

BARE_ASM(asm_de, "xor %ecx, %ecx\n div %ecx\n");
BARE_ASM(asm_ud, "nop\n ud2\n");
BARE_ASM(asm_bp, "nop\n int3\n");
BARE_ASM(asm_int, "nop\n int $0x55\n");
BARE_ASM(asm_gp_canonical, "mov $0x1234567812345678, %rax\n mov (%rax), %ecx\n");
BARE_ASM(asm_ss, "mov $0x8000000000000000, %rsp\n push %rax\n");
BARE_ASM(asm_pf, "mov $0xdeadb000, %eax\n movb $1, (%rax)\n");
BARE_ASM(asm_np_idt, "int $0x60\n");
BARE_ASM(asm_gp_sel, "mov $0x48, %eax\n mov %eax, %ds\n");

static void test_exceptions(void **state)
{
	static const struct {
		const char *code, *end;
		int vector, code_expected; /* -1: none pushed */
		unsigned rip;		   /* pushed, from BARE_CODE */
		bool rf;
	} cases[] = {
#define CASE(name, v, e, r, rf) {name, name##_end, v, e, r, rf}
	    CASE(asm_de, EXC_DE, -1, 2, true),
	    CASE(asm_ud, EXC_UD, -1, 1, true),
	    CASE(asm_bp, EXC_BP, -1, 2, false),
	    CASE(asm_int, 0x55, -1, 3, false),
	    CASE(asm_gp_canonical, EXC_GP, 0, 10, true),
	    CASE(asm_ss, EXC_SS, 0, 10, true),
	    CASE(asm_pf, EXC_PF, 2, 5, true),
	    CASE(asm_np_idt, EXC_NP, 0x60 * 8 + 2, 0, true),
	    CASE(asm_gp_sel, EXC_GP, 0x48, 5, true),
	};

	for (unsigned n = 0; n < ARRAY_SIZE(cases); n++) {
		unsigned at = 0;

		bare_long_mode(&b, 0);
		bare_ram(&b, BARE_IDT + 0x60 * 16)[5] = 0x0e; /* not present */
		bare_code(&b, BARE_CODE, cases[n].code, (size_t)(cases[n].end - cases[n].code));
		/* A #SS cannot push on the broken stack. */
		if (cases[n].vector == EXC_SS)
			bare_ram(&b, BARE_IDT + EXC_SS * 16)[4] = 1;
		bare_run(&b, 0);
		assert_int_equal(bare_stopped_in(&b, 0), cases[n].vector);
		if (cases[n].vector == EXC_PF)
			assert_true(c->s.cr2 == 0xdeadb000);
		if (cases[n].code_expected >= 0)
			assert_int_equal(frame(at++), cases[n].code_expected);
		assert_int_equal(frame(at), BARE_CODE + cases[n].rip);
		assert_int_equal(frame(at + 1), SEL_CODE64);
		assert_int_equal(!!(frame(at + 2) & FLAG_RF), cases[n].rf);
		assert_int_equal(frame(at + 4), SEL_DATA);
		assert_int_equal(c->s.gpr[R_RSP] & 15, cases[n].code_expected >= 0 ? 0 : 8);
	}
}

/* #GP inside the delivery of #GP is #DF on its IST stack; a broken #DF gate resets the machine. */
static void test_double_and_triple(void **state)
{
	bare_ram(&b, BARE_IDT + EXC_GP * 16)[5] = 0; /* no such gate type: #GP again */
	RUN(asm_gp_canonical);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_DF);
	assert_int_equal(frame(0), 0);
	assert_int_equal(frame(1), BARE_CODE + 10);
	assert_true(c->s.gpr[R_RSP] == 0x90000 - 48);
	bare_long_mode(&b, 0);
	bare_ram(&b, BARE_IDT + EXC_GP * 16)[5] = 0;
	bare_ram(&b, BARE_IDT + EXC_DF * 16)[5] = 0;
	RUN(asm_gp_canonical);
	assert_int_equal(b.reset, 1);
	/* A page fault whose handler's stack is not mapped: #DF too. */
	bare_long_mode(&b, 0);
	c->s.gpr[R_RSP] = 0xdead0000;
	RUN(asm_pf);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_DF);
	/* #UD is benign: the #PF on its stack is delivered as such, and that makes the #DF. */
	bare_long_mode(&b, 0);
	bare_ram(&b, BARE_IDT + EXC_PF * 16)[4] = 1;
	c->s.gpr[R_RSP] = 0xdead0000;
	RUN(asm_ud);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_PF);
	/* An IDT of no entries (E30): #GP, #DF, and the end, in long, protected and real mode. */
	for (unsigned mode = 0; mode < 3; mode++) {
		unsigned before = b.reset;

		bare_long_mode(&b, 0);
		c->s.idtr.limit = 0;
		if (mode) {
			c->s.efer = 0;
			c->s.cr0 = mode == 1 ? CR0_PE : 0;
			c->s.seg[S_CS].l = false;
			c->s.seg[S_CS].db = mode == 1;
			soft_mode_changed(c);
		}
		RUN(asm_ud);
		assert_int_equal(b.reset, before + 1);
	}
}

/* ---- privilege ------------------------------------------------------------------------ */

/* IRETQ to CPL 3, then a software interrupt back. */
BARE_ASM(asm_iret, "push $0x2b\n push $0xa0000\n push $0x202\n push $0x33\n lea 1f(%rip), %rax\n push %rax\n iretq\n"
		   "1: mov %cs, %ecx\n int3\n");

static void test_iret_user(void **state)
{
	RUN(asm_iret);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_BP);
	assert_int_equal(c->s.gpr[R_RCX], SEL_UCODE64);
	assert_int_equal(frame(1), SEL_UCODE64);
	assert_int_equal(frame(3), 0xa0000);
	assert_int_equal(frame(4), SEL_UDATA);
	assert_true(c->s.gpr[R_RSP] == BARE_STACK - 40); /* RSP0 */
	assert_int_equal(c->cpl, 0);
	assert_int_equal(c->s.seg[S_SS].sel, 0);
	assert_int_equal(c->s.rflags & FLAG_IF, 0);
	assert_int_equal(frame(2), 0x202);
}

/* What user code may not do. */
BARE_ASM(asm_u_cli, "cli\n");
BARE_ASM(asm_u_hlt, "hlt\n");
BARE_ASM(asm_u_in, "in $0x60, %al\n");
BARE_ASM(asm_u_cr, "mov %cr3, %rax\n");
BARE_ASM(asm_u_msr, "rdmsr\n");
BARE_ASM(asm_u_int, "int $0x55\n"); /* gate DPL 0 */
BARE_ASM(asm_u_lgdt, "lgdt (%rsp)\n");
BARE_ASM(asm_u_swapgs, "swapgs\n");
BARE_ASM(asm_u_sysret, "sysretq\n");

static void user_mode(uint64_t rip)
{
	struct cpu_state s;

	bare_long_mode(&b, 0);
	soft_accel_ops.get_state(b.vcpu[0], &s);
	for (unsigned n = S_ES; n <= S_GS; n++) {
		s.seg[n].sel = n == S_CS ? SEL_UCODE64 : SEL_UDATA;
		s.seg[n].dpl = 3;
	}
	s.rip = rip;
	s.gpr[R_RSP] = 0xa0000;
	soft_accel_ops.set_state(b.vcpu[0], &s);
}

static void test_user_denied(void **state)
{
	static const struct {
		const char *code, *end;
		unsigned error;
	} cases[] = {
#define DENIED(name, e) {name, name##_end, e}
	    DENIED(asm_u_cli, 0),    DENIED(asm_u_hlt, 0),    DENIED(asm_u_in, 0),
	    DENIED(asm_u_cr, 0),     DENIED(asm_u_msr, 0),    DENIED(asm_u_lgdt, 0),
	    DENIED(asm_u_swapgs, 0), DENIED(asm_u_sysret, 0), DENIED(asm_u_int, 0x55 * 8 + 2),
	};

	for (unsigned n = 0; n < ARRAY_SIZE(cases); n++) {
		user_mode(BARE_CODE);
		bare_code(&b, BARE_CODE, cases[n].code, (size_t)(cases[n].end - cases[n].code));
		bare_run(&b, 0);
		assert_int_equal(bare_stopped_in(&b, 0), EXC_GP);
		assert_int_equal(frame(0), cases[n].error);
		assert_int_equal(frame(1), BARE_CODE);
	}
}

BARE_ASM(asm_syscall, "syscall\n mov %rax, %rbx\n int3\n");
BARE_ASM(asm_sysentry, "mov %r11, %rdx\n mov $77, %eax\n sysretq\n");

static void test_syscall(void **state)
{
	user_mode(BARE_CODE);
	c->s.rflags |= FLAG_CF | FLAG_IF;
	c->s.star = (uint64_t)SEL_CODE64 << 32 | (uint64_t)(SEL_UDATA - 8) << 48;
	c->s.lstar = BARE_CODE + 0x1000;
	c->s.sfmask = FLAG_IF | FLAG_CF;
	BARE_LOAD(&b, BARE_CODE + 0x1000, asm_sysentry);
	RUN(asm_syscall);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_BP);
	assert_int_equal(c->s.gpr[R_RBX], 77);
	assert_int_equal(c->s.gpr[R_RCX], BARE_CODE + 2);
	assert_int_equal(c->s.gpr[R_RDX], FLAG_CF | FLAG_IF | 2);
	assert_int_equal(frame(0), BARE_CODE + 6);
	assert_int_equal(frame(1), SEL_UCODE64);
	assert_int_equal(frame(2), FLAG_CF | FLAG_IF | 2);
	assert_int_equal(frame(4), SEL_UDATA);
	/* SCE clear: #UD. */
	user_mode(BARE_CODE);
	c->s.efer &= ~EFER_SCE;
	RUN(asm_syscall);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_UD);
}

/* ---- interrupts ------------------------------------------------------------------------------ */

/* The instruction after STI is not interrupted. */
BARE_ASM(asm_sti, "mov $1, %eax\n sti\n mov $2, %eax\n mov $3, %eax\n mov $4, %eax\n hlt\n");

static void test_sti_shadow(void **state)
{
	b.vector = 0x41;
	vcpu_request(b.vcpu[0], VCPU_REQ_INTR);
	RUN(asm_sti);
	assert_int_equal(bare_stopped_in(&b, 0), 0x41);
	assert_int_equal(c->s.gpr[R_RAX], 2);
	assert_int_equal(c->s.int_shadow, 0);
}

BARE_ASM(asm_hlt, "sti\n hlt\n mov $5, %eax\n hlt\n");

static void *late_interrupt(void *arg)
{
	struct timespec t = {.tv_nsec = 20000000};

	nanosleep(&t, NULL);
	b.vector = 0x42;
	vcpu_request(b.vcpu[0], VCPU_REQ_INTR);
	return NULL;
}

static void test_hlt(void **state)
{
	pthread_t t;

	pthread_create(&t, NULL, late_interrupt, NULL);
	RUN(asm_hlt);
	pthread_join(t, NULL);
	assert_int_equal(bare_stopped_in(&b, 0), 0x42);
	assert_int_equal(frame(0), BARE_CODE + 2); /* after HLT */
}

/* NMIs wait for the IRET of the one before. */
static void test_nmi(void **state)
{
	bare_code(&b, BARE_HANDLERS + 16 * EXC_NMI, "\xe6\xf4\x48\xcf", 4); /* out; iretq */
	vcpu_request(b.vcpu[0], VCPU_REQ_NMI);
	RUN(asm_hlt);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_NMI);
	assert_true(c->s.nmi_blocked);
	vcpu_request(b.vcpu[0], VCPU_REQ_NMI);
	bare_run(&b, 0); /* IRET, then the second at once */
	assert_int_equal(bare_stopped_in(&b, 0), EXC_NMI);
	assert_int_equal(frame(0), BARE_CODE);
}

/* ---- debug ------------------------------------------------------------------------------------- */

BARE_ASM(asm_tf, "pushf\n orl $0x100, (%rsp)\n popf\n mov $1, %eax\n mov $2, %eax\n");

static void test_single_step(void **state)
{
	RUN(asm_tf);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_DB);
	assert_int_equal(c->s.gpr[R_RAX], 1);
	assert_true(c->s.dr[6] & BIT(14));
	assert_true(frame(2) & FLAG_TF);
	assert_false(c->s.rflags & FLAG_TF);
}

BARE_ASM(asm_watch, "mov $0x50004, %eax\n mov %rax, %dr1\n mov $0x00d00004, %eax\n mov %rax, %dr7\n"
		    "mov 0x50000, %ebx\n mov %ebx, 0x50006\n nop\n nop\n");
BARE_ASM(asm_break, "lea 1f(%rip), %rax\n mov %rax, %dr0\n mov $1, %eax\n mov %rax, %dr7\n nop\n 1: inc %ebx\n nop\n");

static void test_breakpoints(void **state)
{
	RUN(asm_watch); /* DR1: write, 4 bytes at 0x50004 */
	assert_int_equal(bare_stopped_in(&b, 0), EXC_DB);
	assert_int_equal(c->s.dr[6] & 0xf, 2);
	bare_long_mode(&b, 0);
	RUN(asm_break);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_DB);
	assert_int_equal(c->s.dr[6] & 0xf, 1);
	assert_int_equal(c->s.gpr[R_RBX], 0); /* a fault: before the instruction */
	assert_true(frame(2) & FLAG_RF);
}

/* ---- segments, ports, MSRs --------------------------------------------------------------------------- */

BARE_ASM(asm_far, "push $0x18\n lea 1f(%rip), %rax\n push %rax\n lretq\n .code32\n"
		  "1: mov $0x55, %al\n out %al, $0xf4\n .code64\n");

static void test_far_to_compat(void **state)
{
	RUN(asm_far);
	assert_int_equal(b.out, 0x55);
	assert_false(c->long64);
	assert_true(c->code32);
}

BARE_ASM(asm_lar, "mov $0x33, %ecx\n lar %ecx, %eax\n setz %bl\n lsl %ecx, %edx\n mov $0x200, %ecx\n lar %ecx, %esi\n"
		  "setz %bh\n verr %cx\n out %al, $0xf4\n");

static void test_lar(void **state)
{
	RUN(asm_lar);
	assert_int_equal(c->s.gpr[R_RAX], 0xaffb00 & 0xf0ff00);
	assert_int_equal(c->s.gpr[R_RBX] & 0xffff, 1);
	assert_int_equal(c->s.gpr[R_RDX], 0xffffffff);
}

BARE_ASM(asm_io, "mov $0x1234, %edx\n in %dx, %eax\n mov %eax, %ebx\n in $0x10, %al\n out %ax, %dx\n out %al, $0xf4\n");
BARE_ASM(asm_ins, "mov $0x50000, %edi\n mov $3, %ecx\n mov $0x11, %edx\n cld\n rep insw\n out %al, $0xf4\n");

static void test_ports(void **state)
{
	RUN(asm_io);
	assert_int_equal(c->s.gpr[R_RBX], 0x1234 * 0x01010101ull & 0xffffffff);
	assert_int_equal(c->s.gpr[R_RAX] & 0xff, 0x10);
	bare_long_mode(&b, 0);
	RUN(asm_ins);
	assert_int_equal(c->s.gpr[R_RDI], 0x50006);
	assert_int_equal(c->s.gpr[R_RCX], 0);
	assert_int_equal(ld16le(bare_ram(&b, 0x50004)), 0x1111);
	/* The TSS's bitmap lets user code at port 0x60. */
	user_mode(BARE_CODE);
	c->s.seg[S_TR].limit = 0x67 + 0x100;
	st16le(bare_ram(&b, BARE_TSS + 102), 0x68);
	memset(bare_ram(&b, BARE_TSS + 0x68), 0, 0x100);
	b.out = 0;
	RUN(asm_io);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_GP); /* port 0x1234 is beyond the map */
	user_mode(BARE_CODE);
	c->s.seg[S_TR].limit = 0x67 + 0x100;
	RUN(asm_ins);
	assert_int_equal(c->s.gpr[R_RDI], 0x50006);
}

BARE_ASM(asm_msr, "mov $0xc0000100, %ecx\n mov $0x11223344, %eax\n mov $0x5566, %edx\n wrmsr\n xor %eax, %eax\n"
		  "rdmsr\n mov %eax, %ebx\n mov $0x12345, %ecx\n rdmsr\n");

static void test_msr(void **state)
{
	RUN(asm_msr);
	assert_true(c->s.seg[S_FS].base == 0x556611223344);
	assert_int_equal(c->s.gpr[R_RBX], 0x11223344);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_GP);
}

/* ---- extended state --------------------------------------------------------------------------------------- */

BARE_ASM(asm_xsave, "mov $7, %eax\n xor %edx, %edx\n xor %ecx, %ecx\n xsetbv\n"
		    "pcmpeqd %xmm3, %xmm3\n vpcmpeqd %ymm5, %ymm5, %ymm5\n fninit\n fld1\n"
		    "mov $0x50000, %edi\n xsave (%rdi)\n mov $0x52000, %esi\n xsavec (%rsi)\n"
		    "vzeroall\n fninit\n xrstor (%rdi)\n vmovdqu %ymm5, 0x54000\n fstpl 0x54020\n"
		    "vzeroall\n xrstor (%rsi)\n vmovdqu %ymm5, 0x54040\n movdqu %xmm3, 0x54060\n out %al, $0xf4\n");

BARE_ASM(asm_xrstor, "mov $0x50000, %edi\n mov $7, %eax\n xor %edx, %edx\n xrstor (%rdi)\n");

static void test_xsave(void **state)
{
	static const uint8_t ones[32] = {[0 ... 31] = 0xff};

	if (!cpu_model_has(&b.model, "avx2"))
		skip();
	RUN(asm_xsave);
	assert_int_equal(bare_stopped_in(&b, 0), -1);
	assert_memory_equal(bare_ram(&b, 0x54000), ones, 32);
	assert_true(ld64le(bare_ram(&b, 0x54020)) == 0x3ff0000000000000);
	assert_memory_equal(bare_ram(&b, 0x54040), ones, 32);
	assert_memory_equal(bare_ram(&b, 0x54060), ones, 16);
	assert_true(ld64le(bare_ram(&b, 0x50200)) == 7);
	assert_true(ld64le(bare_ram(&b, 0x52208)) == (7 | BIT(63)));
	/* A reserved bit of the header is #GP. */
	bare_long_mode(&b, 0);
	c->s.xcr0 = 7;
	st64le(bare_ram(&b, 0x50200), 0x100);
	BARE_LOAD(&b, BARE_CODE, asm_xrstor);
	bare_run(&b, 0);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_GP);
}

/* ---- opcodes that depend on the model --------------------------------------------------------------------- */

BARE_ASM(asm_count, "mov $77, %eax\n mov %eax, %ebx\n mov $100, %ebp\n"
		    "1: xor %ecx, %ecx\n stc\n tzcnt %ecx, %eax\n setc %dl\n stc\n lzcnt %ecx, %ebx\n setc %dh\n"
		    "dec %ebp\n jnz 1b\n mov $0x10, %ecx\n tzcnt %ecx, %esi\n lzcnt %ecx, %edi\n out %al, $0xf4\n");

/* Without the features F3 0F BC and BD are BSF and BSR: zero leaves the destination. */
static void test_bit_scan(void **state)
{
	static const struct {
		const char *accel, *cpu;
		bool have;
	} cases[] = {{"soft,jit=off", "max,-bmi1,-abm", false},
		     {"soft,jit-always=on", "max,-bmi1,-abm", false},
		     {"soft,jit=off", "max", true},
		     {"soft,jit-always=on", "max", true}};

	for (unsigned n = 0; n < ARRAY_SIZE(cases); n++) {
		bool have;

		bare_fini(&b);
		bare_init_cpu(&b, 1, cases[n].accel, cases[n].cpu);
		bare_long_mode(&b, 0);
		c = bare_cpu(&b, 0);
		have = cases[n].have && cpu_model_has(&b.model, "bmi1") && cpu_model_has(&b.model, "abm");
		RUN(asm_count);
		assert_int_equal(bare_stopped_in(&b, 0), -1);
		assert_int_equal(c->s.gpr[R_RAX], have ? 32 : 77);
		assert_int_equal(c->s.gpr[R_RBX], have ? 32 : 77);
		assert_int_equal(c->s.gpr[R_RSI], 4);
		assert_int_equal(c->s.gpr[R_RDI], have ? 27 : 4);
	}
}

/* ---- cross-modifying code ---------------------------------------------------------------------------------- */

BARE_ASM(asm_patched, "1: mov $1, %al\n out %al, $0xf4\n cpuid\n jmp 1b\n");

/* A store that nobody saw (it was under way while the bytes were decoded) counts after a serializing instruction. */
static void test_late_store(void **state)
{
	RUN(asm_patched);
	assert_int_equal(b.out, 1);
	bare_ram(&b, BARE_CODE)[1] = 2;
	bare_run(&b, 0);
	assert_int_equal(b.out, 2);
	bare_run(&b, 0);
	assert_int_equal(b.out, 2);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(test_exceptions),	   T(test_double_and_triple),
	    T(test_iret_user),	   T(test_user_denied),
	    T(test_syscall),	   T(test_sti_shadow),
	    T(test_hlt),	   T(test_nmi),
	    T(test_single_step),   T(test_breakpoints),
	    T(test_far_to_compat), T(test_lar),
	    T(test_ports),	   T(test_msr),
	    T(test_xsave),	   T(test_late_store),
	    T(test_bit_scan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
