/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Running host stubs: which instructions may run on the host, their memory
 * operand (the guest page itself when it is plain RAM in one page, else a bounce
 * buffer), fault suppression of masked elements, x87 pointers, and the
 * exceptions the host raised. Runs in the vCPU's thread.
 */
#include "cpu/soft/mmu.h"
#include "cpu/soft/stub.h"
#include "cpu/soft/sys.h"

/* ---- eligibility ---------------------------------------------------------------- */

/* Base-architecture instructions that only process data. */
static const ZydisMnemonic stub_base[] = {
    ZYDIS_MNEMONIC_ADC,	       ZYDIS_MNEMONIC_ADD,    ZYDIS_MNEMONIC_AND,     ZYDIS_MNEMONIC_BSF,
    ZYDIS_MNEMONIC_BSR,	       ZYDIS_MNEMONIC_BSWAP,  ZYDIS_MNEMONIC_BT,      ZYDIS_MNEMONIC_BTC,
    ZYDIS_MNEMONIC_BTR,	       ZYDIS_MNEMONIC_BTS,    ZYDIS_MNEMONIC_CBW,     ZYDIS_MNEMONIC_CDQ,
    ZYDIS_MNEMONIC_CDQE,       ZYDIS_MNEMONIC_CMP,    ZYDIS_MNEMONIC_CMPXCHG, ZYDIS_MNEMONIC_CMPXCHG8B,
    ZYDIS_MNEMONIC_CMPXCHG16B, ZYDIS_MNEMONIC_CQO,    ZYDIS_MNEMONIC_CWD,     ZYDIS_MNEMONIC_CWDE,
    ZYDIS_MNEMONIC_DEC,	       ZYDIS_MNEMONIC_DIV,    ZYDIS_MNEMONIC_IDIV,    ZYDIS_MNEMONIC_IMUL,
    ZYDIS_MNEMONIC_INC,	       ZYDIS_MNEMONIC_LAHF,   ZYDIS_MNEMONIC_MUL,     ZYDIS_MNEMONIC_NEG,
    ZYDIS_MNEMONIC_NOT,	       ZYDIS_MNEMONIC_OR,     ZYDIS_MNEMONIC_RCL,     ZYDIS_MNEMONIC_RCR,
    ZYDIS_MNEMONIC_ROL,	       ZYDIS_MNEMONIC_ROR,    ZYDIS_MNEMONIC_SAHF,    ZYDIS_MNEMONIC_SAR,
    ZYDIS_MNEMONIC_SBB,	       ZYDIS_MNEMONIC_SHL,    ZYDIS_MNEMONIC_SHLD,    ZYDIS_MNEMONIC_SHR,
    ZYDIS_MNEMONIC_SHRD,       ZYDIS_MNEMONIC_SUB,    ZYDIS_MNEMONIC_TEST,    ZYDIS_MNEMONIC_XADD,
    ZYDIS_MNEMONIC_XCHG,       ZYDIS_MNEMONIC_XOR,    ZYDIS_MNEMONIC_MOVBE,   ZYDIS_MNEMONIC_MOVNTI,
    ZYDIS_MNEMONIC_CRC32,      ZYDIS_MNEMONIC_POPCNT, ZYDIS_MNEMONIC_LZCNT,   ZYDIS_MNEMONIC_TZCNT,
    ZYDIS_MNEMONIC_ADCX,       ZYDIS_MNEMONIC_ADOX,   ZYDIS_MNEMONIC_RDRAND,  ZYDIS_MNEMONIC_RDSEED,
    ZYDIS_MNEMONIC_MOVDIRI,
};

/* Instruction set extensions that consist of data processing. */
static const ZydisISAExt stub_exts[] = {
    ZYDIS_ISA_EXT_X87,	ZYDIS_ISA_EXT_MMX,	  ZYDIS_ISA_EXT_SSE,	   ZYDIS_ISA_EXT_SSE2,
    ZYDIS_ISA_EXT_SSE3, ZYDIS_ISA_EXT_SSSE3,	  ZYDIS_ISA_EXT_SSE4,	   ZYDIS_ISA_EXT_SSE4A,
    ZYDIS_ISA_EXT_AES,	ZYDIS_ISA_EXT_PCLMULQDQ,  ZYDIS_ISA_EXT_SHA,	   ZYDIS_ISA_EXT_GFNI,
    ZYDIS_ISA_EXT_AVX,	ZYDIS_ISA_EXT_AVX2,	  ZYDIS_ISA_EXT_AVX_VNNI,  ZYDIS_ISA_EXT_AVXAES,
    ZYDIS_ISA_EXT_VAES, ZYDIS_ISA_EXT_VPCLMULQDQ, ZYDIS_ISA_EXT_FMA,	   ZYDIS_ISA_EXT_F16C,
    ZYDIS_ISA_EXT_BMI1, ZYDIS_ISA_EXT_BMI2,	  ZYDIS_ISA_EXT_TBM,	   ZYDIS_ISA_EXT_XOP,
    ZYDIS_ISA_EXT_FMA4, ZYDIS_ISA_EXT_AVX512EVEX, ZYDIS_ISA_EXT_AVX512VEX,
};

