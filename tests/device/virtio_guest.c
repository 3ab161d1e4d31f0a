// SPDX-License-Identifier: GPL-2.0-or-later
/* See virtio_guest.h. Written from VIRTIO 1.1, chapters 2 to 4, on the driver's side. */
#include "virtio_guest.h"
#include "roundtrip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "block/block.h"

static void msi_send(void *opaque, uint64_t addr, uint32_t data)
{
	struct machine *m = opaque;
	__atomic_fetch_add(&m->msi_count[data & 255], 1, __ATOMIC_RELAXED);
}

static const struct msi_ops msi_ops = {.send = msi_send};

static void set_intx(void *opaque, int pirq, int level)
{
	struct machine *m = opaque;

	if (level && !(m->intx & (1 << pirq)))
		m->intx_edges++;
	m->intx = level ? m->intx | 1 << pirq : m->intx & ~(1 << pirq);
}

static void must(int ret, const struct err *err)
{
	if (ret) {
		fprintf(stderr, "test machine: %s\n", err->msg);
		abort();
	}
}

void machine_create(struct machine *m)
{
	struct ram_config ram = {.size = GUEST_RAM};
	struct err err = {0};

	memset(m, 0, sizeof(*m));
	must(mem_init(&m->mem, &err), &err);
	must(mem_add_ram(&m->mem, "ram", 0, GUEST_RAM, &ram, false, &err), &err);
	must(mem_add_ram(&m->mem, "high", GUEST_HIGH, 2 << 20, &ram, false, &err), &err);
	vmclock_init(&m->clock);
	m->bus.mem = &m->mem;
	m->bus.ports = ports_create();
	m->bus.loop = loop_create("main", &err);
	m->bus.clock = &m->clock;
	m->bus.msi = &msi_ops;
	m->bus.msi_opaque = m;
	m->bus.pci = pci_bus_create(&m->bus, "pci.0");
	pci_bus_set_intx(m->bus.pci, set_intx, m);
	pci_bus_set_windows(m->bus.pci, 0xc000, 0xe0000000, 0xf0000000, 0x8000000000, 0x8100000000);
}

void machine_destroy(struct machine *m)
{
	dev_destroy_all(&m->bus);
	drive_close_all();
	pci_bus_destroy(m->bus.pci);
	loop_destroy(m->bus.loop);
	ports_destroy(m->bus.ports);
	mem_fini(&m->mem);
}

uint8_t *guest_ptr(struct machine *m, uint64_t gpa)
{
	return mem_ram_ptr(&m->mem, gpa, 1);
}

static void machine_turn(struct machine *m, int64_t ns)
{
	if (m->threaded) {
		usleep((useconds_t)ns / 1000 / 10 + 1);
		return;
	}
	loop_run_once(m->bus.loop, ns);
	/* The line of this machine is the test's, where no reset of a device may show. */
	int line = m->intx;
	state_roundtrip(&m->bus, NULL, 0);
	m->intx = line;
}

void machine_settle(struct machine *m)
{
	for (int i = 0; i < 4; i++)
		machine_turn(m, 0);
}

/* ---- registers --------------------------------------------------------------- */

static uint32_t cfg(struct guest *g, unsigned off, unsigned size)
{
	return pci_config_read(g->m->bus.pci, g->bdf, off, size);
}

static uint64_t bar_address(struct guest *g, unsigned bar)
{
	uint64_t v = cfg(g, 0x10 + 4 * bar, 4);

	if ((v & 7) == 4)
		v |= (uint64_t)cfg(g, 0x14 + 4 * bar, 4) << 32;
	return v & 1 ? v & ~3ull : v & ~15ull;
}

bool guest_attach(struct guest *g, struct machine *m, unsigned bdf, enum guest_mode mode)
{
	memset(g, 0, sizeof(*g));
	g->m = m;
	g->bdf = bdf;
	g->mode = mode;
	pci_config_write(m->bus.pci, bdf, 4, 7, 2); /* I/O, memory, bus master */
	if (mode == GUEST_LEGACY) {
		g->common = bar_address(g, 0);
		return (cfg(g, 0x10, 4) & 1) && g->common;
	}
	for (unsigned at = cfg(g, 0x34, 1), i = 0; at && i < 48; at = cfg(g, at + 1, 1), i++) {
		if (cfg(g, at, 1) != 9)
			continue;
		const uint64_t addr = bar_address(g, cfg(g, at + 4, 1)) + cfg(g, at + 8, 4);
		switch (cfg(g, at + 3, 1)) {
		case 1: g->common = addr; break;
		case 2:
			g->notify = addr;
			g->notify_mult = cfg(g, at + 16, 4);
			break;
		case 3: g->isr = addr; break;
		case 4: g->device = addr; break;
		case 5: g->cfg_cap = at; break;
		}
	}
	return g->common && g->notify && g->isr;
}

