/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Choosing the CPU engine from -accel ("kvm:soft" unless given), building the
 * CPU model from what it supports, creating it and its vCPUs, and leading the
 * board's interrupt lines and messages into KVM's chips. Main thread, at start.
 */
#include "machine/vm_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define DEFAULT_ACCELS "kvm:soft"

/* ---- KVM's interrupt chips behind struct irq and struct msi_ops ------------------- */

static void gsi_set(void *opaque, int n, int level)
{
	struct vm *vm = opaque;

	bus_watch_line(&vm->bus, BUS_LINE_GSI, n, level);
	vm->accel->ops->irqchip->set_gsi(vm->accel, (unsigned)n, level);
}

static void msi_send(void *opaque, uint64_t addr, uint32_t data)
{
	struct accel *a = opaque;

	a->ops->irqchip->send_msi(a, addr, data);
}

static int msi_bind(void *opaque, int fd, uint64_t addr, uint32_t data)
{
	struct accel *a = opaque;
	int gsi, rc = a->ops->irqchip->msi_route_add(a, addr, data, &gsi);

	if (rc < 0)
		return rc;
	rc = a->ops->irqchip->irqfd(a, gsi, fd, true);
	if (rc < 0) {
		a->ops->irqchip->msi_route_del(a, gsi);
		return rc;
	}
	return gsi;
}

static int msi_rebind(void *opaque, int handle, uint64_t addr, uint32_t data)
{
	struct accel *a = opaque;

	return a->ops->irqchip->msi_route_update(a, handle, addr, data);
}

static void msi_unbind(void *opaque, int handle, int fd)
{
	struct accel *a = opaque;

	a->ops->irqchip->irqfd(a, handle, fd, false);
	a->ops->irqchip->msi_route_del(a, handle);
}

static const struct msi_ops kernel_msi_ops = {
    .send = msi_send, .bind = msi_bind, .rebind = msi_rebind, .unbind = msi_unbind};

static int bus_doorbell(void *opaque, bool port, uint64_t addr, unsigned size, bool match, uint64_t value, int fd,
			bool assign)
{
	struct vm *vm = opaque;

	if (!vm->accel->ops->doorbell)
		return -ENOSYS;
	return vm->accel->ops->doorbell(vm->accel, port, addr, size, match, value, fd, assign);
}

/* ---- choosing ------------------------------------------------------------------------ */

static int unknown_accel(const char *name, struct err *err)
{
	const char *names[8], *near;
	size_t n = 0;

	for (const struct accel_ops *const *a = accel_table; *a && n < ARRAY_SIZE(names); a++)
		names[n++] = (*a)->type.name;
	near = text_nearest(name, names, n);
	return err_set(err, -EINVAL, "-accel '%s': no such accelerator%s%s%s; there are kvm and soft (alias tcg)", name,
		       near ? ", did you mean '" : "", near ? near : "", near ? "'" : "");
}

/* CPU model and engine. An error of the model is the user's and ends the search. */
static int create_with(struct vm *vm, const struct accel_ops *ops, struct opts *options, struct err *err)
{
	const struct vm_config *cfg = vm->cfg;
	struct cpuid_entry *sup = calloc(CPU_MODEL_MAX_SUPPORTED, sizeof(*sup));
	struct accel_config ac = {.mem = &vm->mem,
				  .clock = &vm->clock,
				  .host = &vm->host,
				  .model = &vm->model,
				  .ncpus = vm->board->no_cpus ? 0 : MAX(cfg->cpus, 1u)};
	unsigned n;
	int rc;

	if (!sup)
		return err_set(err, -ENOMEM, "out of memory");
	n = ops->supported_cpuid(sup, CPU_MODEL_MAX_SUPPORTED, err);
	if (!n) {
		free(sup);
		return err_set(err, -EIO, "%s: no CPUID information", ops->type.name);
	}
	vm->model = (struct cpu_model){
	    .sockets = MAX(cfg->sockets, 1u), .cores = MAX(cfg->cores, 1u), .threads = MAX(cfg->threads, 1u)};
	rc = cpu_model_build(&vm->model, cfg->cpu, ops->irqchip ? "host" : "max", sup, n, err);
	free(sup);
	if (rc < 0)
		return rc;
	vm->accel = ops->create(&ac, options, err);
	if (!vm->accel)
		return err && err->code ? err->code : -EIO;
	vm->accel_ops = ops;
	vm->clock.manual = ops->manual_clock;
	return 0;
}

