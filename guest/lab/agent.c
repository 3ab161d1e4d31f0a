/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lab's agent: one static binary that runs in the guest and, for the host baseline, on the host. It speaks JSON
 * lines with the lab over a virtio serial port (guest) or an inherited socket (host):
 *
 *   agent -> lab   {"hello": ...facts}   {"mark": "begin", "phase": P}   {"phase": P, "seconds": S, ...}
 *                  {"operations": N, "of": P}
 *                  {"metric": N, "value": V, "unit": U, "better": "lower"}   {"done": status, "tail": text}
 *   lab -> agent   {"script": text, "env": {...}, "save": "where the script may read itself, or empty"}   {"go": 1}
 * after each mark
 *
 * Called by a script (LAB_FD names the channel): agent phase | metric | fio | fsync | bench; see the table at the end.
 * A phase begins when the lab has taken its own counters, so both sides' counters cover the same work.
 */
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT_NAME "org.kelvin.lab"
#define LINE_MAX_ 65536

static int channel = -1;

static void fail(const char *what)
{
	fprintf(stderr, "lab agent: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the channel -------------------------------------------------------- */

static void send_line(json_t *o)
{
	char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12));
	size_t n = text ? strlen(text) : 0, done = 0;

	json_decref(o);
	if (!text)
		return;
	text[n++] = '\n'; /* the terminating NUL's place */
	while (done < n) {
		ssize_t k = write(channel, text + done, n - done);
		if (k > 0) {
			done += (size_t)k;
			continue;
		}
		if (k < 0 && errno != EINTR && errno != EAGAIN)
			fail("the channel to the lab");
		usleep(2000);
	}
	free(text);
}

/* One line from the lab, parsed; a virtio port without a peer reads as empty, so wait. */
static json_t *read_line(void)
{
	static char buf[LINE_MAX_];
	size_t n = 0;

	while (n < sizeof(buf) - 1) {
		ssize_t k = read(channel, buf + n, 1);
		if (k == 1) {
			if (buf[n++] == '\n')
				break;
		} else if (k < 0 && errno != EINTR && errno != EAGAIN) {
			fail("the channel to the lab");
		} else {
			usleep(2000);
		}
	}
	buf[n] = 0;
	return json_loads(buf, 0, NULL);
}

static int open_port(void)
{
	for (int try = 0; try < 1000; try++) {
		DIR *d = opendir("/sys/class/virtio-ports");
		struct dirent *e;

		while (d && (e = readdir(d))) {
			char path[400], name[64] = "";
			snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", e->d_name);
			FILE *f = fopen(path, "r");
			if (!f)
				continue;
			if (fgets(name, sizeof(name), f))
				name[strcspn(name, "\n")] = 0;
			fclose(f);
			if (strcmp(name, PORT_NAME))
				continue;
			snprintf(path, sizeof(path), "/dev/%s", e->d_name);
			int fd = open(path, O_RDWR);
			if (fd >= 0) {
				closedir(d);
				return fd;
			}
		}
		if (d)
			closedir(d);
		usleep(5000);
	}
	errno = ENODEV;
	return -1;
}

/* ---- counters of this side's kernel --------------------------------------- */

static const char *const cpu_names[] = {"user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest"};
#define NCPU (sizeof(cpu_names) / sizeof(cpu_names[0]))

struct snapshot {
	double at;
	unsigned long long cpu[NCPU], ctxt, interrupts;
	unsigned long long reads, sectors_read, writes, sectors_written, ticks, queue_ticks;
	struct rusage children;
};

static void snapshot_disk(struct snapshot *s, const char *disk)
{
	char line[400], name[64];
	FILE *f = disk && *disk ? fopen("/proc/diskstats", "r") : NULL;
	unsigned long long v[11];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*d %*d %63s %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", name, v, v + 1,
			   v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8, v + 9, v + 10) == 12 &&
		    !strcmp(name, disk)) {
			s->reads = v[0];
			s->sectors_read = v[2];
			s->writes = v[4];
			s->sectors_written = v[6];
			s->ticks = v[9];
			s->queue_ticks = v[10];
		}
	if (f)
		fclose(f);
}

