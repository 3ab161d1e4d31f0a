/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Paging of 32-bit guests, two-level and PAE: rights by every combination of U, W,
 * WP, SMEP, SMAP and NX with the error codes, A and D bits, large pages, reserved
 * bits, faults at page ends and in the middle of string instructions, INVLPG and
 * global pages, PAE's pointers kept in the CPU. Intel SDM volume 3A chapter 4.
 */
#include "bare.h"

#define VA    0x40000000u /* where the tests map their pages */
#define PG_P  1u
#define PG_W  2u
#define PG_U  4u
#define PG_A  0x20u
#define PG_D  0x40u
#define PG_PS 0x80u
#define PG_G  0x100u
#define NX    (1ull << 63)

static u8 pages[4][4096] __attribute__((aligned(4096)));
static u32 pd[1024] __attribute__((aligned(4096))), pt[1024] __attribute__((aligned(4096)));
static u64 pdpt[4] __attribute__((aligned(32))), pae_pd[4][512] __attribute__((aligned(4096))),
    pae_pt[512] __attribute__((aligned(4096)));
static struct ctx c;
static u32 features, features7;
static int pae;

static void flush(void)
{
	WRITE_REG(cr3, READ_REG(cr3));
}

/* Page n at VA with these rights; the directory above allows everything unless told. */
static void map_to(u32 n, const void *to, u64 rights)
{
	if (pae)
		pae_pt[n] = (u32)to | rights;
	else
		pt[n] = (u32)to | (u32)rights;
	flush();
}
static void map(u32 n, u64 rights)
{
	map_to(n, pages[n], rights);
}
static u32 entry(u32 n)
{
	return pae ? (u32)pae_pt[n] : pt[n];
}
static void directory(u32 rights)
{
	if (pae)
		pae_pd[1][0] = (u32)pae_pt | rights;
	else
		pd[VA >> 22] = (u32)pt | rights;
	flush();
}

static void paging_on(int use_pae)
{
	pae = use_pae;
	for (u32 n = 0; n < 1024; n++)
		pd[n] = n << 22 | PG_P | PG_W | PG_U | PG_PS;
	for (u32 g = 0; g < 4; g++) {
		for (u32 n = 0; n < 512; n++)
			pae_pd[g][n] = g << 30 | n << 21 | PG_P | PG_W | PG_U | PG_PS;
		pdpt[g] = (u32)pae_pd[g] | PG_P;
	}
	fill(pt, 0, sizeof(pt));
	fill(pae_pt, 0, sizeof(pae_pt));
	WRITE_REG(cr4, (READ_REG(cr4) & ~0x300000u) | 0x10 | (pae ? 0x20 : 0));
	WRITE_REG(cr3, pae ? (u32)pdpt : (u32)pd);
	WRITE_REG(cr0, READ_REG(cr0) | 0x80000000);
	if (pae && (features & 1u << 20))
		wrmsr(0xc0000080, rdmsr(0xc0000080) | 0x800);
	directory(PG_P | PG_W | PG_U);
}

static void paging_off(void)
{
	WRITE_REG(cr0, READ_REG(cr0) & ~0x80010000u);
	WRITE_REG(cr4, READ_REG(cr4) & ~0x3000b0u);
	if (features & 1u << 20)
		wrmsr(0xc0000080, rdmsr(0xc0000080) & ~0x800ull);
}

CODE(read_it, "mov (%esi), %eax");
CODE(write_it, "mov %eax, (%esi)");
CODE(jump_it, "call *%esi");
CODE(push_far, "mov %esi, %esp; push %eax");

static u32 touch(const char *code, unsigned ring, u32 address)
{
	ctx_init(&c, ring, code);
	c.esi = address;
	return run(&c);
}

