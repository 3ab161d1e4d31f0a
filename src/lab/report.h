/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reports from an analysis (analyse.h): text, CSV, HTML with SVG plots, PNG. Main thread. */
#ifndef KELVIN_LAB_REPORT_H
#define KELVIN_LAB_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include "control/textbuf.h"
#include "lab/journal.h"

/* The verdict and tables as plain text, at most about 100 columns. */
void report_text(json_t *a, struct textbuf *out);
/* One line per trial and metric. */
void report_csv(const struct journal *j, struct textbuf *out);
/* One self-contained page. */
void report_html(json_t *a, const struct journal *j, struct textbuf *out);

/* "because", or "probably because" when few blocks stand behind the reason. */
const char *report_because(json_t *why);
/* False for an interval so wide that its ends say nothing; reports print a question mark. */
bool report_useful(json_t *ci);
/* Four digits, and never an exponent where a person would not write one. */
struct report_figure {
	char text[32];
};
struct report_figure report_figure(double v);
/* What people call a phase: its metric's title. */
const char *report_title(json_t *a, const char *phase);
/* For HTML. */
void report_escape(struct textbuf *out, const char *text);
/* report_costs.c: what each cell cost. */
void report_costs_html(json_t *a, struct textbuf *out);
void report_costs_text(json_t *a, struct textbuf *out);

/*
 * plot.c: a metric's cells with error bars as SVG text through gnuplot. The colours are classes that the page's style
 * sheet sets, so that one plot fits light, dark and paper. 0 or -errno.
 */
int plot_svg(json_t *metric, struct textbuf *out, struct err *err);
/* The same as a PNG file. */
int plot_png(json_t *metric, const char *path, struct err *err);

/* Write report.txt, report.json, report.csv and report.html into the folder; `png`: plots too. 0 or -errno. */
int report_write(const struct journal *j, bool png, struct err *err);

#endif
