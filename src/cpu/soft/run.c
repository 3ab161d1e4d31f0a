/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The loop of a software vCPU: requests, interrupts, single step and
 * breakpoints, HLT, and the choice of translator or interpreter.
 *
 * Each vCPU's thread runs vcpu_run. Others set bits in vcpu.requests and kick.
 * A running vCPU polls the word at block boundaries, so a kick only has to wake
 * a sleeper (sleep.c).
 */
#include "cpu/soft/run.h"

#include <asm/prctl.h>
#include <inttypes.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "cpu/soft/lockstep.h"
#include "cpu/soft/mmu.h"
#include "cpu/soft/native.h"
#include "cpu/soft/sys.h"
#include "io/vmclock.h"

#define INTERP_BUDGET 100000

/* ---- derived state ------------------------------------------------------------- */

static bool data_open(const struct cpu_segment *s)
{
	return !s->unusable && s->limit == 0xffffffff && (s->type & (DESC_CODE | DESC_EXPAND | DESC_RW)) == DESC_RW;
}

static bool segments_flat(const struct soft_cpu *c)
{
	static const uint8_t seg[] = {S_CS, S_DS, S_ES, S_SS};

	if (c->long64)
		return true;
	for (unsigned n = 0; n < ARRAY_SIZE(seg); n++) {
		const struct cpu_segment *s = &c->s.seg[seg[n]];

		if (s->unusable || s->base || s->limit != 0xffffffff || (seg[n] != S_CS && !data_open(s)))
			return false;
	}
	return true;
}

void soft_mode_changed(struct soft_cpu *c)
{
	const struct cpu_state *s = &c->s;
	unsigned old = c->cpl;
	bool real = !(s->cr0 & CR0_PE), vm86 = s->rflags & FLAG_VM, lma = s->efer & EFER_LMA;

	c->cpl = real ? 0 : vm86 ? 3 : s->seg[S_SS].dpl;
	c->long64 = lma && s->seg[S_CS].l;
	c->code32 = !c->long64 && s->seg[S_CS].db;
	c->stack32 = s->seg[S_SS].db;
	c->paging = s->cr0 & CR0_PG;
	c->smap = s->cr4 & CR4_SMAP;
	c->wp = s->cr0 & CR0_WP;
	c->nxe = s->efer & EFER_NXE;
	c->mmu_index = c->cpl == 3 ? MMU_USER : !c->smap || (s->rflags & FLAG_AC) ? MMU_KERNEL_AC : MMU_KERNEL;
	if (c->mmu)
		mmu_set_align_check(c, c->cpl == 3 && (s->cr0 & CR0_AM) && (s->rflags & FLAG_AC));
	c->mode_key = (c->long64 ? SOFT_KEY_LONG64 : 0) | (c->code32 ? SOFT_KEY_CODE32 : 0) |
		      (c->stack32 && !c->long64 ? SOFT_KEY_STACK32 : 0) |
		      ((uint32_t)c->mmu_index << SOFT_KEY_MMU_SHIFT) | (c->cpl == 3 ? SOFT_KEY_CPL3 : 0) |
		      (s->cr0 & (CR0_TS | CR0_EM) ? SOFT_KEY_TS_EM : 0) | (s->rflags & FLAG_TF ? SOFT_KEY_TF : 0) |
		      (s->cr4 & CR4_OSXSAVE ? 0 : SOFT_KEY_OSXSAVE_OFF) | (segments_flat(c) ? SOFT_KEY_FLAT : 0) |
		      (real || vm86 ? SOFT_KEY_REAL : 0);
	if (!c->long64)
		c->mode_key |=
		    (data_open(&s->seg[S_FS]) ? SOFT_KEY_FS : 0) | (data_open(&s->seg[S_GS]) ? SOFT_KEY_GS : 0);
	if (unlikely(c->native) && c->cpl != old)
		native_cpl_changed(c, old);
}

/* ---- time ------------------------------------------------------------------------ */

