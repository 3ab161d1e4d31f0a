/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Output of a byte-at-a-time device (serial port, debug console) to a chardev.
 * One system call per byte would be slow and waiting for a reader would stop the
 * vCPU, so bytes gather in a ring that leaves at each line's end, when it grows,
 * and else within a millisecond. A slow reader fills the ring: chrout_room tells
 * the device, which tells its guest; `writable` says when there is room again.
 *
 * The owner's lock guards it: all calls are made with it held. The two callbacks
 * from the loop take it themselves.
 */
#ifndef KELVIN_HW_PC_CHROUT_H
#define KELVIN_HW_PC_CHROUT_H

#include <pthread.h>
#include "chr/chr.h"
#include "io/loop.h"

#define CHROUT_SIZE 16384u

struct chrout {
	struct chr *chr; /* NULL: bytes vanish */
	pthread_mutex_t *lock;
	void (*writable)(void *owner); /* lock held; may be NULL */
	void *owner;
	struct timer timer;
	bool timer_armed, full; /* full: the guest was told that there is no room */
	uint32_t head, len;
	uint8_t *ring;
	uint64_t bytes, dropped; /* counters */
};

int chrout_init(struct chrout *o, struct chr *chr, struct loop *l, pthread_mutex_t *lock, void (*writable)(void *owner),
		void *owner, struct err *err);
/* Hand over what is left, waiting up to a second for a slow reader. Without the lock, after the vCPUs. */
void chrout_fini(struct chrout *o);
/* May the guest be told to go on? False from half full until the reader has caught up. */
bool chrout_room(struct chrout *o);
/* Never blocks and never refuses; a guest that ignores chrout_room loses bytes once the ring is full. */
void chrout_put(struct chrout *o, uint8_t byte);
void chrout_flush(struct chrout *o);

#endif
