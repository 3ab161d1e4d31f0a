/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One instruction test: the state before, and the state after as the host CPU
 * or the software CPU left it. Both sides use the same virtual addresses.
 */
#ifndef KELVIN_TESTS_INSN_CASE_H
#define KELVIN_TESTS_INSN_CASE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/util.h"
#include "cpu/state.h"

/* Two pages of code filled with INT3; two of data between unmapped ones; one read-only page. */
#define CASE_CODE      0x10000000ull
#define CASE_CODE_SIZE 0x2000u
#define CASE_DATA      0x20000000ull
#define CASE_DATA_SIZE 0x2000u
#define CASE_RO	       0x20004000ull
#define CASE_RO_SIZE   0x1000u

/* Base of GS on both sides; FS is the C library's on the host. */
#define CASE_GS_BASE 0x01234560ull
#define CASE_BYTES   128
#define CASE_INSNS   8

struct case_state {
	uint64_t gpr[16], rip, rflags;
	_Alignas(64) uint8_t xsave[CPU_XSAVE_SIZE];
};

enum case_fill { FILL_BITS, FILL_DOUBLE, FILL_FLOAT, FILL_SMALL, FILL_SPECIAL, FILLS };

struct insn_case {
	struct case_state in;
	uint64_t data_seed;
	enum case_fill fill;
	uint8_t bytes[CASE_BYTES]; /* for the host, in 64-bit mode */
	uint8_t len;
	uint8_t soft_bytes[CASE_BYTES]; /* for the software CPU: the same unless mode is 32 or 16 */
	uint8_t soft_len;
	uint8_t mode;	    /* 64, 32, 16: code segment of the software CPU */
	bool sequence;	    /* several instructions, ended by UD2 */
	bool compat;	    /* the host runs it in compatibility mode too: bytes are 32-bit code */
	uint16_t mnemonic;  /* of the last instruction */
	uint16_t form;	    /* its number among gen_forms() of the mnemonic */
	uint32_t undefined; /* flags the manuals leave open */
	/* sequences: where their instructions begin, and what is open there */
	uint8_t n;
	struct {
		uint8_t off;
		uint32_t undefined;
	} at[CASE_INSNS];
};

struct case_result {
	struct case_state out;
	bool valid;
	int trap; /* exception vector; 3 = ran to the INT3 behind it */
	uint64_t err, cr2;
	uint8_t data[CASE_DATA_SIZE];
};

/* Deterministic random numbers. */
struct rng {
	uint64_t s;
};
static inline uint64_t rng_next(struct rng *r)
{
	uint64_t z = (r->s += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}
static inline unsigned rng_below(struct rng *r, unsigned n)
{
	return (unsigned)((rng_next(r) >> 32) * n >> 32);
}
/* Memory or register contents of a kind. */
void case_fill(struct rng *r, enum case_fill kind, void *buf, size_t len);

/* ---- insn_gen.c: makes cases ------------------------------------------------- */
struct case_gen;
struct case_gen *gen_create(uint64_t seed);
void gen_next(struct case_gen *g, struct insn_case *out);
/* Several instructions in a row, without branches, memory by absolute address. */
void gen_sequence(struct case_gen *g, struct insn_case *out);
/* A data instruction whose form in 32- or 16-bit code does what another form does in 64-bit code. */
void gen_legacy(struct case_gen *g, unsigned mode, struct insn_case *out);
/* 32-bit code of any kind, random bytes with good addresses; for compatibility mode (insn_compat.c). */
void gen_compat(struct case_gen *g, struct insn_case *out);
void gen_reseed(struct case_gen *g, uint64_t seed);
/* Bookkeeping by form (opcode, prefix, length, extension, register or memory). */
struct form_count {
	uint32_t cases, failed;
};
unsigned gen_forms(const struct case_gen *g, unsigned mnemonic);
/* NULL: no such form. */
struct form_count *gen_count(struct case_gen *g, unsigned mnemonic, unsigned form);
void gen_form_name(const struct case_gen *g, unsigned mnemonic, unsigned form, char *buf, size_t len);
unsigned gen_mnemonics(const struct case_gen *g, const uint16_t **list);
/* Why a mnemonic has no cases: not met in any opcode map of 64-bit mode, the system part's, or absent here. */
enum gen_left_out { GEN_TESTED = 1, GEN_EXCLUDED, GEN_NOT_ON_HOST };
enum gen_left_out gen_why_left_out(const struct case_gen *g, unsigned mnemonic);
/* Only this mnemonic from now on; false when it has no form that can be tested. */
bool gen_only(struct case_gen *g, const char *mnemonic);
void gen_free(struct case_gen *g);

/* ---- insn_fixed.c: cases by name ---------------------------------------------- */
unsigned fixed_count(void);
/* Fills the case; returns its name. *check: RAX must be *want at the end. */
const char *fixed_get(unsigned k, struct insn_case *ic, bool *check, uint64_t *want);

/* ---- insn_log.c: the running total of a long test, in a file ------------------- */
struct case_log {
	uint64_t next_seed, cases, failed;
};
/* A file that does not exist is an empty log. 0 or -1 with a message. */
int log_read(struct case_gen *g, const char *path, struct case_log *log);
int log_write(struct case_gen *g, const char *path, const struct case_log *log);
/* What of every mnemonic and form was tested, and what never. */
void log_table(struct case_gen *g, bool forms);

/* ---- insn_native.c: runs them on the host, in a child ------------------------- */
int native_start(unsigned max_cases);
/* Fills results[0..n); one whose child died stays !valid. */
void native_run(const struct insn_case *cases, unsigned n);
const struct case_result *native_result(unsigned k);
void native_stop(void);

#endif
