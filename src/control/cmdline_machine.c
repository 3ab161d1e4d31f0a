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
	static const char *const missing[] = {"q35", "microvm", "isapc", "none", "xenfv", "x-remote"};
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
 * Keys of -M that are not the board's own properties: Kelvin acts on them, or
 * they are the only behaviour it has and are checked for asking just that.
 */
static int machine_common_key(struct cmdline *c, const char *key, const char *value, struct err *err)
{
	static const struct {
		const char *key, *only, * or ;
	} fixed[] = {
	    {"usb", "off", "off"},     {"vmport", "off", "auto"},      {"smm", "off", "auto"},
	    {"graphics", "off", "on"}, {"kernel-irqchip", "on", "on"}, {"igd-passthru", "off", "off"},
	    {"nvdimm", "off", "off"},
	};

	if (!strcmp(key, "accel")) {
		for (size_t i = 0; i < c->accels.n; i++)
			free(c->accels.v[i]);
		c->accels.n = 0;
		return cmd_set_accel(c, value, err);
	}
	if (!strcmp(key, "memory-backend"))
		return set_text(&c->memory_backend, value);
	if (!strcmp(key, "mem-merge") || !strcmp(key, "dump-guest-core")) {
		bool on = !strcmp(value, "on");
		if (!on && strcmp(value, "off"))
			return err_set(err, -EINVAL, "-M: '%s' cannot be '%.40s': expected on or off", key, value);
		*(key[0] == 'm' ? &c->vm.ram.merge : &c->vm.ram.dump) = on;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		if (!strcmp(key, fixed[i].key)) {
			if (!strcmp(value, fixed[i].only) || !strcmp(value, fixed[i].or))
				return 0;
			return err_set(err, -ENOTSUP, "-M: %s=%.40s does not exist in Kelvin yet", key, value);
		}
	return -ENOENT;
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

int cmd_set_name(struct cmdline *c, const char *text, struct err *err)
{
	struct opts o;
	int ret = opts_parse(text, "guest", &o, err);

	if (ret)
		return ret;
	const char *guest = opts_get(&o, "guest"), *process = opts_get(&o, "process");
	opts_get(&o, "debug-threads"); /* threads always carry names */
	for (size_t i = 0; i < o.n && !ret; i++)
		if (!o.v[i].used)
			ret = err_set(err, -EINVAL, "-name: there is no '%.60s' (guest=, process=, debug-threads=)",
				      o.v[i].key);
	if (!ret && guest)
		ret = set_text(&c->vm.name, guest);
	if (!ret && process)
		ret = set_text(&c->process_name, process);
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

int cmd_set_rtc(struct cmdline *c, const char *text, struct err *err)
{
	struct opts o;
	int ret = opts_parse(text, "base", &o, err);

	if (ret)
		return ret;
	const char *base = opts_get(&o, "base"), *clock = opts_get(&o, "clock"), *fix = opts_get(&o, "driftfix");
	if (base && strcmp(base, "utc") && strcmp(base, "localtime") && !rtc_is_date(base))
		ret = err_set(err, -EINVAL, "-rtc: base '%.60s' is not utc, localtime or a date (2006-06-17T16:01:21)",
			      base);
	else if (clock && strcmp(clock, "host") && strcmp(clock, "vm"))
		ret = err_set(err, -ENOTSUP, "-rtc: clock=%.40s does not exist in Kelvin: use host or vm", clock);
	else if (fix && strcmp(fix, "none"))
		ret = err_set(err, -ENOTSUP, "-rtc: driftfix=%.40s does not exist in Kelvin yet: only none", fix);
	for (size_t i = 0; i < o.n && !ret; i++)
		if (!o.v[i].used)
			ret = err_set(err, -EINVAL, "-rtc: there is no '%.60s' (base=, clock=, driftfix=)", o.v[i].key);
	if (!ret && base)
		ret = set_text(&c->vm.rtc_base, base);
	if (!ret && clock)
		ret = text_list_add(&c->globals,
				    !strcmp(clock, "vm") ? "mc146818rtc.clock=vm" : "mc146818rtc.clock=host");
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

int cmd_set_boot(struct cmdline *c, const char *text, struct err *err)
{
	static const char *const known[] = {"menu", "strict", "splash", "splash-time", "reboot-timeout"};
	struct opts o;
	int ret = opts_parse(text, "order", &o, err);

	if (ret)
		return ret;
	const char *order = opts_get(&o, "order"), *once = opts_get(&o, "once");
	if (order)
		ret = boot_check_order(order, err);
	if (!ret && once)
		ret = boot_check_order(once, err);
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		opts_get(&o, known[i]);
	for (size_t i = 0; i < o.n && !ret; i++)
		if (!o.v[i].used)
			ret = err_set(err, -EINVAL, "-boot: there is no '%.60s'", o.v[i].key);
	opts_free(&o);
	return ret ? ret : set_text(&c->vm.boot, text);
}

int cmd_set_action(struct cmdline *c, const char *text, struct err *err)
{
	struct opts o;
	int ret = opts_parse(text, NULL, &o, err);

	for (size_t i = 0; i < o.n && !ret; i++) {
		const char *k = o.v[i].key, *v = o.v[i].value;
		if (!strcmp(k, "reboot") && (!strcmp(v, "reset") || !strcmp(v, "shutdown")))
			c->vm.no_reboot = v[0] == 's';
		else if (!strcmp(k, "shutdown") && (!strcmp(v, "poweroff") || !strcmp(v, "pause")))
			c->vm.no_shutdown = v[1] == 'a';
		else
			ret = err_set(err, -ENOTSUP,
				      "-action: '%.40s=%.40s' does not exist in Kelvin yet "
				      "(reboot=reset|shutdown, shutdown=poweroff|pause)",
				      k, v);
	}
	opts_free(&o);
	return ret;
}

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
	if (c->daemonize && c->console == CONSOLE_NOGRAPHIC)
		return err_set(err, -EINVAL, "-nographic cannot be used with -daemonize: use -display none");
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
