/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Paging and the TLB of the software CPU: the rights matrix against rules written
 * again here from the manuals, A and D bits, error codes, page sizes, reserved
 * bits, flushes, PCIDs, pages that straddle, and mmu_protect_page between threads.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <sched.h>

#include "bare.h"

#define LIN	 0x40000000ull /* second PDPTE: tables of our own */
#define PD	 (BARE_TABLES + 0x4000)
#define PT	 (BARE_TABLES + 0x5000)
#define PAGE_GPA 0x200000ull
#define P	 1ull
#define W	 2ull
#define U	 4ull
#define A	 0x20ull
#define D	 0x40ull
#define PS	 0x80ull
#define G	 0x100ull
#define NX	 (1ull << 63)

static struct bare b;
static struct soft_cpu *c;

static uint64_t *entry(uint64_t table, unsigned n)
{
	return (uint64_t *)(void *)bare_ram(&b, table + 8 * n);
}

static int setup(void **state)
{
	bare_init(&b, 2, "soft,jit=off");
	bare_long_mode(&b, 0);
	c = bare_cpu(&b, 0);
	*entry(BARE_TABLES + 0x1000, 1) = PD | P | W | U;
	*entry(PD, 0) = PT | P | W | U;
	return 0;
}

static int teardown(void **state)
{
	bare_fini(&b);
	return 0;
}

static int touch(uint64_t lin, enum mmu_access a, unsigned idx)
{
	uint64_t val, page;
	const uint8_t *host;

	c->exc_raised = false;
	switch (a) {
	case MMU_READ: return mmu_load_slow(c, lin, 8, &val, idx);
	case MMU_WRITE: return mmu_store_slow(c, lin, 8, 1, idx);
	default: c->cpl = idx == MMU_USER ? 3 : 0; return mmu_fetch(c, lin, &page, &host);
	}
}

/* The rules of SDM 3A section 4.6, said once more and differently. */
static bool allowed(bool user_page, bool writable, bool nx, enum mmu_access a, unsigned idx, bool wp, bool smep,
		    bool smap)
{
	if (idx == MMU_USER) {
		if (!user_page)
			return false;
		if (a == MMU_WRITE)
			return writable;
		return a == MMU_EXEC ? !nx : true;
	}
	if (a == MMU_EXEC)
		return !nx && !(user_page && smep);
	if (user_page && smap && idx == MMU_KERNEL)
		return false;
	return a == MMU_READ || writable || !wp;
}

static void one_case(unsigned bits, unsigned where)
{
	bool user_page = bits & 1, writable = bits & 2, nx = bits & 4, wp = bits & 8, smep = bits & 16,
	     smap = bits & 32;
	uint64_t flags = (user_page ? U : 0) | (writable ? W : 0) | (nx ? NX : 0);

	c->s.cr0 = (c->s.cr0 & ~CR0_WP) | (wp ? CR0_WP : 0);
	c->s.cr4 = (c->s.cr4 & ~(CR4_SMEP | CR4_SMAP)) | (smep ? CR4_SMEP : 0) | (smap ? CR4_SMAP : 0);
	soft_mode_changed(c);
	for (unsigned idx = 0; idx < MMU_MODES; idx++) {
		for (unsigned a = 0; a < MMU_ACCESSES; a++) {
			bool ok = allowed(user_page, writable, nx, a, idx, wp, smep, smap);
			uint64_t leaf;

			/* The rights restrict at either level. */
			*entry(PD, 0) = PT | P | (where ? flags : W | U);
			*entry(PT, 0) = PAGE_GPA | P | (where ? W | U : flags);
			mmu_flush_all(c);
			assert_int_equal(touch(LIN, a, idx), ok ? 0 : EXC_RAISED);
			leaf = *entry(PT, 0);
			assert_int_equal(!!(leaf & A), ok);
			assert_int_equal(!!(leaf & D), ok && a == MMU_WRITE);
			assert_int_equal(!!(*entry(PD, 0) & A), ok);
			if (ok) {
				/* Now from the TLB. */
				assert_int_equal(touch(LIN, a, idx), 0);
				continue;
			}
			assert_int_equal(c->exc_vector, EXC_PF);
			assert_true(c->exc_cr2 == LIN);
			assert_int_equal(c->exc_code, 1u | (a == MMU_WRITE ? 2u : 0) | (idx == MMU_USER ? 4u : 0) |
							  (a == MMU_EXEC ? 16u : 0));
		}
	}
}

