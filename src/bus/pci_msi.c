/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * MSI: PCI Local Bus Specification 3.0, 6.8.1. The 64-bit form with per-vector
 * masking. All of its state is in configuration space: the message, the mask and
 * the pending bits are read where they stand.
 *
 * Locking: everything with dev.lock held.
 */
#include <errno.h>
#include "base/util.h"
#include "bus/pci_int.h"

#define PCI_CAP_ID_MSI	   0x05
#define PCI_MSI_CONTROL	   2
#define PCI_MSI_ADDRESS	   4
#define PCI_MSI_DATA	   12
#define PCI_MSI_MASK	   16
#define PCI_MSI_CAP_SIZE   24
#define PCI_MSI_ENABLE	   BIT(0)
#define PCI_MSI_CAPABLE(c) ((c) >> 1 & 7) /* log2 of the vectors the device has */
#define PCI_MSI_GRANTED(c) ((c) >> 4 & 7) /* log2 of the vectors it may use */
#define PCI_MSI_64BIT	   BIT(7)
#define PCI_MSI_MASKABLE   BIT(8)

static uint8_t *msi_reg(struct pci_dev *d, unsigned off)
{
	return &d->config[d->msi_cap + off];
}

static uint16_t msi_control(const struct pci_dev *d)
{
	return ld16le(&d->config[d->msi_cap + PCI_MSI_CONTROL]);
}

/* A guest may grant more than the device has: the device uses what it has. */
static unsigned msi_granted(const struct pci_dev *d)
{
	const unsigned granted = PCI_MSI_GRANTED(msi_control(d)), capable = PCI_MSI_CAPABLE(msi_control(d));

	return 1u << MIN(granted, capable);
}

bool pci_msi_active(const struct pci_dev *d)
{
	return d->msi_cap && (msi_control(d) & PCI_MSI_ENABLE);
}

static void msi_send(struct pci_dev *d, unsigned vector)
{
	const struct bus *bus = d->dev.bus;
	const uint32_t data = ld16le(msi_reg(d, PCI_MSI_DATA));

	if (bus->msi && bus->msi->send && pci_bus_master(d))
		bus->msi->send(bus->msi_opaque, ld64le(msi_reg(d, PCI_MSI_ADDRESS)),
			       (data & ~(msi_granted(d) - 1)) | vector);
}

void pci_msi_notify(struct pci_dev *d, unsigned vector)
{
	uint32_t pending;

	if (!pci_msi_active(d))
		return;
	vector &= msi_granted(d) - 1; /* with fewer messages than reasons, reasons share */
	if (ld32le(msi_reg(d, PCI_MSI_MASK)) & 1u << vector) {
		pending = ld32le(msi_reg(d, PCI_MSI_PENDING));
		st32le(msi_reg(d, PCI_MSI_PENDING), pending | 1u << vector);
		return;
	}
	msi_send(d, vector);
}

int pci_msi_init(struct pci_dev *d, unsigned vectors, struct err *err)
{
	const unsigned log2 = vectors ? (unsigned)__builtin_ctz(vectors) : 0;

	if (!vectors || vectors > PCI_MSI_MAX || vectors != 1u << log2)
		return err_set(err, -EINVAL, "%u MSI vectors: must be 1, 2, 4, 8, 16 or 32", vectors);
	d->msi_cap = pci_add_cap(d, PCI_CAP_ID_MSI, PCI_MSI_CAP_SIZE);
	st16le(msi_reg(d, PCI_MSI_CONTROL), (uint16_t)(PCI_MSI_64BIT | PCI_MSI_MASKABLE | log2 << 1));
	st16le(&d->wmask[d->msi_cap + PCI_MSI_CONTROL], (uint16_t)(PCI_MSI_ENABLE | 7u << 4));
	st64le(&d->wmask[d->msi_cap + PCI_MSI_ADDRESS], ~3ull);
	st16le(&d->wmask[d->msi_cap + PCI_MSI_DATA], 0xffff);
	st32le(&d->wmask[d->msi_cap + PCI_MSI_MASK], (uint32_t)(BIT(vectors) - 1));
	return 0;
}

/* The mask or the control word may have changed: what waited and no longer has to is sent, once. */
void pci_msi_written(struct pci_dev *d)
{
	uint32_t pending, due;

	if (!pci_msi_active(d))
		return;
	pending = ld32le(msi_reg(d, PCI_MSI_PENDING));
	due = pending & ~ld32le(msi_reg(d, PCI_MSI_MASK));
	st32le(msi_reg(d, PCI_MSI_PENDING), pending & ~due);
	for (unsigned v = 0; v < PCI_MSI_MAX; v++) {
		if (due & 1u << v)
			msi_send(d, v & (msi_granted(d) - 1));
	}
}

void pci_msi_reset(struct pci_dev *d)
{
	if (!d->msi_cap)
		return;
	st16le(msi_reg(d, PCI_MSI_CONTROL), msi_control(d) & (uint16_t) ~(PCI_MSI_ENABLE | 7u << 4));
	memset(msi_reg(d, PCI_MSI_ADDRESS), 0, PCI_MSI_CAP_SIZE - PCI_MSI_ADDRESS);
}
