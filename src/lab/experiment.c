// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Experiments: from a document to checked values. The document is kept whole, so that a result folder repeats exactly
 * what was asked for. Main thread.
 */
#include "lab/experiment.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/type.h"
#include "base/util.h"
#include "lab/paths.h"
#include "lab/workload.h"

static const char *const keys[] = {"name",    "about",	 "workload", "settings",  "params",
				   "factors", "exclude", "metrics",  "reference", "host",
				   "runs",    "detect",	 "budget",   "timeout",	  "quick"};

/* ---- values ---------------------------------------------------------------------- */

static int read_bool(json_t *doc, const char *key, bool fallback, bool *out, struct err *err)
{
	const char *v = json_string_value(json_object_get(doc, key));

	*out = fallback;
	if (!json_object_get(doc, key))
		return 0;
	*out = v && !strcmp(v, "yes");
	if (!v || (!*out && strcmp(v, "no")))
		return err_set(err, -EINVAL, "'%s' is yes or no", key);
	return 0;
}

/* A number with one of `units` (text of pairs: letter and factor), e.g. "10m". */
static int read_number(json_t *doc, const char *key, double fallback, const char *unit, double scale, double *out,
		       struct err *err)
{
	const char *v = json_string_value(json_object_get(doc, key));
	char *end = NULL;

	*out = fallback;
	if (!json_object_get(doc, key))
		return 0;
	*out = v ? strtod(v, &end) : -1;
	if (!v || end == v || *out <= 0)
		return err_set(err, -EINVAL, "'%s' must be a positive number, such as 5%s", key, unit);
	if (!strcmp(unit, "m") && (!strcmp(end, "s") || !strcmp(end, "m") || !strcmp(end, "h")))
		*out *= *end == 's' ? 1 : *end == 'm' ? 60 : 3600;
	else if (!strcmp(unit, "%") && !strcmp(end, "%"))
		*out *= scale;
	else if (*end || *unit)
		return err_set(err, -EINVAL, "'%s: %s' needs a unit (%s)", key, v,
			       !strcmp(unit, "m") ? "s, m or h" : unit);
	return 0;
}

/* All values of an object are texts (or, with `lists`, lists of texts). */
static int check_texts(json_t *o, const char *what, bool lists, struct err *err)
{
	const char *key;
	json_t *value, *item;
	size_t i;

	if (!json_is_object(o))
		return err_set(err, -EINVAL, "'%s' must be a mapping", what);
	json_object_foreach(o, key, value) {
		if (!lists && !json_is_string(value))
			return err_set(err, -EINVAL, "'%s: %s' must be a text", what, key);
		if (lists && !json_is_array(value))
			return err_set(err, -EINVAL, "'%s: %s' must be a list of levels", what, key);
		if (lists && !json_array_size(value))
			return err_set(err, -EINVAL, "'%s: %s' has no levels", what, key);
		json_array_foreach(value, i, item) {
			if (!json_is_string(item))
				return err_set(err, -EINVAL, "'%s: %s': level %zu is not a text", what, key, i + 1);
		}
	}
	return 0;
}

static json_t *own_object(json_t *doc, const char *key)
{
	json_t *o = json_object_get(doc, key);

	if (!o)
		json_object_set_new(doc, key, o = json_object());
	return o;
}

static int settle_runs(struct experiment *e, struct err *err)
{
	json_t *runs = own_object(e->doc, "runs");
	double least = 0, most = 0;
	int ret = json_is_object(runs) ? 0 : err_set(err, -EINVAL, "'runs' must be a mapping of least and most");

	if (!ret)
		ret = read_number(runs, "least", 6, "", 1, &least, err);
	if (!ret)
		ret = read_number(runs, "most", 40, "", 1, &most, err);
	if (!ret && (least > most || most > 10000))
		ret = err_set(err, -EINVAL, "'runs': least (%g) may not exceed most (%g), nor most 10000", least, most);
	if (!ret) {
		e->least = (unsigned)least;
		e->most = (unsigned)most;
	}
	return ret;
}

