// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One trial. The agent (guest/lab/agent.c has the protocol) says when a phase begins and ends and waits for our word,
 * so that counters of both sides cover the same work. Nothing is read from a console; its last line only explains an
 * end that came too early. One poll loop, main thread.
 */
#include "lab/trial.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/type.h"
#include "base/util.h"
#include "control/textbuf.h"
#include "lab/kcount.h"
#include "lab/paths.h"
#include "lab/sample.h"
#include "lab/spawn.h"
#include "lab/vmm.h"
#include "lab/workload.h"

#define LINE_LIMIT (1 * MIB)
#define END_WAIT_S 60
#define LOOK_S	   1.0

volatile sig_atomic_t bench_stop;

struct trial {
	const struct experiment *e;
	const struct cell *c;
	struct bench_files *f;
	struct trial_disk disk;
	struct trial_system system;
	struct command command;
	struct qmp_client qmp;
	bool has_qmp;
	struct kcount *kcount; /* NULL: the kernel does not permit it */
	pid_t pid;
	struct sample_children children;
	double looked; /* s: when at the children */
	int listener, channel, console;
	FILE *log; /* the monitor's own words */
	struct textbuf in;
	double started, heard; /* s */
	json_t *before, *result, *metrics, *phases, *notes;
	double phase_began;
	bool done;
	char cause[700];
	const char *status;
};

static double now_s(void)
{
	return (double)clock_raw_ns() * 1e-9;
}

/* The first reason wins. */
static void fail(struct trial *t, const char *status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct trial *t, const char *status, const char *fmt, ...)
{
	va_list ap;

	if (t->status)
		return;
	t->status = status;
	va_start(ap, fmt);
	vsnprintf(t->cause, sizeof(t->cause), fmt, ap);
	va_end(ap);
}

static void note(struct trial *t, const char *text)
{
	json_t *have;
	size_t i;

	json_array_foreach(t->notes, i, have) {
		if (!strcmp(json_string_value(have), text))
			return;
	}

	json_array_append_new(t->notes, json_string(text));
}

static void reply(struct trial *t, json_t *o)
{
	char *text = json_dumps(o, JSON_COMPACT);
	size_t n = text ? strlen(text) : 0, done = 0;

	json_decref(o);
	if (text)
		text[n++] = '\n';
	while (done < n) {
		ssize_t k = send(t->channel, text + done, n - done, MSG_NOSIGNAL);
		struct pollfd p = {t->channel, POLLOUT, 0};
		if (k > 0)
			done += (size_t)k;
		else if (!(k < 0 && (errno == EAGAIN || errno == EINTR)) || poll(&p, 1, 5000) <= 0)
			break; /* the end of the channel is noticed by the reader */
	}
	free(text);
}

/* ---- counters ------------------------------------------------------------------- */

static void query_monitor(struct trial *t, json_t *out)
{
	struct err err = {0};

	for (size_t i = 0; t->has_qmp && i < VMM_QUERIES; i++) {
		const struct vmm_query *q = &t->command.vmm->query[i];
		if (!q->command || (q->kvm_only && !t->command.kvm))
			continue;
		json_t *value = qmp_client_command(&t->qmp, q->command, 20000, &err);
		if (value)
			q->counters(value, out);
		else
			note(t, err.msg);
		json_decref(value);
	}
}

enum when { WHEN_BEGIN, WHEN_END };

/* What our questions cost the monitor is not the work's: they come before the other counters at a phase's begin, and
 * after them at its end. */
static json_t *counters(struct trial *t, enum when when)
{
	json_t *o = json_object();

	if (when == WHEN_BEGIN)
		query_monitor(t, o);
	if (t->kcount)
		kcount_read(t->kcount, o);
	sample_take(o, t->c->host ? 0 : t->pid, &t->children, t->f->work);
	if (when == WHEN_END)
		query_monitor(t, o);
	return o;
}

