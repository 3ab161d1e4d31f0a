/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Buffered output of byte-wide devices; contract, reasons and locking in chrout.h. */
#include "hw/pc/chrout.h"
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include "base/clock.h"
#include "base/counter.h"
#include "base/util.h"

#define CHROUT_DELAY_NS 1000000 /* how long a byte that ends no line may wait */
#define CHROUT_BATCH	1024	/* bytes that are worth a system call of their own */

void chrout_flush(struct chrout *o)
{
	while (o->len) {
		uint32_t n = MIN(o->len, CHROUT_SIZE - o->head);
		size_t done = chr_write(o->chr, o->ring + o->head, n);

		if (!done)
			break;
		o->head = (o->head + (uint32_t)done) % CHROUT_SIZE;
		o->len -= (uint32_t)done;
	}
	if (o->full && o->len < CHROUT_SIZE / 4) {
		o->full = false;
		if (o->writable)
			o->writable(o->owner);
	}
}

/* The loop's thread: the delay is over, or the chardev takes more. */
static void chrout_flush_locked(void *arg)
{
	struct chrout *o = arg;

	pthread_mutex_lock(o->lock);
	o->timer_armed = false;
	chrout_flush(o);
	pthread_mutex_unlock(o->lock);
}

static void chrout_chr_writable(void *arg)
{
	struct chrout *o = arg;

	pthread_mutex_lock(o->lock);
	chrout_flush(o);
	pthread_mutex_unlock(o->lock);
}

bool chrout_room(struct chrout *o)
{
	if (!o->full && o->len >= CHROUT_SIZE / 2) {
		chrout_flush(o);
		o->full = o->len >= CHROUT_SIZE / 2;
	}
	return !o->full;
}

void chrout_put(struct chrout *o, uint8_t byte)
{
	counter_add(&o->bytes, 1);
	if (!o->chr)
		return;
	if (o->len == CHROUT_SIZE)
		chrout_flush(o);
	if (o->len == CHROUT_SIZE) {
		counter_add(&o->dropped, 1);
		return;
	}
	o->ring[(o->head + o->len++) % CHROUT_SIZE] = byte;
	if (byte == '\n' || o->len % CHROUT_BATCH == 0) {
		chrout_flush(o);
	} else if (!o->timer_armed) {
		/* Left to run when a line's end comes first: one wake-up a millisecond at most. */
		o->timer_armed = true;
		timer_arm(&o->timer, clock_raw_ns() + CHROUT_DELAY_NS);
	}
}

int chrout_init(struct chrout *o, struct chr *chr, struct loop *l, pthread_mutex_t *lock, void (*writable)(void *owner),
		void *owner, struct err *err)
{
	*o = (struct chrout){.chr = chr, .lock = lock, .writable = writable, .owner = owner};
	if (!chr)
		return 0;
	o->ring = malloc(CHROUT_SIZE);
	if (!o->ring)
		return err_set(err, -ENOMEM, "no memory for the output buffer of chardev \"%s\"", chr_id(chr));
	timer_init(&o->timer, l, chrout_flush_locked, o);
	chr_set_writable(chr, chrout_chr_writable, o);
	return 0;
}

void chrout_fini(struct chrout *o)
{
	if (!o->chr)
		return;
	timer_cancel_sync(&o->timer);
	chr_set_writable(o->chr, NULL, o);
	for (unsigned ms = 0; o->len && ms < 1000 && chr_connected(o->chr); ms++) {
		chrout_flush(o);
		if (o->len)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	free(o->ring);
	o->ring = NULL;
	o->chr = NULL;
}
