/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Processor state after power-up, RESET, INIT and SIPI.
 * AMD64 APM volume 2, 14.1 (table 14-1); Intel SDM volume 3A, 10.1 (table 10-1).
 */
#include "cpu/state.h"

#include <string.h>

#include "base/util.h"

#define PAT_RESET		0x0007040600070406ull
#define APIC_BASE_RESET		0xfee00000ull
#define APIC_BASE_BSP		BIT(8)
#define APIC_BASE_ENABLE	BIT(11)
#define MISC_ENABLE_FAST_STRING BIT(0)
#define FCW_RESET		0x0040 /* after RESET; FNINIT and Linux set 0x37f */
#define MXCSR_RESET		0x1f80

enum segment_type { SEG_DATA_RW = 3, SEG_CODE_RX = 11, SEG_LDT = 2, SEG_TSS16_BUSY = 3 };

static struct cpu_segment segment_real(uint16_t sel, uint8_t type)
{
	return (struct cpu_segment){
	    .sel = sel, .type = type, .s = true, .present = true, .limit = 0xffff, .base = (uint64_t)sel << 4};
}

/* What RESET and INIT have in common. */
static void reset_common(struct cpu_state *s, bool bsp)
{
	memset(s->gpr, 0, sizeof(s->gpr));
	s->gpr[R_RDX] = 0x600; /* family 6: what software that looks sees as "some processor" */
	s->rip = 0xfff0;
	s->rflags = 2;
	for (unsigned i = 0; i < S_COUNT; i++)
		s->seg[i] = segment_real(0, SEG_DATA_RW);
	s->seg[S_CS] = segment_real(0xf000, SEG_CODE_RX);
	s->seg[S_CS].base = 0xffff0000;
	s->seg[S_LDTR] = (struct cpu_segment){.type = SEG_LDT, .present = true, .limit = 0xffff};
	s->seg[S_TR] = (struct cpu_segment){.type = SEG_TSS16_BUSY, .present = true, .limit = 0xffff};
	s->gdtr = s->idtr = (struct cpu_dtable){.limit = 0xffff};
	s->cr2 = s->cr3 = s->cr4 = s->cr8 = s->efer = 0;
	memset(s->dr, 0, sizeof(s->dr));
	s->dr[6] = 0xffff0ff0;
	s->dr[7] = 0x400;
	s->mp_state = bsp ? MP_RUNNING : MP_WAIT_SIPI;
	s->sipi_vector = 0;
	s->int_shadow = s->nmi_blocked = s->nmi_pending = s->exc_pending = s->exc_has_code = false;
	s->exc_vector = 0;
	s->exc_code = 0;
}

void cpu_state_reset(struct cpu_state *s, bool bsp)
{
	memset(s, 0, sizeof(*s));
	reset_common(s, bsp);
	if (!bsp)
		s->mp_state = MP_WAIT_INIT;
	s->cr0 = CR0_CD | CR0_NW | CR0_ET;
	s->xcr0 = 1;
	s->pat = PAT_RESET;
	s->apic_base = APIC_BASE_RESET | APIC_BASE_ENABLE | (bsp ? APIC_BASE_BSP : 0);
	s->misc_enable = MISC_ENABLE_FAST_STRING;
	st16le(s->xsave, FCW_RESET);
	st32le(s->xsave + 24, MXCSR_RESET);
	/* FTW (abridged) is 0 = all empty; XSTATE_BV: the legacy parts are in use */
	st64le(s->xsave + 512, 3);
}

void cpu_state_init(struct cpu_state *s, bool bsp)
{
	uint64_t cache_bits = s->cr0 & (CR0_CD | CR0_NW);

	reset_common(s, bsp);
	s->cr0 = cache_bits | CR0_ET;
}

void cpu_state_sipi(struct cpu_state *s, uint8_t vector)
{
	s->seg[S_CS] = segment_real((uint16_t)(vector << 8), SEG_CODE_RX);
	s->rip = 0;
	s->mp_state = MP_RUNNING;
	s->sipi_vector = vector;
}
