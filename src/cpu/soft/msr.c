/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Model-specific registers: RDMSR and WRMSR.
 *
 * AMD64 APM volume 2 appendix A, Intel SDM volume 4, Linux
 * Documentation/virt/kvm/x86/msr.rst. A table says what each one is: storage in
 * cpu_state with reserved bits, a constant (writes dropped), or a pair of
 * functions. Anything else is #GP, as on a processor that lacks it.
 */
#include "cpu/soft/sys.h"

#include <errno.h>
#include <inttypes.h>
#include "base/log.h"

#define MSR_TSC_ADJUST	 0x3b
#define MSR_APIC_BASE	 0x1b
#define MSR_TSC_DEADLINE 0x6e0
#define MSR_X2APIC_FIRST 0x800
#define MSR_X2APIC_LAST	 0x8ff
#define MSR_EFER	 0xc0000080
#define EFER_AUTOIBRS	 BIT(21)
#define MTRR_VCNT	 8
#define MCG_BANKS	 6

enum msr_kind {
	MSR_STORE,     /* uint64_t at offset; bits outside mask are reserved (#GP) */
	MSR_CANONICAL, /* as MSR_STORE; the value must be a canonical address */
	MSR_CONST,     /* reads value; writes are dropped */
	MSR_READONLY,  /* reads value; writes #GP */
};

struct msr_entry {
	uint32_t first, last;
	enum msr_kind kind;
	size_t offset; /* in struct cpu_state, of the first; consecutive uint64_t */
	uint64_t mask_or_value;
	const char *feature; /* exists only with this CPUID feature; NULL = always */
};

#define ST(field) offsetof(struct cpu_state, field)
#define ALL	  (~0ull)

