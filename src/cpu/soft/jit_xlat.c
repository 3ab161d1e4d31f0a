/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Translation of a block: decode until control surely leaves (or something only
 * the interpreter does), find which flags are needed where, lower each
 * instruction. A block goes on behind conditional branches that are not taken,
 * so it has one entry and several exits.
 */
#include "cpu/soft/jit_xlat.h"

#include "cpu/soft/ops.h"

#define PEEK_INSNS 10
#define PEEK_DEPTH 2

/* ---- decoding ------------------------------------------------------------- */

static bool decode_at(struct xlat *x, unsigned off, struct xinsn *in)
{
	if (off >= PAGE_SIZE)
		return false;
	memset(in, 0, offsetof(struct xinsn, zi) + sizeof(in->zi));
	in->vec = in->mem_write = in->mem_read = false;
	in->f_read = in->f_written = in->f_touched = in->live_in = in->live_out = in->taken_live = 0;
	in->gpr_written = 0;
	in->target = 0;
	in->group = -1;
	in->bytes = x->code + off;
	if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(jit_decoder(x->c), x->code + off, x->limit - off, &in->zi, in->op)))
		return false;
	in->off = (uint16_t)off;
	in->next = (uint16_t)(off + in->zi.length);
	x_classify(x, in);
	return true;
}

bool jit_crosses(const struct soft_cpu *c, const uint8_t *host, unsigned off)
{
	ZydisDecodedInstruction zi;

	return off > PAGE_SIZE - JIT_INSN_MAX &&
	       ZydisDecoderDecodeInstruction(jit_decoder(c), NULL, host + off, PAGE_SIZE - off, &zi) ==
		   ZYDIS_STATUS_NO_MORE_DATA;
}

bool x_linkable(const struct xlat *x, int32_t target)
{
	return target >= 0 && target < (int32_t)PAGE_SIZE && !jit_crosses(x->c, x->code, (unsigned)target);
}

static void note_range(struct xlat *x, unsigned off, unsigned len)
{
	for (unsigned i = 0; i < x->nranges; i++) {
		unsigned lo = x->range[i].off, hi = lo + x->range[i].len;

		if (off <= hi && off + len >= lo) {
			x->range[i].off = (uint16_t)MIN(lo, off);
			x->range[i].len = (uint16_t)(MAX(hi, off + len) - x->range[i].off);
			return;
		}
	}
	if (x->nranges == XLAT_RANGES) {
		/* One range over everything. */
		unsigned lo = off, hi = off + len;

		for (unsigned i = 0; i < x->nranges; i++) {
			lo = MIN(lo, (unsigned)x->range[i].off);
			hi = MAX(hi, (unsigned)x->range[i].off + x->range[i].len);
		}
		x->range[0].off = (uint16_t)lo;
		x->range[0].len = (uint16_t)(hi - lo);
		x->nranges = 1;
		return;
	}
	x->range[x->nranges].off = (uint16_t)off;
	x->range[x->nranges++].len = (uint16_t)len;
}

/* ---- liveness ------------------------------------------------------------- */

/* Could leave for C in its middle: the state must be whole there. The first vector instruction of a block may find
 * an exception unmasked, and be the interpreter's; STI may find an interrupt, RDTSC that it is forbidden. */
static bool may_fault(const struct xinsn *in)
{
	return in->mem >= 0 || in->vec || in->kind == K_STI || in->kind == K_RDTSC || in->kind == K_PUSH ||
	       in->kind == K_POP || in->kind == K_LEAVE || in->kind == K_DIV || in->kind >= K_CALL ||
	       in->kind == K_JMP_IND;
}

