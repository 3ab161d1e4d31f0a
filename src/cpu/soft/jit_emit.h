/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Host code emission: bytes into the writable view of the code cache. `struct
 * emit` has one position; the translator switches it between hot and cold code.
 */
#ifndef KELVIN_CPU_SOFT_JIT_EMIT_H
#define KELVIN_CPU_SOFT_JIT_EMIT_H

#include "cpu/soft/jit.h"

/* A host memory operand. base and index are host registers or H_NONE. */
struct hmem {
	int8_t base, index;
	uint8_t scale; /* shift */
	bool gs;
	int32_t disp;
};

struct emit {
	uint8_t *p;
};

static inline void e1(struct emit *e, unsigned b)
{
	*e->p++ = (uint8_t)b;
}
static inline void e4(struct emit *e, uint32_t v)
{
	memcpy(e->p, &v, 4);
	e->p += 4;
}
static inline void e8(struct emit *e, uint64_t v)
{
	memcpy(e->p, &v, 8);
	e->p += 8;
}

/* ModRM, SIB and displacement of a memory operand. `wide`: no 8-bit displacement (EVEX scales those). */
static inline void e_modrm_mem(struct emit *e, int reg, const struct hmem *m, bool wide)
{
	int mod, r = (reg & 7) << 3;

	if (m->base == H_NONE) {
		/* [index*s + disp32] or [disp32] */
		e1(e, (unsigned)(r | 4));
		e1(e, (unsigned)(m->scale << 6 | (m->index == H_NONE ? 4 : m->index & 7) << 3 | 5));
		e4(e, (uint32_t)m->disp);
		return;
	}
	if (m->disp == 0 && (m->base & 7) != H_RBP)
		mod = 0;
	else if (!wide && m->disp >= -128 && m->disp <= 127)
		mod = 1;
	else
		mod = 2;
	if (m->index == H_NONE && (m->base & 7) != H_RSP) {
		e1(e, (unsigned)(mod << 6 | r | (m->base & 7)));
	} else {
		e1(e, (unsigned)(mod << 6 | r | 4));
		e1(e, (unsigned)(m->scale << 6 | (m->index == H_NONE ? 4 : m->index & 7) << 3 | (m->base & 7)));
	}
	if (mod == 1)
		e1(e, (unsigned)m->disp & 0xff);
	else if (mod == 2)
		e4(e, (uint32_t)m->disp);
}

/* opc: one byte, or 0x0fXX, 0x0f38XX, 0x0f3aXX. */
static inline void e_opcode(struct emit *e, unsigned opc)
{
	if (opc > 0xffff)
		e1(e, opc >> 16);
	if (opc > 0xff)
		e1(e, (opc >> 8) & 0xff);
	e1(e, opc & 0xff);
}

static inline void e_op_mem(struct emit *e, int w, unsigned opc, int reg, const struct hmem *m)
{
	unsigned rex = (unsigned)(w << 3 | (reg >= 8) << 2 | (m->index >= 8) << 1 | (m->base >= 8));

	if (m->gs)
		e1(e, 0x65);
	if (rex)
		e1(e, 0x40 | rex);
	e_opcode(e, opc);
	e_modrm_mem(e, reg, m, false);
}

static inline void e_op_reg(struct emit *e, int w, unsigned opc, int reg, int rm)
{
	unsigned rex = (unsigned)(w << 3 | (reg >= 8) << 2 | (rm >= 8));

	if (rex)
		e1(e, 0x40 | rex);
	e_opcode(e, opc);
	e1(e, (unsigned)(0xc0 | (reg & 7) << 3 | (rm & 7)));
}

static inline struct hmem h_slot(int slot)
{
	return (struct hmem){.base = H_RSP, .index = H_NONE, .disp = slot};
}
static inline struct hmem h_gs(size_t off)
{
	return (struct hmem){.base = H_NONE, .index = H_NONE, .gs = true, .disp = (int32_t)off};
}
static inline struct hmem h_base(int base, int32_t disp)
{
	return (struct hmem){.base = (int8_t)base, .index = H_NONE, .disp = disp};
}

