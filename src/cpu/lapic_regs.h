/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The local APIC's registers by number: memory offset / 16 = MSR - 0x800. Intel
 * SDM volume 3A, tables 11-1 and 11-6. KVM keeps its own in the same layout.
 */
#ifndef KELVIN_CPU_LAPIC_REGS_H
#define KELVIN_CPU_LAPIC_REGS_H

enum {
	REG_ID = 0x02,
	REG_VERSION = 0x03,
	REG_TPR = 0x08,
	REG_APR = 0x09,
	REG_PPR = 0x0a,
	REG_EOI = 0x0b,
	REG_RRD = 0x0c,
	REG_LDR = 0x0d,
	REG_DFR = 0x0e,
	REG_SVR = 0x0f,
	REG_ISR = 0x10,
	REG_TMR = 0x18,
	REG_IRR = 0x20,
	REG_ESR = 0x28,
	REG_ICR_LOW = 0x30,
	REG_ICR_HIGH = 0x31,
	REG_LVT = 0x32,
	REG_TMICT = 0x38,
	REG_TMCCT = 0x39,
	REG_TDCR = 0x3e,
	REG_SELF_IPI = 0x3f,
	REG_COUNT = 0x40,
};

#endif
