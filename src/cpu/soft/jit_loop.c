/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A block that is a loop (its last branch goes back to its head) has two bodies:
 *
 *   head       requests, flags, as every block
 *   lookups    of accesses whose address moves by a constant each turn, for so
 *              many turns that they reach LOOP_REACH further; the addends go to
 *              the frame. One that misses, or leaves its page: general body
 *   body       those accesses need no lookup, cannot fault, leave flags alone
 *   end        turns left? body; else head
 *   general    the body as in other blocks, one turn
 *   few        where the lookups fail, near a page's end: as many turns as fit
 *
 * What makes it right: mappings change only where a block ends (a request is
 * pending), and a turn that the lookups do not cover is the general body's.
 * Registers and flags are where they are in any block, so other accesses, side
 * exits and faults in the body need nothing special. Requests wait for
 * LOOP_TURNS turns at most.
 */
#include "cpu/soft/jit_group.h"
#include "cpu/soft/jit_insn.h"

#include <stdlib.h>

#define LOOP_TURNS  32u
#define LOOP_REACH  512u
#define STRIDE_MAX  256
#define TURNS_LEAST 2u
#define TURNS_FIT   64u /* at most, when they are counted */

/* What a body does to registers that hold addresses. */
struct loop_registers {
	struct registers end;
	uint32_t written;
};

static bool loop_kind(const struct xinsn *in)
{
	return in->kind < K_CLI || in->kind > K_RDTSC;
}

static bool is_loop(const struct xlat *x)
{
	const struct xinsn *last = &x->insn[x->n - 1];

	if (x->single || x->w32 || x->j->lockstep || x->b->page2 != JIT_NO_PAGE || last->kind != K_JCC ||
	    last->target != (int32_t)x->b->off)
		return false;
	for (unsigned i = 0; i < x->n; i++) {
		if (!loop_kind(&x->insn[i]))
			return false;
	}
	return true;
}

/* A register that moves by a constant only. */
static bool steady(const struct loop_registers *r, unsigned reg)
{
	return reg >= 16 || !r->end.version[reg];
}

static int32_t moves(const struct loop_registers *r, unsigned reg)
{
	return reg >= 16 ? 0 : r->end.delta[reg];
}

static bool joins(const struct xgroup *g, const struct access *head, const struct access *a)
{
	if (head->base != a->base || head->index != a->index || head->scale != a->scale ||
	    MAX(g->hi, a->at + (int32_t)a->size) - MIN(g->lo, a->at) > JIT_GROUP_RANGE)
		return false;
	return a->align <= 1 || g->align <= 1 || !((a->at - g->aligned_at) & (MIN(a->align, g->align) - 1));
}

static void join(struct xgroup *g, const struct access *a)
{
	g->lo = MIN(g->lo, a->at);
	g->hi = MAX(g->hi, a->at + (int32_t)a->size);
	g->write |= a->write;
	if (a->align > g->align) {
		g->align = a->align;
		g->aligned_at = a->at;
	}
}

static bool never_written(const struct loop_registers *r, unsigned reg)
{
	return reg == BASE_RIP || (reg < 16 && !(r->written & 1u << reg));
}

/* Accesses into x->group; insn[].group and .at. */
static void groups_fill(struct xlat *x, const struct loop_registers *lr)
{
	struct access head[LOOP_SLOTS], a;
	struct registers r = {0};

	for (unsigned i = 0; i < x->n; x_registers_after(&r, &x->insn[i]), i++) {
		struct xinsn *in = &x->insn[i];
		int64_t stride;
		unsigned k = 0;

		if (!x_access_of(in, &r, &a) || !steady(lr, a.base) || !steady(lr, a.index))
			continue;
		stride = moves(lr, a.base) + (int64_t)moves(lr, a.index) * a.scale;
		if (stride > STRIDE_MAX || stride < -STRIDE_MAX || (a.align > 1 && (stride & (a.align - 1))))
			continue;
		while (k < x->ngroups && !joins(&x->group[k], &head[k], &a))
			k++;
		if (k == LOOP_SLOTS)
			continue;
		if (k == x->ngroups) {
			head[k] = a;
			x->group[k] = (struct xgroup){.lo = a.at,
						      .hi = a.at + (int32_t)a.size,
						      .slot = SLOT_LOOP + 8 * (int)k,
						      .head = GROUP_LOOP,
						      .base_in = never_written(lr, a.base),
						      .index_in = never_written(lr, a.index),
						      .stride = (int32_t)stride};
			x->ngroups++;
		}
		join(&x->group[k], &a);
		in->group = (int8_t)k;
		in->at = a.at;
	}
}