static const struct msr_entry msr_table[] = {
    {0xc0000081, 0xc0000081, MSR_STORE, ST(star), ALL, NULL},
    {0xc0000082, 0xc0000082, MSR_CANONICAL, ST(lstar), ALL, NULL},
    {0xc0000083, 0xc0000083, MSR_CANONICAL, ST(cstar), ALL, NULL},
    {0xc0000084, 0xc0000084, MSR_STORE, ST(sfmask), 0xffffffff, NULL},
    {0xc0000100, 0xc0000100, MSR_CANONICAL, ST(seg[S_FS].base), ALL, NULL},
    {0xc0000101, 0xc0000101, MSR_CANONICAL, ST(seg[S_GS].base), ALL, NULL},
    {0xc0000102, 0xc0000102, MSR_CANONICAL, ST(kernel_gs_base), ALL, NULL},
    {0xc0000103, 0xc0000103, MSR_STORE, ST(tsc_aux), 0xffffffff, "rdtscp"},
    {0x174, 0x174, MSR_STORE, ST(sysenter_cs), 0xffffffff, NULL},
    {0x175, 0x175, MSR_CANONICAL, ST(sysenter_esp), ALL, NULL},
    {0x176, 0x176, MSR_CANONICAL, ST(sysenter_eip), ALL, NULL},
    {0x1a0, 0x1a0, MSR_STORE, ST(misc_enable), ALL, NULL},
    {0x48, 0x48, MSR_STORE, ST(spec_ctrl), 7, "spec-ctrl"},
    {0x49, 0x49, MSR_CONST, 0, 0, "spec-ctrl"}, /* PRED_CMD */
    {0x17a, 0x17a, MSR_STORE, ST(mcg_status), 7, NULL},
    {0x17b, 0x17b, MSR_STORE, ST(mcg_ctl), ALL, NULL},
    {0x179, 0x179, MSR_READONLY, 0, BIT(8) | MCG_BANKS, NULL}, /* MCG_CAP: MCG_CTL exists */
    {0x400, 0x400 + 4 * MCG_BANKS - 1, MSR_CONST, 0, 0, NULL}, /* banks: no errors, ever */
    {0xc0002000, 0xc0002000 + 16 * MCG_BANKS - 1, MSR_CONST, 0, 0, NULL},
    {0xfe, 0xfe, MSR_READONLY, 0, 0x500 | MTRR_VCNT, NULL}, /* MTRRCAP: fixed, WC */
    {0x200, 0x200 + 2 * MTRR_VCNT - 1, MSR_STORE, ST(mtrr_phys), ALL, NULL},
    {0x250, 0x250, MSR_STORE, ST(mtrr_fixed[0]), ALL, NULL},
    {0x258, 0x259, MSR_STORE, ST(mtrr_fixed[1]), ALL, NULL},
    {0x268, 0x26f, MSR_STORE, ST(mtrr_fixed[3]), ALL, NULL},
    {0x2ff, 0x2ff, MSR_STORE, ST(mtrr_def), 0xcff, NULL},
    {0x8b, 0x8b, MSR_CONST, 0, 0x1000065, NULL}, /* microcode revision; writes look for the current one */
    {0x79, 0x79, MSR_CONST, 0, 0, NULL},	 /* Intel microcode update */
    {0xc0010020, 0xc0010020, MSR_CONST, 0, 0, NULL},
    {0x17, 0x17, MSR_READONLY, 0, 0, NULL},	     /* PLATFORM_ID */
    {0x1d9, 0x1d9, MSR_CONST, 0, 0, NULL},	     /* DEBUGCTL */
    {0x1db, 0x1de, MSR_READONLY, 0, 0, NULL},	     /* last branch and exception */
    {0x2a, 0x2a, MSR_CONST, 0, 0, NULL},	     /* EBL_CR_POWERON */
    {0xce, 0xce, MSR_READONLY, 0, 0, NULL},	     /* PLATFORM_INFO */
    {0xcd, 0xcd, MSR_READONLY, 0, 3, NULL},	     /* FSB_FREQ */
    {0x140, 0x140, MSR_CONST, 0, 0, NULL},	     /* MISC_FEATURES_ENABLES */
    {0x34, 0x34, MSR_READONLY, 0, 0, NULL},	     /* SMI_COUNT */
    {0xda0, 0xda0, MSR_STORE, ST(xss), 0, "xsaves"}, /* no supervisor components */
    /* AMD's: configuration that a guest looks at and may write back */
    {0xc0010010, 0xc0010010, MSR_CONST, 0, 0, NULL},	     /* SYSCFG */
    {0xc0010015, 0xc0010015, MSR_CONST, 0, BIT(24), NULL},   /* HWCR: TscFreqSel */
    {0xc0010016, 0xc001001a, MSR_CONST, 0, 0, NULL},	     /* IORR, TOP_MEM */
    {0xc001001d, 0xc001001d, MSR_CONST, 0, 0, NULL},	     /* TOP_MEM2 */
    {0xc001001f, 0xc001001f, MSR_CONST, 0, 0, NULL},	     /* NB_CFG */
    {0xc0010055, 0xc0010055, MSR_CONST, 0, 0, NULL},	     /* interrupt pending message */
    {0xc0010058, 0xc0010058, MSR_CONST, 0, 0, NULL},	     /* MMIO configuration base: none */
    {0xc0010061, 0xc001006b, MSR_CONST, 0, 0, NULL},	     /* P-states: one */
    {0xc0010111, 0xc0010113, MSR_CONST, 0, 0, NULL},	     /* SMM base, TSEG */
    {0xc0010114, 0xc0010114, MSR_READONLY, 0, BIT(4), NULL}, /* VM_CR: SVM disabled */
    {0xc0010117, 0xc0010117, MSR_CONST, 0, 0, NULL},	     /* VM_HSAVE_PA */
    {0xc0010140, 0xc0010141, MSR_CONST, 0, 0, NULL},	     /* OSVW */
    {0xc0011004, 0xc0011005, MSR_CONST, 0, 0, NULL},	     /* CPUID feature overrides */
    {0xc0011020, 0xc0011023, MSR_CONST, 0, 0, NULL},	     /* LS, IC, DC, BU configuration */
    {0xc0011029, 0xc0011029, MSR_CONST, 0, BIT(1), NULL},    /* DE_CFG: LFENCE is serializing */
    {0xc001102a, 0xc001102e, MSR_CONST, 0, 0, NULL},
    {0xc0000104, 0xc0000104, MSR_CONST, 0, BIT(32), NULL}, /* TSC ratio 1.0 */
};

