/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tier 0 of the software CPU: runs blocks of decoded instructions. A block is
 * keyed by where its bytes are in RAM and by the decoding mode, so it survives
 * address space switches; a direct-mapped table by linear rip finds it without
 * a page walk while mmu_generation stands. Before each use the generation of
 * its page is compared (code.c); when it moved, equal bytes revive the block.
 *
 * An instruction that crosses a page is a block of its own with two pages.
 * Everything belongs to one vCPU thread; nothing here is locked.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "base/log.h"
#include "cpu/soft/insn.h"
#include "cpu/soft/ops.h"

#define BLOCK_INSNS	64	      /* longest block */
#define BLOCK_ARENA	(32ull * MIB) /* per vCPU; only touched parts cost memory */
#define BLOCK_HASH_BITS 16
#define LOOKUP_BITS	12
#define NO_PAGE		UINT64_MAX
/* What decoding depends on. */
#define DECODE_KEY (SOFT_KEY_LONG64 | SOFT_KEY_CODE32 | SOFT_KEY_STACK32 | SOFT_KEY_REAL)

struct block {
	struct block *hash_next;
	uint64_t page, page2; /* RAM page indexes; page2 for an instruction that crosses */
	uint32_t gen, gen2;
	uint32_t key;
	uint16_t off, len; /* bytes in the page */
	uint16_t n;
	struct insn insn[];
};

struct lookup {
	uint64_t lin, mmu_gen;
	struct block *b;
	uint32_t mode_key;
};

struct block_cache {
	struct decode_info info;
	uint8_t *arena;
	size_t used;
	bool flush;
	struct block *hash[1u << BLOCK_HASH_BITS];
	struct lookup lookup[1u << LOOKUP_BITS];
	struct insn scratch[BLOCK_INSNS];
};

const struct decode_info *interp_decode_info(const struct soft_cpu *c)
{
	return &c->blocks->info;
}

void interp_flush_blocks(struct soft_cpu *c)
{
	c->blocks->flush = true;
}

static void flush_now(struct soft_cpu *c)
{
	struct block_cache *bc = c->blocks;

	if (bc->flush)
		stub_flush(c);
	memset(bc->hash, 0, sizeof(bc->hash));
	memset(bc->lookup, 0, sizeof(bc->lookup));
	bc->used = 0;
	bc->flush = false;
}

static unsigned hash_of(uint64_t page, unsigned off, uint32_t key)
{
	uint64_t h = (page << PAGE_SHIFT | off) * 0x9e3779b97f4a7c15ull + key * 0xff51afd7ed558ccdull;

	return (unsigned)(h >> (64 - BLOCK_HASH_BITS));
}

static uint32_t page_gen(const struct soft_cpu *c, uint64_t page)
{
	return __atomic_load_n(&c->v.accel->cfg.mem->page_code_gen[page], __ATOMIC_ACQUIRE);
}

static bool block_current(const struct soft_cpu *c, const struct block *b)
{
	return page_gen(c, b->page) == b->gen && (likely(b->page2 == NO_PAGE) || page_gen(c, b->page2) == b->gen2);
}

/* ---- decoding ------------------------------------------------------------- */

/* The place a block is decoded from. */
struct source {
	uint64_t lin, page, page2;
	const uint8_t *host, *host2; /* first byte of the page */
	unsigned off;
	uint32_t gen, gen2;
};

static int decode_error(struct soft_cpu *c, int e)
{
	return e == -E2BIG ? soft_raise_code(c, EXC_GP, 0) : soft_raise(c, EXC_UD);
}

/* Both pages hold a part of the instruction at src->off; the second may fault. */
static int decode_crossing(struct soft_cpu *c, struct source *src, struct insn *out)
{
	uint64_t next = (src->lin | ~PAGE_MASK) + 1;
	unsigned first = (unsigned)PAGE_SIZE - src->off;
	uint8_t buf[15];
	int e;

	if (!c->long64)
		next = (uint32_t)next;
	if (mmu_fetch(c, next, &src->page2, &src->host2))
		return EXC_RAISED;
	if (!src->host2)
		return soft_raise(c, EXC_UD);
	src->gen2 = code_note(c, src->page2, 0, 15 - first);
	memcpy(buf, src->host + src->off, first);
	memcpy(buf + first, src->host2, 15 - first);
	e = insn_decode(c, buf, 15, c->s.rip, out);
	return e ? decode_error(c, e) : 0;
}