/* In those extensions, but with state or addressing of their own: never through a stub. */
static const ZydisMnemonic stub_never[] = {
    ZYDIS_MNEMONIC_LDMXCSR,	ZYDIS_MNEMONIC_STMXCSR,	   ZYDIS_MNEMONIC_VLDMXCSR, ZYDIS_MNEMONIC_VSTMXCSR,
    ZYDIS_MNEMONIC_FXSAVE,	ZYDIS_MNEMONIC_FXRSTOR,	   ZYDIS_MNEMONIC_FXSAVE64, ZYDIS_MNEMONIC_FXRSTOR64,
    ZYDIS_MNEMONIC_VZEROALL,	ZYDIS_MNEMONIC_VZEROUPPER, ZYDIS_MNEMONIC_MASKMOVQ, ZYDIS_MNEMONIC_MASKMOVDQU,
    ZYDIS_MNEMONIC_VMASKMOVDQU, ZYDIS_MNEMONIC_CLFLUSH,
};

bool stub_eligible(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops)
{
	for (unsigned k = 0; k < ARRAY_SIZE(stub_never); k++)
		if (zi->mnemonic == stub_never[k])
			return false;
	for (unsigned k = 0; k < zi->operand_count; k++)
		if (ops[k].type == ZYDIS_OPERAND_TYPE_MEMORY &&
		    (ops[k].visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN || ops[k].mem.type != ZYDIS_MEMOP_TYPE_MEM))
			return false;
	for (unsigned k = 0; k < ARRAY_SIZE(stub_base); k++)
		if (zi->mnemonic == stub_base[k])
			return true;
	for (unsigned k = 0; k < ARRAY_SIZE(stub_exts); k++)
		if (zi->meta.isa_ext == stub_exts[k])
			return true;
	return false;
}

/* ---- after the host ran it ------------------------------------------------------ */

static int stub_fault(struct soft_cpu *c, int fault)
{
	switch (fault & 0xff) {
	case EXC_XM: return soft_raise(c, c->s.cr4 & CR4_OSXMMEXCPT ? EXC_XM : EXC_UD);
	case EXC_MF: return soft_raise(c, EXC_MF);
	case EXC_UD: return soft_raise(c, EXC_UD);
	case EXC_GP: return soft_raise_code(c, EXC_GP, 0);
	default: return soft_raise(c, EXC_DE);
	}
}

/* The opcode as FOP keeps it: low three bits of D8..DF, then ModRM. */
uint16_t x87_opcode(const uint8_t *bytes, unsigned length)
{
	for (unsigned k = 0; k + 1 < length; k++)
		if ((bytes[k] & 0xf8) == 0xd8)
			return (uint16_t)((bytes[k] & 7) << 8 | bytes[k + 1]);
	return 0;
}

/*
 * The environment as FNSTENV and FNSAVE store it has pointers; put the guest's there. Four layouts (SDM volume 1,
 * 8.1.10): words of 16 or 32 bits, with selectors, or with linear addresses in real and virtual-8086 mode.
 */
static void x87_env_store(struct soft_cpu *c, uint8_t *env, bool wide)
{
	const uint8_t *x = c->s.xsave;
	uint16_t fop = ld16le(x + FX_FOP) & 0x7ff;
	uint64_t fip = ld64le(x + FX_FIP), fdp = ld64le(x + FX_FDP);

	if (c->mode_key & SOFT_KEY_REAL) {
		uint32_t ip = (uint32_t)(fip + c->x87_cs * 16u), dp = (uint32_t)(fdp + c->x87_ds * 16u);

		if (wide) {
			st32le(env + 12, ip & 0xffff);
			st32le(env + 16, ip >> 16 << 12 | fop);
			st32le(env + 20, dp & 0xffff);
			st32le(env + 24, dp >> 16 << 12);
		} else {
			st16le(env + 6, (uint16_t)ip);
			st16le(env + 8, (uint16_t)((ip >> 4 & 0xf000) | fop));
			st16le(env + 10, (uint16_t)dp);
			st16le(env + 12, (uint16_t)(dp >> 4 & 0xf000));
		}
	} else if (wide) {
		st32le(env + 12, (uint32_t)fip);
		st16le(env + 16, c->x87_cs);
		st16le(env + 18, fop);
		st32le(env + 20, (uint32_t)fdp);
		st16le(env + 24, c->x87_ds);
	} else {
		st16le(env + 6, (uint16_t)fip);
		st16le(env + 8, c->x87_cs);
		st16le(env + 10, (uint16_t)fdp);
		st16le(env + 12, c->x87_ds);
	}
}