int experiment_settle(struct experiment *e, struct err *err)
{
	json_t *doc = e->doc;
	const char *key, *name = json_string_value(json_object_get(doc, "workload"));
	json_t *value;
	int ret = 0;

	json_object_foreach(doc, key, value) {
		bool known = false;
		for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
			known |= !strcmp(keys[i], key);
		if (known)
			continue;
		const char *near = text_nearest(key, keys, ARRAY_SIZE(keys));
		return err_set(err, -EINVAL, "an experiment has no key '%s'%s%s%s", key, near ? "; did you mean '" : "",
			       near ? near : "", near ? "'?" : "");
	}
	e->name = json_string_value(json_object_get(doc, "name"));
	e->about = json_string_value(json_object_get(doc, "about"));
	e->workload = workload_find(name);
	if (!e->name || !*e->name || strchr(e->name, '/'))
		return err_set(err, -EINVAL, "an experiment needs a 'name' without '/'");
	if (!e->workload)
		return err_set(err, -EINVAL, "there is no workload '%s' (kelvin bench list names them)",
			       name ? name : "");
	e->settings = own_object(doc, "settings");
	e->factors = own_object(doc, "factors");
	e->reference = own_object(doc, "reference");
	e->metrics = json_object_get(doc, "metrics");
	e->constraints = json_object_get(doc, "exclude");
	ret = check_texts(e->settings, "settings", false, err);
	if (!ret)
		ret = check_texts(e->factors, "factors", true, err);
	if (!ret)
		ret = check_texts(e->reference, "reference", false, err);
	if (!ret && e->metrics && !json_is_array(e->metrics))
		ret = err_set(err, -EINVAL, "'metrics' must be a list");
	if (!ret && e->constraints && !json_is_array(e->constraints))
		ret = err_set(err, -EINVAL, "'exclude' must be a list of mappings");
	if (!ret)
		ret = read_bool(doc, "host", false, &e->host, err);
	if (!ret)
		ret = settle_runs(e, err);
	if (!ret)
		ret = read_number(doc, "detect", 0.05, "%", 0.01, &e->tolerance, err);
	if (!ret)
		ret = read_number(doc, "budget", 3600, "m", 1, &e->budget_s, err);
	if (!ret)
		ret = read_number(doc, "timeout", 600, "m", 1, &e->timeout_s, err);
	if (!ret && e->host && e->workload->flags & WORKLOAD_NO_HOST)
		ret = err_set(err, -EINVAL, "the workload '%s' means nothing on the host: 'host' must be no",
			      e->workload->name);
	if (ret)
		return ret;
	json_object_foreach(e->factors, key, value) {
		json_object_del(e->settings, key);
	}
	return 0;
}

/* 'params' are settings work.NAME; defaults come from the workload's table. */
static int settle_params(struct experiment *e, struct err *err)
{
	json_t *params = json_object_get(e->doc, "params"), *value;
	const char *key;
	int ret = params ? check_texts(params, "params", false, err) : 0;

	if (ret)
		return ret;
	json_object_foreach(params, key, value) {
		char *full = paths_text("work.%s", key);
		if (full && !json_object_get(e->settings, full))
			json_object_set(e->settings, full, value);
		free(full);
	}
	json_object_del(e->doc, "params");
	for (const struct workload_param *p = e->workload->params; p->name; p++) {
		char *full = paths_text("work.%s", p->name);
		if (full && !json_object_get(e->settings, full) && !json_object_get(e->factors, full))
			json_object_set_new(e->settings, full, json_string(p->value));
		free(full);
	}
	return 0;
}

/* ---- loading --------------------------------------------------------------------- */

struct experiment *experiment_from_doc(json_t *doc, struct err *err)
{
	struct experiment *e = calloc(1, sizeof(*e));

	if (!e) {
		err_set_errno(err, -ENOMEM, "experiment");
		return NULL;
	}
	e->doc = json_deep_copy(doc);
	if (!e->doc || experiment_settle(e, err) || settle_params(e, err) || experiment_settle(e, err)) {
		experiment_free(e);
		return NULL;
	}
	return e;
}

