/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Vector instructions whose state or addressing a host stub cannot carry:
 * LDMXCSR STMXCSR, VZEROUPPER VZEROALL. (Gathers, scatters and MASKMOV follow.)
 */
#include "cpu/soft/stub.h"

static int ldmxcsr(struct soft_cpu *c, const struct insn *i)
{
	uint64_t v;

	if (insn_gate_check(c, (enum insn_gate)i->gate) || mem_load(c, i, 4, &v))
		return EXC_RAISED;
	if (v & ~(uint64_t)xsave_layout.mxcsr_mask)
		return soft_raise_code(c, EXC_GP, 0);
	st32le(c->s.xsave + XSAVE_MXCSR, (uint32_t)v);
	return INSN_NEXT;
}

static int stmxcsr(struct soft_cpu *c, const struct insn *i)
{
	if (insn_gate_check(c, (enum insn_gate)i->gate))
		return EXC_RAISED;
	return mem_store(c, i, 4, ld32le(c->s.xsave + XSAVE_MXCSR));
}

static int vzero(struct soft_cpu *c, const struct insn *i)
{
	unsigned n = c->long64 ? 16 : 8;
	uint8_t *x = c->s.xsave;

	if (insn_gate_check(c, GATE_AVX))
		return EXC_RAISED;
	memset(x + xsave_layout.ymm_high, 0, 16 * n);
	if (xsave_layout.zmm_high)
		memset(x + xsave_layout.zmm_high, 0, 32 * n);
	if (i->mnemonic == ZYDIS_MNEMONIC_VZEROALL)
		memset(x + XSAVE_XMM, 0, 16 * n);
	return INSN_NEXT;
}

const struct ops_entry ops_vec_table[] = {
    {ZYDIS_MNEMONIC_LDMXCSR, ldmxcsr, NULL},  {ZYDIS_MNEMONIC_STMXCSR, stmxcsr, NULL},
    {ZYDIS_MNEMONIC_VLDMXCSR, ldmxcsr, NULL}, {ZYDIS_MNEMONIC_VSTMXCSR, stmxcsr, NULL},
    {ZYDIS_MNEMONIC_VZEROUPPER, vzero, NULL}, {ZYDIS_MNEMONIC_VZEROALL, vzero, NULL},
    {ZYDIS_MNEMONIC_INVALID, NULL, NULL},
};