static struct snapshot snapshot_take(void)
{
	struct snapshot s = {.at = now()};
	const char *disk = getenv("LAB_DISK");
	const char *slash = disk ? strrchr(disk, '/') : NULL;
	char line[4096];
	FILE *f = fopen("/proc/stat", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "cpu ", 4))
			sscanf(line + 4, "%llu %llu %llu %llu %llu %llu %llu %llu %llu", s.cpu, s.cpu + 1, s.cpu + 2,
			       s.cpu + 3, s.cpu + 4, s.cpu + 5, s.cpu + 6, s.cpu + 7, s.cpu + 8);
		sscanf(line, "ctxt %llu", &s.ctxt);
		sscanf(line, "intr %llu", &s.interrupts);
	}
	if (f)
		fclose(f);
	snapshot_disk(&s, slash ? slash + 1 : disk);
	getrusage(RUSAGE_CHILDREN, &s.children);
	return s;
}

static double seconds_of(struct timeval a, struct timeval b)
{
	return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_usec - a.tv_usec) * 1e-6;
}

static json_t *snapshot_delta(const struct snapshot *a, const struct snapshot *b)
{
	double hz = (double)sysconf(_SC_CLK_TCK);
	json_t *o = json_object();

	for (size_t i = 0; i < NCPU; i++)
		json_object_set_new(o, cpu_names[i], json_real((double)(b->cpu[i] - a->cpu[i]) / hz));
	json_object_set_new(o, "switches", json_real((double)(b->ctxt - a->ctxt)));
	json_object_set_new(o, "interrupts", json_real((double)(b->interrupts - a->interrupts)));
	json_object_set_new(o, "reads", json_real((double)(b->reads - a->reads)));
	json_object_set_new(o, "writes", json_real((double)(b->writes - a->writes)));
	json_object_set_new(o, "read_bytes", json_real(512.0 * (double)(b->sectors_read - a->sectors_read)));
	json_object_set_new(o, "written_bytes", json_real(512.0 * (double)(b->sectors_written - a->sectors_written)));
	json_object_set_new(o, "disk_busy_s", json_real((double)(b->ticks - a->ticks) / 1000));
	json_object_set_new(o, "disk_wait_s", json_real((double)(b->queue_ticks - a->queue_ticks) / 1000));
	json_object_set_new(o, "work_user_s", json_real(seconds_of(a->children.ru_utime, b->children.ru_utime)));
	json_object_set_new(o, "work_system_s", json_real(seconds_of(a->children.ru_stime, b->children.ru_stime)));
	json_object_set_new(o, "work_max_rss_kib", json_real((double)b->children.ru_maxrss));
	return o;
}

/* ---- phases ------------------------------------------------------------------- */

static struct snapshot phase_begin(const char *name)
{
	send_line(json_pack("{s:s,s:s}", "mark", "begin", "phase", name));
	json_decref(read_line());
	return snapshot_take();
}

/* The lab takes its counters when it sees this. operations: how many requests the work was, 0 if it did not count. */
static void phase_send(const char *name, const struct snapshot *a, const struct snapshot *b, double operations)
{
	json_t *inside = snapshot_delta(a, b);

	if (operations > 0)
		json_object_set_new(inside, "operations", json_real(operations));
	send_line(json_pack("{s:s,s:f,s:o}", "phase", name, "seconds", b->at - a->at, "inside", inside));
	json_decref(read_line());
}

static void phase_end(const char *name, const struct snapshot *a)
{
	struct snapshot b = snapshot_take();

	phase_send(name, a, &b, 0);
}

/* With what people call it, where the workload's script says (LAB_TITLE). */
static void metric_send(json_t *o)
{
	const char *title = getenv("LAB_TITLE");

	if (title && *title)
		json_object_set_new(o, "title", json_string(title));
	send_line(o);
}

static void metric(const char *name, double value, const char *unit, const char *better)
{
	metric_send(json_pack("{s:s,s:f,s:s,s:s}", "metric", name, "value", value, "unit", unit, "better", better));
}

