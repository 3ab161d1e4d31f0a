/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * -accel soft,lockstep=on: the translator against the interpreter, block by
 * block, on real guests.
 *
 * A step: one translated block runs, not chained to others (jit_run_one), and
 * with it the handlers that run in translated code's surroundings (string
 * instructions by whole pages; "quiet" ones). Every store is noted before it is
 * made: the write TLB stays empty in this mode, so all of them come to mmu.c.
 * Then the stores are undone, the registers put back, and the interpreter runs as
 * many instructions. Registers, system state, vector state, the bytes stored and
 * the exception must be the same; flags where the block keeps them and the
 * manuals define them. The interpreter's state is the one to go on from.
 *
 * What acts on the outside happens once: translated code itself reaches RAM only,
 * leaves for the interpreter at device memory, and what it left for (port I/O,
 * MSRs, HLT, ...) runs after the comparison, as do exceptions and interrupts. RDTSC
 * is translated: what it gave is kept and given to the interpreter again.
 *
 * Devices write memory meanwhile. So a difference counts when it stays: the step
 * is undone and tried again, TRIES times. A and D bits that a page walk set are
 * undone with the stores around them only if those hit the same entry; then the TLB
 * is emptied between the runs, so that the walk happens again.
 *
 * One vCPU, its thread.
 */
#include "cpu/soft/lockstep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "base/log.h"
#include "cpu/soft/jit.h"
#include "cpu/soft/sys.h"

#define TRIES	    4
#define STEPS_MAX   10000 /* before the run loop is asked for */
#define SHOWN_MAX   64	  /* instructions in a report */
#define EXIT_STATUS 3
#define IMAGE_HEAD  32 /* of the XSAVE image: what x87 instructions change in memory while the rest is in registers */

/* What one run ended with, besides the state. */
struct outcome {
	bool raised;
	uint8_t vector;
	bool has_code;
	uint32_t code;
	uint64_t cr2;
	unsigned insns;
};

static struct outcome outcome_of(struct soft_cpu *c, bool raised, unsigned insns)
{
	struct outcome o = {.raised = raised, .insns = insns};

	if (raised) {
		o.vector = c->exc_vector;
		o.has_code = c->exc_has_code;
		o.code = o.has_code ? c->exc_code : 0;
		o.cr2 = o.vector == EXC_PF ? c->exc_cr2 : 0;
	}
	return o;
}

/* ---- stores ----------------------------------------------------------------- */

static void log_begin(struct lockstep *l, struct store_log *log)
{
	log->n = 0;
	log->used = 0;
	log->full = log->walk_set = false;
	l->log = log;
}

/* The run is over: keep what is in memory now. */
static void log_end(struct lockstep *l, struct store_log *log)
{
	l->log = NULL;
	for (unsigned i = 0; i < log->n; i++)
		memcpy(log->after + log->note[i].at, log->note[i].host, log->note[i].len);
}

static void log_undo(struct soft_cpu *c, const struct store_log *log)
{
	for (unsigned i = log->n; i-- > 0;) {
		const struct store_note *n = &log->note[i];

		/* A note of several stores in a row has each byte once, as it was before. */
		memcpy(n->host, log->bytes + n->at, n->len);
	}
	if (log->n && log->walk_set)
		mmu_flush_all(c);
}

static bool log_has(const struct store_log *log, const uint8_t *host)
{
	for (unsigned i = 0; i < log->n; i++) {
		if ((size_t)(host - log->note[i].host) < log->note[i].len)
			return true;
	}
	return false;
}

static bool log_covers(const struct store_log *log, const struct store_note *n)
{
	for (unsigned i = 0; i < log->n; i++) {
		if (n->host >= log->note[i].host && n->host + n->len <= log->note[i].host + log->note[i].len)
			return true;
	}
	return false;
}

