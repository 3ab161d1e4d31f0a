/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Vector instructions whose state or addressing a host stub cannot carry:
 * gathers and scatters (AVX2 and AVX-512), MASKMOVQ and MASKMOVDQU, LDMXCSR and
 * STMXCSR, VZEROUPPER and VZEROALL. Registers are the areas of s.xsave.
 */
#include "cpu/soft/stub.h"
#include "cpu/soft/sys.h"

/* ---- registers -------------------------------------------------------------------- */

#define VEC_MAX 64

/* Pieces of a vector register in the XSAVE image: 16, 16 and 32 bytes; one piece from 16 up. */
static void vec_read(const struct soft_cpu *c, unsigned v, uint8_t out[VEC_MAX])
{
	const uint8_t *x = c->s.xsave;

	memset(out, 0, VEC_MAX);
	if (v >= 16) {
		memcpy(out, x + xsave_layout.zmm_16_31 + 64u * (v - 16), 64);
		return;
	}
	memcpy(out, x + XSAVE_XMM + 16u * v, 16);
	if (xsave_layout.ymm_high)
		memcpy(out + 16, x + xsave_layout.ymm_high + 16u * v, 16);
	if (xsave_layout.zmm_high)
		memcpy(out + 32, x + xsave_layout.zmm_high + 32u * v, 32);
}

static void vec_write(struct soft_cpu *c, unsigned v, const uint8_t in[VEC_MAX])
{
	uint8_t *x = c->s.xsave;

	if (v >= 16) {
		memcpy(x + xsave_layout.zmm_16_31 + 64u * (v - 16), in, 64);
		return;
	}
	memcpy(x + XSAVE_XMM + 16u * v, in, 16);
	if (xsave_layout.ymm_high)
		memcpy(x + xsave_layout.ymm_high + 16u * v, in + 16, 16);
	if (xsave_layout.zmm_high)
		memcpy(x + xsave_layout.zmm_high + 32u * v, in + 32, 32);
}

static uint64_t lane_read(const uint8_t *vec, unsigned k, unsigned size)
{
	return size == 8 ? ld64le(vec + 8 * k) : ld32le(vec + 4 * k);
}
static void lane_write(uint8_t *vec, unsigned k, unsigned size, uint64_t val)
{
	if (size == 8)
		st64le(vec + 8 * k, val);
	else
		st32le(vec + 4 * k, (uint32_t)val);
}

/* ---- gather and scatter --------------------------------------------------------------- */

/* Element and index sizes are the two letters after "gather" or "scatter": DPS, QPD, DD, QQ ... */
struct vsib {
	unsigned n, elem, index; /* elements, bytes each */
	uint8_t indexes[VEC_MAX];
};

static void vsib_setup(const struct soft_cpu *c, const struct insn *i, struct vsib *v)
{
	const char *name = ZydisMnemonicGetString((ZydisMnemonic)i->mnemonic);
	const char *t = strstr(name, "ther"), *u = strstr(name, "tter");

	t = (t ? t : u) + 4;
	v->index = *t == 'q' ? 8 : 4;
	v->elem = t[strlen(t) - 1] == 's' || strcmp(t + 1, "d") == 0 ? 4 : 8;
	/* i->kind is the vector length in bytes (decode.c) */
	v->n = i->kind / MAX(v->index, v->elem);
	vec_read(c, i->mem_index, v->indexes);
}

static int vsib_linear(struct soft_cpu *c, const struct insn *i, const struct vsib *v, unsigned k, bool write,
		       uint64_t *lin)
{
	uint64_t index = (uint64_t)sign_extend(lane_read(v->indexes, k, v->index), v->index), off = (uint64_t)i->disp;

	if (i->mem_base < 16)
		off += c->s.gpr[i->mem_base];
	off += index << i->mem_scale;
	return seg_linear(c, i->mem_seg, off & size_mask(i->addrsize), v->elem, write, lin);
}

