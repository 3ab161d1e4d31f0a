/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A machine's life: made, started, stopped, reset, ended. All of it in the main
 * loop's thread; other threads use vm_request and vm_quit.
 *
 * Stopping goes from the guest outwards (vCPUs, devices, clock), starting the
 * other way round, so that nothing works on a machine that stands still.
 */
#include "machine/vm_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "bus/ports.h"

/* ---- small access functions -------------------------------------------------- */

enum vm_run_state vm_state(const struct vm *vm)
{
	return vm->state;
}

const char *vm_state_name(enum vm_run_state s)
{
	static const char *const names[] = {[VM_PRELAUNCH] = "prelaunch",
					    [VM_RUNNING] = "running",
					    [VM_PAUSED] = "paused",
					    [VM_SHUTDOWN_STATE] = "shutdown",
					    [VM_PANICKED] = "guest-panicked",
					    [VM_IO_ERROR] = "io-error",
					    [VM_INTERNAL_ERROR] = "internal-error",
					    [VM_INMIGRATE] = "inmigrate",
					    [VM_FINISH_MIGRATE] = "finish-migrate",
					    [VM_POSTMIGRATE] = "postmigrate"};

	return names[s];
}

struct bus *vm_bus(struct vm *vm)
{
	return &vm->bus;
}

struct accel *vm_accel(struct vm *vm)
{
	return vm->accel;
}

const struct vm_config *vm_config_of(const struct vm *vm)
{
	return vm->cfg;
}

const struct type *vm_board_type(const struct vm *vm)
{
	return &vm->board->type;
}

void *vm_board(struct vm *vm)
{
	return vm->board_data;
}

void vm_add_event_sink(struct vm *vm, struct vm_event_sink *s)
{
	s->next = vm->sinks;
	vm->sinks = s;
}

void vm_remove_event_sink(struct vm *vm, struct vm_event_sink *s)
{
	struct vm_event_sink **p = &vm->sinks;

	while (*p && *p != s)
		p = &(*p)->next;
	if (*p)
		*p = s->next;
}

void vm_emit(struct vm *vm, const char *name, const char *data_json)
{
	if (strcmp(name, "SHUTDOWN") == 0)
		vm->shutdown_said = true;
	for (struct vm_event_sink *s = vm->sinks; s; s = s->next)
		s->event(s->opaque, name, data_json);
}

void vm_timeline_mark(struct vm *vm, const char *what)
{
	unsigned i = __atomic_load_n(&vm->nmarks, __ATOMIC_ACQUIRE);

	if (i == ARRAY_SIZE(vm->mark))
		return;
	vm->mark[i] = (struct vm_mark){what, clock_raw_ns()};
	__atomic_store_n(&vm->nmarks, i + 1, __ATOMIC_RELEASE);
}

/* ---- callbacks into the machine ------------------------------------------------- */

static uint64_t host_port_read(void *opaque, uint16_t port, unsigned size)
{
	return ports_read(((struct vm *)opaque)->bus.ports, port, size);
}

static void host_port_write(void *opaque, uint16_t port, uint64_t val, unsigned size)
{
	ports_write(((struct vm *)opaque)->bus.ports, port, val, size);
}

static void host_request(void *opaque, enum vm_request what, int status, const char *why)
{
	vm_request(opaque, what, status, why);
}

static void host_event(void *opaque, const char *name, const char *data_json)
{
	vm_emit(opaque, name, data_json);
}

/* ---- reset ------------------------------------------------------------------------ */

static int reset_hardware(struct vm *vm, struct err *err)
{
	struct accel *a = vm->accel;
	struct cpu_state *s = aligned_alloc(64, ALIGN_UP(sizeof(*s), 64ul));
	int rc = 0;

	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	if (a->ops->reset)
		a->ops->reset(a);
	for (unsigned i = 0; i < a->cfg.ncpus && rc == 0; i++) {
		cpu_state_reset(s, i == 0);
		rc = a->ops->set_state(a->vcpu[i], s);
		if (rc < 0)
			err_set_errno(err, rc, "vCPU %u was not reset", i);
	}
	free(s);
	if (rc < 0)
		return rc;
	dev_reset_all(&vm->bus);
	if (vm->board->reset)
		vm->board->reset(vm);
	vm_cpus_unpark(vm);
	return 0;
}

int vm_reset_hardware(struct vm *vm, struct err *err)
{
	char why[64];
	int status, rc = reset_hardware(vm, err);

	vm_requests_take(vm, &status, why);
	vm->loaded |= rc == 0;
	return rc;
}

