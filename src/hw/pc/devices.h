/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The device tables of this folder, for hw/devices.c and the board. */
#ifndef KELVIN_HW_PC_DEVICES_H
#define KELVIN_HW_PC_DEVICES_H

#include "bus/dev.h"

#endif
