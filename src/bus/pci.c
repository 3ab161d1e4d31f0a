/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PCI configuration space, base address registers and INTx of one bus. PCI Local
 * Bus Specification 3.0, chapter 6 (configuration space, BARs) and 2.2.6
 * (interrupt pins). MSI is in pci_msi.c, MSI-X in pci_msix.c.
 *
 * Locking: see pci.h. BARs are mapped and unmapped with dev.lock held.
 */
#include "bus/pci.h"
#include <errno.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/util.h"
#include "bus/pci_int.h"

#define PCI_DEVFN_COUNT 256
#define PCI_FIRST_FREE	2 /* slots 0 and 1 are the host and the ISA bridge */

/* Priorities in the map: RAM and chips at fixed places win over BARs, a BAR's inner regions over the BAR. */
#define PCI_PRIORITY_BAR   (-2)
#define PCI_PRIORITY_INNER (-1)

struct pci_bus {
	struct bus *bus;
	char *name;
	struct pci_dev *dev[PCI_DEVFN_COUNT];
	/* interrupts: one count of asserting devices for each of the bridge's four inputs */
	pthread_mutex_t irq_lock;
	unsigned pirq_count[4];
	void (*set_pirq)(void *opaque, int pirq, int level);
	uint8_t (*pirq_line)(void *opaque, int pirq);
	void *pirq_opaque;
	/* address windows for pci_bus_place_bars */
	uint16_t io_base;
	uint64_t mem_base, mem_end, mem64_base, mem64_end;
};

static const struct prop pci_props[] = {
    {.name = "addr",
     .kind = PROP_DEVFN,
     .offset = offsetof(struct pci_dev, devfn),
     .def = "-1",
     .help = "slot, or slot.function, in hexadecimal; the next free slot when not given"},
    {.name = "bus", .kind = PROP_STR, .offset = offsetof(struct pci_dev, bus_name), .help = "PCI bus: pci.0"},
    {.name = "multifunction",
     .kind = PROP_BOOL,
     .offset = offsetof(struct pci_dev, multifunction),
     .def = "off",
     .help = "function 0 of a slot that has more functions"},
    {.name = NULL},
};

const struct type pci_device_type = {
    .name = "pci-device",
    .about = "any PCI device",
    .abstract = true,
    .size = sizeof(struct pci_dev),
    .props = pci_props,
};

/* ---- bus --------------------------------------------------------------- */

struct pci_bus *pci_bus_create(struct bus *bus, const char *name)
{
	struct pci_bus *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->name = strdup(name);
	if (!b->name) {
		free(b);
		return NULL;
	}
	b->bus = bus;
	pthread_mutex_init(&b->irq_lock, NULL);
	return b;
}

void pci_bus_destroy(struct pci_bus *b)
{
	if (!b)
		return;
	pthread_mutex_destroy(&b->irq_lock);
	free(b->name);
	free(b);
}

void pci_bus_set_intx(struct pci_bus *b, void (*set)(void *opaque, int pirq, int level), void *opaque)
{
	b->set_pirq = set;
	b->pirq_opaque = opaque;
}

void pci_bus_set_intx_line(struct pci_bus *b, uint8_t (*line)(void *opaque, int pirq))
{
	b->pirq_line = line;
}

void pci_bus_set_windows(struct pci_bus *b, uint16_t io_base, uint64_t mem_base, uint64_t mem_end, uint64_t mem64_base,
			 uint64_t mem64_end)
{
	b->io_base = io_base;
	b->mem_base = mem_base;
	b->mem_end = mem_end;
	b->mem64_base = mem64_base;
	b->mem64_end = mem64_end;
}

void pci_walk(struct pci_bus *b, void (*fn)(void *arg, struct pci_dev *d), void *arg)
{
	for (unsigned i = 0; i < PCI_DEVFN_COUNT; i++) {
		if (b->dev[i])
			fn(arg, b->dev[i]);
	}
}

/* ---- INTx -------------------------------------------------------------- */

/* Pin A of slot 1 is input 0, and each slot turns by one, as PC boards with a PIIX3 are wired. */
static int pci_pirq_of(const struct pci_dev *d)
{
	return ((d->devfn >> 3) + d->intx_pin - 1 + 3) & 3;
}

