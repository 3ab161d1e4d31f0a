/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ways out of a block: direct branches (links, which jit.c points at their
 * target once that is translated), indirect ones through the table by linear
 * address, and side exits to C.
 */
#include "cpu/soft/jit_insn.h"

void x_side_exit(struct xlat *x, unsigned off, const uint8_t *leave)
{
	e_mov_imm32(&x->e, H_RAX, off);
	e_jmp_to(&x->e, leave);
}

/* Pad so that a following instruction's rel32, `skip` bytes on, is aligned and can be patched atomically. */
static void align_rel(struct emit *e, unsigned skip)
{
	unsigned n = (unsigned)-((uintptr_t)e->p + skip) & 3;

	/* One instruction: 90, 66 90, or 0F 1F 00. */
	if (n == 3) {
		e1(e, 0x0f);
		e1(e, 0x1f);
		e1(e, 0x00);
		return;
	}
	if (n == 2)
		e1(e, 0x66);
	if (n)
		e1(e, 0x90);
}

static struct jit_link *link_new(struct xlat *x, int32_t target, unsigned live)
{
	struct jit *j = x->j;
	struct jit_link *l = (struct jit_link *)(void *)(j->arena + j->arena_used);

	j->arena_used += sizeof(*l);
	*l = (struct jit_link){.from = x->b,
			       .off = (uint16_t)target,
			       .live = (uint16_t)live,
			       .back = x->i < x->n && target <= (int32_t)x->insn[x->i].off};
	return l;
}

/* Cold code of a link that goes nowhere yet. Flags in the host (those that live). */
static void link_stub(struct xlat *x, struct jit_link *l, bool flags)
{
	bool hot = !x->in_cold;

	if (hot)
		x_swap(x);
	l->stub = x->e.p;
	if (flags)
		x_flags_save(x);
	e_mov_imm32(&x->e, H_RAX, l->off);
	e_mov_imm64(&x->e, H_RCX, (uint64_t)(uintptr_t)l);
	e_jmp_to(&x->e, x->j->leave_link);
	if (hot)
		x_swap(x);
}

/* rcx = linear address of the page offset */
void x_load_va(struct xlat *x, int32_t off)
{
	struct hmem m = h_base(H_RCX, off);

	e_load(&x->e, H_RCX, h_slot(SLOT_PAGE));
	e_op_mem(&x->e, !x->w32, 0x8d, H_RCX, &m);
}

/* The TLB's execute entry of the address in rcx, at gs:[rax + the result + a field]; rax = its index. */
static size_t exec_entry(struct xlat *x, unsigned mmu_index)
{
	unsigned idx = mmu_index == MMU_USER ? MMU_USER : MMU_KERNEL;

	e_rorx(&x->e, 0, H_RAX, H_RCX, PAGE_SHIFT - 4);
	e1(&x->e, 0x25); /* and eax, imm32 */
	e4(&x->e, TLB_INDEX_MASK);
	return offsetof(struct soft_cpu, tlb) +
	       (idx * MMU_ACCESSES + (unsigned)MMU_EXEC) * TLB_SIZE * sizeof(struct tlb_entry);
}

static struct hmem entry_field(size_t entry, size_t field)
{
	struct hmem m = h_gs(entry + field);

	m.base = H_RAX;
	return m;
}

/*
 * Jump through the table to the linear address in rcx, in code of that mode;
 * flags are in the slot. The key is the address in host memory.
 */
