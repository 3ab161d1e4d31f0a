// SPDX-License-Identifier: GPL-2.0-or-later
/* The registry of -object and the types it can create. Main thread only. */
#include "base/object.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"

static const struct prop rng_random_props[] = {
    {.name = "filename",
     .kind = PROP_STR,
     .offset = offsetof(struct object_rng, filename),
     .def = "/dev/urandom",
     .help = "file to read random bytes from"},
    {.name = NULL},
};

#define MEMORY_PROPS                                                                                                   \
	{.name = "size", .kind = PROP_SIZE, .offset = offsetof(struct object_memory, size), .flags = PROP_REQUIRED},   \
	    {.name = "prealloc",                                                                                       \
	     .kind = PROP_BOOL,                                                                                        \
	     .offset = offsetof(struct object_memory, prealloc),                                                       \
	     .help = "allocate all of it at start"},                                                                   \
	    {.name = "merge",                                                                                          \
	     .kind = PROP_BOOL,                                                                                        \
	     .offset = offsetof(struct object_memory, merge),                                                          \
	     .def = "on",                                                                                              \
	     .help = "let KSM merge equal pages"},                                                                     \
	{                                                                                                              \
		.name = "dump", .kind = PROP_BOOL, .offset = offsetof(struct object_memory, dump), .def = "on",        \
		.help = "include it in core dumps"                                                                     \
	}
static const struct prop memory_ram_props[] = {
    MEMORY_PROPS,
    {.name = "share", .kind = PROP_BOOL, .offset = offsetof(struct object_memory, share)},
    {.name = NULL},
};
static const struct prop memory_memfd_props[] = {
    MEMORY_PROPS,
    {.name = "share", .kind = PROP_BOOL, .offset = offsetof(struct object_memory, share), .def = "on"},
    {.name = NULL},
};
static const struct prop memory_file_props[] = {
    MEMORY_PROPS,
    {.name = "share",
     .kind = PROP_BOOL,
     .offset = offsetof(struct object_memory, share),
     .help = "writes reach the file"},
    {.name = "mem-path",
     .kind = PROP_STR,
     .offset = offsetof(struct object_memory, mem_path),
     .flags = PROP_REQUIRED,
     .help = "file or hugetlbfs folder"},
    {.name = NULL},
};

/* As members of QEMU's "limits" object, and under the names of its command line. */
#define LIMIT(n, field)                                                                                                \
	{.name = "limits." n, .kind = PROP_SIZE, .offset = offsetof(struct object_throttle, field)},                   \
	{                                                                                                              \
		.name = "x-" n, .alias_of = "limits." n                                                                \
	}
#define LIMITS(n, i) LIMIT(n, avg[i]), LIMIT(n "-max", max[i]), LIMIT(n "-max-length", length[i])
static const struct prop throttle_props[] = {
    LIMITS("bps-total", 0), LIMITS("bps-read", 1),   LIMITS("bps-write", 2),	    LIMITS("iops-total", 3),
    LIMITS("iops-read", 4), LIMITS("iops-write", 5), LIMIT("iops-size", iops_size), {.name = NULL},
};

static const struct type object_types[] = {
    {.name = "throttle-group",
     .about = "limits that disks share (-drive throttling.group=ID, -blockdev driver=throttle)",
     .size = sizeof(struct object_throttle),
     .props = throttle_props},
    {.name = "rng-random",
     .about = "random bytes from a file of the host",
     .size = sizeof(struct object_rng),
     .props = rng_random_props},
    {.name = "iothread",
     .about = "a thread for the work of disks (-device virtio-blk-pci,iothread=ID)",
     .size = sizeof(struct object)},
    {.name = "rng-builtin", .about = "random bytes from the host's kernel", .size = sizeof(struct object_rng)},
    {.name = "memory-backend-ram",
     .about = "anonymous guest memory (-machine memory-backend=ID)",
     .size = sizeof(struct object_memory),
     .props = memory_ram_props},
    {.name = "memory-backend-file",
     .about = "guest memory from a file",
     .size = sizeof(struct object_memory),
     .props = memory_file_props},
    {.name = "memory-backend-memfd",
     .about = "guest memory that can be shared",
     .size = sizeof(struct object_memory),
     .props = memory_memfd_props},
};

