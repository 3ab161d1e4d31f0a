/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Makes instruction tests. Every opcode of every map and encoding is tried with
 * Zydis once; what decodes, may run in user mode and is in the host's CPUID
 * becomes a template of its mnemonic. A case picks a mnemonic, a template,
 * random registers and modifiers, and values that make addresses mostly good.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <Zydis/Zydis.h>
#include "cpu/soft/stub.h"
#include "insn_compat.h"

enum space { SPACE_LEGACY, SPACE_VEX, SPACE_EVEX };

struct form {
	uint8_t space, map, pp, w, l, b, opcode, reg, mod3;
	uint8_t rm; /* where ModRM.rm extends the opcode: its value + 1; 0 = any */
};

struct forms {
	struct form *f;
	struct form_count *count; /* gen_count's, made when first wanted */
	unsigned n, cap;
};

struct case_gen {
	struct rng rng;
	ZydisDecoder dec;
	bool isa[ISA_SETS];
	struct forms by_mnemonic[ZYDIS_MNEMONIC_MAX_VALUE + 1];
	uint16_t list[ZYDIS_MNEMONIC_MAX_VALUE + 1];
	unsigned n, only;
	uint8_t left_out[ZYDIS_MNEMONIC_MAX_VALUE + 1]; /* enum gen_left_out */
};

/* ---- contents ----------------------------------------------------------------------- */

void case_fill(struct rng *r, enum case_fill kind, void *buf, size_t len)
{
	static const uint64_t special64[] = {0,
					     1ull << 63,
					     0x7ff0ull << 48,
					     0xfff0ull << 48,
					     0x7ff8ull << 48,
					     0x7ff0000000000001ull,
					     1,
					     0x000fffffffffffffull,
					     0x3ff0ull << 48,
					     ~0ull,
					     0x7fffffff7f800000ull,
					     0x0000000100000001ull};
	uint8_t *p = buf;

	for (size_t k = 0; k + 8 <= len; k += 8) {
		uint64_t v = rng_next(r);
		double d = ((double)(int64_t)v) / 9.2e18 * 4000;
		float f[2] = {(float)(int32_t)v / 2.0e9f * 3000, (float)(int32_t)(v >> 32) / 2.0e9f * 9};

		switch (kind) {
		case FILL_DOUBLE: memcpy(p + k, &d, 8); break;
		case FILL_FLOAT: memcpy(p + k, f, 8); break;
		case FILL_SMALL: st64le(p + k, v & 0x000700ff0003001full); break;
		case FILL_SPECIAL: st64le(p + k, special64[v % ARRAY_SIZE(special64)]); break;
		default: st64le(p + k, v); break;
		}
	}
}

/* ---- templates ------------------------------------------------------------------------ */

static const uint8_t pp_byte[4] = {0, 0x66, 0xf3, 0xf2};

/* Not for user mode, not deterministic, or the system part's business. */
static bool excluded(const ZydisDecodedInstruction *zi)
{
	static const ZydisMnemonic list[] = {
	    ZYDIS_MNEMONIC_CPUID,     ZYDIS_MNEMONIC_RDTSC,    ZYDIS_MNEMONIC_RDTSCP,	ZYDIS_MNEMONIC_RDRAND,
	    ZYDIS_MNEMONIC_RDSEED,    ZYDIS_MNEMONIC_RDPID,    ZYDIS_MNEMONIC_RDPMC,	ZYDIS_MNEMONIC_RDPRU,
	    ZYDIS_MNEMONIC_XGETBV,    ZYDIS_MNEMONIC_INT,      ZYDIS_MNEMONIC_INT1,	ZYDIS_MNEMONIC_INT3,
	    ZYDIS_MNEMONIC_IRET,      ZYDIS_MNEMONIC_IRETD,    ZYDIS_MNEMONIC_IRETQ,	ZYDIS_MNEMONIC_LAR,
	    ZYDIS_MNEMONIC_LSL,	      ZYDIS_MNEMONIC_VERR,     ZYDIS_MNEMONIC_VERW,	ZYDIS_MNEMONIC_SLDT,
	    ZYDIS_MNEMONIC_STR,	      ZYDIS_MNEMONIC_SMSW,     ZYDIS_MNEMONIC_SGDT,	ZYDIS_MNEMONIC_SIDT,
	    ZYDIS_MNEMONIC_LFS,	      ZYDIS_MNEMONIC_LGS,      ZYDIS_MNEMONIC_LSS,	ZYDIS_MNEMONIC_PUSHF,
	    ZYDIS_MNEMONIC_PUSHFQ,    ZYDIS_MNEMONIC_PUSHFD,   ZYDIS_MNEMONIC_POPF,	ZYDIS_MNEMONIC_POPFQ,
	    ZYDIS_MNEMONIC_POPFD,     ZYDIS_MNEMONIC_STI,      ZYDIS_MNEMONIC_CLI,	ZYDIS_MNEMONIC_SYSCALL,
	    ZYDIS_MNEMONIC_SYSENTER,  ZYDIS_MNEMONIC_FXSAVE,   ZYDIS_MNEMONIC_FXSAVE64, ZYDIS_MNEMONIC_FXRSTOR,
	    ZYDIS_MNEMONIC_FXRSTOR64, ZYDIS_MNEMONIC_MONITORX, ZYDIS_MNEMONIC_MWAITX,	ZYDIS_MNEMONIC_VMMCALL,
	    ZYDIS_MNEMONIC_VMCALL,    ZYDIS_MNEMONIC_LGDT,     ZYDIS_MNEMONIC_LIDT,	ZYDIS_MNEMONIC_LLDT,
	    ZYDIS_MNEMONIC_LTR,	      ZYDIS_MNEMONIC_LMSW,     ZYDIS_MNEMONIC_STAC,	ZYDIS_MNEMONIC_CLAC,
	};

	for (unsigned k = 0; k < ARRAY_SIZE(list); k++)
		if (zi->mnemonic == list[k])
			return true;
	if (zi->attributes & ZYDIS_ATTRIB_IS_PRIVILEGED)
		return true;
	if (zi->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR ||
	    (zi->mnemonic == ZYDIS_MNEMONIC_RET && (zi->opcode == 0xca || zi->opcode == 0xcb)))
		return true;
	switch (zi->meta.category) {
	case ZYDIS_CATEGORY_IO:
	case ZYDIS_CATEGORY_IOSTRINGOP:
	case ZYDIS_CATEGORY_RDWRFSGS:
	case ZYDIS_CATEGORY_XSAVE:
	case ZYDIS_CATEGORY_XSAVEOPT:
	case ZYDIS_CATEGORY_VTX:
	case ZYDIS_CATEGORY_SGX:
	case ZYDIS_CATEGORY_CET:
	case ZYDIS_CATEGORY_KEYLOCKER:
	case ZYDIS_CATEGORY_KEYLOCKER_WIDE:
	case ZYDIS_CATEGORY_AMX_TILE:
	case ZYDIS_CATEGORY_ENQCMD:
	case ZYDIS_CATEGORY_WAITPKG:
	case ZYDIS_CATEGORY_UINTR:
	case ZYDIS_CATEGORY_HRESET:
	case ZYDIS_CATEGORY_PADLOCK:
	case ZYDIS_CATEGORY_PCONFIG:
	case ZYDIS_CATEGORY_PKU:
	case ZYDIS_CATEGORY_TSX_LDTRK: return true;
	default: break;
	}
	switch (zi->meta.isa_set) {
	case ZYDIS_ISA_SET_SVM:
	case ZYDIS_ISA_SET_RTM:
	case ZYDIS_ISA_SET_LWP:
	case ZYDIS_ISA_SET_MCOMMIT:
	case ZYDIS_ISA_SET_SNP:
	case ZYDIS_ISA_SET_AMD_INVLPGB:
	case ZYDIS_ISA_SET_TDX:
	case ZYDIS_ISA_SET_PT:
	case ZYDIS_ISA_SET_SMX:
	case ZYDIS_ISA_SET_VMFUNC:
	case ZYDIS_ISA_SET_SERIALIZE: return true;
	default: return false;
	}
}

