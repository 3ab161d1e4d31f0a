// SPDX-License-Identifier: GPL-2.0-or-later
/* The command line of `kelvin bench`. */
#include "lab/bench.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/type.h"
#include "base/util.h"
#include "lab/analyse.h"
#include "lab/experiment.h"
#include "lab/paths.h"
#include "lab/report.h"
#include "lab/run.h"
#include "lab/sample.h"
#include "lab/vmm.h"
#include "lab/workload.h"

static void usage(FILE *to)
{
	fprintf(to, "usage: kelvin bench list                      built-in experiments and workloads\n"
		    "       kelvin bench show NAME|FILE             an experiment's file, and its cells\n"
		    "       kelvin bench run NAME|FILE [OPTION...]  run it, print the verdict, write reports\n"
		    "       kelvin bench run --resume DIR           go on where a run was stopped or killed\n"
		    "       kelvin bench report DIR [--png] [--json]  make the reports again\n"
		    "       kelvin bench compare DIR DIR            two results of the same experiment, cell by cell\n"
		    "       kelvin bench planted DIR [--runs N]     would this machine's noise hide or fake 5 %%?\n\n"
		    "  --quick              the experiment's small size, minutes\n"
		    "  --vary KEY=A,B,...   make a setting a factor; may be repeated\n"
		    "  --fix KEY=VALUE      the same in all cells; may be repeated\n"
		    "  --runs N             exactly N blocks (each cell once in each)\n"
		    "  --budget TIME        stop in time: 90s, 20m, 3h\n"
		    "  --vmm BINARY         the same cells with this monitor too; may be repeated\n"
		    "  --seed N             order of the cells (printed in the report)\n"
		    "  --out DIR            result folder (default lab-results/NAME-DATE)\n"
		    "  --png                plots as PNG files too\n");
}

/* ---- list, show ---------------------------------------------------------------------- */

static void list_one(void *arg, const char *name, const char *path)
{
	struct err err = {0};
	struct experiment *e = experiment_load(name, false, &err);

	printf("  %-15s %s\n", name, e ? (e->about ? e->about : "") : err.msg);
	experiment_free(e);
}

static int cmd_list(int argc, char **argv)
{
	struct err err = {0};

	printf("Experiments (kelvin bench run NAME)\n");
	if (experiment_each(list_one, NULL, &err)) {
		log_error("%s", err.msg);
		return 1;
	}
	printf("\nWorkloads, and their parameters (--fix work.NAME=VALUE)\n");
	const struct workload *w;
	for (size_t i = 0; (w = workload_at(i)); i++) {
		printf("  %-15s %s\n", w->name, w->about);
		for (const struct workload_param *p = w->params; p->name; p++)
			printf("  %-15s   %s: %s (%s)\n", "", p->name, p->help, p->value);
	}
	return 0;
}

static int show(struct experiment *e)
{
	struct matrix m;
	struct err err = {0};

	if (matrix_make(e, &m, &err)) {
		log_error("%s", err.msg);
		return 1;
	}
	printf("%zu cells in each block:\n", m.n);
	for (size_t i = 0; i < m.n; i++)
		printf("  %s%s\n", m.cell[i].label,
		       i == m.reference ? "   <- reference"
		       : m.cell[i].twin ? "   <- noise floor"
					: "");
	printf("%u to %u blocks, until differences of %.3g %% would be found, or %.0f s are used\n", e->least, e->most,
	       e->tolerance * 100, e->budget_s);
	matrix_free(&m);
	return 0;
}

static int cmd_show(int argc, char **argv)
{
	struct err err = {0};
	struct experiment *e = argc == 2 ? experiment_load(argv[1], false, &err) : NULL;

	if (argc != 2) {
		usage(stderr);
		return 1;
	}
	if (!e) {
		log_error("%s", err.msg);
		return 1;
	}
	char *path = experiment_path(argv[1], &err);
	char *text = path ? paths_read(path, &err) : NULL;
	printf("%s\n", text ? text : "");
	free(text);
	free(path);
	int status = show(e);
	experiment_free(e);
	return status;
}

/* ---- run -------------------------------------------------------------------------------- */

struct run_options {
	const char *name, *out, *resume, *seed;
	bool quick, png;
	json_t *changes; /* [[option, value], ...] in order */
};

