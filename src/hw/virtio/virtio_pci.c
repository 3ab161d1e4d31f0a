// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Virtio's PCI transport: VIRTIO 1.1, 4.1, with the legacy interface of 4.1.4.8.
 *
 *   BAR 0  I/O     legacy registers and device configuration (transitional devices)
 *   BAR 1  memory  MSI-X table and pending bits
 *   BAR 4  memory  common configuration, ISR, device configuration, notifications,
 *                  each on a page of its own; found through vendor capabilities
 *
 * Locking: registers are under dev.lock, as are interrupt() and transport_reset(),
 * which the core calls. Notifications of BAR 4 and virtio_pci_event run without.
 */
#include "hw/virtio/virtio_pci.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "io/iothread.h"

#define VIRTIO_PCI_VENDOR	    0x1af4
#define VIRTIO_PCI_DEVICE_MODERN(i) (0x1040 + (i))
#define VIRTIO_PCI_SUBSYS_MODERN    0x1100

#define BAR_LEGACY 0
#define BAR_MSIX   1
#define BAR_MODERN 4

/* BAR 1 */
#define MSIX_TABLE_OFF 0
#define MSIX_PBA_OFF   0x1000
#define MSIX_BAR_SIZE  0x2000

/* BAR 4 */
#define COMMON_OFF  0x0000
#define ISR_OFF	    0x1000
#define DEVICE_OFF  0x2000
#define NOTIFY_OFF  0x3000
#define NOTIFY_MULT 4u
#define MODERN_SIZE 0x4000

/* 4.1.4: vendor capabilities */
#define PCI_CAP_ID_VENDOR	  0x09
#define VIRTIO_PCI_CAP_COMMON_CFG 1
#define VIRTIO_PCI_CAP_NOTIFY_CFG 2
#define VIRTIO_PCI_CAP_ISR_CFG	  3
#define VIRTIO_PCI_CAP_DEVICE_CFG 4
#define VIRTIO_PCI_CAP_PCI_CFG	  5

/* 4.1.4.3: common configuration */
enum {
	COMMON_DFSELECT = 0x00,
	COMMON_DF = 0x04,
	COMMON_GFSELECT = 0x08,
	COMMON_GF = 0x0c,
	COMMON_MSIX = 0x10,
	COMMON_NUMQ = 0x12,
	COMMON_STATUS = 0x14,
	COMMON_CFGGENERATION = 0x15,
	COMMON_Q_SELECT = 0x16,
	COMMON_Q_SIZE = 0x18,
	COMMON_Q_MSIX = 0x1a,
	COMMON_Q_ENABLE = 0x1c,
	COMMON_Q_NOFF = 0x1e,
	COMMON_Q_DESCLO = 0x20,
	COMMON_Q_DESCHI = 0x24,
	COMMON_Q_AVAILLO = 0x28,
	COMMON_Q_AVAILHI = 0x2c,
	COMMON_Q_USEDLO = 0x30,
	COMMON_Q_USEDHI = 0x34,
	COMMON_SIZE = 0x38,
};

/* 4.1.4.8: legacy registers */
enum {
	LEGACY_HOST_FEATURES = 0,
	LEGACY_GUEST_FEATURES = 4,
	LEGACY_QUEUE_PFN = 8,
	LEGACY_QUEUE_NUM = 12,
	LEGACY_QUEUE_SEL = 14,
	LEGACY_QUEUE_NOTIFY = 16,
	LEGACY_STATUS = 18,
	LEGACY_ISR = 19,
	LEGACY_CONFIG_VECTOR = 20, /* these two only while MSI-X is enabled */
	LEGACY_QUEUE_VECTOR = 22,
};
#define LEGACY_PAGE 4096ull

#define ISR_QUEUE  1
#define ISR_CONFIG 2

static struct virtio_pci *pci_of(struct virtio *v)
{
	return container_of(v, struct virtio_pci, vio);
}

static struct virtio_queue *selected(struct virtio_pci *p)
{
	return p->queue_select < p->vio.nqueues ? &p->vio.queue[p->queue_select] : NULL;
}

/* ---- interrupts --------------------------------------------------------------- */

