/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * MSI-X: PCI Local Bus Specification 3.0, 6.8.2. Table and pending bits are regions
 * of their own over the BAR that holds them.
 *
 * Locking: the table is written with dev.lock and msix_lock held; notifiers take
 * only msix_lock, a leaf, so that a message is neither lost nor sent twice while
 * its mask changes.
 */
#include <errno.h>
#include <stdlib.h>
#include "base/util.h"
#include "bus/pci_int.h"

bool pci_msix_enabled(const struct pci_dev *d)
{
	return (d->msix_control & (PCI_MSIX_ENABLE | PCI_MSIX_MASK_ALL)) == PCI_MSIX_ENABLE;
}

bool pci_msix_active(const struct pci_dev *d)
{
	return d->msix_control & PCI_MSIX_ENABLE;
}

bool pci_msix_masked(const struct pci_dev *d, unsigned vector)
{
	return vector >= d->msix_n || !pci_msix_enabled(d) ||
	       (__atomic_load_n(&d->msix[vector].ctrl, __ATOMIC_ACQUIRE) & PCI_MSIX_ENTRY_MASK);
}

static void pci_msix_send(struct pci_dev *d, unsigned vector)
{
	struct bus *bus = d->dev.bus;

	if (bus->msi && bus->msi->send && pci_bus_master(d))
		bus->msi->send(bus->msi_opaque, d->msix[vector].addr, d->msix[vector].data);
}

void pci_msix_notify(struct pci_dev *d, unsigned vector)
{
	if (vector >= d->msix_n || !pci_msix_active(d))
		return;
	pthread_mutex_lock(&d->msix_lock);
	if (pci_msix_masked(d, vector))
		d->msix_pending[vector / 64] |= BIT(vector % 64);
	else
		pci_msix_send(d, vector);
	pthread_mutex_unlock(&d->msix_lock);
}

/* Send what became deliverable, and tell the device. dev.lock held. */
static void pci_msix_update(struct pci_dev *d, unsigned vector)
{
	pthread_mutex_lock(&d->msix_lock);
	if ((d->msix_pending[vector / 64] & BIT(vector % 64)) && !pci_msix_masked(d, vector)) {
		d->msix_pending[vector / 64] &= ~BIT(vector % 64);
		pci_msix_send(d, vector);
	}
	pthread_mutex_unlock(&d->msix_lock);
	if (d->msix_changed)
		d->msix_changed(d, vector);
}

static uint64_t pci_msix_table_read(void *opaque, uint64_t off, unsigned size)
{
	const struct pci_dev *d = opaque;
	const struct pci_msix_entry *e = &d->msix[off / PCI_MSIX_ENTRY_SIZE];
	uint8_t raw[PCI_MSIX_ENTRY_SIZE];

	st64le(raw, e->addr);
	st32le(raw + 8, e->data);
	st32le(raw + 12, e->ctrl);
	return size == 8 ? ld64le(raw + (off & 8)) : ld32le(raw + (off & 12));
}

static void pci_msix_table_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct pci_dev *d = opaque;
	unsigned vector = (unsigned)(off / PCI_MSIX_ENTRY_SIZE);
	struct pci_msix_entry *e = &d->msix[vector];
	uint8_t raw[PCI_MSIX_ENTRY_SIZE];

	if (size < 4) /* the specification asks for whole dwords */
		return;
	pthread_mutex_lock(&d->msix_lock);
	st64le(raw, e->addr);
	st32le(raw + 8, e->data);
	st32le(raw + 12, e->ctrl);
	if (size == 8)
		st64le(raw + (off & 8), val);
	else
		st32le(raw + (off & 12), (uint32_t)val);
	e->addr = ld64le(raw) & ~3ull;
	e->data = ld32le(raw + 8);
	__atomic_store_n(&e->ctrl, ld32le(raw + 12) & PCI_MSIX_ENTRY_MASK, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&d->msix_lock);
	pci_msix_update(d, vector);
}

static uint64_t pci_msix_pba_read(void *opaque, uint64_t off, unsigned size)
{
	struct pci_dev *d = opaque;
	uint64_t v;

	pthread_mutex_lock(&d->msix_lock);
	v = d->msix_pending[off / 8] >> ((off & 4) * 8);
	pthread_mutex_unlock(&d->msix_lock);
	return v;
}

