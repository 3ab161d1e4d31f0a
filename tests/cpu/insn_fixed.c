/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fixed cases: instruction results that emulators got wrong before, and code
 * that changes code. Each is a piece of assembly run by both sides like a random
 * sequence (UD2 ends it); `want` checks a register against the known value too.
 * RBX points into the data pages, RSP to the stack there.
 */
#include "insn_case.h"

#define FIXED(name, text)                                                                                              \
	__asm__(".pushsection .rodata\n.balign 16\nfixed_" #name ":\n" text "\n\tud2\nfixed_" #name                    \
		"_end:\n.popsection\n");                                                                               \
	extern const uint8_t fixed_##name[], fixed_##name##_end[];
/* Flags of interest go where undefined ones do not matter: into a register. */
#define FLAGS_TO(reg) "\n\tpushfq\n\tpop " reg "\n"

FIXED(bt_after_sar, "mov $0x313f, %edx; xor %ebx, %ebx; mov $0xebea297a, %eax; sar $1, %eax; bt %bx, %dx")
FIXED(imul_zero, "xor %eax, %eax; imul $0, %rax, %rax")
FIXED(shl_18, "mov $0xF0000000, %esi; shl $0x12, %esi")
FIXED(sar_then_adc,
      "mov $0x32, %esi; mov $-1, %rcx; movq $0x3d, (%rbx); sarq %cl, (%rbx); adcb %cl, %sil; movzbl %sil, %eax")
FIXED(shr_31, "movl $0x90FE4F80, (%rbx); mov $0x8C67FFFF, %ecx; shrl %cl, (%rbx); mov (%rbx), %eax")
FIXED(shl_cl2, "mov $0x3c, %eax; mov $2, %cl; shl %cl, %eax")
FIXED(rcl8_9, "mov $0x81, %eax; mov $9, %cl; stc; rcl %cl, %al")
FIXED(rcr16_17, "mov $0x8001, %eax; mov $17, %cl; stc; rcr %cl, %ax")
FIXED(rol16_16, "mov $1, %eax; mov $16, %cl; rol %cl, %ax")
FIXED(neg_sbb_inc, "mov $0xb8, %esi; sub $0xb7, %esi; neg %esi; sbb %esi, %esi; inc %esi; mov %esi, %eax")
FIXED(adc_ff, "mov $0xff, %al; stc; adc $0xff, %al")
FIXED(sbb_ff, "mov $0, %al; stc; sbb $0xff, %al")
FIXED(inc_carry, "xor %eax, %eax; stc; inc %rax")
FIXED(popcnt_carry, "mov $0xFFFFFFFFFFFFFF7E, %rcx; xor %edx, %edx; sub $1, %rdx; popcnt %rcx, %rax")
FIXED(bsf_zero, "mov $0x9d46c36de8c10d85, %r11; xor %r15d, %r15d; bsf %r15d, %r11d; mov %r11, %rax")
FIXED(shrd_e4, "mov $0xFFFFFFFFFFFB0000, %r10; mov $0xABCDEF12, %eax; shrd $0xE4, %eax, %r10d; mov %r10, %rax")
FIXED(shl_cl0, "mov $0xFFFFFFFF12345678, %r10; xor %ecx, %ecx; shl %cl, %r10d; mov %r10, %rax")
FIXED(imul32_sign,
      "mov $-3, %eax; mov $5, %ecx; imul %ecx; shl $32, %rdx; or %rdx, %rax; mov $1, %ecx; imul %ecx, %ecx")
