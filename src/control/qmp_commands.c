// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The QMP commands, in the order of the table at the end. Names, arguments and
 * results are QEMU 7.2's; only what is listed exists. Main loop's thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/object.h"
#include "base/util.h"
#include "block/block.h"
#include "block/image.h"
#include "chr/chr.h"
#include "control/balloon.h"
#include "control/info.h"
#include "control/json.h"
#include "control/media.h"
#include "control/qmp_impl.h"
#include "control/textbuf.h"

static json_t *qmp_empty(void)
{
	return json_object();
}

json_t *qmp_version(void)
{
	/* The level of QMP this follows; the package says who really answers. */
	return json_pack("{s:{s:i,s:i,s:i},s:s}", "qemu", "major", 7, "minor", 2, "micro", 0, "package",
			 "kelvin-" KELVIN_VERSION);
}

/* ---- queries ------------------------------------------------------------------- */

static json_t *cmd_query_version(struct vm *vm, json_t *args, struct err *err)
{
	return qmp_version();
}

static json_t *cmd_query_commands(struct vm *vm, json_t *args, struct err *err)
{
	json_t *list = json_array();

	json_array_append_new(list, json_pack("{s:s}", "name", "qmp_capabilities"));
	for (const struct qmp_command *c = qmp_command_table; c->name; c++)
		json_array_append_new(list, json_pack("{s:s}", "name", c->name));
	return list;
}

static json_t *cmd_query_status(struct vm *vm, json_t *args, struct err *err)
{
	enum vm_run_state s = vm_state(vm);

	return json_pack("{s:s,s:b,s:b}", "status", vm_state_name(s), "singlestep", 0, "running", s == VM_RUNNING);
}

static json_t *cmd_query_kvm(struct vm *vm, json_t *args, struct err *err)
{
	bool on = !strcmp(vm_accel(vm)->ops->type.name, "kvm");
	const struct accel_ops *kvm = accel_find("kvm");

	return json_pack("{s:b,s:b}", "enabled", on, "present", on || (kvm && kvm->probe(NULL) == 0));
}

/* Kelvin's own: which engine runs and why, in words. */
static json_t *cmd_query_accel(struct vm *vm, json_t *args, struct err *err)
{
	return json_pack("{s:s,s:o}", "name", vm_accel(vm)->ops->type.name, "reason", json_text(vm_accel_reason(vm)));
}

/* A thread that was just started says its ID within moments; a reply must not say 0. */
static int vcpu_thread_id(struct vcpu *v)
{
	for (int i = 0; i < 1000 && !atomic_load(&v->tid); i++)
		usleep(1000);
	return atomic_load(&v->tid);
}

static json_t *cmd_query_cpus_fast(struct vm *vm, json_t *args, struct err *err)
{
	const struct vm_config *c = vm_config_of(vm);
	struct accel *a = vm_accel(vm);
	json_t *list = json_array();
	unsigned threads = MAX(c->threads, 1u), cores = MAX(c->cores, 1u);

	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		char path[64];
		snprintf(path, sizeof(path), "/machine/unattached/device[%u]", i);
		json_array_append_new(list,
				      json_pack("{s:i,s:s,s:i,s:s,s:{s:i,s:i,s:i}}", "cpu-index", (int)i, "qom-path",
						path, "thread-id", vcpu_thread_id(a->vcpu[i]), "target", "x86_64",
						"props", "socket-id", (int)(i / threads / cores), "core-id",
						(int)(i / threads % cores), "thread-id", (int)(i % threads)));
	}
	return list;
}

static json_t *cmd_query_name(struct vm *vm, json_t *args, struct err *err)
{
	const char *name = vm_config_of(vm)->name;

	return name ? json_pack("{s:o}", "name", json_text(name)) : qmp_empty();
}

static json_t *cmd_query_uuid(struct vm *vm, json_t *args, struct err *err)
{
	const struct vm_config *c = vm_config_of(vm);

	return json_pack("{s:s}", "UUID", c->have_uuid ? c->uuid : "00000000-0000-0000-0000-000000000000");
}

static json_t *cmd_query_chardev(struct vm *vm, json_t *args, struct err *err)
{
	json_t *list = json_array();
	struct chr *c;

	for (size_t i = 0; (c = chr_at(i)); i++) {
		char name[400];
		snprintf(name, sizeof(name), "%s%s", chr_connected(c) ? "" : "disconnected:", chr_describe(c));
		json_array_append_new(list, json_pack("{s:o,s:o,s:b}", "label", json_text(chr_id(c)), "filename",
						      json_text(name), "frontend-open", chr_attached(c)));
	}
	return list;
}

static json_t *cmd_query_chardev_backends(struct vm *vm, json_t *args, struct err *err)
{
	json_t *list = json_array();
	const struct type *t;

	for (size_t i = 0; (t = chr_type_at(i)); i++)
		json_array_append_new(list, json_pack("{s:s}", "name", t->name));
	return list;
}

