// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Snapshots of the machine in its disks, by QEMU's rules: every disk that can be
 * written takes part and must be able to; the machine's state is in the first of
 * them. The machine stands still and the main loop does nothing else meanwhile:
 * the images work on a loop of their own, so that no other monitor's command and
 * no I/O thread sees them in between.
 *
 * The new snapshot is complete before one of the same name is removed; what fails
 * leaves no part of it, and the machine goes on.
 */
#include "control/savevm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/util.h"
#include "block/block.h"
#include "control/img.h"
#include "machine/snapshot.h"

#define MAX_DISKS 64u

/* ---- the disks ------------------------------------------------------------------- */

struct disk {
	const char *id;
	struct block_node *node;
	struct loop *home; /* its loop; it works on another one meanwhile */
	char *found;	   /* the ID of the snapshot in question, or NULL */
};
struct disks {
	struct disk v[MAX_DISKS];
	unsigned n;
	struct loop *loop;
};

static int disks_find(struct disks *k, struct err *err)
{
	const struct drive *d;

	*k = (struct disks){0};
	for (size_t i = 0; (d = drive_at(i)); i++) {
		if (!d->node || block_read_only(d->node))
			continue;
		if (!block_has_snapshots(d->node))
			return err_set(err, -ENOTSUP,
				       "Device '%s' is writable but does not support snapshots (its format is %s; "
				       "qcow2 has them)",
				       d->id, block_format(d->node));
		if (k->n == MAX_DISKS)
			return err_set(err, -ENOTSUP, "snapshots of more than %u disks do not exist", MAX_DISKS);
		k->v[k->n++] = (struct disk){.id = d->id, .node = d->node};
	}
	return k->n ? 0
		    : err_set(err, -ENOTSUP,
			      "No block device can store the machine's state: a writable qcow2 disk is needed");
}

static void disks_give(struct disks *k)
{
	struct err err = {0};

	for (unsigned i = 0; i < k->n; i++) {
		if (k->v[i].home && block_set_loop(k->v[i].node, k->v[i].home, &err))
			log_error("drive '%s' does not come back to its thread: %s", k->v[i].id, err.msg);
		free(k->v[i].found);
	}
	if (k->loop)
		loop_destroy(k->loop);
	*k = (struct disks){0};
}

/* The machine stands still and its requests have ended. */
static int disks_take(struct disks *k, struct err *err)
{
	k->loop = loop_create("savevm", err);
	if (!k->loop)
		return -ENOMEM;
	for (unsigned i = 0; i < k->n; i++) {
		struct disk *d = &k->v[i];
		int rc = block_flush_now(d->node);

		if (rc < 0)
			return err_set_errno(err, rc, "drive '%s' cannot be flushed", d->id);
		d->home = block_loop(d->node);
		rc = block_set_loop(d->node, k->loop, err);
		if (rc < 0) {
			d->home = NULL;
			return err_prefix(err, "drive '%s'", d->id);
		}
	}
	return 0;
}

/* By name alone, as QEMU does; NULL: it has none, or *rc. */
static const struct block_snapshot *find(const struct disk *d, const char *name, int *rc, struct err *err)
{
	const struct block_snapshot *s;
	unsigned n;

	*rc = block_snapshot_list(d->node, &s, &n, err);
	for (unsigned i = 0; *rc == 0 && i < n; i++)
		if (!strcmp(s[i].name, name))
			return &s[i];
	return NULL;
}