static void drop_caches(struct trial *t)
{
	const char *policy = cell_setting(t->c, "host.caches", "drop");

	if (strcmp(policy, "drop"))
		return;
	sync();
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "3", 1) != 1) {
		note(t, "the host's caches could not be dropped (it needs root): the disk image alone was asked to "
			"leave them");
		int image = t->disk.path ? open(t->disk.path, O_RDONLY | O_CLOEXEC) : -1;
		if (image >= 0) {
			posix_fadvise(image, 0, 0, POSIX_FADV_DONTNEED);
			close(image);
		}
	}
	if (fd >= 0)
		close(fd);
}

/* ---- messages of the agent --------------------------------------------------------- */

static void send_job(struct trial *t)
{
	const char *names[] = {"common", t->e->workload->name};
	char *script = strdup("");
	json_t *env = json_object(), *value;
	const char *key;

	for (size_t i = 0; i < ARRAY_SIZE(names) && script; i++) {
		char *path = paths_text("%s/%s.sh", t->f->tools, names[i]);
		char *text = path ? paths_read(path, NULL) : NULL;
		char *more = text ? paths_text("%s%s\n", script, text) : NULL;
		free(path);
		free(text);
		free(script);
		script = more;
	}
	bool host = t->c->host, root = t->e->workload->flags & WORKLOAD_ROOT;
	json_object_set_new(env, "LAB_SIDE", json_string(host ? "host" : "guest"));
	json_object_set_new(env, "LAB_DIR", json_string(host && !root ? t->f->tools : "/lab"));
	json_object_set_new(env, "LAB_ROOT", json_string(root ? "1" : ""));
	json_object_set_new(env, "LAB_BOOTED", json_string(t->system.firmware ? "1" : ""));
	json_object_set_new(env, "LAB_WANT_DISK", json_string(t->disk.path ? "1" : ""));
	if (host) {
		char *scratch = paths_text("%s/scratch", t->f->work);
		json_object_set_new(env, "LAB_SCRATCH", json_string(scratch ? scratch : ""));
		free(scratch);
		json_object_set_new(env, "LAB_DISK", json_string(t->disk.path ? t->disk.path : ""));
	}
	json_object_foreach(t->c->settings, key, value) {
		static const char *const prefix[][2] = {{"work.", "P_"}, {"guest.", "G_"}};
		for (size_t i = 0; i < ARRAY_SIZE(prefix); i++) {
			size_t n = strlen(prefix[i][0]);
			char *name = strncmp(key, prefix[i][0], n) ? NULL : paths_text("%s%s", prefix[i][1], key + n);
			if (name && strcmp(json_string_value(value), "default"))
				json_object_set(env, name, value);
			free(name);
		}
	}
	reply(t, json_pack("{s:s,s:o,s:s}", "script", script ? script : "exit 125", "env", env, "save",
			   host ? "" : "/tmp/job"));
	free(script);
}

static void on_hello(struct trial *t, json_t *o)
{
	double boot = now_s() - t->started, up = json_number_value(json_object_get(o, "uptime"));
	struct err err = {0};
	char *path = paths_text("%s/qmp", t->f->sockets);

	json_object_set(t->result, "inside", o);
	const char *image = t->system.root ? t->system.root : t->system.overlay,
		   *slash = image ? strrchr(image, '/') : NULL;
	if (image)
		json_object_set_new(o, "image", json_string(slash ? slash + 1 : image));
	json_object_set_new(t->result, "boot_s", json_real(boot));
	if (!t->c->host && path) {
		t->has_qmp = qmp_client_open(&t->qmp, path, &err) == 0;
		if (!t->has_qmp)
			note(t, err.msg);
	}
	free(path);
	if (t->e->workload->flags & WORKLOAD_BOOT) {
		static const char *const names[] = {"boot", "boot:kernel"};
		double values[] = {boot, up};
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			json_object_set_new(
			    t->metrics, names[i],
			    json_pack("{s:f,s:s,s:s}", "value", values[i], "unit", "s", "better", "lower"));
		/* All that was counted since the start is the phase. */
		json_t *zero = json_object(), *all = counters(t, WHEN_END), *outside = sample_delta(zero, all);
		const char *key;
		json_t *value;
		void *next;
		json_object_foreach_safe(outside, next, key, value) {
			if (!strncmp(key, "host.", 5) || !strncmp(key, "disk.", 5))
				json_object_del(outside, key);
		}

		json_object_set_new(t->phases, "boot",
				    json_pack("{s:f,s:f,s:{},s:o}", "seconds", boot, "host_seconds", boot, "inside",
					      "outside", outside));
		json_decref(zero);
		json_decref(all);
	}
	send_job(t);
}

