/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the files of the PCI bus: registers, and what pci.c calls of MSI-X. */
#ifndef KELVIN_BUS_PCI_INT_H
#define KELVIN_BUS_PCI_INT_H

#include "bus/pci.h"

/* Configuration header, type 0 */
#define PCI_VENDOR_ID	    0x00
#define PCI_DEVICE_ID	    0x02
#define PCI_COMMAND	    0x04
#define PCI_STATUS	    0x06
#define PCI_REVISION	    0x08
#define PCI_CLASS_PROG	    0x09
#define PCI_CACHE_LINE	    0x0c
#define PCI_HEADER_TYPE	    0x0e
#define PCI_BAR0	    0x10
#define PCI_SUBSYS_VENDOR   0x2c
#define PCI_SUBSYS_ID	    0x2e
#define PCI_CAPABILITY_LIST 0x34
#define PCI_INTERRUPT_LINE  0x3c
#define PCI_INTERRUPT_PIN   0x3d
#define PCI_FIRST_CAP	    0x40

#define PCI_COMMAND_IO		 BIT(0)
#define PCI_COMMAND_MEMORY	 BIT(1)
#define PCI_COMMAND_MASTER	 BIT(2)
#define PCI_COMMAND_INTX_DISABLE BIT(10)
#define PCI_COMMAND_WRITABLE	 0x0547 /* I/O, memory, master, parity, SERR, INTx disable */
#define PCI_STATUS_INTERRUPT	 BIT(3)
#define PCI_STATUS_CAP_LIST	 BIT(4)
#define PCI_STATUS_W1C		 0xf900
#define PCI_MULTIFUNCTION	 0x80

#define PCI_BAR_TYPE_IO	     0x1
#define PCI_BAR_TYPE_MEM64   0x4
#define PCI_BAR_TYPE_PREFETC 0x8

#define PCI_MSI_PENDING	    20 /* offset in its capability */
#define PCI_CAP_ID_MSIX	    0x11
#define PCI_MSIX_CONTROL    2
#define PCI_MSIX_TABLE	    4
#define PCI_MSIX_PBA	    8
#define PCI_MSIX_CAP_SIZE   12
#define PCI_MSIX_ENABLE	    BIT(15)
#define PCI_MSIX_MASK_ALL   BIT(14)
#define PCI_MSIX_ENTRY_SIZE 16
#define PCI_MSIX_ENTRY_MASK 1u

/* Publish COMMAND and MSI-X control for those without dev.lock. dev.lock held, after each change. */
void pci_publish(struct pci_dev *d);
/* After a write to configuration space; `before`: the control word as it was. dev.lock held. */
void pci_msix_control_written(struct pci_dev *d, uint16_t before);
void pci_msix_reset(struct pci_dev *d);
void pci_msix_fini(struct pci_dev *d);
/* Configuration space was loaded: decode BARs where it says, and count the INTx wire, which nobody is told. */
void pci_restored(struct pci_dev *d);
/* The same for MSI. dev.lock held. */
void pci_msi_written(struct pci_dev *d);
void pci_msi_reset(struct pci_dev *d);

#endif
