// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The NVMe controller as a PCI device: registers and doorbells (NVM Express 1.4, 3.1), reset and shutdown (7), MSI-X or
 * INTx. BAR 0 holds the registers, the doorbells at 1000h, the MSI-X table at 2000h.
 *
 * Locking: nvme.h.
 */
#include "hw/nvme/nvme.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum {
	REG_CAP = 0x00,
	REG_VS = 0x08,
	REG_INTMS = 0x0c,
	REG_INTMC = 0x10,
	REG_CC = 0x14,
	REG_CSTS = 0x1c,
	REG_AQA = 0x24,
	REG_ASQ = 0x28,
	REG_ACQ = 0x30,
	REG_DOORBELLS = 0x1000,
};

#define CC_EN	    BIT(0)
#define CSTS_RDY    BIT(0)
#define CSTS_CFS    BIT(1)
#define CSTS_SHST   0x0cu
#define CSTS_SHDONE 0x08u
#define CAP_LOW	    (0x0f000000u | BIT(16) | (NVME_MAX_ENTRIES - 1)) /* 7.5 s, contiguous queues */
#define CAP_HIGH    0x00400020u					     /* NVM command set, pages of 4 KiB to 64 KiB */
#define BAR_SIZE    0x4000
#define TABLE_OFF   0x2000
#define PBA_OFF	    0x3000
#define SERIAL_MAX  20

static struct nvme *nvme_of(struct dev *d)
{
	return container_of(d, struct nvme, pci.dev);
}

/* ---- enable, disable ------------------------------------------------------------------ */

void nvme_disabled(struct nvme *n)
{
	n->disabling = false;
	n->csts = 0;
	n->intms = 0;
	if (n->cc & CC_EN) { /* asked for again meanwhile: that was too early */
		n->cc &= ~(uint32_t)CC_EN;
		n->csts = CSTS_CFS;
	}
}

static void nvme_disable(struct nvme *n)
{
	nvme_queues_clear(n);
	nvme_irq_update(n);
	n->disabling = true;
	if (!n->inflight)
		nvme_disabled(n);
}

static void nvme_enable(struct nvme *n)
{
	const uint32_t sq = (n->aqa & 0xfff) + 1, cq = (n->aqa >> 16 & 0xfff) + 1, mps = n->cc >> 7 & 15;
	struct nvme_cq *c = &n->cq[0];

	n->page_bits = 12 + mps;
	if (n->disabling || mps > 4 || n->cc & 0x70 || sq < 2 || cq < 2 ||
	    (n->asq | n->acq) & (BIT(n->page_bits) - 1)) {
		n->csts = CSTS_CFS;
		return;
	}
	*c = (struct nvme_cq){.used = true, .interrupts = true, .base = n->acq, .size = cq, .phase = 1, .queues = 1};
	c->waiting_tail = &c->waiting;
	n->sq[0] = (struct nvme_sq){.used = true, .base = n->asq, .size = sq};
	n->csts = CSTS_RDY;
}

static void write_cc(struct nvme *n, uint32_t val)
{
	const uint32_t before = n->cc;

	n->cc = val;
	if (~before & val & CC_EN)
		nvme_enable(n);
	else if (before & ~val & CC_EN)
		nvme_disable(n);
	if (val >> 14 & 3) /* a shutdown: what was acknowledged is with the host, and flushes were the guest's */
		n->csts = (n->csts & ~CSTS_SHST) | CSTS_SHDONE;
	else if (before >> 14 & 3)
		n->csts &= ~CSTS_SHST;
}

/* ---- registers --------------------------------------------------------------------------- */

