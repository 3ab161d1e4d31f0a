/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The software engine as the board sees it: struct accel_ops "soft", its
 * options, and the life of its vCPUs. Main thread with the vCPUs stopped, except
 * the listener's TLB flush request.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "base/log.h"
#include "cpu/soft/jit.h"
#include "cpu/soft/lockstep.h"
#include "cpu/soft/mmu.h"
#include "cpu/soft/native.h"
#include "cpu/soft/run.h"
#include "cpu/soft/sys.h"
#include "io/vmclock.h"

static const struct prop soft_props[] = {
    {.name = "jit",
     .kind = PROP_BOOL,
     .offset = offsetof(struct soft_accel, jit_on),
     .def = "on",
     .help = "translate hot code for the host CPU"},
    {.name = "jit-threshold",
     .kind = PROP_U32,
     .offset = offsetof(struct soft_accel, jit_threshold),
     .def = "16",
     .help = "executions of a block before it is translated",
     .min = 1,
     .max = 1000000},
    {.name = "halt-poll",
     .kind = PROP_U32,
     .offset = offsetof(struct soft_accel, halt_poll),
     .def = "50000",
     .help = "nanoseconds a halted CPU at most looks for work before it sleeps, if its last sleeps were that short",
     .max = 1000000},
    {.name = "jit-always",
     .kind = PROP_BOOL,
     .offset = offsetof(struct soft_accel, jit_always),
     .def = "off",
     .help = "translate everything at first sight (for tests)"},
    {.name = "jit-exact-flags",
     .kind = PROP_BOOL,
     .offset = offsetof(struct soft_accel, jit_exact_flags),
     .def = "on",
     .help = "show a fault handler also those arithmetic flags that no instruction will read (costs a few percent)"},
    {.name = "perf-map",
     .kind = PROP_BOOL,
     .offset = offsetof(struct soft_accel, perf_map),
     .def = "off",
     .help = "write /tmp/perf-PID.map, by which perf names translated code"},
    {.name = "lockstep",
     .kind = PROP_BOOL,
     .offset = offsetof(struct soft_accel, lockstep),
     .def = "off",
     .help = "run each block in the interpreter and in the translator and compare (for tests; -smp 1, slow)"},
    {.name = "native",
     .kind = PROP_ENUM,
     .offset = offsetof(struct soft_accel, native),
     .def = "auto",
     .values = (const char *const[]){"off", "auto", "on", "always", NULL},
     .help = "run 64-bit user code that computes directly on the host CPU, in processes of its own (auto: where the "
	     "host allows it; on: say so if it does not; always: all user code, for tests)"},
    /* QEMU's spelling for its TCG; vCPUs are threads here whatever it says. */
    {.name = "thread",
     .kind = PROP_ENUM,
     .offset = offsetof(struct soft_accel, thread),
     .def = "multi",
     .values = (const char *const[]){"multi", NULL},
     .help = "vCPUs run in threads of their own"},
    {0},
};

static int soft_probe(struct err *err)
{
	return 0;
}

static void soft_destroy(struct accel *a)
{
	struct soft_accel *s = (struct soft_accel *)(void *)a;

	mem_remove_listener(a->cfg.mem, &s->listener);
	if (s->jit_on)
		jit_fini(a);
	code_fini(a);
	codesync_fini(a);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->exclusive);
	free(a->vcpu);
	free(s);
}

/* Devices are never in the TLB's first level, but the second remembers that a page is not RAM. */
static void map_changed(void *opaque)
{
	struct soft_accel *s = opaque;
	struct err err = {0};

	/* RAM came after the engine, before a vCPU ran: the code map must cover it. */
	if (s->a.cfg.mem->pages != s->code_pages) {
		code_fini(&s->a);
		if (code_init(&s->a, &err))
			BUG("%s", err.msg);
		s->code_pages = s->a.cfg.mem->pages;
	}
	for (unsigned i = 0; i < s->a.cfg.ncpus; i++) {
		struct vcpu *v = __atomic_load_n(&s->a.vcpu[i], __ATOMIC_ACQUIRE);

		if (v)
			vcpu_request(v, VCPU_REQ_TLB_FLUSH);
	}
}

