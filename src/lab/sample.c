// SPDX-License-Identifier: GPL-2.0-or-later
/* Reads /proc and /sys (Documentation/filesystems/proc.rst of Linux). What is missing is left out. Main thread. */
#include "lab/sample.h"
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/process.h"
#include "base/util.h"
#include "control/textbuf.h"
#include "lab/kcount.h"

static void set(json_t *o, const char *name, double v)
{
	json_object_set_new(o, name, json_real(v));
}

/* /proc/stat counts the time of guests (KVM) in user and nice as well; here a moment counts once. */
static void sample_host(json_t *o)
{
	static const char *const names[] = {"host.user", "host.nice",	 "host.system", "host.idle", "host.iowait",
					    "host.irq",	 "host.softirq", "host.steal",	"host.guest"};
	unsigned long long v[10] = {0}, switches;
	char line[512];
	double hz = (double)sysconf(_SC_CLK_TCK);
	FILE *f = fopen("/proc/stat", "re");

	while (f && fgets(line, sizeof(line), f)) {
		/* The line of all CPUs; those of single ones follow, with a digit for the blank. */
		if (!strncmp(line, "cpu ", 4) &&
		    sscanf(line + 4, "%llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1, v + 2, v + 3, v + 4,
			   v + 5, v + 6, v + 7, v + 8, v + 9) == 10) {
			v[0] -= MIN(v[0], v[8]);
			v[1] -= MIN(v[1], v[9]);
			v[8] += v[9];
			for (size_t i = 0; i < ARRAY_SIZE(names); i++)
				set(o, names[i], (double)v[i] / hz);
		}
		if (sscanf(line, "ctxt %llu", &switches) == 1)
			set(o, "host.switches", (double)switches);
	}
	if (f)
		fclose(f);
}

/* With children, running or waited for: native ring 3 runs guest code in some. */
static void sample_process(json_t *o, pid_t pid)
{
	struct process_usage u;

	if (process_usage(pid, &u))
		return;
	set(o, "vmm.faults", (double)u.faults);
	set(o, "vmm.user", u.user_s - MIN(u.guest_s, u.user_s));
	set(o, "vmm.system", u.system_s);
	set(o, "vmm.guest", u.guest_s);
	set(o, "vmm.cpu", u.user_s + u.system_s);
}

static void read_switches(const char *path, struct sample_child *c, double *peak_kib)
{
	char line[256];
	unsigned long long v;
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "voluntary_ctxt_switches: %llu", &v) == 1)
			c->switches += (double)v;
		else if (sscanf(line, "nonvoluntary_ctxt_switches: %llu", &v) == 1)
			c->forced += (double)v;
		else if (peak_kib && sscanf(line, "VmHWM: %llu", &v) == 1)
			*peak_kib = (double)v;
	}
	if (f)
		fclose(f);
}

/* ns a thread was ready and had no CPU; Linux, Documentation/scheduler/sched-stats.rst. */
static double run_delay(const char *path)
{
	unsigned long long delay = 0;
	FILE *f = fopen(path, "re");

	if (f) {
		if (fscanf(f, "%*u %llu", &delay) != 1)
			delay = 0;
		fclose(f);
	}
	return (double)delay;
}

/* All threads of one process; their sum in `c`. */
static void read_threads(pid_t pid, struct sample_child *c, double *peak_kib)
{
	char path[400];
	struct dirent *e;

	*c = (struct sample_child){.pid = pid};
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, e->d_name);
		read_switches(path, c, peak_kib);
		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", (int)pid, e->d_name);
		c->delay_ns += run_delay(path);
	}
	if (d)
		closedir(d);
	c->switches += c->forced;
}

static void add_child(struct sample_child *sum, const struct sample_child *c)
{
	sum->switches += c->switches;
	sum->forced += c->forced;
	sum->delay_ns += c->delay_ns;
}