/* A byte that the two runs left different; NULL: none. *jit: what the translator left. */
static const uint8_t *stores_differ(const struct lockstep *l, uint8_t *jit)
{
	const struct store_log *a = &l->log_jit, *b = &l->log_interp;

	for (unsigned i = 0; i < a->n; i++) {
		const struct store_note *n = &a->note[i];

		for (unsigned k = 0; memcmp(n->host, a->after + n->at, n->len) != 0 && k < n->len; k++) {
			if (n->host[k] != a->after[n->at + k]) {
				*jit = a->after[n->at + k];
				return n->host + k;
			}
		}
	}
	/* Stored by the interpreter only: must be as it was. The first note of a byte has its value of before. */
	for (unsigned i = 0; i < b->n; i++) {
		const struct store_note *n = &b->note[i];

		if (log_covers(a, n))
			continue;
		for (unsigned k = 0; k < n->len; k++) {
			bool first = true;

			for (unsigned m = 0; m < i && first; m++)
				first = (size_t)(n->host + k - b->note[m].host) >= b->note[m].len;
			if (first && n->host[k] != b->bytes[n->at + k] && !log_has(a, n->host + k)) {
				*jit = b->bytes[n->at + k];
				return n->host + k;
			}
		}
	}
	return NULL;
}

/* ---- state ------------------------------------------------------------------- */

#define FIELD(f)                                                                                                       \
	{                                                                                                              \
#f, offsetof(struct cpu_state, f), sizeof(((struct cpu_state *)0)->f)                                  \
	}
static const struct {
	const char *name;
	size_t off, size;
} fields[] = {
    {"rax", 0, 8},
    {"rcx", 8, 8},
    {"rdx", 16, 8},
    {"rbx", 24, 8},
    {"rsp", 32, 8},
    {"rbp", 40, 8},
    {"rsi", 48, 8},
    {"rdi", 56, 8},
    {"r8", 64, 8},
    {"r9", 72, 8},
    {"r10", 80, 8},
    {"r11", 88, 8},
    {"r12", 96, 8},
    {"r13", 104, 8},
    {"r14", 112, 8},
    {"r15", 120, 8},
    FIELD(rip),
    FIELD(rflags),
    FIELD(seg[S_ES].sel),
    FIELD(seg[S_CS].sel),
    FIELD(seg[S_SS].sel),
    FIELD(seg[S_DS].sel),
    FIELD(seg[S_FS].sel),
    FIELD(seg[S_GS].sel),
    FIELD(seg[S_CS].base),
    FIELD(seg[S_FS].base),
    FIELD(seg[S_GS].base),
    FIELD(seg[S_CS].l),
    FIELD(seg[S_SS].dpl),
    FIELD(gdtr.base),
    FIELD(idtr.base),
    FIELD(cr0),
    FIELD(cr2),
    FIELD(cr3),
    FIELD(cr4),
    FIELD(cr8),
    FIELD(efer),
    FIELD(xcr0),
    FIELD(star),
    FIELD(lstar),
    FIELD(sfmask),
    FIELD(kernel_gs_base),
    FIELD(tsc_aux),
    FIELD(mp_state),
    FIELD(nmi_blocked),
};
_Static_assert(offsetof(struct cpu_state, gpr) == 0, "the first fields");

/* Pieces of the XSAVE image that hold state (standard format; the rest is reserved or the header). */
static const struct {
	const char *name;
	unsigned off, unit, size; /* in units of `unit` bytes of which `size` count */
	unsigned n;
} image_parts[] = {
    {"x87 control word", 0, 2, 2, 1},
    {"x87 status word", 2, 2, 2, 1},
    {"x87 tags", 4, 1, 1, 1},
    {"x87 opcode", 6, 2, 2, 1},
    {"x87 instruction pointer", 8, 8, 8, 1},
    {"x87 data pointer", 16, 8, 8, 1},
    {"mxcsr", 24, 4, 4, 1},
    {"st", 32, 16, 10, 8},
    {"xmm", 160, 16, 16, 16},
    {"extended vector state, byte", 576, 1, 1, CPU_XSAVE_SIZE - 576},
};

struct difference {
	char what[64];
	uint64_t jit, interp;
	unsigned len; /* bytes of the two */
};

static uint64_t value_at(const void *p, size_t size)
{
	uint64_t v = 0;

	memcpy(&v, p, MIN(size, sizeof(v)));
	return v;
}

static bool fields_differ(const struct cpu_state *a, const struct cpu_state *b, uint64_t flags, struct difference *d)
{
	for (unsigned i = 0; i < ARRAY_SIZE(fields); i++) {
		size_t size = fields[i].size;
		uint64_t va = value_at((const uint8_t *)a + fields[i].off, size),
			 vb = value_at((const uint8_t *)b + fields[i].off, size);

		if (fields[i].off == offsetof(struct cpu_state, rflags) ? !((va ^ vb) & flags) : va == vb)
			continue;
		snprintf(d->what, sizeof(d->what), "%s", fields[i].name);
		d->jit = va;
		d->interp = vb;
		d->len = (unsigned)size;
		return true;
	}
	return false;
}

