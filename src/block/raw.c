// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The raw format: the file's bytes are the disk's. A size that is no multiple of
 * 512 is rounded up; what lies past the end of the file reads as zeros.
 *
 * A raw image whose format was guessed refuses writes that would make its first
 * sector look like another format: the next start would believe it, and open
 * host files the guest named. The check is made on a private copy, because the
 * guest can change its pages while the write is on its way.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "block/driver.h"

struct raw_guard {
	uint8_t sector[BLOCK_PROBE_SIZE];
	struct iovec iov[];
};

static int raw_open(struct block_node *n, const struct block_open *o, struct err *err)
{
	n->size = ALIGN_UP(block_file_size(n->file), 512);
	return 0;
}

static void raw_close(struct block_node *n) {}

static void raw_done(void *opaque, int ret)
{
	struct block_req *req = opaque;

	free(req->driver[1]);
	block_complete(req->driver[0], req, ret);
}

/* Copies the first sector of the write, checks the copy and lets the write use it. */
static int guard_sector0(struct block_node *n, struct block_req *req, struct raw_guard **out)
{
	const struct iovec *v = req->iov;
	struct raw_guard *g;
	size_t have = 0, skip = 0;
	const char *format;
	int i = 0, k = 1;

	if (req->offset != 0 || req->len < BLOCK_PROBE_SIZE)
		return -EPERM; /* part of the sector: devices write whole ones */
	g = malloc(sizeof(*g) + ((size_t)req->niov + 1) * sizeof(g->iov[0]));
	if (!g)
		return -ENOMEM;
	while (have < BLOCK_PROBE_SIZE) {
		size_t c = MIN(v[i].iov_len, BLOCK_PROBE_SIZE - have);
		memcpy(g->sector + have, v[i].iov_base, c);
		have += c;
		skip = c;
		if (c == v[i].iov_len) {
			i++;
			skip = 0;
		}
	}
	format = block_probe(g->sector, BLOCK_PROBE_SIZE);
	if (strcmp(format, "raw") != 0) {
		log_warn("'%s': refused a write that would make this raw image look like %s; format=raw allows it",
			 n->filename, format);
		free(g);
		return -EPERM;
	}
	g->iov[0] = (struct iovec){g->sector, BLOCK_PROBE_SIZE};
	for (; i < req->niov; i++, skip = 0)
		g->iov[k++] = (struct iovec){(uint8_t *)v[i].iov_base + skip, v[i].iov_len - skip};
	req->driver[2] = (void *)(intptr_t)k;
	*out = g;
	return 0;
}

static void raw_submit(struct block_node *n, struct block_req *req)
{
	const struct iovec *iov = req->iov;
	struct raw_guard *g = NULL;
	int niov = req->niov, ret;

	req->driver[0] = n;
	req->driver[1] = NULL;
	if (unlikely(n->probed) && req->op == BLOCK_WRITE && req->offset < BLOCK_PROBE_SIZE) {
		ret = guard_sector0(n, req, &g);
		if (ret) {
			block_complete(n, req, ret);
			return;
		}
		req->driver[1] = g;
		iov = g->iov;
		niov = (int)(intptr_t)req->driver[2];
	}
	block_file_submit(n->file, req->op, (req->flags & BLOCK_FUA) || !n->writeback,
			  (req->flags & BLOCK_MAY_UNMAP) != 0, req->offset, req->len, iov, niov, raw_done, req);
}

static int raw_truncate(struct block_node *n, uint64_t size, enum block_prealloc p, struct err *err)
{
	int ret;

	if (p == BLOCK_PREALLOC_METADATA)
		return err_set(err, -EINVAL, "'%s': raw images have no metadata to preallocate (off, falloc, full)",
			       n->filename);
	ret = block_file_truncate(n->file, size, p, err);
	if (!ret)
		n->size = ALIGN_UP(block_file_size(n->file), 512);
	return ret;
}

const struct block_driver block_raw_driver = {
    .name = "raw",
    .open = raw_open,
    .close = raw_close,
    .submit = raw_submit,
    .truncate = raw_truncate,
};
