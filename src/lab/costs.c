// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What each cell cost, phase by phase: the CPU's time on both sides, and exits, system calls, switches and interrupts
 * for each request. One table of columns; means over the analysed blocks. The unit of work is a request where the
 * workload or the guest's disk counted at least COSTS_REQUESTS of them in every cell, else the phase. Main thread.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "lab/analyse.h"
#include "lab/paths.h"

#define COSTS_REQUESTS 50

enum kind {
	SHARE,	  /* seconds of CPU, as % of the phase's time */
	PER_UNIT, /* of work */
	DEPTH,	  /* seconds of waiting for each second: requests in flight on average */
	LATENCY,  /* seconds of waiting for each request of the guest's disk, in ms */
	LEVEL	  /* the largest of the blocks */
};

#define INSIDE	true
#define OUTSIDE false

/* `keys`: added up; a column is left out where no cell has its first. scale: from the counter's unit to the column's.
 */
static const struct column {
	const char *key, *title;
	enum kind kind;
	bool inside;
	double scale;
	const char *keys[3];
} columns[] = {
    {"guest.user", "guest: user", SHARE, INSIDE, 1, {"user"}},
    {"guest.nice", "nice", SHARE, INSIDE, 1, {"nice"}},
    {"guest.system", "system", SHARE, INSIDE, 1, {"system"}},
    {"guest.irq", "irq", SHARE, INSIDE, 1, {"irq"}},
    {"guest.softirq", "softirq", SHARE, INSIDE, 1, {"softirq"}},
    {"guest.guest", "guest", SHARE, INSIDE, 1, {"guest"}},
    {"guest.steal", "steal", SHARE, INSIDE, 1, {"steal"}},
    {"guest.iowait", "iowait", SHARE, INSIDE, 1, {"iowait"}},
    {"monitor.user", "monitor: user", SHARE, OUTSIDE, 1, {"vmm.user"}},
    {"monitor.system", "system", SHARE, OUTSIDE, 1, {"vmm.system"}},
    {"monitor.guest", "guest", SHARE, OUTSIDE, 1, {"vmm.guest"}},
    {"monitor.delay", "waiting for a CPU", SHARE, OUTSIDE, 1, {"vmm.run_delay_s"}},
    {"host.user", "host: user", SHARE, OUTSIDE, 1, {"host.user"}},
    {"host.nice", "nice", SHARE, OUTSIDE, 1, {"host.nice"}},
    {"host.system", "system", SHARE, OUTSIDE, 1, {"host.system"}},
    {"host.irq", "irq", SHARE, OUTSIDE, 1, {"host.irq"}},
    {"host.softirq", "softirq", SHARE, OUTSIDE, 1, {"host.softirq"}},
    {"host.guest", "guest", SHARE, OUTSIDE, 1, {"host.guest"}},
    {"host.steal", "steal", SHARE, OUTSIDE, 1, {"host.steal"}},
    {"peak", "peak memory, MiB", LEVEL, OUTSIDE, 1.0 / 1024, {"vmm.peak_kib_now"}},
    {"kvm.exits", "exits", PER_UNIT, OUTSIDE, 1, {"kvm.exits"}},
    {"exits", "exits to the monitor", PER_UNIT, OUTSIDE, 1, {"exits"}},
    {"exits_to_user", "exits to the monitor (KVM)", PER_UNIT, OUTSIDE, 1, {"kvm.exits_to_user"}},
    {"calls", "host system calls", PER_UNIT, OUTSIDE, 1, {"vmm.calls"}},
    {"switches", "monitor's context switches", PER_UNIT, OUTSIDE, 1, {"vmm.switches"}},
    {"guest.switches", "guest's context switches", PER_UNIT, INSIDE, 1, {"switches"}},
    {"interrupts", "device interrupts", PER_UNIT, OUTSIDE, 1, {"interrupts"}},
    {"image", "requests to the image", PER_UNIT, OUTSIDE, 1, {"block.requests"}},
    {"host.disk",
     "asked of the host's disk, KiB",
     PER_UNIT,
     OUTSIDE,
     1.0 / 1024,
     {"vmm.device_read_bytes", "vmm.device_written_bytes"}},
    {"depth", "queue depth", DEPTH, INSIDE, 1, {"disk_wait_s"}},
    {"latency", "latency, ms", LATENCY, INSIDE, 1000, {"disk_wait_s"}},
};

struct phase {
	const struct journal *j;
	unsigned blocks;
	const char *name;
	bool per_request;
};

static json_t *trial_phase(const struct phase *p, unsigned block, const struct cell *c)
{
	json_t *t = journal_find(p->j, block, c->label);
	const char *status = json_string_value(json_object_get(t, "status"));

	return status && !strcmp(status, "ok") ? json_object_get(json_object_get(t, "phases"), p->name) : NULL;
}