/* AVX2: the mask is the sign bits of a vector; each completed element clears its own, also when a later one faults. */
static int gather_vex(struct soft_cpu *c, const struct insn *i)
{
	uint8_t dst[VEC_MAX], mask[VEC_MAX];
	struct vsib v;
	uint64_t lin, val;

	if (insn_gate_check(c, (enum insn_gate)i->gate))
		return EXC_RAISED;
	vsib_setup(c, i, &v);
	vec_read(c, i->op[0].reg, dst);
	vec_read(c, i->op[2].reg, mask);
	for (unsigned k = 0; k < v.n; k++) {
		if (sign_extend(lane_read(mask, k, v.elem), v.elem) < 0) {
			if (vsib_linear(c, i, &v, k, false, &lin) || mmu_load(c, lin, v.elem, &val)) {
				vec_write(c, i->op[0].reg, dst);
				vec_write(c, i->op[2].reg, mask);
				return EXC_RAISED;
			}
			lane_write(dst, k, v.elem, val);
		}
		lane_write(mask, k, v.elem, 0);
	}
	memset(dst + v.n * v.elem, 0, VEC_MAX - v.n * v.elem);
	memset(mask, 0, sizeof(mask));
	vec_write(c, i->op[0].reg, dst);
	vec_write(c, i->op[2].reg, mask);
	return INSN_NEXT;
}

static uint64_t opmask_read(const struct soft_cpu *c, unsigned k)
{
	return ld64le(c->s.xsave + xsave_layout.opmask + 8 * k);
}
static void opmask_write(struct soft_cpu *c, unsigned k, uint64_t val)
{
	st64le(c->s.xsave + xsave_layout.opmask + 8 * k, val);
}

/* AVX-512: the mask is an opmask (number in imm2); completed elements clear their bits. */
static int gather_evex(struct soft_cpu *c, const struct insn *i)
{
	uint8_t dst[VEC_MAX];
	struct vsib v;
	uint64_t lin, val, mask = opmask_read(c, i->imm2);

	if (insn_gate_check(c, (enum insn_gate)i->gate))
		return EXC_RAISED;
	vsib_setup(c, i, &v);
	vec_read(c, i->op[0].reg, dst);
	for (unsigned k = 0; k < v.n; k++) {
		if (!(mask >> k & 1))
			continue;
		if (vsib_linear(c, i, &v, k, false, &lin) || mmu_load(c, lin, v.elem, &val)) {
			vec_write(c, i->op[0].reg, dst);
			opmask_write(c, i->imm2, mask);
			return EXC_RAISED;
		}
		lane_write(dst, k, v.elem, val);
		mask &= ~(1ull << k);
	}
	memset(dst + v.n * v.elem, 0, VEC_MAX - v.n * v.elem);
	vec_write(c, i->op[0].reg, dst);
	opmask_write(c, i->imm2, 0);
	return INSN_NEXT;
}

static insn_fn *gather_select(const struct insn *i)
{
	return i->gate == GATE_AVX512 ? gather_evex : gather_vex;
}

static int scatter(struct soft_cpu *c, const struct insn *i)
{
	uint8_t src[VEC_MAX];
	struct vsib v;
	uint64_t lin, mask = opmask_read(c, i->imm2);

	if (insn_gate_check(c, (enum insn_gate)i->gate))
		return EXC_RAISED;
	vsib_setup(c, i, &v);
	vec_read(c, i->op[2].reg, src);
	for (unsigned k = 0; k < v.n; k++) {
		if (!(mask >> k & 1))
			continue;
		if (vsib_linear(c, i, &v, k, true, &lin) || mmu_store(c, lin, v.elem, lane_read(src, k, v.elem))) {
			opmask_write(c, i->imm2, mask);
			return EXC_RAISED;
		}
		mask &= ~(1ull << k);
	}
	opmask_write(c, i->imm2, 0);
	return INSN_NEXT;
}

/* ---- MASKMOV ---------------------------------------------------------------------------- */

/*
 * Bytes of data whose mask byte has its sign set go to DS:rDI. The whole operand must be writable, whatever the
 * mask says: the manuals leave that open, AMD CPUs do it.
 */
static int mask_store(struct soft_cpu *c, const struct insn *i, const uint8_t *data, const uint8_t *mask, unsigned n)
{
	uint64_t off = c->s.gpr[R_RDI] & size_mask(i->addrsize), lin;

	if (seg_linear(c, i->mem_seg, off, n, true, &lin) || mmu_probe(c, lin, n, MMU_WRITE, c->mmu_index))
		return EXC_RAISED;
	for (unsigned k = 0; k < n; k++)
		if ((mask[k] & 0x80) && mmu_store(c, lin + k, 1, data[k]))
			return EXC_RAISED;
	return INSN_NEXT;
}