/* Which snapshots of the name there are, as IDs in disk.found. */
static int disks_look(struct disks *k, const char *name, struct err *err)
{
	for (unsigned i = 0; i < k->n; i++) {
		int rc;
		const struct block_snapshot *s = find(&k->v[i], name, &rc, err);

		if (rc < 0)
			return rc;
		if (s && !(k->v[i].found = strdup(s->id)))
			return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

/* Can the machine be stopped for it? */
static int may_stop(struct vm *vm, struct err *err)
{
	switch (vm_state(vm)) {
	case VM_INMIGRATE: return err_set(err, -EBUSY, "the machine waits to be loaded (-incoming)");
	case VM_FINISH_MIGRATE: return err_set(err, -EBUSY, "the machine is being saved");
	case VM_POSTMIGRATE:
		return err_set(err, -EBUSY, "the machine has been saved by migrate and may be running elsewhere");
	default: return 0;
	}
}

/* ---- the state as a stream -------------------------------------------------------- */

/* Bytes on their way to or from pieces of a disk's VM state. */
struct pieces {
	struct block_node *node;
	const char *id;	    /* reading: the snapshot's */
	uint8_t *buf;	    /* of BLOCK_VMSTATE_PIECE bytes */
	uint64_t pos, size; /* where buf's bytes lie; reading: bytes there are */
	size_t at, have;    /* in buf */
};

static int pieces_write(void *opaque, const void *data, size_t len, struct err *err)
{
	struct pieces *p = opaque;
	const uint8_t *from = data;

	while (len) {
		const size_t n = MIN(len, (size_t)BLOCK_VMSTATE_PIECE - p->at);
		int rc;

		memcpy(p->buf + p->at, from, n);
		p->at += n;
		from += n;
		len -= n;
		if (p->at < BLOCK_VMSTATE_PIECE)
			continue;
		rc = block_vmstate_write(p->node, p->buf, p->pos, BLOCK_VMSTATE_PIECE, err);
		if (rc < 0)
			return rc;
		p->pos += BLOCK_VMSTATE_PIECE;
		p->at = 0;
	}
	return 0;
}

/* The rest; *size is what there is in all. */
static int pieces_end(struct pieces *p, uint64_t *size, struct err *err)
{
	*size = p->pos + p->at;
	if (!p->at)
		return 0;
	memset(p->buf + p->at, 0, BLOCK_VMSTATE_PIECE - p->at);
	return block_vmstate_write(p->node, p->buf, p->pos, BLOCK_VMSTATE_PIECE, err);
}

static int pieces_read(void *opaque, void *data, size_t len, struct err *err)
{
	struct pieces *p = opaque;
	uint8_t *to = data;

	while (len) {
		const size_t n = MIN(len, p->have - p->at);
		int rc;

		memcpy(to, p->buf + p->at, n);
		p->at += n;
		to += n;
		len -= n;
		if (!len)
			break;
		p->pos += p->have;
		p->at = 0;
		p->have = (size_t)MIN(p->size - p->pos, (uint64_t)BLOCK_VMSTATE_PIECE);
		if (!p->have)
			return err_set(err, -EINVAL, "the snapshot is cut short after %llu bytes",
				       (unsigned long long)p->size);
		rc = block_vmstate_read(p->node, p->id, p->buf, p->pos, p->have, err);
		if (rc < 0) {
			p->have = 0;
			return rc;
		}
	}
	return 0;
}

static int pieces_begin(struct pieces *p, struct err *err)
{
	p->buf = aligned_alloc(4096, BLOCK_VMSTATE_PIECE);
	return p->buf ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* ---- saving ------------------------------------------------------------------------ */

/* Remove what has this name and date: one's own work and nobody else's. */
static void take_back(struct disks *k, const struct block_snapshot *made)
{
	struct err err = {0};

	for (unsigned i = 0; i < k->n; i++) {
		const struct block_snapshot *s;
		unsigned n;

		if (block_snapshot_list(k->v[i].node, &s, &n, &err))
			continue;
		for (unsigned j = 0; j < n; j++)
			if (!strcmp(s[j].name, made->name) && s[j].date_sec == made->date_sec &&
			    s[j].date_nsec == made->date_nsec) {
				char *id = strdup(s[j].id);
				if (id && block_snapshot_delete(k->v[i].node, id, &err))
					log_error("%s", err.msg);
				free(id);
				break;
			}
	}
}

static int write_state(struct disks *k, struct snapshot *s, uint64_t *size, struct err *err)
{
	struct pieces p = {.node = k->v[0].node};
	const struct snapshot_io io = {.write = pieces_write, .opaque = &p};
	int rc = pieces_begin(&p, err);

	/* A snapshot applied by QEMU, or a process that was killed, may have left one. */
	if (rc == 0)
		rc = block_vmstate_drop(p.node, err);
	if (rc == 0)
		rc = snapshot_write(s, &io, err);
	if (rc == 0)
		rc = pieces_end(&p, size, err);
	free(p.buf);
	return rc;
}

static int save_to_disks(struct vm *vm, struct disks *k, struct snapshot *s, const char *name, struct err *err)
{
	struct block_snapshot want = {.name = (char *)name, .vm_clock_nsec = vmclock_ns(vm_bus(vm)->clock)};
	struct timespec now;
	int rc = disks_look(k, name, err);

	clock_gettime(CLOCK_REALTIME, &now);
	want.date_sec = (uint32_t)now.tv_sec;
	want.date_nsec = (uint32_t)now.tv_nsec;
	if (rc == 0)
		rc = write_state(k, s, &want.vm_state_size, err);
	for (unsigned i = 0; i < k->n && rc == 0; i++) {
		rc = block_snapshot_create(k->v[i].node, &want, err);
		want.vm_state_size = 0;
	}
	if (rc < 0) {
		struct err other = {0};

		take_back(k, &want);
		if (block_vmstate_drop(k->v[0].node, &other))
			log_error("%s", other.msg);
		return rc;
	}
	for (unsigned i = 0; i < k->n && rc == 0; i++)
		if (k->v[i].found)
			rc = block_snapshot_delete(k->v[i].node, k->v[i].found, err);
	return rc < 0 ? err_prefix(err, "the machine was saved, but its older snapshot '%s' remains", name) : 0;
}

static int save(struct vm *vm, const char *name, struct err *err)
{
	const enum vm_run_state before = vm_state(vm);
	const bool running = before == VM_RUNNING;
	struct snapshot *s = NULL;
	struct disks k;
	int rc = may_stop(vm, err);

	if (rc == 0 && before == VM_INTERNAL_ERROR)
		rc = err_set(err, -EINVAL, "a machine with an internal error cannot be saved");
	if (rc == 0 && strlen(name) > 255)
		rc = err_set(err, -EINVAL, "the name of a snapshot has at most 255 bytes");
	if (rc == 0)
		rc = disks_find(&k, err);
	if (rc < 0)
		return rc;
	vm_stop(vm, VM_PAUSED);
	vm_set_migrating(vm, VM_FINISH_MIGRATE);
	s = snapshot_take(vm, running, err);
	rc = s ? 0 : err->code;
	/* Once more: waiting for what was in flight may have let another monitor change a medium. */
	if (rc == 0)
		rc = disks_find(&k, err);
	if (rc == 0) {
		rc = disks_take(&k, err);
		if (rc == 0)
			rc = save_to_disks(vm, &k, s, name, err);
		disks_give(&k);
	}
	snapshot_free(s);
	vm_set_migrating(vm, running ? VM_PAUSED : before);
	if (running)
		vm_start(vm);
	return rc;
}

/* ---- while the machine stands still ------------------------------------------------ */

typedef int (*disks_work)(struct vm *vm, struct disks *k, const char *name, bool *touched, struct err *err);

/* With the disks in hand. What `work` has touched is, if it fails, not the machine any more that it was. */
static int while_stopped(struct vm *vm, disks_work work, const char *name, struct err *err)
{
	const enum vm_run_state before = vm_state(vm);
	const bool running = before == VM_RUNNING;
	bool touched = false;
	struct disks k;
	int rc = may_stop(vm, err);

	if (rc == 0)
		rc = disks_find(&k, err);
	if (rc < 0)
		return rc;
	vm_stop(vm, VM_PAUSED);
	dev_pause_all(vm_bus(vm));
	/* Once more: waiting for what was in flight may have let another monitor change a medium. */
	rc = disks_find(&k, err);
	if (rc == 0) {
		rc = disks_take(&k, err);
		if (rc == 0)
			rc = work(vm, &k, name, &touched, err);
		disks_give(&k);
	}
	if (rc < 0 && touched) {
		vm_set_migrating(vm, VM_INTERNAL_ERROR);
		err_prefix(err, "the machine is stopped, half loaded (loadvm again, or system_reset)");
		log_error("%s", err->msg);
		return rc;
	}
	vm_set_migrating(vm, touched || running ? VM_PAUSED : before);
	if (running)
		vm_start(vm);
	return rc;
}

/* ---- loading ----------------------------------------------------------------------- */

/* Every disk has it, and one of them the machine's state: that one. */
static int choose(struct disks *k, const char *name, struct disk **state, uint64_t *size, struct err *err)
{
	*state = NULL;
	for (unsigned i = 0; i < k->n; i++) {
		struct disk *d = &k->v[i];
		int rc;
		const struct block_snapshot *s = find(d, name, &rc, err);

		if (rc < 0)
			return rc;
		if (!s)
			return err_set(err, -ENOENT, "Snapshot '%s' does not exist in drive '%s'", name, d->id);
		if (ALIGN_UP(s->disk_size, 512ull) != block_size(d->node))
			return err_set(err, -ENOTSUP,
				       "drive '%s' had another size in snapshot '%s' (%llu bytes, now %llu): kelvin "
				       "img snapshot -a goes back to it",
				       d->id, name, (unsigned long long)s->disk_size,
				       (unsigned long long)block_size(d->node));
		if (s->vm_state_size && !*state) {
			*state = d;
			*size = s->vm_state_size;
		}
	}
	return *state ? 0
		      : err_set(err, -EINVAL,
				"Snapshot '%s' is one of the disks only: kelvin img snapshot -a goes back to it", name);
}

/* Is it ours, and of such a machine? Nothing has been changed yet. */
static int check(struct vm *vm, const struct snapshot_io *io, const char *name, struct err *err)
{
	struct pieces *p = io->opaque;
	char magic[4];
	int rc;

	if (pieces_read(p, magic, sizeof(magic), err) == 0 && !memcmp(magic, "QEVM", sizeof(magic)))
		return err_set(err, -ENOTSUP, "snapshot '%s' was made by QEMU: Kelvin cannot load its machines", name);
	p->pos = p->at = p->have = 0;
	rc = err->code ? err->code : snapshot_check(vm, io, err);
	p->pos = p->at = p->have = 0;
	return rc < 0 ? err_prefix(err, "snapshot '%s'", name) : 0;
}

/* *touched: the machine is not the one any more that it was. */
static int load_from_disks(struct vm *vm, struct disks *k, const char *name, bool *touched, struct err *err)
{
	struct pieces p = {0};
	const struct snapshot_io io = {.read = pieces_read, .opaque = &p};
	struct disk *state;
	int rc = choose(k, name, &state, &p.size, err);

	if (rc == 0)
		rc = disks_look(k, name, err);
	if (rc == 0)
		rc = pieces_begin(&p, err);
	if (rc == 0) {
		p.node = state->node;
		p.id = state->found;
		rc = check(vm, &io, name, err);
	}
	*touched = rc == 0;
	for (unsigned i = 0; i < k->n && rc == 0; i++)
		rc = block_snapshot_apply(k->v[i].node, k->v[i].found, err);
	if (rc == 0)
		rc = snapshot_restore(vm, &io, err);
	free(p.buf);
	return rc;
}

int savevm_load_at_start(struct vm *vm, const char *name, struct err *err)
{
	return while_stopped(vm, load_from_disks, name, err) < 0 ? err_prefix(err, "-loadvm %.100s", name) : 0;
}

/* ---- deleting ------------------------------------------------------------------------ */

static int delete_from_disks(struct vm *vm, struct disks *k, const char *name, bool *touched, struct err *err)
{
	bool any = false;
	int rc = disks_look(k, name, err);

	for (unsigned i = 0; i < k->n && rc == 0; i++) {
		any |= k->v[i].found != NULL;
		if (k->v[i].found)
			rc = block_snapshot_delete(k->v[i].node, k->v[i].found, err);
	}
	return rc == 0 && !any ? err_set(err, -ENOENT, "Snapshot '%s' does not exist in any drive", name) : rc;
}

/* ---- the human monitor ------------------------------------------------------------------ */

static void say(int rc, const struct err *err, struct textbuf *out)
{
	if (rc < 0)
		textbuf_printf(out, "Error: %s\n", err->msg);
}

void hmp_savevm(struct vm *vm, const char *args, struct textbuf *out)
{
	const time_t now = time(NULL);
	struct err err = {0};
	char name[40];
	struct tm tm;

	if (!*args && localtime_r(&now, &tm)) {
		strftime(name, sizeof(name), "vm-%Y%m%d%H%M%S", &tm);
		args = name;
	}
	say(save(vm, args, &err), &err, out);
}

void hmp_loadvm(struct vm *vm, const char *args, struct textbuf *out)
{
	struct err err = {0};

	if (*args)
		say(while_stopped(vm, load_from_disks, args, &err), &err, out);
	else
		textbuf_printf(out, "loadvm NAME: info snapshots lists them\n");
}

void hmp_delvm(struct vm *vm, const char *args, struct textbuf *out)
{
	struct err err = {0};

	if (*args)
		say(while_stopped(vm, delete_from_disks, args, &err), &err, out);
	else
		textbuf_printf(out, "delvm NAME: info snapshots lists them\n");
}

/* A line of the list. IDs differ from disk to disk, and are not shown where a line stands for all. */
static void print_line(struct textbuf *out, const struct block_snapshot *s, bool all)
{
	struct block_snapshot copy = *s;
	char line[IMG_SNAPSHOT_LINE];

	if (all)
		copy.id = (char *)"--";
	img_snapshot_line(&copy, line, sizeof(line));
	textbuf_printf(out, "%s\n", line);
}

/* Do the other disks have it too? */
static bool on_others(const struct disks *k, unsigned disk, const char *name)
{
	struct err err = {0};
	int rc;

	for (unsigned i = 0; i < k->n; i++)
		if (i != disk && !find(&k->v[i], name, &rc, &err))
			return false;
	return true;
}

/* The snapshots of a disk that are on all disks, or those that are not. */
static unsigned print_some(struct textbuf *out, const struct disks *k, unsigned disk, bool all)
{
	const struct block_snapshot *s;
	unsigned n, printed = 0;
	struct err err = {0};

	if (block_snapshot_list(k->v[disk].node, &s, &n, &err)) {
		textbuf_printf(out, "Error: %s\n", err.msg);
		return 0;
	}
	for (unsigned i = 0; i < n; i++) {
		if (on_others(k, disk, s[i].name) != all)
			continue;
		if (!printed++ && !all)
			textbuf_printf(out, "\nList of partial (non-loadable) snapshots on '%s':\n", k->v[disk].id);
		if (printed == 1)
			textbuf_printf(out, "%s\n", img_snapshot_head);
		print_line(out, &s[i], all);
	}
	return printed;
}

void info_snapshots(struct vm *vm, const char *args, struct textbuf *out)
{
	struct err err = {0};
	struct disks k;
	unsigned total = 0;

	if (disks_find(&k, &err) < 0) {
		textbuf_printf(out, "Error: %s\n", err.msg);
		return;
	}
	for (unsigned i = 0; i < k.n; i++) {
		const struct block_snapshot *s;
		unsigned n = 0;

		if (block_snapshot_list(k.v[i].node, &s, &n, &err) == 0)
			total += n;
	}
	if (!total) {
		textbuf_printf(out, "There is no snapshot available.\n");
		return;
	}
	textbuf_printf(out, "List of snapshots present on all disks:\n");
	if (!print_some(out, &k, 0, true))
		textbuf_printf(out, "None\n");
	for (unsigned i = 0; i < k.n; i++)
		print_some(out, &k, i, false);
}
