/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernel loaders on made-up files: what a good bzImage and a good PVH kernel
 * leave in memory and in CPU 0, and one clear error for each way a file can be bad.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/util.h"
#include "machine/boot.h"

#define RAM_SIZE (64 * MIB)

struct bench {
	struct mem_map mem;
	char path[64];
	struct boot_file kernel, initrd[3];
	struct boot_env env;
	struct cpu_state cpu;
};

static int setup(void **state)
{
	struct bench *b = aligned_alloc(64, ALIGN_UP(sizeof(*b), 64ul));
	struct ram_config ram = {.size = RAM_SIZE};
	struct err err = {0};

	memset(b, 0, sizeof(*b));
	assert_int_equal(mem_init(&b->mem, &err), 0);
	assert_int_equal(mem_add_ram(&b->mem, "ram", 0, RAM_SIZE, &ram, false, &err), 0);
	b->env = (struct boot_env){.mem = &b->mem,
				   .low_end = RAM_SIZE,
				   .e820 = {{0, 0x9fc00, E820_RAM}, {0x100000, RAM_SIZE - 0x100000, E820_RAM}},
				   .ne820 = 2,
				   .rsdp = 0xe0000,
				   .cmdline = "console=ttyS0",
				   .kernel = &b->kernel,
				   .initrd = b->initrd};
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	struct bench *b = *state;

	boot_file_close(&b->kernel);
	for (unsigned i = 0; i < b->env.ninitrd; i++)
		boot_file_close(&b->initrd[i]);
	mem_fini(&b->mem);
	free(b);
	return 0;
}

/* Give `data` to the loader as a file. */
static void file_from(struct boot_file *f, const char *what, const void *data, size_t len)
{
	char path[] = "/tmp/kelvin-boot-XXXXXX";
	int fd = mkstemp(path);
	struct err err = {0};

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
	close(fd);
	boot_file_close(f);
	assert_int_equal(boot_file_open(f, what, path, RAM_SIZE, &err), 0);
	unlink(path);
}

static int load(struct bench *b, const void *data, size_t len, struct err *err)
{
	file_from(&b->kernel, "kernel", data, len);
	cpu_state_reset(&b->cpu, true);
	*err = (struct err){0};
	return boot_load(&b->env, &b->cpu, err);
}

static void expect_error(struct bench *b, const void *data, size_t len, const char *part)
{
	struct err err = {0};

	assert_true(load(b, data, len, &err) < 0);
	assert_true(err.code < 0);
	assert_null(strchr(err.msg, '\n'));
	if (!strstr(err.msg, part))
		fail_msg("\"%s\" lacks \"%s\"", err.msg, part);
}

/* ---- bzImage ------------------------------------------------------------- */

#define SETUP_SECTS 2
#define PAYLOAD	    4096
#define BZ_SIZE	    ((SETUP_SECTS + 1) * 512 + PAYLOAD)

static void bz_make(uint8_t *k)
{
	memset(k, 0, BZ_SIZE);
	k[0x1f1] = SETUP_SECTS;
	st32le(k + 0x1f4, PAYLOAD / 16);
	st16le(k + 0x1fe, 0xaa55);
	k[0x200] = 0xeb;
	k[0x201] = 0x66;
	memcpy(k + 0x202, "HdrS", 4);
	st16le(k + 0x206, 0x020f);
	k[0x211] = 1;
	st32le(k + 0x22c, 0x7fffffff);
	st32le(k + 0x230, 0x200000);
	k[0x234] = 1;
	st16le(k + 0x236, 3);
	st32le(k + 0x238, 2047);
	st64le(k + 0x258, 0x1000000);
	st32le(k + 0x260, 0x800000);
	memset(k + (SETUP_SECTS + 1) * 512, 0xab, PAYLOAD);
}