FIXED(shld_fill, "mov $1, %eax; mov $0x80000001, %edx; shld $4, %edx, %eax")
FIXED(movzx_16, "mov $-1, %rax; mov $0x18000, %ebx; movzx %bx, %rax; stc")
FIXED(add_then_shl0, "mov $-1, %edx; mov $0xE0, %ecx; add $1, %edx; mov $-1, %rax; shl %cl, %eax")
FIXED(packssdw,
      "movabs $0x0000456700000123, %rax; mov %rax, (%rbx); movabs $0xffffcdefffff89ab, %rax; mov %rax, 8(%rbx);"
      "movabs $0xb00000000aaaaaaa, %rax; mov %rax, 16(%rbx); movabs $0x0001111100000000, %rax; mov %rax, 24(%rbx);"
      "movdqu (%rbx), %xmm0; movdqu 16(%rbx), %xmm1; packssdw %xmm1, %xmm0; movq %xmm0, %rax")
FIXED(fild_fistp,
      "movabs $0x0068005c003a005a, %rax; mov %rax, (%rbx); fninit; fildq (%rbx); fistpq 8(%rbx); mov 8(%rbx), %rax")
FIXED(fistp16, "movabs $0x40e0002000000000, %rax; mov %rax, (%rbx); fninit; fldl (%rbx); fistps 8(%rbx); fnstsw %ax; "
	       "movzwl 8(%rbx), %eax")
FIXED(third_24, "movl $0x3f800000, (%rbx); movl $0x40400000, 4(%rbx); movw $0x7f, 8(%rbx); fninit; fldcw 8(%rbx); flds "
		"(%rbx); fdivs 4(%rbx); fstpt 16(%rbx); mov 16(%rbx), %rax")
FIXED(third_64, "movl $0x3f800000, (%rbx); movl $0x40400000, 4(%rbx); movw $0x37f, 8(%rbx); fninit; fldcw 8(%rbx); "
		"flds (%rbx); fdivs 4(%rbx); fstpt 16(%rbx); mov 16(%rbx), %rax")
FIXED(pcmpistri,
      "movabs $0x30a130d530eb30a2, %rax; mov %rax, (%rbx); movabs $0x30fc30d90020002c, %rax; mov %rax, 8(%rbx);"
      "movabs $0x000030bf30fc30d9, %rax; mov %rax, 16(%rbx); movq $0, 24(%rbx);"
      "movdqu (%rbx), %xmm1; movdqu 16(%rbx), %xmm0; pcmpistri $0x0d, %xmm1, %xmm0; mov %ecx, %eax")
/* Pointers of the last x87 instruction, of each memory form; also behind an F2 that means nothing. */
FIXED(x87_pointers, "fninit; fldpi; fistl (%rbx); fnstenv 64(%rbx); fisttpl 8(%rbx); fnstenv 96(%rbx)")
FIXED(x87_pointers_f2, "fninit; fldpi; .byte 0xf2, 0x48, 0xdb, 0x4b, 8; fnstenv 64(%rbx)")
/* A stack that faults before a target that is not canonical. */
FIXED(call_order, "movabs $0x8000000000000000, %rax; mov %rax, (%rbx); mov $0x1000, %esp; call *(%rbx)")

/* ---- code that writes code --------------------------------------------------------------- */

/* The very next instruction: its immediate changes from 1 to 7. */
FIXED(smc_next, "lea 1f(%rip), %rdi; movb $7, 1(%rdi); 1: mov $1, %eax")
/* The store is rep movsb over the instruction behind it. */
FIXED(smc_rep, "lea 1f(%rip), %rdi; lea 2f(%rip), %rsi; mov $5, %ecx; cld; rep movsb; 1: mov $1, %eax; jmp 3f; 2: mov "
	       "$9, %eax; 3:")
/* A loop that increments its own immediate: 1 + 2 + ... + 5. */
FIXED(smc_loop, "xor %eax, %eax; mov $5, %ecx; lea 1f(%rip), %rdi; 1: add $1, %eax; incb 2(%rdi); dec %ecx; jnz 1b")
/* A vector store (host stub) changes the next instruction. */
FIXED(smc_vector, "lea 1f(%rip), %rdi; movdqu (%rdi), %xmm0; mov $0x0600, %eax; movd %eax, %xmm1; paddb %xmm1, %xmm0; "
		  "movdqu %xmm0, (%rdi); 1: mov $1, %eax; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop")