static const struct msr_entry *msr_find(const struct soft_cpu *c, uint32_t msr)
{
	for (unsigned n = 0; n < ARRAY_SIZE(msr_table); n++) {
		const struct msr_entry *e = &msr_table[n];

		if (msr >= e->first && msr <= e->last) {
			if (e->feature && !cpu_model_has(c->v.accel->cfg.model, e->feature))
				return NULL;
			return e;
		}
	}
	return NULL;
}

static uint64_t *msr_store(struct soft_cpu *c, const struct msr_entry *e, uint32_t msr)
{
	return (uint64_t *)(void *)((uint8_t *)&c->s + e->offset) + (msr - e->first);
}

/* ---- the ones with a life of their own ------------------------------------------- */

static int efer_write(struct soft_cpu *c, uint64_t val)
{
	const struct cpu_model *m = c->v.accel->cfg.model;
	uint64_t allowed = EFER_SCE | EFER_LME | EFER_LMA | EFER_NXE, old = c->s.efer;

	if (cpu_model_has(m, "auto-ibrs"))
		allowed |= EFER_AUTOIBRS;
	if ((val & ~allowed) || (((val ^ old) & EFER_LME) && c->paging))
		return -EINVAL;
	c->s.efer = (val & ~EFER_LMA) | (old & EFER_LMA);
	soft_mode_changed(c);
	if ((old ^ val) & EFER_NXE)
		mmu_flush_all(c);
	return 0;
}

static int pat_write(struct soft_cpu *c, uint64_t val)
{
	for (unsigned n = 0; n < 64; n += 8) {
		unsigned type = (val >> n) & 0xff;

		if (type > 7 || type == 2 || type == 3)
			return -EINVAL;
	}
	c->s.pat = val;
	return 0;
}

static int tsc_write(struct soft_cpu *c, uint64_t val)
{
	c->s.tsc_adjust += val - soft_tsc(c);
	soft_tsc_update(c);
	return 0;
}

static int tsc_adjust_write(struct soft_cpu *c, uint64_t val)
{
	c->s.tsc_adjust = val;
	soft_tsc_update(c);
	return 0;
}

static bool is_apic_msr(uint32_t msr)
{
	return msr == MSR_APIC_BASE || msr == MSR_TSC_DEADLINE || (msr >= MSR_X2APIC_FIRST && msr <= MSR_X2APIC_LAST);
}

/* The LAPIC counts on the machine's TSC, the guest on its adjusted one; 0 means disarmed. */
static int apic_read(struct soft_cpu *c, uint32_t msr, uint64_t *val)
{
	if (sys_host(c)->apic_msr_read(sys_host(c)->opaque, c->v.index, msr, val))
		return -EINVAL;
	if (msr == MSR_TSC_DEADLINE && *val)
		*val += c->s.tsc_adjust;
	return 0;
}

static int apic_write(struct soft_cpu *c, uint32_t msr, uint64_t val)
{
	if (msr == MSR_TSC_DEADLINE && val) {
		val -= c->s.tsc_adjust;
		val += !val;
	}
	if (sys_host(c)->apic_msr_write(sys_host(c)->opaque, c->v.index, msr, val))
		return -EINVAL;
	if (msr == MSR_APIC_BASE)
		c->s.apic_base = val;
	return 0;
}

static int kvm_wall_write(struct soft_cpu *c, uint64_t val)
{
	c->s.kvm_wall_clock = val;
	kvmclock_write_wall(c, val);
	return 0;
}

static int kvm_time_write(struct soft_cpu *c, uint64_t val)
{
	c->s.kvm_system_time = val;
	kvmclock_write_time(c);
	return 0;
}

