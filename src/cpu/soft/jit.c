/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The translator's cache and its run loop; jit.h has the design.
 */
#include "cpu/soft/jit.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/log.h"

/* Reserved, not used: a guest that compiles with gcc fills about 100 MiB of code and 60 of blocks. */
#define CACHE_SIZE_DEFAULT (256 * MIB)
#define ARENA_SIZE	   (128 * MIB)
#define BLOCK_ROOM                                                                                                     \
	(sizeof(struct jit_block) + 64 + 6 * JIT_MAX_INSNS * sizeof(struct jit_link) +                                 \
	 2 * JIT_MAX_INSNS * sizeof(struct jit_site) + 2 * sizeof(struct jit_step))

/* ---- the code cache ------------------------------------------------------- */

/*
 * Two views of shared anonymous memory: its name in the process's maps is that of /dev/zero, by which perf knows code
 * that was made at run time and looks into its map (jit_perf.c). A memory file of ours it would try to read.
 */
static int cache_map(struct jit *j, struct err *err)
{
	int ret;

	j->rx = MAP_FAILED;
	j->rw = mmap(NULL, j->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (j->rw == MAP_FAILED)
		goto fail;
	/* An old size of 0: the pages get another address beside theirs. */
	j->rx = mremap(j->rw, 0, j->size, MREMAP_MAYMOVE);
	if (j->rx == MAP_FAILED || mprotect(j->rx, j->size, PROT_READ | PROT_EXEC))
		goto fail;
	j->rx_delta = j->rx - j->rw;
	return 0;
fail:
	ret = err_set_errno(err, -errno, "soft: cannot map %zu bytes for translated code", j->size);
	if (j->rw != MAP_FAILED)
		munmap(j->rw, j->size);
	if (j->rx != MAP_FAILED)
		munmap(j->rx, j->size);
	return ret;
}

static void cache_reset(struct jit *j)
{
	j->hot = j->stubs_end;
	j->cold = j->rw + j->size / 2;
	j->arena_used = 0;
	memset(j->hash, 0, sizeof(j->hash));
	j->hash_used = 0;
	memset(j->page_hash, 0, sizeof(j->page_hash));
	j->all = NULL;
}

static bool cache_full(const struct jit *j)
{
	return j->hot + JIT_ROOM > j->rw + j->size / 2 || j->cold + JIT_ROOM > j->rw + j->size ||
	       j->arena_used + BLOCK_ROOM > j->arena_size || j->hash_used > JIT_BLOCK_HASH / 4 * 3;
}

/* For the report. Lock held, or before vCPUs run. */
static void memory_note(const struct jit *j)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)j->accel;

	counter_set(&sa->jit_code, (uint64_t)(j->hot - j->rw) + (uint64_t)(j->cold - (j->rw + j->size / 2)));
	counter_set(&sa->jit_code_most, j->size);
	counter_set(&sa->jit_blocks, j->arena_used);
	counter_set(&sa->jit_blocks_most, j->arena_size);
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
	pthread_mutex_lock(&j->link_lock);
	cache_reset(j);
	pthread_mutex_unlock(&j->link_lock);
	j->flushes++;
	atomic_store(&j->flushing, false);
}

/* ---- links and invalidation ----------------------------------------------- */

static void link_point(struct jit_link *l, const uint8_t *target)
{
	int32_t d = (int32_t)(target - (l->patch + 4));

	__atomic_store_n((int32_t *)(void *)l->patch, d, __ATOMIC_RELEASE);
}

/* May a link to another page lead to this one? Once set, what its code compares with stays: another vCPU may be between
 * the compare and the jump. */
static bool link_host(const struct jit_link *l, uint64_t host)
{
	return l->host && (!*l->host || *l->host == host);
}

void jit_link(struct jit *j, struct jit_link *l, struct jit_block *to, const uint8_t *host)
{
	uint64_t at = (uint64_t)(uintptr_t)host;

	pthread_mutex_lock(&j->link_lock);
	if (!l->linked && !l->from->dead && !to->dead && (!host || link_host(l, at))) {
		l->linked = true;
		l->next = to->incoming;
		to->incoming = l;
		if (host) {
			link_point(l, to->entry_b - j->rx_delta);
			__atomic_store_n(l->host, at, __ATOMIC_RELEASE);
		} else {
			link_point(l, l->back ? to->entry_loop : to->entry_a);
		}
	}
	pthread_mutex_unlock(&j->link_lock);
}

/*
 * Tables of any vCPU may lead to the entry: from now on it leaves as for a request, and who arrives there forgets it.
 * The first instruction is longer than five bytes and aligned, so it is replaced at once.
 */
static void block_close(const struct jit *j, struct jit_block *b)
{
	uint8_t *entry = (uint8_t *)(uintptr_t)(b->entry_b - j->rx_delta);
	uint32_t d = (uint32_t)(b->poll - (entry + 5));
	uint64_t code;

	memcpy(&code, entry, sizeof(code));
	code = (code & ~0xffffffffffull) | (uint64_t)d << 8 | 0xe9;
	__atomic_store_n((uint64_t *)(void *)entry, code, __ATOMIC_RELEASE);
}

static void block_kill(struct jit *j, struct jit_block *b)
{
	uint64_t hash = jit_block_hash(b->page, b->off, b->key), tagged = jit_tagged(b, hash);
	unsigned n = (unsigned)(hash >> (64 - JIT_BLOCK_BITS));

	for (struct jit_link *l = b->incoming; l; l = l->next) {
		link_point(l, l->stub);
		l->linked = false;
	}
	b->incoming = NULL;
	__atomic_store_n(&b->dead, true, __ATOMIC_RELEASE);
	block_close(j, b);
	while (j->hash[n] && j->hash[n] != tagged)
		n = (n + 1) % JIT_BLOCK_HASH;
	if (j->hash[n])
		__atomic_store_n(&j->hash[n], JIT_GONE, __ATOMIC_RELEASE);
}

