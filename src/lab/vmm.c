// SPDX-License-Identifier: GPL-2.0-or-later
/* The table of monitors, and a small QMP client. Main thread. */
#include "lab/vmm.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "base/util.h"
#include "lab/paths.h"
#include "lab/spawn.h"

static void add(json_t *out, const char *name, double v)
{
	json_object_set_new(out, name, json_real(json_number_value(json_object_get(out, name)) + v));
}

static void add_all(json_t *out, const char *prefix, json_t *counters)
{
	const char *key;
	json_t *value;

	json_object_foreach(counters, key, value) {
		char name[160];
		snprintf(name, sizeof(name), "%s.%s", prefix, key);
		if (json_is_number(value) && strcmp(key, "index"))
			add(out, name, json_number_value(value));
	}
}

/*
 * Kelvin's -stats: every vCPU's counters summed, every device's by type. Leaving guest code for a device or a halt is
 * an exit on either engine: KVM counts returns to user space, the software CPU the accesses themselves.
 */
static void kelvin_counters(json_t *reply, json_t *out)
{
	json_t *o;
	size_t i;

	json_array_foreach(json_object_get(reply, "vcpus"), i, o) {
		static const char *const exits[] = {"exits", "port_io", "mmio", "halts"};
		add_all(out, "vcpu", o);
		json_t *kernel = json_object_get(o, "kernel");
		if (kernel)
			add(out, "kvm.exits", json_number_value(json_object_get(kernel, "exits")));
		for (size_t k = 0; k < ARRAY_SIZE(exits); k++)
			add(out, "exits", json_number_value(json_object_get(o, exits[k])));
	}
	json_array_foreach(json_object_get(reply, "devices"), i, o) {
		const char *type = json_string_value(json_object_get(o, "type"));
		add_all(out, type ? type : "device", o);
		add(out, "interrupts", json_number_value(json_object_get(o, "interrupts")));
	}
	json_array_foreach(json_object_get(reply, "drives"), i, o) {
		add(out, "block.requests", json_number_value(json_object_get(o, "requests")));
		add(out, "block.bytes", json_number_value(json_object_get(o, "bytes")));
		add(out, "block.calls", json_number_value(json_object_get(o, "syscalls")));
		if (json_object_get(o, "wait_ns"))
			add(out, "block.wait_s", json_number_value(json_object_get(o, "wait_ns")) * 1e-9);
	}
}

static void qemu_block(json_t *reply, json_t *out)
{
	static const char *const requests[] = {"rd_operations", "wr_operations", "flush_operations"};
	static const char *const times[] = {"rd_total_time_ns", "wr_total_time_ns", "flush_total_time_ns"};
	static const char *const bytes[] = {"rd_bytes", "wr_bytes"};
	json_t *o;
	size_t i;

	json_array_foreach(reply, i, o) {
		json_t *s = json_object_get(o, "stats");
		for (size_t k = 0; k < ARRAY_SIZE(requests); k++) {
			add(out, "block.requests", json_number_value(json_object_get(s, requests[k])));
			add(out, "block.wait_s", json_number_value(json_object_get(s, times[k])) * 1e-9);
		}
		for (size_t k = 0; k < ARRAY_SIZE(bytes); k++)
			add(out, "block.bytes", json_number_value(json_object_get(s, bytes[k])));
	}
}

/* KVM's own counters of every vCPU, which QEMU passes on since 7.1. Its software CPU counts no exits. */
static void qemu_vcpus(json_t *reply, json_t *out)
{
	json_t *o, *s;
	size_t i, k;

	json_array_foreach(reply, i, o) {
		json_array_foreach(json_object_get(o, "stats"), k, s) {
			const char *name = json_string_value(json_object_get(s, "name"));
			json_t *value = json_object_get(s, "value");
			if (name && json_is_integer(value) && strstr(name, "exits")) {
				char full[100];
				snprintf(full, sizeof(full), "kvm.%.80s", name);
				add(out, full, json_number_value(value));
			}
		}
	}
}

static const struct vmm_ops table[] = {
    {"kelvin", NULL, "run", "kvm", "soft", NULL, {{"x-query-stats", false, kelvin_counters}}},
    {"qemu",
     "qemu-system-x86",
     NULL,
     "kvm",
     "tcg,thread=multi",
     "lsi53c895a",
     {{"query-blockstats", false, qemu_block},
      {"{\"execute\":\"query-stats\",\"arguments\":{\"target\":\"vcpu\",\"providers\":[{\"provider\":\"kvm\"}]}}", true,
       qemu_vcpus}}},
};

static char *search_path(const char *program)
{
	const char *p = getenv("PATH");

	while (p && *p) {
		size_t n = strcspn(p, ":");
		char *full = paths_text("%.*s/%s", (int)n, p, program);
		if (full && access(full, X_OK) == 0)
			return full;
		free(full);
		p += n + (p[n] == ':');
	}
	return NULL;
}

