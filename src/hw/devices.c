/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every device type Kelvin can create, one line each. No constructors: a device
 * that is not listed here does not exist.
 */
#include "bus/dev.h"
#include "hw/pc/devices.h"

const struct dev_ops *const dev_table[] = {
    NULL,
};
