/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of struct cpu_saved. XSAVE: Intel SDM volume 1, chapter 13. Any thread, on its own object. */
#include "cpu/saved.h"

#include <cpuid.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "cpu/model.h"

#define MAX_PARTS     16 /* components 2 to 17 */
#define MAX_PART_SIZE 1024
#define LEGACY_SIZE   416
#define FX_MXCSR      24
#define FX_MXCSR_MASK 28
#define XSTATE_BV     512
#define HEADER_SIZE   64
#define MXCSR_INIT    0x1f80
#define MXCSR_BITS    0xffff

/* One component of an XSAVE image from number 2 on. */
struct xsave_part {
	uint32_t number, size;
	uint8_t data[MAX_PART_SIZE];
};

static const struct state_field part_fields[] = {STATE_INT_MAX(struct xsave_part, number, MAX_PARTS + 1),
						 STATE_INT_MAX(struct xsave_part, size, MAX_PART_SIZE),
						 STATE_RAW(struct xsave_part, data),
						 {0}};

static const struct state_field segment_fields[] = {
    STATE_INT(struct cpu_segment, sel),
    STATE_INT_MAX(struct cpu_segment, type, 15),
    STATE_INT_MAX(struct cpu_segment, dpl, 3),
    STATE_INT(struct cpu_segment, s),
    STATE_INT(struct cpu_segment, present),
    STATE_INT(struct cpu_segment, l),
    STATE_INT(struct cpu_segment, db),
    STATE_INT(struct cpu_segment, g),
    STATE_INT(struct cpu_segment, avl),
    STATE_INT(struct cpu_segment, unusable),
    STATE_INT(struct cpu_segment, limit),
    STATE_INT(struct cpu_segment, base),
    {0},
};
static const struct state_field dtable_fields[] = {
    STATE_INT(struct cpu_dtable, base), STATE_INT(struct cpu_dtable, limit), {0}};

static const struct state_field cpu_fields[] = {
    STATE_INTS(struct cpu_state, gpr),
    STATE_INT(struct cpu_state, rip),
    STATE_INT(struct cpu_state, rflags),
    STATE_STRUCTS(struct cpu_state, seg, segment_fields),
    STATE_ONE(struct cpu_state, gdtr, dtable_fields),
    STATE_ONE(struct cpu_state, idtr, dtable_fields),
    STATE_INT(struct cpu_state, cr0),
    STATE_INT(struct cpu_state, cr2),
    STATE_INT(struct cpu_state, cr3),
    STATE_INT(struct cpu_state, cr4),
    STATE_INT_MAX(struct cpu_state, cr8, 15),
    STATE_INT(struct cpu_state, efer),
    STATE_INT(struct cpu_state, xcr0),
    STATE_INT(struct cpu_state, xss),
    STATE_INTS(struct cpu_state, dr),
    STATE_INT(struct cpu_state, star),
    STATE_INT(struct cpu_state, lstar),
    STATE_INT(struct cpu_state, cstar),
    STATE_INT(struct cpu_state, sfmask),
    STATE_INT(struct cpu_state, kernel_gs_base),
    STATE_INT(struct cpu_state, sysenter_cs),
    STATE_INT(struct cpu_state, sysenter_esp),
    STATE_INT(struct cpu_state, sysenter_eip),
    STATE_INT(struct cpu_state, pat),
    STATE_INT(struct cpu_state, apic_base),
    STATE_INT(struct cpu_state, tsc_aux),
    STATE_INT(struct cpu_state, tsc_adjust),
    STATE_INT(struct cpu_state, misc_enable),
    STATE_INT(struct cpu_state, spec_ctrl),
    STATE_INT(struct cpu_state, mtrr_def),
    STATE_INTS(struct cpu_state, mtrr_fixed),
    STATE_INTS(struct cpu_state, mtrr_phys),
    STATE_INT(struct cpu_state, kvm_system_time),
    STATE_INT(struct cpu_state, kvm_wall_clock),
    STATE_INT(struct cpu_state, kvm_async_pf),
    STATE_INT(struct cpu_state, kvm_steal_time),
    STATE_INT(struct cpu_state, kvm_poll_control),
    STATE_INT(struct cpu_state, kvm_eoi),
    STATE_INT(struct cpu_state, mcg_status),
    STATE_INT(struct cpu_state, mcg_ctl),
    STATE_INT_MAX(struct cpu_state, mp_state, MP_WAIT_SIPI),
    STATE_INT(struct cpu_state, sipi_vector),
    STATE_INT(struct cpu_state, int_shadow),
    STATE_INT(struct cpu_state, nmi_blocked),
    STATE_INT(struct cpu_state, nmi_pending),
    {0},
};

static const struct state_field saved_fields[] = {
    STATE_ONE(struct cpu_saved, s, cpu_fields),
    STATE_INT(struct cpu_saved, requests),
    STATE_INT(struct cpu_saved, requested_sipi),
    STATE_RAW(struct cpu_saved, legacy),
    STATE_LIST(struct cpu_saved, part, nparts, MAX_PARTS, part_fields),
    {0},
};

void cpu_saved_free(struct cpu_saved *c)
{
	free(c->part);
	c->part = NULL;
	c->nparts = 0;
}

