/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "bare.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "no_lapic.h"

/* cmocka puts its own SIGFPE handler before each fixture and test; the engine needs the one it installed. */
static struct sigaction engine_sigfpe;
static bool engine_sigfpe_known;

static uint64_t port_read(void *opaque, uint16_t port, unsigned size)
{
	return port * 0x01010101ull;
}

static void port_write(void *opaque, uint16_t port, uint64_t val, unsigned size)
{
	struct bare *b = opaque;

	b->last_port = port;
	b->last_port_write = val;
	if (port != 0xf4)
		return;
	b->out = (uint8_t)val;
	for (unsigned i = 0; i < b->ncpus; i++)
		vcpu_request(b->vcpu[i], VCPU_REQ_STOP);
}

static int intr_ack(void *opaque, unsigned cpu)
{
	struct bare *b = opaque;

	return atomic_exchange(&b->vector, -1);
}
static bool intr_pending(void *opaque, unsigned cpu)
{
	struct bare *b = opaque;

	return b->vector >= 0;
}
static void request(void *opaque, enum vm_request what, int status, const char *why)
{
	struct bare *b = opaque;

	if (what == VM_RESET)
		b->reset++;
	for (unsigned i = 0; i < b->ncpus; i++)
		vcpu_request(b->vcpu[i], VCPU_REQ_STOP);
}

void bare_init(struct bare *b, unsigned ncpus, const char *accel_options)
{
	bare_init_cpu(b, ncpus, accel_options, NULL);
}

void bare_init_cpu(struct bare *b, unsigned ncpus, const char *accel_options, const char *cpu)
{
	struct cpuid_entry cpuid[CPU_MODEL_MAX_ENTRIES];
	struct ram_config ram = {.size = BARE_RAM};
	struct accel_config cfg = {
	    .mem = &b->mem, .clock = &b->clock, .host = &b->host, .model = &b->model, .ncpus = ncpus};
	struct opts options;
	struct err err = {0};
	unsigned n;

	memset(b, 0, sizeof(*b));
	b->ncpus = ncpus;
	b->vector = -1;
	b->host = (struct cpu_host){.opaque = b,
				    .port_read = port_read,
				    .port_write = port_write,
				    .intr_ack = intr_ack,
				    .intr_pending = intr_pending,
				    NO_LAPIC,
				    .request = request};
	assert_int_equal(mem_init(&b->mem, &err), 0);
	assert_int_equal(mem_add_ram(&b->mem, "ram", 0, BARE_RAM, &ram, false, &err), 0);
	vmclock_init(&b->clock);
	n = soft_supported_cpuid(cpuid, ARRAY_SIZE(cpuid));
	assert_int_equal(cpu_model_build(&b->model, cpu, "max", cpuid, n, &err), 0);
	b->model.sockets = b->model.threads = 1;
	b->model.cores = ncpus;
	assert_int_equal(opts_parse(accel_options, "accel", &options, &err), 0);
	b->accel = soft_accel_ops.create(&cfg, &options, &err);
	if (!b->accel)
		fail_msg("%s", err.msg);
	opts_free(&options);
	for (unsigned i = 0; i < ncpus; i++) {
		b->vcpu[i] = soft_accel_ops.vcpu_create(b->accel, i, i, &err);
		if (!b->vcpu[i])
			fail_msg("%s", err.msg);
	}
	if (!engine_sigfpe_known)
		sigaction(SIGFPE, NULL, &engine_sigfpe);
	engine_sigfpe_known = true;
	vmclock_start(&b->clock);
}

void bare_fini(struct bare *b)
{
	vmclock_stop(&b->clock);
	for (unsigned i = 0; i < b->ncpus; i++)
		soft_accel_ops.vcpu_destroy(b->vcpu[i]);
	soft_accel_ops.destroy(b->accel);
	vmclock_fini(&b->clock);
	mem_fini(&b->mem);
}

struct soft_cpu *bare_cpu(struct bare *b, unsigned cpu)
{
	return soft_cpu_of(b->vcpu[cpu]);
}

uint8_t *bare_ram(struct bare *b, uint64_t gpa)
{
	uint8_t *p = mem_ram_ptr(&b->mem, gpa, 1);

	assert_non_null(p);
	return p;
}

void bare_code(struct bare *b, uint64_t gpa, const void *code, size_t len)
{
	assert_int_equal(dma_write(&b->mem, gpa, code, len), 0);
}

