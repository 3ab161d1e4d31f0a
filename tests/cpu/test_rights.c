/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What 64-bit code may do: alignment checks (against the host CPU, which runs the
 * same instruction at the same offsets with RFLAGS.AC set), POPF of both sizes at
 * every privilege and IOPL (AMD64 APM volume 3, SDM volume 2B), the bits of CR4 that
 * CPUID promises and no others, UMIP, and the instructions of features that are not
 * advertised (protection keys, CET). On the interpreter and on the translator.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <cpuid.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bare.h"
#include "cpu/soft/sys.h"

#define DATA 0xb0000

static struct bare b;
static struct soft_cpu *c;
static const char *engine;

static int setup(void **state)
{
	bare_init(&b, 1, engine);
	bare_long_mode(&b, 0);
	c = bare_cpu(&b, 0);
	return 0;
}

static int teardown(void **state)
{
	bare_fini(&b);
	return 0;
}

static void set_cpl(unsigned cpl)
{
	struct cpu_state s;

	bare_long_mode(&b, 0);
	soft_accel_ops.get_state(b.vcpu[0], &s);
	for (unsigned n = S_ES; n <= S_GS && cpl; n++) {
		s.seg[n].sel = n == S_CS ? SEL_UCODE64 : SEL_UDATA;
		s.seg[n].dpl = 3;
	}
	if (cpl)
		s.gpr[R_RSP] = 0xa0000;
	s.xcr0 = 7;
	soft_accel_ops.set_state(b.vcpu[0], &s);
}

/* ---- alignment checks ------------------------------------------------------------ */

/* RDI points to the data, RAX to RDX are 0, RSI to other, aligned data. */
#define ALIGNED(name, text)                                                                                            \
	BARE_ASM(name, text);                                                                                          \
	static const struct align_case case_##name = {#name, name, name##_end};
struct align_case {
	const char *name, *code, *end;
};
ALIGNED(load1, "mov (%rdi), %al")
ALIGNED(load2, "mov (%rdi), %ax")
ALIGNED(load4, "mov (%rdi), %eax")
ALIGNED(load8, "mov (%rdi), %rax")
ALIGNED(store4, "mov %eax, (%rdi)")
ALIGNED(store8, "mov %rax, (%rdi)")
ALIGNED(modify4, "addl $1, (%rdi)")
ALIGNED(locked8, "lock xadd %rax, (%rdi)")
ALIGNED(exchange4, "xchg %eax, (%rdi)")
ALIGNED(compare8, "cmpxchg8b (%rdi)")
ALIGNED(bit_test, "btl $3, (%rdi)")
ALIGNED(push8, "xchg %rdi, %rsp; push %rax; xchg %rdi, %rsp")
ALIGNED(pop8, "xchg %rdi, %rsp; pop %rax; xchg %rdi, %rsp")
ALIGNED(push_mem, "pushq (%rdi); pop %rax")
ALIGNED(string4, "movsl")
ALIGNED(string8, "mov $2, %ecx; rep stosq")
ALIGNED(scan2, "scasw")
ALIGNED(zero_extend, "movzwl (%rdi), %eax")
ALIGNED(movups4, "movups (%rdi), %xmm0")
ALIGNED(movaps_load, "movaps (%rdi), %xmm0")
ALIGNED(movdqu_store, "movdqu %xmm0, (%rdi)")
ALIGNED(movsd_load, "movsd (%rdi), %xmm0")
ALIGNED(movss_store, "movss %xmm0, (%rdi)")
ALIGNED(addsd_mem, "addsd (%rdi), %xmm0")
ALIGNED(addps_mem, "addps (%rdi), %xmm0")
ALIGNED(convert4, "cvtsi2sdl (%rdi), %xmm0")
ALIGNED(x87_4, "flds (%rdi); fstp %st")
ALIGNED(x87_8, "fldl (%rdi); fstp %st")
ALIGNED(x87_10, "fldt (%rdi); fstp %st")
ALIGNED(x87_store10, "fldz; fstpt (%rdi)")
ALIGNED(x87_int2, "filds (%rdi); fstp %st")
ALIGNED(x87_control, "fnstcw (%rdi)")
ALIGNED(x87_status, "fnstsw (%rdi)")
ALIGNED(mxcsr, "stmxcsr (%rdi)")
ALIGNED(mmx_load, "movq (%rdi), %mm0; emms")
ALIGNED(compare16, "cmpxchg16b (%rdi)")
ALIGNED(movbe_load, "crc32l (%rdi), %eax")
ALIGNED(prefetch, "prefetcht0 (%rdi)")
ALIGNED(flush, "clflush (%rdi)")
ALIGNED(xlat, "mov %rdi, %rbx; xlatb")
static const struct align_case *const align_cases[] = {
    &case_load1,      &case_load2,	 &case_load4,	     &case_load8,      &case_store4,	  &case_store8,
    &case_modify4,    &case_locked8,	 &case_exchange4,    &case_compare8,   &case_bit_test,	  &case_push8,
    &case_pop8,	      &case_push_mem,	 &case_string4,	     &case_string8,    &case_scan2,	  &case_zero_extend,
    &case_movups4,    &case_movaps_load, &case_movdqu_store, &case_movsd_load, &case_movss_store, &case_addsd_mem,
    &case_addps_mem,  &case_convert4,	 &case_x87_4,	     &case_x87_8,      &case_x87_10,	  &case_x87_store10,
    &case_x87_int2,   &case_x87_control, &case_x87_status,   &case_mxcsr,      &case_mmx_load,	  &case_compare16,
    &case_movbe_load, &case_prefetch,	 &case_flush,	     &case_xlat,
};
static const uint8_t align_offsets[] = {0, 1, 2, 4, 8, 12};

