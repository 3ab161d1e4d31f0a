// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * `kelvin top`: running machines of this user, found through the sockets in the runtime folder (control/runtime.h), as
 * a screen that is redrawn or as JSON lines. Rates are differences of two samples. Main thread.
 */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "control/runtime.h"
#include "control/textbuf.h"
#include "lab/bench.h"
#include "lab/paths.h"
#include "lab/sample.h"
#include "lab/vmm.h"

#define SOCKET_WAIT_MS 2000

static volatile sig_atomic_t top_stop;

static void on_signal(int sig)
{
	top_stop = sig;
}

/* ---- samples ---------------------------------------------------------------------- */

/* What a machine's socket gives; NULL when nobody listens there (then the file is left over and removed). */
static json_t *read_machine(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct textbuf in = {0};
	char buf[16384];
	ssize_t n;

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		if (errno == ECONNREFUSED)
			unlink(path);
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	while (poll(&(struct pollfd){fd, POLLIN, 0}, 1, SOCKET_WAIT_MS) > 0 && in.len < 4 * MIB &&
	       (n = read(fd, buf, sizeof(buf))) > 0)
		textbuf_add(&in, buf, (size_t)n);
	close(fd);
	json_t *o = in.len ? json_loadb(in.text, in.len, 0, NULL) : NULL;
	textbuf_free(&in);
	return o;
}

/* {"pid": {"name", "accel", "state", "vcpus", "at": s, "totals": {flat counters}}, ...} */
static json_t *sample_machines(void)
{
	json_t *all = json_object();
	char folder[80];
	const struct vmm_ops *vmm = vmm_ops("kelvin");
	struct dirent *e;
	DIR *d = runtime_folder(folder, sizeof(folder), false) == 0 ? opendir(folder) : NULL;

	while (d && (e = readdir(d))) {
		char *path = strstr(e->d_name, ".sock") ? paths_text("%s/%s", folder, e->d_name) : NULL;
		json_t *o = path ? read_machine(path) : NULL, *stats = json_object_get(o, "stats");
		free(path);
		if (json_is_object(stats)) {
			char pid[24];
			json_t *totals = json_object();
			sample_take(totals, (pid_t)json_integer_value(json_object_get(o, "pid")), NULL, NULL);
			snprintf(pid, sizeof(pid), "%d", (int)json_integer_value(json_object_get(o, "pid")));
			vmm->query[0].counters(stats, totals);
			json_object_set_new(all, pid,
					    json_pack("{s:O,s:O,s:O,s:I,s:f,s:o}", "name", json_object_get(o, "name"),
						      "accel", json_object_get(stats, "accel"), "state",
						      json_object_get(stats, "state"), "vcpus",
						      (json_int_t)json_array_size(json_object_get(stats, "vcpus")),
						      "at", (double)clock_raw_ns() * 1e-9, "totals", totals));
		}
		json_decref(o);
	}
	if (d)
		closedir(d);
	return all;
}

/* Adds "rates" per second to each machine of `now` that `before` has too. */
static void add_rates(json_t *before, json_t *now)
{
	const char *pid, *key;
	json_t *m, *v;

	json_object_foreach(now, pid, m) {
		json_t *old = json_object_get(before, pid), *rates = json_object();
		double seconds =
		    json_number_value(json_object_get(m, "at")) - json_number_value(json_object_get(old, "at"));
		json_t *delta = old ? sample_delta(json_object_get(old, "totals"), json_object_get(m, "totals")) : NULL;
		json_object_foreach(delta, key, v) {
			size_t n = strlen(key);
			bool level = n > 4 && !strcmp(key + n - 4, "_now");
			json_object_set_new(
			    rates, key,
			    json_real(level ? json_number_value(v) : json_number_value(v) / MAX(seconds, 1e-3)));
		}
		json_decref(delta);
		json_object_set_new(m, "rates", rates);
	}
}

/* ---- the screen ----------------------------------------------------------------------- */

static double rate(json_t *m, const char *key)
{
	return json_number_value(json_object_get(json_object_get(m, "rates"), key));
}

/* 1234567 as 1.23M. */
static void short_number(char out[16], double v)
{
	static const char units[] = " kMGT";
	int u = 0;

	while (fabs(v) >= 1000 && u < 4) {
		v /= 1000;
		u++;
	}
	snprintf(out, 16, u || v >= 100 ? "%.3g%c" : "%.2g%c", v, units[u]);
}

static const struct {
	const char *title;
	const char *keys[10];
} groups[] = {
    {"exits a second",
     {"exits", "vcpu.port_io", "vcpu.mmio", "vcpu.halts", "vcpu.exits_io", "vcpu.exits_mmio", "vcpu.exits_intr",
      "vcpu.exits_hlt", "vcpu.exits_other"}},
    {"software CPU",
     {"vcpu.insns", "vcpu.jit_exits", "vcpu.jit_blocks", "vcpu.blocks_decoded", "vcpu.block_hits",
      "vcpu.code_invalidations"}},
    {"memory and events",
     {"vcpu.tlb_misses", "vcpu.page_walks", "vcpu.tlb_flushes", "vcpu.exceptions", "vcpu.interrupts", "interrupts"}},
    {"process",
     {"vmm.switches", "vmm.switches_forced", "vmm.faults", "vmm.device_read_bytes", "vmm.device_written_bytes"}},
};

static void print_group(struct textbuf *out, json_t *m, size_t g)
{
	bool any = false;
	char text[16];

	for (size_t i = 0; i < ARRAY_SIZE(groups[g].keys) && groups[g].keys[i]; i++) {
		const char *key = groups[g].keys[i], *dot = strchr(key, '.');
		if (!json_object_get(json_object_get(m, "rates"), key))
			continue;
		short_number(text, rate(m, key));
		text[strcspn(text, " ")] = 0;
		textbuf_printf(out, "%s%s %s", any ? ", " : "",
			       dot		       ? dot + 1
			       : !strcmp(key, "exits") ? "all"
						       : "from devices",
			       text);
		any = true;
	}
}