static inline void e_mov(struct emit *e, int dst, int src)
{
	if (dst != src)
		e_op_reg(e, 1, 0x8b, dst, src);
}
static inline void e_load(struct emit *e, int dst, struct hmem m)
{
	e_op_mem(e, 1, 0x8b, dst, &m);
}
static inline void e_load32(struct emit *e, int dst, struct hmem m)
{
	e_op_mem(e, 0, 0x8b, dst, &m);
}
static inline void e_store(struct emit *e, struct hmem m, int src)
{
	e_op_mem(e, 1, 0x89, src, &m);
}
static inline void e_store32(struct emit *e, struct hmem m, int src)
{
	e_op_mem(e, 0, 0x89, src, &m);
}
static inline void e_lea(struct emit *e, int dst, struct hmem m)
{
	if (m.index == H_NONE && m.disp == 0 && m.base != H_NONE && !m.gs)
		e_mov(e, dst, m.base);
	else
		e_op_mem(e, 1, 0x8d, dst, &m);
}
static inline void e_mov_imm32(struct emit *e, int dst, uint32_t v)
{
	if (dst >= 8)
		e1(e, 0x41);
	e1(e, 0xb8 | (unsigned)(dst & 7));
	e4(e, v);
}
static inline void e_mov_imm64(struct emit *e, int dst, uint64_t v)
{
	if (v <= UINT32_MAX) {
		e_mov_imm32(e, dst, (uint32_t)v);
		return;
	}
	e1(e, 0x48 | (dst >= 8));
	e1(e, 0xb8 | (unsigned)(dst & 7));
	e8(e, v);
}
/* Group 1 (/0 add, 4 and, 5 sub, 6 xor, 7 cmp) with a 32- or 8-bit immediate. */
static inline void e_alu_imm(struct emit *e, int w, int op, int rm, int32_t imm)
{
	bool small = imm >= -128 && imm <= 127;

	e_op_reg(e, w, small ? 0x83 : 0x81, op, rm);
	if (small)
		e1(e, (unsigned)imm & 0xff);
	else
		e4(e, (uint32_t)imm);
}
/* rorx dst, src, n: a shift that leaves the flags alone. */
static inline void e_rorx(struct emit *e, int w, int dst, int src, unsigned n)
{
	e1(e, 0xc4);
	e1(e, (unsigned)((dst < 8) << 7 | 1 << 6 | (src < 8) << 5 | 3));
	e1(e, (unsigned)(w << 7 | 0x7b));
	e1(e, 0xf0);
	e1(e, (unsigned)(0xc0 | (dst & 7) << 3 | (src & 7)));
	e1(e, n);
}
/* Jumps: the returned address is the rel32 to set by e_patch. */
static inline uint8_t *e_jmp(struct emit *e)
{
	e1(e, 0xe9);
	e4(e, 0);
	return e->p - 4;
}
static inline uint8_t *e_jcc(struct emit *e, unsigned cond)
{
	e1(e, 0x0f);
	e1(e, 0x80 | cond);
	e4(e, 0);
	return e->p - 4;
}
static inline void e_patch(uint8_t *rel, const uint8_t *target)
{
	int32_t d = (int32_t)(target - (rel + 4));

	memcpy(rel, &d, 4);
}
static inline void e_jmp_to(struct emit *e, const uint8_t *target)
{
	e_patch(e_jmp(e), target);
}
static inline void e_call_to(struct emit *e, const uint8_t *target)
{
	e1(e, 0xe8);
	e4(e, 0);
	e_patch(e->p - 4, target);
}

#define CC_O  0
#define CC_B  2
#define CC_AE 3
#define CC_E  4
#define CC_NE 5
#define CC_BE 6
#define CC_A  7

#endif
