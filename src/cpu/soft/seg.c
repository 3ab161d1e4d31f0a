/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Segmentation: descriptors, loads of segment registers, linear addresses, and
 * the stack accesses of system instructions.
 *
 * AMD64 APM volume 2 chapter 4, Intel SDM volume 3A chapters 3 and 5. In 64-bit
 * mode bases other than FS and GS are zero and limits do not count, but the
 * hidden parts are loaded all the same: compatibility mode finds them.
 */
#include "cpu/soft/sys.h"

/* ---- descriptors ------------------------------------------------------------- */

void desc_decode(uint64_t raw, uint16_t sel, struct cpu_segment *seg)
{
	uint32_t limit = (uint32_t)(raw & 0xffff) | (uint32_t)((raw >> 32) & 0xf0000);

	*seg = (struct cpu_segment){
	    .sel = sel,
	    .type = (raw >> 40) & 15,
	    .s = (raw >> 44) & 1,
	    .dpl = (raw >> 45) & 3,
	    .present = (raw >> 47) & 1,
	    .avl = (raw >> 52) & 1,
	    .l = (raw >> 53) & 1,
	    .db = (raw >> 54) & 1,
	    .g = (raw >> 55) & 1,
	    .base = ((raw >> 16) & 0xffffff) | ((raw >> 32) & 0xff000000),
	};
	seg->limit = seg->g ? (limit << 12) | 0xfff : limit;
}

int desc_read(struct soft_cpu *c, uint16_t sel, enum exc_vector vector, uint32_t ext, struct descriptor *d)
{
	uint64_t base = c->s.gdtr.base;
	uint32_t limit = c->s.gdtr.limit, off = sel & SEL_INDEX;

	if (sel & SEL_TI) {
		const struct cpu_segment *ldt = &c->s.seg[S_LDTR];

		base = ldt->base;
		limit = ldt->limit;
		if (ldt->unusable || !ldt->present)
			return soft_raise_code(c, vector, (sel & ~SEL_RPL) | ext);
	}
	if (off + 7 > limit)
		return soft_raise_code(c, vector, (sel & ~SEL_RPL) | ext);
	d->lin = base + off;
	if (mmu_read_buf(c, d->lin, &d->raw, 8, MMU_KERNEL))
		return EXC_RAISED;
	desc_decode(d->raw, sel, &d->seg);
	return 0;
}

int desc_read_high(struct soft_cpu *c, const struct descriptor *d, uint32_t *high)
{
	uint32_t v[2];
	uint32_t limit = d->seg.sel & SEL_TI ? c->s.seg[S_LDTR].limit : c->s.gdtr.limit;

	if ((d->seg.sel & SEL_INDEX) + 15u > limit)
		return soft_raise_code(c, EXC_GP, d->seg.sel & ~SEL_RPL);
	if (mmu_read_buf(c, d->lin + 8, v, 8, MMU_KERNEL))
		return EXC_RAISED;
	if (v[1] & 0x1f00)
		return soft_raise_code(c, EXC_GP, d->seg.sel & ~SEL_RPL);
	*high = v[0];
	return 0;
}

/* Set type bits in the descriptor's byte 5. Not atomic against other writers of the same byte: the
 * tables are the kernel's, and it writes whole descriptors. */
static int desc_set_type_bits(struct soft_cpu *c, struct descriptor *d, uint8_t bits)
{
	uint8_t byte = (uint8_t)(d->raw >> 40) | bits;

	if (mmu_write_buf(c, d->lin + 5, &byte, 1, MMU_KERNEL))
		return EXC_RAISED;
	d->seg.type |= bits;
	return 0;
}

int desc_set_accessed(struct soft_cpu *c, struct descriptor *d)
{
	return d->seg.type & DESC_ACCESSED ? 0 : desc_set_type_bits(c, d, DESC_ACCESSED);
}

/* ---- segment registers ----------------------------------------------------------- */

