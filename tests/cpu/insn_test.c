/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Instruction tests: the interpreter against the host CPU. Random cases over
 * every opcode Zydis knows and the host has (insn_gen.c), original bytes run
 * natively in a child (insn_native.c); registers, flags, memory, vector state
 * and exceptions must agree.
 *
 * Options: the table below, which --help prints.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <Zydis/Zydis.h>
#include "cpu/soft/jit.h"
#include "cpu/soft/stub.h"
#include "insn_case.h"
#include "soft_guest.h"

#define BATCH 256

static struct guest guest;
static uint8_t *code_host, *data_host;
static bool verbose, use_jit, tiers, max_model;
static struct coverage {
	unsigned run, failed, open_flags;
} coverage[ZYDIS_MNEMONIC_MAX_VALUE + 1];

/* ---- the software side ------------------------------------------------------------- */

static void soft_setup(void)
{
	struct rng rng = {1};

	if (max_model ? guest_create_max(&guest) : guest_create(&guest)) {
		fprintf(stderr, "cannot create the software CPU\n");
		exit(2);
	}
	code_host = guest_map(&guest, CASE_CODE, CASE_CODE_SIZE, GUEST_W | GUEST_X);
	data_host = guest_map(&guest, CASE_DATA, CASE_DATA_SIZE, GUEST_W);
	case_fill(&rng, FILL_BITS, guest_map(&guest, CASE_RO, CASE_RO_SIZE, 0), CASE_RO_SIZE);
	memset(code_host, 0xcc, CASE_CODE_SIZE);
	guest_user64(&guest);
	guest.c->s.seg[S_GS].base = CASE_GS_BASE;
}

/* Code segment of 64, 32 or 16 bits; the linear addresses stay the same. */
static void soft_set_mode(struct soft_cpu *c, unsigned mode)
{
	struct cpu_segment *cs = &c->s.seg[S_CS];

	cs->l = mode == 64;
	cs->db = mode == 32;
	cs->base = mode == 16 ? CASE_CODE : 0; /* IP is 16 bits */
	soft_mode_changed(c);
}

/* Their targets are INT3, which has no handler here. */
static bool branches(const struct insn_case *ic)
{
	const char *name = ZydisMnemonicGetString((ZydisMnemonic)ic->mnemonic);

	return name[0] == 'j' || !strncmp(name, "loop", 4) || !strncmp(name, "call", 4) || !strncmp(name, "ret", 3);
}

static int soft_execute(struct soft_cpu *c, const struct insn_case *ic)
{
	uint64_t base = ic->mode == 16 ? CASE_CODE : 0;
	int ret = 0;

	if (use_jit && (ic->sequence || (ic->mode == 32 && !branches(ic)))) {
		for (unsigned k = 0; k < 1000 && !ret; k++)
			switch (jit_run(c)) {
			case JIT_EXC: ret = EXC_RAISED; break;
			case JIT_INTERP: ret = interp_step(c); break;
			default: c->v.requests = 0; break;
			}
		/* Single instructions have UD2 behind them here. */
		return ic->sequence || c->exc_vector != EXC_UD || c->s.rip != ic->in.rip + ic->soft_len ? ret : 0;
	}
	if (ic->sequence) { /* through whole blocks */
		for (unsigned k = 0; !ret && k < 1000; k++)
			ret = interp_run(c, 1000);
		return ret;
	}
	ret = interp_step(c);
	/* A branch into the instruction's own bytes goes on there, as it does on the host. */
	for (unsigned k = 0; !ret && c->s.rip + base - ic->in.rip < ic->soft_len && k < 100000; k++)
		ret = interp_step(c);
	/* A jump out of the code pages faults at its target on the host. */
	if (!ret && c->s.rip + base - CASE_CODE >= CASE_CODE_SIZE)
		ret = interp_step(c);
	return ret;
}

static const uint8_t ud2[] = {0x0f, 0x0b};

