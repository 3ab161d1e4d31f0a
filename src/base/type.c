// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Types and properties: the registry, and the one walk that sets, reads and
 * prints typed properties. How a kind of property is parsed and printed is one
 * row of prop_kind_table.
 *
 * The registry is written at start only, before threads exist; instances are
 * their owner's, who brings the lock.
 */
#include "base/type.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"

#define TYPE_MAX_TABLES	 64
#define TYPE_MAX_DEPTH	 8 /* of parents */
#define TYPE_MAX_LINKS	 16
#define TYPE_MAX_CHOICES 64

static struct {
	const struct type *const *types;
	size_t n;
} type_tables[TYPE_MAX_TABLES];
static size_t type_ntables;

/* Families of objects a PROP_LINK can name. */
static struct {
	const char *kind;
	void *(*lookup)(const char *id);
} type_links[TYPE_MAX_LINKS];
static size_t type_nlinks;

/* The ids links were set from, so that type_get can print them back. */
static struct link_name {
	struct link_name *next;
	const void *object;
	char *id;
} * link_names;

/* ---- registry ---------------------------------------------------------- */

void type_register(const struct type *const *types, size_t n)
{
	BUG_ON(type_ntables == TYPE_MAX_TABLES);
	type_tables[type_ntables].types = types;
	type_tables[type_ntables++].n = n;
}

const struct type *type_at(size_t i)
{
	for (size_t t = 0; t < type_ntables; i -= type_tables[t++].n)
		if (i < type_tables[t].n)
			return type_tables[t].types[i];
	return NULL;
}

const struct type *type_find(const char *name)
{
	const struct type *t;

	for (size_t i = 0; (t = type_at(i)); i++)
		if (!strcmp(t->name, name))
			return t;
	return NULL;
}

static const struct type *type_parent(const struct type *t)
{
	return t->parent ? type_find(t->parent) : NULL;
}

void type_register_links(const char *link_kind, void *(*lookup)(const char *id))
{
	BUG_ON(type_nlinks == TYPE_MAX_LINKS);
	type_links[type_nlinks].kind = link_kind;
	type_links[type_nlinks++].lookup = lookup;
}

static void *link_find(const char *kind, const char *id)
{
	for (size_t i = 0; i < type_nlinks; i++)
		if (!strcmp(type_links[i].kind, kind)) {
			void *object = type_links[i].lookup(id);
			if (object)
				return object;
		}
	return NULL;
}

static int link_remember(const void *object, const char *id)
{
	struct link_name *l;

	for (l = link_names; l; l = l->next)
		if (l->object == object)
			break;
	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l)
			return -ENOMEM;
		l->next = link_names;
		link_names = l;
	}
	char *copy = strdup(id);
	if (!copy)
		return -ENOMEM;
	free(l->id);
	l->object = object;
	l->id = copy;
	return 0;
}

static const char *link_name_of(const void *object)
{
	for (struct link_name *l = link_names; object && l; l = l->next)
		if (l->object == object)
			return l->id;
	return NULL;
}

/* ---- kinds of properties ------------------------------------------------ */

/* Parsers return 0, or -errno with `want` describing what would be right. */
struct prop_parse {
	const struct prop *p;
	void *field;
	const char *value;
	char want[256];
};

static int parse_bool(struct prop_parse *x)
{
	static const char *const words[] = {"off", "on", "no", "yes", "false", "true", "n", "y"};

	snprintf(x->want, sizeof(x->want), "on or off");
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcasecmp(x->value, words[i])) {
			*(bool *)x->field = i & 1;
			return 0;
		}
	return -EINVAL;
}

static int parse_unsigned(struct prop_parse *x, uint64_t type_max, uint64_t *out)
{
	uint64_t max = x->p->max ? MIN(x->p->max, type_max) : type_max;
	char *end;

	snprintf(x->want, sizeof(x->want), "a number from %" PRIu64 " to %" PRIu64, x->p->min, max);
	if (!isdigit((unsigned char)x->value[0]))
		return -EINVAL;
	errno = 0;
	*out = strtoull(x->value, &end, 0);
	if (*end)
		return -EINVAL;
	return errno || *out < x->p->min || *out > max ? -ERANGE : 0;
}

