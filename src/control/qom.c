// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The tree of objects that QMP shows, on QEMU's paths:
 *
 *   /machine                          the board and its properties
 *   /machine/peripheral/ID            devices with an id
 *   /machine/unattached/device[N]     virtual CPUs, then devices without an id
 *   /objects/ID                       -object
 *   /chardevs/ID                      -chardev
 *
 * The tree is not stored: a path is resolved by walking the lists that exist
 * anyway, and properties come from the type tables. Main loop's thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/object.h"
#include "base/util.h"
#include "chr/chr.h"
#include "control/json.h"
#include "control/qmp_impl.h"
#include "control/qom_types.h"
#include "cpu/model.h"

/* Where a path leads: a folder, or an instance of a type. */
enum qom_place { QOM_ROOT, QOM_MACHINE, QOM_PERIPHERAL, QOM_UNATTACHED, QOM_OBJECTS, QOM_CHARDEVS, QOM_INSTANCE };

struct qom_node {
	enum qom_place place;
	char type_name[96];
	const struct type *type;       /* NULL: no properties */
	const struct cpu_model *model; /* a virtual CPU: its features are the properties */
	void *instance;
	pthread_mutex_t *lock; /* guards the instance, or NULL */
	struct dev *dev;       /* the instance as a device, or NULL */
};

static const struct {
	const char *path;
	enum qom_place place;
} qom_folders[] = {
    {"/", QOM_ROOT},
    {"/machine", QOM_MACHINE},
    {"/machine/peripheral", QOM_PERIPHERAL},
    {"/machine/unattached", QOM_UNATTACHED},
    {"/objects", QOM_OBJECTS},
    {"/chardevs", QOM_CHARDEVS},
};

/* ---- resolving a path --------------------------------------------------------- */

static void qom_use_dev(struct qom_node *n, struct dev *d)
{
	*n = (struct qom_node){.place = QOM_INSTANCE, .type = &d->ops->type, .instance = d, .lock = &d->lock, .dev = d};
	qom_type_name(n->type, n->type_name, sizeof(n->type_name));
}

/* The N of "device[N]", or -1. */
static long qom_index(const char *name)
{
	char *end;

	if (strncmp(name, "device[", 7))
		return -1;
	unsigned long n = strtoul(name + 7, &end, 10);
	return end == name + 7 || strcmp(end, "]") || n > INT32_MAX ? -1 : (long)n;
}

static bool qom_find_unattached(struct vm *vm, const char *name, struct qom_node *n)
{
	long index = qom_index(name);
	unsigned ncpus = vm_accel(vm)->cfg.ncpus;

	if (index < 0)
		return false;
	if (index < ncpus) {
		*n = (struct qom_node){.place = QOM_INSTANCE, .model = vm_accel(vm)->cfg.model};
		qom_cpu_type_name(n->model->name, n->type_name, sizeof(n->type_name));
		return true;
	}
	index -= ncpus;
	for (struct dev *d = vm_bus(vm)->devices; d; d = d->next)
		if (!d->id && index-- == 0) {
			qom_use_dev(n, d);
			return true;
		}
	return false;
}

/* `name` is the last part of a path below the folder `place`. */
static bool qom_find_child(struct vm *vm, enum qom_place place, const char *name, struct qom_node *n)
{
	struct object *o = place == QOM_OBJECTS ? object_find(name) : NULL;
	struct dev *d = place == QOM_PERIPHERAL ? dev_find(vm_bus(vm), name) : NULL;
	struct chr *c = place == QOM_CHARDEVS ? chr_find(name) : NULL;

	if (d)
		qom_use_dev(n, d);
	else if (o)
		*n = (struct qom_node){.place = QOM_INSTANCE, .type = o->type, .instance = o};
	else if (c)
		*n = (struct qom_node){.place = QOM_INSTANCE, .type = chr_type_of(c), .instance = c};
	else
		return place == QOM_UNATTACHED && qom_find_unattached(vm, name, n);
	qom_type_name(n->type, n->type_name, sizeof(n->type_name));
	return true;
}

