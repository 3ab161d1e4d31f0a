/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One guest instruction to host code. Most are K_GENERIC: the guest's own bytes
 * with register numbers and the memory operand replaced. What has operands that
 * are not in its ModRM, VEX or opcode fields is lowered by a function of its own,
 * or left to the interpreter (K_UNSUPPORTED).
 */
#include "cpu/soft/jit_xlat.h"

#include "cpu/soft/stub.h"

/* Guest operand that a field of the encoding names. */
struct role {
	bool used, rd, wr, high, byte;
	uint8_t guest, size;
	int8_t host;  /* host register to encode */
	bool scratch; /* host is a scratch copy of a guest register without home */
	bool rotated;
};
enum role_field { ROLE_REG, ROLE_RM, ROLE_V, ROLE_OPC, ROLE_COUNT };

static int role_of(const ZydisDecodedOperand *o)
{
	switch (o->encoding) {
	case ZYDIS_OPERAND_ENCODING_MODRM_REG: return ROLE_REG;
	case ZYDIS_OPERAND_ENCODING_MODRM_RM: return ROLE_RM;
	case ZYDIS_OPERAND_ENCODING_NDSNDD: return ROLE_V;
	case ZYDIS_OPERAND_ENCODING_OPCODE: return ROLE_OPC;
	default: return -1;
	}
}

/* Emit the guest's instruction with `role` registers and, if m, that memory operand. */
static void emit_guest(struct xlat *x, const struct xinsn *in, const struct role *role, const struct hmem *m)
{
	struct emit *e = &x->e;
	const ZydisDecodedInstruction *zi = &in->zi;
	bool modrm = zi->attributes & ZYDIS_ATTRIB_HAS_MODRM;
	unsigned end = modrm ? zi->raw.modrm.offset + 1u + (zi->attributes & ZYDIS_ATTRIB_HAS_SIB ? 1u : 0u) +
				   zi->raw.disp.size / 8u
			     : 0;
	int reg = zi->raw.modrm.reg, rm = zi->raw.modrm.rm, opc = 0, v = -1;
	bool r_ext = false, b_ext = false, x_ext = false, need_rex = false;

	if (role[ROLE_REG].used)
		reg = role[ROLE_REG].host;
	if (role[ROLE_RM].used)
		rm = role[ROLE_RM].host;
	if (role[ROLE_OPC].used)
		opc = role[ROLE_OPC].host;
	if (role[ROLE_V].used)
		v = role[ROLE_V].host;
	for (unsigned i = 0; i < ROLE_COUNT; i++)
		need_rex |= role[i].used && role[i].byte && role[i].host >= 4;
	if (zi->encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY) {
		unsigned rex;

		/* Vector registers keep their extension bits. */
		r_ext = role[ROLE_REG].used ? reg >= 8 : zi->raw.rex.R;
		b_ext = m		      ? m->base >= 8
			: role[ROLE_RM].used  ? rm >= 8
			: role[ROLE_OPC].used ? opc >= 8
					      : zi->raw.rex.B;
		x_ext = m ? m->index >= 8 : false;
		for (unsigned i = 0; i < zi->raw.prefix_count; i++) {
			uint8_t b = zi->raw.prefixes[i].value;

			/* TZCNT and LZCNT of a model without them: the host must not see the prefix. */
			if (zi->mnemonic == ZYDIS_MNEMONIC_BSF || zi->mnemonic == ZYDIS_MNEMONIC_BSR)
				b = b == 0x66 ? b : 0;
			if (zi->raw.prefixes[i].type != ZYDIS_PREFIX_TYPE_IGNORED &&
			    (b == 0x66 || b == 0xf2 || b == 0xf3 || b == 0xf0))
				e1(e, b);
		}
		rex = (unsigned)(zi->raw.rex.W << 3 | r_ext << 2 | x_ext << 1 | b_ext);
		if (x->w32 && zi->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && (zi->opcode & 0xf0) == 0x40) {
			/* INC and DEC of one byte are prefixes in 64-bit code. */
			if (rex)
				e1(e, 0x40 | rex);
			e1(e, 0xff);
			e1(e, (unsigned)(0xc0 | (zi->opcode & 8) | (opc & 7)));
			return;
		}
		if (rex || need_rex)
			e1(e, 0x40 | rex);
		if (zi->opcode_map != ZYDIS_OPCODE_MAP_DEFAULT)
			e1(e, 0x0f);
		if (zi->opcode_map == ZYDIS_OPCODE_MAP_0F38)
			e1(e, 0x38);
		else if (zi->opcode_map == ZYDIS_OPCODE_MAP_0F3A)
			e1(e, 0x3a);
		if (x->w32 && zi->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && zi->opcode == 0x82)
			e1(e, 0x80); /* its other name, which 64-bit code has not */
		else
			e1(e, role[ROLE_OPC].used ? (zi->opcode & 0xf8u) | (unsigned)(opc & 7) : zi->opcode);
		if (!modrm)
			end = zi->raw.imm[0].size ? zi->raw.imm[0].offset : zi->length;
	} else if (zi->encoding == ZYDIS_INSTRUCTION_ENCODING_VEX) {
		const uint8_t *p = in->bytes + zi->raw.vex.offset;
		uint8_t p1, p2;

		if (zi->raw.vex.size == 3) {
			p1 = p[1];
			p2 = p[2];
		} else {
			p1 = (uint8_t)((p[1] & 0x80) | 0x61);
			p2 = p[1] & 0x7f;
		}
		if (role[ROLE_REG].used)
			p1 = (uint8_t)((p1 & 0x7f) | (reg < 8) << 7);
		if (m)
			p1 = (uint8_t)((p1 & 0x9f) | (m->index < 8) << 6 | (m->base < 8) << 5);
		else if (role[ROLE_RM].used)
			p1 = (uint8_t)((p1 & 0xdf) | (rm < 8) << 5);
		if (v >= 0)
			p2 = (uint8_t)((p2 & 0x87) | (~v & 15) << 3);
		else if (x->w32) /* eight registers: the fourth bit is ignored there */
			p2 |= 0x40;
		e1(e, 0xc4);
		e1(e, p1);
		e1(e, p2);
		e1(e, zi->opcode);
	} else { /* EVEX */
		const uint8_t *p = in->bytes + zi->raw.evex.offset;
		uint8_t p0 = p[1], p1 = p[2], p2 = p[3];

		if (role[ROLE_REG].used)
			p0 = (uint8_t)((p0 & 0x6f) | (reg < 8) << 7 | 0x10);
		if (m)
			p0 = (uint8_t)((p0 & 0x9f) | (m->index < 8) << 6 | (m->base < 8) << 5);
		else if (role[ROLE_RM].used)
			p0 = (uint8_t)((p0 & 0x9f) | 0x40 | (rm < 8) << 5);
		if (v >= 0) {
			p1 = (uint8_t)((p1 & 0x87) | (~v & 15) << 3);
			p2 |= 8;
		}
		e1(e, 0x62);
		e1(e, p0);
		e1(e, p1);
		e1(e, p2);
		e1(e, zi->opcode);
	}
	if (modrm) {
		if (m)
			e_modrm_mem(e, reg, m, zi->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX);
		else
			e1(e, (unsigned)(0xc0 | (reg & 7) << 3 | (rm & 7)));
	}
	for (unsigned i = end; i < zi->length; i++)
		e1(e, in->bytes[i]);
}