uint64_t soft_tsc(const struct soft_cpu *c)
{
	const struct vmclock *clk = c->v.accel->cfg.clock;
	uint64_t tsc;

	if (unlikely(c->lockstep) && lockstep_tsc(c, &tsc))
		return tsc;
	if (unlikely(clk->tsc_from_ns))
		return vmclock_tsc(clk) + c->s.tsc_adjust;
	return clock_tsc() + c->tsc_offset;
}

void soft_tsc_update(struct soft_cpu *c)
{
	c->tsc_offset = c->v.accel->cfg.clock->tsc_offset + c->s.tsc_adjust;
	kvmclock_write_time(c);
}

/* ---- debug registers ---------------------------------------------------------------- */

enum debug_kind { DEBUG_EXEC = 0, DEBUG_WRITE = 1, DEBUG_IO = 2, DEBUG_ACCESS = 3 };

static bool debug_enabled(const struct soft_cpu *c, unsigned n)
{
	return c->s.dr[7] & DR7_ENABLED(n);
}
static unsigned debug_kind(const struct soft_cpu *c, unsigned n)
{
	return (c->s.dr[7] >> (16 + 4 * n)) & 3;
}
static unsigned debug_len(const struct soft_cpu *c, unsigned n)
{
	static const uint8_t len[] = {1, 2, 8, 4};

	return len[(c->s.dr[7] >> (18 + 4 * n)) & 3];
}

void soft_debug_changed(struct soft_cpu *c)
{
	struct mmu_watch w[4];
	unsigned n = 0;

	c->debug_active = false;
	for (unsigned d = 0; d < 4; d++) {
		unsigned kind = debug_kind(c, d), len = debug_len(c, d);

		/* Without CR4.DE the encoding of I/O breakpoints is undefined: none. */
		if (!debug_enabled(c, d) || (kind == DEBUG_IO && !(c->s.cr4 & CR4_DE)))
			continue;
		c->debug_active = true;
		if (kind == DEBUG_WRITE || kind == DEBUG_ACCESS)
			w[n++] = (struct mmu_watch){.lin = c->s.dr[d] & ~(uint64_t)(len - 1),
						    .len = (uint8_t)len,
						    .dr = (uint8_t)d,
						    .reads = kind == DEBUG_ACCESS};
	}
	mmu_set_watch(c, w, n);
}

void soft_debug_io(struct soft_cpu *c, uint16_t port, unsigned size)
{
	for (unsigned d = 0; d < 4; d++) {
		unsigned len = debug_len(c, d);
		uint64_t first = c->s.dr[d] & ~(uint64_t)(len - 1);

		if (debug_enabled(c, d) && debug_kind(c, d) == DEBUG_IO && (c->s.cr4 & CR4_DE) && port < first + len &&
		    port + size > first)
			c->io_hit |= (uint8_t)BIT(d);
	}
}

/* An instruction breakpoint at rip? DR6 bits. */
static uint64_t exec_breakpoints(const struct soft_cpu *c)
{
	uint64_t hit = 0, lin = c->long64 ? c->s.rip : (uint32_t)(c->s.rip + c->s.seg[S_CS].base);

	for (unsigned d = 0; d < 4; d++) {
		if (debug_enabled(c, d) && debug_kind(c, d) == DEBUG_EXEC && c->s.dr[d] == lin)
			hit |= BIT(d);
	}
	return hit;
}

