// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * YAML 1.1 files through libyaml's document API, as jansson values. Scalars stay text: "no" is a cache mode here, not a
 * truth value. Bounded: files over 1 MiB, nesting over 16 levels and aliases (which can loop) are refused.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>
#include "base/util.h"
#include "lab/experiment.h"

struct walk {
	yaml_document_t *doc;
	const char *path;
	struct err *err;
	unsigned nodes;
};

static json_t *node_value(struct walk *w, yaml_node_t *node, unsigned depth);

static json_t *fail(struct walk *w, const yaml_node_t *node, const char *what)
{
	err_set(w->err, -EINVAL, "%s:%zu: %s", w->path, node ? node->start_mark.line + 1 : 1, what);
	return NULL;
}

static json_t *mapping_value(struct walk *w, yaml_node_t *node, unsigned depth)
{
	json_t *o = json_object();

	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
		yaml_node_t *key = yaml_document_get_node(w->doc, p->key);
		json_t *value = NULL;
		if (!key || key->type != YAML_SCALAR_NODE)
			fail(w, node, "a key must be a plain text");
		else if (json_object_get(o, (const char *)key->data.scalar.value))
			fail(w, key, "the same key twice");
		else
			value = node_value(w, yaml_document_get_node(w->doc, p->value), depth + 1);
		if (!value || json_object_set_new(o, (const char *)key->data.scalar.value, value)) {
			json_decref(o);
			return w->err->code ? NULL : fail(w, node, "a key is not UTF-8 text");
		}
	}
	return o;
}

static json_t *node_value(struct walk *w, yaml_node_t *node, unsigned depth)
{
	if (!node || depth > 16 || ++w->nodes > 10000)
		return fail(w, node, "nested too deeply, or too much");
	if (node->type == YAML_MAPPING_NODE)
		return mapping_value(w, node, depth);
	if (node->type == YAML_SCALAR_NODE) {
		json_t *s = json_stringn((const char *)node->data.scalar.value, node->data.scalar.length);
		return s ? s : fail(w, node, "not UTF-8 text");
	}
	if (node->type != YAML_SEQUENCE_NODE)
		return fail(w, node, "neither text, list nor mapping");
	json_t *list = json_array();
	for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
		json_t *value = node_value(w, yaml_document_get_node(w->doc, *i), depth + 1);
		if (!value) {
			json_decref(list);
			return NULL;
		}
		json_array_append_new(list, value);
	}
	return list;
}

json_t *yaml_load(const char *path, struct err *err)
{
	FILE *f = fopen(path, "re");
	yaml_parser_t parser;
	yaml_document_t doc;
	struct err own = {0};
	struct walk w = {&doc, path, err ? err : &own, 0};
	json_t *value = NULL;
	struct stat st;

	if (!f) {
		err_set_errno(err, -errno, "cannot open the experiment '%s'", path);
		return NULL;
	}
	if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode) || st.st_size > (off_t)MIB) {
		err_set(err, -EINVAL, "'%s' is not a text file of an experiment", path);
		fclose(f);
		return NULL;
	}
	if (!yaml_parser_initialize(&parser)) {
		err_set_errno(err, -ENOMEM, "'%s'", path);
		fclose(f);
		return NULL;
	}
	yaml_parser_set_input_file(&parser, f);
	if (!yaml_parser_load(&parser, &doc)) {
		err_set(err, -EINVAL, "%s:%zu: %s", path, parser.problem_mark.line + 1,
			parser.problem ? parser.problem : "not YAML");
	} else {
		yaml_node_t *root = yaml_document_get_root_node(&doc);
		if (!root || root->type != YAML_MAPPING_NODE)
			fail(&w, root, "an experiment is a mapping of keys to values");
		else
			value = node_value(&w, root, 0);
		yaml_document_delete(&doc);
	}
	yaml_parser_delete(&parser);
	fclose(f);
	return value;
}
