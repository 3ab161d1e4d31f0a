/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Snapshots of devices in the midst of the other device tests: with STATE_ROUNDTRIP=1 in the environment each step of
 * a test's machine saves every device, resets and loads it, saves it again and compares; the test then goes on. */
#ifndef KELVIN_TESTS_DEVICE_ROUNDTRIP_H
#define KELVIN_TESTS_DEVICE_ROUNDTRIP_H

#include "bus/dev.h"

struct irqchip;
/* Main thread, outside region handlers. `chip` (of ncpus) NULL: none. Nothing where requests are in flight. */
void state_roundtrip(struct bus *bus, struct irqchip *chip, unsigned ncpus);

#endif