void x_jump_table(struct xlat *x, unsigned mmu_index)
{
	struct emit *e = &x->e;
	const uint8_t *leave = x->j->leave[mmu_index == MMU_USER ? REASON_LOOKUP_USER : REASON_LOOKUP];
	size_t tab = offsetof(struct soft_cpu, jit_jump) + mmu_index * sizeof(x->c->jit_jump[0]), tlb;
	struct hmem lin = h_slot(SLOT_LIN), host = h_gs(tab + offsetof(struct jit_jump, host)),
		    code = h_gs(tab + offsetof(struct jit_jump, code)), tag, addend;

	host.base = code.base = H_RCX;
	e_store(e, lin, H_RCX);
	tlb = exec_entry(x, mmu_index);
	tag = entry_field(tlb, offsetof(struct tlb_entry, tag));
	addend = entry_field(tlb, offsetof(struct tlb_entry, addend));
	e_op_mem(e, 1, 0x33, H_RCX, &tag);
	e_alu_imm(e, 1, 7, H_RCX, (int32_t)PAGE_SIZE);
	e_patch(e_jcc(e, CC_AE), leave);
	e_load(e, H_RAX, addend);
	e_op_mem(e, 1, 0x33, H_RCX, &lin); /* offset -> page */
	e_op_mem(e, 1, 0x03, H_RAX, &lin);
	e_store(e, h_slot(SLOT_PAGE), H_RCX);
	e_rorx(e, 0, H_RCX, H_RAX, JIT_JUMP_SHIFT);
	e_op_reg(e, 0, 0x33, H_RCX, H_RAX);
	e_alu_imm(e, 0, 4, H_RCX, (1 << JIT_JUMP_BITS) - 1);
	e_op_reg(e, 0, 0xc1, 4, H_RCX); /* shl ecx, 4 */
	e1(e, 4);
	e_op_mem(e, 1, 0x3b, H_RAX, &host);
	e_patch(e_jcc(e, CC_NE), leave);
	e_op_mem(e, 0, 0xff, 4, &code);
}

void x_exit_indirect(struct xlat *x)
{
	x_flags_to_slot(x, F_ALL);
	x_jump_table(x, x->mmu_index);
}

/* rcx: a page's linear address; then its host address. Returns the jump taken when the execute TLB does not have it. */
static uint8_t *exec_host(struct xlat *x)
{
	struct emit *e = &x->e;
	size_t tlb = exec_entry(x, x->mmu_index);
	struct hmem tag = entry_field(tlb, offsetof(struct tlb_entry, tag)),
		    addend = entry_field(tlb, offsetof(struct tlb_entry, addend));
	uint8_t *miss;

	e_op_mem(e, 1, 0x3b, H_RCX, &tag);
	miss = e_jcc(e, CC_NE);
	e_op_mem(e, 1, 0x03, H_RCX, &addend);
	return miss;
}

/*
 * To another page: if the TLB has it, and in host memory it is the one that the
 * link is for. The address of that stands in the cold code (jit_link.host).
 */
static void exit_far(struct xlat *x, int32_t target)
{
	struct emit *e = &x->e;
	struct jit_link *l = link_new(x, target & (int32_t)(PAGE_SIZE - 1), F_ALL);
	bool hot = !x->in_cold;
	uint8_t *miss[2], *rel;

	x_flags_to_slot(x, F_ALL);
	x_load_va(x, target & (int32_t)PAGE_MASK);
	e_store(e, h_slot(SLOT_PAGE), H_RCX);
	miss[0] = exec_host(x);
	e1(e, 0x48); /* cmp rcx, [rip + rel] */
	e1(e, 0x3b);
	e1(e, 0x0d);
	e4(e, 0);
	rel = e->p - 4;
	miss[1] = e_jcc(e, CC_NE);
	align_rel(e, 1);
	l->patch = e_jmp(e);
	if (hot)
		x_swap(x);
	while ((uintptr_t)e->p & 7)
		e1(e, 0xcc);
	e_patch(rel, e->p);
	l->host = (uint64_t *)(void *)e->p;
	e8(e, 0);
	l->stub = e->p;
	e_patch(miss[0], e->p);
	e_patch(miss[1], e->p);
	e_patch(l->patch, e->p);
	e_mov_imm32(e, H_RAX, l->off);
	e_mov_imm64(e, H_RCX, (uint64_t)(uintptr_t)l);
	e_jmp_to(e, x->j->leave_far);
	if (hot)
		x_swap(x);
}

/* The first look of a block whose instruction goes on in the next page: is it still the same? */
void x_check_next_page(struct xlat *x)
{
	struct emit *e = &x->e;
	uint8_t *miss[2];

	x_load_va(x, PAGE_SIZE);
	miss[0] = exec_host(x);
	e_mov_imm64(e, H_RAX, (uint64_t)(uintptr_t)x->host2);
	e_op_reg(e, 1, 0x3b, H_RCX, H_RAX);
	miss[1] = e_jcc(e, CC_NE);
	x_swap(x);
	e_patch(miss[0], e->p);
	e_patch(miss[1], e->p);
	x_side_exit(x, x->b->off, x->j->leave[REASON_CROSS]);
	x_swap(x);
}

void x_exit_direct(struct xlat *x, int32_t target, unsigned live)
{
	struct jit_link *l;

	if (!x_linkable(x, target)) {
		exit_far(x, target);
		return;
	}
	x_flags_to_host(x, live);
	l = link_new(x, target, live);
	align_rel(&x->e, 1);
	l->patch = e_jmp(&x->e);
	link_stub(x, l, live != 0);
	e_patch(l->patch, l->stub);
}

