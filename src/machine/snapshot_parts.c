/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a snapshot holds besides RAM: the machine's description (which must be the
 * same on both sides), clock, devices, interrupt chips, vCPUs. Everything is a
 * table of base/state.h. Main loop's thread, vCPUs stopped, devices paused.
 */
#include "machine/snapshot_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "bus/pci.h"
#include "cpu/chips.h"
#include "cpu/saved.h"

#define NAME_SIZE     256
#define TSC_TOLERANCE 4000 /* parts: 250 ppm, what guests put up with */

/* ---- the list ------------------------------------------------------------------- */

int snap_parts_add(struct snap_parts *p, uint32_t type, const void *data, size_t len, struct err *err)
{
	struct snap_part *v = realloc(p->v, (p->n + 1) * sizeof(*v));

	if (!v)
		return err_set(err, -ENOMEM, "out of memory");
	p->v = v;
	v[p->n] = (struct snap_part){type, malloc(MAX(len, (size_t)1)), len};
	if (!v[p->n].data)
		return err_set(err, -ENOMEM, "out of memory");
	memcpy(v[p->n++].data, data, len);
	p->bytes += len;
	return 0;
}

void snap_parts_free(struct snap_parts *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i].data);
	free(p->v);
	*p = (struct snap_parts){0};
}

/* ---- the description ---------------------------------------------------------------- */

/* Properties that are the host's, or only matter when a machine starts. */
static bool property_counts(const struct prop *p)
{
	static const char *const not_these[] = {"accel", "ioeventfd", "base",  "bootindex", "guest-stats",
						"wwn",	 "serial",    "model", "ver",	    NULL};

	if (p->kind == PROP_LINK || p->alias_of || p->flags & (PROP_RUNTIME | PROP_READONLY))
		return false;
	for (const char *const *n = not_these; *n; n++)
		if (!strcmp(*n, p->name))
			return false;
	return true;
}

/* A property's text in one line. */
static void describe_properties(FILE *f, const char *of, const struct type *type, const void *instance)
{
	const struct prop *p;

	for (size_t i = 0; (p = type_prop_at(type, i)); i++) {
		char *text = property_counts(p) ? type_get(type, instance, p->name) : NULL;

		for (char *c = text; c && *c; c++)
			if (*c < ' ')
				*c = ' ';
		if (text)
			fprintf(f, "%s: %s=%s\n", of, p->name, text);
		free(text);
	}
}

/* What a device is called in the description and in errors. */
static void device_name(const struct dev *d, char name[NAME_SIZE])
{
	if (d->id)
		snprintf(name, NAME_SIZE, "device '%.100s' (%.100s)", d->id, d->ops->type.name);
	else
		snprintf(name, NAME_SIZE, "device %.200s", d->ops->type.name);
}

char *snapshot_describe(struct vm *vm)
{
	const struct vm_config *c = vm->cfg;
	char *text = NULL, name[NAME_SIZE];
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fprintf(f, "machine: %s\n", vm->board->type.name);
	fprintf(f, "RAM: %llu bytes\n", (unsigned long long)c->ram_size);
	for (unsigned i = 0; i < vm->mem.nblocks; i++)
		fprintf(f, "memory block %s: 0x%llx at 0x%llx\n", vm->mem.block[i].name,
			(unsigned long long)vm->mem.block[i].size, (unsigned long long)vm->mem.block[i].gpa);
	fprintf(f, "CPUs: %u (%u sockets, %u cores, %u threads)\n", vm->accel->cfg.ncpus, vm->model.sockets,
		vm->model.cores, vm->model.threads);
	describe_properties(f, "machine", &vm->board->type, vm->board_data);
	for (const struct dev *d = vm->bus.devices; d; d = d->next) {
		if (d->ops->engine_chip)
			continue;
		device_name(d, name);
		fprintf(f, "%s\n", name);
		describe_properties(f, name, &d->ops->type, d);
	}
	fclose(f);
	return text;
}

