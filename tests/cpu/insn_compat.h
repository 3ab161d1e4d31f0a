/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What insn_gen.c lends to insn_compat.c. */
#ifndef KELVIN_TESTS_INSN_COMPAT_H
#define KELVIN_TESTS_INSN_COMPAT_H

#include <Zydis/Zydis.h>
#include "insn_case.h"

/* May run in user mode, the host has it, and its outcome is determined. */
bool gen_allowed(const struct case_gen *g, const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops);
/* Random registers, flags and vector state; returns the generator's random numbers. */
struct rng *gen_state(struct case_gen *g, struct insn_case *ic);
uint64_t gen_address(struct rng *r, unsigned size);
/* Sets mnemonic and form. */
void gen_form_of(struct case_gen *g, const ZydisDecodedInstruction *zi, struct insn_case *ic);

#endif
