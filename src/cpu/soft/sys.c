/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * System instructions: control and debug registers, descriptor-table registers,
 * flags, CPUID and time, TLB maintenance, FS/GS bases, HLT. And the table of
 * everything the system part handles.
 *
 * AMD64 APM volume 3 chapter 4, Intel SDM volume 2. Handlers run in the vCPU's
 * thread; they return INSN_END where modes or interruptibility may have changed.
 */
#include "cpu/soft/sys.h"

#include <sched.h>
#include "base/log.h"
#include "cpu/soft/mmu.h"

#define CR4_ALWAYS (CR4_TSD | CR4_DE | CR4_PSE | CR4_PAE | CR4_MCE | CR4_PGE | CR4_PCE | CR4_OSFXSR | CR4_OSXMMEXCPT)
/* CR4 bits that change what the TLB may hold */
#define CR4_TLB	       (CR4_PSE | CR4_PAE | CR4_PGE | CR4_PCIDE | CR4_SMEP | CR4_SMAP)
#define CR0_DEFINED    (CR0_PE | CR0_MP | CR0_EM | CR0_TS | CR0_ET | CR0_NE | CR0_WP | CR0_AM | CR0_NW | CR0_CD | CR0_PG)
#define CR3_NOFLUSH    BIT(63)
#define PAUSES_A_YIELD 32
#define KVM_ENOSYS     1000

static int need_cpl0(struct soft_cpu *c)
{
	return c->cpl ? sys_gp0(c) : 0;
}

static bool has(const struct soft_cpu *c, const char *feature)
{
	return cpu_model_has(c->v.accel->cfg.model, feature);
}

/* ---- control registers ----------------------------------------------------------- */

static int write_cr0(struct soft_cpu *c, uint64_t val)
{
	uint64_t old = c->s.cr0, old_efer = c->s.efer;

	if (val >> 32 || ((val & CR0_PG) && !(val & CR0_PE)) || ((val & CR0_NW) && !(val & CR0_CD)))
		return sys_gp0(c);
	val = (val & CR0_DEFINED) | CR0_ET;
	if ((val & ~old) & CR0_PG) {
		if ((c->s.efer & EFER_LME) && (!(c->s.cr4 & CR4_PAE) || c->s.seg[S_CS].l))
			return sys_gp0(c);
		if (c->s.efer & EFER_LME)
			c->s.efer |= EFER_LMA;
	} else if ((old & ~val) & CR0_PG) {
		if (c->long64 || (c->s.cr4 & CR4_PCIDE))
			return sys_gp0(c);
		c->s.efer &= ~EFER_LMA;
	}
	c->s.cr0 = val;
	if (((old ^ val) & (CR0_PG | CR0_CD | CR0_NW)) && (val & CR0_PG)) {
		if (mmu_check_cr3(c, c->s.cr3)) {
			c->s.cr0 = old;
			c->s.efer = old_efer;
			return EXC_RAISED;
		}
		mmu_load_pdptes(c);
	}
	if ((old ^ val) & (CR0_PG | CR0_WP | CR0_PE))
		mmu_flush_all(c);
	soft_mode_changed(c);
	return INSN_END;
}

uint64_t sys_cr4_allowed(const struct soft_cpu *c)
{
	static const struct {
		uint64_t bit;
		const char *feature;
	} optional[] = {{CR4_UMIP, "umip"},	{CR4_FSGSBASE, "fsgsbase"}, {CR4_PCIDE, "pcid"},
			{CR4_OSXSAVE, "xsave"}, {CR4_SMEP, "smep"},	    {CR4_SMAP, "smap"}};
	uint64_t mask = CR4_ALWAYS;

	for (unsigned n = 0; n < ARRAY_SIZE(optional); n++) {
		if (has(c, optional[n].feature))
			mask |= optional[n].bit;
	}
	return mask;
}

static int write_cr4(struct soft_cpu *c, uint64_t val)
{
	uint64_t old = c->s.cr4;

	if (val == old)
		return INSN_NEXT;
	if ((val & ~sys_cr4_allowed(c)) || (sys_long(c) && !(val & CR4_PAE)))
		return sys_gp0(c);
	if (((val & ~old) & CR4_PCIDE) && (!sys_long(c) || (c->s.cr3 & 0xfff)))
		return sys_gp0(c);
	c->s.cr4 = val;
	if (((old ^ val) & (CR4_PAE | CR4_PGE | CR4_PSE | CR4_SMEP)) && mmu_check_cr3(c, c->s.cr3)) {
		c->s.cr4 = old;
		return EXC_RAISED;
	}
	if ((old ^ val) & CR4_TLB) {
		mmu_switch_cr3(c, c->s.cr3, false);
		mmu_flush_all(c);
	}
	if ((old ^ val) & CR4_DE)
		soft_debug_changed(c);
	soft_mode_changed(c);
	return INSN_END;
}

