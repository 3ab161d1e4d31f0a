/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Making host stubs. The guest's instruction is decoded again, its memory
 * operand replaced by [M] (M one of rax rcx rdx rbx rsi rdi, which forms with
 * AH..DH can reach), RSP by a free register, and encoded by Zydis for 64-bit
 * mode. All other registers keep their numbers, so implied operands (CL, RDX:RAX,
 * XMM0) need no care. Around it:
 *
 *	mov B, rdi; mov M, rsi		B = struct soft_cpu, M = memory operand
 *	flags, MXCSR, opmasks, vectors, then GPRs in
 *	the instruction
 *	GPRs, vectors, opmasks, MXCSR, flags out
 *
 * Only arithmetic flags ever enter the host's flags (AC, TF and NT would hurt
 * us). x87 and MMX instructions load and store the whole FXSAVE image and leave
 * a fresh FPU behind. #DE, #MF and #XM arrive as SIGFPE with rip inside the
 * arena: the handler resumes at stub_fault_exit.
 *
 * One arena, double-mapped (written through one view, executed through the
 * other), and one hash by encoding per vCPU; only its thread uses them.
 */
#include "cpu/soft/stub.h"
#include <cpuid.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include "base/log.h"
#include "cpu/soft/signals.h"

#define STUB_ARENA     (4ull * MIB)
#define STUB_MAX       1024		/* bytes, longest stub */
#define STUB_RESERVE   (64u * STUB_MAX) /* a block in flight may still need this much */
#define STUB_HASH_BITS 12
#define HOST_MXCSR     0x1f80u
#define HOST_FCW       0x037fu

struct stub_entry {
	struct stub_entry *next;
	struct stub s;
	uint8_t len, rsp_sub;
	uint8_t bytes[15];
};

struct soft_stubs {
	uint64_t rsp; /* first: stub_enter stores the stack pointer here */
	uint8_t *rw, *rx;
	size_t used;
	struct stub_entry *hash[1u << STUB_HASH_BITS];
	uint32_t fault_mxcsr;
};

struct xsave_layout xsave_layout;
static bool host_avx, host_avx512;
static pthread_once_t stub_once = PTHREAD_ONCE_INIT;
static __thread struct soft_stubs *thread_stubs;

/* ---- entering and leaving ---------------------------------------------------- */

/* int stub_enter(const void *code, struct soft_cpu *c, void *mem, struct soft_stubs *stubs) */
int stub_enter(const void *code, struct soft_cpu *c, void *mem, struct soft_stubs *stubs);
extern const char stub_fault_exit[];
__asm__(".text\n"
	".p2align 4\n"
	".globl stub_enter\n"
	".type stub_enter, @function\n"
	"stub_enter:\n"
	"	push %rbx\n"
	"	push %rbp\n"
	"	push %r12\n"
	"	push %r13\n"
	"	push %r14\n"
	"	push %r15\n"
	"	sub $8, %rsp\n"
	"	mov %rsp, (%rcx)\n"
	"	mov %rdi, %rax\n"
	"	mov %rsi, %rdi\n"
	"	mov %rdx, %rsi\n"
	"	call *%rax\n"
	"	xor %eax, %eax\n"
	".globl stub_fault_exit\n"
	"stub_fault_exit:\n"
	"	add $8, %rsp\n"
	"	pop %r15\n"
	"	pop %r14\n"
	"	pop %r13\n"
	"	pop %r12\n"
	"	pop %rbp\n"
	"	pop %rbx\n"
	"	ret\n"
	".size stub_enter, . - stub_enter\n");

/* Who had the signals that a stub can cause before us. */
static struct soft_signals before;

/*
 * #DE, #MF and #XM are the guest's own. #GP (an alignment rule that only this host
 * has) and #UD (a form it does not know) are passed to the guest as they are.
 */
static void on_stub_signal(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	struct soft_stubs *st = thread_stubs;

	if (!st || (uint64_t)g[REG_RIP] - (uint64_t)(uintptr_t)st->rx >= STUB_ARENA || g[REG_TRAPNO] == EXC_PF) {
		soft_signals_pass_on(&before, sig, info, context);
		return;
	}
	st->fault_mxcsr = uc->uc_mcontext.fpregs->mxcsr;
	uc->uc_mcontext.fpregs->mxcsr = HOST_MXCSR;
	uc->uc_mcontext.fpregs->cwd = HOST_FCW;
	uc->uc_mcontext.fpregs->swd = 0;
	uc->uc_mcontext.fpregs->ftw = 0;
	g[REG_RAX] = STUB_FAULT | g[REG_TRAPNO];
	g[REG_RSP] = (greg_t)st->rsp;
	g[REG_RIP] = (greg_t)(uintptr_t)stub_fault_exit;
}

