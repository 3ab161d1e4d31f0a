/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * churn ROUNDS: what makes a TLB, and whatever else remembers mappings, go stale, from several threads of one process
 * at a time: fork with copy on write, mprotect, munmap and mmap at the same address, code that is written and run
 * through two mappings, discarded pages. Each round checks what it sees. Prints "churn 0.000000 0" or the first error.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE  4096u
#define PAGES 24u

static int rounds;
static _Thread_local sigjmp_buf fault;
static _Thread_local volatile sig_atomic_t expecting;
static _Atomic uint64_t *shared; /* a shared page of all processes */

static void fail(const char *what, uint64_t got, uint64_t want)
{
	printf("FAILED %s: %llx, not %llx\n", what, (unsigned long long)got, (unsigned long long)want);
	fflush(stdout);
	_exit(1);
}

static void on_segv(int sig)
{
	if (!expecting)
		fail("a signal", (uint64_t)sig, 0);
	siglongjmp(fault, 1);
}

static uint8_t *map_at(void *at, size_t size, int prot, int flags, int fd)
{
	uint8_t *p = mmap(at, size, prot, flags | (at ? MAP_FIXED : 0), fd, 0);

	if (p == MAP_FAILED)
		fail("mmap", 0, 1);
	return p;
}

/* Does the store fault? */
static int store_faults(volatile uint8_t *p, uint8_t v)
{
	expecting = 1;
	if (sigsetjmp(fault, 1)) {
		expecting = 0;
		return 1;
	}
	*p = v;
	expecting = 0;
	return 0;
}

static void *forks(void *arg)
{
	uint8_t *p = map_at(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	for (int r = 0; r < rounds; r++) {
		int status;
		pid_t pid;

		for (unsigned i = 0; i < PAGES; i++)
			*(uint64_t *)(void *)(p + i * PAGE) = (uint64_t)r * PAGES + i;
		pid = fork();
		if (pid < 0)
			fail("fork", 0, 1);
		for (unsigned i = 0; i < PAGES; i++) {
			volatile uint64_t *v = (volatile uint64_t *)(void *)(p + i * PAGE);

			if (*v != (uint64_t)r * PAGES + i)
				fail(pid ? "parent's page" : "child's page", *v, (uint64_t)r * PAGES + i);
			*v = pid ? 1 : 2;
			atomic_fetch_add(shared, 1);
		}
		for (unsigned i = 0; i < PAGES; i++) {
			if (*(volatile uint64_t *)(void *)(p + i * PAGE) != (pid ? 1u : 2u))
				fail("a copied page", *(volatile uint64_t *)(void *)(p + i * PAGE), pid ? 1 : 2);
		}
		if (!pid)
			_exit(0);
		if (waitpid(pid, &status, 0) != pid || status)
			fail("child", (uint64_t)status, 0);
	}
	return arg;
}

static void *rights(void *arg)
{
	uint8_t *p = map_at(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	for (int r = 0; r < rounds; r++) {
		unsigned k = (unsigned)r % PAGES;

		memset(p, r & 0xff, PAGES * PAGE);
		if (mprotect(p + k * PAGE, PAGE, PROT_READ))
			fail("mprotect", 0, 1);
		if (!store_faults(p + k * PAGE, 1))
			fail("a store to a read-only page", 0, 1);
		if (p[k * PAGE] != (r & 0xff))
			fail("a read-only page", p[k * PAGE], (uint64_t)(r & 0xff));
		if (mprotect(p + k * PAGE, PAGE, PROT_READ | PROT_WRITE) || store_faults(p + k * PAGE, 7))
			fail("a store to a page made writable", 1, 0);
		if (r % 3 == 0 && madvise(p, PAGES / 2 * PAGE, MADV_DONTNEED))
			fail("madvise", 0, 1);
		if (r % 3 == 0 && (p[0] || p[5 * PAGE + 9]))
			fail("a discarded page", p[0], 0);
		if (r % 2) {
			if (munmap(p, PAGES * PAGE))
				fail("munmap", 0, 1);
			if (r % 4 == 1 && !store_faults(p + PAGE, 1))
				fail("a store to no page", 0, 1);
			map_at(p, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
			for (unsigned i = 0; i < PAGES; i++) {
				if (p[i * PAGE])
					fail("a fresh page", p[i * PAGE], 0);
			}
		}
	}
	return arg;
}

/* mov eax, value; ret: written through one mapping, run through another; and in place, between two mprotect. */
static void *writes_code(void *arg)
{
	static const uint8_t code[] = {0xb8, 0, 0, 0, 0, 0xc3};
	int fd = memfd_create("code", 0);
	uint8_t *w, *x, *own = map_at(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	if (fd < 0 || ftruncate(fd, PAGE))
		fail("memfd", 0, 1);
	w = map_at(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	x = map_at(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd);
	for (int r = 0; r < rounds * 4; r++) {
		uint32_t v = (uint32_t)r * 2654435761u, got;

		memcpy(w + r % 2 * 64, code, sizeof(code));
		memcpy(w + r % 2 * 64 + 1, &v, 4);
		got = ((uint32_t(*)(void))(void *)(x + r % 2 * 64))();
		if (got != v)
			fail("code written beside", got, v);
		if (r % 4)
			continue;
		if (mprotect(own, PAGE, PROT_READ | PROT_WRITE))
			fail("mprotect", 0, 1);
		memcpy(own, code, sizeof(code));
		memcpy(own + 1, &v, 4);
		if (mprotect(own, PAGE, PROT_READ | PROT_EXEC))
			fail("mprotect", 0, 2);
		got = ((uint32_t(*)(void))(void *)own)();
		if (got != v)
			fail("code written in place", got, v);
	}
	return arg;
}

/* Counts without locks of the kernel; its vector state must survive everything. */
static void *computes(void *arg)
{
	double x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	uint64_t h = 1;

	for (long i = 0; i < rounds * 20000l; i++) {
		h = h * 6364136223846793005ull + 1442695040888963407ull;
		x[i % 8] = x[i % 8] * 0.5 + (double)(h >> 60);
		if (i % 512 == 0)
			atomic_fetch_add(shared + 1, 1);
	}
	for (int i = 0; i < 8; i++)
		if (!(x[i] >= 0 && x[i] <= 32))
			fail("a sum", (uint64_t)i, 99);
	return arg;
}

int main(int argc, char **argv)
{
	void *(*const job[])(void *) = {forks, rights, writes_code, computes, rights};
	enum { JOBS = sizeof(job) / sizeof(job[0]) };
	struct sigaction sa = {.sa_handler = on_segv};
	pthread_t t[JOBS];

	rounds = argc > 1 ? atoi(argv[1]) : 100;
	sigaction(SIGSEGV, &sa, NULL);
	shared = (void *)map_at(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	for (int i = 0; i < JOBS; i++)
		pthread_create(&t[i], NULL, job[i], NULL);
	for (int i = 0; i < JOBS; i++)
		pthread_join(t[i], NULL);
	if (shared[0] != (uint64_t)rounds * PAGES * 2)
		fail("the count of stores", shared[0], (uint64_t)rounds * PAGES * 2);
	if (shared[1] != ((uint64_t)rounds * 20000 + 511) / 512)
		fail("the count of turns", shared[1], ((uint64_t)rounds * 20000 + 511) / 512);
	printf("churn 0.000000 0\n");
	return 0;
}
