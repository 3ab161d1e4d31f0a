/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Builds a machine's CPUID table from -cpu and from what the engine supports,
 * and answers CPUID for one vCPU. The feature words are handled alike by a
 * table; leaves that describe caches and topology are made here from -smp.
 * Intel SDM volume 2A, CPUID; AMD64 APM volume 3, appendix E.
 *
 * The table is built once by the main thread and only read afterwards.
 */
#include "cpu/model.h"

#include <cpuid.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/type.h"
#include "base/util.h"
#include "cpu/model_int.h"
#include "cpu/state.h"

enum { EAX, EBX, ECX, EDX };

/* The words feature bits live in. Bits without a name are never advertised. */
struct feature_word {
	uint32_t leaf, subleaf;
	uint8_t reg;
};
static const struct feature_word word_table[] = {
    {1, 0, EDX},	  {1, 0, ECX},		{7, 0, EBX},	      {7, 0, ECX},	    {7, 0, EDX},
    {7, 1, EAX},	  {6, 0, EAX},		{0xd, 1, EAX},	      {0x80000001, 0, EDX}, {0x80000001, 0, ECX},
    {0x80000007, 0, EDX}, {0x80000008, 0, EBX}, {0x8000000a, 0, EDX}, {0x80000021, 0, EAX}, {0x40000001, 0, EAX},
};
#define WORDS ARRAY_SIZE(word_table)

/* Of max and host by default off, though the engine may have them: nested virtualization must be asked for. */
static const char *const opt_in_flags[] = {"svm", "vmx"};
/* State or behaviour that Kelvin cannot give a guest, whatever the engine says. */
static const char *const never_flags[] = {
    "sgx", "sgxlc", "intel-pt", "mpx",	"arch-lbr", "amx-tile", "amx-bf16", "amx-int8",	      "amx-fp16",
    "xfd", "pks",   "ospke",	"pdcm", "ds",	    "dtes64",	"monitor",  "bus-lock-detect"};

/* Every named model gets these where the engine has them; their absence is not worth a line. */
static const char extras[] =
    "hypervisor x2apic arat invtsc tsc-deadline tsc-adjust kvmclock kvm-nopiodelay kvm-asyncpf "
    "kvm-steal-time kvm-pv-eoi kvm-pv-unhalt kvm-pv-tlb-flush kvm-pv-ipi kvm-poll-control "
    "kvm-pv-sched-yield kvm-asyncpf-int kvmclock-stable-bit";

struct model_build {
	struct cpu_model *m;
	const struct cpuid_entry *sup;
	unsigned nsup;
	uint32_t have[WORDS], /* engine */
	    want[WORDS],      /* asked for */
	    named[WORDS];     /* bits that have a name */
	char vendor[13], id[49];
	uint32_t family, model, stepping, phys_bits;
	bool expose_kvm, enforce;
	uint32_t level, xlevel;
};

static const struct cpuid_entry *entry_find(const struct cpuid_entry *e, unsigned n, uint32_t leaf, uint32_t subleaf)
{
	for (unsigned i = 0; i < n; i++)
		if (e[i].leaf == leaf && (!e[i].has_subleaf || e[i].subleaf == subleaf))
			return &e[i];
	return NULL;
}

static uint32_t entry_reg(const struct cpuid_entry *e, uint8_t reg)
{
	const uint32_t r[4] = {e->eax, e->ebx, e->ecx, e->edx};

	return r[reg];
}

static uint32_t sup_reg(const struct model_build *b, uint32_t leaf, uint32_t subleaf, uint8_t reg)
{
	const struct cpuid_entry *e = entry_find(b->sup, b->nsup, leaf, subleaf);

	return e ? entry_reg(e, reg) : 0;
}

static const struct cpu_feature *feature_find(const char *name, size_t len)
{
	for (const struct cpu_feature *f = cpu_feature_table; f->name; f++)
		if (strlen(f->name) == len && memcmp(f->name, name, len) == 0)
			return f;
	return NULL;
}

