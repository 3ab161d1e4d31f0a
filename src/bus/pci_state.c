/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a snapshot keeps of any PCI device: configuration space, MSI-X, the INTx
 * level. Bits that no guest can write are not taken from a snapshot but compared:
 * where they differ it is another device. Main thread, vCPUs stopped, nothing in
 * flight; dev.lock is taken where the device's hooks expect it.
 */
#include <errno.h>
#include "base/util.h"
#include "bus/pci_int.h"

static int pci_pre_save(void *obj, struct err *err)
{
	struct pci_dev *d = obj;

	memcpy(d->saved_config, d->config, sizeof(d->config));
	for (unsigned i = 0; i < d->msix_n; i += 64)
		d->saved_pending[i / 64] = d->msix_pending[i / 64];
	return 0;
}

/* Bits of a byte that change while a guest runs: what it writes, and the pending bits of MSI. */
static uint8_t changing_bits(const struct pci_dev *d, unsigned off)
{
	const unsigned pending = d->msi_cap + PCI_MSI_PENDING;

	if (d->msi_cap && off >= pending && off < pending + 4)
		return 0xff;
	return d->wmask[off] | d->w1cmask[off];
}

static int take_config(struct pci_dev *d, struct err *err)
{
	for (unsigned i = 0; i < sizeof(d->config); i++) {
		const uint8_t own = changing_bits(d, i), v = d->saved_config[i];

		if ((v ^ d->config[i]) & ~own)
			return err_set(err, -EINVAL,
				       "its PCI configuration differs at 0x%02x (0x%02x in the snapshot, 0x%02x here): "
				       "not the same device, or other options",
				       i, v, d->config[i]);
		d->config[i] = v;
	}
	return 0;
}

static int pci_post_load(void *obj, struct err *err)
{
	struct pci_dev *d = obj;
	int rc;

	pthread_mutex_lock(&d->dev.lock);
	rc = take_config(d, err);
	for (unsigned i = 0; i < d->msix_n && rc == 0; i++) {
		d->msix[i].addr &= ~3ull;
		d->msix[i].ctrl &= PCI_MSIX_ENTRY_MASK;
		if (i % 64 == 0)
			d->msix_pending[i / 64] = d->saved_pending[i / 64];
	}
	if (rc == 0) {
		d->intx_level = d->intx_level != 0;
		pci_restored(d);
		for (unsigned i = 0; d->msix_changed && i < d->msix_n; i++)
			d->msix_changed(d, i);
	}
	pthread_mutex_unlock(&d->dev.lock);
	return rc;
}

static const struct state_field msix_fields[] = {STATE_INT(struct pci_msix_entry, addr),
						 STATE_INT(struct pci_msix_entry, data),
						 STATE_INT(struct pci_msix_entry, ctrl),
						 {0}};

static const struct state_field pci_fields[] = {
    STATE_RAW(struct pci_dev, saved_config),
    STATE_INTS(struct pci_dev, saved_pending),
    STATE_INT_MAX(struct pci_dev, intx_level, 1),
    STATE_POINTED(struct pci_dev, msix, msix_n, msix_fields),
    {0},
};

const struct state pci_state = {.name = "pci",
				.version = 1,
				.min_version = 1,
				.fields = pci_fields,
				.pre_save = pci_pre_save,
				.post_load = pci_post_load};
