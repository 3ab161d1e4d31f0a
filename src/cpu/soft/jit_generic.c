/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * K_GENERIC, most of all instructions: the guest's own bytes with register numbers
 * and the memory operand replaced. And short forms that name the accumulator only.
 */
#include "cpu/soft/jit_insn.h"

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
void x_emit_guest(struct xlat *x, const struct xinsn *in, const struct role *role, const struct hmem *m)
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

void x_roles_collect(const struct xinsn *in, struct role *role)
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

static int scratch_take(struct xlat *x, struct scratch *s)
{
	static const int8_t lend[] = {H_RDX, H_RBX, H_RSI, H_RDI};

	/* rcx first: rax may have an addend that the next instruction wants. */
	for (int h = H_RCX; h >= H_RAX; h--) {
		if (!(s->busy & 1u << h)) {
			s->busy |= 1u << h;
			if (h == H_RAX)
				x->rax_group = -1;
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
void x_roles_place(struct xlat *x, struct role *role, struct scratch *s)
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

void x_roles_finish(struct xlat *x, struct role *role, struct scratch *s)
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
bool x_prepare_mem(struct xlat *x, struct xinsn *in, struct hmem *m)
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

/* Instructions that do the same to a register and, with the same size, to memory. */
static bool memory_is_same(const struct xinsn *in)
{
	switch (in->zi.mnemonic) {
	case ZYDIS_MNEMONIC_MOV:
	case ZYDIS_MNEMONIC_MOVZX:
	case ZYDIS_MNEMONIC_MOVSX:
	case ZYDIS_MNEMONIC_MOVSXD:
	case ZYDIS_MNEMONIC_ADD:
	case ZYDIS_MNEMONIC_ADC:
	case ZYDIS_MNEMONIC_SUB:
	case ZYDIS_MNEMONIC_SBB:
	case ZYDIS_MNEMONIC_AND:
	case ZYDIS_MNEMONIC_OR:
	case ZYDIS_MNEMONIC_XOR:
	case ZYDIS_MNEMONIC_CMP:
	case ZYDIS_MNEMONIC_TEST:
	case ZYDIS_MNEMONIC_NOT:
	case ZYDIS_MNEMONIC_NEG:
	case ZYDIS_MNEMONIC_INC:
	case ZYDIS_MNEMONIC_DEC:
	case ZYDIS_MNEMONIC_SHL:
	case ZYDIS_MNEMONIC_SHR:
	case ZYDIS_MNEMONIC_SAR:
	case ZYDIS_MNEMONIC_ROL:
	case ZYDIS_MNEMONIC_ROR:
	case ZYDIS_MNEMONIC_IMUL:
	case ZYDIS_MNEMONIC_CVTSI2SD:
	case ZYDIS_MNEMONIC_CVTSI2SS: return true;
	default: return in->zi.meta.category == ZYDIS_CATEGORY_CMOV;
	}
}

/* A register without home can be used where it lives. Writing 32 bits would have to clear the others. */
static bool use_slot(const struct xinsn *in, const struct role *rm)
{
	return rm->used && rm->host == H_NONE && !rm->high && memory_is_same(in) && (!rm->wr || rm->size != 4);
}

void x_lower_generic(struct xlat *x, struct xinsn *in)
{
	struct role role[ROLE_COUNT];
	struct scratch s = {.busy = 1u << H_RSP, .borrowed = H_NONE};
	struct hmem m;
	bool mem = x_prepare_mem(x, in, &m), cl = wants_cl(in), high = false, homeless = false, slot = false;

	x_roles_collect(in, role);
	if (!mem && use_slot(in, &role[ROLE_RM])) {
		m = slot_of(role[ROLE_RM].guest);
		role[ROLE_RM].used = false;
		slot = true;
	}
	for (unsigned i = 0; i < ROLE_COUNT; i++) {
		if (!role[i].used)
			continue;
		high |= role[i].high;
		homeless |= role[i].host == H_NONE;
		if (role[i].host != H_NONE)
			s.busy |= 1u << role[i].host;
	}
	if (mem && (high || ((cl || homeless) && m.index == H_RCX) || (cl && m.base == H_RCX))) {
		x->rax_group = -1;
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
	x_site(x)->flags_in_host = x->host && !(in->live_in & ~x->host);
	x_roles_place(x, role, &s);
	x_emit_guest(x, in, role, mem || slot ? &m : NULL);
	x_roles_finish(x, role, &s);
}

/* OP AL/AX/EAX/RAX, imm: as the ModRM form. */
void x_lower_acc_imm(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	unsigned size = in->op[0].size / 8u, opc = in->zi.opcode;
	int home = home_of(R_RAX);

	x_prepare_mem(x, in, NULL);
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

void x_lower_xchg_acc(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	unsigned size, g;
	bool high;
	int a = home_of(R_RAX), b;

	x_prepare_mem(x, in, NULL);
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

void x_lower_moffs(struct xlat *x, struct xinsn *in)
{
	struct emit *e = &x->e;
	struct hmem m = {0};
	unsigned size = in->mem_size, opc;
	int a = home_of(R_RAX);

	x_prepare_mem(x, in, &m);
	if (size == 2)
		e1(e, 0x66);
	opc = in->mem_write ? 0x88 : 0x8a;
	e_op_mem(e, size == 8, opc | (size > 1), a, &m);
}
int x_reg_get(struct xlat *x, unsigned guest, int scratch)
{
	int h = home_of(guest);

	if (h != H_NONE)
		return h;
	e_load(&x->e, scratch, slot_of(guest));
	return scratch;
}