static int write_cr3(struct soft_cpu *c, uint64_t val)
{
	bool noflush = (c->s.cr4 & CR4_PCIDE) && (val & CR3_NOFLUSH);
	const struct cpu_model *m = c->v.accel->cfg.model;

	if (noflush)
		val &= ~CR3_NOFLUSH;
	if (sys_long(c) && (val >> m->phys_bits))
		return sys_gp0(c);
	if (mmu_check_cr3(c, val))
		return EXC_RAISED;
	mmu_switch_cr3(c, val, noflush);
	return INSN_END;
}

static int write_cr8(struct soft_cpu *c, uint64_t val)
{
	if (val & ~15ull)
		return sys_gp0(c);
	c->s.cr8 = val;
	sys_host(c)->tpr_set(sys_host(c)->opaque, c->v.index, val);
	soft_recheck_intr(c);
	return INSN_END;
}

static int mov_to_cr(struct soft_cpu *c, const struct insn *i)
{
	uint64_t val = c->s.gpr[i->op[1].reg];

	if (need_cpl0(c))
		return EXC_RAISED;
	if (!c->long64)
		val = (uint32_t)val;
	switch (i->op[0].reg) {
	case 0: return write_cr0(c, val);
	case 2: c->s.cr2 = val; return INSN_NEXT;
	case 3: return write_cr3(c, val);
	case 4: return write_cr4(c, val);
	case 8: return write_cr8(c, val);
	default: return soft_raise(c, EXC_UD);
	}
}

static int mov_from_cr(struct soft_cpu *c, const struct insn *i)
{
	uint64_t val;

	if (need_cpl0(c))
		return EXC_RAISED;
	switch (i->op[1].reg) {
	case 0: val = c->s.cr0; break;
	case 2: val = c->s.cr2; break;
	case 3: val = c->s.cr3; break;
	case 4: val = c->s.cr4; break;
	case 8: val = sys_host(c)->tpr_get(sys_host(c)->opaque, c->v.index); break;
	default: return soft_raise(c, EXC_UD);
	}
	c->s.gpr[i->op[0].reg] = c->long64 ? val : (uint32_t)val;
	return INSN_NEXT;
}

static int sys_clts(struct soft_cpu *c, const struct insn *i)
{
	if (need_cpl0(c))
		return EXC_RAISED;
	c->s.cr0 &= ~CR0_TS;
	soft_mode_changed(c);
	return INSN_END;
}

static int umip_check(struct soft_cpu *c)
{
	return c->cpl && (c->s.cr4 & CR4_UMIP) ? sys_gp0(c) : 0;
}

static int sys_smsw(struct soft_cpu *c, const struct insn *i)
{
	if (umip_check(c))
		return EXC_RAISED;
	return insn_write(c, i, 0, c->s.cr0) ? EXC_RAISED : INSN_NEXT;
}

static int sys_lmsw(struct soft_cpu *c, const struct insn *i)
{
	uint64_t val;

	if (need_cpl0(c) || insn_read(c, i, 0, &val))
		return EXC_RAISED;
	/* PE can be set, not cleared. */
	return write_cr0(c, (c->s.cr0 & ~(CR0_MP | CR0_EM | CR0_TS)) | (val & (CR0_PE | CR0_MP | CR0_EM | CR0_TS)));
}

/* ---- debug registers ----------------------------------------------------------------- */

/* Number after the aliasing of DR4 and DR5; EXC_RAISED when the access is not allowed. */
static int debug_register(struct soft_cpu *c, unsigned n)
{
	if (n == 4 || n == 5) {
		if (c->s.cr4 & CR4_DE)
			return soft_raise(c, EXC_UD);
		n += 2;
	}
	if (n > 7)
		return soft_raise(c, EXC_UD);
	if (need_cpl0(c))
		return EXC_RAISED;
	if (c->s.dr[7] & DR7_GD) {
		c->s.dr[6] |= DR6_BD;
		return soft_raise(c, EXC_DB);
	}
	return (int)n;
}

