/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Direct kernel boot: -kernel, -initrd and -append without firmware. A bzImage
 * starts by Linux's 64- or 32-bit protocol (boot_linux.c), a file with a multiboot
 * header by that (boot_multiboot.c), another ELF file by its PVH entry point
 * (boot_pvh.c). Main loop's thread, with the vCPUs stopped; the files stay
 * open and are read again at each reset, straight into guest RAM.
 */
#ifndef KELVIN_MACHINE_BOOT_H
#define KELVIN_MACHINE_BOOT_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "cpu/state.h"
#include "mem/mem.h"

/* E820 types, as ACPI 15.1 numbers them; PVH's memory map uses the same. */
enum boot_e820_type { E820_RAM = 1, E820_RESERVED = 2, E820_ACPI = 3, E820_NVS = 4 };
struct boot_e820 {
	uint64_t addr, size;
	uint32_t type;
};
#define BOOT_E820_MAX 16

/*
 * Low memory during the hand-over; the kernel copies what it wants to keep and
 * then uses all of it. Everything lies below the EBDA at 0x9fc00.
 */
#define BOOT_GDT_ADDR	  0x00001000ull
#define BOOT_PAGE_TABLES  0x00002000ull /* PML4, PDPT, 4 page directories */
#define BOOT_PARAMS_ADDR  0x00010000ull /* Linux: struct boot_params; PVH: hvm_start_info and its lists */
#define BOOT_SETUP_DATA	  0x00012000ull
#define BOOT_CMDLINE_ADDR 0x00020000ull
#define BOOT_CMDLINE_MAX  0x00010000ull
#define BOOT_STACK_TOP	  0x00090000ull
#define BOOT_LOW_END	  0x0009fc00ull
#define BOOT_HIGH_START	  0x00100000ull
#define BOOT_KERNEL_CS	  0x10 /* selectors in our GDT, as the Linux protocol demands */
#define BOOT_KERNEL_DS	  0x18
#define BOOT_KERNEL_TSS	  0x20

/* An open kernel or initial RAM disk. What cannot be read twice (a pipe) is kept in `data`. */
struct boot_file {
	char *path;
	const char *what; /* "kernel" or "initrd", for messages */
	int fd;
	uint64_t size;
	uint8_t *data;
};
/* `limit`: a pipe longer than this is refused. */
int boot_file_open(struct boot_file *f, const char *what, const char *path, uint64_t limit, struct err *err);
void boot_file_close(struct boot_file *f);
/* All of [off, off + len) or an error that names the file. */
int boot_file_read(const struct boot_file *f, uint64_t off, void *buf, uint64_t len, struct err *err);
/* The same into guest RAM; the range must be RAM of one block. */
int boot_file_load(const struct boot_file *f, uint64_t off, struct mem_map *mem, uint64_t gpa, uint64_t len,
		   struct err *err);

struct boot_env {
	struct mem_map *mem;
	uint64_t low_end; /* end of RAM below 4 GB that a kernel or RAM disk may use */
	struct boot_e820 e820[BOOT_E820_MAX];
	unsigned ne820;
	uint64_t rsdp; /* guest address of the ACPI RSDP, 0 when there is none */
	const char *cmdline;
	const struct boot_file *kernel, *initrd;
	unsigned ninitrd;
};

/* Load by what the kernel file is; *bsp (in reset state) becomes the state the protocol asks for. */
int boot_load(const struct boot_env *env, struct cpu_state *bsp, struct err *err);
int boot_load_linux(const struct boot_env *env, struct cpu_state *bsp, struct err *err);
int boot_load_pvh(const struct boot_env *env, struct cpu_state *bsp, struct err *err);
/* 1 when the file is not for multiboot. */
int boot_load_multiboot(const struct boot_env *env, struct cpu_state *bsp, struct err *err);

/* ---- shared by the protocols ------------------------------------------- */

#define BOOT_ELF_MAX_PHDRS 64
/* One program header, of either ELF class. */
struct boot_elf_segment {
	uint32_t type;
	uint64_t offset, paddr, filesz, memsz, align;
};
struct boot_elf {
	struct boot_elf_segment seg[BOOT_ELF_MAX_PHDRS];
	unsigned n;
	bool is64;
	uint64_t entry; /* e_entry, a virtual address */
	uint64_t end;	/* of the highest segment, after boot_elf_load */
};
int boot_elf_read(const struct boot_env *env, struct boot_elf *img, struct err *err);
/* All PT_LOAD segments to their physical addresses; `entry` must lie in one of them. */
int boot_elf_load(const struct boot_env *env, struct boot_elf *img, uint64_t entry, struct err *err);
/* -ENOEXEC with what is wrong with the file. */
int boot_elf_bad(const struct boot_env *env, struct err *err, const char *why);
int boot_write(const struct boot_env *env, uint64_t gpa, const void *buf, uint64_t len, struct err *err);
/* The command line and its NUL at BOOT_CMDLINE_ADDR; `max`: characters the kernel accepts. */
int boot_write_cmdline(const struct boot_env *env, uint64_t max, struct err *err);
/* All RAM disks one after another (each padded to 4 bytes) as high as possible below `limit`
 * and above `floor`, page aligned. *size is 0 when there are none. */
int boot_load_initrd(const struct boot_env *env, uint64_t floor, uint64_t limit, uint64_t *addr, uint64_t *size,
		     struct err *err);
/* Flat segments for the start: `bits` 32 or 64; also writes the GDT. */
int boot_set_segments(const struct boot_env *env, struct cpu_state *s, int bits, struct err *err);

#endif
