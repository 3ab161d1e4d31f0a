/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A hostile guest against the whole software CPU: random code, much of it system
 * instructions, with malformed descriptor tables, task states and page tables, in
 * every mode, through the run loop (interrupt delivery, double and triple faults,
 * HLT), on the interpreter and the translator. The monitor must not crash, hang
 * or grow, and each triple fault must say its cause.
 *
 *	test_hostile [SECONDS [SEED [ACCELERATOR-OPTIONS]]]	CPU seconds
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "bare.h"
#include "cpu/soft/sys.h"
#include "insn_case.h"

#define TABLES	 0x10000u /* page tables: 32 pages that point at each other */
#define NTABLES	 32u
#define GDT	 0x40000u
#define LDT	 0x41000u
#define IDT	 0x42000u
#define TSS	 0x44000u
#define CODE	 0x50000u /* 16 pages */
#define CODE_LEN 0x10000u
/* KiB the process may grow once it has warmed up; the translator's code (256 MiB, in two mappings) and blocks (128 MiB)
 * fill slowly. */
#define GROWTH	   (96l * 1024)
#define GROWTH_JIT (GROWTH + (2 * 256 + 128) * 1024l)

static struct bare b;
static struct rng r;
static _Atomic bool over;
static unsigned long resets, unexplained;
static volatile unsigned long rounds;

static void on_request(void *opaque, enum vm_request what, int status, const char *why)
{
	if (what == VM_RESET) {
		resets++;
		unexplained += !why || !strstr(why, "exception");
	}
	vcpu_request(b.vcpu[0], VCPU_REQ_STOP);
}

/* Ends each round after a millisecond or so. */
static void *stopper(void *arg)
{
	while (!over) {
		usleep(1000);
		vcpu_request(b.vcpu[0], VCPU_REQ_STOP);
	}
	return NULL;
}

/* ---- tables ------------------------------------------------------------------ */

static uint64_t random_descriptor(void)
{
	static const uint8_t access[] = {0x9b, 0x93, 0xfb, 0xf3, 0x9f, 0x97, 0x89, 0x8b, 0x82, 0x85, 0x8c, 0xec,
					 0x84, 0x86, 0x87, 0x8e, 0xee, 0x8f, 0xe5, 0x81, 0x83, 0x99, 0x91, 0x1b};
	uint64_t d = rng_next(&r);

	if (rng_below(&r, 8) == 0)
		return d;
	d &= ~(0xffull << 40);
	d |= (uint64_t)access[rng_below(&r, ARRAY_SIZE(access))] << 40;
	if (rng_below(&r, 4)) { /* base in our memory, or the selector of a gate in our table */
		d &= ~(0xffull << 56 | 0xffffff0000ull);
		d |= (uint64_t)(rng_below(&r, 2) ? rng_below(&r, 64) * 8 : TSS + rng_below(&r, 16) * 128) << 16;
	}
	if (rng_below(&r, 3) == 0) /* all of memory */
		d |= 0x00cf00000000ffffull;
	return d;
}

static void fill_tables(void)
{
	for (unsigned n = 1; n < 64; n++) {
		if (rng_below(&r, 4))
			continue;
		st64le(bare_ram(&b, GDT + 8 * n), random_descriptor());
		st64le(bare_ram(&b, LDT + 8 * n), random_descriptor());
	}
	/* some that work */
	st64le(bare_ram(&b, GDT + 8), 0x00af9b000000ffff);
	st64le(bare_ram(&b, GDT + 16), 0x00cf93000000ffff);
	st64le(bare_ram(&b, GDT + 24), 0x00cf9b000000ffff);
	st64le(bare_ram(&b, GDT + 32), 0x00cffb000000ffff);
	st64le(bare_ram(&b, GDT + 40), 0x00cff3000000ffff);
	for (unsigned v = 0; v < 512; v++)
		if (rng_below(&r, 16) == 0)
			st64le(bare_ram(&b, IDT + 8 * v), random_descriptor());
	for (unsigned k = 0; k < 0x800; k += 4)
		if (rng_below(&r, 8) == 0)
			st32le(bare_ram(&b, TSS + k), rng_below(&r, 2) ? rng_below(&r, 64) * 8 | rng_below(&r, 4)
								       : CODE + rng_below(&r, CODE_LEN));
	for (unsigned k = 0; k < 64; k++) {
		uint64_t e = TABLES + 4096ull * rng_below(&r, NTABLES) + (rng_next(&r) & 0xfff);

		if (rng_below(&r, 16) == 0)
			e |= rng_next(&r);
		else if (rng_below(&r, 8) == 0)
			e = (rng_next(&r) & 0xe00000) | 0xe7; /* a large page */
		st64le(bare_ram(&b, TABLES + 8 * rng_below(&r, NTABLES * 512)), e | (rng_below(&r, 16) ? 7 : 0));
	}
	/* Table 0..3 map memory one to one, so that something happens; entries get lost again and again. */
	if (rng_below(&r, 4) == 0) {
		for (unsigned n = 0; n < 8; n++) {
			st64le(bare_ram(&b, TABLES + 8 * n), (TABLES + 0x1000) | 7);
			st64le(bare_ram(&b, TABLES + 0x1000 + 8 * n), (TABLES + 0x2000) | 7);
			st64le(bare_ram(&b, TABLES + 0x2000 + 8 * n), n * 2 * MIB | 0x87);
		}
	}
}

