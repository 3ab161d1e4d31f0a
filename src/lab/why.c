// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Why is one cell slower? A general rule over measured quantities, whatever the experiment:
 *
 * 1. The difference in wall time per unit of work is split into CPU time (of the monitor, or on the host of the work)
 *    and the rest, which is waiting. Being ready to run while others have the CPU counts as CPU time.
 * 2. Waiting that shows at the host's disk is volume times latency: whichever of the two ratios is larger is named
 *    (more went to the device: less came from a cache; or each request took longer: the device is slower). Waiting that
 *    does not show there, but in the time the guest's requests took, is named after the store of the image: a limit, a
 *    network, or a delay stands between.
 * 3. CPU time is explained by the counted event whose increase, at a rough cost per event, covers most of it; if no
 *    event covers a seventh, by the mode the time was spent in.
 *
 * The unit of work is one request (of the workload, or of the guest's disk) where there are enough of them in both
 * cells, else the phase. A quantity is only named when its increase is the same in sign in (almost) all blocks: a sign
 * test. With fewer than SURE_BLOCKS blocks the reason is only probable, and said so.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "lab/analyse.h"
#include "lab/paths.h"

#define ENOUGH_REQUESTS 50
#define ENOUGH_BLOCKS	2
#define SURE_BLOCKS	5
#define LEAST_SHARE	(1.0 / 7)

/* Events that cost CPU time, with the order of magnitude of one (s). "in": counted by the guest's kernel. */
static const struct event {
	const char *key;
	bool inside;
	double cost;
	const char *name;
} events[] = {
    {"exits", false, 3e-6, "exits to the monitor"},
    {"kvm.exits_to_user", false, 3e-6, "exits to the monitor"},
    {"kvm.exits", false, 1.5e-6, "exits of the guest"},
    {"vcpu.mmio", false, 3e-6, "exits for device memory"},
    {"vcpu.port_io", false, 3e-6, "exits for ports"},
    {"vmm.switches", false, 3e-6, "context switches of the monitor"},
    {"vmm.faults", false, 2e-6, "page faults of the monitor"},
    {"interrupts", false, 3e-6, "interrupts raised by devices"},
    {"block.requests", false, 3e-6, "requests to the disk image"},
    {"vmm.calls", false, 5e-7, "host system calls of the monitor"},
    {"vcpu.exceptions", false, 1e-6, "exceptions in the guest"},
    {"vcpu.page_walks", false, 3e-7, "page walks of the software CPU"},
    {"vcpu.code_invalidations", false, 2e-5, "invalidations of translated code"},
    {"vcpu.blocks_decoded", false, 2e-6, "blocks decoded"},
    {"vcpu.jit_blocks", false, 2e-5, "blocks translated"},
    {"switches", true, 3e-6, "context switches in the guest"},
    {"interrupts", true, 3e-6, "interrupts in the guest"},
};

static const struct mode {
	const char *key;
	bool inside;
	const char *name;
} modes[] = {
    {"vmm.user", false, "the monitor in user space (on the software CPU that includes the guest's own code)"},
    {"vmm.system", false, "the host's kernel working for the monitor"},
    {"vmm.guest", false, "the guest's own code, under KVM"},
};

static json_t *phase_of(json_t *trial, const char *phase)
{
	return json_object_get(json_object_get(trial, "phases"), phase);
}

/* NAN when it was not measured. */
static double raw(json_t *p, const char *key, bool inside)
{
	json_t *v = json_object_get(json_object_get(p, inside ? "inside" : "outside"), key);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

/* As the workload counted them, else as the guest's kernel did. */
static double requests_of(json_t *p)
{
	double own = raw(p, "operations", true),
	       n = isfinite(own) ? own : raw(p, "reads", true) + raw(p, "writes", true);

	return isfinite(n) ? n : 0;
}

struct why {
	json_t *slow, *fast;
	const char *phase;
	bool per_request;
	size_t n;
};

static double per_work(const struct why *w, json_t *p, double v)
{
	return w->per_request ? v / requests_of(p) : v;
}

/* Means over blocks of a quantity per unit of work on both sides, and in how many blocks the slow side has more. */
struct both {
	double slow, fast;
	bool known, steady;
};

typedef double (*quantity)(json_t *phase, const void *arg);

static struct both measure(const struct why *w, quantity fn, const void *arg)
{
	struct both b = {0, 0, true, false};
	size_t more = 0;

	for (size_t i = 0; i < w->n; i++) {
		json_t *p = phase_of(json_array_get(w->slow, i), w->phase),
		       *q = phase_of(json_array_get(w->fast, i), w->phase);
		double s = per_work(w, p, fn(p, arg)), f = per_work(w, q, fn(q, arg));
		if (!isfinite(s) || !isfinite(f))
			return (struct both){0, 0, false, false};
		b.slow += s / (double)w->n;
		b.fast += f / (double)w->n;
		more += s > f;
	}
	/* With fewer than five blocks all must agree; with more, nine of ten. */
	b.steady = w->n && (w->n < 5 ? more == w->n : more * 10 >= w->n * 9);
	return b;
}

static double wall(json_t *p, const void *arg)
{
	return json_number_value(json_object_get(p, "seconds"));
}

/* What was used alone: an event's cost is a part of this, however long others kept the CPU. */
static double cpu_used(json_t *p, const void *arg)
{
	double v = raw(p, "vmm.cpu", false);

	return isfinite(v) ? v : raw(p, "work_user_s", true) + raw(p, "work_system_s", true);
}

/* CPU time, and time in which it was wanted and others had the CPU: on a busy host the same work takes longer. */
static double cpu(json_t *p, const void *arg)
{
	double v = cpu_used(p, arg), delay = raw(p, "vmm.run_delay_s", false);

	return isfinite(delay) ? v + delay : v;
}

/* Bytes of the host's disk that were the cell's: no more than the disk moved, and no more than the monitor asked for
 * where that is known, for others use the disk as well. */
static double own_bytes(json_t *p, const char *disk, const char *process)
{
	double all = raw(p, disk, false), own = raw(p, process, false);

	return isfinite(own) ? MIN(all, own) : all;
}

static double disk_bytes(json_t *p, const void *arg)
{
	return own_bytes(p, "disk.read_bytes", "vmm.device_read_bytes") +
	       own_bytes(p, "disk.written_bytes", "vmm.device_written_bytes");
}

/* The cell's part of what the disk did. */
static double disk_part(json_t *p)
{
	double all = raw(p, "disk.read_bytes", false) + raw(p, "disk.written_bytes", false);

	return all > 0 ? disk_bytes(p, NULL) / all : 1;
}

static double disk_wait(json_t *p, const void *arg)
{
	return raw(p, "disk.wait_s", false) * disk_part(p);
}

static double guest_bytes(json_t *p, const void *arg)
{
	return raw(p, "read_bytes", true) + raw(p, "written_bytes", true);
}

/* How long the guest's kernel waited for its disk, and for how many requests. */
static double guest_wait(json_t *p, const void *arg)
{
	return raw(p, "disk_wait_s", true);
}

static double guest_requests(json_t *p, const void *arg)
{
	return raw(p, "reads", true) + raw(p, "writes", true);
}

static double disk_requests(json_t *p, const void *arg)
{
	return raw(p, "disk.requests", false) * disk_part(p);
}

static double event_count(json_t *p, const void *arg)
{
	const struct event *e = arg;

	return raw(p, e->key, e->inside);
}

static double mode_time(json_t *p, const void *arg)
{
	const struct mode *m = arg;

	return raw(p, m->key, m->inside);
}

static json_t *reason(const struct why *w, const char *key, double share, struct both b, char *text)
{
	json_t *o = text ? json_pack("{s:s,s:f,s:f,s:f,s:s,s:b}", "key", key, "share", MIN(share, 1.0), "slow", b.slow,
				     "fast", b.fast, "text", text, "sure", w->n >= SURE_BLOCKS)
			 : NULL;

	free(text);
	return o;
}

static const char *unit_of(const struct why *w)
{
	return w->per_request ? " a request" : "";
}

/* ---- the two halves ------------------------------------------------------------------- */

static json_t *why_waiting(const struct why *w, double difference, double waiting)
{
	struct both bytes = measure(w, disk_bytes, NULL), wait = measure(w, disk_wait, NULL),
		    count = measure(w, disk_requests, NULL);
	struct both wanted = measure(w, guest_bytes, NULL);
	double share = waiting / difference;

	/* Plain from the bytes alone, wherever the waiting is accounted for. */
	if (bytes.known && wanted.known && bytes.steady && bytes.slow > wanted.slow * 0.7 &&
	    bytes.fast < bytes.slow * 0.2)
		return reason(
		    w, "disk.bytes", share, bytes,
		    paths_text("it waits for the host's disk, which moved %.1f KiB%s for it against %.1f: the "
			       "faster one was served from the host's cache",
			       bytes.slow / KIB, unit_of(w), bytes.fast / KIB));
	if (wait.known && count.known && bytes.known && wait.steady && wait.slow - wait.fast > waiting * 0.3) {
		double latency_slow = wait.slow / MAX(count.slow, 1e-12),
		       latency_fast = wait.fast / MAX(count.fast, 1e-12);
		double volume = log(MAX(bytes.slow, 1.0) / MAX(bytes.fast, 1.0)),
		       latency = log(latency_slow / MAX(latency_fast, 1e-9));
		/* Who got less from the disk than the guest asked for had the rest from a cache. */
		bool cached = !wanted.known || bytes.fast < wanted.fast * 0.8;
		if (volume > latency && volume > log(1.2) && bytes.steady)
			return reason(w, "disk.bytes", share, bytes,
				      paths_text("it waits for the host's disk, to which it sends more: %.1f KiB%s "
						 "against %.1f%s",
						 bytes.slow / KIB, unit_of(w), bytes.fast / KIB,
						 cached ? " (the faster one was served from the host's cache)" : ""));
		if (latency > log(1.2))
			return reason(w, "disk.latency", share, wait,
				      paths_text("it waits for the host's disk, which answers later: %.2f ms a request "
						 "of the device against %.2f",
						 latency_slow * 1e3, latency_fast * 1e3));
	}
	struct both asked = measure(w, guest_requests, NULL), guest = measure(w, guest_wait, NULL);
	if (guest.known && asked.known && guest.steady && asked.slow > 0 && asked.fast > 0 &&
	    guest.slow - guest.fast > waiting * 0.5 && guest.slow / asked.slow > guest.fast / asked.fast * 1.2)
		return reason(
		    w, "store.latency", share, guest,
		    paths_text("each of its disk requests waits longer: %.3g ms against %.3g; neither CPU time "
			       "nor the host's disk accounts for it, so it is what lies between: a limit, a network, "
			       "a slow store of the image, or a queue",
			       guest.slow / asked.slow * 1e3, guest.fast / asked.fast * 1e3));
	struct both w2 = {waiting, 0, true, true};
	return reason(w, "waiting", share, w2,
		      paths_text("%.0f %% of the difference is waiting that neither CPU time nor the host's disk "
				 "accounts for (a queue, a "
				 "throttle, a timer, or another process in the way)",
				 share * 100));
}

static json_t *why_computing(const struct why *w, double difference, struct both time)
{
	const struct event *best = NULL;
	struct both best_count = {0}, used = measure(w, cpu_used, NULL);
	double best_share = LEAST_SHARE, more = time.slow - time.fast, spent_more = used.slow - used.fast;
	/* Where the load of the machine hides the difference in use, the whole must do. */
	if (!(used.known && spent_more > 0))
		spent_more = more;

	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		struct both b = measure(w, event_count, &events[i]);
		double share = (b.slow - b.fast) * events[i].cost / spent_more;
		if (b.known && b.steady && b.slow > b.fast * 1.2 && share > best_share) {
			best = &events[i];
			best_count = b;
			best_share = share;
		}
	}
	if (best)
		return reason(w, best->key, more / difference, best_count,
			      paths_text("it costs CPU time through more %s: %.3g%s against %.3g", best->name,
					 best_count.slow, unit_of(w), best_count.fast));
	const struct mode *where = NULL;
	struct both spent = {0};
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		struct both b = measure(w, mode_time, &modes[i]);
		if (b.known && b.steady && b.slow - b.fast > spent.slow - spent.fast) {
			where = &modes[i];
			spent = b;
		}
	}
	if (!where)
		return reason(w, "cpu.time", more / difference, time,
			      paths_text("it needs more CPU time: %.3g ms%s against %.3g", time.slow * 1e3, unit_of(w),
					 time.fast * 1e3));
	return reason(
	    w, where->key, more / difference, spent,
	    paths_text("it needs more CPU time in %s: %.3g ms%s against %.3g; no counted event accounts for it",
		       where->name, spent.slow * 1e3, unit_of(w), spent.fast * 1e3));
}

