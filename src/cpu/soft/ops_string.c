/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * MOVS STOS LODS CMPS SCAS with REP. Runs inside one page at each end go as one
 * copy or fill; the rest element by element. Registers are up to date after each
 * completed run or element, so a fault or an interrupt finds the instruction
 * restartable with rip still on it. Port strings are the system part's.
 */
#include "cpu/soft/ops.h"

/* Elements between looks at pending requests. */
#define STRING_SLICE 16384u

static unsigned element_size(const struct insn *i)
{
	switch (i->mnemonic) {
	case ZYDIS_MNEMONIC_MOVSB:
	case ZYDIS_MNEMONIC_STOSB:
	case ZYDIS_MNEMONIC_LODSB:
	case ZYDIS_MNEMONIC_CMPSB:
	case ZYDIS_MNEMONIC_SCASB: return 1;
	case ZYDIS_MNEMONIC_MOVSW:
	case ZYDIS_MNEMONIC_STOSW:
	case ZYDIS_MNEMONIC_LODSW:
	case ZYDIS_MNEMONIC_CMPSW:
	case ZYDIS_MNEMONIC_SCASW: return 2;
	case ZYDIS_MNEMONIC_MOVSD:
	case ZYDIS_MNEMONIC_STOSD:
	case ZYDIS_MNEMONIC_LODSD:
	case ZYDIS_MNEMONIC_CMPSD:
	case ZYDIS_MNEMONIC_SCASD: return 4;
	default: return 8;
	}
}

static inline uint64_t string_reg(const struct soft_cpu *c, const struct insn *i, unsigned reg)
{
	return c->s.gpr[reg] & size_mask(i->addrsize);
}

static inline void string_advance(struct soft_cpu *c, const struct insn *i, unsigned reg, int64_t by)
{
	gpr_write(c, reg, i->addrsize, c->s.gpr[reg] + (uint64_t)by);
}

static inline int64_t string_step(const struct soft_cpu *c, unsigned size)
{
	return c->s.rflags & FLAG_DF ? -(int64_t)size : (int64_t)size;
}

static int source_linear(struct soft_cpu *c, const struct insn *i, unsigned size, uint64_t *lin)
{
	return seg_linear(c, i->mem_seg, string_reg(c, i, R_RSI), size, false, lin);
}
static int dest_linear(struct soft_cpu *c, const struct insn *i, unsigned size, bool write, uint64_t *lin)
{
	return seg_linear(c, S_ES, string_reg(c, i, R_RDI), size, write, lin);
}

/* ---- one element ---------------------------------------------------------------------- */

typedef int element_fn(struct soft_cpu *c, const struct insn *i, unsigned size);

static int movs_one(struct soft_cpu *c, const struct insn *i, unsigned size)
{
	int64_t step = string_step(c, size);
	uint64_t from, to, v;

	if (source_linear(c, i, size, &from) || mmu_load(c, from, size, &v) || dest_linear(c, i, size, true, &to) ||
	    mmu_store(c, to, size, v))
		return EXC_RAISED;
	string_advance(c, i, R_RSI, step);
	string_advance(c, i, R_RDI, step);
	return 0;
}

static int stos_one(struct soft_cpu *c, const struct insn *i, unsigned size)
{
	uint64_t to;

	if (dest_linear(c, i, size, true, &to) || mmu_store(c, to, size, c->s.gpr[R_RAX] & size_mask(size)))
		return EXC_RAISED;
	string_advance(c, i, R_RDI, string_step(c, size));
	return 0;
}

static int lods_one(struct soft_cpu *c, const struct insn *i, unsigned size)
{
	uint64_t from, v;

	if (source_linear(c, i, size, &from) || mmu_load(c, from, size, &v))
		return EXC_RAISED;
	gpr_write(c, R_RAX, size, v);
	string_advance(c, i, R_RSI, string_step(c, size));
	return 0;
}

/* Flags of a - b at the element's size: shifted to the top, only AF and PF look at low bits. */
static void compare_flags(struct soft_cpu *c, uint64_t a, uint64_t b, unsigned size)
{
	unsigned sh = 64 - size * 8;
	uint64_t r = (a - b) & size_mask(size), f = 0;

	f |= a < b ? FLAG_CF : 0;
	f |= r ? 0 : FLAG_ZF;
	f |= (r << sh) >> 63 ? FLAG_SF : 0;
	f |= ((((a ^ b) & (a ^ r)) << sh) >> 63) ? FLAG_OF : 0;
	f |= (a ^ b ^ r) & FLAG_AF;
	f |= __builtin_parity((unsigned)(r & 0xff)) ? 0 : FLAG_PF;
	flags_set(c, FLAG_ARITH, f);
}

