/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Multiboot 1 (the Multiboot Specification 0.6.96): a header in the first 8 KiB,
 * an ELF32 file or a flat one with its addresses in the header; CPU 0 starts in
 * 32-bit protected mode without paging, EAX holds the magic, EBX points to the
 * information. Each -initrd file is a module, with its path as its string.
 *
 * The file is not trusted. Locking: as boot.h.
 */
#include "machine/boot.h"
#include <errno.h>
#include <stdio.h>
#include "base/util.h"

#define MB_SEARCH      8192
#define MB_HEADER      0x1badb002u
#define MB_LOADED      0x2badb002u
#define MB_PAGE_ALIGN  BIT(0)
#define MB_MEMORY_INFO BIT(1)
#define MB_VIDEO_MODE  BIT(2)
#define MB_ADDRESSES   BIT(16)
#define MB_MANDATORY   0xffffu

#define INFO_SIZE    88
#define INFO_MEMORY  BIT(0)
#define INFO_CMDLINE BIT(2)
#define INFO_MODULES BIT(3)
#define INFO_MEMMAP  BIT(6)
#define INFO_LOADER  BIT(9)
#define MEMMAP_SIZE  24 /* with the size field, which counts the other 20 */
#define MODULE_SIZE  16
#define MAX_MODULES  64

/* Beside the information at BOOT_PARAMS_ADDR */
#define MB_MEMMAP_ADDR	(BOOT_PARAMS_ADDR + 0x100)
#define MB_LOADER_ADDR	(BOOT_PARAMS_ADDR + 0x400)
#define MB_MODULES_ADDR (BOOT_PARAMS_ADDR + 0x800)
#define MB_STRINGS_ADDR (BOOT_PARAMS_ADDR + 0x1000)
#define MB_STRING_MAX	256
#define MB_CMDLINE_MAX	4095

struct mb_header {
	uint32_t off; /* in the file */
	uint32_t flags, header_addr, load_addr, load_end, bss_end, entry;
};

/* 1: there is none. */
static int mb_find(const struct boot_env *env, struct mb_header *h, struct err *err)
{
	uint8_t buf[MB_SEARCH] = {0};
	uint64_t len = MIN(env->kernel->size, (uint64_t)MB_SEARCH);
	int r = boot_file_read(env->kernel, 0, buf, len, err);

	if (r)
		return r;
	for (uint32_t at = 0; at + 12 <= len; at += 4) {
		const uint8_t *p = buf + at;
		uint32_t flags = ld32le(p + 4);

		if (ld32le(p) != MB_HEADER || MB_HEADER + flags + ld32le(p + 8) != 0)
			continue;
		*h = (struct mb_header){.off = at, .flags = flags};
		if (flags & MB_ADDRESSES) {
			if (at + 32 > len)
				return boot_elf_bad(env, err, "its multiboot header is cut short");
			h->header_addr = ld32le(p + 12);
			h->load_addr = ld32le(p + 16);
			h->load_end = ld32le(p + 20);
			h->bss_end = ld32le(p + 24);
			h->entry = ld32le(p + 28);
		}
		return 0;
	}
	return 1;
}

/* ---- the image --------------------------------------------------------- */

static int mb_load_flat(const struct boot_env *env, const struct mb_header *h, uint64_t *end, struct err *err)
{
	uint64_t before, len, bss;
	uint8_t *host;
	int r;

	if (h->header_addr < h->load_addr || h->header_addr - h->load_addr > h->off)
		return boot_elf_bad(env, err, "its multiboot header lies outside what it says to load");
	before = h->off - (h->header_addr - h->load_addr);
	len = env->kernel->size - before;
	if (h->load_end) {
		if (h->load_end < h->load_addr || h->load_end - h->load_addr > len)
			return boot_elf_bad(env, err, "is cut short: its multiboot header asks for more");
		len = h->load_end - h->load_addr;
	}
	bss = h->bss_end > h->load_addr + len ? h->bss_end - (h->load_addr + len) : 0;
	if (h->load_addr < BOOT_HIGH_START)
		return err_set(err, -ENOEXEC, "kernel \"%s\": loads at 0x%x, below 1 MiB", env->kernel->path,
			       h->load_addr);
	if (h->load_addr + len + bss > env->low_end)
		return err_set(err, -ENOMEM, "kernel \"%s\": needs memory up to 0x%llx: give more with -m",
			       env->kernel->path, (unsigned long long)(h->load_addr + len + bss));
	if (h->entry < h->load_addr || h->entry - h->load_addr >= len)
		return boot_elf_bad(env, err, "its multiboot entry point is outside of what is loaded");
	r = boot_file_load(env->kernel, before, env->mem, h->load_addr, len, err);
	if (r)
		return r;
	host = bss ? mem_ram_ptr(env->mem, h->load_addr + len, bss) : NULL;
	if (host) {
		memset(host, 0, bss);
		mem_mark_written(env->mem, host, bss);
	}
	*end = h->load_addr + len + bss;
	return 0;
}

/* The entry is a virtual address to ELF; multiboot kernels link it where it is loaded. */
static int mb_load_elf(const struct boot_env *env, struct mb_header *h, struct boot_elf *img, struct err *err)
{
	int r = boot_elf_load(env, img, img->entry, err);

	h->entry = (uint32_t)img->entry;
	return r;
}