void sample_children_look(struct sample_children *c, pid_t pid)
{
	pid_t list[SAMPLE_CHILDREN];
	size_t n = process_descendants(pid, list, ARRAY_SIZE(list)), kept = 0;
	struct sample_child now[SAMPLE_CHILDREN] = {0};
	struct process_usage u;

	for (size_t i = 0; i < n; i++) {
		read_threads(list[i], &now[kept], NULL);
		/* One that ended meanwhile has nothing to read: its last values stay below. */
		kept += now[kept].switches > 0;
	}
	for (size_t i = 0; i < c->n; i++) {
		bool runs = false;
		/* Less than before is another process with the same number. */
		for (size_t k = 0; k < kept; k++)
			runs |= now[k].pid == c->child[i].pid && now[k].switches >= c->child[i].switches;
		if (!runs)
			add_child(&c->gone, &c->child[i]);
	}
	memcpy(c->child, now, kept * sizeof(now[0]));
	c->n = kept;
	if (kept && !process_usage(pid, &u))
		c->peak_kib = MAX(c->peak_kib, (double)u.children_kib);
}

static void sample_threads(json_t *o, pid_t pid, struct sample_children *children)
{
	struct sample_child all;
	double peak_kib = 0;

	read_threads(pid, &all, &peak_kib);
	if (children) {
		sample_children_look(children, pid);
		add_child(&all, &children->gone);
		for (size_t i = 0; i < children->n; i++)
			add_child(&all, &children->child[i]);
		peak_kib += children->peak_kib;
	}
	set(o, "vmm.switches", all.switches);
	set(o, "vmm.switches_forced", all.forced);
	set(o, "vmm.run_delay_s", all.delay_ns * 1e-9);
	if (peak_kib > 0)
		set(o, "vmm.peak_kib_now", peak_kib);
}

static void sample_io(json_t *o, pid_t pid)
{
	char path[64], line[128];
	unsigned long long v;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "read_bytes: %llu", &v) == 1)
			set(o, "vmm.device_read_bytes", (double)v);
		else if (sscanf(line, "write_bytes: %llu", &v) == 1)
			set(o, "vmm.device_written_bytes", (double)v);
		else if (sscanf(line, "syscr: %llu", &v) == 1)
			set(o, "vmm.read_calls", (double)v);
		else if (sscanf(line, "syscw: %llu", &v) == 1)
			set(o, "vmm.write_calls", (double)v);
	}
	if (f)
		fclose(f);
}

static void sample_disk(json_t *o, const char *folder)
{
	unsigned long long v[11];
	struct stat st;
	char path[128];

	if (stat(folder, &st))
		return;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev));
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1, v + 2, v + 3, v + 4,
			v + 5, v + 6, v + 7, v + 8, v + 9, v + 10) == 11) {
		set(o, "disk.requests", (double)(v[0] + v[4]));
		set(o, "disk.read_bytes", 512.0 * (double)v[2]);
		set(o, "disk.written_bytes", 512.0 * (double)v[6]);
		set(o, "disk.wait_s", (double)v[10] / 1000);
		set(o, "disk.busy_s", (double)v[9] / 1000);
	}
	if (f)
		fclose(f);
}

void sample_take(json_t *o, pid_t pid, struct sample_children *children, const char *folder)
{
	sample_host(o);
	if (pid > 0) {
		sample_process(o, pid);
		sample_threads(o, pid, children);
		sample_io(o, pid);
	}
	if (folder)
		sample_disk(o, folder);
}

json_t *sample_delta(json_t *a, json_t *b)
{
	json_t *o = json_object(), *value;
	const char *key;

	json_object_foreach(b, key, value) {
		json_t *before = json_object_get(a, key);
		size_t n = strlen(key);
		if (n > 4 && !strcmp(key + n - 4, "_now"))
			json_object_set(o, key, value);
		else if (before)
			set(o, key, json_number_value(value) - json_number_value(before));
		else
			json_object_set(o, key, value);
	}
	return o;
}

/* ---- facts ------------------------------------------------------------------------ */

static void fact_line(json_t *o, const char *name, const char *path)
{
	char line[256] = "";
	FILE *f = fopen(path, "re");

	if (f && fgets(line, sizeof(line), f))
		line[strcspn(line, "\n")] = 0;
	if (f)
		fclose(f);
	json_object_set_new(o, name, json_string(*line ? line : "unknown"));
}