/* Flags that code at the page offset may read before it sets them. */
static unsigned peek_live(struct xlat *x, int32_t target, unsigned depth)
{
	unsigned unknown = F_ALL, live = 0;
	struct xinsn in;

	if (target < 0 || target >= (int32_t)PAGE_SIZE)
		return F_ALL;
	for (unsigned n = 0; n < PEEK_INSNS && unknown; n++) {
		if (!decode_at(x, (unsigned)target, &in))
			break;
		note_range(x, in.off, in.zi.length);
		live |= in.f_read & unknown;
		if (in.kind == K_UNSUPPORTED || (x->exact && may_fault(&in)))
			break;
		unknown &= ~in.f_written;
		if (in.kind == K_JMP) {
			target = in.target;
			if (target < 0 || target >= (int32_t)PAGE_SIZE)
				break;
			continue;
		}
		if (in.kind == K_JCC || in.kind == K_JRCXZ || in.kind == K_LOOP) {
			if (!depth)
				break;
			live |= unknown & (peek_live(x, in.target, depth - 1) | peek_live(x, in.next, depth - 1));
			return live;
		}
		if (in.kind >= K_JMP)
			break;
		target = in.next;
	}
	return live | unknown;
}

static void liveness(struct xlat *x)
{
	struct xinsn *last = &x->insn[x->n - 1];
	unsigned live, first_vec = 0;

	switch (last->kind) {
	case K_JMP:
	case K_CALL: live = peek_live(x, last->target, PEEK_DEPTH); break;
	case K_STAC:
	case K_JMP_IND:
	case K_CALL_IND:
	case K_RET:
	case K_UNSUPPORTED: live = F_ALL; break;
	default: live = peek_live(x, last->next, PEEK_DEPTH); break;
	}
	/* Leaving through the table needs them all in the slot. */
	if ((last->kind == K_JMP || last->kind == K_CALL) && !x_linkable(x, last->target))
		live = F_ALL;
	while (first_vec < x->n && (x->vec_loaded || !x->insn[first_vec].vec))
		first_vec++;
	for (unsigned i = x->n; i-- > 0;) {
		struct xinsn *in = &x->insn[i];

		in->live_out = live;
		if (in->kind == K_JCC || in->kind == K_JRCXZ || in->kind == K_LOOP) {
			in->taken_live = peek_live(x, in->target, PEEK_DEPTH);
			live |= in->taken_live;
		}
		live = (live & ~in->f_written) | in->f_read;
		if (x->exact && (x_group_member(x, in) ? in->kind >= K_CALL || (in->vec && i == first_vec)
						       : may_fault(in) && (!in->vec || in->mem >= 0 || i == first_vec)))
			live = F_ALL;
		in->live_in = live;
	}
}

/* ---- the block ------------------------------------------------------------ */

static void decode_block(struct xlat *x, unsigned off, unsigned max)
{
	for (x->n = 0; x->n < max;) {
		struct xinsn *in = &x->insn[x->n];

		if (!decode_at(x, off, in))
			break;
		note_range(x, in->off, in->zi.length);
		x->n++;
		if (in->kind == K_UNSUPPORTED || in->kind >= K_JMP)
			break;
		/* STI before HLT and the like: the interrupt must not come between. */
		if (in->kind == K_STI && (!decode_at(x, in->next, in + 1) || (in + 1)->kind == K_UNSUPPORTED)) {
			in->kind = K_UNSUPPORTED;
			break;
		}
		/* A loop ends here; what follows is its own block. */
		if ((in->kind == K_JCC || in->kind == K_LOOP) && in->target <= in->off)
			break;
		off = in->next;
	}
}

/* `flags`: those that SLOT_FLAGS has right; the others are dead. */
static void x_poll_exit(struct xlat *x, unsigned flags)
{
	e_mov_imm32(&x->e, H_RCX, flags);
	x_side_exit(x, x->b->off, x->j->leave_poll);
}

/* Will the block's first use of the flags it finds be to keep them from an access? */
static bool wants_slot(const struct xlat *x)
{
	for (unsigned i = 0; i < x->n; i++) {
		const struct xinsn *in = &x->insn[i];

		if (in->f_read)
			return false;
		if (in->mem >= 0 || in->vec || in->kind == K_PUSH || in->kind == K_POP || in->kind >= K_JMP)
			return true;
		if (in->f_touched)
			return false;
	}
	return false;
}