/*
 * The end of the turns is seen by a register that moves, if there is one: a counter in memory would be written and read
 * again each turn, which costs more than all of a short loop's other work (0.68 ns a turn instead of 0.45).
 */
static void limit_choose(struct xlat *x, const struct loop_registers *lr)
{
	x->loop_reg = -1;
	for (unsigned r = 0; r < 16; r++) {
		if (steady(lr, r) && moves(lr, r) && home_of(r) != H_NONE) {
			x->loop_reg = (int)r;
			x->loop_step = moves(lr, r);
			return;
		}
	}
}

static void limit_set(struct xlat *x, bool few)
{
	struct emit *e = &x->e;
	int h = home_of((unsigned)x->loop_reg);

	if (few) {
		e_load32(e, H_RCX, h_slot(SLOT_COUNT));
		e_op_reg(e, 1, 0x69, H_RCX, H_RCX); /* imul */
		e4(e, (uint32_t)x->loop_step);
		e_lea(e, H_RCX, (struct hmem){.base = H_RCX, .index = (int8_t)h});
	} else {
		e_lea(e, H_RCX, h_base(h, x->loop_step * (int32_t)x->loop_turns));
	}
	e_store(e, h_slot(SLOT_LIMIT), H_RCX);
	e_op_reg(e, 1, 0xf7, 3, H_RCX); /* neg */
	e_store(e, h_slot(SLOT_LIMIT + 8), H_RCX);
}

bool x_loop_find(struct xlat *x)
{
	struct loop_registers lr = {0};
	unsigned turns = LOOP_TURNS;

	if (!is_loop(x))
		return false;
	for (unsigned i = 0; i < x->n; i++) {
		x_registers_after(&lr.end, &x->insn[i]);
		lr.written |= x->insn[i].gpr_written;
		x->insn[i].group = -1;
	}
	x->ngroups = 0;
	groups_fill(x, &lr);
	for (unsigned k = 0; k < x->ngroups; k++) {
		unsigned stride = (unsigned)abs(x->group[k].stride);

		if (stride)
			turns = MIN(turns, MAX(LOOP_REACH / stride + 1, TURNS_LEAST));
	}
	for (unsigned k = 0; k < x->ngroups; k++) {
		struct xgroup *g = &x->group[k];
		int32_t reach = g->stride * (int32_t)(turns - 1);

		g->lo_one = g->lo;
		g->hi_one = g->hi;
		if (reach < 0)
			g->lo += reach;
		else
			g->hi += reach;
	}
	x->loop_turns = x->ngroups ? turns : 0;
	limit_choose(x, &lr);
	return x->loop_turns;
}

/* The first access of the group, as an operand at the group's address `at`. */
static const struct xinsn *group_operand(const struct xlat *x, unsigned k, int32_t at, ZydisDecodedOperandMem *m)
{
	const struct xinsn *in = x->insn;

	while (in->group != (int)k)
		in++;
	if (in->mem >= 0)
		*m = in->op[in->mem].mem;
	else
		*m = (ZydisDecodedOperandMem){.base = in->kind == K_LEAVE ? ZYDIS_REGISTER_RBP : ZYDIS_REGISTER_RSP};
	m->disp.value = at - (m->base == ZYDIS_REGISTER_RIP ? in->next : 0);
	return in;
}

