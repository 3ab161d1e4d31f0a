/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * struct cpu_state to and from a KVM vCPU. MSRs are data: a table of number and
 * place. A kernel may refuse some of them (a nested KVM knows fewer): such an MSR
 * is skipped, and said once if a value that matters was to be written.
 */
#include "cpu/kvm/kvm_int.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"

#define MSR(num, field)                                                                                                \
	{                                                                                                              \
		num, offsetof(struct cpu_state, field)                                                                 \
	}
static const struct {
	uint32_t index;
	size_t offset;
} msr_table[] = {
    MSR(0xc0000081, star),
    MSR(0xc0000082, lstar),
    MSR(0xc0000083, cstar),
    MSR(0xc0000084, sfmask),
    MSR(0xc0000102, kernel_gs_base),
    MSR(0xc0000103, tsc_aux),
    MSR(0x174, sysenter_cs),
    MSR(0x175, sysenter_esp),
    MSR(0x176, sysenter_eip),
    MSR(0x277, pat),
    MSR(0x3b, tsc_adjust),
    MSR(0x1a0, misc_enable),
    MSR(0x48, spec_ctrl),
    MSR(0xda0, xss),
    MSR(0x2ff, mtrr_def),
    MSR(0x250, mtrr_fixed[0]),
    MSR(0x258, mtrr_fixed[1]),
    MSR(0x259, mtrr_fixed[2]),
    MSR(0x268, mtrr_fixed[3]),
    MSR(0x269, mtrr_fixed[4]),
    MSR(0x26a, mtrr_fixed[5]),
    MSR(0x26b, mtrr_fixed[6]),
    MSR(0x26c, mtrr_fixed[7]),
    MSR(0x26d, mtrr_fixed[8]),
    MSR(0x26e, mtrr_fixed[9]),
    MSR(0x26f, mtrr_fixed[10]),
    MSR(0x200, mtrr_phys[0]),
    MSR(0x201, mtrr_phys[1]),
    MSR(0x202, mtrr_phys[2]),
    MSR(0x203, mtrr_phys[3]),
    MSR(0x204, mtrr_phys[4]),
    MSR(0x205, mtrr_phys[5]),
    MSR(0x206, mtrr_phys[6]),
    MSR(0x207, mtrr_phys[7]),
    MSR(0x208, mtrr_phys[8]),
    MSR(0x209, mtrr_phys[9]),
    MSR(0x20a, mtrr_phys[10]),
    MSR(0x20b, mtrr_phys[11]),
    MSR(0x20c, mtrr_phys[12]),
    MSR(0x20d, mtrr_phys[13]),
    MSR(0x20e, mtrr_phys[14]),
    MSR(0x20f, mtrr_phys[15]),
    MSR(0x17a, mcg_status),
    MSR(0x17b, mcg_ctl),
    MSR(0x4b564d00, kvm_wall_clock),
    MSR(0x4b564d01, kvm_system_time),
    MSR(0x4b564d02, kvm_async_pf),
    MSR(0x4b564d03, kvm_steal_time),
    MSR(0x4b564d04, kvm_eoi),
    MSR(0x4b564d05, kvm_poll_control),
};
#define NMSRS ARRAY_SIZE(msr_table)

struct msr_list {
	struct kvm_msrs head;
	struct kvm_msr_entry entry[NMSRS];
};

static uint64_t *msr_field(struct cpu_state *s, size_t i)
{
	return (uint64_t *)(void *)((char *)s + msr_table[i].offset);
}

/*
 * The kernel stops at the first MSR it refuses and returns how many it did:
 * go on behind the refused one. refused() is told its place in the table.
 */
static int msrs_transfer(struct kvm_vcpu *kv, unsigned long request, struct msr_list *l,
			 void (*refused)(size_t i, uint64_t value))
{
	size_t done = 0;

	while (done < NMSRS) {
		struct msr_list part = {.head.nmsrs = (uint32_t)(NMSRS - done)};
		int rc;

		memcpy(part.entry, l->entry + done, (NMSRS - done) * sizeof(l->entry[0]));
		rc = kvm_ioctl(kv->fd, request, &part);
		if (rc < 0)
			return rc;
		memcpy(l->entry + done, part.entry, (size_t)rc * sizeof(l->entry[0]));
		done += (size_t)rc;
		if (done < NMSRS)
			refused(done, l->entry[done].data);
		done++;
	}
	return 0;
}

static void refused_silently(size_t i, uint64_t value) {}

