/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See soft_guest.h. The page tables are four levels, built in guest RAM from 1 MiB up. */
#include "soft_guest.h"
#include <stdio.h>
#include <stdlib.h>
#include "cpu/soft/jit.h"
#include <asm/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RAM_SIZE (32 * MIB)
#define TABLES	 (1 * MIB)
#define PAGES	 (8 * MIB)

static uint64_t host_xcr0(void)
{
	uint32_t lo, hi;

	__asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (uint64_t)hi << 32 | lo;
}

static int create(struct guest *g, bool max, bool share)
{
	struct ram_config rc = {.size = RAM_SIZE, .share = share};
	struct err err = {0};

	memset(g, 0, sizeof(*g));
	if (mem_init(&g->mem, &err) || mem_add_ram(&g->mem, "ram", 0, RAM_SIZE, &rc, false, &err))
		return -1;
	g->ram = g->mem.block[0].host;
	g->c = aligned_alloc(64, ALIGN_UP(sizeof(*g->c), (size_t)64));
	memset(g->c, 0, sizeof(*g->c));
	g->vcpus[0] = &g->c->v;
	pthread_mutex_init(&g->accel.exclusive, NULL);
	vmclock_init(&g->clock);
	vmclock_start(&g->clock);
	g->accel.a.cfg.clock = &g->clock;
	g->accel.a.cfg.mem = &g->mem;
	g->accel.a.cfg.ncpus = 1;
	g->accel.a.cfg.host = &g->host;
	g->accel.a.vcpu = g->vcpus;
	g->c->v.accel = &g->accel.a;
	if (max) {
		static struct cpuid_entry entries[CPU_MODEL_MAX_ENTRIES];
		unsigned n = soft_supported_cpuid(entries, CPU_MODEL_MAX_ENTRIES);

		if (cpu_model_build(&g->model, "max", "max", entries, n, &err))
			return -1;
		g->accel.a.cfg.model = &g->model;
	}
	g->next_table = TABLES + PAGE_SIZE;
	g->next_page = PAGES;
	return code_init(&g->accel.a, &err) || mmu_init(g->c, &err) || interp_init(g->c, &err) ? -1 : 0;
}

int guest_create(struct guest *g)
{
	return create(g, false, false);
}

int guest_create_max(struct guest *g)
{
	return create(g, true, false);
}

int guest_create_shared(struct guest *g)
{
	return create(g, false, true);
}

int guest_enable_jit(struct guest *g)
{
	struct err err = {0};

	g->accel.jit_on = g->accel.jit_always = g->accel.jit_exact_flags = true;
	if (jit_init(&g->accel.a, NULL, &err) || jit_cpu_init(g->c, &err)) {
		fprintf(stderr, "%s\n", err.msg);
		g->accel.jit_on = false;
		return -1;
	}
	g->accel.jit->return_exceptions = true;
	syscall(SYS_arch_prctl, ARCH_SET_GS, (unsigned long)g->c);
	return 0;
}

void guest_destroy(struct guest *g)
{
	if (g->accel.jit_on) {
		jit_cpu_fini(g->c);
		jit_fini(&g->accel.a);
	}
	interp_fini(g->c);
	mmu_fini(g->c);
	code_fini(&g->accel.a);
	free(g->c);
	mem_fini(&g->mem);
	vmclock_fini(&g->clock);
}

static uint64_t *table_entry(struct guest *g, uint64_t lin)
{
	uint64_t *t = (uint64_t *)(void *)(g->ram + TABLES);

	for (unsigned shift = 39; shift > 12; shift -= 9) {
		uint64_t *e = &t[lin >> shift & 511];

		if (!(*e & 1)) {
			*e = g->next_table | 7;
			g->next_table += PAGE_SIZE;
		}
		t = (uint64_t *)(void *)(g->ram + (*e & 0x000ffffffffff000ull));
	}
	return &t[lin >> 12 & 511];
}

uint8_t *guest_map(struct guest *g, uint64_t lin, uint64_t size, unsigned rights)
{
	uint8_t *host = g->ram + g->next_page;

	for (uint64_t k = 0; k < size; k += PAGE_SIZE) {
		*table_entry(g, lin + k) =
		    g->next_page | 5 | (rights & GUEST_W ? 2 : 0) | (rights & GUEST_X ? 0 : 1ull << 63);
		g->next_page += PAGE_SIZE;
	}
	return host;
}

void guest_user64(struct guest *g)
{
	struct cpu_state *s = &g->c->s;

	s->cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_PG;
	s->cr3 = TABLES;
	s->cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXMMEXCPT | CR4_OSXSAVE | CR4_FSGSBASE;
	s->efer = EFER_SCE | EFER_LME | EFER_LMA | EFER_NXE;
	s->xcr0 = host_xcr0() & 0xe7;
	s->rflags = 0x202;
	for (unsigned k = 0; k < 6; k++)
		s->seg[k] = (struct cpu_segment){.sel = 0x2b,
						 .type = 3,
						 .dpl = 3,
						 .s = true,
						 .present = true,
						 .db = true,
						 .g = true,
						 .limit = 0xffffffff};
	/* As Linux has them. */
	s->seg[S_DS].sel = s->seg[S_ES].sel = s->seg[S_FS].sel = s->seg[S_GS].sel = 0;
	s->seg[S_CS] = (struct cpu_segment){
	    .sel = 0x33, .type = 11, .dpl = 3, .s = true, .present = true, .l = true, .g = true, .limit = 0xffffffff};
	soft_mode_changed(g->c);
	mmu_flush_all(g->c);
}