static void emit_head(struct xlat *x, unsigned live)
{
	struct emit *e = &x->e;
	struct hmem req = h_gs(offsetof(struct soft_cpu, v.requests));
	unsigned brought = live & peek_live(x, x->b->off, PEEK_DEPTH); /* by chained arrivals */
	uint8_t *out, *in = NULL;
	bool kept = false;

	while ((uintptr_t)e->p & 15)
		e1(e, 0xcc);
	if (live && wants_slot(x)) {
		/* Chained arrivals keep the flags, then do as the others. */
		while (((uintptr_t)e->p + 8) & 15)
			e1(e, 0xcc);
		x->b->entry_a = x->b->entry_loop = e->p;
		x_flags_save(x);
		x->slot = F_ALL;
		x->host = 0;
		kept = true;
	} else if (live) {
		/* A loop comes back here with flags that it needs. */
		x->b->entry_loop = e->p;
		e_op_mem(e, 0, 0x8b, H_RCX, &req);
		e1(e, 0xe3); /* jrcxz */
		in = e->p;
		e1(e, 0);
		out = e_jmp(e);
		x_swap(x);
		e_patch(out, e->p);
		x_flags_save(x);
		x_poll_exit(x, brought);
		x_swap(x);
	}
	/* jit.c, block_close: its first eight bytes are replaced by one store. */
	while ((uintptr_t)e->p & 7)
		e1(e, 0xcc);
	x->b->entry_b = e->p + x->j->rx_delta;
	e_op_mem(e, 0, 0x83, 7, &req); /* cmp dword gs:[requests], 0 */
	e1(e, 0);
	out = e_jcc(e, CC_NE);
	x_swap(x);
	e_patch(out, e->p);
	x->b->poll = e->p;
	x_poll_exit(x, brought); /* an exit that was not linked yet had no more than these either */
	x_swap(x);
	if (x->b->page2 != JIT_NO_PAGE)
		x_check_next_page(x);
	if (kept)
		return;
	if (!live) {
		x->b->entry_a = x->b->entry_loop = x->b->entry_b - x->j->rx_delta;
		return;
	}
	x->slot = F_ALL;
	x_flags_to_host(x, F_ALL);
	x->b->entry_a = e->p;
	*in = (uint8_t)(e->p - (in + 1));
	/* Chained arrivals bring the flags in the host only. */
	x->slot = 0;
	x->host = F_ALL;
}

static bool lower_body(struct xlat *x)
{
	x->rax_group = -1;
	x->recipe.kind = RECIPE_NONE;
	for (x->i = 0; x->i < x->n; x->i++) {
		struct xinsn *in = &x->insn[x->i];

		if (unlikely(x->j->lockstep))
			x_mark(x);
		if (in->kind == K_UNSUPPORTED) {
			if (!x_exit_step(x, in)) {
				if (x->i == 0)
					return false;
				x_flags_to_slot(x, F_ALL);
				x_side_exit(x, in->off, x->j->leave[REASON_INTERP]);
			}
			return !x->failed;
		}
		x->site[x->nsites++] = (struct jit_site){.host = (uint32_t)(x->e.p - x->b->hot), .guest = in->off};
		if (x->loop_turns && x->i == x->n - 1) {
			x_loop_end(x, in);
			return !x->failed;
		}
		x_lower(x, in);
		if (x->failed)
			return false;
	}
	if (x->insn[x->n - 1].kind < K_JMP) {
		const struct xinsn *in = &x->insn[x->n - 1];

		x_exit_direct(x, in->next, in->live_out);
	}
	return !x->failed;
}

static void find_groups(struct xlat *x)
{
	x->ngroups = 0;
	for (unsigned i = 0; i < x->n; i++)
		x->insn[i].group = -1;
	x_groups_find(x);
	liveness(x);
}