int stub_call(struct soft_cpu *c, const struct stub *s, void *mem)
{
	int r;

	thread_stubs = c->stubs;
	r = stub_enter(s->code, c, mem, c->stubs);
	if (unlikely(r) && (r & 0xff) == EXC_XM) {
		/* The sticky bits of the exception are set even though the instruction did not complete. */
		uint32_t m = ld32le(c->s.xsave + XSAVE_MXCSR);

		st32le(c->s.xsave + XSAVE_MXCSR, m | (c->stubs->fault_mxcsr & 0x3f));
	}
	return r;
}

/* ---- what an instruction touches ------------------------------------------------ */

struct plan {
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	uint32_t gpr, gpr_out; /* bit per guest GPR */
	uint32_t vec, vec_out; /* bit per vector register */
	uint8_t vec_bytes[32]; /* widest use: 16, 32, 64 */
	uint8_t k, k_out;
	bool x87, mxcsr, mem;
	bool flags_in, flags_out;
	uint8_t base, mem_reg, rsp_sub; /* host registers; rsp_sub 0xff = RSP not used */
	uint8_t bytes[ZYDIS_MAX_INSTRUCTION_LENGTH];
	uint8_t len;
};

static int gpr_number(ZydisRegister r)
{
	if (r >= ZYDIS_REGISTER_AL && r <= ZYDIS_REGISTER_BL)
		return (int)(r - ZYDIS_REGISTER_AL);
	if (r >= ZYDIS_REGISTER_AH && r <= ZYDIS_REGISTER_BH)
		return (int)(r - ZYDIS_REGISTER_AH);
	if (r >= ZYDIS_REGISTER_SPL && r <= ZYDIS_REGISTER_R15B)
		return (int)(r - ZYDIS_REGISTER_SPL) + 4;
	if (r >= ZYDIS_REGISTER_AX && r <= ZYDIS_REGISTER_R15)
		return (int)(r - ZYDIS_REGISTER_AX) & 15;
	return -1;
}

static void plan_reg(struct plan *p, ZydisRegister r, bool out)
{
	int n = gpr_number(r);

	if (n >= 0) {
		p->gpr |= 1u << n;
		p->gpr_out |= out ? 1u << n : 0;
	} else if (r >= ZYDIS_REGISTER_XMM0 && r <= ZYDIS_REGISTER_ZMM31) {
		unsigned v = (unsigned)(r - ZYDIS_REGISTER_XMM0) & 31;
		uint8_t bytes = (uint8_t)(16u << ((unsigned)(r - ZYDIS_REGISTER_XMM0) / 32));

		p->vec |= 1u << v;
		p->vec_out |= out ? 1u << v : 0;
		p->vec_bytes[v] = MAX(p->vec_bytes[v], bytes);
	} else if (r >= ZYDIS_REGISTER_K0 && r <= ZYDIS_REGISTER_K7) {
		unsigned k = (unsigned)(r - ZYDIS_REGISTER_K0);

		p->k |= (uint8_t)(1u << k);
		p->k_out |= out ? (uint8_t)(1u << k) : 0;
	} else if (r == ZYDIS_REGISTER_MXCSR) {
		p->mxcsr = true;
	} else if ((r >= ZYDIS_REGISTER_MM0 && r <= ZYDIS_REGISTER_MM7) ||
		   (r >= ZYDIS_REGISTER_ST0 && r <= ZYDIS_REGISTER_X87TAG)) {
		p->x87 = true;
	}
}

/*
 * Does the vector instruction depend on MXCSR? Zydis 4.0 names it for SSE forms
 * only. Everything does except integer, move, logic and permute instructions.
 */
static bool reads_mxcsr(ZydisMnemonic m)
{
	static const char *const not [] = {"p",	      "mov",	   "aes",    "sha",	 "and",	   "or",
					   "xor",     "unpck",	   "shuf",   "blend",	 "insert", "extract",
					   "gf2p",    "alig",	   "perm",   "compress", "expand", "lddqu",
					   "maskmov", "broadcast", "dbpsad", "mpsad",	 "ternlog"};
	const char *name = ZydisMnemonicGetString(m);

	if (*name == 'v')
		name++;
	if (*name == 'k')
		return false;
	for (unsigned k = 0; k < ARRAY_SIZE(not ); k++)
		if (strncmp(name, not [k], strlen(not [k])) == 0)
			return false;
	return true;
}

