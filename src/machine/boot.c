/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the boot protocols share: reading the files, placing the RAM disks, the
 * command line, and the flat segments a kernel starts with.
 */
#include "machine/boot.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/util.h"

#define BOOT_PIPE_STEP (1 * MIB)

/* ---- files ------------------------------------------------------------- */

/* Read a pipe to its end. */
static int boot_file_slurp(struct boot_file *f, uint64_t limit, struct err *err)
{
	uint64_t room = 0;

	for (;;) {
		ssize_t n;

		if (f->size == room) {
			uint8_t *bigger = realloc(f->data, room + BOOT_PIPE_STEP);

			if (!bigger)
				return err_set(err, -ENOMEM, "%s \"%s\": out of memory", f->what, f->path);
			f->data = bigger;
			room += BOOT_PIPE_STEP;
		}
		n = read(f->fd, f->data + f->size, room - f->size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set_errno(err, -errno, "%s \"%s\": cannot read", f->what, f->path);
		if (!n)
			return 0;
		f->size += (uint64_t)n;
		if (f->size > limit)
			return err_set(err, -EFBIG, "%s \"%s\": longer than the guest's memory (%llu MiB)", f->what,
				       f->path, (unsigned long long)(limit / MIB));
	}
}

int boot_file_open(struct boot_file *f, const char *what, const char *path, uint64_t limit, struct err *err)
{
	struct stat st;
	int r = 0;

	*f = (struct boot_file){.what = what, .fd = -1};
	f->path = strdup(path);
	if (!f->path)
		return err_set(err, -ENOMEM, "%s \"%s\": out of memory", what, path);
	f->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (f->fd < 0 || fstat(f->fd, &st))
		r = err_set_errno(err, -errno, "%s \"%s\": cannot open", what, path);
	else if (S_ISDIR(st.st_mode))
		r = err_set(err, -EISDIR, "%s \"%s\": is a folder, not a file", what, path);
	else if (!S_ISREG(st.st_mode))
		r = boot_file_slurp(f, limit, err);
	else
		f->size = (uint64_t)st.st_size;
	if (!r && !f->size)
		r = err_set(err, -EINVAL, "%s \"%s\": is empty", what, path);
	if (r)
		boot_file_close(f);
	return r;
}

void boot_file_close(struct boot_file *f)
{
	if (f->path && f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	free(f->data);
	free(f->path);
	f->data = NULL;
	f->path = NULL;
}

int boot_file_read(const struct boot_file *f, uint64_t off, void *buf, uint64_t len, struct err *err)
{
	uint8_t *p = buf;

	if (off > f->size || len > f->size - off)
		return err_set(err, -EINVAL,
			       "%s \"%s\": is cut short: %llu bytes at offset %llu are missing or beyond its end",
			       f->what, f->path, (unsigned long long)len, (unsigned long long)off);
	if (f->data) {
		memcpy(buf, f->data + off, len);
		return 0;
	}
	while (len) {
		ssize_t n = pread(f->fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set_errno(err, -errno, "%s \"%s\": cannot read", f->what, f->path);
		if (!n)
			return err_set(err, -EIO, "%s \"%s\": has become shorter while it was read", f->what, f->path);
		p += n;
		off += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

int boot_file_load(const struct boot_file *f, uint64_t off, struct mem_map *mem, uint64_t gpa, uint64_t len,
		   struct err *err)
{
	uint8_t *host;
	int r;

	if (!len)
		return 0;
	host = mem_ram_ptr(mem, gpa, len);
	if (!host)
		return err_set(err, -ENOMEM,
			       "%s \"%s\": wants guest memory 0x%llx to 0x%llx, which is not RAM: give more with -m",
			       f->what, f->path, (unsigned long long)gpa, (unsigned long long)(gpa + len - 1));
	r = boot_file_read(f, off, host, len, err);
	mem_mark_written(mem, host, len);
	return r;
}

/* ---- pieces of the hand-over ------------------------------------------- */

int boot_write(const struct boot_env *env, uint64_t gpa, const void *buf, uint64_t len, struct err *err)
{
	if (!dma_write(env->mem, gpa, buf, len))
		return 0;
	return err_set(err, -ENOMEM, "kernel \"%s\": guest memory 0x%llx to 0x%llx is not RAM: give more with -m",
		       env->kernel->path, (unsigned long long)gpa, (unsigned long long)(gpa + len - 1));
}

int boot_write_cmdline(const struct boot_env *env, uint64_t max, struct err *err)
{
	const char *text = env->cmdline ? env->cmdline : "";
	uint64_t len = strlen(text);

	max = MIN(max, BOOT_CMDLINE_MAX - 1);
	if (len > max)
		return err_set(err, -E2BIG, "-append: %llu characters; kernel \"%s\" accepts %llu",
			       (unsigned long long)len, env->kernel->path, (unsigned long long)max);
	return boot_write(env, BOOT_CMDLINE_ADDR, text, len + 1, err);
}

int boot_load_initrd(const struct boot_env *env, uint64_t floor, uint64_t limit, uint64_t *addr, uint64_t *size,
		     struct err *err)
{
	static const uint8_t zero[4];
	uint64_t total = 0, at;

	*addr = *size = 0;
	for (unsigned i = 0; i < env->ninitrd; i++) {
		if (env->initrd[i].size > UINT32_MAX - total)
			return err_set(err, -EFBIG, "initrd \"%s\": too large", env->initrd[i].path);
		total = ALIGN_UP(total, 4ull) + env->initrd[i].size;
	}
	if (!total)
		return 0;
	limit = MIN(limit, env->low_end);
	at = limit >= total ? ALIGN_DOWN(limit - total, PAGE_SIZE) : 0;
	if (at < floor)
		return err_set(err, -ENOMEM,
			       "initrd \"%s\": %llu KiB do not fit between the kernel (up to %llu MiB) and the end of "
			       "low memory (%llu MiB): give more with -m",
			       env->initrd[0].path, (unsigned long long)(total / KIB),
			       (unsigned long long)(floor / MIB), (unsigned long long)(limit / MIB));
	*addr = at;
	*size = total;
	total = 0;
	for (unsigned i = 0; i < env->ninitrd; i++) {
		uint64_t aligned = ALIGN_UP(total, 4ull);
		int r = boot_write(env, at + total, zero, aligned - total, err);

		if (!r)
			r = boot_file_load(&env->initrd[i], 0, env->mem, at + aligned, env->initrd[i].size, err);
		if (r)
			return r;
		total = aligned + env->initrd[i].size;
	}
	return 0;
}

/* Descriptor words (SDM volume 3, 3.4.5): present, DPL 0, limit 4 GB. */
#define GDT_CODE32 0x00cf9b000000ffffull
#define GDT_CODE64 0x00af9b000000ffffull
#define GDT_DATA   0x00cf93000000ffffull
#define GDT_TSS	   0x00008b0000000067ull /* busy, 0x67 bytes at 0 */

int boot_set_segments(const struct boot_env *env, struct cpu_state *s, int bits, struct err *err)
{
	const uint64_t gdt[] = {0, 0, bits == 64 ? GDT_CODE64 : GDT_CODE32, GDT_DATA, GDT_TSS, 0};
	static const enum cpu_seg data[] = {S_DS, S_ES, S_FS, S_GS, S_SS};
	int r = boot_write(env, BOOT_GDT_ADDR, gdt, sizeof(gdt), err);

	if (r)
		return r;
	s->gdtr.base = BOOT_GDT_ADDR;
	s->gdtr.limit = sizeof(gdt) - 1;
	s->idtr.base = 0;
	s->idtr.limit = 0;
	s->seg[S_CS] = (struct cpu_segment){.sel = BOOT_KERNEL_CS,
					    .type = 0xb, /* execute, read, accessed */
					    .s = true,
					    .present = true,
					    .l = bits == 64,
					    .db = bits == 32,
					    .g = true,
					    .limit = UINT32_MAX};
	for (unsigned i = 0; i < ARRAY_SIZE(data); i++)
		s->seg[data[i]] = (struct cpu_segment){.sel = BOOT_KERNEL_DS,
						       .type = 0x3, /* read, write, accessed */
						       .s = true,
						       .present = true,
						       .db = true,
						       .g = true,
						       .limit = UINT32_MAX};
	s->seg[S_TR] = (struct cpu_segment){.sel = BOOT_KERNEL_TSS, .type = 0xb, .present = true, .limit = 0x67};
	s->seg[S_LDTR] = (struct cpu_segment){.unusable = true};
	return 0;
}

int boot_load(const struct boot_env *env, struct cpu_state *bsp, struct err *err)
{
	static const uint8_t elf_magic[4] = {0x7f, 'E', 'L', 'F'};
	uint8_t magic[4];
	int r = boot_load_multiboot(env, bsp, err);

	if (r != 1)
		return r;
	r = boot_file_read(env->kernel, 0, magic, sizeof(magic), err);
	if (r)
		return r;
	if (!memcmp(magic, elf_magic, sizeof(magic)))
		return boot_load_pvh(env, bsp, err);
	return boot_load_linux(env, bsp, err);
}
