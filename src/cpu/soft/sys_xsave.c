/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Extended state in guest memory: XSAVE, XSAVEOPT, XSAVEC, XSAVES, XRSTOR,
 * XRSTORS, FXSAVE, FXRSTOR, XGETBV, XSETBV.
 *
 * Intel SDM volume 1 chapter 13, AMD64 APM volume 2 section 11.5. The CPU's own
 * image (cpu_state.xsave) is in the host's standard layout with the area of
 * every component valid; guest CPUID leaf 0xD gives the same offsets, so in the
 * standard format components are copied, in the compacted one also moved.
 */
#include "cpu/soft/sys.h"

#include <cpuid.h>
#include <pthread.h>

#define LEGACY_SIZE   512u
#define HEADER_SIZE   64u
#define EXTENDED_BASE (LEGACY_SIZE + HEADER_SIZE)
#define XCOMP_COMPACT BIT(63)
#define XFEATURE_X87  BIT(0)
#define XFEATURE_SSE  BIT(1)
#define XFEATURE_AVX  BIT(2)
#define XFEATURE_512  (7ull << 5)
#define MXCSR_INIT    0x1f80u
#define FCW_INIT      0x037fu

/* Offsets in the legacy area */
enum { FX_FCW = 0, FX_FIP = 8, FX_FDP = 16, FX_MXCSR = 24, FX_MASK = 28, FX_ST = 32, FX_XMM = 160, FX_END = 416 };

#define N_COMPONENTS 10

static struct component {
	uint32_t size, offset;
	bool align64;
} component[N_COMPONENTS];
static uint32_t mxcsr_mask;
static pthread_once_t layout_once = PTHREAD_ONCE_INIT;

static void layout_init(void)
{
	_Alignas(16) uint8_t fx[LEGACY_SIZE] = {0};
	uint32_t a, b, c, d;

	for (unsigned n = 2; n < N_COMPONENTS; n++) {
		if (__get_cpuid_count(0xd, n, &a, &b, &c, &d) && a && !(c & 1) && b + a <= CPU_XSAVE_SIZE)
			component[n] = (struct component){a, b, c & 2};
	}
	__asm__ volatile("fxsave %0" : "=m"(fx));
	mxcsr_mask = ld32le(fx + FX_MASK);
	if (!mxcsr_mask)
		mxcsr_mask = 0xffbf;
}

static bool all_zero(const uint8_t *p, unsigned n)
{
	return !p[0] && !memcmp(p, p + 1, n - 1);
}

/* Components not in their initial state. */
static uint64_t in_use(const struct soft_cpu *c)
{
	const uint8_t *x = c->s.xsave;
	uint64_t used = 0;

	if (ld16le(x + FX_FCW) != FCW_INIT || !all_zero(x + 2, FX_MXCSR - 2) || !all_zero(x + FX_ST, FX_XMM - FX_ST))
		used |= XFEATURE_X87;
	if (!all_zero(x + FX_XMM, FX_END - FX_XMM))
		used |= XFEATURE_SSE;
	for (unsigned n = 2; n < N_COMPONENTS; n++) {
		if (component[n].size && (c->s.xcr0 & BIT(n)) && !all_zero(x + component[n].offset, component[n].size))
			used |= BIT(n);
	}
	return used & c->s.xcr0;
}

static void component_reset(struct soft_cpu *c, unsigned n)
{
	uint8_t *x = c->s.xsave;

	if (n == 0) {
		memset(x, 0, FX_MXCSR);
		st16le(x + FX_FCW, FCW_INIT);
		memset(x + FX_ST, 0, FX_XMM - FX_ST);
	} else if (n == 1) {
		memset(x + FX_XMM, 0, FX_END - FX_XMM);
	} else {
		memset(x + component[n].offset, 0, component[n].size);
	}
}

/* Where each component of `mask` lies in a compacted image; returns its size in all. */
static unsigned compact_layout(uint64_t mask, uint32_t offset[N_COMPONENTS])
{
	unsigned at = EXTENDED_BASE;

	for (unsigned n = 2; n < N_COMPONENTS; n++) {
		if (!(mask & BIT(n)))
			continue;
		if (component[n].align64)
			at = ALIGN_UP(at, 64u);
		offset[n] = at;
		at += component[n].size;
	}
	return at;
}

