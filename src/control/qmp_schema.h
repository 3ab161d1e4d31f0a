/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The shapes of QMP's arguments, replies and events, as text beside each command. One reading of that text checks what
 * a client sends, another makes query-qmp-schema, so the two cannot differ.
 *
 *	str int number bool any null      a JSON value of that kind
 *	[TYPE]                            an array
 *	<one|two|three>                   a string out of these
 *	{name:TYPE, name?:TYPE}           an object; with '?' the member may be missing
 *	@Name                             a type of qmp_type_table
 *
 * Arguments are the members of an object without its braces; NULL: there are none. Main loop's thread.
 */
#ifndef KELVIN_CONTROL_QMP_SCHEMA_H
#define KELVIN_CONTROL_QMP_SCHEMA_H

#include <jansson.h>
#include "base/err.h"

/* Named shapes, for what is used twice or refers to itself. */
struct qmp_type {
	const char *name;
	const char *shape;
	const char *(*value)(size_t i); /* instead of shape: the values of an enumeration, until NULL */
};
extern const struct qmp_type qmp_type_table[]; /* ends with name NULL */

struct qmp_event {
	const char *name;
	const char *members; /* of its data; NULL: none */
};
extern const struct qmp_event qmp_event_table[]; /* ends with name NULL */

/* Do the arguments (NULL: none given) fit? 0, or -EINVAL and err in QEMU's words. */
int qmp_check_members(const char *members, const json_t *args, struct err *err);
/* Does a value have the shape? For tests of replies, too. */
int qmp_check_shape(const char *shape, const json_t *value, struct err *err);
/* The reply of query-qmp-schema: every command and event, and the types they use under numbers instead of names. */
json_t *qmp_schema(void);

#endif
