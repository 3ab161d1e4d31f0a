// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * migrate, migrate-incoming, -incoming and their queries; names, states and events
 * are QEMU's. The machine is stopped while it is saved: there is no live migration,
 * and a capability that would ask for it is refused by name.
 */
#include "control/migrate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "control/json.h"
#include "control/migrate_uri.h"
#include "control/textbuf.h"
#include "machine/snapshot.h"

/* The one transfer this process makes or has made. */
static struct migration {
	struct vm *vm;
	const char *status; /* QMP's MigrationStatus; NULL: none yet */
	bool incoming, was_running;
	enum vm_run_state before; /* of the machine */
	struct migrate_end_point end;
	struct snapshot *snapshot;
	struct snapshot_progress progress; /* the last known */
	uint64_t started_ns, took_ns;
	char error[sizeof(((struct err *)0)->msg)];
} migration = {.end = {.fd = -1, .listen = -1}};

static void set_status(struct migration *m, const char *status)
{
	char json[80];

	m->status = status;
	snprintf(json, sizeof(json), "{\"status\": \"%s\"}", status);
	vm_emit(m->vm, "MIGRATION", json);
}

static bool under_way(const struct migration *m)
{
	return m->snapshot || m->end.listen >= 0;
}

/* The stream has ended, for better or worse. */
static int finish(struct migration *m, int rc, const struct err *why, struct err *err)
{
	if (m->snapshot)
		m->progress = snapshot_progress(m->snapshot);
	if (rc < 0)
		err_set(err, rc, "%s", why->msg);
	if (rc == 0)
		rc = migrate_uri_finish(&m->end, true, err);
	else
		migrate_uri_finish(&m->end, false, NULL);
	snapshot_free(m->snapshot);
	m->snapshot = NULL;
	m->took_ns = clock_raw_ns() - m->started_ns;
	snprintf(m->error, sizeof(m->error), "%s", rc < 0 ? err->msg : "");
	return rc;
}

/* ---- outgoing --------------------------------------------------------------------- */

/* The machine is as it was before. */
static void give_back(struct migration *m)
{
	vm_set_migrating(m->vm, m->was_running ? VM_PAUSED : m->before);
	if (m->was_running)
		vm_start(m->vm);
}

static void save_done(void *opaque, int rc, const struct err *why)
{
	struct migration *m = opaque;
	struct err err = {0};

	rc = finish(m, rc, why, &err);
	if (rc == 0) {
		vm_set_migrating(m->vm, VM_POSTMIGRATE);
		set_status(m, "completed");
		return;
	}
	set_status(m, rc == -ECANCELED ? "cancelled" : "failed");
	if (rc != -ECANCELED)
		log_error("the machine was not saved: %s", err.msg);
	give_back(m);
}

static int begin_save(struct vm *vm, const char *uri, struct err *err)
{
	struct migration *m = &migration;
	const enum vm_run_state state = vm_state(vm);
	int rc;

	if (under_way(m))
		return err_set(err, -EBUSY, "There's a migration process in progress");
	if (state == VM_INMIGRATE)
		return err_set(err, -EBUSY, "Guest is waiting for an incoming migration");
	if (state == VM_POSTMIGRATE)
		return err_set(err, -EBUSY, "Can't migrate the vm that was paused due to previous migration");
	if (state == VM_INTERNAL_ERROR)
		return err_set(err, -EINVAL, "a machine with an internal error cannot be saved");
	*m = (struct migration){.vm = vm,
				.before = state,
				.was_running = state == VM_RUNNING,
				.started_ns = clock_raw_ns(),
				.end = {.fd = -1, .listen = -1}};
	rc = migrate_uri_open(uri, true, &m->end, err);
	if (rc < 0)
		return rc;
	set_status(m, "setup");
	vm_stop(vm, VM_PAUSED);
	vm_set_migrating(vm, VM_FINISH_MIGRATE);
	set_status(m, "active");
	m->snapshot = snapshot_save(vm, m->end.fd, m->was_running, save_done, m, err);
	if (m->snapshot)
		return 0;
	rc = err->code;
	finish(m, rc, err, &(struct err){0});
	snprintf(m->error, sizeof(m->error), "%s", err->msg);
	set_status(m, "failed");
	give_back(m);
	return rc;
}

/* ---- incoming ----------------------------------------------------------------------- */

static void load_done(void *opaque, int rc, const struct err *why)
{
	struct migration *m = opaque;
	struct err err = {0};
	const bool go = rc == 0 && vm_starts_when_loaded(m->vm) && snapshot_running(m->snapshot);

	rc = finish(m, rc, why, &err);
	if (rc < 0) {
		set_status(m, "failed");
		log_error("the machine was not loaded: %s", err.msg);
		vm_quit(m->vm, 1);
		return;
	}
	vm_set_migrating(m->vm, VM_PAUSED);
	set_status(m, "completed");
	if (go)
		vm_start(m->vm);
}