static uint32_t register_read(const struct nvme *n, uint64_t off)
{
	switch (off) {
	case REG_CAP: return CAP_LOW;
	case REG_CAP + 4: return CAP_HIGH;
	case REG_VS: return 0x00010400;
	case REG_INTMS:
	case REG_INTMC: return n->intms;
	case REG_CC: return n->cc;
	case REG_CSTS: return n->csts;
	case REG_AQA: return n->aqa;
	case REG_ASQ: return (uint32_t)n->asq;
	case REG_ASQ + 4: return (uint32_t)(n->asq >> 32);
	case REG_ACQ: return (uint32_t)n->acq;
	case REG_ACQ + 4: return (uint32_t)(n->acq >> 32);
	default: return 0;
	}
}

static void doorbell(struct nvme *n, uint64_t off, uint32_t val)
{
	const uint64_t index = (off - REG_DOORBELLS) / 4, q = index / 2;

	if (q > NVME_QUEUES || off % 4 || !(n->csts & CSTS_RDY) || n->disabling)
		return;
	if (index & 1) {
		struct nvme_cq *cq = &n->cq[q];

		if (!cq->used || val >= cq->size)
			return;
		cq->head = val;
		nvme_cq_drain(n, cq);
		nvme_irq_update(n);
	} else {
		struct nvme_sq *sq = &n->sq[q];

		if (!sq->used || val >= sq->size)
			return;
		sq->tail = val;
		nvme_kick(n);
	}
}

static void half(uint64_t *reg, unsigned shift, uint32_t val)
{
	*reg = (*reg & ~(0xffffffffull << shift)) | (uint64_t)val << shift;
}

static uint64_t nvme_read(void *opaque, uint64_t off, unsigned size)
{
	return register_read(opaque, off);
}

static void nvme_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct nvme *n = opaque;
	const uint32_t v = (uint32_t)val;

	if (size != 4)
		return;
	if (off >= REG_DOORBELLS) {
		doorbell(n, off, v);
		return;
	}
	switch (off) {
	case REG_INTMS:
	case REG_INTMC:
		n->intms = off == REG_INTMS ? n->intms | v : n->intms & ~v;
		nvme_irq_update(n);
		break;
	case REG_CC: write_cc(n, v); break;
	case REG_AQA: n->aqa = v & 0x0fff0fff; break;
	case REG_ASQ: half(&n->asq, 0, v & ~0xfffu); break;
	case REG_ASQ + 4: half(&n->asq, 32, v); break;
	case REG_ACQ: half(&n->acq, 0, v & ~0xfffu); break;
	case REG_ACQ + 4: half(&n->acq, 32, v); break;
	default: break;
	}
}

static const struct region_ops nvme_region_ops = {.read = nvme_read, .write = nvme_write, .min_size = 4, .max_size = 4};

/* ---- life ---------------------------------------------------------------------------------- */

static void nvme_reset(struct dev *d)
{
	struct nvme *n = nvme_of(d);

	pthread_mutex_lock(&d->lock);
	nvme_abandon(n);
	nvme_queues_clear(n);
	pci_reset_common(&n->pci);
	n->cc = n->csts = n->aqa = n->intms = 0;
	n->asq = n->acq = 0;
	n->disabling = false;
	n->wce = n->initial_wce;
	memset(n->features, 0, sizeof(n->features));
	pthread_mutex_unlock(&d->lock);
}

static int nvme_pause(struct dev *d)
{
	struct nvme *n = nvme_of(d);

	nvme_run(n);
	block_drain(n->drive->node);
	return 0;
}

static void nvme_resume(struct dev *d)
{
	nvme_resume_failed(nvme_of(d));
}

static void nvme_unrealize(struct dev *d)
{
	struct nvme *n = nvme_of(d);

	nvme_abandon(n);
	nvme_queues_clear(n);
	pci_unregister(&n->pci);
	free(n->saved);
	block_set_writeback(n->drive->node, n->drive_writeback);
	n->drive->claimed = false;
}