/* On the host nothing may go on working when the lab is killed: each ends with what started it. */
static void end_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Runs argv; its output goes to fd `out` where that is >= 0. The exit status. */
static int run(char **argv, int out)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		end_with_parent();
		if (out >= 0)
			dup2(out, 1);
		execvp(argv[0], argv);
		fprintf(stderr, "lab agent: cannot run '%s': %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int cmd_phase(int argc, char **argv)
{
	struct snapshot a = phase_begin(argv[0]);
	int status = run(argv + 1, -1);

	phase_end(argv[0], &a);
	if (!status)
		metric_send(json_pack("{s:s,s:s}", "metric", argv[0], "from", "seconds"));
	return status;
}

static int cmd_metric(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	metric(argv[0], strtod(argv[1], NULL), argv[2], argv[3]);
	return 0;
}

static char *output_of(char **argv, int *status)
{
	char path[] = "/tmp/lab-out.XXXXXX";
	int fd = mkstemp(path);
	char *text = calloc(1, 1 << 20);

	if (fd < 0 || !text)
		fail("temporary file");
	unlink(path);
	*status = run(argv, fd);
	if (pread(fd, text, (1 << 20) - 1, 0) < 0)
		*status = 1;
	close(fd);
	return text;
}

static double number_at(json_t *o, const char *a, const char *b)
{
	json_t *v = json_object_get(o, a);

	return json_number_value(b ? json_object_get(v, b) : v);
}

/* ---- fio -------------------------------------------------------------------------- */

/*
 * A phase is what fio does between its own begin and end: fio calls "agent fio-begin" and "agent fio-end" there
 * (exec_prerun, exec_postrun), so that its start, which costs an emulated CPU more than many requests, is not measured.
 */
static void phase_file(char path[300], const char *name)
{
	snprintf(path, 300, "/tmp/lab-phase-%.200s", name);
}

/* The nearest ancestor that is fio, or 0. */
static pid_t find_fio(void)
{
	pid_t pid = getpid();

	for (int i = 0; i < 8 && pid > 1; i++) {
		char path[64], line[512] = "", *end;
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		FILE *f = fopen(path, "r");
		if (!f || !fgets(line, sizeof(line), f))
			line[0] = 0;
		if (f)
			fclose(f);
		if (strstr(line, "(fio)"))
			return pid;
		end = strrchr(line, ')');
		if (!end || sscanf(end + 1, " %*c %d", &pid) != 1)
			break;
	}
	return 0;
}

/* CPU time of a process in place of our children's. */
static void snapshot_process(struct snapshot *s, pid_t pid)
{
	char path[64], line[1024] = "", *end;
	unsigned long user, system;
	long hz = sysconf(_SC_CLK_TCK);

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "r");
	if (f && fgets(line, sizeof(line), f) && (end = strrchr(line, ')')) &&
	    sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) == 2) {
		s->children.ru_utime = (struct timeval){(time_t)(user / (unsigned long)hz),
							(suseconds_t)(user % (unsigned long)hz) * 1000000 / hz};
		s->children.ru_stime = (struct timeval){(time_t)(system / (unsigned long)hz),
							(suseconds_t)(system % (unsigned long)hz) * 1000000 / hz};
	}
	if (f)
		fclose(f);
}

static int cmd_fio_begin(int argc, char **argv)
{
	struct snapshot a = phase_begin(argv[0]);
	char path[300];

	snapshot_process(&a, find_fio());
	phase_file(path, argv[0]);
	FILE *f = fopen(path, "w");
	int failed = !f || fwrite(&a, sizeof(a), 1, f) != 1;
	if (f && fclose(f))
		failed = 1;
	return failed;
}

static int cmd_fio_end(int argc, char **argv)
{
	struct snapshot a, b = snapshot_take();
	char path[300];

	snapshot_process(&b, find_fio());
	phase_file(path, argv[0]);
	FILE *f = fopen(path, "r");
	int failed = !f || fread(&a, sizeof(a), 1, f) != 1;
	if (f)
		fclose(f);
	unlink(path);
	if (!failed)
		phase_send(argv[0], &a, &b, 0);
	return failed;
}

static void hook(char *out, size_t room, const char *option, const char *verb, const char *name)
{
	const char *dir = getenv("LAB_DIR");

	snprintf(out, room, "--%s=%s/lab-agent %s %s", option, dir ? dir : "/lab", verb, name);
}

/* Where fio writes its hooks' output. */
static void remove_folder(const char *folder, const char *name)
{
	static const char *const ends[] = {"prerun", "postrun"};
	char path[400];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%.200s.%s.txt", folder, name, ends[i]);
		unlink(path);
	}
	rmdir(folder);
}

