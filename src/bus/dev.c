/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Device life cycle: create from the table of types, apply -global, set
 * properties, realize, reset, destroy. Main loop's thread only, with the vCPUs
 * stopped or not yet started; the list of devices needs no lock for that.
 */
#include "bus/dev.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/util.h"
#include "bus/pci.h"

#define DEV_NAMES_MAX 256

/* ---- types ------------------------------------------------------------- */

static const struct type *dev_types[DEV_NAMES_MAX];

void dev_register_types(void)
{
	static bool done;
	size_t n = 0;

	if (done)
		return;
	done = true;
	dev_types[n++] = &pci_device_type;
	for (size_t i = 0; dev_table[i]; i++) {
		BUG_ON(n == DEV_NAMES_MAX);
		dev_types[n++] = &dev_table[i]->type;
	}
	type_register(dev_types, n);
}

const struct dev_ops *dev_ops_find(const char *name)
{
	for (size_t i = 0; dev_table[i]; i++) {
		if (!strcmp(dev_table[i]->type.name, name))
			return dev_table[i];
	}
	return NULL;
}

static int dev_err_unknown(const char *name, bool user_only, struct err *err)
{
	const char *names[DEV_NAMES_MAX], *near;
	size_t n = 0;

	for (size_t i = 0; dev_table[i] && n < DEV_NAMES_MAX; i++) {
		if (!user_only || dev_table[i]->user_creatable)
			names[n++] = dev_table[i]->type.name;
	}
	near = text_nearest(name, names, n);
	if (near)
		return err_set(err, -ENOENT, "there is no device type \"%s\"; did you mean \"%s\"?", name, near);
	return err_set(err, -ENOENT, "there is no device type \"%s\"; -device help lists them", name);
}

/* ---- -global ----------------------------------------------------------- */

struct dev_global {
	char *driver, *prop, *value;
	bool used;
	struct dev_global *next;
};
static struct dev_global *dev_globals;

static void dev_global_free(struct dev_global *g)
{
	free(g->driver);
	free(g->prop);
	free(g->value);
	free(g);
}

/* The long form: driver=D,property=P,value=V. */
static const struct prop dev_global_props[] = {
    {.name = "driver", .kind = PROP_STR, .offset = offsetof(struct dev_global, driver), .help = "device type"},
    {.name = "property", .kind = PROP_STR, .offset = offsetof(struct dev_global, prop), .help = "its property"},
    {.name = "value", .kind = PROP_STR, .offset = offsetof(struct dev_global, value), .help = "new default"},
    {.name = NULL},
};
const struct type dev_global_type = {.name = "global", .size = sizeof(struct dev_global), .props = dev_global_props};

static int dev_global_from_opts(struct dev_global *g, const char *text, struct err *err)
{
	struct opts o;
	int r = opts_parse(text, NULL, &o, err);

	if (r)
		return r;
	r = type_set_opts(&dev_global_type, g, &o, NULL, err);
	if (!r)
		r = opts_check_used(&o, &dev_global_type, err);
	if (!r && (!g->driver || !g->prop || !g->value))
		r = err_set(err, -EINVAL,
			    "-global \"%s\": use DRIVER.PROPERTY=VALUE, or driver=, property= and value=", text);
	opts_free(&o);
	return r;
}

int dev_add_global(const char *text, struct err *err)
{
	struct dev_global *g = calloc(1, sizeof(*g)), **at = &dev_globals;
	const char *dot = strchr(text, '.'), *eq = strchr(text, '=');
	int r = 0;

	if (!g)
		return err_set(err, -ENOMEM, "out of memory for -global");
	if (dot && eq && dot < eq) {
		g->driver = strndup(text, (size_t)(dot - text));
		g->prop = strndup(dot + 1, (size_t)(eq - dot - 1));
		g->value = strdup(eq + 1);
	} else {
		r = dev_global_from_opts(g, text, err);
	}
	if (!r && (!g->driver || !g->prop || !g->value))
		r = err_set(err, -ENOMEM, "out of memory for -global");
	if (r) {
		dev_global_free(g);
		return r;
	}
	while (*at)
		at = &(*at)->next;
	*at = g;
	return 0;
}

void dev_warn_unused_globals(void)
{
	for (struct dev_global *g = dev_globals; g; g = g->next) {
		if (!g->used)
			log_warn("-global %s.%s=%s has no effect: no such device was created", g->driver, g->prop,
				 g->value);
	}
}

/* Is `type` called `name`, or does it descend from a type called so? */
static bool dev_type_is(const struct type *type, const char *name)
{
	for (; type; type = type->parent ? type_find(type->parent) : NULL) {
		if (!strcmp(type->name, name))
			return true;
	}
	return false;
}

static int dev_apply_globals(struct dev *d, struct err *err)
{
	for (struct dev_global *g = dev_globals; g; g = g->next) {
		int r;

		if (!dev_type_is(&d->ops->type, g->driver))
			continue;
		g->used = true;
		r = type_set(&d->ops->type, d, g->prop, g->value, err);
		if (r) {
			err_prefix(err, "-global %s.%s=%s", g->driver, g->prop, g->value);
			return r;
		}
	}
	return 0;
}

/* ---- life cycle -------------------------------------------------------- */