static uint64_t rd(struct guest *g, unsigned off, unsigned size)
{
	return g->mode == GUEST_LEGACY ? ports_read(g->m->bus.ports, (uint16_t)(g->common + off), size)
				       : mem_read(&g->m->mem, g->common + off, size);
}

static void wr(struct guest *g, unsigned off, uint64_t val, unsigned size)
{
	if (g->mode == GUEST_LEGACY)
		ports_write(g->m->bus.ports, (uint16_t)(g->common + off), val, size);
	else
		mem_write(&g->m->mem, g->common + off, val, size);
}

uint8_t guest_status(struct guest *g)
{
	return (uint8_t)rd(g, g->mode == GUEST_LEGACY ? 18 : 0x14, 1);
}

void guest_set_status(struct guest *g, uint8_t status)
{
	wr(g, g->mode == GUEST_LEGACY ? 18 : 0x14, status, 1);
}

uint64_t guest_host_features(struct guest *g)
{
	uint64_t f;

	if (g->mode == GUEST_LEGACY)
		return rd(g, 0, 4);
	wr(g, 0, 0, 4);
	f = rd(g, 4, 4);
	wr(g, 0, 1, 4);
	return f | rd(g, 4, 4) << 32;
}

void guest_set_features(struct guest *g, uint64_t features)
{
	if (g->mode == GUEST_LEGACY) {
		wr(g, 4, (uint32_t)features, 4);
		return;
	}
	wr(g, 8, 0, 4);
	wr(g, 12, (uint32_t)features, 4);
	wr(g, 8, 1, 4);
	wr(g, 12, features >> 32, 4);
}

static unsigned legacy_config_base(struct guest *g)
{
	return g->msix ? 24 : 20;
}

uint32_t guest_config(struct guest *g, unsigned off, unsigned size)
{
	if (g->mode == GUEST_LEGACY)
		return (uint32_t)rd(g, legacy_config_base(g) + off, size);
	return (uint32_t)mem_read(&g->m->mem, g->device + off, size);
}

void guest_config_write(struct guest *g, unsigned off, unsigned size, uint32_t val)
{
	if (g->mode == GUEST_LEGACY)
		wr(g, legacy_config_base(g) + off, val, size);
	else
		mem_write(&g->m->mem, g->device + off, val, size);
}

/* ---- start --------------------------------------------------------------- */

void guest_queue_setup(struct guest *g, unsigned i, uint16_t num, uint64_t base)
{
	struct guest_queue *q = &g->q[i];

	memset(q, 0, sizeof(*q));
	q->g = g;
	q->index = i;
	q->event = g->features & BIT(VIRTIO_RING_F_EVENT_IDX);
	wr(g, g->mode == GUEST_LEGACY ? 14 : 0x16, i, 2);
	if (g->mode == GUEST_LEGACY)
		num = (uint16_t)rd(g, 12, 2);
	q->num = num;
	q->desc = base;
	q->avail = base + 16ull * num;
	q->used = ALIGN_UP(q->avail + 4 + 2ull * num, 4096);
	memset(guest_ptr(g->m, base), 0, q->used - base + 8ull * num + 16);
	if (g->msix)
		wr(g, g->mode == GUEST_LEGACY ? 22 : 0x1a, i + 1, 2);
	if (g->mode == GUEST_LEGACY) {
		wr(g, 8, base >> 12, 4);
		return;
	}
	wr(g, 0x18, num, 2);
	wr(g, 0x20, (uint32_t)q->desc, 4);
	wr(g, 0x24, q->desc >> 32, 4);
	wr(g, 0x28, (uint32_t)q->avail, 4);
	wr(g, 0x2c, q->avail >> 32, 4);
	wr(g, 0x30, (uint32_t)q->used, 4);
	wr(g, 0x34, q->used >> 32, 4);
	wr(g, 0x1c, 1, 2);
}

/* Unmask all vectors: message data is the vector's number. */
static void enable_msix(struct guest *g)
{
	unsigned at = cfg(g, 0x34, 1);

	while (at && cfg(g, at, 1) != 0x11)
		at = cfg(g, at + 1, 1);
	if (!at)
		abort();
	const uint32_t where = cfg(g, at + 4, 4);
	const uint64_t table = bar_address(g, where & 7) + (where & ~7u);
	const unsigned n = (cfg(g, at + 2, 2) & 0x7ff) + 1;
	pci_config_write(g->m->bus.pci, g->bdf, at + 2, 0x8000, 2);
	for (unsigned i = 0; i < n; i++) {
		mem_write(&g->m->mem, table + 16 * i, 0xfee00000, 4);
		mem_write(&g->m->mem, table + 16 * i + 4, 0, 4);
		mem_write(&g->m->mem, table + 16 * i + 8, i, 4);
		mem_write(&g->m->mem, table + 16 * i + 12, 0, 4);
	}
	g->msix = true;
}