/* A locked store and a push onto the next instruction. */
FIXED(smc_locked, "lea 1f(%rip), %rdi; mov $4, %edx; lock addb %dl, 1(%rdi); 1: mov $1, %eax")
FIXED(smc_push, "mov %rsp, %rsi; lea 1f(%rip), %rsp; mov (%rsp), %rdx; xor $0x300, %rdx; add $8, %rsp; push %rdx; 1: "
		"mov $1, %eax; mov %rsi, %rsp; nop; nop; nop")
/* Data in the same page as code, other chunk: the code must not care. */
FIXED(smc_beside,
      "lea 1f+0x400(%rip), %rdi; mov $3, %ecx; xor %eax, %eax; 2: add $2, %eax; movl %eax, (%rdi); dec %ecx; jnz 2b; 1:"
      "movl $0xcccccccc, (%rdi)")
/* Locked operations across two pages. */
FIXED(split_lock, "lea 0x800(%rbx), %rdi; and $~0xfff, %rdi; movl $5, -2(%rdi); mov $3, %eax; lock xadd %eax, "
		  "-2(%rdi); mov -2(%rdi), %ecx; lock cmpxchg %edx, -2(%rdi)")

/* ---- accesses that the translator looks up together ----------------------------------------- */

/* Off one register on both sides of a page's end; the stack there too. */
FIXED(group_edge, "lea 0x800(%rbx), %rdi; and $~0xfff, %rdi; movq $1, -16(%rdi); movq $2, -8(%rdi); movq $3, (%rdi);"
		  "movq $4, 8(%rdi); mov -16(%rdi), %rax; add (%rdi), %rax; adc 8(%rdi), %rax")
FIXED(
    group_stack_edge,
    "mov %rsp, %rsi; lea 0x800(%rbx), %rdi; and $~0xfff, %rdi; lea 24(%rdi), %rsp; push $1; push $2; push $3; push $4;"
    "push $5; pop %rax; pop %rcx; shl $4, %rax; or %rcx, %rax; pop %rcx; shl $4, %rax; or %rcx, %rax; mov %rsi, %rsp")
/* Flags that an access lies between. */
FIXED(group_flags, "mov $5, %ecx; xor %eax, %eax; mov %rax, (%rbx); 1: cmp $3, %ecx; mov (%rbx), %rdx; mov 8(%rbx), "
		   "%rsi; adc $0, %rdx; mov %rdx, (%rbx); dec %ecx; jnz 1b; mov (%rbx), %rax")
/* A register that changes between accesses. */
FIXED(group_pop_rsp,
      "lea 0x40(%rbx), %rdi; mov %rsp, %rsi; lea 0x20(%rbx), %rsp; mov %rdi, (%rsp); movq $7, 0x40(%rbx); movq $9, "
      "0x48(%rbx); push $1; pop %rax; pop %rsp; pop %rax; pop %rcx; mov %rsi, %rsp; add %rcx, %rax")
FIXED(group_moved, "lea 0x40(%rbx), %rdi; movq $1, (%rdi); add $8, %rdi; movq $2, (%rdi); lea 8(%rdi), %rdi; movq $4, "
		   "(%rdi); mov -16(%rdi), %rax; sub $0x10, %rdi; add 8(%rdi), %rax; add 16(%rdi), %rax")
FIXED(group_align,
      "lea 0x40(%rbx), %rdi; movups %xmm0, (%rdi); movaps %xmm1, 16(%rdi); movaps 16(%rdi), %xmm2; inc %rdi;"
      "movups (%rdi), %xmm3; movaps 32(%rdi), %xmm4")
/* An instruction of Knights Corner, undefined elsewhere: the flags before it are those that are seen. */
FIXED(knc_tzcnt, "mov $0x84, %ah; mov $0x7fffffff, %ecx; inc %ecx; stmxcsr (%rbx); ldmxcsr (%rbx); sahf; .byte 0xc4, "
		 "0x41, 0xfa, 0xbc, 0xd3")