/* Where the host has component n; false: nowhere in a cpu_state. */
static bool component(unsigned n, uint32_t *offset, uint32_t *size)
{
	uint32_t a, b, c, d;

	if (!__get_cpuid_count(0xd, n, &a, &b, &c, &d) || !a || (c & 1) || b < XSTATE_BV + HEADER_SIZE ||
	    a > MAX_PART_SIZE || b > CPU_XSAVE_SIZE - a)
		return false;
	*offset = b;
	*size = a;
	return true;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static int saved_pre_save(void *obj, struct err *err)
{
	struct cpu_saved *c = obj;
	const uint64_t bv = ld64le(c->s.xsave + XSTATE_BV);
	uint32_t at, size;

	cpu_saved_free(c);
	c->part = calloc(MAX_PARTS, sizeof(*c->part));
	if (!c->part)
		return err_set(err, -ENOMEM, "out of memory");
	memcpy(c->legacy, c->s.xsave, LEGACY_SIZE);
	st32le(c->legacy + FX_MXCSR_MASK, 0); /* the host's */
	if (!(bv & 1)) {
		memset(c->legacy, 0, FX_MXCSR);
		st16le(c->legacy, 0x37f);
		memset(c->legacy + 32, 0, 128);
	}
	if (!(bv & 2))
		memset(c->legacy + 160, 0, LEGACY_SIZE - 160);
	for (unsigned n = 2; n < 2 + MAX_PARTS; n++)
		if (bv & BIT(n) && component(n, &at, &size) && !all_zero(c->s.xsave + at, size)) {
			struct xsave_part *p = &c->part[c->nparts++];

			p->number = n;
			p->size = size;
			memcpy(p->data, c->s.xsave + at, size);
		}
	return 0;
}

static int saved_post_load(void *obj, struct err *err)
{
	struct cpu_saved *c = obj;
	uint64_t bv = 3;

	memset(c->s.xsave, 0, sizeof(c->s.xsave));
	memcpy(c->s.xsave, c->legacy, LEGACY_SIZE);
	st32le(c->s.xsave + FX_MXCSR, ld32le(c->legacy + FX_MXCSR) & MXCSR_BITS);
	for (uint32_t i = 0; i < c->nparts; i++) {
		const struct xsave_part *p = &c->part[i];
		uint32_t at, size;

		if (!component(p->number, &at, &size) || size != p->size)
			return err_set(err, -ENOTSUP,
				       "the guest uses vector state (XSAVE component %u) that this host's CPU has not",
				       p->number);
		memcpy(c->s.xsave + at, p->data, size);
		bv |= BIT(p->number);
	}
	st64le(c->s.xsave + XSTATE_BV, bv);
	return 0;
}

const struct state cpu_saved_state = {.name = "cpu",
				      .version = 1,
				      .min_version = 1,
				      .fields = saved_fields,
				      .pre_save = saved_pre_save,
				      .post_load = saved_post_load};

/* ---- what cannot be --------------------------------------------------------------- */

#define RFLAGS_DEFINED 0x3f7fd7ull
#define XCR0_512       (BIT(5) | BIT(6) | BIT(7))

static bool xcr0_possible(uint64_t v, const struct cpu_model *m)
{
	if (!m->xcr0_mask) /* without XSAVE nobody looks at it */
		return v == 1 || v == 0;
	return (v & 1) && !(v & ~m->xcr0_mask) && (!(v & BIT(2)) || (v & BIT(1))) &&
	       (!(v & XCR0_512) || ((v & XCR0_512) == XCR0_512 && (v & BIT(2))));
}

int cpu_state_check(const struct cpu_state *s, const struct cpu_model *m, struct err *err)
{
	const bool lma = s->efer & EFER_LMA;
	const uint64_t bv = ld64le(s->xsave + XSTATE_BV);
	const char *wrong = NULL;

	if (s->cr0 >> 32 || ((s->cr0 & CR0_PG) && !(s->cr0 & CR0_PE)) || ((s->cr0 & CR0_NW) && !(s->cr0 & CR0_CD)))
		wrong = "CR0";
	else if (s->efer & ~(EFER_SCE | EFER_LME | EFER_LMA | EFER_NXE | BIT(21)) ||
		 lma != ((s->efer & EFER_LME) && (s->cr0 & CR0_PG)))
		wrong = "EFER";
	else if ((lma && !(s->cr4 & CR4_PAE)) || ((s->cr4 & CR4_PCIDE) && !lma))
		wrong = "CR4";
	else if (!xcr0_possible(s->xcr0, m) || bv & ~(s->xcr0 | 3))
		wrong = "XCR0";
	else if (s->rflags & ~RFLAGS_DEFINED || ((s->rflags & FLAG_VM) && (lma || !(s->cr0 & CR0_PE))))
		wrong = "RFLAGS";
	else if (s->seg[S_CS].l && lma && s->seg[S_CS].db)
		wrong = "CS";
	else if (s->dr[6] >> 32 || s->dr[7] >> 32)
		wrong = "DR6 or DR7";
	return wrong ? err_set(err, -EINVAL,
			       "its %s has a value this CPU cannot have: another CPU model, or the snapshot is "
			       "corrupted",
			       wrong)
		     : 0;
}
