/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RAM blocks: where guest memory comes from.
 *
 * Anonymous private memory is the default, or shared memory where the CPU engine
 * asks for it, aligned so that guest-physical and host addresses agree modulo
 * 2 MiB and the host can use huge pages for both (KSM works on anonymous memory
 * only; huge pages of shared memory: shared.c). -mem-path
 * names a file, or a folder of hugetlbfs or tmpfs. A file that is created here
 * is unlinked before anything is put into it, so none is ever left behind,
 * however Kelvin ends.
 *
 * Called before vCPUs exist; update_lock is taken by map.c's part only.
 */
#include "mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/util.h"
#include "mem/map.h"
#include "mem/shared.h"

#define HUGE_ALIGN (2 * MIB)

static uint64_t host_mem_available(void)
{
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib * KIB;
}

/* What is left in the file system behind fd, and whether it is hugetlbfs. */
struct backing {
	int fd;
	uint64_t offset, page, free;
	bool huge, fresh;
};

static void backing_stat(struct backing *b)
{
	struct statfs fs;

	b->page = PAGE_SIZE;
	if (fstatfs(b->fd, &fs) < 0)
		return;
	b->huge = fs.f_type == HUGETLBFS_MAGIC;
	if (b->huge)
		b->page = (uint64_t)fs.f_bsize;
	b->free = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
	if (b->huge && fs.f_blocks == 0) { /* mounted without size=: the pool itself is the limit */
		char path[96];
		unsigned long long pages = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%llukB/free_hugepages",
			 (unsigned long long)(b->page / KIB));
		f = fopen(path, "re");
		if (f && fscanf(f, "%llu", &pages) != 1)
			pages = 0;
		if (f)
			fclose(f);
		b->free = pages * b->page;
	}
}