/* Whether a case has stored into the code pages, which are INT3 from end to end otherwise. */
static bool code_was_written(void)
{
	const uint64_t *p = (const void *)code_host;

	for (size_t i = 0; i < CASE_CODE_SIZE / sizeof(*p); i++)
		if (p[i] != 0xccccccccccccccccull)
			return true;
	return false;
}

static void soft_run(const struct insn_case *ic, struct case_result *r)
{
	struct soft_cpu *c = guest.c;
	struct rng rng = {ic->data_seed};
	uint8_t *at = code_host + (ic->in.rip - CASE_CODE);
	int ret;

	case_fill(&rng, ic->fill, data_host, CASE_DATA_SIZE);
	memcpy(at, ic->soft_bytes, ic->soft_len);
	if (use_jit && !ic->sequence)
		memcpy(at + ic->soft_len, ud2, sizeof(ud2));
	mem_mark_written(&guest.mem, at, ic->soft_len + sizeof(ud2));
	memcpy(c->s.gpr, ic->in.gpr, sizeof(c->s.gpr));
	c->s.rip = ic->in.rip - (ic->mode == 16 ? CASE_CODE : 0);
	c->x87_cs = c->x87_ds = 0;
	c->s.rflags = ic->in.rflags;
	memcpy(c->s.xsave, ic->in.xsave, CPU_XSAVE_SIZE);
	c->exc_raised = false;
	soft_set_mode(c, ic->mode);
	ret = soft_execute(c, ic);
	r->trap = ret ? c->exc_vector : 3;
	r->err = ret && c->exc_has_code ? c->exc_code : 0;
	r->cr2 = ret && c->exc_vector == EXC_PF ? c->exc_cr2 : 0;
	memcpy(r->out.gpr, c->s.gpr, sizeof(r->out.gpr));
	r->out.rip = c->s.rip + (ic->mode == 16 ? CASE_CODE : 0);
	/* The host's form of the instruction may be longer or shorter. */
	if (ic->mode != 64 && r->out.rip != ic->in.rip)
		r->out.rip += (uint64_t)ic->len - ic->soft_len;
	r->out.rflags = c->s.rflags;
	memcpy(r->out.xsave, c->s.xsave, CPU_XSAVE_SIZE);
	memcpy(r->data, data_host, CASE_DATA_SIZE);
	memset(at, 0xcc, ic->soft_len + (use_jit && !ic->sequence ? sizeof(ud2) : 0));
	mem_mark_written(&guest.mem, at, ic->soft_len + sizeof(ud2));
	if (code_was_written()) { /* written to, as on the host */
		memset(code_host, 0xcc, CASE_CODE_SIZE);
		mem_mark_written(&guest.mem, code_host, CASE_CODE_SIZE);
	}
}

/* ---- comparing ------------------------------------------------------------------------ */

/* Components a signal frame left out are in their initial state. */
static void expand_xsave(uint8_t *x)
{
	uint64_t bv = ld64le(x + 512);

	if (!(bv & 1)) {
		memset(x, 0, 24);
		st16le(x, 0x37f);
		memset(x + 32, 0, 128);
	}
	if (!(bv & 2))
		memset(x + 160, 0, 256);
	if (!(bv & 4))
		memset(x + xsave_layout.ymm_high, 0, 256);
	if (!(bv & 0x20) && xsave_layout.opmask)
		memset(x + xsave_layout.opmask, 0, 64);
	if (!(bv & 0x40) && xsave_layout.zmm_high)
		memset(x + xsave_layout.zmm_high, 0, 512);
	if (!(bv & 0x80) && xsave_layout.zmm_16_31)
		memset(x + xsave_layout.zmm_16_31, 0, 1024);
}