#define AC_ON  "\x9c\x81\x0c\x24\x00\x00\x04\x00\x9d"	  /* pushf; orl $AC, (%rsp); popf */
#define AC_OFF "\x9c\x81\x24\x24\xff\xff\xfb\xff\x9d\xc3" /* pushf; andl $~AC, (%rsp); popf; ret */

/* What the host does with it: the signal that ends a child, 0 for none. */
static int host_signal(uint8_t *page, const struct align_case *a, unsigned off)
{
	static _Alignas(64) uint8_t data[256], other[64];
	const size_t n = (size_t)(a->end - a->code);
	pid_t pid;
	int status = 0;

	memcpy(page, AC_ON, 9);
	memcpy(page + 9, a->code, n);
	memcpy(page + 9 + n, AC_OFF, 10);
	pid = fork();
	if (pid == 0) {
		void *p = data + 64 + off, *q = other;
		void (*fn)(void) = (void (*)(void))(void *)page;

		signal(SIGBUS, SIG_DFL);
		signal(SIGSEGV, SIG_DFL);
		__asm__ volatile("sub $128, %%rsp\n\tand $-16, %%rsp\n\tsub $8, %%rsp\n\txor %%eax, %%eax\n\t"
				 "xor %%ebx, %%ebx\n\txor %%ecx, %%ecx\n\txor %%edx, %%edx\n\tcall *%2\n\t"
				 "mov $60, %%eax\n\txor %%edi, %%edi\n\tsyscall"
				 : "+D"(p), "+S"(q)
				 : "r"(fn)
				 : "rax", "rbx", "rcx", "rdx", "memory");
		_exit(1);
	}
	assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static int guest_vector(const struct align_case *a, unsigned off, bool am)
{
	set_cpl(3);
	c->s.cr0 |= am ? CR0_AM : 0;
	c->s.rflags |= FLAG_AC;
	for (unsigned r = R_RAX; r <= R_RBX; r++)
		c->s.gpr[r] = 0;
	c->s.gpr[R_RSP] = 0xa0000;
	c->s.gpr[R_RDI] = DATA + 64 + off;
	c->s.gpr[R_RSI] = DATA;
	soft_mode_changed(c);
	bare_code(&b, BARE_CODE, a->code, (size_t)(a->end - a->code));
	bare_code(&b, BARE_CODE + (uint64_t)(a->end - a->code), "\xcc", 1);
	bare_run(&b, 0);
	return bare_stopped_in(&b, 0);
}

static void test_alignment(void **state)
{
	uint8_t *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned faults = 0, eax, ebx, ecx, edx;
	const bool amd = __get_cpuid(0, &eax, &ebx, &ecx, &edx) && ecx == 0x444d4163; /* "cAMD" */

	assert_true(page != MAP_FAILED);
	for (unsigned k = 0; k < ARRAY_SIZE(align_cases); k++) {
		/* SDM, MOVUPS: whether 16 bytes are checked is the implementation's choice. Kelvin's is AMD's. */
		if (!amd && (align_cases[k] == &case_movups4 || align_cases[k] == &case_movdqu_store))
			continue;
		for (unsigned n = 0; n < ARRAY_SIZE(align_offsets); n++) {
			const unsigned off = align_offsets[n];
			const int signal = host_signal(page, align_cases[k], off);
			const int want = signal == SIGBUS ? EXC_AC : signal == SIGSEGV ? EXC_GP : EXC_BP;
			const int got = guest_vector(align_cases[k], off, true);

			if (got != want)
				print_error("%s at offset %u: exception %d, not %d\n", align_cases[k]->name, off, got,
					    want);
			faults += got != want;
			/* Without CR0.AM nothing is checked. */
			assert_int_equal(guest_vector(align_cases[k], off, false), signal == SIGSEGV ? EXC_GP : EXC_BP);
		}
	}
	munmap(page, PAGE_SIZE);
	assert_int_equal(faults, 0);
}

/* At CPL 0 nothing is checked either; a handler that is entered by #AC gets the code 0. */
static void test_alignment_rings(void **state)
{
	bare_long_mode(&b, 0);
	c->s.cr0 |= CR0_AM;
	c->s.rflags |= FLAG_AC;
	c->s.gpr[R_RDI] = DATA + 1;
	soft_mode_changed(c);
	BARE_LOAD(&b, BARE_CODE, load8);
	bare_code(&b, BARE_CODE + (uint64_t)(load8_end - load8), "\xcc", 1);
	bare_run(&b, 0);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_BP);
	assert_int_equal(guest_vector(&case_load8, 1, true), EXC_AC);
	assert_int_equal(ld64le(bare_ram(&b, c->s.gpr[R_RSP])), 0);
	assert_int_equal(ld64le(bare_ram(&b, c->s.gpr[R_RSP] + 8)), BARE_CODE);
	assert_true(ld64le(bare_ram(&b, c->s.gpr[R_RSP] + 24)) & FLAG_AC);
	assert_true(c->s.rflags & FLAG_AC); /* interrupts leave it */
}

