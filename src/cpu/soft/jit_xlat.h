/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The translation of one block: state shared by the files that do it (jit_xlat.c begins). */
#ifndef KELVIN_CPU_SOFT_JIT_XLAT_H
#define KELVIN_CPU_SOFT_JIT_XLAT_H

#include "cpu/soft/jit_emit.h"

#define F_CF  1u
#define F_PF  4u
#define F_AF  0x10u
#define F_ZF  0x40u
#define F_SF  0x80u
#define F_OF  0x800u
#define F_ALL (F_CF | F_PF | F_AF | F_ZF | F_SF | F_OF)

enum xkind {
	K_UNSUPPORTED, /* the interpreter's */
	K_GENERIC,     /* the same instruction with operands moved */
	K_ACC_IMM,     /* short form with the accumulator and an immediate */
	K_XCHG_ACC,
	K_MOFFS,
	K_NOP,
	K_RAW, /* no operands: emitted as it is */
	K_LEA,
	K_PUSH,
	K_POP,
	K_LEAVE,
	K_MUL,
	K_DIV,
	K_CMPXCHG,
	K_CMPXCHG16B,
	K_BT_MEM, /* bit string in memory, index in a register */
	K_CBW,
	K_CWD,
	K_LAHF,
	K_SAHF,
	K_CLD,
	K_PCMPSTR, /* PCMPESTRI and the like: implicit registers */
	K_FNSTSW_AX,
	K_CLI,
	K_STI,
	K_PUSHF,
	K_SWAPGS,
	K_RDTSC,
	K_JCC,
	K_JRCXZ,
	K_LOOP,
	/* ends */
	K_JMP,
	K_STAC, /* and CLAC */
	K_JMP_IND,
	K_CALL,
	K_CALL_IND,
	K_RET
};

struct xinsn {
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	const uint8_t *bytes;
	uint16_t off, next; /* page offsets of this and of the next instruction */
	uint8_t kind;
	bool vec;
	int8_t mem; /* operand number of the memory operand that is accessed, -1 none */
	bool mem_write, mem_read;
	bool masked; /* an opmask may leave elements of the memory operand out: they must not fault */
	uint16_t mem_size;
	uint8_t mem_align;	    /* what the instruction insists on; 0 or 1: nothing */
	unsigned f_read, f_written; /* flags tested; flags surely overwritten (or undefined) */
	unsigned f_touched;	    /* flags that may change */
	unsigned live_in, live_out; /* flags needed */
	unsigned taken_live;	    /* K_JCC and the like: needed at the target */
	uint32_t gpr_written;	    /* guest registers */
	int8_t group;		    /* accesses that share a lookup; -1: none. jit_group.c */
	int32_t at;
	int32_t target; /* page offset of a direct branch's target (may be outside 0..4095) */
};

/* How flags in `mask` can be made again without scratch registers. */
enum recipe_kind { RECIPE_NONE, RECIPE_CMP, RECIPE_TEST, RECIPE_ADD, RECIPE_SUB, RECIPE_INC, RECIPE_DEC };
struct recipe {
	uint8_t kind;
	uint8_t size; /* bytes */
	int8_t a, b;  /* host registers; b H_NONE: imm */
	int32_t imm;
	unsigned mask;
	uint32_t regs; /* guest registers it depends on */
};

#define TLB_INDEX_MASK ((TLB_SIZE - 1) << 4) /* of a linear address, rotated right by PAGE_SHIFT - 4 */
#define XLAT_RANGES    24

/* Accesses that share a lookup: bytes lo to hi, relative to their registers' first values. */
struct xgroup {
	int32_t lo, hi, aligned_at;
	uint8_t align;
	bool write; /* one of them does */
	int slot;
	unsigned head;			/* instruction; GROUP_LOOP: looked up before the loop, which has these too: */
	bool base_in, index_in;		/* the slot has the base or index register's part of the address too */
	int32_t stride, lo_one, hi_one; /* lo and hi of one turn */
};
#define GROUP_LOOP     ~0u
#define XLAT_GROUPS    48
#define GROUP_SEARCHED 64 /* numbers during the search */

struct xlat {
	struct emit e; /* position in use */
	uint8_t *cold; /* the other position */
	bool in_cold;
	struct soft_cpu *c;
	struct jit *j;
	const bool *isa; /* instruction sets the guest has */
	struct jit_block *b;
	uint64_t page;
	const uint8_t *host2; /* the next page, for an instruction that goes on there */
	unsigned limit;	      /* bytes of code[] that may be decoded */
	unsigned key, mmu_index;
	unsigned n, i; /* instructions; the one being lowered */
	struct xinsn *insn;
	/* flags */
	unsigned host, slot; /* flags valid in the host's flags, in SLOT_FLAGS */
	struct recipe recipe;
	bool exact, failed;
	bool single; /* no groups */
	struct xgroup group[XLAT_GROUPS];
	unsigned ngroups;
	int rax_group;	     /* whose addend rax has; -1: none */
	unsigned loop_turns; /* jit_loop.c; 0: this is not a loop's body with lookups before it */
	int loop_reg;	     /* guest register that moves by loop_step each turn; -1: turns are counted */
	int32_t loop_step;
	const uint8_t *loop_top;
	unsigned loop_live; /* flags needed there */
	unsigned ntsc;	    /* lockstep: RDTSC so far */
	bool w32;	    /* 32-bit code */
	bool vec_loaded;    /* on every path to here in this block */
	/* code bytes looked at */
	struct {
		uint16_t off, len;
	} range[XLAT_RANGES];
	unsigned nranges;
	struct jit_site site[2 * JIT_MAX_INSNS];
	unsigned nsites;
	uint8_t code[PAGE_SIZE + 16]; /* copy of the page */
};