static void on_begin(struct trial *t)
{
	drop_caches(t);
	json_decref(t->before);
	t->before = counters(t, WHEN_BEGIN);
	t->phase_began = now_s();
	reply(t, json_pack("{s:i}", "go", 1));
}

/* Somebody else's work on this machine is the commonest reason of a wrong result. */
static void note_others(struct trial *t, double seconds, double own, json_t *outside)
{
	static const char *const busy[] = {"host.user",	   "host.nice",	 "host.system", "host.irq",
					   "host.softirq", "host.steal", "host.guest"};
	double all = 0;

	for (size_t i = 0; i < ARRAY_SIZE(busy); i++)
		all += json_number_value(json_object_get(outside, busy[i]));
	if (seconds >= 0.2 && all - own > seconds * 0.3 + 0.1)
		note(t, NOTE_NOT_QUIET);
}

/* CPU that the work cost on this machine: the monitor's process, or on the host the work's own. */
static void add_cpu_metric(struct trial *t, const char *name, double seconds, json_t *inside, json_t *outside)
{
	double cpu = t->c->host ? json_number_value(json_object_get(inside, "work_user_s")) +
				      json_number_value(json_object_get(inside, "work_system_s"))
				: json_number_value(json_object_get(outside, "vmm.cpu"));
	char *full = paths_text("%s:cpu", name);

	note_others(t, seconds, cpu, outside);
	/* A clock tick is the least that can be seen. */
	if (full && seconds > 0)
		json_object_set_new(t->metrics, full,
				    json_pack("{s:f,s:s,s:s}", "value", MAX(cpu, 0.01) / seconds * 100, "unit",
					      "% of a CPU", "better", "lower"));
	free(full);
}

static void on_phase(struct trial *t, json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "phase"));
	double host_seconds = now_s() - t->phase_began, seconds = json_number_value(json_object_get(o, "seconds"));
	json_t *after = counters(t, WHEN_END), *outside = sample_delta(t->before, after),
	       *inside = json_object_get(o, "inside");

	if (name && t->before) {
		/* A guest clock that lies is a defect, not a result. */
		if (fabs(host_seconds - seconds) > 0.1 + 0.03 * host_seconds) {
			char text[200];
			snprintf(text, sizeof(text), "the guest's clock says %.2f s where the host's says %.2f s",
				 seconds, host_seconds);
			note(t, text);
		}
		add_cpu_metric(t, name, seconds, inside, outside);
		json_object_set_new(t->phases, name,
				    json_pack("{s:f,s:f,s:O,s:O}", "seconds", seconds, "host_seconds", host_seconds,
					      "inside", inside ? inside : json_null(), "outside", outside));
	}
	json_decref(outside);
	json_decref(after);
	reply(t, json_pack("{s:i}", "go", 1));
}

/* How many requests a phase was, from a program that says it when all is over. */
static void on_operations(struct trial *t, json_t *o)
{
	const char *of = json_string_value(json_object_get(o, "of"));
	json_t *n = json_object_get(o, "operations"),
	       *inside = json_object_get(of ? json_object_get(t->phases, of) : NULL, "inside");

	if (json_number_value(n) > 0 && json_is_object(inside))
		json_object_set(inside, "operations", n);
}

