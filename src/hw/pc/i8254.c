/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * 8254 programmable interval timer: three counters at 1,193,182 Hz (Intel 8254 data
 * sheet, order 231164), with port 61h, which holds counter 2's gate and shows its
 * output. Counter 0 drives IRQ 0, counter 2 would drive the speaker.
 *
 * Nothing counts: values and outputs are computed from the guest time, in ticks of
 * the 8254, at which a counter was loaded. Only counter 0 has a host timer, for the
 * rising edges of its output. Everything runs under dev.lock.
 */
#include "base/clock.h"
#include "base/util.h"
#include "cpu/chips.h"
#include "hw/pc/devices.h"

#define PIT_HZ 1193182ull

/* A counter 0 that asks for more interrupts than this gets fewer: the main loop must not drown. */
#define PIT_MIN_IRQ_TICKS (PIT_HZ / 50000)

enum pit_mode { PIT_TERMINAL_COUNT, PIT_ONE_SHOT, PIT_RATE, PIT_SQUARE, PIT_SOFT_STROBE, PIT_HARD_STROBE };

enum { RW_LATCH, RW_LOW, RW_HIGH, RW_BOTH };

#define PORT61_GATE2   BIT(0)
#define PORT61_SPEAKER BIT(1)
#define PORT61_REFRESH BIT(4)
#define PORT61_OUT2    BIT(5)

struct pit_counter {
	uint8_t mode, rw; /* enum pit_mode, RW_ */
	bool bcd, gate;
	bool loaded;		    /* a count was written since the control word */
	bool counting;		    /* gate permitting; one-shot modes: triggered */
	bool write_high, read_high; /* RW_BOTH: the high byte is next */
	bool count_latched, status_latched;
	uint8_t write_low, status_latch;
	uint16_t count_latch;
	uint32_t reload, next_reload; /* 1..65536 (BCD: ..10000); next: from the next period on, 0 = none */
	uint64_t start;		      /* tick at which the present count began */
	uint64_t held;		      /* gate low: ticks counted so far */
};

struct pit {
	struct dev dev;
	struct mem_region region, port61_region;
	struct irq irq;
	struct vmtimer timer;
	bool irq_enabled; /* false while the HPET replaces the 8254 */
	uint64_t edge;	  /* tick of the next rising edge of counter 0; UINT64_MAX: none */
	struct pit_counter counter[3];
	uint8_t port61;
	uint64_t irqs;
};

/* ---- time ---------------------------------------------------------------- */

static uint64_t pit_ticks(const struct pit *s)
{
	return muldiv64(vmclock_ns(s->dev.bus->clock), PIT_HZ, NSEC_PER_SEC);
}

static uint64_t pit_tick_ns(uint64_t tick)
{
	/* Round up: at that time the tick has passed. */
	return muldiv64(tick, NSEC_PER_SEC, PIT_HZ) + 1;
}

static bool pit_periodic(const struct pit_counter *c)
{
	return c->mode == PIT_RATE || c->mode == PIT_SQUARE;
}

/* Gate low stops all but the one-shots, which it only triggers. */
static bool pit_gate_levels(const struct pit_counter *c)
{
	return c->mode != PIT_ONE_SHOT && c->mode != PIT_HARD_STROBE;
}

/* Ticks since the count began. */
static uint64_t pit_elapsed(const struct pit_counter *c, uint64_t now)
{
	if (!c->counting || (!c->gate && pit_gate_levels(c)))
		return c->held;
	return now - c->start;
}

/* A new count of a periodic mode begins when the old period ends. */
static void pit_advance(struct pit_counter *c, uint64_t now)
{
	if (c->next_reload && pit_elapsed(c, now) >= c->reload) {
		c->start += c->reload;
		c->reload = c->next_reload;
		c->next_reload = 0;
	}
}

/* ---- count and output ------------------------------------------------------ */

