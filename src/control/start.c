// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Life of a run: chardevs, objects and drives are created in this order, then
 * the machine, then its monitors; the main loop runs; all of it goes in reverse.
 * Main thread.
 */
#include "control/start.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "base/log.h"
#include "base/object.h"
#include "base/util.h"
#include "block/block.h"
#include "chr/chr.h"
#include "control/migrate.h"
#include "control/monitor.h"
#include "control/process.h"
#include "control/qtest.h"
#include "control/runtime.h"
#include "control/savevm.h"
#include "io/iothread.h"

struct run {
	struct cmdline *c;
	struct loop *loop;
	struct vm *vm;
};

static struct vm *quit_vm; /* for Ctrl-a x, which has no argument */

/* ---- consoles ------------------------------------------------------------------ */

static int run_add_serial(struct run *r, unsigned port, const char *text, struct err *err)
{
	char id[16];
	struct chr *chr;

	snprintf(id, sizeof(id), "serial%u", port);
	int ret = chr_create_legacy(text, id, r->loop, &chr, err);
	if (ret)
		return err_prefix(err, "-serial %s", text);
	if (!chr)
		return 0;
	r->c->vm.serial[port] = strdup(chr_id(chr));
	return r->c->vm.serial[port] ? 0 : -ENOMEM;
}

/* Monitors as shorthands become chardevs here; -mon's must exist. */
static int run_monitor_chardev(struct run *r, size_t i, struct err *err)
{
	struct cmd_monitor *m = &r->c->monitors[i];
	char id[48];
	struct chr *chr;

	if (m->by_id)
		return chr_find(m->text) ? 0 : err_set(err, -ENOENT, "-mon: there is no chardev '%s'", m->text);
	snprintf(id, sizeof(id), "compat_monitor%zu", i);
	int ret = chr_create_legacy(m->text, id, r->loop, &chr, err);
	if (ret)
		return err_prefix(err, "-%s %s", m->qmp ? "qmp" : "monitor", m->text);
	if (!chr)
		return 0;
	char *copy = strdup(chr_id(chr));
	if (!copy)
		return err_set_errno(err, -ENOMEM, "monitor");
	free(m->text);
	m->text = copy;
	m->by_id = true;
	return 0;
}

static int run_add_monitor(struct run *r, const char *chardev)
{
	struct cmdline *c = r->c;
	struct cmd_monitor *m = realloc(c->monitors, (c->nmonitors + 1) * sizeof(*m));

	if (!m)
		return -ENOMEM;
	c->monitors = m;
	m[c->nmonitors] = (struct cmd_monitor){.by_id = true, .text = strdup(chardev)};
	return m[c->nmonitors].text ? (int)(c->nmonitors++, 0) : -ENOMEM;
}

static bool has_human_monitor(const struct cmdline *c)
{
	for (size_t i = 0; i < c->nmonitors; i++)
		if (!c->monitors[i].qmp)
			return true;
	return c->no_monitor;
}

/*
 * What was not asked for and not switched off with -nodefaults, as QEMU: with
 * -nographic the first serial port and the monitor share the terminal; with
 * -display none the port exists and leads nowhere. There is no graphical display
 * yet, so a line without either behaves as -nographic.
 */
static int run_default_consoles(struct run *r, struct err *err)
{
	struct cmdline *c = r->c;
	bool serial = !c->vm.no_defaults && !c->serials.n;
	bool monitor = !c->vm.no_defaults && !has_human_monitor(c);
	bool terminal = c->console != CONSOLE_NONE && !c->daemonize && !chr_uses_stdio();

	if (c->console == CONSOLE_DEFAULT && terminal && serial)
		log_info("there is no graphical display yet: serial console and monitor are on this terminal, as with "
			 "-nographic (Ctrl-a h helps, Ctrl-a x leaves)");
	int ret = 0;
	if (serial)
		ret = run_add_serial(r, 0, !terminal ? "null" : monitor ? "mon:stdio" : "stdio", err);
	if (ret || !monitor || !terminal)
		return ret;
	if (serial)
		return run_add_monitor(r, "serial0");
	/* -nographic with the serial port elsewhere: the terminal is the monitor's. */
	struct chr *chr;
	ret = c->console == CONSOLE_NOGRAPHIC ? chr_create_legacy("stdio", "compat_monitor", r->loop, &chr, err) : 0;
	if (!ret && c->console == CONSOLE_NOGRAPHIC)
		ret = run_add_monitor(r, "compat_monitor");
	return ret;
}

