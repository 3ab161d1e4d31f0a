/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The map by which `perf` names translated code: /tmp/perf-PID.map, one line
 * "start size name" per piece of host code, hexadecimal, addresses of the
 * executable view (format: tools/perf/Documentation/jit-interface.txt of Linux).
 *
 * The file only grows: when the code cache is emptied and its space used again,
 * later lines name what is there then, and perf takes the last that fits. It ends
 * at LINES_MAX lines (some 64 MB), which is said once. One write per line, so that
 * the file is complete whenever the process ends. Writers hold the translator's
 * lock, or are the main thread before vCPUs exist.
 */
#include "cpu/soft/jit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include "base/log.h"

#define LINES_MAX 1000000u

int jit_perf_open(struct jit *j, struct err *err)
{
	char path[64];

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	/* Left by a process of ours that had this number. Anything of others in its place is refused by O_EXCL. */
	unlink(path);
	j->perf_fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (j->perf_fd < 0)
		return err_set_errno(err, -errno, "accel soft: perf-map=on cannot create '%s'", path);
	j->perf_map = true;
	log_info("soft: writing '%s' for perf", path);
	return 0;
}

void jit_perf_close(struct jit *j)
{
	if (j->perf_map)
		close(j->perf_fd);
	j->perf_map = false;
}

void jit_perf_code(struct jit *j, const uint8_t *start, const uint8_t *end, const char *fmt, ...)
{
	char line[160];
	va_list ap;
	int n;

	if (!j->perf_map || end <= start)
		return;
	n = snprintf(line, sizeof(line), "%" PRIxPTR " %zx ", (uintptr_t)(start + j->rx_delta), (size_t)(end - start));
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	n = MIN(n, (int)sizeof(line) - 2);
	line[n++] = '\n';
	if (++j->perf_lines > LINES_MAX || write(j->perf_fd, line, (size_t)n) != n) {
		log_warn("soft: the map for perf ends here, after %u lines%s", j->perf_lines - 1,
			 j->perf_lines > LINES_MAX ? "" : " (it could not be written)");
		jit_perf_close(j);
	}
}

/* Kernel or user, so that equal addresses of the two are told apart. */
void jit_perf_block(struct jit *j, const struct jit_block *b, uint64_t rip, bool user, const uint8_t *cold,
		    const uint8_t *cold_end)
{
	const char *who = user ? "user" : "kernel";

	if (!j->perf_map)
		return;
	jit_perf_code(j, b->hot, b->hot_end, "guest %s %#" PRIx64, who, rip);
	jit_perf_code(j, cold, cold_end, "guest %s %#" PRIx64 " (misses and exits)", who, rip);
}
