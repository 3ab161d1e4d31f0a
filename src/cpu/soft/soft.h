/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inside the software CPU. One host thread runs one vCPU. Three parts share
 * this state and may hand over at any instruction boundary:
 *
 *   interpreter (interp.c, ops_*.c)  every mode; the reference and the fallback
 *   translator  (jit_*.c)            hot 64- and 32-bit code as host code
 *   system part (mmu.c, exc.c, seg.c, sys.c, msr.c, run.c)
 *
 * Exceptions: a function that can fault returns int, 0 or EXC_RAISED after
 * soft_raise() recorded the exception; callers return EXC_RAISED at once. An
 * instruction that faults must not have changed registers, flags or rip
 * (restartable string instructions: only completed iterations), so handlers
 * compute first and commit last. rip is advanced by the dispatcher's caller
 * AFTER exec returned 0, unless exec returned INSN_JUMP (it set rip itself).
 *
 * Translated code addresses this structure through GS (host GS base = struct
 * soft_cpu of the running vCPU, set by arch_prctl), so fields it uses come
 * first and have fixed offsets.
 */
#ifndef KELVIN_CPU_SOFT_SOFT_H
#define KELVIN_CPU_SOFT_SOFT_H

#include "base/util.h"
#include "cpu/cpu.h"
#include "cpu/model.h"

enum {
	EXC_RAISED = -1,
	INSN_NEXT = 0,
	INSN_JUMP = 1 /* rip was set */,
	INSN_END = 2 /* rip advances; leave the block:
modes, mappings or interruptibility may have changed */
};

enum exc_vector {
	EXC_DE = 0,
	EXC_DB = 1,
	EXC_NMI = 2,
	EXC_BP = 3,
	EXC_OF = 4,
	EXC_BR = 5,
	EXC_UD = 6,
	EXC_NM = 7,
	EXC_DF = 8,
	EXC_TS = 10,
	EXC_NP = 11,
	EXC_SS = 12,
	EXC_GP = 13,
	EXC_PF = 14,
	EXC_MF = 16,
	EXC_AC = 17,
	EXC_MC = 18,
	EXC_XM = 19
};

/* ---- software TLB ----------------------------------------------------- */

/* Which rights a lookup is made with; translated code is specific to one. */
enum mmu_index {
	MMU_KERNEL,    /* CPL 0..2, SMAP in force: user pages are not data */
	MMU_USER,      /* CPL 3 */
	MMU_KERNEL_AC, /* CPL 0..2, EFLAGS.AC set or CR4.SMAP clear: user pages allowed */
	MMU_MODES
};
enum mmu_access { MMU_READ, MMU_WRITE, MMU_EXEC, MMU_ACCESSES };

/* Against 10 bits: a fifth less CPU time in a mix of page faults, fork, files and random reads. */
#define TLB_BITS 12
#define TLB_SIZE (1u << TLB_BITS)
/*
 * The tag of an empty entry must be no page that maps to this index: the
 * lookup compares by exclusive or, so any page of another index never matches.
 * Zero is as good everywhere but at index 0, so that untouched memory is empty.
 */
#define TLB_TAG_INVALID(index) ((uint64_t)(~(index) & (TLB_SIZE - 1)) << PAGE_SHIFT)

/*
 * tag is the page's linear address. Hit: entry at (lin >> 12) & (TLB_SIZE-1),
 * (lin ^ tag) <= PAGE_SIZE - size (page-crossing accesses miss by that) and host
 * pointer = lin + addend. The form is what translated code needs: one
 * instruction and one register less than masking the address.
 * Device pages, pages with MEM_PAGE_CODE (write) and watched pages (debug
 * registers) are never entered. Other threads may only store TLB_TAG_INVALID(i)
 * to tags (atomically); all else is the owner's.
 */
struct tlb_entry {
	uint64_t tag, addend;
};

/* ---- the vCPU ---------------------------------------------------------- */

struct insn;
struct block_cache;
struct jit_cpu;
struct lockstep;
struct native_cpu;

