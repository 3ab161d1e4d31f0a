/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The address map: RAM blocks and device regions flattened into one sorted
 * array (struct mem_view) that is replaced whole when something moves.
 *
 * Locking: changes hold update_lock. Readers are in an RCU read section only
 * while they search and copy the range they hit, never while a device handler
 * runs; so a handler (a BAR being moved by a PCI configuration write) may
 * change the map itself. urcu-bp needs no registration of threads.
 */
#include "mem/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <urcu/urcu-bp.h>

#include "base/util.h"
#include "mem/map.h"

/* ThreadSanitizer cannot see the grace period's ordering: tell it. */
#if defined(__SANITIZE_THREAD__)
#define MEM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MEM_TSAN 1
#endif
#endif
#ifdef MEM_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#else
#define __tsan_acquire(addr) ((void)(addr))
#define __tsan_release(addr) ((void)(addr))
#endif

/*
 * What stands for the grace period in TSan's eyes, which does not see liburcu's: an address that no atomic store uses.
 * (A store to `view` itself forgets the readers who left before it.)
 */
static void *rcu_sync(const struct mem_map *m)
{
	return (void *)(uintptr_t)&m->regions;
}

static const struct mem_view *view_enter(const struct mem_map *m)
{
	urcu_bp_read_lock();
	return __atomic_load_n(&m->view, __ATOMIC_ACQUIRE);
}

static void view_leave(const struct mem_map *m)
{
	__tsan_release(rcu_sync(m));
	urcu_bp_read_unlock();
}

/* ---- building ------------------------------------------------------------ */

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t range_end(uint64_t addr, uint64_t size)
{
	return addr + size < addr ? UINT64_MAX : addr + size;
}

/* Who answers at addr? Of regions the highest priority, of equals the one mapped last; a later RAM block first. */
static void owner_at(const struct mem_map *m, uint64_t addr, struct mem_range *out)
{
	out->region = NULL;
	out->ram = NULL;
	for (unsigned i = 0; i < m->nblocks; i++)
		if (addr >= m->block[i].gpa && addr - m->block[i].gpa < m->block[i].size)
			out->ram = &m->block[i];
	for (struct mem_region *r = m->regions; r; r = r->map_next)
		if (addr >= r->addr && addr < range_end(r->addr, r->size) &&
		    (!out->region || r->priority > out->region->priority))
			out->region = r;
	if (out->region && out->ram) {
		if (out->region->priority < 0)
			out->region = NULL;
		else
			out->ram = NULL;
	}
	if (out->region)
		out->region_base = out->region->addr;
	if (out->ram) {
		out->host = out->ram->host + (addr - out->ram->gpa);
		out->page = out->ram->page0 + (addr - out->ram->gpa) / PAGE_SIZE;
	}
}

static struct mem_view *view_build(const struct mem_map *m)
{
	unsigned nregions = 0, n = 0;
	struct mem_view *v;
	uint64_t *edge;

	for (struct mem_region *r = m->regions; r; r = r->map_next)
		nregions++;
	edge = calloc(2 * (size_t)(nregions + m->nblocks) + 1, sizeof(*edge));
	v = calloc(1, sizeof(*v) + 2 * (size_t)(nregions + m->nblocks) * sizeof(v->range[0]));
	BUG_ON(!edge || !v);
	for (unsigned i = 0; i < m->nblocks; i++) {
		edge[n++] = m->block[i].gpa;
		edge[n++] = m->block[i].gpa + m->block[i].size;
	}
	for (struct mem_region *r = m->regions; r; r = r->map_next) {
		edge[n++] = r->addr;
		edge[n++] = range_end(r->addr, r->size);
	}
	qsort(edge, n, sizeof(*edge), cmp_u64);
	for (unsigned i = 0; i + 1 < n; i++) {
		struct mem_range cur = {.start = edge[i], .end = edge[i + 1]};
		struct mem_range *last = v->n ? &v->range[v->n - 1] : NULL;

		if (cur.start == cur.end)
			continue;
		owner_at(m, cur.start, &cur);
		if (!cur.ram && !cur.region)
			continue;
		if (last && last->end == cur.start && last->ram == cur.ram && last->region == cur.region)
			last->end = cur.end;
		else
			v->range[v->n++] = cur;
	}
	free(edge);
	return v;
}