const struct vmm_ops *vmm_ops(const char *base)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (!strncmp(base, table[i].name, strlen(table[i].name)))
			return &table[i];
	return NULL;
}

const struct vmm_ops *vmm_find(const char *program, char **path, struct err *err)
{
	const char *slash = strrchr(program, '/'), *base = slash ? slash + 1 : program;
	const struct vmm_ops *vmm = vmm_ops(base);
	const struct paths *p = paths_find(err);
	const char *self = getenv("KELVIN_LAB_SELF"), *package;

	if (!p)
		return NULL;
	if (!vmm) {
		err_set(err, -EINVAL,
			"'%s' is no monitor the lab knows (kelvin, qemu-system-x86_64, or a path that ends so)",
			program);
		return NULL;
	}
	*path = slash ? strdup(program) : vmm == table ? strdup(self ? self : p->self) : search_path(program);
	if (*path && access(*path, X_OK) == 0)
		return vmm;
	free(*path);
	*path = NULL;
	package = slash ? NULL : vmm->package;
	err_set(err, -ENOENT, "the monitor '%s' is not installed%s%s%s", program, package ? " (Debian's package " : "",
		package ? package : "", package ? ")" : "");
	return NULL;
}

char *vmm_version(const char *program)
{
	char *path = NULL, line[300] = "";
	const struct vmm_ops *vmm = vmm_find(program, &path, &(struct err){0});

	/* Kelvin's is among the facts already, by its own name. */
	if (vmm) {
		char *argv[] = {path, "--version", NULL};
		spawn_output(argv, line, sizeof(line), &(struct err){0});
		line[strcspn(line, "\n")] = 0;
	}
	free(path);
	return *line ? strdup(line) : NULL;
}

bool vmm_host_has_kvm(void)
{
	char *cpu = NULL;
	FILE *f = fopen("/proc/cpuinfo", "re");
	size_t room = 0;
	bool virtualizes = false;

	while (f && !virtualizes && getline(&cpu, &room, f) > 0)
		virtualizes = !strncmp(cpu, "flags", 5) && (strstr(cpu, " svm") || strstr(cpu, " vmx"));
	if (f)
		fclose(f);
	free(cpu);
	return virtualizes && access("/dev/kvm", R_OK | W_OK) == 0;
}

/* ---- QMP ------------------------------------------------------------------------ */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The next JSON line before `end`; events are passed over by the caller. */
static json_t *read_value(struct qmp_client *q, int64_t end)
{
	for (;;) {
		char *newline = q->in.len ? memchr(q->in.text, '\n', q->in.len) : NULL;
		if (newline) {
			json_t *o = json_loadb(q->in.text, (size_t)(newline - q->in.text), 0, NULL);
			textbuf_drop(&q->in, (size_t)(newline - q->in.text) + 1);
			if (o)
				return o;
			continue;
		}
		struct pollfd p = {q->fd, POLLIN, 0};
		int64_t left = end - now_ms();
		char buf[8192];
		if (left <= 0 || q->in.len > 4 * MIB || poll(&p, 1, (int)left) <= 0)
			return NULL;
		ssize_t n = read(q->fd, buf, sizeof(buf));
		if (n <= 0)
			return NULL;
		textbuf_add(&q->in, buf, (size_t)n);
	}
}

int qmp_client_open(struct qmp_client *q, const char *path, struct err *err)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int64_t end = now_ms() + 5000;

	*q = (struct qmp_client){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	while (connect(q->fd, (struct sockaddr *)&a, sizeof(a)) && now_ms() < end)
		usleep(10000);
	json_t *greeting = read_value(q, end);
	bool ok = greeting && json_object_get(greeting, "QMP");
	json_decref(greeting);
	json_t *reply = ok ? qmp_client_command(q, "qmp_capabilities", 5000, err) : NULL;
	if (reply) {
		json_decref(reply);
		return 0;
	}
	qmp_client_close(q);
	return err_set(err, -ENOTCONN, "the monitor does not answer on its control socket");
}

json_t *qmp_client_command(struct qmp_client *q, const char *command, int timeout_ms, struct err *err)
{
	int64_t end = now_ms() + timeout_ms;
	char text[300];
	int n = snprintf(text, sizeof(text), *command == '{' ? "%s\n" : "{\"execute\":\"%s\"}\n", command);
	json_t *o;

	if (q->fd < 0 || send(q->fd, text, (size_t)n, MSG_NOSIGNAL) != n) {
		err_set(err, -ENOTCONN, "the monitor's control socket is closed");
		return NULL;
	}
	while ((o = read_value(q, end))) {
		json_t *value = json_incref(json_object_get(o, "return"));
		bool failed = json_object_get(o, "error");
		json_decref(o);
		if (value)
			return value;
		if (failed)
			break;
	}
	err_set(err, -EIO, "the monitor refused '%s', or did not answer", command);
	return NULL;
}

void qmp_client_close(struct qmp_client *q)
{
	if (q->fd >= 0)
		close(q->fd);
	q->fd = -1;
	textbuf_free(&q->in);
}
