// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The admin command set: NVM Express 1.4, 5. Locking: dev.lock is held; main loop's thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "hw/nvme/nvme.h"

#define CMD_NSID      4
#define CMD_PRP1      24
#define CMD_CDW10     40
#define CMD_CDW11     44
#define IDENTIFY_SIZE 4096

/* ---- queues ------------------------------------------------------------------------- */

static uint16_t create_cq(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	const uint32_t cdw10 = ld32le(cmd + CMD_CDW10), cdw11 = ld32le(cmd + CMD_CDW11), id = cdw10 & 0xffff,
		       size = (cdw10 >> 16) + 1;
	struct nvme_cq *cq;

	if (!id || id > n->max_queues || n->cq[id].used)
		return NVME_QID_INVALID;
	if (size < 2 || size > NVME_MAX_ENTRIES)
		return NVME_QSIZE_INVALID;
	if (cdw11 >> 16 > n->max_queues)
		return NVME_VECTOR_INVALID;
	if (!(cdw11 & 1) || ld64le(cmd + CMD_PRP1) & (BIT(n->page_bits) - 1))
		return NVME_INVALID_FIELD;
	cq = &n->cq[id];
	*cq = (struct nvme_cq){.used = true,
			       .interrupts = cdw11 & 2,
			       .base = ld64le(cmd + CMD_PRP1),
			       .size = size,
			       .vector = (uint16_t)(cdw11 >> 16),
			       .phase = 1};
	cq->waiting_tail = &cq->waiting;
	return NVME_OK;
}

static uint16_t create_sq(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	const uint32_t cdw10 = ld32le(cmd + CMD_CDW10), cdw11 = ld32le(cmd + CMD_CDW11), id = cdw10 & 0xffff,
		       size = (cdw10 >> 16) + 1, cqid = cdw11 >> 16;

	if (!id || id > n->max_queues || n->sq[id].used)
		return NVME_QID_INVALID;
	if (!cqid || cqid > n->max_queues || !n->cq[cqid].used)
		return NVME_CQ_INVALID;
	if (size < 2 || size > NVME_MAX_ENTRIES)
		return NVME_QSIZE_INVALID;
	if (!(cdw11 & 1) || ld64le(cmd + CMD_PRP1) & (BIT(n->page_bits) - 1))
		return NVME_INVALID_FIELD;
	n->sq[id] =
	    (struct nvme_sq){.used = true, .base = ld64le(cmd + CMD_PRP1), .size = size, .cqid = (uint16_t)cqid};
	n->cq[cqid].queues++;
	return NVME_OK;
}

static uint16_t delete_sq(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	const uint32_t id = ld32le(cmd + CMD_CDW10) & 0xffff;
	struct nvme_sq *sq = &n->sq[MIN(id, (uint32_t)NVME_QUEUES)];

	if (!id || id > n->max_queues || !sq->used || sq->deleting)
		return NVME_QID_INVALID;
	if (sq->inflight) { /* ends when the host is done */
		sq->deleting = true;
		sq->delete_cid = ld16le(cmd + 2);
		return NVME_PENDING;
	}
	nvme_sq_remove(n, (uint16_t)id);
	return NVME_OK;
}

static uint16_t delete_cq(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	const uint32_t id = ld32le(cmd + CMD_CDW10) & 0xffff;

	if (!id || id > n->max_queues || !n->cq[id].used)
		return NVME_QID_INVALID;
	if (n->cq[id].queues || n->cq[id].waiting)
		return NVME_DELETION_INVALID;
	n->cq[id] = (struct nvme_cq){0};
	nvme_irq_update(n);
	return NVME_OK;
}

/* ---- identify ------------------------------------------------------------------------- */

static void put_text(uint8_t *out, size_t width, const char *text)
{
	memset(out, ' ', width);
	memcpy(out, text, MIN(strlen(text), width));
}

/* 5.15.2.2 */
static void identify_controller(const struct nvme *n, uint8_t *out)
{
	st16le(out, n->pci.vendor);
	st16le(out + 2, n->pci.subsys_vendor);
	put_text(out + 4, 20, n->serial);
	put_text(out + 24, 40, "KELVIN NVMe disk");
	put_text(out + 64, 8, "1.0");
	out[72] = 6; /* recommended arbitration burst */
	out[77] = NVME_MDTS;
	st32le(out + 80, 0x00010400);
	out[258] = 3;		     /* aborts at once */
	out[259] = NVME_AER_MAX - 1; /* event requests at once */
	out[260] = 0x03;	     /* one firmware slot, read-only */
	out[261] = 0x04;	     /* log page offsets */
	st16le(out + 266, 343);	     /* warning and critical temperature, kelvin */
	st16le(out + 268, 373);
	out[512] = 0x66; /* entries of 64 and 16 bytes */
	out[513] = 0x44;
	st32le(out + 516, 1);
	st16le(out + 520, 0x000c); /* Dataset Management, Write Zeroes */
	out[525] = 1;		   /* a volatile write cache */
	snprintf((char *)out + 768, 256, "nqn.2026-01.kelvin:nvme:%.40s", n->serial);
	st16le(out + 2048, 2500); /* power state 0: 25 W */
}

/* 5.15.2.1 */
static void identify_namespace(const struct nvme *n, uint8_t *out)
{
	for (unsigned i = 0; i < 3; i++)
		st64le(out + 8 * i, n->blocks);
	st32le(out + 128, n->block_bits << 16);
}