static bool image_differs(const uint8_t *a, const uint8_t *b, struct difference *d)
{
	if (!memcmp(a, b, 28) && !memcmp(a + 32, b + 32, 416 - 32) && !memcmp(a + 576, b + 576, CPU_XSAVE_SIZE - 576))
		return false;
	for (unsigned i = 0; i < ARRAY_SIZE(image_parts); i++) {
		for (unsigned k = 0; k < image_parts[i].n; k++) {
			unsigned at = image_parts[i].off + k * image_parts[i].unit, size = image_parts[i].size;

			if (memcmp(a + at, b + at, size) == 0)
				continue;
			while (size > 8 && memcmp(a + at, b + at, 8) == 0) {
				at += 8;
				size -= 8;
			}
			size = MIN(size, 8u);
			snprintf(d->what, sizeof(d->what), "%s %u", image_parts[i].name, k);
			d->jit = value_at(a + at, size);
			d->interp = value_at(b + at, size);
			d->len = size;
			return true;
		}
	}
	return false;
}

/* ---- the block's instructions ---------------------------------------------------- */

static unsigned read_code(struct soft_cpu *c, uint64_t rip, uint8_t *buf, unsigned len)
{
	unsigned done = 0;

	while (done < len) {
		uint64_t page, lin = c->long64 ? rip + done : (uint32_t)(rip + done);
		unsigned n = MIN(len - done, (unsigned)(PAGE_SIZE - (lin & (PAGE_SIZE - 1))));
		const uint8_t *host;

		if (mmu_fetch(c, lin, &page, &host) || !host)
			break;
		memcpy(buf + done, host + (lin & (PAGE_SIZE - 1)), n);
		done += n;
	}
	return done;
}

/* Flags that the manuals leave open after n instructions from the state of before. */
static uint64_t undefined_flags(struct soft_cpu *c, const struct cpu_state *before, unsigned n)
{
	static uint8_t code[PAGE_SIZE];
	const ZydisDecoder *dec = jit_decoder(c);
	unsigned len = read_code(c, before->rip, code, sizeof(code)), off = 0;
	ZydisDecodedInstruction zi;
	uint64_t open = 0;

	for (unsigned i = 0; i < n && off < len; i++, off += zi.length) {
		const ZydisAccessedFlags *f;

		if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(dec, NULL, code + off, len - off, &zi)))
			break;
		f = zi.cpu_flags;
		if (!f)
			continue;
		open &= ~(uint64_t)(f->modified | f->set_0 | f->set_1);
		open |= f->undefined;
	}
	return open & FLAG_ARITH;
}

static void show_block(struct soft_cpu *c, uint64_t rip, unsigned n)
{
	static uint8_t code[PAGE_SIZE];
	unsigned len = read_code(c, rip, code, sizeof(code)), off = 0;
	ZydisMachineMode mode = c->long64 ? ZYDIS_MACHINE_MODE_LONG_64 : ZYDIS_MACHINE_MODE_LONG_COMPAT_32;

	for (unsigned i = 0; i < MIN(n, (unsigned)SHOWN_MAX) && off < len; i++) {
		ZydisDisassembledInstruction d;
		char bytes[3 * 15 + 1];

		if (!ZYAN_SUCCESS(ZydisDisassembleIntel(mode, rip + off, code + off, len - off, &d)))
			break;
		for (unsigned k = 0; k < d.info.length; k++)
			snprintf(bytes + 3 * k, 4, " %02x", code[off + k]);
		log_error("lockstep:   %#" PRIx64 "  %-44s%s", rip + off, d.text, bytes);
		off += d.info.length;
	}
}

static void report(struct soft_cpu *c, const struct jit_one *one, const struct difference *d)
{
	const struct cpu_host *h = sys_host(c);
	struct lockstep *l = c->lockstep;
	int digits = (int)(2 * d->len);

	log_error("lockstep: translator and interpreter differ after the block at %#" PRIx64 " (%s mode, block %" PRIu64
		  "): %s is 0x%0*" PRIx64 " in the translator, 0x%0*" PRIx64 " in the interpreter",
		  l->before.rip, c->cpl == 3 ? "user" : "kernel", l->n_blocks, d->what, digits, d->jit, digits,
		  d->interp);
	log_error("lockstep: its %u instruction%s:", one->insns + one->step_done,
		  one->insns + one->step_done == 1 ? "" : "s");
	c->s = l->before;
	soft_mode_changed(c);
	show_block(c, l->before.rip, one->insns + 1);
	l->ended = true;
	c->s.mp_state = MP_WAIT_INIT;
	if (h && h->request)
		h->request(h->opaque, VM_EXIT, EXIT_STATUS, "lockstep");
}

