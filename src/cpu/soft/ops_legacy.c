/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Instructions that 64-bit mode does not have, so the host cannot run them for
 * us: the decimal adjustments, BOUND, SALC. AMD64 APM volume 3, Intel SDM volume
 * 2. Flags the manuals leave undefined come out as the host-independent choice
 * written at each function.
 */
#include "cpu/soft/ops.h"

/* SF, ZF and PF of a byte. */
static uint64_t byte_flags(uint8_t v)
{
	return (v ? 0 : FLAG_ZF) | (v & 0x80) | (__builtin_parity(v) ? 0 : FLAG_PF);
}

static bool low_digit_over(const struct soft_cpu *c, uint8_t al)
{
	return (al & 15) > 9 || (c->s.rflags & FLAG_AF);
}

/* AAA and AAS: OF clear, the others from the byte before the digit is cut out. */
static int ascii_adjust(struct soft_cpu *c, const struct insn *i)
{
	uint16_t ax = (uint16_t)c->s.gpr[R_RAX];
	bool over = low_digit_over(c, (uint8_t)ax);

	if (over)
		ax = (uint16_t)(i->mnemonic == ZYDIS_MNEMONIC_AAA ? ax + 0x106 : ax - 6 - 0x100);
	flags_set(c, FLAG_ARITH, byte_flags((uint8_t)ax) | (over ? FLAG_AF | FLAG_CF : 0));
	gpr_write(c, R_RAX, 2, ax & 0xff0f);
	return INSN_NEXT;
}

/* DAA and DAS: OF undefined, clear here. */
static int decimal_adjust(struct soft_cpu *c, const struct insn *i)
{
	uint8_t old = (uint8_t)c->s.gpr[R_RAX], al = old;
	bool add = i->mnemonic == ZYDIS_MNEMONIC_DAA, carry = c->s.rflags & FLAG_CF;
	bool low = low_digit_over(c, old), high = old > 0x99 || carry;
	bool out = high;

	if (low) {
		al = (uint8_t)(add ? al + 6 : al - 6);
		/* DAS also carries when the low digit's step borrows out of the byte. */
		if (!add && old < 6)
			out = true;
	}
	if (high)
		al = (uint8_t)(add ? al + 0x60 : al - 0x60);
	flags_set(c, FLAG_ARITH, byte_flags(al) | (low ? FLAG_AF : 0) | (out ? FLAG_CF : 0));
	gpr_write(c, R_RAX, 1, al);
	return INSN_NEXT;
}

/* CF, AF and OF undefined, clear here. */
static int aam(struct soft_cpu *c, const struct insn *i)
{
	uint8_t al = (uint8_t)c->s.gpr[R_RAX], base = (uint8_t)i->imm;

	if (!base)
		return soft_raise(c, EXC_DE);
	gpr_write(c, R_RAX, 2, (uint64_t)(al / base) << 8 | al % base);
	flags_set(c, FLAG_ARITH, byte_flags(al % base));
	return INSN_NEXT;
}

static int aad(struct soft_cpu *c, const struct insn *i)
{
	uint64_t ax = c->s.gpr[R_RAX];
	uint8_t v = (uint8_t)(ax + (ax >> 8 & 0xff) * (uint8_t)i->imm);

	gpr_write(c, R_RAX, 2, v);
	flags_set(c, FLAG_ARITH, byte_flags(v));
	return INSN_NEXT;
}

static int salc(struct soft_cpu *c, const struct insn *i)
{
	gpr_write(c, R_RAX, 1, c->s.rflags & FLAG_CF ? 0xff : 0);
	return INSN_NEXT;
}

static int bound(struct soft_cpu *c, const struct insn *i)
{
	unsigned size = i->op[0].size;
	int64_t index = sign_extend(c->s.gpr[i->op[0].reg], size);
	uint64_t lin, low, high;

	if (insn_mem_linear(c, i, 2 * size, false, &lin) || mmu_load(c, lin, size, &low) ||
	    mmu_load(c, lin + size, size, &high))
		return EXC_RAISED;
	if (index < sign_extend(low, size) || index > sign_extend(high, size))
		return soft_raise(c, EXC_BR);
	return INSN_NEXT;
}

const struct ops_entry ops_legacy_table[] = {
    {ZYDIS_MNEMONIC_AAA, ascii_adjust, NULL},
    {ZYDIS_MNEMONIC_AAS, ascii_adjust, NULL},
    {ZYDIS_MNEMONIC_DAA, decimal_adjust, NULL},
    {ZYDIS_MNEMONIC_DAS, decimal_adjust, NULL},
    {ZYDIS_MNEMONIC_AAM, aam, NULL},
    {ZYDIS_MNEMONIC_AAD, aad, NULL},
    {ZYDIS_MNEMONIC_SALC, salc, NULL},
    {ZYDIS_MNEMONIC_BOUND, bound, NULL},
    {ZYDIS_MNEMONIC_INVALID, NULL, NULL},
};