/* ---- POPF and PUSHF ------------------------------------------------------------------ */

BARE_ASM(asm_popfq, "popfq\n int3\n");
BARE_ASM(asm_popfw, "popfw\n int3\n");
BARE_ASM(asm_pushfq, "pushfq\n int3\n");

/* Flags that POPF takes from the stack. RF is always cleared, VM stays; VIF and VIP are cleared by none but CPL 0. */
static uint64_t popf_takes(unsigned cpl, unsigned iopl, bool word)
{
	uint64_t m = FLAG_ARITH | FLAG_TF | FLAG_DF | FLAG_NT;

	if (!word)
		m |= FLAG_AC | FLAG_ID;
	if (cpl <= iopl)
		m |= FLAG_IF;
	if (cpl == 0)
		m |= FLAG_IOPL;
	return m;
}

static void test_popf(void **state)
{
	static const uint64_t before[] = {2, FLAG_IF | FLAG_NT | 2, FLAG_AC | FLAG_ID | FLAG_ARITH | FLAG_DF | 2};
	static const uint64_t values[] = {0,
					  ~0ull & ~(uint64_t)(FLAG_TF | FLAG_VIF | FLAG_VIP),
					  FLAG_IF | FLAG_IOPL,
					  FLAG_VM | FLAG_RF | FLAG_NT,
					  FLAG_AC | FLAG_ID | FLAG_CF,
					  0xffffffff00000000};

	for (unsigned k = 0; k < 2 * 4 * 2 * ARRAY_SIZE(before) * ARRAY_SIZE(values); k++) {
		const unsigned cpl = k & 1 ? 3 : 0, iopl = k >> 1 & 3;
		const bool word = k >> 3 & 1;
		const uint64_t old = before[k / 16 % ARRAY_SIZE(before)] | (uint64_t)iopl << 12,
			       value = values[k / 16 / ARRAY_SIZE(before)], mask = popf_takes(cpl, iopl, word);
		uint64_t sp, want = ((old & ~mask) | (value & mask)) | 2, got;

		set_cpl(cpl);
		c->s.rflags = old;
		soft_mode_changed(c);
		sp = c->s.gpr[R_RSP] - 64;
		c->s.gpr[R_RSP] = sp;
		st64le(bare_ram(&b, sp), value);
		if (word)
			BARE_LOAD(&b, BARE_CODE, asm_popfw);
		else
			BARE_LOAD(&b, BARE_CODE, asm_popfq);
		bare_run(&b, 0);
		assert_int_equal(bare_stopped_in(&b, 0), EXC_BP);
		got = ld64le(bare_ram(&b, c->s.gpr[R_RSP] + 16)); /* the frame's image */
		if (got != want)
			fail_msg("POPF%s at CPL %u, IOPL %u, 0x%llx popped onto 0x%llx gives 0x%llx, not 0x%llx",
				 word ? "W" : "Q", cpl, iopl, (unsigned long long)value, (unsigned long long)old,
				 (unsigned long long)got, (unsigned long long)want);
		assert_true(ld64le(bare_ram(&b, c->s.gpr[R_RSP] + 24)) == sp + (word ? 2 : 8));
	}
}

