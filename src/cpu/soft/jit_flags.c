/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guest flags in translated code: where they are, and how they get through code
 * that destroys the host's flags. See jit.h.
 */
#include "cpu/soft/jit_xlat.h"

void x_flags_save(struct xlat *x)
{
	if (!x->in_cold) /* else rax is given what it had, or the block is left */
		x->rax_group = -1;
	e1(&x->e, 0x9f); /* lahf */
	e1(&x->e, 0x0f); /* seto al */
	e1(&x->e, 0x90);
	e1(&x->e, 0xc0);
	e_store32(&x->e, h_slot(SLOT_FLAGS), H_RAX);
}

static void flags_load(struct xlat *x)
{
	x->rax_group = -1;
	e_load32(&x->e, H_RAX, h_slot(SLOT_FLAGS));
	e1(&x->e, 0x04); /* add al, 127: OF = bit 0 */
	e1(&x->e, 127);
	e1(&x->e, 0x9e); /* sahf */
}

static void op_sized(struct xlat *x, const struct recipe *r, unsigned opc8, int op_imm)
{
	struct emit *e = &x->e;
	unsigned rex = (unsigned)((r->size == 8) << 3 | (r->b >= 8) << 2 | (r->a >= 8));

	if (r->size == 2)
		e1(e, 0x66);
	if (r->b != H_NONE) {
		if (r->size == 1 && (r->a >= 4 || r->b >= 4))
			rex |= 0x40;
		if (rex)
			e1(e, 0x40 | rex);
		e1(e, opc8 + (r->size > 1));
		e1(e, (unsigned)(0xc0 | (r->b & 7) << 3 | (r->a & 7)));
		return;
	}
	rex &= ~4u;
	if (r->size == 1 && r->a >= 4)
		rex |= 0x40;
	if (rex)
		e1(e, 0x40 | rex);
	if (op_imm == 8) { /* test */
		e1(e, 0xf6 + (r->size > 1));
		e1(e, (unsigned)(0xc0 | (r->a & 7)));
	} else {
		e1(e, 0x80 + (r->size > 1));
		e1(e, (unsigned)(0xc0 | op_imm << 3 | (r->a & 7)));
	}
	if (r->size == 1) {
		e1(e, (unsigned)r->imm & 0xff);
	} else if (r->size == 2) {
		e1(e, (unsigned)r->imm & 0xff);
		e1(e, ((unsigned)r->imm >> 8) & 0xff);
	} else {
		e4(e, (uint32_t)r->imm);
	}
}

static void inc_dec(struct xlat *x, const struct recipe *r, int op)
{
	struct emit *e = &x->e;
	unsigned rex = (unsigned)((r->size == 8) << 3 | (r->a >= 8));

	if (r->size == 2)
		e1(e, 0x66);
	if (r->size == 1 && r->a >= 4)
		rex |= 0x40;
	if (rex)
		e1(e, 0x40 | rex);
	e1(e, 0xfe + (r->size > 1));
	e1(e, (unsigned)(0xc0 | op << 3 | (r->a & 7)));
}

static void recipe_emit(struct xlat *x, const struct recipe *r)
{
	switch (r->kind) {
	case RECIPE_CMP: op_sized(x, r, 0x38, 7); break;
	case RECIPE_TEST: op_sized(x, r, 0x84, 8); break;
	case RECIPE_ADD:
		op_sized(x, r, 0x28, 5);
		op_sized(x, r, 0x00, 0);
		break;
	case RECIPE_SUB:
		op_sized(x, r, 0x00, 0);
		op_sized(x, r, 0x28, 5);
		break;
	case RECIPE_INC:
		inc_dec(x, r, 1);
		inc_dec(x, r, 0);
		break;
	default:
		inc_dec(x, r, 0);
		inc_dec(x, r, 1);
		break;
	}
}

static unsigned recipe_mask(const struct xlat *x)
{
	return x->recipe.kind ? x->recipe.mask : 0;
}

/* Will the recipe survive until the flags in `live` are needed no more? */
static bool recipe_lasts(const struct xlat *x, unsigned live)
{
	for (unsigned i = x->i; i < x->n && live; i++) {
		const struct xinsn *in = &x->insn[i];

		if (in->gpr_written & x->recipe.regs)
			return !(in->live_out & live & ~in->f_touched);
		live &= ~in->f_written & in->live_out;
	}
	/* Needed by an exit that wants the flags in the slot: then better there now, once. */
	return !live;
}

void x_flags_clobber(struct xlat *x, unsigned live)
{
	if (live & ~x->slot && !(!(live & ~recipe_mask(x)) && recipe_lasts(x, live))) {
		if (live & ~x->host)
			x_flags_to_host(x, live);
		x_flags_save(x);
		x->slot = x->host;
	}
	x->host = 0;
}

bool x_flags_need_rax(const struct xlat *x, unsigned need)
{
	return (need & ~x->host) && (need & ~recipe_mask(x));
}

