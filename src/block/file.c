// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The protocol under every image: a regular file or block device of the host,
 * opened and its operations carried out through struct aio. This file opens and
 * describes; file_io.c moves data.
 *
 * Locking: none; everything runs in the thread of the file's loop.
 */
#include "block/file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/util.h"
#include "io/iothread.h"

/* One engine instance serves all files of a loop that want the same kind. */
struct shared_aio {
	struct loop *loop;
	enum aio_engine engine; /* as asked for */
	struct aio *aio;
	unsigned users;
	struct shared_aio *next;
};
static struct shared_aio *shared_aios; /* main thread: nodes open and close there */

/* An engine is made and ended in its loop's thread. */
struct aio_birth {
	struct loop *loop;
	enum aio_engine engine;
	struct err *err;
	struct aio *aio;
};

static void aio_make(void *arg)
{
	struct aio_birth *b = arg;
	b->aio = aio_create(b->loop, b->engine, b->err);
}

static void aio_end(void *arg)
{
	aio_destroy(arg);
}

static struct aio *aio_get(struct loop *l, enum aio_engine engine, struct err *err)
{
	struct aio_birth birth = {l, engine, err, NULL};
	struct shared_aio *s;

	for (s = shared_aios; s; s = s->next) {
		if (s->loop == l && s->engine == engine) {
			s->users++;
			return s->aio;
		}
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	iothread_call(l, aio_make, &birth);
	s->aio = birth.aio;
	if (!s->aio) {
		free(s);
		return NULL;
	}
	s->loop = l;
	s->engine = engine;
	s->users = 1;
	s->next = shared_aios;
	shared_aios = s;
	return s->aio;
}

static void aio_put(struct aio *a)
{
	for (struct shared_aio **p = &shared_aios; *p; p = &(*p)->next) {
		struct shared_aio *s = *p;
		if (s->aio != a)
			continue;
		if (--s->users == 0) {
			*p = s->next;
			iothread_call(s->loop, aio_end, s->aio);
			free(s);
		}
		return;
	}
	BUG("aio_put: not shared");
}

/* "nbd:host:1" has a protocol; "./a:b" and "/x:y" have not. */
static bool has_protocol(const char *name, char *proto, size_t size)
{
	size_t n = 0;

	while (isalnum((unsigned char)name[n]) || name[n] == '+' || name[n] == '-' || name[n] == '.' || name[n] == '_')
		n++;
	if (n == 0 || name[n] != ':' || n >= size)
		return false;
	memcpy(proto, name, n);
	proto[n] = 0;
	return true;
}

static const struct block_protocol *const protocols[] = {&block_null_protocol, &block_nbd_protocol,
							 &block_iscsi_protocol};

static const struct block_protocol *find_protocol(const char *scheme)
{
	for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
		for (const char *const *s = protocols[i]->schemes; *s; s++)
			if (strcmp(*s, scheme) == 0)
				return protocols[i];
	return NULL;
}

static int resolve_name(const char **name, const struct block_protocol **protocol, struct err *err)
{
	static const char *const later[] = {"iser", "http",    "https", "ftp",	 "ftps", "ssh",	     "nfs",
					    "rbd",  "gluster", "fat",	"vvfat", "nvme", "blkdebug", "quorum"};
	char proto[40];

	if (!has_protocol(*name, proto, sizeof(proto)))
		return 0;
	if (strcmp(proto, "file") == 0 || strcmp(proto, "host_device") == 0) {
		*name += strlen(proto) + 1;
		return 0;
	}
	*protocol = find_protocol(proto);
	if (*protocol)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(later); i++)
		if (strcmp(proto, later[i]) == 0)
			return err_set(err, -ENOTSUP, "Could not open '%s': protocol '%s' is not implemented", *name,
				       proto);
	return err_set(err, -EINVAL, "Could not open '%s': Unknown protocol '%s' (a file of that name: './%s')", *name,
		       proto, *name);
}

