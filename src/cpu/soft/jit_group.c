/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory accesses of a block that share one TLB lookup: the same base and index
 * registers, unchanged but for constants that are added to them (PUSH and POP
 * are such), and displacements near each other.
 *
 *	head     look up [lo, hi) of all members at once; keep the addend in the frame
 *	member   mov rax, [rsp + slot]; op [rax + guest base + disp]
 *
 * A member cannot fault and destroys no flags, so flags need not be kept for it.
 * When the bytes are not all in one page, or not aligned as a member insists, the
 * head jumps to a variant of the code from there on without groups (a link like
 * any other). When only the TLB misses, the head's own access is what the slow
 * path is called for, so that it faults as the guest expects. A head that reads
 * must not do what only a later write may (fault, set a dirty bit): if the page is
 * not in the TLB for writing, it jumps to the variant. Mappings do not change in
 * the middle of a block: whatever changes them ends it.
 */
#include "cpu/soft/jit_group.h"

#define RANGE_MAX JIT_GROUP_RANGE
#define OPEN_MAX  32

struct open_group {
	struct access a; /* of the head; align: the strictest */
	bool write;	 /* some member does */
	int32_t lo, hi, aligned_at;
	unsigned first, last, count;
};

static bool group_kind(const struct xinsn *in)
{
	return in->kind == K_GENERIC || in->kind == K_MUL;
}

/* The stack access of an instruction; false: none, or not one that is looked up alone. */
static bool stack_access(const struct xinsn *in, unsigned *base, int32_t *disp, bool *write)
{
	*base = R_RSP;
	*disp = 0;
	*write = false;
	switch (in->kind) {
	case K_CALL:
	case K_PUSH:
		*disp = -8;
		*write = true;
		return in->mem < 0;
	case K_POP:
	case K_RET: return true;
	case K_LEAVE: *base = R_RBP; return true;
	default: return false;
	}
}

static bool operand_access(const struct xinsn *in, struct access *a)
{
	const ZydisDecodedOperandMem *m = &in->op[in->mem].mem;
	unsigned size;
	bool high;

	if (!group_kind(in) || in->masked || in->zi.address_width != 64 || m->segment == ZYDIS_REGISTER_FS ||
	    m->segment == ZYDIS_REGISTER_GS || m->disp.value > INT32_MAX / 2 || m->disp.value < INT32_MIN / 2)
		return false;
	a->at = (int32_t)m->disp.value;
	a->index = BASE_NONE;
	if (m->base == ZYDIS_REGISTER_RIP) {
		a->base = BASE_RIP;
		a->at += in->next;
	} else if (m->base == ZYDIS_REGISTER_NONE) {
		return false;
	} else {
		a->base = (uint8_t)x_gpr(m->base, &size, &high);
		if (m->index != ZYDIS_REGISTER_NONE)
			a->index = (uint8_t)x_gpr(m->index, &size, &high);
	}
	a->scale = a->index == BASE_NONE ? 0 : m->scale;
	a->size = in->mem_size;
	a->write = in->mem_write;
	a->align = in->mem_align;
	return true;
}

bool x_access_of(const struct xinsn *in, const struct registers *r, struct access *a)
{
	unsigned base;

	*a = (struct access){.index = BASE_NONE};
	if (in->mem >= 0) {
		if (!operand_access(in, a))
			return false;
	} else {
		if (!stack_access(in, &base, &a->at, &a->write))
			return false;
		a->base = (uint8_t)base;
		a->size = 8;
	}
	if (a->base < 16) {
		a->base_version = r->version[a->base];
		a->at += r->delta[a->base];
	}
	if (a->index < 16) {
		a->index_version = r->version[a->index];
		a->at += r->delta[a->index] * a->scale;
	}
	return true;
}

