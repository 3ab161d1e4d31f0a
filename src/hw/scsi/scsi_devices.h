/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The SCSI devices' entries of hw/devices.c. */
#ifndef KELVIN_HW_SCSI_SCSI_DEVICES_H
#define KELVIN_HW_SCSI_SCSI_DEVICES_H

#include "bus/dev.h"

extern const struct dev_ops lsi53c895a_ops, lsi_ops;
extern const struct dev_ops scsi_hd_ops, scsi_cd_ops;

#endif