/* ---- helpers ---------------------------------------------------------------------------- */

static int save_part(struct snap_parts *p, uint32_t type, const struct state *s, void *obj, struct err *err)
{
	struct state_buf b = {0};
	int rc = state_save(s, obj, &b, err);

	if (rc == 0)
		rc = snap_parts_add(p, type, b.data, b.len, err);
	state_buf_free(&b);
	return rc;
}

/* The n-th part of a type. */
static const struct snap_part *find_part(const struct snap_parts *p, uint32_t type, size_t n, struct err *err)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].type == type && n-- == 0)
			return &p->v[i];
	err_set(err, -EINVAL, "the snapshot is corrupted (it has no '%.4s' record where one is needed)",
		(const char *)&type);
	return NULL;
}

static int load_part(const struct snap_parts *p, uint32_t type, size_t n, const struct state *s, void *obj,
		     struct err *err)
{
	const struct snap_part *part = find_part(p, type, n, err);

	return part ? state_load(s, obj, part->data, part->len, err) : -EINVAL;
}

/* ---- clock ---------------------------------------------------------------------------------- */

struct clock_saved {
	uint64_t ns, tsc, tsc_khz, wall_base_ns, kvmclock_ns;
	bool a20_off, running;
};
static const struct state_field clock_fields[] = {
    STATE_INT_MAX(struct clock_saved, ns, INT64_MAX),
    STATE_INT(struct clock_saved, tsc),
    STATE_INT_MAX(struct clock_saved, tsc_khz, 100000000),
    STATE_INT_MAX(struct clock_saved, wall_base_ns, INT64_MAX),
    STATE_INT_MAX(struct clock_saved, kvmclock_ns, INT64_MAX),
    STATE_INT(struct clock_saved, a20_off),
    STATE_INT(struct clock_saved, running),
    {0},
};
static const struct state clock_state = {.name = "clock", .version = 1, .min_version = 1, .fields = clock_fields};

static int clock_save(struct vm *vm, bool running, struct snap_parts *p, struct err *err)
{
	struct clock_saved c = {.ns = vmclock_ns(&vm->clock),
				.tsc = vmclock_tsc(&vm->clock),
				.tsc_khz = vm->clock.tsc_khz,
				.wall_base_ns = vm->clock.wall_base_ns,
				.a20_off = vm->mem.a20_off,
				.running = running};

	c.kvmclock_ns = vm->accel->ops->kvmclock_get ? vm->accel->ops->kvmclock_get(vm->accel) : c.ns;
	return save_part(p, SNAP_CLOCK, &clock_state, &c, err);
}

static int clock_load(struct vm *vm, const struct snap_parts *p, uint64_t *kvmclock_ns, bool *running, struct err *err)
{
	const uint64_t khz = vm->clock.tsc_khz;
	struct clock_saved c = {0};
	int rc = load_part(p, SNAP_CLOCK, 0, &clock_state, &c, err);

	if (rc < 0)
		return rc;
	if (c.tsc_khz > khz ? c.tsc_khz - khz > khz / TSC_TOLERANCE : khz - c.tsc_khz > khz / TSC_TOLERANCE)
		return err_set(err, -ENOTSUP,
			       "the guest's TSC runs at %llu kHz, this host's at %llu kHz: its clock would lie",
			       (unsigned long long)c.tsc_khz, (unsigned long long)khz);
	vmclock_restore(&vm->clock, c.ns, c.tsc, c.tsc_khz, c.wall_base_ns);
	mem_set_a20(&vm->mem, !c.a20_off);
	*kvmclock_ns = c.kvmclock_ns;
	*running = c.running;
	return 0;
}

/* ---- vCPUs ------------------------------------------------------------------------------------- */

#define KEPT_REQUESTS (VCPU_REQ_NMI | VCPU_REQ_INIT | VCPU_REQ_SIPI)

