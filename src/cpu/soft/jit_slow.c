/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * C that translated code calls: what an access does that missed the
 * first-level TLB, string instructions, and the guest's vector state, which may
 * be in the host's registers from one block to the next. Built with general
 * registers only (as mmu.c and what it calls); jit_vec_unload comes before any
 * other C. The vCPU's own thread.
 */
#include "cpu/soft/jit.h"
#include "cpu/soft/lockstep.h"

static struct jit_slow fail(struct soft_cpu *c, enum jit_reason why)
{
	c->jx.reason = why;
	return (struct jit_slow){.ok = 0};
}

static bool canonical(uint64_t lin)
{
	return (uint64_t)((int64_t)(lin << 16) >> 16) == lin;
}

/* `size`: bytes, and above bit 16 the alignment the instruction insists on. */
static bool plain(const struct soft_cpu *c, uint64_t lin, unsigned *size)
{
	unsigned align = *size >> 16;

	*size &= 0xffff;
	if (align && (lin & (align - 1)))
		return false;
	if (!c->long64 && lin + *size - 1 > UINT32_MAX) /* it wraps */
		return false;
	return canonical(lin) && canonical(lin + *size - 1) && !(c->s.dr[7] & 0xff);
}

/* ---- vector and x87 state -------------------------------------------------- */

#define XSAVE_BV    512
#define XSAVE_MXCSR 24
#define X87_FOP	    6
#define X87_FIP	    8
#define X87_FDP	    16
#define MXCSR_MASKS 0x1f80u
#define FCW_MASKS   0x3fu
#define FSW_ES	    0x80u

static void xsave_op(uint8_t *area, uint64_t mask, bool save)
{
	if (save)
		__asm__ volatile("xsave64 (%0)" : : "r"(area), "a"((uint32_t)mask), "d"(mask >> 32) : "memory");
	else
		__asm__ volatile("xrstor64 (%0)" : : "r"(area), "a"((uint32_t)mask), "d"(mask >> 32) : "memory");
}

/*
 * The guest's state into the host's registers. Not while an exception is
 * unmasked: then the interpreter runs those instructions, prepared for SIGFPE.
 * soft_cpu keeps XSTATE_BV zero and every component's area valid.
 */
bool jit_vec_load(struct soft_cpu *c)
{
	uint8_t *x = c->s.xsave;

	if (c->jx.vec_live)
		return true;
	if ((ld16le(x) & FCW_MASKS) != FCW_MASKS || (ld16le(x + 2) & FSW_ES) ||
	    (ld32le(x + XSAVE_MXCSR) & MXCSR_MASKS) != MXCSR_MASKS)
		return false;
	st64le(x + XSAVE_BV, c->jx.xmask);
	xsave_op(x, c->jx.xmask, false);
	st64le(x + XSAVE_BV, 0);
	c->n_jit[JIT_STAT_VEC_LOADS]++;
	c->jx.vec_live = true;
	return true;
}

/* Back to memory; the host's own state is what a C function may expect. */
void jit_vec_unload(struct soft_cpu *c)
{
	uint8_t *x = c->s.xsave;
	uint32_t mxcsr = MXCSR_MASKS;
	uint64_t fop = ld16le(x + X87_FOP), fip = ld64le(x + X87_FIP), fdp = ld64le(x + X87_FDP);

	if (!c->jx.vec_live)
		return;
	xsave_op(x, c->jx.xmask, true);
	st64le(x + XSAVE_BV, 0);
	/* Last x87 opcode and pointers would be the host's; translated code keeps the guest's in the image. */
	st16le(x + X87_FOP, (uint16_t)fop);
	st64le(x + X87_FIP, fip);
	st64le(x + X87_FDP, fdp);
	__asm__ volatile("vzeroupper; fninit; ldmxcsr %0" : : "m"(mxcsr));
	c->jx.vec_live = false;
}

struct jit_slow jit_slow_vec(struct soft_cpu *c, uint64_t lin, unsigned size, uint8_t *bounce)
{
	if (!jit_vec_load(c))
		return fail(c, REASON_INTERP);
	return (struct jit_slow){.ok = 1};
}

/* Sanitizers put calls into functions that translated code calls: those may use vector registers. */
#ifdef KELVIN_SANITIZE
static bool c_enter(struct soft_cpu *c)
{
	bool live = c->jx.vec_live;

	jit_vec_unload(c);
	return live;
}
static void c_leave(struct soft_cpu *c, bool live)
{
	if (live)
		jit_vec_load(c);
}
#else
static bool c_enter(struct soft_cpu *c)
{
	return false;
}
static void c_leave(struct soft_cpu *c, bool live) {}
#endif

/* ---- memory ---------------------------------------------------------------- */

static int host_of(struct soft_cpu *c, uint64_t lin, unsigned size, enum mmu_access a, uint8_t **p, unsigned *flags)
{
	bool live = c_enter(c);
	int r = mmu_host(c, lin, size, a, c->mmu_index, p, flags);

	c_leave(c, live);
	return r;
}

struct jit_slow jit_slow_read(struct soft_cpu *c, uint64_t lin, unsigned size, uint8_t *bounce)
{
	uint8_t *p, *q;
	unsigned flags, first;

