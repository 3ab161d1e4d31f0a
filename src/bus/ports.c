/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * I/O port dispatch: one pointer per port, filled from the list of mapped
 * regions in the order they came. Where two regions claim a port the first
 * keeps it; when that one leaves, the next in line gets it.
 *
 * Locking: the table is read without a lock. Writers hold `update`. A reader
 * that found a region takes the region's own lock and then looks again whether
 * the port is (still) inside, since another vCPU may have moved it meanwhile.
 * Regions outlive the vCPU threads, so a stale pointer is never freed memory.
 */
#include "bus/ports.h"
#include <stdlib.h>
#include "base/log.h"
#include "base/util.h"

#define PORT_COUNT 65536u

struct ports {
	struct mem_region **table; /* PORT_COUNT entries, NULL where unclaimed */
	pthread_mutex_t update;
	struct mem_region **mapped; /* in order of arrival */
	size_t nmapped, room;
};

struct ports *ports_create(void)
{
	struct ports *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->table = calloc(PORT_COUNT, sizeof(*p->table));
	if (!p->table) {
		free(p);
		return NULL;
	}
	pthread_mutex_init(&p->update, NULL);
	return p;
}

void ports_destroy(struct ports *p)
{
	if (!p)
		return;
	pthread_mutex_destroy(&p->update);
	free(p->mapped);
	free(p->table);
	free(p);
}

static struct mem_region *ports_find(const struct ports *p, uint32_t port)
{
	return port < PORT_COUNT ? __atomic_load_n(&p->table[port], __ATOMIC_ACQUIRE) : NULL;
}

/* Claim the free ports of r. Returns the region that already holds one of them, or NULL. */
static const struct mem_region *ports_claim(struct ports *p, struct mem_region *r)
{
	const struct mem_region *holder = NULL;
	uint32_t end = (uint32_t)MIN(r->addr + r->size, (uint64_t)PORT_COUNT);

	for (uint32_t port = (uint32_t)r->addr; port < end; port++) {
		if (!p->table[port])
			__atomic_store_n(&p->table[port], r, __ATOMIC_RELEASE);
		else if (p->table[port] != r)
			holder = p->table[port];
	}
	return holder;
}

void ports_map(struct ports *p, struct mem_region *r, uint16_t base)
{
	const struct mem_region *holder;

	ports_unmap(p, r);
	pthread_mutex_lock(&p->update);
	if (p->nmapped == p->room) {
		size_t room = p->room ? p->room * 2 : 32;
		struct mem_region **bigger = realloc(p->mapped, room * sizeof(*bigger));

		BUG_ON(!bigger);
		p->mapped = bigger;
		p->room = room;
	}
	p->mapped[p->nmapped++] = r;
	r->addr = base;
	r->mapped = true;
	holder = ports_claim(p, r);
	pthread_mutex_unlock(&p->update);
	if (holder)
		log_diag(LOG_GUEST_ERRORS, "ports: \"%s\" at 0x%x overlaps \"%s\", which keeps the shared ports",
			 r->name, base, holder->name);
}

void ports_unmap(struct ports *p, struct mem_region *r)
{
	uint32_t end;
	size_t at = 0;

	pthread_mutex_lock(&p->update);
	while (at < p->nmapped && p->mapped[at] != r)
		at++;
	if (at == p->nmapped)
		goto out;
	memmove(&p->mapped[at], &p->mapped[at + 1], (p->nmapped - at - 1) * sizeof(*p->mapped));
	p->nmapped--;
	end = (uint32_t)MIN(r->addr + r->size, (uint64_t)PORT_COUNT);
	for (uint32_t port = (uint32_t)r->addr; port < end; port++) {
		if (p->table[port] == r)
			__atomic_store_n(&p->table[port], NULL, __ATOMIC_RELEASE);
	}
	r->mapped = false;
	/* Whoever was shadowed by r steps forward. */
	for (size_t i = 0; i < p->nmapped; i++) {
		if (p->mapped[i]->addr < end && p->mapped[i]->addr + p->mapped[i]->size > r->addr)
			ports_claim(p, p->mapped[i]);
	}
out:
	pthread_mutex_unlock(&p->update);
}

/* Take r's lock and check that [port, port + size) is inside; unlocked again when it is not. */
static bool ports_enter(struct mem_region *r, uint16_t port, unsigned size)
{
	if (r->lock)
		pthread_mutex_lock(r->lock);
	if (r->mapped && port >= r->addr && (uint64_t)port + size <= r->addr + r->size)
		return true;
	if (r->lock)
		pthread_mutex_unlock(r->lock);
	return false;
}