/* All rights of page and directory against read, write and execute from both rings. */
static void rights(u32 wp)
{
	u32 cr0 = READ_REG(cr0);

	WRITE_REG(cr0, wp ? cr0 | 0x10000 : cr0 & ~0x10000u);
	fill(pages[0], 0xc3, 16); /* RET */
	for (u32 bits = 0; bits < 32; bits++) {
		u32 leaf = (bits & 1 ? PG_W : 0) | (bits & 2 ? PG_U : 0) | PG_P;
		u32 dir = (bits & 4 ? PG_W : 0) | (bits & 8 ? PG_U : 0) | PG_P;
		u64 nx = bits & 16 && pae && (features & 1u << 20) ? NX : 0;

		directory(dir);
		for (u32 ring = 0; ring <= 3; ring += 3) {
			u32 user = ring ? 4 : 0, ok_user = !ring || (leaf & dir & PG_U), ok_write = leaf & dir & PG_W;
			u32 fetch = pae && (features & 1u << 20) ? 16 : 0;

			map(0, leaf | nx);
			CHECK_EQ(touch(read_it, ring, VA), ok_user ? V_BACK : V_PF);
			if (!ok_user) {
				CHECK_EQ(c.error, 1 | user);
				CHECK_EQ(READ_REG(cr2), VA);
			}
			CHECK_EQ(!!(entry(0) & PG_A), !!ok_user);
			CHECK_EQ(entry(0) & PG_D, 0);
			map(0, leaf | nx);
			ok_write = ok_user && (ok_write || (!ring && !wp));
			CHECK_EQ(touch(write_it, ring, VA + 64), ok_write ? V_BACK : V_PF);
			if (!ok_write)
				CHECK_EQ(c.error, 3 | user);
			CHECK_EQ(!!(entry(0) & PG_D), !!ok_write);
			map(0, leaf | nx);
			CHECK_EQ(touch(jump_it, ring, VA), ok_user && !nx ? V_BACK : V_PF);
			if (!ok_user || nx)
				CHECK_EQ(c.error, 1 | user | fetch);
		}
	}
	map(0, 0);
	directory(PG_P | PG_W | PG_U);
	CHECK_EQ(touch(read_it, 3, VA + 8), V_PF);
	CHECK_EQ(c.error, 4);
	CHECK_EQ(touch(write_it, 0, VA + 8), V_PF);
	CHECK_EQ(c.error, 2);
	WRITE_REG(cr0, cr0);
}

static void test_rights_32(void)
{
	paging_on(0);
	rights(0);
	rights(1);
	paging_off();
}
static void test_rights_pae(void)
{
	paging_on(1);
	rights(0);
	rights(1);
	paging_off();
}

CODE(stac_read, "stac; mov (%esi), %eax; clac");
static void test_smep_smap(void)
{
	if (!(features7 & 1u << 7) || !(features7 & 1u << 20))
		return;
	paging_on(1);
	/* The framework's own pages must be the kernel's then: everything but VA and the user's stack and code. */
	for (u32 g = 0; g < 4; g++)
		for (u32 n = 0; n < 512; n++)
			if (g != 1 || n)
				pae_pd[g][n] &= ~(u64)PG_U;
	fill(pages[0], 0xc3, 16);
	map(0, PG_P | PG_W | PG_U);
	WRITE_REG(cr4, READ_REG(cr4) | 1u << 20);
	CHECK_EQ(touch(read_it, 0, VA), V_BACK);
	CHECK_EQ(touch(jump_it, 0, VA), V_PF);
	CHECK_EQ(c.error, 0x11);
	WRITE_REG(cr4, READ_REG(cr4) | 1u << 21);
	CHECK_EQ(touch(read_it, 0, VA), V_PF);
	CHECK_EQ(c.error, 1);
	CHECK_EQ(touch(write_it, 0, VA), V_PF);
	CHECK_EQ(c.error, 3);
	CHECK_EQ(touch(stac_read, 0, VA), V_BACK);
	WRITE_REG(cr4, READ_REG(cr4) & ~(3u << 20));
	paging_off();
}

