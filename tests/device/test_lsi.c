// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The LSI 53C895A without a CPU: SCRIPTS written here by hand select a target,
 * move messages, CDB, data and status, let it disconnect and come back; then what a
 * program can get wrong, and programs at random.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "block/block.h"
#include "hw/scsi/lsi.h"
#include "disk_image.h"
#include "virtio_guest.h"

#define SCRIPT	0x200000u
#define TABLE	0x210000u /* what the program moves */
#define MSG_OUT (TABLE + 0x000)
#define CDB	(TABLE + 0x100)
#define STATUS	(TABLE + 0x200)
#define MSG_IN	(TABLE + 0x300)
#define DATA	0x300000u

static struct machine m;
static struct lsi *l;
static uint64_t mmio, ram;

static void create(const char *drive_opts)
{
	char text[200];
	struct err err = {0};
	struct dev *d;

	machine_create(&m);
	snprintf(text, sizeof(text), "if=none,id=d,format=raw,file=%s%s", image, drive_opts);
	assert_non_null(drive_create(text, m.bus.loop, &err));
	d = dev_create_from_text(&m.bus, "lsi,id=s0", &err);
	assert_non_null(d);
	assert_non_null(dev_create_from_text(&m.bus, "scsi-hd,drive=d,bus=s0.0,scsi-id=2", &err));
	l = container_of(d, struct lsi, pci.dev);
	pci_bus_place_bars(m.bus.pci);
	pci_config_write(m.bus.pci, (unsigned)l->pci.devfn, 4, 7, 2);
	mmio = l->pci.bar[1].addr;
	ram = l->pci.bar[2].addr;
}

static int destroy(void **state)
{
	if (m.bus.loop)
		machine_destroy(&m);
	memset(&m, 0, sizeof(m));
	return 0;
}

static void put(unsigned off, uint32_t val, unsigned size)
{
	mem_write(&m.mem, mmio + off, val, size);
}

static uint32_t get(unsigned off, unsigned size)
{
	return (uint32_t)mem_read(&m.mem, mmio + off, size);
}

/* ---- programs ------------------------------------------------------------------------ */

static uint32_t at;

static void emit(uint32_t word, uint32_t arg)
{
	st32le(guest_ptr(&m, at), word);
	st32le(guest_ptr(&m, at + 4), arg);
	at += 8;
}

#define PH(p)	       ((uint32_t)(p) << 24)
#define MOVE(p, n)     (0x08000000 | PH(p) | (n))
#define SELECT_ATN(t)  (0x41000000 | (uint32_t)(t) << 16)
#define WAIT_DISC      0x48000000
#define WAIT_RESEL     0x50000000
#define CLEAR_ACK      0x60000040
#define INT	       0x98080000
#define JUMP	       0x80080000
#define JUMP_IF_NOT(p) (0x80030000 | PH(p))
#define JUMP_IF(p)     (0x800b0000 | PH(p))

/* Run until it stops or waits for good; the interrupt's number (DSPS), or -1. */
static int64_t run_at(uint32_t start)
{
	put(DIEN, 0x7f, 1);
	put(SIEN0, 0xff, 1);
	put(SIEN1, 0xff, 1);
	put(DSP, start, 4);
	for (int i = 0; i < 400; i++) {
		loop_run_once(m.bus.loop, 1000000);
		if (get(ISTAT0, 1) & (ISTAT0_DIP | ISTAT0_SIP))
			return get(DSPS, 4);
	}
	return -1;
}

static int64_t run(void)
{
	return run_at(SCRIPT);
}