static void log_insn(const struct soft_cpu *c, const struct insn *i, uint64_t rip)
{
	ZydisDisassembledInstruction d;
	ZydisMachineMode m = c->long64			     ? ZYDIS_MACHINE_MODE_LONG_64
			     : c->mode_key & SOFT_KEY_CODE32 ? ZYDIS_MACHINE_MODE_LONG_COMPAT_32
							     : ZYDIS_MACHINE_MODE_LONG_COMPAT_16;

	if (ZYAN_SUCCESS(ZydisDisassembleIntel(m, rip, i->bytes, i->length, &d)))
		log_diag(LOG_IN_ASM, "CPU %u %#llx: %s", c->v.index, (unsigned long long)rip, d.text);
}

/* Fill the scratch list from src; returns the number of instructions or EXC_RAISED. */
static int decode_run(struct soft_cpu *c, struct source *src, unsigned *len)
{
	struct insn *list = c->blocks->scratch;
	unsigned off = src->off, noted = 0;
	uint64_t rip = c->s.rip;
	int n = 0;

	src->page2 = NO_PAGE;
	while (n < BLOCK_INSNS && off < PAGE_SIZE) {
		unsigned avail = MIN((unsigned)PAGE_SIZE - off, 15u);
		uint8_t buf[15];
		int e;

		/* Bytes are noted before they are read. Notes come in chunks: most instructions lie in noted ones. */
		if (!n || off + avail > noted) {
			uint32_t gen = code_note(c, src->page, off, avail);

			if (!n)
				src->gen = gen;
			else if (gen != src->gen)
				break; /* changed under us: what we have is checked against src->gen */
			noted = ALIGN_UP(off + avail, CODE_CHUNK);
		}
		memcpy(buf, src->host + off, avail);
		e = insn_decode(c, buf, avail, rip, &list[n]);
		if (e == -EAGAIN && !n) {
			if (decode_crossing(c, src, &list[0]))
				return EXC_RAISED;
			off = (unsigned)PAGE_SIZE;
			n = 1;
			break;
		}
		if (e) {
			if (!n)
				return decode_error(c, e);
			break;
		}
		if (log_on(LOG_IN_ASM))
			log_insn(c, &list[n], rip);
		off += list[n].length;
		rip += list[n].length;
		if (list[n++].ends)
			break;
	}
	*len = off - src->off;
	return n;
}

static struct block *block_make(struct soft_cpu *c, struct source *src, uint32_t key)
{
	struct block_cache *bc = c->blocks;
	struct block *b;
	unsigned len = 0, h;
	size_t size;
	int n = decode_run(c, src, &len);

	if (n < 0)
		return NULL;
	size = sizeof(*b) + (size_t)n * sizeof(struct insn);
	if (bc->used + size > BLOCK_ARENA)
		flush_now(c);
	b = (struct block *)(void *)(bc->arena + bc->used);
	bc->used += ALIGN_UP(size, (size_t)64);
	*b = (struct block){.page = src->page,
			    .page2 = src->page2,
			    .gen = src->gen,
			    .gen2 = src->gen2,
			    .key = key,
			    .off = (uint16_t)src->off,
			    .len = (uint16_t)len,
			    .n = (uint16_t)n};
	memcpy(b->insn, bc->scratch, (size_t)n * sizeof(struct insn));
	h = hash_of(src->page, src->off, key);
	b->hash_next = bc->hash[h];
	bc->hash[h] = b;
	c->n_blocks_decoded++;
	return b;
}

/* The page's code was written somewhere. If this block's bytes are as they were, it may live on. */
static bool block_revive(struct soft_cpu *c, struct block *b, const struct source *src)
{
	uint32_t gen = code_note(c, b->page, b->off, b->len);
	const uint8_t *p = src->host + b->off;

	if (b->page2 != NO_PAGE)
		return false;
	for (unsigned k = 0; k < b->n; k++) {
		if (memcmp(p, b->insn[k].bytes, b->insn[k].length) != 0)
			return false;
		p += b->insn[k].length;
	}
	b->gen = gen;
	return true;
}

