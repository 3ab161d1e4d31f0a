/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The entry points of run.c that soft.c puts into the engine's table. */
#ifndef KELVIN_CPU_SOFT_RUN_H
#define KELVIN_CPU_SOFT_RUN_H

#include "cpu/soft/soft.h"

int soft_vcpu_run(struct vcpu *v);
/* sleep.c: wait for a request, or for the APIC timer, which is polled then. */
void soft_sleep(struct soft_cpu *c);
void soft_vcpu_kick(struct vcpu *v); /* any thread */

#endif
