/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * -stats: every counter of a machine as one JSON document. Counters are read
 * while their owners write them; each is a single load. Main loop's thread.
 */
#include "machine/vm_int.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "block/block.h"
#include "base/util.h"

static json_t *counters_json(const struct counter *table, const void *owner)
{
	json_t *o = json_object();

	for (const struct counter *c = table; c && c->name; c++) {
		const uint64_t *value = (const void *)((const char *)owner + c->offset);

		json_object_set_new(o, c->name, json_integer((json_int_t)counter_get(value)));
	}
	return o;
}

static void extra_emit(void *arg, const char *name, uint64_t value)
{
	json_object_set_new(arg, name, json_integer((json_int_t)value));
}

static json_t *vcpus_json(struct vm *vm)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < vm->accel->cfg.ncpus; i++) {
		struct vcpu *v = vm->accel->vcpu[i];
		json_t *o = counters_json(vm->accel->ops->counters, v), *extra = json_object();

		json_object_set_new(o, "index", json_integer((json_int_t)i));
		if (vm->accel->ops->vcpu_stats) {
			vm->accel->ops->vcpu_stats(v, extra_emit, extra);
			json_object_set(o, "kernel", extra);
		}
		json_decref(extra);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *devices_json(struct vm *vm)
{
	json_t *list = json_array();

	for (struct dev *d = vm->bus.devices; d; d = d->next) {
		json_t *o;

		if (!d->ops->counters)
			continue;
		o = counters_json(d->ops->counters, d);
		json_object_set_new(o, "type", json_string(d->ops->type.name));
		if (d->id)
			json_object_set_new(o, "id", json_string(d->id));
		json_array_append_new(list, o);
	}
	return list;
}

/* Requests of the guest's devices to each drive's node. */
static json_t *drives_json(void)
{
	json_t *list = json_array();
	struct drive *d;

	for (size_t i = 0; (d = drive_at(i)); i++) {
		const struct block_stats *s = d->node ? block_stats_of(d->node) : NULL;
		uint64_t requests = 0, bytes = 0;

		for (size_t k = 0; s && k < ARRAY_SIZE(s->ops); k++) {
			requests += counter_get(&s->ops[k]);
			bytes += counter_get(&s->bytes[k]);
		}
		if (!s)
			continue;
		json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:I}", "id", d->id, "requests", (json_int_t)requests,
				      "bytes", (json_int_t)bytes, "errors", (json_int_t)counter_get(&s->errors),
				      "syscalls", (json_int_t)block_syscalls(d->node));
		/* Without an invariant TSC nobody knows. */
		if (clock_tsc_khz())
			json_object_set_new(
			    o, "wait_ns",
			    json_integer((json_int_t)muldiv64(counter_get(&s->wait), 1000000, clock_tsc_khz())));
		json_array_append_new(list, o);
	}
	return list;
}

static uint64_t rss_kib(void)
{
	unsigned long long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f) {
		if (fscanf(f, "%llu %llu", &size, &resident) != 2)
			resident = 0;
		fclose(f);
	}
	return resident * (uint64_t)sysconf(_SC_PAGESIZE) / KIB;
}

/* With the processes that run the guest's user code. */
static json_t *process_json(void)
{
	struct rusage u = {0};
	struct process_usage all;

	getrusage(RUSAGE_SELF, &u);
	double user = (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec * 1e-6;
	double system = (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec * 1e-6;
	/* The finer clock, where there are no children to add. */
	process_usage(getpid(), &all);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "user_us", (json_int_t)(MAX(user, all.user_s) * 1e6),
			 "system_us", (json_int_t)(MAX(system, all.system_s) * 1e6), "voluntary_switches",
			 (json_int_t)u.ru_nvcsw, "involuntary_switches", (json_int_t)u.ru_nivcsw, "rss_kib",
			 (json_int_t)rss_kib(), "max_rss_kib", (json_int_t)u.ru_maxrss, "children_kib",
			 (json_int_t)all.children_kib);
}

static json_t *timeline_json(struct vm *vm)
{
	unsigned n = __atomic_load_n(&vm->nmarks, __ATOMIC_ACQUIRE);
	json_t *o = json_array();

	for (unsigned i = 0; i < n; i++)
		json_array_append_new(o, json_pack("{s:s, s:I}", "what", vm->mark[i].what, "ns",
						   (json_int_t)(vm->mark[i].at - vm->mark[0].at)));
	return o;
}

char *vm_stats_text(struct vm *vm)
{
	json_t *root = json_object();

	json_object_set_new(root, "accel", json_string(vm->accel_ops->type.name));
	json_object_set_new(root, "accel_reason", json_string(vm->accel_reason));
	json_object_set_new(root, "state", json_string(vm_state_name(vm->state)));
	json_object_set_new(root, "guest_ns", json_integer((json_int_t)vmclock_ns(&vm->clock)));
	json_object_set_new(root, "timeline", timeline_json(vm));
	json_object_set_new(root, "vcpus", vcpus_json(vm));
	json_object_set_new(root, "engine", counters_json(vm->accel->ops->accel_counters, vm->accel));
	json_object_set_new(root, "devices", devices_json(vm));
	json_object_set_new(root, "drives", drives_json());
	json_object_set_new(root, "process", process_json());
	char *text = json_dumps(root, JSON_INDENT(1));
	json_decref(root);
	return text;
}

int vm_write_stats(struct vm *vm, const char *path, struct err *err)
{
	FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
	int rc = 0;

	if (!f)
		return err_set_errno(err, -errno, "-stats '%s'", path);
	char *text = vm_stats_text(vm);
	if (!text)
		rc = err_set_errno(err, -ENOMEM, "-stats '%s'", path);
	else if (fprintf(f, "%s\n", text) < 0 || fflush(f) != 0)
		rc = err_set_errno(err, errno ? -errno : -EIO, "-stats '%s'", path);
	if (f != stdout)
		fclose(f);
	free(text);
	return rc;
}
