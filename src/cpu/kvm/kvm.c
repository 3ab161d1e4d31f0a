/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The KVM engine: opening /dev/kvm, what it supports, the VM with its in-kernel
 * chips, reset and the clock. Linux Documentation/virt/kvm/api.rst.
 *
 * Guest time is vmclock's: at each start the guest's TSC offset and kvmclock are
 * set from it, so a stop is invisible to guests that read either.
 */
#include "cpu/kvm/kvm_int.h"

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "io/vmclock.h"

/* Three pages Intel CPUs without unrestricted guest mode need, and the page below; under 4 GiB, never RAM. */
#define KVM_TSS_ADDR	  0xfffbd000ul
#define KVM_IDENTITY_ADDR 0xfffbc000ull

int kvm_ioctl(int fd, unsigned long request, void *arg)
{
	int rc;

	do {
		rc = ioctl(fd, request, arg);
	} while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : rc;
}

int kvm_ioctl_value(int fd, unsigned long request, unsigned long arg)
{
	return kvm_ioctl(fd, request, (void *)arg);
}

int kvm_cap(const struct kvm_accel *k, int cap)
{
	int rc = kvm_ioctl_value(k->vm_fd >= 0 ? k->vm_fd : k->fd, KVM_CHECK_EXTENSION, (unsigned long)cap);

	return rc < 0 ? 0 : rc;
}

/* Errors of opening the device that have a remedy. */
static const struct {
	int code;
	const char *text;
} open_errors[] = {
    {-ENOENT,
     "no /dev/kvm: load the kvm_amd or kvm_intel module, or enable virtualization in the firmware (in a virtual "
     "machine: nested virtualization in its host; in a container: --device /dev/kvm)"},
    {-EPERM, "/dev/kvm is forbidden here (a container's device rules or a sandbox): allow the device, e.g. "
	     "--device /dev/kvm"},
    {-ENXIO, "/dev/kvm has no driver: load the kvm_amd or kvm_intel module"},
    {-ENODEV, "/dev/kvm has no driver: load the kvm_amd or kvm_intel module"},
};

int kvm_explain_open(int code, const struct stat *st, struct err *err)
{
	const struct group *g;

	for (size_t i = 0; i < ARRAY_SIZE(open_errors); i++)
		if (open_errors[i].code == code)
			return err_set(err, code, "%s", open_errors[i].text);
	if (code != -EACCES)
		return err_set_errno(err, code, "cannot open /dev/kvm");
	/* Joining a group helps only if the group may use the device, and nobody should join root's. */
	if (st->st_gid == 0 || (st->st_mode & 0060) != 0060)
		return err_set(err, code,
			       "no permission for /dev/kvm, and its group has none: as root, chgrp kvm /dev/kvm && "
			       "chmod 660 /dev/kvm, and join group 'kvm'");
	g = getgrgid(st->st_gid);
	if (!g)
		return err_set(err, code, "no permission for /dev/kvm: join its group %u", (unsigned)st->st_gid);
	return err_set(err, code,
		       "no permission for /dev/kvm: join its group '%s' (usermod -aG %s USER, then log in again)",
		       g->gr_name, g->gr_name);
}

static int kvm_open(struct err *err)
{
	int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC), version, code = -errno;
	struct stat st = {0};

	if (fd < 0) {
		stat("/dev/kvm", &st);
		return kvm_explain_open(code, &st, err);
	}
	version = kvm_ioctl_value(fd, KVM_GET_API_VERSION, 0);
	if (version != KVM_API_VERSION) {
		close(fd);
		return err_set(err, -ENOTSUP, "/dev/kvm is not KVM's interface version %d", KVM_API_VERSION);
	}
	return fd;
}

/* What the engine cannot do without. */
static const struct {
	int cap;
	const char *name;
} required_caps[] = {
    {KVM_CAP_IRQCHIP, "in-kernel interrupt controllers"},
    {KVM_CAP_PIT2, "the in-kernel timer"},
    {KVM_CAP_USER_MEMORY, "user memory slots"},
    {KVM_CAP_IRQ_ROUTING, "interrupt routing"},
    {KVM_CAP_SIGNAL_MSI, "message-signalled interrupts"},
    {KVM_CAP_IMMEDIATE_EXIT, "immediate exit (Linux 4.13)"},
    {KVM_CAP_VCPU_EVENTS, "event state"},
    {KVM_CAP_MP_STATE, "MP state"},
    {KVM_CAP_READONLY_MEM, "read-only memory"},
};

/*
 * KVM without SVM or VMX in the processor is one that emulates: kvm-pvm runs a
 * guest that was not made for it one kernel instruction after the other.
 */