/* ---- generic -------------------------------------------------------------- */

static void roles_collect(const struct xinsn *in, struct role *role)
{
	memset(role, 0, ROLE_COUNT * sizeof(*role));
	for (unsigned i = 0; i < in->zi.operand_count; i++) {
		const ZydisDecodedOperand *o = &in->op[i];
		int f = role_of(o), g;
		unsigned size;
		bool high;

		if (o->type != ZYDIS_OPERAND_TYPE_REGISTER || f < 0)
			continue;
		g = x_gpr(o->reg.value, &size, &high);
		if (g < 0)
			continue;
		role[f].used = true;
		role[f].guest = (uint8_t)g;
		role[f].size = (uint8_t)size;
		role[f].byte = size == 1;
		role[f].high = high;
		role[f].rd = o->actions & (ZYDIS_OPERAND_ACTION_READ | ZYDIS_OPERAND_ACTION_CONDREAD |
					   ZYDIS_OPERAND_ACTION_CONDWRITE);
		role[f].wr = o->actions & (ZYDIS_OPERAND_ACTION_WRITE | ZYDIS_OPERAND_ACTION_CONDWRITE);
		/* BSF and BSR of zero keep the destination. */
		if (in->zi.mnemonic == ZYDIS_MNEMONIC_BSF || in->zi.mnemonic == ZYDIS_MNEMONIC_BSR || size < 4)
			role[f].rd = true;
		role[f].host = (int8_t)home_of((unsigned)g);
	}
}

/* Scratch registers of one instruction: rax, rcx, then a borrowed home that is saved around it. */
struct scratch {
	uint32_t busy; /* host registers */
	int8_t borrowed;
};

static int scratch_take(struct xlat *x, struct scratch *s)
{
	static const int8_t lend[] = {H_RDX, H_RBX, H_RSI, H_RDI};

	for (int h = H_RAX; h <= H_RCX; h++) {
		if (!(s->busy & 1u << h)) {
			s->busy |= 1u << h;
			return h;
		}
	}
	for (unsigned i = 0; i < ARRAY_SIZE(lend); i++) {
		if (!(s->busy & 1u << lend[i]) && s->borrowed == H_NONE) {
			s->borrowed = lend[i];
			s->busy |= 1u << lend[i];
			e_store(&x->e, h_slot(SLOT_TMP), lend[i]);
			return lend[i];
		}
	}
	x->failed = true;
	return H_RAX;
}

/* Give registers to operands without a usable home. */
static void roles_place(struct xlat *x, struct role *role, struct scratch *s)
{
	struct emit *e = &x->e;

	/* AH..BH that are written: rotate the home so that the byte is its lowest. */
	for (unsigned i = 0; i < ROLE_COUNT; i++) {
		if (!role[i].used || !role[i].high || !role[i].wr)
			continue;
		for (unsigned k = 0; k < ROLE_COUNT; k++) {
			if (k == i || !role[k].used || role[k].guest != role[i].guest)
				continue;
			if (role[k].high) {
				if (role[k].rotated)
					role[i].rotated = true; /* the other one did it */
			} else {				/* its low byte must be taken before the rotation */
				int h = scratch_take(x, s);

				if (role[k].wr)
					x->failed = true; /* XCHG AL, AH and the like */
				e_mov(e, h, role[k].host);
				role[k].host = (int8_t)h;
			}
		}
		if (!role[i].rotated) {
			e_rorx(e, 1, role[i].host, role[i].host, 8);
			role[i].rotated = true;
		}
	}
	for (unsigned i = 0; i < ROLE_COUNT; i++) {
		int h = H_NONE;

		if (!role[i].used)
			continue;
		if (role[i].high && !role[i].wr) {
			bool same = false;

			for (unsigned k = 0; k < ROLE_COUNT; k++)
				same |= role[k].used && role[k].rotated && role[k].guest == role[i].guest;
			if (!same) {
				h = scratch_take(x, s);
				e_rorx(e, 0, h, role[i].host, 8);
				role[i].host = (int8_t)h;
			}
			continue;
		}
		if (role[i].host != H_NONE)
			continue;
		for (unsigned k = 0; k < i; k++) {
			if (role[k].used && role[k].scratch && role[k].guest == role[i].guest)
				h = role[k].host;
		}
		if (h == H_NONE) {
			bool rd = role[i].rd;

			for (unsigned k = i + 1; k < ROLE_COUNT; k++)
				rd |= role[k].used && role[k].guest == role[i].guest && role[k].rd;
			h = scratch_take(x, s);
			if (rd)
				e_load(e, h, slot_of(role[i].guest));
		}
		role[i].host = (int8_t)h;
		role[i].scratch = true;
	}
}