static struct accel *soft_create(const struct accel_config *cfg, struct opts *options, struct err *err)
{
	static const char *const except[] = {NULL};
	struct soft_accel *s = calloc(1, sizeof(*s));

	if (!s) {
		err_set(err, -ENOMEM, "no memory for the software CPU");
		return NULL;
	}
	s->a.ops = &soft_accel_ops;
	s->a.cfg = *cfg;
	s->a.vcpu = calloc(cfg->ncpus, sizeof(*s->a.vcpu));
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->exclusive, NULL);
	if (!s->a.vcpu) {
		err_set(err, -ENOMEM, "no memory for the software CPU");
		goto fail;
	}
	if (type_init(&soft_accel_ops.type, s, err) ||
	    (options && type_set_opts(&soft_accel_ops.type, s, options, except, err)))
		goto fail;
	if (s->lockstep && !s->jit_on) {
		err_set(err, -EINVAL, "accel soft: lockstep=on compares the translator, and jit=off is without it");
		goto fail;
	}
	if (s->perf_map && !s->jit_on) {
		err_set(err, -EINVAL, "accel soft: perf-map=on is about translated code, and jit=off makes none");
		goto fail;
	}
	if (native_init(&s->a, err))
		goto fail;
	s->code_pages = cfg->mem->pages;
	if (codesync_init(&s->a, err) || code_init(&s->a, err))
		goto fail;
	if (s->jit_on && jit_init(&s->a, options, err)) {
		code_fini(&s->a);
		goto fail;
	}
	s->listener.changed = map_changed;
	s->listener.opaque = s;
	mem_add_listener(cfg->mem, &s->listener);
	return &s->a;
fail:
	codesync_fini(&s->a);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->exclusive);
	free(s->a.vcpu);
	free(s);
	return NULL;
}

static void vcpu_free(struct soft_cpu *c)
{
	native_cpu_fini(c);
	lockstep_fini(c);
	interp_fini(c);
	mmu_fini(c);
	pthread_cond_destroy(&c->sleep_cond);
	pthread_mutex_destroy(&c->sleep_lock);
	munmap(c, sizeof(*c));
}

static struct vcpu *soft_vcpu_create(struct accel *a, unsigned index, uint32_t apic_id, struct err *err)
{
	struct soft_accel *s = (struct soft_accel *)(void *)a;
	/* Zeroed, and only what is used becomes resident. */
	struct soft_cpu *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (c == MAP_FAILED) {
		err_set(err, -ENOMEM, "no memory for CPU %u", index);
		return NULL;
	}
	c->v.accel = a;
	c->v.index = index;
	c->v.apic_id = apic_id;
	pthread_mutex_init(&c->sleep_lock, NULL);
	pthread_cond_init(&c->sleep_cond, NULL);
	cpu_state_reset(&c->s, index == 0);
	c->vendor_intel = soft_vendor_intel(a->cfg.model);
	soft_mode_changed(c);
	if (mmu_init(c, err) || interp_init(c, err) || (s->jit_on && jit_cpu_init(c, err)) ||
	    (s->lockstep && lockstep_init(c, err)) || native_cpu_init(c, err)) {
		vcpu_free(c);
		return NULL;
	}
	counter_add(&s->vcpu_tables, sizeof(*c));
	__atomic_store_n(&a->vcpu[index], &c->v, __ATOMIC_RELEASE);
	return &c->v;
}

static void soft_vcpu_destroy(struct vcpu *v)
{
	struct soft_cpu *c = soft_cpu_of(v);
	struct soft_accel *s = (struct soft_accel *)(void *)v->accel;

	__atomic_store_n(&v->accel->vcpu[v->index], NULL, __ATOMIC_RELEASE);
	if (s->jit_on)
		jit_cpu_fini(c);
	vcpu_free(c);
}

/* ---- state --------------------------------------------------------------------------- */

#define XSTATE_BV 512

