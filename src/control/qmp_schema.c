/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading the shapes of qmp_schema.h: a check of a JSON value against one, and the
 * list of QEMU's docs/devel/qapi-code-gen, "Client JSON Protocol introspection".
 * The texts are ours: what is wrong in one is a BUG. Main loop's thread.
 */
#include "control/qmp_schema.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "control/json.h"
#include "control/qmp_impl.h"

#define PATH_MAX_LEN 160

/* ---- reading -------------------------------------------------------------------- */

static const char *skip_blanks(const char *s)
{
	return s + strspn(s, " \t\n");
}

/* Behind the type that begins at s. */
static const char *type_end(const char *s)
{
	unsigned depth = 0;

	for (; *s; s++) {
		if (strchr("{[<", *s))
			depth++;
		else if (strchr("}]>", *s) && depth && !--depth)
			return s + 1;
		else if (!depth && strchr(",}] \t\n", *s))
			return s;
	}
	BUG_ON(depth);
	return s;
}

static const struct qmp_type *find_type(const char *at)
{
	size_t len = (size_t)(type_end(at) - at);

	for (const struct qmp_type *t = qmp_type_table; t->name; t++)
		if (strlen(t->name) == len && !memcmp(t->name, at, len))
			return t;
	BUG("there is no shape @%.*s", (int)len, at);
}

struct member {
	const char *name, *type;
	size_t len; /* of the name */
	bool optional;
};

/* The next of an object's members; false at the end. */
static bool next_member(const char **at, struct member *m)
{
	const char *s = skip_blanks(*at);

	if (*s == ',')
		s = skip_blanks(s + 1);
	if (!*s || *s == '}')
		return false;
	m->name = s;
	m->len = strcspn(s, "?:");
	m->optional = s[m->len] == '?';
	s += m->len + m->optional;
	BUG_ON(*s != ':');
	m->type = skip_blanks(s + 1);
	*at = type_end(m->type);
	return true;
}

/* The next value of "<one|two>"; false at the end. */
static bool next_value(const char **at, const char **value, size_t *len)
{
	const char *s = *at + (**at == '<' || **at == '|');

	if (*s == '>')
		return false;
	*value = s;
	*len = strcspn(s, "|>");
	*at = s + *len;
	return true;
}

/* ---- checking ---------------------------------------------------------------------- */

static bool is_string(const json_t *v)
{
	return json_is_string(v);
}
static bool is_integer(const json_t *v)
{
	return json_is_integer(v);
}
static bool is_number(const json_t *v)
{
	return json_is_number(v);
}
static bool is_boolean(const json_t *v)
{
	return json_is_boolean(v);
}
static bool is_null(const json_t *v)
{
	return json_is_null(v);
}
static bool is_any(const json_t *v)
{
	return v != NULL;
}

/* As the protocol and its error messages call them. */
static const struct {
	const char *name, *json_type, *said;
	bool (*is)(const json_t *v);
} builtins[] = {
    {"str", "string", "string", is_string},    {"int", "int", "integer", is_integer},
    {"number", "number", "number", is_number}, {"bool", "boolean", "boolean", is_boolean},
    {"null", "null", "null", is_null},	       {"any", "value", "any", is_any},
};

static size_t find_builtin(const char *at)
{
	size_t len = (size_t)(type_end(at) - at);

	for (size_t i = 0; i < ARRAY_SIZE(builtins); i++)
		if (strlen(builtins[i].name) == len && !memcmp(builtins[i].name, at, len))
			return i;
	BUG("there is no shape '%.*s'", (int)len, at);
}

static int wrong_type(const char *path, const char *want, struct err *err)
{
	return err_set(err, -EINVAL, "Invalid parameter type for '%s', expected: %s", path, want);
}

static int not_accepted(const char *path, const json_t *v, struct err *err)
{
	return err_set(err, -EINVAL, "Parameter '%s' does not accept value '%.60s'", path, json_string_value(v));
}

static int check(const char *type, const json_t *v, const char *path, struct err *err);

static int check_members(const char *members, const json_t *object, const char *path, struct err *err)
{
	char sub[PATH_MAX_LEN];
	const char *at = members ? members : "", *key;
	const char *dot = *path ? "." : "";
	struct member m;
	json_t *value;
	int ret = 0;

	while (!ret && next_member(&at, &m)) {
		snprintf(sub, sizeof(sub), "%s%s%.*s", path, dot, (int)m.len, m.name);
		value = json_object_getn(object, m.name, m.len);
		if (value)
			ret = check(m.type, value, sub, err);
		else if (!m.optional)
			ret = err_set(err, -EINVAL, "Parameter '%s' is missing", sub);
	}
	json_object_foreach((json_t *)(uintptr_t)object, key, value) {
		bool known = false;

		for (at = members ? members : ""; !known && next_member(&at, &m);)
			known = strlen(key) == m.len && !memcmp(key, m.name, m.len);
		if (!known && !ret)
			ret = err_set(err, -EINVAL, "Parameter '%s%s%.60s' is unexpected", path, dot, key);
	}
	return ret;
}

static int check_enum(const char *at, const json_t *v, const char *path, struct err *err)
{
	const char *text = json_string_value(v), *value;
	size_t len;

	if (!text)
		return wrong_type(path, "string", err);
	while (next_value(&at, &value, &len))
		if (strlen(text) == len && !memcmp(text, value, len))
			return 0;
	return not_accepted(path, v, err);
}

static int check_named(const struct qmp_type *t, const json_t *v, const char *path, struct err *err)
{
	const char *value;

	if (t->shape)
		return check(t->shape, v, path, err);
	if (!json_is_string(v))
		return wrong_type(path, "string", err);
	for (size_t i = 0; (value = t->value(i)); i++)
		if (!strcmp(value, json_string_value(v)))
			return 0;
	return not_accepted(path, v, err);
}

