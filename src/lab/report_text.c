// SPDX-License-Identifier: GPL-2.0-or-later
/* The report as text, as CSV, and writing all kinds into the result folder. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "lab/analyse.h"
#include "lab/paths.h"
#include "lab/report.h"

static const char *text_of(json_t *o, const char *key)
{
	const char *v = json_string_value(json_object_get(o, key));

	return v ? v : "";
}

bool report_useful(json_t *ci)
{
	double low = json_number_value(json_array_get(ci, 0)), high = json_number_value(json_array_get(ci, 1));

	return !(low > 0 && high > 100 * low);
}

struct report_figure report_figure(double v)
{
	struct report_figure f;

	snprintf(f.text, sizeof(f.text), fabs(v) >= 1000 && fabs(v) < 1e9 ? "%.0f" : "%.4g", v);
	return f;
}

const char *report_title(json_t *a, const char *phase)
{
	json_t *m;
	size_t i;

	json_array_foreach(json_object_get(a, "metrics"), i, m) {
		if (!strcmp(text_of(m, "name"), phase))
			return text_of(m, "title");
	}
	return phase;
}

/* "12.3 [11.9, 12.8]" with the digits the size asks for. */
static void interval_text(struct textbuf *out, double v, json_t *ci)
{
	textbuf_printf(out, "%s", report_figure(v).text);
	if (!report_useful(ci))
		textbuf_printf(out, " [?]");
	else if (json_is_number(json_array_get(ci, 0)))
		textbuf_printf(out, " [%s, %s]", report_figure(json_number_value(json_array_get(ci, 0))).text,
			       report_figure(json_number_value(json_array_get(ci, 1))).text);
}

static void pad(struct textbuf *out, size_t start, size_t width)
{
	while (out->len < start + width)
		textbuf_printf(out, " ");
}

static void metric_text(json_t *m, struct textbuf *out)
{
	json_t *c;
	size_t i, wide = 20;

	json_array_foreach(json_object_get(m, "cells"), i, c) {
		wide = MAX(wide, MIN(strlen(text_of(c, "label")), 76u));
	}

	textbuf_printf(out, "\n%s (%s, %s is better)\n", text_of(m, "title"), text_of(m, "unit"), text_of(m, "better"));
	textbuf_printf(out, "  %-*s %3s  %-26s %-9s %-26s %s\n", (int)wide, "cell", "n", "mean [95 % interval]",
		       "median", "to the reference", "to the host");
	json_array_foreach(json_object_get(m, "cells"), i, c) {
		size_t start = out->len;
		textbuf_printf(out, "  %-*.76s %3d  ", (int)wide, text_of(c, "label"),
			       (int)json_integer_value(json_object_get(c, "n")));
		if (!json_is_number(json_object_get(c, "mean"))) {
			textbuf_printf(out, "no result (see below)\n");
			continue;
		}
		interval_text(out, json_number_value(json_object_get(c, "mean")), json_object_get(c, "ci"));
		pad(out, start, wide + 35);
		textbuf_printf(out, "%-9s ", report_figure(json_number_value(json_object_get(c, "median"))).text);
		start = out->len;
		json_t *r = json_object_get(c, "to_reference"), *h = json_object_get(c, "to_host");
		if (json_is_number(json_object_get(r, "ratio")))
			interval_text(out, json_number_value(json_object_get(r, "ratio")), json_object_get(r, "ci"));
		else
			textbuf_printf(out, "%s", !strcmp(text_of(c, "kind"), "reference") ? "1 (reference)" : "");
		pad(out, start, 27);
		if (json_is_number(json_object_get(h, "ratio")))
			interval_text(out, json_number_value(json_object_get(h, "ratio")), json_object_get(h, "ci"));
		textbuf_printf(out, "\n");
	}
	json_t *noise = json_object_get(m, "noise");
	if (json_is_number(json_object_get(noise, "ratio"))) {
		textbuf_printf(out, "  noise floor: the reference against itself differs by ");
		interval_text(out, json_number_value(json_object_get(noise, "ratio")), json_object_get(noise, "ci"));
		const char *v = text_of(noise, "verdict");
		textbuf_printf(out, "%s\n",
			       !strcmp(v, "less") || !strcmp(v, "more") ? ": THESE MEASUREMENTS CANNOT BE TRUSTED"
									: "");
	}
}

const char *report_because(json_t *why)
{
	return json_is_true(json_object_get(why, "sure")) ? "because" : "probably because";
}