/* Faults leave flags and stack pointer as they were; what is pushed never shows RF and VM. */
static void test_popf_faults(void **state)
{
	static const struct {
		uint64_t rsp;
		int vector;
	} cases[] = {{0x8000000000000000, EXC_SS}, {0xdead0000, EXC_PF}};

	for (unsigned n = 0; n < ARRAY_SIZE(cases); n++) {
		set_cpl(0);
		bare_ram(&b, BARE_IDT + 16 * EXC_SS)[4] = bare_ram(&b, BARE_IDT + 16 * EXC_PF)[4] = 1; /* IST */
		c->s.rflags = FLAG_CF | FLAG_OF | 2;
		c->s.gpr[R_RSP] = cases[n].rsp;
		BARE_LOAD(&b, BARE_CODE, asm_popfq);
		bare_run(&b, 0);
		assert_int_equal(bare_stopped_in(&b, 0), cases[n].vector);
		assert_int_equal(ld64le(bare_ram(&b, c->s.gpr[R_RSP] + 24)), FLAG_CF | FLAG_OF | FLAG_RF | 2);
		assert_true(ld64le(bare_ram(&b, c->s.gpr[R_RSP] + 32)) == cases[n].rsp);
	}
	set_cpl(3);
	c->s.rflags = FLAG_RF | FLAG_CF | FLAG_ID | 2;
	BARE_LOAD(&b, BARE_CODE, asm_pushfq);
	bare_run(&b, 0);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_BP);
	assert_int_equal(ld64le(bare_ram(&b, 0xa0000 - 8)), FLAG_CF | FLAG_ID | 2);
}

/* POPF that sets IF: an interrupt that waits comes before the next instruction; one that sets TF: #DB behind the next.
 */
static void test_popf_effects(void **state)
{
	set_cpl(0);
	st64le(bare_ram(&b, BARE_STACK - 64), FLAG_IF | 2);
	c->s.gpr[R_RSP] = BARE_STACK - 64;
	b.vector = 0x41;
	vcpu_request(b.vcpu[0], VCPU_REQ_INTR);
	BARE_LOAD(&b, BARE_CODE, asm_popfq);
	bare_run(&b, 0);
	assert_int_equal(bare_stopped_in(&b, 0), 0x41);
	assert_int_equal(ld64le(bare_ram(&b, c->s.gpr[R_RSP])), BARE_CODE + 1);
	set_cpl(3);
	st64le(bare_ram(&b, 0xa0000 - 64), FLAG_TF | 2);
	c->s.gpr[R_RSP] = 0xa0000 - 64;
	bare_code(&b, BARE_CODE, "\x9d\x90\x90\xcc", 4);
	bare_run(&b, 0);
	assert_int_equal(bare_stopped_in(&b, 0), EXC_DB);
	assert_int_equal(ld64le(bare_ram(&b, c->s.gpr[R_RSP])), BARE_CODE + 2);
}