static void plan_scan(struct plan *p, const struct insn *i)
{
	bool upper = p->zi.attributes & (ZYDIS_ATTRIB_HAS_VEX | ZYDIS_ATTRIB_HAS_EVEX | ZYDIS_ATTRIB_HAS_XOP);

	for (unsigned k = 0; k < p->zi.operand_count; k++) {
		const ZydisDecodedOperand *o = &p->ops[k];

		if (o->type == ZYDIS_OPERAND_TYPE_REGISTER)
			plan_reg(p, o->reg.value, o->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE);
		else if (o->type == ZYDIS_OPERAND_TYPE_MEMORY)
			p->mem = true;
	}
	if ((i->gate == GATE_SSE || i->gate == GATE_AVX || i->gate == GATE_AVX512) && reads_mxcsr(p->zi.mnemonic))
		p->mxcsr = true;
	p->x87 |= i->gate == GATE_X87 || i->gate == GATE_FWAIT || i->gate == GATE_MMX;
	if (p->zi.mnemonic == ZYDIS_MNEMONIC_VP2INTERSECTD || p->zi.mnemonic == ZYDIS_MNEMONIC_VP2INTERSECTQ) {
		/* Writes the pair that holds the named opmask. */
		uint8_t pair = (uint8_t)(3u << (i->op[0].reg & 6));

		p->k |= pair;
		p->k_out |= pair;
	}
	/* VEX and EVEX forms clear the rest of the register: it must be stored whole. */
	if (upper)
		for (unsigned v = 0; v < 32; v++)
			if (p->vec_out & (1u << v))
				p->vec_bytes[v] = host_avx512 ? 64 : 32;
	p->flags_in = (i->flags_read | i->flags_written) & FLAG_ARITH;
	p->flags_out = i->flags_written & FLAG_ARITH;
}

static uint8_t pick(uint32_t *taken, const uint8_t *from, unsigned n)
{
	for (unsigned k = 0; k < n; k++)
		if (!(*taken & (1u << from[k]))) {
			*taken |= 1u << from[k];
			return from[k];
		}
	BUG("no register left for a stub");
}

static void plan_registers(struct plan *p)
{
	static const uint8_t bases[] = {R_R15, R_R14, R_R13, R_R11, R_R10, R_R9, R_R8};
	static const uint8_t lows[] = {R_RSI, R_RDI, R_RBX, R_RDX, R_RCX, R_RAX};
	uint32_t taken = p->gpr | 1u << R_RSP;

	p->base = pick(&taken, bases, ARRAY_SIZE(bases));
	p->mem_reg = pick(&taken, lows, ARRAY_SIZE(lows));
	p->rsp_sub = 0xff;
	if (p->gpr & (1u << R_RSP))
		p->rsp_sub = pick(&taken, lows, ARRAY_SIZE(lows));
}

static ZydisRegister replace_rsp(const struct plan *p, ZydisRegister r)
{
	if (r == ZYDIS_REGISTER_SPL) {
		/* SIL and DIL keep the REX form; BL, DL, CL, AL are their own. */
		if (p->rsp_sub < 4)
			return (ZydisRegister)(ZYDIS_REGISTER_AL + (unsigned)p->rsp_sub);
		return (ZydisRegister)(ZYDIS_REGISTER_SPL + (unsigned)p->rsp_sub - 4);
	}
	if (r == ZYDIS_REGISTER_SP || r == ZYDIS_REGISTER_ESP || r == ZYDIS_REGISTER_RSP)
		return r - R_RSP + p->rsp_sub;
	return r;
}

/* The instruction with its operands moved, as host bytes. */
static int plan_encode(struct plan *p)
{
	ZydisEncoderRequest req;
	ZyanUSize len = sizeof(p->bytes);

	if (!ZYAN_SUCCESS(
		ZydisEncoderDecodedInstructionToEncoderRequest(&p->zi, p->ops, p->zi.operand_count_visible, &req)))
		return -EINVAL;
	req.machine_mode = ZYDIS_MACHINE_MODE_LONG_64;
	req.prefixes &= ZYDIS_ATTRIB_HAS_LOCK;
	req.address_size_hint = ZYDIS_ADDRESS_SIZE_HINT_NONE;
	for (unsigned k = 0; k < req.operand_count; k++) {
		ZydisEncoderOperand *o = &req.operands[k];

		if (o->type == ZYDIS_OPERAND_TYPE_REGISTER) {
			o->reg.value = replace_rsp(p, o->reg.value);
		} else if (o->type == ZYDIS_OPERAND_TYPE_MEMORY) {
			o->mem.base = ZYDIS_REGISTER_RAX + p->mem_reg;
			o->mem.index = ZYDIS_REGISTER_NONE;
			o->mem.scale = 0;
			o->mem.displacement = 0;
		}
	}
	if (!ZYAN_SUCCESS(ZydisEncoderEncodeInstruction(&req, p->bytes, &len)))
		return -EINVAL;
	p->len = (uint8_t)len;
	return 0;
}

/* ---- emitting ---------------------------------------------------------------- */

struct emit {
	uint8_t buf[STUB_MAX];
	unsigned n;
	uint64_t rx; /* where buf[0] will execute */
};