/* A whole command, with the target free to disconnect. Ends in INT 100, or with another number. */
static void program(unsigned target, unsigned nmsg, unsigned ncdb, unsigned phase, uint32_t len)
{
	uint32_t dispatch, fix_msg, fix_disc;

	at = SCRIPT;
	emit(SELECT_ATN(target), SCRIPT + 0x800);
	emit(MOVE(PHASE_MSG_OUT, nmsg), MSG_OUT);
	emit(MOVE(PHASE_COMMAND, ncdb), CDB);
	dispatch = at;
	fix_msg = at;
	emit(0, 0); /* to the messages */
	emit(JUMP_IF(PHASE_STATUS), at + 8 + (len ? 8 : 0) + 8);
	if (len)
		emit(MOVE(phase, len), DATA);
	emit(JUMP, dispatch);
	emit(MOVE(PHASE_STATUS, 1), STATUS);
	emit(JUMP, dispatch);
	st32le(guest_ptr(&m, fix_msg), JUMP_IF(PHASE_MSG_IN));
	st32le(guest_ptr(&m, fix_msg + 4), at);
	emit(MOVE(PHASE_MSG_IN, 1), MSG_IN);
	emit(CLEAR_ACK, 0);
	emit(0x80040002, dispatch);		   /* not MSG 2 (save data pointer): falls through; see below */
	st32le(guest_ptr(&m, at - 8), 0x800c0002); /* jump if the byte is 2 */
	fix_disc = at;
	emit(0x800c0004, 0); /* if it is 4 */
	emit(WAIT_DISC, 0);
	emit(INT, 100);
	st32le(guest_ptr(&m, fix_disc + 4), at);
	emit(WAIT_DISC, 0);
	emit(WAIT_RESEL, SCRIPT + 0x800);
	emit(MOVE(PHASE_MSG_IN, 1), MSG_IN + 1); /* IDENTIFY */
	emit(CLEAR_ACK, 0);
	if (nmsg == 3) {
		emit(MOVE(PHASE_MSG_IN, 2), MSG_IN + 2);
		emit(CLEAR_ACK, 0);
	}
	emit(JUMP, dispatch);
	at = SCRIPT + 0x800;
	emit(INT, 101);
}

static void set_cdb(const uint8_t *cdb, size_t n)
{
	memcpy(guest_ptr(&m, CDB), cdb, n);
}

static void command(const uint8_t *cdb, unsigned n, unsigned phase, uint32_t len, bool tagged)
{
	uint8_t *msg = guest_ptr(&m, MSG_OUT);

	msg[0] = 0xc0;
	msg[1] = 0x20;
	msg[2] = 0x55;
	set_cdb(cdb, n);
	*guest_ptr(&m, STATUS) = 0xee;
	program(2, tagged ? 3 : 1, n, phase, len);
	assert_int_equal(run(), 100);
	assert_int_equal(get(DSTAT, 1) & 0x7f, DSTAT_SIR);
	assert_int_equal(*guest_ptr(&m, MSG_IN), 0);
}

#define CMD(phase, len, tagged, ...)                                                                                   \
	command((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}), phase, len, tagged)

static uint8_t status(void)
{
	return *guest_ptr(&m, STATUS);
}

static void test_commands(void **state)
{
	create(",aio=threads");
	/* The power-on attention, which REQUEST SENSE explains. */
	CMD(0, 0, false, 0, 0, 0, 0, 0, 0);
	assert_int_equal(status(), 2);
	CMD(PHASE_DATA_IN, 18, false, 3, 0, 0, 0, 18, 0);
	assert_int_equal(status(), 0);
	assert_int_equal(guest_ptr(&m, DATA)[2], 6);
	assert_int_equal(guest_ptr(&m, DATA)[12], 0x29);
	CMD(0, 0, false, 0, 0, 0, 0, 0, 0);
	assert_int_equal(status(), 0);
	CMD(PHASE_DATA_IN, 36, false, 0x12, 0, 0, 0, 36, 0);
	assert_memory_equal(guest_ptr(&m, DATA) + 8, "KELVIN  KELVIN HARDDISK 1.0 ", 28);
	for (unsigned i = 0; i < 8192; i++)
		guest_ptr(&m, DATA)[i] = (uint8_t)(i * 7);
	CMD(PHASE_DATA_OUT, 8192, true, 0x2a, 0, 0, 0, 0, 8, 0, 0, 16, 0);
	assert_int_equal(status(), 0);
	assert_int_equal(l->disconnects, 1);
	memset(guest_ptr(&m, DATA), 0, 8192);
	CMD(PHASE_DATA_IN, 8192, true, 0x28, 0, 0, 0, 0, 8, 0, 0, 16, 0);
	assert_int_equal(status(), 0);
	assert_int_equal(l->disconnects, 2);
	assert_int_equal(l->reselects, 2);
	assert_memory_equal(guest_ptr(&m, MSG_IN + 1), "\x80\x20\x55", 3);
	for (unsigned i = 0; i < 8192; i++)
		assert_int_equal(guest_ptr(&m, DATA)[i], (uint8_t)(i * 7));
	/* Larger than one part: 3 MiB there and back. */
	memset(guest_ptr(&m, DATA), 0x6b, 3 << 20);
	CMD(PHASE_DATA_OUT, 3 << 20, true, 0x2a, 0, 0, 0, 0, 0, 0, 0x18, 0, 0);
	assert_int_equal(status(), 0);
	memset(guest_ptr(&m, DATA), 0, 3 << 20);
	CMD(PHASE_DATA_IN, 3 << 20, true, 0x28, 0, 0, 0, 0, 0, 0, 0x18, 0, 0);
	assert_int_equal(status(), 0);
	assert_int_equal(guest_ptr(&m, DATA)[0], 0x6b);
	assert_int_equal(guest_ptr(&m, DATA)[(3 << 20) - 1], 0x6b);
	CMD(PHASE_DATA_IN, 512, true, 0x28, 0, 0, 0, 0xff, 0, 0, 0, 1, 0);
	assert_int_equal(status(), 2);
	CMD(PHASE_DATA_IN, 18, false, 3, 0, 0, 0, 18, 0);
	assert_int_equal(guest_ptr(&m, DATA)[12], 0x21);
	assert_int_equal(l->nreqs, 0);
	assert_int_equal(l->bounce, 0);
	run(); /* once more, to see the interrupt line */
	assert_int_not_equal(m.intx, 0);
	get(DSTAT, 1);
	assert_int_equal(m.intx, 0);
}

