/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The lowering of single instructions: shared by jit_generic.c, jit_insn.c, jit_branch.c and jit_system.c. */
#ifndef KELVIN_CPU_SOFT_JIT_INSN_H
#define KELVIN_CPU_SOFT_JIT_INSN_H

#include "cpu/soft/jit_xlat.h"

/* Guest operand that a field of the encoding names. */
struct role {
	bool used, rd, wr, high, byte;
	uint8_t guest, size;
	int8_t host;  /* host register to encode */
	bool scratch; /* host is a scratch copy of a guest register without home */
	bool rotated;
};
enum role_field { ROLE_REG, ROLE_RM, ROLE_V, ROLE_OPC, ROLE_COUNT };

/* Scratch registers of one instruction: rax, rcx, then a borrowed home that is saved around it. */
struct scratch {
	uint32_t busy; /* host registers */
	int8_t borrowed;
};
/* Emit the guest's instruction with `role` registers and, if m, that memory operand. */
void x_emit_guest(struct xlat *x, const struct xinsn *in, const struct role *role, const struct hmem *m);
void x_roles_collect(const struct xinsn *in, struct role *role);
/* Give registers to operands without a usable home; afterwards, put results where they belong. */
void x_roles_place(struct xlat *x, struct role *role, struct scratch *s);
void x_roles_finish(struct xlat *x, struct role *role, struct scratch *s);
/* Look up the memory operand if there is one; then make the flags that the instruction (or, when it breaks a
 * recipe, a later one) needs valid in the host. */
bool x_prepare_mem(struct xlat *x, struct xinsn *in, struct hmem *m);
/* The host register of a guest register: its home, or `scratch` with its value. */
int x_reg_get(struct xlat *x, unsigned guest, int scratch);

/* jit_insn.c */
void x_rsp_add(struct xlat *x, int32_t n);
/* Push the value in `src` (H_NONE: the sign-extended immediate; H_RCX: it is in SLOT_TMP2). */
void x_push_value(struct xlat *x, struct xinsn *in, int src, int32_t imm);
void x_load_operand_rcx(struct xlat *x, struct xinsn *in, unsigned n);

/* jit_branch.c */
/* rcx = linear address of the page offset */
void x_load_va(struct xlat *x, int32_t off);
/* Jump through the table to the linear address in rcx, in code of that mode; flags are in the slot. */
void x_jump_table(struct xlat *x, unsigned mmu_index);

/* One function for each kind (enum xkind). */
#define LOWER(name) void x_lower_##name(struct xlat *x, struct xinsn *in)
LOWER(acc_imm);
LOWER(bt_mem);
LOWER(call);
LOWER(call_ind);
LOWER(cbw);
LOWER(cld);
LOWER(cli);
LOWER(cmpxchg);
LOWER(cmpxchg16b);
LOWER(cwd);
LOWER(div);
LOWER(fnstsw_ax);
LOWER(generic);
LOWER(jcc);
LOWER(jmp_ind);
LOWER(jrcxz);
LOWER(lahf);
LOWER(lea);
LOWER(leave);
LOWER(moffs);
LOWER(mul);
LOWER(nop);
LOWER(pcmpstr);
LOWER(pop);
LOWER(push);
LOWER(pushf);
LOWER(raw);
LOWER(rdtsc);
LOWER(ret);
LOWER(sahf);
LOWER(stac);
LOWER(sti);
LOWER(swapgs);
LOWER(xchg_acc);
#undef LOWER

#endif