static void test_linux(void **state)
{
	struct bench *b = *state;
	uint8_t k[BZ_SIZE], p[4096], text[32];
	uint64_t entry;
	struct err err = {0};

	bz_make(k);
	if (load(b, k, sizeof(k), &err))
		fail_msg("%s", err.msg);
	/* CPU: long mode, boot_params in RSI, interrupts off */
	assert_int_equal(b->cpu.rip, 0x1000200);
	assert_int_equal(b->cpu.gpr[R_RSI], BOOT_PARAMS_ADDR);
	assert_true(b->cpu.efer & EFER_LMA);
	assert_true(b->cpu.cr0 & CR0_PG);
	assert_true(b->cpu.seg[S_CS].l);
	assert_int_equal(b->cpu.seg[S_CS].sel, 0x10);
	assert_int_equal(b->cpu.seg[S_DS].sel, 0x18);
	assert_false(b->cpu.rflags & FLAG_IF);
	assert_int_equal(mem_read(&b->mem, 0x1000000, 4), 0xabababab);
	assert_int_equal(mem_read(&b->mem, 0x1000000 + PAYLOAD - 1, 1), 0xab);
	/* boot_params */
	dma_read(&b->mem, BOOT_PARAMS_ADDR, p, sizeof(p));
	assert_memory_equal(p + 0x202, "HdrS", 4);
	assert_int_equal(p[0x210], 0xff);
	assert_int_equal(ld64le(p + 0x070), 0xe0000);
	assert_int_equal(p[0x1e8], 2);
	assert_int_equal(ld64le(p + 0x2d0 + 20), 0x100000);
	assert_int_equal(ld32le(p + 0x2d0 + 36), E820_RAM);
	dma_read(&b->mem, ld32le(p + 0x228), text, sizeof(text));
	assert_string_equal((char *)text, "console=ttyS0");
	assert_int_equal(ld32le(p + 0x218), 0);
	/* the page tables map an address near 4 GB to itself */
	entry = mem_read(&b->mem, b->cpu.cr3, 8);
	entry = mem_read(&b->mem, (entry & PAGE_MASK) + 3 * 8, 8);
	entry = mem_read(&b->mem, (entry & PAGE_MASK) + 511 * 8, 8);
	assert_int_equal(entry, 0xffe00000 | 0x83);
}

/* Without a 64-bit entry point: 32-bit protected mode at the first byte; old headers lack fields. */
static void test_linux_32(void **state)
{
	struct bench *b = *state;
	uint8_t k[BZ_SIZE];
	struct err err = {0};

	bz_make(k);
	st16le(k + 0x236, 0);
	assert_int_equal(load(b, k, sizeof(k), &err), 0);
	assert_int_equal(b->cpu.rip, 0x1000000);
	assert_int_equal(b->cpu.gpr[R_RSI], BOOT_PARAMS_ADDR);
	assert_int_equal(b->cpu.gpr[R_RBP] | b->cpu.gpr[R_RDI] | b->cpu.gpr[R_RBX], 0);
	assert_int_equal(b->cpu.cr0, CR0_PE | CR0_ET);
	assert_int_equal(b->cpu.efer, 0);
	assert_false(b->cpu.seg[S_CS].l);
	assert_true(b->cpu.seg[S_CS].db);
	assert_int_equal(b->cpu.seg[S_CS].sel, 0x10);
	assert_int_equal(b->cpu.seg[S_SS].sel, 0x18);
	/* 2.03: what later versions put there is not looked at */
	st16le(k + 0x206, 0x0203);
	st16le(k + 0x236, 3);
	assert_int_equal(load(b, k, sizeof(k), &err), 0);
	assert_int_equal(b->cpu.rip, 0x100000);
}

/* ---- multiboot ----------------------------------------------------------- */

#define MB_SIZE 4096

static void mb_make(uint8_t *k)
{
	memset(k, 0xcd, MB_SIZE);
	st32le(k + 64, 0x1badb002);
	st32le(k + 68, 0x10003);
	st32le(k + 72, (uint32_t) - (0x1badb002 + 0x10003));
	st32le(k + 76, 0x200040); /* header, load, load end, bss end, entry */
	st32le(k + 80, 0x200000);
	st32le(k + 84, 0x200000 + MB_SIZE);
	st32le(k + 88, 0x210000);
	st32le(k + 92, 0x200100);
}