static void put_tables(struct bare *b)
{
	static const uint64_t gdt[] = {0,
				       0x00af9b000000ffff, /* 08 code64 */
				       0x00cf93000000ffff, /* 10 data */
				       0x00cf9b000000ffff, /* 18 code32 */
				       0x00cffb000000ffff, /* 20 user code32 */
				       0x00cff3000000ffff, /* 28 user data */
				       0x00affb000000ffff, /* 30 user code64 */
				       0,
				       0x0000890000000067 | (uint64_t)BARE_TSS << 16, /* 40 TSS */
				       0};

	bare_code(b, BARE_GDT, gdt, sizeof(gdt));
	for (unsigned v = 0; v < 256; v++) {
		uint64_t h = BARE_HANDLERS + 16 * v, gate[2] = {0};

		gate[0] = (h & 0xffff) | (uint64_t)SEL_CODE64 << 16 | (v == EXC_DF ? 1ull << 32 : 0) |
			  (v == EXC_BP ? 0xeeull : 0x8eull) << 40 | (h >> 16) << 48;
		bare_code(b, BARE_IDT + 16 * v, gate, sizeof(gate));
		bare_code(b, h, "\xe6\xf4\xf4\xeb\xfd", 5);
	}
	st64le(bare_ram(b, BARE_TSS + 4), BARE_STACK);
	st64le(bare_ram(b, BARE_TSS + 36), 0x90000);
	st16le(bare_ram(b, BARE_TSS + 102), 0x68); /* no I/O bitmap */
	st64le(bare_ram(b, BARE_TABLES), (BARE_TABLES + 0x1000) | 7);
	st64le(bare_ram(b, BARE_TABLES + 0x1000), (BARE_TABLES + 0x2000) | 7);
	for (unsigned n = 0; n < BARE_RAM / (2 * MIB); n++)
		st64le(bare_ram(b, BARE_TABLES + 0x2000 + 8 * n), n * 2 * MIB | 0x87);
}

void bare_long_mode(struct bare *b, unsigned cpu)
{
	struct cpu_state s;

	put_tables(b);
	cpu_state_reset(&s, true);
	s.cr0 = CR0_PE | CR0_PG | CR0_WP | CR0_NE | CR0_ET | CR0_MP;
	s.cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXMMEXCPT | CR4_PGE | CR4_OSXSAVE;
	s.efer = EFER_LME | EFER_LMA | EFER_NXE | EFER_SCE;
	s.cr3 = BARE_TABLES;
	s.gdtr = (struct cpu_dtable){BARE_GDT, 0x4f};
	s.idtr = (struct cpu_dtable){BARE_IDT, 0xfff};
	for (unsigned n = S_ES; n <= S_GS; n++)
		s.seg[n] = (struct cpu_segment){.sel = n == S_CS ? SEL_CODE64 : SEL_DATA,
						.type = n == S_CS ? 11 : 3,
						.s = true,
						.present = true,
						.l = n == S_CS,
						.db = n != S_CS,
						.g = true,
						.limit = 0xffffffff};
	s.seg[S_TR] =
	    (struct cpu_segment){.sel = SEL_TSS, .type = 11, .present = true, .limit = 0x67, .base = BARE_TSS};
	s.seg[S_LDTR] = (struct cpu_segment){.unusable = true};
	s.rip = BARE_CODE;
	s.gpr[R_RSP] = BARE_STACK;
	s.rflags = 2;
	assert_int_equal(soft_accel_ops.set_state(b->vcpu[cpu], &s), 0);
}

void bare_run(struct bare *b, unsigned cpu)
{
	struct sigaction old;

	sigaction(SIGFPE, &engine_sigfpe, &old);
	alarm(20); /* a hang kills the test */
	assert_int_equal(soft_accel_ops.vcpu_run(b->vcpu[cpu]), 0);
	alarm(0);
	sigaction(SIGFPE, &old, NULL);
	atomic_fetch_and(&b->vcpu[cpu]->requests, ~VCPU_REQ_STOP);
}

int bare_stopped_in(struct bare *b, unsigned cpu)
{
	uint64_t off = bare_cpu(b, cpu)->s.rip - BARE_HANDLERS;

	return off < 16 * 256 ? (int)(off / 16) : -1;
}