static void roles_finish(struct xlat *x, struct role *role, struct scratch *s)
{
	uint32_t undone = 0;

	for (unsigned i = 0; i < ROLE_COUNT; i++) {
		if (!role[i].used)
			continue;
		if (role[i].scratch && role[i].wr)
			e_store(&x->e, slot_of(role[i].guest), role[i].host);
		if (role[i].rotated && !(undone & 1u << role[i].guest)) {
			int h = home_of(role[i].guest);

			undone |= 1u << role[i].guest;
			e_rorx(&x->e, 1, h, h, 56);
		}
	}
	if (s->borrowed != H_NONE)
		e_load(&x->e, s->borrowed, h_slot(SLOT_TMP));
}

/* Look up the memory operand if there is one; then make the flags that the instruction (or, when it breaks a
 * recipe, a later one) needs valid in the host. */
static bool prepare_mem(struct xlat *x, struct xinsn *in, struct hmem *m)
{
	unsigned need;

	if (in->mem >= 0) {
		if (!x_group_member(x, in))
			x_flags_clobber(x, in->live_in);
		*m = x_lookup(x, in, &in->op[in->mem].mem, in->mem_size, in->mem_write ? MMU_WRITE : MMU_READ);
	}
	need = in->f_read || (in->f_touched && (in->live_out & ~in->f_written)) ? in->live_in : 0;
	need |= x_flags_breaking(x, in);
	if (need & ~x->host) {
		if (in->mem >= 0 && x_flags_need_rax(x, need)) {
			e_lea(&x->e, H_RCX, *m);
			*m = h_base(H_RCX, 0);
		}
		x_flags_to_host(x, need);
	}
	return in->mem >= 0;
}

static uint32_t mem_regs(const struct hmem *m)
{
	return (m->base == H_NONE ? 0 : 1u << m->base) | (m->index == H_NONE ? 0 : 1u << m->index);
}

static bool wants_cl(const struct xinsn *in)
{
	for (unsigned i = 0; i < in->zi.operand_count_visible; i++) {
		if (in->op[i].type == ZYDIS_OPERAND_TYPE_REGISTER && in->op[i].reg.value == ZYDIS_REGISTER_CL &&
		    role_of(&in->op[i]) < 0)
			return true;
	}
	return false;
}

static void lower_generic(struct xlat *x, struct xinsn *in)
{
	struct role role[ROLE_COUNT];
	struct scratch s = {.busy = 1u << H_RSP, .borrowed = H_NONE};
	struct hmem m;
	bool mem = prepare_mem(x, in, &m), cl = wants_cl(in), high = false, homeless = false;

	roles_collect(in, role);
	for (unsigned i = 0; i < ROLE_COUNT; i++) {
		if (!role[i].used)
			continue;
		high |= role[i].high;
		homeless |= role[i].host == H_NONE;
		if (role[i].host != H_NONE)
			s.busy |= 1u << role[i].host;
	}
	if (mem && (high || ((cl || homeless) && m.index == H_RCX))) {
		e_lea(&x->e, H_RAX, m);
		m = h_base(H_RAX, 0);
	}
	if (mem && cl && m.base == H_RCX) {
		e_lea(&x->e, H_RAX, m);
		m = h_base(H_RAX, 0);
	}
	if (mem)
		s.busy |= mem_regs(&m);
	if (cl) {
		s.busy |= 1u << H_RCX;
		e_mov(&x->e, H_RCX, home_of(R_RCX));
	}
	/* Should the host refuse it: no register of the guest has changed here but a rotated or borrowed one. */
	x->site[x->i].flags_in_host = x->host && !(in->live_in & ~x->host);
	roles_place(x, role, &s);
	emit_guest(x, in, role, mem ? &m : NULL);
	roles_finish(x, role, &s);
}

/* OP AL/AX/EAX/RAX, imm: as the ModRM form. */
static void lower_acc_imm(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	unsigned size = in->op[0].size / 8u, opc = in->zi.opcode;
	int home = home_of(R_RAX);

	prepare_mem(x, in, NULL);
	if (size == 2)
		e1(e, 0x66);
	e1(e, 0x41u | (size == 8) << 3);
	if (in->zi.mnemonic == ZYDIS_MNEMONIC_TEST) {
		e1(e, 0xf6u | (size > 1));
		e1(e, 0xc0u | (home & 7));
	} else {
		e1(e, 0x80u | (size > 1));
		e1(e, 0xc0u | (opc & 0x38) | (home & 7));
	}
	for (unsigned i = in->zi.raw.imm[0].offset; i < in->zi.length; i++)
		e1(e, in->bytes[i]);
}

static void lower_xchg_acc(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	unsigned size, g;
	bool high;
	int a = home_of(R_RAX), b;

	prepare_mem(x, in, NULL);
	g = (unsigned)x_gpr(in->op[0].encoding == ZYDIS_OPERAND_ENCODING_OPCODE ? in->op[0].reg.value
										: in->op[1].reg.value,
			    &size, &high);
	b = home_of(g);
	if (b == H_NONE) {
		e_load(e, H_RCX, slot_of(g));
		b = H_RCX;
	}
	if (size == 2)
		e1(e, 0x66);
	e_op_reg(e, size == 8, 0x87, a, b);
	if (b == H_RCX)
		e_store(e, slot_of(g), H_RCX);
}

static void lower_moffs(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	struct hmem m = {0};
	unsigned size = in->mem_size, opc;
	int a = home_of(R_RAX);

	prepare_mem(x, in, &m);
	if (size == 2)
		e1(e, 0x66);
	opc = in->mem_write ? 0x88 : 0x8a;
	e_op_mem(e, size == 8, opc | (size > 1), a, &m);
}

/* ---- address and stack ---------------------------------------------------- */

static int reg_get(struct xlat *x, unsigned guest, int scratch)
{
	int h = home_of(guest);

	if (h != H_NONE)
		return h;
	e_load(&x->e, scratch, slot_of(guest));
	return scratch;
}