static unsigned standard_layout(uint64_t mask, uint32_t offset[N_COMPONENTS])
{
	unsigned end = EXTENDED_BASE;

	for (unsigned n = 2; n < N_COMPONENTS; n++) {
		offset[n] = component[n].offset;
		if (mask & BIT(n))
			end = MAX(end, component[n].offset + component[n].size);
	}
	return end;
}

/* Without REX.W the instruction and data pointers are 32-bit offsets with (zero) selectors. */
static void pointers_narrow(uint8_t *legacy)
{
	st32le(legacy + FX_FIP + 4, 0);
	st32le(legacy + FX_FDP + 4, 0);
}

static bool is_wide(const struct insn *i)
{
	switch (i->mnemonic) {
	case ZYDIS_MNEMONIC_XSAVE64:
	case ZYDIS_MNEMONIC_XSAVEOPT64:
	case ZYDIS_MNEMONIC_XSAVEC64:
	case ZYDIS_MNEMONIC_XSAVES64:
	case ZYDIS_MNEMONIC_XRSTOR64:
	case ZYDIS_MNEMONIC_XRSTORS64:
	case ZYDIS_MNEMONIC_FXSAVE64:
	case ZYDIS_MNEMONIC_FXRSTOR64: return true;
	default: return false;
	}
}

static bool is_supervisor(const struct insn *i)
{
	return i->mnemonic == ZYDIS_MNEMONIC_XSAVES || i->mnemonic == ZYDIS_MNEMONIC_XSAVES64 ||
	       i->mnemonic == ZYDIS_MNEMONIC_XRSTORS || i->mnemonic == ZYDIS_MNEMONIC_XRSTORS64;
}

/* Common start: rights, alignment, components asked for. */
static int xsave_prologue(struct soft_cpu *c, const struct insn *i, unsigned size, bool write, uint64_t *lin)
{
	pthread_once(&layout_once, layout_init);
	if (!(c->s.cr4 & CR4_OSXSAVE))
		return soft_raise(c, EXC_UD);
	if (is_supervisor(i) && c->cpl)
		return sys_gp0(c);
	if (c->s.cr0 & CR0_TS)
		return soft_raise(c, EXC_NM);
	if (insn_mem_linear(c, i, size, write, lin))
		return EXC_RAISED;
	return *lin & 63 ? sys_gp0(c) : 0;
}

static uint64_t requested(const struct soft_cpu *c)
{
	return ((uint32_t)c->s.gpr[R_RAX] | c->s.gpr[R_RDX] << 32) & c->s.xcr0;
}

/* ---- XSAVE family ------------------------------------------------------------------- */

struct piece {
	uint32_t off, len;
	const uint8_t *from;
};

static int write_pieces(struct soft_cpu *c, uint64_t lin, const struct piece *p, unsigned n)
{
	for (unsigned k = 0; k < n; k++) {
		if (mmu_write_buf(c, lin + p[k].off, p[k].from, p[k].len, c->mmu_index))
			return EXC_RAISED;
	}
	return 0;
}

int sys_xsave(struct soft_cpu *c, const struct insn *i)
{
	bool compact =
	    i->mnemonic == ZYDIS_MNEMONIC_XSAVEC || i->mnemonic == ZYDIS_MNEMONIC_XSAVEC64 || is_supervisor(i);
	bool plain = i->mnemonic == ZYDIS_MNEMONIC_XSAVE || i->mnemonic == ZYDIS_MNEMONIC_XSAVE64;
	uint64_t lin, rfbm = requested(c), used, store, header[2];
	struct piece p[N_COMPONENTS + 4];
	uint32_t offset[N_COMPONENTS];
	uint8_t legacy[FX_MXCSR];
	unsigned n = 0, size;

	if (xsave_prologue(c, i, EXTENDED_BASE, true, &lin))
		return EXC_RAISED;
	used = in_use(c);
	store = plain ? rfbm : rfbm & used;
	size = compact ? compact_layout(rfbm, offset) : standard_layout(rfbm, offset);
	if (mmu_probe(c, lin, size, MMU_WRITE, c->mmu_index))
		return EXC_RAISED;
	if (compact) {
		header[1] = rfbm | XCOMP_COMPACT;
		header[0] = rfbm & used;
	} else {
		if (mmu_read_buf(c, lin + LEGACY_SIZE, header, 8, c->mmu_index))
			return EXC_RAISED;
		header[0] = (header[0] & ~rfbm) | (rfbm & used);
	}
	if (store & XFEATURE_X87) {
		memcpy(legacy, c->s.xsave, sizeof(legacy));
		if (!is_wide(i))
			pointers_narrow(legacy);
		p[n++] = (struct piece){0, FX_MXCSR, legacy};
		p[n++] = (struct piece){FX_ST, FX_XMM - FX_ST, c->s.xsave + FX_ST};
	}
	st32le(c->s.xsave + FX_MASK, mxcsr_mask);
	if (compact ? rfbm & XFEATURE_SSE && (store & XFEATURE_SSE || ld32le(c->s.xsave + FX_MXCSR) != MXCSR_INIT)
		    : rfbm & (XFEATURE_SSE | XFEATURE_AVX)) {
		p[n++] = (struct piece){FX_MXCSR, 8, c->s.xsave + FX_MXCSR};
		/* Compacted: MXCSR belongs to SSE, which is then in use. */
		if (compact)
			header[0] |= XFEATURE_SSE, store |= XFEATURE_SSE;
	}
	if (store & XFEATURE_SSE)
		p[n++] = (struct piece){FX_XMM, FX_END - FX_XMM, c->s.xsave + FX_XMM};
	for (unsigned k = 2; k < N_COMPONENTS; k++) {
		if (store & BIT(k))
			p[n++] = (struct piece){offset[k], component[k].size, c->s.xsave + component[k].offset};
	}
	p[n++] = (struct piece){LEGACY_SIZE, compact ? 16 : 8, (const uint8_t *)header};
	return write_pieces(c, lin, p, n) ? EXC_RAISED : INSN_NEXT;
}