/* vCPUs are outside vcpu_run. */
static int reset_everything(struct vm *vm, struct err *err)
{
	int rc = reset_hardware(vm, err);

	if (rc == 0)
		rc = vm->board->load(vm, err);
	vm->loaded = rc == 0;
	return rc;
}

static void clock_start(struct vm *vm)
{
	vmclock_start(&vm->clock);
	if (vm->accel->ops->clock_changed)
		vm->accel->ops->clock_changed(vm->accel, true);
	vmclock_timers_resume(&vm->clock);
}

static void clock_stop(struct vm *vm)
{
	vmclock_stop(&vm->clock);
	if (vm->accel->ops->clock_changed)
		vm->accel->ops->clock_changed(vm->accel, false);
}

static void emit_reason(struct vm *vm, const char *event, bool guest, const char *reason)
{
	char json[128];

	snprintf(json, sizeof(json), "{\"guest\": %s, \"reason\": \"%s\"}", guest ? "true" : "false", reason);
	vm_emit(vm, event, json);
}

/*
 * Waiting for requests in flight runs the main loop, whose events may stop or reset the machine again (more requests
 * fail, a client sends "stop"). Such changes wait: what the guest and the devices ask is posted anew, vm_stop is noted.
 */
static void pause_everything(struct vm *vm)
{
	vm->changing = true;
	vm->stop_asked = false;
	vm_cpus_pause(vm);
	dev_pause_all(&vm->bus);
	vm->changing = false;
	if (vm_requests_waiting(vm))
		loop_post(vm->loop, vm_requests_handle, vm);
}

static void machine_reset(struct vm *vm, bool guest, const char *reason)
{
	bool running = vm->state == VM_RUNNING;
	struct err err = {0};

	pause_everything(vm);
	if (running)
		clock_stop(vm);
	if (reset_everything(vm, &err) < 0) {
		log_error("the machine cannot be reset: %s", err.msg);
		vm->state = VM_INTERNAL_ERROR;
		vm_quit(vm, 1);
		return;
	}
	emit_reason(vm, "RESET", guest, reason);
	dev_resume_all(&vm->bus);
	if (running) {
		clock_start(vm);
		vm_cpus_resume(vm);
		if (vm->stop_asked)
			vm_stop(vm, vm->stop_why);
	} else if (vm->state != VM_PRELAUNCH) {
		vm->state = VM_PAUSED;
	}
}

static const char host_reset[] = "host-qmp-system-reset";

void vm_system_reset(struct vm *vm)
{
	if (vm->state == VM_INMIGRATE || vm->state == VM_FINISH_MIGRATE) {
		log_warn("a machine that is being saved or loaded cannot be reset");
		return;
	}
	if (vm->cfg->no_reboot) { /* as QEMU: any reset ends the machine */
		emit_reason(vm, "SHUTDOWN", false, host_reset);
		vm_quit(vm, 0);
		return;
	}
	if (vm->changing)
		vm_request(vm, VM_RESET, 0, host_reset);
	else
		machine_reset(vm, false, host_reset);
}

/* ---- start and stop ---------------------------------------------------------------- */

void vm_start(struct vm *vm)
{
	struct err err = {0};

	if (vm->state == VM_RUNNING || vm->state == VM_FINISH_MIGRATE || vm->quit)
		return;
	if (vm->state == VM_INMIGRATE) {
		vm->start_asked = true;
		return;
	}
	if (!vm->loaded && reset_everything(vm, &err) < 0) {
		log_error("%s", err.msg);
		vm_quit(vm, 1);
		return;
	}
	vm->state = VM_RUNNING;
	dev_resume_all(&vm->bus);
	vm_emit(vm, "RESUME", NULL);
	clock_start(vm);
	vm_cpus_resume(vm);
}

void vm_stop(struct vm *vm, enum vm_run_state why)
{
	if (vm->state == VM_INMIGRATE && why == VM_PAUSED)
		vm->start_asked = false;
	if (vm->state == VM_INMIGRATE || vm->state == VM_FINISH_MIGRATE)
		return;
	if (vm->state != VM_RUNNING) {
		if (vm->state != VM_PRELAUNCH || why == VM_SHUTDOWN_STATE)
			vm->state = why;
		return;
	}
	if (vm->changing) {
		vm->stop_asked = true;
		vm->stop_why = why;
		return;
	}
	pause_everything(vm);
	clock_stop(vm);
	vm->state = vm->stop_asked ? vm->stop_why : why;
	vm_emit(vm, "STOP", NULL);
}

void vm_set_migrating(struct vm *vm, enum vm_run_state state)
{
	vm->state = state;
}

