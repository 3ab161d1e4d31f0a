/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Native ring 3: when it can be used, the processes of a vCPU, and the way of a
 * guest's state into one and back. native.h has the design.
 *
 * What stops the process: a system call instruction (the state is put back to it
 * and the other tiers execute it), a page fault (mapped, if the guest's page
 * tables allow the access; else the interpreter repeats the instruction and
 * raises what the guest must see, with all its side effects), any other fault
 * (likewise), and a signal from native_kick.
 *
 * If the process is killed from outside, the registers of its guest program are
 * lost: that program gets #GP where it last entered.
 */
#include "cpu/soft/native.h"

#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "cpu/soft/ops.h"
#include "cpu/soft/sys.h"

/* Linux's selectors for 64-bit user code, on the host as in the guest. */
#define HOST_CS 0x33
#define HOST_DS 0x2b

#define PROMOTE_US   120u   /* mean time of user code between entries to the kernel */
#define WINDOW_US    10000u /* of time and cost in stays: then it is looked whether they are worth it */
#define FIRST_SHARE  5u	    /* then a fifth of the cost must be in guest code; later, with its pages mapped, all */
#define FAILURES_MAX 8u
#define OVERHEAD_US  6u /* of a stop, which the process's time includes */
/* Measured in CPU time of both sides; a stop and back with the general registers alone is 10. */
#define COST_ENTRY_US  20u
#define COST_MAPPED_US 22u /* a page fault: a stop, and one more for the list */
#define COST_MAP_US    4u
#define COST_PAGE_US   1u
#define COST_KICK_US   11u
#define BACKOFF_MIN_US 10000u
#define BACKOFF_MAX_US 2000000u

#define FLAG_USER (FLAG_ARITH | FLAG_DF | FLAG_TF | FLAG_AC | FLAG_NT | FLAG_ID)

/* XSAVE components: what the guest may have; the others of a host (PKRU, AMX) are not its own. */
#define XCR0_GUEST 0xe7ull

/* ---- when ------------------------------------------------------------------------- */

static bool plain_base(uint64_t base)
{
	return base < NATIVE_TOP - PAGE_SIZE;
}

/* Would the host CPU do with this state exactly what the guest's must? */
static bool suitable(const struct soft_cpu *c)
{
	const struct cpu_state *s = &c->s;
	const uint16_t ds = s->seg[S_DS].sel, es = s->seg[S_ES].sel;

	return c->long64 && c->cpl == 3 && c->paging && !(s->cr4 & CR4_LA57) && !c->debug_active && !s->int_shadow &&
	       !c->lockstep && (s->rflags & FLAG_IF) &&
	       !(s->rflags & (FLAG_TF | FLAG_NT | FLAG_IOPL | FLAG_ID | FLAG_VM)) && !(s->cr0 & (CR0_TS | CR0_EM)) &&
	       (s->cr4 & (CR4_OSFXSR | CR4_OSXSAVE)) == (CR4_OSFXSR | CR4_OSXSAVE) &&
	       s->xcr0 == (c->native->host_xcr0 & XCR0_GUEST) && s->seg[S_CS].sel == HOST_CS &&
	       s->seg[S_SS].sel == HOST_DS && (!ds || ds == HOST_DS) && (!es || es == HOST_DS) && !s->seg[S_FS].sel &&
	       !s->seg[S_GS].sel && plain_base(s->seg[S_FS].base) && plain_base(s->seg[S_GS].base) &&
	       plain_base(s->rip) && !mmu_mem(c)->dirty_logging && !mmu_mem(c)->a20_off;
}

/* ---- processes ----------------------------------------------------------------------- */

static void context_end(struct soft_cpu *c, struct native_context *x)
{
	pthread_mutex_lock(&c->native->lock);
	native_proc_end(&x->proc);
	pthread_mutex_unlock(&c->native->lock);
	native_map_clear(&x->map);
	x->ndrops = 0;
	x->drop_all = false;
}

/* Said once, and only to those who asked for it by name. */
static void give_up(struct soft_cpu *c, const char *why)
{
	struct soft_accel *sa = soft_accel_of(c);

	if (sa->native != NATIVE_AUTO && !atomic_exchange(&sa->native_told, true))
		log_warn("soft: native=%s: user code is translated instead: %s",
			 sa->native == NATIVE_ON ? "on" : "always", why);
	c->n_native[NATIVE_STAT_UNAVAILABLE] = 1;
	c->native->failed = true;
	c->native_armed = false;
}

