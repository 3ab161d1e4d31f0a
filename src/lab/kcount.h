/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the host's kernel does for one process: system calls by name and exits of its vCPUs, counted by small eBPF
 * programs on the kernel's raw tracepoints. It needs root (CAP_BPF, CAP_PERFMON) and no tracefs. Main thread.
 */
#ifndef KELVIN_LAB_KCOUNT_H
#define KELVIN_LAB_KCOUNT_H

#include <jansson.h>
#include <sys/types.h>
#include "base/err.h"

struct kcount;

/* Count for this process and its threads from now on. NULL and err where the kernel does not permit it. */
struct kcount *kcount_start(pid_t pid, struct err *err);
/* Add what was counted since the start: vmm.calls (all system calls), vmm.calls.NAME, and with KVM kvm.exits and
 * kvm.exits_to_user. */
void kcount_read(const struct kcount *k, json_t *out);
void kcount_stop(struct kcount *k);

/* What counting adds to each system call on this host, in ns, measured; < 0: it is not permitted here. */
double kcount_cost_ns(void);

#endif