/* Publish COMMAND and MSI-X control. dev.lock held, after each change of them. */
void pci_publish(struct pci_dev *d)
{
	d->command = ld16le(&d->config[PCI_COMMAND]);
	d->msix_control = d->msix_n ? ld16le(&d->config[d->msix_cap + PCI_MSIX_CONTROL]) : 0;
}

/* Bring the wire in line with the device's level and its COMMAND register. */
static void pci_update_intx(struct pci_dev *d)
{
	struct pci_bus *b = d->pci;
	bool want;
	int pirq;

	if (!b || !d->intx_pin)
		return;
	pirq = pci_pirq_of(d);
	pthread_mutex_lock(&b->irq_lock);
	want = __atomic_load_n(&d->intx_level, __ATOMIC_ACQUIRE) && !(d->command & PCI_COMMAND_INTX_DISABLE);
	if (want != d->intx_wire) {
		unsigned before = b->pirq_count[pirq];

		d->intx_wire = want;
		b->pirq_count[pirq] += want ? 1 : -1u;
		if (!before != !b->pirq_count[pirq] && b->set_pirq)
			b->set_pirq(b->pirq_opaque, pirq, want);
	}
	pthread_mutex_unlock(&b->irq_lock);
}

void pci_set_intx(struct pci_dev *d, int level)
{
	__atomic_store_n(&d->intx_level, !!level, __ATOMIC_RELEASE);
	pci_update_intx(d);
}

/* ---- BARs -------------------------------------------------------------- */

static uint64_t pci_null_read(void *opaque, uint64_t off, unsigned size)
{
	return UINT64_MAX;
}

static void pci_null_write(void *opaque, uint64_t off, uint64_t val, unsigned size) {}

static const struct region_ops pci_null_ops = {.read = pci_null_read, .write = pci_null_write};

static unsigned pci_bar_reg(int bar)
{
	return PCI_BAR0 + 4 * (unsigned)bar;
}

static uint32_t pci_bar_type_bits(const struct pci_bar *bar)
{
	if (bar->kind == PCI_BAR_IO)
		return PCI_BAR_TYPE_IO;
	return (bar->kind == PCI_BAR_MEM64 ? PCI_BAR_TYPE_MEM64 : 0) | (bar->prefetch ? PCI_BAR_TYPE_PREFETC : 0);
}

void pci_add_bar(struct pci_dev *d, int bar, enum pci_bar_kind kind, bool prefetch, const char *name, uint64_t size,
		 const struct region_ops *ops, void *opaque)
{
	struct pci_bar *b = &d->bar[bar];
	unsigned reg = pci_bar_reg(bar);

	BUG_ON(bar < 0 || bar >= PCI_BAR_COUNT - (kind == PCI_BAR_MEM64) || b->kind != PCI_BAR_NONE);
	BUG_ON((size & (size - 1)) || size < (kind == PCI_BAR_IO ? 4 : 16));
	BUG_ON(kind != PCI_BAR_MEM64 && size > 2 * GIB);
	b->kind = kind;
	b->prefetch = prefetch;
	b->region.name = name;
	b->region.size = size;
	b->region.ops = ops ? ops : &pci_null_ops;
	b->region.opaque = opaque;
	if (!b->region.lock)
		b->region.lock = &d->dev.lock;
	st32le(&d->config[reg], pci_bar_type_bits(b));
	st32le(&d->wmask[reg], (uint32_t) ~(size - 1));
	if (kind == PCI_BAR_MEM64)
		st32le(&d->wmask[reg + 4], (uint32_t)(~(size - 1) >> 32));
}

/*
 * Where the BAR decodes now; false when it does not: decoding is off, address 0,
 * or the all-ones pattern of a size probe, which must not appear in the map.
 */
static bool pci_bar_decoded(const struct pci_dev *d, int bar, uint64_t *addr)
{
	const struct pci_bar *b = &d->bar[bar];
	unsigned reg = pci_bar_reg(bar);
	uint16_t command = ld16le(&d->config[PCI_COMMAND]);
	uint64_t a, limit;

	switch (b->kind) {
	case PCI_BAR_IO:
		if (!(command & PCI_COMMAND_IO))
			return false;
		a = ld32le(&d->config[reg]) & ~3u;
		limit = 0xffff;
		break;
	case PCI_BAR_MEM32:
		a = ld32le(&d->config[reg]) & ~0xfu;
		limit = 0xfffffffeu;
		break;
	case PCI_BAR_MEM64:
		a = ld64le(&d->config[reg]) & ~0xfull;
		limit = BIT(52) - 1;
		break;
	default: return false;
	}
	if (b->kind != PCI_BAR_IO && !(command & PCI_COMMAND_MEMORY))
		return false;
	if (!a || a > limit || b->region.size - 1 > limit - a)
		return false;
	*addr = a;
	return true;
}

