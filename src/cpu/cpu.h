/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The vCPU interface over two engines: KVM and Kelvin's software CPU.
 *
 * The board creates one `struct accel` and its vCPUs, gives it callbacks, and
 * starts one host thread per vCPU which calls vcpu_run in a loop. An engine
 * reaches devices only through `struct cpu_host` and the memory map.
 */
#ifndef KELVIN_CPU_CPU_H
#define KELVIN_CPU_CPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/counter.h"
#include "base/err.h"
#include "base/type.h"
#include "cpu/state.h"
#include "mem/mem.h"

struct vmclock;
struct vcpu;
struct chips;
struct accel;

/* Why a machine-wide change is asked for (from any thread). */
enum vm_request {
	VM_RESET = 1,
	VM_SHUTDOWN,
	VM_PANIC,
	VM_EXIT,   /* with a status: isa-debug-exit */
	VM_IO_STOP /* a disk failed and its werror or rerror says stop; status: errno, negative for a read; why: its id
		    */
};

/*
 * What the board gives the engine. `lapic` calls are made by the software
 * engine only (KVM has its own) and from that vCPU's thread.
 */
struct cpu_host {
	void *opaque;
	uint64_t (*port_read)(void *opaque, uint16_t port, unsigned size);
	void (*port_write)(void *opaque, uint16_t port, uint64_t val, unsigned size);
	/* Highest deliverable vector, now acknowledged (in service), or -1: LAPIC first, then ExtINT. */
	int (*intr_ack)(void *opaque, unsigned cpu);
	/* Is an interrupt deliverable right now (TPR considered)? Cheap. */
	bool (*intr_pending)(void *opaque, unsigned cpu);
	uint64_t (*tpr_get)(void *opaque, unsigned cpu); /* CR8 */
	void (*tpr_set)(void *opaque, unsigned cpu, uint64_t cr8);
	/* IA32_APIC_BASE, x2APIC MSRs 0x800..0x8ff, IA32_TSC_DEADLINE; -1 = #GP. */
	int (*apic_msr_read)(void *opaque, unsigned cpu, uint32_t msr, uint64_t *val);
	int (*apic_msr_write)(void *opaque, unsigned cpu, uint32_t msr, uint64_t val);
	/* The vCPU was reset or got INIT: the LAPIC's part. */
	void (*lapic_reset)(void *opaque, unsigned cpu, bool init);
	/*
	 * A halted vCPU may wait for its APIC timer itself, which saves the way through the main loop:
	 * host time (clock_raw_ns) at which it is due, UINT64_MAX for never; and the call that fires
	 * it if it is. Both or neither NULL.
	 */
	uint64_t (*timer_deadline)(void *opaque, unsigned cpu);
	void (*timer_poll)(void *opaque, unsigned cpu);
	/*
	 * FERR#: with CR0.NE clear the vCPU met an unmasked x87 error (again), or met none any more. The answer to the
	 * first is IGNNE#: go on as if it were masked. May be NULL: #MF then, whatever NE says.
	 */
	bool (*x87_error)(void *opaque, unsigned cpu, bool error);
	/* A KVM irqchip delivered an EOI for a level interrupt (KVM userspace irqchip only), may be NULL. */
	void (*request)(void *opaque, enum vm_request what, int status, const char *why);
	/* First guest instruction is about to run (timeline), called once. May be NULL. */
	void (*first_insn)(void *opaque);
};

struct cpu_model; /* cpu/model.h: CPUID table after -cpu */
struct cpuid_entry;

struct accel_config {
	struct mem_map *mem;
	struct vmclock *clock;
	const struct cpu_host *host;
	const struct cpu_model *model;
	unsigned ncpus;
};

/* Signals a device line or message reaches the CPUs through; KVM implements these in the kernel. */
struct accel_irqchip {
	int (*set_gsi)(struct accel *a, unsigned gsi, int level);
	int (*send_msi)(struct accel *a, uint64_t addr, uint32_t data);
	/* Bind an eventfd to an MSI message (irqfd). gsi out: the route's handle. */
	int (*msi_route_add)(struct accel *a, uint64_t addr, uint32_t data, int *gsi);
	int (*msi_route_update)(struct accel *a, int gsi, uint64_t addr, uint32_t data);
	void (*msi_route_del)(struct accel *a, int gsi);
	int (*irqfd)(struct accel *a, int gsi, int fd, bool assign);
	/* Snapshots: the kernel's chips, LAPICs and 8254; after the vCPUs' set_state. Main thread, vCPUs stopped. */
	int (*save)(struct accel *a, struct chips *c);
	int (*load)(struct accel *a, const struct chips *c);
	/* The HPET has taken ISA interrupt 0 over from the engine's 8254, or gives it back. Any thread. */
	void (*pit_legacy)(struct accel *a, bool hpet);
};