static void on_metric(struct trial *t, json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "metric"));
	json_t *unit = json_object_get(o, "unit"), *better = json_object_get(o, "better");
	double value = json_number_value(json_object_get(o, "value"));

	if (!name)
		return;
	if (json_object_get(o, "from"))
		value = json_number_value(json_object_get(json_object_get(t->phases, name), "seconds"));
	if (!isfinite(value) || value <= 0) {
		fail(t, "failed", "the workload reported %g for '%.100s', which is no measurement", value, name);
		return;
	}
	json_t *m =
	    json_pack("{s:f,s:s,s:s}", "value", value, "unit", json_is_string(unit) ? json_string_value(unit) : "s",
		      "better", json_is_string(better) ? json_string_value(better) : "lower");
	if (json_is_string(json_object_get(o, "title")))
		json_object_set(m, "title", json_object_get(o, "title"));
	json_object_set_new(t->metrics, name, m);
}

static void on_done(struct trial *t, json_t *o)
{
	int status = (int)json_integer_value(json_object_get(o, "done"));
	const char *tail = json_string_value(json_object_get(o, "tail"));
	char text[601] = "";

	snprintf(text, sizeof(text), "%s", tail ? tail : "");
	for (size_t n = strlen(text); n && (unsigned char)text[n - 1] <= ' ';)
		text[--n] = 0;
	char *line = strrchr(text, '\n');
	if (status)
		fail(t, "failed", "the workload ended with status %d: %s", status,
		     line    ? line + 1
		     : *text ? text
			     : "no message");
	t->done = true;
	reply(t, json_pack("{s:i}", "bye", 1));
}

static void on_line(struct trial *t, const char *line, size_t n)
{
	json_t *o = json_loadb(line, n, 0, NULL);

	t->heard = now_s();
	if (!json_is_object(o))
		note(t, "a line that is not JSON came from the guest and was passed over");
	else if (json_object_get(o, "hello"))
		on_hello(t, o);
	else if (json_object_get(o, "mark"))
		on_begin(t);
	else if (json_object_get(o, "operations"))
		on_operations(t, o);
	else if (json_object_get(o, "phase"))
		on_phase(t, o);
	else if (json_object_get(o, "metric"))
		on_metric(t, o);
	else if (json_object_get(o, "done"))
		on_done(t, o);
	json_decref(o);
}

/* False at the channel's end. */
static bool on_input(struct trial *t)
{
	char buf[8192], *newline;
	ssize_t n = read(t->channel, buf, sizeof(buf));

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	textbuf_add(&t->in, buf, (size_t)n);
	while (t->in.len && (newline = memchr(t->in.text, '\n', t->in.len))) {
		size_t length = (size_t)(newline - t->in.text);
		on_line(t, t->in.text, length);
		textbuf_drop(&t->in, length + 1);
	}
	if (t->in.len > LINE_LIMIT)
		fail(t, "failed", "the guest sent a line of more than 1 MiB");
	return true;
}

/* ---- the child ------------------------------------------------------------------------- */

static void console_line(struct trial *t, char out[301])
{
	char *path = paths_text("%s/console", t->f->sockets);
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char *line = fd >= 0 ? spawn_last_line(fd) : NULL;
	char *text = path ? paths_read(path, NULL) : NULL;
	/* A panic is followed by much else: its own line says more than the last one. */
	char *panic = text ? strstr(text, "Kernel panic") : NULL;

	if (panic)
		panic[strcspn(panic, "\r\n")] = 0;
	snprintf(out, 301, "%s", panic ? panic : line ? line : "");
	if (fd >= 0)
		close(fd);
	free(line);
	free(text);
	free(path);
}

static int start_guest(struct trial *t, struct err *err)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/lab", t->f->sockets);
	unlink(a.sun_path);
	/* Of the trial before this one. */
	static const char *const old[] = {"console", "qmp"};
	for (size_t i = 0; i < ARRAY_SIZE(old); i++) {
		char *path = paths_text("%s/%s", t->f->sockets, old[i]);
		if (path)
			unlink(path);
		free(path);
	}
	t->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (t->listener < 0 || bind(t->listener, (struct sockaddr *)&a, sizeof(a)) || listen(t->listener, 1))
		return err_set_errno(err, -errno, "the lab's socket '%s'", a.sun_path);
	int ret = command_make(&t->command, t->c, t->f, &t->system, &t->disk, err);
	if (ret)
		return ret;
	t->started = now_s();
	t->pid = spawn_start(t->command.argv, fileno(t->log), -1, 0, err);
	if (t->pid < 0)
		return (int)t->pid;
	struct err why = {0};
	if (!strcmp(cell_setting(t->c, "host.calls", "count"), "count") && !(t->kcount = kcount_start(t->pid, &why)))
		note(t, why.msg);
	return 0;
}