/* Options with a value; --out, --seed, --resume are kept, the others change the experiment in order. */
static int parse_run(int argc, char **argv, struct run_options *o, struct err *err)
{
	static const char *const with_value[] = {"--vary", "--fix",  "--runs", "--budget",
						 "--vmm",  "--seed", "--out",  "--resume"};
	static const char *const known[] = {"--vary", "--fix", "--runs",   "--budget", "--vmm",
					    "--seed", "--out", "--resume", "--quick",  "--png"};

	for (int i = 1; i < argc; i++) {
		bool value = false;
		for (size_t k = 0; k < ARRAY_SIZE(with_value); k++)
			value |= !strcmp(argv[i], with_value[k]);
		if (value && i + 1 >= argc)
			return err_set(err, -EINVAL, "%s needs a value (kelvin bench --help)", argv[i]);
		if (!strcmp(argv[i], "--quick"))
			o->quick = true;
		else if (!strcmp(argv[i], "--png"))
			o->png = true;
		else if (!strcmp(argv[i], "--out"))
			o->out = argv[++i];
		else if (!strcmp(argv[i], "--seed"))
			o->seed = argv[++i];
		else if (!strcmp(argv[i], "--resume"))
			o->resume = argv[++i];
		else if (value) {
			json_array_append_new(o->changes, json_pack("[s,s]", argv[i], argv[i + 1]));
			i++;
		} else if (argv[i][0] == '-') {
			const char *near = text_nearest(argv[i], known, ARRAY_SIZE(known));
			return err_set(err, -EINVAL, "there is no option '%s'%s%s%s", argv[i],
				       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
		} else if (o->name)
			return err_set(err, -EINVAL, "one experiment at a time: '%s' or '%s'", o->name, argv[i]);
		else
			o->name = argv[i];
	}
	if (!o->name == !o->resume)
		return err_set(err, -EINVAL, "name an experiment, or a folder with --resume (kelvin bench --help)");
	if (o->resume && (json_array_size(o->changes) || o->out || o->seed || o->quick))
		return err_set(err, -EINVAL, "--resume goes on with what was asked for: it takes no other changes");
	return 0;
}

static int add_vmm(struct experiment *e, const char *program, struct err *err)
{
	json_t *levels = json_object_get(e->factors, "vmm");

	if (!levels) {
		const char *fixed = json_string_value(json_object_get(e->settings, "vmm"));
		levels = json_array();
		json_array_append_new(levels, json_string(fixed ? fixed : "kelvin"));
		json_object_set_new(e->factors, "vmm", levels);
	}
	json_array_append_new(levels, json_string(program));
	return experiment_settle(e, err);
}

static int apply_changes(struct experiment *e, json_t *changes, struct err *err)
{
	json_t *c;
	size_t i;
	int ret = 0;

	json_array_foreach(changes, i, c) {
		const char *option = json_string_value(json_array_get(c, 0)),
			   *value = json_string_value(json_array_get(c, 1));
		if (ret)
			break;
		if (!strcmp(option, "--vary"))
			ret = experiment_vary(e, value, err);
		else if (!strcmp(option, "--fix"))
			ret = experiment_fix(e, value, err);
		else if (!strcmp(option, "--vmm"))
			ret = add_vmm(e, value, err);
		else if (!strcmp(option, "--budget"))
			json_object_set_new(e->doc, "budget", json_string(value));
		else
			json_object_set_new(e->doc, "runs", json_pack("{s:s,s:s}", "least", value, "most", value));
		if (!ret)
			ret = experiment_settle(e, err);
	}
	return ret;
}

/* Versions of the monitors that are not this program. */
static void add_versions(const struct experiment *e, json_t *facts)
{
	json_t *levels = json_object_get(e->factors, "vmm"), *one = json_object_get(e->settings, "vmm"), *v;
	json_t *list = levels ? json_incref(levels) : json_array();
	size_t i;

	if (!levels && one)
		json_array_append(list, one);
	json_array_foreach(list, i, v) {
		const char *program = json_string_value(v);
		char *version = program && strcmp(program, "kelvin") ? vmm_version(program) : NULL;
		if (version)
			json_object_set_new(facts, program, json_string(version));
		free(version);
	}
	json_decref(list);
}

static json_t *make_plan(const struct experiment *e, const struct run_options *o, const char *dir, int argc,
			 char **argv)
{
	uint64_t seed;
	char text[32], date[40];
	struct textbuf line = {0};
	time_t now = time(NULL);
	struct tm tm;
	json_t *facts = sample_facts(dir);

	add_versions(e, facts);

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = (uint64_t)now;
	seed &= 0xffffffff;
	if (o->seed)
		seed = strtoull(o->seed, NULL, 0);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
	strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &tm));
	json_object_set_new(facts, "begun", json_string(date));
	textbuf_printf(&line, "kelvin bench run");
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--out") || !strcmp(argv[i], "--seed")) {
			i++;
			continue;
		}
		textbuf_printf(&line, strpbrk(argv[i], " $'\"*?;&|<>()") ? " '%s'" : " %s", argv[i]);
	}
	textbuf_printf(&line, " --seed %s", text);
	json_t *plan = json_pack("{s:O,s:s,s:o,s:s}", "experiment", e->doc, "seed", text, "facts", facts, "command",
				 line.text ? line.text : "");
	textbuf_free(&line);
	return plan;
}

