/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Machine code to struct insn, by Zydis, in the mode of the CPU (64, 32 or 16
 * bits). Chooses the handler: the interpreter's own tables first, then the
 * system part's, then the host stub for instructions that only process data.
 * AMD64 APM volume 3, Intel SDM volume 2. Tables are filled once; afterwards
 * everything here is read-only and any thread may decode.
 */
#include "cpu/soft/insn.h"
#include <cpuid.h>
#include <errno.h>
#include "base/log.h"
#include "cpu/soft/ops.h"

enum decode_mode { MODE_16, MODE_32, MODE_64, DECODE_MODES };

/* The second index says what the CPU model has: enum decode_variant bits. */
enum decode_variant { VARIANT_AMD = 1, VARIANT_LZCNT = 2, VARIANT_TZCNT = 4, VARIANTS = 8 };
static ZydisDecoder decoders[DECODE_MODES][VARIANTS];
struct handler {
	insn_fn *fn;
	insn_fn *(*select)(const struct insn *i);
	bool ends;
};
static struct handler handlers[ZYDIS_MNEMONIC_MAX_VALUE + 1];
static bool host_is_amd;
static pthread_once_t decode_once = PTHREAD_ONCE_INIT;

static void decoder_setup(ZydisDecoder *d, ZydisMachineMode mode, ZydisStackWidth width, unsigned variant)
{
	/* Modes Zydis turns on for CPUs that have the feature; ours read these opcodes as NOPs. */
	static const ZydisDecoderMode off[] = {ZYDIS_DECODER_MODE_MPX, ZYDIS_DECODER_MODE_CET,
					       ZYDIS_DECODER_MODE_CLDEMOTE};

	BUG_ON(!ZYAN_SUCCESS(ZydisDecoderInit(d, mode, width)));
	for (unsigned k = 0; k < ARRAY_SIZE(off); k++)
		ZydisDecoderEnableMode(d, off[k], ZYAN_FALSE);
	ZydisDecoderEnableMode(d, ZYDIS_DECODER_MODE_AMD_BRANCHES, (variant & VARIANT_AMD) != 0);
	/* F3 0F BD/BC are BSR and BSF on a CPU without them: what is not there must not be named. */
	ZydisDecoderEnableMode(d, ZYDIS_DECODER_MODE_LZCNT, (variant & VARIANT_LZCNT) != 0);
	ZydisDecoderEnableMode(d, ZYDIS_DECODER_MODE_TZCNT, (variant & VARIANT_TZCNT) != 0);
}

static void handlers_add(const struct ops_entry *e)
{
	for (; e->mnemonic != ZYDIS_MNEMONIC_INVALID; e++) {
		BUG_ON(handlers[e->mnemonic].fn);
		handlers[e->mnemonic].fn = e->fn;
		handlers[e->mnemonic].select = e->select;
	}
}

static void decode_setup(void)
{
	static const struct ops_entry *const tables[] = {ops_move_table,   ops_alu_table,   ops_branch_table,
							 ops_string_table, ops_bit_table,   ops_vec_table,
							 ops_misc_table,   ops_legacy_table};

	host_is_amd = __builtin_cpu_is("amd");
	for (unsigned v = 0; v < VARIANTS; v++) {
		decoder_setup(&decoders[MODE_16][v], ZYDIS_MACHINE_MODE_LONG_COMPAT_16, ZYDIS_STACK_WIDTH_16, v);
		decoder_setup(&decoders[MODE_32][v], ZYDIS_MACHINE_MODE_LONG_COMPAT_32, ZYDIS_STACK_WIDTH_32, v);
		decoder_setup(&decoders[MODE_64][v], ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64, v);
	}
	for (unsigned k = 0; k < ARRAY_SIZE(tables); k++)
		handlers_add(tables[k]);
	/* The system part's view wins only where the interpreter has none. */
	for (const struct insn_handler *h = sys_handlers; h->mnemonic != ZYDIS_MNEMONIC_INVALID; h++)
		if (!handlers[h->mnemonic].fn) {
			handlers[h->mnemonic].fn = h->fn;
			handlers[h->mnemonic].ends = true;
		}
}

static const ZydisDecoder *decoder_for(const struct soft_cpu *c, enum decode_mode m)
{
	const struct decode_info *info = interp_decode_info(c);

	return &decoders[m][(info->amd_branches ? VARIANT_AMD : 0) | (info->lzcnt ? VARIANT_LZCNT : 0) |
			    (info->isa[ZYDIS_ISA_SET_BMI1] ? VARIANT_TZCNT : 0)];
}

