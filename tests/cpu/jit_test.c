/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Translator against interpreter: random blocks of instructions, run from the
 * same state in both, must end with the same registers, memory and defined
 * flags; an access that faults must show the same state at the fault.
 * Paging is off, so linear addresses are physical, and what is beyond RAM is a
 * device that the translator must leave to the interpreter.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <unistd.h>
#include "cpu/soft/insn.h"
#include "cpu/soft/jit.h"

#define RAM_SIZE   0x20000ull
#define CODE	   0x8000ull
#define DATA	   0x10000ull
#define DATA_LEN   0x4000ull
#define STACK	   0x18000ull
#define XSAVE_USED 2432u /* up to where the host's layout has AVX-512 state */

static struct mem_map map;
static struct cpu_model model;
static struct soft_accel sa;
static struct soft_cpu *cpu;
static struct vcpu *vcpus[1];
static uint64_t seed = 88172645463325252ull;
static bool verbose;
static const int host_signal[] = {SIGFPE, SIGSEGV, SIGILL, SIGBUS};
static struct sigaction host_action[4];

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static uint8_t *ram(uint64_t gpa)
{
	return mem_ram_ptr(&map, gpa, 1);
}

static void long_mode(struct soft_cpu *c)
{
	cpu_state_reset(&c->s, true);
	c->s.cr0 = CR0_PE | CR0_NE;
	c->s.cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXSAVE;
	c->s.efer = EFER_LMA | EFER_LME;
	c->s.xcr0 = 0xe7;
	for (unsigned i = 0; i < 6; i++)
		c->s.seg[i] = (struct cpu_segment){.s = true,
						   .present = true,
						   .type = i == S_CS ? 11 : 3,
						   .limit = 0xffffffff,
						   .g = true,
						   .l = i == S_CS,
						   .db = i != S_CS};
	soft_mode_changed(c);
}

static int setup(void **state)
{
	struct ram_config rc = {.size = RAM_SIZE};
	struct cpuid_entry sup[CPU_MODEL_MAX_ENTRIES];
	struct err err = {0};
	unsigned n = soft_supported_cpuid(sup, CPU_MODEL_MAX_ENTRIES);

	if (mem_init(&map, &err) || mem_add_ram(&map, "ram", 0, RAM_SIZE, &rc, false, &err) ||
	    cpu_model_build(&model, NULL, "max", sup, n, &err))
		return -1;
	sa.a.ops = &soft_accel_ops;
	sa.a.cfg.mem = &map;
	sa.a.cfg.model = &model;
	sa.a.cfg.ncpus = 1;
	sa.a.vcpu = vcpus;
	sa.jit_on = sa.jit_always = sa.perf_map = true;
	if (code_init(&sa.a, &err) || jit_init(&sa.a, NULL, &err))
		return -1;
	sa.jit->return_exceptions = true;
	cpu = aligned_alloc(64, ALIGN_UP(sizeof(*cpu), 64));
	memset(cpu, 0, sizeof(*cpu));
	cpu->v.accel = &sa.a;
	long_mode(cpu);
	if (mmu_init(cpu, &err) || interp_init(cpu, &err) || jit_cpu_init(cpu, &err))
		return -1;
	vcpus[0] = &cpu->v;
	/* The handlers of both tiers; cmocka replaces them. */
	for (unsigned i = 0; i < 4; i++)
		sigaction(host_signal[i], NULL, &host_action[i]);
	return 0;
}

static int teardown(void **state)
{
	jit_cpu_fini(cpu);
	interp_fini(cpu);
	mmu_fini(cpu);
	jit_fini(&sa.a);
	code_fini(&sa.a);
	mem_fini(&map);
	free(cpu);
	return 0;
}

/* ---- programs --------------------------------------------------------------- */

struct program {
	uint8_t code[1024];
	unsigned len, n;
	unsigned undefined; /* flags that are undefined at the end */
	struct {
		unsigned off, undefined; /* before the instruction there */
	} at[32];
};

struct run {
	struct cpu_state s;
	uint8_t mem[RAM_SIZE];
	int result;
	uint8_t vector;
};

static ZydisDecoder decoder;