static void test_multiboot(void **state)
{
	struct bench *b = *state;
	uint8_t k[MB_SIZE], text[32];
	uint64_t info = BOOT_PARAMS_ADDR, mods, map;
	struct err err = {0};

	mb_make(k);
	file_from(&b->initrd[0], "initrd", "abcde", 5);
	b->env.ninitrd = 1;
	if (load(b, k, sizeof(k), &err))
		fail_msg("%s", err.msg);
	assert_int_equal(b->cpu.rip, 0x200100);
	assert_int_equal(b->cpu.gpr[R_RAX], 0x2badb002);
	assert_int_equal(b->cpu.gpr[R_RBX], info);
	assert_int_equal(b->cpu.cr0, CR0_PE | CR0_ET);
	assert_int_equal(mem_read(&b->mem, 0x200200, 4), 0xcdcdcdcd);
	assert_int_equal(mem_read(&b->mem, 0x20fffc, 4), 0);
	assert_int_equal(mem_read(&b->mem, info, 4) & 0x4d, 0x4d);
	assert_int_equal(mem_read(&b->mem, info + 4, 4), 639);
	assert_int_equal(mem_read(&b->mem, info + 20, 4), 1);
	mods = mem_read(&b->mem, info + 24, 4);
	assert_int_equal(mem_read(&b->mem, mods, 4), 0x210000);
	assert_int_equal(mem_read(&b->mem, mods + 4, 4), 0x210005);
	assert_int_equal(mem_read(&b->mem, 0x210000, 4), 0x64636261);
	dma_read(&b->mem, mem_read(&b->mem, info + 16, 4), text, sizeof(text));
	assert_string_equal((char *)text, "console=ttyS0");
	map = mem_read(&b->mem, info + 48, 4);
	assert_int_equal(mem_read(&b->mem, info + 44, 4), 2 * 24);
	assert_int_equal(mem_read(&b->mem, map, 4), 20);
	assert_int_equal(mem_read(&b->mem, map + 24 + 4, 8), 0x100000);
#define MB_BAD(off, value, part)                                                                                       \
	do {                                                                                                           \
		mb_make(k);                                                                                            \
		st32le(k + (off), (value));                                                                            \
		expect_error(b, k, sizeof(k), part);                                                                   \
	} while (0)
	MB_BAD(76, 0x1fffff, "outside what it says to load");
	MB_BAD(76, 0x200100, "outside what it says to load");
	MB_BAD(80, 0x1000, "header");
	MB_BAD(84, 0x300000, "cut short");
	MB_BAD(88, 0xfffffff0, "-m");
	MB_BAD(92, 0x300000, "entry point");
	MB_BAD(72, 0, "neither a Linux bzImage nor an ELF");
	mb_make(k);
	st32le(k + 68, 0x10013);
	st32le(k + 72, (uint32_t) - (0x1badb002 + 0x10013));
	expect_error(b, k, sizeof(k), "flags 0x10013");
	for (unsigned n = 0; n < 2000; n++) {
		mb_make(k);
		st32le(k + 76 + 4 * (n % 5), (uint32_t)rand() >> rand() % 32);
		load(b, k, sizeof(k), &err);
		boot_file_close(&b->kernel);
	}
}

static void test_linux_low_memory(void **state)
{
	struct bench *b = *state;
	uint8_t k[BZ_SIZE];
	struct err err = {0};

	/* the preferred address does not fit: the kernel moves down, or says it cannot */
	bz_make(k);
	st64le(k + 0x258, 0x3000000);
	st32le(k + 0x260, 0x2000000);
	assert_int_equal(load(b, k, sizeof(k), &err), 0);
	assert_int_equal(b->cpu.rip, 0x200200);
	k[0x234] = 0;
	expect_error(b, k, sizeof(k), "-m");
	k[0x234] = 1;
	st32le(k + 0x260, 0x4000000);
	expect_error(b, k, sizeof(k), "-m");
	st32le(k + 0x260, 0xffffffff);
	expect_error(b, k, sizeof(k), "-m");
	bz_make(k);
	st64le(k + 0x258, UINT64_MAX);
	assert_int_equal(load(b, k, sizeof(k), &err), 0);
	assert_int_equal(b->cpu.rip, 0x200200);
	st32le(k + 0x230, 3); /* an alignment that is none */
	expect_error(b, k, sizeof(k), "must load at");
}