/* ---- a step ------------------------------------------------------------------------ */

static void state_keep(struct soft_cpu *c)
{
	memcpy(&c->lockstep->before, &c->s, offsetof(struct cpu_state, xsave) + IMAGE_HEAD);
}

static void state_back(struct soft_cpu *c, bool vec)
{
	struct lockstep *l = c->lockstep;
	uint64_t cr3 = c->s.cr3;

	memcpy(&c->s, &l->before, offsetof(struct cpu_state, xsave) + IMAGE_HEAD);
	if (vec)
		memcpy(c->s.xsave + IMAGE_HEAD, l->image + IMAGE_HEAD, CPU_XSAVE_SIZE - IMAGE_HEAD);
	if (cr3 != c->s.cr3)
		mmu_switch_cr3(c, c->s.cr3, true);
	c->exc_raised = c->code_changed = false;
	soft_mode_changed(c);
}

/* The string instruction of the step, as often as the translator's run did. */
static int repeat_string(struct soft_cpu *c, const struct jit_one *one)
{
	uint64_t left = c->s.gpr[R_RCX] - one->rounds;
	int r = 0;

	c->s.gpr[R_RCX] = one->rounds;
	while (!r && one->rounds && c->s.rip == one->step_rip)
		r = interp_step(c);
	if (r)
		return r;
	if (one->rounds && (left || one->step_ret < 0 || one->step_ret == INSN_JUMP))
		c->s.rip = one->step_rip;
	c->s.gpr[R_RCX] = left;
	if (one->step_ret == EXC_RAISED || (!one->rounds && one->step_ret != JIT_STRING_NOT))
		r = interp_step(c);
	return r;
}

/* The interpreter's run. */
static struct outcome run_interp(struct soft_cpu *c, const struct jit_one *one, bool jit_raised)
{
	unsigned done = 0;
	int r = interp_count(c, one->insns, &done);

	if (!r && one->step_done) {
		c->s.int_shadow = false;
		if (one->step_string) {
			r = repeat_string(c, one);
		} else {
			uint64_t rip = c->s.rip;

			do
				r = interp_step(c);
			while (!r && one->step_ret == INSN_NEXT && c->s.rip == rip);
		}
	} else if (!r && jit_raised) {
		r = interp_step(c);
	}
	return outcome_of(c, r == EXC_RAISED, done);
}

static bool outcomes_differ(const struct outcome *a, const struct outcome *b, struct difference *d)
{
	const struct {
		const char *what;
		uint64_t a, b;
	} part[] = {{"whether there is an exception", a->raised, b->raised},
		    {"the exception's vector", a->vector, b->vector},
		    {"the exception's error code", a->code, b->code},
		    {"the page fault's address", a->cr2, b->cr2},
		    {"the number of instructions done", a->insns, b->insns}};

	for (unsigned i = 0; i < ARRAY_SIZE(part); i++) {
		if (part[i].a == part[i].b)
			continue;
		snprintf(d->what, sizeof(d->what), "%s", part[i].what);
		d->jit = part[i].a;
		d->interp = part[i].b;
		d->len = 4;
		return true;
	}
	return false;
}

static uint64_t guest_physical(const struct soft_cpu *c, const uint8_t *host)
{
	const struct ram_block *b = mem_block_of_host(c->v.accel->cfg.mem, host);

	return b ? b->gpa + (uint64_t)(host - b->host) : UINT64_MAX;
}

/* Both runs are over, c->s is the interpreter's. */
static bool runs_differ(struct soft_cpu *c, const struct jit_one *one, const struct outcome *a, const struct outcome *b,
			struct difference *d)
{
	struct lockstep *l = c->lockstep;
	uint64_t flags = ~(uint64_t)one->dead;
	const uint8_t *at;
	uint8_t was;

