// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer target: code of any content on the software CPU (decoder, interpreter, descriptor and page tables, gates,
 * task switches, exceptions), in each mode. The input picks a mode whose tables work, then changes what it likes of
 * tables and state ("pokes"), and its rest is the code. Handlers of exceptions step over a byte and go on. The real run
 * loop executes it, one block at a time, MAX_BLOCKS of them; nothing else runs, so that an input does the same each
 * time but for RDTSC and the like. Intel SDM volume 3, chapters 3 to 7 for the tables.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "cpu/cpu.h"
#include "cpu/model.h"
#include "cpu/soft/soft.h"
#include "io/vmclock.h"
#include "mem/mem.h"
#include "../cpu/no_lapic.h"
#include "input.h"

#define RAM	   0x80000u
#define TABLES	   0x10000u /* page tables: 32 pages */
#define NTABLES	   32u
#define GDT	   0x40000u
#define LDT	   0x41000u
#define IDT	   0x42000u
#define TSS	   0x44000u
#define HANDLERS   0x48000u /* 16 bytes each */
#define CODE	   0x50000u
#define CODE_MAX   0x4000u
#define STACK	   0x70000u
#define MAX_BLOCKS 120
#define MAX_POKES  24

enum mode { REAL, VM86, PM16, PM32, PAGED32, PAE, LONG64, COMPAT, MODES };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct mem_map mem;
static struct vmclock vmclock;
static struct cpu_host host;
static struct cpu_model model;
static struct accel *accel;
static struct vcpu *vcpu;
static uint8_t *ram;
static int vector; /* of the interrupt that waits, or -1 */
static bool reset;

static _Noreturn void fail(const char *why)
{
	fprintf(stderr, "cpu: %s\n", why);
	abort();
}

/* ---- the board -------------------------------------------------------------------------- */

static uint64_t port_read(void *opaque, uint16_t port, unsigned size)
{
	return port * 0x01010101ull;
}

static void port_write(void *opaque, uint16_t port, uint64_t val, unsigned size)
{
	/* nobody listens */
}

static int intr_ack(void *opaque, unsigned cpu)
{
	const int v = vector;

	vector = -1;
	return v;
}

static bool intr_pending(void *opaque, unsigned cpu)
{
	return vector >= 0;
}

static void request(void *opaque, enum vm_request what, int status, const char *why)
{
	if (what == VM_RESET && (!why || !strstr(why, "exception")))
		fail("a triple fault without a cause");
	reset = true;
	vcpu_request(vcpu, VCPU_REQ_STOP);
}

/* Called before guest code runs: it stops at the first place where it looks for requests. */
static void first_insn(void *opaque)
{
	vcpu_request(vcpu, VCPU_REQ_STOP);
}

static void need(bool ok, const struct err *err)
{
	if (ok)
		return;
	fprintf(stderr, "cpu: %s\n", err->msg);
	exit(2);
}

/* For atexit, so that leaks show. */
static void destroy(void)
{
	soft_accel_ops.vcpu_destroy(vcpu);
	soft_accel_ops.destroy(accel);
	vmclock_fini(&vmclock);
	mem_fini(&mem);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct cpuid_entry cpuid[CPU_MODEL_MAX_ENTRIES];
	struct ram_config config = {.size = RAM};
	struct accel_config cfg = {.mem = &mem, .clock = &vmclock, .host = &host, .model = &model, .ncpus = 1};
	struct opts options;
	struct err err = {0};

	host = (struct cpu_host){.port_read = port_read,
				 .port_write = port_write,
				 .intr_ack = intr_ack,
				 .intr_pending = intr_pending,
				 NO_LAPIC,
				 .request = request,
				 .first_insn = first_insn};
	need(!mem_init(&mem, &err) && !mem_add_ram(&mem, "ram", 0, RAM, &config, false, &err), &err);
	vmclock_init(&vmclock);
	need(!cpu_model_build(&model, NULL, "max", cpuid, soft_supported_cpuid(cpuid, ARRAY_SIZE(cpuid)), &err), &err);
	model.sockets = model.threads = model.cores = 1;
	need(!opts_parse("soft,jit=off,native=off", "accel", &options, &err), &err);
	accel = soft_accel_ops.create(&cfg, &options, &err);
	need(accel, &err);
	opts_free(&options);
	vcpu = soft_accel_ops.vcpu_create(accel, 0, 0, &err);
	need(vcpu, &err);
	ram = mem_ram_ptr(&mem, 0, RAM);
	vmclock_start(&vmclock);
	atexit(destroy);
	return 0;
}

