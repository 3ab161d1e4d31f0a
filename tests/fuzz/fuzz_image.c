// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libFuzzer target: an image file of the format in FUZZ_TARGET made of the input's bytes is opened,
 * checked, mapped, read, written, repaired. tests/fuzz/libfuzzer.sh builds and runs it.
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

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *format;
static struct loop *loop;
static char path[64];
static int fd;
static uint8_t buf[256 * 1024];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct err err = {0};

	format = getenv("FUZZ_TARGET");
	loop = loop_create("fuzz", &err);
	fd = memfd_create("image", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return !format || !loop || fd < 0;
}

static void request(struct block_node *n, enum block_op op, uint64_t at, uint64_t len)
{
	struct iovec iov[2] = {{buf, len / 3}, {buf + len / 3, len - len / 3}};

	block_wait(n, op, BLOCK_MAY_UNMAP, at, len, iov, 2);
}

static void use(struct block_node *n, bool write, uint64_t seed)
{
	const uint64_t size = block_size(n);
	struct block_extent e;
	uint64_t at = 0;

	for (int i = 0; i < 64 && at < size; i++, at += e.len)
		if (block_map(n, at, size - at, &e) || !e.len)
			break;
	for (int i = 0; i < 24 && size; i++) {
		const enum block_op op = write ? (enum block_op)(seed >> 60) % 5 : BLOCK_READ;
		uint64_t len = ((seed >> 20) % sizeof(buf)) | 1,
			 start = (seed >> 8) % (i & 1 ? MIN(size, 4 * MIB) : size);
		len = MIN(len, size - start);
		request(n, op, start, op == BLOCK_FLUSH ? 0 : len);
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	}
}

static void open_and_use(bool write, bool check, uint64_t seed)
{
	struct block_open o = {
	    .filename = path, .format = format, .read_only = !write, .writeback = true, .aio = AIO_SYNC};
	struct block_check c = {0};
	struct err err = {0};
	struct block_node *n;

	o.no_backing = true;
	o.check = check;
	o.discard_unmap = true;
	n = block_open(&o, loop, &err);
	if (!n)
		return;
	if (check)
		block_check(n, write ? BLOCK_FIX_ERRORS | BLOCK_FIX_LEAKS : 0, &c, &err);
	else
		use(n, write, seed);
	block_close(n);
}

static void load(const uint8_t *data, size_t size)
{
	if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t seed = 0x9e3779b97f4a7c15ull;

	for (size_t i = 0; i < size; i += 97)
		seed = (seed ^ data[i]) * 1099511628211ull;
	load(data, size);
	open_and_use(false, false, seed);
	open_and_use(false, true, seed);
	open_and_use(true, false, seed);
	load(data, size);
	open_and_use(true, true, seed);
	open_and_use(true, false, seed);
	return 0;
}
