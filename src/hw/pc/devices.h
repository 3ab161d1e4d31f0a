/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The device tables of this folder, for hw/devices.c and the board, and the few
 * calls between the board's devices.
 */
#ifndef KELVIN_HW_PC_DEVICES_H
#define KELVIN_HW_PC_DEVICES_H

#include "bus/dev.h"

extern const struct dev_ops i440fx_ops;		/* "i440FX": host bridge; makes the PCI bus */
extern const struct dev_ops piix3_ops;		/* "PIIX3": ISA bridge, PCI interrupt routing */
extern const struct dev_ops acpi_pm_ops;	/* "PIIX4_PM": acpi_pm.h */
extern const struct dev_ops fw_cfg_ops;		/* "fw_cfg_io": fw_cfg.h */
extern const struct dev_ops pit_dev_ops;	/* "isa-pit": 40h..43h and 61h, GSI 0; not with KVM's PIT */
extern const struct dev_ops rtc_dev_ops;	/* "mc146818rtc": 70h, 71h, GSI 8 */
extern const struct dev_ops i8042_dev_ops;	/* "i8042": 60h, 64h, GSI 1; reset and A20 */
extern const struct dev_ops port92_dev_ops;	/* "port92": A20 and fast reset */
extern const struct dev_ops fpu_error_dev_ops;	/* "fpu-error": F0h, GSI 13 */
extern const struct dev_ops serial_dev_ops;	/* "isa-serial": chardev=ID, index=0..3 */
extern const struct dev_ops debugcon_dev_ops;	/* "isa-debugcon" */
extern const struct dev_ops debug_exit_dev_ops; /* "isa-debug-exit" */
extern const struct dev_ops pvpanic_dev_ops;	/* "pvpanic" */
extern const struct dev_ops pc_testdev_ops;	/* "pc-testdev" */
extern const struct dev_ops pci_testdev_ops;	/* "pci-testdev" */
extern const struct dev_ops hpet_dev_ops;	/* "hpet": fed00000h; GSI 0 and 8 in legacy mode */

/*
 * The HPET took IRQ 0 and 8 over (legacy replacement on), or gave them back. The
 * HPET calls them for the devices it finds on the bus; with KVM's 8254
 * the board also has hpet_set_legacy_hook. Any thread.
 */
void pit_set_irq_enabled(struct dev *pit, bool on);
void rtc_set_irq_enabled(struct dev *rtc, bool on);
void hpet_set_legacy_hook(struct dev *hpet, void (*fn)(void *opaque, bool legacy), void *opaque);

/* FERR# of a vCPU rises or falls (cpu_host.x87_error); the answer is IGNNE#. That vCPU's thread. */
bool fpu_error_signal(struct dev *d, unsigned cpu, bool error);

/* The board's part of CMOS memory (sizes, boot order): before the first instruction and at reset. */
void rtc_set_cmos(struct dev *rtc, uint8_t index, uint8_t value);
/* The memory sizes of CMOS (15h-18h, 30h-35h, 5bh-5dh), in bytes of RAM below and above 4 GiB. */
void rtc_set_memory(struct dev *rtc, uint64_t below_4g, uint64_t above_4g);

/* Snapshots keep the 8254 with the chips of the CPU engine, some of which have their own. Main thread. */
struct pit_chip;
void pit_chip_save(struct dev *d, struct pit_chip *s);
void pit_chip_load(struct dev *d, const struct pit_chip *s);

#endif