static void vector_signal(struct virtio_pci *p, uint16_t vector)
{
	if (vector >= p->pci.msix_n)
		return;
	if (p->irqfd[vector].handle >= 0) {
		loop_signal(p->vio.loop, p->irqfd[vector].fd);
		counter_add(&p->vio.stats.irqfds, 1);
		return;
	}
	pci_msix_notify(&p->pci, vector);
}

static void virtio_pci_interrupt(struct virtio *v, struct virtio_queue *q)
{
	struct virtio_pci *p = pci_of(v);

	if (pci_msix_active(&p->pci)) {
		vector_signal(p, q ? q->vector : p->config_vector);
		return;
	}
	p->isr |= q ? ISR_QUEUE : ISR_CONFIG | ISR_QUEUE;
	pci_set_intx(&p->pci, 1);
}

static uint8_t isr_read(struct virtio_pci *p)
{
	const uint8_t isr = p->isr;

	p->isr = 0;
	pci_set_intx(&p->pci, 0);
	return isr;
}

/* The message or mask of a vector changed: keep its irqfd in step. */
static void virtio_pci_msix_changed(struct pci_dev *d, unsigned vector)
{
	struct virtio_pci *p = container_of(d, struct virtio_pci, pci);
	struct virtio_irqfd *i = &p->irqfd[vector];
	const struct msi_ops *msi = d->dev.bus->msi;
	void *opaque = d->dev.bus->msi_opaque;
	const struct pci_msix_entry *e = &d->msix[vector];

	if (!msi || !msi->bind || !p->ioeventfd)
		return;
	if (pci_msix_masked(d, vector) || !pci_bus_master(d)) {
		if (i->handle >= 0)
			msi->unbind(opaque, i->handle, i->fd);
		i->handle = -1;
		return;
	}
	if (i->handle >= 0) {
		if (msi->rebind(opaque, i->handle, e->addr, e->data) == 0)
			return;
		msi->unbind(opaque, i->handle, i->fd);
		i->handle = -1;
	}
	if (i->fd < 0)
		i->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (i->fd >= 0)
		i->handle = msi->bind(opaque, i->fd, e->addr, e->data);
}

/* ---- notifications --------------------------------------------------------------- */

/* The kernel saw a notification: loop's thread, no lock. */
static void virtio_pci_event(void *opaque, unsigned events)
{
	struct virtio_queue *q = opaque;
	struct virtio *v = q->v;
	bool paused;

	virtio_lock(v);
	counter_add(&v->stats.ioeventfds, 1);
	paused = v->paused; /* resume kicks every queue */
	virtio_unlock(v);
	if (!paused)
		q->handle(v, q);
}

/* Doorbells exist while the driver runs: the engine then rings without leaving the kernel. */
static void bells_on(struct virtio_pci *p)
{
	for (unsigned i = 0; i < p->vio.nqueues; i++) {
		struct virtio_queue *q = &p->vio.queue[i];
		if (q->event_fd < 0 || q->bell_on || !q->vq.enabled)
			continue;
		if (p->modern) {
			q->bell =
			    (struct region_doorbell){.off = NOTIFY_OFF + i * NOTIFY_MULT, .size = 2, .fd = q->event_fd};
			if (pci_doorbell_add(&p->pci, BAR_MODERN, &q->bell))
				continue;
		}
		if (p->legacy) {
			q->legacy_bell = (struct region_doorbell){
			    .off = LEGACY_QUEUE_NOTIFY, .size = 2, .match = true, .value = i, .fd = q->event_fd};
			if (pci_doorbell_add(&p->pci, BAR_LEGACY, &q->legacy_bell)) {
				if (p->modern)
					pci_doorbell_del(&p->pci, BAR_MODERN, &q->bell);
				continue;
			}
		}
		q->bell_on = true;
	}
}

static void bells_off(struct virtio_pci *p)
{
	for (unsigned i = 0; i < p->vio.nqueues; i++) {
		struct virtio_queue *q = &p->vio.queue[i];
		if (!q->bell_on)
			continue;
		if (p->modern)
			pci_doorbell_del(&p->pci, BAR_MODERN, &q->bell);
		if (p->legacy)
			pci_doorbell_del(&p->pci, BAR_LEGACY, &q->legacy_bell);
		q->bell_on = false;
	}
}

