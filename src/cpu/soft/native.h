/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tier 2, native ring 3: 64-bit user code of the guest runs as it is on the host
 * CPU, in a process that holds nothing but the guest's pages. Private to native*.c
 * but for the hooks at the end.
 *
 * One process per (vCPU, guest address space), a child of the vCPU's thread and
 * traced by it. The thread is either in Kelvin or waits for its child; the guest
 * runs under PTRACE_SYSEMU, so that a system call instruction stops the process
 * and never reaches the host's kernel, whatever code it stands in. What the
 * process maps is changed by a list of mmap and munmap calls that the stub, its
 * only code of ours, works through while the guest does not run.
 *
 * Which pages: like a TLB. A page is mapped when the guest touches it, with the
 * rights of the page tables at that moment (A set; writable only with D set), and
 * stays until the guest flushes the translation. The mmu's generations and INVLPG
 * say what is flushed; it is unmapped before guest code runs there again.
 *
 * Never mapped writable: pages with MEM_PAGE_CODE. Never mapped executable: pages
 * with instructions that would silently give the host's answer (native_scan.c),
 * but for four of them that the host's debug registers watch. Executable pages
 * are noted as code first, so that nobody changes them unseen.
 *
 * Threads: everything here is the vCPU's thread's, but native_kick and
 * native_protect_page, which any may call; struct native_cpu says what is shared.
 */
#ifndef KELVIN_CPU_SOFT_NATIVE_H
#define KELVIN_CPU_SOFT_NATIVE_H

#include <sys/types.h>
#include "cpu/soft/mmu_int.h"

#define NATIVE_CONTEXTS 8
#define NATIVE_DROPS	64
#define NATIVE_COMMANDS 128
#define NATIVE_XSAVE	16384
#define NATIVE_HINTS	256
#define NATIVE_TOP	0x7ffffffff000ull /* the host maps nothing for users from here on */
#define NATIVE_LOW	0x10000ull	  /* nor, usually, below here (vm.mmap_min_addr) */

/* The order of the option's values. AUTO: where the host allows it, without a word where it does not. */
enum native_when { NATIVE_OFF, NATIVE_AUTO, NATIVE_ON, NATIVE_ALWAYS };

/* ---- native_proc.c: the process ------------------------------------------- */

/* One system call of the stub; the layout is the stub's. nr < 0 ends the list. */
struct native_command {
	int64_t nr;
	uint64_t arg[6];
};

/* As PTRACE_GETREGS has them (sys/user.h, which does not go together with mem.h). */
struct native_regs {
	uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip, cs, eflags,
	    rsp, ss, fs_base, gs_base, ds, es, fs, gs;
};

struct native_proc {
	pid_t pid; /* 0: none */
	uint64_t stub;
	struct native_command *commands; /* shared with the process, which can only read it */
	unsigned ncommands;
	struct native_regs initial;
};

enum native_stop {
	NATIVE_STOP_DEAD,
	NATIVE_STOP_KICK,
	NATIVE_STOP_SYSCALL,
	NATIVE_STOP_SIGNAL, /* siginfo says which */
};

/* 0 or -errno with the reason. fds: kept open in the process. The calling thread becomes the tracer. */
int native_proc_start(struct native_proc *p, const int *fds, unsigned nfds, struct err *err);
/* Any thread when the tracer has ended or is the caller. */
void native_proc_end(struct native_proc *p);
/* Append to the list; the caller runs it before it is full. */
void native_proc_command(struct native_proc *p, int64_t nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
			 uint64_t a4, uint64_t a5);
/* Work through the list and empty it. 0, or -errno of the call that failed (-ESRCH: the process is gone). */
int native_proc_flush(struct native_proc *p);
/* Stop before the instruction at `address` from now on, by debug register n. False: this host cannot. */
bool native_proc_stop_at(struct native_proc *p, unsigned n, uint64_t address);
/* Run guest code until something stops it; *regs in and out, *sig the signal of NATIVE_STOP_SIGNAL. */
enum native_stop native_proc_run(struct native_proc *p, struct native_regs *regs, int *sig);

/* ---- native_map.c: what the process maps ----------------------------------- */

#define NATIVE_R 1u
#define NATIVE_W 2u
#define NATIVE_X 4u

struct native_page {
	uint64_t page; /* linear address | NATIVE_*; 0: empty slot */
	uint32_t index, gen;
};

struct native_map {
	struct native_page *slot;
	unsigned size, used, gone; /* slots, pages, slots of pages that are gone */
};

/* ---- contexts ------------------------------------------------------------------ */

/* The host's debug registers stop a process before an instruction that must not run natively. */
#define NATIVE_STOPS 4

