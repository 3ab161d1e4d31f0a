// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The report as one HTML page: no script, nothing loaded from elsewhere. The verdict first, then what was measured,
 * then the facts. Light, dark and paper by the style sheet alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "lab/report.h"

static const char style[] =
    ":root{--ink:#1b1f24;--paper:#fff;--soft:#f3f4f6;--line:#d5d9df;--dim:#5a636e;--accent:#1859b5;--points:#9db7dd;--"
    "bad:#a8321c;"
    "--good:#176b3a;--same:#5a636e}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--paper:#15181c;--soft:#1f242a;--line:#3a424c;--dim:#9aa5b1;"
    "--accent:#7db3ff;"
    "--points:#3d5f8f;--bad:#ff9179;--good:#6fd498;--same:#9aa5b1}}"
    "@media "
    "print{:root{--ink:#000;--paper:#fff;--soft:#f3f3f3;--line:#bbb;--dim:#444;--accent:#1859b5;--points:#9db7dd;--bad:"
    "#8c2410;"
    "--good:#0f5a2d;--same:#444}main{max-width:none;padding:0}.plot,tr,li{break-inside:avoid}h3{break-after:avoid}body{"
    "font-size:10.5pt}details{display:none}.scroll{overflow:visible}.costs table{font-size:6.5pt}.costs "
    "td,.costs th{padding:.15rem .3rem .15rem 0}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}"
    "main{max-width:64rem;margin:0 auto;padding:2rem 1.2rem "
    "4rem}h1{font-size:1.7rem;margin:0}h2{font-size:1.2rem;margin:2.2rem 0 .6rem}"
    "h3{font-size:1.05rem;margin:1.6rem 0 .3rem}.dim{color:var(--dim)}"
    ".lead{font-size:1.2rem;line-height:1.4;margin:1rem 0;padding:1rem 1.2rem;background:var(--soft);border-left:6px "
    "solid var(--accent)}"
    ".lead div{margin-bottom:.35rem}.lead "
    "small{display:block;color:var(--dim);font-size:.95rem}ul.verdict{list-style:none;padding:0;margin:0}ul.verdict "
    "li{padding:.5rem 0 .5rem "
    ".9rem;border-left:4px solid "
    "var(--line);margin:.45rem 0}"
    "li.worse{border-color:var(--bad)!important}li.better{border-color:var(--good)!important}"
    ".tag{font-weight:700;margin-right:.5em}.worse .tag{color:var(--bad)}.better .tag{color:var(--good)}.same "
    ".tag,.unknown .tag{color:var(--same)}"
    ".why{display:block;color:var(--dim)}.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:."
    "92rem}"
    "th,td{text-align:left;padding:.35rem .7rem .35rem 0;border-bottom:1px solid var(--line);vertical-align:top}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.plot "
    "svg{max-width:100%;height:auto;color:var(--ink)}"
    ".glance "
    ".ref{font-weight:700}td.better,span.better{color:var(--good)}td.worse,span.worse{color:var(--bad)}td.dim{color:"
    "var(--dim)}td.n,th.n{white-space:nowrap}.glance th.n{white-space:normal}"
    ".failed{color:var(--bad)}code,pre{font:0.9em ui-monospace,monospace;overflow-wrap:anywhere;white-space:pre-wrap}"
    "pre{background:var(--soft);padding:.8rem}";

static const char *text_of(json_t *o, const char *key)
{
	const char *v = json_string_value(json_object_get(o, key));

	return v ? v : "";
}

void report_escape(struct textbuf *out, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<': textbuf_printf(out, "&lt;"); break;
		case '>': textbuf_printf(out, "&gt;"); break;
		case '&': textbuf_printf(out, "&amp;"); break;
		case '"': textbuf_printf(out, "&quot;"); break;
		default: textbuf_add(out, text, 1);
		}
}

static bool is_one_of(const char *v, const char *a, const char *b)
{
	return !strcmp(v, a) || !strcmp(v, b);
}

