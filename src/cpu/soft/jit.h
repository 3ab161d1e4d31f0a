/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The translator's inside, private to jit*.c. x86-64 guest code becomes x86-64
 * host code; the design and the reasons:
 *
 * Registers. 13 guest registers have a fixed host register in all translated
 * code, so chained blocks need no glue:
 *
 *   guest  rax rcx rsp r14 r15  rdx rbx rbp rsi rdi r8 r12 r13   r9 r10 r11
 *   host   r11 r14 r15 r9  r10  the same                         frame slots
 *
 * Host rsp stays the host's stack; host rax and rcx are scratch. rax because
 * lahf/seto/sahf need it and rcx for shift counts. The three without a home,
 * which compiled code names least (a third as often as r14 and r15), live in the frame at [rsp + 8*n], which this kind
 * of CPU renames: measured, a dependent add to such a slot costs one cycle, to a GS slot seven.
 *
 * Flags. Guest arithmetic flags are the host's. A TLB lookup destroys them;
 * when they are needed later they are made again by repeating the compare (a
 * "recipe") or, where operands are gone, kept as lahf/seto in a frame slot.
 * Flags that no instruction will read are kept only where an access between may
 * fault (jit-exact-flags=off: not even there; measured 0 to 8 % faster). A request
 * at the head of a block finds them dead too: the interpreter then goes on to
 * where they are written, a few instructions, before an interrupt is taken.
 *
 * Position. A block is keyed by physical page, offset and mode. The linear
 * address of the page it runs at is in the frame (SLOT_PAGE), so code shared
 * between address spaces at different addresses is translated once.
 *
 * Blocks chain directly inside a page. To another page they do so behind a
 * look into the TLB's execute entries: it is mapped, and to where it was when
 * the link was made. Indirect branches go through those entries too, then
 * through a table by the host address of the guest's code (struct jit_jump), so
 * that no change of mappings touches the table. An instruction that crosses a
 * page's end is a block of its own, which begins with a look for its second page.
 *
 * Three entries: `entry_b` expects the guest's flags in SLOT_FLAGS (indirect
 * arrivals), `entry_a` in the host's flags (chained), `entry_loop` too, for jumps
 * backwards. All but entry_a look for requests, so every loop does.
 *
 * Threads. One lock for translation, a leaf lock for links and invalidation (so
 * that a store to code never waits for a vCPU); lookups are lock free. A vCPU that may hold pointers into the cache has
 * jit_cpu.inside set; emptying the full cache waits until no vCPU has.
 */
#ifndef KELVIN_CPU_SOFT_JIT_H
#define KELVIN_CPU_SOFT_JIT_H

#include <Zydis/Zydis.h>
#include "cpu/soft/insn.h"

#define JIT_MAX_INSNS	64
#define JIT_BLOCK_BITS	19
#define JIT_BLOCK_HASH	(1u << JIT_BLOCK_BITS)
#define JIT_PAGE_HASH	(1u << 13)
#define JIT_HEAT_BITS	18
#define JIT_HEAT_SIZE	(1u << JIT_HEAT_BITS)
#define JIT_ROOM	(96 * 1024) /* code room a single block may need, hot and cold each */
#define JIT_NO_KEY	UINT32_MAX
#define JIT_KEY_SINGLE	(1u << 31) /* in a block's key: every access is looked up by itself (jit_group.c) */
#define GROUP_SLOTS	4
#define LOOP_SLOTS	8
#define JIT_GROUP_RANGE 256 /* bytes that accesses with one lookup may be apart */
#define JIT_NO_PAGE	UINT64_MAX
#define JIT_INSN_MAX	15u

/* Host registers by number. */
enum host_reg {
	H_RAX,
	H_RCX,
	H_RDX,
	H_RBX,
	H_RSP,
	H_RBP,
	H_RSI,
	H_RDI,
	H_R8,
	H_R9,
	H_R10,
	H_R11,
	H_R12,
	H_R13,
	H_R14,
	H_R15,
	H_NONE = -1
};

/* The frame translated code runs on; offsets from host rsp. */
enum jit_slot {
	SLOT_R9 = 0,
	SLOT_R10 = 8,
	SLOT_R11 = 16,
	SLOT_FLAGS = 24, /* bits 15:8 as lahf, bit 0 OF */
	SLOT_PAGE = 32,	 /* linear address of the page being executed */
	SLOT_LIN = 40,	 /* temporaries of one instruction */
	SLOT_TMP = 48,
	SLOT_TMP2 = 56,
	SLOT_COUNT = 64,	  /* turns of a loop until its lookups are made again (jit_loop.c) */
	SLOT_LIMIT = 72,	  /* or what a register that moves will be then, and its negative */
	SLOT_LOOP = 88,		  /* addends of accesses of a loop: LOOP_SLOTS */
	SLOT_GROUP = 152,	  /* addends that several accesses of a block share: GROUP_SLOTS */
	SLOT_SAVE = 184,	  /* registers C may clobber: seven */
	SLOT_BOUNCE = 240,	  /* a load that crosses pages reads from here, 64 bytes */
	FRAME_SIZE = 240 + 64 + 8 /* 8 mod 16: aligned for calls after six pushes */
};