static size_t word_index(const struct cpu_feature *f)
{
	for (size_t w = 0; w < WORDS; w++)
		if (word_table[w].leaf == f->leaf && word_table[w].subleaf == f->subleaf && word_table[w].reg == f->reg)
			return w;
	BUG("feature '%s' is in no known word", f->name);
}

static void bits_change(uint32_t words[WORDS], const char *names, bool on)
{
	while (names && *names) {
		size_t len = strcspn(names, " ");
		const struct cpu_feature *f = feature_find(names, len);

		if (len) {
			BUG_ON(!f);
			if (on)
				words[word_index(f)] |= 1u << f->bit;
			else
				words[word_index(f)] &= ~(1u << f->bit);
		}
		names += len + (names[len] == ' ');
	}
}

static bool want_flag(const struct model_build *b, const char *name)
{
	const struct cpu_feature *f = feature_find(name, strlen(name));

	return b->want[word_index(f)] & 1u << f->bit;
}

/* ---- names ----------------------------------------------------------------- */

static const struct cpu_named_model *named_find(const char *name)
{
	char base[64];
	size_t len = strlen(name);

	for (int pass = 0; pass < 2; pass++) {
		for (const struct cpu_named_model *n = cpu_named_model_table; n->name; n++)
			if (strcmp(n->name, name) == 0)
				return n;
		/* Versions ("EPYC-v2") differ in details of migration that do not matter here. */
		if (len < 4 || len >= sizeof(base) || name[len - 3] != '-' || name[len - 2] != 'v')
			return NULL;
		memcpy(base, name, len - 3);
		base[len - 3] = 0;
		name = base;
		len -= 3;
	}
	return NULL;
}

static void named_flags(uint32_t words[WORDS], const struct cpu_named_model *n)
{
	if (n->parent)
		named_flags(words, named_find(n->parent));
	bits_change(words, n->add, true);
	bits_change(words, n->drop, false);
}

static int unknown_model(const char *name, struct err *err)
{
	const char *names[80];
	size_t n = 0;
	const char *near;

	names[n++] = "max";
	names[n++] = "host";
	for (const struct cpu_named_model *t = cpu_named_model_table; t->name && n < ARRAY_SIZE(names); t++)
		if (t->name[0] != '.')
			names[n++] = t->name;
	near = text_nearest(name, names, n);
	return err_set(err, -EINVAL, "-cpu '%s': no such CPU model%s%s%s; -cpu help lists them", name,
		       near ? ", did you mean '" : "", near ? near : "", near ? "'" : "");
}

/* KVM says zeros for the brand string: it is no feature. Then it is this processor's own. */
static void brand_of_host(struct model_build *b)
{
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t r[4];
		const struct cpuid_entry *e = entry_find(b->sup, b->nsup, 0x80000002 + i, 0);

		__cpuid(0x80000002 + i, r[0], r[1], r[2], r[3]);
		memcpy(b->id + 16 * i, e && (e->eax | e->ebx) ? &e->eax : r, 16);
	}
}

static int base_model(struct model_build *b, const char *name, struct err *err)
{
	const struct cpu_named_model *n;
	uint32_t sig = sup_reg(b, 1, 0, EAX), vendor[3];

	vendor[0] = sup_reg(b, 0, 0, EBX);
	vendor[1] = sup_reg(b, 0, 0, EDX);
	vendor[2] = sup_reg(b, 0, 0, ECX);
	memcpy(b->vendor, vendor, 12);
	b->phys_bits = MIN(40u, sup_reg(b, 0x80000008, 0, EAX) & 0xff);
	if (strcmp(name, "max") == 0 || strcmp(name, "host") == 0) {
		memcpy(b->want, b->have, sizeof(b->want));
		for (size_t i = 0; i < ARRAY_SIZE(opt_in_flags); i++)
			bits_change(b->want, opt_in_flags[i], false);
		b->family = (sig >> 8 & 15) == 15 ? 15 + (sig >> 20 & 255) : sig >> 8 & 15;
		b->model = (sig >> 4 & 15) | (sig >> 12 & 0xf0);
		b->stepping = sig & 15;
		b->phys_bits = sup_reg(b, 0x80000008, 0, EAX) & 0xff;
		brand_of_host(b);
		return 0;
	}
	n = named_find(name);
	if (!n || n->name[0] == '.')
		return unknown_model(name, err);
	named_flags(b->want, n);
	bits_change(b->want, extras, true);
	for (size_t w = 0; w < WORDS; w++) {
		uint32_t extra[WORDS] = {0};

		bits_change(extra, extras, true);
		b->want[w] &= ~(extra[w] & ~b->have[w]);
	}
	b->family = n->family;
	b->model = n->model;
	b->stepping = n->stepping;
	snprintf(b->id, sizeof(b->id), "%s", n->id);
	return 0;
}