static int maskmovdqu(struct soft_cpu *c, const struct insn *i)
{
	uint8_t data[VEC_MAX], mask[VEC_MAX];

	if (insn_gate_check(c, (enum insn_gate)i->gate))
		return EXC_RAISED;
	vec_read(c, i->op[0].reg, data);
	vec_read(c, i->op[1].reg, mask);
	return mask_store(c, i, data, mask, 16);
}

/* The x87 registers as MMX sees them: MMn is physical register n. TOP becomes 0, all are valid. */
static void enter_mmx(struct soft_cpu *c)
{
	uint8_t *x = c->s.xsave, old[128];
	unsigned top = ld16le(x + 2) >> 11 & 7;

	memcpy(old, x + 32, 128);
	for (unsigned p = 0; p < 8; p++)
		memcpy(x + 32 + 16 * p, old + 16 * ((p - top) & 7), 16);
	st16le(x + 2, ld16le(x + 2) & (uint16_t)~0x3800);
	x[4] = 0xff;
}

static int maskmovq(struct soft_cpu *c, const struct insn *i)
{
	uint8_t *x = c->s.xsave, *st = x + 32;
	unsigned top = ld16le(x + 2) >> 11 & 7;
	int r;

	if (insn_gate_check(c, (enum insn_gate)i->gate))
		return EXC_RAISED;
	if (x87_wait(c))
		return EXC_RAISED;
	r = mask_store(c, i, st + 16 * ((i->op[0].reg - top) & 7), st + 16 * ((i->op[1].reg - top) & 7), 8);
	if (r == INSN_NEXT)
		enter_mmx(c);
	return r;
}

/* ---- MXCSR, VZERO -------------------------------------------------------------------------- */

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
	memset(x + xsave_layout.ymm_high, 0, 16u * n);
	if (xsave_layout.zmm_high)
		memset(x + xsave_layout.zmm_high, 0, 32u * n);
	if (i->mnemonic == ZYDIS_MNEMONIC_VZEROALL)
		memset(x + XSAVE_XMM, 0, 16u * n);
	return INSN_NEXT;
}

#define GATHER(name)                                                                                                   \
	{                                                                                                              \
		ZYDIS_MNEMONIC_##name, NULL, gather_select                                                             \
	}
#define SCATTER(name)                                                                                                  \
	{                                                                                                              \
		ZYDIS_MNEMONIC_##name, scatter, NULL                                                                   \
	}
const struct ops_entry ops_vec_table[] = {
    {ZYDIS_MNEMONIC_LDMXCSR, ldmxcsr, NULL},
    {ZYDIS_MNEMONIC_STMXCSR, stmxcsr, NULL},
    {ZYDIS_MNEMONIC_VLDMXCSR, ldmxcsr, NULL},
    {ZYDIS_MNEMONIC_VSTMXCSR, stmxcsr, NULL},
    {ZYDIS_MNEMONIC_VZEROUPPER, vzero, NULL},
    {ZYDIS_MNEMONIC_VZEROALL, vzero, NULL},
    {ZYDIS_MNEMONIC_MASKMOVQ, maskmovq, NULL},
    {ZYDIS_MNEMONIC_MASKMOVDQU, maskmovdqu, NULL},
    {ZYDIS_MNEMONIC_VMASKMOVDQU, maskmovdqu, NULL},
    GATHER(VGATHERDPS),
    GATHER(VGATHERDPD),
    GATHER(VGATHERQPS),
    GATHER(VGATHERQPD),
    GATHER(VPGATHERDD),
    GATHER(VPGATHERDQ),
    GATHER(VPGATHERQD),
    GATHER(VPGATHERQQ),
    SCATTER(VSCATTERDPS),
    SCATTER(VSCATTERDPD),
    SCATTER(VSCATTERQPS),
    SCATTER(VSCATTERQPD),
    SCATTER(VPSCATTERDD),
    SCATTER(VPSCATTERDQ),
    SCATTER(VPSCATTERQD),
    SCATTER(VPSCATTERQQ),
    {ZYDIS_MNEMONIC_INVALID, NULL, NULL},
};