/* ---- code ---------------------------------------------------------------------- */

static const char *const snippets[] = {
    "\x0f\x01\x10",	/* lgdt (eax) */
    "\x0f\x01\x18",	/* lidt (eax) */
    "\x0f\x00\xd8",	/* ltr ax */
    "\x0f\x00\xd0",	/* lldt ax */
    "\x0f\x22\xc0",	/* mov eax, cr0 */
    "\x0f\x22\xd8",	/* mov eax, cr3 */
    "\x0f\x22\xe0",	/* mov eax, cr4 */
    "\x0f\x23\xf8",	/* mov eax, dr7 */
    "\x0f\x23\xc0",	/* mov eax, dr0 */
    "\x0f\x01\xf0",	/* lmsw ax */
    "\x0f\x30",		/* wrmsr */
    "\x0f\x01\xd1",	/* xsetbv */
    "\x0f\x34",		/* sysenter */
    "\x0f\x35",		/* sysexit */
    "\x0f\x05",		/* syscall */
    "\x0f\x07",		/* sysret */
    "\xcf",		/* iret */
    "\x48\xcf",		/* iretq, or dec eax; iret */
    "\xcb",		/* lret */
    "\xcd\x08",		/* int 8 */
    "\xcd\x80",		/* int 80h */
    "\xcc",		/* int3 */
    "\xf1",		/* icebp */
    "\xce",		/* into */
    "\xf4",		/* hlt */
    "\xfb",		/* sti */
    "\x9d",		/* popf */
    "\x8e\xd8",		/* mov ds, ax */
    "\x8e\xd0",		/* mov ss, ax */
    "\xff\x28",		/* ljmp (eax) */
    "\xff\x18",		/* lcall (eax) */
    "\x6f",		/* outs */
    "\x6c",		/* ins */
    "\xf3\xa4",		/* rep movs */
    "\xf3\xab",		/* rep stos */
    "\x0f\x01\x38",	/* invlpg */
    "\x0f\xae\x20",	/* xsave */
    "\x0f\xae\x28",	/* xrstor */
    "\xdd\x30",		/* fnsave */
    "\xc8\x20\x00\x1f", /* enter with 31 levels */
};

static void fill_code(uint64_t at, unsigned len)
{
	uint8_t *p = bare_ram(&b, at);
	unsigned n = 0;

	while (n + 16 < len) {
		switch (rng_below(&r, 4)) {
		case 0:
			st64le(p + n, rng_next(&r));
			n += 1 + rng_below(&r, 8);
			break;
		case 1: /* mov $imm, register: something for the next to work on */
			p[n] = (uint8_t)(0xb8 + rng_below(&r, 8));
			st32le(p + n + 1, rng_below(&r, 3)   ? rng_below(&r, 64) * 8 | rng_below(&r, 8)
					  : rng_below(&r, 2) ? CODE + rng_below(&r, CODE_LEN)
							     : (uint32_t)rng_next(&r));
			n += 5;
			break;
		default: {
			const char *s = snippets[rng_below(&r, ARRAY_SIZE(snippets))];

			for (; *s; s++)
				p[n++] = (uint8_t)*s;
			break;
		}
		}
	}
	mem_mark_written(&b.mem, p, len);
}

/* ---- states ---------------------------------------------------------------------- */

enum mode { REAL, VM86, PM16, PM32, PAGED32, PAE, LONG64, COMPAT, MODES };

static void random_segments(struct cpu_state *s, enum mode mode, unsigned cpl)
{
	bool real = mode == REAL || mode == VM86;

	for (unsigned n = S_ES; n <= S_GS; n++) {
		bool cs = n == S_CS;

		s->seg[n] = (struct cpu_segment){.sel = (uint16_t)(rng_below(&r, 64) * 8 | cpl),
						 .type = cs ? 11 : 3,
						 .s = true,
						 .present = true,
						 .dpl = (uint8_t)cpl,
						 .db = !real && mode != PM16 && !(cs && mode == LONG64),
						 .l = cs && mode == LONG64,
						 .limit = real || mode == PM16 ? 0xffff : 0xffffffff};
		if (real) {
			s->seg[n].sel = CODE >> 4;
			s->seg[n].base = CODE;
		} else if (mode == PM16) {
			s->seg[n].base = CODE;
		}
		if (!cs && rng_below(&r, 16) == 0)
			s->seg[n].limit = (uint32_t)rng_next(&r) & 0xffff;
	}
	s->seg[S_TR] = (struct cpu_segment){
	    .sel = 0x30, .type = 11, .present = true, .limit = rng_below(&r, 4) ? 0x2067 : 0x20, .base = TSS};
	s->seg[S_LDTR] = (struct cpu_segment){.sel = 0x38, .type = 2, .present = true, .limit = 0x1ff, .base = LDT};
}