/* "mon:" puts a human monitor on the same chardev, whatever -monitor says. */
static int run_mon_prefix(struct run *r)
{
	struct cmdline *c = r->c;
	int ret = 0;

	for (size_t i = 0; i < c->serials.n && i < ARRAY_SIZE(c->vm.serial) && !ret; i++)
		if (!strncmp(c->serials.v[i], "mon:", 4) && c->vm.serial[i])
			ret = run_add_monitor(r, c->vm.serial[i]);
	return ret;
}

static int run_consoles(struct run *r, struct err *err)
{
	struct cmdline *c = r->c;
	int ret = 0;

	for (size_t i = 0; i < c->chardevs.n && !ret; i++)
		if (!chr_create(c->chardevs.v[i], r->loop, err))
			ret = err_prefix(err, "-chardev %s", c->chardevs.v[i]);
	for (size_t i = 0; i < c->serials.n && !ret; i++)
		ret = run_add_serial(r, (unsigned)i, c->serials.v[i], err);
	for (size_t i = 0; i < c->nmonitors && !ret; i++)
		ret = run_monitor_chardev(r, i, err);
	if (!ret)
		ret = run_mon_prefix(r);
	if (!ret)
		ret = run_default_consoles(r, err);
	if (!ret && c->daemonize && chr_uses_stdio())
		ret = err_set(err, -EINVAL, "a character device on stdio cannot be used with -daemonize");
	return ret;
}

static int run_monitors(struct run *r, struct err *err)
{
	struct cmdline *c = r->c;
	int ret = 0;

	for (size_t i = 0; i < c->nmonitors && !ret; i++) {
		struct chr *chr = c->monitors[i].by_id ? chr_find(c->monitors[i].text) : NULL;
		if (!chr)
			continue;
		ret = c->monitors[i].qmp ? qmp_create(chr, r->vm, c->monitors[i].pretty, err)
					 : hmp_create(chr, r->vm, c->as_qemu ? "(qemu) " : "(kelvin) ", err);
	}
	return ret;
}

/* Last: its client may send commands at once. */
static int run_qtest(struct run *r, struct err *err)
{
	struct chr *chr;
	int ret = chr_create_legacy(r->c->qtest, "qtest", r->loop, &chr, err);

	if (!ret && chr)
		ret = qtest_create(chr, r->vm, r->loop, r->c->qtest_log, err);
	return ret ? err_prefix(err, "-qtest %s", r->c->qtest) : 0;
}

/* ---- backends of devices ----------------------------------------------------------- */

/*
 * -drive if=X also asks for a device. Those of the board (IDE) come before every -device, because a -device takes the
 * place that is left; virtio's come after, as in QEMU.
 */
static const struct drive_device {
	enum drive_if kind;
	bool first; /* before every -device */
	const char *disk, *cdrom;
	const char *bus;  /* name of the bus, before its number; NULL: a device of its own on the PCI bus */
	const char *unit; /* property of the place on it */
} drive_devices[] = {
    {DRIVE_IF_IDE, true, "ide-hd", "ide-cd", "ide.", "unit"},
    {DRIVE_IF_SCSI, true, "scsi-hd", "scsi-cd", "scsi.", "scsi-id"},
    {DRIVE_IF_VIRTIO, false, "virtio-blk-pci", "virtio-blk-pci", NULL, NULL},
};

/*
 * The adapters of if=scsi, one per bus number in use, before all other devices: so their buses are scsi.0, scsi.1, ...
 * The 53C895A is what QEMU's pc had for it, and what old guests drive; -M pc,default-scsi=virtio gives new ones more.
 */
static int run_scsi_adapters(const struct cmdline *c, struct text_list *first, struct err *err)
{
	const struct drive *d;
	const char *kind;
	struct opts o;
	int last = -1, ret = opts_parse(c->vm.machine ? c->vm.machine : "pc", "machine", &o, err);

	if (ret)
		return ret;
	kind = opts_get(&o, "default-scsi");
	for (size_t i = 0; (d = drive_at(i)); i++)
		if (d->bus_kind == DRIVE_IF_SCSI)
			last = MAX(last, d->bus);
	for (int i = 0; i <= last && !ret; i++)
		ret = text_list_add(first, kind && !strcmp(kind, "virtio") ? "virtio-scsi-pci" : "lsi53c895a");
	opts_free(&o);
	return ret ? err_set_errno(err, ret, "-drive") : 0;
}