/* rax += the parts of the address that do not change */
static void fold(struct xlat *x, const struct xgroup *g, const ZydisDecodedOperandMem *m)
{
	struct emit *e = &x->e;
	unsigned size;
	bool high;

	if (g->base_in && m->base == ZYDIS_REGISTER_RIP) {
		e_load(e, H_RCX, h_slot(SLOT_PAGE));
		e_lea(e, H_RAX, (struct hmem){.base = H_RAX, .index = H_RCX});
	} else if (g->base_in) {
		int h = x_reg_get(x, (unsigned)x_gpr(m->base, &size, &high), H_RCX);

		e_lea(e, H_RAX, (struct hmem){.base = H_RAX, .index = (int8_t)h});
	}
	if (g->index_in) {
		int h = x_reg_get(x, (unsigned)x_gpr(m->index, &size, &high), H_RCX);
		uint8_t scale = m->scale == 8 ? 3 : m->scale == 4 ? 2 : m->scale == 2 ? 1 : 0;

		e_lea(e, H_RAX, (struct hmem){.base = H_RAX, .index = (int8_t)h, .scale = scale});
	}
}

/* SLOT_COUNT = how often the group can move until it leaves its page, if that is less; its offset there is in SLOT_TMP.
 */
static void count_turns(struct xlat *x, const struct xgroup *g)
{
	struct emit *e = &x->e;

	e_load32(e, H_RCX, h_slot(SLOT_TMP));
	if (g->stride > 0) {
		e_mov_imm32(e, H_RAX, (uint32_t)((int32_t)PAGE_SIZE - (g->hi_one - g->lo_one)));
		e_op_reg(e, 0, 0x2b, H_RAX, H_RCX);
	} else {
		e_op_reg(e, 0, 0x8b, H_RAX, H_RCX);
	}
	e_op_reg(e, 0, 0xc1, 5, H_RAX); /* shr */
	e1(e, (unsigned)__builtin_ctz((unsigned)abs(g->stride)));
	e_alu_imm(e, 0, 0, H_RAX, 1);
	e_load32(e, H_RCX, h_slot(SLOT_COUNT));
	e_op_reg(e, 0, 0x3b, H_RAX, H_RCX);
	e_op_reg(e, 0, 0x0f47, H_RAX, H_RCX); /* cmova */
	e_store32(e, h_slot(SLOT_COUNT), H_RAX);
}

static void lookup(struct xlat *x, unsigned k, bool few, uint8_t *miss[LOOP_MISSES], unsigned *n)
{
	const struct xgroup *g = &x->group[k];
	struct emit *e = &x->e;
	ZydisDecodedOperandMem m;
	int32_t lo = few ? g->lo_one : g->lo, hi = few ? g->hi_one : g->hi;
	const struct xinsn *in = group_operand(x, k, lo, &m);
	size_t tlb = offsetof(struct soft_cpu, tlb) +
		     (x->mmu_index * MMU_ACCESSES + (unsigned)(g->write ? MMU_WRITE : MMU_READ)) * TLB_SIZE *
			 sizeof(struct tlb_entry);
	struct hmem tag = h_gs(tlb + offsetof(struct tlb_entry, tag));
	struct hmem addend = h_gs(tlb + offsetof(struct tlb_entry, addend));

	tag.base = addend.base = H_RAX;
	x_address(x, in, &m, H_RCX);
	e_rorx(e, 0, H_RAX, H_RCX, PAGE_SHIFT - 4);
	e1(e, 0x25); /* and eax, imm32 */
	e4(e, (TLB_SIZE - 1) << 4);
	e_op_mem(e, 1, 0x33, H_RCX, &tag);
	e_alu_imm(e, 1, 7, H_RCX, (int32_t)PAGE_SIZE - (hi - lo));
	miss[(*n)++] = e_jcc(e, CC_A);
	if (few && g->stride)
		e_store(e, h_slot(SLOT_TMP), H_RCX);
	e_load(e, H_RAX, addend);
	if (g->align > 1) {
		e_lea(e, H_RCX, h_base(H_RCX, g->aligned_at - lo));
		e1(e, 0xf6); /* test cl, align - 1 */
		e1(e, 0xc1);
		e1(e, g->align - 1u);
		miss[(*n)++] = e_jcc(e, CC_NE);
	}
	fold(x, g, &m);
	e_store(e, h_slot(g->slot), H_RAX);
	if (few && g->stride)
		count_turns(x, g);
}

