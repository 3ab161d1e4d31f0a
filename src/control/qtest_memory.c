/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Bulk access to guest memory for -qtest: RAM page by page, everything else by
 * the largest aligned accesses that fit, as a CPU would. Main loop's thread.
 */
#include "base/util.h"
#include "control/qtest.h"

/* Bytes from gpa to the end of its page, at most len. */
static size_t page_part(uint64_t gpa, size_t len)
{
	return (size_t)MIN((uint64_t)len, PAGE_SIZE - (gpa & ~PAGE_MASK));
}

static unsigned access_size(uint64_t gpa, size_t len)
{
	unsigned size = 8;

	while (size > len || gpa % size)
		size /= 2;
	return size;
}

void qtest_memory_read(struct mem_map *m, uint64_t gpa, uint8_t *buf, size_t len)
{
	while (len) {
		size_t n = page_part(gpa, len);

		if (dma_read(m, gpa, buf, n)) {
			n = access_size(gpa, len);
			uint64_t v = mem_read(m, gpa, (unsigned)n);
			memcpy(buf, &v, n);
		}
		gpa += n;
		buf += n;
		len -= n;
	}
}

void qtest_memory_write(struct mem_map *m, uint64_t gpa, const uint8_t *buf, size_t len)
{
	while (len) {
		size_t n = page_part(gpa, len);

		if (dma_write(m, gpa, buf, n)) {
			uint64_t v = 0;

			n = access_size(gpa, len);
			memcpy(&v, buf, n);
			mem_write(m, gpa, v, (unsigned)n);
		}
		gpa += n;
		buf += n;
		len -= n;
	}
}
