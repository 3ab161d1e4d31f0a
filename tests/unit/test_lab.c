/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lab's statistics against R 4.2.2 and NIST, planted truths, the schedule of looks, experiments as data, journals
 * that were cut, and the general rule that names causes. No guest is started.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/util.h"
#include "lab/analyse.h"
#include "lab/kcount.h"
#include "lab/sample.h"
#include "lab/bench.h"
#include "lab/experiment.h"
#include "lab/paths.h"
#include "lab/report.h"
#include "lab/run.h"
#include "lab/trial.h"

#define NEAR(a, b, relative) assert_true(fabs((a) - (b)) <= fabs(b) * (relative))

/* ---- against published values ------------------------------------------------------------ */

/* NIST StRD univariate: NumAcc3's values are 1000000.2 once, then 1000000.1 and 1000000.3 500 times each: mean
 * 1000000.2, standard deviation 0.1, certified exactly. NumAcc4 the same at 10000000. */
static void nist(void **state)
{
	static const double base[] = {1e6, 1e7};
	static const double precise[] = {1e-7, 1e-6};

	for (size_t k = 0; k < ARRAY_SIZE(base); k++) {
		double x[1001] = {base[k] + 0.2};
		for (int i = 1; i <= 1000; i++)
			x[i] = base[k] + (i % 2 ? 0.1 : 0.3);
		struct stats_summary s = stats_summary(x, 1001, 1);
		NEAR(s.mean, base[k] + 0.2, 1e-14);
		NEAR(s.sd, 0.1, precise[k]);
		NEAR(s.median, base[k] + 0.2, 1e-14);
	}
}

/* R: t.test(PlantGrowth$weight[1:10])$conf.int; Dobson (1983), as in R's datasets. */
static void summary_as_r(void **state)
{
	static const double plants[] = {4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14};
	struct stats_summary s = stats_summary(plants, 10, 1);

	NEAR(s.sd * s.sd, 0.339995555555556, 1e-12);
	NEAR(s.t.low, 4.61488155565504, 1e-12);
	NEAR(s.t.high, 5.44911844434496, 1e-12);
	/* The bootstrap is random: near, and the other side of the mean. */
	assert_true(s.boot.low > 4.55 && s.boot.low < s.mean && s.boot.high < 5.5 && s.boot.high > s.mean);
}

/* R: t.test(log(b), log(a), paired=TRUE), exp of estimate and conf.int. */
static void ratio_as_r(void **state)
{
	static const double a[] = {10.2, 9.8, 10.5, 10.1, 9.9, 10.4, 10.0, 10.3},
			    b[] = {10.9, 10.1, 11.2, 10.6, 10.3, 11.0, 10.7, 10.8};
	struct stats_ratio r = stats_ratio(a, b, 8, 1);

	NEAR(r.ratio, 1.05392162440241, 1e-12);
	NEAR(r.t.low, 1.04203206984768, 1e-12);
	NEAR(r.t.high, 1.06594683841677, 1e-12);
	NEAR(r.p, 1.17555850954793e-05, 1e-9);
	/* Student's sleep data (1908) as logs: R's t.test(paired=TRUE) on R's `sleep`, whose p is 0.00283289019738427.
	 */
	static const double one[] = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
	static const double two[] = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};
	double x[10], y[10];
	for (int i = 0; i < 10; i++) {
		x[i] = exp(one[i]);
		y[i] = exp(two[i]);
	}
	r = stats_ratio(x, y, 10, 1);
	NEAR(r.p, 0.00283289019738427, 1e-9);
	NEAR(log(r.t.low), 0.700114236723018, 1e-9);
	NEAR(log(r.t.high), 2.459885763276982, 1e-9);
}

/* R: p.adjust(c(0.01,0.04,0.03,0.005,0.2,0.0001), "holm"). */
static double gauss(struct stats_random *r)
{
	double sum = 0;

	for (int i = 0; i < 12; i++)
		sum += (double)stats_random_below(r, 1u << 30) / (1u << 30);
	return sum - 6;
}

/* Several pairs of cells together: one pair is the paired t, more need fewer blocks, and noise is not taken for an
 * effect though the pairs differ from each other and are not equally steady. */