/* One random instruction that both tiers should run without leaving. */
static bool random_insn(uint8_t *buf, unsigned *len, unsigned *undefined)
{
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	static const uint8_t prefix[] = {0x66, 0xf0, 0x67, 0x64, 0x65, 0xf2, 0xf3};
	unsigned n = 0, undef = 0, tested = 0, written = 0;
	bool shift_by_cl = false;

	if (!(rnd() % 8))
		buf[n++] = prefix[rnd() % ARRAY_SIZE(prefix)];
	if (rnd() % 3)
		buf[n++] = (uint8_t)(0x40 | (rnd() & 15));
	switch (rnd() % 12) {
	case 0:
	case 1:
	case 2: buf[n++] = 0x0f; break;
	case 3:
		buf[n++] = 0x0f;
		buf[n++] = rnd() & 1 ? 0x38 : 0x3a;
		break;
	case 4: buf[n++] = (uint8_t)(0xd8 + rnd() % 8); break;
	case 5:
	case 6: /* VEX */
		n = 0;
		buf[n++] = 0xc4;
		buf[n++] = (uint8_t)((rnd() & 0xe0) | (1 + rnd() % 3));
		break;
	case 7:
		n = 0;
		buf[n++] = 0xc5;
		break;
	case 8: /* EVEX */
		n = 0;
		buf[n++] = 0x62;
		buf[n++] = (uint8_t)((rnd() & 0xf0) | (1 + rnd() % 3));
		buf[n++] = (uint8_t)(rnd() | 4);
		buf[n++] = (uint8_t)(rnd() & (rnd() & 1 ? 0xf8 : 0xff));
		break;
	default: break;
	}
	for (unsigned i = n; i < 15; i++)
		buf[i] = (uint8_t)rnd();
	/* Small displacements and memory near the data. */
	if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, buf, 15, &zi, op)))
		return false;
	if (zi.meta.category == ZYDIS_CATEGORY_COND_BR || zi.meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
	    zi.meta.category == ZYDIS_CATEGORY_CALL || zi.meta.category == ZYDIS_CATEGORY_RET ||
	    zi.meta.category == ZYDIS_CATEGORY_SYSTEM || zi.meta.category == ZYDIS_CATEGORY_INTERRUPT ||
	    zi.meta.category == ZYDIS_CATEGORY_IO || zi.meta.category == ZYDIS_CATEGORY_IOSTRINGOP ||
	    zi.meta.category == ZYDIS_CATEGORY_SYSCALL || zi.meta.category == ZYDIS_CATEGORY_SYSRET ||
	    zi.meta.category == ZYDIS_CATEGORY_SEGOP || zi.meta.category == ZYDIS_CATEGORY_XSAVE ||
	    zi.meta.category == ZYDIS_CATEGORY_RDRAND || zi.meta.category == ZYDIS_CATEGORY_RDSEED ||
	    (zi.meta.category == ZYDIS_CATEGORY_STRINGOP &&
	     (zi.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE))) ||
	    zi.meta.category == ZYDIS_CATEGORY_MISC)
		return false;
	if (zi.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED || zi.meta.isa_set == ZYDIS_ISA_SET_AMD3DNOW)
		return false;
	switch (zi.mnemonic) {
	case ZYDIS_MNEMONIC_POPF:
	case ZYDIS_MNEMONIC_POPFD:
	case ZYDIS_MNEMONIC_POPFQ:
	case ZYDIS_MNEMONIC_STD:
	case ZYDIS_MNEMONIC_STI:
	case ZYDIS_MNEMONIC_CLI:
	case ZYDIS_MNEMONIC_RDPID:
	case ZYDIS_MNEMONIC_FXRSTOR:
	case ZYDIS_MNEMONIC_FXRSTOR64:
	case ZYDIS_MNEMONIC_LDMXCSR:
	case ZYDIS_MNEMONIC_VLDMXCSR:
	case ZYDIS_MNEMONIC_FLDCW:
	case ZYDIS_MNEMONIC_FLDENV:
	case ZYDIS_MNEMONIC_FRSTOR:
	case ZYDIS_MNEMONIC_FNSTENV:
	case ZYDIS_MNEMONIC_FNSAVE:
	case ZYDIS_MNEMONIC_CVTPD2PI:
	case ZYDIS_MNEMONIC_CVTTPD2PI:
	case ZYDIS_MNEMONIC_HLT: return false;
	default: break;
	}
	for (unsigned i = 0; i < zi.operand_count; i++) {
		if (op[i].type == ZYDIS_OPERAND_TYPE_REGISTER) {
			unsigned cls = ZydisRegisterGetClass(op[i].reg.value);

			if (cls == ZYDIS_REGCLASS_SEGMENT || cls == ZYDIS_REGCLASS_CONTROL ||
			    cls == ZYDIS_REGCLASS_DEBUG || cls == ZYDIS_REGCLASS_TEST || cls == ZYDIS_REGCLASS_TABLE)
				return false;
			if (i && op[i].reg.value == ZYDIS_REGISTER_CL)
				shift_by_cl = true;
		}
	}
	if (zi.cpu_flags) {
		tested = zi.cpu_flags->tested;
		undef = zi.cpu_flags->undefined;
		written = zi.cpu_flags->modified | zi.cpu_flags->set_0 | zi.cpu_flags->set_1;
	}
	if (zi.meta.category == ZYDIS_CATEGORY_SHIFT || zi.meta.category == ZYDIS_CATEGORY_ROTATE || shift_by_cl)
		undef |= FLAG_OF | FLAG_AF;
	if (shift_by_cl || zi.meta.category == ZYDIS_CATEGORY_SHIFT || zi.meta.category == ZYDIS_CATEGORY_ROTATE)
		written = 0; /* the count may be zero */
	if (tested & *undefined)
		return false;
	*undefined = (*undefined & ~written) | undef;
	*len = zi.length;
	return true;
}