bool vm_starts_when_loaded(const struct vm *vm)
{
	return vm->start_asked;
}

void vm_powerdown(struct vm *vm)
{
	if (vm->powerdown)
		vm->powerdown(vm);
	vm_emit(vm, "POWERDOWN", NULL);
}

/* ---- what the guest asks for ---------------------------------------------------------- */

static void guest_shutdown(struct vm *vm, const char *reason, int status)
{
	emit_reason(vm, "SHUTDOWN", true, reason);
	if (vm->cfg->no_shutdown)
		vm_stop(vm, VM_SHUTDOWN_STATE);
	else
		vm_quit(vm, status);
}

static void guest_panic(struct vm *vm, int status, const char *why)
{
	bool internal = strcmp(why, "internal-error") == 0;

	if (!internal) {
		vm_emit(vm, "GUEST_PANICKED",
			vm->cfg->no_shutdown ? "{\"action\": \"pause\"}" : "{\"action\": \"poweroff\"}");
		log_error("the guest reports a panic");
	}
	vm_stop(vm, internal ? VM_INTERNAL_ERROR : VM_PANICKED);
	if (vm->cfg->no_shutdown)
		return;
	if (!internal)
		emit_reason(vm, "SHUTDOWN", true, "guest-panic");
	vm_quit(vm, status ? status : 1);
}

/* What failed waits in its device and is tried again by cont. */
static void disk_failed(struct vm *vm, int status, const char *drive)
{
	const int error = status < 0 ? -status : status;
	char json[256];

	log_error("the machine stops: drive '%s' failed: %s; cont tries again", drive, strerror(error));
	snprintf(
	    json, sizeof(json),
	    "{\"device\": \"%s\", \"operation\": \"%s\", \"action\": \"stop\", \"nospace\": %s, \"reason\": \"%s\"}",
	    drive, status < 0 ? "read" : "write", error == ENOSPC ? "true" : "false", strerror(error));
	vm_emit(vm, "BLOCK_IO_ERROR", json);
	vm_stop(vm, VM_IO_ERROR);
}

void vm_requests_handle(void *opaque)
{
	struct vm *vm = opaque;
	char why[64];
	int status;

	if (vm->quit || vm->changing)
		return;
	uint32_t req = vm_requests_take(vm, &status, why);
	if (req & BIT(VM_EXIT)) {
		vm->shutdown_said = true; /* isa-debug-exit is no shutdown */
		vm_quit(vm, status);
	} else if (req & BIT(VM_PANIC)) {
		guest_panic(vm, status, why);
	} else if (req & BIT(VM_SHUTDOWN)) {
		guest_shutdown(vm, "guest-shutdown", 0);
	} else if (req & BIT(VM_RESET)) {
		if (vm->cfg->no_reboot)
			guest_shutdown(vm, "guest-reset", 0);
		else
			machine_reset(vm, strcmp(why, host_reset) != 0,
				      strcmp(why, host_reset) ? "guest-reset" : host_reset);
	} else if (req & BIT(VM_IO_STOP)) {
		disk_failed(vm, status, why);
	}
}

/* ---- making and ending ------------------------------------------------------------------ */

static const struct board_ops *board_find(const char *name)
{
	for (const struct board_ops *const *b = board_table; *b; b++) {
		if (strcmp((*b)->type.name, name) == 0)
			return *b;
		for (const char *const *a = (*b)->aliases; a && *a; a++)
			if (strcmp(*a, name) == 0)
				return *b;
	}
	return NULL;
}

static int board_make(struct vm *vm, struct err *err)
{
	static const char *const not_board[] = {"machine", "accel", "type", NULL};
	struct opts o;
	const char *name;
	int rc = opts_parse(vm->cfg->machine ? vm->cfg->machine : "pc", "machine", &o, err);

	if (rc < 0)
		return rc;
	name = opts_get(&o, "machine");
	opts_get(&o, "accel"); /* -M accel= has been moved to cfg->accel */
	if (!name)
		name = opts_get(&o, "type");
	vm->board = board_find(name ? name : "pc");
	if (!vm->board) {
		const char *names[16], *near;
		size_t n = 0;

		for (const struct board_ops *const *b = board_table; *b && n < ARRAY_SIZE(names); b++)
			names[n++] = (*b)->type.name;
		near = text_nearest(name, names, n);
		rc = err_set(err, -EINVAL, "-M '%s': no such machine%s%s%s; -M help lists them", name,
			     near ? ", did you mean '" : "", near ? near : "", near ? "'" : "");
		goto out;
	}
	vm->board_data = calloc(1, MAX(vm->board->type.size, (size_t)1));
	if (!vm->board_data) {
		rc = err_set(err, -ENOMEM, "out of memory");
		goto out;
	}
	rc = type_init(&vm->board->type, vm->board_data, err);
	if (rc == 0)
		rc = type_set_opts(&vm->board->type, vm->board_data, &o, not_board, err);
	if (rc == 0)
		rc = opts_check_used(&o, &vm->board->type, err);
out:
	opts_free(&o);
	return rc;
}