static void refused_write(size_t i, uint64_t value)
{
	static _Atomic uint64_t said;

	if (value && !(atomic_fetch_or(&said, BIT(i)) & BIT(i)))
		log_diag(LOG_UNIMP, "kvm: MSR %#x cannot be set to %#llx here", msr_table[i].index,
			 (unsigned long long)value);
}

static void seg_from_kvm(struct cpu_segment *d, const struct kvm_segment *s)
{
	*d = (struct cpu_segment){.sel = s->selector,
				  .type = s->type,
				  .dpl = s->dpl,
				  .s = s->s,
				  .present = s->present,
				  .l = s->l,
				  .db = s->db,
				  .g = s->g,
				  .avl = s->avl,
				  .unusable = s->unusable,
				  .limit = s->limit,
				  .base = s->base};
}

static void seg_to_kvm(struct kvm_segment *d, const struct cpu_segment *s)
{
	*d = (struct kvm_segment){.selector = s->sel,
				  .type = s->type,
				  .dpl = s->dpl,
				  .s = s->s,
				  .present = s->present,
				  .l = s->l,
				  .db = s->db,
				  .g = s->g,
				  .avl = s->avl,
				  .unusable = s->unusable || !s->present,
				  .limit = s->limit,
				  .base = s->base};
}

/* enum cpu_seg order */
static struct kvm_segment *kvm_seg(struct kvm_sregs *r, unsigned i)
{
	struct kvm_segment *const seg[S_COUNT] = {&r->es, &r->cs, &r->ss, &r->ds, &r->fs, &r->gs, &r->ldt, &r->tr};

	return seg[i];
}

static int sregs_get(struct kvm_vcpu *kv, struct cpu_state *s)
{
	struct kvm_sregs r;
	int rc = kvm_ioctl(kv->fd, KVM_GET_SREGS, &r);

	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < S_COUNT; i++)
		seg_from_kvm(&s->seg[i], kvm_seg(&r, i));
	s->gdtr = (struct cpu_dtable){r.gdt.base, r.gdt.limit};
	s->idtr = (struct cpu_dtable){r.idt.base, r.idt.limit};
	s->cr0 = r.cr0;
	s->cr2 = r.cr2;
	s->cr3 = r.cr3;
	s->cr4 = r.cr4;
	s->cr8 = r.cr8;
	s->efer = r.efer;
	s->apic_base = r.apic_base;
	return 0;
}

static int sregs_set(struct kvm_vcpu *kv, const struct cpu_state *s)
{
	struct kvm_sregs r;
	int rc = kvm_ioctl(kv->fd, KVM_GET_SREGS, &r); /* keeps the interrupt bitmap's format */

	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < S_COUNT; i++)
		seg_to_kvm(kvm_seg(&r, i), &s->seg[i]);
	r.gdt = (struct kvm_dtable){.base = s->gdtr.base, .limit = s->gdtr.limit};
	r.idt = (struct kvm_dtable){.base = s->idtr.base, .limit = s->idtr.limit};
	r.cr0 = s->cr0;
	r.cr2 = s->cr2;
	r.cr3 = s->cr3;
	r.cr4 = s->cr4;
	r.cr8 = s->cr8;
	r.efer = s->efer;
	r.apic_base = s->apic_base;
	memset(r.interrupt_bitmap, 0, sizeof(r.interrupt_bitmap));
	return kvm_ioctl(kv->fd, KVM_SET_SREGS, &r);
}

/* KVM's struct kvm_regs begins rax rbx rcx rdx rsi rdi rsp rbp r8 ... r15. */
static const uint8_t kvm_gpr_order[16] = {R_RAX, R_RBX, R_RCX, R_RDX, R_RSI, R_RDI, R_RSP, R_RBP,
					  R_R8,	 R_R9,	R_R10, R_R11, R_R12, R_R13, R_R14, R_R15};

static int regs_get(struct kvm_vcpu *kv, struct cpu_state *s)
{
	struct kvm_regs r;
	uint64_t gpr[16];
	int rc = kvm_ioctl(kv->fd, KVM_GET_REGS, &r);

	if (rc < 0)
		return rc;
	memcpy(gpr, &r, sizeof(gpr));
	for (unsigned i = 0; i < 16; i++)
		s->gpr[kvm_gpr_order[i]] = gpr[i];
	s->rip = r.rip;
	s->rflags = r.rflags;
	return 0;
}

static int regs_set(struct kvm_vcpu *kv, const struct cpu_state *s)
{
	struct kvm_regs r = {.rip = s->rip, .rflags = s->rflags | 2};
	uint64_t gpr[16];

	for (unsigned i = 0; i < 16; i++)
		gpr[i] = s->gpr[kvm_gpr_order[i]];
	memcpy(&r, gpr, sizeof(gpr));
	return kvm_ioctl(kv->fd, KVM_SET_REGS, &r);
}

