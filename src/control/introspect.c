/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What this program can do, for clients that ask before they use it (libvirt does):
 * commands, events and their shapes, options and their keys, machines, CPU models.
 * Everything is read from the tables that do the work. Main loop's thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "control/cmdline.h"
#include "control/qmp_impl.h"
#include "control/qom_types.h"

json_t *cmd_query_qmp_schema(struct vm *vm, json_t *args, struct err *err)
{
	return qmp_schema();
}

static void add_name(json_t *list, const char *name)
{
	json_array_append_new(list, json_pack("{s:s}", "name", name));
}

json_t *cmd_query_commands(struct vm *vm, json_t *args, struct err *err)
{
	json_t *list = json_array();

	add_name(list, QMP_CAPABILITIES);
	for (const struct qmp_command *c = qmp_command_table; c->name; c++)
		add_name(list, c->name);
	return list;
}

json_t *cmd_query_events(struct vm *vm, json_t *args, struct err *err)
{
	json_t *list = json_array();

	for (const struct qmp_event *e = qmp_event_table; e->name; e++)
		add_name(list, e->name);
	return list;
}

json_t *cmd_query_target(struct vm *vm, json_t *args, struct err *err)
{
	return json_pack("{s:s}", "arch", "x86_64");
}

/* ---- options of the command line --------------------------------------------------- */

static const char *parameter_type(const struct prop *p)
{
	switch (p->kind) {
	case PROP_BOOL: return "boolean";
	case PROP_U8:
	case PROP_U16:
	case PROP_U32:
	case PROP_U64:
	case PROP_I64: return "number";
	case PROP_SIZE: return "size";
	default: return "string";
	}
}

static bool has_parameter(const json_t *list, const char *name)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(json_string_value(json_object_get(json_array_get(list, i), "name")), name))
			return true;
	return false;
}

/* Several types may share a key ("id" of every chardev): it is listed once. Aliases are keys too. */
static void add_parameters(json_t *list, const struct type *type)
{
	const struct prop *p, *real;

	for (size_t i = 0; (p = type_prop_at(type, i)); i++) {
		real = p->alias_of ? type_find_prop(type, p->alias_of) : p;
		if (!real || has_parameter(list, p->name))
			continue;
		json_t *o = json_pack("{s:s,s:s}", "name", p->name, "type", parameter_type(real));
		if (real->help)
			json_object_set_new(o, "help", json_string(real->help));
		if (real->def)
			json_object_set_new(o, "default", json_string(real->def));
		json_array_append_new(list, o);
	}
}

json_t *cmd_query_command_line_options(struct vm *vm, json_t *args, struct err *err)
{
	const char *only = json_string_value(json_object_get(args, "option"));
	json_t *list = json_array();
	const struct cmd_keys *o;
	const struct type *type;

	for (size_t i = 0; (o = cmdline_keys_at(i)); i++) {
		json_t *parameters;

		if (only && strcmp(only, o->option))
			continue;
		parameters = json_array();
		for (size_t k = 0; (type = o->at(k)); k++)
			add_parameters(parameters, type);
		json_array_append_new(list, json_pack("{s:s,s:o}", "option", o->option, "parameters", parameters));
	}
	if (only && !json_array_size(list)) {
		json_decref(list);
		err_set(err, -EINVAL, "invalid option name '%.60s'", only);
		return NULL;
	}
	return list;
}

/* ---- machines ------------------------------------------------------------------------- */

json_t *cmd_query_machines(struct vm *vm, json_t *args, struct err *err)
{
	json_t *list = json_array();
	char cpu[96];

	qom_cpu_type_name(cpu_model_name_at(0), cpu, sizeof(cpu));
	for (const struct board_ops *const *b = board_table; *b; b++) {
		const char *alias = (*b)->aliases ? (*b)->aliases[0] : NULL;
		json_t *o = json_pack("{s:s,s:i,s:b,s:b,s:b}", "name", (*b)->type.name, "cpu-max", (int)(*b)->max_cpus,
				      "hotpluggable-cpus", 0, "numa-mem-supported", 0, "deprecated", 0);

		if (b == board_table)
			json_object_set_new(o, "is-default", json_true());
		if (alias)
			json_object_set_new(o, "alias", json_string(alias));
		if (!(*b)->no_cpus)
			json_object_set_new(o, "default-cpu-type", json_string(cpu));
		json_array_append_new(list, o);
	}
	return list;
}