static void x87_env_load(struct soft_cpu *c, const uint8_t *env, bool wide)
{
	uint8_t *x = c->s.xsave;
	uint16_t fop;
	uint64_t fip, fdp;

	if (c->mode_key & SOFT_KEY_REAL) {
		fop = wide ? ld16le(env + 16) : ld16le(env + 8);
		if (wide) {
			fip = (ld32le(env + 12) & 0xffff) | (ld32le(env + 16) & 0x0ffff000) << 4;
			fdp = (ld32le(env + 20) & 0xffff) | (ld32le(env + 24) & 0x0ffff000) << 4;
		} else {
			fip = ld16le(env + 6) | (ld16le(env + 8) & 0xf000u) << 4;
			fdp = ld16le(env + 10) | (ld16le(env + 12) & 0xf000u) << 4;
		}
		c->x87_cs = c->x87_ds = 0;
	} else {
		fop = wide ? ld16le(env + 18) : 0;
		fip = wide ? ld32le(env + 12) : ld16le(env + 6);
		fdp = wide ? ld32le(env + 20) : ld16le(env + 10);
		c->x87_cs = ld16le(env + (wide ? 16 : 8));
		c->x87_ds = ld16le(env + (wide ? 24 : 12));
	}
	st16le(x + FX_FOP, fop & 0x7ff);
	st64le(x + FX_FIP, fip);
	st64le(x + FX_FDP, fdp);
}

static bool x87_env_wide(const struct insn *i)
{
	return i->mem_size != 14 && i->mem_size != 94;
}

static int run_x87(struct soft_cpu *c, const struct insn *i, const struct stub *s, void *mem)
{
	uint8_t *x = c->s.xsave;
	uint16_t fop = ld16le(x + FX_FOP);
	uint64_t fip = ld64le(x + FX_FIP), fdp = ld64le(x + FX_FDP);
	int r = stub_call(c, s, mem);

	if (unlikely(r))
		return stub_fault(c, r);
	switch (i->mnemonic) {
	case ZYDIS_MNEMONIC_FNSTENV:
	case ZYDIS_MNEMONIC_FNSAVE:
		st16le(x + FX_FOP, fop);
		st64le(x + FX_FIP, fip);
		st64le(x + FX_FDP, fdp);
		x87_env_store(c, mem, x87_env_wide(i));
		if (i->mnemonic == ZYDIS_MNEMONIC_FNSTENV)
			return 0;
		__attribute__((fallthrough));
	case ZYDIS_MNEMONIC_FNINIT:
		fop = 0;
		fip = fdp = 0;
		c->x87_cs = c->x87_ds = 0;
		break;
	case ZYDIS_MNEMONIC_FLDENV:
	case ZYDIS_MNEMONIC_FRSTOR: x87_env_load(c, mem, x87_env_wide(i)); return 0;
	default:
		if (s->x87_pointers) {
			fop = x87_opcode(i->bytes, i->length);
			fip = c->s.rip;
			c->x87_cs = c->s.seg[S_CS].sel;
			if (i->mem_op != INSN_NO_REG) {
				fdp = mem_offset(c, i);
				c->x87_ds = c->s.seg[i->mem_seg].sel;
			}
		}
		break;
	}
	st16le(x + FX_FOP, fop);
	st64le(x + FX_FIP, fip);
	st64le(x + FX_FDP, fdp);
	return 0;
}

static inline int run_stub(struct soft_cpu *c, const struct insn *i, const struct stub *s, void *mem)
{
	int r;

	if (s->x87)
		return run_x87(c, i, s, mem);
	r = stub_call(c, s, mem);
	return unlikely(r) ? stub_fault(c, r) : 0;
}

/* ---- memory operands -------------------------------------------------------------- */

