/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One KVM vCPU: creation, and the loop around KVM_RUN.
 *
 * A kick is a signal. Its handler sets immediate_exit in the thread's own
 * shared page, so a signal that arrives between the look at the requests and
 * KVM_RUN is not lost: KVM_RUN then returns at once.
 */
#include "cpu/kvm/kvm_int.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define KICK_SIGNAL (SIGRTMIN + 1)

const struct counter kvm_vcpu_counters[] = {
    {"exits", offsetof(struct kvm_vcpu, n_exits), "returns of KVM_RUN to user space"},
    {"exits_io", offsetof(struct kvm_vcpu, n_exit_io), "port accesses handled in user space"},
    {"exits_mmio", offsetof(struct kvm_vcpu, n_exit_mmio), "device memory accesses handled in user space"},
    {"exits_intr", offsetof(struct kvm_vcpu, n_exit_intr), "kicks by a signal"},
    {"exits_hlt", offsetof(struct kvm_vcpu, n_exit_hlt), "halts that reached user space"},
    {"exits_shutdown", offsetof(struct kvm_vcpu, n_exit_shutdown), "triple faults"},
    {"exits_other", offsetof(struct kvm_vcpu, n_exit_other), "any other reason"},
    {NULL, 0, NULL},
};

static __thread struct kvm_run *current_run;

static void kick_handler(int sig)
{
	struct kvm_run *run = current_run;

	if (run)
		run->immediate_exit = 1;
}

static void kick_signal_install(void)
{
	struct sigaction sa = {.sa_handler = kick_handler};

	sigaction(KICK_SIGNAL, &sa, NULL);
}

/* ---- creation ------------------------------------------------------------------ */

int kvm_vcpu_set_cpuid(struct kvm_vcpu *kv, struct err *err)
{
	const struct cpu_model *m = kv->v.accel->cfg.model;
	struct {
		struct kvm_cpuid2 head;
		struct kvm_cpuid_entry2 entry[CPU_MODEL_MAX_ENTRIES];
	} c = {.head.nent = m->n};
	int rc;

	for (unsigned i = 0; i < m->n; i++) {
		const struct cpuid_entry *e = &m->entry[i];
		struct kvm_cpuid_entry2 *k = &c.entry[i];
		uint32_t out[4];

		cpu_model_cpuid(m, kv->v.apic_id, 0, 1, 0, e->leaf, e->subleaf, out);
		*k = (struct kvm_cpuid_entry2){.function = e->leaf,
					       .index = e->subleaf,
					       .flags = e->has_subleaf ? KVM_CPUID_FLAG_SIGNIFCANT_INDEX : 0,
					       .eax = out[0],
					       .ebx = out[1],
					       .ecx = out[2],
					       .edx = out[3]};
	}
	rc = kvm_ioctl(kv->fd, KVM_SET_CPUID2, &c);
	return rc < 0 ? err_set_errno(err, rc, "kvm: the CPU model '%s' was refused", m->name) : 0;
}

struct vcpu *kvm_vcpu_create(struct accel *a, unsigned index, uint32_t apic_id, struct err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct kvm_accel *k = kvm_accel_of(a);
	struct kvm_vcpu *kv = calloc(1, sizeof(*kv));
	struct kvm_device_attr attr = {.group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET};
	int rc;

	if (!kv) {
		err_set(err, -ENOMEM, "kvm: out of memory");
		return NULL;
	}
	pthread_once(&once, kick_signal_install);
	kv->v = (struct vcpu){.accel = a, .index = index, .apic_id = apic_id};
	kv->run = MAP_FAILED;
	kv->stats_fd = -1;
	kv->fd = kvm_ioctl_value(k->vm_fd, KVM_CREATE_VCPU, apic_id);
	if (kv->fd < 0) {
		err_set_errno(err, kv->fd, "kvm: cannot create vCPU %u", index);
		goto fail;
	}
	kv->run = mmap(NULL, k->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, kv->fd, 0);
	if (kv->run == MAP_FAILED) {
		err_set_errno(err, -errno, "kvm: cannot map vCPU %u", index);
		goto fail;
	}
	/*
	 * A KVM loaded before its host's kernel has refined the TSC's frequency gives the vCPU none at all when the
	 * processor cannot scale it; the guest would then run without a working timer and hang at boot.
	 */
	if (kvm_ioctl_value(kv->fd, KVM_GET_TSC_KHZ, 0) == 0) {
		err_set(err, -ENXIO,
			"kvm: vCPU %u has no TSC frequency (the kvm module was loaded before the host knew its own); "
			"reload the kvm modules, or use -accel soft",
			index);
		goto fail;
	}
	if (kvm_vcpu_set_cpuid(kv, err) < 0)
		goto fail;
	rc = kvm_ioctl(kv->fd, KVM_GET_LAPIC, &kv->lapic_reset);
	if (rc < 0) {
		err_set_errno(err, rc, "kvm: cannot read the local APIC of vCPU %u", index);
		goto fail;
	}
	k->tsc_offset_attr = kvm_ioctl(kv->fd, KVM_HAS_DEVICE_ATTR, &attr) == 0;
	kv->stats_fd = kvm_ioctl_value(kv->fd, KVM_GET_STATS_FD, 0);
	return &kv->v;
fail:
	kvm_vcpu_destroy(&kv->v);
	return NULL;
}