static int parse_u8(struct prop_parse *x)
{
	uint64_t v = 0;
	int ret = parse_unsigned(x, UINT8_MAX, &v);
	if (!ret)
		*(uint8_t *)x->field = (uint8_t)v;
	return ret;
}

static int parse_u16(struct prop_parse *x)
{
	uint64_t v = 0;
	int ret = parse_unsigned(x, UINT16_MAX, &v);
	if (!ret)
		*(uint16_t *)x->field = (uint16_t)v;
	return ret;
}

static int parse_u32(struct prop_parse *x)
{
	uint64_t v = 0;
	int ret = parse_unsigned(x, UINT32_MAX, &v);
	if (!ret)
		*(uint32_t *)x->field = (uint32_t)v;
	return ret;
}

static int parse_u64(struct prop_parse *x)
{
	uint64_t v = 0;
	int ret = parse_unsigned(x, UINT64_MAX, &v);
	if (!ret)
		*(uint64_t *)x->field = v;
	return ret;
}

static int parse_i64(struct prop_parse *x)
{
	char *end;

	snprintf(x->want, sizeof(x->want), "a number");
	errno = 0;
	long long v = strtoll(x->value, &end, 0);
	if (end == x->value || *end || isspace((unsigned char)x->value[0]))
		return -EINVAL;
	if (errno || (x->p->max && (v < (int64_t)x->p->min || v > (int64_t)x->p->max)))
		return -ERANGE;
	*(int64_t *)x->field = v;
	return 0;
}

static int parse_size(struct prop_parse *x)
{
	uint64_t v = 0;
	int ret = text_parse_size(x->value, 1, &v);

	snprintf(x->want, sizeof(x->want), "a size such as 512, 64K, 1.5G");
	if (!ret && x->p->max && (v < x->p->min || v > x->p->max)) {
		snprintf(x->want, sizeof(x->want), "a size from %" PRIu64 " to %" PRIu64 " bytes", x->p->min,
			 x->p->max);
		return -ERANGE;
	}
	if (!ret)
		*(uint64_t *)x->field = v;
	return ret;
}

static int parse_str(struct prop_parse *x)
{
	char *copy = strdup(x->value);

	if (!copy)
		return -ENOMEM;
	free(*(char **)x->field);
	*(char **)x->field = copy;
	return 0;
}

static int parse_choice(struct prop_parse *x, const char *const *values)
{
	size_t n = 0;

	for (size_t i = 0; values[i]; i++) {
		if (!strcmp(values[i], x->value)) {
			*(int *)x->field = (int)i;
			return 0;
		}
		if (n < sizeof(x->want))
			n += (size_t)snprintf(x->want + n, sizeof(x->want) - n, "%s%s", i ? ", " : "", values[i]);
	}
	return -EINVAL;
}

static int parse_enum(struct prop_parse *x)
{
	return parse_choice(x, x->p->values);
}

static const char *const onoffauto_names[] = {[OOA_AUTO] = "auto", [OOA_ON] = "on", [OOA_OFF] = "off", NULL};

static int parse_onoffauto(struct prop_parse *x)
{
	return parse_choice(x, onoffauto_names);
}

static int parse_mac(struct prop_parse *x)
{
	uint8_t mac[6];
	const char *s = x->value;

	snprintf(x->want, sizeof(x->want), "a MAC address such as 52:54:00:12:34:56");
	for (int i = 0; i < 6; i++) {
		if (!isxdigit((unsigned char)s[0]) || !isxdigit((unsigned char)s[1]))
			return -EINVAL;
		char two[3] = {s[0], s[1], 0};
		mac[i] = (uint8_t)strtoul(two, NULL, 16);
		s += 2;
		if (i < 5 && *s != ':' && *s != '-')
			return -EINVAL;
		if (i < 5)
			s++;
	}
	if (*s)
		return -EINVAL;
	memcpy(x->field, mac, 6);
	return 0;
}