/* ---- tables that work ----------------------------------------------------------------------------- */

static void put_page_tables(void)
{
	uint8_t *t = ram + TABLES;

	st64le(t, (TABLES + 0x1000) | 7); /* PML4 */
	st64le(t + 0x1000, (TABLES + 0x2000) | 7);
	st64le(t + 0x2000, (TABLES + 0x6000) | 7); /* PD: 4 KiB pages, then large ones */
	st64le(t + 0x2008, 0xe7);
	st32le(t + 0x3000, (TABLES + 0x5000) | 7); /* 32-bit */
	st32le(t + 0x3004, 0xe7);
	st64le(t + 0x4000, (TABLES + 0x2000) | 1); /* PAE */
	for (unsigned n = 0; n < RAM / PAGE_SIZE; n++) {
		st32le(t + 0x5000 + 4 * n, n << 12 | 7);
		st64le(t + 0x6000 + 8 * n, n << 12 | 7);
	}
}

static void put_descriptors(enum mode mode)
{
	static const uint64_t gdt[] = {0,
				       0x00af9b000000ffff,				      /* 08 code64 */
				       0x00cf93000000ffff,				      /* 10 data */
				       0x00cf9b000000ffff,				      /* 18 code32 */
				       0x00cffb000000ffff,				      /* 20 user code32 */
				       0x00cff3000000ffff,				      /* 28 user data */
				       0x00008b0000002067 | (uint64_t)(TSS & 0xffffff) << 16, /* 30 TSS, 38 its end */
				       0,
				       0x0000820000000fff | (uint64_t)(LDT & 0xffffff) << 16, /* 40 LDT, 48 its end */
				       0,
				       0x00009b000000ffff | (uint64_t)CODE << 16,	   /* 50 code16 */
				       0x000093000000ffff | (uint64_t)CODE << 16,	   /* 58 data16 */
				       0x00affb000000ffff,				   /* 60 user code64 */
				       0x0000890000000067 | (uint64_t)(TSS + 0x400) << 16, /* 68 another task */
				       0x0000e50000680000,				   /* 70 a gate to it */
				       0x0004ec0000180000 | (CODE & 0xffff) |
					   (uint64_t)(CODE >> 16) << 48}; /* 78 call gate */

	memcpy(ram + GDT, gdt, sizeof(gdt));
	memcpy(ram + LDT, gdt, sizeof(gdt));
	st32le(ram + TSS + 4, STACK); /* both layouts: ESP0 and RSP0 */
	st32le(ram + TSS + 8, mode >= LONG64 ? 0 : 0x10);
	st16le(ram + TSS + 102, 0x68);
	memcpy(ram + TSS + 0x400, (uint8_t[104]){0}, 104);
	st32le(ram + TSS + 0x400 + 32, CODE + 16); /* EIP, EFLAGS, ESP, segments */
	st32le(ram + TSS + 0x400 + 36, 2);
	st32le(ram + TSS + 0x400 + 56, STACK);
	st32le(ram + TSS + 0x400 + 28, TABLES + (mode == PAE ? 0x4000 : 0x3000));
	for (unsigned n = 0; n < 6; n++)
		st32le(ram + TSS + 0x400 + 72 + 4 * n, n == 1 ? 0x18 : 0x10);
}

/* Handlers drop an error code, make the address one byte more, and return. */
static void put_handlers(enum mode mode)
{
	static const uint8_t code[3][2][12] = {
	    {{0x55, 0x89, 0xe5, 0xff, 0x46, 0x02, 0x5d, 0xcf}, {0x55, 0x89, 0xe5, 0xff, 0x46, 0x02, 0x5d, 0xcf}},
	    {{0xff, 0x04, 0x24, 0xcf}, {0x83, 0xc4, 0x04, 0xff, 0x04, 0x24, 0xcf}},
	    {{0x48, 0xff, 0x04, 0x24, 0x48, 0xcf}, {0x48, 0x83, 0xc4, 0x08, 0x48, 0xff, 0x04, 0x24, 0x48, 0xcf}}};
	const unsigned width = mode == REAL ? 0 : mode >= LONG64 ? 2 : 1;
	const uint32_t with_code = 0x00227d00; /* vectors 8, 10 to 14, 17, 21 */

	for (unsigned v = 0; v < 256; v++) {
		const uint32_t at = HANDLERS + 16 * v;
		const uint64_t gate = (at & 0xffff) | (uint64_t)(width == 2 ? 0x08 : 0x18) << 16 |
				      (v & 1 ? 0xefull : 0xeeull) << 40 | (uint64_t)(at >> 16) << 48;

		memcpy(ram + at, code[width][v < 32 && (with_code >> v & 1)], 12);
		if (width == 0)
			st32le(ram + 4 * v, (at & 0xf) | (at >> 4) << 16);
		else
			st64le(ram + IDT + 8 * width * v, gate);
	}
}

