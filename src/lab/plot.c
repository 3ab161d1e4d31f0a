// SPDX-License-Identifier: GPL-2.0-or-later
/* Plots through gnuplot: one row per cell, every measurement a point, the mean with its 95 % interval in front. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/util.h"
#include "lab/paths.h"
#include "lab/report.h"
#include "lab/spawn.h"

/* Colours that never appear otherwise; the page replaces them by its own (currentColor, custom properties). */
#define INK    "#000001"
#define ACCENT "#0000a1"
#define POINTS "#0000b1"
/* As gnuplot writes them into SVG: three fields of three characters, or hexadecimal. */
static const char *const replacements[][2] = {
    {"rgb(  0,   0,   1)", "var(--ink)"},
    {"rgb(  0,   0, 161)", "var(--accent)"},
    {"rgb(  0,   0, 177)", "var(--points)"},
    {"rgb(0,0,1)", "var(--ink)"},
    {INK, "var(--ink)"},
    {ACCENT, "var(--accent)"},
    {POINTS, "var(--points)"},
};

/* gnuplot's strings in single quotes: a quote is doubled. */
static void quoted(struct textbuf *out, const char *text)
{
	textbuf_printf(out, "'");
	for (; *text; text++)
		textbuf_printf(out, *text == '\'' ? "''" : "%c", *text);
	textbuf_printf(out, "'");
}

static void script(json_t *m, const char *terminal, const char *output, struct textbuf *out)
{
	json_t *cells = json_object_get(m, "cells"), *c, *v;
	size_t n = json_array_size(cells), i, k;

	textbuf_printf(out, "set terminal %s\nset output ", terminal);
	quoted(out, output);
	textbuf_printf(out, "\nset key off\nset border 1 lc rgb '" INK "'\nset xtics nomirror textcolor rgb '" INK "'\n"
			    "set ytics nomirror scale 0 textcolor rgb '" INK "' (");
	json_array_foreach(cells, i, c) {
		textbuf_printf(out, "%s", i ? ", " : "");
		quoted(out, json_string_value(json_object_get(c, "label")));
		textbuf_printf(out, " %zu", n - i);
	}
	textbuf_printf(
	    out, ")\nset grid xtics lc rgb '" INK "' lw 0.2\nset yrange [0.4:%zu.6]\nset xrange [0:*]\nset xlabel ", n);
	char *label =
	    paths_text("%s (%s, %s is better)", json_string_value(json_object_get(m, "title")),
		       json_string_value(json_object_get(m, "unit")), json_string_value(json_object_get(m, "better")));
	quoted(out, label ? label : "");
	free(label);
	textbuf_printf(out, " noenhanced textcolor rgb '" INK "'\nset ytics noenhanced\n$points << EOD\n");
	json_array_foreach(cells, i, c) {
		json_array_foreach(json_object_get(c, "values"), k, v) {
			if (json_is_number(v))
				textbuf_printf(out, "%g %zu\n", json_number_value(v), n - i);
		}
	}
	textbuf_printf(out, "EOD\n$means << EOD\n");
	json_array_foreach(cells, i, c) {
		json_t *mean = json_object_get(c, "mean"), *ci = json_object_get(c, "ci");
		if (!json_is_number(mean))
			continue;
		double at = json_number_value(mean), low = at, high = at;
		if (json_is_number(json_array_get(ci, 0))) {
			low = MAX(json_number_value(json_array_get(ci, 0)), 0.0);
			high = json_number_value(json_array_get(ci, 1));
		}
		textbuf_printf(out, "%g %zu %g %g\n", at, n - i, low, high);
	}
	textbuf_printf(out, "EOD\nplot $points using 1:2 with points pt 7 ps 0.4 lc rgb '" POINTS "', "
			    "$means using 1:2:3:4 with xerrorbars pt 7 ps 0.8 lw 2 lc rgb '" ACCENT "'\n");
}

/* A file in $TMPDIR; its descriptor, or -1 and errno. *path is malloc'ed. */
static int temporary(char **path)
{
	const char *folder = getenv("TMPDIR");

	*path = paths_text("%s/kelvin-plot.XXXXXX", folder && *folder == '/' ? folder : "/tmp");
	return *path ? mkstemp(*path) : -1;
}

static int run_gnuplot(struct textbuf *text, struct err *err)
{
	char *path = NULL;
	int fd = temporary(&path);
	char *argv[] = {"gnuplot", path, NULL};
	int ret = 0;

	if (fd < 0 || text->failed || write(fd, text->text, text->len) != (ssize_t)text->len)
		ret = err_set_errno(err, errno ? -errno : -ENOMEM, "a temporary file for gnuplot");
	if (fd >= 0)
		close(fd);
	if (!ret && (ret = spawn_wait(argv, err)))
		err_prefix(err, ret == -ENOENT ? "plots need Debian's package gnuplot-nox" : "the plot");
	if (fd >= 0)
		unlink(path);
	free(path);
	return ret;
}

/* Only values were measured can be drawn. */
static bool drawable(json_t *m)
{
	json_t *c;
	size_t i;

	json_array_foreach(json_object_get(m, "cells"), i, c) {
		if (json_is_number(json_object_get(c, "mean")))
			return true;
	}
	return false;
}

int plot_svg(json_t *m, struct textbuf *out, struct err *err)
{
	char *path = NULL, terminal[128];
	size_t n = json_array_size(json_object_get(m, "cells"));
	struct textbuf text = {0};
	int fd = drawable(m) ? temporary(&path) : -1;

	if (fd < 0) {
		int ret = drawable(m) ? err_set_errno(err, -errno, "a temporary file for the plot")
				      : err_set(err, -ENODATA, "nothing was measured");
		free(path);
		return ret;
	}
	close(fd);
	snprintf(terminal, sizeof(terminal), "svg size 860,%zu dynamic font 'sans-serif,13' noenhanced",
		 90 + 26 * MIN(n, 200u));
	script(m, terminal, path, &text);
	int ret = run_gnuplot(&text, err);
	char *svg = ret ? NULL : paths_read(path, err);
	unlink(path);
	free(path);
	textbuf_free(&text);
	/* From the root element on: an XML declaration has no place inside HTML. */
	for (char *p = svg ? strstr(svg, "<svg") : NULL; p && *p;) {
		size_t i = 0;
		while (i < ARRAY_SIZE(replacements) && strncasecmp(p, replacements[i][0], strlen(replacements[i][0])))
			i++;
		if (i < ARRAY_SIZE(replacements)) {
			textbuf_printf(out, "%s", replacements[i][1]);
			p += strlen(replacements[i][0]);
		} else {
			textbuf_add(out, p++, 1);
		}
	}
	free(svg);
	return ret;
}

int plot_png(json_t *m, const char *path, struct err *err)
{
	char terminal[128];
	size_t n = json_array_size(json_object_get(m, "cells"));
	struct textbuf text = {0};

	if (!drawable(m))
		return 0;
	snprintf(terminal, sizeof(terminal), "png size 1000,%zu font 'sans,11' noenhanced", 110 + 30 * MIN(n, 200u));
	script(m, terminal, path, &text);
	int ret = run_gnuplot(&text, err);
	textbuf_free(&text);
	return ret;
}