static const ZydisDecoder *decoder_of(const struct soft_cpu *c)
{
	return decoder_for(c, c->mode_key & SOFT_KEY_LONG64   ? MODE_64
			      : c->mode_key & SOFT_KEY_CODE32 ? MODE_32
							      : MODE_16);
}

const ZydisDecoder *insn_decoder64(const struct soft_cpu *c)
{
	pthread_once(&decode_once, decode_setup);
	return decoder_for(c, MODE_64);
}

const ZydisDecoder *insn_decoder32(const struct soft_cpu *c)
{
	pthread_once(&decode_once, decode_setup);
	return decoder_for(c, MODE_32);
}

/* ---- operands --------------------------------------------------------------- */

static void operand_reg(struct operand *o, ZydisRegister r)
{
	static const struct {
		ZydisRegister first, last;
		uint8_t kind, sub, add;
	} classes[] = {
	    {ZYDIS_REGISTER_AL, ZYDIS_REGISTER_BL, OPD_REG, 0, 0},
	    {ZYDIS_REGISTER_AH, ZYDIS_REGISTER_BH, OPD_REG_HIGH, 0, 0},
	    {ZYDIS_REGISTER_SPL, ZYDIS_REGISTER_R15B, OPD_REG, 0, 4},
	    {ZYDIS_REGISTER_AX, ZYDIS_REGISTER_R15W, OPD_REG, 0, 0},
	    {ZYDIS_REGISTER_EAX, ZYDIS_REGISTER_R15D, OPD_REG, 0, 0},
	    {ZYDIS_REGISTER_RAX, ZYDIS_REGISTER_R15, OPD_REG, 0, 0},
	    {ZYDIS_REGISTER_ES, ZYDIS_REGISTER_GS, OPD_SREG, 0, 0},
	    {ZYDIS_REGISTER_CR0, ZYDIS_REGISTER_CR15, OPD_CR, 0, 0},
	    {ZYDIS_REGISTER_DR0, ZYDIS_REGISTER_DR15, OPD_DR, 0, 0},
	    {ZYDIS_REGISTER_XMM0, ZYDIS_REGISTER_XMM31, OPD_VEC, 0, 0},
	    {ZYDIS_REGISTER_YMM0, ZYDIS_REGISTER_YMM31, OPD_VEC, 0, 0},
	    {ZYDIS_REGISTER_ZMM0, ZYDIS_REGISTER_ZMM31, OPD_VEC, 0, 0},
	    {ZYDIS_REGISTER_MM0, ZYDIS_REGISTER_MM7, OPD_VEC, 0, 0},
	    {ZYDIS_REGISTER_ST0, ZYDIS_REGISTER_ST7, OPD_VEC, 0, 0},
	    {ZYDIS_REGISTER_K0, ZYDIS_REGISTER_K7, OPD_VEC, 0, 0},
	};

	o->kind = OPD_VEC;
	for (unsigned k = 0; k < ARRAY_SIZE(classes); k++)
		if (r >= classes[k].first && r <= classes[k].last) {
			o->kind = classes[k].kind;
			o->reg = (uint8_t)(r - classes[k].first + classes[k].add);
			return;
		}
}

/* Number of an address register of 16, 32 or 64 bits; vector index numbers for VSIB. */
static uint8_t address_reg(ZydisRegister r)
{
	if (r == ZYDIS_REGISTER_NONE)
		return INSN_NO_REG;
	if (r == ZYDIS_REGISTER_RIP || r == ZYDIS_REGISTER_EIP)
		return INSN_BASE_RIP;
	if (r >= ZYDIS_REGISTER_RAX && r <= ZYDIS_REGISTER_R15)
		return (uint8_t)(r - ZYDIS_REGISTER_RAX);
	if (r >= ZYDIS_REGISTER_EAX && r <= ZYDIS_REGISTER_R15D)
		return (uint8_t)(r - ZYDIS_REGISTER_EAX);
	if (r >= ZYDIS_REGISTER_AX && r <= ZYDIS_REGISTER_R15W)
		return (uint8_t)(r - ZYDIS_REGISTER_AX);
	if (r >= ZYDIS_REGISTER_XMM0 && r <= ZYDIS_REGISTER_ZMM31)
		return (uint8_t)((r - ZYDIS_REGISTER_XMM0) & 31);
	return INSN_NO_REG;
}

