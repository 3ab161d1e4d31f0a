// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * For a reader in a hurry: for each factor, which level is best in how many of the measurements, or that there is no
 * difference, or that there is no answer yet and why; then the guest beside the host. A level is best in a measurement
 * when the comparisons say so: it is better than the base and no other is better still, or it is the base and all
 * others are worse. Main thread.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "lab/analyse.h"
#include "lab/paths.h"
#include "lab/trial.h"
#include "lab/words.h"

/* What may be hidden below this is said as a bound; above it nothing is known that helps anybody. */
#define SMALL_PERCENT 30

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

/* The largest difference that may be hidden in the factor's undecided comparisons, %; INFINITY: any. */
static double hidden_percent(json_t *doc, const char *factor)
{
	double most = 0;
	json_t *v;
	size_t i;

	json_array_foreach(json_object_get(doc, "verdict"), i, v) {
		json_t *least = json_object_get(v, "detectable");
		if (strcmp(text_of(v, "factor"), factor) || strcmp(text_of(v, "judgement"), "unknown"))
			continue;
		most = MAX(most, json_is_number(least) ? (json_number_value(least) - 1) * 100 : INFINITY);
	}
	return most;
}

/* "disk bus (drive.if)" */
static char *name_of(const char *factor)
{
	const char *word = words_for(factor);

	return word ? paths_text("%s (%s)", word, factor) : strdup(factor);
}

static void add_line(json_t *list, char *text, char *hint)
{
	/* A sentence begins with a capital letter, also with a setting's name in front. */
	if (text && text[0] >= 'a' && text[0] <= 'z')
		text[0] = (char)(text[0] - 'a' + 'A');
	json_array_append_new(list, json_pack("{s:s,s:s}", "text", text ? text : "", "hint", hint ? hint : ""));
	free(text);
	free(hint);
}

/* The statement, and why, where that is known. */
static char *with_reason(const char *before, json_t *v)
{
	json_t *why = json_object_get(v, "why");

	return paths_text("%s%s%s%s", before, text_of(v, "text"),
			  !why					       ? ""
			  : json_is_true(json_object_get(why, "sure")) ? ", because "
								       : ", probably because ",
			  text_of(why, "text"));
}

static void say_factor(json_t *doc, const char *factor, json_t *list)
{
	struct tally t = {.best = json_object()};
	json_t *m, *v;
	size_t i;
	const double hidden = hidden_percent(doc, factor);
	char *text, *hint = NULL, *name = name_of(factor);

	json_array_foreach(json_object_get(doc, "metrics"), i, m) {
		tally_metric(&t, m, factor);
	}
	v = largest(doc, factor, true);
	if (!t.measured) {
		text = paths_text("%s: nothing was measured for its levels", name);
	} else if (json_object_size(t.best)) {
		char *who = winners(&t);
		text = paths_text("%s: %s%s", name, who ? who : "", t.unknown ? "; the others are undecided" : "");
		free(who);
	} else if (v) {
		text = paths_text("%s matters, but its best level is undecided", name);
	} else if (t.same == t.measured) {
		text = paths_text("%s makes no measurable difference", name);
	} else if (json_integer_value(json_object_get(doc, "blocks")) < 2) {
		text = paths_text("%s: no answer yet, every cell ran only once", name);
		hint =
		    strdup("How much of a difference is chance shows only when it is measured again: give it a larger "
			   "budget, or a quieter machine");
	} else if (hidden < SMALL_PERCENT) {
		text = paths_text("%s: no difference seen; one of up to %.0f %% may be hidden", name, hidden);
		hint = strdup("More repetitions would find a smaller one");
	} else {
		text = paths_text("%s: no answer yet, the measurements vary too much", name);
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
			    what, base, text_of(v, "title"), same ? same : "");
		free(same);
	}
	if (v && !hint)
		hint = with_reason("Largest difference: ", v);
	add_line(list, text, hint);
	free(name);
	json_decref(t.best);
}

/* The reference cell beside the host: in how many measurements it is slower, as good, better. */
static void say_host(json_t *doc, json_t *list)
{
	static const char *const kinds[] = {"worse", "better", "same", "unknown"};
	static const char *const phrases[] = {"the host is better", "the guest is better",
					      "there is no measurable difference", "there is no answer yet"};
	size_t count[ARRAY_SIZE(kinds)] = {0}, n = 0, i;
	json_t *v, *worst = NULL;
	const char *what = "";
	double most = 0;

	json_array_foreach(json_object_get(doc, "verdict"), i, v) {
		if (strcmp(text_of(v, "kind"), "host"))
			continue;
		double size = fabs(log(json_number_value(json_object_get(v, "ratio"))));
		n++;
		what = text_of(v, "what");
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++)
			count[k] += !strcmp(text_of(v, "judgement"), kinds[k]);
		if (!strcmp(text_of(v, "judgement"), "worse") && size > most) {
			most = size;
			worst = v;
		}
	}
	if (!n)
		return;
	char *text = paths_text("Beside the host (%s):", what);
	bool first = true;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		if (!count[k])
			continue;
		char *more = count[k] == n
				 ? paths_text("%s %s%s", text, phrases[k], n > 1 ? " in all measurements" : "")
				 : paths_text("%s%s %s in %zu of %zu", text, first ? "" : ",", phrases[k], count[k], n);
		free(text);
		text = more;
		first = false;
	}
	add_line(list, text, worst ? with_reason("Largest loss: ", worst) : NULL);
}

/* Why differences may be hidden: what else ran on the machine. */
static void say_others(json_t *doc, json_t *list)
{
	const json_int_t n = json_integer_value(json_object_get(json_object_get(doc, "notes"), NOTE_NOT_QUIET)),
			 all = json_integer_value(json_object_get(doc, "trials"));

	if (n * 4 >= all && n)
		add_line(
		    list,
		    paths_text("The machine was not quiet: other processes used CPU time during %lld of %lld trials",
			       (long long)n, (long long)all),
		    strdup("Small differences may be hidden; a run without them tells more"));
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
	say_host(doc, list);
	say_others(doc, list);
	json_object_set_new(doc, "lead", list);
}
