/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CPUID of the software CPU: what it can execute on this host.
 *
 * AMD64 APM volume 3 appendix E, Intel SDM volume 2 (CPUID). Two kinds of bits:
 * user-mode data instructions run on the host CPU, so their bits are the host's;
 * system features are Kelvin's own and do not depend on the host. -cpu (model.c)
 * then takes away, and fills in topology.
 *
 * It presents an AMD family 1Ah processor with AutoIBRS, which is what makes
 * Linux choose neither retpolines nor return thunks (they would ruin the return
 * prediction of translated code), and with the "not affected" bits that other
 * mitigations look at. Not advertised because not exact or not there: VME,
 * MONITOR, performance counters, LA57, PKU, CET, SVM.
 */
#include "cpu/soft/sys.h"

#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };

#define FAMILY_MODEL_STEPPING 0x00b00f21u /* family 1Ah, model 2, stepping 1 */
#define LEAF_MAX	      0xdu
#define LEAF_EXT_MAX	      0x80000021u
#define XCR0_USER	      0xe7ull /* x87, SSE, AVX, AVX-512 */
#define PHYS_BITS	      48u
#define B(n)		      (1u << (n))

/* One register of a leaf: bits that are ours, and bits taken from the host. */
struct leaf_bits {
	uint32_t leaf, subleaf;
	uint8_t reg;
	uint32_t own, host;
};

static const struct leaf_bits leaf_table[] = {
    /* PCID, x2APIC, TSC-deadline, XSAVE, hypervisor | SSE3 PCLMUL SSSE3 FMA CX16 SSE4.1 SSE4.2 MOVBE POPCNT AES
     * AVX F16C RDRAND */
    {1, 0, ECX, B(17) | B(21) | B(24) | B(26) | B(31),
     B(0) | B(1) | B(9) | B(12) | B(13) | B(19) | B(20) | B(22) | B(23) | B(25) | B(28) | B(29) | B(30)},
    /* FPU DE PSE TSC MSR PAE MCE CX8 APIC SEP MTRR PGE MCA CMOV PAT PSE36 FXSR | CLFSH MMX SSE SSE2 */
    {1, 0, EDX, 0x3fbfd & ~B(10), B(19) | B(23) | B(25) | B(26)},
    {1, 0, EDX, B(24), 0},
    {6, 0, EAX, B(2), 0}, /* ARAT: the LAPIC timer never stops */
    /* FSGSBASE TSC_ADJUST SMEP ERMS INVPCID FCS-FDS-deprecated SMAP | BMI1 AVX2 FDP_EXCPTN_ONLY BMI2 AVX512F DQ
     * RDSEED ADX IFMA CLFLUSHOPT CLWB CD SHA BW VL */
    {7, 0, EBX, B(0) | B(1) | B(7) | B(9) | B(10) | B(13) | B(20),
     B(3) | B(5) | B(6) | B(8) | B(16) | B(17) | B(18) | B(19) | B(21) | B(23) | B(24) | B(28) | B(29) | B(30) | B(31)},
    /* UMIP RDPID | VBMI VBMI2 GFNI VAES VPCLMULQDQ VNNI BITALG VPOPCNTDQ */
    {7, 0, ECX, B(2) | B(22), B(1) | B(6) | B(8) | B(9) | B(10) | B(11) | B(12) | B(14)},
    {7, 0, EDX, B(4), B(8)},	 /* FSRM | VP2INTERSECT */
    {7, 1, EAX, 0, B(4) | B(5)}, /* AVX-VNNI, AVX512-BF16 */
    {0xd, 1, EAX, 0xf, 0},	 /* XSAVEOPT XSAVEC XGETBV1 XSAVES */
    /* LAHF CR8 3DNOWPREFETCH TOPOEXT | ABM SSE4A MISALIGNSSE */
    {0x80000001, 0, ECX, B(0) | B(4) | B(8) | B(22), B(5) | B(6) | B(7)},
    /* SYSCALL NX 1G-pages RDTSCP LM, and leaf 1's common ones | MMXEXT MMX */
    {0x80000001, 0, EDX, (0x3fbfd & ~(B(10) | B(11))) | B(11) | B(20) | B(24) | B(26) | B(27) | B(29), B(22) | B(23)},
    {0x80000007, 0, EDX, B(8), 0}, /* invariant TSC */
    /* XSAVEERPTR SSB_NO BTC_NO */
    {0x80000008, 0, EBX, B(2) | B(26) | B(29), 0},
    /* no nested data breakpoints, LFENCE serializing, null selector clears base, AutoIBRS, SRSO_NO */
    {0x80000021, 0, EAX, B(0) | B(2) | B(6) | B(8) | B(29), 0},
    {0x80000021, 0, ECX, B(1) | B(2), 0}, /* TSA_SQ_NO, TSA_L1_NO */
};

