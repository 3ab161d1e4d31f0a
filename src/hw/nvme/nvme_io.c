// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The NVM command set (NVM Express 1.4, 6) and the data pointers of commands (4.3, PRPs). Data moves between the image
 * and the guest's pages without a copy.
 *
 * Locking: dev.lock is held.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "hw/nvme/nvme.h"

enum { IO_FLUSH = 0x00, IO_WRITE = 0x01, IO_READ = 0x02, IO_WRITE_ZEROES = 0x08, IO_DATASET = 0x09 };

#define CMD_NSID   4
#define CMD_PRP1   24
#define CMD_PRP2   32
#define CMD_CDW10  40
#define CMD_CDW11  44
#define CMD_CDW12  48
#define CDW12_FUA  BIT(30)
#define CDW12_DEAC BIT(25)
#define DATASET_AD BIT(2)
#define RANGE_SIZE 16

/* ---- data pointers --------------------------------------------------------------- */

static uint16_t map_piece(struct nvme *n, uint64_t addr, uint64_t len, bool to_guest, struct iovec *iov, int *niov,
			  int max)
{
	return dma_begin(n->pci.dev.bus->mem, addr, len, to_guest, iov, niov, max) ? NVME_TRANSFER_ERROR : NVME_OK;
}

/*
 * The pages of a PRP list. Its last entry in a page leads to the next page of the list while there is more; such
 * steps are counted, because they could go round for ever.
 */
static uint16_t map_list(struct nvme *n, uint64_t list, uint64_t len, bool to_guest, struct iovec *iov, int *niov,
			 int max)
{
	const uint64_t page = 1ull << n->page_bits;
	unsigned steps = 0;

	if (list & 7)
		return NVME_INVALID_FIELD;
	while (len) {
		const uint64_t piece = MIN(len, page);
		uint8_t entry[8];
		uint64_t addr;
		uint16_t status;

		if (dma_read(n->pci.dev.bus->mem, list, entry, sizeof(entry)))
			return NVME_TRANSFER_ERROR;
		addr = ld64le(entry);
		if ((list & (page - 1)) == page - 8 && len > page) {
			if (addr & 7 || ++steps > NVME_MAX_IOV)
				return NVME_INVALID_FIELD;
			list = addr;
			continue;
		}
		if (addr & (page - 1))
			return NVME_INVALID_FIELD;
		status = map_piece(n, addr, piece, to_guest, iov, niov, max);
		if (status)
			return status;
		len -= piece;
		list += 8;
	}
	return NVME_OK;
}

uint16_t nvme_map(struct nvme *n, const uint8_t *cmd, uint64_t len, bool to_guest, struct iovec *iov, int *niov,
		  int max)
{
	const uint64_t page = 1ull << n->page_bits, prp1 = ld64le(cmd + CMD_PRP1), prp2 = ld64le(cmd + CMD_PRP2);
	const uint64_t first = MIN(len, page - (prp1 & (page - 1)));
	uint16_t status;

	*niov = 0;
	if (cmd[1] >> 6 || prp1 & 3) /* PSDT: scatter gather lists are not offered */
		return NVME_INVALID_FIELD;
	status = map_piece(n, prp1, first, to_guest, iov, niov, max);
	len -= first;
	if (status || !len)
		return status;
	if (len > page)
		return map_list(n, prp2, len, to_guest, iov, niov, max);
	return prp2 & (page - 1) ? NVME_INVALID_FIELD : map_piece(n, prp2, len, to_guest, iov, niov, max);
}

uint16_t nvme_copy(struct nvme *n, const uint8_t *cmd, void *buf, uint64_t len, bool to_guest)
{
	struct iovec iov[8];
	uint8_t *at = buf;
	int niov;
	uint16_t status = nvme_map(n, cmd, len, to_guest, iov, &niov, (int)ARRAY_SIZE(iov));

	for (int i = 0; i < niov && !status; i++) {
		if (to_guest) {
			memcpy(iov[i].iov_base, at, iov[i].iov_len);
			mem_mark_written(n->pci.dev.bus->mem, iov[i].iov_base, iov[i].iov_len);
		} else {
			memcpy(at, iov[i].iov_base, iov[i].iov_len);
		}
		at += iov[i].iov_len;
	}
	return status;
}

/* ---- commands ---------------------------------------------------------------------- */

static struct nvme_req *req_new(struct nvme *n, uint16_t sqid, const uint8_t *cmd, unsigned iovs)
{
	struct nvme_req *r = calloc(1, sizeof(*r) + iovs * sizeof(r->iov[0]));

	if (!r)
		return NULL;
	r->n = n;
	r->sqid = sqid;
	r->cid = ld16le(cmd + 2);
	r->host = true;
	return r;
}

static bool range_ok(const struct nvme *n, uint64_t lba, uint64_t count)
{
	return lba <= n->blocks && count <= n->blocks - lba;
}

