// SPDX-License-Identifier: GPL-2.0-or-later
/* Result folders. The journal is only appended to; its lock (flock) ends with the process. */
#include "lab/journal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/util.h"
#include "lab/paths.h"

static int load_plan(struct journal *j, struct err *err)
{
	char *path = paths_text("%s/plan.json", j->dir), *text = path ? paths_read(path, NULL) : NULL;
	int ret = 0;

	j->plan = text ? json_loads(text, 0, NULL) : NULL;
	const char *seed = json_string_value(json_object_get(j->plan, "seed"));
	if (!seed)
		ret = err_set(err, -ENOENT,
			      "'%s' is not a result folder of kelvin bench (plan.json is missing or damaged)", j->dir);
	else {
		j->seed = strtoull(seed, NULL, 0);
		j->experiment = experiment_from_doc(json_object_get(j->plan, "experiment"), err);
		ret = j->experiment ? matrix_make(j->experiment, &j->matrix, err) : -EINVAL;
	}
	free(text);
	free(path);
	return ret;
}

/* A run that was killed lets go of its lock when the last of its children has ended or started its program. */
static int take_lock(int fd)
{
	for (int try = 0; flock(fd, LOCK_EX | LOCK_NB); try++) {
		if (errno != EWOULDBLOCK || try == 30)
			return -errno;
		usleep(100000);
	}
	return 0;
}

/* Complete lines become trials; what follows the last newline was being written when the run was killed. */
static int load_lines(struct journal *j, const char *path, struct err *err)
{
	char *text = paths_read(path, err), *p = text;

	if (!text)
		return err && err->code ? err->code : -EIO;
	for (char *end; (end = strchr(p, '\n')); p = end + 1) {
		json_t *o = json_loadb(p, (size_t)(end - p), 0, NULL);
		/* What a hand or a bad disk made of a line is not a trial: that cell is run again. */
		if (json_is_string(json_object_get(o, "cell")) && json_is_string(json_object_get(o, "status")) &&
		    json_is_integer(json_object_get(o, "block")))
			json_array_append(j->trials, o);
		json_decref(o);
	}
	int ret = 0;
	if (j->fd >= 0 && *p && ftruncate(j->fd, p - text))
		ret = err_set_errno(err, -errno, "'%s'", path);
	free(text);
	return ret;
}

int journal_open(struct journal *j, const char *dir, bool writing, struct err *err)
{
	char *path = paths_text("%s/journal.jsonl", dir);

	*j = (struct journal){.dir = strdup(dir), .fd = -1, .trials = json_array()};
	if (!path || !j->dir)
		return err_set_errno(err, -ENOMEM, "'%s'", dir);
	int ret = load_plan(j, err);
	if (!ret && writing) {
		j->fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
		if (j->fd < 0)
			ret = err_set_errno(err, -errno, "cannot write '%s'", path);
		else if (take_lock(j->fd))
			ret = err_set(err, -EBUSY, "'%s' is being filled by another kelvin bench", dir);
	}
	if (!ret)
		ret = load_lines(j, path, err);
	free(path);
	if (ret)
		journal_close(j);
	return ret;
}

/* Makes all folders of a path. */
static int make_folders(const char *dir, struct err *err)
{
	char *copy = strdup(dir);

	for (char *p = copy ? copy + 1 : NULL; p && *p; p++)
		if (*p == '/') {
			*p = 0;
			mkdir(copy, 0755);
			*p = '/';
		}
	int ret = copy && (mkdir(copy, 0755) == 0 || errno == EEXIST)
		      ? 0
		      : err_set_errno(err, -errno, "cannot make the folder '%s'", dir);
	free(copy);
	return ret;
}

int journal_create(struct journal *j, const char *dir, json_t *plan, struct err *err)
{
	char *path = paths_text("%s/plan.json", dir), *text = json_dumps(plan, JSON_INDENT(1));
	int ret = path && text ? make_folders(dir, err) : -ENOMEM;

	*j = (struct journal){.fd = -1};
	if (!ret && access(path, F_OK) == 0)
		ret =
		    err_set(err, -EEXIST,
			    "'%s' holds results already: continue them with 'kelvin bench run --resume %s'", dir, dir);
	if (!ret)
		ret = paths_write(path, text, err);
	free(path);
	free(text);
	return ret ? ret : journal_open(j, dir, true, err);
}

int journal_add(struct journal *j, json_t *trial, struct err *err)
{
	char *text = json_dumps(trial, JSON_COMPACT | JSON_REAL_PRECISION(10));
	size_t n = text ? strlen(text) : 0;
	off_t before = lseek(j->fd, 0, SEEK_END);
	int ret = text ? 0 : -ENOMEM;

	if (text)
		text[n++] = '\n';
	if (!ret && (write(j->fd, text, n) != (ssize_t)n || fdatasync(j->fd))) {
		ret = err_set_errno(err, errno ? -errno : -ENOSPC, "cannot write the journal in '%s'", j->dir);
		/* No half line stays in the way of the next one. */
		if (ftruncate(j->fd, before))
			err_prefix(err, "and it is damaged now");
	}
	if (!ret)
		json_array_append(j->trials, trial);
	json_decref(trial);
	free(text);
	return ret;
}

json_t *journal_find(const struct journal *j, unsigned block, const char *label)
{
	json_t *o;
	size_t i;

	json_array_foreach(j->trials, i, o) {
		if (json_integer_value(json_object_get(o, "block")) == block &&
		    !strcmp(json_string_value(json_object_get(o, "cell")), label))
			return o;
	}
	return NULL;
}

void journal_close(struct journal *j)
{
	if (j->fd >= 0)
		close(j->fd);
	experiment_free(j->experiment);
	matrix_free(&j->matrix);
	json_decref(j->plan);
	json_decref(j->trials);
	free(j->dir);
	*j = (struct journal){.fd = -1};
}