static void block_unlink(struct block_cache *bc, struct block *b)
{
	struct block **pp = &bc->hash[hash_of(b->page, b->off, b->key)];

	while (*pp != b)
		pp = &(*pp)->hash_next;
	*pp = b->hash_next;
}

/* Find by physical place, or decode. NULL: exception raised. */
static struct block *block_find(struct soft_cpu *c, struct source *src)
{
	uint32_t key = c->mode_key & DECODE_KEY;
	struct block *b, *next;

	for (b = c->blocks->hash[hash_of(src->page, src->off, key)]; b; b = next) {
		next = b->hash_next;
		if (b->page != src->page || b->off != src->off || b->key != key)
			continue;
		if (b->page2 != NO_PAGE) {
			uint64_t lin2 = (src->lin | ~PAGE_MASK) + 1;

			if (mmu_fetch(c, c->long64 ? lin2 : (uint32_t)lin2, &src->page2, &src->host2))
				return NULL;
			if (src->page2 != b->page2) {
				/* The same first half with another second one: decode it afresh. */
				block_unlink(c->blocks, b);
				continue;
			}
		}
		if (block_current(c, b) || block_revive(c, b, src))
			return b;
		block_unlink(c->blocks, b);
	}
	return block_make(c, src, key);
}

static uint64_t linear_rip(const struct soft_cpu *c)
{
	return likely(c->long64) ? c->s.rip : (uint32_t)(c->s.seg[S_CS].base + c->s.rip);
}

static struct block *lookup_slow(struct soft_cpu *c, uint64_t lin, struct lookup *l)
{
	struct source src = {.lin = lin, .off = (unsigned)(lin & ~PAGE_MASK)};
	struct block *b;

	if (c->blocks->flush)
		flush_now(c);
	if (!c->long64 && c->s.rip > c->s.seg[S_CS].limit) {
		soft_raise_code(c, EXC_GP, 0);
		return NULL;
	}
	if (mmu_fetch(c, lin, &src.page, &src.host))
		return NULL;
	if (!src.host) {
		/* Device memory reads as ones: an undefined opcode. */
		soft_raise(c, EXC_UD);
		return NULL;
	}
	b = block_find(c, &src);
	if (log_on(LOG_EXEC) && b)
		log_diag(LOG_EXEC, "CPU %u block %#llx, %u instructions", c->v.index, (unsigned long long)lin, b->n);
	if (b)
		*l = (struct lookup){.lin = lin, .mmu_gen = mmu_generation(c), .b = b, .mode_key = c->mode_key};
	return b;
}

static inline struct block *block_lookup(struct soft_cpu *c)
{
	uint64_t lin = linear_rip(c);
	struct lookup *l = &c->blocks->lookup[(lin ^ lin >> LOOKUP_BITS) & ((1u << LOOKUP_BITS) - 1)];

	/* LOG_EXEC wants to see every block: never take the short way then. */
	if (likely(l->lin == lin && l->mode_key == c->mode_key && l->b && l->mmu_gen == mmu_generation(c) &&
		   block_current(c, l->b) && !c->blocks->flush && !log_on(LOG_EXEC))) {
		c->n_block_hits++;
		return l->b;
	}
	return lookup_slow(c, lin, l);
}

/* ---- running ---------------------------------------------------------------- */

/* EIP and IP wrap; done at block ends, where the next lookup would see it. */
static void wrap_rip(struct soft_cpu *c)
{
	if (unlikely(!c->long64))
		c->s.rip = (c->mode_key & SOFT_KEY_CODE32) ? (uint32_t)c->s.rip : c->s.rip & 0xffff;
}