static void test_rights(void **state)
{
	for (unsigned bits = 0; bits < 64; bits++) {
		one_case(bits, 0);
		one_case(bits, 1);
	}
}

static void test_not_present(void **state)
{
	*entry(PT, 0) = 0;
	assert_int_equal(touch(LIN, MMU_READ, MMU_KERNEL_AC), EXC_RAISED);
	assert_int_equal(c->exc_code, 0);
	assert_int_equal(touch(LIN, MMU_WRITE, MMU_USER), EXC_RAISED);
	assert_int_equal(c->exc_code, 6);
	*entry(PD, 0) = 0;
	assert_int_equal(touch(LIN, MMU_EXEC, MMU_USER), EXC_RAISED);
	assert_int_equal(c->exc_code, 0x14);
	/* Without NX and SMEP, fetches do not say so. */
	c->s.efer &= ~EFER_NXE;
	soft_mode_changed(c);
	assert_int_equal(touch(LIN, MMU_EXEC, MMU_USER), EXC_RAISED);
	assert_int_equal(c->exc_code, 4);
}

static void test_reserved(void **state)
{
	static const struct {
		uint64_t pde, pte;
		bool nxe, fault;
	} cases[] = {
	    {PT | P | W | U, PAGE_GPA | P | W, true, false},
	    {PT | P | W | U | 1ull << 51, PAGE_GPA | P | W, true, true},
	    {PT | P | W | U, PAGE_GPA | P | W | 1ull << 51, true, true},
	    {PT | P | W | U, PAGE_GPA | P | W | 1ull << 52, true, false}, /* available */
	    {PAGE_GPA | P | W | PS, 0, true, false},
	    {PAGE_GPA | P | W | PS | 0x2000, 0, true, true},  /* bit 13 of a 2 MiB page */
	    {PAGE_GPA | P | W | PS | 0x1000, 0, true, false}, /* PAT */
	    {PT | P | W | U, PAGE_GPA | P | NX, false, true},
	    {PT | P | W | U, PAGE_GPA | P | NX, true, false},
	};

	for (unsigned n = 0; n < ARRAY_SIZE(cases); n++) {
		c->s.efer = (c->s.efer & ~EFER_NXE) | (cases[n].nxe ? EFER_NXE : 0);
		soft_mode_changed(c);
		*entry(PD, 0) = cases[n].pde;
		*entry(PT, 0) = cases[n].pte;
		mmu_flush_all(c);
		assert_int_equal(touch(LIN, MMU_READ, MMU_KERNEL_AC), cases[n].fault ? EXC_RAISED : 0);
		if (cases[n].fault)
			assert_int_equal(c->exc_code, 9);
	}
}

static void test_page_sizes(void **state)
{
	uint64_t val;

	st64le(bare_ram(&b, 0x612340), 0x1122334455667788);
	*entry(PD, 3) = 0x600000 | P | W | PS;
	assert_int_equal(mmu_load_slow(c, LIN + 3 * 2 * MIB + 0x12340, 8, &val, MMU_KERNEL_AC), 0);
	assert_true(val == 0x1122334455667788);
	*entry(BARE_TABLES + 0x1000, 2) = 0 | P | W | PS; /* 1 GiB at 2 GiB */
	assert_int_equal(mmu_load_slow(c, 2 * GIB + 0x612340, 8, &val, MMU_KERNEL_AC), 0);
	assert_true(val == 0x1122334455667788);
	/* INVLPG of any address in a large page drops all of it. */
	*entry(PD, 3) = 0x800000 | P | W | PS;
	st64le(bare_ram(&b, 0x812340), 42);
	assert_int_equal(mmu_load_slow(c, LIN + 3 * 2 * MIB + 0x12340, 8, &val, MMU_KERNEL_AC), 0);
	assert_true(val == 0x1122334455667788); /* stale, as it may be */
	mmu_invlpg(c, LIN + 3 * 2 * MIB);
	assert_int_equal(mmu_load_slow(c, LIN + 3 * 2 * MIB + 0x12340, 8, &val, MMU_KERNEL_AC), 0);
	assert_true(val == 42);
}