static struct cpu_saved *saved_new(struct err *err)
{
	struct cpu_saved *c = aligned_alloc(64, ALIGN_UP(sizeof(*c), 64ul));

	if (c)
		memset(c, 0, sizeof(*c));
	else
		err_set(err, -ENOMEM, "out of memory");
	return c;
}

static int vcpu_save(struct vm *vm, unsigned i, struct snap_parts *p, struct err *err)
{
	struct vcpu *v = vm->accel->vcpu[i];
	struct cpu_saved *c = saved_new(err);
	int rc = c ? vm->accel->ops->get_state(v, &c->s) : -ENOMEM;

	if (rc < 0)
		err_set_errno(err, rc, "vCPU %u", i);
	if (rc == 0) {
		c->requests = v->requests & KEPT_REQUESTS;
		c->requested_sipi = v->sipi_vector;
		rc = save_part(p, SNAP_VCPU, &cpu_saved_state, c, err);
	}
	if (c)
		cpu_saved_free(c);
	free(c);
	return rc;
}

/* An engine with chips of its own has no such requests: what they ask happens now. */
static void apply_requests(struct vm *vm, struct vcpu *v, struct cpu_saved *c)
{
	if (!vm->accel->ops->irqchip)
		return;
	if (c->requests & VCPU_REQ_INIT)
		cpu_state_init(&c->s, v->index == 0);
	if (c->requests & VCPU_REQ_SIPI && c->s.mp_state == MP_WAIT_SIPI)
		cpu_state_sipi(&c->s, c->requested_sipi);
	c->requests &= VCPU_REQ_NMI;
}

static int vcpu_load_into(struct vm *vm, struct vcpu *v, struct cpu_saved *c, struct err *err)
{
	const struct accel_ops *ops = vm->accel->ops;
	int rc = cpu_state_check(&c->s, &vm->model, err);

	if (rc == 0 && ops->check_state)
		rc = ops->check_state(v, &c->s, err);
	if (rc < 0)
		return rc;
	apply_requests(vm, v, c);
	rc = ops->set_state(v, &c->s);
	if (rc < 0)
		return err_set_errno(err, rc, "its state was refused");
	v->sipi_vector = c->requested_sipi;
	atomic_fetch_or(&v->requests, c->requests & KEPT_REQUESTS);
	return 0;
}

static int vcpu_load(struct vm *vm, unsigned i, const struct snap_parts *p, struct err *err)
{
	struct cpu_saved *c = saved_new(err);
	int rc = c ? load_part(p, SNAP_VCPU, i, &cpu_saved_state, c, err) : -ENOMEM;

	if (rc == 0)
		rc = vcpu_load_into(vm, vm->accel->vcpu[i], c, err);
	if (c)
		cpu_saved_free(c);
	free(c);
	return rc < 0 ? err_prefix(err, "vCPU %u", i) : 0;
}

/* ---- interrupt chips ------------------------------------------------------------------------------ */

static int chips_save(struct vm *vm, struct snap_parts *p, struct err *err)
{
	struct accel *a = vm->accel;
	struct chips c = {.ncpus = a->cfg.ncpus, .lapic = calloc(a->cfg.ncpus, sizeof(*c.lapic))};
	int rc = c.lapic ? 0 : err_set(err, -ENOMEM, "out of memory");

	if (rc == 0 && a->ops->irqchip)
		rc = a->ops->irqchip->save(a, &c);
	else if (rc == 0)
		vm->board->chips_save(vm, &c);
	if (rc < 0)
		err_set_errno(err, rc, "the interrupt controllers");
	else
		rc = save_part(p, SNAP_CHIPS, &chips_state, &c, err);
	free(c.lapic);
	return rc;
}

