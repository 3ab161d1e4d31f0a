/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * High precision event timers: a 64-bit counter at 100 MHz and three timers, all
 * periodic. IA-PC HPET specification 1.0a, section 2.3. No FSB (MSI) delivery.
 *
 * The counter is the machine's clock in units of 10 ns plus an offset. Everything runs
 * under dev.lock, and under it the locks of the 8254 and the RTC, whose
 * interrupts legacy replacement takes over.
 */
#include "base/log.h"
#include "base/util.h"
#include "hw/pc/devices.h"

#define HPET_BASE      0xfed00000ull
#define HPET_TIMERS    3
#define HPET_TICK_NS   10
#define HPET_PERIOD_FS (HPET_TICK_NS * 1000000ull)
/* Periodic interrupts closer than this merge: the main loop must not drown. */
#define HPET_MIN_IRQ_NS 20000

enum {
	HPET_CAP = 0x00,
	HPET_CONFIG = 0x10,
	HPET_STATUS = 0x20,
	HPET_COUNTER = 0xf0,
	HPET_TN = 0x100, /* 0x20 bytes each: */
	HPET_TN_CONFIG = 0,
	HPET_TN_COMPARATOR = 8,
};

#define CONFIG_ENABLE BIT(0)
#define CONFIG_LEGACY BIT(1)

#define TN_LEVEL	BIT(1)
#define TN_ENABLE	BIT(2)
#define TN_PERIODIC	BIT(3)
#define TN_PERIODIC_CAP BIT(4)
#define TN_64BIT_CAP	BIT(5)
#define TN_SET_VALUE	BIT(6)
#define TN_32BIT	BIT(8)
#define TN_ROUTE(c)	(((c) >> 9) & 31)
#define TN_WRITABLE	(TN_LEVEL | TN_ENABLE | TN_PERIODIC | TN_SET_VALUE | TN_32BIT | 0x3e00)
/* Lines a timer may use: IOAPIC inputs 2 and 20 to 23, where a PC of this kind has nothing. */
#define TN_ROUTES 0x00f00004ull

struct hpet_timer {
	struct hpet *hpet;
	unsigned n;
	struct vmtimer timer;
	uint64_t config, comparator, period;
	uint64_t fire; /* counter value of the next match; UINT64_MAX: not armed */
};

struct hpet {
	struct dev dev;
	struct mem_region region;
	uint64_t config, status;
	uint64_t counter; /* while stopped: its value; while it runs: value at guest time 0 */
	struct hpet_timer timer[HPET_TIMERS];
	void (*legacy_hook)(void *opaque, bool legacy);
	void *legacy_opaque;
	uint64_t irqs;
};

/* ---- the counter ----------------------------------------------------------- */

static uint64_t hpet_counter(const struct hpet *s)
{
	if (!(s->config & CONFIG_ENABLE))
		return s->counter;
	return s->counter + vmclock_ns(s->dev.bus->clock) / HPET_TICK_NS;
}

static void hpet_set_counter(struct hpet *s, uint64_t val)
{
	s->counter = val;
	if (s->config & CONFIG_ENABLE)
		s->counter -= vmclock_ns(s->dev.bus->clock) / HPET_TICK_NS;
}

/* ---- interrupts --------------------------------------------------------------- */

/* Where a timer's interrupt goes, or NULL. */
static const struct irq *hpet_line(const struct hpet_timer *t)
{
	const struct bus *bus = t->hpet->dev.bus;
	unsigned route = TN_ROUTE(t->config);

	if ((t->hpet->config & CONFIG_LEGACY) && t->n < 2)
		return &bus->gsi[t->n ? 8 : 0];
	if (!(TN_ROUTES >> route & 1))
		return NULL;
	/* IOAPIC input 2 is where ISA interrupt 0 leads. */
	return &bus->gsi[route == 2 ? 0 : route];
}

static void hpet_raise(struct hpet_timer *t)
{
	const struct irq *line = hpet_line(t);

	if (t->config & TN_LEVEL)
		t->hpet->status |= BIT(t->n);
	if (!(t->config & TN_ENABLE) || !line)
		return;
	counter_add(&t->hpet->irqs, 1);
	if (t->config & TN_LEVEL)
		irq_set(line, 1);
	else
		irq_pulse(line);
}

static void hpet_lower(struct hpet_timer *t)
{
	const struct irq *line = hpet_line(t);

	if (line && (t->config & TN_LEVEL))
		irq_set(line, 0);
}