/* As deep as the value: what a client sends was bounded when it was cut out of the stream. */
static int check(const char *type, const json_t *v, const char *path, struct err *err)
{
	size_t i;
	int ret = 0;

	switch (*type) {
	case '@': return check_named(find_type(type + 1), v, path, err);
	case '<': return check_enum(type, v, path, err);
	case '{': return json_is_object(v) ? check_members(type + 1, v, path, err) : wrong_type(path, "object", err);
	case '[':
		if (!json_is_array(v))
			return wrong_type(path, "array", err);
		for (i = 0; !ret && i < json_array_size(v); i++)
			ret = check(type + 1, json_array_get(v, i), path, err);
		return ret;
	default: break;
	}
	i = find_builtin(type);
	return builtins[i].is(v) ? 0 : wrong_type(path, builtins[i].said, err);
}

int qmp_check_members(const char *members, const json_t *args, struct err *err)
{
	json_t *none = args ? NULL : json_object();
	int ret = check_members(members, args ? args : none, "", err);

	json_decref(none);
	return ret;
}

int qmp_check_shape(const char *shape, const json_t *value, struct err *err)
{
	return check(shape, value, "return", err);
}

/* ---- the schema ---------------------------------------------------------------------- */

struct schema {
	json_t *list;
	json_t *names; /* text of a type → its masked name */
	unsigned next;
};

static const char *schema_type(struct schema *s, const char *type);

static json_t *schema_values(const char *at)
{
	json_t *values = json_array();
	const char *value;
	size_t len;

	while (next_value(&at, &value, &len))
		json_array_append_new(values, json_stringn(value, len));
	return values;
}

static json_t *schema_named_values(const struct qmp_type *t)
{
	json_t *values = json_array();
	const char *value;

	for (size_t i = 0; (value = t->value(i)); i++)
		json_array_append_new(values, json_string(value));
	return values;
}

static json_t *schema_enum(json_t *values)
{
	json_t *members = json_array();

	for (size_t i = 0; i < json_array_size(values); i++)
		json_array_append_new(members, json_pack("{s:O}", "name", json_array_get(values, i)));
	return json_pack("{s:s,s:o,s:o}", "meta-type", "enum", "members", members, "values", values);
}

static json_t *schema_object(struct schema *s, const char *at)
{
	json_t *members = json_array();
	struct member m;

	while (next_member(&at, &m)) {
		json_t *o = json_pack("{s:s%,s:s}", "name", m.name, m.len, "type", schema_type(s, m.type));

		if (m.optional)
			json_object_set_new(o, "default", json_null());
		json_array_append_new(members, o);
	}
	return json_pack("{s:s,s:o}", "meta-type", "object", "members", members);
}

/* The type's name in the schema, owned by it; the type is added when it is new. */
static const char *schema_type(struct schema *s, const char *type)
{
	const struct qmp_type *named = *type == '@' ? find_type(type + 1) : NULL;
	size_t len = (size_t)(type_end(type) - type);
	json_t *known = json_object_getn(s->names, type, len), *entry;
	char name[32];

	if (known)
		return json_string_value(known);
	if (named && named->shape)
		return schema_type(s, named->shape);
	/* Noted before its parts are looked at: a type may refer to itself. */
	if (strchr("@<{", *type))
		snprintf(name, sizeof(name), "%u", s->next++);
	else if (*type == '[')
		snprintf(name, sizeof(name), "[%s]", schema_type(s, skip_blanks(type + 1)));
	else
		snprintf(name, sizeof(name), "%s", builtins[find_builtin(type)].name);
	known = json_string(name);
	json_object_setn_new(s->names, type, len, known);
	if (named)
		entry = schema_enum(schema_named_values(named));
	else if (*type == '<')
		entry = schema_enum(schema_values(type));
	else if (*type == '{')
		entry = schema_object(s, type + 1);
	else if (*type == '[')
		entry =
		    json_pack("{s:s,s:s}", "meta-type", "array", "element-type", schema_type(s, skip_blanks(type + 1)));
	else
		entry =
		    json_pack("{s:s,s:s}", "meta-type", "builtin", "json-type", builtins[find_builtin(type)].json_type);
	json_object_set_new(entry, "name", json_string(name));
	json_array_append_new(s->list, entry);
	return json_string_value(known);
}

/* Members without braces: an object of its own. */
static const char *schema_members(struct schema *s, const char *members)
{
	char *text = NULL;
	const char *name = NULL;

	if (asprintf(&text, "{%s}", members ? members : "") >= 0)
		name = schema_type(s, text);
	free(text);
	return name ? name : "0";
}

static void schema_command(struct schema *s, const char *name, const char *args, const char *ret)
{
	const char *arg_type = schema_members(s, args), *ret_type = schema_type(s, ret ? ret : "{}");

	json_array_append_new(s->list, json_pack("{s:s,s:s,s:s,s:s}", "name", name, "meta-type", "command", "arg-type",
						 arg_type, "ret-type", ret_type));
}

json_t *qmp_schema(void)
{
	struct schema s = {.list = json_array(), .names = json_object()};

	schema_command(&s, QMP_CAPABILITIES, QMP_CAPABILITIES_ARGS, NULL);
	for (const struct qmp_command *c = qmp_command_table; c->name; c++)
		schema_command(&s, c->name, c->args, c->ret);
	for (const struct qmp_event *e = qmp_event_table; e->name; e++) {
		const char *data = schema_members(&s, e->members);

		json_array_append_new(
		    s.list, json_pack("{s:s,s:s,s:s}", "name", e->name, "meta-type", "event", "arg-type", data));
	}
	json_decref(s.names);
	return s.list;
}
