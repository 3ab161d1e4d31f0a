/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The programs of `./bench cpu`: one static binary that runs on the host and in a guest.
 *
 *   bench NAME [SCALE]   runs one program, prints "NAME seconds checksum"
 *   bench list           names them
 *
 * Each program prepares, then times only its own work on CLOCK_MONOTONIC, and
 * returns a checksum that must be the same wherever it runs.
 */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

static double started;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Preparation ends here; the clock starts. */
static void begin(void)
{
	started = now();
}

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_next(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

static void *must(void *p)
{
	if (!p) {
		fputs("bench: out of memory\n", stderr);
		exit(1);
	}
	return p;
}

/* ---- computing ---------------------------------------------------------- */

/* The first 32 bits of the fractional part of x: SHA-256's constants are those of roots of primes. */
static uint32_t fraction(long double x)
{
	return (uint32_t)((x - floorl(x)) * 4294967296.0L);
}

static uint32_t sha_k[64];

static uint32_t rotate(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

static void sha_block(uint32_t state[8], const uint32_t in[16])
{
	uint32_t w[64], s[8];

	memcpy(w, in, 64);
	for (int i = 16; i < 64; i++) {
		uint32_t x = w[i - 15], y = w[i - 2];

		w[i] = w[i - 16] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) + w[i - 7] +
		       (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
	}
	memcpy(s, state, sizeof s);
	for (int i = 0; i < 64; i++) {
		uint32_t e = s[4], a = s[0];
		uint32_t t1 = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & s[5]) ^ (~e & s[6])) +
			      sha_k[i] + w[i];
		uint32_t t2 =
		    (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));

		memmove(s + 1, s, 7 * sizeof s[0]);
		s[4] += t1;
		s[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		state[i] += s[i];
}

static uint64_t run_sha256(double scale)
{
	uint32_t state[8] = {1, 2, 3, 4, 5, 6, 7, 8}, in[16] = {0};
	long n = (long)(300000 * scale);

	for (int prime = 2, i = 0; i < 64; prime++) {
		int d = 2;

		while (d * d <= prime && prime % d)
			d++;
		if (d * d > prime)
			sha_k[i++] = fraction(cbrtl(prime));
	}
	begin();
	for (long i = 0; i < n; i++) {
		in[i & 15] ^= (uint32_t)i;
		sha_block(state, in);
	}
	return state[0];
}

static uint64_t run_chase(double scale)
{
	const uint32_t n = 4u << 20;
	uint32_t *next = must(malloc(n * sizeof *next)), p = 0;
	long steps = (long)(3000000 * scale);

	for (uint32_t i = 0; i < n; i++)
		next[i] = i;
	for (uint32_t i = n - 1; i > 0; i--) { /* Sattolo: one cycle through all */
		uint32_t j = (uint32_t)(random_next() % i), t = next[i];

		next[i] = next[j];
		next[j] = t;
	}
	begin();
	for (long i = 0; i < steps; i++)
		p = next[p];
	free(next);
	return p;
}

static uint64_t run_memcpy(double scale)
{
	const size_t size = 32u << 20;
	uint8_t *a = must(malloc(size)), *b = must(malloc(size));
	uint64_t sum;

	memset(a, 1, size);
	memset(b, 2, size);
	begin();
	for (int i = 0; i < (int)(60 * scale); i++) {
		memcpy(b, a, size);
		a[i] = b[i + 1] + 1;
	}
	sum = a[0] + b[9];
	free(a);
	free(b);
	return sum;
}

static uint64_t run_matrix(double scale)
{
	enum { N = 300 };
	static double a[N][N], b[N][N], c[N][N];

	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++) {
			a[i][j] = i * 0.5 + j;
			b[i][j] = i - j * 0.25;
		}
	begin();
	for (int r = 0; r < (int)(15 * scale); r++)
		for (int i = 0; i < N; i++)
			for (int k = 0; k < N; k++)
				for (int j = 0; j < N; j++)
					c[i][j] += a[i][k] * b[k][j];
	return (uint64_t)fabs(c[3][5]);
}