/* Segment registers, control registers as operands: the system part. */
static bool system_operand(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops)
{
	for (unsigned k = 0; k < zi->operand_count_visible; k++)
		if (ops[k].type == ZYDIS_OPERAND_TYPE_REGISTER && ops[k].reg.value >= ZYDIS_REGISTER_ES &&
		    ops[k].reg.value <= ZYDIS_REGISTER_DR15)
			return true;
	return false;
}

/* Random choices inside a template. */
struct choice {
	uint8_t rex_r, rex_x, rex_b, evex_r2, evex_v2, vvvv, aaa, z, rm, sib, mod;
	uint8_t extra[2]; /* prefixes put in front */
	unsigned nextra;
	uint8_t tail[12]; /* displacement and immediate, taken as far as needed */
};

static unsigned assemble(const struct form *f, const struct choice *ch, uint8_t *b)
{
	unsigned n = 0;
	uint8_t rm = f->rm ? f->rm - 1 : ch->rm & 7;
	uint8_t modrm = (uint8_t)((f->mod3 ? 3 : ch->mod) << 6 | (f->reg & 7) << 3 | rm);

	for (unsigned k = 0; k < ch->nextra; k++)
		b[n++] = ch->extra[k];
	if (f->space == SPACE_LEGACY) {
		if (f->pp)
			b[n++] = pp_byte[f->pp];
		if (f->w || ch->rex_r || ch->rex_x || ch->rex_b)
			b[n++] = (uint8_t)(0x40 | f->w << 3 | ch->rex_r << 2 | ch->rex_x << 1 | ch->rex_b);
		if (f->map)
			b[n++] = 0x0f;
		if (f->map >= 2)
			b[n++] = f->map == 2 ? 0x38 : 0x3a;
	} else if (f->space == SPACE_VEX) {
		b[n++] = 0xc4;
		b[n++] = (uint8_t)(!ch->rex_r << 7 | !ch->rex_x << 6 | !ch->rex_b << 5 | f->map);
		b[n++] = (uint8_t)(f->w << 7 | (~ch->vvvv & 15) << 3 | f->l << 2 | f->pp);
	} else {
		b[n++] = 0x62;
		b[n++] = (uint8_t)(!ch->rex_r << 7 | !ch->rex_x << 6 | !ch->rex_b << 5 | !ch->evex_r2 << 4 | f->map);
		b[n++] = (uint8_t)(f->w << 7 | (~ch->vvvv & 15) << 3 | 4 | f->pp);
		b[n++] = (uint8_t)(ch->z << 7 | f->l << 5 | f->b << 4 | !ch->evex_v2 << 3 | ch->aaa);
	}
	b[n++] = f->opcode;
	b[n++] = modrm;
	if (!f->mod3 && (ch->rm & 7) == 4)
		b[n++] = ch->sib;
	memcpy(b + n, ch->tail, MIN(sizeof(ch->tail), (size_t)15 - n));
	return 15;
}

