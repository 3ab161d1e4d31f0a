/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The run loop: finds the block at rip, or has it made when the place is hot,
 * runs it, and does what it was left for. Built with general registers only (as
 * mmu.c and what it calls), since the guest's vector state may be in the host's
 * registers from one block to the next; jit_vec_unload comes before any other C.
 */
#include "cpu/soft/jit.h"
#include "cpu/soft/lockstep.h"

#include <asm/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- finding blocks ------------------------------------------------------- */

struct jit_block *jit_find(struct jit *j, uint64_t page, uint64_t page2, unsigned off, uint32_t key)
{
	uint64_t hash = jit_block_hash(page, off, key), e;
	unsigned n = (unsigned)(hash >> (64 - JIT_BLOCK_BITS));

	for (; (e = __atomic_load_n(&j->hash[n], __ATOMIC_ACQUIRE)); n = (n + 1) % JIT_BLOCK_HASH) {
		struct jit_block *b = (struct jit_block *)(uintptr_t)(e & ((1ull << JIT_TAG_SHIFT) - 1));

		if (((e ^ hash << JIT_TAG_SHIFT) >> JIT_TAG_SHIFT) || e == JIT_GONE)
			continue;
		if (b->page == page && b->off == off && b->key == key && b->page2 == page2 &&
		    !__atomic_load_n(&b->dead, __ATOMIC_RELAXED))
			return b;
	}
	return NULL;
}

static void inside_enter(struct jit *j, struct jit_cpu *jc)
{
	for (;;) {
		atomic_store(&jc->inside, true);
		if (likely(!atomic_load(&j->flushing)))
			return;
		atomic_store(&jc->inside, false);
		pthread_mutex_lock(&j->lock); /* until the flush is over */
		pthread_mutex_unlock(&j->lock);
	}
}

static void inside_leave(struct jit_cpu *jc)
{
	atomic_store_explicit(&jc->inside, false, memory_order_release);
}

/* ---- the run loop --------------------------------------------------------- */

static void table_clear(struct soft_cpu *c, unsigned idx)
{
	struct jit_cpu *jc = c->jit;

	c->n_jit[JIT_STAT_TABLE_CLEARS]++;
	if (jc->log[idx].n <= JIT_JUMP_LOG) {
		for (unsigned i = 0; i < jc->log[idx].n; i++)
			c->jit_jump[idx][jc->log[idx].entry[i]].host = 0;
	} else {
		for (unsigned i = 0; i < ARRAY_SIZE(c->jit_jump[idx]); i++)
			c->jit_jump[idx][i].host = 0;
	}
	jc->log[idx].n = 0;
}

/*
 * The tables' keys are host addresses of guest code, so their entries rest on no mapping: translated code goes through
 * the first-level TLB's execute entries, which do. They hold until the code cache is emptied (a block that dies closes
 * its entry, and who arrives there forgets it) or the table is wanted for another mode.
 */
static void tables_check(struct soft_cpu *c, struct jit *j, struct jit_cpu *jc)
{
	uint64_t flushes = atomic_load_explicit(&j->flushes, memory_order_acquire);
	unsigned idx = c->mmu_index;

	if (unlikely(flushes != jc->flushes)) {
		for (unsigned i = 0; i < MMU_MODES; i++) {
			table_clear(c, i);
			c->jx.jump_key[i] = JIT_NO_KEY;
		}
		/* The cache was full: what is translated again must have become hot again. */
		jc->flushes = flushes;
		c->n_jit[JIT_STAT_FLUSHES]++;
		for (unsigned i = 0; i < JIT_HEAT_SIZE; i++)
			jc->heat[i].count = 0;
	}
	if (unlikely(c->jx.jump_key[idx] != c->mode_key)) {
		table_clear(c, idx);
		c->jx.jump_key[idx] = c->mode_key;
	}
}

static struct jit_jump *table_entry(struct soft_cpu *c, uint64_t host)
{
	return &c->jit_jump[c->mmu_index][(host ^ host >> JIT_JUMP_SHIFT) & ((1u << JIT_JUMP_BITS) - 1)];
}

