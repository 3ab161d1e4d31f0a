/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Zydis's instruction sets against the CPUID bits that announce them: what the
 * guest's CPUID does not have raises #UD as on a CPU without it. Sets that are
 * not listed are the base architecture or have no handler at all. LZCNT and
 * TZCNT are not here: without the feature they decode as BSR and BSF (decode.c).
 */
#include <cpuid.h>
#include "cpu/soft/ops.h"

enum cpuid_out { EAX, EBX, ECX, EDX };

struct isa_bit {
	uint16_t set;
	uint32_t leaf;
	uint8_t subleaf, reg, bit;
};

#define SET(name, leaf, sub, reg, bit)                                                                                 \
	{                                                                                                              \
		ZYDIS_ISA_SET_##name, leaf, sub, reg, bit                                                              \
	}
/* A feature of AVX-512 together with AVX512VL for the short vectors. */
#define SET512(name, leaf, sub, reg, bit)                                                                              \
	SET(name##_128, leaf, sub, reg, bit), SET(name##_256, leaf, sub, reg, bit), SET(name##_512, leaf, sub, reg, bit)

static const struct isa_bit isa_bits[] = {
    SET(PENTIUMMMX, 1, 0, EDX, 23),
    SET(SSE, 1, 0, EDX, 25),
    SET(SSEMXCSR, 1, 0, EDX, 25),
    SET(SSE2, 1, 0, EDX, 26),
    SET(SSE2MMX, 1, 0, EDX, 26),
    SET(SSE3, 1, 0, ECX, 0),
    SET(SSE3X87, 1, 0, ECX, 0),
    SET(PCLMULQDQ, 1, 0, ECX, 1),
    SET(MONITOR, 1, 0, ECX, 3),
    SET(SSSE3, 1, 0, ECX, 9),
    SET(SSSE3MMX, 1, 0, ECX, 9),
    SET(FMA, 1, 0, ECX, 12),
    SET(CMPXCHG16B, 1, 0, ECX, 13),
    SET(SSE4, 1, 0, ECX, 19),
    SET(SSE42, 1, 0, ECX, 20),
    SET(MOVBE, 1, 0, ECX, 22),
    SET(POPCNT, 1, 0, ECX, 23),
    SET(AES, 1, 0, ECX, 25),
    SET(XSAVE, 1, 0, ECX, 26),
    SET(AVX, 1, 0, ECX, 28),
    SET(F16C, 1, 0, ECX, 29),
    SET(RDRAND, 1, 0, ECX, 30),
    SET(RDWRFSGS, 7, 0, EBX, 0),
    SET(BMI1, 7, 0, EBX, 3),
    SET(RTM, 7, 0, EBX, 11),
    SET(AVX2, 7, 0, EBX, 5),
    SET(AVX2GATHER, 7, 0, EBX, 5),
    SET(BMI2, 7, 0, EBX, 8),
    SET(INVPCID, 7, 0, EBX, 10),
    SET(MPX, 7, 0, EBX, 14),
    SET512(AVX512F, 7, 0, EBX, 16),
    SET(AVX512F_128N, 7, 0, EBX, 16),
    SET(AVX512F_SCALAR, 7, 0, EBX, 16),
    SET(AVX512F_KOP, 7, 0, EBX, 16),
    SET512(AVX512DQ, 7, 0, EBX, 17),
    SET(AVX512DQ_128N, 7, 0, EBX, 17),
    SET(AVX512DQ_SCALAR, 7, 0, EBX, 17),
    SET(AVX512DQ_KOP, 7, 0, EBX, 17),
    SET(RDSEED, 7, 0, EBX, 18),
    SET(ADOX_ADCX, 7, 0, EBX, 19),
    SET(SMAP, 7, 0, EBX, 20),
    SET512(AVX512_IFMA, 7, 0, EBX, 21),
    SET(CLFLUSHOPT, 7, 0, EBX, 23),
    SET(CLWB, 7, 0, EBX, 24),
    SET(AVX512PF_512, 7, 0, EBX, 26),
    SET(AVX512ER_512, 7, 0, EBX, 27),
    SET(AVX512ER_SCALAR, 7, 0, EBX, 27),
    SET512(AVX512CD, 7, 0, EBX, 28),
    SET(SHA, 7, 0, EBX, 29),
    SET512(AVX512BW, 7, 0, EBX, 30),
    SET(AVX512BW_128N, 7, 0, EBX, 30),
    SET(AVX512BW_KOP, 7, 0, EBX, 30),
    SET512(AVX512_VBMI, 7, 0, ECX, 1),
    SET(PKU, 7, 0, ECX, 3),
    SET(WAITPKG, 7, 0, ECX, 5),
    SET512(AVX512_VBMI2, 7, 0, ECX, 6),
    SET(GFNI, 7, 0, ECX, 8),
    SET(AVX_GFNI, 7, 0, ECX, 8),
    SET512(AVX512_GFNI, 7, 0, ECX, 8),
    SET(VAES, 7, 0, ECX, 9),
    SET512(AVX512_VAES, 7, 0, ECX, 9),
    SET(VPCLMULQDQ, 7, 0, ECX, 10),
    SET512(AVX512_VPCLMULQDQ, 7, 0, ECX, 10),
    SET512(AVX512_VNNI, 7, 0, ECX, 11),
    SET512(AVX512_BITALG, 7, 0, ECX, 12),
    SET512(AVX512_VPOPCNTDQ, 7, 0, ECX, 14),
    SET(RDPID, 7, 0, ECX, 22),
    SET(MOVDIR, 7, 0, ECX, 27),
    SET(AVX512_4VNNIW_512, 7, 0, EDX, 2),
    SET(AVX512_4FMAPS_512, 7, 0, EDX, 3),
    SET(AVX512_4FMAPS_SCALAR, 7, 0, EDX, 3),
    SET512(AVX512_VP2INTERSECT, 7, 0, EDX, 8),
    SET(SERIALIZE, 7, 0, EDX, 14),
    SET512(AVX512_FP16, 7, 0, EDX, 23),
    SET(AVX512_FP16_128N, 7, 0, EDX, 23),
    SET(AVX512_FP16_SCALAR, 7, 0, EDX, 23),
    SET(AMX_TILE, 7, 0, EDX, 24),
    SET(AVX_VNNI, 7, 1, EAX, 4),
    SET512(AVX512_BF16, 7, 1, EAX, 5),
    SET(XSAVEOPT, 13, 1, EAX, 0),
    SET(XSAVEC, 13, 1, EAX, 1),
    SET(XSAVES, 13, 1, EAX, 3),
    SET(LAHF, 0x80000001, 0, ECX, 0),
    SET(SVM, 0x80000001, 0, ECX, 2),
    SET(SSE4A, 0x80000001, 0, ECX, 6),
    SET(XOP, 0x80000001, 0, ECX, 11),
    SET(FMA4, 0x80000001, 0, ECX, 16),
    SET(TBM, 0x80000001, 0, ECX, 21),
    SET(MONITORX, 0x80000001, 0, ECX, 29),
    SET(RDTSCP, 0x80000001, 0, EDX, 27),
    SET(AMD3DNOW, 0x80000001, 0, EDX, 31),
    SET(CLZERO, 0x80000008, 0, EBX, 0),
    SET(RDPRU, 0x80000008, 0, EBX, 4),
};

static void cpuid_of(const struct soft_cpu *c, uint32_t leaf, uint32_t subleaf, uint32_t out[4])
{
	const struct cpu_model *m = c->v.accel->cfg.model;

	memset(out, 0, 4 * sizeof(*out));
	if (m)
		cpu_model_cpuid(m, c->v.apic_id, 0, 0, 0, leaf, subleaf, out);
	else
		__get_cpuid_count(leaf, subleaf, &out[EAX], &out[EBX], &out[ECX], &out[EDX]);
}

bool isa_vendor_is_amd(const struct soft_cpu *c)
{
	uint32_t r[4];

	cpuid_of(c, 0, 0, r);
	return r[EBX] == signature_AMD_ebx || r[EBX] == 0x6f677948 /* "Hygo" */;
}

bool isa_has_lzcnt(const struct soft_cpu *c)
{
	uint32_t r[4];

	cpuid_of(c, 0x80000001, 0, r);
	return r[ECX] & BIT(5);
}

void isa_init(const struct soft_cpu *c, bool present[ISA_SETS])
{
	uint32_t r[4];
	bool vl;

	/* Knights Corner's instructions are no other CPU's. */
	for (unsigned k = 0; k < ISA_SETS; k++) {
		const char *name = ZydisISASetGetString((ZydisISASet)k);

		present[k] = !name || strncmp(name, "KNC", 3) != 0;
	}
	cpuid_of(c, 7, 0, r);
	vl = r[EBX] & BIT(31);
	for (unsigned k = 0; k < ARRAY_SIZE(isa_bits); k++) {
		const struct isa_bit *b = &isa_bits[k];
		const char *name = ZydisISASetGetString((ZydisISASet)b->set);
		size_t len = strlen(name);

		cpuid_of(c, b->leaf, b->subleaf, r);
		present[b->set] = r[b->reg] >> b->bit & 1;
		/* 128- and 256-bit forms of AVX-512 need AVX512VL too. */
		if (strncmp(name, "AVX512", 6) == 0 && len > 4 &&
		    (strcmp(name + len - 4, "_128") == 0 || strcmp(name + len - 4, "_256") == 0))
			present[b->set] = present[b->set] && vl;
	}
	/* LAHF in legacy modes is older than its CPUID bit; every 64-bit CPU we run on has it. */
	present[ZYDIS_ISA_SET_LAHF] = true;
}

bool isa_as_host(const struct soft_cpu *c)
{
	/* Not for user code to run, or never run natively (native_scan.c). */
	static const uint16_t other[] = {
	    ZYDIS_ISA_SET_SVM,	    ZYDIS_ISA_SET_MONITOR,   ZYDIS_ISA_SET_MONITORX, ZYDIS_ISA_SET_INVPCID,
	    ZYDIS_ISA_SET_RDWRFSGS, ZYDIS_ISA_SET_RDTSCP,    ZYDIS_ISA_SET_RDPID,    ZYDIS_ISA_SET_PKU,
	    ZYDIS_ISA_SET_AMX_TILE, ZYDIS_ISA_SET_SMAP,	     ZYDIS_ISA_SET_XSAVES,   ZYDIS_ISA_SET_RDPRU,
	    ZYDIS_ISA_SET_MPX,	    ZYDIS_ISA_SET_SERIALIZE, ZYDIS_ISA_SET_WAITPKG,  ZYDIS_ISA_SET_CLZERO};
	uint32_t want[4], have[4] = {0};

	for (unsigned k = 0; k < ARRAY_SIZE(isa_bits); k++) {
		const struct isa_bit *b = &isa_bits[k];
		bool skip = false;

		for (unsigned i = 0; i < ARRAY_SIZE(other); i++)
			skip |= b->set == other[i];
		if (skip)
			continue;
		cpuid_of(c, b->leaf, b->subleaf, want);
		memset(have, 0, sizeof(have));
		__get_cpuid_count(b->leaf, b->subleaf, &have[EAX], &have[EBX], &have[ECX], &have[EDX]);
		if ((want[b->reg] ^ have[b->reg]) >> b->bit & 1)
			return false;
	}
	memset(have, 0, sizeof(have));
	__get_cpuid_count(0x80000001, 0, &have[EAX], &have[EBX], &have[ECX], &have[EDX]);
	return isa_has_lzcnt(c) == (have[ECX] >> 5 & 1);
}
