// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The disk of a trial: always a fresh copy of a base image, which is made once per size and format and cached. A base
 * holds pseudo-random bytes (so that no layer finds holes or zeros to be clever about), or nothing for workloads that
 * make a file system. `disk.store: device` is a loop device over a raw file. `disk.image: PATH` is the user's own
 * image: a guest gets an overlay over it, the host a raw copy, and the image is never written. Main thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/type.h"
#include "base/util.h"
#include "lab/paths.h"
#include "lab/spawn.h"
#include "lab/trial.h"
#include "lab/workload.h"

static int fill_random(const char *path, uint64_t size, struct err *err)
{
	FILE *f = fopen(path, "we");
	struct stats_random r = {size};
	static uint64_t block[16384];
	int ret = 0;

	if (!f)
		return err_set_errno(err, -errno, "cannot make '%s'", path);
	for (uint64_t done = 0; done < size && !ret; done += sizeof(block)) {
		for (size_t i = 0; i < ARRAY_SIZE(block); i++)
			block[i] = stats_random_below(&r, UINT64_MAX);
		size_t n = (size_t)MIN(sizeof(block), size - done);
		if (fwrite(block, 1, n, f) != n)
			ret = err_set_errno(err, -errno, "cannot make '%s'", path);
	}
	if (fclose(f) && !ret)
		ret = err_set_errno(err, -errno, "cannot make '%s'", path);
	if (ret)
		unlink(path);
	return ret;
}

/* kelvin img where it knows the format, else qemu-img. */
static int image_tool(char *const argv[], struct err *err)
{
	const struct paths *p = paths_find(err);
	char *own[12] = {p ? (char *)p->self : NULL, "img"}, *other[12] = {"qemu-img"};
	struct err first = {0};
	size_t n = 0;

	if (!p)
		return -ENOENT;
	for (; n < 9 && argv[n]; n++)
		own[n + 2] = other[n + 1] = argv[n];
	if (!spawn_wait(own, &first))
		return 0;
	struct err second = {0};
	if (!spawn_wait(other, &second))
		return 0;
	return err_set(err, -EIO, "%s", first.msg);
}

static int make_base(const char *path, const char *format, uint64_t size, bool filled, const struct bench_files *f,
		     struct err *err)
{
	char *temporary = paths_text("%s.tmp%d", path, (int)getpid()),
	     *bytes = paths_text("%llu", (unsigned long long)size);
	char *raw = paths_text("%s/lab-disk-%llu.raw", f->cache, (unsigned long long)size);
	int ret = temporary && bytes && raw ? 0 : -ENOMEM;

	if (!ret && filled && !strcmp(format, "raw"))
		ret = fill_random(temporary, size, err);
	else if (!ret && filled) {
		ret = access(raw, R_OK) ? make_base(raw, "raw", size, true, f, err) : 0;
		char *argv[] = {"convert", "-f", "raw", "-O", (char *)format, raw, temporary, NULL};
		ret = ret ? ret : image_tool(argv, err);
	} else if (!ret) {
		char *argv[] = {"create", "-q", "-f", (char *)format, temporary, bytes, NULL};
		ret = image_tool(argv, err);
	}
	if (!ret && rename(temporary, path))
		ret = err_set_errno(err, -errno, "cannot make '%s'", path);
	if (ret && temporary)
		unlink(temporary);
	free(temporary);
	free(bytes);
	free(raw);
	return ret;
}

static int attach_loop(struct trial_disk *d, struct err *err)
{
	char *argv[] = {"losetup", "-f", d->path, NULL}, *find[] = {"losetup", "-j", d->path, NULL};
	char line[128] = "";

	if (geteuid() != 0)
		return err_set(err, -EPERM, "disk.store=device needs root here (losetup)");
	int ret = spawn_wait(argv, err);
	if (ret)
		return ret;
	char *command = paths_text("%s %s %s", find[0], find[1], d->path);
	FILE *p = command ? popen(command, "re") : NULL;
	if (p && fgets(line, sizeof(line), p) && strchr(line, ':')) {
		*strchr(line, ':') = 0;
		d->loop = strdup(line);
	}
	if (p)
		pclose(p);
	free(command);
	return d->loop ? 0 : err_set(err, -EIO, "losetup attached '%s' and does not list it", d->path);
}