/* Why translated code was left; jit_cpu.exit_reason. */
enum jit_reason {
	REASON_LOOKUP,	    /* indirect branch whose target is not in the table */
	REASON_LINK,	    /* direct exit not linked yet: exit_link */
	REASON_INTERP,	    /* the instruction at rip needs the interpreter */
	REASON_POLL,	    /* requests pending */
	REASON_FAULT,	    /* an exception is recorded */
	REASON_MODE,	    /* the mode changed: look up with the new key */
	REASON_STEP,	    /* execute jx.arg, a jit_step */
	REASON_LOOKUP_USER, /* as LOOKUP, in user mode */
	REASON_FAR,	    /* direct exit to another page, not linked or linked to another place: exit_link */
	REASON_CROSS,	    /* the second page of the instruction at rip is not the one that was translated */
	REASON_COUNT
};

struct jit_block;

/* An instruction the interpreter's handler executes, decoded. */
struct jit_step {
	struct insn insn;
	bool quiet, string; /* the handler uses no vector registers and calls nothing that does; MOVS, STOS */
};

/* A direct exit: to an offset in the same page, or to another page (`host`: see jit_branch.c). */
struct jit_link {
	struct jit_link *next; /* other links to the same target */
	uint8_t *patch;	       /* writable address of the jump's rel32 */
	const uint8_t *stub;   /* where it goes while unlinked */
	const struct jit_block *from;
	uint64_t
	    *host; /* writable view: host address of the page that its code goes to; 0: not linked yet. NULL: near */
	uint16_t off, live; /* live: the flags that the target may need */
	bool single;	    /* to the variant without groups */
	bool linked, back;  /* back: a jump backwards, which may close a loop */
};

/* Where the code of an instruction begins, for signals. */
struct jit_site {
	uint32_t host;	/* from jit_block.hot */
	uint16_t guest; /* page offset */
	bool flags_in_host;
};

/* A block in the list of those that a page's bytes went into. */
struct jit_page_ref {
	struct jit_page_ref *next;
	struct jit_block *block;
	uint64_t page;
};

struct jit_block {
	/* what a search compares and wants: one cache line */
	uint64_t page;
	uint64_t page2; /* its only instruction goes on in this page; JIT_NO_PAGE: the usual block */
	uint32_t key;
	uint16_t off, len;
	bool dead;
	const uint8_t *entry_b, *entry_a, *entry_loop;
	uint32_t gen, gen2;
	struct jit_block *all_next;   /* every block since the cache was empty, dead ones too */
	const uint8_t *hot, *hot_end; /* writable view */
	struct jit_site *site;
	unsigned nsites;
	struct jit_page_ref ref[2];
	const uint8_t *poll; /* writable view: leaves as for a request */
	struct jit_link *incoming;
};

struct jit {
	struct accel *accel;
	pthread_mutex_t lock;	   /* translation; emptying the cache, which waits for vCPUs */
	pthread_mutex_t link_lock; /* hash, links, dead: a leaf, taken inside lock and code.c's */
	uint8_t *rw, *rx;	   /* two views of the code cache */
	int64_t rx_delta;	   /* rx - rw */
	size_t size;
	uint8_t *hot, *cold; /* next free byte of each half, writable view */
	uint8_t *stubs_end;
	uint8_t *arena; /* blocks and links */
	size_t arena_used, arena_size;
	/* Blocks by place: a pointer with JIT_TAG_BITS of the place's hash above, or JIT_GONE; searched from the hash's
	 * place on to the first 0. */
	uint64_t hash[JIT_BLOCK_HASH];
	unsigned hash_used; /* not 0 */
	struct jit_page_ref *page_hash[JIT_PAGE_HASH];
	struct jit_block *all;
	_Atomic bool flushing;
	_Atomic uint64_t flushes;
	bool exact_flags;
	bool lockstep;		/* code counts its instructions and keeps what RDTSC gave; nothing is chained */
	uint16_t spoil;		/* tests: instructions with this mnemonic are translated to nothing */
	bool return_exceptions; /* jit_run's caller delivers (tests) */
	uint32_t threshold;
	bool perf_map; /* jit_perf.c */
	int perf_fd;
	unsigned perf_lines;
	/* stubs, executable addresses */
	const uint8_t *enter, *leave[REASON_COUNT], *leave_keep, *leave_link, *leave_far, *leave_step, *leave_poll,
	    *slow_read, *slow_write, *slow_vec;
	uint64_t n_blocks, n_bytes, n_insns, n_invalidations;
};

