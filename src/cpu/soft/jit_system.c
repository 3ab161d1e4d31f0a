/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * System instructions that are translated, and the way out to the handlers of
 * those that are not.
 */
#include "cpu/soft/jit_insn.h"

#define GS_OFF(field) offsetof(struct soft_cpu, field)

/* Group 1 operation with an immediate on a 32-bit field of the CPU. */
static void field_op(struct xlat *x, int op, size_t off, uint32_t imm)
{
	struct hmem m = h_gs(off);

	e_op_mem(&x->e, 0, 0x81, op, &m);
	e4(&x->e, imm);
}

void x_mark(struct xlat *x)
{
	struct hmem m = h_gs(GS_OFF(jx.at));

	e_op_mem(&x->e, 0, 0xc7, 0, &m);
	e4(&x->e, x->i);
}

/* cmp byte field, val; leave for the interpreter when the condition holds. */
static void leave_if(struct xlat *x, const struct xinsn *in, size_t off, unsigned val, unsigned cond)
{
	struct hmem m = h_gs(off);
	uint8_t *out;

	e_op_mem(&x->e, 0, 0x80, 7, &m);
	e1(&x->e, val);
	out = e_jcc(&x->e, cond);
	x_swap(x);
	e_patch(out, x->e.p);
	x_flags_cold(x, in->live_in, x->slot, &x->recipe);
	x_side_exit(x, in->off, x->j->leave[REASON_INTERP]);
	x_swap(x);
}

void x_lower_cli(struct xlat *x, struct xinsn *in)
{
	x_flags_clobber(x, in->live_in);
	field_op(x, 4, GS_OFF(s.rflags), (uint32_t)~FLAG_IF);
}

/* With an interrupt waiting, and before HLT and the like (x_classify), STI's shadow matters: interpreter. */
void x_lower_sti(struct xlat *x, struct xinsn *in)
{
	x_flags_clobber(x, in->live_in);
	leave_if(x, in, GS_OFF(intr_latched), 0, CC_NE);
	field_op(x, 1, GS_OFF(s.rflags), FLAG_IF);
}

void x_lower_pushf(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	struct hmem f = h_gs(GS_OFF(s.rflags));

	x_flags_to_slot(x, F_ALL);
	e_load32(e, H_RAX, h_slot(SLOT_FLAGS));
	e_op_reg(e, 0, 0x0fb6, H_RCX, 4); /* movzx ecx, ah */
	e_alu_imm(e, 0, 4, H_RAX, 1);
	e_op_reg(e, 0, 0xc1, 4, H_RAX); /* OF */
	e1(e, 11);
	e_op_reg(e, 0, 0x0b, H_RAX, H_RCX);
	e_alu_imm(e, 0, 4, H_RAX, (int32_t)F_ALL);
	e_op_mem(e, 0, 0x8b, H_RCX, &f);
	e_alu_imm(e, 0, 4, H_RCX, (int32_t) ~(FLAG_ARITH | FLAG_RF | FLAG_VM));
	e_op_reg(e, 0, 0x0b, H_RCX, H_RAX);
	e_store(e, h_slot(SLOT_TMP2), H_RCX);
	x->host = 0;
	x_push_value(x, in, H_RCX, 0);
}

void x_lower_swapgs(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	struct hmem base = h_gs(GS_OFF(s.seg) + S_GS * sizeof(struct cpu_segment) + offsetof(struct cpu_segment, base));
	struct hmem other = h_gs(GS_OFF(s.kernel_gs_base));

	e_load(e, H_RAX, base);
	e_load(e, H_RCX, other);
	e_store(e, base, H_RCX);
	e_store(e, other, H_RAX);
}

/* STAC and CLAC change which pages data accesses may touch: on in code of the other mode. */
void x_lower_stac(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	bool set = in->zi.mnemonic == ZYDIS_MNEMONIC_STAC;
	unsigned to = set ? MMU_KERNEL_AC : MMU_KERNEL;
	uint32_t key = (x->key & ~(3u << SOFT_KEY_MMU_SHIFT)) | to << SOFT_KEY_MMU_SHIFT;
	struct hmem idx = h_gs(GS_OFF(mmu_index)), k = h_gs(GS_OFF(mode_key)), have = h_gs(GS_OFF(jx.jump_key[to]));
	uint8_t *other;

	x_flags_to_slot(x, F_ALL);
	x->host = 0;
	if (!set) /* without SMAP the mode stays */
		leave_if(x, in, GS_OFF(smap), 0, CC_E);
	field_op(x, set ? 1 : 4, GS_OFF(s.rflags), set ? (uint32_t)FLAG_AC : (uint32_t)~FLAG_AC);
	e_op_mem(e, 0, 0xc6, 0, &idx);
	e1(e, to);
	e_op_mem(e, 0, 0xc7, 0, &k);
	e4(e, key);
	x_load_va(x, in->next);
	e_store(e, h_slot(SLOT_LIN), H_RCX); /* as leave[REASON_LOOKUP] wants it */
	e_op_mem(e, 0, 0x81, 7, &have);
	e4(e, key);
	other = e_jcc(e, CC_NE);
	e_patch(other, x->j->leave[REASON_LOOKUP]);
	x_jump_table(x, to);
}