/* ---- the verdict --------------------------------------------------------------------------- */

/* For a reader in a hurry: one line for each factor. */
static void html_lead(json_t *a, struct textbuf *out)
{
	json_t *v, *list = json_object_get(a, "verdict"), *lead = json_object_get(a, "lead");
	size_t i, differ = 0, same = 0, unknown = 0;
	bool broken = false;

	json_array_foreach(list, i, v) {
		const char *verdict = text_of(v, "verdict");
		differ += is_one_of(verdict, "less", "more");
		same += !strcmp(verdict, "same");
		unknown += !strcmp(verdict, "unknown");
	}
	json_array_foreach(json_object_get(a, "metrics"), i, v) {
		broken |= is_one_of(text_of(json_object_get(v, "noise"), "verdict"), "less", "more");
	}
	textbuf_printf(out, "<div class=lead>");
	if (broken)
		textbuf_printf(
		    out, "<div class=failed><b>Do not trust this run: the same cell measured twice gave different "
			 "results.</b></div>");
	json_array_foreach(lead, i, v) {
		textbuf_printf(out, "<div>");
		report_escape(out, text_of(v, "text"));
		textbuf_printf(out, ".");
		if (*text_of(v, "hint")) {
			textbuf_printf(out, "<small>");
			report_escape(out, text_of(v, "hint"));
			textbuf_printf(out, ".</small>");
		}
		textbuf_printf(out, "</div>");
	}
	if (!json_array_size(lead) && json_array_size(list)) {
		textbuf_printf(out, "<div>");
		report_escape(out, text_of(json_array_get(list, 0), "text"));
		textbuf_printf(out, ".</div>");
	}
	if (json_array_size(json_object_get(a, "failures")))
		textbuf_printf(out,
			       "<div class=failed>%zu of %d cells failed, at least once: the causes are below.</div>",
			       json_array_size(json_object_get(a, "failures")),
			       (int)json_integer_value(json_object_get(a, "cells")));
	textbuf_printf(out,
		       "<small class=dim>%zu comparisons: %zu differ, %zu show no measurable difference, %zu cannot be "
		       "told.</small></div>\n",
		       differ + same + unknown, differ, same, unknown);
}

/* What is undecided takes little room. */
static void html_unknown(json_t *a, struct textbuf *out)
{
	json_t *v;
	size_t i;

	textbuf_printf(out, "<h3>Cannot be told from this run</h3>\n<div class=scroll><table class=dim><tr><th>"
			    "measurement<th>this<th>against<th class=n>somewhere between</tr>\n");
	json_array_foreach(json_object_get(a, "verdict"), i, v) {
		json_t *ci = json_object_get(v, "ci_joint");
		if (strcmp(text_of(v, "verdict"), "unknown"))
			continue;
		textbuf_printf(out, "<tr><td>");
		report_escape(out, text_of(v, "title"));
		textbuf_printf(out, "<td>");
		report_escape(out, text_of(v, "what"));
		textbuf_printf(out, "<td>");
		report_escape(out, text_of(v, "base"));
		if (json_is_number(json_array_get(ci, 0)) && json_number_value(json_array_get(ci, 1)) < 10)
			textbuf_printf(out, "<td class=n>%+.0f %% and %+.0f %%</tr>\n",
				       (json_number_value(json_array_get(ci, 0)) - 1) * 100,
				       (json_number_value(json_array_get(ci, 1)) - 1) * 100);
		else
			textbuf_printf(out, "<td class=n>too few or too unsteady</tr>\n");
	}
	textbuf_printf(out, "</table></div>\n");
}

