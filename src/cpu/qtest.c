/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine "qtest": vCPUs that execute nothing. The machine is complete and a
 * client of control/qtest.h plays the CPU: it reads and writes ports and memory,
 * and moves the clock. vCPU states are kept, so that whoever reads them gets
 * what a reset or the board put there.
 *
 * Locks: one per vCPU around its sleep, a leaf.
 */
#include <errno.h>
#include <stdlib.h>
#include "base/util.h"
#include "cpu/cpu.h"

struct qtest_vcpu {
	struct vcpu v; /* first */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct cpu_state state;
};

static struct qtest_vcpu *qtest_vcpu_of(struct vcpu *v)
{
	return container_of(v, struct qtest_vcpu, v);
}

static int qtest_probe(struct err *err)
{
	return 0;
}

static struct accel *qtest_create(const struct accel_config *cfg, struct opts *options, struct err *err)
{
	struct accel *a = calloc(1, sizeof(*a));

	if (!a) {
		err_set(err, -ENOMEM, "no memory for the engine");
		return NULL;
	}
	a->ops = &qtest_accel_ops;
	a->cfg = *cfg;
	return a;
}

static void qtest_destroy(struct accel *a)
{
	free(a->vcpu);
	free(a);
}

static struct vcpu *qtest_vcpu_create(struct accel *a, unsigned index, uint32_t apic_id, struct err *err)
{
	size_t size = ALIGN_UP(sizeof(struct qtest_vcpu), 64ul);
	struct qtest_vcpu *q = aligned_alloc(64, size);

	if (!q) {
		err_set(err, -ENOMEM, "no memory for CPU %u", index);
		return NULL;
	}
	memset(q, 0, size);
	q->v.accel = a;
	q->v.index = index;
	q->v.apic_id = apic_id;
	q->v.halted = true;
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->cond, NULL);
	cpu_state_reset(&q->state, index == 0);
	return &q->v;
}

static void qtest_vcpu_destroy(struct vcpu *v)
{
	struct qtest_vcpu *q = qtest_vcpu_of(v);

	pthread_mutex_destroy(&q->lock);
	pthread_cond_destroy(&q->cond);
	free(q);
}

static int qtest_vcpu_run(struct vcpu *v)
{
	struct qtest_vcpu *q = qtest_vcpu_of(v);

	pthread_mutex_lock(&q->lock);
	while (!(atomic_load(&v->requests) & VCPU_REQ_STOP))
		pthread_cond_wait(&q->cond, &q->lock);
	pthread_mutex_unlock(&q->lock);
	return 0;
}

static void qtest_vcpu_kick(struct vcpu *v)
{
	struct qtest_vcpu *q = qtest_vcpu_of(v);

	pthread_mutex_lock(&q->lock);
	pthread_cond_signal(&q->cond);
	pthread_mutex_unlock(&q->lock);
}

static int qtest_get_state(struct vcpu *v, struct cpu_state *s)
{
	*s = qtest_vcpu_of(v)->state;
	return 0;
}

static int qtest_set_state(struct vcpu *v, const struct cpu_state *s)
{
	qtest_vcpu_of(v)->state = *s;
	return 0;
}

/* -cpu is accepted and checked as for the software CPU. */
static unsigned qtest_supported_cpuid(struct cpuid_entry *out, unsigned max, struct err *err)
{
	return soft_accel_ops.supported_cpuid(out, max, err);
}

const struct accel_ops qtest_accel_ops = {
    .type = {.name = "qtest",
	     .about = "no CPU: a client of -qtest reads, writes and moves the clock",
	     .size = sizeof(struct accel)},
    .manual_clock = true,
    .probe = qtest_probe,
    .create = qtest_create,
    .destroy = qtest_destroy,
    .vcpu_create = qtest_vcpu_create,
    .vcpu_destroy = qtest_vcpu_destroy,
    .vcpu_run = qtest_vcpu_run,
    .vcpu_kick = qtest_vcpu_kick,
    .get_state = qtest_get_state,
    .set_state = qtest_set_state,
    .supported_cpuid = qtest_supported_cpuid,
};