static uint16_t pit_to_bcd(uint32_t v)
{
	return (uint16_t)(v / 1000 % 10 << 12 | v / 100 % 10 << 8 | v / 10 % 10 << 4 | v % 10);
}

static uint32_t pit_from_bcd(uint16_t v)
{
	return (v >> 12 & 15) * 1000u + (v >> 8 & 15) * 100u + (v >> 4 & 15) * 10u + (v & 15);
}

static uint16_t pit_count(const struct pit_counter *c, uint64_t now)
{
	uint32_t modulus = c->bcd ? 10000 : 65536, count;
	uint64_t t = pit_elapsed(c, now);

	if (!c->loaded)
		return 0;
	switch (c->mode) {
	case PIT_RATE: count = c->reload - (uint32_t)(t % c->reload); break;
	case PIT_SQUARE: /* counts down by two, twice a period */
		count = (c->reload - (uint32_t)(2 * t % c->reload)) & ~1u;
		break;
	default: /* goes on below zero */ count = (uint32_t)((c->reload + modulus - t % modulus) % modulus); break;
	}
	count %= modulus;
	return c->bcd ? pit_to_bcd(count) : (uint16_t)count;
}

static bool pit_output(const struct pit_counter *c, uint64_t now)
{
	uint64_t t = pit_elapsed(c, now);

	if (!c->loaded)
		return c->mode != PIT_TERMINAL_COUNT;
	switch (c->mode) {
	case PIT_TERMINAL_COUNT: return t >= c->reload;
	case PIT_ONE_SHOT: return !c->counting || t >= c->reload;
	case PIT_RATE: return !c->gate || t % c->reload != c->reload - 1;
	case PIT_SQUARE: return !c->gate || t % c->reload < (c->reload + 1) / 2;
	default: return !c->counting || t != c->reload;
	}
}

/* ---- IRQ 0 ------------------------------------------------------------------ */

/* The next rising edge of counter 0 after tick `now`. Its gate is always high. */
static uint64_t pit_next_edge(const struct pit_counter *c, uint64_t now)
{
	uint64_t t = now - c->start;

	if (!c->loaded)
		return UINT64_MAX;
	if (pit_periodic(c))
		return c->start + (t / c->reload + 1) * c->reload;
	if (c->mode == PIT_TERMINAL_COUNT && t < c->reload)
		return c->start + c->reload;
	if (c->mode == PIT_SOFT_STROBE && t <= c->reload)
		return c->start + c->reload + 1;
	return UINT64_MAX;
}

static void pit_arm(struct pit *s)
{
	if (s->edge == UINT64_MAX || !s->irq_enabled)
		vmtimer_cancel(&s->timer);
	else
		vmtimer_arm(&s->timer, pit_tick_ns(s->edge));
}

/* Counter 0 was programmed. */
static void pit_restart_irq(struct pit *s)
{
	uint64_t now = pit_ticks(s);

	s->edge = pit_next_edge(&s->counter[0], now);
	if (s->irq_enabled)
		irq_set(&s->irq, pit_output(&s->counter[0], now));
	pit_arm(s);
}

/* The loop's thread. A late one catches up at four times the pace instead of losing ticks: old
 * guests count them to know the time. */
static void pit_timer(void *arg)
{
	struct pit *s = arg;
	struct pit_counter *c = &s->counter[0];
	uint64_t now, pace;

	pthread_mutex_lock(&s->dev.lock);
	now = pit_ticks(s);
	if (s->edge == UINT64_MAX || !s->irq_enabled || now < s->edge) {
		pit_arm(s);
		pthread_mutex_unlock(&s->dev.lock);
		return;
	}
	pit_advance(c, s->edge);
	irq_set(&s->irq, 0);
	irq_set(&s->irq, 1);
	counter_add(&s->irqs, 1);
	pace = MAX(c->reload / 4, PIT_MIN_IRQ_TICKS);
	/* More than a second behind is not a delay but a stop. */
	if (now - s->edge > PIT_HZ || c->reload < PIT_MIN_IRQ_TICKS)
		s->edge = pit_next_edge(c, now);
	else
		s->edge = pit_next_edge(c, s->edge);
	if (s->edge == UINT64_MAX)
		vmtimer_cancel(&s->timer);
	else
		vmtimer_arm(&s->timer, pit_tick_ns(MAX(s->edge, now + pace)));
	pthread_mutex_unlock(&s->dev.lock);
}