/* One row a cell, one column a measurement; the colour is the verdict against the reference. */
static void html_glance(json_t *a, struct textbuf *out)
{
	json_t *metrics = json_object_get(a, "metrics"), *rows = json_object_get(json_array_get(metrics, 0), "cells"),
	       *m, *c;
	size_t i, k;

	if (!json_array_size(rows))
		return;
	textbuf_printf(out,
		       "<h3>At a glance</h3>\n<div class=scroll><table class=glance><thead><tr><th>mean of %d runs",
		       (int)json_integer_value(json_object_get(a, "blocks")));
	json_array_foreach(metrics, i, m) {
		textbuf_printf(out, "<th class=n>");
		report_escape(out, text_of(m, "title"));
		textbuf_printf(out, "<br><span class=dim>");
		report_escape(out, text_of(m, "unit"));
		textbuf_printf(out, ", %s is better</span>", text_of(m, "better"));
	}
	textbuf_printf(out, "</tr></thead>\n");
	json_array_foreach(rows, k, c) {
		if (!strcmp(text_of(c, "kind"), "twin"))
			continue;
		textbuf_printf(out, "<tr><td>");
		report_escape(out, text_of(c, "label"));
		json_array_foreach(metrics, i, m) {
			json_t *cell = json_array_get(json_object_get(m, "cells"), k),
			       *mean = json_object_get(cell, "mean");
			const char *verdict = text_of(json_object_get(cell, "to_reference"), "verdict");
			bool reference = !strcmp(text_of(cell, "kind"), "reference"),
			     good = !strcmp(verdict, "more") == !strcmp(text_of(m, "better"), "higher");
			textbuf_printf(out, "<td class='n %s'>",
				       reference			    ? "ref"
				       : is_one_of(verdict, "less", "more") ? (good ? "better" : "worse")
				       : !strcmp(verdict, "unknown")	    ? "dim"
									    : "");
			textbuf_printf(out, "%s%s",
				       json_is_number(mean) ? report_figure(json_number_value(mean)).text : "failed",
				       !strcmp(verdict, "unknown") && json_is_number(mean) ? " ?" : "");
		}
		textbuf_printf(out, "</tr>\n");
	}
	textbuf_printf(
	    out, "</table></div>\n<p class=dim><small><b>Bold</b>: the reference. <span class=better>Green</span>: "
		 "better than it, <span class=worse>red</span>: worse, both beyond chance; grey with a question "
		 "mark: cannot be told from it yet.</small></p>\n");
}

static void html_verdict(json_t *a, struct textbuf *out)
{
	static const struct {
		const char *judgement, *tag;
	} tags[] = {{"worse", "worse"}, {"better", "better"}, {"same", "no difference"}, {"unknown", "cannot tell"}};
	json_t *v;
	size_t i, unknown = 0;

	textbuf_printf(out, "<h2>Verdict</h2>\n");
	html_lead(a, out);
	html_glance(a, out);
	textbuf_printf(out, "<h3>Each comparison</h3>\n<ul class=verdict>\n");
	json_array_foreach(json_object_get(a, "verdict"), i, v) {
		unknown += !strcmp(text_of(v, "verdict"), "unknown");
		if (!strcmp(text_of(v, "verdict"), "unknown"))
			continue;
		const char *judgement = text_of(v, "judgement"), *tag = "";
		for (size_t k = 0; k < sizeof(tags) / sizeof(tags[0]); k++)
			if (!strcmp(tags[k].judgement, judgement))
				tag = tags[k].tag;
		textbuf_printf(out, "<li class=%s><span class=tag>%s</span>", judgement, tag);
		report_escape(out, text_of(v, "text"));
		if (json_object_get(v, "why")) {
			textbuf_printf(
			    out, "<span class=why>%s: ",
			    json_is_true(json_object_get(json_object_get(v, "why"), "sure")) ? "Why" : "Probably why");
			report_escape(out, text_of(json_object_get(v, "why"), "text"));
			textbuf_printf(out, ".</span>");
		}
		textbuf_printf(out, "</li>\n");
	}
	textbuf_printf(out, "</ul>\n");
	if (unknown)
		html_unknown(a, out);
	if (json_array_size(json_object_get(a, "failures")))
		textbuf_printf(out, "<h3>Cells that failed</h3>\n<ul>\n");
	json_array_foreach(json_object_get(a, "failures"), i, v) {
		textbuf_printf(out, "<li><b>");
		report_escape(out, text_of(v, "cell"));
		textbuf_printf(out, "</b> (%d times): <span class=failed>",
			       (int)json_integer_value(json_object_get(v, "count")));
		report_escape(out, text_of(v, "cause"));
		textbuf_printf(out, "</span></li>\n");
	}
	if (json_array_size(json_object_get(a, "failures")))
		textbuf_printf(out, "</ul>\n");
}

