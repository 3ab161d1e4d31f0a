/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Linux's boot protocols for bzImage (the kernel's documentation, "The Linux/x86
 * Boot Protocol", sections "The Real-Mode Kernel Header", "32-bit Boot Protocol"
 * and "64-bit Boot Protocol"): the protected-mode part goes to its preferred
 * address, and struct boot_params describes the machine. A kernel with a 64-bit
 * entry point starts there in long mode with the first 4 GB mapped one to one,
 * any other at its first byte in 32-bit protected mode without paging.
 */
#include "machine/boot.h"
#include <errno.h>
#include <sys/random.h>
#include "base/util.h"

/* Offsets in the file's first sectors and, the same, in struct boot_params. */
#define HDR_SETUP_SECTS	     0x1f1
#define HDR_SYSSIZE	     0x1f4
#define HDR_BOOT_FLAG	     0x1fe
#define HDR_JUMP_LEN	     0x201
#define HDR_MAGIC	     0x202
#define HDR_VERSION	     0x206
#define HDR_TYPE_OF_LOADER   0x210
#define HDR_LOADFLAGS	     0x211
#define HDR_CODE32_START     0x214
#define HDR_RAMDISK_IMAGE    0x218
#define HDR_RAMDISK_SIZE     0x21c
#define HDR_CMD_LINE_PTR     0x228
#define HDR_INITRD_ADDR_MAX  0x22c
#define HDR_KERNEL_ALIGNMENT 0x230
#define HDR_RELOCATABLE	     0x234
#define HDR_XLOADFLAGS	     0x236
#define HDR_CMDLINE_SIZE     0x238
#define HDR_SETUP_DATA	     0x250
#define HDR_PREF_ADDRESS     0x258
#define HDR_INIT_SIZE	     0x260
#define HDR_END		     0x290 /* where boot_params has something else */
#define HDR_READ	     0x400

/* Only in struct boot_params */
#define BP_ACPI_RSDP_ADDR    0x070
#define BP_EXT_RAMDISK_IMAGE 0x0c0
#define BP_EXT_RAMDISK_SIZE  0x0c4
#define BP_EXT_CMD_LINE_PTR  0x0c8
#define BP_E820_ENTRIES	     0x1e8
#define BP_E820_TABLE	     0x2d0
#define BP_E820_SIZE	     20
#define BP_SIZE		     4096

#define BOOT_FLAG	 0xaa55
#define HDR_MAGIC_VALUE	 0x53726448 /* "HdrS" */
#define VERSION_MIN	 0x0203	    /* a command line and the RAM disk's limit */
#define VERSION_RELOC	 0x0205
#define VERSION_CMDLINE	 0x0206
#define VERSION_PREF	 0x020a
#define VERSION_XLOAD	 0x020c
#define LOADFLAG_HIGH	 BIT(0)
#define XLF_KERNEL_64	 BIT(0)
#define LOADER_UNDEFINED 0xff
#define ENTRY_64	 0x200 /* from the start of the protected-mode part */
#define SETUP_RNG_SEED	 9

struct linux_header {
	uint8_t raw[HDR_READ];
	uint64_t file_off; /* of the protected-mode part */
	uint64_t file_len;
	uint64_t load_addr, init_size;
	bool is64;
};

/* Page-table entry bits (SDM volume 3, table 4-15) */
#define PTE_PRESENT BIT(0)
#define PTE_WRITE   BIT(1)
#define PTE_LARGE   BIT(7)

/* ---- header ------------------------------------------------------------ */

/* Fields that this version of the protocol does not have read as what the older protocol implies. */
static void hide_later_fields(uint8_t *raw)
{
	uint16_t version = ld16le(&raw[HDR_VERSION]);

	if (version < VERSION_RELOC) {
		st32le(&raw[HDR_KERNEL_ALIGNMENT], 0);
		raw[HDR_RELOCATABLE] = 0;
	}
	if (version < VERSION_CMDLINE)
		st32le(&raw[HDR_CMDLINE_SIZE], 0);
	if (version < VERSION_PREF) {
		st64le(&raw[HDR_PREF_ADDRESS], BOOT_HIGH_START);
		st32le(&raw[HDR_INIT_SIZE], 0);
	}
}