static int soft_get_state(struct vcpu *v, struct cpu_state *s)
{
	struct soft_cpu *c = soft_cpu_of(v);

	*s = c->s;
	s->cr8 = sys_host(c)->tpr_get(sys_host(c)->opaque, v->index);
	/* Every component's area is valid while the CPU runs; say so in the image. SSE is there without XSAVE too. */
	st64le(s->xsave + XSTATE_BV, s->xcr0 | 3);
	return 0;
}

/* Areas of components the image says are in their initial state get their initial values. */
static void resolve_xsave(struct cpu_state *s)
{
	uint64_t bv = ld64le(s->xsave + XSTATE_BV);

	if (!(bv & 1)) {
		memset(s->xsave, 0, 24);
		st16le(s->xsave, 0x37f);
		memset(s->xsave + 32, 0, 128);
	}
	if (!(bv & 2))
		memset(s->xsave + 160, 0, 256);
	if (!(bv & ~3ull))
		memset(s->xsave + XSTATE_BV + 64, 0, sizeof(s->xsave) - XSTATE_BV - 64);
	st64le(s->xsave + XSTATE_BV, 0);
	st64le(s->xsave + XSTATE_BV + 8, 0);
}

static int soft_set_state(struct vcpu *v, const struct cpu_state *s)
{
	struct soft_cpu *c = soft_cpu_of(v);

	c->s = *s;
	resolve_xsave(&c->s);
	sys_host(c)->tpr_set(sys_host(c)->opaque, v->index, s->cr8);
	c->triple_faulted = c->exc_raised = c->intr_latched = false;
	atomic_fetch_and(&v->requests, (uint32_t) ~(VCPU_REQ_INIT | VCPU_REQ_SIPI | VCPU_REQ_NMI));
	/* What the controller has may be deliverable now: look once. */
	atomic_fetch_or(&v->requests, VCPU_REQ_INTR);
	atomic_store(&v->halted, s->mp_state == MP_HALTED);
	mmu_switch_cr3(c, s->cr3, false);
	mmu_flush_all(c);
	soft_mode_changed(c);
	c->ferr = !(s->cr0 & CR0_NE); /* the board may have it asserted */
	if (c->paging)
		mmu_load_pdptes(c);
	soft_debug_changed(c);
	return 0;
}

/* ---- snapshots ----------------------------------------------------------------------- */

static int soft_check_state(struct vcpu *v, const struct cpu_state *s, struct err *err)
{
	if (s->cr4 & ~sys_cr4_allowed(soft_cpu_of(v)))
		return err_set(err, -ENOTSUP, "the guest uses CPU features (CR4 0x%llx) that this CPU model has not",
			       (unsigned long long)(s->cr4 & ~sys_cr4_allowed(soft_cpu_of(v))));
	return 0;
}

static int soft_model_changed(struct accel *a, struct err *err)
{
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		struct soft_cpu *c = soft_cpu_of(a->vcpu[i]);

		c->vendor_intel = soft_vendor_intel(a->cfg.model);
		mmu_model_changed(c);
		interp_model_changed(c);
		soft_mode_changed(c);
	}
	return 0;
}

/* kvmclock is vmclock, unless it was behind the clock of another engine. */
static uint64_t soft_kvmclock_get(struct accel *a)
{
	return vmclock_ns(a->cfg.clock) + ((struct soft_accel *)(void *)a)->clock_ahead_ns;
}

static void soft_kvmclock_set(struct accel *a, uint64_t ns)
{
	const uint64_t now = vmclock_ns(a->cfg.clock);
	struct soft_accel *s = (struct soft_accel *)(void *)a;

	s->clock_ahead_ns = ns > now ? ns - now : 0;
	s->clock_origin_set = false;
	for (unsigned i = 0; i < a->cfg.ncpus; i++)
		kvmclock_write_time(soft_cpu_of(a->vcpu[i]));
}

static void soft_clock_changed(struct accel *a, bool running)
{
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		if (a->vcpu[i])
			soft_cpu_of(a->vcpu[i])->tsc_offset =
			    a->cfg.clock->tsc_offset + soft_cpu_of(a->vcpu[i])->s.tsc_adjust;
	}
}

