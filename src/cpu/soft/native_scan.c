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

/* Where the instruction begins whose 0F is at `at`, if decoding from `from` comes to it and it is one of those; else
 * UINT_MAX. */
static unsigned reached(const ZydisDecoder *d, const uint8_t *code, unsigned from, unsigned at, unsigned end)
{
	ZydisDecodedInstruction i;

	while (from <= at) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(d, NULL, code + from, end - from, &i))) {
			from++;
			continue;
		}
		/* The pair is this instruction's opcode. */
		if (at < from + i.length)
			return at == from + i.raw.prefix_count && i.opcode_map != ZYDIS_OPCODE_MAP_DEFAULT &&
				       forbidden(&i)
				   ? from
				   : UINT_MAX;
		from += i.length;
	}
	return UINT_MAX;
}

unsigned native_scan(const struct soft_cpu *c, const uint8_t page[PAGE_SIZE], const uint8_t *next, uint16_t *found,
		     unsigned max)
{
	const ZydisDecoder *d = insn_decoder64(c);
	/* Kept apart from the guest's memory, which may change meanwhile. */
	uint8_t code[PAGE_SIZE + AFTER];
	unsigned end = PAGE_SIZE + AFTER, n = 0;

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
		unsigned first, last, hits = 0, start = UINT_MAX;

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
			unsigned b = reached(d, code, from, at, end);

			hits += b != UINT_MAX;
			start = b != UINT_MAX ? b : start;
		}
		if (hits * 4 <= (last - first + 1) * 3)
			continue;
		if (n < max)
			found[n] = (uint16_t)start;
		n++;
	}
	return n;
}
