// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Analysis of a journal: summaries of cells, ratios to the reference and to the host, effects of single settings
 * (averaged in each block over all else), the noise floor from the A/A pair, and a verdict in words.
 */
#include "lab/analyse.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "lab/paths.h"

/* A comparison in the making: its place in the document and its figures. */
struct comparison {
	json_t *o;
	struct stats_ratio r;
};

struct family {
	struct comparison *c;
	size_t n;
};

struct work {
	const struct journal *j;
	unsigned blocks;
	double alpha;
	json_t *doc;
	const char *metric, *title;
	bool higher;
	const char *unit;
};

/* ---- values out of the journal ------------------------------------------------------ */

static double value_at(const struct work *w, unsigned block, const struct cell *c)
{
	json_t *trial = journal_find(w->j, block, c->label);
	const char *status = json_string_value(json_object_get(trial, "status"));
	json_t *m = json_object_get(json_object_get(trial, "metrics"), w->metric);

	return status && !strcmp(status, "ok") && m ? json_number_value(json_object_get(m, "value")) : NAN;
}

unsigned analyse_complete_blocks(const struct journal *j)
{
	for (unsigned block = 0;; block++)
		for (size_t i = 0; i < j->matrix.n; i++)
			if (!journal_find(j, block, j->matrix.cell[i].label))
				return block;
}

/* What people call it: of "phase:part" the phase's title, and the part. */
static char *title_of(json_t *metrics, const char *name)
{
	const char *colon = strchr(name, ':');
	char *phase = paths_text("%.*s", colon ? (int)(colon - name) : (int)strlen(name), name), *text;
	const char *title = phase ? json_string_value(json_object_get(json_object_get(metrics, phase), "title")) : NULL;

	text = paths_text("%s%s%s", title ? title : phase ? phase : "", colon ? ", " : "", colon ? colon + 1 : "");
	free(phase);
	for (char *p = text; p && *p; p++)
		if (*p == '_')
			*p = ' ';
	return text;
}

/* Names of the metrics to judge, with unit and direction from the first trial that has them. */
static json_t *metric_list(const struct work *w)
{
	json_t *list = json_array(), *trial, *m, *want = w->j->experiment->metrics;
	const char *name;
	size_t i, k;

	json_array_foreach(w->j->trials, i, trial) {
		json_object_foreach(json_object_get(trial, "metrics"), name, m) {
			bool wanted = !want && !strchr(name, ':'), have = false;
			json_t *o;
			json_array_foreach(want, k, o) {
				/* "*:cpu" asks for that of every phase. */
				const char *text = json_string_value(o), *colon = strchr(name, ':');
				wanted |= text && (!strcmp(text, name) ||
						   (text[0] == '*' && colon && !strcmp(text + 1, colon)));
			}
			json_array_foreach(list, k, o) {
				have |= !strcmp(json_string_value(json_object_get(o, "name")), name);
			}
			if (!wanted || have)
				continue;
			char *title = title_of(json_object_get(trial, "metrics"), name);
			json_array_append_new(list, json_pack("{s:s,s:s,s:O,s:O}", "name", name, "title",
							      title && *title ? title : name, "unit",
							      json_object_get(m, "unit"), "better",
							      json_object_get(m, "better")));
			free(title);
		}
	}
	return list;
}

/* ---- figures as JSON ------------------------------------------------------------------ */