/* Requests: every device's chains. */
static void print_devices(struct textbuf *out, json_t *m)
{
	const char *key;
	json_t *v;
	char text[16];

	json_object_foreach(json_object_get(m, "rates"), key, v) {
		const char *dot = strrchr(key, '.');
		if (!dot ||
		    (strcmp(dot, ".chains") && strcmp(dot, ".requests") && strcmp(dot, ".tx_bytes") &&
		     strcmp(dot, ".commands")) ||
		    json_number_value(v) <= 0)
			continue;
		short_number(text, json_number_value(v));
		textbuf_printf(out, "  %-18s %.*s: %s %s a second\n", "I/O", (int)(dot - key), key, text, dot + 1);
	}
}

static void screen(json_t *now, struct textbuf *out)
{
	const char *pid;
	json_t *m;
	char text[16];

	char folder[80];
	if (!json_object_size(now)) {
		runtime_folder(folder, sizeof(folder), false);
		textbuf_printf(out, "no machine of this user is running (none has a socket in %s)\n", folder);
		return;
	}
	textbuf_printf(out, "%zu machine%s\n", json_object_size(now), json_object_size(now) == 1 ? "" : "s");
	textbuf_printf(out, "%8s %-20s %-5s %-10s %5s %7s %7s %7s %9s %9s\n", "PID", "NAME", "ACCEL", "STATE", "VCPUS",
		       "CPU %", "user %", "sys %", "exits/s", "peak MiB");
	json_object_foreach(now, pid, m) {
		const char *name = json_string_value(json_object_get(m, "name"));
		short_number(text, rate(m, "exits"));
		textbuf_printf(out, "%8s %-20.20s %-5.5s %-10.10s %5d %7.1f %7.1f %7.1f %9s %9.0f\n", pid,
			       name && *name ? name : "-", json_string_value(json_object_get(m, "accel")),
			       json_string_value(json_object_get(m, "state")),
			       (int)json_integer_value(json_object_get(m, "vcpus")), rate(m, "vmm.cpu") * 100,
			       (rate(m, "vmm.user") + rate(m, "vmm.guest")) * 100, rate(m, "vmm.system") * 100, text,
			       rate(m, "vmm.peak_kib_now") / 1024);
	}
	json_object_foreach(now, pid, m) {
		textbuf_printf(out, "\n%s %s\n", pid, json_string_value(json_object_get(m, "name")));
		for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
			struct textbuf line = {0};
			print_group(&line, m, g);
			if (line.len)
				textbuf_printf(out, "  %-18s %s\n", groups[g].title, line.text);
			textbuf_free(&line);
		}
		print_devices(out, m);
	}
}

static void draw(struct textbuf *text, bool terminal)
{
	struct winsize w = {0};

	if (!terminal || ioctl(1, TIOCGWINSZ, &w) || !w.ws_row) {
		fputs(text->text ? text->text : "", stdout);
		fflush(stdout);
		return;
	}
	fputs("\033[H\033[2J", stdout);
	/* As many lines, and as much of each, as there is room for. */
	unsigned row = 1, column = 0;
	for (const char *p = text->text ? text->text : ""; *p && row < w.ws_row; p++) {
		if (*p == '\n') {
			row++;
			column = 0;
			putchar('\n');
		} else if (column++ < w.ws_col) {
			putchar(*p);
		}
	}
	fflush(stdout);
}

/* ---- the command -------------------------------------------------------------------------- */

static void wait_for(double seconds)
{
	struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};

	if (!top_stop)
		nanosleep(&t, NULL);
}

static int parse(int argc, char **argv, bool *once, bool *json, double *interval)
{
	for (int i = 1; i < argc; i++) {
		char *end = NULL;
		if (!strcmp(argv[i], "--once"))
			*once = true;
		else if (!strcmp(argv[i], "--json"))
			*json = true;
		else if (!strcmp(argv[i], "--interval") && i + 1 < argc &&
			 (*interval = strtod(argv[++i], &end)) >= 0.1 && !*end && *interval < 3600)
			continue;
		else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			printf("usage: kelvin top [--once] [--json] [--interval SECONDS]\n\n"
			       "Exits, I/O and CPU of this user's running machines, per second, every two seconds "
			       "until Ctrl-C.\n"
			       "--once: one interval; --json: a line of JSON for each, with totals and rates.\n");
			return 1;
		} else {
			log_error("kelvin top: '%s' is not understood (kelvin top --help)", argv[i]);
			return -EINVAL;
		}
	}
	return 0;
}

int top_main(int argc, char **argv)
{
	bool once = false, json = false;
	double interval = 2;
	struct sigaction sa = {.sa_handler = on_signal};
	int ret = parse(argc, argv, &once, &json, &interval);

	if (ret)
		return ret < 0;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	json_t *before = sample_machines();
	do {
		wait_for(once && interval > 1 ? 1 : interval);
		if (top_stop)
			break;
		json_t *now = sample_machines();
		add_rates(before, now);
		if (json) {
			json_t *line = json_pack("{s:f,s:O}", "time", (double)clock_wall_ns() * 1e-9, "machines", now);
			json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10));
			printf("\n");
			fflush(stdout);
			json_decref(line);
		} else {
			struct textbuf text = {0};
			screen(now, &text);
			draw(&text, !once && isatty(1));
			textbuf_free(&text);
		}
		json_decref(before);
		before = now;
	} while (!once && !top_stop && !ferror(stdout));
	json_decref(before);
	return 0;
}