static int start_host(struct trial *t, struct err *err)
{
	int pair[2];
	uint64_t memory = 512 * MIB;
	char *scratch = paths_text("%s/scratch", t->f->work);
	bool root = t->e->workload->flags & WORKLOAD_ROOT;
	char *argv[16];
	int n = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return err_set_errno(err, -errno, "a socket for the host's agent");
	text_parse_size(cell_setting(t->c, "m", "512M"), MIB, &memory);
	char *bytes = paths_text("%llu", (unsigned long long)memory), *fd = paths_text("%d", pair[1]);
	char *script = paths_text("%s/host-root", t->f->tools), *group = paths_text("kelvin-lab.%d", (int)getpid());
	char *clean[] = {"rm", "-rf", "--", scratch, NULL}, *make[] = {"mkdir", "-p", scratch, NULL};
	int ret = scratch && bytes && fd && script && group ? spawn_wait(clean, err) : -ENOMEM;
	if (!ret)
		ret = spawn_wait(make, err);
	if (root && geteuid() == 0) {
		argv[n++] = "unshare";
		argv[n++] = "-m";
	}
	argv[n++] = "bash";
	argv[n++] = script;
	argv[n++] = t->f->tools;
	/* Only a raw image can be mounted here; the agent's own programs stand in for others, and host-root says so. */
	argv[n++] = !root ? "" : t->system.root && !strcmp(t->system.format, "raw") ? t->system.root : "/dev/null";
	argv[n++] = t->f->work;
	argv[n++] = bytes;
	argv[n++] = group;
	argv[n++] = fd;
	argv[n] = NULL;
	if (t->e->workload->flags & WORKLOAD_FILES)
		note(t, "the host's row works on files in the result folder's file system: formats and cache modes of "
			"disk images have no counterpart there");
	t->started = now_s();
	if (!ret)
		t->pid = spawn_start(argv, fileno(t->log), pair[1], atoi(cell_setting(t->c, "smp", "1")), err);
	close(pair[1]);
	t->channel = pair[0];
	free(bytes);
	free(fd);
	free(script);
	free(group);
	free(scratch);
	return ret ? ret : t->pid < 0 ? (int)t->pid : 0;
}

/* The child is gone before the work was done. */
static void explain_end(struct trial *t, int status)
{
	char *word = spawn_last_line(fileno(t->log)), console[301];
	bool reached = json_object_get(t->result, "inside");

	console_line(t, console);
	if (WIFSIGNALED(status))
		fail(t, "failed", "the monitor died of signal %d%s%s", WTERMSIG(status), word && *word ? ": " : "",
		     word ? word : "");
	else if (!reached && status && !*console)
		fail(t, "refused", "%s", word && *word ? word : "the monitor ended without a word");
	else
		fail(t, "failed", "the guest ended before its work was done; its console ends: %s",
		     *console ? console
		     : word   ? word
			      : "");
	free(word);
}

static void collect_notes(struct trial *t)
{
	char *text = NULL;
	size_t room = 0;

	rewind(t->log);
	while (getline(&text, &room, t->log) > 0) {
		text[strcspn(text, "\n")] = 0;
		if (!strncmp(text, "note: ", 6))
			note(t, text + 6);
	}
	free(text);
}