static void emit_bytes(struct emit *e, const void *b, unsigned n)
{
	BUG_ON(e->n + n > sizeof(e->buf));
	memcpy(e->buf + e->n, b, n);
	e->n += n;
}
#define EMIT(e, ...)                                                                                                   \
	do {                                                                                                           \
		const uint8_t emit_list_[] = {__VA_ARGS__};                                                            \
		emit_bytes(e, emit_list_, sizeof(emit_list_));                                                         \
	} while (0)

static void emit_disp(struct emit *e, uint32_t disp)
{
	emit_bytes(e, &disp, 4);
}

/* op reg, [base + disp] with REX.W or not; base is never RSP or R12. */
static void emit_gpr_mem(struct emit *e, uint8_t opcode, bool w, unsigned reg, unsigned base, size_t disp)
{
	EMIT(e, (uint8_t)(0x40 | (w ? 8 : 0) | (reg & 8) >> 1 | (base & 8) >> 3), opcode,
	     (uint8_t)(0x80 | (reg & 7) << 3 | (base & 7)));
	emit_disp(e, (uint32_t)disp);
}
static void emit_mov_reg(struct emit *e, unsigned to, unsigned from)
{
	EMIT(e, (uint8_t)(0x48 | (from & 8) >> 1 | (to & 8) >> 3), 0x89, (uint8_t)(0xc0 | (from & 7) << 3 | (to & 7)));
}
static void emit_0f_mem(struct emit *e, bool w, uint8_t op, unsigned reg, unsigned base, size_t disp)
{
	EMIT(e, (uint8_t)(0x40 | (w ? 8 : 0) | (reg & 8) >> 1 | (base & 8) >> 3), 0x0f, op,
	     (uint8_t)(0x80 | (reg & 7) << 3 | (base & 7)));
	emit_disp(e, (uint32_t)disp);
}

#define GPR_OFF(r) (offsetof(struct soft_cpu, s.gpr) + 8u * (r))
#define RFLAGS_OFF offsetof(struct soft_cpu, s.rflags)
#define XSAVE_OFF  offsetof(struct soft_cpu, s.xsave)

static ZydisEncoderOperand op_reg(ZydisRegister r)
{
	ZydisEncoderOperand o = {.type = ZYDIS_OPERAND_TYPE_REGISTER};

	o.reg.value = r;
	return o;
}
static ZydisEncoderOperand op_mem(unsigned base, size_t disp, unsigned size)
{
	ZydisEncoderOperand o = {.type = ZYDIS_OPERAND_TYPE_MEMORY};

	o.mem.base = ZYDIS_REGISTER_RAX + base;
	o.mem.displacement = (ZyanI64)disp;
	o.mem.size = (ZyanU16)size;
	return o;
}
static ZydisEncoderOperand op_imm(uint64_t v)
{
	ZydisEncoderOperand o = {.type = ZYDIS_OPERAND_TYPE_IMMEDIATE};

	o.imm.u = v;
	return o;
}