static int open_new(struct journal *j, const struct run_options *o, int argc, char **argv, struct err *err)
{
	struct experiment *e = experiment_load(o->name, o->quick, err);
	char date[32], *dir = NULL;
	time_t now = time(NULL);
	struct tm tm;
	struct matrix m;

	if (!e)
		return -EINVAL;
	int ret = apply_changes(e, o->changes, err);
	/* The matrix must be possible before a folder is made. */
	if (!ret)
		ret = matrix_make(e, &m, err);
	if (!ret) {
		matrix_free(&m);
		strftime(date, sizeof(date), "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
		dir = o->out ? strdup(o->out) : paths_text("lab-results/%s-%s", e->name, date);
		json_t *plan = dir ? make_plan(e, o, dir, argc, argv) : NULL;
		ret = dir ? journal_create(j, dir, plan, err) : -ENOMEM;
		json_decref(plan);
	}
	free(dir);
	experiment_free(e);
	return ret;
}

static int finish_run(struct journal *j, bool png, int ran)
{
	struct err err = {0};
	struct textbuf t = {0};
	int ret = report_write(j, png, &err);

	if (ret)
		log_error("%s", err.msg);
	json_t *a = analyse_final(j);
	report_text(a, &t);
	printf("%s\nReports: %s/report.html, .txt, .json, .csv\n", t.text ? t.text : "", j->dir);
	size_t cells = json_array_size(json_object_get(a, "metrics"));
	textbuf_free(&t);
	json_decref(a);
	if (ran == -EINTR)
		fprintf(stderr, "stopped; go on with: kelvin bench run --resume %s\n", j->dir);
	return ret || ran || !cells ? 1 : 0;
}

static int cmd_run(int argc, char **argv)
{
	struct run_options o = {.changes = json_array()};
	struct journal j = {.fd = -1};
	struct err err = {0};
	int ret = parse_run(argc, argv, &o, &err), status = 1;

	if (!ret)
		ret = o.resume ? journal_open(&j, o.resume, true, &err) : open_new(&j, &o, argc, argv, &err);
	if (!ret) {
		fprintf(stderr, "%s: results in %s, seed %llu\n", j.experiment->name, j.dir,
			(unsigned long long)j.seed);
		ret = run_experiment(&j, &err);
		if (ret && ret != -EINTR)
			log_error("%s", err.msg[0] ? err.msg : strerror(-ret));
		if (!ret || ret == -EINTR)
			status = finish_run(&j, o.png, ret);
		journal_close(&j);
	} else {
		log_error("%s", err.msg);
	}
	json_decref(o.changes);
	return status;
}

/* ---- report, compare, planted --------------------------------------------------------------- */

static int cmd_report(int argc, char **argv)
{
	struct journal j = {.fd = -1};
	struct err err = {0};
	bool png = false, json = false;
	const char *dir = NULL;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--png"))
			png = true;
		else if (!strcmp(argv[i], "--json"))
			json = true;
		else if (!dir && argv[i][0] != '-')
			dir = argv[i];
		else {
			log_error("'%s' is not understood (kelvin bench --help)", argv[i]);
			return 1;
		}
	}
	if (!dir) {
		usage(stderr);
		return 1;
	}
	if (journal_open(&j, dir, false, &err)) {
		log_error("%s", err.msg);
		return 1;
	}
	int ret = report_write(&j, png, &err);
	json_t *a = analyse_final(&j);
	struct textbuf t = {0};
	if (json) {
		json_dumpf(a, stdout, JSON_INDENT(1));
		printf("\n");
	} else {
		report_text(a, &t);
		printf("%s", t.text ? t.text : "");
	}
	if (ret)
		log_error("%s", err.msg);
	textbuf_free(&t);
	json_decref(a);
	journal_close(&j);
	return ret ? 1 : 0;
}

