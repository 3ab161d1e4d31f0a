/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Virtio over PCI, modern and transitional (VIRTIO 1.1, 4.1). A device embeds
 * struct virtio_pci first, calls virtio_init and then virtio_pci_realize.
 */
#ifndef KELVIN_HW_VIRTIO_VIRTIO_PCI_H
#define KELVIN_HW_VIRTIO_VIRTIO_PCI_H

#include "bus/pci.h"
#include "hw/virtio/virtio.h"

/* One MSI-X vector's way into the kernel. */
struct virtio_irqfd {
	int fd;	    /* eventfd; -1 until first needed */
	int handle; /* of msi_ops.bind; -1 while not bound */
};

struct virtio_pci {
	struct pci_dev pci;
	struct virtio vio;
	/* properties */
	int disable_legacy; /* enum onoffauto */
	bool disable_modern, ioeventfd, event_idx, indirect_desc, packed, in_order;
	bool answers_at_once; /* set by the device: some requests overtake others, so there is no in_order */
	uint32_t vectors;     /* VIRTIO_PCI_VECTORS_AUTO: one per queue and one for the configuration */
	bool no_doorbells;    /* set by the device: notifications always take the register */
	/* registers */
	uint32_t feature_select, guest_feature_select;
	uint16_t queue_select;
	uint16_t config_vector;
	uint8_t isr;
	bool legacy, modern;	    /* which register sets exist */
	uint8_t cfg_cap;	    /* offset of the PCI configuration access capability */
	struct virtio_irqfd *irqfd; /* one per vector */
};

#define VIRTIO_PCI_VECTORS_AUTO UINT32_MAX

/* Abstract parent type "virtio-pci" of all of them, for the properties above. */
extern const struct dev_ops virtio_pci_base_ops;

int virtio_pci_realize(struct virtio_pci *p, struct err *err);
/* Also after a failed realize. */
void virtio_pci_unrealize(struct virtio_pci *p);

/* What every virtio device saves: the parent of each device's own table (virtio_state.c). */
extern const struct state virtio_pci_state;
void virtio_pci_restored(struct virtio_pci *p); /* dev.lock held */

/* For the devices' dev_ops. */
void virtio_pci_reset(struct dev *d);
int virtio_pci_pause(struct dev *d);
void virtio_pci_resume(struct dev *d);

/* The counters every virtio device lists. */
#define VIRTIO_PCI_COUNTERS                                                                                            \
	{"kicks", offsetof(struct virtio_pci, vio.stats.kicks), "notifications that left the guest"},                  \
	    {"ioeventfds", offsetof(struct virtio_pci, vio.stats.ioeventfds), "notifications through an eventfd"},     \
	    {"chains", offsetof(struct virtio_pci, vio.stats.chains), "descriptor chains taken"},                      \
	    {"interrupts", offsetof(struct virtio_pci, vio.stats.interrupts), "interrupts sent"},                      \
	    {"irqfds", offsetof(struct virtio_pci, vio.stats.irqfds), "of them through an irqfd"},                     \
	    {"suppressed", offsetof(struct virtio_pci, vio.stats.suppressed), "interrupts the driver did not want"},   \
	    {"broken", offsetof(struct virtio_pci, vio.stats.broken), "times the driver broke the rules"},             \
	{                                                                                                              \
		"driver_resets", offsetof(struct virtio_pci, vio.stats.resets), "resets by the driver"                 \
	}

#endif