static int qom_resolve(struct vm *vm, const char *path, struct qom_node *n, struct err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(qom_folders); i++) {
		size_t len = strlen(qom_folders[i].path);
		if (!strcmp(path, qom_folders[i].path)) {
			*n = (struct qom_node){.place = qom_folders[i].place, .type_name = "container"};
			if (n->place == QOM_MACHINE) {
				n->type = vm_board_type(vm);
				n->instance = vm_board(vm);
				qom_type_name(n->type, n->type_name, sizeof(n->type_name));
			}
			return 0;
		}
		if (!strncmp(path, qom_folders[i].path, len) && path[len] == '/' &&
		    qom_find_child(vm, qom_folders[i].place, path + len + 1, n))
			return 0;
	}
	return err_set(err, -ENODEV, "Device '%.100s' not found", path);
}

/* ---- listing --------------------------------------------------------------------- */

static void qom_add(json_t *list, const char *name, const char *kind)
{
	json_array_append_new(list, json_pack("{s:o,s:s}", "name", json_text(name), "type", kind));
}

static void qom_add_child(json_t *list, const char *name, const char *type)
{
	char kind[100];

	snprintf(kind, sizeof(kind), "child<%.80s>", type);
	qom_add(list, name, kind);
}

static void qom_add_instance(json_t *list, const char *name, const struct type *type)
{
	char type_name[96];

	qom_type_name(type, type_name, sizeof(type_name));
	qom_add_child(list, name, type_name);
}

static void qom_list_unattached(struct vm *vm, json_t *list)
{
	unsigned n = 0;
	char name[32];

	for (unsigned i = 0; i < vm_accel(vm)->cfg.ncpus; i++) {
		snprintf(name, sizeof(name), "device[%u]", n++);
		char type[96];
		qom_cpu_type_name(vm_accel(vm)->cfg.model->name, type, sizeof(type));
		qom_add_child(list, name, type);
	}
	for (struct dev *d = vm_bus(vm)->devices; d; d = d->next) {
		if (d->id)
			continue;
		snprintf(name, sizeof(name), "device[%u]", n++);
		qom_add_instance(list, name, &d->ops->type);
	}
}

static void qom_list_children(struct vm *vm, enum qom_place place, json_t *list)
{
	struct object *o;
	struct chr *c;

	switch (place) {
	case QOM_ROOT:
		qom_add_instance(list, "machine", vm_board_type(vm));
		qom_add_child(list, "objects", "container");
		qom_add_child(list, "chardevs", "container");
		break;
	case QOM_MACHINE:
		qom_add_child(list, "peripheral", "container");
		qom_add_child(list, "unattached", "container");
		break;
	case QOM_PERIPHERAL:
		for (struct dev *d = vm_bus(vm)->devices; d; d = d->next)
			if (d->id)
				qom_add_instance(list, d->id, &d->ops->type);
		break;
	case QOM_UNATTACHED: qom_list_unattached(vm, list); break;
	case QOM_OBJECTS:
		for (size_t i = 0; (o = object_at(i)); i++)
			qom_add_instance(list, o->id, o->type);
		break;
	case QOM_CHARDEVS:
		for (size_t i = 0; (c = chr_at(i)); i++)
			qom_add_instance(list, chr_id(c), chr_type_of(c));
		break;
	case QOM_INSTANCE: break;
	}
}

json_t *cmd_qom_list(struct vm *vm, json_t *args, struct err *err)
{
	struct qom_node n;
	const struct prop *p;

	if (qom_resolve(vm, json_string_value(json_object_get(args, "path")), &n, err))
		return NULL;
	json_t *list = json_array();
	qom_add(list, "type", "string");
	for (size_t i = 0; n.type && (p = type_prop_at(n.type, i)); i++)
		if (!p->alias_of)
			qom_add(list, p->name, qom_kind_name(p));
	for (const struct cpu_feature *f = cpu_feature_table; n.model && f->name; f++)
		qom_add(list, f->name, "bool");
	qom_list_children(vm, n.place, list);
	return list;
}

json_t *cmd_qom_list_types(struct vm *vm, json_t *args, struct err *err)
{
	const char *base = json_string_value(json_object_get(args, "implements"));
	bool abstract = json_is_true(json_object_get(args, "abstract"));
	json_t *list = json_array();
	struct qom_type t;

	for (size_t i = 0; qom_type_at(i, &t); i++) {
		if ((t.abstract && !abstract) || (base && !qom_type_is(&t, base)))
			continue;
		json_t *o = json_pack("{s:s}", "name", t.name);
		if (t.abstract)
			json_object_set_new(o, "abstract", json_true());
		if (t.parent[0])
			json_object_set_new(o, "parent", json_string(t.parent));
		json_array_append_new(list, o);
	}
	return list;
}