static void pooled(void **state)
{
	static const double one[] = {0.1, 0.2, 0.15, 0.05};
	struct stats_random r = {99};
	size_t alarms = 0, found = 0;
	enum { pairs = 6, blocks = 2, runs = 4000 };

	struct stats_ratio p = stats_pooled(one, 1, 4, 1);
	NEAR(p.df, 3.0, 1e-12);
	/* R: t.test(c(.1,.2,.15,.05))$p.value */
	NEAR(p.p, 0.03046617, 1e-5);
	for (int run = 0; run < runs; run++) {
		double logs[pairs * blocks], shifted[pairs * blocks];
		for (size_t i = 0; i < pairs * blocks; i++) {
			size_t pair = i / blocks;
			/* Pairs differ, in sum they do not. */
			double own = pair % 2 ? 0.1 : -0.1;
			logs[i] = own + gauss(&r) * (pair < 2 ? 0.08 : 0.02);
			shifted[i] = logs[i] + 0.25;
		}
		alarms += stats_pooled(logs, pairs, blocks, 0).p <= 0.05;
		found += stats_pooled(shifted, pairs, blocks, 0).p <= 0.05;
	}
	print_message("false alarms %zu, found %zu of %d\n", alarms, found, runs);
	assert_true(stats_binomial(alarms, runs).low <= 0.05);
	assert_true(found > runs * 9 / 10);
}

static void holm_as_r(void **state)
{
	double p[] = {0.01, 0.04, 0.03, 0.005, 0.2, 0.0001};
	static const double want[] = {0.0400, 0.0900, 0.0900, 0.0250, 0.2000, 0.0006};

	stats_holm(p, 6);
	for (int i = 0; i < 6; i++)
		NEAR(p[i], want[i], 1e-12);
}

/* R: binom.test(5, 100)$conf.int, binom.test(0, 20)$conf.int; t.test(log(b), log(a)) without pairing. */
static void binomial_and_welch_as_r(void **state)
{
	struct stats_interval i = stats_binomial(5, 100);

	NEAR(i.low, 0.0164318791820522, 1e-9);
	NEAR(i.high, 0.1128349111054627, 1e-9);
	i = stats_binomial(0, 20);
	assert_true(i.low == 0);
	NEAR(i.high, 0.168433470983085, 1e-9);
	i = stats_binomial(1960, 2000);
	NEAR(i.low, 0.972864422731342, 1e-9);
	NEAR(i.high, 0.985674213085933, 1e-9);
	i = stats_binomial(1999, 2000);
	NEAR(i.high, 0.999987341176131, 1e-9);
	i = stats_binomial(2000, 2000);
	NEAR(i.low, 0.998157260206594, 1e-9);
	/* For some of these GSL's inverse of the beta distribution ended the program. */
	for (size_t k = 1; k < 2000; k++) {
		i = stats_binomial(k, 2000);
		assert_true(i.low < (double)k / 2000 && i.high > (double)k / 2000);
	}
	static const double a[] = {10.2, 9.8, 10.5, 10.1, 9.9, 10.4, 10.0, 10.3}, b[] = {10.9, 10.1, 11.2, 10.6, 10.3};
	struct stats_ratio r = stats_unpaired(a, 8, b, 5);
	NEAR(r.ratio, 1.04584292308929, 1e-9);
	NEAR(r.t.low, 0.994004059619139, 1e-9);
	NEAR(r.t.high, 1.100385264216180, 1e-9);
	NEAR(r.p, 0.0739212877241826, 1e-7);
}

/* ---- rules ------------------------------------------------------------------------------------ */

static void schedule(void **state)
{
	struct stats_schedule s = stats_schedule(6, 40, 0.05);
	double sum = 0;

	assert_int_equal(s.blocks[0], 6);
	assert_int_equal(s.blocks[s.looks - 1], 40);
	for (unsigned i = 0; i < s.looks; i++) {
		sum += s.alpha[i];
		assert_true(i == 0 || s.blocks[i] > s.blocks[i - 1]);
		assert_int_equal(stats_look_at(&s, s.blocks[i]), (int)i);
	}
	NEAR(sum, 0.05, 1e-12);
	/* What is spent and what is left never exceed the whole. */
	NEAR(stats_final_alpha(&s, 7, 0.05), 0.05 - s.alpha[0], 1e-12);
	NEAR(stats_final_alpha(&s, 3, 0.05), 0.05, 1e-12);
	s = stats_schedule(1, 1, 0.05);
	assert_int_equal(s.looks, 1);
	assert_int_equal(stats_look_at(&s, 5), -1);
}