static int linux_read_header(const struct boot_env *env, struct linux_header *h, struct err *err)
{
	const struct boot_file *f = env->kernel;
	uint64_t sectors;
	int r;

	if (f->size < HDR_READ)
		return err_set(err, -ENOEXEC, "kernel \"%s\": %llu bytes are too few for a kernel", f->path,
			       (unsigned long long)f->size);
	r = boot_file_read(f, 0, h->raw, sizeof(h->raw), err);
	if (r)
		return r;
	if (ld16le(&h->raw[HDR_BOOT_FLAG]) != BOOT_FLAG || ld32le(&h->raw[HDR_MAGIC]) != HDR_MAGIC_VALUE)
		return err_set(err, -ENOEXEC,
			       "kernel \"%s\": is neither a Linux bzImage nor an ELF or multiboot file; use a vmlinuz "
			       "or vmlinux for x86",
			       f->path);
	if (ld16le(&h->raw[HDR_VERSION]) < VERSION_MIN)
		return err_set(err, -ENOEXEC,
			       "kernel \"%s\": boot protocol %u.%02u is too old; 2.03 (Linux 2.4.18) is needed",
			       f->path, h->raw[HDR_VERSION + 1], h->raw[HDR_VERSION]);
	if (!(h->raw[HDR_LOADFLAGS] & LOADFLAG_HIGH))
		return err_set(err, -ENOEXEC, "kernel \"%s\": is a zImage, which loads below 1 MiB; use a bzImage",
			       f->path);
	h->is64 = ld16le(&h->raw[HDR_VERSION]) >= VERSION_XLOAD && (ld16le(&h->raw[HDR_XLOADFLAGS]) & XLF_KERNEL_64);
	hide_later_fields(h->raw);
	sectors = h->raw[HDR_SETUP_SECTS] ? h->raw[HDR_SETUP_SECTS] : 4;
	h->file_off = (sectors + 1) * 512;
	if (h->file_off >= f->size)
		return err_set(err, -ENOEXEC, "kernel \"%s\": is cut short: its setup part alone has %llu bytes",
			       f->path, (unsigned long long)h->file_off);
	h->file_len = f->size - h->file_off;
	/* Whatever follows the paragraphs the header counts (a signature) need not be loaded, but may; the last
	 * paragraph need not be whole (memtest86+). */
	if (h->file_len + 15 < (uint64_t)ld32le(&h->raw[HDR_SYSSIZE]) * 16)
		return err_set(err, -ENOEXEC, "kernel \"%s\": is cut short: %llu bytes of %llu", f->path,
			       (unsigned long long)f->size,
			       (unsigned long long)(h->file_off + (uint64_t)ld32le(&h->raw[HDR_SYSSIZE]) * 16));
	return 0;
}

/* The preferred address, or for a relocatable kernel the lowest that fits the memory we have. */
static int linux_choose_address(const struct boot_env *env, struct linux_header *h, struct err *err)
{
	uint64_t pref = ld64le(&h->raw[HDR_PREF_ADDRESS]), align = ld32le(&h->raw[HDR_KERNEL_ALIGNMENT]);
	uint64_t need = MAX((uint64_t)ld32le(&h->raw[HDR_INIT_SIZE]), h->file_len);

	h->init_size = need;
	h->load_addr = pref;
	if (pref < BOOT_HIGH_START || pref >= env->low_end || need > env->low_end - pref) {
		if (!h->raw[HDR_RELOCATABLE] || !align || (align & (align - 1)))
			return err_set(
			    err, -ENOMEM,
			    "kernel \"%s\": must load at 0x%llx and needs %llu MiB there: give more memory with -m",
			    env->kernel->path, (unsigned long long)pref,
			    (unsigned long long)(ALIGN_UP(need, MIB) / MIB));
		h->load_addr = ALIGN_UP(BOOT_HIGH_START, align);
	}
	if (h->load_addr >= env->low_end || need > env->low_end - h->load_addr)
		return err_set(err, -ENOMEM,
			       "kernel \"%s\": needs %llu MiB to start and the guest has %llu below 4 GB: give more "
			       "memory with -m",
			       env->kernel->path, (unsigned long long)(ALIGN_UP(h->load_addr + need, MIB) / MIB),
			       (unsigned long long)(env->low_end / MIB));
	return 0;
}

/* ---- boot_params ------------------------------------------------------- */

/* Random bytes for the kernel's generator, so that it is ready before the first driver asks. */
static int linux_write_seed(const struct boot_env *env, uint8_t *params, struct err *err)
{
	uint8_t data[16 + 32];

	st64le(data, 0); /* next: none */
	st32le(data + 8, SETUP_RNG_SEED);
	st32le(data + 12, 32);
	if (getrandom(data + 16, 32, GRND_NONBLOCK) != 32)
		return 0; /* it is only help */
	st64le(params + HDR_SETUP_DATA, BOOT_SETUP_DATA);
	return boot_write(env, BOOT_SETUP_DATA, data, sizeof(data), err);
}