struct jit_heat {
	uint16_t tag;
	uint8_t count;
};

#define JIT_JUMP_LOG 16384

struct jit_cpu {
	_Atomic bool inside;
	uint64_t flushes;
	/* Entries made since a table was empty, to empty it again at the price of those. */
	struct {
		unsigned n;
		uint32_t entry[JIT_JUMP_LOG];
	} log[MMU_MODES];
	ZydisDecoder decoder, decoder32;
	struct jit_heat heat[JIT_HEAT_SIZE];
};

static inline struct jit *jit_of(const struct soft_cpu *c)
{
	return ((struct soft_accel *)(void *)c->v.accel)->jit;
}

static inline const ZydisDecoder *jit_decoder(const struct soft_cpu *c)
{
	return c->long64 ? &c->jit->decoder : &c->jit->decoder32;
}

#define HEAT_FAILED 200 /* could not be translated; counts on to 255, then is tried again */

/* host: of the page of `to`, for a link to another page. Nothing happens when it was linked to yet another page. */
void jit_link(struct jit *j, struct jit_link *l, struct jit_block *to, const uint8_t *host);
/* Guest code at a place: the page, and for an instruction that crosses its end the next one. */
struct jit_place {
	uint64_t page, page2; /* page2: JIT_NO_PAGE */
	const uint8_t *host, *host2;
	unsigned off;
	uint32_t key;
};
struct jit_block *jit_make(struct soft_cpu *c, struct jit *j, const struct jit_place *at, struct jit_heat *heat);
/* The instruction at this offset of the page needs bytes of the next page. */
bool jit_crosses(const struct soft_cpu *c, const uint8_t *host, unsigned off);
#define JIT_GONE      1u
#define JIT_TAG_SHIFT 48
/* Its first bits are the place in the table, its last ones the tag. */
static inline uint64_t jit_block_hash(uint64_t page, unsigned off, uint32_t key)
{
	uint64_t h = ((page << PAGE_SHIFT | off) + ((uint64_t)key << 48)) * 0x9e3779b97f4a7c15ull;

	return h ^ h >> 32;
}
static inline uint64_t jit_tagged(const struct jit_block *b, uint64_t hash)
{
	return (uint64_t)(uintptr_t)b | hash << JIT_TAG_SHIFT;
}
/* The block at this place for this mode, or NULL. Lock free. */
struct jit_block *jit_find(struct jit *j, uint64_t page, uint64_t page2, unsigned off, uint32_t key);

/* jit_xlat.c: translate the block at c->s.rip. Lock held. NULL: cannot. */
struct jit_block *jit_translate(struct soft_cpu *c, struct jit *j, const struct jit_place *at);

/* jit_perf.c: perf's map. Names are printf formats; `start` and `end` in the writable view. Nothing when it is off. */
int jit_perf_open(struct jit *j, struct err *err);
void jit_perf_close(struct jit *j);
void jit_perf_code(struct jit *j, const uint8_t *start, const uint8_t *end, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void jit_perf_block(struct jit *j, const struct jit_block *b, uint64_t rip, bool user, const uint8_t *cold,
		    const uint8_t *cold_end);

/* jit_signal.c */
void jit_signals_install(struct jit *j);
void jit_signals_remove(const struct jit *j);

/* jit_stub.c */
void jit_make_stubs(struct jit *j);
/* C helpers that translated code calls (general registers only). */
struct jit_slow {
	uint64_t addend; /* host address - lin */
	uint64_t ok;	 /* 0: leave translated code; jx.reason says why */
};
struct jit_slow jit_slow_read(struct soft_cpu *c, uint64_t lin, unsigned size, uint8_t *bounce);
struct jit_slow jit_slow_vec(struct soft_cpu *c, uint64_t lin, unsigned size, uint8_t *bounce);
/* MOVS and STOS: INSN_NEXT, INSN_JUMP, EXC_RAISED, or JIT_STRING_NOT: the handler must do it. */
#define JIT_STRING_NOT (-2)
int jit_string(struct soft_cpu *c, const struct insn *i);
bool jit_vec_load(struct soft_cpu *c);
void jit_vec_unload(struct soft_cpu *c);
struct jit_slow jit_slow_write(struct soft_cpu *c, uint64_t lin, unsigned size, uint8_t *bounce);

#endif
