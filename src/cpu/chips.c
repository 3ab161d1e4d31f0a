/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of struct chips; see chips.h. */
#include "cpu/chips.h"

#include <errno.h>

#include "base/util.h"

static const struct state_field pic_fields[] = {
    STATE_INT(struct pic_chip, irr),
    STATE_INT(struct pic_chip, isr),
    STATE_INT(struct pic_chip, imr),
    STATE_INT(struct pic_chip, lines),
    STATE_INT(struct pic_chip, elcr),
    STATE_INT(struct pic_chip, vector_base),
    STATE_INT_MAX(struct pic_chip, lowest, 7),
    STATE_INT_MAX(struct pic_chip, icw_next, 4),
    STATE_INT(struct pic_chip, need_icw4),
    STATE_INT(struct pic_chip, single),
    STATE_INT(struct pic_chip, ltim),
    STATE_INT(struct pic_chip, read_isr),
    STATE_INT(struct pic_chip, poll),
    STATE_INT(struct pic_chip, special_mask),
    STATE_INT(struct pic_chip, auto_eoi),
    STATE_INT(struct pic_chip, rotate_auto_eoi),
    STATE_INT(struct pic_chip, special_nested),
    {0},
};

static const struct state_field ioapic_fields[] = {
    STATE_INT(struct ioapic_chip, select),
    STATE_INT_MAX(struct ioapic_chip, id, 15),
    STATE_INT_MAX(struct ioapic_chip, lines, BIT(CHIPS_IOAPIC_PINS) - 1),
    STATE_INTS(struct ioapic_chip, redirection),
    {0},
};

static const struct state_field lapic_fields[] = {
    STATE_INT(struct lapic_chip, base),
    STATE_INTS(struct lapic_chip, irr),
    STATE_INTS(struct lapic_chip, isr),
    STATE_INTS(struct lapic_chip, tmr),
    STATE_INT_MAX(struct lapic_chip, tpr, 255),
    STATE_INT(struct lapic_chip, svr),
    STATE_INT(struct lapic_chip, ldr),
    STATE_INT(struct lapic_chip, dfr),
    STATE_INTS(struct lapic_chip, lvt),
    STATE_INT(struct lapic_chip, esr),
    STATE_INT(struct lapic_chip, icr_low),
    STATE_INT(struct lapic_chip, icr_high),
    STATE_INT(struct lapic_chip, esr_pending),
    STATE_INT(struct lapic_chip, extint),
    STATE_INT(struct lapic_chip, initial_count),
    STATE_INT(struct lapic_chip, current_count),
    STATE_INT_MAX(struct lapic_chip, divide_config, 0xb),
    STATE_INT(struct lapic_chip, tsc_deadline),
    {0},
};

static const struct state_field channel_fields[] = {
    STATE_INT_MAX(struct pit_channel, mode, 5),
    STATE_INT_MAX(struct pit_channel, rw, 3),
    STATE_INT(struct pit_channel, bcd),
    STATE_INT(struct pit_channel, gate),
    STATE_INT(struct pit_channel, loaded),
    STATE_INT(struct pit_channel, counting),
    STATE_INT(struct pit_channel, write_high),
    STATE_INT(struct pit_channel, read_high),
    STATE_INT(struct pit_channel, count_latched),
    STATE_INT(struct pit_channel, status_latched),
    STATE_INT(struct pit_channel, write_low),
    STATE_INT(struct pit_channel, status_latch),
    STATE_INT(struct pit_channel, count_latch),
    STATE_INT_MAX(struct pit_channel, reload, 65536),
    STATE_INT_MAX(struct pit_channel, next_reload, 65536),
    STATE_INT(struct pit_channel, elapsed),
    {0},
};
static const struct state_field pit_fields[] = {
    STATE_STRUCTS(struct pit_chip, channel, channel_fields),
    STATE_INT_MAX(struct pit_chip, port61, 15),
    STATE_INT(struct pit_chip, irq_enabled),
    STATE_INT(struct pit_chip, edge_known),
    STATE_INT(struct pit_chip, edge_ago),
    {0},
};

static const struct state_field chips_fields[] = {
    STATE_STRUCTS(struct chips, pic, pic_fields),
    STATE_ONE(struct chips, ioapic, ioapic_fields),
    STATE_ONE(struct chips, pit, pit_fields),
    STATE_POINTED(struct chips, lapic, ncpus, lapic_fields),
    {0},
};

/* Counts are divided by; 1 is no period, but a mode may be chosen before its count is. */
static bool channel_possible(const struct pit_channel *c)
{
	const bool periodic = c->loaded && (c->mode == 2 || c->mode == 3);

	return c->reload >= 1 && (!periodic || (c->reload >= 2 && c->next_reload != 1));
}

static int chips_post_load(void *obj, struct err *err)
{
	const struct chips *c = obj;

	for (unsigned i = 0; i < 3; i++)
		if (!channel_possible(&c->pit.channel[i]))
			return err_set(err, -EINVAL, "8254: a count that is none: the snapshot is corrupted");
	return 0;
}

const struct state chips_state = {
    .name = "chips", .version = 1, .min_version = 1, .fields = chips_fields, .post_load = chips_post_load};