static bool differ(const char *what, const uint8_t *host, const uint8_t *soft, size_t len, bool print)
{
	if (memcmp(host, soft, len) == 0)
		return false;
	if (print) {
		size_t k = 0;

		while (host[k] == soft[k])
			k++;
		printf("  %s: first difference at byte %zu\n    host", what, k);
		for (size_t j = k & ~7ul; j < MIN(len, (k & ~7ul) + 16); j++)
			printf(" %02x", host[j]);
		printf("\n    soft");
		for (size_t j = k & ~7ul; j < MIN(len, (k & ~7ul) + 16); j++)
			printf(" %02x", soft[j]);
		printf("\n");
	}
	return true;
}

static bool differ64(const char *what, uint64_t host, uint64_t soft, bool print)
{
	if (host != soft && print)
		printf("  %s: host %#llx soft %#llx\n", what, (unsigned long long)host, (unsigned long long)soft);
	return host != soft;
}

static bool compare_xsave(const struct insn_case *ic, struct case_result *h, struct case_result *s, bool print)
{
	uint8_t *a = h->out.xsave, *b = s->out.xsave;
	bool bad = false;

	expand_xsave(a);
	bad |= differ("x87 control", a, b, 2, print);
	if (h->trap == 3) { /* AMD CPUs enter MMX state before they fault */
		bad |= differ("x87 status", a + 2, b + 2, 2, print);
		bad |= differ("x87 tags", a + 4, b + 4, 1, print);
	}
	/* AMD CPUs save the pointers only with an unmasked exception pending; FNSTENV tests see the rest. */
	if (a[2] & 0x80) {
		bad |= differ("x87 opcode", a + 6, b + 6, 2, print);
		if (ic->mode != 16) /* there IP is an offset into the segment */
			bad |= differ("x87 instruction pointer", a + 8, b + 8, 8, print);
		bad |= differ("x87 data pointer", a + 16, b + 16, 8, print);
	}
	bad |= differ("mxcsr", a + 24, b + 24, 4, print);
	for (unsigned k = 0; k < 8 && h->trap == 3; k++)
		bad |= differ("st", a + 32 + 16 * k, b + 32 + 16 * k, 10, print);
	bad |= differ("xmm", a + 160, b + 160, 256, print);
	if (xsave_layout.ymm_high)
		bad |= differ("ymm high", a + xsave_layout.ymm_high, b + xsave_layout.ymm_high, 256, print);
	if (xsave_layout.opmask)
		bad |= differ("opmask", a + xsave_layout.opmask, b + xsave_layout.opmask, 64, print);
	if (xsave_layout.zmm_high)
		bad |= differ("zmm high", a + xsave_layout.zmm_high, b + xsave_layout.zmm_high, 512, print);
	if (xsave_layout.zmm_16_31)
		bad |= differ("zmm16-31", a + xsave_layout.zmm_16_31, b + xsave_layout.zmm_16_31, 1024, print);
	return bad;
}

/* Instructions that access memory in several pieces. */
static bool pieces(const struct insn_case *ic)
{
	const char *name = ZydisMnemonicGetString((ZydisMnemonic)ic->mnemonic);

	return name[0] == 'v' || strncmp(name, "maskmov", 7) == 0 || name[0] == 'f';
}

/* Flags that are open where the case ended. */
static uint64_t undefined_at(const struct insn_case *ic, const struct case_result *h)
{
	for (unsigned k = 0; k < ic->n; k++)
		if (h->out.rip == ic->in.rip + ic->at[k].off)
			return ic->at[k].undefined;
	return ic->undefined;
}