static void converse(struct trial *t)
{
	double done_at = 0;
	int status;

	t->heard = now_s();
	while (!bench_stop && !(t->status && !t->done)) {
		struct pollfd p = {t->channel >= 0 ? t->channel : t->listener, POLLIN, 0};
		int got = poll(&p, 1, 100);
		if (got > 0 && t->channel < 0) {
			t->channel = accept4(t->listener, NULL, NULL, SOCK_CLOEXEC);
		} else if (got > 0 && !on_input(t)) {
			/* The other end closed: the child is ending. */
			usleep(10000);
		}
		if (!t->c->host && now_s() - t->looked > LOOK_S) {
			sample_children_look(&t->children, t->pid);
			t->looked = now_s();
		}
		if (spawn_ended(t->pid, &status)) {
			while (t->channel >= 0 && poll(&(struct pollfd){t->channel, POLLIN, 0}, 1, 0) > 0 &&
			       on_input(t))
				;
			t->pid = 0;
			if (!t->done)
				explain_end(t, status);
			return;
		}
		if (t->done && !done_at)
			done_at = now_s();
		if (t->done && now_s() - done_at > END_WAIT_S) {
			note(t, "the guest did not power off within a minute after its work and was stopped");
			return;
		}
		if (now_s() - t->heard > t->e->timeout_s) {
			char console[301];
			console_line(t, console);
			fail(t, "failed", "no sign of life for %.0f s (hung); its console ends: %s", t->e->timeout_s,
			     console);
		}
	}
}

/* The control group of the host's agent, wherever guest/lab/host-root made it. */
static void remove_group(void)
{
	static const char *const places[] = {"", "/unified", "/memory"};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char *path = paths_text("/sys/fs/cgroup%s/kelvin-lab.%d", places[i], (int)getpid());
		/* The last process may still be leaving. */
		for (int try = 0; path && rmdir(path) && errno == EBUSY && try < 50; try++)
			usleep(20000);
		free(path);
	}
}

static void finish(struct trial *t)
{
	if (t->pid > 0)
		spawn_kill(t->pid);
	if (t->c->host)
		remove_group();
	if (t->log)
		collect_notes(t);
	tune_restore(t->f);
	kcount_stop(t->kcount);
	qmp_client_close(&t->qmp);
	if (t->channel >= 0)
		close(t->channel);
	if (t->listener >= 0)
		close(t->listener);
	if (t->log)
		fclose(t->log);
	disk_remove(&t->disk);
	system_remove(&t->system);
	json_decref(t->before);
	textbuf_free(&t->in);
}

json_t *trial_run(const struct experiment *e, const struct cell *c, struct bench_files *f)
{
	struct trial t = {.e = e, .c = c, .f = f, .listener = -1, .channel = -1, .qmp.fd = -1, .log = tmpfile()};
	struct err err = {0};
	json_t *result = t.result = json_object();

	t.metrics = json_object();
	t.phases = json_object();
	t.notes = json_array();
	t.started = now_s();
	int ret =
	    t.log ? disk_make(&t.disk, e, c, f, &err) : err_set_errno(&err, -errno, "no room for a temporary file");
	/* A full disk may have room again in the next block: not refused for good. */
	if (ret)
		fail(&t, "failed", "%s", err.msg);
	if (!ret)
		ret = system_make(&t.system, e, c, f, &err);
	if (!ret)
		ret = tune_apply(c, f, &err);
	if (!ret)
		ret = c->host ? start_host(&t, &err) : start_guest(&t, &err);
	if (ret)
		fail(&t, "refused", "%s", err.msg[0] ? err.msg : strerror(-ret));
	else
		converse(&t);
	if (!t.status && !json_object_size(t.metrics))
		fail(&t, "failed", "the workload reported nothing");
	finish(&t);
	json_object_set_new(result, "status", json_string(t.status ? t.status : "ok"));
	if (t.status)
		json_object_set_new(result, "cause", json_string(t.cause));
	json_object_set_new(result, "wall_s", json_real(now_s() - t.started));
	json_object_set_new(result, "metrics", t.metrics);
	json_object_set_new(result, "phases", t.phases);
	json_object_set_new(result, "notes", t.notes);
	if (t.command.n) {
		struct textbuf line = {0};
		for (size_t i = 0; i < t.command.n; i++)
			textbuf_printf(&line, "%s%s", i ? " " : "", t.command.argv[i]);
		json_object_set_new(result, "command", json_string(line.text ? line.text : ""));
		textbuf_free(&line);
	}
	command_free(&t.command);
	if (bench_stop && !t.done) {
		json_decref(result);
		return NULL;
	}
	return result;
}