static int temp_file(const char *dir)
{
	char path[4096];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL))
		return fd;
	if (snprintf(path, sizeof(path), "%s/kelvin-ram-XXXXXX", dir) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

static int backing_open(struct mem_map *m, const struct ram_config *cfg, uint64_t size, struct backing *b,
			struct err *err)
{
	struct stat st;

	b->fd = -1;
	if (stat(cfg->path, &st) == 0 && S_ISDIR(st.st_mode)) {
		b->fd = temp_file(cfg->path);
		b->fresh = true;
	} else {
		b->fd = open(cfg->path, O_RDWR | O_CLOEXEC);
		if (b->fd < 0 && errno == ENOENT) {
			b->fd = open(cfg->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
			if (b->fd >= 0)
				unlink(cfg->path);
			b->fresh = true;
		}
		/* A fresh file of an earlier block has no name any more: each block gets its own. */
		if (!b->fresh)
			b->offset = m->file_used;
	}
	if (b->fd < 0)
		return err_set_errno(err, -errno, "-mem-path '%s': cannot open guest memory", cfg->path);
	backing_stat(b);
	if (size & (b->page - 1))
		return err_set(err, -EINVAL,
			       "-mem-path '%s': %llu KiB of RAM is not a multiple of its page size, %llu KiB; "
			       "change -m",
			       cfg->path, (unsigned long long)(size / KIB), (unsigned long long)(b->page / KIB));
	if (fstat(b->fd, &st) < 0 ||
	    ((uint64_t)st.st_size < b->offset + size && ftruncate(b->fd, (off_t)(b->offset + size)) < 0))
		return err_set_errno(err, -errno, "-mem-path '%s': cannot make it %llu MiB large", cfg->path,
				     (unsigned long long)((b->offset + size) / MIB));
	if (!b->fresh)
		m->file_used += size;
	return 0;
}

static int no_space(struct err *err, int code, const struct ram_config *cfg, const struct backing *b, uint64_t size)
{
	if (!cfg->path)
		return err_set_errno(err, code,
				     "guest RAM: cannot get %llu MiB, the host has %llu MiB available; "
				     "use a smaller -m",
				     (unsigned long long)(size / MIB),
				     (unsigned long long)(host_mem_available() / MIB));
	if (b->huge)
		return err_set(err, code,
			       "-mem-path '%s': needs %llu huge pages of %llu KiB, %llu are free; "
			       "raise vm.nr_hugepages or use a smaller -m",
			       cfg->path, (unsigned long long)(size / b->page), (unsigned long long)(b->page / KIB),
			       (unsigned long long)(b->free / b->page));
	return err_set_errno(err, code, "-mem-path '%s': cannot map %llu MiB, %llu MiB are free there", cfg->path,
			     (unsigned long long)(size / MIB), (unsigned long long)(b->free / MIB));
}

/* Map `size` bytes so that host address and gpa agree modulo `align`. */
static uint8_t *map_aligned(uint64_t gpa, uint64_t size, uint64_t align, int flags, const struct backing *b)
{
	uint64_t skew = gpa & (align - 1);
	uint8_t *area = mmap(NULL, size + 2 * align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *at, *got;
	int saved;

	if (area == MAP_FAILED)
		return NULL;
	at = (uint8_t *)ALIGN_UP((uintptr_t)area, align) + skew;
	got = mmap(at, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, b->fd, (off_t)b->offset);
	saved = errno;
	if (got == MAP_FAILED) {
		munmap(area, size + 2 * align);
		errno = saved;
		return NULL;
	}
	if (at > area)
		munmap(area, (size_t)(at - area));
	munmap(at + size, (size_t)(area + size + 2 * align - (at + size)));
	return at;
}

static int populate(uint8_t *host, uint64_t size, uint64_t page)
{
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
	if (madvise(host, size, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return errno == EFAULT ? -ENOMEM : -errno; /* EFAULT: where touching would raise SIGBUS */
	/* Kernels before 5.14: touch each page, keeping a file's content. */
	for (uint64_t off = 0; off < size; off += page) {
		volatile uint8_t *p = host + off;
		uint8_t kept = *p;

		*p = kept;
	}
	return 0;
}

static void advise(uint8_t *host, uint64_t size, const struct ram_config *cfg)
{
	if (!cfg || !cfg->path)
		madvise(host, size, MADV_HUGEPAGE);
	if (cfg && cfg->merge)
		madvise(host, size, MADV_MERGEABLE);
	if (!cfg || !cfg->dump)
		madvise(host, size, MADV_DONTDUMP);
}

int mem_add_ram(struct mem_map *m, const char *name, uint64_t gpa, uint64_t size, const struct ram_config *cfg,
		bool readonly, struct err *err)
{
	static const struct ram_config anonymous = {.dump = true};
	struct backing b = {.fd = -1, .page = PAGE_SIZE};
	struct ram_block blk = {.gpa = gpa, .size = size, .readonly = readonly};
	uint64_t align = size >= HUGE_ALIGN ? HUGE_ALIGN : PAGE_SIZE;
	int flags, rc;

	BUG_ON((gpa | size) & (PAGE_SIZE - 1) || !size || m->nblocks == MEM_MAX_BLOCKS);
	if (!cfg)
		cfg = &anonymous;
	if (m->pages + size / PAGE_SIZE > MEM_MAX_PAGES)
		return err_set(err, -EINVAL, "guest RAM: %llu MiB is more than Kelvin supports",
			       (unsigned long long)(size / MIB));
	snprintf(blk.name, sizeof(blk.name), "%s", name);
	if (cfg->path) {
		rc = backing_open(m, cfg, size, &b, err);
		if (rc < 0)
			goto fail;
		flags = cfg->share ? MAP_SHARED : MAP_PRIVATE;
	} else {
		if (cfg->share) {
			b.fd = shared_memory_file(name);
			if (b.fd < 0 || ftruncate(b.fd, (off_t)size) < 0) {
				rc = err_set_errno(err, b.fd < 0 ? b.fd : -errno,
						   "guest RAM: cannot create shared memory");
				goto fail;
			}
		}
		flags = cfg->share ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	}
	blk.host = map_aligned(gpa, size, MAX(align, b.page), flags, &b);
	if (!blk.host) {
		rc = no_space(err, -errno, cfg, &b, size);
		goto fail;
	}
	advise(blk.host, size, cfg);
	if (cfg->prealloc) {
		rc = populate(blk.host, size, b.page);
		if (rc < 0) {
			no_space(err, rc, cfg, &b, size);
			munmap(blk.host, size);
			goto fail;
		}
	}
	blk.fd = b.fd;
	blk.fd_offset = b.offset;
	blk.shared = cfg->share;
	blk.page0 = m->pages;
	rc = mem_publish_block(m, &blk, err);
	if (rc == 0)
		return 0;
	munmap(blk.host, size);
fail:
	if (b.fd >= 0)
		close(b.fd);
	return rc;
}

void mem_ram_free(struct mem_map *m)
{
	for (unsigned i = 0; i < m->nblocks; i++) {
		munmap(m->block[i].host, m->block[i].size);
		if (m->block[i].fd >= 0)
			close(m->block[i].fd);
	}
	m->nblocks = 0;
}

/* ---- giving memory back ------------------------------------------------------------- */

/* Bytes off..off+len of a block, page aligned. */
static bool block_discard(struct mem_map *m, const struct ram_block *b, uint64_t off, uint64_t len)
{
	if (b->readonly || len == 0)
		return false;
	/* A shared mapping keeps its pages in the file: those must go. */
	if (b->shared && b->fd >= 0
		? fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(b->fd_offset + off), (off_t)len)
		: madvise(b->host + off, len, MADV_DONTNEED))
		return false; /* pages the host cannot split or take: they stay */
	mem_mark_written(m, b->host + off, len);
	return true;
}

bool mem_discard_host(struct mem_map *m, uint8_t *host, uint64_t len)
{
	const struct ram_block *b = mem_block_of_host(m, host);

	return b && len <= b->size - (uint64_t)(host - b->host) && block_discard(m, b, (uint64_t)(host - b->host), len);
}

void mem_discard(struct mem_map *m, uint64_t gpa, uint64_t len)
{
	gpa = gpa & PAGE_MASK;
	while (len) {
		const struct ram_block *b = mem_ram_block(m, gpa);
		const uint64_t n = b ? MIN(len, b->gpa + b->size - gpa) : MIN(len, PAGE_SIZE);

		if (b)
			block_discard(m, b, gpa - b->gpa, n & PAGE_MASK);
		gpa += n;
		len -= n;
	}
}