static bool hardware_support(void)
{
	uint32_t a, b, c, d;

	__cpuid(1, a, b, c, d);
	if (c & BIT(5))
		return true;
	__cpuid(0x80000000, a, b, c, d);
	if (a < 0x80000001)
		return false;
	__cpuid(0x80000001, a, b, c, d);
	return c & BIT(2);
}

static int kvm_probe(struct err *err)
{
	struct kvm_accel k = {.vm_fd = -1};
	int rc = 0;

	k.fd = kvm_open(err);
	if (k.fd < 0)
		return k.fd;
	for (size_t i = 0; i < ARRAY_SIZE(required_caps) && rc == 0; i++)
		if (!kvm_cap(&k, required_caps[i].cap))
			rc = err_set(err, -ENOTSUP, "/dev/kvm lacks %s; use a newer kernel", required_caps[i].name);
	close(k.fd);
	if (rc == 0 && !hardware_support()) {
		err_set(err, -EOPNOTSUPP,
			"/dev/kvm works without hardware support here and would run a guest's kernel "
			"much slower than the software CPU");
		return 1;
	}
	return rc;
}

/* ---- CPUID ------------------------------------------------------------------- */

#define CPUID_MAX 256

static struct cpuid_entry *entry_get(struct cpuid_entry *e, unsigned *n, unsigned max, uint32_t leaf)
{
	for (unsigned i = 0; i < *n; i++)
		if (e[i].leaf == leaf)
			return &e[i];
	if (*n == max)
		return NULL;
	e[*n] = (struct cpuid_entry){.leaf = leaf};
	return &e[(*n)++];
}

/* KVM_GET_SUPPORTED_CPUID, and what it leaves to the user of in-kernel chips to add. */
static unsigned kvm_supported_cpuid(struct cpuid_entry *out, unsigned max, struct err *err)
{
	struct {
		struct kvm_cpuid2 head;
		struct kvm_cpuid_entry2 entry[CPUID_MAX];
	} c = {.head.nent = CPUID_MAX};
	struct cpuid_entry *e;
	unsigned n = 0;
	int fd = kvm_open(err), rc;

	if (fd < 0)
		return 0;
	rc = kvm_ioctl(fd, KVM_GET_SUPPORTED_CPUID, &c);
	if (rc < 0) {
		err_set_errno(err, rc, "/dev/kvm does not tell which CPU features it supports");
		close(fd);
		return 0;
	}
	for (unsigned i = 0; i < c.head.nent && n < max; i++) {
		const struct kvm_cpuid_entry2 *k = &c.entry[i];

		out[n++] = (struct cpuid_entry){.leaf = k->function,
						.subleaf = k->index,
						.has_subleaf = k->flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
						.eax = k->eax,
						.ebx = k->ebx,
						.ecx = k->ecx,
						.edx = k->edx};
	}
	e = entry_get(out, &n, max, 1);
	if (e) {
		e->ecx |= 1u << 31 | 1u << 21; /* hypervisor, x2APIC (of the in-kernel LAPIC) */
		if (kvm_ioctl_value(fd, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) > 0)
			e->ecx |= 1u << 24;
	}
	e = entry_get(out, &n, max, 6);
	if (e)
		e->eax |= 1u << 2; /* ARAT: the LAPIC timer never stops */
	/* A leaf that says 0 kHz would be believed: SeaBIOS then waits 0 ms for its disks. Without it kvmclock tells.
	 */
	e = clock_tsc_khz() ? entry_get(out, &n, max, 0x40000010) : NULL;
	if (e) {
		e->eax = (uint32_t)clock_tsc_khz();
		e->ebx = 1000000; /* the in-kernel LAPIC counts nanoseconds: a 1 GHz bus */
	}
	close(fd);
	return n;
}

/* ---- the VM -------------------------------------------------------------------- */

static int create_chips(struct kvm_accel *k, struct err *err)
{
	struct kvm_pit_config pit = {.flags = KVM_PIT_SPEAKER_DUMMY};
	uint64_t identity = KVM_IDENTITY_ADDR;
	int rc;

	/* Intel needs both; elsewhere they may be refused and do not matter. */
	kvm_ioctl(k->vm_fd, KVM_SET_IDENTITY_MAP_ADDR, &identity);
	kvm_ioctl_value(k->vm_fd, KVM_SET_TSS_ADDR, KVM_TSS_ADDR);
	rc = kvm_ioctl_value(k->vm_fd, KVM_CREATE_IRQCHIP, 0);
	if (rc < 0)
		return err_set_errno(err, rc, "kvm: cannot create the interrupt controllers");
	rc = kvm_ioctl(k->vm_fd, KVM_CREATE_PIT2, &pit);
	if (rc < 0)
		return err_set_errno(err, rc, "kvm: cannot create the timer");
	for (unsigned i = 0; i < ARRAY_SIZE(k->chip); i++) {
		k->chip[i].chip_id = i;
		rc = kvm_ioctl(k->vm_fd, KVM_GET_IRQCHIP, &k->chip[i]);
		if (rc < 0)
			return err_set_errno(err, rc, "kvm: cannot read interrupt controller %u", i);
	}
	rc = kvm_ioctl(k->vm_fd, KVM_GET_PIT2, &k->pit);
	if (rc < 0)
		return err_set_errno(err, rc, "kvm: cannot read the timer");
	return kvm_irq_init(k, err);
}