static bool find_type(json_t *args, struct qom_type *t, struct err *err)
{
	const char *name = json_string_value(json_object_get(args, "typename"));

	if (qom_type_find(name, t))
		return true;
	err_set(err, -ENODEV, "Class '%.60s' not found", name);
	return false;
}

json_t *cmd_qom_list_properties(struct vm *vm, json_t *args, struct err *err)
{
	struct qom_type t;

	return find_type(args, &t, err) ? qom_type_properties(&t) : NULL;
}

json_t *cmd_device_list_properties(struct vm *vm, json_t *args, struct err *err)
{
	struct qom_type t;

	if (!qom_type_find(json_string_value(json_object_get(args, "typename")), &t)) {
		err_set(err, -ENODEV, "Device '%.60s' not found", json_string_value(json_object_get(args, "typename")));
		return NULL;
	}
	if (t.abstract || !(qom_type_is(&t, "device") || t.is_cpu)) {
		err_set(err, -EINVAL, "Parameter 'typename' expects a non-abstract device type");
		return NULL;
	}
	return qom_type_properties(&t);
}

/* ---- values -------------------------------------------------------------------------- */

static const struct prop *qom_find_prop(const struct qom_node *n, const char *name, struct err *err)
{
	const struct prop *p = n->type ? type_find_prop(n->type, name) : NULL;

	if (!p)
		err_set(err, -ENOENT, "Property '%s.%.60s' not found", n->type_name, name);
	return p;
}

json_t *cmd_qom_get(struct vm *vm, json_t *args, struct err *err)
{
	const char *name = json_string_value(json_object_get(args, "property"));
	struct qom_node n;

	if (qom_resolve(vm, json_string_value(json_object_get(args, "path")), &n, err))
		return NULL;
	if (!strcmp(name, "type"))
		return json_string(n.type_name);
	for (const struct cpu_feature *f = cpu_feature_table; n.model && f->name; f++)
		if (!strcmp(f->name, name))
			return json_boolean(cpu_model_has(n.model, name));
	const struct prop *p = qom_find_prop(&n, name, err);
	if (!p)
		return NULL;
	if (n.lock)
		pthread_mutex_lock(n.lock);
	char *text = type_get(n.type, n.instance, name);
	if (n.lock)
		pthread_mutex_unlock(n.lock);
	json_t *value = text ? qom_value(p, text) : NULL;
	free(text);
	if (!value)
		err_set_errno(err, -ENOMEM, "qom-get");
	return value;
}

/* The text type_set takes for a JSON value, heap; NULL for what no property can be. */
static char *qom_text(const json_t *value)
{
	char *text = NULL;

	if (json_is_string(value))
		return strdup(json_string_value(value));
	if (json_is_boolean(value))
		return strdup(json_is_true(value) ? "on" : "off");
	if (json_is_integer(value) && asprintf(&text, "%" JSON_INTEGER_FORMAT, json_integer_value(value)) < 0)
		return NULL;
	return text;
}

json_t *cmd_qom_set(struct vm *vm, json_t *args, struct err *err)
{
	const char *name = json_string_value(json_object_get(args, "property"));
	struct qom_node n;

	if (qom_resolve(vm, json_string_value(json_object_get(args, "path")), &n, err))
		return NULL;
	const struct prop *p = qom_find_prop(&n, name, err);
	if (!p)
		return NULL;
	if (!(p->flags & PROP_RUNTIME)) {
		err_set(err, -EPERM, "Property '%s.%.60s' cannot be changed while the machine exists", n.type_name,
			name);
		return NULL;
	}
	char *text = qom_text(json_object_get(args, "value"));
	if (!text) {
		err_set(err, -EINVAL, "Invalid parameter type for 'value', expected: %s", qom_kind_name(p));
		return NULL;
	}
	if (n.lock)
		pthread_mutex_lock(n.lock);
	int ret = type_set(n.type, n.instance, name, text, err);
	if (n.lock)
		pthread_mutex_unlock(n.lock);
	free(text);
	if (!ret && n.dev && n.dev->ops->prop_changed)
		n.dev->ops->prop_changed(n.dev);
	return ret ? NULL : json_object();
}