static void test_selection(void **state)
{
	create("");
	program(5, 1, 6, 0, 0);
	run();
	assert_int_equal(get(SIST0, 2), SIST1_STO << 8);
	assert_int_equal(get(DSP, 4), SCRIPT + 16); /* behind the instruction that needed the target */
	assert_int_equal(get(ISTAT0, 1) & ISTAT0_CON, 0);
	/* A LUN that is not there. */
	*guest_ptr(&m, MSG_OUT) = 0xc3;
	set_cdb((const uint8_t[6]){0}, 6);
	program(2, 1, 6, 0, 0);
	assert_int_equal(run(), 100);
	assert_int_equal(status(), 2);
	get(DSTAT, 1);
	/* WAIT RESELECT lets itself be interrupted by SIGP. */
	at = SCRIPT;
	emit(WAIT_RESEL, SCRIPT + 16);
	emit(INT, 1);
	emit(INT, 2);
	put(DSP, SCRIPT, 4);
	machine_settle(&m);
	assert_int_equal(get(ISTAT0, 1) & ISTAT0_DIP, 0);
	put(ISTAT0, ISTAT0_SIGP, 1);
	machine_settle(&m);
	assert_int_equal(get(DSPS, 4), 2);
	assert_int_equal(get(CTEST2, 1) & 0x40, 0x40);
	assert_int_equal(get(CTEST2, 1) & 0x40, 0);
}

/* The target has less than the program wants, or is in another phase. */
static void test_phase_mismatch(void **state)
{
	create("");
	*guest_ptr(&m, MSG_OUT) = 0x80;
	set_cdb((const uint8_t[]){0x12, 0, 0, 0, 36, 0}, 6);
	for (unsigned jumps = 0; jumps < 2; jumps++) {
		at = SCRIPT;
		emit(SELECT_ATN(2), SCRIPT + 0x800);
		emit(MOVE(PHASE_MSG_OUT, 1), MSG_OUT);
		emit(MOVE(PHASE_COMMAND, 6), CDB);
		emit(MOVE(PHASE_DATA_IN, 100), DATA);
		emit(INT, 1);
		emit(INT, 2);
		put(CCNTL0, jumps ? CCNTL0_ENPMJ : 0, 1);
		put(PMJAD1, SCRIPT + 40, 4);
		assert_int_equal(run(), jumps ? 2 : DATA);
		if (jumps) {
			assert_int_equal(get(DSTAT, 1) & 0x7f, DSTAT_SIR);
			assert_int_equal(get(RBC, 4) & 0xffffff, 64);
			assert_int_equal(get(UA, 4), DATA + 36);
			assert_int_equal(get(IA, 4), SCRIPT + 24);
		} else {
			assert_int_equal(get(SIST0, 2), SIST0_MA);
			assert_int_equal(get(DBC, 4) & 0xffffff, 64);
			assert_int_equal(get(DNAD, 4), DATA + 36);
		}
		put(SCNTL1, SCNTL1_RST, 1);
		put(SCNTL1, 0, 1);
		machine_settle(&m);
		assert_int_equal(get(SIST0, 1) & SIST0_RST, SIST0_RST);
		assert_int_equal(l->nreqs, 0);
	}
}

