// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * -drive: one text becomes an open node and what devices ask of it. Names,
 * defaults and the table of cache modes are QEMU's:
 *
 *   cache=        writeback  direct  no-flush
 *   writeback     on         off     off        (the default)
 *   none, off     on         on      off
 *   writethrough  off        off     off
 *   directsync    off        on      off
 *   unsafe        on         off     on
 *
 * cache.writeback=, cache.direct= and cache.no-flush= override single columns.
 * Main thread only.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "block/drive.h"
#include "block/image.h"
#include "block/throttle.h"

const char *const drive_if_names[] = {"none", "virtio", "ide", "scsi", "floppy", "pflash", "mtd", "sd", "xen", NULL};
/* Units of one bus, as QEMU counts them: an index is bus * units + unit. 0: one bus without end. */
static const int units_of_bus[] = {[DRIVE_IF_IDE] = 2, [DRIVE_IF_SCSI] = 7, [DRIVE_IF_XEN] = 0};

static const char *const aio_opt_names[] = {"auto", "io_uring", "threads", "native", "sync", NULL};
static const char *const media_names[] = {"disk", "cdrom", NULL};
static const char *const discard_names[] = {"ignore", "off", "unmap", "on", NULL};
static const char *const zeroes_names[] = {"off", "on", "unmap", NULL};
static const char *const error_names[] = {"auto", "report", "ignore", "stop", "enospc", NULL} /* enum drive_on_error */;
static const char *const locking_names[] = {"auto", "on", "off", NULL};

/* A place that was not given, as number and text. */
#define ABSENT	  INT64_MIN
#define NOT_GIVEN "-9223372036854775808"

/* The parsed text. */
struct drive_opts {
	char *file, *id, *format, *cache, *serial;
	int bus_kind, aio, media, discard, detect_zeroes, werror, rerror, locking;
	int writeback, direct, no_flush; /* enum onoffauto; auto: as cache= says */
	int64_t index, bus, unit;	 /* ABSENT: not given */
	bool read_only, force, boot, snapshot;
	struct throttle_limits limits;
	char *data_file;
	uint64_t l2_cache_size, refcount_cache_size, cache_size, l2_cache_entry_size;
	uint32_t cache_clean_interval;
	int lazy_refcounts; /* enum onoffauto */
	char *group;	    /* of throttling; NULL: the drive's own */
};

#define OPT(n, k, f, ...)                                                                                              \
	{                                                                                                              \
		.name = n, .kind = k, .offset = offsetof(struct drive_opts, f), __VA_ARGS__                            \
	}
/* A limit by both of its names. */
#define LIMIT(new, old, field)                                                                                         \
	OPT("throttling." new, PROP_SIZE, limits.field),                                                               \
	{                                                                                                              \
		.name = old, .alias_of = "throttling." new                                                             \
	}
#define LIMITS(new, old, i)                                                                                            \
	LIMIT(new, old, avg[i]), LIMIT(new "-max", old "_max", max[i]),                                                \
	    LIMIT(new "-max-length", old "_max_length", length[i])
