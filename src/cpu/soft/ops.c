/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Operands, memory and stack for the interpreter's handlers: the checked ways
 * behind the inline fast paths of ops.h. Runs in the vCPU's thread.
 */
#include "cpu/soft/ops.h"

uint64_t insn_mem_offset(const struct soft_cpu *c, const struct insn *i)
{
	return mem_offset(c, i);
}

int insn_mem_linear(struct soft_cpu *c, const struct insn *i, unsigned size, bool write, uint64_t *lin)
{
	return seg_linear(c, i->mem_seg, mem_offset(c, i), size, write, lin);
}

int ops_load_slow(struct soft_cpu *c, const struct insn *i, unsigned size, uint64_t *val)
{
	uint64_t lin;

	if (insn_mem_linear(c, i, size, false, &lin))
		return EXC_RAISED;
	return mmu_load(c, lin, size, val);
}

int ops_store_slow(struct soft_cpu *c, const struct insn *i, unsigned size, uint64_t val)
{
	uint64_t lin;

	if (insn_mem_linear(c, i, size, true, &lin))
		return EXC_RAISED;
	return mmu_store(c, lin, size, val);
}

int insn_read(struct soft_cpu *c, const struct insn *i, unsigned n, uint64_t *val)
{
	const struct operand *o = &i->op[n];

	switch (o->kind) {
	case OPD_REG: *val = gpr_read(c, o->reg, o->size); return 0;
	case OPD_REG_HIGH: *val = c->s.gpr[o->reg] >> 8 & 0xff; return 0;
	case OPD_MEM: return mem_load(c, i, o->size, val);
	case OPD_IMM: *val = i->imm; return 0;
	case OPD_SREG: *val = c->s.seg[o->reg].sel; return 0;
	default: BUG("operand kind %u has no value", o->kind);
	}
}

int insn_write(struct soft_cpu *c, const struct insn *i, unsigned n, uint64_t val)
{
	const struct operand *o = &i->op[n];

	switch (o->kind) {
	case OPD_REG: gpr_write(c, o->reg, o->size, val); return 0;
	case OPD_REG_HIGH: c->s.gpr[o->reg] = (c->s.gpr[o->reg] & ~0xff00ull) | (val & 0xff) << 8; return 0;
	case OPD_MEM: return mem_store(c, i, o->size, val);
	default: BUG("operand kind %u cannot be written", o->kind);
	}
}

/* ---- stack -------------------------------------------------------------------- */

static int stack_linear(struct soft_cpu *c, uint64_t off, unsigned size, bool write, uint64_t *lin)
{
	if (!c->long64)
		off = c->stack32 ? (uint32_t)off : off & 0xffff;
	return seg_linear(c, S_SS, off, size, write, lin);
}

int stack_load(struct soft_cpu *c, uint64_t off, unsigned size, uint64_t *val)
{
	uint64_t lin;

	if (likely(c->long64)) {
		const uint8_t *p = mmu_hit(c, c->mmu_index, MMU_READ, off, size);

		if (likely(p)) {
			*val = size == 8 ? ld64le(p) : size == 4 ? ld32le(p) : ld16le(p);
			return 0;
		}
	}
	if (stack_linear(c, off, size, false, &lin))
		return EXC_RAISED;
	return mmu_load(c, lin, size, val);
}

int stack_store(struct soft_cpu *c, uint64_t off, unsigned size, uint64_t val)
{
	uint64_t lin;

	if (likely(c->long64)) {
		uint8_t *p = mmu_hit(c, c->mmu_index, MMU_WRITE, off, size);

		if (likely(p)) {
			if (likely(size == 8))
				*(volatile guest_u64 *)p = val;
			else
				*(volatile guest_u16 *)p = (uint16_t)val;
			return 0;
		}
	}
	if (stack_linear(c, off, size, true, &lin))
		return EXC_RAISED;
	return mmu_store(c, lin, size, val);
}

int stack_push(struct soft_cpu *c, unsigned size, uint64_t val)
{
	uint64_t sp = stack_add(c, -(int64_t)size);

	if (stack_store(c, sp, size, val))
		return EXC_RAISED;
	c->s.gpr[R_RSP] = sp;
	return 0;
}