struct accel_ops {
	struct type type; /* name "kvm", "soft"; properties of -accel */
	/* 0 when usable here; -errno with the reason and remedy; 1 when usable, but for the reason in
	 * err only worth it when asked for by name. */
	int (*probe)(struct err *err);
	struct accel *(*create)(const struct accel_config *cfg, struct opts *options, struct err *err);
	void (*destroy)(struct accel *a);
	bool manual_clock; /* no guest code runs: guest time moves by vmclock_step only */
	/* NULL for the software engine: then the board's own irqchips are used. */
	const struct accel_irqchip *irqchip;
	/* Attach or detach a doorbell at an absolute address (memory or port); -ENOSYS = not supported. */
	int (*doorbell)(struct accel *a, bool port, uint64_t addr, unsigned size, bool match, uint64_t value, int fd,
			bool assign);
	struct vcpu *(*vcpu_create)(struct accel *a, unsigned index, uint32_t apic_id, struct err *err);
	void (*vcpu_destroy)(struct vcpu *v);
	/*
	 * Run guest code in the calling thread until something needs the board:
	 * returns when v->stop_request is set or the machine must change. HLT sleeps
	 * inside. 0 or -errno (an engine failure, already logged).
	 */
	int (*vcpu_run)(struct vcpu *v);
	/* Make vcpu_run look at its requests soon. Any thread. */
	void (*vcpu_kick)(struct vcpu *v);
	/* Only while the vCPU is not inside vcpu_run. */
	int (*get_state)(struct vcpu *v, struct cpu_state *s);
	int (*set_state)(struct vcpu *v, const struct cpu_state *s);
	/* A snapshot's state: can a CPU of this engine and model be in it? The caller has checked what is common. */
	int (*check_state)(struct vcpu *v, const struct cpu_state *s, struct err *err);
	/* The CPU model was replaced by a snapshot's, before a vCPU ran. */
	int (*model_changed)(struct accel *a, struct err *err);
	/*
	 * The time the guest's kvmclock shows while it stands still, ns; and from there on. It can be a little ahead of
	 * vmclock.
	 */
	uint64_t (*kvmclock_get)(struct accel *a);
	void (*kvmclock_set)(struct accel *a, uint64_t ns);
	/* Machine reset: what the engine itself models besides vCPUs (KVM's irqchips). vCPUs stopped. May be NULL. */
	void (*reset)(struct accel *a);
	/* CPUID entries of what this engine can do here; returns their number, 0 on failure (then *err is set).
	 * Before create. */
	unsigned (*supported_cpuid)(struct cpuid_entry *out, unsigned max, struct err *err);
	/* Start or stop of guest time (kvmclock, TSC); after vmclock_start / stop. May be NULL. */
	void (*clock_changed)(struct accel *a, bool running);
	/* Fetch dirty pages into mem_map.page_bits. May be NULL. */
	int (*sync_dirty)(struct accel *a, struct err *err);
	const struct counter *counters;	      /* per vCPU, offsets into the engine's vcpu struct */
	const struct counter *accel_counters; /* offsets into the engine's accel struct; may be NULL */
	/* What only the kernel counts about a vCPU; any thread. May be NULL. */
	void (*vcpu_stats)(struct vcpu *v, void (*emit)(void *arg, const char *name, uint64_t value), void *arg);
};

struct accel {
	const struct accel_ops *ops;
	struct accel_config cfg;
	struct vcpu **vcpu; /* cfg.ncpus of them */
	bool
	    wants_shared_ram; /* set by create: RAM that is added later comes from files that other processes can map */
};

/* Requests to a vCPU, any thread, atomically set, then vcpu_kick. Handled at an instruction boundary. */
#define VCPU_REQ_INTR	   BIT(0) /* look at the interrupt controller */
#define VCPU_REQ_NMI	   BIT(1)
#define VCPU_REQ_INIT	   BIT(2)
#define VCPU_REQ_SIPI	   BIT(3) /* vcpu.sipi_vector */
#define VCPU_REQ_TLB_FLUSH BIT(4) /* whole TLB */
#define VCPU_REQ_STOP	   BIT(5) /* leave vcpu_run */
#define VCPU_REQ_CODE	   BIT(6) /* engine's own: code cache changed */
#define VCPU_REQ_SMI	   BIT(7)

struct vcpu {
	struct accel *accel;
	unsigned index;
	uint32_t apic_id;
	_Atomic uint32_t requests;
	_Atomic uint8_t sipi_vector;
	pthread_t thread;
	_Atomic int tid;     /* host thread ID, 0 before it runs; for query-cpus-fast */
	_Atomic bool halted; /* for query-cpus-fast */
};

static inline void vcpu_request(struct vcpu *v, uint32_t bits)
{
	if ((atomic_fetch_or(&v->requests, bits) & bits) != bits)
		v->accel->ops->vcpu_kick(v);
}

extern const struct accel_ops kvm_accel_ops, soft_accel_ops, qtest_accel_ops;
/* cpu/accels.c: every engine, ends with NULL; "tcg" finds soft. NULL when there is none of that name. */
extern const struct accel_ops *const accel_table[];
const struct accel_ops *accel_find(const char *name);
const char *accel_alias_at(size_t i); /* the other names, until NULL */

#endif