static int create_steps(struct vm *vm, struct err *err)
{
	int rc = board_make(vm, err);

	if (rc < 0)
		return rc;
	rc = mem_init(&vm->mem, err);
	if (rc < 0)
		return rc;
	vm->bus.mem = &vm->mem;
	vm->bus.ports = ports_create();
	if (!vm->bus.ports)
		return err_set(err, -ENOMEM, "out of memory");
	rc = vm_accel_create(vm, err);
	if (rc < 0)
		return rc;
	vm_timeline_mark(vm, "CPU engine ready");
	rc = vm->board->create(vm, err);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < vm->cfg->ndevices; i++)
		if (!dev_create_from_text(&vm->bus, vm->cfg->devices[i], err))
			return err_prefix(err, "-device %s", vm->cfg->devices[i]);
	/* Before the threads: a kernel that cannot be loaded is an error of the command line. */
	rc = reset_everything(vm, err);
	if (rc < 0)
		return rc;
	return vm_threads_start(vm, err);
}

struct vm *vm_create(const struct vm_config *cfg, struct loop *main_loop, struct err *err)
{
	struct vm *vm = calloc(1, sizeof(*vm));

	if (!vm) {
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	vm->cfg = cfg;
	vm->loop = main_loop;
	vm->state = cfg->incoming ? VM_INMIGRATE : VM_PRELAUNCH;
	pthread_mutex_init(&vm->lock, NULL);
	pthread_cond_init(&vm->cond, NULL);
	vm_timeline_mark(vm, "machine");
	vmclock_init(&vm->clock);
	vm->host = (struct cpu_host){
	    .opaque = vm, .port_read = host_port_read, .port_write = host_port_write, .request = host_request};
	vm->bus = (struct bus){
	    .loop = main_loop, .clock = &vm->clock, .request = host_request, .event = host_event, .opaque = vm};
	if (create_steps(vm, err) < 0) {
		vm_destroy(vm);
		return NULL;
	}
	vm_timeline_mark(vm, "machine ready");
	return vm;
}

void vm_destroy(struct vm *vm)
{
	if (!vm)
		return;
	if (!vm_threads_end(vm)) {
		log_warn("a vCPU does not end: leaving without clearing up");
		return;
	}
	dev_destroy_all(&vm->bus);
	if (vm->board && vm->board_data) {
		if (vm->board->destroy)
			vm->board->destroy(vm);
		type_props_free(&vm->board->type, vm->board_data);
		free(vm->board_data);
	}
	vm_accel_destroy(vm);
	if (vm->bus.ports)
		ports_destroy(vm->bus.ports);
	if (vm->bus.mem)
		mem_fini(&vm->mem);
	vmclock_fini(&vm->clock);
	pthread_cond_destroy(&vm->cond);
	pthread_mutex_destroy(&vm->lock);
	free(vm);
}

void vm_quit(struct vm *vm, int status)
{
	if (!__atomic_exchange_n(&vm->quit, true, __ATOMIC_ACQ_REL))
		vm->exit_status = status;
	loop_stop(vm->loop);
}

static void timeline_print(const struct vm *vm)
{
	unsigned n = __atomic_load_n(&vm->nmarks, __ATOMIC_ACQUIRE);

	for (unsigned i = 1; i < n; i++)
		log_info("timeline: %8.2f ms  %s", (double)(vm->mark[i].at - vm->mark[0].at) / 1e6, vm->mark[i].what);
}

int vm_main(struct vm *vm)
{
	if (!vm->cfg->start_paused)
		vm_start(vm);
	while (!__atomic_load_n(&vm->quit, __ATOMIC_ACQUIRE))
		loop_run(vm->loop);
	vm_timeline_mark(vm, "end");
	if (!vm->shutdown_said)
		emit_reason(vm, "SHUTDOWN", false, "host-signal");
	if (vm->state == VM_RUNNING) {
		vm_cpus_pause(vm);
		dev_pause_all(&vm->bus);
		clock_stop(vm);
		vm->state = VM_SHUTDOWN_STATE;
	}
	if (vm->cfg->timeline)
		timeline_print(vm);
	return vm->exit_status;
}