/* Rarely emitted forms go through the encoder. */
static void emit_zydis(struct emit *e, ZydisMnemonic m, unsigned n, const ZydisEncoderOperand *ops)
{
	ZydisEncoderRequest req = {.machine_mode = ZYDIS_MACHINE_MODE_LONG_64, .mnemonic = m};
	uint8_t b[ZYDIS_MAX_INSTRUCTION_LENGTH];
	ZyanUSize len = sizeof(b);

	req.operand_count = (ZyanU8)n;
	memcpy(req.operands, ops, n * sizeof(*ops));
	if (!ZYAN_SUCCESS(ZydisEncoderEncodeInstruction(&req, b, &len)))
		BUG("cannot encode %s", ZydisMnemonicGetString(m));
	emit_bytes(e, b, (unsigned)len);
}
#define EMIT_OP(e, m, ...)                                                                                             \
	do {                                                                                                           \
		const ZydisEncoderOperand emit_ops_[] = {__VA_ARGS__};                                                 \
		emit_zydis(e, ZYDIS_MNEMONIC_##m, ARRAY_SIZE(emit_ops_), emit_ops_);                                   \
	} while (0)

static void emit_vec_load(struct emit *e, unsigned v, unsigned bytes, unsigned base)
{
	size_t x = XSAVE_OFF;

	if (v >= 16) {
		EMIT_OP(e, VMOVDQU64, op_reg(ZYDIS_REGISTER_ZMM0 + v), op_reg(ZYDIS_REGISTER_K0),
			op_mem(base, x + xsave_layout.zmm_16_31 + 64u * (v - 16), 64));
		return;
	}
	emit_0f_mem(e, false, 0x10, v, base, x + XSAVE_XMM + 16u * v);
	if (bytes >= 32)
		EMIT_OP(e, VINSERTF128, op_reg(ZYDIS_REGISTER_YMM0 + v), op_reg(ZYDIS_REGISTER_YMM0 + v),
			op_mem(base, x + xsave_layout.ymm_high + 16u * v, 16), op_imm(1));
	if (bytes >= 64)
		EMIT_OP(e, VINSERTF64X4, op_reg(ZYDIS_REGISTER_ZMM0 + v), op_reg(ZYDIS_REGISTER_K0),
			op_reg(ZYDIS_REGISTER_ZMM0 + v), op_mem(base, x + xsave_layout.zmm_high + 32u * v, 32),
			op_imm(1));
}

static void emit_vec_store(struct emit *e, unsigned v, unsigned bytes, unsigned base)
{
	size_t x = XSAVE_OFF;

	if (v >= 16) {
		EMIT_OP(e, VMOVDQU64, op_mem(base, x + xsave_layout.zmm_16_31 + 64u * (v - 16), 64),
			op_reg(ZYDIS_REGISTER_K0), op_reg(ZYDIS_REGISTER_ZMM0 + v));
		return;
	}
	emit_0f_mem(e, false, 0x11, v, base, x + XSAVE_XMM + 16u * v);
	if (bytes >= 32)
		EMIT_OP(e, VEXTRACTF128, op_mem(base, x + xsave_layout.ymm_high + 16u * v, 16),
			op_reg(ZYDIS_REGISTER_YMM0 + v), op_imm(1));
	if (bytes >= 64)
		EMIT_OP(e, VEXTRACTF64X4, op_mem(base, x + xsave_layout.zmm_high + 32u * v, 32),
			op_reg(ZYDIS_REGISTER_K0), op_reg(ZYDIS_REGISTER_ZMM0 + v), op_imm(1));
}

static void emit_flags_in(struct emit *e, const struct plan *p)
{
	unsigned t = p->base == R_R14 ? R_R13 : R_R14;

	emit_gpr_mem(e, 0x8b, false, t, p->base, RFLAGS_OFF); /* mov t32, flags */
	EMIT(e, 0x41, 0x81, (uint8_t)(0xe0 | (t & 7)));	      /* and t32, ARITH */
	emit_disp(e, FLAG_ARITH);
	EMIT(e, 0x41, (uint8_t)(0x50 | (t & 7)), 0x9d); /* push t; popfq */
}

static void emit_flags_out(struct emit *e, const struct plan *p)
{
	EMIT(e, 0x9c, 0x58, 0x25); /* pushfq; pop rax; and eax, ARITH */
	emit_disp(e, FLAG_ARITH);
	emit_gpr_mem(e, 0x8b, false, R_RCX, p->base, RFLAGS_OFF);
	EMIT(e, 0x81, 0xe1); /* and ecx, ~ARITH */
	emit_disp(e, (uint32_t)~FLAG_ARITH);
	EMIT(e, 0x09, 0xc1); /* or ecx, eax */
	emit_gpr_mem(e, 0x89, true, R_RCX, p->base, RFLAGS_OFF);
}

/* ldmxcsr [rip + the arena's first word] */
static void emit_host_mxcsr(struct emit *e, uint64_t constant)
{
	EMIT(e, 0x0f, 0xae, 0x15);
	emit_disp(e, (uint32_t)(constant - (e->rx + e->n + 4)));
}

static void emit_in(struct emit *e, const struct plan *p)
{
	emit_mov_reg(e, p->base, R_RDI);
	if (p->mem && p->mem_reg != R_RSI)
		emit_mov_reg(e, p->mem_reg, R_RSI);
	if (p->flags_in)
		emit_flags_in(e, p);
	if (p->x87)
		emit_0f_mem(e, true, 0xae, 1, p->base, XSAVE_OFF); /* fxrstor64 */
	else if (p->mxcsr)
		emit_0f_mem(e, false, 0xae, 2, p->base, XSAVE_OFF + XSAVE_MXCSR); /* ldmxcsr */
	for (unsigned v = 0; v < 32; v++)
		if (p->vec & (1u << v))
			emit_vec_load(e, v, p->vec_bytes[v], p->base);
	for (unsigned k = 0; k < 8; k++)
		if (p->k & (1u << k))
			EMIT_OP(e, KMOVQ, op_reg(ZYDIS_REGISTER_K0 + k),
				op_mem(p->base, XSAVE_OFF + xsave_layout.opmask + 8u * k, 8));
	for (unsigned r = 0; r < 16; r++)
		if (p->gpr & (1u << r))
			emit_gpr_mem(e, 0x8b, true, r == R_RSP ? p->rsp_sub : r, p->base, GPR_OFF(r));
}

static void emit_out(struct emit *e, const struct plan *p, uint64_t constant)
{
	for (unsigned r = 0; r < 16; r++)
		if (p->gpr_out & (1u << r))
			emit_gpr_mem(e, 0x89, true, r == R_RSP ? p->rsp_sub : r, p->base, GPR_OFF(r));
	if (p->x87) {
		emit_0f_mem(e, true, 0xae, 0, p->base, XSAVE_OFF); /* fxsave64 */
		EMIT(e, 0xdb, 0xe3);				   /* fninit */
		emit_host_mxcsr(e, constant);
	} else {
		for (unsigned v = 0; v < 32; v++)
			if (p->vec_out & (1u << v))
				emit_vec_store(e, v, p->vec_bytes[v], p->base);
		if (p->mxcsr) {
			emit_0f_mem(e, false, 0xae, 3, p->base, XSAVE_OFF + XSAVE_MXCSR); /* stmxcsr */
			emit_host_mxcsr(e, constant);
		}
	}
	for (unsigned k = 0; k < 8; k++)
		if (p->k_out & (1u << k))
			EMIT_OP(e, KMOVQ, op_mem(p->base, XSAVE_OFF + xsave_layout.opmask + 8u * k, 8),
				op_reg(ZYDIS_REGISTER_K0 + k));
	if (p->flags_out)
		emit_flags_out(e, p);
	if (p->zi.attributes & (ZYDIS_ATTRIB_HAS_VEX | ZYDIS_ATTRIB_HAS_EVEX))
		EMIT(e, 0xc5, 0xf8, 0x77); /* vzeroupper */
	EMIT(e, 0xc3);
}

/* ---- the cache ------------------------------------------------------------------ */

static unsigned stub_hash(const struct plan *p)
{
	uint64_t h = p->len + 31u * p->rsp_sub;

	for (unsigned k = 0; k < p->len; k++)
		h = (h ^ p->bytes[k]) * 0x100000001b3ull;
	return (unsigned)((h * 0x9e3779b97f4a7c15ull) >> (64 - STUB_HASH_BITS));
}

bool x87_is_control(ZydisMnemonic m)
{
	switch (m) {
	case ZYDIS_MNEMONIC_FNINIT:
	case ZYDIS_MNEMONIC_FNCLEX:
	case ZYDIS_MNEMONIC_FLDCW:
	case ZYDIS_MNEMONIC_FNSTCW:
	case ZYDIS_MNEMONIC_FNSTSW:
	case ZYDIS_MNEMONIC_FNSTENV:
	case ZYDIS_MNEMONIC_FLDENV:
	case ZYDIS_MNEMONIC_FNSAVE:
	case ZYDIS_MNEMONIC_FRSTOR:
	case ZYDIS_MNEMONIC_FENI8087_NOP:
	case ZYDIS_MNEMONIC_FDISI8087_NOP:
	case ZYDIS_MNEMONIC_FSETPM287_NOP:
	case ZYDIS_MNEMONIC_FWAIT: return true;
	default: return false;
	}
}

static bool x87_waits(ZydisMnemonic m)
{
	static const ZydisMnemonic no_wait[] = {
	    ZYDIS_MNEMONIC_FNINIT,	 ZYDIS_MNEMONIC_FNCLEX,	       ZYDIS_MNEMONIC_FNSTCW,
	    ZYDIS_MNEMONIC_FNSTSW,	 ZYDIS_MNEMONIC_FNSTENV,       ZYDIS_MNEMONIC_FNSAVE,
	    ZYDIS_MNEMONIC_FENI8087_NOP, ZYDIS_MNEMONIC_FDISI8087_NOP, ZYDIS_MNEMONIC_FSETPM287_NOP};

	for (unsigned k = 0; k < ARRAY_SIZE(no_wait); k++)
		if (m == no_wait[k])
			return false;
	return true;
}

/* No fault suppression: the whole operand is read whatever the mask. */
static bool reads_all(const ZydisDecodedInstruction *zi)
{
	switch (zi->mnemonic) { /* E4NF in Intel's manual, not in Zydis 4.0 */
	case ZYDIS_MNEMONIC_VGF2P8AFFINEQB:
	case ZYDIS_MNEMONIC_VGF2P8AFFINEINVQB:
	case ZYDIS_MNEMONIC_VCVTNE2PS2BF16:
	case ZYDIS_MNEMONIC_VDBPSADBW: return true;
	default: break;
	}
	switch (zi->meta.exception_class) {
	case ZYDIS_EXCEPTION_CLASS_E1NF:
	case ZYDIS_EXCEPTION_CLASS_E2NF:
	case ZYDIS_EXCEPTION_CLASS_E3NF:
	case ZYDIS_EXCEPTION_CLASS_E4NF:
	case ZYDIS_EXCEPTION_CLASS_E5NF:
	case ZYDIS_EXCEPTION_CLASS_E6NF:
	case ZYDIS_EXCEPTION_CLASS_E9NF:
	case ZYDIS_EXCEPTION_CLASS_E10NF: return true;
	default: return false;
	}
}

/* Units of a source of `count` that BROADCAST_MODE_count_TO_n repeats. */
static unsigned broadcast_units(ZydisBroadcastMode m)
{
	if (m <= ZYDIS_BROADCAST_MODE_1_TO_64)
		return 1;
	if (m <= ZYDIS_BROADCAST_MODE_2_TO_16)
		return 2;
	return m <= ZYDIS_BROADCAST_MODE_4_TO_16 ? 4 : 8;
}

static unsigned broadcast_copies(ZydisBroadcastMode m)
{
	static const uint8_t to[] = {
	    [ZYDIS_BROADCAST_MODE_1_TO_2] = 2,	 [ZYDIS_BROADCAST_MODE_1_TO_4] = 4,
	    [ZYDIS_BROADCAST_MODE_1_TO_8] = 8,	 [ZYDIS_BROADCAST_MODE_1_TO_16] = 16,
	    [ZYDIS_BROADCAST_MODE_1_TO_32] = 32, [ZYDIS_BROADCAST_MODE_1_TO_64] = 64,
	    [ZYDIS_BROADCAST_MODE_2_TO_4] = 4,	 [ZYDIS_BROADCAST_MODE_2_TO_8] = 8,
	    [ZYDIS_BROADCAST_MODE_2_TO_16] = 16, [ZYDIS_BROADCAST_MODE_4_TO_8] = 8,
	    [ZYDIS_BROADCAST_MODE_4_TO_16] = 16, [ZYDIS_BROADCAST_MODE_8_TO_16] = 16,
	};

	return to[m];
}

static void describe_opmask(const struct plan *p, const ZydisDecodedOperand *m, struct stub *s)
{
	const ZydisDecodedInstruction *zi = &p->zi;
	const ZydisDecodedOperand *dst = &p->ops[0];
	const char *name = ZydisMnemonicGetString(zi->mnemonic);
	unsigned bytes = m->size / 8, n;

	s->kind = STUB_MASK_K;
	s->mask_reg = (uint8_t)(zi->avx.mask.reg - ZYDIS_REGISTER_K0);
	s->compressed = strstr(name, "compress") || strstr(name, "expand");
	s->broadcast = zi->avx.broadcast.mode != ZYDIS_BROADCAST_MODE_INVALID;
	/* One mask bit per element of the operation: the fewer of source's and destination's. */
	n = m->element_count;
	if (s->broadcast)
		n = broadcast_copies(zi->avx.broadcast.mode);
	else if (dst->type == ZYDIS_OPERAND_TYPE_REGISTER && dst->reg.value >= ZYDIS_REGISTER_XMM0 &&
		 dst->reg.value <= ZYDIS_REGISTER_ZMM31 && !s->compressed)
		n = MIN(n, (unsigned)dst->element_count);
	s->mask_bits = (uint8_t)MIN(MAX(n, 1u), 64u);
	if (s->broadcast) {
		s->units = (uint8_t)broadcast_units(zi->avx.broadcast.mode);
	} else {
		s->units = (uint8_t)MIN((unsigned)s->mask_bits, bytes);
	}
	s->unit_size = (uint8_t)(bytes / s->units);
}

/* How the memory operand behaves under masks. */
static void stub_describe(const struct plan *p, const struct insn *i, struct stub *s)
{
	const ZydisDecodedInstruction *zi = &p->zi;
	const ZydisDecodedOperand *m = NULL;
	const char *name = ZydisMnemonicGetString(zi->mnemonic);

	for (unsigned k = 0; k < zi->operand_count_visible; k++)
		if (p->ops[k].type == ZYDIS_OPERAND_TYPE_MEMORY)
			m = &p->ops[k];
	s->x87 = p->x87;
	s->x87_waits = p->x87 && x87_waits(zi->mnemonic);
	s->x87_pointers = (i->gate == GATE_X87) && !x87_is_control(zi->mnemonic);
	s->kind = STUB_PLAIN;
	if (!m)
		return;
	s->kind = STUB_MEM;
	s->mem_read = m->actions & ZYDIS_OPERAND_ACTION_MASK_READ;
	s->mem_write = m->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
	if (strncmp(name, "vmaskmov", 8) == 0 || strncmp(name, "vpmaskmov", 9) == 0) {
		char last = name[strlen(name) - 1];

		s->kind = STUB_MASK_VEC;
		/* load: dst, mask, mem; store: mem, mask, src */
		s->mask_reg = i->op[1].reg;
		s->unit_size = last == 'q' || (last == 'd' && name[1] == 'm') ? 8 : 4;
		s->units = s->mask_bits = (uint8_t)(m->size / 8 / s->unit_size);
		return;
	}
	if (zi->avx.mask.mode == ZYDIS_MASK_MODE_INVALID || zi->avx.mask.mode == ZYDIS_MASK_MODE_DISABLED ||
	    zi->avx.mask.reg == ZYDIS_REGISTER_K0 || zi->avx.mask.reg == ZYDIS_REGISTER_NONE)
		return;
	if (reads_all(zi)) {
		s->mem_read = true; /* what a masked store leaves alone must be in the buffer */
		return;
	}
	describe_opmask(p, m, s);
}

const struct stub *stub_make(struct soft_cpu *c, const struct insn *i)
{
	struct soft_stubs *st = c->stubs;
	struct plan p = {0};
	struct stub_entry *se;
	struct emit e;
	unsigned h;

	if (insn_decode_full(c, i, &p.zi, p.ops))
		return NULL;
	plan_scan(&p, i);
	plan_registers(&p);
	if (plan_encode(&p)) {
		log_diag(LOG_UNIMP, "cannot re-encode %s", ZydisMnemonicGetString(p.zi.mnemonic));
		return NULL;
	}
	h = stub_hash(&p);
	for (se = st->hash[h]; se; se = se->next)
		if (se->len == p.len && se->rsp_sub == p.rsp_sub && memcmp(se->bytes, p.bytes, p.len) == 0)
			return &se->s;
	if (st->used + sizeof(*se) + STUB_MAX > STUB_ARENA)
		return NULL;
	se = (struct stub_entry *)(void *)(st->rw + st->used);
	st->used += ALIGN_UP(sizeof(*se), (size_t)16);
	e.n = 0;
	e.rx = (uint64_t)(uintptr_t)(st->rx + st->used);
	emit_in(&e, &p);
	emit_bytes(&e, p.bytes, p.len);
	emit_out(&e, &p, (uint64_t)(uintptr_t)st->rx);
	memcpy(st->rw + st->used, e.buf, e.n);
	*se = (struct stub_entry){.next = st->hash[h], .len = p.len, .rsp_sub = p.rsp_sub};
	memcpy(se->bytes, p.bytes, p.len);
	stub_describe(&p, i, &se->s);
	se->s.code = st->rx + st->used;
	st->used += ALIGN_UP((size_t)e.n, (size_t)16);
	st->hash[h] = se;
	if (st->used + STUB_RESERVE > STUB_ARENA)
		interp_flush_blocks(c);
	return &se->s;
}

void stub_flush(struct soft_cpu *c)
{
	memset(c->stubs->hash, 0, sizeof(c->stubs->hash));
	c->stubs->used = 64; /* the first word is the MXCSR constant */
}

static void stub_setup(void)
{
	_Alignas(16) uint8_t image[512] = {0};
	uint32_t a, b, d, e;

	host_avx = __builtin_cpu_supports("avx");
	host_avx512 = __builtin_cpu_supports("avx512bw");
#define AREA(n, field)                                                                                                 \
	if (__get_cpuid_count(13, n, &a, &b, &d, &e) && a)                                                             \
	xsave_layout.field = (uint16_t)b
	AREA(2, ymm_high);
	AREA(5, opmask);
	AREA(6, zmm_high);
	AREA(7, zmm_16_31);
#undef AREA
	__asm__ volatile("fxsave64 %0" : "=m"(image));
	xsave_layout.mxcsr_mask = ld32le(image + 28) ? ld32le(image + 28) : 0xffbf;
	soft_signals_take(&before, on_stub_signal);
}

int stub_init(struct soft_cpu *c, struct err *err)
{
	struct soft_stubs *st = calloc(1, sizeof(*st));
	int fd;

	pthread_once(&stub_once, stub_setup);
	BUG_ON((uintptr_t)c->s.xsave % 64);
	if (!st)
		return err_set(err, -ENOMEM, "soft: no memory for host stubs");
	fd = memfd_create("kelvin-stubs", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)STUB_ARENA)) {
		int ret = err_set_errno(err, -errno, "soft: no memory file for host stubs");

		if (fd >= 0)
			close(fd);
		free(st);
		return ret;
	}
	st->rw = mmap(NULL, STUB_ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	st->rx = mmap(NULL, STUB_ARENA, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	close(fd);
	if (st->rw == MAP_FAILED || st->rx == MAP_FAILED) {
		int ret = err_set_errno(err, -errno,
					"soft: this host does not allow executable memory that a program made itself");

		if (st->rw != MAP_FAILED)
			munmap(st->rw, STUB_ARENA);
		if (st->rx != MAP_FAILED)
			munmap(st->rx, STUB_ARENA);
		free(st);
		return ret;
	}
	st32le(st->rw, HOST_MXCSR);
	c->stubs = st;
	stub_flush(c);
	return 0;
}

void stub_fini(struct soft_cpu *c)
{
	if (!c->stubs)
		return;
	if (thread_stubs == c->stubs)
		thread_stubs = NULL;
	munmap(c->stubs->rw, STUB_ARENA);
	munmap(c->stubs->rx, STUB_ARENA);
	free(c->stubs);
	c->stubs = NULL;
}