void guest_start(struct guest *g, uint64_t wanted, unsigned nqueues, uint16_t num, bool msix)
{
	guest_set_status(g, 0);
	if (guest_status(g) != 0)
		abort();
	g->msix = false;
	guest_set_status(g, 1);
	guest_set_status(g, 3);
	if (msix)
		enable_msix(g);
	g->features = guest_host_features(g) & wanted;
	if (g->mode == GUEST_MODERN)
		g->features |= BIT(VIRTIO_F_VERSION_1);
	guest_set_features(g, g->features);
	if (g->mode == GUEST_MODERN) {
		guest_set_status(g, 11);
		if (guest_status(g) != 11)
			abort();
	}
	if (msix)
		wr(g, g->mode == GUEST_LEGACY ? 20 : 0x10, 0, 2);
	for (unsigned i = 0; i < nqueues; i++)
		guest_queue_setup(g, i, num, RING_BASE + i * 0x10000ull);
	guest_set_status(g, guest_status(g) | 4);
	machine_settle(g->m);
}

/* ---- rings --------------------------------------------------------------- */

void guest_set_desc(struct guest_queue *q, unsigned i, uint64_t addr, uint32_t len, uint16_t flags, uint16_t next)
{
	const struct virtq_desc d = {addr, len, flags, next};

	memcpy(guest_ptr(q->g->m, q->desc) + 16ull * i, &d, sizeof(d));
}

void guest_offer(struct guest_queue *q, uint16_t head)
{
	uint8_t *avail = guest_ptr(q->g->m, q->avail);

	st16le(avail + 4 + 2 * (q->avail_idx % q->num), head);
	q->avail_idx++;
	__atomic_store_n((uint16_t *)(void *)(avail + 2), q->avail_idx, __ATOMIC_RELEASE);
}

uint16_t guest_add(struct guest_queue *q, const struct seg *s, int n, uint64_t indirect)
{
	const uint16_t head = q->next_free;

	if (indirect) {
		for (int i = 0; i < n; i++) {
			const struct virtq_desc d = {s[i].gpa, s[i].len,
						     (uint16_t)((s[i].write ? 2 : 0) | (i < n - 1 ? 1 : 0)),
						     (uint16_t)(i + 1)};
			memcpy(guest_ptr(q->g->m, indirect) + 16 * i, &d, sizeof(d));
		}
		guest_set_desc(q, head, indirect, 16 * (uint32_t)n, VIRTQ_DESC_F_INDIRECT, 0);
		q->next_free = (uint16_t)((head + 1) % q->num);
	} else {
		for (int i = 0; i < n; i++) {
			const unsigned at = (head + (unsigned)i) % q->num;
			guest_set_desc(q, at, s[i].gpa, s[i].len,
				       (uint16_t)((s[i].write ? 2 : 0) | (i < n - 1 ? 1 : 0)),
				       (uint16_t)((at + 1) % q->num));
		}
		q->next_free = (uint16_t)((head + n) % q->num);
	}
	guest_offer(q, head);
	return head;
}

void guest_kick(struct guest_queue *q)
{
	struct guest *g = q->g;

	if (g->mode == GUEST_LEGACY)
		wr(g, 16, q->index, 2);
	else
		mem_write(&g->m->mem, g->notify + q->index * g->notify_mult, q->index, 2);
}

bool guest_wait(struct guest_queue *q, uint32_t *head, uint32_t *len)
{
	const uint8_t *used = guest_ptr(q->g->m, q->used);
	const uint64_t end = clock_raw_ns() + 120 * 1000000000ull; /* the host may be busy with other things */

	/* Without threads some tests see that nothing comes. */
	for (unsigned turn = 0; q->g->m->threaded ? clock_raw_ns() < end : turn < 1000; turn++) {
		if (__atomic_load_n((const uint16_t *)(const void *)(used + 2), __ATOMIC_ACQUIRE) != q->seen_used) {
			const uint8_t *e = used + 4 + 8 * (q->seen_used % q->num);
			if (head)
				*head = ld32le(e);
			if (len)
				*len = ld32le(e + 4);
			q->seen_used++;
			if (q->event) /* interrupt me for the next one */
				__atomic_store_n((uint16_t *)(void *)(guest_ptr(q->g->m, q->avail) + 4 + 2 * q->num),
						 q->seen_used, __ATOMIC_RELEASE);
			return true;
		}
		machine_turn(q->g->m, 1000000);
	}
	return false;
}