/* 'the same' and 'cannot tell' are different statements. */
static void words_of_no_difference(void **state)
{
	double quiet_a[12], quiet_b[12], loud_b[12];
	enum stats_verdict v;

	for (int i = 0; i < 12; i++) {
		quiet_a[i] = 100 + i % 3;
		quiet_b[i] = 100 + (i + 1) % 3;
		loud_b[i] = 100 + (i % 2 ? 40 : -30);
	}
	struct stats_ratio r = stats_ratio(quiet_a, quiet_b, 12, 1);
	stats_judge(&r, 1, 0.05, 0.05, &v);
	assert_int_equal(v, STATS_SAME);
	assert_true(stats_settled(&r, &v, 1, 0.05));
	r = stats_ratio(quiet_a, loud_b, 12, 1);
	stats_judge(&r, 1, 0.05, 0.05, &v);
	assert_int_equal(v, STATS_UNKNOWN);
	assert_false(stats_settled(&r, &v, 1, 0.05));
	r = stats_ratio(quiet_a, quiet_b, 1, 1);
	stats_judge(&r, 1, 0.05, 0.05, &v);
	assert_int_equal(v, STATS_UNKNOWN);
}

static void orders(void **state)
{
	unsigned a[7], b[7], seen = 0, differs = 0;

	run_order(42, 0, a, 7);
	run_order(42, 0, b, 7);
	assert_memory_equal(a, b, sizeof(a));
	for (int i = 0; i < 7; i++)
		seen |= 1u << a[i];
	assert_int_equal(seen, 127);
	for (unsigned block = 1; block < 6; block++) {
		run_order(42, block, b, 7);
		differs += memcmp(a, b, sizeof(a)) != 0;
	}
	assert_true(differs >= 4);
}

/* ---- planted truths ------------------------------------------------------------------------------ */

/*
 * Log residuals of `kelvin bench run cpu` (program sha256, three cells, the machine was busy):
 * noise as it is, with outliers. The whole simulation is `kelvin bench planted DIR`.
 */
static const double recorded[] = {
    0.2113,  0.1408,  -0.0149, 0.3817,	0.2226, 0.1215,	 -0.0540, 0.2491,  0.1451,  0.1236,  0.0069,  0.0699,
    0.2349,  0.4358,  0.0851,  0.0485,	0.2463, 0.2068,	 0.0989,  0.3655,  -0.2686, -0.5733, -0.1545, 0.0533,
    -0.0291, 0.1536,  0.2494,  0.2689,	0.2921, 0.2678,	 0.1471,  -0.9390, 0.0269,  -0.1419, 0.0062,  -0.3059,
    -0.0210, -0.2016, -0.0533, -0.0639, 0.0987, -0.3920, -0.5938, -0.7613, -0.1335, -0.0379, -0.1611, -0.0575,
};

static void planted(void **state)
{
	double noise[ARRAY_SIZE(recorded)];

	/* The machine was so busy that 5 % would take hundreds of blocks: the noise's shape, at a quarter of its size.
	 */
	for (size_t i = 0; i < ARRAY_SIZE(recorded); i++)
		noise[i] = recorded[i] / 4;
	struct planted_rates r = planted_simulate(noise, ARRAY_SIZE(noise) / 3, 3, 6, 200, 0.05, 0.05, 400, 7);
	/* 95 % found and 5 % false, within three standard deviations of 400 runs. */
	assert_int_equal(r.runs, 400);
	assert_true((double)r.found >= 400 * 0.95 - 3 * sqrt(400 * 0.95 * 0.05));
	assert_true((double)r.false_alarms <= 400 * 0.05 + 3 * sqrt(400 * 0.95 * 0.05));
	/* The test can fail: nothing planted is nothing found. */
	r = planted_simulate(noise, ARRAY_SIZE(noise) / 3, 3, 6, 200, 0.05, 0, 400, 7);
	assert_true((double)r.found <= 400 * 0.05 + 3 * sqrt(400 * 0.95 * 0.05));
}

/* ---- experiments ------------------------------------------------------------------------------------ */

static struct experiment *from_text(const char *text, struct err *err)
{
	char path[] = "/tmp/kelvin-test-lab.XXXXXX";
	int fd = mkstemp(path);
	struct experiment *e = NULL;

	assert_true(fd >= 0);
	assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	e = experiment_load(path, false, err);
	unlink(path);
	return e;
}