static void pci_bar_doorbells(struct pci_dev *d, const struct pci_bar *b, bool assign)
{
	struct bus *bus = d->dev.bus;

	for (const struct region_doorbell *db = b->region.doorbells; db && bus->doorbell; db = db->next)
		bus->doorbell(bus->opaque, b->kind == PCI_BAR_IO, b->addr + db->off, db->size, db->match, db->value,
			      db->fd, assign);
}

static void pci_bar_unmap(struct pci_dev *d, int bar)
{
	struct bus *bus = d->dev.bus;
	struct pci_bar *b = &d->bar[bar];

	if (!b->region.mapped)
		return;
	pci_bar_doorbells(d, b, false);
	if (b->kind == PCI_BAR_IO) {
		ports_unmap(bus->ports, &b->region);
		return;
	}
	if (d->msix_n && d->msix_bar == bar) {
		mem_unmap_region(bus->mem, &d->msix_region);
		mem_unmap_region(bus->mem, &d->msix_pba_region);
	}
	mem_unmap_region(bus->mem, &b->region);
}

static void pci_bar_map(struct pci_dev *d, int bar, uint64_t addr)
{
	struct bus *bus = d->dev.bus;
	struct pci_bar *b = &d->bar[bar];

	b->addr = addr;
	if (b->kind == PCI_BAR_IO) {
		ports_map(bus->ports, &b->region, (uint16_t)addr);
	} else {
		mem_map_region(bus->mem, &b->region, addr, PCI_PRIORITY_BAR);
		if (d->msix_n && d->msix_bar == bar) {
			mem_map_region(bus->mem, &d->msix_region, addr + d->msix_table_off, PCI_PRIORITY_INNER);
			mem_map_region(bus->mem, &d->msix_pba_region, addr + d->msix_pba_off, PCI_PRIORITY_INNER);
		}
	}
	pci_bar_doorbells(d, b, true);
}

/* Map, move or unmap what the configuration space says now. dev.lock held. */
static void pci_update_bars(struct pci_dev *d)
{
	for (int i = 0; i < PCI_BAR_COUNT; i++) {
		struct pci_bar *b = &d->bar[i];
		uint64_t addr;
		bool on = pci_bar_decoded(d, i, &addr);

		if (b->region.mapped && (!on || addr != b->addr))
			pci_bar_unmap(d, i);
		if (on && !b->region.mapped)
			pci_bar_map(d, i, addr);
	}
}

void pci_restored(struct pci_dev *d)
{
	struct pci_bus *b = d->pci;

	pci_publish(d);
	pci_update_bars(d);
	if (!d->intx_pin)
		return;
	pthread_mutex_lock(&b->irq_lock);
	b->pirq_count[pci_pirq_of(d)] -= d->intx_wire;
	d->intx_wire = d->intx_level && !(d->command & PCI_COMMAND_INTX_DISABLE);
	b->pirq_count[pci_pirq_of(d)] += d->intx_wire;
	pthread_mutex_unlock(&b->irq_lock);
}

int pci_doorbell_add(struct pci_dev *d, int bar, struct region_doorbell *db)
{
	struct pci_bar *b = &d->bar[bar];
	struct bus *bus = d->dev.bus;

	if (!bus->doorbell)
		return -ENOSYS;
	if (b->region.mapped) {
		int r = bus->doorbell(bus->opaque, b->kind == PCI_BAR_IO, b->addr + db->off, db->size, db->match,
				      db->value, db->fd, true);
		if (r)
			return r;
	}
	db->next = b->region.doorbells;
	b->region.doorbells = db;
	return 0;
}