/* ---- -cpu NAME,+flag,-flag,key=value -------------------------------------------- */

static int parse_bool(const char *key, const char *value, bool *out, struct err *err)
{
	if (!value || !strcmp(value, "on") || !strcmp(value, "yes") || !strcmp(value, "true"))
		*out = true;
	else if (!strcmp(value, "off") || !strcmp(value, "no") || !strcmp(value, "false"))
		*out = false;
	else
		return err_set(err, -EINVAL, "-cpu: '%s=%s': expected on or off", key, value);
	return 0;
}

static int parse_u32(const char *key, const char *value, uint32_t max, uint32_t *out, struct err *err)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = value ? strtoul(value, &end, 0) : 0;
	if (!value || !*value || *end || errno || v > max)
		return err_set(err, -EINVAL, "-cpu: '%s=%s': expected a number up to %u", key, value ? value : "", max);
	*out = (uint32_t)v;
	return 0;
}

static int parse_flag(struct model_build *b, const char *name, bool on, struct err *err)
{
	const struct cpu_feature *f = feature_find(name, strlen(name));
	const char *names[512], *near;
	size_t n = 0;

	if (f) {
		if (on)
			b->want[word_index(f)] |= 1u << f->bit;
		else
			b->want[word_index(f)] &= ~(1u << f->bit);
		return 0;
	}
	for (f = cpu_feature_table; f->name && n < ARRAY_SIZE(names); f++)
		names[n++] = f->name;
	near = text_nearest(name, names, n);
	return err_set(err, -EINVAL, "-cpu: no CPU feature or property '%s'%s%s%s; -cpu help lists them", name,
		       near ? ", did you mean '" : "", near ? near : "", near ? "'" : "");
}

static int parse_property(struct model_build *b, const char *key, const char *value, struct err *err)
{
	bool on;
	static const struct {
		const char *name;
		size_t offset;
		uint32_t max;
	} numbers[] = {
	    {"family", offsetof(struct model_build, family), 0x10e},
	    {"model", offsetof(struct model_build, model), 255},
	    {"stepping", offsetof(struct model_build, stepping), 15},
	    {"phys-bits", offsetof(struct model_build, phys_bits), 52},
	    {"level", offsetof(struct model_build, level), 0x1f},
	    {"xlevel", offsetof(struct model_build, xlevel), 0x80000021},
	};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (strcmp(key, numbers[i].name) == 0)
			return parse_u32(key, value, numbers[i].max,
					 (uint32_t *)(void *)((char *)b + numbers[i].offset), err);
	if (strcmp(key, "vendor") == 0) {
		if (!value || strlen(value) != 12)
			return err_set(err, -EINVAL, "-cpu: 'vendor=%s': expected 12 characters", value ? value : "");
		memcpy(b->vendor, value, 12);
		return 0;
	}
	if (strcmp(key, "model-id") == 0) {
		memset(b->id, 0, sizeof(b->id));
		snprintf(b->id, sizeof(b->id), "%s", value ? value : "");
		return 0;
	}
	if (strcmp(key, "kvm") == 0)
		return parse_bool(key, value, &b->expose_kvm, err);
	if (strcmp(key, "enforce") == 0)
		return parse_bool(key, value, &b->enforce, err);
	/* Always so here, or without a meaning for one host. */
	if (!strcmp(key, "check") || !strcmp(key, "migratable") || !strcmp(key, "host-phys-bits") ||
	    !strcmp(key, "l3-cache") || !strcmp(key, "x-force-features"))
		return parse_bool(key, value, &on, err);
	if (!strncmp(key, "hv-", 3) || !strncmp(key, "hv_", 3))
		return err_set(err, -EINVAL, "-cpu: '%s': Hyper-V enlightenments are not supported; leave it out", key);
	if (strcmp(key, "pmu") == 0) {
		int rc = parse_bool(key, value, &on, err);

		return rc || !on ? rc : err_set(err, -EINVAL, "-cpu: 'pmu=on': there is no virtual PMU; leave it out");
	}
	on = true;
	if (value) {
		int rc = parse_bool(key, value, &on, err);

		if (rc < 0)
			return rc;
	}
	return parse_flag(b, key, on, err);
}