static void lower_lea(struct xlat *x, struct xinsn *in)
{
	unsigned size;
	bool high;
	unsigned g = (unsigned)x_gpr(in->op[0].reg.value, &size, &high);
	int h = home_of(g);

	prepare_mem(x, in, NULL);
	if (size >= 4 && h != H_NONE) {
		x_address(x, in, &in->op[1].mem, h);
		return;
	}
	x_address(x, in, &in->op[1].mem, H_RCX);
	if (size == 2) {
		if (h == H_NONE) {
			e_load(&x->e, H_RAX, slot_of(g));
			h = H_RAX;
		}
		e1(&x->e, 0x66);
		e_op_reg(&x->e, 0, 0x8b, h, H_RCX);
		if (h == H_RAX)
			e_store(&x->e, slot_of(g), H_RAX);
		return;
	}
	e_store(&x->e, slot_of(g), H_RCX);
}

static void rsp_add(struct xlat *x, int32_t n)
{
	int h = home_of(R_RSP);
	struct hmem m = h_base(h, n);

	e_op_mem(&x->e, !x->w32, 0x8d, h, &m);
}

/* Push the value in `src` (H_NONE: the sign-extended immediate). */
static void push_value(struct xlat *x, struct xinsn *in, int src, int32_t imm)
{
	int width = x->w32 ? 4 : 8;
	struct hmem m;

	if (!x_group_member(x, in))
		x_flags_clobber(x, in->live_in);
	m = x_lookup_stack(x, in, R_RSP, -width, (unsigned)width, MMU_WRITE);
	if (x_flags_breaking(x, in)) /* no scratch: the recipe is in place, or the slot has them */
		x_flags_to_host(x, x_flags_breaking(x, in));
	if (src == H_NONE) {
		e_op_mem(&x->e, !x->w32, 0xc7, 0, &m);
		e4(&x->e, (uint32_t)imm);
	} else if (src == H_RCX) { /* was kept in SLOT_TMP2 */
		if (x->w32) {	   /* rcx is part of the address */
			e_lea(&x->e, H_RAX, m);
			m = h_base(H_RAX, 0);
		}
		e_load(&x->e, H_RCX, h_slot(SLOT_TMP2));
		e_op_mem(&x->e, !x->w32, 0x89, H_RCX, &m);
	} else {
		e_op_mem(&x->e, !x->w32, 0x89, src, &m);
	}
	rsp_add(x, -width);
	/* CALL has its exit still to come, and flags made again from the old RSP would be wrong there. */
	if (x->recipe.regs & in->gpr_written)
		x->recipe.kind = RECIPE_NONE;
}

static void load_operand_rcx(struct xlat *x, struct xinsn *in, unsigned n)
{
	struct hmem m;

	if (in->op[n].type == ZYDIS_OPERAND_TYPE_MEMORY) {
		x_flags_clobber(x, in->live_in);
		m = x_lookup(x, in, &in->op[n].mem, x->w32 ? 4 : 8, MMU_READ);
		e_op_mem(&x->e, !x->w32, 0x8b, H_RCX, &m);
	} else {
		unsigned size;
		bool high;
		unsigned g = (unsigned)x_gpr(in->op[n].reg.value, &size, &high);

		e_mov(&x->e, H_RCX, reg_get(x, g, H_RCX));
	}
}