static uint16_t io_rw(struct nvme *n, uint16_t sqid, const uint8_t *cmd, struct nvme_req **out)
{
	const bool write = cmd[0] == IO_WRITE;
	const uint32_t cdw12 = ld32le(cmd + CMD_CDW12);
	const uint64_t lba = ld64le(cmd + CMD_CDW10), count = (cdw12 & 0xffff) + 1ull, len = count << n->block_bits;
	struct nvme_req *r;
	uint16_t status;

	if (len > NVME_MAX_BYTES)
		return NVME_INVALID_FIELD;
	if (!range_ok(n, lba, count))
		return NVME_LBA_RANGE;
	if (write && n->drive->read_only)
		return NVME_READ_ONLY;
	r = req_new(n, sqid, cmd, NVME_MAX_IOV);
	if (!r)
		return NVME_INTERNAL;
	status = nvme_map(n, cmd, len, !write, r->iov, &r->niov, NVME_MAX_IOV);
	if (status) {
		free(r);
		return status;
	}
	r->b = (struct block_req){.op = write ? BLOCK_WRITE : BLOCK_READ,
				  .flags = write && (cdw12 & CDW12_FUA || !n->wce) ? BLOCK_FUA : 0,
				  .offset = lba << n->block_bits,
				  .len = len,
				  .iov = r->iov,
				  .niov = r->niov};
	*out = r;
	return NVME_PENDING;
}

static uint16_t io_write_zeroes(struct nvme *n, uint16_t sqid, const uint8_t *cmd, struct nvme_req **out)
{
	const uint32_t cdw12 = ld32le(cmd + CMD_CDW12);
	const uint64_t lba = ld64le(cmd + CMD_CDW10), count = (cdw12 & 0xffff) + 1ull;
	struct nvme_req *r;

	if (!range_ok(n, lba, count))
		return NVME_LBA_RANGE;
	if (n->drive->read_only)
		return NVME_READ_ONLY;
	r = req_new(n, sqid, cmd, 0);
	if (!r)
		return NVME_INTERNAL;
	r->b = (struct block_req){.op = BLOCK_WRITE_ZEROES,
				  .flags = (cdw12 & CDW12_DEAC ? BLOCK_MAY_UNMAP : 0) |
					   (cdw12 & CDW12_FUA || !n->wce ? BLOCK_FUA : 0),
				  .offset = lba << n->block_bits,
				  .len = count << n->block_bits};
	*out = r;
	return NVME_PENDING;
}

static uint16_t io_flush(struct nvme *n, uint16_t sqid, const uint8_t *cmd, struct nvme_req **out)
{
	struct nvme_req *r = req_new(n, sqid, cmd, 0);

	if (!r)
		return NVME_INTERNAL;
	r->b.op = BLOCK_FLUSH;
	*out = r;
	return NVME_PENDING;
}

/* The next range that is to be freed: fills the block request. False: there is none. */
static bool next_range(struct nvme_req *r)
{
	const struct nvme *n = r->n;

	while (r->range_at < r->range_n) {
		const uint8_t *range = r->ranges + RANGE_SIZE * r->range_at++;
		const uint64_t count = ld32le(range + 4), lba = ld64le(range + 8);

		if (!count)
			continue;
		r->b = (struct block_req){.op = BLOCK_DISCARD,
					  .offset = lba << n->block_bits,
					  .len = count << n->block_bits,
					  .done = r->b.done};
		return true;
	}
	return false;
}

static uint16_t io_dataset(struct nvme *n, uint16_t sqid, const uint8_t *cmd, struct nvme_req **out)
{
	const uint32_t count = (ld32le(cmd + CMD_CDW10) & 0xff) + 1;
	uint16_t status = NVME_OK;
	struct nvme_req *r;

	if (!(ld32le(cmd + CMD_CDW11) & DATASET_AD)) /* hints about use */
		return NVME_OK;
	if (n->drive->read_only)
		return NVME_READ_ONLY;
	r = req_new(n, sqid, cmd, 0);
	if (r)
		r->ranges = malloc(NVME_MAX_RANGES * RANGE_SIZE);
	if (!r || !r->ranges)
		status = NVME_INTERNAL;
	else
		status = nvme_copy(n, cmd, r->ranges, (uint64_t)count * RANGE_SIZE, false);
	for (uint32_t i = 0; i < count && !status; i++)
		if (!range_ok(n, ld64le(r->ranges + RANGE_SIZE * i + 8), ld32le(r->ranges + RANGE_SIZE * i + 4)))
			status = NVME_LBA_RANGE;
	if (!status) {
		r->range_n = count;
		if (next_range(r)) {
			*out = r;
			return NVME_PENDING;
		}
	}
	if (r)
		free(r->ranges);
	free(r);
	return status;
}

bool nvme_io_next(struct nvme_req *r)
{
	return r->ranges && next_range(r);
}

static const struct {
	uint8_t opcode;
	uint16_t (*fn)(struct nvme *n, uint16_t sqid, const uint8_t *cmd, struct nvme_req **out);
} io_table[] = {
    {IO_FLUSH, io_flush},     {IO_WRITE, io_rw}, {IO_READ, io_rw}, {IO_WRITE_ZEROES, io_write_zeroes},
    {IO_DATASET, io_dataset},
};

uint16_t nvme_io(struct nvme *n, uint16_t sqid, const uint8_t *cmd, struct nvme_req **out)
{
	const uint32_t nsid = ld32le(cmd + CMD_NSID);

	for (size_t i = 0; i < ARRAY_SIZE(io_table); i++) {
		if (io_table[i].opcode != cmd[0])
			continue;
		if (nsid != 1 && !(nsid == UINT32_MAX && cmd[0] == IO_FLUSH))
			return NVME_INVALID_NAMESPACE;
		return io_table[i].fn(n, sqid, cmd, out);
	}
	return NVME_INVALID_OPCODE;
}
