/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * DMA: device access to guest RAM, and the bits that every writer of RAM must
 * keep: the dirty log, and the notice to the CPU engine that code was written.
 *
 * Any thread, no locks of its own.
 */
#include "mem/mem.h"

#include <errno.h>

#include "base/util.h"
#include "mem/map.h"

/* Is all of gpa..gpa+len RAM (writable RAM for writers)? */
static bool all_ram(struct mem_map *m, uint64_t gpa, uint64_t len, bool write)
{
	if (gpa + len < gpa)
		return false;
	while (len) {
		struct mem_range r;
		uint64_t n;

		mem_lookup(m, gpa, &r);
		if (!r.ram || (write && r.ram->readonly))
			return false;
		n = MIN(len, r.end - gpa);
		gpa += n;
		len -= n;
	}
	return true;
}

int dma_read(struct mem_map *m, uint64_t gpa, void *buf, uint64_t len)
{
	uint8_t *out = buf;

	if (!all_ram(m, gpa, len, false))
		return -EFAULT;
	while (len) {
		struct mem_range r;
		uint64_t n;

		mem_lookup(m, gpa, &r);
		if (!r.ram)
			return -EFAULT; /* a device region was moved here just now */
		n = MIN(len, r.end - gpa);
		memcpy(out, r.host + (gpa - r.start), n);
		out += n;
		gpa += n;
		len -= n;
	}
	return 0;
}

int dma_write(struct mem_map *m, uint64_t gpa, const void *buf, uint64_t len)
{
	const uint8_t *in = buf;

	if (!all_ram(m, gpa, len, true))
		return -EFAULT;
	while (len) {
		struct mem_range r;
		uint64_t n;

		mem_lookup(m, gpa, &r);
		if (!r.ram)
			return -EFAULT;
		n = MIN(len, r.end - gpa);
		memcpy(r.host + (gpa - r.start), in, n);
		mem_mark_written(m, r.host + (gpa - r.start), n);
		in += n;
		gpa += n;
		len -= n;
	}
	return 0;
}

int dma_begin(struct mem_map *m, uint64_t gpa, uint64_t len, bool write, struct iovec *iov, int *n, int max)
{
	int used = *n;

	if (gpa + len < gpa)
		return -EFAULT;
	while (len) {
		struct mem_range r;
		uint64_t part;

		mem_lookup(m, gpa, &r);
		if (!r.ram || (write && r.ram->readonly))
			return -EFAULT;
		if (used == max)
			return -ENOSPC;
		part = MIN(len, r.end - gpa);
		iov[used].iov_base = r.host + (gpa - r.start);
		iov[used].iov_len = part;
		used++;
		gpa += part;
		len -= part;
	}
	*n = used;
	return 0;
}

void dma_end(struct mem_map *m, uint64_t gpa, uint64_t len)
{
	while (len) {
		struct mem_range r;
		uint64_t n;

		mem_lookup(m, gpa, &r);
		n = MIN(len, r.end - gpa);
		if (n == 0)
			return;
		if (r.ram)
			mem_mark_written(m, r.host + (gpa - r.start), n);
		gpa += n;
		len -= n;
	}
}

void mem_mark_pages(struct mem_map *m, uint64_t page, unsigned off, uint64_t len)
{
	bool logging = m->dirty_logging;

	/* The bytes must be visible before the bits are looked at: who makes code of a page sets its bit, then reads.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	while (len) {
		unsigned n = (unsigned)MIN(len, PAGE_SIZE - off);
		uint8_t bits = __atomic_load_n(&m->page_bits[page], __ATOMIC_ACQUIRE);

		if (unlikely(logging && !(bits & MEM_PAGE_DIRTY)))
			__atomic_fetch_or(&m->page_bits[page], MEM_PAGE_DIRTY, __ATOMIC_RELAXED);
		if (unlikely((bits & MEM_PAGE_CODE) && m->code_written))
			m->code_written(m->code_opaque, page, off, n);
		page++;
		off = 0;
		len -= n;
	}
}

void mem_mark_written(struct mem_map *m, const void *host, uint64_t len)
{
	const struct ram_block *b = mem_block_of_host(m, host);
	uint64_t off;

	if (!b)
		return;
	off = (uint64_t)((const uint8_t *)host - b->host);
	mem_mark_pages(m, b->page0 + off / PAGE_SIZE, (unsigned)(off & (PAGE_SIZE - 1)), MIN(len, b->size - off));
}

/* ---- dirty log -------------------------------------------------------------- */

static void dirty_switch(struct mem_map *m, bool on)
{
	pthread_mutex_lock(&m->update_lock);
	if (m->dirty_logging != on) {
		if (on)
			for (uint64_t i = 0; i < m->pages; i++)
				if (m->page_bits[i] & MEM_PAGE_DIRTY)
					mem_dirty_test_clear(m, i);
		m->dirty_logging = on;
		/* KVM changes its slots' flags, the software CPU drops write entries of its TLBs. */
		for (struct mem_listener *l = m->listeners; l; l = l->next)
			l->changed(l->opaque);
	}
	pthread_mutex_unlock(&m->update_lock);
}

void mem_dirty_start(struct mem_map *m)
{
	dirty_switch(m, true);
}

void mem_dirty_stop(struct mem_map *m)
{
	dirty_switch(m, false);
}

bool mem_dirty_test_clear(struct mem_map *m, uint64_t page)
{
	return __atomic_fetch_and(&m->page_bits[page], (uint8_t)~MEM_PAGE_DIRTY, __ATOMIC_ACQ_REL) & MEM_PAGE_DIRTY;
}
