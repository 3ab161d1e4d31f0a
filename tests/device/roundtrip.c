/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See roundtrip.h. */
#include "roundtrip.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>
#include "base/util.h"
#include "cpu/chips.h"
#include "hw/pc/devices.h"
#include "hw/pc/irqchip.h"

#define FAIL(...)                                                                                                      \
	do {                                                                                                           \
		fprintf(stderr, "STATE_ROUNDTRIP: " __VA_ARGS__);                                                      \
		fprintf(stderr, "\n");                                                                                 \
		abort();                                                                                               \
	} while (0)
#define MAX_DEVICES 64
#define MAX_CPUS    64

static unsigned rounds;

static void report(void)
{
	if (rounds < 4) {
		fprintf(stderr, "STATE_ROUNDTRIP: only %u devices were saved and loaded\n", rounds);
		_exit(1);
	}
}

static bool wanted(void)
{
	static int known = -1;

	if (known < 0) {
		known = getenv("STATE_ROUNDTRIP") != NULL;
		if (known)
			atexit(report);
	}
	return known;
}

/* All of them, or -EAGAIN. */
static int save_all(struct bus *bus, struct state_buf *b)
{
	unsigned n = 0;

	for (struct dev *d = bus->devices; d; d = d->next, n++) {
		struct err err = {0};
		int rc = d->ops->state ? state_save(d->ops->state, d, &b[n], &err) : 0;

		if (n == MAX_DEVICES)
			FAIL("too many devices");
		if (rc == -EAGAIN)
			return rc;
		if (rc)
			FAIL("%s: %s", d->ops->type.name, err.msg);
	}
	return 0;
}

static void load_all(struct bus *bus, const struct state_buf *b)
{
	unsigned n = 0;

	for (struct dev *d = bus->devices; d; d = d->next, n++) {
		struct err err = {0};

		if (d->ops->state && state_load(d->ops->state, d, b[n].data, b[n].len, &err))
			FAIL("%s was not loaded: %s", d->ops->type.name, err.msg);
		rounds += d->ops->state != NULL;
	}
}

static void compare(struct bus *bus, const struct state_buf *a, const struct state_buf *b)
{
	unsigned n = 0;

	for (struct dev *d = bus->devices; d; d = d->next, n++) {
		size_t at = 0;

		if (a[n].len != b[n].len)
			FAIL("%s: another length", d->ops->type.name);
		while (at < a[n].len && a[n].data[at] == b[n].data[at])
			at++;
		if (at < a[n].len)
			FAIL("%s: saved again it differs at byte %zu of %zu, after \"%.40s\"", d->ops->type.name, at,
			     a[n].len, (const char *)a[n].data + (at > 60 ? at - 60 : 0));
	}
}

static void free_all(struct state_buf *b)
{
	for (unsigned i = 0; i < MAX_DEVICES; i++)
		state_buf_free(&b[i]);
}

/* What the engine has is not reset: its chips are saved apart. */
static void reset_all(struct bus *bus)
{
	for (struct dev *d = bus->devices; d; d = d->next)
		if (d->ops->reset && d->ops->state && !d->ops->engine_chip)
			d->ops->reset(d);
}

static void devices_roundtrip(struct bus *bus)
{
	static struct state_buf before[MAX_DEVICES], after[MAX_DEVICES];
	const bool busy = save_all(bus, before) == -EAGAIN; /* a pause would change what the test waits for */

	free_all(before);
	free_all(after);
	if (busy)
		return;
	dev_pause_all(bus);
	if (save_all(bus, before) == 0) {
		reset_all(bus);
		load_all(bus, before);
		if (save_all(bus, after))
			FAIL("what was loaded cannot be saved");
		compare(bus, before, after);
	}
	free_all(before);
	free_all(after);
	dev_resume_all(bus);
}

static struct dev *find_pit(struct bus *bus)
{
	for (struct dev *d = bus->devices; d; d = d->next)
		if (d->ops == &pit_dev_ops)
			return d;
	return NULL;
}

static void save_chips(struct bus *bus, struct irqchip *chip, struct chips *c)
{
	irqchip_save(chip, c);
	if (find_pit(bus))
		pit_chip_save(find_pit(bus), &c->pit);
}

/* The chips hold the levels of lines, which a reset of devices lowers: they are loaded after it. */
static void chips_roundtrip(struct bus *bus, struct irqchip *chip, unsigned ncpus)
{
	static struct lapic_chip lapic[3][MAX_CPUS];
	struct chips c[3] = {0};
	struct state_buf b[2] = {0};
	struct err err = {0};

	for (unsigned i = 0; i < 3; i++) {
		memset(lapic[i], 0, sizeof(lapic[i]));
		c[i].ncpus = ncpus;
		c[i].lapic = lapic[i];
		for (unsigned k = 0; k < 3; k++) /* a machine without an 8254 */
			c[i].pit.channel[k].reload = 65536;
	}
	save_chips(bus, chip, &c[0]);
	if (state_save(&chips_state, &c[0], &b[0], &err))
		FAIL("chips: %s", err.msg);
	devices_roundtrip(bus);
	if (state_load(&chips_state, &c[1], b[0].data, b[0].len, &err))
		FAIL("chips: %s", err.msg);
	irqchip_load(chip, &c[1]);
	if (find_pit(bus))
		pit_chip_load(find_pit(bus), &c[1].pit);
	save_chips(bus, chip, &c[2]);
	if (state_save(&chips_state, &c[2], &b[1], &err) || b[0].len != b[1].len ||
	    memcmp(b[0].data, b[1].data, b[0].len) != 0)
		FAIL("chips: saved again they differ");
	state_buf_free(&b[0]);
	state_buf_free(&b[1]);
	rounds++;
}

void state_roundtrip(struct bus *bus, struct irqchip *chip, unsigned ncpus)
{
	if (!wanted())
		return;
	if (chip)
		chips_roundtrip(bus, chip, ncpus);
	else
		devices_roundtrip(bus);
}