/* The body for several turns, in front of the general one. */
static bool lower_loop(struct xlat *x, unsigned live)
{
	uint8_t *miss[LOOP_MISSES];
	unsigned n, slot;
	bool few = x_loop_can_count(x);

	x_flags_clobber(x, live);
	slot = x->slot;
	n = x_loop_head(x, false, miss);
	x_groups_find(x); /* of the other accesses */
	liveness(x);
	x->loop_live = x->insn[0].live_in & live;
	x_flags_to_host(x, x->loop_live);
	if (few) {
		const uint8_t *top = x->e.p;

		x_swap(x);
		for (unsigned i = 0; i < n; i++)
			e_patch(miss[i], x->e.p);
		x->host = 0;
		n = x_loop_head(x, true, miss);
		x_flags_to_host(x, x->loop_live);
		e_jmp_to(&x->e, top);
		x_swap(x);
	}
	x->host &= x->loop_live;
	x->slot = 0; /* not so in the second turn */
	x->loop_top = x->e.p;
	if (!lower_body(x))
		return false;
	for (unsigned i = 0; i < n; i++)
		e_patch(miss[i], x->e.p);
	x->loop_turns = 0;
	x->vec_loaded = false;
	x->host = 0;
	x->slot = slot;
	find_groups(x);
	return true;
}

static bool lower_block(struct xlat *x)
{
	unsigned live = x->insn[0].live_in;

	emit_head(x, live);
	if (x_loop_find(x) && !lower_loop(x, live))
		return false;
	return lower_body(x);
}

/* Keep where each instruction's code is. */
static void keep_sites(struct xlat *x)
{
	struct jit *j = x->j;
	size_t size = x->nsites * sizeof(struct jit_site);

	j->arena_used = ALIGN_UP(j->arena_used, (size_t)8);
	x->b->site = (struct jit_site *)(void *)(j->arena + j->arena_used);
	x->b->nsites = x->nsites; /* an unsupported last instruction has none */
	memcpy(x->b->site, x->site, size);
	j->arena_used += size;
	x->b->hot_end = x->e.p;
}

static void page_enter(struct jit *j, struct jit_block *b, struct jit_page_ref *r, uint64_t page)
{
	struct jit_page_ref **head = &j->page_hash[page % JIT_PAGE_HASH];

	*r = (struct jit_page_ref){.next = *head, .block = b, .page = page};
	*head = r;
}

/* False: the page's code was invalidated since the block's bytes were noted. */
static bool publish(struct jit *j, struct jit_block *b)
{
	uint64_t hash = jit_block_hash(b->page, b->off, b->key);
	unsigned n = (unsigned)(hash >> (64 - JIT_BLOCK_BITS));
	const uint32_t *gen = j->accel->cfg.mem->page_code_gen;

	pthread_mutex_lock(&j->link_lock);
	if (__atomic_load_n(&gen[b->page], __ATOMIC_SEQ_CST) != b->gen ||
	    (b->page2 != JIT_NO_PAGE && __atomic_load_n(&gen[b->page2], __ATOMIC_SEQ_CST) != b->gen2)) {
		pthread_mutex_unlock(&j->link_lock);
		return false;
	}
	b->all_next = j->all;
	__atomic_store_n(&j->all, b, __ATOMIC_RELEASE);
	page_enter(j, b, &b->ref[0], b->page);
	if (b->page2 != JIT_NO_PAGE)
		page_enter(j, b, &b->ref[1], b->page2);
	while (j->hash[n] > JIT_GONE)
		n = (n + 1) % JIT_BLOCK_HASH;
	j->hash_used += !j->hash[n];
	__atomic_store_n(&j->hash[n], jit_tagged(b, hash), __ATOMIC_RELEASE);
	pthread_mutex_unlock(&j->link_lock);
	return true;
}