static void write_status(struct virtio_pci *p, uint8_t status)
{
	virtio_write_status(&p->vio, status);
	if (p->vio.status & VIRTIO_STATUS_DRIVER_OK)
		bells_on(p);
}

void virtio_pci_restored(struct virtio_pci *p)
{
	if (p->vio.status & VIRTIO_STATUS_DRIVER_OK)
		bells_on(p);
}

static void virtio_pci_transport_reset(struct virtio *v)
{
	struct virtio_pci *p = pci_of(v);

	bells_off(p);
	p->feature_select = p->guest_feature_select = 0;
	p->queue_select = 0;
	p->config_vector = VIRTIO_NO_VECTOR;
	for (unsigned i = 0; i < v->nqueues; i++)
		v->queue[i].vector = VIRTIO_NO_VECTOR;
	p->isr = 0;
	pci_set_intx(&p->pci, 0);
}

/* ---- modern registers --------------------------------------------------------------- */

static uint16_t valid_vector(const struct virtio_pci *p, uint32_t vector)
{
	return vector < p->pci.msix_n ? (uint16_t)vector : VIRTIO_NO_VECTOR;
}

/* The common configuration as it reads now. */
static void common_image(struct virtio_pci *p, uint8_t *b)
{
	struct virtio *v = &p->vio;
	const struct virtio_queue *q = selected(p);

	memset(b, 0, COMMON_SIZE);
	st32le(b + COMMON_DFSELECT, p->feature_select);
	if (p->feature_select < 2)
		st32le(b + COMMON_DF, (uint32_t)(v->host_features >> (32 * p->feature_select)));
	st32le(b + COMMON_GFSELECT, p->guest_feature_select);
	if (p->guest_feature_select < 2)
		st32le(b + COMMON_GF, (uint32_t)(v->guest_features >> (32 * p->guest_feature_select)));
	st16le(b + COMMON_MSIX, p->config_vector);
	st16le(b + COMMON_NUMQ, (uint16_t)v->nqueues);
	b[COMMON_STATUS] = virtio_read_status(v);
	b[COMMON_CFGGENERATION] = v->config_generation;
	st16le(b + COMMON_Q_SELECT, p->queue_select);
	if (!q) {
		st16le(b + COMMON_Q_MSIX, VIRTIO_NO_VECTOR);
		return; /* size 0: there is no such queue */
	}
	st16le(b + COMMON_Q_SIZE, q->vq.num);
	st16le(b + COMMON_Q_MSIX, q->vector);
	st16le(b + COMMON_Q_ENABLE, q->vq.enabled);
	st16le(b + COMMON_Q_NOFF, (uint16_t)q->index);
	st64le(b + COMMON_Q_DESCLO, q->vq.desc_gpa);
	st64le(b + COMMON_Q_AVAILLO, q->vq.avail_gpa);
	st64le(b + COMMON_Q_USEDLO, q->vq.used_gpa);
}

static uint64_t image_read(const uint8_t *b, uint64_t size_of_image, uint64_t off, unsigned size)
{
	uint64_t val = 0;

	for (unsigned i = 0; i < size && off + i < size_of_image; i++)
		val |= (uint64_t)b[off + i] << (8 * i);
	return val;
}

static void set_half(uint64_t *reg, bool high, uint32_t val)
{
	*reg = high ? (*reg & UINT32_MAX) | (uint64_t)val << 32 : (*reg & ~(uint64_t)UINT32_MAX) | val;
}

static void set_guest_features(struct virtio_pci *p, uint32_t val)
{
	struct virtio *v = &p->vio;

	if ((v->status & VIRTIO_STATUS_FEATURES_OK) || p->guest_feature_select > 1)
		return;
	set_half(&v->guest_features, p->guest_feature_select == 1, val);
}

static void set_queue_size(struct virtio_queue *q, uint32_t val)
{
	if (val && val <= q->max && (!(val & (val - 1)) || virtio_has(q->v, VIRTIO_F_RING_PACKED)))
		q->vq.num = (uint16_t)val;
}

