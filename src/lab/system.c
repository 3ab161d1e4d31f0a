// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a trial's guest runs: the lab's own root image, or the user's (guest.image), whose programs run under the lab's
 * kernel and agent (guest.boot: kernel), or which boots by itself through the firmware (guest.boot: firmware) and
 * gets the agent from a seed that cloud-init reads ("NoCloud": a file system named cidata with user-data and
 * meta-data). The user's image is never written: it is read-only, or under an overlay. Main thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/util.h"
#include "lab/paths.h"
#include "lab/spawn.h"
#include "lab/trial.h"
#include "lab/workload.h"

static const char user_data[] =
    "#cloud-config\n"
    "runcmd:\n"
    "- [sh, -c, 'mkdir -p /mnt/seed /lab; mount -o ro LABEL=cidata /mnt/seed; cp /mnt/seed/lab/* "
    "/lab/; umount /mnt/seed; chmod 755 /lab/*; /lab/lab-agent serve port; poweroff -f']\n";
static const char meta_data[] = "instance-id: kelvin-lab\nlocal-hostname: kelvin-lab\n";

/* work/seed.iso, once for a run. */
static int make_seed(const struct bench_files *f, struct err *err)
{
	static const char script[] = "set -e; command -v genisoimage >/dev/null || { echo \"guest.boot=firmware needs "
				     "Debian's package genisoimage\"; "
				     "exit 1; }; mkdir -p \"$1/seed\"; printf %s \"$2\" >\"$1/seed/user-data\"; printf "
				     "%s \"$3\" >\"$1/seed/meta-data\"; "
				     "cp -r \"$4\" \"$1/seed/lab\"; genisoimage -quiet -output \"$1/seed.iso.tmp\" "
				     "-volid cidata -joliet -rock \"$1/seed\"; "
				     "mv \"$1/seed.iso.tmp\" \"$1/seed.iso\"; rm -rf \"$1/seed\"";
	char *seed = paths_text("%s/seed.iso", f->work);
	char *argv[] = {"bash",	  "-c", (char *)script, "-", f->work, (char *)user_data, (char *)meta_data,
			f->tools, NULL};
	int ret = !seed ? -ENOMEM : access(seed, R_OK) == 0 ? 0 : spawn_wait(argv, err);

	free(seed);
	return ret;
}

int system_make(struct trial_system *s, const struct experiment *e, const struct cell *c, const struct bench_files *f,
		struct err *err)
{
	const char *image = cell_setting(c, "guest.image", NULL), *boot = cell_setting(c, "guest.boot", "kernel");
	int ret = 0;

	*s = (struct trial_system){0};
	s->firmware = !strcmp(boot, "firmware");
	if (!s->firmware && strcmp(boot, "kernel"))
		return err_set(err, -EINVAL, "guest.boot is kernel or firmware, not '%s'", boot);
	if (s->firmware && !image)
		return err_set(err, -EINVAL,
			       "guest.boot=firmware needs guest.image, a disk image that cloud-init is in");
	if (s->firmware && *cell_setting(c, "guest.append", ""))
		return err_set(err, -EINVAL,
			       "guest.append needs guest.boot=kernel: the image's own loader starts its kernel");
	if (!image) {
		s->root = f->root && e->workload->flags & WORKLOAD_ROOT ? strdup(f->root) : NULL;
		s->format = s->root ? strdup("raw") : NULL;
	} else if (!(s->root = realpath(image, NULL))) {
		ret = err_set_errno(err, -errno, "guest.image '%s'", image);
	} else if (!(s->format = image_format(s->root, err))) {
		ret = -EINVAL;
	} else if (s->firmware && !c->host) {
		s->overlay = paths_text("%s/system.qcow2", f->work);
		ret = s->overlay ? image_overlay(s->root, s->overlay, err) : -ENOMEM;
		if (!ret)
			ret = make_seed(f, err);
	}
	if (ret)
		err_prefix(err, "the guest's system");
	return ret;
}

void system_remove(struct trial_system *s)
{
	if (s->overlay)
		unlink(s->overlay);
	free(s->overlay);
	free(s->root);
	free(s->format);
	*s = (struct trial_system){0};
}