void x_lower_rdtsc(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	struct hmem off = h_gs(GS_OFF(tsc_offset)), aux = h_gs(GS_OFF(s.tsc_aux)), cr4 = h_gs(GS_OFF(s.cr4));
	bool p = in->zi.mnemonic == ZYDIS_MNEMONIC_RDTSCP;

	x_flags_clobber(x, in->live_in);
	if (x->mmu_index == MMU_USER) {
		uint8_t *out;

		e_op_mem(e, 0, 0xf6, 0, &cr4); /* test byte, imm */
		e1(e, CR4_TSD);
		out = e_jcc(e, CC_NE);
		x_swap(x);
		e_patch(out, x->e.p);
		x_flags_cold(x, in->live_in, x->slot, &x->recipe);
		x_side_exit(x, in->off, x->j->leave[REASON_INTERP]);
		x_swap(x);
	}
	if (p) {
		e1(e, 0x0f); /* lfence */
		e1(e, 0xae);
		e1(e, 0xe8);
	}
	e1(e, 0x0f);
	e1(e, 0x31);
	e_op_reg(e, 1, 0xc1, 4, H_RDX);
	e1(e, 32);
	e_op_reg(e, 1, 0x0b, H_RDX, H_RAX);
	e_op_mem(e, 1, 0x03, H_RDX, &off);
	if (unlikely(x->j->lockstep)) {
		if (x->ntsc == ARRAY_SIZE(x->c->jx.tsc))
			x->failed = true;
		else
			e_store(e, h_gs(GS_OFF(jx.tsc) + 8 * x->ntsc++), H_RDX);
	}
	e_op_reg(e, 0, 0x8b, home_of(R_RAX), H_RDX);
	e_op_reg(e, 1, 0xc1, 5, H_RDX);
	e1(e, 32);
	if (p)
		e_op_mem(e, 0, 0x8b, home_of(R_RCX), &aux);
}

/* Handlers whose file is among the general sources, or that need no vector state for another reason. */
static bool handler_quiet(const struct insn *i)
{
	switch (i->mnemonic) {
	case ZYDIS_MNEMONIC_SYSCALL:
	case ZYDIS_MNEMONIC_SYSRET:
	case ZYDIS_MNEMONIC_IRETQ:
	case ZYDIS_MNEMONIC_STI:
	case ZYDIS_MNEMONIC_CLI:
	case ZYDIS_MNEMONIC_POPFQ:
	case ZYDIS_MNEMONIC_PUSHFQ:
	case ZYDIS_MNEMONIC_STAC:
	case ZYDIS_MNEMONIC_CLAC:
	case ZYDIS_MNEMONIC_SWAPGS:
	case ZYDIS_MNEMONIC_PAUSE:
	case ZYDIS_MNEMONIC_RDFSBASE:
	case ZYDIS_MNEMONIC_RDGSBASE:
	case ZYDIS_MNEMONIC_WRFSBASE:
	case ZYDIS_MNEMONIC_WRGSBASE:
	case ZYDIS_MNEMONIC_INVLPG: return true;
	case ZYDIS_MNEMONIC_MOV: /* CR3, and segment registers */
		for (unsigned k = 0; k < 2; k++) {
			if (i->op[k].kind == OPD_CR)
				return i->op[k].reg == 3 || i->op[k].reg == 2;
			if (i->op[k].kind == OPD_SREG)
				return true;
		}
		return false;
	default: return false;
	}
}

static bool is_string(const struct insn *i)
{
	switch (i->mnemonic) {
	case ZYDIS_MNEMONIC_MOVSB:
	case ZYDIS_MNEMONIC_MOVSW:
	case ZYDIS_MNEMONIC_MOVSQ:
	case ZYDIS_MNEMONIC_STOSB:
	case ZYDIS_MNEMONIC_STOSW:
	case ZYDIS_MNEMONIC_STOSD:
	case ZYDIS_MNEMONIC_STOSQ: return true;
	case ZYDIS_MNEMONIC_MOVSD:
		return i->bytes[i->length - 1] == 0xa5 && i->op[0].kind != OPD_VEC && i->op[1].kind != OPD_VEC;
	default: return false;
	}
}

/* Leave for the handler of one instruction; false when it cannot be decoded. */
bool x_exit_step(struct xlat *x, const struct xinsn *in)
{
	struct jit *j = x->j;
	struct jit_step *s;
	unsigned end = (unsigned)PAGE_SIZE + (x->b->page2 == JIT_NO_PAGE ? 0 : JIT_INSN_MAX);

	j->arena_used = ALIGN_UP(j->arena_used, (size_t)16);
	s = (struct jit_step *)(void *)(j->arena + j->arena_used);
	memset(s, 0, sizeof(*s));
	if (insn_decode(x->c, x->code + in->off, MIN(end - in->off, JIT_INSN_MAX), x->c->s.rip, &s->insn))
		return false;
	j->arena_used += sizeof(*s);
	s->quiet = handler_quiet(&s->insn);
	s->string = is_string(&s->insn);
	x_flags_to_slot(x, F_ALL);
	e_mov_imm32(&x->e, H_RAX, in->off);
	e_mov_imm64(&x->e, H_RCX, (uint64_t)(uintptr_t)s);
	e_jmp_to(&x->e, j->leave_step);
	return true;
}