/* Registers of the selected queue; its addresses and size are fixed once it is enabled. */
static void common_queue_write(struct virtio_pci *p, struct virtio_queue *q, uint64_t off, uint32_t val)
{
	if (off == COMMON_Q_MSIX) {
		q->vector = valid_vector(p, val);
		return;
	}
	if (q->vq.enabled)
		return;
	switch (off) {
	case COMMON_Q_SIZE: set_queue_size(q, val); break;
	case COMMON_Q_ENABLE:
		if (val == 1)
			virtio_queue_enable(&p->vio, q);
		break;
	case COMMON_Q_DESCLO:
	case COMMON_Q_DESCHI: set_half(&q->vq.desc_gpa, off == COMMON_Q_DESCHI, val); break;
	case COMMON_Q_AVAILLO:
	case COMMON_Q_AVAILHI: set_half(&q->vq.avail_gpa, off == COMMON_Q_AVAILHI, val); break;
	case COMMON_Q_USEDLO:
	case COMMON_Q_USEDHI: set_half(&q->vq.used_gpa, off == COMMON_Q_USEDHI, val); break;
	}
}

/* The width of each writable register: other widths are ignored, as the driver must not use them. */
static unsigned common_width(uint64_t off)
{
	switch (off) {
	case COMMON_STATUS: return 1;
	case COMMON_MSIX:
	case COMMON_Q_SELECT:
	case COMMON_Q_SIZE:
	case COMMON_Q_MSIX:
	case COMMON_Q_ENABLE: return 2;
	case COMMON_DFSELECT:
	case COMMON_GFSELECT:
	case COMMON_GF: return 4;
	default: return off >= COMMON_Q_DESCLO && off < COMMON_SIZE && off % 4 == 0 ? 4 : 0;
	}
}

static void common_write(struct virtio_pci *p, uint64_t off, uint32_t val, unsigned size)
{
	if (common_width(off) != size)
		return;
	switch (off) {
	case COMMON_DFSELECT: p->feature_select = val; break;
	case COMMON_GFSELECT: p->guest_feature_select = val; break;
	case COMMON_GF: set_guest_features(p, val); break;
	case COMMON_MSIX: p->config_vector = valid_vector(p, val); break;
	case COMMON_STATUS: write_status(p, (uint8_t)val); break;
	case COMMON_Q_SELECT: p->queue_select = (uint16_t)val; break;
	default:
		if (selected(p))
			common_queue_write(p, selected(p), off, val);
		break;
	}
}

static uint64_t device_config_read(struct virtio *v, uint64_t off, unsigned size)
{
	return image_read(v->config, v->config_len, off, size);
}

static void device_config_write(struct virtio *v, uint64_t off, uint32_t val, unsigned size)
{
	if (v->ops->config_write && off < v->config_len && size <= v->config_len - off)
		v->ops->config_write(v, (unsigned)off, size, val);
}

/* Both with dev.lock held. */
static uint64_t modern_read_locked(struct virtio_pci *p, uint64_t off, unsigned size)
{
	uint8_t image[COMMON_SIZE];

	switch (off & ~0xfffull) {
	case COMMON_OFF:
		if (off >= COMMON_SIZE)
			return 0;
		common_image(p, image);
		return image_read(image, COMMON_SIZE, off, size);
	case ISR_OFF: return off == ISR_OFF ? isr_read(p) : 0;
	case DEVICE_OFF: return device_config_read(&p->vio, off - DEVICE_OFF, size);
	default: return 0;
	}
}

static void modern_write_locked(struct virtio_pci *p, uint64_t off, uint64_t val, unsigned size)
{
	switch (off & ~0xfffull) {
	case COMMON_OFF: common_write(p, off, (uint32_t)val, size); break;
	case DEVICE_OFF: device_config_write(&p->vio, off - DEVICE_OFF, (uint32_t)val, size); break;
	case NOTIFY_OFF: virtio_notified(&p->vio, (unsigned)((off - NOTIFY_OFF) / NOTIFY_MULT)); break;
	}
}

static uint64_t modern_read(void *opaque, uint64_t off, unsigned size)
{
	struct virtio_pci *p = opaque;
	uint64_t val;

	virtio_lock(&p->vio);
	val = modern_read_locked(p, off, size);
	virtio_unlock(&p->vio);
	return val;
}

static void modern_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct virtio_pci *p = opaque;

	if (off >= NOTIFY_OFF) {
		virtio_notified(&p->vio, (unsigned)((off - NOTIFY_OFF) / NOTIFY_MULT));
		return;
	}
	virtio_lock(&p->vio);
	modern_write_locked(p, off, val, size);
	virtio_unlock(&p->vio);
}