struct native_context {
	struct native_proc proc;
	uint64_t stop[NATIVE_STOPS];	 /* linear addresses, 0: free */
	uint64_t stop_set[NATIVE_STOPS]; /* at which entry */
	unsigned next_stop;		 /* to be taken next */
	bool bad;			 /* could not be mapped as wanted: not used until its generation changes */
	unsigned pcid;
	uint64_t used, asid, global, exec_gen;
	uint64_t missed; /* the page of the guest's page fault that ended the last stay, 0: none */
	bool missed_exec;
	/* pages the guest dropped since the process last ran */
	uint64_t drop[NATIVE_DROPS];
	unsigned ndrops;
	bool drop_all;
	struct native_map map;
};

/* How long user code runs between entries to the kernel, by address space. */
struct native_hint {
	uint64_t cr3, user, entries; /* TSC ticks, decayed */
	uint64_t until, backoff;     /* not native before */
	uint64_t cost, useful;	     /* since the last look: microseconds of overhead, ticks in guest code */
	bool settled;		     /* its pages are mapped: more is expected */
};

/* What a look through a page found; it may depend on the page behind too. Enough for 64 MiB of code: a compiler has 30.
 */
#define NATIVE_SCANS 16384
struct native_scanned {
	uint32_t index, gen, next, next_gen;
	uint8_t n; /* as native_scan gives it */
	uint16_t found[NATIVE_STOPS];
};

struct native_cpu {
	struct native_scanned scanned[NATIVE_SCANS];
	struct native_context ctx[NATIVE_CONTEXTS];
	struct native_context *current; /* of the last run */
	uint64_t clock;			/* for `used` */
	bool failed;
	unsigned failures; /* since a stay went well */
	unsigned most;	   /* processes at a time: fewer if the host limits them */
	uint64_t host_xcr0, stub_seed;
	uint64_t us, since, promote, overhead; /* TSC ticks; us: of a microsecond */
	uint64_t useful;		       /* ticks of the stay in guest code */
	struct native_hint *hint;	       /* of the address space that runs user code */
	struct native_hint hints[NATIVE_HINTS];
	uint8_t *xsave; /* the host kernel's image, NATIVE_XSAVE bytes */
	size_t xsave_size;
	/* shared with other threads */
	pthread_mutex_t lock;
	_Atomic int pid;	 /* of the process that runs guest code now, 0: none */
	_Atomic uint32_t rounds; /* changes when `pid` becomes 0 */
	_Atomic bool protect;	 /* under `lock` too: pages that must not be mapped writable any more */
	uint64_t protect_page[NATIVE_DROPS];
	unsigned nprotect;
	bool protect_all;
};

/* The page tables' generations have not changed, or what is stale is unmapped now. 0 or -errno. */
int native_map_sync(struct soft_cpu *c, struct native_context *x);
enum native_fault {
	NATIVE_FAULT_MAPPED, /* go on */
	NATIVE_FAULT_STEP,   /* the interpreter's turn: the guest's fault, a device, code written */
	NATIVE_FAULT_BAD,    /* code that must not run natively */
	NATIVE_FAULT_FAILED, /* the process cannot be used */
};
/* A page fault at `addr` with the process at `rip`. */
enum native_fault native_map_fault(struct soft_cpu *c, struct native_context *x, uint64_t addr, uint64_t rip);
/* After native_map_sync: the page that was missed last is likely there now, and the program goes on with it. */
void native_map_missed(struct soft_cpu *c, struct native_context *x);
void native_map_clear(struct native_map *m);
void native_map_free(struct native_map *m);

/* ---- native_scan.c ---------------------------------------------------------------- */

/*
 * The instructions of the page that must not run natively: how many, more than `max` for too many or unclear; where
 * the first `max` begin in the page. next: NATIVE_SCAN_AFTER bytes of the page behind, NULL when it cannot be read.
 */
#define NATIVE_SCAN_AFTER 16u
/* Does it matter for native_scan what the page behind is? Most often not. */
bool native_scan_wants_next(const uint8_t page[PAGE_SIZE]);
unsigned native_scan(const struct soft_cpu *c, const uint8_t page[PAGE_SIZE], const uint8_t *next, uint16_t *found,
		     unsigned max);

/* ---- native.c ------------------------------------------------------------------------ */

enum native_exit {
	NATIVE_NO,	  /* nothing was done: the other tiers' turn */
	NATIVE_STEP,	  /* the interpreter must run the next instruction */
	NATIVE_ATTENTION, /* requests are pending */
	NATIVE_RAISED,	  /* an exception is recorded */
};
/* Run user code natively from c->s; the state is there again on return. */
enum native_exit native_user_run(struct soft_cpu *c);
int native_init(struct accel *a, struct err *err);
int native_cpu_init(struct soft_cpu *c, struct err *err);
void native_cpu_fini(struct soft_cpu *c);
/* A code page that runs natively somewhere was written (code.c). Any thread. */
void native_code_written(struct accel *a);

#endif
