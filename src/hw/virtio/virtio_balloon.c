// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The virtio memory balloon: VIRTIO 1.1, 5.5, with free page reporting (1.2, 5.5.6.7).
 * Pages in the balloon, and pages reported free, go back to the host at once
 * (mem_discard); they read as zeros when the guest takes them again.
 *
 *   queue 0   inflate: page frame numbers the driver gives up
 *   queue 1   deflate: those it takes back
 *   queue 2   statistics: one buffer, returned when new ones are wanted
 *   queue 3   free page reporting: the free ranges themselves as writable buffers
 *
 * The last one's number is that of QEMU and of Linux, which do not count the queue of
 * a feature that is not offered (free page hints).
 *
 * Locking: dev.lock; pages are given back without it.
 */
#include "hw/virtio/virtio_balloon.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/iov.h"
#include "base/util.h"
#include "hw/virtio/devices.h"
#include "hw/virtio/virtio_pci.h"

#define VIRTIO_BALLOON_F_STATS_VQ	1
#define VIRTIO_BALLOON_F_DEFLATE_ON_OOM 2
#define VIRTIO_BALLOON_F_REPORTING	5

/* 5.5.4 */
enum { CFG_NUM_PAGES = 0, CFG_ACTUAL = 4, CFG_SIZE = 8 };

enum { QUEUE_INFLATE, QUEUE_DEFLATE, QUEUE_STATS, QUEUE_REPORTING };

#define QUEUE_SIZE   128
#define PFN_SHIFT    12
#define MAX_PFNS     65536u /* of one chain; the rest of a longer one is not looked at */
#define MAX_BATCH    16	    /* chains before other devices get their turn */
#define EVENT_PAUSE  1000000000ull
#define SECOND	     1000000000ull
#define STAT_LEN     10 /* le16 tag, le64 value */
#define STAT_UNKNOWN UINT64_MAX

/* 5.5.6.6, under the names QEMU gives them. */
static const char *const stat_names[] = {
    "stat-swap-in",	 "stat-swap-out",	  "stat-major-faults", "stat-minor-faults", "stat-free-memory",
    "stat-total-memory", "stat-available-memory", "stat-disk-caches",  "stat-htlb-pgalloc", "stat-htlb-pgfail",
};

struct virtio_balloon {
	struct virtio_pci t;
	bool deflate_on_oom, reporting;
	int64_t interval; /* seconds between statistics; 0: none */
	char *stats_text; /* property guest-stats: JSON */
	uint64_t stats[ARRAY_SIZE(stat_names)];
	uint64_t last_update; /* seconds since 1970; 0: never */
	bool have_buffer;     /* the driver's statistics buffer is here */
	uint32_t stats_head;
	struct timer stats_timer, event_timer;
	uint64_t last_event;		       /* clock_raw_ns */
	uint32_t told;			       /* pages, in the last event */
	uint64_t inflated, deflated, reported; /* counters: pages, pages, bytes */
};

static struct virtio_balloon *balloon_of(struct virtio *v)
{
	return container_of(v, struct virtio_balloon, t.vio);
}

static uint64_t ram_bytes(const struct mem_map *m)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < m->nblocks; i++)
		n += m->block[i].readonly ? 0 : m->block[i].size;
	return n;
}

/* ---- for the monitors ------------------------------------------------------------------ */

struct dev *virtio_balloon_find(struct bus *bus)
{
	for (struct dev *d = bus->devices; d; d = d->next)
		if (d->ops == &virtio_balloon_pci_ops || d->ops == &virtio_balloon_ops)
			return d;
	return NULL;
}

static uint64_t actual_locked(const struct virtio_balloon *b)
{
	const uint64_t all = ram_bytes(b->t.vio.mem);
	const uint64_t held = (uint64_t)ld32le(b->t.vio.config + CFG_ACTUAL) << PFN_SHIFT;

	return held < all ? all - held : 0;
}

uint64_t virtio_balloon_actual(struct dev *d)
{
	struct virtio_balloon *b = container_of(d, struct virtio_balloon, t.pci.dev);
	uint64_t n;

	virtio_lock(&b->t.vio);
	n = actual_locked(b);
	virtio_unlock(&b->t.vio);
	return n;
}

void virtio_balloon_set(struct dev *d, uint64_t bytes)
{
	struct virtio_balloon *b = container_of(d, struct virtio_balloon, t.pci.dev);
	struct virtio *v = &b->t.vio;
	const uint64_t all = ram_bytes(v->mem);

	virtio_lock(v);
	st32le(v->config + CFG_NUM_PAGES, (uint32_t)((all - MIN(bytes, all)) >> PFN_SHIFT));
	virtio_config_changed(v);
	virtio_unlock(v);
}

