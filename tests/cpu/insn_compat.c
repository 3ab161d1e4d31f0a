/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * 32-bit code for both sides: the host runs it in compatibility mode (a far jump
 * to its 32-bit user code segment), the software CPU in its own. Random prefixes
 * and opcodes of the one- and two-byte maps, with everything 64-bit mode has no
 * longer: one-byte INC and DEC, BCD, BOUND, PUSHA, ENTER and POPA with 32-bit
 * stacks, absolute and 16-bit addresses, 16-bit branches.
 */
#include "insn_compat.h"

static const uint8_t only_here[] = {0x27, 0x2f, 0x37, 0x3f, 0x40, 0x48, 0x60, 0x61, 0x62,
				    0x82, 0xa0, 0xa1, 0xa2, 0xa3, 0xd4, 0xd5, 0xd6, 0xc8};

static unsigned put_prefixes(struct rng *r, uint8_t *b)
{
	static const uint8_t seg[] = {0x2e, 0x36, 0x3e, 0x26};
	unsigned n = 0;

	if (rng_below(r, 4) == 0)
		b[n++] = 0x66;
	if (rng_below(r, 8) == 0)
		b[n++] = 0x67;
	if (rng_below(r, 12) == 0)
		b[n++] = seg[rng_below(r, ARRAY_SIZE(seg))];
	if (rng_below(r, 10) == 0)
		b[n++] = (uint8_t)(0xf2 + rng_below(r, 2));
	if (rng_below(r, 24) == 0)
		b[n++] = 0xf0;
	return n;
}

/* Not comparable: what shows or loads selectors, INTO (needs the guest's IDT), and the FLAGS register as a whole. */
static bool left_out(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops)
{
	switch (zi->mnemonic) {
	case ZYDIS_MNEMONIC_INTO:
	case ZYDIS_MNEMONIC_LES:
	case ZYDIS_MNEMONIC_LDS:
	case ZYDIS_MNEMONIC_ARPL:
	case ZYDIS_MNEMONIC_FNSAVE: /* AMD CPUs keep the pointers only with an exception pending */
	case ZYDIS_MNEMONIC_FNSTENV: return true;
	default: break;
	}
	if (zi->attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS) /* null here: a base, but no segment */
		return true;
	for (unsigned k = 0; k < zi->operand_count_visible; k++)
		if (ops[k].type == ZYDIS_OPERAND_TYPE_REGISTER && ops[k].reg.value >= ZYDIS_REGISTER_ES &&
		    ops[k].reg.value <= ZYDIS_REGISTER_GS)
			return true;
	return false;
}

static uint64_t *address_register(struct insn_case *ic, ZydisRegister reg)
{
	if (reg >= ZYDIS_REGISTER_EAX && reg <= ZYDIS_REGISTER_EDI)
		return &ic->in.gpr[reg - ZYDIS_REGISTER_EAX];
	return NULL;
}

static void point_memory(struct rng *r, struct insn_case *ic, const ZydisDecodedInstruction *zi,
			 const ZydisDecodedOperand *o)
{
	uint64_t *base = address_register(ic, o->mem.base), *index = address_register(ic, o->mem.index);
	uint32_t disp = o->mem.disp.has_displacement ? (uint32_t)o->mem.disp.value : 0;
	uint32_t ea = (uint32_t)gen_address(r, MIN(o->size / 8u, 512u));

	if (zi->address_width == 16)
		return; /* below 64 KiB: a page fault, which is compared too */
	if (!base && !index) {
		if (zi->raw.disp.size == 32)
			memcpy(ic->bytes + zi->raw.disp.offset, &ea, 4);
		return;
	}
	if (index)
		*index &= 0xfff;
	if (base && base != index)
		*base = ea - disp - (index ? (uint32_t)*index * o->mem.scale : 0);
	else if (index)
		*index = (ea - disp) / (o->mem.scale + (base ? 1u : 0u));
}