static void matrix(void **state)
{
	struct err err = {0};
	struct experiment *e =
	    from_text("# a comment\nname: x\nworkload: fio\nfactors:\n  drive.if: [virtio, ide]\n  smp: [1, 2, 4]\n"
		      "exclude:\n  - {drive.if: ide, smp: [2, 4]}\nreference: {smp: 2}\nhost: yes\n",
		      &err);
	struct matrix m;

	assert_non_null(e);
	assert_int_equal(matrix_make(e, &m, &err), 0);
	/* virtio with 1, 2, 4; ide with 1; the twin; the host. */
	assert_int_equal(m.n, 6);
	assert_string_equal(m.cell[m.reference].label, "drive.if=virtio smp=2");
	assert_true(m.cell[m.twin].twin && json_equal(m.cell[m.twin].settings, m.cell[m.reference].settings));
	assert_true(m.has_host && m.cell[m.host].host);
	matrix_free(&m);
	assert_int_equal(experiment_fix(e, "smp=8", &err), 0);
	assert_int_equal(experiment_vary(e, "drive.cache=none,unsafe", &err), 0);
	assert_int_equal(matrix_make(e, &m, &err), 0);
	assert_int_equal(m.n, 6);
	assert_string_equal(json_string_value(json_object_get(m.cell[0].settings, "smp")), "8");
	matrix_free(&m);
	experiment_free(e);
}

static void bad_experiments(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
	    {"name: x\nworkload: nothing\n", "no workload 'nothing'"},
	    {"name: x\nworkload: cpu\nfactor: {}\n", "did you mean 'factors'"},
	    {"name: x\nworkload: cpu\nfactors: {smp: 2}\n", "must be a list"},
	    {"name: x\nworkload: cpu\nfactors: {smp: []}\n", "no levels"},
	    {"name: x\nworkload: cpu\nbudget: 5\n", "needs a unit"},
	    {"name: x\nworkload: idle\nhost: yes\n", "means nothing on the host"},
	    {"name: x\nname: y\n", "the same key twice"},
	    {"name: x\nworkload: [cpu\n", ":"},
	    {"- a\n", "mapping"},
	    {"name: x\nworkload: cpu\nruns: {least: 9, most: 2}\n", "may not exceed"},
	    {"name: &a [*a]\nworkload: cpu\n", "nested"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err err = {0};
		struct experiment *e = from_text(cases[i].text, &err);
		if (e || !strstr(err.msg, cases[i].says))
			fail_msg("%s gives '%s'", cases[i].text, err.msg);
	}
}

static void load_builtin(void *arg, const char *name, const char *path)
{
	for (int quick = 0; quick < 2; quick++) {
		struct err err = {0};
		struct matrix m;
		struct experiment *e = experiment_load(name, quick, &err);
		if (!e || matrix_make(e, &m, &err))
			fail_msg("%s: %s", name, err.msg);
		matrix_free(&m);
		experiment_free(e);
	}
	++*(int *)arg;
}

static void builtin_experiments(void **state)
{
	struct err err = {0};
	int count = 0;

	assert_int_equal(experiment_each(load_builtin, &count, &err), 0);
	assert_true(count >= 10);
}

/* ---- journals ---------------------------------------------------------------------------------------- */

/* A trial whose one phase has these quantities; times in seconds per phase of 1000 requests. */
struct made {
	double seconds, cpu, exits, disk_wait, disk_requests, disk_bytes, guest_wait, own_bytes, delay, wanted;
};

static json_t *made_trial(unsigned block, const char *cell, struct made m, double wobble)
{
	json_t *inside =
	    json_pack("{s:f,s:f,s:f}", "reads", 1000.0, "writes", 0.0, "disk_wait_s", m.guest_wait * wobble);
	json_t *outside = json_pack("{s:f,s:f,s:f,s:f,s:f,s:f}", "vmm.cpu", m.cpu * wobble, "vmm.user", m.cpu * wobble,
				    "exits", m.exits, "disk.wait_s", m.disk_wait * wobble, "disk.requests",
				    m.disk_requests, "disk.read_bytes", m.disk_bytes);

	json_object_set_new(outside, "disk.written_bytes", json_real(0));
	if (m.wanted > 0) {
		json_object_set_new(inside, "read_bytes", json_real(m.wanted));
		json_object_set_new(inside, "written_bytes", json_real(0));
	}
	json_object_set_new(outside, "vmm.run_delay_s", json_real(m.delay * wobble));
	if (m.own_bytes > 0)
		json_object_set_new(outside, "vmm.device_read_bytes", json_real(m.own_bytes));
	return json_pack("{s:i,s:s,s:s,s:f,s:{s:{s:f,s:s,s:s}},s:{s:{s:f,s:o,s:o}}}", "block", block, "cell", cell,
			 "status", "ok", "wall_s", 1.0, "metrics", "work", "value", m.seconds * wobble, "unit", "s",
			 "better", "lower", "phases", "work", "seconds", m.seconds * wobble, "inside", inside,
			 "outside", outside);
}

