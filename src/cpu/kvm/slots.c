/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * KVM memory slots follow the address map: each stretch of RAM that the map
 * shows is one slot. What stays the same keeps its slot, so moving a device
 * region elsewhere costs nothing here.
 */
#include "cpu/kvm/kvm_int.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"

struct wanted {
	struct kvm_slot slot[KVM_MAX_SLOTS];
	unsigned n;
	bool logging, overflow;
};

static void want_range(void *arg, uint64_t addr, uint64_t size, const struct ram_block *ram,
		       const struct mem_region *region)
{
	struct wanted *w = arg;

	if (!ram)
		return;
	/* A device region smaller than a page inside RAM: KVM maps whole pages only; the rest of the page is slow. */
	if ((addr | size) & (PAGE_SIZE - 1)) {
		uint64_t end = ALIGN_DOWN(addr + size, PAGE_SIZE);

		addr = ALIGN_UP(addr, PAGE_SIZE);
		if (end <= addr)
			return;
		size = end - addr;
	}
	if (w->n == KVM_MAX_SLOTS) {
		w->overflow = true;
		return;
	}
	w->slot[w->n++] = (struct kvm_slot){.gpa = addr,
					    .size = size,
					    .host = ram->host + (addr - ram->gpa),
					    .flags = (ram->readonly ? KVM_MEM_READONLY : 0) |
						     (w->logging ? KVM_MEM_LOG_DIRTY_PAGES : 0),
					    .page = ram->page0 + (addr - ram->gpa) / PAGE_SIZE};
}

static bool same_place(const struct kvm_slot *a, const struct kvm_slot *b)
{
	return a->gpa == b->gpa && a->size == b->size && a->host == b->host &&
	       !((a->flags ^ b->flags) & KVM_MEM_READONLY);
}

static int slot_write(struct kvm_accel *k, unsigned i, uint64_t size)
{
	struct kvm_userspace_memory_region r = {.slot = i,
						.flags = k->slot[i].flags,
						.guest_phys_addr = k->slot[i].gpa,
						.memory_size = size,
						.userspace_addr = (uintptr_t)k->slot[i].host};
	int rc = kvm_ioctl(k->vm_fd, KVM_SET_USER_MEMORY_REGION, &r);

	counter_add(&k->n_slot_changes, 1);
	if (rc < 0)
		log_error("kvm: memory slot %#llx+%#llx: %s", (unsigned long long)k->slot[i].gpa,
			  (unsigned long long)size, strerror(-rc));
	return rc;
}

static void slots_apply(struct kvm_accel *k, struct wanted *w)
{
	/* First make room: slots nobody wants any more, and changed flags. A kept slot leaves the wish list. */
	for (unsigned i = 0; i < k->max_slots; i++) {
		struct kvm_slot *s = &k->slot[i];
		bool keep = false;

		for (unsigned j = 0; s->size && j < w->n && !keep; j++)
			if (w->slot[j].size && same_place(s, &w->slot[j])) {
				keep = true;
				if (s->flags != w->slot[j].flags) {
					s->flags = w->slot[j].flags;
					slot_write(k, i, s->size);
				}
				w->slot[j].size = 0;
			}
		if (s->size && !keep) {
			slot_write(k, i, 0);
			s->size = 0;
		}
	}
	for (unsigned j = 0, i = 0; j < w->n; j++) {
		if (!w->slot[j].size)
			continue;
		while (i < k->max_slots && k->slot[i].size)
			i++;
		if (i == k->max_slots) {
			w->overflow = true;
			break;
		}
		k->slot[i] = w->slot[j];
		if (slot_write(k, i, k->slot[i].size) < 0)
			k->slot[i].size = 0;
	}
	if (w->overflow)
		log_error("kvm: the address map has more RAM ranges than KVM slots (%u)", k->max_slots);
}

void kvm_slots_changed(void *opaque)
{
	struct kvm_accel *k = opaque;
	struct wanted w = {.logging = k->a.cfg.mem->dirty_logging};

	mem_walk(k->a.cfg.mem, want_range, &w);
	pthread_mutex_lock(&k->lock);
	slots_apply(k, &w);
	pthread_mutex_unlock(&k->lock);
}

int kvm_sync_dirty(struct accel *a, struct err *err)
{
	struct kvm_accel *k = kvm_accel_of(a);
	int rc = 0;

	pthread_mutex_lock(&k->lock);
	for (unsigned i = 0; i < k->max_slots && rc == 0; i++) {
		const struct kvm_slot *s = &k->slot[i];
		uint64_t pages = s->size / PAGE_SIZE, words = (pages + 63) / 64, *bitmap;
		struct kvm_dirty_log log = {.slot = i};

		if (!s->size || !(s->flags & KVM_MEM_LOG_DIRTY_PAGES))
			continue;
		bitmap = calloc(words, sizeof(*bitmap));
		if (!bitmap) {
			rc = err_set(err, -ENOMEM, "kvm: out of memory for the dirty log");
			break;
		}
		log.dirty_bitmap = bitmap;
		rc = kvm_ioctl(k->vm_fd, KVM_GET_DIRTY_LOG, &log);
		if (rc < 0)
			err_set_errno(err, rc, "kvm: cannot read the dirty log at %#llx", (unsigned long long)s->gpa);
		for (uint64_t w = 0; rc == 0 && w < words; w++)
			for (uint64_t bits = bitmap[w]; bits; bits &= bits - 1) {
				uint64_t page = s->page + w * 64 + (unsigned)__builtin_ctzll(bits);

				__atomic_fetch_or(&a->cfg.mem->page_bits[page], MEM_PAGE_DIRTY, __ATOMIC_RELAXED);
			}
		free(bitmap);
	}
	pthread_mutex_unlock(&k->lock);
	return rc;
}