static void test_registers(void **state)
{
	create("");
	assert_int_equal(get(MACNTL, 1) >> 4, 0xd);
	put(SCRATCHA, 0x12345678, 4);
	at = SCRIPT;
	emit(0x78345500, 0);		      /* SCRATCHA = 55h */
	emit(0x7e350100, 0);		      /* SCRATCHA+1 += 1 */
	emit(0x72340000, 0);		      /* SFBR = SCRATCHA */
	emit(0x6a370000, 0);		      /* SCRATCHA+3 |= 0 of SFBR */
	emit(0xe0340004, TABLE);	      /* store */
	emit(0xe15c0004, TABLE);	      /* load into SCRATCHB */
	emit(0xc0000004, TABLE);	      /* memory move ... */
	emit((uint32_t)(mmio + SCRATCHC), 0); /* ... to a register: the third word, then a wrong instruction */
	at -= 4;
	emit(INT, 9);
	assert_int_equal(run(), 9);
	assert_int_equal(get(SCRATCHA, 4), 0x55345755);
	assert_int_equal(get(0x5c, 4), 0x55345755);
	assert_int_equal(get(SCRATCHC, 4), 0x55345755);
	/* Call, return, carry, data and mask comparisons. */
	at = SCRIPT;
	emit(0x88080000, SCRIPT + 0x40);
	emit(0x58000400, 0); /* set carry */
	emit(0x80280000, SCRIPT + 0x20);
	emit(INT, 1);
	emit(0x800c0077, SCRIPT + 0x30); /* if SFBR is 77h */
	emit(INT, 2);
	emit(0x800cf007, SCRIPT + 0x50); /* low bits only */
	emit(INT, 3);
	emit(0x6a347700, 0); /* in the subroutine: nothing of use */
	emit(0x90080000, 0);
	emit(INT, 4);
	put(SFBR, 0x77, 1);
	assert_int_equal(run(), 4);
	/* On the fly: an interrupt, and the program goes on. */
	at = SCRIPT;
	emit(0x98180000, 5);
	emit(WAIT_RESEL, 0);
	put(DSP, SCRIPT, 4);
	get(DSTAT, 1);
	machine_settle(&m);
	assert_int_equal(get(ISTAT0, 1) & ISTAT0_INTF, ISTAT0_INTF);
	assert_int_not_equal(m.intx, 0);
	put(ISTAT0, ISTAT0_INTF, 1);
	assert_int_equal(m.intx, 0);
	assert_int_equal(get(ISTAT1, 1) & ISTAT1_SRUN, ISTAT1_SRUN);
}