static json_t *number(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

static json_t *interval_json(struct stats_interval i)
{
	json_t *list = json_array();

	json_array_append_new(list, number(i.low));
	json_array_append_new(list, number(i.high));
	return list;
}

static void put_ratio(json_t *o, const struct stats_ratio *r)
{
	json_object_set_new(o, "n", json_integer((json_int_t)r->n));
	json_object_set_new(o, "ratio", number(r->ratio));
	json_object_set_new(o, "median_ratio", number(r->median));
	json_object_set_new(o, "ci", interval_json(r->t));
	json_object_set_new(o, "ci_boot", interval_json(r->boot));
	json_object_set_new(o, "ci_joint", interval_json(r->joint));
	json_object_set_new(o, "p", number(r->p));
	json_object_set_new(o, "p_holm", number(r->p_family));
	json_object_set_new(o, "detectable", number(r->detectable));
}

static const char *verdict_name(enum stats_verdict v)
{
	static const char *const names[] = {"less", "more", "same", "unknown"};

	return names[v];
}

/* ---- comparisons ------------------------------------------------------------------------ */

static struct stats_ratio compare(const struct work *w, const struct cell *a, const struct cell *b)
{
	double *x = calloc(w->blocks + 1, sizeof(*x)), *y = calloc(w->blocks + 1, sizeof(*y));
	size_t n = 0;

	for (unsigned block = 0; x && y && block < w->blocks; block++) {
		double p = value_at(w, block, a), q = value_at(w, block, b);
		if (p > 0 && q > 0) {
			x[n] = p;
			y[n++] = q;
		}
	}
	struct stats_ratio r = stats_ratio(x, y, n, w->j->seed);
	free(x);
	free(y);
	return r;
}

static bool same_but(json_t *a, json_t *b, const char *but)
{
	const char *key;
	json_t *value;

	json_object_foreach(a, key, value) {
		if (strcmp(key, but) && !json_equal(value, json_object_get(b, key)))
			return false;
	}
	return true;
}

/* Log ratios of a pair of cells in all blocks go to logs[]; false when one is missing. */
static bool pair_logs(const struct work *w, const struct cell *a, const struct cell *b, const bool *use, double *logs)
{
	size_t n = 0;

	for (unsigned block = 0; block < w->blocks; block++) {
		double p = value_at(w, block, a), q = value_at(w, block, b);
		if (!use[block])
			continue;
		if (!(p > 0 && q > 0))
			return false;
		logs[n++] = log(q / p);
	}
	return true;
}

static bool differs_in(const struct cell *a, const struct cell *b, const char *factor, json_t *from, json_t *to)
{
	return !a->twin && !b->twin && !a->host && !b->host && json_equal(json_object_get(a->levels, factor), from) &&
	       json_equal(json_object_get(b->levels, factor), to) && same_but(a->levels, b->levels, factor);
}

/*
 * The effect of a level against another: the mean log ratio over all pairs of cells that differ in it alone, over the
 * blocks where at least one pair is complete and the pairs that are complete in all of these.
 */
static struct stats_ratio effect(const struct work *w, const char *factor, json_t *from, json_t *to)
{
	const struct matrix *m = &w->j->matrix;
	double *logs = calloc((size_t)(w->blocks + 1) * m->n, sizeof(*logs));
	bool *use = calloc(w->blocks + 1, sizeof(*use));
	size_t pairs = 0, n = 0;

	for (size_t i = 0; logs && use && i < m->n * m->n; i++) {
		const struct cell *a = &m->cell[i / m->n], *b = &m->cell[i % m->n];
		for (unsigned block = 0; block < w->blocks && differs_in(a, b, factor, from, to); block++)
			use[block] |= value_at(w, block, a) > 0 && value_at(w, block, b) > 0;
	}
	for (unsigned block = 0; use && block < w->blocks; block++)
		n += use[block];
	for (size_t i = 0; logs && use && n && i < m->n * m->n; i++) {
		const struct cell *a = &m->cell[i / m->n], *b = &m->cell[i % m->n];
		if (differs_in(a, b, factor, from, to))
			pairs += pair_logs(w, a, b, use, logs + pairs * n);
	}
	struct stats_ratio r = stats_pooled(logs, pairs, n, w->j->seed);
	free(logs);
	free(use);
	return r;
}

static void family_add(struct family *f, json_t *o, struct stats_ratio r)
{
	struct comparison *more = realloc(f->c, (f->n + 1) * sizeof(*more));

	if (!more)
		return;
	f->c = more;
	more[f->n++] = (struct comparison){o, r};
}

/* Judge and write into the document; returns whether all is settled. */
static bool family_judge(struct family *f, double alpha, double tolerance)
{
	struct stats_ratio *r = f->n ? calloc(f->n, sizeof(*r)) : NULL;
	enum stats_verdict *v = f->n ? calloc(f->n, sizeof(*v)) : NULL;
	bool settled = true;

	if (r && v) {
		for (size_t i = 0; i < f->n; i++)
			r[i] = f->c[i].r;
		stats_judge(r, f->n, alpha, tolerance, v);
		for (size_t i = 0; i < f->n; i++) {
			put_ratio(f->c[i].o, &r[i]);
			json_object_set_new(f->c[i].o, "verdict", json_string(verdict_name(v[i])));
		}
		settled = stats_settled(r, v, f->n, tolerance);
	}
	free(r);
	free(v);
	free(f->c);
	*f = (struct family){0};
	return settled;
}

/* ---- cells ------------------------------------------------------------------------------ */

static json_t *cell_json(const struct work *w, const struct cell *c)
{
	double *x = calloc(w->blocks + 1, sizeof(*x));
	json_t *values = json_array(), *o = json_object();
	size_t n = 0;

	for (unsigned block = 0; x && block < w->blocks; block++) {
		double v = value_at(w, block, c);
		json_array_append_new(values, number(v));
		if (v > 0)
			x[n++] = v;
	}
	struct stats_summary s = stats_summary(x, n, w->j->seed);
	/* Times and rates are positive, whatever Student's t thinks of few of them. */
	s.t.low = s.t.low < 0 ? 0 : s.t.low;
	json_object_set_new(o, "label", json_string(c->label));
	json_object_set_new(o, "kind",
			    json_string(c->host						  ? "host"
					: c->twin					  ? "twin"
					: c == &w->j->matrix.cell[w->j->matrix.reference] ? "reference"
											  : "cell"));
	json_object_set(o, "levels", c->levels);
	json_object_set_new(o, "n", json_integer((json_int_t)n));
	json_object_set_new(o, "mean", number(s.mean));
	json_object_set_new(o, "median", number(s.median));
	json_object_set_new(o, "sd", number(s.sd));
	json_object_set_new(o, "ci", interval_json(s.t));
	json_object_set_new(o, "ci_boot", interval_json(s.boot));
	json_object_set_new(o, "values", values);
	free(x);
	return o;
}

/* The trials of a cell in the analysed blocks where both cells are good. */
static void trial_pairs(const struct work *w, const struct cell *a, const struct cell *b, json_t *of_a, json_t *of_b)
{
	for (unsigned block = 0; block < w->blocks; block++)
		if (value_at(w, block, a) > 0 && value_at(w, block, b) > 0) {
			json_array_append(of_a, journal_find(w->j, block, a->label));
			json_array_append(of_b, journal_find(w->j, block, b->label));
		}
}

/* ---- words ------------------------------------------------------------------------------- */

/* "takes 12 % longer than", "does 3.1 times as much as", by what the unit is. */
static char *difference_words(const struct work *w, double ratio)
{
	double percent = fabs(ratio - 1) * 100;
	const char *more, *less, *verb;

	if (strstr(w->unit, "/s")) {
		verb = "does", more = "more", less = "less";
	} else if (strchr(w->unit, '%')) {
		verb = "uses", more = "more", less = "less";
	} else {
		verb = "takes", more = "longer", less = "less";
	}
	if (ratio >= 2)
		return paths_text("%s %.1f times as %s as", verb, ratio, *verb == 't' ? "long" : "much");
	return paths_text("%s %.*f %% %s than", verb, percent < 10 ? 1 : 0, percent, ratio > 1 ? more : less);
}

static char *percent_range(struct stats_interval i)
{
	if (!isfinite(i.low) || !isfinite(i.high))
		return strdup("no interval: too few repetitions");
	if (i.low >= 1.5)
		return paths_text("95 %% interval %.2f to %.2f times", i.low, i.high);
	return paths_text("95 %% interval %+.1f to %+.1f %%", (i.low - 1) * 100, (i.high - 1) * 100);
}

static struct stats_interval get_interval(json_t *o, const char *key)
{
	json_t *list = json_object_get(o, key), *low = json_array_get(list, 0), *high = json_array_get(list, 1);

	return (struct stats_interval){json_is_number(low) ? json_number_value(low) : NAN,
				       json_is_number(high) ? json_number_value(high) : NAN};
}

static char *sentence(const struct work *w, json_t *o, const char *what, const char *base)
{
	const char *verdict = json_string_value(json_object_get(o, "verdict"));
	double ratio = json_number_value(json_object_get(o, "ratio")), tolerance = w->j->experiment->tolerance * 100;
	json_t *least = json_object_get(o, "detectable");
	char *range = percent_range(get_interval(o, "ci")), *text;

	if (!strcmp(verdict, "less") || !strcmp(verdict, "more")) {
		char *words = difference_words(w, ratio);
		text = paths_text("%s: %s %s %s (%s)", w->title, what, words ? words : "", base, range ? range : "");
		free(words);
	} else if (!strcmp(verdict, "same")) {
		text = paths_text("%s: no measurable difference between %s and %s (less than %.3g %%; %s)", w->title,
				  what, base, tolerance, range ? range : "");
	} else if (json_is_number(least) && json_number_value(least) < 10) {
		/* What the decision is made by, over all comparisons: it holds zero. */
		free(range);
		range = percent_range(get_interval(o, "ci_joint"));
		text = paths_text("%s: cannot tell %s from %s (%s; a difference under %.0f %% would be missed)",
				  w->title, what, base, range ? range : "", (json_number_value(least) - 1) * 100);
	} else {
		text = paths_text(
		    "%s: cannot tell %s from %s (too few repetitions, or too unsteady ones, to say anything)", w->title,
		    what, base);
	}
	free(range);
	return text;
}

/* Worse, better or neither, for colours. */
static const char *judgement(const struct work *w, const char *verdict)
{
	if (strcmp(verdict, "less") && strcmp(verdict, "more"))
		return verdict;
	return (!strcmp(verdict, "more")) == w->higher ? "better" : "worse";
}

static void say(const struct work *w, json_t *o, const char *what, const char *base, const char *kind)
{
	char *text = sentence(w, o, what, base);
	const char *verdict = json_string_value(json_object_get(o, "verdict"));

	if (text) {
		json_t *v = json_object();
		json_object_set_new(v, "text", json_string(text));
		json_object_set_new(v, "kind", json_string(kind));
		if (json_object_get(o, "factor"))
			json_object_set(v, "factor", json_object_get(o, "factor"));
		json_object_set_new(v, "metric", json_string(w->metric));
		json_object_set_new(v, "title", json_string(w->title));
		json_object_set_new(v, "what", json_string(what));
		json_object_set_new(v, "base", json_string(base));
		json_object_set_new(v, "verdict", json_string(verdict));
		json_object_set_new(v, "judgement", json_string(judgement(w, verdict)));
		json_object_set(v, "ratio", json_object_get(o, "ratio"));
		json_object_set(v, "ci", json_object_get(o, "ci"));
		json_object_set(v, "ci_joint", json_object_get(o, "ci_joint"));
		json_object_set(v, "detectable", json_object_get(o, "detectable"));
		if (json_object_get(o, "why"))
			json_object_set(v, "why", json_object_get(o, "why"));
		json_array_append_new(json_object_get(w->doc, "verdict"), v);
	}
	free(text);
}

/* ---- why --------------------------------------------------------------------------------- */

static void explain(const struct work *w, json_t *o, const struct cell *a, const struct cell *b)
{
	const char *verdict = json_string_value(json_object_get(o, "verdict")), *colon = strchr(w->metric, ':');
	json_t *of_a = json_array(), *of_b = json_array();

	if (!strcmp(verdict, "less") || !strcmp(verdict, "more")) {
		char *phase = paths_text("%.*s", colon ? (int)(colon - w->metric) : (int)strlen(w->metric), w->metric);
		bool b_slow = (!strcmp(verdict, "more")) != w->higher;
		trial_pairs(w, a, b, of_a, of_b);
		json_t *why =
		    phase ? why_explain(b_slow ? of_b : of_a, b_slow ? of_a : of_b, phase, w->j->experiment->tolerance)
			  : NULL;
		if (why)
			json_object_set_new(o, "why", why);
		free(phase);
	}
	json_decref(of_a);
	json_decref(of_b);
}

/* A pair of cells that differ in the factor alone: the first that both have results. */
static void explain_effect(const struct work *w, json_t *o, const char *factor, json_t *from, json_t *to)
{
	const struct matrix *m = &w->j->matrix;

	for (size_t i = 0; i < m->n; i++)
		for (size_t k = 0; k < m->n; k++) {
			const struct cell *a = &m->cell[i], *b = &m->cell[k];
			if (!differs_in(a, b, factor, from, to) || !(value_at(w, 0, a) > 0) || !(value_at(w, 0, b) > 0))
				continue;
			explain(w, o, a, b);
			return;
		}
}

/* ---- one metric ------------------------------------------------------------------------------ */

static json_t *base_level(const struct experiment *e, const char *factor, json_t *levels)
{
	json_t *named = json_object_get(e->reference, factor);

	return named ? named : json_array_get(levels, 0);
}

struct families {
	struct family effects, cells, hosts, noise;
};

static json_t *metric_json(struct work *w, struct families *f)
{
	const struct matrix *m = &w->j->matrix;
	const struct experiment *e = w->j->experiment;
	json_t *cells = json_array(), *effects = json_array(), *noise = json_object(), *levels, *level;
	const struct cell *reference = &m->cell[m->reference];
	const char *factor;
	size_t k;

	for (size_t i = 0; i < m->n; i++) {
		const struct cell *c = &m->cell[i];
		json_t *o = cell_json(w, c), *to_reference = json_object(), *to_host = json_object();
		if (i != m->reference && !c->twin) {
			json_object_set(o, "to_reference", to_reference);
			family_add(&f->cells, to_reference, compare(w, reference, c));
		}
		if (m->has_host && !c->host && !c->twin) {
			json_object_set(o, "to_host", to_host);
			family_add(&f->hosts, to_host, compare(w, &m->cell[m->host], c));
		}
		json_decref(to_reference);
		json_decref(to_host);
		json_array_append_new(cells, o);
	}
	json_object_foreach(e->factors, factor, levels) {
		json_t *base = base_level(e, factor, levels);
		json_array_foreach(levels, k, level) {
			if (json_equal(level, base))
				continue;
			json_t *o = json_pack("{s:s,s:O,s:O}", "factor", factor, "level", level, "base", base);
			family_add(&f->effects, o, effect(w, factor, base, level));
			json_array_append_new(effects, o);
		}
	}
	family_add(&f->noise, noise, compare(w, reference, &m->cell[m->twin]));
	return json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:o}", "name", w->metric, "title", w->title, "unit", w->unit,
			 "better", w->higher ? "higher" : "lower", "cells", cells, "effects", effects, "noise", noise);
}