static const struct region_ops pci_msix_table_ops = {
    .read = pci_msix_table_read,
    .write = pci_msix_table_write,
    .min_size = 4,
    .max_size = 8,
};
static const struct region_ops pci_msix_pba_ops = {
    .read = pci_msix_pba_read,

    .min_size = 4,
    .max_size = 8,
};

int pci_msix_init(struct pci_dev *d, uint16_t vectors, int bar, uint32_t table_off, uint32_t pba_off, struct err *err)
{
	uint64_t table_size = (uint64_t)vectors * PCI_MSIX_ENTRY_SIZE;
	uint64_t pba_size = ALIGN_UP((uint64_t)vectors, 64) / 8;
	const struct pci_bar *b = &d->bar[bar];

	if (!vectors || vectors > PCI_MSIX_MAX)
		return err_set(err, -EINVAL, "%u MSI-X vectors: must be 1 to %d", vectors, PCI_MSIX_MAX);
	BUG_ON((b->kind != PCI_BAR_MEM32 && b->kind != PCI_BAR_MEM64) || (table_off & 7) || (pba_off & 7));
	BUG_ON(table_off + table_size > b->region.size || pba_off + pba_size > b->region.size);
	d->msix = calloc(vectors, sizeof(*d->msix));
	d->msix_pending = calloc(pba_size / 8, 8);
	if (!d->msix || !d->msix_pending) {
		free(d->msix);
		free(d->msix_pending);
		d->msix = NULL;
		d->msix_pending = NULL;
		return err_set(err, -ENOMEM, "out of memory for %u MSI-X vectors", vectors);
	}
	pthread_mutex_init(&d->msix_lock, NULL);
	d->msix_n = vectors;
	d->msix_bar = bar;
	d->msix_table_off = table_off;
	d->msix_pba_off = pba_off;
	d->msix_region = (struct mem_region){
	    .name = "msix-table", .size = table_size, .ops = &pci_msix_table_ops, .opaque = d, .lock = &d->dev.lock};
	d->msix_pba_region = (struct mem_region){
	    .name = "msix-pba", .size = pba_size, .ops = &pci_msix_pba_ops, .opaque = d, .lock = &d->dev.lock};
	for (unsigned i = 0; i < vectors; i++)
		d->msix[i].ctrl = PCI_MSIX_ENTRY_MASK;

	d->msix_cap = pci_add_cap(d, PCI_CAP_ID_MSIX, PCI_MSIX_CAP_SIZE);
	st16le(&d->config[d->msix_cap + PCI_MSIX_CONTROL], vectors - 1);
	st16le(&d->wmask[d->msix_cap + PCI_MSIX_CONTROL], PCI_MSIX_ENABLE | PCI_MSIX_MASK_ALL);
	st32le(&d->config[d->msix_cap + PCI_MSIX_TABLE], table_off | (unsigned)bar);
	st32le(&d->config[d->msix_cap + PCI_MSIX_PBA], pba_off | (unsigned)bar);
	return 0;
}

/* MSI-X control: a vector may have become deliverable, or the device must use other means. */
void pci_msix_control_written(struct pci_dev *d, uint16_t before)
{
	if (!d->msix_n || d->msix_control == before)
		return;
	for (unsigned i = 0; i < d->msix_n; i++)
		pci_msix_update(d, i);
}

void pci_msix_reset(struct pci_dev *d)
{
	if (!d->msix_n)
		return;
	pthread_mutex_lock(&d->msix_lock);
	st16le(&d->config[d->msix_cap + PCI_MSIX_CONTROL], d->msix_n - 1);
	pci_publish(d);
	memset(d->msix, 0, d->msix_n * sizeof(*d->msix));
	for (unsigned i = 0; i < d->msix_n; i++)
		d->msix[i].ctrl = PCI_MSIX_ENTRY_MASK;
	memset(d->msix_pending, 0, ALIGN_UP((size_t)d->msix_n, 64) / 8);
	pthread_mutex_unlock(&d->msix_lock);
	for (unsigned i = 0; d->msix_changed && i < d->msix_n; i++)
		d->msix_changed(d, i);
}

void pci_msix_fini(struct pci_dev *d)
{
	if (d->msix_n)
		pthread_mutex_destroy(&d->msix_lock);
	d->msix_n = 0;
	free(d->msix);
	free(d->msix_pending);
	d->msix = NULL;
	d->msix_pending = NULL;
}