static int mov_from_dr(struct soft_cpu *c, const struct insn *i)
{
	int n = debug_register(c, i->op[1].reg);

	if (n < 0)
		return EXC_RAISED;
	c->s.gpr[i->op[0].reg] = c->long64 ? c->s.dr[n] : (uint32_t)c->s.dr[n];
	return INSN_NEXT;
}

static int mov_to_dr(struct soft_cpu *c, const struct insn *i)
{
	uint64_t val = c->s.gpr[i->op[1].reg];
	int n = debug_register(c, i->op[0].reg);

	if (n < 0)
		return EXC_RAISED;
	if (!c->long64)
		val = (uint32_t)val;
	if (n >= 6 && val >> 32)
		return sys_gp0(c);
	if (n == 6)
		val = (val & 0xe00f) | DR6_FIXED;
	else if (n == 7)
		val = (val & 0xffff2bff) | DR7_FIXED;
	c->s.dr[n] = val;
	soft_debug_changed(c);
	return INSN_END;
}

int sys_mov_special(struct soft_cpu *c, const struct insn *i)
{
	static const struct {
		unsigned operand;
		enum operand_kind kind;
		insn_fn *fn;
	} form[] = {{0, OPD_CR, mov_to_cr},   {1, OPD_CR, mov_from_cr},	   {0, OPD_DR, mov_to_dr},
		    {1, OPD_DR, mov_from_dr}, {0, OPD_SREG, sys_mov_sreg}, {1, OPD_SREG, sys_mov_sreg}};

	for (unsigned n = 0; n < ARRAY_SIZE(form); n++) {
		if (i->op[form[n].operand].kind == form[n].kind)
			return form[n].fn(c, i);
	}
	return soft_raise(c, EXC_UD);
}

/* ---- descriptor-table registers ---------------------------------------------------------- */

static int load_dtable(struct soft_cpu *c, const struct insn *i, struct cpu_dtable *t)
{
	unsigned size = c->long64 ? 10 : 6;
	uint8_t buf[10] = {0};
	uint64_t lin, base;

	if (need_cpl0(c) || insn_mem_linear(c, i, size, false, &lin) || mmu_read_buf(c, lin, buf, size, c->mmu_index))
		return EXC_RAISED;
	base = ld64le(buf + 2);
	if (!c->long64 && i->opsize == 2)
		base &= 0xffffff;
	if (c->long64 && !sys_canonical(base))
		return sys_gp0(c);
	t->limit = ld16le(buf);
	t->base = base;
	return INSN_NEXT;
}

static int store_dtable(struct soft_cpu *c, const struct insn *i, const struct cpu_dtable *t)
{
	unsigned size = c->long64 ? 10 : 6;
	uint8_t buf[10];
	uint64_t lin;

	if (umip_check(c) || insn_mem_linear(c, i, size, true, &lin))
		return EXC_RAISED;
	st16le(buf, t->limit);
	st64le(buf + 2, t->base);
	return mmu_write_buf(c, lin, buf, size, c->mmu_index) ? EXC_RAISED : INSN_NEXT;
}

static int sys_lgdt(struct soft_cpu *c, const struct insn *i)
{
	return load_dtable(c, i, &c->s.gdtr);
}
static int sys_lidt(struct soft_cpu *c, const struct insn *i)
{
	return load_dtable(c, i, &c->s.idtr);
}
static int sys_sgdt(struct soft_cpu *c, const struct insn *i)
{
	return store_dtable(c, i, &c->s.gdtr);
}
static int sys_sidt(struct soft_cpu *c, const struct insn *i)
{
	return store_dtable(c, i, &c->s.idtr);
}

static int store_selector(struct soft_cpu *c, const struct insn *i, unsigned seg)
{
	if (!sys_protected(c))
		return soft_raise(c, EXC_UD);
	if (umip_check(c))
		return EXC_RAISED;
	return insn_write(c, i, 0, c->s.seg[seg].sel) ? EXC_RAISED : INSN_NEXT;
}
static int sys_sldt(struct soft_cpu *c, const struct insn *i)
{
	return store_selector(c, i, S_LDTR);
}
static int sys_str(struct soft_cpu *c, const struct insn *i)
{
	return store_selector(c, i, S_TR);
}

