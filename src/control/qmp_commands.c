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
#include "block/throttle.h"
#include "chr/chr.h"
#include "control/balloon.h"
#include "control/info.h"
#include "control/json.h"
#include "control/media.h"
#include "control/migrate.h"
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

/* The limits of a node under the names of query-block; zeros when there are none. */
static void block_add_limits(json_t *o, const struct block_node *n)
{
	static const char *const names[THROTTLE_KINDS] = {"bps", "bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"};
	struct throttle_limits l;
	const char *group = block_throttle_limits(n, &l);

	for (int i = 0; i < THROTTLE_KINDS; i++) {
		char name[32];

		json_object_set_new(o, names[i], json_integer((json_int_t)l.avg[i]));
		snprintf(name, sizeof(name), "%s_max", names[i]);
		if (l.max[i])
			json_object_set_new(o, name, json_integer((json_int_t)l.max[i]));
		snprintf(name, sizeof(name), "%s_max_length", names[i]);
		if (l.max[i] && l.length[i])
			json_object_set_new(o, name, json_integer((json_int_t)l.length[i]));
	}
	if (group && l.iops_size)
		json_object_set_new(o, "iops_size", json_integer((json_int_t)l.iops_size));
	if (group)
		json_object_set_new(o, "group", json_text(group));
}