static int nvme_check(struct nvme *n, struct err *err)
{
	if (!n->drive)
		return err_set(err, -EINVAL, "drive property not set");
	if (!n->drive->node)
		return err_set(err, -EINVAL, "Device needs media, but drive '%s' is empty", n->drive->id);
	if (n->drive->claimed)
		return err_set(err, -EBUSY, "Drive '%s' is already in use by another device", n->drive->id);
	if (!n->serial && n->drive->serial)
		n->serial = strdup(n->drive->serial);
	if (!n->serial || !*n->serial || strlen(n->serial) > SERIAL_MAX)
		return err_set(err, -EINVAL, "serial property not set (1 to %d characters)", SERIAL_MAX);
	if (n->max_queues < 1 || n->max_queues > NVME_QUEUES)
		return err_set(err, -EINVAL, "max_ioqpairs=%u: must be 1 to %d", n->max_queues, NVME_QUEUES);
	if (n->logical_block_size > 4096)
		return err_set(err, -EINVAL, "logical_block_size must be at most 4096");
	return disk_check_block_sizes(n->logical_block_size, n->logical_block_size, err);
}

static int nvme_realize(struct dev *d, struct err *err)
{
	struct nvme *n = nvme_of(d);
	struct pci_dev *p = &n->pci;
	int r = nvme_check(n, err);

	if (r)
		return r;
	p->vendor = 0x1b36;
	p->device = 0x0010;
	p->subsys_vendor = 0x1af4;
	p->subsys_id = 0x1100;
	p->class_code = 0x010802;
	p->revision = 2;
	p->intx_pin = 1;
	pci_add_bar(p, 0, PCI_BAR_MEM64, false, "nvme", BAR_SIZE, &nvme_region_ops, n);
	r = pci_msix_init(p, (uint16_t)(n->max_queues + 1), 0, TABLE_OFF, PBA_OFF, err);
	if (!r)
		r = pci_register(p, err);
	if (r)
		return r;
	disk_errors_init(&n->errors, d->bus, n->drive);
	n->block_bits = (unsigned)__builtin_ctz(n->logical_block_size);
	n->blocks = block_size(n->drive->node) >> n->block_bits;
	n->drive->claimed = true;
	/* From here on the guest decides, write by write (BLOCK_FUA). */
	n->drive_writeback = n->initial_wce = n->wce = block_writeback(n->drive->node);
	block_set_writeback(n->drive->node, true);
	return 0;
}

#define AT(f) offsetof(struct nvme, f)
static const struct prop nvme_props[] = {
    {.name = "drive", .kind = PROP_LINK, .offset = AT(drive), .link_kind = "drive", .help = "-drive's id"},
    {.name = "serial", .kind = PROP_STR, .offset = AT(serial), .help = "1 to 20 characters; needed"},
    {.name = "max_ioqpairs", .kind = PROP_U32, .offset = AT(max_queues), .def = "64", .help = "queues of each kind"},
    {.name = "logical_block_size",
     .kind = PROP_U32,
     .offset = AT(logical_block_size),
     .def = "512",
     .help = "the smallest unit of a request, in bytes"},
    {.name = "bootindex", .kind = PROP_I64, .offset = AT(bootindex), .def = "-1", .help = "place in the boot order"},
    {0},
};

static const struct counter nvme_counters[] = {
    {"commands", AT(commands), "commands of the guest"},
    {"interrupts", AT(interrupts), "interrupts"},
    {"set_aside", AT(errors.set_aside), "failed requests that stopped the machine (werror, rerror)"},
    {0},
};

const struct dev_ops nvme_ops = {
    .type = {.name = "nvme",
	     .about = "NVMe disk",
	     .parent = "pci-device",
	     .size = sizeof(struct nvme),
	     .props = nvme_props},
    .bus_kind = DEV_BUS_PCI,
    .user_creatable = true,
    .realize = nvme_realize,
    .unrealize = nvme_unrealize,
    .reset = nvme_reset,
    .pause = nvme_pause,
    .resume = nvme_resume,
    .state = &nvme_state,
    .counters = nvme_counters,
};