/* Translated code by the host address of the guest's; jit.h. */
#define JIT_JUMP_BITS  18
#define JIT_JUMP_SHIFT 8 /* index = (host ^ host >> 8) of these bits */
struct jit_jump {
	uint64_t host; /* 0: empty */
	const uint8_t *code;
};
/* What -stats counts of the translator: exits to C by reason first (enum jit_reason), then the rest. */
enum jit_stat {
	JIT_STAT_REASON,
	JIT_STAT_TABLE_CLEARS = JIT_STAT_REASON + 16,
	JIT_STAT_FLUSHES,
	JIT_STAT_FINDS,
	JIT_STAT_COLD,
	JIT_STAT_HEAT_TAKEN,
	JIT_STAT_FAILED,
	JIT_STAT_SLOW_READ,
	JIT_STAT_SLOW_WRITE,
	JIT_STAT_VEC_LOADS,
	JIT_STAT_STEP_LOUD,
	JIT_STATS
};
/* And of native ring 3 (native.c). */
enum native_stat {
	NATIVE_STAT_PROCESSES,
	NATIVE_STAT_ENTRIES,
	NATIVE_STAT_SYSCALLS,
	NATIVE_STAT_KICKS,
	NATIVE_STAT_FAULTS,
	NATIVE_STAT_MAPPED,
	NATIVE_STAT_STEPS,
	NATIVE_STAT_BAD_CODE,
	NATIVE_STAT_SIGNALS,
	NATIVE_STAT_WATCHED,
	NATIVE_STAT_WATCH_HITS,
	NATIVE_STAT_DEAD,
	NATIVE_STAT_FLUSHES,
	NATIVE_STAT_MAPS,
	NATIVE_STAT_PAGES,
	NATIVE_STAT_DEMOTIONS,
	NATIVE_STAT_UNAVAILABLE,
	NATIVE_STATS
};
/* What translated code and its caller exchange. */
struct jit_exchange {
	struct soft_cpu *self;
	uint64_t flags; /* bits 15:8 as LAHF, bit 0 OF */
	uint64_t page;	/* linear address of the page being executed */
	uint64_t arg;
	uint32_t reason;
	bool vec_live;		      /* the guest's vector and x87 state is in the host's registers */
	uint64_t xmask;		      /* XSAVE components it has */
	uint32_t jump_key[MMU_MODES]; /* the mode each part of jit_jump is for */
	/* lockstep only: the instruction of the block that is under way, and what each RDTSC of it gave */
	uint32_t at;
	uint64_t tsc[8];
};

struct soft_cpu {
	struct vcpu v;	    /* first: struct vcpu * and struct soft_cpu * are the same pointer */
	struct cpu_state s; /* architectural state; while translated code runs, GPRs, flags and vector
			     * registers may live in host registers instead. s.xsave: while the software CPU
			     * runs, the area of every component is valid (initial values when not in use),
			     * whatever XSTATE_BV says; XSTATE_BV and compaction are made only when an
			     * image leaves the CPU (XSAVE*, get_state) and resolved when one enters */
	/* derived from s, kept by soft_mode_changed() */
	uint8_t cpl;
	uint8_t mmu_index; /* enum mmu_index for data at this CPL */
	bool long64;	   /* 64-bit code: EFER.LMA and CS.L */
	bool code32;	   /* not long64 and CS.D: 32-bit default sizes */
	bool stack32;	   /* SS.B (legacy and compatibility modes) */
	bool paging, smap, wp, nxe;
	uint32_t mode_key; /* what decoded and translated code depends on besides its bytes: SOFT_KEY_* */
	/* exception being raised by the current instruction */
	uint8_t exc_vector;
	bool exc_has_code, exc_soft /* INT n, INT3, INTO */;
	uint32_t exc_code;
	uint64_t exc_cr2;
	bool exc_raised;
	/* interrupts */
	bool intr_latched; /* the controller has (or may have) something; looked at when IF allows */
	bool code_changed; /* a store of this instruction hit code: leave the block after it */
	bool triple_faulted;
	uint64_t tsc_offset; /* guest TSC = rdtsc + tsc_offset (vmclock's + IA32_TSC_ADJUST) */
	struct jit_exchange jx;
	struct jit_jump jit_jump[MMU_MODES][1u << JIT_JUMP_BITS];
	struct tlb_entry tlb[MMU_MODES][MMU_ACCESSES][TLB_SIZE];
	/* owned by their files */
	struct mmu_private *mmu; /* fill log, second level, paging-structure caches */
	struct block_cache *blocks;
	struct jit_cpu *jit;
	struct soft_stubs *stubs;
	struct lockstep *lockstep;  /* NULL: off */
	uint16_t x87_cs, x87_ds;    /* selectors of the last x87 instruction and its operand: FNSTENV, FNSAVE show them;
				     * 64-bit FXSAVE images have no room for them, so they are lost there as on a CPU */
	bool ferr;		    /* an x87 error went to the board (CR0.NE = 0): tell when it is gone */
	pthread_mutex_t sleep_lock; /* HLT */
	pthread_cond_t sleep_cond;
	/* counters (one writer: this thread) */
	uint64_t n_insns, n_blocks_decoded, n_block_hits, n_tlb_misses, n_page_walks, n_exceptions, n_interrupts,
	    n_port_io, n_mmio, n_halts, n_tlb_flushes, n_code_invalidations, n_jit_blocks, n_jit_exits, n_first_insn_ns;
	uint64_t n_jit[JIT_STATS], n_native[NATIVE_STATS];
	/* run.c, sys.c */
	bool vendor_intel;    /* the advertised vendor: SYSENTER, SYSCALL, SYSRET */
	bool debug_active;    /* DR7 enables something: run.c steps */
	bool handler_entered; /* by this instruction: an INT clears TF and is not stepped over */
	uint8_t io_hit;	      /* I/O breakpoints of this instruction: DR6 bits */
	unsigned pauses;
	_Atomic uint32_t turns; /* of the run loop: odd while guest code runs; codesync.c */
	_Atomic bool sleeping;
	uint64_t poll_ns, poll_not_before; /* sleep.c */
	unsigned poll_failures;
	struct native_cpu *native; /* NULL: off */
	bool native_armed;	   /* user code is to run natively from here */
};