static int begin_load(struct migration *m, struct err *err)
{
	set_status(m, "active");
	m->snapshot = snapshot_load(m->vm, m->end.fd, load_done, m, err);
	return m->snapshot ? 0 : err->code;
}

static void somebody_came(void *opaque, unsigned events)
{
	struct migration *m = opaque;
	struct err err = {0};
	const int fd = accept4(m->end.listen, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	loop_unwatch(vm_bus(m->vm)->loop, m->end.listen);
	m->end.fd = fd;
	if (begin_load(m, &err) < 0) {
		log_error("the machine was not loaded: %s", err.msg);
		vm_quit(m->vm, 1);
	}
}

static int begin_incoming(struct vm *vm, const char *uri, struct err *err)
{
	struct migration *m = &migration;
	int rc;

	*m = (struct migration){
	    .vm = vm, .incoming = true, .started_ns = clock_raw_ns(), .end = {.fd = -1, .listen = -1}};
	rc = migrate_uri_open(uri, false, &m->end, err);
	if (rc < 0)
		return rc;
	set_status(m, "setup");
	if (m->end.listen >= 0)
		rc = loop_watch(vm_bus(vm)->loop, m->end.listen, LOOP_READ, somebody_came, m)
			 ? err_set(err, -EIO, "cannot wait for a connection")
			 : 0;
	else
		rc = begin_load(m, err);
	if (rc < 0)
		migrate_uri_finish(&m->end, false, NULL);
	return rc;
}

int migrate_start_incoming(struct vm *vm, struct err *err)
{
	const char *uri = vm_config_of(vm)->incoming;

	if (!uri || !strcmp(uri, "defer"))
		return 0;
	return begin_incoming(vm, uri, err) < 0 ? err_prefix(err, "-incoming %.100s", uri) : 0;
}

void migrate_end(void)
{
	struct migration *m = &migration;

	snapshot_free(m->snapshot);
	m->snapshot = NULL;
	if (m->end.listen >= 0 && m->end.fd < 0)
		loop_unwatch(vm_bus(m->vm)->loop, m->end.listen);
	migrate_uri_finish(&m->end, false, NULL);
}

/* ---- QMP ------------------------------------------------------------------------------- */

json_t *cmd_migrate(struct vm *vm, json_t *args, struct err *err)
{
	static const char *const not_these[] = {"blk", "inc", "resume"};

	for (size_t i = 0; i < ARRAY_SIZE(not_these); i++)
		if (json_is_true(json_object_get(args, not_these[i]))) {
			err_set(err, -ENOTSUP, "migrate: '%s' does not exist in Kelvin", not_these[i]);
			return NULL;
		}
	return begin_save(vm, json_string_value(json_object_get(args, "uri")), err) < 0 ? NULL : json_object();
}

json_t *cmd_migrate_cancel(struct vm *vm, json_t *args, struct err *err)
{
	struct migration *m = &migration;

	if (m->snapshot && !m->incoming) {
		set_status(m, "cancelling");
		snapshot_cancel(m->snapshot);
	}
	return json_object();
}

json_t *cmd_migrate_incoming(struct vm *vm, json_t *args, struct err *err)
{
	const char *uri = vm_config_of(vm)->incoming;

	if (!uri || strcmp(uri, "defer") != 0)
		err_set(err, -EINVAL, "'-incoming' was not specified on the command line");
	else if (vm_state(vm) != VM_INMIGRATE || under_way(&migration))
		err_set(err, -EBUSY, "The incoming migration has already been started");
	else if (begin_incoming(vm, json_string_value(json_object_get(args, "uri")), err) == 0)
		return json_object();
	return NULL;
}

/*
 * The guest stands still while it is saved: one pass over its memory, every byte of it downtime. What only live
 * migration has is there, because clients take these members for granted, and is 0.
 */
static json_t *ram_progress(const struct snapshot_progress *p, uint64_t took_ns)
{
	static const char *const absent[] = {
	    "skipped",	     "dirty-pages-rate", "postcopy-requests",		"multifd-bytes",
	    "precopy-bytes", "postcopy-bytes",	 "dirty-sync-missed-zero-copy",
	};
	double s = took_ns ? (double)took_ns / 1e9 : 1;
	json_t *ram = json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:I,s:I,s:i}", "total", (json_int_t)p->total,
				"remaining", (json_int_t)(p->total - MIN(p->done, p->total)), "transferred",
				(json_int_t)p->transferred, "duplicate", (json_int_t)p->zero_pages, "normal",
				(json_int_t)p->pages, "normal-bytes", (json_int_t)(p->pages * PAGE_SIZE), "page-size",
				(json_int_t)PAGE_SIZE, "mbps", (double)p->transferred * 8 / 1e6 / s, "pages-per-second",
				(json_int_t)((double)(p->pages + p->zero_pages) / s), "downtime-bytes",
				(json_int_t)p->transferred, "dirty-sync-count", 1);

	for (size_t i = 0; ram && i < ARRAY_SIZE(absent); i++)
		json_object_set_new(ram, absent[i], json_integer(0));
	return ram;
}

