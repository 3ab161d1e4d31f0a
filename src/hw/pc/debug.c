/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ports through which firmware, test guests and panicking kernels speak to the
 * monitor: the Bochs debug console (0xe9), isa-debug-exit, pvpanic.
 */
#include <errno.h>
#include "base/log.h"
#include "base/util.h"
#include "hw/pc/chrout.h"
#include "hw/pc/devices.h"

/* ---- isa-debugcon: a byte written appears; a read says that it is there ---- */

struct debugcon {
	struct dev dev;
	uint32_t iobase, readback;
	struct chr *chr;
	struct mem_region region;
	struct chrout out;
};

static uint64_t debugcon_read(void *opaque, uint64_t off, unsigned size)
{
	const struct debugcon *s = opaque;

	return s->readback;
}

static void debugcon_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct debugcon *s = opaque;

	chrout_put(&s->out, (uint8_t)val);
}

/* Output only: what is typed is taken and goes nowhere. */
static size_t debugcon_can_receive(void *opaque)
{
	return 64;
}

static void debugcon_receive(void *opaque, const uint8_t *buf, size_t len) {}

static const struct region_ops debugcon_ops = {debugcon_read, debugcon_write, 1, 1};

static int debugcon_realize(struct dev *d, struct err *err)
{
	struct debugcon *s = container_of(d, struct debugcon, dev);
	struct chr_fe fe = {debugcon_can_receive, debugcon_receive, NULL, s};
	int r = chrout_init(&s->out, s->chr, d->bus->loop, &d->lock, NULL, NULL, err);

	if (r)
		return r;
	r = s->chr ? chr_attach(s->chr, &fe, "debug console", err) : 0;
	if (r) {
		chrout_fini(&s->out);
		return r;
	}
	s->region =
	    (struct mem_region){.name = "debugcon", .size = 1, .ops = &debugcon_ops, .opaque = s, .lock = &d->lock};
	ports_map(d->bus->ports, &s->region, (uint16_t)s->iobase);
	return 0;
}

static void debugcon_unrealize(struct dev *d)
{
	struct debugcon *s = container_of(d, struct debugcon, dev);

	ports_unmap(d->bus->ports, &s->region);
	if (s->chr)
		chr_detach(s->chr, s);
	chrout_fini(&s->out);
}

static const struct prop debugcon_props[] = {
    {.name = "iobase",
     .kind = PROP_U32,
     .offset = offsetof(struct debugcon, iobase),
     .def = "0xe9",
     .help = "I/O port",
     .max = 0xffff},
    {.name = "readback",
     .kind = PROP_U32,
     .offset = offsetof(struct debugcon, readback),
     .def = "0xe9",
     .help = "what a read gives, so that the guest finds the port",
     .max = 0xff},
    {.name = "chardev",
     .kind = PROP_LINK,
     .offset = offsetof(struct debugcon, chr),
     .help = "where the bytes go",
     .link_kind = "chardev"},
    {0},
};

static const struct counter debugcon_counters[] = {
    {"tx_bytes", offsetof(struct debugcon, out.bytes), "bytes the guest wrote"},
    {"tx_dropped", offsetof(struct debugcon, out.dropped), "of these, lost to a slow reader"},
    {0},
};

const struct dev_ops debugcon_dev_ops = {
    .type = {.name = "isa-debugcon",
	     .about = "debug console: bytes written to one I/O port",
	     .size = sizeof(struct debugcon),
	     .props = debugcon_props},
    .bus_kind = DEV_BUS_SYSTEM,
    .user_creatable = true,
    .realize = debugcon_realize,
    .unrealize = debugcon_unrealize,
    .state = &state_none,
    .counters = debugcon_counters,
};

/* ---- isa-debug-exit: a write of val leaves the monitor with (val << 1) | 1 ---- */

struct debug_exit {
	struct dev dev;
	uint32_t iobase, iosize;
	struct mem_region region;
};

static uint64_t debug_exit_read(void *opaque, uint64_t off, unsigned size)
{
	return 0;
}

static void debug_exit_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct debug_exit *s = opaque;
	struct bus *bus = s->dev.bus;

	bus->request(bus->opaque, VM_EXIT, (int)((val << 1) | 1) & 0xff, "isa-debug-exit");
}