static bool compare(const struct insn_case *ic, struct case_result *h, struct case_result *s, bool print)
{
	static const char *const name[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
					     "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
	uint64_t undefined = undefined_at(ic, h);
	uint64_t hf = h->out.rflags & (FLAG_ARITH | FLAG_DF), sf = s->out.rflags & (FLAG_ARITH | FLAG_DF);
	bool bad = false;

	bad |= differ64("exception", (uint64_t)h->trap, (uint64_t)s->trap, print);
	bad |= differ64("rip", h->out.rip, s->out.rip, print);
	for (unsigned k = 0; k < 16; k++)
		bad |= differ64(name[k], h->out.gpr[k], s->out.gpr[k], print);
	bad |= differ64("flags", hf & ~undefined, sf & ~undefined, print);
	if (hf != sf && ((hf ^ sf) & ~undefined) == 0)
		coverage[ic->mnemonic].open_flags++;
	/* What is present at a jump's or a bit offset's random target is the host's affair (its kernel, a sanitizer's
	 * shadow). */
	if (h->trap == s->trap && (h->trap == EXC_PF || h->trap == EXC_GP) &&
	    !(h->trap == EXC_PF && (h->cr2 == h->out.rip || h->cr2 >> 32)))
		bad |= differ64("error code", h->err, s->err, print);
	if (h->trap == s->trap && h->trap == EXC_PF) {
		/* Which byte of a long or masked operand is reported is the implementation's choice. */
		uint64_t keep = ic->sequence || pieces(ic) ? PAGE_MASK : ~0ull;

		bad |= differ64("cr2", h->cr2 & keep, s->cr2 & keep, print);
	}
	bad |= differ("memory", h->data, s->data, CASE_DATA_SIZE, print);
	bad |= compare_xsave(ic, h, s, print);
	return bad;
}

static void print_code(const struct insn_case *ic, const uint8_t *bytes, unsigned len, unsigned mode)
{
	ZydisDisassembledInstruction d;

	for (unsigned k = 0; k < len; k += d.info.length) {
		if (!ZYAN_SUCCESS(ZydisDisassembleIntel(mode == 64   ? ZYDIS_MACHINE_MODE_LONG_64
							: mode == 32 ? ZYDIS_MACHINE_MODE_LONG_COMPAT_32
								     : ZYDIS_MACHINE_MODE_LONG_COMPAT_16,
							ic->in.rip + k, bytes + k, len - k, &d)))
			break;
		printf(" %s [", d.text);
		for (unsigned j = 0; j < d.info.length; j++)
			printf("%s%02x", j ? " " : "", bytes[k + j]);
		printf("]");
	}
}

static void print_case(const struct insn_case *ic)
{
	printf("FAIL %u:", ic->mode);
	print_code(ic, ic->bytes, ic->len, 64);
	if (ic->mode != 64) {
		printf(" as");
		print_code(ic, ic->soft_bytes, ic->soft_len, ic->mode);
	}
	printf("\n  rip %#llx rflags %#llx", (unsigned long long)ic->in.rip, (unsigned long long)ic->in.rflags);
	for (unsigned k = 0; k < 16; k++)
		printf(" %llx", (unsigned long long)ic->in.gpr[k]);
	printf("\n  x87 control %#x status %#x tags %#x, MXCSR %#x\n", ld16le(ic->in.xsave), ld16le(ic->in.xsave + 2),
	       ic->in.xsave[4], ld32le(ic->in.xsave + 24));
}

/* ---- main -------------------------------------------------------------------------------- */

/* Two of four cases are single instructions, one a sequence, one in 32- or 16-bit code (half of them in the host's
 * compatibility mode). */
static void make_case(struct case_gen *g, unsigned k, unsigned what, struct insn_case *ic)
{
	switch (what == 0 ? k % 4 : what) {
	case 2: gen_sequence(g, ic); break;
	case 3:
		if ((what == 0 && k & 8) || (use_jit && k & 1))
			gen_compat(g, ic);
		else
			gen_legacy(g, use_jit || k & 4 ? 32 : 16, ic);
		break;
	case 4: gen_compat(g, ic); break;
	default: gen_next(g, ic); break;
	}
}

static unsigned run_batch(struct case_gen *g, struct insn_case *cases, unsigned n, unsigned what)
{
	static struct case_result soft;
	unsigned failed = 0;

	for (unsigned k = 0; k < n; k++)
		make_case(g, k, what, &cases[k]);
	native_run(cases, n);
	for (unsigned k = 0; k < n; k++) {
		struct case_result *h = (struct case_result *)(uintptr_t)native_result(k);
		struct coverage *cov = &coverage[cases[k].mnemonic];
		struct form_count *fc;

		if (!h->valid) {
			printf("the native child died in this case:\n");
			print_case(&cases[k]);
			failed++;
			continue;
		}
		soft_run(&cases[k], &soft);
		cov->run++;
		fc = gen_count(g, cases[k].mnemonic, cases[k].form);
		if (fc)
			fc->cases++;
		if (!compare(&cases[k], h, &soft, false))
			continue;
		cov->failed++;
		if (fc)
			fc->failed++;
		failed++;
		if (verbose || cov->failed <= 2) {
			print_case(&cases[k]);
			compare(&cases[k], h, &soft, true);
		}
	}
	return failed;
}

static unsigned run_fixed(struct insn_case *cases)
{
	static struct case_result soft;
	unsigned n = fixed_count(), failed = 0;

	for (unsigned k = 0; k < n; k++) {
		struct case_result *h;
		const char *name;
		uint64_t want;
		bool check, bad;

		name = fixed_get(k, &cases[0], &check, &want);
		native_run(cases, 1);
		h = (struct case_result *)(uintptr_t)native_result(0);
		soft_run(&cases[0], &soft);
		bad = !h->valid || compare(&cases[0], h, &soft, true);
		bad |= check && differ64("rax and what is known", want, soft.out.gpr[R_RAX], true);
		if (bad)
			printf("FAIL fixed case %s\n", name);
		failed += bad;
	}
	printf("%u fixed cases: %u failed\n", n, failed);
	return failed;
}

static void print_left_out(const struct case_gen *g, enum gen_left_out why, const char *text)
{
	unsigned n = 0;

	printf("%s:", text);
	for (unsigned m = 1; m <= ZYDIS_MNEMONIC_MAX_VALUE; m++)
		if (gen_why_left_out(g, m) == why) {
			printf("%s%s", n % 12 ? " " : "\n  ", ZydisMnemonicGetString((ZydisMnemonic)m));
			n++;
		}
	printf("\n  (%u)\n", n);
}

static void print_left_out_all(const struct case_gen *g)
{
	print_left_out(g, GEN_EXCLUDED,
		       "left to the system part's tests: privileged, far, segments, not deterministic");
	print_left_out(g, GEN_NOT_ON_HOST, "not on this host");
	print_left_out(g, 0, "not in 64-bit mode, or hints that decode as NOP");
}

static void print_table(const struct case_gen *g)
{
	const uint16_t *list;
	unsigned n = gen_mnemonics(g, &list), never = 0, bad = 0;

	for (unsigned k = 0; k < n; k++) {
		const struct coverage *c = &coverage[list[k]];

		never += !c->run;
		bad += c->failed != 0;
		printf("%-20s %7u cases %5u failed %5u with other undefined flags\n",
		       ZydisMnemonicGetString((ZydisMnemonic)list[k]), c->run, c->failed, c->open_flags);
	}
	print_left_out_all(g);
	printf("%u mnemonics can be tested here, %u not reached, %u with failures\n", n, never, bad);
}

static double clock_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#define CHUNK (20 * BATCH) /* cases of one seed */

/* Go on where the log ends, for so many minutes, one chunk at least. A failing chunk is run again by --seed S --count
 * CHUNK. */
static unsigned long run_logged(struct case_gen *g, struct insn_case *cases, const char *path, double minutes,
				unsigned what)
{
	const double end = clock_seconds() + 60 * minutes;
	time_t saved = time(NULL);
	struct case_log log;
	unsigned long failed = 0;

	if (log_read(g, path, &log))
		return 1;
	do {
		unsigned bad = 0;

		gen_reseed(g, log.next_seed);
		for (unsigned n = 0; n < CHUNK; n += BATCH)
			bad += run_batch(g, cases, BATCH, what);
		if (bad)
			printf("%u failed: test_insn --seed %llu --count %u\n", bad, (unsigned long long)log.next_seed,
			       CHUNK);
		log.next_seed++;
		log.cases += CHUNK;
		log.failed += bad;
		failed += bad;
		if (time(NULL) >= saved + 30) {
			saved = time(NULL);
			if (log_write(g, path, &log))
				return 1;
		}
	} while (clock_seconds() < end);
	if (log_write(g, path, &log))
		return 1;
	printf("%llu cases in all, %llu failed; %s\n", (unsigned long long)log.cases, (unsigned long long)log.failed,
	       path);
	return failed;
}

/* ---- options ------------------------------------------------------------------------------ */

static struct {
	unsigned long count, seed;
	double minutes;
	const char *only, *log;
	unsigned what; /* make_case's */
	bool table, forms;
} opt = {.count = 20000, .seed = 1};

/* Letters of getopt_long, which are not options themselves. */
enum { OPT_WHAT = 'a', OPT_JIT = OPT_WHAT + 8, OPT_JIT32, OPT_TIERS, OPT_OTHER };
enum { O_COUNT = OPT_OTHER, O_SEED, O_ONLY, O_TABLE, O_FORMS, O_VERBOSE, O_MAX, O_LOG, O_MINUTES, O_HELP };

static const struct {
	struct option o;
	const char *arg, *help;
} options[] = {
    {{"count", 1, NULL, O_COUNT}, "N", "so many cases (20000)"},
    {{"seed", 1, NULL, O_SEED}, "S", "the cases of this seed (1)"},
    {{"only", 1, NULL, O_ONLY}, "MNEMONIC", "only this instruction, and no fixed cases"},
    {{"single", 0, NULL, OPT_WHAT + 1}, "", "single instructions only"},
    {{"sequence", 0, NULL, OPT_WHAT + 2}, "", "sequences only"},
    {{"legacy", 0, NULL, OPT_WHAT + 3}, "", "32- and 16-bit code only, half of it native as such"},
    {{"compat", 0, NULL, OPT_WHAT + 4}, "", "32-bit code that runs natively as such only"},
    {{"jit", 0, NULL, OPT_JIT}, "", "sequences, all translated at first sight"},
    {{"jit32", 0, NULL, OPT_JIT32}, "", "32-bit code, translated at first sight"},
    {{"tiers", 0, NULL, OPT_TIERS},
     "",
     "sequences, translated as users have it: interpreter and translator take turns"},
    {{"max", 0, NULL, O_MAX}, "", "with -cpu max"},
    {{"log", 1, NULL, O_LOG}, "FILE", "without --minutes: show what this log has covered"},
    {{"minutes", 1, NULL, O_MINUTES}, "M", "with --log: go on where FILE ends, for so long (0.5 is half a minute)"},
    {{"table", 0, NULL, O_TABLE}, "", "at the end coverage by mnemonic, and what is left out"},
    {{"forms", 0, NULL, O_FORMS}, "", "the same by form"},
    {{"verbose", 0, NULL, O_VERBOSE}, "", "every failure, not two of each mnemonic"},
    {{"help", 0, NULL, O_HELP}, "", "this text"},
};

static void usage(FILE *f)
{
	fprintf(f, "usage: test_insn [OPTION...]\n");
	for (size_t k = 0; k < ARRAY_SIZE(options); k++)
		fprintf(f, "  --%s%s%s%*s%s\n", options[k].o.name, *options[k].arg ? " " : "", options[k].arg,
			(int)(20 - strlen(options[k].o.name) - strlen(options[k].arg) - !!*options[k].arg), "",
			options[k].help);
}

/* A number that leaves nothing over; complains and exits otherwise. */
static double number(const char *name, const char *text, double min)
{
	char *end;
	double v;

	errno = 0;
	v = strtod(text, &end);
	if (end == text || *end || errno || !(v >= min)) {
		fprintf(stderr, "--%s %s: a number of at least %g is needed\n", name, text, min);
		exit(2);
	}
	return v;
}

static unsigned long whole(const char *name, const char *text, unsigned long min)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(text, &end, 0);
	if (end == text || *end || errno || *text == '-' || v < min) {
		fprintf(stderr, "--%s %s: a whole number of at least %lu is needed\n", name, text, min);
		exit(2);
	}
	return v;
}