char *image_format(const char *path, struct err *err)
{
	const struct paths *p = paths_find(err);
	char line[65536], *format = NULL;

	if (!p)
		return NULL;
	/* Without -U: an image that somebody writes is no base for a measurement. */
	char *argv[] = {(char *)p->self, "img", "info", "--output=json", (char *)path, NULL};
	spawn_output(argv, line, sizeof(line), err);
	json_t *o = json_loads(line, 0, NULL);
	const char *name = json_string_value(json_object_get(o, "format"));
	if (name)
		format = strdup(name);
	else
		err_set(err, -EINVAL, "%.*s", (int)strcspn(line, "\n"), *line ? line : "no such image");
	json_decref(o);
	return format;
}

int image_overlay(const char *image, const char *overlay, struct err *err)
{
	char *whole = realpath(image, NULL), *format;

	if (!whole)
		return err_set_errno(err, -errno, "'%s'", image);
	format = image_format(whole, err);
	char *argv[] = {"create", "-q", "-f", "qcow2", "-b", whole, "-F", format, (char *)overlay, NULL};
	int ret = format ? image_tool(argv, err) : -EINVAL;
	free(format);
	free(whole);
	return ret;
}

/* The user's image, for one trial. */
static int own_image(struct trial_disk *d, const char *image, bool host, const struct bench_files *f, struct err *err)
{
	char *format = host ? image_format(image, err) : NULL;
	int ret;

	d->format = host ? "raw" : "qcow2";
	d->path = paths_text("%s/disk.%s", f->work, d->format);
	if (host) {
		char *argv[] = {"convert", "-f", format, "-O", "raw", (char *)image, d->path, NULL};
		ret = format && d->path ? image_tool(argv, err) : -EINVAL;
	} else {
		ret = d->path ? image_overlay(image, d->path, err) : -ENOMEM;
	}
	free(format);
	return ret;
}

int disk_make(struct trial_disk *d, const struct experiment *e, const struct cell *c, struct bench_files *f,
	      struct err *err)
{
	const char *store = cell_setting(c, "disk.store", cell_setting(c, "drive.format", "raw"));
	const char *fill = cell_setting(c, "disk.fill", e->workload->flags & WORKLOAD_FILES ? "empty" : "random");
	bool device = !strcmp(store, "device"), filled = !strcmp(fill, "random");
	uint64_t size;

	*d = (struct trial_disk){0};
	if (!(e->workload->flags & WORKLOAD_DISK))
		return 0;
	const char *image = cell_setting(c, "disk.image", NULL);
	if (image) {
		int ret = own_image(d, image, c->host, f, err);
		if (ret) {
			err_prefix(err, "the cell's disk");
			disk_remove(d);
		}
		return ret;
	}
	d->format = device || c->host ? "raw" : store;
	if (text_parse_size(cell_setting(c, "disk.size", "256M"), 1, &size) || !size)
		return err_set(err, -EINVAL, "disk.size '%s' is not a size", cell_setting(c, "disk.size", ""));
	char *base =
	    paths_text("%s/lab-disk-%llu%s.%s", f->cache, (unsigned long long)size, filled ? "" : "-empty", d->format);
	d->path = paths_text("%s/disk.%s", f->work, d->format);
	int ret = base && d->path ? 0 : -ENOMEM;
	if (!ret && access(base, R_OK))
		ret = make_base(base, d->format, size, filled, f, err);
	if (!ret) {
		char *argv[] = {"cp", "--reflink=auto", "--sparse=auto", "--remove-destination", base, d->path, NULL};
		ret = spawn_wait(argv, err);
	}
	if (!ret && device && !c->host)
		ret = attach_loop(d, err);
	free(base);
	if (ret) {
		err_prefix(err, "the cell's disk");
		disk_remove(d);
	}
	return ret;
}

void disk_remove(struct trial_disk *d)
{
	if (d->loop) {
		char *argv[] = {"losetup", "-d", d->loop, NULL};
		spawn_wait(argv, NULL);
	}
	if (d->path)
		unlink(d->path);
	free(d->loop);
	free(d->path);
	*d = (struct trial_disk){0};
}