static void point_implied(struct rng *r, struct insn_case *ic, const ZydisDecodedInstruction *zi)
{
	if (zi->meta.category == ZYDIS_CATEGORY_STRINGOP) {
		ic->in.gpr[R_RSI] = gen_address(r, 8);
		ic->in.gpr[R_RDI] = gen_address(r, 8);
		ic->in.gpr[R_RCX] = rng_next(r) & 0x3f;
	}
	if (zi->mnemonic == ZYDIS_MNEMONIC_LOOP || zi->mnemonic == ZYDIS_MNEMONIC_LOOPE ||
	    zi->mnemonic == ZYDIS_MNEMONIC_LOOPNE)
		ic->in.gpr[R_RCX] &= 0xff;
	if (zi->mnemonic == ZYDIS_MNEMONIC_XLAT)
		ic->in.gpr[R_RBX] = gen_address(r, 256);
	if (zi->mnemonic == ZYDIS_MNEMONIC_LEAVE || zi->mnemonic == ZYDIS_MNEMONIC_ENTER)
		ic->in.gpr[R_RBP] = gen_address(r, 8);
	/* A branch into its own bytes would loop for ever. */
	if (zi->raw.imm[0].is_relative && zi->raw.imm[0].size == 8 && (int8_t)ic->bytes[zi->raw.imm[0].offset] < 0 &&
	    (int8_t)ic->bytes[zi->raw.imm[0].offset] >= -15)
		ic->bytes[zi->raw.imm[0].offset] ^= 0x40;
}

static bool attempt(struct case_gen *g, const ZydisDecoder *d, struct insn_case *ic)
{
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	struct rng *r = gen_state(g, ic);
	unsigned n = put_prefixes(r, ic->bytes);

	if (rng_below(r, 3) == 0) {
		ic->bytes[n] = only_here[rng_below(r, ARRAY_SIZE(only_here))];
		if ((ic->bytes[n] & 0xf0) == 0x40)
			ic->bytes[n] |= (uint8_t)rng_below(r, 8);
		n++;
	} else if (rng_below(r, 4) == 0) {
		ic->bytes[n++] = 0x0f;
	}
	for (; n < 15; n++)
		ic->bytes[n] = (uint8_t)rng_next(r);
	if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(d, ic->bytes, 15, &zi, ops)) || !gen_allowed(g, &zi, ops) ||
	    left_out(&zi, ops) || zi.encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY)
		return false;
	for (unsigned k = 0; k < 16; k++)
		ic->in.gpr[k] = k < 8 ? (uint32_t)ic->in.gpr[k] : 0;
	ic->len = zi.length;
	ic->in.rip = CASE_CODE + 0x100 + (rng_next(r) & 0x3f);
	if (rng_below(r, 16) == 0) /* across two pages */
		ic->in.rip = CASE_CODE + 0x1000 - rng_below(r, zi.length + 1u);
	ic->undefined = zi.cpu_flags ? zi.cpu_flags->undefined : 0;
	/* As insn_gen.c: of misaligned operands of these the host reads half. */
	if (strncmp(ZydisMnemonicGetString(zi.mnemonic), "ps", 2) == 0 ||
	    strstr(ZydisMnemonicGetString(zi.mnemonic), "unpckl"))
		st32le(ic->in.xsave + 24, ld32le(ic->in.xsave + 24) & ~0x20000u);
	gen_form_of(g, &zi, ic);
	point_implied(r, ic, &zi);
	for (unsigned k = 0; k < zi.operand_count_visible; k++)
		if (ops[k].type == ZYDIS_OPERAND_TYPE_MEMORY && zi.meta.category != ZYDIS_CATEGORY_STRINGOP)
			point_memory(r, ic, &zi, &ops[k]);
	for (unsigned k = 0; k < 8; k++)
		ic->in.gpr[k] = (uint32_t)ic->in.gpr[k];
	ic->mode = 32;
	ic->compat = true;
	ic->soft_len = ic->len;
	memcpy(ic->soft_bytes, ic->bytes, sizeof(ic->soft_bytes));
	return true;
}

void gen_compat(struct case_gen *g, struct insn_case *out)
{
	ZydisDecoder d;

	ZydisDecoderInit(&d, ZYDIS_MACHINE_MODE_LONG_COMPAT_32, ZYDIS_STACK_WIDTH_32);
	ZydisDecoderEnableMode(&d, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
	ZydisDecoderEnableMode(&d, ZYDIS_DECODER_MODE_CET, ZYAN_FALSE);
	do {
		memset(out, 0, sizeof(*out));
	} while (!attempt(g, &d, out));
}