static void random_program(struct program *p)
{
	unsigned want = 1 + (unsigned)(rnd() % 24);

	memset(p, 0, sizeof(*p));
	while (p->n < want) {
		unsigned len;

		p->at[p->n].off = p->len;
		p->at[p->n].undefined = p->undefined;
		if (!random_insn(p->code + p->len, &len, &p->undefined))
			continue;
		p->len += len;
		p->n++;
	}
	/* Both run until they come here. */
	p->code[p->len] = 0xf4;
}

static bool xsave_random = true;

static void random_state(struct run *r)
{
	r->s = cpu->s;
	for (unsigned i = 0; i < 16; i++) {
		uint64_t v = rnd();

		switch (rnd() % 4) {
		case 0: r->s.gpr[i] = v; break;
		case 1: r->s.gpr[i] = v & 0xff; break;
		default: r->s.gpr[i] = DATA + (v % DATA_LEN); break;
		}
	}
	r->s.gpr[R_RSP] = STACK + 0x800;
	r->s.rflags = 2 | (rnd() & FLAG_ARITH);
	r->s.rip = CODE + 0x800;
	r->s.seg[S_FS].base = DATA + 0x100;
	r->s.seg[S_GS].base = DATA + 0x1080;
	st16le(r->s.xsave, 0x37f);
	st32le(r->s.xsave + 24, 0x1f80);
	for (unsigned i = 160; i < 416; i += 8)
		st64le(r->s.xsave + i, rnd());
	for (unsigned i = 576; i < CPU_XSAVE_SIZE - 64; i += 8)
		st64le(r->s.xsave + i, rnd());
	for (unsigned i = 0; i < 8 && xsave_random; i++)
		memset(r->s.xsave + 32 + 16 * i, 0, 16);
	for (unsigned i = DATA; i < RAM_SIZE; i += 8)
		st64le(r->mem + i, rnd());
}

static void load_run(const struct run *r)
{
	cpu->s = r->s;
	cpu->exc_raised = false;
	soft_mode_changed(cpu);
	/* The code page is written through mem_mark_written only when it changed. */
	if (memcmp(ram(CODE), r->mem + CODE, PAGE_SIZE) != 0)
		mem_mark_written(&map, ram(CODE), PAGE_SIZE);
	memcpy(ram(0), r->mem, RAM_SIZE);
}

static void save_run(struct run *r, int result)
{
	r->s = cpu->s;
	r->result = result;
	r->vector = cpu->exc_vector;
	memcpy(r->mem, ram(0), RAM_SIZE);
}

static unsigned by_jit, by_interp;

static int run_until(uint64_t end, bool jit)
{
	for (unsigned i = 0; i < 200000 && cpu->s.rip != end; i++) {
		if (jit) {
			enum jit_exit e = jit_run(cpu);

			atomic_store(&cpu->v.requests, 0);
			if (cpu->s.mp_state == MP_HALTED) { /* the HLT behind the program */
				cpu->s.mp_state = MP_RUNNING;
				cpu->s.rip--;
				break;
			}
			if (e == JIT_EXC)
				return EXC_RAISED;
			if (cpu->s.rip == end)
				break;
			if (e == JIT_ATTENTION)
				continue;
			by_interp++;
		}
		if (interp_step(cpu) == EXC_RAISED)
			return EXC_RAISED;
		cpu->s.int_shadow = false;
	}
	return cpu->s.rip == end ? 0 : 99;
}

static void print_program(const struct program *p)
{
	ZydisFormatter f;
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	char text[96];

	ZydisFormatterInit(&f, ZYDIS_FORMATTER_STYLE_INTEL);
	for (unsigned off = 0; off < p->len; off += zi.length) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, p->code + off, 15, &zi, op)))
			return;
		ZydisFormatterFormatInstruction(&f, &zi, op, zi.operand_count_visible, text, sizeof(text),
						CODE + 0x800 + off, NULL);
		printf("  %llx: %-40s", CODE + 0x800 + off, text);
		for (unsigned i = 0; i < zi.length; i++)
			printf(" %02x", p->code[off + i]);
		printf("\n");
	}
}