/* BALLOON_CHANGE, at most once a second; main loop's thread. */
static void event_due(void *arg)
{
	struct virtio_balloon *b = arg;
	struct bus *bus = b->t.pci.dev.bus;
	uint64_t actual;
	char json[64];

	virtio_lock(&b->t.vio);
	actual = actual_locked(b);
	b->told = ld32le(b->t.vio.config + CFG_ACTUAL);
	b->last_event = clock_raw_ns();
	virtio_unlock(&b->t.vio);
	snprintf(json, sizeof(json), "{\"actual\": %" PRIu64 "}", actual);
	if (bus->event)
		bus->event(bus->opaque, "BALLOON_CHANGE", json);
}

/* Lock held. */
static void actual_changed(struct virtio_balloon *b)
{
	if (ld32le(b->t.vio.config + CFG_ACTUAL) != b->told)
		timer_arm(&b->event_timer, b->last_event ? b->last_event + EVENT_PAUSE : clock_raw_ns());
}

/* ---- pages ------------------------------------------------------------------------------- */

/* Pages first..first+n of guest memory go back to the host, where they are RAM. */
static void give_back(struct virtio *v, uint64_t first, uint64_t n)
{
	mem_discard(v->mem, first << PFN_SHIFT, n << PFN_SHIFT);
}

/* The frame numbers in a copy of the chain's buffers. */
static unsigned take_pfns(struct virtio *v, const struct iovec *iov, int niov, bool inflate)
{
	uint8_t buf[4096];
	uint64_t at = 0, first = 0, run = 0;
	unsigned total = 0;
	size_t n;

	while (total < MAX_PFNS && (n = iov_read(iov, niov, at, buf, sizeof(buf)) / 4) != 0) {
		for (size_t i = 0; i < n && inflate; i++) {
			const uint32_t pfn = ld32le(buf + 4 * i);
			if (run && pfn == first + run) { /* rising */
				run++;
			} else if (run && pfn + 1ull == first) { /* falling, as Linux lists them */
				first--;
				run++;
			} else {
				give_back(v, first, run);
				first = pfn;
				run = 1;
			}
		}
		total += (unsigned)n;
		at += 4 * n;
	}
	give_back(v, first, run);
	return total;
}

/* Free ranges: whole pages of them. */
static uint64_t take_ranges(struct virtio *v, const struct iovec *iov, int niov)
{
	uint64_t bytes = 0;

	for (int i = 0; i < niov; i++) {
		const uintptr_t from = ALIGN_UP((uintptr_t)iov[i].iov_base, PAGE_SIZE);
		const uintptr_t end = ALIGN_DOWN((uintptr_t)iov[i].iov_base + iov[i].iov_len, PAGE_SIZE);
		if (from >= end)
			continue;
		mem_discard_host(v->mem, (uint8_t *)from, end - from);
		bytes += end - from;
	}
	return bytes;
}

static void pages_handle(struct virtio *v, struct virtio_queue *q)
{
	struct virtio_balloon *b = balloon_of(v);
	unsigned left = MAX_BATCH;

	virtio_lock(v);
	do {
		virtq_notify_off(&q->vq);
		while (left && virtio_pop(v, q)) {
			struct virtq_chain *c = &v->chain; /* this thread's: nobody else pops */
			const uint32_t generation = v->generation;
			uint64_t bytes = 0;
			unsigned n = 0;

			left--;
			virtio_unlock(v);
			if (q->index == QUEUE_REPORTING)
				bytes = take_ranges(v, c->iov + c->nout, c->nin);
			else
				n = take_pfns(v, c->iov, c->nout, q->index == QUEUE_INFLATE);
			virtio_lock(v);
			counter_add(&b->reported, bytes);
			counter_add(q->index == QUEUE_INFLATE ? &b->inflated : &b->deflated, n);
			if (generation != v->generation)
				break; /* the driver reset the device meanwhile */
			virtio_push_now(v, q, 0);
		}
	} while (virtio_notify_on(v, q) && left);
	virtio_signal(v, q);
	if (!left)
		virtio_kick(v, q);
	virtio_unlock(v);
}

/* ---- statistics ---------------------------------------------------------------------------- */

static void print_stats(struct virtio_balloon *b)
{
	char text[1024] = "{\"stats\": {";
	size_t at = strlen(text);

	for (size_t i = 0; i < ARRAY_SIZE(stat_names); i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s\"%s\": %" PRId64, i ? ", " : "", stat_names[i],
				       (int64_t)b->stats[i]);
	snprintf(text + at, sizeof(text) - at, "}, \"last-update\": %" PRIu64 "}", b->last_update);
	free(b->stats_text);
	b->stats_text = strdup(text);
}