static void use_metric(struct work *w, json_t *m)
{
	const char *better = json_string_value(json_object_get(m, "better"));

	w->metric = json_string_value(json_object_get(m, "name"));
	w->title = json_string_value(json_object_get(m, "title"));
	w->unit = json_string_value(json_object_get(m, "unit"));
	w->higher = better && !strcmp(better, "higher");
}

static void say_metric(struct work *w, json_t *m)
{
	const struct matrix *x = &w->j->matrix;
	json_t *o;
	size_t i;

	use_metric(w, m);
	json_array_foreach(json_object_get(m, "effects"), i, o) {
		/* Nothing measured: the failures say why. */
		if (!json_integer_value(json_object_get(o, "n")))
			continue;
		const char *factor = json_string_value(json_object_get(o, "factor"));
		char *what = paths_text("%s=%s", factor, json_string_value(json_object_get(o, "level")));
		const char *base = json_string_value(json_object_get(o, "base"));
		explain_effect(w, o, factor, json_object_get(o, "base"), json_object_get(o, "level"));
		if (what && base)
			say(w, o, what, base, "effect");
		free(what);
	}
	json_array_foreach(json_object_get(m, "cells"), i, o) {
		json_t *h = json_object_get(o, "to_host");
		if (!h || i != x->reference)
			continue;
		explain(w, h, &x->cell[x->host], &x->cell[i]);
		say(w, h, x->cell[i].label, "the host", "host");
	}
}