void seg_set_real(struct soft_cpu *c, unsigned seg, uint16_t sel)
{
	struct cpu_segment *s = &c->s.seg[seg];

	/* Limit and attributes stay what they were ("unreal" mode); CS becomes plain code. */
	s->sel = sel;
	s->base = (uint64_t)sel << 4;
	s->unusable = false;
	s->present = true;
	s->s = true;
	if (c->s.rflags & FLAG_VM) {
		s->limit = 0xffff;
		s->dpl = 3;
		s->type = DESC_RW | DESC_ACCESSED;
		s->db = s->l = s->g = false;
	}
}

void seg_set_null(struct soft_cpu *c, unsigned seg, uint16_t sel)
{
	/* As AMD advertises (NullSelectClearsBase), the base becomes zero. */
	c->s.seg[seg] = (struct cpu_segment){.sel = sel, .unusable = true};
}

void seg_set_flat(struct soft_cpu *c, unsigned seg, uint16_t sel, unsigned dpl, bool l)
{
	bool code = seg == S_CS;

	c->s.seg[seg] = (struct cpu_segment){.sel = sel,
					     .type = code ? 11 : 3,
					     .dpl = (uint8_t)dpl,
					     .s = true,
					     .present = true,
					     .l = l,
					     .db = !l,
					     .g = true,
					     .limit = 0xffffffff};
}

void seg_drop_inner(struct soft_cpu *c, unsigned cpl)
{
	static const uint8_t data[] = {S_ES, S_DS, S_FS, S_GS};

	for (unsigned i = 0; i < ARRAY_SIZE(data); i++) {
		const struct cpu_segment *s = &c->s.seg[data[i]];

		if (!s->unusable && s->dpl < cpl && (!(s->type & DESC_CODE) || !(s->type & DESC_CONFORMING)))
			seg_set_null(c, data[i], 0);
	}
}

static int load_ss(struct soft_cpu *c, uint16_t sel)
{
	uint32_t err = sel & ~SEL_RPL;
	struct descriptor d;

	if (!err) {
		if (!c->long64 || c->cpl == 3 || (sel & SEL_RPL) != c->cpl)
			return sys_gp0(c);
		seg_set_null(c, S_SS, sel);
		c->s.seg[S_SS].dpl = c->cpl;
		return 0;
	}
	if (desc_read(c, sel, EXC_GP, 0, &d))
		return EXC_RAISED;
	if ((sel & SEL_RPL) != c->cpl || !d.seg.s || (d.seg.type & DESC_CODE) || !(d.seg.type & DESC_RW) ||
	    d.seg.dpl != c->cpl)
		return soft_raise_code(c, EXC_GP, err);
	if (!d.seg.present)
		return soft_raise_code(c, EXC_SS, err);
	if (desc_set_accessed(c, &d))
		return EXC_RAISED;
	c->s.seg[S_SS] = d.seg;
	return 0;
}

static int load_data(struct soft_cpu *c, unsigned seg, uint16_t sel)
{
	uint32_t err = sel & ~SEL_RPL;
	struct descriptor d;
	bool conforming;

	if (!err) {
		seg_set_null(c, seg, sel);
		return 0;
	}
	if (desc_read(c, sel, EXC_GP, 0, &d))
		return EXC_RAISED;
	conforming = (d.seg.type & DESC_CODE) && (d.seg.type & DESC_CONFORMING);
	if (!d.seg.s || ((d.seg.type & DESC_CODE) && !(d.seg.type & DESC_RW)) ||
	    (!conforming && ((sel & SEL_RPL) > d.seg.dpl || c->cpl > d.seg.dpl)))
		return soft_raise_code(c, EXC_GP, err);
	if (!d.seg.present)
		return soft_raise_code(c, EXC_NP, err);
	if (desc_set_accessed(c, &d))
		return EXC_RAISED;
	c->s.seg[seg] = d.seg;
	return 0;
}