static void fact_cpuinfo(json_t *o)
{
	char line[4096], model[200] = "unknown";
	FILE *f = fopen("/proc/cpuinfo", "re");
	bool guest = false;

	while (f && fgets(line, sizeof(line), f)) {
		sscanf(line, "model name : %199[^\n]", model);
		guest |= !strncmp(line, "flags", 5) && strstr(line, " hypervisor");
	}
	if (f)
		fclose(f);
	json_object_set_new(o, "processor", json_string(model));
	json_object_set_new(o, "virtualized host", json_string(guest ? "yes: this host is a guest itself" : "no"));
}

/* "ext4 on /dev/vda, scheduler none, rotational 0" of the nearest folder above that exists. */
static void fact_disk(json_t *o, const char *folder)
{
	char at[4096], line[4096], number[40], type[64] = "", source[256] = "";
	struct stat st;
	char *slash;

	snprintf(at, sizeof(at), "%s", folder);
	while (stat(at, &st) && (slash = strrchr(at, '/')) && slash != at)
		*slash = 0;
	if (stat(at, &st) && stat(*folder == '/' ? "/" : ".", &st))
		return;
	snprintf(number, sizeof(number), "%u:%u", major(st.st_dev), minor(st.st_dev));
	FILE *f = fopen("/proc/self/mountinfo", "re");
	while (f && fgets(line, sizeof(line), f)) {
		char device[40], *rest = strstr(line, " - ");
		if (rest && sscanf(line, "%*d %*d %39s", device) == 1 && !strcmp(device, number))
			sscanf(rest, " - %63s %255s", type, source);
	}
	if (f)
		fclose(f);
	struct textbuf t = {0};
	textbuf_printf(&t, "%s on %s", *type ? type : "a file system", *source ? source : number);
	static const char *const knobs[] = {"scheduler", "rotational"}, *const places[] = {"queue", "../queue"};
	for (size_t i = 0; i < ARRAY_SIZE(knobs) * ARRAY_SIZE(places); i++) {
		const char *knob = knobs[i / ARRAY_SIZE(places)];
		snprintf(line, sizeof(line), "/sys/dev/block/%s/%s/%s", number, places[i % ARRAY_SIZE(places)], knob);
		f = fopen(line, "re");
		if (f && fgets(line, sizeof(line), f))
			textbuf_printf(&t, ", %s %.*s", knob, (int)strcspn(line, "\n"), line);
		if (f)
			fclose(f);
	}
	json_object_set_new(o, "disk under images and host files", json_string(t.text ? t.text : ""));
	textbuf_free(&t);
}

json_t *sample_facts(const char *folder)
{
	json_t *o = json_object();
	struct utsname u;
	char text[200];
	double load[3] = {0};

	uname(&u);
	json_object_set_new(o, "host kernel", json_string(u.release));
	fact_cpuinfo(o);
	snprintf(text, sizeof(text), "%ld", sysconf(_SC_NPROCESSORS_ONLN));
	json_object_set_new(o, "processors", json_string(text));
	snprintf(text, sizeof(text), "%.0f MiB",
		 (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (double)MIB);
	json_object_set_new(o, "memory", json_string(text));
	fact_line(o, "SMT", "/sys/devices/system/cpu/smt/control");
	fact_line(o, "frequency governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
	fact_line(o, "clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource");
	fact_line(o, "transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled");
	if (getloadavg(load, 3) == 3) {
		snprintf(text, sizeof(text), "%.2f in the last minute%s", load[0],
			 load[0] > 0.5 ? ": something else was running" : "");
		json_object_set_new(o, "load when it began", json_string(text));
	}
	fact_disk(o, folder);
	json_object_set_new(o, "kelvin", json_string(KELVIN_VERSION));
	double cost = kcount_cost_ns();
	snprintf(text, sizeof(text),
		 cost < 0 ? "not permitted here (it needs root and eBPF)" : "it adds %.0f ns to each", cost);
	json_object_set_new(o, "counting host system calls", json_string(text));
	return o;
}
