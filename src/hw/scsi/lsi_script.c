// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The SCRIPTS processor of the LSI 53C895A: LSI53C895A technical manual, chapter 5.
 * It runs in the loop's thread, a bounded number of instructions at a time; where a
 * real chip would wait for the bus it stops in one of the LSI_WAIT_ states, and the
 * event it waits for runs it again (the instruction is executed once more).
 *
 * Locking: dev.lock.
 */
#include "hw/scsi/lsi.h"

/* Bytes that a MEMORY MOVE copies for the price of one instruction. */
#define COPY_UNIT 256u

struct insn {
	uint32_t at;   /* its address */
	uint32_t word; /* DCMD and DBC */
	uint32_t arg;  /* DSPS */
};

static int32_t sext24(uint32_t v)
{
	return (int32_t)(v << 8) >> 8;
}

static bool fetch(struct lsi *l, uint32_t *val)
{
	const uint32_t at = lsi_get32(l, DSP);

	if (!lsi_dma_read(l, at, val, 4))
		return false;
	lsi_set32(l, DSP, at + 4);
	return true;
}

static void illegal(struct lsi *l)
{
	lsi_interrupt(l, DSTAT_IID, 0, 0);
}

/* Wait, and execute this instruction again. */
static void stall(struct lsi *l, const struct insn *i, enum lsi_run why)
{
	lsi_set32(l, DSP, i->at);
	l->run = why;
}

/*
 * A chip goes on behind SELECT until an instruction needs the target, and only there meets the selection's timeout:
 * drivers look at DSP to tell. True when that is so; the program has stopped.
 */
static bool selection_timeout(struct lsi *l)
{
	if (!l->no_answer)
		return false;
	lsi_interrupt(l, 0, 0, SIST1_STO);
	return true;
}

/* ---- block moves: 5.5 ------------------------------------------------------------------- */

/* Bits 39 to 32 of a table entry's address, or the register that has the upper half. */
static uint64_t table_upper(const struct lsi *l, uint8_t selector)
{
	if (!(l->reg[CCNTL1] & CCNTL1_EN64TIBMV))
		return 0;
	if (l->reg[CCNTL1] & CCNTL1_64TIMOD)
		return (uint64_t)selector << 32;
	selector &= 0x1f;
	if (selector < 16)
		return (uint64_t)lsi_get32(l, SCRATCHC + 4u * selector) << 32;
	return selector < 22 ? (uint64_t)lsi_get32(l, MMRS + 4u * (selector - 16u)) << 32 : 0;
}

/* Count and address; false on a fault. */
static bool block_operands(struct lsi *l, const struct insn *i, uint32_t *count, uint64_t *addr)
{
	uint32_t word, entry[2];

	*count = i->word & 0xffffff;
	*addr = i->arg;
	if (i->word & 0x10000000) { /* table indirect */
		const uint32_t at = lsi_get32(l, DSA) + (uint32_t)sext24(i->arg);
		if (!lsi_dma_read(l, at, entry, 8))
			return false;
		lsi_set32(l, ESA, at);
		*count = entry[0] & 0xffffff;
		*addr = entry[1] | table_upper(l, (uint8_t)(entry[0] >> 24));
		return true;
	}
	if (l->reg[CCNTL1] & CCNTL1_EN64DBMV) {
		if (!fetch(l, &word))
			return false;
		*addr |= (uint64_t)word << 32;
	}
	if (i->word & 0x20000000) { /* indirect */
		if (!lsi_dma_read(l, *addr, &word, 4))
			return false;
		*addr = word;
	}
	return true;
}

/* The target went on to another phase before all was moved. */
static void phase_mismatch(struct lsi *l, const struct insn *i, enum lsi_phase wanted, uint64_t addr, uint32_t left)
{
	const bool in = wanted & 1, ctl = l->reg[CCNTL0] & CCNTL0_PMJCTL;
	bool second = ctl ? in : l->reg[SCNTL2] & SCNTL2_WSR;

	lsi_set32(l, DNAD, (uint32_t)addr);
	lsi_set32(l, DBC, (i->word & 0xff000000) | left);
	if (wanted > PHASE_DATA_IN || !(l->reg[CCNTL0] & CCNTL0_ENPMJ)) {
		lsi_interrupt(l, 0, SIST0_MA, 0);
		return;
	}
	lsi_set32(l, RBC, (i->word & 0xff000000) | left);
	lsi_set32(l, UA, (uint32_t)addr);
	lsi_set32(l, IA, i->at);
	lsi_set32(l, DSP, lsi_get32(l, second ? PMJAD2 : PMJAD1));
}