/* 32-bit code: the code segment cannot be written, whatever the address. */
FIXED(clzero_cs, ".code32; mov $0x20000840, %eax; clzero %eax; movl $0x5f, %eax; cs clzero %eax; .code64")
FIXED(loop_insn, "mov $5, %ecx; xor %eax, %eax; 1: add $3, %eax; loop 1b; add $100, %eax")

struct fixed {
	const char *name;
	const uint8_t *code, *end;
	bool check;
	uint64_t want; /* in RAX */
	bool compat;
};
#define FX(n, ...)                                                                                                     \
	{                                                                                                              \
		.name = #n, .code = fixed_##n, .end = fixed_##n##_end, __VA_ARGS__                                     \
	}
#define F(n)	   FX(n, .check = false)
#define FW(n, val) FX(n, .check = true, .want = (val))
#define F32(n)	   FX(n, .compat = true)
static const struct fixed fixed[] = {
    F(bt_after_sar),
    F(imul_zero),
    F(shl_18),
    FW(sar_then_adc, 0x31),
    F(shr_31),
    F(shl_cl2),
    F(rcl8_9),
    F(rcr16_17),
    F(rol16_16),
    FW(neg_sbb_inc, 0),
    F(adc_ff),
    F(sbb_ff),
    F(inc_carry),
    F(popcnt_carry),
    F(bsf_zero),
    F(shrd_e4),
    FW(shl_cl0, 0x12345678),
    FW(imul32_sign, 0xfffffffffffffff1),
    FW(shld_fill, 0x18),
    FW(movzx_16, 0x8000),
    FW(add_then_shl0, 0xffffffff),
    F(packssdw),
    FW(fild_fistp, 0x0068005c003a005a),
    FW(fistp16, 0x8000),
    F(third_24),
    F(third_64),
    F(pcmpistri),
    F(x87_pointers),
    F(x87_pointers_f2),
    FW(smc_next, 7),
    FW(smc_rep, 9),
    FW(smc_loop, 15),
    FW(smc_vector, 7),
    FW(smc_locked, 5),
    FW(smc_push, 2),
    FW(smc_beside, 6),
    F(split_lock),
    F(call_order),
    FW(group_edge, 8),
    FW(group_stack_edge, 0x543),
    FW(group_flags, 2),
    FW(group_pop_rsp, 16),
    FW(group_moved, 7),
    F(group_align),
    FW(loop_insn, 115),
    F(knc_tzcnt),
    F32(clzero_cs),
};

unsigned fixed_count(void)
{
	return ARRAY_SIZE(fixed);
}

const char *fixed_get(unsigned k, struct insn_case *ic, bool *check, uint64_t *want)
{
	const struct fixed *f = &fixed[k];
	uint8_t *x = ic->in.xsave;

	memset(ic, 0, sizeof(*ic));
	BUG_ON(f->end - f->code > CASE_BYTES);
	ic->len = ic->soft_len = (uint8_t)(f->end - f->code);
	memcpy(ic->bytes, f->code, ic->len);
	memcpy(ic->soft_bytes, f->code, ic->len);
	ic->mode = f->compat ? 32 : 64;
	ic->compat = f->compat;
	ic->sequence = true;
	ic->undefined = FLAG_AF; /* flags after the last instruction: shifts and logic leave AF open */
	ic->data_seed = k + 1;
	ic->in.rip = CASE_CODE + 0x100;
	ic->in.rflags = 0x202;
	ic->in.gpr[R_RBX] = CASE_DATA + 0x800;
	ic->in.gpr[R_RSP] = CASE_DATA + 0x1800;
	st16le(x, 0x37f);
	st32le(x + 24, 0x1f80);
	st64le(x + 512, 3);
	*check = f->check;
	*want = f->want;
	return f->name;
}