/* ---- tables ------------------------------------------------------------------------------------ */

static void html_interval(struct textbuf *out, json_t *v, json_t *ci)
{
	if (!json_is_number(v))
		return;
	textbuf_printf(out, "%s", report_figure(json_number_value(v)).text);
	if (!report_useful(ci))
		textbuf_printf(out, " <span class=dim>?</span>");
	else if (json_is_number(json_array_get(ci, 0)))
		textbuf_printf(out, " <span class=dim>%s–%s</span>",
			       report_figure(json_number_value(json_array_get(ci, 0))).text,
			       report_figure(json_number_value(json_array_get(ci, 1))).text);
}

static void html_metric(json_t *m, struct textbuf *out)
{
	json_t *c, *noise = json_object_get(m, "noise");
	struct err err = {0};
	bool host = false;
	size_t i;

	json_array_foreach(json_object_get(m, "cells"), i, c) {
		host |= json_object_get(c, "to_host") != NULL;
	}

	textbuf_printf(out, "<section><h3>");
	report_escape(out, text_of(m, "title"));
	textbuf_printf(out, " <span class=dim>");
	report_escape(out, text_of(m, "unit"));
	textbuf_printf(out, ", %s is better</span></h3>\n<div class=plot>", text_of(m, "better"));
	if (plot_svg(m, out, &err)) {
		textbuf_printf(out, "<p class=dim>No plot: ");
		report_escape(out, err.msg);
		textbuf_printf(out, "</p>");
	}
	textbuf_printf(out,
		       "</div>\n<div class=scroll><table><tr><th>cell<th class=n>n<th class=n>mean, 95 %% interval<th "
		       "class=n>median<th class=n>"
		       "ratio to the reference%s</tr>\n",
		       host ? "<th class=n>ratio to the host" : "");
	json_array_foreach(json_object_get(m, "cells"), i, c) {
		json_t *r = json_object_get(c, "to_reference"), *h = json_object_get(c, "to_host");
		textbuf_printf(out, "<tr><td>");
		report_escape(out, text_of(c, "label"));
		textbuf_printf(out, "<td class=n>%d<td class=n>", (int)json_integer_value(json_object_get(c, "n")));
		if (!json_is_number(json_object_get(c, "mean")))
			textbuf_printf(out, "<span class=failed>failed</span>");
		html_interval(out, json_object_get(c, "mean"), json_object_get(c, "ci"));
		textbuf_printf(out, "<td class=n>");
		html_interval(out, json_object_get(c, "median"), NULL);
		textbuf_printf(out, "<td class=n>");
		if (!strcmp(text_of(c, "kind"), "reference"))
			textbuf_printf(out, "1 <span class=dim>reference</span>");
		else
			html_interval(out, json_object_get(r, "ratio"), json_object_get(r, "ci"));
		if (host) {
			textbuf_printf(out, "<td class=n>");
			html_interval(out, json_object_get(h, "ratio"), json_object_get(h, "ci"));
		}
		textbuf_printf(out, "</tr>\n");
	}
	textbuf_printf(out, "</table></div>\n");
	if (json_is_number(json_object_get(noise, "ratio"))) {
		textbuf_printf(out, "<p class=dim>Noise floor: the reference cell against itself gives a ratio of ");
		html_interval(out, json_object_get(noise, "ratio"), json_object_get(noise, "ci"));
		textbuf_printf(out, ".</p>");
	}
	textbuf_printf(out, "</section>\n");
}