void kvm_vcpu_destroy(struct vcpu *v)
{
	struct kvm_vcpu *kv = kvm_vcpu_of(v);

	if (kv->stats_fd >= 0)
		close(kv->stats_fd);
	if (kv->run != MAP_FAILED)
		munmap(kv->run, kvm_accel_of(v->accel)->run_size);
	if (kv->fd >= 0)
		close(kv->fd);
	free(kv);
}

/*
 * The kernel's own counters (exits handled without user space among them):
 * a header, descriptors with names, then the values. Documentation/virt/kvm/api.rst 4.133.
 */
void kvm_vcpu_stats(struct vcpu *v, void (*emit)(void *arg, const char *name, uint64_t value), void *arg)
{
	int fd = kvm_vcpu_of(v)->stats_fd;
	struct kvm_stats_header h;
	size_t step;

	if (fd < 0 || pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h) || h.name_size > 256 || h.num_desc > 256)
		return;
	step = sizeof(struct kvm_stats_desc) + h.name_size;
	for (uint32_t i = 0; i < h.num_desc; i++) {
		union {
			struct kvm_stats_desc d;
			char bytes[sizeof(struct kvm_stats_desc) + 257];
		} u = {0};
		uint64_t value;

		if (pread(fd, &u, step, (off_t)(h.desc_offset + i * step)) != (ssize_t)step || u.d.size != 1)
			continue; /* histograms are left out */
		if (pread(fd, &value, sizeof(value), (off_t)(h.data_offset + u.d.offset)) == (ssize_t)sizeof(value))
			emit(arg, u.d.name, value);
	}
}

void kvm_vcpu_kick(struct vcpu *v)
{
	if (kvm_vcpu_of(v)->in_run)
		pthread_kill(v->thread, KICK_SIGNAL);
}

/* ---- exits ------------------------------------------------------------------------ */

static void exit_io(struct kvm_vcpu *kv)
{
	const struct cpu_host *h = kv->v.accel->cfg.host;
	struct kvm_run *run = kv->run;
	uint8_t *data = (uint8_t *)run + run->io.data_offset;
	unsigned size = run->io.size;

	for (uint32_t i = 0; i < run->io.count; i++, data += size) {
		uint64_t val = 0;

		if (run->io.direction == KVM_EXIT_IO_OUT) {
			memcpy(&val, data, size);
			h->port_write(h->opaque, run->io.port, val, size);
		} else {
			val = h->port_read(h->opaque, run->io.port, size);
			memcpy(data, &val, size);
		}
	}
}

/* An MMIO exit may carry 3, 5, 6 or 7 bytes where an access crosses pages: any length goes. */
static void exit_mmio(struct kvm_vcpu *kv)
{
	struct mem_map *m = kv->v.accel->cfg.mem;
	struct kvm_run *run = kv->run;
	uint64_t val = 0;
	unsigned len = MIN(run->mmio.len, 8u);

	if (run->mmio.is_write) {
		memcpy(&val, run->mmio.data, len);
		mem_write(m, run->mmio.phys_addr, val, len);
	} else {
		val = mem_read(m, run->mmio.phys_addr, len);
		memcpy(run->mmio.data, &val, 8);
	}
}

