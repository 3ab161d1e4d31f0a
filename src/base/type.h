/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Types and properties: everything a user can create (device, object, machine,
 * cpu, accel, chardev, netdev, drive, ...) is described by a const `struct type`
 * with typed properties. One walk over them serves option parsing, -global,
 * help, and the introspection commands of QMP.
 *
 * An instance is `type->size` zeroed bytes; each property with an offset is a
 * field of it. Strings are owned by the instance (type_props_free frees them).
 */
#ifndef KELVIN_BASE_TYPE_H
#define KELVIN_BASE_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum prop_kind {
	PROP_END = 0,
	PROP_BOOL, /* bool: on/off, yes/no, true/false */
	PROP_U8,   /* decimal, 0x hex or 0 octal, within min..max when max != 0 */
	PROP_U16,
	PROP_U32,
	PROP_U64,
	PROP_I64,
	PROP_SIZE,	/* uint64_t bytes; suffixes K M G T (binary); no suffix = bytes */
	PROP_STR,	/* char *, heap, NULL when not given */
	PROP_ENUM,	/* int: index into values[] (NULL-terminated) */
	PROP_ONOFFAUTO, /* int: enum onoffauto */
	PROP_MAC,	/* uint8_t[6] */
	PROP_DEVFN,	/* int32_t: PCI "slot" or "slot.function" in hex, -1 = any */
	PROP_LINK,	/* void *: an existing object named by id; link_kind says of which family */
};

enum onoffauto { OOA_AUTO = 0, OOA_ON, OOA_OFF };

/* prop.flags */
#define PROP_RUNTIME  1u /* may be set after creation */
#define PROP_READONLY 2u /* can be read, never set by a user */
#define PROP_REQUIRED 4u
#define PROP_JSON     8u /* PROP_STR: the text is JSON, and monitors show it as such */

struct prop {
	const char *name; /* NULL ends the table */
	enum prop_kind kind;
	size_t offset;
	const char *def; /* default as the user would write it; NULL = zero */
	const char *help;
	const char *const *values; /* PROP_ENUM */
	uint64_t min, max;
	const char *link_kind; /* PROP_LINK: "chardev", "drive", "netdev", "object", "iothread" */
	const char *alias_of;  /* another name for this property of the same type */
	unsigned flags;
};

struct type {
	const char *name;   /* as on the command line */
	const char *about;  /* one line of help */
	const char *parent; /* name of the parent type or NULL */
	bool abstract;
	size_t size;
	const struct prop *props; /* own; the parent's are found through parent */
};

/* A parsed "name,key=value,..." or JSON object: an ordered list of strings. */
struct opt {
	char *key, *value;
	bool used;
	bool negated; /* written as the bare word "noKEY" */
};
struct opts {
	char *head; /* the leading bare word ("virtio-blk-pci" of "virtio-blk-pci,drive=d"), or NULL */
	struct opt *v;
	size_t n;
};

/*
 * Parse QEMU's key=value syntax (",," is a literal comma; a bare key is key=on,
 * "nokey" is key=off) or, when text starts with '{', a JSON object (nested keys
 * become "a.b"). With `head_key` the first bare word is the value of that key
 * (and opts->head). On error *out is empty. The caller frees with opts_free.
 */
int opts_parse(const char *text, const char *head_key, struct opts *out, struct err *err);
void opts_free(struct opts *o);
/* Value of `key` (the last one given) or NULL; marks it used. Owned by opts. */
const char *opts_get(struct opts *o, const char *key);
/* Append (copies both strings). */
int opts_add(struct opts *o, const char *key, const char *value);
/* Append ",key=value" to *text (heap), commas in value doubled, as opts_parse reads them back. */
int opts_append(char **text, const char *key, const char *value);
/* An error naming the first option nobody used, with the nearest of type's names. */
int opts_check_used(const struct opts *o, const struct type *type, struct err *err);

/* Set defaults of all properties (parents first). */
int type_init(const struct type *type, void *instance, struct err *err);
/* Set one property from text. Errors name type, property, value and what is allowed. */
int type_set(const struct type *type, void *instance, const char *prop, const char *value, struct err *err);
/* Set every opt that is a property and mark it used; keys in `except` (NULL-terminated) are left. */
int type_set_opts(const struct type *type, void *instance, struct opts *o, const char *const *except, struct err *err);
/* Text form of a property; heap, caller frees; NULL if there is no such property. */
char *type_get(const struct type *type, const void *instance, const char *prop);
/* Every property with the parents' first, aliases included: i from 0 until NULL. */
const struct prop *type_prop_at(const struct type *type, size_t i);
const struct prop *type_find_prop(const struct type *type, const char *prop);
void type_props_free(const struct type *type, void *instance);
/* "name=<kind>  help (default ...)" lines to stdout, for -device NAME,help. */
void type_print_help(const struct type *type);

/* Register all types once at start, before parsing; the array is kept, not copied. Any number of calls. */
void type_register(const struct type *const *types, size_t n);
const struct type *type_find(const char *name);
/* Every registered type in order: i from 0 until NULL. */
const struct type *type_at(size_t i);

/* Find objects for PROP_LINK: a family registers its lookup. Returns NULL when there is none. */
void type_register_links(const char *link_kind, void *(*lookup)(const char *id));

/* The nearest of `names` to `word` by edit distance (NULL when none is near): "did you mean". */
const char *text_nearest(const char *word, const char *const *names, size_t n);
/* Parse a size ("512", "4k", "1.5G"); default_unit multiplies when there is no suffix. */
int text_parse_size(const char *s, uint64_t default_unit, uint64_t *out);

#endif
