/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * MC146818A real-time clock with 114 bytes of memory that the board and firmware
 * use (Motorola data sheet ADI-856), ports 70h and 71h, IRQ 8. Register 32h is the
 * century, as the FADT says.
 *
 * The time of day is a clock plus an offset that setting the time changes. Flags
 * and interrupts are worked out from the time that has passed since they were last
 * looked at; a host timer runs only for an enabled interrupt that is not pending
 * yet. Everything runs under dev.lock, and under it the power management device's.
 */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include "base/clock.h"
#include "base/util.h"
#include "hw/pc/acpi_pm.h"
#include "hw/pc/devices.h"

enum {
	RTC_SECONDS,
	RTC_SECONDS_ALARM,
	RTC_MINUTES,
	RTC_MINUTES_ALARM,
	RTC_HOURS,
	RTC_HOURS_ALARM,
	RTC_DAY_OF_WEEK,
	RTC_DAY_OF_MONTH,
	RTC_MONTH,
	RTC_YEAR,
	RTC_A,
	RTC_B,
	RTC_C,
	RTC_D,
	RTC_CENTURY = 0x32,
	RTC_SIZE = 128,
};

#define A_UIP	  BIT(7)
#define A_DIVIDER 0x70
#define A_RATE	  0x0f
#define B_SET	  BIT(7)
#define B_PIE	  BIT(6)
#define B_AIE	  BIT(5)
#define B_UIE	  BIT(4)
#define B_SQWE	  BIT(3)
#define B_BINARY  BIT(2)
#define B_24H	  BIT(1)
#define C_IRQF	  BIT(7)
#define D_VRT	  BIT(7)
#define HOURS_PM  BIT(7)
#define ALARM_ANY 0xc0

#define DIVIDER_32KHZ 0x20
#define DIVIDER_RESET 0x60 /* 110b and 111b */

#define RTC_HZ	     32768ull
#define RTC_UIP_NS   244000ull	/* UIP precedes the update by this much */
#define RTC_MAX_TIME 7258118399 /* the end of 2199: nanoseconds must fit */
#define RTC_HALF_SEC 500000000ull

enum { RTC_CLOCK_HOST, RTC_CLOCK_VM };

struct rtc {
	struct dev dev;
	char *base; /* properties */
	int clock_kind;
	struct mem_region region;
	struct irq irq;
	bool irq_enabled; /* false while the HPET replaces IRQ 8 */
	bool alarm_seen;  /* the present alarm was reported to power management */
	struct vmtimer timer;
	uint8_t index;
	uint8_t reg[RTC_SIZE]; /* the time's own registers count only while it stands still */
	int64_t offset_ns;     /* guest time of day = clock + offset */
	uint64_t seen_ns;      /* time of day up to which flags are worked out */
};

/* ---- the time ------------------------------------------------------------ */

/* Time of day in ns since 1970, in whatever zone the guest's clock keeps. */
static uint64_t rtc_now(const struct rtc *s)
{
	const struct vmclock *c = s->dev.bus->clock;
	uint64_t ns = s->clock_kind == RTC_CLOCK_VM ? c->wall_base_ns + vmclock_ns(c) : clock_wall_ns();

	return ns + (uint64_t)s->offset_ns;
}

/* SET, or a divider held in reset, stops the clock. */
static bool rtc_stopped(const struct rtc *s)
{
	return (s->reg[RTC_B] & B_SET) || (s->reg[RTC_A] & DIVIDER_RESET) == DIVIDER_RESET;
}

static uint8_t rtc_encode(const struct rtc *s, int v)
{
	return (uint8_t)(s->reg[RTC_B] & B_BINARY ? v : v / 10 << 4 | v % 10);
}

static int rtc_decode(const struct rtc *s, uint8_t v)
{
	return s->reg[RTC_B] & B_BINARY ? v : (v >> 4) * 10 + (v & 15);
}

static uint8_t rtc_encode_hours(const struct rtc *s, int hour)
{
	if (s->reg[RTC_B] & B_24H)
		return rtc_encode(s, hour);
	return rtc_encode(s, hour % 12 ? hour % 12 : 12) | (hour >= 12 ? HOURS_PM : 0);
}

static int rtc_decode_hours(const struct rtc *s, uint8_t v)
{
	if (s->reg[RTC_B] & B_24H)
		return rtc_decode(s, v);
	return rtc_decode(s, v & 0x7f) % 12 + (v & HOURS_PM ? 12 : 0);
}

