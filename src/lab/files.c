// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the trials of a run share: the guest's kernel and initial file system (guest/lab/prepare makes them from Debian
 * packages, once), the agent and the scripts, and working folders. Main thread.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "lab/paths.h"
#include "lab/spawn.h"
#include "lab/trial.h"
#include "lab/workload.h"

#define SOCKETS "/kelvin-lab."

static char *cache_folder(void)
{
	const char *own = getenv("KELVIN_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (own && *own)
		return strdup(own);
	if (xdg && *xdg)
		return paths_text("%s/kelvin", xdg);
	return paths_text("%s/.cache/kelvin", home ? home : "/root");
}

/* Runs guest/lab/prepare and takes its NAME=PATH lines; its progress goes to our stderr. */
static int run_prepare(struct bench_files *f, const struct paths *p, const char *flavour, const char *modules,
		       unsigned flags, char **initramfs, struct err *err)
{
	static const struct {
		const char *name;
		size_t offset;
	} names[] = {{"kernel", offsetof(struct bench_files, kernel)},
		     {"root", offsetof(struct bench_files, root)},
		     {"source", offsetof(struct bench_files, source)}};
	char line[5000];

	/* A kernel of the user's: prepare takes its modules from the folder beside, or from /lib/modules. */
	if (*flavour == '/') {
		if (access(flavour, R_OK))
			return err_set_errno(err, -errno, "guest.kernel '%s'", flavour);
		setenv("KELVIN_LAB_KERNEL", flavour, 1);
		setenv("KELVIN_LAB_MODULES", modules, 1);
		flavour = "own";
	} else if (strcmp(flavour, "cloud") && strcmp(flavour, "full")) {
		return err_set(err, -EINVAL, "guest.kernel is cloud, full or the path of a kernel, not '%s'", flavour);
	}
	setenv("KELVIN_CACHE", f->cache, 1);
	setenv("KELVIN_LAB_SHARE", p->share, 1);
	char *command =
	    paths_text("exec bash \"$KELVIN_LAB_SHARE/guest/lab/prepare\" \"$KELVIN_LAB_SHARE\" %s%s%s", flavour,
		       flags & WORKLOAD_ROOT ? " root" : "", flags & WORKLOAD_SOURCE ? " source" : "");
	FILE *out = command ? popen(command, "re") : NULL;
	free(command);
	if (!out)
		return err_set_errno(err, -errno, "cannot start bash for guest/lab/prepare");
	while (fgets(line, sizeof(line), out)) {
		line[strcspn(line, "\n")] = 0;
		char *value = strchr(line, '=');
		if (!value)
			continue;
		*value++ = 0;
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			if (!strcmp(line, names[i].name))
				*(char **)((char *)f + names[i].offset) = strdup(value);
		if (!strcmp(line, "initramfs"))
			*initramfs = strdup(value);
	}
	int status = pclose(out);
	if (status || !f->kernel || !*initramfs)
		return err_set(err, -EIO, "the guest could not be made: see the line above");
	return 0;
}

/*
 * work/tools/lab: agent, programs, scripts, source tree; work/initrd: the initramfs and these. Made under names of this
 * process's own and then renamed: of a run that was killed a moment ago, a program that the script had started may
 * still be writing.
 */
static int make_tools(struct bench_files *f, const struct paths *p, const char *initramfs, struct err *err)
{
	char *script = "set -e; umask 022; new=\"$1/new.$$\"; mkdir -p \"$new/tools/lab\"; cp \"$3\"/guest/lab/*.sh "
		       "\"$3/guest/lab/host-root\" \"$4/lab-agent\" "
		       "\"$4/lab-bench\" \"$new/tools/lab/\"; if [ -n \"$5\" ]; then cp --reflink=auto \"$5\" "
		       "\"$new/tools/lab/source.tar\"; fi; "
		       "cp \"$2\" \"$new/initrd\"; "
		       "(cd \"$new/tools\"; find lab | cpio -o -H newc -R 0:0 --quiet >>\"$new/initrd\"); "
		       "rm -rf \"$1/tools\" \"$1/initrd\"; mv \"$new/tools\" \"$new/initrd\" \"$1/\"; rmdir \"$new\"";
	char *argv[] = {"bash",
			"-c",
			script,
			"-",
			f->work,
			(char *)initramfs,
			(char *)p->share,
			(char *)p->helpers,
			f->source ? f->source : "",
			NULL};
	int ret = spawn_wait(argv, err);

	f->tools = paths_text("%s/tools/lab", f->work);
	f->initrd = paths_text("%s/initrd", f->work);
	if (ret)
		return err_prefix(err, "the guest's tools");
	return f->tools && f->initrd ? 0 : err_set_errno(err, -ENOMEM, "the guest's tools");
}

/*
 * A folder for sockets in $TMPDIR, not where the results are: a socket's path must be short, and not every file system
 * has sockets. work/sockets is a link to it, made before the folder, so that a run that is killed at any moment leaves
 * none that the next one does not find and remove.
 */
static int make_sockets(struct bench_files *f, struct err *err)
{
	const char *tmp = getenv("TMPDIR");
	char *link = paths_text("%s/sockets", f->work), old[PATH_MAX] = "";
	char *argv[] = {"rm", "-rf", "--", old, NULL};
	uint64_t number = clock_raw_ns() ^ (uint64_t)getpid() << 32;
	int ret = link ? 0 : -ENOMEM;

	if (link && readlink(link, old, sizeof(old) - 1) > 0 && strstr(old, SOCKETS) && !strstr(old, ".."))
		spawn_wait(argv, NULL);
	for (int try = 0; !ret && try < 100; try++) {
		f->sockets = paths_text("%s" SOCKETS "%06llx", tmp && *tmp == '/' && strlen(tmp) < 60 ? tmp : "/tmp",
					(unsigned long long)((number + (uint64_t)try) & 0xffffff));
		unlink(link);
		/* Without the link only the tidying is lost. */
		if (f->sockets && symlink(f->sockets, link))
			log_diag(LOG_IO, "%s: %s", link, strerror(errno));
		ret = !f->sockets ? -ENOMEM : mkdir(f->sockets, 0700) ? -errno : 0;
		if (ret != -EEXIST)
			break;
		/* Somebody else's: it must not be removed for ours. */
		unlink(link);
		free(f->sockets);
		f->sockets = NULL;
		ret = 0;
	}
	free(link);
	if (!ret && f->sockets)
		return 0;
	/* Not made, so not to be removed. */
	free(f->sockets);
	f->sockets = NULL;
	return err_set_errno(err, ret ? ret : -EEXIST, "a folder for sockets in '%s'", tmp ? tmp : "/tmp");
}

/* Loop devices over a disk that a killed run left. */
static void detach_loops(const struct bench_files *f)
{
	char *argv[] = {
	    "bash",
	    "-c",
	    "losetup -j \"$1/disk.raw\" 2>/dev/null | while IFS=: read -r d rest; do losetup -d \"$d\"; done",
	    "-",
	    f->work,
	    NULL};
	char *disk = paths_text("%s/disk.raw", f->work);

	if (disk && access(disk, F_OK) == 0)
		spawn_wait(argv, NULL);
	free(disk);
}

int files_prepare(struct bench_files *f, const struct experiment *e, const char *dir, struct err *err)
{
	const struct paths *p = paths_find(err);
	unsigned flags = e->workload->flags;
	const char *flavour = json_string_value(json_object_get(e->settings, "guest.kernel"));
	const char *modules = json_string_value(json_object_get(e->settings, "guest.modules"));
	char *initramfs = NULL;
	char *whole = realpath(dir, NULL);

	if (!p || !whole)
		return p ? err_set_errno(err, -errno, "'%s'", dir) : -ENOENT;
	static const char *const fixed[] = {"guest.kernel", "guest.modules"};
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		if (json_object_get(e->factors, fixed[i]))
			return err_set(err, -ENOTSUP, "%s cannot be a factor: run once with each --fix %s=...",
				       fixed[i], fixed[i]);
	f->work = paths_text("%s/work", whole);
	free(whole);
	f->cache = cache_folder();
	if (!f->work || !f->cache)
		return err_set_errno(err, -ENOMEM, "the folders of the run");
	if ((mkdir(f->work, 0755) && errno != EEXIST) || (mkdir(f->cache, 0755) && errno != EEXIST))
		return err_set_errno(err, -errno, "cannot make the folders '%s' and '%s'", f->work, f->cache);
	int ret = make_sockets(f, err);
	if (ret)
		return ret;
	/* The user's image takes the place of the lab's. */
	if (json_object_get(e->settings, "guest.image"))
		flags &= ~WORKLOAD_ROOT;
	/* What a run that was killed had changed. */
	detach_loops(f);
	tune_restore(f);
	/* Buses other than virtio need drivers that only Debian's full kernel has. */
	ret = run_prepare(f, p,
			  flavour		  ? flavour
			  : flags & WORKLOAD_DISK ? "full"
						  : "cloud",
			  modules ? modules : "", flags, &initramfs, err);
	if (!ret)
		ret = make_tools(f, p, initramfs, err);
	free(initramfs);
	return ret;
}

void files_free(struct bench_files *f)
{
	char *folders[] = {f->work, f->sockets};

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		char *argv[] = {"rm", "-rf", "--", folders[i], NULL};
		if (folders[i])
			spawn_wait(argv, NULL);
	}
	char *texts[] = {f->work, f->cache, f->sockets, f->initrd, f->kernel, f->root, f->source, f->tools};
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		free(texts[i]);
	*f = (struct bench_files){0};
}
