// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Logging: user messages to stderr, diagnostics (-d) to the -D file or stderr.
 *
 * Each line is put together in a local buffer and leaves in one write(2), so
 * threads need no lock. The rate limit's counters are atomics; a race between
 * two threads at the turn of a second may let a few lines more through.
 */
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/type.h"
#include "base/util.h"

#define LOG_LINE_MAX	   2048
#define LOG_LINES_PER_SEC  1000
#define LOG_CLASS_MAX_BITS 32

uint32_t log_mask;
bool log_timestamps;
static int log_fd = STDERR_FILENO;

static const struct log_class_name {
	const char *name;
	uint32_t bits;
	const char *help;
} log_class_table[] = {
    {"guest_errors", LOG_GUEST_ERRORS, "the guest programmed a device wrongly"},
    {"unimp", LOG_UNIMP, "the guest asked for something Kelvin does not model"},
    {"int", LOG_INT, "exceptions and interrupts of the software CPU"},
    {"cpu_reset", LOG_CPU_RESET, "resets and triple faults, with the CPU state"},
    {"in_asm", LOG_IN_ASM, "guest code as it is decoded"},
    {"out_asm", LOG_OUT_ASM, "host code as it is generated"},
    {"exec", LOG_EXEC, "each block entered"},
    {"mmu", LOG_MMU, "page walks"},
    {"io", LOG_IO, "port and memory accesses to devices"},
    {"virtio", LOG_VIRTIO, "virtio requests and configuration"},
    {"block", LOG_BLOCK, "disk requests"},
    {"qmp", LOG_QMP, "QMP commands, replies and events"},
};

/* What one class wrote in the current second, and what was dropped since the last line. */
static struct log_rate {
	_Atomic int64_t second;
	_Atomic uint32_t lines, dropped;
} log_rate[LOG_CLASS_MAX_BITS];

static void log_write(int fd, const char *line, size_t len)
{
	/* A full pipe or a closed stderr must not stop the machine: what does not go is lost. */
	while (write(fd, line, len) < 0 && errno == EINTR)
		;
}

static void log_vline(int fd, const char *prefix, const char *fmt, va_list ap)
{
	char line[LOG_LINE_MAX];
	int n = 0;

	if (log_timestamps && fd == STDERR_FILENO) {
		struct timespec ts;
		struct tm tm;
		clock_gettime(CLOCK_REALTIME, &ts);
		gmtime_r(&ts.tv_sec, &tm);
		n = (int)strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
		n += snprintf(line + n, 16, ".%06ldZ ", ts.tv_nsec / 1000 % 1000000);
	}
	n += snprintf(line + n, sizeof(line) - (size_t)n, "%s", prefix);
	int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);

	if (m > 0)
		n = MIN(n + m, (int)sizeof(line) - 2);
	line[n++] = '\n';
	log_write(fd, line, (size_t)n);
}

void log_error(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	log_vline(STDERR_FILENO, "kelvin: ", fmt, ap);
	va_end(ap);
}

void log_warn(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	log_vline(STDERR_FILENO, "kelvin: warning: ", fmt, ap);
	va_end(ap);
}

void log_info(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	log_vline(STDERR_FILENO, "kelvin: ", fmt, ap);
	va_end(ap);
}

static const char *log_class_name_of(uint32_t bits)
{
	for (size_t i = 0; i < ARRAY_SIZE(log_class_table); i++)
		if (log_class_table[i].bits == bits)
			return log_class_table[i].name;
	return "?";
}

/* May this class write one more line now? Says how many lines were dropped before. */
static bool log_rate_allow(uint32_t bits, uint32_t *dropped)
{
	struct log_rate *r = &log_rate[__builtin_ctz(bits)];
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	*dropped = 0;
	if (atomic_load(&r->second) != ts.tv_sec) {
		atomic_store(&r->second, ts.tv_sec);
		atomic_store(&r->lines, 0);
		*dropped = atomic_exchange(&r->dropped, 0);
	}
	if (atomic_fetch_add(&r->lines, 1) < LOG_LINES_PER_SEC)
		return true;
	atomic_fetch_add(&r->dropped, 1);
	return false;
}

void log_diag(enum log_class class_bit, const char *fmt, ...)
{
	uint32_t dropped;
	char prefix[32];
	va_list ap;

	if (!log_on(class_bit) || !log_rate_allow(class_bit, &dropped))
		return;
	snprintf(prefix, sizeof(prefix), "%s: ", log_class_name_of(class_bit));
	if (dropped) {
		char line[96];
		int n = snprintf(line, sizeof(line), "%s%u lines dropped\n", prefix, dropped);
		log_write(log_fd, line, (size_t)n);
	}
	va_start(ap, fmt);
	log_vline(log_fd, prefix, fmt, ap);
	va_end(ap);
}

static void log_print_classes(void)
{
	printf("Diagnostic classes of -d (a list, separated by commas):\n");
	for (size_t i = 0; i < ARRAY_SIZE(log_class_table); i++)
		printf("  %-14s %s\n", log_class_table[i].name, log_class_table[i].help);
	printf("  %-14s %s\n", "all", "every class");
}

static int log_find_class(const char *name, uint32_t *bits, struct err *err)
{
	const char *names[ARRAY_SIZE(log_class_table)];

	if (!strcmp(name, "all")) {
		*bits = ~0u;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(log_class_table); i++) {
		names[i] = log_class_table[i].name;
		if (!strcmp(name, names[i])) {
			*bits = log_class_table[i].bits;
			return 0;
		}
	}
	const char *near = text_nearest(name, names, ARRAY_SIZE(names));
	return err_set(err, -EINVAL, "-d: there is no class '%s'%s%s%s (-d help lists them)", name,
		       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int log_set_classes(const char *list, struct err *err)
{
	if (!strcmp(list, "help") || !strcmp(list, "?")) {
		log_print_classes();
		return 1;
	}
	char *copy = strdup(list), *save = NULL;
	uint32_t mask = 0;
	int ret = copy ? 0 : err_set_errno(err, -ENOMEM, "-d");

	for (char *w = copy ? strtok_r(copy, ",", &save) : NULL; w && !ret; w = strtok_r(NULL, ",", &save)) {
		uint32_t bits = 0;
		ret = log_find_class(w, &bits, err);
		mask |= bits;
	}
	free(copy);
	if (!ret)
		log_mask |= mask;
	return ret;
}

int log_set_file(const char *path, struct err *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);

	if (fd < 0)
		return err_set_errno(err, -errno, "-D: cannot open '%s' for writing", path);
	if (log_fd != STDERR_FILENO)
		close(log_fd);
	log_fd = fd;
	return 0;
}
