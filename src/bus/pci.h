/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PCI: configuration space, BARs, INTx and MSI / MSI-X. PCI Local Bus 3.0.
 * A PCI device embeds struct pci_dev first. Configuration mechanism 1 ports
 * (0xCF8, 0xCFC) belong to the host bridge.
 *
 * Locks: a configuration access takes the device's lock. INTx levels are under
 * the bus's interrupt lock and MSI-X messages under the device's msix_lock, both
 * leaves, so that interrupts can be raised with or without dev.lock.
 */
#ifndef KELVIN_BUS_PCI_H
#define KELVIN_BUS_PCI_H

#include "bus/dev.h"

#define PCI_BAR_COUNT 6
#define PCI_MSI_MAX   32
#define PCI_MSIX_MAX  256

enum pci_bar_kind { PCI_BAR_NONE, PCI_BAR_IO, PCI_BAR_MEM32, PCI_BAR_MEM64 };

struct pci_bar {
	enum pci_bar_kind kind;
	bool prefetch;
	uint64_t addr;		  /* where the BAR is mapped, while region.mapped */
	struct mem_region region; /* size is a power of two, >= 4 (I/O) or 16 (memory) */
};

struct pci_msix_entry {
	uint64_t addr;
	uint32_t data, ctrl; /* ctrl bit 0: masked */
};

struct pci_dev {
	struct dev dev;
	int32_t devfn;	/* property "addr"; -1 = the next free slot */
	char *bus_name; /* property "bus": "pci.0" */
	bool multifunction;
	uint16_t vendor, device, subsys_vendor, subsys_id;
	uint32_t class_code;	    /* 24 bits: class, subclass, interface */
	uint8_t revision, intx_pin; /* pin: 0 none, 1 = A */
	uint8_t config[256], wmask[256], w1cmask[256];
	struct pci_bar bar[PCI_BAR_COUNT];
	uint8_t cap_end; /* next free capability offset */
	/* MSI-X */
	uint8_t msix_cap;
	uint8_t msi_cap; /* 0: no MSI */
	uint16_t msix_n;
	struct pci_msix_entry *msix;
	uint64_t *msix_pending;
	struct mem_region msix_region, msix_pba_region; /* inside BAR msix_bar, above it */
	uint32_t msix_table_off, msix_pba_off;
	int msix_bar;
	pthread_mutex_t msix_lock; /* leaf: msix[], msix_pending and the control word as notifiers see it */
	/* COMMAND and MSI-X control for those who hold no dev.lock (notifiers); written under it. */
	_Atomic uint16_t command, msix_control;
	int intx_level; /* what the device asks for; on the wire unless disabled in COMMAND */
	bool intx_wire;
	struct pci_bus *pci; /* set by pci_register */
	/* of pci_state: loading goes here first */
	uint8_t saved_config[256];
	uint64_t saved_pending[PCI_MSIX_MAX / 64];
	/* Hooks of the device, may be NULL; run with dev.lock held. */
	void (*config_written)(struct pci_dev *d, unsigned off, unsigned len);
	void (*msix_changed)(struct pci_dev *d, unsigned vector); /* message or mask changed: update irqfds */
	uint32_t (*config_read_hook)(struct pci_dev *d, unsigned off, unsigned len, uint32_t val);
};

struct pci_bus;
struct pci_bus *pci_bus_create(struct bus *bus, const char *name);
void pci_bus_destroy(struct pci_bus *b);
/* Where INTx goes: pin 0..3 of slot after swizzling; set by the host bridge / ISA bridge. */
void pci_bus_set_intx(struct pci_bus *b, void (*set)(void *opaque, int pirq, int level), void *opaque);
/* The ISA interrupt each input is routed to, for the INTERRUPT LINE registers; same opaque as above. */
void pci_bus_set_intx_line(struct pci_bus *b, uint8_t (*line)(void *opaque, int pirq));
/* Address windows BARs are placed in before a guest starts (there is no firmware to do it). */
void pci_bus_set_windows(struct pci_bus *b, uint16_t io_base, uint64_t mem_base, uint64_t mem_end, uint64_t mem64_base,
			 uint64_t mem64_end);
/* Assign addresses to all BARs and interrupt lines, enable decoding. Board, before start and at reset. */
void pci_bus_place_bars(struct pci_bus *b);

/* In realize: identify, then BARs, then capabilities, then pci_register. */
int pci_register(struct pci_dev *d, struct err *err);
void pci_unregister(struct pci_dev *d);
/* region.name, size, ops, opaque are given; lock defaults to the device's. */
void pci_add_bar(struct pci_dev *d, int bar, enum pci_bar_kind kind, bool prefetch, const char *name, uint64_t size,
		 const struct region_ops *ops, void *opaque);
/* Returns the capability's offset; data after the two header bytes is zero, read-only. */
uint8_t pci_add_cap(struct pci_dev *d, uint8_t id, uint8_t size);
/* Table and PBA in the given BAR at the given offsets (the BAR gets an inner region). */
int pci_msix_init(struct pci_dev *d, uint16_t vectors, int bar, uint32_t table_off, uint32_t pba_off, struct err *err);
bool pci_msix_enabled(const struct pci_dev *d); /* enabled and not function-masked */
bool pci_msix_active(const struct pci_dev *d);	/* enabled, masked or not: INTx is out of use */
bool pci_msix_masked(const struct pci_dev *d, unsigned vector);
void pci_msix_notify(struct pci_dev *d, unsigned vector); /* send or set pending; dev.lock held or not */
/* MSI with 1, 2, 4, ... 32 vectors, 64-bit, maskable. A device may have MSI and MSI-X; the guest enables one. */
int pci_msi_init(struct pci_dev *d, unsigned vectors, struct err *err);
bool pci_msi_active(const struct pci_dev *d);		 /* enabled: INTx is out of use; dev.lock held */
void pci_msi_notify(struct pci_dev *d, unsigned vector); /* send or set pending; dev.lock held */
void pci_set_intx(struct pci_dev *d, int level);
bool pci_bus_master(const struct pci_dev *d);
/*
 * Doorbell `db` (off, size, match, value, fd filled in; kept by the caller until pci_doorbell_del)
 * in a BAR, registered with the engine while the BAR is mapped, wherever that is. With dev.lock
 * held, or in realize. 0, or -ENOSYS when the engine has no doorbells: then the BAR's write handler does it.
 */
int pci_doorbell_add(struct pci_dev *d, int bar, struct region_doorbell *db);
void pci_doorbell_del(struct pci_dev *d, int bar, struct region_doorbell *db);
void pci_reset_common(struct pci_dev *d); /* from the device's reset */
uint32_t pci_config_read(struct pci_bus *b, unsigned bdf, unsigned off, unsigned size);
void pci_config_write(struct pci_bus *b, unsigned bdf, unsigned off, uint32_t val, unsigned size);
void pci_walk(struct pci_bus *b, void (*fn)(void *arg, struct pci_dev *d), void *arg);

/* What every PCI device saves: the parent of each device's own table. */
extern const struct state pci_state;

/* Properties each PCI device type lists: addr, bus, multifunction (parent type "pci-device"). */
extern const struct type pci_device_type;

#endif
