// SPDX-License-Identifier: GPL-2.0-or-later
/* img check and img snapshot. Findings go to stderr as they are found, the result to stdout. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "control/img.h"
#include "control/json.h"

/* Exit statuses of check, qemu-img's. */
enum { CHECK_FAILED = 1, CHECK_CORRUPT = 2, CHECK_LEAKS = 3, CHECK_UNSUPPORTED = 63 };

static void say(const char *line)
{
	fprintf(stderr, "%s\n", line);
}

static void print_human(const struct block_check *c)
{
	if (!c->corruptions && !c->leaks && !c->errors)
		printf("No errors were found on the image.\n");
	if (c->corruptions)
		printf("\n%llu errors were found on the image.\n"
		       "Data may be corrupted, or further writes to the image may corrupt it.\n",
		       (unsigned long long)c->corruptions);
	if (c->leaks)
		printf("\n%llu leaked clusters were found on the image.\n"
		       "This means waste of disk space, but no harm to data.\n",
		       (unsigned long long)c->leaks);
	if (c->errors)
		printf("\n%llu internal errors have occurred during the check.\n", (unsigned long long)c->errors);
	if (c->total && c->allocated)
		printf("%llu/%llu = %0.2f%% allocated, %0.2f%% fragmented, %0.2f%% compressed clusters\n",
		       (unsigned long long)c->allocated, (unsigned long long)c->total,
		       (double)c->allocated * 100.0 / (double)c->total,
		       (double)c->fragmented * 100.0 / (double)c->allocated,
		       (double)c->compressed * 100.0 / (double)c->allocated);
	if (c->image_end)
		printf("Image end offset: %llu\n", (unsigned long long)c->image_end);
}

static void print_json(const char *name, const char *format, const struct block_check *c)
{
	const struct {
		const char *key;
		uint64_t value;
	} row[] = {
	    {"image-end-offset", c->image_end},
	    {"total-clusters", c->total},
	    {"allocated-clusters", c->allocated},
	    {"fragmented-clusters", c->fragmented},
	    {"compressed-clusters", c->compressed},
	    {"corruptions", c->corruptions},
	    {"leaks", c->leaks},
	    {"corruptions-fixed", c->corruptions_fixed},
	    {"leaks-fixed", c->leaks_fixed},
	};
	json_t *o = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(row); i++)
		if (row[i].value)
			json_object_set_new(o, row[i].key, json_integer((json_int_t)row[i].value));
	json_object_set_new(o, "filename", json_text(name));
	json_object_set_new(o, "format", json_string(format));
	json_object_set_new(o, "check-errors", json_integer((json_int_t)c->errors));
	json_dumpf(o, stdout, JSON_INDENT(4));
	printf("\n");
	json_decref(o);
}

static int parse_repair(const char *text, unsigned *fix, struct err *err)
{
	*fix = !text			    ? 0
	       : strcmp(text, "leaks") == 0 ? BLOCK_FIX_LEAKS
	       : strcmp(text, "all") == 0   ? BLOCK_FIX_LEAKS | BLOCK_FIX_ERRORS
					    : UINT32_MAX;
	return *fix == UINT32_MAX ? err_set(err, -EINVAL, "-r expects the repair mode 'leaks' or 'all', not '%s'", text)
				  : 0;
}

/* Repaired something: check again what is there now. */
static int check_again(const struct img_args *a, struct block_node *n, struct block_check *c, struct err *err)
{
	struct block_check now = {.say = say};
	int ret;

	if (!a->json && !a->quiet)
		printf("The following inconsistencies were found and repaired:\n\n"
		       "    %llu leaked clusters\n    %llu corruptions\n\n"
		       "Double checking the fixed image now...\n",
		       (unsigned long long)c->leaks_fixed, (unsigned long long)c->corruptions_fixed);
	fflush(stdout);
	ret = block_check(n, 0, &now, err);
	now.leaks_fixed = c->leaks_fixed;
	now.corruptions_fixed = c->corruptions_fixed;
	*c = now;
	return ret;
}