struct msr_special {
	uint32_t msr;
	size_t offset; /* what a read gives */
	int (*write)(struct soft_cpu *c, uint64_t val);
	bool kvmclock;
};
static const struct msr_special special_table[] = {
    {MSR_EFER, ST(efer), efer_write, false},
    {0x277, ST(pat), pat_write, false},
    {MSR_TSC_ADJUST, ST(tsc_adjust), tsc_adjust_write, false},
    {0x11, ST(kvm_wall_clock), kvm_wall_write, true},
    {0x12, ST(kvm_system_time), kvm_time_write, true},
    {0x4b564d00, ST(kvm_wall_clock), kvm_wall_write, true},
    {0x4b564d01, ST(kvm_system_time), kvm_time_write, true},
};

static const struct msr_special *special_find(const struct soft_cpu *c, uint32_t msr)
{
	for (unsigned n = 0; n < ARRAY_SIZE(special_table); n++) {
		const struct msr_special *s = &special_table[n];

		if (s->msr == msr && (!s->kvmclock || c->v.accel->cfg.model->kvmclock))
			return s;
	}
	return NULL;
}

/* ---- reads and writes ---------------------------------------------------------------- */

int msr_read(struct soft_cpu *c, uint32_t msr, uint64_t *val)
{
	const struct msr_special *s;
	const struct msr_entry *e;

	if (msr == 0x10) {
		*val = soft_tsc(c);
		return 0;
	}
	if (is_apic_msr(msr))
		return apic_read(c, msr, val);
	s = special_find(c, msr);
	if (s) {
		memcpy(val, (const uint8_t *)&c->s + s->offset, sizeof(*val));
		return 0;
	}
	e = msr_find(c, msr);
	if (!e)
		return -EINVAL;
	*val = e->kind == MSR_STORE || e->kind == MSR_CANONICAL ? *msr_store(c, e, msr) : e->mask_or_value;
	return 0;
}

int msr_write(struct soft_cpu *c, uint32_t msr, uint64_t val)
{
	const struct msr_special *s;
	const struct msr_entry *e;

	if (msr == 0x10)
		return tsc_write(c, val);
	if (is_apic_msr(msr))
		return apic_write(c, msr, val);
	s = special_find(c, msr);
	if (s)
		return s->write(c, val);
	e = msr_find(c, msr);
	if (!e)
		return -EINVAL;
	switch (e->kind) {
	case MSR_CANONICAL:
		if (!sys_canonical(val))
			return -EINVAL;
		*msr_store(c, e, msr) = val;
		return 0;
	case MSR_STORE:
		if (val & ~e->mask_or_value)
			return -EINVAL;
		*msr_store(c, e, msr) = val;
		return 0;
	case MSR_CONST: return 0;
	default: return -EINVAL;
	}
}

int sys_rdmsr(struct soft_cpu *c, const struct insn *i)
{
	uint32_t msr = (uint32_t)c->s.gpr[R_RCX];
	uint64_t val;

	if (c->cpl)
		return sys_gp0(c);
	if (msr_read(c, msr, &val)) {
		log_diag(LOG_UNIMP, "cpu %u: RDMSR of unknown 0x%x at %" PRIx64, c->v.index, msr, c->s.rip);
		return sys_gp0(c);
	}
	c->s.gpr[R_RAX] = (uint32_t)val;
	c->s.gpr[R_RDX] = val >> 32;
	return INSN_NEXT;
}

int sys_wrmsr(struct soft_cpu *c, const struct insn *i)
{
	uint32_t msr = (uint32_t)c->s.gpr[R_RCX];
	uint64_t val = (uint32_t)c->s.gpr[R_RAX] | c->s.gpr[R_RDX] << 32;

	if (c->cpl)
		return sys_gp0(c);
	if (msr_write(c, msr, val)) {
		log_diag(LOG_UNIMP, "cpu %u: WRMSR of 0x%" PRIx64 " to 0x%x at %" PRIx64 ": #GP", c->v.index, val, msr,
			 c->s.rip);
		return sys_gp0(c);
	}
	return INSN_END;
}
