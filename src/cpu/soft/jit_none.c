/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Stand-ins while there is no translator: everything is interpreted. Weak: the real ones win. */
#include "cpu/soft/soft.h"

#define WEAK __attribute__((weak))

WEAK enum jit_exit jit_run(struct soft_cpu *c)
{
	return JIT_INTERP;
}
WEAK int jit_init(struct accel *a, struct opts *options, struct err *err)
{
	return 0;
}
WEAK void jit_fini(struct accel *a) {}
WEAK int jit_cpu_init(struct soft_cpu *c, struct err *err)
{
	return 0;
}
WEAK void jit_cpu_fini(struct soft_cpu *c) {}
WEAK bool jit_enabled(const struct accel *a)
{
	return false;
}
WEAK void jit_page_invalidated(struct accel *a, uint64_t page_index) {}