static void add_form(struct case_gen *g, const struct form *f)
{
	/* Register and mask numbers that suit most forms; the second try has vvvv unused. */
	struct choice tries[] = {{.vvvv = 2, .rm = 1, .mod = 2, .aaa = 1},
				 {.vvvv = 0, .rm = 1, .mod = 2, .aaa = 1},
				 {.vvvv = 0, .rm = 1, .mod = 2},
				 {.vvvv = 2, .rm = 1, .mod = 2},
				 {.vvvv = 2, .rm = 4, .sib = 0x1b, .mod = 2, .aaa = 1},
				 {.vvvv = 0, .rm = 4, .sib = 0x1b, .mod = 2, .aaa = 1}};
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];

	for (unsigned k = 0; k < ARRAY_SIZE(tries); k++) {
		uint8_t b[16];
		unsigned len = assemble(f, &tries[k], b);
		struct forms *fs;

		if (f->space == SPACE_LEGACY && k)
			return;
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&g->dec, b, len, &zi, ops)))
			continue;
		if (!g->isa[zi.meta.isa_set] || excluded(&zi) || system_operand(&zi, ops)) {
			g->left_out[zi.mnemonic] = g->isa[zi.meta.isa_set] ? GEN_EXCLUDED : GEN_NOT_ON_HOST;
			return;
		}
		fs = &g->by_mnemonic[zi.mnemonic];
		if (fs->n == fs->cap) {
			fs->cap = fs->cap ? fs->cap * 2 : 8;
			fs->f = realloc(fs->f, fs->cap * sizeof(*fs->f));
			if (!fs->f)
				abort();
		}
		fs->f[fs->n++] = *f;
		return;
	}
}

static bool is_prefix_byte(unsigned op)
{
	switch (op) {
	case 0x26:
	case 0x2e:
	case 0x36:
	case 0x3e:
	case 0x64:
	case 0x65:
	case 0x66:
	case 0x67:
	case 0xf0:
	case 0xf2:
	case 0xf3:
	case 0x62:
	case 0xc4:
	case 0xc5:
	case 0x0f: return true;
	default: return (op & 0xf0) == 0x40;
	}
}

/* Register forms of x87 and of a few groups where ModRM.rm is one more opcode field. */
static bool rm_extends(const struct form *f)
{
	if (f->space != SPACE_LEGACY)
		return false;
	return (f->map == 0 && (f->opcode & 0xf8) == 0xd8) || (f->map == 1 && (f->opcode == 0x01 || f->opcode == 0xae));
}

static void add_space(struct case_gen *g, enum space space, unsigned map_first, unsigned map_last, unsigned lengths,
		      unsigned bs)
{
	for (unsigned map = map_first; map <= map_last; map++)
		for (unsigned op = 0; op < 256; op++) {
			if (space == SPACE_LEGACY && ((map == 0 && is_prefix_byte(op)) ||
						      (map == 1 && (op == 0x38 || op == 0x3a || op == 0x0f))))
				continue;
			for (unsigned rest = 0; rest < 4 * 2 * lengths * bs * 16; rest++) {
				unsigned v = rest;
				struct form f = {.space = space, .map = (uint8_t)map, .opcode = (uint8_t)op};

				f.mod3 = v & 1;
				f.reg = v >> 1 & 7;
				v >>= 4;
				f.pp = v & 3;
				f.w = v >> 2 & 1;
				v >>= 3;
				f.l = (uint8_t)(v % lengths);
				f.b = (uint8_t)(v / lengths);
				if (!f.mod3 || !rm_extends(&f)) {
					add_form(g, &f);
					continue;
				}
				for (f.rm = 1; f.rm <= 8; f.rm++)
					add_form(g, &f);
			}
		}
}

struct case_gen *gen_create(uint64_t seed)
{
	struct case_gen *g = calloc(1, sizeof(*g));
	struct accel a = {0};
	struct soft_cpu *c = calloc(1, sizeof(*c));