/* Write the present time into the registers. */
static void rtc_store_time(struct rtc *s)
{
	time_t seconds = (time_t)(rtc_now(s) / NSEC_PER_SEC);
	struct tm tm;

	gmtime_r(&seconds, &tm);
	s->reg[RTC_SECONDS] = rtc_encode(s, tm.tm_sec);
	s->reg[RTC_MINUTES] = rtc_encode(s, tm.tm_min);
	s->reg[RTC_HOURS] = rtc_encode_hours(s, tm.tm_hour);
	s->reg[RTC_DAY_OF_WEEK] = rtc_encode(s, tm.tm_wday + 1);
	s->reg[RTC_DAY_OF_MONTH] = rtc_encode(s, tm.tm_mday);
	s->reg[RTC_MONTH] = rtc_encode(s, tm.tm_mon + 1);
	s->reg[RTC_YEAR] = rtc_encode(s, tm.tm_year % 100);
	s->reg[RTC_CENTURY] = (uint8_t)((tm.tm_year + 1900) / 1000 << 4 | (tm.tm_year + 1900) / 100 % 10);
}

/* The registers are the time from now on; `fraction` of the first second has passed. */
static void rtc_take_time(struct rtc *s, uint64_t fraction)
{
	uint8_t century = s->reg[RTC_CENTURY];
	struct tm tm = {.tm_sec = rtc_decode(s, s->reg[RTC_SECONDS]),
			.tm_min = rtc_decode(s, s->reg[RTC_MINUTES]),
			.tm_hour = rtc_decode_hours(s, s->reg[RTC_HOURS]),
			.tm_mday = rtc_decode(s, s->reg[RTC_DAY_OF_MONTH]),
			.tm_mon = rtc_decode(s, s->reg[RTC_MONTH]) - 1,
			.tm_year = rtc_decode(s, s->reg[RTC_YEAR]) % 100};
	time_t t;

	tm.tm_year += ((century >> 4) * 10 + (century & 15)) * 100 - 1900;
	/* timegm carries fields that are out of range, so whatever the guest wrote is some time. */
	t = timegm(&tm);
	if (t < 0)
		t = 0;
	if (t > RTC_MAX_TIME)
		t = RTC_MAX_TIME;
	s->offset_ns += (int64_t)((uint64_t)t * NSEC_PER_SEC + fraction - rtc_now(s));
	s->seen_ns = rtc_now(s);
}

/* ---- flags and interrupts --------------------------------------------------- */

/* Of the periodic interrupt, in ns times 32768; 0: none. */
static uint64_t rtc_period_ticks(const struct rtc *s)
{
	unsigned rate = s->reg[RTC_A] & A_RATE;

	if (!rate || (s->reg[RTC_A] & A_DIVIDER) != DIVIDER_32KHZ)
		return 0;
	return 1ull << (rate <= 2 ? rate + 6 : rate - 1);
}

/* Which period of the periodic interrupt a time of day falls into. */
static uint64_t rtc_period_of(uint64_t ns, uint64_t ticks)
{
	return muldiv64(ns, RTC_HZ, NSEC_PER_SEC) / ticks;
}

static bool rtc_alarm_matches(const struct rtc *s, uint8_t alarm, int value, bool hours)
{
	if ((alarm & ALARM_ANY) == ALARM_ANY)
		return true;
	return (hours ? rtc_decode_hours(s, alarm) : rtc_decode(s, alarm)) == value;
}

/* The next second after `from` at which the alarm goes off, within a day; UINT64_MAX: none. */
static uint64_t rtc_next_alarm(const struct rtc *s, uint64_t from)
{
	for (uint64_t t = from + 1; t <= from + 86400;) {
		if (!rtc_alarm_matches(s, s->reg[RTC_HOURS_ALARM], (int)(t / 3600 % 24), true))
			t += 3600 - t % 3600;
		else if (!rtc_alarm_matches(s, s->reg[RTC_MINUTES_ALARM], (int)(t / 60 % 60), false))
			t += 60 - t % 60;
		else if (!rtc_alarm_matches(s, s->reg[RTC_SECONDS_ALARM], (int)(t % 60), false))
			t++;
		else
			return t;
	}
	return UINT64_MAX;
}

