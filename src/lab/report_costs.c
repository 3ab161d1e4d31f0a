// SPDX-License-Identifier: GPL-2.0-or-later
/* What each cell cost (costs.c), as tables of the HTML report and as lines of the text report. Main thread. */
#include <stdlib.h>
#include <string.h>
#include "lab/report.h"

static const char *text_of(json_t *o, const char *key)
{
	const char *v = json_string_value(json_object_get(o, key));

	return v ? v : "";
}

/* Three digits are what such counts are worth. */
static void figure(struct textbuf *out, json_t *v, bool time)
{
	if (!json_is_number(v))
		textbuf_printf(out, "–");
	else if (time)
		textbuf_printf(out, "%.1f", json_number_value(v));
	else
		textbuf_printf(out, "%.3g", json_number_value(v));
}

static void html_table(json_t *phase, bool time, struct textbuf *out)
{
	json_t *columns = json_object_get(phase, "columns"), *c, *cell;
	size_t i, k, n = 0;

	json_array_foreach(columns, i, c) {
		n += json_is_true(json_object_get(c, "time")) == time;
	}
	if (!n)
		return;
	textbuf_printf(out, "<div class=scroll><table><thead><tr><th>%s",
		       time					   ? "CPU time, % of one CPU"
		       : !strcmp(text_of(phase, "per"), "request") ? "for each request"
								   : "for the whole phase");
	json_array_foreach(columns, i, c) {
		if (json_is_true(json_object_get(c, "time")) == time) {
			textbuf_printf(out, "<th class=n>");
			report_escape(out, text_of(c, "title"));
		}
	}
	textbuf_printf(out, "</tr></thead>\n");
	json_array_foreach(json_object_get(phase, "cells"), k, cell) {
		textbuf_printf(out, "<tr><td>");
		report_escape(out, text_of(cell, "label"));
		json_array_foreach(columns, i, c) {
			if (json_is_true(json_object_get(c, "time")) != time)
				continue;
			textbuf_printf(out, "<td class=n>");
			figure(out, json_object_get(json_object_get(cell, "values"), text_of(c, "key")), time);
		}
		textbuf_printf(out, "</tr>\n");
	}
	textbuf_printf(out, "</table></div>\n");
}

/* Below the table: the names would squeeze its columns. */
static void html_calls(json_t *phase, struct textbuf *out)
{
	json_t *cell;
	size_t i, n = 0;

	json_array_foreach(json_object_get(phase, "cells"), i, cell) {
		if (!*text_of(cell, "calls"))
			continue;
		textbuf_printf(out, "%s", n++ ? "<br>" : "<p class=dim><small>Most frequent host system calls<br>");
		report_escape(out, text_of(cell, "label"));
		textbuf_printf(out, ": ");
		report_escape(out, text_of(cell, "calls"));
	}
	if (n)
		textbuf_printf(out, "</small></p>\n");
}

void report_costs_html(json_t *a, struct textbuf *out)
{
	json_t *p;
	size_t i;

	if (!json_array_size(json_object_get(a, "costs")))
		return;
	textbuf_printf(
	    out, "<h2>What it cost</h2>\n<p class=dim>Means over all blocks, from the kernels of guest and host, the "
		 "monitor's own counters, and eBPF for system calls and exits; – was not measured there. Guest "
		 "figures of the host row are this host's own; the monitor's time includes the guest's code.</p>\n");
	json_array_foreach(json_object_get(a, "costs"), i, p) {
		if (!json_array_size(json_object_get(p, "cells")))
			continue;
		textbuf_printf(out, "<section class=costs><h3>");
		report_escape(out, report_title(a, text_of(p, "phase")));
		textbuf_printf(out, "</h3>\n");
		html_table(p, true, out);
		html_table(p, false, out);
		html_calls(p, out);
		textbuf_printf(out, "</section>\n");
	}
}

/* One line a cell, what is most asked for. */
void report_costs_text(json_t *a, struct textbuf *out)
{
	static const struct {
		const char *key, *name;
	} shown[] = {
	    {"kvm.exits", "exits"},   {"exits", "exits to the monitor"}, {"exits_to_user", "exits to the monitor"},
	    {"calls", "host calls"},  {"switches", "switches"},		 {"interrupts", "interrupts"},
	    {"depth", "queue depth"}, {"latency", "ms latency"}};
	json_t *p, *c;
	size_t i, k;

	json_array_foreach(json_object_get(a, "costs"), i, p) {
		if (!json_array_size(json_object_get(p, "cells")))
			continue;
		textbuf_printf(out, "\nCosts of %s, %s\n", report_title(a, text_of(p, "phase")),
			       !strcmp(text_of(p, "per"), "request") ? "for each request" : "for the whole phase");
		json_array_foreach(json_object_get(p, "cells"), k, c) {
			const char *separator = "  ", *last = NULL;
			textbuf_printf(out, "  %-34.76s", text_of(c, "label"));
			for (size_t s = 0; s < sizeof(shown) / sizeof(shown[0]); s++) {
				json_t *v = json_object_get(json_object_get(c, "values"), shown[s].key);
				if (!json_is_number(v) || json_number_value(v) <= 0 ||
				    (last && !strcmp(last, shown[s].name)))
					continue;
				last = shown[s].name;
				textbuf_printf(out, "%s%.3g %s", separator, json_number_value(v), shown[s].name);
				separator = ", ";
			}
			textbuf_printf(out, "%s\n", *separator == ' ' ? "  no counters on this side" : "");
		}
	}
}