static const struct region_ops modern_ops = {.read = modern_read, .write = modern_write, .min_size = 1, .max_size = 4};

/* ---- legacy registers --------------------------------------------------------------- */

static unsigned legacy_config_off(const struct virtio_pci *p)
{
	return pci_msix_active(&p->pci) ? 24 : 20;
}

static uint64_t legacy_reg_read(struct virtio_pci *p, uint64_t off)
{
	struct virtio *v = &p->vio;
	const struct virtio_queue *q = selected(p);

	switch (off) {
	case LEGACY_HOST_FEATURES: return (uint32_t)v->host_features;
	case LEGACY_GUEST_FEATURES: return (uint32_t)v->guest_features;
	case LEGACY_QUEUE_PFN: return q ? (uint32_t)(q->vq.desc_gpa / LEGACY_PAGE) : 0;
	case LEGACY_QUEUE_NUM: return q ? q->max : 0;
	case LEGACY_QUEUE_SEL: return p->queue_select;
	case LEGACY_STATUS: return virtio_read_status(v);
	case LEGACY_ISR: return isr_read(p);
	case LEGACY_CONFIG_VECTOR: return p->config_vector;
	case LEGACY_QUEUE_VECTOR: return q ? q->vector : VIRTIO_NO_VECTOR;
	default: return 0;
	}
}

static uint64_t legacy_read(void *opaque, uint64_t off, unsigned size)
{
	struct virtio_pci *p = opaque;
	const unsigned config = legacy_config_off(p);

	return off >= config ? device_config_read(&p->vio, off - config, size) : legacy_reg_read(p, off);
}

/* The whole layout of a legacy queue follows from its page (2.6.2). */
static void legacy_set_pfn(struct virtio_pci *p, uint32_t pfn)
{
	struct virtio_queue *q = selected(p);
	uint64_t num;

	if (pfn == 0) { /* the driver's way to give a queue back */
		if (q) {
			virtq_stop(&q->vq);
			q->vq.enabled = false;
			q->vq.desc_gpa = 0;
		}
		return;
	}
	if (!q || q->vq.enabled)
		return;
	p->vio.legacy_driver = true;
	num = q->vq.num = q->max;
	q->vq.desc_gpa = (uint64_t)pfn * LEGACY_PAGE;
	q->vq.avail_gpa = q->vq.desc_gpa + 16 * num;
	q->vq.used_gpa = ALIGN_UP(q->vq.avail_gpa + 4 + 2 * num, LEGACY_PAGE);
	virtio_queue_enable(&p->vio, q);
}

static void legacy_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct virtio_pci *p = opaque;
	struct virtio *v = &p->vio;
	const unsigned config = legacy_config_off(p);
	struct virtio_queue *q = selected(p);

	if (off >= config) {
		device_config_write(v, off - config, (uint32_t)val, size);
		return;
	}
	switch (off) {
	case LEGACY_GUEST_FEATURES:
		v->legacy_driver = true;
		virtio_set_legacy_features(v, (uint32_t)val);
		break;
	case LEGACY_QUEUE_PFN: legacy_set_pfn(p, (uint32_t)val); break;
	case LEGACY_QUEUE_SEL: p->queue_select = (uint16_t)val; break;
	case LEGACY_QUEUE_NOTIFY: virtio_notified(v, (uint16_t)val); break;
	case LEGACY_STATUS:
		if (val)
			v->legacy_driver = true;
		write_status(p, (uint8_t)val);
		break;
	case LEGACY_CONFIG_VECTOR: p->config_vector = valid_vector(p, (uint32_t)val); break;
	case LEGACY_QUEUE_VECTOR:
		if (q)
			q->vector = valid_vector(p, (uint32_t)val);
		break;
	}
}

static const struct region_ops legacy_ops = {.read = legacy_read, .write = legacy_write, .min_size = 1, .max_size = 4};

/* ---- capabilities --------------------------------------------------------------- */

