/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guest RAM in a snapshot: runs of pages that are not zero, in rising order. The
 * transfer's thread; the machine stands still, so nobody else writes RAM.
 */
#include "machine/snapshot_int.h"

#include <errno.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/util.h"

static bool page_is_zero(const uint8_t *p)
{
	return ld64le(p) == 0 && memcmp(p, p + 8, PAGE_SIZE - 8) == 0;
}

/* Of the pages from `at` to `end`: how many zero ones, and how many others after them, at most a chunk. */
static void next_run(const struct ram_block *b, uint64_t at, uint64_t end, uint64_t *zero, uint64_t *run)
{
	uint64_t z = 0, n = 0;

	while (at + z < end && z < SNAPSHOT_CHUNK && page_is_zero(b->host + at + z))
		z += PAGE_SIZE;
	while (at + z + n < end && n < SNAPSHOT_CHUNK && !page_is_zero(b->host + at + z + n))
		n += PAGE_SIZE;
	*zero = z;
	*run = n;
}

/* What has memory from `at` on: it begins there, and ends at *end. To read the rest of a shared file would give it
 * some. */
static uint64_t next_memory(const struct ram_block *b, uint64_t at, uint64_t *end)
{
	*end = b->size;
	if (b->fd < 0 || !b->shared)
		return at;
	const off_t data = lseek(b->fd, (off_t)(b->fd_offset + at), SEEK_DATA);
	if (data < 0)
		return errno == ENXIO ? b->size : at;
	const off_t hole = lseek(b->fd, data, SEEK_HOLE);
	if (hole > data)
		*end = MIN(ALIGN_UP((uint64_t)hole, PAGE_SIZE) - b->fd_offset, b->size);
	return MIN((uint64_t)data - b->fd_offset, b->size) & PAGE_MASK;
}

static int save_block(struct snapshot *s, const struct ram_block *b, struct err *err)
{
	uint64_t at = 0, end = 0;

	while (at < b->size) {
		uint64_t zero, run, skipped = at;
		uint8_t gpa[8];
		int rc = 0;

		if (at >= end)
			at = next_memory(b, at, &end);
		skipped = at - skipped;
		next_run(b, at, end, &zero, &run);
		st64le(gpa, b->gpa + at + zero);
		if (run)
			rc = snap_write(&s->stream, SNAP_RAM, gpa, sizeof(gpa), b->host + at + zero, run, err);
		else if (s->stream.cancelled)
			rc = err_set(err, -ECANCELED, "cancelled");
		if (rc < 0)
			return rc;
		at += zero + run;
		s->zero_pages += (skipped + zero) / PAGE_SIZE;
		s->pages += run / PAGE_SIZE;
		s->ram_done += skipped + zero + run;
	}
	return 0;
}

int snap_ram_save(struct snapshot *s, struct err *err)
{
	const struct mem_map *m = &s->vm->mem;
	int rc = 0;

	for (unsigned i = 0; i < m->nblocks && rc == 0; i++)
		rc = save_block(s, &m->block[i], err);
	return rc;
}

void snap_ram_clear(struct vm *vm)
{
	struct mem_map *m = &vm->mem;

	for (unsigned i = 0; i < m->nblocks; i++) {
		const struct ram_block *b = &m->block[i];
		const bool gone = !b->readonly && mem_discard_host(m, b->host, b->size);

		/* ROM, memory the host keeps, and a file mapped privately may show something else than zeros. */
		for (uint64_t at = 0; (!gone || (b->fd >= 0 && !b->shared)) && at < b->size; at += PAGE_SIZE)
			if (!page_is_zero(b->host + at)) {
				memset(b->host + at, 0, PAGE_SIZE);
				mem_mark_written(m, b->host + at, PAGE_SIZE);
			}
	}
}

/* The block that holds all of the range, ROM too. */
static const struct ram_block *block_of(const struct mem_map *m, uint64_t gpa, uint64_t len)
{
	for (unsigned i = 0; i < m->nblocks; i++)
		if (gpa >= m->block[i].gpa && gpa - m->block[i].gpa < m->block[i].size &&
		    len <= m->block[i].size - (gpa - m->block[i].gpa))
			return &m->block[i];
	return NULL;
}

int snap_ram_load(struct snapshot *s, const struct snap_head *h, struct err *err)
{
	const struct ram_block *b;
	uint64_t gpa, len;
	uint8_t raw[8];
	uint8_t *to;
	int rc;

	if (h->len < 8 + PAGE_SIZE || h->len > 8 + SNAPSHOT_CHUNK || (h->len - 8) % PAGE_SIZE)
		return err_set(err, -EINVAL, "the snapshot is corrupted (a record of RAM has %llu bytes)",
			       (unsigned long long)h->len);
	rc = snap_read(&s->stream, raw, sizeof(raw), err);
	if (rc < 0)
		return rc;
	gpa = ld64le(raw);
	len = h->len - 8;
	b = gpa % PAGE_SIZE ? NULL : block_of(&s->vm->mem, gpa, len);
	if (!b)
		return err_set(err, -EINVAL, "the snapshot is corrupted (it has RAM at 0x%llx, this machine has not)",
			       (unsigned long long)gpa);
	to = b->host + (gpa - b->gpa);
	rc = snap_read(&s->stream, to, len, err);
	if (rc == 0)
		rc = snap_check(h, crc32c(crc32c(snap_crc_begin(h), raw, sizeof(raw)), to, len), err);
	mem_mark_written(&s->vm->mem, to, len);
	s->pages += len / PAGE_SIZE;
	s->ram_done += len;
	return rc;
}
