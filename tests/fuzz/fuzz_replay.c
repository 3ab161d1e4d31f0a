// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Runs a libFuzzer target without libFuzzer, in any build: fuzz_NAME SEEDS [ROUNDS [SEED]]. SEEDS has one input per
 * line in hexadecimal. Each is run as it is, then ROUNDS more that are made of them by chance: changed bytes, cut ends,
 * the end of another. A sample for ./check; tests/fuzz/libfuzzer.sh searches for hours.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SEEDS 4096
#define MAX_INPUT 70000

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	uint8_t *data;
	size_t size;
} seeds[MAX_SEEDS];
static unsigned nseeds;
static uint64_t state;
static uint8_t input[MAX_INPUT];

static uint32_t rnd(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((state >> 33) % below);
}

static bool read_seeds(const char *name)
{
	static char line[2 * MAX_INPUT + 2];
	FILE *f = fopen(name, "r");

	if (!f)
		return false;
	while (nseeds < MAX_SEEDS && fgets(line, sizeof(line), f)) {
		const bool text = !strncmp(line, "= ", 2);
		const size_t n = text ? strcspn(line + 2, "\n") : strspn(line, "0123456789abcdef") / 2;
		unsigned byte;

		if (!n)
			continue;
		seeds[nseeds].data = malloc(n);
		seeds[nseeds].size = n;
		if (text)
			memcpy(seeds[nseeds].data, line + 2, n);
		for (size_t i = 0; !text && i < n && sscanf(line + 2 * i, "%2x", &byte) == 1; i++)
			seeds[nseeds].data[i] = (uint8_t)byte;
		nseeds++;
	}
	fclose(f);
	return nseeds != 0;
}

static size_t mutate(void)
{
	static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff};
	const unsigned a = rnd(nseeds), b = rnd(nseeds);
	size_t n = seeds[a].size;

	memcpy(input, seeds[a].data, n);
	if (rnd(3) == 0) {
		const size_t at = rnd((uint32_t)n + 1), from = rnd((uint32_t)seeds[b].size);
		const size_t more = seeds[b].size - from;

		n = at + (more < MAX_INPUT - at ? more : MAX_INPUT - at);
		memcpy(input + at, seeds[b].data + from, n - at);
	}
	for (uint32_t k = 1 + rnd(8); k-- && n;)
		switch (rnd(4)) {
		case 0: input[rnd((uint32_t)n)] = odd[rnd(sizeof(odd))]; break;
		case 1: input[rnd((uint32_t)n)] ^= (uint8_t)(1u << rnd(8)); break;
		case 2: input[rnd((uint32_t)n)] = (uint8_t)rnd(256); break;
		default: n = rnd(4) ? n : 1 + rnd((uint32_t)n); break;
		}
	return n;
}

int main(int argc, char **argv)
{
	const unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 0;

	if (argc < 2 || !read_seeds(argv[1])) {
		fprintf(stderr, "usage: %s SEEDS [ROUNDS [SEED]]\n", argv[0]);
		return 2;
	}
	state = argc > 3 ? strtoull(argv[3], NULL, 0) : 1;
	if (LLVMFuzzerInitialize(&argc, &argv))
		return 2;
	for (unsigned i = 0; i < nseeds; i++)
		LLVMFuzzerTestOneInput(seeds[i].data, seeds[i].size);
	for (unsigned i = 0; i < rounds; i++)
		LLVMFuzzerTestOneInput(input, mutate());
	for (unsigned i = 0; i < nseeds; i++)
		free(seeds[i].data);
	fprintf(stderr, "%u seeds and %u inputs made of them\n", nseeds, rounds);
	return 0;
}