/* Accesses over the end of a page: the second page's fault, and nothing written to the first. */
static void page_ends(void)
{
	map(0, PG_P | PG_W | PG_U);
	map(1, 0);
	*(u32 *)&pages[0][0xffc] = 0x55555555;
	CHECK_EQ(touch(write_it, 3, VA + 0xffe), V_PF);
	CHECK_EQ(READ_REG(cr2), VA + 0x1000);
	CHECK_EQ(c.error, 6);
	CHECK_EQ(*(u32 *)&pages[0][0xffc], 0x55555555);
	CHECK_EQ(touch(read_it, 3, VA + 0xffd), V_PF);
	CHECK_EQ(READ_REG(cr2), VA + 0x1000);
	CHECK_EQ(touch(read_it, 3, VA + 0xffc), V_BACK);
	CHECK_EQ(touch(push_far, 3, VA + 0x1002), V_PF);
	CHECK_EQ(c.esp, VA + 0x1002);
	map(1, PG_P | PG_U); /* present, read-only */
	CHECK_EQ(touch(write_it, 3, VA + 0xffe), V_PF);
	CHECK_EQ(c.error, 7);
	CHECK_EQ(*(u32 *)&pages[0][0xffc], 0x55555555);
	/* two pages that are not neighbours in memory */
	map_to(1, pages[3], PG_P | PG_W | PG_U);
	ctx_init(&c, 3, write_it);
	c.esi = VA + 0xffe;
	c.eax = 0x11223344;
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(*(u16 *)&pages[0][0xffe], 0x3344);
	CHECK_EQ(*(u16 *)&pages[3][0], 0x1122);
	/* an instruction across the edge, whose second half is not there */
	map(1, 0);
	pages[0][0xfff] = 0xb8; /* mov $imm, %eax */
	CHECK_EQ(touch(jump_it, 3, VA + 0xfff), V_PF);
	CHECK_EQ(READ_REG(cr2), VA + 0x1000);
	CHECK_EQ(c.eip, VA + 0xfff);
	map(1, PG_P | PG_U);
	*(u32 *)&pages[1][0] = 0xabcd;
	pages[1][4] = 0xc3;
	CHECK_EQ(touch(jump_it, 3, VA + 0xfff), V_BACK);
	CHECK_EQ(c.eax, 0xabcd);
}

CODE(rep_movs, "rep movsl");
CODE(rep_stos, "rep stosb");
CODE(rep_back, "std; rep movsb");
CODE(rep_cmps, "repe cmpsb");
/* String instructions stop at the element that faults, with registers for a restart. */
static void strings(void)
{
	u32 *src = (u32 *)pages[2];

	map(0, PG_P | PG_W | PG_U);
	map(1, 0);
	map(2, PG_P | PG_U);
	for (u32 n = 0; n < 1024; n++)
		src[n] = n;
	ctx_init(&c, 3, rep_movs);
	c.esi = VA + 0x2000;
	c.edi = VA + 0x1000 - 40;
	c.ecx = 20;
	CHECK_EQ(run(&c), V_PF);
	CHECK_EQ(c.ecx, 10);
	CHECK_EQ(c.edi, VA + 0x1000);
	CHECK_EQ(c.esi, VA + 0x2000 + 40);
	CHECK_EQ(READ_REG(cr2), VA + 0x1000);
	CHECK_EQ(*(u32 *)&pages[0][0xffc], 9);
	/* the page comes: it goes on where it was */
	map(1, PG_P | PG_W | PG_U);
	CHECK_EQ(run(&c), V_BACK);
	CHECK_EQ(c.ecx, 0);
	CHECK_EQ(*(u32 *)&pages[1][36], 19);
	map(1, 0);
	ctx_init(&c, 3, rep_stos);
	c.edi = VA + 0xf00;
	c.ecx = 0x1000;
	c.eax = 0x77;
	CHECK_EQ(run(&c), V_PF);
	CHECK_EQ(c.ecx, 0xf00);
	CHECK_EQ(c.edi, VA + 0x1000);
	/* an element across the edge: nothing of it is written */
	fill(&pages[0][0xff0], 0, 16);
	ctx_init(&c, 3, rep_movs);
	c.esi = VA + 0x2000;
	c.edi = VA + 0x1000 - 6;
	c.ecx = 3;
	CHECK_EQ(run(&c), V_PF);
	CHECK_EQ(c.ecx, 2);
	CHECK_EQ(*(u16 *)&pages[0][0xffe], 0);
	/* downwards, off the lower end of page 2 */
	ctx_init(&c, 3, rep_back);
	c.esi = VA + 0x2003;
	c.edi = VA + 0x803;
	c.ecx = 8;
	CHECK_EQ(run(&c), V_PF);
	CHECK_EQ(c.ecx, 4);
	CHECK_EQ(c.esi, VA + 0x1fff);
	ctx_init(&c, 3, rep_cmps);
	c.esi = VA + 0x2000;
	c.edi = VA + 0x2000;
	c.ecx = 0x1008;
	CHECK_EQ(run(&c), V_PF);
	CHECK_EQ(c.ecx, 8);
	CHECK_EQ(READ_REG(cr2), VA + 0x3000);
}

static void test_page_ends(void)
{
	for (u32 mode = 0; mode < 2; mode++) {
		paging_on((int)mode);
		page_ends();
		strings();
		paging_off();
	}
}

