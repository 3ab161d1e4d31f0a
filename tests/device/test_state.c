/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tables of state: every kind of field there and back, what is refused, that every
 * device has a table, and that damaged snapshots of a whole machine end in an error
 * or in a machine, never in a crash (run it under ASan; STATE_FUZZ_ROUNDS for more).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/crc32c.h"
#include "base/util.h"
#include "block/block.h"
#include "bus/pci.h"
#include "machine/snapshot_int.h"
#include "halt_kernel.h"

/* ---- fields -------------------------------------------------------------------- */

struct inner {
	uint16_t a;
	bool b;
};
struct thing {
	uint8_t small;
	uint64_t large;
	bool flag;
	uint32_t limited, later;
	uint16_t list[3];
	char text[8];
	struct inner one, several[2], *fixed, *made;
	uint16_t nfixed;
	uint32_t nmade;
};
static const struct state_field inner_fields[] = {STATE_INT(struct inner, a), STATE_INT(struct inner, b), {0}};
static struct state_field thing_fields[] = {
    STATE_INT(struct thing, small),
    STATE_INT(struct thing, large),
    STATE_INT(struct thing, flag),
    STATE_INT_MAX(struct thing, limited, 10),
    STATE_INTS(struct thing, list),
    STATE_RAW(struct thing, text),
    STATE_ONE(struct thing, one, inner_fields),
    STATE_STRUCTS(struct thing, several, inner_fields),
    STATE_POINTED(struct thing, fixed, nfixed, inner_fields),
    STATE_LIST(struct thing, made, nmade, 4, inner_fields),
    {0},
    {0},
};
static struct state thing_state = {.name = "thing", .version = 1, .min_version = 1, .fields = thing_fields};

static struct inner fixed[2][2], made[3] = {{7, true}, {8, false}, {9, true}};

static struct thing example(void)
{
	fixed[0][0] = (struct inner){1, true};
	fixed[0][1] = (struct inner){2, false};
	return (struct thing){.small = 200,
			      .large = 0x1122334455667788,
			      .flag = true,
			      .limited = 10,
			      .later = 5,
			      .list = {1, 2, 65535},
			      .text = "text",
			      .one = {3, true},
			      .several = {{4, false}, {5, true}},
			      .fixed = fixed[0],
			      .nfixed = 2,
			      .made = made,
			      .nmade = 3};
}

static void test_there_and_back(void **state)
{
	struct thing a = example(), b = {.fixed = fixed[1], .nfixed = 2};
	struct state_buf x = {0}, y = {0};
	struct err err = {0};

	assert_int_equal(state_save(&thing_state, &a, &x, &err), 0);
	assert_int_equal(state_load(&thing_state, &b, x.data, x.len, &err), 0);
	assert_int_equal(b.large, a.large);
	assert_int_equal(b.nmade, 3);
	assert_int_equal(b.made[2].a, 9);
	assert_memory_equal(fixed[0], fixed[1], sizeof(fixed[0]));
	assert_int_equal(state_save(&thing_state, &b, &y, &err), 0);
	assert_int_equal(x.len, y.len);
	assert_memory_equal(x.data, y.data, x.len);
	free(b.made);
	state_buf_free(&x);
	state_buf_free(&y);
}

/* A table that grew reads what an older one wrote, and not the other way round. */
static void test_versions(void **state)
{
	struct thing a = example(), b = {.fixed = fixed[1], .nfixed = 2, .later = 77};
	struct state_buf old = {0}, new = {0};
	struct err err = {0};

	assert_int_equal(state_save(&thing_state, &a, &old, &err), 0);
	thing_fields[10] = (struct state_field)STATE_INT(struct thing, later);
	thing_fields[10].since = 2;
	thing_state.version = 2;
	assert_int_equal(state_save(&thing_state, &a, &new, &err), 0);
	assert_int_equal(state_load(&thing_state, &b, old.data, old.len, &err), 0);
	assert_int_equal(b.later, 77);
	free(b.made);
	b.made = NULL;
	assert_int_equal(state_load(&thing_state, &b, new.data, new.len, &err), 0);
	assert_int_equal(b.later, 5);
	free(b.made);
	b.made = NULL;
	thing_state.min_version = 2;
	assert_true(state_load(&thing_state, &b, old.data, old.len, &err) < 0);
	assert_non_null(strstr(err.msg, "version 1"));
	thing_fields[10] = (struct state_field){0};
	thing_state.version = thing_state.min_version = 1;
	err = (struct err){0};
	assert_true(state_load(&thing_state, &b, new.data, new.len, &err) < 0);
	assert_non_null(strstr(err.msg, "newer"));
	state_buf_free(&old);
	state_buf_free(&new);
}

