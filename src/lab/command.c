// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * From a cell's settings to a monitor's command line. Keys without a prefix below are options of the monitor as they
 * are: `smp: 2` is -smp 2, an empty text is an option without a value, "default" leaves it out. drive.* are properties
 * of the disk that is measured; disk.*, guest.*, host.* and work.* are the lab's own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "lab/paths.h"
#include "lab/trial.h"
#include "lab/vmm.h"
#include "lab/workload.h"

static const char *const own_prefixes[] = {"drive.", "disk.", "guest.", "host.", "work."};
static const char *const own_keys[] = {"vmm", "accel"};
static const struct {
	const char *key, *option, *value;
} defaults[] = {{"M", "-M", "pc"}, {"m", "-m", "512M"}, {"smp", "-smp", "1"}, {"cpu", "-cpu", "max"}};

const char *cell_setting(const struct cell *c, const char *key, const char *fallback)
{
	const char *v = json_string_value(json_object_get(c->settings, key));

	return v && strcmp(v, "default") ? v : fallback;
}

static int arg(struct command *m, char *text)
{
	char **more = text ? realloc(m->argv, (m->n + 2) * sizeof(*more)) : NULL;

	if (!more) {
		free(text);
		return -ENOMEM;
	}
	m->argv = more;
	more[m->n++] = text;
	more[m->n] = NULL;
	return 0;
}

/* An option and its value; takes over b. */
static int args(struct command *m, const char *a, char *b)
{
	int ret = arg(m, strdup(a));

	if (!ret)
		return arg(m, b);
	free(b);
	return ret;
}

static bool is_own(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(own_prefixes); i++)
		if (!strncmp(key, own_prefixes[i], strlen(own_prefixes[i])))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(own_keys); i++)
		if (!strcmp(key, own_keys[i]))
			return true;
	return false;
}

static int add_options(struct command *m, const struct cell *c)
{
	const char *key;
	json_t *value;
	int ret = 0;

	for (size_t i = 0; i < ARRAY_SIZE(defaults) && !ret; i++)
		if (!json_object_get(c->settings, defaults[i].key))
			ret = args(m, defaults[i].option, strdup(defaults[i].value));
	json_object_foreach(c->settings, key, value) {
		const char *v = json_string_value(value);
		if (ret || is_own(key) || !strcmp(v, "default"))
			continue;
		ret = arg(m, paths_text("-%s", key));
		if (!ret && *v)
			ret = arg(m, strdup(v));
	}
	return ret;
}

static int add_disk(struct command *m, const struct cell *c, const struct trial_disk *d)
{
	const char *kind = cell_setting(c, "drive.if", "virtio"), *key;
	/* A disk that the guest sees at an adapter of its own. */
	bool apart = m->vmm->scsi && !strcmp(kind, "scsi");
	char *text = paths_text("file=%s,format=%s,if=%s", d->loop ? d->loop : d->path, d->format,
				apart ? "none,id=labdisk" : kind);
	json_t *value;

	json_object_foreach(c->settings, key, value) {
		const char *v = json_string_value(value);
		if (strncmp(key, "drive.", 6) || !strcmp(key, "drive.if") || !strcmp(key, "drive.format") ||
		    !strcmp(v, "default"))
			continue;
		char *more = text ? paths_text("%s,%s=%s", text, key + 6, v) : NULL;
		free(text);
		text = more;
	}
	int ret = args(m, "-drive", text);
	if (!ret && apart)
		ret = args(m, "-device", strdup(m->vmm->scsi));
	if (!ret && apart)
		ret = args(m, "-device", strdup("scsi-hd,drive=labdisk"));
	return ret;
}

/* The lab's kernel and agent, or the image's own loader and the seed. */
static int add_system(struct command *m, const struct cell *c, const struct bench_files *f,
		      const struct trial_system *s)
{
	int ret = 0;

	if (s->firmware) {
		ret = args(m, "-drive", paths_text("file=%s,format=qcow2,if=virtio", s->overlay));
		if (!ret)
			ret =
			    args(m, "-drive", paths_text("file=%s/seed.iso,format=raw,if=virtio,readonly=on", f->work));
		return ret;
	}
	ret = args(m, "-kernel", strdup(f->kernel));
	if (!ret)
		ret = args(m, "-initrd", strdup(f->initrd));
	if (!ret)
		ret = args(m, "-append",
			   paths_text("console=ttyS0 quiet panic=-1 %s", cell_setting(c, "guest.append", "")));
	if (!ret && s->root)
		ret = args(m, "-drive", paths_text("file=%s,format=%s,if=virtio,readonly=on", s->root, s->format));
	return ret;
}

int command_make(struct command *m, const struct cell *c, const struct bench_files *f, const struct trial_system *s,
		 const struct trial_disk *d, struct err *err)
{
	char *path = NULL;
	const char *accel = cell_setting(c, "accel", "auto");
	int ret;

	*m = (struct command){.vmm = vmm_find(cell_setting(c, "vmm", "kelvin"), &path, err)};
	if (!m->vmm)
		return -ENOENT;
	if (!strcmp(accel, "auto"))
		accel = vmm_host_has_kvm() ? "kvm" : "soft";
	if (!strcmp(accel, "soft") || !strcmp(accel, "tcg"))
		accel = m->vmm->soft;
	else if (!strcmp(accel, "kvm"))
		accel = m->vmm->kvm;
	m->kvm = !strcmp(accel, m->vmm->kvm);
	ret = arg(m, path);
	if (!ret && m->vmm->verb)
		ret = arg(m, strdup(m->vmm->verb));
	if (!ret)
		ret = args(m, "-accel", strdup(accel));
	if (!ret)
		ret = add_options(m, c);
	static const char *const fixed[] = {"-nodefaults", "-no-reboot", "-display", "none", "-no-user-config"};
	for (size_t i = 0; i < ARRAY_SIZE(fixed) && !ret; i++)
		ret = arg(m, strdup(fixed[i]));
	if (!ret)
		ret = add_system(m, c, f, s);
	if (!ret)
		ret = args(m, "-chardev", paths_text("file,id=console,path=%s/console", f->sockets));
	if (!ret)
		ret = args(m, "-serial", strdup("chardev:console"));
	if (!ret)
		ret = args(m, "-qmp", paths_text("unix:%s/qmp,server=on,wait=off", f->sockets));
	if (!ret)
		ret = args(m, "-device", strdup("virtio-serial-pci"));
	if (!ret)
		ret = args(m, "-chardev", paths_text("socket,id=lab,path=%s/lab", f->sockets));
	if (!ret)
		ret = args(m, "-device", strdup("virtserialport,chardev=lab,name=org.kelvin.lab"));
	if (!ret && d->path)
		ret = add_disk(m, c, d);
	return ret ? err_set_errno(err, ret, "command line") : 0;
}

void command_free(struct command *m)
{
	for (size_t i = 0; i < m->n; i++)
		free(m->argv[i]);
	free(m->argv);
	*m = (struct command){0};
}
