// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Writes that are stored compressed. Each cluster is compressed by a worker
 * thread while the coroutine waits, so that requests in flight use all cores;
 * then it gets as many bytes of the file as it needs, behind those of the one
 * before it. What does not shrink is written as it is.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "base/iov.h"
#include "block/qcow2.h"
#include "io/work.h"

struct pack {
	struct work work;
	struct co *co;
	uint32_t type, size;
	uint8_t *in, *out;
	size_t len; /* compressed; 0: does not shrink */
};

static void pack_work(struct work *w)
{
	struct pack *p = container_of(w, struct pack, work);

	p->len = qcow2_deflate(p->type, p->in, p->size, p->out, p->size - 1);
}

static void pack_done(struct work *w)
{
	struct pack *p = container_of(w, struct pack, work);

	co_wake(p->co);
}

static int compress(struct qcow2 *q, struct pack *p)
{
	p->work = (struct work){.fn = pack_work, .done = pack_done, .loop = q->node->loop};
	p->co = co_self();
	if (work_submit(&p->work))
		pack_work(&p->work); /* here, then */
	else
		co_wait();
	return 0;
}

/* alloc is held: `len` bytes of the file, packed behind the last ones when the refcount of their cluster allows it. */
static int place(struct qcow2 *q, size_t len, uint64_t *offset)
{
	const uint64_t mask = q->cluster_size - 1, used = q->packed & mask;
	const uint64_t max = q->h.refcount_order < 5 ? BIT(1u << q->h.refcount_order) - 1 : UINT32_MAX;
	const uint64_t current = q->packed >> q->cluster_bits;
	uint64_t count = max, next, got;
	int ret = 0;

	if (used)
		ret = qcow2_refcount_get(q, current, &count);
	if (ret)
		return ret;
	/* Count 0: it was freed meanwhile. */
	if (used && count && count < max && used + len <= q->cluster_size) {
		*offset = q->packed;
		ret = qcow2_refcount_add(q, current, 1, 1);
	} else {
		ret = qcow2_alloc(q, 1, &next, &got);
		if (ret)
			return ret;
		*offset = next << q->cluster_bits;
		if (used && count && count < max && next == current + 1) {
			*offset = q->packed;
			ret = qcow2_refcount_add(q, current, 1, 1);
		}
	}
	q->packed = *offset + len;
	return ret;
}

static int name_it(struct qcow2 *q, uint64_t guest, uint64_t offset, size_t len)
{
	const uint32_t x = 62 - (q->cluster_bits - 8);
	const uint64_t sectors = ((offset + len - 1) >> 9) - (offset >> 9);
	struct qcow2_table *t;
	int ret = qcow2_limit_dirty(q);

	if (!ret)
		ret = qcow2_l2_for_write(q, guest, &t);
	if (ret)
		return ret;
	qcow2_free_entry(q, qcow2_entry_get(q, t, guest));
	qcow2_entry_set(q, t, guest, QCOW2_ENTRY_COMPRESSED | sectors << x | offset);
	qcow2_bitmap_set(q, t, guest, 0);
	qcow2_cache_put(t);
	return 0;
}

static int write_packed(struct qcow2 *q, struct pack *p, uint64_t guest)
{
	const uint32_t x = 62 - (q->cluster_bits - 8);
	uint64_t offset;
	int ret;

	qcow2_lock_take(&q->alloc);
	ret = place(q, p->len, &offset);
	qcow2_lock_give(&q->alloc);
	if (ret)
		return ret;
	if (offset >> x) /* large clusters leave few bits for the place */
		return -EFBIG;
	ret = qcow2_file_io(q, BLOCK_WRITE, offset, p->out, p->len);
	return ret ? ret : name_it(q, guest, offset, p->len);
}

static int pack_cluster(struct qcow2 *q, const struct block_req *req, uint64_t done, struct pack *p, struct iovec *iov)
{
	const uint64_t len = MIN(req->len - done, (uint64_t)q->cluster_size), guest = req->offset + done;
	const int n = iov_cut(iov, req->iov, req->niov, done, len);
	uint8_t *to = p->in;
	int ret;

	for (int i = 0; i < n; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
	memset(to, 0, q->cluster_size - len);
	ret = compress(q, p);
	if (!ret && p->len)
		return write_packed(q, p, guest);
	if (!ret) {
		struct iovec one = {p->in, len};
		struct block_req part = {.op = BLOCK_WRITE, .offset = guest, .len = len, .iov = &one, .niov = 1};
		ret = qcow2_write_request(q, &part);
	}
	return ret;
}

int qcow2_pack_request(struct qcow2 *q, const struct block_req *req)
{
	const uint64_t mask = q->cluster_size - 1, end = req->offset + req->len;
	struct pack p = {.type = q->h.compression_type, .size = q->cluster_size};
	struct iovec *iov;
	int ret = 0;

	if ((req->offset & mask) || ((end & mask) && end != q->node->size))
		return -EINVAL;
	if (q->has_data_file)
		return -ENOTSUP;
	iov = malloc((size_t)req->niov * sizeof(*iov));
	p.in = malloc(q->cluster_size);
	p.out = malloc(q->cluster_size);
	if (!iov || !p.in || !p.out)
		ret = -ENOMEM;
	for (uint64_t done = 0; done < req->len && !ret; done += q->cluster_size)
		ret = pack_cluster(q, req, done, &p, iov);
	free(iov);
	free(p.in);
	free(p.out);
	return ret;
}
