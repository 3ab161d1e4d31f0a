/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CPU models: -cpu NAME,+flag,-flag,key=value as a CPUID table. `max` is all that
 * the engine can execute; `host` the host's table as far as the engine supports
 * it; QEMU's names (qemu64, EPYC, Skylake-Client, ...) map to feature sets and a
 * feature the engine cannot give is dropped with one summary line.
 */
#ifndef KELVIN_CPU_MODEL_H
#define KELVIN_CPU_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/state.h"

struct cpuid_entry {
	uint32_t leaf, subleaf;
	bool has_subleaf;
	uint32_t eax, ebx, ecx, edx;
};

#define CPU_MODEL_MAX_ENTRIES	96
#define CPU_MODEL_MAX_SUPPORTED 256 /* room an engine needs to say what it supports */
struct cpu_model {
	char name[64];
	struct cpuid_entry entry[CPU_MODEL_MAX_ENTRIES];
	unsigned n;
	uint64_t xcr0_mask; /* XCR0 bits the guest may set */
	unsigned phys_bits;
	bool kvmclock;
	unsigned sockets, cores, threads; /* topology of -smp */
	/* Told of each feature that was asked for and is not there, instead of a line in the log. May be NULL. */
	void (*missing)(void *opaque, const char *feature);
	void *opaque;
};

/* A named CPUID feature bit: the table behind +flag, help and QMP. */
struct cpu_feature {
	const char *name;
	uint32_t leaf, subleaf;
	uint8_t reg; /* 0 eax, 1 ebx, 2 ecx, 3 edx */
	uint8_t bit;
};
extern const struct cpu_feature cpu_feature_table[]; /* ends with name NULL */

/*
 * Build the table. `supported` is what the engine can do: entries of all
 * leaves it knows (KVM_GET_SUPPORTED_CPUID, or soft_supported_cpuid). `text` is
 * -cpu's argument or NULL for `def`. Of *m the topology and `missing` are read, all else is set.
 */
int cpu_model_build(struct cpu_model *m, const char *text, const char *def, const struct cpuid_entry *supported,
		    unsigned n, struct err *err);
/* CPUID as this vCPU sees it: APIC id, topology, OSXSAVE from cr4, XSAVE size from xcr0. */
void cpu_model_cpuid(const struct cpu_model *m, uint32_t apic_id, uint64_t cr4, uint64_t xcr0, uint64_t xss,
		     uint32_t leaf, uint32_t subleaf, uint32_t out[4]);
/* Of struct cpu_model, without the topology. */
extern const struct state cpu_model_state;
/* A snapshot's model becomes *m, which must be able to give all of it (the topology stays). */
int cpu_model_adopt(struct cpu_model *m, const struct cpu_model *saved, struct err *err);
bool cpu_model_has(const struct cpu_model *m, const char *feature);
/* The names -cpu takes, until NULL. */
const char *cpu_model_name_at(size_t i);
void cpu_model_list(void); /* -cpu help, to stdout */

#endif