static void decode_mem(struct insn *i, const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *o)
{
	i->mem_base = address_reg(o->mem.base);
	i->mem_index = address_reg(o->mem.index);
	i->mem_scale =
	    o->mem.index == ZYDIS_REGISTER_NONE ? 0 : (uint8_t)__builtin_ctz(o->mem.scale ? o->mem.scale : 1);
	i->disp = o->mem.disp.value;
	/* Zydis 4.0 takes R13D for "no base" when REX.B meets an address size prefix. */
	if ((zi->attributes & ZYDIS_ATTRIB_HAS_SIB) && zi->raw.modrm.mod == 0 && zi->raw.sib.base == 5) {
		i->mem_base = INSN_NO_REG;
		i->disp = zi->raw.disp.value;
	}
	if (o->mem.segment >= ZYDIS_REGISTER_ES && o->mem.segment <= ZYDIS_REGISTER_GS)
		i->mem_seg = (uint8_t)(o->mem.segment - ZYDIS_REGISTER_ES);
	i->mem_size = o->size / 8;
}

static void decode_visible(struct insn *i, const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops)
{
	bool have_imm = false;

	for (unsigned k = 0; k < zi->operand_count_visible; k++) {
		const ZydisDecodedOperand *z = &ops[k];
		struct operand scratch = {0}, *o = k < ARRAY_SIZE(i->op) ? &i->op[k] : &scratch;

		o->size = z->size / 8 <= 64 ? (uint8_t)(z->size / 8) : 0;
		o->read = z->actions & ZYDIS_OPERAND_ACTION_MASK_READ;
		o->write = z->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
		switch (z->type) {
		case ZYDIS_OPERAND_TYPE_REGISTER: operand_reg(o, z->reg.value); break;
		case ZYDIS_OPERAND_TYPE_MEMORY:
			o->kind = OPD_MEM;
			i->mem_op = (uint8_t)k;
			decode_mem(i, zi, z);
			break;
		case ZYDIS_OPERAND_TYPE_POINTER:
			o->kind = OPD_IMM;
			i->imm = z->ptr.offset;
			i->imm2 = z->ptr.segment;
			break;
		case ZYDIS_OPERAND_TYPE_IMMEDIATE:
			o->kind = OPD_IMM;
			if (have_imm)
				i->imm2 = (uint16_t)z->imm.value.u;
			else
				i->imm = z->imm.value.u;
			have_imm = true;
			break;
		default: break;
		}
	}
	i->nops = MIN(zi->operand_count_visible, (uint8_t)ARRAY_SIZE(i->op));
}

static bool is_maskmov(const ZydisDecodedInstruction *zi)
{
	return zi->mnemonic == ZYDIS_MNEMONIC_MASKMOVQ || zi->mnemonic == ZYDIS_MNEMONIC_MASKMOVDQU ||
	       zi->mnemonic == ZYDIS_MNEMONIC_VMASKMOVDQU;
}

/*
 * String instructions, XLAT and MASKMOV have their memory operand implied; only its segment can be chosen, and not that
 * of a string's destination. The source's may be ES too.
 */
static void decode_hidden_mem(struct insn *i, const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops)
{
	for (unsigned k = 0; k < zi->operand_count; k++) {
		const ZydisDecodedOperand *z = &ops[k];
		unsigned base;

		if (z->type != ZYDIS_OPERAND_TYPE_MEMORY)
			continue;
		base = address_reg(z->mem.base);
		if (base == R_RSP || (base == R_RDI && !is_maskmov(zi)) || base == INSN_NO_REG)
			continue;
		if (z->mem.segment >= ZYDIS_REGISTER_ES && z->mem.segment <= ZYDIS_REGISTER_GS)
			i->mem_seg = (uint8_t)(z->mem.segment - ZYDIS_REGISTER_ES);
	}
}

/* ---- rights and alignment ----------------------------------------------------- */

static bool uses_reg_range(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops, ZydisRegister first,
			   ZydisRegister last)
{
	for (unsigned k = 0; k < zi->operand_count; k++)
		if (ops[k].type == ZYDIS_OPERAND_TYPE_REGISTER && ops[k].reg.value >= first && ops[k].reg.value <= last)
			return true;
	return false;
}