/* ---- timers --------------------------------------------------------------------- */

/* The next counter value after `now` that matches. In 32-bit mode the low half is compared. */
static uint64_t hpet_next_match(const struct hpet_timer *t, uint64_t now)
{
	if (t->config & TN_32BIT) {
		uint32_t delta = (uint32_t)t->comparator - (uint32_t)now;

		return now + (delta ? delta : 1ull << 32);
	}
	/* A comparator that has passed matches after the counter wraps: in 5,800 years. */
	return t->comparator > now ? t->comparator : UINT64_MAX;
}

static void hpet_arm_at(struct hpet_timer *t, uint64_t fire, uint64_t not_before_ns)
{
	uint64_t now = vmclock_ns(t->hpet->dev.bus->clock), count = hpet_counter(t->hpet), ns;

	t->fire = fire;
	if (fire == UINT64_MAX) {
		vmtimer_cancel(&t->timer);
		return;
	}
	/* Far away is never: UINT64_MAX ns is more than a machine lives. */
	ns = fire <= count					      ? now
	     : (fire - count) > (UINT64_MAX - now) / HPET_TICK_NS - 1 ? UINT64_MAX - 1
								      : now + (fire - count) * HPET_TICK_NS;
	vmtimer_arm(&t->timer, MAX(ns, not_before_ns));
}

static void hpet_update_timer(struct hpet_timer *t)
{
	bool wanted = (t->hpet->config & CONFIG_ENABLE) && (t->config & (TN_ENABLE | TN_LEVEL));

	hpet_arm_at(t, wanted ? hpet_next_match(t, hpet_counter(t->hpet)) : UINT64_MAX, 0);
}

static void hpet_update_timers(struct hpet *s)
{
	for (unsigned i = 0; i < HPET_TIMERS; i++)
		hpet_update_timer(&s->timer[i]);
}

/* Move a periodic timer's comparator behind `now`. */
static void hpet_advance(struct hpet_timer *t, uint64_t now)
{
	uint64_t mask = t->config & TN_32BIT ? UINT32_MAX : UINT64_MAX, late;

	if (!t->period)
		return;
	late = (now - t->fire) / t->period; /* whole periods missed */
	t->comparator = (t->comparator + (late + 1) * t->period) & mask;
}

/* The loop's thread. */
static void hpet_expired(void *arg)
{
	struct hpet_timer *t = arg;
	struct hpet *s = t->hpet;
	uint64_t now;

	pthread_mutex_lock(&s->dev.lock);
	now = hpet_counter(s);
	if (t->fire == UINT64_MAX || !(s->config & CONFIG_ENABLE)) {
		/* cancelled meanwhile */
	} else if (now < t->fire) {
		hpet_arm_at(t, t->fire, 0);
	} else {
		hpet_raise(t);
		if (t->config & TN_PERIODIC)
			hpet_advance(t, now);
		hpet_arm_at(t, hpet_next_match(t, now), vmclock_ns(s->dev.bus->clock) + HPET_MIN_IRQ_NS);
	}
	pthread_mutex_unlock(&s->dev.lock);
}

/* ---- registers -------------------------------------------------------------------- */

static void hpet_tell_legacy(struct hpet *s, bool legacy)
{
	for (struct dev *d = s->dev.bus->devices; d; d = d->next) {
		if (d->ops == &pit_dev_ops)
			pit_set_irq_enabled(d, !legacy);
		else if (d->ops == &rtc_dev_ops)
			rtc_set_irq_enabled(d, !legacy);
	}
	if (s->legacy_hook)
		s->legacy_hook(s->legacy_opaque, legacy);
}

static void hpet_write_config(struct hpet *s, uint64_t val)
{
	uint64_t old = s->config, count = hpet_counter(s);

	for (unsigned i = 0; i < HPET_TIMERS; i++) { /* lines may change: none stays high behind */
		if (s->status & BIT(i))
			hpet_lower(&s->timer[i]);
	}
	s->config = val & (CONFIG_ENABLE | CONFIG_LEGACY);
	hpet_set_counter(s, count);
	if ((old ^ s->config) & CONFIG_LEGACY)
		hpet_tell_legacy(s, s->config & CONFIG_LEGACY);
	for (unsigned i = 0; i < HPET_TIMERS; i++) {
		const struct irq *line = hpet_line(&s->timer[i]);

		if ((s->status & BIT(i)) && line && (s->timer[i].config & TN_ENABLE))
			irq_set(line, 1);
	}
	hpet_update_timers(s);
}