static void table_enter(struct soft_cpu *c, struct jit_jump *e, uint64_t host, const struct jit_block *b)
{
	struct jit_cpu *jc = c->jit;

	if (jc->log[c->mmu_index].n < JIT_JUMP_LOG)
		jc->log[c->mmu_index].entry[jc->log[c->mmu_index].n] = (uint32_t)(e - c->jit_jump[c->mmu_index]);
	if (jc->log[c->mmu_index].n <= JIT_JUMP_LOG)
		jc->log[c->mmu_index].n++;
	e->host = host;
	e->code = b->entry_b;
}

/* rip's block is dead, or its entry led there from another address: forget the way. */
static void table_forget(struct soft_cpu *c)
{
	uint64_t host = mmu_fetch_hit(c, c->s.rip);
	struct jit_jump *e = table_entry(c, host);

	if (host && e->host == host)
		e->host = 0;
}

/* How often rip was reached; it may be counted in either of a pair. */
static struct jit_heat *heat_pair(struct soft_cpu *c, uint64_t rip, uint16_t *tag)
{
	uint64_t h = (rip ^ (uint64_t)c->mode_key << 50) * 0x9e3779b97f4a7c15ull;

	*tag = (uint16_t)(h >> (64 - JIT_HEAT_BITS - 16));
	return &c->jit->heat[h >> (64 - JIT_HEAT_BITS) & ~1ull];
}

/* Known to be too cold, and counted. Most often, so this is all that is looked at. */
static bool heat_cold(struct soft_cpu *c, const struct jit *j)
{
	uint16_t tag;
	struct jit_heat *e = heat_pair(c, c->s.rip, &tag);

	for (unsigned i = 0; i < 2; i++, e++) {
		if (e->tag == tag && e->count && e->count + 1u < j->threshold) {
			e->count++;
			c->n_jit[JIT_STAT_COLD]++;
			return true;
		}
	}
	return false;
}

/* rip's counter. When both of the pair are others', the less frequent place pays with its own: NULL while it has any.
 */
static struct jit_heat *heat_of(struct soft_cpu *c)
{
	uint16_t tag;
	struct jit_heat *e = heat_pair(c, c->s.rip, &tag);

	if (e->tag == tag)
		return e;
	if (e[1].tag == tag)
		return e + 1;
	if (e[1].count < e->count)
		e++;
	if (e->count && --e->count)
		return NULL;
	e->tag = tag;
	e->count = 0;
	return e;
}

#define KEY_64 SOFT_KEY_LONG64
#define KEY_32 (SOFT_KEY_CODE32 | SOFT_KEY_STACK32 | SOFT_KEY_FLAT)

/* 64-bit code, and 32-bit code whose segments all have base 0 and the limit 4G. CPL 1 and 2 have no key of their own,
 * and #AC is the interpreter's. */
static bool translatable(const struct soft_cpu *c)
{
	uint32_t key = c->mode_key & (KEY_64 | KEY_32 | SOFT_KEY_TF | SOFT_KEY_REAL);

	return (key == (KEY_64 | SOFT_KEY_FLAT) || key == KEY_32) && !c->s.int_shadow && !(c->s.dr[7] & 0xff) &&
	       (c->cpl == 0 || (c->cpl == 3 && (~c->s.rflags & FLAG_AC || ~c->s.cr0 & CR0_AM)));
}

/* Where rip's bytes are. False: *r says what to do instead. */
static bool place_of(struct soft_cpu *c, struct jit_place *at, enum jit_exit *r)
{
	*at =
	    (struct jit_place){.page2 = JIT_NO_PAGE, .off = (unsigned)(c->s.rip & (PAGE_SIZE - 1)), .key = c->mode_key};
	if (likely(!mmu_fetch(c, c->s.rip, &at->page, &at->host))) {
		*r = JIT_INTERP;
		return at->host;
	}
	*r = JIT_EXC;
	return false;
}

/* The block at rip, found or made. NULL: *r says what to do instead. */
static struct jit_block *block_at(struct soft_cpu *c, struct jit *j, const struct jit_place *place, enum jit_exit *r)
{
	struct jit_cpu *jc = c->jit;
	struct jit_place at = *place;
	struct jit_block *b;
	struct jit_heat *heat, any = {0};