static void parse(int argc, char **argv)
{
	struct option list[ARRAY_SIZE(options) + 1] = {0};
	int c;

	for (size_t k = 0; k < ARRAY_SIZE(options); k++)
		list[k] = options[k].o;
	while ((c = getopt_long(argc, argv, "", list, NULL)) != -1) {
		if (c > OPT_WHAT && c < OPT_JIT) {
			opt.what = (unsigned)(c - OPT_WHAT);
			continue;
		}
		switch (c) {
		case O_COUNT: opt.count = whole("count", optarg, 1); break;
		case O_SEED: opt.seed = whole("seed", optarg, 0); break;
		case O_ONLY: opt.only = optarg; break;
		case OPT_TIERS: tiers = true; __attribute__((fallthrough));
		case OPT_JIT:
			use_jit = true;
			opt.what = 2;
			break;
		case OPT_JIT32:
			use_jit = true;
			opt.what = 3;
			break;
		case O_MAX: max_model = true; break;
		case O_LOG: opt.log = optarg; break;
		case O_MINUTES: opt.minutes = number("minutes", optarg, 0.001); break;
		case O_FORMS: opt.forms = true; __attribute__((fallthrough));
		case O_TABLE: opt.table = true; break;
		case O_VERBOSE: verbose = true; break;
		case O_HELP: usage(stdout); exit(0);
		default: usage(stderr); exit(2);
		}
	}
	if (optind < argc || (opt.minutes && !opt.log)) {
		fprintf(stderr, optind < argc ? "test_insn: '%s' is no option\n" : "--minutes needs --log FILE%s\n",
			optind < argc ? argv[optind] : "");
		usage(stderr);
		exit(2);
	}
}