#define SOFT_KEY_LONG64	     1u
#define SOFT_KEY_CODE32	     2u
#define SOFT_KEY_STACK32     4u
#define SOFT_KEY_MMU_SHIFT   3 /* two bits: mmu_index */
#define SOFT_KEY_CPL3	     32u
#define SOFT_KEY_TS_EM	     64u  /* CR0.TS or EM: FPU and SIMD instructions trap */
#define SOFT_KEY_TF	     128u /* single step: one instruction per block */
#define SOFT_KEY_OSXSAVE_OFF 256u
#define SOFT_KEY_FLAT	     512u  /* CS, DS, ES, SS bases are 0 and limits 4G (always in long64) */
#define SOFT_KEY_REAL	     1024u /* CR0.PE clear or VM86 */
#define SOFT_KEY_FS	     2048u /* outside 64-bit mode: FS is writable data with a limit of 4G; its base is any */
#define SOFT_KEY_GS	     4096u

static inline struct soft_cpu *soft_cpu_of(struct vcpu *v)
{
	return (struct soft_cpu *)(void *)v;
}

/* Recompute the derived fields after CR0/CR3(no)/CR4/EFER/CS/SS/CPL/RFLAGS.{TF,AC,VM} changed. Cheap. */
void soft_mode_changed(struct soft_cpu *c);

/* Record an exception; always returns EXC_RAISED. */
int soft_raise(struct soft_cpu *c, enum exc_vector vector);
int soft_raise_code(struct soft_cpu *c, enum exc_vector vector, uint32_t code);
int soft_raise_pf(struct soft_cpu *c, uint64_t cr2, uint32_t code);

/* ---- mmu.c: linear memory with this CPU's current rights ---------------- */

/* Loads and stores of 1, 2, 4, 8 bytes at a linear address; cross pages; reach devices. */
int mmu_load_slow(struct soft_cpu *c, uint64_t lin, unsigned size, uint64_t *val, unsigned mmu_index);
int mmu_store_slow(struct soft_cpu *c, uint64_t lin, unsigned size, uint64_t val, unsigned mmu_index);