static int cmps_one(struct soft_cpu *c, const struct insn *i, unsigned size)
{
	int64_t step = string_step(c, size);
	uint64_t s, d, a, b;

	if (source_linear(c, i, size, &s) || mmu_load(c, s, size, &a) || dest_linear(c, i, size, false, &d) ||
	    mmu_load(c, d, size, &b))
		return EXC_RAISED;
	compare_flags(c, a, b, size);
	string_advance(c, i, R_RSI, step);
	string_advance(c, i, R_RDI, step);
	return 0;
}

static int scas_one(struct soft_cpu *c, const struct insn *i, unsigned size)
{
	uint64_t d, b;

	if (dest_linear(c, i, size, false, &d) || mmu_load(c, d, size, &b))
		return EXC_RAISED;
	compare_flags(c, c->s.gpr[R_RAX] & size_mask(size), b, size);
	string_advance(c, i, R_RDI, string_step(c, size));
	return 0;
}

/* ---- runs inside a page ----------------------------------------------------------------- */

static uint64_t elements_in_page(uint64_t lin, unsigned size)
{
	return (PAGE_SIZE - (lin & ~PAGE_MASK)) / size;
}

/* Plain linear addresses: no limit that a run could cross, no wrap inside a page. */
static bool run_possible(const struct soft_cpu *c, const struct insn *i)
{
	if (c->s.rflags & FLAG_DF)
		return false;
	return c->long64 ||
	       ((c->mode_key & SOFT_KEY_FLAT) && i->mem_seg < S_FS && i->mem_seg != S_CS && i->addrsize == 4);
}

/*
 * Forward copy as the elements one by one would do it. A destination inside the
 * run ahead of the source repeats data.
 */
static void copy_run(uint8_t *to, const uint8_t *from, size_t len, unsigned size)
{
	if (to <= from || to >= from + len) {
		memmove(to, from, len);
		return;
	}
	for (size_t k = 0; k < len; k += size)
		memmove(to + k, from + k, size);
}

static void fill_run(uint8_t *to, size_t n, unsigned size, uint64_t v)
{
	switch (size) {
	case 1: memset(to, (int)(v & 0xff), n); break;
	case 2:
		for (size_t k = 0; k < n; k++)
			st16le(to + 2 * k, (uint16_t)v);
		break;
	case 4:
		for (size_t k = 0; k < n; k++)
			st32le(to + 4 * k, (uint32_t)v);
		break;
	default:
		for (size_t k = 0; k < n; k++)
			st64le(to + 8 * k, v);
		break;
	}
}

/* Number of elements done, 0 = take the slow way for one, EXC_RAISED. */
static int64_t movs_run(struct soft_cpu *c, const struct insn *i, unsigned size, uint64_t count)
{
	uint64_t from, to, n;
	uint8_t *src, *dst;
	unsigned flags;

	if (source_linear(c, i, size, &from) || dest_linear(c, i, size, true, &to))
		return EXC_RAISED;
	n = MIN(count, MIN(elements_in_page(from, size), elements_in_page(to, size)));
	if (n < 2)
		return 0;
	/* Read faults come first, as for one element. */
	if (mmu_host(c, from, (unsigned)(n * size), MMU_READ, c->mmu_index, &src, &flags) ||
	    mmu_host(c, to, (unsigned)(n * size), MMU_WRITE, c->mmu_index, &dst, &flags))
		return EXC_RAISED;
	if (!src || !dst)
		return 0;
	copy_run(dst, src, n * size, size);
	if (flags & MMU_HOST_CODE)
		mmu_written(c, dst, (unsigned)(n * size));
	string_advance(c, i, R_RSI, (int64_t)(n * size));
	string_advance(c, i, R_RDI, (int64_t)(n * size));
	return (int64_t)n;
}

static int64_t stos_run(struct soft_cpu *c, const struct insn *i, unsigned size, uint64_t count)
{
	uint64_t to, n;
	uint8_t *dst;
	unsigned flags;

	if (dest_linear(c, i, size, true, &to))
		return EXC_RAISED;
	n = MIN(count, elements_in_page(to, size));
	if (n < 2)
		return 0;
	if (mmu_host(c, to, (unsigned)(n * size), MMU_WRITE, c->mmu_index, &dst, &flags))
		return EXC_RAISED;
	if (!dst)
		return 0;
	fill_run(dst, n, size, c->s.gpr[R_RAX]);
	if (flags & MMU_HOST_CODE)
		mmu_written(c, dst, (unsigned)(n * size));
	string_advance(c, i, R_RDI, (int64_t)(n * size));
	return (int64_t)n;
}

/* ---- REP --------------------------------------------------------------------------------- */

typedef int64_t run_fn(struct soft_cpu *c, const struct insn *i, unsigned size, uint64_t count);

static void count_down(struct soft_cpu *c, const struct insn *i, uint64_t by)
{
	gpr_write(c, R_RCX, i->addrsize, c->s.gpr[R_RCX] - by);
}

/* Single step and data breakpoints trap after each iteration. */
static bool traced(const struct soft_cpu *c)
{
	return c->debug_active || (c->s.rflags & FLAG_TF);
}

