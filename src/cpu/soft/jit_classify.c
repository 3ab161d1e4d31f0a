/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an instruction is to the translator: how it is lowered, which operand is in
 * memory, what it does with flags. What is not known to be right here is the
 * interpreter's (K_UNSUPPORTED).
 */
#include "cpu/soft/jit_xlat.h"

#include "cpu/soft/ops.h"
#include "io/vmclock.h"

const int8_t jit_home[16] = {
    [R_RAX] = H_R11, [R_RCX] = H_R14, [R_RDX] = H_RDX, [R_RBX] = H_RBX, [R_RSP] = H_R15,  [R_RBP] = H_RBP,
    [R_RSI] = H_RSI, [R_RDI] = H_RDI, [R_R8] = H_R8,   [R_R9] = H_NONE, [R_R10] = H_NONE, [R_R11] = H_NONE,
    [R_R12] = H_R12, [R_R13] = H_R13, [R_R14] = H_R9,  [R_R15] = H_R10};

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

void x_classify_init(void)
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
	in->mem_align = in->mem >= 0 ? insn_align(zi, in->mem_size) : 0;
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
	/* What other instructions leave undefined depends on the operands on some CPUs; nothing reads it. */
	if (insn_shifts(in->zi.mnemonic)) {
		/* A count of zero changes nothing. */
		const ZydisDecodedOperand *n = &in->op[in->zi.operand_count_visible - 1];
		bool known =
		    n->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && (n->imm.value.u & (in->op[0].size == 64 ? 63 : 31));

		if (in->zi.mnemonic == ZYDIS_MNEMONIC_ROL || in->zi.mnemonic == ZYDIS_MNEMONIC_ROR ||
		    in->zi.mnemonic == ZYDIS_MNEMONIC_RCL || in->zi.mnemonic == ZYDIS_MNEMONIC_RCR)
			in->f_touched &= F_CF | F_OF;
		in->f_written = known ? in->f_touched : 0;
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