	if (!g || !c)
		abort();
	g->rng.s = seed;
	ZydisDecoderInit(&g->dec, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	ZydisDecoderEnableMode(&g->dec, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
	ZydisDecoderEnableMode(&g->dec, ZYDIS_DECODER_MODE_CET, ZYAN_FALSE);
	ZydisDecoderEnableMode(&g->dec, ZYDIS_DECODER_MODE_AMD_BRANCHES, __builtin_cpu_is("amd") != 0);
	c->v.accel = &a;
	isa_init(c, g->isa);
	free(c);
	add_space(g, SPACE_LEGACY, 0, 3, 1, 1);
	add_space(g, SPACE_VEX, 1, 3, 2, 1);
	add_space(g, SPACE_EVEX, 1, 3, 4, 2);
	for (unsigned m = 1; m <= ZYDIS_MNEMONIC_MAX_VALUE; m++)
		if (g->by_mnemonic[m].n)
			g->list[g->n++] = (uint16_t)m;
	return g;
}

enum gen_left_out gen_why_left_out(const struct case_gen *g, unsigned mnemonic)
{
	return g->by_mnemonic[mnemonic].n ? GEN_TESTED : (enum gen_left_out)g->left_out[mnemonic];
}

void gen_free(struct case_gen *g)
{
	for (unsigned m = 0; m <= ZYDIS_MNEMONIC_MAX_VALUE; m++) {
		free(g->by_mnemonic[m].f);
		free(g->by_mnemonic[m].count);
	}
	free(g);
}

void gen_reseed(struct case_gen *g, uint64_t seed)
{
	g->rng.s = seed;
}

struct form_count *gen_count(struct case_gen *g, unsigned mnemonic, unsigned form)
{
	struct forms *f = &g->by_mnemonic[mnemonic];

	if (form >= f->n)
		return NULL;
	if (!f->count)
		f->count = calloc(f->n, sizeof(*f->count));
	return f->count ? &f->count[form] : NULL;
}

unsigned gen_forms(const struct case_gen *g, unsigned mnemonic)
{
	return g->by_mnemonic[mnemonic].n;
}

void gen_form_name(const struct case_gen *g, unsigned mnemonic, unsigned form, char *buf, size_t len)
{
	static const char *const space[] = {"legacy", "vex", "evex"};
	static const char *const pp[] = {"", " 66", " f3", " f2"};
	const struct form *f = &g->by_mnemonic[mnemonic].f[form];

	snprintf(buf, len, "%s map%u%s w%u l%u %02x /%u %s", space[f->space], f->map, pp[f->pp], f->w, f->l, f->opcode,
		 f->reg, f->mod3 ? "register" : "memory");
}

unsigned gen_mnemonics(const struct case_gen *g, const uint16_t **list)
{
	*list = g->list;
	return g->n;
}

bool gen_only(struct case_gen *g, const char *mnemonic)
{
	for (unsigned k = 0; k < g->n; k++)
		if (strcmp(ZydisMnemonicGetString((ZydisMnemonic)g->list[k]), mnemonic) == 0) {
			g->only = g->list[k];
			return true;
		}
	return false;
}

/* ---- cases ------------------------------------------------------------------------------ */

static uint64_t interesting(struct rng *r)
{
	static const uint64_t values[] = {0,
					  1,
					  2,
					  3,
					  7,
					  8,
					  15,
					  16,
					  31,
					  32,
					  33,
					  63,
					  64,
					  0x7f,
					  0x80,
					  0xff,
					  0x7fff,
					  0x8000,
					  0xffff,
					  0x7fffffff,
					  0x80000000,
					  0xffffffff,
					  0x100000000,
					  0x7fffffffffffffff,
					  0x8000000000000000,
					  ~0ull};

	switch (rng_below(r, 4)) {
	case 0: return values[rng_below(r, ARRAY_SIZE(values))];
	case 1: return rng_next(r) & 0xff;
	case 2: return CASE_DATA + (rng_next(r) & 0xff8) + 0x800;
	default: return rng_next(r);
	}
}

/* An address for `size` bytes: mostly aligned and mapped, at times crossing, unmapped or read-only. */
static uint64_t pick_address(struct rng *r, unsigned size)
{
	unsigned align = size && !(size & (size - 1)) ? size : 8;

	switch (rng_below(r, 16)) {
	case 0: return CASE_DATA + 0x1000 - rng_below(r, size + 1);
	case 1: return CASE_DATA + CASE_DATA_SIZE - rng_below(r, size + 1);
	case 2: return CASE_RO + (rng_next(r) & 0xf00);
	case 3:
	case 4:
	case 5: return CASE_DATA + (rng_next(r) & 0x1fff) % (CASE_DATA_SIZE - size);
	default: return CASE_DATA + ALIGN_DOWN((rng_next(r) & 0x1fff) % (CASE_DATA_SIZE - size), (uint64_t)align);
	}
}

static uint64_t host_xcr0(void)
{
	uint32_t lo, hi;

	__asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (uint64_t)hi << 32 | lo;
}

static void random_state(struct case_gen *g, struct insn_case *ic)
{
	struct rng *r = &g->rng;
	struct case_state *s = &ic->in;
	uint8_t *x = s->xsave;

	memset(s, 0, sizeof(*s));
	for (unsigned k = 0; k < 16; k++)
		s->gpr[k] = interesting(r);
	s->gpr[R_RSP] = CASE_DATA + 0x1000 + (rng_next(r) & 0x7f8);
	s->rflags = 0x202 | (rng_next(r) & FLAG_ARITH) | (rng_below(r, 8) == 0 ? FLAG_DF : 0);
	ic->fill = (enum case_fill)rng_below(r, FILLS);
	ic->data_seed = rng_next(r);
	case_fill(r, ic->fill, x, CPU_XSAVE_SIZE);
	if (rng_below(r, 4) == 0) /* not always the memory's kind */
		case_fill(r, FILL_BITS, x + 160, 256);
	/* x87: control, status with a random top, tags, a mix of real 80-bit numbers. */
	memset(x, 0, 32);
	st16le(x, (uint16_t)(0x40 | 0x3f | (rng_next(r) & 0xf00)));
	if (rng_below(r, 10) == 0)
		st16le(x, (uint16_t)(ld16le(x) & ~(rng_next(r) & 0x3f)));
	st16le(x + 2, (uint16_t)(rng_next(r) & 0x7f00) & (rng_below(r, 2) ? 0x4700 : 0x7f00));
	x[4] = rng_below(r, 3) ? (uint8_t)rng_next(r) : 0xff;
	for (unsigned k = 0; k < 8; k++) {
		long double v = (long double)(int64_t)rng_next(r) / 1e16L;

		if (rng_below(r, 4))
			memcpy(x + 32 + 16 * k, &v, 10);
		memset(x + 32 + 16 * k + 10, 0, 6);
	}
	/* MXCSR: rounding, DAZ, FZ; rarely something unmasked */
	st32le(x + 24, 0x1f80 | (uint32_t)(rng_next(r) & 0xe040 & (rng_below(r, 2) ? 0 : ~0u)));
	if (rng_below(r, 10) == 0)
		st32le(x + 24, ld32le(x + 24) & ~(uint32_t)(rng_next(r) & 0x1f80));
	if (rng_below(r, 16) == 0) /* misaligned operands allowed, where the CPU has that */
		st32le(x + 24, ld32le(x + 24) | (0x20000 & xsave_layout.mxcsr_mask));
	memset(x + 416, 0, 576 - 416);
	st64le(x + 512, host_xcr0() & 0xe7); /* XSTATE_BV: everything this file knows */
}

static uint64_t *address_register(struct insn_case *ic, ZydisRegister reg)
{
	if (reg >= ZYDIS_REGISTER_EAX && reg <= ZYDIS_REGISTER_R15D)
		return &ic->in.gpr[reg - ZYDIS_REGISTER_EAX];
	if (reg >= ZYDIS_REGISTER_RAX && reg <= ZYDIS_REGISTER_R15)
		return &ic->in.gpr[reg - ZYDIS_REGISTER_RAX];
	return NULL;
}

/* Choose register values that make the operand's address good. False: this form cannot be pointed. */
static bool point_memory(struct case_gen *g, struct insn_case *ic, const ZydisDecodedInstruction *zi,
			 const ZydisDecodedOperand *o)
{
	struct rng *r = &g->rng;
	uint64_t ea = pick_address(r, MIN(o->size / 8u, 512u)), *base, *index;
	uint64_t disp = o->mem.disp.has_displacement ? (uint64_t)o->mem.disp.value : 0;
	uint64_t gs = zi->attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS ? CASE_GS_BASE : 0;

	ea -= gs;

	if (o->mem.base == ZYDIS_REGISTER_RIP || o->mem.base == ZYDIS_REGISTER_EIP) {
		uint32_t d = (uint32_t)(ea - (ic->in.rip + ic->len));

		memcpy(ic->bytes + zi->raw.disp.offset, &d, 4);
		return true;
	}
	base = address_register(ic, o->mem.base);
	if ((zi->attributes & ZYDIS_ATTRIB_HAS_SIB) && zi->raw.modrm.mod == 0 && zi->raw.sib.base == 5) {
		base = NULL; /* see decode.c: Zydis 4.0 may say R13D */
		disp = (uint64_t)zi->raw.disp.value;
	}
	index = address_register(ic, o->mem.index);
	if (o->mem.type == ZYDIS_MEMOP_TYPE_VSIB) {
		/* Indexes near: 32- or 64-bit elements, scaled, around the middle. */
		unsigned v = (unsigned)(o->mem.index - ZYDIS_REGISTER_XMM0) & 31;
		bool wide = strstr(ZydisMnemonicGetString(zi->mnemonic), "q") != NULL;

		if (!base)
			return false;
		for (unsigned k = 0; k < 64; k += 8) {
			uint64_t val = wide ? (uint64_t)(int64_t)(int8_t)rng_next(r)
					    : (uint32_t)(int8_t)rng_next(r) | (uint64_t)(uint32_t)(int8_t)rng_next(r)
										  << 32;
			uint8_t *x = ic->in.xsave;

			if (v >= 16)
				st64le(x + xsave_layout.zmm_16_31 + 64 * (v - 16) + k, val);
			else if (k < 16)
				st64le(x + 160 + 16 * v + k, val);
			else if (k < 32)
				st64le(x + xsave_layout.ymm_high + 16 * v + k - 16, val);
			else
				st64le(x + xsave_layout.zmm_high + 32 * v + k - 32, val);
		}
		*base = CASE_DATA - gs + 0x1000 + (rng_next(r) & 0x1f) - disp;
		return true;
	}
	if (!base && !index) {
		if (zi->raw.disp.size == 32) {
			uint32_t d = (uint32_t)ea;

			memcpy(ic->bytes + zi->raw.disp.offset, &d, 4);
			return true;
		}
		if (zi->raw.disp.size == 64) {
			memcpy(ic->bytes + zi->raw.disp.offset, &ea, 8);
			return true;
		}
		return false;
	}
	if (!base || base == index) {
		uint64_t scale = (base ? 1 : 0) + o->mem.scale;

		if ((ea - disp) % scale)
			ea -= (ea - disp) % scale;
		*index = (ea - disp) / scale;
		return true;
	}
	if (index)
		*index &= rng_below(r, 4) ? 0xfff : ~0ull;
	*base = ea - disp - (index ? *index * o->mem.scale : 0);
	if (zi->address_width == 32)
		*base = (uint32_t)*base | (rng_next(r) << 32);
	return true;
}

static void point_implied(struct case_gen *g, struct insn_case *ic, const ZydisDecodedInstruction *zi)
{
	struct rng *r = &g->rng;

	uint64_t gs = zi->attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS ? CASE_GS_BASE : 0;

	switch (zi->meta.category) {
	case ZYDIS_CATEGORY_STRINGOP:
		ic->in.gpr[R_RSI] = pick_address(r, 8) - gs;
		ic->in.gpr[R_RDI] =
		    rng_below(r, 3) ? pick_address(r, 8) : ic->in.gpr[R_RSI] + (uint64_t)(int64_t)(int8_t)rng_next(r);
		ic->in.gpr[R_RCX] = rng_below(r, 8) ? rng_next(r) & 0x3f : rng_next(r) & 0x7ff;
		if (rng_below(r, 2)) /* something to find */
			ic->in.gpr[R_RAX] = 0;
		break;
	default: break;
	}
	if (zi->mnemonic == ZYDIS_MNEMONIC_LOOP || zi->mnemonic == ZYDIS_MNEMONIC_LOOPE ||
	    zi->mnemonic == ZYDIS_MNEMONIC_LOOPNE)
		ic->in.gpr[R_RCX] &= 0xff;
	if (zi->mnemonic == ZYDIS_MNEMONIC_XLAT)
		ic->in.gpr[R_RBX] = pick_address(r, 256) - gs;
	if (zi->mnemonic == ZYDIS_MNEMONIC_CLZERO)
		ic->in.gpr[R_RAX] = pick_address(r, 64) - gs;
	if (zi->mnemonic == ZYDIS_MNEMONIC_MASKMOVQ || zi->mnemonic == ZYDIS_MNEMONIC_MASKMOVDQU ||
	    zi->mnemonic == ZYDIS_MNEMONIC_VMASKMOVDQU)
		ic->in.gpr[R_RDI] = pick_address(r, 16) - gs;
	if (zi->mnemonic == ZYDIS_MNEMONIC_LEAVE || zi->mnemonic == ZYDIS_MNEMONIC_ENTER)
		ic->in.gpr[R_RBP] = pick_address(r, 8);
}

static void random_choice(struct rng *r, const struct form *f, struct choice *ch)
{
	uint64_t v = rng_next(r);

	memset(ch, 0, sizeof(*ch));
	ch->rex_r = v & 1;
	ch->rex_x = v >> 1 & 1;
	ch->rex_b = v >> 2 & 1;
	ch->evex_r2 = v >> 3 & 1;
	ch->evex_v2 = v >> 4 & 1;
	ch->vvvv = v >> 5 & 15;
	ch->aaa = v >> 9 & 7;
	ch->z = v >> 12 & 1;
	ch->rm = v >> 13 & 7;
	ch->sib = (uint8_t)(v >> 16);
	ch->mod = (uint8_t)((v >> 24 & 7) < 3 ? 0 : (v >> 24 & 7) < 6 ? 1 : 2);
	if (f->space == SPACE_LEGACY && (v >> 27 & 3) == 0)
		ch->rex_r = ch->rex_x = ch->rex_b = 0;
	for (unsigned k = 0; k < sizeof(ch->tail); k++)
		ch->tail[k] = (uint8_t)rng_next(r);
	switch (rng_below(r, 24)) {
	case 0: ch->extra[ch->nextra++] = 0x67; break;
	case 1: ch->extra[ch->nextra++] = 0x2e; break;
	case 2: ch->extra[ch->nextra++] = 0x36; break;
	case 5: ch->extra[ch->nextra++] = 0x65; break;
	case 3:
	case 4: ch->extra[ch->nextra++] = 0xf0; break;
	default: break;
	}
}

/* Decode one choice of a template; false when it is not this mnemonic or not for us. */
static bool decode_choice(struct case_gen *g, unsigned mnemonic, const uint8_t *b, ZydisDecodedInstruction *zi,
			  ZydisDecodedOperand *ops)
{
	if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&g->dec, b, 15, zi, ops)))
		return false;
	if (zi->mnemonic != mnemonic || excluded(zi) || system_operand(zi, ops) || !g->isa[zi->meta.isa_set])
		return false;
	return !(zi->attributes & ZYDIS_ATTRIB_HAS_SEGMENT_FS);
}