void pit_set_irq_enabled(struct dev *d, bool on)
{
	struct pit *s = container_of(d, struct pit, dev);

	pthread_mutex_lock(&d->lock);
	s->irq_enabled = on;
	pit_restart_irq(s);
	pthread_mutex_unlock(&d->lock);
}

/* ---- programming --------------------------------------------------------------- */

static void pit_set_gate(struct pit *s, struct pit_counter *c, bool gate)
{
	uint64_t now = pit_ticks(s);

	if (gate == c->gate)
		return;
	if (!gate) {
		pit_advance(c, now);
		if (pit_gate_levels(c))
			c->held = pit_elapsed(c, now);
		c->gate = false;
		return;
	}
	c->gate = true;
	if (!c->loaded)
		return;
	/* Rising edge: modes 0 and 4 go on, the others start anew. */
	if (c->mode == PIT_TERMINAL_COUNT || c->mode == PIT_SOFT_STROBE) {
		c->start = now - c->held;
		return;
	}
	if (c->next_reload)
		c->reload = c->next_reload;
	c->next_reload = 0;
	c->counting = true;
	c->start = now;
}

/* A complete count was written. */
static void pit_load(struct pit *s, struct pit_counter *c, uint16_t raw)
{
	uint32_t count = c->bcd ? pit_from_bcd(raw) : raw;
	uint64_t now = pit_ticks(s);

	if (!count)
		count = c->bcd ? 10000 : 65536;
	/* 1 is illegal in the periodic modes; 2 is the shortest period. */
	if (pit_periodic(c) && count < 2)
		count = 2;
	pit_advance(c, now);
	if (c->loaded && pit_periodic(c)) {
		c->next_reload = count;
	} else {
		c->reload = count;
		c->start = now;
		c->held = 0;
		c->loaded = true;
		/* Modes 1 and 5 wait for the gate; a count they run with is not disturbed here. */
		c->counting = pit_gate_levels(c);
	}
	if (c == &s->counter[0] && !c->next_reload)
		pit_restart_irq(s);
}

static void pit_latch_count(struct pit_counter *c, uint64_t now)
{
	if (c->count_latched)
		return;
	c->count_latched = true;
	c->read_high = false;
	c->count_latch = pit_count(c, now);
}

static void pit_latch_status(struct pit_counter *c, uint64_t now)
{
	bool null_count = !c->loaded || c->next_reload;

	if (c->status_latched)
		return;
	c->status_latched = true;
	c->status_latch = (uint8_t)(pit_output(c, now) << 7 | null_count << 6 | c->rw << 4 | c->mode << 1 | c->bcd);
}

static void pit_read_back(struct pit *s, uint8_t val)
{
	uint64_t now = pit_ticks(s);

	for (unsigned i = 0; i < 3; i++) {
		struct pit_counter *c = &s->counter[i];

		if (!(val & BIT(i + 1)))
			continue;
		pit_advance(c, now);
		if (!(val & BIT(5)))
			pit_latch_count(c, now);
		if (!(val & BIT(4)))
			pit_latch_status(c, now);
	}
}