	if (outcomes_differ(a, b, d))
		return true;
	if (memcmp(&l->jit, &c->s, offsetof(struct cpu_state, xsave)) != 0) {
		if ((l->jit.rflags ^ c->s.rflags) & flags)
			flags &= ~undefined_flags(c, &l->before, one->insns);
		if (fields_differ(&l->jit, &c->s, flags, d))
			return true;
	}
	if (image_differs(l->jit.xsave, c->s.xsave, d))
		return true;
	at = stores_differ(l, &was);
	if (!at)
		return false;
	snprintf(d->what, sizeof(d->what), "memory at guest-physical 0x%" PRIx64, guest_physical(c, at));
	d->jit = was;
	d->interp = *at;
	d->len = 1;
	return true;
}

enum step { STEP_ON, STEP_ONCE, STEP_RAISED, STEP_INTERP, STEP_ATTENTION };

static enum step one_block(struct soft_cpu *c)
{
	struct lockstep *l = c->lockstep;
	struct difference d;
	struct jit_one one;
	struct outcome a, b;
	enum jit_exit r;

	for (unsigned try = 0; try < TRIES; try++) {
		uint16_t x87_cs = c->x87_cs, x87_ds = c->x87_ds;

		state_keep(c);
		log_begin(l, &l->log_jit);
		if (!jit_run_one(c, l->image, &one, &r)) {
			l->log = NULL;
			return r == JIT_EXC ? STEP_RAISED : STEP_INTERP;
		}
		log_end(l, &l->log_jit);
		if (one.reason == REASON_POLL)
			return STEP_ATTENTION;
		a = outcome_of(c, one.reason == REASON_FAULT || (one.step_done && one.step_ret == EXC_RAISED),
			       one.insns);
		memcpy(&l->jit, &c->s, one.vec ? sizeof(l->jit) : offsetof(struct cpu_state, xsave) + IMAGE_HEAD);
		log_undo(c, &l->log_jit);
		state_back(c, one.vec);
		if (!one.vec)
			memcpy(l->jit.xsave + IMAGE_HEAD, c->s.xsave + IMAGE_HEAD, CPU_XSAVE_SIZE - IMAGE_HEAD);
		c->x87_cs = x87_cs;
		c->x87_ds = x87_ds;
		l->replay = true;
		l->tsc_at = 0;
		log_begin(l, &l->log_interp);
		b = run_interp(c, &one, a.raised);
		log_end(l, &l->log_interp);
		l->replay = false;
		l->n_blocks++;
		l->n_insns += one.insns;
		if (!runs_differ(c, &one, &a, &b, &d))
			goto same;
		l->n_retries++;
		log_undo(c, &l->log_interp);
		state_back(c, one.vec);
		c->x87_cs = x87_cs;
		c->x87_ds = x87_ds;
	}
	report(c, &one, &d);
	return STEP_ATTENTION;
same:
	if (b.raised)
		return STEP_RAISED;
	return one.reason == REASON_INTERP || (one.reason == REASON_STEP && !one.step_done) ? STEP_ONCE : STEP_ON;
}

int lockstep_run(struct soft_cpu *c)
{
	struct lockstep *l = c->lockstep;

	for (unsigned n = 0; n < STEPS_MAX; n++) {
		if (l->ended || soft_attention(c) || c->s.mp_state != MP_RUNNING || c->s.int_shadow ||
		    c->debug_active || (c->s.rflags & FLAG_TF))
			return 0;
		switch (one_block(c)) {
		case STEP_RAISED: return EXC_RAISED;
		case STEP_INTERP: return interp_run(c, 1);
		case STEP_ATTENTION: return 0;
		case STEP_ONCE:
			/* Once, and for real: it may act on a device. */
			l->n_once++;
			if (interp_step(c) == EXC_RAISED)
				return EXC_RAISED;
			break;
		default: break;
		}
	}
	return 0;
}

int lockstep_init(struct soft_cpu *c, struct err *err)
{
	struct lockstep *l = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (l == MAP_FAILED)
		return err_set(err, -ENOMEM, "soft: no memory for lockstep");
	c->lockstep = l;
	mmu_flush_all(c);
	return 0;
}

void lockstep_fini(struct soft_cpu *c)
{
	if (!c->lockstep)
		return;
	log_info("lockstep: %" PRIu64 " blocks with %" PRIu64 " instructions compared, %" PRIu64
		 " steps ran once, %" PRIu64 " repeated; %s",
		 c->lockstep->n_blocks, c->lockstep->n_insns, c->lockstep->n_once, c->lockstep->n_retries,
		 c->lockstep->ended ? "a difference" : "no difference");
	munmap(c->lockstep, sizeof(*c->lockstep));
	c->lockstep = NULL;
}
