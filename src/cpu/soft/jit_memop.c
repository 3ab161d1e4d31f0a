/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guest memory operands in translated code: the inline lookup in the software
 * TLB (soft.h, struct tlb_entry) and the slow path behind it.
 *
 *	lea  rcx, [guest address]
 *	rorx eax, ecx, 8
 *	and  eax, 0x3ff0
 *	xor  rcx, gs:[rax + tag]
 *	cmp  rcx, 4096 - size
 *	ja   cold
 *	mov  rax, gs:[rax + addend]
 *   resume:
 *	op   [rax + guest base + disp]
 *
 * The address is not taken from rcx again, so the loads of tag and addend are
 * off the critical path. Cold code computes the address again, calls the slow
 * stub, and resumes with its addend; when the access cannot be done here it
 * leaves with the state of the instruction's start, and the interpreter does it.
 */
#include "cpu/soft/jit_xlat.h"

static bool is_rip(const ZydisDecodedOperandMem *m)
{
	return m->base == ZYDIS_REGISTER_RIP || m->base == ZYDIS_REGISTER_EIP;
}

static int guest_of(ZydisRegister r)
{
	unsigned size;
	bool high;

	return r == ZYDIS_REGISTER_NONE ? -1 : x_gpr(r, &size, &high);
}

static unsigned scale_shift(unsigned scale)
{
	return scale == 8 ? 3 : scale == 4 ? 2 : scale == 2 ? 1 : 0;
}

void x_address(struct xlat *x, const struct xinsn *in, const ZydisDecodedOperandMem *m, int dst)
{
	struct emit *e = &x->e;
	int gb = guest_of(m->base), gi = guest_of(m->index);
	struct hmem a = {.base = H_NONE, .index = H_NONE, .disp = (int32_t)m->disp.value};

	if (is_rip(m)) {
		e_load(e, H_RAX, h_slot(SLOT_PAGE));
		a.base = H_RAX;
		a.disp += in->next;
	} else {
		if (gb >= 0) {
			a.base = (int8_t)home_of((unsigned)gb);
			if (a.base == H_NONE) {
				e_load(e, H_RCX, slot_of((unsigned)gb));
				a.base = H_RCX;
			}
		}
		if (gi >= 0) {
			a.index = (int8_t)home_of((unsigned)gi);
			a.scale = (uint8_t)scale_shift(m->scale);
			if (a.index == H_NONE) {
				e_load(e, H_RAX, slot_of((unsigned)gi));
				a.index = H_RAX;
			}
		}
	}
	if (in->zi.address_width == 32 || (in->kind == K_LEA && in->op[0].size == 32)) {
		e_op_mem(e, 0, 0x8d, dst, &a);
		return;
	}
	if (a.base == H_NONE && a.index == H_NONE)
		e_mov_imm64(e, dst, (uint64_t)m->disp.value);
	else
		e_lea(e, dst, a);
}

static size_t seg_base(const ZydisDecodedOperandMem *m)
{
	unsigned s = m->segment == ZYDIS_REGISTER_FS ? S_FS : m->segment == ZYDIS_REGISTER_GS ? S_GS : S_COUNT;

	return s == S_COUNT ? 0
			    : offsetof(struct soft_cpu, s.seg) + s * sizeof(struct cpu_segment) +
				  offsetof(struct cpu_segment, base);
}

/* add reg, gs:[off] */
static void add_gs(struct xlat *x, int reg, size_t off)
{
	struct hmem h = h_gs(off);

	e_op_mem(&x->e, 1, 0x03, reg, &h);
}

static void linear(struct xlat *x, const struct xinsn *in, const ZydisDecodedOperandMem *m)
{
	size_t seg = seg_base(m);

	x_address(x, in, m, H_RCX);
	if (seg)
		add_gs(x, H_RCX, seg);
	if (seg && x->w32)
		e_op_reg(&x->e, 0, 0x8b, H_RCX, H_RCX); /* it wraps */
}

