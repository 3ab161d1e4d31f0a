/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * BT BTS BTR BTC of memory with a register index: the index reaches beyond the
 * operand, in units of the operand size. Other forms run on the host.
 */
#include "cpu/soft/ops.h"

/* Linear address of the word that holds the bit; *bit = its number there. */
static int bit_word(struct soft_cpu *c, const struct insn *i, bool write, uint64_t *lin, unsigned *bit)
{
	unsigned size = i->op[0].size, bits = size * 8;
	int64_t index = sign_extend(gpr_read(c, i->op[1].reg, size), size);
	uint64_t off = mem_offset(c, i) + (uint64_t)((index >> __builtin_ctz(bits)) * (int64_t)size);

	*bit = (unsigned)index & (bits - 1);
	return seg_linear(c, i->mem_seg, off & size_mask(i->addrsize), size, write, lin);
}

static void set_carry(struct soft_cpu *c, bool bit)
{
	flags_set(c, FLAG_CF, bit ? FLAG_CF : 0);
}

static uint64_t bit_apply(const struct insn *i, uint64_t v, unsigned bit)
{
	switch (i->mnemonic) {
	case ZYDIS_MNEMONIC_BTS: return v | 1ull << bit;
	case ZYDIS_MNEMONIC_BTR: return v & ~(1ull << bit);
	default: return v ^ 1ull << bit;
	}
}

/* Atomic change of the byte that holds the bit: the other bytes of the word do not change. */
static uint8_t byte_atomic(const struct insn *i, uint8_t *p, uint8_t mask)
{
	switch (i->mnemonic) {
	case ZYDIS_MNEMONIC_BTS: return __atomic_fetch_or(p, mask, __ATOMIC_SEQ_CST);
	case ZYDIS_MNEMONIC_BTR: return __atomic_fetch_and(p, (uint8_t)~mask, __ATOMIC_SEQ_CST);
	default: return __atomic_fetch_xor(p, mask, __ATOMIC_SEQ_CST);
	}
}

static int bit_test(struct soft_cpu *c, const struct insn *i)
{
	unsigned bit;
	uint64_t lin, v;

	if (bit_word(c, i, false, &lin, &bit) || mmu_load(c, lin, i->op[0].size, &v))
		return EXC_RAISED;
	set_carry(c, v >> bit & 1);
	return INSN_NEXT;
}

static int bit_change(struct soft_cpu *c, const struct insn *i)
{
	unsigned bit, flags = 0, size = i->op[0].size;
	uint64_t lin, v;
	uint8_t *host;

	if (bit_word(c, i, true, &lin, &bit) || mmu_probe(c, lin, size, MMU_WRITE, c->mmu_index))
		return EXC_RAISED;
	if (i->prefixes & INSN_LOCK) {
		uint64_t at = lin + bit / 8;

		if (mmu_host(c, at, 1, MMU_WRITE, c->mmu_index, &host, &flags))
			return EXC_RAISED;
		if (host) {
			uint8_t old = byte_atomic(i, host, (uint8_t)(1u << (bit & 7)));

			if (flags & MMU_HOST_CODE)
				mmu_written(c, host, 1);
			set_carry(c, old >> (bit & 7) & 1);
			return INSN_NEXT;
		}
	}
	if (mmu_load(c, lin, size, &v) || mmu_store(c, lin, size, bit_apply(i, v, bit)))
		return EXC_RAISED;
	set_carry(c, v >> bit & 1);
	return INSN_NEXT;
}

static insn_fn *bit_select(const struct insn *i)
{
	if (i->op[0].kind != OPD_MEM || i->op[1].kind != OPD_REG)
		return NULL;
	return i->mnemonic == ZYDIS_MNEMONIC_BT ? bit_test : bit_change;
}

const struct ops_entry ops_bit_table[] = {
    {ZYDIS_MNEMONIC_BT, NULL, bit_select},  {ZYDIS_MNEMONIC_BTS, NULL, bit_select},
    {ZYDIS_MNEMONIC_BTR, NULL, bit_select}, {ZYDIS_MNEMONIC_BTC, NULL, bit_select},
    {ZYDIS_MNEMONIC_INVALID, NULL, NULL},
};