static void block_move(struct lsi *l, const struct insn *i)
{
	const enum lsi_phase phase = i->word >> 24 & 7;
	uint32_t count, done = 0;
	uint64_t addr;

	if (selection_timeout(l))
		return;
	if (!l->connected) { /* nobody is there to move anything with */
		lsi_interrupt(l, 0, SIST0_UDC, 0);
		return;
	}
	if (!l->req_line) {
		stall(l, i, LSI_WAIT_TARGET);
		return;
	}
	if (!block_operands(l, i, &count, &addr))
		return;
	if (count == 0) {
		illegal(l);
		return;
	}
	if (l->reg[SCNTL0] & 1) { /* target mode */
		illegal(l);
		return;
	}
	while (done < count && l->connected && l->req_line && l->phase == phase) {
		const int64_t n = lsi_move(l, addr + done, count - done);
		if (n <= 0)
			return;
		done += (uint32_t)n;
	}
	lsi_set32(l, SBC, done);
	lsi_set32(l, CSBC, lsi_get32(l, CSBC) + done);
	lsi_set32(l, DNAD, (uint32_t)(addr + done));
	if (done == count) {
		lsi_set32(l, DBC, i->word & 0xff000000);
		return;
	}
	if (l->connected && !l->req_line) {
		/* More of the same will come: go on behind what was moved, when it does. */
		l->move_addr = addr + done;
		l->move_left = count - done;
		l->move_insn = i->word;
		l->move_at = i->at;
		l->run = LSI_WAIT_TARGET;
		return;
	}
	phase_mismatch(l, i, phase, addr + done, count - done);
}

/* A block move that waited in its middle. */
static void block_move_rest(struct lsi *l)
{
	const struct insn i = {.at = l->move_at, .word = l->move_insn};
	const enum lsi_phase phase = i.word >> 24 & 7;

	while (l->move_left && l->connected && l->req_line && l->phase == phase) {
		const int64_t n = lsi_move(l, l->move_addr, l->move_left);
		if (n <= 0) {
			l->move_left = 0;
			return;
		}
		l->move_addr += (uint64_t)n;
		l->move_left -= (uint32_t)n;
		lsi_set32(l, CSBC, lsi_get32(l, CSBC) + (uint32_t)n);
	}
	if (l->move_left && l->connected && !l->req_line) {
		l->run = LSI_WAIT_TARGET;
		return;
	}
	lsi_set32(l, DNAD, (uint32_t)l->move_addr);
	lsi_set32(l, DBC, i.word & 0xff000000);
	if (l->move_left)
		phase_mismatch(l, &i, phase, l->move_addr, l->move_left);
	l->move_left = 0;
}

/* ---- I/O: 5.6 ------------------------------------------------------------------------------- */

static void select_target(struct lsi *l, const struct insn *i)
{
	unsigned target = i->word >> 16 & 15;
	uint32_t entry, other = i->arg;

	if (i->word & 0x04000000) /* relative */
		other = lsi_get32(l, DSP) + (uint32_t)sext24(i->arg);
	if (i->word & 0x02000000) { /* table indirect */
		if (!lsi_dma_read(l, lsi_get32(l, DSA) + (uint32_t)sext24(i->word), &entry, 4))
			return;
		target = entry >> 16 & 15;
		l->reg[SCNTL3] = (uint8_t)(entry >> 24);
		l->reg[SXFER] = (uint8_t)(entry >> 8);
	}
	if (l->connected) { /* somebody has reselected us */
		lsi_set32(l, DSP, other);
		return;
	}
	l->reg[SDID] = (uint8_t)target;
	if (lsi_select(l, target, i->word & 0x01000000) == SELECT_TIMEOUT)
		l->no_answer = true;
	else
		l->reg[SSID] = 0;
}