static const struct region_ops debug_exit_ops = {debug_exit_read, debug_exit_write, 1, 4};

static int debug_exit_realize(struct dev *d, struct err *err)
{
	struct debug_exit *s = container_of(d, struct debug_exit, dev);

	s->region = (struct mem_region){
	    .name = "debug-exit", .size = s->iosize, .ops = &debug_exit_ops, .opaque = s, .lock = &d->lock};
	ports_map(d->bus->ports, &s->region, (uint16_t)s->iobase);
	return 0;
}

static void debug_exit_unrealize(struct dev *d)
{
	ports_unmap(d->bus->ports, &container_of(d, struct debug_exit, dev)->region);
}

static const struct prop debug_exit_props[] = {
    {.name = "iobase",
     .kind = PROP_U32,
     .offset = offsetof(struct debug_exit, iobase),
     .def = "0x501",
     .help = "first I/O port",
     .max = 0xfffc},
    {.name = "iosize",
     .kind = PROP_U32,
     .offset = offsetof(struct debug_exit, iosize),
     .def = "2",
     .help = "number of I/O ports",
     .min = 1,
     .max = 4},
    {0},
};

const struct dev_ops debug_exit_dev_ops = {
    .type = {.name = "isa-debug-exit",
	     .about = "a write ends the monitor with a status of the guest's choice",
	     .size = sizeof(struct debug_exit),
	     .props = debug_exit_props},
    .bus_kind = DEV_BUS_SYSTEM,
    .user_creatable = true,
    .realize = debug_exit_realize,
    .unrealize = debug_exit_unrealize,
    .state = &state_none,
};

/* ---- pvpanic: reading lists the events, writing reports them ---------------- */

#define PVPANIC_PANICKED     BIT(0)
#define PVPANIC_CRASH_LOADED BIT(1)

struct pvpanic {
	struct dev dev;
	uint32_t iobase, events;
	struct mem_region region;
};

static uint64_t pvpanic_read(void *opaque, uint64_t off, unsigned size)
{
	const struct pvpanic *s = opaque;

	return s->events;
}

static void pvpanic_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct pvpanic *s = opaque;
	struct bus *bus = s->dev.bus;

	if (val & PVPANIC_PANICKED)
		bus->request(bus->opaque, VM_PANIC, 0, "pvpanic: the guest's kernel panicked");
	else if (val & PVPANIC_CRASH_LOADED)
		log_info("pvpanic: the guest's kernel panicked and runs its crash kernel");
	else
		log_diag(LOG_GUEST_ERRORS, "pvpanic: unknown event 0x%x", (unsigned)val);
}

static const struct region_ops pvpanic_ops = {pvpanic_read, pvpanic_write, 1, 1};

static int pvpanic_realize(struct dev *d, struct err *err)
{
	struct pvpanic *s = container_of(d, struct pvpanic, dev);

	s->region =
	    (struct mem_region){.name = "pvpanic", .size = 1, .ops = &pvpanic_ops, .opaque = s, .lock = &d->lock};
	ports_map(d->bus->ports, &s->region, (uint16_t)s->iobase);
	return 0;
}

static void pvpanic_unrealize(struct dev *d)
{
	ports_unmap(d->bus->ports, &container_of(d, struct pvpanic, dev)->region);
}

static const struct prop pvpanic_props[] = {
    {.name = "ioport",
     .kind = PROP_U32,
     .offset = offsetof(struct pvpanic, iobase),
     .def = "0x505",
     .help = "I/O port",
     .max = 0xffff},
    {.name = "events",
     .kind = PROP_U32,
     .offset = offsetof(struct pvpanic, events),
     .def = "3",
     .help = "events offered: 1 panicked, 2 crash kernel loaded",
     .max = 3},
    {0},
};

const struct dev_ops pvpanic_dev_ops = {
    .type = {.name = "pvpanic",
	     .about = "reports a panic of the guest's kernel",
	     .size = sizeof(struct pvpanic),
	     .props = pvpanic_props},
    .bus_kind = DEV_BUS_SYSTEM,
    .user_creatable = true,
    .realize = pvpanic_realize,
    .unrealize = pvpanic_unrealize,
    .state = &state_none,
};