/* KVM_GET_XSAVE and SET also work where the CPU has no XSAVE: then the area holds FXSAVE's part. */
static int fpu_get(struct kvm_vcpu *kv, struct cpu_state *s)
{
	struct kvm_xcrs x = {0};
	struct kvm_xsave *area = calloc(1, KVM_XSAVE_SIZE);
	int rc;

	if (!area)
		return -ENOMEM;
	rc = kvm_ioctl(kv->fd, KVM_GET_XSAVE, area);
	if (rc == 0)
		memcpy(s->xsave, area, CPU_XSAVE_SIZE);
	free(area);
	if (rc == 0 && kv->v.accel->cfg.model->xcr0_mask)
		rc = kvm_ioctl(kv->fd, KVM_GET_XCRS, &x);
	if (rc == 0)
		s->xcr0 = x.nr_xcrs ? x.xcrs[0].value : 1;
	return rc;
}

static int fpu_set(struct kvm_vcpu *kv, const struct cpu_state *s)
{
	struct kvm_xcrs x = {.nr_xcrs = 1, .xcrs[0] = {.xcr = 0, .value = s->xcr0 ? s->xcr0 : 1}};
	struct kvm_xsave *area;
	int rc = 0;

	/* A guest without XSAVE has no XCR0 to set. */
	if (kv->v.accel->cfg.model->xcr0_mask)
		rc = kvm_ioctl(kv->fd, KVM_SET_XCRS, &x);
	if (rc < 0)
		return rc;
	area = calloc(1, KVM_XSAVE_SIZE);
	if (!area)
		return -ENOMEM;
	memcpy(area, s->xsave, CPU_XSAVE_SIZE);
	rc = kvm_ioctl(kv->fd, KVM_SET_XSAVE, area);
	free(area);
	return rc;
}

static int events_get(struct kvm_vcpu *kv, struct cpu_state *s)
{
	struct kvm_vcpu_events e = {0};
	struct kvm_mp_state mp;
	int rc = kvm_ioctl(kv->fd, KVM_GET_VCPU_EVENTS, &e);

	if (rc == 0)
		rc = kvm_ioctl(kv->fd, KVM_GET_MP_STATE, &mp);
	if (rc < 0)
		return rc;
	s->int_shadow = e.interrupt.shadow;
	/* One that did not get in is as if it had not been sent into the guest. */
	s->nmi_blocked = e.nmi.masked && !e.nmi.injected;
	s->nmi_pending = e.nmi.pending || e.nmi.injected;
	s->exc_pending = e.exception.injected;
	s->exc_vector = e.exception.nr;
	s->exc_has_code = e.exception.has_error_code;
	s->exc_code = e.exception.error_code;
	s->sipi_vector = (uint8_t)e.sipi_vector;
	s->mp_state = mp.mp_state == KVM_MP_STATE_RUNNABLE	  ? MP_RUNNING
		      : mp.mp_state == KVM_MP_STATE_HALTED	  ? MP_HALTED
		      : mp.mp_state == KVM_MP_STATE_INIT_RECEIVED ? MP_WAIT_SIPI
		      : mp.mp_state == KVM_MP_STATE_SIPI_RECEIVED ? MP_RUNNING
								  : MP_WAIT_INIT;
	return 0;
}

static int events_set(struct kvm_vcpu *kv, const struct cpu_state *s)
{
	static const uint32_t mp_of[] = {[MP_RUNNING] = KVM_MP_STATE_RUNNABLE,
					 [MP_HALTED] = KVM_MP_STATE_HALTED,
					 [MP_WAIT_INIT] = KVM_MP_STATE_UNINITIALIZED,
					 [MP_WAIT_SIPI] = KVM_MP_STATE_INIT_RECEIVED};
	struct kvm_vcpu_events e = {.flags = KVM_VCPUEVENT_VALID_NMI_PENDING | KVM_VCPUEVENT_VALID_SIPI_VECTOR |
					     KVM_VCPUEVENT_VALID_SHADOW,
				    .interrupt.shadow = s->int_shadow,
				    .nmi = {.masked = s->nmi_blocked, .pending = s->nmi_pending},
				    .exception = {.injected = s->exc_pending,
						  .nr = s->exc_vector,
						  .has_error_code = s->exc_has_code,
						  .error_code = s->exc_code},
				    .sipi_vector = s->sipi_vector};
	struct kvm_mp_state mp = {.mp_state = mp_of[s->mp_state]};
	int rc = kvm_ioctl(kv->fd, KVM_SET_MP_STATE, &mp);

	return rc < 0 ? rc : kvm_ioctl(kv->fd, KVM_SET_VCPU_EVENTS, &e);
}