/* ---- flags --------------------------------------------------------------------------------- */

static int iopl_check(struct soft_cpu *c)
{
	if (!(c->s.cr0 & CR0_PE))
		return 0;
	if (c->s.rflags & FLAG_VM ? sys_iopl(c) < 3 : c->cpl > sys_iopl(c))
		return sys_gp0(c);
	return 0;
}

static int sys_cli(struct soft_cpu *c, const struct insn *i)
{
	if (iopl_check(c))
		return EXC_RAISED;
	c->s.rflags &= ~FLAG_IF;
	return INSN_NEXT;
}

static int sys_sti(struct soft_cpu *c, const struct insn *i)
{
	if (iopl_check(c))
		return EXC_RAISED;
	if (!(c->s.rflags & FLAG_IF)) {
		c->s.rflags |= FLAG_IF;
		c->s.int_shadow = true;
		soft_recheck_intr(c);
	}
	return INSN_END;
}

static int set_ac(struct soft_cpu *c, bool on)
{
	if (c->cpl)
		return soft_raise(c, EXC_UD);
	c->s.rflags = on ? c->s.rflags | FLAG_AC : c->s.rflags & ~FLAG_AC;
	soft_mode_changed(c);
	return INSN_END;
}
static int sys_stac(struct soft_cpu *c, const struct insn *i)
{
	return set_ac(c, true);
}
static int sys_clac(struct soft_cpu *c, const struct insn *i)
{
	return set_ac(c, false);
}

static int sys_pushf(struct soft_cpu *c, const struct insn *i)
{
	struct stack_ref st = stack_current(c);

	if ((c->s.rflags & FLAG_VM) && sys_iopl(c) < 3)
		return sys_gp0(c);
	if (stack_ref_push(c, &st, i->opsize, (c->s.rflags & ~(FLAG_RF | FLAG_VM)) | RFLAGS_FIXED))
		return EXC_RAISED;
	stack_ref_commit(c, &st);
	return INSN_NEXT;
}

static int sys_popf(struct soft_cpu *c, const struct insn *i)
{
	uint64_t mask = FLAG_ARITH | FLAG_TF | FLAG_DF | FLAG_NT | FLAG_AC | FLAG_ID, val, old = c->s.rflags;
	struct stack_ref st = stack_current(c);

	if (c->s.rflags & FLAG_VM) {
		if (sys_iopl(c) < 3)
			return sys_gp0(c);
		mask |= FLAG_IF;
	} else {
		if (c->cpl == 0)
			mask |= FLAG_IOPL;
		if (c->cpl <= sys_iopl(c))
			mask |= FLAG_IF;
	}
	if (i->opsize == 2)
		mask &= 0xffff;
	if (stack_ref_pop(c, &st, i->opsize, &val))
		return EXC_RAISED;
	stack_ref_commit(c, &st);
	c->s.rflags = (((old & ~mask) | (val & mask)) & ~FLAG_RF) | RFLAGS_FIXED;
	if ((old ^ c->s.rflags) & (FLAG_TF | FLAG_AC))
		soft_mode_changed(c);
	if (c->s.rflags & ~old & FLAG_IF)
		soft_recheck_intr(c);
	return INSN_END;
}

/* ---- CPUID, time, random numbers ---------------------------------------------------------------- */

static int sys_cpuid(struct soft_cpu *c, const struct insn *i)
{
	uint32_t out[4];

	codesync_check(c);
	cpu_model_cpuid(c->v.accel->cfg.model, c->v.apic_id, c->s.cr4, c->s.xcr0, c->s.xss, (uint32_t)c->s.gpr[R_RAX],
			(uint32_t)c->s.gpr[R_RCX], out);
	c->s.gpr[R_RAX] = out[0];
	c->s.gpr[R_RBX] = out[1];
	c->s.gpr[R_RCX] = out[2];
	c->s.gpr[R_RDX] = out[3];
	return INSN_NEXT;
}

static int sys_rdtsc(struct soft_cpu *c, const struct insn *i)
{
	uint64_t tsc;

	if (c->cpl && (c->s.cr4 & CR4_TSD))
		return sys_gp0(c);
	tsc = soft_tsc(c);
	c->s.gpr[R_RAX] = (uint32_t)tsc;
	c->s.gpr[R_RDX] = tsc >> 32;
	if (i->mnemonic == ZYDIS_MNEMONIC_RDTSCP)
		c->s.gpr[R_RCX] = (uint32_t)c->s.tsc_aux;
	return INSN_NEXT;
}

