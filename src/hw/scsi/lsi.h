/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Between the parts of the LSI 53C895A: lsi.c (PCI, registers, interrupts),
 * lsi_script.c (the SCRIPTS processor), lsi_target.c (the SCSI bus: phases,
 * messages, commands).
 *
 * Locking: everything here is under dev.lock, except that commands run without it.
 */
#ifndef KELVIN_HW_SCSI_LSI_H
#define KELVIN_HW_SCSI_LSI_H

#include "base/util.h"
#include "bus/pci.h"
#include "hw/scsi/scsi.h"

/* Registers: LSI53C895A technical manual, chapter 4. */
enum {
	SCNTL0 = 0x00,
	SCNTL1 = 0x01,
	SCNTL2 = 0x02,
	SCNTL3 = 0x03,
	SCID = 0x04,
	SXFER = 0x05,
	SDID = 0x06,
	GPREG = 0x07,
	SFBR = 0x08,
	SOCL = 0x09,
	SSID = 0x0a,
	SBCL = 0x0b,
	DSTAT = 0x0c,
	SSTAT0 = 0x0d,
	SSTAT1 = 0x0e,
	SSTAT2 = 0x0f,
	DSA = 0x10,
	ISTAT0 = 0x14,
	ISTAT1 = 0x15,
	CTEST1 = 0x19,
	CTEST2 = 0x1a,
	CTEST3 = 0x1b,
	TEMP = 0x1c,
	DFIFO = 0x20,
	DBC = 0x24,
	DCMD = 0x27,
	DNAD = 0x28,
	DSP = 0x2c,
	DSPS = 0x30,
	SCRATCHA = 0x34,
	DMODE = 0x38,
	DIEN = 0x39,
	DCNTL = 0x3b,
	SIEN0 = 0x40,
	SIEN1 = 0x41,
	SIST0 = 0x42,
	SIST1 = 0x43,
	MACNTL = 0x46,
	STIME1 = 0x49,
	STEST1 = 0x4d,
	STEST3 = 0x4f,
	SIDL = 0x50,
	STEST4 = 0x52,
	CCNTL0 = 0x56,
	CCNTL1 = 0x57,
	SBDL = 0x58,
	SCRATCHC = 0x60,
	MMRS = 0xa0,
	DNAD64 = 0xb8,
	PMJAD1 = 0xc0,
	PMJAD2 = 0xc4,
	RBC = 0xc8,
	UA = 0xcc,
	ESA = 0xd0,
	IA = 0xd4,
	SBC = 0xd8,
	CSBC = 0xdc,
};

#define SCNTL1_CON	 0x10
#define SCNTL1_RST	 0x08
#define SCNTL2_WSR	 0x01
#define DSTAT_DFE	 0x80
#define DSTAT_BF	 0x20
#define DSTAT_ABRT	 0x10
#define DSTAT_SSI	 0x08
#define DSTAT_SIR	 0x04
#define DSTAT_IID	 0x01
#define ISTAT0_ABRT	 0x80
#define ISTAT0_SRST	 0x40
#define ISTAT0_SIGP	 0x20
#define ISTAT0_CON	 0x08
#define ISTAT0_INTF	 0x04
#define ISTAT0_SIP	 0x02
#define ISTAT0_DIP	 0x01
#define ISTAT1_SRUN	 0x02
#define DCNTL_SSM	 0x10
#define DCNTL_STD	 0x04
#define DCNTL_IRQD	 0x02
#define DMODE_MAN	 0x01
#define SIST0_MA	 0x80
#define SIST0_UDC	 0x04
#define SIST0_RST	 0x02
#define SIST0_FATAL	 0x8f /* MA, SGE, UDC, RST, PAR */
#define SIST1_STO	 0x04
#define SIST1_GEN	 0x02
#define CCNTL0_ENPMJ	 0x80
#define CCNTL0_PMJCTL	 0x40
#define CCNTL1_64TIMOD	 0x04
#define CCNTL1_EN64TIBMV 0x02
#define CCNTL1_EN64DBMV	 0x01

#define LSI_RAM_SIZE   8192u
#define LSI_REG_SIZE   256u
#define LSI_MAX_REQS   256
#define LSI_MAX_BOUNCE (64u << 20) /* bytes in all requests */
#define LSI_MAX_SPARE  4

/* The bus's phase lines: MSG, C/D, I/O. */
enum lsi_phase { PHASE_DATA_OUT, PHASE_DATA_IN, PHASE_COMMAND, PHASE_STATUS, PHASE_MSG_OUT = 6, PHASE_MSG_IN };

/* What the SCRIPTS processor does. */
enum lsi_run {
	LSI_HALTED,
	LSI_RUNNING,
	LSI_WAIT_TARGET, /* the target has not asked for the next byte yet */
	LSI_WAIT_RESELECT,
	LSI_WAIT_DISCONNECT,
};