/* ---- everything -------------------------------------------------------------------------------- */

static void collect_failures(const struct work *w)
{
	json_t *failures = json_array(), *notes = json_object(), *o;
	const struct matrix *m = &w->j->matrix;
	size_t i;

	for (size_t c = 0; c < m->n; c++) {
		json_int_t count = 0, good = 0;
		const char *cause = NULL;
		json_array_foreach(w->j->trials, i, o) {
			if (strcmp(json_string_value(json_object_get(o, "cell")), m->cell[c].label))
				continue;
			bool ok = !strcmp(json_string_value(json_object_get(o, "status")), "ok");
			good += ok;
			count += !ok;
			if (!ok && !cause)
				cause = json_string_value(json_object_get(o, "cause"));
		}
		if (count)
			json_array_append_new(failures,
					      json_pack("{s:s,s:s,s:I,s:I}", "cell", m->cell[c].label, "cause",
							cause ? cause : "", "count", count, "good", good));
	}
	json_array_foreach(w->j->trials, i, o) {
		json_t *note;
		size_t k;
		json_array_foreach(json_object_get(o, "notes"), k, note) {
			json_int_t n = json_integer_value(json_object_get(notes, json_string_value(note)));
			json_object_set_new(notes, json_string_value(note), json_integer(n + 1));
		}
	}
	json_object_set_new(w->doc, "failures", failures);
	json_object_set_new(w->doc, "notes", notes);
}