static bool visible_memory(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops, unsigned *n)
{
	for (unsigned k = 0; k < zi->operand_count_visible; k++)
		if (ops[k].type == ZYDIS_OPERAND_TYPE_MEMORY) {
			*n = k;
			return true;
		}
	return false;
}

/* Of misaligned shift counts and UNPCKL operands AMD CPUs read eight bytes only, and may fault less. */
static void no_misaligned_shift(struct insn_case *ic, const ZydisDecodedInstruction *zi)
{
	const char *name = ZydisMnemonicGetString(zi->mnemonic);

	if (strncmp(name, "ps", 2) == 0 || strstr(name, "unpckl"))
		st32le(ic->in.xsave + 24, ld32le(ic->in.xsave + 24) & ~0x20000u);
}

static bool instantiate(struct case_gen *g, unsigned mnemonic, struct insn_case *ic)
{
	struct rng *r = &g->rng;
	const struct forms *fs = &g->by_mnemonic[mnemonic];
	unsigned form = rng_below(r, fs->n);
	struct form f = fs->f[form];
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	struct choice ch;
	uint8_t b[16];
	unsigned m;

	ic->form = (uint16_t)form;
	random_choice(r, &f, &ch);
	/* In forms without an opcode extension the reg field is a register: any. */
	if (rng_below(r, 2) && !f.rm)
		f.reg = (uint8_t)rng_below(r, 8);
	assemble(&f, &ch, b);
	if (!decode_choice(g, mnemonic, b, &zi, ops))
		return false;
	random_state(g, ic);
	ic->mnemonic = (uint16_t)zi.mnemonic;
	ic->len = zi.length;
	memcpy(ic->bytes, b, 15);
	ic->undefined = zi.cpu_flags ? zi.cpu_flags->undefined : 0;
	no_misaligned_shift(ic, &zi);
	ic->in.rip = CASE_CODE + 0x100 + (rng_next(r) & 0x3f);
	if (rng_below(r, 16) == 0) /* across two pages */
		ic->in.rip = CASE_CODE + 0x1000 - rng_below(r, zi.length + 1u);
	/* No branch into itself: it would loop for ever. */
	if (zi.raw.imm[0].is_relative && zi.raw.imm[0].size == 8 && (int8_t)ic->bytes[zi.raw.imm[0].offset] < 0 &&
	    (int8_t)ic->bytes[zi.raw.imm[0].offset] >= -15)
		ic->bytes[zi.raw.imm[0].offset] ^= 0x40;
	point_implied(g, ic, &zi);
	if (zi.meta.category != ZYDIS_CATEGORY_STRINGOP && visible_memory(&zi, ops, &m) &&
	    !point_memory(g, ic, &zi, &ops[m]))
		return false;
	return true;
}