/* QEMU's objects that Kelvin lacks: refused by name. A last '*' matches any rest. */
static const char *const missing_types[] = {
    "secret*",	      "tls-*",	     "authz-*",	 "can-*",   "colo-*",
    "cryptodev-*",    "dbus-*",	     "filter-*", "input-*", "memory-backend-epc",
    "main-loop",      "pr-manager*", "qtest",	 "rng-egd", "sev-guest",
    "thread-context", "x-*"};

static struct object *objects;

const struct type *object_type_at(size_t i)
{
	return i < ARRAY_SIZE(object_types) ? &object_types[i] : NULL;
}

struct object *object_find(const char *id)
{
	struct object *o = objects;

	while (o && strcmp(o->id, id))
		o = o->next;
	return o;
}

struct object *object_at(size_t i)
{
	struct object *o = objects;

	while (o && i--)
		o = o->next;
	return o;
}

static void *object_lookup(const char *id)
{
	return object_find(id);
}

static void *object_lookup_rng(const char *id)
{
	struct object *o = object_find(id);

	return o && !strncmp(o->type->name, "rng-", 4) ? o : NULL;
}

static void *object_lookup_iothread(const char *id)
{
	struct object *o = object_find(id);

	return o && !strcmp(o->type->name, "iothread") ? o : NULL;
}

static void object_register_once(void)
{
	static const struct type *list[ARRAY_SIZE(object_types)];
	static bool done;

	if (done)
		return;
	done = true;
	for (size_t i = 0; i < ARRAY_SIZE(object_types); i++)
		list[i] = &object_types[i];
	type_register(list, ARRAY_SIZE(list));
	type_register_links("object", object_lookup);
	type_register_links("rng", object_lookup_rng);
	type_register_links("iothread", object_lookup_iothread);
}

static const struct type *object_find_type(const char *name, struct err *err)
{
	const char *names[ARRAY_SIZE(object_types)];

	for (size_t i = 0; i < ARRAY_SIZE(object_types); i++) {
		names[i] = object_types[i].name;
		if (!strcmp(names[i], name))
			return &object_types[i];
	}
	for (size_t i = 0; i < ARRAY_SIZE(missing_types); i++) {
		size_t n = strlen(missing_types[i]);
		bool any = missing_types[i][n - 1] == '*';
		if (any ? !strncmp(name, missing_types[i], n - 1) : !strcmp(name, missing_types[i])) {
			err_set(err, -ENOTSUP, "-object: '%.60s' does not exist in Kelvin yet", name);
			return NULL;
		}
	}
	const char *near = text_nearest(name, names, ARRAY_SIZE(names));
	err_set(err, -EINVAL, "-object: there is no '%.60s'%s%s%s (-object help lists them)", name,
		near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
	return NULL;
}

static void object_free(struct object *o)
{
	type_props_free(o->type, o);
	free(o->id);
	free(o);
}

static int object_create_opts(struct opts *o, struct err *err)
{
	static const char *const except[] = {"qom-type", "id", NULL};

	object_register_once();
	if (!o->head)
		return err_set(err, -EINVAL, "-object: a type is missing (-object help lists them)");
	const char *id = opts_get(o, "id");
	opts_get(o, "qom-type");
	const struct type *type = object_find_type(o->head, err);
	if (!type)
		return err && err->code ? err->code : -EINVAL;
	if (!id || !*id)
		return err_set(err, -EINVAL, "-object %s: an id is missing: add id=NAME", o->head);
	if (object_find(id))
		return err_set(err, -EEXIST, "-object %s: the id '%.60s' is taken", o->head, id);
	struct object *n = calloc(1, type->size);
	if (!n)
		return err_set_errno(err, -ENOMEM, "-object");
	n->type = type;
	n->id = strdup(id);
	int ret = n->id ? type_init(type, n, err) : -ENOMEM;
	if (!ret)
		ret = type_set_opts(type, n, o, except, err);
	if (!ret)
		ret = opts_check_used(o, type, err);
	if (ret) {
		object_free(n);
		return err_prefix(err, "-object '%.60s'", id);
	}
	n->next = objects;
	objects = n;
	return 0;
}

int object_create(const char *text, struct err *err)
{
	struct opts o;
	int ret = opts_parse(text, "qom-type", &o, err);

	if (ret)
		return ret;
	ret = object_create_opts(&o, err);
	opts_free(&o);
	return ret;
}

void object_destroy_all(void)
{
	while (objects) {
		struct object *o = objects;
		objects = o->next;
		object_free(o);
	}
}
