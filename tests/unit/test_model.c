/* SPDX-License-Identifier: GPL-2.0-or-later */
/* -cpu: names, flags and properties; what the engine lacks is dropped; topology leaves follow -smp. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/util.h"
#include "cpu/model.h"
#include "cpu/state.h"

#define AMD_EBX 0x68747541u
#define AMD_EDX 0x69746e65u
#define AMD_ECX 0x444d4163u

/* A rich AMD engine: all bits of every word, AVX and AVX-512 state, AMX too large for our buffer. */
static const struct cpuid_entry amd[] = {
    {0, 0, false, 0x20, AMD_EBX, AMD_ECX, AMD_EDX},
    {1, 0, false, 0x00a20f12, 0, ~0u, ~0u},
    {6, 0, false, ~0u, 0, 0, 0},
    {7, 0, true, 1, ~0u, ~0u, ~0u},
    {7, 1, true, ~0u, 0, 0, 0},
    {0xd, 0, true, 0x602e7, 0x2b00, 0x2b00, 0},
    {0xd, 1, true, ~0u, 0, 0, 0},
    {0xd, 2, true, 256, 576, 0, 0},
    {0xd, 5, true, 64, 832, 0, 0},
    {0xd, 6, true, 512, 896, 0, 0},
    {0xd, 7, true, 1024, 1408, 0, 0},
    {0xd, 9, true, 8, 2432, 0, 0},
    {0xd, 17, true, 64, 2752, 2, 0},
    {0xd, 18, true, 8192, 2816, 6, 0},
    {0x80000000, 0, false, 0x80000021, AMD_EBX, AMD_ECX, AMD_EDX},
    {0x80000001, 0, false, 0, 0, ~0u, ~0u},
    {0x80000002, 0, false, 0x41414141, 0x41414141, 0x41414141, 0x41414141},
    {0x80000003, 0, false, 0x42424242, 0, 0, 0},
    {0x80000007, 0, false, 0, 0, 0, ~0u},
    {0x80000008, 0, false, 48 | 48 << 8, ~0u, 0, 0},
    {0x8000000a, 0, false, 1, 16, 0, ~0u},
    {0x80000021, 0, false, ~0u, 0, 0, 0},
    {0x40000001, 0, false, ~0u, 0, 0, 0},
};

static int build(struct cpu_model *m, const char *text, unsigned sockets, unsigned cores, unsigned threads,
		 struct err *err)
{
	*m = (struct cpu_model){.sockets = sockets, .cores = cores, .threads = threads};
	return cpu_model_build(m, text, "max", amd, ARRAY_SIZE(amd), err);
}