int img_check(struct img_args *a, struct err *err)
{
	struct block_open o = {.filename = a->names[0], .format = a->format, .writeback = true, .check = true};
	struct block_check c = {.say = a->quiet ? NULL : say};
	struct block_node *n;
	unsigned fix;
	int ret = parse_repair(a->repair, &fix, err);

	if (ret)
		return ret;
	o.read_only = !fix;
	o.locking = !a->force_share;
	o.no_backing = true; /* it has no say in what the image's own tables are */
	n = a->image_opts ? block_open_text(o.filename, &o, a->loop, err) : block_open(&o, a->loop, err);
	if (!n)
		return err->code ? err->code : -EIO;
	ret = block_check(n, fix, &c, err);
	if (!ret && (c.leaks_fixed || c.corruptions_fixed))
		ret = check_again(a, n, &c, err);
	if (!ret && a->json)
		print_json(a->names[0], block_format(n), &c);
	else if (!ret && !a->quiet)
		print_human(&c);
	block_close(n);
	if (ret == -ENOTSUP) {
		log_error("img check: %s", err->msg);
		return CHECK_UNSUPPORTED;
	}
	if (ret)
		return ret;
	if (c.errors)
		return err_set(err, -EIO, "the check of '%s' is incomplete", a->names[0]);
	return c.corruptions ? CHECK_CORRUPT : c.leaks ? CHECK_LEAKS : 0;
}

/* ---- snapshot --------------------------------------------------------------------- */

static int list(struct block_node *n, struct err *err)
{
	const struct block_snapshot *s;
	unsigned nr;
	int ret = block_snapshot_list(n, &s, &nr, err);

	if (!ret && nr)
		printf("Snapshot list:\n");
	if (!ret)
		img_print_snapshots(s, nr, "");
	return ret;
}

int img_snapshot(struct img_args *a, struct err *err)
{
	const bool write = a->snapshot_action && a->snapshot_action != 'l';
	struct block_open o = {.filename = a->names[0], .format = a->format, .writeback = true};
	struct block_node *n;
	int ret;

	o.read_only = !write;
	o.locking = !a->force_share;
	o.no_backing = true;
	n = a->image_opts ? block_open_text(o.filename, &o, a->loop, err) : block_open(&o, a->loop, err);
	if (!n)
		return err->code ? err->code : -EIO;
	switch (a->snapshot_action) {
	case 'a': ret = block_snapshot_apply(n, a->snapshot, err); break;
	case 'c': ret = block_snapshot_create(n, &(struct block_snapshot){.name = (char *)a->snapshot}, err); break;
	case 'd': ret = block_snapshot_delete(n, a->snapshot, err); break;
	default: ret = list(n, err); break;
	}
	block_close(n);
	return ret;
}

/* The columns of qemu-img's list. */
const char img_snapshot_head[] = "ID        TAG               VM SIZE                DATE     VM CLOCK     ICOUNT";

void img_snapshot_line(const struct block_snapshot *s, char *line, size_t len)
{
	const uint64_t clock = s->vm_clock_nsec / 1000000000;
	const time_t when = s->date_sec;
	char date[40] = "", vm_clock[40], size[32], icount[24] = "";
	struct tm tm;

	if (localtime_r(&when, &tm))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &tm);
	snprintf(vm_clock, sizeof(vm_clock), "%02u:%02u:%02u.%03u", (unsigned)(clock / 3600),
		 (unsigned)(clock / 60 % 60), (unsigned)(clock % 60), (unsigned)(s->vm_clock_nsec / 1000000 % 1000));
	if (s->icount != UINT64_MAX)
		snprintf(icount, sizeof(icount), "%llu", (unsigned long long)s->icount);
	snprintf(line, len, "%-9.255s %-16.255s %8s%20s%13s%11s", s->id, s->name,
		 img_size_text(s->vm_state_size, size, sizeof(size)), date, vm_clock, icount);
}

void img_print_snapshots(const struct block_snapshot *s, unsigned nr, const char *indent)
{
	char line[IMG_SNAPSHOT_LINE];

	if (nr)
		printf("%s%s\n", indent, img_snapshot_head);
	for (unsigned i = 0; i < nr; i++) {
		img_snapshot_line(&s[i], line, sizeof(line));
		printf("%s%s\n", indent, line);
	}
}
