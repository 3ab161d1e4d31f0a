/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A machine: its configuration as the command line gives it, its life cycle, and
 * the threads. The control layer (QMP, monitor, command line) uses only this.
 */
#ifndef KELVIN_MACHINE_VM_H
#define KELVIN_MACHINE_VM_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "bus/dev.h"
#include "cpu/cpu.h"
#include "cpu/model.h"

enum vm_run_state {
	VM_PRELAUNCH,
	VM_RUNNING,
	VM_PAUSED,
	VM_SHUTDOWN_STATE,
	VM_PANICKED,
	VM_IO_ERROR,
	VM_INTERNAL_ERROR,
	VM_INMIGRATE,	   /* waits for a snapshot, or loads it */
	VM_FINISH_MIGRATE, /* being saved */
	VM_POSTMIGRATE	   /* saved: the guest may be running elsewhere */
};

struct vm_config {
	char *machine;	   /* "pc" */
	char *accel;	   /* "kvm:soft" list, each with options after a comma; NULL = default */
	char *cpu;	   /* -cpu or NULL */
	uint64_t ram_size; /* bytes */
	struct ram_config ram;
	unsigned cpus, sockets, cores, threads;
	char *kernel, *append, *dtb, *bios;
	char **initrd; /* several are concatenated */
	unsigned ninitrd;
	char *name, *uuid;
	bool have_uuid;
	uint8_t uuid_bytes[16];
	char *boot;	/* -boot's text */
	char *rtc_base; /* "utc", "localtime" or a date */
	char *incoming; /* -incoming: the machine starts from a snapshot; its URI, or "defer" */
	bool no_reboot, no_shutdown, start_paused, no_defaults, no_acpi, no_hpet;
	char *serial[4]; /* chardev ids or NULL */
	char **devices;	 /* -device texts in order */
	unsigned ndevices;
	char **smbios;
	unsigned nsmbios;
	char **fw_cfg;
	unsigned nfw_cfg;
	bool timeline; /* print the start-up timeline at exit */
};

/* The APIC ID of vCPU `index` in the topology of -smp (sockets, cores and threads in bit fields). */
uint32_t vm_apic_id(const struct vm_config *cfg, unsigned index);

struct vm;
/* Everything up to the first instruction; the vCPU threads exist but wait. NULL and err on failure. */
struct vm *vm_create(const struct vm_config *cfg, struct loop *main_loop, struct err *err);
void vm_destroy(struct vm *vm);

/* Main loop's thread only. */
void vm_start(struct vm *vm); /* cont */
void vm_stop(struct vm *vm, enum vm_run_state why);
void vm_system_reset(struct vm *vm);
/* A snapshot is being saved or loaded: only this sets these states. Loaded: VM_PAUSED, and vm_start then goes on. */
void vm_set_migrating(struct vm *vm, enum vm_run_state state);
/* INMIGRATE: does the guest start by itself once it is loaded? vm_start during it says yes. */
bool vm_starts_when_loaded(const struct vm *vm);
void vm_powerdown(struct vm *vm); /* the ACPI power button */
/* Ask from any thread (signal handlers excepted). */
void vm_request(struct vm *vm, enum vm_request what, int status, const char *why);
void vm_quit(struct vm *vm, int status); /* leave vm_main; any thread */
/* Runs the main loop until the machine is gone; returns the exit status. */
int vm_main(struct vm *vm);

enum vm_run_state vm_state(const struct vm *vm);
const char *vm_state_name(enum vm_run_state s); /* QMP's RunState names */
struct bus *vm_bus(struct vm *vm);
struct accel *vm_accel(struct vm *vm);
void *vm_board(struct vm *vm); /* the board's instance */
const struct type *vm_board_type(const struct vm *vm);
const struct vm_config *vm_config_of(const struct vm *vm);
/* Why this engine: "kvm (/dev/kvm is usable)" or "soft (no /dev/kvm)". */
const char *vm_accel_reason(const struct vm *vm);
/* Run fn with vcpu i outside vcpu_run (it is stopped and resumed around the call). */
void vm_with_vcpu(struct vm *vm, unsigned i, void (*fn)(struct vcpu *v, void *arg), void *arg);

/* Events for QMP: name and a JSON object text (NULL = none). In the main loop's thread. */
struct vm_event_sink {
	void (*event)(void *opaque, const char *name, const char *data_json);
	void *opaque;
	struct vm_event_sink *next;
};
void vm_add_event_sink(struct vm *vm, struct vm_event_sink *s);
void vm_remove_event_sink(struct vm *vm, struct vm_event_sink *s);
void vm_emit(struct vm *vm, const char *name, const char *data_json);

/*
 * One board per file in machine/: a table entry. The instance (type.size bytes,
 * properties set from -M's "pc,hpet=off") is vm_board(vm), made by vm_create and
 * freed after destroy. Order of the calls: machine/vm_int.h. Main loop's thread,
 * vCPUs stopped.
 */
struct board_ops {
	struct type type;	    /* "pc"; properties of -M */
	const char *const *aliases; /* other names: NULL-terminated, or NULL */
	unsigned max_cpus;
	bool no_cpus; /* it has no vCPU at all, whatever -smp says */
	/* RAM, chips, devices with fixed places; vm->host's interrupt callbacks,
	 * vm->vcpu_thread_start and vm->powerdown. */
	int (*create)(struct vm *vm, struct err *err);
	/* What dev_reset_all does not reach (interrupt chips). May be NULL. */
	void (*reset)(struct vm *vm);
	/* After the resets: firmware or kernel and tables into RAM, CPU 0's state. */
	int (*load)(struct vm *vm, struct err *err);
	/* Snapshots: the interrupt chips and the 8254 where the engine has none. vCPUs stopped. May be NULL. */
	void (*chips_save)(struct vm *vm, struct chips *c);
	void (*chips_load)(struct vm *vm, const struct chips *c);
	/* Also after a failed create; the vCPU threads have ended, the devices are gone. */
	void (*destroy)(struct vm *vm);
};
extern const struct board_ops none_board_ops;
extern const struct board_ops *const board_table[]; /* the first is the default; ends with NULL */

/* All counters of the machine as a JSON object; heap, NULL when out of memory. Main loop's thread. */
char *vm_stats_text(struct vm *vm);
/* -stats: all counters of the machine as JSON to path ("-" = stdout). 0 or -errno. */
int vm_write_stats(struct vm *vm, const char *path, struct err *err);

#endif