bool block_file_is_remote(const char *name)
{
	char proto[40];

	return has_protocol(name, proto, sizeof(proto)) && find_protocol(proto);
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

bool block_url_option(const char *url, const char *key, char *out, size_t size)
{
	const char *p = strchr(url, '?');
	const size_t klen = strlen(key);
	size_t n = 0;

	while (p && (strncmp(p + 1, key, klen) != 0 || p[1 + klen] != '='))
		p = strchr(p + 1, '&');
	if (!p)
		return false;
	for (p += klen + 2; *p && *p != '&'; p++) {
		char c = *p;
		if (c == '%' && hex(p[1]) >= 0 && hex(p[2]) >= 0) {
			c = (char)(hex(p[1]) << 4 | hex(p[2]));
			p += 2;
		}
		if (n + 1 >= size)
			return false;
		out[n++] = c;
	}
	out[n] = 0;
	return true;
}

static int open_store(struct block_file *f, const char *name, const struct block_open *o, struct err *err)
{
	int ret;

	f->is_device = f->direct = true; /* sizes are fixed, offsets aligned */
	f->align = f->mem_align = 1;
	ret = f->proto->open(f, name, o, err);
	if (ret)
		f->proto = NULL;
	else if (f->store_read_only && !o->read_only)
		ret = err_set(err, -EACCES, "Could not open '%s': the server allows only reading", name);
	return ret;
}

static int open_fd(const char *name, const struct block_open *o, struct err *err)
{
	int flags = (o->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY | (o->direct ? O_DIRECT : 0);
	struct stat st;
	int fd;

	if (stat(name, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return err_set_errno(err, -EISDIR, "Could not open '%s'", name);
		if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
			return err_set(err, -EINVAL, "Could not open '%s': neither a regular file nor a block device",
				       name);
		/* O_EXCL without O_CREAT claims a block device: it fails while the host has it mounted. */
		if (S_ISBLK(st.st_mode) && !o->read_only && !o->force)
			flags |= O_EXCL;
	}
	do {
		fd = open(name, flags);
	} while (fd < 0 && errno == EINTR);
	if (fd >= 0)
		return fd;
	if (errno == EBUSY && (flags & O_EXCL))
		return err_set(err, -EBUSY,
			       "Could not open '%s': the host has this device mounted or in use; unmount it first, or "
			       "force=on to risk its data",
			       name);
	if (errno == EINVAL && o->direct)
		return err_set(err, -EINVAL,
			       "Could not open '%s': filesystem does not support O_DIRECT; use cache=writeback", name);
	return err_set_errno(err, -errno, "Could not open '%s'", name);
}

/* Which offsets, lengths and addresses O_DIRECT accepts. */
static void find_direct_alignment(struct block_file *f)
{
	struct statx stx;
	unsigned ssz = 0;
	void *buf;

	if (f->is_device && ioctl(f->fd, BLKSSZGET, &ssz) == 0 && ssz >= 512 && ssz <= 65536) {
		f->align = ssz;
		f->mem_align = 512;
		return;
	}
#ifdef STATX_DIOALIGN
	if (statx(f->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 && (stx.stx_mask & STATX_DIOALIGN) &&
	    stx.stx_dio_offset_align && stx.stx_dio_mem_align) {
		f->align = MAX(stx.stx_dio_offset_align, 512u);
		f->mem_align = stx.stx_dio_mem_align;
		return;
	}
#else
	(void)stx;
#endif
	f->align = f->mem_align = 4096;
	buf = aligned_alloc(4096, 8192);
	if (!buf)
		return;
	if (pread(f->fd, (char *)buf + 512, 512, 0) >= 0)
		f->align = f->mem_align = 512;
	free(buf);
}

/* Where a write into the page cache waits for a disk of this host at most, never for a server. */
static bool is_local(int fd)
{
	static const uint32_t local[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,
					 TMPFS_MAGIC};
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(local); i++)
		if ((uint32_t)fs.f_type == local[i])
			return true;
	return false;
}

static int describe(struct block_file *f, const char *name, struct err *err)
{
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return err_set_errno(err, -errno, "Could not open '%s'", name);
	f->is_device = S_ISBLK(st.st_mode);
	f->size = (uint64_t)st.st_size;
	if (f->is_device && ioctl(f->fd, BLKGETSIZE64, &f->size) < 0)
		return err_set_errno(err, -errno, "Could not get the size of '%s'", name);
	f->align = f->mem_align = 1;
	f->quick_writes = !f->direct && !f->is_device && is_local(f->fd);
	if (f->direct)
		find_direct_alignment(f);
	return 0;
}

int block_file_open(struct block_file **out, const struct block_open *o, struct loop *l, struct err *err)
{
	const struct block_protocol *proto = NULL;
	const char *name = o->filename;
	struct block_file *f;
	int ret;

	ret = resolve_name(&name, &proto, err);
	if (ret)
		return ret;
	f = calloc(1, sizeof(*f));
	if (!f)
		return err_set(err, -ENOMEM, "out of memory");
	f->direct = o->direct;
	f->no_flush = o->no_flush;
	f->discard_unmap = o->discard_unmap;
	f->engine = o->aio;
	f->write_gen = 1; /* what others wrote before is not known to be durable */
	f->waiting_tail = &f->waiting;
	f->loop = l;
	f->proto = proto;
	f->fd = proto ? -1 : open_fd(name, o, err);
	ret = proto ? open_store(f, name, o, err) : f->fd < 0 ? f->fd : describe(f, name, err);
	if (!ret && o->locking && !f->is_device)
		ret = block_lock_acquire(f->fd, o->read_only, name, err);
	if (!ret) {
		f->aio = aio_get(l, o->aio, err);
		ret = f->aio ? 0 : err && err->code ? err->code : -EIO;
	}
	if (ret) {
		if (f->proto)
			f->proto->close(f);
		if (f->fd >= 0)
			close(f->fd);
		free(f);
		return ret;
	}
	*out = f;
	return 0;
}

void block_file_close(struct block_file *f)
{
	BUG_ON(f->tracked || f->waiting);
	block_file_free_ops(f);
	if (f->proto)
		f->proto->close(f);
	else
		close(f->fd);
	aio_put(f->aio);
	free(f);
}

int block_file_set_loop(struct block_file *f, struct loop *l, struct err *err)
{
	struct err why = {0};
	struct aio *aio = aio_get(l, f->engine, &why);

	if (!aio)
		return err_set(err, why.code, "%s", why.msg);
	if (f->proto && f->proto->set_loop(f, l, err)) {
		aio_put(aio);
		return err && err->code ? err->code : -EIO;
	}
	aio_put(f->aio);
	f->aio = aio;
	f->loop = l;
	return 0;
}

uint64_t block_file_size(const struct block_file *f)
{
	struct stat st;

	/* Formats make their file longer by writing. */
	return !f->is_device && fstat(f->fd, &st) == 0 ? (uint64_t)st.st_size : f->size;
}

uint32_t block_file_alignment(const struct block_file *f)
{
	return f->align;
}

bool block_file_is(const struct block_file *f, const struct stat *st)
{
	struct stat mine;

	return f->fd >= 0 && fstat(f->fd, &mine) == 0 && mine.st_dev == st->st_dev && mine.st_ino == st->st_ino;
}

bool block_file_is_device(const struct block_file *f)
{
	return f->is_device;
}

struct aio *block_file_aio(const struct block_file *f)
{
	return f->aio;
}

/* Written zeros, for preallocation=full. */
static int fill_zeros(struct block_file *f, uint64_t from, uint64_t to)
{
	const size_t size = 1 * MIB;
	uint8_t *buf = aligned_alloc(4096, size);
	int ret = buf ? 0 : -ENOMEM;

	if (buf)
		memset(buf, 0, size);
	/* O_DIRECT: whole blocks; what is before `from` in its block is data, so begin behind it. */
	from = ALIGN_UP(from, (uint64_t)MAX(f->align, 1u));
	while (!ret && from < to) {
		ssize_t n = pwrite(f->fd, buf, (size_t)MIN(size, ALIGN_UP(to - from, (uint64_t)f->align)), (off_t)from);
		if (n < 0 && errno != EINTR)
			ret = -errno;
		else if (n > 0)
			from += (uint64_t)n;
	}
	free(buf);
	return ret;
}

int block_file_truncate(struct block_file *f, uint64_t size, enum block_prealloc p, struct err *err)
{
	const uint64_t old = block_file_size(f);
	int ret = 0;

	if (f->is_device)
		return size <= f->size
			   ? 0
			   : err_set(err, -ENOSPC, "the device has only %llu bytes", (unsigned long long)f->size);
	if (ftruncate(f->fd, (off_t)size) < 0)
		return err_set_errno(err, -errno, "the file cannot be resized to %llu bytes", (unsigned long long)size);
	if (size > old && p == BLOCK_PREALLOC_FALLOC)
		ret = -posix_fallocate(f->fd, (off_t)old, (off_t)(size - old));
	else if (size > old && p == BLOCK_PREALLOC_FULL)
		ret = fill_zeros(f, old, size);
	if (!ret && size > old && p == BLOCK_PREALLOC_FULL && ftruncate(f->fd, (off_t)size) < 0)
		ret = -errno;
	f->write_gen++;
	if (ret) {
		if (ftruncate(f->fd, (off_t)old) < 0)
			ret = ret ? ret : -errno;
		return err_set_errno(err, ret, "%llu bytes could not be preallocated", (unsigned long long)size);
	}
	f->size = size;
	if (f->hook)
		f->hook->truncated(f->hook, size);
	return 0;
}

static int pread_host(struct block_file *f, void *buf, size_t len, uint64_t offset)
{
	const uint64_t lo = ALIGN_DOWN(offset, 4096), hi = ALIGN_UP(offset + len, 4096);
	uint8_t *tmp = aligned_alloc(4096, hi - lo);
	ssize_t got = 0, n;
	int ret = 0;

	if (!tmp)
		return -ENOMEM;
	memset(tmp, 0, hi - lo);
	while ((uint64_t)got < hi - lo) {
		n = pread(f->fd, tmp + got, hi - lo - (size_t)got, (off_t)(lo + (uint64_t)got));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && got == 0)
			ret = -errno;
		if (n <= 0 || n % 512)
			break;
		got += n;
	}
	memcpy(buf, tmp + (offset - lo), len);
	free(tmp);
	return ret;
}

static int pread_store(struct block_file *f, void *buf, size_t len, uint64_t offset)
{
	const size_t have = offset < f->size ? (size_t)MIN(len, f->size - offset) : 0;

	memset((char *)buf + have, 0, len - have);
	return have ? block_file_wait_buf(f, f->loop, BLOCK_READ, offset, buf, have) : 0;
}

int block_file_pread(struct block_file *f, void *buf, size_t len, uint64_t offset)
{
	if (f->proto)
		return pread_store(f, buf, len, offset);
	return pread_host(f, buf, len, offset);
}
