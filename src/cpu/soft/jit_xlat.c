/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Translation of a block: decode until control surely leaves (or something only
 * the interpreter does), find which flags are needed where, lower each
 * instruction. A block goes on behind conditional branches that are not taken,
 * so it has one entry and several exits.
 */
#include "cpu/soft/jit_xlat.h"

#include "cpu/soft/ops.h"
#include "io/vmclock.h"

#define PEEK_INSNS 10
#define PEEK_DEPTH 2

const int8_t jit_home[16] = {
    [R_RAX] = H_R11, [R_RCX] = H_R14, [R_RDX] = H_RDX,	[R_RBX] = H_RBX, [R_RSP] = H_R15, [R_RBP] = H_RBP,
    [R_RSI] = H_RSI, [R_RDI] = H_RDI, [R_R8] = H_R8,	[R_R9] = H_R9,	 [R_R10] = H_R10, [R_R11] = H_NONE,
    [R_R12] = H_R12, [R_R13] = H_R13, [R_R14] = H_NONE, [R_R15] = H_NONE};

int x_gpr(ZydisRegister r, unsigned *size, bool *high)
{
	*high = false;
	if (r >= ZYDIS_REGISTER_AL && r <= ZYDIS_REGISTER_R15B) {
		int n = (int)(r - ZYDIS_REGISTER_AL);

		*size = 1;
		if (n >= 4 && n < 8) {
			*high = true;
			return n - 4;
		}
		return n < 4 ? n : n - 4;
	}
	if (r >= ZYDIS_REGISTER_AX && r <= ZYDIS_REGISTER_R15W) {
		*size = 2;
		return (int)(r - ZYDIS_REGISTER_AX);
	}
	if (r >= ZYDIS_REGISTER_EAX && r <= ZYDIS_REGISTER_R15D) {
		*size = 4;
		return (int)(r - ZYDIS_REGISTER_EAX);
	}
	if (r >= ZYDIS_REGISTER_RAX && r <= ZYDIS_REGISTER_R15) {
		*size = 8;
		return (int)(r - ZYDIS_REGISTER_RAX);
	}
	return -1;
}

/* ---- decoding ------------------------------------------------------------- */

/* How an instruction is lowered, by mnemonic. Order does not matter; not listed: unsupported. */
static const struct {
	uint16_t mnemonic;
	uint8_t kind;
} kinds[] = {
#define G(m)                                                                                                           \
	{                                                                                                              \
		ZYDIS_MNEMONIC_##m, K_GENERIC                                                                          \
	}
    G(MOV),
    G(MOVZX),
    G(MOVSX),
    G(MOVSXD),
    G(ADD),
    G(ADC),
    G(SUB),
    G(SBB),
    G(AND),
    G(OR),
    G(XOR),
    G(CMP),
    G(TEST),
    G(NOT),
    G(NEG),
    G(INC),
    G(DEC),
    G(SHL),
    G(SHR),
    G(SAR),
    G(ROL),
    G(ROR),
    G(RCL),
    G(RCR),
    G(SHLD),
    G(SHRD),
    G(IMUL),
    G(BSWAP),
    G(XCHG),
    G(XADD),
    G(BT),
    G(BTS),
    G(BTR),
    G(BTC),
    G(BSF),
    G(BSR),
    G(LZCNT),
    G(TZCNT),
    G(POPCNT),
    G(ANDN),
    G(BEXTR),
    G(BLSI),
    G(BLSMSK),
    G(BLSR),
    G(BZHI),
    G(PDEP),
    G(PEXT),
    G(RORX),
    G(SARX),
    G(SHLX),
    G(SHRX),
    G(MULX),
    G(ADCX),
    G(ADOX),
    G(CRC32),
    G(MOVBE),
    G(MOVNTI),
    G(SETB),
    G(SETBE),
    G(SETL),
    G(SETLE),
    G(SETNB),
    G(SETNBE),
    G(SETNL),
    G(SETNLE),
    G(SETNO),
    G(SETNP),
    G(SETNS),
    G(SETNZ),
    G(SETO),
    G(SETP),
    G(SETS),
    G(SETZ),
    G(CMOVB),
    G(CMOVBE),
    G(CMOVL),
    G(CMOVLE),
    G(CMOVNB),
    G(CMOVNBE),
    G(CMOVNL),
    G(CMOVNLE),
    G(CMOVNO),
    G(CMOVNP),
    G(CMOVNS),
    G(CMOVNZ),
    G(CMOVO),
    G(CMOVP),
    G(CMOVS),
    G(CMOVZ),
#undef G
#define K(m, k)                                                                                                        \
	{                                                                                                              \
		ZYDIS_MNEMONIC_##m, k                                                                                  \
	}
    K(CMC, K_RAW),
    K(CLC, K_RAW),
    K(STC, K_RAW),
    K(LFENCE, K_RAW),
    K(MFENCE, K_RAW),
    K(SFENCE, K_RAW),
    K(NOP, K_NOP),
    K(PAUSE, K_NOP),
    K(ENDBR64, K_NOP),
    K(ENDBR32, K_NOP),
    K(PREFETCH, K_NOP),
    K(PREFETCHNTA, K_NOP),
    K(PREFETCHT0, K_NOP),
    K(PREFETCHT1, K_NOP),
    K(PREFETCHT2, K_NOP),
    K(PREFETCHW, K_NOP),
    K(PREFETCHWT1, K_NOP),
    K(CLI, K_CLI),
    K(STI, K_STI),
    K(PUSHFQ, K_PUSHF),
    K(SWAPGS, K_SWAPGS),
    K(STAC, K_STAC),
    K(CLAC, K_STAC),
    K(RDTSC, K_RDTSC),
    K(RDTSCP, K_RDTSC),
    K(LEA, K_LEA),
    K(PUSH, K_PUSH),
    K(POP, K_POP),
    K(LEAVE, K_LEAVE),
    K(MUL, K_MUL),
    K(DIV, K_DIV),
    K(IDIV, K_DIV),
    K(CMPXCHG, K_CMPXCHG),
    K(CMPXCHG16B, K_CMPXCHG16B),
    K(CMPXCHG8B, K_CMPXCHG16B),
    K(CBW, K_CBW),
    K(CWDE, K_CBW),
    K(CDQE, K_CBW),
    K(CWD, K_CWD),
    K(CDQ, K_CWD),
    K(CQO, K_CWD),
    K(LAHF, K_LAHF),
    K(SAHF, K_SAHF),
    K(CLD, K_CLD),
    K(JB, K_JCC),
    K(JBE, K_JCC),
    K(JL, K_JCC),
    K(JLE, K_JCC),
    K(JNB, K_JCC),
    K(JNBE, K_JCC),
    K(JNL, K_JCC),
    K(JNLE, K_JCC),
    K(JNO, K_JCC),
    K(JNP, K_JCC),
    K(JNS, K_JCC),
    K(JNZ, K_JCC),
    K(JO, K_JCC),
    K(JP, K_JCC),
    K(JS, K_JCC),
    K(JZ, K_JCC),
    K(JRCXZ, K_JRCXZ),
    K(LOOP, K_LOOP),
    K(JMP, K_JMP),
    K(CALL, K_CALL),
    K(RET, K_RET),
#undef K
};

