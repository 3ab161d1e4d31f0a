// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A chardev that several frontends share: one has the keyboard, all may write.
 * Ctrl-a is the escape character. Each frontend has a small queue of typed
 * bytes, so that Ctrl-a still works when a hung guest reads nothing.
 * Everything here runs in the loop's thread.
 */
#include <stdio.h>
#include <string.h>
#include "base/util.h"
#include "chr/chr_impl.h"

#define MUX_ESCAPE 0x01 /* Ctrl-a */

static void mux_say(struct chr *c, const char *text)
{
	chr_write(c, text, strlen(text));
}

static void mux_help(struct chr *c)
{
	mux_say(c, "\r\nCtrl-a h  this help\r\nCtrl-a x  leave Kelvin\r\nCtrl-a s  save disk data (nothing to do: "
		   "there are no snapshots)\r\nCtrl-a b  send a break\r\nCtrl-a c  switch between console and "
		   "monitor\r\nCtrl-a Ctrl-a  send Ctrl-a\r\n");
}

static void mux_event(struct chr *c, enum chr_event event)
{
	struct chr_slot *s = c->focus >= 0 ? &c->slot[c->focus] : NULL;

	if (s && s->used && s->fe.event)
		s->fe.event(s->fe.opaque, event);
}

void mux_set_focus(struct chr *c, int slot)
{
	if (slot == c->focus)
		return;
	mux_event(c, CHR_FOCUS_OUT);
	c->focus = slot;
	mux_event(c, CHR_FOCUS_IN);
}

static void mux_next(struct chr *c)
{
	for (int i = 1; i <= CHR_MAX_FE; i++) {
		int slot = (c->focus + i) % CHR_MAX_FE;
		if (c->slot[slot].used) {
			mux_set_focus(c, slot);
			return;
		}
	}
}

static void mux_command(struct chr *c, uint8_t key)
{
	switch (key) {
	case 'h':
	case '?': mux_help(c); break;
	case 'x':
		mux_say(c, "\r\nkelvin: terminated\r\n");
		chr_quit();
		break;
	case 's': mux_say(c, "\r\nkelvin: there are no snapshots to save\r\n"); break;
	case 'b': mux_event(c, CHR_BREAK); break;
	case 'c': mux_next(c); break;
	default: break; /* as a terminal does with an unknown key: nothing */
	}
}

static void fifo_put(struct chr_fifo *f, uint8_t byte)
{
	if (f->len < CHR_FIFO)
		f->data[(f->head + f->len++) % CHR_FIFO] = byte;
}

/* The keyboard's queue is what limits the input; bytes with nobody to read them are dropped. */
size_t mux_room(struct chr *c)
{
	return c->focus < 0 ? 0 : CHR_FIFO - c->fifo[c->focus].len;
}

void mux_drain(struct chr *c)
{
	for (int i = 0; i < CHR_MAX_FE; i++) {
		struct chr_fifo *f = &c->fifo[i];
		while (c->slot[i].used && f->len) {
			const struct chr_fe *fe = &c->slot[i].fe;
			size_t room = fe->can_receive(fe->opaque);
			size_t n = MIN(MIN(room, f->len), CHR_FIFO - f->head);
			if (!n) {
				/* chr_fe_ready posts only while this is set. */
				atomic_store(&c->paused, true);
				if (!fe->can_receive(fe->opaque))
					break;
				continue;
			}
			uint8_t buf[256];
			n = MIN(n, sizeof(buf));
			memcpy(buf, f->data + f->head, n);
			f->head = (f->head + n) % CHR_FIFO;
			f->len -= n;
			fe->receive(fe->opaque, buf, n);
		}
	}
}

void mux_input(struct chr *c, const uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (c->escape) {
			c->escape = false;
			if (buf[i] != MUX_ESCAPE) {
				mux_command(c, buf[i]);
				continue;
			}
		} else if (buf[i] == MUX_ESCAPE) {
			c->escape = true;
			continue;
		}
		if (c->focus >= 0)
			fifo_put(&c->fifo[c->focus], buf[i]);
	}
	mux_drain(c);
}
