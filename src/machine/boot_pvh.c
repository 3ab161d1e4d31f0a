/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PVH start of an ELF kernel (Xen's "x86/HVM direct boot ABI"): the entry point
 * comes from the note XEN_ELFNOTE_PHYS32_ENTRY, CPU 0 starts in 32-bit protected
 * mode without paging, EBX points to struct hvm_start_info. ELF: System V ABI,
 * chapters 4 and 5.
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

#define PVH_MAX_PHDRS	64
#define PVH_MAX_NOTES	(1 * MIB)
#define PVH_CMDLINE_MAX 2047 /* what Linux keeps */

/* One program header, of either ELF class. */
struct pvh_segment {
	uint32_t type;
	uint64_t offset, paddr, filesz, memsz, align;
};

struct pvh_image {
	struct pvh_segment seg[PVH_MAX_PHDRS];
	unsigned n;
	bool have_entry;
	uint32_t entry;
	uint64_t end; /* of the highest segment */
};

/* ---- ELF --------------------------------------------------------------- */

static int pvh_bad(const struct boot_env *env, struct err *err, const char *why)
{
	return err_set(err, -ENOEXEC, "kernel \"%s\": %s", env->kernel->path, why);
}

static int pvh_read_phdrs(const struct boot_env *env, struct pvh_image *img, struct err *err)
{
	uint8_t raw[sizeof(Elf64_Ehdr)];
	uint64_t phoff;
	unsigned phnum, phsize, want;
	bool is64;
	int r = boot_file_read(env->kernel, 0, raw, sizeof(raw), err);

	if (r)
		return r;
	is64 = raw[EI_CLASS] == ELFCLASS64;
	if ((!is64 && raw[EI_CLASS] != ELFCLASS32) || raw[EI_DATA] != ELFDATA2LSB)
		return pvh_bad(env, err, "is an ELF file of another kind of machine");
	if (ld16le(raw + offsetof(Elf64_Ehdr, e_machine)) != (is64 ? EM_X86_64 : EM_386))
		return pvh_bad(env, err, "is an ELF file, but not for x86");
	if (ld16le(raw + offsetof(Elf64_Ehdr, e_type)) != ET_EXEC &&
	    ld16le(raw + offsetof(Elf64_Ehdr, e_type)) != ET_DYN)
		return pvh_bad(env, err, "is an ELF file, but not an executable one");
	phoff = is64 ? ld64le(raw + offsetof(Elf64_Ehdr, e_phoff)) : ld32le(raw + offsetof(Elf32_Ehdr, e_phoff));
	phnum = ld16le(raw + (is64 ? offsetof(Elf64_Ehdr, e_phnum) : offsetof(Elf32_Ehdr, e_phnum)));
	phsize = ld16le(raw + (is64 ? offsetof(Elf64_Ehdr, e_phentsize) : offsetof(Elf32_Ehdr, e_phentsize)));
	want = is64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
	if (!phnum || phnum > PVH_MAX_PHDRS || phsize != want)
		return pvh_bad(env, err, "has no usable ELF program headers");
	for (unsigned i = 0; i < phnum; i++) {
		struct pvh_segment *s = &img->seg[img->n++];
		union {
			Elf64_Phdr p64;
			Elf32_Phdr p32;
		} u;

		if (phoff > env->kernel->size)
			return pvh_bad(env, err, "is cut short: its ELF program headers are missing");
		r = boot_file_read(env->kernel, phoff + (uint64_t)i * phsize, &u, phsize, err);
		if (r)
			return r;
		if (is64)
			*s = (struct pvh_segment){u.p64.p_type,	  u.p64.p_offset, u.p64.p_paddr,
						  u.p64.p_filesz, u.p64.p_memsz,  u.p64.p_align};
		else
			*s = (struct pvh_segment){u.p32.p_type,	  u.p32.p_offset, u.p32.p_paddr,
						  u.p32.p_filesz, u.p32.p_memsz,  u.p32.p_align};
	}
	return 0;
}

/* Look for the entry point in one PT_NOTE segment. Malformed notes end the search. */
static void pvh_scan_notes(struct pvh_image *img, const uint8_t *notes, uint64_t len, uint64_t align)
{
	uint64_t at = 0;

	align = align == 8 ? 8 : 4;
	while (len - at >= 12) {
		uint64_t namesz = ld32le(notes + at), descsz = ld32le(notes + at + 4);
		uint32_t type = ld32le(notes + at + 8);
		uint64_t name = at + 12, desc = ALIGN_UP(name + namesz, align), next = ALIGN_UP(desc + descsz, align);

		if (desc > len || descsz > len - desc)
			return;
		if (type == XEN_ELFNOTE_PHYS32_ENTRY && namesz == 4 && !memcmp(notes + name, "Xen", 4) && descsz >= 4) {
			img->entry = ld32le(notes + desc);
			img->have_entry = true;
			return;
		}
		if (next > len)
			return;
		at = next;
	}
}

static int pvh_find_entry(const struct boot_env *env, struct pvh_image *img, struct err *err)
{
	for (unsigned i = 0; i < img->n && !img->have_entry; i++) {
		const struct pvh_segment *s = &img->seg[i];
		uint8_t *notes;
		int r;

		if (s->type != PT_NOTE || !s->filesz)
			continue;
		if (s->filesz > PVH_MAX_NOTES)
			return pvh_bad(env, err, "its ELF notes are larger than 1 MiB");
		notes = malloc(s->filesz);
		if (!notes)
			return err_set(err, -ENOMEM, "kernel \"%s\": out of memory", env->kernel->path);
		r = boot_file_read(env->kernel, s->offset, notes, s->filesz, err);
		if (!r)
			pvh_scan_notes(img, notes, s->filesz, s->align);
		free(notes);
		if (r)
			return r;
	}
	if (!img->have_entry)
		return pvh_bad(env, err,
			       "is an ELF file without a PVH entry point (XEN_ELFNOTE_PHYS32_ENTRY); use the bzImage "
			       "(vmlinuz), or build with CONFIG_PVH");
	return 0;
}

static int pvh_load_segment(const struct boot_env *env, struct pvh_image *img, const struct pvh_segment *s,
			    struct err *err)
{
	uint8_t *host;
	int r;

	if (s->filesz > s->memsz)
		return pvh_bad(env, err, "an ELF segment is larger in the file than in memory");
	if (s->paddr < BOOT_HIGH_START)
		return err_set(err, -ENOEXEC, "kernel \"%s\": an ELF segment loads at 0x%llx, below 1 MiB",
			       env->kernel->path, (unsigned long long)s->paddr);
	if (s->paddr > env->low_end || s->memsz > env->low_end - s->paddr)
		return err_set(err, -ENOMEM,
			       "kernel \"%s\": an ELF segment loads at 0x%llx with %llu KiB, beyond the guest's low "
			       "memory (%llu MiB): give more with -m",
			       env->kernel->path, (unsigned long long)s->paddr, (unsigned long long)(s->memsz / KIB),
			       (unsigned long long)(env->low_end / MIB));
	r = boot_file_load(env->kernel, s->offset, env->mem, s->paddr, s->filesz, err);
	if (r)
		return r;
	host = s->memsz > s->filesz ? mem_ram_ptr(env->mem, s->paddr + s->filesz, s->memsz - s->filesz) : NULL;
	if (host) {
		memset(host, 0, s->memsz - s->filesz);
		mem_mark_written(env->mem, host, s->memsz - s->filesz);
	}
	img->end = MAX(img->end, s->paddr + s->memsz);
	return 0;
}

static int pvh_load_segments(const struct boot_env *env, struct pvh_image *img, struct err *err)
{
	bool inside = false;

	for (unsigned i = 0; i < img->n; i++) {
		const struct pvh_segment *s = &img->seg[i];
		int r;

		if (s->type != PT_LOAD || !s->memsz)
			continue;
		r = pvh_load_segment(env, img, s, err);
		if (r)
			return r;
		inside |= img->entry >= s->paddr && img->entry - s->paddr < s->memsz;
	}
	if (!inside)
		return err_set(err, -ENOEXEC, "kernel \"%s\": its PVH entry point 0x%x is in none of its segments",
			       env->kernel->path, img->entry);
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
	struct pvh_image img = {.n = 0};
	uint64_t initrd, initrd_size;
	int r = pvh_read_phdrs(env, &img, err);

	if (!r)
		r = pvh_find_entry(env, &img, err);
	if (!r)
		r = pvh_load_segments(env, &img, err);
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
	bsp->rip = img.entry;
	bsp->gpr[R_RBX] = BOOT_PARAMS_ADDR;
	bsp->gpr[R_RSP] = BOOT_STACK_TOP;
	bsp->mp_state = MP_RUNNING;
	return 0;
}