/* With rcx = linear address: the lookup up to the loaded addend. The jumps to cold code are in miss[]. */
static void lookup(struct xlat *x, unsigned size, unsigned align, enum mmu_access a, uint8_t *miss[2])
{
	struct emit *e = &x->e;
	size_t tlb = offsetof(struct soft_cpu, tlb) +
		     (x->mmu_index * MMU_ACCESSES + (unsigned)a) * TLB_SIZE * sizeof(struct tlb_entry);
	struct hmem tag = h_gs(tlb + offsetof(struct tlb_entry, tag));
	struct hmem addend = h_gs(tlb + offsetof(struct tlb_entry, addend));

	tag.base = addend.base = H_RAX;
	x->rax_group = -1;
	e_rorx(e, 0, H_RAX, H_RCX, PAGE_SHIFT - 4);
	e1(e, 0x25); /* and eax, imm32 */
	e4(e, TLB_INDEX_MASK);
	e_op_mem(e, 1, 0x33, H_RCX, &tag);
	e_alu_imm(e, 1, 7, H_RCX, (int32_t)(PAGE_SIZE - size));
	miss[0] = e_jcc(e, CC_A);
	miss[1] = NULL;
	if (align > 1) {
		e1(e, 0xf6); /* test cl, align - 1 */
		e1(e, 0xc1);
		e1(e, align - 1);
		miss[1] = e_jcc(e, CC_NE);
	}
	e_load(e, H_RAX, addend);
}

static void miss_here(struct xlat *x, uint8_t *miss[2])
{
	e_patch(miss[0], x->e.p);
	if (miss[1])
		e_patch(miss[1], x->e.p);
}

void x_slow_access(struct xlat *x, const struct xinsn *in, unsigned size, enum mmu_access a, const uint8_t *resume)
{
	struct emit *e = &x->e;

	e_mov_imm32(e, H_RAX, size | (unsigned)in->mem_align << 16);
	e_call_to(e, a == MMU_WRITE ? x->j->slow_write : x->j->slow_read);
	e_jmp_to(e, resume); /* skipped by the stub on failure: 5 bytes */
	x_flags_cold(x, in->live_in, x->slot, &x->recipe);
	x_side_exit(x, in->off, x->j->leave_keep);
}

/* Flags stay: behind the head of a group they may be needed. */
static void add_rax(struct xlat *x, int reg)
{
	x->rax_group = -1;
	e_lea(&x->e, H_RAX, (struct hmem){.base = H_RAX, .index = (int8_t)reg});
}

struct hmem x_lookup(struct xlat *x, const struct xinsn *in, const ZydisDecodedOperandMem *m, unsigned size,
		     enum mmu_access a)
{
	struct emit *e = &x->e;
	int gb = guest_of(m->base), gi = guest_of(m->index), hb, hi;
	size_t seg = seg_base(m);
	bool narrow = in->zi.address_width == 32, far_disp = false;
	struct hmem r = {.base = H_RAX, .index = H_NONE, .disp = (int32_t)m->disp.value};
	uint8_t *miss[2];
	const uint8_t *resume;

	if (in->group >= 0) {
		const struct xgroup *g = &x->group[in->group];

		x_group_addend(x, in, m, size, a);
		if (g->index_in)
			gi = -1;
		if (g->base_in) {
			gb = -1;
			if (is_rip(m)) {
				r.disp += in->next;
				return r;
			}
		}
		goto found;
	}
	/* Absolute addresses beyond a displacement (MOV with a 64-bit offset). */
	far_disp = gb < 0 && gi < 0 && !is_rip(m) && m->disp.value != (int32_t)m->disp.value;
	linear(x, in, m);
	if (narrow || far_disp)
		e_store(e, h_slot(SLOT_LIN), H_RCX);
	lookup(x, size, in->mem_align, a, miss);
	resume = e->p;
	x_swap(x);
	miss_here(x, miss);
	if (in->masked) {
		/* A page that is in the TLB can be accessed as a whole, so nothing the mask leaves out matters.
		 * Otherwise only the interpreter may say which elements count. */
		x_flags_cold(x, in->live_in, x->slot, &x->recipe);
		x_side_exit(x, in->off, x->j->leave[REASON_INTERP]);
	} else {
		linear(x, in, m);
		x_slow_access(x, in, size, a, resume);
	}
	x_swap(x);
	if (narrow || far_disp) {
		e_load(e, H_RCX, h_slot(SLOT_LIN));
		return (struct hmem){.base = H_RAX, .index = H_RCX};
	}
found:
	if (seg) {
		add_gs(x, H_RAX, seg);
		x->rax_group = -1;
	}
	if (is_rip(m)) {
		e_load(e, H_RCX, h_slot(SLOT_PAGE));
		add_rax(x, H_RCX);
		r.disp += in->next;
		return r;
	}
	hb = gb < 0 ? H_NONE : home_of((unsigned)gb);
	hi = gi < 0 ? H_NONE : home_of((unsigned)gi);
	if (gb >= 0 && gi < 0 && hb != H_NONE) {
		r.index = (int8_t)hb;
		return r;
	}
	if (gb >= 0) {
		if (hb == H_NONE) {
			e_load(e, H_RCX, slot_of((unsigned)gb));
			hb = H_RCX;
		}
		add_rax(x, hb);
	}
	if (gi >= 0) {
		r.scale = (uint8_t)scale_shift(m->scale);
		r.index = (int8_t)hi;
		if (hi == H_NONE) {
			e_load(e, H_RCX, slot_of((unsigned)gi));
			r.index = H_RCX;
		}
	}
	return r;
}