static int debug_get(struct kvm_vcpu *kv, struct cpu_state *s)
{
	struct kvm_debugregs d = {0};
	int rc = kvm_ioctl(kv->fd, KVM_GET_DEBUGREGS, &d);

	if (rc < 0)
		return rc;
	memcpy(s->dr, d.db, sizeof(d.db));
	s->dr[6] = d.dr6;
	s->dr[7] = d.dr7;
	return 0;
}

static int debug_set(struct kvm_vcpu *kv, const struct cpu_state *s)
{
	struct kvm_debugregs d = {.dr6 = s->dr[6], .dr7 = s->dr[7]};

	memcpy(d.db, s->dr, sizeof(d.db));
	return kvm_ioctl(kv->fd, KVM_SET_DEBUGREGS, &d);
}

static int said(struct vcpu *v, const char *what, int rc)
{
	if (rc < 0)
		log_error("vCPU %u: KVM refused its %s: %s", v->index, what, strerror(-rc));
	return rc;
}

int kvm_get_state(struct vcpu *v, struct cpu_state *s)
{
	struct kvm_vcpu *kv = kvm_vcpu_of(v);
	struct msr_list l = {.head.nmsrs = NMSRS};
	int rc;

	memset(s, 0, sizeof(*s));
	for (size_t i = 0; i < NMSRS; i++)
		l.entry[i].index = msr_table[i].index;
	if ((rc = said(v, "registers", regs_get(kv, s))) < 0 ||
	    (rc = said(v, "system registers", sregs_get(kv, s))) < 0 ||
	    (rc = said(v, "FPU state", fpu_get(kv, s))) < 0 || (rc = said(v, "events", events_get(kv, s))) < 0 ||
	    (rc = said(v, "debug registers", debug_get(kv, s))) < 0 ||
	    (rc = said(v, "MSRs", msrs_transfer(kv, KVM_GET_MSRS, &l, refused_silently))) < 0)
		return rc;
	for (size_t i = 0; i < NMSRS; i++)
		*msr_field(s, i) = l.entry[i].data;
	return 0;
}

int kvm_set_state(struct vcpu *v, const struct cpu_state *s)
{
	struct kvm_vcpu *kv = kvm_vcpu_of(v);
	struct msr_list l = {.head.nmsrs = NMSRS};
	int rc;

	for (size_t i = 0; i < NMSRS; i++) {
		l.entry[i].index = msr_table[i].index;
		l.entry[i].data = *msr_field((struct cpu_state *)(uintptr_t)s, i);
	}
	/* System registers first: they say which mode the rest belongs to. */
	if ((rc = said(v, "system registers", sregs_set(kv, s))) < 0 ||
	    (rc = said(v, "registers", regs_set(kv, s))) < 0 || (rc = said(v, "FPU state", fpu_set(kv, s))) < 0 ||
	    (rc = said(v, "MSRs", msrs_transfer(kv, KVM_SET_MSRS, &l, refused_write))) < 0 ||
	    (rc = said(v, "debug registers", debug_set(kv, s))) < 0 || (rc = said(v, "events", events_set(kv, s))) < 0)
		return rc;
	return 0;
}

/*
 * What comes before kvm_set_state at a reset. The register page of the LAPIC has
 * a layout that depends on its mode, so it goes back to xAPIC mode first. CR0 gets
 * a value that the reset state does not have: after a triple fault without paging
 * Linux 6.1 on AMD runs on with a cleared nested page table root (the VMCB was
 * cleared, and only a change of CR0, CR4 or EFER loads it again).
 */
int kvm_vcpu_reset(struct kvm_vcpu *kv)
{
	struct kvm_sregs r;
	int rc = kvm_ioctl(kv->fd, KVM_GET_SREGS, &r);

	if (rc < 0)
		return rc;
	r.apic_base = 0xfee00800 | (kv->v.index == 0 ? BIT(8) : 0);
	r.cr0 = CR0_ET;
	r.cr4 = r.efer = 0;
	r.cs.l = 0;
	rc = kvm_ioctl(kv->fd, KVM_SET_SREGS, &r);
	return rc < 0 ? rc : kvm_ioctl(kv->fd, KVM_SET_LAPIC, &kv->lapic_reset);
}
