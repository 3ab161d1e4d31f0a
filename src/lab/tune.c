// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Settings of the host's disk under the images: host.scheduler, host.rotational, host.read_ahead_kb. They are
 * the machine's, not the trial's: what they were is written into a file first and put back after each trial, or by the
 * next run when this one is killed. Main thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "base/util.h"
#include "lab/paths.h"
#include "lab/trial.h"

static const char *const knobs[] = {"scheduler", "rotational", "read_ahead_kb"};

static char *saved_path(const struct bench_files *f)
{
	return paths_text("%s/host-queue", f->work);
}

/* The queue folder of the disk that holds `folder`, or of the disk its partition is on. */
static char *queue_folder(const char *folder, struct err *err)
{
	static const char *const places[] = {"queue", "../queue"};
	struct stat st;

	if (stat(folder, &st)) {
		err_set_errno(err, -errno, "'%s'", folder);
		return NULL;
	}
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		char *path = paths_text("/sys/dev/block/%u:%u/%s", major(st.st_dev), minor(st.st_dev), places[i]);
		if (path && access(path, F_OK) == 0)
			return path;
		free(path);
	}
	err_set(err, -ENODEV, "'%s' is not on a block device of its own", folder);
	return NULL;
}

/* The current value: of a choice, what stands in brackets. */
static int read_knob(const char *path, char value[64])
{
	char line[256] = "";
	FILE *f = fopen(path, "re");

	if (!f)
		return -errno;
	char *start = fgets(line, sizeof(line), f) ? strchr(line, '[') : NULL;
	fclose(f);
	start = start ? start + 1 : line;
	start[strcspn(start, "]\n")] = 0;
	snprintf(value, 64, "%.63s", start);
	return 0;
}

static int write_knob(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) != (ssize_t)strlen(value))
		ret = errno ? -errno : -EIO;
	close(fd);
	return ret;
}

static int apply_one(FILE *saved, const char *queue, const char *knob, const char *value, struct err *err)
{
	char *path = paths_text("%s/%s", queue, knob), old[64];
	int ret = path ? read_knob(path, old) : -ENOMEM;

	if (!ret && (fprintf(saved, "%s %s\n", path, old) < 0 || fflush(saved)))
		ret = -EIO;
	if (!ret)
		ret = write_knob(path, value);
	free(path);
	return ret ? err_set_errno(err, ret, "host.%s=%s for the disk in %s", knob, value, queue) : 0;
}

int tune_apply(const struct cell *c, const struct bench_files *f, struct err *err)
{
	char *queue = NULL, *path = NULL;
	FILE *saved = NULL;
	int ret = 0;

	for (size_t i = 0; i < ARRAY_SIZE(knobs) && !ret; i++) {
		char key[64];
		snprintf(key, sizeof(key), "host.%s", knobs[i]);
		const char *value = cell_setting(c, key, NULL);
		if (!value)
			continue;
		if (!queue && !(queue = queue_folder(f->work, err)))
			ret = -ENODEV;
		if (!ret && !saved) {
			path = saved_path(f);
			saved = path ? fopen(path, "we") : NULL;
			if (!saved)
				ret = err_set_errno(err, -errno, "a note of the host's settings");
		}
		if (!ret)
			ret = apply_one(saved, queue, knobs[i], value, err);
	}
	if (saved)
		fclose(saved);
	free(path);
	free(queue);
	return ret;
}

void tune_restore(const struct bench_files *f)
{
	char *path = saved_path(f), line[PATH_MAX + 80];
	FILE *saved = path ? fopen(path, "re") : NULL;

	while (saved && fgets(line, sizeof(line), saved)) {
		line[strcspn(line, "\n")] = 0;
		char *space = strchr(line, ' ');
		/* Only what this file can have written. */
		if (!space || strncmp(line, "/sys/dev/block/", 15) || strstr(line, "/../../"))
			continue;
		*space = 0;
		write_knob(line, space + 1);
	}
	if (saved) {
		fclose(saved);
		unlink(path);
	}
	free(path);
}