static int linux_write_params(const struct boot_env *env, const struct linux_header *h, uint64_t initrd,
			      uint64_t initrd_size, struct err *err)
{
	uint8_t p[BP_SIZE] = {0};
	unsigned end = MIN((unsigned)HDR_MAGIC + h->raw[HDR_JUMP_LEN], (unsigned)HDR_END);
	int r;

	if (end > HDR_SETUP_SECTS)
		memcpy(p + HDR_SETUP_SECTS, h->raw + HDR_SETUP_SECTS, end - HDR_SETUP_SECTS);
	p[HDR_TYPE_OF_LOADER] = LOADER_UNDEFINED;
	st32le(p + HDR_CODE32_START, (uint32_t)h->load_addr);
	st32le(p + HDR_RAMDISK_IMAGE, (uint32_t)initrd);
	st32le(p + HDR_RAMDISK_SIZE, (uint32_t)initrd_size);
	st32le(p + BP_EXT_RAMDISK_IMAGE, (uint32_t)(initrd >> 32));
	st32le(p + BP_EXT_RAMDISK_SIZE, (uint32_t)(initrd_size >> 32));
	st32le(p + HDR_CMD_LINE_PTR, BOOT_CMDLINE_ADDR);
	st32le(p + BP_EXT_CMD_LINE_PTR, 0);
	st64le(p + HDR_SETUP_DATA, 0);
	st64le(p + BP_ACPI_RSDP_ADDR, env->rsdp);
	p[BP_E820_ENTRIES] = (uint8_t)env->ne820;
	for (unsigned i = 0; i < env->ne820; i++) {
		uint8_t *e = p + BP_E820_TABLE + i * BP_E820_SIZE;

		st64le(e, env->e820[i].addr);
		st64le(e + 8, env->e820[i].size);
		st32le(e + 16, env->e820[i].type);
	}
	r = linux_write_seed(env, p, err);
	return r ? r : boot_write(env, BOOT_PARAMS_ADDR, p, sizeof(p), err);
}

/* ---- CPU --------------------------------------------------------------- */

/* 4 GB one to one in 2 MiB pages. */
static int linux_write_page_tables(const struct boot_env *env, struct err *err)
{
	uint64_t table[512] = {BOOT_PAGE_TABLES + PAGE_SIZE + (PTE_PRESENT | PTE_WRITE)};
	int r = boot_write(env, BOOT_PAGE_TABLES, table, sizeof(table), err);

	for (unsigned i = 0; i < 4; i++)
		table[i] = (BOOT_PAGE_TABLES + (2 + i) * PAGE_SIZE) | PTE_PRESENT | PTE_WRITE;
	if (!r)
		r = boot_write(env, BOOT_PAGE_TABLES + PAGE_SIZE, table, sizeof(table), err);
	for (uint64_t pd = 0; pd < 4 && !r; pd++) {
		for (uint64_t i = 0; i < 512; i++)
			table[i] = ((pd * 512 + i) * 2 * MIB) | PTE_PRESENT | PTE_WRITE | PTE_LARGE;
		r = boot_write(env, BOOT_PAGE_TABLES + (2 + pd) * PAGE_SIZE, table, sizeof(table), err);
	}
	return r;
}

static int linux_set_cpu(const struct boot_env *env, const struct linux_header *h, struct cpu_state *s, struct err *err)
{
	int r = h->is64 ? linux_write_page_tables(env, err) : 0;

	if (!r)
		r = boot_set_segments(env, s, h->is64 ? 64 : 32, err);
	if (r)
		return r;
	s->rflags = 2; /* interrupts off */
	if (h->is64) {
		s->cr0 = CR0_PE | CR0_ET | CR0_NE | CR0_WP | CR0_PG;
		s->cr3 = BOOT_PAGE_TABLES;
		s->cr4 = CR4_PAE;
		s->efer = EFER_LME | EFER_LMA;
		s->rip = h->load_addr + ENTRY_64;
	} else {
		s->cr0 = CR0_PE | CR0_ET;
		s->cr3 = s->cr4 = s->efer = 0;
		s->rip = h->load_addr;
	}
	s->gpr[R_RSI] = BOOT_PARAMS_ADDR;
	s->gpr[R_RSP] = BOOT_STACK_TOP;
	s->mp_state = MP_RUNNING;
	return 0;
}

int boot_load_linux(const struct boot_env *env, struct cpu_state *bsp, struct err *err)
{
	struct linux_header h;
	uint64_t initrd, initrd_size, cmdline_max, initrd_max;
	int r = linux_read_header(env, &h, err);

	if (!r)
		r = linux_choose_address(env, &h, err);
	if (r)
		return r;
	cmdline_max = ld32le(&h.raw[HDR_CMDLINE_SIZE]);
	initrd_max = (uint64_t)ld32le(&h.raw[HDR_INITRD_ADDR_MAX]) + 1;
	r = boot_write_cmdline(env, cmdline_max ? cmdline_max : 255, err);
	if (!r)
		r = boot_load_initrd(env, h.load_addr + h.init_size, initrd_max, &initrd, &initrd_size, err);
	if (!r)
		r = boot_file_load(env->kernel, h.file_off, env->mem, h.load_addr, h.file_len, err);
	if (!r)
		r = linux_write_params(env, &h, initrd, initrd_size, err);
	return r ? r : linux_set_cpu(env, &h, bsp, err);
}
