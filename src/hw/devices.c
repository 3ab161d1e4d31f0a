/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every device type Kelvin can create, one line each. No constructors: a device
 * that is not listed here does not exist.
 */
#include "bus/dev.h"
#include "hw/ide/ide.h"
#include "hw/nvme/nvme.h"
#include "hw/pc/devices.h"
#include "hw/scsi/scsi_devices.h"
#include "hw/virtio/devices.h"

/* One line each. */
/* clang-format off */
const struct dev_ops *const dev_table[] = {
    /* pc */
    &i440fx_ops,
    &piix3_ops,
    &acpi_pm_ops,
    &fw_cfg_ops,
    &pit_dev_ops,
    &rtc_dev_ops,
    &i8042_dev_ops,
    &port92_dev_ops,
    &fpu_error_dev_ops,
    &hpet_dev_ops,
    &serial_dev_ops,
    &debugcon_dev_ops,
    &debug_exit_dev_ops,
    &pvpanic_dev_ops,
    &pc_testdev_ops,
    &pci_testdev_ops,
    /* ide */
    &piix3_ide_ops,
    &ich9_ahci_ops,
    &ahci_ops,
    &ide_hd_ops,
    &ide_cd_ops,
    /* scsi */
    &lsi53c895a_ops,
    &lsi_ops,
    &scsi_hd_ops,
    &scsi_cd_ops,
    &nvme_ops,
    /* virtio */
    &virtio_pci_base_ops, /* abstract */
    &virtio_blk_pci_ops,
    &virtio_blk_pci_transitional_ops,
    &virtio_blk_pci_non_transitional_ops,
    &virtio_balloon_pci_ops,
    &virtio_balloon_ops,
    &virtio_rng_pci_ops,
    &virtio_scsi_pci_ops,
    &virtio_scsi_pci_transitional_ops,
    &virtio_scsi_pci_non_transitional_ops,
    &virtio_serial_pci_ops,
    &virtio_serial_ops,
    &virtconsole_ops,
    &virtserialport_ops,
    NULL,
};
/* clang-format on */