/* A file of the user's, or a built-in experiment's? */
static bool is_file(const char *name)
{
	const size_t n = strlen(name);

	return strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".yaml"));
}

char *experiment_path(const char *name, struct err *err)
{
	const struct paths *p = is_file(name) ? NULL : paths_find(err);

	return is_file(name) ? strdup(name) : p ? paths_text("%s/lab/%s.yaml", p->share, name) : NULL;
}

struct experiment *experiment_load(const char *name, bool quick, struct err *err)
{
	char *path = experiment_path(name, err);
	json_t *doc = NULL, *small;
	struct experiment *e = NULL;

	if (!path)
		return NULL;
	FILE *f = fopen(path, "re");
	if (!f && !is_file(name))
		err_set(err, -ENOENT,
			"there is no experiment '%s' (kelvin bench list names them; a file ends in .yaml)", name);
	else
		doc = yaml_load(path, err);
	if (f)
		fclose(f);
	if (doc) {
		small = json_incref(json_object_get(doc, "quick"));
		if (small && !json_is_object(small))
			err_set(err, -EINVAL, "%s: 'quick' must be a mapping", path);
		else if (quick && small)
			json_object_update_recursive(doc, small);
		json_object_del(doc, "quick");
		json_decref(small);
		e = err && err->code ? NULL : experiment_from_doc(doc, err);
		if (!e)
			err_prefix(err, "%s", path);
	}
	json_decref(doc);
	free(path);
	return e;
}

void experiment_free(struct experiment *e)
{
	if (e)
		json_decref(e->doc);
	free(e);
}

/* ---- changes from the command line -------------------------------------------------- */

static const char *split_pair(const char *text, char key[128], const char *option, struct err *err)
{
	const char *equals = strchr(text, '=');

	if (!equals || equals == text || equals - text > 127) {
		err_set(err, -EINVAL, "%s needs KEY=VALUE, not '%s'", option, text);
		return NULL;
	}
	memcpy(key, text, (size_t)(equals - text));
	key[equals - text] = 0;
	return equals + 1;
}

int experiment_vary(struct experiment *e, const char *text, struct err *err)
{
	char key[128];
	const char *v = split_pair(text, key, "--vary", err);
	json_t *levels = json_array();

	while (v && *v) {
		size_t n = strcspn(v, ",");
		json_array_append_new(levels, json_stringn(v, n));
		v += n + (v[n] == ',');
	}
	if (!v || !json_array_size(levels)) {
		json_decref(levels);
		return v ? err_set(err, -EINVAL, "--vary %s: no levels", key) : -EINVAL;
	}
	json_object_del(e->reference, key);
	json_object_set_new(e->factors, key, levels);
	return experiment_settle(e, err);
}

int experiment_fix(struct experiment *e, const char *text, struct err *err)
{
	char key[128];
	const char *v = split_pair(text, key, "--fix", err);

	if (!v)
		return -EINVAL;
	json_object_del(e->factors, key);
	json_object_del(e->reference, key);
	json_object_set_new(e->settings, key, json_string(v));
	return experiment_settle(e, err);
}

/* ---- the matrix ----------------------------------------------------------------------- */

static bool rule_matches(json_t *rule, json_t *settings)
{
	const char *key;
	json_t *want, *item;
	size_t i;

	json_object_foreach(rule, key, want) {
		const char *have = json_string_value(json_object_get(settings, key));
		bool hit = have && json_is_string(want) && !strcmp(have, json_string_value(want));
		json_array_foreach(want, i, item) {
			hit |= have && json_is_string(item) && !strcmp(have, json_string_value(item));
		}
		if (!hit)
			return false;
	}
	return true;
}

static bool excluded(const struct experiment *e, json_t *settings)
{
	json_t *rule;
	size_t i;

	json_array_foreach(e->constraints, i, rule) {
		if (json_object_size(rule) && rule_matches(rule, settings))
			return true;
	}
	return false;
}