void jit_page_invalidated(struct accel *a, uint64_t page_index)
{
	struct jit *j = ((struct soft_accel *)(void *)a)->jit;
	struct jit_page_ref **pp;

	if (!j)
		return;
	pthread_mutex_lock(&j->link_lock);
	pp = &j->page_hash[page_index % JIT_PAGE_HASH];
	while (*pp) {
		struct jit_page_ref *r = *pp;

		if (r->page != page_index) {
			pp = &r->next;
			continue;
		}
		*pp = r->next;
		if (!r->block->dead)
			block_kill(j, r->block);
		j->n_invalidations++;
	}
	pthread_mutex_unlock(&j->link_lock);
}

/* Translate at rip, by this vCPU's thread. NULL: cannot. */
struct jit_block *jit_make(struct soft_cpu *c, struct jit *j, const struct jit_place *at, struct jit_heat *heat)
{
	struct jit_cpu *jc = c->jit;
	struct jit_block *b;

	/* Not inside while waiting for the lock: its holder may wait for us to be outside. */
	atomic_store(&jc->inside, false);
	pthread_mutex_lock(&j->lock);
	b = jit_find(j, at->page, at->page2, at->off, at->key);
	if (!b) {
		if (cache_full(j))
			cache_flush(j);
		b = jit_translate(c, j, at);
		if (b)
			c->n_jit_blocks++;
		else
			heat->count = HEAT_FAILED;
		memory_note(j);
	}
	atomic_store(&jc->inside, true); /* flushing is not set: we hold the lock */
	pthread_mutex_unlock(&j->lock);
	return b;
}

/* ---- life ----------------------------------------------------------------- */

bool jit_enabled(const struct accel *a)
{
	return ((const struct soft_accel *)(const void *)a)->jit != NULL;
}

/* What translated code itself uses. */
static bool host_suitable(void)
{
	return __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("avx");
}

/* x87, SSE, AVX, AVX-512; not PKRU, which is about host memory. */
#define XMASK 0xe7u

static void jit_free(struct jit *j)
{
	jit_perf_close(j);
	munmap(j->rw, j->size);
	munmap(j->rx, j->size);
	if (j->arena != MAP_FAILED)
		munmap(j->arena, j->arena_size);
	pthread_mutex_destroy(&j->lock);
	pthread_mutex_destroy(&j->link_lock);
	free(j);
}

int jit_init(struct accel *a, struct opts *options, struct err *err)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)a;
	struct jit *j;
	int ret;

	if (sa->lockstep && a->cfg.ncpus != 1)
		return err_set(err, -EINVAL,
			       "accel soft: lockstep=on compares one CPU's steps; it needs -smp 1, not %u",
			       a->cfg.ncpus);
	if (!sa->jit_on)
		return 0;
	if (!host_suitable() && sa->lockstep)
		return err_set(
		    err, -ENOTSUP,
		    "accel soft: lockstep=on needs the translator, which needs BMI2 and AVX of the host's CPU");
	if (!host_suitable()) {
		log_info("soft: this host CPU lacks BMI2 or AVX, which the translator needs: interpreting");
		return 0;
	}
	j = calloc(1, sizeof(*j));
	if (!j)
		return err_set(err, -ENOMEM, "soft: no memory for the translator");
	j->accel = a;
	j->size = CACHE_SIZE_DEFAULT;
	j->exact_flags = sa->jit_exact_flags;
	j->threshold = sa->jit_always || sa->lockstep ? 1 : sa->jit_threshold;
	j->lockstep = sa->lockstep;
	j->arena_size = ARENA_SIZE;
	pthread_mutex_init(&j->lock, NULL);
	pthread_mutex_init(&j->link_lock, NULL);
	ret = cache_map(j, err);
	if (ret) {
		free(j);
		return ret;
	}
	j->arena =
	    mmap(NULL, j->arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (j->arena == MAP_FAILED) {
		ret = err_set_errno(err, -errno, "soft: no memory for the translator's blocks");
		goto fail;
	}
	if (sa->perf_map) {
		ret = jit_perf_open(j, err);
		if (ret)
			goto fail;
	}
	jit_make_stubs(j);
	cache_reset(j);
	memory_note(j);
	jit_signals_install(j);
	sa->jit = j;
	return 0;
fail:
	jit_free(j);
	return ret;
}

void jit_fini(struct accel *a)
{
	struct soft_accel *sa = (struct soft_accel *)(void *)a;
	struct jit *j = sa->jit;

	if (!j)
		return;
	jit_signals_remove(j);
	jit_free(j);
	sa->jit = NULL;
}

int jit_cpu_init(struct soft_cpu *c, struct err *err)
{
	struct jit_cpu *jc = calloc(1, sizeof(*jc));

	if (!jc)
		return err_set(err, -ENOMEM, "soft: no memory for the translator");
	jc->decoder = *insn_decoder64(c);
	jc->decoder32 = *insn_decoder32(c);
	for (unsigned i = 0; i < MMU_MODES; i++) {
		c->jx.jump_key[i] = JIT_NO_KEY;
	}
	c->jx.self = c;
	c->jx.xmask = soft_host_xcr0() & XMASK;
	c->jit = jc;
	return 0;
}

void jit_cpu_fini(struct soft_cpu *c)
{
	free(c->jit);
	c->jit = NULL;
}