static void ports_leave(struct mem_region *r)
{
	if (r->lock)
		pthread_mutex_unlock(r->lock);
}

static unsigned ports_min_size(const struct mem_region *r)
{
	return r->ops->min_size ? r->ops->min_size : 1;
}

static unsigned ports_max_size(const struct mem_region *r)
{
	return r->ops->max_size ? r->ops->max_size : 4;
}

static uint64_t ports_mask(unsigned size)
{
	return BIT(size * 8) - 1;
}

/* One access inside one region, of a size the region may not like. Region locked. */
static uint64_t ports_region_read(struct mem_region *r, uint64_t off, unsigned size)
{
	unsigned min = ports_min_size(r), max = ports_max_size(r);
	uint64_t val = 0;

	if (!r->ops->read)
		return ports_mask(size);
	if (size < min) { /* read the whole register, take the part */
		uint64_t start = ALIGN_DOWN(off, (uint64_t)min);

		return (r->ops->read(r->opaque, start, min) >> ((off - start) * 8)) & ports_mask(size);
	}
	for (unsigned done = 0; done < size; done += MIN(size, max))
		val |= (r->ops->read(r->opaque, off + done, MIN(size, max)) & ports_mask(MIN(size, max))) << (done * 8);
	return val & ports_mask(size);
}

static void ports_region_write(struct mem_region *r, uint64_t off, uint64_t val, unsigned size)
{
	unsigned piece = MIN(size, ports_max_size(r));

	if (!r->ops->write)
		return;
	for (unsigned done = 0; done < size; done += piece)
		r->ops->write(r->opaque, off + done, (val >> (done * 8)) & ports_mask(piece), piece);
}

/* Do all `size` ports from `port` belong to r? */
static bool ports_all_of(const struct ports *p, const struct mem_region *r, uint16_t port, unsigned size)
{
	for (unsigned i = 1; i < size; i++) {
		if (ports_find(p, (uint32_t)port + i) != r)
			return false;
	}
	return true;
}

uint64_t ports_read(struct ports *p, uint16_t port, unsigned size)
{
	struct mem_region *r = ports_find(p, port);
	uint64_t val = 0;

	if (size == 1 && !r)
		return 0xff;
	if (r && ports_all_of(p, r, port, size) && ports_enter(r, port, size)) {
		val = ports_region_read(r, port - r->addr, size);
		ports_leave(r);
		if (log_on(LOG_IO))
			log_diag(LOG_IO, "port read  0x%04x.%u %s = 0x%llx", port, size, r->name,
				 (unsigned long long)val);
		return val;
	}
	if (size == 1) /* the region moved away under us */
		return 0xff;
	for (unsigned i = 0; i < size; i++)
		val |= ((uint32_t)port + i < PORT_COUNT ? ports_read(p, (uint16_t)(port + i), 1) : 0xff) << (i * 8);
	return val;
}

void ports_write(struct ports *p, uint16_t port, uint64_t val, unsigned size)
{
	struct mem_region *r = ports_find(p, port);

	if (size == 1 && !r)
		return;
	if (r && ports_all_of(p, r, port, size) && ports_enter(r, port, size)) {
		if (log_on(LOG_IO))
			log_diag(LOG_IO, "port write 0x%04x.%u %s = 0x%llx", port, size, r->name,
				 (unsigned long long)val);
		ports_region_write(r, port - r->addr, val & ports_mask(size), size);
		ports_leave(r);
		return;
	}
	if (size == 1)
		return;
	for (unsigned i = 0; i < size && (uint32_t)port + i < PORT_COUNT; i++)
		ports_write(p, (uint16_t)(port + i), (val >> (i * 8)) & 0xff, 1);
}

void ports_walk(struct ports *p, void (*fn)(void *arg, uint16_t base, const struct mem_region *r), void *arg)
{
	pthread_mutex_lock(&p->update);
	for (uint32_t port = 0; port < PORT_COUNT; port++) {
		const struct mem_region *r = p->table[port];

		/* Once per region, at its lowest port that is its own. */
		if (r && (port == 0 || p->table[port - 1] != r))
			fn(arg, (uint16_t)port, r);
	}
	pthread_mutex_unlock(&p->update);
}