static uint64_t load(uint64_t lin)
{
	uint64_t val = 0;

	assert_int_equal(mmu_load(c, lin, 8, &val), 0);
	return val;
}

/* Each kind of flush against ordinary and global pages. */
static void test_flushes(void **state)
{
	st64le(bare_ram(&b, 0x400000), 1);
	st64le(bare_ram(&b, 0x401000), 2);
	for (unsigned kind = 0; kind < 5; kind++) {
		bool normal_gone = kind != 3, global_gone = kind == 0 || kind == 4;
		const uint64_t desc[2] = {0, LIN};

		*entry(PT, 0) = 0x400000 | P | W;
		*entry(PT, 1) = 0x400000 | P | W | G;
		mmu_flush_all(c);
		assert_true(load(LIN) == 1 && load(LIN + PAGE_SIZE) == 1);
		*entry(PT, 0) = 0x401000 | P | W;
		*entry(PT, 1) = 0x401000 | P | W | G;
		assert_true(load(LIN) == 1 && load(LIN + PAGE_SIZE) == 1);
		switch (kind) {
		case 0: mmu_flush_all(c); break;
		case 1: mmu_flush_nonglobal(c); break;
		case 2: mmu_invlpg(c, LIN); break;
		case 3: mmu_invlpg(c, LIN + 2 * PAGE_SIZE); break;
		default: assert_int_equal(mmu_invpcid(c, 2, desc), 0); break;
		}
		assert_true(load(LIN) == (normal_gone ? 2 : 1));
		assert_true(load(LIN + PAGE_SIZE) == (global_gone ? 2 : 1));
	}
}

static void test_pcid(void **state)
{
	const uint64_t one[2] = {5, LIN}, context[2] = {5, 0}, bad[2] = {0x1000, 0};
	uint64_t gen;

	st64le(bare_ram(&b, 0x400000), 1);
	st64le(bare_ram(&b, 0x401000), 2);
	*entry(PT, 0) = 0x400000 | P | W;
	c->s.cr4 |= CR4_PCIDE;
	soft_mode_changed(c);
	mmu_flush_all(c);
	mmu_switch_cr3(c, BARE_TABLES | 5, false);
	assert_true(load(LIN) == 1);
	gen = mmu_generation(c);
	*entry(PT, 0) = 0x401000 | P | W;
	/* Another PCID sees its own translation; coming back without a flush finds the old one. */
	mmu_switch_cr3(c, BARE_TABLES | 6, true);
	assert_true(load(LIN) == 2);
	assert_true(mmu_generation(c) != gen);
	mmu_switch_cr3(c, BARE_TABLES | 5, true);
	assert_true(load(LIN) == 1);
	assert_true(mmu_generation(c) == gen);
	/* INVPCID of one address from another context. */
	mmu_switch_cr3(c, BARE_TABLES | 6, true);
	assert_int_equal(mmu_invpcid(c, 0, one), 0);
	mmu_switch_cr3(c, BARE_TABLES | 5, true);
	assert_true(load(LIN) == 2);
	*entry(PT, 0) = 0x400000 | P | W;
	assert_int_equal(mmu_invpcid(c, 1, context), 0);
	assert_true(load(LIN) == 1);
	assert_int_equal(mmu_invpcid(c, 1, bad), EXC_RAISED);
	assert_int_equal(c->exc_vector, EXC_GP);
	assert_int_equal(mmu_invpcid(c, 4, context), EXC_RAISED);
}

