/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of CPUID feature bits, with QEMU's spelling: what -cpu NAME,+flag,-flag
 * accepts and what introspection lists. Intel SDM volume 2A, CPUID; AMD64 APM
 * volume 3, appendix E; the 0x40000001 leaf is KVM's.
 */
#include "cpu/model.h"

#include <stddef.h>

enum { EAX, EBX, ECX, EDX };

#define F(name, leaf, sub, reg, bit)                                                                                   \
	{                                                                                                              \
		name, leaf, sub, reg, bit                                                                              \
	}
#define L1D(n, b)  F(n, 1, 0, EDX, b)
#define L1C(n, b)  F(n, 1, 0, ECX, b)
#define L7B(n, b)  F(n, 7, 0, EBX, b)
#define L7C(n, b)  F(n, 7, 0, ECX, b)
#define L7D(n, b)  F(n, 7, 0, EDX, b)
#define L71A(n, b) F(n, 7, 1, EAX, b)
#define LDA(n, b)  F(n, 0xd, 1, EAX, b)
#define E1D(n, b)  F(n, 0x80000001, 0, EDX, b)
#define E1C(n, b)  F(n, 0x80000001, 0, ECX, b)
#define E8B(n, b)  F(n, 0x80000008, 0, EBX, b)
#define SVM(n, b)  F(n, 0x8000000a, 0, EDX, b)
#define E21(n, b)  F(n, 0x80000021, 0, EAX, b)
#define KVMF(n, b) F(n, 0x40000001, 0, EAX, b)

