/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CPUID and the decoder agree: one instruction per feature runs when -cpu has the
 * feature and raises #UD when it is taken away (AMD64 APM volume 3 appendix D).
 * Features the host lacks are passed over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include "bare.h"

static const struct {
	const char *feature;
	uint8_t len;
	uint8_t code[12];
} insns[] = {
    {"popcnt", 5, {0xf3, 0x48, 0x0f, 0xb8, 0xc3}},
    {"sse3", 4, {0xf2, 0x0f, 0xd0, 0xc1}},	   /* addsubps */
    {"ssse3", 5, {0x66, 0x0f, 0x38, 0x00, 0xc1}},  /* pshufb */
    {"sse4.1", 5, {0x66, 0x0f, 0x38, 0x10, 0xc1}}, /* pblendvb */
    {"sse4.2", 5, {0xf2, 0x0f, 0x38, 0xf0, 0xc3}}, /* crc32 */
    {"pclmulqdq", 6, {0x66, 0x0f, 0x3a, 0x44, 0xc1, 0x00}},
    {"aes", 5, {0x66, 0x0f, 0x38, 0xdc, 0xc1}},	  /* aesenc */
    {"movbe", 5, {0x0f, 0x38, 0xf0, 0x04, 0x24}}, /* movbe (rsp), eax */
    {"cx16", 5, {0x48, 0x0f, 0xc7, 0x0c, 0x24}},  /* cmpxchg16b (rsp) */
    {"fma", 5, {0xc4, 0xe2, 0x71, 0x98, 0xc2}},
    {"f16c", 5, {0xc4, 0xe2, 0x79, 0x13, 0xc1}}, /* vcvtph2ps */
    {"avx", 4, {0xc5, 0xf0, 0x58, 0xc2}},	 /* vaddps xmm */
    {"avx2", 4, {0xc5, 0xf5, 0xfe, 0xc2}},	 /* vpaddd ymm */
    {"bmi1", 5, {0xc4, 0xe2, 0x70, 0xf2, 0xc2}}, /* andn */
    {"bmi2", 5, {0xc4, 0xe2, 0x70, 0xf5, 0xc2}}, /* bzhi */
    {"adx", 5, {0x66, 0x0f, 0x38, 0xf6, 0xc3}},	 /* adcx */
    {"rdrand", 3, {0x0f, 0xc7, 0xf0}},
    {"rdseed", 3, {0x0f, 0xc7, 0xf8}},
    {"sha-ni", 4, {0x0f, 0x38, 0xc8, 0xc1}},	 /* sha1nexte */
    {"gfni", 5, {0x66, 0x0f, 0x38, 0xcf, 0xc1}}, /* gf2p8mulb */
    {"rdtscp", 3, {0x0f, 0x01, 0xf9}},
    {"rdpid", 4, {0xf3, 0x0f, 0xc7, 0xf8}},
    {"invpcid", 6, {0x66, 0x0f, 0x38, 0x82, 0x04, 0x24}},
    {"clflushopt", 5, {0x66, 0x0f, 0xae, 0x3c, 0x24}},
    {"clwb", 5, {0x66, 0x0f, 0xae, 0x34, 0x24}},
    {"xsaveopt", 4, {0x0f, 0xae, 0x34, 0x24}},
    {"xsavec", 4, {0x0f, 0xc7, 0x24, 0x24}},
    {"avx512f", 6, {0x62, 0xf1, 0x74, 0x48, 0x58, 0xc2}}, /* vaddps zmm */
    {"sse4a", 4, {0xf2, 0x0f, 0x79, 0xc1}},		  /* insertq */
};

/* The vector it stops in: the breakpoint behind it, or an exception. */
static int execute(const char *cpu, unsigned k, bool *have)
{
	static struct bare b;
	struct soft_cpu *c;
	int vector;
	uint8_t int3 = 0xcc;

	bare_init_cpu(&b, 1, "soft,jit=off", cpu);
	*have = cpu_model_has(&b.model, insns[k].feature);
	bare_long_mode(&b, 0);
	c = bare_cpu(&b, 0);
	bare_code(&b, BARE_CODE, insns[k].code, insns[k].len);
	bare_code(&b, BARE_CODE + insns[k].len, &int3, 1);
	c->s.xcr0 = *have && strncmp(insns[k].feature, "avx512", 6) == 0 ? 0xe7 : 7;
	memset(c->s.gpr, 0, sizeof(c->s.gpr));
	c->s.gpr[R_RSP] = BARE_STACK - 4096;
	bare_run(&b, 0);
	vector = bare_stopped_in(&b, 0);
	bare_fini(&b);
	return vector;
}

static void test_features(void **state)
{
	for (unsigned k = 0; k < ARRAY_SIZE(insns); k++) {
		char cpu[64];
		bool have;
		int vector = execute("max", k, &have);

		if (have && vector != EXC_BP)
			fail_msg("%s is advertised and raises exception %d", insns[k].feature, vector);
		if (!have && vector != EXC_UD)
			fail_msg("%s is not advertised and does not raise #UD (%d)", insns[k].feature, vector);
		if (!have)
			continue;
		snprintf(cpu, sizeof(cpu), "max,-%s", insns[k].feature);
		vector = execute(cpu, k, &have);
		assert_false(have);
		if (vector != EXC_UD)
			fail_msg("without %s it does not raise #UD (%d)", insns[k].feature, vector);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_features)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