static const char *why_key(struct made slow, struct made fast)
{
	json_t *a = json_array(), *b = json_array();
	static char key[64];

	for (unsigned i = 0; i < 6; i++) {
		double wobble = 1 + 0.01 * (i % 3);
		json_array_append_new(a, made_trial(i, "a", slow, wobble));
		json_array_append_new(b, made_trial(i, "b", fast, wobble));
	}
	json_t *why = why_explain(a, b, "work", 0.05);
	snprintf(key, sizeof(key), "%s", why ? json_string_value(json_object_get(why, "key")) : "nothing");
	json_decref(why);
	json_decref(a);
	json_decref(b);
	return key;
}

/* An experiment without factors asks about the host: it is not settled while that is open. */
static void settles(void **state)
{
	struct err err = {0};
	char dir[] = "/tmp/kelvin-test-lab.XXXXXX";
	struct experiment *e = from_text("name: x\nworkload: cpu\nhost: yes\nruns: {least: 4, most: 12}\n", &err);
	struct made m = {.seconds = 1, .cpu = 0.5};
	struct journal j;
	json_t *a;

	assert_non_null(e);
	assert_non_null(mkdtemp(dir));
	json_t *plan = json_pack("{s:O,s:s,s:{},s:s}", "experiment", e->doc, "seed", "5", "facts", "command", "none");
	assert_int_equal(journal_create(&j, dir, plan, &err), 0);
	for (unsigned block = 0; block < 4; block++)
		for (size_t i = 0; i < j.matrix.n; i++) {
			/* The host's value jumps about. */
			double wobble = j.matrix.cell[i].host ? 1 + 0.5 * (block % 2) : 1 + 0.001 * block;
			assert_int_equal(journal_add(&j, made_trial(block, j.matrix.cell[i].label, m, wobble), &err),
					 0);
		}
	a = analyse(&j, 4, 0.05);
	assert_false(json_is_true(json_object_get(a, "settled")));
	json_decref(a);
	journal_close(&j);
	json_decref(plan);
	experiment_free(e);
	char *argv = paths_text("rm -rf %s", dir);
	assert_int_equal(system(argv), 0);
	free(argv);
}

/* Three planted causes, and two that must not be named. */
static void causes(void **state)
{
	struct made fast = {.seconds = 1,
			    .cpu = 0.5,
			    .exits = 2000,
			    .disk_wait = 0.4,
			    .disk_requests = 1000,
			    .disk_bytes = 4e6},
		    slow = fast;

	/* A device that answers 1 ms later. */
	slow.seconds = 2;
	slow.disk_wait = 1.4;
	assert_string_equal(why_key(slow, fast), "disk.latency");
	/* 100 more exits a request. */
	slow = fast;
	slow.exits = 102000;
	slow.seconds = 1.3;
	slow.cpu = 0.8;
	assert_string_equal(why_key(slow, fast), "exits");
	/* The faster one was served by the host's cache. */
	struct made warm = fast;
	warm.seconds = 0.62;
	warm.disk_wait = 0.02;
	warm.disk_requests = 50;
	warm.disk_bytes = 2e5;
	assert_string_equal(why_key(fast, warm), "disk.bytes");
	/* The same when the disk's own counters show no waiting (a limit above them does the delaying). */
	struct made cold = fast;
	cold.seconds = 9;
	cold.guest_wait = 8;
	cold.disk_wait = 0;
	cold.wanted = warm.wanted = 4e6;
	assert_string_equal(why_key(cold, warm), "disk.bytes");
	warm.wanted = 0;
	/* Others kept the host's disk busy while the slow one waited elsewhere: the monitor asked for little of it. */
	struct made busy = warm;
	slow = warm;
	slow.seconds = 3;
	slow.guest_wait = 2.5;
	slow.disk_wait = 2;
	slow.disk_requests = 5000;
	slow.disk_bytes = 4e9;
	busy.guest_wait = 0.1;
	busy.own_bytes = slow.own_bytes = 1e5;
	assert_string_equal(why_key(slow, busy), "store.latency");
	/* More exits on a host where others have the CPU most of the time: it is still the exits. */
	slow = fast;
	slow.exits = 102000;
	slow.seconds = 3;
	slow.cpu = 0.8;
	slow.delay = 1.6;
	slow.guest_wait = 2.5;
	fast.guest_wait = 0.2;
	assert_string_equal(why_key(slow, fast), "exits");
	/* The same host and a disk that answers late: all delays together are no computing. */
	slow.exits = fast.exits + 3000;
	slow.seconds = 10;
	slow.cpu = 0.9;
	slow.delay = 7;
	slow.guest_wait = 9;
	assert_string_equal(why_key(slow, fast), "store.latency");
	fast.guest_wait = 0;
	/* More CPU time, but nothing that is counted. */
	slow = fast;
	slow.seconds = 1.5;
	slow.cpu = 1;
	assert_string_equal(why_key(slow, fast), "vmm.user");
	/* The guest's requests wait 2 ms longer, and neither CPU nor the host's disk has to do with it. */
	slow = fast;
	slow.seconds = 3;
	slow.guest_wait = 2.5;
	fast.guest_wait = 0.5;
	assert_string_equal(why_key(slow, fast), "store.latency");
	fast.guest_wait = 0;
	/* Waiting, but neither CPU nor disk. */
	slow = fast;
	slow.seconds = 1.5;
	assert_string_equal(why_key(slow, fast), "waiting");
	/* No difference needs no reason. */
	assert_string_equal(why_key(fast, fast), "nothing");
}