static void hpet_write_status(struct hpet *s, uint64_t val)
{
	for (unsigned i = 0; i < HPET_TIMERS; i++) {
		if (val & s->status & BIT(i)) {
			s->status &= ~BIT(i);
			hpet_lower(&s->timer[i]);
		}
	}
}

static void hpet_write_timer_config(struct hpet_timer *t, uint64_t val)
{
	if (t->hpet->status & BIT(t->n))
		hpet_lower(t);
	t->config = (val & TN_WRITABLE) | (t->config & ~(uint64_t)TN_WRITABLE);
	if (!(t->config & TN_LEVEL))
		t->hpet->status &= ~BIT(t->n);
	if (t->config & TN_32BIT) {
		t->comparator = (uint32_t)t->comparator;
		t->period = (uint32_t)t->period;
	}
	if ((t->hpet->status & BIT(t->n)) && (t->config & TN_ENABLE) && hpet_line(t))
		irq_set(hpet_line(t), 1);
	hpet_update_timer(t);
}

/* A periodic timer takes the value as its period, and with SET_VALUE as its next match too. */
static void hpet_write_comparator(struct hpet_timer *t, uint64_t val)
{
	if (t->config & TN_32BIT)
		val = (uint32_t)val;
	if (!(t->config & TN_PERIODIC) || (t->config & TN_SET_VALUE))
		t->comparator = val;
	if (t->config & TN_PERIODIC)
		t->period = val;
	t->config &= ~(uint64_t)TN_SET_VALUE;
	hpet_update_timer(t);
}

static struct hpet_timer *hpet_timer_at(struct hpet *s, uint64_t off)
{
	uint64_t n = (off - HPET_TN) / 0x20;

	return off >= HPET_TN && n < HPET_TIMERS ? &s->timer[n] : NULL;
}

/* The 64-bit register at an offset that is a multiple of 8. */
static uint64_t hpet_get(struct hpet *s, uint64_t off)
{
	struct hpet_timer *t = hpet_timer_at(s, off);

	if (t) {
		switch (off & 0x1f) {
		case HPET_TN_CONFIG: return t->config;
		case HPET_TN_COMPARATOR: return t->comparator;
		}
		return 0;
	}
	switch (off) {
	case HPET_CAP: return HPET_PERIOD_FS << 32 | 0x8086u << 16 | BIT(15) | BIT(13) | (HPET_TIMERS - 1) << 8 | 1;
	case HPET_CONFIG: return s->config;
	case HPET_STATUS: return s->status;
	case HPET_COUNTER: return hpet_counter(s);
	}
	return 0;
}

static void hpet_put(struct hpet *s, uint64_t off, uint64_t val)
{
	struct hpet_timer *t = hpet_timer_at(s, off);

	if (t) {
		switch (off & 0x1f) {
		case HPET_TN_CONFIG: hpet_write_timer_config(t, val); break;
		case HPET_TN_COMPARATOR: hpet_write_comparator(t, val); break;
		}
		return;
	}
	switch (off) {
	case HPET_CONFIG: hpet_write_config(s, val); break;
	case HPET_COUNTER:
		hpet_set_counter(s, val);
		hpet_update_timers(s);
		break;
	}
}

static uint64_t hpet_read(void *opaque, uint64_t off, unsigned size)
{
	uint64_t val = hpet_get(opaque, off & ~7ull);

	return size == 8 ? val : (uint32_t)(val >> (off & 4 ? 32 : 0));
}

static void hpet_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct hpet *s = opaque;
	struct hpet_timer *t = hpet_timer_at(s, off);

	/* Write-one-to-clear: the other half must not be written back. */
	if ((off & ~7ull) == HPET_STATUS) {
		if (!(off & 4))
			hpet_write_status(s, val);
		return;
	}
	if (size == 4) {
		uint64_t old = hpet_get(s, off & ~7ull);

		/* Nobody in 32-bit mode writes the comparator's high half; the period's low half is not the match's. */
		if (t && (off & 0x1f) == HPET_TN_COMPARATOR + 4 && (t->config & TN_32BIT))
			return;
		if (t && (off & 0x1f & ~4u) == HPET_TN_COMPARATOR && (t->config & TN_PERIODIC) &&
		    !(t->config & TN_SET_VALUE))
			old = t->period;
		val = off & 4 ? (old & UINT32_MAX) | val << 32 : (old & ~(uint64_t)UINT32_MAX) | (uint32_t)val;
	}
	hpet_put(s, off & ~7ull, val);
}