/* Whole operand through a buffer: it crosses pages, is a device, or is code that is being written. */
static int bounce(struct soft_cpu *c, const struct insn *i, const struct stub *s, uint64_t lin)
{
	_Alignas(64) uint8_t buf[128];
	unsigned size = i->mem_size;
	bool word = size == 1 || size == 2 || size == 4 || size == 8; /* what a device register can be */
	uint64_t v = 0;
	int r;

	if (s->mem_write && mmu_probe(c, lin, size, MMU_WRITE, c->mmu_index))
		return EXC_RAISED;
	/* An x87 store with an unmasked exception does not store. */
	if (s->mem_read || s->x87) {
		if (word) {
			if (mmu_load(c, lin, size, &v))
				return EXC_RAISED;
			memcpy(buf, &v, 8);
		} else if (mmu_read_buf(c, lin, buf, size, c->mmu_index)) {
			return EXC_RAISED;
		}
	}
	r = run_stub(c, i, s, buf);
	if (r || !s->mem_write)
		return r;
	if (!word)
		return mmu_write_buf(c, lin, buf, size, c->mmu_index);
	memcpy(&v, buf, 8);
	return mmu_store(c, lin, size, v & size_mask(size));
}

/* The mask as one bit per element, from an opmask or from the sign bits of a vector. */
static uint64_t mask_value(const struct soft_cpu *c, const struct stub *s)
{
	const uint8_t *x = c->s.xsave;
	uint64_t m = 0;

	if (s->kind == STUB_MASK_K) {
		m = ld64le(x + xsave_layout.opmask + 8u * s->mask_reg);
		return s->mask_bits >= 64 ? m : m & ((1ull << s->mask_bits) - 1);
	}
	for (unsigned k = 0; k < s->units; k++) {
		unsigned at = k * s->unit_size + s->unit_size - 1u; /* the byte with the sign */
		const uint8_t *p = at < 16 ? x + XSAVE_XMM + 16u * s->mask_reg + at
					   : x + xsave_layout.ymm_high + 16u * s->mask_reg + (at - 16);

		m |= (uint64_t)(*p >> 7) << k;
	}
	return m;
}

/* Bit k set: unit k of the memory operand is accessed. */
static uint64_t active_units(const struct soft_cpu *c, const struct stub *s)
{
	uint64_t m = mask_value(c, s), r = 0;

	if (s->compressed) {
		unsigned count = (unsigned)__builtin_popcountll(m);

		return count >= 64 ? ~0ull : (1ull << count) - 1;
	}
	for (unsigned k = 0; k < s->mask_bits; k++)
		if (m >> k & 1)
			r |= 1ull << (s->broadcast ? k % s->units : k);
	return r;
}

/* Only the active elements may fault or be written. */
static int bounce_masked(struct soft_cpu *c, const struct insn *i, const struct stub *s, uint64_t lin)
{
	_Alignas(64) uint8_t buf[64] = {0};
	unsigned size = s->unit_size;
	uint64_t active = active_units(c, s);
	int r;

	for (unsigned k = 0; k < s->units; k++) {
		if (!(active >> k & 1))
			continue;
		if (s->mem_write) {
			if (mmu_probe(c, lin + k * size, size, MMU_WRITE, c->mmu_index))
				return EXC_RAISED;
		} else if (mmu_read_buf(c, lin + k * size, buf + k * size, size, c->mmu_index)) {
			return EXC_RAISED;
		}
	}
	r = run_stub(c, i, s, buf);
	if (r || !s->mem_write)
		return r;
	for (unsigned k = 0; k < s->units; k++)
		if ((active >> k & 1) && mmu_write_buf(c, lin + k * size, buf + k * size, size, c->mmu_index))
			return EXC_RAISED;
	return 0;
}

/*
 * A locked instruction across two pages: when they are neighbours in host memory the host locks them itself, else
 * it runs while no other vCPU does.
 */
static int locked_crossing(struct soft_cpu *c, const struct insn *i, const struct stub *s, uint64_t lin)
{
	unsigned first = (unsigned)(PAGE_SIZE - (lin & ~PAGE_MASK)), flags = 0, flags2 = 0;
	uint8_t *host, *host2;
	int r;

	if (first < i->mem_size) {
		if (mmu_host(c, lin, first, MMU_WRITE, c->mmu_index, &host, &flags) ||
		    mmu_host(c, lin + first, i->mem_size - first, MMU_WRITE, c->mmu_index, &host2, &flags2))
			return EXC_RAISED;
		if (host && host2 == host + first) {
			r = run_stub(c, i, s, host);
			if (!r && ((flags | flags2) & MMU_HOST_CODE)) {
				mmu_written(c, host, first);
				mmu_written(c, host2, i->mem_size - first);
			}
			return r;
		}
	}
	soft_exclusive_begin(c);
	r = bounce(c, i, s, lin);
	soft_exclusive_end(c);
	return r;
}

