/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the system part (exc.c, seg*.c, sys*.c, msr.c, kvmclock.c,
 * run.c) offer each other. Everything runs in the vCPU's own thread; functions
 * that can fault follow soft.h's rules (0 or EXC_RAISED, nothing changed then).
 */
#ifndef KELVIN_CPU_SOFT_SYS_H
#define KELVIN_CPU_SOFT_SYS_H

#include "cpu/soft/insn.h"
#include "cpu/soft/soft.h"

#define SEL_RPL	  3u
#define SEL_TI	  4u
#define SEL_INDEX 0xfff8u

/* System descriptor types (64-bit names; 16-bit ones in legacy mode only) */
enum sys_desc_type {
	DESC_TSS16_AVAIL = 1,
	DESC_LDT = 2,
	DESC_TSS16_BUSY = 3,
	DESC_CALL_GATE16 = 4,
	DESC_TASK_GATE = 5,
	DESC_INT_GATE16 = 6,
	DESC_TRAP_GATE16 = 7,
	DESC_TSS_AVAIL = 9,
	DESC_TSS_BUSY = 11,
	DESC_CALL_GATE = 12,
	DESC_INT_GATE = 14,
	DESC_TRAP_GATE = 15
};
/* Type bits of code and data descriptors */
#define DESC_CODE	8u
#define DESC_CONFORMING 4u /* code */
#define DESC_EXPAND	4u /* data: expand-down */
#define DESC_RW		2u /* code: readable; data: writable */
#define DESC_ACCESSED	1u

#define RFLAGS_FIXED   2ull
#define RFLAGS_ALL     0x3f7fd7ull /* every defined bit */
#define DR6_FIXED      0xffff0ff0ull
#define DR6_BD	       BIT(13)
#define DR6_BS	       BIT(14)
#define DR7_FIXED      0x400ull
#define DR7_GD	       BIT(13)
#define DR7_ENABLED(n) (3ull << ((n)*2))

static inline bool sys_canonical(uint64_t a)
{
	return (uint64_t)((int64_t)(a << 16) >> 16) == a;
}
static inline bool sys_protected(const struct soft_cpu *c)
{
	return (c->s.cr0 & CR0_PE) && !(c->s.rflags & FLAG_VM);
}
static inline bool sys_long(const struct soft_cpu *c)
{
	return c->s.efer & EFER_LMA;
}
static inline unsigned sys_iopl(const struct soft_cpu *c)
{
	return (unsigned)(c->s.rflags >> 12) & 3;
}
static inline int sys_gp0(struct soft_cpu *c)
{
	return soft_raise_code(c, EXC_GP, 0);
}
static inline const struct cpu_host *sys_host(const struct soft_cpu *c)
{
	return c->v.accel->cfg.host;
}

/* ---- seg.c ---- */

/* A descriptor read from GDT or LDT. */
struct descriptor {
	struct cpu_segment seg; /* decoded; seg.sel is the selector asked for */
	uint64_t lin;		/* where its eight bytes are */
	uint64_t raw;
};
/* Read the descriptor of a non-null selector; outside its table: `vector` with the selector (and ext) as code. */
int desc_read(struct soft_cpu *c, uint16_t sel, enum exc_vector vector, uint32_t ext, struct descriptor *d);
/* The CS that IRET and far RET return to: reads its descriptor, checks type, rights and presence (#GP, #NP). */
int desc_check_return_cs(struct soft_cpu *c, uint16_t sel, struct descriptor *d);
/* Bits 63:32 of the base of a 16-byte system descriptor in long mode; type of the second half must be 0. */
int desc_read_high(struct soft_cpu *c, const struct descriptor *d, uint32_t *high);
/* Set the accessed bit in memory when it is not. */
int desc_set_accessed(struct soft_cpu *c, struct descriptor *d);
void desc_decode(uint64_t raw, uint16_t sel, struct cpu_segment *seg);
/* Load a data or stack segment register with all checks of the mode. */
int seg_load(struct soft_cpu *c, unsigned seg, uint16_t sel);
void seg_set_real(struct soft_cpu *c, unsigned seg, uint16_t sel);
void seg_set_null(struct soft_cpu *c, unsigned seg, uint16_t sel);
/* After a transfer to an outer level: data segments the new level may not use become null. */
void seg_drop_inner(struct soft_cpu *c, unsigned cpl);
/* Flat 64-bit or 32-bit segments as SYSCALL and friends load them. */
void seg_set_flat(struct soft_cpu *c, unsigned seg, uint16_t sel, unsigned dpl, bool l);

/* ---- stack helpers (seg.c) ---- */