static int run_drive_device(struct cmdline *c, const struct drive *d, struct text_list *first, struct err *err)
{
	const struct drive_device *e = drive_devices, *end = drive_devices + ARRAY_SIZE(drive_devices);
	char bus[32], unit[16];

	while (e < end && e->kind != (enum drive_if)d->bus_kind)
		e++;
	if (d->bus_kind == DRIVE_IF_NONE)
		return 0;
	if (e == end)
		return err_set(err, -ENOTSUP,
			       "-drive: if=%s is not implemented yet; use if=virtio, or if=none and -device",
			       drive_if_names[d->bus_kind]);
	char *text = strdup(d->cdrom ? e->cdrom : e->disk);
	int ret = text ? opts_append(&text, "drive", d->id) : -ENOMEM;
	if (e->bus) {
		snprintf(bus, sizeof(bus), "%s%d", e->bus, d->bus);
		snprintf(unit, sizeof(unit), "%d", d->unit);
		ret = ret ? ret : opts_append(&text, "bus", bus);
		ret = ret ? ret : opts_append(&text, e->unit, unit);
	}
	if (!ret)
		ret = text_list_add(e->first ? first : &c->devices, text);
	free(text);
	return ret ? err_set_errno(err, ret, "-drive") : 0;
}

/* D5 of the field cases: people write options behind the file name of -hda. */
static int run_drive_hint(const char *text, struct err *err)
{
	struct err why = *err;

	if (why.code != -ENOENT || !strstr(text, ",,"))
		return why.code ? why.code : -EINVAL;
	*err = (struct err){0};
	return err_set(err, why.code, "%s; -hda and the like take only a file name: options go to -drive file=F,...",
		       why.msg);
}

/* As QEMU's pc: an empty CD-ROM drive as third IDE drive, unless its place is taken or -nodefaults says no. */
static int run_default_cdrom(struct run *r, struct text_list *first, struct err *err)
{
	const struct drive *d;

	if (r->c->vm.no_defaults)
		return 0;
	for (size_t i = 0; i < r->c->devices.n; i++)
		if (!strncmp(r->c->devices.v[i], "ide-", 4) || !strncmp(r->c->devices.v[i], "scsi-cd", 7))
			return 0;
	for (size_t i = 0; (d = drive_at(i)); i++)
		if (d->bus_kind == DRIVE_IF_IDE && d->index == 2)
			return 0;
	d = drive_create("if=ide,index=2,media=cdrom", r->loop, err);
	return d ? run_drive_device(r->c, d, first, err) : -EINVAL;
}

static int run_drives(struct run *r, struct err *err)
{
	struct cmdline *c = r->c;
	struct text_list first = {0};
	const struct drive *d;
	int ret = 0;

	if (c->snapshot && c->blockdevs.n)
		ret = err_set(err, -EINVAL, "-snapshot is for -drive: it cannot be combined with -blockdev");
	if (c->snapshot)
		drive_snapshot_all();
	for (size_t i = 0; i < c->blockdevs.n && !ret; i++) {
		ret = blockdev_create(c->blockdevs.v[i], r->loop, err);
		if (ret)
			err_prefix(err, "-blockdev %.80s", c->blockdevs.v[i]);
	}
	for (size_t i = 0; i < c->drives.n && !ret; i++)
		if (!drive_create(c->drives.v[i], r->loop, err))
			ret = run_drive_hint(c->drives.v[i], err);
	if (!ret)
		ret = run_scsi_adapters(c, &first, err);
	for (size_t i = 0; (d = drive_at(i)) != NULL && !ret; i++)
		ret = run_drive_device(c, d, &first, err);
	if (!ret)
		ret = run_default_cdrom(r, &first, err);
	for (size_t i = 0; i < c->devices.n && !ret; i++)
		ret = text_list_add(&first, c->devices.v[i]);
	if (!ret) {
		struct text_list old = c->devices;
		c->devices = first;
		first = old;
		c->vm.devices = c->devices.v;
		c->vm.ndevices = (unsigned)c->devices.n;
	}
	text_list_free(&first);
	return ret;
}

static int run_memory_backend(struct cmdline *c, struct err *err)
{
	if (!c->memory_backend)
		return 0;
	struct object *o = object_find(c->memory_backend);
	if (!o || strncmp(o->type->name, "memory-backend-", 15))
		return err_set(err, -ENOENT, "-machine memory-backend=%s: there is no such memory-backend object",
			       c->memory_backend);
	struct object_memory *m = (struct object_memory *)o;
	if (m->size != c->vm.ram_size)
		return err_set(err, -EINVAL,
			       "-machine memory-backend=%s: its size (%llu bytes) is not -m's (%llu bytes)", o->id,
			       (unsigned long long)m->size, (unsigned long long)c->vm.ram_size);
	struct ram_config *ram = &c->vm.ram;
	if (m->mem_path) {
		free((char *)ram->path);
		ram->path = strdup(m->mem_path);
	}
	ram->prealloc |= m->prealloc;
	ram->share |= m->share;
	ram->merge = m->merge;
	ram->dump = m->dump;
	return 0;
}