void x_exit_variant(struct xlat *x, const struct xinsn *in)
{
	unsigned host = x->host, slot = x->slot;
	struct jit_link *l;

	x_flags_to_host(x, in->live_in);
	l = link_new(x, in->off, in->live_in);
	l->single = true;
	l->back = false;
	align_rel(&x->e, 1);
	l->patch = e_jmp(&x->e);
	link_stub(x, l, in->live_in != 0);
	e_patch(l->patch, l->stub);
	x->host = host;
	x->slot = slot;
}

/* A conditional exit; `cond` in the host's flags. */
static void exit_cond(struct xlat *x, unsigned cond, int32_t target, unsigned live)
{
	unsigned host = x->host, slot = x->slot;
	struct jit_link *l;

	if (x_linkable(x, target)) {
		l = link_new(x, target, live);
		align_rel(&x->e, 2);
		l->patch = e_jcc(&x->e, cond);
		link_stub(x, l, live != 0);
		e_patch(l->patch, l->stub);
		return;
	}
	{
		uint8_t *taken = e_jcc(&x->e, cond);

		x_swap(x);
		e_patch(taken, x->e.p);
		exit_far(x, target);
		x_swap(x);
		x->host = host;
		x->slot = slot;
	}
}

void x_lower_jcc(struct xlat *x, struct xinsn *in)
{
	x_flags_to_host(x, in->live_in);
	exit_cond(x, in->zi.opcode & 15u, in->target, in->taken_live);
}

/* JRCXZ and LOOP: no flags are read or changed. */
void x_lower_jrcxz(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	bool loop = in->kind == K_LOOP;
	int c = home_of(R_RCX);
	uint8_t *over, *skip;
	unsigned host, slot;

	x_flags_to_host(x, in->live_in);
	host = x->host;
	slot = x->slot;
	if (loop)
		e_lea(e, c, h_base(c, -1));
	e_mov(e, H_RCX, c);
	e1(e, 0xe3); /* jrcxz */
	over = e->p;
	e1(e, 0);
	if (!loop) {
		skip = e_jmp(e);
		*over = (uint8_t)(e->p - (over + 1));
		x_exit_direct(x, in->target, in->taken_live);
		e_patch(skip, e->p);
	} else {
		/* the exit may be long: leave room by a jump around it */
		uint8_t *taken = e_jmp(e);

		*over = (uint8_t)(e->p - (over + 1));
		x_swap(x);
		e_patch(taken, x->e.p);
		x_exit_direct(x, in->target, in->taken_live);
		x_swap(x);
	}
	x->host = host;
	x->slot = slot;
}

static void push_return(struct xlat *x, struct xinsn *in)
{
	x_load_va(x, in->next);
	e_store(&x->e, h_slot(SLOT_TMP2), H_RCX);
	x_push_value(x, in, H_RCX, 0);
}

void x_lower_call(struct xlat *x, struct xinsn *in)
{
	push_return(x, in);
	x_exit_direct(x, in->target, in->live_out);
}

void x_lower_call_ind(struct xlat *x, struct xinsn *in)
{
	x_load_operand_rcx(x, in, 0);
	e_store(&x->e, h_slot(SLOT_LIN), H_RCX);
	push_return(x, in);
	x_flags_to_slot(x, F_ALL);
	e_load(&x->e, H_RCX, h_slot(SLOT_LIN));
	x_exit_indirect(x);
}

void x_lower_jmp_ind(struct xlat *x, struct xinsn *in)
{
	x_flags_to_slot(x, F_ALL);
	x_load_operand_rcx(x, in, 0);
	x_exit_indirect(x);
}

void x_lower_ret(struct xlat *x, struct xinsn *in)
{
	struct hmem m;
	int32_t n = x->w32 ? 4 : 8;

	if (in->op[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
		n += (int32_t)(in->op[0].imm.value.u & 0xffff);
	x_flags_to_slot(x, F_ALL);
	x->host = 0;
	m = x_lookup_stack(x, in, R_RSP, 0, x->w32 ? 4 : 8, MMU_READ);
	e_op_mem(&x->e, !x->w32, 0x8b, H_RCX, &m);
	x_rsp_add(x, n);
	x_exit_indirect(x);
}