static double number_of(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

static double disk_requests(json_t *inside)
{
	return number_of(inside, "reads") + number_of(inside, "writes");
}

static double work_of(json_t *ph)
{
	json_t *inside = json_object_get(ph, "inside");
	double own = number_of(inside, "operations");

	return isfinite(own) ? own : disk_requests(inside);
}

/* NAN: not measured. */
static double value_of(const struct phase *p, json_t *ph, const struct column *c)
{
	json_t *side = json_object_get(ph, c->inside ? "inside" : "outside");
	double seconds = number_of(ph, "seconds"), v = number_of(side, c->keys[0]);

	for (size_t i = 1; i < ARRAY_SIZE(c->keys) && c->keys[i]; i++)
		v += number_of(side, c->keys[i]);
	switch (c->kind) {
	case SHARE: v = v / seconds * 100; break;
	case PER_UNIT: v = p->per_request ? v / work_of(ph) : v; break;
	case DEPTH: v /= seconds; break;
	case LATENCY: v /= disk_requests(side); break;
	case LEVEL: break;
	}
	return v * c->scale;
}

static json_t *cell_costs(const struct phase *p, const struct cell *c, size_t *blocks)
{
	json_t *o = json_object();

	*blocks = 0;
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
		double sum = 0, most = 0;
		size_t n = 0, seen = 0;
		for (unsigned block = 0; block < p->blocks; block++) {
			json_t *ph = trial_phase(p, block, c);
			double v = ph ? value_of(p, ph, &columns[i]) : NAN;
			seen += ph != NULL;
			if (!isfinite(v))
				continue;
			sum += v;
			most = MAX(most, v);
			n++;
		}
		*blocks = seen;
		if (n)
			json_object_set_new(o, columns[i].key,
					    json_real(columns[i].kind == LEVEL ? most : sum / (double)n));
	}
	return o;
}

/* The system calls a cell made most, per unit: "ioctl 1.0, io_uring_enter 0.6". */
static char *frequent_calls(const struct phase *p, const struct cell *c)
{
	static const char prefix[] = "vmm.calls.";
	json_t *sum = json_object(), *v;
	double work = 0;
	const char *key;
	char *text = strdup("");

	for (unsigned block = 0; block < p->blocks; block++) {
		json_t *ph = trial_phase(p, block, c);
		work += ph ? (p->per_request ? work_of(ph) : 1) : 0;
		json_object_foreach(json_object_get(ph, "outside"), key, v) {
			if (strncmp(key, prefix, strlen(prefix)))
				continue;
			double have = json_number_value(json_object_get(sum, key));
			json_object_set_new(sum, key, json_real(have + json_number_value(v)));
		}
	}
	for (int i = 0; i < 4 && text && work > 0; i++) {
		const char *best = NULL;
		double most = 0;
		json_object_foreach(sum, key, v) {
			if (json_number_value(v) > most) {
				most = json_number_value(v);
				best = key;
			}
		}
		if (!best || (i && most / work < 0.005))
			break;
		char *more = paths_text("%s%s%s %.3g", text, i ? ", " : "", best + strlen(prefix), most / work);
		free(text);
		text = more;
		json_object_del(sum, best);
	}
	json_decref(sum);
	return text;
}

static bool enough_requests(const struct phase *p)
{
	bool any = false;

	for (unsigned block = 0; block < p->blocks; block++)
		for (size_t i = 0; i < p->j->matrix.n; i++) {
			json_t *ph = trial_phase(p, block, &p->j->matrix.cell[i]);
			if (!ph)
				continue;
			any = true;
			/* The host baseline of a workload that counts nothing itself has no disk of its own to ask. */
			if (!(work_of(ph) >= COSTS_REQUESTS) && !p->j->matrix.cell[i].host)
				return false;
		}
	return any;
}

static json_t *phase_costs(struct phase *p)
{
	json_t *cells = json_array(), *used = json_array();

	p->per_request = enough_requests(p);
	for (size_t i = 0; i < p->j->matrix.n; i++) {
		const struct cell *c = &p->j->matrix.cell[i];
		size_t blocks;
		json_t *values = cell_costs(p, c, &blocks);
		char *calls = frequent_calls(p, c);
		if (blocks)
			json_array_append_new(cells, json_pack("{s:s,s:O,s:s}", "label", c->label, "values", values,
							       "calls", calls ? calls : ""));
		json_decref(values);
		free(calls);
	}
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
		json_t *c;
		size_t k;
		bool any = false;
		json_array_foreach(cells, k, c) {
			json_t *v = json_object_get(json_object_get(c, "values"), columns[i].key);
			any |= v && (columns[i].kind == LEVEL || json_number_value(v) > 0);
		}
		if (any)
			json_array_append_new(used, json_pack("{s:s,s:s,s:b}", "key", columns[i].key, "title",
							      columns[i].title, "time", columns[i].kind == SHARE));
	}
	return json_pack("{s:s,s:s,s:o,s:o}", "phase", p->name, "per", p->per_request ? "request" : "phase", "columns",
			 used, "cells", cells);
}

json_t *costs_json(const struct journal *j, unsigned blocks)
{
	json_t *list = json_array(), *names = json_object(), *t, *v;
	const char *name;
	size_t i;

	json_array_foreach(j->trials, i, t) {
		json_object_foreach(json_object_get(t, "phases"), name, v) {
			json_object_set_new(names, name, json_true());
		}
	}
	json_object_foreach(names, name, v) {
		struct phase p = {.j = j, .blocks = blocks, .name = name};
		json_array_append_new(list, phase_costs(&p));
	}
	json_decref(names);
	return list;
}