static json_t *block_inserted(const struct block_node *n)
{
	json_t *image = json_pack("{s:o,s:s,s:I}", "filename", json_text(block_filename(n)), "format", block_format(n),
				  "virtual-size", (json_int_t)block_size(n));

	return json_pack("{s:o,s:s,s:b,s:o}", "file", json_text(block_filename(n)), "drv", block_format(n), "ro",
			 block_read_only(n), "image", image);
}

static json_t *cmd_query_block(struct vm *vm, json_t *args, struct err *err)
{
	json_t *list = json_array();
	struct drive *d;

	for (size_t i = 0; (d = drive_at(i)); i++) {
		const struct drive_media_ops *m = d->media;
		json_t *o = json_pack("{s:o,s:s,s:b,s:b}", "device", json_text(d->id), "type", "unknown", "removable",
				      m != NULL, "locked", m && m->locked(d->media_opaque));
		if (m) {
			const char *id = m->device_id(d->media_opaque);
			json_object_set_new(o, "tray_open", json_boolean(m->tray_open(d->media_opaque)));
			if (id)
				json_object_set_new(o, "qdev", json_text(id));
		}
		if (d->node)
			json_object_set_new(o, "inserted", block_inserted(d->node));
		json_array_append_new(list, o);
	}
	return list;
}

/* Nodes by what -drive and -blockdev called them; their backing files follow. */
static json_t *cmd_query_named_block_nodes(struct vm *vm, json_t *args, struct err *err)
{
	json_t *list = json_array();
	struct drive *d;

	for (size_t i = 0; (d = drive_at(i)); i++)
		for (struct block_node *n = d->node; n; n = block_backing(n)) {
			json_t *o = block_inserted(n);
			if (n == d->node)
				json_object_set_new(o, "node-name", json_text(d->id));
			json_array_append_new(list, o);
		}
	return list;
}