/* ---- XRSTOR family -------------------------------------------------------------------- */

static bool header_ok(const struct soft_cpu *c, const uint64_t header[8], bool compact)
{
	uint64_t bv = header[0], comp = header[1];

	if (!compact)
		return !(bv & ~c->s.xcr0) && !comp && !header[2];
	for (unsigned n = 2; n < 8; n++) {
		if (header[n])
			return false;
	}
	comp &= ~XCOMP_COMPACT;
	return !(comp & ~c->s.xcr0) && !(bv & ~comp);
}

static void load_legacy(struct soft_cpu *c, const uint8_t *legacy, bool x87, bool sse, bool wide)
{
	uint8_t *x = c->s.xsave;

	if (x87) {
		memcpy(x, legacy, FX_MXCSR);
		memcpy(x + FX_ST, legacy + FX_ST, FX_XMM - FX_ST);
		if (!wide)
			pointers_narrow(x);
	}
	if (sse)
		memcpy(x + FX_XMM, legacy + FX_XMM, FX_END - FX_XMM);
}

int sys_xrstor(struct soft_cpu *c, const struct insn *i)
{
	uint64_t lin, rfbm = requested(c), bv, header[8];
	uint8_t image[CPU_XSAVE_SIZE + 64 * N_COMPONENTS];
	uint32_t offset[N_COMPONENTS], mxcsr;
	bool compact, load_mxcsr;
	unsigned size;

	if (xsave_prologue(c, i, EXTENDED_BASE, false, &lin) ||
	    mmu_read_buf(c, lin + LEGACY_SIZE, header, sizeof(header), c->mmu_index))
		return EXC_RAISED;
	compact = header[1] & XCOMP_COMPACT;
	if ((is_supervisor(i) && !compact) || !header_ok(c, header, compact))
		return sys_gp0(c);
	bv = header[0] & rfbm;
	size = compact ? compact_layout(header[1] & ~XCOMP_COMPACT, offset) : standard_layout(bv, offset);
	/* The whole image is read, and checked, before a register changes. */
	if (mmu_read_buf(c, lin, image, LEGACY_SIZE, c->mmu_index))
		return EXC_RAISED;
	for (unsigned n = 2; n < N_COMPONENTS; n++) {
		if ((bv & BIT(n)) && offset[n] + component[n].size <= size &&
		    mmu_read_buf(c, lin + offset[n], image + offset[n], component[n].size, c->mmu_index))
			return EXC_RAISED;
	}
	mxcsr = ld32le(image + FX_MXCSR);
	load_mxcsr = compact ? bv & XFEATURE_SSE : rfbm & (XFEATURE_SSE | XFEATURE_AVX);
	if (load_mxcsr && (mxcsr & ~mxcsr_mask))
		return sys_gp0(c);
	load_legacy(c, image, bv & XFEATURE_X87, bv & XFEATURE_SSE, is_wide(i));
	for (unsigned n = 0; n < N_COMPONENTS; n++) {
		if (!(rfbm & BIT(n)))
			continue;
		if (!(bv & BIT(n)))
			component_reset(c, n);
		else if (n >= 2)
			memcpy(c->s.xsave + component[n].offset, image + offset[n], component[n].size);
	}
	if (load_mxcsr)
		st32le(c->s.xsave + FX_MXCSR, mxcsr);
	else if (compact && (rfbm & XFEATURE_SSE))
		st32le(c->s.xsave + FX_MXCSR, MXCSR_INIT);
	return INSN_NEXT;
}