static void kvm_destroy(struct accel *a)
{
	struct kvm_accel *k = kvm_accel_of(a);

	if (k->listener.changed)
		mem_remove_listener(a->cfg.mem, &k->listener);
	if (k->vm_fd >= 0)
		close(k->vm_fd);
	if (k->fd >= 0)
		close(k->fd);
	pthread_mutex_destroy(&k->lock);
	free(a->vcpu);
	free(k);
}

/* QEMU's -accel kvm,kernel-irqchip=: what is not there is refused by name. */
static int check_options(struct opts *options, struct err *err)
{
	const char *chip = options ? opts_get(options, "kernel-irqchip") : NULL;

	if (!chip || strcmp(chip, "on") == 0)
		return 0;
	return err_set(err, -EINVAL, "-accel kvm: 'kernel-irqchip=%s': only 'on' is supported", chip);
}

static struct accel *kvm_create(const struct accel_config *cfg, struct opts *options, struct err *err)
{
	struct kvm_accel *k = calloc(1, sizeof(*k));
	int rc, max;

	if (!k || !(k->a.vcpu = calloc(cfg->ncpus, sizeof(*k->a.vcpu)))) {
		free(k);
		err_set(err, -ENOMEM, "kvm: out of memory");
		return NULL;
	}
	k->a.ops = &kvm_accel_ops;
	k->a.cfg = *cfg;
	k->fd = k->vm_fd = -1;
	pthread_mutex_init(&k->lock, NULL);
	if (check_options(options, err) < 0)
		goto fail;
	k->fd = kvm_open(err);
	if (k->fd < 0)
		goto fail;
	k->vm_fd = kvm_ioctl_value(k->fd, KVM_CREATE_VM, 0);
	if (k->vm_fd < 0) {
		err_set_errno(err, k->vm_fd,
			      "/dev/kvm cannot create a virtual machine (is another hypervisor using the CPU?)");
		goto fail;
	}
	max = kvm_cap(k, KVM_CAP_MAX_VCPUS);
	if (max && cfg->ncpus > (unsigned)max) {
		err_set(err, -EINVAL, "kvm: -smp %u is more than the %d vCPUs this host supports", cfg->ncpus, max);
		goto fail;
	}
	rc = kvm_ioctl_value(k->fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (rc < (int)sizeof(struct kvm_run)) {
		err_set(err, -EIO, "kvm: strange vCPU area of %d bytes", rc);
		goto fail;
	}
	k->run_size = (size_t)rc;
	k->any_length = kvm_cap(k, KVM_CAP_IOEVENTFD_ANY_LENGTH);
	k->max_slots = MIN((unsigned)MAX(kvm_cap(k, KVM_CAP_NR_MEMSLOTS), 32), (unsigned)KVM_MAX_SLOTS);
	if (create_chips(k, err) < 0)
		goto fail;
	k->listener = (struct mem_listener){.changed = kvm_slots_changed, .opaque = k};
	mem_add_listener(cfg->mem, &k->listener);
	return &k->a;
fail:
	kvm_destroy(&k->a);
	return NULL;
}

static void kvm_reset(struct accel *a)
{
	struct kvm_accel *k = kvm_accel_of(a);

	for (unsigned i = 0; i < ARRAY_SIZE(k->chip); i++)
		if (kvm_ioctl(k->vm_fd, KVM_SET_IRQCHIP, &k->chip[i]) < 0)
			log_warn("kvm: interrupt controller %u was not reset", i);
	if (kvm_ioctl(k->vm_fd, KVM_SET_PIT2, &k->pit) < 0)
		log_warn("kvm: the timer was not reset");
	for (unsigned i = 0; i < a->cfg.ncpus; i++)
		if (a->vcpu[i] && kvm_vcpu_reset(kvm_vcpu_of(a->vcpu[i])) < 0)
			log_warn("kvm: vCPU %u was not reset", i);
}

static void kvm_clock_changed(struct accel *a, bool running)
{
	struct kvm_accel *k = kvm_accel_of(a);
	uint64_t offset = a->cfg.clock->tsc_offset;
	struct kvm_clock_data data = {0};

	if (!running) {
		k->stopped_clock = kvm_ioctl(k->vm_fd, KVM_GET_CLOCK, &data) == 0 ? data.clock : 0;
		return;
	}
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		struct kvm_device_attr attr = {
		    .group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET, .addr = (uintptr_t)&offset};

		if (k->tsc_offset_attr)
			kvm_ioctl(kvm_vcpu_of(a->vcpu[i])->fd, KVM_SET_DEVICE_ATTR, &attr);
		/* Its deadline was armed by the clock of before the start. */
		if (k->restored && kvm_lapic_timers_rearm(kvm_vcpu_of(a->vcpu[i])) < 0)
			log_warn("kvm: the APIC timer of vCPU %u was not set anew", i);
	}
	k->restored = false;
	/* kvmclock follows the kernel's idea of the TSC's frequency: over days it may get a little ahead of
	 * vmclock, and what the guest has seen must not come again. */
	data.clock = MAX(vmclock_ns(a->cfg.clock), k->stopped_clock);
	if (kvm_ioctl(k->vm_fd, KVM_SET_CLOCK, &data) < 0)
		log_warn("kvm: the guest's kvmclock was not set");
	/* Tells the guest's watchdog that it did not run; refused while the guest has no kvmclock. */
	for (unsigned i = 0; i < a->cfg.ncpus; i++)
		kvm_ioctl_value(kvm_vcpu_of(a->vcpu[i])->fd, KVM_KVMCLOCK_CTRL, 0);
}