static int sys_rdpid(struct soft_cpu *c, const struct insn *i)
{
	c->s.gpr[i->op[0].reg] = c->s.tsc_aux;
	return INSN_NEXT;
}

/* No counters are advertised. */
static int sys_rdpmc(struct soft_cpu *c, const struct insn *i)
{
	return sys_gp0(c);
}

static int random_result(struct soft_cpu *c, const struct insn *i, uint64_t val, bool ok)
{
	c->s.rflags = (c->s.rflags & ~FLAG_ARITH) | (ok ? FLAG_CF : 0);
	return insn_write(c, i, 0, ok ? val : 0) ? EXC_RAISED : INSN_NEXT;
}

static int sys_rdrand(struct soft_cpu *c, const struct insn *i)
{
	uint64_t val;
	bool ok;

	__asm__ volatile("rdrand %0" : "=r"(val), "=@ccc"(ok));
	return random_result(c, i, val, ok);
}

static int sys_rdseed(struct soft_cpu *c, const struct insn *i)
{
	uint64_t val;
	bool ok;

	__asm__ volatile("rdseed %0" : "=r"(val), "=@ccc"(ok));
	return random_result(c, i, val, ok);
}

/* ---- TLB and caches -------------------------------------------------------------------------------- */

static int sys_invlpg(struct soft_cpu *c, const struct insn *i)
{
	uint64_t lin = insn_mem_offset(c, i);

	if (need_cpl0(c))
		return EXC_RAISED;
	if (!c->long64)
		lin = (uint32_t)(lin + c->s.seg[i->mem_seg].base);
	else if (i->mem_seg >= S_FS)
		lin += c->s.seg[i->mem_seg].base;
	if (!c->long64 || sys_canonical(lin))
		mmu_invlpg(c, lin);
	return INSN_END;
}

static int sys_invpcid(struct soft_cpu *c, const struct insn *i)
{
	uint64_t desc[2], lin;

	if (!sys_protected(c))
		return c->s.rflags & FLAG_VM ? sys_gp0(c) : soft_raise(c, EXC_UD);
	if (need_cpl0(c) || insn_mem_linear(c, i, 16, false, &lin) || mmu_read_buf(c, lin, desc, 16, c->mmu_index))
		return EXC_RAISED;
	return mmu_invpcid(c, c->long64 ? c->s.gpr[i->op[0].reg] : (uint32_t)c->s.gpr[i->op[0].reg], desc) ? EXC_RAISED
													   : INSN_END;
}

/* Caches are coherent here: nothing to write back. */
static int sys_wbinvd(struct soft_cpu *c, const struct insn *i)
{
	return need_cpl0(c) ? EXC_RAISED : INSN_NEXT;
}

/* ---- FS and GS bases -------------------------------------------------------------------------------- */

static int sys_swapgs(struct soft_cpu *c, const struct insn *i)
{
	uint64_t base = c->s.seg[S_GS].base;

	if (need_cpl0(c))
		return EXC_RAISED;
	c->s.seg[S_GS].base = c->s.kernel_gs_base;
	c->s.kernel_gs_base = base;
	return INSN_NEXT;
}

static int sys_fsgsbase(struct soft_cpu *c, const struct insn *i)
{
	bool fs = i->mnemonic == ZYDIS_MNEMONIC_RDFSBASE || i->mnemonic == ZYDIS_MNEMONIC_WRFSBASE;
	bool write = i->mnemonic == ZYDIS_MNEMONIC_WRFSBASE || i->mnemonic == ZYDIS_MNEMONIC_WRGSBASE;
	uint64_t *base = &c->s.seg[fs ? S_FS : S_GS].base, *reg = &c->s.gpr[i->op[0].reg], val;

	if (!c->long64 || !(c->s.cr4 & CR4_FSGSBASE))
		return soft_raise(c, EXC_UD);
	val = write ? *reg : *base;
	if (i->op[0].size == 4)
		val = (uint32_t)val;
	if (write && !sys_canonical(val))
		return sys_gp0(c);
	*(write ? base : reg) = val;
	return INSN_NEXT;
}

/* ---- waiting ------------------------------------------------------------------------------------------ */