/* ---- FXSAVE, FXRSTOR ---------------------------------------------------------------------- */

static int fx_prologue(struct soft_cpu *c, const struct insn *i, bool write, uint64_t *lin)
{
	pthread_once(&layout_once, layout_init);
	if (c->s.cr0 & (CR0_TS | CR0_EM))
		return soft_raise(c, EXC_NM);
	if (insn_mem_linear(c, i, LEGACY_SIZE, write, lin))
		return EXC_RAISED;
	return *lin & 15 ? sys_gp0(c) : 0;
}

/* XMM8 to XMM15 do not exist outside 64-bit mode; XMM and MXCSR are the system's choice with OSFXSR. */
static unsigned fx_end(const struct soft_cpu *c)
{
	return c->long64 ? FX_END : FX_XMM + 8 * 16;
}

int sys_fxsave(struct soft_cpu *c, const struct insn *i)
{
	uint8_t image[FX_END];
	uint64_t lin;

	if (fx_prologue(c, i, true, &lin))
		return EXC_RAISED;
	memcpy(image, c->s.xsave, sizeof(image));
	st32le(image + FX_MASK, mxcsr_mask);
	if (!is_wide(i))
		pointers_narrow(image);
	return mmu_write_buf(c, lin, image, fx_end(c), c->mmu_index) ? EXC_RAISED : INSN_NEXT;
}

int sys_fxrstor(struct soft_cpu *c, const struct insn *i)
{
	uint8_t image[FX_END];
	uint64_t lin;
	uint32_t mxcsr;

	if (fx_prologue(c, i, false, &lin) || mmu_read_buf(c, lin, image, sizeof(image), c->mmu_index))
		return EXC_RAISED;
	mxcsr = ld32le(image + FX_MXCSR);
	if (mxcsr & ~mxcsr_mask)
		return sys_gp0(c);
	load_legacy(c, image, true, false, is_wide(i));
	memcpy(c->s.xsave + FX_XMM, image + FX_XMM, fx_end(c) - FX_XMM);
	st32le(c->s.xsave + FX_MXCSR, mxcsr);
	return INSN_NEXT;
}

/* ---- XCR0 ------------------------------------------------------------------------------------ */

int sys_xgetbv(struct soft_cpu *c, const struct insn *i)
{
	uint32_t n = (uint32_t)c->s.gpr[R_RCX];
	uint64_t val;

	if (!(c->s.cr4 & CR4_OSXSAVE))
		return soft_raise(c, EXC_UD);
	pthread_once(&layout_once, layout_init);
	if (n == 0)
		val = c->s.xcr0;
	else if (n == 1 && cpu_model_has(c->v.accel->cfg.model, "xgetbv1"))
		val = in_use(c) | (ld32le(c->s.xsave + FX_MXCSR) != MXCSR_INIT ? XFEATURE_SSE : 0);
	else
		return sys_gp0(c);
	c->s.gpr[R_RAX] = (uint32_t)val;
	c->s.gpr[R_RDX] = val >> 32;
	return INSN_NEXT;
}

int sys_xsetbv(struct soft_cpu *c, const struct insn *i)
{
	uint64_t val = (uint32_t)c->s.gpr[R_RAX] | c->s.gpr[R_RDX] << 32;

	if (!(c->s.cr4 & CR4_OSXSAVE))
		return soft_raise(c, EXC_UD);
	if (c->cpl || (uint32_t)c->s.gpr[R_RCX] || !(val & XFEATURE_X87) || (val & ~c->v.accel->cfg.model->xcr0_mask) ||
	    ((val & XFEATURE_AVX) && !(val & XFEATURE_SSE)) ||
	    ((val & XFEATURE_512) && ((val & XFEATURE_512) != XFEATURE_512 || !(val & XFEATURE_AVX))))
		return sys_gp0(c);
	c->s.xcr0 = val;
	soft_mode_changed(c);
	return INSN_END;
}
