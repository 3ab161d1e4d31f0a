/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The buses of each type of IDE controller, for ide_bus.c: i from 0 until NULL. */
#ifndef KELVIN_HW_IDE_CONTROLLERS_H
#define KELVIN_HW_IDE_CONTROLLERS_H

#include "hw/ide/ide.h"

struct ide_bus *piix3_ide_bus(struct dev *d, unsigned i);
struct ide_bus *ahci_bus(struct dev *d, unsigned i);

#endif