	*r = JIT_INTERP;
	if (heat_cold(c, j))
		return NULL;
	c->n_jit[JIT_STAT_FINDS]++;
	b = jit_find(j, at.page, JIT_NO_PAGE, at.off, c->mode_key);
	if (b)
		return b;
	if (at.off > PAGE_SIZE - JIT_INSN_MAX)
		jit_vec_unload(c); /* the decoder is arbitrary C */
	if (jit_crosses(c, at.host, at.off)) {
		if (mmu_fetch(c, (c->s.rip & PAGE_MASK) + PAGE_SIZE, &at.page2, &at.host2)) {
			*r = JIT_EXC;
			return NULL;
		}
		if (!at.host2)
			return NULL;
		b = jit_find(j, at.page, at.page2, at.off, c->mode_key);
		if (b)
			return b;
	}
	heat = heat_of(c);
	if (!heat && j->threshold > 1) {
		c->n_jit[JIT_STAT_HEAT_TAKEN]++;
		return NULL;
	}
	if (!heat)
		heat = &any;
	if (heat->count < 255)
		heat->count++;
	else
		heat->count = 0;
	if (heat->count >= HEAT_FAILED || heat->count < j->threshold) {
		c->n_jit[heat->count >= HEAT_FAILED ? JIT_STAT_FAILED : JIT_STAT_COLD]++;
		return NULL;
	}
	jit_vec_unload(c); /* arbitrary C from here */
	b = jit_make(c, j, &at, heat);
	/* Killed since: the check may just have seen that, and would not see it again with the block in the table. */
	tables_check(c, j, jc);
	return b && !__atomic_load_n(&b->dead, __ATOMIC_ACQUIRE) ? b : NULL;
}

static void set_gs(struct soft_cpu *c)
{
	static _Thread_local struct soft_cpu *set;

	if (likely(set == c))
		return;
	syscall(SYS_arch_prctl, ARCH_SET_GS, c);
	set = c;
}

static void run_code(struct soft_cpu *c, const struct jit *j, const uint8_t *code)
{
	union {
		const uint8_t *p;
		void (*fn)(struct soft_cpu *c, const uint8_t *code);
	} enter = {.p = j->enter};
	uint64_t f = c->s.rflags;

	c->jx.flags = (f & 0xff) << 8 | (f >> 11 & 1);
	c->jx.page = c->s.rip & PAGE_MASK;
	enter.fn(c, code);
	f = c->jx.flags;
	c->s.rflags = (c->s.rflags & ~FLAG_ARITH) | (f >> 8 & FLAG_ARITH & 0xff) | (f & 1) << 11;
}

static bool stopped(const struct soft_cpu *c, enum jit_exit *r)
{
	if (likely(c->s.mp_state == MP_RUNNING && !c->triple_faulted))
		return false;
	*r = JIT_ATTENTION;
	return true;
}

/* exc.c uses no vector registers. */
static bool deliver(struct soft_cpu *c, enum jit_exit *r)
{
	if (jit_of(c)->return_exceptions || (c->mode_key & SOFT_KEY_REAL)) {
		*r = JIT_EXC;
		return true;
	}
	exc_deliver_raised(c);
	return stopped(c, r);
}

/* The handler of an instruction that is not translated. */
static bool run_step(struct soft_cpu *c, struct jit *j, enum jit_exit *r)
{
	const struct jit_step *s = (const struct jit_step *)(uintptr_t)c->jx.arg;
	unsigned length = s->insn.length;
	int ret;

	ret = s->string ? jit_string(c, &s->insn) : JIT_STRING_NOT;
	if (ret != JIT_STRING_NOT) {
		/* done */
	} else if (s->quiet) {
		ret = s->insn.exec(c, &s->insn);
	} else {
		/* It may wait for the translator's lock: not inside, so with a copy. */
		struct insn copy = s->insn;

		c->n_jit[JIT_STAT_STEP_LOUD]++;
		jit_vec_unload(c);
		inside_leave(c->jit);
		ret = copy.exec(c, &copy);
		inside_enter(j, c->jit);
	}
	c->code_changed = false;
	if (ret == EXC_RAISED)
		return deliver(c, r);
	if (ret != INSN_JUMP)
		c->s.rip += length;
	return stopped(c, r);
}

#define SETTLE_MAX 64

/* Branches that the search for readers of flags goes over (jit_xlat.c). */
static bool followed(const struct insn *i)
{
	return !i->far_branch && i->op[0].kind == OPD_IMM &&
	       ((i->mnemonic >= ZYDIS_MNEMONIC_JB && i->mnemonic <= ZYDIS_MNEMONIC_JZ) ||
		i->mnemonic == ZYDIS_MNEMONIC_LOOP);
}

