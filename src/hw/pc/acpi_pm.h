/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Ports and values of the power management device that the ACPI tables name. */
#ifndef KELVIN_HW_PC_ACPI_PM_H
#define KELVIN_HW_PC_ACPI_PM_H

#include "bus/dev.h"

#define ACPI_PM_DEVFN	       0x0b  /* 1.3 */
#define ACPI_PM_BASE	       0x600 /* where the board puts the register block */
#define ACPI_PM_SIZE	       64
#define ACPI_PM_EVT	       0x00
#define ACPI_PM_CNT	       0x04
#define ACPI_PM_TMR	       0x08
#define ACPI_PM_GPE0	       0x0c
#define ACPI_PM_GPE0_LEN       4
#define ACPI_PM_SCI	       9
#define ACPI_APM_CNT	       0xb2
#define ACPI_APM_ENABLE	       0xf1 /* written to APM_CNT: events by SCI */
#define ACPI_APM_DISABLE       0xf0
#define ACPI_SLP_TYP_S5	       0
#define ACPI_PM_CONFIG_BASE    0x40 /* PMBA and PMREGMISC in configuration space */
#define ACPI_PM_CONFIG_MISC    0x80
#define ACPI_PM_CONFIG_DEVACTB 0x58

/* The power button is pressed. Main loop's thread. */
void acpi_pm_power_button(struct dev *d);
/* The RTC's alarm went off: RTC_STS, whatever became of IRQ 8. Any thread, the RTC's lock held. */
void acpi_pm_rtc_alarm(struct dev *d);

#endif