static void put_segments(struct cpu_state *s, enum mode mode, unsigned cpl)
{
	static const uint16_t cs[MODES][2] = {[PM16] = {0x50, 0x53}, [PM32] = {0x18, 0x23},   [PAGED32] = {0x18, 0x23},
					      [PAE] = {0x18, 0x23},  [LONG64] = {0x08, 0x63}, [COMPAT] = {0x18, 0x23}};
	const bool real = mode <= VM86;

	for (unsigned n = S_ES; n <= S_GS; n++) {
		const bool code = n == S_CS;

		s->seg[n] = (struct cpu_segment){.type = code ? 11 : 3,
						 .s = true,
						 .present = true,
						 .dpl = (uint8_t)cpl,
						 .db = !real && mode != PM16 && !(code && mode == LONG64),
						 .l = code && mode == LONG64,
						 .g = mode > PM16,
						 .base = mode <= PM16 ? CODE : 0,
						 .limit = mode <= PM16 ? 0xffff : 0xffffffff};
		s->seg[n].sel = real	       ? CODE >> 4
				: code	       ? cs[mode][cpl != 0]
				: mode == PM16 ? (uint16_t)(0x58 | cpl)
				: cpl	       ? 0x2b
					       : 0x10;
	}
	s->seg[S_TR] = (struct cpu_segment){.sel = 0x30, .type = 11, .present = true, .limit = 0x2067, .base = TSS};
	s->seg[S_LDTR] = (struct cpu_segment){.sel = 0x40, .type = 2, .present = true, .limit = 0xfff, .base = LDT};
}

static void put_state(struct cpu_state *s, enum mode mode, unsigned cpl)
{
	const bool lng = mode >= LONG64;

	cpu_state_reset(s, true);
	s->cr0 = CR0_ET | CR0_NE | (mode == REAL ? 0 : CR0_PE) | (mode >= PAGED32 ? CR0_PG : 0);
	s->cr4 = (mode >= PAE ? CR4_PAE : 0) | CR4_OSFXSR | CR4_OSXMMEXCPT | CR4_OSXSAVE | CR4_PSE;
	s->efer = lng ? EFER_LME | EFER_LMA | EFER_SCE | EFER_NXE : 0;
	s->cr3 = TABLES + (mode == PAE ? 0x4000 : lng ? 0 : 0x3000);
	s->gdtr = (struct cpu_dtable){GDT, 0x1ff};
	s->idtr = (struct cpu_dtable){mode == REAL ? 0 : IDT, 0xfff};
	put_segments(s, mode, cpl);
	for (unsigned k = 0; k < 8; k++)
		s->gpr[k] = (mode <= PM16 ? 0 : CODE) + 0x1000 + 0x200 * k;
	s->gpr[R_RCX] = 3;
	s->gpr[R_RSP] = mode <= PM16 ? 0xf000 : STACK - 0x1000;
	s->rip = mode <= PM16 ? 0 : CODE;
	s->rflags = 2 | (mode == VM86 ? FLAG_VM | FLAG_IOPL : 0);
	s->star = 0x0053001000000000ull | CODE;
	s->lstar = s->cstar = CODE;
	s->sysenter_cs = 0x18;
	s->sysenter_eip = CODE;
	s->sysenter_esp = STACK;
	s->xcr0 = 7;
	s->mp_state = MP_RUNNING;
}

/* ---- changes -------------------------------------------------------------------------------------------- */

static void flip(uint64_t *reg, struct input *in, uint64_t allowed)
{
	*reg ^= take(in, 4) & allowed;
}

static void poke_segment(struct cpu_segment *s, struct input *in)
{
	const unsigned what = (unsigned)take(in, 1);

	s->type = what & 1 ? (uint8_t)(take(in, 1) & 15) : s->type;
	s->limit = what & 2 ? (uint32_t)take(in, 4) : s->limit;
	s->base = what & 4 ? (uint32_t)take(in, 4) : s->base;
	s->sel = what & 8 ? (uint16_t)take(in, 2) : s->sel;
	s->unusable = what & 16;
}

