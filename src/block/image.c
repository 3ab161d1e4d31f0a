// SPDX-License-Identifier: GPL-2.0-or-later
/* Maps of images and what their headers say, for `kelvin img`. The node's loop's thread. */
#include "block/image.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "block/file.h"
#include "block/qcow2.h"

struct map_wait {
	struct qcow2 *q;
	uint64_t offset, len;
	struct qcow2_extent e;
	int ret;
	bool done;
};

static void map_co(void *arg)
{
	struct map_wait *w = arg;

	w->ret = qcow2_lookup(w->q, w->offset, w->len, &w->e);
	w->done = true;
}

static int map_qcow2(struct block_node *n, uint64_t offset, uint64_t len, struct block_extent *e)
{
	struct map_wait w = {.q = n->private_data, .offset = offset, .len = len};
	int ret = 0;

	if (co_self())
		map_co(&w);
	else
		ret = co_spawn(map_co, &w);
	while (!ret && !w.done) {
		block_flush_queue(n);
		if (!w.done)
			loop_run_once(n->loop, -1);
	}
	if (ret || w.ret)
		return ret ? ret : w.ret;
	*e = (struct block_extent){.len = w.e.len, .node = n, .present = w.e.kind != QCOW2_UNALLOCATED};
	e->data = w.e.kind == QCOW2_DATA || w.e.kind == QCOW2_COMPRESSED;
	e->zero = !e->data;
	e->compressed = w.e.kind == QCOW2_COMPRESSED;
	e->has_host = w.e.host != 0;
	e->host = w.e.host;
	return 0;
}

static int map_raw(struct block_node *n, uint64_t offset, uint64_t len, struct block_extent *e)
{
	const int fd = n->file->fd;
	/* A store that cannot be asked has data everywhere. */
	off_t data = fd < 0 ? (off_t)offset : lseek(fd, (off_t)offset, SEEK_DATA), hole;

	*e = (struct block_extent){.len = len, .node = n, .present = true, .host = offset, .has_host = true};
	e->zero = data < 0 ? errno == ENXIO : (uint64_t)data > offset;
	e->data = !e->zero;
	if (e->zero && data > 0)
		e->len = MIN(len, (uint64_t)data - offset);
	hole = e->data && fd >= 0 ? lseek(fd, (off_t)offset, SEEK_HOLE) : -1;
	if (hole > (off_t)offset)
		e->len = MIN(len, (uint64_t)hole - offset);
	return 0;
}

int block_map_top(struct block_node *n, uint64_t offset, uint64_t len, struct block_extent *e)
{
	if (n->driver == &block_qcow2_driver)
		return map_qcow2(n, offset, len, e);
	return n->driver->map ? n->driver->map(n, offset, len, e) : map_raw(n, offset, len, e);
}

int block_map(struct block_node *n, uint64_t offset, uint64_t len, struct block_extent *e)
{
	int ret = block_map_top(n, offset, len, e);

	if (!ret && !e->present && n->backing && offset < block_size(n->backing)) {
		ret = block_map(n->backing, offset, MIN(e->len, block_size(n->backing) - offset), e);
		e->depth++;
	}
	return ret;
}

int64_t block_copy_range(const struct block_extent *from, uint64_t skip, struct block_node *to, uint64_t offset,
			 uint64_t len)
{
	const struct block_node *n = from->node;
	const struct qcow2 *q = n && n->driver == &block_qcow2_driver ? n->private_data : NULL;
	loff_t in = (loff_t)(from->host + skip), out = (loff_t)offset;
	ssize_t done;

	/* Only where the guest's bytes are the file's, on both sides. */
	if (!n || !from->data || !from->has_host || from->compressed || (q && q->has_data_file) ||
	    to->driver != &block_raw_driver || to->probed || n->file->fd < 0 || to->file->fd < 0 ||
	    from->node->file->is_device || to->file->is_device)
		return -ENOTSUP;
	do {
		done = copy_file_range(n->file->fd, &in, to->file->fd, &out, (size_t)len, 0);
	} while (done < 0 && errno == EINTR);
	if (done > 0)
		to->file->write_gen++;
	return done >= 0 ? done : -ENOTSUP;
}

struct block_node *block_backing(const struct block_node *n)
{
	return n->backing;
}

void block_image_info(const struct block_node *n, struct block_image_info *info)
{
	const struct qcow2 *q = n->private_data;

	*info = (struct block_image_info){.backing_file = "", .backing_format = ""};
	if (n->driver->info)
		n->driver->info(n, info);
	if (n->driver != &block_qcow2_driver)
		return;
	info->is_qcow2 = true;
	info->version = q->h.version;
	info->cluster_size = q->cluster_size;
	info->refcount_bits = 1u << q->h.refcount_order;
	info->zstd = q->h.compression_type == 1;
	info->lazy_refcounts = (q->h.compatible & QCOW2_COMPAT_LAZY) != 0;
	info->corrupt = (q->h.incompatible & QCOW2_INCOMPAT_CORRUPT) != 0;
	info->dirty = (q->h.incompatible & QCOW2_INCOMPAT_DIRTY) != 0;
	info->extended_l2 = q->extended_l2;
	info->backing_file = q->h.backing_file;
	info->backing_format = q->h.backing_format;
}

bool block_new_is_zero(const struct block_node *n)
{
	return !block_file_is_device(n->file);
}

uint64_t block_host_bytes(const struct block_node *n)
{
	struct stat st;

	if (n->file->fd < 0)
		return UINT64_MAX;
	return fstat(n->file->fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}