/* One instruction with everything around it that RFLAGS.TF and DR7 ask for. */
static int run_debug_step(struct soft_cpu *c)
{
	bool step = c->s.rflags & FLAG_TF;
	uint64_t hit;
	int r;

	if (c->debug_active && !(c->s.rflags & FLAG_RF)) {
		hit = exec_breakpoints(c);
		if (hit) {
			c->s.dr[6] = (c->s.dr[6] & ~0xfull) | hit;
			c->s.rflags |= FLAG_RF; /* this #DB is a fault: its IRET must get past the breakpoint */
			return soft_raise(c, EXC_DB);
		}
	}
	c->s.rflags &= ~FLAG_RF;
	c->s.int_shadow = c->handler_entered = false;
	c->io_hit = 0;
	r = interp_step(c);
	hit = mmu_take_watch_hit(c) | c->io_hit;
	if (r)
		return r;
	/* INT n, INT3 and INTO cleared TF on their way. */
	if (c->handler_entered)
		step = false;
	/* MOV SS and POP SS delay the trap by an instruction. */
	if (c->s.int_shadow)
		return 0;
	if (hit || step) {
		c->s.dr[6] = (c->s.dr[6] & ~0xfull) | hit | (step ? DR6_BS : 0);
		return soft_raise(c, EXC_DB);
	}
	return 0;
}

/* ---- requests --------------------------------------------------------------------------- */

static void do_init(struct soft_cpu *c)
{
	cpu_state_init(&c->s, c->v.index == 0);
	sys_host(c)->lapic_reset(sys_host(c)->opaque, c->v.index, true);
	mmu_switch_cr3(c, c->s.cr3, false);
	mmu_flush_all(c);
	soft_debug_changed(c);
	soft_mode_changed(c);
	c->intr_latched = false;
	log_diag(LOG_CPU_RESET, "cpu %u: INIT", c->v.index);
}

static void do_sipi(struct soft_cpu *c)
{
	if (c->s.mp_state != MP_WAIT_SIPI)
		return;
	cpu_state_sipi(&c->s, atomic_load(&c->v.sipi_vector));
	soft_mode_changed(c);
	log_diag(LOG_CPU_RESET, "cpu %u: SIPI to %05" PRIx64, c->v.index, c->s.seg[S_CS].base);
}

/* Returns true when vcpu_run must be left. INIT before SIPI: a late thread may find both. */
static bool handle_requests(struct soft_cpu *c)
{
	uint32_t req = atomic_exchange(&c->v.requests, 0);

	/* Before what the request brings (an interrupt, mostly) is seen by the guest. */
	codesync_check(c);
	if (req & VCPU_REQ_TLB_FLUSH)
		mmu_flush_all(c);
	if (req & VCPU_REQ_INIT)
		do_init(c);
	if (req & VCPU_REQ_SIPI)
		do_sipi(c);
	if (req & VCPU_REQ_NMI)
		c->s.nmi_pending = true;
	if (req & VCPU_REQ_INTR)
		c->intr_latched = true;
	return req & VCPU_REQ_STOP;
}

static void wake(struct soft_cpu *c)
{
	c->s.mp_state = MP_RUNNING;
	atomic_store(&c->v.halted, false);
}

/* Deliver what is pending and allowed at this boundary. */
static void take_interrupts(struct soft_cpu *c)
{
	const struct cpu_host *h = sys_host(c);
	int vector;

	if (c->s.mp_state > MP_HALTED)
		return;
	if (c->s.nmi_pending && !c->s.nmi_blocked) {
		c->s.nmi_pending = false;
		wake(c);
		exc_deliver_nmi(c);
	}
	if (!c->intr_latched || !(c->s.rflags & FLAG_IF))
		return;
	/* Latched again by the controller when there is more. */
	c->intr_latched = false;
	if (!h->intr_pending(h->opaque, c->v.index))
		return;
	vector = h->intr_ack(h->opaque, c->v.index);
	if (vector < 0)
		return;
	c->intr_latched = true;
	wake(c);
	exc_deliver_interrupt(c, (uint8_t)vector);
}

/* ---- the loop ------------------------------------------------------------------------------ */