static void test_straddle(void **state)
{
	uint64_t lin = LIN + PAGE_SIZE - 3, val;
	uint8_t buf[6000], back[6000];

	*entry(PT, 0) = 0x400000 | P | W;
	*entry(PT, 1) = 0x600000 | P | W;
	*entry(PT, 2) = 0x500000 | P | W;
	mmu_flush_all(c);
	assert_int_equal(mmu_store(c, lin, 8, 0x8877665544332211), 0);
	assert_int_equal(mmu_load(c, lin, 8, &val), 0);
	assert_true(val == 0x8877665544332211);
	assert_int_equal(*bare_ram(&b, 0x400fff), 0x33);
	assert_int_equal(*bare_ram(&b, 0x600000), 0x44);
	for (unsigned n = 0; n < sizeof(buf); n++)
		buf[n] = (uint8_t)(n * 7);
	assert_int_equal(mmu_write_buf(c, lin, buf, sizeof(buf), MMU_KERNEL_AC), 0);
	assert_int_equal(mmu_read_buf(c, lin, back, sizeof(back), MMU_KERNEL_AC), 0);
	assert_memory_equal(buf, back, sizeof(buf));
	/* A fault on the second page leaves the first unwritten. */
	*entry(PT, 1) = 0x600000 | P;
	mmu_flush_all(c);
	st64le(bare_ram(&b, 0x400ff8), 0);
	assert_int_equal(mmu_store(c, lin, 8, ~0ull), EXC_RAISED);
	assert_true(c->exc_cr2 == LIN + PAGE_SIZE);
	assert_int_equal(c->exc_code, 3);
	assert_int_equal(mmu_write_buf(c, lin, buf, sizeof(buf), MMU_KERNEL_AC), EXC_RAISED);
	assert_true(ld64le(bare_ram(&b, 0x400ff8)) == 0);
}

/* ---- devices ------------------------------------------------------------------- */

static uint64_t dev_last;
static uint64_t dev_read(void *opaque, uint64_t off, unsigned size)
{
	return 0x1000 + off * 16 + size;
}
static void dev_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	dev_last = off << 32 | size << 24 | val;
}

static void test_device(void **state)
{
	static const struct region_ops ops = {.read = dev_read, .write = dev_write};
	struct mem_region r = {.name = "test", .size = PAGE_SIZE, .ops = &ops};
	uint8_t *host;
	unsigned flags;

	mem_map_region(&b.mem, &r, 0xe0000000, 1);
	*entry(PT, 0) = 0xe0000000 | P | W;
	mmu_flush_all(c);
	assert_int_equal(mmu_host(c, LIN + 8, 4, MMU_WRITE, MMU_KERNEL_AC, &host, &flags), 0);
	assert_null(host);
	assert_true(load(LIN + 8) == 0x1000 + 8 * 16 + 8);
	assert_int_equal(mmu_store(c, LIN + 16, 2, 0xabc), 0);
	assert_true(dev_last == (16ull << 32 | 2 << 24 | 0xabc));
	mem_unmap_region(&b.mem, &r);
}

/* ---- other paging modes ------------------------------------------------------------ */

static void test_legacy_paging(void **state)
{
	uint32_t *dir = (uint32_t *)(void *)bare_ram(&b, 0x700000), *tab = (uint32_t *)(void *)bare_ram(&b, 0x701000);
	uint64_t *pdpt = (uint64_t *)(void *)bare_ram(&b, 0x702000), *pd = (uint64_t *)(void *)bare_ram(&b, 0x703000);

	st64le(bare_ram(&b, 0x400000), 77);
	c->s.efer = 0;
	c->s.cr4 = CR4_PSE;
	c->s.seg[S_CS].l = false;
	dir[1] = 0x701000 | P | W;
	tab[2] = 0x400000 | P | W;
	dir[2] = 0x400000 | P | W | PS;
	soft_mode_changed(c);
	mmu_switch_cr3(c, 0x700000, false);
	mmu_flush_all(c);
	assert_true(load(0x402000) == 77);
	assert_true(load(0x800000) == 77);
	assert_true((tab[2] & A) && (dir[1] & A) && !(tab[2] & D));
	c->s.cr4 = CR4_PAE;
	pdpt[1] = 0x703000 | P;
	pd[1] = 0x400000 | P | W | PS;
	mmu_switch_cr3(c, 0x702000, false);
	mmu_flush_all(c);
	assert_true(load(0x40200000) == 77);
	assert_true(pdpt[1] == (0x703000 | P)); /* no A bit there */
	c->s.cr0 &= ~CR0_PG;
	soft_mode_changed(c);
	mmu_flush_all(c);
	assert_true(load(0x400000) == 77);
}