/* An alarm is an ACPI event too: Linux waits for that instead of IRQ 8 where it thinks the firmware new. */
static void rtc_report_alarm(struct rtc *s)
{
	bool alarm = s->reg[RTC_C] & s->reg[RTC_B] & B_AIE;

	if (alarm && !s->alarm_seen) {
		for (struct dev *d = s->dev.bus->devices; d; d = d->next) {
			if (d->ops == &acpi_pm_ops)
				acpi_pm_rtc_alarm(d);
		}
	}
	s->alarm_seen = alarm;
}

static void rtc_update_irq(struct rtc *s)
{
	if (s->reg[RTC_C] & s->reg[RTC_B] & (B_PIE | B_AIE | B_UIE))
		s->reg[RTC_C] |= C_IRQF;
	else
		s->reg[RTC_C] &= ~C_IRQF;
	if (s->irq_enabled)
		irq_set(&s->irq, s->reg[RTC_C] >> 7);
	rtc_report_alarm(s);
}

/* Raise the flags of what happened since the last look. */
static void rtc_update_flags(struct rtc *s)
{
	uint64_t now = rtc_now(s), seen = s->seen_ns / NSEC_PER_SEC, ticks = rtc_period_ticks(s);

	if (now <= s->seen_ns) {
		/* The host's clock was set back: look from there on. */
		s->seen_ns = now;
		return;
	}
	if (ticks && rtc_period_of(now, ticks) != rtc_period_of(s->seen_ns, ticks))
		s->reg[RTC_C] |= B_PIE;
	if (!rtc_stopped(s) && now / NSEC_PER_SEC != seen) {
		s->reg[RTC_C] |= B_UIE;
		if (rtc_next_alarm(s, seen) <= now / NSEC_PER_SEC)
			s->reg[RTC_C] |= B_AIE;
	}
	s->seen_ns = now;
}

/* Arm for the first enabled interrupt that is not pending yet. */
static void rtc_arm(struct rtc *s)
{
	uint8_t wanted = s->reg[RTC_B] & ~s->reg[RTC_C];
	uint64_t now = s->seen_ns, second = now / NSEC_PER_SEC, next = UINT64_MAX, ticks = rtc_period_ticks(s), alarm;

	if ((wanted & B_PIE) && ticks)
		next = muldiv64((rtc_period_of(now, ticks) + 1) * ticks, NSEC_PER_SEC, RTC_HZ) + 1;
	if (!rtc_stopped(s)) {
		if (wanted & B_UIE)
			next = MIN(next, (second + 1) * NSEC_PER_SEC);
		alarm = wanted & B_AIE ? rtc_next_alarm(s, second) : UINT64_MAX;
		if (alarm != UINT64_MAX)
			next = MIN(next, alarm * NSEC_PER_SEC);
	}
	if (next == UINT64_MAX)
		vmtimer_cancel(&s->timer);
	else
		vmtimer_arm(&s->timer, vmclock_ns(s->dev.bus->clock) + (next - now));
}

/* After anything that may change flags, enables or the time. */
static void rtc_refresh(struct rtc *s)
{
	rtc_update_flags(s);
	rtc_update_irq(s);
	rtc_arm(s);
}

static void rtc_timer(void *arg)
{
	struct rtc *s = arg;

	pthread_mutex_lock(&s->dev.lock);
	rtc_refresh(s);
	pthread_mutex_unlock(&s->dev.lock);
}

void rtc_set_irq_enabled(struct dev *d, bool on)
{
	struct rtc *s = container_of(d, struct rtc, dev);

	pthread_mutex_lock(&d->lock);
	if (!on)
		irq_set(&s->irq, 0);
	s->irq_enabled = on;
	rtc_update_irq(s);
	pthread_mutex_unlock(&d->lock);
}

/* ---- ports --------------------------------------------------------------------- */

static bool rtc_is_time(uint8_t index)
{
	return index <= RTC_HOURS ? !(index & 1) : index >= RTC_DAY_OF_WEEK && index <= RTC_YEAR;
}

static uint8_t rtc_read_reg(struct rtc *s, uint8_t index)
{
	uint8_t val;

	switch (index) {
	case RTC_A:
		val = s->reg[RTC_A] & ~A_UIP;
		if (!rtc_stopped(s) && rtc_now(s) % NSEC_PER_SEC >= NSEC_PER_SEC - RTC_UIP_NS)
			val |= A_UIP;
		return val;
	case RTC_C:
		rtc_update_flags(s);
		rtc_update_irq(s);
		val = s->reg[RTC_C];
		s->reg[RTC_C] = 0;
		rtc_refresh(s);
		return val;
	case RTC_D: return D_VRT;
	}
	if ((rtc_is_time(index) || index == RTC_CENTURY) && !rtc_stopped(s))
		rtc_store_time(s);
	return s->reg[index];
}