/* ---- life cycle ------------------------------------------------------------------- */

void hpet_set_legacy_hook(struct dev *d, void (*fn)(void *opaque, bool legacy), void *opaque)
{
	struct hpet *s = container_of(d, struct hpet, dev);

	s->legacy_hook = fn;
	s->legacy_opaque = opaque;
}

static void hpet_reset(struct dev *d)
{
	struct hpet *s = container_of(d, struct hpet, dev);

	pthread_mutex_lock(&d->lock);
	hpet_write_status(s, s->status);
	/* Or the machine would start again without its timer interrupt. */
	if (s->config & CONFIG_LEGACY)
		hpet_tell_legacy(s, false);
	s->config = s->counter = 0;
	for (unsigned i = 0; i < HPET_TIMERS; i++) {
		struct hpet_timer *t = &s->timer[i];

		t->config = TN_ROUTES << 32 | TN_PERIODIC_CAP | TN_64BIT_CAP;
		t->comparator = UINT64_MAX;
		t->period = 0;
		t->fire = UINT64_MAX;
		vmtimer_cancel(&t->timer);
	}
	pthread_mutex_unlock(&d->lock);
}

static const struct region_ops hpet_ops = {hpet_read, hpet_write, 4, 8};

static int hpet_realize(struct dev *d, struct err *err)
{
	struct hpet *s = container_of(d, struct hpet, dev);

	for (unsigned i = 0; i < HPET_TIMERS; i++) {
		s->timer[i].hpet = s;
		s->timer[i].n = i;
		vmtimer_init(&s->timer[i].timer, d->bus->clock, d->bus->loop, hpet_expired, &s->timer[i]);
	}
	hpet_reset(d);
	s->region = (struct mem_region){.name = "hpet", .size = 0x400, .ops = &hpet_ops, .opaque = s, .lock = &d->lock};
	mem_map_region(d->bus->mem, &s->region, HPET_BASE, 1);
	return 0;
}

static void hpet_unrealize(struct dev *d)
{
	struct hpet *s = container_of(d, struct hpet, dev);

	mem_unmap_region(d->bus->mem, &s->region);
	for (unsigned i = 0; i < HPET_TIMERS; i++)
		vmtimer_fini(&s->timer[i].timer);
}

static const struct state_field hpet_timer_fields[] = {
    STATE_INT(struct hpet_timer, config),
    STATE_INT(struct hpet_timer, comparator),
    STATE_INT(struct hpet_timer, period),
    STATE_INT(struct hpet_timer, fire),
    STATE_INT(struct hpet_timer, timer.guest_deadline),
    {0},
};
static const struct state_field hpet_fields[] = {
    STATE_INT_MAX(struct hpet, config, CONFIG_ENABLE | CONFIG_LEGACY),
    STATE_INT_MAX(struct hpet, status, BIT(HPET_TIMERS) - 1),
    STATE_INT(struct hpet, counter),
    STATE_STRUCTS(struct hpet, timer, hpet_timer_fields),
    {0},
};

/* Capabilities are ours. That ISA interrupts 0 and 8 were taken over, their owners have saved themselves. */
static int hpet_post_load(void *obj, struct err *err)
{
	struct hpet *s = obj;

	for (unsigned i = 0; i < HPET_TIMERS; i++)
		s->timer[i].config =
		    (s->timer[i].config & TN_WRITABLE) | TN_ROUTES << 32 | TN_PERIODIC_CAP | TN_64BIT_CAP;
	return 0;
}

static const struct state hpet_state = {
    .name = "hpet", .version = 1, .min_version = 1, .fields = hpet_fields, .post_load = hpet_post_load};

static const struct counter hpet_counters[] = {
    {"irqs", offsetof(struct hpet, irqs), "timer interrupts raised"},
    {0},
};

const struct dev_ops hpet_dev_ops = {
    .type = {.name = "hpet", .about = "high precision event timers", .size = sizeof(struct hpet)},
    .bus_kind = DEV_BUS_SYSTEM,
    .realize = hpet_realize,
    .unrealize = hpet_unrealize,
    .reset = hpet_reset,
    .state = &hpet_state,
    .counters = hpet_counters,
};