static const struct prop drive_props[] = {
    OPT("file", PROP_STR, file, .help = "image file or block device; empty: no medium"),
    {.name = "file.filename", .alias_of = "file"},
    OPT("id", PROP_STR, id, .help = "name for -device ...,drive=ID"),
    OPT("if", PROP_ENUM, bus_kind, .def = "ide", .values = drive_if_names, .help = "where it is attached"),
    OPT("format", PROP_STR, format, .help = "image format; without it the header is probed"),
    {.name = "driver", .alias_of = "format"},
    OPT("cache", PROP_STR, cache, .help = "none, writeback (default), writethrough, directsync or unsafe"),
    OPT("cache.writeback", PROP_ONOFFAUTO, writeback, .help = "off: a write is durable when it completes"),
    OPT("cache.direct", PROP_ONOFFAUTO, direct, .help = "bypass the host's page cache (O_DIRECT)"),
    OPT("cache.no-flush", PROP_ONOFFAUTO, no_flush, .help = "ignore flushes: a host crash may lose the image"),
    OPT("aio", PROP_ENUM, aio, .def = "auto", .values = aio_opt_names, .help = "how host I/O is done"),
    OPT("readonly", PROP_BOOL, read_only, .help = "refuse writes"),
    {.name = "read-only", .alias_of = "readonly"},
    OPT("discard", PROP_ENUM, discard, .def = "ignore", .values = discard_names,
	.help = "unmap: what the guest discards is freed on the host"),
    OPT("detect-zeroes", PROP_ENUM, detect_zeroes, .def = "off", .values = zeroes_names,
	.help = "writes of zeros become holes (unmap) or zeroed ranges (on)"),
    OPT("serial", PROP_STR, serial, .help = "serial number the guest reads"),
    OPT("index", PROP_I64, index, .def = NOT_GIVEN, .help = "position among the drives of the same if="),
    OPT("bus", PROP_I64, bus, .def = NOT_GIVEN, .help = "number of the bus (IDE: 0 primary, 1 secondary)"),
    OPT("unit", PROP_I64, unit, .def = NOT_GIVEN, .help = "position on the bus (IDE: 0 master, 1 slave)"),
    OPT("media", PROP_ENUM, media, .def = "disk", .values = media_names, .help = "cdrom implies readonly=on"),
    OPT("werror", PROP_ENUM, werror, .def = "auto", .values = error_names,
	.help = "a failed write: stop the machine, report, ignore"),
    OPT("rerror", PROP_ENUM, rerror, .def = "auto", .values = error_names, .help = "a failed read"),
    OPT("file.locking", PROP_ENUM, locking, .def = "auto", .values = locking_names,
	.help = "guard the image against other processes"),
    {.name = "locking", .alias_of = "file.locking"},
    OPT("snapshot", PROP_BOOL, snapshot, .help = "writes go to a temporary file and are forgotten at the end"),
    LIMITS("bps-total", "bps", THROTTLE_BPS),
    LIMITS("bps-read", "bps_rd", THROTTLE_BPS_RD),
    LIMITS("bps-write", "bps_wr", THROTTLE_BPS_WR),
    LIMITS("iops-total", "iops", THROTTLE_IOPS),
    LIMITS("iops-read", "iops_rd", THROTTLE_IOPS_RD),
    LIMITS("iops-write", "iops_wr", THROTTLE_IOPS_WR),
    LIMIT("iops-size", "iops_size", iops_size),
    OPT("throttling.group", PROP_STR, group, .help = "drives of one group share its limits"),
    {.name = "group", .alias_of = "throttling.group"},
    OPT("data-file", PROP_STR, data_file,
	.help = "qcow2: the external data file (a name in the image is not followed)"),
    {.name = "data-file.filename", .alias_of = "data-file"},
    OPT("l2-cache-size", PROP_SIZE, l2_cache_size, .help = "qcow2: memory for L2 tables (default 32M at most)"),
    OPT("refcount-cache-size", PROP_SIZE, refcount_cache_size, .help = "qcow2: memory for refcount blocks"),
    OPT("cache-size", PROP_SIZE, cache_size, .help = "qcow2: memory for both"),
    OPT("l2-cache-entry-size", PROP_SIZE, l2_cache_entry_size,
	.help = "qcow2: checked as QEMU does; tables are cached whole"),
    OPT("cache-clean-interval", PROP_U32, cache_clean_interval, .def = "600",
	.help = "qcow2: seconds after which tables not used may go; 0: never"),
    OPT("lazy-refcounts", PROP_ONOFFAUTO, lazy_refcounts, .help = "qcow2: override the image's lazy_refcounts"),
    OPT("force", PROP_BOOL, force, .help = "open a block device although the host uses it"),
    OPT("boot", PROP_BOOL, boot, .help = "boot from it first (old command lines; bootindex= of the device is finer)"),
    {0},
};
#undef LIMIT
#undef LIMITS
#undef OPT

static const struct type drive_type = {
    .name = "-drive",
    .about = "a disk image and how to use it",
    .size = sizeof(struct drive_opts),
    .props = drive_props,
};