/* What tells the cell from others: a factor of one level does not. */
static char *label_of(const struct experiment *e, json_t *levels)
{
	char *label = strdup("");
	const char *key;
	json_t *value;

	json_object_foreach(levels, key, value) {
		if (json_array_size(json_object_get(e->factors, key)) < 2)
			continue;
		char *more =
		    label ? paths_text("%s%s%s=%s", label, *label ? " " : "", key, json_string_value(value)) : NULL;
		free(label);
		label = more;
	}
	if (label && !*label) {
		free(label);
		label = strdup("guest");
	}
	return label;
}

static struct cell *add_cell(struct matrix *m, json_t *settings, json_t *levels, char *label)
{
	struct cell *more = label ? realloc(m->cell, (m->n + 1) * sizeof(*more)) : NULL;

	if (!more) {
		json_decref(settings);
		json_decref(levels);
		free(label);
		return NULL;
	}
	m->cell = more;
	more[m->n] = (struct cell){.label = label, .settings = settings, .levels = levels};
	return &more[m->n++];
}

int matrix_make(const struct experiment *e, struct matrix *m, struct err *err)
{
	size_t total = 1, best = 0;
	const char *key;
	json_t *list;

	*m = (struct matrix){0};
	json_object_foreach(e->factors, key, list) {
		total *= json_array_size(list);
		if (total > 2000)
			return err_set(err, -E2BIG, "the experiment has more than 2000 cells: fix some of the factors");
	}
	for (size_t number = 0; number < total; number++) {
		json_t *levels = json_object(), *settings = json_deep_copy(e->settings);
		size_t rest = number, block = total;
		json_object_foreach(e->factors, key, list) {
			block /= json_array_size(list);
			json_t *level = json_array_get(list, rest / block);
			rest %= block;
			json_object_set(levels, key, level);
			json_object_set(settings, key, level);
		}
		if (excluded(e, settings)) {
			json_decref(levels);
			json_decref(settings);
			continue;
		}
		if (!add_cell(m, settings, levels, label_of(e, levels)))
			return err_set_errno(err, -ENOMEM, "cells");
	}
	if (!m->n)
		return err_set(err, -EINVAL, "no cell is left: 'exclude' rules out all of them");
	for (best = 0; best < m->n && !rule_matches(e->reference, m->cell[best].settings); best++)
		;
	if (best == m->n)
		return err_set(err, -EINVAL, "'reference' is none of the cells");
	m->reference = best;
	struct cell *twin = add_cell(m, json_incref(m->cell[best].settings), json_incref(m->cell[best].levels),
				     paths_text("%s (again)", m->cell[best].label));
	if (!twin)
		return err_set_errno(err, -ENOMEM, "cells");
	twin->twin = true;
	m->twin = m->n - 1;
	if (e->host) {
		struct cell *host = add_cell(m, json_incref(e->settings), json_object(), strdup("host"));
		if (!host)
			return err_set_errno(err, -ENOMEM, "cells");
		host->host = m->has_host = true;
		m->host = m->n - 1;
	}
	return 0;
}

void matrix_free(struct matrix *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->cell[i].label);
		json_decref(m->cell[i].settings);
		json_decref(m->cell[i].levels);
	}
	free(m->cell);
	*m = (struct matrix){0};
}

int experiment_each(void (*fn)(void *arg, const char *name, const char *path), void *arg, struct err *err)
{
	const struct paths *p = paths_find(err);
	char *folder = p ? paths_text("%s/lab", p->share) : NULL;
	struct dirent **list = NULL;
	int n = folder ? scandir(folder, &list, NULL, alphasort) : -1;

	for (int i = 0; i < n; i++) {
		char *dot = strrchr(list[i]->d_name, '.');
		if (dot && !strcmp(dot, ".yaml")) {
			char *path = paths_text("%s/%s", folder, list[i]->d_name);
			*dot = 0;
			if (path)
				fn(arg, list[i]->d_name, path);
			free(path);
		}
		free(list[i]);
	}
	free(list);
	free(folder);
	return n < 0 ? (p ? err_set_errno(err, -errno, "the built-in experiments") : -ENOENT) : 0;
}