int seg_load(struct soft_cpu *c, unsigned seg, uint16_t sel)
{
	int r = 0;

	if (!sys_protected(c))
		seg_set_real(c, seg, sel);
	else
		r = seg == S_SS ? load_ss(c, sel) : load_data(c, seg, sel);
	if (!r)
		soft_mode_changed(c);
	return r;
}

/* ---- linear addresses --------------------------------------------------------------- */

static int seg_fault(struct soft_cpu *c, unsigned seg)
{
	return soft_raise_code(c, seg == S_SS ? EXC_SS : EXC_GP, 0);
}

static bool limit_ok(const struct cpu_segment *s, uint64_t off, unsigned size)
{
	uint64_t last = off + size - 1;

	if (!(s->type & DESC_CODE) && (s->type & DESC_EXPAND) && s->s)
		return off > s->limit && last <= (s->db ? 0xffffffffu : 0xffffu);
	return last <= s->limit;
}

int seg_linear(struct soft_cpu *c, unsigned seg, uint64_t off, unsigned size, bool write, uint64_t *lin)
{
	const struct cpu_segment *s = &c->s.seg[seg];

	if (c->long64) {
		uint64_t a = seg >= S_FS ? off + s->base : off;

		if (unlikely(!sys_canonical(a) || !sys_canonical(a + size - 1)))
			return seg_fault(c, seg);
		*lin = a;
		return 0;
	}
	if (unlikely(s->unusable || !limit_ok(s, off, size)))
		return seg_fault(c, seg);
	if (sys_protected(c)) {
		bool code = s->type & DESC_CODE;

		if (unlikely(write ? code || !(s->type & DESC_RW) : code && !(s->type & DESC_RW)))
			return seg_fault(c, seg);
	}
	*lin = (uint32_t)(s->base + off);
	return 0;
}

/* ---- stacks ---------------------------------------------------------------------------- */

struct stack_ref stack_current(const struct soft_cpu *c)
{
	struct stack_ref s = {.sp = c->s.gpr[R_RSP], .mmu_index = c->mmu_index};

	if (c->long64) {
		s.mask = ~0ull;
		return s;
	}
	s.base = c->s.seg[S_SS].base;
	s.mask = c->stack32 ? 0xffffffff : 0xffff;
	s.seg = &c->s.seg[S_SS];
	return s;
}

static int stack_linear(struct soft_cpu *c, const struct stack_ref *s, uint64_t off, unsigned size, uint64_t *lin)
{
	if (!s->seg) {
		if (!sys_canonical(off))
			return soft_raise_code(c, EXC_SS, s->err);
		*lin = off;
		return 0;
	}
	if (s->seg->unusable || !limit_ok(s->seg, off, size))
		return soft_raise_code(c, EXC_SS, s->err);
	*lin = (uint32_t)(s->base + off);
	return 0;
}

int stack_ref_push(struct soft_cpu *c, struct stack_ref *s, unsigned size, uint64_t val)
{
	uint64_t sp = (s->sp - size) & s->mask, lin = 0;

	if (stack_linear(c, s, sp, size, &lin) || mmu_write_buf(c, lin, &val, size, s->mmu_index))
		return EXC_RAISED;
	s->sp = sp;
	return 0;
}

int stack_ref_pop(struct soft_cpu *c, struct stack_ref *s, unsigned size, uint64_t *val)
{
	uint64_t sp = s->sp & s->mask, lin = 0;

	*val = 0;
	if (stack_linear(c, s, sp, size, &lin) || mmu_read_buf(c, lin, val, size, s->mmu_index))
		return EXC_RAISED;
	s->sp = (sp + size) & s->mask;
	return 0;
}

void stack_ref_commit(struct soft_cpu *c, const struct stack_ref *s)
{
	uint64_t keep = s->mask == 0xffff ? ~0xffffull : 0;

	c->s.gpr[R_RSP] = (c->s.gpr[R_RSP] & keep) | (s->sp & s->mask);
}