static void lower_push(struct xlat *x, struct xinsn *in)
{
	unsigned size;
	bool high;
	int h = H_NONE;

	if (in->op[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
		push_value(x, in, H_NONE, (int32_t)in->op[0].imm.value.s);
		return;
	}
	if (in->op[0].type == ZYDIS_OPERAND_TYPE_REGISTER)
		h = home_of((unsigned)x_gpr(in->op[0].reg.value, &size, &high));
	if (h == H_NONE) {
		load_operand_rcx(x, in, 0);
		e_store(&x->e, h_slot(SLOT_TMP2), H_RCX);
		h = H_RCX;
	}
	push_value(x, in, h, 0);
}

static void lower_pop(struct xlat *x, struct xinsn *in)
{
	unsigned size;
	bool high;
	unsigned g = (unsigned)x_gpr(in->op[0].reg.value, &size, &high), breaking;
	struct hmem m;
	int h = home_of(g);

	if (!x_group_member(x, in))
		x_flags_clobber(x, in->live_in);
	m = x_lookup_stack(x, in, R_RSP, 0, x->w32 ? 4 : 8, MMU_READ);
	breaking = x_flags_breaking(x, in);
	if (breaking)
		x_flags_to_host(x, breaking);
	if (h == H_NONE) {
		e_op_mem(&x->e, !x->w32, 0x8b, H_RCX, &m);
		e_store(&x->e, slot_of(g), H_RCX);
	} else {
		e_op_mem(&x->e, !x->w32, 0x8b, h, &m);
	}
	if (g != R_RSP)
		rsp_add(x, x->w32 ? 4 : 8);
}

static void lower_leave(struct xlat *x, struct xinsn *in)
{
	int bp = home_of(R_RBP);
	struct hmem m, after = h_base(bp, x->w32 ? 4 : 8);
	unsigned breaking;

	if (!x_group_member(x, in))
		x_flags_clobber(x, in->live_in);
	m = x_lookup_stack(x, in, R_RBP, 0, x->w32 ? 4 : 8, MMU_READ);
	breaking = x_flags_breaking(x, in);
	if (breaking)
		x_flags_to_host(x, breaking);
	e_op_mem(&x->e, !x->w32, 0x8d, home_of(R_RSP), &after);
	e_op_mem(&x->e, !x->w32, 0x8b, bp, &m);
}

/* ---- rax, rdx and the like ------------------------------------------------ */

/* r/m operand for MUL, DIV, CMPXCHG: host register, or *m is set to what rax does not carry. */
static bool rm_operand(struct xlat *x, struct xinsn *in, struct role *role, struct hmem *m)
{
	bool mem = prepare_mem(x, in, m);

	roles_collect(in, role);
	if (mem) {
		e_lea(&x->e, H_RCX, *m);
		*m = h_base(H_RCX, 0);
	} else if (role[ROLE_RM].host == H_NONE) {
		*m = slot_of(role[ROLE_RM].guest);
		if (role[ROLE_RM].wr) /* a 32-bit result must clear the upper half: keep to registers */
			x->failed = true;
		return true;
	}
	return mem;
}

static void lower_mul(struct xlat *x, struct xinsn *in)
{
	struct role role[ROLE_COUNT];
	struct hmem m;
	bool mem = rm_operand(x, in, role, &m);

	e_mov(&x->e, H_RAX, home_of(R_RAX));
	emit_guest(x, in, role, mem ? &m : NULL);
	e_mov(&x->e, home_of(R_RAX), H_RAX);
}

/* Divide errors must not happen on the host: quotients that may not fit are the interpreter's. */
static void lower_div(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	struct role role[ROLE_COUNT];
	struct hmem m;
	unsigned size = in->op[0].size / 8u;
	bool mem, is_signed = in->zi.mnemonic == ZYDIS_MNEMONIC_IDIV;
	uint8_t *bad, *bad2 = NULL;

	if (in->live_in) {
		/* Undefined afterwards, so nobody needs them; but a side exit does. */
		x_flags_to_slot(x, in->live_in);
	}
	x->host = 0;
	mem = rm_operand(x, in, role, &m);
	if (!mem)
		e_mov(e, H_RCX, role[ROLE_RM].host);
	else
		e_op_mem(e, size == 8, 0x8b, H_RCX, &m);
	if (!is_signed) {
		/* rdx < divisor: fits, and the divisor is not 0 */
		e_op_reg(e, size == 8, 0x3b, H_RDX, H_RCX);
		bad = e_jcc(e, CC_AE);
	} else {
		e_op_reg(e, size == 8, 0x8b, H_RAX, home_of(R_RAX));
		e_op_reg(e, size == 8, 0xc1, 7, H_RAX); /* sar rax, 31 or 63 */
		e1(e, size * 8 - 1);
		e_op_reg(e, size == 8, 0x3b, H_RAX, H_RDX);
		bad = e_jcc(e, CC_NE);
		e_op_mem(e, size == 8, 0x8d, H_RAX, &(struct hmem){.base = H_RCX, .index = H_NONE, .disp = 1});
		e_alu_imm(e, size == 8, 7, H_RAX, 1); /* divisor 0 or -1 */
		bad2 = e_jcc(e, CC_BE);
	}
	/* PUSHF shows what the host makes of them, which on some CPUs is nothing. */
	if (in->live_out && x->slot == F_ALL)
		x_flags_to_host(x, F_ALL);
	e_mov(e, H_RAX, home_of(R_RAX));
	e_op_reg(e, size == 8, 0xf7, is_signed ? 7 : 6, H_RCX);
	e_mov(e, home_of(R_RAX), H_RAX);
	x_swap(x);
	e_patch(bad, x->e.p);
	if (bad2)
		e_patch(bad2, x->e.p);
	x_side_exit(x, in->off, x->j->leave[REASON_INTERP]);
	x_swap(x);
}

static void lower_cmpxchg(struct xlat *x, struct xinsn *in)
{
	struct role role[ROLE_COUNT];
	struct scratch s = {.busy = 1u << H_RSP | 1u << H_RAX, .borrowed = H_NONE};
	struct hmem m;
	bool mem = prepare_mem(x, in, &m);

	if (mem) {
		e_lea(&x->e, H_RCX, m);
		m = h_base(H_RCX, 0);
		s.busy |= 1u << H_RCX;
	}
	roles_collect(in, role);
	for (unsigned i = 0; i < ROLE_COUNT; i++) {
		if (!role[i].used)
			continue;
		if (role[i].high)
			x->failed = true;
		role[i].rd = true;
		if (role[i].host != H_NONE)
			s.busy |= 1u << role[i].host;
		if (role[i].guest == R_RAX) { /* its copy in rax is what the instruction sees and writes */
			if (role[i].wr)
				x->failed = true;
			role[i].host = H_RAX;
		}
	}
	roles_place(x, role, &s);
	e_mov(&x->e, H_RAX, home_of(R_RAX));
	emit_guest(x, in, role, mem ? &m : NULL);
	e_mov(&x->e, home_of(R_RAX), H_RAX);
	roles_finish(x, role, &s);
}

static void lower_cmpxchg16b(struct xlat *x, struct xinsn *in)
{
	static const struct role none[ROLE_COUNT];
	struct emit *e = &x->e;
	struct hmem m;

	prepare_mem(x, in, &m);
	/* rsi lends itself as the pointer: rax, rcx, rdx and rbx are operands. */
	e_lea(e, H_RAX, m);
	e_store(e, h_slot(SLOT_TMP), H_RSI);
	e_mov(e, H_RSI, H_RAX);
	m = h_base(H_RSI, 0);
	e_mov(e, H_RAX, home_of(R_RAX));
	e_mov(e, H_RCX, home_of(R_RCX));
	emit_guest(x, in, none, &m);
	e_mov(e, home_of(R_RAX), H_RAX);
	e_load(e, H_RSI, h_slot(SLOT_TMP));
}

/* BT, BTS, BTR, BTC m, r: the bit index reaches beyond the operand. */
static void lower_bt_mem(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	unsigned size, g;
	bool high;
	uint8_t *miss;
	const uint8_t *resume;
	struct hmem lin = h_slot(SLOT_LIN), ea = h_slot(SLOT_TMP2), ptr = h_base(H_RCX, 0);
	int idx;
	enum mmu_access a = in->mem_write ? MMU_WRITE : MMU_READ;
	const ZydisDecodedOperandMem *mm = &in->op[0].mem;
	size_t seg = 0;

	g = (unsigned)x_gpr(in->op[1].reg.value, &size, &high);
	x_flags_clobber(x, in->live_in);
	if (mm->segment == ZYDIS_REGISTER_FS || mm->segment == ZYDIS_REGISTER_GS)
		seg = offsetof(struct soft_cpu, s.seg) +
		      (mm->segment == ZYDIS_REGISTER_FS ? S_FS : S_GS) * sizeof(struct cpu_segment) +
		      offsetof(struct cpu_segment, base);
	x_address(x, in, mm, H_RCX);
	if (seg) {
		struct hmem h = h_gs(seg);

		e_op_mem(e, 1, 0x03, H_RCX, &h);
	}
	e_store(e, ea, H_RCX);
	if (size == 4)
		e_op_reg(e, 1, 0x63, H_RAX, reg_get(x, g, H_RAX)); /* movsxd */
	else
		e_mov(e, H_RAX, reg_get(x, g, H_RAX));
	e_op_reg(e, 1, 0xc1, 7, H_RAX); /* sar rax, 5 or 6 */
	e1(e, size == 8 ? 6 : 5);
	e_lea(e, H_RCX, (struct hmem){.base = H_RCX, .index = H_RAX, .scale = size == 8 ? 3 : 2});
	e_store(e, lin, H_RCX);
	/* as x_lookup, with the address in SLOT_LIN */
	miss = NULL;
	{
		size_t tlb = offsetof(struct soft_cpu, tlb) +
			     (x->mmu_index * MMU_ACCESSES + (unsigned)a) * TLB_SIZE * sizeof(struct tlb_entry);
		struct hmem tag = h_gs(tlb), addend = h_gs(tlb + offsetof(struct tlb_entry, addend));

		tag.base = addend.base = H_RAX;
		e_rorx(e, 0, H_RAX, H_RCX, PAGE_SHIFT - 4);
		e1(e, 0x25);
		e4(e, (TLB_SIZE - 1) << 4);
		e_op_mem(e, 1, 0x33, H_RCX, &tag);
		e_alu_imm(e, 1, 7, H_RCX, (int32_t)(PAGE_SIZE - size));
		miss = e_jcc(e, CC_A);
		e_load(e, H_RAX, addend);
	}
	resume = e->p;
	x_swap(x);
	e_patch(miss, x->e.p);
	e_load(&x->e, H_RCX, lin);
	e_mov_imm32(&x->e, H_RAX, size);
	e_call_to(&x->e, a == MMU_WRITE ? x->j->slow_write : x->j->slow_read);
	e_jmp_to(&x->e, resume);
	x_flags_cold(x, in->live_in, x->slot, &x->recipe);
	x_side_exit(x, in->off, x->j->leave_keep);
	x_swap(x);
	/* The host's instruction adds the index again: it gets the base's address and the whole index. */
	e_op_mem(e, 1, 0x03, H_RAX, &ea);
	e_mov(e, H_RCX, H_RAX);
	if (in->live_out & ~in->f_written)
		x_flags_to_host(x, in->live_in);
	idx = reg_get(x, g, H_RAX);
	for (unsigned i = 0; i < in->zi.raw.prefix_count; i++) {
		if (in->zi.raw.prefixes[i].value == 0xf0)
			e1(e, 0xf0);
	}
	e_op_mem(e, size == 8, 0x0f00u | in->zi.opcode, idx, &ptr);
}

static void lower_cbw(struct xlat *x, struct xinsn *in)
{
	int a = home_of(R_RAX);

	prepare_mem(x, in, NULL);
	switch (in->zi.mnemonic) {
	case ZYDIS_MNEMONIC_CBW:
		e1(&x->e, 0x66);
		e_op_reg(&x->e, 0, 0x0fbe, a, a);
		break;
	case ZYDIS_MNEMONIC_CWDE: e_op_reg(&x->e, 0, 0x0fbf, a, a); break;
	default: e_op_reg(&x->e, 1, 0x63, a, a); break;
	}
}

static void lower_cwd(struct xlat *x, struct xinsn *in)
{
	prepare_mem(x, in, NULL);
	e_mov(&x->e, H_RAX, home_of(R_RAX));
	if (in->zi.mnemonic == ZYDIS_MNEMONIC_CWD)
		e1(&x->e, 0x66);
	if (in->zi.mnemonic == ZYDIS_MNEMONIC_CQO)
		e1(&x->e, 0x48);
	e1(&x->e, 0x99);
}

static void lower_lahf(struct xlat *x, struct xinsn *in)
{
	int a = home_of(R_RAX);

	x_flags_to_host(x, in->live_in);
	e1(&x->e, 0x9f);
	e_op_reg(&x->e, 0, 0x0fb6, H_RAX, 4); /* movzx eax, ah */
	e_rorx(&x->e, 1, a, a, 8);
	e_op_reg(&x->e, 0, 0x8a, a, H_RAX);
	e_rorx(&x->e, 1, a, a, 56);
}

static void lower_sahf(struct xlat *x, struct xinsn *in)
{
	if (in->live_out & ~in->f_written)
		x_flags_to_host(x, in->live_in);
	e_mov(&x->e, H_RAX, home_of(R_RAX));
	e1(&x->e, 0x9e);
}

/* DF is kept in memory, and string instructions with it set are the interpreter's. */
static void lower_cld(struct xlat *x, struct xinsn *in)
{
	struct hmem f = h_gs(offsetof(struct soft_cpu, s.rflags));

	x_flags_clobber(x, in->live_in);
	e_op_mem(&x->e, 0, 0x81, 4, &f);
	e4(&x->e, (uint32_t)~FLAG_DF);
}

/* PCMPxSTRx: lengths in rax and rdx, index to rcx. */
static void lower_pcmpstr(struct xlat *x, struct xinsn *in)
{
	static const struct role none[ROLE_COUNT];
	struct hmem m;
	bool mem = prepare_mem(x, in, &m);

	if (mem) {
		e_lea(&x->e, H_RCX, m);
		m = h_base(H_RCX, 0);
	}
	e_mov(&x->e, H_RAX, home_of(R_RAX));
	emit_guest(x, in, none, mem ? &m : NULL);
	if (in->gpr_written & 1u << R_RCX)
		e_mov(&x->e, home_of(R_RCX), H_RCX);
}

static void lower_fnstsw_ax(struct xlat *x, struct xinsn *in)
{
	prepare_mem(x, in, NULL);
	e1(&x->e, 0xdf);
	e1(&x->e, 0xe0);
	e1(&x->e, 0x66);
	e_op_reg(&x->e, 0, 0x8b, home_of(R_RAX), H_RAX);
}

/* ---- control flow --------------------------------------------------------- */

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
static void load_va(struct xlat *x, int32_t off)
{
	struct hmem m = h_base(H_RCX, off);

	e_load(&x->e, H_RCX, h_slot(SLOT_PAGE));
	e_op_mem(&x->e, !x->w32, 0x8d, H_RCX, &m);
}

/* Jump through the table to the linear address in rcx, in code of that mode; flags are in the slot. */
static void jump_table(struct xlat *x, unsigned mmu_index)
{
	struct emit *e = &x->e;
	size_t tab = offsetof(struct soft_cpu, jit_jump) + mmu_index * sizeof(x->c->jit_jump[0]);
	struct hmem va = h_gs(tab), code = h_gs(tab + offsetof(struct jit_jump, code));
	struct hmem salt = h_gs(offsetof(struct soft_cpu, jx.salt));
	struct hmem user_end = h_gs(offsetof(struct soft_cpu, jx.user_end));
	bool salted = mmu_index == MMU_USER;
	uint8_t *miss;

	va.base = code.base = H_RAX;
	if (salted) {
		/* A salt could make an address of one space from an address that is not canonical in another. */
		e_op_mem(e, 1, 0x3b, H_RCX, &user_end);
		e_patch(e_jcc(e, CC_AE), x->j->leave[REASON_LOOKUP]);
		e_op_mem(e, 1, 0x33, H_RCX, &salt);
	}
	e_rorx(e, 0, H_RAX, H_RCX, JIT_JUMP_SHIFT);
	e_op_reg(e, 0, 0x33, H_RAX, H_RCX);
	e1(e, 0x25);
	e4(e, (1u << JIT_JUMP_BITS) - 1);
	e_op_reg(e, 0, 0xc1, 4, H_RAX);
	e1(e, 4);
	e_op_mem(e, 1, 0x3b, H_RCX, &va);
	miss = e_jcc(e, CC_NE);
	if (salted)
		e_op_mem(e, 1, 0x33, H_RCX, &salt);
	e_alu_imm(e, 1, 4, H_RCX, (int32_t)PAGE_MASK);
	e_store(e, h_slot(SLOT_PAGE), H_RCX);
	e_op_mem(e, 0, 0xff, 4, &code);
	e_patch(miss, x->j->leave[salted ? REASON_LOOKUP_SALTED : REASON_LOOKUP]);
}

void x_exit_indirect(struct xlat *x)
{
	x_flags_to_slot(x, F_ALL);
	jump_table(x, x->mmu_index);
}

void x_exit_direct(struct xlat *x, int32_t target, unsigned live)
{
	struct jit_link *l;

	if (!x_linkable(x, target)) {
		x_flags_to_slot(x, F_ALL);
		load_va(x, target);
		jump_table(x, x->mmu_index);
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
		x_flags_to_slot(x, F_ALL);
		load_va(x, target);
		jump_table(x, x->mmu_index);
		x_swap(x);
		x->host = host;
		x->slot = slot;
	}
}

static void lower_jcc(struct xlat *x, struct xinsn *in)
{
	x_flags_to_host(x, in->live_in);
	exit_cond(x, in->zi.opcode & 15u, in->target, in->taken_live);
}

/* JRCXZ and LOOP: no flags are read or changed. */
static void lower_jrcxz(struct xlat *x, struct xinsn *in)
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
	load_va(x, in->next);
	e_store(&x->e, h_slot(SLOT_TMP2), H_RCX);
	push_value(x, in, H_RCX, 0);
}

