/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fixed pieces of host code at the start of the cache: entering and leaving
 * translated code, and the way to the C helpers of memory accesses.
 */
#include "cpu/soft/jit_xlat.h"

#define SLOT_OF_CALLEE(s) ((s) + 8) /* a stub that was called sees the frame behind its return address */

static size_t gpr_off(unsigned guest)
{
	return offsetof(struct soft_cpu, s.gpr) + guest * 8;
}

static const uint8_t saved_by_callee[] = {H_RBX, H_RBP, H_R12, H_R13, H_R14, H_R15};
/* Homes that C functions may overwrite. */
static const uint8_t lost_in_c[] = {H_RDX, H_RSI, H_RDI, H_R8, H_R9, H_R10, H_R11};

static void push(struct emit *e, int h)
{
	if (h >= 8)
		e1(e, 0x41);
	e1(e, 0x50u | (h & 7));
}
static void pop(struct emit *e, int h)
{
	if (h >= 8)
		e1(e, 0x41);
	e1(e, 0x58u | (h & 7));
}

/* A value between the exchange area and a frame slot, through rax. */
static void gs_to_slot(struct emit *e, size_t off, int slot)
{
	e_load(e, H_RAX, h_gs(off));
	e_store(e, h_slot(slot), H_RAX);
}
static void slot_to_gs(struct emit *e, int slot, size_t off)
{
	e_load(e, H_RAX, h_slot(slot));
	e_store(e, h_gs(off), H_RAX);
}

/* void enter(struct soft_cpu *c, const uint8_t *code) */
static void make_enter(struct emit *e)
{
	for (unsigned i = 0; i < ARRAY_SIZE(saved_by_callee); i++)
		push(e, saved_by_callee[i]);
	e_alu_imm(e, 1, 5, H_RSP, FRAME_SIZE);
	e_store(e, h_slot(SLOT_TMP), H_RSI);
	gs_to_slot(e, offsetof(struct soft_cpu, jx.flags), SLOT_FLAGS);
	gs_to_slot(e, offsetof(struct soft_cpu, jx.page), SLOT_PAGE);
	for (unsigned g = 0; g < 16; g++) {
		if (home_of(g) == H_NONE)
			gs_to_slot(e, gpr_off(g), slot_of(g).disp);
	}
	for (unsigned g = 0; g < 16; g++) {
		if (home_of(g) != H_NONE)
			e_load(e, home_of(g), h_gs(gpr_off(g)));
	}
	{
		struct hmem to = h_slot(SLOT_TMP);

		e_op_mem(e, 0, 0xff, 4, &to);
	}
}

static void make_leave_common(struct emit *e)
{
	for (unsigned g = 0; g < 16; g++) {
		if (home_of(g) != H_NONE)
			e_store(e, h_gs(gpr_off(g)), home_of(g));
	}
	for (unsigned g = 0; g < 16; g++) {
		if (home_of(g) == H_NONE)
			slot_to_gs(e, slot_of(g).disp, gpr_off(g));
	}
	slot_to_gs(e, SLOT_FLAGS, offsetof(struct soft_cpu, jx.flags));
	slot_to_gs(e, SLOT_PAGE, offsetof(struct soft_cpu, jx.page));
	e_alu_imm(e, 1, 0, H_RSP, FRAME_SIZE);
	for (unsigned i = ARRAY_SIZE(saved_by_callee); i-- > 0;)
		pop(e, saved_by_callee[i]);
	e1(e, 0xc3);
}

static void set_reason(struct emit *e, unsigned reason)
{
	struct hmem m = h_gs(offsetof(struct soft_cpu, jx.reason));

	e_op_mem(e, 0, 0xc7, 0, &m);
	e4(e, reason);
}

static void leave_with_arg(struct emit *e, unsigned reason, const uint8_t *keep)
{
	e_store(e, h_gs(offsetof(struct soft_cpu, jx.arg)), H_RCX);
	set_reason(e, reason);
	e_jmp_to(e, keep);
}