static uint8_t add_vendor_cap(struct virtio_pci *p, uint8_t type, uint32_t off, uint32_t len, uint8_t size)
{
	const uint8_t at = pci_add_cap(&p->pci, PCI_CAP_ID_VENDOR, size);
	uint8_t *c = &p->pci.config[at];

	c[2] = size;
	c[3] = type;
	c[4] = type == VIRTIO_PCI_CAP_PCI_CFG ? 0 : BAR_MODERN;
	st32le(c + 8, off);
	st32le(c + 12, len);
	return at;
}

/* 4.1.4.7: a window onto a BAR through the configuration space. */
static bool cfg_window(struct virtio_pci *p, unsigned off, unsigned len, uint32_t *at, unsigned *size)
{
	const uint8_t *c = &p->pci.config[p->cfg_cap];

	*at = ld32le(c + 8);
	*size = ld32le(c + 12);
	return p->cfg_cap && off <= p->cfg_cap + 16u && off + len > p->cfg_cap + 16u && c[4] == BAR_MODERN &&
	       (*size == 1 || *size == 2 || *size == 4) && *at % *size == 0 && *at <= MODERN_SIZE - *size;
}

static uint32_t virtio_pci_config_read(struct pci_dev *d, unsigned off, unsigned len, uint32_t val)
{
	struct virtio_pci *p = container_of(d, struct virtio_pci, pci);
	uint32_t at;
	unsigned size;

	if (off != p->cfg_cap + 16u || !cfg_window(p, off, len, &at, &size))
		return val;
	return (uint32_t)modern_read_locked(p, at, size);
}

static void virtio_pci_config_written(struct pci_dev *d, unsigned off, unsigned len)
{
	struct virtio_pci *p = container_of(d, struct virtio_pci, pci);
	uint32_t at;
	unsigned size;

	/* Bus mastering decides whether messages may be sent at all: look at the irqfds again. */
	if (off <= 4 && off + len > 4)
		for (unsigned i = 0; i < d->msix_n; i++)
			virtio_pci_msix_changed(d, i);
	if (cfg_window(p, off, len, &at, &size))
		modern_write_locked(p, at, ld32le(&d->config[p->cfg_cap + 16]) & (uint32_t)(BIT(8 * size) - 1), size);
}

static void add_capabilities(struct virtio_pci *p)
{
	struct virtio *v = &p->vio;
	uint8_t at;

	add_vendor_cap(p, VIRTIO_PCI_CAP_COMMON_CFG, COMMON_OFF, COMMON_SIZE, 16);
	add_vendor_cap(p, VIRTIO_PCI_CAP_ISR_CFG, ISR_OFF, 1, 16);
	if (v->config_len)
		add_vendor_cap(p, VIRTIO_PCI_CAP_DEVICE_CFG, DEVICE_OFF, v->config_len, 16);
	at = add_vendor_cap(p, VIRTIO_PCI_CAP_NOTIFY_CFG, NOTIFY_OFF, v->nqueues * NOTIFY_MULT, 20);
	st32le(&p->pci.config[at + 16], NOTIFY_MULT);
	at = add_vendor_cap(p, VIRTIO_PCI_CAP_PCI_CFG, 0, 0, 20);
	p->cfg_cap = at;
	p->pci.wmask[at + 4] = 0xff;
	memset(&p->pci.wmask[at + 8], 0xff, 12);
}

/* ---- life cycle --------------------------------------------------------------- */

/* The old numbering of transitional devices (4.1.2.3). */
static uint16_t transitional_device_id(uint16_t id)
{
	static const struct {
		uint16_t id, device;
	} table[] = {{1, 0x1000},
		     {VIRTIO_ID_BLOCK, 0x1001},
		     {VIRTIO_ID_BALLOON, 0x1002},
		     {VIRTIO_ID_CONSOLE, 0x1003},
		     {VIRTIO_ID_SCSI, 0x1004},
		     {VIRTIO_ID_ENTROPY, 0x1005}};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].id == id)
			return table[i].device;
	return 0;
}

static void identify(struct virtio_pci *p)
{
	struct pci_dev *d = &p->pci;
	const uint16_t id = p->vio.ops->id;

	d->vendor = d->subsys_vendor = VIRTIO_PCI_VENDOR;
	d->class_code = p->vio.ops->class_code;
	d->intx_pin = 1;
	d->device = p->legacy ? transitional_device_id(id) : VIRTIO_PCI_DEVICE_MODERN(id);
	d->revision = p->legacy ? 0 : 1;
	d->subsys_id = p->legacy ? id : VIRTIO_PCI_SUBSYS_MODERN;
	d->msix_changed = virtio_pci_msix_changed;
	d->config_read_hook = virtio_pci_config_read;
	d->config_written = virtio_pci_config_written;
}