/* clang-format off */
const struct cpu_feature cpu_feature_table[] = {
	L1D("fpu", 0), L1D("vme", 1), L1D("de", 2), L1D("pse", 3), L1D("tsc", 4), L1D("msr", 5), L1D("pae", 6),
	L1D("mce", 7), L1D("cx8", 8), L1D("apic", 9), L1D("sep", 11), L1D("mtrr", 12), L1D("pge", 13),
	L1D("mca", 14), L1D("cmov", 15), L1D("pat", 16), L1D("pse36", 17), L1D("pn", 18), L1D("clflush", 19),
	L1D("ds", 21), L1D("acpi", 22), L1D("mmx", 23), L1D("fxsr", 24), L1D("sse", 25), L1D("sse2", 26),
	L1D("ss", 27), L1D("ht", 28), L1D("tm", 29), L1D("ia64", 30), L1D("pbe", 31),

	L1C("pni", 0), L1C("sse3", 0), L1C("pclmulqdq", 1), L1C("pclmuldq", 1), L1C("dtes64", 2), L1C("monitor", 3),
	L1C("ds-cpl", 4), L1C("vmx", 5), L1C("smx", 6), L1C("est", 7), L1C("tm2", 8), L1C("ssse3", 9),
	L1C("cid", 10), L1C("fma", 12), L1C("cx16", 13), L1C("xtpr", 14), L1C("pdcm", 15), L1C("pcid", 17),
	L1C("dca", 18), L1C("sse4.1", 19), L1C("sse4-1", 19), L1C("sse4_1", 19), L1C("sse4.2", 20),
	L1C("sse4-2", 20), L1C("sse4_2", 20), L1C("x2apic", 21), L1C("movbe", 22), L1C("popcnt", 23),
	L1C("tsc-deadline", 24), L1C("aes", 25), L1C("xsave", 26), L1C("avx", 28), L1C("f16c", 29),
	L1C("rdrand", 30), L1C("hypervisor", 31),

	L7B("fsgsbase", 0), L7B("tsc-adjust", 1), L7B("sgx", 2), L7B("bmi1", 3), L7B("hle", 4), L7B("avx2", 5),
	L7B("smep", 7), L7B("bmi2", 8), L7B("erms", 9), L7B("invpcid", 10), L7B("rtm", 11), L7B("mpx", 14),
	L7B("avx512f", 16), L7B("avx512dq", 17), L7B("rdseed", 18), L7B("adx", 19), L7B("smap", 20),
	L7B("avx512ifma", 21), L7B("pcommit", 22), L7B("clflushopt", 23), L7B("clwb", 24), L7B("intel-pt", 25),
	L7B("avx512pf", 26), L7B("avx512er", 27), L7B("avx512cd", 28), L7B("sha-ni", 29), L7B("avx512bw", 30),
	L7B("avx512vl", 31),

	L7C("avx512vbmi", 1), L7C("umip", 2), L7C("pku", 3), L7C("ospke", 4), L7C("waitpkg", 5),
	L7C("avx512vbmi2", 6), L7C("gfni", 8), L7C("vaes", 9), L7C("vpclmulqdq", 10), L7C("avx512vnni", 11),
	L7C("avx512bitalg", 12), L7C("avx512-vpopcntdq", 14), L7C("la57", 16), L7C("rdpid", 22),
	L7C("bus-lock-detect", 24), L7C("cldemote", 25), L7C("movdiri", 27), L7C("movdir64b", 28),
	L7C("sgxlc", 30), L7C("pks", 31),

	L7D("avx512-4vnniw", 2), L7D("avx512-4fmaps", 3), L7D("fsrm", 4), L7D("avx512-vp2intersect", 8),
	L7D("md-clear", 10), L7D("serialize", 14), L7D("tsx-ldtrk", 16), L7D("arch-lbr", 19),
	L7D("amx-bf16", 22), L7D("avx512-fp16", 23), L7D("amx-tile", 24), L7D("amx-int8", 25),
	L7D("spec-ctrl", 26), L7D("stibp", 27), L7D("flush-l1d", 28), L7D("arch-capabilities", 29),
	L7D("core-capability", 30), L7D("ssbd", 31),

	L71A("avx-vnni", 4), L71A("avx512-bf16", 5), L71A("fzrm", 10), L71A("fsrs", 11), L71A("fsrc", 12),
	L71A("amx-fp16", 21), L71A("avx-ifma", 23),

	F("arat", 6, 0, EAX, 2),
	LDA("xsaveopt", 0), LDA("xsavec", 1), LDA("xgetbv1", 2), LDA("xsaves", 3), LDA("xfd", 4),

	E1D("syscall", 11), E1D("nx", 20), E1D("mmxext", 22), E1D("fxsr-opt", 25), E1D("fxsr_opt", 25),
	E1D("pdpe1gb", 26), E1D("rdtscp", 27), E1D("lm", 29), E1D("3dnowext", 30), E1D("3dnow", 31),

	E1C("lahf-lm", 0), E1C("lahf_lm", 0), E1C("cmp-legacy", 1), E1C("cmp_legacy", 1), E1C("svm", 2),
	E1C("extapic", 3), E1C("cr8legacy", 4), E1C("abm", 5), E1C("lzcnt", 5), E1C("sse4a", 6),
	E1C("misalignsse", 7), E1C("3dnowprefetch", 8), E1C("osvw", 9), E1C("ibs", 10), E1C("xop", 11),
	E1C("skinit", 12), E1C("wdt", 13), E1C("lwp", 15), E1C("fma4", 16), E1C("tce", 17),
	E1C("nodeid-msr", 19), E1C("nodeid_msr", 19), E1C("tbm", 21), E1C("topoext", 22),
	E1C("perfctr-core", 23), E1C("perfctr_core", 23), E1C("perfctr-nb", 24), E1C("perfctr_nb", 24),

	F("invtsc", 0x80000007, 0, EDX, 8),

	E8B("clzero", 0), E8B("xsaveerptr", 2), E8B("wbnoinvd", 9), E8B("ibpb", 12), E8B("ibrs", 14),
	E8B("amd-stibp", 15), E8B("stibp-always-on", 17), E8B("amd-ssbd", 24), E8B("virt-ssbd", 25),
	E8B("amd-no-ssb", 26), E8B("amd-psfd", 28),

	SVM("npt", 0), SVM("lbrv", 1), SVM("svm-lock", 2), SVM("svm_lock", 2), SVM("nrip-save", 3),
	SVM("nrip_save", 3), SVM("tsc-scale", 4), SVM("tsc_scale", 4), SVM("vmcb-clean", 5),
	SVM("vmcb_clean", 5), SVM("flushbyasid", 6), SVM("decodeassists", 7), SVM("pause-filter", 10),
	SVM("pause_filter", 10), SVM("pfthreshold", 12), SVM("avic", 13), SVM("v-vmsave-vmload", 15),
	SVM("vgif", 16), SVM("svme-addr-chk", 28),

	E21("no-nested-data-bp", 0), E21("lfence-always-serializing", 2), E21("null-sel-clr-base", 6),
	E21("auto-ibrs", 8),

	KVMF("kvmclock", 3), KVMF("kvm-nopiodelay", 1), KVMF("kvm-asyncpf", 4), KVMF("kvm-steal-time", 5),
	KVMF("kvm_steal_time", 5), KVMF("kvm-pv-eoi", 6), KVMF("kvm_pv_eoi", 6), KVMF("kvm-pv-unhalt", 7),
	KVMF("kvm_pv_unhalt", 7), KVMF("kvm-pv-tlb-flush", 9), KVMF("kvm-pv-ipi", 11),
	KVMF("kvm-poll-control", 12), KVMF("kvm-pv-sched-yield", 13), KVMF("kvm-asyncpf-int", 14),
	KVMF("kvm-msi-ext-dest-id", 15), KVMF("kvmclock-stable-bit", 24),
	{NULL, 0, 0, 0, 0},
};
/* clang-format on */