/* Differences first, the largest first; then what is the same; then what is unknown. */
static int verdict_order(const void *a, const void *b)
{
	json_t *const *pair[] = {a, b};
	double key[2];

	for (int i = 0; i < 2; i++) {
		const char *v = json_string_value(json_object_get(*pair[i], "verdict"));
		double size = fabs(log(json_number_value(json_object_get(*pair[i], "ratio"))));
		key[i] = !strcmp(v, "unknown") ? 2000 : !strcmp(v, "same") ? 1000 : isfinite(size) ? -size : 0;
		key[i] += !strcmp(json_string_value(json_object_get(*pair[i], "kind")), "host") ? 500 : 0;
	}
	return key[0] < key[1] ? -1 : key[0] > key[1];
}

static void sort_verdict(json_t *doc)
{
	json_t *list = json_object_get(doc, "verdict"), *sorted = json_array();
	size_t n = json_array_size(list);
	json_t **v = n ? calloc(n, sizeof(json_t *)) : NULL;

	for (size_t i = 0; v && i < n; i++)
		v[i] = json_array_get(list, i);
	if (v)
		qsort(v, n, sizeof(json_t *), verdict_order);
	for (size_t i = 0; v && i < n; i++)
		json_array_append(sorted, v[i]);
	json_object_set_new(doc, "verdict", sorted);
	free(v);
}

