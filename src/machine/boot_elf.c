/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ELF kernels: program headers and segments (System V ABI, chapters 4 and 5),
 * for the protocols that take them. The file is not trusted: counts and sizes
 * are bounded before they are used. Locking: as boot.h.
 */
#include "machine/boot.h"
#include <elf.h>
#include <errno.h>
#include "base/util.h"

int boot_elf_bad(const struct boot_env *env, struct err *err, const char *why)
{
	return err_set(err, -ENOEXEC, "kernel \"%s\": %s", env->kernel->path, why);
}

int boot_elf_read(const struct boot_env *env, struct boot_elf *img, struct err *err)
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
		return boot_elf_bad(env, err, "is an ELF file of another kind of machine");
	if (ld16le(raw + offsetof(Elf64_Ehdr, e_machine)) != (is64 ? EM_X86_64 : EM_386))
		return boot_elf_bad(env, err, "is an ELF file, but not for x86");
	if (ld16le(raw + offsetof(Elf64_Ehdr, e_type)) != ET_EXEC &&
	    ld16le(raw + offsetof(Elf64_Ehdr, e_type)) != ET_DYN)
		return boot_elf_bad(env, err, "is an ELF file, but not an executable one");
	img->is64 = is64;
	img->entry = is64 ? ld64le(raw + offsetof(Elf64_Ehdr, e_entry)) : ld32le(raw + offsetof(Elf32_Ehdr, e_entry));
	phoff = is64 ? ld64le(raw + offsetof(Elf64_Ehdr, e_phoff)) : ld32le(raw + offsetof(Elf32_Ehdr, e_phoff));
	phnum = ld16le(raw + (is64 ? offsetof(Elf64_Ehdr, e_phnum) : offsetof(Elf32_Ehdr, e_phnum)));
	phsize = ld16le(raw + (is64 ? offsetof(Elf64_Ehdr, e_phentsize) : offsetof(Elf32_Ehdr, e_phentsize)));
	want = is64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
	if (!phnum || phnum > BOOT_ELF_MAX_PHDRS || phsize != want)
		return boot_elf_bad(env, err, "has no usable ELF program headers");
	for (unsigned i = 0; i < phnum; i++) {
		struct boot_elf_segment *s = &img->seg[img->n++];
		union {
			Elf64_Phdr p64;
			Elf32_Phdr p32;
		} u;

		if (phoff > env->kernel->size)
			return boot_elf_bad(env, err, "is cut short: its ELF program headers are missing");
		r = boot_file_read(env->kernel, phoff + (uint64_t)i * phsize, &u, phsize, err);
		if (r)
			return r;
		if (is64)
			*s = (struct boot_elf_segment){u.p64.p_type,   u.p64.p_offset, u.p64.p_paddr,
						       u.p64.p_filesz, u.p64.p_memsz,  u.p64.p_align};
		else
			*s = (struct boot_elf_segment){u.p32.p_type,   u.p32.p_offset, u.p32.p_paddr,
						       u.p32.p_filesz, u.p32.p_memsz,  u.p32.p_align};
	}
	return 0;
}

static int elf_load_segment(const struct boot_env *env, struct boot_elf *img, const struct boot_elf_segment *s,
			    struct err *err)
{
	uint8_t *host;
	int r;

	if (s->filesz > s->memsz)
		return boot_elf_bad(env, err, "an ELF segment is larger in the file than in memory");
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

int boot_elf_load(const struct boot_env *env, struct boot_elf *img, uint64_t entry, struct err *err)
{
	bool inside = false;

	for (unsigned i = 0; i < img->n; i++) {
		const struct boot_elf_segment *s = &img->seg[i];
		int r;

		if (s->type != PT_LOAD || !s->memsz)
			continue;
		r = elf_load_segment(env, img, s, err);
		if (r)
			return r;
		inside |= entry >= s->paddr && entry - s->paddr < s->memsz;
	}
	if (!inside)
		return err_set(err, -ENOEXEC, "kernel \"%s\": its entry point 0x%llx is in none of its segments",
			       env->kernel->path, (unsigned long long)entry);
	return 0;
}