static uint8_t kind_of[ZYDIS_MNEMONIC_MAX_VALUE + 1];

/* Instruction sets of vector and x87 instructions that run as they are when guest and host have them. */
static bool vec_set[ISA_SETS];

static void vec_sets_fill(void)
{
	static const char *const prefix[] = {"SSE",	"AVX",	"FMA", "F16C", "AES",	"VAES",	      "PCLMUL",
					     "VPCLMUL", "GFNI", "SHA", "X87",  "FCMOV", "PENTIUMMMX", "MMX"};

	for (unsigned i = 0; i < ISA_SETS; i++) {
		const char *name = ZydisISASetGetString((ZydisISASet)i);

		for (unsigned k = 0; name && k < ARRAY_SIZE(prefix); k++)
			vec_set[i] |= !strncmp(name, prefix[k], strlen(prefix[k]));
		if (name && (!strcmp(name, "FMA4") || !strncmp(name, "AVX512ER", 8) || !strncmp(name, "AVX512PF", 8)))
			vec_set[i] = false;
	}
}

static void kinds_fill(void)
{
	vec_sets_fill();
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++)
		kind_of[kinds[i].mnemonic] = kinds[i].kind;
}

static bool vec_register(ZydisRegister r)
{
	switch (ZydisRegisterGetClass(r)) {
	case ZYDIS_REGCLASS_X87:
	case ZYDIS_REGCLASS_MMX:
	case ZYDIS_REGCLASS_XMM:
	case ZYDIS_REGCLASS_YMM:
	case ZYDIS_REGCLASS_ZMM:
	case ZYDIS_REGCLASS_MASK: return true;
	default:
		return r == ZYDIS_REGISTER_MXCSR || r == ZYDIS_REGISTER_X87CONTROL || r == ZYDIS_REGISTER_X87STATUS ||
		       r == ZYDIS_REGISTER_X87TAG;
	}
}