/* Host register of a guest register, or H_NONE. */
extern const int8_t jit_home[16];
static inline int home_of(unsigned guest)
{
	return jit_home[guest];
}
static inline struct hmem slot_of(unsigned guest)
{
	return h_slot(guest == R_R9 ? SLOT_R9 : guest == R_R10 ? SLOT_R10 : SLOT_R11);
}

static inline struct jit_site *x_site(struct xlat *x)
{
	return &x->site[x->nsites - 1];
}

static inline void x_swap(struct xlat *x)
{
	uint8_t *p = x->e.p;

	x->e.p = x->cold;
	x->cold = p;
	x->in_cold = !x->in_cold;
}

/* Guest GPR number and whether it is AH..BH; -1 when not a GPR. */
int x_gpr(ZydisRegister r, unsigned *size, bool *high);

/* jit_flags.c */
void x_flags_save(struct xlat *x);
/* Host flags are about to be destroyed while `live` is needed later. Uses rax. */
void x_flags_clobber(struct xlat *x, unsigned live);
/* Would making `need` valid in the host's flags use rax? */
bool x_flags_need_rax(const struct xlat *x, unsigned need);
void x_flags_to_host(struct xlat *x, unsigned need);
void x_flags_to_slot(struct xlat *x, unsigned need);
/* The instruction is about to write guest registers: keep flags whose recipe that breaks. True when it
 * was (or must be) done by x_flags_to_host. */
unsigned x_flags_breaking(const struct xlat *x, const struct xinsn *in);
/* After an instruction: what is valid now. */
void x_flags_after(struct xlat *x, const struct xinsn *in);
/* In cold code after a failed access: put into SLOT_FLAGS the flags at this instruction's start. */
void x_flags_cold(struct xlat *x, unsigned live, unsigned slot, const struct recipe *r);

/* jit_group.c */
void x_groups_find(struct xlat *x);
/* The addend of the instruction's group into rax; its head looks it up, and destroys flags and rcx. m: its access. */
void x_group_addend(struct xlat *x, const struct xinsn *in, const ZydisDecodedOperandMem *m, unsigned size,
		    enum mmu_access a);
static inline bool x_group_head(const struct xlat *x, const struct xinsn *in)
{
	return x->group[in->group].head == (unsigned)(in - x->insn);
}
/* Its access was looked up before: it cannot fault and leaves the flags alone. */
static inline bool x_group_member(const struct xlat *x, const struct xinsn *in)
{
	return in->group >= 0 && !x_group_head(x, in);
}

/* jit_loop.c */
/* The block is a loop with accesses that one lookup can serve for several turns: x->group is for that body. */
bool x_loop_find(struct xlat *x);
#define LOOP_MISSES (3 * LOOP_SLOTS)
/* The lookups (few: for as many turns as fit); jumps to where they cannot be made are in miss[]. Destroys flags, rax,
 * rcx. Returns their number. */
unsigned x_loop_head(struct xlat *x, bool few, uint8_t *miss[LOOP_MISSES]);
bool x_loop_can_count(const struct xlat *x);
/* The branch that closes the loop. */
void x_loop_end(struct xlat *x, struct xinsn *in);

/* jit_memop.c */
/* Cold code, rcx = linear address: call for help, resume or leave. */
void x_slow_access(struct xlat *x, const struct xinsn *in, unsigned size, enum mmu_access a, const uint8_t *resume);
/* TLB lookup of the instruction's memory operand; flags are destroyed (x_flags_clobber first). The result
 * uses rax and perhaps rcx. */
struct hmem x_lookup(struct xlat *x, const struct xinsn *in, const ZydisDecodedOperandMem *m, unsigned size,
		     enum mmu_access a);
/* The same for [guest rsp + disp]. */
struct hmem x_lookup_stack(struct xlat *x, const struct xinsn *in, unsigned base, int32_t disp, unsigned size,
			   enum mmu_access a);
/* Effective address (no segment) into a host register; rax may be used besides. */
void x_address(struct xlat *x, const struct xinsn *in, const ZydisDecodedOperandMem *m, int dst);

/* The guest's vector state must be in the registers. */
void x_need_vec(struct xlat *x, const struct xinsn *in);

/* A jump to this page offset can be linked to the block there: it is in this page wholly. */
bool x_linkable(const struct xlat *x, int32_t target);

/* jit_classify.c. Once. */
void x_classify_init(void);
/* Sets kind and the fields about operands, flags and targets. */
void x_classify(struct xlat *x, struct xinsn *in);

/* jit_insn.c */
void x_lower(struct xlat *x, struct xinsn *in);

/* jit_system.c */
/* Lockstep: say which instruction is under way. */
void x_mark(struct xlat *x);
/* Leave for the handler of one instruction; false when it cannot be decoded. */
bool x_exit_step(struct xlat *x, const struct xinsn *in);

/* jit_branch.c: exits */
void x_exit_direct(struct xlat *x, int32_t target, unsigned live);
void x_exit_indirect(struct xlat *x); /* target in rcx */
/* Cold code: go on at this instruction in code without groups. */
void x_exit_variant(struct xlat *x, const struct xinsn *in);
/* In the head of a block with a second page; flags are in the slot. */
void x_check_next_page(struct xlat *x);
void x_side_exit(struct xlat *x, unsigned off, const uint8_t *leave);

#endif
