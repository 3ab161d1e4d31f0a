/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Instructions with little or no data: NOP and hints, fences, cache control,
 * flag bits, UD.
 */
#include "cpu/soft/ops.h"

static int nop(struct soft_cpu *c, const struct insn *i)
{
	return INSN_NEXT;
}

/* LFENCE and SFENCE order nothing that host threads do not order already; MFENCE is a full barrier. */
static int mfence(struct soft_cpu *c, const struct insn *i)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return INSN_NEXT;
}

/* Cache line instructions check their operand like a load of one byte and have no other effect here. */
static int cache_line(struct soft_cpu *c, const struct insn *i)
{
	uint64_t lin;

	if (insn_mem_linear(c, i, 1, false, &lin))
		return EXC_RAISED;
	return mmu_probe(c, lin, 1, MMU_READ, c->mmu_index);
}

static int carry_op(struct soft_cpu *c, const struct insn *i)
{
	if (i->mnemonic == ZYDIS_MNEMONIC_CMC)
		c->s.rflags ^= FLAG_CF;
	else
		flags_set(c, FLAG_CF, i->mnemonic == ZYDIS_MNEMONIC_STC ? FLAG_CF : 0);
	return INSN_NEXT;
}

static int direction_op(struct soft_cpu *c, const struct insn *i)
{
	flags_set(c, FLAG_DF, i->mnemonic == ZYDIS_MNEMONIC_STD ? FLAG_DF : 0);
	return INSN_NEXT;
}

/* CLZERO clears the cache line that RAX points into. */
static int clzero(struct soft_cpu *c, const struct insn *i)
{
	static const uint8_t zero[64];
	const bool long64 = c->mode_key & SOFT_KEY_LONG64;
	unsigned seg = i->mem_seg;
	uint64_t lin;

	/* With F2 or F3 the opcode is another one, which is not defined. Zydis does not see the segment here. */
	for (unsigned k = 0; k + 3 < i->length; k++)
		switch (i->bytes[k]) {
		case 0xf2:
		case 0xf3: return insn_undefined(c, i);
		case 0x64: seg = S_FS; break;
		case 0x65: seg = S_GS; break;
		case 0x26:
		case 0x2e:
		case 0x36:
		case 0x3e:
			if (!long64)
				seg = i->bytes[k] >> 3 & 3; /* ES, CS, SS, DS */
			break;
		default: break;
		}
	if (seg_linear(c, seg, c->s.gpr[R_RAX] & size_mask(i->addrsize), 1, true, &lin))
		return EXC_RAISED;
	lin &= ~63ull; /* the line of the linear address */
	return mmu_write_buf(c, lin, zero, 64, c->mmu_index);
}

/* 64 bytes from memory to the aligned address in a register, as one store. */
static int movdir64b(struct soft_cpu *c, const struct insn *i)
{
	uint64_t from, to = c->s.gpr[i->op[0].reg] & size_mask(i->addrsize);
	uint8_t buf[64];

	if (insn_mem_linear(c, i, 64, false, &from) || seg_linear(c, S_ES, to, 64, true, &to))
		return EXC_RAISED;
	if (to & 63)
		return soft_raise_code(c, EXC_GP, 0);
	if (mmu_read_buf(c, from, buf, 64, c->mmu_index))
		return EXC_RAISED;
	return mmu_write_buf(c, to, buf, 64, c->mmu_index);
}

const struct ops_entry ops_misc_table[] = {
    {ZYDIS_MNEMONIC_NOP, nop, NULL},
    {ZYDIS_MNEMONIC_ENDBR32, nop, NULL},
    {ZYDIS_MNEMONIC_ENDBR64, nop, NULL},
    {ZYDIS_MNEMONIC_PREFETCH, nop, NULL},
    {ZYDIS_MNEMONIC_PREFETCHNTA, nop, NULL},
    {ZYDIS_MNEMONIC_PREFETCHT0, nop, NULL},
    {ZYDIS_MNEMONIC_PREFETCHT1, nop, NULL},
    {ZYDIS_MNEMONIC_PREFETCHT2, nop, NULL},
    {ZYDIS_MNEMONIC_PREFETCHW, nop, NULL},
    {ZYDIS_MNEMONIC_PREFETCHWT1, nop, NULL},
    {ZYDIS_MNEMONIC_CLDEMOTE, nop, NULL},
    {ZYDIS_MNEMONIC_LFENCE, nop, NULL},
    {ZYDIS_MNEMONIC_SFENCE, nop, NULL},
    {ZYDIS_MNEMONIC_MFENCE, mfence, NULL},
    {ZYDIS_MNEMONIC_SERIALIZE, mfence, NULL},
    {ZYDIS_MNEMONIC_CLFLUSH, cache_line, NULL},
    {ZYDIS_MNEMONIC_CLFLUSHOPT, cache_line, NULL},
    {ZYDIS_MNEMONIC_CLWB, cache_line, NULL},
    {ZYDIS_MNEMONIC_CLZERO, clzero, NULL},
    {ZYDIS_MNEMONIC_CMC, carry_op, NULL},
    {ZYDIS_MNEMONIC_CLC, carry_op, NULL},
    {ZYDIS_MNEMONIC_STC, carry_op, NULL},
    {ZYDIS_MNEMONIC_CLD, direction_op, NULL},
    {ZYDIS_MNEMONIC_STD, direction_op, NULL},
    {ZYDIS_MNEMONIC_MOVDIR64B, movdir64b, NULL},
    {ZYDIS_MNEMONIC_UD0, insn_undefined, NULL},
    {ZYDIS_MNEMONIC_UD1, insn_undefined, NULL},
    {ZYDIS_MNEMONIC_UD2, insn_undefined, NULL},
    {ZYDIS_MNEMONIC_INVALID, NULL, NULL},
};
