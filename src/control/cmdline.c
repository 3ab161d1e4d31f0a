// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The table of options. A row says where the argument goes: a handler, or the
 * offset of a string, a flag or a list in struct cmdline. Main thread, at start.
 */
#include "control/cmdline.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/type.h"
#include "base/util.h"
#include "block/block.h"
#include "chr/chr.h"
#include "hw/pc/fw_cfg.h"

enum cmd_kind {
	CMD_FN,	  /* fn(c, argument) */
	CMD_TEXT, /* char *, the last one wins */
	CMD_LIST, /* struct text_list */
	CMD_FLAG, /* bool set to true */
	CMD_CALL, /* fn(c, NULL): an option without an argument */
};

struct cmd_option {
	const char *name, *arg, *help; /* arg NULL: none */
	enum cmd_kind kind;
	size_t offset;
	int (*fn)(struct cmdline *c, const char *text, struct err *err);
};

/* ---- lists ------------------------------------------------------------------- */

int text_list_add(struct text_list *l, const char *text)
{
	char **v = realloc(l->v, (l->n + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	l->v = v;
	l->v[l->n] = strdup(text);
	return l->v[l->n] ? (int)(l->n++, 0) : -ENOMEM;
}

void text_list_free(struct text_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct text_list){0};
}

/* ---- options with little to them --------------------------------------------- */

static int cmd_add_monitor(struct cmdline *c, const char *text, bool qmp, bool pretty, bool by_id)
{
	struct cmd_monitor *m = realloc(c->monitors, (c->nmonitors + 1) * sizeof(*m));

	if (!m)
		return -ENOMEM;
	c->monitors = m;
	m[c->nmonitors] = (struct cmd_monitor){qmp, pretty, by_id, strdup(text)};
	return m[c->nmonitors].text ? (int)(c->nmonitors++, 0) : -ENOMEM;
}

static int cmd_set_monitor(struct cmdline *c, const char *text, struct err *err)
{
	if (!strcmp(text, "none")) {
		c->no_monitor = true;
		return 0;
	}
	return cmd_add_monitor(c, text, false, false, false);
}

static int cmd_set_qmp(struct cmdline *c, const char *text, struct err *err)
{
	return strcmp(text, "none") ? cmd_add_monitor(c, text, true, false, false) : 0;
}

static int cmd_set_qmp_pretty(struct cmdline *c, const char *text, struct err *err)
{
	return strcmp(text, "none") ? cmd_add_monitor(c, text, true, true, false) : 0;
}

struct mon_opts {
	char *chardev, *id;
	int mode;
	bool pretty;
};
static const char *const mon_modes[] = {"readline", "control", NULL};
static const struct prop mon_props[] = {
    {.name = "chardev", .kind = PROP_STR, .offset = offsetof(struct mon_opts, chardev), .flags = PROP_REQUIRED},
    {.name = "mode", .kind = PROP_ENUM, .offset = offsetof(struct mon_opts, mode), .values = mon_modes},
    {.name = "pretty", .kind = PROP_BOOL, .offset = offsetof(struct mon_opts, pretty)},
    {.name = "id", .kind = PROP_STR, .offset = offsetof(struct mon_opts, id)},
    {.name = NULL},
};
static const struct type mon_type = {.name = "-mon", .size = sizeof(struct mon_opts), .props = mon_props};

static int cmd_set_mon(struct cmdline *c, const char *text, struct err *err)
{
	struct mon_opts m = {0};
	struct opts o;
	int ret = opts_parse(text, "chardev", &o, err);

	if (!ret)
		ret = type_set_opts(&mon_type, &m, &o, NULL, err);
	if (!ret)
		ret = opts_check_used(&o, &mon_type, err);
	if (!ret)
		ret = cmd_add_monitor(c, m.chardev, m.mode == 1, m.pretty, true);
	type_props_free(&mon_type, &m);
	opts_free(&o);
	return ret;
}

static int cmd_set_parallel(struct cmdline *c, const char *text, struct err *err)
{
	return strcmp(text, "none")
		   ? err_set(err, -ENOTSUP, "parallel ports do not exist in Kelvin yet: use -parallel none")
		   : 0;
}

static int cmd_set_display(struct cmdline *c, const char *text, struct err *err)
{
	if (strcmp(text, "none"))
		return err_set(err, -ENOTSUP,
			       "-display %s does not exist in Kelvin yet: use -display none or -nographic", text);
	c->console = CONSOLE_NONE;
	return 0;
}

static int cmd_set_nographic(struct cmdline *c, const char *text, struct err *err)
{
	c->console = CONSOLE_NOGRAPHIC;
	return 0;
}

static int cmd_set_vga(struct cmdline *c, const char *text, struct err *err)
{
	return strcmp(text, "none")
		   ? err_set(err, -ENOTSUP, "-vga %s does not exist in Kelvin yet: use -vga none", text)
		   : 0;
}

/* The shorthands for disks: the argument is a file name, whatever is in it. */
static int cmd_add_disk(struct cmdline *c, const char *options, const char *file)
{
	char *text = strdup(options);
	int ret = text ? opts_append(&text, "file", file) : -ENOMEM;

	if (!ret)
		ret = text_list_add(&c->drives, text);
	free(text);
	return ret;
}

static int cmd_set_hda(struct cmdline *c, const char *text, struct err *err)
{
	return cmd_add_disk(c, "index=0,media=disk", text);
}

static int cmd_set_hdb(struct cmdline *c, const char *text, struct err *err)
{
	return cmd_add_disk(c, "index=1,media=disk", text);
}

static int cmd_set_hdc(struct cmdline *c, const char *text, struct err *err)
{
	return cmd_add_disk(c, "index=2,media=disk", text);
}

static int cmd_set_hdd(struct cmdline *c, const char *text, struct err *err)
{
	return cmd_add_disk(c, "index=3,media=disk", text);
}

static int cmd_set_cdrom(struct cmdline *c, const char *text, struct err *err)
{
	return cmd_add_disk(c, "index=2,media=cdrom", text);
}

static int cmd_set_net(struct cmdline *c, const char *text, struct err *err)
{
	return strcmp(text, "none")
		   ? err_set(err, -ENOTSUP, "-net and -nic do not exist in Kelvin yet (only 'none'): got '%s'", text)
		   : 0;
}

/* -balloon virtio[,addr=A] of old command lines: a device like any other. */
static int cmd_set_balloon(struct cmdline *c, const char *text, struct err *err)
{
	char *device = NULL;
	int ret = 0;

	if (!strcmp(text, "none"))
		return 0;
	if (strncmp(text, "virtio", 6) || (text[6] && text[6] != ','))
		return err_set(err, -EINVAL, "-balloon: '%.60s' is neither none nor virtio[,addr=ADDR]", text);
	log_warn("-balloon is an old option: use -device virtio-balloon-pci");
	if (asprintf(&device, "virtio-balloon-pci%s", text + 6) < 0)
		return -ENOMEM;
	ret = text_list_add(&c->devices, device);
	free(device);
	return ret;
}

static int cmd_set_kvm(struct cmdline *c, const char *text, struct err *err)
{
	return cmd_set_accel(c, "kvm", err);
}

static int cmd_set_no_kvm(struct cmdline *c, const char *text, struct err *err)
{
	return cmd_set_accel(c, "soft", err);
}

static int cmd_set_log(struct cmdline *c, const char *text, struct err *err)
{
	return log_set_classes(text, err);
}

/* -trace [enable=]CLASS[,file=F]: the same classes as -d. */
struct trace_opts {
	char *enable, *file;
};
static const struct prop trace_props[] = {
    {.name = "enable", .kind = PROP_STR, .offset = offsetof(struct trace_opts, enable), .help = "a class of -d"},
    {.name = "file", .kind = PROP_STR, .offset = offsetof(struct trace_opts, file), .help = "as -D"},
    {.name = NULL},
};
static const struct type trace_type = {.name = "-trace", .size = sizeof(struct trace_opts), .props = trace_props};

static int cmd_set_trace(struct cmdline *c, const char *text, struct err *err)
{
	struct trace_opts t = {0};
	struct opts o;
	int ret = opts_parse(text, "enable", &o, err);

	if (!ret)
		ret = type_set_opts(&trace_type, &t, &o, NULL, err);
	if (!ret)
		ret = opts_check_used(&o, &trace_type, err);
	if (!ret && t.file) {
		free(c->log_file);
		c->log_file = t.file;
		t.file = NULL;
	}
	if (!ret && t.enable)
		ret = log_set_classes(t.enable, err);
	type_props_free(&trace_type, &t);
	opts_free(&o);
	return ret;
}

/* Options whose argument is a few on/off switches; a switch that does not exist yet may only be off. */
struct cmd_switches {
	bool timestamp, guest_name, mem_lock, cpu_pm;
};
#define SWITCH(n, f, about)                                                                                            \
	{                                                                                                              \
		.name = n, .kind = PROP_BOOL, .offset = offsetof(struct cmd_switches, f), .help = about                \
	}
static const struct prop msg_props[] = {SWITCH("timestamp", timestamp, "date and time in front of messages"),
					SWITCH("guest-name", guest_name, "only off"),
					{.name = NULL}};
static const struct prop overcommit_props[] = {
    SWITCH("mem-lock", mem_lock, "lock all memory"), SWITCH("cpu-pm", cpu_pm, "only off"), {.name = NULL}};
#undef SWITCH
static const struct type msg_type = {.name = "-msg", .size = sizeof(struct cmd_switches), .props = msg_props};
static const struct type overcommit_type = {
    .name = "-overcommit", .size = sizeof(struct cmd_switches), .props = overcommit_props};

static int cmd_set_switches(const struct type *type, const char *text, struct cmd_switches *s, struct err *err)
{
	struct opts o;
	int ret = opts_parse(text, NULL, &o, err);

	if (!ret)
		ret = type_set_opts(type, s, &o, NULL, err);
	if (!ret)
		ret = opts_check_used(&o, type, err);
	if (!ret && (s->guest_name || s->cpu_pm))
		ret = err_set(err, -ENOTSUP, "%s: %s=on does not exist in Kelvin yet", type->name,
			      s->cpu_pm ? "cpu-pm" : "guest-name");
	opts_free(&o);
	return ret;
}

static int cmd_set_msg(struct cmdline *c, const char *text, struct err *err)
{
	struct cmd_switches s = {.timestamp = log_timestamps};
	int ret = cmd_set_switches(&msg_type, text, &s, err);

	if (!ret)
		log_timestamps = s.timestamp;
	return ret;
}

static int cmd_set_overcommit(struct cmdline *c, const char *text, struct err *err)
{
	struct cmd_switches s = {.mem_lock = c->lock_memory};
	int ret = cmd_set_switches(&overcommit_type, text, &s, err);

	if (!ret)
		c->lock_memory = s.mem_lock;
	return ret;
}

static int cmd_set_sandbox(struct cmdline *c, const char *text, struct err *err)
{
	return strcmp(text, "off") ? err_set(err, -ENOTSUP, "-sandbox %s does not exist in Kelvin yet: only off", text)
				   : 0;
}

static int cmd_nothing(struct cmdline *c, const char *text, struct err *err)
{
	return 0;
}

static int cmd_help(struct cmdline *c, const char *text, struct err *err)
{
	cmdline_print_help();
	return 1;
}

static int cmd_version(struct cmdline *c, const char *text, struct err *err)
{
	/* Tools that start QEMU parse its line. */
	printf(c->as_qemu ? "QEMU emulator version 7.2.0 (kelvin " KELVIN_VERSION ")\n"
			  : "kelvin " KELVIN_VERSION " (takes the options of QEMU 7.2)\n");
	return 1;
}

/* ---- keys, for QMP ------------------------------------------------------------------ */

/* The types of one option each. Those of -drive, -global and -fw_cfg are elsewhere. */
#define ONE_TYPE(fn, t)                                                                                                \
	static const struct type *fn(size_t i)                                                                         \
	{                                                                                                              \
		return i ? NULL : (t);                                                                                 \
	}
ONE_TYPE(cmd_mon_keys, &mon_type)
ONE_TYPE(cmd_msg_keys, &msg_type)
ONE_TYPE(cmd_overcommit_keys, &overcommit_type)
ONE_TYPE(cmd_trace_keys, &trace_type)
ONE_TYPE(cmd_drive_keys, drive_option_type())
ONE_TYPE(cmd_global_keys, &dev_global_type)
ONE_TYPE(cmd_fw_cfg_keys, &fw_cfg_option_type)
#undef ONE_TYPE

/* Keys depend on the type that is named first: device-list-properties and qom-list-properties tell them. */
static const struct type *cmd_no_keys(size_t i)
{
	return NULL;
}

/* ---- the table ----------------------------------------------------------------- */

#define AT(f) offsetof(struct cmdline, f)
static const struct cmd_option cmd_table[] = {
    {"M", "TYPE[,KEY=VALUE...]", "machine: pc; accel=kvm:soft and the machine's properties (help lists them)", CMD_FN,
     0, cmd_set_machine},
    {"machine", "...", "as -M", CMD_FN, 0, cmd_set_machine},
    {"accel", "NAME[,KEY=VALUE...]", "CPU engine: kvm, soft (tcg is the same); several: the first that works", CMD_FN,
     0, cmd_set_accel},
    {"enable-kvm", NULL, "as -accel kvm", CMD_CALL, 0, cmd_set_kvm},
    {"no-kvm", NULL, "as -accel soft", CMD_CALL, 0, cmd_set_no_kvm},
    {"cpu", "MODEL[,+FLAG,-FLAG...]", "CPU model: max, host, ... (help lists them)", CMD_FN, 0, cmd_set_cpu},
    {"m", "SIZE", "memory in MiB, or with a suffix: 512, 4G (default 128)", CMD_FN, 0, cmd_set_memory},
    {"smp", "N[,sockets=,cores=,threads=]", "number of virtual CPUs and their topology", CMD_FN, 0, cmd_set_smp},
    {"mem-path", "PATH", "memory from a file or hugetlbfs folder", CMD_TEXT, AT(vm.ram.path), NULL},
    {"mem-prealloc", NULL, "allocate all memory at start", CMD_FLAG, AT(vm.ram.prealloc), NULL},
    {"overcommit", "mem-lock=on|off", "lock all memory, so that it is never swapped out", CMD_FN, 0,
     cmd_set_overcommit},
    {"name", "NAME", "name of the machine", CMD_FN, 0, cmd_set_name},
    {"uuid", "UUID", "UUID of the machine", CMD_FN, 0, cmd_set_uuid},
    {"drive", "file=F,if=virtio|ide|none,...", "a disk: format=, cache=, aio=, readonly=, id=, media=, index=, ...",
     CMD_LIST, AT(drives), NULL},
    {"blockdev", "driver=D,node-name=N,...", "a disk image or store by name, for -device ...,drive=N (also JSON)",
     CMD_LIST, AT(blockdevs), NULL},
    {"snapshot", NULL, "writes to drives go to temporary files and are forgotten at the end", CMD_FLAG, AT(snapshot),
     NULL},
    {"hda", "FILE", "first IDE disk (-hdb, -hdc, -hdd: the others)", CMD_FN, 0, cmd_set_hda},
    {"hdb", "FILE", "second IDE disk", CMD_FN, 0, cmd_set_hdb},
    {"hdc", "FILE", "third IDE disk", CMD_FN, 0, cmd_set_hdc},
    {"hdd", "FILE", "fourth IDE disk", CMD_FN, 0, cmd_set_hdd},
    {"cdrom", "FILE", "CD-ROM image, in the third IDE drive", CMD_FN, 0, cmd_set_cdrom},
    {"device", "NAME[,KEY=VALUE...]", "add a device (help lists them; NAME,help its properties)", CMD_FN, 0,
     cmd_set_device},
    {"balloon", "none|virtio[,addr=A]", "old form of -device virtio-balloon-pci", CMD_FN, 0, cmd_set_balloon},
    {"global", "DRIVER.PROPERTY=VALUE", "default of a device's property", CMD_LIST, AT(globals), NULL},
    {"object", "TYPE,id=ID,...", "an object devices use: rng-random, memory-backend-* (help lists them)", CMD_FN, 0,
     cmd_set_object},
    {"chardev", "BACKEND,id=ID,...", "a character device's host side: stdio, pty, file, socket, ...", CMD_FN, 0,
     cmd_set_chardev},
    {"serial", "DEV", "serial port: stdio, mon:stdio, pty, file:F, unix:P, tcp:H:P, null, none, chardev:ID", CMD_LIST,
     AT(serials), NULL},
    {"parallel", "none", "parallel port: only none", CMD_FN, 0, cmd_set_parallel},
    {"monitor", "DEV", "human monitor on a character device, as -serial", CMD_FN, 0, cmd_set_monitor},
    {"qmp", "DEV", "machine protocol (QMP) on a character device, as -serial", CMD_FN, 0, cmd_set_qmp},
    {"qmp-pretty", "DEV", "as -qmp, indented", CMD_FN, 0, cmd_set_qmp_pretty},
    {"mon", "chardev=ID,mode=readline|control", "monitor or QMP on a -chardev", CMD_FN, 0, cmd_set_mon},
    {"qtest", "DEV", "test protocol (ports, memory, clock, interrupt lines) on a character device; see -accel qtest",
     CMD_TEXT, AT(qtest), NULL},
    {"qtest-log", "FILE", "write what -qtest receives and sends there (none: nowhere)", CMD_TEXT, AT(qtest_log), NULL},
    {"nographic", NULL, "serial console and monitor on this terminal (Ctrl-a h helps)", CMD_CALL, 0, cmd_set_nographic},
    {"display", "none", "display: only none", CMD_FN, 0, cmd_set_display},
    {"vga", "none", "graphics card: only none", CMD_FN, 0, cmd_set_vga},
    {"net", "none", "network: only none", CMD_FN, 0, cmd_set_net},
    {"nic", "none", "network: only none", CMD_FN, 0, cmd_set_net},
    {"nodefaults", NULL, "no serial port or monitor that was not asked for", CMD_FLAG, AT(vm.no_defaults), NULL},
    {"no-user-config", NULL, "accepted: there are no configuration files", CMD_CALL, 0, cmd_nothing},
    {"kernel", "FILE", "Linux bzImage, multiboot or PVH ELF kernel to start", CMD_TEXT, AT(vm.kernel), NULL},
    {"bios", "FILE", "firmware for machines without -kernel (default: Debian's SeaBIOS)", CMD_TEXT, AT(vm.bios), NULL},
    {"initrd", "FILE[,FILE...]", "initial RAM disks, joined in this order", CMD_FN, 0, cmd_set_initrd},
    {"append", "TEXT", "the kernel's command line", CMD_TEXT, AT(vm.append), NULL},
    {"boot", "[order=]DRIVES[,...]", "boot order", CMD_FN, 0, cmd_set_boot},
    {"rtc", "base=utc|localtime|DATE", "the real-time clock's start", CMD_FN, 0, cmd_set_rtc},
    {"no-acpi", NULL, "no ACPI tables", CMD_FLAG, AT(vm.no_acpi), NULL},
    {"no-hpet", NULL, "no HPET", CMD_FLAG, AT(vm.no_hpet), NULL},
    {"smbios", "type=N,...", "fields of the SMBIOS tables", CMD_LIST, AT(smbios), NULL},
    {"fw_cfg", "name=N,file=F|string=S", "an entry of the fw_cfg device", CMD_LIST, AT(fw_cfg), NULL},
    {"S", NULL, "do not start the CPUs (monitor command: cont)", CMD_FLAG, AT(vm.start_paused), NULL},
    {"incoming", "URI|defer",
     "load the machine from file:PATH, exec:COMMAND, unix:PATH, tcp:HOST:PORT, fd:N; defer: migrate-incoming says",
     CMD_TEXT, AT(vm.incoming), NULL},
    {"loadvm", "NAME", "load the machine that savevm has saved in its disks", CMD_TEXT, AT(loadvm), NULL},
    {"no-reboot", NULL, "leave instead of rebooting", CMD_FLAG, AT(vm.no_reboot), NULL},
    {"no-shutdown", NULL, "stop instead of leaving when the guest powers off", CMD_FLAG, AT(vm.no_shutdown), NULL},
    {"action", "EVENT=ACTION", "reboot=reset|shutdown, shutdown=poweroff|pause", CMD_FN, 0, cmd_set_action},
    {"daemonize", NULL, "go to the background when the machine is ready", CMD_FLAG, AT(daemonize), NULL},
    {"pidfile", "FILE", "write the process ID there; removed at exit", CMD_TEXT, AT(pidfile), NULL},
    {"stats", "FILE", "counters as JSON, at exit and on SIGUSR1", CMD_TEXT, AT(stats), NULL},
    {"timeline", NULL, "print when what happened at start, at exit", CMD_FLAG, AT(vm.timeline), NULL},
    {"d", "CLASS[,CLASS...]", "diagnostics (help lists the classes)", CMD_FN, 0, cmd_set_log},
    {"trace", "[enable=]CLASS[,file=F]", "as -d and -D", CMD_FN, 0, cmd_set_trace},
    {"D", "FILE", "file for -d's output", CMD_TEXT, AT(log_file), NULL},
    {"msg", "timestamp=on|off", "date and time in front of messages", CMD_FN, 0, cmd_set_msg},
    {"sandbox", "off", "restrict the process: only off", CMD_FN, 0, cmd_set_sandbox},
    {"version", NULL, "print the version", CMD_CALL, 0, cmd_version},
    {"help", NULL, "print this text", CMD_CALL, 0, cmd_help},
    {"h", NULL, "as -help", CMD_CALL, 0, cmd_help},
};
#undef AT

void cmdline_print_help(void)
{
	printf("usage: kelvin run OPTIONS\n\nOptions have QEMU's names and meaning; one or two dashes.\n");
	for (size_t i = 0; i < ARRAY_SIZE(cmd_table); i++) {
		const struct cmd_option *o = &cmd_table[i];
		char left[80];
		snprintf(left, sizeof(left), "-%s %s", o->name, o->arg ? o->arg : "");
		printf("  %-34s%s%s\n", left, strlen(left) > 33 ? "\n                                    " : "",
		       o->help);
	}
}

/* Under the names QMP has for them. */
static const struct cmd_keys key_table[] = {
    {"machine", cmd_machine_keys},
    {"accel", cmd_accel_keys},
    {"memory", cmd_memory_keys},
    {"smp-opts", cmd_smp_keys},
    {"overcommit", cmd_overcommit_keys},
    {"name", cmd_name_keys},
    {"drive", cmd_drive_keys},
    {"device", cmd_no_keys},
    {"global", cmd_global_keys},
    {"object", cmd_no_keys},
    {"chardev", chr_type_at},
    {"mon", cmd_mon_keys},
    {"boot-opts", cmd_boot_keys},
    {"rtc", cmd_rtc_keys},
    {"fw_cfg", cmd_fw_cfg_keys},
    {"action", cmd_action_keys},
    {"msg", cmd_msg_keys},
    {"trace", cmd_trace_keys},
};

const struct cmd_keys *cmdline_keys_at(size_t i)
{
	return i < ARRAY_SIZE(key_table) ? &key_table[i] : NULL;
}

static const struct cmd_option *cmd_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(cmd_table); i++)
		if (!strcmp(cmd_table[i].name, name))
			return &cmd_table[i];
	return NULL;
}