void pci_doorbell_del(struct pci_dev *d, int bar, struct region_doorbell *db)
{
	struct pci_bar *b = &d->bar[bar];
	struct bus *bus = d->dev.bus;

	for (struct region_doorbell **at = &b->region.doorbells; *at; at = &(*at)->next) {
		if (*at != db)
			continue;
		*at = db->next;
		if (b->region.mapped)
			bus->doorbell(bus->opaque, b->kind == PCI_BAR_IO, b->addr + db->off, db->size, db->match,
				      db->value, db->fd, false);
		return;
	}
}

/* ---- placing BARs without firmware -------------------------------------- */

/* All BARs of the bus, largest first: then natural alignment wastes nothing. */
struct pci_place {
	struct pci_dev *d;
	int bar;
};
struct pci_place_list {
	struct pci_place v[PCI_DEVFN_COUNT * PCI_BAR_COUNT];
	unsigned n;
};

static void pci_place_collect(void *arg, struct pci_dev *d)
{
	struct pci_place_list *l = arg;

	for (int i = 0; i < PCI_BAR_COUNT; i++) {
		if (d->bar[i].kind != PCI_BAR_NONE)
			l->v[l->n++] = (struct pci_place){d, i};
	}
}

static int pci_place_compare(const void *a, const void *b)
{
	const struct pci_place *x = a, *y = b;
	uint64_t xs = x->d->bar[x->bar].region.size, ys = y->d->bar[y->bar].region.size;

	if (xs != ys)
		return xs < ys ? 1 : -1;
	if (x->d->devfn != y->d->devfn)
		return x->d->devfn < y->d->devfn ? -1 : 1;
	return x->bar - y->bar;
}

/* Next free address of `size`, or 0 when the window is full. */
static uint64_t pci_place_take(uint64_t *next, uint64_t end, uint64_t size)
{
	uint64_t at = ALIGN_UP(*next, size);

	if (at < *next || at >= end || size > end - at)
		return 0;
	*next = at + size;
	return at;
}

static void pci_place_enable(void *arg, struct pci_dev *d)
{
	struct pci_bus *b = arg;
	uint16_t command = 0;

	pthread_mutex_lock(&d->dev.lock);
	for (int i = 0; i < PCI_BAR_COUNT; i++) {
		if (d->bar[i].kind == PCI_BAR_IO)
			command |= PCI_COMMAND_IO;
		else if (d->bar[i].kind != PCI_BAR_NONE)
			command |= PCI_COMMAND_MEMORY;
	}
	st16le(&d->config[PCI_COMMAND], ld16le(&d->config[PCI_COMMAND]) | command);
	if (d->intx_pin && b->pirq_line)
		d->config[PCI_INTERRUPT_LINE] = b->pirq_line(b->pirq_opaque, pci_pirq_of(d));
	pci_publish(d);
	pci_update_bars(d);
	pthread_mutex_unlock(&d->dev.lock);
}

void pci_bus_place_bars(struct pci_bus *b)
{
	struct pci_place_list *l = calloc(1, sizeof(*l));
	uint64_t io = b->io_base, mem = b->mem_base, mem64 = b->mem64_base;

	BUG_ON(!l);
	pci_walk(b, pci_place_collect, l);
	qsort(l->v, l->n, sizeof(l->v[0]), pci_place_compare);
	for (unsigned i = 0; i < l->n; i++) {
		struct pci_dev *d = l->v[i].d;
		struct pci_bar *bar = &d->bar[l->v[i].bar];
		unsigned reg = pci_bar_reg(l->v[i].bar);
		uint64_t addr;

		if (bar->kind == PCI_BAR_IO)
			addr = pci_place_take(&io, 0x10000, bar->region.size);
		else
			addr = pci_place_take(&mem, b->mem_end, bar->region.size);
		if (!addr && bar->kind == PCI_BAR_MEM64)
			addr = pci_place_take(&mem64, b->mem64_end, bar->region.size);
		if (!addr)
			log_warn("no room for BAR %d of \"%s\" (0x%llx bytes): left to the guest", l->v[i].bar,
				 d->dev.id ? d->dev.id : d->dev.ops->type.name, (unsigned long long)bar->region.size);
		pthread_mutex_lock(&d->dev.lock);
		st32le(&d->config[reg], (uint32_t)addr | pci_bar_type_bits(bar));
		if (bar->kind == PCI_BAR_MEM64)
			st32le(&d->config[reg + 4], (uint32_t)(addr >> 32));
		pthread_mutex_unlock(&d->dev.lock);
	}
	free(l);
	pci_walk(b, pci_place_enable, b);
}