/*
 * The part of the difference that is computing. On a busy host who only waits is delayed as well whenever he wakes, and
 * the delays of several threads add up to more than passed: they count where the use of the CPU differs as well.
 */
static double computing_more(const struct why *w, double difference, struct both time)
{
	struct both used = measure(w, cpu_used, NULL);

	if (!time.known)
		return 0;
	if (used.known && used.slow - used.fast < difference * LEAST_SHARE)
		return used.slow - used.fast;
	return time.slow - time.fast;
}

json_t *why_explain(json_t *slow, json_t *fast, const char *phase, double tolerance)
{
	struct why w = {slow, fast, phase, true, MIN(json_array_size(slow), json_array_size(fast))};

	if (w.n < ENOUGH_BLOCKS)
		return NULL;
	for (size_t i = 0; i < w.n; i++) {
		json_t *p = phase_of(json_array_get(slow, i), phase), *q = phase_of(json_array_get(fast, i), phase);
		if (!p || !q)
			return NULL;
		w.per_request &= requests_of(p) >= ENOUGH_REQUESTS && requests_of(q) >= ENOUGH_REQUESTS;
	}
	struct both total = measure(&w, wall, NULL), time = measure(&w, cpu, NULL);
	double difference = total.slow - total.fast, computing = computing_more(&w, difference, time);
	/* A metric such as CPU use differs though the time does not: then the CPU time is all there is to explain. */
	if (!(difference > total.fast * tolerance / 2)) {
		if (!time.known || !time.steady || computing <= 0)
			return NULL;
		return why_computing(&w, computing, time);
	}
	double waiting = difference - MAX(computing, 0.0);
	if (time.known && time.steady && computing >= waiting)
		return why_computing(&w, difference, time);
	return why_waiting(&w, difference, MAX(waiting, 0.0));
}
