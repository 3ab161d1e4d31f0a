/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The walk over every table of types. A family is a table and how QEMU forms its
 * types' names; nothing is listed here that the tables do not say. Main loop's thread.
 */
#include "control/qom_types.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/object.h"
#include "base/util.h"
#include "bus/pci.h"
#include "chr/chr.h"
#include "control/json.h"
#include "machine/vm.h"

static const struct type *device_type_at(size_t i)
{
	if (!i)
		return &pci_device_type;
	for (size_t k = 0; dev_table[k]; k++)
		if (k == i - 1)
			return &dev_table[k]->type;
	return NULL;
}

static const struct type *board_type_at(size_t i)
{
	for (size_t k = 0; board_table[k]; k++)
		if (k == i)
			return &board_table[k]->type;
	return NULL;
}

static const struct type *accel_type_at(size_t i)
{
	for (size_t k = 0; accel_table[k]; k++)
		if (k == i)
			return &accel_table[k]->type;
	return NULL;
}

static const struct type *no_type_at(size_t i)
{
	return NULL;
}

static const struct family {
	const char *base; /* the abstract type above all of them */
	const char *prefix, *suffix;
	const struct type *(*at)(size_t i);
	const char *(*name_at)(size_t i); /* more of them, without a table of properties */
} families[] = {
    {"device", "", "", device_type_at, NULL},
    {"object", "", "", object_type_at, NULL},
    {"chardev", "chardev-", "", chr_type_at, NULL},
    {"machine", "", "-machine", board_type_at, NULL},
    {"accel", "", "-accel", accel_type_at, accel_alias_at},
    {"x86_64-cpu", "", "-x86_64-cpu", no_type_at, cpu_model_name_at},
};

static void set_name(const struct family *f, const char *name, char *out, size_t size)
{
	snprintf(out, size, "%s%.60s%s", f->prefix, name, f->suffix);
}

static void set_type(const struct family *f, const struct type *type, struct qom_type *t)
{
	t->type = type;
	t->abstract = type->abstract;
	set_name(f, type->name, t->name, sizeof(t->name));
	/* A parent that is listed, or else the family. */
	snprintf(t->parent, sizeof(t->parent), "%.60s", f->base);
	for (size_t i = 0; type->parent && f->at(i); i++)
		if (!strcmp(f->at(i)->name, type->parent))
			set_name(f, type->parent, t->parent, sizeof(t->parent));
}

/* The base first, then the family's own; false, and *i less by their number, beyond. */
static bool family_type_at(const struct family *f, size_t *i, struct qom_type *t)
{
	const struct type *type;
	const char *name;

	*t = (struct qom_type){.abstract = true};
	if ((*i)-- == 0) {
		snprintf(t->name, sizeof(t->name), "%s", f->base);
		return true;
	}
	for (size_t k = 0; (type = f->at(k)); k++)
		if ((*i)-- == 0) {
			set_type(f, type, t);
			return true;
		}
	for (size_t k = 0; f->name_at && (name = f->name_at(k)); k++)
		if ((*i)-- == 0) {
			*t = (struct qom_type){.is_cpu = f->at == no_type_at};
			set_name(f, name, t->name, sizeof(t->name));
			snprintf(t->parent, sizeof(t->parent), "%s", f->base);
			return true;
		}
	return false;
}

bool qom_type_at(size_t i, struct qom_type *t)
{
	for (size_t f = 0; f < ARRAY_SIZE(families); f++)
		if (family_type_at(&families[f], &i, t))
			return true;
	return false;
}

bool qom_type_find(const char *name, struct qom_type *t)
{
	for (size_t i = 0; qom_type_at(i, t); i++)
		if (!strcmp(t->name, name))
			return true;
	return false;
}

bool qom_type_is(const struct qom_type *t, const char *base)
{
	struct qom_type up = *t;
	char parent[sizeof(up.parent)];

	for (;;) {
		if (!strcmp(up.name, base))
			return true;
		if (!up.parent[0])
			return false;
		memcpy(parent, up.parent, sizeof(parent));
		if (!qom_type_find(parent, &up))
			return false;
	}
}

void qom_type_name(const struct type *type, char *out, size_t size)
{
	const struct type *at;

	snprintf(out, size, "%s", type->name);
	for (size_t f = 0; f < ARRAY_SIZE(families); f++)
		for (size_t i = 0; (at = families[f].at(i)); i++)
			if (at == type)
				set_name(&families[f], type->name, out, size);
}

void qom_cpu_type_name(const char *model, char *out, size_t size)
{
	set_name(&families[ARRAY_SIZE(families) - 1], model, out, size);
}

/* ---- properties ------------------------------------------------------------------ */

const char *qom_kind_name(const struct prop *p)
{
	static const char *const kinds[] = {[PROP_BOOL] = "bool",  [PROP_U8] = "uint8",
					    [PROP_U16] = "uint16", [PROP_U32] = "uint32",
					    [PROP_U64] = "uint64", [PROP_I64] = "int64",
					    [PROP_SIZE] = "size",  [PROP_STR] = "str",
					    [PROP_ENUM] = "str",   [PROP_ONOFFAUTO] = "OnOffAuto",
					    [PROP_MAC] = "str",	   [PROP_DEVFN] = "str",
					    [PROP_LINK] = "str"};

	return kinds[p->kind];
}

json_t *qom_value(const struct prop *p, const char *text)
{
	uint64_t size;

	if (p->flags & PROP_JSON)
		return json_loads(text, 0, NULL);
	switch (p->kind) {
	case PROP_BOOL: return json_boolean(!strcmp(text, "on"));
	case PROP_U8:
	case PROP_U16:
	case PROP_U32:
	case PROP_I64: return json_integer(strtoll(text, NULL, 0));
	case PROP_U64: return json_integer((json_int_t)strtoull(text, NULL, 0));
	case PROP_SIZE: return json_integer(text_parse_size(text, 1, &size) ? 0 : (json_int_t)size);
	default: return json_text(text);
	}
}

static json_t *one_property(const struct prop *p)
{
	json_t *o = json_pack("{s:s,s:s}", "name", p->name, "type", qom_kind_name(p));

	if (p->help)
		json_object_set_new(o, "description", json_string(p->help));
	if (p->def && !(p->flags & PROP_JSON))
		json_object_set_new(o, "default-value", qom_value(p, p->def));
	return o;
}

json_t *qom_type_properties(const struct qom_type *t)
{
	json_t *list = json_array();
	const struct prop *p;

	for (size_t i = 0; t->type && (p = type_prop_at(t->type, i)); i++)
		if (!p->alias_of)
			json_array_append_new(list, one_property(p));
	for (const struct cpu_feature *f = cpu_feature_table; t->is_cpu && f->name; f++)
		json_array_append_new(list, json_pack("{s:s,s:s}", "name", f->name, "type", "bool"));
	return list;
}