static int parse_text(struct model_build *b, char *text, const char *def, struct err *err)
{
	char *save = NULL, *tok = strtok_r(text, ",", &save);
	const char *name = tok ? tok : def;
	int rc;

	if (strcmp(name, "base") == 0) /* QEMU's empty model: all features come from flags */
		name = "kvm64";
	snprintf(b->m->name, sizeof(b->m->name), "%s", name);
	rc = base_model(b, name, err);
	while (rc == 0 && (tok = strtok_r(NULL, ",", &save))) {
		char *value = strchr(tok, '=');

		if (tok[0] == '+' || tok[0] == '-') {
			rc = parse_flag(b, tok + 1, tok[0] == '+', err);
			continue;
		}
		if (value)
			*value++ = 0;
		rc = parse_property(b, tok, value, err);
	}
	return rc;
}

/* ---- what the engine has, what is dropped ----------------------------------------- */

static void read_supported(struct model_build *b)
{
	for (const struct cpu_feature *f = cpu_feature_table; f->name; f++)
		b->named[word_index(f)] |= 1u << f->bit;
	for (size_t w = 0; w < WORDS; w++) {
		uint32_t leaf = word_table[w].leaf;
		const struct cpuid_entry *e = entry_find(b->sup, b->nsup, leaf, word_table[w].subleaf);

		if (e)
			b->have[w] = entry_reg(e, word_table[w].reg) & b->named[w];
	}
	for (size_t i = 0; i < ARRAY_SIZE(never_flags); i++)
		bits_change(b->have, never_flags[i], false);
}

/* AMD repeats leaf 1's EDX bits in 0x80000001; they are filled in at the end. */
#define EXT_EDX_MIRROR 0x0183f3ffu

static int drop_missing(struct model_build *b, struct err *err)
{
	char text[256] = "";
	unsigned dropped = 0;

	for (size_t w = 0; w < WORDS; w++) {
		uint32_t miss = b->want[w] & ~b->have[w];

		b->want[w] &= b->have[w];
		for (const struct cpu_feature *f = cpu_feature_table; f->name && miss; f++) {
			size_t len = strlen(text);

			if (word_index(f) != w || !(miss & 1u << f->bit))
				continue;
			miss &= ~(1u << f->bit); /* one of its names is enough */
			if (b->m->missing)
				b->m->missing(b->m->opaque, f->name);
			dropped++;
			if (len + strlen(f->name) + 8 < sizeof(text))
				snprintf(text + len, sizeof(text) - len, "%s%s", len ? " " : "", f->name);
			else if (len < sizeof(text) - 5 && text[len - 1] != '.')
				memcpy(text + len, " ...", 5);
		}
	}
	if (!dropped)
		return 0;
	if (b->enforce)
		return err_set(err, -ENOTSUP, "-cpu '%s,enforce': %u features are not available here: %s", b->m->name,
			       dropped, text);
	if (!b->m->missing)
		log_info("-cpu %s: %u features are not available here and left out: %s", b->m->name, dropped, text);
	return 0;
}

/* ---- the table ------------------------------------------------------------------------ */