static enum insn_gate gate_of(const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *ops)
{
	ZydisISASet set = zi->meta.isa_set;

	if (zi->mnemonic == ZYDIS_MNEMONIC_FWAIT)
		return GATE_FWAIT;
	if (zi->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX || zi->meta.category == ZYDIS_CATEGORY_KMASK)
		return GATE_AVX512;
	if (set == ZYDIS_ISA_SET_BMI1 || set == ZYDIS_ISA_SET_BMI2 || set == ZYDIS_ISA_SET_TBM)
		return GATE_NONE;
	if (zi->encoding == ZYDIS_INSTRUCTION_ENCODING_VEX || zi->encoding == ZYDIS_INSTRUCTION_ENCODING_XOP)
		return GATE_AVX;
	if (set == ZYDIS_ISA_SET_X87 || set == ZYDIS_ISA_SET_FCMOV || set == ZYDIS_ISA_SET_SSE3X87 ||
	    zi->meta.isa_ext == ZYDIS_ISA_EXT_X87 || uses_reg_range(zi, ops, ZYDIS_REGISTER_ST0, ZYDIS_REGISTER_X87TAG))
		return GATE_X87;
	switch (zi->mnemonic) { /* from memory they name no XMM register */
	case ZYDIS_MNEMONIC_CVTSS2SI:
	case ZYDIS_MNEMONIC_CVTSD2SI:
	case ZYDIS_MNEMONIC_CVTTSS2SI:
	case ZYDIS_MNEMONIC_CVTTSD2SI: return GATE_SSE;
	default: break;
	}
	if (uses_reg_range(zi, ops, ZYDIS_REGISTER_XMM0, ZYDIS_REGISTER_ZMM31) || set == ZYDIS_ISA_SET_SSEMXCSR)
		return GATE_SSE;
	if (uses_reg_range(zi, ops, ZYDIS_REGISTER_MM0, ZYDIS_REGISTER_MM7) || zi->mnemonic == ZYDIS_MNEMONIC_EMMS ||
	    zi->mnemonic == ZYDIS_MNEMONIC_FEMMS)
		return GATE_MMX;
	return GATE_NONE;
}

bool insn_shifts(ZydisMnemonic mnemonic)
{
	switch (mnemonic) {
	case ZYDIS_MNEMONIC_SHL:
	case ZYDIS_MNEMONIC_SHR:
	case ZYDIS_MNEMONIC_SAR:
	case ZYDIS_MNEMONIC_ROL:
	case ZYDIS_MNEMONIC_ROR:
	case ZYDIS_MNEMONIC_RCL:
	case ZYDIS_MNEMONIC_RCR:
	case ZYDIS_MNEMONIC_SHLD:
	case ZYDIS_MNEMONIC_SHRD: return true;
	default: return false;
	}
}

uint8_t insn_align(const ZydisDecodedInstruction *zi, unsigned mem_size)
{
	/* AMD's SHA instructions take any alignment (seen on the host the tests run on; Intel's manual says #GP). */
	if (zi->meta.isa_set == ZYDIS_ISA_SET_SHA && host_is_amd)
		return 0;
	switch (zi->mnemonic) {
	case ZYDIS_MNEMONIC_CMPXCHG16B: return 16;
	case ZYDIS_MNEMONIC_CVTPD2PI:
	case ZYDIS_MNEMONIC_CVTTPD2PI: return 16;
	/* In exception class 4 by their other rules, but made for unaligned data. */
	case ZYDIS_MNEMONIC_MOVUPS:
	case ZYDIS_MNEMONIC_MOVUPD:
	case ZYDIS_MNEMONIC_MOVDQU:
	case ZYDIS_MNEMONIC_LDDQU:
	case ZYDIS_MNEMONIC_PCMPESTRI:
	case ZYDIS_MNEMONIC_PCMPESTRM:
	case ZYDIS_MNEMONIC_PCMPISTRI:
	case ZYDIS_MNEMONIC_PCMPISTRM: return 0;
	default: break;
	}
	switch (zi->meta.exception_class) {
	case ZYDIS_EXCEPTION_CLASS_SSE1:
	case ZYDIS_EXCEPTION_CLASS_SSE2:
	case ZYDIS_EXCEPTION_CLASS_SSE4: return mem_size == 16 ? 16 : 0;
	case ZYDIS_EXCEPTION_CLASS_AVX1:
	case ZYDIS_EXCEPTION_CLASS_E1:
	case ZYDIS_EXCEPTION_CLASS_E1NF: return (uint8_t)mem_size;
	default: return 0;
	}
}