/* The bits are in the map already; write entries made before must find the cleared bits. */
static int soft_sync_dirty(struct accel *a, struct err *err)
{
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		if (a->vcpu[i])
			vcpu_request(a->vcpu[i], VCPU_REQ_TLB_FLUSH);
	}
	return 0;
}

static unsigned supported_cpuid(struct cpuid_entry *out, unsigned max, struct err *err)
{
	return soft_supported_cpuid(out, max);
}

#define COUNTER(field, text)                                                                                           \
	{                                                                                                              \
#field, offsetof(struct soft_cpu, n_##field), text                                                     \
	}
#define JIT_COUNTER(name, stat, text)                                                                                  \
	{                                                                                                              \
		name, offsetof(struct soft_cpu, n_jit) + (stat) * sizeof(uint64_t), text                               \
	}
#define NATIVE_COUNTER(name, stat, text)                                                                               \
	{                                                                                                              \
		name, offsetof(struct soft_cpu, n_native) + (stat) * sizeof(uint64_t), text                            \
	}
static const struct counter soft_counters[] = {
    COUNTER(insns, "guest instructions in the interpreter"),
    COUNTER(blocks_decoded, "blocks decoded"),
    COUNTER(block_hits, "blocks found decoded"),
    COUNTER(tlb_misses, "lookups the first-level TLB missed"),
    COUNTER(page_walks, "walks of the guest's page tables"),
    COUNTER(tlb_flushes, "TLB flushes"),
    COUNTER(exceptions, "exceptions delivered"),
    COUNTER(interrupts, "interrupts delivered"),
    COUNTER(port_io, "port accesses"),
    COUNTER(mmio, "accesses to memory-mapped devices"),
    COUNTER(halts, "HLT instructions"),
    COUNTER(code_invalidations, "writes to decoded code"),
    COUNTER(jit_blocks, "blocks translated"),
    COUNTER(jit_exits, "returns from translated code"),
    JIT_COUNTER("jit_exit_lookup", JIT_STAT_REASON + REASON_LOOKUP, "indirect jump not in the table (kernel)"),
    JIT_COUNTER("jit_exit_lookup_user", JIT_STAT_REASON + REASON_LOOKUP_USER, "the same of user mode"),
    JIT_COUNTER("jit_exit_far", JIT_STAT_REASON + REASON_FAR,
		"direct jump to another page, not linked or the page not in the TLB"),
    JIT_COUNTER("jit_exit_cross", JIT_STAT_REASON + REASON_CROSS,
		"instruction across pages, the second not in the TLB"),
    JIT_COUNTER("jit_exit_link", JIT_STAT_REASON + REASON_LINK, "direct jump not linked yet"),
    JIT_COUNTER("jit_exit_interp", JIT_STAT_REASON + REASON_INTERP, "access or instruction left to the interpreter"),
    JIT_COUNTER("jit_exit_poll", JIT_STAT_REASON + REASON_POLL, "requests pending"),
    JIT_COUNTER("jit_exit_fault", JIT_STAT_REASON + REASON_FAULT, "exceptions in translated code"),
    JIT_COUNTER("jit_exit_step", JIT_STAT_REASON + REASON_STEP, "instructions run by their handler"),
    JIT_COUNTER("jit_step_unload", JIT_STAT_STEP_LOUD, "those that need the vector state in memory"),
    JIT_COUNTER("jit_flushes", JIT_STAT_FLUSHES, "full caches emptied, as this CPU saw them"),
    JIT_COUNTER("jit_finds", JIT_STAT_FINDS, "searches for a block"),
    JIT_COUNTER("jit_cold", JIT_STAT_COLD, "searches that ended in the interpreter: not often enough yet"),
    JIT_COUNTER("jit_heat_taken", JIT_STAT_HEAT_TAKEN, "the same: two places share a counter"),
    JIT_COUNTER("jit_failed", JIT_STAT_FAILED, "the same: cannot be translated"),
    JIT_COUNTER("jit_table_clears", JIT_STAT_TABLE_CLEARS, "jump tables emptied, for another mode or a new cache"),
    JIT_COUNTER("jit_slow_reads", JIT_STAT_SLOW_READ, "reads of translated code the first-level TLB missed"),
    JIT_COUNTER("jit_slow_writes", JIT_STAT_SLOW_WRITE, "the same of writes"),
    JIT_COUNTER("jit_vec_loads", JIT_STAT_VEC_LOADS, "vector states loaded"),
    NATIVE_COUNTER("native_entries", NATIVE_STAT_ENTRIES, "stays of user code in a native process"),
    NATIVE_COUNTER("native_syscalls", NATIVE_STAT_SYSCALLS, "stays that a system call ended"),
    NATIVE_COUNTER("native_steps", NATIVE_STAT_STEPS, "the same: a page fault of the guest, or an access not mapped"),
    NATIVE_COUNTER("native_signals", NATIVE_STAT_SIGNALS, "the same: another exception"),
    NATIVE_COUNTER("native_watch_hits", NATIVE_STAT_WATCH_HITS, "of those, instructions watched by debug registers"),
    NATIVE_COUNTER("native_watched", NATIVE_STAT_WATCHED, "instructions that debug registers came to watch"),
    NATIVE_COUNTER("native_bad_code", NATIVE_STAT_BAD_CODE, "the same: code that must not run natively"),
    NATIVE_COUNTER("native_kicks", NATIVE_STAT_KICKS, "stays interrupted for a request"),
    NATIVE_COUNTER("native_faults", NATIVE_STAT_FAULTS, "page faults in native processes"),
    NATIVE_COUNTER("native_mapped", NATIVE_STAT_MAPPED, "those that needed a page mapped"),
    NATIVE_COUNTER("native_maps", NATIVE_STAT_MAPS, "runs of pages mapped"),
    NATIVE_COUNTER("native_pages", NATIVE_STAT_PAGES, "pages mapped"),
    NATIVE_COUNTER("native_flushes", NATIVE_STAT_FLUSHES, "address spaces emptied for a TLB flush"),
    NATIVE_COUNTER("native_processes", NATIVE_STAT_PROCESSES, "native processes started"),
    NATIVE_COUNTER("native_demotions", NATIVE_STAT_DEMOTIONS, "address spaces sent back to the translator"),
    NATIVE_COUNTER("native_unavailable", NATIVE_STAT_UNAVAILABLE,
		   "1: this host or guest does not allow native user code"),
    NATIVE_COUNTER("native_dead", NATIVE_STAT_DEAD, "native processes that were killed"),
    {0},
};
#define ACCEL_COUNTER(name, text)                                                                                      \
	{                                                                                                              \
#name "_bytes", offsetof(struct soft_accel, name), text                                                \
	}