static uint64_t run_nbody(double scale)
{
	enum { BODIES = 5 };
	double x[BODIES][3], v[BODIES][3];

	for (int i = 0; i < BODIES; i++)
		for (int k = 0; k < 3; k++) {
			x[i][k] = (i + 1) * (k + 1.5) * 0.7;
			v[i][k] = 0.01 * (i - k);
		}
	begin();
	for (long step = 0; step < (long)(700000 * scale); step++) {
		for (int i = 0; i < BODIES; i++)
			for (int j = i + 1; j < BODIES; j++) {
				double d[3], r = 1e-3, g;

				for (int k = 0; k < 3; k++) {
					d[k] = x[i][k] - x[j][k];
					r += d[k] * d[k];
				}
				g = 1e-4 / (r * sqrt(r));
				for (int k = 0; k < 3; k++) {
					v[i][k] -= d[k] * g * (1 + j * 0.1);
					v[j][k] += d[k] * g * (1 + i * 0.1);
				}
			}
		for (int i = 0; i < BODIES; i++)
			for (int k = 0; k < 3; k++)
				x[i][k] += v[i][k] * 1e-3;
	}
	return (uint64_t)fabs(x[0][0] * 1e6);
}

/* A byte-code machine with a jump per instruction: what Python or Lua do to a branch predictor. */
static uint64_t run_bytecode(double scale)
{
	enum { OPS = 8, LENGTH = 4096 };
	static uint8_t code[LENGTH];
	uint64_t acc = 1, reg = 3, stack[16] = {0};
	unsigned sp = 0;
	long steps = (long)(12000000 * scale);

	for (int i = 0; i < LENGTH; i++)
		code[i] = (uint8_t)(random_next() >> 20) % OPS;
	begin();
	for (long i = 0, pc = 0; i < steps; i++, pc = (pc + 1) & (LENGTH - 1))
		switch (code[pc]) {
		case 0: acc += reg; break;
		case 1: acc ^= acc << 7; break;
		case 2: stack[sp++ & 15] = acc; break;
		case 3: reg = stack[--sp & 15] | 1; break;
		case 4: acc = acc * reg + 11; break;
		case 5:
			if (acc & 4)
				pc = (pc + 3) & (LENGTH - 1);
			break;
		case 6: acc ^= acc >> 9; break;
		default: reg += acc & 0xff; break;
		}
	return acc;
}