void x_flags_to_host(struct xlat *x, unsigned need)
{
	if (!(need & ~x->host))
		return;
	if (!(need & ~recipe_mask(x))) {
		recipe_emit(x, &x->recipe);
		x->host = x->recipe.mask;
	} else if ((x->recipe.kind == RECIPE_INC || x->recipe.kind == RECIPE_DEC) &&
		   !(need & ~(recipe_mask(x) | (x->host & F_CF)))) {
		recipe_emit(x, &x->recipe); /* leaves CF alone */
		x->host = x->recipe.mask | F_CF;
	} else if (!(need & ~x->slot)) {
		flags_load(x);
		x->host = x->slot;
	} else {
		x->failed = true;
	}
}

void x_flags_to_slot(struct xlat *x, unsigned need)
{
	if (!(need & ~x->slot))
		return;
	x_flags_to_host(x, need);
	x_flags_save(x);
	x->slot = x->host;
}

unsigned x_flags_breaking(const struct xlat *x, const struct xinsn *in)
{
	unsigned later = in->live_out & ~in->f_written;

	if (!x->recipe.kind || !(x->recipe.regs & in->gpr_written))
		return 0;
	return (later & ~x->host) && (later & ~x->slot) ? later : 0;
}

/* Register operand n of an ALU instruction as a host register with a home, else H_NONE. */
static int operand_home(const struct xinsn *in, unsigned n, unsigned *guest)
{
	unsigned size;
	bool high;
	int g;

	if (in->op[n].type != ZYDIS_OPERAND_TYPE_REGISTER)
		return H_NONE;
	g = x_gpr(in->op[n].reg.value, &size, &high);
	if (g < 0 || high)
		return H_NONE;
	*guest = (unsigned)g;
	return home_of((unsigned)g);
}

static struct recipe recipe_for(const struct xinsn *in)
{
	struct recipe r = {.kind = RECIPE_NONE, .b = H_NONE, .mask = F_ALL};
	unsigned ga = 0, gb = 0;
	bool two = false;

	if (in->mem >= 0 || (in->kind != K_GENERIC && in->kind != K_ACC_IMM))
		return r;
	switch (in->zi.mnemonic) {
	case ZYDIS_MNEMONIC_CMP:
		r.kind = RECIPE_CMP;
		two = true;
		break;
	case ZYDIS_MNEMONIC_TEST:
		r.kind = RECIPE_TEST;
		two = true;
		break;
	case ZYDIS_MNEMONIC_ADD:
		r.kind = RECIPE_ADD;
		two = true;
		break;
	case ZYDIS_MNEMONIC_SUB:
		r.kind = RECIPE_SUB;
		two = true;
		break;
	case ZYDIS_MNEMONIC_AND:
	case ZYDIS_MNEMONIC_OR:
	case ZYDIS_MNEMONIC_XOR: r.kind = RECIPE_TEST; break;
	case ZYDIS_MNEMONIC_INC: r.kind = RECIPE_INC; break;
	case ZYDIS_MNEMONIC_DEC: r.kind = RECIPE_DEC; break;
	default: return r;
	}
	r.a = (int8_t)operand_home(in, 0, &ga);
	r.size = (uint8_t)(in->op[0].size / 8);
	if (r.a == H_NONE)
		goto none;
	r.regs = 1u << ga;
	if (in->zi.mnemonic == ZYDIS_MNEMONIC_INC || in->zi.mnemonic == ZYDIS_MNEMONIC_DEC) {
		r.mask = F_ALL & ~F_CF;
		return r;
	}
	if (!two) {
		r.b = r.a;
		return r;
	}
	if (in->op[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
		r.imm = (int32_t)in->op[1].imm.value.s;
		return r;
	}
	r.b = (int8_t)operand_home(in, 1, &gb);
	if (r.b == H_NONE)
		goto none;
	r.regs |= 1u << gb;
	if (ga == gb && (r.kind == RECIPE_ADD || r.kind == RECIPE_SUB)) {
		if (r.kind == RECIPE_ADD)
			goto none;
		r.kind = RECIPE_CMP; /* sub r,r: compare equal again */
	}
	return r;
none:
	r.kind = RECIPE_NONE;
	return r;
}

void x_flags_after(struct xlat *x, const struct xinsn *in)
{
	if (x->recipe.kind && (x->recipe.regs & in->gpr_written))
		x->recipe.kind = RECIPE_NONE;
	if (!in->f_touched)
		return;
	x->recipe.mask &= ~in->f_touched;
	x->slot &= ~in->f_touched;
	x->host |= in->f_written;
	if (in->f_written) {
		struct recipe r = recipe_for(in);

		if (r.kind)
			x->recipe = r;
	}
}

void x_flags_cold(struct xlat *x, unsigned live, unsigned slot, const struct recipe *r)
{
	if (!(live & ~slot) && (live || slot || !r->kind))
		return;
	if (r->kind) {
		recipe_emit(x, r);
		x_flags_save(x);
	}
}