static void lower_call(struct xlat *x, struct xinsn *in)
{
	push_return(x, in);
	x_exit_direct(x, in->target, in->live_out);
}

static void lower_call_ind(struct xlat *x, struct xinsn *in)
{
	load_operand_rcx(x, in, 0);
	e_store(&x->e, h_slot(SLOT_LIN), H_RCX);
	push_return(x, in);
	x_flags_to_slot(x, F_ALL);
	e_load(&x->e, H_RCX, h_slot(SLOT_LIN));
	x_exit_indirect(x);
}

static void lower_jmp_ind(struct xlat *x, struct xinsn *in)
{
	x_flags_to_slot(x, F_ALL);
	load_operand_rcx(x, in, 0);
	x_exit_indirect(x);
}

static void lower_ret(struct xlat *x, struct xinsn *in)
{
	struct hmem m;
	int32_t n = x->w32 ? 4 : 8;

	if (in->op[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
		n += (int32_t)(in->op[0].imm.value.u & 0xffff);
	x_flags_to_slot(x, F_ALL);
	x->host = 0;
	m = x_lookup_stack(x, in, R_RSP, 0, x->w32 ? 4 : 8, MMU_READ);
	e_op_mem(&x->e, !x->w32, 0x8b, H_RCX, &m);
	rsp_add(x, n);
	x_exit_indirect(x);
}

static void lower_raw(struct xlat *x, struct xinsn *in)
{
	prepare_mem(x, in, NULL);
	for (unsigned i = 0; i < in->zi.length; i++)
		e1(&x->e, in->bytes[i]);
}

static void lower_nop(struct xlat *x, struct xinsn *in)
{
	if (in->zi.mnemonic == ZYDIS_MNEMONIC_PAUSE) {
		e1(&x->e, 0xf3);
		e1(&x->e, 0x90);
	}
}

/* ---- system instructions -------------------------------------------------- */

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

static void lower_cli(struct xlat *x, struct xinsn *in)
{
	x_flags_clobber(x, in->live_in);
	field_op(x, 4, GS_OFF(s.rflags), (uint32_t)~FLAG_IF);
}

/* With an interrupt waiting, and before HLT and the like (x_classify), STI's shadow matters: interpreter. */
static void lower_sti(struct xlat *x, struct xinsn *in)
{
	x_flags_clobber(x, in->live_in);
	leave_if(x, in, GS_OFF(intr_latched), 0, CC_NE);
	field_op(x, 1, GS_OFF(s.rflags), FLAG_IF);
}

static void lower_pushf(struct xlat *x, struct xinsn *in)
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
	push_value(x, in, H_RCX, 0);
}

static void lower_swapgs(struct xlat *x, struct xinsn *in)
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
static void lower_stac(struct xlat *x, struct xinsn *in)
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
	load_va(x, in->next);
	e_op_mem(e, 0, 0x81, 7, &have);
	e4(e, key);
	other = e_jcc(e, CC_NE);
	e_patch(other, x->j->leave[REASON_LOOKUP]);
	jump_table(x, to);
}

