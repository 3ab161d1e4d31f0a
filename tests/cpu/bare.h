/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A machine of RAM and software CPUs only, for tests of the engine: code is
 * copied in, runs in the calling thread, and stops by OUT to port 0xF4 or in the
 * handler of an exception.
 *
 * Fixed places: GDT, IDT and TSS below 64 KiB; page tables at 64 KiB (identity,
 * 2 MiB pages, user); vector n's handler is "out %al, $0xf4" at
 * BARE_HANDLERS + 16 * n; code at BARE_CODE, stack below BARE_STACK.
 */
#ifndef TESTS_CPU_BARE_H
#define TESTS_CPU_BARE_H

#include "cpu/cpu.h"
#include "cpu/model.h"
#include "cpu/soft/soft.h"
#include "io/vmclock.h"
#include "mem/mem.h"

#define BARE_RAM      (16 * MIB)
#define BARE_GDT      0x1000
#define BARE_IDT      0x2000
#define BARE_TSS      0x3000
#define BARE_TABLES   0x10000 /* PML4, PDPT, PD */
#define BARE_HANDLERS 0x20000
#define BARE_CODE     0x100000
#define BARE_STACK    0x80000 /* CPL 0; IST1 is 0x90000, CPL 3 0xa0000 */

/* Selectors of the GDT */
enum { SEL_CODE64 = 0x08, SEL_DATA = 0x10, SEL_CODE32 = 0x18, SEL_UDATA = 0x2b, SEL_UCODE64 = 0x33, SEL_TSS = 0x40 };

#define BARE_MAX_CPUS 4
struct bare {
	struct mem_map mem;
	struct vmclock clock;
	struct cpu_host host;
	struct cpu_model model;
	struct accel *accel;
	unsigned ncpus;
	struct vcpu *vcpu[BARE_MAX_CPUS];
	/* what the guest did */
	uint8_t out;		/* last byte sent to port 0xF4 */
	_Atomic unsigned reset; /* VM_RESET requests */
	_Atomic int vector;	/* pending interrupt, -1 = none */
	uint64_t last_port_write;
	uint16_t last_port;
};

void bare_init(struct bare *b, unsigned ncpus, const char *accel_options);
/* The same with -cpu's argument. */
void bare_init_cpu(struct bare *b, unsigned ncpus, const char *accel_options, const char *cpu);
void bare_fini(struct bare *b);
/* 64-bit state at BARE_CODE with the fixed places; CPL 0. */
void bare_long_mode(struct bare *b, unsigned cpu);
void bare_code(struct bare *b, uint64_t gpa, const void *code, size_t len);
/* Run until port 0xF4; false when it did not stop within ten seconds of host time (the test then fails). */
void bare_run(struct bare *b, unsigned cpu);
struct soft_cpu *bare_cpu(struct bare *b, unsigned cpu);
uint8_t *bare_ram(struct bare *b, uint64_t gpa);
/* Vector of the handler the CPU stopped in, or -1. */
int bare_stopped_in(struct bare *b, unsigned cpu);

/* Code as text of the assembler, between two symbols. */
#define BARE_ASM(name, text)                                                                                           \
	extern const char name[], name##_end[];                                                                        \
	__asm__(".pushsection .rodata\n.balign 16\n" #name ":\n" text "\n" #name "_end:\n.popsection\n")
#define BARE_LOAD(b, gpa, name) bare_code(b, gpa, name, (size_t)(name##_end - name))

#endif