static const char *const names[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
				    "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

static bool same(const struct run *a, const struct run *b, unsigned flags)
{
	bool ok = a->result == b->result && a->s.rip == b->s.rip && !((a->s.rflags ^ b->s.rflags) & flags) &&
		  (a->result != EXC_RAISED || a->vector == b->vector);

	for (unsigned i = 0; i < 16; i++)
		ok &= a->s.gpr[i] == b->s.gpr[i];
	/* All but the x87 instruction and data pointers, XSTATE_BV and what is reserved, and MXCSR_MASK, which the
	 * guest never gets from here (sys_xsave.c): it is 0 until the host's XSAVE has written to the image once. */
	ok &= !memcmp(a->s.xsave, b->s.xsave, 6) && !memcmp(a->s.xsave + 24, b->s.xsave + 24, 4) &&
	      !memcmp(a->s.xsave + 32, b->s.xsave + 32, 416 - 32) &&
	      !memcmp(a->s.xsave + 576, b->s.xsave + 576, XSAVE_USED - 576);
	return ok && !memcmp(a->mem, b->mem, RAM_SIZE);
}

static void show_difference(const struct run *start, const struct run *a, const struct run *b)
{
	printf("interpreter / translator: result %d %d vector %u %u rip %llx %llx rflags %llx %llx\n", a->result,
	       b->result, a->vector, b->vector, (unsigned long long)a->s.rip, (unsigned long long)b->s.rip,
	       (unsigned long long)a->s.rflags, (unsigned long long)b->s.rflags);
	for (unsigned i = 0; i < 16; i++)
		printf("%s %s start %016llx: %016llx %016llx\n", a->s.gpr[i] == b->s.gpr[i] ? " " : "*", names[i],
		       (unsigned long long)start->s.gpr[i], (unsigned long long)a->s.gpr[i],
		       (unsigned long long)b->s.gpr[i]);
	for (unsigned i = 0; i < CPU_XSAVE_SIZE; i++) {
		if (a->s.xsave[i] != b->s.xsave[i])
			printf("* xsave+%u: start %02x: %02x %02x\n", i, start->s.xsave[i], a->s.xsave[i],
			       b->s.xsave[i]);
	}
	for (unsigned i = 0; i < RAM_SIZE; i++) {
		if (a->mem[i] != b->mem[i])
			printf("* %x: %02x %02x\n", i, a->mem[i], b->mem[i]);
	}
}

static unsigned undefined_at(const struct program *p, uint64_t rip)
{
	for (unsigned i = 0; i < p->n; i++) {
		if (CODE + 0x800 + p->at[i].off == rip)
			return p->at[i].undefined;
	}
	return p->undefined;
}

static void random_programs(void)
{
	static struct run start, a, b;
	struct program p;
	unsigned long programs = 3000;
	const char *env = getenv("JIT_TEST_PROGRAMS");

	if (env)
		programs = strtoul(env, NULL, 0);
	env = getenv("JIT_TEST_SEED");
	if (env)
		seed = strtoull(env, NULL, 0);
	for (unsigned i = 0; i < 4; i++)
		sigaction(host_signal[i], &host_action[i], NULL);
	verbose = getenv("JIT_TEST_VERBOSE");
	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (unsigned long i = 0; i < programs; i++) {
		uint64_t at = seed, end;
		unsigned flags;

		random_program(&p);
		random_state(&start);
		end = CODE + 0x800 + p.len;
		memset(start.mem, 0, DATA);
		memcpy(start.mem + CODE + 0x800, p.code, sizeof(p.code));
		if (verbose) {
			printf("program %lu seed %llu\n", i, (unsigned long long)at);
			print_program(&p);
			fflush(stdout);
		}
		load_run(&start);
		save_run(&a, run_until(end, false));
		load_run(&start);
		memset(cpu->jit->heat, 0, sizeof(cpu->jit->heat));
		save_run(&b, run_until(end, true));
		flags = FLAG_ARITH & ~undefined_at(&p, a.s.rip);
		if (a.result && !sa.jit->exact_flags)
			flags = 0; /* dead ones are not kept */
		if (!same(&a, &b, flags)) {
			printf("program %lu, JIT_TEST_SEED=%llu\n", i, (unsigned long long)at);
			print_program(&p);
			show_difference(&start, &a, &b);
			fail();
		}
		by_jit += p.n;
	}
	printf("%u instructions, %u left to the interpreter, %llu blocks\n", by_jit, by_interp,
	       (unsigned long long)cpu->n_jit_blocks);
}

static void test_random(void **state)
{
	sa.jit->exact_flags = false;
	random_programs();
}

/* With all flags kept: the same at faults too. */
static void test_random_exact(void **state)
{
	sa.jit->exact_flags = true;
	random_programs();
	sa.jit->exact_flags = false;
}

static void run_both(const uint8_t *code, unsigned len, struct run *start)
{
	static struct run a, b;

	memset(start->mem, 0, DATA);
	memcpy(start->mem + CODE + 0x800, code, len);
	for (unsigned i = 0; i < 3; i++) { /* the second time it is translated already */
		load_run(start);
		save_run(&a, run_until(CODE + 0x800 + len - 1, false));
		load_run(start);
		memset(cpu->jit->heat, 0, sizeof(cpu->jit->heat));
		save_run(&b, run_until(CODE + 0x800 + len - 1, true));
		if (!same(&a, &b, FLAG_CF | FLAG_ZF | FLAG_SF)) {
			show_difference(start, &a, &b);
			fail();
		}
	}
}

/* A store changes the next instruction; a loop changes its own body on each turn. */
static void test_self_modifying(void **state)
{
	static struct run start;
	static const uint8_t next[] = {
	    0xc6, 0x05, 0x01, 0x00, 0x00, 0x00, 0x2a, /* mov byte [rip + 1], 42 */
	    0xb8, 0x01, 0x00, 0x00, 0x00,	      /* mov eax, 1: becomes 42 */
	    0xf4,
	};
	static const uint8_t loop[] = {
	    0xb9, 0x14, 0x00, 0x00, 0x00,	/* mov ecx, 20 */
	    0x31, 0xc0,				/* xor eax, eax */
	    0x83, 0xc0, 0x01,			/* add eax, 1: the 1 counts up */
	    0xfe, 0x05, 0xf9, 0xff, 0xff, 0xff, /* inc byte [rip - 7] */
	    0xff, 0xc9,				/* dec ecx */
	    0x75, 0xf3,				/* jnz to the add */
	    0xf4,
	};

	random_state(&start);
	run_both(next, sizeof(next), &start);
	run_both(loop, sizeof(loop), &start);
}

/* REP MOVS over page borders and with overlap, REP STOS; and counting loops that chain blocks. */
static void test_loops(void **state)
{
	static struct run start;
	static const uint8_t strings[] = {
	    0xbf, 0x05, 0x0f, 0x01, 0x00,		    /* mov edi, 0x10f05 */
	    0xbe, 0x01, 0x0f, 0x01, 0x00,		    /* mov esi, 0x10f01 */
	    0xb9, 0x00, 0x10, 0x00, 0x00, 0xf3, 0xa4,	    /* mov ecx, 4096; rep movsb */
	    0xb9, 0x33, 0x00, 0x00, 0x00, 0xf3, 0x48, 0xab, /* mov ecx, 51; rep stosq */
	    0xf4,
	};
	static const uint8_t loops[] = {
	    0xb9, 0x10, 0x27, 0x00, 0x00, /* mov ecx, 10000 */
	    0x48, 0x01, 0xc8,		  /* add rax, rcx */
	    0xa8, 0x03,			  /* test al, 3 */
	    0x74, 0x04,			  /* jz over */
	    0x48, 0xd1, 0xc0, 0x90,	  /* rol rax, 1; nop */
	    0x50, 0x5a,			  /* push rax; pop rdx */
	    0xe8, 0x05, 0x00, 0x00, 0x00, /* call */
	    0xff, 0xc9,			  /* dec ecx */
	    0x75, 0xeb,			  /* jnz */
	    0xeb, 0x04,			  /* jmp end */
	    0x48, 0x31, 0xd3, 0xc3,	  /* xor rbx, rdx; ret */
	    0xf4,
	};

	random_state(&start);
	run_both(strings, sizeof(strings), &start);
	run_both(loops, sizeof(loops), &start);
}

static void *ask_later(void *arg)
{
	usleep(20000);
	atomic_store(&cpu->v.requests, VCPU_REQ_INTR);
	return NULL;
}

/* A loop that needs its flags from one turn to the next is left for a request all the same. */
static void test_loop_is_left(void **state)
{
	static struct run start;
	static const uint8_t wait[] = {0x83, 0x3c, 0x25, 0x00, 0x00, 0x01, 0x00, 0x00, /* cmp dword [0x10000], 0 */
				       0x74, 0xf6, 0xf4};			       /* je back; hlt */
	static const uint8_t carry[] = {0x11, 0xd8, 0xeb, 0xfc, 0xf4};		       /* adc eax, ebx; jmp back */
	static const struct {
		const uint8_t *code;
		unsigned len;
	} loops[] = {{wait, sizeof(wait)}, {carry, sizeof(carry)}};

	for (unsigned i = 0; i < ARRAY_SIZE(loops); i++) {
		pthread_t t;

		random_state(&start);
		memset(start.mem, 0, DATA);
		memcpy(start.mem + CODE + 0x800, loops[i].code, loops[i].len);
		st32le(start.mem + DATA, 0);
		load_run(&start);
		atomic_store(&cpu->v.requests, 0);
		assert_int_equal(pthread_create(&t, NULL, ask_later, NULL), 0);
		while (jit_run(cpu) != JIT_ATTENTION)
			;
		pthread_join(t, NULL);
		atomic_store(&cpu->v.requests, 0);
		assert_true(cpu->s.rip - (CODE + 0x800) < loops[i].len);
	}
}

/* What a request finds where nobody will read the flags are the guest's flags all the same. */
static void test_dead_flags(void **state)
{
	static struct run start;
	static const uint8_t loop[] = {0x31, 0xd2, 0x01, 0xd8, 0xeb, 0xfa}; /* xor edx, edx; add eax, ebx; jmp back */
	uint64_t at = CODE + 0x800;

	for (unsigned i = 0; i < 5; i++) {
		uint64_t want, eax;
		pthread_t t;

		random_state(&start);
		memset(start.mem, 0, DATA);
		memcpy(start.mem + at, loop, sizeof(loop));
		load_run(&start);
		atomic_store(&cpu->v.requests, 0);
		assert_int_equal(pthread_create(&t, NULL, ask_later, NULL), 0);
		while (jit_run(cpu) != JIT_ATTENTION)
			;
		pthread_join(t, NULL);
		atomic_store(&cpu->v.requests, 0);
		if (cpu->s.rip == at + 2) {
			want = FLAG_ZF | FLAG_PF;
		} else {
			assert_int_equal(cpu->s.rip, at);
			eax = (uint32_t)cpu->s.gpr[R_RAX] - (uint32_t)cpu->s.gpr[R_RBX];
			__asm__("addl %k2, %k1; pushfq; popq %0"
				: "=r"(want), "+r"(eax)
				: "r"((uint32_t)cpu->s.gpr[R_RBX])
				: "cc");
		}
		assert_int_equal(cpu->s.rflags & FLAG_ARITH & ~FLAG_AF, want & FLAG_ARITH & ~FLAG_AF);
	}
}

/* perf looks into its map for mappings without a file, and for those of /dev/zero, as shared memory is called. */
static bool named_for_perf(uintptr_t at)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long first, end;
	bool found = false;
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx", &first, &end) == 2 && at >= first && at < end)
			found = strstr(line, " r-xs ") && strstr(line, " /dev/zero");
	}
	fclose(f);
	return found;
}