/* Registers that are values rather than bits. */
static const struct cpuid_entry value_table[] = {
    /* "AuthenticAMD" in EBX, EDX, ECX */
    {0, 0, false, LEAF_MAX, 0x68747541, 0x444d4163, 0x69746e65},
    {1, 0, false, FAMILY_MODEL_STEPPING, 8 << 8 /* CLFLUSH: 64 bytes */, 0, 0},
    {2, 0, false, 0, 0, 0, 0},
    {5, 0, false, 0, 0, 0, 0},
    {6, 0, false, 0, 0, 0, 0},
    {7, 0, true, 1, 0, 0, 0},
    {7, 1, true, 0, 0, 0, 0},
    {0xb, 0, true, 0, 0, 0, 0}, /* topology: model.c */
    {0xb, 1, true, 0, 0, 1, 0},
    {0xd, 0, true, 0, 0, 0, 0},
    {0xd, 1, true, 0, 0, 0, 0},
    /* "KVMKVMKVM": the paravirtual clock, no other of its features */
    {0x40000000, 0, false, 0x40000001, 0x4b4d564b, 0x564b4d56, 0x0000004d},
    /* CLOCKSOURCE, NOP_IO_DELAY, CLOCKSOURCE2, CLOCKSOURCE_STABLE */
    {0x40000001, 0, false, B(0) | B(1) | B(3) | B(24), 0, 0, 0},
    {0x80000000, 0, false, LEAF_EXT_MAX, 0x68747541, 0x444d4163, 0x69746e65},
    {0x80000001, 0, false, FAMILY_MODEL_STEPPING, 0, 0, 0},
    {0x80000005, 0, false, 0xff48ff40, 0xff48ff40, 0x30080140, 0x20080140}, /* L1: TLBs, 48K data, 32K code */
    {0x80000006, 0, false, 0x5c002200, 0x6c004200, 0x04006140, 0x00209140}, /* L2: 1M; L3: 16M */
    {0x80000007, 0, false, 0, 0, 0, 0},
    {0x80000008, 0, false, PHYS_BITS | 48u << 8, 0, 0, 0},
    {0x8000001d, 0, true, 0x121, 63 | 11u << 22, 63, 0},   /* L1 data: 64 sets, 12 ways */
    {0x8000001d, 1, true, 0x122, 63 | 7u << 22, 63, 0},	   /* L1 code: 64 sets, 8 ways */
    {0x8000001d, 2, true, 0x143, 63 | 15u << 22, 1023, 2}, /* L2: 1024 sets, 16 ways, inclusive */
    {0x8000001d, 3, true, 0x163, 63 | 15u << 22, 16383, 0},
    {0x8000001d, 4, true, 0, 0, 0, 0},
    {0x8000001e, 0, false, 0, 0, 0, 0}, /* topology: model.c */
    {0x80000021, 0, false, 0, 0, 0, 0},
};

static const char brand[48] = "Kelvin Software Processor";

struct table {
	struct cpuid_entry *out;
	unsigned max, n;
};

static struct cpuid_entry *entry_add(struct table *t, const struct cpuid_entry *e)
{
	if (t->n >= t->max)
		return NULL;
	t->out[t->n] = *e;
	return &t->out[t->n++];
}

static uint32_t *entry_reg(struct cpuid_entry *e, unsigned reg)
{
	uint32_t *const r[] = {&e->eax, &e->ebx, &e->ecx, &e->edx};

	return r[reg];
}

static void host_leaf(uint32_t leaf, uint32_t subleaf, uint32_t r[4])
{
	memset(r, 0, 4 * sizeof(*r));
	__get_cpuid_count(leaf, subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]);
}