static inline struct tlb_entry *mmu_entry(struct soft_cpu *c, unsigned mmu_index, enum mmu_access a, uint64_t lin)
{
	return &c->tlb[mmu_index][a][(lin >> PAGE_SHIFT) & (TLB_SIZE - 1)];
}
/* Host pointer for the access when the TLB has it, else NULL. */
static inline uint8_t *mmu_hit(struct soft_cpu *c, unsigned mmu_index, enum mmu_access a, uint64_t lin, unsigned size)
{
	const struct tlb_entry *e = mmu_entry(c, mmu_index, a, lin);

	if (likely((__atomic_load_n(&e->tag, __ATOMIC_RELAXED) ^ lin) <= PAGE_SIZE - size))
		return (uint8_t *)(uintptr_t)(lin + e->addend);
	return NULL;
}
/* Guest loads and stores are single host accesses, so aligned ones are atomic as on a real CPU. */
static inline int mmu_load(struct soft_cpu *c, uint64_t lin, unsigned size, uint64_t *val)
{
	const uint8_t *p = mmu_hit(c, c->mmu_index, MMU_READ, lin, size);

	if (unlikely(!p))
		return mmu_load_slow(c, lin, size, val, c->mmu_index);
	switch (size) {
	case 1: *val = *(const volatile uint8_t *)p; break;
	case 2: *val = *(const volatile guest_u16 *)p; break;
	case 4: *val = *(const volatile guest_u32 *)p; break;
	default: *val = *(const volatile guest_u64 *)p; break;
	}
	return 0;
}
static inline int mmu_store(struct soft_cpu *c, uint64_t lin, unsigned size, uint64_t val)
{
	uint8_t *p = mmu_hit(c, c->mmu_index, MMU_WRITE, lin, size);

	if (unlikely(!p))
		return mmu_store_slow(c, lin, size, val, c->mmu_index);
	switch (size) {
	case 1: *(volatile uint8_t *)p = (uint8_t)val; break;
	case 2: *(volatile guest_u16 *)p = (uint16_t)val; break;
	case 4: *(volatile guest_u32 *)p = (uint32_t)val; break;
	default: *(volatile guest_u64 *)p = val; break;
	}
	return 0;
}

/*
 * Host pointer for an access of size bytes that stays in one page, with the
 * faults of `a` (MMU_WRITE also proves readability: x86 has no write-only
 * pages). *host = NULL with return 0: device memory, or code/logged page on a
 * write where a plain pointer must not be used; then use load/store, and
 * mmu_written() does not apply. With `a` MMU_WRITE on a MEM_PAGE_CODE page the
 * pointer IS given, and *host_flags gets MMU_HOST_CODE: call mmu_written after.
 */
#define MMU_HOST_CODE 1u
int mmu_host(struct soft_cpu *c, uint64_t lin, unsigned size, enum mmu_access a, unsigned mmu_index, uint8_t **host,
	     unsigned *host_flags);
void mmu_written(struct soft_cpu *c, const uint8_t *host, unsigned size);
/* Any length (XSAVE areas, descriptors, stack frames): copies; all pages are checked before the first
 * byte is written. */
int mmu_read_buf(struct soft_cpu *c, uint64_t lin, void *buf, unsigned len, unsigned mmu_index);
int mmu_write_buf(struct soft_cpu *c, uint64_t lin, const void *buf, unsigned len, unsigned mmu_index);
/* Fault check only. */
int mmu_probe(struct soft_cpu *c, uint64_t lin, unsigned len, enum mmu_access a, unsigned mmu_index);
/* Code page at lin: RAM page index and host pointer of the page's first byte; device memory: *host = NULL. */
int mmu_fetch(struct soft_cpu *c, uint64_t lin, uint64_t *page_index, const uint8_t **host);

void mmu_flush_all(struct soft_cpu *c);	      /* including global */
void mmu_flush_nonglobal(struct soft_cpu *c); /* MOV CR3 without PCID */
void mmu_switch_cr3(struct soft_cpu *c, uint64_t cr3, bool noflush);
void mmu_invlpg(struct soft_cpu *c, uint64_t lin);
int mmu_invpcid(struct soft_cpu *c, uint64_t type, const uint64_t desc[2]);
/* Drop write entries of a RAM page on every vCPU (the page is about to hold decoded code). Any vCPU thread. */
void mmu_protect_page(struct accel *a, uint64_t page_index);
/* Called when virtual-to-physical mappings changed for execution: bumped by every flush. Decoded-block and
 * translated-code lookups by virtual address compare it. */
uint64_t mmu_generation(const struct soft_cpu *c);
/* The same in parts, for which INVLPG counts as no change: `asid` changes when pages of the address space that are not
 * global may map elsewhere, `global` when any page may. */