static void lower_rdtsc(struct xlat *x, struct xinsn *in)
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

static bool is_x87(const ZydisDecodedInstruction *zi)
{
	return zi->meta.isa_ext == ZYDIS_ISA_EXT_X87 || zi->meta.isa_set == ZYDIS_ISA_SET_X87 ||
	       zi->meta.isa_set == ZYDIS_ISA_SET_FCMOV || zi->meta.isa_set == ZYDIS_ISA_SET_SSE3X87;
}

/* mov word gs:[off], imm */
static void store_word(struct xlat *x, size_t off, unsigned imm)
{
	struct hmem m = h_gs(off);

	e1(&x->e, 0x66);
	e_op_mem(&x->e, 0, 0xc7, 0, &m);
	e1(&x->e, imm & 0xff);
	e1(&x->e, imm >> 8);
}

static void copy_selector(struct xlat *x, size_t to, unsigned seg)
{
	struct hmem m = h_gs(to),
		    sel = h_gs(GS_OFF(s.seg) + seg * sizeof(struct cpu_segment) + offsetof(struct cpu_segment, sel));

	e_op_mem(&x->e, 0, 0x0fb7, H_RAX, &sel);
	e1(&x->e, 0x66);
	e_op_mem(&x->e, 0, 0x89, H_RAX, &m);
}