static int exit_fatal(struct kvm_vcpu *kv)
{
	const struct cpu_host *h = kv->v.accel->cfg.host;
	struct kvm_run *run = kv->run;
	struct kvm_regs regs = {0};
	struct kvm_sregs sregs = {0};
	char why[200];

	ioctl(kv->fd, KVM_GET_REGS, &regs);
	ioctl(kv->fd, KVM_GET_SREGS, &sregs);
	if (run->exit_reason == KVM_EXIT_FAIL_ENTRY)
		snprintf(why, sizeof(why), "KVM refused to enter the guest, hardware reason %#llx",
			 (unsigned long long)run->fail_entry.hardware_entry_failure_reason);
	else if (run->exit_reason == KVM_EXIT_INTERNAL_ERROR)
		snprintf(why, sizeof(why), "KVM internal error %u%s", run->internal.suberror,
			 run->internal.suberror == KVM_INTERNAL_ERROR_EMULATION
			     ? " (an instruction on device memory it cannot emulate)"
			     : "");
	else
		snprintf(why, sizeof(why), "unexpected KVM exit reason %u", run->exit_reason);
	log_error("vCPU %u: %s; rip=%#llx cs=%#x rsp=%#llx cr0=%#llx cr3=%#llx efer=%#llx", kv->v.index, why,
		  (unsigned long long)regs.rip, sregs.cs.selector, (unsigned long long)regs.rsp,
		  (unsigned long long)sregs.cr0, (unsigned long long)sregs.cr3, (unsigned long long)sregs.efer);
	h->request(h->opaque, VM_PANIC, 1, "internal-error");
	return -EIO;
}

/* 0: go on. -errno: leave with an engine failure. */
static int handle_exit(struct kvm_vcpu *kv)
{
	const struct cpu_host *h = kv->v.accel->cfg.host;
	struct kvm_run *run = kv->run;

	switch (run->exit_reason) {
	case KVM_EXIT_IO:
		counter_add(&kv->n_exit_io, 1);
		exit_io(kv);
		kv->io_pending = true;
		return 0;
	case KVM_EXIT_MMIO:
		counter_add(&kv->n_exit_mmio, 1);
		exit_mmio(kv);
		kv->io_pending = true;
		return 0;
	case KVM_EXIT_HLT: counter_add(&kv->n_exit_hlt, 1); return 0;
	case KVM_EXIT_SHUTDOWN:
		counter_add(&kv->n_exit_shutdown, 1);
		log_diag(LOG_CPU_RESET, "vCPU %u: triple fault", kv->v.index);
		atomic_fetch_or(&kv->v.requests, VCPU_REQ_STOP); /* do not run on in shutdown state */
		h->request(h->opaque, VM_RESET, 0, "triple-fault");
		return 0;
	case KVM_EXIT_INTR:
	case KVM_EXIT_IRQ_WINDOW_OPEN: counter_add(&kv->n_exit_intr, 1); return 0;
	default: counter_add(&kv->n_exit_other, 1); return exit_fatal(kv);
	}
}

/* Let the kernel finish the instruction whose access we answered, without executing another. */
static void complete_io(struct kvm_vcpu *kv)
{
	if (!kv->io_pending)
		return;
	kv->run->immediate_exit = 1;
	ioctl(kv->fd, KVM_RUN, 0);
	kv->run->immediate_exit = 0;
	kv->io_pending = false;
}

/* True when the loop must be left. */
static bool handle_requests(struct kvm_vcpu *kv)
{
	uint32_t req = atomic_load(&kv->v.requests);

	if (req & VCPU_REQ_NMI) {
		atomic_fetch_and(&kv->v.requests, ~(uint32_t)VCPU_REQ_NMI);
		kvm_ioctl_value(kv->fd, KVM_NMI, 0);
	}
	if (req & VCPU_REQ_SMI) {
		atomic_fetch_and(&kv->v.requests, ~(uint32_t)VCPU_REQ_SMI);
		kvm_ioctl_value(kv->fd, KVM_SMI, 0);
	}
	/* Interrupts, INIT and SIPI are the kernel's own business. */
	atomic_fetch_and(&kv->v.requests, (uint32_t)VCPU_REQ_STOP);
	return req & VCPU_REQ_STOP;
}

int kvm_vcpu_run(struct vcpu *v)
{
	struct kvm_vcpu *kv = kvm_vcpu_of(v);
	int rc = 0;

	current_run = kv->run;
	kv->in_run = true;
	for (;;) {
		kv->run->immediate_exit = 0;
		atomic_signal_fence(memory_order_seq_cst);
		if (handle_requests(kv))
			break;
		rc = ioctl(kv->fd, KVM_RUN, 0);
		kv->io_pending = false;
		counter_add(&kv->n_exits, 1);
		if (rc < 0 && (errno == EINTR || errno == EAGAIN)) {
			counter_add(&kv->n_exit_intr, 1);
			rc = 0;
			continue;
		}
		if (rc < 0) {
			rc = -errno;
			log_error("vCPU %u: KVM_RUN: %s", v->index, strerror(-rc));
			v->accel->cfg.host->request(v->accel->cfg.host->opaque, VM_PANIC, 1, "internal-error");
			break;
		}
		rc = handle_exit(kv);
		if (rc < 0)
			break;
	}
	complete_io(kv);
	kv->in_run = false;
	current_run = NULL;
	return rc;
}