static void stats_handle(struct virtio *v, struct virtio_queue *q)
{
	struct virtio_balloon *b = balloon_of(v);
	const struct virtq_chain *c = &v->chain;
	uint8_t s[STAT_LEN];
	unsigned left = MAX_BATCH;

	virtio_lock(v);
	while (left-- && virtio_pop(v, q)) {
		if (b->have_buffer) { /* one is enough: the older goes back */
			virtq_push(&q->vq, b->stats_head, NULL, 0, 0);
			q->pushed = true;
		}
		b->have_buffer = true;
		b->stats_head = c->head;
		for (unsigned i = 0; i < 2 * ARRAY_SIZE(stat_names); i++) {
			if (iov_read(c->iov, c->nout, i * STAT_LEN, s, sizeof(s)) < sizeof(s))
				break;
			if (ld16le(s) < ARRAY_SIZE(stat_names))
				b->stats[ld16le(s)] = ld64le(s + 2);
		}
		b->last_update = (uint64_t)time(NULL);
		print_stats(b);
	}
	virtio_signal(v, q);
	virtio_unlock(v);
}

static void stats_due(void *arg)
{
	struct virtio_balloon *b = arg;
	struct virtio *v = &b->t.vio;
	struct virtio_queue *q = &v->queue[QUEUE_STATS];

	virtio_lock(v);
	if (b->have_buffer && !v->paused) {
		b->have_buffer = false;
		virtq_push(&q->vq, b->stats_head, NULL, 0, 0);
		q->pushed = true;
		virtio_signal(v, q);
	}
	if (b->interval > 0)
		timer_arm(&b->stats_timer, clock_raw_ns() + (uint64_t)b->interval * SECOND);
	virtio_unlock(v);
}

/* guest-stats-polling-interval was set; main loop's thread, no lock. */
static void balloon_prop_changed(struct dev *d)
{
	struct virtio_balloon *b = container_of(d, struct virtio_balloon, t.pci.dev);

	if (b->interval > 0)
		timer_arm(&b->stats_timer, clock_raw_ns() + (uint64_t)b->interval * SECOND);
	else
		timer_cancel(&b->stats_timer);
}

/* ---- life cycle ------------------------------------------------------------------------------ */

static void balloon_config_write(struct virtio *v, unsigned off, unsigned size, uint32_t val)
{
	for (unsigned i = 0; i < size; i++)
		if (off + i >= CFG_ACTUAL && off + i < CFG_SIZE)
			v->config[off + i] = (uint8_t)(val >> (8 * i));
	actual_changed(balloon_of(v));
}

/* A driver that starts anew has no page in the balloon. */
static void balloon_reset(struct virtio *v)
{
	struct virtio_balloon *b = balloon_of(v);

	b->have_buffer = false;
	st32le(v->config + CFG_ACTUAL, 0);
	for (size_t i = 0; i < ARRAY_SIZE(stat_names); i++)
		b->stats[i] = STAT_UNKNOWN;
	actual_changed(b);
}

static const struct virtio_ops balloon_ops = {
    .id = VIRTIO_ID_BALLOON,
    .class_code = 0x00ff00,
    .config_write = balloon_config_write,
    .reset = balloon_reset,
    .config_changing = CFG_NUM_PAGES,
    .config_changing_len = CFG_SIZE,
};

static void balloon_unrealize(struct dev *d)
{
	struct virtio_balloon *b = container_of(d, struct virtio_balloon, t.pci.dev);

	virtio_pci_unrealize(&b->t);
	timer_cancel_sync(&b->stats_timer);
	timer_cancel_sync(&b->event_timer);
}

static int balloon_realize(struct dev *d, struct err *err)
{
	struct virtio_balloon *b = container_of(d, struct virtio_balloon, t.pci.dev);
	struct virtio *v = &b->t.vio;
	int ret;

	timer_init(&b->stats_timer, d->bus->loop, stats_due, b);
	timer_init(&b->event_timer, d->bus->loop, event_due, b);
	if (virtio_balloon_find(d->bus))
		return err_set(err, -EBUSY, "Only one balloon device is supported");
	if (b->interval < 0 || b->interval > UINT32_MAX)
		return err_set(err, -EINVAL, "guest-stats-polling-interval=%lld: seconds, 0 to 4294967295",
			       (long long)b->interval);
	ret = virtio_init(v, d, NULL, &balloon_ops, b->reporting ? 4 : 3, err);
	if (!ret) {
		virtio_set_queue(v, QUEUE_INFLATE, "inflate", QUEUE_SIZE, pages_handle);
		virtio_set_queue(v, QUEUE_DEFLATE, "deflate", QUEUE_SIZE, pages_handle);
		virtio_set_queue(v, QUEUE_STATS, "statistics", QUEUE_SIZE, stats_handle);
		if (b->reporting)
			virtio_set_queue(v, QUEUE_REPORTING, "reporting", 32, pages_handle);
		v->config_len = CFG_SIZE;
		v->host_features |= BIT(VIRTIO_BALLOON_F_STATS_VQ);
		v->host_features |= b->deflate_on_oom ? BIT(VIRTIO_BALLOON_F_DEFLATE_ON_OOM) : 0;
		v->host_features |= b->reporting ? BIT(VIRTIO_BALLOON_F_REPORTING) : 0;
		balloon_reset(v);
		print_stats(b);
		ret = virtio_pci_realize(&b->t, err);
	}
	if (ret)
		balloon_unrealize(d);
	else
		balloon_prop_changed(d);
	return ret;
}

