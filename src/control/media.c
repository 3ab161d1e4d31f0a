// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Removable media in the monitors: QMP's eject, blockdev-*-tray and -medium, and the
 * human monitor's eject and change. block/medium.c does the work. Main loop's thread.
 */
#include <errno.h>
#include <string.h>
#include "base/util.h"
#include "block/block.h"
#include "control/media.h"
#include "control/qmp_impl.h"
#include "control/textbuf.h"

static const char *text_arg(const json_t *args, const char *key)
{
	return json_string_value(json_object_get(args, key));
}

static bool flag_arg(const json_t *args, const char *key)
{
	return json_is_true(json_object_get(args, key));
}

static struct drive *drive_arg(const json_t *args, struct err *err)
{
	return drive_find_removable(text_arg(args, "device"), text_arg(args, "id"), err);
}

/* Run fn on the drive that device= or id= names; an empty object or NULL. */
static json_t *with_drive(json_t *args, int (*fn)(struct drive *d, const json_t *args, struct err *err),
			  struct err *err)
{
	struct drive *d = drive_arg(args, err);

	return d && !fn(d, args, err) ? json_object() : NULL;
}

static int do_eject(struct drive *d, const json_t *args, struct err *err)
{
	return drive_eject(d, flag_arg(args, "force"), err);
}

static int do_open(struct drive *d, const json_t *args, struct err *err)
{
	return drive_open_tray(d, flag_arg(args, "force"), err);
}

static int do_close(struct drive *d, const json_t *args, struct err *err)
{
	return drive_close_tray(d, err);
}

static int do_remove(struct drive *d, const json_t *args, struct err *err)
{
	return drive_remove_medium(d, err);
}

/* There are no nodes with names of their own yet: a -drive that no device uses is one. */
static int do_insert(struct drive *d, const json_t *args, struct err *err)
{
	const char *name = text_arg(args, "node-name");
	struct drive *from = drive_find(name);

	return from ? drive_insert_medium(d, from, err)
		    : err_set(err, -ENOENT, "Cannot find device='' nor node-name='%.60s'", name);
}

static int parse_access(const char *text, enum drive_access *out, struct err *err)
{
	static const char *const names[] = {"retain", "read-only", "read-write"};

	*out = DRIVE_RETAIN;
	for (size_t i = 0; text && i < ARRAY_SIZE(names); i++)
		if (!strcmp(text, names[i])) {
			*out = (enum drive_access)i;
			return 0;
		}
	return text ? err_set(err, -EINVAL, "'%.40s' is no read-only mode (retain, read-only, read-write)", text) : 0;
}

static int do_change(struct drive *d, const json_t *args, struct err *err)
{
	enum drive_access access;
	int ret = parse_access(text_arg(args, "read-only-mode"), &access, err);

	return ret ? ret
		   : drive_change_medium(d, text_arg(args, "filename"), text_arg(args, "format"),
					 flag_arg(args, "force"), access, err);
}

json_t *cmd_eject(struct vm *vm, json_t *args, struct err *err)
{
	return with_drive(args, do_eject, err);
}

json_t *cmd_open_tray(struct vm *vm, json_t *args, struct err *err)
{
	return with_drive(args, do_open, err);
}

json_t *cmd_close_tray(struct vm *vm, json_t *args, struct err *err)
{
	return with_drive(args, do_close, err);
}

json_t *cmd_remove_medium(struct vm *vm, json_t *args, struct err *err)
{
	return with_drive(args, do_remove, err);
}

json_t *cmd_insert_medium(struct vm *vm, json_t *args, struct err *err)
{
	return with_drive(args, do_insert, err);
}

json_t *cmd_change_medium(struct vm *vm, json_t *args, struct err *err)
{
	return with_drive(args, do_change, err);
}

/* ---- the human monitor --------------------------------------------------------------- */

/* The next word of *args, cut off in place; "..." keeps its blanks. NULL at the end. */
static char *next_word(char **args)
{
	char *at = *args + strspn(*args, " "), *end;

	if (!*at)
		return NULL;
	if (*at == '"') {
		at++;
		end = strchr(at, '"');
	} else {
		end = strchr(at, ' ');
	}
	*args = end ? end + 1 : at + strlen(at);
	if (end)
		*end = 0;
	return at;
}

void hmp_eject(struct vm *vm, const char *args, struct textbuf *out)
{
	char copy[256], *at = copy, *word;
	struct err e = {0};
	bool force = false;

	strncpy(copy, args, sizeof(copy) - 1);
	copy[sizeof(copy) - 1] = 0;
	word = next_word(&at);
	if (word && !strcmp(word, "-f")) {
		force = true;
		word = next_word(&at);
	}
	struct drive *d = word ? drive_find_removable(word, NULL, &e) : NULL;
	if (!word)
		textbuf_printf(out, "eject: which device? (info block lists them)\n");
	else if (!d || drive_eject(d, force, &e))
		textbuf_printf(out, "Error: %s\n", e.msg);
}

void hmp_change(struct vm *vm, const char *args, struct textbuf *out)
{
	char copy[1024], *at = copy;
	enum drive_access access;
	struct err e = {0};

	strncpy(copy, args, sizeof(copy) - 1);
	copy[sizeof(copy) - 1] = 0;
	const char *device = next_word(&at), *file = device ? next_word(&at) : NULL;
	const char *format = file ? next_word(&at) : NULL, *mode = format ? next_word(&at) : NULL;
	if (!file) {
		textbuf_printf(out, "change DEVICE FILE [FORMAT [retain|read-only|read-write]]\n");
		return;
	}
	struct drive *d = drive_find_removable(device, NULL, &e);
	if (!d || parse_access(mode, &access, &e) || drive_change_medium(d, file, format, false, access, &e))
		textbuf_printf(out, "Error: %s\n", e.msg);
}