/* The host's, and what ran in the guests. */
static json_t *all_facts(const struct journal *j)
{
	static const char *const keys[][2] = {{"kernel", "guest kernel"}, {"image", "guest image"}};
	json_t *o = json_deep_copy(json_object_get(j->plan, "facts")), *t;
	size_t i;

	json_array_foreach(j->trials, i, t) {
		json_t *inside = json_object_get(t, "inside");
		for (size_t k = 0; inside && k < ARRAY_SIZE(keys); k++) {
			json_t *v = json_object_get(inside, keys[k][0]);
			if (v && !json_object_get(o, keys[k][1]) &&
			    strcmp(json_string_value(json_object_get(t, "cell")), "host"))
				json_object_set(o, keys[k][1], v);
		}
	}
	return o;
}

/* Fixed ones, and factors that have one level only. */
static json_t *same_settings(const struct experiment *e)
{
	json_t *o = json_copy(e->settings), *levels;
	const char *key;

	json_object_foreach(e->factors, key, levels) {
		if (json_array_size(levels) == 1)
			json_object_set(o, key, json_array_get(levels, 0));
	}
	return o;
}

json_t *analyse(const struct journal *j, unsigned blocks, double alpha)
{
	unsigned complete = analyse_complete_blocks(j);
	struct work w = {.j = j, .blocks = MIN(blocks, complete), .alpha = alpha, .doc = json_object()};
	json_t *metrics = json_array(), *list = metric_list(&w), *m;
	struct families f = {0};
	size_t i;

	json_object_set_new(w.doc, "experiment", json_string(j->experiment->name));
	json_object_set_new(w.doc, "about", json_string(j->experiment->about ? j->experiment->about : ""));
	json_object_set_new(w.doc, "blocks", json_integer(w.blocks));
	json_object_set_new(w.doc, "cells", json_integer((json_int_t)j->matrix.n));
	json_object_set_new(w.doc, "trials", json_integer((json_int_t)json_array_size(j->trials)));
	json_object_set_new(w.doc, "alpha", json_real(alpha));
	json_object_set_new(w.doc, "tolerance", json_real(j->experiment->tolerance));
	json_object_set_new(w.doc, "reference", json_string(j->matrix.cell[j->matrix.reference].label));
	json_object_set_new(w.doc, "verdict", json_array());
	json_array_foreach(list, i, m) {
		use_metric(&w, m);
		json_array_append_new(metrics, metric_json(&w, &f));
	}
	/* Without factors the host is what the question is about; without a host, how steady the cell is. */
	struct family *asked = f.effects.n ? &f.effects : f.hosts.n ? &f.hosts : &f.noise;
	struct family *families[] = {&f.effects, &f.cells, &f.hosts, &f.noise};
	bool settled = true;
	for (i = 0; i < ARRAY_SIZE(families); i++) {
		bool decided = family_judge(families[i], alpha, j->experiment->tolerance);
		settled &= decided || families[i] != asked;
	}
	json_object_set_new(w.doc, "settled", json_boolean(settled && json_array_size(metrics)));
	json_object_set_new(w.doc, "metrics", metrics);
	json_array_foreach(metrics, i, m) {
		say_metric(&w, m);
	}
	sort_verdict(w.doc);
	collect_failures(&w);
	lead_say(w.doc, j->experiment);
	json_object_set_new(w.doc, "costs", costs_json(j, w.blocks));
	json_object_set_new(w.doc, "facts", all_facts(j));
	json_object_set(w.doc, "command", json_object_get(j->plan, "command"));
	json_object_set(w.doc, "seed", json_object_get(j->plan, "seed"));
	json_object_set_new(w.doc, "settings", same_settings(j->experiment));
	json_decref(list);
	return w.doc;
}

json_t *analyse_final(const struct journal *j)
{
	const struct experiment *e = j->experiment;
	struct stats_schedule s = stats_schedule(e->least, e->most, ANALYSE_ALPHA);
	unsigned blocks = analyse_complete_blocks(j);
	int look = stats_look_at(&s, blocks);
	json_t *a = analyse(j, UINT_MAX, look >= 0 ? s.alpha[look] : stats_final_alpha(&s, blocks, ANALYSE_ALPHA));

	/* Not settled at this look: the end came from outside (budget, most blocks, the user), and what is left may be
	 * spent. */
	if (look >= 0 && !json_is_true(json_object_get(a, "settled"))) {
		json_decref(a);
		a = analyse(j, UINT_MAX, stats_final_alpha(&s, blocks, ANALYSE_ALPHA));
	}
	return a;
}
