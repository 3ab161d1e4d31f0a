/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The vCPU threads: started once, then either inside vcpu_run or waiting here.
 * vm->lock guards who may run; a vCPU that leaves vcpu_run says so under it.
 *
 * A vCPU whose guest asked for a reset or a shutdown parks itself until the main
 * loop has done it: no instruction behind the request is executed.
 */
#include "machine/vm_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

struct vm_thread {
	struct vm *vm;
	struct vcpu *v;
	pthread_t thread;
	unsigned hold; /* vm_with_vcpu wants it outside */
	bool outside, ended, parked, failed;
};

static __thread struct vm_thread *current_thread;

static bool may_run(const struct vm_thread *t)
{
	return t->vm->run && !t->hold && !t->parked && !t->failed;
}

static void *vcpu_thread(void *arg)
{
	struct vm_thread *t = arg;
	struct vm *vm = t->vm;
	struct accel *a = vm->accel;
	bool first = true;

	current_thread = t;
	atomic_store(&t->v->tid, gettid());
	if (vm->vcpu_thread_start)
		vm->vcpu_thread_start(vm, t->v->index);
	pthread_mutex_lock(&vm->lock);
	while (!vm->exiting) {
		int rc;

		if (!may_run(t)) {
			t->outside = true;
			pthread_cond_broadcast(&vm->cond);
			pthread_cond_wait(&vm->cond, &vm->lock);
			continue;
		}
		t->outside = false;
		atomic_fetch_and(&t->v->requests, ~(uint32_t)VCPU_REQ_STOP);
		pthread_mutex_unlock(&vm->lock);
		if (first && t->v->index == 0)
			vm_timeline_mark(vm, "first guest instruction");
		first = false;
		rc = a->ops->vcpu_run(t->v);
		pthread_mutex_lock(&vm->lock);
		t->failed = rc < 0;
	}
	t->outside = t->ended = true;
	pthread_cond_broadcast(&vm->cond);
	pthread_mutex_unlock(&vm->lock);
	return NULL;
}

int vm_threads_start(struct vm *vm, struct err *err)
{
	struct accel *a = vm->accel;

	vm->thread = calloc(a->cfg.ncpus + 1, sizeof(*vm->thread));
	if (!vm->thread)
		return err_set(err, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		struct vm_thread *t = &vm->thread[i];
		char name[16];
		int rc;

		*t = (struct vm_thread){.vm = vm, .v = a->vcpu[i], .outside = true};
		rc = pthread_create(&t->thread, NULL, vcpu_thread, t);
		if (rc)
			return err_set_errno(err, -rc, "cannot start the thread of vCPU %u", i);
		t->v->thread = t->thread;
		vm->nthreads++;
		snprintf(name, sizeof(name), "vcpu%u", i);
		pthread_setname_np(t->thread, name);
	}
	return 0;
}

static void stop_all_locked(struct vm *vm)
{
	for (unsigned i = 0; i < vm->nthreads; i++)
		if (!vm->thread[i].outside)
			vcpu_request(vm->thread[i].v, VCPU_REQ_STOP);
}

static bool all_outside(const struct vm *vm)
{
	for (unsigned i = 0; i < vm->nthreads; i++)
		if (!vm->thread[i].outside)
			return false;
	return true;
}

void vm_cpus_pause(struct vm *vm)
{
	pthread_mutex_lock(&vm->lock);
	vm->run = false;
	stop_all_locked(vm);
	while (!all_outside(vm))
		pthread_cond_wait(&vm->cond, &vm->lock);
	pthread_mutex_unlock(&vm->lock);
}

void vm_cpus_resume(struct vm *vm)
{
	pthread_mutex_lock(&vm->lock);
	vm->run = true;
	pthread_cond_broadcast(&vm->cond);
	pthread_mutex_unlock(&vm->lock);
}

void vm_cpus_unpark(struct vm *vm)
{
	pthread_mutex_lock(&vm->lock);
	for (unsigned i = 0; i < vm->nthreads; i++)
		vm->thread[i].parked = vm->thread[i].failed = false;
	pthread_mutex_unlock(&vm->lock);
}

bool vm_threads_end(struct vm *vm)
{
	struct timespec until;
	bool ended = true;

	if (!vm->thread)
		return true;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 3;
	pthread_mutex_lock(&vm->lock);
	vm->exiting = true;
	vm->run = false;
	stop_all_locked(vm);
	pthread_cond_broadcast(&vm->cond);
	for (unsigned i = 0; i < vm->nthreads && ended; i++)
		while (!vm->thread[i].ended && ended)
			ended = pthread_cond_timedwait(&vm->cond, &vm->lock, &until) == 0;
	pthread_mutex_unlock(&vm->lock);
	if (!ended)
		return false;
	for (unsigned i = 0; i < vm->nthreads; i++)
		pthread_join(vm->thread[i].thread, NULL);
	free(vm->thread);
	vm->thread = NULL;
	vm->nthreads = 0;
	return true;
}

void vm_with_vcpu(struct vm *vm, unsigned i, void (*fn)(struct vcpu *v, void *arg), void *arg)
{
	struct vm_thread *t = &vm->thread[i];

	pthread_mutex_lock(&vm->lock);
	t->hold++;
	if (!t->outside)
		vcpu_request(t->v, VCPU_REQ_STOP);
	while (!t->outside)
		pthread_cond_wait(&vm->cond, &vm->lock);
	pthread_mutex_unlock(&vm->lock);
	fn(t->v, arg);
	pthread_mutex_lock(&vm->lock);
	t->hold--;
	pthread_cond_broadcast(&vm->cond);
	pthread_mutex_unlock(&vm->lock);
}

void vm_request(struct vm *vm, enum vm_request what, int status, const char *why)
{
	struct vm_thread *self = current_thread && current_thread->vm == vm ? current_thread : NULL;

	pthread_mutex_lock(&vm->lock);
	if (!(vm->requests & BIT(what))) {
		vm->requests |= (uint32_t)BIT(what);
		vm->request_status = status;
		snprintf(vm->request_why, sizeof(vm->request_why), "%s", why ? why : "");
	}
	if (self)
		self->parked = true;
	pthread_mutex_unlock(&vm->lock);
	if (self)
		atomic_fetch_or(&self->v->requests, VCPU_REQ_STOP);
	loop_post(vm->loop, vm_requests_handle, vm);
}

bool vm_requests_waiting(struct vm *vm)
{
	pthread_mutex_lock(&vm->lock);
	bool waiting = vm->requests != 0;
	pthread_mutex_unlock(&vm->lock);
	return waiting;
}

uint32_t vm_requests_take(struct vm *vm, int *status, char why[64])
{
	uint32_t taken;

	pthread_mutex_lock(&vm->lock);
	taken = vm->requests;
	vm->requests = 0;
	*status = vm->request_status;
	memcpy(why, vm->request_why, sizeof(vm->request_why));
	pthread_mutex_unlock(&vm->lock);
	return taken;
}