/* What a program must not do: each ends in an interrupt or waits, and the machine goes on. */
static void test_hostile(void **state)
{
	create("");
	/* For ever round: the loop has its other work done in between. */
	at = SCRIPT;
	emit(JUMP, SCRIPT);
	put(DSP, SCRIPT, 4);
	machine_settle(&m);
	assert_int_equal(get(ISTAT1, 1) & ISTAT1_SRUN, ISTAT1_SRUN);
	put(ISTAT0, ISTAT0_ABRT, 1);
	assert_int_equal(get(DSTAT, 1) & 0x7f, DSTAT_ABRT);
	machine_settle(&m);
	assert_int_equal(get(ISTAT1, 1) & ISTAT1_SRUN, 0);
	/* Programs and tables outside RAM; a BAR of its own is no RAM either. */
	run_at((uint32_t)GUEST_HOLE);
	assert_int_equal(get(DSTAT, 1) & 0x7f, DSTAT_BF);
	run_at((uint32_t)mmio);
	assert_int_equal(get(DSTAT, 1) & 0x7f, DSTAT_BF);
	run_at((uint32_t)(GUEST_RAM - 4));
	assert_int_equal(get(DSTAT, 1) & 0x7f, DSTAT_BF);
	run_at((uint32_t)(ram + LSI_RAM_SIZE - 4));
	assert_int_equal(get(DSTAT, 1) & 0x7f, DSTAT_BF);
	*guest_ptr(&m, MSG_OUT) = 0x80;
	set_cdb((const uint8_t[]){0x12, 0, 0, 0, 36, 0}, 6);
	for (unsigned where = 0; where < 2; where++) { /* data onto its own registers: field case I6 */
		at = SCRIPT;
		emit(SELECT_ATN(2), SCRIPT + 0x800);
		emit(MOVE(PHASE_MSG_OUT, 1), MSG_OUT);
		emit(MOVE(PHASE_COMMAND, 6), CDB);
		emit(MOVE(PHASE_DATA_IN, 36), where ? (uint32_t)mmio : (uint32_t)GUEST_HOLE);
		emit(INT, 1);
		run();
		assert_int_equal(get(DSTAT, 1) & 0x7f, DSTAT_BF);
		put(ISTAT0, ISTAT0_SRST, 1);
		put(ISTAT0, 0, 1);
	}
	/* A move without a target; one of no bytes; an instruction that is none. */
	at = SCRIPT;
	emit(MOVE(PHASE_DATA_IN, 1), DATA);
	run();
	assert_int_equal(get(SIST0, 1), SIST0_UDC);
	at = SCRIPT;
	emit(0xa0080000, 0);
	run();
	assert_int_equal(get(DSTAT, 1) & 0x7f, DSTAT_IID);
	/* A program that resets its own chip by a memory move. */
	*guest_ptr(&m, TABLE) = ISTAT0_SRST;
	at = SCRIPT;
	emit(SELECT_ATN(2), SCRIPT + 0x800);
	emit(0xc0000001, TABLE);
	emit((uint32_t)(mmio + ISTAT0), 0);
	put(DSP, SCRIPT, 4);
	machine_settle(&m);
	assert_int_equal(get(ISTAT1, 1) & ISTAT1_SRUN, 0);
	put(ISTAT0, 0, 1);
	*guest_ptr(&m, MSG_OUT) = 0x80;
	/* More commands than there is room for: the target says so. */
	for (unsigned i = 0; i < LSI_MAX_REQS + 20; i++) {
		at = SCRIPT;
		emit(SELECT_ATN(2), SCRIPT + 0x800);
		emit(MOVE(PHASE_MSG_OUT, 1), MSG_OUT);
		emit(MOVE(PHASE_COMMAND, 6), CDB);
		emit(INT, 1);
		run();
		get(DSTAT, 1);
		l->connected = false; /* the target never gets rid of its command */
		l->cur = NULL;
		assert_true(l->nreqs <= LSI_MAX_REQS);
	}
	assert_int_equal(l->nreqs, LSI_MAX_REQS);
	put(SCNTL1, SCNTL1_RST, 1);
	machine_settle(&m);
	assert_int_equal(l->nreqs, 0);
	assert_int_equal(l->bounce, 0);
}

/* The machine's reset and pause with a command under way. */
static void test_reset_and_pause(void **state)
{
	create(",aio=threads");
	*guest_ptr(&m, MSG_OUT) = 0xc0;
	for (unsigned i = 0; i < 6; i++) {
		set_cdb((const uint8_t[]){0x28, 0, 0, 0, 0, 0, 0, 0, 64, 0}, 10);
		program(2, 1, 10, PHASE_DATA_IN, 64 * 512);
		put(DSP, SCRIPT, 4);
		for (unsigned k = 0; k < i; k++)
			loop_run_once(m.bus.loop, 0);
		dev_pause_all(&m.bus);
		if (i & 1)
			dev_reset_all(&m.bus);
		dev_resume_all(&m.bus);
		machine_settle(&m);
		if (i & 1) {
			assert_int_equal(l->nreqs, 0);
			pci_bus_place_bars(m.bus.pci);
			pci_config_write(m.bus.pci, (unsigned)l->pci.devfn, 4, 7, 2);
			mmio = l->pci.bar[1].addr;
			ram = l->pci.bar[2].addr;
		} else {
			for (int t = 0; t < 400 && l->run != LSI_HALTED; t++)
				loop_run_once(m.bus.loop, 1000000);
			assert_int_equal(get(DSPS, 4), 100);
			get(DSTAT, 1);
		}
	}
}