int insn_gate_check(struct soft_cpu *c, enum insn_gate gate)
{
	static const uint64_t xcr0_need[] = {[GATE_AVX] = 6, [GATE_AVX512] = 0xe6};
	uint64_t cr0 = c->s.cr0;

	switch (gate) {
	case GATE_NONE: return 0;
	case GATE_X87: return cr0 & (CR0_TS | CR0_EM) ? soft_raise(c, EXC_NM) : 0;
	case GATE_FWAIT: return (cr0 & (CR0_TS | CR0_MP)) == (CR0_TS | CR0_MP) ? soft_raise(c, EXC_NM) : 0;
	case GATE_MMX:
		if (cr0 & CR0_EM)
			return soft_raise(c, EXC_UD);
		break;
	case GATE_SSE:
		if ((cr0 & CR0_EM) || !(c->s.cr4 & CR4_OSFXSR))
			return soft_raise(c, EXC_UD);
		break;
	case GATE_AVX:
	case GATE_AVX512:
		if (!(c->s.cr4 & CR4_OSXSAVE) || (c->s.xcr0 & xcr0_need[gate]) != xcr0_need[gate] ||
		    (c->mode_key & SOFT_KEY_REAL))
			return soft_raise(c, EXC_UD);
		break;
	}
	return cr0 & CR0_TS ? soft_raise(c, EXC_NM) : 0;
}

int insn_undefined(struct soft_cpu *c, const struct insn *i)
{
	return soft_raise(c, EXC_UD);
}

/* Known to Zydis and not to us: say so once per kind, the guest sees an undefined opcode. */
static int insn_unknown(struct soft_cpu *c, const struct insn *i)
{
	if (log_on(LOG_UNIMP))
		log_diag(LOG_UNIMP, "instruction %s at %#llx is not implemented",
			 ZydisMnemonicGetString((ZydisMnemonic)i->mnemonic), (unsigned long long)c->s.rip);
	return soft_raise(c, EXC_UD);
}

static void choose_handler(struct soft_cpu *c, struct insn *i, const ZydisDecodedInstruction *zi,
			   const ZydisDecodedOperand *ops)
{
	insn_fn *fn = NULL;

	/* The prefetch opcode with a register: NOP to Intel, undefined to AMD. */
	bool amd_undefined = interp_decode_info(c)->amd_branches && zi->opcode_map == ZYDIS_OPCODE_MAP_0F &&
			     zi->opcode == 0x0d && zi->raw.modrm.mod == 3;

	if (!interp_decode_info(c)->isa[zi->meta.isa_set] || amd_undefined ||
	    ((zi->attributes & (ZYDIS_ATTRIB_HAS_VEX | ZYDIS_ATTRIB_HAS_EVEX | ZYDIS_ATTRIB_HAS_XOP)) &&
	     (c->mode_key & SOFT_KEY_REAL))) {
		i->exec = insn_undefined;
		return;
	}
	if (handlers[i->mnemonic].select)
		/* cppcheck-suppress AssignmentIntegerToAddress */
		fn = handlers[i->mnemonic].select(i);
	if (!fn)
		fn = handlers[i->mnemonic].fn;
	if (!fn && stub_eligible(zi, ops))
		fn = stub_exec_first;
	i->exec = fn ? fn : insn_unknown;
}

int insn_decode_full(const struct soft_cpu *c, const struct insn *i, ZydisDecodedInstruction *zi,
		     ZydisDecodedOperand *ops)
{
	return ZYAN_SUCCESS(ZydisDecoderDecodeFull(decoder_of(c), i->bytes, i->length, zi, ops)) ? 0 : -EINVAL;
}

/* F3 90 is PAUSE, but with REX.B it stays XCHG with R8, which Zydis 4.0 does not see. */
static bool xchg_not_pause(const ZydisDecodedInstruction *zi, struct insn *out)
{
	if (zi->mnemonic != ZYDIS_MNEMONIC_PAUSE || !(zi->attributes & ZYDIS_ATTRIB_HAS_REX) || !zi->raw.rex.B)
		return false;
	out->mnemonic = ZYDIS_MNEMONIC_XCHG;
	out->opsize = zi->raw.rex.W ? 8 : zi->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE ? 2 : 4;
	out->nops = 2;
	out->op[0] = (struct operand){.kind = OPD_REG, .reg = R_R8, .size = out->opsize, .read = true, .write = true};
	out->op[1] = (struct operand){.kind = OPD_REG, .reg = R_RAX, .size = out->opsize, .read = true, .write = true};
	/* cppcheck-suppress AssignmentIntegerToAddress */
	out->exec = handlers[ZYDIS_MNEMONIC_XCHG].select(out);
	return true;
}