static bool operands_movable(const struct xinsn *in)
{
	for (unsigned i = 0; i < in->zi.operand_count; i++) {
		const ZydisDecodedOperand *o = &in->op[i];
		unsigned size;
		bool high;

		if (o->type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
			continue;
		if (o->type == ZYDIS_OPERAND_TYPE_MEMORY) {
			if (o->encoding != ZYDIS_OPERAND_ENCODING_MODRM_RM)
				return false;
			continue;
		}
		if (o->type != ZYDIS_OPERAND_TYPE_REGISTER)
			return false;
		if (o->reg.value == ZYDIS_REGISTER_RFLAGS || o->reg.value == ZYDIS_REGISTER_EFLAGS ||
		    o->reg.value == ZYDIS_REGISTER_FLAGS)
			continue;
		if (in->vec && vec_register(o->reg.value))
			continue;
		if (x_gpr(o->reg.value, &size, &high) < 0)
			return false;
		switch (o->encoding) {
		case ZYDIS_OPERAND_ENCODING_MODRM_REG:
		case ZYDIS_OPERAND_ENCODING_MODRM_RM:
		case ZYDIS_OPERAND_ENCODING_NDSNDD:
		case ZYDIS_OPERAND_ENCODING_OPCODE: continue;
		default: break;
		}
		/* The shift count, and what has its own home. */
		if (o->reg.value != ZYDIS_REGISTER_CL && o->reg.value != ZYDIS_REGISTER_RDX &&
		    o->reg.value != ZYDIS_REGISTER_EDX)
			return false;
	}
	return true;
}

static bool high_byte(const ZydisDecodedOperand *o)
{
	return o->type == ZYDIS_OPERAND_TYPE_REGISTER && o->reg.value >= ZYDIS_REGISTER_AH &&
	       o->reg.value <= ZYDIS_REGISTER_BH;
}

static uint8_t generic_kind(const struct xinsn *in)
{
	if (in->zi.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && in->zi.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY) {
		unsigned opc = in->zi.opcode;

		if ((opc < 0x40 && (opc & 6) == 4) || opc == 0xa8 || opc == 0xa9)
			return K_ACC_IMM;
		if (opc >= 0x91 && opc <= 0x97)
			return K_XCHG_ACC;
		if (opc == 0x90)
			return in->zi.mnemonic == ZYDIS_MNEMONIC_XCHG ? K_XCHG_ACC : K_NOP;
		if (opc >= 0xa0 && opc <= 0xa3)
			return K_MOFFS;
	}
	if (in->zi.mnemonic == ZYDIS_MNEMONIC_IMUL && in->zi.operand_count_visible == 1)
		return high_byte(&in->op[0]) ? K_UNSUPPORTED : K_MUL;
	if (in->mem >= 0 && in->op[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    (in->zi.mnemonic == ZYDIS_MNEMONIC_BT || in->zi.mnemonic == ZYDIS_MNEMONIC_BTS ||
	     in->zi.mnemonic == ZYDIS_MNEMONIC_BTR || in->zi.mnemonic == ZYDIS_MNEMONIC_BTC))
		return in->op[1].size >= 32 ? K_BT_MEM : K_UNSUPPORTED;
	return operands_movable(in) ? K_GENERIC : K_UNSUPPORTED;
}

/* Which alignment a memory operand of a vector instruction must have. */
static uint8_t vec_alignment(const struct xinsn *in)
{
	if (in->mem < 0)
		return 0;
	switch (in->zi.mnemonic) {
	case ZYDIS_MNEMONIC_MOVUPS:
	case ZYDIS_MNEMONIC_MOVUPD:
	case ZYDIS_MNEMONIC_MOVDQU:
	case ZYDIS_MNEMONIC_LDDQU:
	case ZYDIS_MNEMONIC_PCMPESTRI:
	case ZYDIS_MNEMONIC_PCMPESTRM:
	case ZYDIS_MNEMONIC_PCMPISTRI:
	case ZYDIS_MNEMONIC_PCMPISTRM: return 0;
	case ZYDIS_MNEMONIC_VMOVAPS:
	case ZYDIS_MNEMONIC_VMOVAPD:
	case ZYDIS_MNEMONIC_VMOVDQA:
	case ZYDIS_MNEMONIC_VMOVDQA32:
	case ZYDIS_MNEMONIC_VMOVDQA64:
	case ZYDIS_MNEMONIC_VMOVNTPS:
	case ZYDIS_MNEMONIC_VMOVNTPD:
	case ZYDIS_MNEMONIC_VMOVNTDQ:
	case ZYDIS_MNEMONIC_VMOVNTDQA: return (uint8_t)in->mem_size;
	default: break;
	}
	return in->zi.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY && in->mem_size == 16 ? 16 : 0;
}

/* Vector and x87 instructions: in->vec and a kind, or unsupported. */
static void vec_classify(const struct xlat *x, struct xinsn *in)
{
	const ZydisDecodedInstruction *zi = &in->zi;

	if (!vec_set[zi->meta.isa_set] || (x->key & SOFT_KEY_TS_EM))
		return;
	if (zi->encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY &&
	    ((x->key & SOFT_KEY_OSXSAVE_OFF) ||
	     (zi->encoding != ZYDIS_INSTRUCTION_ENCODING_VEX && zi->encoding != ZYDIS_INSTRUCTION_ENCODING_EVEX)))
		return;
	in->masked = zi->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX && zi->raw.evex.aaa && in->mem >= 0;
	switch (zi->mnemonic) {
	case ZYDIS_MNEMONIC_LDMXCSR:
	case ZYDIS_MNEMONIC_VLDMXCSR:
	case ZYDIS_MNEMONIC_FLDCW:
	case ZYDIS_MNEMONIC_FLDENV:
	case ZYDIS_MNEMONIC_FNSTENV:
	case ZYDIS_MNEMONIC_FNSAVE:
	case ZYDIS_MNEMONIC_FRSTOR:
	case ZYDIS_MNEMONIC_VMASKMOVPS:
	case ZYDIS_MNEMONIC_VMASKMOVPD:
	case ZYDIS_MNEMONIC_VPMASKMOVD:
	case ZYDIS_MNEMONIC_VPMASKMOVQ: return;
	default: break;
	}
	in->vec = true;
	in->mem_align = vec_alignment(in);
	switch (zi->mnemonic) {
	case ZYDIS_MNEMONIC_PCMPESTRI:
	case ZYDIS_MNEMONIC_PCMPESTRM:
	case ZYDIS_MNEMONIC_PCMPISTRI:
	case ZYDIS_MNEMONIC_PCMPISTRM:
	case ZYDIS_MNEMONIC_VPCMPESTRI:
	case ZYDIS_MNEMONIC_VPCMPESTRM:
	case ZYDIS_MNEMONIC_VPCMPISTRI:
	case ZYDIS_MNEMONIC_VPCMPISTRM: in->kind = K_PCMPSTR; return;
	case ZYDIS_MNEMONIC_FNSTSW:
		if (in->mem < 0) {
			in->kind = K_FNSTSW_AX;
			return;
		}
		break;
	default: break;
	}
	if (operands_movable(in))
		in->kind = K_GENERIC;
}

static void flags_of(struct xinsn *in)
{
	const ZydisAccessedFlags *f = in->zi.cpu_flags;
	unsigned written;

	if (!f)
		return;
	in->f_read = f->tested & F_ALL;
	written = (f->modified | f->set_0 | f->set_1 | f->undefined) & F_ALL;
	in->f_touched = written;
	in->f_written = written;
	switch (in->zi.mnemonic) {
	case ZYDIS_MNEMONIC_SHL:
	case ZYDIS_MNEMONIC_SHR:
	case ZYDIS_MNEMONIC_SAR:
	case ZYDIS_MNEMONIC_ROL:
	case ZYDIS_MNEMONIC_ROR:
	case ZYDIS_MNEMONIC_RCL:
	case ZYDIS_MNEMONIC_RCR:
	case ZYDIS_MNEMONIC_SHLD:
	case ZYDIS_MNEMONIC_SHRD: {
		/* A count of zero changes nothing. */
		const ZydisDecodedOperand *n = &in->op[in->zi.operand_count_visible - 1];
		bool known =
		    n->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && (n->imm.value.u & (in->op[0].size == 64 ? 63 : 31));

		if (in->zi.mnemonic == ZYDIS_MNEMONIC_ROL || in->zi.mnemonic == ZYDIS_MNEMONIC_ROR ||
		    in->zi.mnemonic == ZYDIS_MNEMONIC_RCL || in->zi.mnemonic == ZYDIS_MNEMONIC_RCR)
			in->f_touched &= F_CF | F_OF;
		in->f_written = known ? in->f_touched : 0;
		break;
	}
	/* What these leave undefined depends on the operands on some CPUs; nothing reads it. */
	default: break;
	}
}

/* VEX and EVEX bits that 32-bit code ignores and 64-bit code does not. */
static bool other_in_64(const struct xinsn *in)
{
	unsigned size;
	bool high;

	if (in->zi.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY)
		return false;
	if (in->zi.encoding != ZYDIS_INSTRUCTION_ENCODING_VEX)
		return true;
	for (unsigned i = 0; i < in->zi.operand_count; i++) {
		if (in->op[i].encoding == ZYDIS_OPERAND_ENCODING_IS4 ||
		    (in->zi.raw.vex.W && in->op[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		     x_gpr(in->op[i].reg.value, &size, &high) >= 0))
			return true;
	}
	return false;
}

/* May 32-bit code access memory through this segment without looking at it? And no 16-bit addresses. */
static bool segment_open(const struct xlat *x, const ZydisDecodedInstruction *zi, const ZydisDecodedOperandMem *m)
{
	if (zi->address_width != 32)
		return false;
	switch (m->segment) {
	case ZYDIS_REGISTER_ES:
	case ZYDIS_REGISTER_SS:
	case ZYDIS_REGISTER_DS: return true;
	case ZYDIS_REGISTER_FS: return x->key & SOFT_KEY_FS;
	case ZYDIS_REGISTER_GS: return x->key & SOFT_KEY_GS;
	default: return false;
	}
}

/* Sets kind and the fields about operands, flags and targets. */
void x_classify(struct xlat *x, struct xinsn *in)
{
	const ZydisDecodedInstruction *zi = &in->zi;
	unsigned width = x->w32 ? 32 : 64;

	in->mem = -1;
	in->mem_align = 0;
	in->kind = kind_of[zi->mnemonic];
	if ((in->kind == K_UNSUPPORTED && !vec_set[zi->meta.isa_set]) || !x->isa[zi->meta.isa_set])
		goto unsupported;
	for (unsigned i = 0; i < zi->operand_count; i++) {
		const ZydisDecodedOperand *o = &in->op[i];
		unsigned size;
		bool high;
		int g;

		if (o->type == ZYDIS_OPERAND_TYPE_REGISTER && (o->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE)) {
			g = x_gpr(o->reg.value, &size, &high);
			if (g >= 0)
				in->gpr_written |= 1u << g;
		}
		if (o->type != ZYDIS_OPERAND_TYPE_MEMORY || o->visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN)
			continue;
		if (o->mem.type == ZYDIS_MEMOP_TYPE_AGEN)
			continue;
		if (o->mem.type != ZYDIS_MEMOP_TYPE_MEM || (x->w32 && !segment_open(x, zi, &o->mem)))
			goto unsupported;
		in->mem = (int8_t)i;
		in->mem_size = o->size / 8;
		in->mem_read = o->actions & ZYDIS_OPERAND_ACTION_MASK_READ;
		in->mem_write = o->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
		if (o->mem.disp.value > INT32_MAX - (int64_t)PAGE_SIZE && in->kind != K_GENERIC)
			goto unsupported;
		if (!in->mem_size || in->mem_size > 64)
			goto unsupported;
	}
	flags_of(in);
	if (in->kind == K_UNSUPPORTED)
		vec_classify(x, in);
	else if (in->kind == K_GENERIC)
		in->kind = generic_kind(in);
	switch (in->kind) {
	case K_UNSUPPORTED: goto unsupported;
	case K_NOP:
		if (zi->opcode_map == ZYDIS_OPCODE_MAP_0F && zi->opcode == 0x0d && in->mem < 0)
			goto unsupported; /* undefined on some CPUs */
		/* The handler gives the host CPU away in a guest that spins. With REX.B it is XCHG R8, which Zydis 4.0
		 * calls PAUSE all the same. */
		if (zi->mnemonic == ZYDIS_MNEMONIC_PAUSE && (x->c->v.accel->cfg.ncpus > 1 || zi->raw.rex.B))
			goto unsupported;
		/* Forms with a memory operand do not access it. */
		in->mem = -1;
		in->gpr_written = 0;
		in->f_read = in->f_written = in->f_touched = 0;
		break;
	case K_LEA: in->mem = -1; break;
	case K_CLI:
	case K_STI: /* the shadow matters before these: fall to the interpreter */
	case K_SWAPGS:
		if (x->mmu_index == MMU_USER || (x->key & SOFT_KEY_CPL3))
			goto unsupported;
		break;
	case K_STAC: /* only when it does change the mode */
		if (x->mmu_index != (zi->mnemonic == ZYDIS_MNEMONIC_STAC ? MMU_KERNEL : MMU_KERNEL_AC) ||
		    in->next >= PAGE_SIZE)
			goto unsupported;
		break;
	case K_PUSHF:
		if (zi->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE)
			goto unsupported;
		in->mem = -1;
		in->gpr_written = 1u << R_RSP;
		in->f_read = F_ALL;
		in->f_written = in->f_touched = 0;
		break;
	case K_RDTSC:
		if (x->c->v.accel->cfg.clock && x->c->v.accel->cfg.clock->tsc_from_ns)
			goto unsupported;
		in->gpr_written |= 1u << R_RAX | 1u << R_RDX;
		if (zi->mnemonic == ZYDIS_MNEMONIC_RDTSCP)
			in->gpr_written |= 1u << R_RCX;
		break;
	case K_PUSH:
		if (zi->operand_width != width ||
		    (in->op[0].type == ZYDIS_OPERAND_TYPE_REGISTER && in->op[0].size != width) ||
		    (in->op[0].type == ZYDIS_OPERAND_TYPE_MEMORY && in->op[0].size != width))
			goto unsupported;
		in->gpr_written |= 1u << R_RSP;
		break;
	case K_POP:
		if (in->op[0].type != ZYDIS_OPERAND_TYPE_REGISTER || in->op[0].size != width)
			goto unsupported;
		in->gpr_written |= 1u << R_RSP;
		break;
	case K_LEAVE:
		if (zi->operand_width != width)
			goto unsupported;
		break;
	case K_MUL:
	case K_DIV:
		if (in->op[0].size < (in->kind == K_DIV ? 32 : 8))
			goto unsupported;
		if (high_byte(&in->op[0]))
			goto unsupported;
		in->gpr_written |= 1u << R_RAX | 1u << R_RDX;
		break;
	case K_CMPXCHG: in->gpr_written |= 1u << R_RAX; break;
	case K_CMPXCHG16B:
		in->gpr_written |= 1u << R_RAX | 1u << R_RDX;
		if (in->mem < 0)
			goto unsupported;
		if (in->mem_size == 16)
			in->mem_align = 16;
		break;
	case K_CBW: in->gpr_written |= 1u << R_RAX; break;
	case K_CWD: in->gpr_written |= 1u << R_RDX; break;
	case K_JCC:
	case K_JRCXZ:
	case K_LOOP:
	case K_JMP:
	case K_CALL:
		if (zi->attributes & (ZYDIS_ATTRIB_HAS_OPERANDSIZE | ZYDIS_ATTRIB_HAS_ADDRESSSIZE))
			goto unsupported;
		if (zi->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
			goto unsupported;
		if (in->op[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
			int64_t t = in->next + in->op[0].imm.value.s;

			if (t != (int32_t)t)
				goto unsupported;
			in->target = (int32_t)t;
		} else {
			if (in->op[0].size != width || (in->kind != K_JMP && in->kind != K_CALL))
				goto unsupported;
			in->kind = in->kind == K_JMP ? K_JMP_IND : K_CALL_IND;
		}
		if (x->w32 && (in->kind == K_LOOP || in->kind == K_JRCXZ)) /* ECX */
			goto unsupported;
		if (in->kind == K_LOOP)
			in->gpr_written |= 1u << R_RCX;
		if (in->kind == K_CALL || in->kind == K_CALL_IND)
			in->gpr_written |= 1u << R_RSP;
		break;
	case K_RET:
		if (zi->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE || zi->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
			goto unsupported;
		in->gpr_written |= 1u << R_RSP;
		break;
	default: break;
	}
	if (x->w32 && (in->kind == K_BT_MEM || zi->address_width == 16 || other_in_64(in)))
		goto unsupported;
	if ((zi->attributes & ZYDIS_ATTRIB_HAS_LOCK) && in->mem < 0)
		goto unsupported;
	if (in->mem >= 0 && in->op[in->mem].mem.disp.value != (int32_t)in->op[in->mem].mem.disp.value &&
	    in->kind != K_MOFFS)
		goto unsupported;
	return;
unsupported:
	in->kind = K_UNSUPPORTED;
	in->f_read = in->f_written = in->f_touched = 0;
}

static bool decode_at(struct xlat *x, unsigned off, struct xinsn *in)
{
	if (off >= PAGE_SIZE)
		return false;
	memset(in, 0, offsetof(struct xinsn, zi) + sizeof(in->zi));
	in->vec = in->mem_write = in->mem_read = false;
	in->f_read = in->f_written = in->f_touched = in->live_in = in->live_out = in->taken_live = 0;
	in->gpr_written = 0;
	in->target = 0;
	in->group = -1;
	in->bytes = x->code + off;
	if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(jit_decoder(x->c), x->code + off, x->limit - off, &in->zi, in->op)))
		return false;
	in->off = (uint16_t)off;
	in->next = (uint16_t)(off + in->zi.length);
	x_classify(x, in);
	return true;
}

bool jit_crosses(const struct soft_cpu *c, const uint8_t *host, unsigned off)
{
	ZydisDecodedInstruction zi;

	return off > PAGE_SIZE - JIT_INSN_MAX &&
	       ZydisDecoderDecodeInstruction(jit_decoder(c), NULL, host + off, PAGE_SIZE - off, &zi) ==
		   ZYDIS_STATUS_NO_MORE_DATA;
}

bool x_linkable(const struct xlat *x, int32_t target)
{
	return target >= 0 && target < (int32_t)PAGE_SIZE && !jit_crosses(x->c, x->code, (unsigned)target);
}

static void note_range(struct xlat *x, unsigned off, unsigned len)
{
	for (unsigned i = 0; i < x->nranges; i++) {
		unsigned lo = x->range[i].off, hi = lo + x->range[i].len;

		if (off <= hi && off + len >= lo) {
			x->range[i].off = (uint16_t)MIN(lo, off);
			x->range[i].len = (uint16_t)(MAX(hi, off + len) - x->range[i].off);
			return;
		}
	}
	if (x->nranges == XLAT_RANGES) {
		/* One range over everything. */
		unsigned lo = off, hi = off + len;

		for (unsigned i = 0; i < x->nranges; i++) {
			lo = MIN(lo, (unsigned)x->range[i].off);
			hi = MAX(hi, (unsigned)x->range[i].off + x->range[i].len);
		}
		x->range[0].off = (uint16_t)lo;
		x->range[0].len = (uint16_t)(hi - lo);
		x->nranges = 1;
		return;
	}
	x->range[x->nranges].off = (uint16_t)off;
	x->range[x->nranges++].len = (uint16_t)len;
}

/* ---- liveness ------------------------------------------------------------- */

/* Could leave for C in its middle: the state must be whole there. The first vector instruction of a block may find
 * an exception unmasked, and be the interpreter's; STI may find an interrupt, RDTSC that it is forbidden. */
static bool may_fault(const struct xinsn *in)
{
	return in->mem >= 0 || in->vec || in->kind == K_STI || in->kind == K_RDTSC || in->kind == K_PUSH ||
	       in->kind == K_POP || in->kind == K_LEAVE || in->kind == K_DIV || in->kind >= K_CALL ||
	       in->kind == K_JMP_IND;
}

/* Flags that code at the page offset may read before it sets them. */
static unsigned peek_live(struct xlat *x, int32_t target, unsigned depth)
{
	unsigned unknown = F_ALL, live = 0;
	struct xinsn in;

	if (target < 0 || target >= (int32_t)PAGE_SIZE)
		return F_ALL;
	for (unsigned n = 0; n < PEEK_INSNS && unknown; n++) {
		if (!decode_at(x, (unsigned)target, &in))
			break;
		note_range(x, in.off, in.zi.length);
		live |= in.f_read & unknown;
		if (in.kind == K_UNSUPPORTED || (x->exact && may_fault(&in)))
			break;
		unknown &= ~in.f_written;
		if (in.kind == K_JMP) {
			target = in.target;
			if (target < 0 || target >= (int32_t)PAGE_SIZE)
				break;
			continue;
		}
		if (in.kind == K_JCC || in.kind == K_JRCXZ || in.kind == K_LOOP) {
			if (!depth)
				break;
			live |= unknown & (peek_live(x, in.target, depth - 1) | peek_live(x, in.next, depth - 1));
			return live;
		}
		if (in.kind >= K_JMP)
			break;
		target = in.next;
	}
	return live | unknown;
}

static void liveness(struct xlat *x)
{
	struct xinsn *last = &x->insn[x->n - 1];
	unsigned live, first_vec = 0;

	switch (last->kind) {
	case K_JMP:
	case K_CALL: live = peek_live(x, last->target, PEEK_DEPTH); break;
	case K_STAC:
	case K_JMP_IND:
	case K_CALL_IND:
	case K_RET:
	case K_UNSUPPORTED: live = F_ALL; break;
	default: live = peek_live(x, last->next, PEEK_DEPTH); break;
	}
	/* Leaving through the table needs them all in the slot. */
	if ((last->kind == K_JMP || last->kind == K_CALL) && !x_linkable(x, last->target))
		live = F_ALL;
	while (first_vec < x->n && !x->insn[first_vec].vec)
		first_vec++;
	for (unsigned i = x->n; i-- > 0;) {
		struct xinsn *in = &x->insn[i];

		in->live_out = live;
		if (in->kind == K_JCC || in->kind == K_JRCXZ || in->kind == K_LOOP) {
			in->taken_live = peek_live(x, in->target, PEEK_DEPTH);
			live |= in->taken_live;
		}
		live = (live & ~in->f_written) | in->f_read;
		if (x->exact && (x_group_member(x, in) ? in->kind >= K_CALL || (in->vec && i == first_vec)
						       : may_fault(in) && (!in->vec || in->mem >= 0 || i == first_vec)))
			live = F_ALL;
		in->live_in = live;
	}
}

/* ---- the block ------------------------------------------------------------ */

static void decode_block(struct xlat *x, unsigned off, unsigned max)
{
	for (x->n = 0; x->n < max;) {
		struct xinsn *in = &x->insn[x->n];

		if (!decode_at(x, off, in))
			break;
		note_range(x, in->off, in->zi.length);
		x->n++;
		if (in->kind == K_UNSUPPORTED || in->kind >= K_JMP)
			break;
		/* STI before HLT and the like: the interrupt must not come between. */
		if (in->kind == K_STI && (!decode_at(x, in->next, in + 1) || (in + 1)->kind == K_UNSUPPORTED)) {
			in->kind = K_UNSUPPORTED;
			break;
		}
		/* A loop ends here; what follows is its own block. */
		if ((in->kind == K_JCC || in->kind == K_LOOP) && in->target <= in->off)
			break;
		off = in->next;
	}
}

/* `flags`: those that SLOT_FLAGS has right; the others are dead. */
static void x_poll_exit(struct xlat *x, unsigned flags)
{
	e_mov_imm32(&x->e, H_RCX, flags);
	x_side_exit(x, x->b->off, x->j->leave_poll);
}

/* Will the block's first use of the flags it finds be to keep them from an access? */
static bool wants_slot(const struct xlat *x)
{
	for (unsigned i = 0; i < x->n; i++) {
		const struct xinsn *in = &x->insn[i];

		if (in->f_read)
			return false;
		if (in->mem >= 0 || in->vec || in->kind == K_PUSH || in->kind == K_POP || in->kind >= K_JMP)
			return true;
		if (in->f_touched)
			return false;
	}
	return false;
}

static void emit_head(struct xlat *x, unsigned live)
{
	struct emit *e = &x->e;
	struct hmem req = h_gs(offsetof(struct soft_cpu, v.requests));
	unsigned brought = live & peek_live(x, x->b->off, PEEK_DEPTH); /* by chained arrivals */
	uint8_t *out, *in = NULL;
	bool kept = false;

	while ((uintptr_t)e->p & 15)
		e1(e, 0xcc);
	if (live && wants_slot(x)) {
		/* Chained arrivals keep the flags, then do as the others. */
		while (((uintptr_t)e->p + 8) & 15)
			e1(e, 0xcc);
		x->b->entry_a = x->b->entry_loop = e->p;
		x_flags_save(x);
		x->slot = F_ALL;
		x->host = 0;
		kept = true;
	} else if (live) {
		/* A loop comes back here with flags that it needs. */
		x->b->entry_loop = e->p;
		e_op_mem(e, 0, 0x8b, H_RCX, &req);
		e1(e, 0xe3); /* jrcxz */
		in = e->p;
		e1(e, 0);
		out = e_jmp(e);
		x_swap(x);
		e_patch(out, e->p);
		x_flags_save(x);
		x_poll_exit(x, brought);
		x_swap(x);
	}
	/* jit.c, block_close: its first eight bytes are replaced by one store. */
	while ((uintptr_t)e->p & 7)
		e1(e, 0xcc);
	x->b->entry_b = e->p + x->j->rx_delta;
	e_op_mem(e, 0, 0x83, 7, &req); /* cmp dword gs:[requests], 0 */
	e1(e, 0);
	out = e_jcc(e, CC_NE);
	x_swap(x);
	e_patch(out, e->p);
	x->b->poll = e->p;
	x_poll_exit(x, brought); /* an exit that was not linked yet had no more than these either */
	x_swap(x);
	if (kept)
		return;
	if (!live) {
		x->b->entry_a = x->b->entry_loop = x->b->entry_b - x->j->rx_delta;
		return;
	}
	x->slot = F_ALL;
	x_flags_to_host(x, F_ALL);
	x->b->entry_a = e->p;
	*in = (uint8_t)(e->p - (in + 1));
	/* Chained arrivals bring the flags in the host only. */
	x->slot = 0;
	x->host = F_ALL;
}

static bool lower_block(struct xlat *x)
{
	for (x->i = 0; x->i < x->n; x->i++) {
		struct xinsn *in = &x->insn[x->i];

		if (unlikely(x->j->lockstep))
			x_mark(x);
		if (in->kind == K_UNSUPPORTED) {
			if (!x_exit_step(x, in)) {
				if (x->i == 0)
					return false;
				x_flags_to_slot(x, F_ALL);
				x_side_exit(x, in->off, x->j->leave[REASON_INTERP]);
			}
			return !x->failed;
		}
		x->site[x->i] = (struct jit_site){.host = (uint32_t)(x->e.p - x->b->hot), .guest = in->off};
		x_lower(x, in);
		if (x->failed)
			return false;
	}
	if (x->insn[x->n - 1].kind < K_JMP) {
		const struct xinsn *in = &x->insn[x->n - 1];

		x_exit_direct(x, in->next, in->live_out);
	}
	return !x->failed;
}

/* Keep where each instruction's code is. */
static void keep_sites(struct xlat *x)
{
	struct jit *j = x->j;
	size_t size = x->i * sizeof(struct jit_site);

	j->arena_used = ALIGN_UP(j->arena_used, (size_t)8);
	x->b->site = (struct jit_site *)(void *)(j->arena + j->arena_used);
	x->b->nsites = x->i; /* an unsupported last instruction has none */
	memcpy(x->b->site, x->site, size);
	j->arena_used += size;
	x->b->hot_end = x->e.p;
}

static void page_enter(struct jit *j, struct jit_block *b, struct jit_page_ref *r, uint64_t page)
{
	struct jit_page_ref **head = &j->page_hash[page % JIT_PAGE_HASH];

	*r = (struct jit_page_ref){.next = *head, .block = b, .page = page};
	*head = r;
}

/* False: the page's code was invalidated since the block's bytes were noted. */
static bool publish(struct jit *j, struct jit_block *b)
{
	unsigned h = jit_block_hash(b->page, b->off, b->key);
	const uint32_t *gen = j->accel->cfg.mem->page_code_gen;

	pthread_mutex_lock(&j->link_lock);
	if (__atomic_load_n(&gen[b->page], __ATOMIC_SEQ_CST) != b->gen ||
	    (b->page2 != JIT_NO_PAGE && __atomic_load_n(&gen[b->page2], __ATOMIC_SEQ_CST) != b->gen2)) {
		pthread_mutex_unlock(&j->link_lock);
		return false;
	}
	b->all_next = j->all;
	__atomic_store_n(&j->all, b, __ATOMIC_RELEASE);
	page_enter(j, b, &b->ref[0], b->page);
	if (b->page2 != JIT_NO_PAGE)
		page_enter(j, b, &b->ref[1], b->page2);
	b->hash_next = j->hash[h];
	__atomic_store_n(&j->hash[h], b, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&j->link_lock);
	return true;
}

/* The bytes we translated, protected against unnoticed writes, must still be what we saw. */
static bool note_code(struct xlat *x, const struct jit_place *at)
{
	const uint8_t *host = at->host;
	bool first = true;

	if (at->page2 != JIT_NO_PAGE) {
		unsigned here = (unsigned)PAGE_SIZE - at->off, there = x->insn[0].zi.length - here;

		x->b->gen = code_note(x->c, at->page, at->off, here);
		x->b->gen2 = code_note(x->c, at->page2, 0, there);
		return !memcmp(host + at->off, x->code + at->off, here) &&
		       !memcmp(at->host2, x->code + PAGE_SIZE, there);
	}

	for (unsigned i = 0; i < x->nranges; i++) {
		uint32_t gen = code_note(x->c, x->page, x->range[i].off, x->range[i].len);

		if (first)
			x->b->gen = gen;
		else if (gen != x->b->gen)
			return false;
		first = false;
		if (memcmp(host + x->range[i].off, x->code + x->range[i].off, x->range[i].len) != 0)
			return false;
	}
	return true;
}

struct jit_block *jit_translate(struct soft_cpu *c, struct jit *j, const struct jit_place *at)
{
	static struct xlat xs; /* under the lock; too large for a stack */
	static struct xinsn insn[JIT_MAX_INSNS + 1];
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct xlat *x = &xs;
	bool crosses = at->page2 != JIT_NO_PAGE, step = false;
	unsigned off = at->off, max = crosses ? 1 : JIT_MAX_INSNS;
	size_t arena = ALIGN_UP(j->arena_used, (size_t)64);
	struct jit_block *b = (struct jit_block *)(void *)(j->arena + arena);

	pthread_once(&once, kinds_fill);
	for (;;) {
		memset(x, 0, offsetof(struct xlat, code));
		x->insn = insn;
		x->c = c;
		x->j = j;
		x->b = b;
		x->page = at->page;
		x->key = c->mode_key;
		x->single = at->key & JIT_KEY_SINGLE;
		x->mmu_index = c->mmu_index;
		x->w32 = !c->long64;
		x->exact = j->exact_flags;
		x->isa = interp_decode_info(c)->isa;
		x->e.p = j->hot;
		x->cold = j->cold;
		x->recipe.kind = RECIPE_NONE;
		j->arena_used = arena + sizeof(*b);
		*b = (struct jit_block){.page = at->page, .page2 = at->page2, .key = at->key, .off = (uint16_t)off};
		memcpy(x->code, at->host, PAGE_SIZE);
		if (crosses)
			memcpy(x->code + PAGE_SIZE, at->host2, JIT_INSN_MAX);
		x->limit = (unsigned)PAGE_SIZE + (crosses ? JIT_INSN_MAX : 0);
		decode_block(x, off, max);
		x->limit = PAGE_SIZE;
		if (!x->n)
			goto none;
		if (step) {
			x->n = 1;
			insn[0].kind = K_UNSUPPORTED;
			insn[0].f_read = insn[0].f_written = insn[0].f_touched = 0;
		}
		x_groups_find(x);
		liveness(x);
		b->hot = x->e.p;
		emit_head(x, x->insn[0].live_in);
		if (lower_block(x))
			break;
		/* The instruction that could not be done ends a shorter block, or is one that its handler runs. */
		if (!x->i && step)
			goto none;
		step = !x->i;
		max = MAX(x->i, 1u);
	}
	b->len = (uint16_t)(x->insn[x->n - 1].next - off);
	if (!note_code(x, at))
		goto none;
	keep_sites(x);
	if (!publish(j, b))
		goto none;
	jit_perf_block(j, b, c->s.rip, x->mmu_index == MMU_USER, j->cold, x->cold);
	j->hot = x->e.p;
	j->cold = x->cold;
	j->n_blocks++;
	j->n_insns += x->n;
	return b;
none:
	j->arena_used = arena;
	return NULL;
}