static int cmd_unknown(const char *name, const char *given, struct err *err)
{
	const char *names[ARRAY_SIZE(cmd_table)];

	if (cmdline_refused(name, err))
		return -ENOTSUP;
	for (size_t i = 0; i < ARRAY_SIZE(cmd_table); i++)
		names[i] = cmd_table[i].name;
	const char *near = text_nearest(name, names, ARRAY_SIZE(names));
	return err_set(err, -EINVAL, "there is no option '%.60s'%s%s%s", given, near ? "; did you mean '-" : "",
		       near ? near : "", near ? "'?" : "; kelvin help lists them");
}

static int cmd_apply(struct cmdline *c, const struct cmd_option *o, const char *arg, struct err *err)
{
	char *field = (char *)c + o->offset;

	switch (o->kind) {
	case CMD_FLAG: *(bool *)field = true; return 0;
	case CMD_LIST: return text_list_add((struct text_list *)(void *)field, arg);
	case CMD_TEXT:
		free(*(char **)(void *)field);
		*(char **)(void *)field = strdup(arg);
		return *(char **)(void *)field ? 0 : -ENOMEM;
	default: return o->fn(c, arg, err);
	}
}

static int cmdline_parse_args(struct cmdline *c, int argc, char **argv, struct err *err)
{
	for (int i = 1; i < argc; i++) {
		const char *given = argv[i], *name = given;
		if (given[0] != '-' || !given[1])
			return err_set(err, -EINVAL,
				       "'%.200s' is not an option; a disk is given as -drive file=%.200s,if=virtio",
				       given, given);
		name += given[1] == '-' ? 2 : 1;
		const struct cmd_option *o = cmd_find(name);
		if (!o)
			return cmd_unknown(name, given, err);
		if (o->arg && i + 1 == argc)
			return err_set(err, -EINVAL, "option '%s' needs an argument: %s", given, o->arg);
		int ret = cmd_apply(c, o, o->arg ? argv[++i] : NULL, err);
		if (ret < 0) {
			err_set_errno(err, ret, "option '%s'", given);
			return ret;
		}
		if (ret)
			return ret;
	}
	return 0;
}