/* perf-map=on: every piece of translated code is in the file, inside the cache, and says what it is. */
static void test_perf_map(void **state)
{
	static struct run start;
	static const uint8_t code[] = {0x90, 0xf4}; /* nop; hlt */
	char path[64], line[256], want[64];
	unsigned stubs = 0, blocks = 0;
	bool found = false;
	FILE *f;

	random_state(&start);
	run_both(code, sizeof(code), &start);
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	snprintf(want, sizeof(want), "guest kernel %#llx", CODE + 0x800);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned long at, size;
		int n = 0;

		assert_int_equal(sscanf(line, "%lx %lx %n", &at, &size, &n), 2);
		assert_true(size && at >= (uintptr_t)sa.jit->rx && at + size <= (uintptr_t)sa.jit->rx + sa.jit->size);
		line[strcspn(line, "\n")] = 0;
		stubs += !strncmp(line + n, "kelvin stub: ", 13);
		blocks += !strncmp(line + n, "guest ", 6);
		found |= !strcmp(line + n, want);
	}
	fclose(f);
	unlink(path);
	assert_int_equal(stubs, 5);
	assert_true(found);
	assert_true(named_for_perf((uintptr_t)sa.jit->rx));
	assert_true(blocks >= cpu->n_jit_blocks);
}