/* A stack being built or taken down: base, address mask and rights. Changes nothing until committed. */
struct stack_ref {
	uint64_t base, mask, sp;
	unsigned mmu_index;
	const struct cpu_segment *seg; /* limit checks outside 64-bit mode; NULL = none */
	uint32_t err;		       /* error code of #SS: 0, or the new stack's selector and EXT */
};
struct stack_ref stack_current(const struct soft_cpu *c);
int stack_ref_push(struct soft_cpu *c, struct stack_ref *s, unsigned size, uint64_t val);
int stack_ref_pop(struct soft_cpu *c, struct stack_ref *s, unsigned size, uint64_t *val);
/* Write back the stack pointer with the width of the stack. */
void stack_ref_commit(struct soft_cpu *c, const struct stack_ref *s);

/* ---- exc.c ---- */
int exc_iret(struct soft_cpu *c, const struct insn *i);
/* Stack pointer (and SS in legacy mode) for privilege level `dpl` from the TSS. */
int exc_tss_stack(struct soft_cpu *c, unsigned dpl, unsigned ist, uint32_t ext, uint16_t *ss, uint64_t *sp);

/* ---- x87_error.c: CR0.NE = 0 ---- */
/* The exception recorded is an #MF that goes to the board instead: nothing is left to deliver. Else deliver what is
 * recorded now. */
bool x87_error_external(struct soft_cpu *c);
/* A waiting instruction met no error after one went to the board. */
void x87_error_gone(struct soft_cpu *c);
/* What a waiting x87 or MMX instruction does first. */
static inline int x87_wait(struct soft_cpu *c)
{
	if (ld16le(c->s.xsave + 2) & ~ld16le(c->s.xsave) & 0x3f)
		return soft_raise(c, EXC_MF);
	if (__builtin_expect(c->ferr, 0))
		x87_error_gone(c);
	return 0;
}

/* ---- task.c: hardware task switches (legacy protected mode) ---- */
enum task_why { TASK_JMP, TASK_CALL, TASK_INT, TASK_IRET };
struct task_event {
	enum task_why why;
	uint64_t next_eip, flags; /* saved in the old TSS */
	uint32_t ext;		  /* EXT bit of error codes */
	bool has_code;		  /* pushed on the new task's stack */
	uint32_t code;
};
/* The TSS that a task gate names, checked: in the GDT, available, present (#GP, #NP). */
int task_gate_tss(struct soft_cpu *c, uint16_t sel, uint32_t ext, struct descriptor *tss);
/* Switch. EXC_RAISED: either nothing happened, or the new task runs and faults (see task.c); rip is right for both. */
int task_switch(struct soft_cpu *c, const struct descriptor *tss, const struct task_event *e);
/* Far JMP or CALL to `d`, a TSS or a task gate. */
int task_far(struct soft_cpu *c, const struct descriptor *d, bool call, uint64_t next_eip);
/* IRET with NT set. */
int task_return(struct soft_cpu *c, uint64_t next_eip);

/* ---- sys_*.c handlers that tables elsewhere name ---- */
insn_fn sys_far_call, sys_far_jmp, sys_far_ret, sys_mov_special, sys_mov_sreg, sys_push_seg, sys_pop_seg;
insn_fn sys_lds, sys_lldt, sys_ltr, sys_lar, sys_lsl, sys_verr, sys_verw, sys_arpl;
insn_fn sys_in, sys_out, sys_ins, sys_outs;
insn_fn sys_xsave, sys_xrstor, sys_fxsave, sys_fxrstor, sys_xgetbv, sys_xsetbv;
insn_fn sys_syscall, sys_sysret, sys_sysenter, sys_sysexit;
insn_fn sys_int, sys_int1, sys_int3, sys_into;
insn_fn sys_rdmsr, sys_wrmsr;

/* ---- msr.c ---- */
int msr_read(struct soft_cpu *c, uint32_t msr, uint64_t *val); /* 0 or -EINVAL: #GP */
int msr_write(struct soft_cpu *c, uint32_t msr, uint64_t val);

/* ---- run.c ---- */
uint64_t soft_tsc(const struct soft_cpu *c);
void soft_tsc_update(struct soft_cpu *c); /* after TSC_ADJUST or the machine's clock changed */
/* After DR7, DR0..3 changed. */
void soft_debug_changed(struct soft_cpu *c);
/* A port was accessed while debug_active: I/O breakpoints note it in io_hit. */
void soft_debug_io(struct soft_cpu *c, uint16_t port, unsigned size);
void soft_log_state(const struct soft_cpu *c);

/* ---- kvmclock.c ---- */
void kvmclock_write_time(struct soft_cpu *c);
void kvmclock_write_wall(struct soft_cpu *c, uint64_t gpa);

/* ---- cpuid.c ---- */
bool soft_vendor_intel(const struct cpu_model *m);

/* CR4 bits this CPU's model has. */
uint64_t sys_cr4_allowed(const struct soft_cpu *c);

#endif