/* Registers A and B may stop the clock or let it go on. */
static void rtc_write_control(struct rtc *s, uint8_t index, uint8_t val)
{
	bool was = rtc_stopped(s), in_reset = (s->reg[RTC_A] & DIVIDER_RESET) == DIVIDER_RESET;

	rtc_update_flags(s);
	if (!was)
		rtc_store_time(s);
	if (index == RTC_B && (val & B_SET))
		val &= ~B_UIE; /* as the data sheet has it: SET clears UIE */
	s->reg[index] = index == RTC_A ? val & ~A_UIP : val;
	/* After a divider reset the first update is half a second away. */
	if (was && !rtc_stopped(s))
		rtc_take_time(s, in_reset ? RTC_HALF_SEC : rtc_now(s) % NSEC_PER_SEC);
	else if (!was && !rtc_stopped(s))
		rtc_store_time(s); /* the format may have changed */
	rtc_refresh(s);
}

static void rtc_write_reg(struct rtc *s, uint8_t index, uint8_t val)
{
	switch (index) {
	case RTC_A:
	case RTC_B: rtc_write_control(s, index, val); return;
	case RTC_C:
	case RTC_D: return; /* read-only */
	}
	if (!rtc_is_time(index) && index != RTC_CENTURY) {
		s->reg[index] = val;
		if (index <= RTC_HOURS_ALARM)
			rtc_refresh(s);
		return;
	}
	if (rtc_stopped(s)) {
		s->reg[index] = val;
		return;
	}
	/* Set while it runs: that register changes, the rest goes on. */
	rtc_update_flags(s);
	rtc_store_time(s);
	s->reg[index] = val;
	rtc_take_time(s, rtc_now(s) % NSEC_PER_SEC);
	rtc_refresh(s);
}

static uint64_t rtc_read(void *opaque, uint64_t off, unsigned size)
{
	struct rtc *s = opaque;

	/* The index port cannot be read. */
	return off ? rtc_read_reg(s, s->index) : 0xff;
}

static void rtc_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct rtc *s = opaque;

	if (off)
		rtc_write_reg(s, s->index, (uint8_t)val);
	else
		s->index = val & 0x7f; /* bit 7 masks NMI on the original board */
}

/* ---- the board's ------------------------------------------------------------------ */

void rtc_set_cmos(struct dev *d, uint8_t index, uint8_t value)
{
	struct rtc *s = container_of(d, struct rtc, dev);

	pthread_mutex_lock(&d->lock);
	if (index > RTC_D && index != RTC_CENTURY && index < RTC_SIZE)
		s->reg[index] = value;
	pthread_mutex_unlock(&d->lock);
}

static void rtc_set_cmos16(struct dev *d, uint8_t index, uint64_t value)
{
	rtc_set_cmos(d, index, (uint8_t)value);
	rtc_set_cmos(d, index + 1, (uint8_t)(value >> 8));
}

void rtc_set_memory(struct dev *d, uint64_t below_4g, uint64_t above_4g)
{
	uint64_t extended = below_4g > MIB ? (below_4g - MIB) / KIB : 0;

	rtc_set_cmos16(d, 0x15, 640);
	rtc_set_cmos16(d, 0x17, MIN(extended, 65535));
	rtc_set_cmos16(d, 0x30, MIN(extended, 65535));
	rtc_set_cmos16(d, 0x34, below_4g > 16 * MIB ? MIN((below_4g - 16 * MIB) / (64 * KIB), 65535) : 0);
	rtc_set_cmos16(d, 0x5b, above_4g / (64 * KIB));
	rtc_set_cmos(d, 0x5d, (uint8_t)(above_4g / (64 * KIB) >> 16));
}

/* ---- life cycle ------------------------------------------------------------------------ */

