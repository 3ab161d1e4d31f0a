// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer target (tests/fuzz/libfuzzer.sh qcow2-ops): a hostile qcow2 image and
 * operations on the whole of it. The input is the image file; its last bytes choose what is done with it: check,
 * repair, reads, writes, discards, zeroes, compressed writes, snapshots, another size, amend. Whatever comes of it,
 * nothing crashes, hangs or takes much memory, and a file that repair calls sound opens.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "block/block.h"
#include "block/image.h"
#include "io/co.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct loop *loop;
static int fd;
static char path[40];
static uint8_t buf[256 * 1024];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct err err = {0};

	loop = loop_create("fuzz", &err);
	fd = memfd_create("image", 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return loop && fd >= 0 ? 0 : 1;
}

static struct block_node *open_image(bool read_only, bool check)
{
	struct block_open o = {.filename = path, .format = "qcow2", .aio = AIO_SYNC, .writeback = true};
	struct err err = {0};

	o.read_only = read_only;
	o.check = check;
	o.no_backing = true;
	o.discard_unmap = true;
	return block_open(&o, loop, &err);
}

static void check(unsigned fix)
{
	struct block_node *n = open_image(!fix, true);
	struct block_check c = {0};
	struct err err = {0};

	if (!n)
		return;
	block_check(n, fix, &c, &err);
	block_close(n);
}

static void do_io(struct block_node *n, enum block_op op, unsigned flags, uint64_t offset, uint64_t len)
{
	struct iovec iov = {buf, len};

	if (offset < block_size(n))
		block_wait(n, op, flags, offset, MIN(len, block_size(n) - offset), &iov, 1);
}

/* Two bytes: what, and where. */
static void step(struct block_node *n, uint8_t what, uint8_t where)
{
	const uint64_t offset = block_size(n) / 256 / 512 * 512 * where, len = 512ull * (1 + (what >> 3) * 16);
	struct block_amend a = {.version = 2 + (where & 1), .lazy_refcounts = -1, .data_file_raw = -1};
	struct block_image_info info;
	struct err err = {0};

	switch (what & 7) {
	case 0: do_io(n, BLOCK_READ, 0, offset, MIN(len, sizeof(buf))); break;
	case 1: do_io(n, BLOCK_WRITE, 0, offset, MIN(len, sizeof(buf))); break;
	case 2: block_wait(n, BLOCK_FLUSH, 0, 0, 0, NULL, 0); break;
	case 3:
		if (offset < block_size(n))
			block_wait(n, where & 1 ? BLOCK_DISCARD : BLOCK_WRITE_ZEROES, BLOCK_MAY_UNMAP, offset,
				   MIN(len * 64, block_size(n) - offset), NULL, 0);
		break;
	case 4:
		block_image_info(n, &info);
		if (info.cluster_size && info.cluster_size <= sizeof(buf))
			do_io(n, BLOCK_WRITE, BLOCK_COMPRESS, ALIGN_DOWN(offset, info.cluster_size), info.cluster_size);
		break;
	case 5:
		if (where < 16)
			block_vmstate_read(n, "1", buf, offset, MIN(len, sizeof(buf)), &err);
		else if (where < 32)
			block_vmstate_write(n, buf, 0, sizeof(buf), &err);
		else if (where < 40)
			block_vmstate_drop(n, &err);
		else if (where < 64)
			block_snapshot_create(n, &(struct block_snapshot){.name = "f"}, &err);
		else if (where < 128)
			block_snapshot_apply(n, "1", &err);
		else
			block_snapshot_delete(n, where & 1 ? "1" : "f", &err);
		break;
	case 6: block_truncate(n, where * 65536ull, BLOCK_PREALLOC_OFF, &err); break;
	default: block_amend(n, &a, &err); break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t steps = size > 64 ? 16 : 0;
	struct block_node *n;

	if (size > 1 * MIB || ftruncate(fd, 0) < 0 || pwrite(fd, data, size - steps, 0) != (ssize_t)(size - steps))
		return 0;
	check(0);
	if (steps && (data[size - 1] & 1))
		check(data[size - 1] & 2 ? BLOCK_FIX_LEAKS | BLOCK_FIX_ERRORS : BLOCK_FIX_LEAKS);
	n = open_image(false, false);
	if (!n)
		n = open_image(true, false);
	for (size_t i = 0; n && i + 1 < steps; i += 2)
		step(n, data[size - steps + i], data[size - steps + i + 1]);
	block_close(n);
	check(0);
	return 0;
}