static void stack_address(struct xlat *x, int base, int32_t disp)
{
	struct hmem m = h_base(base, disp);

	e_op_mem(&x->e, !x->w32, 0x8d, H_RCX, &m);
}

struct hmem x_lookup_stack(struct xlat *x, const struct xinsn *in, unsigned base, int32_t disp, unsigned size,
			   enum mmu_access a)
{
	struct emit *e = &x->e;
	int hb = home_of(base);
	uint8_t *miss[2];
	const uint8_t *resume;

	if (in->group >= 0) {
		ZydisDecodedOperandMem m = {.base = base == R_RSP ? ZYDIS_REGISTER_RSP : ZYDIS_REGISTER_RBP};

		m.disp.value = disp;
		x_group_addend(x, in, &m, size, a);
		if (x->group[in->group].base_in)
			hb = H_NONE;
		return (struct hmem){.base = H_RAX, .index = (int8_t)hb, .disp = disp};
	}
	stack_address(x, hb, disp);
	lookup(x, size, 0, a, miss);
	resume = e->p;
	x_swap(x);
	miss_here(x, miss);
	stack_address(x, hb, disp);
	x_slow_access(x, in, size, a, resume);
	x_swap(x);
	if (x->w32) {
		/* The address as it was looked up: ESP may have wrapped. */
		stack_address(x, hb, disp);
		return (struct hmem){.base = H_RAX, .index = H_RCX};
	}
	return (struct hmem){.base = H_RAX, .index = (int8_t)hb, .disp = disp};
}

/* With flags in the host's that are needed: without a compare, and the help keeps them. */
static void need_vec_flags(struct xlat *x, const struct xinsn *in)
{
	struct emit *e = &x->e;
	struct hmem live = h_gs(offsetof(struct soft_cpu, jx.vec_live)), flags = h_slot(SLOT_FLAGS),
		    tmp = h_slot(SLOT_TMP);
	const uint8_t *resume;
	uint8_t *out;

	e_op_mem(e, 0, 0x0fb6, H_RCX, &live); /* movzx ecx, byte */
	e_lea(e, H_RCX, h_base(H_RCX, -1));
	e1(e, 0xe3); /* jrcxz over the jump */
	e1(e, 5);
	out = e_jmp(e);
	resume = e->p;
	x_swap(x);
	e_patch(out, e->p);
	e1(e, 0x9f); /* lahf; seto al */
	e1(e, 0x0f);
	e1(e, 0x90);
	e1(e, 0xc0);
	e_store(e, tmp, H_RAX);
	e_call_to(e, x->j->slow_vec);
	out = e_jmp(e); /* skipped on failure */
	e_load(e, H_RAX, tmp);
	e_store32(e, flags, H_RAX);
	x_side_exit(x, in->off, x->j->leave_keep);
	e_patch(out, e->p);
	e_load(e, H_RAX, tmp);
	e1(e, 0x04); /* add al, 127; sahf */
	e1(e, 127);
	e1(e, 0x9e);
	e_jmp_to(e, resume);
	x_swap(x);
}

void x_need_vec(struct xlat *x, const struct xinsn *in)
{
	struct emit *e = &x->e;
	struct hmem live = h_gs(offsetof(struct soft_cpu, jx.vec_live));
	uint8_t *out;
	const uint8_t *resume;

	if (x->vec_loaded)
		return;
	x->vec_loaded = true;
	x->rax_group = -1;
	if ((in->live_in & ~x->slot) && !(in->live_in & ~x->host)) {
		need_vec_flags(x, in);
		return;
	}
	x_flags_clobber(x, in->live_in);
	e_op_mem(e, 0, 0x80, 7, &live); /* cmp byte, 0 */
	e1(e, 0);
	out = e_jcc(e, CC_E);
	resume = e->p;
	x_swap(x);
	e_patch(out, e->p);
	e_call_to(e, x->j->slow_vec);
	e_jmp_to(e, resume);
	x_flags_cold(x, in->live_in, x->slot, &x->recipe);
	x_side_exit(x, in->off, x->j->leave_keep);
	x_swap(x);
}