static json_t *cmd_query_machines(struct vm *vm, json_t *args, struct err *err)
{
	json_t *list = json_array();

	for (const struct board_ops *const *b = board_table; *b; b++) {
		json_t *o = json_pack("{s:s,s:b,s:i,s:b,s:b}", "name", (*b)->type.name, "is-default", b == board_table,
				      "cpu-max", 64, "hotpluggable-cpus", 0, "deprecated", 0);
		if ((*b)->aliases && (*b)->aliases[0])
			json_object_set_new(o, "alias", json_string((*b)->aliases[0]));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *cmd_device_list_properties(struct vm *vm, json_t *args, struct err *err)
{
	const char *name = json_string_value(json_object_get(args, "typename"));
	const struct dev_ops *ops = dev_ops_find(name);
	json_t *list;
	const struct prop *p;

	if (!ops) {
		err_set(err, -ENODEV, "Device '%.60s' not found", name);
		return NULL;
	}
	list = json_array();
	for (size_t i = 0; (p = type_prop_at(&ops->type, i)); i++) {
		if (p->alias_of)
			continue;
		json_t *o = json_pack("{s:s,s:s}", "name", p->name, "type", qom_kind_name(p));
		if (p->help)
			json_object_set_new(o, "description", json_string(p->help));
		json_array_append_new(list, o);
	}
	return list;
}

/* Kelvin's own: what -stats writes. */
static json_t *cmd_query_stats(struct vm *vm, json_t *args, struct err *err)
{
	char *text = vm_stats_text(vm);
	json_t *o = text ? json_loads(text, 0, NULL) : NULL;

	free(text);
	if (!o)
		err_set_errno(err, -ENOMEM, "counters");
	return o;
}

/* ---- actions -------------------------------------------------------------------- */

static json_t *cmd_stop(struct vm *vm, json_t *args, struct err *err)
{
	vm_stop(vm, VM_PAUSED);
	return qmp_empty();
}

static json_t *cmd_cont(struct vm *vm, json_t *args, struct err *err)
{
	switch (vm_state(vm)) {
	case VM_SHUTDOWN_STATE:
	case VM_PANICKED:
	case VM_INTERNAL_ERROR: err_set(err, -EINVAL, "Resetting the Virtual Machine is required"); return NULL;
	default: break;
	}
	vm_start(vm);
	return qmp_empty();
}

/* The reply is on its way before the loop ends: it is sent in this turn of the loop. */
static json_t *cmd_quit(struct vm *vm, json_t *args, struct err *err)
{
	vm_emit(vm, "SHUTDOWN", "{\"guest\": false, \"reason\": \"host-qmp-quit\"}");
	vm_quit(vm, 0);
	return qmp_empty();
}

static json_t *cmd_system_reset(struct vm *vm, json_t *args, struct err *err)
{
	vm_system_reset(vm);
	return qmp_empty();
}

static json_t *cmd_system_powerdown(struct vm *vm, json_t *args, struct err *err)
{
	vm_powerdown(vm);
	return qmp_empty();
}

static json_t *cmd_human_monitor_command(struct vm *vm, json_t *args, struct err *err)
{
	struct textbuf out = {0};
	json_t *index = json_object_get(args, "cpu-index");

	if (index && (json_integer_value(index) < 0 || json_integer_value(index) >= vm_accel(vm)->cfg.ncpus)) {
		err_set(err, -EINVAL, "Parameter 'cpu-index' expects a CPU number");
		return NULL;
	}
	hmp_run_line(vm, json_string_value(json_object_get(args, "command-line")), &out);
	json_t *text = json_text(out.text ? out.text : "");
	textbuf_free(&out);
	return text;
}

/* ---- the table --------------------------------------------------------------------- */

static const struct qmp_arg hmc_args[] = {
    {"command-line", QMP_STRING, true}, {"cpu-index", QMP_INT, false}, {NULL, 0, false}};
static const struct qmp_arg list_types_args[] = {
    {"implements", QMP_STRING, false}, {"abstract", QMP_BOOL, false}, {NULL, 0, false}};
static const struct qmp_arg path_args[] = {{"path", QMP_STRING, true}, {NULL, 0, false}};
static const struct qmp_arg get_args[] = {{"path", QMP_STRING, true}, {"property", QMP_STRING, true}, {NULL, 0, false}};
static const struct qmp_arg set_args[] = {
    {"path", QMP_STRING, true}, {"property", QMP_STRING, true}, {"value", QMP_ANY, true}, {NULL, 0, false}};
static const struct qmp_arg balloon_args[] = {{"value", QMP_INT, true}, {NULL, 0, false}};
static const struct qmp_arg typename_args[] = {{"typename", QMP_STRING, true}, {NULL, 0, false}};

static const struct qmp_arg tray_args[] = {
    {"device", QMP_STRING, false}, {"id", QMP_STRING, false}, {"force", QMP_BOOL, false}, {NULL, 0, false}};
static const struct qmp_arg close_args[] = {{"device", QMP_STRING, false}, {"id", QMP_STRING, false}, {NULL, 0, false}};
static const struct qmp_arg remove_args[] = {{"id", QMP_STRING, true}, {NULL, 0, false}};
static const struct qmp_arg insert_args[] = {
    {"id", QMP_STRING, true}, {"node-name", QMP_STRING, true}, {NULL, 0, false}};
static const struct qmp_arg change_args[] = {{"device", QMP_STRING, false},
					     {"id", QMP_STRING, false},
					     {"filename", QMP_STRING, true},
					     {"format", QMP_STRING, false},
					     {"force", QMP_BOOL, false},
					     {"read-only-mode", QMP_STRING, false},
					     {NULL, 0, false}};

const struct qmp_command qmp_command_table[] = {
    {"query-version", NULL, cmd_query_version},
    {"query-commands", NULL, cmd_query_commands},
    {"query-status", NULL, cmd_query_status},
    {"query-kvm", NULL, cmd_query_kvm},
    {"x-query-accel", NULL, cmd_query_accel},
    {"x-query-stats", NULL, cmd_query_stats},
    {"query-cpus-fast", NULL, cmd_query_cpus_fast},
    {"query-name", NULL, cmd_query_name},
    {"query-uuid", NULL, cmd_query_uuid},
    {"query-chardev", NULL, cmd_query_chardev},
    {"query-chardev-backends", NULL, cmd_query_chardev_backends},
    {"query-block", NULL, cmd_query_block},
    {"query-named-block-nodes", NULL, cmd_query_named_block_nodes},
    {"query-balloon", NULL, cmd_query_balloon},
    {"query-machines", NULL, cmd_query_machines},
    {"device-list-properties", typename_args, cmd_device_list_properties},
    {"qom-list-types", list_types_args, cmd_qom_list_types},
    {"qom-list", path_args, cmd_qom_list},
    {"qom-get", get_args, cmd_qom_get},
    {"qom-set", set_args, cmd_qom_set},
    {"eject", tray_args, cmd_eject},
    {"blockdev-open-tray", tray_args, cmd_open_tray},
    {"blockdev-close-tray", close_args, cmd_close_tray},
    {"blockdev-remove-medium", remove_args, cmd_remove_medium},
    {"blockdev-insert-medium", insert_args, cmd_insert_medium},
    {"blockdev-change-medium", change_args, cmd_change_medium},
    {"balloon", balloon_args, cmd_balloon},
    {"stop", NULL, cmd_stop},
    {"cont", NULL, cmd_cont},
    {"quit", NULL, cmd_quit},
    {"system_reset", NULL, cmd_system_reset},
    {"system_powerdown", NULL, cmd_system_powerdown},
    {"human-monitor-command", hmc_args, cmd_human_monitor_command},
    {NULL, NULL, NULL},
};