/* Each byte changed in some ways, and each length: an error or another value, never more. */
static void test_damage(void **state)
{
	struct thing a = example();
	struct state_buf x = {0};
	struct err err = {0};

	assert_int_equal(state_save(&thing_state, &a, &x, &err), 0);
	for (size_t at = 0; at < x.len; at++)
		for (unsigned bit = 0; bit < 9; bit++) {
			struct thing b = {.fixed = fixed[1], .nfixed = 2};
			uint8_t *copy = malloc(bit == 8 ? MAX(at, (size_t)1) : x.len);

			memcpy(copy, x.data, bit == 8 ? at : x.len);
			if (bit < 8)
				copy[at] ^= (uint8_t)(1u << bit);
			err = (struct err){0};
			if (state_load(&thing_state, &b, copy, bit == 8 ? at : x.len, &err) == 0)
				assert_true(bit < 8 && b.limited <= 10 && b.nmade <= 4);
			else
				assert_true(err.msg[0]);
			free(b.made);
			free(copy);
		}
	state_buf_free(&x);
}

static void test_crc(void **state)
{
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283); /* RFC 3720 */
	assert_int_equal(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

static void test_every_device(void **state)
{
	for (size_t i = 0; dev_table[i]; i++)
		if (!dev_table[i]->type.abstract && !dev_table[i]->engine_chip && !dev_table[i]->state)
			fail_msg("device type %s has no table of state", dev_table[i]->type.name);
}

/* ---- a whole machine -------------------------------------------------------------- */

static struct vm *vm;
static struct loop *loop;
static bool ended;
static int result;
static char why[480];

static void on_done(void *opaque, int rc, const struct err *err)
{
	ended = true;
	result = rc;
	snprintf(why, sizeof(why), "%s", err->msg);
}

static int save_to(int fd)
{
	struct err err = {0};
	struct snapshot *s = snapshot_save(vm, fd, false, on_done, NULL, &err);

	ended = false;
	if (!s)
		fail_msg("%s", err.msg);
	while (!ended)
		loop_run_once(loop, -1);
	snapshot_free(s);
	return result;
}

static int load_from(int fd)
{
	struct err err = {0};
	struct snapshot *s;

	ended = false;
	lseek(fd, 0, SEEK_SET);
	s = snapshot_load(vm, fd, on_done, NULL, &err);
	assert_non_null(s);
	while (!ended)
		loop_run_once(loop, -1);
	snapshot_free(s);
	return result;
}

static int memory_file(const uint8_t *data, size_t len)
{
	int fd = memfd_create("snapshot", MFD_CLOEXEC);

	if (len)
		assert_int_equal(write(fd, data, len), (ssize_t)len);
	return fd;
}

static uint8_t *contents(int fd, size_t *len)
{
	uint8_t *data;

	*len = (size_t)lseek(fd, 0, SEEK_END);
	data = malloc(*len);
	assert_int_equal(pread(fd, data, *len, 0), (ssize_t)*len);
	return data;
}

/* Let the devices have some state: writes all over their registers. */
static void scribble(unsigned seed)
{
	struct bus *bus = vm_bus(vm);

	srand(seed);
	for (unsigned i = 0; i < 3000; i++) {
		const uint32_t port = (uint32_t)rand() & 0xffff;

		/* Not what resets or ends the machine. */
		if (port == 0x64 || port == 0x60 || port == 0x92 || (port >= 0xcf8 && port <= 0xcff) || port == 0x501)
			continue;
		ports_write(bus->ports, (uint16_t)(port % 3 ? port & 0x3ff : port), (uint32_t)rand(), 1);
	}
	for (unsigned bdf = 0; bdf < 128; bdf += 8)
		for (unsigned i = 0; i < 4; i++)
			mem_write(bus->mem,
				  (pci_config_read(bus->pci, bdf, 0x10 + 4 * i, 4) & ~15u) + ((unsigned)rand() & 0xfc),
				  (uint32_t)rand(), 4);
	for (int i = 0; i < 5; i++)
		loop_run_once(loop, 0);
}

/* What is loaded is what was saved: saved again, it is the same to the byte. */
static void test_machine(void **state)
{
	for (unsigned seed = 1; seed <= 6; seed++) {
		int a = memory_file(NULL, 0), b = memory_file(NULL, 0);
		uint8_t *before, *after, *ram = mem_ram_ptr(&vm->mem, 0x200000, 4096);
		size_t alen, blen;

		scribble(seed);
		memset(ram, (int)seed, 4096);
		assert_int_equal(save_to(a), 0);
		scribble(seed + 100);
		memset(ram, 0xee, 8192);
		if (load_from(a))
			fail_msg("%s", why);
		assert_int_equal(ram[4095], seed);
		assert_int_equal(ram[4096], 0);
		assert_int_equal(save_to(b), 0);
		before = contents(a, &alen);
		after = contents(b, &blen);
		assert_int_equal(alen, blen);
		assert_memory_equal(before, after, alen);
		free(before);
		free(after);
		close(a);
		close(b);
	}
}

/* The records of a stream: where each begins. */
static size_t find_records(const uint8_t *data, size_t len, size_t *at, size_t max)
{
	size_t n = 0;

	for (size_t p = 16; p + 16 <= len && n < max; p += 16 + ld64le(data + p + 8))
		at[n++] = p;
	return n;
}

static void seal(uint8_t *record)
{
	uint8_t head[16];

	memcpy(head, record, 16);
	st32le(head + 4, 0);
	st32le(record + 4, crc32c(crc32c(0, head, 16), record + 16, ld64le(record + 8)));
}

static void expect_refused(const uint8_t *data, size_t len, const char *text)
{
	int fd = memory_file(data, len);

	assert_true(load_from(fd) < 0);
	if (!strstr(why, text))
		fail_msg("refused for another reason: %s", why);
	close(fd);
}

static void test_refused(void **state)
{
	static size_t at[4096];
	int fd = memory_file(NULL, 0);
	size_t len, n;
	uint8_t *data;

	assert_int_equal(save_to(fd), 0);
	data = contents(fd, &len);
	n = find_records(data, len, at, ARRAY_SIZE(at));
	assert_true(n > 10 && n < ARRAY_SIZE(at));
	expect_refused(data, len - 1, "cut short");
	expect_refused(data, 7, "cut short");
	expect_refused(data, at[n - 1], "cut short");
	data[len / 2] ^= 1;
	expect_refused(data, len, "checksum");
	data[len / 2] ^= 1;
	data[0] ^= 1;
	expect_refused(data, len, "no snapshot");
	data[0] ^= 1;
	data[8] = 9;
	st32le(data + 12, crc32c(0, data, 12));
	expect_refused(data, len, "newer");
	data[8] = 1;
	st32le(data + 12, crc32c(0, data, 12));
	/* "machine: pc" becomes another one, properly sealed. */
	data[at[0] + 16 + 9] = 'q';
	seal(data + at[0]);
	expect_refused(data, len, "another machine");
	assert_non_null(strstr(why, "\"machine: qc\""));
	data[at[0] + 16 + 9] = 'p';
	seal(data + at[0]);
	/* The last record before the end is a vCPU: without it. */
	memmove(data + at[n - 2], data + at[n - 1], len - at[n - 1]);
	expect_refused(data, at[n - 2] + 24, "records are missing");
	free(data);
	close(fd);
}

/* Records changed at random and sealed again: the tables and the devices must cope. */
static void test_fuzz(void **state)
{
	static size_t at[4096];
	const char *text = getenv("STATE_FUZZ_ROUNDS");
	const unsigned total = text ? (unsigned)atoi(text) : 150;
	int good = memory_file(NULL, 0);
	unsigned refused = 0;
	size_t len, n;
	uint8_t *data;

	scribble(77);
	assert_int_equal(save_to(good), 0);
	data = contents(good, &len);
	n = find_records(data, len, at, ARRAY_SIZE(at));
	srand(4242);
	for (unsigned round = 0; round < total; round++) {
		uint8_t *copy = malloc(len);
		int fd;

		memcpy(copy, data, len);
		for (unsigned i = 0; i < 1 + (unsigned)rand() % 3; i++) {
			uint8_t *r = copy + at[(unsigned)rand() % n];
			const uint64_t size = ld64le(r + 8);

			if (ld32le(r) == SNAP_RAM || !size)
				continue;
			for (unsigned k = 0; k < 1 + (unsigned)rand() % 4; k++)
				r[16 + (uint64_t)rand() % size] = (uint8_t)(rand() % 3 ? rand() : 0xff);
			seal(r);
		}
		fd = memory_file(copy, len);
		refused += load_from(fd) < 0;
		close(fd);
		/* Whatever was taken: the devices go on, and can be reset. */
		scribble(round);
		dev_resume_all(vm_bus(vm));
		for (int i = 0; i < 3; i++)
			loop_run_once(loop, 0);
		dev_pause_all(vm_bus(vm));
		dev_reset_all(vm_bus(vm));
		vm->board->reset(vm);
		free(copy);
	}
	assert_true(refused > total / 10);
	if (load_from(good))
		fail_msg("%s", why);
	free(data);
	close(good);
}

static char kernel[] = "/tmp/kelvin-state-XXXXXX", disk[3][40];

static void make_drive(unsigned i)
{
	struct err err = {0};
	char text[200];

	snprintf(disk[i], sizeof(disk[i]), "/tmp/kelvin-state-disk-XXXXXX");
	int fd = mkstemp(disk[i]);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
	snprintf(text, sizeof(text), "file=%s,format=raw,if=none,id=d%u", disk[i], i);
	if (!drive_create(text, loop, &err))
		fail_msg("%s", err.msg);
}

int main(void)
{
	static char *devices[] = {"virtio-blk-pci,drive=d0",
				  "nvme,drive=d1,serial=s",
				  "ahci,id=a",
				  "ide-hd,drive=d2,bus=a.0,serial=x",
				  "virtio-scsi-pci",
				  "virtio-balloon-pci",
				  "virtio-rng-pci",
				  "virtio-serial-pci",
				  "virtserialport",
				  "virtconsole",
				  "isa-serial",
				  "lsi",
				  "pc-testdev",
				  "pci-testdev",
				  "pvpanic",
				  "ide-cd"};
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_versions),
					   cmocka_unit_test(test_damage),	  cmocka_unit_test(test_crc),
					   cmocka_unit_test(test_every_device),	  cmocka_unit_test(test_machine),
					   cmocka_unit_test(test_refused),	  cmocka_unit_test(test_fuzz)};
	struct err err = {0};

	write_halt_kernel(mkstemp(kernel));
	struct vm_config cfg = {.machine = (char *)"pc",
				.accel = (char *)"soft",
				.ram_size = 16 * MIB,
				.ram = {.size = 16 * MIB},
				.cpus = 2,
				.sockets = 2,
				.cores = 1,
				.threads = 1,
				.kernel = kernel,
				.no_defaults = true,
				.start_paused = true,
				.devices = devices,
				.ndevices = ARRAY_SIZE(devices)};
	loop = loop_create("main", &err);
	drive_init();
	for (unsigned i = 0; i < 3; i++)
		make_drive(i);
	vm = vm_create(&cfg, loop, &err);
	if (!vm) {
		print_error("%s\n", err.msg);
		return 1;
	}
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	vm_destroy(vm);
	drive_close_all();
	loop_destroy(loop);
	unlink(kernel);
	for (unsigned i = 0; i < 3; i++)
		unlink(disk[i]);
	return failed;
}
