/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What of an object goes into a snapshot: a const table of fields, saved with
 * their names and read back by name, so that a table may grow and an older
 * snapshot still be read. Values are little-endian, sizes are the fields' own.
 *
 * What is read is hostile: lengths, counts and values are checked against the
 * table, and post_load checks what a table cannot say. Any thread that has the
 * object for itself.
 */
#ifndef KELVIN_BASE_STATE_H
#define KELVIN_BASE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum state_kind { STATE_END, STATE_UINT, STATE_BYTES, STATE_STRUCT };

/* A table of them ends with name NULL; at most STATE_MAX_FIELDS. Use the macros below. */
#define STATE_MAX_FIELDS 96
struct state_field {
	const char *name;
	enum state_kind kind;
	size_t offset, size; /* in the object; bytes of one element (integers: 1, 2, 4 or 8) */
	uint32_t count;	     /* elements, one after the other */
	uint64_t max;	     /* integers: larger ones are refused; 0: none is */
	const struct state_field *sub;
	/* The elements are behind a pointer at `offset`; how many says the integer of count_size bytes at count_offset.
	 */
	bool pointer;
	/* ... and loading makes them: NULL before, at most `count` of them; whoever uses them frees them. */
	bool allocate;
	size_t count_offset, count_size;
	uint16_t since; /* the version that brought it: older snapshots lack it, and the object keeps what it has */
};

struct state {
	const char *name;
	uint16_t version, min_version; /* what is written; the oldest that can be read */
	const struct state *parent;    /* of the same object: saved and loaded before this one; or NULL */
	const struct state_field *fields;
	/* Bring fields up to date. -EAGAIN: something is in flight; err says what, and later it may work. May be NULL.
	 */
	int (*pre_save)(void *obj, struct err *err);
	/* All tables of the object have been loaded: check and follow. May be NULL. */
	int (*post_load)(void *obj, struct err *err);
};

/* For an object that has nothing to save: it says so. */
extern const struct state state_none;

#define STATE_BOOL_MAX(lvalue) _Generic((lvalue), bool : 1, default : 0)
#define STATE_MEMBER(T, f)     (((T *)0)->f)
/* An integer or bool; one that must not exceed `limit`; an array of integers; raw bytes. */
#define STATE_INT(T, f)                                                                                                \
	{                                                                                                              \
		.name = #f, .kind = STATE_UINT, .offset = offsetof(T, f), .size = sizeof(STATE_MEMBER(T, f)),          \
		.count = 1, .max = STATE_BOOL_MAX(STATE_MEMBER(T, f))                                                  \
	}
#define STATE_INT_MAX(T, f, limit)                                                                                     \
	{                                                                                                              \
		.name = #f, .kind = STATE_UINT, .offset = offsetof(T, f), .size = sizeof(STATE_MEMBER(T, f)),          \
		.count = 1, .max = (limit)                                                                             \
	}
#define STATE_INTS(T, f)                                                                                               \
	{                                                                                                              \
		.name = #f, .kind = STATE_UINT, .offset = offsetof(T, f), .size = sizeof(STATE_MEMBER(T, f)[0]),       \
		.count = sizeof(STATE_MEMBER(T, f)) / sizeof(STATE_MEMBER(T, f)[0]),                                   \
		.max = STATE_BOOL_MAX(STATE_MEMBER(T, f)[0])                                                           \
	}
#define STATE_RAW(T, f)                                                                                                \
	{                                                                                                              \
		.name = #f, .kind = STATE_BYTES, .offset = offsetof(T, f), .size = sizeof(STATE_MEMBER(T, f)),         \
		.count = 1                                                                                             \
	}
/* A structure inside the object, or an array of them, with a table of its own. */
#define STATE_ONE(T, f, table)                                                                                         \
	{                                                                                                              \
		.name = #f, .kind = STATE_STRUCT, .offset = offsetof(T, f), .size = sizeof(STATE_MEMBER(T, f)),        \
		.count = 1, .sub = (table)                                                                             \
	}
#define STATE_STRUCTS(T, f, table)                                                                                     \
	{                                                                                                              \
		.name = #f, .kind = STATE_STRUCT, .offset = offsetof(T, f), .size = sizeof(STATE_MEMBER(T, f)[0]),     \
		.count = sizeof(STATE_MEMBER(T, f)) / sizeof(STATE_MEMBER(T, f)[0]), .sub = (table)                    \
	}
/* f points at T.n structures, as many on both sides; at raw bytes. */
#define STATE_POINTED(T, f, n, table)                                                                                  \
	{                                                                                                              \
		.name = #f, .kind = STATE_STRUCT, .offset = offsetof(T, f), .size = sizeof(*STATE_MEMBER(T, f)),       \
		.pointer = true, .count_offset = offsetof(T, n), .count_size = sizeof(STATE_MEMBER(T, n)),             \
		.sub = (table)                                                                                         \
	}
#define STATE_POINTED_BYTES(T, f, length)                                                                              \
	{                                                                                                              \
		.name = #f, .kind = STATE_BYTES, .offset = offsetof(T, f), .size = (length), .count = 1,               \
		.pointer = true                                                                                        \
	}
/* The same, made by loading: at most `limit`. */
#define STATE_LIST(T, f, n, limit, table)                                                                              \
	{                                                                                                              \
		.name = #f, .kind = STATE_STRUCT, .offset = offsetof(T, f), .size = sizeof(*STATE_MEMBER(T, f)),       \
		.pointer = true, .allocate = true, .count_offset = offsetof(T, n),                                     \
		.count_size = sizeof(STATE_MEMBER(T, n)), .count = (limit), .sub = (table)                             \
	}

/* A growing byte string; `failed` once memory was short. Zero is empty; state_buf_free. */
struct state_buf {
	uint8_t *data;
	size_t len, room;
	bool failed;
};
void state_put(struct state_buf *b, const void *data, size_t len);
void state_put_uint(struct state_buf *b, uint64_t v, unsigned size);
void state_buf_free(struct state_buf *b);

/* Append the tables of obj. 0, -EAGAIN (see pre_save), or -errno. */
int state_save(const struct state *s, void *obj, struct state_buf *out, struct err *err);
/* Fill obj. On failure it is half loaded: only good to be thrown away. */
int state_load(const struct state *s, void *obj, const void *data, size_t len, struct err *err);

#endif