uint64_t soft_host_xcr0(void)
{
	uint32_t r[4], lo, hi;

	host_leaf(1, 0, r);
	if (!(r[ECX] & B(27)))
		return 3;
	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (uint64_t)hi << 32 | lo;
}

/* AVX and AVX-512 bits go when the host's kernel has not enabled their state. */
static void mask_by_xcr0(struct table *t, uint64_t xcr0)
{
	static const struct {
		uint64_t need;
		uint32_t leaf, subleaf;
		uint8_t reg;
		uint32_t bits;
	} dep[] = {
	    {6, 1, 0, ECX, B(12) | B(28) | B(29)},
	    {6, 7, 0, EBX, B(5)},
	    {6, 7, 0, ECX, B(9) | B(10)},
	    {6, 7, 1, EAX, B(4)},
	    {0xe6, 7, 0, EBX, B(16) | B(17) | B(21) | B(28) | B(30) | B(31)},
	    {0xe6, 7, 0, ECX, B(1) | B(6) | B(11) | B(12) | B(14)},
	    {0xe6, 7, 0, EDX, B(8)},
	    {0xe6, 7, 1, EAX, B(5)},
	};

	for (unsigned n = 0; n < ARRAY_SIZE(dep); n++) {
		for (unsigned k = 0; k < t->n; k++) {
			if ((xcr0 & dep[n].need) != dep[n].need && t->out[k].leaf == dep[n].leaf &&
			    t->out[k].subleaf == dep[n].subleaf)
				*entry_reg(&t->out[k], dep[n].reg) &= ~dep[n].bits;
		}
	}
}

static void add_bits(struct table *t)
{
	uint32_t r[4];

	for (unsigned n = 0; n < ARRAY_SIZE(leaf_table); n++) {
		const struct leaf_bits *b = &leaf_table[n];

		host_leaf(b->leaf, b->subleaf, r);
		for (unsigned k = 0; k < t->n; k++) {
			if (t->out[k].leaf == b->leaf && t->out[k].subleaf == b->subleaf)
				*entry_reg(&t->out[k], b->reg) |= b->own | (r[b->reg] & b->host);
		}
	}
}

/* Leaf 0xD: the host's layout, for the components that guests may have. */
static void add_xsave(struct table *t, uint64_t xcr0)
{
	uint32_t r[4], size = 576;

	for (unsigned n = 2; n < 63; n++) {
		struct cpuid_entry e = {.leaf = 0xd, .subleaf = n, .has_subleaf = true};

		if (!(xcr0 & BIT(n)))
			continue;
		host_leaf(0xd, n, r);
		e.eax = r[EAX];
		e.ebx = r[EBX];
		e.ecx = r[ECX] & 2;
		size = MAX(size, e.eax + e.ebx);
		entry_add(t, &e);
	}
	for (unsigned k = 0; k < t->n; k++) {
		if (t->out[k].leaf == 0xd && t->out[k].subleaf == 0) {
			t->out[k].eax = (uint32_t)xcr0;
			t->out[k].ebx = t->out[k].ecx = size;
		}
	}
}

unsigned soft_supported_cpuid(struct cpuid_entry *out, unsigned max)
{
	struct table t = {.out = out, .max = max};
	uint64_t xcr0 = soft_host_xcr0() & XCR0_USER;

	for (unsigned n = 0; n < ARRAY_SIZE(value_table); n++)
		entry_add(&t, &value_table[n]);
	for (unsigned n = 0; n < 3; n++) {
		struct cpuid_entry e = {.leaf = 0x80000002 + n};

		e.eax = ld32le(brand + 16 * n);
		e.ebx = ld32le(brand + 16 * n + 4);
		e.ecx = ld32le(brand + 16 * n + 8);
		e.edx = ld32le(brand + 16 * n + 12);
		entry_add(&t, &e);
	}
	add_bits(&t);
	mask_by_xcr0(&t, xcr0);
	add_xsave(&t, xcr0);
	return t.n;
}

bool soft_vendor_intel(const struct cpu_model *m)
{
	uint32_t out[4];

	cpu_model_cpuid(m, 0, 0, 1, 0, 0, 0, out);
	return out[EBX] == 0x756e6547; /* "Genu" */
}
