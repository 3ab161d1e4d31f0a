/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Threads that map, fill, protect, execute and unmap memory beside each other,
 * take page faults on purpose, and fork. Prints one line that depends on nothing
 * but the arithmetic; a wrong byte or a wrong fault ends it with a message.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define ROUNDS	1500
#define PAGE	4096u

static __thread sigjmp_buf back;
static __thread volatile int expected;
static uint64_t result[THREADS];

static void fail(const char *what)
{
	fprintf(stderr, "churn: %s\n", what);
	_exit(1);
}

static void on_fault(int sig)
{
	if (!expected)
		fail("a fault that nobody asked for");
	siglongjmp(back, 1);
}

static uint64_t next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static int faults(volatile uint8_t *p)
{
	expected = 1;
	if (sigsetjmp(back, 1) == 0) {
		*p = 1;
		expected = 0;
		return 0;
	}
	expected = 0;
	return 1;
}

static void *churn(void *arg)
{
	unsigned self = (unsigned)(uintptr_t)arg;
	uint64_t s = 88172645463325252ull + self, h = self;

	for (unsigned r = 0; r < ROUNDS; r++) {
		unsigned pages = 1 + (unsigned)(next(&s) % 40);
		uint32_t value = (uint32_t)next(&s);
		uint8_t *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		int (*fn)(void);

		if (p == MAP_FAILED)
			fail("mmap");
		for (unsigned i = 0; i < pages; i++)
			memcpy(p + i * PAGE + 8 * (r % 500), &value, 4);
		if (mprotect(p, pages * PAGE, PROT_READ) || !faults(p + (pages - 1) * PAGE))
			fail("a read-only page was written");
		for (unsigned i = 0; i < pages; i++) {
			uint32_t got;

			memcpy(&got, p + i * PAGE + 8 * (r % 500), 4);
			if (got != value)
				fail("a page lost its contents");
			h = (h ^ got) * 0x9e3779b97f4a7c15ull;
		}
		/* Code that is made, run, changed and run again. */
		if (mprotect(p, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
			fail("mprotect");
		memcpy(&fn, &(void *){p}, sizeof(fn));
		for (unsigned k = 0; k < 3; k++) {
			uint32_t imm = value + k;

			p[0] = 0xb8; /* mov eax, imm; ret */
			memcpy(p + 1, &imm, 4);
			p[5] = 0xc3;
			if ((uint32_t)fn() != imm)
				fail("changed code was not what ran");
		}
		if (r % 100 == 0) {
			pid_t pid = fork();
			int status;

			if (pid == 0)
				_exit(p[1] == (uint8_t)(value + 2) ? 7 : 8);
			if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
			    WEXITSTATUS(status) != 7)
				fail("a child saw other memory");
		}
		if (munmap(p, pages * PAGE) ||
		    (r % 16 == 0 && mmap(p, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == p &&
		     (!faults(p) || munmap(p, PAGE))))
			fail("a page without rights was written");
	}
	result[self] = h;
	return NULL;
}

int main(void)
{
	struct sigaction sa = {.sa_handler = on_fault};
	pthread_t t[THREADS];
	uint64_t h = 0;

	sigaction(SIGSEGV, &sa, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, churn, (void *)(uintptr_t)i))
			fail("pthread_create");
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		h = h * 31 + result[i];
	}
	printf("RESULT churn %llx\n", (unsigned long long)h);
	return 0;
}