/* ---- CR4 and what CPUID promises -------------------------------------------------------- */

BARE_ASM(asm_cr4, "mov %rax, %cr4\n mov %cr4, %rcx\n int3\n");

static void test_cr4(void **state)
{
	static const struct {
		uint64_t bit;
		const char *feature; /* NULL: every CPU that runs 64-bit code */
	} bits[] = {{CR4_TSD, NULL},	 {CR4_DE, NULL},
		    {CR4_PSE, NULL},	 {CR4_MCE, NULL},
		    {CR4_PGE, NULL},	 {CR4_PCE, NULL},
		    {CR4_OSFXSR, NULL},	 {CR4_OSXMMEXCPT, NULL},
		    {CR4_UMIP, "umip"},	 {CR4_FSGSBASE, "fsgsbase"},
		    {CR4_PCIDE, "pcid"}, {CR4_OSXSAVE, "xsave"},
		    {CR4_SMEP, "smep"},	 {CR4_SMAP, "smap"},
		    {CR4_PAE, NULL}};
	static const char *const models[] = {"max", "max,-umip,-fsgsbase,-pcid,-smep,-smap", "qemu64"};

	for (unsigned m = 0; m < ARRAY_SIZE(models); m++) {
		bare_fini(&b);
		bare_init_cpu(&b, 1, engine, models[m]);
		for (unsigned n = 0; n < 64; n++) {
			uint64_t val;
			bool may = false;

			bare_long_mode(&b, 0);
			c = bare_cpu(&b, 0);
			for (unsigned k = 0; k < ARRAY_SIZE(bits); k++)
				may |= bits[k].bit == BIT(n) &&
				       (!bits[k].feature || cpu_model_has(&b.model, bits[k].feature));
			val = CR4_PAE | BIT(n);
			c->s.gpr[R_RAX] = val;
			BARE_LOAD(&b, BARE_CODE, asm_cr4);
			bare_run(&b, 0);
			/* SMEP and SMAP: the tests' pages are user pages, which nothing can run on then. */
			if (may && (BIT(n) & (CR4_SMEP | CR4_SMAP)))
				continue;
			if (bare_stopped_in(&b, 0) != (may ? EXC_BP : EXC_GP))
				fail_msg("-cpu %s: CR4 bit %u gives exception %d", models[m], n,
					 bare_stopped_in(&b, 0));
			if (may)
				assert_int_equal(c->s.gpr[R_RCX], val);
		}
	}
}

/* Features whose state the engine does not keep: never in CPUID, and their instructions are #UD or, where the
 * encoding was a hint before, NOP. */