/* ---- information --------------------------------------------------------- */

static int mb_write_module(const struct boot_env *env, unsigned n, uint64_t start, struct err *err)
{
	uint64_t text = MB_STRINGS_ADDR + n * MB_STRING_MAX;
	char path[MB_STRING_MAX] = {0};
	uint8_t mod[MODULE_SIZE] = {0};
	int r;

	snprintf(path, sizeof(path), "%s", env->initrd[n].path);
	st32le(mod, (uint32_t)start);
	st32le(mod + 4, (uint32_t)(start + env->initrd[n].size));
	st32le(mod + 8, (uint32_t)text);
	r = boot_write(env, text, path, sizeof(path), err);
	return r ? r : boot_write(env, MB_MODULES_ADDR + n * MODULE_SIZE, mod, sizeof(mod), err);
}

/* One after another behind the kernel, each at a page. */
static int mb_load_modules(const struct boot_env *env, uint64_t at, struct err *err)
{
	if (env->ninitrd > MAX_MODULES)
		return err_set(err, -E2BIG, "-initrd: %u modules; multiboot gets %u at most", env->ninitrd,
			       MAX_MODULES);
	for (unsigned n = 0; n < env->ninitrd; n++) {
		int r;

		at = ALIGN_UP(at, PAGE_SIZE);
		if (at > env->low_end || env->initrd[n].size > env->low_end - at)
			return err_set(err, -ENOMEM, "initrd \"%s\": does not fit behind the kernel: give more with -m",
				       env->initrd[n].path);
		r = boot_file_load(&env->initrd[n], 0, env->mem, at, env->initrd[n].size, err);
		if (!r)
			r = mb_write_module(env, n, at, err);
		if (r)
			return r;
		at += env->initrd[n].size;
	}
	return 0;
}

static int mb_write_info(const struct boot_env *env, struct err *err)
{
	static const char loader[] = "kelvin";
	uint8_t info[INFO_SIZE] = {0}, map[BOOT_E820_MAX * MEMMAP_SIZE] = {0};
	int r;

	st32le(info, INFO_MEMORY | INFO_CMDLINE | INFO_MEMMAP | INFO_LOADER | (env->ninitrd ? INFO_MODULES : 0));
	st32le(info + 4, (uint32_t)(BOOT_LOW_END / KIB));
	st32le(info + 8, (uint32_t)((env->low_end - BOOT_HIGH_START) / KIB));
	st32le(info + 16, BOOT_CMDLINE_ADDR);
	st32le(info + 20, env->ninitrd);
	st32le(info + 24, (uint32_t)MB_MODULES_ADDR);
	st32le(info + 44, env->ne820 * MEMMAP_SIZE);
	st32le(info + 48, (uint32_t)MB_MEMMAP_ADDR);
	st32le(info + 64, (uint32_t)MB_LOADER_ADDR);
	for (unsigned i = 0; i < env->ne820; i++) {
		uint8_t *e = map + i * MEMMAP_SIZE;

		st32le(e, MEMMAP_SIZE - 4);
		st64le(e + 4, env->e820[i].addr);
		st64le(e + 12, env->e820[i].size);
		st32le(e + 20, env->e820[i].type);
	}
	r = boot_write(env, BOOT_PARAMS_ADDR, info, sizeof(info), err);
	if (!r)
		r = boot_write(env, MB_LOADER_ADDR, loader, sizeof(loader), err);
	return r ? r : boot_write(env, MB_MEMMAP_ADDR, map, sizeof(map), err);
}

int boot_load_multiboot(const struct boot_env *env, struct cpu_state *bsp, struct err *err)
{
	struct boot_elf img = {.n = 0};
	struct mb_header h;
	int r = mb_find(env, &h, err);

	if (r)
		return r;
	if (!(h.flags & MB_ADDRESSES)) {
		struct err ignored = {0};

		/* Not for multiboot after all: a PVH kernel, or a bzImage that has the number by chance. */
		if (boot_elf_read(env, &img, &ignored) || img.is64)
			return 1;
	}
	if (h.flags & MB_MANDATORY & ~(MB_PAGE_ALIGN | MB_MEMORY_INFO | MB_VIDEO_MODE))
		return err_set(err, -ENOEXEC,
			       "kernel \"%s\": its multiboot header demands what is not known: flags 0x%x",
			       env->kernel->path, h.flags);
	r = h.flags & MB_ADDRESSES ? mb_load_flat(env, &h, &img.end, err) : mb_load_elf(env, &h, &img, err);
	if (!r)
		r = boot_write_cmdline(env, MB_CMDLINE_MAX, err);
	if (!r)
		r = mb_load_modules(env, img.end, err);
	if (!r)
		r = mb_write_info(env, err);
	if (!r)
		r = boot_set_segments(env, bsp, 32, err);
	if (r)
		return r;
	bsp->cr0 = CR0_PE | CR0_ET;
	bsp->cr3 = bsp->cr4 = bsp->efer = 0;
	bsp->rflags = 2;
	bsp->rip = h.entry;
	bsp->gpr[R_RAX] = MB_LOADED;
	bsp->gpr[R_RBX] = BOOT_PARAMS_ADDR;
	bsp->gpr[R_RSP] = BOOT_STACK_TOP;
	bsp->mp_state = MP_RUNNING;
	return 0;
}
