/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The wires between the processor's x87 error and the interrupt controller, as in
 * every PC since the AT (SDM volume 1, appendix D; PIIX3 data sheet, "coprocessor
 * error"): FERR# raises interrupt 13, a write to port F0h lowers it and asserts
 * IGNNE# until the error is gone. Only the first vCPU's FERR# is wired. With KVM the
 * processor never raises it: KVM has CR0.NE set whatever its guest writes.
 *
 * Locking: dev.lock, taken in the vCPU's thread.
 */
#include "hw/pc/devices.h"

#include "base/util.h"

struct fpu_error {
	struct dev dev;
	struct mem_region region;
	struct irq irq;
	bool line, ferr, ignne;
};

static void set_line(struct fpu_error *s, bool level)
{
	if (s->line != level)
		irq_set(&s->irq, level);
	s->line = level;
}

bool fpu_error_signal(struct dev *d, unsigned cpu, bool error)
{
	struct fpu_error *s = container_of(d, struct fpu_error, dev);
	bool ignore;

	if (cpu)
		return false;
	pthread_mutex_lock(&d->lock);
	s->ferr = error;
	s->ignne &= error;
	ignore = s->ignne;
	if (error && !ignore)
		set_line(s, true);
	pthread_mutex_unlock(&d->lock);
	return ignore;
}

static uint64_t fpu_error_read(void *opaque, uint64_t off, unsigned size)
{
	return 0xff;
}

static void fpu_error_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct fpu_error *s = opaque;

	s->ignne = s->ferr;
	set_line(s, false);
}

static const struct region_ops fpu_error_ops = {fpu_error_read, fpu_error_write, 1, 1};

static void fpu_error_reset(struct dev *d)
{
	struct fpu_error *s = container_of(d, struct fpu_error, dev);

	s->ferr = s->ignne = false;
	set_line(s, false);
}

static int fpu_error_realize(struct dev *d, struct err *err)
{
	struct fpu_error *s = container_of(d, struct fpu_error, dev);

	s->irq = d->bus->gsi[13];
	s->region =
	    (struct mem_region){.name = "fpu-error", .size = 1, .ops = &fpu_error_ops, .opaque = s, .lock = &d->lock};
	ports_map(d->bus->ports, &s->region, 0xf0);
	return 0;
}

static void fpu_error_unrealize(struct dev *d)
{
	ports_unmap(d->bus->ports, &container_of(d, struct fpu_error, dev)->region);
}

static const struct state_field fpu_error_fields[] = {
    STATE_INT(struct fpu_error, line), STATE_INT(struct fpu_error, ferr), STATE_INT(struct fpu_error, ignne), {0}};
static const struct state fpu_error_state = {
    .name = "fpu-error", .version = 1, .min_version = 1, .fields = fpu_error_fields};

const struct dev_ops fpu_error_dev_ops = {
    .type = {.name = "fpu-error", .about = "x87 errors as interrupt 13", .size = sizeof(struct fpu_error)},
    .bus_kind = DEV_BUS_SYSTEM,
    .realize = fpu_error_realize,
    .unrealize = fpu_error_unrealize,
    .reset = fpu_error_reset,
    .state = &fpu_error_state,
};
