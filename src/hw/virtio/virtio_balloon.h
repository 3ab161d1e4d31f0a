/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The virtio balloon, for the monitors. Main loop's thread. */
#ifndef KELVIN_HW_VIRTIO_VIRTIO_BALLOON_H
#define KELVIN_HW_VIRTIO_VIRTIO_BALLOON_H

#include "bus/dev.h"

/* The machine's balloon, or NULL. */
struct dev *virtio_balloon_find(struct bus *bus);
/* Bytes the guest has now; and what it shall come to. */
uint64_t virtio_balloon_actual(struct dev *d);
void virtio_balloon_set(struct dev *d, uint64_t bytes);

#endif