/* What QEMU has and Kelvin has not yet: refused by name. A last '*' matches any rest. */
static const char *const missing_table[] = {
    "copy-on-read", "backing*",	      "encrypt.*", "pass-discard-*", "overlap-check*", "stats-*", "offset", "size",
    "node-name",    "auto-read-only", "cyls",	   "heads",	     "secs",	       "trans",	  "addr",
};

struct drive_entry {
	struct drive drive;
	struct drive_entry *next;
};
static struct drive_entry *drives, **drives_tail = &drives;

static bool snapshot_all;

void drive_snapshot_all(void)
{
	snapshot_all = true;
}

static int refuse_missing(const struct opts *o, struct err *err)
{
	for (size_t i = 0; i < o->n; i++) {
		const char *key = o->v[i].key;
		for (size_t k = 0; k < ARRAY_SIZE(missing_table); k++) {
			size_t n = strlen(missing_table[k]);
			bool any = missing_table[k][n - 1] == '*';
			if (any ? strncmp(key, missing_table[k], n - 1) == 0 : strcmp(key, missing_table[k]) == 0)
				return err_set(err, -ENOTSUP, "-drive: '%s' is not implemented yet", key);
		}
	}
	return 0;
}

static bool choose(int onoffauto, bool otherwise)
{
	return onoffauto == OOA_AUTO ? otherwise : onoffauto == OOA_ON;
}

static int resolve_cache(const struct drive_opts *d, struct block_open *o, struct err *err)
{
	int ret = block_set_cache(o, d->cache ? d->cache : "writeback", err);

	if (ret)
		return ret;
	o->writeback = choose(d->writeback, o->writeback);
	o->direct = choose(d->direct, o->direct);
	o->no_flush = choose(d->no_flush, o->no_flush);
	return 0;
}

static bool discard_unmaps(const struct drive_opts *d)
{
	return strcmp(discard_names[d->discard], "unmap") == 0 || strcmp(discard_names[d->discard], "on") == 0;
}

static int resolve_rest(const struct drive_opts *d, struct block_open *o, struct err *err)
{
	if (d->detect_zeroes == BLOCK_ZEROES_UNMAP && !discard_unmaps(d))
		return err_set(err, -EINVAL,
			       "setting detect-zeroes to unmap is not allowed without setting discard operation to "
			       "unmap");
	if (strcmp(error_names[d->rerror], "enospc") == 0)
		return err_set(err, -EINVAL, "-drive: 'enospc' is no rerror action (report, ignore or stop)");
	o->filename = d->file;
	o->format = d->format;
	o->read_only = d->read_only || strcmp(media_names[d->media], "cdrom") == 0;
	o->discard_unmap = discard_unmaps(d);
	o->detect_zeroes = (enum block_detect_zeroes)d->detect_zeroes;
	o->locking = strcmp(locking_names[d->locking], "off") != 0;
	o->force = d->force;
	o->data_file = d->data_file;
	o->l2_cache_size = d->l2_cache_size;
	o->refcount_cache_size = d->refcount_cache_size;
	o->cache_size = d->cache_size;
	o->l2_cache_entry_size = d->l2_cache_entry_size;
	o->cache_clean_interval = d->cache_clean_interval ? d->cache_clean_interval : UINT_MAX;
	o->lazy_refcounts = d->lazy_refcounts == OOA_ON ? 1 : d->lazy_refcounts == OOA_OFF ? -1 : 0;
	return 0;
}

static bool place_taken(int bus_kind, int bus, int unit)
{
	for (struct drive_entry *e = drives; e; e = e->next)
		if (e->drive.bus_kind == bus_kind && e->drive.bus == bus && e->drive.unit == unit)
			return true;
	return false;
}