/* The bytes we translated, protected against unnoticed writes, must still be what we saw. */
static bool note_code(struct xlat *x, const struct jit_place *at)
{
	const uint8_t *host = at->host;
	bool first = true;

	if (at->page2 != JIT_NO_PAGE) {
		unsigned here = (unsigned)PAGE_SIZE - at->off, there = x->insn[0].zi.length - here;

		x->b->gen = code_note(x->c, at->page, at->off, here);
		x->b->gen2 = code_note(x->c, at->page2, 0, there);
		return !memcmp(host + at->off, x->code + at->off, here) &&
		       !memcmp(at->host2, x->code + PAGE_SIZE, there);
	}

	for (unsigned i = 0; i < x->nranges; i++) {
		uint32_t gen = code_note(x->c, x->page, x->range[i].off, x->range[i].len);

		if (first)
			x->b->gen = gen;
		else if (gen != x->b->gen)
			return false;
		first = false;
		if (memcmp(host + x->range[i].off, x->code + x->range[i].off, x->range[i].len) != 0)
			return false;
	}
	return true;
}

struct jit_block *jit_translate(struct soft_cpu *c, struct jit *j, const struct jit_place *at)
{
	static struct xlat xs; /* under the lock; too large for a stack */
	static struct xinsn insn[JIT_MAX_INSNS + 1];
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct xlat *x = &xs;
	bool crosses = at->page2 != JIT_NO_PAGE, step = false;
	unsigned off = at->off, max = crosses ? 1 : JIT_MAX_INSNS;
	size_t arena = ALIGN_UP(j->arena_used, (size_t)64);
	struct jit_block *b = (struct jit_block *)(void *)(j->arena + arena);

	pthread_once(&once, x_classify_init);
	for (;;) {
		memset(x, 0, offsetof(struct xlat, code));
		x->insn = insn;
		x->c = c;
		x->j = j;
		x->b = b;
		x->page = at->page;
		x->host2 = at->host2;
		x->key = c->mode_key;
		x->single = at->key & JIT_KEY_SINGLE;
		x->mmu_index = c->mmu_index;
		x->w32 = !c->long64;
		x->exact = j->exact_flags;
		x->isa = interp_decode_info(c)->isa;
		x->e.p = j->hot;
		x->cold = j->cold;
		x->recipe.kind = RECIPE_NONE;
		j->arena_used = arena + sizeof(*b);
		*b = (struct jit_block){.page = at->page, .page2 = at->page2, .key = at->key, .off = (uint16_t)off};
		memcpy(x->code, at->host, PAGE_SIZE);
		if (crosses)
			memcpy(x->code + PAGE_SIZE, at->host2, JIT_INSN_MAX);
		x->limit = (unsigned)PAGE_SIZE + (crosses ? JIT_INSN_MAX : 0);
		decode_block(x, off, max);
		x->limit = PAGE_SIZE;
		if (!x->n)
			goto none;
		if (step) {
			x->n = 1;
			insn[0].kind = K_UNSUPPORTED;
			insn[0].f_read = insn[0].f_written = insn[0].f_touched = 0;
		}
		find_groups(x);
		b->hot = x->e.p;
		if (lower_block(x))
			break;
		/* The instruction that could not be done ends a shorter block, or is one that its handler runs. */
		if (!x->i && step)
			goto none;
		step = !x->i;
		max = MAX(x->i, 1u);
	}
	b->len = (uint16_t)(x->insn[x->n - 1].next - off);
	if (!note_code(x, at))
		goto none;
	keep_sites(x);
	if (!publish(j, b))
		goto none;
	jit_perf_block(j, b, c->s.rip, x->mmu_index == MMU_USER, j->cold, x->cold);
	j->hot = x->e.p;
	j->cold = x->cold;
	j->n_blocks++;
	j->n_insns += x->n;
	return b;
none:
	j->arena_used = arena;
	return NULL;
}
