/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The CPU model in a snapshot: a guest has read its CPUID and goes on with it, so the
 * table comes with it, if this machine's CPU can do all that it promises. Main thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "cpu/model.h"

#define NAMES_MAX 8 /* in an error */

static const struct state_field entry_fields[] = {
    STATE_INT(struct cpuid_entry, leaf),	STATE_INT(struct cpuid_entry, subleaf),
    STATE_INT(struct cpuid_entry, has_subleaf), STATE_INT(struct cpuid_entry, eax),
    STATE_INT(struct cpuid_entry, ebx),		STATE_INT(struct cpuid_entry, ecx),
    STATE_INT(struct cpuid_entry, edx),		{0}};

static const struct state_field model_fields[] = {
    STATE_RAW(struct cpu_model, name),
    STATE_INT_MAX(struct cpu_model, n, CPU_MODEL_MAX_ENTRIES),
    STATE_STRUCTS(struct cpu_model, entry, entry_fields),
    STATE_INT(struct cpu_model, xcr0_mask),
    STATE_INT_MAX(struct cpu_model, phys_bits, 52),
    STATE_INT(struct cpu_model, kvmclock),
    {0},
};

static int model_pre_save(void *obj, struct err *err)
{
	struct cpu_model *m = obj;
	const size_t len = strlen(m->name);

	/* Nothing of the memory behind them goes to the file. */
	memset(m->name + len, 0, sizeof(m->name) - len);
	memset(m->entry + m->n, 0, (CPU_MODEL_MAX_ENTRIES - m->n) * sizeof(m->entry[0]));
	return 0;
}

static int model_post_load(void *obj, struct err *err)
{
	struct cpu_model *m = obj;

	m->name[sizeof(m->name) - 1] = 0;
	for (char *p = m->name; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	return 0;
}

const struct state cpu_model_state = {.name = "cpu-model",
				      .version = 1,
				      .min_version = 1,
				      .fields = model_fields,
				      .pre_save = model_pre_save,
				      .post_load = model_post_load};

static const struct cpuid_entry *find(const struct cpu_model *m, uint32_t leaf, uint32_t subleaf)
{
	for (unsigned i = 0; i < m->n; i++)
		if (m->entry[i].leaf == leaf && m->entry[i].subleaf == subleaf)
			return &m->entry[i];
	return NULL;
}

static int check_features(const struct cpu_model *here, const struct cpu_model *saved, struct err *err)
{
	char names[256] = "";
	unsigned n = 0;
	size_t at = 0;

	for (const struct cpu_feature *f = cpu_feature_table; f->name; f++) {
		if (!cpu_model_has(saved, f->name) || cpu_model_has(here, f->name))
			continue;
		if (n++ < NAMES_MAX)
			at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%.24s", at ? ", " : "", f->name);
	}
	if (!n)
		return 0;
	return err_set(
	    err, -ENOTSUP,
	    "the guest's CPU (%s) has %u features that this machine's (%s) has not (%s%s): take the snapshot "
	    "with a -cpu that both can give",
	    saved->name, n, here->name, names, n > NAMES_MAX ? ", ..." : "");
}

/* A guest's own XSAVE images have the layout that its CPUID told. */
static int check_xsave(const struct cpu_model *here, const struct cpu_model *saved, struct err *err)
{
	if (saved->xcr0_mask & ~here->xcr0_mask)
		return err_set(err, -ENOTSUP,
			       "the guest may use vector state (XCR0 0x%llx) that this machine's CPU has not",
			       (unsigned long long)(saved->xcr0_mask & ~here->xcr0_mask));
	for (uint32_t i = 2; i < 63; i++) {
		const struct cpuid_entry *a = find(saved, 0xd, i), *b = find(here, 0xd, i);

		if (!(saved->xcr0_mask & BIT(i)))
			continue;
		if (!a || !b || a->eax != b->eax || a->ebx != b->ebx)
			return err_set(
			    err, -ENOTSUP,
			    "this host's CPU keeps vector state (XSAVE component %u) in another place than the "
			    "guest's does: take the snapshot without it, by -cpu MODEL,-FEATURE",
			    i);
	}
	return 0;
}

int cpu_model_adopt(struct cpu_model *m, const struct cpu_model *saved, struct err *err)
{
	struct cpu_model next = *saved;
	int rc = check_features(m, saved, err);

	if (rc == 0)
		rc = check_xsave(m, saved, err);
	if (rc == 0 && saved->phys_bits > m->phys_bits)
		rc = err_set(err, -ENOTSUP, "the guest's CPU has %u physical address bits, this machine's %u",
			     saved->phys_bits, m->phys_bits);
	if (rc == 0 && saved->kvmclock && !m->kvmclock)
		rc = err_set(err, -ENOTSUP, "the guest uses kvmclock, which this machine's CPU model lacks");
	if (rc < 0)
		return rc;
	next.sockets = m->sockets;
	next.cores = m->cores;
	next.threads = m->threads;
	*m = next;
	return 0;
}