static void same_bytes(struct insn_case *ic)
{
	ic->mode = 64;
	memcpy(ic->soft_bytes, ic->bytes, sizeof(ic->bytes));
	ic->soft_len = ic->len;
}

static unsigned pick_mnemonic(struct case_gen *g)
{
	return g->only ? g->only : g->list[rng_below(&g->rng, g->n)];
}

void gen_next(struct case_gen *g, struct insn_case *out)
{
	for (;;) {
		unsigned m = pick_mnemonic(g);

		for (unsigned k = 0; k < 50; k++) {
			memset(out, 0, sizeof(*out));
			if (instantiate(g, m, out)) {
				same_bytes(out);
				return;
			}
		}
	}
}

/* ---- sequences ------------------------------------------------------------------------------ */

/* Data processing only: no control flow, no implied memory, no stack frames. */
static bool plain_data(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops)
{
	switch (zi->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_RET:
	case ZYDIS_CATEGORY_PUSH:
	case ZYDIS_CATEGORY_POP:
	case ZYDIS_CATEGORY_STRINGOP: return false;
	default: break;
	}
	for (unsigned k = 0; k < zi->operand_count; k++)
		if (ops[k].type == ZYDIS_OPERAND_TYPE_MEMORY &&
		    (ops[k].visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN || ops[k].mem.type == ZYDIS_MEMOP_TYPE_VSIB))
			return false;
	return zi->mnemonic != ZYDIS_MNEMONIC_UD0 && zi->mnemonic != ZYDIS_MNEMONIC_UD1 &&
	       zi->mnemonic != ZYDIS_MNEMONIC_UD2 && zi->mnemonic != ZYDIS_MNEMONIC_ENTER &&
	       zi->mnemonic != ZYDIS_MNEMONIC_LEAVE && zi->mnemonic != ZYDIS_MNEMONIC_CLZERO;
}