bool x_loop_can_count(const struct xlat *x)
{
	bool moves = false;

	for (unsigned k = 0; k < x->ngroups && x->group[k].head == GROUP_LOOP; k++) {
		unsigned stride = (unsigned)abs(x->group[k].stride);

		moves |= stride != 0;
		if (stride & (stride - 1))
			return false;
	}
	return moves;
}

unsigned x_loop_head(struct xlat *x, bool few, uint8_t *miss[LOOP_MISSES])
{
	struct emit *e = &x->e;
	struct hmem live = h_gs(offsetof(struct soft_cpu, jx.vec_live)), count = h_slot(SLOT_COUNT);
	unsigned n = 0;
	bool vec = false;

	for (unsigned i = 0; i < x->n; i++)
		vec |= x->insn[i].vec;
	if (vec) {
		e_op_mem(e, 0, 0x80, 7, &live); /* cmp byte, 0 */
		e1(e, 0);
		miss[n++] = e_jcc(e, CC_E);
	}
	if (few || x->loop_reg < 0) {
		e_op_mem(e, 0, 0xc7, 0, &count);
		e4(e, few ? TURNS_FIT : x->loop_turns);
	}
	for (unsigned k = 0; k < x->ngroups && x->group[k].head == GROUP_LOOP; k++)
		lookup(x, k, few, miss, &n);
	if (few) {
		e_op_mem(e, 0, 0x83, 7, &count);
		e1(e, TURNS_LEAST);
		miss[n++] = e_jcc(e, CC_B);
	}
	if (x->loop_reg >= 0)
		limit_set(x, few);
	x->vec_loaded = vec;
	return n;
}

static bool recipe_serves(const struct xlat *x, unsigned live)
{
	bool keeps_cf = x->loop_reg < 0 && (x->recipe.kind == RECIPE_INC || x->recipe.kind == RECIPE_DEC);

	return !live || (x->recipe.kind && !(live & ~(x->recipe.mask | (keeps_cf ? x->host & F_CF : 0))));
}

void x_loop_end(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	struct hmem count = h_slot(SLOT_COUNT), limit = h_slot(SLOT_LIMIT);
	unsigned host, slot;
	uint8_t *out;

	x_flags_to_host(x, in->live_in);
	host = x->host;
	slot = x->slot;
	out = e_jcc(e, (in->zi.opcode & 15u) ^ 1);
	x_swap(x);
	e_patch(out, e->p);
	x_exit_direct(x, in->next, in->live_out);
	x_swap(x);
	x->host = host;
	x->slot = slot;
	if (!x->loop_live && recipe_serves(x, in->taken_live)) {
		if (x->loop_reg >= 0) {
			e_op_mem(e, 1, 0x3b, home_of((unsigned)x->loop_reg), &limit);
			x->host = 0;
		} else {
			e_op_mem(e, 0, 0xff, 1, &count); /* dec; CF stays */
			x->host &= F_CF;
		}
		e_patch(e_jcc(e, CC_NE), x->loop_top);
	} else {
		/* The flags stay. */
		if (x->loop_reg >= 0) {
			e_load(e, H_RCX, h_slot(SLOT_LIMIT + 8));
			e_lea(e, H_RCX, (struct hmem){.base = H_RCX, .index = (int8_t)home_of((unsigned)x->loop_reg)});
		} else {
			e_load32(e, H_RCX, count);
			e_lea(e, H_RCX, h_base(H_RCX, -1));
			e_store32(e, count, H_RCX);
		}
		e1(e, 0xe3); /* jrcxz over the jump */
		e1(e, 5);
		e_jmp_to(e, x->loop_top);
	}
	x_exit_direct(x, in->target, in->taken_live);
}
