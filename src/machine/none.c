/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The board "none": no CPU, no memory, no chip. Programs that drive QEMU start it to
 * ask over QMP what the others could do. Main loop's thread.
 */
#include <errno.h>
#include "machine/vm_int.h"

static int none_create(struct vm *vm, struct err *err)
{
	if (vm->cfg->ndevices)
		return err_set(err, -EINVAL, "-M none has no bus: -device needs another machine");
	if (vm->cfg->kernel || vm->cfg->bios)
		return err_set(err, -EINVAL, "-M none has no CPU: -kernel and -bios need another machine");
	return 0;
}

static int none_load(struct vm *vm, struct err *err)
{
	return 0;
}

const struct board_ops none_board_ops = {
    .type = {.name = "none", .about = "no CPU and no device: to ask QMP what there is", .size = 0},
    .max_cpus = 1,
    .no_cpus = true,
    .create = none_create,
    .load = none_load,
};