static void html_pairs(json_t *o, const char *title, struct textbuf *out)
{
	const char *key;
	json_t *v;

	textbuf_printf(out, "<h3>%s</h3>\n<div class=scroll><table>\n", title);
	json_object_foreach(o, key, v) {
		textbuf_printf(out, "<tr><td>");
		report_escape(out, key);
		textbuf_printf(out, "<td>");
		if (json_is_string(v))
			report_escape(out, json_string_value(v));
		else
			textbuf_printf(out, "%d trials", (int)json_integer_value(v));
		textbuf_printf(out, "</tr>\n");
	}
	textbuf_printf(out, "</table></div>\n");
}

/* The first good trial of each kind says what really ran. */
static void html_commands(const struct journal *j, struct textbuf *out)
{
	textbuf_printf(out, "<details><summary>Command lines of the cells</summary>\n");
	for (size_t i = 0; i < j->matrix.n; i++) {
		json_t *t = journal_find(j, 0, j->matrix.cell[i].label);
		if (!json_object_get(t, "command"))
			continue;
		textbuf_printf(out, "<p>");
		report_escape(out, j->matrix.cell[i].label);
		textbuf_printf(out, "</p><pre>");
		report_escape(out, text_of(t, "command"));
		textbuf_printf(out, "</pre>\n");
	}
	textbuf_printf(out, "</details>\n");
}

void report_html(json_t *a, const struct journal *j, struct textbuf *out)
{
	json_t *m;
	size_t i;

	textbuf_printf(out, "<!DOCTYPE html>\n<html lang=en><meta charset=utf-8><meta name=viewport "
			    "content='width=device-width,initial-scale=1'>"
			    "<meta name=color-scheme content='light dark'>\n<title>");
	report_escape(out, text_of(a, "experiment"));
	textbuf_printf(out, " - kelvin bench</title>\n<style>%s</style>\n<main><h1>", style);
	report_escape(out, text_of(a, "experiment"));
	textbuf_printf(out, "</h1>\n<p class=dim>");
	report_escape(out, text_of(a, "about"));
	textbuf_printf(out, "</p>\n");
	html_verdict(a, out);
	textbuf_printf(out,
		       "<h2>Measurements</h2>\n<p class=dim>%d complete blocks; in each, every one of %d cells ran "
		       "once, in random order. Bars are 95 %% "
		       "intervals, small dots single measurements; ratios are taken within blocks. Reference: ",
		       (int)json_integer_value(json_object_get(a, "blocks")),
		       (int)json_integer_value(json_object_get(a, "cells")));
	report_escape(out, text_of(a, "reference"));
	textbuf_printf(out, ".</p>\n");
	json_array_foreach(json_object_get(a, "metrics"), i, m) {
		html_metric(m, out);
	}

	report_costs_html(a, out);
	textbuf_printf(out, "<h2>How it was measured</h2>\n");
	if (json_object_size(json_object_get(a, "notes")))
		html_pairs(json_object_get(a, "notes"), "Notes", out);
	html_pairs(json_object_get(a, "facts"), "The machine", out);
	html_pairs(json_object_get(a, "settings"), "What was the same in all cells", out);
	textbuf_printf(out, "<h3>To repeat</h3>\n<pre>");
	report_escape(out, text_of(a, "command"));
	textbuf_printf(out,
		       "</pre>\n<p class=dim>A difference is claimed when its p-value, corrected by Holm's method over "
		       "all comparisons, is below %.3g (what is "
		       "left of 0.05 over all looks at the data); &quot;no measurable difference&quot; when the whole "
		       "corrected interval is within %.3g %%; "
		       "otherwise the data cannot tell.</p>\n",
		       json_number_value(json_object_get(a, "alpha")),
		       json_number_value(json_object_get(a, "tolerance")) * 100);
	html_commands(j, out);
	textbuf_printf(out, "</main></html>\n");
}
