/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inside the KVM engine. The kernel has the interrupt controllers and the PIT;
 * eventfds connect devices to it in both directions (irqfd, ioeventfd).
 *
 * Locks: accel.lock guards slots and routes; vCPU descriptors are used by their
 * own thread, or by another while the vCPU is outside vcpu_run.
 */
#ifndef KELVIN_CPU_KVM_KVM_INT_H
#define KELVIN_CPU_KVM_KVM_INT_H

#include <linux/kvm.h>

#include "cpu/cpu.h"
#include "cpu/model.h"

#define KVM_MAX_SLOTS  64
#define KVM_PIN_ROUTES 39 /* 8259: 15 (the cascade has none), IOAPIC: 24 */
#define KVM_FIRST_MSI  24
#define KVM_MAX_MSI    1024
#define KVM_XSAVE_SIZE 4096

struct kvm_slot {
	uint64_t gpa, size;
	uint8_t *host;
	uint32_t flags; /* KVM_MEM_*; size 0 = free */
	uint64_t page;	/* page_bits index of the first page */
};

struct kvm_accel {
	struct accel a; /* first */
	int irqchip;	/* property kernel-irqchip: always on */
	int fd, vm_fd;
	size_t run_size; /* of each vCPU's shared page(s) */
	struct mem_listener listener;
	pthread_mutex_t lock;
	struct kvm_slot slot[KVM_MAX_SLOTS];
	unsigned max_slots;
	/* GSIs from KVM_FIRST_MSI are MSI routes, handle = GSI; address 0 = free */
	struct kvm_msi_route {
		uint64_t addr;
		uint32_t data;
		bool used;
	} msi[KVM_MAX_MSI];
	/* as the kernel made them, for reset */
	struct kvm_irqchip chip[3];
	struct kvm_pit_state2 pit;
	uint64_t stopped_clock; /* kvmclock at the last stop, ns */
	bool restored;		/* from a snapshot, and not started yet */
	bool any_length;	/* ioeventfds without a length */
	bool tsc_offset_attr;	/* KVM_VCPU_TSC_OFFSET works */
	uint64_t n_irqfds, n_ioeventfds, n_msi_sent, n_irq_line, n_slot_changes; /* under lock or atomic */
};

struct kvm_vcpu {
	struct vcpu v; /* first */
	int fd, stats_fd;
	struct kvm_run *run;
	struct kvm_lapic_state lapic_reset;
	_Atomic bool in_run;
	bool io_pending; /* the last exit's access completes at the next KVM_RUN */
	uint64_t n_exits, n_exit_io, n_exit_mmio, n_exit_intr, n_exit_hlt, n_exit_shutdown, n_exit_other;
};

static inline struct kvm_accel *kvm_accel_of(struct accel *a)
{
	return (struct kvm_accel *)(void *)a;
}
static inline struct kvm_vcpu *kvm_vcpu_of(struct vcpu *v)
{
	return (struct kvm_vcpu *)(void *)v;
}

/* ioctl that returns -errno and repeats on EINTR (never for KVM_RUN). */
int kvm_ioctl(int fd, unsigned long request, void *arg);
int kvm_ioctl_value(int fd, unsigned long request, unsigned long arg);
int kvm_cap(const struct kvm_accel *k, int cap);

/* Why /dev/kvm (with st) could not be opened and what to do; returns code. */
struct stat;
int kvm_explain_open(int code, const struct stat *st, struct err *err);

/* slots.c */
void kvm_slots_changed(void *opaque);
int kvm_sync_dirty(struct accel *a, struct err *err);

/* irq.c */
extern const struct accel_irqchip kvm_irqchip_ops;
int kvm_irq_init(struct kvm_accel *k, struct err *err);
int kvm_doorbell(struct accel *a, bool port, uint64_t addr, unsigned size, bool match, uint64_t value, int fd,
		 bool assign);

/* chips.c */
int kvm_chips_save(struct accel *a, struct chips *c);
int kvm_chips_load(struct accel *a, const struct chips *c);
int kvm_lapic_timers_rearm(struct kvm_vcpu *kv);

/* vcpu.c */
int kvm_vcpu_set_cpuid(struct kvm_vcpu *kv, struct err *err);
struct vcpu *kvm_vcpu_create(struct accel *a, unsigned index, uint32_t apic_id, struct err *err);
void kvm_vcpu_destroy(struct vcpu *v);
int kvm_vcpu_run(struct vcpu *v);
void kvm_vcpu_kick(struct vcpu *v);
void kvm_vcpu_stats(struct vcpu *v, void (*emit)(void *arg, const char *name, uint64_t value), void *arg);
extern const struct counter kvm_vcpu_counters[];

/* state.c */
int kvm_get_state(struct vcpu *v, struct cpu_state *s);
int kvm_set_state(struct vcpu *v, const struct cpu_state *s);
int kvm_vcpu_reset(struct kvm_vcpu *kv);

#endif