json_t *cmd_query_migrate(struct vm *vm, json_t *args, struct err *err)
{
	struct migration *m = &migration;
	json_t *o = json_object();
	struct snapshot_progress p;
	uint64_t took_ns;

	if (!m->status)
		return o;
	if (m->snapshot)
		m->progress = snapshot_progress(m->snapshot);
	p = m->progress;
	json_object_set_new(o, "status", json_string(m->status));
	took_ns = m->snapshot ? clock_raw_ns() - m->started_ns : m->took_ns;
	json_object_set_new(o, "total-time", json_integer((json_int_t)(took_ns / 1000000)));
	if (p.total)
		json_object_set_new(o, "ram", ram_progress(&p, took_ns));
	if (!strcmp(m->status, "completed") && !m->incoming)
		json_object_set_new(o, "downtime", json_integer((json_int_t)(m->took_ns / 1000000)));
	if (*m->error)
		json_object_set_new(o, "error-desc", json_text(m->error));
	return o;
}

/* What clients ask for that is so anyway, or that is not there. */
json_t *cmd_migrate_set_capabilities(struct vm *vm, json_t *args, struct err *err)
{
	json_t *list = json_object_get(args, "capabilities"), *c;
	size_t i;

	json_array_foreach(list, i, c) {
		const char *name = json_string_value(json_object_get(c, "capability"));

		if (!name || !json_is_boolean(json_object_get(c, "state"))) {
			err_set(err, -EINVAL, "each of 'capabilities' needs 'capability' and 'state'");
			return NULL;
		}
		if (strcmp(name, "events") != 0 && json_is_true(json_object_get(c, "state"))) {
			err_set(err, -ENOTSUP, "the migration capability '%.40s' does not exist in Kelvin", name);
			return NULL;
		}
	}
	return json_object();
}

json_t *cmd_query_migrate_capabilities(struct vm *vm, json_t *args, struct err *err)
{
	return json_pack("[{s:s,s:b}]", "capability", "events", "state", 1);
}

/* ---- the human monitor -------------------------------------------------------------------- */

/* Without -d the monitor waits, as QEMU's does: what is typed next finds a saved machine. */
void hmp_migrate(struct vm *vm, const char *args, struct textbuf *out)
{
	const bool detach = !strncmp(args, "-d ", 3);
	struct err err = {0};

	if (detach)
		args += 3 + strspn(args + 3, " ");
	if (!*args || *args == '-') {
		textbuf_printf(out, "migrate [-d] URI: file:PATH, exec:COMMAND, unix:PATH, tcp:HOST:PORT or fd:N\n");
		return;
	}
	if (begin_save(vm, args, &err) < 0) {
		textbuf_printf(out, "Error: %s\n", err.msg);
		return;
	}
	while (!detach && migration.snapshot)
		loop_run_once(vm_bus(vm)->loop, -1);
	if (!detach && *migration.error)
		textbuf_printf(out, "Error: %s\n", migration.error);
}

void hmp_migrate_cancel(struct vm *vm, const char *args, struct textbuf *out)
{
	json_decref(cmd_migrate_cancel(vm, NULL, NULL));
}

void hmp_migrate_incoming(struct vm *vm, const char *args, struct textbuf *out)
{
	json_t *a = json_pack("{s:o}", "uri", json_text(args)), *r;
	struct err err = {0};

	r = cmd_migrate_incoming(vm, a, &err);
	if (!r)
		textbuf_printf(out, "Error: %s\n", err.msg);
	json_decref(r);
	json_decref(a);
}

void info_migrate(struct vm *vm, const char *args, struct textbuf *out)
{
	const struct migration *m = &migration;
	const struct snapshot_progress p = m->snapshot ? snapshot_progress(m->snapshot) : m->progress;

	if (!m->status)
		return;
	textbuf_printf(out, "Migration status: %s%s%s\n", m->status, *m->error ? ": " : "", m->error);
	textbuf_printf(out, "transferred ram: %llu kbytes\nremaining ram: %llu kbytes\ntotal ram: %llu kbytes\n",
		       (unsigned long long)(p.transferred / KIB),
		       (unsigned long long)((p.total - MIN(p.done, p.total)) / KIB),
		       (unsigned long long)(p.total / KIB));
}