static void test_parse(void **state)
{
	static const struct {
		const char *text;
		int rc;
		const char *has, *hasnt, *message;
	} t[] = {
	    {NULL, 0, "avx512f", "svm", NULL}, /* nested virtualization only when asked for */
	    {"max", 0, "kvmclock", "amx-tile", NULL},
	    {"host,+svm", 0, "npt", "sgx", NULL},
	    {"host,-avx", 0, "xsave", "avx512f", NULL}, /* what needs AVX goes with it */
	    {"host,avx2=off,vme=on", 0, "avx", "avx2", NULL},
	    {"qemu64", 0, "cx16", "avx", NULL},
	    {"qemu64,+avx,+avx2,+xsave", 0, "avx2", "fma", NULL},
	    {"qemu64,+avx", 0, "sse2", "avx", NULL}, /* AVX without XSAVE cannot execute */
	    {"kvm64", 0, "cx16", "lahf-lm", NULL},
	    {"EPYC", 0, "sha-ni", "pku", NULL},
	    {"EPYC-v2", 0, "sha-ni", "pku", NULL},
	    {"EPYC-Milan", 0, "pku", "avx512f", NULL},
	    {"Skylake-Client", 0, "rtm", "avx512f", NULL},
	    {"Skylake-Server-noTSX-IBRS", 0, "avx512f", "rtm", NULL},
	    {"Nehalem", 0, "sse4.2", "aes", NULL},
	    {"max,hypervisor=off", 0, "avx", "hypervisor", NULL},
	    {"max,pmu=off,migratable=no,check", 0, "avx", NULL, NULL},
	    {"EPYK", -EINVAL, NULL, NULL, "did you mean 'EPYC'"},
	    {".base", -EINVAL, NULL, NULL, "no such CPU model"},
	    {"", -EINVAL, NULL, NULL, NULL},
	    {"max,+avx1024", -EINVAL, NULL, NULL, "avx1024"},
	    {"max,avx3=on", -EINVAL, NULL, NULL, "avx3"},
	    {"max,avx=perhaps", -EINVAL, NULL, NULL, "expected on or off"},
	    {"max,family=x", -EINVAL, NULL, NULL, "family"},
	    {"max,family=99999999999", -EINVAL, NULL, NULL, "family"},
	    {"max,vendor=me", -EINVAL, NULL, NULL, "12 characters"},
	    {"max,hv-relaxed", -EINVAL, NULL, NULL, "Hyper-V"},
	    {"max,pmu=on", -EINVAL, NULL, NULL, "PMU"},
	    {"max,enforce,+sgx", -ENOTSUP, NULL, NULL, "sgx"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct cpu_model m;
		struct err err = {0};
		int rc = build(&m, t[i].text && *t[i].text ? t[i].text : t[i].text, 1, 1, 1, &err);

		if (t[i].text && !*t[i].text) { /* empty: the default model */
			assert_int_equal(rc, 0);
			continue;
		}
		if (rc != t[i].rc)
			print_error("-cpu %s: %d %s\n", t[i].text ? t[i].text : "(none)", rc, err.msg);
		assert_int_equal(rc, t[i].rc);
		if (t[i].message && !strstr(err.msg, t[i].message))
			print_error("-cpu %s: %s\n", t[i].text, err.msg);
		if (t[i].message)
			assert_non_null(strstr(err.msg, t[i].message));
		if (t[i].has)
			assert_true(cpu_model_has(&m, t[i].has));
		if (t[i].hasnt)
			assert_false(cpu_model_has(&m, t[i].hasnt));
	}
}

static void test_every_name(void **state)
{
	static const char *const names[] = {"kvm64",	 "qemu64",	   "core2duo",		"Conroe",
					    "Penryn",	 "Nehalem",	   "Westmere",		"IvyBridge",
					    "Haswell",	 "Haswell-noTSX",  "Broadwell",		"Opteron_G5",
					    "phenom",	 "SapphireRapids", "Icelake-Server",	"EPYC-Genoa",
					    "EPYC-Rome", "EPYC-IBPB",	   "Cascadelake-Server"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct cpu_model m;
		struct err err = {0};
		uint32_t r[4];

		assert_int_equal(build(&m, names[i], 1, 1, 1, &err), 0);
		assert_true(cpu_model_has(&m, "lm") && cpu_model_has(&m, "sse2"));
		cpu_model_cpuid(&m, 0, 0, 1, 0, 0x80000002, 0, r);
		assert_int_not_equal(r[0], 0);
	}
}

/* An engine with nothing but long mode: named models lose features, none is invented. */
static void test_poor_engine(void **state)
{
	static const struct cpuid_entry poor[] = {
	    {0, 0, false, 1, AMD_EBX, AMD_ECX, AMD_EDX},
	    {1, 0, false, 0x600, 0, 0, 0x078bfbff},
	    {0x80000001, 0, false, 0, 0, 0, 0x20100800},
	    {0x80000008, 0, false, 40, 0, 0, 0},
	};
	struct cpu_model m = {.sockets = 1, .cores = 1, .threads = 1};
	struct err err = {0};
	uint32_t r[4];

	assert_int_equal(cpu_model_build(&m, "EPYC", "max", poor, ARRAY_SIZE(poor), &err), 0);
	assert_false(cpu_model_has(&m, "avx"));
	assert_false(cpu_model_has(&m, "xsave"));
	assert_int_equal(m.xcr0_mask, 0);
	cpu_model_cpuid(&m, 0, CR4_OSXSAVE, 1, 0, 0xd, 0, r);
	assert_int_equal(r[0] | r[1], 0);
	cpu_model_cpuid(&m, 0, 0, 1, 0, 0x40000000, 0, r);
	assert_int_equal(r[1], 0); /* no hypervisor bit, no hypervisor leaves */
}

static void test_xsave(void **state)
{
	struct cpu_model m;
	struct err err = {0};
	uint32_t r[4];

	assert_int_equal(build(&m, "max", 1, 1, 1, &err), 0);
	assert_int_equal(m.xcr0_mask, 0x2e7); /* no AMX: it does not fit struct cpu_state */
	cpu_model_cpuid(&m, 0, 0, 7, 0, 0xd, 0, r);
	assert_int_equal(r[0], 0x2e7);
	assert_int_equal(r[1], 832); /* enabled: x87, SSE, AVX */
	assert_int_equal(r[2], 2440);
	cpu_model_cpuid(&m, 0, 0, 0x2e7, 0, 0xd, 0, r);
	assert_int_equal(r[1], 2440);
	cpu_model_cpuid(&m, 0, 0, 0xe7, 0, 0xd, 1, r); /* compacted: 576 + 256 + 64 + 512 + 1024 */
	assert_int_equal(r[1], 2432);
	cpu_model_cpuid(&m, 0, 0, 0xe7, 0, 0xd, 18, r);
	assert_int_equal(r[0] | r[1], 0);
	cpu_model_cpuid(&m, 0, CR4_OSXSAVE, 7, 0, 1, 0, r);
	assert_true(r[2] & BIT(27));
	cpu_model_cpuid(&m, 0, 0, 7, 0, 1, 0, r);
	assert_false(r[2] & BIT(27));
}

static void test_topology(void **state)
{
	struct cpu_model m;
	struct err err = {0};
	uint32_t r[4];

	assert_int_equal(build(&m, "max", 2, 3, 2, &err), 0);
	cpu_model_cpuid(&m, 13, 0, 1, 0, 1, 0, r); /* socket 1, core 2, thread 1: 1 << 3 | 2 << 1 | 1 */
	assert_int_equal(r[1] >> 24, 13);
	assert_int_equal(r[1] >> 16 & 255, 8); /* addressable, a power of two */
	assert_true(r[3] & BIT(28));
	cpu_model_cpuid(&m, 13, 0, 1, 0, 0xb, 0, r);
	assert_int_equal(r[0], 1);
	assert_int_equal(r[1], 2);
	assert_int_equal(r[2], 0x100);
	assert_int_equal(r[3], 13);
	cpu_model_cpuid(&m, 13, 0, 1, 0, 0xb, 1, r);
	assert_int_equal(r[0], 3);
	assert_int_equal(r[1], 6);
	assert_int_equal(r[2], 0x201);
	cpu_model_cpuid(&m, 13, 0, 1, 0, 0xb, 2, r);
	assert_int_equal(r[1], 0);
	cpu_model_cpuid(&m, 13, 0, 1, 0, 0x8000001e, 0, r);
	assert_int_equal(r[0], 13);
	assert_int_equal(r[1] & 255, 2);
	assert_int_equal(r[1] >> 8 & 255, 1);
	assert_int_equal(r[2], 1);
	cpu_model_cpuid(&m, 13, 0, 1, 0, 0x80000008, 0, r);
	assert_int_equal(r[2] & 255, 5);
	assert_int_equal(r[2] >> 12 & 15, 3);
	cpu_model_cpuid(&m, 0, 0, 1, 0, 0x80000008, 0, r);
	assert_int_equal(r[0] & 0xffff, 48 | 57 << 8); /* LA57: 57 bits of linear address */
	assert_int_equal(build(&m, "max,-la57", 2, 3, 2, &err), 0);
	cpu_model_cpuid(&m, 0, 0, 1, 0, 0x80000008, 0, r);
	assert_int_equal(r[0] >> 8 & 255, 48);
	/* one vCPU: no hyper-threading bit, whatever the host has */
	assert_int_equal(build(&m, "max", 1, 1, 1, &err), 0);
	assert_false(cpu_model_has(&m, "ht"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_parse), cmocka_unit_test(test_every_name), cmocka_unit_test(test_poor_engine),
	    cmocka_unit_test(test_xsave), cmocka_unit_test(test_topology),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
