/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PVH start of an ELF kernel (Xen's "x86/HVM direct boot ABI"): the entry point
 * comes from the note XEN_ELFNOTE_PHYS32_ENTRY, CPU 0 starts in 32-bit protected
 * mode without paging, EBX points to struct hvm_start_info.
 *
 * The file is not trusted: counts and sizes are bounded before they are used.
 */
#include "machine/boot.h"
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include "base/util.h"

#define XEN_ELFNOTE_PHYS32_ENTRY 18
#define HVM_START_MAGIC		 0x336ec578
#define HVM_START_SIZE		 56
#define HVM_MODLIST_SIZE	 32
#define HVM_MEMMAP_SIZE		 24

#define PVH_MODLIST_ADDR (BOOT_PARAMS_ADDR + 0x100)
#define PVH_MEMMAP_ADDR	 (BOOT_PARAMS_ADDR + 0x200)

#define PVH_MAX_NOTES	(1 * MIB)
#define PVH_CMDLINE_MAX 2047 /* what Linux keeps */

/* ---- entry point -------------------------------------------------------- */

/* Look for the entry point in one PT_NOTE segment. Malformed notes end the search. */
static bool pvh_scan_notes(uint32_t *entry, const uint8_t *notes, uint64_t len, uint64_t align)
{
	uint64_t at = 0;

	align = align == 8 ? 8 : 4;
	while (len - at >= 12) {
		uint64_t namesz = ld32le(notes + at), descsz = ld32le(notes + at + 4);
		uint32_t type = ld32le(notes + at + 8);
		uint64_t name = at + 12, desc = ALIGN_UP(name + namesz, align), next = ALIGN_UP(desc + descsz, align);

		if (desc > len || descsz > len - desc)
			return false;
		if (type == XEN_ELFNOTE_PHYS32_ENTRY && namesz == 4 && !memcmp(notes + name, "Xen", 4) && descsz >= 4) {
			*entry = ld32le(notes + desc);
			return true;
		}
		if (next > len)
			return false;
		at = next;
	}
	return false;
}

static int pvh_find_entry(const struct boot_env *env, const struct boot_elf *img, uint32_t *entry, struct err *err)
{
	bool found = false;

	for (unsigned i = 0; i < img->n && !found; i++) {
		const struct boot_elf_segment *s = &img->seg[i];
		uint8_t *notes;
		int r;

		if (s->type != PT_NOTE || !s->filesz)
			continue;
		if (s->filesz > PVH_MAX_NOTES)
			return boot_elf_bad(env, err, "its ELF notes are larger than 1 MiB");
		notes = malloc(s->filesz);
		if (!notes)
			return err_set(err, -ENOMEM, "kernel \"%s\": out of memory", env->kernel->path);
		r = boot_file_read(env->kernel, s->offset, notes, s->filesz, err);
		if (!r)
			found = pvh_scan_notes(entry, notes, s->filesz, s->align);
		free(notes);
		if (r)
			return r;
	}
	if (!found)
		return boot_elf_bad(
		    env, err,
		    "is an ELF file without a PVH entry point (XEN_ELFNOTE_PHYS32_ENTRY); use the bzImage "
		    "(vmlinuz), or build with CONFIG_PVH");
	return 0;
}

/* ---- start information --------------------------------------------------- */

static int pvh_write_start_info(const struct boot_env *env, uint64_t initrd, uint64_t initrd_size, struct err *err)
{
	uint8_t info[HVM_START_SIZE] = {0}, mod[HVM_MODLIST_SIZE] = {0}, map[BOOT_E820_MAX * HVM_MEMMAP_SIZE] = {0};
	int r;

	st32le(info, HVM_START_MAGIC);
	st32le(info + 4, 1); /* version: with the memory map */
	st32le(info + 12, initrd_size ? 1 : 0);
	st64le(info + 16, initrd_size ? PVH_MODLIST_ADDR : 0);
	st64le(info + 24, BOOT_CMDLINE_ADDR);
	st64le(info + 32, env->rsdp);
	st64le(info + 40, PVH_MEMMAP_ADDR);
	st32le(info + 48, env->ne820);
	st64le(mod, initrd);
	st64le(mod + 8, initrd_size);
	for (unsigned i = 0; i < env->ne820; i++) {
		uint8_t *e = map + i * HVM_MEMMAP_SIZE;

		st64le(e, env->e820[i].addr);
		st64le(e + 8, env->e820[i].size);
		st32le(e + 16, env->e820[i].type);
	}
	r = boot_write(env, BOOT_PARAMS_ADDR, info, sizeof(info), err);
	if (!r)
		r = boot_write(env, PVH_MODLIST_ADDR, mod, sizeof(mod), err);
	return r ? r : boot_write(env, PVH_MEMMAP_ADDR, map, sizeof(map), err);
}

int boot_load_pvh(const struct boot_env *env, struct cpu_state *bsp, struct err *err)
{
	struct boot_elf img = {.n = 0};
	uint64_t initrd, initrd_size;
	uint32_t entry = 0;
	int r = boot_elf_read(env, &img, err);

	if (!r)
		r = pvh_find_entry(env, &img, &entry, err);
	if (!r)
		r = boot_elf_load(env, &img, entry, err);
	if (!r)
		r = boot_write_cmdline(env, PVH_CMDLINE_MAX, err);
	if (!r)
		r = boot_load_initrd(env, img.end, env->low_end, &initrd, &initrd_size, err);
	if (!r)
		r = pvh_write_start_info(env, initrd, initrd_size, err);
	if (!r)
		r = boot_set_segments(env, bsp, 32, err);
	if (r)
		return r;
	bsp->cr0 = CR0_PE | CR0_ET;
	bsp->cr3 = 0;
	bsp->cr4 = 0;
	bsp->efer = 0;
	bsp->rflags = 2;
	bsp->rip = entry;
	bsp->gpr[R_RBX] = BOOT_PARAMS_ADDR;
	bsp->gpr[R_RSP] = BOOT_STACK_TOP;
	bsp->mp_state = MP_RUNNING;
	return 0;
}