#define OFFSET(f) offsetof(struct virtio_balloon, f)
static const struct prop balloon_props[] = {
    {.name = "deflate-on-oom",
     .kind = PROP_BOOL,
     .offset = OFFSET(deflate_on_oom),
     .def = "off",
     .help = "the guest may take pages back when it runs out of memory"},
    {.name = "free-page-reporting",
     .kind = PROP_BOOL,
     .offset = OFFSET(reporting),
     .def = "off",
     .help = "the guest tells which memory is free, and the host takes it"},
    {.name = "guest-stats-polling-interval",
     .kind = PROP_I64,
     .offset = OFFSET(interval),
     .def = "0",
     .flags = PROP_RUNTIME,
     .help = "seconds between the guest's statistics; 0: none"},
    {.name = "guest-stats",
     .kind = PROP_STR,
     .offset = OFFSET(stats_text),
     .flags = PROP_READONLY | PROP_JSON,
     .help = "the guest's memory statistics"},
    {0},
};

static const struct prop no_props[] = {{0}};

static const struct counter balloon_counters[] = {
    VIRTIO_PCI_COUNTERS,
    {"inflated", OFFSET(inflated), "pages the guest gave up"},
    {"deflated", OFFSET(deflated), "pages it took back"},
    {"reported", OFFSET(reported), "bytes reported free and taken"},
    {0},
};

static const struct state_field balloon_fields[] = {
    STATE_INTS(struct virtio_balloon, stats),	   STATE_INT(struct virtio_balloon, last_update),
    STATE_INT(struct virtio_balloon, have_buffer), STATE_INT(struct virtio_balloon, stats_head),
    STATE_INT(struct virtio_balloon, told),	   {0}};

static int balloon_post_load(void *obj, struct err *err)
{
	struct virtio_balloon *b = obj;
	const struct virtq *q = &b->t.vio.queue[QUEUE_STATS].vq;

	/* The buffer held is one that is in use: a chain, or with packed rings as many slots as its handle says. */
	if (b->have_buffer && (!q->ready || !q->inuse || (q->packed && b->stats_head >> 16 > q->inuse)))
		return err_set(err, -EINVAL, "a statistics buffer of no queue: the snapshot is corrupted");
	print_stats(b);
	return 0;
}

static const struct state balloon_state = {.name = "virtio-balloon",
					   .version = 1,
					   .min_version = 1,
					   .parent = &virtio_pci_state,
					   .fields = balloon_fields,
					   .post_load = balloon_post_load};

#define BALLOON_DEVICE(symbol, type_name, type_about, type_parent, type_props)                                         \
	const struct dev_ops symbol = {                                                                                \
	    .type = {.name = type_name,                                                                                \
		     .about = type_about,                                                                              \
		     .parent = type_parent,                                                                            \
		     .size = sizeof(struct virtio_balloon),                                                            \
		     .props = type_props},                                                                             \
	    .bus_kind = DEV_BUS_PCI,                                                                                   \
	    .user_creatable = true,                                                                                    \
	    .realize = balloon_realize,                                                                                \
	    .unrealize = balloon_unrealize,                                                                            \
	    .reset = virtio_pci_reset,                                                                                 \
	    .pause = virtio_pci_pause,                                                                                 \
	    .resume = virtio_pci_resume,                                                                               \
	    .state = &balloon_state,                                                                                   \
	    .prop_changed = balloon_prop_changed,                                                                      \
	    .counters = balloon_counters,                                                                              \
	}

BALLOON_DEVICE(virtio_balloon_pci_ops, "virtio-balloon-pci", "memory the guest gives back to the host", "virtio-pci",
	       balloon_props);
BALLOON_DEVICE(virtio_balloon_ops, "virtio-balloon", "the same as virtio-balloon-pci", "virtio-balloon-pci", no_props);