/* ---- configuration space ------------------------------------------------ */

bool pci_bus_master(const struct pci_dev *d)
{
	return d->command & PCI_COMMAND_MASTER;
}

uint8_t pci_add_cap(struct pci_dev *d, uint8_t id, uint8_t size)
{
	unsigned at = ALIGN_UP(d->cap_end ? d->cap_end : PCI_FIRST_CAP, 4u);
	uint8_t *link = &d->config[PCI_CAPABILITY_LIST];

	BUG_ON(size < 2 || at + size > sizeof(d->config));
	while (*link) /* in the order they were added */
		link = &d->config[*link + 1];
	*link = (uint8_t)at;
	d->config[at] = id;
	d->config[at + 1] = 0;
	d->cap_end = (uint8_t)MIN(at + size, 255u);
	d->config[PCI_STATUS] |= PCI_STATUS_CAP_LIST;
	return (uint8_t)at;
}

static struct pci_dev *pci_find(const struct pci_bus *b, unsigned bdf)
{
	return b && bdf < PCI_DEVFN_COUNT ? b->dev[bdf] : NULL;
}

uint32_t pci_config_read(struct pci_bus *b, unsigned bdf, unsigned off, unsigned size)
{
	struct pci_dev *d = pci_find(b, bdf);
	uint32_t val = 0, mask = size >= 4 ? UINT32_MAX : (1u << (size * 8)) - 1;

	if (!d || off > sizeof(d->config) - size)
		return mask;
	pthread_mutex_lock(&d->dev.lock);
	for (unsigned i = 0; i < size; i++) {
		uint8_t byte = d->config[off + i];

		if (off + i == PCI_STATUS)
			byte |= __atomic_load_n(&d->intx_level, __ATOMIC_ACQUIRE) ? PCI_STATUS_INTERRUPT : 0;
		val |= (uint32_t)byte << (i * 8);
	}
	if (d->config_read_hook)
		val = d->config_read_hook(d, off, size, val) & mask;
	pthread_mutex_unlock(&d->dev.lock);
	return val;
}

static bool pci_touches(unsigned off, unsigned size, unsigned reg, unsigned len)
{
	return off < reg + len && reg < off + size;
}

void pci_config_write(struct pci_bus *b, unsigned bdf, unsigned off, uint32_t val, unsigned size)
{
	struct pci_dev *d = pci_find(b, bdf);
	uint16_t msix_before;

	if (!d || off > sizeof(d->config) - size)
		return;
	pthread_mutex_lock(&d->dev.lock);
	msix_before = d->msix_control;
	for (unsigned i = 0; i < size; i++) {
		uint8_t byte = (uint8_t)(val >> (i * 8)), *c = &d->config[off + i];

		*c = (uint8_t)((*c & ~d->wmask[off + i]) | (byte & d->wmask[off + i]));
		*c &= (uint8_t) ~(byte & d->w1cmask[off + i]);
	}
	pci_publish(d);
	if (pci_touches(off, size, PCI_COMMAND, 2))
		pci_update_intx(d);
	if (pci_touches(off, size, PCI_COMMAND, 2) || pci_touches(off, size, PCI_BAR0, 4 * PCI_BAR_COUNT))
		pci_update_bars(d);
	pci_msix_control_written(d, msix_before);
	pci_msi_written(d);
	if (d->config_written)
		d->config_written(d, off, size);
	pthread_mutex_unlock(&d->dev.lock);
}

/* ---- registration ------------------------------------------------------- */

