/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The running total of instruction cases, so that a test of many millions can be
 * done in pieces: a text file with the next seed, the sums, and the cases of each
 * form. Written whole under another name, then renamed: it is never half there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <Zydis/Zydis.h>
#include "insn_case.h"

static unsigned mnemonic_by_name(const struct case_gen *g, const char *name)
{
	const uint16_t *list;
	unsigned n = gen_mnemonics(g, &list);

	for (unsigned k = 0; k < n; k++)
		if (strcmp(ZydisMnemonicGetString((ZydisMnemonic)list[k]), name) == 0)
			return list[k];
	return 0;
}

int log_read(struct case_gen *g, const char *path, struct case_log *log)
{
	char line[256], name[64];
	unsigned form, cases, failed;
	FILE *f = fopen(path, "r");

	*log = (struct case_log){.next_seed = 1};
	if (!f)
		return 0;
	if (!fgets(line, sizeof(line), f) || sscanf(line, "seed %" SCNu64 " cases %" SCNu64 " failed %" SCNu64,
						    &log->next_seed, &log->cases, &log->failed) != 3) {
		fprintf(stderr, "%s: is not a log of test_insn; remove it to begin anew\n", path);
		fclose(f);
		return -1;
	}
	while (fgets(line, sizeof(line), f)) {
		struct form_count *c;

		if (sscanf(line, "%63s %u %u %u", name, &form, &cases, &failed) != 4)
			continue;
		c = gen_count(g, mnemonic_by_name(g, name), form);
		if (c)
			*c = (struct form_count){cases, failed};
	}
	fclose(f);
	return 0;
}

int log_write(struct case_gen *g, const char *path, const struct case_log *log)
{
	char tmp[512];
	const uint16_t *list;
	unsigned n = gen_mnemonics(g, &list);
	FILE *f;

	snprintf(tmp, sizeof(tmp), "%s.new", path);
	f = fopen(tmp, "w");
	if (!f) {
		perror(tmp);
		return -1;
	}
	fprintf(f, "seed %" PRIu64 " cases %" PRIu64 " failed %" PRIu64 "\n", log->next_seed, log->cases, log->failed);
	for (unsigned k = 0; k < n; k++)
		for (unsigned form = 0; form < gen_forms(g, list[k]); form++) {
			const struct form_count *c = gen_count(g, list[k], form);

			if (c && c->cases)
				fprintf(f, "%s %u %u %u\n", ZydisMnemonicGetString((ZydisMnemonic)list[k]), form,
					c->cases, c->failed);
		}
	if (fclose(f) || rename(tmp, path)) {
		perror(path);
		return -1;
	}
	return 0;
}

void log_table(struct case_gen *g, bool forms)
{
	const uint16_t *list;
	unsigned n = gen_mnemonics(g, &list), all = 0, met = 0;
	char name[96];

	printf("%-20s %8s %8s %10s %7s\n", "mnemonic", "forms", "tested", "cases", "failed");
	for (unsigned k = 0; k < n; k++) {
		unsigned count = gen_forms(g, list[k]), tested = 0, failed = 0;
		uint64_t cases = 0;

		for (unsigned form = 0; form < count; form++) {
			const struct form_count *c = gen_count(g, list[k], form);

			tested += c && c->cases;
			cases += c ? c->cases : 0;
			failed += c ? c->failed : 0;
		}
		all += count;
		met += tested;
		printf("%-20s %8u %8u %10" PRIu64 " %7u\n", ZydisMnemonicGetString((ZydisMnemonic)list[k]), count,
		       tested, cases, failed);
		for (unsigned form = 0; forms && form < count; form++) {
			const struct form_count *c = gen_count(g, list[k], form);

			gen_form_name(g, list[k], form, name, sizeof(name));
			printf("    %-44s %10u %7u\n", name, c ? c->cases : 0, c ? c->failed : 0);
		}
	}
	printf("%u of %u forms of %u mnemonics tested\n", met, all, n);
}