/* The kernel's counters of this process, where it may have them: exactly the calls that were made. */
static void kernel_counts(void **state)
{
	struct err err = {0};
	struct kcount *k = kcount_start(getpid(), &err);
	json_t *a = json_object(), *b = json_object();

	if (!k) {
		assert_non_null(strstr(err.msg, "eBPF"));
		json_decref(a);
		json_decref(b);
		skip();
	}
	kcount_read(k, a);
	for (int i = 0; i < 1000; i++)
		syscall(SYS_poll, NULL, 0, 0);
	/* A process that it makes counts as well. */
	pid_t pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 500; i++)
			syscall(SYS_poll, NULL, 0, 0);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	kcount_read(k, b);
	kcount_stop(k);
	json_t *delta = sample_delta(a, b);
	assert_true(json_number_value(json_object_get(delta, "vmm.calls.poll")) == 1500);
	/* Reading the counters is calls as well. */
	assert_true(json_number_value(json_object_get(delta, "vmm.calls")) >= 1500);
	json_decref(delta);
	json_decref(a);
	json_decref(b);
}

/* The first line of /proc/stat, in ticks. */
static void stat_line(unsigned long long v[10])
{
	FILE *f = fopen("/proc/stat", "re");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1, v + 2, v + 3,
				v + 4, v + 5, v + 6, v + 7, v + 8, v + 9),
			 10);
	fclose(f);
}

/* The host's columns are those of all CPUs together, each in its place, guests' time counted once. */
static void host_counts(void **state)
{
	static const char *const columns[] = {"host.user", "host.nice",	   "host.system", "host.idle", "host.iowait",
					      "host.irq",  "host.softirq", "host.steal",  "host.guest"};
	unsigned long long before[10], after[10];
	json_t *a = json_object();
	const double hz = (double)sysconf(_SC_CLK_TCK);

	stat_line(before);
	sample_take(a, 0, NULL, NULL);
	stat_line(after);
	before[0] -= before[8], after[0] -= after[8];
	before[1] -= before[9], after[1] -= after[9];
	before[8] += before[9], after[8] += after[9];
	for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
		const double ticks = json_number_value(json_object_get(a, columns[i])) * hz;

		/* Idle and iowait may go back by a little (proc(5)). */
		assert_true(ticks >= (double)before[i] - 2 && ticks <= (double)after[i] + 2);
	}
	json_decref(a);
}