static void test_linux_initrds(void **state)
{
	struct bench *b = *state;
	uint8_t k[BZ_SIZE], p[4096], got[12];
	struct err err = {0};
	uint32_t addr, size;

	bz_make(k);
	file_from(&b->initrd[0], "initrd", "abcde", 5);
	file_from(&b->initrd[1], "initrd", "FGH", 3);
	b->env.ninitrd = 2;
	assert_int_equal(load(b, k, sizeof(k), &err), 0);
	dma_read(&b->mem, BOOT_PARAMS_ADDR, p, sizeof(p));
	addr = ld32le(p + 0x218);
	size = ld32le(p + 0x21c);
	assert_int_equal(size, 11);
	assert_int_equal(addr, RAM_SIZE - 4096);
	dma_read(&b->mem, addr, got, size);
	assert_memory_equal(got, "abcde\0\0\0FGH", 11);
	/* below the address the kernel allows */
	st32le(k + 0x22c, 0x2ffffff);
	assert_int_equal(load(b, k, sizeof(k), &err), 0);
	dma_read(&b->mem, BOOT_PARAMS_ADDR, p, sizeof(p));
	assert_int_equal(ld32le(p + 0x218), 0x3000000 - 4096);
	/* no room between the kernel and that address */
	st32le(k + 0x22c, 0x17fffff);
	expect_error(b, k, sizeof(k), "initrd \"");
	st32le(k + 0x22c, 0);
	expect_error(b, k, sizeof(k), "initrd \"");
}

