/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Interrupt routing into the kernel's chips, and eventfds: irqfd (a device's
 * eventfd raises a message without leaving the kernel) and ioeventfd (a guest's
 * write signals a device's eventfd without leaving the kernel).
 *
 * GSIs 0..23 are the board's lines, wired as a PC is: ISA interrupt 0 reaches
 * IOAPIC pin 2, the cascade leads nowhere. From 24 on each GSI is one message.
 */
#include "cpu/kvm/kvm_int.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"

static unsigned pin_routes(struct kvm_irq_routing_entry *e)
{
	unsigned n = 0;

	for (unsigned gsi = 0; gsi < KVM_FIRST_MSI; gsi++) {
		if (gsi == 2)
			continue;
		if (gsi < 16)
			e[n++] = (struct kvm_irq_routing_entry){
			    .gsi = gsi,
			    .type = KVM_IRQ_ROUTING_IRQCHIP,
			    .u.irqchip = {.irqchip = gsi < 8 ? KVM_IRQCHIP_PIC_MASTER : KVM_IRQCHIP_PIC_SLAVE,
					  .pin = gsi & 7}};
		e[n++] = (struct kvm_irq_routing_entry){
		    .gsi = gsi,
		    .type = KVM_IRQ_ROUTING_IRQCHIP,
		    .u.irqchip = {.irqchip = KVM_IRQCHIP_IOAPIC, .pin = gsi == 0 ? 2 : gsi}};
	}
	return n;
}

/* Give the kernel the whole table: it has no smaller operation. With lock held. */
static int routes_commit(struct kvm_accel *k)
{
	struct kvm_irq_routing *r;
	unsigned n = 0;
	int rc;

	for (unsigned i = 0; i < KVM_MAX_MSI; i++)
		n += k->msi[i].used;
	r = calloc(1, sizeof(*r) + (KVM_PIN_ROUTES + n) * sizeof(r->entries[0]));
	if (!r)
		return -ENOMEM;
	r->nr = pin_routes(r->entries);
	BUG_ON(r->nr > KVM_PIN_ROUTES);
	for (unsigned i = 0; i < KVM_MAX_MSI; i++)
		if (k->msi[i].used)
			r->entries[r->nr++] =
			    (struct kvm_irq_routing_entry){.gsi = KVM_FIRST_MSI + i,
							   .type = KVM_IRQ_ROUTING_MSI,
							   .u.msi = {.address_lo = (uint32_t)k->msi[i].addr,
								     .address_hi = (uint32_t)(k->msi[i].addr >> 32),
								     .data = k->msi[i].data}};
	rc = kvm_ioctl(k->vm_fd, KVM_SET_GSI_ROUTING, r);
	free(r);
	return rc;
}

int kvm_irq_init(struct kvm_accel *k, struct err *err)
{
	int rc = routes_commit(k);

	return rc < 0 ? err_set_errno(err, rc, "kvm: cannot set up interrupt routing") : 0;
}

static int kvm_set_gsi(struct accel *a, unsigned gsi, int level)
{
	struct kvm_accel *k = kvm_accel_of(a);
	struct kvm_irq_level line = {.irq = gsi, .level = level != 0};

	__atomic_fetch_add(&k->n_irq_line, 1, __ATOMIC_RELAXED);
	return kvm_ioctl(k->vm_fd, KVM_IRQ_LINE, &line);
}

static int kvm_send_msi(struct accel *a, uint64_t addr, uint32_t data)
{
	struct kvm_accel *k = kvm_accel_of(a);
	struct kvm_msi msi = {.address_lo = (uint32_t)addr, .address_hi = (uint32_t)(addr >> 32), .data = data};

	__atomic_fetch_add(&k->n_msi_sent, 1, __ATOMIC_RELAXED);
	return kvm_ioctl(k->vm_fd, KVM_SIGNAL_MSI, &msi);
}

static int kvm_msi_route_add(struct accel *a, uint64_t addr, uint32_t data, int *gsi)
{
	struct kvm_accel *k = kvm_accel_of(a);
	int rc = -ENOSPC;

	pthread_mutex_lock(&k->lock);
	for (unsigned i = 0; i < KVM_MAX_MSI; i++)
		if (!k->msi[i].used) {
			k->msi[i] = (struct kvm_msi_route){addr, data, true};
			rc = routes_commit(k);
			if (rc < 0)
				k->msi[i].used = false;
			else
				*gsi = (int)(KVM_FIRST_MSI + i);
			break;
		}
	pthread_mutex_unlock(&k->lock);
	return rc;
}

static int kvm_msi_route_update(struct accel *a, int gsi, uint64_t addr, uint32_t data)
{
	struct kvm_accel *k = kvm_accel_of(a);
	struct kvm_msi_route *r = &k->msi[gsi - KVM_FIRST_MSI];
	int rc = 0;

	pthread_mutex_lock(&k->lock);
	if (r->addr != addr || r->data != data) {
		r->addr = addr;
		r->data = data;
		rc = routes_commit(k);
	}
	pthread_mutex_unlock(&k->lock);
	return rc;
}

static void kvm_msi_route_del(struct accel *a, int gsi)
{
	struct kvm_accel *k = kvm_accel_of(a);

	/* The stale route stays in the kernel's table until the next commit: nothing points to it. */
	pthread_mutex_lock(&k->lock);
	k->msi[gsi - KVM_FIRST_MSI].used = false;
	pthread_mutex_unlock(&k->lock);
}

static int kvm_irqfd(struct accel *a, int gsi, int fd, bool assign)
{
	struct kvm_accel *k = kvm_accel_of(a);
	struct kvm_irqfd irqfd = {
	    .fd = (uint32_t)fd, .gsi = (uint32_t)gsi, .flags = assign ? 0 : KVM_IRQFD_FLAG_DEASSIGN};
	int rc = kvm_ioctl(k->vm_fd, KVM_IRQFD, &irqfd);

	if (rc == 0 && assign)
		__atomic_fetch_add(&k->n_irqfds, 1, __ATOMIC_RELAXED);
	return rc;
}

static void kvm_pit_legacy(struct accel *a, bool hpet)
{
	struct kvm_accel *k = kvm_accel_of(a);
	struct kvm_pit_state2 pit;
	int rc = kvm_ioctl(k->vm_fd, KVM_GET_PIT2, &pit);

	if (rc == 0) {
		pit.flags = hpet ? pit.flags | KVM_PIT_FLAGS_HPET_LEGACY : pit.flags & ~KVM_PIT_FLAGS_HPET_LEGACY;
		rc = kvm_ioctl(k->vm_fd, KVM_SET_PIT2, &pit);
	}
	if (rc < 0)
		log_warn("kvm: the timer did not take note of the HPET's legacy mode");
}

const struct accel_irqchip kvm_irqchip_ops = {
    .set_gsi = kvm_set_gsi,
    .send_msi = kvm_send_msi,
    .msi_route_add = kvm_msi_route_add,
    .msi_route_update = kvm_msi_route_update,
    .msi_route_del = kvm_msi_route_del,
    .irqfd = kvm_irqfd,
    .save = kvm_chips_save,
    .load = kvm_chips_load,
    .pit_legacy = kvm_pit_legacy,
};

int kvm_doorbell(struct accel *a, bool port, uint64_t addr, unsigned size, bool match, uint64_t value, int fd,
		 bool assign)
{
	struct kvm_accel *k = kvm_accel_of(a);
	struct kvm_ioeventfd ioev = {.datamatch = value,
				     .addr = addr,
				     .len = size,
				     .fd = fd,
				     .flags = (port ? KVM_IOEVENTFD_FLAG_PIO : 0) |
					      (match ? KVM_IOEVENTFD_FLAG_DATAMATCH : 0) |
					      (assign ? 0 : KVM_IOEVENTFD_FLAG_DEASSIGN)};
	int rc;

	/* Any length and any value: then Intel hosts need not decode the instruction (the fast MMIO bus). */
	if (!port && !match && k->any_length)
		ioev.len = 0;
	rc = kvm_ioctl(k->vm_fd, KVM_IOEVENTFD, &ioev);

	if (rc == 0 && assign)
		__atomic_fetch_add(&k->n_ioeventfds, 1, __ATOMIC_RELAXED);
	return rc;
}