/* A place for the stub that the guest will hardly use: 1 to 64 TiB, 2 MiB each. */
static uint64_t stub_place(struct native_cpu *n)
{
	n->stub_seed = n->stub_seed * 6364136223846793005ull + 1442695040888963407ull + clock_tsc();
	return (1ull << 40) + ((n->stub_seed >> 32) % (63ull << 19)) * 2 * MIB;
}

static bool context_start(struct soft_cpu *c, struct native_context *x, unsigned others)
{
	const struct mem_map *m = mmu_mem(c);
	int fds[MEM_MAX_BLOCKS];
	unsigned nfds = 0;
	struct err err = {0};

	for (unsigned i = 0; i < m->nblocks; i++) {
		if (m->block[i].fd >= 0 && m->block[i].shared)
			fds[nfds++] = m->block[i].fd;
	}
	if (!nfds) {
		give_up(c, "it needs guest memory that is shared; with -mem-path use a memory-backend-file object "
			   "with share=on, and no mem-merge=on");
		return false;
	}
	x->proc.stub = stub_place(c->native);
	if (native_proc_start(&x->proc, fds, nfds, &err)) {
		/* RLIMIT_NPROC or a cgroup's pids.max: those there are will do. */
		if (others)
			c->native->most = others;
		else
			give_up(c, err.msg);
		return false;
	}
	c->n_native[NATIVE_STAT_PROCESSES]++;
	native_map_clear(&x->map);
	x->asid = x->global = x->missed = 0;
	memset(x->stop, 0, sizeof(x->stop));
	x->next_stop = 0;
	x->bad = false;
	x->ndrops = 0;
	x->drop_all = false;
	return true;
}

/* The process of the current address space: its own, an unused one, or the one not used longest. */
static struct native_context *context_get(struct soft_cpu *c)
{
	struct native_cpu *n = c->native;
	unsigned pcid = mmu_pcid(c);
	struct native_context *x = NULL, *unused = NULL, *oldest = NULL;
	unsigned alive = 0;

	for (unsigned i = 0; i < NATIVE_CONTEXTS; i++) {
		struct native_context *y = &n->ctx[i];

		if (!y->proc.pid) {
			unused = unused ? unused : y;
			continue;
		}
		alive++;
		if (y->pcid == pcid)
			x = y;
		if (!oldest || y->used < oldest->used)
			oldest = y;
	}
	if (!x)
		x = unused && alive < n->most ? unused : oldest;
	if (!x->proc.pid && !context_start(c, x, alive)) {
		if (n->failed)
			return NULL;
		x = oldest;
	}
	if (x->pcid != pcid) {
		x->pcid = pcid;
		x->drop_all = true;
		x->missed = 0;
	}
	x->used = ++n->clock;
	return x;
}

/* ---- state ------------------------------------------------------------------------------ */

static void regs_out(const struct soft_cpu *c, const struct native_proc *p, struct native_regs *r)
{
	const uint64_t *g = c->s.gpr;

	*r = p->initial;
	r->rax = g[R_RAX];
	r->rcx = g[R_RCX];
	r->rdx = g[R_RDX];
	r->rbx = g[R_RBX];
	r->rsp = g[R_RSP];
	r->rbp = g[R_RBP];
	r->rsi = g[R_RSI];
	r->rdi = g[R_RDI];
	r->r8 = g[R_R8];
	r->r9 = g[R_R9];
	r->r10 = g[R_R10];
	r->r11 = g[R_R11];
	r->r12 = g[R_R12];
	r->r13 = g[R_R13];
	r->r14 = g[R_R14];
	r->r15 = g[R_R15];
	r->rip = c->s.rip;
	r->eflags = (c->s.rflags & FLAG_USER) | FLAG_IF | BIT(1);
	r->ds = c->s.seg[S_DS].sel;
	r->es = c->s.seg[S_ES].sel;
	r->fs = r->gs = 0;
	r->fs_base = c->s.seg[S_FS].base;
	r->gs_base = c->s.seg[S_GS].base;
}

static void regs_in(struct soft_cpu *c, const struct native_regs *r)
{
	uint64_t *g = c->s.gpr;

	g[R_RAX] = r->rax;
	g[R_RCX] = r->rcx;
	g[R_RDX] = r->rdx;
	g[R_RBX] = r->rbx;
	g[R_RSP] = r->rsp;
	g[R_RBP] = r->rbp;
	g[R_RSI] = r->rsi;
	g[R_RDI] = r->rdi;
	g[R_R8] = r->r8;
	g[R_R9] = r->r9;
	g[R_R10] = r->r10;
	g[R_R11] = r->r11;
	g[R_R12] = r->r12;
	g[R_R13] = r->r13;
	g[R_R14] = r->r14;
	g[R_R15] = r->r15;
	c->s.rip = r->rip;
	c->s.rflags = (c->s.rflags & ~(FLAG_USER | FLAG_RF)) | (r->eflags & FLAG_USER);
}