static void wait_reselect(struct lsi *l, const struct insn *i)
{
	uint32_t other = i->arg;

	if (i->word & 0x04000000)
		other = lsi_get32(l, DSP) + (uint32_t)sext24(i->arg);
	if (selection_timeout(l) || l->connected || lsi_try_reselect(l))
		return;
	if (l->reg[ISTAT0] & ISTAT0_SIGP)
		lsi_set32(l, DSP, other);
	else
		stall(l, i, LSI_WAIT_RESELECT);
}

static void set_clear(struct lsi *l, const struct insn *i, bool set)
{
	if (i->word & 0x400)
		l->carry = set;
	if (i->word & 8)
		lsi_set_atn(l, set);
	/* ACK (40h) is part of each transfer here; target mode (200h) does not exist. */
}

static void io_insn(struct lsi *l, const struct insn *i)
{
	switch (i->word >> 27 & 7) {
	case 0: select_target(l, i); break;
	case 1:
		if (!selection_timeout(l) && l->connected)
			stall(l, i, LSI_WAIT_DISCONNECT);
		break;
	case 2: wait_reselect(l, i); break;
	case 3: set_clear(l, i, true); break;
	default: set_clear(l, i, false); break;
	}
}

/* ---- registers: 5.7 ---------------------------------------------------------------------------- */

static uint8_t operate(struct lsi *l, unsigned op, uint8_t a, uint8_t b)
{
	unsigned sum;

	switch (op) {
	case 0: return b;
	case 1:
		sum = (unsigned)a << 1 | l->carry;
		l->carry = sum >> 8;
		return (uint8_t)sum;
	case 2: return a | b;
	case 3: return a ^ b;
	case 4: return a & b;
	case 5:
		sum = (unsigned)a >> 1 | (unsigned)l->carry << 7;
		l->carry = a & 1;
		return (uint8_t)sum;
	default:
		sum = (unsigned)a + b + (op == 7 && l->carry);
		l->carry = sum >> 8;
		return (uint8_t)sum;
	}
}

static void register_insn(struct lsi *l, const struct insn *i)
{
	const unsigned reg = (i->word >> 16 & 0x7f) | (i->word & 0x80), op = i->word >> 24 & 7;
	const uint8_t imm = i->word & 0x00800000 ? l->reg[SFBR] : (uint8_t)(i->word >> 8);
	uint8_t a;

	switch (i->word >> 27 & 7) {
	case 5: /* from SFBR; a plain move has nothing to read from the register */
		lsi_reg_write(l, reg,
			      op == 0 && !(i->word & 0x00800000) ? l->reg[SFBR] : operate(l, op, l->reg[SFBR], imm));
		break;
	case 6: /* to SFBR */
		a = lsi_reg_read(l, reg);
		l->reg[SFBR] = op == 0 ? a : operate(l, op, a, imm);
		break;
	default:
		a = op == 0 ? 0 : lsi_reg_read(l, reg);
		lsi_reg_write(l, reg, operate(l, op, a, imm));
		break;
	}
}

/* ---- transfer of control: 5.8 --------------------------------------------------------------------- */

/* -1: the target has not shown its phase yet. */
static int condition(struct lsi *l, const struct insn *i)
{
	const bool want = i->word & 0x00080000;
	bool match = true;

	if (i->word & 0x00200000)
		return l->carry == want;
	if ((i->word & 0x00030000) == 0x00030000 && l->connected && !l->req_line)
		return -1;
	if (i->word & 0x00020000)
		match = l->connected && l->phase == (enum lsi_phase)(i->word >> 24 & 7);
	if (i->word & 0x00040000) {
		const uint8_t mask = (uint8_t) ~(i->word >> 8);
		match = match && (l->reg[SFBR] & mask) == (i->word & mask & 0xff);
	}
	return match == want;
}

static void control_insn(struct lsi *l, const struct insn *i)
{
	const unsigned op = i->word >> 27 & 7;
	uint32_t target = i->arg, upper;
	int yes;

	if ((i->word & 0x00400000) && op < 2 && !fetch(l, &upper)) /* a 64-bit jump: the program is below 4 GiB */
		return;
	if ((i->word & 0x00010000) && selection_timeout(l))
		return;
	yes = condition(l, i);
	if (yes < 0) {
		stall(l, i, LSI_WAIT_TARGET);
		return;
	}
	if (!yes)
		return;
	if (i->word & 0x00800000)
		target = lsi_get32(l, DSP) + (uint32_t)sext24(i->arg);
	switch (op) {
	case 0: lsi_set32(l, DSP, target); break;
	case 1:
		lsi_set32(l, TEMP, lsi_get32(l, DSP));
		lsi_set32(l, DSP, target);
		break;
	case 2: lsi_set32(l, DSP, lsi_get32(l, TEMP)); break;
	case 3:
		if (i->word & 0x00100000) { /* on the fly */
			l->reg[ISTAT0] |= ISTAT0_INTF;
			lsi_update_irq(l);
		} else {
			lsi_interrupt(l, DSTAT_SIR, 0, 0);
		}
		break;
	default: illegal(l); break;
	}
}