static void test_linux_bad(void **state)
{
	struct bench *b = *state;
	char *line = calloc(1, 3000);
	uint8_t k[BZ_SIZE];
	static const struct {
		unsigned off, size;
		uint64_t val;
		const char *part;
	} bad[] = {
	    {0x1fe, 2, 0, "neither a Linux bzImage nor an ELF"},
	    {0x202, 4, 0x12345678, "neither a Linux bzImage nor an ELF"},
	    {0x206, 2, 0x0202, "boot protocol 2.02 is too old"},
	    {0x211, 1, 0, "zImage"},
	    {0x1f1, 1, 200, "cut short"},
	    {0x1f4, 4, 0xffffffff, "cut short"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		bz_make(k);
		memcpy(k + bad[i].off, &bad[i].val, bad[i].size);
		expect_error(b, k, sizeof(k), bad[i].part);
	}
	bz_make(k);
	expect_error(b, k, sizeof(k) - 16, "cut short");
	expect_error(b, k, 1000, "too few");
	expect_error(b, "x", 1, "cut short");
	memset(line, 'a', 2048);
	b->env.cmdline = line;
	expect_error(b, k, sizeof(k), "-append: 2048 characters");
	line[2047] = 0;
	struct err err = {0};
	assert_int_equal(load(b, k, sizeof(k), &err), 0);
	free(line);
}

/* Every byte of the header at random: an error or a load, never more. */
static void test_linux_random(void **state)
{
	struct bench *b = *state;
	uint8_t k[BZ_SIZE];
	unsigned seed = 2, loaded = 0;

	for (int i = 0; i < 300; i++) {
		struct err err = {0};

		bz_make(k);
		for (int n = rand_r(&seed) % 4; n >= 0; n--)
			k[0x1f1 + (unsigned)rand_r(&seed) % 0x90] = (uint8_t)rand_r(&seed);
		loaded += !load(b, k, sizeof(k), &err);
	}
	assert_true(loaded > 10);
}

/* ---- PVH ----------------------------------------------------------------- */

struct pvh_file {
	Elf64_Ehdr e;
	Elf64_Phdr p[2];
	struct {
		uint32_t namesz, descsz, type;
		char name[4];
		uint32_t entry, pad;
	} note;
	uint8_t code[512];
};

static void pvh_make(struct pvh_file *f)
{
	memset(f, 0, sizeof(*f));
	memcpy(f->e.e_ident, ELFMAG, 4);
	f->e.e_ident[EI_CLASS] = ELFCLASS64;
	f->e.e_ident[EI_DATA] = ELFDATA2LSB;
	f->e.e_type = ET_EXEC;
	f->e.e_machine = EM_X86_64;
	f->e.e_phoff = offsetof(struct pvh_file, p);
	f->e.e_phnum = 2;
	f->e.e_phentsize = sizeof(Elf64_Phdr);
	f->p[0] = (Elf64_Phdr){.p_type = PT_LOAD,
			       .p_offset = offsetof(struct pvh_file, code),
			       .p_paddr = 0x1000000,
			       .p_filesz = sizeof(f->code),
			       .p_memsz = 8192};
	f->p[1] = (Elf64_Phdr){
	    .p_type = PT_NOTE, .p_offset = offsetof(struct pvh_file, note), .p_filesz = sizeof(f->note), .p_align = 4};
	f->note.namesz = 4;
	f->note.descsz = 4;
	f->note.type = 18;
	memcpy(f->note.name, "Xen", 4);
	f->note.entry = 0x1000010;
	memset(f->code, 0xcd, sizeof(f->code));
}

static void test_pvh(void **state)
{
	struct bench *b = *state;
	struct pvh_file f;
	uint8_t info[56], mod[32], text[32];
	struct err err = {0};

	pvh_make(&f);
	mem_write(&b->mem, 0x1000000 + 512, 0x55, 1); /* left from before: must be cleared */
	file_from(&b->initrd[0], "initrd", "abcde", 5);
	b->env.ninitrd = 1;
	if (load(b, &f, sizeof(f), &err))
		fail_msg("%s", err.msg);
	assert_int_equal(b->cpu.rip, 0x1000010);
	assert_int_equal(b->cpu.cr0 & (CR0_PE | CR0_PG), CR0_PE);
	assert_true(b->cpu.seg[S_CS].db);
	assert_false(b->cpu.seg[S_CS].l);
	assert_int_equal(b->cpu.efer, 0);
	assert_int_equal(mem_read(&b->mem, 0x1000000, 4), 0xcdcdcdcd);
	assert_int_equal(mem_read(&b->mem, 0x1000000 + 512, 8), 0);
	dma_read(&b->mem, b->cpu.gpr[R_RBX], info, sizeof(info));
	assert_int_equal(ld32le(info), 0x336ec578);
	assert_int_equal(ld32le(info + 4), 1);
	assert_int_equal(ld32le(info + 12), 1);
	assert_int_equal(ld64le(info + 32), 0xe0000);
	assert_int_equal(ld32le(info + 48), 2);
	dma_read(&b->mem, ld64le(info + 24), text, sizeof(text));
	assert_string_equal((char *)text, "console=ttyS0");
	dma_read(&b->mem, ld64le(info + 16), mod, sizeof(mod));
	assert_int_equal(ld64le(mod + 8), 5);
	assert_int_equal(mem_read(&b->mem, ld64le(mod), 1), 'a');
	assert_int_equal(mem_read(&b->mem, ld64le(info + 40) + 24, 8), 0x100000);
}

static void test_pvh_bad(void **state)
{
	struct bench *b = *state;
	struct pvh_file f;

#define BAD(change, part)                                                                                              \
	do {                                                                                                           \
		pvh_make(&f);                                                                                          \
		change;                                                                                                \
		expect_error(b, &f, sizeof(f), part);                                                                  \
	} while (0)
	BAD(f.e.e_ident[EI_CLASS] = 7, "another kind of machine");
	BAD(f.e.e_ident[EI_DATA] = ELFDATA2MSB, "another kind of machine");
	BAD(f.e.e_machine = EM_AARCH64, "not for x86");
	BAD(f.e.e_type = ET_REL, "not an executable");
	BAD(f.e.e_phnum = 0, "program headers");
	BAD(f.e.e_phnum = 65535, "program headers");
	BAD(f.e.e_phentsize = 8, "program headers");
	BAD(f.e.e_phoff = 1 << 30, "program headers are missing");
	BAD(f.e.e_phoff = UINT64_MAX - 8, "program headers are missing");
	BAD(f.e.e_phoff = sizeof(f) - 10, "cut short");
	BAD(f.note.type = 17, "without a PVH entry point");
	BAD(f.note.namesz = 0xfffffff0, "without a PVH entry point");
	BAD(f.note.descsz = 0xffffffff, "without a PVH entry point");
	BAD(f.note.descsz = 2, "without a PVH entry point");
	BAD(f.p[1].p_type = PT_NULL, "without a PVH entry point");
	BAD(f.p[1].p_filesz = 1ull << 40, "notes are larger");
	BAD(f.p[1].p_offset = UINT64_MAX - 2, "cut short");
	BAD(f.note.entry = 0x5000000, "in none of its segments");
	BAD(f.p[0].p_type = PT_NULL, "in none of its segments");
	BAD(f.p[0].p_filesz = 9000, "larger in the file than in memory");
	BAD(f.p[0].p_memsz = UINT64_MAX, "give more with -m");
	BAD(f.p[0].p_memsz = 1ull << 32, "give more with -m");
	BAD(f.p[0].p_paddr = UINT64_MAX - 100, "give more with -m");
	BAD(f.p[0].p_paddr = 0x9000, "below 1 MiB");
	BAD(f.p[0].p_offset = sizeof(f) - 100, "cut short");
	pvh_make(&f);
	expect_error(b, &f, 30, "cut short");
}

static void test_pvh_random(void **state)
{
	struct bench *b = *state;
	unsigned seed = 3, loaded = 0;

	for (int i = 0; i < 1000; i++) {
		struct pvh_file f;
		struct err err = {0};

		pvh_make(&f);
		for (int n = rand_r(&seed) % 4; n >= 0; n--)
			((uint8_t *)&f)[(unsigned)rand_r(&seed) % offsetof(struct pvh_file, code)] =
			    (uint8_t)rand_r(&seed);
		loaded += !load(b, &f, sizeof(f), &err);
	}
	assert_true(loaded > 10);
}

/* ---- files ---------------------------------------------------------------- */

static void test_files(void **state)
{
	struct boot_file f;
	struct err err = {0};
	uint8_t buf[8];
	char path[64];
	int fd[2];

	assert_int_equal(boot_file_open(&f, "kernel", "/nonexistent/vmlinuz", RAM_SIZE, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "kernel \"/nonexistent/vmlinuz\""));
	err = (struct err){0};
	assert_int_equal(boot_file_open(&f, "initrd", "/tmp", RAM_SIZE, &err), -EISDIR);
	err = (struct err){0};
	assert_int_equal(boot_file_open(&f, "initrd", "/dev/null", RAM_SIZE, &err), -EINVAL); /* empty */
	/* endless: bounded by the guest's memory */
	err = (struct err){0};
	assert_int_equal(boot_file_open(&f, "initrd", "/dev/zero", 4 * MIB, &err), -EFBIG);
	/* a pipe can be read again at each reset */
	assert_int_equal(pipe(fd), 0);
	assert_int_equal(write(fd[1], "hello", 5), 5);
	close(fd[1]);
	snprintf(path, sizeof(path), "/dev/fd/%d", fd[0]);
	err = (struct err){0};
	assert_int_equal(boot_file_open(&f, "kernel", path, RAM_SIZE, &err), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(boot_file_read(&f, 1, buf, 4, &err), 0);
		assert_memory_equal(buf, "ello", 4);
	}
	assert_true(boot_file_read(&f, 1, buf, 5, &err) < 0);
	err = (struct err){0};
	assert_true(boot_file_read(&f, UINT64_MAX, buf, 2, &err) < 0);
	boot_file_close(&f);
	close(fd[0]);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
	    T(test_linux),     T(test_linux_low_memory), T(test_linux_initrds), T(test_linux_bad), T(test_linux_random),
	    T(test_pvh),       T(test_pvh_bad),		 T(test_pvh_random),	T(test_files),	   T(test_linux_32),
	    T(test_multiboot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