/* Returns INSN_NEXT (block done), INSN_END or EXC_RAISED; *left counts down by instructions executed. */
static inline int block_run(struct soft_cpu *c, const struct block *b, unsigned max, unsigned *left)
{
	const struct insn *i = b->insn, *end = i + MIN((unsigned)b->n, max);
	int r = INSN_NEXT;

	while (i < end) {
		r = i->exec(c, i);
		if (likely(r == INSN_NEXT)) {
			c->s.rip += i->length;
			i++;
			if (unlikely(c->code_changed)) {
				c->code_changed = false;
				break;
			}
			continue;
		}
		if (r == INSN_JUMP) {
			i++;
			r = INSN_NEXT;
			goto out;
		}
		if (r == INSN_END) {
			c->s.rip += i->length;
			i++;
		}
		break;
	}
	wrap_rip(c);
out:
	max = (unsigned)(i - b->insn);
	c->n_insns += max;
	*left = *left > max ? *left - max : 0;
	if (unlikely(c->code_changed))
		c->code_changed = false;
	return r;
}

const struct insn *interp_peek(struct soft_cpu *c)
{
	const struct block *b = block_lookup(c);

	return b ? b->insn : NULL;
}

/*
 * Blocks are cached without regard to CS. Outside 64-bit mode: how many of the first `max` instructions end
 * within the code segment; for none #GP is raised.
 */
static unsigned within_limit(struct soft_cpu *c, const struct block *b, unsigned max)
{
	uint64_t end = c->s.rip, limit = c->s.seg[S_CS].limit;
	unsigned n;

	if (likely(c->long64 || end + 15ull * b->n <= limit))
		return max;
	for (n = 0; n < b->n && n < max; n++) {
		end += b->insn[n].length;
		if (end - 1 > limit)
			break;
	}
	if (!n)
		soft_raise_code(c, EXC_GP, 0);
	return n;
}

int interp_step(struct soft_cpu *c)
{
	unsigned left = 1;
	struct block *b = block_lookup(c);
	int r;

	if (!b || !within_limit(c, b, 1))
		return EXC_RAISED;
	r = block_run(c, b, 1, &left);
	return r == EXC_RAISED ? EXC_RAISED : 0;
}

int interp_count(struct soft_cpu *c, unsigned n, unsigned *done)
{
	unsigned left = n;
	int r = 0;

	while (left && r != EXC_RAISED) {
		struct block *b = block_lookup(c);

		c->s.int_shadow = false;
		r = b ? block_run(c, b, left, &left) : EXC_RAISED;
	}
	*done = n - left;
	return r == EXC_RAISED ? EXC_RAISED : 0;
}

int interp_run(struct soft_cpu *c, unsigned max_insns)
{
	unsigned left = max_insns;

	if (unlikely(c->s.int_shadow)) {
		c->s.int_shadow = false;
		return interp_step(c);
	}
	if (unlikely(c->mode_key & SOFT_KEY_TF))
		return interp_step(c);
	while (left && !soft_attention(c)) {
		struct block *b = block_lookup(c);
		unsigned max;
		int r;

		if (unlikely(!b))
			return EXC_RAISED;
		max = within_limit(c, b, BLOCK_INSNS);
		if (unlikely(!max))
			return EXC_RAISED;
		r = block_run(c, b, max, &left);
		if (unlikely(r != INSN_NEXT))
			return r == EXC_RAISED ? EXC_RAISED : 0;
	}
	return 0;
}

void interp_model_changed(struct soft_cpu *c)
{
	isa_init(c, c->blocks->info.isa);
	c->blocks->info.amd_branches = isa_vendor_is_amd(c);
	c->blocks->info.lzcnt = isa_has_lzcnt(c);
}

int interp_init(struct soft_cpu *c, struct err *err)
{
	struct block_cache *bc = mmap(NULL, sizeof(*bc), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int ret;

	if (bc == MAP_FAILED)
		return err_set_errno(err, -errno, "soft: no memory for the block cache");
	bc->arena = mmap(NULL, BLOCK_ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bc->arena == MAP_FAILED) {
		ret = err_set_errno(err, -errno, "soft: no memory for decoded blocks");
		munmap(bc, sizeof(*bc));
		return ret;
	}
	c->blocks = bc;
	interp_model_changed(c);
	ret = stub_init(c, err);
	if (ret)
		interp_fini(c);
	return ret;
}

void interp_fini(struct soft_cpu *c)
{
	if (!c->blocks)
		return;
	stub_fini(c);
	munmap(c->blocks->arena, BLOCK_ARENA);
	munmap(c->blocks, sizeof(*c->blocks));
	c->blocks = NULL;
}
