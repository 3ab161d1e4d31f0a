/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A snapshot from beginning to end. Saving: the main loop waits until nothing is in
 * flight, flushes the disks and turns everything but RAM into bytes; then a thread
 * writes the stream. Loading: a thread reads and checks the whole stream, RAM goes
 * to its place at once and the rest is kept; then the main loop takes that over.
 */
#include "machine/snapshot_int.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/util.h"
#include "block/block.h"

#define QUIET_NS (5 * NSEC_PER_SEC) /* how long what is in flight may take */

/* ---- life ------------------------------------------------------------------------ */

static struct snapshot *snapshot_new(struct vm *vm, int fd, bool saving,
				     void (*done)(void *opaque, int rc, const struct err *err), void *opaque,
				     struct err *err)
{
	struct snapshot *s = calloc(1, sizeof(*s));

	if (!s || !(s->config = snapshot_describe(vm))) {
		free(s);
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	s->vm = vm;
	s->stream.fd = fd;
	s->saving = saving;
	s->done = done;
	s->opaque = opaque;
	s->joined = true;
	for (unsigned i = 0; i < vm->mem.nblocks; i++)
		s->ram_total += vm->mem.block[i].size;
	return s;
}

static void join(struct snapshot *s)
{
	if (!s->joined)
		pthread_join(s->thread, NULL);
	s->joined = true;
}

void snapshot_cancel(struct snapshot *s)
{
	s->stream.cancelled = true;
}

void snapshot_free(struct snapshot *s)
{
	if (!s)
		return;
	snapshot_cancel(s);
	join(s);
	snap_parts_free(&s->parts);
	free(s->config);
	free(s);
}

struct snapshot_progress snapshot_progress(const struct snapshot *s)
{
	return (struct snapshot_progress){.total = s->ram_total,
					  .done = s->ram_done,
					  .transferred = s->stream.bytes,
					  .zero_pages = s->zero_pages,
					  .pages = s->pages};
}

bool snapshot_running(const struct snapshot *s)
{
	return s->running;
}

static int start_thread(struct snapshot *s, void *(*fn)(void *arg), struct err *err)
{
	int rc = pthread_create(&s->thread, NULL, fn, s);

	if (rc)
		return err_set_errno(err, -rc, "cannot start a thread for the snapshot");
	s->joined = false;
	pthread_setname_np(s->thread, "snapshot");
	return 0;
}

/* ---- saving ---------------------------------------------------------------------------- */

static void saved(void *arg)
{
	struct snapshot *s = arg;

	join(s);
	s->done(s->opaque, s->rc, &s->err);
}

static int write_all(struct snapshot *s, struct err *err)
{
	struct snap_stream *o = &s->stream;
	uint8_t count[8];
	int rc = snap_write_header(o, err);

	if (rc == 0)
		rc = snap_write(o, SNAP_CONFIG, s->config, strlen(s->config), NULL, 0, err);
	if (rc == 0)
		rc = snap_ram_save(s, err);
	for (size_t i = 0; i < s->parts.n && rc == 0; i++)
		rc = snap_write(o, s->parts.v[i].type, s->parts.v[i].data, s->parts.v[i].len, NULL, 0, err);
	st64le(count, o->records);
	return rc < 0 ? rc : snap_write(o, SNAP_END, count, sizeof(count), NULL, 0, err);
}

static void *save_thread(void *arg)
{
	struct snapshot *s = arg;

	s->rc = write_all(s, &s->err);
	loop_post(s->vm->loop, saved, s);
	return NULL;
}

/* What the guest wrote is in the images, where another process finds it. */
static int flush_disks(struct err *err)
{
	const struct drive *d;

	for (size_t i = 0; (d = drive_at(i)); i++) {
		int rc = d->node && !block_read_only(d->node) ? block_flush_now(d->node) : 0;

		if (rc < 0)
			return err_set_errno(err, rc, "drive '%s' cannot be flushed", d->id);
	}
	return 0;
}

/* Devices give up what they do one after the other; some go on a little by themselves first. */
static int save_parts(struct snapshot *s, struct err *err)
{
	const uint64_t until = clock_raw_ns() + QUIET_NS;

	for (;;) {
		struct err e = {0};
		int rc = snap_parts_save(s->vm, s->running, &s->parts, &e);

		if (rc != -EAGAIN || clock_raw_ns() > until) {
			if (rc < 0)
				err_set(err, rc, "%s", e.msg);
			return rc;
		}
		snap_parts_free(&s->parts);
		dev_resume_all(&s->vm->bus);
		loop_run_once(s->vm->loop, NSEC_PER_SEC / 1000);
		dev_pause_all(&s->vm->bus);
	}
}

static int take(struct snapshot *s, bool running, struct err *err)
{
	int rc;

	s->running = running;
	dev_pause_all(&s->vm->bus);
	rc = save_parts(s, err);
	return rc < 0 ? rc : flush_disks(err);
}

struct snapshot *snapshot_save(struct vm *vm, int fd, bool running,
			       void (*done)(void *opaque, int rc, const struct err *err), void *opaque, struct err *err)
{
	struct snapshot *s = snapshot_new(vm, fd, true, done, opaque, err);

	if (s && take(s, running, err) == 0 && start_thread(s, save_thread, err) == 0)
		return s;
	snapshot_free(s);
	return NULL;
}

/* ---- loading ----------------------------------------------------------------------------- */

static void loaded(void *arg)
{
	struct snapshot *s = arg;

	join(s);
	if (s->rc == 0) {
		/* Nobody may see half of it; vm_start resumes them. */
		dev_pause_all(&s->vm->bus);
		s->rc = snap_parts_load(s->vm, &s->parts, &s->running, &s->err);
	}
	snap_parts_free(&s->parts);
	s->done(s->opaque, s->rc, &s->err);
}

/* What an error shows of a line; an empty one stands behind the last. */
#define SHOWN_MAX 120
static const char *line_text(const char *line, size_t len, int *shown)
{
	const char *text = len ? line : "nothing more";

	*shown = (int)MIN(len ? len : strlen(text), (size_t)SHOWN_MAX);
	return text;
}

/* Line by line: the first that differs is what the user has to change. */
static int compare_config(const char *here, const char *there, struct err *err)
{
	while (*here || *there) {
		const size_t a = strcspn(here, "\n"), b = strcspn(there, "\n");

		if (a != b || memcmp(here, there, a) != 0) {
			int ours, theirs;
			const char *own = line_text(here, a, &ours), *other = line_text(there, b, &theirs);

			return err_set(
			    err, -EINVAL,
			    "this is another machine: the snapshot has \"%.*s\", this one \"%.*s\"; start it "
			    "with the same options",
			    theirs, other, ours, own);
		}
		here += a + (here[a] == '\n');
		there += b + (there[b] == '\n');
	}
	return 0;
}

/* A record that is kept whole. */
static uint8_t *read_part(struct snapshot *s, const struct snap_head *h, struct err *err)
{
	uint8_t *data;
	int rc;

	if (h->len > SNAPSHOT_PARTS - s->parts.bytes) {
		err_set(err, -EINVAL, "the snapshot is corrupted (a record has %llu bytes)",
			(unsigned long long)h->len);
		return NULL;
	}
	data = malloc(h->len + 1);
	if (!data) {
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	rc = snap_read(&s->stream, data, h->len, err);
	if (rc == 0)
		rc = snap_check(h, crc32c(snap_crc_begin(h), data, h->len), err);
	data[h->len] = 0;
	if (rc == 0)
		return data;
	free(data);
	return NULL;
}

static int read_config(struct snapshot *s, struct err *err)
{
	struct snap_head h;
	uint8_t *text;
	int rc = snap_read_head(&s->stream, &h, err);

	if (rc < 0)
		return rc;
	if (h.type != SNAP_CONFIG)
		return err_set(err, -EINVAL, "the snapshot is corrupted (its first record is another)");
	text = read_part(s, &h, err);
	if (!text)
		return -EINVAL;
	for (uint64_t i = 0; i < h.len; i++) /* it may be printed */
		if ((text[i] < ' ' && text[i] != '\n') || text[i] > '~')
			text[i] = '?';
	rc = compare_config(s->config, (char *)text, err);
	free(text);
	return rc;
}

/* One record; 1 after the last. */
static int read_record(struct snapshot *s, struct err *err)
{
	struct snap_head h;
	uint8_t *data;
	int rc = snap_read_head(&s->stream, &h, err);

	if (rc < 0)
		return rc;
	if (h.type == SNAP_RAM)
		return snap_ram_load(s, &h, err);
	data = read_part(s, &h, err);
	if (!data)
		return -EINVAL;
	switch (h.type) {
	case SNAP_END:
		rc = h.len == 8 && ld64le(data) == s->stream.records - 1
			 ? 1
			 : err_set(err, -EINVAL, "the snapshot is corrupted (records are missing)");
		break;
	case SNAP_CPU_MODEL:
	case SNAP_CLOCK:
	case SNAP_DEVICE:
	case SNAP_VCPU:
	case SNAP_CHIPS: rc = snap_parts_add(&s->parts, h.type, data, h.len, err); break;
	default:
		rc = err_set(err, -EINVAL, "the snapshot has a record that this Kelvin does not know: use a newer one");
	}
	free(data);
	return rc;
}

static int check_head(struct snapshot *s, struct err *err)
{
	int rc = snap_read_header(&s->stream, err);

	return rc < 0 ? rc : read_config(s, err);
}

static int read_all(struct snapshot *s, struct err *err)
{
	int rc = check_head(s, err);

	if (rc < 0)
		return rc;
	snap_ram_clear(s->vm);
	do
		rc = read_record(s, err);
	while (rc == 0);
	return rc < 0 ? rc : snap_read_end(&s->stream, err);
}

static void *load_thread(void *arg)
{
	struct snapshot *s = arg;

	s->rc = read_all(s, &s->err);
	loop_post(s->vm->loop, loaded, s);
	return NULL;
}

struct snapshot *snapshot_load(struct vm *vm, int fd, void (*done)(void *opaque, int rc, const struct err *err),
			       void *opaque, struct err *err)
{
	struct snapshot *s = snapshot_new(vm, fd, false, done, opaque, err);

	if (!s)
		return NULL;
	if (start_thread(s, load_thread, err) == 0)
		return s;
	snapshot_free(s);
	return NULL;
}

/* ---- at once ------------------------------------------------------------------------------- */

struct snapshot *snapshot_take(struct vm *vm, bool running, struct err *err)
{
	struct snapshot *s = snapshot_new(vm, -1, true, NULL, NULL, err);

	if (s && take(s, running, err) == 0)
		return s;
	snapshot_free(s);
	return NULL;
}

int snapshot_write(struct snapshot *s, const struct snapshot_io *io, struct err *err)
{
	s->stream.io = io;
	return write_all(s, err);
}

int snapshot_check(struct vm *vm, const struct snapshot_io *io, struct err *err)
{
	struct snapshot *s = snapshot_new(vm, -1, false, NULL, NULL, err);
	int rc;

	if (!s)
		return -ENOMEM;
	s->stream.io = io;
	rc = check_head(s, err);
	snapshot_free(s);
	return rc;
}

int snapshot_restore(struct vm *vm, const struct snapshot_io *io, struct err *err)
{
	struct snapshot *s = snapshot_new(vm, -1, false, NULL, NULL, err);
	int rc;

	if (!s)
		return -ENOMEM;
	s->stream.io = io;
	dev_pause_all(&vm->bus);
	rc = vm_reset_hardware(vm, err);
	if (rc == 0)
		rc = read_all(s, err);
	if (rc == 0)
		rc = snap_parts_load(vm, &s->parts, &s->running, err);
	snapshot_free(s);
	return rc;
}