static struct cpuid_entry *add(struct cpu_model *m, uint32_t leaf, int subleaf, uint32_t eax, uint32_t ebx,
			       uint32_t ecx, uint32_t edx)
{
	struct cpuid_entry *e = &m->entry[m->n++];

	BUG_ON(m->n > CPU_MODEL_MAX_ENTRIES);
	*e = (struct cpuid_entry){leaf, subleaf < 0 ? 0 : (uint32_t)subleaf, subleaf >= 0, eax, ebx, ecx, edx};
	return e;
}

static uint32_t bits_for(uint32_t count)
{
	uint32_t bits = 0;

	while ((1u << bits) < count)
		bits++;
	return bits;
}

static bool is_amd(const struct model_build *b)
{
	return memcmp(b->vendor, "AuthenticAMD", 12) == 0 || memcmp(b->vendor, "HygonGenuine", 12) == 0;
}

struct cache {
	uint8_t type, level; /* 1 data, 2 instruction, 3 unified */
	uint32_t ways, sets;
	bool per_socket;
};
static const struct cache cache_table[] = {
    {1, 1, 8, 64, false}, {2, 1, 8, 64, false}, {3, 2, 8, 1024, false}, {3, 3, 16, 16384, true}};

/* Leaf 4 (Intel) and 0x8000001d (AMD) have one layout; the cores field is Intel's only. */
static void add_caches(struct model_build *b, uint32_t leaf, bool cores)
{
	struct cpu_model *m = b->m;
	uint32_t tb = bits_for(m->threads), cb = bits_for(m->cores);

	for (unsigned i = 0; i < ARRAY_SIZE(cache_table); i++) {
		const struct cache *c = &cache_table[i];
		uint32_t sharing = (1u << (tb + (c->per_socket ? cb : 0))) - 1;

		add(m, leaf, (int)i,
		    c->type | (uint32_t)c->level << 5 | 1u << 8 | sharing << 14 | (cores ? ((1u << cb) - 1) << 26 : 0),
		    63 | (c->ways - 1) << 22, c->sets - 1, 0);
	}
	add(m, leaf, ARRAY_SIZE(cache_table), 0, 0, 0, 0);
}

static void add_topology(struct model_build *b, uint32_t leaf)
{
	struct cpu_model *m = b->m;
	uint32_t tb = bits_for(m->threads), cb = bits_for(m->cores);

	add(m, leaf, 0, tb, m->threads, 0 | 1 << 8, 0);
	add(m, leaf, 1, tb + cb, m->threads * m->cores, 1 | 2 << 8, 0);
	add(m, leaf, 2, 0, 0, 2, 0);
}

/* XSAVE components the guest may enable: supported, described by the engine, and within our state buffer. */
static uint64_t xcr0_allowed(struct model_build *b)
{
	static const struct {
		uint64_t bits;
		const char *flag;
	} need[] = {{BIT(2), "avx"}, {BIT(5) | BIT(6) | BIT(7), "avx512f"}, {BIT(9), "pku"}};
	uint64_t sup = sup_reg(b, 0xd, 0, EAX) | (uint64_t)sup_reg(b, 0xd, 0, EDX) << 32, mask = 3;

	for (size_t i = 0; i < ARRAY_SIZE(need); i++) {
		if (want_flag(b, need[i].flag) && (sup & need[i].bits) == need[i].bits)
			mask |= need[i].bits;
	}
	for (unsigned i = 2; i < 63; i++)
		if ((mask & BIT(i)) && sup_reg(b, 0xd, i, EAX) + sup_reg(b, 0xd, i, EBX) > CPU_XSAVE_SIZE)
			mask &= ~BIT(i);
	return mask;
}

