/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tables of fields to bytes and back. What is written, all little-endian:
 *
 *	table: u8 length and name, u16 version, u32 length of its fields, the fields
 *	field: u8 kind, u8 length and name, u32 elements, u32 bytes of one (integers,
 *	       raw bytes) or of all (structures), the elements
 *	element of a structure: u32 length of its fields, the fields
 */
#include "base/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

const struct state state_none = {.name = "none", .version = 1, .min_version = 1};

/* ---- bytes ---------------------------------------------------------------------- */

void state_put(struct state_buf *b, const void *data, size_t len)
{
	if (b->failed || !len)
		return;
	if (len > b->room - b->len) {
		size_t room = MAX(MAX(b->room * 2, b->len + len), (size_t)4096);
		uint8_t *p = realloc(b->data, room);

		if (!p) {
			b->failed = true;
			return;
		}
		b->data = p;
		b->room = room;
	}
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

void state_put_uint(struct state_buf *b, uint64_t v, unsigned size)
{
	uint8_t raw[8];

	st64le(raw, v);
	state_put(b, raw, size);
}

void state_buf_free(struct state_buf *b)
{
	free(b->data);
	*b = (struct state_buf){0};
}

/* What is left to read; taking more than there is sets `bad`. */
struct reader {
	const uint8_t *at;
	size_t left;
	bool bad;
};

static const uint8_t *take(struct reader *r, size_t n)
{
	const uint8_t *p = r->at;

	if (r->bad || n > r->left) {
		r->bad = true;
		return NULL;
	}
	r->at += n;
	r->left -= n;
	return p;
}

static uint64_t take_uint(struct reader *r, unsigned size)
{
	const uint8_t *p = take(r, size);
	uint8_t raw[8] = {0};

	if (p)
		memcpy(raw, p, size);
	return ld64le(raw);
}

/* A name of at most 255 characters into text[256]. */
static void take_name(struct reader *r, char text[256])
{
	size_t n = (size_t)take_uint(r, 1);
	const uint8_t *p = take(r, n);

	text[0] = 0;
	if (!p)
		return;
	memcpy(text, p, n);
	text[n] = 0;
	for (size_t i = 0; i < n; i++) /* it may be printed */
		if (text[i] < ' ' || text[i] > '~')
			text[i] = '?';
}

static int cut_short(const char *table, struct err *err)
{
	return err_set(err, -EINVAL, "'%s': the fields do not fit their length: the snapshot is corrupted", table);
}

/* ---- the elements of a field -------------------------------------------------------- */

static uint32_t field_count(const struct state_field *f, void *obj)
{
	uint32_t n = 0;

	if (!f->pointer || f->kind != STATE_STRUCT)
		return f->count;
	memcpy(&n, (char *)obj + f->count_offset, f->count_size);
	return n;
}

static char *elements(const struct state_field *f, void *obj)
{
	char *at = (char *)obj + f->offset;

	return f->pointer ? *(char **)(void *)at : at;
}

/* ---- saving --------------------------------------------------------------------------- */

static void put_length(struct state_buf *out, size_t at)
{
	if (!out->failed)
		st32le(out->data + at, (uint32_t)(out->len - at - 4));
}

static size_t reserve_length(struct state_buf *out)
{
	size_t at = out->len;

	state_put_uint(out, 0, 4);
	return at;
}

static void put_name(struct state_buf *out, const char *name)
{
	const size_t n = strlen(name);

	BUG_ON(n > 255);
	state_put_uint(out, n, 1);
	state_put(out, name, n);
}

static void save_fields(const struct state_field *f, void *obj, struct state_buf *out)
{
	for (; f && f->name; f++) {
		const uint32_t n = field_count(f, obj);
		char *p = elements(f, obj);
		size_t at;

		state_put_uint(out, f->kind, 1);
		put_name(out, f->name);
		state_put_uint(out, n, 4);
		if (f->kind != STATE_STRUCT) {
			state_put_uint(out, f->size, 4);
			state_put(out, p, n * f->size);
			continue;
		}
		at = reserve_length(out);
		for (uint32_t i = 0; i < n; i++, p += f->size) {
			size_t one = reserve_length(out);

			save_fields(f->sub, p, out);
			put_length(out, one);
		}
		put_length(out, at);
	}
}

int state_save(const struct state *s, void *obj, struct state_buf *out, struct err *err)
{
	size_t at;
	int rc = s->parent ? state_save(s->parent, obj, out, err) : 0;

	if (rc == 0 && s->pre_save)
		rc = s->pre_save(obj, err);
	if (rc < 0)
		return rc;
	put_name(out, s->name);
	state_put_uint(out, s->version, 2);
	at = reserve_length(out);
	save_fields(s->fields, obj, out);
	put_length(out, at);
	return out->failed ? err_set(err, -ENOMEM, "out of memory") : 0;
}

/* ---- loading ------------------------------------------------------------------------------ */

static const struct state_field *field_find(const struct state_field *f, const char *name, unsigned *index)
{
	for (*index = 0; f && f[*index].name; (*index)++)
		if (!strcmp(f[*index].name, name))
			return &f[*index];
	return NULL;
}

static int load_fields(const struct state_field *table, unsigned version, const char *owner, void *obj,
		       struct reader *r, struct err *err);

static int load_uints(const struct state_field *f, const char *owner, char *p, struct reader *r, struct err *err)
{
	for (uint32_t i = 0; i < f->count; i++, p += f->size) {
		const uint64_t v = take_uint(r, (unsigned)f->size);
		uint8_t raw[8];

		if (f->max && v > f->max)
			return err_set(
			    err, -EINVAL,
			    "'%s': '%s' is %llu, and more than %llu is not possible: the snapshot is corrupted", owner,
			    f->name, (unsigned long long)v, (unsigned long long)f->max);
		st64le(raw, v);
		memcpy(p, raw, f->size);
	}
	return r->bad ? cut_short(owner, err) : 0;
}

static int load_structs(const struct state_field *f, unsigned version, void *obj, uint32_t n, struct reader *r,
			struct err *err)
{
	char *p = elements(f, obj);

	if (f->allocate && n) {
		p = calloc(n, f->size);
		if (!p)
			return err_set(err, -ENOMEM, "out of memory");
		*(char **)(void *)((char *)obj + f->offset) = p;
	}
	if (f->allocate)
		memcpy((char *)obj + f->count_offset, &n, f->count_size);
	for (uint32_t i = 0; i < n; i++, p += f->size) {
		const size_t len = (size_t)take_uint(r, 4);
		struct reader one = {take(r, len), len, false};
		int rc = r->bad ? cut_short(f->name, err) : load_fields(f->sub, version, f->name, p, &one, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int load_field(const struct state_field *f, unsigned version, const char *owner, void *obj, uint32_t n,
		      uint32_t size, struct reader *r, struct err *err)
{
	const uint32_t want = f->allocate ? MIN(n, f->count) : field_count(f, obj);

	if (n != want)
		return err_set(err, -EINVAL, "'%s': '%s' has %u elements in the snapshot, %u here", owner, f->name, n,
			       want);
	if (f->kind == STATE_STRUCT) {
		struct reader all = {take(r, size), size, false};

		return r->bad ? cut_short(owner, err) : load_structs(f, version, obj, n, &all, err);
	}
	if (size != f->size)
		return err_set(err, -EINVAL, "'%s': '%s' has %u bytes in the snapshot, %zu here", owner, f->name, size,
			       f->size);
	if (f->kind == STATE_UINT)
		return load_uints(f, owner, elements(f, obj), r, err);
	const uint8_t *p = take(r, (size_t)n * size);
	if (!p)
		return cut_short(owner, err);
	memcpy(elements(f, obj), p, (size_t)n * size);
	return 0;
}

static int load_fields(const struct state_field *table, unsigned version, const char *owner, void *obj,
		       struct reader *r, struct err *err)
{
	bool seen[STATE_MAX_FIELDS] = {false};

	while (r->left && !r->bad) {
		const unsigned kind = (unsigned)take_uint(r, 1);
		const struct state_field *f;
		char name[256];
		uint32_t n, size;
		unsigned i;
		int rc;

		take_name(r, name);
		n = (uint32_t)take_uint(r, 4);
		size = (uint32_t)take_uint(r, 4);
		if (r->bad)
			break;
		f = field_find(table, name, &i);
		if (!f || f->kind != kind)
			return err_set(err, -EINVAL, "'%s': the field '%.60s' is not known here", owner, name);
		BUG_ON(i >= STATE_MAX_FIELDS);
		if (seen[i])
			return err_set(err, -EINVAL, "'%s': '%s' comes twice: the snapshot is corrupted", owner, name);
		seen[i] = true;
		rc = load_field(f, version, owner, obj, n, size, r, err);
		if (rc < 0)
			return rc;
	}
	if (r->bad)
		return cut_short(owner, err);
	for (unsigned i = 0; table && table[i].name; i++)
		if (!seen[i] && table[i].since <= version)
			return err_set(err, -EINVAL, "'%s': the field '%s' is missing: the snapshot is corrupted",
				       owner, table[i].name);
	return 0;
}

static int load_table(const struct state *s, void *obj, struct reader *r, struct err *err)
{
	struct reader fields;
	unsigned version;
	char name[256];
	size_t len;
	int rc = s->parent ? load_table(s->parent, obj, r, err) : 0;

	if (rc < 0)
		return rc;
	take_name(r, name);
	version = (unsigned)take_uint(r, 2);
	len = (size_t)take_uint(r, 4);
	fields = (struct reader){take(r, len), len, false};
	if (r->bad)
		return cut_short(s->name, err);
	if (strcmp(name, s->name) != 0)
		return err_set(err, -EINVAL, "the snapshot has '%.60s' where '%s' is expected", name, s->name);
	if (version > s->version)
		return err_set(err, -EINVAL,
			       "'%s' has version %u in the snapshot; this Kelvin knows up to %u: use a newer one",
			       s->name, version, s->version);
	if (version < s->min_version)
		return err_set(err, -EINVAL, "'%s' has version %u in the snapshot; this Kelvin reads %u and later",
			       s->name, version, s->min_version);
	return load_fields(s->fields, version, s->name, obj, &fields, err);
}

static int call_post_load(const struct state *s, void *obj, struct err *err)
{
	int rc = s->parent ? call_post_load(s->parent, obj, err) : 0;

	return rc < 0 || !s->post_load ? rc : s->post_load(obj, err);
}

int state_load(const struct state *s, void *obj, const void *data, size_t len, struct err *err)
{
	struct reader r = {data, len, false};
	int rc = load_table(s, obj, &r, err);

	if (rc < 0)
		return rc;
	if (r.left)
		return err_set(err, -EINVAL, "'%s': %zu bytes too many: the snapshot is corrupted", s->name, r.left);
	return call_post_load(s, obj, err);
}
