/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * C that translated code calls: what an access does that missed the first-level
 * TLB. Built with general registers only, since the guest's vector state may be
 * in the host's registers.
 */
#include "cpu/soft/jit.h"

static struct jit_slow fail(struct soft_cpu *c, enum jit_reason why)
{
	c->jx.reason = why;
	return (struct jit_slow){.ok = 0};
}

static bool canonical(uint64_t lin)
{
	return (uint64_t)((int64_t)(lin << 16) >> 16) == lin;
}

/* `size`: bytes, and above bit 16 the alignment the instruction insists on. */
static bool plain(const struct soft_cpu *c, uint64_t lin, unsigned *size)
{
	unsigned align = *size >> 16;

	*size &= 0xffff;
	if (align && (lin & (align - 1)))
		return false;
	return canonical(lin) && canonical(lin + *size - 1) && !(c->s.dr[7] & 0xff);
}

struct jit_slow jit_slow_read(struct soft_cpu *c, uint64_t lin, unsigned size, uint8_t *bounce)
{
	uint8_t *p, *q;
	unsigned flags, first;

	if (!plain(c, lin, &size))
		return fail(c, REASON_INTERP);
	if (mmu_host(c, lin, 1, MMU_READ, c->mmu_index, &p, &flags))
		return fail(c, REASON_FAULT);
	if (!p)
		return fail(c, REASON_INTERP);
	first = (unsigned)(PAGE_SIZE - (lin & (PAGE_SIZE - 1)));
	if (first >= size)
		return (struct jit_slow){.addend = (uint64_t)(uintptr_t)p - lin, .ok = 1};
	if (mmu_host(c, lin + first, 1, MMU_READ, c->mmu_index, &q, &flags))
		return fail(c, REASON_FAULT);
	if (!q)
		return fail(c, REASON_INTERP);
	for (unsigned i = 0; i < size; i++)
		bounce[i] = *(volatile uint8_t *)(i < first ? p + i : q + (i - first));
	return (struct jit_slow){.addend = (uint64_t)(uintptr_t)bounce - lin, .ok = 1};
}

struct jit_slow jit_slow_write(struct soft_cpu *c, uint64_t lin, unsigned size, uint8_t *bounce)
{
	uint8_t *p;
	unsigned flags;

	if (!plain(c, lin, &size) || (lin & (PAGE_SIZE - 1)) + size > PAGE_SIZE)
		return fail(c, REASON_INTERP);
	if (mmu_host(c, lin, size, MMU_WRITE, c->mmu_index, &p, &flags))
		return fail(c, REASON_FAULT);
	if (!p || (flags & MMU_HOST_CODE))
		return fail(c, REASON_INTERP);
	return (struct jit_slow){.addend = (uint64_t)(uintptr_t)p - lin, .ok = 1};
}