/* Good values of a cell's metric in a journal. */
static size_t cell_values(const struct journal *j, const char *cell, const char *metric, double *x, size_t room)
{
	json_t *t;
	size_t n = 0, i;

	json_array_foreach(j->trials, i, t) {
		double v =
		    json_number_value(json_object_get(json_object_get(json_object_get(t, "metrics"), metric), "value"));
		if (!strcmp(json_string_value(json_object_get(t, "cell")), cell) && v > 0 && n < room &&
		    !strcmp(json_string_value(json_object_get(t, "status")), "ok"))
			x[n++] = v;
	}
	return n;
}

static void compare_metric(struct journal *j, json_t *m)
{
	const char *metric = json_string_value(json_object_get(m, "name"));
	json_t *c;
	size_t i;

	printf("\n%s (%s, %s is better)\n  %-40s %-12s %-12s %s\n", metric,
	       json_string_value(json_object_get(m, "unit")), json_string_value(json_object_get(m, "better")), "cell",
	       "first", "second", "second / first, 95 % interval");
	json_array_foreach(json_object_get(m, "cells"), i, c) {
		static double x[2][10000];
		const char *cell = json_string_value(json_object_get(c, "label"));
		size_t n = cell_values(&j[0], cell, metric, x[0], ARRAY_SIZE(x[0])),
		       k = cell_values(&j[1], cell, metric, x[1], ARRAY_SIZE(x[1]));
		if (!n || !k)
			continue;
		struct stats_ratio r = stats_unpaired(x[0], n, x[1], k);
		printf("  %-40.60s %-12.5g %-12.5g %.4g [%.4g, %.4g]%s\n", cell, stats_summary(x[0], n, 1).mean,
		       stats_summary(x[1], k, 1).mean, r.ratio, r.t.low, r.t.high,
		       r.t.low > 1 || r.t.high < 1 ? "  differs" : "");
	}
}

static int cmd_compare(int argc, char **argv)
{
	struct journal j[2] = {{.fd = -1}, {.fd = -1}};
	struct err err = {0};
	json_t *m;
	size_t i;

	if (argc != 3) {
		usage(stderr);
		return 1;
	}
	if (journal_open(&j[0], argv[1], false, &err) || journal_open(&j[1], argv[2], false, &err)) {
		log_error("%s", err.msg);
		journal_close(&j[0]);
		return 1;
	}
	printf("%s and %s: the runs were not interleaved, so what differs may be the machine on that day; intervals "
	       "are for each line alone\n",
	       argv[1], argv[2]);
	json_t *a = analyse_final(&j[0]);
	json_array_foreach(json_object_get(a, "metrics"), i, m) {
		compare_metric(j, m);
	}
	json_decref(a);
	journal_close(&j[0]);
	journal_close(&j[1]);
	return 0;
}

static int cmd_planted(int argc, char **argv)
{
	struct journal j = {.fd = -1};
	struct err err = {0};
	long runs = 2000;

	if (argc == 4 && !strcmp(argv[2], "--runs"))
		runs = strtol(argv[3], NULL, 10);
	if ((argc != 2 && argc != 4) || runs < 1 || runs > 1000000) {
		usage(stderr);
		return 1;
	}
	int ret = journal_open(&j, argv[1], false, &err);
	if (!ret) {
		ret = planted_command(&j, (size_t)runs, 0.05, &err);
		journal_close(&j);
	}
	if (ret)
		log_error("%s", err.msg);
	return ret ? 1 : 0;
}

int bench_main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*fn)(int argc, char **argv);
	} verbs[] = {{"list", cmd_list},     {"show", cmd_show},       {"run", cmd_run},
		     {"report", cmd_report}, {"compare", cmd_compare}, {"planted", cmd_planted}};
	const char *names[ARRAY_SIZE(verbs)];

	/* Asked beside a command too. */
	bool help = argc >= 2 && !strcmp(argv[1], "help");
	for (int i = 1; i < argc; i++)
		help |= !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
	if (argc < 2 || help) {
		usage(help ? stdout : stderr);
		return !help;
	}
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		names[i] = verbs[i].name;
		if (!strcmp(argv[1], names[i]))
			return verbs[i].fn(argc - 1, argv + 1);
	}
	const char *near = text_nearest(argv[1], names, ARRAY_SIZE(names));
	log_error("kelvin bench has no command '%s'%s%s%s (kelvin bench --help)", argv[1],
		  near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
	return 1;
}