#define XSTATE_BV     512
#define LEGACY_END    416 /* of the FXSAVE image that the CPU writes */
#define EXTENDED_FROM 576

static bool xstate_out(struct soft_cpu *c, const struct native_proc *p)
{
	struct native_cpu *n = c->native;
	size_t size = MIN(n->xsave_size, sizeof(c->s.xsave));
	struct iovec iov = {n->xsave, n->xsave_size};

	memcpy(n->xsave, c->s.xsave, size);
	memset(n->xsave + LEGACY_END, 0, EXTENDED_FROM - LEGACY_END);
	st64le(n->xsave + XSTATE_BV, n->host_xcr0 & XCR0_GUEST);
	return ptrace(PTRACE_SETREGSET, p->pid, (void *)NT_X86_XSTATE, &iov) == 0;
}

/* Components in their initial state come with their initial values. */
static bool xstate_in(struct soft_cpu *c, const struct native_proc *p)
{
	struct native_cpu *n = c->native;
	size_t size = MIN(n->xsave_size, sizeof(c->s.xsave));
	struct iovec iov = {n->xsave, NATIVE_XSAVE};

	if (ptrace(PTRACE_GETREGSET, p->pid, (void *)NT_X86_XSTATE, &iov) || iov.iov_len < EXTENDED_FROM)
		return false;
	memcpy(c->s.xsave, n->xsave, LEGACY_END);
	memcpy(c->s.xsave + EXTENDED_FROM, n->xsave + EXTENDED_FROM, size - EXTENDED_FROM);
	return true;
}

/* Segment registers the program has loaded meanwhile, from the host's table: now from its own. */
static int segments_in(struct soft_cpu *c, const struct native_regs *r)
{
	const struct {
		uint8_t seg;
		uint16_t sel;
	} now[] = {{S_DS, (uint16_t)r->ds}, {S_ES, (uint16_t)r->es}, {S_FS, (uint16_t)r->fs}, {S_GS, (uint16_t)r->gs}};

	for (unsigned i = 0; i < ARRAY_SIZE(now); i++) {
		if (now[i].sel != c->s.seg[now[i].seg].sel && seg_load(c, now[i].seg, now[i].sel))
			return EXC_RAISED;
	}
	if (!r->fs)
		c->s.seg[S_FS].base = r->fs_base;
	if (!r->gs)
		c->s.seg[S_GS].base = r->gs_base;
	if (r->cs != HOST_CS) {
		struct descriptor d;

		if (desc_check_return_cs(c, (uint16_t)r->cs, &d))
			return EXC_RAISED;
		c->s.seg[S_CS] = d.seg;
		soft_mode_changed(c);
	}
	return 0;
}

/* ---- a stay -------------------------------------------------------------------------------- */

/* The process is gone, and with it where its program was. */
static enum native_exit died(struct soft_cpu *c, struct native_context *x)
{
	c->n_native[NATIVE_STAT_DEAD]++;
	context_end(c, x);
	soft_raise_code(c, EXC_GP, 0);
	return NATIVE_RAISED;
}

static bool stopped_at(const struct native_context *x, uint64_t rip)
{
	for (unsigned k = 0; k < NATIVE_STOPS; k++) {
		if (x->stop[k] == rip)
			return true;
	}
	return false;
}

static enum native_exit on_signal(struct soft_cpu *c, struct native_context *x, struct native_regs *r, int sig,
				  bool *mapped)
{
	siginfo_t si;

	*mapped = false;
	if (ptrace(PTRACE_GETSIGINFO, x->proc.pid, NULL, &si))
		return NATIVE_STEP;
	if (sig == SIGSEGV && (si.si_code == SEGV_MAPERR || si.si_code == SEGV_ACCERR)) {
		c->n_native[NATIVE_STAT_FAULTS]++;
		switch (native_map_fault(c, x, (uint64_t)(uintptr_t)si.si_addr, r->rip)) {
		case NATIVE_FAULT_MAPPED:
			c->n_native[NATIVE_STAT_MAPPED]++;
			*mapped = true;
			return NATIVE_NO;
		case NATIVE_FAULT_BAD:
			c->n_native[NATIVE_STAT_BAD_CODE]++;
			c->native_armed = false; /* until the next return from the kernel */
			return NATIVE_ATTENTION;
		default: c->n_native[NATIVE_STAT_STEPS]++; return NATIVE_STEP;
		}
	}
	c->n_native[NATIVE_STAT_SIGNALS]++;
	if (sig == SIGSYS && r->rip < NATIVE_TOP) { /* the host's vsyscall page: undo its return */
		r->rip = (uint64_t)(uintptr_t)si.si_call_addr;
		r->rsp -= 8;
	} else if (sig == SIGTRAP && si.si_code == TRAP_TRACE) { /* POPF has set TF */
		c->s.dr[6] |= DR6_BS;
		soft_raise(c, EXC_DB);
		return NATIVE_RAISED;
	} else if (sig == SIGTRAP && si.si_code == TRAP_HWBKPT && stopped_at(x, r->rip)) {
		c->n_native[NATIVE_STAT_WATCH_HITS]++;
	} else if (sig == SIGTRAP) { /* INT3, INT1: a trap; the interpreter starts at the instruction */
		r->rip--;
	}
	return NATIVE_STEP;
}