static void pit_write_control(struct pit *s, uint8_t val)
{
	struct pit_counter *c;

	if (val >> 6 == 3) {
		pit_read_back(s, val);
		return;
	}
	c = &s->counter[val >> 6];
	if ((val >> 4 & 3) == RW_LATCH) {
		uint64_t now = pit_ticks(s);

		pit_advance(c, now);
		pit_latch_count(c, now);
		return;
	}
	c->rw = val >> 4 & 3;
	c->mode = val >> 1 & 7;
	if (c->mode > PIT_HARD_STROBE) /* the high bit of modes 2 and 3 does not matter */
		c->mode &= 3;
	c->bcd = val & 1;
	c->loaded = c->counting = false;
	c->write_high = c->read_high = c->count_latched = c->status_latched = false;
	c->next_reload = 0;
	c->held = 0;
	if (c == &s->counter[0])
		pit_restart_irq(s);
}

static void pit_write_count(struct pit *s, struct pit_counter *c, uint8_t val)
{
	switch (c->rw) {
	case RW_LOW: pit_load(s, c, val); return;
	case RW_HIGH: pit_load(s, c, (uint16_t)(val << 8)); return;
	}
	if (c->write_high) {
		c->write_high = false;
		pit_load(s, c, (uint16_t)(val << 8 | c->write_low));
		return;
	}
	c->write_low = val;
	c->write_high = true;
	/* In mode 0 the first byte already stops the count and lowers the output. */
	if (c->mode == PIT_TERMINAL_COUNT) {
		c->loaded = false;
		if (c == &s->counter[0])
			pit_restart_irq(s);
	}
}

static uint8_t pit_read_count(struct pit_counter *c, uint64_t now)
{
	uint16_t count;
	bool high;

	if (c->status_latched) {
		c->status_latched = false;
		return c->status_latch;
	}
	count = c->count_latched ? c->count_latch : pit_count(c, now);
	high = c->rw == RW_HIGH || (c->rw == RW_BOTH && c->read_high);
	if (c->rw == RW_BOTH)
		c->read_high = !c->read_high;
	if (c->rw != RW_BOTH || high)
		c->count_latched = false;
	return (uint8_t)(high ? count >> 8 : count);
}

static uint64_t pit_read(void *opaque, uint64_t off, unsigned size)
{
	struct pit *s = opaque;
	uint64_t now = pit_ticks(s);

	if (off == 3) /* the control word cannot be read */
		return 0xff;
	pit_advance(&s->counter[off], now);
	return pit_read_count(&s->counter[off], now);
}

static void pit_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct pit *s = opaque;

	if (off == 3)
		pit_write_control(s, (uint8_t)val);
	else
		pit_write_count(s, &s->counter[off], (uint8_t)val);
}

/* ---- port 61h --------------------------------------------------------------------- */

static uint64_t port61_read(void *opaque, uint64_t off, unsigned size)
{
	struct pit *s = opaque;
	uint64_t now = pit_ticks(s);

	pit_advance(&s->counter[2], now);
	/* The refresh bit toggles every 15 us (18 ticks): old software counts it as a delay. */
	return s->port61 | (now / 18 & 1 ? PORT61_REFRESH : 0) | (pit_output(&s->counter[2], now) ? PORT61_OUT2 : 0);
}

static void port61_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct pit *s = opaque;

	s->port61 = val & 0x0f;
	pit_set_gate(s, &s->counter[2], val & PORT61_GATE2);
}

/* ---- life cycle --------------------------------------------------------------------- */

static void pit_reset(struct dev *d)
{
	struct pit *s = container_of(d, struct pit, dev);

	for (unsigned i = 0; i < 3; i++)
		s->counter[i] =
		    (struct pit_counter){.mode = PIT_SQUARE, .rw = RW_BOTH, .gate = i != 2, .reload = 65536};
	s->port61 = 0;
	s->irq_enabled = true;
	s->edge = UINT64_MAX;
	vmtimer_cancel(&s->timer);
	irq_set(&s->irq, 0);
}

static const struct region_ops pit_ops = {pit_read, pit_write, 1, 1};
static const struct region_ops port61_ops = {port61_read, port61_write, 1, 1};