/*
 * At a block's head where `dead` flags are not kept, since they will be written before they are read or an access
 * faults: let the interpreter write them, then the state can be shown to an interrupt. Going on for longer than
 * needed does no harm.
 */
static bool settle_flags(struct soft_cpu *c, uint32_t dead, enum jit_exit *r)
{
	for (unsigned n = 0; dead && n < SETTLE_MAX; n++) {
		const struct insn *i = interp_peek(c);

		if (!i)
			return deliver(c, r);
		if ((i->ends && !followed(i)) || (i->mem_op != INSN_NO_REG && jit_of(c)->exact_flags))
			break; /* what comes here is kept */
		dead &= ~(i->flags_read | (insn_shifts(i->mnemonic) ? 0 : i->flags_written));
		if (interp_step(c) == EXC_RAISED)
			return deliver(c, r);
	}
	return false;
}

/* A jump that is not linked. The variant of code without groups is made at once: the code with them comes here each
 * time. False: it cannot be made. */
static bool link_exit(struct soft_cpu *c, struct jit *j, struct jit_link *l)
{
	uint32_t key = (l->from->key & ~JIT_KEY_SINGLE) | (l->single ? JIT_KEY_SINGLE : 0);
	struct jit_block *to = jit_find(j, l->from->page, JIT_NO_PAGE, l->off, key);
	struct jit_place at = {.page2 = JIT_NO_PAGE, .off = l->off, .key = key};
	struct jit_heat any = {0};
	uint64_t flushes = j->flushes;

	if (!to && l->single) {
		if (mmu_fetch(c, c->s.rip, &at.page, &at.host)) {
			c->exc_raised = false; /* the interpreter finds it again */
			return false;
		}
		if (!at.host)
			return false;
		jit_vec_unload(c);
		to = jit_make(c, j, &at, &any);
		if (j->flushes != flushes) /* the link is gone */
			return true;
		if (!to)
			return false;
	}
	if (to)
		jit_link(j, l, to, NULL);
	return true;
}

/* Leave or go on after translated code stopped; *r when leaving. *dead: flags that are not kept here. */
static bool after_code(struct soft_cpu *c, struct jit *j, enum jit_exit *r, uint32_t *dead)
{
	struct jit_cpu *jc = c->jit;
	uint32_t reason = c->jx.reason;

	*dead = 0;
	c->n_jit[JIT_STAT_REASON + reason]++;
	c->n_jit_exits++;
	switch (reason) {
	case REASON_LOOKUP:
	case REASON_LOOKUP_USER:
	case REASON_CROSS:
	case REASON_FAR:
	case REASON_MODE: return false;
	case REASON_LINK: {
		struct jit_link *l = (struct jit_link *)(uintptr_t)c->jx.arg;

		*dead = FLAG_ARITH & ~(uint32_t)l->live;
		if (link_exit(c, j, l))
			return false;
		break;
	}
	case REASON_POLL:
		table_forget(c); /* the block may have died */
		*r = JIT_ATTENTION;
		*dead = FLAG_ARITH & ~(uint32_t)c->jx.arg;
		return true;
	case REASON_STEP: return run_step(c, j, r);
	case REASON_FAULT: return deliver(c, r);
	default: break;
	}
	/* one instruction, exactly */
	jit_vec_unload(c);
	inside_leave(jc);
	reason = (uint32_t)interp_step(c);
	inside_enter(j, jc);
	if (reason)
		return deliver(c, r);
	return stopped(c, r);
}