/* Alignment is a matter of each element. */
static bool alignment_checked(const struct soft_cpu *c)
{
	return c->cpl == 3 && (c->s.cr0 & CR0_AM) && (c->s.rflags & FLAG_AC);
}

static int repeat(struct soft_cpu *c, const struct insn *i, element_fn *one, run_fn *run)
{
	unsigned size = element_size(i);
	bool trace = traced(c);
	uint64_t slice = trace ? 1 : STRING_SLICE, count;

	if (!run_possible(c, i) || trace || alignment_checked(c))
		run = NULL;
	while ((count = string_reg(c, i, R_RCX)) != 0) {
		int64_t n = run ? run(c, i, size, count) : 0;

		if (n < 0)
			return EXC_RAISED;
		if (!n) {
			if (one(c, i, size))
				return EXC_RAISED;
			n = 1;
		}
		count_down(c, i, (uint64_t)n);
		slice -= MIN(slice, (uint64_t)n);
		if (!slice) {
			if ((trace || soft_attention(c)) && string_reg(c, i, R_RCX))
				return INSN_JUMP; /* rip stays: go on after the interrupt or trap */
			slice = STRING_SLICE;
		}
	}
	return INSN_NEXT;
}

static int movs(struct soft_cpu *c, const struct insn *i)
{
	if (i->prefixes & (INSN_REP | INSN_REPNE))
		return repeat(c, i, movs_one, movs_run);
	return movs_one(c, i, element_size(i));
}

static int stos(struct soft_cpu *c, const struct insn *i)
{
	if (i->prefixes & (INSN_REP | INSN_REPNE))
		return repeat(c, i, stos_one, stos_run);
	return stos_one(c, i, element_size(i));
}

static int lods(struct soft_cpu *c, const struct insn *i)
{
	if (i->prefixes & (INSN_REP | INSN_REPNE))
		return repeat(c, i, lods_one, NULL);
	return lods_one(c, i, element_size(i));
}

/* CMPS and SCAS also end on ZF. */
static int repeat_compare(struct soft_cpu *c, const struct insn *i, element_fn *one)
{
	bool trace = traced(c);
	unsigned size = element_size(i), slice = trace ? 1 : STRING_SLICE;

	if (!(i->prefixes & (INSN_REP | INSN_REPNE)))
		return one(c, i, size);
	while (string_reg(c, i, R_RCX)) {
		if (one(c, i, size))
			return EXC_RAISED;
		count_down(c, i, 1);
		if (!(c->s.rflags & FLAG_ZF) == !(i->prefixes & INSN_REPNE))
			break;
		if (!--slice) {
			if ((trace || soft_attention(c)) && string_reg(c, i, R_RCX))
				return INSN_JUMP;
			slice = STRING_SLICE;
		}
	}
	return INSN_NEXT;
}

static int cmps(struct soft_cpu *c, const struct insn *i)
{
	return repeat_compare(c, i, cmps_one);
}
static int scas(struct soft_cpu *c, const struct insn *i)
{
	return repeat_compare(c, i, scas_one);
}

/* MOVSD and CMPSD are SSE2 instructions too. */
static insn_fn *movsd_select(const struct insn *i)
{
	return i->gate == GATE_NONE ? movs : NULL;
}
static insn_fn *cmpsd_select(const struct insn *i)
{
	return i->gate == GATE_NONE ? cmps : NULL;
}

const struct ops_entry ops_string_table[] = {
    {ZYDIS_MNEMONIC_MOVSB, movs, NULL}, {ZYDIS_MNEMONIC_MOVSW, movs, NULL}, {ZYDIS_MNEMONIC_MOVSD, NULL, movsd_select},
    {ZYDIS_MNEMONIC_MOVSQ, movs, NULL}, {ZYDIS_MNEMONIC_STOSB, stos, NULL}, {ZYDIS_MNEMONIC_STOSW, stos, NULL},
    {ZYDIS_MNEMONIC_STOSD, stos, NULL}, {ZYDIS_MNEMONIC_STOSQ, stos, NULL}, {ZYDIS_MNEMONIC_LODSB, lods, NULL},
    {ZYDIS_MNEMONIC_LODSW, lods, NULL}, {ZYDIS_MNEMONIC_LODSD, lods, NULL}, {ZYDIS_MNEMONIC_LODSQ, lods, NULL},
    {ZYDIS_MNEMONIC_CMPSB, cmps, NULL}, {ZYDIS_MNEMONIC_CMPSW, cmps, NULL}, {ZYDIS_MNEMONIC_CMPSD, NULL, cmpsd_select},
    {ZYDIS_MNEMONIC_CMPSQ, cmps, NULL}, {ZYDIS_MNEMONIC_SCASB, scas, NULL}, {ZYDIS_MNEMONIC_SCASW, scas, NULL},
    {ZYDIS_MNEMONIC_SCASD, scas, NULL}, {ZYDIS_MNEMONIC_SCASQ, scas, NULL}, {ZYDIS_MNEMONIC_INVALID, NULL, NULL},
};
