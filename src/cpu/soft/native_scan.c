/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which code pages may run natively: those without instructions that give the
 * host's answer where the guest's is another, and that the host does not trap:
 * RDTSC, RDTSCP, RDPID, CPUID, RD/WRFSBASE and GS, SGDT, SIDT, SLDT, STR, SMSW,
 * LAR, LSL, VERR, VERW, SYSENTER, RDPKRU and their neighbours (AMD64 APM volume 3).
 *
 * All begin with 0F and one of a few second bytes. Those pairs also occur inside
 * other instructions (0F 00 in constants, 0F 31 where an AND with 15 meets an
 * XOR), so each is decoded from several starting points before it: x86 decoding
 * falls into step within a few instructions. It counts when most of them come to
 * it as the start of an instruction. A program that jumps into the middle of its
 * instructions on purpose gets the host's time stamp; it gets nothing else.
 *
 * NEEDSWORK: INT n other than 80h needs no entry here (it faults), but loads of
 * segment registers are seen only when the process stops (native.c).
 */
#include "cpu/soft/native.h"

#include <Zydis/Zydis.h>
#include <limits.h>
#include "cpu/soft/insn.h"

#define AFTER	 NATIVE_SCAN_AFTER
#define STARTS	 16u
#define DISTANCE 96u /* from the last of them */

/* Second bytes behind 0F. */
static bool suspect(const uint8_t *p)
{
	switch (p[1]) {
	case 0x00: /* SLDT STR VERR VERW */
	case 0x02: /* LAR */
	case 0x03: /* LSL */
	case 0x31: /* RDTSC */
	case 0x34: /* SYSENTER */
	case 0xa2: /* CPUID */ return true;
	case 0x01: /* SGDT SIDT SMSW RDTSCP RDPRU ...; XGETBV, XEND, XTEST do what the guest's would, CLAC, STAC fault
		    */
		return p[2] != 0xd0 && p[2] != 0xd5 && p[2] != 0xd6 && p[2] != 0xca && p[2] != 0xcb;
	case 0xae: /* with F3: FS and GS bases, UMONITOR, UMWAIT, TPAUSE */
		return (p[2] >= 0xc0 && p[2] < 0xe0) || (p[2] & 0xf8) == 0xf0;
	case 0xc7: return (p[2] & 0xf8) == 0xf8; /* with F3: RDPID; without: RDSEED, which may run */
	default: return false;
	}
}

static bool forbidden(const ZydisDecodedInstruction *i)
{
	switch (i->mnemonic) {
	case ZYDIS_MNEMONIC_RDSEED:
	case ZYDIS_MNEMONIC_RDRAND:
	case ZYDIS_MNEMONIC_MFENCE: return false;
	default: return true;
	}
}

#define UNKNOWN 0u
#define INVALID 255u

/* A page's bytes with the length of the instruction at each of them, once it was decoded: the ways that lead to a pair
 * fall into step, and what they share is decoded once. */
struct scan {
	const ZydisDecoder *d;
	unsigned end;
	uint8_t code[PAGE_SIZE + AFTER];
	uint8_t length[PAGE_SIZE]; /* UNKNOWN, INVALID */
};

/* Does the instruction at `from` have its opcode's 0F at `at`, and is it one of those? */
static bool is_forbidden(const struct scan *s, unsigned from, unsigned at)
{
	ZydisDecodedInstruction i;

	return ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(s->d, NULL, s->code + from, s->end - from, &i)) &&
	       at == from + i.raw.prefix_count && i.opcode_map != ZYDIS_OPCODE_MAP_DEFAULT && forbidden(&i);
}

/* The start of the instruction that has the byte at `at`, when decoding begins at `from`; UINT_MAX: none has. */
static unsigned holder(struct scan *s, unsigned from, unsigned at)
{
	ZydisDecodedInstruction i;

	while (from <= at) {
		uint8_t *len = &s->length[from];

		if (*len == UNKNOWN)
			*len =
			    ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(s->d, NULL, s->code + from, s->end - from, &i))
				? i.length
				: INVALID;
		if (*len == INVALID)
			from++;
		else if (at < from + *len)
			return from;
		else
			from += *len;
	}
	return UINT_MAX;
}

bool native_scan_wants_next(const uint8_t page[PAGE_SIZE])
{
	return page[PAGE_SIZE - 1] == 0xf3 || memchr(page + PAGE_SIZE - (AFTER - 1), 0x0f, AFTER - 1);
}

unsigned native_scan(const struct soft_cpu *c, const uint8_t page[PAGE_SIZE], const uint8_t *next, uint16_t *found,
		     unsigned max)
{
	/* Its code is kept apart from the guest's memory, which may change meanwhile. */
	struct scan s = {.d = insn_decoder64(c), .end = PAGE_SIZE + AFTER};
	uint8_t *code = s.code;
	unsigned n = 0;

	memcpy(code, page, PAGE_SIZE);
	if (next)
		memcpy(code + PAGE_SIZE, next, AFTER);
	else
		memset(code + PAGE_SIZE, 0, AFTER);
	/* A prefix that is all of an instruction this page has. */
	if (code[PAGE_SIZE - 1] == 0xf3 && (!next || (next[0] == 0x0f && (next[1] == 0xae || next[1] == 0xc7))))
		return max + 1;
	for (unsigned at = 0; at < PAGE_SIZE && n <= max; at++) {
		const uint8_t *p = memchr(code + at, 0x0f, PAGE_SIZE - at);
		unsigned first, last, hits = 0, start = UINT_MAX, known = UINT_MAX;
		bool known_is = false;

		if (!p)
			break;
		at = (unsigned)(p - code);
		/* Unknown what follows: careful. */
		if (!next && at >= PAGE_SIZE - 2 && (at == PAGE_SIZE - 1 || suspect(p)))
			return max + 1;
		if (!suspect(p))
			continue;
		/* At the start of a page the instructions before may have begun in the page before. */
		last = at > DISTANCE ? at - DISTANCE : at / 2;
		first = last >= STARTS ? last - STARTS + 1 : 0;
		for (unsigned from = first; from <= last; from++) {
			unsigned b = holder(&s, from, at);

			if (b == UINT_MAX)
				continue;
			if (b != known) {
				known = b;
				known_is = is_forbidden(&s, b, at);
			}
			hits += known_is;
			start = known_is ? b : start;
		}
		if (hits * 4 <= (last - first + 1) * 3)
			continue;
		if (n < max)
			found[n] = (uint16_t)start;
		n++;
	}
	return n;
}