/* Run until something is not about mapping. The registers are in *r. */
static enum native_exit stay(struct soft_cpu *c, struct native_context *x, struct native_regs *r)
{
	struct native_cpu *n = c->native;

	for (;;) {
		enum native_stop stop;
		enum native_exit e;
		uint64_t start;
		bool mapped;
		int sig;

		if (native_map_sync(c, x)) {
			x->bad = true;
			return NATIVE_ATTENTION;
		}
		atomic_store(&n->pid, x->proc.pid);
		/* Who asks, protects or writes code after this look finds `pid` and kicks. */
		if (unlikely(soft_attention(c) || atomic_load(&n->protect) ||
			     atomic_load(&soft_accel_of(c)->native_code_gen) != x->exec_gen)) {
			atomic_store(&n->pid, 0);
			atomic_fetch_add(&n->rounds, 1);
			if (soft_attention(c))
				return NATIVE_ATTENTION;
			continue;
		}
		start = clock_tsc();
		stop = native_proc_run(&x->proc, r, &sig);
		start = clock_tsc() - start;
		n->useful += start > n->overhead ? start - n->overhead : 0;
		atomic_store(&n->pid, 0);
		atomic_fetch_add(&n->rounds, 1);
		switch (stop) {
		case NATIVE_STOP_DEAD: return died(c, x);
		case NATIVE_STOP_KICK: c->n_native[NATIVE_STAT_KICKS]++; continue;
		case NATIVE_STOP_SYSCALL:
			c->n_native[NATIVE_STAT_SYSCALLS]++;
			r->rip -= 2;
			r->rax = r->orig_rax;
			return NATIVE_STEP;
		default:
			e = on_signal(c, x, r, sig, &mapped);
			if (!mapped)
				return e;
		}
	}
}

/*
 * Is it worth it? What the stay cost is reckoned, not measured: on a busy host the time between two processes says
 * more about its other work. Ticks in guest code are as the clock gives them.
 */
static void account(struct soft_cpu *c, struct native_hint *h, const uint64_t before[NATIVE_STATS])
{
	struct native_cpu *n = c->native;
	const uint64_t *now = c->n_native;

	if (!h)
		return;
	h->cost += COST_ENTRY_US + (now[NATIVE_STAT_MAPPED] - before[NATIVE_STAT_MAPPED]) * COST_MAPPED_US +
		   (now[NATIVE_STAT_MAPS] - before[NATIVE_STAT_MAPS]) * COST_MAP_US +
		   (now[NATIVE_STAT_PAGES] - before[NATIVE_STAT_PAGES]) * COST_PAGE_US +
		   (now[NATIVE_STAT_KICKS] - before[NATIVE_STAT_KICKS]) * COST_KICK_US;
	h->useful += n->useful;
	if (h->cost + h->useful / n->us < WINDOW_US)
		return;
	if (h->useful < h->cost * n->us / (h->settled ? 1 : FIRST_SHARE) && soft_accel_of(c)->native != NATIVE_ALWAYS) {
		h->backoff = MIN(MAX(h->backoff * 2, BACKOFF_MIN_US * n->us), BACKOFF_MAX_US * n->us);
		h->until = clock_tsc() + h->backoff;
		h->user = h->entries = 0;
		h->settled = false;
		c->native_armed = false;
		c->n_native[NATIVE_STAT_DEMOTIONS]++;
	} else {
		h->settled = true;
		h->backoff /= 2;
	}
	h->cost = h->useful = 0;
}

/* The process does not do what it is told. A few of them may be killed or run out of something; not every one. */
static void broken(struct soft_cpu *c, struct native_context *x)
{
	context_end(c, x);
	c->native_armed = false;
	if (++c->native->failures >= FAILURES_MAX)
		give_up(c, "its processes cannot be used (is vm.max_map_count very low, or ptrace restricted?)");
}

