/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shapes that QMP commands share, and those of the events; names and members are
 * QEMU 7.2's, as far as Kelvin has them. Constant.
 */
#include "control/qmp_schema.h"
#include "machine/vm.h"

static const char *run_state(size_t i)
{
	return i <= VM_POSTMIGRATE ? vm_state_name((enum vm_run_state)i) : NULL;
}

#define LIMIT(n)  n ":int, " n "_max?:int, " n "_max_length?:int, "
#define CAUSE	  "guest:bool, reason:@ShutdownCause"
#define PROP_INFO "name:str, type:str, description?:str, default-value?:any"

const struct qmp_type qmp_type_table[] = {
    {"Target", "<x86_64>", NULL},
    {"RunState", NULL, run_state},
    {"ShutdownCause",
     "<host-qmp-quit|host-qmp-system-reset|host-signal|guest-shutdown|guest-reset|guest-panic|host-ui|host-error|none>",
     NULL},
    {"MigrationCapability", "<events>", NULL}, /* there is no live migration */
    {"MigrationStatus", "<none|setup|cancelling|cancelled|active|completed|failed>", NULL},
    {"MigrationInfo",
     "{status?:@MigrationStatus, total-time?:int, downtime?:int, error-desc?:str, ram?:{total:int, remaining:int, "
     "transferred:int, duplicate:int, normal:int, normal-bytes:int, page-size:int, mbps:number, pages-per-second:int, "
     "downtime-bytes:int, dirty-sync-count:int, skipped:int, dirty-pages-rate:int, postcopy-requests:int, "
     "multifd-bytes:int, precopy-bytes:int, postcopy-bytes:int, dirty-sync-missed-zero-copy:int}}",
     NULL},
    {"ObjectProperty", "{" PROP_INFO "}", NULL},
    {"SchemaInfo",
     "{name:str, meta-type:<builtin|enum|array|object|alternate|command|event>, "
     "json-type?:<string|number|int|boolean|null|object|array|value>, values?:[str], "
     "members?:[{name?:str, type?:str, default?:any}], element-type?:str, arg-type?:str, ret-type?:str}",
     NULL},
    {"CommandLineOption",
     "{option:str, parameters:[{name:str, type:<string|boolean|number|size>, help?:str, default?:str}]}", NULL},
    {"CpuInfoFast",
     "{cpu-index:int, qom-path:str, thread-id:int, target:@Target, "
     "props?:{socket-id?:int, core-id?:int, thread-id?:int}}",
     NULL},
    {"CpuDefinition",
     "{name:str, typename:str, migration-safe?:bool, static:bool, unavailable-features?:[str], alias-of?:str, "
     "deprecated:bool}",
     NULL},
    {"CpuModel", "{name:str, props?:any}", NULL},
    {"MachineInfo",
     "{name:str, alias?:str, is-default?:bool, cpu-max:int, hotpluggable-cpus:bool, numa-mem-supported:bool, "
     "deprecated:bool, default-cpu-type?:str, default-ram-id?:str}",
     NULL},
    {"BlockDeviceInfo",
     "{file:str, node-name?:str, ro:bool, drv:str, backing_file?:str, backing_file_depth:int, encrypted:bool, "
     "detect_zeroes:<off|on|unmap>, " LIMIT("bps") LIMIT("bps_rd") LIMIT("bps_wr") LIMIT("iops") LIMIT("iops_rd")
	 LIMIT("iops_wr") "iops_size?:int, group?:str, image:{filename:str, format:str, virtual-size:int}, "
			  "cache:{writeback:bool, direct:bool, no-flush:bool}, write_threshold:int}",
     NULL},
    {"BlockInfo",
     "{device:str, qdev?:str, type:str, removable:bool, locked:bool, inserted?:@BlockDeviceInfo, tray_open?:bool}",
     NULL},
    {NULL, NULL, NULL},
};

const struct qmp_event qmp_event_table[] = {
    {"SHUTDOWN", CAUSE},
    {"RESET", CAUSE},
    {"POWERDOWN", NULL},
    {"STOP", NULL},
    {"RESUME", NULL},
    {"GUEST_PANICKED", "action:<pause|poweroff|run>"},
    {"BLOCK_IO_ERROR", "device:str, operation:<read|write>, action:<ignore|report|stop>, nospace?:bool, reason:str"},
    {"BALLOON_CHANGE", "actual:int"},
    {"MIGRATION", "status:@MigrationStatus"},
    {"DEVICE_TRAY_MOVED", "device:str, id:str, tray-open:bool"},
    {NULL, NULL},
};