bool cmdline_is_qemu_name(const char *argv0)
{
	const char *slash = strrchr(argv0, '/'), *name = slash ? slash + 1 : argv0;

	return !strncmp(name, "qemu-system-", 12) || !strcmp(name, "qemu-kvm") || !strcmp(name, "kvm");
}

int cmdline_parse(struct cmdline *c, int argc, char **argv, struct err *err)
{
	memset(c, 0, sizeof(*c));
	c->as_qemu = argc > 0 && cmdline_is_qemu_name(argv[0]);
	int ret = cmdline_parse_args(c, argc, argv, err);
	return ret ? ret : cmdline_finish(c, err);
}

void cmdline_free(struct cmdline *c)
{
	struct text_list *lists[] = {&c->drives,  &c->blockdevs, &c->chardevs, &c->serials, &c->objects, &c->globals,
				     &c->devices, &c->smbios,	 &c->fw_cfg,   &c->initrds, &c->accels};
	char *texts[] = {c->vm.machine,	    c->vm.accel, c->vm.cpu,    (char *)c->vm.ram.path,
			 c->vm.kernel,	    c->vm.bios,	 c->vm.append, c->vm.dtb,
			 c->vm.name,	    c->vm.uuid,	 c->vm.boot,   c->vm.rtc_base,
			 c->pidfile,	    c->stats,	 c->log_file,  c->process_name,
			 c->memory_backend, c->qtest,	 c->qtest_log, c->vm.incoming,
			 c->loadvm};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		text_list_free(lists[i]);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		free(texts[i]);
	for (size_t i = 0; i < ARRAY_SIZE(c->vm.serial); i++)
		free(c->vm.serial[i]);
	for (size_t i = 0; i < c->nmonitors; i++)
		free(c->monitors[i].text);
	free(c->monitors);
	memset(c, 0, sizeof(*c));
}
