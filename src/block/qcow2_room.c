// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Host clusters that were never used: where they begin, so that a write to a part
 * of one need not write the zeros around it, and room for them in advance.
 *
 * Direct writes that make a file longer go one after another on the host, each with
 * its own change of the file system's metadata; inside the file they go together. So
 * with O_DIRECT the file is made longer some megabytes ahead of what is allocated,
 * and cut again when it is closed. Not for a lone write: that one would wait for a
 * worker of the file system that makes prepared blocks written ones. After a crash the rest of that room is free
 * clusters at the end of the file, which are found and used like all others.
 */
#include "block/qcow2.h"

#include "base/util.h"

#define ROOM (16 * MIB)

void qcow2_room_init(struct qcow2 *q, bool known, bool direct)
{
	q->fresh = UINT64_MAX;
	if (!known || q->node->read_only || block_file_is_device(q->file))
		return; /* nobody knows what is on a device */
	q->fresh = 0;
	qcow2_room_find(q);
	if (direct)
		q->room_end = q->fresh << q->cluster_bits;
}

/* What is behind the end of a file reads as zeros. */
void qcow2_room_find(struct qcow2 *q)
{
	if (q->fresh != UINT64_MAX)
		q->fresh = MAX(q->fresh, (block_file_size(q->file) + q->cluster_size - 1) >> q->cluster_bits);
}

static void room_made(void *opaque, int ret)
{
	struct qcow2 *q = opaque;

	q->making_room = false;
	q->has_room = true;
	if (ret)
		q->room_end = 0; /* no space, or no such call: the writes will tell */
	q->node->inflight--;
}

void qcow2_room_make(struct qcow2 *q)
{
	const uint64_t used = q->fresh << q->cluster_bits;

	if (!q->room_end || q->making_room || used + ROOM / 2 < q->room_end || q->ios.exclusives < 2)
		return;
	q->making_room = true;
	q->node->inflight++; /* whoever drains waits for it too */
	q->room_end = used + ROOM;
	block_file_extend(q->file, used, ROOM, room_made, q);
}

void qcow2_room_trim(struct qcow2 *q)
{
	const uint64_t used = q->fresh << q->cluster_bits;

	if (q->has_room && !q->making_room && !q->corrupt && block_file_size(q->file) > used)
		block_file_truncate(q->file, used, BLOCK_PREALLOC_OFF, NULL);
	q->has_room = false;
	if (q->room_end)
		q->room_end = used;
}