/* Flags whose state or prerequisite is not there go too, so that what is advertised executes. */
static void drop_dependent(struct model_build *b)
{
	static const struct {
		const char *needs, *drops;
	} deps[] = {
	    {"xsave", "avx xsaveopt xsavec xgetbv1 xsaves pku"},
	    {"avx", "avx2 fma f16c xop fma4 vaes vpclmulqdq avx-vnni avx-ifma"},
	    {"avx2", "avx512f"},
	    {"avx512f",
	     "avx512dq avx512ifma avx512cd avx512bw avx512vl avx512vbmi avx512vbmi2 avx512vnni avx512bitalg "
	     "avx512-vpopcntdq avx512-4vnniw avx512-4fmaps avx512-vp2intersect avx512-bf16 avx512-fp16 avx512pf "
	     "avx512er"},
	    {"lm", "fsgsbase pcid invpcid la57 lahf-lm"},
	    {"svm", "npt lbrv svm-lock nrip-save tsc-scale vmcb-clean flushbyasid decodeassists pause-filter "
		    "pfthreshold avic v-vmsave-vmload vgif svme-addr-chk"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(deps); i++) {
		if (!want_flag(b, deps[i].needs))
			bits_change(b->want, deps[i].drops, false);
	}
}

static void add_xsave(struct model_build *b)
{
	struct cpu_model *m = b->m;
	uint64_t mask = m->xcr0_mask;
	uint32_t size = 576;

	for (unsigned i = 2; i < 63; i++)
		if (mask & BIT(i))
			size = MAX(size, sup_reg(b, 0xd, i, EAX) + sup_reg(b, 0xd, i, EBX));
	add(m, 0xd, 0, (uint32_t)mask, size, size, (uint32_t)(mask >> 32));
	add(m, 0xd, 1, 0, size, 0, 0); /* EAX is a feature word */
	for (unsigned i = 2; i < 63; i++)
		if (mask & BIT(i))
			add(m, 0xd, (int)i, sup_reg(b, 0xd, i, EAX), sup_reg(b, 0xd, i, EBX),
			    sup_reg(b, 0xd, i, ECX) & ~1u, 0);
}

static void add_basic(struct model_build *b)
{
	struct cpu_model *m = b->m;
	uint32_t v[3], threads = m->cores * m->threads;
	uint32_t logical = MIN(1u << (bits_for(m->cores) + bits_for(m->threads)), 255u);
	uint32_t fam = MIN(b->family, 15u), ext = b->family > 15 ? b->family - 15 : 0;

	memcpy(v, b->vendor, 12);
	add(m, 0, -1, b->level ? b->level : 0x1f, v[0], v[2], v[1]);
	add(m, 1, -1, ext << 20 | (b->model >> 4) << 16 | fam << 8 | (b->model & 15) << 4 | b->stepping,
	    8 << 8 | (threads > 1 ? logical : 1) << 16, 0, 0);
	add(m, 2, -1, 0x00feff01, 0, 0, 0);
	if (!is_amd(b))
		add_caches(b, 4, true);
	add(m, 6, -1, 0, 0, 0, 0);
	add(m, 7, 0, 1, 0, 0, 0);
	add(m, 7, 1, 0, 0, 0, 0);
	add_topology(b, 0xb);
	if (m->xcr0_mask)
		add_xsave(b);
	if (!is_amd(b))
		add_topology(b, 0x1f);
}

static void add_extended(struct model_build *b)
{
	struct cpu_model *m = b->m;
	uint32_t v[3], id[12], cb = bits_for(m->cores), tb = bits_for(m->threads), threads = m->cores * m->threads;

	memcpy(v, b->vendor, 12);
	memcpy(id, b->id, 48);
	add(m, 0x80000000, -1, b->xlevel ? b->xlevel : is_amd(b) ? 0x80000021 : 0x80000008, v[0], v[2], v[1]);
	add(m, 0x80000001, -1, 0, 0, 0, 0);
	for (uint32_t i = 0; i < 3; i++)
		add(m, 0x80000002 + i, -1, id[4 * i], id[4 * i + 1], id[4 * i + 2], id[4 * i + 3]);
	if (is_amd(b)) {
		add(m, 0x80000005, -1, 0x01ff01ff, 0x01ff01ff, 0x20080140, 0x20080140);
		add(m, 0x80000006, -1, 0x42004200, 0x42004200, 0x02006140, 0x00808140); /* 512 KiB, 16 MiB */
	} else {
		add(m, 0x80000006, -1, 0, 0, 0x02006040, 0);
	}
	add(m, 0x80000007, -1, 0, 0, 0, 0);
	add(m, 0x80000008, -1, b->phys_bits | (want_flag(b, "la57") ? 57 : 48) << 8, 0,
	    is_amd(b) ? (threads - 1) | (cb + tb) << 12 : 0, 0);
	if (is_amd(b)) {
		if (want_flag(b, "svm"))
			add(m, 0x8000000a, -1, 1, 16, 0, 0);
		add_caches(b, 0x8000001d, false);
		add(m, 0x8000001e, -1, 0, (m->threads - 1) << 8, 0, 0);
		add(m, 0x80000021, -1, 0, 0, 0, 0);
	}
}

#define KVM_LEAF_TSC 0x40000010u

static void add_hypervisor(struct model_build *b)
{
	static const char sig[12] = "KVMKVMKVM";
	uint32_t v[3];
	const struct cpuid_entry *e = entry_find(b->sup, b->nsup, KVM_LEAF_TSC, 0);

	memcpy(v, sig, 12);
	add(b->m, 0x40000000, -1, e ? KVM_LEAF_TSC : 0x40000001, v[0], v[1], v[2]);
	add(b->m, 0x40000001, -1, 0, 0, 0, 0);
	if (e)
		add(b->m, KVM_LEAF_TSC, -1, e->eax, e->ebx, 0, 0);
}

static void fill_words(struct model_build *b)
{
	struct cpu_model *m = b->m;

	for (size_t w = 0; w < WORDS; w++)
		for (unsigned i = 0; i < m->n; i++) {
			struct cpuid_entry *e = &m->entry[i];
			uint32_t *r[4] = {&e->eax, &e->ebx, &e->ecx, &e->edx};

			if (e->leaf == word_table[w].leaf && (!e->has_subleaf || e->subleaf == word_table[w].subleaf))
				*r[word_table[w].reg] |= b->want[w];
		}
	if (is_amd(b)) {
		uint32_t edx1 = entry_find(m->entry, m->n, 1, 0)->edx;

		((struct cpuid_entry *)(uintptr_t)entry_find(m->entry, m->n, 0x80000001, 0))->edx |=
		    edx1 & EXT_EDX_MIRROR;
	}
}

int cpu_model_build(struct cpu_model *m, const char *text, const char *def, const struct cpuid_entry *supported,
		    unsigned n, struct err *err)
{
	struct model_build b = {.m = m, .sup = supported, .nsup = n, .expose_kvm = true};
	unsigned sockets = MAX(m->sockets, 1u), cores = MAX(m->cores, 1u), threads = MAX(m->threads, 1u);
	char *copy = strdup(text ? text : def);
	int rc;

	if (!copy)
		return err_set(err, -ENOMEM, "-cpu: out of memory");
	*m = (struct cpu_model){
	    .sockets = sockets, .cores = cores, .threads = threads, .missing = m->missing, .opaque = m->opaque};
	read_supported(&b);
	rc = parse_text(&b, copy, def, err);
	free(copy);
	if (rc < 0)
		return rc;
	if (b.phys_bits < 32 || b.phys_bits > 52)
		b.phys_bits = 40;
	if (cores * threads > 1) {     /* facts about -smp, not about the engine */
		b.want[0] |= 1u << 28; /* ht */
		b.have[0] |= 1u << 28;
		if (is_amd(&b)) {
			bits_change(b.have, "cmp-legacy", true);
			bits_change(b.want, "cmp-legacy", threads == 1);
		}
	} else {
		bits_change(b.want, "ht cmp-legacy", false);
	}
	if (!is_amd(&b))
		bits_change(b.want, "topoext cmp-legacy", false);
	rc = drop_missing(&b, err);
	if (rc < 0)
		return rc;
	drop_dependent(&b);
	m->phys_bits = b.phys_bits;
	m->xcr0_mask = b.want[1] & 1u << 26 ? xcr0_allowed(&b) : 0;
	add_basic(&b);
	add_extended(&b);
	if (b.expose_kvm && (b.want[1] & 1u << 31)) {
		add_hypervisor(&b);
		m->kvmclock = b.want[WORDS - 1] & 1u << 3;
	}
	fill_words(&b);
	return 0;
}

/* ---- answering ----------------------------------------------------------------------------- */

static uint32_t xsave_size(const struct cpu_model *m, uint64_t components, bool compact)
{
	uint32_t size = 576;

	for (unsigned i = 2; i < 63; i++) {
		const struct cpuid_entry *e = components & BIT(i) ? entry_find(m->entry, m->n, 0xd, i) : NULL;

		if (!e)
			continue;
		if (compact)
			size = (e->ecx & 2 ? ALIGN_UP(size, 64u) : size) + e->eax;
		else
			size = MAX(size, e->eax + e->ebx);
	}
	return size;
}

void cpu_model_cpuid(const struct cpu_model *m, uint32_t apic_id, uint64_t cr4, uint64_t xcr0, uint64_t xss,
		     uint32_t leaf, uint32_t subleaf, uint32_t out[4])
{
	const struct cpuid_entry *e = entry_find(m->entry, m->n, leaf, subleaf);

	memset(out, 0, 4 * sizeof(out[0]));
	if (e) {
		out[EAX] = e->eax;
		out[EBX] = e->ebx;
		out[ECX] = e->ecx;
		out[EDX] = e->edx;
	}
	switch (leaf) {
	case 1:
		out[EBX] |= apic_id << 24;
		if (cr4 & CR4_OSXSAVE)
			out[ECX] |= 1u << 27;
		break;
	case 7:
		if (subleaf == 0 && (cr4 & CR4_PKE) && (out[ECX] & 8))
			out[ECX] |= 16;
		break;
	case 0xb:
	case 0x1f:
		if (entry_find(m->entry, m->n, leaf, 0)) {
			out[ECX] = (out[ECX] & ~0xffu) | (subleaf & 0xff);
			out[EDX] = apic_id;
		}
		break;
	case 0xd:
		if (e && subleaf == 0)
			out[EBX] = xsave_size(m, xcr0, false);
		else if (e && subleaf == 1)
			out[EBX] = out[EAX] & 2 ? xsave_size(m, xcr0 | xss, true) : 0;
		break;
	case 0x8000001e:
		if (e) {
			out[EAX] = apic_id;
			out[EBX] |= (apic_id >> bits_for(m->threads)) & ((1u << bits_for(m->cores)) - 1);
			out[ECX] = apic_id >> (bits_for(m->threads) + bits_for(m->cores));
		}
		break;
	default: break;
	}
}

bool cpu_model_has(const struct cpu_model *m, const char *feature)
{
	const struct cpu_feature *f = feature_find(feature, strlen(feature));
	const struct cpuid_entry *e = f ? entry_find(m->entry, m->n, f->leaf, f->subleaf) : NULL;

	return e && (entry_reg(e, f->reg) & 1u << f->bit);
}

static const struct {
	const char *name, *about;
} special_models[] = {
    {"max", "all that the engine can execute"},
    {"host", "the host's CPU, as far as the engine supports it"},
    {"base", "few features; for what asks each by name"},
};

const char *cpu_model_name_at(size_t i)
{
	if (i < ARRAY_SIZE(special_models))
		return special_models[i].name;
	i -= ARRAY_SIZE(special_models);
	for (const struct cpu_named_model *n = cpu_named_model_table; n->name; n++)
		if (n->name[0] != '.' && !i--)
			return n->name;
	return NULL;
}

void cpu_model_list(void)
{
	unsigned col = 0;

	printf("Available CPUs:\n");
	for (size_t i = 0; i < ARRAY_SIZE(special_models); i++)
		printf("  %-28s %s\n", special_models[i].name, special_models[i].about);
	for (const struct cpu_named_model *n = cpu_named_model_table; n->name; n++)
		if (n->name[0] != '.')
			printf("  %-28s %s\n", n->name, n->id);
	printf("\nRecognized CPUID flags (+flag, -flag, flag=on|off):\n ");
	for (const struct cpu_feature *f = cpu_feature_table; f->name; f++) {
		col += (unsigned)strlen(f->name) + 1;
		if (col > 76) {
			printf("\n ");
			col = (unsigned)strlen(f->name) + 1;
		}
		printf(" %s", f->name);
	}
	printf("\n");
}
