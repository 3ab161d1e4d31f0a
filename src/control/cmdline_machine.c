// SPDX-License-Identifier: GPL-2.0-or-later
/* Options that describe the machine: -M, -accel, -cpu, -m, -smp, -uuid, -name, -rtc, -boot, -action, -initrd, and help.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/object.h"
#include "base/type.h"
#include "base/util.h"
#include "chr/chr.h"
#include "control/cmdline.h"
#include "cpu/model.h"

#define RAM_DEFAULT (128 * MIB)
#define CPUS_MAX    255 /* the board's own limit may be lower */

static int set_text(char **field, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

static bool is_help(const char *text)
{
	return text && (!strcmp(text, "help") || !strcmp(text, "?"));
}

/* ---- -M ------------------------------------------------------------------------ */

static bool board_named(const struct board_ops *b, const char *name)
{
	bool found = !strcmp(b->type.name, name);

	for (const char *const *a = b->aliases; a && *a && !found; a++)
		found = !strcmp(*a, name);
	return found;
}

static const struct board_ops *board_find(const char *name, struct err *err)
{
	const char *names[32];
	size_t n = 0;

	for (size_t i = 0; board_table[i]; i++) {
		if (board_named(board_table[i], name))
			return board_table[i];
		if (n < ARRAY_SIZE(names))
			names[n++] = board_table[i]->type.name;
	}
	static const char *const missing[] = {"q35", "microvm", "isapc", "xenfv", "x-remote"};
	for (size_t i = 0; i < ARRAY_SIZE(missing); i++)
		if (!strncmp(name, missing[i], strlen(missing[i])) || !strncmp(name, "pc-q35", 6)) {
			err_set(err, -ENOTSUP, "the machine type '%.60s' does not exist in Kelvin yet: use -M pc",
				name);
			return NULL;
		}
	const char *near = text_nearest(name, names, n);
	err_set(err, -EINVAL, "there is no machine type '%.60s'%s%s%s (-M help lists them)", name,
		near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
	return NULL;
}

static int machine_print_list(void)
{
	printf("Machine types:\n");
	for (size_t i = 0; board_table[i]; i++) {
		printf("  %-16s %s", board_table[i]->type.name, board_table[i]->type.about);
		for (const char *const *a = board_table[i]->aliases; a && *a; a++)
			printf("%s%s", a == board_table[i]->aliases ? " (also: " : ", ", *a);
		printf("%s\n", board_table[i]->aliases && board_table[i]->aliases[0] ? ")" : "");
	}
	return 1;
}

/*
 * Keys of -M that are not the board's own properties. Those in lists of values are the only behaviour Kelvin has, and
 * are checked for asking just that.
 */
struct machine_common {
	char *accel, *memory_backend;
	bool mem_merge, dump_guest_core;
};
#define COMMON(n, k, f)                                                                                                \
	{                                                                                                              \
		.name = n, .kind = k, .offset = offsetof(struct machine_common, f)                                     \
	}
#define FIXED(n, ...)                                                                                                  \
	{                                                                                                              \
		.name = n, .kind = PROP_ENUM, .values = (const char *const[])                                          \
		{                                                                                                      \
			__VA_ARGS__, NULL                                                                              \
		}                                                                                                      \
	}
static const struct prop machine_common_props[] = {
    COMMON("accel", PROP_STR, accel),
    COMMON("memory-backend", PROP_STR, memory_backend),
    COMMON("mem-merge", PROP_BOOL, mem_merge),
    COMMON("dump-guest-core", PROP_BOOL, dump_guest_core),
    FIXED("usb", "off"),
    FIXED("vmport", "off", "auto"),
    FIXED("smm", "off", "auto"),
    FIXED("graphics", "off", "on"),
    FIXED("kernel-irqchip", "on"),
    FIXED("igd-passthru", "off"),
    FIXED("nvdimm", "off"),
    {.name = NULL},
};
#undef COMMON
#undef FIXED
static const struct type machine_common_type = {
    .name = "-M", .size = sizeof(struct machine_common), .props = machine_common_props};

static int machine_common_key(struct cmdline *c, const char *key, const char *value, struct err *err)
{
	const struct prop *p = type_find_prop(&machine_common_type, key);
	struct machine_common m = {0};

	if (!p)
		return -ENOENT;
	if (p->kind == PROP_ENUM) {
		for (const char *const *v = p->values; *v; v++)
			if (!strcmp(value, *v))
				return 0;
		return err_set(err, -ENOTSUP, "-M: %s=%.40s does not exist in Kelvin yet", key, value);
	}
	if (!strcmp(key, "accel")) {
		for (size_t i = 0; i < c->accels.n; i++)
			free(c->accels.v[i]);
		c->accels.n = 0;
		return cmd_set_accel(c, value, err);
	}
	int ret = type_set(&machine_common_type, &m, key, value, err);
	if (!ret && m.memory_backend)
		ret = set_text(&c->memory_backend, m.memory_backend);
	else if (!ret)
		*(key[0] == 'm' ? &c->vm.ram.merge : &c->vm.ram.dump) = key[0] == 'm' ? m.mem_merge : m.dump_guest_core;
	type_props_free(&machine_common_type, &m);
	return ret;
}

const struct type *cmd_machine_keys(size_t i)
{
	return i ? (board_table[i - 1] ? &board_table[i - 1]->type : NULL) : &machine_common_type;
}

const struct type *cmd_accel_keys(size_t i)
{
	return accel_table[i] ? &accel_table[i]->type : NULL;
}

int cmd_set_machine(struct cmdline *c, const char *text, struct err *err)
{
	struct opts o;
	int ret = opts_parse(text, "type", &o, err);

	if (ret)
		return ret;
	const char *type = opts_get(&o, "type");
	const struct board_ops *board = NULL;
	if (is_help(type))
		ret = machine_print_list();
	else if (!(board = board_find(type ? type : "pc", err)))
		ret = -EINVAL;
	else
		ret = set_text(&c->vm.machine, board->type.name);
	for (size_t i = 0; i < o.n && !ret; i++) {
		const char *key = o.v[i].key, *value = o.v[i].value;
		if (o.v[i].used)
			continue;
		if (is_help(key)) {
			type_print_help(&board->type);
			ret = 1;
			break;
		}
		ret = machine_common_key(c, key, value, err);
		if (ret != -ENOENT)
			continue;
		/* The board's own: vm_create sets it; an unknown name is found here already. */
		ret = type_find_prop(&board->type, key) ? opts_append(&c->vm.machine, key, value)
							: opts_check_used(&o, &board->type, err);
	}
	opts_free(&o);
	return ret;
}

/* ---- -accel, -cpu ------------------------------------------------------------------ */

static int accel_print_list(void)
{
	printf("CPU engines:\n");
	for (size_t i = 0; accel_table[i]; i++) {
		struct err e = {0};
		int ret = accel_table[i]->probe(&e);
		printf("  %-8s %s%s%s%s\n", accel_table[i]->type.name, accel_table[i]->type.about,
		       ret ? " (not here: " : "", ret ? e.msg : "", ret ? ")" : "");
	}
	printf("  %-8s another name for soft\n", "tcg");
	return 1;
}

/* Check one engine's name; its options are checked by the engine. */
static int accel_check(const char *name, size_t len, struct err *err)
{
	static const char *const missing[] = {"xen", "hax", "hvf", "whpx", "nvmm"};
	const char *names[8] = {"tcg"};
	size_t n = 1;
	char word[32];

	snprintf(word, sizeof(word), "%.*s", (int)MIN(len, sizeof(word) - 1), name);
	if (accel_find(word))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(missing); i++)
		if (!strcmp(word, missing[i]))
			return err_set(err, -ENOTSUP, "the CPU engine '%s' does not exist in Kelvin: use kvm or soft",
				       word);
	for (size_t i = 0; accel_table[i] && n < ARRAY_SIZE(names); i++)
		names[n++] = accel_table[i]->type.name;
	const char *near = text_nearest(word, names, n);
	return err_set(err, -EINVAL, "there is no CPU engine '%s'%s%s%s (-accel help lists them)", word,
		       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int cmd_set_accel(struct cmdline *c, const char *text, struct err *err)
{
	if (is_help(text))
		return accel_print_list();
	if (!*text)
		return err_set(err, -EINVAL, "-accel: a CPU engine is missing (kvm or soft)");
	/* "kvm:soft" names several; options after a comma belong to the engine before it. */
	for (const char *s = text;; s++) {
		size_t n = strcspn(s, ":");
		size_t name = MIN(n, strcspn(s, ","));
		int ret = name ? accel_check(s, name, err)
			       : err_set(err, -EINVAL, "-accel: '%.60s' has an empty name (kvm or soft)", text);
		if (ret)
			return ret;
		s += n;
		if (!*s)
			break;
	}
	return text_list_add(&c->accels, text);
}

int cmd_set_cpu(struct cmdline *c, const char *text, struct err *err)
{
	if (is_help(text)) {
		cpu_model_list();
		return 1;
	}
	return set_text(&c->vm.cpu, text);
}

/* ---- -m, -smp ------------------------------------------------------------------------ */

struct memory_opts {
	char *size;
};
static const struct prop memory_props[] = {{.name = "size",
					    .kind = PROP_STR,
					    .offset = offsetof(struct memory_opts, size),
					    .help = "in MiB, or with a suffix"},
					   {.name = NULL}};
static const struct type memory_type = {.name = "-m", .size = sizeof(struct memory_opts), .props = memory_props};

int cmd_set_memory(struct cmdline *c, const char *text, struct err *err)
{
	struct opts o;
	int ret = opts_parse(text, "size", &o, err);

	if (ret)
		return ret;
	const char *size = opts_get(&o, "size");
	for (size_t i = 0; i < o.n && !ret; i++)
		if (!o.v[i].used)
			ret =
			    err_set(err, -ENOTSUP, "-m: '%.60s' does not exist in Kelvin yet: only size=", o.v[i].key);
	if (!ret && !size)
		ret = err_set(err, -EINVAL, "-m: a size is missing");
	int bad = ret ? 0 : text_parse_size(size, MIB, &c->vm.ram_size);
	if (bad == -ERANGE)
		ret = err_set(err, -ERANGE, "-m: '%.60s' is outside 1M to 1024T", size);
	else if (bad)
		ret = err_set(err, -EINVAL, "-m: '%.60s' is not a size such as 512, 4096M, 1.5G", size);
	if (!ret && !c->vm.ram_size)
		c->vm.ram_size = RAM_DEFAULT; /* QEMU's reading of -m 0 */
	if (!ret && (c->vm.ram_size < MIB || c->vm.ram_size > 1024 * 1024 * GIB))
		ret = err_set(err, -ERANGE, "-m: '%.60s' is outside 1M to 1024T", size);
	if (!ret)
		c->vm.ram_size = ALIGN_UP(c->vm.ram_size, 8192); /* as QEMU: whole pages */
	opts_free(&o);
	return ret;
}

struct smp_opts {
	uint32_t cpus, sockets, dies, clusters, cores, threads, maxcpus;
};
#define SMP(n)                                                                                                         \
	{                                                                                                              \
		.name = #n, .kind = PROP_U32, .offset = offsetof(struct smp_opts, n), .max = CPUS_MAX                  \
	}
static const struct prop smp_props[] = {SMP(cpus),  SMP(sockets), SMP(dies),	SMP(clusters),
					SMP(cores), SMP(threads), SMP(maxcpus), {.name = NULL}};
#undef SMP
static const struct type smp_type = {.name = "-smp", .size = sizeof(struct smp_opts), .props = smp_props};

/* Fill what was not given; cores take what is left, as QEMU since 6.2. */
static int smp_complete(struct smp_opts *s, struct err *err)
{
	if (s->dies > 1 || s->clusters > 1)
		return err_set(err, -ENOTSUP, "-smp: dies= and clusters= do not exist in Kelvin yet (only 1)");
	if (!s->cpus)
		s->cpus = s->maxcpus ? s->maxcpus : MAX(s->sockets, 1u) * MAX(s->cores, 1u) * MAX(s->threads, 1u);
	if (s->maxcpus && s->maxcpus != s->cpus)
		return err_set(err, -ENOTSUP, "-smp: maxcpus=%u with cpus=%u: CPU hotplug does not exist in Kelvin yet",
			       s->maxcpus, s->cpus);
	s->threads = MAX(s->threads, 1u);
	if (!s->cores)
		s->cores = MAX(s->cpus / (MAX(s->sockets, 1u) * s->threads), 1u);
	if (!s->sockets)
		s->sockets = MAX(s->cpus / (s->cores * s->threads), 1u);
	if (s->sockets * s->cores * s->threads != s->cpus)
		return err_set(err, -EINVAL, "-smp: sockets (%u) * cores (%u) * threads (%u) is not cpus (%u)",
			       s->sockets, s->cores, s->threads, s->cpus);
	return 0;
}

int cmd_set_smp(struct cmdline *c, const char *text, struct err *err)
{
	struct smp_opts s = {0};
	struct opts o;
	int ret = opts_parse(text, "cpus", &o, err);

	if (ret)
		return ret;
	ret = type_set_opts(&smp_type, &s, &o, NULL, err);
	if (!ret)
		ret = opts_check_used(&o, &smp_type, err);
	for (size_t i = 0; i < o.n && !ret; i++)
		if (!strcmp(o.v[i].value, "0"))
			log_warn("-smp: %s=0 is read as 1", o.v[i].key);
	if (!ret)
		ret = smp_complete(&s, err);
	if (!ret) {
		c->vm.cpus = s.cpus;
		c->vm.sockets = s.sockets;
		c->vm.cores = s.cores;
		c->vm.threads = s.threads;
	}
	opts_free(&o);
	return ret;
}

/* ---- identity, clock, boot order -------------------------------------------------------- */

int cmd_set_uuid(struct cmdline *c, const char *text, struct err *err)
{
	static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
	uint8_t bytes[16];
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(form); i++) {
		bool ok = form[i] == 'x' ? isxdigit((unsigned char)text[i]) != 0 : text[i] == form[i];
		if (!ok)
			return err_set(err, -EINVAL, "-uuid: '%.60s' is not of the form %s", text, form);
		if (form[i] != 'x')
			continue;
		int digit =
		    isdigit((unsigned char)text[i]) ? text[i] - '0' : tolower((unsigned char)text[i]) - 'a' + 10;
		bytes[n / 2] = (uint8_t)(n & 1 ? bytes[n / 2] | digit : digit << 4);
		n++;
	}
	memcpy(c->vm.uuid_bytes, bytes, sizeof(bytes));
	c->vm.have_uuid = true;
	return set_text(&c->vm.uuid, text);
}

struct name_opts {
	char *guest, *process;
	bool debug_threads; /* they always carry names */
};
static const struct prop name_props[] = {
    {.name = "guest", .kind = PROP_STR, .offset = offsetof(struct name_opts, guest), .help = "the machine's"},
    {.name = "process", .kind = PROP_STR, .offset = offsetof(struct name_opts, process), .help = "as ps shows it"},
    {.name = "debug-threads", .kind = PROP_BOOL, .offset = offsetof(struct name_opts, debug_threads)},
    {.name = NULL},
};
static const struct type name_type = {.name = "-name", .size = sizeof(struct name_opts), .props = name_props};

int cmd_set_name(struct cmdline *c, const char *text, struct err *err)
{
	struct name_opts n = {0};
	struct opts o;
	int ret = opts_parse(text, "guest", &o, err);

	if (!ret)
		ret = type_set_opts(&name_type, &n, &o, NULL, err);
	if (!ret)
		ret = opts_check_used(&o, &name_type, err);
	if (!ret && n.guest)
		ret = set_text(&c->vm.name, n.guest);
	if (!ret && n.process)
		ret = set_text(&c->process_name, n.process);
	type_props_free(&name_type, &n);
	opts_free(&o);
	return ret;
}

static bool rtc_is_date(const char *s)
{
	struct tm tm = {0};
	const char *end = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);

	if (!end)
		end = strptime(s, "%Y-%m-%d", &tm);
	return end && !*end;
}

struct rtc_opts {
	char *base, *clock, *driftfix;
};
#define RTC(n, about)                                                                                                  \
	{                                                                                                              \
		.name = #n, .kind = PROP_STR, .offset = offsetof(struct rtc_opts, n), .help = about                    \
	}
static const struct prop rtc_props[] = {
    RTC(base, "utc, localtime or a date"), RTC(clock, "host or vm"), RTC(driftfix, "only none"), {.name = NULL}};
#undef RTC
static const struct type rtc_type = {.name = "-rtc", .size = sizeof(struct rtc_opts), .props = rtc_props};

int cmd_set_rtc(struct cmdline *c, const char *text, struct err *err)
{
	struct rtc_opts r = {0};
	struct opts o;
	int ret = opts_parse(text, "base", &o, err);

	if (!ret)
		ret = type_set_opts(&rtc_type, &r, &o, NULL, err);
	if (!ret)
		ret = opts_check_used(&o, &rtc_type, err);
	if (ret)
		goto out;
	if (r.base && strcmp(r.base, "utc") && strcmp(r.base, "localtime") && !rtc_is_date(r.base))
		ret = err_set(err, -EINVAL, "-rtc: base '%.60s' is not utc, localtime or a date (2006-06-17T16:01:21)",
			      r.base);
	else if (r.clock && strcmp(r.clock, "host") && strcmp(r.clock, "vm"))
		ret = err_set(err, -ENOTSUP, "-rtc: clock=%.40s does not exist in Kelvin: use host or vm", r.clock);
	else if (r.driftfix && strcmp(r.driftfix, "none"))
		ret =
		    err_set(err, -ENOTSUP, "-rtc: driftfix=%.40s does not exist in Kelvin yet: only none", r.driftfix);
	if (!ret && r.base)
		ret = set_text(&c->vm.rtc_base, r.base);
	if (!ret && r.clock)
		ret = text_list_add(&c->globals,
				    !strcmp(r.clock, "vm") ? "mc146818rtc.clock=vm" : "mc146818rtc.clock=host");
out:
	type_props_free(&rtc_type, &r);
	opts_free(&o);
	return ret;
}

static int boot_check_order(const char *order, struct err *err)
{
	unsigned seen = 0;

	for (const char *s = order; *s; s++) {
		if (*s < 'a' || *s > 'p')
			return err_set(
			    err, -EINVAL,
			    "Invalid boot device '%c' in -boot %.40s (a floppy, c disk, d CD-ROM, n network)", *s,
			    order);
		if (seen & 1u << (*s - 'a'))
			return err_set(err, -EINVAL, "Boot device '%c' was given twice in -boot %.40s", *s, order);
		seen |= 1u << (*s - 'a');
	}
	return 0;
}

/* The firmware gets the text as it is; here it is only checked. */
struct boot_opts {
	char *order, *once, *menu, *strict, *splash, *splash_time, *reboot_timeout;
};
#define BOOT(n, f)                                                                                                     \
	{                                                                                                              \
		.name = n, .kind = PROP_STR, .offset = offsetof(struct boot_opts, f)                                   \
	}
static const struct prop boot_props[] = {BOOT("order", order),
					 BOOT("once", once),
					 BOOT("menu", menu),
					 BOOT("strict", strict),
					 BOOT("splash", splash),
					 BOOT("splash-time", splash_time),
					 BOOT("reboot-timeout", reboot_timeout),
					 {.name = NULL}};
#undef BOOT
static const struct type boot_type = {.name = "-boot", .size = sizeof(struct boot_opts), .props = boot_props};

int cmd_set_boot(struct cmdline *c, const char *text, struct err *err)
{
	struct boot_opts b = {0};
	struct opts o;
	int ret = opts_parse(text, "order", &o, err);

	if (!ret)
		ret = type_set_opts(&boot_type, &b, &o, NULL, err);
	if (!ret)
		ret = opts_check_used(&o, &boot_type, err);
	if (!ret && b.order)
		ret = boot_check_order(b.order, err);
	if (!ret && b.once)
		ret = boot_check_order(b.once, err);
	type_props_free(&boot_type, &b);
	opts_free(&o);
	return ret ? ret : set_text(&c->vm.boot, text);
}

struct action_opts {
	int reboot, shutdown;
};
static const char *const reboot_actions[] = {"reset", "shutdown", NULL};
static const char *const shutdown_actions[] = {"poweroff", "pause", NULL};
static const struct prop action_props[] = {
    {.name = "reboot",
     .kind = PROP_ENUM,
     .offset = offsetof(struct action_opts, reboot),
     .values = reboot_actions,
     .help = "when the guest resets"},
    {.name = "shutdown",
     .kind = PROP_ENUM,
     .offset = offsetof(struct action_opts, shutdown),
     .values = shutdown_actions,
     .help = "when the guest powers off"},
    {.name = NULL},
};
static const struct type action_type = {.name = "-action", .size = sizeof(struct action_opts), .props = action_props};

int cmd_set_action(struct cmdline *c, const char *text, struct err *err)
{
	struct action_opts a = {c->vm.no_reboot, c->vm.no_shutdown};
	struct opts o;
	int ret = opts_parse(text, NULL, &o, err);

	for (size_t i = 0; i < o.n && !ret; i++)
		if (type_set(&action_type, &a, o.v[i].key, o.v[i].value, NULL))
			ret = err_set(err, -ENOTSUP,
				      "-action: '%.40s=%.40s' does not exist in Kelvin yet "
				      "(reboot=reset|shutdown, shutdown=poweroff|pause)",
				      o.v[i].key, o.v[i].value);
	if (!ret) {
		c->vm.no_reboot = a.reboot;
		c->vm.no_shutdown = a.shutdown;
	}
	opts_free(&o);
	return ret;
}

/* ---- keys, for QMP ----------------------------------------------------------------------- */

#define ONE_TYPE(fn, t)                                                                                                \
	const struct type *fn(size_t i)                                                                                \
	{                                                                                                              \
		return i ? NULL : &(t);                                                                                \
	}
ONE_TYPE(cmd_memory_keys, memory_type)
ONE_TYPE(cmd_smp_keys, smp_type)
ONE_TYPE(cmd_name_keys, name_type)
ONE_TYPE(cmd_rtc_keys, rtc_type)
ONE_TYPE(cmd_boot_keys, boot_type)
ONE_TYPE(cmd_action_keys, action_type)
#undef ONE_TYPE

/* ---- files, devices, backends ------------------------------------------------------------ */

int cmd_set_initrd(struct cmdline *c, const char *text, struct err *err)
{
	char *buf = malloc(strlen(text) + 1), *w = buf;
	int ret = buf ? 0 : -ENOMEM;

	for (const char *s = text; !ret; s++) {
		/* A comma separates, two are one in a file's name. */
		if (*s == ',' && s[1] == ',')
			*w++ = *s++;
		else if (*s && *s != ',')
			*w++ = *s;
		else {
			*w = 0;
			ret = buf[0] ? text_list_add(&c->initrds, buf)
				     : err_set(err, -EINVAL, "-initrd: '%.60s' has an empty file name", text);
			w = buf;
			if (!*s)
				break;
		}
	}
	free(buf);
	return ret;
}

static int device_print_list(void)
{
	static const char *const bus_names[] = {
	    [DEV_BUS_SYSTEM] = "system", [DEV_BUS_PCI] = "PCI",	  [DEV_BUS_VIRTIO_SERIAL] = "virtio-serial",
	    [DEV_BUS_IDE] = "IDE",	 [DEV_BUS_SCSI] = "SCSI", [DEV_BUS_NONE] = "none"};

	printf("Devices (-device NAME,help prints the properties of one):\n");
	for (size_t i = 0; dev_table[i]; i++)
		if (dev_table[i]->user_creatable)
			printf("  %-24s %-14s %s\n", dev_table[i]->type.name, bus_names[dev_table[i]->bus_kind],
			       dev_table[i]->type.about);
	return 1;
}

int cmd_set_device(struct cmdline *c, const char *text, struct err *err)
{
	struct opts o;

	if (is_help(text))
		return device_print_list();
	int ret = opts_parse(text, "driver", &o, err);
	if (ret)
		return ret;
	bool help = opts_get(&o, "help") != NULL || opts_get(&o, "?") != NULL;
	const struct dev_ops *ops = help && o.head ? dev_ops_find(o.head) : NULL;
	if (ops) {
		dev_register_types();
		type_print_help(&ops->type);
		ret = 1;
	} else if (help) {
		ret = err_set(err, -ENOENT, "-device: there is no device '%.60s' (-device help lists them)",
			      o.head ? o.head : "");
	}
	opts_free(&o);
	return ret ? ret : text_list_add(&c->devices, text);
}

int cmd_set_chardev(struct cmdline *c, const char *text, struct err *err)
{
	const struct type *t;

	if (!is_help(text))
		return text_list_add(&c->chardevs, text);
	printf("Character backends of -chardev:\n");
	for (size_t i = 0; (t = chr_type_at(i)); i++)
		printf("  %-10s %s\n", t->name, t->about);
	return 1;
}

int cmd_set_object(struct cmdline *c, const char *text, struct err *err)
{
	const struct type *t;

	if (!is_help(text))
		return text_list_add(&c->objects, text);
	printf("Objects of -object:\n");
	for (size_t i = 0; (t = object_type_at(i)); i++)
		printf("  %-22s %s\n", t->name, t->about);
	return 1;
}

/* ---- defaults and combinations -------------------------------------------------------------- */

static int finish_accel(struct cmdline *c)
{
	size_t n = 1;

	for (size_t i = 0; i < c->accels.n; i++)
		n += strlen(c->accels.v[i]) + 1;
	if (!c->accels.n)
		return 0;
	c->vm.accel = calloc(1, n);
	if (!c->vm.accel)
		return -ENOMEM;
	for (size_t i = 0; i < c->accels.n; i++)
		strcat(strcat(c->vm.accel, i ? ":" : ""), c->accels.v[i]);
	return 0;
}

/* After -daemonize the working directory is "/": what is opened later needs its full path. */
static int make_absolute(char **path)
{
	char cwd[PATH_MAX], *full;

	if (!*path || **path == '/' || !strcmp(*path, "-") || !getcwd(cwd, sizeof(cwd)))
		return 0;
	if (asprintf(&full, "%s/%s", cwd, *path) < 0)
		return -ENOMEM;
	free(*path);
	*path = full;
	return 0;
}

/* The board a -M text begins with, or NULL. */
static const struct board_ops *board_find_text(const char *text)
{
	char name[64];

	snprintf(name, sizeof(name), "%.*s", (int)MIN(strcspn(text, ","), sizeof(name) - 1), text);
	return board_find(name, NULL);
}

int cmdline_finish(struct cmdline *c, struct err *err)
{
	struct vm_config *v = &c->vm;
	int ret = finish_accel(c);

	if (!v->machine && !ret)
		ret = set_text(&v->machine, board_table[0] ? board_table[0]->type.name : "pc");
	if (!ret)
		ret = make_absolute(&c->pidfile);
	if (!ret)
		ret = make_absolute(&c->stats);
	if (ret)
		return err_set_errno(err, ret, "options");
	if (!v->ram_size)
		v->ram_size = RAM_DEFAULT;
	if (!v->cpus)
		v->cpus = v->sockets = v->cores = v->threads = 1;
	if (!v->kernel && (c->initrds.n || v->append))
		return err_set(err, -EINVAL, "-initrd and -append need -kernel");
	if (c->serials.n > ARRAY_SIZE(v->serial))
		return err_set(err, -EINVAL, "-serial: there are only %zu serial ports", ARRAY_SIZE(v->serial));
	/* With -nodefaults there is nothing that -nographic would put on the terminal (libvirt starts so). */
	if (c->daemonize && c->console == CONSOLE_NOGRAPHIC && !v->no_defaults)
		return err_set(err, -EINVAL, "-nographic cannot be used with -daemonize: use -display none");
	const struct board_ops *board = board_find_text(v->machine);
	if (board && board->no_cpus)
		v->no_defaults = true; /* nothing a default device could sit on */
	v->ram.size = v->ram_size;
	v->devices = c->devices.v;
	v->ndevices = (unsigned)c->devices.n;
	v->smbios = c->smbios.v;
	v->nsmbios = (unsigned)c->smbios.n;
	v->fw_cfg = c->fw_cfg.v;
	v->nfw_cfg = (unsigned)c->fw_cfg.n;
	v->initrd = c->initrds.v;
	v->ninitrd = (unsigned)c->initrds.n;
	return 0;
}