/* ---- loops -------------------------------------------------------------------- */

/* What a loop's body is made of: bytes, and whether an 8-bit displacement or a step (a stride) ends them. */
enum loop_end { LOOP_PLAIN, LOOP_DISP, LOOP_STEP };
static const struct loop_piece {
	uint8_t len, end, bytes[7];
} loop_pieces[] = {
    {4, LOOP_DISP, {0x48, 0x8b, 0x46}},				 /* mov rax, [rsi + d] */
    {4, LOOP_DISP, {0x48, 0x01, 0x47}},				 /* add [rdi + d], rax */
    {4, LOOP_DISP, {0x48, 0x13, 0x5e}},				 /* adc rbx, [rsi + d] */
    {5, LOOP_DISP, {0x41, 0x0f, 0xb6, 0x50}},			 /* movzx edx, byte [r8 + d] */
    {5, LOOP_DISP, {0x4a, 0x89, 0x44, 0x07}},			 /* mov [rdi + r8 + d], rax */
    {5, LOOP_DISP, {0x48, 0x03, 0x5c, 0x16}},			 /* add rbx, [rsi + rdx + d] */
    {5, LOOP_DISP, {0xf3, 0x0f, 0x6f, 0x46}},			 /* movdqu xmm0, [rsi + d] */
    {5, LOOP_DISP, {0x66, 0x0f, 0xfc, 0x47}},			 /* paddb xmm0, [rdi + d]: aligned or #GP */
    {5, LOOP_DISP, {0xf3, 0x0f, 0x7f, 0x47}},			 /* movdqu [rdi + d], xmm0 */
    {4, LOOP_DISP, {0x4c, 0x03, 0x4e}},				 /* add r9, [rsi + d] */
    {4, LOOP_DISP, {0x49, 0x8b, 0x42}},				 /* mov rax, [r10 + d] */
    {4, LOOP_DISP, {0x4d, 0x11, 0x5a}},				 /* adc [r10 + d], r11 */
    {7, LOOP_PLAIN, {0x48, 0x03, 0x1d, 0x10, 0x40, 0x00, 0x00}}, /* add rbx, [rip + 0x4010] */
    {4, LOOP_STEP, {0x48, 0x83, 0xc6}},				 /* add rsi, n */
    {4, LOOP_STEP, {0x48, 0x83, 0xc7}},				 /* add rdi, n */
    {4, LOOP_STEP, {0x48, 0x8d, 0x7f}},				 /* lea rdi, [rdi + n] */
    {4, LOOP_STEP, {0x49, 0x83, 0xc0}},				 /* add r8, n */
    {4, LOOP_STEP, {0x49, 0x83, 0xc2}},				 /* add r10, n */
    {4, LOOP_PLAIN, {0x0f, 0xb6, 0xd0, 0x90}},			 /* movzx edx, al; nop */
    {3, LOOP_PLAIN, {0x48, 0x31, 0xc3}},			 /* xor rbx, rax */
    {3, LOOP_PLAIN, {0x49, 0xff, 0xc3}},			 /* inc r11 */
    {3, LOOP_PLAIN, {0x4d, 0x01, 0xd9}},			 /* add r9, r11 */
    {3, LOOP_PLAIN, {0x45, 0x31, 0xcb}},			 /* xor r11d, r9d */
    {3, LOOP_PLAIN, {0x4c, 0x39, 0xd8}},			 /* cmp rax, r11 */
    {4, LOOP_PLAIN, {0x4c, 0x0f, 0x42, 0xcb}},			 /* cmovb r9, rbx */
    {2, LOOP_PLAIN, {0x50, 0x5d}},				 /* push rax; pop rbp */
};