static const struct counter soft_accel_counters[] = {
    ACCEL_COUNTER(jit_code, "translated code in its cache"),
    ACCEL_COUNTER(jit_code_most, "room in that cache; full, it is emptied"),
    ACCEL_COUNTER(jit_blocks, "what is kept about the code's blocks"),
    ACCEL_COUNTER(jit_blocks_most, "room for that"),
    ACCEL_COUNTER(vcpu_tables, "room for the registers, TLBs and jump tables of all vCPUs, of fixed size"),
    {0},
};

const struct accel_ops soft_accel_ops = {
    .type = {.name = "soft",
	     .about = "Kelvin's own CPU: no hardware support needed",
	     .size = sizeof(struct soft_accel),
	     .props = soft_props},
    .probe = soft_probe,
    .create = soft_create,
    .destroy = soft_destroy,
    .supported_cpuid = supported_cpuid,
    .vcpu_create = soft_vcpu_create,
    .vcpu_destroy = soft_vcpu_destroy,
    .vcpu_run = soft_vcpu_run,
    .vcpu_kick = soft_vcpu_kick,
    .get_state = soft_get_state,
    .set_state = soft_set_state,
    .clock_changed = soft_clock_changed,
    .check_state = soft_check_state,
    .model_changed = soft_model_changed,
    .kvmclock_get = soft_kvmclock_get,
    .kvmclock_set = soft_kvmclock_set,
    .sync_dirty = soft_sync_dirty,
    .counters = soft_counters,
    .accel_counters = soft_accel_counters,
};