static int sys_hlt(struct soft_cpu *c, const struct insn *i)
{
	if (need_cpl0(c))
		return EXC_RAISED;
	c->s.mp_state = MP_HALTED;
	c->n_halts++;
	return INSN_END;
}

/* A spinning guest CPU gives the host CPU to the one it waits for, now and then. */
static int sys_pause(struct soft_cpu *c, const struct insn *i)
{
	if (c->v.accel->cfg.ncpus > 1 && ++c->pauses % PAUSES_A_YIELD == 0)
		sched_yield();
	return INSN_NEXT;
}

/* KVM's hypercalls: none is advertised, all answer "unknown". */
static int sys_vmcall(struct soft_cpu *c, const struct insn *i)
{
	if (!sys_protected(c))
		return soft_raise(c, EXC_UD);
	c->s.gpr[R_RAX] = c->cpl ? (uint64_t)-1 : (uint64_t)-KVM_ENOSYS;
	return INSN_NEXT;
}

/* ---- the table -------------------------------------------------------------------------------------------- */

const struct insn_handler sys_handlers[] = {
    /* system forms of shared mnemonics: see insn.h */
    {ZYDIS_MNEMONIC_MOV, sys_mov_special},
    {ZYDIS_MNEMONIC_PUSH, sys_push_seg},
    {ZYDIS_MNEMONIC_POP, sys_pop_seg},
    {ZYDIS_MNEMONIC_CALL, sys_far_call},
    {ZYDIS_MNEMONIC_JMP, sys_far_jmp},
    {ZYDIS_MNEMONIC_RET, sys_far_ret},
    /* control registers and tables */
    {ZYDIS_MNEMONIC_CLTS, sys_clts},
    {ZYDIS_MNEMONIC_SMSW, sys_smsw},
    {ZYDIS_MNEMONIC_LMSW, sys_lmsw},
    {ZYDIS_MNEMONIC_LGDT, sys_lgdt},
    {ZYDIS_MNEMONIC_LIDT, sys_lidt},
    {ZYDIS_MNEMONIC_SGDT, sys_sgdt},
    {ZYDIS_MNEMONIC_SIDT, sys_sidt},
    {ZYDIS_MNEMONIC_SLDT, sys_sldt},
    {ZYDIS_MNEMONIC_STR, sys_str},
    {ZYDIS_MNEMONIC_LLDT, sys_lldt},
    {ZYDIS_MNEMONIC_LTR, sys_ltr},
    /* segments */
    {ZYDIS_MNEMONIC_LDS, sys_lds},
    {ZYDIS_MNEMONIC_LES, sys_lds},
    {ZYDIS_MNEMONIC_LFS, sys_lds},
    {ZYDIS_MNEMONIC_LGS, sys_lds},
    {ZYDIS_MNEMONIC_LSS, sys_lds},
    {ZYDIS_MNEMONIC_LAR, sys_lar},
    {ZYDIS_MNEMONIC_LSL, sys_lsl},
    {ZYDIS_MNEMONIC_VERR, sys_verr},
    {ZYDIS_MNEMONIC_VERW, sys_verw},
    {ZYDIS_MNEMONIC_ARPL, sys_arpl},
    {ZYDIS_MNEMONIC_SWAPGS, sys_swapgs},
    {ZYDIS_MNEMONIC_RDFSBASE, sys_fsgsbase},
    {ZYDIS_MNEMONIC_RDGSBASE, sys_fsgsbase},
    {ZYDIS_MNEMONIC_WRFSBASE, sys_fsgsbase},
    {ZYDIS_MNEMONIC_WRGSBASE, sys_fsgsbase},
    /* flags */
    {ZYDIS_MNEMONIC_CLI, sys_cli},
    {ZYDIS_MNEMONIC_STI, sys_sti},
    {ZYDIS_MNEMONIC_STAC, sys_stac},
    {ZYDIS_MNEMONIC_CLAC, sys_clac},
    {ZYDIS_MNEMONIC_PUSHF, sys_pushf},
    {ZYDIS_MNEMONIC_PUSHFD, sys_pushf},
    {ZYDIS_MNEMONIC_PUSHFQ, sys_pushf},
    {ZYDIS_MNEMONIC_POPF, sys_popf},
    {ZYDIS_MNEMONIC_POPFD, sys_popf},
    {ZYDIS_MNEMONIC_POPFQ, sys_popf},
    /* interrupts and system calls */
    {ZYDIS_MNEMONIC_INT, sys_int},
    {ZYDIS_MNEMONIC_INT1, sys_int1},
    {ZYDIS_MNEMONIC_INT3, sys_int3},
    {ZYDIS_MNEMONIC_INTO, sys_into},
    {ZYDIS_MNEMONIC_IRET, exc_iret},
    {ZYDIS_MNEMONIC_IRETD, exc_iret},
    {ZYDIS_MNEMONIC_IRETQ, exc_iret},
    {ZYDIS_MNEMONIC_SYSCALL, sys_syscall},
    {ZYDIS_MNEMONIC_SYSRET, sys_sysret},
    {ZYDIS_MNEMONIC_SYSENTER, sys_sysenter},
    {ZYDIS_MNEMONIC_SYSEXIT, sys_sysexit},
    {ZYDIS_MNEMONIC_VMCALL, sys_vmcall},
    {ZYDIS_MNEMONIC_VMMCALL, sys_vmcall},
    /* identification, time, MSRs */
    {ZYDIS_MNEMONIC_CPUID, sys_cpuid},
    {ZYDIS_MNEMONIC_RDMSR, sys_rdmsr},
    {ZYDIS_MNEMONIC_WRMSR, sys_wrmsr},
    {ZYDIS_MNEMONIC_RDTSC, sys_rdtsc},
    {ZYDIS_MNEMONIC_RDTSCP, sys_rdtsc},
    {ZYDIS_MNEMONIC_RDPID, sys_rdpid},
    {ZYDIS_MNEMONIC_RDPMC, sys_rdpmc},
    {ZYDIS_MNEMONIC_RDRAND, sys_rdrand},
    {ZYDIS_MNEMONIC_RDSEED, sys_rdseed},
    /* TLB, caches, waiting */
    {ZYDIS_MNEMONIC_INVLPG, sys_invlpg},
    {ZYDIS_MNEMONIC_INVPCID, sys_invpcid},
    {ZYDIS_MNEMONIC_INVD, sys_wbinvd},
    {ZYDIS_MNEMONIC_WBINVD, sys_wbinvd},
    {ZYDIS_MNEMONIC_HLT, sys_hlt},
    {ZYDIS_MNEMONIC_PAUSE, sys_pause},
    /* ports */
    {ZYDIS_MNEMONIC_IN, sys_in},
    {ZYDIS_MNEMONIC_OUT, sys_out},
    {ZYDIS_MNEMONIC_INSB, sys_ins},
    {ZYDIS_MNEMONIC_INSW, sys_ins},
    {ZYDIS_MNEMONIC_INSD, sys_ins},
    {ZYDIS_MNEMONIC_OUTSB, sys_outs},
    {ZYDIS_MNEMONIC_OUTSW, sys_outs},
    {ZYDIS_MNEMONIC_OUTSD, sys_outs},
    /* extended state */
    {ZYDIS_MNEMONIC_XGETBV, sys_xgetbv},
    {ZYDIS_MNEMONIC_XSETBV, sys_xsetbv},
    {ZYDIS_MNEMONIC_XSAVE, sys_xsave},
    {ZYDIS_MNEMONIC_XSAVE64, sys_xsave},
    {ZYDIS_MNEMONIC_XSAVEOPT, sys_xsave},
    {ZYDIS_MNEMONIC_XSAVEOPT64, sys_xsave},
    {ZYDIS_MNEMONIC_XSAVEC, sys_xsave},
    {ZYDIS_MNEMONIC_XSAVEC64, sys_xsave},
    {ZYDIS_MNEMONIC_XSAVES, sys_xsave},
    {ZYDIS_MNEMONIC_XSAVES64, sys_xsave},
    {ZYDIS_MNEMONIC_XRSTOR, sys_xrstor},
    {ZYDIS_MNEMONIC_XRSTOR64, sys_xrstor},
    {ZYDIS_MNEMONIC_XRSTORS, sys_xrstor},
    {ZYDIS_MNEMONIC_XRSTORS64, sys_xrstor},
    {ZYDIS_MNEMONIC_FXSAVE, sys_fxsave},
    {ZYDIS_MNEMONIC_FXSAVE64, sys_fxsave},
    {ZYDIS_MNEMONIC_FXRSTOR, sys_fxrstor},
    {ZYDIS_MNEMONIC_FXRSTOR64, sys_fxrstor},
    {ZYDIS_MNEMONIC_INVALID, NULL},
};
