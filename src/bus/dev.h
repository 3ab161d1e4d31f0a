/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Devices: each is one const table (struct dev_ops) listed in hw/devices.c. The
 * board or -device creates an instance, sets its properties, and realizes it.
 *
 * Lock: each device has one mutex (dev.lock). Region handlers run with it held;
 * timers and backend callbacks take it themselves. Under it a device may raise
 * interrupts, use DMA, arm timers and post to loops, and must not block or
 * access another device's regions. The operations of struct dev_ops run in the
 * main loop's thread with the vCPUs stopped and without the lock.
 */
#ifndef KELVIN_BUS_DEV_H
#define KELVIN_BUS_DEV_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/counter.h"
#include "base/err.h"
#include "base/state.h"
#include "base/type.h"
#include "base/util.h"
#include "bus/irq.h"
#include "bus/ports.h"
#include "cpu/cpu.h"
#include "io/loop.h"
#include "io/vmclock.h"
#include "mem/mem.h"

struct dev;
struct pci_bus;
struct fw_cfg;

/* Lines that -qtest can watch. */
enum bus_line { BUS_LINE_GSI /* n: 0..23 */, BUS_LINE_INTR /* the 8259 pair's output; n: 0 */ };

/* What a machine gives its devices. Filled by the board before any realize. */
struct bus {
	struct mem_map *mem;
	struct ports *ports;
	struct loop *loop; /* the main loop */
	struct vmclock *clock;
	struct pci_bus *pci;
	struct fw_cfg *fw_cfg;
	struct accel *accel;
	struct irq gsi[24]; /* global system interrupts 0..23 */
	const struct msi_ops *msi;
	void *msi_opaque;
	void (*request)(void *opaque, enum vm_request what, int status, const char *why);
	/* An event for the monitors: its name and a JSON object. Main loop's thread; may be NULL. */
	void (*event)(void *opaque, const char *name, const char *data_json);
	void *opaque;
	/* Told of every level put on an interrupt line, changed or not. Any thread, under any lock: it may only take a
	 * leaf lock. NULL: nobody watches; set while the vCPUs are stopped. */
	void (*line_watch)(void *opaque, enum bus_line line, int n, int level);
	void *line_opaque;
	struct dev *devices; /* all realized devices, creation order */
	/* Register an eventfd doorbell with the engine; -ENOSYS when it has none. */
	int (*doorbell)(void *opaque, bool port, uint64_t addr, unsigned size, bool match, uint64_t value, int fd,
			bool assign);
};

static inline void bus_watch_line(const struct bus *b, enum bus_line line, int n, int level)
{
	if (unlikely(b->line_watch != NULL))
		b->line_watch(b->line_opaque, line, n, level);
}

enum dev_bus_kind {
	DEV_BUS_SYSTEM /* ports and memory at fixed places */,
	DEV_BUS_PCI,
	DEV_BUS_VIRTIO_SERIAL,
	DEV_BUS_IDE,
	DEV_BUS_SCSI,
	DEV_BUS_NONE
};

struct dev_ops {
	struct type type; /* name, about, size, props */
	enum dev_bus_kind bus_kind;
	bool user_creatable; /* -device NAME */
	int (*realize)(struct dev *d, struct err *err);
	void (*unrealize)(struct dev *d);
	void (*reset)(struct dev *d);
	int (*pause)(struct dev *d); /* drain what is in flight; called with the vCPUs stopped */
	void (*resume)(struct dev *d);
	void (*prop_changed)(struct dev *d); /* a PROP_RUNTIME property was set; without the lock */
	const struct state *state; /* of the struct dev; state_none when there is none; NULL: cannot be saved */
	bool engine_chip;	   /* not every engine has it as a device: snapshots keep it with the engine's chips */
	const struct counter *counters;
};

struct dev {
	const struct dev_ops *ops;
	struct bus *bus;
	char *id; /* -device id=, or NULL */
	pthread_mutex_t lock;
	struct dev *next;
	bool realized;
};

/* Create with defaults and -global applied; dev_set; dev_realize. NULL and err on failure. */
struct dev *dev_new(struct bus *bus, const char *type_name, struct err *err);
struct dev *dev_new_ops(struct bus *bus, const struct dev_ops *ops, struct err *err);
int dev_set(struct dev *d, const char *prop, const char *value, struct err *err);
int dev_realize(struct dev *d, struct err *err);
void dev_destroy(struct dev *d);
void dev_reset_all(struct bus *bus);
int dev_pause_all(struct bus *bus);
void dev_resume_all(struct bus *bus);
void dev_destroy_all(struct bus *bus);
/* -device "virtio-blk-pci,drive=d0,id=x" or JSON. */
struct dev *dev_create_from_text(struct bus *bus, const char *text, struct err *err);
/* -global "driver.prop=value" or "driver=..,property=..,value=.."; kept for every later dev_new. */
int dev_add_global(const char *text, struct err *err);
extern const struct type dev_global_type; /* the keys of -global's long form */
const struct dev_ops *dev_ops_find(const char *name);
/* A realized device by its -device id, or NULL. */
struct dev *dev_find(struct bus *bus, const char *id);
/* Make the device types known to type_find; once at start, more calls do nothing. */
void dev_register_types(void);
/* One warning for each -global that matched no device; after the last -device. */
void dev_warn_unused_globals(void);

/* hw/devices.c: every device type, ends with NULL. */
extern const struct dev_ops *const dev_table[];

#endif