static void random_state(struct cpu_state *s)
{
	enum mode mode = (enum mode)rng_below(&r, MODES);
	unsigned cpl = mode == REAL ? 0 : mode == VM86 ? 3 : rng_below(&r, 2) * 3;
	bool paged = mode >= PAGED32 || (mode == VM86 && rng_below(&r, 2)), lng = mode >= LONG64;

	cpu_state_reset(s, true);
	s->cr0 = CR0_ET | (mode == REAL ? 0 : CR0_PE) | (paged ? CR0_PG : 0) |
		 (rng_next(&r) & (CR0_WP | CR0_AM | CR0_NE | CR0_TS | CR0_MP));
	s->cr4 =
	    (mode == PAE || lng ? CR4_PAE : 0) |
	    (rng_next(&r) & (CR4_PSE | CR4_PGE | CR4_DE | CR4_OSFXSR | CR4_OSXSAVE | CR4_SMEP | CR4_SMAP | CR4_UMIP));
	s->efer = (lng ? EFER_LME | EFER_LMA : 0) | (rng_next(&r) & (EFER_SCE | EFER_NXE));
	s->cr3 = TABLES + 4096 * (rng_below(&r, 2) ? 0 : rng_below(&r, NTABLES));
	s->gdtr = (struct cpu_dtable){GDT, (uint16_t)(rng_below(&r, 8) ? 0x1ff : rng_next(&r))};
	s->idtr = (struct cpu_dtable){mode == REAL ? 0 : IDT, (uint16_t)(rng_below(&r, 8) ? 0xfff : rng_next(&r))};
	random_segments(s, mode, cpl);
	for (unsigned k = 0; k < 16; k++)
		s->gpr[k] = rng_below(&r, 4) ? CODE + rng_below(&r, CODE_LEN) : rng_next(&r);
	s->gpr[R_RCX] &= rng_below(&r, 8) ? 0xffff : ~0ull;
	if (!lng)
		for (unsigned k = 0; k < 16; k++)
			s->gpr[k] = (uint32_t)s->gpr[k];
	s->rip = rng_below(&r, CODE_LEN - 64) + (mode == REAL || mode == VM86 || mode == PM16 ? 0 : CODE);
	s->rflags = 2 | (mode == VM86 ? FLAG_VM : 0) |
		    (rng_next(&r) & (FLAG_ARITH | FLAG_IF | FLAG_DF | FLAG_IOPL | FLAG_NT | FLAG_AC));
	if (rng_below(&r, 8) == 0)
		s->rflags |= FLAG_TF;
	s->star = 0x0023001000000000ull | CODE;
	s->lstar = s->cstar = CODE + rng_below(&r, CODE_LEN);
	s->sysenter_cs = rng_below(&r, 64) * 8;
	s->sysenter_eip = CODE;
	s->sysenter_esp = CODE + CODE_LEN;
	s->xcr0 = 7;
	if (rng_below(&r, 8) == 0) {
		s->dr[0] = CODE + rng_below(&r, CODE_LEN);
		s->dr[7] = 0x402 | (rng_next(&r) & 0xf0000);
	}
	s->mp_state = MP_RUNNING;
}

static void one(void)
{
	struct cpu_state s;

	fill_tables();
	if (rng_below(&r, 4) == 0)
		fill_code(CODE + 4096 * rng_below(&r, CODE_LEN / 4096), 4096);
	fill_code(CODE + 64 * rng_below(&r, CODE_LEN / 64 - 4), 256);
	random_state(&s);
	b.vector = rng_below(&r, 2) ? (int)rng_below(&r, 256) : -1;
	soft_accel_ops.set_state(b.vcpu[0], &s);
	alarm(60); /* a hang kills the test */
	if (soft_accel_ops.vcpu_run(b.vcpu[0]))
		abort();
	atomic_fetch_and(&b.vcpu[0]->requests, ~VCPU_REQ_STOP);
	rounds++;
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long resident(void)
{
	long pages = 0, unused;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f) {
		if (fscanf(f, "%ld %ld", &unused, &pages) != 2)
			pages = 0;
		fclose(f);
	}
	return pages * 4;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 5;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	const char *accel = argc > 3 ? argv[3] : "soft,jit=off";
	long warm = 0, now;
	pthread_t thread;

	r.s = seed;
	bare_init(&b, 1, accel);
	b.host.request = on_request;
	for (unsigned k = 0; k < CODE_LEN; k += 4096)
		fill_code(CODE + k, 4096);
	pthread_create(&thread, NULL, stopper, NULL);
	while (cpu_seconds() < seconds) {
		one();
		if (!warm && cpu_seconds() > seconds / 3)
			warm = resident();
	}
	over = true;
	pthread_join(thread, NULL);
	now = resident();
	printf(
	    "seed %llu: %lu rounds, %lu triple faults (%lu without a cause), %llu exceptions, %ld KiB then %ld KiB\n",
	    (unsigned long long)seed, rounds, resets, unexplained,
	    (unsigned long long)soft_cpu_of(b.vcpu[0])->n_exceptions, warm, now);
	bare_fini(&b);
	return unexplained || (warm && now > warm + (strstr(accel, "jit=off") ? GROWTH : GROWTH_JIT));
}