enum native_exit native_user_run(struct soft_cpu *c)
{
	struct native_cpu *n = c->native;
	struct native_context *x;
	struct native_regs r;
	enum native_exit e;
	uint64_t before[NATIVE_STATS];

	if (!suitable(c) || !(x = context_get(c))) {
		c->native_armed = false;
		return NATIVE_NO;
	}
	if (native_map_sync(c, x) || !xstate_out(c, &x->proc)) {
		broken(c, x);
		return NATIVE_NO;
	}
	c->n_native[NATIVE_STAT_ENTRIES]++;
	n->current = x;
	memcpy(before, c->n_native, sizeof(before));
	n->useful = 0;
	if (x->missed)
		native_map_missed(c, x);
	regs_out(c, &x->proc, &r);
	e = stay(c, x, &r);
	account(c, n->hint, before);
	if (!x->proc.pid) /* died */
		return e;
	regs_in(c, &r);
	if (!xstate_in(c, &x->proc))
		return died(c, x);
	if (segments_in(c, &r))
		return NATIVE_RAISED;
	if (x->bad)
		broken(c, x);
	else
		n->failures = 0;
	return e;
}

/* ---- life -------------------------------------------------------------------------------------- */

static size_t host_xsave_size(void)
{
	uint32_t a, b, c, d;

	return __get_cpuid_count(0xd, 0, &a, &b, &c, &d) ? b : 0;
}

/* RAM is made of a memory file for it: not where there is none, nor where no process may be traced. */
static bool host_can(void)
{
	char scope[4] = "";
	struct rlimit limit;
	int fd = memfd_create("kelvin-native", MFD_CLOEXEC);

	if (fd < 0)
		return false;
	close(fd);
	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur != RLIM_INFINITY)
		return false;
	fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t n = read(fd, scope, sizeof(scope) - 1);

		close(fd);
		return n < 1 || scope[0] != '3';
	}
	return true;
}

int native_init(struct accel *a, struct err *err)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)a;

	if (sa->native == NATIVE_AUTO && (sa->lockstep || !host_can()))
		sa->native = NATIVE_OFF;
	if (sa->native == NATIVE_OFF)
		return 0;
	if (sa->lockstep)
		return err_set(err, -EINVAL, "accel soft: lockstep=on compares the translator; it needs native=off");
	a->wants_shared_ram = true;
	return 0;
}

int native_cpu_init(struct soft_cpu *c, struct err *err)
{
	struct soft_accel *sa = soft_accel_of(c);
	struct native_cpu *n;

	if (sa->native == NATIVE_OFF)
		return 0;
	n = calloc(1, sizeof(*n));
	if (n)
		n->xsave = calloc(1, NATIVE_XSAVE);
	if (!n || !n->xsave) {
		free(n);
		return err_set(err, -ENOMEM, "no memory for native user code of CPU %u", c->v.index);
	}
	c->native = n;
	n->host_xcr0 = soft_host_xcr0();
	n->xsave_size = host_xsave_size();
	if (n->xsave_size < EXTENDED_FROM || n->xsave_size > NATIVE_XSAVE || !isa_as_host(c))
		give_up(c,
			"the guest's CPU model lacks instructions that this host executes, or its state differs (use "
			"-cpu max)");
	n->most = NATIVE_CONTEXTS;
	n->us = MAX(clock_tsc_khz() / 1000, 1ull);
	n->promote = PROMOTE_US * n->us;
	n->overhead = OVERHEAD_US * n->us;
	n->stub_seed = clock_raw_ns() ^ (uint64_t)c->v.index << 32;
	pthread_mutex_init(&n->lock, NULL);
	return 0;
}

void native_cpu_fini(struct soft_cpu *c)
{
	struct native_cpu *n = c->native;

	if (!n)
		return;
	for (unsigned i = 0; i < NATIVE_CONTEXTS; i++) {
		native_proc_end(&n->ctx[i].proc);
		native_map_free(&n->ctx[i].map);
	}
	pthread_mutex_destroy(&n->lock);
	free(n->xsave);
	free(n);
	c->native = NULL;
}

void native_code_written(struct accel *a)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)a;

	atomic_fetch_add(&sa->native_code_gen, 1);
	/* What runs there now may be the new code, not looked through: soon it is not. */
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		struct vcpu *v = __atomic_load_n(&a->vcpu[i], __ATOMIC_ACQUIRE);

		if (v && soft_cpu_of(v)->native)
			native_kick(soft_cpu_of(v));
	}
}
