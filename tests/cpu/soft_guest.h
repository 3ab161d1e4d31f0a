/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A software CPU without a machine: RAM, page tables for the tests' pages, ring 3 or 0. */
#ifndef KELVIN_TESTS_SOFT_GUEST_H
#define KELVIN_TESTS_SOFT_GUEST_H

#include "cpu/soft/soft.h"
#include "io/vmclock.h"

struct guest {
	struct mem_map mem;
	struct soft_accel accel;
	struct soft_cpu *c;
	struct vcpu *vcpus[4];
	struct cpu_host host;
	struct cpu_model model;
	struct vmclock clock;
	uint8_t *ram;
	uint64_t next_table, next_page; /* bump allocators in guest-physical memory */
};

/* Without a CPU model: the instructions are the host's. */
int guest_create(struct guest *g);
/* With -cpu max as the software CPU offers it. */
int guest_create_max(struct guest *g);
/* As guest_create, with RAM that other processes can map. */
int guest_create_shared(struct guest *g);
/* Translate everything at first sight. */
int guest_enable_jit(struct guest *g);
void guest_destroy(struct guest *g);
#define GUEST_W 1u
#define GUEST_X 2u
/* Map `size` bytes of fresh RAM at a linear address for user mode; returns the host pointer. */
uint8_t *guest_map(struct guest *g, uint64_t lin, uint64_t size, unsigned rights);
/* 64-bit user mode with everything enabled that the host has. */
void guest_user64(struct guest *g);

#endif