/* Only look at the log. */
static int show_log(struct case_gen *g)
{
	struct case_log l;

	if (access(opt.log, R_OK)) {
		fprintf(stderr, "%s: %s; --minutes M begins it\n", opt.log, strerror(errno));
		return 2;
	}
	if (log_read(g, opt.log, &l))
		return 2;
	log_table(g, opt.forms);
	print_left_out_all(g);
	printf("%llu cases, %llu failed\n", (unsigned long long)l.cases, (unsigned long long)l.failed);
	return l.failed != 0 || !l.cases;
}

int main(int argc, char **argv)
{
	unsigned long failed = 0, done = 0;
	static struct insn_case cases[BATCH];
	struct case_gen *g;

	parse(argc, argv);
	setlinebuf(stdout);
	soft_setup();
	if (use_jit && guest_enable_jit(&guest))
		return 2;
	if (tiers)
		guest.accel.jit->threshold = 16;
	g = gen_create(opt.seed);
	if (opt.log && !opt.minutes)
		return show_log(g);
	if (opt.only && !gen_only(g, opt.only)) {
		fprintf(stderr, "no form of '%s' can be tested on this host\n", opt.only);
		return 2;
	}
	if (native_start(BATCH))
		return 2;
	gen_reseed(g, opt.seed);
	if (!opt.only)
		failed += run_fixed(cases);
	if (opt.log)
		return failed + run_logged(g, cases, opt.log, opt.minutes, opt.what) != 0;
	while (done < opt.count) {
		unsigned n = (unsigned)MIN(opt.count - done, (unsigned long)BATCH);

		failed += run_batch(g, cases, n, opt.what);
		done += n;
	}
	if (opt.forms)
		log_table(g, true);
	else if (opt.table)
		print_table(g);
	printf("%lu cases, seed %lu: %lu failed\n", done, opt.seed, failed);
	gen_free(g);
	guest_destroy(&guest);
	return failed != 0;
}
