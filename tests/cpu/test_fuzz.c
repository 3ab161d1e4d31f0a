/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random bytes as code in every mode and at both privilege levels: whatever the
 * guest executes, the monitor must survive it. Nothing is compared here; the
 * sanitizer builds and our own BUG checks are the judges.
 *
 *	test_fuzz [COUNT [SEED]]
 */
#include <stdio.h>
#include <stdlib.h>
#include "insn_case.h"
#include "no_lapic.h"
#include "soft_guest.h"

#define STEPS 6

static struct guest guest;
static uint8_t *code;

static uint64_t port_read(void *opaque, uint16_t port, unsigned size)
{
	return ~0ull;
}
static void port_write(void *opaque, uint16_t port, uint64_t val, unsigned size) {}
static int intr_ack(void *opaque, unsigned cpu)
{
	return -1;
}
static bool intr_pending(void *opaque, unsigned cpu)
{
	return false;
}
static void request(void *opaque, enum vm_request what, int status, const char *why) {}

static uint64_t value(struct rng *r)
{
	switch (rng_below(r, 4)) {
	case 0: return CASE_DATA + (rng_next(r) & 0x1ff8);
	case 1: return rng_next(r) & 0xff;
	case 2: return rng_next(r) & 0xffffffff;
	default: return rng_next(r);
	}
}

/* Random code, more often than not with a plausible start. */
static void make_code(struct rng *r, uint8_t *p)
{
	static const uint8_t starts[] = {0x0f, 0x66, 0xf2, 0xf3, 0x48, 0x62, 0xc4, 0xc5, 0xf0, 0x67, 0xd9, 0x8f};

	for (unsigned k = 0; k < 64; k += 8)
		st64le(p + k, rng_next(r));
	for (unsigned k = 0; k < 64; k += 5)
		if (rng_below(r, 2))
			p[k] = starts[rng_below(r, ARRAY_SIZE(starts))];
}

static void set_mode(struct soft_cpu *c, unsigned mode, unsigned cpl)
{
	struct cpu_state *s = &c->s;

	guest_user64(&guest);
	s->seg[S_CS].l = mode == 64;
	s->seg[S_CS].db = mode == 32;
	s->seg[S_CS].base = mode == 16 ? CASE_CODE : 0;
	for (unsigned k = 0; k < 6; k++)
		s->seg[k].dpl = (uint8_t)cpl;
	s->seg[S_CS].sel = (uint16_t)(0x30 | cpl);
	s->seg[S_SS].sel = (uint16_t)(0x28 | cpl);
	s->mp_state = MP_RUNNING;
	c->triple_faulted = false;
	soft_mode_changed(c);
}

static void one(struct rng *r)
{
	static const unsigned modes[] = {64, 64, 32, 16};
	struct soft_cpu *c = guest.c;
	unsigned mode = modes[rng_below(r, 4)];

	make_code(r, code + 0x100);
	mem_mark_written(&guest.mem, code + 0x100, 64);
	set_mode(c, mode, rng_below(r, 2) ? 3 : 0);
	for (unsigned k = 0; k < 16; k++)
		c->s.gpr[k] = value(r);
	c->s.gpr[R_RCX] &= 0xfff;
	c->s.gpr[R_RSP] = CASE_DATA + 0x1000;
	c->s.rip = 0x100 + (mode == 16 ? 0 : CASE_CODE);
	c->s.rflags = 0x202 | (rng_next(r) & (FLAG_ARITH | FLAG_DF | FLAG_NT | FLAG_AC));
	for (unsigned k = 0; k < STEPS; k++) {
		c->v.requests = 0;
		if (interp_step(c) || c->s.mp_state != MP_RUNNING)
			break;
	}
	if (c->exc_raised && rng_below(r, 4) == 0)
		exc_deliver_raised(c); /* no IDT: ends in a triple fault */
	c->exc_raised = false;
	c->v.requests = 0;
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 0) : 100000;
	struct rng r = {argc > 2 ? strtoull(argv[2], NULL, 0) : 1};

	if (guest_create_max(&guest))
		return 2;
	guest.host = (struct cpu_host){.port_read = port_read,
				       .port_write = port_write,
				       .intr_ack = intr_ack,
				       .intr_pending = intr_pending,
				       NO_LAPIC,
				       .request = request};
	code = guest_map(&guest, CASE_CODE, CASE_CODE_SIZE, GUEST_W | GUEST_X);
	guest_map(&guest, CASE_DATA, CASE_DATA_SIZE, GUEST_W);
	for (unsigned long k = 0; k < count; k++)
		one(&r);
	printf("%lu pieces of random code survived, %llu instructions\n", count, (unsigned long long)guest.c->n_insns);
	guest_destroy(&guest);
	return 0;
}