/* agent fio NAME ARGUMENT...: one fio job; its operations per second (or MB/s) and latency as metrics. */
static int cmd_fio(int argc, char **argv)
{
	char begin[400], end[400], folder[] = "/tmp/lab-fio.XXXXXX", name[100];
	char *fio[64] = {"fio", "--output-format=json", "--name", argv[0], begin, end};
	int n = 6, status;

	for (int i = 1; i < argc && n < 63; i++)
		fio[n++] = argv[i];
	hook(begin, sizeof(begin), "exec_prerun", "fio-begin", argv[0]);
	hook(end, sizeof(end), "exec_postrun", "fio-end", argv[0]);
	if (!mkdtemp(folder) || chdir(folder))
		fail("a temporary folder");
	char *text = output_of(fio, &status);
	remove_folder(folder, argv[0]);
	/* Warnings may stand in front of the document. */
	char *start = strchr(text, '{');
	json_t *doc = !status && start ? json_loads(start, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
	json_t *job = json_array_get(json_object_get(doc, "jobs"), 0);

	if (!job) {
		fprintf(stderr, "fio ended with status %d: %.300s\n", status, text);
		free(text);
		return 1;
	}
	bool big = strstr(argv[0], "seq") != NULL;
	double ios = 0, bytes = 0, clat = 0, p99 = 0, total = 0;
	static const char *const ways[] = {"read", "write"};
	for (int w = 0; w < 2; w++) {
		json_t *o = json_object_get(job, ways[w]);
		double k = number_at(o, "total_ios", NULL);
		if (k <= 0)
			continue;
		total += k;
		ios += number_at(o, "iops", NULL);
		bytes += number_at(o, "bw_bytes", NULL);
		clat = number_at(json_object_get(o, "clat_ns"), "mean", NULL) / 1000;
		p99 = number_at(json_object_get(json_object_get(o, "clat_ns"), "percentile"), "99.000000", NULL) / 1000;
	}
	send_line(json_pack("{s:f,s:s}", "operations", total, "of", argv[0]));
	if (big)
		metric(argv[0], bytes / 1e6, "MB/s", "higher");
	else
		metric(argv[0], ios, "requests/s", "higher");
	snprintf(name, sizeof(name), "%s:latency", argv[0]);
	metric(name, clat, "us", "lower");
	snprintf(name, sizeof(name), "%s:latency_p99", argv[0]);
	metric(name, p99, "us", "lower");
	json_decref(doc);
	free(text);
	return 0;
}

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* agent fsync NAME FILE COUNT: 4 KiB appended and fdatasync'ed, COUNT times. */
static int cmd_fsync(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[2]) : 0, fd = argc > 2 ? open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
	double *t = count > 0 ? calloc((size_t)count, sizeof(*t)) : NULL;
	static char block[4096];
	char name[100];

	if (fd < 0 || !t)
		fail(argc > 1 ? argv[1] : "fsync");
	struct snapshot a = phase_begin(argv[0]);
	for (int i = 0; i < count; i++) {
		double start = now();
		memset(block, i, sizeof(block));
		if (write(fd, block, sizeof(block)) != sizeof(block) || fdatasync(fd))
			fail(argv[1]);
		t[i] = now() - start;
	}
	struct snapshot b = snapshot_take();
	phase_send(argv[0], &a, &b, count);
	qsort(t, (size_t)count, sizeof(*t), compare_double);
	metric(argv[0], t[count / 2] * 1e6, "us", "lower");
	snprintf(name, sizeof(name), "%s:latency_p99", argv[0]);
	metric(name, t[count * 99 / 100] * 1e6, "us", "lower");
	close(fd);
	free(t);
	return 0;
}

/* agent bench NAME: a program of guest/bench, which times only its own work. */
static int cmd_bench(int argc, char **argv)
{
	const char *dir = getenv("LAB_DIR");
	char path[300], got[64];
	char *args[] = {path, argv[0], NULL};
	double seconds;
	int status;

	snprintf(path, sizeof(path), "%s/lab-bench", dir ? dir : "/lab");
	struct snapshot a = phase_begin(argv[0]);
	char *text = output_of(args, &status);
	phase_end(argv[0], &a);
	if (!status && sscanf(text, "%63s %lf", got, &seconds) == 2)
		metric(argv[0], seconds, "s", "lower");
	else
		status = status ? status : 1;
	free(text);
	return status;
}

/* ---- serving ---------------------------------------------------------------------- */

/* The memory limit of this process's control group (version 2, or 1), bytes; 0: none is known. */
static double memory_limit(void)
{
	static const char *const places[] = {"/sys/fs/cgroup%s/memory.max", "/sys/fs/cgroup/unified%s/memory.max",
					     "/sys/fs/cgroup/memory%s/memory.limit_in_bytes"};
	char line[512], group[400], path[500];
	double limit = 0, v;
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f && fgets(line, sizeof(line), f)) {
		int v2 = sscanf(line, "0::%399s", group) == 1;
		if (!v2 && sscanf(line, "%*d:memory:%399s", group) != 1)
			continue;
		for (int i = v2 ? 0 : 2; i < (v2 ? 2 : 3); i++) {
			snprintf(path, sizeof(path), places[i], group);
			FILE *g = fopen(path, "r");
			if (g && fscanf(g, "%lf", &v) == 1 && v < 1e15)
				limit = v;
			if (g)
				fclose(g);
		}
	}
	if (f)
		fclose(f);
	return limit;
}