static int chips_load(struct vm *vm, const struct snap_parts *p, struct err *err)
{
	struct accel *a = vm->accel;
	struct chips c = {.ncpus = a->cfg.ncpus, .lapic = calloc(a->cfg.ncpus, sizeof(*c.lapic))};
	int rc = c.lapic ? load_part(p, SNAP_CHIPS, 0, &chips_state, &c, err) : err_set(err, -ENOMEM, "out of memory");

	if (rc == 0 && a->ops->irqchip) {
		rc = a->ops->irqchip->load(a, &c);
		if (rc < 0)
			err_set_errno(err, rc, "the interrupt controllers were refused");
	} else if (rc == 0) {
		vm->board->chips_load(vm, &c);
	}
	free(c.lapic);
	return rc;
}

/* ---- devices ----------------------------------------------------------------------------------------- */

static int device_save(struct dev *d, struct snap_parts *p, struct err *err)
{
	char name[NAME_SIZE];
	int rc;

	device_name(d, name);
	if (!d->ops->state)
		return err_set(err, -ENOTSUP, "%s cannot be saved", name);
	rc = save_part(p, SNAP_DEVICE, d->ops->state, d, err);
	return rc < 0 ? err_prefix(err, "%s", name) : 0;
}

static int devices_save(struct vm *vm, struct snap_parts *p, struct err *err)
{
	int rc = 0;

	for (struct dev *d = vm->bus.devices; d && rc == 0; d = d->next)
		if (!d->ops->engine_chip)
			rc = device_save(d, p, err);
	return rc;
}

static int devices_load(struct vm *vm, const struct snap_parts *p, struct err *err)
{
	size_t n = 0;

	for (struct dev *d = vm->bus.devices; d; d = d->next) {
		char name[NAME_SIZE];

		if (d->ops->engine_chip)
			continue;
		device_name(d, name);
		if (!d->ops->state)
			return err_set(err, -ENOTSUP, "%s cannot be loaded", name);
		if (load_part(p, SNAP_DEVICE, n++, d->ops->state, d, err) < 0)
			return err_prefix(err, "%s", name);
	}
	return 0;
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

int snap_parts_save(struct vm *vm, bool running, struct snap_parts *p, struct err *err)
{
	int rc = save_part(p, SNAP_CPU_MODEL, &cpu_model_state, &vm->model, err);

	if (rc == 0)
		rc = clock_save(vm, running, p, err);
	if (rc == 0)
		rc = devices_save(vm, p, err);
	if (rc == 0)
		rc = chips_save(vm, p, err);
	for (unsigned i = 0; i < vm->accel->cfg.ncpus && rc == 0; i++)
		rc = vcpu_save(vm, i, p, err);
	return rc;
}

static int model_load(struct vm *vm, const struct snap_parts *p, struct err *err)
{
	struct cpu_model saved = {0};
	int rc = load_part(p, SNAP_CPU_MODEL, 0, &cpu_model_state, &saved, err);

	if (rc == 0)
		rc = cpu_model_adopt(&vm->model, &saved, err);
	if (rc == 0 && vm->accel->ops->model_changed)
		rc = vm->accel->ops->model_changed(vm->accel, err);
	return rc;
}

/* The clock before what counts by it; the chips after the devices, whose lines they hold, and after the vCPUs. */
int snap_parts_load(struct vm *vm, const struct snap_parts *p, bool *running, struct err *err)
{
	uint64_t kvmclock_ns = 0;
	int rc = model_load(vm, p, err);

	if (rc == 0)
		rc = clock_load(vm, p, &kvmclock_ns, running, err);
	if (rc == 0)
		rc = devices_load(vm, p, err);
	for (unsigned i = 0; i < vm->accel->cfg.ncpus && rc == 0; i++)
		rc = vcpu_load(vm, i, p, err);
	if (rc == 0)
		rc = chips_load(vm, p, err);
	if (rc == 0 && vm->accel->ops->kvmclock_set)
		vm->accel->ops->kvmclock_set(vm->accel, kvmclock_ns);
	return rc;
}