/* ---- memory: 5.9, 5.10 ---------------------------------------------------------------------------- */

/* Returns what it cost, in instructions. */
static unsigned memory_move(struct lsi *l, const struct insn *i)
{
	uint32_t count = i->word & 0xffffff, to;
	uint64_t from = i->arg | (uint64_t)lsi_get32(l, MMRS) << 32, dest;
	const unsigned cost = count / COPY_UNIT;
	uint8_t buf[4096];

	if (!fetch(l, &to))
		return 0;
	lsi_set32(l, TEMP, to);
	dest = to | (uint64_t)lsi_get32(l, MMRS + 4) << 32;
	while (count) {
		const uint32_t n = MIN(count, (uint32_t)sizeof(buf));
		if (!lsi_memory_read(l, from, buf, n) || !lsi_memory_write(l, dest, buf, n))
			return cost;
		from += n;
		dest += n;
		count -= n;
	}
	return cost;
}

static void load_store(struct lsi *l, const struct insn *i)
{
	const unsigned reg = i->word >> 16 & 0xff, n = i->word & 7;
	uint32_t at = i->arg;
	uint8_t buf[4];

	if (n == 0 || n > 4 || reg + n > LSI_REG_SIZE) {
		illegal(l);
		return;
	}
	if (i->word & 0x10000000)
		at = lsi_get32(l, DSA) + (uint32_t)sext24(i->arg);
	if (i->word & 0x01000000) {
		if (!lsi_dma_read(l, at, buf, n))
			return;
		for (unsigned k = 0; k < n; k++)
			lsi_reg_write(l, reg + k, buf[k]);
		return;
	}
	for (unsigned k = 0; k < n; k++)
		buf[k] = lsi_reg_read(l, reg + k);
	lsi_dma_write(l, at, buf, n);
}

/* ---- the processor -------------------------------------------------------------------------------------- */

static unsigned step(struct lsi *l)
{
	struct insn i = {.at = lsi_get32(l, DSP)};
	unsigned cost = 0;

	if (!fetch(l, &i.word) || !fetch(l, &i.arg))
		return 0;
	lsi_set32(l, DBC, i.word);
	lsi_set32(l, DSPS, i.arg);
	counter_add(&l->instructions, 1);
	switch (i.word >> 30) {
	case 0: block_move(l, &i); break;
	case 1:
		if ((i.word >> 27 & 7) < 5)
			io_insn(l, &i);
		else
			register_insn(l, &i);
		break;
	case 2: control_insn(l, &i); break;
	default:
		if (i.word & 0x20000000)
			load_store(l, &i);
		else
			cost = memory_move(l, &i);
		break;
	}
	if ((l->reg[DCNTL] & DCNTL_SSM) && l->run == LSI_RUNNING)
		lsi_interrupt(l, DSTAT_SSI, 0, 0);
	return cost;
}

/* Did what it waits for happen? */
static bool may_go_on(const struct lsi *l)
{
	switch (l->run) {
	case LSI_RUNNING: return true;
	case LSI_WAIT_TARGET: return l->req_line || !l->connected;
	case LSI_WAIT_RESELECT: return l->connected || l->ready || (l->reg[ISTAT0] & ISTAT0_SIGP);
	case LSI_WAIT_DISCONNECT: return !l->connected;
	default: return false;
	}
}

bool lsi_script_run(struct lsi *l, unsigned steps)
{
	while (!l->submit && may_go_on(l)) {
		if (steps == 0)
			return false;
		unsigned cost = 1;

		l->run = LSI_RUNNING;
		if (l->move_left)
			block_move_rest(l);
		else
			cost += step(l);
		steps -= MIN(steps, cost);
	}
	return true;
}