/* With a count of 0 these leave the flags, and what was open about them stays open. */
static bool may_keep_flags(ZydisMnemonic m)
{
	switch (m) {
	case ZYDIS_MNEMONIC_SHL:
	case ZYDIS_MNEMONIC_SHR:
	case ZYDIS_MNEMONIC_SAR:
	case ZYDIS_MNEMONIC_SHLD:
	case ZYDIS_MNEMONIC_SHRD:
	case ZYDIS_MNEMONIC_ROL:
	case ZYDIS_MNEMONIC_ROR:
	case ZYDIS_MNEMONIC_RCL:
	case ZYDIS_MNEMONIC_RCR: return true;
	default: return false;
	}
}

static bool append(struct case_gen *g, unsigned mnemonic, struct insn_case *ic)
{
	struct rng *r = &g->rng;
	const struct forms *fs = &g->by_mnemonic[mnemonic];
	unsigned form = rng_below(r, fs->n);
	struct form f = fs->f[form];
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	struct choice ch;
	uint8_t *b = ic->bytes + ic->len;
	unsigned m;

	random_choice(r, &f, &ch);
	if (rng_below(r, 2) && !f.rm)
		f.reg = (uint8_t)rng_below(r, 8);
	ch.mod = 0;
	if (!f.mod3)
		ch.rm = 5; /* rip-relative: needs no register */
	assemble(&f, &ch, b);
	if (!decode_choice(g, mnemonic, b, &zi, ops) || !plain_data(&zi, ops))
		return false;
	/* What reads a flag that the last writer left undefined may differ and be right. */
	if (zi.cpu_flags && (zi.cpu_flags->tested & ic->undefined))
		return false;
	if (visible_memory(&zi, ops, &m)) {
		uint64_t gs = zi.attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS ? CASE_GS_BASE : 0;
		uint64_t ea = pick_address(r, MIN(ops[m].size / 8u, 512u)) - gs;
		bool relative = ops[m].mem.base != ZYDIS_REGISTER_NONE;
		uint32_t d = (uint32_t)(ea - (relative ? ic->in.rip + ic->len + zi.length : 0));

		if (zi.raw.disp.size != 32)
			return false;
		memcpy(b + zi.raw.disp.offset, &d, 4);
	}
	no_misaligned_shift(ic, &zi);
	ic->at[ic->n].off = ic->len;
	ic->at[ic->n++].undefined = ic->undefined;
	ic->len += zi.length;
	ic->mnemonic = (uint16_t)zi.mnemonic;
	ic->form = (uint16_t)form;
	if (zi.cpu_flags) {
		if (!may_keep_flags(zi.mnemonic))
			ic->undefined &= ~(zi.cpu_flags->modified | zi.cpu_flags->set_0 | zi.cpu_flags->set_1);
		ic->undefined |= zi.cpu_flags->undefined;
	}
	return true;
}

void gen_sequence(struct case_gen *g, struct insn_case *out)
{
	unsigned want = 2 + rng_below(&g->rng, 6), have = 0;

	memset(out, 0, sizeof(*out));
	random_state(g, out);
	out->in.rip = CASE_CODE + (rng_below(&g->rng, 4) ? 0x100 : 0xfd0) + rng_below(&g->rng, 0x30);
	for (unsigned tries = 0; have < want && (tries < 400 || !have); tries++)
		have += append(g, pick_mnemonic(g), out);
	out->bytes[out->len++] = 0x0f;
	out->bytes[out->len++] = 0x0b;
	out->sequence = true;
	same_bytes(out);
}

/* ---- 32- and 16-bit code ---------------------------------------------------------------------- */

/* Does `b` mean in this mode what zi and ops are in 64-bit mode? */
static bool same_meaning(const ZydisDecoder *d, const uint8_t *b, unsigned len, const ZydisDecodedInstruction *zi,
			 const ZydisDecodedOperand *ops)
{
	ZydisDecodedInstruction z2;
	ZydisDecodedOperand o2[ZYDIS_MAX_OPERAND_COUNT];

	if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(d, b, len, &z2, o2)) || z2.length != len ||
	    z2.mnemonic != zi->mnemonic || z2.operand_count != zi->operand_count || z2.meta.isa_set != zi->meta.isa_set)
		return false;
	for (unsigned k = 0; k < zi->operand_count; k++) {
		const ZydisDecodedOperand *x = &ops[k], *y = &o2[k];

		if (x->type != y->type || x->size != y->size)
			return false;
		if (x->type == ZYDIS_OPERAND_TYPE_REGISTER && x->reg.value != y->reg.value &&
		    !(x->reg.value >= ZYDIS_REGISTER_FLAGS && x->reg.value <= ZYDIS_REGISTER_RFLAGS))
			return false;
		if (x->type == ZYDIS_OPERAND_TYPE_MEMORY &&
		    (x->mem.base != y->mem.base || x->mem.index != y->mem.index ||
		     x->mem.disp.value != y->mem.disp.value || x->mem.scale != y->mem.scale))
			return false;
		if (x->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && x->imm.value.u != y->imm.value.u)
			return false;
	}
	return true;
}