/* The work of a process's children is its own, while they run and when they are gone: native ring 3 is in some. */
static void children_count(void **state)
{
	struct sample_children c = {0};
	json_t *a = json_object(), *b = json_object(), *e = json_object();
	int done[2];
	char byte;

	assert_int_equal(pipe(done), 0);
	sample_take(a, getpid(), &c, NULL);
	pid_t pid = fork();
	if (pid == 0) {
		/* 150 ms of CPU, whatever else runs here; page faults and switches. */
		while (clock() < CLOCKS_PER_SEC * 15 / 100)
			;
		char *p = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (size_t i = 0; p != MAP_FAILED && i < 4 * MIB; i += 4096)
			p[i] = 1;
		for (int i = 0; i < 20; i++)
			usleep(1000);
		if (write(done[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(done[0], &byte, 1), 1);
	sample_take(b, getpid(), &c, NULL);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	sample_take(e, getpid(), &c, NULL);
	json_t *runs = sample_delta(a, b), *gone = sample_delta(a, e);
	if (access("/proc/thread-self/children", R_OK) == 0) {
		assert_true(json_number_value(json_object_get(runs, "vmm.cpu")) >= 0.1);
		assert_true(json_number_value(json_object_get(runs, "vmm.switches")) >= 20);
		assert_true(json_number_value(json_object_get(gone, "vmm.switches")) >=
			    json_number_value(json_object_get(runs, "vmm.switches")));
		assert_true(c.peak_kib >= 4096);
	}
	assert_true(json_number_value(json_object_get(gone, "vmm.cpu")) >= 0.1);
	assert_true(json_number_value(json_object_get(gone, "vmm.faults")) >= 1);
	json_t *all[] = {a, b, e, runs, gone};
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		json_decref(all[i]);
	close(done[0]);
	close(done[1]);
}

/* A new result folder of an experiment with two cache modes; *plan and the result are the caller's. */
static struct experiment *cache_modes(struct journal *j, char *dir, json_t **plan)
{
	struct err err = {0};
	struct experiment *e = from_text("name: x\nworkload: io-read\nfactors:\n  drive.cache: [none, unsafe]\n", &err);

	assert_non_null(e);
	assert_non_null(mkdtemp(dir));
	*plan = json_pack("{s:O,s:s,s:{},s:s}", "experiment", e->doc, "seed", "5", "facts", "command", "none");
	assert_int_equal(journal_create(j, dir, *plan, &err), 0);
	return e;
}

/* Nothing found, but little can be hidden: that is an answer, with its bound. */
static void bounds(void **state)
{
	static const double wobble[3][4] = {{1, 1.03, 0.98, 1.01}, {1.02, 0.99, 1.01, 0.98}, {0.99, 1.02, 1, 1.01}};
	struct err err = {0};
	char dir[] = "/tmp/kelvin-test-lab.XXXXXX";
	struct made cell = {.seconds = 1, .cpu = 0.5};
	struct journal j;
	json_t *plan;
	struct experiment *e = cache_modes(&j, dir, &plan);

	for (unsigned block = 0; block < 4; block++)
		for (size_t i = 0; i < j.matrix.n; i++)
			assert_int_equal(
			    journal_add(&j, made_trial(block, j.matrix.cell[i].label, cell, wobble[i % 3][block]),
					&err),
			    0);
	json_t *a = analyse_final(&j);
	const char *text = json_string_value(json_object_get(json_array_get(json_object_get(a, "lead"), 0), "text"));
	assert_non_null(strstr(text, "no difference seen; one of up to "));
	json_decref(a);
	json_decref(plan);
	journal_close(&j);
	experiment_free(e);
	char *command = paths_text("rm -r %s", dir);
	assert_int_equal(system(command), 0);
	free(command);
}

/* A whole result folder: made, cut in the middle of a line, opened again, analysed. */
static void journals(void **state)
{
	struct err err = {0};
	char dir[] = "/tmp/kelvin-test-lab.XXXXXX";
	struct made fast = {.seconds = 1,
			    .cpu = 0.5,
			    .exits = 2000,
			    .disk_wait = 0.4,
			    .disk_requests = 1000,
			    .disk_bytes = 4e6},
		    slow = fast;
	struct journal j;
	json_t *plan;

	slow.seconds = 1.3;
	slow.cpu = 0.8;
	slow.exits = 102000;
	struct experiment *e = cache_modes(&j, dir, &plan);
	for (unsigned block = 0; block < 6; block++) {
		double wobble = 1 + 0.004 * ((block * 7) % 5);
		for (size_t i = 0; i < j.matrix.n; i++)
			assert_int_equal(journal_add(&j,
						     made_trial(block, j.matrix.cell[i].label, i == 1 ? slow : fast,
								wobble * (1 + 0.002 * ((block + i) % 3))),
						     &err),
					 0);
	}
	/* One run at a time. */
	struct journal second;
	assert_int_equal(journal_open(&second, dir, true, &err), -EBUSY);
	journal_close(&j);
	err = (struct err){0};
	assert_int_equal(journal_create(&j, dir, plan, &err), -EEXIST);
	/* Killed while the last line was written. */
	char *path = paths_text("%s/journal.jsonl", dir), *text = paths_read(path, NULL);
	assert_int_equal(truncate(path, (off_t)strlen(text) - 20), 0);
	/* And lines that are no trials, at the front. */
	FILE *f = fopen(path, "r+");
	assert_non_null(f);
	char *whole = paths_text("{}\n[1]\n{\"cell\":1}\n%.*s", (int)strlen(text) - 20, text);
	fputs(whole, f);
	fclose(f);
	free(whole);
	err = (struct err){0};
	assert_int_equal(journal_open(&j, dir, true, &err), 0);
	assert_int_equal(json_array_size(j.trials), 6 * j.matrix.n - 1);
	assert_int_equal(analyse_complete_blocks(&j), 5);
	/* The lost cell and nothing else is still to be run; then all is complete again. */
	unsigned missing = 0;
	for (size_t i = 0; i < j.matrix.n; i++)
		if (!journal_find(&j, 5, j.matrix.cell[i].label)) {
			assert_int_equal(journal_add(&j, made_trial(5, j.matrix.cell[i].label, fast, 1.01), &err), 0);
			missing++;
		}
	assert_int_equal(missing, 1);
	assert_int_equal(analyse_complete_blocks(&j), 6);
	json_t *a = analyse_final(&j), *first = json_array_get(json_object_get(a, "verdict"), 0);
	assert_string_equal(json_string_value(json_object_get(first, "verdict")), "more");
	assert_string_equal(json_string_value(json_object_get(json_object_get(first, "why"), "key")), "exits");
	assert_non_null(strstr(json_string_value(json_object_get(first, "text")), "drive.cache=unsafe takes 3"));
	struct textbuf html = {0}, csv = {0};
	report_html(a, &j, &html);
	report_csv(&j, &csv);
	assert_non_null(strstr(html.text, "drive.cache=unsafe takes 3"));
	/* What else ran on the machine is part of the verdict. */
	assert_null(strstr(html.text, "was not quiet"));
	size_t k;
	json_t *trial;
	json_array_foreach(j.trials, k, trial) {
		json_object_set_new(trial, "notes", json_pack("[s]", NOTE_NOT_QUIET));
	}
	json_t *loud = analyse_final(&j), *lead = json_object_get(loud, "lead");
	const char *last = json_string_value(json_object_get(json_array_get(lead, json_array_size(lead) - 1), "text"));
	assert_non_null(strstr(last, "other processes used CPU time during 18 of 18 trials"));
	json_decref(loud);
	/* Self-contained: nothing is loaded. */
	assert_null(strstr(html.text, "src="));
	assert_null(strstr(html.text, "href='http"));
	assert_null(strstr(html.text, "<script"));
	assert_null(strstr(html.text, "<link"));
	assert_non_null(strstr(csv.text, "0,drive.cache=none,ok,work,"));
	textbuf_free(&html);
	textbuf_free(&csv);
	json_decref(a);
	journal_close(&j);
	free(text);
	free(path);
	json_decref(plan);
	experiment_free(e);
	char *argv = paths_text("rm -rf %s", dir);
	assert_int_equal(system(argv), 0);
	free(argv);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nist),
	    cmocka_unit_test(summary_as_r),
	    cmocka_unit_test(ratio_as_r),
	    cmocka_unit_test(pooled),
	    cmocka_unit_test(holm_as_r),
	    cmocka_unit_test(binomial_and_welch_as_r),
	    cmocka_unit_test(schedule),
	    cmocka_unit_test(words_of_no_difference),
	    cmocka_unit_test(orders),
	    cmocka_unit_test(planted),
	    cmocka_unit_test(matrix),
	    cmocka_unit_test(bad_experiments),
	    cmocka_unit_test(builtin_experiments),
	    cmocka_unit_test(causes),
	    cmocka_unit_test(settles),
	    cmocka_unit_test(kernel_counts),
	    cmocka_unit_test(host_counts),
	    cmocka_unit_test(children_count),
	    cmocka_unit_test(bounds),
	    cmocka_unit_test(journals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