static int compare_u64(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t run_sort(double scale)
{
	const size_t n = (size_t)(700000 * scale);
	uint64_t *v = must(malloc(n * sizeof *v)), sum = 0;

	for (size_t i = 0; i < n; i++)
		v[i] = random_next();
	begin();
	qsort(v, n, sizeof *v, compare_u64);
	for (size_t i = 0; i < n; i += 1000)
		sum = sum * 31 + v[i];
	free(v);
	return sum;
}

static uint64_t run_zlib(double scale)
{
	const uLong size = (uLong)(6e6 * scale);
	uint8_t *text = must(malloc(size)), *packed = must(malloc(compressBound(size))), *back = must(malloc(size));
	uLong packed_size = compressBound(size), back_size = size, sum;

	for (uLong i = 0; i < size; i++)
		text[i] = (uint8_t)("etaoin shrdlu"[random_next() % 13] ^ (random_next() % 16 == 0));
	begin();
	compress2(packed, &packed_size, text, size, 6);
	uncompress(back, &back_size, packed, packed_size);
	sum = crc32(packed_size, back, (uInt)back_size);
	free(text);
	free(packed);
	free(back);
	return sum;
}

static uint64_t run_json(double scale)
{
	char *text = must(malloc(1 << 20));
	size_t n = 0;
	uint64_t sum = 0;

	n += (size_t)sprintf(text + n, "[");
	for (int i = 0; i < 4000; i++)
		n += (size_t)sprintf(
		    text + n,
		    "%s{\"id\": %d, \"name\": \"item %x\", \"price\": %d.25, \"tags\": [\"a\", \"b%d\", null, true]}",
		    i ? "," : "", i, i * 7, i * 3, i % 9);
	sprintf(text + n, "]");
	begin();
	for (int r = 0; r < (int)(15 * scale); r++) {
		json_t *root = must(json_loads(text, 0, NULL));
		char *out = must(json_dumps(root, JSON_COMPACT));

		sum += strlen(out) + json_array_size(root);
		free(out);
		json_decref(root);
	}
	free(text);
	return sum;
}

/* ---- the kernel's work ---------------------------------------------------- */

static uint64_t run_syscall(double scale)
{
	begin();
	for (long i = 0; i < (long)(400000 * scale); i++)
		syscall(SYS_getppid);
	return 0;
}

static uint64_t run_forkexec(double scale)
{
	int failed = 0;

	begin();
	for (long i = 0; i < (long)(120 * scale); i++) {
		int status;
		pid_t child = fork();

		if (!child) {
			execl("/proc/self/exe", "bench", "nothing", (char *)0);
			_exit(9);
		}
		failed += child < 0 || waitpid(child, &status, 0) < 0 || status;
	}
	return (uint64_t)failed;
}

static uint64_t run_faults(double scale)
{
	const size_t size = 16u << 20;

	begin();
	for (long i = 0; i < (long)(5 * scale); i++) {
		char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return 1;
		madvise(p, size, MADV_NOHUGEPAGE);
		for (size_t at = 0; at < size; at += 4096)
			p[at] = 1;
		munmap(p, size);
	}
	return 0;
}

static uint64_t run_pipe(double scale)
{
	const long n = (long)(12000 * scale);
	int there[2], back[2];
	char byte = 0;

	if (pipe(there) || pipe(back))
		return 1;
	begin();
	if (!fork()) {
		for (long i = 0; i < n; i++)
			if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
				_exit(1);
		_exit(0);
	}
	for (long i = 0; i < n; i++)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			return 1;
	wait(NULL);
	return 0;
}

static uint64_t run_files(double scale)
{
	char name[64];

	begin();
	for (long i = 0; i < (long)(6000 * scale); i++) {
		int fd;

		snprintf(name, sizeof name, "/tmp/kelvin-bench.%d.%ld", (int)getpid(), i & 63);
		fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
		if (fd < 0 || write(fd, name, sizeof name) != sizeof name)
			return 1;
		close(fd);
		unlink(name);
	}
	return 0;
}

static uint64_t run_nothing(double scale)
{
	begin();
	return 0;
}

static const struct program {
	const char *name;
	uint64_t (*run)(double scale);
} programs[] = {
    {"sha256", run_sha256}, {"chase", run_chase},	{"memcpy", run_memcpy},	    {"matrix", run_matrix},
    {"nbody", run_nbody},   {"bytecode", run_bytecode}, {"sort", run_sort},	    {"zlib", run_zlib},
    {"json", run_json},	    {"syscall", run_syscall},	{"forkexec", run_forkexec}, {"faults", run_faults},
    {"pipe", run_pipe},	    {"files", run_files},	{"nothing", run_nothing},
};

int main(int argc, char **argv)
{
	const size_t n = sizeof programs / sizeof programs[0];
	double scale = argc > 2 ? atof(argv[2]) : 1;

	for (size_t i = 0; argc > 1 && i < n; i++)
		if (!strcmp(argv[1], programs[i].name)) {
			uint64_t checksum = programs[i].run(scale);
			double seconds = now() - started;

			if (strcmp(argv[1], "nothing"))
				printf("%s %.6f %llx\n", argv[1], seconds, (unsigned long long)checksum);
			return 0;
		}
	for (size_t i = 0; i + 1 < n; i++)
		puts(programs[i].name);
	return argc > 1 && !strcmp(argv[1], "list") ? 0 : 2;
}