void mmu_generations(const struct soft_cpu *c, uint64_t *asid, uint64_t *global);
/* Host address of the code at lin when the first-level TLB has its page, else 0. */
static inline uint64_t mmu_fetch_hit(struct soft_cpu *c, uint64_t lin)
{
	const struct tlb_entry *e = mmu_entry(c, c->cpl == 3 ? MMU_USER : MMU_KERNEL, MMU_EXEC, lin);

	return e->tag == (lin & PAGE_MASK) ? lin + e->addend : 0;
}
int mmu_init(struct soft_cpu *c, struct err *err);
void mmu_model_changed(struct soft_cpu *c);
void mmu_fini(struct soft_cpu *c);

/* ---- linear addresses --------------------------------------------------- */

/*
 * seg:off to linear with the checks of the mode: canonical in long64 (#GP, or #SS
 * for SS), limit and rights otherwise. `write` matters for read-only segments.
 */
int seg_linear(struct soft_cpu *c, unsigned seg, uint64_t off, unsigned size, bool write, uint64_t *lin);

/* ---- code.c: which RAM holds decoded code -------------------------------- */

#define CODE_CHUNK 64u /* granularity of notes, bytes */
/* The bytes off..off+len of the RAM page will be cached as code: protect the page, note the bytes. Returns
 * the page's generation, to be compared with mem_map.page_code_gen[page] before each use of the cache. */
uint32_t code_note(struct soft_cpu *c, uint64_t page_index, unsigned off, unsigned len);
/* mem_map.code_written: bumps the generation when noted bytes were hit and tells the translator. */
void code_written(void *opaque, uint64_t page_index, unsigned off, unsigned len);
int code_init(struct accel *a, struct err *err);
void code_fini(struct accel *a);

/* ---- codesync.c: code that another CPU changes -------------------------- */

/* code.c: these chunks (64 bytes each) of the page were noted as code just now. Any vCPU thread. */
void codesync_note(struct accel *a, uint64_t page_index, uint64_t chunks);
void codesync_check_slow(struct soft_cpu *c);
bool codesync_pending(const struct accel *a);
int codesync_init(struct accel *a, struct err *err);
void codesync_fini(struct accel *a);
/* At serializing events, own thread, outside translated code: code noted lately is still what is in memory, or is
 * invalidated. */
static inline void codesync_check(struct soft_cpu *c)
{
	if (unlikely(codesync_pending(c->v.accel)))
		codesync_check_slow(c);
}

/* ---- interpreter ---------------------------------------------------------- */

/* Execute decoded blocks from s.rip until a request, an exception (delivered by the caller), INSN_END or a
 * budget of instructions. Returns 0, or EXC_RAISED with the exception recorded and rip at the instruction.
 * With s.int_shadow set (STI, MOV SS) it clears the shadow, executes exactly one instruction and returns, so the
 * caller looks for interrupts at the right boundary. With RFLAGS.TF it executes one instruction; the #DB after it
 * is the caller's. */
int interp_run(struct soft_cpu *c, unsigned max_insns);
/* n instructions (an exception ends it), whatever is pending; *done of them were completed. */
int interp_count(struct soft_cpu *c, unsigned n, unsigned *done);
/* Exactly one instruction. */
int interp_step(struct soft_cpu *c);
/* The instruction at s.rip, valid until the next call of any of these. NULL: it cannot be fetched, an exception is
 * recorded. */
const struct insn *interp_peek(struct soft_cpu *c);
int interp_init(struct soft_cpu *c, struct err *err);
void interp_model_changed(struct soft_cpu *c); /* before it decoded anything */
void interp_fini(struct soft_cpu *c);

/* ---- exc.c: delivery ------------------------------------------------------ */

/* Deliver the recorded exception (contributory rules, #DF, triple fault). */
void exc_deliver_raised(struct soft_cpu *c);
/* Deliver an external interrupt or NMI. */
void exc_deliver_interrupt(struct soft_cpu *c, uint8_t vector);
void exc_deliver_nmi(struct soft_cpu *c);
/* INT n, INT3, INTO, INT1 from an instruction; next_rip is pushed. */
int exc_software_int(struct soft_cpu *c, uint8_t vector, uint64_t next_rip, bool int3_or_into);

/* ---- exclusive.c: one vCPU alone ------------------------------------------------ */

