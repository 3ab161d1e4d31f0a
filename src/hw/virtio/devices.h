/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The virtio devices' entries of hw/devices.c. */
#ifndef KELVIN_HW_VIRTIO_DEVICES_H
#define KELVIN_HW_VIRTIO_DEVICES_H

#include "bus/dev.h"

extern const struct dev_ops virtio_pci_base_ops;
extern const struct dev_ops virtio_blk_pci_ops, virtio_blk_pci_transitional_ops, virtio_blk_pci_non_transitional_ops;
extern const struct dev_ops virtio_balloon_pci_ops, virtio_balloon_ops;
extern const struct dev_ops virtio_rng_pci_ops;
extern const struct dev_ops virtio_scsi_pci_ops, virtio_scsi_pci_transitional_ops, virtio_scsi_pci_non_transitional_ops;
extern const struct dev_ops virtio_serial_pci_ops, virtio_serial_ops, virtconsole_ops, virtserialport_ops;

#endif