static int run_code(struct soft_cpu *c)
{
	const struct soft_accel *a = soft_accel_of(c);

	if (unlikely(c->debug_active || (c->s.rflags & FLAG_TF)))
		return run_debug_step(c);
	if (unlikely(c->lockstep) && !c->s.int_shadow)
		return lockstep_run(c);
	if (unlikely(c->native_armed) && c->cpl == 3) {
		switch (native_user_run(c)) {
		case NATIVE_RAISED: return EXC_RAISED;
		case NATIVE_ATTENTION: return 0;
		case NATIVE_STEP: return interp_step(c);
		default: break;
		}
	}
	if (a->jit_on && !c->s.int_shadow && jit_enabled(&a->a)) {
		switch (jit_run(c)) {
		case JIT_EXC: return EXC_RAISED;
		case JIT_NATIVE:
		case JIT_ATTENTION: return 0;
		default: break;
		}
		/* POPF may have set TF: then what follows is stepped. */
		if (unlikely(c->debug_active || (c->s.rflags & FLAG_TF)))
			return run_debug_step(c);
		return interp_run(c, 1); /* one block */
	}
	return interp_run(c, INTERP_BUDGET);
}

static void first_insn(struct soft_cpu *c)
{
	const struct cpu_host *h = sys_host(c);

	if (c->v.index || c->n_first_insn_ns)
		return;
	c->n_first_insn_ns = clock_raw_ns();
	if (h->first_insn)
		h->first_insn(h->opaque);
}

int soft_vcpu_run(struct vcpu *v)
{
	struct soft_cpu *c = soft_cpu_of(v);
	int r;

	/* Translated code finds this structure through GS. */
	syscall(SYS_arch_prctl, ARCH_SET_GS, (unsigned long)c);
	/* Timers of a halted vCPU are exact, not 50 us late. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	soft_tsc_update(c);
	for (;;) {
		if (soft_attention(c) && handle_requests(c))
			return 0;
		if (!c->s.int_shadow)
			take_interrupts(c);
		if (c->s.mp_state != MP_RUNNING) {
			atomic_store(&c->v.halted, true);
			soft_sleep(c);
			continue;
		}
		first_insn(c);
		soft_turn_begin(c);
		r = run_code(c);
		soft_turn_end(c);
		if (r)
			exc_deliver_raised(c);
	}
}

void soft_log_state(const struct soft_cpu *c)
{
	static const char *const name[] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
					   "r8",  "r9",	 "r10", "r11", "r12", "r13", "r14", "r15"};
	static const char *const seg[] = {"es", "cs", "ss", "ds", "fs", "gs", "ldtr", "tr"};
	const struct cpu_state *s = &c->s;

	if (!log_on(LOG_CPU_RESET))
		return;
	for (unsigned n = 0; n < 16; n += 4)
		log_diag(LOG_CPU_RESET,
			 "  %-3s %016" PRIx64 " %-3s %016" PRIx64 " %-3s %016" PRIx64 " %-3s %016" PRIx64, name[n],
			 s->gpr[n], name[n + 1], s->gpr[n + 1], name[n + 2], s->gpr[n + 2], name[n + 3], s->gpr[n + 3]);
	log_diag(LOG_CPU_RESET, "  rip %016" PRIx64 " rflags %08" PRIx64 " cpl %u", s->rip, s->rflags, c->cpl);
	for (unsigned n = 0; n < S_COUNT; n++)
		log_diag(LOG_CPU_RESET, "  %-4s %04x base %016" PRIx64 " limit %08x type %x dpl %u l %u db %u", seg[n],
			 s->seg[n].sel, s->seg[n].base, s->seg[n].limit, s->seg[n].type, s->seg[n].dpl, s->seg[n].l,
			 s->seg[n].db);
	log_diag(LOG_CPU_RESET,
		 "  cr0 %08" PRIx64 " cr2 %016" PRIx64 " cr3 %016" PRIx64 " cr4 %08" PRIx64 " efer %04" PRIx64, s->cr0,
		 s->cr2, s->cr3, s->cr4, s->efer);
	log_diag(LOG_CPU_RESET, "  gdtr %016" PRIx64 " %04x idtr %016" PRIx64 " %04x", s->gdtr.base, s->gdtr.limit,
		 s->idtr.base, s->idtr.limit);
}