/* ---- code pages ------------------------------------------------------------------------ */

static void test_code_page(void **state)
{
	uint64_t index = mem_page_index(&b.mem, 0x400000);
	uint8_t *host;
	unsigned flags;

	*entry(PT, 0) = 0x400000 | P | W;
	mmu_flush_all(c);
	assert_int_equal(mmu_store(c, LIN, 8, 1), 0);
	assert_non_null(mmu_hit(c, c->mmu_index, MMU_WRITE, LIN, 8));
	__atomic_fetch_or(&b.mem.page_bits[index], MEM_PAGE_CODE, __ATOMIC_SEQ_CST);
	mmu_protect_page(b.accel, index);
	assert_null(mmu_hit(c, c->mmu_index, MMU_WRITE, LIN, 8));
	assert_int_equal(mmu_store(c, LIN, 8, 2), 0);
	assert_null(mmu_hit(c, c->mmu_index, MMU_WRITE, LIN, 8));
	assert_int_equal(mmu_host(c, LIN, 8, MMU_WRITE, c->mmu_index, &host, &flags), 0);
	assert_true(host == bare_ram(&b, 0x400000));
	assert_int_equal(flags, MMU_HOST_CODE);
	assert_true(load(LIN) == 2);
}

#define ROUNDS 4000

static _Atomic bool race_stop, race_protected;
static _Atomic unsigned race_fills;

/*
 * The owner fills write entries all the time. Once a page is protected none may
 * be left: what this thread finds after a fill is what a store would have used.
 */
static void *filler(void *arg)
{
	unsigned long *stale = arg;

	while (!race_stop) {
		bool p;

		mmu_flush_all(c);
		mmu_store_slow(c, LIN, 8, 0, MMU_KERNEL_AC);
		p = race_protected;
		if (p && mmu_hit(c, MMU_KERNEL_AC, MMU_WRITE, LIN, 8))
			++*stale;
		race_fills++;
	}
	return NULL;
}

static void test_protect_race(void **state)
{
	uint64_t index = mem_page_index(&b.mem, 0x400000);
	unsigned long stale = 0;
	pthread_t t;

	*entry(PT, 0) = 0x400000 | P | W | A | D;
	race_stop = race_protected = false;
	pthread_create(&t, NULL, filler, &stale);
	for (unsigned n = 0; n < ROUNDS; n++) {
		unsigned fills = race_fills;

		/* At every phase of a fill in turn; then long enough for the filler to notice. */
		for (volatile unsigned k = 0; k < n % 256; k++)
			;
		__atomic_fetch_or(&b.mem.page_bits[index], MEM_PAGE_CODE, __ATOMIC_SEQ_CST);
		mmu_protect_page(b.accel, index);
		race_protected = true;
		for (unsigned k = 0; race_fills - fills < 2; k++) {
			if (k > 1000)
				sched_yield();
		}
		race_protected = false;
		__atomic_fetch_and(&b.mem.page_bits[index], (uint8_t)~MEM_PAGE_CODE, __ATOMIC_SEQ_CST);
	}
	race_stop = true;
	pthread_join(t, NULL);
	assert_int_equal(stale, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(test_rights),    T(test_not_present),   T(test_reserved),	    T(test_page_sizes),
	    T(test_flushes),   T(test_pcid),	      T(test_straddle),	    T(test_device),
	    T(test_code_page), T(test_legacy_paging), T(test_protect_race),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