static int check_place(const struct drive_opts *d, struct err *err)
{
	const int units = units_of_bus[d->bus_kind];

	if (d->index != ABSENT && (d->bus != ABSENT || d->unit != ABSENT))
		return err_set(err, -EINVAL, "index cannot be used with bus and unit");
	if ((d->index < 0 && d->index != ABSENT) || d->index > 255)
		return err_set(err, -EINVAL, "-drive: index %lld is out of range (0 to 255)", (long long)d->index);
	if ((d->bus < 0 && d->bus != ABSENT) || d->bus > 255)
		return err_set(err, -EINVAL, "-drive: bus %lld is out of range (0 to 255)", (long long)d->bus);
	if ((d->unit < 0 && d->unit != ABSENT) || d->unit > 255 || (units && d->unit >= units))
		return err_set(err, -EINVAL, "unit %lld too big (max is %d)", (long long)d->unit,
			       units ? units - 1 : 255);
	return 0;
}

/* Where the drive is: bus, unit and index, each from what was given; the first free unit otherwise. */
static int place_drive(struct drive *drv, const struct drive_opts *d, struct err *err)
{
	const int units = units_of_bus[d->bus_kind];
	int ret = check_place(d, err);

	if (ret)
		return ret;
	drv->bus = (int)MAX(d->bus, 0);
	drv->unit = d->unit == ABSENT ? -1 : (int)d->unit;
	if (d->index >= 0) {
		drv->bus = units ? (int)d->index / units : 0;
		drv->unit = units ? (int)d->index % units : (int)d->index;
	}
	if (drv->unit < 0)
		for (drv->unit = 0; place_taken(drv->bus_kind, drv->bus, drv->unit); drv->unit++)
			if (units && drv->unit == units - 1) {
				drv->unit = -1;
				drv->bus++;
			}
	drv->index = units ? drv->bus * units + drv->unit : drv->unit;
	if (d->bus_kind != DRIVE_IF_NONE && place_taken(drv->bus_kind, drv->bus, drv->unit))
		return err_set(err, -EEXIST, "drive with bus=%d, unit=%d (index=%d) exists", drv->bus, drv->unit,
			       drv->index);
	return 0;
}

/* Place and name of the drive, in *drv. QEMU's names: virtio0, ide1-cd0, scsi0-hd3. */
static int name_drive(struct drive *drv, const struct drive_opts *d, struct err *err)
{
	char text[48];
	int ret;

	drv->bus_kind = d->bus_kind;
	drv->cdrom = strcmp(media_names[d->media], "cdrom") == 0;
	drv->boot = d->boot;
	ret = place_drive(drv, d, err);
	if (ret)
		return ret;
	if (units_of_bus[drv->bus_kind])
		snprintf(text, sizeof(text), "%s%d-%s%d", drive_if_names[drv->bus_kind], drv->bus,
			 drv->cdrom ? "cd" : "hd", drv->unit);
	else
		snprintf(text, sizeof(text), "%s%d", drive_if_names[drv->bus_kind], drv->unit);
	drv->id = strdup(d->id ? d->id : text);
	if (!drv->id)
		return err_set(err, -ENOMEM, "out of memory");
	if (drive_find(drv->id))
		return err_set(err, -EEXIST, "Duplicate ID '%s' for drive", drv->id);
	return 0;
}

static int drive_fill(struct drive *drv, struct drive_opts *d, struct loop *l, struct err *err)
{
	struct block_open o = {0};
	int ret;

	ret = resolve_cache(d, &o, err);
	if (!ret)
		ret = block_set_aio(&o, aio_opt_names[d->aio], err);
	if (!ret)
		ret = resolve_rest(d, &o, err);
	if (!ret)
		ret = name_drive(drv, d, err);
	if (ret)
		return ret;
	drv->read_only = o.read_only;
	drv->werror = (enum drive_on_error)d->werror;
	drv->rerror = (enum drive_on_error)d->rerror;
	drv->serial = d->serial;
	d->serial = NULL;
	drv->loop = l;
	drv->open = o;
	drv->open.filename = drv->open.format = drv->open.data_file = NULL;
	if (!d->file || !d->file[0])
		return d->bus_kind != DRIVE_IF_NONE && !drv->cdrom
			   ? err_set(err, -EINVAL, "-drive: if=%s needs file= (only a CD-ROM drive may be empty)",
				     drive_if_names[d->bus_kind])
			   : 0; /* a removable drive without a medium */
	/* An image that is never written to has its locks, and its cache mode, as if read-only. */
	o.read_only = o.read_only || d->snapshot;
	drv->node = d->snapshot && !drv->read_only ? block_open_snapshot(&o, l, err) : block_open(&o, l, err);
	if (!drv->node)
		return err && err->code ? err->code : -EIO;
	if (!throttle_wanted(&d->limits) && !d->group)
		return 0;
	if (throttle_wanted(&d->limits))
		ret = throttle_group_set(d->group ? d->group : drv->id, &d->limits, err);
	return ret ? ret : block_throttle_join(drv->node, d->group ? d->group : drv->id, err);
}

