// SPDX-License-Identifier: GPL-2.0-or-later
/* Files of the lab, and reading and writing small files whole. Main thread. */
#include "lab/paths.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/util.h"

char *paths_text(const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	return text;
}

static int exists(const char *folder, const char *name)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return access(path, R_OK) == 0;
}

/* `name` relative to the folder `from`, resolved; empty when it does not exist. */
static void resolve(char out[PATH_MAX], const char *from, const char *name)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", from, name);
	if (!realpath(path, out))
		out[0] = 0;
}

const struct paths *paths_find(struct err *err)
{
	static struct paths p;
	char folder[PATH_MAX];
	const char *given = getenv("KELVIN_SHARE");

	if (p.share[0] && p.helpers[0])
		return &p;
	ssize_t n = readlink("/proc/self/exe", p.self, sizeof(p.self) - 1);
	if (n <= 0) {
		err_set_errno(err, -errno, "cannot find this program's own file");
		return NULL;
	}
	p.self[n] = 0;
	strcpy(folder, p.self);
	*strrchr(folder, '/') = 0;
	/* build/kelvin, build/tests/unit/test_lab, bin/kelvin */
	static const char *const shares[] = {"..", "../share/kelvin", "../../..", "../.."};
	for (size_t i = 0; i < ARRAY_SIZE(shares) && !p.share[0]; i++) {
		resolve(p.share, folder, shares[i]);
		if (!exists(p.share, "guest/lab/prepare"))
			p.share[0] = 0;
	}
	if (given && *given)
		resolve(p.share, given, ".");
	static const char *const helpers[] = {"guest/lab", "../libexec/kelvin", "../../guest/lab"};
	for (size_t i = 0; i < ARRAY_SIZE(helpers) && !p.helpers[0]; i++) {
		resolve(p.helpers, folder, helpers[i]);
		if (!exists(p.helpers, "lab-agent"))
			p.helpers[0] = 0;
	}
	if (p.share[0] && p.helpers[0])
		return &p;
	err_set(err, -ENOENT,
		"the lab's files (guest/lab, lab-agent) are neither beside '%s' nor installed with it: run ninja, or "
		"install Kelvin whole",
		p.self);
	return NULL;
}

char *paths_read(const char *path, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *text = NULL;

	if (fd < 0 || fstat(fd, &st)) {
		err_set_errno(err, -errno, "cannot read '%s'", path);
	} else if (st.st_size > (off_t)PATHS_READ_MAX) {
		err_set(err, -EFBIG, "'%s' is larger than %llu MiB", path, (unsigned long long)(PATHS_READ_MAX / MIB));
	} else if ((text = calloc(1, (size_t)st.st_size + 1))) {
		ssize_t n, done = 0;
		while (done < st.st_size && (n = read(fd, text + done, (size_t)(st.st_size - done))) > 0)
			done += n;
	} else {
		err_set_errno(err, -ENOMEM, "cannot read '%s'", path);
	}
	if (fd >= 0)
		close(fd);
	return text;
}

int paths_write(const char *path, const char *text, struct err *err)
{
	char *temporary = paths_text("%s.tmp", path);
	FILE *f = temporary ? fopen(temporary, "we") : NULL;
	int ret = 0;

	if (!f)
		ret = err_set_errno(err, -errno, "cannot write '%s'", path);
	else {
		if (fputs(text, f) < 0 || fflush(f) || fsync(fileno(f)))
			ret = err_set_errno(err, -errno, "cannot write '%s'", path);
		if (fclose(f) && !ret)
			ret = err_set_errno(err, -errno, "cannot write '%s'", path);
		if (!ret && rename(temporary, path))
			ret = err_set_errno(err, -errno, "cannot write '%s'", path);
		if (ret)
			unlink(temporary);
	}
	free(temporary);
	return ret;
}