static int choose_interfaces(struct virtio_pci *p, struct err *err)
{
	p->legacy = p->disable_legacy != OOA_ON && transitional_device_id(p->vio.ops->id);
	p->modern = !p->disable_modern;
	if (!p->legacy && !p->modern)
		return err_set(err, -EINVAL, "disable-legacy and disable-modern leave no interface");
	if (!p->modern)
		p->vio.host_features &= ~BIT(VIRTIO_F_VERSION_1);
	if ((p->packed || p->in_order) && !p->modern)
		return err_set(err, -EINVAL, "packed=on and in_order=on need the modern interface");
	if (p->in_order && p->answers_at_once)
		return err_set(err, -ENOTSUP, "in_order=on is not possible: task management overtakes commands");
	if (p->packed)
		p->vio.host_features |= BIT(VIRTIO_F_RING_PACKED);
	if (p->in_order)
		p->vio.host_features |= BIT(VIRTIO_F_IN_ORDER);
	if (p->event_idx)
		p->vio.host_features |= BIT(VIRTIO_RING_F_EVENT_IDX);
	if (p->indirect_desc)
		p->vio.host_features |= BIT(VIRTIO_RING_F_INDIRECT_DESC);
	return 0;
}

static int add_msix(struct virtio_pci *p, struct err *err)
{
	unsigned n = p->vectors == VIRTIO_PCI_VECTORS_AUTO ? p->vio.nqueues + 1 : p->vectors;

	n = MIN(n, (unsigned)PCI_MSIX_MAX);
	if (n == 0)
		return 0;
	p->irqfd = malloc(n * sizeof(*p->irqfd));
	if (!p->irqfd)
		return err_set(err, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < n; i++)
		p->irqfd[i] = (struct virtio_irqfd){-1, -1};
	pci_add_bar(&p->pci, BAR_MSIX, PCI_BAR_MEM32, false, "virtio-msix", MSIX_BAR_SIZE, NULL, NULL);
	return pci_msix_init(&p->pci, (uint16_t)n, BAR_MSIX, MSIX_TABLE_OFF, MSIX_PBA_OFF, err);
}

/* Loop's thread: one eventfd per queue; on failure the rest stays without, and takes the register. */
static void watch_event_fds(void *arg)
{
	struct virtio *v = arg;

	for (unsigned i = 0; i < v->nqueues; i++) {
		struct virtio_queue *q = &v->queue[i];

		q->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (q->event_fd >= 0 && loop_watch(v->loop, q->event_fd, LOOP_READ | LOOP_EDGE, virtio_pci_event, q)) {
			close(q->event_fd);
			q->event_fd = -1;
		}
	}
}

static void unwatch_event_fds(void *arg)
{
	struct virtio *v = arg;

	for (unsigned i = 0; i < v->nqueues; i++) {
		if (v->queue[i].event_fd < 0)
			continue;
		loop_unwatch(v->loop, v->queue[i].event_fd);
		close(v->queue[i].event_fd);
		v->queue[i].event_fd = -1;
	}
	loop_settle_signals(v->loop); /* irqfds are closed next */
}

static uint64_t power_of_two(uint64_t n)
{
	uint64_t size = 1;

	while (size < n)
		size <<= 1;
	return size;
}

int virtio_pci_realize(struct virtio_pci *p, struct err *err)
{
	struct virtio *v = &p->vio;
	int ret;

	v->interrupt = virtio_pci_interrupt;
	v->transport_reset = virtio_pci_transport_reset;
	p->config_vector = VIRTIO_NO_VECTOR;
	ret = choose_interfaces(p, err);
	if (ret)
		return ret;
	identify(p);
	if (p->legacy)
		pci_add_bar(&p->pci, BAR_LEGACY, PCI_BAR_IO, false, "virtio-legacy", power_of_two(24 + v->config_len),
			    &legacy_ops, p);
	ret = add_msix(p, err);
	if (ret)
		return ret;
	if (p->modern) {
		pci_add_bar(&p->pci, BAR_MODERN, PCI_BAR_MEM64, true, "virtio-modern", MODERN_SIZE, &modern_ops, p);
		p->pci.bar[BAR_MODERN].region.lock = NULL; /* modern_write takes it where it is needed */
		add_capabilities(p);
	}
	if (p->ioeventfd && !p->no_doorbells && v->dev->bus->doorbell)
		iothread_call(v->loop, watch_event_fds, v);
	return pci_register(&p->pci, err);
}