static int parse_devfn(struct prop_parse *x)
{
	unsigned long slot, fn = 0;
	char *end;

	snprintf(x->want, sizeof(x->want), "a PCI slot (hexadecimal 0 to 1f), or slot.function (function 0 to 7)");
	if (!strcmp(x->value, "-1")) {
		*(int32_t *)x->field = -1;
		return 0;
	}
	if (!isxdigit((unsigned char)x->value[0]))
		return -EINVAL;
	slot = strtoul(x->value, &end, 16);
	if (*end == '.') {
		const char *f = end + 1;
		if (!isxdigit((unsigned char)*f))
			return -EINVAL;
		fn = strtoul(f, &end, 16);
	}
	if (*end || slot > 0x1f || fn > 7)
		return -EINVAL;
	*(int32_t *)x->field = (int32_t)(slot << 3 | fn);
	return 0;
}

static int parse_link(struct prop_parse *x)
{
	void *object = link_find(x->p->link_kind, x->value);

	snprintf(x->want, sizeof(x->want), "the id of a %s; there is none with this id", x->p->link_kind);
	if (!object)
		return -ENOENT;
	int ret = link_remember(object, x->value);
	if (!ret)
		*(void **)x->field = object;
	return ret;
}

/* Printers write the value as type_set would accept it; false = no value. */
static bool print_bool(const struct prop *p, const void *f, char *out, size_t n)
{
	return snprintf(out, n, "%s", *(const bool *)f ? "on" : "off") > 0;
}
static bool print_u8(const struct prop *p, const void *f, char *out, size_t n)
{
	return snprintf(out, n, "%u", *(const uint8_t *)f) > 0;
}
static bool print_u16(const struct prop *p, const void *f, char *out, size_t n)
{
	return snprintf(out, n, "%u", *(const uint16_t *)f) > 0;
}
static bool print_u32(const struct prop *p, const void *f, char *out, size_t n)
{
	return snprintf(out, n, "%" PRIu32, *(const uint32_t *)f) > 0;
}
static bool print_u64(const struct prop *p, const void *f, char *out, size_t n)
{
	return snprintf(out, n, "%" PRIu64, *(const uint64_t *)f) > 0;
}
static bool print_i64(const struct prop *p, const void *f, char *out, size_t n)
{
	return snprintf(out, n, "%" PRId64, *(const int64_t *)f) > 0;
}
static bool print_enum(const struct prop *p, const void *f, char *out, size_t n)
{
	return snprintf(out, n, "%s", p->values[*(const int *)f]) > 0;
}
static bool print_onoffauto(const struct prop *p, const void *f, char *out, size_t n)
{
	return snprintf(out, n, "%s", onoffauto_names[*(const int *)f]) > 0;
}
static bool print_mac(const struct prop *p, const void *f, char *out, size_t n)
{
	const uint8_t *m = f;
	return snprintf(out, n, "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]) > 0;
}
static bool print_devfn(const struct prop *p, const void *f, char *out, size_t n)
{
	int32_t d = *(const int32_t *)f;
	return (d < 0 ? snprintf(out, n, "-1") : snprintf(out, n, "%02x.%x", d >> 3, d & 7)) > 0;
}

static const struct prop_kind_ops {
	const char *name;
	int (*parse)(struct prop_parse *x);
	bool (*print)(const struct prop *p, const void *field, char *out, size_t n); /* NULL: strings, below */
} prop_kind_table[] = {
    [PROP_BOOL] = {"bool", parse_bool, print_bool},
    [PROP_U8] = {"uint8", parse_u8, print_u8},
    [PROP_U16] = {"uint16", parse_u16, print_u16},
    [PROP_U32] = {"uint32", parse_u32, print_u32},
    [PROP_U64] = {"uint64", parse_u64, print_u64},
    [PROP_I64] = {"int64", parse_i64, print_i64},
    [PROP_SIZE] = {"size", parse_size, print_u64},
    [PROP_STR] = {"str", parse_str, NULL},
    [PROP_ENUM] = {"enum", parse_enum, print_enum},
    [PROP_ONOFFAUTO] = {"on|off|auto", parse_onoffauto, print_onoffauto},
    [PROP_MAC] = {"mac", parse_mac, print_mac},
    [PROP_DEVFN] = {"devfn", parse_devfn, print_devfn},
    [PROP_LINK] = {"link", parse_link, NULL},
};

/* ---- properties of a type ------------------------------------------------ */

static const struct prop *type_find_own(const struct type *type, const char *name)
{
	const struct type *t = type;

	for (int depth = 0; t && depth < TYPE_MAX_DEPTH; t = type_parent(t), depth++)
		for (const struct prop *p = t->props; p && p->name; p++)
			if (!strcmp(p->name, name))
				return p;
	return NULL;
}

const struct prop *type_find_prop(const struct type *type, const char *prop)
{
	const struct prop *p = type_find_own(type, prop);

	return p && p->alias_of ? type_find_own(type, p->alias_of) : p;
}

/* Call fn for each property, parents first. */
static int type_walk(const struct type *type, int depth,
		     int (*fn)(void *arg, const struct type *t, const struct prop *), void *arg)
{
	const struct type *parent = depth < TYPE_MAX_DEPTH ? type_parent(type) : NULL;
	int ret = parent ? type_walk(parent, depth + 1, fn, arg) : 0;

	for (const struct prop *p = type->props; p && p->name && !ret; p++)
		ret = fn(arg, type, p);
	return ret;
}

struct type_walk_at {
	size_t i;
	const struct prop *found;
};

static int prop_count_down(void *arg, const struct type *t, const struct prop *p)
{
	struct type_walk_at *w = arg;

	if (w->i--)
		return 0;
	w->found = p;
	return 1;
}

const struct prop *type_prop_at(const struct type *type, size_t i)
{
	struct type_walk_at w = {i, NULL};

	type_walk(type, 0, prop_count_down, &w);
	return w.found;
}

static int prop_set(const struct type *type, void *instance, const struct prop *p, const char *value, struct err *err)
{
	struct prop_parse x = {.p = p, .field = (char *)instance + p->offset, .value = value};
	int ret = prop_kind_table[p->kind].parse(&x);

	if (ret)
		err_set(err, ret, "%s: property '%s' cannot be '%.100s': expected %s", type->name, p->name, value,
			x.want);
	return ret;
}

struct type_walk_init {
	const struct type *type;
	void *instance;
	struct err *err;
};

static int prop_init(void *arg, const struct type *t, const struct prop *p)
{
	struct type_walk_init *w = arg;

	if (!p->def || p->alias_of)
		return 0;
	return prop_set(w->type, w->instance, p, p->def, w->err);
}

int type_init(const struct type *type, void *instance, struct err *err)
{
	struct type_walk_init w = {type, instance, err};

	return type_walk(type, 0, prop_init, &w);
}

struct type_names {
	const char *name[TYPE_MAX_CHOICES];
	size_t n;
};

static int prop_collect_name(void *arg, const struct type *t, const struct prop *p)
{
	struct type_names *names = arg;

	if (names->n < TYPE_MAX_CHOICES && !(p->flags & PROP_READONLY))
		names->name[names->n++] = p->name;
	return 0;
}

static int type_no_prop(const struct type *type, const char *prop, struct err *err)
{
	struct type_names names = {.n = 0};

	type_walk(type, 0, prop_collect_name, &names);
	const char *near = text_nearest(prop, names.name, names.n);
	return err_set(err, -ENOENT, "%s has no property '%.60s'%s%s%s", type->name, prop,
		       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int type_set(const struct type *type, void *instance, const char *prop, const char *value, struct err *err)
{
	const struct prop *p = type_find_prop(type, prop);

	if (!p)
		return type_no_prop(type, prop, err);
	if (p->flags & PROP_READONLY)
		return err_set(err, -EPERM, "%s: property '%s' can only be read", type->name, prop);
	return prop_set(type, instance, p, value, err);
}

struct type_walk_required {
	const struct type *type;
	void *instance;
	const struct opts *opts;
	struct err *err;
};

static int prop_check_required(void *arg, const struct type *t, const struct prop *p)
{
	struct type_walk_required *w = arg;

	if (!(p->flags & PROP_REQUIRED) || p->alias_of)
		return 0;
	/* Strings and links may have been set by other means before. */
	if ((p->kind == PROP_STR || p->kind == PROP_LINK) && *(void **)((char *)w->instance + p->offset))
		return 0;
	for (size_t i = 0; i < w->opts->n; i++)
		if (type_find_prop(w->type, w->opts->v[i].key) == p)
			return 0;
	return err_set(w->err, -EINVAL, "%s: property '%s' is required", w->type->name, p->name);
}

/* The property an option means: "noX" may be X=off, or a property whose name begins with "no". */
static const struct prop *type_opt_prop(const struct type *type, const struct opt *o, const char **value)
{
	const struct prop *p = type_find_prop(type, o->key);
	char name[80];

	*value = o->value;
	if (p || !o->negated)
		return p;
	snprintf(name, sizeof(name), "no%.70s", o->key);
	*value = "on";
	return type_find_prop(type, name);
}

int type_set_opts(const struct type *type, void *instance, struct opts *o, const char *const *except, struct err *err)
{
	for (size_t i = 0; i < o->n; i++) {
		bool skip = false;
		for (const char *const *e = except; e && *e && !skip; e++)
			skip = !strcmp(*e, o->v[i].key);
		const char *value;
		const struct prop *p = skip ? NULL : type_opt_prop(type, &o->v[i], &value);
		if (!p)
			continue;
		o->v[i].used = true;
		int ret = type_set(type, instance, p->name, value, err);
		if (ret)
			return ret;
	}
	struct type_walk_required w = {type, instance, o, err};
	return type_walk(type, 0, prop_check_required, &w);
}

int opts_check_used(const struct opts *o, const struct type *type, struct err *err)
{
	for (size_t i = 0; i < o->n; i++)
		if (!o->v[i].used) {
			char name[80];
			snprintf(name, sizeof(name), "%s%.70s", o->v[i].negated ? "no" : "", o->v[i].key);
			return type_no_prop(type, name, err);
		}
	return 0;
}

char *type_get(const struct type *type, const void *instance, const char *prop)
{
	const struct prop *p = type_find_prop(type, prop);
	char text[128];

	if (!p)
		return NULL;
	const char *field = (const char *)instance + p->offset;
	if (p->kind == PROP_STR) {
		const char *s = *(char *const *)(const void *)field;
		return strdup(s ? s : "");
	}
	if (p->kind == PROP_LINK) {
		const char *id = link_name_of(*(void *const *)(const void *)field);
		return strdup(id ? id : "");
	}
	return prop_kind_table[p->kind].print(p, field, text, sizeof(text)) ? strdup(text) : NULL;
}

static int prop_free(void *arg, const struct type *t, const struct prop *p)
{
	char **field = (char **)(void *)((char *)arg + p->offset);

	if (p->kind == PROP_STR && !p->alias_of) {
		free(*field);
		*field = NULL;
	}
	return 0;
}

void type_props_free(const struct type *type, void *instance)
{
	type_walk(type, 0, prop_free, instance);
}

static int prop_print_help(void *arg, const struct type *t, const struct prop *p)
{
	char left[96];
	int n = snprintf(left, sizeof(left), "%s=<%s>", p->name, prop_kind_table[p->kind].name);

	if (p->kind == PROP_ENUM) {
		n = snprintf(left, sizeof(left), "%s=", p->name);
		for (size_t i = 0; p->values[i] && n < (int)sizeof(left); i++)
			n += snprintf(left + n, sizeof(left) - (size_t)n, "%s%s", i ? "|" : "", p->values[i]);
	}
	if (p->alias_of)
		printf("  %-32s another name for %s\n", left, p->alias_of);
	else
		printf("  %-32s %s%s%s%s%s\n", left, p->help ? p->help : "", p->def ? " (default " : "",
		       p->def ? p->def : "", p->def ? ")" : "", p->flags & PROP_REQUIRED ? " (required)" : "");
	return 0;
}

void type_print_help(const struct type *type)
{
	printf("%s: %s\n", type->name, type->about ? type->about : "");
	type_walk(type, 0, prop_print_help, NULL);
}