/* ---- nonsense ------------------------------------------------------------------------------ */

static uint32_t seed = 7;

static uint32_t rnd(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static uint32_t address(void)
{
	switch (rnd() % 8) {
	case 0: return (uint32_t)mmio + rnd() % 256;
	case 1: return (uint32_t)ram + rnd() % 8192;
	case 2: return (uint32_t)GUEST_HOLE;
	case 3: return rnd() << 8 | rnd();
	case 4: return SCRIPT + (rnd() % 128) * 8;
	default: return TABLE + rnd() % 0x1000;
	}
}

static uint32_t instruction(void)
{
	static const uint8_t phase[] = {0, 1, 2, 3, 6, 7};
	const uint32_t p = PH(phase[rnd() % 6]);

	switch (rnd() % 12) {
	case 0: return SELECT_ATN(rnd() % 4 ? 2 : rnd() % 16);
	case 1:
	case 2: return MOVE(PHASE_MSG_OUT, 1 + rnd() % 4);
	case 3: return MOVE(PHASE_COMMAND, rnd() % 4 ? 10 : 6 + rnd() % 12);
	case 4:
	case 5: return 0x08000000 | p | (rnd() % 4 ? rnd() % 64 : rnd() % 70000) | (rnd() % 8 ? 0 : (rnd() & 3) << 28);
	case 6: return 0x40000000 | (rnd() % 5) << 27 | (rnd() & 0x7448);
	case 7: return 0x40000000 | (5 + rnd() % 3) << 27 | (rnd() & 0x07ffff80);
	case 8: return 0x80000000 | (rnd() % 4) << 27 | p | (rnd() & 0xbf) << 16 | (rnd() & 0xffff);
	case 9: return 0xc0000000 | (rnd() & 0x31ff0007);
	case 10: return rnd() << 8 ^ rnd();
	default: return MOVE(PHASE_STATUS, 1);
	}
}

/* LSI_FUZZ_ROUNDS for more. */
static void test_random_programs(void **state)
{
	const char *text = getenv("LSI_FUZZ_ROUNDS");
	const unsigned rounds = text ? (unsigned)atoi(text) : 1500;

	create(",discard=unmap");
	for (unsigned i = 0; i < rounds; i++) {
		uint8_t *table = guest_ptr(&m, TABLE);

		for (unsigned k = 0; k < 0x1000; k += 1 + rnd() % 64)
			table[k] = (uint8_t)(rnd() % 2 ? rnd() : 0);
		table[0] = (uint8_t)(rnd() % 4 ? 0xc0 : rnd());
		for (at = SCRIPT; at < SCRIPT + 0x400;)
			emit(instruction(), address());
		at = SCRIPT;
		if (rnd() % 4) {
			emit(SELECT_ATN(2), SCRIPT);
			emit(MOVE(PHASE_MSG_OUT, 1 + rnd() % 3), MSG_OUT);
			emit(MOVE(PHASE_COMMAND, 10), TABLE + rnd() % 64);
		}
		for (unsigned k = rnd() % 4; k--;)
			put(rnd() % 256, rnd(), 1u << rnd() % 3);
		put(DSP, rnd() % 8 ? SCRIPT : address(), 4);
		for (unsigned k = 0; k < 4; k++) {
			loop_run_once(m.bus.loop, 0);
			if (rnd() % 2)
				put(DSP, SCRIPT + (rnd() % 128) * 8, 4);
			get(rnd() % 256, 4);
		}
		if (rnd() % 16 == 0) {
			dev_pause_all(&m.bus);
			if (rnd() % 2)
				dev_reset_all(&m.bus);
			dev_resume_all(&m.bus);
			pci_bus_place_bars(m.bus.pci);
			pci_config_write(m.bus.pci, (unsigned)l->pci.devfn, 4, 7, 2);
			mmio = l->pci.bar[1].addr;
			ram = l->pci.bar[2].addr;
		}
		assert_true(l->nreqs <= LSI_MAX_REQS && l->bounce <= LSI_MAX_BOUNCE);
	}
}

#define TEST(f) cmocka_unit_test_teardown(f, destroy)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_commands), TEST(test_selection),	     TEST(test_phase_mismatch),	 TEST(test_registers),
	    TEST(test_hostile),	 TEST(test_reset_and_pause), TEST(test_random_programs),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
