// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The virtio block device: VIRTIO 1.1, 5.2 (and its legacy form). Guest pages go
 * straight to the block layer's vectored I/O; nothing is copied but headers.
 *
 * Locking: dev.lock guards the queues and `wce`; requests are parsed under it and
 * submitted without it, all of a notification in one batch.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/iov.h"
#include "base/util.h"
#include "block/block.h"
#include "hw/disk.h"
#include "hw/virtio/devices.h"
#include "hw/virtio/virtio_pci.h"
#include "io/iothread.h"

/* 5.2.3: feature bits */
#define VIRTIO_BLK_F_SEG_MAX	  2
#define VIRTIO_BLK_F_RO		  5
#define VIRTIO_BLK_F_BLK_SIZE	  6
#define VIRTIO_BLK_F_FLUSH	  9
#define VIRTIO_BLK_F_TOPOLOGY	  10
#define VIRTIO_BLK_F_CONFIG_WCE	  11
#define VIRTIO_BLK_F_MQ		  12
#define VIRTIO_BLK_F_DISCARD	  13
#define VIRTIO_BLK_F_WRITE_ZEROES 14

/* 5.2.4: offsets in the configuration */
enum {
	CFG_CAPACITY = 0,
	CFG_SEG_MAX = 12,
	CFG_BLK_SIZE = 20,
	CFG_PHYSICAL_BLOCK_EXP = 24,
	CFG_MIN_IO_SIZE = 26,
	CFG_OPT_IO_SIZE = 28,
	CFG_WRITEBACK = 32,
	CFG_NUM_QUEUES = 34,
	CFG_MAX_DISCARD_SECTORS = 36,
	CFG_MAX_DISCARD_SEG = 40,
	CFG_DISCARD_ALIGNMENT = 44,
	CFG_MAX_WRITE_ZEROES_SECTORS = 48,
	CFG_MAX_WRITE_ZEROES_SEG = 52,
	CFG_WRITE_ZEROES_MAY_UNMAP = 56,
	CFG_SIZE = 60,
};

/* 5.2.6 */
#define VIRTIO_BLK_T_IN		  0
#define VIRTIO_BLK_T_OUT	  1
#define VIRTIO_BLK_T_FLUSH	  4
#define VIRTIO_BLK_T_GET_ID	  8
#define VIRTIO_BLK_T_DISCARD	  11
#define VIRTIO_BLK_T_WRITE_ZEROES 13
#define VIRTIO_BLK_T_BARRIER	  0x80000000u /* legacy; requests are ordered by the driver's flushes */

#define VIRTIO_BLK_S_OK	    0
#define VIRTIO_BLK_S_IOERR  1
#define VIRTIO_BLK_S_UNSUPP 2

#define VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP 1u

#define SECTOR	    512ull
#define ID_LEN	    20
#define HEADER_LEN  16
#define RANGE_LEN   16
#define MAX_SECTORS (INT32_MAX / 512u) /* of one discard or write zeroes */

struct virtio_blk {
	struct virtio_pci t;
	struct drive *drive;
	struct block_node *node;
	struct object *iothread; /* or NULL: the main loop */
	char *serial;
	uint32_t num_queues; /* 0: one per vCPU */
	uint16_t queue_size;
	uint32_t logical_block_size, physical_block_size, min_io_size, opt_io_size;
	bool config_wce, discard, write_zeroes;
	int write_cache; /* enum onoffauto; auto: as the drive's cache= says */
	bool drive_writeback, initial_wce;
	bool wce; /* dev.lock: the guest's write cache is on */
	struct disk_errors errors;
	uint64_t batches; /* counter */
};

struct blk_req {
	struct virtio_req r;
	struct block_req b;
	struct virtio_blk *blk;
	struct disk_failed failed;
	uint8_t *status; /* in guest memory */
	uint64_t in_len;
	bool done; /* ended without the block layer */
	struct iovec *last_in;
	struct iovec iov[];
};

static struct virtio_blk *blk_of(struct virtio *v)
{
	return container_of(v, struct virtio_blk, t.vio);
}

/* ---- one request --------------------------------------------------------------- */

static void blk_release(struct virtio_req *r)
{
	free(container_of(r, struct blk_req, r));
}