static void copy_image(uint8_t *to, const uint8_t *from)
{
	size_t n = CPU_XSAVE_SIZE;

	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

/* The step behind the block, where its handler is not the interpreter's or runs in other surroundings. */
static void one_step(struct soft_cpu *c, struct jit_one *one)
{
	const struct jit_step *s = (const struct jit_step *)(uintptr_t)c->jx.arg;
	uint64_t count = c->s.gpr[R_RCX];

	one->step_rip = c->s.rip;
	if (s->string) {
		do
			one->step_ret = jit_string(c, &s->insn);
		while (one->step_ret == INSN_JUMP && !lockstep_enough(c));
		one->step_string = s->insn.prefixes & (INSN_REP | INSN_REPNE);
		one->rounds = count - c->s.gpr[R_RCX];
		one->step_done = one->step_ret != JIT_STRING_NOT || one->rounds;
	} else if (s->quiet) {
		one->step_ret = s->insn.exec(c, &s->insn);
		one->step_done = true;
	}
	if (one->step_done && one->step_ret >= 0 && one->step_ret != INSN_JUMP)
		c->s.rip += s->insn.length;
}

bool jit_run_one(struct soft_cpu *c, uint8_t *image, struct jit_one *one, enum jit_exit *r)
{
	struct jit *j = jit_of(c);
	struct jit_cpu *jc = c->jit;
	const struct jit_block *b = NULL;
	struct jit_place at;

	*one = (struct jit_one){0};
	*r = JIT_INTERP;
	set_gs(c);
	inside_enter(j, jc);
	if (translatable(c) && place_of(c, &at, r))
		b = block_at(c, j, &at, r);
	if (b) {
		c->jx.at = 0;
		run_code(c, j, b->entry_b);
		one->reason = c->jx.reason;
		one->insns = c->jx.at;
		switch (one->reason) {
		case REASON_LINK: {
			const struct jit_link *l = (const struct jit_link *)(uintptr_t)c->jx.arg;

			one->dead = FLAG_ARITH & ~(uint32_t)l->live;
			if (l->single) { /* the head of a group that does not fit: as what only the interpreter does */
				one->reason = one->insns ? REASON_LINK : REASON_INTERP;
				break;
			}
		}
			__attribute__((fallthrough));
		case REASON_LOOKUP:
		case REASON_LOOKUP_USER:
		case REASON_FAR:
		case REASON_MODE: one->insns++; break;
		case REASON_STEP: one_step(c, one); break;
		case REASON_POLL: one->insns = 0; break;
		default: break;
		}
		one->vec = c->jx.vec_live;
		if (one->vec)
			copy_image(image, c->s.xsave);
		jit_vec_unload(c);
	}
	inside_leave(jc);
	return b != NULL;
}

/* The code to run at rip; NULL: *r says what to do instead. */
static const uint8_t *code_at(struct soft_cpu *c, struct jit *j, enum jit_exit *r)
{
	struct jit_link *far = NULL;
	struct jit_place at;
	struct jit_jump *e;
	struct jit_block *b;
	uint64_t host, flushes = j->flushes;
	bool cross = c->jx.reason == REASON_CROSS;

	/* From the interpreter it goes on there most often: that shows by looking at one cache line. */
	if (c->jx.reason == REASON_COUNT && heat_cold(c, j)) {
		*r = JIT_INTERP;
		return NULL;
	}
	if (c->jx.reason == REASON_FAR)
		far = (struct jit_link *)(uintptr_t)c->jx.arg;
	c->jx.reason = REASON_COUNT;
	if (!place_of(c, &at, r))
		return NULL;
	host = (uint64_t)(uintptr_t)at.host + at.off;
	e = table_entry(c, host);
	if (likely(e->host == host && !cross && (!far || far->linked)))
		return e->code;
	b = block_at(c, j, &at, r);
	if (!b)
		return NULL;
	if (far && j->flushes == flushes)
		jit_link(j, far, b, at.host);
	table_enter(c, e, host, b);
	return b->entry_b;
}

enum jit_exit jit_run(struct soft_cpu *c)
{
	struct jit *j = jit_of(c);
	struct jit_cpu *jc = c->jit;
	enum jit_exit r = JIT_INTERP;
	uint32_t dead = 0;

	set_gs(c);
	c->jx.reason = REASON_COUNT;
	inside_enter(j, jc);
	for (;;) {
		const uint8_t *code;

		if (unlikely(soft_attention(c))) {
			r = JIT_ATTENTION;
			break;
		}
		if (unlikely(!translatable(c))) {
			r = JIT_INTERP;
			break;
		}
		if (unlikely(c->native_armed) && c->cpl == 3) {
			r = JIT_NATIVE;
			break;
		}
		tables_check(c, j, jc);
		code = code_at(c, j, &r);
		if (!code)
			break;
		run_code(c, j, code);
		if (after_code(c, j, &r, &dead))
			break;
	}
	jit_vec_unload(c);
	inside_leave(jc);
	if (unlikely(dead) && r != JIT_EXC)
		settle_flags(c, dead, &r);
	return r;
}