/* Around guest code; begin waits while another vCPU wants to be alone. */
void soft_turn_begin(struct soft_cpu *c);
void soft_turn_end(struct soft_cpu *c);
/* Inside a turn, at an instruction that has done nothing yet: until end no other vCPU runs guest code. */
void soft_exclusive_begin(struct soft_cpu *c);
void soft_exclusive_end(struct soft_cpu *c);

/* ---- run.c ------------------------------------------------------------------ */

/* Pending work at an instruction boundary (requests, interrupts): true when translated code must be left. */
static inline bool soft_attention(const struct soft_cpu *c)
{
	return atomic_load_explicit(&c->v.requests, memory_order_relaxed) != 0;
}
/* IF became 1, or TPR fell: make the run loop look. Same thread. */
static inline void soft_recheck_intr(struct soft_cpu *c)
{
	if (c->intr_latched)
		atomic_fetch_or(&c->v.requests, VCPU_REQ_INTR);
}

/* CPUID table of what the software CPU can execute on this host (features of user-mode data instructions
 * follow the host; system features are Kelvin's own). */
unsigned soft_supported_cpuid(struct cpuid_entry *out, unsigned max);

/* The host's XCR0; x87 and SSE where the host has no XSAVE. Any thread. SDM volume 1, 13.3. */
uint64_t soft_host_xcr0(void);

/* ---- translator --------------------------------------------------------------- */

enum jit_exit {
	JIT_INTERP = 0, /* state is in c->s: interpret at least one instruction from s.rip */
	JIT_ATTENTION,	/* state is in c->s: requests are pending */
	JIT_EXC,	/* an exception is recorded, rip at the faulting instruction */
	JIT_NATIVE,	/* user code is to go on natively */
};
enum jit_exit jit_run(struct soft_cpu *c);
int jit_init(struct accel *a, struct opts *options, struct err *err);
void jit_fini(struct accel *a);
int jit_cpu_init(struct soft_cpu *c, struct err *err);
void jit_cpu_fini(struct soft_cpu *c);
bool jit_enabled(const struct accel *a);
/* Code bytes of this page became stale: unlink and forget its translations. Any thread. */
void jit_page_invalidated(struct accel *a, uint64_t page_index);

/* ---- native ring 3: native_hook.c, which uses general registers only ------------- */

/* CPL is not what it was. */
void native_cpl_changed(struct soft_cpu *c, unsigned old);
/* This vCPU dropped a mapping: of one page, or with NATIVE_ALL_PAGES of an unknown number. */
#define NATIVE_ALL_PAGES 1ull
void native_mapping_dropped(struct soft_cpu *c, uint64_t page);
/* The page is about to hold decoded code and may be mapped writable in native processes: on return guest code runs in
 * none that can write it. Any vCPU thread that is not in native code itself. */
void native_protect_page(struct accel *a, uint64_t page_index);
/* Native user code comes back to the run loop. Any thread. */
void native_kick(struct soft_cpu *c);

struct soft_accel {
	struct accel a; /* first */
	struct code_map *code;
	struct codesync *codesync;
	struct jit *jit;
	bool jit_on, lockstep, jit_always, jit_exact_flags, perf_map;
	int native;			  /* enum native_when */
	atomic_bool native_told;	  /* why it is off has been said */
	_Atomic uint64_t native_code_gen; /* bumped when code that runs natively was written */
	uint32_t jit_threshold;		  /* executions of a block before it is translated */
	uint32_t halt_poll;		  /* ns */
	/* soft.c, kvmclock.c */
	pthread_mutex_t lock;
	pthread_mutex_t exclusive; /* exclusive.c */
	atomic_bool exclusive_wanted;
	bool clock_origin_set;
	uint64_t clock_ahead_ns; /* of vmclock: kvmclock of an engine that a snapshot came from */
	struct mem_listener listener;
	uint64_t code_pages; /* what the code map covers */
	int thread;	     /* property */
	uint64_t clock_origin_tsc, clock_origin_ns;
	/* The translator's memory in bytes, for the report: used now and at most; struct soft_cpu of all vCPUs. */
	uint64_t jit_code, jit_code_most, jit_blocks, jit_blocks_most, vcpu_tables;
};

static inline struct soft_accel *soft_accel_of(const struct soft_cpu *c)
{
	return (struct soft_accel *)(void *)c->v.accel;
}

#endif