static uint16_t identify(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	static uint8_t out[IDENTIFY_SIZE]; /* main loop's thread only */
	const uint32_t nsid = ld32le(cmd + CMD_NSID);
	const uint8_t cns = cmd[CMD_CDW10];

	memset(out, 0, sizeof(out));
	switch (cns) {
	case 0x00:
		if (nsid != 1)
			return NVME_INVALID_NAMESPACE;
		identify_namespace(n, out);
		break;
	case 0x01: identify_controller(n, out); break;
	case 0x02:
		if (nsid >= 0xfffffffe)
			return NVME_INVALID_NAMESPACE;
		st32le(out, nsid < 1 ? 1 : 0);
		break;
	case 0x03: /* names: an NGUID made of the serial number */
		if (nsid != 1)
			return NVME_INVALID_NAMESPACE;
		out[0] = 2;
		out[1] = 16;
		memcpy(out + 4, "kelvin", 6);
		for (size_t i = 0; n->serial[i]; i++)
			out[10 + i % 10] = (uint8_t)(out[10 + i % 10] * 31 + n->serial[i]);
		break;
	default: return NVME_INVALID_FIELD;
	}
	return nvme_copy(n, cmd, out, sizeof(out), true);
}

/* ---- logs and features --------------------------------------------------------------------- */

static uint16_t get_log(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	static const struct {
		uint8_t id;
		uint16_t size;
	} logs[] = {{0x01, 64}, {0x02, 512}, {0x03, 512}};
	const uint32_t cdw10 = ld32le(cmd + CMD_CDW10);
	const uint64_t len = ((cdw10 >> 16 | (uint64_t)(ld32le(cmd + CMD_CDW11) & 0xffff) << 16) + 1) * 4;
	const uint64_t offset = ld64le(cmd + 48);
	uint8_t log[512] = {0};
	size_t i = 0;

	while (i < ARRAY_SIZE(logs) && logs[i].id != (cdw10 & 0xff))
		i++;
	if (i == ARRAY_SIZE(logs))
		return NVME_LOG_INVALID;
	if (offset > logs[i].size || offset & 3)
		return NVME_INVALID_FIELD;
	if (logs[i].id == 0x02) {
		st16le(log + 1, 303); /* temperature, kelvin */
		log[3] = 100;	      /* spare, per cent */
		log[4] = 10;
	} else if (logs[i].id == 0x03) {
		log[0] = 1;
		put_text(log + 8, 8, "1.0");
	}
	return nvme_copy(n, cmd, log + offset, MIN(len, logs[i].size - offset), true);
}

enum { FEATURE_CACHE = 6, FEATURE_QUEUES = 7, FEATURE_LAST = 0x0b };

static bool feature_exists(uint8_t id)
{
	return id && id <= FEATURE_LAST && id != 0x03;
}

static uint16_t set_features(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	const uint32_t cdw10 = ld32le(cmd + CMD_CDW10), val = ld32le(cmd + CMD_CDW11);
	const uint8_t id = (uint8_t)cdw10;

	if (cdw10 & BIT(31))
		return NVME_NOT_SAVEABLE;
	if (!feature_exists(id))
		return NVME_INVALID_FIELD;
	if (id == FEATURE_QUEUES) {
		if ((val & 0xffff) == 0xffff || val >> 16 == 0xffff)
			return NVME_INVALID_FIELD;
		*result = (n->max_queues - 1) << 16 | (n->max_queues - 1);
		return NVME_OK;
	}
	if (id == FEATURE_CACHE)
		n->wce = val & 1;
	n->features[id] = val;
	return NVME_OK;
}

static uint16_t get_features(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	const uint8_t id = cmd[CMD_CDW10];

	if (!feature_exists(id))
		return NVME_INVALID_FIELD;
	*result = id == FEATURE_QUEUES	? (n->max_queues - 1) << 16 | (n->max_queues - 1)
		  : id == FEATURE_CACHE ? n->wce
					: n->features[id];
	return NVME_OK;
}

/* Nothing ever happens that these could tell, so they wait. */
static uint16_t event_request(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	if (n->naer == NVME_AER_MAX)
		return NVME_AER_LIMIT;
	n->aer[n->naer++] = ld16le(cmd + 2);
	n->sq[0].outstanding--; /* its own limit is enough */
	return NVME_PENDING;
}

static uint16_t abort_command(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	*result = 1; /* was not aborted: it is with the host */
	return NVME_OK;
}

static const struct {
	uint8_t opcode;
	uint16_t (*fn)(struct nvme *n, const uint8_t *cmd, uint32_t *result);
} admin_table[] = {
    {0x00, delete_sq}, {0x01, create_sq},     {0x02, get_log},	    {0x04, delete_cq},	  {0x05, create_cq},
    {0x06, identify},  {0x08, abort_command}, {0x09, set_features}, {0x0a, get_features}, {0x0c, event_request},
};

uint16_t nvme_admin(struct nvme *n, const uint8_t *cmd, uint32_t *result)
{
	for (size_t i = 0; i < ARRAY_SIZE(admin_table); i++)
		if (admin_table[i].opcode == cmd[0])
			return admin_table[i].fn(n, cmd, result);
	return NVME_INVALID_OPCODE;
}