/*
 * Pointers and opcode of the last x87 instruction: the host's are those of translated code, so the guest's are
 * kept in the memory image, from where jit_vec_unload takes them. No flags are touched.
 */
static void x87_pointers(struct xlat *x, const struct xinsn *in)
{
	struct emit *e = &x->e;
	size_t image = GS_OFF(s.xsave);

	if (in->zi.mnemonic == ZYDIS_MNEMONIC_FNINIT) {
		e_mov_imm32(e, H_RAX, 0);
		e_store(e, h_gs(image + FX_FIP), H_RAX);
		e_store(e, h_gs(image + FX_FDP), H_RAX);
		store_word(x, image + FX_FOP, 0);
		store_word(x, GS_OFF(x87_cs), 0);
		store_word(x, GS_OFF(x87_ds), 0);
		return;
	}
	if (x87_is_control(in->zi.mnemonic))
		return;
	e_load(e, H_RAX, h_slot(SLOT_PAGE));
	e_lea(e, H_RAX, h_base(H_RAX, in->off));
	e_store(e, h_gs(image + FX_FIP), H_RAX);
	store_word(x, image + FX_FOP, x87_opcode(in->bytes, in->zi.length));
	copy_selector(x, GS_OFF(x87_cs), S_CS);
	if (in->mem < 0)
		return;
	x_address(x, in, &in->op[in->mem].mem, H_RCX);
	e_store(e, h_gs(image + FX_FDP), H_RCX);
	copy_selector(x, GS_OFF(x87_ds), (unsigned)(in->op[in->mem].mem.segment - ZYDIS_REGISTER_ES));
}

static void (*const lower[])(struct xlat *x, struct xinsn *in) = {
    [K_GENERIC] = lower_generic,   [K_ACC_IMM] = lower_acc_imm,
    [K_XCHG_ACC] = lower_xchg_acc, [K_MOFFS] = lower_moffs,
    [K_NOP] = lower_nop,	   [K_RAW] = lower_raw,
    [K_LEA] = lower_lea,	   [K_PUSH] = lower_push,
    [K_POP] = lower_pop,	   [K_LEAVE] = lower_leave,
    [K_MUL] = lower_mul,	   [K_DIV] = lower_div,
    [K_CMPXCHG] = lower_cmpxchg,   [K_CMPXCHG16B] = lower_cmpxchg16b,
    [K_BT_MEM] = lower_bt_mem,	   [K_CBW] = lower_cbw,
    [K_CWD] = lower_cwd,	   [K_LAHF] = lower_lahf,
    [K_SAHF] = lower_sahf,	   [K_CLD] = lower_cld,
    [K_PCMPSTR] = lower_pcmpstr,   [K_FNSTSW_AX] = lower_fnstsw_ax,
    [K_CLI] = lower_cli,	   [K_STI] = lower_sti,
    [K_PUSHF] = lower_pushf,	   [K_SWAPGS] = lower_swapgs,
    [K_RDTSC] = lower_rdtsc,	   [K_STAC] = lower_stac,
    [K_JCC] = lower_jcc,	   [K_JRCXZ] = lower_jrcxz,
    [K_LOOP] = lower_jrcxz,	   [K_JMP_IND] = lower_jmp_ind,
    [K_CALL] = lower_call,	   [K_CALL_IND] = lower_call_ind,
    [K_RET] = lower_ret,
};

void x_lower(struct xlat *x, struct xinsn *in)
{
	if (in->vec)
		x_need_vec(x, in);
	if (unlikely(x->j->spoil && x->j->spoil == in->zi.mnemonic))
		return;
	if (in->kind == K_JMP)
		x_exit_direct(x, in->target, in->live_out);
	else
		lower[in->kind](x, in);
	if (in->vec && is_x87(&in->zi))
		x87_pointers(x, in);
	x_flags_after(x, in);
}