static void test_not_advertised(void **state)
{
	static const struct {
		uint32_t leaf, reg, bit;
		const char *what;
	} features[] = {{1, 3, 1, "VME"},	  {7, 2, 3, "PKU"},	 {7, 2, 4, "OSPKE"}, {7, 2, 16, "LA57"},
			{7, 2, 7, "CET_SS"},	  {7, 3, 20, "CET_IBT"}, {7, 2, 31, "PKS"},  {1, 2, 5, "VMX"},
			{1, 2, 6, "SMX"},	  {7, 1, 2, "SGX"},	 {7, 1, 4, "HLE"},   {7, 1, 11, "RTM"},
			{7, 2, 5, "WAITPKG"},	  {7, 2, 23, "KL"},	 {7, 3, 24, "AMX"},  {7, 3, 5, "UINTR"},
			{0x80000001, 2, 2, "SVM"}};
	static const struct {
		uint8_t len, code[8];
		int vector;
		const char *what;
	} insns[] = {{3, {0x0f, 0x01, 0xee}, EXC_UD, "rdpkru"},
		     {3, {0x0f, 0x01, 0xef}, EXC_UD, "wrpkru"},
		     {4, {0xf3, 0x0f, 0x01, 0xe8}, EXC_UD, "setssbsy"},
		     {4, {0xf3, 0x0f, 0x01, 0xea}, EXC_UD, "saveprevssp"},
		     {5, {0xf3, 0x48, 0x0f, 0xae, 0xe8}, EXC_UD, "incsspq"},
		     {4, {0xf3, 0x0f, 0xae, 0x30}, EXC_UD, "clrssbsy"},
		     {4, {0xf3, 0x0f, 0x1e, 0xfa}, EXC_BP, "endbr64"},
		     {5, {0xf3, 0x48, 0x0f, 0x1e, 0xc8}, EXC_BP, "rdsspq"},
		     {3, {0x0f, 0x01, 0xd8}, EXC_UD, "vmrun"},
		     {4, {0xf3, 0x0f, 0xc7, 0x30}, EXC_UD, "vmxon"},
		     {2, {0x0f, 0x37}, EXC_UD, "getsec"},
		     {4, {0xf3, 0x0f, 0xae, 0xf0}, EXC_UD, "umonitor"},
		     {4, {0xf3, 0x0f, 0x01, 0xee}, EXC_UD, "clui"},
		     {3, {0x0f, 0x01, 0xd5}, EXC_UD, "xend"},
		     {3, {0x0f, 0x01, 0xcf}, EXC_UD, "encls"},
		     {2, {0x0f, 0xaa}, EXC_UD, "rsm"}};

	for (unsigned n = 0; n < ARRAY_SIZE(features); n++) {
		uint32_t out[4];

		cpu_model_cpuid(&b.model, 0, 0, 0, 0, features[n].leaf, 0, out);
		if (out[features[n].reg] >> features[n].bit & 1)
			fail_msg("CPUID promises %s", features[n].what);
	}
	for (unsigned n = 0; n < ARRAY_SIZE(insns); n++) {
		set_cpl(0);
		c->s.gpr[R_RAX] = DATA;
		bare_code(&b, BARE_CODE, insns[n].code, insns[n].len);
		bare_code(&b, BARE_CODE + insns[n].len, "\xcc", 1);
		bare_run(&b, 0);
		if (bare_stopped_in(&b, 0) != insns[n].vector)
			fail_msg("%s gives exception %d, not %d", insns[n].what, bare_stopped_in(&b, 0),
				 insns[n].vector);
	}
}

/* UMIP: where descriptor tables and the machine status word are is not for user code. */
static void test_umip(void **state)
{
	static const struct {
		uint8_t len, code[6];
	} insns[] = {{3, {0x0f, 0x01, 0x07}},	    /* sgdt (%rdi) */
		     {3, {0x0f, 0x01, 0x0f}},	    /* sidt */
		     {3, {0x0f, 0x00, 0x07}},	    /* sldt */
		     {3, {0x0f, 0x00, 0xc0}},	    /* sldt %eax */
		     {4, {0x66, 0x0f, 0x00, 0xc8}}, /* str %ax */
		     {4, {0x48, 0x0f, 0x01, 0xe0}}, /* smsw %rax */
		     {3, {0x0f, 0x01, 0x27}}};	    /* smsw (%rdi) */

	assert_true(cpu_model_has(&b.model, "umip"));
	for (unsigned n = 0; n < 4 * ARRAY_SIZE(insns); n++) {
		const unsigned k = n / 4, cpl = n & 1 ? 3 : 0;
		const bool umip = n & 2;

		set_cpl(cpl);
		c->s.cr4 |= umip ? CR4_UMIP : 0;
		soft_mode_changed(c);
		c->s.gpr[R_RDI] = DATA;
		bare_code(&b, BARE_CODE, insns[k].code, insns[k].len);
		bare_code(&b, BARE_CODE + insns[k].len, "\xcc", 1);
		bare_run(&b, 0);
		assert_int_equal(bare_stopped_in(&b, 0), umip && cpl ? EXC_GP : EXC_BP);
		if (umip && cpl)
			assert_int_equal(ld64le(bare_ram(&b, c->s.gpr[R_RSP])), 0);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const char *const engines[] = {"soft,jit=off", "soft,jit-always=on"};
	const struct CMUnitTest tests[] = {
	    T(test_alignment), T(test_alignment_rings), T(test_popf), T(test_popf_faults), T(test_popf_effects),
	    T(test_cr4),       T(test_not_advertised),	T(test_umip)};
	int failed = 0;

	for (unsigned n = 0; n < ARRAY_SIZE(engines); n++) {
		engine = engines[n];
		failed += cmocka_run_group_tests_name(engine, tests, NULL, NULL);
	}
	return failed != 0;
}
