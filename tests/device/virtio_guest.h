/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A machine without CPUs and a guest's virtio driver for it, for device tests:
 * the driver reaches the device only as a guest would, through configuration
 * space, BARs and rings in guest RAM.
 */
#ifndef KELVIN_TESTS_VIRTIO_GUEST_H
#define KELVIN_TESTS_VIRTIO_GUEST_H

#include "bus/pci.h"
#include "hw/virtio/virtqueue.h"

#define GUEST_RAM   (32ull << 20)
#define GUEST_HIGH  (1ull << 32)  /* a second block of RAM, 2 MiB */
#define GUEST_HOLE  0x08000000ull /* nothing */
#define RING_BASE   0x100000ull
#define BUFFER_BASE 0x800000ull

struct machine {
	struct mem_map mem;
	struct bus bus;
	struct vmclock clock;
	bool threaded; /* another thread runs the loop: waiting is sleeping */
	int intx;      /* level of the four wires, bits */
	unsigned intx_edges;
	unsigned msi_count[256]; /* by data */
};

void machine_create(struct machine *m);
void machine_destroy(struct machine *m);
uint8_t *guest_ptr(struct machine *m, uint64_t gpa);

struct guest_queue {
	struct guest *g;
	unsigned index;
	uint16_t num;
	uint64_t desc, avail, used; /* gpa */
	uint16_t next_free, avail_idx, seen_used;
	bool event;
};

enum guest_mode { GUEST_MODERN, GUEST_LEGACY };

struct guest {
	struct machine *m;
	unsigned bdf;
	enum guest_mode mode;
	uint64_t features;		      /* negotiated */
	uint64_t common, isr, device, notify; /* addresses; legacy: common is the port */
	uint32_t notify_mult;
	unsigned cfg_cap;
	bool msix;
	struct guest_queue q[8];
};

/* Find the device by its slot, map its capabilities. False when that interface is missing. */
bool guest_attach(struct guest *g, struct machine *m, unsigned bdf, enum guest_mode mode);
uint8_t guest_status(struct guest *g);
void guest_set_status(struct guest *g, uint8_t status);
uint64_t guest_host_features(struct guest *g);
void guest_set_features(struct guest *g, uint64_t features);
/* Reset, negotiate (host features & wanted), set up `nqueues`, DRIVER_OK. */
void guest_start(struct guest *g, uint64_t wanted, unsigned nqueues, uint16_t num, bool msix);
void guest_queue_setup(struct guest *g, unsigned i, uint16_t num, uint64_t base);
uint32_t guest_config(struct guest *g, unsigned off, unsigned size);
void guest_config_write(struct guest *g, unsigned off, unsigned size, uint32_t val);

struct seg {
	uint64_t gpa;
	uint32_t len;
	bool write;
};
/* Offer a chain; with `indirect` a table of that address holds it. Returns the head. */
uint16_t guest_add(struct guest_queue *q, const struct seg *s, int n, uint64_t indirect);
void guest_set_desc(struct guest_queue *q, unsigned i, uint64_t addr, uint32_t len, uint16_t flags, uint16_t next);
void guest_offer(struct guest_queue *q, uint16_t head); /* avail ring and index */
void guest_kick(struct guest_queue *q);
/* Run the loop until a used entry appears (true: its head and length) or some turns passed. */
bool guest_wait(struct guest_queue *q, uint32_t *head, uint32_t *len);
void machine_settle(struct machine *m); /* run what is due */

#endif