/* The same instruction for another mode: with or without operand and address size prefixes. */
static bool translate_mode(const ZydisDecoder *d, struct insn_case *ic, const ZydisDecodedInstruction *zi,
			   const ZydisDecodedOperand *ops)
{
	uint8_t core[15];
	unsigned n = 0, k = 0;

	/* Size prefixes off, where they are only that. */
	for (; k < 4 && (ic->bytes[k] == 0x67 || ic->bytes[k] == 0x66); k++)
		;
	memcpy(core, ic->bytes + k, ic->len - k);
	n = ic->len - k;
	for (unsigned variant = 0; variant < 4; variant++) {
		uint8_t *b = ic->soft_bytes;
		unsigned len = 0;

		if (variant & 1)
			b[len++] = 0x66;
		if (variant & 2)
			b[len++] = 0x67;
		if (len + n > 15)
			continue;
		memcpy(b + len, core, n);
		if (same_meaning(d, b, len + n, zi, ops)) {
			ic->soft_len = (uint8_t)(len + n);
			return true;
		}
	}
	return false;
}

static bool instantiate_legacy(struct case_gen *g, unsigned mnemonic, unsigned mode, struct insn_case *ic)
{
	struct rng *r = &g->rng;
	const struct forms *fs = &g->by_mnemonic[mnemonic];
	unsigned form = rng_below(r, fs->n);
	struct form f = fs->f[form];
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecoder d;
	struct choice ch;
	unsigned m;

	ic->form = (uint16_t)form;
	random_choice(r, &f, &ch);
	if (rng_below(r, 2) && !f.rm)
		f.reg = (uint8_t)rng_below(r, 8);
	ch.rex_r = ch.rex_x = ch.rex_b = ch.evex_r2 = ch.evex_v2 = 0;
	ch.vvvv &= 7;
	if (f.space == SPACE_LEGACY)
		f.w = 0;
	if (!f.mod3 && ch.mod == 0 && (ch.rm & 7) == 5)
		return false; /* rip-relative */
	ch.nextra = 0;
	if (!f.mod3)
		ch.extra[ch.nextra++] = 0x67; /* 32-bit addresses on the host too */
	assemble(&f, &ch, ic->bytes);
	if (!decode_choice(g, mnemonic, ic->bytes, &zi, ops) || !plain_data(&zi, ops))
		return false;
	/* These act on 16 registers in 64-bit mode, on 8 elsewhere. */
	if (mnemonic == ZYDIS_MNEMONIC_VZEROALL || mnemonic == ZYDIS_MNEMONIC_VZEROUPPER)
		return false;
	ic->len = zi.length;
	random_state(g, ic);
	no_misaligned_shift(ic, &zi);
	for (unsigned k = 0; k < 16; k++)
		ic->in.gpr[k] = k < 8 ? (uint32_t)ic->in.gpr[k] : 0;
	ic->mnemonic = (uint16_t)zi.mnemonic;
	ic->undefined = zi.cpu_flags ? zi.cpu_flags->undefined : 0;
	ic->in.rip = CASE_CODE + 0x100 + (rng_next(r) & 0x3f);
	ic->mode = (uint8_t)mode;
	if (visible_memory(&zi, ops, &m) && !point_memory(g, ic, &zi, &ops[m]))
		return false;
	for (unsigned k = 0; k < 8; k++)
		ic->in.gpr[k] = (uint32_t)ic->in.gpr[k];
	/* point_memory may have patched the displacement */
	if (!decode_choice(g, mnemonic, ic->bytes, &zi, ops))
		return false;
	ZydisDecoderInit(&d, mode == 32 ? ZYDIS_MACHINE_MODE_LONG_COMPAT_32 : ZYDIS_MACHINE_MODE_LONG_COMPAT_16,
			 mode == 32 ? ZYDIS_STACK_WIDTH_32 : ZYDIS_STACK_WIDTH_16);
	ZydisDecoderEnableMode(&d, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
	ZydisDecoderEnableMode(&d, ZYDIS_DECODER_MODE_CET, ZYAN_FALSE);
	return translate_mode(&d, ic, &zi, ops);
}

void gen_legacy(struct case_gen *g, unsigned mode, struct insn_case *out)
{
	for (;;) {
		unsigned m = pick_mnemonic(g);

		for (unsigned k = 0; k < 50; k++) {
			memset(out, 0, sizeof(*out));
			if (instantiate_legacy(g, m, mode, out))
				return;
		}
	}
}

/* ---- for insn_compat.c ------------------------------------------------------------------------ */

bool gen_allowed(const struct case_gen *g, const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops)
{
	return !excluded(zi) && !system_operand(zi, ops) && g->isa[zi->meta.isa_set] &&
	       !(zi->attributes & ZYDIS_ATTRIB_HAS_SEGMENT_FS);
}

struct rng *gen_state(struct case_gen *g, struct insn_case *ic)
{
	random_state(g, ic);
	return &g->rng;
}

uint64_t gen_address(struct rng *r, unsigned size)
{
	return pick_address(r, size);
}

void gen_form_of(struct case_gen *g, const ZydisDecodedInstruction *zi, struct insn_case *ic)
{
	const struct forms *fs = &g->by_mnemonic[zi->mnemonic];

	ic->mnemonic = (uint16_t)zi->mnemonic;
	ic->form = UINT16_MAX;
	for (unsigned k = 0; k < fs->n; k++)
		if (fs->f[k].map == (uint8_t)zi->opcode_map && fs->f[k].opcode == zi->opcode &&
		    fs->f[k].mod3 == (zi->raw.modrm.mod == 3) && fs->f[k].reg == zi->raw.modrm.reg) {
			ic->form = (uint16_t)k;
			return;
		}
}