/* What is added to a 64-bit register, when that is all. */
static bool adds_constant(const struct xinsn *in, unsigned *reg, int64_t *n)
{
	unsigned size = 0, other;
	bool high;
	int g;

	if (in->kind == K_PUSH) {
		*reg = R_RSP;
		*n = -8;
		return true;
	}
	if ((in->kind != K_GENERIC && in->kind != K_ACC_IMM && in->kind != K_LEA) ||
	    in->op[0].type != ZYDIS_OPERAND_TYPE_REGISTER)
		return false;
	g = x_gpr(in->op[0].reg.value, &size, &high);
	if (g < 0 || size != 8)
		return false;
	*reg = (unsigned)g;
	switch (in->zi.mnemonic) {
	case ZYDIS_MNEMONIC_INC: *n = 1; return true;
	case ZYDIS_MNEMONIC_DEC: *n = -1; return true;
	case ZYDIS_MNEMONIC_ADD:
	case ZYDIS_MNEMONIC_SUB:
		if (in->op[1].type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
			return false;
		*n = in->zi.mnemonic == ZYDIS_MNEMONIC_ADD ? in->op[1].imm.value.s : -in->op[1].imm.value.s;
		return true;
	case ZYDIS_MNEMONIC_LEA:
		*n = in->op[1].mem.disp.value;
		return in->zi.address_width == 64 && in->op[1].mem.index == ZYDIS_REGISTER_NONE &&
		       x_gpr(in->op[1].mem.base, &other, &high) == g;
	default: return false;
	}
}

void x_registers_after(struct registers *r, const struct xinsn *in)
{
	unsigned reg = 0;
	int64_t n = 0;
	uint32_t changed = in->gpr_written;

	if (adds_constant(in, &reg, &n) && n < (int64_t)PAGE_SIZE && n > -(int64_t)PAGE_SIZE && changed == 1u << reg) {
		r->delta[reg] += (int32_t)n;
		return;
	}
	if (in->kind == K_POP && in->op[0].reg.value != ZYDIS_REGISTER_RSP) {
		r->delta[R_RSP] += 8;
		changed &= ~(1u << R_RSP);
	}
	for (; changed; changed &= changed - 1) {
		unsigned k = (unsigned)__builtin_ctz(changed);

		r->version[k]++;
		r->delta[k] = 0;
	}
}

static bool joins(const struct open_group *g, const struct access *a, struct open_group *out)
{
	if (g->a.base != a->base || g->a.index != a->index || g->a.scale != a->scale ||
	    g->a.base_version != a->base_version || g->a.index_version != a->index_version)
		return false;
	*out = *g;
	out->write |= a->write;
	out->lo = MIN(g->lo, a->at);
	out->hi = MAX(g->hi, a->at + (int32_t)a->size);
	if (out->hi - out->lo > RANGE_MAX)
		return false;
	if (a->align > 1 && g->a.align > 1 && ((a->at - g->aligned_at) & (MIN(a->align, g->a.align) - 1)))
		return false;
	if (a->align > g->a.align) {
		out->a.align = a->align;
		out->aligned_at = a->at;
	}
	return true;
}

/* Frame slots for the groups that have members; the others dissolve. */
static void groups_place(struct xlat *x, const struct open_group *g, unsigned n)
{
	unsigned busy_until[GROUP_SLOTS] = {0};

	for (unsigned k = 0; k < n; k++) {
		unsigned slot = 0;
		int8_t id = -1;

		while (slot < GROUP_SLOTS && busy_until[slot] > g[k].first)
			slot++;
		if (g[k].count > 1 && slot < GROUP_SLOTS) {
			busy_until[slot] = g[k].last + 1;
			id = (int8_t)x->ngroups++;
			x->group[id] = (struct xgroup){.lo = g[k].lo,
						       .hi = g[k].hi,
						       .aligned_at = g[k].aligned_at,
						       .align = g[k].a.align,
						       .write = g[k].write,
						       .slot = SLOT_GROUP + 8 * (int)slot,
						       .head = g[k].first};
		}
		for (unsigned i = g[k].first; i <= g[k].last; i++) {
			if (x->insn[i].group == (int8_t)k + GROUP_SEARCHED)
				x->insn[i].group = id;
		}
	}
}

void x_groups_find(struct xlat *x)
{
	struct open_group g[OPEN_MAX], joined;
	struct registers r = {0};
	unsigned n = 0;

	if (x->single || x->w32) /* 32-bit addresses wrap */
		return;
	for (unsigned i = 0; i < x->n; i++) {
		struct xinsn *in = &x->insn[i];
		struct access a;
		unsigned k = n;

		if (in->group < 0 && x_access_of(in, &r, &a)) {
			in->at = a.at;
			while (k > 0 && !joins(&g[k - 1], &a, &joined))
				k--;
			if (k > 0) {
				g[k - 1] = joined;
				g[k - 1].last = i;
				g[k - 1].count++;
				in->group = (int8_t)(k - 1 + GROUP_SEARCHED);
			} else if (n < OPEN_MAX) {
				g[n] = (struct open_group){.a = a,
							   .write = a.write,
							   .lo = a.at,
							   .hi = a.at + (int32_t)a.size,
							   .aligned_at = a.at,
							   .first = i,
							   .last = i,
							   .count = 1};
				in->group = (int8_t)(n++ + GROUP_SEARCHED);
			}
		}
		x_registers_after(&r, in);
	}
	groups_place(x, g, n);
}

/* test al, imm8 */
static void test_al(struct emit *e, unsigned imm)
{
	e1(e, 0xa8);
	e1(e, imm);
}

void x_group_addend(struct xlat *x, const struct xinsn *in, const ZydisDecodedOperandMem *m, unsigned size,
		    enum mmu_access a)
{
	const struct xgroup *g = &x->group[in->group];
	struct emit *e = &x->e;
	ZydisDecodedOperandMem lo = *m;
	unsigned range = (unsigned)(g->hi - g->lo);
	uint8_t *miss, *odd = NULL, *apart, *apart2 = NULL;
	const uint8_t *resume;
	size_t tlb =
	    offsetof(struct soft_cpu, tlb) +
	    (x->mmu_index * MMU_ACCESSES + (unsigned)(g->write ? MMU_WRITE : a)) * TLB_SIZE * sizeof(struct tlb_entry);
	struct hmem tag = h_gs(tlb + offsetof(struct tlb_entry, tag));
	struct hmem addend = h_gs(tlb + offsetof(struct tlb_entry, addend));

	if (!x_group_head(x, in)) {
		if (x->rax_group != in->group)
			e_load(e, H_RAX, h_slot(g->slot));
		x->rax_group = in->group;
		return;
	}
	tag.base = addend.base = H_RAX;
	lo.disp.value += g->lo - in->at;
	x_address(x, in, &lo, H_RCX);
	e_rorx(e, 0, H_RAX, H_RCX, PAGE_SHIFT - 4);
	e1(e, 0x25); /* and eax, imm32 */
	e4(e, (TLB_SIZE - 1) << 4);
	e_op_mem(e, 1, 0x33, H_RCX, &tag);
	e_alu_imm(e, 1, 7, H_RCX, (int32_t)(PAGE_SIZE - range));
	miss = e_jcc(e, CC_A);
	e_load(e, H_RAX, addend);
	if (g->align > 1) {
		e_lea(e, H_RCX, h_base(H_RCX, g->aligned_at - g->lo));
		e1(e, 0xf6); /* test cl, align - 1 */
		e1(e, 0xc1);
		e1(e, g->align - 1u);
		odd = e_jcc(e, CC_NE);
	}
	resume = e->p;
	e_store(e, h_slot(g->slot), H_RAX);
	x->rax_group = in->group;

	x_swap(x);
	e_patch(miss, e->p);
	if (g->write && a != MMU_WRITE) {
		if (odd)
			e_patch(odd, e->p);
		x_exit_variant(x, in);
		x_swap(x);
		return;
	}
	/* Apart, or misaligned: the variant. */
	x_address(x, in, &lo, H_RCX);
	e_op_reg(e, 0, 0x8b, H_RAX, H_RCX);
	e_alu_imm(e, 0, 4, H_RAX, PAGE_SIZE - 1);
	e_alu_imm(e, 0, 7, H_RAX, (int32_t)(PAGE_SIZE - range));
	apart = e_jcc(e, CC_A);
	if (g->align > 1) {
		e_alu_imm(e, 0, 0, H_RAX, g->aligned_at - g->lo);
		test_al(e, g->align - 1u);
		apart2 = e_jcc(e, CC_NE);
	}
	x_address(x, in, m, H_RCX);
	x_slow_access(x, in, size, a, resume);
	e_patch(apart, e->p);
	if (odd) {
		e_patch(odd, e->p);
		e_patch(apart2, e->p);
	}
	x_exit_variant(x, in);
	x_swap(x);
}