/* ---- snapshots -------------------------------------------------------------------- */

static int kvm_model_changed(struct accel *a, struct err *err)
{
	int rc = 0;

	for (unsigned i = 0; i < a->cfg.ncpus && rc == 0; i++)
		rc = kvm_vcpu_set_cpuid(kvm_vcpu_of(a->vcpu[i]), err);
	return rc;
}

static uint64_t kvm_kvmclock_get(struct accel *a)
{
	return MAX(kvm_accel_of(a)->stopped_clock, vmclock_ns(a->cfg.clock));
}

static void kvm_kvmclock_set(struct accel *a, uint64_t ns)
{
	kvm_accel_of(a)->stopped_clock = ns;
	kvm_accel_of(a)->restored = true;
}

static const struct counter kvm_counters[] = {
    {"irqfds", offsetof(struct kvm_accel, n_irqfds), "eventfds bound to an interrupt message"},
    {"ioeventfds", offsetof(struct kvm_accel, n_ioeventfds), "doorbells bound to an eventfd"},
    {"msi_sent", offsetof(struct kvm_accel, n_msi_sent), "messages sent by a system call"},
    {"irq_line_changes", offsetof(struct kvm_accel, n_irq_line), "interrupt line changes, by a system call each"},
    {"slot_changes", offsetof(struct kvm_accel, n_slot_changes), "memory slots set or removed"},
    {NULL, 0, NULL},
};

static const char *const irqchip_values[] = {"on", NULL};
static const struct prop kvm_props[] = {{.name = "kernel-irqchip",
					 .kind = PROP_ENUM,
					 .offset = offsetof(struct kvm_accel, irqchip),
					 .def = "on",
					 .values = irqchip_values,
					 .help = "interrupt controllers in the kernel; there is no other way here"},
					{.name = NULL}};

const struct accel_ops kvm_accel_ops = {
    .type = {.name = "kvm",
	     .about = "the Linux kernel's hypervisor, /dev/kvm",
	     .parent = NULL,
	     .size = sizeof(struct kvm_accel),
	     .props = kvm_props},
    .probe = kvm_probe,
    .create = kvm_create,
    .destroy = kvm_destroy,
    .irqchip = &kvm_irqchip_ops,
    .doorbell = kvm_doorbell,
    .vcpu_create = kvm_vcpu_create,
    .vcpu_destroy = kvm_vcpu_destroy,
    .vcpu_run = kvm_vcpu_run,
    .vcpu_kick = kvm_vcpu_kick,
    .get_state = kvm_get_state,
    .set_state = kvm_set_state,
    .reset = kvm_reset,
    .supported_cpuid = kvm_supported_cpuid,
    .clock_changed = kvm_clock_changed,
    .model_changed = kvm_model_changed,
    .kvmclock_get = kvm_kvmclock_get,
    .kvmclock_set = kvm_kvmclock_set,
    .sync_dirty = kvm_sync_dirty,
    .counters = kvm_vcpu_counters,
    .accel_counters = kvm_counters,
    .vcpu_stats = kvm_vcpu_stats,
};
