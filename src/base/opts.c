// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Parsing of one option's argument into an ordered list of key=value strings:
 * QEMU's comma syntax, and JSON objects (through jansson), which are flattened:
 * {"a":{"b":1}} gives a.b=1, {"a":[1,2]} gives a.0=1, a.1=2. No global state.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/type.h"
#include "base/util.h"

/* Limits for what a QMP client may send; a command line is bounded by the kernel already. */
#define OPTS_JSON_DEPTH 8
#define OPTS_MAX	1024

void opts_free(struct opts *o)
{
	for (size_t i = 0; i < o->n; i++) {
		free(o->v[i].key);
		free(o->v[i].value);
	}
	free(o->v);
	free(o->head);
	*o = (struct opts){0};
}

int opts_add(struct opts *o, const char *key, const char *value)
{
	if (o->n >= OPTS_MAX)
		return -E2BIG;
	struct opt *v = realloc(o->v, (o->n + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	o->v = v;
	struct opt n = {.key = strdup(key), .value = strdup(value)};
	if (!n.key || !n.value) {
		free(n.key);
		free(n.value);
		return -ENOMEM;
	}
	o->v[o->n++] = n;
	return 0;
}

int opts_append(char **text, const char *key, const char *value)
{
	char *t = realloc(*text, strlen(*text) + strlen(key) + 2 * strlen(value) + 3);

	if (!t)
		return -ENOMEM;
	*text = t;
	t += strlen(t);
	t += sprintf(t, ",%s=", key);
	for (; *value; value++) {
		*t++ = *value;
		if (*value == ',')
			*t++ = ',';
	}
	*t = 0;
	return 0;
}

const char *opts_get(struct opts *o, const char *key)
{
	const char *value = NULL;

	for (size_t i = 0; i < o->n; i++)
		if (!strcmp(o->v[i].key, key)) {
			o->v[i].used = true;
			value = o->v[i].value; /* the last one wins */
		}
	return value;
}

/* Copy up to the next single comma into buf (strlen(s) + 1 bytes), ",," becoming ","; returns what follows. */
static const char *opts_take(const char *s, char *buf)
{
	while (*s) {
		if (*s == ',' && *++s != ',')
			break;
		*buf++ = *s++;
	}
	*buf = 0;
	return s;
}

static int opts_parse_text(const char *s, const char *head_key, struct opts *out, char *buf, struct err *err)
{
	bool first = true;

	while (*s) {
		size_t klen = strcspn(s, "=,");
		int ret;
		if (first && head_key && s[klen] != '=') {
			s = opts_take(s, buf);
			out->head = strdup(buf);
			ret = out->head ? opts_add(out, head_key, buf) : -ENOMEM;
		} else if (klen == 0) {
			return err_set(err, -EINVAL, "an option name is missing before '%.40s'", s);
		} else {
			char *key = strndup(s, klen);
			if (!key)
				return err_set_errno(err, -ENOMEM, "options");
			if (s[klen] == '=') {
				s = opts_take(s + klen + 1, buf);
				ret = opts_add(out, key, buf);
			} else {
				/* A bare word is a boolean; "nowait" is wait=off. */
				bool no = klen > 2 && !strncmp(key, "no", 2);
				ret = opts_add(out, no ? key + 2 : key, no ? "off" : "on");
				if (!ret)
					out->v[out->n - 1].negated = no;
				s += klen + (s[klen] == ',');
			}
			free(key);
		}
		if (ret)
			return err_set_errno(err, ret, "options");
		first = false;
	}
	return 0;
}

static int opts_add_json(struct opts *out, const char *path, json_t *v, unsigned depth, struct err *err)
{
	char text[64];
	const char *s = text;
	int ret;

	if (depth > OPTS_JSON_DEPTH)
		return err_set(err, -E2BIG, "JSON options: '%.100s' is nested too deeply", path);
	switch (json_typeof(v)) {
	case JSON_OBJECT:
	case JSON_ARRAY: {
		size_t i = 0, size = json_is_array(v) ? json_array_size(v) : 0;
		void *it = json_is_object(v) ? json_object_iter(v) : NULL;
		while (json_is_object(v) ? it != NULL : i < size) {
			char *sub = NULL;
			json_t *e;
			if (json_is_object(v)) {
				e = json_object_iter_value(it);
				ret = asprintf(&sub, "%s%s%s", path, *path ? "." : "", json_object_iter_key(it));
				it = json_object_iter_next(v, it);
			} else {
				e = json_array_get(v, i);
				ret = asprintf(&sub, "%s.%zu", path, i++);
			}
			ret = ret < 0 ? err_set_errno(err, -ENOMEM, "JSON options")
				      : opts_add_json(out, sub, e, depth + 1, err);
			if (sub)
				free(sub);
			if (ret)
				return ret;
		}
		return 0;
	}
	case JSON_STRING: s = json_string_value(v); break;
	case JSON_INTEGER: snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(v)); break;
	case JSON_REAL: snprintf(text, sizeof(text), "%.17g", json_real_value(v)); break;
	case JSON_TRUE: s = "on"; break;
	case JSON_FALSE: s = "off"; break;
	case JSON_NULL: return err_set(err, -EINVAL, "JSON options: '%.100s' is null", path);
	}
	ret = opts_add(out, path, s);
	return ret ? err_set_errno(err, ret, "JSON options") : 0;
}

static int opts_parse_json(const char *text, const char *head_key, struct opts *out, struct err *err)
{
	json_error_t je;
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &je);

	if (!root)
		return err_set(err, -EINVAL, "JSON options: %s at column %d", je.text, je.column);
	int ret = json_is_object(root) ? opts_add_json(out, "", root, 0, err)
				       : err_set(err, -EINVAL, "JSON options: an object is expected");
	json_t *head = head_key && !ret ? json_object_get(root, head_key) : NULL;
	if (json_is_string(head)) {
		out->head = strdup(json_string_value(head));
		if (!out->head)
			ret = err_set_errno(err, -ENOMEM, "JSON options");
	}
	json_decref(root);
	return ret;
}

int opts_parse(const char *text, const char *head_key, struct opts *out, struct err *err)
{
	int ret;

	*out = (struct opts){0};
	if (text[0] == '{') {
		ret = opts_parse_json(text, head_key, out, err);
	} else {
		char *buf = malloc(strlen(text) + 1);
		ret = buf ? opts_parse_text(text, head_key, out, buf, err) : err_set_errno(err, -ENOMEM, "options");
		free(buf);
	}
	if (ret)
		opts_free(out);
	return ret;
}