/*
 * One element of the list: "kvm" or "soft,property=value". `only`: there is no
 * other choice. *fatal: the user's mistake, which no other engine makes good.
 */
static int try_one(struct vm *vm, const char *text, bool only, bool *fatal, struct err *err)
{
	const struct accel_ops *ops;
	struct opts o;
	const char *name;
	int rc;

	*fatal = true;
	rc = opts_parse(text, "accel", &o, err);
	if (rc < 0)
		return rc;
	name = opts_get(&o, "accel");
	ops = name ? accel_find(name) : NULL;
	if (!ops) {
		rc = unknown_accel(name ? name : text, err);
		goto out;
	}
	rc = ops->probe ? ops->probe(err) : 0;
	if (rc < 0 || (rc > 0 && !only)) {
		*fatal = false;
		rc = rc < 0 ? rc : -EOPNOTSUPP;
		goto out;
	}
	if (rc > 0 && err) {
		log_warn("-accel %s: %s", text, err->msg);
		*err = (struct err){0};
	}
	rc = create_with(vm, ops, &o, err);
	*fatal = rc == -EINVAL;
	if (rc == 0)
		rc = opts_check_used(&o, &ops->type, err);
out:
	opts_free(&o);
	return rc;
}

/* `why`: what was wrong with the engine that comes first in the list, or NULL. */
static void say_choice(struct vm *vm, bool choice, const char *why)
{
	const char *name = vm->accel_ops->type.name;
	const char *reason = why		      ? why
			     : !choice		      ? "asked for"
			     : vm->accel_ops->irqchip ? "/dev/kvm is usable"
						      : "first choice";

	snprintf(vm->accel_reason, sizeof(vm->accel_reason), "%s (%s)", name, reason);
	/* Who named one engine knows; everybody else is told, most of all when it is the slow one. */
	if (choice)
		log_info("CPU engine: %s (%s)", vm->accel_ops->irqchip ? "KVM" : "the software CPU", reason);
}

static int choose(struct vm *vm, struct err *err)
{
	const char *list = vm->cfg->accel ? vm->cfg->accel : DEFAULT_ACCELS;
	bool choice = strchr(list, ':') != NULL, fatal = false;
	char *copy = strdup(list), *save = NULL, *why = NULL;
	int rc = -ENOENT;

	if (!copy)
		return err_set(err, -ENOMEM, "out of memory");
	for (char *tok = strtok_r(copy, ":", &save); tok; tok = strtok_r(NULL, ":", &save)) {
		struct err e = {0};

		rc = try_one(vm, tok, !choice, &fatal, &e);
		if (rc == 0)
			break;
		if (fatal) {
			err_set(err, rc, "%s", e.msg);
			break;
		}
		if (!why)
			why = strdup(e.msg);
	}
	if (rc == 0)
		say_choice(vm, choice, why);
	else if (!fatal)
		err_set(err, rc, "-accel '%s' is not usable: %s", list, why ? why : "the list is empty");
	free(why);
	free(copy);
	return rc;
}

int vm_accel_create(struct vm *vm, struct err *err)
{
	struct accel *a;
	int rc = choose(vm, err);

	if (rc < 0)
		return rc;
	a = vm->accel;
	if (!a->vcpu)
		a->vcpu = calloc(a->cfg.ncpus + 1, sizeof(*a->vcpu));
	if (!a->vcpu)
		return err_set(err, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		a->vcpu[i] = a->ops->vcpu_create(a, i, vm_apic_id(vm->cfg, i), err);
		if (!a->vcpu[i])
			return err && err->code ? err->code : -EIO;
	}
	vm->bus.accel = a;
	vm->bus.doorbell = bus_doorbell;
	if (a->ops->irqchip) {
		for (int i = 0; i < (int)ARRAY_SIZE(vm->bus.gsi); i++)
			vm->bus.gsi[i] = (struct irq){gsi_set, vm, i};
		vm->bus.msi = &kernel_msi_ops;
		vm->bus.msi_opaque = a;
	}
	return 0;
}

void vm_accel_destroy(struct vm *vm)
{
	struct accel *a = vm->accel;

	if (!a)
		return;
	for (unsigned i = 0; a->vcpu && i < a->cfg.ncpus; i++)
		if (a->vcpu[i]) {
			a->ops->vcpu_destroy(a->vcpu[i]);
			a->vcpu[i] = NULL;
		}
	a->ops->destroy(a);
	vm->accel = NULL;
}

const char *vm_accel_reason(const struct vm *vm)
{
	return vm->accel_reason;
}