/* With update_lock held. */
static void republish(struct mem_map *m)
{
	struct mem_view *old = m->view;

	__atomic_store_n(&m->view, view_build(m), __ATOMIC_RELEASE);
	if (old) {
		urcu_bp_synchronize_rcu();
		__tsan_acquire(rcu_sync(m));
		free(old);
	}
	for (struct mem_listener *l = m->listeners; l; l = l->next)
		l->changed(l->opaque);
}

void mem_set_a20(struct mem_map *m, bool on)
{
	if (atomic_exchange(&m->a20_off, !on) == !on)
		return;
	pthread_mutex_lock(&m->update_lock);
	for (struct mem_listener *l = m->listeners; l; l = l->next)
		l->changed(l->opaque);
	pthread_mutex_unlock(&m->update_lock);
}

/* ---- life and changes ------------------------------------------------------ */

static void *reserve(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int mem_init(struct mem_map *m, struct err *err)
{
	*m = (struct mem_map){0};
	m->page_bits = reserve(MEM_MAX_PAGES);
	m->page_code_gen = reserve(MEM_MAX_PAGES * sizeof(*m->page_code_gen));
	if (!m->page_bits || !m->page_code_gen) {
		int rc = err_set_errno(err, -errno, "guest memory: cannot reserve address space for its page tables");

		mem_fini(m);
		return rc;
	}
	pthread_mutex_init(&m->update_lock, NULL);
	m->view = view_build(m);
	return 0;
}

void mem_fini(struct mem_map *m)
{
	mem_ram_free(m);
	free(m->view);
	m->view = NULL;
	if (m->page_bits)
		munmap(m->page_bits, MEM_MAX_PAGES);
	if (m->page_code_gen)
		munmap(m->page_code_gen, MEM_MAX_PAGES * sizeof(*m->page_code_gen));
	pthread_mutex_destroy(&m->update_lock);
}

/* Make the per-page arrays usable for the new block, then show it. */
int mem_publish_block(struct mem_map *m, const struct ram_block *blk, struct err *err)
{
	uint64_t pages = m->pages + blk->size / PAGE_SIZE;

	if (mprotect(m->page_bits, ALIGN_UP(pages, PAGE_SIZE), PROT_READ | PROT_WRITE) < 0 ||
	    mprotect(m->page_code_gen, ALIGN_UP(pages * sizeof(*m->page_code_gen), PAGE_SIZE), PROT_READ | PROT_WRITE) <
		0)
		return err_set_errno(err, -errno, "guest memory '%s': cannot allocate its page tables", blk->name);
	pthread_mutex_lock(&m->update_lock);
	m->block[m->nblocks++] = *blk;
	m->pages = pages;
	republish(m);
	pthread_mutex_unlock(&m->update_lock);
	return 0;
}

static void region_unlink(struct mem_map *m, struct mem_region *r)
{
	for (struct mem_region **p = &m->regions; *p; p = &(*p)->map_next)
		if (*p == r) {
			*p = r->map_next;
			break;
		}
	r->mapped = false;
}

void mem_map_region(struct mem_map *m, struct mem_region *r, uint64_t addr, int priority)
{
	BUG_ON(!r->size || !r->ops);
	pthread_mutex_lock(&m->update_lock);
	if (!(r->mapped && r->addr == addr && r->priority == priority)) {
		if (r->mapped)
			region_unlink(m, r);
		r->addr = addr;
		r->priority = priority;
		r->mapped = true;
		r->map_next = m->regions;
		m->regions = r;
		republish(m);
	}
	pthread_mutex_unlock(&m->update_lock);
}

void mem_unmap_region(struct mem_map *m, struct mem_region *r)
{
	pthread_mutex_lock(&m->update_lock);
	if (r->mapped) {
		region_unlink(m, r);
		republish(m);
	}
	pthread_mutex_unlock(&m->update_lock);
}

void mem_add_listener(struct mem_map *m, struct mem_listener *l)
{
	pthread_mutex_lock(&m->update_lock);
	l->next = m->listeners;
	m->listeners = l;
	l->changed(l->opaque);
	pthread_mutex_unlock(&m->update_lock);
}

void mem_remove_listener(struct mem_map *m, struct mem_listener *l)
{
	pthread_mutex_lock(&m->update_lock);
	for (struct mem_listener **p = &m->listeners; *p; p = &(*p)->next)
		if (*p == l) {
			*p = l->next;
			break;
		}
	pthread_mutex_unlock(&m->update_lock);
}

/* ---- lookups ----------------------------------------------------------------- */

void mem_lookup(const struct mem_map *m, uint64_t gpa, struct mem_range *out)
{
	static __thread unsigned hint; /* index of this thread's last hit; may belong to another view: it is checked */
	const struct mem_view *v = view_enter(m);
	unsigned lo = 0, hi = v->n;

	if (hint < v->n && gpa - v->range[hint].start < v->range[hint].end - v->range[hint].start) {
		*out = v->range[hint];
		view_leave(m);
		return;
	}
	while (lo < hi) { /* the first range that ends beyond gpa */
		unsigned mid = (lo + hi) / 2;

		if (v->range[mid].end <= gpa)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < v->n && v->range[lo].start <= gpa) {
		hint = lo;
		*out = v->range[lo];
	} else {
		*out = (struct mem_range){.start = lo ? v->range[lo - 1].end : 0,
					  .end = lo < v->n ? v->range[lo].start : UINT64_MAX};
	}
	view_leave(m);
}

uint8_t *mem_ram_ptr(const struct mem_map *m, uint64_t gpa, uint64_t len)
{
	struct mem_range r;

	mem_lookup(m, gpa, &r);
	if (!r.ram || len > r.end - gpa)
		return NULL;
	return r.host + (gpa - r.start);
}

const struct ram_block *mem_ram_block(const struct mem_map *m, uint64_t gpa)
{
	struct mem_range r;

	mem_lookup(m, gpa, &r);
	return r.ram;
}

uint64_t mem_page_index(const struct mem_map *m, uint64_t gpa)
{
	struct mem_range r;

	mem_lookup(m, gpa, &r);
	return r.ram ? r.page + (gpa / PAGE_SIZE - r.start / PAGE_SIZE) : UINT64_MAX;
}

uint8_t *mem_page_host(const struct mem_map *m, uint64_t page)
{
	for (unsigned i = 0; i < m->nblocks; i++) {
		const struct ram_block *b = &m->block[i];

		if (page - b->page0 < b->size >> PAGE_SHIFT)
			return b->host + ((page - b->page0) << PAGE_SHIFT);
	}
	return NULL;
}

const struct ram_block *mem_block_of_host(const struct mem_map *m, const void *host)
{
	for (unsigned i = 0; i < m->nblocks; i++) {
		if ((uint64_t)((const uint8_t *)host - m->block[i].host) < m->block[i].size)
			return &m->block[i];
	}
	return NULL;
}

bool mem_is_ram(const struct mem_map *m, uint64_t gpa)
{
	return mem_ram_block(m, gpa) != NULL;
}

void mem_walk(struct mem_map *m,
	      void (*fn)(void *arg, uint64_t addr, uint64_t size, const struct ram_block *ram,
			 const struct mem_region *region),
	      void *arg)
{
	const struct mem_view *v = view_enter(m);

	for (unsigned i = 0; i < v->n; i++) {
		const struct mem_range *r = &v->range[i];

		fn(arg, r->start, r->end - r->start, r->ram, r->region);
	}
	view_leave(m);
}

/* ---- accesses ------------------------------------------------------------------ */

static uint64_t size_mask(unsigned size)
{
	return size >= 8 ? UINT64_MAX : BIT(8 * size) - 1;
}

/* The largest power of two that size, the handler's limit and 8 allow. */
static unsigned piece_size(uint64_t size, unsigned max)
{
	unsigned p = 8;

	while (p > 1 && (p > size || p > max))
		p /= 2;
	return p;
}

uint64_t mem_region_read(const struct mem_region *r, uint64_t off, unsigned size)
{
	unsigned max = r->ops->max_size ? r->ops->max_size : 8, min = r->ops->min_size ? r->ops->min_size : 1;
	uint64_t val = 0;

	if (!r->ops->read)
		return size_mask(size);
	if (r->lock)
		pthread_mutex_lock(r->lock);
	for (unsigned done = 0; done < size;) {
		unsigned n = piece_size(size - done, max);
		uint64_t at = off + done, part;

		if (n < min) { /* read the whole register, take the bytes asked for */
			uint64_t base = at & ~(uint64_t)(min - 1);

			part = r->ops->read(r->opaque, base, min) >> (8 * (at - base));
			n = MIN(n, (unsigned)(base + min - at));
		} else {
			part = r->ops->read(r->opaque, at, n);
		}
		val |= (part & size_mask(n)) << (8 * done);
		done += n;
	}
	if (r->lock)
		pthread_mutex_unlock(r->lock);
	return val;
}

void mem_region_write(const struct mem_region *r, uint64_t off, uint64_t val, unsigned size)
{
	unsigned max = r->ops->max_size ? r->ops->max_size : 8;

	if (!r->ops->write)
		return;
	if (r->lock)
		pthread_mutex_lock(r->lock);
	for (unsigned done = 0; done < size;) {
		unsigned n = piece_size(size - done, max);

		r->ops->write(r->opaque, off + done, (val >> (8 * done)) & size_mask(n), n);
		done += n;
	}
	if (r->lock)
		pthread_mutex_unlock(r->lock);
}

/* One host access where the size allows it, so that what the guest aligns is atomic. */
static uint64_t ram_load(const uint8_t *p, unsigned size)
{
	uint64_t v = 0;

	switch (size) {
	case 1: return *(const volatile uint8_t *)p;
	case 2: return *(const volatile guest_u16 *)p;
	case 4: return *(const volatile guest_u32 *)p;
	case 8: return *(const volatile guest_u64 *)p;
	default: memcpy(&v, p, size); return v;
	}
}

static void ram_store(uint8_t *p, uint64_t val, unsigned size)
{
	switch (size) {
	case 1: *(volatile uint8_t *)p = (uint8_t)val; break;
	case 2: *(volatile guest_u16 *)p = (uint16_t)val; break;
	case 4: *(volatile guest_u32 *)p = (uint32_t)val; break;
	case 8: *(volatile guest_u64 *)p = val; break;
	default: memcpy(p, &val, size); break;
	}
}

uint64_t mem_read(struct mem_map *m, uint64_t gpa, unsigned size)
{
	uint64_t val = 0;

	for (unsigned done = 0; done < size;) {
		struct mem_range r;
		uint64_t at = gpa + done, part;
		unsigned n;

		mem_lookup(m, at, &r);
		n = (unsigned)MIN((uint64_t)(size - done), MAX(r.end - at, 1));
		if (r.ram)
			part = ram_load(r.host + (at - r.start), n);
		else if (r.region)
			part = mem_region_read(r.region, at - r.region_base, n);
		else
			part = UINT64_MAX;
		val |= (part & size_mask(n)) << (8 * done);
		done += n;
	}
	return val;
}

void mem_write(struct mem_map *m, uint64_t gpa, uint64_t val, unsigned size)
{
	for (unsigned done = 0; done < size;) {
		struct mem_range r;
		uint64_t at = gpa + done, part = val >> (8 * done);
		unsigned n;

		mem_lookup(m, at, &r);
		n = (unsigned)MIN((uint64_t)(size - done), MAX(r.end - at, 1));
		if (r.ram) {
			if (!r.ram->readonly) {
				ram_store(r.host + (at - r.start), part, n);
				mem_mark_pages(m, r.page + (at / PAGE_SIZE - r.start / PAGE_SIZE),
					       (unsigned)(at & (PAGE_SIZE - 1)), n);
			}
		} else if (r.region) {
			mem_region_write(r.region, at - r.region_base, part & size_mask(n), n);
		}
		done += n;
	}
}