void virtio_pci_unrealize(struct virtio_pci *p)
{
	struct virtio *v = &p->vio;
	struct pci_dev *d = &p->pci;

	if (v->queue) {
		virtio_pause(v);
		virtio_lock(v);
		bells_off(p);
		virtio_unlock(v);
		iothread_call(v->loop, unwatch_event_fds, v);
	}
	for (unsigned i = 0; p->irqfd && i < d->msix_n; i++) {
		if (p->irqfd[i].handle >= 0)
			d->dev.bus->msi->unbind(d->dev.bus->msi_opaque, p->irqfd[i].handle, p->irqfd[i].fd);
		if (p->irqfd[i].fd >= 0)
			close(p->irqfd[i].fd);
	}
	pci_unregister(d);
	free(p->irqfd);
	p->irqfd = NULL;
	virtio_fini(v);
}

void virtio_pci_reset(struct dev *d)
{
	struct virtio_pci *p = container_of(d, struct virtio_pci, pci.dev);

	virtio_machine_reset(&p->vio);
	pthread_mutex_lock(&d->lock);
	pci_reset_common(&p->pci);
	pthread_mutex_unlock(&d->lock);
}

int virtio_pci_pause(struct dev *d)
{
	return virtio_pause(&container_of(d, struct virtio_pci, pci.dev)->vio);
}

void virtio_pci_resume(struct dev *d)
{
	virtio_resume(&container_of(d, struct virtio_pci, pci.dev)->vio);
}

static const struct prop virtio_pci_props[] = {
    {.name = "disable-legacy",
     .kind = PROP_ONOFFAUTO,
     .offset = offsetof(struct virtio_pci, disable_legacy),
     .def = "auto",
     .help = "on: only the modern interface (VIRTIO 1.x)"},
    {.name = "disable-modern",
     .kind = PROP_BOOL,
     .offset = offsetof(struct virtio_pci, disable_modern),
     .def = "off",
     .help = "only the legacy interface"},
    {.name = "vectors",
     .kind = PROP_U32,
     .offset = offsetof(struct virtio_pci, vectors),
     .def = "4294967295",
     .help = "MSI-X vectors; 0: none; default one per queue and one more"},
    {.name = "ioeventfd",
     .kind = PROP_BOOL,
     .offset = offsetof(struct virtio_pci, ioeventfd),
     .def = "on",
     .help = "let the kernel deliver notifications and interrupts where it can"},
    {.name = "event_idx",
     .kind = PROP_BOOL,
     .offset = offsetof(struct virtio_pci, event_idx),
     .def = "on",
     .help = "offer VIRTIO_RING_F_EVENT_IDX"},
    {.name = "indirect_desc",
     .kind = PROP_BOOL,
     .offset = offsetof(struct virtio_pci, indirect_desc),
     .def = "on",
     .help = "offer VIRTIO_RING_F_INDIRECT_DESC"},
    {.name = "packed",
     .kind = PROP_BOOL,
     .offset = offsetof(struct virtio_pci, packed),
     .def = "off",
     .help = "offer packed rings (VIRTIO 1.1, 2.7)"},
    {.name = "in_order",
     .kind = PROP_BOOL,
     .offset = offsetof(struct virtio_pci, in_order),
     .def = "off",
     .help = "return buffers in the order they were offered"},
    {0},
};

const struct dev_ops virtio_pci_base_ops = {
    .type = {.name = "virtio-pci",
	     .about = "any virtio device on PCI",
	     .parent = "pci-device",
	     .abstract = true,
	     .size = sizeof(struct virtio_pci),
	     .props = virtio_pci_props},
    .bus_kind = DEV_BUS_PCI,
};