static int pci_choose_devfn(struct pci_bus *b, struct pci_dev *d, struct err *err)
{
	const struct pci_dev *holder, *first;

	if (d->devfn < 0) {
		for (int slot = PCI_FIRST_FREE; slot < 32 && d->devfn < 0; slot++) {
			if (!b->dev[slot * 8])
				d->devfn = slot * 8;
		}
		if (d->devfn < 0)
			return err_set(err, -ENOSPC, "PCI bus \"%s\" has no free slot; give addr=SLOT.FUNCTION",
				       b->name);
	}
	if (d->devfn >= PCI_DEVFN_COUNT)
		return err_set(err, -EINVAL, "PCI address 0x%x: slots are 0 to 1f, functions 0 to 7",
			       (unsigned)d->devfn);
	holder = b->dev[d->devfn];
	if (holder)
		return err_set(err, -EBUSY, "PCI address %02x.%x is taken by \"%s\"", (unsigned)d->devfn >> 3,
			       (unsigned)d->devfn & 7, holder->dev.ops->type.name);
	first = b->dev[d->devfn & ~7];
	if ((d->devfn & 7) && first && !(first->config[PCI_HEADER_TYPE] & PCI_MULTIFUNCTION))
		return err_set(
		    err, -EINVAL,
		    "PCI slot %02x holds \"%s\", which is not multifunction: function %x of it cannot be used",
		    (unsigned)d->devfn >> 3, first->dev.ops->type.name, (unsigned)d->devfn & 7);
	if (!(d->devfn & 7) && !d->multifunction) {
		for (int f = 1; f < 8; f++) {
			if (b->dev[d->devfn + f])
				return err_set(err, -EINVAL,
					       "PCI slot %02x has other functions: function 0 needs multifunction=on",
					       (unsigned)d->devfn >> 3);
		}
	}
	return 0;
}

int pci_register(struct pci_dev *d, struct err *err)
{
	struct pci_bus *b = d->dev.bus->pci;
	int r;

	if (!b)
		return err_set(err, -ENODEV, "this machine has no PCI bus");
	if (d->bus_name && strcmp(d->bus_name, b->name) && strcmp(d->bus_name, "pci"))
		return err_set(err, -ENOENT, "there is no PCI bus \"%s\"; this machine has \"%s\"", d->bus_name,
			       b->name);
	r = pci_choose_devfn(b, d, err);
	if (r)
		return r;
	st16le(&d->config[PCI_VENDOR_ID], d->vendor);
	st16le(&d->config[PCI_DEVICE_ID], d->device);
	st16le(&d->config[PCI_SUBSYS_VENDOR], d->subsys_vendor);
	st16le(&d->config[PCI_SUBSYS_ID], d->subsys_id);
	d->config[PCI_REVISION] = d->revision;
	d->config[PCI_CLASS_PROG] = (uint8_t)d->class_code;
	st16le(&d->config[PCI_CLASS_PROG + 1], (uint16_t)(d->class_code >> 8));
	d->config[PCI_INTERRUPT_PIN] = d->intx_pin;
	if (d->multifunction)
		d->config[PCI_HEADER_TYPE] |= PCI_MULTIFUNCTION;
	st16le(&d->wmask[PCI_COMMAND], PCI_COMMAND_WRITABLE);
	st16le(&d->w1cmask[PCI_STATUS], PCI_STATUS_W1C);
	d->wmask[PCI_CACHE_LINE] = 0xff;
	d->wmask[PCI_INTERRUPT_LINE] = 0xff;
	d->pci = b;
	b->dev[d->devfn] = d;
	return 0;
}

void pci_unregister(struct pci_dev *d)
{
	if (d->pci) {
		pci_set_intx(d, 0);
		for (int i = 0; i < PCI_BAR_COUNT; i++)
			pci_bar_unmap(d, i);
		d->pci->dev[d->devfn] = NULL;
		d->pci = NULL;
	}
	pci_msix_fini(d);
}

void pci_reset_common(struct pci_dev *d)
{
	pci_set_intx(d, 0);
	st16le(&d->config[PCI_COMMAND], 0);
	pci_publish(d);
	st16le(&d->config[PCI_STATUS], ld16le(&d->config[PCI_STATUS]) & (uint16_t)~PCI_STATUS_W1C);
	d->config[PCI_CACHE_LINE] = 0;
	d->config[PCI_INTERRUPT_LINE] = 0;
	pci_update_bars(d); /* unmaps all: decoding is off */
	for (int i = 0; i < PCI_BAR_COUNT; i++) {
		if (d->bar[i].kind == PCI_BAR_NONE)
			continue;
		st32le(&d->config[pci_bar_reg(i)], pci_bar_type_bits(&d->bar[i]));
		if (d->bar[i].kind == PCI_BAR_MEM64)
			st32le(&d->config[pci_bar_reg(i) + 4], 0);
	}
	pci_msix_reset(d);
	pci_msi_reset(d);
}