/* ---- CPU models ------------------------------------------------------------------------ */

/* What the engine supports; *n entries, heap. NULL and err. */
static struct cpuid_entry *supported(struct vm *vm, unsigned *n, struct err *err)
{
	struct cpuid_entry *e = calloc(CPU_MODEL_MAX_SUPPORTED, sizeof(*e));

	if (!e)
		err_set_errno(err, -ENOMEM, "CPU models");
	*n = e ? vm_accel(vm)->ops->supported_cpuid(e, CPU_MODEL_MAX_SUPPORTED, err) : 0;
	return e;
}

static void note_missing(void *opaque, const char *feature)
{
	json_array_append_new(opaque, json_string(feature));
}

json_t *cmd_query_cpu_definitions(struct vm *vm, json_t *args, struct err *err)
{
	unsigned n;
	struct cpuid_entry *sup = supported(vm, &n, err);
	json_t *list = sup ? json_array() : NULL;
	const char *name;
	char type[96];

	for (size_t i = 0; sup && (name = cpu_model_name_at(i)); i++) {
		json_t *missing = json_array();
		struct cpu_model m = {.missing = note_missing, .opaque = missing};

		cpu_model_build(&m, name, "max", sup, n, NULL);
		qom_cpu_type_name(name, type, sizeof(type));
		/* Models take what the engine has, so none is the same everywhere. */
		json_array_append_new(list, json_pack("{s:s,s:s,s:b,s:b,s:o,s:b}", "name", name, "typename", type,
						      "static", !strcmp(name, "base"), "migration-safe",
						      strcmp(name, "max") && strcmp(name, "host"),
						      "unavailable-features", missing, "deprecated", 0));
	}
	free(sup);
	return list;
}

/* "name,key=value,..." of a client's model, as -cpu takes it; heap, NULL and err. */
static char *model_text(const json_t *model, struct err *err)
{
	json_t *props = json_object_get(model, "props"), *v;
	char *text = strdup(json_string_value(json_object_get(model, "name")));
	const char *key;

	if (props && !json_is_object(props)) {
		err_set(err, -EINVAL, "Invalid parameter type for 'model.props', expected: object");
		free(text);
		return NULL;
	}
	json_object_foreach(props, key, v) {
		char number[32];
		const char *value = json_is_boolean(v) ? (json_is_true(v) ? "on" : "off") : json_string_value(v);

		if (json_is_integer(v)) {
			snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
			value = number;
		}
		/* A comma would be another option. */
		if (!value || strpbrk(key, ",=") || strchr(value, ',')) {
			err_set(err, -EINVAL, "Property '%.60s' cannot have this value", key);
			free(text);
			return NULL;
		}
		char *longer = NULL;
		if (text && asprintf(&longer, "%s,%s=%s", text, key, value) < 0)
			longer = NULL;
		free(text);
		text = longer;
	}
	if (!text)
		err_set_errno(err, -ENOMEM, "CPU model");
	return text;
}

json_t *cmd_query_cpu_model_expansion(struct vm *vm, json_t *args, struct err *err)
{
	bool full = !strcmp(json_string_value(json_object_get(args, "type")), "full");
	json_t *model = json_object_get(args, "model"), *props = NULL, *missing = json_array();
	const char *name = json_string_value(json_object_get(model, "name"));
	struct cpu_model m = {.missing = note_missing, .opaque = missing};
	char *text = strchr(name, ',') ? NULL : model_text(model, err);
	unsigned n = 0;
	struct cpuid_entry *sup = text ? supported(vm, &n, err) : NULL;

	if (strchr(name, ','))
		err_set(err, -EINVAL, "The CPU model '%.60s' does not exist", name);
	if (sup && !cpu_model_build(&m, text, "max", sup, n, err)) {
		props = json_object();
		for (const struct cpu_feature *f = cpu_feature_table; f->name; f++)
			json_object_set_new(props, f->name, json_boolean(cpu_model_has(&m, f->name)));
	}
	free(sup);
	free(text);
	json_decref(missing);
	/* With every feature said, the rest comes from "base". */
	return props ? json_pack("{s:{s:s,s:o}}", "model", "name", full ? name : "base", "props", props) : NULL;
}