	c->n_jit[JIT_STAT_SLOW_READ]++;
	if (!plain(c, lin, &size))
		return fail(c, REASON_INTERP);
	if (host_of(c, lin, 1, MMU_READ, &p, &flags))
		return fail(c, REASON_FAULT);
	if (!p)
		return fail(c, REASON_INTERP);
	first = (unsigned)(PAGE_SIZE - (lin & (PAGE_SIZE - 1)));
	if (first >= size)
		return (struct jit_slow){.addend = (uint64_t)(uintptr_t)p - lin, .ok = 1};
	if (host_of(c, lin + first, 1, MMU_READ, &q, &flags))
		return fail(c, REASON_FAULT);
	if (!q)
		return fail(c, REASON_INTERP);
	for (unsigned i = 0; i < size; i++)
		bounce[i] = *(volatile uint8_t *)(i < first ? p + i : q + (i - first));
	return (struct jit_slow){.addend = (uint64_t)(uintptr_t)bounce - lin, .ok = 1};
}

struct jit_slow jit_slow_write(struct soft_cpu *c, uint64_t lin, unsigned size, uint8_t *bounce)
{
	uint8_t *p;
	unsigned flags;

	c->n_jit[JIT_STAT_SLOW_WRITE]++;
	if (!plain(c, lin, &size) || (lin & (PAGE_SIZE - 1)) + size > PAGE_SIZE)
		return fail(c, REASON_INTERP);
	if (host_of(c, lin, size, MMU_WRITE, &p, &flags))
		return fail(c, REASON_FAULT);
	if (!p || (flags & MMU_HOST_CODE))
		return fail(c, REASON_INTERP);
	/* The head of a group asks for all its members (jit_group.c). */
	if (unlikely(c->lockstep)) {
		uint8_t *page = p - (lin & (PAGE_SIZE - 1));
		uint8_t *from = p - page > JIT_GROUP_RANGE ? p - JIT_GROUP_RANGE : page;

		lockstep_note(c->lockstep, from, (unsigned)(MIN(p + JIT_GROUP_RANGE, page + PAGE_SIZE) - from));
	}
	return (struct jit_slow){.addend = (uint64_t)(uintptr_t)p - lin, .ok = 1};
}

/* ---- string instructions --------------------------------------------------- */

static uint64_t left_in_page(uint64_t lin)
{
	return PAGE_SIZE - (lin & (PAGE_SIZE - 1));
}

/* The host's own instruction: the same for every overlap. */
static void host_string(bool move, unsigned size, uint8_t *to, const uint8_t *from, uint64_t n, uint64_t val)
{
	if (move) {
		switch (size) {
		case 1: __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory"); break;
		case 2: __asm__ volatile("rep movsw" : "+D"(to), "+S"(from), "+c"(n) : : "memory"); break;
		case 4: __asm__ volatile("rep movsl" : "+D"(to), "+S"(from), "+c"(n) : : "memory"); break;
		default: __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n) : : "memory"); break;
		}
		return;
	}
	switch (size) {
	case 1: __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(val) : "memory"); break;
	case 2: __asm__ volatile("rep stosw" : "+D"(to), "+c"(n) : "a"(val) : "memory"); break;
	case 4: __asm__ volatile("rep stosl" : "+D"(to), "+c"(n) : "a"(val) : "memory"); break;
	default: __asm__ volatile("rep stosq" : "+D"(to), "+c"(n) : "a"(val) : "memory"); break;
	}
}

int jit_string(struct soft_cpu *c, const struct insn *i)
{
	bool rep = i->prefixes & (INSN_REP | INSN_REPNE);
	unsigned opcode = i->bytes[i->length - 1]; /* A4 A5 MOVS, AA AB STOS */
	bool move = (opcode & 0xfe) == 0xa4;
	unsigned size = opcode & 1 ? i->opsize : 1;
	uint64_t *g = c->s.gpr;

	if (i->addrsize != 8 || (c->s.rflags & FLAG_DF) || (c->s.dr[7] & 0xff) || i->mem_seg == S_FS ||
	    i->mem_seg == S_GS)
		return JIT_STRING_NOT;
	while (!rep || g[R_RCX]) {
		uint64_t n = left_in_page(g[R_RDI]) / size;
		uint8_t *to, *from = NULL;
		unsigned flags;

		if (move)
			n = MIN(n, left_in_page(g[R_RSI]) / size);
		n = MIN(n, rep ? g[R_RCX] : 1);
		if (!n || !canonical(g[R_RDI]) || (move && !canonical(g[R_RSI])))
			return JIT_STRING_NOT;
		if (move) {
			if (host_of(c, g[R_RSI], (unsigned)(n * size), MMU_READ, &from, &flags))
				return EXC_RAISED;
			if (!from)
				return JIT_STRING_NOT;
		}
		if (host_of(c, g[R_RDI], (unsigned)(n * size), MMU_WRITE, &to, &flags))
			return EXC_RAISED;
		if (!to || (flags & MMU_HOST_CODE))
			return JIT_STRING_NOT;
		host_string(move, size, to, from, n, g[R_RAX]);
		g[R_RDI] += n * size;
		if (move)
			g[R_RSI] += n * size;
		if (!rep)
			break;
		g[R_RCX] -= n;
		if (g[R_RCX] && (soft_attention(c) || lockstep_enough(c)))
			return INSN_JUMP;
	}
	return INSN_NEXT;
}
