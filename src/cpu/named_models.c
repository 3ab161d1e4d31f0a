/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The CPU names of QEMU's -cpu, as feature sets. Names that begin with '.' are
 * building blocks. The sets follow the vendors' documentation of the parts; the
 * vendor string is the host's, as QEMU does it under KVM.
 */
#include "cpu/model_int.h"

#include <stddef.h>

#define BASE64                                                                                                         \
	"fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 "           \
	"pni syscall nx lm"

const struct cpu_named_model cpu_named_model_table[] = {
    {".base", NULL, 15, 6, 1, "Kelvin base", BASE64, NULL},
    {"kvm64", ".base", 15, 6, 1, "Common KVM processor", "cx16", NULL},
    {"qemu64", ".base", 15, 107, 1, "QEMU Virtual CPU version 2.5+", "cx16 lahf-lm", NULL},

    {"core2duo", ".base", 6, 15, 11, "Intel(R) Core(TM)2 Duo CPU     T7700  @ 2.40GHz", "ss ssse3 cx16 lahf-lm", NULL},
    {"Conroe", ".base", 6, 15, 3, "Intel Celeron_4x0 (Conroe/Merom Class Core 2)", "ssse3 lahf-lm", NULL},
    {"Penryn", "Conroe", 6, 23, 3, "Intel Core 2 Duo P9xxx (Penryn Class Core 2)", "cx16 sse4.1", NULL},
    {"Nehalem", "Penryn", 6, 26, 3, "Intel Core i7 9xx (Nehalem Class Core i7)", "sse4.2 popcnt", NULL},
    {"Westmere", "Nehalem", 6, 44, 1, "Westmere E56xx/L56xx/X56xx (Nehalem-C)", "aes pclmulqdq", NULL},
    {"SandyBridge", "Westmere", 6, 42, 1, "Intel Xeon E312xx (Sandy Bridge)", "avx xsave rdtscp xsaveopt", NULL},
    {"IvyBridge", "SandyBridge", 6, 58, 9, "Intel Xeon E3-12xx v2 (Ivy Bridge)", "fsgsbase smep erms f16c rdrand",
     NULL},
    {".haswell", "IvyBridge", 6, 60, 4, "Intel Core Processor (Haswell, no TSX)",
     "fma pcid movbe bmi1 avx2 bmi2 invpcid abm", NULL},
    {"Haswell-noTSX", ".haswell", 6, 60, 1, "Intel Core Processor (Haswell, no TSX)", NULL, NULL},
    {"Haswell", ".haswell", 6, 60, 4, "Intel Core Processor (Haswell)", "hle rtm", NULL},
    {".broadwell", ".haswell", 6, 61, 2, "Intel Core Processor (Broadwell, no TSX)", "rdseed adx smap 3dnowprefetch",
     NULL},
    {"Broadwell-noTSX", ".broadwell", 6, 61, 2, "Intel Core Processor (Broadwell, no TSX)", NULL, NULL},
    {"Broadwell", ".broadwell", 6, 61, 2, "Intel Core Processor (Broadwell)", "hle rtm", NULL},
    {".skylake", ".broadwell", 6, 94, 3, "Intel Core Processor (Skylake)", "xsavec xgetbv1 xsaves", NULL},
    {"Skylake-Client-noTSX-IBRS", ".skylake", 6, 94, 3, "Intel Core Processor (Skylake, IBRS, no TSX)", "spec-ctrl",
     NULL},
    {"Skylake-Client-IBRS", ".skylake", 6, 94, 3, "Intel Core Processor (Skylake, IBRS)", "spec-ctrl hle rtm", NULL},
    {"Skylake-Client", ".skylake", 6, 94, 3, "Intel Core Processor (Skylake)", "hle rtm", NULL},
    {".skylake-server", ".skylake", 6, 85, 4, "Intel Xeon Processor (Skylake)",
     "pdpe1gb clwb clflushopt avx512f avx512dq avx512bw avx512cd avx512vl", NULL},
    {"Skylake-Server-noTSX-IBRS", ".skylake-server", 6, 85, 4, "Intel Xeon Processor (Skylake, IBRS, no TSX)",
     "spec-ctrl", NULL},
    {"Skylake-Server-IBRS", ".skylake-server", 6, 85, 4, "Intel Xeon Processor (Skylake, IBRS)", "spec-ctrl hle rtm",
     NULL},
    {"Skylake-Server", ".skylake-server", 6, 85, 4, "Intel Xeon Processor (Skylake)", "hle rtm", NULL},
    {"Cascadelake-Server-noTSX", ".skylake-server", 6, 85, 6, "Intel Xeon Processor (Cascadelake)",
     "spec-ctrl ssbd avx512vnni", NULL},
    {"Cascadelake-Server", "Cascadelake-Server-noTSX", 6, 85, 6, "Intel Xeon Processor (Cascadelake)", "hle rtm", NULL},
    {"Icelake-Server-noTSX", "Cascadelake-Server-noTSX", 6, 134, 0, "Intel Xeon Processor (Icelake)",
     "wbnoinvd avx512vbmi umip avx512vbmi2 gfni vaes vpclmulqdq avx512bitalg avx512-vpopcntdq la57", NULL},
    {"Icelake-Server", "Icelake-Server-noTSX", 6, 134, 0, "Intel Xeon Processor (Icelake)", "hle rtm", NULL},
    {"SapphireRapids", "Icelake-Server", 6, 143, 4, "Intel Xeon Processor (SapphireRapids)",
     "sha-ni fsrm rdpid movdiri movdir64b serialize avx-vnni avx512-bf16 avx512ifma avx512-fp16", NULL},

    {"phenom", ".base", 16, 2, 3, "AMD Phenom(tm) 9550 Quad-Core Processor",
     "cx16 popcnt ht mmxext fxsr-opt pdpe1gb rdtscp lahf-lm cr8legacy abm sse4a", NULL},
    {"Opteron_G1", ".base", 15, 6, 1, "AMD Opteron 240 (Gen 1 Class Opteron)", NULL, NULL},
    {"Opteron_G2", "Opteron_G1", 15, 6, 1, "AMD Opteron 22xx (Gen 2 Class Opteron)", "cx16 lahf-lm", NULL},
    {"Opteron_G3", "Opteron_G2", 16, 2, 3, "AMD Opteron 23xx (Gen 3 Class Opteron)",
     "popcnt rdtscp abm sse4a misalignsse", NULL},
    {"Opteron_G4", "Opteron_G3", 21, 1, 2, "AMD Opteron 62xx class CPU",
     "avx xsave aes sse4.2 sse4.1 ssse3 pclmulqdq pdpe1gb 3dnowprefetch fma4 xop", NULL},
    {"Opteron_G5", "Opteron_G4", 21, 2, 0, "AMD Opteron 63xx class CPU", "f16c fma tbm", NULL},
    {"EPYC", "qemu64", 23, 1, 2, "AMD EPYC Processor",
     "rdrand f16c avx xsave aes popcnt movbe sse4.2 sse4.1 fma ssse3 pclmulqdq pdpe1gb mmxext fxsr-opt rdtscp "
     "osvw 3dnowprefetch misalignsse sse4a abm cr8legacy fsgsbase bmi1 avx2 smep bmi2 rdseed adx smap "
     "clflushopt sha-ni xsaveopt xsavec xgetbv1 topoext",
     NULL},
    {"EPYC-IBPB", "EPYC", 23, 1, 2, "AMD EPYC Processor (with IBPB)", "ibpb", NULL},
    {"EPYC-Rome", "EPYC-IBPB", 23, 49, 0, "AMD EPYC-Rome Processor",
     "clwb umip rdpid wbnoinvd clzero xsaveerptr amd-stibp ibrs amd-ssbd xsaves", NULL},
    {"EPYC-Milan", "EPYC-Rome", 25, 1, 1, "AMD EPYC-Milan Processor", "pcid invpcid erms fsrm pku", NULL},
    {"EPYC-Genoa", "EPYC-Milan", 25, 17, 0, "AMD EPYC-Genoa Processor",
     "avx512f avx512dq avx512bw avx512cd avx512vl avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg "
     "avx512-vpopcntdq avx512-bf16 gfni vaes vpclmulqdq la57 auto-ibrs null-sel-clr-base",
     NULL},
    {NULL, NULL, 0, 0, 0, NULL, NULL, NULL},
};
