// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * For a reader in a hurry: for each factor, which level is best in how many of the measurements, or that there is no
 * difference, or that there is no answer yet and why. A level is best in a measurement when the comparisons say so: it
 * is better than the base and no other is better still, or it is the base and all others are worse. Main thread.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "lab/analyse.h"
#include "lab/paths.h"

static const char *text_of(json_t *o, const char *key)
{
	const char *v = json_string_value(json_object_get(o, key));

	return v ? v : "";
}

struct tally {
	json_t *best; /* {level: in how many measurements} */
	size_t measured, same, unknown;
};

/* The best level of a factor in one metric goes into the tally. */
static void tally_metric(struct tally *t, json_t *metric, const char *factor)
{
	bool higher = !strcmp(text_of(metric, "better"), "higher");
	const char *base = "", *winner = NULL;
	size_t i, n = 0, worse = 0, same = 0;
	double gain = 0;
	json_t *e;

	json_array_foreach(json_object_get(metric, "effects"), i, e) {
		if (strcmp(text_of(e, "factor"), factor) || !json_integer_value(json_object_get(e, "n")))
			continue;
		const char *verdict = text_of(e, "verdict");
		bool more = !strcmp(verdict, "more"), less = !strcmp(verdict, "less");
		double size = fabs(log(json_number_value(json_object_get(e, "ratio"))));
		n++;
		base = text_of(e, "base");
		same += !strcmp(verdict, "same");
		if ((more && higher) || (less && !higher)) {
			if (size > gain) {
				gain = size;
				winner = text_of(e, "level");
			}
		} else {
			worse += more || less;
		}
	}
	if (!n)
		return;
	t->measured++;
	if (!winner && worse == n)
		winner = base;
	if (winner) {
		json_int_t have = json_integer_value(json_object_get(t->best, winner));
		json_object_set_new(t->best, winner, json_integer(have + 1));
	} else if (same == n) {
		t->same++;
	} else {
		t->unknown++;
	}
}

/* "virtio is best in 2 of 3 measurements, ide in 1" */
static char *winners(const struct tally *t)
{
	const char *level;
	json_t *count;
	char *text = strdup("");
	bool first = true;

	json_object_foreach(t->best, level, count) {
		size_t n = (size_t)json_integer_value(count);
		char *more;
		if (!first)
			more = paths_text("%s, %s in %zu", text ? text : "", level, n);
		else if (n == t->measured)
			more = paths_text(n == 1 ? "%s is best" : "%s is best in all %zu measurements", level, n);
		else
			more = paths_text("%s is best in %zu of %zu measurements", level, n, t->measured);
		free(text);
		text = more;
		first = false;
	}
	return text;
}

/* The largest difference that was found for the factor; else the largest that may be chance. The list is sorted. */
static json_t *largest(json_t *doc, const char *factor, bool proven)
{
	json_t *v, *best = NULL;
	double most = 0;
	size_t i;

	json_array_foreach(json_object_get(doc, "verdict"), i, v) {
		const char *verdict = text_of(v, "verdict");
		double ratio = json_number_value(json_object_get(v, "ratio"));
		if (strcmp(text_of(v, "factor"), factor) || ratio <= 0)
			continue;
		bool differs = !strcmp(verdict, "less") || !strcmp(verdict, "more");
		if (differs == proven && fabs(log(ratio)) > most) {
			most = fabs(log(ratio));
			best = v;
		}
	}
	return best;
}

/* How far apart the same cell was from itself in the worst measurement, %. */
static double noise_percent(json_t *doc)
{
	double most = 0;
	json_t *m;
	size_t i;

	json_array_foreach(json_object_get(doc, "metrics"), i, m) {
		double r = json_number_value(json_object_get(json_object_get(m, "noise"), "ratio"));
		if (r > 0)
			most = MAX(most, fabs(log(r)));
	}
	return (exp(most) - 1) * 100;
}

static void say_factor(json_t *doc, const char *factor, json_t *list)
{
	struct tally t = {.best = json_object()};
	json_t *m, *v;
	size_t i;
	char *text, *hint = NULL;

	json_array_foreach(json_object_get(doc, "metrics"), i, m) {
		tally_metric(&t, m, factor);
	}
	v = largest(doc, factor, true);
	if (!t.measured) {
		text = paths_text("%s: nothing was measured for its levels", factor);
	} else if (json_object_size(t.best)) {
		char *who = winners(&t);
		text = paths_text("%s: %s%s", factor, who ? who : "", t.unknown ? "; the others are undecided" : "");
		free(who);
	} else if (v) {
		text = paths_text("%s matters, but its best level is undecided", factor);
	} else if (t.same == t.measured) {
		text = paths_text("%s makes no measurable difference", factor);
	} else if (json_integer_value(json_object_get(doc, "blocks")) < 2) {
		text = paths_text("%s: no answer yet, every cell ran only once", factor);
		hint =
		    strdup("How much of a difference is chance shows only when it is measured again: give it a larger "
			   "budget, or a quieter machine");
	} else {
		text = paths_text("%s: no answer yet, the measurements vary too much", factor);
		v = largest(doc, factor, false);
		const char *what = text_of(v, "what"), *base = text_of(v, "base");
		double noise = noise_percent(doc);
		char *same = noise < 2
				 ? strdup("")
				 : paths_text(": measured twice, even the same cell differed by up to %.0f %%", noise);
		if (v)
			hint = paths_text(
			    "Widest apart are %s and %s in %s, but that may be chance%s. A quieter machine or "
			    "more repetitions would tell",
			    what, base, text_of(v, "metric"), same ? same : "");
		free(same);
	}
	if (v && !hint)
		hint = paths_text("Largest difference: %s", text_of(v, "text"));
	json_array_append_new(list, json_pack("{s:s,s:s}", "text", text ? text : "", "hint", hint ? hint : ""));
	free(text);
	free(hint);
	json_decref(t.best);
}

void lead_say(json_t *doc, const struct experiment *e)
{
	json_t *list = json_array(), *levels;
	const char *factor;

	json_object_foreach(e->factors, factor, levels) {
		/* One level is no question. */
		if (json_array_size(levels) > 1)
			say_factor(doc, factor, list);
	}
	json_object_set_new(doc, "lead", list);
}