/* Behind what jumps out and goes back, HLT. *moves: bytes a turn at most. */
static unsigned random_loop(uint8_t *code, unsigned *moves)
{
	static const struct loop_piece ends[] = {
	    {3, 0, {0x48, 0xff, 0xc9}}, /* dec rcx */
	    {3, 0, {0x83, 0xe9, 0x01}}, /* sub ecx, 1 */
	};
	const struct loop_piece *p = &ends[rnd() % 2];
	unsigned len = 0, pieces = 2 + rnd() % 12, out = 0;
	int32_t rel;

	for (unsigned i = 0; i < pieces; i++) {
		const struct loop_piece *q = &loop_pieces[rnd() % ARRAY_SIZE(loop_pieces)];

		memcpy(code + len, q->bytes, q->len);
		len += q->len;
		if (q->end == LOOP_DISP)
			code[len - 1] = rnd() % 3 ? (uint8_t)(rnd() & 0x70) : (uint8_t)rnd();
		if (q->end == LOOP_STEP)
			code[len - 1] = (uint8_t)(rnd() % 2 ? (rnd() % 5 - 2) * 16 : rnd() % 65 - 32);
		if (q->end == LOOP_STEP)
			*moves += (unsigned)abs((int8_t)code[len - 1]);
		if (!out && rnd() % 12 == 0) {
			code[len] = 0x0f; /* jcc out, seldom taken */
			code[len + 1] = (uint8_t)(0x80 | (rnd() & 15));
			out = len + 2;
			len += 6;
		}
	}
	memcpy(code + len, p->bytes, p->len);
	len += p->len;
	code[len] = 0x0f;
	code[len + 1] = 0x85;
	rel = -(int32_t)(len + 6);
	memcpy(code + len + 2, &rel, 4);
	len += 6;
	rel = (int32_t)(len - (out + 4));
	if (out)
		memcpy(code + out, &rel, 4);
	code[len] = 0xf4;
	return len + 1;
}