enum lsi_req_state { REQ_DATA_OUT, REQ_IO, REQ_DATA_IN, REQ_STATUS, REQ_ENDED };

/* A command at a target. Its data are gathered here: the addresses come one by one from the SCRIPTS, and late. */
struct lsi_req {
	struct scsi_req s;
	struct lsi *l;
	struct lsi_req *next;  /* of l->reqs */
	struct lsi_req *ready; /* of l->ready */
	enum lsi_req_state state;
	unsigned target, lun;
	bool tagged, disconnected, orphan;
	uint8_t tag;
	uint8_t *data; /* this part of the transfer */
	uint32_t room; /* bytes at data, at least size */
	uint32_t size, fill, pos;
	uint64_t before; /* s.pos when this part began */
	struct iovec iov;
};

struct lsi {
	struct pci_dev pci;
	struct scsi_bus bus;
	uint8_t reg[LSI_REG_SIZE], ram[LSI_RAM_SIZE];
	enum lsi_run run;
	bool carry;
	bool no_answer; /* a selection runs into its timeout, while the program goes on */
	/* the bus */
	bool connected, req_line, atn, free_after_message, may_disconnect;
	enum lsi_phase phase;
	unsigned target;
	int identify; /* the LUN an IDENTIFY message named; -1: none yet */
	bool tagged;
	uint8_t tag;
	uint8_t msg_in[16], msg_out[16];
	unsigned msg_in_len, msg_in_pos;
	struct lsi_req *cur;	/* the command that has the bus */
	struct lsi_req *reqs;	/* all */
	struct lsi_req *ready;	/* want to reselect, oldest first */
	struct lsi_req full;	/* stands in when there is no room: TASK SET FULL */
	struct lsi_req *submit; /* to be run once the lock is released */
	unsigned nreqs;
	uint64_t bounce; /* bytes */
	struct lsi_buffer {
		uint8_t *data;
		uint32_t room;
	} spare[LSI_MAX_SPARE]; /* of finished commands: fresh ones would cost a page fault a page */
	bool posted;		/* lsi_run_loop is on its way */
	bool paused, reset_units;
	/* a block move that waits in its middle; move_left 0: none */
	uint64_t move_addr;
	uint32_t move_left, move_insn, move_at;
	struct timer gen_timer, later;
	uint64_t instructions, commands, irqs, disconnects, reselects; /* counters */
};

/* lsi_state.c */
extern const struct state lsi_state;

/* lsi.c */
uint8_t lsi_reg_read(struct lsi *l, unsigned off);
void lsi_reg_write(struct lsi *l, unsigned off, uint8_t val);
void lsi_interrupt(struct lsi *l, uint8_t dstat, uint8_t sist0, uint8_t sist1); /* and stop, if that is fatal */
void lsi_update_irq(struct lsi *l);
void lsi_wake(struct lsi *l); /* run the SCRIPTS in the loop, soon */
/* The chip as a bus master: RAM and its own RAM. False, and a bus fault, for everything else. */
bool lsi_dma_read(struct lsi *l, uint64_t addr, void *buf, uint32_t len);
bool lsi_dma_write(struct lsi *l, uint64_t addr, const void *buf, uint32_t len);
/* For MEMORY MOVE, which may also reach the chip's own registers. */
bool lsi_memory_read(struct lsi *l, uint64_t addr, void *buf, uint32_t len);
bool lsi_memory_write(struct lsi *l, uint64_t addr, const void *buf, uint32_t len);

static inline uint32_t lsi_get32(const struct lsi *l, unsigned off)
{
	return ld32le(l->reg + off);
}
static inline void lsi_set32(struct lsi *l, unsigned off, uint32_t val)
{
	st32le(l->reg + off, val);
}

/* lsi_script.c: until it halts, waits, or has done `steps`; false: there is more to do. */
bool lsi_script_run(struct lsi *l, unsigned steps);

/* lsi_target.c */
enum lsi_select { SELECT_OK, SELECT_TIMEOUT };
enum lsi_select lsi_select(struct lsi *l, unsigned target, bool atn);
void lsi_set_atn(struct lsi *l, bool on);
/* Move up to len bytes in the current phase; SFBR gets the first one in. Returns what was moved, -1 on a bus fault. */
int64_t lsi_move(struct lsi *l, uint64_t addr, uint32_t len);
/* A command wants the bus back, and may have it: true when it has. */
bool lsi_try_reselect(struct lsi *l);
/* Run what lsi_move prepared. Without the lock. */
void lsi_submit(struct lsi *l, struct lsi_req *req);
void lsi_bus_reset(struct lsi *l); /* every command of every target is forgotten */
void lsi_bus_free(struct lsi *l);
void lsi_free_spare(struct lsi *l);

#endif