static bool is_vsib(const ZydisDecodedOperand *ops, unsigned n)
{
	for (unsigned k = 0; k < n; k++)
		if (ops[k].type == ZYDIS_OPERAND_TYPE_MEMORY && ops[k].mem.type == ZYDIS_MEMOP_TYPE_VSIB)
			return true;
	return false;
}

/* RETF is RET to Zydis. */
static bool far_return(const ZydisDecodedInstruction *zi)
{
	return zi->mnemonic == ZYDIS_MNEMONIC_RET && (zi->opcode == 0xca || zi->opcode == 0xcb);
}

int insn_decode(struct soft_cpu *c, const uint8_t *buf, unsigned len, uint64_t rip, struct insn *out)
{
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	ZyanStatus st;

	pthread_once(&decode_once, decode_setup);
	st = ZydisDecoderDecodeFull(decoder_of(c), buf, MIN(len, 15u), &zi, ops);
	if (!ZYAN_SUCCESS(st)) {
		if (st == ZYDIS_STATUS_NO_MORE_DATA)
			return len < 15 ? -EAGAIN : -E2BIG;
		return st == ZYDIS_STATUS_INSTRUCTION_TOO_LONG ? -E2BIG : -EINVAL;
	}
	memset(out, 0, sizeof(*out));
	out->mnemonic = (uint16_t)zi.mnemonic;
	out->length = zi.length;
	memcpy(out->bytes, buf, zi.length);
	out->opsize = zi.operand_width / 8;
	out->addrsize = zi.address_width / 8;
	if (zi.attributes & ZYDIS_ATTRIB_HAS_LOCK)
		out->prefixes |= INSN_LOCK;
	if (zi.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE))
		out->prefixes |= INSN_REP;
	if (zi.attributes & ZYDIS_ATTRIB_HAS_REPNE)
		out->prefixes |= INSN_REPNE;
	out->mem_base = out->mem_index = out->mem_op = INSN_NO_REG;
	out->mem_seg = S_DS;
	decode_visible(out, &zi, ops);
	if (out->mem_op == INSN_NO_REG)
		decode_hidden_mem(out, &zi, ops);
	if (zi.cpu_flags) {
		out->flags_read = zi.cpu_flags->tested;
		out->flags_written =
		    zi.cpu_flags->modified | zi.cpu_flags->set_0 | zi.cpu_flags->set_1 | zi.cpu_flags->undefined;
	}
	out->gate = (uint8_t)gate_of(&zi, ops);
	if (zi.operand_count_visible > 1 && is_vsib(ops, zi.operand_count_visible)) {
		out->kind = (uint8_t)(zi.avx.vector_length / 8); /* ops_vec.c wants it in bytes */
		out->imm2 = (uint16_t)(zi.avx.mask.reg - ZYDIS_REGISTER_K0);
	}
	/* AMD: a near branch with an operand size prefix keeps 16 bits of the target, unless REX.W. */
	if (interp_decode_info(c)->amd_branches && zi.meta.branch_type != ZYDIS_BRANCH_TYPE_NONE &&
	    zi.machine_mode == ZYDIS_MACHINE_MODE_LONG_64 && (zi.attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE) &&
	    !zi.raw.rex.W)
		out->opsize = 2;
	if (out->mem_op != INSN_NO_REG) {
		out->mem_align = insn_align(&zi, out->mem_size);
		out->align_mm = zi.meta.exception_class != ZYDIS_EXCEPTION_CLASS_SSE1 &&
				(out->gate == GATE_SSE || out->gate == GATE_MMX);
	}
	out->far_branch = zi.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR || far_return(&zi);
	out->ends = zi.meta.branch_type != ZYDIS_BRANCH_TYPE_NONE || handlers[zi.mnemonic].ends;
	if (!xchg_not_pause(&zi, out))
		choose_handler(c, out, &zi, ops);
	return 0;
}