#define TABLES	     0x1000ull /* four levels, a page each */
#define PAGE_MISSING 0x16u

/* Paging: neighbours in DATA are not neighbours in memory, and one page is missing. */
static void map_pages(struct run *r)
{
	for (unsigned level = 0; level < 3; level++)
		st64le(r->mem + TABLES + level * PAGE_SIZE, (TABLES + (level + 1) * PAGE_SIZE) | 3);
	for (unsigned n = 0; n < RAM_SIZE / PAGE_SIZE; n++) {
		unsigned to = n >= DATA / PAGE_SIZE && n < STACK / PAGE_SIZE ? n ^ 1 : n;

		st64le(r->mem + TABLES + 3 * PAGE_SIZE + 8 * (uint64_t)n,
		       (uint64_t)to * PAGE_SIZE | (n == PAGE_MISSING ? 0 : 3));
	}
	r->s.cr3 = TABLES;
	r->s.cr0 |= CR0_PG | CR0_WP;
}

/*
 * Accesses that move by a constant, forwards and backwards, over page borders, beside others, with carries from turn
 * to turn, exits in the middle, and operands that become misaligned.
 */
static void test_random_loops(void **state)
{
	static struct run start, a, b;
	const char *env = getenv("JIT_TEST_LOOPS");
	unsigned long programs = env ? strtoul(env, NULL, 0) : 1500, raised = 0;
	static const uint8_t address[] = {R_RSI, R_RDI, R_R10};

	sa.jit->exact_flags = true;
	env = getenv("JIT_TEST_SEED");
	if (env)
		seed = strtoull(env, NULL, 0);
	for (unsigned long i = 0; i < programs; i++) {
		uint64_t at = seed;
		uint8_t code[200];
		unsigned moves = 1, len = random_loop(code, &moves), most = MIN(100u, 0x1800u / moves);
		uint64_t end = CODE + 0x800 + len - 1;

		if (i % 16 == 0)
			random_state(&start); /* dear, for its memory */
		memset(start.mem, 0, DATA);
		memcpy(start.mem + CODE + 0x800, code, len);
		map_pages(&start);
		start.s.gpr[R_RCX] = 1 + rnd() % (rnd() % 4 ? most : 5);
		start.s.gpr[R_R8] = rnd() % 2 ? 0 : rnd() % 0x100;
		start.s.gpr[R_RDX] = rnd() & 0xff;
		for (unsigned k = 0; k < ARRAY_SIZE(address); k++)
			start.s.gpr[address[k]] = 0x12000 + (rnd() % 0x4000 & (rnd() % 8 ? ~15ull : ~0ull));
		if (rnd() % 4 == 0)
			start.s.gpr[R_RDI] = start.s.gpr[R_RSI] + 32;
		load_run(&start);
		mmu_flush_all(cpu);
		save_run(&a, run_until(end, false));
		load_run(&start);
		mmu_flush_all(cpu);
		memset(cpu->jit->heat, 0, sizeof(cpu->jit->heat));
		save_run(&b, run_until(end, true));
		raised += a.result == EXC_RAISED;
		if (!same(&a, &b, FLAG_ARITH)) {
			printf("loop %lu, JIT_TEST_SEED=%llu:", i, (unsigned long long)at);
			for (unsigned k = 0; k < len; k++)
				printf(" %02x", code[k]);
			printf("\n");
			show_difference(&start, &a, &b);
			fail();
		}
	}
	sa.jit->exact_flags = false;
	long_mode(cpu);
	mmu_flush_all(cpu);
	assert_true(raised > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),	  cmocka_unit_test(test_random_exact),
					   cmocka_unit_test(test_self_modifying), cmocka_unit_test(test_loops),
					   cmocka_unit_test(test_loop_is_left),	  cmocka_unit_test(test_dead_flags),
					   cmocka_unit_test(test_perf_map),	  cmocka_unit_test(test_random_loops)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