/* eax = page offset of the guest instruction to continue at; LOOKUP: SLOT_LIN has its linear address. */
static void make_leave(struct jit *j, struct emit *e)
{
	struct hmem page = h_slot(SLOT_PAGE);
	const uint8_t *common = e->p, *keep;

	make_leave_common(e);
	keep = j->leave_keep = e->p;
	e_op_mem(e, 1, 0x03, H_RAX, &page);
	e_store(e, h_gs(offsetof(struct soft_cpu, s.rip)), H_RAX);
	e_jmp_to(e, common);
	for (unsigned r = 0; r < REASON_COUNT; r++) {
		j->leave[r] = e->p;
		set_reason(e, r);
		if (r == REASON_LOOKUP || r == REASON_LOOKUP_USER) {
			e_load(e, H_RCX, h_slot(SLOT_LIN));
			e_store(e, h_gs(offsetof(struct soft_cpu, s.rip)), H_RCX);
			e_jmp_to(e, common);
		} else {
			e_jmp_to(e, keep);
		}
	}
	j->leave_link = e->p;
	leave_with_arg(e, REASON_LINK, keep);
	j->leave_far = e->p;
	leave_with_arg(e, REASON_FAR, keep);
	j->leave_step = e->p;
	leave_with_arg(e, REASON_STEP, keep);
	j->leave_poll = e->p;
	leave_with_arg(e, REASON_POLL, keep);
}

/* rcx = linear address, eax = size: rax = addend, or return five bytes further. */
static const uint8_t *make_slow(struct emit *e, uint64_t helper)
{
	const uint8_t *at = e->p;
	struct hmem ret = h_slot(0);

	for (unsigned i = 0; i < ARRAY_SIZE(lost_in_c); i++)
		e_store(e, h_slot(SLOT_OF_CALLEE(SLOT_SAVE) + 8 * (int)i), lost_in_c[i]);
	e_load(e, H_RDI, h_gs(offsetof(struct soft_cpu, jx.self)));
	e_mov(e, H_RSI, H_RCX);
	e_op_reg(e, 0, 0x8b, H_RDX, H_RAX);
	e_lea(e, H_RCX, h_slot(SLOT_OF_CALLEE(SLOT_BOUNCE)));
	e_alu_imm(e, 1, 5, H_RSP, 8);
	e_mov_imm64(e, H_RAX, helper);
	e_op_reg(e, 0, 0xff, 2, H_RAX);
	e_alu_imm(e, 1, 0, H_RSP, 8);
	e_mov(e, H_RCX, H_RDX);
	for (unsigned i = 0; i < ARRAY_SIZE(lost_in_c); i++)
		e_load(e, lost_in_c[i], h_slot(SLOT_OF_CALLEE(SLOT_SAVE) + 8 * (int)i));
	e_op_reg(e, 1, 0x85, H_RCX, H_RCX);
	e1(e, 0x75); /* jnz over the next instruction */
	e1(e, 5);
	e_op_mem(e, 1, 0x83, 0, &ret); /* add qword [rsp], 5 */
	e1(e, 5);
	e1(e, 0xc3);
	return at;
}

void jit_make_stubs(struct jit *j)
{
	struct emit e = {.p = j->rw};

	const uint8_t *at = e.p;

	j->enter = e.p + j->rx_delta;
	make_enter(&e);
	jit_perf_code(j, at, e.p, "kelvin stub: enter");
	at = e.p;
	make_leave(j, &e);
	jit_perf_code(j, at, e.p, "kelvin stub: leave");
	j->slow_read = make_slow(&e, (uint64_t)(uintptr_t)jit_slow_read);
	jit_perf_code(j, j->slow_read, e.p, "kelvin stub: TLB lookup, read");
	j->slow_write = make_slow(&e, (uint64_t)(uintptr_t)jit_slow_write);
	jit_perf_code(j, j->slow_write, e.p, "kelvin stub: TLB lookup, write");
	j->slow_vec = make_slow(&e, (uint64_t)(uintptr_t)jit_slow_vec);
	jit_perf_code(j, j->slow_vec, e.p, "kelvin stub: load vector state");
	j->stubs_end = e.p;
}