/* -rtc base=: utc, localtime, or a date of the guest's start. */
static int rtc_apply_base(struct rtc *s, struct err *err)
{
	time_t now = (time_t)(clock_wall_ns() / NSEC_PER_SEC);
	struct tm tm = {0};
	char end;
	int n;

	if (!s->base || !strcmp(s->base, "utc"))
		return 0;
	if (!strcmp(s->base, "localtime")) {
		localtime_r(&now, &tm);
		s->offset_ns = (int64_t)tm.tm_gmtoff * (int64_t)NSEC_PER_SEC;
		return 0;
	}
	n = sscanf(s->base, "%4d-%2d-%2dT%2d:%2d:%2d%c", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
		   &tm.tm_sec, &end);
	if (n == 3 && strspn(s->base, "0123456789-") == strlen(s->base))
		n = 6;
	if (n != 6 || tm.tm_year < 1970 || tm.tm_year > 2199 || (unsigned)tm.tm_mon - 1 > 11 ||
	    (unsigned)tm.tm_mday - 1 > 30 || (unsigned)tm.tm_hour > 23 || (unsigned)tm.tm_min > 59 ||
	    (unsigned)tm.tm_sec > 59)
		return err_set(
		    err, -EINVAL,
		    "\"base\" is \"%s\"; use utc, localtime, YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS (1970 to 2199)",
		    s->base);
	tm.tm_year -= 1900;
	tm.tm_mon--;
	s->offset_ns = (int64_t)timegm(&tm) * (int64_t)NSEC_PER_SEC - (int64_t)rtc_now(s);
	return 0;
}

static void rtc_reset(struct dev *d)
{
	struct rtc *s = container_of(d, struct rtc, dev);

	/* The battery keeps time and memory; only what interrupts is cleared. */
	s->reg[RTC_B] &= ~(B_PIE | B_AIE | B_UIE | B_SQWE);
	s->reg[RTC_C] = 0;
	s->irq_enabled = true;
	rtc_update_irq(s);
	rtc_arm(s);
}

/* The host's clock has gone on while the machine stood: what is due by now, and the timer anew. */
static void rtc_resume(struct dev *d)
{
	struct rtc *s = container_of(d, struct rtc, dev);

	pthread_mutex_lock(&d->lock);
	rtc_refresh(s);
	pthread_mutex_unlock(&d->lock);
}

static const struct region_ops rtc_ops = {rtc_read, rtc_write, 1, 1};

static int rtc_realize(struct dev *d, struct err *err)
{
	struct rtc *s = container_of(d, struct rtc, dev);
	int r = rtc_apply_base(s, err);

	if (r)
		return r;
	s->irq = d->bus->gsi[8];
	vmtimer_init(&s->timer, d->bus->clock, d->bus->loop, rtc_timer, s);
	s->reg[RTC_A] = DIVIDER_32KHZ | 6; /* 1024 Hz */
	s->reg[RTC_B] = B_24H;
	s->seen_ns = rtc_now(s);
	rtc_reset(d);
	s->region = (struct mem_region){.name = "rtc", .size = 2, .ops = &rtc_ops, .opaque = s, .lock = &d->lock};
	ports_map(d->bus->ports, &s->region, 0x70);
	return 0;
}

static void rtc_unrealize(struct dev *d)
{
	struct rtc *s = container_of(d, struct rtc, dev);

	ports_unmap(d->bus->ports, &s->region);
	vmtimer_fini(&s->timer);
}

static const char *const rtc_clock_kinds[] = {"host", "vm", NULL};
static const struct prop rtc_props[] = {
    {.name = "base",
     .kind = PROP_STR,
     .offset = offsetof(struct rtc, base),
     .help = "utc, localtime or the date at the start (default utc)"},
    {.name = "clock",
     .kind = PROP_ENUM,
     .offset = offsetof(struct rtc, clock_kind),
     .def = "host",
     .help = "goes on while the machine is stopped (host) or not (vm)",
     .values = rtc_clock_kinds},
    {0},
};

static const struct state_field rtc_fields[] = {
    STATE_INT(struct rtc, irq_enabled),
    STATE_INT(struct rtc, alarm_seen),
    STATE_INT_MAX(struct rtc, index, RTC_SIZE - 1),
    STATE_RAW(struct rtc, reg),
    STATE_INT(struct rtc, offset_ns),
    STATE_INT_MAX(struct rtc, seen_ns, INT64_MAX),
    {0},
};

/* What is due by now is seen when the machine goes on (rtc_resume). */
static const struct state rtc_state = {.name = "rtc", .version = 1, .min_version = 1, .fields = rtc_fields};

const struct dev_ops rtc_dev_ops = {
    .type = {.name = "mc146818rtc",
	     .about = "real-time clock and CMOS memory",
	     .size = sizeof(struct rtc),
	     .props = rtc_props},
    .bus_kind = DEV_BUS_SYSTEM,
    .realize = rtc_realize,
    .unrealize = rtc_unrealize,
    .reset = rtc_reset,
    .resume = rtc_resume,
    .state = &rtc_state,
};