void report_text(json_t *a, struct textbuf *out)
{
	json_t *v, *list = json_object_get(a, "verdict");
	const char *key;
	size_t i;

	textbuf_printf(out, "%s: %s\n\nVerdict\n", text_of(a, "experiment"), text_of(a, "about"));
	json_array_foreach(json_object_get(a, "lead"), i, v) {
		textbuf_printf(out, "  %s.\n", text_of(v, "text"));
		if (*text_of(v, "hint"))
			textbuf_printf(out, "    %s.\n", text_of(v, "hint"));
	}
	if (!json_array_size(list))
		textbuf_printf(out, "  nothing to compare yet: %d complete blocks\n",
			       (int)json_integer_value(json_object_get(a, "blocks")));
	if (json_array_size(list))
		textbuf_printf(out, "\nEach comparison, the largest difference first\n");
	json_array_foreach(list, i, v) {
		textbuf_printf(out, "  - %s\n", text_of(v, "text"));
		if (json_object_get(v, "why"))
			textbuf_printf(out, "      %s %s\n", report_because(json_object_get(v, "why")),
				       text_of(json_object_get(v, "why"), "text"));
	}
	json_array_foreach(json_object_get(a, "metrics"), i, v) {
		metric_text(v, out);
	}

	report_costs_text(a, out);
	if (json_array_size(json_object_get(a, "failures")))
		textbuf_printf(out, "\nCells that failed\n");
	json_array_foreach(json_object_get(a, "failures"), i, v) {
		textbuf_printf(out, "  - %s (%d times): %s\n", text_of(v, "cell"),
			       (int)json_integer_value(json_object_get(v, "count")), text_of(v, "cause"));
	}

	if (json_object_size(json_object_get(a, "notes")))
		textbuf_printf(out, "\nNotes\n");
	json_object_foreach(json_object_get(a, "notes"), key, v) {
		textbuf_printf(out, "  - %s (%d trials)\n", key, (int)json_integer_value(v));
	}

	textbuf_printf(out,
		       "\n%d complete blocks of %d cells in random order; ratios within blocks; differences are "
		       "Holm-corrected at %.3g over\n"
		       "all comparisons and looks. Seed %s. Again: %s\n",
		       (int)json_integer_value(json_object_get(a, "blocks")),
		       (int)json_integer_value(json_object_get(a, "cells")),
		       json_number_value(json_object_get(a, "alpha")), text_of(a, "seed"), text_of(a, "command"));
}

/* ---- CSV ---------------------------------------------------------------------------------- */

/* RFC 4180: quoted when it must be, quotes doubled. */
static void csv_text(struct textbuf *out, const char *text)
{
	if (!strpbrk(text, ",\"\n\r")) {
		textbuf_printf(out, "%s", text);
		return;
	}
	textbuf_printf(out, "\"");
	for (; *text; text++)
		textbuf_printf(out, *text == '"' ? "\"\"" : "%c", *text);
	textbuf_printf(out, "\"");
}

void report_csv(const struct journal *j, struct textbuf *out)
{
	json_t *t, *m;
	const char *name;
	size_t i;

	textbuf_printf(out, "block,cell,status,metric,value,unit,better,cause\n");
	json_array_foreach(j->trials, i, t) {
		json_t *metrics = json_object_get(t, "metrics");
		int block = (int)json_integer_value(json_object_get(t, "block"));
		if (!json_object_size(metrics)) {
			textbuf_printf(out, "%d,", block);
			csv_text(out, text_of(t, "cell"));
			textbuf_printf(out, ",%s,,,,,", text_of(t, "status"));
			csv_text(out, text_of(t, "cause"));
			textbuf_printf(out, "\n");
		}
		json_object_foreach(metrics, name, m) {
			textbuf_printf(out, "%d,", block);
			csv_text(out, text_of(t, "cell"));
			textbuf_printf(out, ",%s,", text_of(t, "status"));
			csv_text(out, name);
			textbuf_printf(out, ",%.10g,", json_number_value(json_object_get(m, "value")));
			csv_text(out, text_of(m, "unit"));
			textbuf_printf(out, ",%s,", text_of(m, "better"));
			csv_text(out, text_of(t, "cause"));
			textbuf_printf(out, "\n");
		}
	}
}

/* ---- files ------------------------------------------------------------------------------------ */

static int write_one(const struct journal *j, const char *name, struct textbuf *text, struct err *err)
{
	char *path = paths_text("%s/%s", j->dir, name);
	int ret = path && text->text && !text->failed ? paths_write(path, text->text, err)
						      : err_set_errno(err, -ENOMEM, "%s", name);

	free(path);
	textbuf_free(text);
	return ret;
}

static int write_pngs(const struct journal *j, json_t *a, struct err *err)
{
	json_t *m;
	size_t i;
	int ret = 0;

	json_array_foreach(json_object_get(a, "metrics"), i, m) {
		char *path = paths_text("%s/%s.png", j->dir, text_of(m, "name"));
		for (char *p = path ? path + strlen(j->dir) + 1 : NULL; p && *p; p++)
			if (*p == '/' || *p == ':')
				*p = '-';
		if (!ret)
			ret = path ? plot_png(m, path, err) : -ENOMEM;
		free(path);
	}
	return ret;
}

int report_write(const struct journal *j, bool png, struct err *err)
{
	json_t *a = analyse_final(j);
	struct textbuf t = {0};
	char *json = json_dumps(a, JSON_INDENT(1));

	report_text(a, &t);
	int ret = write_one(j, "report.txt", &t, err);
	textbuf_printf(&t, "%s\n", json ? json : "");
	if (!ret)
		ret = write_one(j, "report.json", &t, err);
	textbuf_free(&t);
	report_csv(j, &t);
	if (!ret)
		ret = write_one(j, "report.csv", &t, err);
	textbuf_free(&t);
	report_html(a, j, &t);
	if (!ret)
		ret = write_one(j, "report.html", &t, err);
	textbuf_free(&t);
	if (!ret && png)
		ret = write_pngs(j, a, err);
	free(json);
	json_decref(a);
	return ret;
}