static void blk_finish(struct blk_req *req, uint8_t status)
{
	*req->status = status;
	req->last_in->iov_len++; /* the status byte belongs to the chain again */
	virtio_complete(&req->blk->t.vio, &req->r, (uint32_t)MIN(req->in_len, (uint64_t)UINT32_MAX));
}

static void blk_block_done(struct block_req *b)
{
	struct blk_req *req = container_of(b, struct blk_req, b);
	const enum disk_verdict verdict = disk_error(&req->blk->errors, &req->failed, b->op, b->result);

	if (verdict != DISK_ASIDE)
		blk_finish(req, verdict == DISK_OK ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR);
}

static void blk_abandon(struct virtio *v)
{
	struct disk_failed *f, *list = disk_errors_take(&blk_of(v)->errors);

	while ((f = list) != NULL) {
		list = f->next;
		blk_finish(container_of(f, struct blk_req, failed), VIRTIO_BLK_S_IOERR);
	}
}

static void blk_resumed(struct virtio *v)
{
	struct virtio_blk *blk = blk_of(v);
	struct disk_failed *f, *list = disk_errors_take(&blk->errors);

	while ((f = list) != NULL) {
		list = f->next;
		block_submit(blk->node, &container_of(f, struct blk_req, failed)->b);
	}
	block_flush_queue(blk->node);
}