static json_t *block_inserted(const struct drive *d, const struct block_node *n)
{
	static const char *const zeroes[] = {
	    [BLOCK_ZEROES_OFF] = "off", [BLOCK_ZEROES_ON] = "on", [BLOCK_ZEROES_UNMAP] = "unmap"};
	json_t *image = json_pack("{s:o,s:s,s:I}", "filename", json_text(block_filename(n)), "format", block_format(n),
				  "virtual-size", (json_int_t)block_size(n));
	bool top = n == d->node;
	int depth = 0;

	for (const struct block_node *b = block_backing(n); b; b = block_backing(b))
		depth++;
	json_t *o =
	    json_pack("{s:o,s:s,s:b,s:o,s:i,s:b,s:s,s:i,s:{s:b,s:b,s:b}}", "file", json_text(block_filename(n)), "drv",
		      block_format(n), "ro", block_read_only(n), "image", image, "backing_file_depth", depth,
		      "encrypted", 0, "detect_zeroes", zeroes[top ? d->open.detect_zeroes : 0], "write_threshold", 0,
		      "cache", "writeback", block_writeback(n), "direct", d->open.direct, "no-flush", d->open.no_flush);
	if (depth)
		json_object_set_new(o, "backing_file", json_text(block_filename(block_backing(n))));
	block_add_limits(o, n);
	return o;
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
			json_object_set_new(o, "inserted", block_inserted(d, d->node));
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
			json_t *o = block_inserted(d, n);
			if (n == d->node)
				json_object_set_new(o, "node-name", json_text(d->id));
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
	case VM_FINISH_MIGRATE: err_set(err, -EBUSY, "the machine is being saved"); return NULL;
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

#define NO_ARGS	  NULL
#define TYPE_NAME "typename:str"
#define TRAY	  "device?:str, id?:str"

const struct qmp_command qmp_command_table[] = {
    {"query-version", NO_ARGS, "{qemu:{major:int, minor:int, micro:int}, package:str}", cmd_query_version},
    {"query-commands", NO_ARGS, "[{name:str}]", cmd_query_commands},
    {"query-events", NO_ARGS, "[{name:str}]", cmd_query_events},
    {"query-qmp-schema", NO_ARGS, "[@SchemaInfo]", cmd_query_qmp_schema},
    {"query-command-line-options", "option?:str", "[@CommandLineOption]", cmd_query_command_line_options},
    {"query-target", NO_ARGS, "{arch:@Target}", cmd_query_target},
    {"query-status", NO_ARGS, "{running:bool, singlestep:bool, status:@RunState}", cmd_query_status},
    {"query-kvm", NO_ARGS, "{enabled:bool, present:bool}", cmd_query_kvm},
    {"x-query-accel", NO_ARGS, "{name:str, reason:str}", cmd_query_accel},
    {"x-query-stats", NO_ARGS, "any", cmd_query_stats},
    {"query-cpus-fast", NO_ARGS, "[@CpuInfoFast]", cmd_query_cpus_fast},
    {"query-cpu-definitions", NO_ARGS, "[@CpuDefinition]", cmd_query_cpu_definitions},
    {"query-cpu-model-expansion", "type:<static|full>, model:@CpuModel", "{model:@CpuModel}",
     cmd_query_cpu_model_expansion},
    {"query-name", NO_ARGS, "{name?:str}", cmd_query_name},
    {"query-uuid", NO_ARGS, "{UUID:str}", cmd_query_uuid},
    {"query-chardev", NO_ARGS, "[{label:str, filename:str, frontend-open:bool}]", cmd_query_chardev},
    {"query-chardev-backends", NO_ARGS, "[{name:str}]", cmd_query_chardev_backends},
    {"query-block", NO_ARGS, "[@BlockInfo]", cmd_query_block},
    {"query-named-block-nodes", "flat?:bool", "[@BlockDeviceInfo]", cmd_query_named_block_nodes},
    {"query-balloon", NO_ARGS, "{actual:int}", cmd_query_balloon},
    {"query-machines", NO_ARGS, "[@MachineInfo]", cmd_query_machines},
    {"query-migrate-capabilities", NO_ARGS, "[{capability:@MigrationCapability, state:bool}]",
     cmd_query_migrate_capabilities},
    {"device-list-properties", TYPE_NAME, "[@ObjectProperty]", cmd_device_list_properties},
    {"qom-list-types", "implements?:str, abstract?:bool", "[{name:str, abstract?:bool, parent?:str}]",
     cmd_qom_list_types},
    {"qom-list-properties", TYPE_NAME, "[@ObjectProperty]", cmd_qom_list_properties},
    {"qom-list", "path:str", "[@ObjectProperty]", cmd_qom_list},
    {"qom-get", "path:str, property:str", "any", cmd_qom_get},
    {"qom-set", "path:str, property:str, value:any", NULL, cmd_qom_set},
    {"eject", TRAY ", force?:bool", NULL, cmd_eject},
    {"blockdev-open-tray", TRAY ", force?:bool", NULL, cmd_open_tray},
    {"blockdev-close-tray", TRAY, NULL, cmd_close_tray},
    {"blockdev-remove-medium", "id:str", NULL, cmd_remove_medium},
    {"blockdev-insert-medium", "id:str, node-name:str", NULL, cmd_insert_medium},
    {"blockdev-change-medium",
     TRAY ", filename:str, format?:str, force?:bool, read-only-mode?:<retain|read-only|read-write>", NULL,
     cmd_change_medium},
    {"balloon", "value:int", NULL, cmd_balloon},
    {"migrate", "uri:str, blk?:bool, inc?:bool, detach?:bool, resume?:bool", NULL, cmd_migrate},
    {"migrate_cancel", NO_ARGS, NULL, cmd_migrate_cancel},
    {"migrate-incoming", "uri:str", NULL, cmd_migrate_incoming},
    {"query-migrate", NO_ARGS, "@MigrationInfo", cmd_query_migrate},
    {"migrate-set-capabilities", "capabilities:[{capability:@MigrationCapability, state:bool}]", NULL,
     cmd_migrate_set_capabilities},
    {"stop", NO_ARGS, NULL, cmd_stop},
    {"cont", NO_ARGS, NULL, cmd_cont},
    {"quit", NO_ARGS, NULL, cmd_quit},
    {"system_reset", NO_ARGS, NULL, cmd_system_reset},
    {"system_powerdown", NO_ARGS, NULL, cmd_system_powerdown},
    {"human-monitor-command", "command-line:str, cpu-index?:int", "str", cmd_human_monitor_command},
    {NULL, NULL, NULL, NULL},
};