static void send_hello(void)
{
	struct utsname u;
	double up = 0;
	char line[256], model[200] = "";
	long kib = 0;

	uname(&u);
	FILE *f = fopen("/proc/uptime", "r");
	if (f) {
		if (fscanf(f, "%lf", &up) != 1)
			up = 0;
		fclose(f);
	}
	f = fopen("/proc/meminfo", "r");
	if (f) {
		if (fscanf(f, "MemTotal: %ld", &kib) != 1)
			kib = 0;
		fclose(f);
	}
	f = fopen("/proc/cpuinfo", "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "model name : %199[^\n]", model) == 1)
			break;
	if (f)
		fclose(f);
	send_line(json_pack("{s:i,s:f,s:s,s:s,s:I,s:i,s:f}", "hello", 1, "uptime", up, "kernel", u.release, "cpu",
			    model, "mem_kib", (json_int_t)kib, "cpus", (int)sysconf(_SC_NPROCESSORS_ONLN), "mem_limit",
			    memory_limit()));
}

/* The script's own messages: the end of them explains a failure. */
static char *tail_of(int fd)
{
	off_t size = lseek(fd, 0, SEEK_END), from = size > 600 ? size - 600 : 0;
	char *text = calloc(1, 601);

	if (text && pread(fd, text, 600, from) < 0)
		text[0] = 0;
	for (char *p = text; p && *p; p++)
		if ((unsigned char)*p >= 127 || (*p < 32 && *p != '\n'))
			*p = ' ';
	return text;
}

static int cmd_serve(int argc, char **argv)
{
	const char *key;
	json_t *value;
	char number[16];
	FILE *log = tmpfile();

	channel = argc > 0 && strcmp(argv[0], "port") ? atoi(argv[0]) : open_port();
	if (channel < 0)
		fail("no virtio port " PORT_NAME);
	send_hello();
	json_t *job = read_line();
	const char *script = json_string_value(json_object_get(job, "script"));
	const char *save = json_string_value(json_object_get(job, "save"));
	if (!script || !log) {
		send_line(json_pack("{s:i,s:s}", "done", 125, "tail", "no job, or no room for a log"));
		return 1;
	}
	json_object_foreach(json_object_get(job, "env"), key, value)
		setenv(key, json_string_value(value) ? json_string_value(value) : "", 1);
	/* The host baseline without the root image: these files lie elsewhere. */
	if (getenv("KELVIN_LAB_DIR"))
		setenv("LAB_DIR", getenv("KELVIN_LAB_DIR"), 1);
	snprintf(number, sizeof(number), "%d", channel);
	setenv("LAB_FD", number, 1);
	FILE *copy = save && *save ? fopen(save, "w") : NULL;
	if (copy) {
		fputs(script, copy);
		fclose(copy);
	}
	pid_t pid = fork();
	if (pid == 0) {
		end_with_parent();
		dup2(fileno(log), 1);
		dup2(fileno(log), 2);
		execl("/bin/sh", "sh", "-c", script, (char *)NULL);
		_exit(127);
	}
	int status = 128;
	if (pid > 0 && waitpid(pid, &status, 0) == pid)
		status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	send_line(json_pack("{s:i,s:s}", "done", status, "tail", tail_of(fileno(log))));
	json_decref(read_line()); /* the lab has it: the machine may go */
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*fn)(int argc, char **argv);
		int least;
	} table[] = {{"serve", cmd_serve, 0},	      {"phase", cmd_phase, 2},
		     {"metric", cmd_metric, 4},	      {"fio", cmd_fio, 2},
		     {"fsync", cmd_fsync, 3},	      {"bench", cmd_bench, 1},
		     {"fio-begin", cmd_fio_begin, 1}, {"fio-end", cmd_fio_end, 1}};

	channel = getenv("LAB_FD") ? atoi(getenv("LAB_FD")) : -1;
	end_with_parent();
	for (size_t i = 0; argc > 1 && i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(argv[1], table[i].name) && argc - 2 >= table[i].least)
			return table[i].fn(argc - 2, argv + 2);
	fprintf(stderr,
		"usage: lab-agent serve port|FD | phase NAME COMMAND... | metric NAME VALUE UNIT lower|higher |\n"
		"       fio NAME ARGUMENT... | fsync NAME FILE COUNT | bench NAME\n");
	return 2;
}