static void drive_free(struct drive_entry *e)
{
	block_close(e->drive.node);
	free(e->drive.id);
	free(e->drive.serial);
	free(e);
}

struct drive *drive_create(const char *text, struct loop *l, struct err *err)
{
	struct drive_entry *e = calloc(1, sizeof(*e));
	struct drive_opts d = {0};
	struct opts o;
	int ret;

	drive_init();
	if (!e) {
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	ret = opts_parse(text, NULL, &o, err);
	if (ret) {
		free(e);
		return NULL;
	}
	ret = refuse_missing(&o, err);
	if (!ret)
		ret = type_init(&drive_type, &d, err);
	d.snapshot = snapshot_all;
	if (!ret)
		ret = type_set_opts(&drive_type, &d, &o, NULL, err);
	if (!ret)
		ret = opts_check_used(&o, &drive_type, err);
	if (!ret)
		ret = drive_fill(&e->drive, &d, l, err);
	type_props_free(&drive_type, &d);
	opts_free(&o);
	if (ret) {
		drive_free(e);
		return NULL;
	}
	*drives_tail = e;
	drives_tail = &e->next;
	return &e->drive;
}

struct drive *drive_find(const char *id)
{
	for (struct drive_entry *e = drives; e; e = e->next)
		if (strcmp(e->drive.id, id) == 0)
			return &e->drive;
	return NULL;
}

struct drive *drive_at(size_t i)
{
	struct drive_entry *e = drives;

	while (e && i--)
		e = e->next;
	return e ? &e->drive : NULL;
}

void drive_close_all(void)
{
	struct drive_entry *e;

	while ((e = drives) != NULL) {
		drives = e->next;
		drive_free(e);
	}
	drives_tail = &drives;
}

int drive_add_node(const char *id, struct block_node *n, struct err *err)
{
	struct drive_entry *e = calloc(1, sizeof(*e));

	if (e)
		e->drive.id = strdup(id);
	if (!e || !e->drive.id) {
		free(e);
		return err_set(err, -ENOMEM, "out of memory");
	}
	e->drive.node = n;
	e->drive.bus_kind = DRIVE_IF_NONE;
	e->drive.unit = e->drive.index = -1;
	e->drive.read_only = block_read_only(n);
	*drives_tail = e;
	drives_tail = &e->next;
	return 0;
}

struct block_node *drive_take_node(const char *id)
{
	for (struct drive_entry **p = &drives; *p; p = &(*p)->next) {
		struct drive_entry *e = *p;
		struct block_node *n = e->drive.node;
		if (strcmp(e->drive.id, id) != 0 || e->drive.claimed || !n)
			continue;
		*p = e->next;
		if (!*p)
			drives_tail = p;
		e->drive.node = NULL;
		drive_free(e);
		return n;
	}
	return NULL;
}

const struct type *drive_option_type(void)
{
	return &drive_type;
}

static void *drive_lookup(const char *id)
{
	struct drive *d = drive_find(id);

	return d ? d : blockdev_drive(id);
}

void drive_init(void)
{
	static const struct type *const types[] = {&drive_type};
	static bool done;

	if (done)
		return;
	done = true;
	type_register(types, ARRAY_SIZE(types));
	type_register_links("drive", drive_lookup);
}