static void poke(struct cpu_state *s, struct input *in)
{
	const unsigned what = (unsigned)take(in, 1), n = (unsigned)take(in, 1);
	static const uint32_t areas[] = {GDT, LDT, IDT, IDT, TSS, TSS + 0x400, CODE + 0x1000, 0};

	switch (what % 16) {
	case 0:
	case 1:
	case 2:
	case 3: st64le(ram + areas[what >> 4 & 7] + 8 * n, take(in, 8)); break;
	case 4: st64le(ram + TABLES + 8 * (n | (take(in, 1) & 63) << 8), take(in, 8)); break;
	case 5: st32le(ram + TSS + 4 * n, (uint32_t)take(in, 4)); break;
	case 6: s->gpr[n & 15] = take(in, n & 16 ? 8 : 4); break;
	case 7: poke_segment(&s->seg[n % S_COUNT], in); break;
	case 8: flip(&s->cr0, in, CR0_WP | CR0_AM | CR0_NE | CR0_TS | CR0_MP | CR0_EM | CR0_CD); break;
	case 9:
		flip(&s->cr4, in,
		     CR4_VME | CR4_PVI | CR4_TSD | CR4_DE | CR4_PSE | CR4_PGE | CR4_PCE | CR4_OSFXSR | CR4_OSXSAVE |
			 CR4_UMIP | CR4_FSGSBASE | CR4_SMEP | CR4_SMAP);
		break;
	case 10:
		flip(&s->rflags, in,
		     FLAG_ARITH | FLAG_IF | FLAG_DF | FLAG_IOPL | FLAG_NT | FLAG_AC | FLAG_TF | FLAG_RF | FLAG_VIF |
			 FLAG_VIP | FLAG_ID);
		break;
	case 11:
		s->dr[n & 3] = CODE + take(in, 2);
		s->dr[7] = 0x400 | (take(in, 4) & 0xffff03ff);
		break;
	case 12: s->cr3 = TABLES + 4096 * (n % NTABLES) + (take(in, 1) & 0xe0); break;
	case 13:
		s->star = take(in, 8);
		s->sysenter_cs = n;
		break;
	case 14: st16le(s->xsave + 2 * (n & 3), (uint16_t)take(in, 2)); break; /* x87 control, status, tags */
	default:
		s->gdtr.limit = n & 1 ? (uint16_t)take(in, 2) : s->gdtr.limit;
		s->idtr.limit = n & 2 ? (uint16_t)take(in, 2) : s->idtr.limit;
		s->rip += n >> 2;
		break;
	}
}

static void run(unsigned when)
{
	struct soft_cpu *c = soft_cpu_of(vcpu);

	for (unsigned n = 0; n < MAX_BLOCKS && !reset; n++) {
		if (n == when % MAX_BLOCKS) { /* an interrupt, and an end to HLT */
			vector = (int)(when % 256);
			vcpu_request(vcpu, VCPU_REQ_INTR | (when & 0x100 ? VCPU_REQ_NMI : 0));
		} else if (c->s.mp_state != MP_RUNNING) {
			break;
		}
		if (c->s.mp_state == MP_HALTED && !(c->s.rflags & FLAG_IF) && !(when & 0x100))
			break;
		c->n_first_insn_ns = 0;
		if (soft_accel_ops.vcpu_run(vcpu))
			fail("the engine gave up");
		atomic_fetch_and(&vcpu->requests, ~VCPU_REQ_STOP);
		if (!(c->s.rflags & 2))
			fail("RFLAGS lost bit 1");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct cpu_state s;
	struct input in = {data, size};
	const unsigned how = (unsigned)take(&in, 1), when = (unsigned)take(&in, 2);
	const enum mode mode = how % MODES;
	unsigned pokes = (unsigned)take(&in, 1) % (MAX_POKES + 1);

	memset(ram, 0, RAM);
	put_page_tables();
	put_descriptors(mode);
	put_handlers(mode);
	put_state(&s, mode, mode == VM86 || (mode > PM16 && how & 8) ? 3 : 0);
	while (pokes--)
		poke(&s, &in);
	memset(ram + CODE, 0x90, 64);
	memcpy(ram + CODE, in.p, MIN(in.left, (size_t)CODE_MAX));
	mem_mark_written(&mem, ram, RAM);
	reset = false;
	vector = -1;
	atomic_store(&vcpu->requests, 0);
	soft_accel_ops.set_state(vcpu, &s);
	run(when);
	return 0;
}
