/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * -object iothread: a thread that runs an event loop of its own, so that a disk's
 * work does not share the main loop. Started when first used; main thread only.
 */
#ifndef KELVIN_IO_IOTHREAD_H
#define KELVIN_IO_IOTHREAD_H

#include "base/object.h"
#include "io/loop.h"

/* The loop of this object's thread, running. NULL and err on failure. */
struct loop *iothread_loop(struct object *o, struct err *err);
/*
 * Run fn(arg) in the loop's thread and wait for it. For any other loop than an
 * iothread's, or from that thread itself, fn is just called: then the caller must
 * be where the loop may be used. Holds no locks that fn or the loop takes.
 */
void iothread_call(struct loop *l, void (*fn)(void *arg), void *arg);
/* End all of them: after what used their loops is gone. */
void iothread_stop_all(void);

#endif