static int pit_realize(struct dev *d, struct err *err)
{
	struct pit *s = container_of(d, struct pit, dev);

	s->irq = d->bus->gsi[0];
	vmtimer_init(&s->timer, d->bus->clock, d->bus->loop, pit_timer, s);
	pit_reset(d);
	s->region = (struct mem_region){.name = "pit", .size = 4, .ops = &pit_ops, .opaque = s, .lock = &d->lock};
	s->port61_region =
	    (struct mem_region){.name = "port61", .size = 1, .ops = &port61_ops, .opaque = s, .lock = &d->lock};
	ports_map(d->bus->ports, &s->region, 0x40);
	ports_map(d->bus->ports, &s->port61_region, 0x61);
	return 0;
}

static void pit_unrealize(struct dev *d)
{
	struct pit *s = container_of(d, struct pit, dev);

	ports_unmap(d->bus->ports, &s->port61_region);
	ports_unmap(d->bus->ports, &s->region);
	vmtimer_fini(&s->timer);
}

/* ---- snapshots ------------------------------------------------------------------------ */

void pit_chip_save(struct dev *d, struct pit_chip *s)
{
	struct pit *p = container_of(d, struct pit, dev);
	const uint64_t now = pit_ticks(p);

	for (unsigned i = 0; i < 3; i++) {
		const struct pit_counter *c = &p->counter[i];

		s->channel[i] = (struct pit_channel){.mode = c->mode,
						     .rw = c->rw,
						     .bcd = c->bcd,
						     .gate = c->gate,
						     .loaded = c->loaded,
						     .counting = c->counting,
						     .write_high = c->write_high,
						     .read_high = c->read_high,
						     .count_latched = c->count_latched,
						     .status_latched = c->status_latched,
						     .write_low = c->write_low,
						     .status_latch = c->status_latch,
						     .count_latch = c->count_latch,
						     .reload = c->reload,
						     .next_reload = c->next_reload,
						     .elapsed = pit_elapsed(c, now)};
	}
	s->port61 = p->port61;
	s->irq_enabled = p->irq_enabled;
	s->edge_known = p->edge != UINT64_MAX;
	s->edge_ago = s->edge_known ? now - p->edge : 0;
}

/* The line's level is loaded with the interrupt controllers. */
void pit_chip_load(struct dev *d, const struct pit_chip *s)
{
	struct pit *p = container_of(d, struct pit, dev);
	const uint64_t now = pit_ticks(p);

	for (unsigned i = 0; i < 3; i++) {
		const struct pit_channel *c = &s->channel[i];

		p->counter[i] = (struct pit_counter){.mode = c->mode,
						     .rw = c->rw,
						     .bcd = c->bcd,
						     .gate = c->gate,
						     .loaded = c->loaded,
						     .counting = c->counting,
						     .write_high = c->write_high,
						     .read_high = c->read_high,
						     .count_latched = c->count_latched,
						     .status_latched = c->status_latched,
						     .write_low = c->write_low,
						     .status_latch = c->status_latch,
						     .count_latch = c->count_latch,
						     .reload = c->reload,
						     .next_reload = c->next_reload,
						     .start = now - c->elapsed,
						     .held = c->elapsed};
	}
	p->port61 = s->port61;
	p->irq_enabled = s->irq_enabled;
	p->edge = s->edge_known ? now - s->edge_ago : pit_next_edge(&p->counter[0], now);
	pit_arm(p);
}

static const struct counter pit_counters[] = {
    {"irqs", offsetof(struct pit, irqs), "timer interrupts raised"},
    {0},
};

const struct dev_ops pit_dev_ops = {
    .type = {.name = "isa-pit", .about = "8254 interval timer and port 61h", .size = sizeof(struct pit)},
    .bus_kind = DEV_BUS_SYSTEM,
    .realize = pit_realize,
    .unrealize = pit_unrealize,
    .reset = pit_reset,
    .engine_chip = true,
    .counters = pit_counters,
};