/* Reserved bits: error code with bit 3. */
static void test_reserved(void)
{
	paging_on(1);
	map(0, PG_P | PG_W | PG_U | 1ull << 51);
	CHECK_EQ(touch(read_it, 3, VA), V_PF);
	CHECK_EQ(c.error, 0xd);
	paging_off();
	paging_on(0);
	pd[VA >> 22] = 0x600000 | PG_P | PG_U | PG_PS;
	flush();
	CHECK_EQ(touch(read_it, 3, VA), V_PF);
	CHECK_EQ(c.error, 0xd);
	paging_off();
}

static void test_large(void)
{
	paging_on(0);
	pd[VA >> 22] = 0 | PG_P | PG_U | PG_W | PG_PS;
	flush();
	*(u32 *)0x380000 = 0x600d;
	CHECK_EQ(touch(read_it, 3, VA + 0x380000), V_BACK);
	CHECK_EQ(c.eax, 0x600d);
	CHECK_EQ(pd[VA >> 22] & (PG_A | PG_D), PG_A);
	touch(write_it, 3, VA + 0x380000);
	CHECK_EQ(pd[VA >> 22] & (PG_A | PG_D), PG_A | PG_D);
	paging_off();
}

/* A stale entry may live until INVLPG; after it, it must not. Global pages outlive a load of CR3. */
static void test_invlpg(void)
{
	paging_on(0);
	*(u32 *)pages[0] = 0xa;
	*(u32 *)pages[1] = 0xb;
	map_to(0, pages[0], PG_P | PG_W | PG_U);
	touch(read_it, 3, VA);
	CHECK_EQ(c.eax, 0xa);
	pt[0] = (u32)pages[1] | PG_P | PG_U;
	__asm__ volatile("invlpg %0" : : "m"(*(u8 *)VA) : "memory");
	touch(read_it, 3, VA);
	CHECK_EQ(c.eax, 0xb);
	CHECK_EQ(touch(write_it, 3, VA), V_PF);
	/* more rights take effect without a flush: the processor looks again before it faults */
	pt[0] = (u32)pages[1] | PG_P | PG_U | PG_W;
	CHECK_EQ(touch(write_it, 3, VA), V_BACK);
	/* off global pages: CR4.PGE flushes all */
	WRITE_REG(cr4, READ_REG(cr4) | 0x80);
	map_to(0, pages[0], PG_P | PG_W | PG_U | PG_G);
	*(u32 *)pages[0] = 0xa;
	touch(read_it, 3, VA);
	pt[0] = (u32)pages[1] | PG_P | PG_U | PG_G;
	*(u32 *)pages[1] = 0xb;
	WRITE_REG(cr4, READ_REG(cr4) & ~0x80u);
	touch(read_it, 3, VA);
	CHECK_EQ(c.eax, 0xb);
	paging_off();
}

/* PAE: the pointers are the CPU's own; memory counts when CR3 is written. */
CODE(load_cr3, "mov %eax, %cr3");
static void test_pdpte(void)
{
	paging_on(1);
	*(u32 *)pages[0] = 0x1234;
	map(0, PG_P | PG_W | PG_U);
	pdpt[1] = 0;
	__asm__ volatile("invlpg %0" : : "m"(*(u8 *)VA) : "memory");
	CHECK_EQ(touch(read_it, 3, VA), V_BACK);
	WRITE_REG(cr3, (u32)pdpt);
	CHECK_EQ(touch(read_it, 3, VA), V_PF);
	CHECK_EQ(c.error, 4);
	/* reserved bits in it: #GP at the load, and the old ones stay */
	pdpt[1] = (u32)pae_pd[1] | PG_P | PG_W;
	ctx_init(&c, 0, load_cr3);
	c.eax = (u32)pdpt;
	CHECK_EQ(run(&c), V_GP);
	CHECK_EQ(c.error, 0);
	pdpt[1] = (u32)pae_pd[1] | PG_P;
	WRITE_REG(cr3, (u32)pdpt);
	CHECK_EQ(touch(read_it, 3, VA), V_BACK);
	paging_off();
}

static void test_features(void)
{
	u32 r[4];

	cpuid(0x80000001, r);
	features = r[3];
	cpuid(7, r);
	features7 = r[1];
}

const struct test tests[] = {{"features", test_features},     {"rights-32", test_rights_32},
			     {"rights-pae", test_rights_pae}, {"smep-smap", test_smep_smap},
			     {"page-ends", test_page_ends},   {"reserved", test_reserved},
			     {"large", test_large},	      {"invlpg", test_invlpg},
			     {"pdpte", test_pdpte},	      {0, 0}};