/* What is left of an iovec array after its header and status were taken away. */
static uint64_t data_len(const struct iovec *iov, int n)
{
	uint64_t len = 0;

	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

/* Fill the block request for a transfer; false: the range is wrong. */
static bool blk_prepare_rw(struct blk_req *req, enum block_op op, uint64_t sector, struct iovec *iov, int n)
{
	const struct virtio_blk *blk = req->blk;
	const uint64_t len = data_len(iov, n), size = block_size(blk->node), block = blk->logical_block_size;

	if (sector > size / SECTOR || len > size - sector * SECTOR || len % block || (sector * SECTOR) % block)
		return false;
	req->b.op = op;
	req->b.offset = sector * SECTOR;
	req->b.len = len;
	req->b.iov = iov;
	req->b.niov = n;
	return true;
}

/* Discard and write zeroes: one range each, as the configuration says (max seg 1). */
static int blk_prepare_range(struct blk_req *req, enum block_op op, const struct iovec *iov, int n)
{
	const struct virtio_blk *blk = req->blk;
	const uint64_t size = block_size(blk->node) / SECTOR;
	uint8_t range[RANGE_LEN];
	uint64_t sector;
	uint32_t count, flags;

	if (!(op == BLOCK_DISCARD ? blk->discard : blk->write_zeroes))
		return VIRTIO_BLK_S_UNSUPP;
	if (data_len(iov, n) != RANGE_LEN)
		return VIRTIO_BLK_S_IOERR;
	iov_read(iov, n, 0, range, sizeof(range));
	sector = ld64le(range);
	count = ld32le(range + 8);
	flags = ld32le(range + 12);
	if (flags & (op == BLOCK_DISCARD ? ~0u : ~VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP))
		return VIRTIO_BLK_S_UNSUPP;
	if (count > MAX_SECTORS || sector > size || count > size - sector ||
	    (sector | count) % (blk->logical_block_size / SECTOR))
		return VIRTIO_BLK_S_IOERR;
	req->b.op = op;
	req->b.offset = sector * SECTOR;
	req->b.len = count * SECTOR;
	req->b.flags |= flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP ? BLOCK_MAY_UNMAP : 0;
	return VIRTIO_BLK_S_OK;
}

static int blk_get_id(struct blk_req *req, const struct iovec *iov, int n)
{
	char id[ID_LEN] = "";

	if (req->blk->serial)
		memcpy(id, req->blk->serial, MIN(strlen(req->blk->serial), sizeof(id)));
	iov_write(iov, n, 0, id, sizeof(id));
	return VIRTIO_BLK_S_OK;
}

/*
 * Decide what a request does: the status when it ends here, or -1 when its block
 * request is ready to be submitted.
 */
static int blk_prepare(struct blk_req *req, uint32_t type, uint64_t sector, struct iovec *out, int nout,
		       struct iovec *in, int nin)
{
	struct virtio_blk *blk = req->blk;
	const bool writes =
	    type == VIRTIO_BLK_T_OUT || type == VIRTIO_BLK_T_DISCARD || type == VIRTIO_BLK_T_WRITE_ZEROES;
	int ret;

	if (writes && block_read_only(blk->node))
		return VIRTIO_BLK_S_IOERR;
	if (!blk->wce && writes)
		req->b.flags |= BLOCK_FUA;
	switch (type) {
	case VIRTIO_BLK_T_IN: return blk_prepare_rw(req, BLOCK_READ, sector, in, nin) ? -1 : VIRTIO_BLK_S_IOERR;
	case VIRTIO_BLK_T_OUT: return blk_prepare_rw(req, BLOCK_WRITE, sector, out, nout) ? -1 : VIRTIO_BLK_S_IOERR;
	case VIRTIO_BLK_T_FLUSH: req->b.op = BLOCK_FLUSH; return -1;
	case VIRTIO_BLK_T_GET_ID: return blk_get_id(req, in, nin);
	case VIRTIO_BLK_T_DISCARD:
	case VIRTIO_BLK_T_WRITE_ZEROES:
		ret = blk_prepare_range(req, type == VIRTIO_BLK_T_DISCARD ? BLOCK_DISCARD : BLOCK_WRITE_ZEROES, out,
					nout);
		return ret == VIRTIO_BLK_S_OK ? -1 : ret;
	default: return VIRTIO_BLK_S_UNSUPP;
	}
}

/* Turn the chain in v->chain into a request. dev.lock held; NULL when there is none. */
static void *blk_parse(struct virtio *v, struct virtio_queue *q)
{
	struct virtio_blk *blk = blk_of(v);
	const struct virtq_chain *c = &v->chain;
	uint8_t header[HEADER_LEN];
	struct iovec *out, *in;
	struct blk_req *req;
	int nout = c->nout, nin = c->nin, ret;

	if (iov_read(c->iov, nout, 0, header, sizeof(header)) < sizeof(header) || nin == 0) {
		virtio_break(v, q, "a block request without header or status");
		return NULL;
	}
	req = calloc(1, sizeof(*req) + (size_t)(nout + nin) * sizeof(req->iov[0]));
	if (!req) { /* the host is out of memory: try again with the next notification */
		virtq_unpop(&q->vq);
		return NULL;
	}
	memcpy(req->iov, c->iov, (size_t)(nout + nin) * sizeof(req->iov[0]));
	req->blk = blk;
	req->in_len = c->in_len;
	in = &req->iov[nout];
	virtio_req_init(v, q, &req->r);
	req->r.in = in;
	req->r.nin = nin;
	req->r.release = blk_release;
	req->last_in = &in[nin - 1];
	req->last_in->iov_len--;
	req->status = (uint8_t *)req->last_in->iov_base + req->last_in->iov_len;
	if (req->last_in->iov_len == 0)
		nin--;
	out = iov_skip(req->iov, &nout, HEADER_LEN);
	req->b.done = blk_block_done;
	ret = blk_prepare(req, ld32le(header) & ~VIRTIO_BLK_T_BARRIER, ld64le(header + 8), out, nout, in, nin);
	if (ret >= 0) {
		req->done = true;
		req->b.result = ret;
	}
	return req;
}

/* ---- queues --------------------------------------------------------------- */

static void blk_handle(struct virtio *v, struct virtio_queue *q)
{
	struct virtio_blk *blk = blk_of(v);
	void *reqs[VIRTIO_BATCH];
	bool more;

	do {
		const unsigned n = virtio_take_batch(v, q, blk_parse, reqs, &more);
		for (unsigned i = 0; i < n; i++) {
			struct blk_req *req = reqs[i];
			if (req->done)
				blk_finish(req, (uint8_t)req->b.result);
			else
				block_submit(blk->node, &req->b);
		}
		block_flush_queue(blk->node);
		counter_add(&blk->batches, 1);
	} while (more);
}

/* ---- configuration --------------------------------------------------------------- */

static void blk_set_wce(struct virtio_blk *blk, bool on)
{
	blk->wce = on;
	blk->t.vio.config[CFG_WRITEBACK] = on;
}

static void blk_config_write(struct virtio *v, unsigned off, unsigned size, uint32_t val)
{
	if (off == CFG_WRITEBACK && size == 1 && virtio_has(v, VIRTIO_BLK_F_CONFIG_WCE))
		blk_set_wce(blk_of(v), val & 1);
}

/* 5.2.5.2: a driver that cannot flush gets a write-through disk. */
static void blk_features_set(struct virtio *v)
{
	struct virtio_blk *blk = blk_of(v);
	const bool can_flush = virtio_has(v, VIRTIO_BLK_F_FLUSH) || virtio_has(v, VIRTIO_BLK_F_CONFIG_WCE);

	blk_set_wce(blk, can_flush && blk->initial_wce);
}

static void blk_reset(struct virtio *v)
{
	blk_set_wce(blk_of(v), blk_of(v)->initial_wce);
}

static void blk_drain(struct virtio *v)
{
	block_drain(blk_of(v)->node);
}

static const struct virtio_ops blk_ops = {
    .id = VIRTIO_ID_BLOCK,
    .class_code = 0x010000,
    .config_write = blk_config_write,
    .features_set = blk_features_set,
    .reset = blk_reset,
    .drain = blk_drain,
    .abandon = blk_abandon,
    .resumed = blk_resumed,
    .config_changing = CFG_WRITEBACK,
    .config_changing_len = 1,
};

static uint8_t log2_of(uint32_t n)
{
	return (uint8_t)(31 - __builtin_clz(n));
}

static void blk_fill_config(struct virtio_blk *blk)
{
	struct virtio *v = &blk->t.vio;
	uint8_t *c = v->config;
	const uint32_t block = blk->logical_block_size;

	v->config_len = CFG_SIZE;
	st64le(c + CFG_CAPACITY, block_size(blk->node) / SECTOR);
	st32le(c + CFG_SEG_MAX, MAX(blk->queue_size, 4u) - 2u);
	st32le(c + CFG_BLK_SIZE, block);
	c[CFG_PHYSICAL_BLOCK_EXP] = (uint8_t)(log2_of(blk->physical_block_size) - log2_of(block));
	st16le(c + CFG_MIN_IO_SIZE, (uint16_t)(blk->min_io_size / block));
	st32le(c + CFG_OPT_IO_SIZE, blk->opt_io_size / block);
	st16le(c + CFG_NUM_QUEUES, (uint16_t)blk->num_queues);
	st32le(c + CFG_MAX_DISCARD_SECTORS, MAX_SECTORS);
	st32le(c + CFG_MAX_DISCARD_SEG, 1);
	st32le(c + CFG_DISCARD_ALIGNMENT, block / SECTOR);
	st32le(c + CFG_MAX_WRITE_ZEROES_SECTORS, MAX_SECTORS);
	st32le(c + CFG_MAX_WRITE_ZEROES_SEG, 1);
	c[CFG_WRITE_ZEROES_MAY_UNMAP] = 1;

	v->host_features |= BIT(VIRTIO_BLK_F_SEG_MAX) | BIT(VIRTIO_BLK_F_BLK_SIZE) | BIT(VIRTIO_BLK_F_FLUSH) |
			    BIT(VIRTIO_BLK_F_TOPOLOGY);
	if (block_read_only(blk->node))
		v->host_features |= BIT(VIRTIO_BLK_F_RO);
	if (blk->config_wce)
		v->host_features |= BIT(VIRTIO_BLK_F_CONFIG_WCE);
	if (blk->num_queues > 1)
		v->host_features |= BIT(VIRTIO_BLK_F_MQ);
	if (blk->discard)
		v->host_features |= BIT(VIRTIO_BLK_F_DISCARD);
	if (blk->write_zeroes)
		v->host_features |= BIT(VIRTIO_BLK_F_WRITE_ZEROES);
}

static bool is_power_of_two(uint32_t n)
{
	return n && !(n & (n - 1));
}

static int blk_check_props(struct virtio_blk *blk, struct err *err)
{
	const unsigned ncpus = blk->t.pci.dev.bus->accel ? blk->t.pci.dev.bus->accel->cfg.ncpus : 1;

	if (!blk->drive)
		return err_set(err, -EINVAL, "drive property not set");
	if (!blk->drive->node)
		return err_set(err, -EINVAL, "Device needs media, but drive '%s' is empty", blk->drive->id);
	if (blk->drive->claimed)
		return err_set(err, -EBUSY, "Drive '%s' is already in use by another device", blk->drive->id);
	if (!blk->num_queues)
		blk->num_queues = MAX(ncpus, 1u);
	if (blk->num_queues > VIRTIO_MAX_QUEUES)
		return err_set(err, -EINVAL, "num-queues=%u: must be 1 to %d", blk->num_queues, VIRTIO_MAX_QUEUES);
	if (!is_power_of_two(blk->queue_size) || blk->queue_size < 4 || blk->queue_size > VIRTQ_MAX_SIZE)
		return err_set(err, -EINVAL, "queue-size=%u: must be a power of two from 4 to %d", blk->queue_size,
			       VIRTQ_MAX_SIZE);
	if (disk_check_block_sizes(blk->logical_block_size, blk->physical_block_size, err))
		return -EINVAL;
	if (blk->min_io_size % blk->logical_block_size || blk->opt_io_size % blk->logical_block_size ||
	    blk->min_io_size / blk->logical_block_size > UINT16_MAX)
		return err_set(err, -EINVAL, "min_io_size and opt_io_size must be multiples of logical_block_size");
	return 0;
}

static void blk_unrealize(struct dev *d)
{
	struct virtio_blk *blk = container_of(d, struct virtio_blk, t.pci.dev);

	virtio_pci_unrealize(&blk->t);
	if (blk->node) {
		block_set_loop(blk->node, d->bus->loop, NULL);
		block_set_writeback(blk->node, blk->drive_writeback);
		blk->drive->claimed = false;
		blk->node = NULL;
	}
}

static int blk_realize(struct dev *d, struct err *err)
{
	struct virtio_blk *blk = container_of(d, struct virtio_blk, t.pci.dev);
	struct loop *loop = NULL;
	int ret = blk_check_props(blk, err);

	if (ret)
		return ret;
	if (blk->iothread) {
		loop = iothread_loop(blk->iothread, err);
		ret = loop ? block_set_loop(blk->drive->node, loop, err) : -EIO;
		if (ret)
			return ret;
	}
	if (!blk->serial && blk->drive->serial)
		blk->serial = strdup(blk->drive->serial);
	blk->drive->claimed = true;
	blk->node = blk->drive->node;
	disk_errors_init(&blk->errors, d->bus, blk->drive);
	/* From here on the driver decides, request by request (BLOCK_FUA). */
	blk->drive_writeback = block_writeback(blk->node);
	blk->initial_wce = blk->write_cache == OOA_AUTO ? blk->drive_writeback : blk->write_cache == OOA_ON;
	block_set_writeback(blk->node, true);
	ret = virtio_init(&blk->t.vio, d, loop, &blk_ops, blk->num_queues, err);
	if (!ret) {
		for (unsigned i = 0; i < blk->num_queues; i++)
			virtio_set_queue(&blk->t.vio, i, "requests", blk->queue_size, blk_handle);
		blk_fill_config(blk);
		blk_set_wce(blk, blk->initial_wce);
		ret = virtio_pci_realize(&blk->t, err);
	}
	if (ret)
		blk_unrealize(d);
	return ret;
}

#define OFFSET(f) offsetof(struct virtio_blk, f)
static const struct prop blk_props[] = {
    {.name = "drive", .kind = PROP_LINK, .offset = OFFSET(drive), .link_kind = "drive", .help = "-drive's id"},
    {.name = "serial", .kind = PROP_STR, .offset = OFFSET(serial), .help = "serial number, 20 characters are read"},
    {.name = "iothread",
     .kind = PROP_LINK,
     .offset = OFFSET(iothread),
     .link_kind = "iothread",
     .help = "-object iothread's id: its thread handles the queues"},
    {.name = "num-queues",
     .kind = PROP_U32,
     .offset = OFFSET(num_queues),
     .def = "0",
     .help = "request queues; 0: one per vCPU"},
    {.name = "queue-size",
     .kind = PROP_U16,
     .offset = OFFSET(queue_size),
     .def = "256",
     .help = "descriptors per queue"},
    {.name = "logical_block_size",
     .kind = PROP_U32,
     .offset = OFFSET(logical_block_size),
     .def = "512",
     .help = "the smallest unit of a request, in bytes"},
    {.name = "physical_block_size",
     .kind = PROP_U32,
     .offset = OFFSET(physical_block_size),
     .def = "512",
     .help = "what the guest should align to"},
    {.name = "min_io_size", .kind = PROP_U32, .offset = OFFSET(min_io_size), .def = "0", .help = "in bytes"},
    {.name = "opt_io_size", .kind = PROP_U32, .offset = OFFSET(opt_io_size), .def = "0", .help = "in bytes"},
    {.name = "config-wce",
     .kind = PROP_BOOL,
     .offset = OFFSET(config_wce),
     .def = "on",
     .help = "the guest may switch its write cache"},
    {.name = "write-cache",
     .kind = PROP_ONOFFAUTO,
     .offset = OFFSET(write_cache),
     .def = "auto",
     .help = "off: every write is durable when it completes; auto: as cache= says"},
    {.name = "discard", .kind = PROP_BOOL, .offset = OFFSET(discard), .def = "on", .help = "offer discard"},
    {.name = "write-zeroes",
     .kind = PROP_BOOL,
     .offset = OFFSET(write_zeroes),
     .def = "on",
     .help = "offer write zeroes"},
    {0},
};

static const struct prop no_props[] = {{0}};

static const struct counter blk_counters[] = {
    VIRTIO_PCI_COUNTERS,
    {"batches", OFFSET(batches), "times a queue was handled"},
    {"set_aside", OFFSET(errors.set_aside), "failed requests that stopped the machine (werror, rerror)"},
    {0},
};

/* ---- the three names --------------------------------------------------------------- */

static int blk_realize_transitional(struct dev *d, struct err *err)
{
	container_of(d, struct virtio_blk, t.pci.dev)->t.disable_legacy = OOA_OFF;
	return blk_realize(d, err);
}

static int blk_realize_modern(struct dev *d, struct err *err)
{
	container_of(d, struct virtio_blk, t.pci.dev)->t.disable_legacy = OOA_ON;
	return blk_realize(d, err);
}

static const struct state_field blk_fields[] = {STATE_INT(struct virtio_blk, wce), {0}};
static const struct state blk_state = {
    .name = "virtio-blk", .version = 1, .min_version = 1, .parent = &virtio_pci_state, .fields = blk_fields};

#define BLK_DEVICE(symbol, type_name, type_about, type_parent, type_props, realize_fn)                                 \
	const struct dev_ops symbol = {                                                                                \
	    .type = {.name = type_name,                                                                                \
		     .about = type_about,                                                                              \
		     .parent = type_parent,                                                                            \
		     .size = sizeof(struct virtio_blk),                                                                \
		     .props = type_props},                                                                             \
	    .bus_kind = DEV_BUS_PCI,                                                                                   \
	    .user_creatable = true,                                                                                    \
	    .realize = realize_fn,                                                                                     \
	    .unrealize = blk_unrealize,                                                                                \
	    .reset = virtio_pci_reset,                                                                                 \
	    .pause = virtio_pci_pause,                                                                                 \
	    .resume = virtio_pci_resume,                                                                               \
	    .state = &blk_state,                                                                                       \
	    .counters = blk_counters,                                                                                  \
	}

BLK_DEVICE(virtio_blk_pci_ops, "virtio-blk-pci", "virtio disk", "virtio-pci", blk_props, blk_realize);
BLK_DEVICE(virtio_blk_pci_transitional_ops, "virtio-blk-pci-transitional", "virtio disk for old and new drivers",
	   "virtio-blk-pci", no_props, blk_realize_transitional);
BLK_DEVICE(virtio_blk_pci_non_transitional_ops, "virtio-blk-pci-non-transitional", "virtio disk for VIRTIO 1.x drivers",
	   "virtio-blk-pci", no_props, blk_realize_modern);
