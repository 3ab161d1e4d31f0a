/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The translator's cache and its run loop; jit.h has the design.
 */
#include "cpu/soft/jit.h"

#include <asm/prctl.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/log.h"

#define CACHE_SIZE_DEFAULT (64 * MIB)
#define HEAT_FAILED	   200 /* could not be translated; counts on to 255, then is tried again */
#define BLOCK_ROOM	   (sizeof(struct jit_block) + 64 + 3 * JIT_MAX_INSNS * sizeof(struct jit_link))

/* ---- the code cache ------------------------------------------------------- */

static int cache_map(struct jit *j, struct err *err)
{
	int fd = memfd_create("kelvin-jit", MFD_CLOEXEC), ret;

	if (fd < 0)
		return err_set_errno(err, -errno, "soft: no memory file for translated code");
	if (ftruncate(fd, (off_t)j->size))
		goto fail;
	j->rw = mmap(NULL, j->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	j->rx = mmap(NULL, j->size, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	if (j->rw == MAP_FAILED || j->rx == MAP_FAILED)
		goto fail;
	close(fd);
	j->rx_delta = j->rx - j->rw;
	return 0;
fail:
	ret = err_set_errno(err, -errno, "soft: cannot map %zu bytes for translated code", j->size);
	close(fd);
	return ret;
}

static void cache_reset(struct jit *j)
{
	j->hot = j->stubs_end;
	j->cold = j->rw + j->size / 2;
	j->arena_used = 0;
	memset(j->hash, 0, sizeof(j->hash));
	memset(j->page_hash, 0, sizeof(j->page_hash));
}

static bool cache_full(const struct jit *j)
{
	return j->hot + JIT_ROOM > j->rw + j->size / 2 || j->cold + JIT_ROOM > j->rw + j->size ||
	       j->arena_used + BLOCK_ROOM > j->arena_size;
}

/*
 * Empty the cache. Lock held; the caller is not `inside`. The others see
 * `flushing` before they go inside, or are seen inside and leave at their next
 * poll.
 */
static void cache_flush(struct jit *j)
{
	struct accel *a = j->accel;

	atomic_store(&j->flushing, true);
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		struct vcpu *v = __atomic_load_n(&a->vcpu[i], __ATOMIC_ACQUIRE);
		struct jit_cpu *jc = v ? soft_cpu_of(v)->jit : NULL;

		while (jc && atomic_load(&jc->inside)) {
			atomic_fetch_or(&v->requests, VCPU_REQ_CODE);
			sched_yield();
		}
	}
	cache_reset(j);
	j->flushes++;
	atomic_fetch_add(&j->inval_seq, 1);
	atomic_store(&j->flushing, false);
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

/* ---- links and invalidation ----------------------------------------------- */

static void link_point(struct jit_link *l, const uint8_t *target)
{
	int32_t d = (int32_t)(target - (l->patch + 4));

	__atomic_store_n((int32_t *)(void *)l->patch, d, __ATOMIC_RELEASE);
}

static void block_link(struct jit *j, struct jit_link *l, struct jit_block *to)
{
	pthread_mutex_lock(&j->lock);
	if (!l->linked && !l->from->dead && !to->dead) {
		l->linked = true;
		l->next = to->incoming;
		to->incoming = l;
		link_point(l, to->entry_a);
	}
	pthread_mutex_unlock(&j->lock);
}

static void block_kill(struct jit *j, struct jit_block *b)
{
	struct jit_block **pp = &j->hash[jit_block_hash(b->page, b->off, b->key)];

	for (struct jit_link *l = b->incoming; l; l = l->next) {
		link_point(l, l->stub);
		l->linked = false;
	}
	b->incoming = NULL;
	__atomic_store_n(&b->dead, true, __ATOMIC_RELEASE);
	while (*pp && *pp != b)
		pp = &(*pp)->hash_next;
	if (*pp)
		__atomic_store_n(pp, b->hash_next, __ATOMIC_RELEASE);
}

void jit_page_invalidated(struct accel *a, uint64_t page_index)
{
	struct jit *j = ((struct soft_accel *)(void *)a)->jit;
	struct jit_block **pp;
	bool any = false;

	if (!j)
		return;
	pthread_mutex_lock(&j->lock);
	pp = &j->page_hash[page_index % JIT_PAGE_HASH];
	while (*pp) {
		struct jit_block *b = *pp;

		if (b->page != page_index) {
			pp = &b->page_next;
			continue;
		}
		*pp = b->page_next;
		block_kill(j, b);
		any = true;
	}
	if (any) {
		j->n_invalidations++;
		atomic_fetch_add(&j->inval_seq, 1);
	}
	pthread_mutex_unlock(&j->lock);
	if (!any)
		return;
	/* The others forget their tables at their next poll; until then they run what they ran. */
	for (unsigned i = 0; i < a->cfg.ncpus; i++) {
		struct vcpu *v = __atomic_load_n(&a->vcpu[i], __ATOMIC_ACQUIRE);

		if (v)
			atomic_fetch_or(&v->requests, VCPU_REQ_CODE);
	}
}

/* ---- the run loop --------------------------------------------------------- */

static void table_clear(struct soft_cpu *c, unsigned idx)
{
	for (unsigned i = 0; i < ARRAY_SIZE(c->jit_jump[idx]); i++)
		c->jit_jump[idx][i].va = JIT_NO_VA(i);
}

/* Tables hold for one state of the mappings and of the cache. */
static void tables_check(struct soft_cpu *c, struct jit *j, struct jit_cpu *jc)
{
	uint64_t gen = mmu_generation(c), seq = atomic_load_explicit(&j->inval_seq, memory_order_acquire);
	unsigned idx = c->mmu_index;

	if (unlikely(gen != jc->generation || seq != jc->inval_seq)) {
		jc->generation = gen;
		jc->inval_seq = seq;
		for (unsigned i = 0; i < MMU_MODES; i++)
			jc->jump_key[i] = JIT_NO_KEY;
	}
	if (unlikely(jc->jump_key[idx] != c->mode_key)) {
		table_clear(c, idx);
		jc->jump_key[idx] = c->mode_key;
	}
}

static struct jit_jump *table_entry(struct soft_cpu *c, uint64_t va)
{
	return &c->jit_jump[c->mmu_index][(va ^ va >> JIT_JUMP_SHIFT) & ((1u << JIT_JUMP_BITS) - 1)];
}

/* Has rip been reached often enough? */
static struct jit_heat *heat_of(struct soft_cpu *c, uint64_t rip)
{
	uint64_t h = (rip ^ (uint64_t)c->mode_key << 50) * 0x9e3779b97f4a7c15ull;
	struct jit_heat *e = &c->jit->heat[h % JIT_HEAT_SIZE];

	if (e->tag != h >> 40) {
		e->tag = (uint32_t)(h >> 40);
		e->count = 0;
	}
	return e;
}

static bool translatable(const struct soft_cpu *c)
{
	return (c->mode_key & (SOFT_KEY_LONG64 | SOFT_KEY_TF | SOFT_KEY_REAL)) == SOFT_KEY_LONG64 && !c->s.int_shadow &&
	       !(c->s.dr[7] & 0xff);
}

/* The block at rip, found or made. NULL: *r says what to do instead. */
static struct jit_block *block_at(struct soft_cpu *c, struct jit *j, enum jit_exit *r)
{
	struct jit_cpu *jc = c->jit;
	const uint8_t *host;
	uint64_t page;
	unsigned off = (unsigned)(c->s.rip & (PAGE_SIZE - 1));
	struct jit_block *b;
	struct jit_heat *heat;

	*r = JIT_INTERP;
	jc->n_lookups++;
	if (mmu_fetch(c, c->s.rip, &page, &host)) {
		*r = JIT_EXC;
		return NULL;
	}
	if (!host)
		return NULL;
	b = jit_find(j, page, off, c->mode_key);
	if (b)
		return b;
	heat = heat_of(c, c->s.rip);
	if (heat->count < 255)
		heat->count++;
	else
		heat->count = 0;
	if (heat->count >= HEAT_FAILED || heat->count < j->threshold)
		return NULL;
	inside_leave(jc);
	pthread_mutex_lock(&j->lock);
	b = jit_find(j, page, off, c->mode_key);
	if (!b) {
		if (cache_full(j))
			cache_flush(j);
		b = jit_translate(c, j, page, host, off);
		if (b)
			c->n_jit_blocks++;
		else
			heat->count = HEAT_FAILED;
	}
	atomic_store(&jc->inside, true); /* flushing is not set: we hold the lock */
	pthread_mutex_unlock(&j->lock);
	tables_check(c, j, jc);
	return b;
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

/* Leave or go on after translated code stopped; *r when leaving. */
static bool after_code(struct soft_cpu *c, struct jit *j, enum jit_exit *r)
{
	struct jit_cpu *jc = c->jit;
	uint32_t reason = c->jx.reason;

	jc->n_reason[reason]++;
	c->n_jit_exits++;
	switch (reason) {
	case REASON_LOOKUP:
	case REASON_MODE: return false;
	case REASON_LINK: {
		struct jit_link *l = (struct jit_link *)(uintptr_t)c->jx.arg;
		struct jit_block *to = jit_find(j, l->from->page, l->off, l->from->key);

		if (to)
			block_link(j, l, to);
		return false;
	}
	case REASON_POLL: *r = JIT_ATTENTION; return true;
	case REASON_FAULT: *r = JIT_EXC; return true;
	default: *r = JIT_INTERP; return true;
	}
}

enum jit_exit jit_run(struct soft_cpu *c)
{
	struct jit *j = jit_of(c);
	struct jit_cpu *jc = c->jit;
	enum jit_exit r = JIT_INTERP;

	set_gs(c);
	inside_enter(j, jc);
	for (;;) {
		struct jit_jump *e;

		if (unlikely(soft_attention(c))) {
			r = JIT_ATTENTION;
			break;
		}
		if (unlikely(!translatable(c))) {
			r = JIT_INTERP;
			break;
		}
		tables_check(c, j, jc);
		e = table_entry(c, c->s.rip);
		if (e->va != c->s.rip) {
			struct jit_block *b = block_at(c, j, &r);

			if (!b)
				break;
			e->va = c->s.rip;
			e->code = b->entry_b;
		}
		run_code(c, j, e->code);
		if (after_code(c, j, &r))
			break;
	}
	inside_leave(jc);
	return r;
}

/* ---- life ----------------------------------------------------------------- */

bool jit_enabled(const struct accel *a)
{
	return ((const struct soft_accel *)(const void *)a)->jit != NULL;
}

/* What translated code itself uses. */
static bool host_suitable(void)
{
	return __builtin_cpu_supports("bmi2");
}

int jit_init(struct accel *a, struct opts *options, struct err *err)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)a;
	struct jit *j;
	int ret;

	if (!sa->jit_on)
		return 0;
	if (!host_suitable()) {
		log_info("soft: this host CPU has no BMI2, which the translator needs: interpreting");
		return 0;
	}
	j = calloc(1, sizeof(*j));
	if (!j)
		return err_set(err, -ENOMEM, "soft: no memory for the translator");
	j->accel = a;
	j->size = CACHE_SIZE_DEFAULT;
	j->threshold = sa->jit_always ? 1 : sa->jit_threshold;
	j->arena_size = CACHE_SIZE_DEFAULT / 4;
	pthread_mutex_init(&j->lock, NULL);
	ret = cache_map(j, err);
	if (ret) {
		free(j);
		return ret;
	}
	j->arena =
	    mmap(NULL, j->arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (j->arena == MAP_FAILED) {
		ret = err_set_errno(err, -errno, "soft: no memory for the translator's blocks");
		munmap(j->rw, j->size);
		munmap(j->rx, j->size);
		free(j);
		return ret;
	}
	jit_make_stubs(j);
	cache_reset(j);
	sa->jit = j;
	return 0;
}

void jit_fini(struct accel *a)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)a;
	struct jit *j = sa->jit;

	if (!j)
		return;
	munmap(j->rw, j->size);
	munmap(j->rx, j->size);
	munmap(j->arena, j->arena_size);
	pthread_mutex_destroy(&j->lock);
	free(j);
	sa->jit = NULL;
}

int jit_cpu_init(struct soft_cpu *c, struct err *err)
{
	struct jit_cpu *jc = calloc(1, sizeof(*jc));

	if (!jc)
		return err_set(err, -ENOMEM, "soft: no memory for the translator");
	ZydisDecoderInit(&jc->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (unsigned i = 0; i < MMU_MODES; i++)
		jc->jump_key[i] = JIT_NO_KEY;
	c->jx.self = c;
	c->jit = jc;
	return 0;
}

void jit_cpu_fini(struct soft_cpu *c)
{
	free(c->jit);
	c->jit = NULL;
}