static void dev_free(struct dev *d)
{
	type_props_free(&d->ops->type, d);
	free(d->id);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

struct dev *dev_new_ops(struct bus *bus, const struct dev_ops *ops, struct err *err)
{
	struct dev *d;

	dev_register_types();
	BUG_ON(ops->type.size < sizeof(*d));
	d = calloc(1, ops->type.size);
	if (!d) {
		err_set(err, -ENOMEM, "out of memory for device \"%s\"", ops->type.name);
		return NULL;
	}
	d->ops = ops;
	d->bus = bus;
	pthread_mutex_init(&d->lock, NULL);
	if (type_init(&ops->type, d, err) || dev_apply_globals(d, err)) {
		dev_free(d);
		return NULL;
	}
	return d;
}

struct dev *dev_new(struct bus *bus, const char *type_name, struct err *err)
{
	const struct dev_ops *ops = dev_ops_find(type_name);

	if (!ops) {
		dev_err_unknown(type_name, false, err);
		return NULL;
	}
	return dev_new_ops(bus, ops, err);
}

int dev_set(struct dev *d, const char *prop, const char *value, struct err *err)
{
	const struct prop *p = type_find_prop(&d->ops->type, prop);

	if (d->realized && p && !(p->flags & PROP_RUNTIME))
		return err_set(err, -EBUSY, "device \"%s\": property \"%s\" can only be set before the device is made",
			       d->id ? d->id : d->ops->type.name, prop);
	return type_set(&d->ops->type, d, prop, value, err);
}

struct dev *dev_find(struct bus *bus, const char *id)
{
	for (struct dev *d = bus->devices; d; d = d->next) {
		if (d->id && !strcmp(d->id, id))
			return d;
	}
	return NULL;
}

int dev_realize(struct dev *d, struct err *err)
{
	struct dev **at = &d->bus->devices;
	int r = d->ops->realize ? d->ops->realize(d, err) : 0;

	if (r) {
		err_set(err, r, "could not be made"); /* keeps the device's own reason */
		return err_prefix(err, "device \"%s\"", d->id ? d->id : d->ops->type.name);
	}
	while (*at)
		at = &(*at)->next;
	*at = d;
	d->realized = true;
	return 0;
}

void dev_destroy(struct dev *d)
{
	struct dev **at;

	if (!d)
		return;
	for (at = &d->bus->devices; *at && *at != d; at = &(*at)->next)
		;
	if (*at)
		*at = d->next;
	if (d->realized && d->ops->unrealize)
		d->ops->unrealize(d);
	dev_free(d);
}

void dev_reset_all(struct bus *bus)
{
	for (struct dev *d = bus->devices; d; d = d->next) {
		if (d->ops->reset)
			d->ops->reset(d);
	}
}

int dev_pause_all(struct bus *bus)
{
	int ret = 0;

	for (struct dev *d = bus->devices; d; d = d->next) {
		int r = d->ops->pause ? d->ops->pause(d) : 0;

		if (r && !ret)
			ret = r;
	}
	return ret;
}

void dev_resume_all(struct bus *bus)
{
	for (struct dev *d = bus->devices; d; d = d->next) {
		if (d->ops->resume)
			d->ops->resume(d);
	}
}

/* Last made, first gone: a device may use those that were there before it. */
void dev_destroy_all(struct bus *bus)
{
	while (bus->devices) {
		struct dev *d = bus->devices;

		while (d->next)
			d = d->next;
		dev_destroy(d);
	}
}

/* ---- -device ----------------------------------------------------------- */

static int dev_check_id(struct bus *bus, const char *id, struct err *err)
{
	const char *c = id;

	if (!isalpha((unsigned char)*c))
		return err_set(err, -EINVAL, "device id \"%s\": must begin with a letter", id);
	while (isalnum((unsigned char)*c) || (*c && strchr("-._", *c)))
		c++;
	if (*c)
		return err_set(err, -EINVAL, "device id \"%s\": use letters, digits, '-', '.' and '_' only", id);
	if (dev_find(bus, id))
		return err_set(err, -EEXIST, "device id \"%s\" is already in use", id);
	return 0;
}

static struct dev *dev_create_from_opts(struct bus *bus, struct opts *o, struct err *err)
{
	static const char *const except[] = {"driver", "id", NULL};
	const char *driver = opts_get(o, "driver"), *id = opts_get(o, "id");
	const struct dev_ops *ops = driver ? dev_ops_find(driver) : NULL;
	struct dev *d;

	if (!driver || !*driver) {
		err_set(err, -EINVAL, "-device needs a device type first; -device help lists them");
		return NULL;
	}
	if (!ops) {
		dev_err_unknown(driver, true, err);
		return NULL;
	}
	if (!ops->user_creatable) {
		err_set(err, -EINVAL, "device type \"%s\" is part of the board and cannot be added with -device",
			driver);
		return NULL;
	}
	if (id && dev_check_id(bus, id, err))
		return NULL;
	d = dev_new_ops(bus, ops, err);
	if (!d)
		return NULL;
	if (id && !(d->id = strdup(id)))
		err_set(err, -ENOMEM, "out of memory for device \"%s\"", id);
	else if (!type_set_opts(&ops->type, d, o, except, err) && !opts_check_used(o, &ops->type, err) &&
		 !dev_realize(d, err))
		return d;
	dev_free(d);
	return NULL;
}

struct dev *dev_create_from_text(struct bus *bus, const char *text, struct err *err)
{
	struct opts o;
	struct dev *d;

	dev_register_types();
	if (opts_parse(text, "driver", &o, err))
		return NULL;
	d = dev_create_from_opts(bus, &o, err);
	opts_free(&o);
	return d;
}