static int stub_mem_slow(struct soft_cpu *c, const struct insn *i, const struct stub *s)
{
	enum mmu_access access = s->mem_write ? MMU_WRITE : MMU_READ;
	unsigned size = i->mem_size, flags = 0;
	uint8_t *host = NULL;
	uint64_t lin;
	int r;

	if (insn_mem_linear(c, i, size, s->mem_write, &lin))
		return EXC_RAISED;
	if (i->mem_align && (lin & (i->mem_align - 1u))) {
		/* Not every stub loads MXCSR: the buffer is aligned whatever the host would say. */
		if (i->align_mm && (ld32le(c->s.xsave + XSAVE_MXCSR) & MXCSR_MM))
			return bounce(c, i, s, lin);
		/* Nothing is accessed, and so nothing misaligned, when every element is masked off. */
		if (s->kind != STUB_MASK_K || active_units(c, s))
			return soft_raise_code(c, EXC_GP, 0);
	}
	if (s->kind != STUB_MEM)
		return bounce_masked(c, i, s, lin);
	if (c->mmu_index == MMU_USER && mmu_align_check(c, lin, size))
		return EXC_RAISED;
	if ((lin & ~PAGE_MASK) + size <= PAGE_SIZE) {
		if (mmu_host(c, lin, size, access, c->mmu_index, &host, &flags))
			return EXC_RAISED;
		if (host) {
			r = run_stub(c, i, s, host);
			if (!r && (flags & MMU_HOST_CODE))
				mmu_written(c, host, size);
			return r;
		}
	}
	if ((i->prefixes & INSN_LOCK) || i->mnemonic == ZYDIS_MNEMONIC_XCHG)
		return locked_crossing(c, i, s, lin);
	return bounce(c, i, s, lin);
}

/* ---- handlers ------------------------------------------------------------------------ */

/* What comes before the operand: control bits, then an unmasked x87 exception that is pending. */
static inline int stub_admit(struct soft_cpu *c, const struct insn *i, const struct stub *s)
{
	if (i->gate && insn_gate_check(c, (enum insn_gate)i->gate))
		return EXC_RAISED;
	return s->x87_waits ? x87_wait(c) : 0;
}

static int stub_exec_plain(struct soft_cpu *c, const struct insn *i)
{
	int r;

	if (stub_admit(c, i, i->stub))
		return EXC_RAISED;
	r = run_stub(c, i, i->stub, NULL);
	return r ? EXC_RAISED : INSN_NEXT;
}

/* General registers and flags only: no gate, no x87. */
static int stub_exec_integer(struct soft_cpu *c, const struct insn *i)
{
	int r = stub_call(c, i->stub, NULL);

	return unlikely(r) ? stub_fault(c, r) : INSN_NEXT;
}

static int stub_exec_mem(struct soft_cpu *c, const struct insn *i)
{
	const struct stub *s = i->stub;
	uint64_t lin;
	uint8_t *p;

	if (stub_admit(c, i, s))
		return EXC_RAISED;
	if (likely(mem_linear_fast(c, i, &lin)) &&
	    likely((p = mmu_hit(c, c->mmu_index, s->mem_write ? MMU_WRITE : MMU_READ, lin, i->mem_size))) &&
	    !(i->mem_align && (lin & (i->mem_align - 1u))))
		return run_stub(c, i, s, p) ? EXC_RAISED : INSN_NEXT;
	return stub_mem_slow(c, i, s) ? EXC_RAISED : INSN_NEXT;
}

int stub_exec_first(struct soft_cpu *c, const struct insn *i)
{
	/* The block cache's own copy (or a caller's): handlers may specialise it. */
	struct insn *self = (struct insn *)(uintptr_t)i;
	const struct stub *s = stub_make(c, i);

	if (!s) {
		self->exec = insn_undefined;
		return insn_undefined(c, i);
	}
	self->stub = (void *)(uintptr_t)s;
	if (s->kind != STUB_PLAIN)
		self->exec = stub_exec_mem;
	else if (i->gate || s->x87)
		self->exec = stub_exec_plain;
	else
		self->exec = stub_exec_integer;
	return self->exec(c, i);
}
