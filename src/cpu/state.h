/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The architectural state of one x86-64 CPU: what both engines can load and
 * store, and what a snapshot keeps. AMD64 Architecture Programmer's Manual
 * volume 2 and Intel SDM volume 3 name the fields.
 */
#ifndef KELVIN_CPU_STATE_H
#define KELVIN_CPU_STATE_H

#include <stdbool.h>
#include <stdint.h>

enum cpu_reg {
	R_RAX,
	R_RCX,
	R_RDX,
	R_RBX,
	R_RSP,
	R_RBP,
	R_RSI,
	R_RDI,
	R_R8,
	R_R9,
	R_R10,
	R_R11,
	R_R12,
	R_R13,
	R_R14,
	R_R15
};
enum cpu_seg { S_ES, S_CS, S_SS, S_DS, S_FS, S_GS, S_LDTR, S_TR, S_COUNT };

/* RFLAGS */
#define FLAG_CF	   BIT(0)
#define FLAG_PF	   BIT(2)
#define FLAG_AF	   BIT(4)
#define FLAG_ZF	   BIT(6)
#define FLAG_SF	   BIT(7)
#define FLAG_TF	   BIT(8)
#define FLAG_IF	   BIT(9)
#define FLAG_DF	   BIT(10)
#define FLAG_OF	   BIT(11)
#define FLAG_IOPL  (3ull << 12)
#define FLAG_NT	   BIT(14)
#define FLAG_RF	   BIT(16)
#define FLAG_VM	   BIT(17)
#define FLAG_AC	   BIT(18)
#define FLAG_VIF   BIT(19)
#define FLAG_VIP   BIT(20)
#define FLAG_ID	   BIT(21)
#define FLAG_ARITH (FLAG_CF | FLAG_PF | FLAG_AF | FLAG_ZF | FLAG_SF | FLAG_OF)

/* CR0, CR4, EFER */
#define CR0_PE	       BIT(0)
#define CR0_MP	       BIT(1)
#define CR0_EM	       BIT(2)
#define CR0_TS	       BIT(3)
#define CR0_ET	       BIT(4)
#define CR0_NE	       BIT(5)
#define CR0_WP	       BIT(16)
#define CR0_AM	       BIT(18)
#define CR0_NW	       BIT(29)
#define CR0_CD	       BIT(30)
#define CR0_PG	       BIT(31)
#define CR4_VME	       BIT(0)
#define CR4_PVI	       BIT(1)
#define CR4_TSD	       BIT(2)
#define CR4_DE	       BIT(3)
#define CR4_PSE	       BIT(4)
#define CR4_PAE	       BIT(5)
#define CR4_MCE	       BIT(6)
#define CR4_PGE	       BIT(7)
#define CR4_PCE	       BIT(8)
#define CR4_OSFXSR     BIT(9)
#define CR4_OSXMMEXCPT BIT(10)
#define CR4_UMIP       BIT(11)
#define CR4_LA57       BIT(12)
#define CR4_FSGSBASE   BIT(16)
#define CR4_PCIDE      BIT(17)
#define CR4_OSXSAVE    BIT(18)
#define CR4_SMEP       BIT(20)
#define CR4_SMAP       BIT(21)
#define CR4_PKE	       BIT(22)
#define EFER_SCE       BIT(0)
#define EFER_LME       BIT(8)
#define EFER_LMA       BIT(10)
#define EFER_NXE       BIT(11)
#define EFER_SVME      BIT(12)
#define EFER_FFXSR     BIT(14)

/* A segment register with its hidden part, decoded. */
struct cpu_segment {
	uint16_t sel;
	uint8_t type; /* 4 bits, with s: code/data; without: system descriptor type */
	uint8_t dpl;
	bool s, present, l, db, g, avl, unusable;
	uint32_t limit; /* bytes, scaled by g already */
	uint64_t base;
};

struct cpu_dtable {
	uint64_t base;
	uint16_t limit;
};

enum cpu_mp_state { MP_RUNNING, MP_HALTED, MP_WAIT_INIT /* AP before INIT */, MP_WAIT_SIPI };

/* Large enough for x87, SSE, AVX, AVX-512, PKRU in the host's standard XSAVE layout. */
#define CPU_XSAVE_SIZE 2816

struct cpu_state {
	uint64_t gpr[16]; /* enum cpu_reg */
	uint64_t rip, rflags;
	struct cpu_segment seg[S_COUNT];
	struct cpu_dtable gdtr, idtr;
	uint64_t cr0, cr2, cr3, cr4, cr8, efer, xcr0, xss;
	uint64_t dr[8];
	/* MSRs that are plain storage or that the engine interprets */
	uint64_t star, lstar, cstar, sfmask, kernel_gs_base;
	uint64_t sysenter_cs, sysenter_esp, sysenter_eip;
	uint64_t pat, apic_base, tsc_aux, tsc_adjust, misc_enable, spec_ctrl;
	uint64_t mtrr_def, mtrr_fixed[11], mtrr_phys[16];
	uint64_t kvm_system_time, kvm_wall_clock, kvm_async_pf, kvm_steal_time, kvm_poll_control, kvm_eoi;
	uint64_t mcg_status, mcg_ctl;
	enum cpu_mp_state mp_state;
	uint8_t sipi_vector;
	/* interrupt shadow and events in flight */
	bool int_shadow;  /* after STI or MOV SS: no interrupt before the next instruction ends */
	bool nmi_blocked; /* until IRET */
	bool nmi_pending;
	bool exc_pending; /* an exception was raised but not delivered yet (state transfer only) */
	uint8_t exc_vector;
	bool exc_has_code;
	uint32_t exc_code;
	_Alignas(64) uint8_t xsave[CPU_XSAVE_SIZE]; /* standard format */
};

/* State after power-on or RESET (BSP starts at the reset vector; APs wait for INIT). */
void cpu_state_reset(struct cpu_state *s, bool bsp);
/* INIT: like reset but keeps FPU, MTRRs, TSC and CD/NW (SDM 3A table 10-1). */
void cpu_state_init(struct cpu_state *s, bool bsp);
/* SIPI: real mode at vector << 12. */
void cpu_state_sipi(struct cpu_state *s, uint8_t vector);

#endif