static int run_backends(struct run *r, struct err *err)
{
	struct cmdline *c = r->c;
	int ret = 0;

	for (size_t i = 0; i < c->objects.n && !ret; i++)
		ret = object_create(c->objects.v[i], err);
	if (!ret)
		ret = run_memory_backend(c, err);
	for (size_t i = 0; i < c->globals.n && !ret; i++)
		ret = dev_add_global(c->globals.v[i], err);
	return ret ? ret : run_drives(r, err);
}

/* ---- running -------------------------------------------------------------------------- */

static void run_stats(void *arg)
{
	struct run *r = arg;
	struct err e = {0};

	if (r->c->stats && r->vm && vm_write_stats(r->vm, r->c->stats, &e))
		log_warn("%s", e.msg);
}

/* A path that cannot be written is the user's error at once, not a warning after hours. A FIFO may wait for its reader.
 */
static int run_stats_check(const char *path, struct err *err)
{
	if (!strcmp(path, "-"))
		return 0;
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
	if (fd < 0 && errno != ENXIO)
		return err_set_errno(err, -errno, "-stats: cannot open '%s' for writing", path);
	if (fd >= 0)
		close(fd);
	return 0;
}

static void run_quit_signal(void *arg, int sig)
{
	struct run *r = arg;

	log_info("terminating on signal %d", sig);
	vm_quit(r->vm, 0);
}

static void run_quit_key(void)
{
	if (quit_vm)
		vm_quit(quit_vm, 0);
}

static int run_prepare(struct run *r, struct err *err)
{
	struct cmdline *c = r->c;
	int ret = process_signals_install(err);

	chr_set_interrupted(process_signals_quit_asked);
	if (!ret && c->stats)
		ret = run_stats_check(c->stats, err);
	if (!ret && c->pidfile)
		ret = process_pidfile_create(c->pidfile, err);
	if (!ret && !(r->loop = loop_create("main", err)))
		ret = -ENOMEM;
	if (!ret)
		ret = run_consoles(r, err);
	/* Threads start from here on: the handlers are the main thread's alone. */
	process_signals_block();
	if (!ret)
		ret = run_backends(r, err);
	if (!ret && !(r->vm = vm_create(&c->vm, r->loop, err)))
		ret = err && err->code ? err->code : -EINVAL;
	process_signals_unblock();
	if (ret)
		return ret;
	/* After the machine: the lock must cover the guest's memory too. */
	if (c->lock_memory && mlockall(MCL_CURRENT | MCL_FUTURE) < 0)
		return err_set_errno(err, -errno, "-overcommit mem-lock=on: cannot lock the memory (ulimit -l)");
	dev_warn_unused_globals();
	ret = run_monitors(r, err);
	if (!ret)
		ret = migrate_start_incoming(r->vm, err);
	if (!ret && c->loadvm)
		ret = savevm_load_at_start(r->vm, c->loadvm, err);
	if (!ret)
		ret = process_signals_watch(r->loop, run_quit_signal, run_stats, r);
	if (!ret)
		runtime_open(r->loop, r->vm);
	if (!ret && c->qtest)
		ret = run_qtest(r, err);
	return ret ? ret : process_daemonize_ready(err);
}

static void run_destroy(struct run *r)
{
	quit_vm = NULL;
	runtime_close(r->loop);
	qtest_destroy();
	migrate_end();
	monitor_destroy_all();
	if (r->vm)
		vm_destroy(r->vm);
	drive_close_all();
	blockdev_free_all();
	iothread_stop_all();
	object_destroy_all();
	chr_destroy_all();
	loop_destroy(r->loop);
	process_pidfile_remove();
}

int start_run(struct cmdline *c)
{
	struct run r = {.c = c};
	struct err err = {0};
	int status = 1;
	int ret = c->log_file ? log_set_file(c->log_file, &err) : 0;

	if (!ret && c->daemonize)
		ret = process_daemonize_begin(&err);
	if (c->process_name)
		prctl(PR_SET_NAME, c->process_name);
	if (!ret)
		ret = run_prepare(&r, &err);
	if (!ret) {
		quit_vm = r.vm;
		chr_set_quit(run_quit_key);
		if (!c->vm.start_paused)
			vm_start(r.vm);
		status = vm_main(r.vm);
		process_signals_unwatch(r.loop);
		run_stats(&r);
	}
	run_destroy(&r);
	/* After the terminal is back: the message must not be drawn over. */
	if (ret)
		log_error("%s", err.msg[0] ? err.msg : strerror(-ret));
	return status;
}
