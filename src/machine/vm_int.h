/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The machine as vm.c and the boards see it. Everybody else uses machine/vm.h.
 *
 * Order of construction (vm_create, main thread):
 *   1. mem, clock, ports, bus (mem, ports, loop, clock, request, doorbell);
 *   2. the engine is chosen and created, then the vCPUs with vm_apic_id's IDs.
 *      With KVM bus.gsi[] and bus.msi already lead into the kernel's irqchips;
 *      accel->ops->irqchip == NULL: the board wires its own and fills `host`;
 *   3. board->create: RAM, chipset, devices with fixed places, `host` callbacks
 *      about interrupts (port_read, port_write and request are set already);
 *   4. -device, in order;
 *   5. the vCPU threads start and wait.
 * Before the first instruction and at each reset (vCPUs stopped): accel reset,
 * vCPU states by cpu_state_reset, dev_reset_all, board->reset (NULL allowed),
 * then board->load, which may change vCPU 0 by accel->ops->get_state/set_state.
 */
#ifndef KELVIN_MACHINE_VM_INT_H
#define KELVIN_MACHINE_VM_INT_H

#include "io/loop.h"
#include "io/vmclock.h"
#include "machine/vm.h"
#include "mem/mem.h"

struct vm_thread;

struct vm {
	const struct vm_config *cfg;
	struct loop *loop;
	struct mem_map mem;
	struct vmclock clock;
	struct bus bus;
	struct cpu_host host;
	struct cpu_model model;
	const struct accel_ops *accel_ops;
	struct accel *accel;
	char accel_reason[256];
	const struct board_ops *board;

	/* the board's */
	void *board_data; /* vm_board(): board->type.size bytes, -M's properties set; made by vm_create */
	void (*vcpu_thread_start)(struct vm *vm, unsigned index); /* first thing in each vCPU's thread; may be NULL */
	void (*powerdown)(struct vm *vm);			  /* the ACPI power button; main loop */

	/* vm.c's */
	enum vm_run_state state;
	struct vm_event_sink *sinks;
	bool quit, shutdown_said; /* the SHUTDOWN event was sent */
	int exit_status;
	bool loaded;		    /* the first reset has been done */
	bool changing;		    /* pause_everything runs, and with it perhaps the main loop */
	bool stop_asked;	    /* vm_stop was called meanwhile */
	bool start_asked;	    /* vm_start was called while a snapshot was to be loaded */
	enum vm_run_state stop_why; /* and this was its reason */

	/* vm_threads.c's; under lock */
	struct vm_thread *thread; /* one per vCPU */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned nthreads;
	bool run;	   /* vCPUs may execute */
	bool exiting;	   /* vCPU threads must end */
	uint32_t requests; /* BIT(enum vm_request) */
	int request_status;
	char request_why[64];

	struct vm_mark {
		const char *what;
		uint64_t at; /* clock_raw_ns */
	} mark[16];
	unsigned nmarks;
};

/* vm_accel.c: choose and create the engine and its vCPUs; wire the kernel's interrupt chips. */
int vm_accel_create(struct vm *vm, struct err *err);
void vm_accel_destroy(struct vm *vm);

/* vm.c: engine, devices and board as after power on, but nothing in RAM; what the guest has asked for is forgotten.
 * vCPUs are outside vcpu_run. */
int vm_reset_hardware(struct vm *vm, struct err *err);

/* vm_threads.c */
int vm_threads_start(struct vm *vm, struct err *err);
/* Give up after some seconds: false, and then the process must end without freeing what vCPUs use. */
bool vm_threads_end(struct vm *vm);
void vm_cpus_pause(struct vm *vm); /* returns when no vCPU is inside vcpu_run */
void vm_cpus_resume(struct vm *vm);
void vm_cpus_unpark(struct vm *vm); /* after a reset: let vCPUs run that asked for it */
bool vm_requests_waiting(struct vm *vm);
/* Takes what vm_request left: a mask of BIT(enum vm_request). */
uint32_t vm_requests_take(struct vm *vm, int *status, char why[64]);
void vm_requests_handle(void *vm); /* vm.c, posted to the main loop */

/* A line of the timeline ("kernel loaded"), at most 16, text not copied. */
void vm_timeline_mark(struct vm *vm, const char *what);

#endif
